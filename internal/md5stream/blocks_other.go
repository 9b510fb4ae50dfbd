//go:build !amd64

package md5stream

// haveFast is false: there is nothing faster than crypto/md5 here.
const haveFast = false

func blocks(*[4]uint32, []byte) { panic("md5stream: not on this processor") }

func blocksOfEight(*[4][laneCount]uint32, *[laneCount]*byte, int) {
	panic("md5stream: not on this processor")
}
