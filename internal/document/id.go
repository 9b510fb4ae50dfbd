package document

import (
	"strings"
	"unicode/utf8"

	"github.com/divandb/divan/internal/model"
)

// MaxIDLength bounds a document id in bytes: ids are keys of the store and stand
// in URLs, whose length is bounded too.
const MaxIDLength = 7168

// The prefixes of ids that may start with an underscore.
const (
	designPrefix = "_design/"
	localPrefix  = "_local/"
)

// illegalID makes the error of ValidateID.
func illegalID(reason string) *model.Error {
	return &model.Error{Kind: model.KindBadRequest, Name: "illegal_docid", Reason: reason}
}

// ValidateID tells whether a document may have this id. In a partitioned database
// it must be "partition:id", except for design and local documents.
func ValidateID(id string, partitioned bool) error {
	if err := validateID(id); err != nil {
		return err
	}
	if !partitioned || strings.HasPrefix(id, designPrefix) || strings.HasPrefix(id, localPrefix) {
		return nil
	}
	partition, rest, ok := strings.Cut(id, ":")
	if !ok {
		return illegalID("Doc id must be of form partition:id")
	}
	if err := ValidatePartition(partition); err != nil {
		return err
	}
	return validateID(rest)
}

// validateID holds the rules of every database.
func validateID(id string) error {
	switch {
	case id == "":
		return illegalID("Document id must not be empty")
	case id == designPrefix || id == localPrefix:
		return illegalID("Illegal document id `" + id + "`")
	case len(id) > MaxIDLength:
		return illegalID("Document id is too long")
	case !utf8.ValidString(id):
		return illegalID("Document id must be valid UTF-8")
	case id[0] == '_' && !strings.HasPrefix(id, designPrefix) && !strings.HasPrefix(id, localPrefix):
		return illegalID("Only reserved document ids may start with underscore.")
	}
	return nil
}

// ValidatePartition tells whether a partition may have this name.
func ValidatePartition(p string) error {
	reason := ""
	switch {
	case p == "":
		reason = "Partition must not be empty"
	case p[0] == '_':
		reason = "Partition must not start with an underscore"
	case len(p) > MaxIDLength:
		reason = "Partition is too long"
	case !utf8.ValidString(p):
		reason = "Partition must be valid UTF-8"
	case strings.Contains(p, ":"):
		reason = "Partition must not contain a colon"
	default:
		return nil
	}
	return &model.Error{Kind: model.KindBadRequest, Name: "illegal_partition", Reason: reason}
}

// ValidateAttachmentName tells whether an attachment may have this name.
func ValidateAttachmentName(name string) error {
	switch {
	case !utf8.ValidString(name):
		return model.BadRequest("Attachment name is not UTF-8 encoded")
	case strings.HasPrefix(name, "_"):
		return model.BadRequest("Attachment name '" + name + "' starts with prohibited character '_'")
	}
	return nil
}
