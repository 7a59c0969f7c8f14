/*
 * eval_attention.c -- attention in fp64, block by block with an online softmax.
 *
 * For each head and each block of queries, over blocks of keys:  S = score(q k^T);  m' = max(m, S);
 * p = e^(S - m');  l = l e^(m - m') + sum p;  o = o e^(m - m') + p v;  at the end o / l. Nothing of
 * size Tq x Tk is stored. A key that a query does not see is absent: its value is not even multiplied by 0,
 * which would make a NaN of it.
 */
#include "eval_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The keys that the query at `position` sees, but for ranges. */
static struct key_range visible(const struct attention *a, int64_t keys, int64_t position)
{
    struct key_range r = {0, keys};
    if (a->causal) r.end = MAX(0, MIN(keys, position + 1));
    if (a->ahead) r.end = MAX(0, MIN(keys, position + a->ahead + 1));
    if (a->align == CODA_ALIGN_LENGTH && position < 0) r.end = 0; /* no row of the sequence */
    if (a->window) r.first = MIN(MAX(0, position - a->window + 1), r.end);
    return r;
}

struct key_range queries_see(const struct attention *a, const struct queries *s, int64_t i)
{
    struct key_range r = visible(a, s->keys, s->first + i + s->shift);
    if (!a->ranges) return r;
    const double *own = s->ranges + 2 * (s->first + i);
    r.first = MAX(r.first, (int64_t)fmin(own[0], (double)a->tk));
    r.end = MAX(r.first, (int64_t)fmax(-1, fmin((double)r.end, own[1])));
    return r;
}

/* What the keys, or values, that a query head reads are multiplied by. */
static double scale_of(const double *scale, int64_t scales, const struct attention *a, int64_t head)
{
    return !scale ? 1 : scale[scales > 1 ? head / (a->heads / a->kv_heads) : 0];
}

/* The score of key j, of a product with row i. */
static double score_of(const struct attention *a, const struct queries *s, int64_t i, int64_t j,
                       double product)
{
    double x = a->scale * scale_of(a->k_scale, a->k_scales, a, s->head) * product;
    if (a->softcap != 0) x = a->softcap * tanh(x / a->softcap);
    double position = (double)(s->first + i + s->shift);
    if (a->slopes) x -= a->slopes[s->head] * fabs(position - (double)j);
    if (s->bias) x += s->bias[(s->first + i) * a->bias_stride[2] + j * a->bias_stride[3]];
    if (a->map) x = a->map((double[PRIM_MAX_INPUTS]){x, position, (double)j, (double)s->head}, a->map_param);
    return x;
}

/* Turns row i of the scores for the keys j0 + r into weights, and rescales what it has so far. */
static void weigh_row(const struct attention *a, struct queries *s, int64_t i, int64_t j0, struct key_range r)
{
    double *score = s->score + i * KEYS, most = s->most[i], sum = 0;
    for (int64_t j = r.first; j < r.end; j++) {
        score[j] = score_of(a, s, i, j0 + j, score[j]);
        if (!(score[j] <= most)) most = score[j];
    }
    for (int64_t j = r.first; j < r.end; j++) {
        score[j] = score[j] == -INFINITY ? 0 : exp(score[j] - most);
        sum += score[j];
    }
    double keep = s->most[i] == most ? 1 : exp(s->most[i] - most);
    for (int64_t d = 0; d < a->head_dim; d++) s->out[i * s->pitch + d] *= keep;
    s->sum[i] = s->sum[i] * keep + sum;
    s->most[i] = most;
}

/* o += p v for row i and the keys that it sees. */
static void add_values(const struct attention *a, struct queries *s, int64_t i, int64_t j0,
                       struct key_range r)
{
    double *out = s->out + i * s->pitch;
    for (int64_t j = r.first; j < r.end; j++) {
        const double *v = s->v.at + (j0 + j) * s->v.row;
        for (int64_t d = 0; d < a->head_dim; d++) out[d] += s->score[i * KEYS + j] * v[d];
    }
}

static void attend_keys(const struct attention *a, struct queries *s, struct multiply_space *space,
                        int64_t j0)
{
    int64_t n = MIN(s->keys - j0, KEYS);
    struct matrix keys = {s->k.at + j0 * s->k.row, 1, s->k.row};
    struct matrix values = {s->v.at + j0 * s->v.row, s->v.row, 1};
    struct key_range seen[QUERIES];
    bool whole = true; /* all rows see all keys of the block */
    multiply(space, s->count, n, a->head_dim, s->q, keys, s->score, KEYS, false);
    for (int64_t i = 0; i < s->count; i++) {
        struct key_range r = queries_see(a, s, i);
        seen[i].first = MIN(MAX(r.first - j0, 0), n);
        seen[i].end = MAX(MIN(r.end - j0, n), seen[i].first);
        whole = whole && seen[i].end - seen[i].first == n;
        if (seen[i].first < seen[i].end) weigh_row(a, s, i, j0, seen[i]);
    }
    if (whole)
        multiply(space, s->count, a->head_dim, n, (struct matrix){s->score, KEYS, 1}, values, s->out,
                 s->pitch, true);
    for (int64_t i = 0; i < s->count && !whole; i++) add_values(a, s, i, j0, seen[i]);
}

/* The sum of row i with its sink's weight, counted from the largest of all, which is returned; and by what
 * others' weights shrink to be counted from there. */
static double with_sink(const struct attention *a, const struct queries *s, int64_t i, double *keep,
                        double *sum)
{
    double sink = a->sinks ? a->sinks[s->head] : -INFINITY, base = fmax(s->most[i], sink);
    *keep = base == s->most[i] ? 1 : exp(s->most[i] - base);
    *sum = s->sum[i] * *keep + (sink == -INFINITY ? 0 : exp(sink - base));
    return base;
}

static void attend(const struct attention *a, struct queries *s, struct multiply_space *space)
{
    for (int64_t i = 0; i < s->count; i++) {
        s->most[i] = -INFINITY;
        s->sum[i] = 0;
        memset(s->out + i * s->pitch, 0, sizeof *s->out * (size_t)a->head_dim);
    }
    struct key_range all = {s->keys, 0};
    for (int64_t i = 0; i < s->count; i++) {
        struct key_range r = queries_see(a, s, i);
        if (r.first < r.end) all.first = MIN(all.first, r.first), all.end = MAX(all.end, r.end);
    }
    for (int64_t j = all.first / KEYS * KEYS; j < all.end; j += KEYS) attend_keys(a, s, space, j);
    for (int64_t i = 0; i < s->count; i++) {
        struct key_range r = queries_see(a, s, i);
        double keep, sum;
        with_sink(a, s, i, &keep, &sum);
        keep *= scale_of(a->v_scale, a->v_scales, a, s->head);
        for (int64_t d = 0; d < a->head_dim && r.first < r.end; d++) s->out[i * s->pitch + d] *= keep / sum;
    }
}

/* log sum e^s of each row, the sink's included. */
static void attend_for_sums(const struct attention *a, struct queries *s, struct multiply_space *space,
                            double *lse)
{
    double *o = malloc(sizeof *o * (size_t)(s->count * a->head_dim + 1));
    s->out = o;
    s->pitch = a->head_dim;
    if (o) attend(a, s, space);
    for (int64_t i = 0; o && i < s->count; i++) {
        struct key_range r = queries_see(a, s, i);
        double keep, sum, base = with_sink(a, s, i, &keep, &sum);
        lse[i] = r.first < r.end ? base + log(sum) : -INFINITY;
    }
    s->failed = !o;
    free(o);
}

/* Where query 0 sits in a sequence of so many queries and keys. */
static int64_t shift(const struct attention *a, int64_t queries, int64_t keys)
{
    if (a->align == CODA_ALIGN_START) return 0;
    return (a->align == CODA_ALIGN_LENGTH ? keys : a->tk) - queries;
}

static void cut(struct attention *a, int64_t batch, int64_t origin, int64_t end)
{
    for (int64_t first = origin; first < end; first += QUERIES)
        a->piece[a->pieces++] = (struct piece){batch, origin, end, first};
}

/* False: no memory. */
static bool cut_all(struct attention *a)
{
    int64_t at = 0, blocks = CEIL_DIV(a->tq, QUERIES), most = a->batch * blocks;
    if (a->starts) most = blocks + MIN(a->batch + 2, a->tq);
    if (!(a->piece = malloc(sizeof *a->piece * (size_t)(most + 1)))) return false;
    if (!a->tq) return true; /* of however many sequences */
    for (int64_t b = 0; b < a->batch && !a->starts; b++) cut(a, b, b * a->tq, (b + 1) * a->tq);
    for (int64_t b = 0; b <= a->batch && a->starts; b++) { /* a start is where the sequence before it ends */
        int64_t next = MAX(at, (int64_t)fmax(0, fmin(a->starts[b], (double)a->tq)));
        cut(a, b - 1, at, next);
        at = next;
    }
    if (a->starts) cut(a, -1, at, a->tq);
    return true;
}

/* The rows of one head of the keys of sequence b, or of its values, from the pages of a pool. */
static void gather(const struct attention *a, const double *pool, int64_t b, int64_t keys, double *to)
{
    for (int64_t j = 0; j < keys; j++) {
        double page = a->table[b * (a->tk / a->page) + j / a->page];
        bool there = page >= 0 && page < (double)a->pages;
        const double *row = pool + (there ? (int64_t)page * a->kv_lot + j % a->page * a->kv_row : 0);
        for (int64_t d = 0; d < a->head_dim; d++) to[j * a->head_dim + d] = there ? row[d] : 0;
    }
}

/* The bias of the head and the piece's sequence, whose queries are packed or begin a batch's. */
static const double *bias_of(const struct attention *a, const struct piece *p, int64_t head)
{
    if (!a->bias) return NULL;
    int64_t row = a->starts ? p->origin * a->bias_stride[2] : MAX(p->batch, 0) * a->bias_stride[0];
    return a->bias + row + head * a->bias_stride[1];
}

/* Strides of the bias, a dense tensor that broadcasts to [batch][heads][tq][tk]. */
static void lie_bias(struct attention *a, const struct type *t)
{
    int64_t dense[CODA_MAX_RANK];
    dense_strides(t, dense);
    for (int d = 0; d < t->rank; d++)
        if (t->dim[d] != 1) a->bias_stride[4 - t->rank + d] = dense[d];
}

int64_t attention_row_of_sums(const struct attention *a, const struct piece *p, int64_t head)
{
    if (a->starts) return head * a->tq + p->first;
    return (p->batch * a->heads + head) * a->tq + p->first - p->origin;
}

void attention_queries(const struct attention *a, const struct piece *p, int64_t head, struct queries *s)
{
    int64_t pitch = a->heads * a->head_dim, at = p->first * pitch + head * a->head_dim, b = MAX(p->batch, 0);
    int64_t kv = (a->page ? 0 : b * a->kv_lot) + head / (a->heads / a->kv_heads) * a->kv_head;
    s->failed = false;
    s->first = p->first - p->origin;
    s->count = MIN(p->end - p->first, QUERIES);
    s->keys = p->batch < 0 ? 0 : a->tk;
    if (p->batch >= 0 && a->lengths) s->keys = (int64_t)fmax(0, fmin(a->lengths[b], (double)a->tk));
    s->shift = shift(a, p->end - p->origin, s->keys);
    s->head = head;
    s->ranges = a->ranges ? a->ranges + 2 * p->origin : NULL;
    s->bias = bias_of(a, p, head);
    s->q = (struct matrix){a->q + at, pitch, 1};
    s->k = (struct matrix){a->k + kv, a->kv_row, 1};
    s->v = (struct matrix){a->v + kv, a->kv_row, 1};
    s->pitch = pitch;
}

static void attention_task(void *ctx, int64_t task)
{
    struct attention *a = ctx;
    const struct piece p = a->piece[task / a->heads];
    int64_t h = task % a->heads, b = MAX(p.batch, 0);
    double *gathered = NULL;
    struct queries *s = malloc(sizeof *s);
    struct multiply_space *space = multiply_space_new();
    if (s) attention_queries(a, &p, h, s);
    if (s && a->page) gathered = malloc(sizeof *gathered * (size_t)(2 * s->keys * a->head_dim + 1));
    if (s && space && (gathered || !a->page)) {
        if (a->page) {
            double *values = gathered + s->keys * a->head_dim;
            gather(a, s->k.at, b, s->keys, gathered);
            gather(a, s->v.at, b, s->keys, values);
            s->k = (struct matrix){gathered, a->head_dim, 1};
            s->v = (struct matrix){values, a->head_dim, 1};
        }
        s->out = a->out + p.first * s->pitch + h * a->head_dim;
        if (a->lse) attend_for_sums(a, s, space, a->out + attention_row_of_sums(a, &p, h));
        else attend(a, s, space);
        if (s->failed) atomic_store(&a->failed, true);
    } else {
        atomic_store(&a->failed, true);
    }
    free(gathered);
    free(space);
    free(s);
}

/* Where dense k and v have their rows. */
static void lie(struct attention *a, const struct type *k, bool by_heads)
{
    int64_t keys = a->page ? a->page : a->tk; /* of a lot */
    a->kv_lot = a->kv_heads * keys * a->head_dim;
    a->kv_head = by_heads ? keys * a->head_dim : a->head_dim;
    a->kv_row = by_heads ? a->head_dim : a->kv_heads * a->head_dim;
    if (a->page) a->pages = by_heads ? k->dim[0] : k->dim[0] / a->page;
}

/* A scale that is left to the library is 1 / sqrt(head_dim), whose float the node has. */
static double scale_in_full(float scale, int64_t head_dim)
{
    bool usual = scale == 1.0f / sqrtf((float)head_dim);
    return usual ? 1 / sqrt((double)head_dim) : (double)scale;
}

/* How much of it there is, and its constants. */
static void read_sizes(struct attention *a, const struct node *n, const struct type *const *type)
{
    const struct type *q = type[ATTENTION_Q], *k = type[ATTENTION_K];
    const struct attr_attention *of = &n->attr.attention;
    *a = (struct attention){.batch = q->rank == 3 ? q->dim[0] : 1,
                            .tq = q->dim[q->rank - 2],
                            .tk = of->page ? type_columns(type[ATTENTION_TABLE]) * of->page
                                           : k->dim[k->rank - 2],
                            .page = of->page,
                            .heads = of->heads,
                            .kv_heads = of->kv_heads,
                            .head_dim = type_columns(q) / of->heads,
                            .window = of->window,
                            .ahead = of->ahead,
                            .softcap = of->softcap,
                            .causal = of->causal,
                            .lse = of->lse,
                            .align = (coda_attention_align)of->align,
                            .scale = scale_in_full(of->scale, type_columns(q) / of->heads)};
    for (int i = 0; i < PRIM_MAX_PARAMS; i++) a->map_param[i] = of->score[i];
    lie(a, k, of->layout == CODA_LAYOUT_HND);
}

bool attention_open(struct attention *a, const struct node *n, const struct type *const *type,
                    const double *const *in)
{
    read_sizes(a, n, type);
    a->q = in[ATTENTION_Q], a->k = in[ATTENTION_K], a->v = in[ATTENTION_V];
    a->lengths = in[ATTENTION_LENGTHS], a->ranges = in[ATTENTION_RANGES];
    a->slopes = in[ATTENTION_SLOPES], a->sinks = in[ATTENTION_SINKS];
    a->table = in[ATTENTION_TABLE], a->starts = in[ATTENTION_STARTS];
    a->k_scale = in[ATTENTION_K_SCALE], a->v_scale = in[ATTENTION_V_SCALE];
    a->bias = in[ATTENTION_BIAS];
    if (n->prim && !(a->map = n->prim->reference)) {
        fail(CODA_E_UNSUPPORTED, "evaluate: map %s has no reference", n->prim->name);
        return false;
    }
    if (a->k_scale) a->k_scales = type[ATTENTION_K_SCALE]->dim[0];
    if (a->v_scale) a->v_scales = type[ATTENTION_V_SCALE]->dim[0];
    if (a->bias) lie_bias(a, type[ATTENTION_BIAS]);
    if (a->starts) a->batch = type_columns(type[ATTENTION_STARTS]) - 1;
    return cut_all(a) || fail(CODA_E_MEMORY, "evaluate: out of memory in attention") == CODA_OK;
}

coda_status eval_attention(const struct eval_call *c)
{
    struct attention a;
    if (!attention_open(&a, c->n, c->type, c->in)) return fail_status();
    a.out = c->out;
    int64_t tasks = a.pieces * a.heads;
    if (type_elements(c->type[ATTENTION_Q]) * a.tk < 1 << 16)
        for (int64_t i = 0; i < tasks; i++) attention_task(&a, i);
    else parallel_for(tasks, attention_task, &a);
    free(a.piece);
    return a.failed ? fail(CODA_E_MEMORY, "evaluate: out of memory in attention") : CODA_OK;
}
