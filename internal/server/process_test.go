package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divandb/divan/internal/testserver"
)

// runToEnd runs `divan serve` until it ends by itself.
func runToEnd(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testserver.Binary(t), append([]string{"serve"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its status is what is looked at
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestFailedStartSaysWhyInOneLine(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Close() }) // after the subtests, which run side by side
	dir := t.TempDir()
	mk := func(name, file, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"--nope"}, "nope"},
		{"bad value", []string{"--log-level", "loud"}, "none of debug, info, warn, error"},
		{"newer format", []string{"--data", mk("newer", "FORMAT", "divan 2\n")}, "format 2; this program knows formats up to 1"},
		{"odd format", []string{"--data", mk("odd", "FORMAT", "mysql\n")}, "understands"},
		{"foreign directory", []string{"--data", mk("foreign", "thesis.tex", "x")}, "is not empty and is not a data directory of Divan"},
		{"a file", []string{"--data", filepath.Join(mk("file", "x", "x"), "x")}, "the data directory cannot be made"},
		{"port in use", []string{"--data", filepath.Join(dir, "port"), "--addr", busy.Addr().String(), "--admin", "a:b"}, "address already in use"},
		{"port in use at the first start", []string{"--data", filepath.Join(dir, "port2"), "--addr", busy.Addr().String()}, "address already in use"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			status, stdout, stderr := runToEnd(t, c.args...)
			if status != 1 || !strings.HasPrefix(stderr, "divan: ") || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("status %d, stderr %q; want 1 and one line with %q", status, stderr, c.want)
			}
			if stdout != "" {
				t.Errorf("stdout %q", stdout)
			}
		})
	}
	t.Cleanup(func() {
		entries, err := os.ReadDir(filepath.Join(dir, "foreign"))
		if err != nil || len(entries) != 1 {
			t.Errorf("the refused directory was touched: %v %v", entries, err)
		}
	})
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t)
	status, _, stderr := runToEnd(t, "--addr", "127.0.0.1:0", "--data", p.Data)
	want := "divan: the data directory " + p.Data + " is in use by another process\n"
	if status != 1 || stderr != want {
		t.Errorf("status %d, stderr %q, want %q", status, stderr, want)
	}
	p.Do(t, "GET", "/_all_dbs", nil).Want(200)
}

func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t)
	uuid := p.Do(t, "GET", "/", nil).Want(200).Str("uuid")
	p.Do(t, "PUT", "/db", nil).Want(201)
	rev := p.Do(t, "PUT", "/db/a", `{"x":1}`).Want(201).Str("rev")
	check := func() {
		t.Helper()
		if got := p.Do(t, "GET", "/", nil).Want(200).Str("uuid"); got != uuid {
			t.Errorf("uuid %s, was %s", got, uuid)
		}
		if got := p.Do(t, "GET", "/db/a", nil).Want(200).Str("_rev"); got != rev {
			t.Errorf("rev %s, was %s", got, rev)
		}
	}
	if status := p.Stop(); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
	p.Restart()
	check()
	p.Kill()
	p.Restart()
	check()
}

// firstStart runs a server without an administrator and gives the name and the
// password it printed.
func firstStart(t *testing.T, p *testserver.Process) (name, password string) {
	t.Helper()
	m := regexp.MustCompile(`name: +(\S+)\n +password: +(\S+)\n`).FindStringSubmatch(p.Stdout.String())
	if m == nil {
		t.Fatalf("no password in %q", p.Stdout)
	}
	return m[1], m[2]
}

func TestFirstStartPrintsAPasswordOnce(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcessWithoutAdmin(t, "--log-level", "debug")
	name, password := firstStart(t, p)
	if len(password) != 24 {
		t.Errorf("a password of %d characters", len(password))
	}
	as := func(name, password string) int {
		return p.Do(t, "GET", "/_all_dbs", nil, "Authorization", basic(name+":"+password)).Status
	}
	if s := as(name, password); s != 200 {
		t.Errorf("status %d with the printed password", s)
	}
	if s := as(name, password+"x"); s != 401 {
		t.Errorf("status %d with another one", s)
	}
	if r := p.Do(t, "GET", "/_all_dbs", nil, "Authorization", ""); r.Status != 401 || r.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("status %d for anonymous, %v", r.Status, r.Header)
	}
	if s := p.Stop(); s != 0 {
		t.Errorf("exit status %d", s)
	}
	p.Restart()
	if n := strings.Count(p.Stdout.String(), "password:"); n != 1 {
		t.Errorf("printed %d times", n)
	}
	if s := as(name, password); s != 200 {
		t.Errorf("status %d after a restart", s)
	}
	p.Kill()
	if strings.Contains(p.Stderr.String(), password) {
		t.Error("the password is in the log")
	}
	if found := grep(t, p.Data, password); found != "" {
		t.Errorf("the password is in clear in %s", found)
	}
}

// grep looks for text in all files of a directory.
func grep(t *testing.T, dir, text string) (found string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAdminFlagSetsThePassword(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t)
	p.Do(t, "GET", "/_all_dbs", nil).Want(200)
	p.Stop()
	p.Restart("--admin", "admin:another", "--admin", "admin:newest")
	old := p.Do(t, "GET", "/_all_dbs", nil)
	if old.Want(401).Str("reason") != "Name or password is incorrect." {
		t.Errorf("%s", old.Body)
	}
	p.Do(t, "GET", "/_all_dbs", nil, "Authorization", basic("admin:newest")).Want(200)
}

func basic(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }

// A stop ends feeds at once and lets running requests finish.
func TestStopWithOpenFeedsAndARunningRequest(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t)
	p.Do(t, "PUT", "/db", nil).Want(201)
	var feeds []io.Reader
	for _, path := range []string{"/db/_changes?feed=continuous&heartbeat=50&since=now", "/_db_updates?feed=continuous&heartbeat=50&since=now"} {
		feed := p.Stream(t, t.Context(), "GET", path, nil).Body
		if _, err := bufio.NewReader(feed).ReadByte(); err != nil { // it has begun
			t.Fatal(err)
		}
		feeds = append(feeds, feed)
	}

	// A request whose body comes in two parts, the second after the signal.
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const half = `{"half":1,`
	fmt.Fprintf(conn, "PUT /db/late HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		basic(testserver.AdminName+":"+testserver.AdminPassword), len(half)+len(`"rest":2}`))
	answer := bufio.NewReader(conn)
	if line, err := answer.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("%q %v", line, err) // the handler reads the body now
	}
	if _, err := answer.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, half)
	if err := syscall.Kill(p.PID, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for _, feed := range feeds {
		if _, err := io.Copy(io.Discard, feed); err != nil && !strings.Contains(err.Error(), "EOF") {
			t.Errorf("the end of a feed: %v", err)
		}
	}
	fmt.Fprint(conn, `"rest":2}`)
	res, err := http.ReadResponse(answer, nil)
	if err != nil {
		t.Fatalf("the running request was not answered: %v", err)
	}
	res.Body.Close()
	if res.StatusCode != 201 {
		t.Errorf("the running request was answered %d", res.StatusCode)
	}
	conn.Close()
	if status := p.Wait(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if strings.Contains(p.Stderr.String(), "WARN") || !strings.Contains(p.Stderr.String(), "msg=stopped") {
		t.Errorf("the stop was not clean:\n%s", p.Stderr)
	}
	p.Restart()
	p.Do(t, "GET", "/db/late", nil).Want(200)
}

// A request that does not end is cut after the timeout, and the status is 0 all
// the same: nothing acknowledged is lost by it.
func TestStopCutsARequestThatHangs(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t, "--shutdown-timeout", "200ms")
	p.Do(t, "PUT", "/db", nil).Want(201)
	reader, writer := io.Pipe()
	failed := make(chan error, 1)
	go func() {
		_, err := p.Try(context.Background(), "PUT", "/db/never", reader)
		failed <- err
	}()
	if _, err := writer.Write([]byte(`{"a":`)); err != nil {
		t.Fatal(err)
	}
	if status := p.Stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	writer.CloseWithError(io.ErrUnexpectedEOF) // the client waits for its own body
	if err := <-failed; err == nil {
		t.Error("the request that was cut was answered")
	}
}

// A disk that refuses writes ends the process with a status of its own, and the
// next start has everything that was acknowledged.
func TestFailedWriteEndsTheProcess(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t)
	p.Do(t, "PUT", "/db", nil).Want(201)
	// Files may grow to 1 MB from now on.
	limit := unix.Rlimit{Cur: 1 << 20, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(p.PID, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	body := `{"x":"` + strings.Repeat("0123456789", 30_000) + `"}`
	var acknowledged []string
	for i := range 100 {
		id := fmt.Sprint("doc-", i)
		r, err := p.Try(t.Context(), "PUT", "/db/"+id, body)
		if err != nil || r.Status >= 500 {
			break
		}
		acknowledged = append(acknowledged, id)
	}
	if status := p.Wait(); status != 75 {
		t.Errorf("exit status %d", status)
	}
	if len(acknowledged) == 0 || len(acknowledged) == 100 {
		t.Errorf("%d writes were acknowledged", len(acknowledged))
	}
	p.Restart()
	for _, id := range acknowledged {
		p.Do(t, "GET", "/db/"+id, nil).Want(200)
	}
	p.Do(t, "PUT", "/db/after", body).Want(201)
}

// Settings of a file and of flags do what they say, and flags win.
func TestSettingsHaveTheirEffect(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "divan.conf")
	text := "# a test\ndefault-q = 5\nnode-name = n@h\naccount = loser\nmax-document-size = 1000\nmax-attachment-size = 2kB\nmax-request-size = 5KiB\nlog-format = json\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testserver.StartProcess(t, "--config", file, "--account", "winner", "--max-url", "300")
	p.Do(t, "PUT", "/db", nil).Want(201)
	if q := p.Do(t, "GET", "/db", nil).Want(200).Object()["cluster"].(map[string]any)["q"]; q != 5.0 {
		t.Errorf("q %v", q)
	}
	if nodes := fmt.Sprint(p.Do(t, "GET", "/_membership", nil).Want(200).Object()["all_nodes"]); nodes != "[n@h]" {
		t.Errorf("nodes %s", nodes)
	}
	if r := p.Do(t, "GET", "/_db_updates", nil).Want(200); !strings.Contains(string(r.Body), `"account":"winner"`) {
		t.Errorf("%s", r.Body)
	}
	for path, c := range map[string]struct {
		size   int
		name   string
		status int
	}{
		"/db/doc":                          {2000, "document_too_large", 413},
		"/db/more":                         {6000, "too_large", 413},
		"/db/doc/att":                      {2100, "attachment_too_large", 413},
		"/db/" + strings.Repeat("i", 300):  {1, "too_long", 414},
		"/db/small":                        {500, "", 201},
		"/db/small2/att":                   {1900, "", 201},
		"/db/" + strings.Repeat("ok", 140): {1, "", 201},
	} {
		r := p.Do(t, "PUT", path, `{"a":"`+strings.Repeat("x", c.size)+`"}`).Want(c.status)
		if c.name != "" && r.Str("error") != c.name {
			t.Errorf("%.20s: %s", path, r.Body)
		}
	}
	p.Stop()
	if !strings.HasPrefix(p.Stderr.String(), "{") {
		t.Errorf("the log is no JSON: %s", p.Stderr)
	}
}

func TestLogsHoldNoCredentials(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			p := testserver.StartProcess(t, "--log-level", "debug", "--log-format", format, "--shutdown-timeout", "1s")
			p.Do(t, "PUT", "/db", nil).Want(201)
			p.Do(t, "PUT", "/db/a", `{"password":"inbody-s3cret"}`).Want(201)
			p.Do(t, "GET", "/db/a?password=inquery-s3cret", nil)
			p.Do(t, "GET", "/db/a?x=%zz-s3cret", nil)
			for _, header := range []string{basic("admin:wrong-s3cret"), "Basic s3cret%%", "Bearer s3cret", "Basic: s3cret", basic("s3cret"), "s3cret"} {
				p.Do(t, "GET", "/db/a", nil, "Authorization", header)
				p.Do(t, "GET", "/nowhere", nil, "Authorization", header)
			}
			p.Do(t, "GET", "/db/a", nil, "Cookie", "AuthSession=s3cret", "X-Couch-Request-ID", "my-id-1")
			// Logins, good and bad, and the cookie that a good one gives.
			for _, kind := range []string{"application/json", "application/x-www-form-urlencoded", "text/plain"} {
				p.Do(t, "POST", "/_session?password=s3cret", `{"name":"admin","password":"s3cret"}`, "Content-Type", kind, "Authorization", "")
				p.Do(t, "POST", "/_session", "name=admin&password=s3cret", "Content-Type", kind, "Authorization", "")
			}
			login := p.Do(t, "POST", "/_session", map[string]string{"name": testserver.AdminName, "password": testserver.AdminPassword}, "Authorization", "").Want(200)
			cookie, _, _ := strings.Cut(login.Header.Get("Set-Cookie"), ";")
			p.Do(t, "GET", "/db/a", nil, "Authorization", "", "Cookie", cookie, "X-Couch-Request-ID", "by-cookie").Want(200)
			p.Do(t, "PUT", "/db/a", `{}`, "Authorization", "", "Cookie", cookie).Want(409)
			// A target with credentials, as a proxy would send it; and garbage.
			for _, raw := range []string{
				"GET http://root:s3cret@x/db/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
				"GET /db/a HTTP/1.1\r\nHost: x\r\nAuthorization: Basic s3cret\x00\r\n\r\n",
				"GET /s3cret%zz\r\n\r\n",
			} {
				conn, err := net.Dial("tcp", p.Addr)
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprint(conn, raw)
				_, _ = io.Copy(io.Discard, conn) // until the server has answered and closed
				conn.Close()
			}
			p.Stop()
			log := p.Stderr.String()
			for _, secret := range []string{"s3cret", testserver.AdminPassword, strings.TrimPrefix(cookie, "AuthSession="),
				strings.TrimPrefix(basic(testserver.AdminName+":"+testserver.AdminPassword), "Basic "),
				strings.TrimPrefix(basic("admin:wrong-s3cret"), "Basic ")} {
				if strings.Contains(log, secret) {
					t.Errorf("the log holds %q:\n%s", secret, log)
				}
			}
			for _, want := range []string{"my-id-1", "by-cookie", "/db/a", "/_session"} {
				if !strings.Contains(log, want) {
					t.Errorf("the log lacks %q, so this test shows nothing", want)
				}
			}
			for line := range strings.Lines(log) {
				if format == "json" && !json.Valid([]byte(line)) || format == "text" && !strings.HasPrefix(line, "time=") {
					t.Errorf("a line that is no %s: %s", format, line)
				}
			}
		})
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"version": `^divan \d+\.\d+\.\d+\nprotocol 3\.5\.2\nbuild \S+\ngo\S+ \S+\n$`,
		"help":    `divan serve \[flags\]`,
	} {
		out, err := exec.Command(testserver.Binary(t), word).Output()
		if err != nil || !regexp.MustCompile(want).Match(out) {
			t.Errorf("divan %s: %v %q", word, err, out)
		}
	}
	out, err := exec.Command(testserver.Binary(t), "serve", "--help").Output()
	if err != nil || !strings.Contains(string(out), "--shutdown-timeout") {
		t.Errorf("divan serve --help: %v %q", err, out)
	}
	cmd := exec.Command(testserver.Binary(t), "dance")
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("an unknown word: %v", err)
	}
}
