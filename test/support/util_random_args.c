/* util_random_args.c -- arguments for random graphs, and how large those are. */
#include "util_random.h"

#include "util_device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t random_arg_bytes(const struct type *t, const int64_t *stride)
{
    int64_t last = 0;
    for (int d = 0; d < t->rank; d++) {
        if (t->dim[d] == 0) return 0;
        last += (t->dim[d] - 1) * stride[d];
    }
    return (size_t)(last + 1) * (size_t)dtype_bytes(t->dtype, 1);
}

enum { ANY_LIMIT = 100 };

/* What the readers of an integer value can take: 0 .. limit-1, and sometimes `other`. */
struct need {
    int64_t limit, other;
    double scale;  /* of a float leaf's data */
    bool distinct; /* slots: none comes twice, but for those that are skipped */
    bool positive; /* what is divided by */
    bool rising;   /* starts: seldom below an earlier one */
    bool far;      /* of int64: now and then one that int32 has not */
};

static void note_needs(const graph *g, const struct node *n, struct need *need)
{
    const struct type *t0 = n->nin && n->in[0] >= 0 ? &g->node[n->in[0]].type : NULL;
    struct need *n1 = n->nin > 1 && n->in[1] >= 0 ? &need[n->in[1]] : NULL;
    if (n->op == OP_EMBEDDING && n1) *n1 = (struct need){t0->dim[0], -1, 1, false, false, false, true};
    if (n->op == OP_ROW_SUMS && n1)
        *n1 = (struct need){n->attr.row_sums.rows, -1, 1, false, false, false, true};
    if (n->op == OP_CROSS_ENTROPY && n1)
        *n1 = (struct need){type_columns(t0), n->attr.cross_entropy.ignore, 1, false, false, false, false};
    if (n->op == OP_APPEND) {
        bool heads = n->attr.append.layout == CODA_LAYOUT_HND;
        need[n->in[2]] =
            (struct need){heads ? t0->dim[0] * t0->dim[2] : type_rows(t0), -1, 1, true, false, false, true};
        if (n->nin > APPEND_SCALE && n->in[APPEND_SCALE] >= 0) need[n->in[APPEND_SCALE]].positive = true;
    }
    if (n->op == OP_ROPE && n1) n1->limit = 4096;
    if (n->op == OP_MATMUL && n1) n1->scale = 1 / sqrt((double)MAX(type_columns(t0), 1));
    if (n->op == OP_ATTENTION && n->nin > 10 && n->in[10] >= 0)
        need[n->in[10]] = (struct need){type_rows(t0) + 1, -1, 1, false, false, true, true};
    if (n->op == OP_SCAN && n->nin > SCAN_STARTS && n->in[SCAN_STARTS] >= 0)
        need[n->in[SCAN_STARTS]] = (struct need){type_rows(t0) + 1, -1, 1, false, false, true, true};
    int starts = n->op == OP_CONV1D ? CONV1D_STARTS : n->op == OP_DELTA ? DELTA_STARTS : n->nin;
    if (n->nin > starts && n->in[starts] >= 0)
        need[n->in[starts]] = (struct need){t0->dim[0] + 1, -1, 1, false, false, true, true};
    if (n->op == OP_ATTENTION && n->nin > 4 && n->in[4] >= 0) need[n->in[4]].far = true;
    if (n->op == OP_ATTENTION && n->nin > 3 && n->in[3] >= 0) {
        const struct type *k = &g->node[n->in[1]].type;
        need[n->in[3]].limit = k->dim[k->rank - 2] + 1, need[n->in[3]].far = true;
        if (n->nin > 7 && n->in[7] >= 0) {
            int64_t page = n->attr.attention.page;
            bool heads = n->attr.attention.layout == CODA_LAYOUT_HND;
            need[n->in[3]].limit = type_columns(&g->node[n->in[7]].type) * page + 1;
            need[n->in[7]].limit = heads ? k->dim[0] : k->dim[0] / page, need[n->in[7]].far = true;
        }
    }
}

/* What a view of integers can take, so can the tensor that it shows. */
static void pass_need(const graph *g, int view, struct need *need)
{
    const struct node *n = &g->node[view];
    bool known = need[view].limit != ANY_LIMIT || need[view].other != INT64_MIN;
    if (op_is_view(n->op) && dtype_is_index(n->type.dtype) && known) need[n->in[VIEW_OF]] = need[view];
}

/* Whose lower half is a number that is wanted, or the ends of int64. */
static double draw_far(struct random *r, int64_t limit)
{
    if (random_chance(r, 30)) return random_chance(r, 50) ? 0x1p63 : -0x1p63;
    return (random_chance(r, 50) ? 0x1p32 : -0x1p32) + (double)random_below(r, limit);
}

static double draw_element(struct random *r, const struct node *n, const struct need *need)
{
    bool whole = dtype_is_index(n->type.dtype);
    if (n->type.dtype == CODA_I8 || n->type.dtype == CODA_U8) return rint(3 * random_normal(r));
    if (!whole && need->positive) return 0.0625 * (1 + fabs(random_normal(r)));
    if (!whole) return random_normal(r) * need->scale;
    if (need->other != INT64_MIN && random_chance(r, 8)) return (double)need->other;
    return (double)random_below(r, need->limit);
}

/* Element e of n: a little more than the last one, for all that is likely. */
static double draw_rising(struct random *r, const struct need *need, int64_t e, int64_t n)
{
    return (double)(need->limit * e / n + random_below(r, need->limit / n + 2));
}

/* Negative, or beyond the end, if there is none left. */
static double draw_slot(struct random *r, const struct need *need, bool *taken)
{
    int64_t slot = random_below(r, need->limit);
    for (int tries = 0; tries < 8 && need->limit; tries++, slot = random_below(r, need->limit))
        if (!taken[slot] && !random_chance(r, 10)) return (double)(taken[slot] = true, slot);
    return random_chance(r, 50) ? -1 - (double)slot : (double)(need->limit + slot);
}

/* The elements of a leaf from `first` on, by numbers of their own. */
static void fill_part(void *base, struct random *r, const struct node *n, const struct need *need,
                      int64_t first, int64_t end)
{
    int64_t total = type_elements(&n->type);
    bool *taken = need->distinct ? calloc((size_t)need->limit + 1, sizeof *taken) : NULL;
    for (int64_t e = first; e < end; e++) {
        int64_t at = 0, rest = e;
        for (int d = n->type.rank - 1; d >= 0; d--) {
            at += rest % n->type.dim[d] * n->stride[d];
            rest /= n->type.dim[d];
        }
        bool far = need->far && n->type.dtype == CODA_I64 && random_chance(r, 8);
        dtype_store(n->type.dtype, base, at,
                    far            ? draw_far(r, need->limit)
                    : taken        ? draw_slot(r, need, taken)
                    : need->rising ? draw_rising(r, need, e, total)
                                   : draw_element(r, n, need));
    }
    free(taken);
}

/* Large ones in parts, by threads; slots know all that were drawn before. */
enum { PART = 1 << 20 };

struct filling {
    void *base;
    const struct node *n;
    const struct need *need;
    uint64_t seed;
    int64_t total;
};

static void fill_one(void *ctx, int64_t i)
{
    const struct filling *f = ctx;
    struct random r = {f->seed + (uint64_t)i};
    r.state = random_next(&r);
    fill_part(f->base, &r, f->n, f->need, i * PART, MIN(f->total, (i + 1) * PART));
}

static void fill_leaf(void *base, struct random *r, const struct node *n, const struct need *need)
{
    int64_t total = type_elements(&n->type);
    if (need->distinct || total <= PART) {
        fill_part(base, r, n, need, 0, total);
        return;
    }
    struct filling f = {base, n, need, random_next(r), total};
    parallel_for(CEIL_DIV(total, PART), fill_one, &f);
}

/* Whole matrices, each at the end of the one before. False: the leaf is not packed. */
static bool fill_packed(const graph *g, int leaf, uint8_t *base, struct random *r)
{
    const struct node *u = NULL;
    int64_t rows, columns;
    for (int i = leaf + 1; i < g->nodes && !u; i++)
        if (g->node[i].op == OP_UNPACK && g->node[i].in[UNPACK_W] == leaf) u = &g->node[i];
    if (!u) return false;
    struct pack_format f = node_format(u);
    node_matrix(u, &rows, &columns);
    int64_t each = pack_bytes(&f, rows, columns);
    for (int64_t at = 0; at < g->node[leaf].type.dim[0]; at += each)
        pack_random(&f, rows, columns, 1 / sqrt((double)columns), random_next(r), base + at);
    return true;
}

static void *poisoned(size_t bytes)
{
    void *p = malloc(MAX(bytes, 1));
    if (p && !device_dry()) memset(p, 0xff, MAX(bytes, 1));
    return p;
}

void random_begin_sum(const graph *g, int output, void *base, bool evaluate)
{
    const struct output *o = &g->output[output];
    const struct type *t = &g->node[o->value].type;
    int64_t total = type_elements(t);
    for (int64_t e = 0; e < total; e++) {
        int64_t at = 0, rest = e;
        for (int d = t->rank - 1; d >= 0; rest /= t->dim[d--]) at += rest % t->dim[d] * o->stride[d];
        double x = (double)(e % 17) - 8;
        if (evaluate) ((double *)base)[e] = x;
        else dtype_store(t->dtype, base, at, x);
    }
}

void **random_args(const graph *g, uint64_t seed, bool evaluate)
{
    struct random r = {seed ^ 0x6a09e667f3bcc908u};
    struct need *need = calloc((size_t)g->nodes + 1, sizeof *need);
    void **args = calloc((size_t)(g->nodes + g->outputs) + 1, sizeof *args);
    int count = 0;
    for (int i = 0; i < g->nodes; i++)
        need[i] = (struct need){ANY_LIMIT, INT64_MIN, 1, false, false, false, false};
    for (int i = 0; i < g->nodes; i++) note_needs(g, &g->node[i], need);
    for (int i = g->nodes - 1; i >= 0; i--) pass_need(g, i, need);
    for (int i = 0; i < g->nodes; i++) {
        const struct node *n = &g->node[i];
        if (!op_is_leaf(n->op)) continue;
        if (n->op == OP_GROUP) { /* of more than one rank a test makes its own */
            coda_group_local((coda_group **)&args[count++], 1, NULL);
            continue;
        }
        args[count] = poisoned(random_arg_bytes(&n->type, n->stride));
        if (!device_dry() && !fill_packed(g, i, args[count], &r)) fill_leaf(args[count], &r, n, &need[i]);
        count++;
    }
    for (int i = 0; i < g->outputs; i++) {
        const struct output *o = &g->output[i];
        const struct type *t = &g->node[o->value].type;
        args[count] =
            poisoned(evaluate ? (size_t)type_elements(t) * sizeof(double) : random_arg_bytes(t, o->stride));
        if (o->add) random_begin_sum(g, i, args[count], evaluate);
        count++;
    }
    free(need);
    return args;
}

void random_args_free(const graph *g, void **args)
{
    int count = 0;
    if (!g || !args) return;
    for (int i = 0; i < g->nodes; i++) {
        if (!op_is_leaf(g->node[i].op)) continue;
        if (g->node[i].op == OP_GROUP) coda_group_free(args[count++]);
        else free(args[count++]);
    }
    for (int i = 0; i < g->outputs; i++) free(args[count++]);
    free(args);
}

bool random_is_alone(const graph *g)
{
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].op == OP_GROUP && g->node[i].attr.group.ranks > 1) return false;
    return true;
}

bool random_is_small(const graph *g)
{
    double total = 0;
    for (int i = 0; i < g->nodes; i++) {
        double n = 1;
        for (int d = 0; d < g->node[i].type.rank; d++) n *= (double)MAX(g->node[i].type.dim[d], 1);
        total += n;
    }
    for (int i = 0; i < coda_graph_args(g); i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        if (coda_graph_arg(g, i, &a) || a.bytes > 1 << 20) return false; /* strides may be huge */
    }
    return total < 1e5;
}
