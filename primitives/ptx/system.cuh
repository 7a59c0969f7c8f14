// system.cuh -- memory that several devices, or blocks of one, write and poll: stores, loads and a fence of
// the system's scope or the device's, which takes less time; the time by which a wait ends, and pauses in it.
//
// Each 4 bytes are seen by themselves: of 16 that a store writes a load may see some, and nothing else is
// ordered by having seen them.
#pragma once

#include "types.cuh"

namespace coda::ptx {

struct alignas(16) Words {
    u32 at[4];
};

DEV void store_system(void *to, const Words &w)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w.at[0]), "r"(w.at[1]),
                 "r"(w.at[2]), "r"(w.at[3])
                 : "memory");
}
DEV Words load_system(const void *from)
{
    Words w;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.at[0]), "=r"(w.at[1]), "=r"(w.at[2]), "=r"(w.at[3])
                 : "l"(from)
                 : "memory");
    return w;
}
DEV void store_device(void *to, const Words &w)
{
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w.at[0]), "r"(w.at[1]),
                 "r"(w.at[2]), "r"(w.at[3])
                 : "memory");
}
DEV Words load_device(const void *from)
{
    Words w;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.at[0]), "=r"(w.at[1]), "=r"(w.at[2]), "=r"(w.at[3])
                 : "l"(from)
                 : "memory");
    return w;
}
DEV void store_word_system(void *to, u32 w)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(w) : "memory");
}
DEV u32 load_word_system(const void *from)
{
    u32 w;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(w) : "l"(from) : "memory");
    return w;
}

// A word of the own device's becomes `w` instead of `old` by one thread alone: was it this one?
DEV bool claim_word(u32 *at, u32 old, u32 w)
{
    u32 before;
    asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(before)
                 : "l"(at), "r"(old), "r"(w)
                 : "memory");
    return before == old;
}

// Adds to a word of the own device's: what it was before.
DEV u32 add_word(u32 *at, u32 w)
{
    u32 before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(w) : "memory");
    return before;
}

DEV float load_float_device(const void *from)
{
    float x;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
    return x;
}

// What this thread, and those that it met at a barrier, stored before is there before what it stores behind.
DEV void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
DEV void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// p, of which the compiler does not know that it may compute it later.
DEV u8 *computed(u8 *p)
{
    asm volatile("" : "+l"(p));
    return p;
}

// Nanoseconds of a clock that runs on while others of the device do not.
DEV u64 nanoseconds()
{
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
// For so long, more or less.
DEV void pause(u32 ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns)); }

} // namespace coda::ptx
