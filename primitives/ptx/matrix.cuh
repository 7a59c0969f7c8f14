// matrix.cuh -- stmatrix: a warp writes 8x8 matrices of 16-bit elements to shared memory.
//
// Register i holds this lane's two elements of matrix i: row lane / 4, columns 2 (lane % 4) and the
// next. Lane 8 i + r gives the address of row r of matrix i, 16 bytes, 16-byte aligned.
#pragma once

#include "types.cuh"

namespace coda::ptx {

DEV void stmatrix(u32 address, u32 m0, u32 m1)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                 :
                 : "r"(address), "r"(m0), "r"(m1)
                 : "memory");
}
DEV void stmatrix(u32 address, u32 m0, u32 m1, u32 m2, u32 m3)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(m0), "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

} // namespace coda::ptx
