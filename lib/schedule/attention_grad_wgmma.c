/* attention_grad_wgmma.c -- 16-bit tensors by TMA and wgmma; attention_grad_sm90.cuh. */
#include "attention_grad_kernel.h"
#include "attention_kernel.h"

#define BAND_BYTES (32 << 20) /* of walked rows that stay in L2 */

enum {
    MOST_HEAD = 128, /* columns of dk and of dv that registers hold together */
    GROUPS = 2,
    NARROW_HEAD = 64,
    WALKED_QUERIES = 64,
    NARROW_WALKED_QUERIES = 96, /* sums of narrow heads leave registers for more */
    WALKED_KEYS = 128,
    MOST_STAGES = 4,
    SWIZZLED_ROW = 128, /* bytes */
    SWIZZLED_COLUMNS = 64,
    ALIGNED = 1024,
    BAND_TILES = 512 /* at least: in several rounds long tiles and short ones add up alike */
};

/* Has the attention nothing that moves borders or scores but a window? */
static bool is_bare(const struct attention_spec *a)
{
    static const int none[] = {ATTENTION_LENGTHS, ATTENTION_RANGES, ATTENTION_STARTS};
    for (int i = 0; i < ARRAY_SIZE(none); i++)
        if (attention_has(a, none[i])) return false;
    return attention_is_plain(a);
}

/* Does each query see some key? Of what stands ahead the first one sees least, of what lies behind the last
 * one. The row of do of a query that sees none may be NaN, and 0 times NaN is NaN. */
static bool all_see(const struct attention_spec *a)
{
    int64_t first = attention_shift(a, a->tq, a->tk), last = first + a->tq - 1;
    bool ahead = !attention_is_limited(a) || first + a->ahead >= 0;
    return ahead && (!a->window || last - a->window + 1 < a->tk);
}

static bool fits(const struct attention_grad_spec *s, const struct attention_spec *a,
                 const struct target *target)
{
    static const int none[] = {ATTENTION_GRAD_DSINKS, ATTENTION_GRAD_DBIAS, ATTENTION_GRAD_DSLOPES};
    const struct attention_terms on = {.target = target, .invariant = true}; /* extents of 1 are as others */
    struct attention_spec read = *a, written = *a; /* as if they were results and operands of an attention */
    struct reason ignored;
    for (int i = 0; i < ARRAY_SIZE(none); i++)
        if (attention_grad_has(s, none[i])) return false;
    read.use[ATTENTION_O] = s->use[ATTENTION_GRAD_DO];
    written.use[ATTENTION_O] = s->use[ATTENTION_GRAD_DQ];
    if (attention_grad_has(s, ATTENTION_GRAD_DK)) written.use[ATTENTION_K] = s->use[ATTENTION_GRAD_DK];
    if (attention_grad_has(s, ATTENTION_GRAD_DV)) written.use[ATTENTION_V] = s->use[ATTENTION_GRAD_DV];
    return a->head_dim <= MOST_HEAD && is_bare(a) && all_see(a) &&
           attention_fits_units(&read, &on, &ignored) && attention_fits_units(&written, &on, &ignored);
}

/* Rows of two tensors, in chunks of 64 columns. */
static int64_t rows_bytes(const struct attention_spec *a, int64_t rows)
{
    return 2 * rows * CEIL_DIV(a->head_dim, SWIZZLED_COLUMNS) * SWIZZLED_ROW;
}

/* Stages of walked rows beside own ones in so many bytes. */
static int stages(const struct attention_spec *a, int bm, int bn, int64_t bytes)
{
    int64_t fit = (bytes - rows_bytes(a, bm)) / rows_bytes(a, bn);
    return (int)MAX(MIN(fit, MOST_STAGES), 0);
}

/* Beside all rows: sums of walked queries, barriers, and what aligning adds. */
static int64_t beside(int bn)
{
    return MOST_STAGES * 2 * 4 * (int64_t)bn + 2 * (3 + 3 * MOST_STAGES) * 8 + ALIGNED;
}

int attention_grad_key_stages(const struct attention_spec *a, const struct tile *tile, int shared_bytes)
{
    return stages(a, tile->bm, tile->bk, shared_bytes - beside(tile->bn));
}

/* Bands are of whole key heads, and walk BAND_BYTES at most, but for the sake of BAND_TILES. */
struct attention_grad_walk attention_grad_walk(const struct attention_grad_spec *s, const struct tile *tile,
                                               bool of_keys)
{
    const struct attention_spec a = attention_grad_of(s);
    bool keys = attention_grad_has(s, ATTENTION_GRAD_DK) || attention_grad_has(s, ATTENTION_GRAD_DV);
    int64_t each = of_keys ? 1 : a.heads / a.kv_heads, all = a.batch * a.kv_heads;
    int64_t walked = of_keys ? a.tq * (a.heads / a.kv_heads) : a.tk;
    struct attention_grad_walk w = {.rows = CEIL_DIV(of_keys ? a.tk : a.tq, tile->bm)};
    int64_t fit = BAND_BYTES / (4 * MAX(walked, 1) * a.head_dim), least = CEIL_DIV(BAND_TILES, w.rows * each);
    w.band = CEIL_DIV(all, CEIL_DIV(all, MAX(fit, least))) * each;
    if (of_keys ? keys : attention_grad_has(s, ATTENTION_GRAD_DQ)) w.streams = all * each;
    w.bands = CEIL_DIV(w.streams, w.band);
    return w;
}

static struct attention_grad_tile tile(const struct attention_grad_spec *s, const struct attention_spec *a,
                                       const struct target *target)
{
    struct attention_grad_tile t = {.bm = 64 * GROUPS,
                                    .bn = a->head_dim <= NARROW_HEAD ? NARROW_WALKED_QUERIES : WALKED_QUERIES,
                                    .bk = WALKED_KEYS,
                                    .threads = 128 * (1 + GROUPS),
                                    .persistent = true};
    int64_t room = target->shared_bytes - beside(t.bn);
    int of_keys = stages(a, t.bm, t.bk, room);
    (void)s;
    t.stages = stages(a, t.bm, t.bn, room);
    if (of_keys < 2 || t.stages < 2) return (struct attention_grad_tile){.threads = t.threads};
    int64_t rows = rows_bytes(a, t.bm) + MAX(t.stages * rows_bytes(a, t.bn), of_keys * rows_bytes(a, t.bk));
    t.shared_bytes = CEIL_DIV(rows + beside(t.bn), ALIGNED) * ALIGNED;
    return t;
}

const struct attention_grad_kernel attention_grad_wgmma = {.index = ATTENTION_GRAD_BY_WGMMA,
                                                           .suffix = "wgmma",
                                                           .unit = "AttentionGradSm90",
                                                           .fits = fits,
                                                           .tile = tile};
