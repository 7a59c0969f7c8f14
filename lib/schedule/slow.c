/* slow.c -- why a kernel is not the fast one of its kind, from what its main loop and its tensors are. */
#include "attention_kernel.h"
#include "mainloop.h"

static struct reason because(enum reason_kind kind, int node, int64_t a, int64_t b)
{
    return (struct reason){kind, node, -1, a, b};
}

/* Why TMA cannot describe an operand, and what would help. */
static struct reason operand_reason(const struct tensor_use *o, enum obstacle what)
{
    enum { UNIT = 8 }; /* elements of 16 bytes */
    switch (what) {
    case HAS_NO_UNIT_STRIDE: return because(REASON_PRODUCT_STRIDES, o->value, o->row, o->k);
    case BEGINS_ODDLY: return because(REASON_PRODUCT_BEGIN, o->value, o->offset, UNIT);
    case HAS_ODD_PITCH: return because(REASON_PRODUCT_PITCH, o->value, operand_pitch(o), UNIT);
    case HAS_ODD_BATCHES: return because(REASON_PRODUCT_BATCH, o->value, o->batch, UNIT);
    default: return because(REASON_PRODUCT_F32, -1, 0, 0);
    }
}

static struct reason mixed_reason(const struct program *q)
{
    if (use_is_packed(&q->b.data)) return because(REASON_PRODUCT_PACKED, q->b.data.value, 0, 0);
    enum reason_kind kind = dtype_is_storage(q->a.dtype)   ? REASON_PRODUCT_FP8
                            : dtype_is_storage(q->b.dtype) ? REASON_PRODUCT_8_BITS
                                                           : REASON_PRODUCT_MIXED;
    struct reason r = because(kind, q->a.data.value, q->a.dtype, q->b.dtype);
    r.other = q->b.data.value;
    return r;
}

static bool is_fast(const struct mainloop *m)
{
    return m == &mainloop_wgmma || m == &mainloop_wgmma_f8 || m == &mainloop_wgmma_mixed || m->streams ||
           m == &mainloop_cublaslt;
}

/* Kind REASON_NONE: it is fast, or tuning chose it among faster ones by price. */
static struct reason product_reason(const struct program *q, const struct mainloop *m,
                                    const struct target *target)
{
    enum obstacle a = program_a_obstacle(q), b = program_b_obstacle(q);
    if (is_fast(m)) return because(REASON_NONE, -1, 0, 0);
    if (!program_has_work(q)) return because(REASON_PRODUCT_EMPTY, -1, 0, 0);
    if (mainloop_wgmma_mixed.supports(target, q)) return because(REASON_NONE, -1, 0, 0); /* by price */
    if (q->a.dtype != q->b.dtype || dtype_is_storage(q->b.dtype) || use_is_packed(&q->b.data))
        return mixed_reason(q);
    if (!dtype_is_half(q->a.dtype)) return because(REASON_PRODUCT_F32, -1, 0, 0);
    bool units = target_has(target, TARGET_TMA | TARGET_WGMMA);
    if (!units) return because(m == &mainloop_mma ? REASON_PRODUCT_ARCH : REASON_PRODUCT_NO_TILE, -1, 0, 0);
    if (a || b) return operand_reason(a ? &q->a.data : &q->b.data, a ? a : b);
    if (!program_pairs_meet(q, target)) return because(REASON_PRODUCT_PAIRS, -1, 0, 0);
    return because(m == &mainloop_mma ? REASON_NONE : REASON_PRODUCT_NO_TILE, -1, 0, 0);
}

bool schedule_reasons(const struct plan *p, struct text *t)
{
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        const struct schedule *s = &p->schedule[i];
        struct words_of of = {p, -1, i, -1};
        struct reason r = because(REASON_NONE, -1, 0, 0);
        if (q->kind == PROGRAM_GEMM) r = product_reason(q, s->tile.mainloop, &p->target);
        if (s->attention && s->attention->fallback) r = attention_reason(q, &p->target);
        if (r.kind) reason_print(&r, &of, -1, t);
    }
    return !t->failed;
}
