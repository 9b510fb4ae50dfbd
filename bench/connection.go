package bench

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// opTimeout bounds one exchange. A server that takes longer has failed; feeds
// and full streams set their own limit.
const opTimeout = 60 * time.Second

// target is the server under load.
type target struct {
	address string // host:port
	tls     *tls.Config
	prefix  string // path before the database names, without a slash at its end
	headers string // Host, Authorization and Accept, ready to be sent
}

// parseTarget reads the address given by the user; credentials stand in it.
func parseTarget(raw string) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's own error repeats the address with its password.
		return nil, fmt.Errorf("the server's address cannot be parsed: want http://user:password@host:port")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, fmt.Errorf("want http://user:password@host:port, got scheme %q and host %q", u.Scheme, u.Host)
	}
	t := &target{prefix: strings.TrimRight(u.EscapedPath(), "/")}
	port := u.Port()
	if u.Scheme == "https" {
		t.tls = &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}}
		if port == "" {
			port = "443"
		}
	} else if port == "" {
		port = "80"
	}
	t.address = net.JoinHostPort(u.Hostname(), port)
	t.headers = "Host: " + u.Host + "\r\nAccept: application/json\r\n"
	if u.User != nil {
		password, _ := u.User.Password()
		token := base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + password))
		t.headers += "Authorization: Basic " + token + "\r\n"
	}
	return t, nil
}

// connection is one keep-alive connection, used by one goroutine.
type connection struct {
	target  *target
	nc      net.Conn
	reader  *responseReader
	request []byte // reused
	release func() bool
}

// dial opens a connection. When ctx ends every read and write on it fails.
func (t *target) dial(ctx context.Context) (*connection, error) {
	c := &connection{target: t}
	return c, c.open(ctx)
}

// open dials, or dials again after the server closed the connection.
func (c *connection) open(ctx context.Context) error {
	c.close()
	d := net.Dialer{Timeout: 10 * time.Second}
	nc, err := d.DialContext(ctx, "tcp", c.target.address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if c.target.tls != nil {
		nc = tls.Client(nc, c.target.tls)
	}
	c.nc, c.reader = nc, newResponseReader(nc)
	c.release = context.AfterFunc(ctx, func() { nc.Close() })
	return nil
}

// close ends the connection.
func (c *connection) close() {
	if c.nc != nil {
		c.release()
		c.nc.Close()
		c.nc = nil
	}
}

// bigBody is the size from which a body is sent by writev and not copied.
const bigBody = 32 << 10

// send writes a request. body nil means a request without one.
func (c *connection) send(ctx context.Context, method, path, contentType string, body []byte, limit time.Duration) error {
	if c.nc == nil {
		if err := c.open(ctx); err != nil {
			return err
		}
	}
	if err := c.nc.SetDeadline(time.Now().Add(limit)); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	b := c.request[:0]
	b = append(b, method...)
	b = append(b, ' ')
	b = append(b, c.target.prefix...)
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\n"...)
	b = append(b, c.target.headers...)
	if body != nil {
		b = append(b, "Content-Type: "...)
		b = append(b, contentType...)
		b = append(b, "\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
		b = append(b, "\r\n"...)
	}
	b = append(b, "\r\n"...)
	var err error
	if len(body) < bigBody {
		b = append(b, body...)
		_, err = c.nc.Write(b)
	} else {
		parts := net.Buffers{b, body}
		_, err = parts.WriteTo(c.nc)
	}
	c.request = b
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// do sends a JSON request and reads the whole answer; the body is valid until
// the next exchange on this connection.
func (c *connection) do(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	return c.exchange(ctx, method, path, "application/json", body)
}

// exchange is do for a body of any type.
func (c *connection) exchange(ctx context.Context, method, path, contentType string, body []byte) (int, []byte, error) {
	if err := c.send(ctx, method, path, contentType, body, opTimeout); err != nil {
		c.close()
		return 0, nil, err
	}
	head, answer, err := c.reader.nextBody()
	if err != nil || head.close {
		c.close()
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return head.status, answer, nil
}

// stream sends a GET and hands the body to sink as it arrives. An answer other
// than 200 is an error with the beginning of its body.
func (c *connection) stream(ctx context.Context, path string, limit time.Duration, sink func([]byte) error) error {
	if err := c.send(ctx, "GET", path, "", nil, limit); err != nil {
		c.close()
		return err
	}
	var refused []byte
	head, err := c.reader.next(func(head responseHead, part []byte) error {
		if head.status != 200 {
			refused = append(refused, part[:min(len(part), 200-min(200, len(refused)))]...)
			return nil
		}
		return sink(part)
	})
	if err != nil || head.close {
		c.close()
	}
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if head.status != 200 {
		return unexpected("GET", path, head.status, refused)
	}
	return nil
}

// want does an exchange and fails unless the status is one of those given.
func (c *connection) want(ctx context.Context, method, path string, body []byte, statuses ...int) ([]byte, error) {
	status, answer, err := c.do(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	for _, s := range statuses {
		if s == status {
			return answer, nil
		}
	}
	return nil, unexpected(method, path, status, answer)
}

// unexpected is the error for an answer with the wrong status.
func unexpected(method, path string, status int, answer []byte) error {
	return fmt.Errorf("%s %s: status %d: %.200s", method, path, status, answer)
}
