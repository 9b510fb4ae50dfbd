package jsvm

import (
	"strings"
	"unicode/utf8"
)

// tokenKind is the sort of a token of JavaScript.
type tokenKind uint8

const (
	tokenName         tokenKind = iota // identifiers and keywords
	tokenPunct                         // operators and brackets
	tokenNumber                        // 1, 0x1f, 1e5, 1n
	tokenString                        // with its quotes
	tokenRegexp                        // with its slashes and flags
	tokenTemplate                      // `…`
	tokenTemplateHead                  // `…${
	tokenTemplateBody                  // }…${
	tokenTemplateTail                  // }…`
)

// token is a piece of a function's text.
type token struct {
	kind tokenKind
	text string
	// match is the place of the other bracket of a pair.
	match int
}

// is tells whether the token is this punctuator or keyword.
func (t token) is(text string) bool {
	return t.text == text && (t.kind == tokenPunct || t.kind == tokenName)
}

// tokenizer cuts a text into tokens. It refuses whatever it is not sure to read as
// an engine does: escapes and letters beyond ASCII in names, comments in the
// manner of HTML, and a slash of which only a parser knows what it begins.
type tokenizer struct {
	src    string
	pos    int
	tokens []token
	open   []int // brackets not closed yet, and template heads
}

// tokenize cuts a text into tokens, comments left out.
func tokenize(src string) ([]token, bool) {
	// The separators of lines and paragraphs end comments; HTML's comments are
	// comments only sometimes.
	if !utf8.ValidString(src) || strings.ContainsAny(src, "\u2028\u2029") || strings.Contains(src, "<!--") || strings.Contains(src, "-->") {
		return nil, false
	}
	z := tokenizer{src: src}
	for {
		if !z.skipSpace() {
			return nil, false
		}
		if z.pos == len(src) {
			return z.tokens, len(z.open) == 0
		}
		if !z.next() {
			return nil, false
		}
	}
}

// skipSpace passes whitespace and comments; false in a comment without an end.
func (z *tokenizer) skipSpace() bool {
	for z.pos < len(z.src) {
		rest := z.src[z.pos:]
		switch {
		case strings.IndexByte(" \t\n\r\v\f", rest[0]) >= 0:
			z.pos++
		case strings.HasPrefix(rest, "//"):
			end := strings.IndexAny(rest, "\n\r")
			if end < 0 {
				end = len(rest)
			}
			z.pos += end
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return false
			}
			z.pos += end + 4
		default:
			return true
		}
	}
	return true
}

// next reads one token.
func (z *tokenizer) next() bool {
	c := z.src[z.pos]
	switch {
	case isNameStart(c):
		return z.name()
	case c >= '0' && c <= '9', c == '.' && z.pos+1 < len(z.src) && isDigit(z.src[z.pos+1]):
		return z.number()
	case c == '"' || c == '\'':
		return z.text(c)
	case c == '`':
		return z.template(tokenTemplate, tokenTemplateHead)
	case c == '}' && len(z.open) > 0 && z.tokens[z.open[len(z.open)-1]].kind != tokenPunct:
		return z.template(tokenTemplateTail, tokenTemplateBody)
	case c == '/':
		switch z.slash() {
		case slashRegexp:
			return z.regexp()
		case slashUnclear:
			return false
		}
	}
	return z.punct()
}

// add appends a token that ends at end.
func (z *tokenizer) add(kind tokenKind, end int) bool {
	z.tokens = append(z.tokens, token{kind: kind, text: z.src[z.pos:end], match: -1})
	z.pos = end
	return true
}

// isNameStart tells the characters a name can begin with.
func isNameStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// name reads an identifier or keyword.
func (z *tokenizer) name() bool {
	end := z.pos
	for end < len(z.src) && (isNameStart(z.src[end]) || isDigit(z.src[end])) {
		end++
	}
	return z.ends(end) && z.add(tokenName, end)
}

// ends tells whether a name or number can end here: not before a letter that the
// tokenizer does not know, nor an escape.
func (z *tokenizer) ends(end int) bool {
	return end == len(z.src) || z.src[end] != '\\' && z.src[end] != '#' && z.src[end] < utf8.RuneSelf && !isNameStart(z.src[end])
}

// number reads a numeric literal.
func (z *tokenizer) number() bool {
	rest := z.src[z.pos:]
	end := z.pos
	if len(rest) > 2 && rest[0] == '0' && strings.IndexByte("xXoObB", rest[1]) >= 0 {
		end += 2
		for end < len(z.src) && (isDigit(z.src[end]) || z.src[end] == '_' || strings.IndexByte("abcdefABCDEF", z.src[end]) >= 0) {
			end++
		}
	} else {
		// A leading zero changes how the rest is read.
		if len(rest) > 1 && rest[0] == '0' && (isDigit(rest[1]) || rest[1] == '_') {
			return false
		}
		end = z.digits(end)
		if end < len(z.src) && z.src[end] == '.' {
			end = z.digits(end + 1)
		}
		if end < len(z.src) && (z.src[end] == 'e' || z.src[end] == 'E') {
			end++
			if end < len(z.src) && (z.src[end] == '+' || z.src[end] == '-') {
				end++
			}
			end = z.digits(end)
		}
	}
	if end < len(z.src) && z.src[end] == 'n' {
		end++
	}
	return z.ends(end) && (end == len(z.src) || !isDigit(z.src[end])) && z.add(tokenNumber, end)
}

// digits passes decimal digits.
func (z *tokenizer) digits(end int) int {
	for end < len(z.src) && (isDigit(z.src[end]) || z.src[end] == '_') {
		end++
	}
	return end
}

// text reads a string.
func (z *tokenizer) text(quote byte) bool {
	for end := z.pos + 1; end < len(z.src); end++ {
		switch z.src[end] {
		case quote:
			return z.add(tokenString, end+1)
		case '\\':
			end++
		case '\n', '\r':
			return false
		}
	}
	return false
}

// template reads a template, or its next piece, up to its end or to an expression
// in it.
func (z *tokenizer) template(whole, piece tokenKind) bool {
	if whole == tokenTemplateTail {
		z.open = z.open[:len(z.open)-1]
	}
	for end := z.pos + 1; end < len(z.src); end++ {
		switch z.src[end] {
		case '`':
			return z.add(whole, end+1)
		case '\\':
			end++
		case '$':
			if end+1 < len(z.src) && z.src[end+1] == '{' {
				z.open = append(z.open, len(z.tokens))
				return z.add(piece, end+2)
			}
		}
	}
	return false
}

// regexp reads a regular expression.
func (z *tokenizer) regexp() bool {
	class := false
	for end := z.pos + 1; end < len(z.src); end++ {
		switch z.src[end] {
		case '\\':
			end++
			if end < len(z.src) && (z.src[end] == '\n' || z.src[end] == '\r') {
				return false
			}
		case '[':
			class = true
		case ']':
			class = false
		case '\n', '\r':
			return false
		case '/':
			if class {
				continue
			}
			end++
			for end < len(z.src) && (isNameStart(z.src[end]) || isDigit(z.src[end])) {
				end++
			}
			return z.ends(end) && z.add(tokenRegexp, end)
		}
	}
	return false
}

// What a slash begins.
type slashMeaning uint8

const (
	slashDivision slashMeaning = iota
	slashRegexp
	slashUnclear
)

// slash tells what a slash begins here, by the token before it.
func (z *tokenizer) slash() slashMeaning {
	n := len(z.tokens)
	if n == 0 {
		return slashUnclear
	}
	last := z.tokens[n-1]
	switch last.kind {
	case tokenNumber, tokenString, tokenRegexp, tokenTemplate, tokenTemplateTail:
		return slashDivision
	case tokenTemplateHead, tokenTemplateBody:
		return slashRegexp
	case tokenName:
		if n > 1 && (z.tokens[n-2].is(".") || z.tokens[n-2].is("?.")) {
			return slashDivision
		}
		switch last.text {
		case "return", "typeof", "case", "in", "void", "throw", "instanceof", "else", "do":
			return slashRegexp
		}
		if reservedWords[last.text] {
			return slashUnclear
		}
		return slashDivision
	}
	switch last.text {
	case "]":
		return slashDivision
	case "}", "++", "--":
		return slashUnclear
	case ")":
		before := last.match - 1
		if before < 0 || z.tokens[before].kind != tokenName {
			return slashDivision
		}
		switch z.tokens[before].text {
		case "if", "while", "for", "with":
			if before > 0 && (z.tokens[before-1].is(".") || z.tokens[before-1].is("?.")) {
				return slashDivision
			}
			return slashRegexp
		}
		return slashDivision
	}
	return slashRegexp
}

// reservedWords are the words that are, or can be, more than a name.
var reservedWords = wordSet(`break case catch class const continue debugger default delete do else enum export extends false finally for
	function if import in instanceof new null return super switch this throw true try typeof var void while with
	let static yield await async of get set implements interface package private protected public eval arguments undefined`)

// wordSet makes a set of words.
func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// puncts are the punctuators of more than one character, longer ones first.
var puncts = []string{
	">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>", "&&=", "||=", "??=",
	"=>", "==", "!=", "<=", ">=", "&&", "||", "??", "?.", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<", ">>", "**",
}

// punct reads a punctuator and pairs brackets.
func (z *tokenizer) punct() bool {
	rest := z.src[z.pos:]
	for _, p := range puncts {
		if strings.HasPrefix(rest, p) && !(p == "?." && len(rest) > 2 && isDigit(rest[2])) {
			return z.add(tokenPunct, z.pos+len(p))
		}
	}
	at := len(z.tokens)
	switch rest[0] {
	case '(', '[', '{':
		z.open = append(z.open, at)
	case ')', ']', '}':
		if len(z.open) == 0 {
			return false
		}
		other := z.open[len(z.open)-1]
		z.open = z.open[:len(z.open)-1]
		if strings.IndexByte(")]}", rest[0]) != strings.Index("([{", z.tokens[other].text) {
			return false
		}
		z.add(tokenPunct, z.pos+1)
		z.tokens[at].match, z.tokens[other].match = other, at
		return true
	case ';', ',', '<', '>', '+', '-', '*', '/', '%', '&', '|', '^', '!', '~', '?', ':', '=', '.':
	default:
		return false
	}
	return z.add(tokenPunct, z.pos+1)
}
