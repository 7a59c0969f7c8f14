/* bundles.c -- kernels and figures on their way into a bundle: coda_cache_export. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile.h"
#include "ship.h"

_Static_assert((int)CACHE_ERROR <= JIT_ERROR_SIZE, "the cache's reasons fit into ours");

/* The status of what the cache could not do: its errno. */
static coda_status status_of(int error) { return error == ENOMEM ? CODA_E_MEMORY : CODA_E_IO; }

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
