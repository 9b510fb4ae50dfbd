// Package config holds the settings of a node and reads them from where an
// operator may put them. There is one table of settings (settings.go): the file,
// the environment and the flags are three spellings of it, so a setting cannot
// exist in one and be missing in another. Later sources win:
//
//	defaults < file (--config) < environment (DIVAN_…) < flags
//
// The package knows no other package of Divan: only `server` turns these
// settings into the Options of the parts.
package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"
)

// Config is every setting of a node, with its value.
type Config struct {
	Addr            string        // where the HTTP interface listens
	Data            string        // the data directory
	Admin           Credentials   // a server admin to create or to give a new password
	LogLevel        slog.Level    // the lowest level that is logged
	LogFormat       string        // "text" or "json"
	MaxDocument     int64         // bytes of one document without attachments
	MaxAttachment   int64         // bytes of one attachment
	MaxRequest      int64         // bytes of a JSON body
	MaxURL          int           // bytes of a request target
	MaxHeader       int           // bytes of the headers of a request
	Cache           int64         // bytes of the block cache
	DefaultQ        int           // ranges of a new database
	DefaultN        int           // copies of a new database, as asked
	MinFree         int64         // free-space mark; 0: chosen by the store; below 0: none
	CompactGrace    time.Duration // how long a superseded body is kept
	CompactAt       int64         // superseded bytes of a copy that start a compaction
	JSWorkers       int           // processes that run JavaScript; 0: one per core
	JSCallTime      time.Duration // how long one call of a function may take
	JSMemory        int64         // bytes of such a process
	NodeName        string        // name of this node in the cluster
	Account         string        // account name in _db_updates
	TLSCert         string        // file of the certificate chain; empty: no TLS
	TLSKey          string        // file of its key
	JWTKeys         []string      // kid:alg:file of each key whose tokens are believed
	JWTNameClaim    string        // claim of a token with the name
	JWTRolesClaim   string        // claim of a token with the roles
	JWTIssuer       string        // who must have issued a token; empty: anybody
	JWTAudience     string        // for whom a token must be meant; empty: anybody
	SessionTimeout  time.Duration // how long a login lasts when nobody uses it
	PasswordRounds  int           // of PBKDF2 for new passwords
	Lockout         int           // wrong passwords that lock a name for an address; 0: never
	RateLookup      float64       // requests per second and user, by class; 0: any number
	RateWrite       float64
	RateQuery       float64
	ShutdownTimeout time.Duration // how long running requests may take at a stop
	ShardRPC        bool          // every shard call goes through noderpc on loopback

	file  string // --config
	given []Given
}

// Given is a setting that somebody has set.
type Given struct {
	Name   string
	Value  string // as it was written; secrets are hidden
	Source string // "file", "environment" or "flag"
}

// Given tells what was set and where, in the order of the table: what an operator
// wants to see in the log of a start.
func (c *Config) Given() []Given { return c.given }

// Credentials are a name and a password. They never print themselves, so that a
// Config in a log line gives nothing away.
type Credentials struct {
	Name     string
	Password string
}

// String hides the password.
func (c Credentials) String() string {
	if c.Name == "" {
		return ""
	}
	return c.Name + ":…"
}

// LogValue implements slog.LogValuer.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// ErrHelp is what Load answers to --help after it has printed the help.
var ErrHelp = flag.ErrHelp

// Default gives the settings of a node that nobody configured.
func Default() Config {
	var c Config
	for _, s := range table(&c) {
		if err := s.set(s.fallback); err != nil {
			panic("config: the default of " + s.name + " cannot be read: " + err.Error())
		}
	}
	return c
}

// Load reads the settings from the words after `divan serve`, the environment
// (os.LookupEnv, or a table in tests) and the file that either of them names.
// Its errors are one line and never hold a password. help gets the text of --help.
func Load(args []string, env func(string) (string, bool), help io.Writer) (Config, error) {
	c := Default()
	settings := table(&c)

	// The flags are read first, as they and the environment say which file to
	// read, and are set last.
	given, err := parseFlags(args, settings, help)
	if err != nil {
		return Config{}, err
	}
	path, named := given["config"]
	if !named {
		path, named = env(envName("config"))
	}
	last := map[string]Given{}
	if named && path != "" {
		if err := readFile(path, settings, last); err != nil {
			return Config{}, err
		}
	}
	for _, s := range settings {
		if v, ok := env(envName(s.name)); ok && v != "" {
			if err := s.take(v, "environment", last); err != nil {
				return Config{}, fmt.Errorf("environment variable %s: %w", envName(s.name), err)
			}
		}
	}
	for _, s := range settings {
		if v, ok := given[s.name]; ok {
			if err := s.take(v, "flag", last); err != nil {
				return Config{}, fmt.Errorf("--%s: %w", s.name, err)
			}
		}
	}
	for _, s := range settings {
		if g, ok := last[s.name]; ok {
			if s.secret != nil {
				g.Value = s.secret.String()
			}
			c.given = append(c.given, g)
		}
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// check holds settings against each other.
func (c *Config) check() error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return errors.New("tls-cert and tls-key go together: one of them is set and the other is not")
	}
	return nil
}

// envName gives the environment variable of a setting: log-level → DIVAN_LOG_LEVEL.
func envName(name string) string {
	return "DIVAN_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// parseFlags gives the flags that were set, as text. The standard flag package
// does the reading: it is small, knows both --x=y and --x y, and its values stay
// text here so that all three sources are judged by the same code.
func parseFlags(args []string, settings []setting, help io.Writer) (map[string]string, error) {
	fs := flag.NewFlagSet("divan serve", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the caller prints the error, once
	values := make(map[string]*textFlag, len(settings))
	for _, s := range settings {
		values[s.name] = &textFlag{boolean: s.boolean, list: s.list}
		fs.Var(values[s.name], s.name, s.help)
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, errors.Join(ErrHelp, printHelp(help, settings))
		}
		return nil, err
	}
	if fs.NArg() > 0 {
		// Not quoted: it may be half of a password with a blank in it.
		return nil, fmt.Errorf("unexpected word %d: settings are flags, as in --addr 127.0.0.1:5984", len(args)-fs.NArg()+1)
	}
	given := map[string]string{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = values[f.Name].text })
	return given, nil
}

// textFlag keeps the text of a flag unread.
type textFlag struct {
	text    string
	boolean bool
	list    bool
}

// String implements flag.Value.
func (f *textFlag) String() string { return "" }

// Set implements flag.Value.
func (f *textFlag) Set(s string) error {
	if f.list && f.text != "" {
		s = f.text + "," + s
	}
	f.text = s
	return nil
}

// IsBoolFlag lets a yes-or-no flag stand without a value.
func (f *textFlag) IsBoolFlag() bool { return f.boolean }

// maxFile bounds the configuration file, so that a wrong path (a device, a log)
// ends in words.
const maxFile = 1 << 20

// readFile reads `key = value` lines. A # begins a comment at the start of a line
// only: a password may hold one.
func readFile(path string, settings []setting, last map[string]Given) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	if len(data) > maxFile {
		return fmt.Errorf("configuration file %s is longer than %d bytes", path, maxFile)
	}
	seen := map[string]int{}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		// The line itself is never quoted in an error: it may be a mistyped password.
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return fmt.Errorf("%s:%d: a line is `key = value` or begins with #", path, n)
		}
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		at := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
		if at < 0 || name == "config" {
			return fmt.Errorf("%s:%d: there is no setting %q", path, n, name)
		}
		if first := seen[name]; first > 0 {
			if !settings[at].list {
				return fmt.Errorf("%s:%d: %s was set in line %d already", path, n, name, first)
			}
			value = last[name].Value + "," + value
		}
		seen[name] = n
		if err := settings[at].take(value, "file", last); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", path, n, name, err)
		}
	}
	return nil
}

// printHelp prints the table of settings.
func printHelp(w io.Writer, settings []setting) error {
	var b strings.Builder
	b.WriteString("Usage: divan serve [flags]\n\nEvery flag is also an environment variable (--log-level is DIVAN_LOG_LEVEL) and a\n`key = value` line of the file that --config names. Flags win over the environment,\nthe environment over the file.\n\n")
	for _, s := range settings {
		if s.hidden {
			continue
		}
		fmt.Fprintf(&b, "  --%-22s %s", s.name+" "+s.value, s.help)
		if s.fallback != "" {
			fmt.Fprintf(&b, " Default %s.", s.fallback)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
