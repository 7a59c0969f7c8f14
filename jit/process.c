/*
 * process.c -- what the library keeps for the whole process, and gives back when it is unloaded; and what it
 * says there.
 *
 * After dlclose() nobody is in the library any more, so its own cache, the primitives' sources, idle
 * kernels and cuBLASLt's handles go. At exit other threads may still be in it, and the memory goes anyway:
 * nothing is touched. The two are told apart by their order: exit() calls what atexit() has registered
 * before it comes to destructors, dlclose() after them.
 *
 * NVRTC has destructors, too, and crashes if they run while another thread compiles. So exit() waits for what
 * compiles, a second or two, and no compilation begins any more. Its handlers run in reverse order: ours is
 * registered when NVRTC is there, and again when it has compiled something, behind what it registered at its
 * first use. The wait has no locks, which fork() may leave taken, and ends some day.
 *
 * NVRTC, cuBLASLt and the driver stay loaded, for they may have threads; the next copy of this library
 * finds them. So does device 0's primary context, which host threads may have current.
 */
#include "compile.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void jit_write(int fd, const char *text) { (void)fd_write(fd, text, strlen(text)); }

static atomic_bool watched, exiting;

/* ---- At exit ---- */

static _Atomic uint64_t compiling; /* the process's id, which a child of fork() does not have, and how many */

static uint64_t compilations(uint64_t state)
{
    return state >> 32 == (uint32_t)getpid() ? (uint32_t)state : 0;
}

static void count_compilations(int more)
{
    uint64_t old = atomic_load(&compiling), new;
    do new = (uint64_t)getpid() << 32 | (uint32_t)(compilations(old) + (uint64_t)more);
    while (!atomic_compare_exchange_weak(&compiling, &old, new));
}

static void note_exit(void)
{
    enum { STEP_US = 1000, STEPS = 30000 };
    atomic_store(&exiting, true);
    for (int i = 0; i < STEPS && compilations(atomic_load(&compiling)); i++) usleep(STEP_US);
}

static void watch_exit(atomic_bool *done)
{
    if (!atomic_exchange(done, true) && atexit(note_exit)) atomic_store(&exiting, true);
}

bool process_compiles(void)
{
    static atomic_bool loaded;
    watch_exit(&loaded);
    count_compilations(1);
    if (!atomic_load(&exiting)) return true;
    count_compilations(-1);
    return false;
}

void process_compiled(void)
{
    static atomic_bool used;
    count_compilations(-1);
    watch_exit(&used);
}

/* ---- At the end of the library ---- */

/* If it cannot be registered nothing is ever given back. */
void process_keeps(void) { watch_exit(&watched); }

__attribute__((destructor)) static void give_back(void)
{
    if (!atomic_load(&watched) || atomic_load(&exiting)) return;
    jit_unload_idle();
    cublaslt_drop();
    jit_cache_drop();
    sources_drop();
}
