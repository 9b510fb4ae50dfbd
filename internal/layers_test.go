// Package internal holds no code; its tests hold the cut of the project.
package internal

import (
	"bufio"
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/divandb/divan/"

// layers is the table of docs/ARCHITECTURE.md: an import must point to a package
// of a strictly lower number. A package that is not in the table fails the test,
// so that a new one gets its place on purpose.
var layers = map[string]int{
	"internal/model":   0,
	"internal/rawjson": 0,
	"internal/config":  0,

	"internal/md5stream": 0,

	"internal/collate": 1,
	"internal/revtree": 1,
	"internal/kv":      1,
	"internal/auth":    1,
	"internal/jsvm":    1,

	"internal/selector": 2,
	"internal/document": 2,
	"internal/reduce":   2,

	"internal/shardapi": 3,
	"internal/design":   3,

	"internal/shard":   4,
	"internal/noderpc": 4,
	"internal/index":   4,

	"internal/cluster":              5,
	"internal/shardapi/conformance": 5,
	"internal/index/view":           5,

	"internal/shardhost":   6,
	"internal/coordinator": 6,

	"internal/changes": 7,
	"internal/designs": 7,

	"internal/httpapi": 9,

	"internal/server": 10,

	"internal/testserver":  11,
	"bench":                11,
	"internal/collate/gen": 11,

	"cmd/divan": 12,
}

// soleImporters are the packages that alone may import a module, by its path.
var soleImporters = map[string]string{
	"github.com/cockroachdb/pebble": "internal/kv",
	"modernc.org/quickjs":           "internal/jsvm",
	"modernc.org/libquickjs":        "internal/jsvm",
}

func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, top := range []string{"../internal", "../cmd", "../bench", "../test"} {
		err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			if strings.HasSuffix(path, ".go") {
				files = append(files, path)
			}
			return nil
		})
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return files
}

func TestImportsPointDown(t *testing.T) {
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "../test/") {
			continue
		}
		pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../")
		layer, known := layers[pkg]
		if !known {
			t.Errorf("%s: package %s has no place in the layer table", file, pkg)
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			path, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			for module, importer := range soleImporters {
				if strings.HasPrefix(path, module) && pkg != importer {
					t.Errorf("%s imports %s: only %s may", file, path, importer)
				}
			}
			target, ours := strings.CutPrefix(path, module)
			if !ours {
				continue
			}
			if to, known := layers[target]; !known || to >= layer {
				t.Errorf("%s (layer %d) imports %s (layer %d): imports go strictly down", file, layer, target, to)
			}
		}
	}
}

// maxLines is the length at which a file is cut where a reader would expect it.
const maxLines = 600

func TestFileLength(t *testing.T) {
	for _, file := range goFiles(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for sc := bufio.NewScanner(bytes.NewReader(data)); sc.Scan(); {
			lines++
		}
		if lines > maxLines {
			t.Errorf("%s has %d lines, over %d", file, lines, maxLines)
		}
	}
}
