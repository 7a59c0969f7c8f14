/*
 * tune.c -- what is known of each GEMM of a plan, and what follows from it.
 *
 * Figures come from the cache, or from a benchmark on the device if the caller asked for one; equal
 * programs share them. Without any the price of the tile stands: it chose the tile, and it may say that
 * the plain mainloop loses to cuBLASLt.
 */
#include "mainloop.h"
#include "tune_bench.h"

#include <stdlib.h>
#include <string.h>

static bool is_tunable(const struct plan *plan, int index)
{
    const struct program *q = &plan->program[index];
    bool work = q->dim[0] && q->dim[1] && q->dim[2] && q->k;
    return q->kind == PROGRAM_GEMM && !q->prepare && !program_is_cublaslt(plan, index) && work;
}

static bool recall(const struct tuner *t, const char *key, struct figures *f)
{
    char *text = jit_figures_get(key, t->gpu, &t->jit);
    bool good = text && figures_read(f, text);
    free(text);
    return good;
}

/* Stores the figures and reads them back, so that this run and later ones see the same rounding. */
static void keep(const struct tuner *t, const char *key, struct figures *f)
{
    struct text text = {0};
    figures_write(f, &text);
    if (f->n && !text.failed) {
        jit_figures_put(key, t->gpu, &t->jit, text_str(&text));
        figures_read(f, text_str(&text));
    }
    text_free(&text);
}

static void tell(const struct program *q, double ms)
{
    struct text head = {0};
    program_print_head(q, &head);
    jit_tell(CODA_EVENT_TUNE, text_str(&head), "", ms);
    text_free(&head);
}

/* Figures of one program: NULL in *out if there are none. */
static coda_status find(struct tuner *t, const struct plan *plan, int index, const char *key,
                        const struct figures **out)
{
    struct figures *f = ARENA_NEW(t->arena, struct figures, 1);
    coda_status status = CODA_OK;
    *out = NULL;
    if (!f) return fail(CODA_E_MEMORY, "out of memory for figures");
    bool known = recall(t, key, f);
    if (known && t->thorough && figures_tiles(f) < benchmark_tiles(t, &plan->program[index])) known = false;
    if (!known && t->measure) {
        double began = jit_milliseconds();
        status = benchmark(f, t, plan, index);
        if (!status) keep(t, key, f);
        tell(&plan->program[index], jit_milliseconds() - began);
        t->measured++;
    }
    if (known || t->measure) *out = f;
    return status;
}

/* The figures of the products so far, by their keys. */
struct knowledge {
    struct touch touch;
    struct names keys;
    const struct figures **figures;
    int n;
};

static char *key_of(const struct tuner *t, const struct plan *plan, const struct touch *touch, int index)
{
    struct text key = {0};
    figures_key(plan, touch, index, &key);
    char *s = key.failed ? NULL : arena_string(t->arena, text_str(&key));
    text_free(&key);
    return s;
}

/* Takes the figures of an equal product before it, or finds them as for the first of its kind. */
static coda_status look(struct tuner *t, const struct plan *plan, int index, struct knowledge *k,
                        const struct figures **out)
{
    const char *key = key_of(t, plan, &k->touch, index);
    if (!key) return fail(CODA_E_MEMORY, "out of memory for a program's text");
    int at = names_find(&k->keys, key, -1);
    if (at >= 0) return *out = k->figures[at], CODA_OK;
    coda_status status = find(t, plan, index, key, out);
    if (!status && *out && (*out)->n) t->tuned[t->tuneds++] = key;
    k->figures[k->n] = *out;
    if (!status && !names_add(&k->keys, t->arena, key, k->n++))
        return fail(CODA_E_MEMORY, "out of memory for %d keys", k->n);
    return status;
}

static bool has_cublaslt(void)
{
    char line[JIT_ERROR_SIZE];
    return jit_cublaslt_info(line, sizeof line);
}

/* Takes the candidate that was measured to be fastest. A tile that this library does not have is left to the
 * cost. */
static coda_status follow(const struct tuner *t, const struct figures *f, struct decision *d)
{
    const char *words;
    struct tile *tile = ARENA_NEW(t->arena, struct tile, 1);
    if (!tile) return fail(CODA_E_MEMORY, "out of memory for a tile");
    d->apart = figures_decide(f, &words) && has_cublaslt() && !t->options.invariant;
    if (tile_parse(words, tile)) d->tile = tile;
    return CODA_OK;
}

static coda_status decide(struct tuner *t, const struct plan *plan, int index, struct knowledge *k,
                          struct decision *d)
{
    const struct program *q = &plan->program[index];
    const struct figures *f = NULL;
    coda_status status = t->by_price ? CODA_OK : look(t, plan, index, k, &f);
    if (status) return status;
    *d = (struct decision){.root = q->root, .figures = f};
    if (f && f->n) return follow(t, f, d);
    d->apart = t->options.fuse && !t->options.invariant &&
               tile_loses(q, &plan->schedule[index].tile, &t->options.target);
    if (d->apart) d->apart = has_cublaslt();
    return CODA_OK;
}

static int by_root(const void *x, const void *y)
{
    const struct decision *a = x, *b = y;
    return (a->root > b->root) - (a->root < b->root);
}

coda_status tune_plan(struct tuner *t, const struct plan *plan, struct decision **out, int *n)
{
    struct knowledge k = {.figures = ARENA_NEW(t->arena, const struct figures *, plan->programs + 1)};
    struct decision *d = *out = ARENA_NEW(t->arena, struct decision, plan->programs + 1);
    coda_status status = CODA_OK;
    *n = 0;
    t->tuned = ARENA_NEW(t->arena, const char *, plan->programs + 1);
    bool good = k.figures && d && t->tuned;
    if (!good || (!t->by_price && !touch_find(&k.touch, t->arena, plan)))
        return fail(CODA_E_MEMORY, "out of memory for %d decisions", plan->programs);
    for (int i = 0; i < plan->programs && !status; i++) {
        if (!is_tunable(plan, i)) continue;
        status = decide(t, plan, i, &k, &d[*n]);
        if (!status && (d[*n].figures || d[*n].apart)) *n += 1;
    }
    qsort(d, (size_t)*n, sizeof *d, by_root);
    return status;
}
