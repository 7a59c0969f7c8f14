// system.cuh -- emulated: see primitives/ptx/system.cuh.
#pragma once

#include "types.cuh"

namespace coda::ptx {

struct alignas(16) Words {
    u32 at[4];
};

DEV void store_system(void *to, const Words &w) { emu_system_store(to, w.at, 4); }
DEV Words load_system(const void *from)
{
    Words w;
    emu_system_load(w.at, from, 4);
    return w;
}
DEV void store_device(void *to, const Words &w) { store_system(to, w); } // as all devices see it
DEV Words load_device(const void *from) { return load_system(from); }
DEV float load_float_device(const void *from)
{
    u32 w;
    emu_system_load(&w, from, 1);
    return bits_float(w);
}
DEV void store_word_system(void *to, u32 w) { emu_system_store(to, &w, 1); }
DEV u32 load_word_system(const void *from)
{
    u32 w;
    emu_system_load(&w, from, 1);
    return w;
}
DEV bool claim_word(u32 *at, u32 old, u32 w) { return emu_system_claim(at, old, w); }
DEV u32 add_word(u32 *at, u32 w) { return emu_system_add(at, w); }
DEV void fence_system() { emu_system_fence(); }
DEV void fence_device() { emu_system_fence(); }
DEV u8 *computed(u8 *p) { return p; }
DEV u64 nanoseconds() { return emu_nanoseconds(); }
DEV void pause(u32) {} // who polls rests

} // namespace coda::ptx
