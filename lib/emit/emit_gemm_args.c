/*
 * emit_gemm_args.c -- the parameter struct of a GEMM kernel, and what a launch passes in it: the tensor maps,
 * if the main loop has some, else the operands a and b; one pointer for each port; then numbers that a text
 * does not say, so that shapes share it.
 */
#include "emit_gemm.h"

#include "emit.h"
#include "emit_epilogue.h"
#include "mainloop.h"

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

int64_t gemm_batch_stride(const struct tensor_use *o)
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

bool gemm_passes_rows(const struct gemm *g) { return !g->s->tile.mainloop->unrolls; }
bool gemm_is_batched(const struct gemm *g) { return g->p->dim[0] > 1; }

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

bool gemm_passes_walk(const struct gemm *g)
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
    if (!gemm_passes_rows(g)) return 0;
    if (t->across) return t->band / tile_cluster_n(t) * clusters_high(g);
    if (gemm_passes_walk(g)) return t->band * CEIL_DIV(g->p->dim[2], t->bn);
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
    if (printer_fits(gemm_batch_stride(o))) print_number(g, "i32", name, -1, gemm_batch_stride(o));
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

void gemm_print_args(const struct gemm *g)
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
    if (gemm_passes_rows(g)) print_number(g, "i32", "m", -1, g->p->dim[1]);
    if (gemm_passes_walk(g)) print_number(g, "u32", "walk", -1, walk_of(g));
    if (walk_divisor(g)) print_divisor(g, "divisor", walk_divisor(g));
    if (gemm_is_batched(g)) {
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
