/* util_gemm.c -- GEMM programs made by hand: epilogues, and a table of them by shape, layout and tile. */
#include "util_gemm.h"

#include "mainloop.h"
#include "util_gemm_build.h"
#include "util_gemm_tiles.h"

int gemm_add_buffer(struct gemm_rig *r, coda_dtype t, int64_t elements, enum gemm_fill fill)
{
    int i = r->plan.buffers++;
    r->buffer[i] =
        (struct buffer){.space = SPACE_ARG, .arg = i, .bytes = elements * dtype_bytes(t, 1), .value = -1};
    r->dtype[i] = t;
    r->elements[i] = elements;
    r->fill[i] = fill;
    return i;
}

int gemm_add_step(struct gemm_rig *r, struct step s)
{
    s.value = r->p.steps + 100;
    r->step[r->p.steps] = s;
    return r->p.steps++;
}

/* ---- Epilogues ---- */

static int rms_scale(struct gemm_rig *r, int acc)
{
    int s = load_partial(r, "sum_sq", 21); /* more than are in flight at one time */
    return map(r, "mul", acc, map(r, "rsqrt_mean", s, -1, (float[]){0x1p-6f, 1e-5f}), NULL);
}

static void plain(struct gemm_rig *r, int acc) { store(r, acc); }
static void plain_f32(struct gemm_rig *r, int acc) { store_padded(r, acc, CODA_F32, 0); }
static void plain_padded(struct gemm_rig *r, int acc) { store_padded(r, acc, r->p.a.dtype, 3); }
static void scaled(struct gemm_rig *r, int acc) { store(r, rms_scale(r, acc)); }

/* y = rms * acc + x; sum of y^2; y and y * gain are stored. */
static void residual(struct gemm_rig *r, int acc)
{
    int y = map(r, "add", rms_scale(r, acc), load_tile(r, r->p.a.dtype, false), NULL);
    store(r, y);
    reduce(r, "sum_sq", y, -1);
    store(r, map(r, "mul", y, load_column(r, r->p.a.dtype, false), NULL));
}

static void residual_f32(struct gemm_rig *r, int acc)
{
    int y = map(r, "add", acc, load_tile(r, CODA_F32, false), NULL);
    store_padded(r, y, CODA_F32, 0);
    reduce(r, "m2", y, -1);
}

/* A row value goes to memory, from the first tile of its row; nothing else reads it. */
static void row_stored(struct gemm_rig *r, int acc)
{
    int x = map(r, "rsqrt_mean", load_partial(r, "sum_sq", 5), -1, (float[]){0x1p-6f, 0});
    int port = add_port(r, USE_STORE, add_buffer(r, CODA_F32, rows_of(r), FILL_OUTPUT),
                        (int64_t[]){r->p.dim[1], 1, 0});
    add_step(r, (struct step){.kind = STEP_STORE, .cls = CLASS_ROW, .nin = 1, .in = {x}, .port = port});
    store(r, acc);
}

/* Numbers of a run, by elements, by columns and by rows. */
static void by_scalars(struct gemm_rig *r, int acc)
{
    int t = load_scalar(r, CODA_F32), n = load_scalar(r, CODA_I32);
    int y = map(r, "mul", acc, t, NULL);
    struct step col = {.kind = STEP_MAP, .prim = prim_find("add"), .nin = 2, .port = -1, .cls = CLASS_COL};
    col.in[0] = load_column(r, CODA_F32, false), col.in[1] = n;
    y = map(r, "add", y, add_step(r, col), NULL);
    y = map(r, "mul", y, map(r, "softplus", n, -1, NULL), NULL);
    store(r, y);
    reduce(r, "sum", map(r, "sub", y, t, NULL), -1);
}

/* What changes from sample to sample, each a part of the rows. Ports that step by rows do not step by it. */
static int load_of_sample(struct gemm_rig *r, enum step_class cls, coda_dtype t, bool half)
{
    int64_t width = cls == CLASS_ROW ? 1 : gemm_width(r, half), stride[] = {width, 0, cls != CLASS_ROW};
    r->p.sample = r->p.dim[1] / (r->p.dim[1] % 3 == 0 ? 3 : r->p.dim[1] % 5 == 0 ? 5 : 2);
    for (int i = 0; i < r->p.ports; i++)
        if (r->port[i].stride[1]) r->port[i].stride[0] = 0;
    int port = add_port(r, USE_LOAD, add_buffer(r, t, program_samples(&r->p) * width, FILL_NORMAL), stride);
    return add_step(r, (struct step){.kind = STEP_LOAD, .cls = cls, .port = port, .half = half});
}

/* x + g acc + b, g [samples, N]; and times a number of each sample. */
static void gated_residual(struct gemm_rig *r, int acc)
{
    int y = map(r, "mul", acc, load_of_sample(r, CLASS_COL, r->p.a.dtype, false), NULL);
    y = map(r, "add", y, load_tile(r, r->p.a.dtype, false), NULL);
    store(r, map(r, "mul", y, load_of_sample(r, CLASS_ROW, CODA_F32, false), NULL));
    reduce(r, "sum_sq", map(r, "add", y, load_column(r, CODA_F32, false), NULL), -1);
}

/* Samples of few rows: their vectors are tiles. */
static void gated_residual_few(struct gemm_rig *r, int acc)
{
    int y = map(r, "mul", acc, load_of_sample(r, CLASS_TILE, r->p.a.dtype, false), NULL);
    y = map(r, "add", y, load_tile(r, r->p.a.dtype, false), NULL);
    store(r, map(r, "mul", y, load_of_sample(r, CLASS_ROW, CODA_F32, false), NULL));
}

/* The same of a gated output, at both widths. */
static void gated_of_samples(struct gemm_rig *r, int acc)
{
    int x = map(r, "add", acc, load_of_sample(r, CLASS_COL, r->p.a.dtype, false), NULL);
    int y = map(r, "swiglu", lane(r, x, 0), lane(r, x, 1), NULL);
    store(r, map(r, "mul", y, load_of_sample(r, CLASS_COL, CODA_F32, true), NULL));
}

static void bias_gelu(struct gemm_rig *r, int acc)
{
    store(r, map(r, "gelu_erf", map(r, "add", acc, load_column(r, r->p.a.dtype, false), NULL), -1, NULL));
}

static void turned(struct gemm_rig *r, int acc) { store(r, rotate(r, rms_scale(r, acc), -1)); }
static void turned_by_position(struct gemm_rig *r, int acc)
{
    store(r, rotate(r, acc, load_row(r, CODA_I32, 5000)));
}

/* As YaRN does: frequencies and a scale of its own; backwards. */
static void turned_by_frequencies(struct gemm_rig *r, int acc)
{
    int64_t pairs = r->p.pairing.rotary / 2;
    int x = rotate(r, acc, load_row(r, CODA_I32, 5000));
    int port = add_port(r, USE_FREQUENCIES, add_buffer(r, CODA_F32, 2 * pairs, FILL_WEIGHT), NULL);
    r->port[port].table_rows = pairs;
    r->port[port].table_stride = 2;
    r->step[x].port = port;
    r->p.pairing.scale = 1.25f;
    r->p.pairing.inverse = true;
    store(r, x);
}
static void turned_back(struct gemm_rig *r, int acc)
{
    turned_by_frequencies(r, acc);
    r->step[r->p.steps - 2].in[1] = -1;
    r->step[r->p.steps - 2].nin = 1;
}

static void turned_on_axes(struct gemm_rig *r, int acc) { store(r, rotate_on_axes(r, acc, 3, false)); }
static void turned_on_axes_in_turn(struct gemm_rig *r, int acc)
{
    store(r, rotate_on_axes(r, rms_scale(r, acc), 4, true));
}

static void gated(struct gemm_rig *r, int acc)
{
    int x = rms_scale(r, acc);
    store(r, map(r, "swiglu", lane(r, x, 0), lane(r, x, 1), NULL));
}
/* Everything a gated epilogue may do: full-width bias and store, half-width scale, residual, sum. */
static void gated_all(struct gemm_rig *r, int acc)
{
    int x = map(r, "add", acc, load_column(r, r->p.a.dtype, false), NULL);
    int y = map(r, "geglu", lane(r, x, 0), lane(r, x, 1), NULL);
    y = map(r, "mul", y, load_column(r, CODA_F32, true), NULL);
    y = map(r, "add", y, load_tile(r, r->p.a.dtype, true), NULL);
    store(r, x);
    store(r, y);
    reduce(r, "sum", y, -1);
    reduce(r, "max", x, -1);
}

/* A gradient: added to a sum, and stored in 16 bits. */
static void summed(struct gemm_rig *r, int acc)
{
    int x = map(r, "scale", acc, -1, (float[]){0.5f});
    add_to_sum(r, x);
    store(r, x);
}

/* Two tiles come in: dx + gain acc + c x; a norm's backward pass. */
static int two_loaded(struct gemm_rig *r, int acc)
{
    int x = map(r, "mul", load_tile(r, r->p.a.dtype, false), load_row(r, CODA_F32, 0), NULL);
    int y = map(r, "mul", acc, load_column(r, CODA_F32, false), NULL);
    return map(r, "add", map(r, "add", y, load_tile(r, r->p.a.dtype, false), NULL), x, NULL);
}
static void two_fetched(struct gemm_rig *r, int acc)
{
    int y = two_loaded(r, acc);
    store(r, y);
    store(r, map(r, "scale", y, -1, (float[]){3}));
}
static void three_fetched(struct gemm_rig *r, int acc)
{
    int y = map(r, "add", two_loaded(r, acc), load_tile(r, r->p.a.dtype, false), NULL);
    store(r, y);
    add_to_sum(r, y);
    reduce(r, "sum", y, -1);
}
static void mixed(struct gemm_rig *r, int acc)
{
    int y = map(r, "add", acc, load_tile(r, CODA_F32, false), NULL);
    y = map(r, "add", y, load_tile(r, r->p.a.dtype, false), NULL);
    store_padded(r, y, CODA_F16, 0);
    store_padded(r, y, CODA_BF16, 0);
    store_padded(r, y, CODA_F32, 0);
}

/* Gate and up are neighbours in memory, and so are their gradients; the product's are beside them. */
static void twins(struct gemm_rig *r, int acc)
{
    int in[2], out[2], x[2];
    twin_ports(r, USE_LOAD, r->p.a.dtype, in);
    for (int i = 0; i < 2; i++)
        x[i] = add_step(r, (struct step){.kind = STEP_LOAD, .cls = CLASS_TILE, .port = in[i]});
    twin_ports(r, USE_STORE, r->p.a.dtype, out);
    for (int i = 0; i < 2; i++) {
        int y = map(r, "mul", acc, x[!i], NULL);
        add_step(r,
                 (struct step){.kind = STEP_STORE, .cls = CLASS_TILE, .nin = 1, .in = {y}, .port = out[i]});
    }
    store(r, map(r, "swiglu", x[0], x[1], NULL));
    reduce(r, "sum", map(r, "mul", x[0], acc, NULL), -1);
}

/* Both widths of a gated output, in fp32 too. */
static void gated_summed(struct gemm_rig *r, int acc)
{
    int y = map(r, "swiglu", lane(r, acc, 0), lane(r, acc, 1), NULL);
    add_to_sum(r, acc);
    store(r, y);
    store(r, acc);
}

static void loss(struct gemm_rig *r, int acc)
{
    int x = map(r, "scale", acc, -1, (float[]){1.5f});
    reduce(r, "nll", x, load_row(r, CODA_I32, r->p.dim[2]));
}

static void embedded(struct gemm_rig *r, int acc)
{
    int id = load_row(r, CODA_I32, 40);
    store(r, map(r, "add", acc, gather(r, r->p.a.dtype, id, 37), NULL));
}

/* ---- Columns ---- */

static void reduce_columns(struct gemm_rig *r, const char *name, int x)
{
    reduce(r, name, x, -1);
    struct step *s = &r->step[r->p.steps - 1];
    s->axis = r->port[s->port].axis = REDUCE_COLUMNS;
    s->cls = CLASS_TILE;
}

/* A bias's gradient, of what is stored. */
static void bias_gradient(struct gemm_rig *r, int acc)
{
    int y = map(r, "mul", acc, load_tile(r, r->p.a.dtype, false), NULL);
    reduce_columns(r, "sum", y);
    store(r, y);
}

/* A weight's gradient, and that of a gain of its columns. */
static void gain_gradient(struct gemm_rig *r, int acc)
{
    store(r, map(r, "mul", acc, load_column(r, CODA_F32, false), NULL));
    reduce_columns(r, "sum", map(r, "mul", acc, load_tile(r, r->p.a.dtype, false), NULL));
}

static void column_sums(struct gemm_rig *r, int acc)
{
    store(r, acc);
    reduce_columns(r, "sum", acc);
}

/* States of several floats, and a row's beside them. */
static void column_states(struct gemm_rig *r, int acc)
{
    int x = map(r, "add", acc, load_column(r, r->p.a.dtype, false), NULL);
    reduce_columns(r, "m2", x);
    reduce(r, "sum_sq", x, -1);
    reduce_columns(r, "log_sum_exp", x);
    reduce_columns(r, "arg_max", x);
}

/* States of a row that are wider than others. */
static void best(struct gemm_rig *r, int acc)
{
    int x = map(r, "add", acc, load_column(r, r->p.a.dtype, false), NULL);
    reduce(r, "top_8", x, -1);
}

static void best_sixteen(struct gemm_rig *r, int acc) { reduce(r, "top_16", rms_scale(r, acc), -1); }

static void gated_best(struct gemm_rig *r, int acc)
{
    int y = map(r, "swiglu", lane(r, acc, 0), lane(r, acc, 1), NULL);
    store(r, y);
    reduce(r, "top_4", y, -1);
}

static void gated_columns(struct gemm_rig *r, int acc)
{
    int x = map(r, "add", acc, load_column(r, r->p.a.dtype, false), NULL);
    int y = map(r, "swiglu", lane(r, x, 0), lane(r, x, 1), NULL);
    store(r, y);
    reduce_columns(r, "max", x);
    reduce_columns(r, "sum_sq", y);
}

static void turned_columns(struct gemm_rig *r, int acc)
{
    int x = rotate(r, acc, load_row(r, CODA_I32, 5000));
    store(r, x);
    reduce_columns(r, "sum_sq", x);
}
/* clang-format off */
#include "util_gemm_few_heads.h"
#include "util_gemm_kept.h" /* of the epilogues above */
#include "util_gemm_maps.h"

const struct gemm_case gemm_cases[] = {
    {"plain", 1, 256, 384, 192, BF, 0, 0, 0, plain, 0, {0}, {0}},
    {"plain tails", 1, 333, 456, 136, BF, 0, 0, 0, plain, 0, {0}, PP(128, 128)},
    {"plain f16", 1, 200, 264, 72, HF, 0, 0, 0, plain, 0, {0}, PP(128, 192)},
    {"cooperative", 1, 300, 520, 200, BF, 0, 0, 0, plain, 0, {0}, CO(128, 256)},
    {"cooperative tall", 1, 600, 200, 328, BF, 0, 0, 0, plain, 0, {0}, CO(256, 128)},
    {"cooperative largest", 1, 600, 456, 328, BF, 0, 0, 0, scaled, 0, {0}, CO(256, 192)},
    {"one row", 1, 1, 512, 256, BF, 0, 0, 0, plain, 0, {0}, {0}},
    {"one column", 1, 130, 1, 64, BF, 0, 0, 0, plain, 0, {0}, {0}},
    {"k 8", 1, 100, 100, 8, BF, 0, 0, 0, plain, 0, {0}, {0}},
    {"many tiles", 1, 2500, 2500, 128, BF, 0, 0, 0, plain, 0, {0}, PP(128, 128)},
    {"many narrow tiles", 1, 1500, 1100, 96, BF, 0, 0, 0, plain, 0, {0}, PP(64, 64)},
    {"padded pitches", 1, 150, 200, 104, BF, 0, 0, 8, plain_padded, 0, {0}, PP(128, 128)},
    {"odd pitches", 1, 150, 201, 101, BF, 0, 0, 1, plain_padded, 0, {0}, {0}},
    {"f32 out", 1, 150, 200, 104, BF, 0, 0, 0, plain_f32, 0, {0}, PP(128, 128)},
    {"a mn", 1, 136, 200, 72, BF, 1, 0, 0, plain, 0, {0}, PP(128, 128)},
    {"b mn", 1, 136, 200, 72, BF, 0, 1, 0, plain, 0, {0}, PP(128, 128)},
    {"both mn", 1, 264, 328, 136, HF, 1, 1, 8, plain, 0, {0}, CO(128, 256)},
    {"batch", 3, 70, 136, 88, BF, 0, 0, 0, scaled, 0, {0}, PP(64, 128)},
    {"batch b mn", 3, 70, 136, 88, BF, 0, 1, 0, plain, 0, {0}, PP(64, 64)},
    {"scaled", 1, 300, 384, 128, BF, 0, 0, 0, scaled, 0, {0}, PP(128, 192)},
    {"residual", 1, 300, 520, 128, BF, 0, 0, 0, residual, 0, {0}, PP(128, 128)},
    {"residual wide", 1, 300, 520, 128, BF, 0, 0, 0, residual, 0, {0}, PP(128, 192)},
    {"residual low", 2, 150, 200, 128, HF, 0, 0, 0, residual, 0, {0}, PP(64, 64)},
    {"residual narrow by 32", 2, 150, 200, 328, BF, 0, 0, 0, residual, 0, {0}, PP(64, 32)},
    {"residual tall", 1, 600, 200, 128, BF, 0, 0, 0, residual, 0, {0}, CO(256, 128)},
    {"residual, many tiles", 1, 2500, 2504, 128, BF, 0, 0, 0, residual, 0, {0}, PP(128, 128)},
    {"residual, many narrow tiles", 1, 1500, 1104, 96, BF, 0, 0, 0, residual, 0, {0}, PP(64, 64)},
    {"residual odd", 1, 77, 201, 64, BF, 0, 0, 0, residual, 0, {0}, PP(128, 128)},
    {"residual cooperative", 1, 300, 520, 128, HF, 0, 0, 0, residual, 0, {0}, CO(128, 256)},
    {"residual f32", 2, 150, 300, 64, BF, 0, 0, 0, residual_f32, 0, {0}, PP(128, 128)},
    {"bias gelu", 1, 200, 300, 128, BF, 0, 0, 0, bias_gelu, 0, {0}, PP(128, 128)},
    {"rope half 128", 1, 200, 640, 128, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4), PP(128, 128)},
    {"rope split", 1, 200, 640, 128, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4), PP(128, 192)},
    {"rope split 256", 1, 333, 1280, 200, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, HALF(256, 256, 3),
     PP(128, 192)},
    {"rope split, many tiles", 1, 1500, 2560, 96, HF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 17),
     PP(128, 192)},
    {"rope half 64", 2, 100, 320, 128, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(64, 64, 3), {0}},
    {"rope half partial", 1, 200, 640, 64, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, HALF(128, 32, 5),
     PP(128, 128)},
    {"rope half 96", 1, 200, 480, 64, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(96, 96, 5), {0}},
    {"rope half 80", 1, 100, 240, 64, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(80, 32, 3), {0}},
    {"rope half 256", 1, 100, 512, 64, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(256, 256, 2), {0}},
    {"rope near", 1, 200, 640, 64, BF, 0, 0, 0, turned, PAIR_HEADS, NEAR(128, 64, 4), PP(128, 128)},
    {"rope near wide", 1, 300, 640, 64, BF, 0, 0, 0, turned, PAIR_HEADS, NEAR(128, 128, 4), PP(128, 192)},
    {"rope near, odd period", 1, 200, 640, 64, BF, 0, 0, 0, turned, PAIR_HEADS,
     {.head_dim = 64, .rotary = 64, .heads = 9, .base = 10000, .period = 40}, PP(128, 128)},
    {"rope half by frequencies", 1, 200, 640, 64, BF, 0, 0, 0, turned_by_frequencies, PAIR_HEADS,
     HALF(128, 128, 4), PP(128, 128)},
    {"rope split by frequencies", 1, 208, 640, 64, BF, 0, 0, 0, turned_back, PAIR_HEADS, HALF(128, 128, 4),
     PP(128, 192)},
    {"rope near by frequencies", 1, 200, 640, 64, HF, 0, 0, 0, turned_back, PAIR_HEADS, NEAR(128, 64, 4),
     PP(128, 192)},
    {"rope half on axes", 1, 200, 640, 64, BF, 0, 0, 0, turned_on_axes, PAIR_HEADS, HALF(128, 128, 4),
     PP(128, 128)},
    {"rope split on axes", 1, 208, 640, 64, BF, 0, 0, 0, turned_on_axes_in_turn, PAIR_HEADS,
     HALF(128, 128, 4), PP(128, 192)},
    {"rope near on axes", 1, 200, 640, 64, HF, 0, 0, 0, turned_on_axes_in_turn, PAIR_HEADS, NEAR(128, 64, 4),
     PP(128, 192)},
    {"rope near odd heads", 1, 77, 210, 64, HF, 0, 0, 0, turned_by_position, PAIR_HEADS, NEAR(42, 42, 5),
     {0}},
    {"gated stacked", 1, 200, 528, 128, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, PP(128, 128)},
    {"gated interleaved", 1, 200, 528, 128, BF, 0, 0, 0, gated, PAIR_GLU_INTERLEAVED, {0}, PP(128, 128)},
    {"gated wide", 1, 200, 528, 128, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, CO(128, 256)},
    {"gated by 32", 1, 300, 560, 200, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, PP(128, 192)},
    {"gated all by 32", 2, 150, 528, 136, BF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0}, PP(64, 192)},
    {"residual by 32", 1, 300, 520, 128, BF, 0, 0, 0, residual, 0, {0}, PP(128, 96)},
    {"plain by 32", 1, 300, 520, 128, HF, 0, 0, 0, plain, 0, {0}, CO(128, 224)},
    {"gated narrow", 1, 50, 90, 128, BF, 0, 0, 0, gated, PAIR_GLU_INTERLEAVED, {0}, PP(64, 32)},
    {"gated b mn", 2, 90, 400, 72, BF, 0, 1, 0, gated, PAIR_GLU_STACKED, {0}, PP(128, 128)},
    {"gated all neat", 2, 130, 304, 64, BF, 0, 0, 0, gated_all, PAIR_GLU_STACKED, {0}, PP(128, 128)},
    {"gated all wide", 1, 300, 800, 64, HF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0}, CO(128, 256)},
    {"gated all stacked", 1, 130, 290, 64, BF, 0, 0, 0, gated_all, PAIR_GLU_STACKED, {0}, PP(128, 128)},
    {"gated all interleaved", 2, 130, 300, 64, HF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0},
     PP(128, 128)},
    {"summed", 1, 328, 456, 136, BF, 1, 1, 0, summed, 0, {0}, PP(128, 192)},
    {"summed odd", 2, 130, 201, 64, BF, 0, 0, 0, summed, 0, {0}, PP(128, 128)},
    {"summed cooperative", 1, 300, 520, 128, HF, 0, 0, 0, summed, 0, {0}, CO(256, 128)},
    {"summed split", 1, 77, 328, 1000, BF, 0, 0, 0, summed, 0, {0}, SPLIT(64, 128, 4)},
    {"summed by parts", 1, 133, 520, 392, BF, 0, 0, 0, summed, 0, {0}, SCATTER(128, 128, 2, 2)},
    {"summed by a lent ring", 1, 300, 520, 128, BF, 0, 0, 0, plain_f32, 0, {0}, LENT(128, 128, 2, false)},
    {"summed by three", 1, 600, 456, 136, BF, 0, 0, 0, summed, 0, {0}, THREE(192, 128, 1, 1)},
    {"summed, many tiles", 1, 1500, 1104, 96, BF, 0, 0, 0, summed, 0, {0}, PP(64, 64)},
    {"tail summed", 1, 300, 320, 520, BF, 0, 0, 0, summed, 0, {0}, TAIL(128, 192, 1, 128, 2, 8)},
    {"shared b, summed", 1, 400, 600, 128, BF, 0, 0, 0, summed, 0, {0}, SHARED(128, 192, true, 2, 1)},
    {"stream summed", 1, 2, 528, 264, BF, 0, 0, 0, summed, 0, {0}, STREAM(16, 264, 20)},
    {"stream 8 summed", 1, 8, 304, 512, BF, 0, 0, 0, summed, 0, {0}, SKINNY(16, 512, 33)},
    {"stream 16 split summed", 1, 16, 304, 1024, BF, 0, 0, 0, summed, 0, {0}, SKINNY_SPLIT(16, 512, 76, 2)},
    {"f32 summed", 1, 100, 130, 64, FF, 0, 0, 0, summed, 0, {0}, {0}},
    {"two fetched", 1, 333, 456, 136, BF, 0, 1, 0, two_fetched, 0, {0}, PP(128, 192)},
    {"two fetched, many tiles", 1, 2500, 1104, 128, BF, 0, 0, 0, two_fetched, 0, {0}, PP(128, 128)},
    {"two fetched, tall", 2, 300, 200, 128, HF, 0, 0, 0, two_fetched, 0, {0}, CO(256, 128)},
    {"two fetched by three", 1, 600, 456, 136, BF, 0, 0, 0, two_fetched, 0, {0}, THREE(192, 128, 1, 1)},
    {"two fetched by parts", 1, 133, 520, 392, BF, 0, 0, 0, two_fetched, 0, {0}, SCATTER(128, 128, 2, 2)},
    {"tail two fetched", 1, 600, 512, 712, BF, 0, 0, 0, two_fetched, 0, {0}, TAIL(128, 192, 1, 128, 5, 3)},
    {"shared a, two fetched", 1, 300, 600, 128, BF, 0, 0, 0, two_fetched, 0, {0},
     SHARED(128, 128, true, 1, 2)},
    {"three fetched", 1, 300, 520, 128, BF, 0, 0, 0, three_fetched, 0, {0}, PP(128, 192)},
    {"mixed", 1, 300, 520, 128, BF, 0, 0, 0, mixed, 0, {0}, PP(128, 192)},
    {"mixed cooperative", 2, 150, 264, 128, HF, 0, 0, 0, mixed, 0, {0}, CO(128, 128)},
    {"twins", 1, 333, 456, 136, BF, 0, 1, 0, twins, 0, {0}, PP(128, 192)},
    {"twins odd", 2, 90, 201, 64, HF, 0, 0, 0, twins, 0, {0}, PP(128, 128)},
    {"twins, many tiles", 1, 1500, 1104, 96, BF, 0, 0, 0, twins, 0, {0}, PP(128, 128)},
    {"gated summed", 1, 300, 544, 200, BF, 0, 0, 0, gated_summed, PAIR_GLU_STACKED, {0}, PP(128, 192)},
    {"gated summed interleaved", 1, 200, 528, 128, BF, 0, 0, 0, gated_summed, PAIR_GLU_INTERLEAVED, {0},
     CO(128, 256)},
    {"best", 1, 300, 520, 128, BF, 0, 0, 0, best, 0, {0}, PP(128, 128)},
    {"best, cooperative", 2, 150, 600, 72, HF, 0, 1, 0, best, 0, {0}, CO(128, 256)},
    {"best of few", 1, 77, 201, 64, BF, 0, 0, 0, best, 0, {0}, PP(64, 64)},
    {"best sixteen", 1, 200, 392, 128, BF, 0, 0, 0, best_sixteen, 0, {0}, PP(64, 128)},
    {"best by three", 1, 600, 456, 136, BF, 0, 0, 0, best, 0, {0}, THREE(192, 128, 1, 1)},
    {"best, gated", 1, 200, 528, 128, BF, 0, 0, 0, gated_best, PAIR_GLU_STACKED, {0}, PP(128, 128)},
    {"best of f32", 1, 100, 130, 64, FF, 0, 0, 0, best, 0, {0}, {0}},
    {"split best", 1, 17, 200, 1000, BF, 0, 0, 0, best, 0, {0}, SPLIT(64, 64, 4)},
    {"scatter best", 1, 200, 520, 512, BF, 0, 0, 0, best_sixteen, 0, {0}, SCATTER(128, 128, 2, 2)},
    {"tail best", 1, 300, 320, 520, BF, 0, 0, 0, best, 0, {0}, TAIL(64, 192, 1, 128, 2, 8)},
    {"stream best", 1, 2, 528, 264, BF, 0, 0, 0, best, 0, {0}, STREAM(16, 264, 20)},
    {"stream 8 best", 1, 8, 304, 512, BF, 0, 0, 0, best, 0, {0}, SKINNY(16, 512, 33)},
    {"stream 16 best", 1, 16, 304, 1024, BF, 0, 0, 0, best_sixteen, 0, {0}, SKINNY_SPLIT(16, 512, 76, 2)},
    {"loss", 1, 200, 1000, 128, BF, 0, 0, 0, loss, 0, {0}, PP(128, 128)},
    {"loss wide", 1, 200, 1000, 128, BF, 0, 0, 0, loss, 0, {0}, PP(128, 192)},
    {"loss odd", 1, 66, 203, 64, BF, 0, 0, 0, loss, 0, {0}, {0}},
    {"embedded", 1, 66, 200, 64, BF, 0, 0, 0, embedded, 0, {0}, PP(128, 128)},
    {"row stored", 2, 130, 300, 64, BF, 0, 0, 0, row_stored, 0, {0}, PP(128, 128)},
    {"tail", 1, 300, 320, 520, BF, 0, 0, 0, plain, 0, {0}, TAIL(128, 192, 1, 128, 2, 8)},
    {"tail of three", 1, 600, 576, 648, HF, 0, 0, 0, scaled, 0, {0}, TAIL(128, 192, 3, 64, 3, 2)},
    {"tail, many tiles", 1, 2500, 2560, 640, BF, 0, 0, 0, residual, 0, {0}, TAIL(128, 192, 1, 64, 132, 11)},
    {"tail, many blocks", 1, 1500, 1024, 584, BF, 0, 0, 0, plain, 0, {0}, TAIL(128, 192, 2, 128, 7, 5)},
    {"tail, low", 1, 300, 512, 520, HF, 0, 0, 0, residual, 0, {0}, TAIL(64, 192, 1, 128, 3, 2)},
    {"tail, widest", 1, 300, 512, 520, BF, 0, 0, 0, bias_gelu, 0, {0}, TAIL(64, 256, 4, 64, 3, 2)},
    {"tail residual", 1, 600, 512, 712, BF, 0, 0, 0, residual, 0, {0}, TAIL(128, 192, 1, 128, 5, 3)},
    {"tail residual, few rows", 1, 77, 192, 584, BF, 0, 0, 0, residual, 0, {0}, TAIL(128, 128, 1, 64, 2, 1)},
    {"tail f32", 1, 300, 448, 584, BF, 0, 0, 0, residual_f32, 0, {0}, TAIL(128, 128, 1, 64, 2, 2)},
    {"tail f32 out", 1, 300, 448, 616, BF, 0, 0, 0, plain_f32, 0, {0}, TAIL(128, 192, 1, 64, 2, 2)},
    {"tail b mn", 1, 264, 320, 520, BF, 0, 1, 0, residual, 0, {0}, TAIL(128, 192, 1, 128, 2, 2)},
    {"tail both mn", 1, 600, 512, 648, HF, 1, 1, 0, plain, 0, {0}, TAIL(128, 192, 2, 64, 3, 2)},
    {"tail rope near", 1, 300, 640, 648, BF, 0, 0, 0, turned, PAIR_HEADS, NEAR(128, 64, 4),
     TAIL(128, 192, 2, 128, 3, 2)},
    {"tail rope half", 1, 300, 704, 584, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, HALF(64, 64, 11),
     TAIL(128, 192, 1, 128, 3, 2)},
    {"tail rope split", 1, 300, 640, 648, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4),
     TAIL(128, 192, 1, 64, 3, 2)},
    {"tail gated", 1, 600, 704, 648, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, TAIL(128, 192, 1, 128, 3, 2)},
    {"tail gated interleaved", 1, 300, 512, 648, HF, 0, 0, 0, gated, PAIR_GLU_INTERLEAVED, {0},
     TAIL(128, 192, 5, 64, 3, 2)},
    {"tail gated all", 1, 300, 576, 648, BF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0},
     TAIL(64, 192, 3, 128, 3, 4)},
    {"tail loss", 1, 300, 1024, 648, BF, 0, 0, 0, loss, 0, {0}, TAIL(128, 192, 7, 64, 3, 3)},
    {"tail embedded", 1, 300, 256, 584, BF, 0, 0, 0, embedded, 0, {0}, TAIL(128, 128, 2, 64, 2, 2)},
    {"tail row stored", 1, 260, 320, 584, BF, 0, 0, 0, row_stored, 0, {0}, TAIL(128, 192, 2, 64, 2, 1)},
    {"narrow", 1, 5, 520, 328, BF, 0, 0, 0, plain, 0, {0}, SPLIT(64, 64, 1)},
    {"narrow tall", 1, 200, 520, 328, BF, 0, 0, 0, residual, 0, {0}, SPLIT(128, 64, 1)},
    {"split 2", 1, 1, 512, 520, BF, 0, 0, 0, plain, 0, {0}, SPLIT(64, 32, 2)},
    {"split 4", 1, 77, 328, 1000, BF, 0, 0, 0, residual, 0, {0}, SPLIT(64, 64, 4)},
    {"split 8", 1, 17, 200, 2056, HF, 0, 0, 0, residual, 0, {0}, SPLIT(64, 128, 8)},
    {"split tall", 1, 300, 520, 328, BF, 0, 0, 0, residual, 0, {0}, SPLIT(128, 64, 2)},
    {"split more than k", 1, 9, 200, 136, BF, 0, 0, 0, plain, 0, {0}, SPLIT(64, 64, 8)},
    {"split odd", 1, 3, 201, 264, BF, 0, 0, 0, residual, 0, {0}, SPLIT(64, 64, 4)},
    {"split batch", 3, 20, 136, 328, BF, 0, 0, 0, scaled, 0, {0}, SPLIT(64, 32, 2)},
    {"split both mn", 1, 40, 328, 264, BF, 1, 1, 0, plain, 0, {0}, SPLIT(64, 64, 4)},
    {"split f32", 2, 30, 300, 200, BF, 0, 0, 0, residual_f32, 0, {0}, SPLIT(64, 64, 2)},
    {"split gelu", 1, 8, 300, 512, BF, 0, 0, 0, bias_gelu, 0, {0}, SPLIT(64, 32, 4)},
    {"split rope half", 1, 16, 640, 512, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4),
     SPLIT(64, 128, 4)},
    {"split rope near", 1, 7, 640, 512, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, NEAR(128, 64, 4),
     SPLIT(64, 32, 2)},
    {"split gated", 1, 2, 528, 512, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, SPLIT(64, 128, 2)},
    {"split gated all", 2, 33, 290, 392, HF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0}, SPLIT(64, 64, 4)},
    {"split loss", 1, 5, 1000, 512, BF, 0, 0, 0, loss, 0, {0}, SPLIT(64, 64, 4)},
    {"split embedded", 1, 66, 200, 264, BF, 0, 0, 0, embedded, 0, {0}, SPLIT(64, 32, 2)},
    {"split row stored", 2, 13, 300, 264, BF, 0, 0, 0, row_stored, 0, {0}, SPLIT(64, 64, 4)},
    {"scatter 2", 1, 300, 392, 520, BF, 0, 0, 0, plain, 0, {0}, SCATTER(128, 128, 2, 2)},
    {"scatter 4", 1, 200, 520, 1000, HF, 0, 0, 0, plain, 0, {0}, SCATTER(128, 256, 2, 4)},
    {"scatter tall", 1, 600, 200, 1096, BF, 0, 0, 0, plain, 0, {0}, SCATTER(256, 128, 2, 4)},
    {"scatter narrow", 1, 50, 328, 520, BF, 0, 0, 0, residual, 0, {0}, SCATTER(64, 128, 1, 2)},
    {"scatter narrow tall", 1, 200, 328, 520, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0},
     SCATTER(128, 64, 1, 2)},
    {"scatter more than k", 1, 130, 200, 136, BF, 0, 0, 0, plain, 0, {0}, SCATTER(128, 128, 2, 4)},
    {"scatter past the end", 1, 130, 264, 264, BF, 0, 0, 0, residual, 0, {0}, SCATTER(128, 256, 2, 4)},
    {"scatter batch", 3, 150, 136, 328, BF, 0, 0, 0, scaled, 0, {0}, SCATTER(128, 128, 2, 2)},
    {"scatter both mn", 1, 264, 328, 264, BF, 1, 1, 0, plain, 0, {0}, SCATTER(256, 128, 2, 2)},
    {"scatter residual", 1, 300, 520, 520, BF, 0, 0, 0, residual, 0, {0}, SCATTER(128, 128, 2, 4)},
    {"scatter residual wide", 2, 150, 520, 328, HF, 0, 0, 0, residual, 0, {0}, SCATTER(128, 256, 2, 2)},
    {"scatter residual tall", 1, 600, 520, 520, BF, 0, 0, 0, residual, 0, {0}, SCATTER(256, 128, 2, 4)},
    {"scatter residual odd", 1, 77, 201, 264, BF, 0, 0, 0, residual, 0, {0}, SCATTER(128, 128, 2, 2)},
    {"scatter f32", 2, 150, 300, 200, BF, 0, 0, 0, residual_f32, 0, {0}, SCATTER(128, 128, 2, 4)},
    {"scatter gelu", 1, 300, 300, 512, BF, 0, 0, 0, bias_gelu, 0, {0}, SCATTER(256, 128, 2, 2)},
    {"scatter rope half", 1, 300, 1280, 512, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 8),
     SCATTER(128, 256, 2, 2)},
    {"scatter rope split", 1, 300, 640, 512, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, HALF(128, 128, 4),
     SCATTER(256, 128, 2, 2)},
    {"scatter rope split 4", 1, 200, 1024, 520, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 5),
     SCATTER(128, 256, 2, 4)},
    {"scatter rope near", 1, 200, 640, 512, BF, 0, 0, 0, turned, PAIR_HEADS, NEAR(128, 64, 4),
     SCATTER(128, 128, 2, 4)},
    {"scatter gated", 1, 200, 528, 512, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, SCATTER(128, 256, 2, 4)},
    {"scatter gated tall", 1, 300, 528, 512, HF, 0, 0, 0, gated, PAIR_GLU_INTERLEAVED, {0},
     SCATTER(256, 128, 2, 2)},
    {"scatter gated b mn", 1, 200, 528, 520, BF, 0, 1, 0, gated, PAIR_GLU_STACKED, {0},
     SCATTER(128, 128, 2, 2)},
    {"scatter gated all", 2, 133, 290, 392, HF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0},
     SCATTER(128, 128, 2, 4)},
    {"scatter gated all wide", 1, 300, 800, 264, BF, 0, 0, 0, gated_all, PAIR_GLU_STACKED, {0},
     SCATTER(128, 256, 2, 2)},
    {"scatter loss", 1, 200, 1000, 512, BF, 0, 0, 0, loss, 0, {0}, SCATTER(256, 128, 2, 4)},
    {"scatter embedded", 1, 166, 200, 264, BF, 0, 0, 0, embedded, 0, {0}, SCATTER(128, 128, 2, 2)},
    {"scatter row stored", 2, 130, 300, 264, BF, 0, 0, 0, row_stored, 0, {0}, SCATTER(128, 128, 2, 4)},
    {"lent", 1, 300, 456, 1000, BF, 0, 0, 0, plain, 0, {0}, LENT(128, 128, 2, true)},
    {"lent, few k", 1, 300, 520, 72, BF, 0, 0, 0, residual, 0, {0}, LENT(128, 128, 2, false)},
    {"lent, cooperative", 1, 300, 520, 520, BF, 0, 0, 0, residual, 0, {0}, LENT(128, 256, 2, false)},
    {"lent, tall", 1, 600, 200, 584, HF, 0, 0, 0, residual, 0, {0}, LENT(256, 128, 2, false)},
    {"lent, largest", 1, 1500, 1504, 584, BF, 0, 0, 0, residual, 0, {0}, LENT(256, 192, 2, false)},
    {"lent, largest gated", 1, 1500, 1504, 328, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0},
     LENT(256, 192, 2, false)},
    {"lent, largest plain", 1, 2500, 2504, 328, HF, 0, 0, 0, plain, 0, {0}, LENT(256, 192, 2, false)},
    {"lent, tall and narrow", 2, 333, 200, 1000, BF, 0, 0, 0, residual, 0, {0}, LENT(256, 64, 2, false)},
    {"lent, low", 1, 150, 264, 1000, BF, 0, 0, 0, residual, 0, {0}, LENT(64, 128, 2, true)},
    {"lent, low and wide", 1, 150, 520, 648, BF, 0, 0, 0, residual, 0, {0}, LENT(64, 256, 2, true)},
    {"lent, narrow", 2, 133, 136, 1160, BF, 0, 0, 0, residual, 0, {0}, LENT(64, 64, 2, true)},
    {"lent, by 32", 1, 300, 520, 520, BF, 0, 0, 0, residual, 0, {0}, LENT(128, 96, 2, false)},
    {"lent, narrow by 32", 2, 70, 136, 1480, BF, 0, 0, 0, residual, 0, {0}, LENT(64, 32, 2, true)},
    {"lent, few rows", 1, 9, 328, 1096, BF, 0, 0, 0, residual, 0, {0}, LENT(64, 64, 2, true)},
    {"lent, odd", 1, 77, 201, 1000, BF, 0, 0, 0, plain, 0, {0}, LENT(128, 128, 2, true)},
    {"lent, many tiles", 1, 2500, 2504, 328, BF, 0, 0, 0, residual, 0, {0}, LENT(128, 256, 2, false)},
    {"lent, many plain tiles", 1, 2500, 2504, 328, BF, 0, 0, 0, plain, 0, {0}, LENT(256, 128, 2, false)},
    {"lent, many gated tiles", 1, 2500, 2504, 328, HF, 0, 0, 0, gated_all, PAIR_GLU_STACKED, {0},
     LENT(128, 256, 2, false)},
    {"lent, many turns", 1, 1500, 1504, 328, BF, 0, 0, 0, residual, 0, {0}, LENT(128, 128, 2, true)},
    {"lent, both mn", 1, 264, 328, 584, BF, 1, 1, 0, residual, 0, {0}, LENT(128, 256, 2, false)},
    {"lent, three", 1, 600, 520, 456, HF, 0, 0, 0, residual, 0, {0}, LENT(192, 192, 3, false)},
    {"lent, gelu", 1, 200, 304, 1000, BF, 0, 0, 0, bias_gelu, 0, {0}, LENT(128, 64, 2, false)},
    {"lent, rope half", 1, 200, 640, 520, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4),
     LENT(128, 128, 2, false)},
    {"lent, rope split", 1, 200, 640, 520, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, HALF(128, 128, 4),
     LENT(128, 192, 2, true)},
    {"lent, rope near", 1, 200, 640, 520, BF, 0, 0, 0, turned, PAIR_HEADS, NEAR(128, 64, 4),
     LENT(64, 256, 2, true)},
    {"lent, gated", 1, 200, 528, 520, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, LENT(128, 256, 2, false)},
    {"lent, gated all", 2, 133, 304, 520, HF, 0, 0, 0, gated_all, PAIR_GLU_STACKED, {0},
     LENT(128, 128, 2, true)},
    {"lent, row stored", 2, 130, 304, 520, BF, 0, 0, 0, row_stored, 0, {0}, LENT(128, 64, 2, false)},
    {"three", 1, 600, 520, 328, BF, 0, 0, 0, plain, 0, {0}, THREE(192, 192, 1, 1)},
    {"three, many tiles", 1, 2500, 2504, 128, BF, 0, 0, 0, residual, 0, {0}, THREE(192, 128, 1, 1)},
    {"three tails", 2, 333, 456, 136, HF, 0, 0, 8, residual, 0, {0}, THREE(192, 128, 1, 1)},
    {"three residual", 1, 600, 520, 200, HF, 0, 0, 0, residual, 0, {0}, THREE(192, 192, 1, 1)},
    {"three odd", 1, 377, 401, 64, BF, 0, 0, 0, residual, 0, {0}, THREE(192, 192, 1, 1)},
    {"three f32", 2, 250, 300, 64, BF, 0, 0, 0, residual_f32, 0, {0}, THREE(192, 192, 1, 1)},
    {"three both mn", 1, 264, 328, 136, BF, 1, 1, 8, scaled, 0, {0}, THREE(192, 192, 1, 1)},
    {"three gelu", 1, 400, 600, 128, BF, 0, 0, 0, bias_gelu, 0, {0}, THREE(192, 192, 1, 1)},
    {"three rope split", 1, 400, 1280, 128, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 7),
     THREE(192, 192, 1, 1)},
    {"three rope half", 1, 400, 640, 128, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, HALF(64, 64, 7),
     THREE(192, 192, 1, 1)},
    {"three rope 128", 1, 400, 640, 128, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4),
     THREE(192, 128, 1, 1)},
    {"three rope partial", 1, 400, 576, 64, HF, 0, 0, 0, turned_by_position, PAIR_HEADS, HALF(96, 32, 5),
     THREE(192, 192, 1, 1)},
    {"three rope near", 1, 400, 640, 64, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, NEAR(128, 64, 4),
     THREE(192, 192, 1, 1)},
    {"three gated", 1, 400, 528, 128, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, THREE(192, 192, 1, 1)},
    {"three gated all", 1, 300, 800, 64, HF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0},
     THREE(192, 192, 1, 1)},
    {"three gated all stacked", 2, 250, 600, 136, BF, 0, 0, 0, gated_all, PAIR_GLU_STACKED, {0},
     THREE(192, 128, 1, 1)},
    {"three loss", 1, 300, 1000, 128, BF, 0, 0, 0, loss, 0, {0}, THREE(192, 192, 1, 1)},
    {"three embedded", 1, 266, 400, 64, BF, 0, 0, 0, embedded, 0, {0}, THREE(192, 192, 1, 1)},
    {"three row stored", 2, 230, 300, 64, BF, 0, 0, 0, row_stored, 0, {0}, THREE(192, 192, 1, 1)},
    {"square", 1, 2500, 2504, 200, BF, 0, 0, 0, residual, 0, {0}, SQUARE(128, 128, true, 11, 1, 1)},
    {"square, part of a band", 2, 700, 1000, 136, BF, 0, 0, 0, plain, 0, {0}, SQUARE(64, 128, true, 3, 1, 1)},
    {"square, cooperative", 1, 1504, 1104, 328, HF, 1, 1, 0, plain, 0, {0}, SQUARE(128, 64, false, 4, 1, 1)},
    {"square, shared a", 1, 900, 2000, 200, BF, 0, 0, 0, residual, 0, {0}, SQUARE(128, 128, true, 4, 1, 2)},
    {"square, shared b", 2, 700, 1100, 200, BF, 0, 0, 0, residual, 0, {0}, SQUARE(64, 128, true, 3, 2, 1)},
    {"shared b", 1, 500, 520, 328, BF, 0, 0, 0, plain, 0, {0}, SHARED(128, 128, true, 2, 1)},
    {"shared a", 1, 500, 700, 328, BF, 0, 0, 0, plain, 0, {0}, SHARED(128, 192, true, 1, 2)},
    {"shared b, past the end", 2, 300, 700, 200, BF, 0, 0, 0, residual, 0, {0}, SHARED(128, 192, true, 2, 1)},
    {"shared a, past the end", 2, 300, 360, 200, HF, 0, 0, 0, residual, 0, {0}, SHARED(128, 128, true, 1, 2)},
    {"shared b, many tiles", 1, 2500, 2504, 128, BF, 0, 0, 0, residual, 0, {0}, SHARED(128, 128, true, 2, 1)},
    {"shared a, many tiles", 1, 2500, 2504, 128, BF, 0, 0, 0, residual, 0, {0}, SHARED(64, 64, true, 1, 2)},
    {"shared b, cooperative", 1, 600, 800, 328, BF, 0, 0, 0, residual, 0, {0}, SHARED(128, 256, false, 2, 1)},
    {"shared a, cooperative", 1, 600, 600, 328, HF, 0, 0, 0, residual, 0, {0}, SHARED(256, 128, false, 1, 2)},
    {"shared b, three", 1, 900, 520, 328, BF, 0, 0, 0, residual, 0, {0}, THREE(192, 192, 2, 1)},
    {"shared a, three", 1, 500, 1000, 328, BF, 0, 0, 0, residual, 0, {0}, THREE(192, 128, 1, 2)},
    {"shared b by 4", 1, 1000, 300, 200, BF, 0, 0, 0, plain, 0, {0}, SHARED(128, 128, true, 4, 1)},
    {"shared a by 4", 2, 300, 1000, 200, BF, 0, 0, 0, residual, 0, {0}, SHARED(128, 128, false, 1, 4)},
    {"shared b, both mn", 1, 400, 328, 136, BF, 1, 1, 8, plain, 0, {0}, SHARED(128, 256, false, 2, 1)},
    {"shared a, both mn", 1, 200, 520, 136, HF, 1, 1, 0, plain, 0, {0}, SHARED(128, 128, true, 1, 2)},
    {"shared b, odd", 1, 377, 401, 64, BF, 0, 0, 0, residual, 0, {0}, SHARED(128, 112, true, 2, 1)},
    {"shared b, f32", 2, 250, 300, 64, BF, 0, 0, 0, residual_f32, 0, {0}, SHARED(128, 128, true, 2, 1)},
    {"shared b, gelu", 1, 400, 600, 128, BF, 0, 0, 0, bias_gelu, 0, {0}, SHARED(128, 192, true, 2, 1)},
    {"shared b, rope split", 1, 400, 1280, 128, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 7),
     SHARED(128, 192, true, 2, 1)},
    {"shared b by 4, rope split", 1, 600, 1280, 128, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(256, 256, 4),
     SHARED(128, 192, true, 4, 1)},
    {"shared a, rope split", 1, 400, 1280, 128, BF, 0, 0, 0, turned_by_position, PAIR_HEADS,
     HALF(256, 256, 3), SHARED(128, 192, true, 1, 2)},
    {"shared b, rope half", 1, 400, 640, 128, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4),
     SHARED(128, 128, true, 2, 1)},
    {"shared a, rope near", 1, 400, 640, 64, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, NEAR(128, 64, 4),
     SHARED(128, 256, false, 1, 2)},
    {"shared b, gated", 1, 400, 528, 128, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0},
     SHARED(128, 192, true, 2, 1)},
    {"shared b by 4, gated", 1, 600, 528, 128, BF, 0, 0, 0, gated, PAIR_GLU_INTERLEAVED, {0},
     SHARED(128, 128, true, 4, 1)},
    {"shared a, gated", 2, 300, 600, 128, BF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0},
     SHARED(128, 256, false, 1, 2)},
    {"shared b, gated b mn", 2, 300, 400, 72, BF, 0, 1, 0, gated, PAIR_GLU_STACKED, {0},
     SHARED(128, 128, true, 2, 1)},
    {"shared b, gated three", 1, 600, 528, 128, BF, 0, 0, 0, gated_all, PAIR_GLU_STACKED, {0},
     THREE(192, 192, 2, 1)},
    {"shared b, loss", 1, 300, 1000, 128, BF, 0, 0, 0, loss, 0, {0}, SHARED(128, 192, true, 2, 1)},
    {"shared a, embedded", 1, 266, 400, 64, BF, 0, 0, 0, embedded, 0, {0}, SHARED(128, 128, true, 1, 2)},
    {"shared a, row stored", 2, 230, 300, 64, BF, 0, 0, 0, row_stored, 0, {0}, SHARED(64, 128, true, 1, 2)},
    {"stream", 1, 1, 4096, 520, BF, 0, 0, 0, scaled, 0, {0}, STREAM(16, 520, 132)},
    {"stream residual", 1, 1, 1072, 1000, BF, 0, 0, 8, residual, 0, {0}, STREAM(16, 504, 132)},
    {"stream two rows", 1, 2, 528, 6152, HF, 0, 0, 0, residual, 0, {0}, STREAM(16, 3080, 7)},
    {"stream one block", 1, 2, 16, 8, BF, 0, 0, 0, residual_f32, 0, {0}, STREAM(16, 8, 1)},
    {"stream gelu", 1, 1, 304, 11008, BF, 0, 0, 0, bias_gelu, 0, {0}, STREAM(16, 5504, 76)},
    {"stream rope half", 1, 2, 640, 512, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4),
     STREAM(128, 512, 132)},
    {"stream rope partial", 1, 2, 480, 264, HF, 0, 0, 0, turned_by_position, PAIR_HEADS, HALF(96, 32, 4),
     STREAM(96, 264, 50)},
    {"stream rope near", 1, 1, 640, 512, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, NEAR(128, 64, 4),
     STREAM(16, 512, 33)},
    {"stream rope by frequencies", 1, 2, 640, 512, BF, 0, 0, 0, turned_by_frequencies, PAIR_HEADS,
     HALF(128, 128, 4), STREAM(128, 512, 132)},
    {"stream rope on axes", 1, 2, 640, 512, BF, 0, 0, 0, turned_on_axes, PAIR_HEADS, HALF(128, 128, 4),
     STREAM(128, 512, 132)},
    {"stream gated", 1, 1, 528, 512, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, STREAM(16, 512, 132)},
    {"stream gated interleaved", 1, 2, 528, 512, BF, 0, 0, 0, gated, PAIR_GLU_INTERLEAVED, {0},
     STREAM(16, 512, 31)},
    {"stream gated all", 1, 1, 592, 392, HF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0},
     STREAM(16, 392, 60)},
    {"stream gated all stacked", 1, 2, 592, 392, BF, 0, 0, 8, gated_all, PAIR_GLU_STACKED, {0},
     STREAM(16, 200, 60)},
    {"stream loss", 1, 1, 4000, 512, BF, 0, 0, 0, loss, 0, {0}, STREAM(16, 512, 132)},
    {"stream embedded", 1, 2, 208, 264, BF, 0, 0, 0, embedded, 0, {0}, STREAM(16, 264, 20)},
    {"stream row stored", 1, 2, 304, 264, BF, 0, 0, 0, row_stored, 0, {0}, STREAM(16, 264, 30)},
    {"stream 5 columns", 1, 2, 5, 64, HF, 0, 0, 0, residual_f32, 0, {0}, STREAM(16, 64, 3)},
    {"stream 501 columns best", 1, 1, 501, 264, BF, 0, 0, 0, best, 0, {0}, STREAM(16, 264, 31)},
    {"stream 8, 309 columns", 1, 8, 309, 512, BF, 0, 0, 0, residual, 0, {0}, SKINNY(16, 512, 33)},
    {"stream 7, 1999 columns loss", 1, 7, 1999, 512, HF, 0, 0, 0, loss, 0, {0}, SKINNY(16, 512, 132)},
    {"stream 8", 1, 8, 1072, 512, BF, 0, 0, 8, residual, 0, {0}, SKINNY(16, 512, 132)},
    {"stream 16", 1, 16, 1072, 1280, BF, 0, 0, 8, residual, 0, {0}, SKINNY(16, 1024, 131)},
    {"stream 3", 1, 3, 272, 1280, HF, 0, 0, 0, scaled, 0, {0}, SKINNY(16, 768, 44)},
    {"stream 5 f32", 1, 5, 48, 256, BF, 0, 0, 0, residual_f32, 0, {0}, SKINNY(16, 256, 20)},
    {"stream 9 gelu", 1, 9, 304, 4096, BF, 0, 0, 0, bias_gelu, 0, {0}, SKINNY(16, 1024, 33)},
    {"stream 8 gelu", 1, 8, 304, 11008, BF, 0, 0, 0, bias_gelu, 0, {0}, SKINNY(16, 1024, 76)},
    {"stream 16 loss", 1, 16, 2000, 1024, BF, 0, 0, 0, loss, 0, {0}, SKINNY(16, 1024, 60)},
    {"stream 7 loss", 1, 7, 2000, 512, HF, 0, 0, 0, loss, 0, {0}, SKINNY(16, 512, 132)},
    {"stream 2 rope", 1, 2, 640, 512, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4),
     SKINNY(128, 512, 132)},
    {"stream 12 rope", 1, 12, 640, 512, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4),
     SKINNY(128, 512, 77)},
    {"stream 8 rope partial", 1, 8, 480, 256, HF, 0, 0, 0, turned_by_position, PAIR_HEADS, HALF(96, 32, 4),
     SKINNY(96, 256, 50)},
    {"stream 16 rope near", 1, 16, 640, 768, BF, 0, 0, 0, turned_by_position, PAIR_HEADS, NEAR(128, 64, 4),
     SKINNY(16, 768, 33)},
    {"stream 8 gated", 1, 8, 528, 512, BF, 0, 0, 0, gated, PAIR_GLU_STACKED, {0}, SKINNY(16, 256, 132)},
    {"stream 16 gated", 1, 16, 528, 512, BF, 0, 0, 0, gated, PAIR_GLU_INTERLEAVED, {0}, SKINNY(16, 512, 31)},
    {"stream 16 gated all", 1, 16, 592, 256, HF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0},
     SKINNY(16, 256, 60)},
    {"stream 8 gated all", 1, 8, 592, 768, BF, 0, 0, 8, gated_all, PAIR_GLU_STACKED, {0},
     SKINNY(16, 512, 60)},
    {"stream 8 split", 1, 8, 1072, 512, BF, 0, 0, 8, residual, 0, {0}, SKINNY_SPLIT(16, 256, 132, 2)},
    {"stream 16 split", 1, 16, 4096, 4096, BF, 0, 0, 0, residual, 0, {0}, SKINNY_SPLIT(16, 1024, 132, 2)},
    {"stream 8 split odd", 1, 8, 304, 2304, BF, 0, 0, 0, bias_gelu, 0, {0}, SKINNY_SPLIT(16, 768, 54, 2)},
    {"stream 13 split short", 1, 13, 304, 768, HF, 0, 0, 0, loss, 0, {0}, SKINNY_SPLIT(16, 256, 76, 2)},
    {"stream 16 split rope", 1, 16, 640, 1024, BF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 4),
     SKINNY_SPLIT(128, 512, 78, 2)},
    {"stream 9 split gated", 1, 9, 528, 1536, BF, 0, 0, 0, gated_all, PAIR_GLU_STACKED, {0},
     SKINNY_SPLIT(16, 768, 30, 2)},
    {"stream 5 split f32", 1, 5, 64, 1024, BF, 0, 0, 0, residual_f32, 0, {0}, SKINNY_SPLIT(16, 512, 20, 2)},
    {"stream 4 embedded", 1, 4, 208, 512, BF, 0, 0, 0, embedded, 0, {0}, SKINNY(16, 512, 20)},
    {"stream 11 row stored", 1, 11, 304, 512, BF, 0, 0, 0, row_stored, 0, {0}, SKINNY(16, 512, 30)},
    {"f32", 1, 150, 201, 101, FF, 0, 0, 0, plain, 0, {0}, {0}},
    {"f32 mn", 2, 67, 65, 33, FF, 1, 1, 3, residual, 0, {0}, {0}},
    {"f32 rope", 1, 100, 256, 64, FF, 0, 0, 0, turned, PAIR_HEADS, HALF(128, 128, 1), {0}},
    {"f32 rope by frequencies", 1, 100, 256, 64, FF, 0, 0, 0, turned_by_frequencies, PAIR_HEADS,
     NEAR(128, 96, 1), {0}},
    {"f32 rope on axes", 1, 100, 256, 64, FF, 0, 0, 0, turned_on_axes, PAIR_HEADS, NEAR(128, 96, 1), {0}},
    {"f32 gated b mn", 1, 100, 130, 64, FF, 0, 1, 0, gated_all, PAIR_GLU_INTERLEAVED, {0}, {0}},
    {"no k", 1, 100, 130, 0, BF, 0, 0, 0, residual, 0, {0}, {0}},
    {"pitches of 4", 1, 150, 200, 100, BF, 0, 0, 4, plain, 0, {0}, {0}},
    {"pitches of 2", 2, 77, 202, 100, HF, 0, 0, 2, residual, 0, {0}, {0}},
    {"both mn, pitches of 4", 2, 140, 204, 77, BF, 1, 1, 0, plain, 0, {0}, {0}},
    {"both mn, pitches of 2", 1, 134, 200, 101, HF, 1, 1, 2, residual, 0, {0}, {0}},
    {"both mn, odd pitches", 1, 133, 201, 72, BF, 1, 1, 0, bias_gelu, 0, {0}, {0}},
    {"gated, pitches of 4", 1, 150, 304, 100, BF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0}, {0}},
    {"gated b mn, halves of 2", 1, 90, 204, 72, HF, 0, 1, 4, gated, PAIR_GLU_STACKED, {0}, {0}},
    {"gated interleaved b mn", 2, 90, 300, 72, BF, 0, 1, 4, gated, PAIR_GLU_INTERLEAVED, {0}, {0}},
    {"stream paced", 1, 1, 1072, 2048, BF, 0, 0, 0, residual, 0, {0}, PACED(16, 2048, 3, 4)},
    {"columns", 1, 300, 200, 72, BF, 0, 0, 0, column_sums, 0, {0}, {0}},
    {"columns bias", 1, 333, 456, 72, BF, 0, 0, 0, bias_gradient, 0, {0}, PP(128, 192)},
    {"columns gain", 1, 304, 400, 136, BF, 1, 1, 0, gain_gradient, 0, {0}, PP(128, 192)},
    {"columns gain, wide", 1, 304, 520, 72, BF, 1, 1, 0, gain_gradient, 0, {0}, CO(128, 256)},
    {"columns gain, tall", 1, 600, 200, 72, HF, 0, 0, 0, gain_gradient, 0, {0}, CO(256, 128)},
    {"columns gain, largest", 1, 600, 392, 72, BF, 0, 0, 0, gain_gradient, 0, {0}, CO(256, 192)},
    {"columns gain, lent", 1, 300, 520, 264, BF, 0, 0, 0, gain_gradient, 0, {0}, LENT(128, 256, 2, false)},
    {"columns bias, tail", 1, 300, 1088, 72, BF, 0, 0, 0, bias_gradient, 0, {0}, TAIL(128, 192, 5, 64, 7, 8)},
    {"columns many states", 1, 190, 300, 72, BF, 0, 0, 0, column_states, 0, {0}, PP(128, 128)},
    {"columns many states, wide", 1, 190, 300, 72, HF, 0, 0, 0, column_states, 0, {0}, CO(128, 256)},
    {"columns odd", 3, 77, 101, 64, BF, 0, 0, 0, column_sums, 0, {0}, PP(64, 112)},
    {"columns narrow", 1, 40, 264, 200, BF, 0, 0, 0, column_sums, 0, {0}, SPLIT(64, 64, 1)},
    {"columns split", 1, 130, 264, 328, BF, 0, 0, 0, column_sums, 0, {0}, SPLIT(64, 64, 4)},
    {"columns scatter", 1, 200, 264, 328, BF, 0, 0, 0, gain_gradient, 0, {0}, SCATTER(128, 128, 2, 2)},
    {"columns three", 1, 500, 264, 72, BF, 0, 0, 0, gain_gradient, 0, {0}, THREE(192, 128, 1, 2)},
    {"columns shared, past the end", 2, 300, 360, 72, HF, 0, 0, 0, gain_gradient, 0, {0},
     SHARED(128, 128, true, 2, 1)},
    {"columns many tiles", 1, 1100, 600, 64, BF, 0, 0, 0, column_sums, 0, {0},
     SQUARE(128, 128, true, 2, 1, 1)},
    {"columns gated", 1, 300, 400, 72, BF, 0, 0, 0, gated_columns, PAIR_GLU_STACKED, {0}, PP(128, 192)},
    {"columns gated, interleaved", 2, 200, 300, 72, BF, 0, 0, 0, gated_columns, PAIR_GLU_INTERLEAVED, {0},
     CO(128, 256)},
    {"columns gated, tail", 1, 300, 704, 72, BF, 0, 0, 0, gated_columns, PAIR_GLU_STACKED, {0},
     TAIL(128, 192, 1, 128, 3, 2)},
    {"columns turned", 1, 200, 640, 64, BF, 0, 0, 0, turned_columns, PAIR_HEADS, HALF(128, 128, 4),
     PP(128, 128)},
    {"columns turned, split", 1, 200, 640, 64, BF, 0, 0, 0, turned_columns, PAIR_HEADS, HALF(128, 128, 4),
     PP(128, 192)},
    {"columns turned, near", 1, 200, 640, 64, BF, 0, 0, 0, turned_columns, PAIR_HEADS, NEAR(128, 64, 4),
     CO(128, 256)},
    {"columns f32", 2, 150, 90, 51, FF, 0, 0, 0, bias_gradient, 0, {0}, {0}},
    {"stream one in flight", 1, 2, 304, 6152, HF, 0, 0, 0, residual, 0, {0}, PACED(16, 3080, 2, 1)},
    {"scalars", 1, 300, 520, 200, BF, 0, 0, 0, by_scalars, 0, {0}, PP(128, 128)},
    {"scalars, odd", 2, 77, 201, 101, HF, 0, 0, 0, by_scalars, 0, {0}, {0}},
    {"scalars, stream", 1, 1, 528, 512, BF, 0, 0, 0, by_scalars, 0, {0}, STREAM(16, 512, 20)},
    {"scalars, stream 9", 1, 9, 528, 512, BF, 0, 0, 0, by_scalars, 0, {0}, SKINNY(16, 512, 20)},
    {"samples", 1, 768, 520, 200, BF, 0, 0, 0, gated_residual, 0, {0}, PP(128, 128)},
    {"samples, odd rows", 1, 333, 520, 200, BF, 0, 0, 0, gated_residual, 0, {0}, PP(128, 128)},
    {"samples, wide", 1, 1008, 520, 200, BF, 0, 0, 0, gated_residual, 0, {0}, PP(128, 192)},
    {"samples, short", 1, 325, 264, 200, HF, 0, 0, 0, gated_residual, 0, {0}, CO(256, 128)},
    {"samples, odd columns", 1, 201, 201, 64, BF, 0, 0, 0, gated_residual, 0, {0}, PP(64, 64)},
    {"samples, tail", 1, 624, 512, 712, BF, 0, 0, 0, gated_residual, 0, {0}, TAIL(128, 192, 1, 128, 5, 3)},
    {"samples, lent", 1, 336, 520, 520, BF, 0, 0, 0, gated_residual, 0, {0}, LENT(128, 256, 2, false)},
    {"samples, scatter", 1, 333, 520, 520, BF, 0, 0, 0, gated_residual, 0, {0}, SCATTER(128, 128, 2, 4)},
    {"samples, split", 1, 375, 200, 264, BF, 0, 0, 0, gated_residual, 0, {0}, SPLIT(64, 64, 4)},
    {"samples, three", 1, 1008, 520, 200, BF, 0, 0, 0, gated_residual, 0, {0}, THREE(192, 192, 1, 1)},
    {"samples, shared b", 1, 1008, 520, 328, BF, 0, 0, 0, gated_residual, 0, {0},
     SHARED(128, 256, false, 2, 1)},
    {"samples, gated", 1, 384, 528, 128, BF, 0, 0, 0, gated_of_samples, PAIR_GLU_STACKED, {0}, PP(128, 192)},
    {"samples, interleaved", 1, 402, 800, 64, HF, 0, 0, 0, gated_of_samples, PAIR_GLU_INTERLEAVED, {0},
     CO(128, 192)},
    {"samples of few rows", 1, 165, 264, 136, BF, 0, 0, 0, gated_residual_few, 0, {0}, PP(128, 128)},
    {"samples, stream", 1, 2, 528, 512, BF, 0, 0, 0, gated_residual_few, 0, {0}, STREAM(16, 512, 20)},
    {"samples, stream 15", 1, 15, 528, 512, BF, 0, 0, 0, gated_residual_few, 0, {0}, SKINNY(16, 512, 20)},
    {"samples, f32", 1, 201, 201, 101, FF, 0, 0, 0, gated_residual, 0, {0}, {0}},
    {"heads half", 1, 200, 640, 64, BF, 0, 0, 0, normed_heads, PAIR_HEADS, HALF(128, 128, 4), PP(128, 128)},
    {"heads half 64", 1, 200, 640, 128, HF, 0, 0, 0, normed_heads, PAIR_HEADS, HALF(64, 32, 7), PP(128, 192)},
    {"heads half on axes", 1, 200, 640, 64, BF, 0, 0, 0, normed_heads_on_axes, PAIR_HEADS, HALF(128, 128, 4),
     PP(128, 128)},
    {"heads near", 1, 300, 768, 64, BF, 0, 1, 0, normed_heads, PAIR_HEADS, NEAR(128, 64, 4), CO(128, 256)},
    {"heads near 256", 2, 100, 1024, 64, BF, 0, 0, 0, normed_heads, PAIR_HEADS,
     NEAR(256, 256, 3), PP(64, 256)},
    {"heads 32", 1, 100, 512, 64, BF, 0, 0, 8, normed_heads, 0, NEAR(32, 32, 12), {0}},
    {"heads 16, 192 columns", 1, 150, 384, 72, HF, 0, 0, 0, normed_heads, 0, NEAR(16, 16, 12), {0}},
    {"heads centred", 1, 200, 640, 64, BF, 0, 0, 0, centred_heads, 0, NEAR(128, 128, 4), PP(128, 128)},
    {"heads centred 64", 2, 130, 448, 64, HF, 0, 0, 0, centred_heads, 0, NEAR(64, 64, 5), {0}},
    {"heads 192", 1, 100, 768, 64, BF, 0, 0, 0, normed_heads, PAIR_HEADS, HALF(192, 192, 3), {0}},
    {"heads, largest", 1, 100, 640, 64, BF, 0, 0, 0, largest_of_heads, 0, NEAR(64, 64, 5), {0}},
    {"heads, cooperative", 1, 300, 768, 64, BF, 0, 0, 0, normed_heads, PAIR_HEADS,
     HALF(128, 128, 4), CO(128, 256)},
    {"heads, 256 rows", 1, 500, 768, 64, BF, 0, 0, 0, normed_heads, PAIR_HEADS,
     HALF(128, 128, 4), CO(256, 128)},
    {"heads, lent", 1, 300, 768, 520, BF, 0, 0, 0, normed_heads, PAIR_HEADS,
     NEAR(128, 128, 4), LENT(128, 256, 2, false)},
    {"heads, split", 1, 16, 640, 512, BF, 0, 0, 0, normed_heads, PAIR_HEADS,
     HALF(128, 128, 4), SPLIT(64, 128, 2)},
    {"heads, scattered", 1, 100, 1024, 512, BF, 0, 0, 0, normed_heads, PAIR_HEADS,
     HALF(64, 64, 8), SCATTER(64, 128, 1, 2)},
    {"heads, tail", 1, 300, 704, 584, BF, 0, 0, 0, normed_heads, PAIR_HEADS,
     HALF(64, 64, 7), TAIL(128, 192, 1, 128, 5, 3)},
    {"heads, shared b", 1, 400, 768, 128, BF, 0, 0, 0, normed_heads, PAIR_HEADS,
     HALF(128, 128, 4), SHARED(128, 128, true, 2, 1)},
    {"heads, few rows", 1, 3, 640, 512, BF, 0, 0, 0, normed_heads, PAIR_HEADS, HALF(128, 128, 4), {0}},
    {"heads, f32", 1, 70, 512, 64, FF, 0, 0, 0, normed_heads, PAIR_HEADS, HALF(64, 64, 6), {0}},
    KEPT_CASES LATENT_CASES HEADS_OF_FEW_ROWS MAP_CASES STREAM_MMA_CASES F8_CASES
};
/* clang-format on */
const int gemm_case_count = ARRAY_SIZE(gemm_cases);
