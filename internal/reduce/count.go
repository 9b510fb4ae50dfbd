package reduce

import (
	"encoding/binary"
	"strconv"
)

// count is _count: the number of rows. Its state is that number as a varint.
type count struct{ n uint64 }

func (c *count) reset() { c.n = 0 }

func (c *count) addRows(rows []Row) { c.n += uint64(len(rows)) }

func (c *count) addState(s []byte) error {
	n, size := binary.Uvarint(s)
	if size <= 0 || size != len(s) {
		return errState
	}
	c.n += n
	return nil
}

func (c *count) appendState(dst []byte) []byte { return binary.AppendUvarint(dst, c.n) }

// finalCount shows a state of _count.
func finalCount(state []byte) ([]byte, error) {
	var c count
	if err := c.addState(state); err != nil {
		return nil, err
	}
	return strconv.AppendUint(nil, c.n, 10), nil
}
