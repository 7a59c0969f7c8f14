/* util_gemm.c -- GEMM programs made by hand: epilogues, and a table of them by shape, layout and tile. */
#include "util_gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "mainloop.h"
#include "util_random.h"

const struct target gemm_target = {.sms = 132, .shared_bytes = 232448, .features = TARGET_HOPPER};

/* ---- Building ---- */

static int64_t rows_of(const struct gemm_rig *r) { return r->p.dim[0] * r->p.dim[1]; }

static int add_buffer(struct gemm_rig *r, coda_dtype t, int64_t elements, enum gemm_fill fill)
{
    int i = r->plan.buffers++;
    r->buffer[i] =
        (struct buffer){.space = SPACE_ARG, .arg = i, .bytes = elements * dtype_size(t), .value = -1};
    r->dtype[i] = t;
    r->elements[i] = elements;
    r->fill[i] = fill;
    return i;
}

static int add_port(struct gemm_rig *r, enum use_role role, int buffer, const int64_t *stride)
{
    struct tensor_use port = {
        .role = role, .buffer = buffer, .dtype = r->dtype[buffer], .value = buffer, .index = -1};
    if (stride) memcpy(port.stride, stride, 3 * sizeof *stride);
    r->port[r->p.ports] = port;
    return r->p.ports++;
}

static int add_step(struct gemm_rig *r, struct step s)
{
    s.value = r->p.steps + 100;
    r->step[r->p.steps] = s;
    return r->p.steps++;
}

/* A tensor over the whole domain, columns wide. */
static int tile_port(struct gemm_rig *r, enum use_role role, coda_dtype t, int64_t columns, int pitch)
{
    int64_t row = columns + pitch, stride[3] = {r->p.dim[1] * row, row, 1};
    int b = add_buffer(r, t, rows_of(r) * row, role == USE_STORE ? FILL_OUTPUT : FILL_NORMAL);
    return add_port(r, role, b, stride);
}

static int load_tile(struct gemm_rig *r, coda_dtype t, bool half)
{
    int port = tile_port(r, USE_LOAD, t, gemm_width(r, half), 0);
    return add_step(r, (struct step){.kind = STEP_LOAD, .cls = CLASS_TILE, .port = port, .half = half});
}

static int load_column(struct gemm_rig *r, coda_dtype t, bool half)
{
    int b = add_buffer(r, t, gemm_width(r, half), FILL_NORMAL);
    int port = add_port(r, USE_LOAD, b, (int64_t[]){0, 0, 1});
    return add_step(r, (struct step){.kind = STEP_LOAD, .cls = CLASS_COL, .port = port, .half = half});
}

static int load_row(struct gemm_rig *r, coda_dtype t, int64_t below)
{
    int b = add_buffer(r, t, rows_of(r), below ? FILL_IDS : FILL_NORMAL);
    r->below[b] = below;
    int port = add_port(r, USE_LOAD, b, (int64_t[]){r->p.dim[1], 1, 0});
    return add_step(r, (struct step){.kind = STEP_LOAD, .cls = CLASS_ROW, .port = port});
}

static int load_partial(struct gemm_rig *r, const char *reduce, int blocks)
{
    const struct prim *prim = prim_find(reduce);
    int b = add_buffer(r, CODA_F32, rows_of(r) * blocks * prim->state, FILL_POSITIVE);
    int port = add_port(r, USE_PARTIAL_LOAD, b, NULL);
    r->port[port].reduce = prim;
    r->port[port].blocks = blocks;
    return add_step(r, (struct step){.kind = STEP_PARTIAL, .cls = CLASS_ROW, .port = port});
}

static int gather(struct gemm_rig *r, coda_dtype t, int id, int64_t rows)
{
    int port =
        add_port(r, USE_GATHER, add_buffer(r, t, rows * r->p.dim[2], FILL_NORMAL), (int64_t[]){0, 0, 1});
    r->port[port].index = id;
    r->port[port].table_rows = rows;
    r->port[port].table_stride = r->p.dim[2];
    return add_step(r, (struct step){.kind = STEP_LOAD, .cls = CLASS_TILE, .port = port});
}

static int map(struct gemm_rig *r, const char *name, int a, int b, const float *params)
{
    struct step s = {
        .kind = STEP_MAP, .prim = prim_find(name), .nin = b < 0 ? 1 : 2, .in = {a, b}, .port = -1};
    if (params) memcpy(s.param, params, sizeof *params * (size_t)s.prim->params);
    s.cls = b < 0 || r->step[a].cls == r->step[b].cls ? r->step[a].cls : CLASS_TILE;
    s.half = r->step[a].half || (b >= 0 && r->step[b].half);
    return add_step(r, s);
}

static int lane(struct gemm_rig *r, int x, int which)
{
    return add_step(r, (struct step){.kind = STEP_LANE,
                                     .cls = CLASS_TILE,
                                     .half = true,
                                     .nin = 1,
                                     .in = {x},
                                     .lane = which,
                                     .port = -1});
}

static int rotate(struct gemm_rig *r, int x, int position)
{
    return add_step(r, (struct step){.kind = STEP_PAIR,
                                     .cls = CLASS_TILE,
                                     .nin = position < 0 ? 1 : 2,
                                     .in = {x, position},
                                     .port = -1});
}

static void reduce(struct gemm_rig *r, const char *name, int x, int key)
{
    int port = add_port(r, USE_PARTIAL_STORE, add_buffer(r, CODA_F32, 0, FILL_OUTPUT), NULL);
    r->port[port].reduce = prim_find(name);
    add_step(r, (struct step){.kind = STEP_REDUCE,
                              .cls = CLASS_ROW,
                              .prim = prim_find(name),
                              .nin = key < 0 ? 1 : 2,
                              .in = {x, key},
                              .half = r->step[x].half,
                              .port = port});
}

static void store_padded(struct gemm_rig *r, int x, coda_dtype t, int pitch)
{
    bool half = r->step[x].half;
    int port = tile_port(r, USE_STORE, t, gemm_width(r, half), pitch);
    add_step(r, (struct step){
                    .kind = STEP_STORE, .cls = CLASS_TILE, .half = half, .nin = 1, .in = {x}, .port = port});
}

static void store(struct gemm_rig *r, int x) { store_padded(r, x, r->p.a.dtype, 0); }

/* ---- Epilogues ---- */

static int rms_scale(struct gemm_rig *r, int acc)
{
    int s = load_partial(r, "sum_sq", 7);
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

static void bias_gelu(struct gemm_rig *r, int acc)
{
    store(r, map(r, "gelu_erf", map(r, "add", acc, load_column(r, r->p.a.dtype, false), NULL), -1, NULL));
}

static void turned(struct gemm_rig *r, int acc) { store(r, rotate(r, rms_scale(r, acc), -1)); }
static void turned_by_position(struct gemm_rig *r, int acc)
{
    store(r, rotate(r, acc, load_row(r, CODA_I32, 5000)));
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

#define PP(m, n)                                                                                             \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 2, .pingpong = true, .band = 8    \
    }
#define CO(m, n)                                                                                             \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 2, .band = 8                      \
    }
#define SPLIT(m, n, blocks)                                                                                  \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 1, .band = 8, .splits = blocks    \
    }
#define SCATTER(m, n, consumers, blocks)                                                                     \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = consumers, .band = 8,             \
        .splits = blocks, .scattered = true                                                                  \
    }
#define THREE(m, n, high, wide)                                                                              \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 3, .band = 4, .cluster_m = high,  \
        .cluster_n = wide                                                                                    \
    }
#define SHARED(m, n, turns, high, wide)                                                                      \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 2, .pingpong = turns, .band = 4,  \
        .cluster_m = high, .cluster_n = wide                                                                 \
    }
/* Bands of `w` columns, and K to and fro. */
#define SQUARE(m, n, turns, w, high, wide)                                                                   \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 2, .pingpong = turns, .band = w,  \
        .across = true, .serpentine = true, .cluster_m = high, .cluster_n = wide                             \
    }
/* The last tiles of each row are narrower: so many, so wide. */
#define TAIL(m, n, count, width, parts, rows)                                                                \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = 2, .pingpong = true,              \
        .band = rows, .tail = count, .tail_bn = width, .blocks = parts                                       \
    }
/* The ring lends slots to the epilogue. */
#define LENT(m, n, consumers, turns)                                                                         \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = m, .bn = n, .bk = 64, .groups = consumers, .pingpong = turns,     \
        .band = 8, .lends = true                                                                             \
    }
#define STREAM(n, piece, parts)                                                                              \
    {                                                                                                        \
        .mainloop = &mainloop_gemv, .bm = 1, .bn = n, .bk = piece, .groups = 2, .band = 1, .blocks = parts   \
    }
#define SKINNY(n, piece, parts)                                                                              \
    {                                                                                                        \
        .mainloop = &mainloop_skinny, .bm = 1, .bn = n, .bk = piece, .groups = 2, .band = 1, .blocks = parts \
    }
#define SKINNY_SPLIT(n, piece, parts, cluster)                                                               \
    {                                                                                                        \
        .mainloop = &mainloop_skinny, .bm = 1, .bn = n, .bk = piece, .groups = 2, .band = 1,                 \
        .blocks = parts, .splits = cluster                                                                   \
    }
#define BF CODA_BF16
#define HF CODA_F16
#define FF CODA_F32
#define HALF(hd, rot, h)                                                                                     \
    {                                                                                                        \
        .head_dim = hd, .rotary = rot, .heads = h, .half = true, .base = 10000, .period = 48                 \
    }
#define NEAR(hd, rot, h)                                                                                     \
    {                                                                                                        \
        .head_dim = hd, .rotary = rot, .heads = h, .half = false, .base = 500000, .period = 48               \
    }

/* clang-format off */
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
    {"gated all interleaved",
     2,
     130,
     300,
     64,
     HF,
     0,
     0,
     0,
     gated_all,
     PAIR_GLU_INTERLEAVED,
     {0},
     PP(128, 128)},
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
    {"lent, gated all", 2, 133, 304, 520, HF, 0, 0, 0, gated_all, PAIR_GLU_INTERLEAVED, {0},
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
    {"stream 16 gated", 1, 16, 528, 512, BF, 0, 0, 0, gated, PAIR_GLU_INTERLEAVED, {0},
     SKINNY(16, 512, 31)},
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
};
/* clang-format on */
const int gemm_case_count = ARRAY_SIZE(gemm_cases);

/* ---- Emitting ---- */

static void set_operand(struct gemm_rig *r, struct tensor_use *o, const struct gemm_case *c, int64_t rows,
                        bool mn, enum gemm_fill fill)
{
    int64_t pitch = (mn ? rows : c->k) + c->pitch, each = pitch * (mn ? c->k : rows);
    each = CEIL_DIV(each, 8) * 8;
    o->dtype = c->dtype;
    o->buffer = add_buffer(r, c->dtype, each * c->batch, fill);
    o->batch = each;
    o->row = mn ? 1 : pitch;
    o->k = mn ? pitch : 1;
    o->value = r->plan.buffers - 1;
}

static void size_states(struct gemm_rig *r)
{
    int blocks = (int)program_states(&r->p, &r->s.tile);
    for (int i = 0; i < r->p.ports; i++) {
        struct tensor_use *port = &r->port[i];
        if (port->role != USE_PARTIAL_STORE) continue;
        port->blocks = blocks;
        r->elements[port->buffer] = rows_of(r) * blocks * port->reduce->state;
        r->buffer[port->buffer].bytes = 4 * r->elements[port->buffer];
    }
}

/* The cheapest tile of one main loop, or another one of it. */
static struct tile tile_of(const struct mainloop *m, const struct program *p, const struct target *target,
                           int64_t number)
{
    struct search s = {.p = p, .target = target, .most = MOST_CANDIDATES};
    s.sms = target->sms, s.shared_bytes = target->shared_bytes;
    m->candidates(&s, TILES_KNOWN);
    return s.tile[number % s.n];
}

static struct tile choose(const struct gemm_rig *r, const struct gemm_case *c, enum gemm_loop loop,
                          const struct target *target)
{
    bool mma = loop == GEMM_MMA && mainloop_mma.supports(target, &r->p);
    if (mma) return tile_of(&mainloop_mma, &r->p, target, c->m + c->n + c->k);
    if (loop != GEMM_HOPPER) return tile_of(&mainloop_simt, &r->p, target, 0);
    struct tile t = tile_choose(&r->p, target);
    if (c->tile.bm && t.mainloop != &mainloop_simt) t = c->tile;
    if (!t.stages) t.stages = tile_stages(&r->p, &c->tile, target->shared_bytes);
    return t;
}

coda_status gemm_emit(const struct gemm_case *c, enum gemm_loop loop, int sms, struct gemm_rig *r)
{
    struct target target = gemm_target;
    if (loop != GEMM_HOPPER) target.features = 0;
    target.sms = sms;
    memset(r, 0, sizeof *r);
    r->plan.buffer = r->buffer;
    r->plan.program = &r->p;
    r->plan.schedule = &r->s;
    r->plan.programs = 1;
    r->p.kind = PROGRAM_GEMM;
    r->p.rank = 3;
    r->p.dim[0] = c->batch, r->p.dim[1] = c->m, r->p.dim[2] = c->n, r->p.k = c->k;
    r->p.port = r->port, r->p.step = r->step;
    r->p.pair = c->pair;
    r->p.rope = c->rope;
    set_operand(r, &r->p.a, c, c->m, c->a_mn, FILL_NORMAL);
    set_operand(r, &r->p.b, c, c->n, c->b_mn, FILL_WEIGHT);
    r->p.b.steady = c->batch == 1; /* else an activation */
    c->epilogue(r, add_step(r, (struct step){.kind = STEP_ACC, .cls = CLASS_TILE, .port = -1}));
    r->s.tile = choose(r, c, loop, &target);
    size_states(r);
    return program_emit(&r->plan, &r->p, &r->s, &target, &r->k);
}

struct tile gemm_any_tile(const struct gemm_case *c, uint64_t number)
{
    enum { MOST = 64 };
    struct tile all[TILE_CLASSES * MOST] = {{0}};
    struct gemm_rig r;
    int n = 0;
    if (gemm_emit(c, GEMM_HOPPER, gemm_target.sms, &r)) return all[0];
    for (int class = 0; class < TILE_CLASSES; class ++)
        n += tile_candidates(&r.p, &gemm_target, class, all + n, MOST);
    gemm_free(&r);
    return all[number % (uint64_t)n];
}

void gemm_free(struct gemm_rig *r)
{
    for (int i = 0; i < r->plan.buffers; i++) free(r->host[i]);
    arena_free(&r->plan.arena);
}

static double draw(const struct gemm_rig *r, int buffer, struct random *g)
{
    switch (r->fill[buffer]) {
    case FILL_WEIGHT: return random_normal(g) / sqrt((double)MAX(r->p.k, 1));
    case FILL_POSITIVE: return fabs(random_normal(g)) + 8;
    case FILL_IDS: return (double)random_below(g, r->below[buffer]);
    default: return random_normal(g);
    }
}

bool gemm_fill(struct gemm_rig *r, uint64_t seed)
{
    for (int b = 0; b < r->plan.buffers; b++) {
        struct random g = {seed + (uint64_t)b};
        size_t bytes = (size_t)r->buffer[b].bytes;
        if (!(r->host[b] = malloc(bytes + 1))) return false;
        memset(r->host[b], 0xff, bytes);
        for (int64_t i = 0; r->fill[b] != FILL_OUTPUT && i < r->elements[b]; i++)
            dtype_store(r->dtype[b], r->host[b], i, draw(r, b, &g));
    }
    return true;
}
