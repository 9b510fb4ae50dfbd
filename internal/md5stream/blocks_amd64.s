#include "textflag.h"

// The constants of the 64 steps, floor(2^32 * |sin(step)|) of RFC 1321.
DATA constants<>+0(SB)/8, $0xe8c7b756d76aa478
DATA constants<>+8(SB)/8, $0xc1bdceee242070db
DATA constants<>+16(SB)/8, $0x4787c62af57c0faf
DATA constants<>+24(SB)/8, $0xfd469501a8304613
DATA constants<>+32(SB)/8, $0x8b44f7af698098d8
DATA constants<>+40(SB)/8, $0x895cd7beffff5bb1
DATA constants<>+48(SB)/8, $0xfd9871936b901122
DATA constants<>+56(SB)/8, $0x49b40821a679438e
DATA constants<>+64(SB)/8, $0xc040b340f61e2562
DATA constants<>+72(SB)/8, $0xe9b6c7aa265e5a51
DATA constants<>+80(SB)/8, $0x02441453d62f105d
DATA constants<>+88(SB)/8, $0xe7d3fbc8d8a1e681
DATA constants<>+96(SB)/8, $0xc33707d621e1cde6
DATA constants<>+104(SB)/8, $0x455a14edf4d50d87
DATA constants<>+112(SB)/8, $0xfcefa3f8a9e3e905
DATA constants<>+120(SB)/8, $0x8d2a4c8a676f02d9
DATA constants<>+128(SB)/8, $0x8771f681fffa3942
DATA constants<>+136(SB)/8, $0xfde5380c6d9d6122
DATA constants<>+144(SB)/8, $0x4bdecfa9a4beea44
DATA constants<>+152(SB)/8, $0xbebfbc70f6bb4b60
DATA constants<>+160(SB)/8, $0xeaa127fa289b7ec6
DATA constants<>+168(SB)/8, $0x04881d05d4ef3085
DATA constants<>+176(SB)/8, $0xe6db99e5d9d4d039
DATA constants<>+184(SB)/8, $0xc4ac56651fa27cf8
DATA constants<>+192(SB)/8, $0x432aff97f4292244
DATA constants<>+200(SB)/8, $0xfc93a039ab9423a7
DATA constants<>+208(SB)/8, $0x8f0ccc92655b59c3
DATA constants<>+216(SB)/8, $0x85845dd1ffeff47d
DATA constants<>+224(SB)/8, $0xfe2ce6e06fa87e4f
DATA constants<>+232(SB)/8, $0x4e0811a1a3014314
DATA constants<>+240(SB)/8, $0xbd3af235f7537e82
DATA constants<>+248(SB)/8, $0xeb86d3912ad7d2bb
GLOBL constants<>(SB), RODATA|NOPTR, $256

// STEP is a = b + rotate(a + mix(b, c, d) + constant + word, by). What waits for b,
// the newest value, is four instructions of one cycle each: the mix in one
// VPTERNLOGD, where general registers need two or three, an addition, the rotation
// and another addition. LOAD brings a word of the block, T0 and T1 are free.
#define STEP(mix, by, step, word, a, b, c, d) \
	LOAD(word); \
	VPADDD.BCST (4*step)(AX), T0, T0; \
	VMOVDQA     d, T1; \
	VPADDD      T0, a, a; \
	VPTERNLOGD  $mix, b, c, T1; \
	VPADDD      T1, a, a; \
	VPROLD      $by, a, a; \
	VPADDD      b, a, a

// The mixes of the four rounds as truth tables: bit 4*d+2*c+b is the result.
#define F 0xd8 // b ? c : d
#define G 0xac // d ? b : c
#define H 0x96 // b ^ c ^ d
#define I 0x63 // c ^ (b | ^d)

// STEPS takes one block of each stream into the state in RA to RD.
#define STEPS \
	STEP(F, 7, 0, 0, RA, RB, RC, RD); \
	STEP(F, 12, 1, 1, RD, RA, RB, RC); \
	STEP(F, 17, 2, 2, RC, RD, RA, RB); \
	STEP(F, 22, 3, 3, RB, RC, RD, RA); \
	STEP(F, 7, 4, 4, RA, RB, RC, RD); \
	STEP(F, 12, 5, 5, RD, RA, RB, RC); \
	STEP(F, 17, 6, 6, RC, RD, RA, RB); \
	STEP(F, 22, 7, 7, RB, RC, RD, RA); \
	STEP(F, 7, 8, 8, RA, RB, RC, RD); \
	STEP(F, 12, 9, 9, RD, RA, RB, RC); \
	STEP(F, 17, 10, 10, RC, RD, RA, RB); \
	STEP(F, 22, 11, 11, RB, RC, RD, RA); \
	STEP(F, 7, 12, 12, RA, RB, RC, RD); \
	STEP(F, 12, 13, 13, RD, RA, RB, RC); \
	STEP(F, 17, 14, 14, RC, RD, RA, RB); \
	STEP(F, 22, 15, 15, RB, RC, RD, RA); \
	STEP(G, 5, 16, 1, RA, RB, RC, RD); \
	STEP(G, 9, 17, 6, RD, RA, RB, RC); \
	STEP(G, 14, 18, 11, RC, RD, RA, RB); \
	STEP(G, 20, 19, 0, RB, RC, RD, RA); \
	STEP(G, 5, 20, 5, RA, RB, RC, RD); \
	STEP(G, 9, 21, 10, RD, RA, RB, RC); \
	STEP(G, 14, 22, 15, RC, RD, RA, RB); \
	STEP(G, 20, 23, 4, RB, RC, RD, RA); \
	STEP(G, 5, 24, 9, RA, RB, RC, RD); \
	STEP(G, 9, 25, 14, RD, RA, RB, RC); \
	STEP(G, 14, 26, 3, RC, RD, RA, RB); \
	STEP(G, 20, 27, 8, RB, RC, RD, RA); \
	STEP(G, 5, 28, 13, RA, RB, RC, RD); \
	STEP(G, 9, 29, 2, RD, RA, RB, RC); \
	STEP(G, 14, 30, 7, RC, RD, RA, RB); \
	STEP(G, 20, 31, 12, RB, RC, RD, RA); \
	STEP(H, 4, 32, 5, RA, RB, RC, RD); \
	STEP(H, 11, 33, 8, RD, RA, RB, RC); \
	STEP(H, 16, 34, 11, RC, RD, RA, RB); \
	STEP(H, 23, 35, 14, RB, RC, RD, RA); \
	STEP(H, 4, 36, 1, RA, RB, RC, RD); \
	STEP(H, 11, 37, 4, RD, RA, RB, RC); \
	STEP(H, 16, 38, 7, RC, RD, RA, RB); \
	STEP(H, 23, 39, 10, RB, RC, RD, RA); \
	STEP(H, 4, 40, 13, RA, RB, RC, RD); \
	STEP(H, 11, 41, 0, RD, RA, RB, RC); \
	STEP(H, 16, 42, 3, RC, RD, RA, RB); \
	STEP(H, 23, 43, 6, RB, RC, RD, RA); \
	STEP(H, 4, 44, 9, RA, RB, RC, RD); \
	STEP(H, 11, 45, 12, RD, RA, RB, RC); \
	STEP(H, 16, 46, 15, RC, RD, RA, RB); \
	STEP(H, 23, 47, 2, RB, RC, RD, RA); \
	STEP(I, 6, 48, 0, RA, RB, RC, RD); \
	STEP(I, 10, 49, 7, RD, RA, RB, RC); \
	STEP(I, 15, 50, 14, RC, RD, RA, RB); \
	STEP(I, 21, 51, 5, RB, RC, RD, RA); \
	STEP(I, 6, 52, 12, RA, RB, RC, RD); \
	STEP(I, 10, 53, 3, RD, RA, RB, RC); \
	STEP(I, 15, 54, 10, RC, RD, RA, RB); \
	STEP(I, 21, 55, 1, RB, RC, RD, RA); \
	STEP(I, 6, 56, 8, RA, RB, RC, RD); \
	STEP(I, 10, 57, 15, RD, RA, RB, RC); \
	STEP(I, 15, 58, 6, RC, RD, RA, RB); \
	STEP(I, 21, 59, 13, RB, RC, RD, RA); \
	STEP(I, 6, 60, 4, RA, RB, RC, RD); \
	STEP(I, 10, 61, 11, RD, RA, RB, RC); \
	STEP(I, 15, 62, 2, RC, RD, RA, RB); \
	STEP(I, 21, 63, 9, RB, RC, RD, RA)

// One stream: its state in the lowest lanes of four registers.
#define RA X0
#define RB X1
#define RC X2
#define RD X3
#define T0 X8
#define T1 X9
#define LOAD(word) VMOVD (4*word)(SI), T0

// func blocks(state *[4]uint32, p []byte)
TEXT ·blocks(SB), NOSPLIT, $0-32
	MOVQ  state+0(FP), DI
	MOVQ  p_base+8(FP), SI
	MOVQ  p_len+16(FP), DX
	SHRQ  $6, DX
	JEQ   done
	LEAQ  constants<>(SB), AX
	VMOVD (DI), X0
	VMOVD 4(DI), X1
	VMOVD 8(DI), X2
	VMOVD 12(DI), X3

block:
	VMOVDQA X0, X4
	VMOVDQA X1, X5
	VMOVDQA X2, X6
	VMOVDQA X3, X7
	STEPS
	VPADDD  X4, X0, X0
	VPADDD  X5, X1, X1
	VPADDD  X6, X2, X2
	VPADDD  X7, X3, X3
	ADDQ    $64, SI
	DECQ    DX
	JNE     block

	VMOVD X0, (DI)
	VMOVD X1, 4(DI)
	VMOVD X2, 8(DI)
	VMOVD X3, 12(DI)

done:
	RET

#undef RA
#undef RB
#undef RC
#undef RD
#undef T0
#undef T1
#undef LOAD

// Eight streams side by side: lane i of every register belongs to stream i. The steps
// wait for each other as long as with one stream, so eight cost hardly more than one.
#define RA Y0
#define RB Y1
#define RC Y2
#define RD Y3
#define T0 Y8
#define T1 Y9
#define LOAD(word) VMOVDQU (32*word)(SP), T0

// TURN brings words 4*quarter to 4*quarter+3 of the blocks of all streams to the stack,
// each word of the eight streams side by side. Within each half of a register it is the
// usual turning of four rows into four columns.
#define TURN(quarter) \
	VMOVDQU     (16*quarter)(BX)(R8*1), X10; \
	VMOVDQU     (16*quarter)(CX)(R8*1), X11; \
	VMOVDQU     (16*quarter)(DX)(R8*1), X12; \
	VMOVDQU     (16*quarter)(SI)(R8*1), X13; \
	VINSERTI128 $1, (16*quarter)(R9)(R8*1), Y10, Y10; \
	VINSERTI128 $1, (16*quarter)(R10)(R8*1), Y11, Y11; \
	VINSERTI128 $1, (16*quarter)(R11)(R8*1), Y12, Y12; \
	VINSERTI128 $1, (16*quarter)(R12)(R8*1), Y13, Y13; \
	VPUNPCKLDQ  Y11, Y10, Y14; \
	VPUNPCKHDQ  Y11, Y10, Y10; \
	VPUNPCKLDQ  Y13, Y12, Y15; \
	VPUNPCKHDQ  Y13, Y12, Y12; \
	VPUNPCKLQDQ Y15, Y14, Y11; \
	VPUNPCKHQDQ Y15, Y14, Y13; \
	VMOVDQU     Y11, (128*quarter)(SP); \
	VMOVDQU     Y13, (128*quarter+32)(SP); \
	VPUNPCKLQDQ Y12, Y10, Y11; \
	VPUNPCKHQDQ Y12, Y10, Y13; \
	VMOVDQU     Y11, (128*quarter+64)(SP); \
	VMOVDQU     Y13, (128*quarter+96)(SP)

// func blocksOfEight(states *[4][8]uint32, streams *[8]*byte, length int)
TEXT ·blocksOfEight(SB), 0, $512-24
	MOVQ    states+0(FP), DI
	MOVQ    streams+8(FP), AX
	MOVQ    length+16(FP), R13
	MOVQ    0(AX), BX
	MOVQ    8(AX), CX
	MOVQ    16(AX), DX
	MOVQ    24(AX), SI
	MOVQ    32(AX), R9
	MOVQ    40(AX), R10
	MOVQ    48(AX), R11
	MOVQ    56(AX), R12
	LEAQ    constants<>(SB), AX
	VMOVDQU (DI), Y0
	VMOVDQU 32(DI), Y1
	VMOVDQU 64(DI), Y2
	VMOVDQU 96(DI), Y3
	XORQ    R8, R8
	CMPQ    R8, R13
	JGE     finish

blocks:
	TURN(0)
	TURN(1)
	TURN(2)
	TURN(3)
	VMOVDQA Y0, Y4
	VMOVDQA Y1, Y5
	VMOVDQA Y2, Y6
	VMOVDQA Y3, Y7
	STEPS
	VPADDD  Y4, Y0, Y0
	VPADDD  Y5, Y1, Y1
	VPADDD  Y6, Y2, Y2
	VPADDD  Y7, Y3, Y3
	ADDQ    $64, R8
	CMPQ    R8, R13
	JLT     blocks

	VMOVDQU Y0, (DI)
	VMOVDQU Y1, 32(DI)
	VMOVDQU Y2, 64(DI)
	VMOVDQU Y3, 96(DI)

finish:
	VZEROUPPER
	RET
