/*
 * model.c -- the graph of chat_model.h, its memory, and its runs.
 */
#include <stdlib.h>

#include "chat_model.h"
#include "gpu.h"
#include "tensor.h"

enum {
    LAYERS = 2,
    HIDDEN = 64,
    HEADS = 4,
    KEY_HEADS = 2,
    HEAD = HIDDEN / HEADS,
    KEYS = KEY_HEADS * HEAD,
    INNER = 128,
    MOST_ARGS = 64,
    MOST_SHAPES = 16, /* of rows, and of sequences */
    ALIGNED = 256     /* bytes */
};

#define DIMS(...)                                                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

struct model {
    struct model_options opt;
    struct gpu gpu;
    coda_dtype dtype;
    coda_plan *plan;
    struct model_inputs in;
    char *ints; /* all inputs, one behind the other: one copy brings them to the GPU */
    gpu_address gpu_ints;
    size_t int_bytes;
    float *logits; /* host */
    void *args[MOST_ARGS];
    void *owned[MOST_ARGS]; /* host memory of weights and pools, on the CPU device; else of the GPU */
    void *workspace;
    int row_shapes[MOST_SHAPES], sequence_shapes[MOST_SHAPES], row_count, sequence_count;
};

/* ---- The graph ---- */

struct build {
    coda_graph *g;
    const struct model *m;
    coda_value positions, slots, lengths, table, starts;
};

static coda_value weight(const struct build *b, const char *name, int layer, int64_t n, int64_t k)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%.20s.%d", name, layer);
    return k ? coda_weight(b->g, numbered, b->m->dtype, DIMS(n, k))
             : coda_weight(b->g, numbered, b->m->dtype, DIMS(n));
}

/* A layer's keys or values in their pages, with those of this step. */
static coda_value pool(const struct build *b, const char *name, int layer, coda_value rows)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%.20s.%d", name, layer);
    int64_t slots = (int64_t)b->m->opt.pages * MODEL_PAGE;
    return coda_append(b->g, coda_state(b->g, numbered, b->m->dtype, DIMS(slots, KEYS)), rows, b->slots,
                       NULL);
}

static coda_value attention(const struct build *b, coda_value x, int layer)
{
    coda_graph *g = b->g;
    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    rope.head_dim = HEAD;
    rope.heads = HEADS + KEY_HEADS;
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = HEADS;
    o.kv_heads = KEY_HEADS;
    o.causal = 1;
    o.align = CODA_ALIGN_LENGTH;
    o.page = MODEL_PAGE;
    o.table = b->table;
    o.starts = b->starts;

    coda_value qkv = coda_matmul(g, x, weight(b, "qkv", layer, HIDDEN + 2 * KEYS, HIDDEN));
    qkv = coda_rope(g, qkv, b->positions, &rope);
    coda_value k = pool(b, "keys", layer, coda_slice(g, qkv, 1, HIDDEN, HIDDEN + KEYS, 1));
    coda_value v = pool(b, "values", layer, coda_slice(g, qkv, 1, HIDDEN + KEYS, HIDDEN + 2 * KEYS, 1));
    coda_value a = coda_attention(g, coda_slice(g, qkv, 1, 0, HIDDEN, 1), k, v, b->lengths, &o);
    return coda_matmul(g, a, weight(b, "out", layer, HIDDEN, HIDDEN));
}

static coda_value mlp(const struct build *b, coda_value x, int layer)
{
    coda_value gate_up = coda_matmul(b->g, x, weight(b, "gate_up", layer, 2 * INNER, HIDDEN));
    return coda_matmul(b->g, coda_swiglu(b->g, gate_up, CODA_STACKED),
                       weight(b, "down", layer, HIDDEN, INNER));
}

static coda_graph *model_graph(const struct model *m)
{
    coda_graph *g = coda_graph_new();
    if (!g) return NULL;
    struct build b = {.g = g, .m = m};
    coda_dim rows = coda_symbol(g, "T", 1, m->opt.rows, 1);
    coda_dim sequences = coda_symbol(g, "B", 1, m->opt.sequences, 1);
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(rows));
    b.positions = coda_input(g, "positions", CODA_I32, DIMS(rows));
    b.slots = coda_input(g, "slots", CODA_I32, DIMS(rows));
    b.starts = coda_input(g, "starts", CODA_I32, DIMS(coda_dim_add(g, sequences, 1)));
    b.lengths = coda_input(g, "lengths", CODA_I32, DIMS(sequences));
    b.table = coda_input(g, "table", CODA_I32, DIMS(sequences, m->opt.context / MODEL_PAGE));
    coda_value last = coda_input(g, "last", CODA_I32, DIMS(sequences));

    coda_value x = coda_embedding(g, weight(&b, "tokens", 0, MODEL_VOCABULARY, HIDDEN), ids);
    for (int l = 0; l < LAYERS; l++) {
        x = coda_add(g, attention(&b, coda_rms_norm(g, x, weight(&b, "before", l, HIDDEN, 0), 1e-5f), l), x);
        x = coda_add(g, mlp(&b, coda_rms_norm(g, x, weight(&b, "between", l, HIDDEN, 0), 1e-5f), l), x);
    }
    x = coda_rms_norm(g, coda_embedding(g, x, last), weight(&b, "behind", 0, HIDDEN, 0), 1e-5f);
    x = coda_matmul(g, x, weight(&b, "head", 0, MODEL_LOGITS, HIDDEN));
    coda_output(g, "logits", coda_cast(g, x, CODA_F32));
    return g;
}

/* ---- Memory ---- */

static bool fail(char *why, int size, const char *what)
{
    snprintf(why, (size_t)size, "%s: %s", what, *coda_error() ? coda_error() : "out of memory");
    return false;
}

/* Where an input lies in `ints`; the first call of all, without memory, counts bytes. */
static int32_t *ints_take(struct model *m, size_t *at, int64_t count)
{
    int32_t *p = m->ints ? (int32_t *)(void *)(m->ints + *at) : NULL;
    *at += ((size_t)count * sizeof *p + ALIGNED - 1) / ALIGNED * ALIGNED;
    return p;
}

static void inputs_place(struct model *m)
{
    const struct model_options *o = &m->opt;
    size_t at = 0;
    m->in.table_pages = o->context / MODEL_PAGE;
    m->in.ids = ints_take(m, &at, o->rows);
    m->in.positions = ints_take(m, &at, o->rows);
    m->in.slots = ints_take(m, &at, o->rows);
    m->in.starts = ints_take(m, &at, o->sequences + 1);
    m->in.lengths = ints_take(m, &at, o->sequences);
    m->in.last = ints_take(m, &at, o->sequences);
    m->in.table = ints_take(m, &at, (int64_t)o->sequences * m->in.table_pages);
    m->int_bytes = at;
}

static bool memory_new(struct model *m)
{
    inputs_place(m);
    m->ints = host_scratch(m->int_bytes);
    m->logits = host_scratch(sizeof *m->logits * MODEL_LOGITS * (size_t)m->opt.sequences);
    if (!m->ints || !m->logits) return false;
    memset(m->ints, 0, m->int_bytes);
    inputs_place(m);
    if (m->opt.gpu && !(m->gpu_ints = gpu_alloc(&m->gpu, m->int_bytes))) return false;
    return true;
}

static int32_t *input_named(const struct model *m, const char *name)
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
static bool own(struct model *m, int i, const coda_arg_info *info, uint64_t *seed)
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

static bool bind(struct model *m)
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
    return m->workspace != NULL;
}

/* 1, 4, 16, ... and `most` */
static int shapes_by(int factor, int most, int *shapes)
{
    int n = 0;
    for (int s = 1; s < most && n < MOST_SHAPES - 1; s *= factor) shapes[n++] = s;
    shapes[n++] = most;
    return n;
}

struct model *model_new(const struct model_options *opt, char *why, int size)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m) return fail(why, size, "model"), NULL;
    m->opt = *opt;
    m->dtype = opt->gpu ? CODA_BF16 : CODA_F32;
    m->row_count = shapes_by(2, opt->rows, m->row_shapes);
    m->sequence_count = shapes_by(4, opt->sequences, m->sequence_shapes);
    if (opt->gpu && gpu_open(&m->gpu)) {
        snprintf(why, (size_t)size, "there is no GPU, or no driver");
        free(m);
        return NULL;
    }
    coda_compile_options how = CODA_COMPILE_OPTIONS_INIT;
    how.device = opt->gpu ? CODA_DEVICE_GPU : CODA_DEVICE_CPU;
    how.shapes = m->row_count * m->sequence_count;
    coda_graph *g = model_graph(m);
    bool good = g && coda_compile(&m->plan, g, &how) == CODA_OK && memory_new(m) && bind(m);
    coda_graph_free(g);
    if (good) return m;
    fail(why, size, "model");
    model_free(m);
    return NULL;
}

void model_free(struct model *m)
{
    if (!m) return;
    for (int i = 0; i < MOST_ARGS; i++)
        if (m->opt.gpu && m->owned[i]) m->gpu.free((gpu_address)m->owned[i]);
        else free(m->owned[i]);
    if (m->opt.gpu && m->gpu_ints) m->gpu.free(m->gpu_ints);
    if (m->opt.gpu && m->workspace) m->gpu.free((gpu_address)m->workspace);
    else free(m->workspace);
    free(m->ints);
    free(m->logits);
    coda_plan_free(m->plan);
    free(m);
}

const char *model_device(const struct model *m) { return m->opt.gpu ? m->gpu.name : "the CPU device"; }
struct model_inputs *model_inputs(struct model *m) { return &m->in; }

bool model_warm(struct model *m, char *why, int size)
{
    int64_t dims[MOST_SHAPES * MOST_SHAPES * 2];
    coda_warm_options opt = CODA_WARM_OPTIONS_INIT;
    opt.dims = dims;
    for (int r = 0; r < m->row_count; r++)
        for (int s = 0; s < m->sequence_count; s++, opt.bindings++) {
            dims[opt.bindings * 2] = m->row_shapes[r];
            dims[opt.bindings * 2 + 1] = m->sequence_shapes[s];
        }
    return coda_warm(m->plan, &opt) == CODA_OK || fail(why, size, "warm-up");
}

/* ---- A step ---- */

static int round_up(const int *shapes, int count, int n)
{
    int i = 0;
    while (i < count - 1 && shapes[i] < n) i++;
    return shapes[i];
}

static void pad(struct model *m, int rows, int sequences, const int64_t *dims)
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

const float *model_run(struct model *m, int rows, int sequences, char *why, int size)
{
    int64_t dims[] = {round_up(m->row_shapes, m->row_count, rows),
                      round_up(m->sequence_shapes, m->sequence_count, sequences)};
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.dims = dims;
    opt.dim_count = 2;
    pad(m, rows, sequences, dims);
    if (m->opt.gpu && m->gpu.upload(m->gpu_ints, m->ints, m->int_bytes))
        return snprintf(why, (size_t)size, "step: the inputs cannot be copied to the GPU"), NULL;
    if (coda_run_shaped(m->plan, m->args, NULL, m->workspace, NULL, &opt) != CODA_OK)
        return fail(why, size, "step"), NULL;
    gpu_address logits = (gpu_address)m->args[coda_plan_args(m->plan) - 1];
    size_t bytes = sizeof *m->logits * MODEL_LOGITS * (size_t)sequences;
    if (m->opt.gpu && m->gpu.download(m->logits, logits, bytes))
        return snprintf(why, (size_t)size, "step: the logits cannot be copied from the GPU"), NULL;
    return m->logits;
}

int64_t model_planned(const struct model *m)
{
    coda_shape_stats stats = CODA_SHAPE_STATS_INIT;
    return coda_shape_stats_get(m->plan, &stats) == CODA_OK ? stats.planned : 0;
}
