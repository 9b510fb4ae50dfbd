package httpapi_test

import (
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// A reduction that does not shrink has its error in the place of its group; the
// other groups are there.
func TestViewReduceOverflow(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, q := range []string{"q=1", "q=3"} {
		db := "/" + s.DB(t, q)
		s.Do(t, "PUT", db+"/_design/d", `{"views":{"v":{"map":"function(doc){ emit(doc.k, 1); }",
			"reduce":"function(keys, values, rereduce){ return keys && keys[0][0] == 2 ? new Array(10000).join('x') : values.length; }"}}}`).Want(201)
		s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"a","k":1},{"_id":"b","k":2},{"_id":"c","k":3}]}`).Want(201)
		r := s.Do(t, "GET", db+"/_design/d/_view/v?group=true", nil)
		r.Want(200)
		lines := strings.Split(string(r.Body), "\r\n")
		const start, end = `{"key":null,"error":"reduce_overflow_error","reason":"Reduce output must shrink more rapidly`, `"},`
		if len(lines) != 5 || lines[1] != `{"key":1,"value":1},` || !strings.HasPrefix(lines[2], start) || !strings.HasSuffix(lines[2], end) || lines[3] != `{"key":3,"value":1}` {
			t.Errorf("%s: %q", q, lines)
		}
	}
}
