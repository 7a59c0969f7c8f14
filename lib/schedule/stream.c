/*
 * stream.c -- what the main loops whose B streams past a few rows of A have in common: how blocks share
 * columns, what a ring and the statistics of segments take of shared memory, memory's pace.
 */
#include "stream.h"

enum {
    LEAST_STAGES = 3,
    STREAM_BYTES = 40 /* an SM may get from memory in a clock, where others get less */
};

/* ---- Rows and columns ---- */

int stream_rows(const struct program *p, const struct tile *t)
{
    if (t->mainloop->unrolls) return (int)p->dim[1];
    return p->dim[1] <= 8 && !p->invariant ? 8 : 16;
}

bool stream_folds_segments(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (step_folds_segments(&p->step[i])) return true;
    return false;
}

/* Groups of four columns. A patch of 16 columns has four of them even where it lacks some of its columns. */
static int64_t quads_of(const struct program *p) { return CEIL_DIV(p->dim[2], 16) * 4; }

int stream_columns(const struct program *p, const struct tile *t, int share_quads)
{
    int cluster = tile_cluster(t);
    int64_t unit = stream_folds_segments(p) ? p->segment / 4 : share_quads;
    int64_t most = CEIL_DIV(CEIL_DIV(quads_of(p), unit), t->blocks / cluster) * unit; /* of a cluster */
    return (int)CEIL_DIV(most / share_quads, cluster) * share_quads * 4;
}

/* ---- Shared memory ---- */

/* What lies behind the slots, of `each` bytes with their barriers, up to the next 128 bytes: slots may end
 * between those. At most if `stages` is 0. */
static int ring_end(int stages, int each)
{
    enum { RING_ALIGN = 128 };
    int bytes = stages * each;
    return CEIL_DIV(bytes + 8, RING_ALIGN) * RING_ALIGN - bytes;
}

struct footprint stream_footprint(const struct program *p, const struct tile *t, int slot, int sums)
{
    int rows = stream_rows(p, t), columns = stream_columns(p, t, 1);
    int fixed = 4 * sums + values_bytes(p, rows, columns) + ring_end(t->stages, slot + 16) + 32;
    return (struct footprint){.fixed = fixed, .stage = slot + 16, .granule = 1024};
}

/* Has an earlier step of its range the state that step i folds? */
static bool reads_state(const struct program *p, int i)
{
    for (int j = 0; j < i; j++)
        if (p->step[j].range == p->step[i].range && step_folds_segments(&p->step[j]) &&
            step_shares_state(p, &p->step[j], &p->step[i]))
            return true;
    return false;
}

/* What segments.cuh has of each of a block's quads, and of each segment that has some of them: the states, or
 * the values, of one range, by fours. */
int stream_segment_floats(const struct program *p, const struct tile *t, int columns)
{
    int most = 0, quads = columns / 4, unit = (int)MAX(p->segment / 4, 1);
    for (int range = 0; range <= p->ranges; range++) {
        int states = 0, values = 0;
        for (int i = 0; i < p->steps; i++) {
            const struct step *s = &p->step[i];
            if (s->range != range || step_level(s) != LEVEL_SEGMENT) continue;
            values++;
            if (step_folds_segments(s) && !reads_state(p, i)) states += s->prim->state;
        }
        most = MAX(most, MAX(states, values));
    }
    int each = stream_rows(p, t) * 4 * CEIL_DIV(most, 4);
    return stream_folds_segments(p) ? (quads + (quads + unit - 2) / unit + 1) * each + 4 : 0;
}

int stream_half_room(const struct search *s) { return (s->target->shared_bytes - 1024) / 2; }

/* ---- Candidates ---- */

double stream_clocks(const struct program *p, const struct tile *t, const struct target *target)
{
    double share =
        (double)program_b_bytes(p) / (double)p->dim[0] * stream_columns(p, t, 1) / (double)p->dim[2];
    double used = (double)(p->dim[0] * t->blocks) / target->sms;
    return MAX(share / STREAM_BYTES, weight_clocks(p, target, p->dim[0] > 1 ? MIN(used, 1) : used));
}

int stream_piece(int64_t k, int most, int step) { return (int)CEIL_DIV(k, step * CEIL_DIV(k, most)) * step; }

/* Blocks of a portable cluster that share whole segments: with which the largest share is smallest. */
static void share_segments(const struct search *s, struct tile *t, int share_quads)
{
    enum { MOST_CLUSTER = 8 };
    const struct program *p = s->p;
    int64_t segments = p->dim[2] / p->segment, least = INT64_MAX;
    int sms = s->target->sms, clustered = (int)(sms * s->target->clustered);
    for (int cluster = 1; cluster <= MIN(MOST_CLUSTER, sms); cluster *= 2) {
        int64_t most = MAX((cluster > 2 ? clustered : sms) / cluster, 1);
        int64_t each = CEIL_DIV(segments, MIN(segments, most)), shares = each * p->segment / 4 / share_quads;
        int64_t own = CEIL_DIV(shares, cluster);
        if (own >= least) continue;
        least = own;
        t->blocks = (int)CEIL_DIV(segments, each) * cluster;
        t->cluster_n = cluster > 1 ? cluster : 0;
    }
}

void stream_share(const struct search *s, struct tile *t, int share_quads)
{
    t->bm = (int)s->p->dim[1], t->bn = 16, t->groups = 2, t->band = 1;
    if (pair_span(s->p)) t->bn = pair_span(s->p);
    bool alike = s->p->invariant; /* whichever block has a column decides how its sums are ordered */
    int64_t sms = alike ? s->target->sms : MAX(s->target->sms / s->p->dim[0], 1); /* for each batch */
    t->blocks = (int)MIN(quads_of(s->p), sms) / tile_splits(t) * tile_splits(t);
    if (stream_folds_segments(s->p)) t->bn = (int)s->p->segment, share_segments(s, t, share_quads);
}

int stream_window(const struct tile *t, int bytes, int slot)
{
    int slots = MAX((bytes + slot / 2) / slot, 2);
    return slots < t->stages ? slots : 0;
}

void stream_add(struct search *s, const struct tile *t, double cost)
{
    if (t->blocks && t->stages >= LEAST_STAGES) search_add(s, t, cost);
}

/* ---- What they take ---- */

static bool columns_fit(const struct program *p)
{
    bool columns = (p->dim[2] % 16 == 0 || p->pair == PAIR_NONE) && p->dim[2] < INT32_MAX - 16;
    return columns && !operand_is_mn_major(&p->a.data) && !operand_is_mn_major(&p->b.data);
}

bool stream_takes(const struct program *p) { return !stream_folds_segments(p) && columns_fit(p); }
bool stream_takes_segments(const struct program *p)
{
    return columns_fit(p) && (!stream_folds_segments(p) || (p->dim[0] == 1 && p->dim[2] % p->segment == 0));
}

bool stream_supports(const struct target *target, const struct program *p)
{
    return target_has(target, TARGET_PDL) && program_pairs_meet(p, target) && p->dim[0] == 1 &&
           !program_folds_columns(p); /* a block has all rows, each in another thread */
}

bool stream_takes_bytes(const struct program *p)
{
    const struct tensor_use *b = &p->b.data;
    bool known = b->dtype == CODA_F8E4M3 || b->dtype == CODA_F8E5M2 || b->dtype == CODA_I8;
    return known && operand_is_plain(&p->b) && dtype_is_half(p->a.dtype) && !program_a_obstacle(p) &&
           b->k == 1 && b->row % 16 == 0 && b->batch % 16 == 0 && b->offset % 16 == 0 && p->k % 16 == 0;
}

bool stream_is_early(const struct program *p) { return p->b.data.steady && !p->prepare; }

/* ---- Schedules ---- */

/* Besides the consumers, two warps where a second block has to fit. */
void stream_complete(struct schedule *s, const struct program *p, const struct target *target)
{
    (void)target;
    s->threads = 128 * s->tile.groups + (s->tile.mainloop->shares_sm(p, &s->tile) ? 64 : 128);
    s->early = stream_is_early(p);
    s->grid = s->tile.blocks;
    s->cluster = 1;
}

void stream_print_config(const struct program *p, const struct schedule *s, struct text *t)
{
    mainloop_print_strides(p, s, t);
    text_printf(t, "    static constexpr int blocks = %d, window = %d;\n", s->tile.blocks,
                s->tile.window ? s->tile.window : s->tile.stages);
    text_printf(t, "    static constexpr bool early = %s;\n", truth(s->early));
}

void stream_print_segments(const struct program *p, const struct schedule *s, struct text *t)
{
    text_printf(t, "    static constexpr int cluster = %d;\n    static constexpr bool folds_segments = %s;\n",
                tile_cluster(&s->tile), truth(stream_folds_segments(p)));
}
