// scan_tensors.cuh -- what kernels of selective scans read and write, and the rows of their sequences.
// Config is theirs.
#pragma once
#include "recurrent/sequences.cuh"

namespace coda {

// Elements from a sequence and from a row to the next.
struct ScanStrides {
    i64 batch, time;
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
    i32 sequences, rows; // of each; packed, of all

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
