/*
 * emit_gemm.c -- a GEMM program becomes a kernel: parameters, tensor maps, Config, entry.
 *
 * The text instantiates GemmSm90, GemvSm90, SkinnySm90 or GemmSimt (primitives/tile) with a Config of
 * constants and the Epilogue that emit_epilogue.c prints. The parameter struct holds the tensor maps a, b,
 * tail (B's narrower tiles, if there are some) and one for each staged store, then one pointer for each port
 * (streaming, SIMT: operands a, b first, no maps).
 */
#include "emit.h"
#include "emit_epilogue.h"

typedef long long wide;

/* ---- Tensor maps ---- */

static bool is_mn_major(const struct operand *o) { return o->k != 1; }

static struct map_spec operand_map(const struct operand *o, int64_t batch, int64_t rows, int64_t k)
{
    bool mn = is_mn_major(o), batched = o->batch != 0 && batch > 1;
    struct map_spec m = {
        .buffer = o->buffer, .offset = o->offset, .dtype = o->dtype, .rank = 3, .swizzle = 128};
    m.dim[0] = mn ? rows : k;
    m.dim[1] = mn ? k : rows;
    m.dim[2] = batched ? batch : 1;
    m.stride[0] = 1;
    m.stride[1] = mn ? o->k : o->row;
    m.stride[2] = batched ? o->batch : 8;
    if (m.dim[1] == 1) m.stride[1] = CEIL_DIV(m.dim[0], 8) * 8;
    if (m.dim[2] == 1) m.stride[2] = m.stride[1] * m.dim[1];
    return m;
}

/* The blocks of a cluster that get one tile load a part of its rows each. */
static struct map_spec a_map(const struct program *p)
{
    struct map_spec m = operand_map(&p->a, p->dim[0], p->dim[1], p->k);
    m.box[0] = 64;
    m.box[1] = is_mn_major(&p->a) ? 64 : tile_a_rows(p) / tile_cluster_n(&p->tile);
    m.box[2] = 1;
    return m;
}

/* So many rows, of one half or of both. */
static void box_halves(struct map_spec *m, int half, int rows)
{
    m->box[1] = MIN(rows, half);
    m->box[2] = rows / m->box[1];
}

/* Gate and up are a dimension of their own, so that both halves of a tile are boxes of one map, and
 * stacked and interleaved weights differ in strides only. */
static void split_halves(const struct program *p, int bn, struct map_spec *m)
{
    bool mn = is_mn_major(&p->b);
    int rows = mn ? 0 : 1;
    m->rank = 4;
    m->dim[3] = m->dim[2], m->stride[3] = m->stride[2], m->box[3] = 1;
    m->dim[rows] /= 2;
    m->dim[2] = 2;
    m->stride[2] = m->dim[rows] * p->b.row;
    if (p->pair == PAIR_GLU_INTERLEAVED) {
        m->stride[2] = p->b.row;
        m->stride[rows] = 2 * p->b.row;
    }
    if (!mn) box_halves(m, bn / 2, bn / tile_cluster_m(&p->tile));
}

/* Heads and their halves are dimensions: a box holds 32 pairs of one head. */
static void split_heads(const struct program *p, struct map_spec *m)
{
    int64_t half = p->rope.head_dim / 2;
    m->rank = 4;
    m->dim[1] = half;
    m->dim[2] = 2, m->stride[2] = half * p->b.row;
    m->dim[3] = p->dim[2] / (2 * half), m->stride[3] = 2 * half * p->b.row, m->box[3] = 1;
    box_halves(m, 32, 64 / tile_cluster_m(&p->tile));
}

static struct map_spec b_map(const struct program *p, int bn)
{
    struct map_spec m = operand_map(&p->b, p->dim[0], p->dim[2], p->k);
    m.box[0] = 64;
    m.box[1] = is_mn_major(&p->b) ? 64 : bn / tile_cluster_m(&p->tile);
    m.box[2] = 1;
    if (program_is_gated(p)) split_halves(p, bn, &m);
    if (program_splits_heads(p)) split_heads(p, &m);
    return m;
}

/* Of a unit of the epilogue: all 64 rows, or a warp's. */
static struct map_spec unit_map(const struct program *p, const struct port *port, int rows)
{
    struct map_spec m = {.buffer = port->buffer, .offset = port->offset, .dtype = port->dtype, .rank = 3};
    m.swizzle = 2 * unit_columns(p);
    m.dim[0] = program_columns(p);
    m.dim[1] = p->dim[1];
    m.dim[2] = p->dim[0];
    m.stride[0] = 1;
    m.stride[1] = port->stride[1];
    m.stride[2] = p->dim[0] > 1 ? port->stride[0] : port->stride[1] * p->dim[1];
    m.box[0] = unit_columns(p), m.box[1] = rows, m.box[2] = 1;
    return m;
}

static void add_maps(struct program *p)
{
    struct kernel_spec *k = &p->kernel;
    if (p->tile.mainloop != MAINLOOP_SM90) return;
    k->map[k->maps++] = a_map(p);
    k->map[k->maps++] = b_map(p, p->tile.bn);
    if (program_maps_tail(p)) k->map[k->maps++] = b_map(p, p->tile.tail_bn);
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_STORE && store_is_staged(p, i))
            k->map[k->maps++] = unit_map(p, &p->port[p->step[i].port], 16);
    int fetched = fetched_load(p);
    if (fetched >= 0) k->map[k->maps++] = unit_map(p, &p->port[p->step[fetched].port], 64);
}

/* ---- The parameter struct ---- */

static void add_pointer(struct program *p, int buffer, int64_t bytes)
{
    struct kernel_spec *k = &p->kernel;
    k->pointer[k->pointers].buffer = buffer;
    k->pointer[k->pointers++].bytes = bytes;
}

static void print_operand(struct program *p, const struct operand *o, const char *name, struct text *t)
{
    add_pointer(p, o->buffer, o->offset * dtype_size(o->dtype));
    text_printf(t, "    const %s *%s;\n", emit_dtype(o->dtype), name);
}

/* A port that only TMA uses has a tensor map instead. */
static bool has_pointer(const struct program *p, int port)
{
    for (int i = 0; i < p->steps; i++) {
        bool moved = i == fetched_load(p) || (p->step[i].kind == STEP_STORE && store_is_staged(p, i));
        if (p->step[i].port == port && p->step[i].kind != STEP_ACC && !moved) return true;
    }
    return false;
}

static void print_port(struct program *p, int i, struct text *t)
{
    const struct port *port = &p->port[i];
    bool loads = port->kind == PORT_LOAD || port->kind == PORT_GATHER || port->kind == PORT_PARTIAL_LOAD;
    bool state = port->kind == PORT_PARTIAL_LOAD || port->kind == PORT_PARTIAL_STORE;
    add_pointer(p, port->buffer, port->offset * dtype_size(port->dtype));
    text_printf(t, "    %s%s *%c%d;\n", loads ? "const " : "", emit_dtype(port->dtype),
                state   ? 's'
                : loads ? 'x'
                        : 'y',
                i);
}

static void print_args(struct program *p, struct text *t)
{
    int staged = count_staged(p);
    text_append(t, "\nstruct Args {\n");
    if (p->tile.mainloop == MAINLOOP_SM90) text_append(t, "    TensorMap a, b;\n");
    if (program_maps_tail(p)) text_append(t, "    TensorMap tail;\n");
    if (staged) text_printf(t, "    TensorMap stores[%d];\n", staged);
    if (fetched_load(p) >= 0) text_append(t, "    TensorMap fetched;\n");
    if (p->tile.mainloop != MAINLOOP_SM90) {
        print_operand(p, &p->a, "a", t);
        print_operand(p, &p->b, "b", t);
    }
    for (int i = 0; i < p->ports; i++)
        if (has_pointer(p, i)) print_port(p, i, t);
    text_append(t, "};\n");
}

/* ---- Config and entry ---- */

/* Of the tile, or of what each block drains of it. */
static void print_columns(const struct program *p, int bn, struct text *t)
{
    const struct rope_spec *r = &p->rope;
    text_append(t, "    using Columns = ");
    if (program_is_gated(p))
        text_printf(t, "Gated<%d, %lld, %s>;\n", bn, (wide)p->dim[2],
                    p->pair == PAIR_GLU_INTERLEAVED ? "true" : "false");
    else if (program_splits_heads(p))
        text_printf(t, "SplitHeads<%d, %lld>;\n", bn, (wide)r->head_dim);
    else if (p->pair == PAIR_ROPE && r->half)
        text_printf(t, "HalfHeads<%d, %lld, %lld>;\n", bn, (wide)r->head_dim, (wide)r->rotary);
    else
        text_printf(t, "%s<%d>;\n", p->pair == PAIR_ROPE ? "Neighbours" : "Plain", bn);
}

static const char *truth(bool b) { return b ? "true" : "false"; }

static void print_strides(const char *name, const struct operand *o, struct text *t)
{
    text_printf(
        t, "    static constexpr i64 %s_stride_batch = %lld, %s_stride_row = %lld, %s_stride_k = %lld;\n",
        name, (wide)o->batch, name, (wide)o->row, name, (wide)o->k);
}

static void print_config(const struct program *p, struct text *t)
{
    const struct tile *c = &p->tile;
    bool sm90 = c->mainloop == MAINLOOP_SM90, streams = tile_streams(c);
    text_printf(t, "\nstruct Config%s {\n    using Args = ::Args;\n", streams ? "" : " : ConfigDefaults");
    if (sm90 || streams)
        text_printf(t, "    using T = %s;\n", emit_dtype(p->a.dtype));
    else
        text_printf(t, "    using A = %s;\n    using B = %s;\n", emit_dtype(p->a.dtype),
                    emit_dtype(p->b.dtype));
    print_columns(p, c->bn, t);
    text_printf(t, "    static constexpr i64 batch = %lld, m = %lld, n = %lld, k = %lld;\n", (wide)p->dim[0],
                (wide)p->dim[1], (wide)p->dim[2], (wide)p->k);
    text_printf(t, "    static constexpr int bm = %d, bn = %d, bk = %d, stages = %d, groups = %d;\n", c->bm,
                c->bn, c->bk, c->stages, c->groups);
    text_printf(t, "    static constexpr int band = %d, unit = %d;\n", c->band, unit_columns(p));
    text_printf(t, "    static constexpr int shared_bytes = %d;\n", p->kernel.shared_bytes);
    text_printf(t, "    static constexpr bool pingpong = %s;\n", truth(c->pingpong));
    if (tile_cluster(c) > 1)
        text_printf(t, "    static constexpr int cluster_m = %d, cluster_n = %d;\n", tile_cluster_m(c),
                    tile_cluster_n(c));
    if (c->across || c->serpentine)
        text_printf(t, "    static constexpr bool across = %s, serpentine = %s;\n", truth(c->across),
                    truth(c->serpentine));
    if (c->tail)
        text_printf(t, "    static constexpr int tail = %d, tail_bn = %d, blocks = %d;\n", c->tail,
                    c->tail_bn, c->blocks);
    if (c->lends)
        text_printf(t, "    static constexpr bool lends = true, once = %s;\n", truth(!p->kernel.persistent));
    if (sm90) {
        text_printf(t, "    static constexpr int a_rows = %d, splits = %d;\n", tile_a_rows(p),
                    tile_splits(c));
        text_printf(t, "    static constexpr bool a_mn_major = %s, b_mn_major = %s;\n",
                    truth(is_mn_major(&p->a)), truth(is_mn_major(&p->b)));
        text_printf(t, "    static constexpr bool a_batched = %s, b_batched = %s;\n",
                    truth(p->kernel.map[0].dim[2] > 1), truth(p->dim[0] > 1 && p->b.batch != 0));
    } else {
        print_strides("a", &p->a, t);
        print_strides("b", &p->b, t);
    }
    if (streams) {
        text_printf(t, "    static constexpr int blocks = %d;\n", c->blocks);
        text_printf(t, "    static constexpr bool early = %s;\n", truth(p->kernel.early));
    }
    if (c->mainloop == MAINLOOP_SKINNY)
        text_printf(t, "    static constexpr int splits = %d;\n    static constexpr bool alone = %s;\n",
                    tile_splits(c), truth(!program_shares_sm(p)));
    text_append(t, "};\n");
}

static void print_share(const struct program *p, struct text *t)
{
    text_append(t, "\nstruct Share : Config {\n");
    print_columns(p, tile_share(&p->tile), t);
    text_printf(t, "    static constexpr int bn = %d;\n};\n", tile_share(&p->tile));
}

static void print_head(const struct program *p, struct text *t)
{
    text_append(t, "// ");
    if (p->dim[0] != 1) text_printf(t, "%lld times ", (wide)p->dim[0]);
    text_printf(t, "[%lld, %lld] = [%lld, %lld] [%lld, %lld]^T, %s", (wide)p->dim[1], (wide)p->dim[2],
                (wide)p->dim[1], (wide)p->k, (wide)p->dim[2], (wide)p->k, dtype_name(p->a.dtype));
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        if (s->kind == STEP_MAP || s->kind == STEP_REDUCE) text_printf(t, " | %s", s->prim->name);
        if (s->kind == STEP_PARTIAL) text_printf(t, " | finish %s", p->port[s->port].reduce->name);
        if (s->kind == STEP_ROPE) text_append(t, " | rope");
        if (s->kind == STEP_STORE) text_append(t, " | store");
    }
    text_append(t, "\n");
}

static const char *mainloop_name(const struct program *p)
{
    switch (p->tile.mainloop) {
    case MAINLOOP_SM90: return "gemm_sm90";
    case MAINLOOP_GEMV: return "gemv_sm90";
    case MAINLOOP_SKINNY: return "skinny_sm90";
    default: return "gemm_simt";
    }
}

static void print_entry(const struct program *p, struct text *t)
{
    const struct tile *c = &p->tile;
    text_append(t, "\nextern \"C\" __global__ void ");
    int cluster = tile_splits(c) * tile_cluster(c);
    if (cluster > 1) text_printf(t, "__cluster_dims__(%d, 1, 1) ", cluster);
    text_printf(t, "__launch_bounds__(%d, %d)\n", p->kernel.threads, program_shares_sm(p) ? 2 : 1);
    text_printf(t, "%s(const __grid_constant__ Args args)\n", p->kernel.symbol);
    text_printf(t, "{\n    %s<Config, Epilogue%s", mainloop_name(p), c->scattered ? ", Share" : "");
    text_append(t, ">(args);\n}\n");
}

/* Blocks that an SM has room for; each takes 1024 bytes more than it says. */
static int residents(const struct program *p, const struct machine *m)
{
    bool fit = tile_is_narrow(&p->tile) && 2 * (p->kernel.shared_bytes + 1024) <= m->shared_bytes + 1024;
    return fit ? 2 : 1;
}

/* Threads besides the consumers. */
static int helpers(const struct program *p)
{
    if (p->tile.mainloop == MAINLOOP_SIMT) return 0;
    return tile_streams(&p->tile) && program_shares_sm(p) ? 64 : 128;
}

static void measure(struct program *p, const struct machine *m)
{
    struct kernel_spec *k = &p->kernel;
    const struct tile *t = &p->tile;
    bool sm90 = t->mainloop == MAINLOOP_SM90;
    k->threads = 128 * t->groups + helpers(p);
    k->shared_bytes = tile_shared_bytes(p);
    k->early = program_is_early(p);
    int each = residents(p, m);
    /* Consumers that take turns would wait for each other's epilogues. */
    bool once = t->lends && (t->pingpong || program_blocks(p) <= m->sms);
    k->grid = program_blocks(p);
    k->cluster = tile_cluster(t);
    k->persistent = sm90 && each == 1 && tile_splits(t) == 1 && !once;
    if (tile_streams(t)) k->grid = t->blocks;
    if (each == 2 && tile_splits(t) == 1 && m->sms > 0) k->grid = MIN(k->grid, 2 * m->sms);
}

/* Coordinates of TMA and of the epilogue are ints; tiles may reach past the end by a cluster's size. */
static bool fits_int(const struct program *p)
{
    int64_t most = INT32_MAX - 256 * tile_cluster(&p->tile);
    return p->kernel.grid <= most && p->dim[1] <= most && p->dim[2] <= most && p->k <= most;
}

static coda_status check(const struct program *p)
{
    if (!p->kernel.symbol) return fail(CODA_E_MEMORY, "out of memory for a kernel's name");
    if (!fits_int(p))
        return fail(CODA_E_UNSUPPORTED, "a GEMM of %lld times [%lld, %lld, %lld] exceeds 31-bit coordinates",
                    (wide)p->dim[0], (wide)p->dim[1], (wide)p->dim[2], (wide)p->k);
    for (int i = 0; i < p->ports; i++) {
        int64_t blocks = program_states(p);
        if (p->port[i].kind == PORT_PARTIAL_STORE && p->port[i].blocks != blocks)
            return fail(CODA_E_INVALID, "port %d has %d states for a row of %lld tiles", i, p->port[i].blocks,
                        (wide)blocks);
    }
    return CODA_OK;
}

static void print_kernel(struct program *p, struct text *t)
{
    print_head(p, t);
    text_printf(t, "#include \"tile/%s.cuh\"\n", mainloop_name(p));
    emit_includes(p, t);
    text_append(t, "\nusing namespace coda;\n");
    print_args(p, t);
    print_config(p, t);
    if (p->tile.scattered) print_share(p, t);
    emit_epilogue(p, t);
    print_entry(p, t);
}

coda_status emit_gemm(struct plan *plan, struct program *p, const struct machine *m)
{
    struct text t = {0};
    if (!emit_begin(plan, p)) return fail(CODA_E_MEMORY, "out of memory for a kernel");
    emit_symbol(plan, p, "coda_gemm");
    measure(p, m);
    add_maps(p);
    coda_status status = check(p);
    if (!status) print_kernel(p, &t);
    if (!status) status = emit_fits(p);
    if (!status) p->kernel.text = arena_string(&plan->arena, text_str(&t));
    bool lost = t.failed || plan->arena.failed;
    text_free(&t);
    return status ? status : lost ? fail(CODA_E_MEMORY, "out of memory for a kernel's text") : CODA_OK;
}
