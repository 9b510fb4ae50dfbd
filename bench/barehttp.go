package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// bareHTTPCommand makes this program serve one answer from a bare handler.
const bareHTTPCommand = "bare-http"

// bareAnswer is the answer that the bare handler gives, sent to it on stdin.
type bareAnswer struct {
	Header http.Header
	Body   []byte
}

// serveBareHTTP is the other process: it reads the answer from stdin, prints its
// address and serves until stdin ends, so that it cannot outlive the bench.
func serveBareHTTP(stdout io.Writer) error {
	in := json.NewDecoder(os.Stdin)
	var a bareAnswer
	if err := in.Decode(&a); err != nil {
		return fmt.Errorf("bare handler: read the answer: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("bare handler: %w", err)
	}
	length := strconv.Itoa(len(a.Body))
	server := &http.Server{ReadHeaderTimeout: opTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for name, values := range a.Header {
			h[name] = values
		}
		h["Content-Length"] = []string{length}
		// A failed write means that the driver has gone; there is no one to tell.
		_, _ = w.Write(a.Body)
	})}
	if _, err := fmt.Fprintln(stdout, listener.Addr()); err != nil {
		return errors.Join(err, listener.Close())
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	// A read error is the end of the bench as much as the end of stdin is.
	_, _ = io.Copy(io.Discard, io.MultiReader(in.Buffered(), os.Stdin))
	err = server.Close()
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// bareServer is the handle of the other process.
type bareServer struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	address string
}

// startBareHTTP starts this program again as a bare handler that gives a.
func startBareHTTP(ctx context.Context, a bareAnswer) (*bareServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("bare handler: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "bench", bareHTTPCommand)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("bare handler: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("bare handler: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("bare handler: %w", err)
	}
	b := &bareServer{command: cmd, stdin: stdin}
	err = json.NewEncoder(stdin).Encode(a)
	if err == nil {
		b.address, err = bufio.NewReader(out).ReadString('\n')
		b.address = strings.TrimSpace(b.address)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bare handler: start: %w", err), b.stop())
	}
	return b, nil
}

// stop ends the process and waits for it.
func (b *bareServer) stop() error {
	err := b.stdin.Close()
	return errors.Join(err, b.command.Wait())
}

// captureAnswer reads document number i once with its headers, by net/http as
// this is not measured.
func (s *session) captureAnswer(ctx context.Context, i int) (bareAnswer, error) {
	address := strings.TrimRight(s.options.URL, "/") + "/" + s.database("docs") + "/" + string(appendID(nil, i))
	req, err := http.NewRequestWithContext(ctx, "GET", address, nil)
	if err != nil {
		return bareAnswer{}, err
	}
	req.Header.Set("Accept", "application/json")
	client := &http.Client{Timeout: opTimeout, Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return bareAnswer{}, fmt.Errorf("GET a document: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return bareAnswer{}, fmt.Errorf("GET a document: %w", err)
	}
	if resp.StatusCode != 200 {
		return bareAnswer{}, unexpected("GET", "a document", resp.StatusCode, body)
	}
	// net/http writes these by itself.
	for _, own := range []string{"Date", "Content-Length", "Connection", "Transfer-Encoding"} {
		resp.Header.Del(own)
	}
	return bareAnswer{Header: resp.Header, Body: body}, nil
}

// bareGet measures the bare handler exactly as GET is measured on the server.
func (s *session) bareGet(ctx context.Context) (r Result, err error) {
	r = Result{Workload: "bare_http", Title: "bare net/http handler"}
	if err := s.needDocs(ctx); err != nil {
		return r, err
	}
	a, err := s.captureAnswer(ctx, 0)
	if err != nil {
		return r, err
	}
	b, err := startBareHTTP(ctx, a)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	bare := &session{options: s.options, run: s.run, loaded: s.loaded,
		// The same request headers, so that the handler parses the same bytes.
		target: &target{address: b.address, prefix: s.target.prefix, headers: s.target.headers}}
	bare.options.PID = b.command.Process.Pid
	get, err := bare.measured(ctx, entry{name: r.Workload, title: r.Title, load: getRandom{ops: s.options.Docs}})
	return get, err
}
