package bench

import (
	"context"
	"fmt"
	"time"
)

// workload is one row of the table. prepare is not measured; run is.
type workload interface {
	prepare(ctx context.Context, s *session) error
	run(ctx context.Context, s *session) (tally, error)
}

// entry names a workload.
type entry struct {
	name  string // as given to --workloads, and the key of the baseline
	title string // as printed
	unit  string // what one operation is
	load  workload
	// extra workloads run only when asked for by name or by their own flag.
	extra bool
}

// entries gives all workloads in the order they run: those that only read come
// before those that change the shared database.
func entries(o Options) []entry {
	n := o.Docs
	some := func(part int) int { return max(1, n/part) }
	return []entry{
		{name: "memory", title: "memory, idle", unit: "", load: idleMemory{}},
		{name: "bulk", title: "bulk insert", unit: "docs", load: &bulkInsert{}},
		{name: "disk", title: "disk", unit: "", load: diskUse{}},
		{name: "get", title: "GET", unit: "", load: getRandom{ops: n}},
		{name: "all_docs", title: "_all_docs?include_docs", unit: "rows", load: fullStream{view: "_all_docs?include_docs=true", mark: rowOfAllDocs}},
		{name: "changes", title: "_changes", unit: "rows", load: fullStream{view: "_changes", mark: rowOfChanges}},
		{name: "changes_docs", title: "_changes?include_docs", unit: "rows", load: fullStream{view: "_changes?include_docs=true", mark: rowOfChanges}},
		{name: "update", title: "update", unit: "", load: update{ops: some(5)}},
		{name: "put1", title: "PUT, 1 connection", unit: "", load: put{connections: 1, ops: some(25)}},
		{name: "put16", title: "PUT, 16 connections", unit: "", load: put{connections: 16, ops: some(5)}},
		{name: "put64", title: "PUT, 64 connections", unit: "", load: put{connections: 64, ops: some(5)}},
		{name: "att_put", title: "attachment PUT 1 MiB", unit: "MB", load: attachmentPut{count: some(250)}},
		{name: "att_get", title: "attachment GET 1 MiB", unit: "MB", load: attachmentGet{count: some(250), ops: some(100)}},
		{name: "databases", title: "many databases", unit: "", load: manyDatabases{count: some(250)}},
		{name: "fanout", title: "fan-out", unit: "events", load: &fanOut{feeds: min(100, n), writes: some(250)}},
		{name: "storm", title: "conflict storm", unit: "", load: conflictStorm{ops: some(10)}},
		{name: "view_build", title: "view build", unit: "docs", load: viewBuild{viewPurpose, n}},
		{name: "view_range", title: "view range", unit: "", load: viewQuery{viewPurpose, n, 16, n, rangeQuery}},
		{name: "view_reduce", title: "view reduce all", unit: "", load: viewQuery{viewPurpose, n, 4, some(5), reduceQuery}},
		{name: "view_group", title: "view group_level=1", unit: "", load: viewQuery{viewPurpose, n, 4, some(10), groupQuery}},
		{name: "view_change", title: "view after one change", unit: "", load: viewAfterChange{n, some(50)}},
		{name: "large_all_docs", title: "_all_docs, large", unit: "rows", load: largeStream{view: "_all_docs", mark: rowOfAllDocs}, extra: true},
		{name: "large_changes", title: "_changes, large", unit: "rows", load: largeStream{view: "_changes", mark: rowOfChanges}, extra: true},
		{name: "large_view_build", title: "view build, large", unit: "docs", load: viewBuild{"large_views", o.LargeDocs}, extra: true},
		{name: "large_view_range", title: "view range, large", unit: "", load: viewQuery{"large_views", o.LargeDocs, 16, n, rangeQuery}, extra: true},
		{name: "large_view_reduce", title: "view reduce all, large", unit: "", load: viewQuery{"large_views", o.LargeDocs, 4, some(5), reduceQuery}, extra: true},
		{name: "large_view_group", title: "view group_level=1, large", unit: "", load: viewQuery{"large_views", o.LargeDocs, 4, some(10), groupQuery}, extra: true},
	}
}

// chosen gives the workloads that o asks for.
func chosen(o Options) ([]entry, error) {
	all := entries(o)
	var list []entry
	if len(o.Workloads) == 0 {
		for _, e := range all {
			if !e.extra || o.Large {
				list = append(list, e)
			}
		}
		return list, nil
	}
	wanted := map[string]bool{}
	for _, name := range o.Workloads {
		wanted[name] = true
	}
	for _, e := range all {
		if wanted[e.name] || (e.extra && o.Large) {
			list = append(list, e)
		}
		delete(wanted, e.name)
	}
	for name := range wanted {
		return nil, fmt.Errorf("no workload %q; there are: %s", name, workloadNames())
	}
	return list, nil
}

// workloadNames lists all names for the help text.
func workloadNames() string {
	var names string
	for i, e := range entries(Options{}) {
		if i > 0 {
			names += ","
		}
		names += e.name
	}
	return names
}

// noPreparation is embedded by workloads that need none.
type noPreparation struct{}

func (noPreparation) prepare(context.Context, *session) error { return nil }

// measured runs a workload and puts CPU time and memory around it. When the
// server's pid is known, it then waits until the server is quiet and counts
// that CPU too: what a write leaves behind for the background (compaction, a
// garbage collection) is part of its price and must not be billed to the next
// row.
func (s *session) measured(ctx context.Context, e entry) (Result, error) {
	r := Result{Workload: e.name, Title: e.title, Unit: e.unit}
	ctx, cancel := context.WithTimeout(ctx, 20*s.options.Duration+5*time.Minute)
	defer cancel()
	if err := e.load.prepare(ctx, s); err != nil {
		return r, err
	}
	pid := s.options.PID
	var before usage
	if pid > 0 {
		if _, err := settle(ctx, pid); err != nil {
			return r, err
		}
		r.PeakSinceStart = !resetPeak(pid)
		var err error
		if before, err = treeUsage(pid); err != nil {
			return r, err
		}
	}
	t, err := e.load.run(ctx, s)
	if err != nil {
		return r, err
	}
	r.take(t)
	if pid > 0 {
		after, err := settle(ctx, pid)
		if err != nil {
			return r, err
		}
		r.PeakRSS = after.peakRSS
		if t.ops > 0 {
			cpu := float64((after.cpu - before.cpu).Microseconds()) / float64(t.ops)
			r.CPUMicros = &cpu
		}
	}
	r.compare()
	return r, nil
}

// How long the bench waits for a server to become quiet, and what quiet is.
const (
	settleStep  = 250 * time.Millisecond
	settleTicks = 2
	settleLimit = 3 * time.Second
)

// settle waits until the process tree uses almost no CPU, for a few seconds at
// most, and gives its usage then.
func settle(ctx context.Context, pid int) (usage, error) {
	last, err := treeUsage(pid)
	if err != nil {
		return last, err
	}
	for end := time.Now().Add(settleLimit); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-time.After(settleStep):
		}
		now, err := treeUsage(pid)
		if err != nil {
			return now, err
		}
		quiet := now.cpu-last.cpu <= settleTicks*tick
		last = now
		if quiet {
			break
		}
	}
	return last, nil
}
