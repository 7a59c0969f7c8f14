/*
 * reuse.c -- results in the memory of what they are made of.
 *
 * A program that reads each element of a tensor where it then writes one of its result, and is the last
 * one that reads the tensor, may leave the result there: the result is the tensor's next version, as if it
 * were assigned to a state. So dlogits take the place of logits, and a SwiGLU's dz that of z.
 *
 * It does so where memory is short: in programs at which more is kept in the workspace than must be kept
 * at some other one, if that makes the workspace smaller by one part in 128. Over an argument that may be
 * consumed it always does.
 */
#include "guards.h"
#include "own.h"
#include "overlap.h"
#include "plan.h"

enum { WORK_OF_OVERLAP = 1000 };

struct life {
    int first, last; /* programs that use it; -1: none */
    int writes;      /* uses that write it */
    int version;     /* the last one */
    int over;        /* the buffer whose memory it may take, ... */
    int to, shift;   /* ... the one that it takes, and by how much its versions are later there */
    bool consumes;   /* it is an argument that may be consumed, or takes the memory of one */
};

struct reuse {
    struct plan *p;
    struct life *life; /* of each buffer */
    bool *taken;       /* ... may another one take its memory? */
    int *walk;         /* of each step of the program at hand: how many walks over its row come before */
    bool *has;         /* ... is its value made of the elements of the load at hand? */
    double *kept;      /* of a program: bytes of the workspace that are in use ... */
    double *saved;     /* ... and how many fewer there may be */
};

static bool is_consumed(const struct plan *p, const struct buffer *b)
{
    const struct node *n = b->space == SPACE_ARG ? &p->graph->node[b->value] : NULL;
    return n && n->op == OP_INPUT && n->attr.input.consumed;
}

static void find_lives(struct reuse *r)
{
    const struct tensor_use *u;
    struct plan *p = r->p;
    for (int b = 0; b < p->buffers; b++)
        r->life[b] = (struct life){
            .first = -1, .last = -1, .over = -1, .to = b, .consumes = is_consumed(p, &p->buffer[b])};
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; (u = program_use(&p->program[i], j)); j++) {
            struct life *l = &r->life[u->buffer];
            if (l->first < 0) l->first = i;
            l->last = i;
            l->version = MAX(l->version, u->version);
            l->writes += use_effect(u) != EFFECT_READ;
        }
}

/* Keeps what exchanges use where others are to run beside them: who writes over it would wait for them, over
 * the sum that one comes behind, too. */
static void keep_exchanged(struct reuse *r)
{
    const struct tensor_use *u;
    for (int i = 0; i < r->p->programs; i++)
        for (int j = 0; r->p->program[i].own == &own_exchange && (u = program_use(&r->p->program[i], j)); j++)
            r->taken[u->buffer] = true;
}

/* Counts the workspace alone: what takes an argument's memory is no part of it. */
static void find_kept(struct reuse *r)
{
    for (int b = 0; b < r->p->buffers; b++) {
        const struct life *l = &r->life[b];
        if (l->first < 0 || l->consumes || r->p->buffer[b].space != SPACE_WORK) continue;
        r->kept[l->first] += (double)r->p->buffer[b].bytes;
        r->kept[l->last + 1] -= (double)r->p->buffer[b].bytes;
    }
    for (int i = 1; i < r->p->programs; i++) r->kept[i] += r->kept[i - 1];
}

/* ---- Is each element read before it is written, by the thread that writes it? ---- */

/* A row is walked once for what needs no statistic of it, and once more behind each statistic. A step of
 * elements is in the walk of the last statistic that it depends on; it is computed again in later ones. */
static void number_walks(struct reuse *r, const struct program *q)
{
    for (int i = 0; i < q->steps; i++) {
        const struct step *s = &q->step[i];
        r->walk[i] = 0;
        for (int k = 0; k < s->nin; k++)
            if (s->in[k] >= 0) r->walk[i] = MAX(r->walk[i], r->walk[s->in[k]]);
        r->walk[i] += s->kind == STEP_REDUCE && s->axis == REDUCE_ROWS;
    }
}

static bool folds_row(const struct step *s) { return s->kind == STEP_REDUCE && s->axis == REDUCE_ROWS; }

/* The last walk in which the elements of a load are wanted: by what is stored or folded of them. Behind a
 * row's statistic it is that, and no elements. */
static int last_walk(const struct reuse *r, const struct program *q, int load)
{
    int last = 0;
    for (int i = 0; i < q->steps; i++) {
        const struct step *s = &q->step[i];
        r->has[i] = i == load;
        for (int k = 0; k < s->nin; k++)
            r->has[i] = r->has[i] || (s->in[k] >= 0 && r->has[s->in[k]] && !folds_row(&q->step[s->in[k]]));
        if (r->has[i] && (s->kind == STEP_STORE || s->kind == STEP_REDUCE))
            last = MAX(last, r->walk[i] - folds_row(s));
    }
    return last;
}

static int64_t columns_of(const struct program *q, const struct step *s)
{
    return q->kind == PROGRAM_GEMM ? step_value_columns(q, s) : q->dim[q->rank - 1];
}

static struct lattice place_of(const struct program *q, const struct step *s)
{
    int64_t dim[CODA_MAX_RANK];
    for (int d = 0; d < q->rank; d++) dim[d] = q->dim[d];
    dim[q->rank - 1] = columns_of(q, s);
    return lattice_strided(q->port[s->port].dtype, q->rank, dim, q->port[s->port].stride);
}

static bool are_apart(const struct program *q, const struct step *load, const struct step *store)
{
    const struct lattice a = place_of(q, load), b = place_of(q, store);
    int work = WORK_OF_OVERLAP;
    int64_t from = use_start(&q->port[store->port]) - use_start(&q->port[load->port]);
    return lattices_meet(&a, &b, from, &work) == APART;
}

/* Element by element, and no two the same. */
static bool lie_alike(const struct program *q, const struct step *load, const struct step *store)
{
    const struct tensor_use *from = &q->port[load->port], *to = &q->port[store->port];
    bool alike =
        from->dtype == to->dtype && extents_equal(from->offset, to->offset) && load->half == store->half;
    for (int d = 0; d < q->rank && alike; d++) {
        bool one = extent_is_one(d + 1 < q->rank ? q->dim[d] : columns_of(q, store));
        alike = one || (extents_equal(from->stride[d], to->stride[d]) && !extents_equal(to->stride[d], 0));
    }
    return alike;
}

static bool is_pointwise(const struct program *q, const struct step *s)
{
    enum use_role role = q->port[s->port].role;
    return s->cls == CLASS_TILE && !s->range && !s->store_columns.end &&
           (role == USE_LOAD || role == USE_STORE) && !q->port[s->port].scale;
}

static bool may_follow(const struct reuse *r, const struct program *q, int load, int store)
{
    const struct step *l = &q->step[load], *s = &q->step[store];
    if (!lie_alike(q, l, s)) return are_apart(q, l, s);
    return load < store && last_walk(r, q, load) <= r->walk[store];
}

/* Are all uses of a buffer such that only steps of the kind are behind them, element by element? */
static bool is_used_by(const struct program *q, int buffer, enum step_kind kind)
{
    const struct tensor_use *u;
    for (int j = 0; (u = program_use(q, j)); j++)
        if (u->buffer == buffer && (u < q->port || u >= q->port + q->ports)) return false;
    for (int i = 0; i < q->steps; i++) {
        const struct step *s = &q->step[i];
        for (int port = 0; port < q->ports; port++) {
            if (q->port[port].buffer != buffer || !step_uses(q, s, port)) continue;
            if (s->kind != kind || s->port != port || !is_pointwise(q, s)) return false;
        }
    }
    return true;
}

/* May the program write what it leaves in buffer `to` over what it reads in buffer `from`? */
static bool may_write_over(const struct reuse *r, const struct program *q, int from, int to)
{
    bool good = is_used_by(q, from, STEP_LOAD) && is_used_by(q, to, STEP_STORE);
    for (int i = 0; i < q->steps && good; i++)
        for (int j = 0; j < q->steps && good; j++) {
            const struct step *l = &q->step[i], *s = &q->step[j];
            bool both = l->kind == STEP_LOAD && q->port[l->port].buffer == from && s->kind == STEP_STORE &&
                        q->port[s->port].buffer == to;
            good = !both || may_follow(r, q, i, j);
        }
    return good;
}

/* ---- Which buffer takes whose memory ---- */

static bool is_walked_by_elements(const struct program *q)
{
    return (q->kind == PROGRAM_GEMM || q->kind == PROGRAM_ROWS) && !q->prepare && !q->segment && !q->ranges &&
           pair_step(q) < 0 && q->rank;
}

/* It is made by program i alone, from nothing. */
static bool is_made_by(const struct reuse *r, int buffer, int i)
{
    const struct tensor_use *u;
    int writes = 0;
    if (r->p->buffer[buffer].space != SPACE_WORK || r->life[buffer].first != i) return false;
    for (int j = 0; (u = program_use(&r->p->program[i], j)); j++) {
        if (u->buffer == buffer && use_effect(u) != EFFECT_WRITE) return false;
        writes += u->buffer == buffer;
    }
    return writes && writes == r->life[buffer].writes;
}

static bool dies_in(const struct reuse *r, int buffer, int i, bool consumed)
{
    const struct life *l = &r->life[buffer];
    bool work = r->p->buffer[buffer].space == SPACE_WORK && l->first < i;
    return (l->consumes ? consumed : work && !consumed) && l->last == i && !r->taken[buffer];
}

static void find_over(struct reuse *r, int i, int to, bool consumed)
{
    const struct program *q = &r->p->program[i];
    const struct tensor_use *u;
    for (int j = 0; (u = program_use(q, j)) && r->life[to].over < 0; j++) {
        bool equal = extents_equal(r->p->buffer[u->buffer].bytes, r->p->buffer[to].bytes);
        if (!equal || !dies_in(r, u->buffer, i, consumed) || !may_write_over(r, q, u->buffer, to)) continue;
        r->life[to].over = u->buffer;
        r->life[to].consumes = consumed;
        r->taken[u->buffer] = true;
        if (!consumed) r->saved[i] += (double)r->p->buffer[to].bytes;
    }
}

static void find_candidates(struct reuse *r)
{
    const struct tensor_use *u;
    for (int i = 0; i < r->p->programs; i++) {
        const struct program *q = &r->p->program[i];
        if (!is_walked_by_elements(q)) continue;
        number_walks(r, q);
        for (int j = 0; (u = program_use(q, j)); j++)
            for (int work = 0; work < 2 && is_made_by(r, u->buffer, i); work++)
                find_over(r, i, u->buffer, !work);
    }
}

/* What the workspace cannot do without, if that is worth the while; else more than all. */
static double least_kept(const struct reuse *r)
{
    double peak = 0, least = 0;
    for (int i = 0; i < r->p->programs; i++) {
        peak = MAX(peak, r->kept[i]);
        least = MAX(least, r->kept[i] - r->saved[i]);
    }
    return least <= 127.0 / 128 * peak ? least : peak;
}

/* Buffers by their first program: what is written over has its place by then. */
static void choose(struct reuse *r)
{
    const struct tensor_use *u;
    double least = least_kept(r);
    for (int i = 0; i < r->p->programs; i++)
        for (int j = 0; (u = program_use(&r->p->program[i], j)); j++) {
            struct life *l = &r->life[u->buffer];
            bool wanted = l->consumes || r->kept[i] > least;
            if (!wanted || l->over < 0 || l->first != i || l->to != u->buffer) continue;
            const struct life *over = &r->life[l->over];
            l->to = over->to;
            l->shift = over->shift + over->version + 1;
            r->p->rearranged = true;
        }
}

static void rename_uses(struct reuse *r)
{
    struct tensor_use *u;
    for (int i = 0; i < r->p->programs; i++)
        for (int j = 0; (u = program_use(&r->p->program[i], j)); j++) {
            const struct life *l = &r->life[u->buffer];
            u->version += l->shift;
            u->buffer = l->to;
        }
}

static int most_steps(const struct plan *p)
{
    int most = 0;
    for (int i = 0; i < p->programs; i++) most = MAX(most, p->program[i].steps);
    return most;
}

coda_status plan_reuse(struct plan *p)
{
    struct reuse r = {.p = p};
    r.life = ARENA_NEW(&p->arena, struct life, p->buffers + 1);
    r.taken = ARENA_NEW(&p->arena, bool, p->buffers + 1);
    r.walk = ARENA_NEW(&p->arena, int, most_steps(p) + 1);
    r.has = ARENA_NEW(&p->arena, bool, most_steps(p) + 1);
    r.kept = ARENA_NEW(&p->arena, double, p->programs + 1);
    r.saved = ARENA_NEW(&p->arena, double, p->programs + 1);
    if (p->arena.failed) return fail(CODA_E_MEMORY, "out of memory for %d buffers", p->buffers);
    find_lives(&r);
    if (p->overlaps) keep_exchanged(&r);
    find_candidates(&r);
    find_kept(&r);
    choose(&r);
    rename_uses(&r);
    return CODA_OK;
}
