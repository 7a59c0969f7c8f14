/*
 * buckets.c -- values of a symbol to which others may be rounded up.
 *
 * From the largest value down: the next bucket is the largest value below the last one whose run costs so
 * much less that it should not be rounded up to that. Values are counted in steps of the symbol's `multiple`,
 * and looked at in turn, 16 of each doubling; where one of them is the first that costs too little, the
 * border is sought between it and the one before by halving, since prices there all but rise. Borders of
 * tiles are multiples of powers of two, as are the values looked at.
 */
#include "shapes.h"

#include <stdlib.h>

enum { SIDES = 2 }; /* all other symbols at their least, and at their most */

struct prices {
    double of[SIDES];
};

struct hunt {
    const coda_plan *p;
    const struct dims *t;
    int symbol, sides;
    double allowed;  /* of a price, that of the bucket */
    int64_t *bucket; /* falling */
    int buckets, room;
};

/* The prices of the value that is so many steps. No rows at all cost nothing beside any other number. */
static coda_status price(const struct hunt *h, int64_t steps, struct prices *out)
{
    int64_t dims[MOST_SYMBOLS];
    coda_status status = CODA_OK;
    for (int side = 0; side < h->sides && !status; side++) {
        for (int i = 0; i < h->t->symbols; i++) {
            const struct symbol *s = &h->t->symbol[i];
            dims[i] = side ? s->most : MIN(MAX(s->least, s->multiple), s->most);
        }
        dims[h->symbol] = steps * h->t->symbol[h->symbol].multiple;
        status = shapes_price(h->p, dims, &out->of[side]);
    }
    return status;
}

static bool may_round_up(const struct hunt *h, const struct prices *from, const struct prices *to)
{
    for (int side = 0; side < h->sides; side++)
        if (to->of[side] > from->of[side] * h->allowed) return false;
    return true;
}

static bool keep(struct hunt *h, int64_t steps)
{
    if (h->buckets == h->room) {
        int room = MAX(32, 2 * h->room);
        int64_t *wider = realloc(h->bucket, sizeof *wider * (size_t)room);
        if (!wider) return false;
        h->bucket = wider;
        h->room = room;
    }
    h->bucket[h->buckets++] = steps;
    return true;
}

/* The next one below of those that are looked at: of 5 bits, then zeros. */
static int64_t look_below(int64_t steps)
{
    int64_t unit = 1;
    while (steps - 1 >= 32 * unit) unit *= 2;
    return (steps - 1) / unit * unit;
}

/* `low` costs too little to be rounded up and `high` does not: moves low up to the last that costs too
 * little. */
static coda_status find_border(const struct hunt *h, int64_t *low, struct prices *at_low, int64_t high,
                               const struct prices *bucket)
{
    while (high - *low > 1) {
        int64_t middle = *low + (high - *low) / 2;
        struct prices at;
        coda_status status = price(h, middle, &at);
        if (status) return status;
        if (may_round_up(h, &at, bucket)) high = middle;
        else *low = middle, *at_low = at;
    }
    return CODA_OK;
}

static coda_status hunt(struct hunt *h, int64_t least, int64_t most)
{
    struct prices bucket, at;
    coda_status status = price(h, most, &bucket);
    if (!status && !keep(h, most)) status = fail(CODA_E_MEMORY, "plan_buckets: out of memory");
    for (int64_t last = most; !status && last > least;) {
        int64_t next = MAX(look_below(last), least);
        status = price(h, next, &at);
        if (!status && !may_round_up(h, &at, &bucket)) {
            status = find_border(h, &next, &at, last, &bucket);
            bucket = at;
            if (!status && !keep(h, next)) status = fail(CODA_E_MEMORY, "plan_buckets: out of memory");
        }
        last = next;
    }
    return status;
}

coda_status shapes_buckets(const coda_plan *p, const struct bucket_request *w, int64_t *out, int most,
                           int *count)
{
    const struct dims *t = shapes_graph(p->shapes)->dims;
    const struct symbol *s = &t->symbol[w->symbol];
    struct hunt h = {.p = p, .t = t, .symbol = w->symbol, .sides = t->symbols > 1 ? SIDES : 1};
    int64_t last = s->most / s->multiple, first = MAX(s->least / s->multiple, 1);
    h.allowed = 1 + w->percent / 100.0;
    coda_status status = hunt(&h, first, last);
    for (int i = 0; !status && i < MIN(h.buckets, most); i++)
        out[i] = h.bucket[h.buckets - 1 - i] * s->multiple;
    *count = h.buckets;
    free(h.bucket);
    return status;
}
