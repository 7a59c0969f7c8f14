/*
 * tile.c -- the tile and mainloop of a GEMM, by its shape: a pure function.
 *
 * Every tile that the program allows (tile_fits.c) gets a price (tile_price.c), and the cheapest one wins,
 * unless tuning measured another (tune.c).
 * A row, or two short ones: streamed. Up to 8 rows: streamed through the matrix units. Few rows: one
 * consumer, two blocks on an SM. Few columns too: a cluster of blocks shares K. Many rows: the last tiles of
 * each row are narrower, so that all SMs end together.
 * What was seldom faster has a price that only says which of it tuning should measure first: many waves of
 * tiles walked in squares, the largest tiles only so; clusters that share K and scatter its sums, where more
 * rows leave SMs idle; clusters that share operands; three consumers, whose tiles are the squarest; 9 to 16
 * rows that stream, and fewer in half of an SM's memory, or in clusters that they could do without.
 */
#include "epilogue_layout.h"
#include "tile_parts.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define WORTH_A_TAIL 0.995 /* of the price without: the kernel takes 0.1 s more to compile         */

enum {
    SHARED_BYTES = 232448, /* of a Hopper block, when the machine does not say                    */
    SMS = 132,             /* likewise                                                            */
    FEW_ROWS = 16,         /* up to these rows half of an SM's memory keeps a block's weights coming */
    MOST_SPLIT_ROWS = 64,
    BAND_ROWS = 1024,      /* rows of A in a raster group, which thus stay in L2                  */
    MOST_WIDE_STAGES = 4,  /* ring slots of wide tiles with many rows: see stages_of              */
    LEAST_STAGES = 3,
    LARGE_TILE = 128 * 256, /* elements; larger tiles take less power: faster in long runs alone  */
    FEW_WAVES = 6,         /* up to this many waves, square rasterization with alternating direction
                              of K is faster (measured, with many rows)                           */
    STREAM_PIECE = 6144,   /* GEMV: elements of a row of B that a slot of the ring holds          */
    STREAM_PIECES = 5,     /* GEMV: pieces of a row of A that fit a thread's registers            */
    SKINNY_ROWS = 8,       /* up to these rows SKINNY is faster than SM90; up to FEW_ROWS as fast */
    SKINNY_PIECE = 1024,   /* SKINNY: elements of each of 8 rows of B that a slot holds           */
    SKINNY_STEP = 256,     /* SKINNY: elements of K that 8 warps multiply at once, 32 each        */
    SKINNY_SPLITS = 2,     /* SKINNY: most blocks that share K                                    */
    SKINNY_ELEMENTS = 8 * 11264, /* SKINNY: elements of A that fit the registers of a block       */
    TAIL_FROM = 192,       /* only tiles this wide may have a tail: with others L2 would not keep up */
    MOST_TAIL = 16,        /* narrow tiles of each row                                            */
    LEAST_TAIL_K = 512,    /* with a shorter loop over K the compiler would unroll both widths' loops */
    MOST_CANDIDATES = 128
};

/* ---- The cheapest ---- */

struct search { /* the cheapest `n` of at most `most`, by price */
    const struct program *p;
    int sms, shared_bytes;
    bool square; /* tiles are walked in squares                                                    */
    struct tile tile[MOST_CANDIDATES];
    double price[MOST_CANDIDATES];
    int n, most;
};

static bool same(const struct tile *a, const struct tile *b)
{
    return a->bm == b->bm && a->bn == b->bn && a->groups == b->groups && a->pingpong == b->pingpong &&
           a->splits == b->splits && a->scattered == b->scattered && a->cluster_m == b->cluster_m &&
           a->cluster_n == b->cluster_n && a->across == b->across && a->serpentine == b->serpentine &&
           a->stages == b->stages && a->lends == b->lends && a->tail == b->tail && a->tail_bn == b->tail_bn;
}

/* Inserts a candidate by its price, unless it is there already. Stable: equal prices keep the order in which
 * they came. */
static void keep(struct search *s, const struct tile *t, double price)
{
    int at = s->n;
    while (at > 0 && price < s->price[at - 1]) at--;
    for (int i = 0; i < at; i++)
        if (same(&s->tile[i], t)) return;
    if (at == s->most) return;
    if (s->n < s->most) s->n++;
    for (int i = s->n - 1; i > at; i--) {
        s->tile[i] = s->tile[i - 1];
        s->price[i] = s->price[i - 1];
    }
    s->tile[at] = *t;
    s->price[at] = price;
}

/* The stages of t's ring: as many as fit in `room` bytes. But a deeper ring lets blocks drift apart, and with
 * many rows they then no longer find in L2 what others have loaded: wide tiles have four at most. */
static int stages_of(const struct program *p, const struct tile *t, int room)
{
    bool drifts = p->dim[1] > MOST_ODD_ROWS && t->bn > 128;
    return MIN(tile_stages(p, t, room), drifts ? MOST_WIDE_STAGES : INT_MAX);
}

/*
 * With many rows, what all SMs multiply at one time, a wave, is too much for L2 to keep until the next wave:
 * memory gives its rows and columns each time, and least of them if it is as high as it is wide. So bands of
 * as many columns as make a whole number of rows of all SMs. And what a wave read last, the next one reads
 * first. Measured on an H200: up to 4 % faster in few waves; as fast as bands of 8 rows, within 1 %, in many.
 */
static void walk_in_squares(const struct search *s, struct tile *t)
{
    int cm = tile_cluster_m(t), cn = tile_cluster_n(t), all = s->sms / (cm * cn);
    int64_t columns = CEIL_DIV(s->p->dim[2], t->bn * cn);
    double least = INFINITY;
    for (int wide = 1; wide <= all && wide <= columns; wide++) {
        int high = all / wide;
        double left_over = wide * high < all ? 1.1 : 1;
        double side = (double)(high * cm * t->bm + wide * cn * t->bn) / (wide * high) * left_over;
        if (side >= least) continue;
        least = side;
        t->band = wide * cn;
    }
    t->across = t->serpentine = true;
}

/* Makes each raster group as large as a wave of tiles or larger, so that every block has a tile in each. */
static void walk_with_tail(const struct search *s, struct tile *t)
{
    int64_t whole = CEIL_DIV(s->p->dim[2] - (int64_t)t->tail * t->tail_bn, t->bn);
    t->band = (int)MAX(BAND_ROWS / t->bm, CEIL_DIV(s->sms, whole));
}

/* ---- Candidates ---- */

static bool has_waves(const struct search *s) { return s->p->dim[1] > MOST_ODD_ROWS; }

static bool has_few_waves(const struct search *s, const struct program *p)
{
    return has_waves(s) && program_blocks(p) <= FEW_WAVES * (int64_t)s->sms;
}

/* Does the epilogue stage in free slots of the ring? That leaves memory for more stages. But a block that has
 * a further tile loads it later: then only in few waves, if consumers cooperate and fewer than four stages
 * would fit. */
static bool lends(const struct search *s, const struct tile *t, int room)
{
    struct program p = *s->p;
    p.tile = *t;
    bool once = program_blocks(&p) <= s->sms, short_of_slots = tile_stages(&p, t, room) < MOST_WIDE_STAGES;
    bool together = !t->pingpong && short_of_slots && (has_few_waves(s, &p) || s->square);
    p.tile.lends = true;
    p.tile.stages = stages_of(&p, &p.tile, room);
    return (once || together) && program_may_lend(&p);
}

static void consider(struct search *s, struct tile t)
{
    struct program p = *s->p;
    t.mainloop = MAINLOOP_SM90;
    t.bk = 64;
    p.tile = t;
    bool half = t.groups == 1 && s->p->dim[1] <= FEW_ROWS; /* so that two blocks fit an SM        */
    int room = half ? (s->shared_bytes - 1024) / 2 : s->shared_bytes;
    bool large = t.groups == 2 && t.bm * t.bn > LARGE_TILE, tried = s->square && tile_cluster(&t) == 1;
    bool lean = t.bm == 64 && t.bn > 128 && s->p->dim[1] > MOST_ODD_ROWS; /* L2 would not keep up */
    if (lean || (large && !tried) || !tile_fits(&p)) return;
    t.lends = lends(s, &t, room);
    t.stages = stages_of(s->p, &t, room);
    if (t.tail) walk_with_tail(s, &t);
    else if (s->square || has_few_waves(s, &p)) walk_in_squares(s, &t);
    else t.band = MAX(BAND_ROWS / t.bm / tile_cluster_m(&t), 1) * tile_cluster_m(&t);
    if (t.stages >= LEAST_STAGES) keep(s, &t, tile_price(&p, &t, s->sms));
}

/* Tiles of one consumer warpgroup, for few rows: a block on its own, or a split-K cluster, as long as all
 * blocks of the grid run at once. */
static void consider_narrow(struct search *s, int bn)
{
    const int64_t *d = s->p->dim;
    int64_t tiles = d[0] * CEIL_DIV(d[2], bn);
    if (bn > 128 || d[1] > MOST_SPLIT_ROWS) return;
    if (d[1] <= FEW_ROWS) consider(s, (struct tile){.bm = 64, .bn = bn, .groups = 1});
    for (int splits = 2; splits <= 8 && tiles * splits <= s->sms; splits *= 2)
        consider(s, (struct tile){.bm = 64, .bn = bn, .groups = 1, .splits = splits});
}

/* Adds tile t with the tail that makes it cheapest, if that saves enough to be worth a longer kernel. */
static void consider_tail(struct search *s, struct tile t)
{
    static const int width[] = {128, 64};
    struct program p = *s->p;
    struct tile best = t;
    if (s->p->k < LEAST_TAIL_K || s->sms > TILE_MOST_BLOCKS) return;
    t.mainloop = MAINLOOP_SM90, t.stages = MOST_WIDE_STAGES, t.blocks = s->sms;
    double least = WORTH_A_TAIL * tile_price(s->p, &t, s->sms);
    for (int i = 0; i < ARRAY_SIZE(width); i++)
        for (t.tail = 1, t.tail_bn = width[i]; t.tail <= MOST_TAIL; t.tail++) {
            p.tile = t;
            if (!tail_fits(&p) || program_blocks(&p) <= FEW_WAVES * (int64_t)s->sms) continue;
            walk_with_tail(s, &t);
            double price = tile_price(s->p, &t, s->sms);
            if (price < least) best = t, least = price;
        }
    if (best.tail) consider(s, best);
}

/* Adds the variants of one tile that a class of candidates has. */
typedef void forms(struct search *s, struct tile t);

static void alone(struct search *s, struct tile t)
{
    if (t.bm == 128 && t.pingpong) consider_narrow(s, t.bn);
    consider(s, t);
    if (t.bm == 128 && t.bn == TAIL_FROM && t.pingpong) consider_tail(s, t);
}

/* Clusters of two blocks that share a multicast load of B, or of A. */
static void clustered(struct search *s, struct tile t)
{
    t.cluster_m = 2;
    consider(s, t);
    t.cluster_m = 0, t.cluster_n = 2;
    consider(s, t);
}

static void alone_or_clustered(struct search *s, struct tile t)
{
    if (t.bn < 128 && s->p->dim[1] > MOST_ODD_ROWS) return; /* L2 would not keep up                   */
    consider(s, t);
    clustered(s, t);
}

/* Heads of odd sizes need odd widths; few rows, widths that fill a wave. */
static void consider_widths(struct search *s, struct tile t, forms *consider_forms)
{
    static const int width[] = {128, 192, 256, 64, 32, 16}, odd[] = {96, 112, 176, 224};
    int head = program_is_half_rope(s->p) ? (int)s->p->rope.head_dim : 512;
    for (int i = 0; i < ARRAY_SIZE(width); i++) t.bn = width[i], consider_forms(s, t);
    for (int i = 0; i < ARRAY_SIZE(odd) && s->p->dim[1] <= MOST_ODD_ROWS; i++)
        t.bn = odd[i], consider_forms(s, t);
    for (t.bn = head; t.bn <= 256; t.bn += head) consider_forms(s, t);
}

static void consider_two(struct search *s, forms *consider_forms)
{
    consider_widths(s, (struct tile){.bm = 128, .groups = 2, .pingpong = true}, consider_forms);
    consider_widths(s, (struct tile){.bm = 64, .groups = 2, .pingpong = true}, consider_forms);
    consider_widths(s, (struct tile){.bm = 128, .groups = 2}, consider_forms);
    consider_widths(s, (struct tile){.bm = 256, .groups = 2}, consider_forms);
}

/* KNOWN tiles of few waves are walked in squares already: only the others are new. */
static void squared(struct search *s, struct tile t)
{
    struct program p = *s->p;
    p.tile = t;
    if (!has_few_waves(s, &p)) consider(s, t);
}

static void consider_squares(struct search *s)
{
    s->square = true;
    if (has_waves(s)) consider_two(s, squared);
}

static void consider_clustered(struct search *s)
{
    s->square = has_waves(s);
    consider_two(s, clustered);
}

static void consider_three(struct search *s)
{
    s->square = has_waves(s);
    if (s->p->dim[1] > 128) consider_widths(s, (struct tile){.bm = 192, .groups = 3}, alone_or_clustered);
}

/* Split-K by reduce-scatter, where large tiles leave SMs idle: in 2 or 4 parts, if all blocks run at once and
 * keep at least 45 % of the SMs busy. */
static void consider_scattered(struct search *s)
{
    static const struct { int bm, bn; } size[] = {{128, 128}, {128, 256}, {256, 128}};
    const int64_t *d = s->p->dim;
    if (d[1] <= MOST_SPLIT_ROWS || d[1] > MOST_ODD_ROWS) return;
    for (int i = 0; i < ARRAY_SIZE(size); i++)
        for (int splits = 2; splits <= 4; splits *= 2) {
            struct tile t = {.bm = size[i].bm, .bn = size[i].bn, .groups = 2};
            int64_t blocks = mul_counts(d[0] * CEIL_DIV(d[1], t.bm) * CEIL_DIV(d[2], t.bn), splits);
            if (blocks > s->sms) continue;
            bool busy = 20 * blocks >= 9 * s->sms;
            t.splits = splits, t.scattered = true;
            if (busy && t.bm < d[1] + 128) consider(s, t);
        }
}

/* ---- Streaming: a few rows, multiplied at memory's pace ---- */

/* Does GEMV take the program: one row of A, or two short ones, that fit the registers? */
static bool suits_gemv(const struct program *p)
{
    int64_t pieces = CEIL_DIV(p->k, STREAM_PIECE);
    return p->k % 8 == 0 && (p->dim[1] == 1 ? pieces <= STREAM_PIECES : p->dim[1] == 2 && pieces == 1);
}

/* Does SKINNY take the program in clusters of `splits` blocks: has each a part of K, and does the part of A
 * that goes with it fit its registers? */
static bool suits_skinny(const struct program *p, int splits)
{
    int64_t rows = CEIL_DIV(p->dim[1], 8) * 8, part = CEIL_DIV(p->k, SKINNY_STEP * splits) * SKINNY_STEP;
    bool all = p->k % SKINNY_STEP == 0 && p->k > part * (splits - 1);
    return p->dim[1] > 1 && rows <= 16 && all && rows * part <= SKINNY_ELEMENTS;
}

/* Cuts K into the fewest pieces of at most `most` elements and makes them as equal as multiples of `step` can
 * be: the length of all but the last. */
static int piece(int64_t k, int most, int step) { return (int)CEIL_DIV(k, step * CEIL_DIV(k, most)) * step; }

static void consider_stream(struct search *s, struct tile t, int room)
{
    struct program q = *s->p;
    int64_t columns = q.dim[2];
    t.bm = (int)q.dim[1], t.bn = 16, t.groups = 2, t.band = 1;
    if (program_is_half_rope(&q)) t.bn = (int)q.rope.head_dim;
    t.blocks = (int)MIN(columns / 4, s->sms) / tile_splits(&t) * tile_splits(&t);
    t.stages = tile_stages(&q, &t, room);
    if (t.blocks && t.stages >= LEAST_STAGES) keep(s, &t, tile_stream_price(&q, &t, s->sms));
}

/* Bytes of shared memory for one of two blocks on an SM: the next program's can begin beside this one's. */
static int half_room(const struct search *s) { return (s->shared_bytes - 1024) / 2; }

static bool may_stream(const struct program *p)
{
    bool whole = p->dim[0] == 1 && p->dim[2] % 16 == 0 && p->dim[2] < INT32_MAX;
    return whole && !operand_is_mn_major(&p->a) && !operand_is_mn_major(&p->b);
}

static void consider_gemv(struct search *s)
{
    struct tile t = {.mainloop = MAINLOOP_GEMV, .bk = piece(s->p->k, STREAM_PIECE, 8)};
    if (may_stream(s->p) && suits_gemv(s->p)) consider_stream(s, t, half_room(s));
}

static struct tile skinny_tile(const struct program *p, int splits)
{
    int64_t part = CEIL_DIV(p->k, SKINNY_STEP * splits) * SKINNY_STEP;
    int bk = piece(part, SKINNY_PIECE, SKINNY_STEP);
    return (struct tile){.mainloop = MAINLOOP_SKINNY, .bk = bk, .groups = 2, .splits = splits};
}

/* Blocks that share K in the KNOWN skinny tile, each alone on its SM: the fewest with which A fits their
 * registers; 0 if p has no such tile. */
static int known_splits(const struct program *p)
{
    if (p->dim[1] > SKINNY_ROWS || suits_gemv(p) || !may_stream(p)) return 0;
    for (int splits = 1; splits <= SKINNY_SPLITS; splits++)
        if (suits_skinny(p, splits)) return splits;
    return 0;
}

static void consider_known_skinny(struct search *s)
{
    int splits = known_splits(s->p);
    if (splits) consider_stream(s, skinny_tile(s->p, splits), s->shared_bytes);
}

/* The skinny tiles that are not KNOWN: in half of an SM's memory, where registers leave room for a block of
 * the next program too, and split as the KNOWN one is not. */
static void consider_skinny(struct search *s)
{
    struct program q = *s->p;
    for (int splits = 1; splits <= SKINNY_SPLITS && may_stream(s->p); splits++) {
        if (!suits_skinny(s->p, splits)) continue;
        q.tile = skinny_tile(s->p, splits);
        if (program_shares_sm(&q)) consider_stream(s, q.tile, half_room(s));
        if (splits != known_splits(s->p)) consider_stream(s, q.tile, s->shared_bytes);
    }
}

static struct tile simt_tile(const struct program *p)
{
    struct tile t = {.mainloop = MAINLOOP_SIMT, .bn = 64, .bk = 16, .stages = 1, .groups = 1, .band = 8};
    int head = (int)p->rope.head_dim;
    if (program_is_half_rope(p)) t.bn = head >= 64 ? head : 64 / head * head;
    t.bm = p->dim[1] > 64 && t.bn <= 64 ? 128 : 64;
    return t;
}

static void consider_known(struct search *s)
{
    consider_gemv(s);
    consider_known_skinny(s);
    consider_two(s, alone);
}

int tile_candidates(const struct program *p, const struct machine *m, enum tile_class class,
                    struct tile *out, int most)
{
    static void (*const consider_class[TILE_CLASSES])(struct search *) = {
        [TILES_KNOWN] = consider_known,
        [TILES_SQUARE] = consider_squares,
        [TILES_SCATTERED] = consider_scattered,
        [TILES_CLUSTERED] = consider_clustered,
        [TILES_THREE] = consider_three,
        [TILES_SKINNY] = consider_skinny};
    struct search s = {.p = p, .sms = m->sms > 0 ? m->sms : SMS, .most = MIN(most, MOST_CANDIDATES)};
    s.shared_bytes = m->shared_bytes > 0 ? m->shared_bytes : SHARED_BYTES;
    if (m->sm90 && tile_fits_sm90(p) && tile_pairs_ok(p)) consider_class[class](&s);
    if (!s.n && class == TILES_KNOWN) s.tile[s.n++] = simt_tile(p);
    memcpy(out, s.tile, sizeof *out * (size_t)s.n);
    return s.n;
}

struct tile tile_choose(const struct program *p, const struct machine *m)
{
    struct tile t;
    tile_candidates(p, m, TILES_KNOWN, &t, 1);
    return t;
}

static bool is_named(const struct tile *tile, const char *words)
{
    struct text t = {0};
    tile_print(tile, &t);
    bool same = !strcmp(text_str(&t), words);
    text_free(&t);
    return same;
}

struct tile tile_named(const struct program *p, const struct machine *m, const char *words)
{
    struct tile all[MOST_CANDIDATES];
    for (int class = 0; class < TILE_CLASSES && *words; class++) {
        int n = tile_candidates(p, m, class, all, MOST_CANDIDATES);
        for (int i = 0; i < n; i++)
            if (is_named(&all[i], words)) return all[i];
    }
    return tile_choose(p, m);
}
