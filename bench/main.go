package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Options says what to drive and how hard. Its fields are the flags.
type Options struct {
	URL       string        `arg:"" help:"The server, with credentials: http://user:password@host:port."`
	PID       int           `help:"The server's process id: CPU time and memory of its whole process tree are measured."`
	Docs      int           `default:"50000" help:"Documents of the bulk insert; the counts of all other workloads follow from it."`
	Workloads []string      `help:"Comma-separated workloads to run; all but the large ones when left out. Names: ${workloads}."`
	Duration  time.Duration `default:"60s" help:"The longest a workload may take; it ends earlier when its count is done."`
	Q         int           `help:"Ranges per database; the server's default when left out."`
	JSON      bool          `name:"json" help:"Print JSON instead of the table."`
	Compare   bool          `help:"Put CouchDB's figures beside ours, and how many times ours they are."`
	Bare      bool          `help:"Measure the bare limits too: the same bytes straight to the ordered store, and from a bare net/http handler."`
	BareDir   string        `default:"." type:"path" help:"Directory of the bare store; should be on the disk of the server's data."`
	Large     bool          `help:"Also stream _all_docs and _changes of a large database."`
	LargeDocs int           `default:"1000000" help:"Documents of the large database."`
}

// The most that can be asked for, so that a slip of the finger ends in words and
// not in a full disk.
const (
	maxDocs      = 10_000_000
	maxLargeDocs = 100_000_000
	maxDuration  = time.Hour
)

// Validate checks the ranges of the options; kong calls it too.
func (o *Options) Validate() error {
	switch {
	case o.Docs < 100 || o.Docs > maxDocs:
		return fmt.Errorf("--docs must be from 100 to %d", maxDocs)
	case o.LargeDocs < 1 || o.LargeDocs > maxLargeDocs:
		return fmt.Errorf("--large-docs must be from 1 to %d", maxLargeDocs)
	case o.Duration < time.Second || o.Duration > maxDuration:
		return fmt.Errorf("--duration must be from 1s to %s", maxDuration)
	case o.PID < 0 || o.Q < 0:
		return errors.New("--pid and --q cannot be negative")
	}
	return nil
}

// Main is `divan bench`: it takes the words after that and prints to stdout.
// The hidden first words bare-http and bare-store make this process the server
// or the writer of a bare limit.
func Main(args []string, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(args) > 0 {
		switch args[0] {
		case bareHTTPCommand:
			return serveBareHTTP(stdout)
		case bareStoreCommand:
			return writeBareStore(args[1:], stdout)
		}
	}
	var o Options
	exited := false
	parser, err := kong.New(&o, kong.Name("divan bench"), kong.Writers(stdout, stdout),
		kong.Description("Drives a CouchDB-compatible server and prints what each operation costs."),
		kong.Vars{"workloads": workloadNames()}, kong.Exit(func(int) { exited = true }))
	if err != nil {
		return err
	}
	if _, err := parser.Parse(args); exited || err != nil {
		// After --help kong goes on parsing; what it says then is of no use.
		if exited {
			return nil
		}
		return err
	}
	return Run(ctx, o, stdout)
}

// Run drives the server. It cleans up what it created, also when it is cut
// short, and a workload that fails does not stop the others.
func Run(ctx context.Context, o Options, stdout io.Writer) (err error) {
	if err := o.Validate(); err != nil {
		return err
	}
	list, err := chosen(o)
	if err != nil {
		return err
	}
	s, err := newSession(o)
	if err != nil {
		return err
	}
	c, err := s.target.dial(ctx)
	if err != nil {
		return err
	}
	_, err = c.want(ctx, "GET", "/_all_dbs?limit=1", nil, 200)
	c.close()
	if err != nil {
		return fmt.Errorf("the server does not take these credentials: %w", err)
	}
	if o.PID > 0 {
		if _, err := treeUsage(o.PID); err != nil {
			return err
		}
	}
	defer func() {
		// Its own context: what was created must go also after an interrupt.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		err = errors.Join(err, s.cleanup(clean))
	}()
	start := time.Now()
	p := &report{out: stdout, asJSON: o.JSON, compare: o.Compare, bare: o.Bare}
	if err := p.header(); err != nil {
		return err
	}
	var failed error
	for _, e := range list {
		r, err := s.measured(ctx, e)
		if ctx.Err() != nil {
			return errors.Join(failed, context.Cause(ctx), p.finish(time.Since(start)))
		}
		if err != nil {
			r.Error = err.Error()
			failed = errors.Join(failed, fmt.Errorf("%s: %w", e.name, err))
		}
		if err := p.add(r); err != nil {
			return errors.Join(failed, err)
		}
	}
	if o.PID > 0 {
		if err := p.add(overallPeak(p.results)); err != nil {
			return errors.Join(failed, err)
		}
	}
	if o.Bare {
		failed = errors.Join(failed, s.bareLimits(ctx, p))
	}
	return errors.Join(failed, p.finish(time.Since(start)))
}
