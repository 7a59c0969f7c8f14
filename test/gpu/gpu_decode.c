/*
 * gpu_decode.c -- a LLaMA of 32 layers writes a thousand tokens: a step of all of it is captured once in a
 * CUDA graph, from the very first token on, and launched again and again while its caches grow. Caches, the
 * last token, positions and the text are states, so the host has no part in it; in between it only fills the
 * workspace with NaN, of which nothing need survive.
 *
 * Then the text is read by a LLaMA written here, in fp64 and without a cache: no token's logit may be further
 * from the best one's than 4 steps, a step being 2^-8 of the power of two at or below the best one. So it is
 * the best token wherever the best two differ by more. The caches lie one behind the other, and in pages of a
 * pool in disorder.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executable.h"
#include "gpu_case.h"
#include "util_device.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_decode(void);

enum {
    SEQUENCES = 2,
    CONTEXT = 1100, /* of each sequence's cache; in pages a few more */
    PAGE = 16,
    PAGES = CEIL_DIV(CONTEXT, PAGE),
    POOL = SEQUENCES * PAGES + 5,
    LAYERS = 32,
    STEPS = 1000,
    EMULATED_LAYERS = 2,
    EMULATED_STEPS = 12,
    BATCHES = 4, /* of replays; before each the workspace is poisoned */
    HIDDEN = 128,
    HEADS = 4,
    KEY_HEADS = 2,
    HEAD = HIDDEN / HEADS,
    KEYS = KEY_HEADS * HEAD,
    QKV = HIDDEN + 2 * KEYS,
    INNER = 256,
    VOCABULARY = 500,
    MOST_ARGS = 8 * LAYERS + 16
};

#define DIMS(...)                                                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

/* ---- The step ---- */

struct model {
    coda_graph *g;
    int layers, steps;
    bool paged;
    coda_value positions; /* int32 [B, 1] */
    coda_value slots;     /* int32 [B, 1]: rows of the caches */
    coda_value lengths;   /* int32 [B]: keys of each sequence, the new one included */
    coda_value table;     /* int32 [B, PAGES] of the pages of each sequence */
};

static const char *numbered(const char *name, int layer)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof text, "%.20s.%d", name, layer);
    return text;
}

static coda_value weight(const struct model *m, const char *name, int layer, int64_t n, int64_t k)
{
    return k ? coda_weight(m->g, numbered(name, layer), CODA_BF16, DIMS(n, k))
             : coda_weight(m->g, numbered(name, layer), CODA_BF16, DIMS(n));
}

static coda_value cached(const struct model *m, const char *name, int layer, coda_value rows)
{
    coda_value cache =
        m->paged ? coda_state(m->g, numbered(name, layer), CODA_BF16, DIMS(POOL * PAGE, KEYS))
                 : coda_state(m->g, numbered(name, layer), CODA_BF16, DIMS(SEQUENCES, CONTEXT, KEYS));
    return coda_append(m->g, cache, rows, m->slots, NULL);
}

static coda_value attention(const struct model *m, coda_value x, int layer)
{
    coda_graph *g = m->g;
    coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    rope.head_dim = HEAD;
    rope.heads = HEADS + KEY_HEADS;
    o.heads = HEADS;
    o.kv_heads = KEY_HEADS;
    o.causal = 1;
    o.align = CODA_ALIGN_LENGTH;
    if (m->paged) o.table = m->table, o.page = PAGE;

    coda_value qkv =
        coda_rope(g, coda_matmul(g, x, weight(m, "qkv", layer, QKV, HIDDEN)), m->positions, &rope);
    coda_value q = coda_slice(g, qkv, 2, 0, HIDDEN, 1);
    coda_value k = cached(m, "keys", layer, coda_slice(g, qkv, 2, HIDDEN, HIDDEN + KEYS, 1));
    coda_value v = cached(m, "values", layer, coda_slice(g, qkv, 2, HIDDEN + KEYS, QKV, 1));
    return coda_matmul(g, coda_attention(g, q, k, v, m->lengths, &o),
                       weight(m, "out", layer, HIDDEN, HIDDEN));
}

static coda_value gated(const struct model *m, coda_value x, int layer)
{
    coda_value gate_up = coda_matmul(m->g, x, weight(m, "gate_up", layer, 2 * INNER, HIDDEN));
    return coda_matmul(m->g, coda_swiglu(m->g, gate_up, CODA_STACKED),
                       weight(m, "down", layer, HIDDEN, INNER));
}

/* The stream is fp32, so that rounding it 64 times does not decide which token is the best. */
static coda_value normed(const struct model *m, const char *name, int layer, coda_value x)
{
    return coda_cast(m->g, coda_rms_norm(m->g, x, weight(m, name, layer, HIDDEN, 0), 1e-5f), CODA_BF16);
}

/* The stream begins as the token and the moment, without which the text soon goes in circles. */
static coda_value best_token(const struct model *m, coda_value ids)
{
    coda_graph *g = m->g;
    coda_value token = coda_embedding(g, weight(m, "tokens", 0, VOCABULARY, HIDDEN), ids);
    coda_value moment = coda_embedding(g, weight(m, "moments", 0, CONTEXT, HIDDEN), m->positions);
    coda_value x = coda_add(g, coda_cast(g, token, CODA_F32), moment);
    for (int l = 0; l < m->layers; l++) {
        x = coda_add(g, x, attention(m, normed(m, "before", l, x), l));
        x = coda_add(g, x, gated(m, normed(m, "between", l, x), l));
    }
    coda_value logits = coda_matmul(g, normed(m, "behind", 0, x), weight(m, "head", 0, VOCABULARY, HIDDEN));
    return coda_reshape(g, coda_cast(g, coda_reduce(g, "arg_max", logits, CODA_NONE), CODA_I32),
                        DIMS(SEQUENCES));
}

/* int32 x + y; floats hold integers below 2^24. */
static coda_value plus(coda_graph *g, coda_value x, coda_value y)
{
    return coda_cast(g, coda_add(g, x, y), CODA_I32);
}

/* `starts` is where a sequence's row of the text begins, and its rows of a cache that has no pages. Of one in
 * pages, `places` says which slot the token at a position has. */
static void build(struct model *m)
{
    coda_graph *g = m->g = coda_graph_new();
    coda_value last = coda_state(g, "last", CODA_I32, DIMS(SEQUENCES));
    coda_value at = coda_state(g, "positions", CODA_I32, DIMS(SEQUENCES)); /* of the last token */
    coda_value text = coda_state(g, "text", CODA_I32, DIMS(SEQUENCES, CONTEXT, 1));
    coda_value starts = coda_input(g, "starts", CODA_I32, DIMS(SEQUENCES));
    coda_value slots = plus(g, starts, at);
    if (m->paged) {
        m->table = coda_input(g, "table", CODA_I32, DIMS(SEQUENCES, PAGES));
        slots = coda_embedding(g, coda_input(g, "places", CODA_I32, DIMS(SEQUENCES * CONTEXT, 1)), slots);
    }
    m->positions = coda_reshape(g, at, DIMS(SEQUENCES, 1));
    m->slots = coda_reshape(g, slots, DIMS(SEQUENCES, 1));
    m->lengths = plus(g, at, coda_constant(g, CODA_I32, 1));
    coda_value best = best_token(m, coda_reshape(g, last, DIMS(SEQUENCES, 1)));
    coda_append(g, text, coda_reshape(g, best, DIMS(SEQUENCES, 1)), plus(g, starts, m->lengths), NULL);
    coda_assign(g, last, best);
    coda_assign(g, at, m->lengths);
}

/* ---- Its memory: random weights, caches of NaN ---- */

struct memory {
    char name[32]; /* the graph may be gone */
    coda_arg_info info;
    void *host;
};

struct writer {
    struct model m;
    coda_plan *plan;
    struct memory memory[MOST_ARGS];
    void *args[MOST_ARGS], *workspace;
    int n;
};

static struct memory *find(struct writer *w, const char *name)
{
    for (int i = 0; i < w->n; i++)
        if (!strcmp(w->memory[i].name, name)) return &w->memory[i];
    return NULL;
}

/* Products keep the size of what they multiply, but for scores, so that attention chooses, and for what
 * layers add to the stream: were that more, all tokens would come to be alike, or rounding would decide. */
static double size_of(const struct memory *a, int64_t row, int layers)
{
    if (a->info.rank == 1 || !strncmp(a->name, "tokens", 6) || !strncmp(a->name, "moments", 7)) return 1;
    double size = 1 / sqrt((double)a->info.dims[1]);
    if (!strncmp(a->name, "qkv", 3) && row < HIDDEN + KEYS) return 1.4 * size;
    bool adds = !strncmp(a->name, "out", 3) || !strncmp(a->name, "down", 4);
    return adds ? 1.7 / sqrt(layers) * size : size;
}

static void fill_weight(const struct memory *a, struct random *r, int layers)
{
    int64_t columns = a->info.rank == 1 ? 1 : a->info.dims[1];
    for (int64_t i = 0; i < a->info.dims[0] * columns; i++) {
        double x = size_of(a, i / columns, layers) * random_normal(r);
        dtype_store(CODA_BF16, a->host, i, a->info.rank == 1 ? 1 + 0.1 * x : x); /* a gain */
    }
}

/* Where a token is, if its cache lies in pages of a pool in disorder. */
static void fill_places(struct writer *w, struct random *r)
{
    int32_t *table = find(w, "table")->host, *places = find(w, "places")->host, all[POOL];
    for (int32_t i = 0; i < POOL; i++) {
        int64_t k = random_below(r, i + 1); /* Fisher and Yates, from the inside out */
        all[i] = all[k], all[k] = i;
    }
    memcpy(table, all, sizeof *all * SEQUENCES * PAGES);
    for (int i = 0; i < SEQUENCES * CONTEXT; i++)
        places[i] = table[i / CONTEXT * PAGES + i % CONTEXT / PAGE] * PAGE + i % CONTEXT % PAGE;
}

static void fill(struct writer *w, uint64_t seed)
{
    struct random r = {seed}, pages = {seed + 1};
    for (int i = 0; i < w->n; i++) {
        memset(w->memory[i].host, 0xff, w->memory[i].info.bytes);
        if (w->memory[i].info.kind == CODA_ARG_WEIGHT) fill_weight(&w->memory[i], &r, w->m.layers);
    }
    for (int s = 0; s < SEQUENCES; s++) {
        int32_t first = (int32_t)random_below(&r, VOCABULARY);
        ((int32_t *)find(w, "last")->host)[s] = ((int32_t *)find(w, "text")->host)[s * CONTEXT] = first;
        ((int32_t *)find(w, "positions")->host)[s] = 0;
        ((int32_t *)find(w, "starts")->host)[s] = s * CONTEXT;
    }
    if (w->m.paged) fill_places(w, &pages);
}

static bool open_writer(struct writer *w, uint64_t seed)
{
    build(&w->m);
    if (coda_compile(&w->plan, w->m.g, NULL) != CODA_OK) return false;
    w->n = coda_graph_args(w->m.g);
    for (int i = 0; i < w->n; i++) {
        struct memory *a = &w->memory[i];
        a->info = (coda_arg_info)CODA_ARG_INFO_INIT;
        coda_graph_arg(w->m.g, i, &a->info);
        snprintf(a->name, sizeof a->name, "%s", a->info.name);
        a->host = malloc(a->info.bytes);
        w->args[i] = device_alloc(a->info.bytes);
        if (!a->host || !w->args[i]) return false;
    }
    fill(w, seed);
    bool good = (w->workspace = device_alloc(coda_plan_workspace(w->plan)));
    for (int i = 0; i < w->n; i++)
        good = good && device_upload(w->args[i], w->memory[i].host, w->memory[i].info.bytes);
    return good;
}

static void close_writer(struct writer *w)
{
    for (int i = 0; i < w->n; i++) {
        device_free(w->args[i]);
        free(w->memory[i].host);
    }
    device_free(w->workspace);
    coda_plan_free(w->plan);
    coda_graph_free(w->m.g);
}

/* ---- Writing ---- */

static bool write_text(struct writer *w)
{
    struct memory *text = find(w, "text");
    void *stream = device_stream_new(), *captured = NULL;
    if (!stream || !device_capture_begin(stream)) return false;
    coda_status status = coda_run(w->plan, w->args, NULL, w->workspace, stream);
    bool good = (captured = device_capture_end(stream)) && status == CODA_OK;
    for (int batch = 0; batch < BATCHES && good; batch++) {
        good = device_fill(w->workspace, 0xff, coda_plan_workspace(w->plan)) && device_wait();
        for (int i = w->m.steps * batch / BATCHES; i < w->m.steps * (batch + 1) / BATCHES; i++)
            good = good && device_replay(captured, stream);
        good = good && device_stream_wait(stream);
    }
    return good && device_download(text->host, w->args[text - w->memory], text->info.bytes);
}

/* ---- Reading: the same model in fp64, of a whole text, a layer after the other ---- */

struct reader {
    struct writer *w;
    int sequence;
    double (*x)[HIDDEN];           /* [steps]: what flows through the layers */
    double (*k)[KEYS], (*v)[KEYS]; /* [steps]: of one layer */
    int equal, close, kinds;       /* tokens: the best, at most 4 steps from it; how many different ones */
    double furthest;               /* from the best logit, in steps */
    pthread_t thread;
};

static float *floats(const struct reader *r, const char *name, int layer)
{
    const struct memory *a = find(r->w, numbered(name, layer));
    int64_t n = (int64_t)a->info.bytes / 2;
    float *to = malloc(sizeof *to * (size_t)n);
    for (int64_t i = 0; i < n; i++) to[i] = (float)dtype_load(CODA_BF16, a->host, i);
    return to;
}

/* y = w x; n is a multiple of 4. */
static void product(double *y, const float *w, const double *x, int m, int n)
{
    for (int i = 0; i < m; i++, w += n) {
        double sum[4] = {0};
        for (int k = 0; k < n; k += 4)
            for (int j = 0; j < 4; j++) sum[j] += (double)w[k + j] * x[k + j];
        y[i] = sum[0] + sum[1] + (sum[2] + sum[3]);
    }
}

static void norm(double *y, const double *x, const float *gain)
{
    double squares = 0;
    for (int i = 0; i < HIDDEN; i++) squares += x[i] * x[i];
    for (int i = 0; i < HIDDEN; i++) y[i] = x[i] / sqrt(squares / HIDDEN + 1e-5) * (double)gain[i];
}

static void rotate(double *head, int position)
{
    for (int i = 0; i < HEAD / 2; i++) {
        double t = position * pow(10000, -2.0 * i / HEAD), a = head[i], b = head[i + HEAD / 2];
        head[i] = a * cos(t) - b * sin(t);
        head[i + HEAD / 2] = a * sin(t) + b * cos(t);
    }
}

/* One head of the query at position t, over the keys 0 to t. */
static void attend(const struct reader *r, double *o, const double *q, int t, int key_head)
{
    double score[CONTEXT], top = -INFINITY, sum = 0;
    for (int j = 0; j <= t; j++) {
        double s[2] = {0};
        for (int d = 0; d < HEAD; d++) s[d % 2] += q[d] * r->k[j][key_head * HEAD + d];
        score[j] = (s[0] + s[1]) / sqrt(HEAD);
        top = fmax(top, score[j]);
    }
    memset(o, 0, sizeof *o * HEAD);
    for (int j = 0; j <= t; j++) {
        double p = exp(score[j] - top);
        for (int d = 0; d < HEAD; d++) o[d] += p * r->v[j][key_head * HEAD + d];
        sum += p;
    }
    for (int d = 0; d < HEAD; d++) o[d] /= sum;
}

static void read_attention(struct reader *r, int l)
{
    float *gain = floats(r, "before", l), *wqkv = floats(r, "qkv", l), *out = floats(r, "out", l);
    for (int t = 0; t < r->w->m.steps; t++) {
        double h[HIDDEN], qkv[QKV], o[HIDDEN];
        norm(h, r->x[t], gain);
        product(qkv, wqkv, h, QKV, HIDDEN);
        for (int i = 0; i < HEADS + KEY_HEADS; i++) rotate(qkv + i * HEAD, t);
        memcpy(r->k[t], qkv + HIDDEN, sizeof *r->k);
        memcpy(r->v[t], qkv + HIDDEN + KEYS, sizeof *r->v);
        for (int i = 0; i < HEADS; i++) attend(r, o + i * HEAD, qkv + i * HEAD, t, i / (HEADS / KEY_HEADS));
        product(h, out, o, HIDDEN, HIDDEN);
        for (int i = 0; i < HIDDEN; i++) r->x[t][i] += h[i];
    }
    free(gain), free(wqkv), free(out);
}

static void read_gated(struct reader *r, int l)
{
    float *gain = floats(r, "between", l), *w = floats(r, "gate_up", l), *down = floats(r, "down", l);
    for (int t = 0; t < r->w->m.steps; t++) {
        double h[HIDDEN], gate[2 * INNER];
        norm(h, r->x[t], gain);
        product(gate, w, h, 2 * INNER, HIDDEN);
        for (int i = 0; i < INNER; i++) gate[i] = gate[i] / (1 + exp(-gate[i])) * gate[INNER + i];
        product(h, down, gate, HIDDEN, INNER);
        for (int i = 0; i < HIDDEN; i++) r->x[t][i] += h[i];
    }
    free(gain), free(w), free(down);
}

static void judge(struct reader *r, const double *logit, int32_t token)
{
    int best = 0;
    for (int i = 1; i < VOCABULARY; i++) best = logit[i] > logit[best] ? i : best;
    double step = ldexp(1, ilogb(logit[best]) - 8), far = INFINITY;
    if (token >= 0 && token < VOCABULARY) far = (logit[best] - logit[token]) / step;
    r->equal += token == best;
    r->close += far <= 4;
    r->furthest = fmax(r->furthest, far);
}

static void *read_text(void *arg)
{
    struct reader *r = arg;
    const int32_t *text = (int32_t *)find(r->w, "text")->host + r->sequence * CONTEXT;
    float *table = floats(r, "tokens", 0), *moments = floats(r, "moments", 0);
    float *gain = floats(r, "behind", 0), *head = floats(r, "head", 0);
    bool seen[VOCABULARY] = {false};
    for (int t = 0; t < r->w->m.steps; t++)
        for (int i = 0; i < HIDDEN; i++) {
            bool there = text[t] >= 0 && text[t] < VOCABULARY;
            r->x[t][i] = (there ? (double)table[text[t] * HIDDEN + i] : 0) + (double)moments[t * HIDDEN + i];
        }
    for (int l = 0; l < r->w->m.layers; l++) read_attention(r, l), read_gated(r, l);
    for (int t = 0; t < r->w->m.steps; t++) {
        double h[HIDDEN], logit[VOCABULARY];
        norm(h, r->x[t], gain);
        product(logit, head, h, VOCABULARY, HIDDEN);
        judge(r, logit, text[t + 1]);
        if (text[t + 1] >= 0 && text[t + 1] < VOCABULARY)
            r->kinds += !seen[text[t + 1]], seen[text[t + 1]] = true;
    }
    free(table), free(moments), free(gain), free(head);
    return NULL;
}

/* Nothing behind the last token may have been written. */
static bool text_ends(struct writer *w)
{
    const int32_t *text = find(w, "text")->host;
    bool good = true;
    for (int s = 0; s < SEQUENCES; s++)
        for (int i = w->m.steps + 1; i < CONTEXT; i++) good = good && text[s * CONTEXT + i] == -1;
    return good;
}

static int check(struct writer *w, const char *name)
{
    struct reader r[SEQUENCES];
    int tokens = SEQUENCES * w->m.steps, equal = 0, close = 0, kinds = VOCABULARY;
    double furthest = 0;
    for (int s = 0; s < SEQUENCES; s++) {
        r[s] = (struct reader){.w = w, .sequence = s};
        r[s].x = calloc((size_t)w->m.steps, sizeof *r[s].x);
        r[s].k = calloc((size_t)w->m.steps, sizeof *r[s].k);
        r[s].v = calloc((size_t)w->m.steps, sizeof *r[s].v);
        if (pthread_create(&r[s].thread, NULL, read_text, &r[s])) return gpu_case(false, name, "no thread");
    }
    for (int s = 0; s < SEQUENCES; s++) {
        pthread_join(r[s].thread, NULL);
        equal += r[s].equal, close += r[s].close, kinds = MIN(kinds, r[s].kinds);
        furthest = fmax(furthest, r[s].furthest);
        free(r[s].x), free(r[s].k), free(r[s].v);
    }
    return gpu_case(close == tokens && text_ends(w), name,
                    "%d layers, %d replays: %d of %d tokens as by recomputing in fp64, %d too far off, none "
                    "further than %.2f steps; %d different ones%s",
                    w->m.layers, w->m.steps, equal, tokens, tokens - close, furthest, kinds,
                    text_ends(w) ? "" : ", AND MORE TEXT BEHIND");
}

/* Behind attention, whose blocks leave SMs free, a product with a block for each SM has more memory
 * than its kernel needs, so that no SM gets two (early.c); and what streams behind it fits beside it.
 * The emulator has as few SMs as these products have blocks, where nobody says another number. */
static int check_apart(const struct writer *w, const struct jit_device *dev)
{
    enum { FEW = 4 };
    if (dev->sms > FEW) return 0;
    int apart = 0, fit = 0, streams = 0;
    for (int i = 1; i < w->plan->plan.programs; i++) {
        const struct compiled_program *c = &w->plan->program[i], *ahead = c - 1;
        bool own = c->launch.shared_bytes > (unsigned)c->emitted.launch.shared_bytes;
        bool both = c->emitted.launch.streams && ahead->emitted.launch.streams;
        apart += own && !both;
        streams += both;
        fit += both && (int)(c->launch.shared_bytes + ahead->launch.shared_bytes) + 1024 <= dev->shared_bytes;
    }
    return gpu_case(apart >= w->m.layers && fit == streams, "decode",
                    "%d launches keep their blocks apart; of %d behind others that stream %d fit beside them",
                    apart, streams, fit);
}

static int decode(const struct jit_device *dev, bool paged, uint64_t seed)
{
    const char *name = paged ? "decode, cache in pages" : "decode, cache in rows";
    bool slow = device_emulated(dev);
    struct writer *w = calloc(1, sizeof *w);
    w->m = (struct model){
        .paged = paged, .layers = slow ? EMULATED_LAYERS : LAYERS, .steps = slow ? EMULATED_STEPS : STEPS};
    bool ran = open_writer(w, seed) && write_text(w);
    int failed =
        ran && !device_dry() ? check(w, name) : gpu_case(false, name, "it does not run: %s", coda_error());
    if (ran && slow) failed += check_apart(w, dev);
    close_writer(w);
    free(w);
    return failed;
}

int gpu_decode(void)
{
    struct jit_device dev;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&dev, err)) return gpu_case(false, "decode", "%s", err);
    for (int paged = 0; paged < 2; paged++)
        if (!device_emulated(&dev) || scale_takes_half(paged)) failed += decode(&dev, paged, random_seed());
    return failed;
}
