/*
 * kept.c -- a registry of memory that coda_prepare has written, for the whole process.
 *
 * A sorted array of disjoint regions, never changed once it is published: coda_prepare makes a new one under
 * a lock, coda_run reads the one that is there without. Readers are counted; an old array, and a region that
 * is in no array any more, are freed when a change finds no reader. Empty, it costs a run one load.
 *
 * A region remembers a few of its bytes (or, on a GPU, the number of its allocation), by which it is seen
 * that its memory was freed and used again: before somebody is refused, these are compared.
 */
#include "kept.h"
#include "jit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 16, SAMPLE = 8 };

/* The values of `holds` beside digests, which are odd: nothing any more; values that coda_prepare is about to
 * write; values that it has not finished. */
enum { FORGOTTEN = 0, BUSY = 2, UNFINISHED = 4 };

struct region {
    uintptr_t first, end;
    bool weight; /* folded in place, else prepared memory */
    bool gpu;
    _Atomic uint64_t holds; /* digest */
    uint64_t then;          /* digest that it will hold */
    uint64_t allocation;    /* GPU: its number, 0 if unknown */
    unsigned char sample[SAMPLES][SAMPLE];
    struct region *next; /* of those to be freed */
    char name[];
};

struct regions {
    struct regions *next; /* of those to be freed */
    int n;
    struct region *region[];
};

static struct {
    pthread_mutex_t lock; /* of changes */
    _Atomic(struct regions *) now;
    atomic_int readers;
    struct regions *old;
    struct region *dead;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- Is it still the same memory? ---- */

static uintptr_t sample_at(const struct region *r, int i, size_t *bytes)
{
    uintptr_t size = r->end - r->first;
    *bytes = MIN(size, SAMPLE);
    return r->first + (size - *bytes) / (SAMPLES - 1) * (uintptr_t)i;
}

static void take_samples(struct region *r)
{
    size_t n;
    if (r->gpu) r->allocation = jit_allocation((const void *)r->first);
    for (int i = 0; i < SAMPLES && !r->gpu; i++) {
        const void *at = (const void *)sample_at(r, i, &n);
        memcpy(r->sample[i], at, n);
    }
}

/* Only what lies in first .. end is known to be there. */
static bool is_stale(const struct region *r, uintptr_t first, uintptr_t end)
{
    size_t n;
    if (atomic_load(&r->holds) == BUSY) return false;
    if (r->gpu) return r->allocation && jit_allocation((const void *)MAX(first, r->first)) != r->allocation;
    for (int i = 0; i < SAMPLES; i++) {
        uintptr_t at = sample_at(r, i, &n);
        if (at >= first && at + n <= end && memcmp((const void *)at, r->sample[i], n)) return true;
    }
    return false;
}

/* ---- Readers ---- */

static bool is_empty(void) { return !atomic_load_explicit(&kept.now, memory_order_acquire); }

static const struct regions *enter(void)
{
    atomic_fetch_add(&kept.readers, 1);
    return atomic_load(&kept.now);
}

static void leave(void) { atomic_fetch_sub(&kept.readers, 1); }

/* The first region that ends after `at`. */
static int lower(const struct regions *s, uintptr_t at)
{
    int low = 0, high = s ? s->n : 0;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->region[middle]->end > at) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* The next region from *i on that meets first .. end, or NULL. */
static struct region *next_met(const struct regions *s, int *i, uintptr_t end)
{
    for (; s && *i < s->n && s->region[*i]->first < end; ++*i)
        if (atomic_load(&s->region[*i]->holds) != FORGOTTEN) return s->region[(*i)++];
    return NULL;
}

static void forget(const struct regions *s, uintptr_t first, uintptr_t end)
{
    int i = lower(s, first);
    for (struct region *r; (r = next_met(s, &i, end));) atomic_store(&r->holds, FORGOTTEN);
}

/* ---- Questions ---- */

#define REMEDY "; where it holds new values, or was freed and used again, say so by coda_prepare_forget"

static coda_status refuse_region(const struct arguments *b, int i, const struct region *r)
{
    uint64_t holds = atomic_load(&r->holds);
    bool unfinished = holds == UNFINISHED || holds == BUSY;
    const char *how = "was folded in place by coda_prepare for other plans, and is not what this one expects";
    if (b->prepare)
        how = "is folded in place already: plans of one coda_plan_prepared_id share one coda_prepare";
    if (unfinished) how = "is half folded, as its coda_prepare has failed or has not returned";
    return fail(CODA_E_INVALID, "%s: args[%d] (%s) at %p: weight %s there %s" REMEDY, b->call, i,
                b->place[i].name, b->args[i], r->name, how);
}

/* One leaf: no region that holds something else, and the one that it needs. */
static coda_status check_leaf(const struct arguments *b, const struct regions *s, int i)
{
    const struct place *p = &b->place[i];
    uintptr_t first = (uintptr_t)b->args[i], end = first + (uintptr_t)p->at.bytes;
    int at = lower(s, first);
    bool found = b->prepare || !p->holds || !p->at.bytes;
    for (struct region *r; p->at.bytes && (r = next_met(s, &at, end));) {
        bool same = !b->prepare && r->first == first && r->end == end && atomic_load(&r->holds) == p->holds;
        if (!r->weight) continue;
        if ((!same || !r->gpu) && is_stale(r, first, end)) atomic_store(&r->holds, FORGOTTEN);
        else if (same) found = true;
        else return refuse_region(b, i, r);
    }
    if (found) return CODA_OK;
    return fail(CODA_E_INVALID,
                "%s: args[%d] (%s) at %p: the plan folds this weight in place, which has not been done there:"
                " coda_prepare first, or coda_prepare_adopt for a copy",
                b->call, i, p->name, b->args[i]);
}

static coda_status check_prepared(const struct arguments *b, const struct regions *s, uint64_t id)
{
    uintptr_t first = (uintptr_t)b->prepared;
    int at = lower(s, first);
    uintptr_t end = first + (uintptr_t)b->prepared_bytes;
    const struct region *r = next_met(s, &at, end);
    bool prepared = r && !r->weight && r->first == first, same = prepared && atomic_load(&r->holds) == id;
    if (same && (r->gpu || !is_stale(r, first, end))) return CODA_OK;
    return fail(CODA_E_INVALID,
                "%s: prepared memory at %p %s: coda_prepare first, or coda_prepare_adopt for a copy", b->call,
                b->prepared,
                same       ? "has been overwritten"
                : prepared ? "was prepared for plans of another coda_plan_prepared_id"
                           : "has not been prepared");
}

/* Most leaves are neither folded nor near what is. */
static inline bool is_plain(const struct arguments *b, const struct regions *s, int i)
{
    uintptr_t first = (uintptr_t)b->args[i], end = first + (uintptr_t)b->place[i].at.bytes;
    int at = lower(s, first);
    return !b->place[i].holds && (!s || at == s->n || s->region[at]->first >= end);
}

static coda_status check_leaves(const struct arguments *b, const struct regions *s)
{
    coda_status status = CODA_OK;
    for (int i = 0; i < b->places && !status; i++)
        if (!place_is_written(&b->place[i]) && !place_is_idle(b, &b->place[i]) && !is_plain(b, s, i))
            status = check_leaf(b, s, i);
    return status;
}

/* Forgets the memory that the call is about to write. */
static void forget_written(const struct arguments *b, const struct regions *s)
{
    uintptr_t work = (uintptr_t)b->workspace;
    forget(s, work, work + (uintptr_t)b->workspace_bytes);
    for (int i = 0; i < b->places && !b->prepare; i++) {
        uintptr_t first = (uintptr_t)b->args[i];
        bool output = place_is_written(&b->place[i]);
        if (output) forget(s, first, first + (uintptr_t)b->place[i].at.bytes);
    }
}

coda_status kept_check(const struct arguments *b, uint64_t prepared_id)
{
    if (!prepared_id && is_empty()) return CODA_OK;
    const struct regions *s = enter();
    coda_status status = check_leaves(b, s);
    if (!status && b->prepared_bytes) status = check_prepared(b, s, prepared_id);
    if (!status) forget_written(b, s);
    leave();
    return status;
}

/* ---- Changes, under the lock ---- */

struct keeping {
    int n;
    struct region *region[];
};

static struct region *region_new(const char *name, const void *first, int64_t bytes, uint64_t then, bool gpu)
{
    struct region *r = calloc(1, sizeof *r + strlen(name) + 1);
    if (!r) return NULL;
    r->first = (uintptr_t)first;
    r->end = r->first + (uintptr_t)bytes;
    r->then = then;
    r->gpu = gpu;
    atomic_init(&r->holds, BUSY);
    strcpy(r->name, name);
    return r;
}

static void free_unread(void)
{
    if (atomic_load(&kept.readers)) return;
    while (kept.old) {
        struct regions *next = kept.old->next;
        free(kept.old);
        kept.old = next;
    }
    while (kept.dead) {
        struct region *next = kept.dead->next;
        free(kept.dead);
        kept.dead = next;
    }
}

static int by_first(const void *x, const void *y)
{
    const struct region *a = *(struct region *const *)x, *b = *(struct region *const *)y;
    return (a->first > b->first) - (a->first < b->first);
}

/* Publishes what is not forgotten, and k's regions. */
static coda_status publish(const struct keeping *k)
{
    struct regions *before = atomic_load(&kept.now);
    int most = (before ? before->n : 0) + k->n;
    struct regions *s = most ? malloc(sizeof *s + sizeof *s->region * (size_t)most) : NULL;
    if (most && !s) return CODA_E_MEMORY;
    if (s) s->n = 0;
    for (int i = 0; before && i < before->n; i++) {
        struct region *r = before->region[i];
        if (atomic_load(&r->holds) != FORGOTTEN) s->region[s->n++] = r;
        else r->next = kept.dead, kept.dead = r;
    }
    for (int i = 0; i < k->n; i++) s->region[s->n++] = k->region[i];
    if (s) qsort(s->region, (size_t)s->n, sizeof *s->region, by_first);
    if (s && !s->n) free(s), s = NULL;
    atomic_store(&kept.now, s);
    if (before) before->next = kept.old, kept.old = before;
    free_unread();
    return CODA_OK;
}

static void keeping_free(struct keeping *k)
{
    for (int i = 0; k && i < k->n; i++) free(k->region[i]);
    free(k);
}

/* The regions that a coda_prepare of these arguments writes; NULL if memory runs out. */
static struct keeping *keeping_new(const struct arguments *b, uint64_t prepared_id, bool gpu)
{
    struct keeping *k = calloc(1, sizeof *k + sizeof *k->region * (size_t)(b->places + 1));
    if (!k) return NULL;
    for (int i = 0; i <= b->places; i++) {
        bool last = i == b->places;
        const struct place *p = last ? NULL : &b->place[i];
        struct region *r;
        if (last ? !b->prepared_bytes : !p->holds || !p->at.bytes) continue;
        r = last ? region_new("", b->prepared, b->prepared_bytes, prepared_id, gpu)
                 : region_new(p->name, b->args[i], p->at.bytes, p->holds, gpu);
        if (!r) return keeping_free(k), NULL;
        r->weight = !last;
        k->region[k->n++] = r;
    }
    return k;
}

/* Somebody may have forgotten them in the meantime. */
static void finish(struct keeping *k, bool good)
{
    for (int i = 0; i < k->n; i++) {
        uint64_t busy = BUSY;
        take_samples(k->region[i]);
        atomic_compare_exchange_strong(&k->region[i]->holds, &busy, good ? k->region[i]->then : UNFINISHED);
    }
    leave();
    free(k);
}

/* Until finish() this counts as a reader, so that the regions stay. */
static coda_status claim(struct keeping **out, const struct arguments *b, uint64_t prepared_id, bool gpu,
                         bool adopt)
{
    struct keeping *k = keeping_new(b, prepared_id, gpu);
    if (!k) return fail(CODA_E_MEMORY, "%s: out of memory for %d arguments", b->call, b->places);
    pthread_mutex_lock(&kept.lock);
    const struct regions *s = enter();
    coda_status status = adopt ? CODA_OK : check_leaves(b, s);
    if (!status && !adopt) forget_written(b, s);
    for (int i = 0; !status && i < k->n; i++) forget(s, k->region[i]->first, k->region[i]->end);
    if (!status && publish(k))
        status = fail(CODA_E_MEMORY, "%s: out of memory for %d arguments", b->call, b->places);
    if (status) leave();
    pthread_mutex_unlock(&kept.lock);
    if (status) keeping_free(k);
    else *out = k;
    return status;
}

coda_status kept_begin(struct keeping **out, const struct arguments *b, uint64_t prepared_id, bool gpu)
{
    return claim(out, b, prepared_id, gpu, false);
}

void kept_end(struct keeping *k, coda_status status, bool touched)
{
    for (int i = 0; i < k->n && status && !touched; i++) atomic_store(&k->region[i]->holds, FORGOTTEN);
    finish(k, !status);
}

coda_status kept_adopt(const struct arguments *b, uint64_t prepared_id, bool gpu)
{
    struct keeping *k;
    coda_status status = claim(&k, b, prepared_id, gpu, true);
    if (!status) finish(k, true);
    return status;
}

void kept_forget(const void *first, size_t bytes)
{
    uintptr_t from = (uintptr_t)first, end = from + bytes;
    struct keeping none = {0};
    pthread_mutex_lock(&kept.lock);
    forget(atomic_load(&kept.now), from, first ? MAX(end, from) : UINTPTR_MAX);
    publish(&none); /* without memory they stay in the array, forgotten */
    pthread_mutex_unlock(&kept.lock);
}

/* When the library is closed, or the process ends while others still run: those find it empty. */
__attribute__((destructor)) static void free_kept(void) { kept_forget(NULL, 0); }
