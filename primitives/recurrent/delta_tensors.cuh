// delta_tensors.cuh -- what kernels of the gated delta rule read and write, and the rows of their sequences.
// Config is theirs.
#pragma once
#include "recurrent/sequences.cuh"

namespace coda {

struct StateStrides {
    i64 batch, head, row;
};

template <class Config> struct DeltaTensors {
    typedef typename Config::T T;
    typedef typename Config::Index Index;

    const T *q, *k, *v;
    const typename Config::Decay *decay;
    const typename Config::Beta *beta;
    const typename Config::Before *before;
    const Index *starts;
    T *o;
    typename Config::After *after;
    RowStrides of_q, of_k, of_v, of_decay, of_beta, of_o;
    StateStrides of_before, of_after;
    u32 sequences, time;
    const float *bias = nullptr, *rate = nullptr; // of heads; Config::gates
    const typename Config::Gain *gain = nullptr;  // of a head's columns; Config::gated
    const T *z = nullptr;
    RowStrides of_z = {};

    DEV PackedSequences<Index> packed() const { return {starts, Config::starts_stride, sequences, time}; }
};

} // namespace coda
