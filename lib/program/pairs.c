/* pairs.c -- the STEP_PAIR of a program: where its pairs lie, what they need, and how a node says it. */
#include "guards.h"
#include "program.h"

#include <string.h>

void pair_print(const struct program *q, const struct step *s, struct text *t)
{
    const struct pairing *r = &q->pairing;
    text_printf(t, "%s v%d", r->op->name, s->in[0]);
    for (int i = 1; i < s->nin; i++) text_printf(t, ", v%d", s->in[i]);
    text_printf(t, " {head_dim=%lld rotary=%lld heads=%lld", (long long)r->head_dim, (long long)r->rotary,
                (long long)r->heads);
    if (s->port < 0) text_printf(t, " base=%a", (double)r->base);
    if (pair_scales(q)) text_printf(t, " scale=%a", (double)r->scale);
    for (int i = 0; i < MOST_AXES && r->section[i]; i++)
        text_printf(t, "%s%lld", i ? "," : " sections=", (long long)r->section[i]);
    if (r->interleaves) text_append(t, " in turn");
    text_printf(t, "%s %s}", r->inverse ? " inverse" : "", r->half ? "half" : "interleaved");
}

/* ---- From the graph ---- */

static const struct prim_pair *pair_of(enum op op)
{
    return op_is(op, KIND_PAIRS) ? prim_find_pair(op_info[op].text) : NULL;
}

bool op_combines_pairs(enum op op) { return op_is(op, KIND_PAIRS); }

void pair_read(struct program *p, const graph *g, const struct node *n)
{
    if (!op_combines_pairs(n->op)) return;
    const struct type *t = &g->node[n->in[ROPE_X]].type;
    const struct attr_rope *a = &n->attr.rope;
    int64_t head_dim = a->head_dim ? a->head_dim : type_columns(t);
    p->pairing = (struct pairing){
        .op = pair_of(n->op),
        .head_dim = head_dim,
        .rotary = a->rotary ? a->rotary : head_dim,
        .heads = a->heads   ? a->heads
                 : head_dim ? type_columns(t) / head_dim
                            : 0,
        .half = a->half != 0,
        .base = a->base,
        .scale = a->scale,
        .inverse = a->inverse != 0,
        .interleaves = a->interleave_sections != 0,
        .period = t->rank >= 2 ? t->dim[t->rank - 2] : 1,
    };
    memcpy(p->pairing.section, a->section, sizeof p->pairing.section);
}

bool node_has_sections(const struct node *n) { return op_combines_pairs(n->op) && n->attr.rope.section[0]; }

bool pair_loads(const struct node *n, int i)
{
    return op_combines_pairs(n->op) &&
           (i == ROPE_FREQUENCIES || (i == ROPE_POSITIONS && node_has_sections(n)));
}

bool pairs_alike(const struct node *a, const struct node *b)
{
    struct node same = *b;
    same.attr.rope.heads = a->attr.rope.heads;
    if (a->op != b->op || !attr_equal(a, &same)) return false;
    for (int i = 1; i < MAX(a->nin, b->nin); i++)
        if ((i < a->nin ? a->in[i] : -1) != (i < b->nin ? b->in[i] : -1)) return false;
    return true;
}

bool pair_suits_segments(const struct node *n, int64_t segment)
{
    return extents_equal(n->attr.rope.head_dim, segment) ||
           (!n->attr.rope.half && extent_is_multiple(segment, n->attr.rope.head_dim));
}

bool pair_takes_all(const graph *g, const struct node *n)
{
    return extents_equal(n->attr.rope.heads * n->attr.rope.head_dim,
                         type_columns(&g->node[n->in[ROPE_X]].type));
}

/* ---- Positions ---- */

int pair_step(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_PAIR) return i;
    return -1;
}

bool pair_counts_rows(const struct program *p)
{
    int i = pair_step(p);
    return i >= 0 && (p->step[i].nin < 2 || p->step[i].in[READS_POSITION] < 0);
}

int pair_axes(const struct pairing *r)
{
    int axes = 1;
    while (axes < MOST_AXES && r->section[axes]) axes++;
    return axes;
}

int pair_axis(const struct pairing *r, int64_t i)
{
    int axes = pair_axes(r), turn = (int)(i % axes), axis = 0;
    if (r->interleaves) return i < axes * r->section[turn] ? turn : 0;
    for (int64_t end = r->section[0]; axis + 1 < axes && i >= end; end += r->section[axis]) axis++;
    return axis;
}

bool pair_scales(const struct program *p) { return p->pairing.scale != 0 && p->pairing.scale != 1; }

/* Rows come in sixteens, which start at multiples of 16 in each batch. An angle made from another row's has
 * other bits than one that is made from its position, so where these matter, all are made so. */
bool pair_steps_evenly(const struct program *p)
{
    int64_t period = MAX(p->pairing.period, 1);
    bool whole = p->dim[0] <= 1 || p->dim[1] % period == 0; /* a position is that in the batch */
    bool sixteens = period % 16 == 0 && (p->dim[0] <= 1 || p->dim[1] % 16 == 0);
    return !p->invariant && pair_counts_rows(p) && (sixteens || (whole && period >= p->dim[1]));
}

/* ---- Columns ---- */

static bool has_columns(const struct step *s) { return s->kind != STEP_SCALAR && !step_is_of_row(s); }

bool step_is_of_loads(const struct program *p, int step)
{
    const struct step *s = &p->step[step];
    bool of = s->kind == STEP_LOAD || s->kind == STEP_MAP;
    for (int i = 0; of && s->kind == STEP_MAP && i < s->nin; i++)
        of = s->in[i] < 0 || !has_columns(&p->step[s->in[i]]) || step_is_of_loads(p, s->in[i]);
    return of && has_columns(s);
}

void pair_mark_made(const struct program *p, bool *made)
{
    for (int i = 0; i < p->steps; i++) made[i] = false;
    for (int i = pair_step(p); i >= 0; i--) {
        const struct step *s = &p->step[i];
        if (s->kind == STEP_PAIR) made[s->in[READS_X]] = true;
        for (int k = 0; made[i] && k < s->nin; k++)
            if (s->in[k] >= 0 && has_columns(&p->step[s->in[k]])) made[s->in[k]] = true;
    }
}

bool pair_fills_spans(const struct program *p)
{
    return p->pairing.rotary == p->pairing.head_dim && p->dim[2] % p->pairing.head_dim == 0;
}

bool pair_meets(const struct program *p)
{
    const struct pairing *r = &p->pairing;
    return attr_pairs_meet(r->head_dim, r->rotary, r->half);
}

bool pair_suits_pieces(const struct program *p, int width)
{
    const struct pairing *r = &p->pairing;
    return r->head_dim % width == 0 && (r->half ? r->rotary / 2 : r->rotary) % width == 0;
}
