/*
 * cse.c -- computes equal formulas once.
 *
 *     y = f(x), z = f(x)  ==>  y = z = f(x)
 *
 * In: verified graph. Out: no two nodes have the same operation, attributes and operands. Exact.
 */
#include "walk.h"

#include <stdlib.h>
#include <string.h>

/* Values of `out` by what they compute; open addressing, half empty at least. */
struct table {
    int *slot; /* value + 1, or 0 */
    size_t mask;
};

static size_t hash_bytes(size_t h, const void *data, size_t n)
{
    for (const unsigned char *p = data; n; n--) h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

static size_t hash_node(const struct node *n)
{
    size_t h = (size_t)n->op;
    for (int k = 0; k < attr_count(n); k++) /* extents may be equal by chance: same() asks */
        if (attr_kind(n, k) != ATTR_EXTENT) h = (h ^ attr_bits(n, k)) * 0x100000001b3u;
    h = hash_bytes(h, n->in, sizeof *n->in * (size_t)n->nin);
    return hash_bytes(h, &n->prim, sizeof n->prim);
}

static bool same(const struct node *a, const struct node *b)
{
    return a->op == b->op && a->prim == b->prim && a->nin == b->nin &&
           memcmp(a->in, b->in, sizeof *a->in * (size_t)a->nin) == 0 && attr_equal(a, b) &&
           type_equal(&a->type, &b->type);
}

/* Finds n (operands in `out`) or the slot where it belongs. */
static int *find(const struct table *t, const graph *out, const struct node *n)
{
    size_t i = hash_node(n) & t->mask;
    while (t->slot[i] && !same(&out->node[t->slot[i] - 1], n)) i = (i + 1) & t->mask;
    return &t->slot[i];
}

static int share(struct walk *w, int n)
{
    struct node key = w->in->node[n];
    key.in = graph_map_operands(w->out, &w->in->node[n], w->map);
    if (!key.in) return RULE_FAILED;
    int *slot = find(w->ctx, w->out, &key);
    if (*slot) {
        rewrite_note(w->log, "cse", true, "%s: its %s is computed once, for %s", rewrite_name(w->in, n).s,
                     node_text(&key), rewrite_name(w->out, *slot - 1).s);
        return *slot - 1;
    }
    *slot = w->out->nodes + 1;
    return RULE_COPY;
}

graph *cse(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    struct table t = {.mask = 64};
    while (t.mask < 4 * (size_t)in->nodes) t.mask *= 2;
    t.slot = calloc(t.mask--, sizeof *t.slot);
    if (!t.slot) {
        fail(CODA_E_MEMORY, "rewrite: out of memory");
        return NULL;
    }
    graph *out = rewrite_walk(in, share, opt, log, &t);
    free(t.slot);
    return out;
}
