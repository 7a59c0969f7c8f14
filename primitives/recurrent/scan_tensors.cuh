// scan_tensors.cuh -- what kernels of selective scans read and write, the rows of their sequences, and the
// numbers that all of them make alike. Config is theirs.
#pragma once
#include "math.cuh"
#include "ptx/tma.cuh"
#include "recurrent/sequences.cuh"

namespace coda {

// Elements from a sequence and from a row to the next.
struct ScanStrides {
    i64 batch, time;
};

// By which ScanTiles loads whole tiles of rows, and stores y: of [columns, rows / 4, 4, batches], so that of
// a tile each fourth row is adjacent to the first one. Rows behind the last four are in none.
struct ScanMaps {
    TensorMap x, dt, b, c, gate, y;
};

template <class Config> struct ScanTensors {
    typedef typename Config::T T;

    const T *x;
    const typename Config::D *dt;
    const float *a;
    const T *b, *c;
    const typename Config::S *state;
    const typename Config::I *starts;
    const float *bias, *skip;
    const T *gate;
    T *y;
    typename Config::A *after;
    const ScanStrides &of_x, &of_dt, &of_b, &of_c, &of_gate, &of_y;
    i32 sequences, rows;            // of each; packed, of all
    const T *weights = nullptr;     // ScanToken's w
    const ScanMaps *maps = nullptr; // of ScanTiles, or none

    // log(1 + e^x); error 2e-7 + 4e-8 |x|. map::softplus would take a second reciprocal's time for less.
    DEV static float softplus(float x)
    {
        const float y = math::exp2(fabsf(x) * -math::LOG2_E);
        float p = 0.0052326927f; // log(1 + y) / y from 0 to 1
        p = fmaf(p, y, -0.029505232f);
        p = fmaf(p, y, 0.07822594f);
        p = fmaf(p, y, -0.13663244f);
        p = fmaf(p, y, 0.19106007f);
        p = fmaf(p, y, -0.24842982f);
        p = fmaf(p, y, 0.33319098f);
        p = fmaf(p, y, -0.49999493f);
        p = fmaf(p, y, 0.99999994f);
        return fmaf(p, y, math::max(x, 0.0f));
    }
    // d of a token and head.
    DEV static float make_step(float dt, float bias)
    {
        if (Config::bias) dt += bias;
        return Config::softplus ? softplus(dt) : dt;
    }

    // Rows of sequence b; there is none behind the last.
    DEV SequenceRows find_rows(i32 b) const
    {
        SequenceRows of = {b, 0, (u32)rows};
        if constexpr (Config::packed) {
            of.end = 0;
            const PackedSequences<typename Config::I> all = {starts, Config::starts_stride, (u32)sequences,
                                                             (u32)rows};
            if (b < sequences) of = all.rows_of(b);
        }
        return of;
    }
};

} // namespace coda
