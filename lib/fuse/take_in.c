/*
 * take_in.c -- values that do not depend on a product's accumulator, computed in its epilogue all the same.
 *
 * An epilogue first takes in what depends on its accumulator (fuse.c). Some of what it then loads is nothing
 * but a map of other tensors: a rows kernel would compute and store it, for the epilogue to read. Here the
 * epilogue computes such a value again, from what it is a map of, where that costs it no more loads than are
 * paid by stores that nobody makes then. What all its readers compute again has no program at all; what has
 * to be in memory, and is a map of nothing but what the epilogue has, is stored from there.
 *
 * Every product has grown before any takes in, so no value is drawn from the epilogue that computes its
 * operands, but where that would compute it for others alone: a map of what a product stores anyway belongs
 * to whoever reads it. A backward pass makes such maps of what the forward pass has, and if both are one
 * plan, the product of the forward pass would store them, too.
 */
#include "fuse.h"

/* An epilogue's tiles beside the accumulator: more cost it more than they save. Of a chain of maps, readers
 * are searched so far for one that is stored. */
enum { MOST_TILES = 4, MOST_MAPS = 32, MOST_CHAIN = 4 };

/* ---- Questions about a value ---- */

static bool is_free_map(const struct grouper *gr, int x)
{
    enum op op = gr->g->node[x].op;
    bool free = gr->site[x].role == ROLE_FREE && !gr->site[x].is_const;
    return free && (op == OP_MAP || op == OP_CAST) && !state_is_read(gr->g, &gr->g->node[x]);
}

/* The program of another product, whose epilogue computes x as a map of other values; NULL: there is none. */
static const struct group *epilogue_of(const struct grouper *gr, const struct group *q, int x)
{
    const struct site *s = &gr->site[x];
    const struct group *o = s->role == ROLE_MEMBER ? gr->group[s->group] : NULL;
    enum op op = gr->g->node[x].op;
    bool map = (op == OP_MAP || op == OP_CAST) && !s->is_const && !state_is_read(gr->g, &gr->g->node[x]);
    return map && o && o != q && o->p.kind == PROGRAM_GEMM && o->p.root != x ? o : NULL;
}

static bool is_map(const struct grouper *gr, const struct group *q, int x)
{
    return is_free_map(gr, x) || epilogue_of(gr, q, x);
}

/* Does a program other than `but`, NULL: any, read from memory what o computes, or a view of it? */
static bool is_loaded(const struct grouper *gr, const struct group *o, const struct group *but, int x)
{
    const struct use *end = gr->uses.use + gr->uses.at[x + 1];
    if (group_stores(gr, x)) return true;
    for (const struct use *u = gr->uses.use + gr->uses.at[x]; u < end; u++) {
        const struct site *s = &gr->site[u->node];
        const struct group *r = s->role == ROLE_MEMBER ? gr->group[s->group] : NULL;
        if (s->role == ROLE_VIEW ? is_loaded(gr, o, but, u->node) : !r) return true;
        if (!r || r == o || (r == but && r->p.root != u->node)) continue;
        if (r->p.root == u->node || group_source(gr, r, x).kind == SOURCE_OUTSIDE) return true;
    }
    return false;
}

/* Would a rows kernel compute the reader along with what it reads? */
static bool is_elementwise(const struct grouper *gr, int reader)
{
    enum op op = gr->g->node[reader].op;
    return gr->site[reader].role == ROLE_FREE && (op == OP_MAP || op == OP_CAST || op == OP_REDUCE);
}

static bool is_here(const struct grouper *gr, const struct group *q, int x)
{
    return group_holds(gr, q, x) || group_has_again(q, x);
}

/* Does a program other than q read x itself, or a view of it, from memory? Another product's epilogue may yet
 * take it in, as long as gr->taking. */
static bool is_kept(const struct grouper *gr, const struct group *q, int x)
{
    const struct use *end = gr->uses.use + gr->uses.at[x + 1];
    const struct group *o = epilogue_of(gr, q, x);
    if (o) return is_loaded(gr, o, q, x);
    if (gr->g->node[x].output >= 0) return true;
    for (const struct use *u = gr->uses.use + gr->uses.at[x]; u < end; u++) {
        const struct site *s = &gr->site[u->node];
        if (s->role == ROLE_VIEW) {
            if (is_kept(gr, q, u->node)) return true;
        } else if (s->role == ROLE_MEMBER) {
            const struct group *other = gr->group[s->group];
            if (other->p.root == u->node) return true;
            if (other != q && !gr->taking && group_source(gr, other, x).kind == SOURCE_OUTSIDE) return true;
        } else if (!is_elementwise(gr, u->node)) {
            return true;
        }
    }
    return false;
}

/* Is x, if it has to be in memory, there whatever q does? What coda_prepare computes is. */
static bool is_in_memory(const struct grouper *gr, const struct group *q, int x)
{
    int base = gr->view[x].base;
    if (base < 0) return false;
    return gr->site[base].is_const || gr->site[base].role != ROLE_FREE || is_kept(gr, q, base);
}

/* Is what reader n has of x in memory? Of what another product computes, only what it stores for somebody. */
static bool is_there(const struct grouper *gr, const struct group *q, const struct node *n, int x)
{
    int base = gr->view[x].base;
    bool elsewhere = epilogue_of(gr, q, (int)(n - gr->g->node)) && base >= 0;
    if (!elsewhere || gr->site[base].role != ROLE_MEMBER) return is_in_memory(gr, q, x);
    return is_loaded(gr, gr->group[gr->site[base].group], NULL, base);
}

/* ---- Who stores it ---- */

/* Do all elementwise readers of x lie in q? */
static bool has_readers_here(const struct grouper *gr, const struct group *q, int x)
{
    for (int i = gr->uses.at[x]; i < gr->uses.at[x + 1]; i++) {
        int reader = gr->uses.use[i].node;
        if (gr->site[reader].role == ROLE_VIEW && !has_readers_here(gr, q, reader)) return false;
        if (is_elementwise(gr, reader) && !is_here(gr, q, reader)) return false;
    }
    return true;
}

/* May q be the one that stores x? */
static bool is_storable(struct grouper *gr, const struct group *q, int x)
{
    return is_free_map(gr, x) && has_readers_here(gr, q, x) && group_can_store(gr, q, x) &&
           !group_needs(gr, q, x, -1);
}

/* ---- What an epilogue loads ---- */

static bool is_wide(const struct grouper *gr, const struct group *q, int x)
{
    return group_shares_rows(gr, q, x) && domain_shape(q, &gr->g->node[x].type) != SHAPE_NO;
}

struct tiles {
    int tile[MOST_MAPS * PRIM_MAX_INPUTS * 2], tiles;
};

static void add_loads(const struct grouper *gr, const struct group *q, int x, struct tiles *t)
{
    const struct node *n = &gr->g->node[x];
    float ignored;
    for (int i = 0; i < n->nin && x != q->p.root; i++) {
        if (n->in[i] < 0 || group_number(gr, n->in[i], &ignored)) continue;
        struct source s = group_source(gr, q, n->in[i]);
        int known = 0;
        if (s.kind != SOURCE_OUTSIDE || !is_wide(gr, q, n->in[i])) continue;
        while (known < t->tiles && t->tile[known] != n->in[i]) known++;
        if (known == t->tiles && known < ARRAY_SIZE(t->tile)) t->tile[t->tiles++] = n->in[i];
    }
}

/* The tensors of the domain's size that q loads. */
static struct tiles tiles_of(const struct grouper *gr, const struct group *q)
{
    struct tiles t = {.tiles = 0};
    for (int m = q->first; m >= 0; m = gr->site[m].next) add_loads(gr, q, m, &t);
    for (int i = 0; i < q->agains; i++) add_loads(gr, q, q->again[i], &t);
    return t;
}

/* ---- Taking in ---- */

static bool take(struct grouper *gr, struct group *q, int x);

/* Operand i of n: it is a number, or q computes it again too, or loads it from where it is anyway. */
static bool reach(struct grouper *gr, struct group *q, const struct node *n, int i)
{
    struct trial trial = trial_begin(q);
    int x = group_tile(gr, q, n->in[i]);
    float ignored;
    if (group_number(gr, n->in[i], &ignored) || group_has_again(q, x)) return true;
    bool there = !is_wide(gr, q, n->in[i]) || is_there(gr, q, n, n->in[i]);
    int tiles = tiles_of(gr, q).tiles;
    bool taken = take(gr, q, x) && (!there || is_storable(gr, q, x) || tiles_of(gr, q).tiles < tiles);
    if (trial_end(&trial, taken)) return true;
    if (!there) return refuse_join(gr, REASON_NOT_IN_MEMORY, n->in[i], 0, 0);
    return group_can_load(gr, q, n, i);
}

/* Adds x, and of its operands what is not in memory, to what q computes again. */
static bool take(struct grouper *gr, struct group *q, int x)
{
    const struct node *n = &gr->g->node[x];
    if (!is_map(gr, q, x)) return refuse_join(gr, REASON_NO_MAP, -1, 0, 0);
    if (!is_wide(gr, q, x)) return refuse_join(gr, REASON_NARROW, -1, 0, 0);
    if (q->agains == MOST_AGAIN || q->members + q->agains >= MOST_MAPS)
        return refuse_join(gr, REASON_MOST_AGAIN, -1, q->agains, 0);
    q->again[q->agains++] = x;
    for (int i = 0; i < n->nin; i++)
        if (!reach(gr, q, n, i)) return false;
    return true;
}

/* Tiles that are not moved any more since q took in again[from..], beside its own loads. What was stored for
 * q alone is not; and if q computes all that reads it, neither are the tiles that it is a map of, for the
 * program that computed it. */
static int tiles_saved(struct grouper *gr, const struct group *q, const struct tiles *before, int from)
{
    int saved = 0;
    for (int i = from; i < q->agains; i++)
        for (int j = 0; j < before->tiles; j++) {
            if (group_tile(gr, q, before->tile[j]) != q->again[i]) continue;
            bool kept = is_kept(gr, q, q->again[i]), elsewhere = epilogue_of(gr, q, q->again[i]);
            bool gone = kept        ? is_storable(gr, q, q->again[i])
                        : elsewhere ? true
                                    : has_readers_here(gr, q, q->again[i]);
            saved += gone ? MOST_TILES : !kept;
        }
    return saved;
}

/* Why it does not pay to have taken in x, and with it again[from..]. */
static void refuse_price(struct grouper *gr, struct group *q, int x, const struct tiles *before, int from)
{
    int tiles = tiles_of(gr, q).tiles, most = MAX(before->tiles, MOST_TILES);
    if (tiles > most) refuse_join(gr, REASON_MOST_TILES, -1, tiles, most);
    else if (is_kept(gr, q, x)) refuse_join(gr, REASON_SEVERAL_READERS, -1, 0, 0);
    else refuse_join(gr, REASON_SAVES_NOTHING, -1, tiles - before->tiles, tiles_saved(gr, q, before, from));
}

/* Takes in x, which a member loads, if that pays. */
static void take_loaded(struct grouper *gr, struct group *q, int x)
{
    struct trial from = trial_begin(q);
    struct tiles before = tiles_of(gr, q), after;
    if (take(gr, q, x)) {
        after = tiles_of(gr, q);
        bool few = after.tiles <= MAX(before.tiles, MOST_TILES);
        if (few && after.tiles - before.tiles < tiles_saved(gr, q, &before, from.agains)) return;
        if (gr->opt->reasons) refuse_price(gr, q, x, &before, from.agains);
    }
    trial_end(&from, false);
    refuse_keep(gr, q, x);
}

/* One number for each row, whatever the shape: of no rows it looks like a tile of as many columns. */
static bool is_key(const struct grouper *gr, const struct node *n, int i)
{
    return domain_operand_type(gr->g, n, i).rank != gr->g->node[n->in[i]].type.rank;
}

static void take_operands(struct grouper *gr, struct group *q, int member)
{
    const struct node *n = &gr->g->node[member];
    for (int i = 0; i < n->nin && member != q->p.root; i++) {
        int x = n->in[i] < 0 ? -1 : group_tile(gr, q, n->in[i]);
        bool key = x >= 0 && is_key(gr, n, i);
        if (key) refuse_note(gr, q, x, REASON_KEY, member, 0, 0);
        else if (x >= 0 && gr->site[x].role == ROLE_FREE && !is_free_map(gr, x))
            refuse_note(gr, q, x, REASON_NO_MAP, -1, 0, 0);
        if (x >= 0 && !key && !is_here(gr, q, x) && is_map(gr, q, x)) take_loaded(gr, q, x);
    }
}

/* Takes in those maps of x that have to be stored and that q has all operands of. */
static void take_readers(struct grouper *gr, struct group *q, int x, int chain)
{
    for (int i = gr->uses.at[x]; i < gr->uses.at[x + 1]; i++) {
        int reader = gr->uses.use[i].node, tiles = tiles_of(gr, q).tiles;
        struct trial trial = trial_begin(q);
        if (!is_free_map(gr, reader) || is_here(gr, q, reader)) continue;
        if (!is_kept(gr, q, reader)) {
            if (chain < MOST_CHAIN) take_readers(gr, q, reader, chain + 1);
        } else {
            bool stored = take(gr, q, reader) && tiles_of(gr, q).tiles <= tiles && is_storable(gr, q, reader);
            trial_end(&trial, stored);
        }
    }
}

/* Does q compute all that a pass over an operand of x would compute? */
static bool leaves_no_pass(const struct grouper *gr, const struct group *q, int x)
{
    const struct node *n = &gr->g->node[x];
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && is_wide(gr, q, n->in[i]) && !has_readers_here(gr, q, n->in[i])) return false;
    return true;
}

/* Takes in maps of what q loads that have to be stored, and that nobody else computes in a pass over it. */
static void take_maps_of_loads(struct grouper *gr, struct group *q)
{
    struct tiles loaded = tiles_of(gr, q);
    for (int t = 0; t < loaded.tiles; t++)
        for (int i = gr->uses.at[loaded.tile[t]]; i < gr->uses.at[loaded.tile[t] + 1]; i++) {
            int x = gr->uses.use[i].node;
            struct trial trial = trial_begin(q);
            if (!is_free_map(gr, x) || is_here(gr, q, x) || !is_kept(gr, q, x)) continue;
            bool stored = take(gr, q, x) && tiles_of(gr, q).tiles <= loaded.tiles && is_storable(gr, q, x);
            trial_end(&trial, stored && leaves_no_pass(gr, q, x));
        }
}

/* Makes members of what q has to store, if no other product stores it. */
static void store_taken(struct grouper *gr, struct group *q)
{
    for (int i = q->agains - 1; i >= 0; i--) {
        int x = q->again[i];
        if (!is_free_map(gr, x) || !is_kept(gr, q, x) || !is_storable(gr, q, x)) continue;
        q->again[i] = q->again[--q->agains];
        group_join(gr, q, x);
        refuse_note(gr, q, x, REASON_STORED_BESIDE, -1, 0, 0);
    }
}

static bool may_take_in(const struct grouper *gr, const struct group *q)
{
    const struct decision *d = plan_decision(gr->opt, q->p.root);
    return q->p.kind == PROGRAM_GEMM && !q->p.prepare && !(d && d->apart);
}

static void take_in(struct grouper *gr, struct group *q)
{
    for (int m = q->first; m >= 0; m = gr->site[m].next) take_operands(gr, q, m);
    for (int i = 0; i < q->agains; i++) take_readers(gr, q, q->again[i], 0);
    take_maps_of_loads(gr, q);
}

/* ---- What needs no program ---- */

/* Does every program that computes `reader` compute x again? */
static bool computes_again(const struct grouper *gr, int reader, int x)
{
    if (gr->site[reader].role == ROLE_MEMBER)
        return group_source(gr, gr->group[gr->site[reader].group], x).kind == SOURCE_AGAIN;
    for (int i = 0; i < gr->groups; i++)
        if (group_has_again(gr->group[i], reader) && group_source(gr, gr->group[i], x).kind != SOURCE_AGAIN)
            return false;
    return gr->site[reader].role == ROLE_INLINE;
}

static bool is_always_again(const struct grouper *gr, int x)
{
    for (int i = gr->uses.at[x]; i < gr->uses.at[x + 1]; i++) {
        int reader = gr->uses.use[i].node;
        bool view = gr->site[reader].role == ROLE_VIEW;
        if (view ? !is_always_again(gr, reader) : !computes_again(gr, reader, x)) return false;
    }
    return gr->g->node[x].output < 0;
}

/* Members of a product that others alone want, and compute again, leave it. */
static void leave_unread(struct grouper *gr)
{
    bool left = false;
    for (int x = gr->g->nodes - 1; x >= 0; x--) {
        const struct group *o = epilogue_of(gr, NULL, x);
        bool leaves = o && gr->uses.at[x + 1] > gr->uses.at[x] && is_always_again(gr, x);
        if (!leaves) continue;
        group_leave(gr, gr->group[o->index], x);
        gr->site[x].role = ROLE_INLINE;
        left = true;
    }
    for (int i = 0; i < gr->groups && left; i++)
        if (gr->group[i]->p.kind == PROGRAM_GEMM) group_close(gr, gr->group[i]);
    if (left) group_find_horizons(gr);
}

void fuse_take_in(struct grouper *gr)
{
    bool took = false;
    gr->taking = true;
    for (int i = 0; i < gr->groups && gr->opt->fuse; i++) {
        if (may_take_in(gr, gr->group[i])) take_in(gr, gr->group[i]);
        took = took || gr->group[i]->agains;
    }
    gr->taking = false;
    for (int i = 0; i < gr->groups && took; i++) store_taken(gr, gr->group[i]);
    for (int x = gr->g->nodes - 1; x >= 0 && took; x--)
        if (is_free_map(gr, x) && gr->uses.at[x + 1] > gr->uses.at[x] && is_always_again(gr, x))
            gr->site[x].role = ROLE_INLINE;
    if (took) leave_unread(gr);
}
