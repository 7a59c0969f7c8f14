// parts.cuh -- B in several tensors: q's, k's and v's weights, or gate's and up's.
//
// A Config that has b_rows() says for a row of B from which address it is as far away as if all parts lay
// together.
#pragma once

#include "types.cuh"

namespace coda {

template <class Config, class Args>
DEV auto parts_rows(const Args &args, i64 n, int) -> decltype(Config::b_rows(args, n))
{
    return Config::b_rows(args, n);
}
template <class Config, class Args> DEV auto parts_rows(const Args &args, i64, long) -> decltype(args.b)
{
    return args.b;
}

// What row n of B is counted from.
template <class Config, class Args> DEV auto rows_of_b(const Args &args, i64 n)
{
    return parts_rows<Config>(args, n, 0);
}

// How far the part that has row n is from where it would be if all lay together.
template <class Config, class Args> struct FarRows {
    const Args *args;
    int first;
    DEV i64 of(int row) const { return rows_of_b<Config>(*args, first + row) - args->b; }
};
struct NearRows {
    DEV i64 of(int) const { return 0; }
};
template <class Config, class Args>
DEV auto far_rows(const Args &args, int first, int)
    -> decltype(Config::b_rows(args, first), FarRows<Config, Args>{})
{
    return {&args, first};
}
template <class Config, class Args> DEV NearRows far_rows(const Args &, int, long) { return {}; }

} // namespace coda
