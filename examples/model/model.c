/*
 * model.c -- from a checkpoint to a plan with its memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "tensor.h"

enum { ALIGNED = 256 };

/* ---- Options ---- */

static int positive(int given, int otherwise) { return given > 0 ? given : otherwise; }

static bool choose(struct model *m, const struct model_options *opt, struct fault *f)
{
    struct model_options *o = &m->opt;
    const struct config *c = &m->config;
    *o = *opt;
    if (!(opt->only_plan ? device_plan : device_open)(&m->device, opt->device))
        return fault_set(f, "there is no GPU, or no driver");
    coda_dtype stored = checkpoint_dtype(&m->files);
    if (!o->dtype) o->dtype = !m->device.on_gpu ? CODA_F32 : stored == CODA_F32 ? CODA_F16 : stored;
    o->context = positive(o->context, c->positions < 2048 ? c->positions : 2048);
    o->rows = positive(o->rows, 256);
    o->sentences = positive(o->sentences, 16);
    if (o->context > c->positions)
        return fault_set(f, "a context of %d tokens, but the model was made for %d", o->context,
                         c->positions);
    if (o->rows > o->context) o->rows = o->context;
    if (o->top < 0 || o->top > MOST_TOP || o->top > c->vocabulary)
        return fault_set(f, "the %d likeliest tokens; 1 to %d of %d are possible", o->top, MOST_TOP,
                         c->vocabulary);
    return true;
}

/* ---- Memory ---- */

static size_t aligned(size_t bytes) { return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED; }

static bool allocate(struct model *m, struct fault *f)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    for (int i = 0; i < m->arg_count; i++) {
        if (coda_plan_arg(m->plan, i, &info) != CODA_OK) return fault_set(f, "%s", coda_error());
        m->args[i] = (void *)(uintptr_t)m->bytes[info.kind]; /* an offset until there is memory */
        m->bytes[info.kind] += aligned(info.bytes);
    }
    for (int k = 0; k < MODEL_KINDS; k++)
        if (m->bytes[k] && !(m->memory[k] = device_alloc(&m->device, m->bytes[k])))
            return fault_set(f, "there is no memory for %zu bytes on %s", m->bytes[k],
                             device_name(&m->device));
    for (int i = 0; i < m->arg_count; i++) {
        coda_plan_arg(m->plan, i, &info);
        m->args[i] = (char *)m->memory[info.kind] + (uintptr_t)m->args[i];
    }
    size_t scratch = coda_plan_workspace(m->plan);
    m->workspace = device_alloc(&m->device, scratch);
    m->inputs = m->device.on_gpu ? host_scratch(m->bytes[CODA_ARG_INPUT]) : m->memory[CODA_ARG_INPUT];
    if (!m->workspace || !m->inputs)
        return fault_set(f, "there is no memory for %zu bytes of scratch", scratch);
    memset(m->inputs, 0, m->bytes[CODA_ARG_INPUT]);
    return true;
}

static bool load(struct model *m, struct fault *f)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    for (int i = 0; i < m->arg_count; i++) {
        coda_plan_arg(m->plan, i, &info);
        if (info.kind != CODA_ARG_WEIGHT) continue;
        const struct weight *w = weights_find(&m->weights, info.name);
        if (!w || w->bytes != info.bytes) return fault_set(f, "weight %s: it has no tensor", info.name);
        if (!weight_load(w, &m->device, m->args[i], f)) return false;
    }
    return true;
}

/* ---- The plan ---- */

static bool compile(struct model *m, struct fault *f)
{
    coda_compile_options o = device_target(&m->device);
    coda_graph *g = m->family->encoder ? encoder_graph(m, f) : decoder_graph(m, f);
    bool good = g && (coda_compile(&m->plan, g, &o) == CODA_OK || fault_set(f, "%s", coda_error()));
    coda_graph_free(g);
    if (!good || (!m->family->encoder && !decoder_lengths(m, f))) return false;
    m->arg_count = coda_plan_args(m->plan);
    m->args = calloc((size_t)m->arg_count + 1, sizeof *m->args);
    return m->args || fault_set(f, "out of memory");
}

struct model *model_open(const char *path, const struct model_options *opt, struct fault *f)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m) return fault_set(f, "out of memory"), NULL;
    bool good = checkpoint_open(&m->files, path, f) && config_read(&m->config, m->files.config, f) &&
                config_ends(&m->config, m->files.generation, f) &&
                (m->family = family_find(m->config.family, f)) != NULL && choose(m, opt, f) &&
                compile(m, f) && (opt->only_plan || (allocate(m, f) && load(m, f)));
    if (good) return m;
    model_close(m);
    return NULL;
}

void model_close(struct model *m)
{
    if (!m) return;
    for (int k = 0; k < MODEL_KINDS; k++) device_free(&m->device, m->memory[k]);
    device_free(&m->device, m->workspace);
    if (m->device.on_gpu) free(m->inputs);
    coda_plan_free(m->plan);
    weights_free(&m->weights);
    checkpoint_close(&m->files);
    free(m->args);
    free(m);
}

/* ---- Runs ---- */

void *model_input(struct model *m, const char *name)
{
    int i = coda_plan_find(m->plan, name);
    return i < 0 ? NULL : m->inputs + ((char *)m->args[i] - (char *)m->memory[CODA_ARG_INPUT]);
}

bool model_run(struct model *m, const int64_t *dims, int count, struct fault *f)
{
    coda_run_options o = CODA_RUN_OPTIONS_INIT;
    o.dims = dims;
    o.dim_count = count;
    if (m->device.on_gpu &&
        !device_write(&m->device, m->memory[CODA_ARG_INPUT], m->inputs, m->bytes[CODA_ARG_INPUT]))
        return fault_set(f, "the inputs cannot be copied to the GPU");
    return coda_run_shaped(m->plan, m->args, NULL, m->workspace, NULL, &o) == CODA_OK ||
           fault_set(f, "%s", coda_error());
}

bool model_output(struct model *m, const char *name, void *to, size_t offset, size_t bytes, struct fault *f)
{
    int i = coda_plan_find(m->plan, name);
    return (i >= 0 && device_read(&m->device, to, (char *)m->args[i] + offset, bytes)) ||
           fault_set(f, "output %s cannot be copied from %s", name, device_name(&m->device));
}
