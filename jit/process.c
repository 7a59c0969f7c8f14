/*
 * process.c -- what the library keeps for the whole process, and gives back when it is unloaded; and what it
 * says there.
 *
 * After dlclose() nobody is in the library any more, so its own cache, the primitives' sources, idle
 * kernels and cuBLASLt's handles go. At exit other threads may still be in it, and the memory goes anyway:
 * nothing is touched. The two are told apart by their order: exit() calls what atexit() has registered
 * before it comes to destructors, dlclose() after them.
 *
 * NVRTC, cuBLASLt and the driver stay loaded, for they may have threads; the next copy of this library
 * finds them. So does device 0's primary context, which host threads may have current.
 */
#include "compile.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void jit_write(int fd, const char *text) { (void)fd_write(fd, text, strlen(text)); }

static atomic_bool watched, exiting;

static void note_exit(void) { atomic_store(&exiting, true); }

/* If it cannot be registered nothing is ever given back. */
void process_keeps(void)
{
    if (!atomic_exchange(&watched, true) && atexit(note_exit)) note_exit();
}

__attribute__((destructor)) static void give_back(void)
{
    if (!atomic_load(&watched) || atomic_load(&exiting)) return;
    jit_unload_idle();
    cublaslt_drop();
    jit_cache_drop();
    sources_drop();
}
