package jsvm

import (
	"slices"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/rawjson"
)

// readFields tells which members of its document a map function can read, so that
// it need be given no others. It is ok only if the text is one function and no way
// leads from it to the document as a whole. The reasons, which the code cites:
//
//  1. Each use of the parameter is doc.name or doc["name"], or one that tells only
//     that there is a document (doc && …, !doc). So the function never holds it.
//  2. No name is one that Object.prototype has: of those, valueOf gives the
//     document back, and the others are not its data.
//  3. No name leads to something that defines a property with a getter, which could
//     be called on the document: neither spelled, nor as a string, nor computed. So
//     a computed name must be a number, or come from the object it is used on.
//  4. Nothing else sees what was passed: arguments, this, eval and their like do
//     not occur.
//
// What other functions did in the same engine counts too: see harmless.
func readFields(fn string) (fields []string, ok bool) {
	f, ok := cutFunction(fn)
	if !ok || !f.parse() || !f.harmless() {
		return nil, false
	}
	if f.param == "" {
		return nil, true
	}
	for i := f.body; i < len(f.tokens); i++ {
		if !f.isVariable(i, f.param) {
			continue
		}
		names, ok := f.use(i)
		if !ok {
			return nil, false
		}
		for _, name := range names {
			if !slices.Contains(fields, name) {
				fields = append(fields, name)
			}
		}
	}
	return fields, true
}

// harmless tells whether a function, of whatever sort, leaves the built-in objects
// of its engine as they are in all that readFields relies on. Only if this is true
// of every function that an engine ever ran may documents be projected for it.
func harmless(fn string) bool {
	f, ok := cutFunction(fn)
	return ok && f.harmless()
}

// longestAnalysed is up to which length functions are looked at: the analysis may
// cost the square of it.
const longestAnalysed = 32 << 10

// function is a function's text, cut.
type function struct {
	tokens []token
	param  string // the first parameter; empty if there is none, or if nobody asked
	params [2]int // the places of the list's parentheses, equal for a lone name
	body   int    // the place of the first token of the body

	inParams    []bool          // of each token: in the parameters of a function, or what a catch is given
	declared    map[string]bool // names behind var, let, const or function
	hasCase     bool            // there is a switch
	hasPatterns bool            // something is taken apart by a pattern, which can set any variable
	counters    map[string]bool // what isCounter found
	ownKeys     map[string]bool // what isOwnKey found
}

// cutFunction cuts a text and looks over it once.
func cutFunction(fn string) (*function, bool) {
	if len(fn) > longestAnalysed {
		return nil, false
	}
	tokens, ok := tokenize(fn)
	if !ok {
		return nil, false
	}
	f := &function{tokens: tokens, inParams: make([]bool, len(tokens)), declared: map[string]bool{}, counters: map[string]bool{}, ownKeys: map[string]bool{}}
	until := -1 // the end of the parameters around
	for i, t := range tokens {
		f.inParams[i] = i < until
		if t.is("(") && t.match > until {
			if before := f.at(i - 1); before.is("function") || f.at(i-2).is("function") || before.is("catch") || f.at(t.match+1).is("=>") {
				until = t.match
			}
		}
		f.hasCase = f.hasCase || t.is("case")
		if before := f.at(i - 1); t.kind == tokenName && (isDeclaring(before) || before.is("function")) {
			f.declared[t.text] = true
		}
		if next := f.at(i + 1); (t.is("]") || t.is("}")) && (next.is("=") || next.is("of") || next.is("in")) || (t.is("[") || t.is("{")) && f.inParams[i] {
			f.hasPatterns = true
		}
	}
	return f, true
}

// isDeclaring tells the words that declare variables.
func isDeclaring(t token) bool { return t.is("var") || t.is("let") || t.is("const") }

// isVariable tells whether the token at i is this name, used as a variable.
func (f *function) isVariable(i int, name string) bool {
	return f.tokens[i].kind == tokenName && f.tokens[i].text == name && !f.isMember(i) && !f.isKey(i)
}

// at gives a token, and one that is nothing outside the text.
func (f *function) at(i int) token {
	if i < 0 || i >= len(f.tokens) {
		return token{kind: tokenPunct}
	}
	return f.tokens[i]
}

// parse finds the one function that the text must be and its first parameter.
func (f *function) parse() bool {
	from, to := 0, len(f.tokens)
	for to > from && f.tokens[to-1].is(";") {
		to--
	}
	// Parentheses around the whole.
	for to-from > 2 && f.tokens[from].is("(") && f.tokens[from].match == to-1 {
		from, to = from+1, to-1
	}
	if to-from < 3 {
		return false
	}
	i := from
	if f.tokens[i].is("function") {
		i++
		name := ""
		if f.at(i).kind == tokenName {
			name = f.at(i).text
			i++
		}
		if !f.readParams(i) || name != "" && (name == f.param || reservedWords[name]) {
			return false
		}
		i = f.tokens[i].match + 1
		f.body = i
		return f.at(i).is("{") && f.tokens[i].match == to-1
	}
	if f.tokens[i].kind == tokenName {
		f.param, f.params = f.tokens[i].text, [2]int{i, i}
		if reservedWords[f.param] {
			return false
		}
		i++
	} else {
		if !f.readParams(i) {
			return false
		}
		i = f.tokens[i].match + 1
	}
	if !f.at(i).is("=>") {
		return false
	}
	i++
	f.body = i
	if f.at(i).is("{") {
		return f.tokens[i].match == to-1
	}
	// The body is one expression: a comma outside of brackets would end it.
	for ; i < to; i++ {
		if f.tokens[i].is(",") || f.tokens[i].is(";") {
			return false
		}
		if f.tokens[i].match > i {
			i = f.tokens[i].match
		}
	}
	return f.body < to
}

// readParams reads a list of plain parameters whose parenthesis is at i.
func (f *function) readParams(i int) bool {
	if !f.at(i).is("(") {
		return false
	}
	end := f.tokens[i].match
	f.params = [2]int{i, end}
	var names []string
	for k := i + 1; k < end; k++ {
		if (k-i)%2 == 0 {
			if !f.tokens[k].is(",") {
				return false
			}
			continue
		}
		name := f.tokens[k].text
		if f.tokens[k].kind != tokenName || reservedWords[name] || slices.Contains(names, name) {
			return false
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		f.param = names[0]
	}
	return true
}

// isMember tells whether the name at i stands behind a dot.
func (f *function) isMember(i int) bool { return f.at(i-1).is(".") || f.at(i-1).is("?.") }

// isKey tells whether the name at i is the name of a member in an object. In a
// switch, a name before a colon can be an expression.
func (f *function) isKey(i int) bool {
	if !f.at(i + 1).is(":") {
		return false
	}
	return f.at(i-1).is("{") || f.at(i-1).is(",") && !f.hasCase
}

// use reads the use of the parameter at i (reason 1) and gives the names it reads.
func (f *function) use(i int) (names []string, ok bool) {
	before, after := f.at(i-1), f.at(i+1)
	switch {
	case after.is("&&") && (before.is("(") || before.is("&&") || before.is("||")):
		return nil, true
	case before.is("!") && (after.is(")") || after.is("&&") || after.is("||") || after.is(";")):
		return nil, true
	}
	name, end, ok := f.member(i)
	if !ok {
		return nil, false
	}
	if name == "hasOwnProperty" {
		// The one method of a document that is allowed, with a name spelled out.
		asked, isText := stringText(f.at(end + 1))
		if f.at(end).is("(") && isText && f.at(end+2).is(")") && !forbiddenMembers[asked] {
			return []string{name, asked}, true
		}
		return nil, false
	}
	if inherited[name] || forbiddenMembers[name] {
		return nil, false
	}
	switch next := f.at(end); {
	case next.is("("), next.kind == tokenTemplate, next.kind == tokenTemplateHead, next.is("?.") && f.at(end+1).is("("):
		return nil, false
	case isAssignment(next), next.is("++"), next.is("--"), before.is("++"), before.is("--"):
		return nil, false
	}
	return []string{name}, true
}

// member reads .name, ?.name, ["name"] or ?.["name"] behind the name at i and gives
// the place after it.
func (f *function) member(i int) (name string, end int, ok bool) {
	i++
	if f.at(i).is(".") || f.at(i).is("?.") {
		if f.at(i+1).kind == tokenName {
			return f.at(i + 1).text, i + 2, true
		}
		if f.at(i).is(".") {
			return "", 0, false
		}
		i++
	}
	if !f.at(i).is("[") || f.tokens[i].match != i+2 {
		return "", 0, false
	}
	name, ok = stringText(f.tokens[i+1])
	return name, i + 3, ok
}

// isAssignment tells operators that assign.
func isAssignment(t token) bool {
	if t.kind != tokenPunct || !strings.HasSuffix(t.text, "=") {
		return false
	}
	switch t.text {
	case "==", "===", "!=", "!==", "<=", ">=":
		return false
	}
	return true
}

// stringText gives the text of a string token; false if it has escapes but the
// simplest.
func stringText(t token) (string, bool) {
	if t.kind != tokenString {
		return "", false
	}
	text := t.text[1 : len(t.text)-1]
	if !strings.Contains(text, `\`) {
		return text, true
	}
	// Only the escapes that Go has too, in the same meaning.
	for k := 0; k < len(text); k++ {
		if text[k] == '\\' {
			k++
			if strings.IndexByte(`nrtbfv\"u`, text[k]) < 0 {
				return "", false
			}
		}
	}
	s, err := strconv.Unquote(`"` + text + `"`)
	return s, err == nil
}

// project appends an object with just those members of doc, in the order of the
// document. doc is a normalised JSON object.
func project(dst, doc []byte, fields []string) []byte {
	dst = append(dst, '{')
	left := len(fields)
	if left > 0 {
		start := len(dst)
		for name, value := range rawjson.Members(doc) {
			at := indexName(fields, name)
			if at < 0 {
				continue
			}
			if len(dst) > start {
				dst = append(dst, ',')
			}
			dst = append(rawjson.AppendString(dst, fields[at]), ':')
			dst = append(dst, value...)
			if left--; left == 0 {
				break
			}
		}
	}
	return append(dst, '}')
}

// indexName finds a name among the fields.
func indexName(fields []string, name []byte) int {
	for i, f := range fields {
		if f == string(name) {
			return i
		}
	}
	return -1
}
