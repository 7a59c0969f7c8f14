/*
 * runner.c -- the plan of chat_runner.h, its memory, and its runs.
 */
#include <stdlib.h>

#include "arguments.h"
#include "chat_captures.h"
#include "chat_graph.h"
#include "chat_runner.h"
#include "progress.h"
#include "chat_shapes.h"
#include "cut.h"
#include "device.h"
#include "random.h"
#include "tensor.h"

enum {
    STREAM_APART = 1, /* cuStreamCreate: it does not wait for the default one */
    ALIGNED = 256,    /* bytes */
};

struct runner {
    struct runner_options opt;
    struct config config; /* what is served, or a rank's part of it */
    struct device device;
    struct weights weights;
    size_t loaded; /* bytes of these */
    coda_plan *plan;
    struct runner_inputs in;
    char *ints; /* all inputs, one behind the other: one copy brings them to the GPU */
    char *gpu_ints;
    size_t int_bytes;
    float *values, *log_sums,
        *logprobs;         /* results on the host, likewise: [sequences, top], [sequences] ... */
    int32_t *ids, *chosen; /* ... [sequences, top], [sequences] */
    char *results, *gpu_results;
    size_t result_bytes;
    float *row;         /* a sequence's logits, on the host of a GPU */
    char *logits;       /* where the plan runs */
    coda_stream stream; /* of a GPU */
    struct captures captures;
    struct timer timer;
    bool replayed; /* by the step at hand */
    _Atomic int64_t replays;
    void **args, **owned; /* of the plan's arguments; those of weights and pools */
    int arg_count;
    struct random_weights random;
    void *workspace;
    struct shapes shapes;
    int64_t state_bytes; /* of one sequence */
};

/* ---- Memory ---- */

static bool fail(struct fault *f, const char *what)
{
    return fault_set(f, "%s: %s", what,
                     *coda_error() ? coda_error() : "out of memory, or the GPU's driver failed");
}

/* Where a part lies in a block; the first call of all, without memory, counts bytes. */
static void *part(char *block, size_t *at, int64_t count)
{
    void *p = block ? block + *at : NULL;
    *at += ((size_t)count * 4 + ALIGNED - 1) / ALIGNED * ALIGNED;
    return p;
}

static void place(struct runner *m)
{
    const struct runner_options *o = &m->opt;
    size_t at = 0;
    m->in.table_pages = o->context / PAGE_TOKENS;
    m->in.ids = part(m->ints, &at, o->rows);
    m->in.positions = part(m->ints, &at, o->rows);
    m->in.slots = part(m->ints, &at, o->rows);
    m->in.starts = part(m->ints, &at, o->sequences + 1);
    m->in.lengths = part(m->ints, &at, o->sequences);
    m->in.last = part(m->ints, &at, o->sequences);
    m->in.table = part(m->ints, &at, (int64_t)o->sequences * m->in.table_pages);
    m->in.seeds = part(m->ints, &at, 2 * o->sequences);
    m->in.places = part(m->ints, &at, o->sequences);
    m->in.top_k = part(m->ints, &at, o->sequences);
    m->in.temperature = part(m->ints, &at, o->sequences);
    m->in.top_p = part(m->ints, &at, o->sequences);
    m->int_bytes = at;
    at = 0;
    m->values = part(m->results, &at, (int64_t)o->sequences * o->top);
    m->ids = part(m->results, &at, (int64_t)o->sequences * o->top);
    m->log_sums = part(m->results, &at, o->sequences);
    m->chosen = part(m->results, &at, o->sequences);
    m->logprobs = part(m->results, &at, o->sequences);
    m->result_bytes = at;
}

/* For what is copied in each step. */
static void *host_new(const struct runner *m, size_t bytes)
{
    void *p = NULL;
    if (!m->opt.gpu) return host_scratch(bytes);
    return m->device.gpu.host_alloc(&p, bytes) ? NULL : p;
}

static void host_free(const struct runner *m, void *p)
{
    if (m->opt.gpu && p) m->device.gpu.host_free(p);
    else free(p);
}

static bool memory_new(struct runner *m, struct fault *f)
{
    size_t row = sizeof(float) * (size_t)m->opt.served->config.vocabulary;
    place(m);
    m->ints = host_new(m, m->int_bytes);
    m->results = host_new(m, m->result_bytes);
    m->logits = device_alloc(&m->device, row * (size_t)m->opt.sequences);
    m->in.fresh = calloc((size_t)m->opt.sequences, sizeof *m->in.fresh);
    if (!m->ints || !m->results || !m->logits || !m->in.fresh) return fail(f, "inputs and results");
    memset(m->ints, 0, m->int_bytes);
    place(m);
    if (!m->opt.gpu) return true;
    m->gpu_ints = device_alloc(&m->device, m->int_bytes);
    m->gpu_results = device_alloc(&m->device, m->result_bytes);
    m->row = host_new(m, row);
    return (m->gpu_ints && m->gpu_results && m->row) || fail(f, "inputs and results");
}

/* Of an input or a result: its place in a block of the host, and of the GPU. */
static void *placed(const struct runner *m, const char *name)
{
    const struct {
        const char *name;
        void *at;
    } all[] = {
        {"ids", m->in.ids},           {"positions", m->in.positions},    {"slots", m->in.slots},
        {"starts", m->in.starts},     {"lengths", m->in.lengths},        {"last", m->in.last},
        {"table", m->in.table},       {"top.values", m->values},         {"top.ids", m->ids},
        {"top.log_sum", m->log_sums}, {"chosen.id", m->chosen},          {"chosen.logprob", m->logprobs},
        {"seeds", m->in.seeds},       {"places", m->in.places},          {"top_k", m->in.top_k},
        {"top_p", m->in.top_p},       {"temperature", m->in.temperature}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name)) continue;
        bool result = strchr(name, '.') != NULL;
        char *host = result ? m->results : m->ints, *gpu = result ? m->gpu_results : m->gpu_ints;
        return m->opt.gpu ? gpu + ((char *)all[i].at - host) : all[i].at;
    }
    return NULL;
}

/* ---- Weights ---- */

static bool load(struct runner *m, const coda_arg_info *info, void *to, struct fault *f)
{
    const struct weight *w = weights_find(&m->weights, info->name);
    if (!w || w->bytes != info->bytes) return fault_set(f, "weight %s: it has no tensor", info->name);
    if (w->parts || w->numbers) return weight_load(w, &m->device, to, f);
    return random_weight(&m->random, w, info, &m->device, to, f);
}

static bool is_recurrent(const coda_arg_info *info)
{
    return info->kind == CODA_ARG_STATE && build_is_recurrent(info->name);
}

/* A weight with its values; a pool, whose rows are written before they are read; or states, which are cleared
 * where a text begins. */
static bool own(struct runner *m, int i, const coda_arg_info *info, struct fault *f)
{
    m->args[i] = m->owned[i] = device_alloc(&m->device, info->bytes);
    if (is_recurrent(info)) m->state_bytes += (int64_t)info->bytes / m->opt.sequences;
    if (!m->owned[i])
        return fault_set(f, "%s: there is no memory for its %zu bytes on %s", info->name, info->bytes,
                         device_name(&m->device));
    return info->kind != CODA_ARG_WEIGHT || load(m, info, m->args[i], f);
}

/* One more weight. */
static void show_loaded(struct runner *m, size_t bytes)
{
    size_t all = 0;
    for (int i = 0; i < m->weights.count; i++) all += m->weights.all[i].bytes;
    m->loaded += bytes;
    progress_count(m->opt.progress, (int64_t)m->loaded / 1000000, (int64_t)all / 1000000, "MB");
}

static bool bind(struct runner *m, struct fault *f)
{
    m->random.state = m->opt.seed;
    m->arg_count = coda_plan_args(m->plan);
    m->args = calloc((size_t)m->arg_count + 1, sizeof *m->args);
    m->owned = calloc((size_t)m->arg_count + 1, sizeof *m->owned);
    if (!m->args || !m->owned) return fail(f, "arguments");
    for (int i = 0; i < m->arg_count; i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        if (coda_plan_arg(m->plan, i, &info) != CODA_OK) return fail(f, "arguments");
        if (info.kind == CODA_ARG_GROUP) {
            m->args[i] = m->opt.group;
        } else if (info.kind == CODA_ARG_WEIGHT || info.kind == CODA_ARG_STATE) {
            if (!own(m, i, &info, f)) return false;
            if (info.kind == CODA_ARG_WEIGHT) show_loaded(m, info.bytes);
        } else if (!(m->args[i] = strcmp(info.name, "logits") ? placed(m, info.name) : m->logits)) {
            return fault_set(f, "argument %s is not known", info.name);
        }
    }
    device_unstage(&m->device);
    m->workspace = device_alloc(&m->device, coda_plan_workspace(m->plan));
    if (!m->workspace) return fail(f, "scratch");
    return !m->opt.gpu || !m->device.gpu.stream_wait(NULL) ||
           fail(f, "copies"); /* steps have a stream apart */
}

/* ---- The plan ---- */

static bool is_background(const struct runner *m)
{
    enum runner_policy p = m->opt.policy;
    return p == RUNNER_POLICY_BACKGROUND || (p == RUNNER_POLICY_USUAL && m->opt.gpu);
}

static bool plan_new(struct runner *m, struct fault *f)
{
    coda_compile_options how = device_target(&m->device);
    how.policy = is_background(m) ? CODA_POLICY_BACKGROUND : CODA_POLICY_WAIT;
    how.shapes = SHAPES_ALL;
    coda_graph *g = chat_graph(&m->opt, &m->config, &m->weights, f);
    bool good = g && (coda_compile(&m->plan, g, &how) == CODA_OK || fault_set(f, "%s", coda_error()));
    coda_graph_free(g);
    return good;
}

static coda_dtype usual_dtype(const struct runner_options *o)
{
    coda_dtype stored = o->served->random ? CODA_BF16 : checkpoint_dtype(&o->served->files);
    return !o->gpu ? CODA_F32 : stored == CODA_F32 ? CODA_F16 : stored;
}

static bool open_device(struct runner *m, int rank, struct fault *f)
{
    struct runner_options *o = &m->opt;
    bool there = device_open_at(&m->device, o->gpu ? CODA_DEVICE_GPU : CODA_DEVICE_CPU, rank);
    if (there && (!o->gpu || (!m->device.gpu.stream_new(&m->stream, STREAM_APART) &&
                              timer_open(&m->timer, &m->device.gpu))))
        return true;
    o->gpu = false;
    return rank ? fault_set(f, "there is no GPU %d", rank) : fault_set(f, "there is no GPU, or no driver");
}

static bool choose(struct runner *m, const struct runner_options *opt, struct fault *f)
{
    struct runner_options *o = &m->opt;
    const struct config *c = &opt->served->config;
    int rank = opt->group ? coda_group_rank(opt->group) : 0;
    *o = *opt;
    m->config = *c;
    if (!open_device(m, rank, f)) return false;
    if (o->ranks > 1 && !o->served->family->cuts)
        return fault_set(f, "family %s is not shared out over ranks", c->family);
    if (o->ranks > 1 && !config_cut(&m->config, rank, o->ranks, f)) return false;
    if (!o->dtype) o->dtype = usual_dtype(o);
    if (o->top > c->vocabulary) o->top = c->vocabulary;
    if (o->context > c->positions)
        return fault_set(f, "a context of %d tokens, but the model was made for %d", o->context,
                         c->positions);
    return true;
}

struct runner *runner_new(const struct runner_options *opt, struct fault *f)
{
    struct runner *m = calloc(1, sizeof *m);
    if (!m) return fault_set(f, "out of memory"), NULL;
    if (choose(m, opt, f) && plan_new(m, f) && shapes_choose(&m->shapes, m->plan, &m->opt, f) &&
        memory_new(m, f) && bind(m, f))
        return m;
    runner_free(m);
    return NULL;
}

void runner_free(struct runner *m)
{
    if (!m) return;
    if (m->opt.gpu) m->device.gpu.stream_wait(m->stream); /* after a step that failed halfway */
    captures_free(&m->captures);
    timer_close(&m->timer);
    for (int i = 0; m->owned && i < m->arg_count; i++) device_free(&m->device, m->owned[i]);
    device_free(&m->device, m->gpu_ints);
    device_free(&m->device, m->gpu_results);
    device_free(&m->device, m->logits);
    device_free(&m->device, m->workspace);
    host_free(m, m->ints);
    host_free(m, m->results);
    host_free(m, m->row);
    if (m->opt.gpu) m->device.gpu.stream_free(m->stream);
    coda_plan_free(m->plan);
    weights_free(&m->weights);
    random_free(&m->random);
    free(m->in.fresh);
    free(m->args);
    free(m->owned);
    free(m);
}

const char *runner_device(const struct runner *m) { return device_name(&m->device); }
struct runner_inputs *runner_inputs(struct runner *m) { return &m->in; }

/* ---- Shapes ---- */

static int show_shapes(void *progress, int done, int all)
{
    progress_count(progress, done, all, "shapes");
    return 0;
}

static bool plan_shapes(struct runner *m)
{
    int64_t dims[SHAPES_ALL * 2];
    coda_warm_options opt = CODA_WARM_OPTIONS_INIT;
    opt.dims = dims;
    opt.bindings = shapes_list(&m->shapes, dims);
    opt.progress = show_shapes;
    opt.context = m->opt.progress;
    return coda_warm(m->plan, &opt) == CODA_OK;
}

void runner_skip(struct runner_inputs *in, int b)
{
    in->fresh[b] = false;
    in->lengths[b] = in->last[b] = 0;
    in->seeds[2 * b] = in->seeds[2 * b + 1] = in->places[b] = in->top_k[b] = 0;
    in->temperature[b] = 0;
    in->top_p[b] = 1;
}

static void pad(struct runner *m, int rows, int sequences, const int64_t *dims)
{
    for (int i = rows; i < dims[0]; i++) {
        m->in.ids[i] = 0;
        m->in.positions[i] = 0;
        m->in.slots[i] = -1;
    }
    for (int b = sequences; b < dims[1]; b++) {
        m->in.starts[b + 1] = rows;
        runner_skip(&m->in, b);
    }
}

static bool upload(struct runner *m)
{
    return !m->device.gpu.upload_later((gpu_address)m->gpu_ints, m->ints, m->int_bytes, m->stream);
}

/* By steps of nothing but padding, the largest first: those to which up to opt.graphs sequences round up. */
static bool capture_shapes(struct runner *m)
{
    m->captures = (struct captures){.gpu = &m->device.gpu,
                                    .plan = m->plan,
                                    .args = m->args,
                                    .workspace = m->workspace,
                                    .stream = m->stream};
    const int64_t *writers = m->shapes.writers;
    for (int i = m->shapes.writer_count - 1; i >= 0; i--) {
        int64_t dims[] = {writers[i], writers[i]};
        if ((i ? writers[i - 1] : 0) >= m->opt.graphs) continue;
        pad(m, 0, 0, dims);
        if (!upload(m) || !captures_add(&m->captures, dims)) return false;
    }
    return true;
}

bool runner_warm(struct runner *m, struct fault *f)
{
    bool later = m->opt.gpu && is_background(m);
    if (!later && !plan_shapes(m)) return fail(f, "warm-up");
    return !m->opt.gpu || capture_shapes(m) || fail(f, "capture");
}

/* ---- A step ---- */

static bool run(struct runner *m, const int64_t *dims)
{
    struct capture *one = captures_find(&m->captures, dims);
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.dims = dims;
    opt.dim_count = 2;
    m->replays += m->replayed = one != NULL;
    if (one) return captures_launch(&m->captures, one);
    return coda_run_shaped(m->plan, m->args, NULL, m->workspace, m->stream, &opt) == CODA_OK;
}

/* One copy there, one back. */
static bool run_there(struct runner *m, const int64_t *dims)
{
    return upload(m) && timer_start(&m->timer, m->stream) && run(m, dims) &&
           timer_end(&m->timer, m->stream) &&
           !m->device.gpu.download_later(m->results, (gpu_address)m->gpu_results, m->result_bytes, m->stream);
}

/* The states of a sequence whose text begins. Nothing runs meanwhile. */
static bool clear(struct runner *m, int sequence)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    for (int i = 0; i < m->arg_count; i++) {
        if (coda_plan_arg(m->plan, i, &info) != CODA_OK) return false;
        size_t bytes = info.bytes / (size_t)m->opt.sequences;
        if (is_recurrent(&info) &&
            !device_clear(&m->device, (char *)m->args[i] + (size_t)sequence * bytes, bytes))
            return false;
    }
    return true;
}

static bool clear_fresh(struct runner *m, int sequences)
{
    bool any = false, good = true;
    for (int b = 0; good && m->state_bytes && b < sequences; b++)
        if (m->in.fresh[b]) any = true, good = clear(m, b);
    return good && (!any || !m->opt.gpu || !m->device.gpu.stream_wait(NULL)); /* steps have a stream apart */
}

void runner_round(struct runner *m, int rows, int sequences, int64_t dims[2])
{
    shapes_round(&m->shapes, rows, sequences, dims);
    pad(m, rows, sequences, dims);
}

bool runner_run(struct runner *m, const int64_t dims[2], struct fault *f)
{
    if (!clear_fresh(m, (int)dims[1])) return fail(f, "states");
    return (m->opt.gpu ? run_there(m, dims) : run(m, dims)) || fail(f, "step");
}

bool runner_launch(struct runner *m, int rows, int sequences, struct fault *f)
{
    int64_t dims[2];
    runner_round(m, rows, sequences, dims);
    return runner_run(m, dims, f);
}

void runner_copy_inputs(struct runner *m, const struct runner *from)
{
    memcpy(m->ints, from->ints, m->int_bytes);
    memcpy(m->in.fresh, from->in.fresh, (size_t)m->opt.sequences * sizeof *m->in.fresh);
}

bool runner_wait(struct runner *m, struct runner_step *out, struct fault *f)
{
    *out = (struct runner_step){.graph = m->replayed};
    if (!m->opt.gpu) return true;
    return (!m->device.gpu.stream_wait(m->stream) && timer_read(&m->timer, &out->times)) || fail(f, "step");
}

struct logits runner_likeliest(const struct runner *m, int sequence)
{
    size_t at = (size_t)sequence * (size_t)m->opt.top;
    return (struct logits){m->values + at, m->ids + at, m->opt.top, (double)m->log_sums[sequence]};
}

struct sampled runner_chosen(const struct runner *m, int sequence)
{
    return (struct sampled){m->chosen[sequence], (double)m->logprobs[sequence]};
}

bool runner_logits(struct runner *m, int sequence, struct logits *out, struct fault *f)
{
    size_t wide = (size_t)m->opt.served->config.vocabulary, row = wide * sizeof(float);
    char *from = m->logits + (size_t)sequence * row;
    *out = (struct logits){(float *)(void *)from, NULL, (int)wide, (double)m->log_sums[sequence]};
    if (!m->opt.gpu) return true;
    out->value = m->row;
    return (!m->device.gpu.download_later(m->row, (gpu_address)from, row, m->stream) &&
            !m->device.gpu.stream_wait(m->stream)) ||
           fail(f, "logits");
}

void runner_stats(const struct runner *m, struct runner_stats *out)
{
    coda_shape_stats s = CODA_SHAPE_STATS_INIT;
    coda_shape_stats_get(m->plan, &s);
    *out = (struct runner_stats){.planned = s.planned,
                                 .kernels = s.kernels,
                                 .pending = s.pending,
                                 .runs = s.runs,
                                 .runs_base = s.runs_base,
                                 .improved = s.improved,
                                 .failed = s.failed,
                                 .captures = m->captures.made,
                                 .replays = m->replays,
                                 .state_bytes = m->state_bytes};
}
