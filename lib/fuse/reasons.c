/* reasons.c -- see reasons.h: notes of why a group did without a node. */
#include "fuse.h"

bool refuse_join(const struct grouper *gr, enum reason_kind kind, int other, int64_t a, int64_t b)
{
    struct reasons *to = gr->opt->reasons;
    if (to) to->last = (struct reason){kind, -1, other, a, b};
    return false;
}

void refuse_keep(const struct grouper *gr, const struct group *q, int node)
{
    struct reasons *to = gr->opt->reasons;
    if (!to || to->last.kind == REASON_NONE) return;
    struct refusal *r = ARENA_NEW(to->arena, struct refusal, 1);
    if (!r) return;
    to->last.node = node;
    *r = (struct refusal){q, to->last, to->of[node]};
    to->of[node] = r;
    to->last = (struct reason){REASON_NONE};
}

void refuse_note(const struct grouper *gr, const struct group *q, int node, enum reason_kind kind, int other,
                 int64_t a, int64_t b)
{
    refuse_join(gr, kind, other, a, b);
    refuse_keep(gr, q, node);
}
