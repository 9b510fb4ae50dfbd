package jsvm

import "strings"

// inherited are the names that every object has from Object.prototype.
var inherited = wordSet(`constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf
	__proto__ __defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__`)

// forbiddenMembers are names of members that lead to prototypes, to definitions of
// properties, or to what a caller passed. They must not occur at all: not behind a
// dot, not as a key, not as a string.
var forbiddenMembers = wordSet(`constructor prototype __proto__ __defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__
	defineProperty defineProperties setPrototypeOf getPrototypeOf getOwnPropertyDescriptor getOwnPropertyDescriptors
	assign create groupBy caller callee arguments prepareStackTrace`)

// forbiddenWords must not occur either (reason 4 of readFields).
var forbiddenWords = wordSet(`eval Function with arguments import export Proxy Reflect globalThis require this super class extends
	async await yield delete debugger enum static Symbol module exports`)

// knownGlobals are the capitalised names of the language that a function may use
// freely. Others must be its own.
var knownGlobals = wordSet(`Math JSON Date Array String Number Boolean RegExp Map Set Error TypeError RangeError SyntaxError NaN Infinity BigInt`)

// objectMethods are what may be asked of Object.
var objectMethods = wordSet(`keys values entries`)

// harmless checks reasons 3 and 4 of readFields.
func (f *function) harmless() bool {
	for i, t := range f.tokens {
		ok := true
		switch t.kind {
		case tokenName:
			ok = f.nameAllowed(i)
		case tokenString:
			text, readable := stringText(t)
			ok = !forbiddenMembers[text] && (readable || !f.isNaming(i))
		case tokenPunct:
			switch t.text {
			case "[":
				ok = f.bracketAllowed(i)
			case "*":
				ok = !f.at(i - 1).is("function")
			case ")":
				ok = !f.at(i+1).is("{") || f.isBlockHead(t.match)
			}
		}
		if !ok {
			return false
		}
	}
	return true
}

// nameAllowed tells whether the name at i may stand there.
func (f *function) nameAllowed(i int) bool {
	name, next := f.tokens[i].text, f.at(i+1)
	if forbiddenWords[name] || forbiddenMembers[name] {
		return false
	}
	if f.isMember(i) || f.isKey(i) {
		return true
	}
	switch name {
	case "new":
		return !next.is(".")
	case "get", "set":
		// A getter or setter in an object.
		return next.kind == tokenPunct && !next.is("[")
	case "of":
		// Behind a variable, as in a loop. Else it is a variable itself, and a bracket
		// behind it means something else.
		before := f.at(i - 1)
		return (before.kind == tokenName && !reservedWords[before.text] || before.is("]") || before.is("}")) &&
			!isAssignment(next) && !next.is("++") && !next.is("--") && !next.is(".") && !next.is("?.")
	case "let":
		return next.kind == tokenName && !reservedWords[next.text] || next.is("[") || next.is("{")
	case "Object":
		return next.is(".") && objectMethods[f.at(i+2).text] && f.at(i+3).is("(")
	}
	if name[0] < 'A' || name[0] > 'Z' || knownGlobals[name] {
		return true
	}
	if f.declared[name] {
		return true
	}
	return i > f.params[0] && i < f.params[1]
}

// isNaming tells whether the string at i names a member: in brackets, or as a key.
func (f *function) isNaming(i int) bool {
	return f.at(i-1).is("[") && f.at(i+1).is("]") || f.at(i+1).is(":") || f.at(i+1).is("(")
}

// isBlockHead tells whether the parenthesis at i belongs to a statement, a function
// or a call before a block, and not to a method written short in an object.
func (f *function) isBlockHead(i int) bool {
	before := f.at(i - 1)
	if before.kind != tokenName {
		return false
	}
	switch before.text {
	case "if", "for", "while", "switch", "catch", "function":
		return !f.isMember(i - 1)
	}
	return f.at(i - 2).is("function")
}

// bracketAllowed tells whether the bracket at i names a member in an allowed way
// (reason 3), or is an array.
func (f *function) bracketAllowed(i int) bool {
	end := f.tokens[i].match
	if !f.indexes(i) {
		// A list, unless it is a computed key in an object, which in a pattern reads
		// a member.
		return !(f.at(i-1).is("{") || f.at(i-1).is(",")) || !(f.at(end+1).is(":") || f.at(end+1).is("("))
	}
	inner := f.tokens[i+1 : end]
	switch {
	case len(inner) == 0:
		return false
	case len(inner) == 1:
		t := inner[0]
		switch t.kind {
		case tokenNumber:
			return true
		case tokenString:
			text, ok := stringText(t)
			return ok && !forbiddenMembers[text]
		case tokenName:
			return f.isCounter(t.text) || f.isOwnKey(t.text, i)
		}
		return false
	case len(inner) == 3 && inner[0].kind == tokenName && f.isCounter(inner[0].text) && inner[1].is("+") && inner[2].kind == tokenNumber:
		return true
	}
	return f.isDifference(i+1, end)
}

// indexes tells whether the bracket at i follows a value, and so names a member.
func (f *function) indexes(i int) bool {
	before := f.at(i - 1)
	switch before.kind {
	case tokenNumber, tokenString, tokenRegexp, tokenTemplate, tokenTemplateTail:
		return true
	case tokenName:
		if f.isMember(i - 1) {
			return true
		}
		switch before.text {
		case "return", "typeof", "case", "in", "of", "void", "throw", "instanceof", "else", "do", "var", "let", "const", "new":
			return false
		}
		return true
	case tokenPunct:
		// Behind a brace a list or an index may begin: both rules must hold, and the
		// stricter one is that of an index.
		return before.is(")") || before.is("]") || before.is("}") || before.is("?.")
	}
	return false
}

// isDifference tells whether tokens are names with dots and numbers, and minus signs
// between them: a number, whatever the names stand for.
func (f *function) isDifference(from, to int) bool {
	minus := 0
	operand := false
	for i := from; i < to; i++ {
		switch t := f.tokens[i]; {
		case t.kind == tokenNumber && !operand:
			operand = true
		case t.kind == tokenName && !operand && !reservedWords[t.text]:
			operand = true
		case t.is(".") && operand && f.at(i+1).kind == tokenName && i+1 < to:
			i++
		case t.is("-") && operand:
			minus++
			operand = false
		default:
			return false
		}
	}
	return operand && minus > 0
}

// isCounter tells whether a name is only ever given numbers: a variable of this
// function that is set to a literal number and counted up or down.
func (f *function) isCounter(name string) bool {
	is, known := f.counters[name]
	if !known {
		is = f.findCounter(name)
		f.counters[name] = is
	}
	return is
}

// findCounter is isCounter for a name that is asked of first.
func (f *function) findCounter(name string) bool {
	if reservedWords[name] || name == f.param || f.hasPatterns {
		return false
	}
	declared := false
	for i := range f.tokens {
		if !f.isVariable(i, name) {
			continue
		}
		before, next := f.at(i-1), f.at(i+1)
		declared = declared || isDeclaring(before)
		switch {
		case before.is("function"), next.is("in"), next.is("of"), next.is("=>"), f.inParams[i]:
			return false
		case next.is("=") || next.is("+=") || next.is("-="):
			after := f.at(i + 3)
			if f.at(i+2).kind != tokenNumber || !(after.is(";") || after.is(",") || after.is(")")) {
				return false
			}
		case isAssignment(next):
			return false
		}
	}
	return declared
}

// isOwnKey tells whether a name only ever holds names of members of the object that
// the bracket at i indexes, which must be a part of the document: the variable of
//
//	for (var k in doc.a.b) … doc.a.b[k]
//	for (var k of Object.keys(doc.a.b)) … doc.a.b[k]
//	Object.keys(doc.a.b).forEach(function (k) { … doc.a.b[k] … })
func (f *function) isOwnKey(name string, bracket int) bool {
	// The chain that ends before the bracket.
	from := bracket - 1
	for f.at(from).kind == tokenName && f.at(from-1).is(".") {
		from -= 2
	}
	if f.param == "" || name == f.param || f.at(from).text != f.param || f.at(from).kind != tokenName || f.isMember(from) || from == bracket-1 || f.hasPatterns {
		return false
	}
	chain := spell(f.tokens[from:bracket])
	is, known := f.ownKeys[name+" "+chain]
	if !known {
		is = f.findOwnKey(name, chain)
		f.ownKeys[name+" "+chain] = is
	}
	return is
}

// findOwnKey is isOwnKey for a name and a chain that are asked of first.
func (f *function) findOwnKey(name, chain string) bool {
	bound := false
	for i := range f.tokens {
		if !f.isVariable(i, name) {
			continue
		}
		before, next := f.at(i-1), f.at(i+1)
		declares := isDeclaring(before)
		bound = bound || declares || f.inParams[i] || next.is("=>")
		switch {
		case declares && next.is("in") && f.chainAt(i+2, chain) && f.at(i+2+2*strings.Count(chain, ".")+1).is(")"):
		case declares && next.is("of") && f.keysBefore(i+2, chain):
		case f.inParams[i] || next.is("=>"):
			if !f.isKeyCallback(i, chain) {
				return false
			}
		case declares, before.is("function"), before.is("++"), before.is("--"), next.is("++"), next.is("--"), next.is("of"), next.is("in"), isAssignment(next):
			return false
		}
	}
	return bound
}

// isKeyCallback tells whether the name at i is the first parameter of the function
// that Object.keys(chain).forEach or its like is given.
func (f *function) isKeyCallback(i int, chain string) bool {
	call := i - 1 // the parenthesis of the call
	if !f.at(i + 1).is("=>") {
		if !f.at(i - 1).is("(") {
			return false
		}
		call = i - 2
		if f.at(call).is("function") {
			call--
		} else if f.at(call).kind == tokenName && f.at(call-1).is("function") {
			return false // a function with a name can be called otherwise
		}
	}
	if !f.at(call).is("(") || f.at(call-1).kind != tokenName || !f.at(call-2).is(".") || !f.at(call-3).is(")") {
		return false
	}
	switch f.at(call - 1).text {
	case "forEach", "map", "filter", "some", "every", "find":
	default:
		return false
	}
	return f.keysBefore(f.tokens[call-3].match-3, chain)
}

// keysBefore tells whether Object.keys(chain) stands at i.
func (f *function) keysBefore(i int, chain string) bool {
	if !f.at(i).is("Object") || !f.at(i+1).is(".") || !f.at(i+2).is("keys") || !f.at(i+3).is("(") || f.isMember(i) {
		return false
	}
	return f.chainAt(i+4, chain) && f.tokens[i+3].match == i+4+2*strings.Count(chain, ".")+1
}

// chainAt tells whether the tokens at i spell a chain of names.
func (f *function) chainAt(i int, chain string) bool {
	end := i + 2*strings.Count(chain, ".") + 1
	return end <= len(f.tokens) && spell(f.tokens[i:end]) == chain
}

// spell joins tokens.
func spell(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(t.text)
	}
	return b.String()
}
