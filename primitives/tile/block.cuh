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

} // namespace coda
