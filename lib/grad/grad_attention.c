/*
 * grad_attention.c -- attention: one call of attention_grad has the gradients of all its operands, of both
 * results' cotangents.
 *
 * attention_grad reads attention's result and the log-sum-exp of its scores (Dao, arXiv 2307.08691, section
 * 3.1). Where nobody has asked for one of them, it becomes one more result of the same call, so that one
 * kernel writes both.
 */
#include "rules.h"

/* ---- The results of a call ---- */

/* The node that is this result of v's call: there already, or appended. */
static int result_of(struct grad *w, int v, int result)
{
    const struct node *n = grad_node(w, v);
    struct node other = *n;
    if (node_result(n) == result) return v;
    if (w->sibling[v] >= 0) return w->sibling[v];
    node_set_result(&other, result);
    return make_append(w, other, n->in, n->nin);
}

/* ---- Its gradients ---- */

static const struct {
    int operand, result; /* by which operand of attention which result of attention_grad is the gradient */
} gradients[] = {{ATTENTION_Q, ATTENTION_GRAD_DQ},       {ATTENTION_K, ATTENTION_GRAD_DK},
                 {ATTENTION_V, ATTENTION_GRAD_DV},       {ATTENTION_SINKS, ATTENTION_GRAD_DSINKS},
                 {ATTENTION_BIAS, ATTENTION_GRAD_DBIAS}, {ATTENTION_SLOPES, ATTENTION_GRAD_DSLOPES}};

/* What attention_grad does not read: caches. */
static const char *why_not(const struct grad *w, const struct node *n)
{
    if (n->in[ATTENTION_TABLE] >= 0) return "reads pages of a cache";
    if (n->in[ATTENTION_K_SCALE] >= 0 || n->in[ATTENTION_V_SCALE] >= 0)
        return "reads keys or values by a scale";
    if (dtype_is_storage(grad_type(w, n->in[ATTENTION_K])->dtype)) return "reads a cache of fp8";
    if (n->attr.attention.layout) return "reads a cache whose layout is by heads";
    if (n->prim && prim_partial(n->prim, SCORE_ITSELF) == PRIM_PARTIAL_NONE)
        return "has a map of scores without a derivative";
    return NULL;
}

static bool refused(struct grad *w, int v)
{
    const struct node *n = grad_node(w, v);
    const char *why = why_not(w, n);
    for (int i = 0; why && i < n->nin; i++)
        if (grad_wants(w, n, i)) {
            grad_refuse(w, v, i, "%s, and has no derivative then", why);
            return true;
        }
    return false;
}

/* dy and dlse, of which one may be absent, are the cotangents of the call's results. */
static void give_all(struct grad *w, int v, int dy, int dlse)
{
    const struct node *n = grad_node(w, v);
    int in[ATTENTION_GRAD_OPERANDS];
    struct node call = grad_of_attention(n, in);
    int o = in[ATTENTION_GRAD_O] = result_of(w, v, ATTENTION_O - ATTENTION_OPERANDS);
    int l = in[ATTENTION_GRAD_LSE] = result_of(w, v, ATTENTION_LSE - ATTENTION_OPERANDS);
    if (o < 0 || l < 0) return;
    in[ATTENTION_GRAD_DO] = dy < 0 ? make_zeros(w, grad_type(w, o)) : make_wide(w, dy, grad_type(w, o));
    in[ATTENTION_GRAD_DLSE] = make_wide(w, dlse, grad_type(w, l));
    for (int i = 0; i < ARRAY_SIZE(gradients) && w->g->status == CODA_OK; i++) {
        if (!grad_wants(w, n, gradients[i].operand)) continue;
        node_set_result(&call, gradients[i].result - ATTENTION_GRAD_OPERANDS);
        int dx = make_append(w, call, in, ATTENTION_GRAD_OPERANDS);
        if (dx >= 0) call.origin = grad_node(w, dx)->origin;
        grad_give(w, n->in[gradients[i].operand], dx);
    }
}

void grad_attention(struct grad *w, int v, int dy)
{
    int other = w->sibling[v];
    if (refused(w, v)) return;
    if (other >= 0 && other < v) w->late[other] = dy; /* both are there when the walk comes to the first */
    else if (node_result(grad_node(w, v))) give_all(w, v, w->late[v], dy);
    else give_all(w, v, dy, w->late[v]);
}

void grad_attention_grad(struct grad *w, int v, int dy)
{
    const struct node *n = grad_node(w, v);
    (void)dy;
    for (int i = 0; i < n->nin; i++)
        if (grad_wants(w, n, i)) {
            grad_refuse(w, v, i, "is a derivative itself, and has none");
            return;
        }
}
