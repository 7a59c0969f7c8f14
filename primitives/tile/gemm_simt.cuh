// gemm_simt.cuh -- C = A B^T on any GPU: any dtype, stride and alignment, fp32 multiply-adds in order of k; B
// may be packed.
//
// A block of Config::groups warpgroups walks K in steps of Config::bk: elements go from memory to registers
// while the last step is multiplied, then to shared memory as floats, [k][row]. A thread's accumulators are
// those of the wgmma fragment, so that the epilogue is the same.
#pragma once

#include "tile/block.cuh"
#include "tile/epilogue.cuh"
#include "tile/parts.cuh"
#include "tile/resources.cuh"
#include "tile/scales.cuh"
#include "tile/weights.cuh"

namespace coda {

template <class Config, class Epilogue, class Block> struct GemmSimt {
    using Columns = typename Config::Columns;
    using Drain = coda::Drain<Config, Epilogue>;
    using Args = typename Config::Args;

    static constexpr int threads = 128 * Config::groups, bk = Config::bk,
                         blocks = EpilogueLayout<Config, Epilogue>::blocks;
    static constexpr int pad = 2; // keeps pairs aligned, and columns of k in different banks
    static constexpr int steps = (int)((Config::k + bk - 1) / bk);

    struct Shared {
        float a[bk][Config::bm + pad], b[bk][Config::bn + pad];
        typename Drain::Values values[Config::groups];
    };
    static_assert(shared_fits<Shared>(Config::shared_bytes));

    // A thread's share of a [rows][bk] tile of one operand. Neighbouring threads take neighbours in memory.
    template <class T, int rows, bool k_major> struct Share {
        static constexpr int each = rows * bk / threads, line = k_major ? bk : rows;
        static_assert(rows * bk % threads == 0);
        T x[each];
        DEV static int across(int i) { return threads % line ? index(i) % line : (int)threadIdx.x % line; }
        DEV static int along(int i)
        {
            return threads % line ? index(i) / line : (int)threadIdx.x / line + i * (threads / line);
        }
        DEV static int index(int i) { return i * threads + (int)threadIdx.x; }
        DEV static int k(int i) { return k_major ? across(i) : along(i); }
        DEV static int row(int i) { return k_major ? along(i) : across(i); }
        DEV void put(float (&to)[bk][rows + pad]) const
        {
#pragma unroll
            for (int i = 0; i < each; i++) to[k(i)][row(i)] = to_float(x[i]);
        }
    };
    using Weights = WeightsOf<Config, typename Config::Weights>;
    // As they lie in memory, or times the scales of their blocks.
    using ElementA = typename ScaledElement<Config::scaled, typename Config::A>::type;
    using ElementB = typename ScaledElement<Config::scaled, typename Weights::Element>::type;
    using ShareA = Share<ElementA, Config::bm, Config::a_stride_k <= Config::a_stride_row>;
    using ShareB = Share<ElementB, Config::bn, Config::b_stride_k <= Config::b_stride_row>;

    using Scales = BlockScales<Config>;

    const Args &args;
    Shared &s;
    const Block &block;

    DEV void get_a(ShareA &a, const Tile &t, i64 k0) const
    {
        const i64 m0 = (i64)t.m * Config::bm;
        const auto *from =
            args.a + t.batch * Config::a_batch(args) + m0 * Config::a_stride_row + k0 * Config::a_stride_k;
#pragma unroll
        for (int i = 0; i < a.each; i++)
            if (k0 + a.k(i) < Config::k && m0 + a.row(i) < Config::rows(args)) {
                const auto x = from[a.row(i) * Config::a_stride_row + a.k(i) * Config::a_stride_k];
                if constexpr (!Config::scaled) a.x[i] = x;
                else a.x[i] = to_float(x) * Scales::a(args, t.batch, m0 + a.row(i), k0 + a.k(i));
            } else a.x[i] = ElementA{};
    }
    DEV void get_b(ShareB &b, const Tile &t, i64 k0) const
    {
#pragma unroll
        for (int i = 0; i < b.each; i++) {
            const i64 n = Columns::column(t.first, b.row(i));
            const auto *from = rows_of_b<Config>(args, n) + t.batch * Config::b_batch(args);
            if (k0 + b.k(i) < Config::k && n < Config::n) {
                const auto x = Weights::at(from, n, k0 + b.k(i));
                if constexpr (!Config::scaled) b.x[i] = x;
                else b.x[i] = to_float(x) * Scales::b(args, t.batch, n, k0 + b.k(i));
            } else b.x[i] = ElementB{};
        }
    }

    using Accumulators = float[blocks][Config::bn / 2];

    DEV void multiply(Accumulators &acc, const Drain &d) const
    {
#pragma unroll(blocks *Config::bn > 128 ? 1 : 4)
        for (int k = 0; k < bk; k++) {
            float a[blocks][2];
#pragma unroll
            for (int i = 0; i < 2 * blocks; i++)
                a[i / 2][i % 2] = s.a[k][d.first_row + d.row_in_group(i / 2, i % 2)];
#pragma unroll
            for (int o = 0; o < Config::bn / 8; o++) {
                const float b0 = s.b[k][d.column_in_tile(o)], b1 = s.b[k][d.column_in_tile(o) + 1];
#pragma unroll
                for (int i = 0; i < 2 * blocks; i++) {
                    float *c = &acc[i / 2][4 * o + 2 * (i % 2)];
                    c[0] = fmaf(a[i / 2][i % 2], b0, c[0]);
                    c[1] = fmaf(a[i / 2][i % 2], b1, c[1]);
                }
            }
        }
    }

    DEV void run_tile(const Tile &t, const Drain &drain) const
    {
        ShareA a;
        ShareB b;
        Accumulators acc = {};
        get_a(a, t, 0), get_b(b, t, 0);
        for (int step = 0; step < steps; step++) {
            __syncthreads(); // the last step has been read
            a.put(s.a), b.put(s.b);
            __syncthreads();
            get_a(a, t, (i64)(step + 1) * bk), get_b(b, t, (i64)(step + 1) * bk);
            multiply(acc, drain);
        }
        drain.prepare(t);
        drain.drain(acc, t);
    }

    DEV void run() const
    {
        ptx::grid_wait();
        const int group = ptx::uniform(threadIdx.x / 128);
        const Drain drain(args, s.values[group], group);
        const Raster<Config> walk = {args};
        for (u32 i = block.index(); i < walk.count(); i += block.count()) run_tile(walk.tile(i), drain);
        ptx::grid_launch_next();
    }
};

template <class Config, class Epilogue, class Block>
DEV void gemm_simt(const typename Config::Args &args, const Block &block)
{
    using Gemm = GemmSimt<Config, Epilogue, Block>;
    Gemm{args, *(typename Gemm::Shared *)block.shared(), block}.run();
}

} // namespace coda
