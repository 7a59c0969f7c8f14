/* mainloop.c -- what main loops share: the search that they add to, stages, parts of costs and of texts. */
#include "mainloop.h"

#include "invariant.h"

enum { MOST_STAGES = 24 };

/* Candidates that differ in their raster group, or in what follows from the others, are the same. */
static bool same(const struct tile *a, const struct tile *b)
{
    return a->mainloop == b->mainloop && a->bm == b->bm && a->bn == b->bn && a->groups == b->groups &&
           a->pingpong == b->pingpong && a->splits == b->splits && a->scattered == b->scattered &&
           a->cluster_m == b->cluster_m && a->cluster_n == b->cluster_n && a->across == b->across &&
           a->serpentine == b->serpentine && a->stages == b->stages && a->lends == b->lends &&
           a->tail == b->tail && a->tail_bn == b->tail_bn && a->dealt == b->dealt;
}

/* Does a consumer have the rows whose first ones another program computes? Its units are whole spans of
 * columns, as those are whose edges are stored: one of 48, 80 or 112 columns may end behind the product. */
static bool has_rows_above(const struct program *p, const struct tile *t)
{
    return conv1d_step_of(p) < 0 || (t->mainloop->above && group_rows(t) == EDGE_PERIOD &&
                                     tile_splits(t) == 1 && t->bn % SEGMENT_SPAN == 0);
}

void search_add(struct search *s, const struct tile *t, double cost)
{
    int at = s->n;
    if (!tile_keeps_bits(s->p, t) || !has_rows_above(s->p, t)) return;
    while (at > 0 && cost < s->cost[at - 1]) at--;
    for (int i = 0; i < at; i++)
        if (same(&s->tile[i], t)) return;
    if (at == s->most) return;
    if (s->n < s->most) s->n++;
    for (int i = s->n - 1; i > at; i--) {
        s->tile[i] = s->tile[i - 1];
        s->cost[i] = s->cost[i - 1];
    }
    s->tile[at] = *t;
    if (!t->mainloop->streams) s->tile[at].most_rows = s->most_rows;
    s->cost[at] = cost;
}

void search_widths(struct search *s, const int *width, void (*consider)(struct search *s, int bn))
{
    int span = program_span(s->p);
    bool listed = !span || width[0] % span == 0;
    for (; *width; width++) {
        if (!span || *width % span == 0) consider(s, *width);
        listed = listed || *width == span;
    }
    if (!listed) consider(s, span);
}

int64_t tile_scratch(const struct program *p, const struct tile *t)
{
    return t->mainloop->scratch ? t->mainloop->scratch(p, t) : 0;
}

int tile_shared_bytes(const struct program *p, const struct tile *t)
{
    const struct footprint f = t->mainloop->footprint(p, t);
    return CEIL_DIV(f.fixed + t->stages * f.stage, f.granule) * f.granule;
}

int tile_stages(const struct program *p, const struct tile *t, int shared_bytes)
{
    const struct footprint f = t->mainloop->footprint(p, t);
    int room = shared_bytes / f.granule * f.granule - f.fixed;
    return room > 0 ? MIN(room / f.stage, MOST_STAGES) : 0;
}

bool program_is_heavy(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_REDUCE && p->step[i].prim->state > 1) return true;
    return false;
}

double memory_clocks(const struct target *target, double bytes)
{
    return bytes / (target->memory_bytes * target->sms);
}

double weight_clocks(const struct program *p, const struct target *target, double used)
{
    return memory_clocks(target, (double)program_b_bytes(p)) * (1.25 - 0.25 * used);
}

static void print_strides(const char *name, const struct tensor_use *o, struct text *t)
{
    text_printf(t, "    static constexpr i64 %s_stride_row = %lld, %s_stride_k = %lld;\n", name,
                (long long)o->row, name, (long long)o->k);
}

void mainloop_print_strides(const struct program *p, const struct schedule *s, struct text *t)
{
    (void)s;
    print_strides("a", &p->a.data, t);
    print_strides("b", &p->b.data, t);
}

/* The number of elements, at most 8, that the first address of each of an operand's batches is a multiple of.
 * Buffers begin at multiples of 16 bytes. */
static int alignment(const struct program *p, const struct tensor_use *o)
{
    int64_t multiples = 8 | o->offset | (p->dim[0] > 1 ? o->batch : 0);
    return (int)(multiples & -multiples);
}

void mainloop_print_pointers(const struct program *p, const struct schedule *s, struct text *t)
{
    mainloop_print_strides(p, s, t);
    text_printf(t, "    static constexpr i64 a_align = %d, b_align = %d;\n", alignment(p, &p->a.data),
                alignment(p, &p->b.data));
}

void mainloop_complete(struct schedule *s, const struct program *p, const struct target *target)
{
    (void)target;
    s->threads = 128 * s->tile.groups;
    s->grid = program_blocks(p, &s->tile);
    s->cluster = 1;
}
