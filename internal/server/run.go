package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/divandb/divan/internal/config"
)

// The exit statuses of `divan serve`.
const (
	exitOK    = 0
	exitFault = 1
	// exitStore is EX_TEMPFAIL: the store failed under way (a disk that refuses
	// writes), and a start recovers everything that was acknowledged. A supervisor
	// may tell it from a start that can never work.
	exitStore = 75
)

// Run is `divan serve`: it serves until SIGTERM or SIGINT and gives the exit
// status of the process.
func Run(args []string, stdout, stderr io.Writer) int {
	cfg, err := config.Load(args, os.LookupEnv, stdout)
	if errors.Is(err, config.ErrHelp) {
		return exitOK
	}
	if err != nil {
		return fault(stderr, err)
	}
	// From here on a signal ends the process in order, also during the start.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	tuneMemory()
	log := newLogger(cfg, stderr)
	s, err := Start(ctx, cfg, Options{
		Stdout: stdout,
		Log:    log,
		// Nothing may run on: what readers see could be more than the disk has.
		OnFatal: func(error) { os.Exit(exitStore) },
	})
	if err != nil {
		if ctx.Err() != nil {
			return exitOK
		}
		return fault(stderr, err)
	}
	log.Info("serving", "addr", s.Addr(), "data", cfg.Data, "version", Version, "build", Build())
	if _, err := fmt.Fprintf(stdout, "listening on %s\n", s.URL()); err != nil {
		log.Warn("stdout cannot be written", "error", err)
	}
	status := exitOK
	select {
	case <-ctx.Done():
		log.Info("stopping")
	case err := <-s.Failed():
		log.Error("the listener failed", "error", err)
		status = exitFault
	}
	stop() // a second signal ends the process at once
	end, cancel := context.WithTimeout(context.Background(), cfg.ShutdownTimeout)
	defer cancel()
	if err := s.Shutdown(end); err != nil {
		// The data is whole: nothing is acknowledged before it is on the disk.
		log.Warn("the stop was not clean", "error", err)
	}
	log.Info("stopped")
	return status
}

// fault prints why a start failed, in one line.
func fault(stderr io.Writer, err error) int {
	text := strings.Join(strings.Fields(err.Error()), " ")
	_, _ = fmt.Fprintln(stderr, "divan: "+text) // there is nowhere left to report to
	return exitFault
}

// newLogger makes the log of the process.
func newLogger(cfg config.Config, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
