/* pairs.c -- rotary embedding, as the STEP_PAIR of a program: where its pairs lie, and what they need. */
#include "fuse.h"

enum { MOST_HEAD = 256 };

const char *pair_name(void) { return "rope"; }
const char *pair_rule(void) { return "fuse_rope"; }

void pair_print(const struct program *q, const struct step *s, struct text *t)
{
    const struct rope_spec *r = &q->rope;
    text_printf(t, "rope v%d", s->in[0]);
    if (s->in[1] >= 0) text_printf(t, ", v%d", s->in[1]);
    text_printf(t, " {head_dim=%lld rotary=%lld heads=%lld base=%a %s}", (long long)r->head_dim,
                (long long)r->rotary, (long long)r->heads, (double)r->base, r->half ? "half" : "interleaved");
}

/* ---- From the graph ---- */

bool op_combines_pairs(enum op op) { return op == OP_ROPE; }

void pair_read(struct program *p, const graph *g, const struct node *n)
{
    if (!op_combines_pairs(n->op)) return;
    const struct type *t = &g->node[n->in[0]].type;
    const struct attr_rope *a = &n->attr.rope;
    int64_t head_dim = a->head_dim ? a->head_dim : type_columns(t);
    p->rope = (struct rope_spec){
        .head_dim = head_dim,
        .rotary = a->rotary ? a->rotary : head_dim,
        .heads = a->heads   ? a->heads
                 : head_dim ? type_columns(t) / head_dim
                            : 0,
        .half = a->half != 0,
        .base = a->base,
        .period = t->rank >= 2 ? t->dim[t->rank - 2] : 1,
    };
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
    return i >= 0 && (p->step[i].nin < 2 || p->step[i].in[1] < 0);
}

/* Rows come in sixteens, which start at multiples of 16 in each batch. */
bool pair_steps_evenly(const struct program *p)
{
    int64_t period = MAX(p->rope.period, 1);
    bool whole = p->dim[0] <= 1 || p->dim[1] % period == 0; /* a position is that in the batch */
    bool sixteens = period % 16 == 0 && (p->dim[0] <= 1 || p->dim[1] % 16 == 0);
    return pair_counts_rows(p) && (sixteens || (whole && period >= p->dim[1]));
}

/* ---- Columns ---- */

bool pair_fills_spans(const struct program *p)
{
    return p->rope.rotary == p->rope.head_dim && p->dim[2] % p->rope.head_dim == 0;
}

bool pair_meets(const struct program *p)
{
    const struct rope_spec *r = &p->rope;
    if (r->head_dim <= 0 || r->rotary % 2 || r->head_dim % 2) return false;
    return !r->half || (r->rotary % 16 == 0 && r->head_dim % 16 == 0 && r->head_dim <= MOST_HEAD);
}

bool pair_suits_pieces(const struct program *p, int width)
{
    const struct rope_spec *r = &p->rope;
    return r->head_dim % width == 0 && (r->half ? r->rotary / 2 : r->rotary) % width == 0;
}
