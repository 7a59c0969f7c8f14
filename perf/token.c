/*
 * token.c -- one token of a decoder behind others in a cache: eight layers and a head, whose products are
 * launched beside attention.
 *
 *     token    a LLaMA shape, and how many keys there are: 7b/1024
 *
 * Its sides: "coda" is given its position, its slot and the number of keys, as a server does; "made" makes
 * slot and number itself, so that attention knows late which keys are old; "dense" has no attention: the
 * projection reads q; "read" sums as many bytes as all weights, keys and values have.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

enum { LAYERS = 8, ROOM = 256 }; /* rows of a cache behind the last key */
enum { CODA, MADE, DENSE, READ };

static const struct way way[SIDES] = {{"coda", 0, CODA_FOLD_NONE},
                                      {"made", 0, CODA_FOLD_NONE},
                                      {"dense", 0, CODA_FOLD_NONE},
                                      {"read", 0, CODA_FOLD_NONE}};

/* A figure's n is D, its k is F, its variant a shape and a number of keys. */
static const struct shape {
    const char *name;
    int64_t hidden, inner, words;
    int heads, kv_heads, columns;
} shapes[] = {{"7b", 4096, 11008, 32000, 32, 32, 128},
              {"8b", 4096, 14336, 128256, 32, 8, 128},
              {"1b", 2048, 8192, 128256, 32, 8, 64},
              {"small", 256, 512, 768, 8, 2, 32}}; /* for the CPU device */
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const int64_t contexts[] = {1024, 8192};

static const struct shape *shape_of(const struct figure *f) { return &shapes[f->variant % SHAPES]; }
static int64_t keys_of(const struct figure *f)
{
    return contexts[f->variant / SHAPES];
} /* the new one included */
static int64_t kv_columns(const struct figure *f)
{
    return (int64_t)shape_of(f)->kv_heads * shape_of(f)->columns;
}
static int64_t qkv_columns(const struct figure *f) { return f->n + 2 * kv_columns(f); }

static bool number(const struct figure *f, const char *tensor, int64_t i, float *out)
{
    (void)i;
    if (!strcmp(tensor, "lengths")) *out = (float)keys_of(f);
    else if (!strcmp(tensor, "position") || !strcmp(tensor, "slot")) *out = (float)(keys_of(f) - 1);
    else return false;
    return true;
}

/* ---- Graphs ---- */

/* Where the token is: its position [1, 1], which is its row of the caches too, and the number of keys [1]. */
struct place {
    coda_value position, slot, lengths;
};

static struct place place(coda_graph *g, int side)
{
    struct place p = {.position = coda_input(g, "position", CODA_I32, 2, (int64_t[]){1, 1})};
    if (side == MADE) {
        coda_value one = coda_constant(g, CODA_I32, 1), zero = coda_constant(g, CODA_I32, 0);
        p.slot = coda_cast(g, coda_add(g, p.position, zero), CODA_I32);
        p.lengths = coda_reshape(g, coda_cast(g, coda_add(g, p.position, one), CODA_I32), 1, (int64_t[]){1});
        return p;
    }
    p.slot = coda_input(g, "slot", CODA_I32, 2, (int64_t[]){1, 1});
    p.lengths = coda_input(g, "lengths", CODA_I32, 1, (int64_t[]){1});
    return p;
}

static coda_value own(coda_graph *g, const char *name, int l, int rank, int64_t n, int64_t k)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%s.%d", name, l);
    return coda_weight(g, l ? numbered : name, CODA_BF16, rank, (int64_t[]){n, k});
}

static coda_value norm(coda_graph *g, const struct figure *f, coda_value x, const char *gain, int l)
{
    return coda_rms_norm(g, x, own(g, gain, l, 1, f->n, 1), 1e-5f);
}

static coda_value rotated(coda_graph *g, const struct figure *f, coda_value qkv, coda_value position)
{
    const struct shape *s = shape_of(f);
    coda_rope_options opt = CODA_ROPE_OPTIONS_INIT;
    opt.head_dim = s->columns;
    opt.heads = s->heads + s->kv_heads;
    return coda_rope(g, qkv, position, &opt);
}

/* The cache of layer l with the token's row. */
static coda_value cached(coda_graph *g, const struct figure *f, const char *name, int l, coda_value row,
                         coda_value slot)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%s.%d", name, l);
    int64_t dims[] = {1, keys_of(f) + ROOM, kv_columns(f)};
    return coda_append(g, coda_state(g, l ? numbered : name, CODA_BF16, 3, dims), row, slot, NULL);
}

static coda_value attention(coda_graph *g, const struct figure *f, const struct place *p, coda_value qkv,
                            int l)
{
    int64_t d = f->n, kv = kv_columns(f);
    coda_value q = coda_slice(g, qkv, 2, 0, d, 1), k = coda_slice(g, qkv, 2, d, d + kv, 1),
               v = coda_slice(g, qkv, 2, d + kv, d + 2 * kv, 1);
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    opt.heads = shape_of(f)->heads;
    opt.kv_heads = shape_of(f)->kv_heads;
    opt.causal = 1;
    opt.align = CODA_ALIGN_LENGTH;
    return coda_attention(g, q, cached(g, f, "k", l, k, p->slot), cached(g, f, "v", l, v, p->slot),
                          p->lengths, &opt);
}

static coda_value layer(coda_graph *g, const struct figure *f, const struct place *p, coda_value x, int l,
                        int side)
{
    int64_t d = f->n;
    coda_value qkv = coda_matmul(g, norm(g, f, x, "gain", l), own(g, "w_qkv", l, 2, qkv_columns(f), d));
    qkv = rotated(g, f, qkv, p->position);
    coda_value a = side == DENSE ? coda_slice(g, qkv, 2, 0, d, 1) : attention(g, f, p, qkv, l);
    coda_value h = coda_add(g, coda_matmul(g, a, own(g, "w_o", l, 2, d, d)), x);
    coda_value gate_up = coda_matmul(g, norm(g, f, h, "gain_mlp", l), own(g, "w_gate_up", l, 2, 2 * f->k, d));
    coda_value z = coda_swiglu(g, gate_up, CODA_STACKED);
    return coda_add(g, coda_matmul(g, z, own(g, "w_down", l, 2, d, f->k)), h);
}

/* Numbers of all weights, and of the keys and values there are. */
static int64_t numbers(const struct figure *f)
{
    int64_t d = f->n, of_layer = d * (qkv_columns(f) + d + 3 * f->k) + 2 * keys_of(f) * kv_columns(f);
    return LAYERS * of_layer + d * shape_of(f)->words;
}

static coda_graph *build(const struct figure *f, int side)
{
    if (side > READ) return NULL;
    coda_graph *g = coda_graph_new();
    if (side == READ) {
        coda_output(
            g, "sums",
            coda_row_sum(g, coda_weight(g, "all", CODA_BF16, 2, (int64_t[]){numbers(f) / f->n, f->n})));
        return g;
    }
    struct place p = place(g, side);
    coda_value x = coda_input(g, "x", CODA_BF16, 3, (int64_t[]){1, 1, f->n});
    for (int l = 0; l < LAYERS; l++) x = layer(g, f, &p, x, l, side);
    coda_value last = norm(g, f, x, "gain_head", 0);
    coda_output(g, "y", coda_matmul(g, last, own(g, "w_head", 0, 2, shape_of(f)->words, f->n)));
    return g;
}

/* ---- The same in fp64: equal numbers in all layers ---- */

/* Turns `count` heads by rope, base 10000. */
static void turn(const struct figure *f, int64_t count, double *x)
{
    int64_t columns = shape_of(f)->columns, half = columns / 2;
    for (int64_t i = 0; i < count * half; i++) {
        double *a = x + i / half * columns + i % half, *b = a + half, u = *a, v = *b;
        double t = (double)(keys_of(f) - 1) * pow(10000, -(double)(i % half) / (double)half);
        *a = u * cos(t) - v * sin(t);
        *b = u * sin(t) + v * cos(t);
    }
}

/* One head's result: keys of the cache, and behind them the token's own. */
static void attend(const struct figure *f, const struct tensor *cache[2], const double *own[2], int64_t at,
                   const double *q, double *y)
{
    int64_t keys = keys_of(f), columns = shape_of(f)->columns;
    double *weight = room(keys), sum = 0;
    for (int64_t t = 0; t < keys; t++) {
        weight[t] = 0;
        for (int64_t c = 0; c < columns; c++)
            weight[t] +=
                q[c] * (t < keys - 1 ? tensor_at(cache[0], t * kv_columns(f) + at + c) : own[0][at + c]);
        sum += weight[t] = exp(weight[t] / sqrt((double)columns));
    }
    for (int64_t c = 0; c < columns; c++) y[c] = 0;
    for (int64_t t = 0; t < keys; t++)
        for (int64_t c = 0; c < columns; c++)
            y[c] += weight[t] / sum *
                    (t < keys - 1 ? tensor_at(cache[1], t * kv_columns(f) + at + c) : own[1][at + c]);
    free(weight);
}

static double *attended(struct figure *f, double *qkv)
{
    const struct shape *s = shape_of(f);
    const struct tensor *cache[] = {figure_tensor(f, "k"), figure_tensor(f, "v")};
    const double *own[] = {qkv + f->n, qkv + f->n + kv_columns(f)};
    turn(f, s->heads + s->kv_heads, qkv);
    double *y = room(f->n);
    for (int h = 0; h < s->heads; h++)
        attend(f, cache, own, (int64_t)(h / (s->heads / s->kv_heads)) * s->columns, qkv + h * s->columns,
               y + h * s->columns);
    free(qkv);
    return y;
}

static double *logits(struct figure *f)
{
    double *x = rows_of(f, "x", 1, (int64_t[]){0});
    for (int l = 0; l < LAYERS; l++) {
        double *h = times(f, "w_o", 1, attended(f, times(f, "w_qkv", 1, normed(f, "gain", 1, f->n, x))));
        add(h, x, f->n);
        double *z = times(f, "w_gate_up", 1, normed(f, "gain_mlp", 1, f->n, h));
        gate(1, f->k, z);
        free(x);
        x = times(f, "w_down", 1, z);
        add(x, h, f->n);
        free(h);
    }
    double *last = normed(f, "gain_head", 1, f->n, x);
    free(x);
    return times(f, "w_head", 1, last);
}

/* Eight layers that round to 8 bits some six times each. */
static void check(struct figure *f)
{
    double *want = logits(f), limit = 1e-2 * sqrt(LAYERS);
    for (int side = CODA; side <= MADE; side++) {
        double error = distance(f, side, "y", 1, (int64_t[]){0}, want);
        f->error = error <= f->error ? f->error : error; /* NaN stays */
    }
    f->excess = f->error / limit;
    free(want);
}

int main(int argc, char **argv)
{
    enum { CONTEXTS = sizeof contexts / sizeof *contexts };
    static struct figure figure[SHAPES * CONTEXTS];
    bool small = false;
    int n = 0;
    for (int i = 1; i < argc; i++) small = small || !strcmp(argv[i], "--check");
    for (int i = 0; i < SHAPES * CONTEXTS; i++) {
        struct figure *f = &figure[n];
        *f = (struct figure){
            .m = 1, .variant = i, .way = way, .build = build, .number = number, .check = check};
        f->n = shape_of(f)->hidden;
        f->k = shape_of(f)->inner;
        f->small = !strcmp(shape_of(f)->name, "small");
        snprintf(f->name, sizeof f->name, "token/%s/%d", shape_of(f)->name, (int)keys_of(f));
        n += f->small == small;
    }
    return bench_main(argc, argv, "token", figure, n);
}
