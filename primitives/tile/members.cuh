// members.cuh -- a launch that computes several programs, whose texts are equal.
#pragma once

#include "tile/block.cuh"

namespace coda {

// Its parameter: the arguments of each program, and which blocks it has. They are read where they are wanted,
// by an index: no branch, and no copy.
template <class Args, int members> struct Members {
    Args args[members];
    u32 first[members], blocks[members];

    // Whose this block is.
    DEV u32 member() const
    {
        u32 i = 0;
#pragma unroll
        for (int m = 1; m < members; m++) i += blockIdx.x >= first[m];
        return i;
    }
};

// A block among those of its program.
template <class All, class Launched> struct MemberBlock : Launched {
    const All &all;

    DEV MemberBlock(const All &all, const Launched &block) : Launched(block), all(all) {}
    DEV u32 index() const { return blockIdx.x - all.first[all.member()]; }
    DEV u32 count() const { return all.blocks[all.member()]; }
};

} // namespace coda
