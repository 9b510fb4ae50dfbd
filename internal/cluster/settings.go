package cluster

import (
	"context"

	"github.com/divandb/divan/internal/model"
)

// SetRevsLimit changes how many ancestors a branch keeps.
func (l *Local) SetRevsLimit(ctx context.Context, name string, limit int) (*Database, error) {
	if limit <= 0 {
		return nil, model.BadRequest("`_revs_limit` must be a positive integer.")
	}
	return l.change(ctx, name, func(d *Database) { d.RevsLimit = limit })
}

// SetSecurity keeps a security object.
func (l *Local) SetSecurity(ctx context.Context, name string, security []byte) (*Database, error) {
	security = append([]byte(nil), security...)
	return l.change(ctx, name, func(d *Database) { d.setSecurity(security) })
}

// change makes a new value of a database.
func (l *Local) change(ctx context.Context, name string, alter func(*Database)) (*Database, error) {
	done, err := l.begin(ctx, name)
	if err != nil {
		return nil, err
	}
	defer done()
	l.seen.RLock()
	e := l.seen.dbs[name]
	l.seen.RUnlock()
	if e == nil {
		l.log.Unlock()
		return nil, model.ErrDBNotFound
	}
	d := *e.db.Load()
	alter(&d)
	b := l.store.NewBatch()
	b.Set(databaseKey(name), appendRow(nil, &d, l.o.Node))
	if err := l.commit(ctx, b, nil, func() { e.db.Store(&d) }); err != nil {
		return nil, err
	}
	return &d, nil
}

// Setting gives a server setting. The value must not be changed.
func (l *Local) Setting(name string) ([]byte, bool) {
	l.seen.RLock()
	defer l.seen.RUnlock()
	v, ok := l.seen.settings[name]
	return v, ok
}

// SetSetting keeps a server setting; nil removes it.
func (l *Local) SetSetting(ctx context.Context, name string, value []byte) error {
	if value != nil {
		value = append([]byte{}, value...)
	}
	b := l.store.NewBatch()
	setSetting(b, name, value)
	l.log.Lock()
	return l.commit(ctx, b, nil, func() {
		if value == nil {
			delete(l.seen.settings, name)
			return
		}
		l.seen.settings[name] = value
	})
}
