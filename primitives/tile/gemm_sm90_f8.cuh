// gemm_sm90_f8.cuh -- gemm_sm90 of fp8 operands: 128 k in a slot, whose sums are added up in fp32.
//
// wgmma keeps some 14 bits of fp8 sums (ptx/wgmma_f8.cuh): over K = 4096 that is an error of 2 % where it
// matters. So a consumer multiplies one slot into sums of its own and adds these to its accumulators, as
// DeepGEMM and CUTLASS do: every 128 k, an error of 2^-13 of the largest addend. It costs a register for each
// accumulator, or for those of 64 rows where a slot is multiplied by pieces, hence tiles of at most 192 sums
// a thread in all; and an instruction for each of them and slot: n / 2 issue slots beside the 2 n clocks of
// the slot's products, hidden where another block, or the consumer itself (promotion.cuh), multiplies
// meanwhile. So consumers share a tile and take no turns. Scales of blocks of 128 k make some multiplications
// for each slot, of rows' by columns'.
#pragma once

#include "ptx/wgmma_f8.cuh"
#include "tile/gemm_sm90.cuh"

namespace coda {

template <class Config> struct ProductsF8 {
    static constexpr int bk = swizzle_row;
    static constexpr bool promotes = true;
    static_assert(!Config::a_mn_major && !Config::b_mn_major && !Config::pingpong && !Config::tail);

    template <int n> DEV static void issue(float (&d)[n / 2], u64 a, u64 b, bool accumulate)
    {
        ptx::WgmmaF8<typename Config::A, typename Config::B, n>::mma(d, a, b, accumulate);
    }
    template <int n> DEV static void issue_half(float (&d)[n / 2], u64 a, u64 b, bool accumulate)
    {
        ptx::WgmmaF8<typename Config::A, typename Config::B, n>::mma_half(d, a, b, accumulate);
    }
};

template <class Config, class Epilogue, class Share = Config, class Block>
DEV void gemm_sm90_f8(const typename Config::Args &args, const Block &block)
{
    run_gemm_sm90<Config, Epilogue, Share, ProductsF8<Config>>(args, block);
}

} // namespace coda
