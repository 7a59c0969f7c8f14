/*
 * plan_verify.c -- every invariant of a plan, checked from nothing but the plan.
 *
 * Of its memory: what a program of coda_prepare leaves for runs lies in `prepared`, or in a weight that is
 * folded in place, for nothing else outlives the call; and a run reads only arguments that it is given,
 * `prepared`, sums that it adds to, and what an earlier program of the same run has written.
 */
#include "verify.h"

#include <stdlib.h>

/* ---- Steps and places ---- */

/* What is computed once for each row, or for each column, reads nothing else, as it is printed elsewhere. */
static bool reads_its_class(const struct program *q, const struct step *s)
{
    if (s->cls == CLASS_TILE || s->kind == STEP_REDUCE) return true;
    for (int i = 0; i < s->nin; i++)
        if (s->in[i] >= 0 && q->step[s->in[i]].kind != STEP_SCALAR && q->step[s->in[i]].cls != s->cls)
            return false;
    return true;
}

/* Pages are whole, and so are heads; scales are there. */
static bool scatters_evenly(const struct program *q, const struct step *s, const struct tensor_use *to)
{
    int64_t columns = q->kind == PROGRAM_GEMM ? step_value_columns(q, s) : q->dim[q->rank - 1];
    if (to->scale < 0 || to->scale > q->ports) return false;
    const struct tensor_use *scales = to->scale ? &q->port[to->scale - 1] : NULL;
    if (scales && (scales->role != USE_SCALES || scales->table_rows < 1 || columns % scales->table_rows))
        return false;
    if (!to->page) return !to->head_dim;
    return to->page > 0 && to->head_dim > 0 && to->table_rows % to->page == 0 && columns % to->head_dim == 0;
}

/* Ids and keys are row values; alone, a pair's element finds the other one where its own is from. */
static bool reads_rightly(const struct program *q, const struct step *s, int index)
{
    const struct tensor_use *port = s->port >= 0 ? &q->port[s->port] : NULL;
    bool keyed = s->kind == STEP_REDUCE || s->kind == STEP_PAIR;
    for (int i = 1; i < s->nin && keyed; i++)
        if (s->in[i] >= 0 && !step_is_of_row(&q->step[s->in[i]])) return false;
    if (s->kind == STEP_PAIR && pair_axes(&q->pairing) > 1 && s->nin != 1 + pair_axes(&q->pairing))
        return false;
    if (s->kind == STEP_PAIR && q->kind == PROGRAM_ROWS && !step_is_of_loads(q, s->in[0])) return false;
    if (s->kind == STEP_LOAD && port->role == USE_GATHER)
        return port->index >= 0 && port->index < index && step_is_of_row(&q->step[port->index]) &&
               step_has_value(q, &q->step[port->index]);
    if (s->kind == STEP_STORE && port->role == USE_SCATTER &&
        (port->index < 0 || port->index >= index || !step_is_of_row(&q->step[port->index]) ||
         !step_has_value(q, &q->step[port->index]) || !scatters_evenly(q, s, port)))
        return false;
    return reads_its_class(q, s);
}

/* A step of a range reads those of that range, or of all columns. */
static bool reads_its_range(const struct program *q, const struct step *s)
{
    for (int i = 0; i < s->nin; i++)
        if (s->in[i] >= 0 && q->step[s->in[i]].range && q->step[s->in[i]].range != s->range) return false;
    struct column_range w = s->store_columns;
    bool even = w.first % 2 == 0 && w.end % 2 == 0 && !program_is_gated(q) && !s->range;
    if (w.end && (s->kind != STEP_STORE || w.first < 0 || w.first >= w.end || w.end > q->dim[2] || !even))
        return false;
    return s->range >= 0 && s->range <= q->ranges && (!step_folds_segments(s) || q->segment > 0);
}

static coda_status verify_step(const struct plan *p, const struct program *q, int index)
{
    const struct step *s = &q->step[index];
    bool wants_port = s->kind == STEP_LOAD || s->kind == STEP_PARTIAL || s->kind == STEP_STORE ||
                      s->kind == STEP_SCALAR || s->kind == STEP_CONV1D;
    if ((wants_port || s->port >= 0) && (s->port < 0 || s->port >= q->ports || q->port[s->port].buffer < 0 ||
                                         q->port[s->port].buffer >= p->buffers))
        return fail(CODA_E_INVALID, "plan: step %d of @%d has no port", index, (int)(q - p->program));
    for (int i = 0; i < s->nin; i++) {
        bool second = i == 1 && (s->kind == STEP_REDUCE || s->kind == STEP_PAIR || s->kind == STEP_CONV1D);
        bool optional = second || s->kind == STEP_MAP;
        if (s->in[i] < 0 && optional) continue;
        if (s->in[i] < 0 || s->in[i] >= index || !step_has_value(q, &q->step[s->in[i]]))
            return fail(CODA_E_INVALID, "plan: step %d of @%d reads step %d", index, (int)(q - p->program),
                        s->in[i]);
    }
    if (reads_rightly(q, s, index) && reads_its_range(q, s)) return CODA_OK;
    return fail(CODA_E_INVALID, "plan: step %d of @%d reads what is not there for it", index,
                (int)(q - p->program));
}

/* Threads that fold the columns of a matrix, and no rows, finish no states of these: they do not walk them
 * together. */
static coda_status verify_folds(const struct plan *p, const struct program *q)
{
    bool folds = q->kind == PROGRAM_ROWS && program_folds_columns(q);
    for (int i = 0; i < q->steps && folds; i++) {
        const struct step *s = &q->step[i];
        bool of_rows = s->kind == STEP_PARTIAL && !program_folds_rows(q);
        bool pairs = s->kind == STEP_PAIR || (s->kind == STEP_PARTIAL && s->axis == REDUCE_COLUMNS);
        if (of_rows || pairs || q->rank < 2)
            return fail(CODA_E_INVALID, "plan: step %d of @%d is among folds of columns, of rank %d", i,
                        (int)(q - p->program), q->rank);
    }
    return CODA_OK;
}

/* What an operand is scaled by, and what is taken off it, are operands too, among the ports. */
static bool operand_is_whole(const struct program *q, const struct operand *o)
{
    const int port[] = {o->scale, o->zero};
    bool whole = dtype_bits(o->dtype) && o->data.role == USE_OPERAND;
    for (int i = 0; i < ARRAY_SIZE(port) && whole; i++)
        whole = port[i] >= 0 && port[i] <= q->ports && (!port[i] || q->port[port[i] - 1].role == USE_OPERAND);
    return whole;
}

/* One range behind the other, up to the last column; and all that is not one number for all is of a range. */
static bool ranges_tile(const struct program *q)
{
    bool whole = q->rank == 2 && q->dim[0] == 1 && q->range[q->ranges - 1].end == q->dim[1];
    for (int i = 0; i < q->ranges; i++) whole = whole && q->range[i].first == (i ? q->range[i - 1].end : 0);
    for (int i = 0; i < q->steps; i++)
        whole = whole && (q->step[i].range || q->step[i].cls == CLASS_ROW) && q->step[i].kind != STEP_REDUCE;
    return whole;
}

static bool ranges_are_whole(const struct program *q)
{
    int span = MAX(program_span(q), 1);
    int64_t columns = q->rank ? q->dim[q->rank - 1] : 1;
    for (int i = 0; i < q->ranges; i++) {
        const struct column_range *r = &q->range[i];
        if (r->first < 0 || r->first >= r->end || r->end > columns || r->first % span ||
            (r->end % span && r->end != columns))
            return false;
        for (int j = 0; j < i; j++)
            if (r->first < q->range[j].end && q->range[j].first < r->end) return false;
    }
    return q->ranges == 0 || (q->kind == PROGRAM_ROWS ? ranges_tile(q) : q->segment > 0);
}

static coda_status verify_steps(const struct plan *p)
{
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        if (q->rank > CODA_MAX_RANK) return fail(CODA_E_INVALID, "plan: @%d has rank %d", i, q->rank);
        if (q->sample && (q->dim[0] != 1 || q->sample < 0 || q->dim[1] % q->sample))
            return fail(CODA_E_INVALID, "plan: @%d has %lld times %lld rows in samples of %lld", i,
                        (long long)q->dim[0], (long long)q->dim[1], (long long)q->sample);
        if (q->kind == PROGRAM_GEMM && !(operand_is_whole(q, &q->a) && operand_is_whole(q, &q->b)))
            return fail(CODA_E_INVALID, "plan: @%d has an operand whose scale or zero is no port of it", i);
        if (!ranges_are_whole(q)) return fail(CODA_E_INVALID, "plan: @%d has ranges that are not apart", i);
        coda_status status = verify_folds(p, q);
        for (int s = 0; s < q->steps && !status; s++) status = verify_step(p, q, s);
        if (!status) status = verify_in_place(p, i);
        if (status) return status;
    }
    return CODA_OK;
}

static coda_status verify_places(const struct plan *p)
{
    for (int i = 0; i < p->buffers; i++) {
        const struct buffer *b = &p->buffer[i];
        int64_t end = b->space == SPACE_PREPARED ? p->prepared
                      : b->space == SPACE_INBOX  ? p->inbox
                                                 : p->workspace;
        if (b->first < 0 || b->space == SPACE_ARG) continue;
        if (b->offset < 0 || b->offset % 256 || b->offset + b->bytes > end)
            return fail(CODA_E_INVALID, "plan: buffer %d of %lld bytes lies at %lld of %lld", i,
                        (long long)b->bytes, (long long)b->offset, (long long)end);
    }
    return CODA_OK;
}

/* ---- Memory: who wrote what, and for whom ---- */

enum { BY_NOBODY, BY_PREPARE, BY_RUN };

struct memory {
    const struct plan *p;
    const struct program *q; /* at hand */
    char *writer;            /* of each buffer, so far */
    int *version;            /* ... what it holds */
    int bad;                 /* the buffer at fault */
};

static enum op leaf_op(const struct plan *p, const struct buffer *b)
{
    bool arg = b->space == SPACE_ARG && b->value >= 0;
    enum op op = arg ? p->graph->node[b->value].op : OP_COUNT;
    return op_is_leaf(op) ? op : OP_COUNT;
}

/* What the caller has there is added to. */
static bool is_sum(const struct plan *p, const struct buffer *b)
{
    return b->space == SPACE_ARG && b->arg >= p->graph->leaves &&
           p->graph->output[b->arg - p->graph->leaves].add;
}

static bool may_not_write(void *ctx, int buffer)
{
    struct memory *m = ctx;
    const struct buffer *b = &m->p->buffer[buffer];
    enum op leaf = leaf_op(m->p, b);
    bool prepare = m->q->prepare,
         in_place = leaf == OP_COUNT || node_is_written(&m->p->graph->node[b->value]);
    bool good = prepare ? leaf == OP_WEIGHT : in_place;
    if (b->space == SPACE_PREPARED) good = prepare;
    if (b->space == SPACE_WORK) good = m->writer[buffer] != (prepare ? BY_RUN : BY_PREPARE);
    if (good) m->writer[buffer] = prepare ? BY_PREPARE : BY_RUN;
    else m->bad = buffer;
    return !good;
}

static bool may_not_read(void *ctx, int buffer)
{
    struct memory *m = ctx;
    const struct buffer *b = &m->p->buffer[buffer];
    enum op leaf = leaf_op(m->p, b);
    bool good = leaf == OP_WEIGHT || ((op_is_input(leaf) || is_sum(m->p, b)) && !m->q->prepare);
    if (leaf == OP_COUNT && !is_sum(m->p, b))
        good = m->writer[buffer] == (m->q->prepare || b->space == SPACE_PREPARED ? BY_PREPARE : BY_RUN);
    if (!good) m->bad = buffer;
    return !good;
}

/* What is read is there, and not yet written over; what is written is no older than what is there. */
static coda_status verify_versions(struct memory *m)
{
    const struct tensor_use *u;
    int index = (int)(m->q - m->p->program);
    for (int j = 0; (u = program_use(m->q, j)); j++)
        if (u->version < m->version[u->buffer] ||
            (use_effect(u) == EFFECT_READ && u->version > m->version[u->buffer]))
            return fail(CODA_E_INVALID, "plan: @%d uses version %d of buffer %d, which holds version %d",
                        index, u->version, u->buffer, m->version[u->buffer]);
    for (int j = 0; (u = program_use(m->q, j)); j++)
        m->version[u->buffer] = MAX(m->version[u->buffer], u->version);
    return CODA_OK;
}

static coda_status verify_program(struct memory *m)
{
    const struct program *q = m->q;
    int index = (int)(q - m->p->program);
    const char *list = q->prepare ? "coda_prepare" : "a run";
    if (q->prepare && index && !q[-1].prepare)
        return fail(CODA_E_INVALID, "plan: @%d of coda_prepare comes after a run's", index);
    if (program_any_read(q, may_not_read, m))
        return fail(CODA_E_INVALID, "plan: @%d of %s reads buffer %d, which %s", index, list, m->bad,
                    m->writer[m->bad] ? "does not outlive coda_prepare" : "nobody has written");
    if (program_any_write(q, may_not_write, m))
        return fail(CODA_E_INVALID, "plan: @%d of %s writes buffer %d, which is not its own", index, list,
                    m->bad);
    return verify_versions(m);
}

static coda_status verify_memory(const struct plan *p)
{
    struct memory m = {.p = p,
                       .writer = calloc((size_t)p->buffers + 1, 1),
                       .version = calloc((size_t)p->buffers + 1, sizeof *m.version)};
    coda_status status =
        m.writer && m.version ? CODA_OK : fail(CODA_E_MEMORY, "plan: out of memory in verify");
    for (int i = 0; i < p->programs && !status; i++) {
        m.q = &p->program[i];
        status = verify_program(&m);
    }
    free(m.writer);
    free(m.version);
    return status;
}

/* ---- Programs of one launch, which run at one time ---- */

/* Do they touch the same bytes? Parts of one version, which none adds to, are apart. */
static bool uses_meet(const struct plan *p, const struct tensor_use *u, const struct tensor_use *w)
{
    const struct buffer *a = &p->buffer[u->buffer], *b = &p->buffer[w->buffer];
    bool work = a->space == b->space && a->space != SPACE_ARG;
    if (u->buffer == w->buffer)
        return u->version != w->version || use_effect(u) != EFFECT_WRITE || use_effect(w) != EFFECT_WRITE;
    return work && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static coda_status verify_apart(const struct plan *p, int i, int j)
{
    const struct tensor_use *u, *w;
    for (int k = 0; (u = program_use(&p->program[i], k)); k++)
        for (int l = 0; (w = program_use(&p->program[j], l)); l++)
            if ((use_effect(u) | use_effect(w)) != EFFECT_READ && uses_meet(p, u, w))
                return fail(CODA_E_INVALID, "plan: @%d and @%d are one launch, and meet in buffers %d and %d",
                            i, j, u->buffer, w->buffer);
    return CODA_OK;
}

static coda_status verify_launches(const struct plan *p)
{
    coda_status status = CODA_OK;
    for (int i = 0; i < p->programs && p->together; i++)
        for (int j = i + 1; j < p->programs && !p->together[j] && !status; j++)
            if (plan_leader(p, j) <= i) status = verify_apart(p, i, j);
    return status;
}

coda_status plan_verify(const struct plan *p)
{
    coda_status status = verify_steps(p);
    if (!status) status = verify_launches(p);
    if (!status) status = verify_places(p);
    return status ? status : verify_memory(p);
}
