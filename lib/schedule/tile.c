/*
 * tile.c -- the tile and main loop of a GEMM, by its shape: a pure function.
 *
 * Every tile that a main loop of the table offers (mainloop_*.c) has a cost, and the cheapest one wins,
 * unless tuning measured another (tune.c).
 */
#include "mainloop.h"

#include <string.h>

enum { SHARED_BYTES = 232448 }; /* of a Hopper block, when the target does not say */

void search_run(struct search *s, const struct target *target, enum tile_class class)
{
    s->target = target;
    s->sms = target->sms > 0 ? target->sms : TARGET_SMS;
    s->shared_bytes = target->shared_bytes > 0 ? target->shared_bytes : SHARED_BYTES;
    s->n = 0;
    for (int i = 0; mainloops[i]; i++) {
        if (mainloops[i]->fallback && (s->n || class != TILES_KNOWN)) continue;
        if (mainloops[i]->supports(target, s->p)) mainloops[i]->candidates(s, class);
    }
}

int tile_candidates(const struct program *p, const struct target *target, enum tile_class class,
                    struct tile *out, int most)
{
    struct search s = {.p = p, .most = MIN(most, MOST_CANDIDATES)};
    search_run(&s, target, class);
    memcpy(out, s.tile, sizeof *out * (size_t)s.n);
    return s.n;
}

struct tile tile_choose(const struct program *p, const struct target *target)
{
    struct tile t;
    tile_candidates(p, target, TILES_KNOWN, &t, 1);
    return t;
}

struct tile tile_offered(const struct program *p, const struct target *target, const struct tile *wanted)
{
    struct tile all[MOST_CANDIDATES];
    for (int class = 0; class <= TILES_NAMED; class ++) {
        int n = tile_candidates(p, target, class, all, MOST_CANDIDATES);
        for (int i = 0; i < n; i++)
            if (tile_equal(&all[i], wanted)) return all[i];
    }
    return tile_choose(p, target);
}
