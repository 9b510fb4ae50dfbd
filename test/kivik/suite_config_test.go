package kivik_test

import (
	"net/http"

	kivik "github.com/go-kivik/kivik/v4"
	"github.com/go-kivik/kivik/v4/kiviktest/kt"
)

// expectations tell kivik's suite what this server answers. They start from
// kivik's own expectations of CouchDB 3.3; everything that differs from those is
// in deviations, with its reason.
func expectations() kt.SuiteConfig {
	config := kt.SuiteConfig{
		"AllDBs/RW/NoAuth.status": http.StatusUnauthorized,
		"AllDBs/NoAuth.status":    http.StatusUnauthorized,

		"CreateDB/RW/NoAuth.status":            http.StatusUnauthorized,
		"CreateDB/RW/Admin/Recreate.status":    http.StatusPreconditionFailed,
		"CreateDoc/RW/NoAuth/WithID.status":    http.StatusUnauthorized,
		"CreateDoc/RW/NoAuth/WithoutID.status": http.StatusUnauthorized,

		"DestroyDB/RW/NoAuth.status":              http.StatusUnauthorized,
		"DestroyDB/RW/Admin/NonExistantDB.status": http.StatusNotFound,

		"AllDocs.databases":                    []string{"chicken", "_duck"},
		"AllDocs/Admin/chicken.status":         http.StatusNotFound,
		"AllDocs/Admin/_duck.status":           http.StatusNotFound,
		"AllDocs/NoAuth/_duck.status":          http.StatusUnauthorized,
		"AllDocs/RW/NoAuth/WithDocs.status":    http.StatusUnauthorized,
		"AllDocs/RW/NoAuth/WithoutDocs.status": http.StatusUnauthorized,

		"DBExists.databases":            []string{"_users", "chicken", "_duck"},
		"DBExists/Admin/_users.exists":  true,
		"DBExists/Admin/chicken.exists": false,
		"DBExists/Admin/_duck.exists":   false,
		"DBExists/NoAuth/_users.status": http.StatusUnauthorized,
		"DBExists/NoAuth/_duck.status":  http.StatusUnauthorized,
		"DBExists/RW/Admin.exists":      true,
		"DBExists/RW/NoAuth.status":     http.StatusUnauthorized,

		"DBsStats/NoAuth.status":    http.StatusUnauthorized,
		"AllDBsStats/NoAuth.status": http.StatusUnauthorized,

		"Get/RW/Admin/bogus.status":        http.StatusNotFound,
		"Get/RW/NoAuth/bogus.status":       http.StatusUnauthorized,
		"Get/RW/NoAuth/_design/foo.status": http.StatusUnauthorized,
		"Get/RW/NoAuth/bob.status":         http.StatusUnauthorized,
		"Get/RW/NoAuth/_local/foo.status":  http.StatusUnauthorized,

		"GetRev/RW/Admin/bogus.status":        http.StatusNotFound,
		"GetRev/RW/NoAuth/bogus.status":       http.StatusUnauthorized,
		"GetRev/RW/NoAuth/_local/foo.status":  http.StatusUnauthorized,
		"GetRev/RW/NoAuth/_design/foo.status": http.StatusUnauthorized,
		"GetRev/RW/NoAuth/bob.status":         http.StatusUnauthorized,

		"Flush.databases":                    []string{"_users", "chicken", "_duck"},
		"Flush/Admin/chicken/DoFlush.status": http.StatusNotFound,
		"Flush/Admin/_duck/DoFlush.status":   http.StatusNotFound,
		"Flush/NoAuth/_duck/DoFlush.status":  http.StatusUnauthorized,
		"Flush/NoAuth/_users/DoFlush.status": http.StatusUnauthorized,

		"Delete/RW/Admin/MissingDoc.status":        http.StatusNotFound,
		"Delete/RW/Admin/InvalidRevFormat.status":  http.StatusBadRequest,
		"Delete/RW/Admin/WrongRev.status":          http.StatusConflict,
		"Delete/RW/NoAuth/MissingDoc.status":       http.StatusUnauthorized,
		"Delete/RW/NoAuth/InvalidRevFormat.status": http.StatusUnauthorized,
		"Delete/RW/NoAuth/WrongRev.status":         http.StatusUnauthorized,
		"Delete/RW/NoAuth/DesignDoc.status":        http.StatusUnauthorized,
		"Delete/RW/NoAuth/ValidRev.status":         http.StatusUnauthorized,
		"Delete/RW/NoAuth/Local.status":            http.StatusUnauthorized,

		"Stats.databases":            []string{"_users", "chicken", "_duck"},
		"Stats/Admin/chicken.status": http.StatusNotFound,
		"Stats/Admin/_duck.status":   http.StatusNotFound,
		"Stats/NoAuth/_duck.status":  http.StatusUnauthorized,
		"Stats/NoAuth/_users.status": http.StatusUnauthorized,
		"Stats/RW/NoAuth.status":     http.StatusUnauthorized,

		"Compact/RW/NoAuth.status":     http.StatusUnauthorized,
		"ViewCleanup/RW/NoAuth.status": http.StatusUnauthorized,
		"DBUpdates/RW/NoAuth.status":   http.StatusUnauthorized,

		"BulkDocs/RW/Admin/Mix/Conflict.status": http.StatusConflict,
		"BulkDocs/RW/NoAuth/Mix.status":         http.StatusUnauthorized,
		"BulkDocs/RW/NoAuth/Delete.status":      http.StatusUnauthorized,
		"BulkDocs/RW/NoAuth/Update.status":      http.StatusUnauthorized,
		"BulkDocs/RW/NoAuth/Create.status":      http.StatusUnauthorized,
		"BulkDocs/RW/NoAuth/NonJSON.status":     http.StatusUnauthorized,

		"GetAttachment/RW/Admin/foo/NotFound.status":         http.StatusNotFound,
		"GetAttachment/RW/NoAuth/foo/NotFound.status":        http.StatusUnauthorized,
		"GetAttachment/RW/NoAuth/_design/foo/foo.txt.status": http.StatusUnauthorized,
		"GetAttachment/RW/NoAuth/foo/foo.txt.status":         http.StatusUnauthorized,

		"GetAttachmentMeta/RW/Admin/foo/NotFound.status":         http.StatusNotFound,
		"GetAttachmentMeta/RW/NoAuth/foo/NotFound.status":        http.StatusUnauthorized,
		"GetAttachmentMeta/RW/NoAuth/_design/foo/foo.txt.status": http.StatusUnauthorized,
		"GetAttachmentMeta/RW/NoAuth/foo/foo.txt.status":         http.StatusUnauthorized,

		"PutAttachment/RW/Admin/Conflict.status":         http.StatusConflict,
		"PutAttachment/RW/NoAuth/Conflict.status":        http.StatusUnauthorized,
		"PutAttachment/RW/NoAuth/UpdateDesignDoc.status": http.StatusUnauthorized,
		"PutAttachment/RW/NoAuth/CreateDesignDoc.status": http.StatusUnauthorized,
		"PutAttachment/RW/NoAuth/Update.status":          http.StatusUnauthorized,
		"PutAttachment/RW/NoAuth/Create.status":          http.StatusUnauthorized,

		"DeleteAttachment/RW/Admin/NotFound.status":   http.StatusNotFound,
		"DeleteAttachment/RW/NoAuth/NotFound.status":  http.StatusUnauthorized,
		"DeleteAttachment/RW/Admin/NoDoc.status":      http.StatusConflict,
		"DeleteAttachment/RW/NoAuth/NoDoc.status":     http.StatusUnauthorized,
		"DeleteAttachment/RW/NoAuth/DesignDoc.status": http.StatusUnauthorized,
		"DeleteAttachment/RW/NoAuth/foo.txt.status":   http.StatusUnauthorized,

		"Put/RW/Admin/LeadingUnderscoreInID.status":  http.StatusBadRequest,
		"Put/RW/Admin/Conflict.status":               http.StatusConflict,
		"Put/RW/NoAuth/LeadingUnderscoreInID.status": http.StatusUnauthorized,
		"Put/RW/NoAuth/DesignDoc.status":             http.StatusUnauthorized,
		"Put/RW/NoAuth/Conflict.status":              http.StatusUnauthorized,
		"Put/RW/NoAuth/Local.status":                 http.StatusUnauthorized,
		"Put/RW/NoAuth/HeavilyEscapedID.status":      http.StatusUnauthorized,
		"Put/RW/NoAuth/SlashInID.status":             http.StatusUnauthorized,
		"Put/RW/NoAuth/Create.status":                http.StatusUnauthorized,

		"Query/RW/Admin/WithoutDocs/ScanDoc.status": http.StatusBadRequest,
		"Query/RW/NoAuth/WithDocs.status":           http.StatusUnauthorized,
		"Query/RW/NoAuth/WithoutDocs.status":        http.StatusUnauthorized,

		"Changes/Continuous/RW/NoAuth.status": http.StatusUnauthorized,
		"Changes/Normal/RW/NoAuth.status":     http.StatusUnauthorized,
		"Changes/Continuous.options": kivik.Params(map[string]any{
			"feed":      "continuous",
			"since":     "now",
			"heartbeat": 6000,
		}),

		"Copy/RW/NoAuth/_design/foo.status": http.StatusUnauthorized,
		"Copy/RW/NoAuth/foo.status":         http.StatusUnauthorized,
		"Copy/RW/NoAuth/_local/foo.status":  http.StatusUnauthorized,
	}
	for _, deviation := range deviations {
		for key, value := range deviation.answers {
			config[key] = value
		}
	}
	return config
}

// deviation is one way in which this server is not CouchDB 3.3, and the keys of
// kivik's configuration that say so.
type deviation struct {
	reason  string
	answers kt.SuiteConfig
}

// deviations is the whole list; nothing else is left out or changed.
var deviations = []deviation{
	{
		reason: "the service speaks the protocol of CouchDB 3.5.2 and names itself as the vendor",
		answers: kt.SuiteConfig{
			"Version.version": `^3\.5\.2$`,
			"Version.vendor":  `^Divan$`,
		},
	},
	{
		reason: "database updates are kept by the server itself, not in a database _global_changes",
		answers: kt.SuiteConfig{
			"AllDBs.expected": []string{"_replicator", "_users"},
		},
	},
	{
		reason: "who is not known gets 401 before anything is looked up, so that nobody can find out " +
			"which databases exist; CouchDB tells a stranger 404 for a missing database",
		answers: kt.SuiteConfig{
			"AllDocs/NoAuth/chicken.status":       http.StatusUnauthorized,
			"DBExists/NoAuth/chicken.status":      http.StatusUnauthorized,
			"Flush/NoAuth/chicken/DoFlush.status": http.StatusUnauthorized,
			"Stats/NoAuth/chicken.status":         http.StatusUnauthorized,
		},
	},
	{
		reason: "compaction and the clean-up of indexes are automatic, their requests are answered 501",
		answers: kt.SuiteConfig{
			"Compact/RW/Admin.status":     http.StatusNotImplemented,
			"ViewCleanup/RW/Admin.status": http.StatusNotImplemented,
		},
	},
	{
		reason:  "declarative queries and their indexes are not served yet",
		answers: kt.SuiteConfig{"Find.skip": true, "Explain.skip": true, "CreateIndex.skip": true, "GetIndexes.skip": true, "DeleteIndex.skip": true},
	},
	{
		reason:  "security objects are not served yet",
		answers: kt.SuiteConfig{"Security.skip": true, "SetSecurity.skip": true},
	},
	{
		reason:  "the server does not replicate by itself yet",
		answers: kt.SuiteConfig{"Replicate.skip": true, "GetReplications.skip": true},
	},
}
