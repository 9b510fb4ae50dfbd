package selector

import (
	"unicode/utf8"

	"github.com/divandb/divan/internal/model"
)

// badRequest makes an error that the client can mend.
func badRequest(name, reason string) *model.Error {
	return &model.Error{Kind: model.KindBadRequest, Name: name, Reason: reason}
}

// errTooLarge is the answer to a selector over a limit.
func errTooLarge(reason string) *model.Error {
	return &model.Error{Kind: model.KindTooLarge, Name: "too_large", Reason: reason}
}

// badArg is the answer to an operator with an argument it cannot take.
func badArg(op string, arg []byte) *model.Error {
	return badRequest("bad_arg", "Bad argument for operator "+op+": "+excerpt(arg))
}

// excerpt quotes what the client sent, cut to a length fit for an answer.
func excerpt(v []byte) string {
	const most = 200
	if len(v) <= most {
		return string(v)
	}
	end := most
	for end > 0 && !utf8.RuneStart(v[end]) {
		end--
	}
	return string(v[:end]) + "…"
}
