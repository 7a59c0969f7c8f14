/* schedule_attention.c -- which kernel computes an attention program, and in which tile. */
#include "attention_kernel.h"

static const struct attention_kernel *const kernels[] = {
#define X(NAME, name) &attention_##name,
    ATTENTION_KERNELS(X)
#undef X
};

/* For keys of 8 bits, what is in the way of the kernel of few queries, which alone reads such on Hopper's
 * units; for others, of that of many, which takes most. */
struct reason attention_reason(const struct program *q, const struct target *target)
{
    const struct attention_kernel *wanted =
        attention_is_narrow(q->spec) ? &attention_split : &attention_wgmma;
    struct attention_terms on = {.target = target, .invariant = q->invariant};
    struct reason why, none = {REASON_NONE, -1, -1, 0, 0};
    return wanted->fits(q->spec, &on, &why) ? none : why;
}

void schedule_attention(struct schedule *s, const struct program *q, const struct plan_options *opt)
{
    struct attention_terms on = {&opt->target, q->invariant, opt->base};
    const struct attention_kernel *const *k = kernels;
    struct reason ignored;
    while (!(*k)->fits(q->spec, &on, &ignored)) k++; /* the last one takes any */
    struct attention_tile t = (*k)->tile(q->spec, &on);
    s->attention = *k;
    s->tile.bm = t.bm, s->tile.bn = t.bn, s->tile.stages = t.stages;
    bool early = !q->prepare && t.blocks && target_has(on.target, TARGET_PDL);
    s->reads_early = early && (*k)->reads_early && (*k)->reads_early(q->spec, &t);
    s->persistent = t.persistent;
    s->cluster = t.cluster;
    s->residents = t.residents;
    s->parts_bytes = t.parts_bytes;
    s->grid = t.blocks;
    s->threads = t.threads;
    s->shared_bytes = (int)t.shared_bytes;
}
