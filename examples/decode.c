/*
 * decode.c -- a small LLaMA writes: a prompt at once, then a token at a time, with its keys and values in
 * caches that the graphs themselves append to.
 *
 *     prefill   ids [B, P] -> caches, the first token
 *     step      the last token -> caches, the next token, position + 1
 *
 * Tokens, positions and caches are states: a step reads what the last one left in the GPU's memory, so the
 * same launches, captured once, make every token, and the host only looks at the tokens at the end. Then the
 * whole text is computed again in fp64 without a cache: nine tokens of ten must be its choice, and the
 * others' logits so near the best that rounding explains it.
 *
 * With a GPU the steps are replays of one CUDA graph; without, or with --cpu, runs on the CPU device.
 */
#include <stdbool.h>

#include "gpu.h"
#include "progress.h"
#include "tensor.h"
#include "usage.h"

enum {
    SEQUENCES = 4,
    PROMPT = 16,
    STEPS = 64,
    CONTEXT = 128, /* of each sequence's cache */
    LAYERS = 3,
    HIDDEN = 256,
    HEADS = 8,
    KEY_HEADS = 2,
    HEAD = HIDDEN / HEADS,
    KEYS = KEY_HEADS * HEAD,
    INNER = 512,
    VOCABULARY = 1000,
    MOST_ARGS = 64
};

#define DIMS(...)                                                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

/* ---- The model: T tokens of each sequence ---- */

struct call {
    coda_graph *g;
    int64_t tokens;
    coda_value positions; /* int32 [B, T] */
    coda_value slots;     /* int32 [B, T]: rows of the caches, which are [B, CONTEXT]; none: no cache */
    coda_value lengths;   /* int32 [B]: keys of each sequence, the new ones included */
};

static coda_value weight(const struct call *c, const char *name, int layer, int64_t n, int64_t k)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%.20s.%d", name, layer);
    return k ? coda_weight(c->g, numbered, CODA_BF16, DIMS(n, k))
             : coda_weight(c->g, numbered, CODA_BF16, DIMS(n));
}

/* Keys or values as attention reads them: with what the cache holds, or these alone. */
static coda_value cached(const struct call *c, const char *name, int layer, coda_value rows)
{
    char numbered[32];
    if (!c->slots.id) return rows;
    snprintf(numbered, sizeof numbered, "%.20s.%d", name, layer);
    coda_value cache = coda_state(c->g, numbered, CODA_BF16, DIMS(SEQUENCES, CONTEXT, KEYS));
    return coda_append(c->g, cache, rows, c->slots, NULL);
}

static coda_value attention(const struct call *c, coda_value x, int layer)
{
    coda_graph *g = c->g;
    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    rope.head_dim = HEAD;
    rope.heads = HEADS + KEY_HEADS;
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = HEADS;
    o.kv_heads = KEY_HEADS;
    o.causal = 1;
    o.align = c->slots.id ? CODA_ALIGN_LENGTH : CODA_ALIGN_DEFAULT;

    coda_value qkv = coda_rope(g, coda_matmul(g, x, weight(c, "qkv", layer, HIDDEN + 2 * KEYS, HIDDEN)),
                               c->positions, &rope);
    coda_value q = coda_slice(g, qkv, 2, 0, HIDDEN, 1);
    coda_value k = cached(c, "keys", layer, coda_slice(g, qkv, 2, HIDDEN, HIDDEN + KEYS, 1));
    coda_value v = cached(c, "values", layer, coda_slice(g, qkv, 2, HIDDEN + KEYS, HIDDEN + 2 * KEYS, 1));
    coda_value a = coda_attention(g, q, k, v, c->lengths, &o);
    return coda_matmul(g, a, weight(c, "out", layer, HIDDEN, HIDDEN));
}

static coda_value mlp(const struct call *c, coda_value x, int layer)
{
    coda_value gate_up = coda_matmul(c->g, x, weight(c, "gate_up", layer, 2 * INNER, HIDDEN));
    return coda_matmul(c->g, coda_swiglu(c->g, gate_up, CODA_STACKED),
                       weight(c, "down", layer, HIDDEN, INNER));
}

/* ids [B, T] to logits [B, T, V]; with `last`, of the last token alone, [B, 1, V]. */
static coda_value logits(const struct call *c, coda_value ids, bool last)
{
    coda_graph *g = c->g;
    coda_value x = coda_embedding(g, weight(c, "table", 0, VOCABULARY, HIDDEN), ids);
    for (int l = 0; l < LAYERS; l++) {
        x = coda_add(g, attention(c, coda_rms_norm(g, x, weight(c, "before", l, HIDDEN, 0), 1e-5f), l), x);
        x = coda_add(g, mlp(c, coda_rms_norm(g, x, weight(c, "between", l, HIDDEN, 0), 1e-5f), l), x);
    }
    if (last) x = coda_slice(g, x, 1, c->tokens - 1, c->tokens, 1);
    x = coda_rms_norm(g, x, weight(c, "behind", 0, HIDDEN, 0), 1e-5f);
    return coda_matmul(g, x, weight(c, "head", 0, VOCABULARY, HIDDEN));
}

/* int32 x + y; floats hold integers below 2^24. */
static coda_value plus(coda_graph *g, coda_value x, coda_value y)
{
    return coda_cast(g, coda_add(g, x, y), CODA_I32);
}

/* The most likely next token becomes the state `last`, and is written down in `text` at `slots` [B]. */
static void choose(const struct call *c, coda_value logits, coda_value last, coda_value slots)
{
    coda_graph *g = c->g;
    coda_value best = coda_reshape(g, coda_cast(g, coda_reduce(g, "arg_max", logits, CODA_NONE), CODA_I32),
                                   DIMS(SEQUENCES));
    coda_value text = coda_state(g, "text", CODA_I32, DIMS(SEQUENCES, CONTEXT, 1));
    coda_append(g, text, coda_reshape(g, best, DIMS(SEQUENCES, 1)), slots, NULL);
    coda_assign(g, last, best);
}

/* ---- The graphs ---- */

static coda_graph *prefill(void)
{
    coda_graph *g = coda_graph_new();
    struct call c = {.g = g, .tokens = PROMPT};
    coda_value ids = coda_input(g, "ids", CODA_I32, DIMS(SEQUENCES, PROMPT));
    c.positions = coda_input(g, "prompt_positions", CODA_I32, DIMS(SEQUENCES, PROMPT));
    c.slots = coda_input(g, "prompt_slots", CODA_I32, DIMS(SEQUENCES, PROMPT));
    c.lengths = coda_input(g, "prompt_lengths", CODA_I32, DIMS(SEQUENCES));
    coda_value last = coda_state(g, "last", CODA_I32, DIMS(SEQUENCES));
    coda_value behind = coda_input(g, "behind_prompt", CODA_I32, DIMS(SEQUENCES));
    choose(&c, logits(&c, ids, true), last, behind);
    return g;
}

static coda_graph *step(void)
{
    coda_graph *g = coda_graph_new();
    struct call c = {.g = g, .tokens = 1};
    coda_value last = coda_state(g, "last", CODA_I32, DIMS(SEQUENCES));
    coda_value at = coda_state(g, "positions", CODA_I32, DIMS(SEQUENCES)); /* of the last token */
    coda_value starts = coda_input(g, "starts", CODA_I32, DIMS(SEQUENCES));
    coda_value one = coda_constant(g, CODA_I32, 1), column = {0};
    c.positions = coda_reshape(g, at, DIMS(SEQUENCES, 1));
    c.slots = coda_reshape(g, plus(g, starts, at), DIMS(SEQUENCES, 1));
    c.lengths = plus(g, at, one);
    column = coda_reshape(g, last, DIMS(SEQUENCES, 1));
    choose(&c, logits(&c, column, false), last, plus(g, starts, c.lengths));
    coda_assign(g, at, c.lengths);
    return g;
}

static coda_graph *recompute(void)
{
    coda_graph *g = coda_graph_new();
    struct call c = {.g = g, .tokens = PROMPT + STEPS};
    coda_value ids = coda_input(g, "all", CODA_I32, DIMS(SEQUENCES, PROMPT + STEPS));
    coda_output(g, "logits", logits(&c, ids, false));
    return g;
}

/* ---- Memory by name: what two graphs call alike is one ---- */

struct memory {
    coda_arg_info info; /* its name belongs to a graph */
    void *host;
    gpu_address gpu;
};

struct bound {
    const char *name;
    coda_graph *graph;
    coda_plan *plan;
    void *args[MOST_ARGS];
    void *workspace;
};

struct machine {
    const struct gpu *gpu; /* NULL: the CPU device */
    struct memory memory[MOST_ARGS];
    int memories;
};

static struct progress working;

static bool complain(const char *what)
{
    progress_end(&working);
    fprintf(stderr, "decode: %s: %s\n", what, coda_error());
    return false;
}

static struct memory *find(struct machine *m, const char *name)
{
    for (int i = 0; i < m->memories; i++)
        if (!strcmp(m->memory[i].info.name, name)) return &m->memory[i];
    return NULL;
}

/* Bytes that no token has, where nothing is stored yet. */
static struct memory *add(struct machine *m, const coda_arg_info *info)
{
    struct memory *a = &m->memory[m->memories++];
    uint64_t seed = (uint64_t)m->memories;
    *a = (struct memory){.info = *info, .host = host_scratch(info->bytes)};
    if (!a->host) return NULL;
    memset(a->host, 0xff, info->bytes);
    if (info->kind == CODA_ARG_WEIGHT) tensor_random(info, a->host, &seed, 0);
    if (m->gpu) a->gpu = gpu_alloc(m->gpu, info->bytes);
    return m->gpu && !a->gpu ? NULL : a;
}

static bool bind(struct machine *m, struct bound *b)
{
    for (int i = 0; i < coda_graph_args(b->graph); i++) {
        coda_arg_info info = CODA_ARG_INFO_INIT;
        coda_graph_arg(b->graph, i, &info);
        struct memory *a = find(m, info.name);
        if (!a) a = m->memories < MOST_ARGS ? add(m, &info) : NULL;
        if (!a) return fprintf(stderr, "decode: no memory for %s\n", info.name), false;
        b->args[i] = m->gpu ? (void *)a->gpu : a->host;
    }
    return true;
}

static bool compile(struct machine *m, struct bound *b, const char *name, coda_graph *g)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    *b = (struct bound){.name = name, .graph = g};
    opt.device = m->gpu ? CODA_DEVICE_GPU : CODA_DEVICE_CPU;
    bool bound = bind(m, b);
    progress_begin(&working, "compiling %s", name);
    if (m->gpu) progress_kernels(&working, NULL, 0);
    bool good = bound && coda_compile(&b->plan, g, &opt) == CODA_OK;
    progress_end(&working);
    if (!good) return complain(name);
    size_t bytes = (size_t)coda_plan_workspace(b->plan);
    b->workspace = m->gpu ? (void *)gpu_alloc(m->gpu, bytes) : host_scratch(bytes);
    coda_plan_stats_get(b->plan, &stats);
    printf("  %-8s %d launches instead of %d\n", name, stats.launches, stats.launches_unfused);
    return b->workspace != NULL;
}

static void release(struct bound *b)
{
    coda_plan_free(b->plan);
    coda_graph_free(b->graph);
}

/* ---- Numbers that the caller has ---- */

static void set(struct machine *m, const char *name, int columns, int32_t (*value)(int sequence, int token))
{
    int32_t *to = find(m, name)->host;
    for (int i = 0; i < SEQUENCES * columns; i++) to[i] = value(i / columns, i % columns);
}

static int32_t prompt(int b, int t) { return (b * 271 + t * t * 37 + 11) % VOCABULARY; }
static int32_t position(int b, int t) { return (void)b, t; }
static int32_t slot(int b, int t) { return b * CONTEXT + t; }
static int32_t behind(int b, int t) { return slot(b, t + PROMPT); }
static int32_t length(int b, int t) { return (void)b, (void)t, PROMPT; }

static bool upload(struct machine *m)
{
    set(m, "ids", PROMPT, prompt);
    set(m, "prompt_positions", PROMPT, position);
    set(m, "prompt_slots", PROMPT, slot);
    set(m, "prompt_lengths", 1, length);
    set(m, "behind_prompt", 1, behind);
    set(m, "positions", 1, length);
    set(m, "starts", 1, slot);
    for (int i = 0; m->gpu && i < m->memories; i++)
        if (m->gpu->upload(m->memory[i].gpu, m->memory[i].host, m->memory[i].info.bytes)) return false;
    return true;
}

/* ---- Writing ---- */

static bool run(const struct bound *b, coda_stream stream)
{
    return coda_run(b->plan, b->args, NULL, b->workspace, stream) == CODA_OK || complain(b->name);
}

/* The step is captured once; the host does nothing but launch it again. */
static bool replay(const struct gpu *gpu, const struct bound *step, coda_stream stream)
{
    gpu_graph graph;
    gpu_replay replay;
    if (gpu->capture_begin(stream, 0) || !run(step, stream) || gpu->capture_end(stream, &graph)) return false;
    if (gpu->replay_new(&replay, graph, 0)) return false;
    for (int s = 0; s < STEPS; s++)
        if (gpu->replay_run(replay, stream)) return false;
    return true;
}

static bool write_text(struct machine *m, const struct bound *prefill, const struct bound *step)
{
    coda_stream stream = NULL;
    struct memory *text = find(m, "text");
    if (m->gpu && m->gpu->stream_new(&stream, 0)) return false;
    if (!run(prefill, stream)) return false;
    if (m->gpu)
        return replay(m->gpu, step, stream) && !m->gpu->stream_wait(stream) &&
               !m->gpu->download(text->host, text->gpu, text->info.bytes);
    for (int s = 0; s < STEPS; s++)
        if (!run(step, NULL)) return false;
    return true;
}

/* ---- The same without a cache, in fp64 ---- */

enum { WHOLE = PROMPT + STEPS };

struct tally {
    int equal, tokens;
    double furthest; /* of a chosen token's logit from the best one's */
};

static void judge(const double *logits, const int32_t *text, struct tally *t)
{
    for (int b = 0; b < SEQUENCES; b++)
        for (int at = PROMPT; at <= WHOLE; at++, t->tokens++) {
            const double *row = logits + ((int64_t)b * WHOLE + at - 1) * VOCABULARY;
            int best = 0, chosen = text[b * CONTEXT + at];
            for (int v = 1; v < VOCABULARY; v++) best = row[v] > row[best] ? v : best;
            t->equal += chosen == best;
            t->furthest =
                chosen >= 0 && chosen < VOCABULARY ? fmax(t->furthest, row[best] - row[chosen]) : INFINITY;
        }
}

static bool check(struct machine *m, struct tally *t)
{
    struct bound whole = {.name = "recompute", .graph = recompute()};
    double *logits = malloc(sizeof *logits * SEQUENCES * WHOLE * VOCABULARY);
    const int32_t *text = find(m, "text")->host;
    struct machine host = *m; /* its memory there */
    host.gpu = NULL;
    bool good = logits && bind(&host, &whole);
    if (good) {
        int32_t *all = find(&host, "all")->host;
        for (int i = 0; i < SEQUENCES * WHOLE; i++)
            all[i] =
                i % WHOLE < PROMPT ? prompt(i / WHOLE, i % WHOLE) : text[i / WHOLE * CONTEXT + i % WHOLE];
        whole.args[coda_graph_args(whole.graph) - 1] = logits;
        good = coda_evaluate(whole.graph, whole.args) == CODA_OK || complain("recompute");
    }
    if (good) judge(logits, text, t);
    free(logits);
    coda_graph_free(whole.graph);
    return good;
}

int main(int argc, char **argv)
{
    static const double rounded = 0.1; /* what 16 bits do to a logit, of which the best are some 3 */
    static struct machine m;
    struct gpu gpu;
    struct bound first = {0}, next = {0};
    struct tally t = {0};
    bool cpu = false;
    (void)argc;
    int wrong =
        usage_read(argv, "decode",
                   "usage: decode [--cpu]\nA small LLaMA of random weights writes with caches of keys and "
                   "values: on the GPU,\nor, where there is none or with --cpu, on the CPU device.",
                   "--cpu", &cpu);
    if (wrong >= 0) return wrong;
    bool on_gpu = !cpu && gpu_open(&gpu) == 0;
    m.gpu = on_gpu ? &gpu : NULL;
    printf("decode: %d layers, D %d, on %s\n", LAYERS, HIDDEN, on_gpu ? gpu.name : "the CPU device");
    bool good = compile(&m, &first, "prefill", prefill()) && compile(&m, &next, "step", step()) && upload(&m);
    progress_begin(&working, "writing and checking %d tokens", SEQUENCES * (STEPS + 1));
    good = good && write_text(&m, &first, &next) && check(&m, &t);
    progress_end(&working);
    if (good)
        printf("decode: %d tokens, %d as by recomputing in fp64, no logit further than %.3f from the best\n",
               t.tokens, t.equal, t.furthest);
    release(&first);
    release(&next);
    for (int i = 0; i < m.memories; i++) free(m.memory[i].host);
    return !(good && t.furthest <= rounded && t.equal >= t.tokens * 9 / 10);
}
