/* util_program.c -- programs made by hand, with their memory. */
#include "cpu.h"
#include "util_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tests with and without Check use this file. */
static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "rig: %s\n", what);
    abort();
}

void rig_init(struct rig *r, enum program_kind kind, int rank, const int64_t *dim)
{
    memset(r, 0, sizeof *r);
    r->p.kind = kind;
    r->p.rank = rank;
    memcpy(r->p.dim, dim, sizeof *dim * (size_t)rank);
    r->p.step = r->step;
    r->p.port = r->port;
    r->p.spec = &r->attention;
    r->plan.buffer = r->buffer;
    r->plan.program = &r->p;
    r->plan.schedule = &r->s;
    r->plan.programs = 1;
    r->s.tile.mainloop = &mainloop_simt;
}

coda_status program_emit(struct plan *plan, struct program *p, struct schedule *s,
                         const struct target *target, struct kernel *k)
{
    coda_status status = schedule_complete(s, &plan->arena, p, target);
    return status ? status : emit_program(plan, p, s, k, NULL);
}

coda_status rig_emit(struct rig *r, const struct target *target)
{
    return program_emit(&r->plan, &r->p, &r->s, target, &r->k);
}

void rig_free(struct rig *r)
{
    for (int i = 0; i < r->plan.buffers; i++) free(r->args[i]);
    arena_free(&r->plan.arena);
}

static int new_buffer(struct rig *r, coda_dtype t, int64_t elements)
{
    int i = r->plan.buffers++;
    must(i < RIG_BUFFERS, "too many");
    size_t bytes = (size_t)elements * (size_t)dtype_bytes(t, 1);
    r->buffer[i] = (struct buffer){.space = SPACE_ARG, .arg = i, .bytes = (int64_t)bytes, .value = -1};
    r->dtype[i] = t;
    r->elements[i] = elements;
    r->args[i] = calloc(bytes + 1, 1);
    return i;
}

static uint32_t scramble(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

int rig_buffer(struct rig *r, coda_dtype t, int64_t elements, unsigned seed)
{
    int b = new_buffer(r, t, elements);
    for (int64_t i = 0; seed && i < elements; i++)
        rig_set(r, b, i, (double)scramble((uint32_t)i + seed * 0x9e3779b9u) / 0x40000000 - 2);
    return b;
}

int rig_ids(struct rig *r, int64_t elements, int most, unsigned seed)
{
    int b = new_buffer(r, CODA_I32, elements);
    for (int64_t i = 0; i < elements; i++) rig_set(r, b, i, scramble((uint32_t)i + seed) % (unsigned)most);
    return b;
}

double rig_get(const struct rig *r, int buffer, int64_t i)
{
    must(i >= 0 && i < r->elements[buffer], "element out of range");
    return dtype_load(r->dtype[buffer], r->args[buffer], i);
}

void rig_set(struct rig *r, int buffer, int64_t i, double x)
{
    must(i >= 0 && i < r->elements[buffer], "element out of range");
    dtype_store(r->dtype[buffer], r->args[buffer], i, x);
}

/* ---- Ports and steps ---- */

static int add_port(struct rig *r, struct tensor_use port, const int64_t *stride)
{
    must(r->p.ports < RIG_PORTS, "too many");
    port.value = -1;
    if (stride) memcpy(port.stride, stride, sizeof *stride * (size_t)r->p.rank);
    r->port[r->p.ports] = port;
    return r->p.ports++;
}

static int add_step(struct rig *r, struct step step)
{
    must(r->p.steps < RIG_STEPS, "too many");
    step.value = -1;
    r->step[r->p.steps] = step;
    return r->p.steps++;
}

static enum step_class class_of(const struct rig *r, const int64_t *stride)
{
    bool rows = false;
    for (int d = 0; d + 1 < r->p.rank; d++) rows = rows || stride[d];
    return !stride[r->p.rank - 1] ? CLASS_ROW : rows ? CLASS_TILE : CLASS_COL;
}

static const struct prim *prim(const char *name)
{
    const struct prim *p = prim_find(name);
    must(p != NULL, name);
    return p;
}

int rig_acc(struct rig *r)
{
    return add_step(r, (struct step){.kind = STEP_ACC, .cls = CLASS_TILE, .port = -1});
}

int rig_load(struct rig *r, int buffer, int64_t offset, const int64_t *stride)
{
    struct tensor_use port = {
        .role = USE_LOAD, .buffer = buffer, .offset = offset, .dtype = r->dtype[buffer]};
    return add_step(
        r, (struct step){.kind = STEP_LOAD, .cls = class_of(r, stride), .port = add_port(r, port, stride)});
}

int rig_gather(struct rig *r, int table, int64_t rows, int64_t pitch, int id)
{
    struct tensor_use port = {.role = USE_GATHER, .buffer = table, .dtype = r->dtype[table], .index = id};
    port.table_rows = rows;
    port.table_stride = pitch;
    int64_t stride[CODA_MAX_RANK] = {0};
    stride[r->p.rank - 1] = 1;
    return add_step(r,
                    (struct step){.kind = STEP_LOAD, .cls = CLASS_TILE, .port = add_port(r, port, stride)});
}

int rig_partial(struct rig *r, const char *reduce, int buffer, int blocks)
{
    struct tensor_use port = {
        .role = USE_PARTIAL_LOAD, .buffer = buffer, .dtype = CODA_F32, .blocks = blocks};
    port.reduce = prim(reduce);
    return add_step(r,
                    (struct step){.kind = STEP_PARTIAL, .cls = CLASS_ROW, .port = add_port(r, port, NULL)});
}

static enum step_class join(enum step_class a, enum step_class b) { return a == b ? a : CLASS_TILE; }

int rig_map(struct rig *r, const char *name, int a, int b, const float *params)
{
    struct step s = {.kind = STEP_MAP, .prim = prim(name), .in = {a, b}, .nin = b < 0 ? 1 : 2, .port = -1};
    s.cls = b < 0 ? r->step[a].cls : join(r->step[a].cls, r->step[b].cls);
    s.half = r->step[a].half || (b >= 0 && r->step[b].half);
    if (params) memcpy(s.param, params, sizeof *params * (size_t)s.prim->params);
    return add_step(r, s);
}

int rig_lane(struct rig *r, int x, int lane)
{
    struct step s = {
        .kind = STEP_LANE, .cls = CLASS_TILE, .half = true, .in = {x}, .nin = 1, .lane = lane, .port = -1};
    return add_step(r, s);
}

int rig_rope(struct rig *r, int x, int position)
{
    r->p.pairing.op = prim_find_pair("rope");
    struct step s = {
        .kind = STEP_PAIR, .cls = CLASS_TILE, .in = {x, position}, .nin = position < 0 ? 1 : 2, .port = -1};
    return add_step(r, s);
}

int rig_reduce(struct rig *r, const char *name, int x, int key)
{
    struct step s = {.kind = STEP_REDUCE, .cls = CLASS_ROW, .prim = prim(name), .in = {x, key}, .port = -1};
    s.nin = key < 0 ? 1 : 2;
    return add_step(r, s);
}

void rig_reduce_tiles(struct rig *r, const char *name, int x, int key, int buffer, int blocks)
{
    int s = rig_reduce(r, name, x, key);
    struct tensor_use port = {
        .role = USE_PARTIAL_STORE, .buffer = buffer, .dtype = CODA_F32, .blocks = blocks};
    port.reduce = prim(name);
    r->step[s].half = r->step[x].half;
    r->step[s].port = add_port(r, port, NULL);
}

void rig_reduce_columns(struct rig *r, const char *name, int x, int buffer, int blocks)
{
    rig_reduce_tiles(r, name, x, -1, buffer, blocks);
    struct step *s = &r->step[r->p.steps - 1];
    s->axis = r->port[s->port].axis = REDUCE_COLUMNS;
    s->cls = CLASS_TILE;
}

int rig_partial_columns(struct rig *r, const char *reduce, int buffer, int blocks)
{
    int step = rig_partial(r, reduce, buffer, blocks);
    struct step *s = &r->step[step];
    s->axis = r->port[s->port].axis = REDUCE_COLUMNS;
    s->cls = CLASS_TILE;
    return step;
}

static void store(struct rig *r, int x, int buffer, int64_t offset, const int64_t *stride,
                  enum step_class cls)
{
    struct tensor_use port = {
        .role = USE_STORE, .buffer = buffer, .offset = offset, .dtype = r->dtype[buffer]};
    struct step s = {.kind = STEP_STORE, .cls = cls, .half = r->step[x].half, .in = {x}, .nin = 1};
    s.port = add_port(r, port, stride);
    add_step(r, s);
}

void rig_store(struct rig *r, int x, int buffer, int64_t offset, const int64_t *stride)
{
    store(r, x, buffer, offset, stride, CLASS_TILE);
}

void rig_store_row(struct rig *r, int x, int buffer, int64_t offset, const int64_t *stride)
{
    store(r, x, buffer, offset, stride, CLASS_ROW);
}

void rig_operand(struct rig *r, struct operand *o, int buffer, int64_t batch, int64_t row, int64_t k)
{
    *o = operand_of((struct tensor_use){
        .buffer = buffer, .dtype = r->dtype[buffer], .batch = batch, .row = row, .k = k, .value = -1});
}

/* ---- On the CPU ---- */

/* A buffer that the program writes and does not read. */
static bool is_result(const struct rig *r, int buffer)
{
    const struct tensor_use *u;
    bool written = false, read = false;
    for (int i = 0; (u = program_use(&r->p, i)); i++) {
        bool store = use_effect(u) == EFFECT_WRITE;
        if (u->buffer == buffer) written = written || store, read = read || !store;
    }
    return written && !read;
}

/* One run with results that begin as one byte: they come back in `out`, the rest is as it was. */
static coda_status run_from(struct rig *r, unsigned char poison, unsigned char **out)
{
    void *was[RIG_BUFFERS] = {0};
    for (int i = 0; i < r->plan.buffers; i++) {
        if (!is_result(r, i)) continue;
        was[i] = r->args[i];
        r->args[i] = out[i] = malloc((size_t)r->buffer[i].bytes + 1);
        must(out[i] != NULL, "no memory");
        memset(out[i], poison, (size_t)r->buffer[i].bytes + 1);
    }
    coda_status status = cpu_run(&r->plan, &r->p, r->args, NULL, NULL);
    for (int i = 0; i < r->plan.buffers; i++)
        if (was[i]) r->args[i] = was[i];
    return status;
}

/* Twice, from different bytes: what differs was left as it was, and so it stays. */
coda_status rig_run(struct rig *r)
{
    static const unsigned char poison[] = {0xff, 0x5f};
    unsigned char *first[RIG_BUFFERS] = {0}, *second[RIG_BUFFERS] = {0};
    coda_status status = run_from(r, poison[0], first);
    if (!status) status = run_from(r, poison[1], second);
    for (int i = 0; i < r->plan.buffers; i++) {
        for (int64_t j = 0; second[i] && !status && j <= r->buffer[i].bytes; j++) {
            if (first[i][j] == second[i][j] && j < r->buffer[i].bytes) {
                ((unsigned char *)r->args[i])[j] = first[i][j];
                continue;
            }
            must(first[i][j] == poison[0] && second[i][j] == poison[1],
                 "results depend on what was there before");
        }
        free(first[i]);
        free(second[i]);
    }
    return status;
}
