/* schedule_exchange.c -- exchanges between ranks: the launch of our kernel, where there is to be one. All
 * ranks have the same, whatever their devices are: block b waits for the others' block b. */
#include "exchange.h"
#include "schedule.h"
#include "wgmma.h"

enum {
    FEW_THREADS = 64,
    MANY_THREADS = 256,
    FEW_PIECES = 1 << 13,
    MOST_BLOCKS = 512, /* all of a card's SMs have room for them at once */
    BESIDE_THREADS = 1024,
    SUM_THREADS = 512,
    SUM_PIECES = 4 /* of a thread */
};

/* A sum of what was copied waits for nobody, so that its blocks may be as many as they like. */
static void schedule_copies(struct schedule *s, const struct exchange_spec *of)
{
    int64_t bytes = dtype_bytes(of->use[ALL_REDUCE_X].dtype, exchange_part(of));
    s->tile.stages = EXCHANGE_BY_COPIES;
    s->threads = SUM_THREADS;
    s->grid = CEIL_DIV(bytes, SUM_THREADS * SUM_PIECES * 16);
}

void schedule_exchange(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct exchange_spec *of = q->spec;
    int trips = exchange_trips(of, opt->exchange);
    if (of->moves) schedule_copies(s, of);
    if (!trips || of->moves) return;
    int64_t pieces = exchange_pieces(of, trips);
    s->tile.stages = trips;
    s->threads = pieces <= FEW_PIECES ? FEW_THREADS : MANY_THREADS;
    s->grid = MIN(CEIL_DIV(pieces, s->threads), MOST_BLOCKS);
    if (s->grid && exchange_copies(of, opt->exchange, false)) schedule_copies(s, of);
}

static void schedule_few(struct schedule *s, int64_t threads)
{
    s->threads = BESIDE_THREADS;
    s->grid = MIN(CEIL_DIV(threads, BESIDE_THREADS), EXCHANGE_BESIDE_BLOCKS);
}

/* Products of two consumers leave registers for a warp of 32 each, if what they do leaves memory for it. */
static void leave_warp(struct schedule *s, const struct program *q, const struct target *target)
{
    enum { OF_WARP = 1024 }; /* bytes that a block has besides its own */
    if (q->kind != PROGRAM_GEMM || s->tile.mainloop != &mainloop_wgmma) return;
    int bytes = wgmma_bytes_beside_warp(q, &s->tile);
    s->leaves_warp = bytes && bytes + OF_WARP <= target->shared_bytes;
}

void schedule_exchanges_beside(struct plan *p, const struct plan_options *opt)
{
    for (int i = 0; i < p->programs && p->beside; i++) {
        struct schedule *s = &p->schedule[i];
        const struct exchange_spec *of = p->program[i].spec;
        int64_t threads = s->grid * s->threads;
        for (int k = i + 1; p->beside[i] && of->moves && k < p->beside[i]; k++)
            leave_warp(&p->schedule[k], &p->program[k], &opt->target);
        if (!p->beside[i] || s->tile.stages == EXCHANGE_BY_COPIES) continue;
        if (s->grid && exchange_copies(p->program[i].spec, opt->exchange, true))
            schedule_copies(s, p->program[i].spec);
        else if (threads > BESIDE_THREADS) schedule_few(s, threads);
    }
}
