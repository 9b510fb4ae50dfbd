package server_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// command is one run of the program to its end.
type command struct {
	status      int
	out, errors string
}

// divan runs the program. env adds to the environment.
func divan(t *testing.T, stdin string, env []string, args ...string) command {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testserver.Binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	cmd.Env = append(os.Environ(), env...)
	_ = cmd.Run() // its status is what is looked at
	c := command{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	for _, secret := range []string{"s3cret", testserver.AdminPassword} {
		if strings.Contains(c.out+c.errors, secret) {
			t.Errorf("divan %q shows %q: %+v", args, secret, c)
		}
	}
	return c
}

func (c command) want(t *testing.T, status int, out, errors string) {
	t.Helper()
	if c.status != status || out != "" && c.out != out || !strings.Contains(c.errors, errors) {
		t.Errorf("status %d, %q, %q; want %d, %q, %q", c.status, c.out, c.errors, status, out, errors)
	}
	if status != 0 && (strings.Count(c.errors, "\n") != 1 || !strings.HasPrefix(c.errors, "divan: ")) {
		t.Errorf("not one line: %q", c.errors)
	}
}

// Administrators of a stopped server are managed in its data directory.
func TestAdminCommand(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t, "--password-rounds", "1000")
	p.Do(t, "PUT", "/db", nil).Want(201)
	divan(t, "", nil, "admin", "list", "--data", p.Data).want(t, 1, "", "is in use by another process: while a server runs, use --url")
	p.Stop()

	fast := []string{"DIVAN_PASSWORD_ROUNDS=1000"}
	divan(t, "", nil, "admin", "list", "--data", p.Data).want(t, 0, "admin\n", "")
	divan(t, "", nil, "admin", "remove", "admin", "--data", p.Data).want(t, 1, "", "The last administrator cannot be removed.")
	divan(t, "line-s3cret\nmore\n", fast, "admin", "add", "anna", "--data", p.Data).want(t, 0, "administrator added: anna\n", `msg=audit action="administrator added"`)
	divan(t, "", append(fast, "DIVAN_PASSWORD=env-s3cret", "DIVAN_DATA="+p.Data), "admin", "--data="+p.Data, "add", "ben b").want(t, 0, "administrator added: ben b\n", "")
	divan(t, "new-s3cret", append(fast, "DIVAN_DATA="+p.Data), "admin", "add", "admin").want(t, 0, "password of an administrator set: admin\n", "")
	divan(t, "", nil, "admin", "list", "--data", p.Data).want(t, 0, "admin\nanna\nben b\n", "")
	divan(t, "", nil, "admin", "remove", "nobody", "--data", p.Data).want(t, 1, "", "There is no administrator of that name.")
	divan(t, "", nil, "admin", "remove", "ben b", "--data", p.Data).want(t, 0, "administrator removed: ben b\n", "audit")

	p.Restart()
	for credentials, status := range map[string]int{"anna:line-s3cret": 200, "admin:new-s3cret": 200, "ben b:env-s3cret": 401, "admin:" + testserver.AdminPassword: 401} {
		if r := p.Do(t, "GET", "/db", nil, "Authorization", basic(credentials)); r.Status != status {
			t.Errorf("%s: %d %s", credentials, r.Status, r.Body)
		}
	}
}

// Administrators of a running server are managed through it.
func TestAdminCommandByURL(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t, "--password-rounds", "1000")
	who, url := []string{"DIVAN_ADMIN=" + testserver.AdminName + ":" + testserver.AdminPassword}, "http://"+p.Addr
	divan(t, "the-s3cret\n", who, "admin", "add", "an/na", "--url", url).want(t, 0, "administrator added: an/na\n", "")
	divan(t, "", who, "admin", "list", "--url", url+"/").want(t, 0, "admin\nan/na\n", "")
	p.Do(t, "GET", "/_all_dbs", nil, "Authorization", basic("an/na:the-s3cret")).Want(200)
	divan(t, "", who, "admin", "remove", "an/na", "--url", url).want(t, 0, "administrator removed: an/na\n", "")
	divan(t, "", who, "admin", "remove", "an/na", "--url", url).want(t, 1, "", "the server answered 404")
	divan(t, "", []string{"DIVAN_ADMIN=x:wrong-s3cret"}, "admin", "list", "--url", url).want(t, 1, "", "the server answered 401 Unauthorized: Name or password is incorrect.")
	divan(t, "", []string{"DIVAN_ADMIN="}, "admin", "list", "--url", url).want(t, 1, "", "DIVAN_ADMIN=name:password")
	divan(t, "", who, "admin", "list", "--url", "http://a:s3cret@"+p.Addr).want(t, 1, "", "must not hold credentials")
	p.Stop()
	divan(t, "", who, "admin", "list", "--url", url).want(t, 1, "", "connection refused")
	if log := p.Stderr.String(); !strings.Contains(log, `action="administrator added" user=admin`) || strings.Contains(log, "s3cret") {
		t.Errorf("log: %s", log)
	}
}

func TestAdminCommandRefusals(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"", nil, "want add, remove or list"},
		{"", []string{"dance"}, `there is no "dance"`},
		{"", []string{"add"}, "the name is missing"},
		{"x", []string{"add", "a", "s3cret"}, "a word too many"},
		{"", []string{"list", "s3cret"}, "a word too many"},
		{"x", []string{"add", "a", "--password", "s3cret"}, "not defined: -password"},
		{"", []string{"add", "a", "--data", dir}, "there is no password"},
		{"\nx", []string{"add", "a", "--data", dir}, "there is no password"},
		{"x", []string{"add", "a", "--data", dir}, "is no data directory"},
		{"x", []string{"add", "a\x01", "--data", dir}, "control characters"},
		{"x", []string{"add", "_", "--data", dir}, "a name is not _"},
		{"", []string{"list", "--data", filepath.Join(dir, "none")}, "is no data directory"},
		{"", []string{"list", "--data", dir, "--url", "http://x"}, "--url is for a server that runs"},
		{"", []string{"list", "--url", "nonsense"}, "--url is no address"},
	} {
		divan(t, c.stdin, []string{"DIVAN_PASSWORD="}, append([]string{"admin"}, c.args...)...).want(t, 1, "", c.want)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("the directory was touched: %v %v", entries, err)
	}
	divan(t, "", nil, "admin", "--help").want(t, 0, "", "")
}
