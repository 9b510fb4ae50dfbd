package server

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/model"
)

const adminUsage = `Usage:
  divan admin add NAME     add a server administrator, or set the password of one
  divan admin remove NAME  remove one; the last one stays
  divan admin list         list their names

  --data DIR    the data directory of a server that does not run
  --config FILE the settings of that server
  --url URL     a server that runs; DIVAN_ADMIN=name:password says who asks

The new password is the first line of standard input, or DIVAN_PASSWORD. DIVAN_DATA and
DIVAN_CONFIG count as for divan serve.
`

// envPassword names the variable with a new password. An argument would show it to
// every user of the machine.
const envPassword = "DIVAN_PASSWORD"

// adminCommand is what `divan admin` was asked to do.
type adminCommand struct {
	action, name string
	url          string
	cfg          config.Config
}

// administrators is where they are managed: a store, or a running server.
type administrators interface {
	// set adds one, or gives one a new password; added tells which.
	set(name, password string) (added bool, err error)
	remove(name string) error
	list() ([]string, error)
	close() error
}

// ManageAdmins is `divan admin`.
func ManageAdmins(args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	cmd, err := parseAdminCommand(args)
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(stdout, adminUsage)
		return err
	}
	if err != nil {
		return err
	}
	password := ""
	if cmd.action == "add" {
		// Before the store is opened: a person may take a while.
		if password, err = readPassword(stdin, stderr); err != nil {
			return err
		}
	}
	log := newLogger(cmd.cfg, stderr)
	admins, err := openAdministrators(cmd, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, admins.close()) }()
	done := ""
	switch cmd.action {
	case "list":
		names, err := admins.list()
		if err != nil {
			return plain(err)
		}
		for _, name := range names {
			if _, err := fmt.Fprintln(stdout, name); err != nil {
				return err
			}
		}
		return nil
	case "add":
		done = "password of an administrator set"
		added, err := admins.set(cmd.name, password)
		if err != nil {
			return plain(err)
		}
		if added {
			done = "administrator added"
		}
	case "remove":
		done = "administrator removed"
		if err := admins.remove(cmd.name); err != nil {
			return plain(err)
		}
	}
	if cmd.url == "" { // a server has its own log
		log.Info("audit", "action", done, "user", systemUser(), "from", "command line", "name", cmd.name)
	}
	_, err = fmt.Fprintf(stdout, "%s: %s\n", done, cmd.name)
	return err
}

// parseAdminCommand reads the words after `divan admin`. Flags may stand before and
// after the name.
func parseAdminCommand(args []string) (*adminCommand, error) {
	cmd := &adminCommand{}
	flags := flag.NewFlagSet("divan admin", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	data, file := flags.String("data", "", ""), flags.String("config", "", "")
	flags.StringVar(&cmd.url, "url", "", "")
	var words []string
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if flags.NArg() == 0 {
			break
		}
		words, args = append(words, flags.Arg(0)), flags.Args()[1:]
	}
	if len(words) == 0 {
		return nil, errors.New("admin: want add, remove or list; --help has more")
	}
	cmd.action, words = words[0], words[1:]
	switch cmd.action {
	case "add", "remove":
		if len(words) == 0 {
			return nil, fmt.Errorf("admin %s: the name is missing", cmd.action)
		}
		cmd.name, words = words[0], words[1:]
	case "list":
	default:
		return nil, fmt.Errorf("admin: there is no %q; want add, remove or list", cmd.action)
	}
	if len(words) > 0 {
		// Not quoted: it may be a password.
		return nil, fmt.Errorf("admin %s: there is a word too many; a password is read from standard input", cmd.action)
	}
	if cmd.name == "_" || strings.ContainsFunc(cmd.name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, errors.New("a name is not _ and holds no control characters")
	}
	if cmd.url != "" && *data != "" {
		return nil, errors.New("--url is for a server that runs, --data for one that does not")
	}
	var serve []string
	for name, value := range map[string]string{"data": *data, "config": *file} {
		if value != "" {
			serve = append(serve, "--"+name, value)
		}
	}
	var err error
	cmd.cfg, err = config.Load(serve, os.LookupEnv, io.Discard)
	return cmd, err
}

// readPassword reads a new password. A person at a terminal is asked.
func readPassword(stdin io.Reader, stderr io.Writer) (string, error) {
	if p := os.Getenv(envPassword); p != "" {
		return p, nil
	}
	if f, ok := stdin.(*os.File); ok {
		if restore, ok := hideInput(f); ok {
			defer func() {
				restore()
				_, _ = fmt.Fprintln(stderr) // the one typed was hidden too
			}()
			if _, err := fmt.Fprint(stderr, "New password: "); err != nil {
				return "", err
			}
		}
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, maxPassword)).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("read the password: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", errors.New("there is no password: give one on standard input or in " + envPassword)
	}
	return line, nil
}

// maxPassword bounds what is read.
const maxPassword = 64 << 10

// openAdministrators opens what cmd names.
func openAdministrators(cmd *adminCommand, log *slog.Logger) (administrators, error) {
	if cmd.url != "" {
		return newRemoteAdmins(cmd.url, cmd.cfg.Admin)
	}
	return openStoredAdmins(cmd.cfg, log)
}

// storedAdmins are those in the data directory of a server that does not run.
type storedAdmins struct {
	s       *Server // of which only the store is open
	service *auth.Service
}

func openStoredAdmins(cfg config.Config, log *slog.Logger) (administrators, error) {
	// A mistyped directory is not to become a new one.
	text, err := os.ReadFile(filepath.Join(cfg.Data, formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no data directory; the first start of a server makes one", cfg.Data)
	}
	if err != nil {
		return nil, fmt.Errorf("the data directory cannot be read: %w", err)
	}
	if err := checkFormat(cfg.Data, string(text)); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: log}
	store, err := s.openStore(Options{})
	if err != nil {
		if errors.Is(err, errInUse) {
			err = fmt.Errorf("%w: while a server runs, use --url, as in --url http://127.0.0.1:5984", err)
		}
		return nil, err
	}
	stored, err := cluster.OpenSettings(store)
	if err != nil {
		return nil, errors.Join(err, s.closeParts())
	}
	service, err := auth.New(adminStore{stored}, auth.Options{Rounds: cfg.PasswordRounds})
	if err != nil {
		return nil, errors.Join(err, s.closeParts())
	}
	return &storedAdmins{s, service}, nil
}

func (a *storedAdmins) set(name, password string) (bool, error) {
	before := a.service.Admins()
	err := a.service.SetAdmin(name, password)
	return a.service.Admins() > before, err
}

func (a *storedAdmins) remove(name string) error { return a.service.RemoveAdmin(name) }
func (a *storedAdmins) list() ([]string, error)  { return a.service.AdminNames(), nil }
func (a *storedAdmins) close() error             { return a.s.closeParts() }

// plain leaves of an error what a person wants to read.
func plain(err error) error {
	var e *model.Error
	if errors.As(err, &e) && e.Err == nil {
		return errors.New(e.Reason)
	}
	return err
}

// systemUser names whoever runs the program.
func systemUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprint(os.Getuid())
}
