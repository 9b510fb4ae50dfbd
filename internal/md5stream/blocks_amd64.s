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
// and another addition.
#define STEP(mix, by, step, word, a, b, c, d) \
	VMOVD       (4*word)(SI), X8; \
	VPADDD.BCST (4*step)(R8), X8, X8; \
	VMOVDQA     d, X9; \
	VPADDD      X8, a, a; \
	VPTERNLOGD  $mix, b, c, X9; \
	VPADDD      X9, a, a; \
	VPROLD      $by, a, a; \
	VPADDD      b, a, a

// The mixes of the four rounds as truth tables: bit 4*d+2*c+b is the result.
#define F 0xd8 // b ? c : d
#define G 0xac // d ? b : c
#define H 0x96 // b ^ c ^ d
#define I 0x63 // c ^ (b | ^d)

// func blocksAVX512(state *[4]uint32, p []byte)
TEXT ·blocksAVX512(SB), NOSPLIT, $0-32
	MOVQ  state+0(FP), DI
	MOVQ  p_base+8(FP), SI
	MOVQ  p_len+16(FP), DX
	SHRQ  $6, DX
	JEQ   done
	LEAQ  constants<>(SB), R8
	VMOVD (DI), X0
	VMOVD 4(DI), X1
	VMOVD 8(DI), X2
	VMOVD 12(DI), X3

block:
	VMOVDQA X0, X4
	VMOVDQA X1, X5
	VMOVDQA X2, X6
	VMOVDQA X3, X7

	STEP(F, 7, 0, 0, X0, X1, X2, X3)
	STEP(F, 12, 1, 1, X3, X0, X1, X2)
	STEP(F, 17, 2, 2, X2, X3, X0, X1)
	STEP(F, 22, 3, 3, X1, X2, X3, X0)
	STEP(F, 7, 4, 4, X0, X1, X2, X3)
	STEP(F, 12, 5, 5, X3, X0, X1, X2)
	STEP(F, 17, 6, 6, X2, X3, X0, X1)
	STEP(F, 22, 7, 7, X1, X2, X3, X0)
	STEP(F, 7, 8, 8, X0, X1, X2, X3)
	STEP(F, 12, 9, 9, X3, X0, X1, X2)
	STEP(F, 17, 10, 10, X2, X3, X0, X1)
	STEP(F, 22, 11, 11, X1, X2, X3, X0)
	STEP(F, 7, 12, 12, X0, X1, X2, X3)
	STEP(F, 12, 13, 13, X3, X0, X1, X2)
	STEP(F, 17, 14, 14, X2, X3, X0, X1)
	STEP(F, 22, 15, 15, X1, X2, X3, X0)

	STEP(G, 5, 16, 1, X0, X1, X2, X3)
	STEP(G, 9, 17, 6, X3, X0, X1, X2)
	STEP(G, 14, 18, 11, X2, X3, X0, X1)
	STEP(G, 20, 19, 0, X1, X2, X3, X0)
	STEP(G, 5, 20, 5, X0, X1, X2, X3)
	STEP(G, 9, 21, 10, X3, X0, X1, X2)
	STEP(G, 14, 22, 15, X2, X3, X0, X1)
	STEP(G, 20, 23, 4, X1, X2, X3, X0)
	STEP(G, 5, 24, 9, X0, X1, X2, X3)
	STEP(G, 9, 25, 14, X3, X0, X1, X2)
	STEP(G, 14, 26, 3, X2, X3, X0, X1)
	STEP(G, 20, 27, 8, X1, X2, X3, X0)
	STEP(G, 5, 28, 13, X0, X1, X2, X3)
	STEP(G, 9, 29, 2, X3, X0, X1, X2)
	STEP(G, 14, 30, 7, X2, X3, X0, X1)
	STEP(G, 20, 31, 12, X1, X2, X3, X0)

	STEP(H, 4, 32, 5, X0, X1, X2, X3)
	STEP(H, 11, 33, 8, X3, X0, X1, X2)
	STEP(H, 16, 34, 11, X2, X3, X0, X1)
	STEP(H, 23, 35, 14, X1, X2, X3, X0)
	STEP(H, 4, 36, 1, X0, X1, X2, X3)
	STEP(H, 11, 37, 4, X3, X0, X1, X2)
	STEP(H, 16, 38, 7, X2, X3, X0, X1)
	STEP(H, 23, 39, 10, X1, X2, X3, X0)
	STEP(H, 4, 40, 13, X0, X1, X2, X3)
	STEP(H, 11, 41, 0, X3, X0, X1, X2)
	STEP(H, 16, 42, 3, X2, X3, X0, X1)
	STEP(H, 23, 43, 6, X1, X2, X3, X0)
	STEP(H, 4, 44, 9, X0, X1, X2, X3)
	STEP(H, 11, 45, 12, X3, X0, X1, X2)
	STEP(H, 16, 46, 15, X2, X3, X0, X1)
	STEP(H, 23, 47, 2, X1, X2, X3, X0)

	STEP(I, 6, 48, 0, X0, X1, X2, X3)
	STEP(I, 10, 49, 7, X3, X0, X1, X2)
	STEP(I, 15, 50, 14, X2, X3, X0, X1)
	STEP(I, 21, 51, 5, X1, X2, X3, X0)
	STEP(I, 6, 52, 12, X0, X1, X2, X3)
	STEP(I, 10, 53, 3, X3, X0, X1, X2)
	STEP(I, 15, 54, 10, X2, X3, X0, X1)
	STEP(I, 21, 55, 1, X1, X2, X3, X0)
	STEP(I, 6, 56, 8, X0, X1, X2, X3)
	STEP(I, 10, 57, 15, X3, X0, X1, X2)
	STEP(I, 15, 58, 6, X2, X3, X0, X1)
	STEP(I, 21, 59, 13, X1, X2, X3, X0)
	STEP(I, 6, 60, 4, X0, X1, X2, X3)
	STEP(I, 10, 61, 11, X3, X0, X1, X2)
	STEP(I, 15, 62, 2, X2, X3, X0, X1)
	STEP(I, 21, 63, 9, X1, X2, X3, X0)

	VPADDD X4, X0, X0
	VPADDD X5, X1, X1
	VPADDD X6, X2, X2
	VPADDD X7, X3, X3
	ADDQ   $64, SI
	DECQ   DX
	JNE    block

	VMOVD X0, (DI)
	VMOVD X1, 4(DI)
	VMOVD X2, 8(DI)
	VMOVD X3, 12(DI)

done:
	RET
