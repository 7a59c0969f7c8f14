// block.cuh -- where the body of a kernel runs: which block it is of how many, and the memory that the block
// has. A body asks its argument, not the launch, so that a kernel may run several. What it asks is a function
// of a type that the body has as a template parameter: so a launch's numbers are read where they are used,
// and compile to what blockIdx and gridDim do.
#pragma once
#include "types.cuh"

namespace coda {

// A block of a launch, with its dynamic shared memory. Neighbours are in one cluster.
struct LaunchedBlock {
    DEV static u32 index() { return blockIdx.x; }
    DEV static u32 count() { return gridDim.x; }
    DEV static u8 *shared()
    {
        extern __shared__ __align__(1024) u8 memory[];
        return memory;
    }
};

// A block of a launch, with memory that the kernel has declared.
template <class Shared> struct DeclaredBlock : LaunchedBlock {
    Shared &memory;

    DEV explicit DeclaredBlock(Shared &memory) : memory(memory) {}
    DEV u8 *shared() const { return (u8 *)&memory; }
};

// The parameter of a launch that computes several programs, whose texts are equal: the arguments of each, and
// which blocks it has. They are read where they are wanted, by an index: no branch, and no copy.
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
