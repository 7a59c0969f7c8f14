/*
 * lower.c -- write the program of each group.
 *
 * First every program is written without its stores, which shows what must be in memory. A statistic
 * that is in pieces but needed whole gets a small program of its own. Then stores are added.
 */
#include "fuse_own.h"

#include <string.h>

static void matrix_operand(struct grouper *gr, struct tensor_use *o)
{
    const struct view v = gr->view[o->value];
    if (v.base < 0) return;
    gr->site[v.base].need = true;
    o->buffer = buffer_of(gr, v.base);
    o->version = gr->site[v.base].version;
    o->steady = base_is_steady(gr, v.base);
}

/* Scales of an operand's blocks, which are an operand, too. */
static void block_scales(struct writer *w, struct operand *o, int value, const struct matrix_view *v,
                         int rows)
{
    struct tensor_use port = port_new(USE_OPERAND, buffer_of(w->gr, v->base), v->offset, CODA_F32, value);
    port.batch = v->batch, port.row = v->row, port.k = v->k;
    port.version = w->gr->site[v->base].version;
    port.steady = base_is_steady(w->gr, v->base);
    w->gr->site[v->base].need = true;
    o->scale = 1 + add_port(w, port);
    o->scale_rows = rows;
    o->scale_k = SCALE_BLOCK;
}

/* Weights that lie in several tensors: the first has those of the first columns, ports the others. */
static void read_parts(struct writer *w, int concat)
{
    const struct node *n = &w->gr->g->node[concat];
    struct tensor_use *b = &w->p->b.data;
    b->value = n->in[0];
    matrix_operand(w->gr, b);
    for (int i = 1; i < n->nin; i++) {
        struct tensor_use port = *b;
        port.value = n->in[i];
        matrix_operand(w->gr, &port);
        w->p->part[w->p->parts++] =
            (struct operand_part){w->gr->part[w->gr->site[concat].part + i], add_port(w, port)};
    }
}

static void read_weights(struct writer *w)
{
    int base = w->gr->view[w->p->b.data.value].base;
    if (base >= 0 && w->gr->site[base].apart) read_parts(w, base);
    else matrix_operand(w->gr, &w->p->b.data);
}

static void matrix_operands(struct writer *w)
{
    struct program *p = w->p;
    const struct node *n = &w->gr->g->node[p->root];
    struct matmul_view v;
    matrix_operand(w->gr, &p->a.data);
    read_weights(w);
    if (n->op != OP_SCALED_MATMUL || !view_matmul(w->gr->g, n, w->gr->view, &v)) return;
    block_scales(w, &p->a, n->in[SCALED_MATMUL_X_SCALE], &v.a_scale, 1);
    block_scales(w, &p->b, n->in[SCALED_MATMUL_W_SCALE], &v.b_scale, SCALE_BLOCK);
}

static struct writer writer_of(struct grouper *gr, int group)
{
    return (struct writer){.gr = gr, .q = gr->group[group], .p = &gr->group[group]->p};
}

static void write_members(struct writer *w)
{
    if (w->p->own) {
        own_read(w);
        return;
    }
    if (w->p->kind == PROGRAM_GEMM) matrix_operands(w);
    for (int m = w->q->first; m >= 0 && !w->status; m = w->gr->site[m].next)
        w->gr->site[m].step = write_member(w, m);
    for (int i = 0; i < w->q->bests && !w->status; i++) write_best(w, &w->q->best[i]);
    if (w->q->conv1d_rows && !w->status) write_conv1d_rows(w);
}

static bool is_leaf(const struct grouper *gr, int buffer)
{
    int value = gr->plan->buffer[buffer].value;
    return gr->site[value].role == ROLE_LEAF && !node_is_written(&gr->g->node[value]);
}

/* Does the program finish statistics of columns, all of which one other program leaves in parts, that which
 * leaves `value`? Of the rest it reads arguments alone: it waits for nothing else. */
static bool finishes_beside(const struct grouper *gr, const struct group *q, int value)
{
    const struct type *t = &gr->g->node[value].type;
    bool good = q->p.kind == PROGRAM_ROWS && q->p.prepare == gr->site[value].is_const &&
                q->p.rank == t->rank && !program_folds_columns(&q->p);
    good = good && extents_all_equal(q->p.dim, t->dim, t->rank);
    for (int i = 0; i < q->p.ports && good; i++) {
        const struct tensor_use *port = &q->p.port[i];
        bool partial = port->role == USE_PARTIAL_LOAD && port->axis == REDUCE_COLUMNS;
        if (partial) good = gr->site[port->value].group == gr->site[value].group;
        else good = port->role == USE_LOAD && is_leaf(gr, port->buffer);
    }
    return good;
}

static struct group *finisher(const struct grouper *gr, int value)
{
    int i = group_has_column_parts(gr, value) ? gr->group[gr->site[value].group]->finisher : -1;
    while (i >= 0 && !finishes_beside(gr, gr->group[i], value)) i = gr->group[i]->next_finisher;
    return i < 0 ? NULL : gr->group[i];
}

/* In a program that finishes others of its kind. */
static coda_status finish_beside(struct grouper *gr, struct group *q, int value, int range)
{
    struct writer w = writer_of(gr, q->index);
    struct site *s = &gr->site[value];
    refuse_note(gr, q, value, REASON_FINISHED, -1, 0, 0);
    s->finished = true;
    s->finish_range = w.range = range;
    s->again = write_again(&w, value, &gr->g->node[value].type);
    s->again_in = q->index;
    s->also = q->also;
    q->also = value;
    group_waits_for(gr, q, value);
    return w.status;
}

/* Does q wait for a program that reads the value, or a view or a map of it that is computed again? */
static bool waits_for_reader(struct grouper *gr, const struct group *q, int value)
{
    const struct uses *u = &gr->uses;
    for (int i = u->at[value]; i < u->at[value + 1]; i++) {
        int reader = u->use[i].node;
        const struct site *s = &gr->site[reader];
        if (s->role != ROLE_MEMBER ? waits_for_reader(gr, q, reader)
                                   : group_waits(gr, q, gr->group[s->group]))
            return true;
    }
    return false;
}

/* The program of rows that stores the value besides: it has it as a row's. NULL: none may. */
static struct group *walker_of(struct grouper *gr, int value)
{
    const struct site *s = &gr->site[value];
    const struct type *t = &gr->g->node[value].type;
    struct group *q = s->row_in >= 0 && gr->opt->fuse ? gr->group[s->row_in] : NULL;
    int64_t dense[CODA_MAX_RANK], out[CODA_MAX_RANK];
    bool good = q && extent_is_one(type_columns(t)) && domain_rows_match(q, t) && !domain_is_column(q) &&
                q->p.prepare == s->is_const && !program_folds_columns(&q->p);
    dense_strides(t, dense);
    good = good && domain_strides(q, t, dense, t, out) && group_can_store(gr, q, value);
    return good && !waits_for_reader(gr, q, value) ? q : NULL;
}

/* The value is a row's in q, which stores it. */
static coda_status store_beside(struct grouper *gr, struct group *q, int value)
{
    struct site *s = &gr->site[value];
    refuse_note(gr, q, value, REASON_FINISHED, -1, 0, 0);
    s->finished = true;
    s->also = q->also;
    q->also = value;
    return CODA_OK;
}

/* A program for a statistic that is in pieces but needed whole, or a number that is needed in memory. */
static coda_status finish_value(struct grouper *gr, int value)
{
    int range = 0;
    struct group *beside = finisher(gr, value);
    if (!beside) beside = finishing_of(gr, value, &range);
    if (beside) return finish_beside(gr, beside, value, range);
    struct group *walker = walker_of(gr, value);
    if (walker) return store_beside(gr, walker, value);
    struct group *q = group_new(gr, PROGRAM_ROWS, value);
    const struct node *n = &gr->g->node[value];
    if (!q) return CODA_E_MEMORY;
    q->domain = n->type.rank ? n->type : type_as_rows(&n->type);
    q->p.rank = q->domain.rank;
    memcpy(q->p.dim, q->domain.dim, sizeof q->p.dim);
    finishing_begin(gr, q);
    struct writer w = writer_of(gr, q->index);
    refuse_note(gr, q, value, REASON_FINISHED, -1, 0, 0);
    gr->site[value].finished = true;
    q->root_step = write_again(&w, value, &n->type);
    return w.status;
}

static void store_finished(struct writer *w, int value)
{
    w->range = w->gr->site[value].finish_range;
    lower_stores(w, value);
}

static void write_stores(struct writer *w)
{
    struct grouper *gr = w->gr;
    if (w->p->own) {
        own_store(w);
        return;
    }
    if (w->q->first < 0) store_finished(w, w->q->p.root);
    for (int v = w->q->also; v >= 0 && !w->status; v = gr->site[v].also) store_finished(w, v);
    for (int m = w->q->first; m >= 0 && !w->status; m = gr->site[m].next)
        if (!gr->site[m].partial) {
            w->range = gr->site[m].range;
            lower_stores(w, m);
        }
}

static bool is_wanted_whole(const struct grouper *gr, int value)
{
    return gr->site[value].need || group_stores(gr, value) > 0;
}

/* What must be in memory shows while programs are written, and as statistics are finished. */
static coda_status finish_values(struct grouper *gr)
{
    for (bool again = true; again;) {
        again = false;
        for (int v = 0; v < gr->g->nodes; v++) {
            const struct site *s = &gr->site[v];
            bool made_again = s->partial || s->role == ROLE_INLINE || s->role == ROLE_NUMBER;
            if (!made_again || s->finished || !is_wanted_whole(gr, v)) continue;
            coda_status status = finish_value(gr, v);
            if (status) return status;
            again = true;
        }
    }
    return CODA_OK;
}

static coda_status write_programs(struct grouper *gr)
{
    conv1d_rows_begin(gr);
    for (int i = 0; i < gr->groups; i++) {
        struct writer w = writer_of(gr, i);
        write_members(&w);
        if (w.status) return w.status;
    }
    coda_status status = finish_values(gr);
    for (int i = 0; i < gr->groups && !status; i++) {
        struct writer w = writer_of(gr, i);
        write_stores(&w);
        status = w.status;
    }
    return status;
}

static coda_status out_of_memory(const struct grouper *gr)
{
    return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", gr->g->nodes);
}

coda_status fuse_lower(struct grouper *gr)
{
    struct plan *plan = gr->plan;
    coda_status status = write_programs(gr);
    if (plan->arena.failed) return out_of_memory(gr);
    if (status) return status;
    plan->program = ARENA_NEW(&plan->arena, struct program, gr->groups + 1);
    if (!plan->program) return out_of_memory(gr);
    for (int i = 0; i < gr->groups; i++) plan->program[plan->programs++] = gr->group[i]->p;
    return CODA_OK;
}
