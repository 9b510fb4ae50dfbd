package httpapi

import "github.com/divandb/divan/internal/model"

// unsupported makes the handler of an operation that the spec names unsupported:
// 501 with a reason that says what the service does instead.
func unsupported(reason string) handler {
	return func(*API, *request) error {
		return &model.Error{Kind: model.KindNotImplemented, Name: "not_implemented", Reason: reason}
	}
}

// tempView answers what was removed from the protocol long ago.
func tempView(*API, *request) error {
	return &model.Error{Kind: model.KindGone, Name: "gone", Reason: "Temporary views are not supported: write a design document."}
}

// refused makes the handler of a path that can never mean anything.
func refused(reason string) handler {
	return func(_ *API, rq *request) error {
		if _, err := rq.database(); err != nil {
			return err
		}
		return model.BadRequest(reason)
	}
}
