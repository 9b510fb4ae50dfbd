package jsvm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame is four bytes of length (little-endian, of what follows), one byte of
// type, and the payload. Pool and worker are always the same binary, so there are
// no versions.
const (
	frameHello   = 'h' // worker: ready
	frameRun     = 'q' // pool: a request
	frameDone    = 'k' // worker: flags, then the one JSON text of the results
	frameDesign  = 'd' // worker: I have no engine for this key, send the design document
	frameFailed  = 'x' // worker: the engine did not get through; a failureKind and a text
	frameNeedRow = 'n' // worker, in a list: what was sent so far; give me rows
	framePiece   = 's' // worker, in a list: what was sent so far
	frameRows    = 'r' // pool, in a list: rows
	frameLastRow = 'e' // pool, in a list: rows, and there are no more
)

// maxFrame bounds what either side takes. A worker could not hold more within its
// own memory limit; a length beyond it is garbage on the pipe.
const maxFrame = 128 << 20

// frameHead is the length of what stands before the payload.
const frameHead = 5

// errBadFrame is garbage on the pipe: the other side is not to be trusted any more.
var errBadFrame = errors.New("garbage instead of a frame")

// beginFrame starts a frame in dst; endFrame fills in its length.
func beginFrame(dst []byte, kind byte) []byte {
	return append(dst, 0, 0, 0, 0, kind)
}

func endFrame(frame []byte) []byte {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-frameHead+1))
	return frame
}

// frameReader reads frames. A read that fails because its time is over loses
// nothing: next goes on where it stopped, so a reply nobody waits for any more can
// still be read to its end.
type frameReader struct {
	r    io.Reader
	head [frameHead]byte
	got  int // bytes of head, then of body, that are there
	body []byte
}

// keepBuffer is how large a buffer may be that is kept for the next frame.
const keepBuffer = 1 << 20

// next gives the next frame. The payload is good until the next call.
func (f *frameReader) next() (kind byte, payload []byte, err error) {
	for f.got < frameHead {
		n, err := f.r.Read(f.head[f.got:])
		f.got += n
		if err != nil && f.got < frameHead {
			return 0, nil, endInFrame(err, f.got > 0)
		}
	}
	length := int64(binary.LittleEndian.Uint32(f.head[:])) - 1
	if length < 0 || length > maxFrame {
		return 0, nil, fmt.Errorf("%w: length %d", errBadFrame, length)
	}
	if err := f.fill(int(length)); err != nil {
		return 0, nil, err
	}
	f.got = 0
	return f.head[4], f.body[:length], nil
}

// fill reads the payload. The buffer grows with what arrives, so that a length
// alone costs no memory.
func (f *frameReader) fill(length int) error {
	if f.got == frameHead && cap(f.body) > keepBuffer {
		f.body = nil
	}
	for f.got-frameHead < length {
		have := f.got - frameHead
		room := min(length, max(have*2, keepBuffer))
		if cap(f.body) < room {
			body := make([]byte, room)
			copy(body, f.body[:min(have, cap(f.body))])
			f.body = body
		}
		n, err := f.r.Read(f.body[have:room])
		f.got += n
		if err != nil && f.got-frameHead < length {
			return endInFrame(err, true)
		}
	}
	return nil
}

// endInFrame names an end of the stream within a frame for what it is.
func endInFrame(err error, within bool) error {
	if within && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendBytes appends a length and b; cutBytes takes them off again.
func appendBytes[T ~string | ~[]byte](dst []byte, b T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

func cutBytes(src []byte) (b, rest []byte, err error) {
	n, width := binary.Uvarint(src)
	if width <= 0 || n > uint64(len(src)-width) {
		return nil, nil, errBadFrame
	}
	src = src[width:]
	return src[:n], src[n:], nil
}

// cutCount takes a number off that says how many things follow, each at least one
// byte long.
func cutCount(src []byte) (n int, rest []byte, err error) {
	count, width := binary.Uvarint(src)
	if width <= 0 || count > uint64(len(src)-width) {
		return 0, nil, errBadFrame
	}
	return int(count), src[width:], nil
}

// runRequest is the payload of frameRun.
type runRequest struct {
	key    string
	design []byte // nil: not given, the worker is thought to have it
	fresh  bool   // with a design document: in a new engine
	op     string
	funcs  []string
	extra  []byte // JSON the operation needs once
	body   []byte // JSON array, one element per item
	// shortened says that the items lack what readFields says the functions cannot see.
	shortened bool
}

// What stands before the design document of a request.
const (
	designLacks = iota
	designGiven
	designFresh
)

func (r *runRequest) append(dst []byte) []byte {
	dst = appendBytes(dst, r.key)
	switch {
	case r.design == nil:
		dst = append(dst, designLacks)
	case r.fresh:
		dst = appendBytes(append(dst, designFresh), r.design)
	default:
		dst = appendBytes(append(dst, designGiven), r.design)
	}
	dst = appendBytes(dst, r.op)
	if r.shortened {
		dst = append(dst, 1)
	} else {
		dst = append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.funcs)))
	for _, f := range r.funcs {
		dst = appendBytes(dst, f)
	}
	dst = appendBytes(dst, r.extra)
	return append(dst, r.body...)
}

// parseRun reads what append wrote. Extra, design and body point into src.
func parseRun(src []byte) (r runRequest, err error) {
	var b []byte
	if b, src, err = cutBytes(src); err != nil {
		return r, err
	}
	r.key = string(b)
	if len(src) == 0 || src[0] > designFresh {
		return r, errBadFrame
	}
	given := src[0] != designLacks
	r.fresh = src[0] == designFresh
	src = src[1:]
	if given {
		if r.design, src, err = cutBytes(src); err != nil {
			return r, err
		}
	}
	if b, src, err = cutBytes(src); err != nil {
		return r, err
	}
	r.op = string(b)
	if len(src) == 0 || src[0] > 1 {
		return r, errBadFrame
	}
	r.shortened = src[0] == 1
	src = src[1:]
	n, src, err := cutCount(src)
	if err != nil {
		return r, err
	}
	for range n {
		if b, src, err = cutBytes(src); err != nil {
			return r, err
		}
		r.funcs = append(r.funcs, string(b))
	}
	if r.extra, src, err = cutBytes(src); err != nil {
		return r, err
	}
	r.body = src
	return r, nil
}
