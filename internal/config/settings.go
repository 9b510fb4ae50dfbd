package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
)

// setting is one row of the table: its name in all three sources and how its text
// is read.
type setting struct {
	name     string
	value    string // what the help shows for the value
	fallback string // the default, as text
	help     string
	set      func(string) error
	boolean  bool         // the flag may stand alone
	list     bool         // may be given several times in a source; or once, with commas
	hidden   bool         // for tests: not in the help
	secret   fmt.Stringer // shows the value without what is secret of it; nil: all of it may be seen
}

// take sets a value and notes where it came from. A later source replaces a list as
// a whole.
func (s *setting) take(value, source string, last map[string]Given) error {
	if err := s.set(value); err != nil {
		return err
	}
	last[s.name] = Given{Name: s.name, Value: value, Source: source}
	return nil
}

// table gives the settings, each writing to its field of c.
func table(c *Config) []setting {
	return []setting{
		{name: "addr", value: "HOST:PORT", fallback: "127.0.0.1:5984", help: "Where to listen; port 0 takes a free one.", set: address(&c.Addr)},
		{name: "data", value: "DIR", fallback: "./data", help: "The data directory; made if it is not there.", set: nonEmpty(&c.Data)},
		{name: "admin", value: "NAME:PASSWORD", help: "A server admin to create, or to give this password. Better in the environment: other users see flags.", set: credentials(&c.Admin), secret: &c.Admin},
		{name: "config", value: "FILE", help: "A file of `key = value` lines.", set: func(s string) error { c.file = s; return nil }},
		{name: "log-level", value: "LEVEL", fallback: "info", help: "debug, info, warn or error.", set: level(&c.LogLevel)},
		{name: "log-format", value: "FORMAT", fallback: "text", help: "text or json.", set: oneOf(&c.LogFormat, "text", "json")},
		{name: "max-document-size", value: "SIZE", fallback: "8000000", help: "Largest document without its attachments.", set: size(&c.MaxDocument, 1)},
		{name: "max-attachment-size", value: "SIZE", fallback: "1GiB", help: "Largest attachment.", set: size(&c.MaxAttachment, 0)},
		{name: "max-request-size", value: "SIZE", fallback: "256MiB", help: "Largest JSON body of a request, after decompression.", set: size(&c.MaxRequest, 1)},
		{name: "max-url", value: "BYTES", fallback: "8000", help: "Longest request target.", set: count(&c.MaxURL, 100, 60_000)},
		{name: "max-header-size", value: "BYTES", fallback: "65536", help: "Largest headers of a request.", set: count(&c.MaxHeader, 8<<10, 1<<20)},
		{name: "cache-size", value: "SIZE", fallback: "256MiB", help: "Memory for blocks and tables of documents and indexes.", set: size(&c.Cache, 1<<20)},
		{name: "default-q", value: "N", fallback: "2", help: "Ranges of a new database.", set: count(&c.DefaultQ, 1, 256)},
		{name: "default-n", value: "N", fallback: "3", help: "Copies of a new database; a single node keeps one.", set: count(&c.DefaultN, 1, 16)},
		{name: "min-free-space", value: "SIZE", fallback: "auto", help: "With less free space the server takes no writes; auto is 512 MiB but at most 5 % of the disk; off.", set: freeSpace(&c.MinFree)},
		{name: "compaction-grace", value: "DURATION", fallback: "60s", help: "How long the body of a superseded revision is kept at least.", set: duration(&c.CompactGrace, 0, 10*365*24*time.Hour)},
		{name: "compaction-threshold", value: "SIZE", fallback: "1MiB", help: "Superseded bytes in a range that start its compaction.", set: size(&c.CompactAt, 1)},
		{name: "js-workers", value: "N", fallback: "0", help: "Processes that run JavaScript; 0 is one per core.", set: count(&c.JSWorkers, 0, 256)},
		{name: "js-timeout", value: "DURATION", fallback: "5s", help: "How long one call of a JavaScript function may take.", set: duration(&c.JSCallTime, 10*time.Millisecond, time.Hour)},
		{name: "js-memory", value: "SIZE", fallback: "256MiB", help: "Memory of one process that runs JavaScript.", set: size(&c.JSMemory, 32<<20)},
		{name: "node-name", value: "NAME", fallback: "divan@127.0.0.1", help: "Name of this node.", set: nonEmpty(&c.NodeName)},
		{name: "account", value: "NAME", fallback: "divan", help: "Account name in _db_updates.", set: nonEmpty(&c.Account)},
		{name: "tls-cert", value: "FILE", help: "Certificate chain as PEM: the server speaks TLS. Read again when it changes.", set: text(&c.TLSCert)},
		{name: "tls-key", value: "FILE", help: "Private key of the certificate as PEM.", set: text(&c.TLSKey)},
		{name: "session-timeout", value: "DURATION", fallback: "10m", help: "How long a login lasts when nobody uses it.", set: duration(&c.SessionTimeout, time.Second, 365*24*time.Hour)},
		{name: "password-rounds", value: "N", fallback: "600000", help: "Rounds of PBKDF2 for new passwords.", set: count(&c.PasswordRounds, 1000, 10_000_000)},
		{name: "lockout", value: "N", fallback: "5", help: "Wrong passwords that lock a name for an address for five minutes; 0 is never.", set: count(&c.Lockout, 0, 1_000_000)},
		{name: "jwt-key", value: "KID:ALG:FILE", help: "A key whose bearer tokens are believed; may be repeated, or hold several with commas between. ALG is HS256 (secret as base64 in the file), RS256 or ES256 (public key as PEM), or these with 384 or 512.", set: list(&c.JWTKeys), list: true},
		{name: "jwt-name-claim", value: "CLAIM", fallback: "sub", help: "Claim of a token with the name.", set: nonEmpty(&c.JWTNameClaim)},
		{name: "jwt-roles-claim", value: "CLAIM", fallback: "_couchdb.roles", help: "Claim of a token with the roles.", set: nonEmpty(&c.JWTRolesClaim)},
		{name: "jwt-issuer", value: "NAME", help: "Who must have issued a token.", set: text(&c.JWTIssuer)},
		{name: "jwt-audience", value: "NAME", help: "For whom a token must be meant.", set: text(&c.JWTAudience)},
		{name: "rate-lookup", value: "N", fallback: "0", help: "Reads of one thing per second and user; 0 is any number.", set: rate(&c.RateLookup)},
		{name: "rate-write", value: "N", fallback: "0", help: "Writes per second and user; 0 is any number.", set: rate(&c.RateWrite)},
		{name: "rate-query", value: "N", fallback: "0", help: "Views, lists of documents, feeds and other range reads per second and user; 0 is any number.", set: rate(&c.RateQuery)},
		{name: "shutdown-timeout", value: "DURATION", fallback: "10s", help: "How long running requests may take at a stop.", set: duration(&c.ShutdownTimeout, 0, time.Hour)},
		{name: "shard-rpc", fallback: "false", help: "Every shard call goes through the node-to-node protocol on loopback.", set: yesNo(&c.ShardRPC), boolean: true, hidden: true},
	}
}

func nonEmpty(to *string) func(string) error {
	return func(s string) error {
		if strings.TrimSpace(s) == "" {
			return errors.New("must not be empty")
		}
		*to = s
		return nil
	}
}

func text(to *string) func(string) error {
	return func(s string) error { *to = s; return nil }
}

// list reads what commas separate. An empty text is an empty list, so that a flag
// can take back what the file says.
func list(to *[]string) func(string) error {
	return func(s string) error {
		*to = nil
		for item := range strings.SplitSeq(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*to = append(*to, item)
			}
		}
		return nil
	}
}

// maxRate is far above what one user can ask.
const maxRate = 1_000_000

func rate(to *float64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || !(n >= 0 && n <= maxRate) {
			return fmt.Errorf("%q is no number from 0 to %d", s, maxRate)
		}
		*to = n
		return nil
	}
}

func oneOf(to *string, allowed ...string) func(string) error {
	return func(s string) error {
		for _, a := range allowed {
			if s == a {
				*to = s
				return nil
			}
		}
		return fmt.Errorf("%q is none of %s", s, strings.Join(allowed, ", "))
	}
}

func address(to *string) func(string) error {
	return func(s string) error {
		_, port, err := net.SplitHostPort(s)
		if err != nil {
			return fmt.Errorf("%q is no address: want host:port", s)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil {
			return fmt.Errorf("%q: the port must be a number from 0 to 65535", s)
		} else if n == 0 && port != "0" {
			return fmt.Errorf("%q: the port must be a number from 0 to 65535", s)
		}
		*to = s
		return nil
	}
}

// credentials reads name:password. Its errors quote nothing: what was typed may
// be a password.
func credentials(to *Credentials) func(string) error {
	return func(s string) error {
		if s == "" {
			*to = Credentials{}
			return nil
		}
		name, password, ok := strings.Cut(s, ":")
		switch {
		case !ok || name == "" || password == "":
			return errors.New("want name:password, neither of them empty")
		case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return errors.New("a name holds no control characters")
		case name == "_":
			return errors.New("the name _ stands for nobody")
		}
		*to = Credentials{Name: name, Password: password}
		return nil
	}
}

func level(to *slog.Level) func(string) error {
	return func(s string) error {
		switch s {
		case "debug":
			*to = slog.LevelDebug
		case "info":
			*to = slog.LevelInfo
		case "warn":
			*to = slog.LevelWarn
		case "error":
			*to = slog.LevelError
		default:
			return fmt.Errorf("%q is none of debug, info, warn, error", s)
		}
		return nil
	}
}

func count(to *int, least, most int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is no number from %d to %d", s, least, most)
		}
		*to = n
		return nil
	}
}

func yesNo(to *bool) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", s)
		}
		*to = v
		return nil
	}
}

func duration(to *time.Duration, least, most time.Duration) func(string) error {
	return func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("%q is no duration: want a number and a unit, as in 500ms, 60s or 1h30m", s)
		}
		if d < least || d > most {
			return fmt.Errorf("%q is outside of %s to %s", s, least, most)
		}
		*to = d
		return nil
	}
}

func size(to *int64, least int64) func(string) error {
	return func(s string) error {
		n, err := parseSize(s)
		if err != nil {
			return err
		}
		if n < least {
			return fmt.Errorf("%q is below %d bytes", s, least)
		}
		*to = n
		return nil
	}
}

func freeSpace(to *int64) func(string) error {
	return func(s string) error {
		switch s {
		case "auto":
			*to = 0
			return nil
		case "off", "0":
			*to = -1
			return nil
		}
		return size(to, 1)(s)
	}
}

// units are the endings of a size, the longer ones first.
var units = []struct {
	ending string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// parseSize reads bytes: a whole number, alone or with a unit.
func parseSize(s string) (int64, error) {
	digits, unit := s, int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.ending); ok {
			digits, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is no size: want a whole number of bytes, or one with kB, MB, GB, KiB, MiB or GiB", s)
	}
	return n * unit, nil
}
