/*
 * fuse_delta_gates.c -- decays and betas of the gated delta rule that are a few maps of a row.
 *
 *     decay = rate softplus(cast(a) + bias),    beta = sigmoid(cast(b))
 *
 * Gated DeltaNet (arXiv 2412.06464) makes them so, of columns of the product ahead. Of a few tokens they are
 * a launch of its own, which waits for that product and is waited for. The kernel that goes token by token
 * reads a and b instead and computes the maps itself, by the same primitives, so that bits stay what they
 * are. Then those nodes are of no other program: ROLE_WITHIN. Chunks of tokens read each gate many times, and
 * have them made once.
 */
#include "delta.h"
#include "fuse_own.h"

static bool is_map(const struct node *n, const char *name)
{
    return n->op == OP_MAP && n->prim == prim_find(name);
}

/* May it be computed where it is read, and nowhere else? */
static bool is_inner(const struct grouper *gr, int value)
{
    return gr->g->node[value].output < 0 && gr->g->node[value].type.dtype == CODA_F32;
}

static bool is_read_once(const struct grouper *gr, int value)
{
    return is_inner(gr, value) && uses_count(&gr->uses, value) == 1;
}

/* Do calls of the rule alone read it, by one operand? */
static bool is_of_rule(const struct grouper *gr, int value, const struct node *rule, int operand)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++)
        if (u->use[i].operand != operand || !node_same_call(rule, &gr->g->node[u->use[i].node])) return false;
    return is_inner(gr, value);
}

/* A number for each head, which is there before the run. */
static bool is_vector(const struct grouper *gr, int value, int64_t heads)
{
    const struct node *n = &gr->g->node[value];
    return gr->site[value].role == ROLE_LEAF && n->type.rank == 1 && n->type.dtype == CODA_F32 &&
           !node_is_written(n) && extents_equal(n->type.dim[0], heads) &&
           extents_equal(gr->view[value].stride[0], 1);
}

/* What a cast widens, which lies in memory as rows of adjacent columns do. */
static int row_of(const struct grouper *gr, int value, struct delta_gates *to)
{
    const struct node *n = &gr->g->node[value];
    if (n->op != OP_CAST || !is_read_once(gr, value)) return -1;
    int x = n->in[CAST_X];
    const struct view *v = &gr->view[x];
    bool row = v->base >= 0 && !state_is_read(gr->g, n) && dtype_is_half(gr->g->node[x].type.dtype) &&
               extent_is_one(v->stride[gr->g->node[x].type.rank - 1]);
    if (row) to->within[to->nodes++] = value;
    return row ? x : -1;
}

/* rate is a vector, or a scaled one. */
static bool find_rate(const struct grouper *gr, int value, int64_t heads, struct delta_gates *to)
{
    const struct node *n = &gr->g->node[value];
    to->factor = 1;
    if (is_map(n, "scale") && is_read_once(gr, value)) {
        to->factor = n->attr.map.param[0];
        to->within[to->nodes++] = value;
        value = n->in[0];
    }
    to->rate = value;
    return is_vector(gr, value, heads);
}

static bool find_decay(const struct grouper *gr, int value, int64_t heads, struct delta_gates *to)
{
    const struct node *node = gr->g->node, *product = &node[value];
    if (!is_map(product, "mul")) return false;
    int plus = is_map(&node[product->in[0]], "softplus") ? 0 : 1;
    int soft = product->in[plus], sum = node[soft].in[0];
    if (!is_map(&node[soft], "softplus") || !is_read_once(gr, soft)) return false;
    if (!is_map(&node[sum], "add") || !is_read_once(gr, sum)) return false;
    int cast = node[node[sum].in[0]].op == OP_CAST ? 0 : 1;
    to->bias = node[sum].in[!cast];
    to->within[to->nodes++] = value, to->within[to->nodes++] = soft, to->within[to->nodes++] = sum;
    to->a = row_of(gr, node[sum].in[cast], to);
    return to->a >= 0 && is_vector(gr, to->bias, heads) && find_rate(gr, product->in[!plus], heads, to);
}

static bool find_beta(const struct grouper *gr, int value, struct delta_gates *to)
{
    const struct node *n = &gr->g->node[value];
    if (!is_map(n, "sigmoid")) return false;
    to->within[to->nodes++] = value;
    to->b = row_of(gr, n->in[0], to);
    return to->b >= 0;
}

bool delta_gates_find(const struct grouper *gr, const struct node *rule, struct delta_gates *to)
{
    const graph *g = gr->g;
    const struct type *q = &g->node[rule->in[DELTA_Q]].type;
    int decay = rule->in[DELTA_DECAY], beta = rule->in[DELTA_BETA], starts = rule->in[DELTA_STARTS];
    int64_t sequences = starts < 0 ? 1 : g->node[starts].type.dim[0] - 1;
    *to = (struct delta_gates){.nodes = 0};
    if (extent_reaches(q->dim[q->rank - 2], mul_counts(DELTA_LEAST_CHUNK, sequences))) return false;
    if (!extents_equal(type_columns(&g->node[decay].type), rule->attr.delta.heads)) return false;
    return find_decay(gr, decay, rule->attr.delta.heads, to) && find_beta(gr, beta, to);
}

/* Has no program any of them yet? */
static bool are_free(const struct grouper *gr, const struct delta_gates *of)
{
    bool free = true;
    for (int i = 0; i < of->nodes; i++) free = free && gr->site[of->within[i]].role == ROLE_FREE;
    return free;
}

void fuse_delta_gates(struct grouper *gr)
{
    struct delta_gates of;
    for (int i = 0; i < gr->g->nodes && gr->opt->fuse; i++) {
        const struct node *n = &gr->g->node[i];
        if (n->op != OP_DELTA || !delta_gates_find(gr, n, &of) || !are_free(gr, &of)) continue;
        if (!is_of_rule(gr, n->in[DELTA_DECAY], n, DELTA_DECAY)) continue;
        if (!is_of_rule(gr, n->in[DELTA_BETA], n, DELTA_BETA)) continue;
        for (int k = 0; k < of.nodes; k++) gr->site[of.within[k]].role = ROLE_WITHIN;
    }
}
