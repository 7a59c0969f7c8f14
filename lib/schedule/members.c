/*
 * members.c -- which programs may be one launch with others, and whose texts are equal then: all that follows
 * from the number of rows, and from addresses, is among a member's arguments.
 */
#include "members.h"
#include "identity.h"
#include "wgmma.h"

/* Rows kernels of more elements take so long that a launch fewer is nothing beside them. */
enum { MOST_IN_NORM = 1 << 24 };

const struct program *member_of(struct arena *a, const struct program *q)
{
    struct program *of = ARENA_NEW(a, struct program, 1);
    if (of) *of = *q;
    if (!of || !q->sample) return of;
    of->port = ARENA_NEW(a, struct tensor_use, q->ports + 1);
    if (!of->port) return NULL;
    of->dim[0] = q->dim[1] / q->sample, of->dim[1] = q->sample, of->sample = 0;
    of->a.data.batch = q->sample * of->a.data.row;
    for (int i = 0; i < q->ports; i++) {
        struct tensor_use *u = &of->port[i];
        *u = q->port[i];
        if (u->stride[1]) u->stride[0] = q->sample * u->stride[1];
    }
    return of;
}

/* ---- Which may be ---- */

static bool counts_rows(const struct program *q) { return pair_step(q) >= 0 && pair_counts_rows(q); }

/* Are all of them tensors that it reads or writes by strides alone? */
static bool has_plain_ports(const struct program *q)
{
    for (int i = 0; i < q->ports; i++)
        if (q->port[i].role != USE_LOAD && q->port[i].role != USE_STORE) return false;
    return true;
}

static bool is_norm(const struct program *q)
{
    int64_t elements = 1;
    for (int d = 0; d < q->rank; d++) elements = mul_counts(elements, q->dim[d]);
    bool several = q->rank > 1 && q->dim[q->rank - 2] > 1 && elements && elements <= MOST_IN_NORM;
    return several && program_folds_rows(q) && !program_folds_columns(q) && has_plain_ports(q) &&
           !counts_rows(q);
}

/* Streams are for few rows, and sums of columns in the text. */
static bool is_product(const struct program *q, const struct plan_options *opt)
{
    if (!program_has_work(q) || q->dim[1] <= STREAM_ROWS || q->dim[1] > INT32_MAX) return false;
    const struct decision *d = plan_decision(opt, q->root);
    return (!q->sample || has_plain_ports(q)) && !counts_rows(q) && !program_folds_columns(q) &&
           !(d && d->apart) && mainloop_wgmma.supports(&opt->target, q);
}

bool member_may_be(const struct program *q, const struct plan_options *opt)
{
    if (q->prepare) return false;
    return q->kind == PROGRAM_ROWS ? is_norm(q) : q->kind == PROGRAM_GEMM && is_product(q, opt);
}

/* ---- Whose texts are equal ---- */

bool members_are_alike(const struct program *a, const struct program *b)
{
    return a->kind == b->kind && a->k == b->k && a->dim[2] == b->dim[2] && a->steps == b->steps &&
           a->ports == b->ports && a->a.dtype == b->a.dtype;
}

/* What of a distance shows in the text: how it is aligned. */
static int64_t residue(const struct tensor_use *u, int64_t elements)
{
    enum { ALIGNED = 16 }; /* bytes, as TMA wants them */
    int64_t bytes = use_is_packed(u) ? elements : dtype_bytes(u->dtype, elements);
    return (bytes % ALIGNED + ALIGNED) % ALIGNED;
}

/* What a text depends on of a distance that the launch passes: whether there is one, and its residue. */
static int64_t passed(const struct tensor_use *u, int64_t stride)
{
    bool fits = stride > -INT32_MAX && stride < INT32_MAX;
    return stride && fits ? 1 + residue(u, stride) : stride;
}

/* The first port at its address, with which it shares an argument. */
static int first_at(const struct program *q, int port)
{
    const struct tensor_use *u = &q->port[port];
    int first = 0;
    while (q->port[first].buffer != u->buffer || use_start(&q->port[first]) != use_start(u)) first++;
    return first;
}

/* An argument of the launch, whatever tensor it is. */
static void blank_address(struct tensor_use *u, int number)
{
    u->buffer = number, u->version = 0;
    u->offset = residue(u, u->offset);
}

static void blank_batch(struct tensor_use *u, const struct program *q)
{
    bool strided = u->role == USE_LOAD || u->role == USE_STORE || u->role == USE_OPERAND;
    u->stride[0] = q->dim[0] == 1 || !strided ? 0 : passed(u, u->stride[0]);
}

/* What is ahead of the rows of a norm, which may lie dense. */
static void blank_matrices(struct tensor_use *u, const struct program *q)
{
    enum { DENSE = -1 };
    for (int d = 0; d + 2 < q->rank; d++) {
        bool dense = q->dim[d] > 1 && u->stride[d] == u->stride[d + 1] * q->dim[d + 1];
        u->stride[d] = dense ? DENSE : q->dim[d] > 1 ? passed(u, u->stride[d]) : 0;
    }
}

/* A program without its rows and addresses. */
static bool identify(struct arena *a, const struct program *program, struct identity *id)
{
    const struct program *q = member_of(a, program);
    struct tensor_use *port = q ? ARENA_NEW(a, struct tensor_use, q->ports + 1) : NULL;
    if (!port) return false;
    struct program blank = *q;
    bool norm = q->kind == PROGRAM_ROWS;
    blank.port = port;
    for (int i = 0; i < q->ports; i++) {
        port[i] = q->port[i];
        blank_address(&port[i], first_at(q, i));
        if (norm) blank_matrices(&port[i], q);
        else blank_batch(&port[i], q);
    }
    if (!norm) {
        blank_address(&blank.a.data, q->ports), blank_address(&blank.b.data, q->ports + 1);
        blank_batch(&blank.a.data, q), blank_batch(&blank.b.data, q);
    }
    blank.dim[norm ? q->rank - 2 : 1] = blank.pairing.period = 1;
    return identity_of(id, a, NULL, &blank);
}

bool members_have_one_text(const struct program *a, const struct program *b, struct arena *scratch)
{
    struct identity x, y;
    return members_are_alike(a, b) && identify(scratch, a, &x) && identify(scratch, b, &y) &&
           identity_equal(&x, &y);
}
