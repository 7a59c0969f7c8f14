/* schedule_attention_grad.c -- which kernel computes attention's gradients, and which blocks there are. */
#include "attention_grad_kernel.h"

static const struct attention_grad_kernel *const kernels[] = {
#define X(NAME, name) &attention_grad_##name,
    ATTENTION_GRAD_KERNELS(X)
#undef X
};

/* Blocks of the gradient of a bias, which is summed over what the bias was broadcast over. */
static int64_t blocks_of_pairs(const struct attention_grad_spec *s, const struct attention_grad_blocks *b,
                               const struct attention_spec *a, const struct tile *tile)
{
    const struct tensor_use *u = &s->use[ATTENTION_GRAD_DBIAS];
    bool batch = u->stride[0] != 0, head = u->stride[1] != 0, time = u->stride[2] != 0,
         key = u->stride[3] != 0;
    bool apart = batch || attention_is_packed(a);
    int64_t tiles = time ? (apart ? b->query_tiles : CEIL_DIV(a->tq, tile->bm)) : batch ? a->batch : 1;
    return mul_counts(tiles, mul_counts(head ? a->heads : 1, key ? b->walked_tiles : 1));
}

struct attention_grad_blocks attention_grad_blocks(const struct attention_grad_spec *s,
                                                   const struct tile *tile)
{
    const struct attention_spec a = attention_grad_of(s);
    bool dk = attention_grad_has(s, ATTENTION_GRAD_DK), dv = attention_grad_has(s, ATTENTION_GRAD_DV);
    bool of_heads =
        attention_grad_has(s, ATTENTION_GRAD_DSINKS) || attention_grad_has(s, ATTENTION_GRAD_DSLOPES);
    struct attention_grad_blocks b = {.key_tiles = CEIL_DIV(a.tk, tile->bm),
                                      .walked_tiles = CEIL_DIV(a.tk, tile->bn),
                                      .query_tiles = attention_tiles(&a, tile->bm)};
    if (dk || dv) b.keys = mul_counts(mul_counts(a.batch, a.kv_heads), b.key_tiles);
    if (attention_grad_has(s, ATTENTION_GRAD_DQ)) b.queries = mul_counts(b.query_tiles, a.heads);
    if (attention_grad_has(s, ATTENTION_GRAD_DBIAS)) b.pairs = blocks_of_pairs(s, &b, &a, tile);
    if (of_heads) b.heads = a.heads;
    return b;
}

void schedule_attention_grad(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct attention_grad_spec *spec = q->spec;
    const struct attention_spec a = attention_grad_of(spec);
    const struct attention_grad_kernel *const *k = kernels, *const *last = &kernels[ARRAY_SIZE(kernels) - 1];
    struct attention_grad_tile t = {0};
    for (; k <= last; k++) {
        if ((*k)->fits(spec, &a, &opt->target)) t = (*k)->tile(spec, &a, &opt->target);
        if (t.bm || k == last) break; /* the last one takes any, but for heads that no memory holds */
    }
    s->attention_grad = *k;
    s->tile.bm = t.bm, s->tile.bn = t.bn, s->tile.bk = t.bk, s->tile.stages = t.stages;
    s->threads = t.threads, s->shared_bytes = (int)t.shared_bytes, s->residents = t.residents;
    if (!t.bm) return;
    const struct attention_grad_blocks b = attention_grad_blocks(spec, &s->tile);
    s->grid = add_counts(add_counts(b.keys, b.queries), add_counts(b.pairs, b.heads));
    s->persistent = t.persistent;
}
