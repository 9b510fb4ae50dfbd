package jsvm

import "io"

// WorkerMain is `divan js-worker`: it serves one pool over its standard input and
// output until they close, and gives the exit status.
func WorkerMain(args []string, in io.Reader, out, errOut io.Writer) int {
	panic("not there yet")
}
