/* api_cache.c -- coda_cache.h in terms of cache.h. A call without a cache is about the one
 * that the process has without asking. */
#include "api.h"

#include <stdlib.h>
#include <string.h>

#include "api_cache.h"
#include "jit.h"

static coda_status no_memory(void) { return fail(CODA_E_MEMORY, "out of memory for a cache"); }

/* ---- Open and close ---- */

_Static_assert((int)CODA_CACHE_READ_ONLY == CACHE_READ_ONLY && (int)CODA_CACHE_SHARED == CACHE_SHARED &&
                   (int)CODA_CACHE_DURABLE == CACHE_DURABLE && (int)CODA_CACHE_VERIFY == CACHE_VERIFY &&
                   (int)CODA_CACHE_ISOLATE == CACHE_ISOLATE,
               "the flags are the same");

static struct cache_store store_of(const coda_cache_store *s)
{
    return (struct cache_store){s->context, s->get, s->put, s->drop, s->lock, s->unlock};
}

static coda_cache *open_cache(const coda_cache_options *opt)
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
    return cache_open(&o);
}

CODA_API coda_status coda_cache_open(coda_cache **out, const coda_cache_options *opt)
{
    coda_cache_options own;
    coda_cache_store store;
    if (!out) return fail(CODA_E_INVALID, "cache_open: out is NULL");
    *out = NULL;
    coda_status status = SIZED_READ("cache_open", coda_cache_options, &own, opt);
    if (!status && own.store) status = SIZED_READ("cache_open", coda_cache_store, &store, own.store);
    if (status) return status;
    if (own.flags > 31) return fail(CODA_E_INVALID, "cache_open: flags 0x%x has unknown bits", own.flags);
    if (own.compile_ms < 0) return fail(CODA_E_INVALID, "cache_open: compile_ms is %d", own.compile_ms);
    if (own.store && !store.get) return fail(CODA_E_INVALID, "cache_open: the store has no get");
    if (own.store) own.store = &store;
    *out = open_cache(&own);
    return *out ? CODA_OK : no_memory();
}

CODA_API void coda_cache_free(coda_cache *c) { cache_close(c); }

CODA_API const char *coda_cache_dir(coda_cache *c) { return (c = jit_cache(c)) ? cache_dir(c) : ""; }

CODA_API const char *coda_cache_problem(coda_cache *c)
{
    return (c = jit_cache(c)) ? cache_problem(c) : "out of memory";
}

CODA_API void coda_cache_forget(coda_cache *c)
{
    if ((c = jit_cache(c))) cache_forget(c);
    jit_unload_idle();
}

CODA_API void coda_cache_seal(coda_cache *c, int sealed)
{
    if ((c = jit_cache(c))) cache_seal(c, sealed);
}

/* ---- Statistics ---- */

CODA_API coda_status coda_cache_stats_get(coda_cache *c, coda_cache_stats *out)
{
    coda_cache_stats own = {.size = sizeof own};
    if (!out) return fail(CODA_E_INVALID, "cache_stats_get: out is NULL");
    if (SIZED_CHECK("cache_stats_get", coda_cache_stats, out)) return CODA_E_INVALID;
    if (!(c = jit_cache(c))) return no_memory();
    const struct stats *s = cache_stats(c);
#define COPY(name, comment) own.name = stats_get(s, COUNT_##name);
    CACHE_COUNTERS(COPY)
#undef COPY
    SIZED_WRITE(coda_cache_stats, out, &own);
    return CODA_OK;
}

CODA_API int64_t coda_cache_stats_print(coda_cache *c, char *buf, size_t size)
{
    if (!buf && size) return fail(CODA_E_INVALID, "cache_stats_print: buf is NULL");
    int64_t n = (c = jit_cache(c)) ? cache_stats_print(c, buf, size) : -1;
    return n < 0 ? no_memory() : n;
}

/* ---- The directory ---- */

static char *copy(const char *s, size_t n) { return strndup(n ? s : "", n); }

bool api_cache_show(const struct cache_item *item, int (*visit)(void *, const coda_cache_entry *),
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

struct listing {
    int (*visit)(void *context, const coda_cache_entry *e);
    void *context;
};

static bool show(void *ctx, const struct cache_item *item)
{
    const struct listing *l = ctx;
    return api_cache_show(item, l->visit, l->context);
}

static coda_status no_directory(coda_cache *c)
{
    if (c && cache_dir(c)[0]) return fail(CODA_E_IO, "%s cannot be read to its end", cache_dir(c));
    return fail(CODA_E_IO, "the cache has no directory: %s", c ? cache_problem(c) : "out of memory");
}

CODA_API coda_status coda_cache_list(coda_cache *c, int (*visit)(void *context, const coda_cache_entry *e),
                                     void *context)
{
    struct listing l = {visit, context};
    if (!visit) return fail(CODA_E_INVALID, "cache_list: visit is NULL");
    c = jit_cache(c);
    return c && cache_walk(c, show, &l) ? CODA_OK : no_directory(c);
}

static coda_status prune(coda_cache *c, const coda_cache_prune_options *opt, coda_cache_pruned *out)
{
    struct cache_prune p = {.max_bytes = opt->clear           ? 0
                                         : opt->max_bytes > 0 ? opt->max_bytes
                                                              : -1,
                            .older_than_s = opt->older_than_s > 0 ? opt->older_than_s : -1,
                            .faulty = opt->faulty,
                            .dry = opt->dry_run};
    c = jit_cache(c);
    if (c && cache_flags(c) & CACHE_READ_ONLY && !p.dry)
        return fail(CODA_E_IO, "%s is open for reading only", cache_dir(c));
    if (!c || !cache_prune(c, &p)) return no_directory(c);
    *out = (coda_cache_pruned){sizeof *out, p.removed, p.removed_bytes, p.kept, p.kept_bytes};
    return CODA_OK;
}

CODA_API coda_status coda_cache_prune(coda_cache *c, const coda_cache_prune_options *opt,
                                      coda_cache_pruned *out)
{
    coda_cache_prune_options own;
    coda_cache_pruned done;
    coda_status status = SIZED_CHECK("cache_prune", coda_cache_pruned, out);
    if (!status) status = SIZED_READ("cache_prune", coda_cache_prune_options, &own, opt);
    if (!status) status = prune(c, &own, &done);
    if (!status) SIZED_WRITE(coda_cache_pruned, out, &done);
    return status;
}

CODA_API coda_status coda_cache_add_bundle(coda_cache *c, const void *data, size_t size)
{
    char why[CACHE_ERROR];
    if (!data) return fail(CODA_E_INVALID, "cache_add_bundle: data is NULL");
    if (!(c = jit_cache(c))) return no_memory();
    return cache_add_bundle(c, data, size, why) ? CODA_OK : fail(CODA_E_INVALID, "%s", why);
}

CODA_API int coda_compile_worker(int in, int out) { return jit_worker(in, out); }
