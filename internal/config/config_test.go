package config

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func noEnv(string) (string, bool) { return "", false }

// load runs Load with a file (if text is not empty), an environment and flags.
func load(t *testing.T, file string, env map[string]string, flags ...string) (Config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "divan.conf")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--config", path)
	}
	return Load(flags, func(k string) (string, bool) { v, ok := env[k]; return v, ok }, &bytes.Buffer{})
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file string
		env        map[string]string
		flags      []string
		want       string
	}{
		{"default", "", nil, nil, "127.0.0.1:5984"},
		{"file", "addr = h:1", nil, nil, "h:1"},
		{"environment", "", map[string]string{"DIVAN_ADDR": "h:2"}, nil, "h:2"},
		{"flag", "", nil, []string{"--addr", "h:3"}, "h:3"},
		{"flag with =", "", nil, []string{"--addr=h:3"}, "h:3"},
		{"environment over file", "addr = h:1", map[string]string{"DIVAN_ADDR": "h:2"}, nil, "h:2"},
		{"flag over file", "addr = h:1", nil, []string{"--addr", "h:3"}, "h:3"},
		{"flag over both", "addr = h:1", map[string]string{"DIVAN_ADDR": "h:2"}, []string{"--addr", "h:3"}, "h:3"},
		{"empty environment is none", "addr = h:1", map[string]string{"DIVAN_ADDR": ""}, nil, "h:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := load(t, c.file, c.env, c.flags...)
			if err != nil {
				t.Fatal(err)
			}
			if got.Addr != c.want {
				t.Errorf("addr is %s, want %s", got.Addr, c.want)
			}
		})
	}
}

// Every setting can be given in every source, and the file that the environment
// names is read.
func TestEverySettingInEverySource(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"addr": "localhost:0", "data": "/d", "admin": "a:b:c#d", "log-level": "debug", "log-format": "json",
		"max-document-size": "1MiB", "max-attachment-size": "2GB", "max-request-size": "3KiB", "max-url": "4000", "max-header-size": "16384",
		"tls-cert": "/c,1.pem", "tls-key": "/k.pem", "session-timeout": "1h", "password-rounds": "1000", "lockout": "0",
		"jwt-key": "a:HS256:/f, :ES256:/g", "jwt-name-claim": "email", "jwt-roles-claim": "groups", "jwt-issuer": "i", "jwt-audience": "u",
		"rate-lookup": "0.5", "rate-write": "10", "rate-query": "3",
		"cache-size": "64MiB", "default-q": "7", "default-n": "1", "min-free-space": "off", "compaction-grace": "1h",
		"compaction-threshold": "5kB", "js-workers": "3", "js-timeout": "2s", "js-memory": "64MiB", "node-name": "n@h", "account": "acc", "shutdown-timeout": "3s", "shard-rpc": "true",
	}
	want := Config{
		Addr: "localhost:0", Data: "/d", Admin: Credentials{"a", "b:c#d"}, LogLevel: slog.LevelDebug, LogFormat: "json",
		MaxDocument: 1 << 20, MaxAttachment: 2e9, MaxRequest: 3 << 10, MaxURL: 4000, MaxHeader: 16384, Cache: 64 << 20, DefaultQ: 7, DefaultN: 1,
		MinFree: -1, CompactGrace: time.Hour, CompactAt: 5000, JSWorkers: 3, JSCallTime: 2 * time.Second, JSMemory: 64 << 20, NodeName: "n@h", Account: "acc", ShutdownTimeout: 3 * time.Second, ShardRPC: true,
		TLSCert: "/c,1.pem", TLSKey: "/k.pem", SessionTimeout: time.Hour, PasswordRounds: 1000,
		JWTKeys: []string{"a:HS256:/f", ":ES256:/g"}, JWTNameClaim: "email", JWTRolesClaim: "groups", JWTIssuer: "i", JWTAudience: "u",
		RateLookup: 0.5, RateWrite: 10, RateQuery: 3,
	}
	var file strings.Builder
	file.WriteString("# a comment\n\n")
	env, flags := map[string]string{}, []string{}
	for k, v := range values {
		fmt.Fprintf(&file, "%s = %s\n", k, v)
		env["DIVAN_"+strings.ToUpper(strings.ReplaceAll(k, "-", "_"))] = v
		flags = append(flags, "--"+k+"="+v)
	}
	if n := len(table(new(Config))) - 1; n != len(values) {
		t.Errorf("this test gives %d settings, there are %d", len(values), n)
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func() (Config, error){
		"file":                  func() (Config, error) { return load(t, file.String(), nil) },
		"file from environment": func() (Config, error) { return load(t, "", map[string]string{"DIVAN_CONFIG": path}) },
		"environment":           func() (Config, error) { return load(t, "", env) },
		"flags":                 func() (Config, error) { return load(t, "", nil, flags...) },
	} {
		got, err := run()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(got.given) < len(values) {
			t.Errorf("%s: %d settings noted", name, len(got.given))
		}
		got.file, got.given = "", nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
	}
}

// A list may be given in pieces; a later source replaces it as a whole.
func TestLists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file  string
		env   map[string]string
		flags []string
		want  string
	}{
		{want: "[]"},
		{flags: []string{"--jwt-key", "a", "--jwt-key=b,c"}, want: "[a b c]"},
		{file: "jwt-key = a\naddr = h:1\njwt-key = b , c\n", want: "[a b c]"},
		{file: "jwt-key = a\n", env: map[string]string{"DIVAN_JWT_KEY": "b,,c,"}, want: "[b c]"},
		{file: "jwt-key = a\n", flags: []string{"--jwt-key", "b"}, want: "[b]"},
		{file: "jwt-key = a\n", flags: []string{"--jwt-key", ""}, want: "[]"},
	} {
		got, err := load(t, c.file, c.env, c.flags...)
		if err != nil || fmt.Sprint(got.JWTKeys) != c.want {
			t.Errorf("%q %v %v: %v %v, want %s", c.file, c.env, c.flags, got.JWTKeys, err, c.want)
		}
	}
}

// What was set is known with its source, and without the password.
func TestGiven(t *testing.T) {
	t.Parallel()
	c, err := load(t, "addr = h:1\ndefault-q = 3\nadmin = file:s3cret", map[string]string{"DIVAN_ADMIN": "root:s3cret"}, "--default-q", "4")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.Given()[:2], c.Given()[3:])
	if want := "[{addr h:1 file} {admin root:… environment}] [{default-q 4 flag}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestErrorsAreOneClearLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file  string
		env   map[string]string
		flags []string
		want  string // part of the error
	}{
		{flags: []string{"--nope"}, want: "nope"},
		{flags: []string{"word"}, want: "unexpected word 1"},
		{flags: []string{"--addr", "5984"}, want: "host:port"},
		{flags: []string{"--addr", "h:x"}, want: "port must be a number"},
		{flags: []string{"--addr", "h:70000"}, want: "port must be a number"},
		{flags: []string{"--data", ""}, want: "--data: must not be empty"},
		{flags: []string{"--log-level", "loud"}, want: "none of debug, info, warn, error"},
		{flags: []string{"--log-format", "xml"}, want: "none of text, json"},
		{flags: []string{"--default-q", "0"}, want: "from 1 to 256"},
		{flags: []string{"--cache-size", "-1"}, want: "no size"},
		{flags: []string{"--cache-size", "9999999999GiB"}, want: "no size"},
		{flags: []string{"--compaction-grace", "60"}, want: "no duration"},
		{flags: []string{"--shutdown-timeout", "-1s"}, want: "outside"},
		{flags: []string{"--tls-cert", "/c"}, want: "tls-cert and tls-key go together"},
		{env: map[string]string{"DIVAN_TLS_KEY": "/k"}, want: "tls-cert and tls-key go together"},
		{flags: []string{"--rate-write", "-1"}, want: "no number from 0 to 1000000"},
		{flags: []string{"--rate-write", "NaN"}, want: "no number from 0 to 1000000"},
		{flags: []string{"--rate-query", "fast"}, want: "no number from 0 to 1000000"},
		{flags: []string{"--password-rounds", "1"}, want: "from 1000 to 10000000"},
		{flags: []string{"--jwt-name-claim", ""}, want: "must not be empty"},
		{flags: []string{"--config", "/nowhere/at/all"}, want: "/nowhere/at/all"},
		{env: map[string]string{"DIVAN_DEFAULT_Q": "x"}, want: "DIVAN_DEFAULT_Q"},
		{file: "default-q = x\n", want: ":1: default-q"},
		{file: "# fine\nunknown = 1\n", want: `:2: there is no setting "unknown"`},
		{file: "config = other\n", want: "no setting"},
		{file: "addr h:1\n", want: "key = value"},
		{file: "addr = h:1\naddr = h:2\n", want: "set in line 1 already"},
	} {
		_, err := load(t, c.file, c.env, c.flags...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v %v %q: error %v, want one line with %q", c.flags, c.env, c.file, err, c.want)
		}
	}
}

func TestErrorsHideCredentials(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"s3cret", ":s3cret", "s3cret:", "_:s3cret"} {
		if _, err := load(t, "", nil, "--admin", bad); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("--admin %s: %v", bad, err)
		}
		if _, err := load(t, "admin = "+bad, nil); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("file, admin = %s: %v", bad, err)
		}
	}
	if _, err := load(t, "adm1n: root:s3cret", nil); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a line without =: %v", err)
	}
	c, err := load(t, "", nil, "--admin", "root:s3cret")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", fmt.Sprintf("%v %+v", c, c), "admin", c.Admin)
	if strings.Contains(log.String(), "s3cret") {
		t.Errorf("a printed configuration shows the password: %s", log.String())
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	_, err := Load([]string{"--help"}, noEnv, &out)
	if !errors.Is(err, ErrHelp) {
		t.Fatalf("error %v", err)
	}
	for _, s := range table(new(Config)) {
		if strings.Contains(out.String(), "--"+s.name+" ") == s.hidden {
			t.Errorf("--%s in the help: %v", s.name, s.hidden)
		}
	}
}

// The table of settings in the README is true.
func TestReadmeListsTheSettings(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range table(new(Config)) {
		row := "| `" + s.name + "` | "
		if s.fallback != "" {
			row += "`" + s.fallback + "` "
		}
		if strings.Contains(string(readme), row+"|") == s.hidden {
			t.Errorf("README: a row that begins with %q: want %v", row, !s.hidden)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"0", "8000000", "1GiB", "64 kB", "-1", "9223372036854775807B", "1TiBB", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s); err == nil && n < 0 {
			t.Errorf("%q is %d bytes", s, n)
		}
	})
}
