package httpapi

import (
	"fmt"
	"sort"
	"strings"

	"github.com/divandb/divan/internal/auth"
)

// right is what a caller needs for a route. It is a column of the route table,
// so no handler can forget the check; the zero value is no right at all and a
// table that has it does not build. Administrators of the server have every right.
type right uint8

// The rights. What those on a database mean stands in dbRights.
const (
	_            right = iota
	public             // anyone
	knownUser          // anyone with credentials
	serverAdmin        // an administrator of the server
	dbUpdates          // the global feed, of what grants it
	dbReader           // read documents
	dbWriter           // write documents that are no design documents
	dbReadWrite        // both: what is written is made of what was read
	dbAdmin            // design documents, security, settings
	dbInfo             // the database information, and which revisions are there
	dbLocalRead        // read local documents
	dbLocalWrite       // write local documents
	dbCommit           // have written what was written
	dbDesign           // read design documents
	dbShards           // where the ranges are
	dbSecurity         // read the security object
	dbAny              // anything at all: where the request goes next decides
)

// dbRights are the rights on a database that each right of a route asks for: any
// one of these sets.
var dbRights = map[right][]auth.Rights{
	dbReader:     {auth.Reader},
	dbWriter:     {auth.Writer},
	dbReadWrite:  {auth.Reader | auth.Writer},
	dbAdmin:      {auth.DBAdmin},
	dbInfo:       {auth.Reader, auth.Replicator},
	dbLocalRead:  {auth.Reader, auth.Replicator},
	dbLocalWrite: {auth.Writer, auth.Replicator},
	dbCommit:     {auth.Reader, auth.Writer, auth.Replicator},
	dbDesign:     {auth.Design},
	dbShards:     {auth.Shards},
	dbSecurity:   {auth.SeeSecurity},
	dbAny:        {auth.Reader, auth.Writer, auth.Replicator, auth.Design},
}

// handler serves one route.
type handler func(a *API, rq *request) error

// route is one row of the table.
type route struct {
	methods string // comma separated; HEAD is allowed wherever GET is
	shape   string // literal segments and {name}; a last {name...} takes the rest
	need    right
	handle  handler
}

// routeNode is a place in the tree of path segments. Literals win over
// parameters, which is what keeps /{db}/_all_docs apart from /{db}/{doc}.
type routeNode struct {
	literal map[string]*routeNode
	param   *routeNode
	name    string // of the parameter that leads here
	tail    *routeNode
	methods map[string]*route
}

type routeTree struct {
	root *routeNode
}

// buildRoutes makes the tree; it panics on a row without a right or handler, or
// on two rows for one method and shape.
func buildRoutes(table []route) *routeTree {
	t := &routeTree{root: &routeNode{}}
	for i := range table {
		r := &table[i]
		if r.need == 0 || r.handle == nil || r.methods == "" {
			panic(fmt.Sprintf("route %s %s has no right, handler or method", r.methods, r.shape))
		}
		n := t.root
		if r.shape != "/" {
			for _, seg := range strings.Split(r.shape[1:], "/") {
				n = n.child(seg)
			}
		}
		if n.methods == nil {
			n.methods = map[string]*route{}
		}
		for _, m := range strings.Split(r.methods, ",") {
			n.add(m, r)
			if m == "GET" {
				n.add("HEAD", r)
			}
		}
	}
	return t
}

func (n *routeNode) add(method string, r *route) {
	if n.methods[method] != nil {
		panic(fmt.Sprintf("two routes for %s %s", method, r.shape))
	}
	n.methods[method] = r
}

func (n *routeNode) child(seg string) *routeNode {
	if !strings.HasPrefix(seg, "{") {
		if n.literal == nil {
			n.literal = map[string]*routeNode{}
		}
		if n.literal[seg] == nil {
			n.literal[seg] = &routeNode{}
		}
		return n.literal[seg]
	}
	name := strings.Trim(seg, "{}")
	if rest, ok := strings.CutSuffix(name, "..."); ok {
		if n.tail == nil {
			n.tail = &routeNode{name: rest}
		}
		return n.tail
	}
	if n.param == nil {
		n.param = &routeNode{name: name}
	}
	if n.param.name != name {
		panic("two names for one path segment: " + n.param.name + " and " + name)
	}
	return n.param
}

// pathParam is a named segment of a matched path, percent-decoded.
type pathParam struct {
	name, value string
}

// match walks the decoded segments. The result is nil where no shape fits. The
// parameters are appended to params.
func (t *routeTree) match(segs []string, params []pathParam) (*routeNode, []pathParam) {
	return t.root.match(segs, params)
}

func (n *routeNode) match(segs []string, params []pathParam) (*routeNode, []pathParam) {
	if len(segs) == 0 {
		if n.methods == nil {
			return nil, params
		}
		return n, params
	}
	if next := n.literal[segs[0]]; next != nil {
		if found, p := next.match(segs[1:], params); found != nil {
			return found, p
		}
	}
	if n.param != nil && segs[0] != "" {
		if found, p := n.param.match(segs[1:], append(params, pathParam{n.param.name, segs[0]})); found != nil {
			return found, p
		}
	}
	if n.tail != nil && n.tail.methods != nil {
		return n.tail, append(params, pathParam{n.tail.name, strings.Join(segs, "/")})
	}
	return nil, params
}

// allowed lists the methods of a place, for the Allow header.
func (n *routeNode) allowed() string {
	ms := make([]string, 0, len(n.methods))
	for m := range n.methods {
		ms = append(ms, m)
	}
	sort.Strings(ms)
	return strings.Join(ms, ",")
}

// splitPath cuts an escaped path into decoded segments. A slash inside a segment
// must be written %2F; a plus sign is a plus sign.
func splitPath(escaped string, segs []string) ([]string, bool) {
	escaped = strings.TrimPrefix(escaped, "/")
	if escaped == "" {
		return segs, true
	}
	for {
		seg, rest, more := strings.Cut(escaped, "/")
		dec, ok := unescapeSegment(seg)
		if !ok {
			return segs, false
		}
		// A slash at the end of the path means nothing: /db/ is /db.
		if more || dec != "" {
			segs = append(segs, dec)
		}
		if !more {
			return segs, true
		}
		escaped = rest
	}
}

func unescapeSegment(s string) (string, bool) {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		return s, true
	}
	out := make([]byte, 0, len(s))
	for {
		out = append(out, s[:i]...)
		if i+2 >= len(s) {
			return "", false
		}
		hi, ok1 := unhex(s[i+1])
		lo, ok2 := unhex(s[i+2])
		if !ok1 || !ok2 {
			return "", false
		}
		out = append(out, hi<<4|lo)
		s = s[i+3:]
		if i = strings.IndexByte(s, '%'); i < 0 {
			return string(append(out, s...)), true
		}
	}
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
