/*
 * emit_gemm.c -- a GEMM program becomes a kernel: parameters, Config, entry.
 *
 * The text instantiates the main loop's template (primitives/tile) with a Config of constants and the
 * Epilogue that emit_epilogue.c prints. The parameter struct holds the tensor maps, if the main loop has some
 * (emit_gemm_maps.c), else the operands a and b; then one pointer for each port.
 */
#include "emit_gemm.h"

#include "emit.h"
#include "emit_epilogue.h"
#include "mainloop.h"

/* The product that is being printed, and where to. */
struct gemm {
    const struct program *p;
    const struct schedule *s;
    struct kernel *k;
    struct text *t;
};

/* ---- The parameter struct ---- */

static void add_pointer(struct kernel *k, const struct tensor_use *u)
{
    if (k->pointers < k->pointer_room) k->pointer[k->pointers] = pointer_of(u);
    k->pointers++;
}

static void print_operand(const struct gemm *g, const struct tensor_use *o, const char *name)
{
    add_pointer(g->k, o);
    text_printf(g->t, "    const %s *%s;\n", emit_dtype(use_is_packed(o) ? CODA_U8 : o->dtype), name);
}

static void print_scale(const struct gemm *g, const struct operand *o, const char *name)
{
    if (!o->scale) return;
    add_pointer(g->k, &g->p->port[o->scale - 1]);
    text_printf(g->t, "    const float *%s_scale;\n", name);
}

static void print_scratch(const struct gemm *g)
{
    for (int i = 0; i < g->p->ports; i++) {
        if (g->p->port[i].role != USE_SCRATCH) continue;
        add_pointer(g->k, &g->p->port[i]);
        text_append(g->t, "    u8 *scratch;\n");
    }
}

/* From one batch to the next, in elements of that type. */
static int64_t batch_of(const struct tensor_use *o)
{
    return use_is_packed(o) ? packed_bytes(o, o->batch) : o->batch;
}

/* A port that only TMA uses has a tensor map instead. */
static bool has_pointer(const struct gemm *g, int port)
{
    for (int i = 0; i < g->p->steps; i++) {
        bool moved = g->s->layout.moved[i];
        if (step_uses(g->p, &g->p->step[i], port) && g->p->step[i].kind != STEP_ACC && !moved)
            return g->p->port[port].role != USE_SCALAR;
    }
    return false;
}

static void print_port(const struct gemm *g, int i)
{
    const struct tensor_use *port = &g->p->port[i];
    bool loads = port->role == USE_LOAD || port->role == USE_GATHER || port->role == USE_PARTIAL_LOAD ||
                 port->role == USE_FREQUENCIES || port->role == USE_SCALES;
    bool state = port->role == USE_PARTIAL_LOAD || port->role == USE_PARTIAL_STORE;
    add_pointer(g->k, port);
    text_printf(g->t, "    %s%s *%c%d;\n", loads ? "const " : "", emit_dtype(port->dtype),
                state   ? 's'
                : loads ? 'x'
                        : 'y',
                i);
}

/* A kernel has the number of rows as an argument, so that the products of all of them which have the same
 * tile share a text. GEMV unrolls its one or two: there it is a constant. */
static bool passes_rows(const struct gemm *g) { return g->s->tile.mainloop != &mainloop_gemv; }
static bool is_batched(const struct gemm *g) { return g->p->dim[0] > 1; }

/* Clusters along M, and of a batch. */
static int64_t clusters_high(const struct gemm *g)
{
    const struct tile *t = &g->s->tile;
    return CEIL_DIV(g->p->dim[1], t->bm * tile_cluster_m(t));
}
static int64_t clusters_of_batch(const struct gemm *g)
{
    const struct tile *t = &g->s->tile;
    int side = t->mainloop == &mainloop_wgmma_mixed ? t->groups : 1; /* tiles of a block, side by side */
    return clusters_high(g) * CEIL_DIV(g->p->dim[2], t->bn * side * tile_cluster_n(t));
}

/* A tile for any number of rows is walked in one way or another, as the launch says. */
static bool passes_walk(const struct gemm *g)
{
    const struct tile *t = &g->s->tile;
    return t->mainloop == &mainloop_wgmma && t->most_rows == INT32_MAX && !t->tail && tile_cluster(t) == 1;
}
static int64_t walk_of(const struct gemm *g)
{
    const struct tile *t = &g->s->tile;
    return (int64_t)t->band << 2 | t->serpentine << 1 | t->across;
}

/* The number that the raster divides by, if it follows from the rows; else 0. It is the clusters of a band
 * where the walk goes across or may go either way, and with a tail the blocks that have one tile more. */
static int64_t walk_divisor(const struct gemm *g)
{
    const struct tile *t = &g->s->tile;
    if (!passes_rows(g)) return 0;
    if (t->across) return t->band / tile_cluster_n(t) * clusters_high(g);
    if (passes_walk(g)) return t->band * CEIL_DIV(g->p->dim[2], t->bn);
    if (!t->tail) return 0;
    int64_t longer = program_blocks(g->p, t) % t->blocks;
    return longer ? longer : t->blocks;
}

/* `i` follows the name; -1: nothing does. */
static void print_number(const struct gemm *g, const char *type, const char *name, int i, int64_t n)
{
    emit_number(g->k, n);
    text_printf(g->t, i < 0 ? "    %s %s;\n" : "    %s %s%d;\n", type, name, i);
}

static void print_divisor(const struct gemm *g, const char *name, int64_t n)
{
    emit_divisor(g->k, n);
    text_printf(g->t, "    Divisor %s;\n", name);
}

static void print_batch(const struct gemm *g, const struct tensor_use *o, const char *name)
{
    if (printer_fits(batch_of(o))) print_number(g, "i32", name, -1, batch_of(o));
}

/* How far its batches are apart; the rows of its table; how many states the kernels that made them have left
 * of each row, whose tiles are not in this text. */
static void print_port_numbers(const struct gemm *g, int i)
{
    const struct tensor_use *port = &g->p->port[i];
    if (!has_pointer(g, i)) return;
    if (printer_passes_batch(g->p, port)) print_number(g, "i32", "batch", i, port->stride[0]);
    if (printer_passes_table(port)) print_number(g, "u32", "table", i, port->table_rows);
    if (port->role == USE_PARTIAL_LOAD) print_number(g, "i32", "states", i, port->blocks);
}

static void print_args(const struct gemm *g)
{
    const struct epilogue_layout *l = &g->s->layout;
    bool tma = g->s->tile.mainloop->tma;
    text_append(g->t, "\nstruct Args {\n");
    if (tma) text_append(g->t, "    TensorMap a, b;\n");
    if (tma && g->p->parts) text_printf(g->t, "    TensorMap more[%d];\n", g->p->parts);
    if (l->maps_tail) text_append(g->t, "    TensorMap tail;\n");
    if (l->stores.count) text_printf(g->t, "    TensorMap stores[%d];\n", l->stores.count);
    if (l->loads.count) text_printf(g->t, "    TensorMap fetched[%d];\n", l->loads.count);
    if (!tma) {
        print_operand(g, &g->p->a.data, "a");
        print_operand(g, &g->p->b.data, "b");
        for (int i = 0; i < g->p->parts; i++)
            print_operand(g, &g->p->port[g->p->part[i].port], emit_word("b%d", g->p->part[i].port).s);
    }
    print_scale(g, &g->p->a, "a"), print_scale(g, &g->p->b, "b");
    print_scratch(g);
    for (int i = 0; i < g->p->ports; i++)
        if (has_pointer(g, i)) print_port(g, i);
    for (int i = 0; i < g->p->ports; i++) {
        if (g->p->port[i].role != USE_SCALAR) continue;
        emit_scalar(g->k, g->p->port[i].buffer);
        text_printf(g->t, "    %s c%d;\n", emit_dtype(g->p->port[i].dtype), i);
    }
    if (passes_rows(g)) print_number(g, "i32", "m", -1, g->p->dim[1]);
    if (passes_walk(g)) print_number(g, "u32", "walk", -1, walk_of(g));
    if (walk_divisor(g)) print_divisor(g, "divisor", walk_divisor(g));
    if (is_batched(g)) {
        if (!g->s->tile.mainloop->streams) {
            print_number(g, "i32", "batches", -1, g->p->dim[0]);
            print_divisor(g, "per_batch", clusters_of_batch(g));
        }
        if (!tma) print_batch(g, &g->p->a.data, "a_batch"), print_batch(g, &g->p->b.data, "b_batch");
    }
    if (printer_passes_period(g->p)) print_divisor(g, "period", printer_period(g->p));
    for (int i = 0; i < g->p->ports; i++) print_port_numbers(g, i);
    text_append(g->t, "};\n");
}

/* ---- Config and entry ---- */

/* Prints the column layout of the tile, or of the share that each block drains. */
static void print_columns(const struct gemm *g, int bn)
{
    const struct program *p = g->p;
    struct text *t = g->t;
    text_append(t, "    using Columns = ");
    if (program_is_gated(p))
        text_printf(t, "Gated<%d, %lld, %s>;\n", bn, (wide)p->dim[2],
                    p->pair == PAIR_GLU_INTERLEAVED ? "true" : "false");
    else if (p->pair == PAIR_HEADS) emit_pair_columns(p, bn, g->s->layout.splits_heads, t);
    else text_printf(t, "Plain<%d>;\n", bn);
}

/* How tiles are walked, where it is not as ConfigDefaults says. */
static void print_walk(const struct gemm *g)
{
    const struct tile *c = &g->s->tile;
    struct text *t = g->t;
    bool persistent = g->s->persistent;
    if (tile_cluster(c) > 1)
        text_printf(t, "    static constexpr int cluster_m = %d, cluster_n = %d;\n", tile_cluster_m(c),
                    tile_cluster_n(c));
    if (passes_walk(g)) text_append(t, "    static constexpr bool walks = true;\n");
    else if (c->across || c->serpentine)
        text_printf(t, "    static constexpr bool across = %s, serpentine = %s;\n", truth(c->across),
                    truth(c->serpentine));
    if (c->tail)
        text_printf(t, "    static constexpr int tail = %d, tail_bn = %d, blocks = %d;\n", c->tail,
                    c->tail_bn, c->blocks);
    if (c->lends) text_printf(t, "    static constexpr bool lends = true, once = %s;\n", truth(!persistent));
}

static void print_batch_stride(const struct gemm *g, const struct tensor_use *o, const char *name)
{
    struct word stride = emit_word("%lld", is_batched(g) ? (wide)batch_of(o) : 0);
    if (is_batched(g) && printer_fits(batch_of(o))) stride = emit_word("args.%s_batch", name);
    text_printf(g->t, "    DEV static i64 %s_batch(const Args &args) { return %s; }\n", name, stride.s);
}

/* A text says no more about the rows than its code depends on, so that shapes share it. */
static void print_rows(const struct gemm *g)
{
    const struct mainloop *loop = g->s->tile.mainloop;
    if (!loop->streams)
        text_printf(g->t, "    static constexpr bool even = %s;\n",
                    truth(!g->s->tile.most_rows && g->p->dim[1] % g->s->tile.bm == 0));
    text_printf(g->t, "    DEV static i32 rows(const Args &%s; }\n",
                passes_rows(g) ? "args) { return args.m" : ") { return bm");
    if (loop->tma || (loop->streams && !is_batched(g))) return;
    print_batch_stride(g, &g->p->a.data, "a");
    print_batch_stride(g, &g->p->b.data, "b");
}

/* Its format and columns, and where in the row block, at which the pointer points, it begins. */
static void print_weights(const struct tensor_use *b, struct text *t)
{
    const struct packed_at first = packed_at(b, b->offset);
    text_printf(t, "    using Weights = %s;\n", emit_packed(b).s);
    text_printf(t, "    static constexpr i64 b_first = %lld;\n",
                (wide)(first.row % PACK_ROWS * b->packing.columns + first.column));
}

/* How far the scales of an operand's blocks are apart. */
static void print_scale_strides(const struct gemm *g, const struct operand *o, const char *name)
{
    const struct tensor_use *s = &g->p->port[o->scale - 1];
    text_printf(g->t,
                "    static constexpr i64 %s_scale_batch = %lld, %s_scale_row = %lld, %s_scale_k = %lld;\n",
                name, is_batched(g) ? (wide)s->batch : 0, name, (wide)s->row, name, (wide)s->k);
}

static void print_scales(const struct gemm *g)
{
    if (!program_has_block_scales(g->p)) return;
    text_append(g->t, "    static constexpr bool scaled = true;\n");
    print_scale_strides(g, &g->p->a, "a"), print_scale_strides(g, &g->p->b, "b");
}

/* Which part of B has a column's weights: the number of a tensor map and its first column; or a pointer from
 * which their row is as far away as if all parts lay together. */
static void print_parts(const struct gemm *g)
{
    const struct program *p = g->p;
    struct text *t = g->t;
    if (g->s->tile.mainloop->tma) {
        text_printf(t, "    static constexpr int b_parts = %d;\n", p->parts);
        text_append(t, "    DEV static constexpr int part_of(int n) { return 0");
        for (int i = 0; i < p->parts; i++) text_printf(t, " + (n >= %lld)", (wide)p->part[i].first);
        text_append(t, "; }\n    DEV static constexpr int first_of(int part) { return 0");
        for (int i = 0; i < p->parts; i++)
            text_printf(t, " + (part > %d ? %lld : 0)", i,
                        (wide)(p->part[i].first - (i ? p->part[i - 1].first : 0)));
        text_append(t, "; }\n");
        return;
    }
    text_printf(t, "    DEV static const %s *b_rows(const Args &args, i64 n)\n    {\n",
                emit_dtype(p->b.data.dtype));
    for (int i = p->parts; i > 0; i--)
        text_printf(t, "        if (n >= %lld) return args.b%d - %lldll;\n", (wide)p->part[i - 1].first,
                    p->part[i - 1].port, (wide)(p->part[i - 1].first * p->b.data.row));
    text_append(t, "        return args.b;\n    }\n");
}

static void print_config(const struct gemm *g)
{
    const struct program *p = g->p;
    const struct tile *c = &g->s->tile;
    struct text *t = g->t;
    int bm = c->mainloop->streams ? stream_rows(p, c) : c->bm;
    text_printf(t, "\nstruct Config%s {\n    using Args = ::Args;\n",
                c->mainloop->streams ? "" : " : ConfigDefaults");
    if (c->mainloop->mixed) text_printf(t, "    using A = %s;\n", emit_dtype(p->a.dtype));
    else text_printf(t, "    using T = %s;\n", emit_dtype(p->a.dtype));
    if (use_is_packed(&p->b.data)) print_weights(&p->b.data, t);
    else if (c->mainloop == &mainloop_mma && p->b.dtype != p->a.dtype)
        text_printf(t, "    using Weights = Elements<%s>;\n", emit_dtype(p->b.dtype));
    else if (c->mainloop->mixed) text_printf(t, "    using B = %s;\n", emit_dtype(p->b.dtype));
    print_columns(g, c->bn);
    text_printf(t, "    static constexpr i64 n = %lld, k = %lld;\n", (wide)p->dim[2], (wide)p->k);
    text_printf(t, "    static constexpr bool batched = %s;\n", truth(is_batched(g)));
    text_printf(t, "    static constexpr int bm = %d, bn = %d, bk = %d, stages = %d, groups = %d;\n", bm,
                c->bn, c->bk, c->stages, c->groups);
    text_printf(t, "    static constexpr int band = %d, unit = %d;\n", passes_walk(g) ? 1 : c->band,
                g->s->layout.unit);
    print_rows(g);
    text_printf(t, "    static constexpr int shared_bytes = %d;\n", g->s->shared_bytes);
    text_printf(t, "    static constexpr bool pingpong = %s;\n", truth(c->pingpong));
    if (g->s->leaves_warp) text_append(t, "    static constexpr bool leaves_warp = true;\n");
    print_walk(g);
    if (g->s->layout.state_columns)
        text_printf(t, "    static constexpr int state_columns = %d, states = %lld;\n",
                    g->s->layout.state_columns, (wide)g->s->layout.states);
    print_scales(g);
    if (p->parts) print_parts(g);
    c->mainloop->print_config(p, g->s, t);
    text_append(t, "};\n");
}

static void print_share(const struct gemm *g)
{
    int share = tile_share(&g->s->tile);
    text_append(g->t, "\nstruct Share : Config {\n");
    print_columns(g, share);
    text_printf(g->t, "    static constexpr int bn = %d;\n};\n", share);
}

static void print_head(const struct gemm *g)
{
    const struct program *p = g->p;
    struct text *t = g->t;
    struct word m = emit_word(passes_rows(g) ? "m" : "%lld", (wide)p->dim[1]);
    text_append(t, "// ");
    if (is_batched(g)) text_append(t, "batches of ");
    text_printf(t, "[%s, %lld] = [%s, %lld] [%lld, %lld]^T, %s", m.s, (wide)p->dim[2], m.s, (wide)p->k,
                (wide)p->dim[2], (wide)p->k, dtype_name(p->a.dtype));
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        const char *name = step_name(p, s);
        if (name) text_printf(t, " | %s%s", s->kind == STEP_PARTIAL ? "finish " : "", name);
        unsigned effect = s->kind == STEP_STORE ? use_effect(&p->port[s->port]) : 0;
        if (effect)
            text_append(t, effect & EFFECT_ADD      ? " | add to"
                           : effect & EFFECT_APPEND ? " | append"
                                                    : " | store");
    }
    text_append(t, "\n");
}

static void print_body_and_entry(const struct gemm *g)
{
    const struct tile *c = &g->s->tile;
    enum { BESIDE_A_WARP = 160 }; /* 3 x 4 warps of it and a warp of 32 registers are an SM's */
    const struct entry entry = {.registers = g->s->leaves_warp ? BESIDE_A_WARP : 0,
                                .cluster = tile_splits(c) * tile_cluster(c),
                                .residents = c->mainloop->shares_sm(g->p, c) ? "2" : "1"};
    emit_body(g->t);
    text_printf(g->t, "    %s<Config, Epilogue%s>(a, block);\n}\n", c->mainloop->kernel,
                c->scattered ? ", Share" : "");
    emit_entry(g->k, &entry, g->t);
}

/* Coordinates of TMA and of the epilogue are ints; tiles may reach past the end by a cluster's size. */
static bool fits_int(const struct program *p, const struct schedule *s)
{
    int64_t most = INT32_MAX - 256 * tile_cluster(&s->tile);
    return s->grid <= most && p->dim[0] <= most && p->dim[1] <= most && p->dim[2] <= most && p->k <= most;
}

static coda_status check(const struct gemm *g)
{
    const struct program *p = g->p;
    if (!g->k->symbol) return fail(CODA_E_MEMORY, "out of memory for a kernel's name");
    if (!fits_int(p, g->s))
        return fail(CODA_E_UNSUPPORTED, "a GEMM of %lld times [%lld, %lld, %lld] exceeds 31-bit coordinates",
                    (wide)p->dim[0], (wide)p->dim[1], (wide)p->dim[2], (wide)p->k);
    for (int i = 0; i < p->ports; i++) {
        bool columns = p->port[i].axis == REDUCE_COLUMNS;
        int64_t states = columns ? g->s->layout.column_states : g->s->layout.states;
        if (p->port[i].role == USE_PARTIAL_STORE && p->port[i].blocks != states)
            return fail(CODA_E_INVALID, "port %d has %d states for a %s of %lld tiles", i, p->port[i].blocks,
                        columns ? "column" : "row", (wide)states);
    }
    return CODA_OK;
}

static void print_kernel(const struct gemm *g)
{
    if (g->t->silent) {
        print_args(g); /* which fills them, too */
        return;
    }
    print_head(g);
    text_printf(g->t, "#include \"tile/%s.cuh\"\n", g->s->tile.mainloop->kernel);
    emit_includes(g->p, g->t);
    text_append(g->t, "\nusing namespace coda;\n");
    print_args(g);
    print_config(g);
    if (g->s->tile.scattered) print_share(g);
    emit_epilogue(g->p, &g->s->layout, g->t);
    print_body_and_entry(g);
}

coda_status emit_gemm(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k)
{
    struct text t = {.silent = k->text};
    struct gemm g = {.p = p, .s = s, .k = k, .t = &t};
    if (!k->symbol) k->symbol = emit_symbol(plan, p, "coda_gemm");
    if (s->tile.mainloop->tma) emit_gemm_maps(p, s, k);
    coda_status status = check(&g);
    if (!status) print_kernel(&g);
    if (!status && !k->text) k->text = arena_string(&plan->arena, text_str(&t));
    bool lost = t.failed || plan->arena.failed;
    text_free(&t);
    return status ? status : lost ? fail(CODA_E_MEMORY, "out of memory for a kernel's text") : CODA_OK;
}
