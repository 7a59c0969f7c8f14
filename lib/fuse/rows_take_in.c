/*
 * rows_take_in.c -- values that a program of rows computes ahead of what reads them, or beside it.
 *
 * A program of rows grows from its root to readers (fuse.c). What such a reader loads besides may be a map of
 * other tensors of the same rows and columns: a kernel of its own would store it, for this one to load. The
 * program computes it instead, and what it is a map of in turn; if others read it too, it stores it. A map
 * of what the program loads anyway, and of what is there before it starts, joins it as well: then that is
 * loaded once.
 *
 * Last, a map that one program stores for others of rows alone is computed again by these, if what it is a
 * map of is in memory, and they load no more tiles than before: the normalized input of a LayerNorm, which a
 * forward pass has and the gradient reads.
 *
 * What is taken in does not depend on the program, so that its order has to be asked for: nothing that the
 * program waits for may need it.
 */
#include "fuse.h"

bool rows_is_map(const struct grouper *gr, int x)
{
    enum op op = gr->g->node[x].op;
    return gr->site[x].role == ROLE_FREE && (op == OP_MAP || op == OP_CAST || op_combines_pairs(op));
}

static bool node_reads(const struct node *n, int value)
{
    for (int i = 0; i < state_operands(n); i++)
        if (n->in[i] == value) return true;
    return false;
}

static bool is_loaded(const struct grouper *gr, const struct group *q, int value)
{
    for (int m = q->first; m >= 0; m = gr->site[m].next)
        if (node_reads(&gr->g->node[m], value)) return true;
    for (int i = 0; i < q->agains; i++)
        if (node_reads(&gr->g->node[q->again[i]], value)) return true;
    return false;
}

int rows_loads(const struct grouper *gr, const struct group *q, const struct node *n)
{
    int loads = 0;
    float ignored;
    for (int i = 0; i < state_operands(n); i++) {
        if (n->in[i] < 0 || group_number(gr, n->in[i], &ignored)) continue;
        bool outside = group_source(gr, q, n->in[i]).kind == SOURCE_OUTSIDE;
        loads += outside && !is_loaded(gr, q, n->in[i]);
    }
    return loads;
}

/* Places to which what q is to compute ahead of a reader has to be stored. */
static int stores_taken(const struct grouper *gr, const struct group *q)
{
    int stores = 0;
    for (int i = 0; i < q->agains; i++) stores += group_stores(gr, q->again[i]);
    return stores;
}

/* A fold of columns has maps beside it alone. */
static bool folds_columns(const struct grouper *gr, const struct group *q, int value)
{
    bool folds = node_folds_columns(&gr->g->node[value]);
    for (int m = q->first; m >= 0; m = gr->site[m].next) folds = folds || node_folds_columns(&gr->g->node[m]);
    return folds;
}

/* Can q load what n combines pairs of, and its positions and frequencies? */
static bool loads_pairs(struct grouper *gr, struct group *q, const struct node *n)
{
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        if (group_depends(gr, n->in[i], q) || group_source(gr, q, n->in[i]).kind != SOURCE_OUTSIDE)
            return refuse_source(gr, q, n->in[i]);
        bool strided = i == ROPE_X || i == ROPE_POSITIONS;
        if (strided && !group_can_load(gr, q, n, i)) return false;
    }
    return true;
}

static bool take(struct grouper *gr, struct group *q, int x, int value);

/* Operand i of n, which is `value` or is taken in for it: q has it, takes it in, or loads it. */
static bool reach(struct grouper *gr, struct group *q, const struct node *n, int i, int value)
{
    float ignored;
    if (n->in[i] < 0 || group_number(gr, n->in[i], &ignored)) return true;
    enum source_kind source = group_source(gr, q, n->in[i]).kind;
    if (source == SOURCE_MEMBER || source == SOURCE_AGAIN) return true;
    if (source != SOURCE_OUTSIDE) return refuse_source(gr, q, n->in[i]);
    struct trial trial = trial_begin(q);
    return trial_end(&trial, take(gr, q, n->in[i], value)) || group_can_load(gr, q, n, i);
}

/* Adds x, and of its operands what q can compute, to what q computes for `value`. */
static bool take(struct grouper *gr, struct group *q, int x, int value)
{
    const struct node *n = &gr->g->node[x];
    if (!rows_is_map(gr, x)) return refuse_join(gr, REASON_NO_MAP, -1, 0, 0);
    if (q->agains == MOST_AGAIN || q->stores + stores_taken(gr, q) >= MOST_STORES)
        return refuse_join(gr, REASON_MOST_AGAIN, -1, q->agains, 0);
    if (!group_may_join(gr, q, x) || !group_fits(gr, q, x) || !group_reads_in_place(gr, q, x)) return false;
    if (group_needs(gr, q, x, value)) return refuse_join(gr, REASON_DEPENDS, x, 0, 0);
    bool pairs = op_combines_pairs(n->op);
    if (pairs && (folds_columns(gr, q, value) || !loads_pairs(gr, q, n))) return false;
    pair_read(&q->p, gr->g, n);
    q->loads += rows_loads(gr, q, n);
    q->again[q->agains++] = x;
    if (pairs) return true;
    for (int i = 0; i < n->nin; i++)
        if (!reach(gr, q, n, i, value)) return false;
    return true;
}

/* Does a value join because q has one of its operands? */
static bool is_reader(const struct grouper *gr, const struct group *q, const struct node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && group_source(gr, q, n->in[i]).kind == SOURCE_MEMBER) return true;
    return false;
}

void rows_take_in(struct grouper *gr, struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    bool takes =
        q->p.kind == PROGRAM_ROWS && gr->opt->fuse && !op_is_version(n->op) && !op_combines_pairs(n->op);
    if (!takes || !is_reader(gr, q, n)) return;
    for (int i = 0; i < n->nin; i++) {
        struct trial trial = trial_begin(q);
        int x = n->in[i];
        bool outside = x >= 0 && group_source(gr, q, x).kind == SOURCE_OUTSIDE;
        if (outside && rows_is_map(gr, x)) trial_end(&trial, take(gr, q, x, value));
    }
}

/* ---- Beside it ---- */

static bool is_tile(const struct group *q, const struct type *t) { return domain_shape(q, t) == SHAPE_TILE; }

/* Is it there before q starts, whatever else joins q? */
static bool is_early(const struct grouper *gr, const struct group *q, int value)
{
    while (op_is_view(gr->g->node[value].op)) value = gr->g->node[value].in[VIEW_OF];
    const struct site *s = &gr->site[value];
    return s->role == ROLE_LEAF || (value < q->p.root && s->horizon < gr->site[q->p.root].horizon);
}

bool rows_beside(struct grouper *gr, const struct group *q, int value)
{
    const struct node *n = &gr->g->node[value];
    bool shares = false;
    if (q->p.kind != PROGRAM_ROWS || !gr->opt->fuse || !rows_is_map(gr, value) || !is_tile(q, &n->type))
        return false;
    for (int i = 0; i < n->nin; i++) {
        if (n->in[i] < 0) continue;
        if (!is_early(gr, q, n->in[i])) return false;
        shares = shares || (is_tile(q, &gr->g->node[n->in[i]].type) && is_loaded(gr, q, n->in[i]));
    }
    return shares && !group_needs(gr, q, value, value);
}

/* ---- Again: what another program of rows would store for this one alone ---- */

/* Maps that a program computes again, for so many programs; and values of one that has room for them. */
enum { MOST_MAPS = 4, MOST_WALKERS = 4, MOST_VALUES = 28 };

/* The program of rows that computes the map x, and folds no part of it; NULL: there is none. */
static struct group *maker_of(const struct grouper *gr, int x)
{
    const struct site *s = &gr->site[x];
    const struct node *n = &gr->g->node[x];
    struct group *o = s->role == ROLE_MEMBER ? gr->group[s->group] : NULL;
    bool map = (n->op == OP_MAP || n->op == OP_CAST) && !s->is_const;
    if (!o || !map || o->p.kind != PROGRAM_ROWS || o->line || domain_shape(o, &n->type) != SHAPE_TILE)
        return NULL;
    for (int i = gr->uses.at[x]; i < gr->uses.at[x + 1]; i++)
        if (gr->g->node[gr->uses.use[i].node].op == OP_REDUCE && group_holds(gr, o, gr->uses.use[i].node))
            return NULL;
    return o;
}

/* Does a program read m from memory, which `o` computes, but for those that compute it again? */
static bool is_stored(const struct grouper *gr, const struct group *o, int m)
{
    const struct uses *u = &gr->uses;
    if (group_stores(gr, m)) return true;
    for (int i = u->at[m]; i < u->at[m + 1]; i++) {
        const struct site *s = &gr->site[u->use[i].node];
        const struct group *q = s->role == ROLE_MEMBER ? gr->group[s->group] : NULL;
        bool row = extent_is_one(type_columns(&gr->g->node[m].type));
        if (!q || (q != o && !group_has_again(q, m)) || (row && s->taken)) return true;
    }
    return false;
}

static bool stores_else(const struct grouper *gr, const struct group *o, int x)
{
    for (int m = o->first; m >= 0; m = gr->site[m].next)
        if (m != x && (group_writes_state(gr, m) || gr->site[m].partial || is_stored(gr, o, m))) return true;
    return false;
}

/* Can q load operand i of n? The program that q loads n from loads it, too, or stores it. */
static bool lies_over(const struct grouper *gr, const struct group *q, const struct node *n, int i)
{
    struct type t = domain_operand_type(gr->g, n, i);
    const struct view *v = &gr->view[n->in[i]];
    int64_t out[CODA_MAX_RANK];
    return v->base >= 0 && domain_strides(q, &t, v->stride, domain_walked(gr->g, n), out);
}

/* Is each state that x reads, and that is written over, written by q, each element where it is read? */
static bool may_read(const struct grouper *gr, const struct group *q, int x)
{
    const struct node *node = gr->g->node, *n = &node[x];
    for (int i = 0; i < n->nin; i++) {
        int version = n->in[i] < 0 ? -1 : node[n->in[i]].state;
        int next = version < 0 ? -1 : node[version].next;
        if (next >= 0 && !group_holds(gr, q, next)) return false;
    }
    return group_reads_in_place(gr, q, x);
}

/* Adds x, which `o` computes, and the maps that it is a map of there, to what q computes again; counts tiles
 * that q loads for them. */
static bool take_again(struct grouper *gr, const struct group *o, struct group *q, int x, int *tiles)
{
    const struct node *n = &gr->g->node[x];
    float ignored;
    if (q->agains == MOST_MAPS || maker_of(gr, x) != o || !may_read(gr, q, x)) return false;
    q->again[q->agains++] = x;
    for (int i = 0; i < n->nin; i++) {
        int y = n->in[i];
        const struct type *t = &gr->g->node[y].type;
        bool row = extent_is_one(type_columns(t)), here = group_holds(gr, q, y) || group_has_again(q, y);
        if (here || group_number(gr, y, &ignored) || group_scalar(gr, y) >= 0) continue;
        if (group_holds(gr, o, y) && !row) {
            if (!take_again(gr, o, q, y, tiles)) return false;
            continue;
        }
        bool parts = gr->site[y].partial || gr->site[y].role == ROLE_INLINE;
        if (parts || !lies_over(gr, q, n, i)) return false;
        *tiles += is_tile(q, t) && !is_loaded(gr, q, y);
    }
    return true;
}

/* Does each program that computes the map `reader` again compute x again, too? */
static bool is_again_with(const struct grouper *gr, int reader, int x)
{
    bool some = false;
    for (int i = 0; i < gr->groups; i++) {
        if (!gr->group[i]->agains || !group_has_again(gr->group[i], reader)) continue;
        if (!group_has_again(gr->group[i], x)) return false;
        some = true;
    }
    return some;
}

/* The programs of rows that load x, if nobody else does; -1: somebody does, or there are many. */
static int find_walkers(const struct grouper *gr, const struct group *o, int x, struct group **walker)
{
    const struct uses *u = &gr->uses;
    int walkers = 0;
    for (int i = u->at[x]; i < u->at[x + 1]; i++) {
        const struct site *s = &gr->site[u->use[i].node];
        struct group *q = s->role == ROLE_MEMBER ? gr->group[s->group] : NULL;
        int known = 0;
        if (s->role == ROLE_INLINE && s->taken && is_again_with(gr, u->use[i].node, x)) continue;
        if (!q) return -1;
        if (q == o || group_has_again(q, x)) continue;
        enum op op = gr->g->node[u->use[i].node].op;
        if (op != OP_MAP && op != OP_CAST && op != OP_REDUCE) return -1; /* others want it in memory */
        if (q->p.kind != PROGRAM_ROWS || q->line || walkers == MOST_WALKERS) return -1;
        while (known < walkers && walker[known] != q) known++;
        if (known == walkers) walker[walkers++] = q;
    }
    return walkers;
}

static bool compute_again(struct grouper *gr, const struct group *o, struct group *q, int x)
{
    int tiles = 0;
    bool room = q->members <= MOST_VALUES && domain_shape(q, &gr->g->node[x].type) == SHAPE_TILE;
    return room && take_again(gr, o, q, x, &tiles) && tiles <= 1;
}

static void note_taken(struct grouper *gr, const struct group *q)
{
    for (int i = 0; i < q->agains; i++) gr->site[q->again[i]].taken = true;
}

void fuse_rows_again(struct grouper *gr)
{
    for (int i = 0; i < gr->groups; i++) note_taken(gr, gr->group[i]);
    for (int x = 0; x < gr->g->nodes && gr->opt->fuse; x++) {
        struct group *walker[MOST_WALKERS], *o = maker_of(gr, x);
        struct trial trial[MOST_WALKERS];
        int walkers = !o || group_stores(gr, x) ? -1 : find_walkers(gr, o, x, walker), done = 0;
        if (walkers <= 0 || !stores_else(gr, o, x)) continue;
        for (; done < walkers; done++) {
            trial[done] = trial_begin(walker[done]);
            if (!compute_again(gr, o, walker[done], x)) break;
        }
        for (int i = 0; i <= done && done < walkers; i++) trial_end(&trial[i], false);
        for (int i = 0; i < walkers; i++) note_taken(gr, walker[i]);
    }
}
