package coordinator

import (
	"context"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/shardapi"
)

// Task is a row of _active_tasks with the place it belongs to.
type Task struct {
	shardapi.Task
	Node     string
	Database *cluster.Database
}

// Tasks lists the background work of all nodes. Work on a copy whose database is
// gone meanwhile is left out.
func (c *Coordinator) Tasks(ctx context.Context) ([]Task, error) {
	var out []Task
	for _, node := range c.registry.Nodes() {
		if !node.Live {
			continue
		}
		tasks, err := c.nodes.Host(node.Name).Tasks(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			if db, ok := c.registry.ByCopy(t.Copy); ok {
				out = append(out, Task{Task: t, Node: node.Name, Database: db})
			}
		}
	}
	return out, nil
}
