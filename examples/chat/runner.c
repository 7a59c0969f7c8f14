/*
 * model.c -- the plan of chat_runner.h, its memory, and its runs.
 */
#include <stdlib.h>

#include "chat_captures.h"
#include "chat_graph.h"
#include "chat_runner.h"
#include "gpu.h"
#include "tensor.h"

enum {
    MOST_ARGS = 64,
    MOST_SHAPES = 16,  /* of rows, and of sequences */
    MOST_WRITERS = 64, /* sequences of a step for which all that write have a shape */
    STREAM_APART = 1,  /* cuStreamCreate: it does not wait for the default one */
    ALIGNED = 256      /* bytes */
};

struct runner {
    struct runner_options opt;
    struct gpu gpu;
    coda_dtype dtype;
    coda_plan *plan;
    struct runner_inputs in;
    char *ints; /* all inputs, one behind the other: one copy brings them to the GPU */
    gpu_address gpu_ints;
    size_t int_bytes;
    float *logits; /* host */
    coda_stream stream;
    struct captures captures;
    _Atomic int64_t replays;
    void *args[MOST_ARGS];
    void *owned[MOST_ARGS]; /* host memory of weights and pools, on the CPU device; else of the GPU */
    void *workspace;
    int row_shapes[MOST_SHAPES], sequence_shapes[MOST_SHAPES], row_count, sequence_count;
    int writer_shapes[CAPTURES_MOST], writer_count; /* of steps with one row of each sequence */
};

/* ---- Memory ---- */

static bool fail(char *why, int size, const char *what)
{
    snprintf(why, (size_t)size, "%s: %s", what,
             *coda_error() ? coda_error() : "out of memory, or the GPU's driver failed");
    return false;
}

/* Where an input lies in `ints`; the first call of all, without memory, counts bytes. */
static int32_t *ints_take(struct runner *m, size_t *at, int64_t count)
{
    int32_t *p = m->ints ? (int32_t *)(void *)(m->ints + *at) : NULL;
    *at += ((size_t)count * sizeof *p + ALIGNED - 1) / ALIGNED * ALIGNED;
    return p;
}

static void inputs_place(struct runner *m)
{
    const struct runner_options *o = &m->opt;
    size_t at = 0;
    m->in.table_pages = o->context / PAGE_TOKENS;
    m->in.ids = ints_take(m, &at, o->rows);
    m->in.positions = ints_take(m, &at, o->rows);
    m->in.slots = ints_take(m, &at, o->rows);
    m->in.starts = ints_take(m, &at, o->sequences + 1);
    m->in.lengths = ints_take(m, &at, o->sequences);
    m->in.last = ints_take(m, &at, o->sequences);
    m->in.table = ints_take(m, &at, (int64_t)o->sequences * m->in.table_pages);
    m->int_bytes = at;
}

/* For what is copied in each step. */
static void *host_new(const struct runner *m, size_t bytes)
{
    void *p = NULL;
    if (!m->opt.gpu) return host_scratch(bytes);
    return m->gpu.host_alloc(&p, bytes) ? NULL : p;
}

static void host_free(const struct runner *m, void *p)
{
    if (m->opt.gpu && p) m->gpu.host_free(p);
    else free(p);
}

static bool memory_new(struct runner *m)
{
    inputs_place(m);
    m->ints = host_new(m, m->int_bytes);
    m->logits = host_new(m, sizeof *m->logits * MODEL_LOGITS * (size_t)m->opt.sequences);
    if (!m->ints || !m->logits) return false;
    memset(m->ints, 0, m->int_bytes);
    inputs_place(m);
    if (m->opt.gpu && !(m->gpu_ints = gpu_alloc(&m->gpu, m->int_bytes))) return false;
    return true;
}

static int32_t *input_named(const struct runner *m, const char *name)
{
    const struct {
        const char *name;
        int32_t *at;
    } all[] = {{"ids", m->in.ids},       {"positions", m->in.positions}, {"slots", m->in.slots},
               {"starts", m->in.starts}, {"lengths", m->in.lengths},     {"last", m->in.last},
               {"table", m->in.table}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) return all[i].at;
    return NULL;
}

/* A weight with its values, or a pool of zeros. */
static bool own(struct runner *m, int i, const coda_arg_info *info, uint64_t *seed)
{
    void *host = host_scratch(info->bytes);
    if (!host) return false;
    memset(host, 0, info->bytes);
    if (info->kind == CODA_ARG_WEIGHT) tensor_random(info, host, seed, 0);
    m->args[i] = m->owned[i] = host;
    if (!m->opt.gpu) return true;
    gpu_address there = gpu_alloc(&m->gpu, info->bytes);
    bool good = there && !m->gpu.upload(there, host, info->bytes);
    m->args[i] = m->owned[i] = (void *)there;
    free(host);
    return good;
}

static bool bind(struct runner *m)
{
    uint64_t seed = m->opt.seed;
    if (coda_plan_args(m->plan) > MOST_ARGS) return false;
    for (int i = 0; i < coda_plan_args(m->plan); i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        if (coda_plan_arg(m->plan, i, &info) != CODA_OK) return false;
        if (info.kind == CODA_ARG_INPUT) {
            int32_t *at = input_named(m, info.name);
            if (!at) return false;
            m->args[i] = m->opt.gpu ? (void *)(m->gpu_ints + (gpu_address)((char *)at - m->ints)) : at;
        } else if (info.kind == CODA_ARG_OUTPUT && !m->opt.gpu) m->args[i] = m->logits;
        else if (!own(m, i, &info, &seed)) return false;
    }
    size_t bytes = coda_plan_workspace(m->plan);
    m->workspace = m->opt.gpu ? (void *)gpu_alloc(&m->gpu, bytes) : host_scratch(bytes);
    if (!m->workspace) return false;
    return !m->opt.gpu || !m->gpu.stream_wait(NULL); /* for the copies: steps have a stream apart */
}

/* 1, 4, 16, ... and `most` */
static int shapes_by(int factor, int most, int *shapes, int room)
{
    int n = 0;
    for (int s = 1; s < most && n < room - 1; s *= factor) shapes[n++] = s;
    shapes[n++] = most;
    return n;
}

static void choose_shapes(struct runner *m)
{
    const struct runner_options *o = &m->opt;
    int writers = o->sequences < MOST_WRITERS ? o->sequences : MOST_WRITERS;
    m->row_count = shapes_by(2, o->rows, m->row_shapes, MOST_SHAPES);
    m->sequence_count = shapes_by(4, o->sequences, m->sequence_shapes, MOST_SHAPES);
    m->writer_count = shapes_by(2, writers, m->writer_shapes, CAPTURES_MOST);
}

static bool is_background(const struct runner *m)
{
    enum runner_policy p = m->opt.policy;
    return p == RUNNER_POLICY_BACKGROUND || (p == RUNNER_POLICY_USUAL && m->opt.gpu);
}

static bool plan_new(struct runner *m)
{
    coda_compile_options how = CODA_COMPILE_OPTIONS_INIT;
    how.device = m->opt.gpu ? CODA_DEVICE_GPU : CODA_DEVICE_CPU;
    how.policy = is_background(m) ? CODA_POLICY_BACKGROUND : CODA_POLICY_WAIT;
    how.shapes = m->row_count * m->sequence_count + m->writer_count;
    coda_graph *g = chat_graph(&m->opt, m->dtype);
    bool good = g && coda_compile(&m->plan, g, &how) == CODA_OK;
    coda_graph_free(g);
    return good;
}

struct runner *runner_new(const struct runner_options *opt, char *why, int size)
{
    struct runner *m = calloc(1, sizeof *m);
    if (!m) return fail(why, size, "model"), NULL;
    m->opt = *opt;
    m->dtype = opt->gpu ? CODA_BF16 : CODA_F32;
    choose_shapes(m);
    if (opt->gpu && (gpu_open(&m->gpu) || m->gpu.stream_new(&m->stream, STREAM_APART))) {
        snprintf(why, (size_t)size, "there is no GPU, or no driver");
        free(m);
        return NULL;
    }
    if (plan_new(m) && memory_new(m) && bind(m)) return m;
    fail(why, size, "model");
    runner_free(m);
    return NULL;
}

void runner_free(struct runner *m)
{
    if (!m) return;
    if (m->opt.gpu) m->gpu.stream_wait(m->stream); /* after a step that failed halfway */
    captures_free(&m->captures);
    for (int i = 0; i < MOST_ARGS; i++)
        if (m->opt.gpu && m->owned[i]) m->gpu.free((gpu_address)m->owned[i]);
        else free(m->owned[i]);
    if (m->opt.gpu && m->gpu_ints) m->gpu.free(m->gpu_ints);
    if (m->opt.gpu && m->workspace) m->gpu.free((gpu_address)m->workspace);
    else free(m->workspace);
    host_free(m, m->ints);
    host_free(m, m->logits);
    if (m->opt.gpu) m->gpu.stream_free(m->stream);
    coda_plan_free(m->plan);
    free(m);
}

const char *runner_device(const struct runner *m) { return m->opt.gpu ? m->gpu.name : "the CPU device"; }
struct runner_inputs *runner_inputs(struct runner *m) { return &m->in; }

/* ---- Shapes ---- */

static bool plan_shapes(struct runner *m)
{
    int64_t dims[(MOST_SHAPES * MOST_SHAPES + CAPTURES_MOST) * 2];
    int n = 0;
    coda_warm_options opt = CODA_WARM_OPTIONS_INIT;
    for (int i = 0; i < m->writer_count; i++)
        dims[n++] = m->writer_shapes[i], dims[n++] = m->writer_shapes[i];
    for (int r = 0; r < m->row_count; r++)
        for (int s = 0; s < m->sequence_count; s++)
            dims[n++] = m->row_shapes[r], dims[n++] = m->sequence_shapes[s];
    opt.dims = dims;
    opt.bindings = n / 2;
    return coda_warm(m->plan, &opt) == CODA_OK;
}

static int round_up(const int *shapes, int count, int n)
{
    int i = 0;
    while (i < count - 1 && shapes[i] < n) i++;
    return shapes[i];
}

static void choose_dims(const struct runner *m, int rows, int sequences, int64_t *dims)
{
    bool write = rows == sequences && rows <= m->writer_shapes[m->writer_count - 1];
    dims[0] = round_up(m->row_shapes, m->row_count, rows);
    dims[1] = round_up(m->sequence_shapes, m->sequence_count, sequences);
    if (write) dims[0] = dims[1] = round_up(m->writer_shapes, m->writer_count, rows);
}

static void pad(struct runner *m, int rows, int sequences, const int64_t *dims)
{
    for (int i = rows; i < dims[0]; i++) {
        m->in.ids[i] = MODEL_PAD;
        m->in.positions[i] = 0;
        m->in.slots[i] = -1;
    }
    for (int b = sequences; b < dims[1]; b++) {
        m->in.starts[b + 1] = rows;
        m->in.lengths[b] = m->in.last[b] = 0;
    }
}

static bool upload(struct runner *m)
{
    return !m->gpu.upload_later(m->gpu_ints, m->ints, m->int_bytes, m->stream);
}

/* By steps of nothing but padding. */
static bool capture_shapes(struct runner *m)
{
    m->captures = (struct captures){
        .gpu = &m->gpu, .plan = m->plan, .args = m->args, .workspace = m->workspace, .stream = m->stream};
    for (int i = m->writer_count - 1; i >= 0; i--) {
        int64_t dims[] = {m->writer_shapes[i], m->writer_shapes[i]};
        if (dims[0] > m->opt.graphs) continue;
        pad(m, 0, 0, dims);
        if (!upload(m) || !captures_add(&m->captures, dims)) return false;
    }
    return true;
}

bool runner_warm(struct runner *m, char *why, int size)
{
    bool later = m->opt.gpu && is_background(m);
    if (!later && !plan_shapes(m)) return fail(why, size, "warm-up");
    return !m->opt.gpu || capture_shapes(m) || fail(why, size, "capture");
}

/* ---- A step ---- */

static bool launch(struct runner *m, const int64_t *dims)
{
    struct capture *one = captures_find(&m->captures, dims);
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.dims = dims;
    opt.dim_count = 2;
    m->replays += one != NULL;
    if (one) return captures_launch(&m->captures, one);
    return coda_run_shaped(m->plan, m->args, NULL, m->workspace, m->stream, &opt) == CODA_OK;
}

/* One copy there, one back, and a wait for both. */
static bool launch_there(struct runner *m, const int64_t *dims, int sequences)
{
    gpu_address logits = (gpu_address)m->args[coda_plan_args(m->plan) - 1];
    size_t bytes = sizeof *m->logits * MODEL_LOGITS * (size_t)sequences;
    return upload(m) && launch(m, dims) && !m->gpu.download_later(m->logits, logits, bytes, m->stream) &&
           !m->gpu.stream_wait(m->stream);
}

const float *runner_run(struct runner *m, int rows, int sequences, char *why, int size)
{
    int64_t dims[2];
    choose_dims(m, rows, sequences, dims);
    pad(m, rows, sequences, dims);
    bool good = m->opt.gpu ? launch_there(m, dims, sequences) : launch(m, dims);
    return good ? m->logits : (fail(why, size, "step"), NULL);
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
                                .replays = m->replays};
}
