/*
 * cubin.c -- the cubin of a text: from memory or a bundle, else from the directory, else from NVRTC.
 *
 * Memory and bundles are asked before NVRTC is opened, so that a program with a bundle needs none.
 */
#include "compile.h"

#include <stdlib.h>

struct build {
    struct compile_job job;
    struct closure primitives;
    const struct jit_options *opt;
    struct coda_cache *cache; /* or NULL */
    bool unkeyed;             /* may be made of more than its key says: the cache is passed by */
    char *what, *by;
    struct cache_key key;
    bool made; /* by this call */
};

void jit_cubin_free(struct jit_cubin *c)
{
    if (!c) return;
    cache_value_free(c->value);
    free(c->what);
    free(c->by);
    *c = (struct jit_cubin){0};
}

/* ---- What is asked for, and who makes it ---- */

static coda_status open_sources(struct build *b, char *err)
{
    const struct sources *all = sources_open(err);
    if (!all) return CODA_E_MEMORY;
    if (!closure_of(&b->primitives, all, b->job.text))
        return jit_fail(err, CODA_E_MEMORY, "out of memory for the sources of %s", b->job.symbol);
    b->job.count = b->primitives.count;
    b->job.names = b->primitives.names;
    b->job.texts = b->primitives.texts;
    b->what = key_print_what(&(struct key_parts){.arch = b->job.arch,
                                                 .options = compile_options,
                                                 .primitives = b->primitives.digest,
                                                 .symbol = b->job.symbol,
                                                 .text = b->job.text});
    if (!b->what) return jit_fail(err, CODA_E_MEMORY, "out of memory for the key of %s", b->job.symbol);
    b->key = cache_key(CACHE_KERNEL, b->what, NULL);
    b->key.text = b->job.text;
    return CODA_OK;
}

static coda_status open_nvrtc(struct build *b, char *err)
{
    if (!(b->job.nvrtc = nvrtc_open(err))) return CODA_E_DEVICE;
    b->job.nvrtc->nvrtcVersion(&b->job.major, &b->job.minor);
    b->by = key_print_by(b->job.major, b->job.minor, nvrtc_build_id());
    if (!b->by) return jit_fail(err, CODA_E_MEMORY, "out of memory for the key of %s", b->job.symbol);
    b->key = cache_key(CACHE_KERNEL, b->what, b->by);
    b->key.text = b->job.text;
    return CODA_OK;
}

/* ---- Making ---- */

_Static_assert(sizeof((struct jit_cubin){0}.name) == DIGEST_HEX, "a cubin's name is a digest");
_Static_assert((int)CACHE_ERROR >= JIT_ERROR_SIZE, "a maker's error is one of ours");

/* cache_maker's: a coda_status. */
static int make(void *ctx, void **data, size_t *size, char *err, bool *passing)
{
    struct build *b = ctx;
    coda_status status;
    *passing = true;
    if (b->cache && cache_is_sealed(b->cache))
        return jit_fail(err, CODA_E_UNSUPPORTED, "%s: is not in the cache, which is sealed", b->job.symbol);
    b->made = true;
    bool apart = b->cache && cache_flags(b->cache) & CACHE_ISOLATE;
    double began = jit_milliseconds();
    jit_tell(CODA_EVENT_CACHE_MISS, b->job.symbol, "", 0);
    jit_tell(CODA_EVENT_COMPILE_BEGIN, b->job.symbol, "", 0);
    if (!apart || !isolate_payload(data, size, &b->job, b->cache, &status, err, passing))
        status = compile_payload(data, size, &b->job, err, passing);
    jit_tell(CODA_EVENT_COMPILE_END, b->job.symbol, status ? err : "", jit_milliseconds() - began);
    return status;
}

static const struct cache_value *make_uncached(struct build *b)
{
    char err[CACHE_ERROR] = "";
    void *data = NULL;
    size_t size = 0;
    bool passing;
    double start = jit_milliseconds();
    if (b->cache) stats_add(cache_stats(b->cache), COUNT_unkeyed, 1);
    int status = make(b, &data, &size, err, &passing);
    struct cache_value *v =
        status ? cache_value_failed(status, err) : cache_value_new(data, size, FROM_MAKER);
    if (v) v->ms = jit_milliseconds() - start;
    return v;
}

static const struct cache_value *obtain(struct build *b, const struct cache_value *refused)
{
    struct cache_maker m = {.make = make, .ctx = b};
    if (!b->cache || b->unkeyed) return make_uncached(b);
    return refused ? cache_renew(b->cache, &b->key, &m, refused) : cache_obtain(b->cache, &b->key, &m);
}

/* ---- The way ---- */

static coda_status take(struct jit_cubin *out, struct build *b, const struct cache_value *v, char *err)
{
    if (!v) return jit_fail(err, CODA_E_MEMORY, "out of memory for the cubin of %s", b->job.symbol);
    *out = (struct jit_cubin){.value = v, .cache = b->cache, .cached = !b->made, .missed = v->missed};
    out->unkeyed = b->unkeyed;
    out->fresh = v->source == FROM_MAKER;
    if (v->status) return jit_fail(err, (coda_status)v->status, "%s", v->error);
    if (!payload_read(out, v->data, v->size))
        return jit_fail(err, CODA_E_COMPILE, "%s: %zu bytes are no cubin", b->job.symbol, v->size);
    if (b->made) out->compile_ms = v->ms;
    if (b->unkeyed) out->missed = "unkeyed";
    else if (b->cache) digest_hex(out->name, &b->key.digest);
    return CODA_OK;
}

static coda_status build(struct jit_cubin *out, struct build *b, const struct cache_value *refused, char *err)
{
    coda_status status = open_sources(b, err);
    const struct cache_value *v = NULL;
    if (!status && b->cache && !b->unkeyed && !refused) v = cache_find(b->cache, &b->key);
    if (!status && !v && !(status = open_nvrtc(b, err))) v = obtain(b, refused);
    if (!status) status = take(out, b, v, err);
    closure_free(&b->primitives);
    out->what = b->what;
    out->by = b->by;
    return status;
}

static struct build begin(const char *symbol, const char *text, const struct jit_options *opt)
{
    char why[JIT_ERROR_SIZE];
    return (struct build){.job = {.symbol = symbol, .text = text, .arch = opt->arch},
                          .opt = opt,
                          .unkeyed = !jit_inputs_are_known(why, sizeof why),
                          .cache = opt->no_cache ? NULL : jit_cache(opt->cache)};
}

coda_status jit_compile(struct jit_cubin *out, const char *symbol, const char *text,
                        const struct jit_options *opt, char *err)
{
    struct build b = begin(symbol, text, opt);
    *out = (struct jit_cubin){.registers = -1, .spill_bytes = -1};
    coda_status status = build(out, &b, NULL, err);
    if (!status && out->cached) jit_tell(CODA_EVENT_CACHE_HIT, symbol, "", 0);
    if (status) jit_cubin_free(out);
    return status;
}

coda_status jit_recompile(struct jit_cubin *c, const char *symbol, const char *text,
                          const struct jit_options *opt, char *err)
{
    struct build b = begin(symbol, text, opt);
    struct jit_cubin old = *c;
    *c = (struct jit_cubin){.registers = -1, .spill_bytes = -1};
    coda_status status = build(c, &b, old.value, err);
    jit_cubin_free(&old);
    if (status) jit_cubin_free(c);
    return status;
}
