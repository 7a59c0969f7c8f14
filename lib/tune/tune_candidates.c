/*
 * tune_candidates.c -- the ways to compute one GEMM program of a plan, each as a plan of its own, cut down to
 * these programs, over tensors that all of them share:
 *
 *     tile ...   the program alone, with each of its cheapest tiles of each class; the plan's own first
 *     bare       the program of the product when it is taken apart: cuBLASLt, without an epilogue
 *     apart      all programs of the plan with the product taken apart that the plan does not have
 *     whole      all programs of the plan that are no longer there then, if they are several
 */
#include "tune_candidates.h"

#include "mainloop.h"
#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>

/* Tiles of each class, each a compilation; and of a thorough benchmark, which alone tries the kinds that were
 * seldom the fastest. ORDER tile_class */
static const int FEW_TILES[TILE_CLASSES] = {5, 1, 0, 0, 0, 0}, MANY_TILES[TILE_CLASSES] = {22, 6, 6, 6, 6, 4};

/* ---- Which programs ---- */

/* Do program i of p and program j of q compute the same, by the same main loop? */
static bool same_program(const struct plan *p, int i, const struct plan *q, int j)
{
    const struct program *a = &p->program[i], *b = &q->program[j];
    struct arena arena = {0};
    struct identity x, y;
    if (a->root != b->root || a->kind != b->kind) return false;
    if (p->schedule[i].tile.mainloop != q->schedule[j].tile.mainloop) return false;
    bool same = identity_of(&x, &arena, p->buffer, a) && identity_of(&y, &arena, q->buffer, b) &&
                identity_equal(&x, &y);
    arena_free(&arena);
    return same;
}

/* Has p a program like number `index` of q? */
static bool has_program(const struct plan *p, const struct plan *q, int index)
{
    for (int i = 0; i < p->programs; i++)
        if (same_program(p, i, q, index)) return true;
    return false;
}

/* Keeps the program of the root alone, or all that the other plan does not have. */
static void cut(struct plan *p, int root, const struct plan *other)
{
    int n = 0;
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        bool wanted =
            other ? !q->prepare && !has_program(other, p, i) : q->kind == PROGRAM_GEMM && q->root == root;
        if (!wanted) continue;
        p->program[n] = *q;
        p->schedule[n++] = p->schedule[i];
    }
    p->programs = n;
    p->waits = NULL;
    p->beside = p->together = NULL;
    p->workspace = p->prepared = 0;
    p->prepared_id = 0;
}

/* ---- Candidates ---- */

static coda_status build(const struct benchmark *c, struct plan *p, const struct decision *d)
{
    struct plan_options opt = c->tuner->options;
    opt.decision = d;
    opt.decisions = 1;
    return c->tuner->build(p, c->tuner->graph, &opt);
}

static coda_status add_candidate(struct benchmark *c, const char *name, const struct decision *d,
                                 const struct plan *other, int reference)
{
    struct candidate *w = &c->candidate[c->candidates];
    w->plan = calloc(1, sizeof *w->plan);
    if (!w->plan) return fail(CODA_E_MEMORY, "out of memory for a plan");
    c->candidates++;
    w->reference = reference;
    snprintf(w->name, sizeof w->name, "%s", name);
    w->plan->gpu = *c->tuner->gpu;
    w->plan->runnable = true;
    w->status = build(c, &w->plan->plan, d);
    if (!w->status) cut(&w->plan->plan, c->program->root, other);
    if (!w->status) w->status = tensors_bind(&c->tensors, &w->plan->plan, c->tuner->arg);
    if (!w->status) w->status = kernels_emit(w->plan, NULL, NULL);
    return CODA_OK;
}

/* Keeps those of the `more` tiles behind the first n that differ from all before: two classes may offer
 * the same tile. Returns how many there are in all. */
static int without_repeats(struct tile *tile, int n, int more)
{
    int all = n;
    for (int i = n; i < n + more; i++) {
        bool repeats = false;
        for (int j = 0; j < n; j++) repeats = repeats || tile_equal(&tile[i], &tile[j]);
        if (!repeats) tile[all++] = tile[i];
    }
    return all;
}

static int candidates(const struct tuner *t, const struct program *p, struct tile *tile)
{
    const int *most = t->thorough ? MANY_TILES : FEW_TILES;
    int n = 0;
    for (int class = 0; class < TILE_CLASSES; class ++)
        n = without_repeats(tile, n, tile_candidates(p, &t->options.target, class, tile + n, most[class]));
    return n;
}

int benchmark_tiles(const struct tuner *t, const struct program *p)
{
    struct tile tile[MOST_TILES];
    return candidates(t, p, tile);
}

static coda_status add_tiles(struct benchmark *c)
{
    struct tile tile[MOST_TILES];
    int n = candidates(c->tuner, c->program, tile);
    coda_status status = CODA_OK;
    for (int i = 0; i < n && !status; i++) {
        struct decision d = {.root = c->program->root, .tile = &tile[i]};
        struct text t = {0};
        char name[CANDIDATE_SIZE];
        tile_print(&tile[i], &t);
        snprintf(name, sizeof name, "tile %s", text_str(&t));
        text_free(&t);
        status = add_candidate(c, name, &d, NULL, i ? 0 : -1);
    }
    return status;
}

static bool goes_to_cublaslt(const struct benchmark *c)
{
    for (int i = 0; i < c->apart.programs; i++)
        if (c->apart.program[i].root == c->program->root && program_is_cublaslt(&c->apart, i)) return true;
    return false;
}

static int count_missing(const struct plan *p, const struct plan *other)
{
    int n = 0;
    for (int i = 0; i < p->programs; i++) n += !p->program[i].prepare && !has_program(other, p, i);
    return n;
}

static coda_status add_cublaslt(struct benchmark *c)
{
    char line[JIT_ERROR_SIZE];
    struct decision usual = {.root = c->program->root}, apart = {.root = c->program->root, .apart = true};
    if (c->tuner->options.invariant || !jit_cublaslt_info(line, sizeof line)) return CODA_OK;
    if (build(c, &c->apart, &apart) || !goes_to_cublaslt(c)) return CODA_OK;
    coda_status status = CODA_OK;
    int reference = 0;
    if (count_missing(c->usual, &c->apart) > 1) {
        reference = c->candidates;
        status = add_candidate(c, "whole", &usual, &c->apart, -1);
    }
    if (!status) status = add_candidate(c, "bare", &apart, NULL, -1);
    if (!status) status = add_candidate(c, "apart", &apart, c->usual, reference);
    return status;
}

coda_status candidates_add(struct benchmark *c)
{
    coda_status status = add_tiles(c);
    return status ? status : add_cublaslt(c);
}
