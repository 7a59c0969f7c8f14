/* attention_rounds.c -- how the last round of a persistent attention kernel's tiles is shared out, where all
 * queries see all keys: attention/tile_walk.cuh. */
#include "attention_kernel.h"

enum { MOST_WALKERS = 256 };   /* blocks whose work is counted, ... */
enum { MOST_TILES = 1 << 14 }; /* ... with so many tiles */

enum {
    WHOLE = 100, /* what a tile takes, ... */
    OF_TWO = 80, /* ... and one of 64 queries, with a warpgroup of two, ... */
    OF_THREE = 65,
    OF_PARTS = 6, /* what a part takes beside its blocks of keys, and joining them */
    WORTH_IT = 97 /* of the time without these */
};

/* What the busiest block has to do if so many tiles are whole, and then so many small. */
static int64_t busiest_of(int64_t sms, int bm, int64_t whole, int64_t small)
{
    int64_t load[MOST_WALKERS] = {0}, most = 0;
    int share = bm > 128 ? OF_THREE : OF_TWO;
    for (int64_t i = 0; i < whole + small; i++) {
        int64_t at = i % sms, walker = i / sms % 2 ? sms - 1 - at : at;
        load[walker] += i < whole ? WHOLE : share;
    }
    for (int i = 0; i < sms; i++) most = MAX(most, load[i]);
    return most;
}

/* Tiles are equally long where all queries see all keys: a last round of few of them, or of few whose rows
 * all exist, leaves most blocks idle. As many of a head's last queries are in small tiles as fill it best. */
int64_t attention_whole(const struct attention_spec *a, int bm, bool small, int sms, int64_t *load)
{
    int64_t tiles = CEIL_DIV(a->tq, bm), streams = a->batch * a->heads, best = tiles;
    int64_t most = CEIL_DIV(sms, MAX(streams, 1)) + 1;
    bool may = small && tiles * streams > sms;
    if (!may || sms > MOST_WALKERS || tiles * streams > MOST_TILES) return tiles;
    int64_t all = busiest_of(sms, bm, tiles * streams, 0), least = all * WORTH_IT / 100;
    if (load) *load = all;
    for (int64_t whole = tiles - 1; whole > 0 && whole >= tiles - most; whole--) {
        int64_t now = busiest_of(sms, bm, whole * streams, CEIL_DIV(a->tq - whole * bm, 64) * streams);
        if (now >= least) continue;
        best = whole, least = now;
        if (load) *load = now;
    }
    return best;
}

bool attention_may_share(const struct attention_spec *a, int bm, int bn, int sms)
{
    int64_t tiles = CEIL_DIV(a->tq, bm) * a->batch * a->heads, load = 0;
    int64_t blocks = CEIL_DIV(a->tk, bn);
    attention_whole(a, bm, true, sms, &load);
    bool counts = blocks * sms <= INT32_MAX / sms && blocks < 1 << 15; /* in so many bits */
    return load && counts && (tiles * WHOLE + sms - 1) / sms + OF_PARTS < load * WORTH_IT / 100;
}

double attention_rounds(const struct attention_spec *a, int bm, int bn, int sms)
{
    double tiles = (double)(CEIL_DIV(a->tq, bm) * a->batch * a->heads);
    int64_t load = CEIL_DIV((int64_t)tiles, sms) * WHOLE;
    if (attention_may_share(a, bm, bn, sms)) return tiles / sms;
    attention_whole(a, bm, true, sms, &load);
    return (double)load / WHOLE;
}
