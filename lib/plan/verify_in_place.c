/*
 * verify_in_place.c -- no program reads what it has written over.
 *
 * A program that reads a version of a buffer and writes a later one has all its threads at both. It is right
 * where each element is read by the thread that writes it, and then. So what is read and what is written are
 * the same elements in the same order, or share no byte; and no step wants an element in a walk over the
 * columns that comes after the one that writes it. Statistics of a row part these walks. Of states fusion has
 * asked the same (fuse/in_place.c).
 */
#include "overlap.h"
#include "verify.h"

enum { MOST_WORK = 10000 };

/* The walk over a row that each step of a program is part of. */
struct walks {
    const struct program *q;
    int *number; /* the walk that it is part of: behind how many statistics of the row its value is known */
    bool *wants; /* does it want the elements of the load at hand? */
};

static bool is_statistic(const struct step *s) { return s->kind == STEP_REDUCE && s->axis == REDUCE_ROWS; }

static void number_walks(struct walks *w)
{
    for (int i = 0; i < w->q->steps; i++) {
        const struct step *s = &w->q->step[i];
        w->number[i] = 0;
        for (int k = 0; k < s->nin; k++)
            if (s->in[k] >= 0)
                w->number[i] = MAX(w->number[i], w->number[s->in[k]] + is_statistic(&w->q->step[s->in[k]]));
    }
}

static bool walks_begin(struct walks *w, struct arena *a)
{
    if (w->number) return true;
    w->number = ARENA_NEW(a, int, w->q->steps + 1);
    w->wants = ARENA_NEW(a, bool, w->q->steps + 1);
    if (!a->failed) number_walks(w);
    return !a->failed;
}

/* Does a step that stores or folds want the load's elements in a walk after that of the store? */
static bool is_wanted_later(struct walks *w, int load, int store)
{
    bool later = false;
    for (int i = 0; i < w->q->steps; i++) {
        const struct step *s = &w->q->step[i];
        w->wants[i] = i == load;
        for (int k = 0; k < s->nin; k++)
            if (s->in[k] >= 0 && w->wants[s->in[k]] && !is_statistic(&w->q->step[s->in[k]]))
                w->wants[i] = true;
        bool sink = s->kind == STEP_STORE || s->kind == STEP_REDUCE;
        later = later || (sink && w->wants[i] && w->number[i] > w->number[store]);
    }
    return later;
}

static int64_t extent_of(const struct program *q, const struct step *s, int d)
{
    if (d + 1 < q->rank) return q->dim[d];
    return q->kind == PROGRAM_GEMM ? step_value_columns(q, s) : q->dim[d];
}

static bool are_same(const struct program *q, const struct step *l, const struct step *s)
{
    const struct tensor_use *from = &q->port[l->port], *to = &q->port[s->port];
    if (from->offset != to->offset || from->dtype != to->dtype || l->half != s->half) return false;
    for (int d = 0; d < q->rank; d++)
        if (extent_of(q, s, d) != 1 && (from->stride[d] != to->stride[d] || !to->stride[d])) return false;
    return true;
}

static struct lattice lattice_of(const struct program *q, const struct step *s)
{
    int64_t dim[CODA_MAX_RANK];
    for (int d = 0; d < q->rank; d++) dim[d] = extent_of(q, s, d);
    return lattice_strided(q->port[s->port].dtype, q->rank, dim, q->port[s->port].stride);
}

static bool share_no_byte(const struct program *q, const struct step *l, const struct step *s)
{
    struct lattice a = lattice_of(q, l), b = lattice_of(q, s);
    int work = MOST_WORK;
    return lattices_meet(&a, &b, use_start(&q->port[s->port]) - use_start(&q->port[l->port]), &work) == APART;
}

static bool steps_agree(struct walks *w, int load, int store)
{
    const struct program *q = w->q;
    const struct step *l = &q->step[load], *s = &q->step[store];
    bool elements = l->cls == CLASS_TILE && s->cls == CLASS_TILE && !l->range && !s->range;
    if (!elements || s->store_columns.end || q->segment) return false;
    if (are_same(q, l, s)) return load < store && !is_wanted_later(w, load, store);
    return share_no_byte(q, l, s);
}

/* Is it the port of steps of one kind alone, element by element? */
static bool is_plain_port(const struct program *q, const struct tensor_use *u, enum step_kind kind)
{
    int port = (int)(u - q->port);
    if (u < q->port || u >= q->port + q->ports || use_is_indexed(u) || pair_step(q) >= 0) return false;
    for (int i = 0; i < q->steps; i++)
        if (step_uses(q, &q->step[i], port) && (q->step[i].kind != kind || q->step[i].port != port))
            return false;
    return true;
}

static bool uses_agree(struct walks *w, const struct tensor_use *from, const struct tensor_use *to)
{
    const struct program *q = w->q;
    bool good = is_plain_port(q, from, STEP_LOAD) && is_plain_port(q, to, STEP_STORE);
    for (int i = 0; i < q->steps && good; i++)
        for (int j = 0; j < q->steps && good; j++) {
            bool load = q->step[i].kind == STEP_LOAD && &q->port[q->step[i].port] == from;
            bool store = q->step[j].kind == STEP_STORE && &q->port[q->step[j].port] == to;
            good = !load || !store || steps_agree(w, i, j);
        }
    return good;
}

static bool is_state(const struct plan *p, const struct buffer *b)
{
    return b->space == SPACE_ARG && b->arg < p->graph->leaves && p->graph->node[b->value].op == OP_STATE;
}

static bool is_over(const struct tensor_use *from, const struct tensor_use *to)
{
    return from->buffer == to->buffer && use_effect(from) == EFFECT_READ && use_effect(to) == EFFECT_WRITE &&
           to->version > from->version;
}

/* Each of two ranks has a part: the exchange reads this rank's and writes the other's. */
static bool is_other_part(const struct program *q, const struct tensor_use *from)
{
    return q->own && from->by_rank;
}

coda_status verify_in_place(const struct plan *p, int index)
{
    const struct program *q = &p->program[index];
    const struct tensor_use *from, *to;
    struct arena arena = {0};
    struct walks w = {.q = q};
    bool good = true;
    for (int i = 0; (from = program_use(q, i)) && good; i++)
        for (int j = 0; (to = program_use(q, j)) && good; j++)
            if (is_over(from, to) && !is_other_part(q, from) && !is_state(p, &p->buffer[to->buffer]))
                good = walks_begin(&w, &arena) && uses_agree(&w, from, to);
    bool failed = arena.failed;
    arena_free(&arena);
    if (failed) return fail(CODA_E_MEMORY, "plan: out of memory in verify");
    return good ? CODA_OK
                : fail(CODA_E_INVALID, "plan: @%d writes over what other threads of it read", index);
}
