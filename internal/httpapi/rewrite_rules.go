package httpapi

import (
	"net/url"
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// maxRules bounds how many rules a request is held against.
const maxRules = 10_000

// bindings are what the variables of a rule stand for: JSON values.
type bindings map[string][]byte

// applyRules finds the first rule that fits and gives the path it leads to,
// relative to the design document, and the query.
func applyRules(rules []byte, method string, path []string, query url.Values) ([]string, url.Values, error) {
	n := 0
	for rule := range rawjson.Elements(rules) {
		if n++; n > maxRules {
			break
		}
		if rawjson.KindOf(rule) != rawjson.KindObject {
			return nil, nil, rewriteError(model.KindBadRequest, "A rewrite rule must be an object.")
		}
		if m := ruleText(rule, "method", "*"); m != "*" && !strings.EqualFold(m, method) && !(method == "HEAD" && strings.EqualFold(m, "GET")) {
			continue
		}
		bound, rest, ok := bindPath(splitRule(ruleText(rule, "from", "*")), path)
		if !ok {
			continue
		}
		for name, values := range query {
			if _, ok := bound[name]; !ok && len(values) > 0 {
				bound[name] = rawjson.AppendString(nil, strings.ToValidUTF8(values[0], "\uFFFD"))
			}
		}
		to := ruleText(rule, "to", "")
		if to == "" {
			return nil, nil, rewriteError(model.KindInternal, "Invalid rewrite target.")
		}
		target, raw, _ := strings.Cut(to, "?")
		args := url.Values{}
		for name, value := range bound {
			args.Set(name, argument(value))
		}
		if more, err := url.ParseQuery(raw); err == nil {
			for name, values := range more {
				args.Set(name, argument(substitute(rawjson.AppendString(nil, strings.ToValidUTF8(values[0], "\uFFFD")), bound)))
			}
		}
		if q, ok := rawjson.Get(rule, "query"); ok && rawjson.KindOf(q) == rawjson.KindObject {
			for name, value := range rawjson.Members(q) {
				args.Set(string(name), queryArgument(string(name), substitute(value, bound)))
			}
		}
		return fillPath(splitRule(target), bound, rest), args, nil
	}
	return nil, nil, rewriteError(model.KindNotFound, "Invalid path.")
}

// queryArgument is argument, but the keys of views are JSON there.
func queryArgument(name string, value []byte) string {
	if jsonKeys[name] || name == "keys" {
		return string(value)
	}
	return argument(value)
}

// ruleText gives a member that is text.
func ruleText(rule []byte, name, def string) string {
	v, ok := rawjson.Get(rule, name)
	if !ok {
		return def
	}
	if s, ok := rawjson.String(v); ok {
		return s
	}
	return def
}

// splitRule cuts a path of a rule into segments.
func splitRule(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// variable gives the name in :name and <name>.
func variable(seg string) (string, bool) {
	if name, ok := strings.CutPrefix(seg, ":"); ok {
		return name, true
	}
	if len(seg) > 2 && seg[0] == '<' && seg[len(seg)-1] == '>' {
		return seg[1 : len(seg)-1], true
	}
	return "", false
}

// bindPath holds a path against the from of a rule. rest is what * stands for.
func bindPath(from, path []string) (bound bindings, rest []string, ok bool) {
	bound = bindings{}
	for i, seg := range from {
		if seg == "*" {
			return bound, path[i:], true
		}
		if i >= len(path) {
			return nil, nil, false
		}
		if name, ok := variable(seg); ok {
			bound[name] = rawjson.AppendString(nil, strings.ToValidUTF8(path[i], "\uFFFD"))
			continue
		}
		if seg != path[i] {
			return nil, nil, false
		}
	}
	return bound, nil, len(path) == len(from)
}

// fillPath puts the bindings into the to of a rule.
func fillPath(to []string, bound bindings, rest []string) []string {
	var out []string
	for _, seg := range to {
		if seg == "*" {
			out = append(out, rest...)
			continue
		}
		if name, ok := variable(seg); ok {
			if value, ok := bound[name]; ok {
				out = append(out, argument(value))
				continue
			}
		}
		out = append(out, seg)
	}
	return out
}

// substitute puts the bindings into a value of a rule's query: text that is a
// variable becomes what it stands for, also inside arrays and objects.
func substitute(value []byte, bound bindings) []byte {
	switch rawjson.KindOf(value) {
	case rawjson.KindString:
		text, _ := rawjson.String(value)
		if name, ok := variable(text); ok {
			if v, ok := bound[name]; ok {
				return v
			}
		}
	case rawjson.KindArray:
		out := []byte{'['}
		for v := range rawjson.Elements(value) {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, substitute(v, bound)...)
		}
		return append(out, ']')
	case rawjson.KindObject:
		out := []byte{'{'}
		for name, v := range rawjson.Members(value) {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = rawjson.AppendString(out, string(name))
			out = append(append(out, ':'), substitute(v, bound)...)
		}
		return append(out, '}')
	}
	return value
}
