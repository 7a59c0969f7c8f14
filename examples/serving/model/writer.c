/*
 * writer.c -- the graph of a step, its memory by name, and its capture.
 *
 *     step    last token, position -> caches, the next token, position + 1, text[position + 1]
 *
 * Weights and caches are the model's own; the step adds three small states.
 */
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "writer.h"

enum { OWN = 12 }; /* states and outputs that the model has not, at most */

struct writer {
    struct model *m;
    int burst;
    struct sampling how; /* temperature 0: greedy */
    coda_plan *plan;
    void **args, *workspace;
    void *own[OWN];
    int owned;
    int32_t *last, *at, *text; /* on the device: [1], [1], [context + 1] */
    float *logprobs;           /* [context + 1]; NULL: greedy */
    int length;                /* what `at` holds; -1 before the first token */
    int32_t token;             /* what `last` holds */
    coda_stream stream;
    gpu_graph graph[2];
    gpu_replay one, many; /* a step, `burst` steps */
};

/* ---- The graph ---- */

/* int32 x + y; floats hold integers below 2^24. */
static coda_value plus(coda_graph *g, coda_value x, coda_value y)
{
    return coda_cast(g, coda_add(g, x, y), CODA_I32);
}

static bool is_limited(const struct sampling *s) { return s->top_k > 0 || s->top_p < 1; }

/* The next token, int32 [1], of logits [1, vocabulary]: the likeliest, or drawn by its place. */
static coda_value choose(struct model *m, coda_graph *g, const struct sampling *how, coda_value logits,
                         coda_value place)
{
    coda_sample_options o = CODA_SAMPLE_OPTIONS_INIT;
    coda_value logprob;
    if (how->temperature <= 0)
        return coda_reshape(g, coda_cast(g, coda_reduce(g, "arg_max", logits, CODA_NONE), CODA_I32), DIMS(1));
    coda_value text = coda_state(g, "step.logprobs", CODA_F32, DIMS(1, m->opt.context + 1, 1));
    coda_value seeds = coda_input(g, "step.seeds", CODA_I32, DIMS(1, 2));
    o.temperature = coda_input(g, "step.temperature", CODA_F32, DIMS(1));
    if (is_limited(how)) {
        o.top_k = coda_input(g, "step.top_k", CODA_I32, DIMS(1));
        o.top_p = coda_input(g, "step.top_p", CODA_F32, DIMS(1));
    }
    coda_value row = coda_reshape(g, logits, DIMS(1, m->config.vocabulary));
    coda_value drawn = coda_sample(g, row, seeds, place, &o, &logprob);
    coda_append(g, text, coda_reshape(g, logprob, DIMS(1, 1)), place, NULL);
    return drawn;
}

static coda_graph *step_graph(struct model *m, const struct sampling *how, struct weights *weights,
                              struct fault *f)
{
    coda_graph *g = coda_graph_new();
    if (!g) return fault_set(f, "out of memory"), NULL;
    struct build b = {.g = g,
                      .c = &m->config,
                      .from = m->opt.random ? NULL : &m->files,
                      .weights = weights,
                      .fault = f,
                      .dtype = m->opt.dtype,
                      .context = m->opt.context,
                      .rows = 1};
    coda_value last = coda_state(g, "step.last", CODA_I32, DIMS(1));
    coda_value at = coda_state(g, "step.position", CODA_I32, DIMS(1));
    coda_value text = coda_state(g, "step.text", CODA_I32, DIMS(1, m->opt.context + 1, 1));
    b.positions = b.slots = coda_reshape(g, at, DIMS(1, 1));
    b.lengths = plus(g, at, coda_constant(g, CODA_I32, 1));
    coda_value logits = m->family->graph(&b, coda_reshape(g, last, DIMS(1, 1)));
    coda_value next = choose(m, g, how, logits, b.lengths);
    coda_append(g, text, coda_reshape(g, next, DIMS(1, 1)), b.lengths, NULL);
    coda_assign(g, last, next);
    coda_assign(g, at, b.lengths);
    if (!b.failed && coda_graph_status(g) == CODA_OK) return g;
    if (!b.failed) fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    return NULL;
}

static bool compile(struct writer *w, struct fault *f)
{
    coda_compile_options o = device_target(&w->m->device);
    struct weights weights = {0}; /* the same names; the model has the tensors in memory */
    coda_graph *g = step_graph(w->m, &w->how, &weights, f);
    bool good = g && (coda_compile(&w->plan, g, &o) == CODA_OK || fault_set(f, "%s", coda_error()));
    coda_graph_free(g);
    weights_free(&weights);
    return good;
}

/* ---- Memory ---- */

/* What the model's plan has by this name and of this size, else memory of one's own. */
static void *memory(void *context, const coda_arg_info *info)
{
    struct writer *w = context;
    coda_arg_info theirs = CODA_ARG_INFO_INIT;
    int i = coda_plan_find(w->m->plan, info->name);
    if (info->kind == CODA_ARG_GROUP) return w->m->opt.group;
    if (i >= 0 && coda_plan_arg(w->m->plan, i, &theirs) == CODA_OK)
        return theirs.bytes == info->bytes ? w->m->args[i] : NULL;
    if (info->kind == CODA_ARG_WEIGHT || w->owned == OWN) return NULL;
    return w->own[w->owned++] = device_alloc(&w->m->device, info->bytes);
}

static bool write_input(struct writer *w, const char *name, const void *from, size_t bytes)
{
    int i = coda_plan_find(w->plan, name);
    return i < 0 || device_write(&w->m->device, w->args[i], from, bytes); /* < 0: nothing is limited */
}

static bool write_how(struct writer *w, struct fault *f)
{
    float temperature = (float)w->how.temperature, top_p = (float)w->how.top_p;
    int32_t seeds[2], top_k = w->how.top_k;
    sample_seeds(w->how.seed, 0, seeds);
    w->logprobs = w->args[coda_plan_find(w->plan, "step.logprobs")];
    return (write_input(w, "step.seeds", seeds, sizeof seeds) &&
            write_input(w, "step.temperature", &temperature, sizeof temperature) &&
            write_input(w, "step.top_k", &top_k, sizeof top_k) &&
            write_input(w, "step.top_p", &top_p, sizeof top_p)) ||
           fault_set(f, "what says how to draw cannot be copied to %s", device_name(&w->m->device));
}

static bool allocate(struct writer *w, struct fault *f)
{
    size_t scratch = coda_plan_workspace(w->plan);
    w->args = calloc((size_t)coda_plan_args(w->plan) + 1, sizeof *w->args);
    if (!w->args) return fault_set(f, "out of memory");
    if (!arguments_bind(w->plan, w->args, memory, w, f)) return false;
    if (!(w->workspace = device_alloc(&w->m->device, scratch)))
        return fault_set(f, "there is no memory for %zu bytes of scratch", scratch);
    w->last = w->args[coda_plan_find(w->plan, "step.last")];
    w->at = w->args[coda_plan_find(w->plan, "step.position")];
    w->text = w->args[coda_plan_find(w->plan, "step.text")];
    return w->how.temperature <= 0 || write_how(w, f);
}

/* ---- Capture ---- */

static bool run(struct writer *w, struct fault *f)
{
    return coda_run(w->plan, w->args, NULL, w->workspace, w->stream) == CODA_OK ||
           fault_set(f, "%s", coda_error());
}

/* As cuda.h has them. Other ranks' threads go on with what a capture of the whole process forbids. */
enum { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1 };

static bool capture(struct writer *w, int steps, gpu_graph *graph, gpu_replay *replay, struct fault *f)
{
    struct gpu *gpu = &w->m->device.gpu;
    int mode = w->m->opt.group ? CAPTURE_THREAD_LOCAL : CAPTURE_GLOBAL;
    bool good = !gpu->capture_begin(w->stream, mode) || fault_set(f, "the stream cannot be captured");
    for (int s = 0; good && s < steps; s++) good = run(w, f);
    if (gpu->capture_end(w->stream, graph)) return good && fault_set(f, "the capture failed");
    return good && ((!gpu->replay_new(replay, *graph, 0) && !gpu->replay_upload(*replay, w->stream)) ||
                    fault_set(f, "%d steps cannot be made into a CUDA graph", steps));
}

static bool prepare(struct writer *w, struct fault *f)
{
    if (!w->m->device.on_gpu) return true;
    if (w->m->device.gpu.stream_new(&w->stream, 0)) return fault_set(f, "there is no stream");
    return capture(w, 1, &w->graph[0], &w->one, f) &&
           (w->burst == 1 || capture(w, w->burst, &w->graph[1], &w->many, f));
}

struct writer *writer_open(struct model *m, int burst, const struct sampling *how, struct fault *f)
{
    struct writer *w = calloc(1, sizeof *w);
    if (!w) return fault_set(f, "out of memory"), NULL;
    *w = (struct writer){.m = m, .burst = burst < 1 ? 1 : burst, .length = -1};
    if (how) w->how = *how;
    bool good = !m->family->encoder || fault_set(f, "family %s makes no text", m->config.family);
    good = good && compile(w, f) && (m->opt.only_plan || (allocate(w, f) && prepare(w, f)));
    if (good) return w;
    writer_close(w);
    return NULL;
}

void writer_close(struct writer *w)
{
    if (!w) return;
    struct gpu *gpu = &w->m->device.gpu;
    if (w->stream) gpu->stream_wait(w->stream);
    if (w->one) gpu->replay_free(w->one);
    if (w->many) gpu->replay_free(w->many);
    for (int i = 0; i < 2; i++)
        if (w->graph[i]) gpu->graph_free(w->graph[i]);
    if (w->stream) gpu->stream_free(w->stream);
    coda_plan_free(w->plan);
    for (int i = 0; i < w->owned; i++) device_free(&w->m->device, w->own[i]);
    device_free(&w->m->device, w->workspace);
    free(w->args);
    free(w);
}

const coda_plan *writer_plan(const struct writer *w) { return w->plan; }

/* ---- Writing ---- */

/* Nothing goes to the device where the last call left off. */
static bool begin(struct writer *w, int32_t token, struct fault *f)
{
    int32_t at = w->m->length;
    if (!model_begin(w->m, f)) return false;
    if (w->length == at && w->token == token) return true;
    return (device_write(&w->m->device, w->last, &token, sizeof token) &&
            device_write(&w->m->device, w->at, &at, sizeof at)) ||
           fault_set(f, "the token cannot be copied to %s", device_name(&w->m->device));
}

static bool steps(struct writer *w, int n, struct fault *f)
{
    const struct gpu *gpu = &w->m->device.gpu;
    bool on_gpu = w->m->device.on_gpu;
    for (int made = 0, some; made < n; made += some) {
        bool whole = w->many && n - made >= w->burst;
        some = whole ? w->burst : 1;
        if (on_gpu && gpu->replay_run(whole ? w->many : w->one, w->stream))
            return fault_set(f, "the CUDA graph of %d steps cannot be launched", some);
        if (!on_gpu && !run(w, f)) return false;
    }
    return !on_gpu || !gpu->stream_wait(w->stream) || fault_set(f, "the steps failed on the GPU");
}

bool writer_write(struct writer *w, int32_t token, int n, int32_t *to, float *logprobs, struct fault *f)
{
    struct model *m = w->m;
    if (n < 1 || n > m->opt.context - m->length)
        return fault_set(f, "%d tokens behind %d do not fit into a context of %d", n, m->length,
                         m->opt.context);
    if (token < 0 || token >= m->config.vocabulary)
        return fault_set(f, "token %d is not in the vocabulary of %d", token, m->config.vocabulary);
    bool good = begin(w, token, f);
    w->length = -1; /* until all is well */
    if (!good || !model_ran(m, steps(w, n, f))) return false;
    bool wanted = logprobs && w->logprobs;
    if (!device_read(&m->device, to, w->text + m->length + 1, (size_t)n * sizeof *to) ||
        (wanted &&
         !device_read(&m->device, logprobs, w->logprobs + m->length + 1, (size_t)n * sizeof *logprobs)))
        return fault_set(f, "the text cannot be copied from %s", device_name(&m->device));
    w->length = m->length += n;
    w->token = to[n - 1];
    return true;
}
