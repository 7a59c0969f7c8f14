/* util_gemm_emit.c -- a case of the table becomes a program, its kernel, and host memory for it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "mainloop.h"
#include "util_device.h"
#include "util_gemm.h"
#include "util_random.h"

/* ---- Emitting ---- */

static void set_operand(struct gemm_rig *r, struct operand *o, const struct gemm_case *c, coda_dtype dtype,
                        int64_t rows, bool mn, enum gemm_fill fill)
{
    int64_t pitch = (mn ? rows : c->k) + c->pitch, each = pitch * (mn ? c->k : rows);
    each = dtype_is_f8(dtype) ? CEIL_DIV(each, 16) * 16 : CEIL_DIV(each, 8) * 8;
    int buffer = gemm_add_buffer(r, dtype, each * c->batch, fill);
    *o = operand_of((struct tensor_use){.dtype = dtype,
                                        .buffer = buffer,
                                        .batch = each,
                                        .row = mn ? 1 : pitch,
                                        .k = mn ? pitch : 1,
                                        .value = r->plan.buffers - 1});
}

static void size_states(struct gemm_rig *r)
{
    const struct tile *t = &r->s.tile;
    for (int i = 0; i < r->p.ports; i++) {
        struct tensor_use *port = &r->port[i];
        if (port->role != USE_PARTIAL_STORE) continue;
        bool columns = port->axis == REDUCE_COLUMNS;
        port->blocks = (int)(columns ? program_column_states(&r->p, t) : program_states(&r->p, t));
        r->buffer[port->buffer].bytes = port_bytes(&r->p, i);
        r->elements[port->buffer] = r->buffer[port->buffer].bytes / 4;
    }
}

/* The cheapest tile of one main loop, or another one of it. */
static struct tile tile_of(const struct mainloop *m, const struct program *p, const struct target *target,
                           int64_t number)
{
    struct search s = {.p = p, .target = target, .most = MOST_CANDIDATES};
    m->candidates(&s, TILES_KNOWN);
    return s.tile[number % s.n];
}

static struct tile choose(const struct gemm_rig *r, const struct gemm_case *c, enum gemm_loop loop,
                          const struct target *target)
{
    const struct mainloop *m = loop == GEMM_FMA ? &mainloop_fma : &mainloop_mma;
    bool any = (loop == GEMM_MMA || loop == GEMM_FMA) && m->supports(target, &r->p);
    if (any) return tile_of(m, &r->p, target, c->m + c->n + c->k);
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
    r->p.pairing = c->rope;
    r->p.pairing.op = prim_find_pair("rope");
    coda_dtype dtype = loop == GEMM_FMA ? CODA_F32 : c->dtype;
    set_operand(r, &r->p.a, c, dtype, c->m, c->a_mn, FILL_NORMAL);
    bool narrow = c->weight != c->dtype && (loop == GEMM_HOPPER || loop == GEMM_SIMT);
    set_operand(r, &r->p.b, c, narrow ? c->weight : dtype, c->n, c->b_mn, FILL_WEIGHT);
    r->p.b.data.steady = c->batch == 1; /* else an activation */
    c->epilogue(r, gemm_add_step(r, (struct step){.kind = STEP_ACC, .cls = CLASS_TILE, .port = -1}));
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
    double spread = r->dtype[buffer] == CODA_I8 ? 30 : 1; /* integers that are not all 0 */
    switch (r->fill[buffer]) {
    case FILL_WEIGHT: return spread * random_normal(g) / sqrt((double)MAX(r->p.k, 1));
    case FILL_POSITIVE: return fabs(random_normal(g)) + 8;
    case FILL_IDS: return (double)random_below(g, r->below[buffer]);
    default: return random_normal(g);
    }
}

void gemm_begin_sum(const struct gemm_rig *r, int b)
{
    for (int64_t i = 0; i < r->elements[b]; i++) dtype_store(r->dtype[b], r->host[b], i, gemm_begin(i));
}

bool gemm_fill(struct gemm_rig *r, uint64_t seed)
{
    for (int b = 0; b < r->plan.buffers; b++) {
        struct random g = {seed + (uint64_t)b};
        size_t bytes = (size_t)r->buffer[b].bytes;
        if (!(r->host[b] = malloc(bytes + 1))) return false;
        if (device_dry()) continue;
        memset(r->host[b], 0xff, bytes);
        if (r->fill[b] == FILL_SUM) gemm_begin_sum(r, b);
        for (int64_t i = 0; r->fill[b] < FILL_OUTPUT && i < r->elements[b]; i++)
            dtype_store(r->dtype[b], r->host[b], i, draw(r, b, &g));
    }
    return true;
}
