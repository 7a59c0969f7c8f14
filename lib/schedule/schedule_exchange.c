/* schedule_exchange.c -- exchanges between ranks: the launch of our kernel, where there is to be one. All
 * ranks have the same, whatever their devices are: block b waits for the others' block b. */
#include "exchange.h"
#include "schedule.h"

enum {
    FEW_THREADS = 64,
    MANY_THREADS = 256,
    FEW_PIECES = 1 << 13,
    MOST_BLOCKS = 512, /* all of a card's SMs have room for them at once */
    BESIDE_THREADS = 1024
};

void schedule_exchange(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct exchange_spec *of = q->spec;
    int trips = exchange_trips(of, opt->exchange);
    if (!trips) return;
    int64_t pieces = exchange_pieces(of, trips);
    s->tile.stages = trips;
    s->threads = pieces <= FEW_PIECES ? FEW_THREADS : MANY_THREADS;
    s->grid = MIN(CEIL_DIV(pieces, s->threads), MOST_BLOCKS);
}

void schedule_exchanges_beside(struct plan *p)
{
    for (int i = 0; i < p->programs && p->beside; i++) {
        struct schedule *s = &p->schedule[i];
        int64_t threads = s->grid * s->threads;
        if (!p->beside[i] || threads <= BESIDE_THREADS) continue;
        s->threads = BESIDE_THREADS;
        s->grid = MIN(CEIL_DIV(threads, BESIDE_THREADS), EXCHANGE_BESIDE_BLOCKS);
    }
}
