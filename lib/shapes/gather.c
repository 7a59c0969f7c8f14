/*
 * gather.c -- the kernels that the shapes of a family want: each shape is planned, in several threads, and of
 * the kernels' texts each distinct one is kept, in a plan that has no programs.
 */
#include "gather.h"

#include "every.h"
#include "kernel_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct walk {
    struct family *family;
    const coda_plan *whole;
    bool base;
    pthread_mutex_t lock; /* of all that follows */
    struct every shapes;
    coda_plan *all;
    struct names texts;
    int capacity; /* of all->kernel */
    coda_status status;
    struct failure failure;
};

/* ---- Texts ---- */

static bool grow(struct walk *w)
{
    coda_plan *p = w->all;
    struct compiled_kernel *more = arena_grow(&p->arena, p->kernel, p->kernels, &w->capacity, sizeof *more);
    if (more) p->kernel = more;
    return more;
}

static bool add(struct walk *w, const struct compiled_kernel *k)
{
    struct arena *a = &w->all->arena;
    if (names_find(&w->texts, k->info.source, -1) >= 0) return true;
    struct kernel *spec = ARENA_NEW(a, struct kernel, 1);
    const char *name = arena_string(a, k->info.name), *source = arena_string(a, k->info.source);
    if (!spec || !name || !source || !grow(w)) return false;
    *spec = (struct kernel){.symbol = name, .text = source, .maps = k->spec->maps};
    struct compiled_kernel *own = &w->all->kernel[w->all->kernels];
    own->info = k->info;
    own->info.name = name, own->info.source = source;
    own->spec = spec;
    return names_add(&w->texts, a, source, w->all->kernels++);
}

static coda_status add_all(struct walk *w, const coda_plan *p)
{
    bool good = true;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; good && i < p->kernels; i++) good = add(w, &p->kernel[i]);
    pthread_mutex_unlock(&w->lock);
    return good ? CODA_OK : fail(CODA_E_MEMORY, "out of memory for the kernels of all shapes");
}

/* A shape that no run can have wants none. */
static coda_status take_plan(struct walk *w, const int64_t *dims, bool base)
{
    const struct plan_request request = {.call = "warm", .dims = dims, .base = base, .text_only = true};
    coda_plan *p = NULL;
    coda_status status = family_plan(w->family, &p, w->whole, &request);
    if (status == CODA_E_UNSUPPORTED) return CODA_OK;
    if (!status) status = add_all(w, p);
    executable_free(p);
    return status;
}

static bool next_shape(struct walk *w, int64_t *dims)
{
    pthread_mutex_lock(&w->lock);
    bool there = !w->status && every_next(&w->shapes, dims);
    pthread_mutex_unlock(&w->lock);
    return there;
}

static void walk(void *context, int64_t thread)
{
    struct walk *w = context;
    int64_t dims[MOST_SYMBOLS];
    coda_status status = CODA_OK;
    (void)thread;
    while (!status && next_shape(w, dims)) {
        status = take_plan(w, dims, false);
        if (!status && w->base) status = take_plan(w, dims, true);
    }
    if (!status) return;
    pthread_mutex_lock(&w->lock);
    w->status = status;
    fail_save(&w->failure);
    pthread_mutex_unlock(&w->lock);
}

coda_status gather_texts(coda_plan **out, struct family *f, const coda_plan *whole, bool base)
{
    struct walk w = {.family = f, .whole = whole, .base = base, .all = calloc(1, sizeof *w.all)};
    struct failure before;
    int threads = 1;
    if (!w.all) return fail(CODA_E_MEMORY, "out of memory for a plan");
    w.all->device = whole->device;
    w.all->gpu = whole->gpu;
    w.all->arch = whole->arch;
    pthread_mutex_init(&w.lock, NULL);
    every_begin(&w.shapes, f->graph->dims);
    fail_save(&before);
    w.status = kernels_threads(&threads);
    if (!w.status) w.status = add_all(&w, whole);
    if (!w.status) parallel_for_most(threads, threads, walk, &w);
    if (!w.status) fail_restore(&before);
    else if (w.failure.status) fail_restore(&w.failure);
    pthread_mutex_destroy(&w.lock);
    if (!w.status) return *out = w.all, CODA_OK;
    executable_free(w.all);
    return w.status;
}

/* ---- Kernels ---- */

static coda_status compile_some(struct family *f, coda_plan *p, int first, int threads, bool load)
{
    const struct jit_options jit = {
        .arch = f->opt.arch, .cache = f->opt.cache, .no_cache = f->opt.flags & CODA_NO_CACHE};
    coda_status status = kernels_compile(p, first, &jit, threads, NULL);
    if (!status && load) status = kernels_load(p, &jit);
    if (!status && load) status = kernel_table_add(f->table, p);
    return status;
}

static bool may_go_on(const struct gathering *how, const coda_plan *p, int done)
{
    return !how->go_on || how->go_on(how->context, p, done);
}

coda_status gather_compile(struct family *f, coda_plan *p, const struct gathering *how)
{
    enum { TURNS = 4 }; /* kernels that a thread compiles before anybody is asked */
    bool load = how->load && f->opt.device == CODA_DEVICE_GPU;
    int all = p->kernels, done = f->opt.flags & CODA_PLAN_ONLY ? all : 0, threads;
    coda_status status = kernels_threads(&threads);
    if (!status && load) kernel_table_take(f->table, p);
    while (!status && done < all && may_go_on(how, p, done)) {
        p->kernels = MIN(all, done + TURNS * threads);
        status = compile_some(f, p, done, threads, load);
        done = p->kernels;
        p->kernels = all;
    }
    if (!status && done == all) may_go_on(how, p, done);
    return status;
}
