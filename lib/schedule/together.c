/*
 * together.c -- products, and norms of rows, whose programs are equal, but for rows and addresses, and of
 * which none waits for another one, become one launch: its blocks are shared out among them (kernel.h,
 * tile/members.cuh). members.c says which may.
 *
 * The two streams of a diffusion transformer have weights of their own, of equal N and K. Apart, each ends
 * with a wave of tiles that leaves SMs idle: of 128 x 256, 1024 and 333 rows twice take 4, 2, 5 and 2 waves
 * for the four products of a block, together 3, 1, 4 and 1.
 *
 * A program looks for others among those behind it. What waits for none of those that it has found goes ahead
 * of them, what waits for one behind. Products are joined if one tile for all costs less, by price, than a
 * launch for each in a tile of its own. That tile is one for several numbers of rows, so that the programs
 * have one text: all that follows from their rows is among their arguments. Norms save a launch.
 */
#include "members.h"
#include "own.h"
#include "wgmma.h"

#include <string.h>

enum {
    WINDOW = 24,           /* programs among which one looks for others */
    MOST_MOVED = 256 << 20 /* bytes of results that are kept longer, as they come earlier */
};

#define WORTH_IT 0.99 /* of the cost apart, to make up for errors of both */

struct joining {
    struct plan *p;
    const struct plan_options *opt;
    int *place;   /* of the program that was at this place when waits were found */
    bool *behind; /* of a place: what is there waits for one of those that are to be joined */
    bool norms; /* may they be joined? The rows behind a sum over ranks may make it, and are a launch then */
    struct arena scratch;
};

/* Some that may be one launch, by their places, which ascend; what they are then; and what they cost, in
 * which tile. */
struct company {
    int at[MOST_TOGETHER], n;
    const struct program *member[MOST_TOGETHER];
    double clocks;
    struct tile tile;
};

int64_t launch_shares(const int64_t *tiles, int members, int sms, int64_t *blocks)
{
    int64_t all = 0, turns = 1;
    for (int i = 0; i < members; i++) all = add_counts(all, tiles[i]);
    for (turns = sms ? MAX(CEIL_DIV(all, sms), 1) : 1;; turns++) {
        int64_t sum = 0;
        for (int i = 0; i < members; i++) sum = add_counts(sum, blocks[i] = CEIL_DIV(tiles[i], turns));
        if (!sms || sum <= MAX(sms, members)) return turns;
    }
}

static bool may_join(const struct joining *s, int at)
{
    const struct program *q = &s->p->program[at];
    return s->p->together[at] == 1 && (s->norms || q->kind != PROGRAM_ROWS) && member_may_be(q, s->opt);
}

static bool have_one_text(struct joining *s, int a, int b)
{
    return members_have_one_text(&s->p->program[a], &s->p->program[b], &s->scratch);
}

/* ---- Price ---- */

static const struct tile *decided(const struct joining *s, int at)
{
    const struct decision *d = plan_decision(s->opt, s->p->program[at].root);
    return d ? d->tile : NULL;
}

/* Is it as one that was measured to be the fastest for one of them, if any was measured? */
static bool is_wanted(const struct joining *s, const struct company *c, const struct tile *t)
{
    bool measured = false;
    for (int i = 0; i < c->n; i++) {
        const struct tile *d = decided(s, c->at[i]);
        measured = measured || d;
        if (d && d->mainloop == t->mainloop && d->bm == t->bm && d->bn == t->bn && d->groups == t->groups &&
            d->pingpong == t->pingpong)
            return true;
    }
    return !measured;
}

/* Bytes of arguments, at most; of a product in a tile, which has maps. */
static bool arguments_fit(const struct program *q, const struct tile *t, int members)
{
    enum { MAP = 128, PORT = 8 + 4 * CODA_MAX_RANK, OTHERS = 128 };
    int maps = t ? 2 + q->parts + staged_stores(q, t).count + fetched_loads(q, t).count : 0;
    return members * (maps * MAP + q->ports * PORT + OTHERS) <= KERNEL_MAX_BYTES;
}

/* The clocks of all members in one tile, as if the one with most rows had their tiles; less than 0 if it is
 * no tile for them. */
static double clocks_in(const struct joining *s, const struct company *c, const struct tile *t)
{
    const struct target *target = &s->opt->target;
    const struct program *most = c->member[0];
    bool plain = t->mainloop == &mainloop_wgmma && t->groups > 1 && !t->tail && tile_splits(t) == 1 &&
                 tile_cluster(t) == 1;
    if (!plain || !is_wanted(s, c, t) || !arguments_fit(most, t, c->n)) return -1;
    int64_t tiles[MOST_TOGETHER], blocks[MOST_TOGETHER], sum = 0;
    double weights = 0;
    for (int i = 0; i < c->n; i++) {
        const struct program *q = c->member[i];
        if (q->dim[1] > most->dim[1]) most = q;
        sum += tiles[i] = program_blocks(q, t);
        weights += weight_clocks(q, target, 1);
    }
    bool once = t->lends && t->pingpong; /* a block has one tile */
    if (once && sum > target->sms) return -1;
    int64_t turns = launch_shares(tiles, c->n, once ? 0 : target->sms, blocks);
    return MAX(wgmma_cost_of(most, t, target, MAX(sum, (turns - 1) * target->sms + 1)), weights);
}

/* The cheapest of the tiles that these rows would have; all are for any of the members. */
static bool search_tiles(const struct joining *s, struct company *c, int64_t rows, int most_rows, bool found)
{
    struct program all = *c->member[0];
    struct search t = {.p = &all, .most = MOST_CANDIDATES, .most_rows = most_rows};
    all.dim[1] = rows;
    search_run(&t, &s->opt->target, TILES_KNOWN);
    for (int i = 0; i < t.n; i++) {
        double clocks = clocks_in(s, c, &t.tile[i]);
        if (clocks < 0 || (found && clocks >= c->clocks)) continue;
        found = true, c->clocks = clocks, c->tile = t.tile[i];
    }
    return found;
}

static bool price_together(const struct joining *s, struct company *c)
{
    int64_t most = 0, all = 0;
    for (int i = 0; i < c->n; i++) {
        int64_t rows = c->member[i]->dim[1];
        all = add_counts(all, rows), most = MAX(most, rows);
    }
    bool found = search_tiles(s, c, most, (int)most, false);
    return search_tiles(s, c, all, (int)most, found);
}

static double clocks_alone(const struct joining *s, int at)
{
    const struct program *q = &s->p->program[at];
    const struct target *target = &s->opt->target;
    const struct tile *d = decided(s, at);
    const struct tile t = d ? tile_offered(q, target, d) : tile_choose(q, target);
    return t.mainloop->cost(q, &t, target);
}

/* ---- Places ---- */

/* Finds which programs from one place up to another wait for the company. Those of one launch do as one. */
static void find_behind(const struct joining *s, const struct company *c, int first, int end)
{
    const struct plan *p = s->p;
    for (int i = first; i < end; i++) {
        const struct waits *w = &p->waits[p->origin[i]];
        int leader = plan_leader(p, i);
        bool waits = leader < i && leader >= first && s->behind[leader];
        for (int k = 0; k < w->n; k++) {
            int on = s->place[w->on[k]];
            for (int m = 0; m < c->n; m++) waits = waits || on == c->at[m];
            waits = waits || (on >= first && s->behind[on]);
        }
        for (int k = leader; waits && k < i; k++) s->behind[k] = true;
        s->behind[i] = waits;
    }
}

static bool is_member(const struct company *c, int at)
{
    for (int i = 0; i < c->n; i++)
        if (c->at[i] == at) return true;
    return false;
}

/* Bytes of what comes earlier. */
static int64_t moved_bytes(const struct joining *s, const struct company *c)
{
    const struct tensor_use *u;
    int64_t bytes = 0;
    for (int i = c->at[0] + 1; i <= c->at[c->n - 1]; i++)
        for (int j = 0; !s->behind[i] && (u = program_use(&s->p->program[i], j)); j++)
            if (use_effect(u) != EFFECT_READ) bytes = add_counts(bytes, s->p->buffer[u->buffer].bytes);
    return bytes;
}

/* Moves what is at one place of the old order to another one of the new. */
static void move(struct joining *s, const struct plan *old, int from, int to)
{
    struct plan *p = s->p;
    p->program[to] = old->program[from];
    p->schedule[to] = old->schedule[from];
    p->together[to] = old->together[from];
    p->origin[to] = old->origin[from];
    s->place[p->origin[to]] = to;
}

/* Puts the company side by side, behind what does not wait for it and ahead of what does. */
static void put_side_by_side(struct joining *s, const struct company *c)
{
    enum { AHEAD, MEMBERS, BEHIND, KINDS };
    int first = c->at[0], n = c->at[c->n - 1] - first + 1, to = first, leader = first;
    struct program program[WINDOW];
    struct schedule schedule[WINDOW];
    int together[WINDOW], origin[WINDOW];
    const struct plan old = {
        .program = program, .schedule = schedule, .together = together, .origin = origin};
    memcpy(program, s->p->program + first, sizeof *program * (size_t)n);
    memcpy(schedule, s->p->schedule + first, sizeof *schedule * (size_t)n);
    memcpy(together, s->p->together + first, sizeof *together * (size_t)n);
    memcpy(origin, s->p->origin + first, sizeof *origin * (size_t)n);
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind == MEMBERS) leader = to;
        for (int i = 0; i < n; i++) {
            bool member = is_member(c, first + i);
            if (kind == (member ? MEMBERS : s->behind[first + i] ? BEHIND : AHEAD)) move(s, &old, i, to++);
        }
    }
    for (int i = 0; i < c->n; i++) {
        s->p->together[leader + i] = i ? 0 : c->n;
        s->p->schedule[leader + i].tile = c->tile;
        s->p->program[leader + i] = *c->member[i];
    }
}

/* ---- Company ---- */

static bool is_cheaper(const struct joining *s, const struct company *c, struct company *more, int at)
{
    if (s->p->program[at].kind == PROGRAM_ROWS) return arguments_fit(c->member[0], NULL, more->n);
    return price_together(s, more) && more->clocks < WORTH_IT * (c->clocks + LAUNCH + clocks_alone(s, at));
}

/* Joins a program, if that pays. */
static bool take(struct joining *s, struct company *c, int at)
{
    struct company more = *c;
    more.member[more.n] = member_of(&s->p->arena, &s->p->program[at]);
    more.at[more.n++] = at;
    if (!more.member[more.n - 1] || moved_bytes(s, &more) > MOST_MOVED) return false;
    if (!is_cheaper(s, c, &more, at)) return false;
    *c = more;
    return true;
}

static bool look_around(struct joining *s, int first)
{
    int end = MIN(first + WINDOW, s->p->programs);
    struct company c = {.at = {first}, .n = 1, .member = {member_of(&s->p->arena, &s->p->program[first])}};
    bool priced = s->p->program[first].kind == PROGRAM_ROWS;
    if (!c.member[0]) return false;
    find_behind(s, &c, first + 1, end);
    for (int i = first + 1; i < end && c.n < MOST_TOGETHER; i++) {
        if (s->behind[i] || !may_join(s, i) || !have_one_text(s, first, i)) continue;
        if (!priced) c.clocks = clocks_alone(s, first), priced = true;
        if (take(s, &c, i)) find_behind(s, &c, first + 1, end);
    }
    if (c.n > 1) put_side_by_side(s, &c);
    return c.n > 1;
}

/* Are there two, one near the other, that look alike? In most plans there are none but those of another
 * layer, which wait for each other. */
static bool has_some(const struct joining *s)
{
    for (int i = 0; i < s->p->programs; i++) {
        if (!may_join(s, i)) continue;
        for (int j = i + 1; j < MIN(i + WINDOW, s->p->programs); j++)
            if (may_join(s, j) && members_are_alike(&s->p->program[i], &s->p->program[j])) return true;
    }
    return false;
}

static coda_status join_all(struct joining *s)
{
    struct plan *p = s->p;
    bool any = false;
    coda_status status = plan_find_order(p);
    for (int i = 0; i < p->programs && !status && !s->scratch.failed; i++)
        if (may_join(s, i) && look_around(s, i)) any = true, i--; /* another one is there now */
    p->waits = NULL;                                              /* of the places that were */
    if (!any) p->together = p->origin = NULL;
    p->rearranged = p->rearranged || any;
    if (status || !s->scratch.failed) return status;
    return fail(CODA_E_MEMORY, "out of memory for %d programs", p->programs);
}

static bool has_exchanges(const struct plan *p)
{
    for (int i = 0; i < p->programs; i++)
        if (p->program[i].own == &own_exchange) return true;
    return false;
}

coda_status schedule_together(struct plan *p, const struct plan_options *opt)
{
    struct joining s = {.p = p, .opt = opt, .norms = !has_exchanges(p)};
    bool wanted = opt->fuse && !opt->one_of_many && !opt->plain && !opt->cublaslt && !opt->overlap;
    if (!wanted || !target_has(&opt->target, TARGET_HOPPER)) return CODA_OK;
    p->together = ARENA_NEW(&p->arena, int, p->programs + 1);
    p->origin = ARENA_NEW(&p->arena, int, p->programs + 1);
    s.place = ARENA_NEW(&p->arena, int, p->programs + 1);
    s.behind = ARENA_NEW(&p->arena, bool, p->programs + 1);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d programs", p->programs);
    for (int i = 0; i < p->programs; i++) p->together[i] = 1, p->origin[i] = s.place[i] = i;
    coda_status status = CODA_OK;
    if (has_some(&s)) status = join_all(&s);
    else p->together = p->origin = NULL;
    arena_free(&s.scratch);
    return status;
}
