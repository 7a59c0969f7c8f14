/*
 * tile.c -- the tile and mainloop of a GEMM, by its shape: a pure function.
 *
 * Every tile that the program's pairs and layouts allow gets a price in clock cycles, and the cheapest
 * one wins, unless tuning measured another (tune.c):
 *     max(waves * (max(products, traffic) + traffic * power), weights) + what the epilogue leaves exposed
 *     products = bm bn K / 1600            16-bit multiply-adds that an SM finishes in a clock
 *     traffic  = 2 (a_rows + bn) K / 61    bytes that L2 gives an SM in a clock; an operand's, divided
 *                                          by the blocks of a cluster that get its tile at one time
 *     weights  = 2 N K / (18.6 SMs)        bytes that memory gives an SM in a clock: with few rows, all
 *     power    = 1/8, or 0.3 with many rows, where the card's power is short and bytes take their part
 * A row, or two short ones: streamed at the pace of the weights; nothing is exposed.
 * Few rows: one consumer, two blocks on an SM. Few columns too: a cluster of blocks shares K. The numbers
 * are fitted to an H200 at M 1 to 1024, where they mostly pick what is within 5 % of the best tile tried;
 * with many rows, at 16384, to runs of some 0.3 s, after which the clock is what power and heat allow.
 * What no run has confirmed has a price that only says which of it tuning should measure first: tiles that
 * are walked in squares; clusters that share K and scatter its sums, where more rows leave SMs idle; clusters
 * that share operands; and three consumers, whose tiles are the squarest.
 */
#include "epilogue.h"
#include "tile.h"

#include <math.h>
#include <string.h>

enum {
    SHARED_BYTES = 232448, /* of a Hopper block, when the machine does not say              */
    L2_BYTES = 61,         /* an SM gets from L2 in a clock: measured on an H200            */
    PRODUCTS = 1600,       /* 16-bit, in a clock, at the power that there is; 2048 else     */
    CLUSTER_BYTES = 14,    /* an SM gets from others of its cluster in a clock              */
    BEGINNING = 300,       /* clocks, of a tile                                             */
    COOPERATION = 1400,    /* clocks between two that both consumers share                  */
    FEW_ROWS = 16,         /* a block needs half of an SM's memory to keep weights coming   */
    MOST_SPLIT_ROWS = 64,
    MOST_ODD_ROWS = 1024,  /* where a wave more or less matters; beyond, power does         */
    BAND_ROWS = 1024,      /* tile rows of so many are walked together: A's stay in L2      */
    MOST_STAGES = 24,
    MOST_WIDE_STAGES = 4,  /* of tiles with many rows                                       */
    LEAST_STAGES = 3,
    MOST_ACCUMULATORS = 192,      /* floats of a thread, if the epilogue needs little              */
    MOST_BUSY_ACCUMULATORS = 128, /* if it loads tiles into registers; or if all drain at once     */
    MOST_CROWDED_ACCUMULATORS = 96, /* of three consumers                                          */
    MOST_HEAD = 256,
    STREAM_PIECE = 6144,          /* elements of a row of B that come together                      */
    STREAM_PIECES = 5,            /* of A, that fit a thread's registers                            */
    STREAM_BYTES = 40,            /* an SM may get from memory in a clock, where others get less    */
    MOST_CANDIDATES = 128
};

/* ---- Which pairs meet in a thread ---- */

static bool unit_stride(const struct operand *o) { return o->k == 1 || o->row == 1; }

/* TMA's rules for an operand. */
static bool operand_fits_sm90(const struct operand *o, int64_t batch, int64_t rows, int64_t k)
{
    bool k_major = o->k == 1;
    int64_t pitch = k_major ? o->row : o->k, outer = k_major ? rows : k;
    if (!unit_stride(o) || dtype_size(o->dtype) != 2 || o->offset % 8) return false;
    if (outer > 1 && (pitch % 8 || pitch <= 0)) return false;
    return batch <= 1 || (o->batch % 8 == 0 && o->batch >= 0);
}

static bool is_mn_major(const struct operand *o) { return o->k != 1; }

static bool fits_sm90(const struct program *p)
{
    bool work = p->dim[0] > 0 && p->dim[1] > 0 && p->dim[2] > 0 && p->k > 0;
    return work && p->a.dtype == p->b.dtype && operand_fits_sm90(&p->a, p->dim[0], p->dim[1], p->k) &&
           operand_fits_sm90(&p->b, p->dim[0], p->dim[2], p->k);
}

static bool rope_fits(const struct rope_spec *r)
{
    if (r->head_dim <= 0 || r->rotary % 2 || r->head_dim % 2) return false;
    return !r->half || (r->rotary % 16 == 0 && r->head_dim % 16 == 0 && r->head_dim <= MOST_HEAD);
}

/* [K, 2F] weights: no tensor map has every second column, or halves that start off 16 bytes. */
static bool gating_fits(const struct program *p)
{
    bool apart = p->pair == PAIR_GLU_STACKED && p->dim[2] / 2 % 8 == 0;
    return p->dim[2] % 2 == 0 && (apart || !is_mn_major(&p->b) || !fits_sm90(p));
}

bool tile_pairs_ok(const struct program *p)
{
    if (p->pair == PAIR_NONE) return true;
    return p->pair == PAIR_ROPE ? rope_fits(&p->rope) : gating_fits(p);
}

/* ---- Candidates ---- */

static bool is_half_rope(const struct program *p) { return p->pair == PAIR_ROPE && p->rope.half; }

/* A wide tile, or a share of one, may hold pieces of heads, which are boxes of a map of whole heads. */
static bool splits_heads(const struct program *p, const struct tile *t)
{
    const struct rope_spec *r = &p->rope;
    bool whole = r->rotary == r->head_dim && p->dim[2] % r->head_dim == 0;
    return (t->bn > 128 || t->scattered) && tile_share(t) % 64 == 0 && r->head_dim % 64 == 0 && whole &&
           !is_mn_major(&p->b) && (p->dim[0] == 1 || !p->b.batch);
}

/* A share is as wide as what TMA stores at once. */
static bool width_fits(const struct program *p, const struct tile *t)
{
    int block = program_is_gated(p) ? 128 : 64, share = tile_share(t);
    if (t->scattered && share % (program_is_gated(p) || is_half_rope(p) ? 64 : 32)) return false;
    if (is_half_rope(p) && share % p->rope.head_dim) return splits_heads(p, t);
    return !is_mn_major(&p->b) || t->bn % block == 0;
}

/* Tiles that come in registers, not by TMA. */
static bool loads_directly(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_LOAD && step_level(&p->step[i]) == LEVEL_SLOT && i != fetched_load(p))
            return true;
    return false;
}

static bool is_busy(const struct program *p) { return p->pair == PAIR_ROPE || loads_directly(p); }

static int accumulators(const struct tile *t)
{
    int rows = t->pingpong ? t->bm : t->bm / t->groups;
    return rows * t->bn / 128;
}

int tile_stages(const struct program *p, const struct tile *t, int shared_bytes)
{
    struct program q = *p;
    q.tile = *t;
    q.tile.stages = MOST_STAGES;
    while (q.tile.stages && tile_shared_bytes(&q) > shared_bytes) q.tile.stages--;
    return q.tile.stages;
}

/* Do the parts of a tile that a cluster's blocks load consist of whole octets, or of whole blocks of 64 if
 * the operand is MN-major? And are there tiles for all of them? */
static bool cluster_fits(const struct program *p)
{
    const struct tile *t = &p->tile;
    int cm = tile_cluster_m(t), cn = tile_cluster_n(t);
    int a_step = is_mn_major(&p->a) ? 64 : 8, b_step = is_mn_major(&p->b) ? 64 : 8;
    bool parts = tile_a_rows(p) % (cn * a_step) == 0 && t->bn % (cm * b_step) == 0;
    return parts && p->dim[1] > (cm - 1) * t->bm && p->dim[2] > (cn - 1) * t->bn;
}

static bool shares_sm(const struct tile *t) { return t->groups == 1 && tile_splits(t) == 1; }

/* Reductions whose state is several numbers: their sums wait for maxima or means. */
static bool is_heavy(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_REDUCE && p->step[i].prim->state > 1) return true;
    return false;
}

/* A cluster's sums go to one of its blocks; or from each block to each. */
static double sums_clocks(const struct tile *t)
{
    int splits = tile_splits(t), bytes = 4 * t->bm * tile_share(t) * (splits - 1);
    if (t->scattered) return 1000 + (double)bytes / CLUSTER_BYTES;
    return splits > 1 ? 500 * splits * splits : 0;
}

/* What a tile's epilogue takes, if nothing hides it. */
static double epilogue_clocks(const struct program *p, const struct tile *t)
{
    bool staged = (program_is_gated(p) ? t->bn / 2 : t->bn) % 32 == 0 || t->bn <= 64;
    struct program q = *p;
    q.tile = *t;
    int elements = tile_a_rows(&q) * tile_share(t) / (t->pingpong ? 1 : t->groups);
    int work = 1 + 4 * is_busy(p) + 4 * is_heavy(p);
    return 1000 + elements / 16 * work * (staged ? 1 : 1.5) + sums_clocks(t);
}

/* Bytes of B that memory must give, slower if some SMs ask for none. */
static double weight_clocks(const struct program *p, int sms, double used)
{
    double batch = p->b.batch ? (double)p->dim[0] : 1;
    return 2 * batch * (double)p->dim[2] * (double)p->k / (18.6 * sms) * (1.25 - 0.25 * used);
}

static double price(const struct program *p, const struct tile *t, int sms)
{
    struct program q = *p;
    q.tile = *t;
    double k = (double)CEIL_DIV(p->k, 64 * tile_splits(t)) * 64, blocks = (double)program_blocks(&q);
    double waves = (double)(int64_t)((blocks + sms - 1) / sms);
    double a = (double)tile_a_rows(&q) / tile_cluster_n(t), b = (double)t->bn / tile_cluster_m(t);
    double products = t->bm * t->bn * k / PRODUCTS, traffic = 2 * (a + b) * k / L2_BYTES;
    bool many = p->dim[1] > MOST_ODD_ROWS;
    double shallow = t->stages < 4 ? 1.08 : 1, together = many && !t->pingpong ? 1.03 : 1;
    double each = (MAX(products, traffic) + traffic * (many ? 0.3 : 0.125)) * shallow * together + BEGINNING;
    double epilogue = epilogue_clocks(p, t);
    double weights = weight_clocks(p, sms, blocks / (waves * sms)) + BEGINNING * waves;
    double stream = MAX(waves * each, weights);
    bool overlaps = t->pingpong || shares_sm(t);
    return overlaps ? MAX(stream, waves * epilogue / 2) + epilogue
                    : stream + waves * epilogue + (waves - 1) * COOPERATION;
}

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
           a->cluster_n == b->cluster_n && a->across == b->across && a->serpentine == b->serpentine;
}

/* The first of equals comes first. */
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

/* A deeper ring lets blocks drift apart, and then they no longer find in L2 what others have loaded. */
static int most_stages(const struct program *p, const struct tile *t)
{
    return p->dim[1] > MOST_ODD_ROWS && t->bn > 128 ? MOST_WIDE_STAGES : MOST_STAGES;
}

/*
 * With many rows, what all SMs multiply at one time, a wave, is too much for L2 to keep until the next wave:
 * memory gives its rows and columns each time, and least of them if it is as high as it is wide. So bands of
 * as many columns as make a whole number of rows of all SMs. And what a wave read last, the next one reads
 * first. A model of L2 (least recently used, 25 to 50 MB) gives 16384 x 8192 x 8192 in 128x192 tiles 3.45 GB
 * of memory's in bands of 8 rows, and 2.4 to 2.6 GB so.
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

static void consider(struct search *s, struct tile t)
{
    struct program p = *s->p;
    t.mainloop = MAINLOOP_SM90;
    t.bk = 64;
    p.tile = t;
    int most = loads_directly(&p) || !t.pingpong ? MOST_BUSY_ACCUMULATORS : MOST_ACCUMULATORS;
    if (t.groups > 2) most = MOST_CROWDED_ACCUMULATORS;
    bool half = t.groups == 1 && s->p->dim[1] <= FEW_ROWS; /* so that two blocks fit an SM        */
    int room = half ? (s->shared_bytes - 1024) / 2 : s->shared_bytes;
    bool lean = t.bm == 64 && t.bn > 128 && s->p->dim[1] > MOST_ODD_ROWS; /* L2 would not keep up */
    if (!width_fits(s->p, &t) || accumulators(&t) > most || lean || !cluster_fits(&p)) return;
    t.stages = MIN(tile_stages(s->p, &t, room), most_stages(s->p, &t));
    if (s->square) walk_in_squares(s, &t);
    else t.band = MAX(BAND_ROWS / t.bm / tile_cluster_m(&t), 1) * tile_cluster_m(&t);
    if (t.stages >= LEAST_STAGES) keep(s, &t, price(&p, &t, s->sms));
}

/* One consumer, for few rows: alone, or with others that share its K if they all find an SM. */
static void consider_narrow(struct search *s, int bn)
{
    const int64_t *d = s->p->dim;
    int64_t tiles = d[0] * CEIL_DIV(d[2], bn);
    if (bn > 128 || d[1] > MOST_SPLIT_ROWS) return;
    if (d[1] <= FEW_ROWS) consider(s, (struct tile){.bm = 64, .bn = bn, .groups = 1});
    for (int splits = 2; splits <= 8 && tiles * splits <= s->sms; splits *= 2)
        consider(s, (struct tile){.bm = 64, .bn = bn, .groups = 1, .splits = splits});
}

/* A tile in the forms that a class of candidates knows. */
typedef void forms(struct search *s, struct tile t);

static void alone(struct search *s, struct tile t)
{
    if (t.bm == 128 && t.pingpong) consider_narrow(s, t.bn);
    consider(s, t);
}

/* In pairs of blocks that share B, or A. */
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
    int head = is_half_rope(s->p) ? (int)s->p->rope.head_dim : 512;
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

static bool has_waves(const struct search *s) { return s->p->dim[1] > MOST_ODD_ROWS; }

static void consider_squares(struct search *s)
{
    s->square = true;
    if (has_waves(s)) consider_two(s, alone);
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

/* Where large tiles leave SMs idle: as many parts of K as find an SM, and keep about half of them busy. */
static void consider_scattered(struct search *s)
{
    static const struct { int bm, bn; } size[] = {{128, 128}, {128, 256}, {256, 128}};
    const int64_t *d = s->p->dim;
    if (d[1] <= MOST_SPLIT_ROWS || d[1] > MOST_ODD_ROWS) return;
    for (int i = 0; i < ARRAY_SIZE(size); i++)
        for (int splits = 2; splits <= 4; splits *= 2) {
            struct tile t = {.bm = size[i].bm, .bn = size[i].bn, .groups = 2};
            int64_t blocks = d[0] * CEIL_DIV(d[1], t.bm) * CEIL_DIV(d[2], t.bn) * splits;
            bool busy = blocks <= s->sms && 20 * blocks >= 9 * s->sms;
            t.splits = splits, t.scattered = true;
            if (busy && t.bm < d[1] + 128) consider(s, t);
        }
}

/* ---- Streaming: a row, or two short ones, which the plain units multiply at memory's pace ---- */

static bool streams(const struct program *p)
{
    int64_t pieces = CEIL_DIV(p->k, STREAM_PIECE), rows = p->dim[0] * p->dim[1];
    bool few = rows == 1 ? pieces <= STREAM_PIECES : rows == 2 && p->dim[0] == 1 && pieces == 1;
    bool whole = p->dim[2] % 16 == 0 && p->dim[2] < INT32_MAX && p->k % 8 == 0;
    return few && whole && !is_mn_major(&p->a) && !is_mn_major(&p->b);
}

/* Half of an SM's memory, so that the next program's blocks begin beside these. */
static void consider_stream(struct search *s)
{
    const struct program *p = s->p;
    struct tile t = {.mainloop = MAINLOOP_GEMV, .bm = (int)p->dim[1], .bn = 16, .groups = 2, .band = 1};
    if (!streams(p)) return;
    if (is_half_rope(p)) t.bn = (int)p->rope.head_dim;
    t.bk = (int)CEIL_DIV(p->k, 8 * CEIL_DIV(p->k, STREAM_PIECE)) * 8;
    t.blocks = (int)MIN(p->dim[2] / 4, s->sms);
    t.stages = tile_stages(p, &t, (s->shared_bytes - 1024) / 2);
    double share = 8 * (double)CEIL_DIV(p->dim[2] / 4, t.blocks) * (double)p->k / STREAM_BYTES;
    double weights = weight_clocks(p, s->sms, (double)t.blocks / s->sms);
    if (t.stages >= LEAST_STAGES) keep(s, &t, BEGINNING + MAX(share, weights) + BEGINNING);
}

static struct tile simt_tile(const struct program *p)
{
    struct tile t = {.mainloop = MAINLOOP_SIMT, .bn = 64, .bk = 16, .stages = 1, .groups = 1, .band = 8};
    int head = (int)p->rope.head_dim;
    if (is_half_rope(p)) t.bn = head >= 64 ? head : 64 / head * head;
    t.bm = p->dim[1] > 64 && t.bn <= 64 ? 128 : 64;
    return t;
}

static void consider_known(struct search *s)
{
    consider_stream(s);
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
        [TILES_THREE] = consider_three};
    struct search s = {.p = p, .sms = m->sms > 0 ? m->sms : 132, .most = MIN(most, MOST_CANDIDATES)};
    s.shared_bytes = m->shared_bytes > 0 ? m->shared_bytes : SHARED_BYTES;
    if (m->sm90 && fits_sm90(p) && tile_pairs_ok(p)) consider_class[class](&s);
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

/* ---- Instead of the plain mainloop ---- */

/* Microseconds, fitted to an H200. A step of K takes a tile 0.06 alone on its SM, twice that for two. */
static double simt_us(const struct program *p, int sms)
{
    double tiles = (double)p->dim[0] * (double)CEIL_DIV(p->dim[1], p->tile.bm) *
                   (double)CEIL_DIV(p->dim[2], p->tile.bn);
    double waves = (double)(int64_t)((tiles + 2 * sms - 1) / (2 * sms));
    return waves * (double)p->k * 0.06 * (1 + MIN(tiles / (2 * sms), 1));
}

/* What a store and a load cost between the product and each pass of the epilogue, besides. */
static double cublaslt_us(const struct program *p)
{
    bool wide = p->a.dtype == CODA_F32;
    int passes = p->steps > 2;
    for (int i = 0; i < p->steps; i++) passes += p->step[i].kind == STEP_ROPE;
    double elements = (double)p->dim[0] * (double)p->dim[1] * (double)p->dim[2];
    double product = MAX(program_flops(p) / (wide ? 50e6 : 130e6), (double)program_bytes(p) / 3.5e6);
    return 10 + product + passes * (2 + 2 * elements * dtype_size(p->a.dtype) / 2.8e6);
}

bool tile_loses(const struct program *p, const struct machine *m)
{
    double margin = 1.25; /* between two rough prices */
    return p->tile.mainloop == MAINLOOP_SIMT && plan_suits_cublaslt(p) &&
           simt_us(p, m->sms > 0 ? m->sms : 132) > margin * cublaslt_us(p);
}
