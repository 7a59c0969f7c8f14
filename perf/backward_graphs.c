/* backward_graphs.c -- the graphs of backward.c. */
#include "backward.h"

enum { CHUNKS = 4 };

/* ---- Leaves and outputs ---- */

static coda_value matrix(coda_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return coda_input(g, name, CODA_BF16, 2, (int64_t[]){rows, columns});
}

static coda_value weight(coda_graph *g, const char *name, int64_t n, int64_t k)
{
    return coda_weight(g, name, CODA_BF16, 2, (int64_t[]){n, k});
}

static coda_value vector(coda_graph *g, const char *name, int64_t n)
{
    return coda_weight(g, name, CODA_BF16, 1, &n);
}

static coda_value of_rows(coda_graph *g, const char *name, int64_t rows)
{
    return coda_input(g, name, CODA_F32, 2, (int64_t[]){rows, 1});
}

static coda_value swiglu_of(coda_graph *g, coda_value z) { return coda_swiglu(g, z, CODA_STACKED); }

static void gradients(coda_graph *g, coda_dtype weights, const coda_value *y, const coda_value *dy, int ny,
                      const coda_value *x, int nx, coda_value *dx)
{
    coda_grad_options opt = CODA_GRAD_OPTIONS_INIT;
    opt.weights = weights;
    coda_grad(g, y, dy, ny, x, nx, dx, &opt);
}

/* ---- The layer. A figure's n is D and its k is F ---- */

enum { LEAVES = 8 };
static const char *const leaf_name[LEAVES] = {"x0", "y0", "w0", "w1", "w2", "w3", "gain0", "gain1"};

static void forward(coda_graph *g, const struct figure *f, coda_value *x, coda_value *y)
{
    coda_rope_options opt = CODA_ROPE_OPTIONS_INIT;
    opt.head_dim = HEAD;
    opt.heads = 2 * f->n / HEAD;
    for (int i = 0; i < 2; i++) x[i] = matrix(g, leaf_name[i], f->m, f->n);
    for (int w = 0; w < LAYER_WEIGHTS; w++)
        x[2 + w] = weight(g, leaf_name[2 + w], rows_of_weight(f, w), columns_of_weight(f, w));
    for (int i = 6; i < LEAVES; i++) x[i] = vector(g, leaf_name[i], f->n);
    coda_value x1 = coda_add(g, coda_matmul(g, x[1], x[2]), x[0]);
    coda_value z1 = coda_matmul(g, coda_rms_norm(g, x1, x[6], 1e-5f), x[3]);
    y[0] = coda_add(g, coda_matmul(g, swiglu_of(g, z1), x[4]), x1);
    y[1] = coda_rope(g, coda_matmul(g, coda_rms_norm(g, y[0], x[7], 1e-5f), x[5]), CODA_NONE, &opt);
}

/* Sums of two sides must not meet. */
static void output_gradient(coda_graph *g, const char *leaf, coda_value dx, bool sum, int side)
{
    char name[32];
    snprintf(name, sizeof name, "%sd%s", sum && side == UNFUSED ? "u_" : "", leaf);
    if (sum) coda_output_add(g, name, dx);
    else coda_output(g, name, dx);
}

void layer_graph(coda_graph *g, const struct figure *f, int side)
{
    coda_value x[LEAVES], y[2], dy[2], dx[LEAVES];
    bool sums = is(f, "layer-f32") && side != LESS;
    forward(g, f, x, y);
    coda_output(g, "x2", y[0]);
    coda_output(g, "qkv", y[1]);
    dy[0] = matrix(g, "dx2", f->m, f->n);
    dy[1] = matrix(g, "dqkv", f->m, 3 * f->n);
    gradients(g, sums ? CODA_F32 : CODA_BF16, y, dy, 2, x, LEAVES, dx);
    for (int i = 0; i < LEAVES; i++) output_gradient(g, leaf_name[i], dx[i], sums && i > 1, side);
}

/* The gradients of one product, of matrices that lie there. */
static void product_gradients(coda_graph *g, coda_dtype weights, coda_value a, coda_value w, coda_value dy,
                              coda_value *y, coda_value *da_dw)
{
    *y = coda_matmul(g, a, w);
    gradients(g, weights, y, &dy, 1, (coda_value[]){a, w}, 2, da_dw);
}

/* Two products for each weight, and the forward's. */
void layer_products(coda_graph *g, const struct figure *f)
{
    static const char *const dz[] = {"dx1", "dz1", "dx2", "dqkv"};
    for (int w = LAYER_WEIGHTS - 1; w >= 0; w--) {
        int64_t n = rows_of_weight(f, w), k = columns_of_weight(f, w);
        char name[] = {'a', (char)('0' + w), 0};
        coda_value a = matrix(g, name, f->m, k), d = matrix(g, dz[w], f->m, n), y, da_dw[2];
        product_gradients(g, is(f, "layer-f32") ? CODA_F32 : CODA_BF16, a, weight(g, leaf_name[2 + w], n, k),
                          d, &y, da_dw);
        name[0] = 't', coda_output(g, name, da_dw[0]);
        name[0] = 's', coda_output(g, name, da_dw[1]);
        name[0] = 'y';
        if (is(f, "layer-both")) coda_output(g, name, y);
    }
}

/* ---- Its parts ---- */

void swiglu_graph(coda_graph *g, const struct figure *f, int side)
{
    (void)side;
    coda_value x[2] = {matrix(g, "z", f->m, 2 * f->k), weight(g, "w", f->n, f->k)}, dx[2];
    coda_value y = coda_matmul(g, swiglu_of(g, x[0]), x[1]), dy = matrix(g, "dy", f->m, f->n);
    gradients(g, CODA_BF16, &y, &dy, 1, x, 2, dx);
    coda_output(g, "dz", dx[0]);
    coda_output(g, "dw", dx[1]);
}

void rms_graph(coda_graph *g, const struct figure *f, int side)
{
    static const char *const name[] = {"dx", "dw", "dgain"};
    (void)side;
    coda_value x[3] = {matrix(g, "x", f->m, f->n), weight(g, "w", 3 * f->n, f->n), vector(g, "gain", f->n)},
               dx[3];
    coda_value y = coda_matmul(g, coda_rms_norm(g, x[0], x[2], 1e-5f), x[1]),
               dy = matrix(g, "dy", f->m, 3 * f->n);
    gradients(g, CODA_BF16, &y, &dy, 1, x, 3, dx);
    for (int i = 0; i < 3; i++) coda_output(g, name[i], dx[i]);
}

void two_products(coda_graph *g, const struct figure *f)
{
    int64_t n = is(f, "rms") ? 3 * f->n : f->n, k = is(f, "rms") ? f->n : f->k;
    coda_value y, da_dw[2], a = matrix(g, "a", f->m, k);
    product_gradients(g, CODA_BF16, a, weight(g, "w", n, k), matrix(g, "dy", f->m, n), &y, da_dw);
    coda_output(g, "t", da_dw[0]);
    coda_output(g, "s", da_dw[1]);
}

void paper_rms_graph(coda_graph *g, const struct figure *f, int side)
{
    coda_value acc = coda_matmul_kn(g, matrix(g, "dz", f->m, f->k), weight(g, "w", f->k, f->n));
    coda_value r = of_rows(g, "r", f->m), zdz = of_rows(g, "zdz", f->m);
    coda_value normed = coda_mul(g, matrix(g, "x", f->m, f->n), r);
    coda_value t = coda_sub(g, coda_mul(g, acc, vector(g, "gain", f->n)), coda_mul(g, normed, zdz));
    coda_output(g, "dx", coda_add(g, matrix(g, "g", f->m, f->n), coda_mul(g, t, r)));
    if (side == LESS) return;
    coda_output(g, "dgain", coda_reduce_columns(g, "sum", coda_mul(g, acc, normed)));
}

void paper_swiglu_graph(coda_graph *g, const struct figure *f, int side)
{
    (void)side;
    coda_value dy = coda_matmul_kn(g, matrix(g, "dy", f->m, f->k), weight(g, "w", f->k, f->n)), half[2], d[2];
    coda_value z = matrix(g, "z", f->m, 2 * f->n), one = coda_constant(g, CODA_BF16, 1);
    for (int i = 0; i < 2; i++) half[i] = coda_slice(g, z, 1, i, 2 * f->n, 2);
    coda_value s = coda_sigmoid(g, half[0]), a = coda_mul(g, half[0], s);
    coda_value slope = coda_add(g, s, coda_mul(g, a, coda_sub(g, one, s)));
    d[0] = coda_mul(g, coda_mul(g, dy, half[1]), slope);
    d[1] = coda_mul(g, dy, a);
    coda_value dots = coda_add(g, coda_mul(g, half[0], d[0]), coda_mul(g, half[1], d[1]));
    coda_output(g, "y", coda_mul(g, a, half[1]));
    coda_output(g, "dots", coda_row_sum(g, dots));
    coda_output(g, "dz", coda_interleave(g, 1, d, 2));
}

void paper_product(coda_graph *g, const struct figure *f)
{
    const char *in = is(f, "paper/swiglu") ? "dy" : "dz";
    coda_output(g, "t", coda_matmul_kn(g, matrix(g, in, f->m, f->k), weight(g, "w", f->k, f->n)));
}

void weight_product(coda_graph *g, const struct figure *f)
{
    int w = weight_of(f);
    int64_t n = rows_of_weight(f, w), k = columns_of_weight(f, w);
    coda_value y, da_dw[2], x = matrix(g, "x", f->m, k);
    product_gradients(g, CODA_F32, x, weight(g, "w", n, k), matrix(g, "dz", f->m, n), &y, da_dw);
    coda_output(g, "dw", da_dw[1]);
}

void weight_graph(coda_graph *g, const struct figure *f, int side)
{
    (void)side;
    weight_product(g, f);
}

/* ---- Loss: k is the vocabulary ---- */

static coda_value loss_of(coda_graph *g, coda_value x, coda_value w, coda_value target,
                          coda_reduction reduction)
{
    coda_cross_entropy_options opt = CODA_CROSS_ENTROPY_OPTIONS_INIT;
    opt.reduction = reduction;
    return coda_cross_entropy(g, coda_matmul(g, x, w), target, &opt);
}

static coda_value loss_by_chunks(coda_graph *g, const struct figure *f, const coda_value *x,
                                 coda_value target)
{
    coda_linear_cross_entropy_options opt = CODA_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
    opt.rows = f->m / CHUNKS;
    return coda_linear_cross_entropy(g, x[0], x[1], target, &opt);
}

void loss_graph(coda_graph *g, const struct figure *f, int side)
{
    (void)side;
    bool chunks = is(f, "loss-chunks");
    coda_value x[2] = {matrix(g, "x", f->m, f->n), weight(g, "w", f->k, f->n)}, dx[2];
    coda_value target = coda_input(g, "target", CODA_I32, 1, &f->m);
    coda_value y =
        chunks ? loss_by_chunks(g, f, x, target) : loss_of(g, x[0], x[1], target, CODA_REDUCE_MEAN);
    gradients(g, chunks ? CODA_F32 : CODA_BF16, &y, NULL, 1, x, 2, dx);
    coda_output(g, "loss", y);
    coda_output(g, "dx", dx[0]);
    coda_output(g, "dw", dx[1]);
}

void loss_products(coda_graph *g, const struct figure *f)
{
    coda_value y, da_dw[2], x = matrix(g, "x", f->m, f->n), w = weight(g, "w", f->k, f->n);
    product_gradients(g, is(f, "loss") ? CODA_BF16 : CODA_F32, x, w, matrix(g, "dlogits", f->m, f->k), &y,
                      da_dw);
    coda_output(g, "logits", y);
    coda_output(g, "t", da_dw[0]);
    coda_output(g, "s", da_dw[1]);
}

/* ---- Optimisers: m rows of ROW parameters ---- */

static coda_value state(coda_graph *g, const struct figure *f, const char *name, coda_dtype t)
{
    return coda_state(g, name, t, 2, (int64_t[]){f->m, f->n});
}

static coda_value average(coda_graph *g, coda_value old, coda_value now, float beta, float rest)
{
    return coda_add(g, coda_scale(g, old, beta), coda_scale(g, now, rest));
}

/* m and v are moments, c1 and c2 what corrects them for their start; w is what products read. */
void adamw_graph(coda_graph *g, const struct figure *f, int side)
{
    (void)side;
    coda_value master = state(g, f, "master", CODA_F32), m = state(g, f, "m", CODA_F32);
    coda_value v = state(g, f, "v", CODA_F32), w = state(g, f, "w", CODA_BF16);
    coda_value grad = coda_input(g, "grad", CODA_F32, 2, (int64_t[]){f->m, f->n});
    coda_value lr = coda_scalar(g, "lr", CODA_F32), c1 = coda_scalar(g, "c1", CODA_F32);
    coda_value c2 = coda_scalar(g, "c2", CODA_F32), wd = coda_scalar(g, "wd", CODA_F32);
    coda_value m2 = average(g, m, grad, 0.9f, 0.1f),
               v2 = average(g, v, coda_mul(g, grad, grad), 0.95f, 0.05f);
    coda_value root = coda_add(g, coda_sqrt(g, coda_mul(g, v2, c2)), coda_constant(g, CODA_F32, 1e-8));
    coda_value step = coda_add(g, coda_div(g, coda_mul(g, m2, c1), root), coda_mul(g, master, wd));
    coda_value next = coda_sub(g, master, coda_mul(g, step, lr));
    coda_assign(g, m, m2);
    coda_assign(g, v, v2);
    coda_assign(g, master, next);
    coda_assign(g, w, coda_cast(g, next, CODA_BF16));
}

/* 30 bytes a parameter, half of them read: AdamW reads 16 and writes 14. */
void copy_graph(coda_graph *g, const struct figure *f)
{
    int64_t size[] = {f->m * 15 / 4, f->n};
    coda_output(g, "to", coda_scale(g, coda_input(g, "from", CODA_F32, 2, size), 0.5f));
}

void norm_graph(coda_graph *g, const struct figure *f, int side)
{
    (void)side;
    coda_value x = coda_input(g, "grad", CODA_F32, 2, (int64_t[]){f->m, f->n});
    coda_value rows = coda_reshape(g, coda_reduce(g, "sum_sq", x, CODA_NONE), 2, (int64_t[]){1, f->m});
    coda_output(g, "norm", coda_sqrt(g, coda_row_sum(g, rows)));
}

void read_graph(coda_graph *g, const struct figure *f)
{
    coda_output(g, "sums", coda_row_sum(g, coda_input(g, "grad", CODA_F32, 2, (int64_t[]){f->m, f->n})));
}

/* ---- Embedding: a table of k rows; attention: sequences of k tokens ---- */

void embedding_graph(coda_graph *g, const struct figure *f, int side)
{
    (void)side;
    coda_value table = weight(g, "table", f->k, f->n), dtable;
    coda_value y = coda_embedding(g, table, coda_input(g, "ids", CODA_I32, 1, &f->m));
    coda_value dy = matrix(g, "dy", f->m, f->n);
    gradients(g, CODA_F32, &y, &dy, 1, &table, 1, &dtable);
    coda_output(g, "dtable", dtable);
}

void attention_graph(coda_graph *g, const struct figure *f, int side)
{
    static const char *const name[] = {"q", "k", "v", "do"}, *const gradient[] = {"dq", "dk", "dv"};
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    coda_value x[4], dx[3];
    (void)side;
    opt.heads = f->n / head_columns(f);
    opt.kv_heads = opt.heads / heads_grouped(f);
    opt.causal = 1;
    for (int i = 0; i < 4; i++) {
        bool keys = i == 1 || i == 2;
        const int64_t size[] = {f->m / f->k, f->k, keys ? f->n / heads_grouped(f) : f->n};
        x[i] = coda_input(g, name[i], CODA_BF16, 3, size);
    }
    coda_value y = coda_attention(g, x[0], x[1], x[2], CODA_NONE, &opt);
    coda_output(g, "y", y);
    gradients(g, CODA_F32, &y, &x[3], 1, x, 3, dx);
    for (int i = 0; i < 3; i++) coda_output(g, gradient[i], dx[i]);
}
