/* api_bundle.c -- coda.h's calls about bundles; of plans, their kernels. */
#include "api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_cache.h"
#include "executable.h"
#include "shapes.h"

/* ---- Export ---- */

/* What a plan gives: of a graph with symbols, what any of its shapes wants. */
struct given {
    const coda_plan *plan; /* whose figures they are */
    coda_plan *gathered;   /* of all shapes; NULL: the plan's own */
};

static const coda_plan *kernels_of(const struct given *g) { return g->gathered ? g->gathered : g->plan; }

/* CODA_E_INVALID if plan `index` has no kernels. */
static coda_status take(struct given *g, const coda_plan *p, int index)
{
    const struct gathering how = {.call = "cache_export"};
    coda_status status = CODA_OK;
    if (!p) return fail(CODA_E_INVALID, "cache_export: plan %d is NULL", index);
    g->plan = p;
    if (p->shapes && p->kernels) status = shapes_gather(&g->gathered, p, &how);
    if (status || !kernels_of(g)->kernels || kernels_of(g)->kernel[0].cubin.image) return status;
    return fail(CODA_E_INVALID, "cache_export: plan %d was compiled without its kernels", index);
}

static void collect(struct jit_exported *kernel, struct jit_tuned *tuned, const struct given *given, int n)
{
    for (int i = 0; i < n; i++) {
        const coda_plan *p = given[i].plan, *k = kernels_of(&given[i]);
        for (int j = 0; j < k->kernels; j++)
            *kernel++ = (struct jit_exported){&k->kernel[j].cubin, k->kernel[j].info.source};
        for (int j = 0; j < p->tuneds; j++) *tuned++ = (struct jit_tuned){p->tuned[j], p->arch, &p->gpu};
    }
}

static coda_status export_all(coda_cache *c, const struct jit_export *e, coda_bundle_report *done)
{
    char err[JIT_ERROR_SIZE];
    coda_status status = jit_export(c, e, done, err);
    return status ? fail(status, "%s", err) : CODA_OK;
}

static coda_status export_given(coda_cache *c, struct jit_export *e, const struct given *given, int n,
                                coda_bundle_report *done)
{
    coda_status status = CODA_OK;
    for (int i = 0; i < n; i++) {
        e->kernels += kernels_of(&given[i])->kernels;
        e->tuneds += given[i].plan->tuneds;
    }
    struct jit_exported *kernel = calloc((size_t)e->kernels + 1, sizeof *kernel);
    struct jit_tuned *tuned = calloc((size_t)e->tuneds + 1, sizeof *tuned);
    if (!kernel || !tuned) status = fail(CODA_E_MEMORY, "out of memory for %d kernels", e->kernels);
    else {
        collect(kernel, tuned, given, n);
        e->kernel = kernel;
        e->tuned = tuned;
        status = export_all(c, e, done);
    }
    free(kernel);
    free(tuned);
    return status;
}

static coda_status export_plans(coda_cache *c, struct jit_export *e, const coda_export_options *opt,
                                coda_bundle_report *done)
{
    coda_status status = CODA_OK;
    struct given *given = calloc((size_t)opt->plan_count + 1, sizeof *given);
    if (!given) return fail(CODA_E_MEMORY, "out of memory for %d plans", opt->plan_count);
    for (int i = 0; i < opt->plan_count && !status; i++) status = take(&given[i], opt->plans[i], i);
    if (!status) status = export_given(c, e, given, opt->plan_count, done);
    for (int i = 0; i < opt->plan_count; i++) executable_free(given[i].gathered);
    free(given);
    return status;
}

/* Letters, digits and underscores, not a digit first. */
static bool is_identifier(const char *s)
{
    static const char letters[] = "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return *s && strspn(s, letters) == strlen(s) && strspn(s, "0123456789") == 0;
}

CODA_API coda_status coda_cache_export(coda_cache *c, const char *path, const coda_export_options *opt,
                                       coda_bundle_report *out)
{
    coda_export_options own;
    coda_bundle_report done;
    if (!path || !*path) return fail(CODA_E_INVALID, "cache_export: there is no path");
    coda_status status = SIZED_CHECK("cache_export", coda_bundle_report, out);
    if (!status) status = SIZED_READ("cache_export", coda_export_options, &own, opt);
    if (status) return status;
    if (own.plan_count < 0 || (own.plan_count && !own.plans))
        return fail(CODA_E_INVALID, "cache_export: %d plans at NULL", own.plan_count);
    if (own.array && !is_identifier(own.array))
        return fail(CODA_E_INVALID, "cache_export: \"%s\" is no name in C", own.array);
    struct jit_export e = {.path = path, .keys = own.keys, .arch = own.arch, .array = own.array};
    status = own.plans ? export_plans(c, &e, &own, &done) : export_all(c, &e, &done);
    if (!status) SIZED_WRITE(coda_bundle_report, out, &done);
    return status;
}

/* The status of what the cache could not do: its errno. */
static coda_status status_of(int error) { return error == ENOMEM ? CODA_E_MEMORY : CODA_E_IO; }

static struct bundle *open_bundle(const char *path)
{
    char why[CACHE_ERROR];
    struct bundle *b = bundle_open(path, CACHE_SHARED, why);
    if (!b) fail(status_of(errno), "%s", why);
    return b;
}

/* ---- Import ---- */

static coda_status import(coda_cache *c, const char *path, coda_bundle_report *out)
{
    struct bundle *b = open_bundle(path);
    if (!b) return fail_status();
    *out = (coda_bundle_report){.size = sizeof *out, .entries = bundle_count(b)};
    c = jit_cache(c);
    for (int i = 0; c && i < bundle_count(b); i++) {
        size_t size;
        const void *block = bundle_block(b, i, &size);
        out->bytes += (int64_t)size;
        out->taken += cache_import(c, block, size);
    }
    bundle_close(b);
    if (out->taken || !out->entries) return CODA_OK;
    const char *why = c ? cache_problem(c) : "out of memory";
    return fail(CODA_E_IO, "%s: none of %lld entries could be stored%s%s", path, (long long)out->entries,
                *why ? ": " : "", why);
}

CODA_API coda_status coda_cache_import(coda_cache *c, const char *path, coda_bundle_report *out)
{
    coda_bundle_report done;
    if (!path) return fail(CODA_E_INVALID, "cache_import: path is NULL");
    coda_status status = SIZED_CHECK("cache_import", coda_bundle_report, out);
    if (!status) status = import(c, path, &done);
    if (!status) SIZED_WRITE(coda_bundle_report, out, &done);
    return status;
}

/* ---- Look ---- */

static bool show(const struct bundle *b, int i, int (*visit)(void *, const coda_cache_entry *), void *context)
{
    struct cache_item item = {0};
    char name[DIGEST_HEX] = "";
    item.raw = bundle_block(b, i, &item.raw_size);
    item.bytes = (int64_t)item.raw_size;
    item.fault = entry_check(&item.entry, item.raw, item.raw_size);
    item.name = name;
    if (!item.fault) {
        struct digest d = name_of(item.entry.key, item.entry.key_size, NULL, 0);
        digest_hex(name, &d);
    }
    return api_cache_show(&item, visit, context);
}

CODA_API coda_status coda_bundle_list(const char *path,
                                      int (*visit)(void *context, const coda_cache_entry *e), void *context)
{
    if (!path || !visit) return fail(CODA_E_INVALID, "bundle_list: %s is NULL", path ? "visit" : "path");
    struct bundle *b = open_bundle(path);
    if (!b) return fail_status();
    for (int i = 0; i < bundle_count(b) && show(b, i, visit, context); i++) continue;
    bundle_close(b);
    return CODA_OK;
}

CODA_API int64_t coda_bundle_print(const char *path, char *buf, size_t size)
{
    if (!path || (!buf && size))
        return fail(CODA_E_INVALID, "bundle_print: %s is NULL", path ? "buf" : "path");
    struct bundle *b = open_bundle(path);
    if (!b) return fail_status();
    int n = snprintf(buf, size, "%s", bundle_manifest(b));
    bundle_close(b);
    return n;
}
