/* util_gemm_build.h -- how the epilogues of util_gemm.c are written, a step a line; and those of heads, which
 * util_gemm_heads.c has. */
#ifndef UTIL_GEMM_BUILD_H
#define UTIL_GEMM_BUILD_H

#include <string.h>

#include "util_gemm.h"

/* Here they have short names. */
#define add_buffer gemm_add_buffer
#define add_step gemm_add_step

static inline int64_t rows_of(const struct gemm_rig *r) { return r->p.dim[0] * r->p.dim[1]; }

static inline int add_port(struct gemm_rig *r, enum use_role role, int buffer, const int64_t *stride)
{
    struct tensor_use port = {
        .role = role, .buffer = buffer, .dtype = r->dtype[buffer], .value = buffer, .index = -1};
    if (stride) memcpy(port.stride, stride, 3 * sizeof *stride);
    port.stride[3] = r->p.segment * port.stride[2];
    r->port[r->p.ports] = port;
    return r->p.ports++;
}

/* A tensor over the whole domain, columns wide. */
static inline int tile_port(struct gemm_rig *r, enum use_role role, coda_dtype t, int64_t columns, int pitch)
{
    int64_t row = columns + pitch, stride[3] = {r->p.sample ? 0 : r->p.dim[1] * row, row, 1};
    int b = add_buffer(r, t, rows_of(r) * row, role == USE_STORE ? FILL_OUTPUT : FILL_NORMAL);
    return add_port(r, role, b, stride);
}

static inline int load_tile(struct gemm_rig *r, coda_dtype t, bool half)
{
    int port = tile_port(r, USE_LOAD, t, gemm_width(r, half), 0);
    return add_step(r, (struct step){.kind = STEP_LOAD, .cls = CLASS_TILE, .port = port, .half = half});
}

static inline int load_column(struct gemm_rig *r, coda_dtype t, bool half)
{
    int b = add_buffer(r, t, gemm_width(r, half), FILL_NORMAL);
    int port = add_port(r, USE_LOAD, b, (int64_t[]){0, 0, 1});
    return add_step(r, (struct step){.kind = STEP_LOAD, .cls = CLASS_COL, .port = port, .half = half});
}

static inline int load_row(struct gemm_rig *r, coda_dtype t, int64_t below)
{
    int b = add_buffer(r, t, rows_of(r), below ? FILL_IDS : FILL_NORMAL);
    r->below[b] = below;
    int port = add_port(r, USE_LOAD, b, (int64_t[]){r->p.dim[1], 1, 0});
    return add_step(r, (struct step){.kind = STEP_LOAD, .cls = CLASS_ROW, .port = port});
}

static inline int load_partial(struct gemm_rig *r, const char *reduce, int blocks)
{
    const struct prim *prim = prim_find(reduce);
    int b = add_buffer(r, CODA_F32, rows_of(r) * blocks * prim->state, FILL_POSITIVE);
    int port = add_port(r, USE_PARTIAL_LOAD, b, NULL);
    r->port[port].reduce = prim;
    r->port[port].blocks = blocks;
    return add_step(r, (struct step){.kind = STEP_PARTIAL, .cls = CLASS_ROW, .port = port});
}

static inline int load_scalar(struct gemm_rig *r, coda_dtype t)
{
    int port = add_port(r, USE_SCALAR, add_buffer(r, t, 1, t == CODA_I32 ? FILL_IDS : FILL_NORMAL), NULL);
    r->below[r->port[port].buffer] = 5;
    return add_step(r, (struct step){.kind = STEP_SCALAR, .cls = CLASS_ROW, .port = port});
}

static inline int gather(struct gemm_rig *r, coda_dtype t, int id, int64_t rows)
{
    int port =
        add_port(r, USE_GATHER, add_buffer(r, t, rows * r->p.dim[2], FILL_NORMAL), (int64_t[]){0, 0, 1});
    r->port[port].index = id;
    r->port[port].table_rows = rows;
    r->port[port].table_stride = r->p.dim[2];
    return add_step(r, (struct step){.kind = STEP_LOAD, .cls = CLASS_TILE, .port = port});
}

static inline int map(struct gemm_rig *r, const char *name, int a, int b, const float *params)
{
    struct step s = {
        .kind = STEP_MAP, .prim = prim_find(name), .nin = b < 0 ? 1 : 2, .in = {a, b}, .port = -1};
    if (params) memcpy(s.param, params, sizeof *params * (size_t)s.prim->params);
    s.cls = b < 0 || r->step[a].cls == r->step[b].cls ? r->step[a].cls : CLASS_TILE;
    s.half = r->step[a].half || (b >= 0 && r->step[b].half);
    return add_step(r, s);
}

static inline int lane(struct gemm_rig *r, int x, int which)
{
    return add_step(r, (struct step){.kind = STEP_LANE,
                                     .cls = CLASS_TILE,
                                     .half = true,
                                     .nin = 1,
                                     .in = {x},
                                     .lane = which,
                                     .port = -1});
}

static inline int rotate(struct gemm_rig *r, int x, int position)
{
    return add_step(r, (struct step){.kind = STEP_PAIR,
                                     .cls = CLASS_TILE,
                                     .nin = position < 0 ? 1 : 2,
                                     .in = {x, position},
                                     .port = -1});
}

/* Positions of x on so many axes, which have the frequencies one section after the other, or in turn. */
static inline int rotate_on_axes(struct gemm_rig *r, int x, int axes, bool in_turn)
{
    int64_t pairs = r->p.pairing.rotary / 2;
    int at[MOST_AXES];
    for (int i = 0; i < axes; i++) at[i] = load_row(r, CODA_I32, 5000);
    for (int i = axes; --i >= 0; pairs -= r->p.pairing.section[i])
        r->p.pairing.section[i] = i ? r->p.pairing.rotary / 2 / axes - (i == 1) : pairs;
    r->p.pairing.interleaves = in_turn;
    x = rotate(r, x, at[0]);
    for (int i = 1; i < axes; i++) r->step[x].in[r->step[x].nin++] = at[i];
    return x;
}

static inline void reduce(struct gemm_rig *r, const char *name, int x, int key)
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

static inline void store_padded(struct gemm_rig *r, int x, coda_dtype t, int pitch)
{
    bool half = r->step[x].half;
    int port = tile_port(r, USE_STORE, t, gemm_width(r, half), pitch);
    add_step(r, (struct step){
                    .kind = STEP_STORE, .cls = CLASS_TILE, .half = half, .nin = 1, .in = {x}, .port = port});
}

static inline void store(struct gemm_rig *r, int x) { store_padded(r, x, r->p.a.dtype, 0); }

static inline void add_to_sum(struct gemm_rig *r, int x)
{
    store_padded(r, x, CODA_F32, 0);
    struct tensor_use *port = &r->port[r->p.ports - 1];
    port->effect = EFFECT_ADD;
    r->fill[port->buffer] = FILL_SUM;
}

/* Every second element of a tensor, and those between them. */
static inline void twin_ports(struct gemm_rig *r, enum use_role role, coda_dtype t, int port[2])
{
    int64_t row = 2 * r->p.dim[2], stride[3] = {r->p.dim[1] * row, row, 2};
    int b = add_buffer(r, t, rows_of(r) * row, role == USE_STORE ? FILL_OUTPUT : FILL_NORMAL);
    port[0] = add_port(r, role, b, stride), port[1] = add_port(r, role, b, stride);
    r->port[port[1]].offset = 1;
}

/* ---- util_gemm_heads.c ---- */

/* QK-norm: rms_norm of each head of q and k, then rope; q, k and v stored apart. */
void normed_heads(struct gemm_rig *r, int acc);
void normed_heads_on_axes(struct gemm_rig *r, int acc);
/* LayerNorm of each head, whose two statistics are one state; the whole product is stored too. */
void centred_heads(struct gemm_rig *r, int acc);
/* The largest of each head, of all columns; nothing else. */
void largest_of_heads(struct gemm_rig *r, int acc);
/* Norms of two latent vectors that one product makes: statistics of some of its columns. */
void latent_vectors(struct gemm_rig *r, int acc);

#endif
