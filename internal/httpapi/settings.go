package httpapi

import (
	"log/slog"
	"sync/atomic"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// maxSettingBody bounds the body of a change to a setting: it is held in memory.
const maxSettingBody = 256 << 10

// setting is a setting of the registry in the form that requests use. The registry is
// asked each time, so a change counts at once wherever it was made; the text is read
// again only when it is another one.
type setting[T any] struct {
	name string
	read func(text []byte) (T, error)
	last atomic.Pointer[readSetting[T]]
}

// readSetting is a text and what it says.
type readSetting[T any] struct {
	text  []byte
	value T
}

// get gives the present value; the zero value if it was never set, or cannot be read,
// which only a fault of ours can bring about.
func (s *setting[T]) get(registry cluster.Registry, log *slog.Logger) (value T) {
	text, ok := registry.Setting(s.name)
	if !ok || len(text) == 0 {
		return value
	}
	// The registry never changes a text, it puts another one in its place; and last
	// keeps this one, so no other text can come to lie where it is.
	if last := s.last.Load(); last != nil && len(last.text) == len(text) && &last.text[0] == &text[0] {
		return last.value
	}
	value, err := s.read(text)
	if err != nil {
		log.Error("a setting cannot be read and counts as not set", "setting", s.name, "error", err)
	}
	s.last.Store(&readSetting[T]{text: text, value: value})
	return value
}

// readSetting reads the body of a change to a setting.
func (rq *request) readSetting() ([]byte, error) {
	raw, release, err := rq.readBody(maxSettingBody)
	defer release()
	if err != nil {
		return nil, err
	}
	obj, err := rawjson.Normalize(nil, raw, rq.api.Limits.MaxDepth)
	if err != nil {
		return nil, errInvalidJSON
	}
	return obj, nil
}

// onlyMembers refuses what is no object, or has other members than these: one that is
// spelt wrongly must not pass for one that was left out.
func onlyMembers(obj []byte, names ...string) error {
	if rawjson.KindOf(obj) != rawjson.KindObject {
		return model.BadRequest("The body must be a JSON object.")
	}
next:
	for name := range rawjson.Members(obj) {
		for _, known := range names {
			if string(name) == known {
				continue next
			}
		}
		return model.BadRequest("There is no member " + string(rawjson.AppendString(nil, string(name))) + " here.")
	}
	return nil
}
