package design

// Options of Parse.
type Options struct {
	Partitioned bool // the database is: views are partitioned unless they say otherwise
}

// Parse takes a design document apart. body is normalised JSON without underscore
// members, as the store has it. Errors are *model.Error (invalid_design_doc).
func Parse(id string, body []byte, o Options) (*Doc, error) { panic("not there yet") }

// Functions lists everything that must compile, views.lib not included.
func (d *Doc) Functions() []Function { panic("not there yet") }
