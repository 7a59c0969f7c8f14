// attention_delta.cuh -- what the gradients of attention read of each query, once: of its log-sum-exp l, its
// result o, and the gradients dl and do by these
//
//     log2(e) l, or inf, if the query sees no key;    delta = sum(do o) - dl
//
// (Dao, arXiv 2307.08691, section 3.1.) They go to [batch][heads][2][pitch], log-sum-exps before deltas;
// behind the last query are inf and 0. A block has `rows` queries of a head of a sequence, the heads of a
// sequence are neighbours. `lanes` neighbouring lanes share a query, `width` columns of it at a time.
//
// Config: type T; i32 head_dim, heads, width, lanes, threads, rows; bool dlse (it is there).
#pragma once
#include "attention/extents.cuh"
#include "math.cuh"
#include "port/tile.cuh"
#include "ptx/control.cuh"

namespace coda {

template <class Config> struct AttentionDelta {
    using T = typename Config::T;
    static constexpr i32 width = Config::width, lanes = Config::lanes, teams = Config::threads / lanes;
    static_assert(32 % lanes == 0 && Config::head_dim % width == 0 && Config::rows % teams == 0);

    struct Tensors {
        const T *o, *d_o;
        const float *lse, *dlse;
        float *to;
        const AttentionStrides &of_o, &of_do, &of_lse, &of_dlse;
        i32 tq, pitch;
    };

    // This lane's part of sum(do o).
    DEV static float part(const T *o, const T *d_o)
    {
        float sum = 0.0f;
#pragma unroll
        for (i32 i = 0; i < Config::head_dim; i += lanes * width) {
            const i32 c = i + threadIdx.x % lanes * width;
            float a[width] = {}, b[width] = {};
            if (c < Config::head_dim) port::load_piece(a, o + c), port::load_piece(b, d_o + c);
#pragma unroll
            for (i32 e = 0; e < width; e++) sum = fmaf(a[e], b[e], sum);
        }
        return sum;
    }

    template <class Block> DEV static void run(const Block &mine, const Tensors &x)
    {
        const i32 tiles = (x.pitch + Config::rows - 1) / Config::rows, index = mine.index();
        const i32 head = index % Config::heads, tile = index / Config::heads;
        const i64 batch = tile / tiles;
        const T *const o = x.o + batch * x.of_o.batch + head * x.of_o.head, *const d_o =
                                                                                x.d_o +
                                                                                batch * x.of_do.batch +
                                                                                head * x.of_do.head;
        float *const to = x.to + 2 * (batch * Config::heads + head) * x.pitch;
        ptx::grid_wait();
#pragma unroll(Config::head_dim <= 128 ? 4 : 1)
        for (i32 r = threadIdx.x / lanes; r < Config::rows; r += teams) {
            const i32 at = tile % tiles * Config::rows + r;
            const bool there = at < x.tq;
            float sum = there ? part(o + at * x.of_o.time, d_o + at * x.of_do.time) : 0.0f;
#pragma unroll
            for (i32 d = 1; d < lanes; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
            if (threadIdx.x % lanes || at >= x.pitch) continue;
            float lse = math::infinity();
            if (there) {
                const float l = x.lse[batch * x.of_lse.batch + head * x.of_lse.head + at * x.of_lse.time];
                if (l != -lse) lse = l * math::LOG2_E;
                if (Config::dlse)
                    sum -= x.dlse[batch * x.of_dlse.batch + head * x.of_dlse.head + at * x.of_dlse.time];
            }
            to[at] = lse;
            to[x.pitch + at] = sum;
        }
        ptx::grid_launch_next();
    }
};

} // namespace coda
