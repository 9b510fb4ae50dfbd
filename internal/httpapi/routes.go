package httpapi

// routeTable lists every route with the right it needs. It is the one place to
// look for what the server answers, and the one place where a right is given; the
// routes that turn documents into other things than JSON stand with their handlers.
func routeTable() []route {
	return append([]route{
		// The server.
		{"GET", "/", public, getRoot},
		{"GET", "/_up", public, getUp},
		{"GET", "/_all_dbs", serverAdmin, getAllDBs},
		{"GET,POST", "/_dbs_info", serverAdmin, dbsInfo},
		{"GET", "/_uuids", knownUser, getUUIDs},
		{"GET", "/_membership", serverAdmin, getMembership},
		{"POST", "/_session", public, postSession}, // it is itself the check of credentials
		{"GET", "/_session", public, getSession},
		{"DELETE", "/_session", public, deleteSession},
		{"GET", "/_active_tasks", serverAdmin, getActiveTasks},
		{"GET", "/_db_updates", dbUpdates, dbUpdatesFeed},
		{"POST", "/_restart", serverAdmin, unsupported("A restart is the operator's: stop the process and start it again; nothing is lost by it.")},
		{"GET", "/_stats", serverAdmin, unsupported("Cluster-wide statistics are not offered.")},

		// The account: keys, what browsers may do, hosts, administrators.
		{"POST", "/_api/v2/api_keys", serverAdmin, postAPIKey},
		{"GET", "/_api/v2/user/config/cors", serverAdmin, getCORS},
		{"PUT", "/_api/v2/user/config/cors", serverAdmin, putCORS},
		{"GET", "/_api/v2/user/virtual_hosts", serverAdmin, getVirtualHosts},
		{"POST", "/_api/v2/user/virtual_hosts", serverAdmin, postVirtualHost},
		{"DELETE", "/_api/v2/user/virtual_hosts", serverAdmin, deleteVirtualHost},
		{"GET", "/_api/v2/db/{db}/_security", dbSecurity, getSecurity},
		{"PUT", "/_api/v2/db/{db}/_security", dbAdmin, putSecurity},
		{"GET", "/_node/{node}/_config/admins", serverAdmin, getAdmins},
		{"GET", "/_node/{node}/_config/admins/{name}", serverAdmin, getAdmin},
		{"PUT", "/_node/{node}/_config/admins/{name}", serverAdmin, putAdmin},
		{"DELETE", "/_node/{node}/_config/admins/{name}", serverAdmin, deleteAdmin},

		// A database.
		{"GET", "/{db}", dbInfo, getDatabase},
		{"PUT", "/{db}", serverAdmin, putDatabase},
		{"DELETE", "/{db}", serverAdmin, deleteDatabase},
		{"POST", "/{db}", dbWriter, postDocument},
		{"GET,POST", "/{db}/_all_docs", dbReader, allDocs},
		{"POST", "/{db}/_all_docs/queries", dbReader, allDocsQueries},
		{"GET,POST", "/{db}/_design_docs", dbDesign, designDocs},
		{"POST", "/{db}/_design_docs/queries", dbDesign, designDocsQueries},
		{"GET,POST", "/{db}/_local_docs", dbAdmin, localDocs},
		{"POST", "/{db}/_local_docs/queries", dbAdmin, localDocsQueries},
		{"GET,POST", "/{db}/_changes", dbReader, changesFeed},
		{"POST", "/{db}/_bulk_docs", dbWriter, bulkDocs},
		{"POST", "/{db}/_bulk_get", dbReader, bulkGet},
		{"POST", "/{db}/_missing_revs", dbInfo, missingRevs},
		{"POST", "/{db}/_revs_diff", dbInfo, revsDiff},
		{"GET", "/{db}/_security", dbSecurity, getSecurity},
		{"PUT", "/{db}/_security", dbAdmin, putSecurity},
		{"GET", "/{db}/_revs_limit", dbReader, getRevsLimit},
		{"PUT", "/{db}/_revs_limit", dbAdmin, putRevsLimit},
		{"POST", "/{db}/_ensure_full_commit", dbCommit, ensureFullCommit},
		{"GET", "/{db}/_shards", dbShards, getShards},
		{"GET", "/{db}/_shards/{doc...}", dbShards, getDocShard},
		{"POST", "/{db}/_sync_shards", dbAdmin, syncShards},
		{"GET", "/{db}/_partition/{partition}", dbReader, partitionInfo},
		{"GET,POST", "/{db}/_partition/{partition}/_all_docs", dbReader, partitionAllDocs},
		{"GET,POST", "/{db}/_partition/{partition}/_design/{ddoc}/_view/{view}", dbReader, partitionView},
		{"GET", "/{db}/_partition", dbReader, partitionElse},
		{"GET,POST", "/{db}/_partition/{rest...}", dbReader, partitionElse},

		// What the spec names unsupported. Compaction and the clean-up of indexes
		// run by themselves.
		{"POST", "/{db}/_temp_view", dbReader, tempView},
		{"POST", "/{db}/_purge", dbAdmin, unsupported("Purging is not offered: deleted documents stay as small tombstones so that deletions replicate.")},
		{"GET,PUT", "/{db}/_purged_infos_limit", dbAdmin, unsupported("Purging is not offered, so there is no purge history to limit.")},
		{"POST", "/{db}/_compact", dbAdmin, unsupported("Compaction is automatic; /_active_tasks shows it at work.")},
		{"POST", "/{db}/_compact/{ddoc}", dbAdmin, unsupported("Compaction is automatic; /_active_tasks shows it at work.")},
		{"POST", "/{db}/_view_cleanup", dbAdmin, unsupported("Indexes that no design document defines any more are removed automatically.")},

		// Local documents: no history, not replicated.
		{"GET,PUT,DELETE,COPY", "/{db}/_local", dbLocalRead, refused("Invalid _local document id.")},
		{"GET", "/{db}/_local/{local}", dbLocalRead, getLocal},
		{"PUT", "/{db}/_local/{local}", dbLocalWrite, putLocal},
		{"DELETE", "/{db}/_local/{local}", dbLocalWrite, deleteLocal},
		{"COPY", "/{db}/_local/{local}", dbReadWrite, copyLocal},
		{"GET,PUT,DELETE", "/{db}/_local/{local}/{att...}", dbLocalRead, localAttachment},

		// Design documents.
		{"GET", "/{db}/_design/{ddoc}", dbDesign, getDocument},
		{"PUT", "/{db}/_design/{ddoc}", dbAdmin, putDocument},
		{"DELETE", "/{db}/_design/{ddoc}", dbAdmin, deleteDocument},
		{"COPY", "/{db}/_design/{ddoc}", dbAdmin, copyDocument},
		{"GET,POST", "/{db}/_design/{ddoc}/_view/{view}", dbReader, getView},
		{"POST", "/{db}/_design/{ddoc}/_view/{view}/queries", dbReader, viewQueries},
		{"GET", "/{db}/_design/{ddoc}/_info", dbReader, designInfo},
		{"GET", "/{db}/_design/{ddoc}/{att...}", dbDesign, getAttachment},
		{"PUT", "/{db}/_design/{ddoc}/{att...}", dbAdmin, putAttachment},
		{"DELETE", "/{db}/_design/{ddoc}/{att...}", dbAdmin, deleteAttachment},

		// Documents.
		{"GET", "/{db}/{doc}", dbReader, getDocument},
		{"PUT", "/{db}/{doc}", dbWriter, putDocument},
		{"POST", "/{db}/{doc}", dbWriter, postDocumentForm},
		{"DELETE", "/{db}/{doc}", dbWriter, deleteDocument},
		{"COPY", "/{db}/{doc}", dbReadWrite, copyDocument},
		{"GET", "/{db}/{doc}/{att...}", dbReader, getAttachment},
		{"PUT", "/{db}/{doc}/{att...}", dbWriter, putAttachment},
		{"DELETE", "/{db}/{doc}/{att...}", dbWriter, deleteAttachment},
	}, renderRoutes()...)
}
