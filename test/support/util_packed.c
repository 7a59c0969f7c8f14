/* util_packed.c -- graphs that read a packed weight, each in another way. */
#include "util_packed.h"

const char *const packed_formats[] = {"q4_0",          "q4_1",
                                      "q5_0",          "q5_1",
                                      "q8_0",          "q4_k",
                                      "q5_k",          "q6_k",
                                      "mxfp4",         "nvfp4",
                                      "fp8_block",     "int4_g128_f16_zeros",
                                      "int8_row_f32",  "int4_g64_bf16",
                                      "e5m2_g32_f32",  "int8_g32_f16_zeros",
                                      "int4_g256_f32", "int8_g125_bf16_zeros",
                                      "int4_g100_f16", "int5_g24_f16_min",
                                      "e2m1_g40_f32"};
const int packed_format_count = ARRAY_SIZE(packed_formats), packed_whole_count = 17;

/* ---- Products and embeddings ---- */

static int dims_of(const struct packed_sizes *s, int64_t *dim)
{
    int rank = 0;
    if (s->batch) dim[rank++] = s->batch;
    dim[rank++] = s->n;
    dim[rank++] = s->k;
    return rank;
}

static coda_value packed(graph *g, const coda_pack_format *f, const struct packed_sizes *s)
{
    int64_t dim[3];
    int rank = dims_of(s, dim);
    return coda_weight_packed(g, "w", f, rank, dim, CODA_F32);
}

static coda_value expanded(graph *g, const struct packed_sizes *s)
{
    int64_t dim[3];
    int rank = dims_of(s, dim);
    return coda_weight(g, "w", CODA_F32, rank, dim);
}

static coda_value rows_of(graph *g, const char *name, const struct packed_sizes *s, int64_t columns)
{
    int64_t dim[] = {s->batch, s->m, columns};
    return coda_input(g, name, s->dtype ? s->dtype : CODA_F32, s->batch ? 3 : 2, s->batch ? dim : dim + 1);
}

/* In fp32, whatever x is. */
static coda_value multiplied(graph *g, coda_value x, coda_value w, bool kn)
{
    coda_value y = kn ? coda_matmul_kn(g, x, w) : coda_matmul(g, x, w);
    if (coda_graph_status(g) != CODA_OK) return y;
    g->node[g->nodes - 1].attr.matmul.f32 = 1;
    g->node[g->nodes - 1].type.dtype = CODA_F32;
    return y;
}

static void product(graph *g, coda_value w, const struct packed_sizes *s)
{
    coda_output(g, "y", multiplied(g, rows_of(g, "x", s, s->k), w, false));
}

static void turned(graph *g, coda_value w, const struct packed_sizes *s)
{
    coda_output(g, "y", multiplied(g, rows_of(g, "x", s, s->n), w, true));
}

static void transposed(graph *g, coda_value w, const struct packed_sizes *s)
{
    int perm[] = {0, 2, 1}, flat[] = {1, 0};
    w = coda_transpose(g, w, s->batch ? perm : flat);
    coda_output(g, "y", multiplied(g, rows_of(g, "x", s, s->n), w, false));
}

/* Rows 3 to n - 2, whichever row block they begin in. */
static void some_rows(graph *g, coda_value w, const struct packed_sizes *s)
{
    w = coda_slice(g, w, s->batch ? 1 : 0, MIN(3, s->n - 1), s->n - (s->n > 5), 1);
    coda_output(g, "y", multiplied(g, rows_of(g, "x", s, s->k), w, false));
}

static void every_other_row(graph *g, coda_value w, const struct packed_sizes *s)
{
    w = coda_slice(g, w, s->batch ? 1 : 0, 0, s->n, 2);
    coda_output(g, "y", multiplied(g, rows_of(g, "x", s, s->k), w, false));
}

/* Halves of the first row, of which the second begins anywhere in a group. */
static void halves_of_a_row(graph *g, coda_value w, const struct packed_sizes *s)
{
    int64_t halves = s->k % 2 ? 1 : 2, dim[] = {s->batch, halves, s->k / halves};
    w = coda_slice(g, w, s->batch ? 1 : 0, 0, 1, 1);
    w = coda_reshape(g, w, s->batch ? 3 : 2, s->batch ? dim : dim + 1);
    coda_output(g, "y", multiplied(g, rows_of(g, "x", s, dim[2]), w, false));
}

static void some_columns(graph *g, coda_value w, const struct packed_sizes *s)
{
    int64_t from = s->k / 3, to = s->k - s->k / 5;
    w = coda_slice(g, w, s->batch ? 2 : 1, from, to, 1);
    coda_output(g, "y", multiplied(g, rows_of(g, "x", s, to - from), w, false));
}

/* Scales of rows ahead of the product, as a checkpoint with two levels of them may have it. */
static void scaled_before(graph *g, coda_value w, const struct packed_sizes *s)
{
    int64_t dim[] = {s->batch, s->n, 1};
    coda_value scale = coda_weight(g, "s", CODA_F32, s->batch ? 3 : 2, s->batch ? dim : dim + 1);
    coda_output(g, "y", multiplied(g, rows_of(g, "x", s, s->k), coda_mul(g, w, scale), false));
}

static void behind_a_norm(graph *g, coda_value w, const struct packed_sizes *s)
{
    coda_value x = rows_of(g, "x", s, s->k), gain = coda_weight(g, "gain", CODA_F32, 1, &s->k),
               bias = coda_weight(g, "bias", CODA_F32, 1, &s->k);
    coda_output(g, "y", coda_matmul(g, coda_layer_norm(g, x, gain, bias, 1e-5f), w));
    coda_output(g, "z", coda_matmul(g, coda_rms_norm(g, x, gain, 1e-5f), w));
}

static void gated(graph *g, coda_value w, const struct packed_sizes *s)
{
    coda_value y = multiplied(g, rows_of(g, "x", s, s->k), w, false);
    int axis = s->batch ? 2 : 1;
    coda_value gate = coda_slice(g, y, axis, 0, s->n / 2, 1),
               up = coda_slice(g, y, axis, s->n / 2, s->n / 2 * 2, 1);
    coda_output(g, "y", coda_mul(g, coda_silu(g, gate), up));
}

/* Beside bf16 a thread decodes eight of a row at a time, else four. */
static void looked_up(graph *g, coda_value w, const struct packed_sizes *s)
{
    coda_value ids = coda_input(g, "i", CODA_I32, 1, &s->m);
    if (s->batch) w = coda_reshape(g, coda_slice(g, w, 0, 1, 2, 1), 2, (int64_t[]){s->n, s->k});
    coda_value y = coda_embedding(g, w, ids);
    coda_output(g, "y", y);
    coda_output(g, "z", coda_rms_norm(g, coda_embedding(g, w, ids), CODA_NONE, 1e-5f));
    if (s->dtype != CODA_BF16) return;
    coda_value gain = coda_cast(g, coda_weight(g, "gain", CODA_BF16, 1, &s->k), CODA_F32);
    coda_output(g, "u", coda_mul(g, coda_embedding(g, w, ids), gain));
}

static void differentiated(graph *g, coda_value w, const struct packed_sizes *s)
{
    coda_value x = rows_of(g, "x", s, s->k), y = coda_matmul(g, coda_gelu_tanh(g, x), w);
    coda_value loss = coda_row_sum(g, coda_reshape(g, coda_mul(g, y, y), 1, (int64_t[]){-1}));
    coda_value dx;
    coda_grad(g, &loss, NULL, 1, &x, 1, &dx, NULL);
    coda_output(g, "dx", dx);
}

const struct packed_reader packed_readers[] = {{"product", product, false},
                                               {"turned", turned, false},
                                               {"transposed", transposed, false},
                                               {"some rows", some_rows, false},
                                               {"every other row", every_other_row, false},
                                               {"some columns", some_columns, false},
                                               {"halves of a row", halves_of_a_row, false},
                                               {"scaled before", scaled_before, false},
                                               {"behind a norm", behind_a_norm, true},
                                               {"gated", gated, false},
                                               {"looked up", looked_up, false},
                                               {"differentiated", differentiated, true}};

const int packed_reader_count = ARRAY_SIZE(packed_readers);

/* Rows of A in a row block or two, columns and K of parts of records. */
const struct packed_sizes packed_sizes[] = {{5, 48, 256, 0, CODA_F32},  {3, 13, 100, 0, CODA_F32},
                                            {17, 33, 130, 0, CODA_F32}, {2, 16, 320, 3, CODA_F32},
                                            {4, 21, 72, 2, CODA_F32},   {1, 1, 1, 0, CODA_F32},
                                            {2, 37, 1, 0, CODA_F32}};

const int packed_size_count = ARRAY_SIZE(packed_sizes);

graph *packed_graph(const coda_pack_format *f, int reader, const struct packed_sizes *s, bool whole)
{
    graph *g = coda_graph_new();
    packed_readers[reader].make(g, whole ? expanded(g, s) : packed(g, f, s), s);
    return g;
}
