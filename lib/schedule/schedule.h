/* schedule.h -- from what a program computes to how it runs on one target. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "epilogue_layout.h"
#include "own.h"
#include "rows_schedule.h"
#include "tile.h"

struct attention_kernel;
struct attention_grad_kernel;

/*
 * How one program runs on the plan's target. schedule() decides what other programs depend on: the tile, and
 * with it the states that a reduction leaves. schedule_complete() adds what follows from it, of programs of
 * which a kernel is wanted. After that nobody writes it; emitters read it and ask nothing again.
 */
struct schedule {
    struct tile tile;              /* GEMM. OWN: bm, bn and stages, in words of its kernel; bm 0: no
                                      tile fits */
    const struct figures *figures; /* GEMM: times that tuning measured; NULL: it measured none */
    const struct attention_kernel *attention;           /* of an attention: attention_kernel.h; else NULL */
    const struct attention_grad_kernel *attention_grad; /* of gradients: attention_grad_kernel.h; else NULL */
    int residents;                        /* OWN: blocks on an SM for which registers are kept; 0: 1 */
    const struct exchange_spec *exchange; /* ROWS: the sum over ranks that it makes of what it loads of its
                                             result's buffer, which nobody writes; or NULL */
    int chunk; /* OWN: tokens that tensor cores take together; 0: it has none, or takes one by one */

    /* From here on by schedule_complete. */
    struct epilogue_layout layout; /* GEMM: what the epilogue's steps need of the tile */
    struct rows_walk walk;         /* ROWS */
    int64_t grid;                  /* blocks, 1-D; 0 for an empty domain: not launched. For a
                                      persistent kernel an upper bound, clipped to the SMs */
    int threads, shared_bytes;     /* of a block */
    int cluster;                   /* blocks of a tile cluster, of which the grid is a multiple;
                                      0 is 1 */
    bool persistent;               /* blocks loop over tiles: the grid has one for each SM at most */
    bool early;                    /* programmatic dependent launch: may start before the program
                                      ahead of it has ended; until then it reads steady operands
                                      alone, and writes nothing */
    bool reads_early;              /* attention: it does read then */
    int64_t parts_bytes;           /* attention: memory for parts of the last round's tiles; 0: none */
    bool pdl;                      /* the target has it: every kernel waits for those ahead */
    bool leaves_warp;              /* GEMM: an SM that runs a block has room for a warp of another kernel,
                                      with which ranks meet */
};

/* exchange_rows.c: may the rows program behind this exchange make its sum over ranks, of what it loads? Then
 * its schedule says so. The buffers have their places. */
coda_status schedule_join_exchange(struct plan *p, int exchange, bool *joined);
/* Exchanges that others run beside (plan.beside): few blocks, each of as many threads as a block may have,
 * for the SMs that those leave. A product's blocks take all registers of an SM, so none is beside another. */
enum { EXCHANGE_BESIDE_BLOCKS = 16 };
void schedule_exchanges_beside(struct plan *p, const struct plan_options *opt);
/* exchange_parts.c: products that two ranks add up beside others become two parts, before any is scheduled;
 * what the ranks copy has its places. */
coda_status schedule_parts(struct plan *p, const struct plan_options *opt);

/* ---- schedule.c ---- */

/* Fills plan.schedule, one for each program in its order: tiles, main loops, and the sizes of what depends on
 * them. Bare products go to cuBLASLt, where opt or a decision wants it. */
coda_status schedule(struct plan *p, const struct plan_options *opt);
/* Adds to s, in the arena, what the kernel of q needs besides. */
coda_status schedule_complete(struct schedule *s, struct arena *a, const struct program *q,
                              const struct target *target);

/* The same of a product that differs in nothing but its rows from one whose schedule is complete, in the same
 * tile, which is for any number of them; false: that says too little. Layouts are shared. */
bool schedule_complete_like(struct schedule *s, const struct schedule *other, const struct program *q,
                            const struct target *target);

/* together.c: which products are one launch, before any has its tile; that is theirs, then. Programs may
 * change places. */
coda_status schedule_together(struct plan *p, const struct plan_options *opt);
/* Blocks of each of a launch's programs, which have so many tiles each: one for each tile; or, if blocks walk
 * over tiles, which then there are so many SMs for, so that all end after the same number of tiles. Returns
 * that number. sms 0: one for each. */
int64_t launch_shares(const int64_t *tiles, int members, int sms, int64_t *blocks);

/* price.c: clock cycles of a run on the plan's target, by price; and what a host does in a run, as bytes. */
double plan_price(const struct plan *p);
double plan_work(const struct plan *p);
/* Do the products of q take so long that the order in which SMs get its blocks counts for more than the few
 * microseconds of a launch? See early_starts in exec/early.c. */
bool program_is_long(const struct program *q, const struct target *t);

/* slow.c: why kernels are not the fast ones, a line each (CODA_TEXT_REASONS); false if memory runs out. */
bool schedule_reasons(const struct plan *p, struct text *t);
/* schedule_attention.c: what is in the way of Hopper's units; kind REASON_NONE: nothing. */
struct reason attention_reason(const struct program *q, const struct target *target);

/* schedule_NAME.c: all of s for a program of an own_kind. */
#define X(NAME, name)                                                                                        \
    void schedule_##name(struct schedule *s, const struct program *q, const struct plan_options *opt);
OWN_KERNELS(X)
#undef X

/* ---- plan_print.c: a plan with its schedule ---- */

void plan_print(const struct plan *p, struct text *t);
const char *debug_plan(const struct plan *p); /* for a debugger: see debug_show */
/* One program; p NULL: without names, places and schedule, so that equal programs have equal texts. */
/* Its tile, or which kernel it is of those that an attention has; nothing of other programs. */
void schedule_print(const struct program *q, const struct schedule *s, struct text *t);
void program_print(const struct plan *p, const struct program *q, struct text *t);

#endif
