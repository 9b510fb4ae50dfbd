package server

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/divandb/divan/internal/httpapi"
)

// Version is Divan's own; httpapi.ProtocolVersion is that of the interface.
const Version = "0.1.0"

// commit is set by the Makefile (-ldflags -X), as the Go tool does not always note
// it.
var commit string

// Build names the commit that this binary was built from.
func Build() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	return revision + dirty
}

// PrintVersion is `divan version`.
func PrintVersion(w io.Writer) error {
	_, err := fmt.Fprintf(w, "divan %s\nprotocol %s\nbuild %s\n%s %s/%s\n",
		Version, httpapi.ProtocolVersion, Build(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
