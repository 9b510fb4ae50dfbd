package jsvm

import (
	"regexp"
	"strings"
)

// canChange finds what a function needs to change an object, or to hide that it
// does: methods that change what they are called on, names that lead to them,
// assignments to anything but a plain name, and calls of what has no plain name.
// Found in a string it counts too: being wrong in this direction costs some
// microseconds per document.
var canChange = regexp.MustCompile(strings.Join([]string{
	`\b(?:push|pop|shift|unshift|splice|sort|reverse|fill|copyWithin|add|clear|set\w*|get|toJSON|next)\b`,
	`\b(?:call|apply|bind|eval|import|require|delete|with|this|arguments|class|yield|async|await)\b`,
	`\b(?:Object|Reflect|Proxy|Symbol|Function|DataView|(?:Int|Uint|Float|Big)\w*Array|ArrayBuffer|globalThis)\b`,
	`\b(?:constructor|prototype|__\w+__)\b`,
	"[`\\\\]",                 // templates call functions, escapes hide names
	`/\*|//`,                  // comments hide what stands beside what
	`[\])]\s*\(|\?\.\s*[(\[]`, // f()(), a[b](), a?.()
	`(?:\.\s*[\w$]+|[)\]}])\s*` + // doc.x = …, doc[x] += …, [doc.x] = …
		`(?:\*\*|<<|>>>?|&&|\|\||\?\?|[-+*/%&|^])?=(?:[^=>]|$)`,
	`[.)\]]\s*[\w$]*\s*(?:\+\+|--)`,         // doc.x++
	`(?:\+\+|--)\s*(?:\(|[\w$]+\s*[.\[(?])`, // ++doc.x
}, "|"))

// A loop over anything but a new variable or a counter can assign to a member:
// for (doc.x in …).
var (
	anyFor   = regexp.MustCompile(`\bfor\s*\(`)
	plainFor = regexp.MustCompile(`\bfor\s*\(\s*(?:(?:var|let|const)\s|;)`)
)

// wholeLineComment is a comment that has its line for itself.
var wholeLineComment = regexp.MustCompile(`(?m)^[ \t]*//.*$`)

// onlyReads says of the text of a function that nothing in it can change an object:
// neither its document nor what it emitted. False says nothing.
func onlyReads(fn string) bool {
	for _, c := range fn {
		// Characters beyond ASCII can end a line or be part of a name.
		if c >= 0x80 || c == '\r' {
			return false
		}
	}
	if !strings.Contains(fn, "/*") && !strings.ContainsAny(fn, "`\\") {
		fn = wholeLineComment.ReplaceAllString(fn, "")
	}
	return !canChange.MatchString(fn) &&
		len(anyFor.FindAllStringIndex(fn, -1)) == len(plainFor.FindAllStringIndex(fn, -1))
}
