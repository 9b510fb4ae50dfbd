package bench

import (
	"math/rand/v2"
	"strconv"
)

// words is the vocabulary of the texts. Real words in random order compress
// about as well as real text does; random letters would not compress at all and
// one repeated sentence far too well.
var words = []string{
	"river", "mountain", "paper", "window", "engine", "letter", "garden", "signal", "copper", "harbour",
	"the", "of", "and", "with", "under", "between", "after", "before", "without", "towards",
	"carries", "opens", "measures", "returns", "follows", "contains", "answers", "replaces", "travels", "begins",
	"quiet", "bright", "narrow", "ancient", "simple", "distant", "broken", "careful", "winter", "northern",
	"market", "bridge", "station", "library", "kitchen", "captain", "teacher", "village", "journey", "evening",
	"silver", "velvet", "timber", "cotton", "marble", "number", "season", "reason", "pattern", "measure",
}

// docTypes are the values of the field type.
var docTypes = []string{"invoice", "order", "customer", "product", "payment", "shipment", "ticket", "note"}

// hexDigits spells ids.
const hexDigits = "0123456789abcdef"

// mix is the finaliser of splitmix64: it spreads a counter over all 64 bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// appendID appends the 32 hex digits of document number i. Ids are as good as
// random but computed, so that no list of a million ids has to be kept.
func appendID(dst []byte, i int) []byte {
	high, low := mix(uint64(i)*2), mix(uint64(i)*2+1)
	for _, half := range [2]uint64{high, low} {
		for shift := 60; shift >= 0; shift -= 4 {
			dst = append(dst, hexDigits[half>>shift&15])
		}
	}
	return dst
}

// appendDocument appends a document of about 1 KB. id and rev are left out when
// they are empty.
func appendDocument(dst []byte, r *rand.Rand, id, rev string) []byte {
	start := len(dst)
	dst = append(dst, '{')
	if id != "" {
		dst = append(dst, `"_id":"`...)
		dst = append(dst, id...)
		dst = append(dst, `",`...)
	}
	if rev != "" {
		dst = append(dst, `"_rev":"`...)
		dst = append(dst, rev...)
		dst = append(dst, `",`...)
	}
	dst = append(dst, `"type":"`...)
	dst = append(dst, docTypes[r.IntN(len(docTypes))]...)
	dst = append(dst, `","created":`...)
	dst = strconv.AppendInt(dst, 1_600_000_000+r.Int64N(200_000_000), 10)
	dst = append(dst, `,"amount":`...)
	cents := r.Int64N(1_000_000)
	dst = strconv.AppendInt(dst, cents/100, 10)
	dst = append(dst, '.', '0'+byte(cents/10%10), '1'+byte(cents%9))
	dst = append(dst, `,"name":"`...)
	dst = appendWords(dst, r, 3)
	dst = append(dst, `","active":`...)
	dst = strconv.AppendBool(dst, r.IntN(2) == 0)
	dst = append(dst, `,"tags":["`...)
	dst = appendWords(dst, r, 1)
	dst = append(dst, `","`...)
	dst = appendWords(dst, r, 1)
	dst = append(dst, `","`...)
	dst = appendWords(dst, r, 1)
	dst = append(dst, `"],"address":{"street":"`...)
	dst = appendWords(dst, r, 2)
	dst = append(dst, `","number":`...)
	dst = strconv.AppendInt(dst, 1+r.Int64N(300), 10)
	dst = append(dst, `,"city":"`...)
	dst = appendWords(dst, r, 1)
	dst = append(dst, `"},"text":"`...)
	for len(dst)-start < documentSize-10 {
		dst = appendWords(dst, r, 1)
		dst = append(dst, ' ')
	}
	return append(dst, `"}`...)
}

// documentSize is how long a document is, to within a word.
const documentSize = 1024

// appendWords appends n words with spaces between them.
func appendWords(dst []byte, r *rand.Rand, n int) []byte {
	for i := range n {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = append(dst, words[r.IntN(len(words))]...)
	}
	return dst
}

// newRand gives the generator of worker n: the same in every run, so that two
// runs send the same bytes.
func newRand(n int) *rand.Rand { return rand.New(rand.NewPCG(1, uint64(n))) }
