/* emit_attention_walk.c -- how many heads the blocks of a persistent attention kernel walk together, and
 * which of a head's tiles are small: attention/tile_walk.cuh. */
#include "emit_attention.h"

#define BAND_BYTES (20 << 20) /* keys and values of a band, which stay in L2 beside what streams through it */

enum { MOST_WALKERS = 256 };   /* blocks whose work is counted, ... */
enum { MOST_TILES = 1 << 14 }; /* ... with so many tiles, ... */
enum { MOST_CANDIDATES = 8 };  /* ... for so many numbers of bands */

/* The heads whose keys and values are walked, and how wide so many equal bands of them are. */
static int64_t key_heads(const struct attention_spec *a) { return a->batch * a->kv_heads; }
static int64_t width(const struct attention_spec *a, int64_t bands)
{
    return CEIL_DIV(key_heads(a), bands) * (a->heads / a->kv_heads);
}

/* Blocks of keys of a tile, the last of which its last query sees. */
static int64_t blocks_of(const struct attention_text *e, int64_t tile)
{
    const struct attention_spec *a = e->a;
    int64_t last = MIN((tile + 1) * e->s->tile.bm, a->tq) - 1;
    int64_t end = last + attention_shift(a, a->tq, a->tk) + a->ahead + 1;
    return CEIL_DIV(MAX(MIN(end, a->tk), 0), e->s->tile.bn);
}

/* What the busiest block has to do, in blocks of keys, of which a tile costs one beside its own. */
static int64_t busiest(const struct attention_text *e, int64_t span)
{
    const struct attention_spec *a = e->a;
    int64_t load[MOST_WALKERS] = {0}, most = 0, at = 0, round = 0;
    int64_t tiles = CEIL_DIV(a->tq, e->s->tile.bm), streams = a->batch * a->heads;
    for (int64_t band = CEIL_DIV(streams, span); band > 0; band--, streams -= span)
        for (int64_t i = 0; i < tiles; i++) {
            int64_t tile = band % 2 == 0 ? i : tiles - 1 - i, cost = 1 + blocks_of(e, tile);
            for (int64_t k = MIN(span, streams); k > 0; k--) {
                load[round % 2 ? e->sms - 1 - at : at] += cost;
                if (++at == e->sms) at = 0, round++;
            }
        }
    for (int i = 0; i < e->sms; i++) most = MAX(most, load[i]);
    return most;
}

/* Bands are as equal as can be, and keys and values of one fit in L2. Under a causal mask tiles are of all
 * lengths, and how evenly they are dealt depends on how wide bands are: some more widths are tried. */
int64_t emit_attention_band(const struct attention_text *e)
{
    const struct attention_spec *a = e->a;
    int64_t bytes = 4 * a->tk * a->head_dim, fit = MAX(1, BAND_BYTES / bytes);
    int64_t least = CEIL_DIV(key_heads(a), fit), best = least, load = 0;
    int64_t tiles = a->batch * a->heads * CEIL_DIV(a->tq, e->s->tile.bm);
    bool same = !attention_is_limited(a) || a->window || e->s->cluster > 1;
    if (same || e->sms > MOST_WALKERS || tiles <= e->sms || tiles > MOST_TILES) return width(a, least);
    for (int64_t bands = least; bands < least + MOST_CANDIDATES && bands <= key_heads(a); bands++) {
        int64_t now = busiest(e, width(a, bands));
        if (bands == least || now < load) best = bands, load = now;
    }
    return width(a, best);
}

int64_t emit_attention_whole(const struct attention_text *e)
{
    if (e->a->shares) return CEIL_DIV(e->a->tq, e->s->tile.bm);
    bool small = attention_may_end_small(e->a, e->s->cluster);
    return attention_whole(e->a, e->s->tile.bm, small, e->sms, NULL);
}
