package md5stream

import "golang.org/x/sys/cpu"

// haveFast tells whether processor and system have the 128-bit and 256-bit forms of
// AVX-512.
var haveFast = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL

// blocks takes the whole blocks of p into the state.
//
//go:noescape
func blocks(state *[4]uint32, p []byte)

// blocksOfEight takes length bytes, whole blocks, of each stream into its state.
//
//go:noescape
func blocksOfEight(states *[4][laneCount]uint32, streams *[laneCount]*byte, length int)
