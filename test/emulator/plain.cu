// plain.cu -- an instance of the plain kernel of primitives/tile, for test_plain.c.
#include "tile/gemm_sm90_plain.cuh"

using namespace coda;

struct Config {
    using T = bf16;
    static constexpr int m = 200, k = 328, bn = 128, stages = 3, groups = 2;
};

extern "C" __global__ void __launch_bounds__(384, 1) plain(const __grid_constant__ PlainArgs args)
{
    gemm_sm90_plain<Config>(args);
}
