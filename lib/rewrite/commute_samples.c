/*
 * commute_samples.c -- carries a norm past a matmul, although each sample has a gain and a shift of its own.
 *
 *     matmul((x - m) r a + s, W)  ==>  (matmul(x a, W) - m (W a)) r + W s       a, s [..,1,K] of a sample;
 *                                                                               m, r [..,1] of a row
 *
 * and so for any stack of layers with a vector of each sample in it, as adaptive layer norms are. The matmul
 * reads x a, which the product that computes x stores beside it, and waits for no row. W a and W s are sums
 * over K, in fp32 and of the weight as stored, so that the mean cancels. coda_prepare computes them, where
 * a and s are weights and constants fold: to compute them in each run would take a pass over W, and a launch,
 * for the pass over x that is saved. A gain alone needs no such sums. Never in f16, where x a may be
 * infinite. In: verified graph. Out: no such matmul. Inexact: rounding moves, and it cancels where |m| is
 * large.
 */
#include "commute.h"
#include "guards.h"

#include <stdlib.h>

enum { MOST_LAYERS = 8 };

struct samples {
    struct fact *fact;
    bool *passes; /* of a value: products alone read it, through layers, which may all go behind these */
};

struct stack {
    struct layer layer[MOST_LAYERS]; /* the topmost first */
    int value[MOST_LAYERS], layers, base;
    int rows;                    /* layers of a value for each row */
    bool samples, shifts, given; /* given: its vectors are constants that fold */
};

/* ---- Stacks ---- */

/* [..,1,K] of x [..,T,K]: a vector for each sample. Where T is 1, it may be a row like x. */
static bool is_of_samples(const struct node *f, const struct type *x)
{
    int rank = x->rank;
    if (rank < 3 || f->type.rank != rank || !extents_equal(type_columns(&f->type), type_columns(x)))
        return false;
    int64_t rows = x->dim[rank - 2];
    return extent_is_one(f->type.dim[rank - 2]) && (!dim_is_number(rows) || extent_reaches(rows, 2));
}

/* As layer_of, of vectors of samples too: *samples says that it is one. */
static struct layer sample_layer(const graph *g, int v, bool *samples)
{
    struct layer l = layer_of(g, v);
    const struct node *n = &g->node[v];
    *samples = false;
    if (l.kind != LAYER_NONE || n->op != OP_MAP || n->nin != 2 || n->in[0] == n->in[1]) return l;
    const struct prim_facts *f = &n->prim->facts;
    bool product = f->linear == 3 && f->identity == 2 && f->identity_at == 1;
    bool shift = f->jointly == 3 && f->shift & 1;
    for (int i = 0; i < (f->shift == 3 || product ? 2 : 1) && (product || shift); i++) {
        const struct type *x = &g->node[n->in[i]].type;
        if (!type_equal(x, &n->type) || !is_of_samples(&g->node[n->in[1 - i]], x)) continue;
        *samples = true;
        return (struct layer){product ? LAYER_COL_SCALE : LAYER_COL_SHIFT, n->in[i], n->in[1 - i]};
    }
    return l;
}

static void find_stack(const struct walk *w, int v, struct stack *s)
{
    const struct samples *of = w->ctx;
    *s = (struct stack){.given = w->opt->fold != CODA_FOLD_NONE};
    while (s->layers < MOST_LAYERS && of->passes[v]) {
        bool samples;
        struct layer l = sample_layer(w->in, v, &samples);
        bool column = l.kind == LAYER_COL_SCALE || l.kind == LAYER_COL_SHIFT;
        if (l.kind == LAYER_NONE || l.kind == LAYER_CAST) break;
        s->value[s->layers] = v;
        s->layer[s->layers++] = l;
        s->samples |= samples;
        s->shifts |= l.kind == LAYER_ROW_SHIFT || l.kind == LAYER_COL_SHIFT;
        s->rows += !column && l.factor >= 0;
        s->given &= !column || carry_is_constant(of->fact, l.factor);
        v = l.base;
    }
    s->base = v;
}

/* ---- Whether it pays ---- */

/* A product that may go ahead of layers: its weight is there before any run. */
static bool is_product(const graph *g, const struct fact *f, int n)
{
    if (g->node[n].op != OP_MATMUL) return false;
    int x = g->node[n].in[MATMUL_X], weight = g->node[n].in[MATMUL_W];
    return x != weight && g->node[weight].type.rank == 2 && carry_is_constant(f, weight) &&
           g->node[weight].type.dtype == g->node[x].type.dtype;
}

static bool lets_pass(const graph *g, const struct samples *of, int n, int operand)
{
    const struct node *r = &g->node[n];
    bool samples;
    if (operand == MATMUL_X && is_product(g, of->fact, n)) return true;
    struct layer l = sample_layer(g, n, &samples);
    return l.kind != LAYER_NONE && l.base == r->in[operand] && of->passes[n];
}

static void find_passages(const graph *g, const struct samples *of)
{
    for (int v = 0; v < g->nodes; v++) of->passes[v] = g->node[v].output < 0 && !op_is_leaf(g->node[v].op);
    for (int n = g->nodes - 1; n >= 0; n--)
        for (int i = 0; i < g->node[n].nin; i++)
            if (g->node[n].in[i] >= 0 && of->passes[g->node[n].in[i]])
                of->passes[g->node[n].in[i]] = lets_pass(g, of, n, i);
}

static bool pays(struct walk *w, int v, struct stack *s)
{
    const struct samples *of = w->ctx;
    find_stack(w, v, s);
    if (!s->samples || !s->rows || w->in->node[v].type.dtype == CODA_F16) return false;
    for (int i = 0; i < s->layers; i++)
        if (s->layer[i].kind == LAYER_COL_SCALE &&
            carry_depends(w->in, of->fact, s->layer[i].factor, s->base))
            return false;
    return (s->given || !s->shifts) && carry_pays_beside(w, of->fact, v, s->base, s->rows);
}

/* ---- The new graph ---- */

static int widen(struct walk *w, int v)
{
    struct node cast = {.op = OP_CAST, .nin = 1, .in = &v, .attr.cast.to = CODA_F32, .origin = -1};
    return v < 0 || w->out->node[v].type.dtype == CODA_F32 ? v : graph_append(w->out, &cast);
}

/* The gains above layer i, multiplied in f32; -1: there are none. */
static int gains_above(struct walk *w, const struct stack *s, int i)
{
    int gain = -1;
    for (int j = i - 1; j >= 0; j--) {
        if (s->layer[j].kind != LAYER_COL_SCALE) continue;
        int factor = widen(w, w->map[s->layer[j].factor]);
        gain = gain < 0 ? factor : graph_map(w->out, "mul", gain, factor, NULL);
    }
    return gain;
}

/* W times a vector [..,1,K] or [K], the sums over K of both, as [..,1,N] or [N]; vector -1: of ones. */
static int sums(struct walk *w, int weight, int vector, bool kn)
{
    if (vector < 0) return carry_weight_sum(w, weight, kn);
    if (kn) weight = carry_transpose(w, weight);
    return carry_weight_sum(w, graph_map(w->out, "mul", vector, weight, NULL), false);
}

/* What layer i adds behind the product: its shift, times the gains above it, times W. */
static int shift_behind(struct walk *w, const struct stack *s, int i, int weight, bool kn)
{
    const struct layer *l = &s->layer[i];
    int gain = gains_above(w, s, i), factor = w->map[l->factor];
    if (l->kind == LAYER_ROW_SHIFT) return graph_map(w->out, "mul", factor, sums(w, weight, gain, kn), NULL);
    factor = widen(w, factor);
    return sums(w, weight, gain < 0 ? factor : graph_map(w->out, "mul", gain, factor, NULL), kn);
}

static int behind(struct walk *w, const struct stack *s, int i, int y, int weight, bool kn)
{
    switch (s->layer[i].kind) {
    case LAYER_ROW_SCALE: return layer_apply(w, s->value[i], y);
    case LAYER_ROW_SHIFT:
    case LAYER_COL_SHIFT:
        return graph_map(w->out, w->in->node[s->value[i]].prim->name, y, shift_behind(w, s, i, weight, kn),
                         NULL);
    default: return y;
    }
}

/* Beside sums, x is multiplied by the very gains that these are made of. */
static int gained(struct walk *w, const struct stack *s)
{
    int x = w->map[s->base], gain = s->shifts ? gains_above(w, s, s->layers) : -1;
    if (gain >= 0) return graph_map(w->out, "mul", x, gain, NULL);
    for (int i = s->layers - 1; i >= 0 && !s->shifts; i--)
        if (s->layer[i].kind == LAYER_COL_SCALE)
            x = graph_map(w->out, "mul", x, w->map[s->layer[i].factor], NULL);
    return x;
}

static int carry(struct walk *w, int v)
{
    const struct node *n = &w->in->node[v];
    const struct samples *of = w->ctx;
    struct stack s;
    if (!is_product(w->in, of->fact, v) || !pays(w, n->in[MATMUL_X], &s)) return RULE_COPY;
    rewrite_note(w->log, "carry_samples", false, "%s: a norm of %s by vectors of samples moves past %s",
                 rewrite_name(w->in, v).s, rewrite_name(w->in, s.base).s,
                 rewrite_weight(w->in, n->in[MATMUL_W]).s);
    int weight = w->map[n->in[MATMUL_W]], x = gained(w, &s);
    int y = carry_product(w, v, x, weight, n->attr.matmul.kn);
    for (int i = s.layers - 1; i >= 0 && y >= 0; i--) y = behind(w, &s, i, y, weight, n->attr.matmul.kn);
    return carry_result(w, v, y);
}

/* Is there a map of a tensor and of a vector of each sample? */
static bool has_samples(const graph *g)
{
    bool samples = false;
    for (int v = 0; v < g->nodes && !samples; v++)
        if (g->node[v].op == OP_MAP) sample_layer(g, v, &samples);
    return samples;
}

graph *carry_samples(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    if (!has_samples(in)) return rewrite_nothing(in);
    struct samples of = {.fact = carry_facts(in, opt->fold),
                         .passes = calloc((size_t)in->nodes + 1, sizeof *of.passes)};
    graph *out = NULL;
    if (of.fact && of.passes) {
        find_passages(in, &of);
        out = rewrite_walk(in, carry, opt, log, &of);
    } else {
        fail(CODA_E_MEMORY, "rewrite: out of memory");
    }
    free(of.fact);
    free(of.passes);
    return out;
}
