/* cache_calls.c -- coda.h's section "Kernel cache": arguments checked, then jit/caches.c. */
#include "build.h"
#include "jit.h"

CODA_API coda_status coda_cache_open(coda_cache **out, const coda_cache_options *opt)
{
    coda_cache_options own;
    coda_cache_store store;
    char err[JIT_ERROR_SIZE];
    if (!out) return fail(CODA_E_INVALID, "cache_open: out is NULL");
    *out = NULL;
    coda_status status = SIZED_READ("cache_open", coda_cache_options, &own, opt);
    if (!status && own.store) status = SIZED_READ("cache_open", coda_cache_store, &store, own.store);
    if (status) return status;
    if (own.flags > 31) return fail(CODA_E_INVALID, "cache_open: flags 0x%x has unknown bits", own.flags);
    if (own.compile_ms < 0) return fail(CODA_E_INVALID, "cache_open: compile_ms is %d", own.compile_ms);
    if (own.store && !store.get) return fail(CODA_E_INVALID, "cache_open: the store has no get");
    if (own.store) own.store = &store;
    status = jit_cache_open(out, &own, err);
    return status ? fail(status, "%s", err) : CODA_OK;
}

CODA_API void coda_cache_free(coda_cache *c) { jit_cache_close(c); }
CODA_API const char *coda_cache_dir(coda_cache *c) { return jit_cache_dir(c); }
CODA_API const char *coda_cache_problem(coda_cache *c) { return jit_cache_problem(c); }
CODA_API void coda_cache_forget(coda_cache *c) { jit_cache_forget(c); }
CODA_API void coda_cache_seal(coda_cache *c, int sealed) { jit_cache_seal(c, sealed); }

CODA_API coda_status coda_cache_stats_get(coda_cache *c, coda_cache_stats *out)
{
    coda_cache_stats own;
    char err[JIT_ERROR_SIZE];
    if (!out) return fail(CODA_E_INVALID, "cache_stats_get: out is NULL");
    if (SIZED_CHECK("cache_stats_get", coda_cache_stats, out)) return CODA_E_INVALID;
    coda_status status = jit_cache_stats(c, &own, err);
    if (status) return fail(status, "%s", err);
    SIZED_WRITE(coda_cache_stats, out, &own);
    return CODA_OK;
}

CODA_API int64_t coda_cache_stats_print(coda_cache *c, char *buf, size_t size)
{
    char err[JIT_ERROR_SIZE];
    if (!buf && size) return fail(CODA_E_INVALID, "cache_stats_print: buf is NULL");
    int64_t n = jit_cache_print(c, buf, size, err);
    return n < 0 ? fail((coda_status)n, "%s", err) : n;
}

CODA_API coda_status coda_cache_list(coda_cache *c, int (*visit)(void *context, const coda_cache_entry *e),
                                     void *context)
{
    char err[JIT_ERROR_SIZE];
    if (!visit) return fail(CODA_E_INVALID, "cache_list: visit is NULL");
    coda_status status = jit_cache_list(c, visit, context, err);
    return status ? fail(status, "%s", err) : CODA_OK;
}

CODA_API coda_status coda_cache_prune(coda_cache *c, const coda_cache_prune_options *opt,
                                      coda_cache_pruned *out)
{
    coda_cache_prune_options own;
    coda_cache_pruned done;
    char err[JIT_ERROR_SIZE];
    coda_status status = SIZED_CHECK("cache_prune", coda_cache_pruned, out);
    if (!status) status = SIZED_READ("cache_prune", coda_cache_prune_options, &own, opt);
    if (status) return status;
    status = jit_cache_prune(c, &own, &done, err);
    if (status) return fail(status, "%s", err);
    SIZED_WRITE(coda_cache_pruned, out, &done);
    return CODA_OK;
}

CODA_API coda_status coda_cache_add_bundle(coda_cache *c, const void *data, size_t size)
{
    char err[JIT_ERROR_SIZE];
    if (!data) return fail(CODA_E_INVALID, "cache_add_bundle: data is NULL");
    coda_status status = jit_cache_add_bundle(c, data, size, err);
    return status ? fail(status, "%s", err) : CODA_OK;
}

CODA_API int coda_compile_worker(int in, int out) { return jit_worker(in, out); }
