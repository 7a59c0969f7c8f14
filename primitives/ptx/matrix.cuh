// matrix.cuh -- ldmatrix, stmatrix: a warp reads, writes 8x8 matrices of 16-bit elements in shared memory.
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

DEV void ldmatrix(u32 address, u32 (&m)[2])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(m[0]), "=r"(m[1])
                 : "r"(address)
                 : "memory");
}
DEV void ldmatrix(u32 address, u32 (&m)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}

} // namespace coda::ptx
