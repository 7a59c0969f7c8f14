// grad_fragment.cuh -- what attention's gradients by wgmma do with fragments: the products of the 64 own rows
// of a warpgroup with the walked rows of a block, and the sums of 64 rows of a gradient.
//
// Rows lie in shared memory as chunks of [rows][64], swizzled (tile/resources.cuh).
#pragma once
#include "attention/fragment.cuh"
#include "attention/grad_walk.cuh"
#include "ptx/control.cuh"
#include "ptx/wgmma.cuh"

namespace coda {

DEV i32 consumer_group() { return threadIdx.x / 128 - 1; }
// The thread's first row of its warpgroup's 64.
DEV i32 fragment_row() { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4; }

DEV u64 rows_descriptor(const u8 *rows, u32 leading)
{
    return ptx::wgmma_descriptor(ptx::shared_address(rows), leading, swizzle_atom);
}

// d = a b^T: the warpgroup's own rows, of bm, by bn walked ones.
template <class T, i32 bm, i32 bn, i32 chunks>
DEV void multiply_rows(float (&d)[bn / 2], const u8 *own, const u8 *walked)
{
    const u64 a = rows_descriptor(own + consumer_group() * box_bytes, 16), b = rows_descriptor(walked, 16);
    pin(d);
    ptx::wgmma_fence();
#pragma unroll
    for (i32 i = 0; i < chunks; i++)
        ptx::Wgmma<T, bn>::template mma<0, 0>(d, a + i * swizzle_row * bm / descriptor_unit,
                                              b + i * swizzle_row * bn / descriptor_unit, i);
    ptx::wgmma_commit();
}

// d += w times the walked rows. 16 of them are two groups of 8 rows of 128 bytes.
template <class T, i32 bn, i32 chunks>
DEV void accumulate_rows(float (&d)[32 * chunks], u32 (&w)[bn / 16][4], const u8 *walked)
{
    const u64 b = rows_descriptor(walked, bn * swizzle_row);
    pin(d);
    pin(w);
    ptx::wgmma_fence();
#pragma unroll
    for (i32 i = 0; i < bn / 16; i++)
        ptx::Wgmma<T, 64 * chunks>::template mma<1>(d, w[i], b + i * 2 * swizzle_atom / descriptor_unit, 1);
    ptx::wgmma_commit();
}

// Which keys queries see, and the other way round: of rows first .. last those that some of them see, or, if
// first and last change places, those that all of them see.
template <class Config> struct GradVisible {
    struct Range {
        i32 first, end;
    };

    DEV static Range keys_of(const AttentionGradExtents &x, i32 first, i32 last)
    {
        Range r = {Config::window ? max(0, first + (x.shift - Config::window + 1)) : 0, x.tk};
        if (Config::limited) r.end = max(0, min(x.tk, last + (x.shift + Config::ahead + 1)));
        return r;
    }
    DEV static Range queries_of(const AttentionGradExtents &x, i32 first, i32 last)
    {
        Range r = {Config::limited ? max(0, first - Config::ahead - x.shift) : 0, x.tq};
        if (Config::window) r.end = max(0, min(x.tq, last + (Config::window - x.shift)));
        return r;
    }
    // What a product is worth of a key that a query does not see: 2^(c of it) is 0.
    DEV static float hidden() { return Config::scale_log2 < 0.0f ? -unseen() : unseen(); }
};

// Of the thread's own rows r, 0 and 8, walked rows outside seen(r), counted from the first of the block, are
// hidden.
template <class See, i32 n, class Seen> DEV void mask_rows(float (&s)[n], Seen seen)
{
    const i32 column = threadIdx.x % 4 * 2;
#pragma unroll
    for (i32 r = 0; r < 2; r++) {
        const typename See::Range of = seen(8 * r);
        const i32 first = of.first - column, end = of.end - column;
#pragma unroll
        for (i32 i = 2 * r; i < n; i += 4) {
            const i32 at = 8 * (i >> 2);
            if (at < first || at >= end) s[i] = See::hidden();
            if (at + 1 < first || at + 1 >= end) s[i + 1] = See::hidden();
        }
    }
}

// Stores the 64 rows of a warpgroup, of which the thread's first one is `row`: those below `end`. The quad's
// lanes exchange their column pairs, so that each stores 16 adjacent bytes.
template <i32 head_dim, class T, i32 n>
DEV void write_gradient(const float (&d)[n], T *to, i64 pitch, i32 row, i32 end, float scale)
{
#pragma unroll
    for (i32 r = 0; r < 2; r++) {
        const bool inside = row + 8 * r < end;
        T *const out = to + (row + 8 * r) * pitch;
#pragma unroll
        for (i32 g = 0; g < n / 16; g++) {
            u32 v[4];
#pragma unroll
            for (i32 i = 0; i < 4; i++) {
                const float *pair = d + 16 * g + 4 * i + 2 * r;
                v[i] = pack2<T>(pair[0] * scale, pair[1] * scale);
            }
            quad_transpose(v);
            const i32 column = 32 * g + threadIdx.x % 4 * 8;
            if (inside && column < head_dim)
                *reinterpret_cast<uint4 *>(out + column) = {v[0], v[1], v[2], v[3]};
        }
    }
}

} // namespace coda
