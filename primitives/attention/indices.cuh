// indices.cuh -- whole numbers that the caller stores as int32 or as int64, read as int32.
//
// What int32 cannot hold becomes the nearest that it can, so that a number out of range stays out of range.
// Which of the two it is the compiler knows where a kernel names its pointer.
#pragma once
#include "types.cuh"

namespace coda {

struct Indices {
    const void *at;
    bool wide;

    DEV Indices(const void *at, bool wide) : at(at), wide(wide) {}

    DEV Indices(decltype(nullptr)) : Indices(nullptr, false) {}
    DEV Indices(const i32 *p) : Indices(p, false) {}
    DEV Indices(const i64 *p) : Indices(p, true) {}

    DEV static i32 saturated(i64 x)
    {
        constexpr i32 most = 0x7fffffff;
        return x > most ? most : x < -most - 1 ? -most - 1 : (i32)x;
    }
    DEV Indices operator+(i64 i) const
    {
        if (wide) return static_cast<const i64 *>(at) + i;
        return static_cast<const i32 *>(at) + i;
    }
    DEV i32 operator[](i64 i) const
    {
        if (wide) return saturated(static_cast<const i64 *>(at)[i]);
        return static_cast<const i32 *>(at)[i];
    }
};

} // namespace coda
