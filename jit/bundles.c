/* bundles.c -- coda.h's calls about bundles in terms of the cache's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "ship.h"

_Static_assert((int)CACHE_ERROR <= JIT_ERROR_SIZE, "the cache's reasons fit into ours");

/* Of what the cache could not do. */
static coda_status status_of(int error) { return error == ENOMEM ? CODA_E_MEMORY : CODA_E_IO; }

/* ---- Export ---- */

/* What came from a bundle was made by whoever made the bundle: nobody asked NVRTC here. */
static coda_status take_kernel(struct cargo *c, const struct jit_exported *k, char *err)
{
    const struct cache_value *v = k->cubin->value;
    const char *by = k->cubin->by ? k->cubin->by : "nvrtc unknown\n";
    char *key = NULL, why[JIT_ERROR_SIZE] = "it may be made of more than its key says";
    if (k->cubin->unkeyed) {
        jit_inputs_are_known(why, sizeof why);
        return jit_fail(err, CODA_E_UNSUPPORTED, "a kernel cannot be exported: %.400s", why);
    }
    if (asprintf(&key, "%s%s", k->cubin->what, by) < 0) c->failed = true;
    else {
        struct entry e = {.kind = CACHE_KERNEL, .key = key, .note = k->text, .data = v->data};
        e.key_size = strlen(key);
        e.what_size = strlen(k->cubin->what);
        e.note_size = strlen(k->text);
        e.data_size = v->size;
        cargo_take(c, &e, 0);
        free(key);
    }
    return c->failed ? jit_fail(err, CODA_E_MEMORY, "out of memory for a bundle") : CODA_OK;
}

/* Figures that are gone by now are left out: they are worth time, not a result. */
static void take_figures(struct cargo *c, struct coda_cache *cache, const struct jit_tuned *t)
{
    char *what = figures_print_key(t->what, t->dev, t->arch);
    struct cache_key key = cache_key(CACHE_TUNING, what ? what : "", "");
    void *data;
    size_t size;
    if (!what) c->failed = true;
    else if (cache_get(cache, &key, &data, &size)) {
        struct entry e = {.kind = CACHE_TUNING, .key = what, .note = "", .data = data, .data_size = size};
        e.key_size = e.what_size = strlen(what);
        cargo_take(c, &e, 0);
        free(data);
    }
    free(what);
}

static coda_status take_plans(struct cargo *c, struct coda_cache *cache, const struct jit_export *e,
                              char *err)
{
    coda_status status = CODA_OK;
    for (int i = 0; !status && i < e->kernels; i++) status = take_kernel(c, &e->kernel[i], err);
    cache = jit_cache(cache);
    for (int i = 0; cache && i < e->tuneds; i++) take_figures(c, cache, &e->tuned[i]);
    return status;
}

static coda_status write_cargo(struct cargo *c, const struct jit_export *e, coda_bundle_report *out,
                               char *err)
{
    size_t size = 0;
    void *bytes = cargo_pack(c, &size, err);
    if (!bytes) return status_of(errno);
    *out = (coda_bundle_report){.size = sizeof *out,
                                .entries = c->count,
                                .bytes = (int64_t)size,
                                .missing = cargo_missing(c),
                                .damaged = c->damaged};
    bool good = cargo_write(e->path, bytes, size, e->array, err);
    coda_status status = good ? CODA_OK : status_of(errno);
    free(bytes);
    return status;
}

static coda_status gather(struct cargo *cargo, struct coda_cache *c, char *err)
{
    if (!(c = jit_cache(c))) return jit_fail(err, CODA_E_MEMORY, "out of memory for a cache");
    return cargo_gather(cargo, c, err) ? CODA_OK : status_of(errno);
}

coda_status jit_export(struct coda_cache *c, const struct jit_export *e, coda_bundle_report *out, char *err)
{
    struct cargo cargo;
    coda_status status = cargo_open(&cargo, e->keys, e->arch, err) ? CODA_OK : CODA_E_MEMORY;
    if (!status && e->kernel) status = take_plans(&cargo, c, e, err);
    else if (!status) status = gather(&cargo, c, err);
    if (!status) status = write_cargo(&cargo, e, out, err);
    cargo_free(&cargo);
    return status;
}

/* ---- Import and look ---- */

coda_status jit_import(struct coda_cache *c, const char *path, coda_bundle_report *out, char *err)
{
    struct bundle *b = bundle_open(path, CACHE_SHARED, err);
    if (!b) return status_of(errno);
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
    return jit_fail(err, CODA_E_IO, "%s: none of %lld entries could be stored%s%s", path,
                    (long long)out->entries, *why ? ": " : "", why);
}

coda_status jit_bundle_list(const char *path, int (*visit)(void *, const coda_cache_entry *), void *context,
                            char *err)
{
    struct bundle *b = bundle_open(path, CACHE_SHARED, err);
    bool more = true;
    if (!b) return status_of(errno);
    for (int i = 0; more && i < bundle_count(b); i++) {
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
        more = jit_cache_show(&item, visit, context);
    }
    bundle_close(b);
    return CODA_OK;
}

int64_t jit_bundle_print(const char *path, char *buf, size_t size, char *err)
{
    struct bundle *b = bundle_open(path, CACHE_SHARED, err);
    if (!b) return status_of(errno);
    int n = snprintf(buf, size, "%s", bundle_manifest(b));
    bundle_close(b);
    return n;
}
