/*
 * caches.c -- coda.h's cache in terms of cache.h's, and the one that a process has without asking.
 */
#include "compile.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ship.h"

/* ---- The process's own ---- */

static _Atomic(struct coda_cache *) own;

/* Opened at first need; of two threads that open it the first wins. */
struct coda_cache *jit_cache(struct coda_cache *c)
{
    struct coda_cache *none = NULL;
    if (c || (c = atomic_load(&own))) return c;
    process_keeps();
    if (!(c = cache_open(NULL)) || atomic_compare_exchange_strong(&own, &none, c)) return c;
    cache_close(c);
    return none;
}

void jit_cache_drop(void) { cache_close(atomic_exchange(&own, NULL)); }

bool jit_cache_info(char *line, size_t size)
{
    struct coda_cache *c = jit_cache(NULL);
    bool kept = c && cache_dir(c)[0];
    char why[JIT_ERROR_SIZE];
    if (!jit_inputs_are_known(why, sizeof why)) snprintf(line, size, "passed by: %s", why);
    else if (kept) snprintf(line, size, "%s", cache_dir(c));
    else snprintf(line, size, "none: %s", c ? cache_problem(c) : "out of memory");
    return kept;
}

static coda_status no_memory(char *err) { return jit_fail(err, CODA_E_MEMORY, "out of memory for a cache"); }

/* ---- Open and close ---- */

_Static_assert((int)CODA_CACHE_READ_ONLY == CACHE_READ_ONLY && (int)CODA_CACHE_SHARED == CACHE_SHARED &&
                   (int)CODA_CACHE_DURABLE == CACHE_DURABLE && (int)CODA_CACHE_VERIFY == CACHE_VERIFY &&
                   (int)CODA_CACHE_ISOLATE == CACHE_ISOLATE,
               "the flags are the same");

static struct cache_store store_of(const coda_cache_store *s)
{
    return (struct cache_store){s->context, s->get, s->put, s->drop, s->lock, s->unlock};
}

coda_status jit_cache_open(struct coda_cache **out, const coda_cache_options *opt, char *err)
{
    struct cache_store store = opt->store ? store_of(opt->store) : (struct cache_store){0};
    struct cache_options o = {.dir = opt->dir,
                              .overlays = opt->overlays,
                              .limit = opt->limit,
                              .flags = opt->flags,
                              .wait_ms = opt->wait_ms,
                              .store = opt->store ? &store : NULL,
                              .record = opt->record,
                              .helper = opt->helper,
                              .compile_ms = opt->compile_ms};
    *out = cache_open(&o);
    return *out ? CODA_OK : no_memory(err);
}

void jit_cache_close(struct coda_cache *c) { cache_close(c); }

const char *jit_cache_dir(struct coda_cache *c) { return (c = jit_cache(c)) ? cache_dir(c) : ""; }

const char *jit_cache_problem(struct coda_cache *c)
{
    return (c = jit_cache(c)) ? cache_problem(c) : "out of memory";
}

void jit_cache_forget(struct coda_cache *c)
{
    if ((c = jit_cache(c))) cache_forget(c);
    jit_unload_idle();
}

void jit_cache_seal(struct coda_cache *c, bool sealed)
{
    if ((c = jit_cache(c))) cache_seal(c, sealed);
}

/* ---- Statistics ---- */

coda_status jit_cache_stats(struct coda_cache *c, coda_cache_stats *out, char *err)
{
    if (!(c = jit_cache(c))) return no_memory(err);
    const struct stats *s = cache_stats(c);
    out->size = sizeof *out;
#define COPY(name, comment) out->name = stats_get(s, COUNT_##name);
    CACHE_COUNTERS(COPY)
#undef COPY
    return CODA_OK;
}

int64_t jit_cache_print(struct coda_cache *c, char *buf, size_t size, char *err)
{
    int64_t n = (c = jit_cache(c)) ? cache_stats_print(c, buf, size) : -1;
    return n < 0 ? no_memory(err) : n;
}

/* ---- The directory ---- */

struct listing {
    int (*visit)(void *context, const coda_cache_entry *e);
    void *context;
};

static char *copy(const char *s, size_t n) { return strndup(n ? s : "", n); }

bool jit_cache_show(const struct cache_item *item, int (*visit)(void *, const coda_cache_entry *),
                    void *context)
{
    const struct entry *e = &item->entry;
    bool intact = item->fault == ENTRY_INTACT;
    char *key = intact ? copy(e->key, e->key_size) : NULL,
         *note = intact ? copy(e->note, e->note_size) : NULL;
    coda_cache_entry shown = {.size = sizeof shown,
                              .name = item->name,
                              .kind = intact ? cache_kind_name(e->kind) : "",
                              .key = key ? key : "",
                              .note = note ? note : "",
                              .fault = entry_fault_name(item->fault),
                              .bytes = item->bytes,
                              .age_s = item->age_s};
    bool more = visit(context, &shown);
    free(key);
    free(note);
    return more;
}

static bool show(void *ctx, const struct cache_item *item)
{
    const struct listing *l = ctx;
    return jit_cache_show(item, l->visit, l->context);
}

static coda_status no_directory(struct coda_cache *c, char *err)
{
    if (c && cache_dir(c)[0]) return jit_fail(err, CODA_E_IO, "%s cannot be read to its end", cache_dir(c));
    return jit_fail(err, CODA_E_IO, "the cache has no directory: %s", c ? cache_problem(c) : "out of memory");
}

coda_status jit_cache_list(struct coda_cache *c, int (*visit)(void *, const coda_cache_entry *),
                           void *context, char *err)
{
    struct listing l = {visit, context};
    c = jit_cache(c);
    return c && cache_walk(c, show, &l) ? CODA_OK : no_directory(c, err);
}

coda_status jit_cache_prune(struct coda_cache *c, const coda_cache_prune_options *opt, coda_cache_pruned *out,
                            char *err)
{
    struct cache_prune p = {.max_bytes = opt->clear ? 0 : opt->max_bytes > 0 ? opt->max_bytes : -1,
                            .older_than_s = opt->older_than_s > 0 ? opt->older_than_s : -1,
                            .faulty = opt->faulty,
                            .dry = opt->dry_run};
    c = jit_cache(c);
    if (c && cache_flags(c) & CACHE_READ_ONLY && !p.dry)
        return jit_fail(err, CODA_E_IO, "%s is open for reading only", cache_dir(c));
    if (!c || !cache_prune(c, &p)) return no_directory(c, err);
    *out = (coda_cache_pruned){sizeof *out, p.removed, p.removed_bytes, p.kept, p.kept_bytes};
    return CODA_OK;
}

coda_status jit_cache_add_bundle(struct coda_cache *c, const void *data, size_t size, char *err)
{
    char why[CACHE_ERROR];
    if (!(c = jit_cache(c))) return no_memory(err);
    return cache_add_bundle(c, data, size, why) ? CODA_OK : jit_fail(err, CODA_E_INVALID, "%s", why);
}
