package changes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// database makes a registry row of q ranges with copies from the given number on.
func database(q int, firstCopy shardapi.CopyID) *cluster.Database {
	d := &cluster.Database{Name: "a", Instance: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}, Q: q, MapEpoch: 1}
	for i, r := range model.SplitRanges(q) {
		d.Shards = append(d.Shards, cluster.Shard{Range: r, Copies: []cluster.Copy{{ID: firstCopy + shardapi.CopyID(i), Epoch: 1}}})
	}
	return d
}

func TestTokenRoundTrip(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, q := range []int{1, 2, 3, 8, 100, cluster.MaxQ} {
		d := database(q, 1000)
		for range 50 {
			v := make(Vector, q)
			for i := range v {
				v[i] = rnd.Uint64() >> (16 + rnd.IntN(48))
			}
			text := Token(d, v)
			if !strings.HasPrefix(text, fmt.Sprintf("%d-", v.Sum())) {
				t.Fatalf("token %q of sum %d", text, v.Sum())
			}
			got, err := Decode(d, text)
			if err != nil || !slices.Equal(got, v) {
				t.Fatalf("q=%d: %v came back as %v, %v", q, v, got, err)
			}
			i := rnd.IntN(q)
			w := slices.Clone(v)
			w[i] = 77
			if got := string(NewEncoder(d).appendAt(nil, v, i, 77)); got != Token(d, w) {
				t.Fatalf("appendAt gives %q, want %q", got, Token(d, w))
			}
		}
	}
}

func TestTokenRules(t *testing.T) {
	t.Parallel()
	d := database(4, 10)
	v := Vector{5, 6, 7, 8}
	text := Token(d, v)
	zero := Vector{0, 0, 0, 0}

	other := database(4, 10)
	other.Instance[0]++
	unknownCopy := database(4, 10)
	unknownCopy.Shards[1].Copies[0].ID = 99
	newEpoch := database(4, 10)
	newEpoch.Shards[2].Copies[0].Epoch = 2
	split := database(8, 20) // the first half of each range keeps its begin, not its copy
	split.Shards[0].Copies[0].ID = 10
	for name, c := range map[string]struct {
		db   *cluster.Database
		text string
		want Vector
	}{
		"empty":            {d, "", zero},
		"nought":           {d, "0", zero},
		"another instance": {other, text, zero},
		"unknown copy":     {unknownCopy, text, Vector{5, 0, 7, 8}},
		"new epoch":        {newEpoch, text, Vector{5, 6, 0, 8}},
		"another map":      {split, text, Vector{5, 0, 0, 0, 0, 0, 0, 0}},
		"nil vector":       {d, Token(d, nil), zero},
	} {
		if got, err := Decode(c.db, c.text); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
	flipped := []byte(text)
	flipped[len(flipped)/2] ^= 1
	for _, bad := range []string{"1", "26", "-1", "abc", "now", "26-", "26-!!!!", "27" + text[2:], "x" + text, text + "A",
		text[:len(text)-1], string(flipped), "+" + text, "0-0", strings.Repeat("1", 30) + text[2:], "1-" + strings.Repeat("A", maxToken),
		string(AppendUpdatesToken(nil, "u", 26))} {
		if got, err := Decode(d, bad); !errors.Is(err, ErrSince) {
			t.Errorf("%.60q: %v, %v", bad, got, err)
		}
	}
}

func TestUpdatesToken(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{1, 2, 300, 1 << 50} {
		text := string(AppendUpdatesToken(nil, "one", n))
		if got, err := DecodeUpdatesToken("one", text); err != nil || got != n {
			t.Errorf("%d: %d, %v", n, got, err)
		}
		if got, err := DecodeUpdatesToken("two", text); err != nil || got != 0 {
			t.Errorf("of another service: %d, %v", got, err)
		}
	}
	for _, zero := range []string{"", "0"} {
		if got, err := DecodeUpdatesToken("one", zero); err != nil || got != 0 {
			t.Errorf("%q: %d, %v", zero, got, err)
		}
	}
	good := string(AppendUpdatesToken(nil, "one", 7))
	for _, bad := range []string{"7", "now", "7-", "8" + good[1:], "07" + good[1:], good + "A", Token(database(1, 1), Vector{7})} {
		if got, err := DecodeUpdatesToken("one", bad); !errors.Is(err, ErrSince) {
			t.Errorf("%q: %d, %v", bad, got, err)
		}
	}
}

// FuzzDecode: no text makes Decode panic; what it takes, it takes the same way
// again after being written anew.
func FuzzDecode(f *testing.F) {
	d := database(3, 10)
	for _, s := range []string{"", "0", "now", "12", "3-AAAA", Token(d, Vector{1, 2, 3}), Token(database(2, 1), Vector{9, 9})} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := Decode(d, text)
		if err != nil {
			if !errors.Is(err, ErrSince) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := Decode(d, Token(d, v))
		if err != nil || !slices.Equal(v, again) {
			t.Fatalf("%q: %v, then %v, %v", text, v, again, err)
		}
		if _, err := DecodeUpdatesToken("one", text); err != nil && !errors.Is(err, ErrSince) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

func BenchmarkToken(b *testing.B) {
	for _, q := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("q%d", q), func(b *testing.B) {
			e := NewEncoder(database(q, 1000))
			v := make(Vector, q)
			for i := range v {
				v[i] = 123456
			}
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				buf = e.Append(buf[:0], v)
			}
		})
	}
}
