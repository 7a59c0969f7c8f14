/* program_work.c -- the bytes that a program reads and writes, and its multiply-adds. */
#include "program.h"

#include "own.h"

/* One for each row and block; or for each matrix, block and column. */
static int64_t states_bytes(const struct program *q, const struct tensor_use *port, int64_t columns)
{
    bool of_columns = port->axis == REDUCE_COLUMNS;
    int64_t n = mul_counts(port->blocks, port->reduce->state * 4);
    for (int d = 0; d + 1 + of_columns < q->rank; d++) n = mul_counts(n, q->dim[d]);
    return of_columns ? mul_counts(n, columns) : n;
}

/* Columns that a step touches by its port: one for a row, or those of a store or range, of one half of a
 * gated product, or all. */
static int64_t touched_columns(const struct program *q, const struct step *s)
{
    if (s->cls == CLASS_ROW) return 1;
    if (s->range || s->store_columns.end) return step_columns(q, s).end - step_columns(q, s).first;
    return s->half ? q->dim[q->rank - 1] / 2 : q->dim[q->rank - 1];
}

/* The most that a step touches by it: all of them begin at the port's column 0. */
static int64_t port_columns(const struct program *q, int port)
{
    int64_t most = 0;
    bool used = q->rank == 0;
    for (int i = 0; i < q->steps && q->rank; i++) {
        if (q->step[i].port != port) continue;
        most = MAX(most, touched_columns(q, &q->step[i]));
        used = true;
    }
    return used ? most : q->dim[q->rank - 1];
}

/* Elements of a row, of so many columns, which may lie in segments, or be one number. */
static int64_t row_elements(const struct program *q, const struct tensor_use *port, int64_t columns)
{
    if (q->rank == 0) return 1;
    if (!q->segment) return port->stride[q->rank - 1] ? columns : 1;
    return mul_counts(port->stride[2] ? q->segment : 1, port->stride[3] ? columns / q->segment : 1);
}

static bool is_empty(const struct program *q)
{
    for (int d = 0; d + (q->kind != PROGRAM_GEMM) < q->rank; d++)
        if (q->dim[d] == 0) return true;
    return false;
}

static int64_t extent_bytes(const struct program *q, const struct tensor_use *port, int64_t columns)
{
    if (port->role == USE_SCRATCH || port->role == USE_SCALAR) return 0;
    if (port->role == USE_FREQUENCIES || port->role == USE_SCALES) return mul_counts(port->table_rows, 4);
    if (port->role == USE_EDGES)
        return dtype_bytes(port->dtype,
                           mul_counts(columns, edge_rows(&q->step[conv1d_step_of(q)], q->dim[1])));
    int64_t n = row_elements(q, port, columns);
    for (int d = 0; d + 1 < q->rank; d++) {
        int64_t extent = q->sample && d == 0 && port->stride[0] ? program_samples(q) : q->dim[d];
        if (port->stride[d] || use_is_indexed(port)) n = mul_counts(n, extent);
    }
    n = use_is_packed(port) ? packed_elements_bytes(port, n) : dtype_bytes(port->dtype, n);
    return use_effect(port) & EFFECT_ADD ? mul_counts(2, n) : n;
}

static int64_t operand_bytes(const struct program *q, const struct tensor_use *o, int64_t rows)
{
    if (is_empty(q)) return 0;
    if (use_is_packed(o)) return mul_counts(packed_operand_bytes(o, rows, q->k), o->batch ? q->dim[0] : 1);
    return dtype_bytes(o->dtype, mul_counts(mul_counts(rows, q->k), o->batch ? q->dim[0] : 1));
}

static int64_t scales_bytes(const struct program *q, const struct operand *o, int64_t rows)
{
    const struct tensor_use *s = &q->port[o->scale - 1];
    int64_t blocks = mul_counts(CEIL_DIV(rows, MAX(o->scale_rows, 1)), CEIL_DIV(q->k, MAX(o->scale_k, 1)));
    return dtype_bytes(s->dtype, mul_counts(blocks, s->batch ? q->dim[0] : 1));
}

/* Bytes of part i of B. */
static int64_t part_bytes(const struct program *q, int i)
{
    struct column_range columns;
    const struct tensor_use *u = program_b_part(q, i, &columns);
    return operand_bytes(q, u, columns.end - columns.first);
}

int64_t program_b_bytes(const struct program *p)
{
    int64_t bytes = 0;
    for (int i = 0; i <= p->parts; i++) bytes = add_counts(bytes, part_bytes(p, i));
    return bytes;
}

int64_t port_bytes(const struct program *q, int port)
{
    const struct tensor_use *use = &q->port[port];
    if (q->kind == PROGRAM_GEMM && q->a.scale == 1 + port) return scales_bytes(q, &q->a, q->dim[1]);
    if (q->kind == PROGRAM_GEMM && q->b.scale == 1 + port) return scales_bytes(q, &q->b, q->dim[2]);
    for (int i = 0; i < q->parts; i++)
        if (q->part[i].port == port) return part_bytes(q, 1 + i);
    bool states = use->role == USE_PARTIAL_LOAD || use->role == USE_PARTIAL_STORE;
    int64_t columns = port_columns(q, port);
    if (states) return states_bytes(q, use, columns);
    return is_empty(q) ? 0 : extent_bytes(q, use, columns);
}

int64_t use_bytes(const struct program *q, const struct tensor_use *u)
{
    if (q->own) return -1;
    if (u == &q->a.data) return operand_bytes(q, u, q->dim[1]);
    return u == &q->b.data ? part_bytes(q, 0) : port_bytes(q, (int)(u - q->port));
}

/* States that two statistics are made of are read once. */
static bool is_read_before(const struct program *q, int port)
{
    const struct tensor_use *use = &q->port[port];
    for (int i = 0; i < port && use->role == USE_PARTIAL_LOAD; i++)
        if (q->port[i].role == USE_PARTIAL_LOAD && q->port[i].buffer == use->buffer) return true;
    return false;
}

int64_t program_bytes(const struct program *q)
{
    int64_t bytes = 0;
    if (q->own) return q->own->bytes(q->spec);
    for (int i = 0; i < q->ports; i++)
        if (!is_read_before(q, i)) bytes = add_counts(bytes, port_bytes(q, i));
    if (q->kind != PROGRAM_GEMM) return bytes;
    return add_counts(bytes, add_counts(operand_bytes(q, &q->a.data, q->dim[1]), part_bytes(q, 0)));
}

double program_flops(const struct program *q)
{
    if (q->own) return q->own->flops ? q->own->flops(q->spec) : 0;
    if (q->kind != PROGRAM_GEMM) return 0;
    return 2.0 * (double)q->dim[0] * (double)q->dim[1] * (double)q->dim[2] * (double)q->k;
}
