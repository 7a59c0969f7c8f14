/*
 * reference.c -- the small model of chat/served.c by its formula: fp64, a row after another. With
 * the library it shares nothing, with the example the random numbers of the weights.
 */
#include <stdbool.h>

#include "tensor.h"

#include "chat_test.h"

enum {
    LAYERS = 2,
    HIDDEN = 64,
    HEADS = 4,
    KEY_HEADS = 2,
    HEAD = HIDDEN / HEADS,
    KEYS = KEY_HEADS * HEAD,
    INNER = 128,
    VOCABULARY = 264,
    MOST_TOKENS = 512
};

struct layer {
    float before[HIDDEN], qkv[(HIDDEN + 2 * KEYS) * HIDDEN], out[HIDDEN * HIDDEN];
    float between[HIDDEN], gate_up[2 * INNER * HIDDEN], down[HIDDEN * INNER];
};

static struct {
    float tokens[VOCABULARY * HIDDEN];
    struct layer layer[LAYERS];
    float behind[HIDDEN], head[VOCABULARY * HIDDEN];
} model;

static struct {
    double k[MOST_TOKENS][KEYS], v[MOST_TOKENS][KEYS];
} cache[LAYERS];

static void draw(float *to, int n, int k, uint64_t *seed)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    info.kind = CODA_ARG_WEIGHT;
    info.dtype = CODA_F32;
    info.rank = k ? 2 : 1;
    info.dims[0] = n;
    info.dims[1] = k;
    info.strides[0] = k ? k : 1;
    info.strides[1] = 1;
    tensor_random(&info, to, seed, 0);
}

/* In the order in which the graph names its weights. */
static void draw_all(void)
{
    static bool drawn;
    uint64_t seed = 1;
    if (drawn) return;
    drawn = true;
    draw(model.tokens, VOCABULARY, HIDDEN, &seed);
    for (int l = 0; l < LAYERS; l++) {
        struct layer *w = &model.layer[l];
        draw(w->before, HIDDEN, 0, &seed);
        draw(w->qkv, HIDDEN + 2 * KEYS, HIDDEN, &seed);
        draw(w->out, HIDDEN, HIDDEN, &seed);
        draw(w->between, HIDDEN, 0, &seed);
        draw(w->gate_up, 2 * INNER, HIDDEN, &seed);
        draw(w->down, HIDDEN, INNER, &seed);
    }
    draw(model.behind, HIDDEN, 0, &seed);
    draw(model.head, VOCABULARY, HIDDEN, &seed);
}

/* y = W x, W [n, k] */
static void product(double *y, const float *w, const double *x, int n, int k)
{
    for (int i = 0; i < n; i++) {
        y[i] = 0;
        for (int j = 0; j < k; j++) y[i] += (double)w[i * k + j] * x[j];
    }
}

static void norm(double *y, const double *x, const float *gain)
{
    double sum = 0;
    for (int i = 0; i < HIDDEN; i++) sum += x[i] * x[i];
    for (int i = 0; i < HIDDEN; i++) y[i] = x[i] / sqrt(sum / HIDDEN + 1e-5) * (double)gain[i];
}

/* Pairs (i, i + HEAD / 2) of each head turn by position * 10000^(-2i / HEAD). */
static void turn(double *x, int heads, int position)
{
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < HEAD / 2; i++) {
            double t = position * pow(10000, -2.0 * i / HEAD);
            double *a = x + h * HEAD + i, *b = a + HEAD / 2, old = *a;
            *a = old * cos(t) - *b * sin(t);
            *b = old * sin(t) + *b * cos(t);
        }
}

static void attend(double *y, const double *q, int layer, int position)
{
    double weight[MOST_TOKENS];
    for (int h = 0; h < HEADS; h++) {
        int from = h / (HEADS / KEY_HEADS) * HEAD;
        double sum = 0, most = -INFINITY;
        for (int t = 0; t <= position; t++) {
            weight[t] = 0;
            for (int i = 0; i < HEAD; i++) weight[t] += q[h * HEAD + i] * cache[layer].k[t][from + i];
            weight[t] /= sqrt(HEAD);
            most = fmax(most, weight[t]);
        }
        for (int t = 0; t <= position; t++) sum += weight[t] = exp(weight[t] - most);
        for (int i = 0; i < HEAD; i++) {
            y[h * HEAD + i] = 0;
            for (int t = 0; t <= position; t++)
                y[h * HEAD + i] += weight[t] / sum * cache[layer].v[t][from + i];
        }
    }
}

static void run_layer(double *x, int layer, int position)
{
    const struct layer *w = &model.layer[layer];
    double h[HIDDEN], qkv[HIDDEN + 2 * KEYS], a[HIDDEN], o[HIDDEN], gates[2 * INNER], inner[INNER];
    norm(h, x, w->before);
    product(qkv, w->qkv, h, HIDDEN + 2 * KEYS, HIDDEN);
    turn(qkv, HEADS + KEY_HEADS, position);
    memcpy(cache[layer].k[position], qkv + HIDDEN, sizeof cache[layer].k[position]);
    memcpy(cache[layer].v[position], qkv + HIDDEN + KEYS, sizeof cache[layer].v[position]);
    attend(a, qkv, layer, position);
    product(o, w->out, a, HIDDEN, HIDDEN);
    for (int i = 0; i < HIDDEN; i++) x[i] += o[i];
    norm(h, x, w->between);
    product(gates, w->gate_up, h, 2 * INNER, HIDDEN);
    for (int i = 0; i < INNER; i++) inner[i] = gates[i] / (1 + exp(-gates[i])) * gates[INNER + i];
    product(o, w->down, inner, HIDDEN, INNER);
    for (int i = 0; i < HIDDEN; i++) x[i] += o[i];
}

double reference_distance(const int32_t *tokens, int prompt, int count)
{
    double furthest = 0;
    draw_all();
    for (int at = 0; at < count - 1 && at < MOST_TOKENS; at++) {
        double x[HIDDEN], h[HIDDEN], logits[VOCABULARY], best = -INFINITY;
        for (int i = 0; i < HIDDEN; i++) x[i] = (double)model.tokens[tokens[at] * HIDDEN + i];
        for (int l = 0; l < LAYERS; l++) run_layer(x, l, at);
        if (at + 1 < prompt) continue;
        norm(h, x, model.behind);
        product(logits, model.head, h, VOCABULARY, HIDDEN);
        for (int v = 0; v < VOCABULARY; v++) best = fmax(best, logits[v]);
        furthest = fmax(furthest, best - logits[tokens[at + 1]]);
    }
    return furthest;
}
