/*
 * emit_gemm_maps.c -- the tensor maps of a GEMM kernel: a, b, one for each further part of B, tail (B's
 * narrower tiles, if there are some),
 * one for each tile that the epilogue stores by TMA, and for each that it fetches.
 */
#include "emit_gemm.h"

static struct map_spec operand_map(const struct tensor_use *o, int64_t batch, int64_t rows, int64_t k)
{
    bool mn = operand_is_mn_major(o), batched = o->batch != 0 && batch > 1;
    int64_t unit = dtype_elements(o->dtype, 16);
    struct map_spec m = {.buffer = o->buffer,
                         .offset = o->offset,
                         .by_rank = dtype_bytes(o->dtype, o->by_rank),
                         .ahead = o->ahead,
                         .dtype = o->dtype,
                         .rank = 3,
                         .swizzle = 128,
                         .l2_promotion = 256};
    m.dim[0] = mn ? rows : k;
    m.dim[1] = mn ? k : rows;
    m.dim[2] = batched ? batch : 1;
    m.stride[0] = 1;
    m.stride[1] = mn ? o->k : o->row;
    m.stride[2] = batched ? o->batch : unit;
    if (m.dim[1] == 1) m.stride[1] = CEIL_DIV(m.dim[0], unit) * unit;
    if (m.dim[2] == 1) m.stride[2] = m.stride[1] * m.dim[1];
    return m;
}

/* Elements of K in a box: of a K-major operand a row of 128 bytes, of which a slot may have several. */
static int box_k(const struct tensor_use *o, const struct tile *t)
{
    return operand_is_mn_major(o) ? t->bk : MIN(t->bk, (int)dtype_elements(o->dtype, 128));
}

/* The blocks of a cluster that get one tile load a part of its rows each. */
static struct map_spec a_map(const struct program *p, const struct schedule *s)
{
    struct map_spec m = operand_map(&p->a.data, p->dim[0], p->dim[1], p->k);
    m.box[0] = box_k(&p->a.data, &s->tile); /* a row of 128 bytes, or 64 rows */
    m.box[1] = operand_is_mn_major(&p->a.data) ? 64 : s->layout.a_box / tile_cluster_n(&s->tile);
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
 * stacked and interleaved weights differ in strides only. Parts of B have a map each. */
static void split_halves(const struct program *p, const struct tile *t, int bn, struct map_spec *m)
{
    bool mn = operand_is_mn_major(&p->b.data);
    int rows = mn ? 0 : 1;
    if (p->parts) {
        m->box[1] = MIN(bn / tile_cluster_m(t), bn / 2);
        return;
    }
    m->rank = 4;
    m->dim[3] = m->dim[2], m->stride[3] = m->stride[2], m->box[3] = 1;
    m->dim[rows] /= 2;
    m->dim[2] = 2;
    m->stride[2] = m->dim[rows] * p->b.data.row;
    if (p->pair == PAIR_GLU_INTERLEAVED) {
        m->stride[2] = p->b.data.row;
        m->stride[rows] = 2 * p->b.data.row;
    }
    if (!mn) box_halves(m, bn / 2, bn / tile_cluster_m(t));
}

/* Heads and their halves are dimensions: a box holds 32 pairs of one head. */
static void split_heads(const struct program *p, const struct tile *t, int64_t columns, struct map_spec *m)
{
    int64_t half = pair_span(p) / 2;
    m->rank = 4;
    m->dim[1] = half;
    m->dim[2] = 2, m->stride[2] = half * p->b.data.row;
    m->dim[3] = columns / (2 * half), m->stride[3] = 2 * half * p->b.data.row, m->box[3] = 1;
    box_halves(m, 32, 64 / tile_cluster_m(t));
}

/* The tensor map of one part of B. */
static struct map_spec b_map(const struct program *p, const struct schedule *s, int bn, int part)
{
    struct column_range columns;
    const struct tensor_use *b = program_b_part(p, part, &columns);
    struct map_spec m = operand_map(b, p->dim[0], columns.end - columns.first, p->k);
    m.box[0] = box_k(b, &s->tile);
    m.box[1] = operand_is_mn_major(b) ? 64 : bn / tile_cluster_m(&s->tile);
    m.box[2] = 1;
    if (program_is_gated(p)) split_halves(p, &s->tile, bn, &m);
    if (s->layout.splits_heads) split_heads(p, &s->tile, columns.end - columns.first, &m);
    return m;
}

/* Records of a packed B as numbers of 64 bits: a box has those of a slot, of the row blocks of a consumer's
 * tile. What no box is wide enough for are pieces of records. Halves of what is paired apart, of
 * all columns or of each head, are a dimension, and so are batches. */
static struct map_spec records_map(const struct program *p, const struct schedule *s)
{
    enum { WORD = 8, MOST = 256 };
    const struct tensor_use *b = &p->b.data;
    const struct pack_format f = graph_format_of(b->packing.format);
    const struct pack_record r = pack_record(&f);
    int pieces = CEIL_DIV(r.bytes / WORD, MOST), blocks = s->tile.bn / PACK_ROWS;
    int64_t all = CEIL_DIV(p->dim[2], PACK_ROWS), block = packed_block_bytes(b) / WORD;
    struct map_spec m = {.buffer = b->buffer,
                         .offset = use_start(b) / WORD,
                         .dtype = CODA_I64,
                         .rank = 4,
                         .l2_promotion = 256};
    m.dim[0] = m.box[0] = r.bytes / WORD / pieces, m.stride[0] = 1;
    m.dim[1] = CEIL_DIV(p->k, r.step) * pieces, m.stride[1] = m.dim[0],
    m.box[1] = s->tile.bk / r.step * pieces;
    m.dim[2] = all, m.stride[2] = block, m.box[2] = blocks;
    m.dim[3] = 1, m.stride[3] = all * block, m.box[3] = 1;
    if (p->dim[0] > 1 && b->batch) {
        m.rank = 5;
        m.dim[4] = p->dim[0], m.stride[4] = packed_bytes(b, b->batch) / WORD, m.box[4] = 1;
    }
    if (p->pair == PAIR_GLU_STACKED || s->layout.splits_heads) {
        m.dim[2] = p->pair == PAIR_GLU_STACKED ? all / 2 : pair_span(p) / 2 / PACK_ROWS;
        m.dim[3] = all / m.dim[2], m.stride[3] = m.dim[2] * block;
        m.box[2] = blocks / 2, m.box[3] = 2;
    }
    return m;
}

/* The map of a tile that the epilogue moves, by boxes of a unit: of all 64 rows, or of a warp's. Where two
 * values of 16 bits are one element of 32, all that counts elements counts half as many. */
static struct map_spec unit_map(const struct program *p, const struct move *v, int unit, int rows)
{
    const struct tensor_use *port = &p->port[p->step[v->step[0]].port];
    int values = (int)dtype_elements(port->dtype, v->bytes);
    struct map_spec m = {.buffer = port->buffer, .offset = port->offset, .rank = 3};
    m.by_rank = dtype_bytes(port->dtype, port->by_rank), m.ahead = port->ahead;
    m.dtype = values > 1 ? CODA_I32 : port->dtype;
    if (v->form == MOVE_UPPER) m.offset += p->dim[2] / 2;
    m.offset /= values;
    m.swizzle = v->bytes * unit;
    m.l2_promotion = 256;
    struct column_range columns = step_columns(p, &p->step[v->step[0]]);
    m.dim[0] = columns.end - columns.first;
    m.dim[1] = p->dim[1];
    m.dim[2] = p->dim[0];
    m.stride[0] = 1;
    m.stride[1] = port->stride[1] / values;
    m.stride[2] = p->dim[0] > 1 ? port->stride[0] / values : m.stride[1] * p->dim[1];
    m.box[0] = unit, m.box[1] = rows, m.box[2] = 1;
    return m;
}

void emit_gemm_maps(const struct program *p, const struct schedule *s, struct kernel *k)
{
    const struct epilogue_layout *l = &s->layout;
    k->map[k->maps++] = a_map(p, s);
    if (use_is_packed(&p->b.data)) k->map[k->maps++] = records_map(p, s);
    else
        for (int i = 0; i <= p->parts; i++) k->map[k->maps++] = b_map(p, s, s->tile.bn, i);
    if (l->maps_tail) k->map[k->maps++] = b_map(p, s, s->tile.tail_bn, 0);
    for (int i = 0; i < l->stores.count; i++)
        k->map[k->maps++] = unit_map(p, &l->stores.move[i], l->unit, 16);
    for (int i = 0; i < l->loads.count; i++) k->map[k->maps++] = unit_map(p, &l->loads.move[i], l->unit, 64);
}
