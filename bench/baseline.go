package bench

// baselineRow is a row of couchdb-baseline.md: what CouchDB 3.5.2 costs.
type baselineRow struct {
	title string  // the first column of the table
	rate  float64 // operations per second; 0 where the row has no rate
	p50   float64 // milliseconds; 0 where the row has none
	cpu   float64 // µs of server CPU per operation; 0 where the row has none
}

// baseline holds the rows of couchdb-baseline.md that the bench can measure, by
// the name of the workload. A test compares them with the file, so neither can
// change alone.
var baseline = map[string]baselineRow{
	"bulk":         {title: "bulk insert", rate: 3807, p50: 573, cpu: 445},
	"get":          {title: "GET", rate: 1504, p50: 9.7, cpu: 1153},
	"all_docs":     {title: "`_all_docs?include_docs`", rate: 8033, cpu: 170},
	"changes":      {title: "`_changes`", rate: 30030, cpu: 54},
	"changes_docs": {title: "`_changes?include_docs`", rate: 8405, cpu: 184},
	"update":       {title: "update", rate: 337, p50: 46, cpu: 5269},
	"put1":         {title: "PUT, 1 connection", rate: 261, p50: 3.6, cpu: 6270},
	"put16":        {title: "PUT, 16 connections", rate: 559, p50: 27.5, cpu: 3180},
	"put64":        {title: "PUT, 64 connections", rate: 843, p50: 71.5, cpu: 2001},
	"att_put":      {title: "attachment PUT 1 MiB", rate: 69, p50: 60, cpu: 24748},
	"att_get":      {title: "attachment GET 1 MiB", rate: 86, p50: 47, cpu: 16963},
	"databases":    {title: "many databases", rate: 218, p50: 19, cpu: 7980},
	"fanout":       {title: "fan-out", rate: 4584, p50: 125, cpu: 375},
	"view_build":   {title: "view build", rate: 3494, cpu: 520},
	"view_range":   {title: "view range", rate: 777, p50: 19, cpu: 2187},
	"view_reduce":  {title: "view reduce all", rate: 490, p50: 7.8, cpu: 3630},
	"view_group":   {title: "view group_level=1", rate: 101, p50: 39, cpu: 17644},
	"view_change":  {title: "view after one change", rate: 89, p50: 6.0, cpu: 16833},
	"storm":        {title: "conflict storm", rate: 376, p50: 42, cpu: 4461},
}

// The rows of couchdb-baseline.md that are sizes and not rates.
const (
	baselineDiskPerDoc = 1732      // bytes per document after the bulk insert
	baselineIdleRSS    = 107 << 20 // memory after start
	baselinePeakRSS    = 465 << 20 // memory at its peak
)
