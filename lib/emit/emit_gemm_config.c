/*
 * emit_gemm_config.c -- the Config of a GEMM kernel: the constants with which its main loop's template is
 * instantiated.
 */
#include "emit_gemm.h"

#include "emit.h"
#include "emit_epilogue.h"
#include "mainloop.h"

void gemm_print_columns(const struct gemm *g, int bn)
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
    if (gemm_passes_walk(g)) text_append(t, "    static constexpr bool walks = true;\n");
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
    struct word stride = emit_word("%lld", gemm_is_batched(g) ? (wide)gemm_batch_stride(o) : 0);
    if (gemm_is_batched(g) && printer_fits(gemm_batch_stride(o))) stride = emit_word("args.%s_batch", name);
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
                gemm_passes_rows(g) ? "args) { return args.m" : ") { return bm");
    if (loop->tma || (loop->streams && !gemm_is_batched(g))) return;
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
                name, gemm_is_batched(g) ? (wide)s->batch : 0, name, (wide)s->row, name, (wide)s->k);
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

void gemm_print_config(const struct gemm *g)
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
    gemm_print_columns(g, c->bn);
    text_printf(t, "    static constexpr i64 n = %lld, k = %lld;\n", (wide)p->dim[2], (wide)p->k);
    text_printf(t, "    static constexpr bool batched = %s;\n", truth(gemm_is_batched(g)));
    text_printf(t, "    static constexpr int bm = %d, bn = %d, bk = %d, stages = %d, groups = %d;\n", bm,
                c->bn, c->bk, c->stages, c->groups);
    text_printf(t, "    static constexpr int band = %d, unit = %d;\n", gemm_passes_walk(g) ? 1 : c->band,
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
