/* schedule_attention_delta.c -- the kernel of what attention's gradients read of each query: a block has some
 * queries of a head, neighbouring lanes a query. */
#include "attention_grad.h"
#include "schedule.h"

enum { THREADS = 256, WARP = 32, ROWS = 64, PIECE_BYTES = 16 };

/* Adjacent columns that one load brings of o and do, whose buffers begin at multiples of 16 bytes. */
static int width(const struct attention_delta_spec *s)
{
    const struct tensor_use *rows[] = {&s->use[ATTENTION_GRAD_O], &s->use[ATTENTION_GRAD_DO]};
    int n = PIECE_BYTES / (int)dtype_bytes(rows[0]->dtype, 1);
    for (int i = 0; i < ARRAY_SIZE(rows); i++)
        while (n > 1 && (s->head_dim % n || rows[i]->offset % n || rows[i]->batch % n || rows[i]->time % n ||
                         rows[i]->head % n))
            n /= 2;
    return n;
}

void schedule_attention_delta(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    const struct attention_delta_spec *of = q->spec;
    int each = width(of), lanes = 1;
    (void)opt;
    while (lanes < WARP && (int64_t)lanes * each < of->head_dim) lanes *= 2;
    s->threads = THREADS;
    s->tile.bm = MAX(ROWS, THREADS / lanes);
    s->tile.bn = each;
    s->tile.groups = lanes;
    int64_t heads = mul_counts(of->batch, of->heads);
    s->grid = of->tq > 0 ? mul_counts(heads, CEIL_DIV(attention_delta_pitch(of->tq), s->tile.bm)) : 0;
}
