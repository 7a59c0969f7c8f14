/*
 * tile.c -- the tile and main loop of a GEMM, by its shape: a pure function.
 *
 * Every tile that a main loop of the table offers (mainloop_*.c) has a cost, and the cheapest one wins,
 * unless tuning measured another (tune.c).
 */
#include "mainloop.h"

#include <string.h>

/* May the main loop be asked? A program whose rows are to keep their bits has the first that takes any number
 * of rows; of streams that is one which says so, and then no other is asked. */
static bool may_ask(const struct search *s, const struct mainloop *m, enum tile_class class)
{
    if (s->p->invariant && ((m->streams && !m->invariant) || class == TILES_NAMED)) return false;
    return !m->fallback || (s->n == 0 && class == TILES_KNOWN);
}

void search_run(struct search *s, const struct target *target, enum tile_class class)
{
    s->target = target;
    s->n = 0;
    for (int i = 0; mainloops[i]; i++) {
        bool reads =
            (mainloops[i]->weights || !use_is_packed(&s->p->b.data)) && (mainloops[i]->parts || !s->p->parts);
        bool asked = reads && may_ask(s, mainloops[i], class) && mainloops[i]->supports(target, s->p);
        if (asked) mainloops[i]->candidates(s, class);
        if (asked && s->p->invariant && mainloops[i]->invariant) break;
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
    struct tile t = tile_fallback;
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
