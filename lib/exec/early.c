/*
 * early.c -- which launches start before the kernel ahead has ended, and what keeps their blocks apart.
 */
#include "executable.h"
#include "runner.h"
#include "schedule.h"

/* ---- Blocks apart ---- */

enum { BLOCK_OWN = 1024 }; /* bytes of an SM's shared memory that each block takes besides its own */

static int taken(int shared_bytes) { return shared_bytes + BLOCK_OWN; }
static int of_sm(const struct jit_device *gpu) { return taken(gpu->shared_bytes); }

/* The least with which so much of an SM has room for one block alone. */
static int alone(int room) { return (room / 2 - BLOCK_OWN) / BLOCK_OWN * BLOCK_OWN + BLOCK_OWN; }

int early_most_shared(const struct launch_spec *l, const struct jit_device *gpu)
{
    return l->streams && l->early ? MAX(l->shared_bytes, alone(of_sm(gpu))) : l->shared_bytes;
}

/*
 * A kernel that streams weights has a block for each SM, and the next one's stand beside them, as two
 * fit. But an early launch's blocks go wherever there is room. Behind attention, which has 64 blocks of
 * a whole SM each, that is two on each of the other 68 SMs of an H200; then attention ends, and the
 * next kernel's blocks go by twos to its 64 SMs; and so on to the next attention, each kernel on one
 * half of the SMs. That is nearly enough for bf16, whose pace is memory's, and half of the pace of 4
 * bits, which is that of instructions: a token of 7B in int4 took 2.92 ms, its launches one by one
 * 1.85.
 *
 * So a launch of as many blocks asks for more than half of an SM; or of what the kernel ahead leaves,
 * if that has a block on each SM. The block behind fits beside it still.
 */
unsigned early_shared(const struct jit_launch *l, const struct jit_launch *ahead,
                      const struct jit_device *gpu)
{
    int own = (int)l->shared_bytes, sm = of_sm(gpu);
    if (l->grid != (unsigned)gpu->sms) return l->shared_bytes;
    int left = ahead && ahead->grid == (unsigned)gpu->sms ? sm - taken((int)ahead->shared_bytes) : sm;
    return (unsigned)MAX(own, alone(taken(own) <= left ? left : sm));
}

/* ---- Starts ---- */

/*
 * A launch with the `pdl` attribute starts when all blocks of the kernel ahead have started and said so,
 * not when they have ended. That is right for an early program that follows a kernel of its own run:
 * - Until its wait it reads only an operand that no program of the run writes; of a cache whose last rows
 *   one does append, only what has none of these (appended.cuh). A run's first launch is an ordinary one:
 *   once it has started, all that the stream held before the run has ended.
 * - Its wait ends when the kernel ahead has ended, with all its blocks. These wait for the one ahead of
 *   them before they end, and so on: after the wait all earlier programs of the run have ended. So what
 *   they wrote is complete, and memory that programs use one after the other is free.
 * - What follows the run in the stream waits for the last kernel, thus for all. A captured run has the
 *   same order, as edges of its graph; runs on other streams were never ordered with this one.
 *
 * A program of a second stream, and one that waits for such, is an ordinary launch.
 *
 * A long program starts when the kernel ahead has ended all the same. An early start gives each block to
 * whichever SM is free first, a plain one deals neighbouring blocks to neighbouring SMs; and these read the
 * same tiles at the same time, which L2 then answers once. Measured on an H100 under sustained load: a layer
 * of D 8192 and 16384 tokens takes 44.4 ms with early starts and 39.7 without, one of D 4096 10.5 and 10.0.
 */
void early_starts(struct coda_plan *p)
{
    const struct compiled_program *ahead = NULL; /* a kernel of this run */
    for (int i = 0; i < p->plan.programs; i++) {
        const struct program *q = &p->plan.program[i];
        struct compiled_program *c = &p->program[i];
        if (q->prepare || !c->runner || c->aside) continue;
        bool early = c->runner->kernel && c->emitted.launch.early && !program_is_long(q, &p->plan.target);
        c->launch.pdl = ahead && early && c->after < 0;
        if (c->launch.pdl && c->emitted.launch.streams) {
            bool streams = ahead->emitted.launch.streams;
            c->launch.shared_bytes = early_shared(&c->launch, streams ? &ahead->launch : NULL, &p->gpu);
        }
        ahead = c->runner->kernel ? c : NULL;
    }
}
