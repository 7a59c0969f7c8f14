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
    static const int reads[] = {DELTA_K, DELTA_DECAY, DELTA_BETA, DELTA_Q};
    s->prepared = true;
    s->with_p = delta_prepares_p(s, &w->gr->opt->target);
    s->use[DELTA_DECAY] = prepared(w, USE_OPERAND, delta_prepared_bytes(s));
    s->use[DELTA_BETA] = absent;
    struct group *prepare = group_new(w->gr, PROGRAM_OWN, root);
    if (!prepare) return;
    prepare->p.own = &own_delta_prepare;
    for (int i = 0; i < ARRAY_SIZE(reads) - !s->with_p; i++)
        refuse_note(w->gr, prepare, in[reads[i]], REASON_OWN_READS, root, 0, 0);
}

/* Gates that the kernel makes of rows. */
static void read_gates(struct writer *w, struct delta_spec *s)
{
    const struct node *n = &w->gr->g->node[w->p->root];
    struct delta_gates of;
    bool made = w->gr->site[n->in[DELTA_DECAY]].role == ROLE_WITHIN;
    if (!made || !delta_gates_find(w->gr, n, &of)) return;
    s->gates = true;
    s->factor = of.factor;
    s->use[DELTA_DECAY] = port_of(w, USE_OPERAND, of.a);
    s->use[DELTA_BETA] = port_of(w, USE_OPERAND, of.b);
    s->bias = port_of(w, USE_OPERAND, of.bias);
    s->rate = port_of(w, USE_OPERAND, of.rate);
}

/* The last member behind o, if a norm has joined. */
static int last(const struct grouper *gr, const struct group *q, int value)
{
    struct delta_norm of;
    const struct node *n = &gr->g->node[value];
    bool found = !node_result(n) && delta_norm_find(gr, n, value, &of);
    return found && group_holds(gr, q, of.y) ? of.y : -1;
}

/* A norm behind o. */
static void read_norm(struct writer *w, struct delta_spec *s)
{
    const struct node *n = &w->gr->g->node[w->p->root];
    struct delta_norm of;
    if (last(w->gr, w->q, w->p->root) < 0 || !delta_norm_find(w->gr, n, w->p->root, &of)) return;
    s->gated = true;
    s->inv_n = of.inv_n, s->norm_eps = of.eps;
    s->z = port_of(w, USE_OPERAND, of.z);
    s->gain = port_of(w, USE_OPERAND, of.gain);
    if (w->gr->g->node[of.z].type.rank == 3) lead(&s->z, 1);
}

/* Is the state there before the run, and written by this program alone? */
static bool is_early(const struct writer *w, const struct delta_spec *s)
{
    const struct tensor_use *u = &s->use[DELTA_BEFORE];
    int state = w->gr->g->node[w->p->root].in[DELTA_BEFORE];
    return state < 0 || (w->gr->site[w->gr->view[state].base].role == ROLE_LEAF && u->version == 0);
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
    read_gates(w, s);
    read_norm(w, s);
    s->early = is_early(w, s);
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

/* What the kernel reads besides its operands is said to be read so, too. */
static void join(struct grouper *gr, struct group *q)
{
    const struct node *n = &gr->g->node[q->p.root];
    struct delta_gates gates;
    struct delta_norm norm;
    delta_norm_join(gr, q);
    bool made = gr->site[n->in[DELTA_DECAY]].role == ROLE_WITHIN && delta_gates_find(gr, n, &gates);
    if (made) refuse_note(gr, q, gates.a, REASON_OWN_READS, q->p.root, 0, 0);
    if (made) refuse_note(gr, q, gates.b, REASON_OWN_READS, q->p.root, 0, 0);
    bool normed = last(gr, q, q->p.root) >= 0 && delta_norm_find(gr, n, q->p.root, &norm);
    if (normed) refuse_note(gr, q, norm.z, REASON_OWN_READS, q->p.root, 0, 0);
}

const struct own_fusion fuse_delta = {.kind = &own_delta,
                                      .join = join,
                                      .last = last,
                                      .read = read_node,
                                      .place = place,
                                      .states = 1u << (DELTA_AFTER - DELTA_OPERANDS),
                                      .state = DELTA_BEFORE};

static void read_prepare(struct writer *w)
{
    struct delta_prepare_spec *s = w->p->spec;
    memcpy(s->of.use, s->use, sizeof s->use);
    read_rule(w, &s->of);
    s->of.with_p = delta_prepares_p(&s->of, &w->gr->opt->target);
    memcpy(s->use, s->of.use, sizeof s->use);
    if (!s->of.with_p) s->use[DELTA_Q] = absent;
    s->use[DELTA_V] = s->use[DELTA_BEFORE] = absent;
    s->use[DELTA_O] = prepared(w, USE_RESULT, delta_prepared_bytes(&s->of));
    for (int i = 0; i < DELTA_USES; i++) s->of.use[i] = absent;
}

const struct own_fusion fuse_delta_prepare = {
    .kind = &own_delta_prepare, .read = read_prepare, .place = place};
