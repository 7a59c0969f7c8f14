/* fuse_delta.c -- the gated delta rule as one program, or two, from its node: one leaves what does not
 * depend on states, which the other reads. */
#include "delta.h"
#include "fuse_own.h"

#include <string.h>

/* Where a sequence has no dimension of its own, its stride is 0: of a tensor [.., rows, columns], or of a
 * state. */
static void lead(struct tensor_use *u, int missing)
{
    if (u->buffer < 0 || !missing) return;
    for (int d = CODA_MAX_RANK - 1; d > 0; d--) u->stride[d] = u->stride[d - 1];
    u->stride[0] = 0;
}

static const struct tensor_use absent = {.role = USE_BESIDE, .buffer = -1, .dtype = CODA_I32, .value = -1};

/* What the one leaves for the other. */
static struct tensor_use prepared(struct writer *w, enum use_role role, int64_t bytes)
{
    int root = w->p->root, buffer = accumulator_buffer(w->gr, root);
    w->gr->plan->buffer[buffer].bytes = bytes;
    return port_new(role, buffer, 0, CODA_F32, w->gr->g->node[root].in[DELTA_DECAY]);
}

/* The program that prepares is of the same node. It is written when those that are there have been. */
static void add_prepare(struct writer *w)
{
    struct delta_spec *s = w->p->spec;
    const int root = w->p->root, *in = w->gr->g->node[root].in;
    static const int reads[] = {DELTA_Q, DELTA_K, DELTA_DECAY, DELTA_BETA};
    s->prepared = true;
    s->use[DELTA_DECAY] = prepared(w, USE_OPERAND, delta_prepared_bytes(s));
    s->use[DELTA_BETA] = absent;
    struct group *prepare = group_new(w->gr, PROGRAM_OWN, root);
    if (!prepare) return;
    prepare->p.own = &own_delta_prepare;
    for (int i = 0; i < ARRAY_SIZE(reads); i++)
        refuse_note(w->gr, prepare, in[reads[i]], REASON_OWN_READS, root, 0, 0);
}

/* Numbers of the rule, its operands and the program's domain. */
static void read_rule(struct writer *w, struct delta_spec *s)
{
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->p->root];
    const struct type *q = &g->node[n->in[DELTA_Q]].type, *v = &g->node[n->in[DELTA_V]].type;
    const struct attr_delta *a = &n->attr.delta;
    bool packed = s->use[DELTA_STARTS].value >= 0;
    s->time = q->dim[q->rank - 2];
    s->sequences = packed ? g->node[n->in[DELTA_STARTS]].type.dim[0] - 1 : q->rank == 3 ? q->dim[0] : 1;
    s->heads = a->heads, s->key_heads = a->key_heads;
    s->keys = type_columns(q) / a->key_heads, s->values = type_columns(v) / a->heads;
    s->by_row = !extents_equal(type_columns(&g->node[n->in[DELTA_DECAY]].type), a->heads);
    s->norm = a->norm, s->eps = a->eps, s->scale = a->scale;
    w->p->rank = 4;
    w->p->dim[0] = packed ? 1 : s->sequences, w->p->dim[1] = s->time;
    w->p->dim[2] = s->heads, w->p->dim[3] = s->values;
    for (int i = DELTA_Q; i <= DELTA_BETA; i++) lead(&s->use[i], 3 - q->rank);
    if (s->use[DELTA_BEFORE].buffer >= 0)
        lead(&s->use[DELTA_BEFORE], 4 - g->node[n->in[DELTA_BEFORE]].type.rank);
}

static void read_node(struct writer *w)
{
    read_rule(w, w->p->spec);
    if (delta_prepares(w->p->spec, w->p->invariant, &w->gr->opt->target)) add_prepare(w);
}

static void place(const void *spec, const struct type *t, int result, struct tensor_use *to)
{
    (void)spec;
    dense_strides(t, to->stride);
    lead(to, (result == DELTA_AFTER ? 4 : 3) - t->rank);
}

const struct own_fusion fuse_delta = {.kind = &own_delta,
                                      .read = read_node,
                                      .place = place,
                                      .states = 1u << (DELTA_AFTER - DELTA_OPERANDS),
                                      .state = DELTA_BEFORE};

static void read_prepare(struct writer *w)
{
    struct delta_prepare_spec *s = w->p->spec;
    memcpy(s->of.use, s->use, sizeof s->use);
    read_rule(w, &s->of);
    memcpy(s->use, s->of.use, sizeof s->use);
    s->use[DELTA_V] = s->use[DELTA_BEFORE] = absent;
    s->use[DELTA_O] = prepared(w, USE_RESULT, delta_prepared_bytes(&s->of));
    for (int i = 0; i < DELTA_USES; i++) s->of.use[i] = absent;
}

const struct own_fusion fuse_delta_prepare = {
    .kind = &own_delta_prepare, .read = read_prepare, .place = place};
