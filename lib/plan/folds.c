/*
 * folds.c -- what coda_prepare leaves for runs, by name: the order in prepared memory, and an id.
 *
 * A folded value is named by a digest of its formula, down to the names, types and strides of the weights.
 * In prepared memory values lie in the order of their digests. So plans that fold the same values have the
 * same layout and the same id, whatever else is in their graphs: prefill and decode share one memory.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };

/* ---- Digests ---- */

/* One step of SplitMix64 (Steele, Lea & Flood, 2014). */
static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) + 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

static uint64_t mix_string(uint64_t h, const char *s)
{
    for (; s && *s; s++) h = mix(h, (unsigned char)*s);
    return mix(h, 256);
}

static uint64_t mix_type(uint64_t h, const struct type *t)
{
    h = mix(mix(h, (uint64_t)t->dtype), (uint64_t)t->rank);
    for (int d = 0; d < t->rank; d++) h = mix(h, (uint64_t)t->dim[d]);
    return h;
}

/* Integers, then floats, and 0 where an operation has fewer than these: prepared memory keeps its order from
 * version to version. */
enum { INTEGERS = 8, FLOATS = 4 };

static uint64_t mix_attributes(uint64_t h, const struct node *n)
{
    int integers = 0, floats = 0, count = attr_count(n);
    for (int k = 0; k < count; k++)
        if (!attr_is_float(n, k)) h = mix(h, attr_bits(n, k)), integers++;
    for (; integers < INTEGERS; integers++) h = mix(h, 0);
    for (int k = 0; k < count; k++)
        if (attr_is_float(n, k)) h = mix(h, attr_bits(n, k)), floats++;
    for (; floats < FLOATS; floats++) h = mix(h, 0);
    return h;
}

static uint64_t mix_node(const struct node *n)
{
    uint64_t h = mix_attributes(mix_type(mix_string(0, op_info[n->op].text), &n->type), n);
    if (n->prim) h = mix_string(mix_string(h, n->prim->name), n->prim->header ? NULL : n->prim->source);
    if (!op_is_leaf(n->op)) return h;
    for (int d = 0; d < n->type.rank; d++) h = mix(h, (uint64_t)n->stride[d]);
    return mix_string(h, n->name);
}

/* Digests of all values that depend on weights alone; those of others mean nothing. */
static uint64_t *digests(struct plan *p)
{
    const graph *g = p->graph;
    uint64_t *digest = ARENA_NEW(&p->arena, uint64_t, g->nodes + 1);
    for (int v = 0; digest && v < g->nodes; v++) {
        digest[v] = mix_node(&g->node[v]);
        for (int i = 0; i < g->node[v].nin; i++)
            digest[v] = mix(digest[v], g->node[v].in[i] < 0 ? 0 : digest[g->node[v].in[i]]);
    }
    return digest;
}

/* ---- Order ---- */

struct fold {
    uint64_t digest;
    struct buffer *buffer; /* NULL: in place */
};

static int by_digest(const void *x, const void *y)
{
    const struct fold *a = x, *b = y;
    return (a->digest > b->digest) - (a->digest < b->digest);
}

/* The states of a partial reduction are as many as tiles left. */
static int find_folds(struct plan *p, const uint64_t *digest, struct fold *fold)
{
    int n = 0;
    for (int i = 0; i < p->buffers; i++) {
        struct buffer *b = &p->buffer[i];
        if (b->first < 0) continue;
        if (b->space == SPACE_PREPARED)
            fold[n++] = (struct fold){mix(digest[b->value], (uint64_t)b->bytes), b};
        if (!b->folded) continue;
        b->holds = mix(digest[b->folded], 1) | 1;
        fold[n++] = (struct fold){b->holds, NULL};
    }
    qsort(fold, (size_t)n, sizeof *fold, by_digest);
    return n;
}

static bool has_folds(const struct plan *p)
{
    bool any = false;
    for (int i = 0; i < p->buffers; i++)
        any = any || p->buffer[i].space == SPACE_PREPARED || p->buffer[i].folded;
    return any;
}

coda_status plan_place_folds(struct plan *p)
{
    p->prepared = 0;
    p->prepared_id = 0;
    if (!has_folds(p)) return CODA_OK;
    uint64_t *digest = digests(p);
    struct fold *fold = ARENA_NEW(&p->arena, struct fold, p->buffers + 1);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d folded values", p->buffers);
    int n = find_folds(p, digest, fold);
    for (int i = 0; i < n; i++) {
        struct buffer *b = fold[i].buffer;
        p->prepared_id = mix(p->prepared_id, fold[i].digest) | 1;
        if (!b) continue;
        b->offset = p->prepared;
        p->prepared += (b->bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    return CODA_OK;
}
