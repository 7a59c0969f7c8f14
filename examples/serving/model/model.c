/*
 * model.c -- from a checkpoint to a plan with its memory.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "cut.h"
#include "loading.h"
#include "model.h"
#include "tensor.h"

enum { ALIGNED = 256 };

/* ---- Options ---- */

static int positive(int given, int otherwise) { return given > 0 ? given : otherwise; }

enum { ENCODED = 8192 }; /* tokens of an encoder's run, where sentences may be long */

/* Tokens of a run: of an encoder as many as its files say that count of a sentence, else 256. Where these
 * are many, sentences are few. */
static void choose_rows(struct model_options *o, const struct config *c, int limit)
{
    int longest = limit && limit < c->positions ? limit : c->positions;
    o->rows = positive(o->rows, limit ? longest : 256);
    int most = ENCODED / o->rows;
    o->sentences = positive(o->sentences, most < 1 ? 1 : most < 16 ? most : 16);
}

/* The config becomes that of one rank. */
static bool cut(struct model *m, int rank, struct fault *f)
{
    int ranks = m->opt.ranks;
    if (ranks <= 1) return true;
    if (!m->family->cuts) return fault_set(f, "family %s is not shared out over ranks", m->config.family);
    if (m->opt.adapter) return fault_set(f, "an adapter is not shared out over ranks");
    return config_cut(&m->config, rank, ranks, f);
}

static bool choose(struct model *m, struct fault *f)
{
    struct model_options *o = &m->opt;
    const struct config *c = &m->config;
    int rank = o->group ? coda_group_rank(o->group) : 0;
    bool there =
        o->only_plan ? device_plan(&m->device, o->device) : device_open_at(&m->device, o->device, rank);
    times_end(&m->times, "device");
    if (!there && rank) return fault_set(f, "there is no GPU %d", rank);
    if (!there) return fault_set(f, "there is no GPU, or no driver");
    if (!cut(m, rank, f)) return false;
    coda_dtype stored = o->random ? CODA_BF16 : checkpoint_dtype(&m->files);
    if (!o->dtype) o->dtype = !m->device.on_gpu ? CODA_F32 : stored == CODA_F32 ? CODA_F16 : stored;
    o->context = positive(o->context, c->positions < 2048 ? c->positions : 2048);
    choose_rows(o, c, m->modules.limit);
    if (o->context > c->positions)
        return fault_set(f, "a context of %d tokens, but the model was made for %d", o->context,
                         c->positions);
    if (o->rows > o->context) o->rows = o->context;
    if (o->top < 0 || o->top > MOST_TOP || o->top > c->vocabulary)
        return fault_set(f, "the %d likeliest tokens; 1 to %d of %d are possible", o->top, MOST_TOP,
                         c->vocabulary);
    return true;
}

/* What comes behind an encoder of sentences; behind random weights, their mean. */
static bool read_modules(struct model *m, const char *path, struct fault *f)
{
    char folder[PATH_MAX];
    int width = m->config.hidden;
    m->modules.pooling = POOLING_MEAN;
    if (!m->family->encoder || m->family->images || m->opt.random) return true;
    if (checkpoint_is_gguf(path)) return modules_of_gguf(&m->modules, &m->files, width, f);
    if (!checkpoint_folder(path, folder, sizeof folder))
        return fault_set(f, "%s: the path is too long", path);
    return modules_read(&m->modules, &m->files, folder, width, f);
}

/* ---- Memory ---- */

static size_t aligned(size_t bytes) { return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED; }

static bool is_recurrent(const coda_arg_info *info)
{
    return info->kind == CODA_ARG_STATE && build_is_recurrent(info->name);
}

static bool allocate(struct model *m, struct fault *f)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    for (int i = 0; i < m->arg_count; i++) {
        if (coda_plan_arg(m->plan, i, &info) != CODA_OK) return fault_set(f, "%s", coda_error());
        if (info.kind == CODA_ARG_WEIGHT || info.kind == CODA_ARG_GROUP) continue;
        m->args[i] = (void *)(uintptr_t)m->bytes[info.kind]; /* an offset until there is memory */
        m->bytes[info.kind] += aligned(info.bytes);
        if (is_recurrent(&info)) m->recurrent += info.bytes;
    }
    for (int k = 0; k < MODEL_KINDS; k++)
        if (m->bytes[k] && !m->memory[k] && !(m->memory[k] = device_alloc(&m->device, m->bytes[k])))
            return fault_set(f, "there is no memory for %zu bytes on %s", m->bytes[k],
                             device_name(&m->device));
    for (int i = 0; i < m->arg_count; i++) {
        coda_plan_arg(m->plan, i, &info);
        if (info.kind == CODA_ARG_GROUP) {
            m->args[i] = m->opt.group;
            continue;
        }
        size_t offset = (uintptr_t)m->args[i];
        if (info.kind == CODA_ARG_WEIGHT) offset = weights_find(&m->weights, info.name)->offset;
        m->args[i] = (char *)m->memory[info.kind] + offset;
    }
    size_t scratch = coda_plan_workspace(m->plan);
    m->workspace = device_alloc(&m->device, scratch);
    m->inputs = m->device.on_gpu ? host_scratch(m->bytes[CODA_ARG_INPUT]) : m->memory[CODA_ARG_INPUT];
    if (!m->workspace || !m->inputs)
        return fault_set(f, "there is no memory for %zu bytes of scratch", scratch);
    memset(m->inputs, 0, m->bytes[CODA_ARG_INPUT]);
    return true;
}

/* Makes the copies of weights that have constants in them. */
static bool prepare(struct model *m, struct fault *f)
{
    size_t bytes = coda_plan_prepared(m->plan);
    if (!coda_plan_prepared_id(m->plan)) return true;
    if (bytes && !(m->prepared = device_alloc(&m->device, bytes)))
        return fault_set(f, "there is no memory for %zu bytes of folded constants", bytes);
    return coda_prepare(m->plan, m->args, m->prepared, m->workspace, NULL) == CODA_OK ||
           fault_set(f, "%s", coda_error());
}

/* What the library remembers of memory that is freed. */
static void forget(struct model *m)
{
    if (m->memory[CODA_ARG_WEIGHT])
        coda_prepare_forget(m->memory[CODA_ARG_WEIGHT], m->bytes[CODA_ARG_WEIGHT]);
    if (m->prepared) coda_prepare_forget(m->prepared, coda_plan_prepared(m->plan));
}

/* ---- The plan ---- */

/* Gains and biases of an encoder's norms go into copies of its weights, so that products read what is not
 * normalised yet, and a layer has two launches less. In fp32 products have no epilogues that could take the
 * rest of a norm. A decoder's norms have no bias, and cost no launch of their own. */
coda_fold model_fold(const struct model *m)
{
    return m->family->encoder && m->opt.dtype != CODA_F32 ? CODA_FOLD_COPY : CODA_FOLD_NONE;
}

static bool compile(struct model *m, coda_graph *g, struct fault *f)
{
    coda_compile_options o = device_target(&m->device);
    o.fold = model_fold(m);
    bool good = coda_compile(&m->plan, g, &o) == CODA_OK || fault_set(f, "%s", coda_error());
    times_end(&m->times, "plan");
    if (!good || (!m->family->encoder && !decoder_lengths(m, f))) return false;
    times_end(&m->times, "lengths");
    m->arg_count = coda_plan_args(m->plan);
    m->args = calloc((size_t)m->arg_count + 1, sizeof *m->args);
    return m->args || fault_set(f, "out of memory");
}

static bool draw_in(struct model *m, struct fault *f)
{
    const char *word = m->opt.drawn;
    if (!word) return true;
    if (!m->opt.random || !stored_draws(word))
        return fault_set(f, "no random weights can be had in %.40s", word);
    snprintf(m->config.quant.drawn, sizeof m->config.quant.drawn, "%s", word);
    return true;
}

/* GGUF has rows of queries and keys in another order than an adapter knows. */
static bool read_adapter(struct model *m, const char *path, struct fault *f)
{
    if (!m->opt.adapter) return true;
    if (m->opt.random) return fault_set(f, "random weights have no adapter");
    if (checkpoint_is_gguf(path))
        return fault_set(f, "an adapter stands beside safetensors, not beside GGUF");
    return adapter_read(&m->files, m->opt.adapter, f);
}

static bool read_files(struct model *m, const char *path, struct fault *f)
{
    if (!(m->opt.random ? checkpoint_open_config : checkpoint_open)(&m->files, path, f)) return false;
    bool good = read_adapter(m, path, f) && config_read(&m->config, m->files.config, f) &&
                config_ends(&m->config, m->files.generation, f) && draw_in(m, f) &&
                (m->family = family_find(&m->config, f)) != NULL && read_modules(m, path, f);
    times_end(&m->times, "files");
    return good;
}

/* The plan is made while the weights come. */
static bool fill(struct model *m, coda_graph *g, struct fault *f)
{
    struct loading *l = loading_begin(m, &g, 1, f);
    times_end(&m->times, "memory");
    if (!l) return false;
    bool good = compile(m, g, f) && allocate(m, f);
    times_end(&m->times, "memory");
    good = loading_end(l, f) && good;
    times_end(&m->times, "weights");
    good = good && prepare(m, f);
    times_end(&m->times, "folding");
    return good;
}

static coda_graph *graph_of(struct model *m, struct fault *f)
{
    if (m->family->images) return images_graph(m, f);
    if (m->family->encoder) return encoder_graph(m, &m->weights, m->opt.sentences, m->opt.rows, f);
    return decoder_graph(m, &m->weights, f);
}

static bool build(struct model *m, struct fault *f)
{
    coda_graph *g = graph_of(m, f);
    times_end(&m->times, "graph");
    bool good = g && (m->opt.only_plan ? compile : fill)(m, g, f);
    coda_graph_free(g);
    return good;
}

struct model *model_open(const char *path, const struct model_options *opt, struct fault *f)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m) return fault_set(f, "out of memory"), NULL;
    times_begin(&m->times);
    m->opt = *opt;
    bool good = read_files(m, path, f) && choose(m, f) && build(m, f);
    if (good) return m;
    model_close(m);
    return NULL;
}

void model_close(struct model *m)
{
    if (!m) return;
    forget(m);
    for (int k = 0; k < MODEL_KINDS; k++) device_free(&m->device, m->memory[k]);
    device_free(&m->device, m->workspace);
    device_free(&m->device, m->prepared);
    if (m->device.on_gpu) free(m->inputs);
    coda_plan_free(m->plan);
    coda_plan_free(m->short_plan);
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

bool model_run_by(struct model *m, const coda_plan *p, const int64_t *dims, int count, struct fault *f)
{
    coda_run_options o = CODA_RUN_OPTIONS_INIT;
    o.dims = dims;
    o.dim_count = count;
    if (m->device.on_gpu &&
        !device_write(&m->device, m->memory[CODA_ARG_INPUT], m->inputs, m->bytes[CODA_ARG_INPUT]))
        return fault_set(f, "the inputs cannot be copied to the GPU");
    return coda_run_shaped(p, m->args, p == m->plan ? m->prepared : NULL, m->workspace, NULL, &o) ==
               CODA_OK ||
           fault_set(f, "%s", coda_error());
}

bool model_run(struct model *m, const int64_t *dims, int count, struct fault *f)
{
    return model_run_by(m, m->plan, dims, count, f);
}

bool model_output(struct model *m, const char *name, void *to, size_t offset, size_t bytes, struct fault *f)
{
    int i = coda_plan_find(m->plan, name);
    return (i >= 0 && device_read(&m->device, to, (char *)m->args[i] + offset, bytes)) ||
           fault_set(f, "output %s cannot be copied from %s", name, device_name(&m->device));
}
