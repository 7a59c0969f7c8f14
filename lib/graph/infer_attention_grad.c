/* infer_attention_grad.c -- the types of attention's gradients: those of what they are gradients by. */
#include "infer.h"

#include <inttypes.h>
#include <string.h>

/* ---- The attention ---- */

/* Each operand of attention among those of its gradient; -1: what has no gradient does without it. */
static const int operand[ATTENTION_OPERANDS] = {
    [ATTENTION_Q] = ATTENTION_GRAD_Q,
    [ATTENTION_K] = ATTENTION_GRAD_K,
    [ATTENTION_V] = ATTENTION_GRAD_V,
    [ATTENTION_LENGTHS] = ATTENTION_GRAD_LENGTHS,
    [ATTENTION_RANGES] = ATTENTION_GRAD_RANGES,
    [ATTENTION_SLOPES] = ATTENTION_GRAD_SLOPES,
    [ATTENTION_SINKS] = ATTENTION_GRAD_SINKS,
    [ATTENTION_TABLE] = -1,
    [ATTENTION_K_SCALE] = -1,
    [ATTENTION_V_SCALE] = -1,
    [ATTENTION_STARTS] = ATTENTION_GRAD_STARTS,
    [ATTENTION_BIAS] = ATTENTION_GRAD_BIAS,
};

int attention_grad_operand(int i) { return operand[i]; }

/* What both calls have of their attention. */
#define SHARED(X) X(scale) X(heads) X(kv_heads) X(window) X(causal) X(align) X(ahead) X(softcap)

struct node attention_of_grad(const struct node *n, int *in)
{
    const struct attr_attention_grad *a = &n->attr.attention_grad;
    struct node of = {.op = OP_ATTENTION, .prim = n->prim, .nin = ATTENTION_OPERANDS, .in = in};
#define X(field) of.attr.attention.field = a->field;
    SHARED(X)
#undef X
    memcpy(of.attr.attention.score, a->score, sizeof a->score);
    for (int i = 0; i < ATTENTION_OPERANDS; i++)
        in[i] = operand[i] >= 0 && operand[i] < n->nin ? n->in[operand[i]] : -1;
    return of;
}

struct node grad_of_attention(const struct node *n, int *in)
{
    const struct attr_attention *a = &n->attr.attention;
    struct node call = {.op = OP_ATTENTION_GRAD, .prim = n->prim, .nin = ATTENTION_GRAD_OPERANDS, .in = in};
#define X(field) call.attr.attention_grad.field = a->field;
    SHARED(X)
#undef X
    memcpy(call.attr.attention_grad.score, a->score, sizeof a->score);
    for (int i = 0; i < ATTENTION_GRAD_OPERANDS; i++) in[i] = -1;
    for (int i = 0; i < ATTENTION_OPERANDS; i++)
        if (operand[i] >= 0) in[operand[i]] = n->in[i];
    return call;
}

double score_partial(const struct prim *score, const double *in, const double *params)
{
    double at[PRIM_MAX_INPUTS];
    const struct prim_facts *f = &score->facts;
    switch (prim_partial(score, SCORE_ITSELF)) {
    case PRIM_PARTIAL_MAP: return f->grad[SCORE_ITSELF]->reference(in, params);
    case PRIM_PARTIAL_ONE: return 1;
    case PRIM_PARTIAL_LINEAR:
        for (int i = 0; i < PRIM_MAX_INPUTS; i++)
            at[i] = i == SCORE_ITSELF ? 1 : score_partial_drops(score, i) ? 0 : in[i];
        return score->reference(at, params);
    default: return 0;
    }
}

bool score_partial_drops(const struct prim *score, int i)
{
    return !(score->facts.linear >> SCORE_ITSELF & 1) && score->facts.jointly >> i & 1;
}

bool score_has_reference(const struct prim *score)
{
    bool map = score && prim_partial(score, SCORE_ITSELF) == PRIM_PARTIAL_MAP;
    return !score || (score->reference && (!map || score->facts.grad[SCORE_ITSELF]->reference));
}

/* ---- Checks ---- */

/* The message that attention's rule left, as this operation's. */
static coda_status as_own(coda_status s)
{
    static const char theirs[] = "attention:";
    struct text t = {0};
    const char *message = fail_message();
    if (s == CODA_OK || strncmp(message, theirs, strlen(theirs)) != 0) return s;
    text_append(&t, message + strlen(theirs));
    if (!t.failed) fail(s, "attention_grad:%s", text_str(&t));
    text_free(&t);
    return s;
}

static coda_status need_type(const struct node *n, int i, const struct type *t, const struct type *want)
{
    if (!t || (t->dtype == want->dtype && t->rank == want->rank && dims_equal(t, want, t->rank)))
        return CODA_OK;
    return fail(CODA_E_INVALID, "attention_grad: %s is %s; must be %s", op_info[n->op].name[i],
                type_text(t).s, type_text(want).s);
}

/* The sums of a forward attention of type q: f32 [B, heads, Tq]. */
static struct type sums_type(const struct type *q, int64_t heads)
{
    struct type t = *q;
    t.dtype = CODA_F32;
    t.dim[q->rank - 2] = heads;
    t.dim[q->rank - 1] = q->dim[q->rank - 2];
    return t;
}

static coda_status check_results(const graph *g, const struct node *n, const struct type *q)
{
    const struct type sums = sums_type(q, n->attr.attention_grad.heads);
    static const int like_q[] = {ATTENTION_GRAD_O, ATTENTION_GRAD_DO};
    static const int like_sums[] = {ATTENTION_GRAD_LSE, ATTENTION_GRAD_DLSE};
    coda_status s = CODA_OK;
    for (int i = 0; i < 2 && s == CODA_OK; i++) s = need_type(n, like_q[i], operand_type(g, n, like_q[i]), q);
    for (int i = 0; i < 2 && s == CODA_OK; i++)
        s = need_type(n, like_sums[i], operand_type(g, n, like_sums[i]), &sums);
    return s;
}

/* What the result is the gradient by, in the order of the results. */
static const int variable[] = {ATTENTION_GRAD_Q,     ATTENTION_GRAD_K,    ATTENTION_GRAD_V,
                               ATTENTION_GRAD_SINKS, ATTENTION_GRAD_BIAS, ATTENTION_GRAD_SLOPES};

static coda_status check_variable(const struct node *n, const struct type *t)
{
    int of = node_result(n);
    if (t) return CODA_OK;
    return fail(CODA_E_INVALID, "attention_grad: of is %d, but there is no operand %s", of,
                op_info[n->op].name[variable[of]]);
}

coda_status infer_attention_grad(const graph *g, struct node *n)
{
    struct attr_attention_grad *a = &n->attr.attention_grad;
    int in[ATTENTION_OPERANDS];
    struct node of = attention_of_grad(n, in);
    const struct type *q = operand_type(g, n, ATTENTION_GRAD_Q);
    coda_status s = as_own(infer_attention(g, &of));
    if (s != CODA_OK) return s;
    const struct attr_attention *whole = &of.attr.attention;
    a->scale = whole->scale, a->heads = whole->heads, a->kv_heads = whole->kv_heads, a->align = whole->align;
    if ((s = check_results(g, n, q)) != CODA_OK) return s;
    if (n->prim && prim_partial(n->prim, SCORE_ITSELF) == PRIM_PARTIAL_NONE)
        return fail(CODA_E_UNSUPPORTED,
                    "attention_grad: the map of scores %s declares no derivative by its first operand",
                    n->prim->name);
    const struct type *by = operand_type(g, n, variable[node_result(n)]);
    if ((s = check_variable(n, by)) != CODA_OK) return s;
    n->type = *by;
    if (node_result(n) >= ATTENTION_GRAD_DSINKS - ATTENTION_GRAD_OPERANDS) n->type.dtype = CODA_F32;
    return CODA_OK;
}
