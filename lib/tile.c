/*
 * tile.c -- the tile and mainloop of a GEMM, by its shape: a pure function.
 *
 * Every tile that the program's pairs and layouts allow gets a price in clock cycles, and the cheapest
 * one wins:
 *     waves * max(products, traffic) + what the epilogue leaves exposed
 *     products = bm bn K / 2048        16-bit multiply-adds that an SM finishes in a clock
 *     traffic  = 2 (bm + bn) K / 61    bytes that L2 gives an SM in a clock
 */
#include "epilogue.h"

enum {
    SHARED_BYTES = 232448, /* of a Hopper block, when the machine does not say              */
    L2_BYTES = 61,         /* an SM gets from L2 in a clock: measured on an H200            */
    MOST_STAGES = 12,
    MOST_NARROW_STAGES = 24,
    LEAST_STAGES = 3,
    MOST_ACCUMULATORS = 192,      /* floats of a thread, if the epilogue needs little              */
    MOST_BUSY_ACCUMULATORS = 128, /* if it loads tiles, reduces or rotates                         */
    MOST_HEAD = 256
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

static bool width_fits(const struct program *p, int bn)
{
    if (is_half_rope(p) && bn % p->rope.head_dim) return false;
    int block = program_is_gated(p) ? 128 : 64;
    return !is_mn_major(&p->b) || bn % block == 0;
}

static bool is_busy(const struct program *p)
{
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        if (step_level(s) == LEVEL_SLOT &&
            (s->kind == STEP_LOAD || s->kind == STEP_REDUCE || s->kind == STEP_ROPE))
            return true;
    }
    return false;
}

static int accumulators(const struct tile *t)
{
    int rows = t->pingpong ? t->bm : t->bm / t->groups;
    return rows * t->bn / 128;
}

int tile_stages(const struct program *p, const struct tile *t, int shared_bytes)
{
    struct program q = *p;
    q.tile = *t;
    q.tile.stages = 0;
    bool narrow = tile_is_narrow(t);
    if (narrow) shared_bytes = (shared_bytes - 1024) / 2; /* each block takes 1024 more from an SM    */
    int left = shared_bytes - tile_shared_bytes(&q) - 1024, each = (tile_a_rows(&q) + t->bn) * 128 + 16;
    return MIN(left / each, narrow ? MOST_NARROW_STAGES : MOST_STAGES);
}

/* Tile rows walked together: a wave of tiles should read as little as it can. */
static int choose_band(const struct tile *t, int sms)
{
    int best = 8;
    for (int band = 4; band <= 16; band *= 2) {
        int bytes = band * t->bm + CEIL_DIV(sms, band) * t->bn;
        if (bytes < best * t->bm + CEIL_DIV(sms, best) * t->bn) best = band;
    }
    return best;
}

/* What a tile's epilogue takes, if nothing hides it. */
static double epilogue_clocks(const struct program *p, const struct tile *t)
{
    return 1000 + t->bm * t->bn / 16 * (is_busy(p) ? 5 : 1);
}

static double price(const struct program *p, const struct tile *t, int sms)
{
    double tiles =
        (double)CEIL_DIV(p->dim[1], t->bm) * (double)CEIL_DIV(p->dim[2], t->bn) * (double)p->dim[0];
    double waves = (double)(int64_t)((tiles + sms - 1) / sms), k = (double)CEIL_DIV(p->k, 64) * 64;
    double products = t->bm * t->bn * k / 2048, traffic = 2 * (t->bm + t->bn) * k / L2_BYTES;
    double each = MAX(products, traffic) * (t->stages < 4 ? 1.08 : 1), epilogue = epilogue_clocks(p, t);
    return t->pingpong ? MAX(waves * each, waves * epilogue / 2) + epilogue : waves * (each + epilogue);
}

struct search {
    const struct program *p;
    int sms, shared_bytes;
    struct tile best;
    double price;
};

static void consider(struct search *s, int bm, int bn, bool pingpong)
{
    struct tile t = {
        .mainloop = MAINLOOP_SM90, .bm = bm, .bn = bn, .bk = 64, .groups = 2, .pingpong = pingpong};
    int most = is_busy(s->p) ? MOST_BUSY_ACCUMULATORS : MOST_ACCUMULATORS;
    if (!width_fits(s->p, bn) || accumulators(&t) > most) return;
    t.stages = tile_stages(s->p, &t, s->shared_bytes);
    t.band = choose_band(&t, s->sms);
    double cost = price(s->p, &t, s->sms);
    if (t.stages < LEAST_STAGES || (s->best.bm && cost >= s->price)) return;
    s->best = t;
    s->price = cost;
}

/* The first of equals wins. Heads of odd sizes need odd widths. */
static void consider_all(struct search *s)
{
    static const struct {
        int bm;
        bool pingpong;
    } rows[] = {{128, true}, {64, true}, {128, false}, {256, false}};
    static const int width[] = {128, 192, 256, 64, 32, 16};
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
        for (int j = 0; j < ARRAY_SIZE(width); j++) consider(s, rows[i].bm, width[j], rows[i].pingpong);
        if (!is_half_rope(s->p)) continue;
        for (int bn = (int)s->p->rope.head_dim; bn <= 256; bn += (int)s->p->rope.head_dim)
            consider(s, rows[i].bm, bn, rows[i].pingpong);
    }
}

static struct tile simt_tile(const struct program *p)
{
    struct tile t = {.mainloop = MAINLOOP_SIMT, .bn = 64, .bk = 16, .stages = 1, .groups = 1, .band = 8};
    int head = (int)p->rope.head_dim;
    if (is_half_rope(p)) t.bn = head >= 64 ? head : 64 / head * head;
    t.bm = p->dim[1] > 64 && t.bn <= 64 ? 128 : 64;
    return t;
}

struct tile tile_choose(const struct program *p, const struct machine *m)
{
    struct search s = {.p = p, .sms = m->sms > 0 ? m->sms : 132};
    s.shared_bytes = m->shared_bytes > 0 ? m->shared_bytes : SHARED_BYTES;
    if (m->sm90 && fits_sm90(p) && tile_pairs_ok(p)) consider_all(&s);
    return s.best.bm ? s.best : simt_tile(p);
}
