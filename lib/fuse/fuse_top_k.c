/* fuse_top_k.c -- a program of the k largest of each row: values and indices of one call are one launch, and
 * the product whose rows they are may leave the best of each tile. */
#include "fuse_own.h"
#include "plan_sizes.h"
#include "top_k.h"

#include <string.h>

enum { MOST_OF_TILE = 16 };

/* The reduction whose state, of a power of 2 of entries, has room for k; NULL: there is none. */
static const struct prim *reduction_for(int64_t k)
{
    static const char *const name[] = {"top_2", "top_4", "top_8", "top_16"};
    for (int i = 0; i < ARRAY_SIZE(name); i++)
        if (k <= 2 << i) return prim_find(name[i]);
    return NULL;
}

/* Could the product's epilogue have the elements of whole rows of its tiles? */
static bool has_rows(const struct grouper *gr, const struct group *q, int value)
{
    struct source from = group_source(gr, q, value);
    if (from.kind != SOURCE_MEMBER || gr->g->node[from.value].op == OP_REDUCE || q->p.segment) return false;
    const struct type *t = &gr->g->node[from.value].type;
    if (!extents_equal(type_columns(t), type_columns(&gr->g->node[value].type)))
        return false; /* rows of a reshape */
    enum shape shape = domain_shape(q, t);
    bool columns = extent_reaches(q->p.dim[2], 1) && !extent_reaches(q->p.dim[2], MOST_TOP_K_COLUMNS + 1);
    return columns && (shape == SHAPE_TILE || shape == SHAPE_HALF);
}

/* Are the best of a tile, written and read, no more than its elements, which are not read for them, and not
 * written either unless others read them? */
static bool best_saves(const struct grouper *gr, int x, const struct prim *reduce)
{
    const struct type *t = &gr->g->node[x].type;
    int64_t columns = type_columns(t),
            tile = extent_reaches(columns, LEAST_BEST) ? LEAST_BEST : LEAST_BEST_FEW;
    bool kept = gr->g->node[x].output >= 0;
    for (int i = gr->uses.at[x]; i < gr->uses.at[x + 1]; i++)
        kept = kept || gr->g->node[gr->uses.use[i].node].op != OP_TOP_K;
    int64_t best = 2 * reduce->state * 4, row = dtype_bytes(t->dtype, tile);
    if (!extent_reaches(columns, LEAST_BEST_FEW))
        return refuse_join(gr, REASON_BEST_COLUMNS, -1, columns, LEAST_BEST_FEW);
    return best <= (kept ? row : 2 * row) ||
           refuse_join(gr, REASON_BEST_PRICE, -1, best, kept ? row : 2 * row);
}

/* The product that leaves the best of each tile; NULL: elements are read from memory. */
static struct group *product_of(const struct grouper *gr, int root)
{
    const struct node *n = &gr->g->node[root];
    const struct prim *reduce = reduction_for(n->attr.top_k.k);
    int x = n->in[TOP_K_X];
    while (gr->g->node[x].op == OP_RESHAPE) x = gr->g->node[x].in[RESHAPE_X];
    const struct site *s = &gr->site[x];
    struct group *q = s->role == ROLE_MEMBER ? gr->group[s->group] : NULL;
    if (!gr->opt->fuse || !q || q->p.kind != PROGRAM_GEMM) return NULL;
    if (!reduce) refuse_note(gr, q, root, REASON_MOST_BEST, -1, n->attr.top_k.k, MOST_OF_TILE);
    if (!reduce) return NULL;
    const struct decision *d = plan_decision(gr->opt, q->p.root);
    bool together = q->p.prepare == gr->site[root].is_const && !(d && d->apart);
    bool place = q->bests < MOST_BEST, room = place && group_has_room(gr, q, reduce->state);
    bool saves = room && best_saves(gr, n->in[TOP_K_X], reduce);
    bool good = together && room && saves && has_rows(gr, q, n->in[TOP_K_X]);
    if (good) refuse_note(gr, q, root, REASON_TILE_BEST, -1, 0, 0);
    else if (!place) refuse_note(gr, q, root, REASON_MOST_CHOICES, -1, q->bests, 0);
    else if (!room || !saves) refuse_keep(gr, q, root);
    else if (together) refuse_note(gr, q, root, REASON_RESHAPED, n->in[TOP_K_X], 0, 0);
    return good ? q : NULL;
}

static void join(struct grouper *gr, struct group *q)
{
    struct group *product = product_of(gr, q->p.root);
    if (product)
        product->best[product->bests++] =
            (struct best){q->p.root, reduction_for(gr->g->node[q->p.root].attr.top_k.k)};
    q->finishes_best = product != NULL;
}

static void read_node(struct writer *w)
{
    const struct node *n = &w->gr->g->node[w->p->root];
    const struct type *t = &w->gr->g->node[n->in[TOP_K_X]].type;
    struct top_k_spec *s = w->p->spec;
    struct tensor_use *x = &s->use[TOP_K_X];
    w->p->rank = t->rank;
    memcpy(w->p->dim, t->dim, sizeof w->p->dim);
    s->rows = type_rows(t);
    s->columns = type_columns(t);
    s->k = n->attr.top_k.k;
    x->role = USE_LOAD;
    if (!w->q->finishes_best) return;
    *x = port_new(USE_PARTIAL_LOAD, accumulator_buffer(w->gr, w->p->root), 0, CODA_F32, w->p->root);
    x->reduce = reduction_for(s->k);
}

static void place(const void *spec, const struct type *t, int result, struct tensor_use *to)
{
    (void)spec, (void)result;
    dense_strides(t, to->stride);
}

const struct own_fusion fuse_top_k = {.kind = &own_top_k, .join = join, .read = read_node, .place = place};
