// Command divan is the whole of Divan in one binary: the server and its tools.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/divandb/divan/bench"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/server"
)

const usage = `Divan is a document database service.

Usage:
  divan serve [flags]      serve a data directory; --help lists the flags
  divan admin add NAME     add a server administrator, or set the password of one
  divan admin remove NAME  remove a server administrator
  divan admin list         list the server administrators; admin --help has more
  divan bench URL [flags]  measure a running server; --help lists the flags
  divan version            print the version
  divan help               print this
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run gives the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	var err error
	switch word {
	case "serve":
		return server.Run(args[1:], stdout, stderr)
	case "js-worker": // started by the server itself
		return jsvm.WorkerMain(args[1:], os.Stdin, stdout, stderr)
	case "admin":
		err = server.ManageAdmins(args[1:], os.Stdin, stdout, stderr)
	case "bench":
		err = bench.Main(args[1:], stdout)
	case "version", "--version":
		err = server.PrintVersion(stdout)
	case "help", "--help", "-h":
		_, err = io.WriteString(stdout, usage)
	default:
		fmt.Fprint(stderr, usage)
		return 2
	}
	if err != nil {
		fmt.Fprintln(stderr, "divan:", err)
		return 1
	}
	return 0
}
