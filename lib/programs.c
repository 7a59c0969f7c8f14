/*
 * programs.c -- write the program of each group.
 *
 * First every program is written without its stores, which shows what must be in memory. A statistic
 * that is in pieces but needed whole gets a small program of its own. Then stores are added, tiles are
 * chosen, and the states of partial reductions get their size.
 */
#include "epilogue.h"
#include "group.h"
#include "tile.h"

#include <string.h>

/* ---- Stores ---- */

static void store(struct writer *w, int value, int buffer, int64_t offset, const int64_t *stride)
{
    const struct type *t = &w->gr->g->node[value].type;
    struct port port = port_new(PORT_STORE, buffer, offset, t->dtype, value);
    int64_t out[CODA_MAX_RANK];
    if (!domain_strides(w->q, t, stride, t, out)) {
        w->status = fail(CODA_E_UNSUPPORTED, "plan: %%%d cannot be stored by its program's domain", value);
        return;
    }
    memcpy(port.stride, out, sizeof port.stride);
    struct step s = {
        .kind = STEP_STORE, .half = w->p->step[w->step_of[value]].half, .nin = 1, .value = value};
    bool one_a_row = w->p->kind == PROGRAM_ROWS && type_columns(t) == 1 && w->p->dim[w->p->rank - 1] != 1;
    s.cls = one_a_row ? CLASS_ROW : CLASS_TILE;
    s.in[0] = w->step_of[value];
    s.port = add_port(w, port);
    add_step(w, s);
}

static void store_to_concats(struct writer *w, int value)
{
    const graph *g = w->gr->g;
    for (int c = value + 1; c < g->nodes; c++) {
        const struct node *n = &g->node[c];
        for (int i = 0; n->op == OP_CONCAT && i < n->nin; i++) {
            int64_t stride[CODA_MAX_RANK];
            if (n->in[i] != value) continue;
            dense_strides(&n->type, stride);
            store(w, value, buffer_of(w->gr, c), concat_start(g, n, i) * stride[n->attr.i[0]], stride);
        }
    }
}

static void store_everywhere(struct writer *w, int value)
{
    const graph *g = w->gr->g;
    int own = own_output(g, value);
    int64_t dense[CODA_MAX_RANK];
    dense_strides(&g->node[value].type, dense);
    if (w->gr->site[value].need && own < 0) store(w, value, buffer_of(w->gr, value), 0, dense);
    for (int i = 0; i < g->outputs; i++)
        if (g->output[i].value == value) store(w, value, output_buffer(w->gr, i), 0, g->output[i].stride);
    store_to_concats(w, value);
}

static bool is_wanted_whole(const struct grouper *gr, int value)
{
    const graph *g = gr->g;
    if (gr->site[value].need) return true;
    for (int i = 0; i < g->outputs; i++)
        if (g->output[i].value == value) return true;
    for (int c = value + 1; c < g->nodes; c++)
        for (int i = 0; g->node[c].op == OP_CONCAT && i < g->node[c].nin; i++)
            if (g->node[c].in[i] == value) return true;
    return false;
}

/* ---- Programs ---- */

static void matrix_operand(struct grouper *gr, struct operand *o)
{
    struct view v;
    if (!view_of(gr->g, o->value, &v)) return;
    gr->site[v.base].need = true;
    o->buffer = buffer_of(gr, v.base);
    o->steady = gr->site[v.base].role == ROLE_LEAF || gr->site[v.base].is_const;
}

static void heads(struct grouper *gr, int value, int64_t head_dim, struct attention_view *out)
{
    const struct type *t = &gr->g->node[value].type;
    struct view v = {0};
    view_of(gr->g, value, &v);
    gr->site[v.base].need = true;
    out->buffer = buffer_of(gr, v.base);
    out->offset = v.offset;
    out->dtype = t->dtype;
    out->value = value;
    out->time = v.stride[t->rank - 2];
    out->batch = t->rank == 3 ? v.stride[0] : 0;
    out->head = head_dim;
}

static void write_attention(struct writer *w)
{
    const graph *g = w->gr->g;
    const struct node *n = &g->node[w->q->p.root];
    struct attention_spec *a = &w->p->attention;
    const struct type *q = &n->type, *k = &g->node[n->in[1]].type;
    a->heads = MAX(n->attr.i[0], 1);
    a->kv_heads = n->attr.i[1] ? n->attr.i[1] : a->heads;
    a->head_dim = type_columns(q) / a->heads;
    a->batch = q->rank == 3 ? q->dim[0] : 1;
    a->tq = q->dim[q->rank - 2];
    a->tk = k->dim[k->rank - 2];
    a->window = n->attr.i[2];
    a->causal = n->attr.i[3] != 0;
    a->scale = n->attr.f[0];
    a->lengths = -1;
    heads(w->gr, n->in[0], a->head_dim, &a->q);
    heads(w->gr, n->in[1], a->head_dim, &a->k);
    heads(w->gr, n->in[2], a->head_dim, &a->v);
    if (n->nin > 3 && n->in[3] >= 0) {
        struct view v = {0};
        view_of(g, n->in[3], &v);
        w->gr->site[v.base].need = true;
        a->lengths = buffer_of(w->gr, v.base);
        a->lengths_offset = v.offset;
        a->lengths_stride = v.stride[0];
    }
}

/* Attention has one store: its own buffer, or the output. */
static void place_attention(struct writer *w)
{
    const graph *g = w->gr->g;
    struct attention_spec *a = &w->p->attention;
    const struct type *t = &g->node[w->q->p.root].type;
    int64_t dense[CODA_MAX_RANK];
    dense_strides(t, dense);
    a->o.buffer = buffer_of(w->gr, w->q->p.root);
    a->o.dtype = t->dtype;
    a->o.time = dense[t->rank - 2];
    a->o.batch = t->rank == 3 ? dense[0] : 0;
    a->o.head = a->head_dim;
    a->o.value = w->q->p.root;
    a->sm90 = attention_fits_sm90(a, &w->gr->opt->machine);
}

static bool open_writer(struct writer *w, struct grouper *gr, struct group *q)
{
    struct arena *arena = &gr->plan->arena;
    *w = (struct writer){.gr = gr, .q = q, .p = &q->p};
    w->step_of = ARENA_NEW(arena, int, gr->g->nodes + 1);
    q->p.step = ARENA_NEW(arena, struct step, MOST_STEPS);
    q->p.port = ARENA_NEW(arena, struct port, MOST_PORTS);
    if (arena->failed) return false;
    for (int i = 0; i < gr->g->nodes; i++) w->step_of[i] = -1;
    return true;
}

static void write_members(struct writer *w)
{
    if (w->p->kind == PROGRAM_ATTENTION) {
        write_attention(w);
        return;
    }
    if (w->p->kind == PROGRAM_GEMM) {
        matrix_operand(w->gr, &w->p->a);
        matrix_operand(w->gr, &w->p->b);
    }
    for (int m = w->q->first; m >= 0 && !w->status; m = w->gr->site[m].next)
        w->step_of[m] = write_member(w, m);
}

/* A program for a statistic that is in pieces but needed whole. */
static void finish_statistic(struct grouper *gr, struct writer *w, int value)
{
    struct group *q = group_new(gr, PROGRAM_ROWS, value);
    const struct node *n = &gr->g->node[value];
    q->domain = n->type;
    q->p.rank = n->type.rank;
    memcpy(q->p.dim, n->type.dim, sizeof q->p.dim);
    if (!open_writer(w, gr, q)) return;
    gr->site[value].finished = true;
    w->step_of[value] = write_again(w, value);
}

static void write_stores(struct writer *w)
{
    struct grouper *gr = w->gr;
    if (w->p->kind == PROGRAM_ATTENTION) place_attention(w);
    else if (w->q->first < 0) store_everywhere(w, w->q->p.root);
    for (int m = w->q->first; m >= 0 && w->p->kind != PROGRAM_ATTENTION && !w->status; m = gr->site[m].next)
        if (!gr->site[m].partial) store_everywhere(w, m);
}

/* Tiles decide how many states a row has. */
static void size_states(struct grouper *gr)
{
    for (int i = 0; i < gr->groups; i++) {
        struct program *p = &gr->group[i].p;
        if (p->kind != PROGRAM_GEMM) continue;
        for (int j = 0; j < p->ports; j++) {
            struct port *port = &p->port[j];
            if (port->kind != PORT_PARTIAL_STORE) continue;
            gr->site[port->value].blocks = program_states(p);
            gr->plan->buffer[port->buffer].bytes =
                p->dim[0] * p->dim[1] * gr->site[port->value].blocks * port->reduce->state * 4;
        }
    }
    for (int i = 0; i < gr->groups; i++)
        for (int j = 0; j < gr->group[i].p.ports; j++) {
            struct port *port = &gr->group[i].p.port[j];
            if (port->kind == PORT_PARTIAL_STORE || port->kind == PORT_PARTIAL_LOAD)
                port->blocks = gr->site[port->value].blocks;
        }
}

static void set_tile(struct program *p, const struct plan_options *opt)
{
    const struct decision *d = plan_decision(opt, p->root);
    p->figures = d ? d->figures : NULL;
    p->tile = tile_named(p, &opt->machine, d ? d->tile : "");
}

static coda_status write_programs(struct grouper *gr, struct writer *w, int most)
{
    for (int i = 0; i < gr->groups; i++) {
        if (!open_writer(&w[i], gr, &gr->group[i])) return CODA_E_MEMORY;
        write_members(&w[i]);
        if (w[i].status) return w[i].status;
    }
    for (bool again = true; again;) {
        again = false;
        for (int v = 0; v < gr->g->nodes && gr->groups < most; v++) {
            const struct site *s = &gr->site[v];
            if (!(s->partial || s->role == ROLE_INLINE) || s->finished || !is_wanted_whole(gr, v)) continue;
            finish_statistic(gr, &w[gr->groups], v);
            again = true;
        }
    }
    for (int i = 0; i < gr->groups; i++) {
        if (gr->plan->arena.failed) return CODA_E_MEMORY;
        write_stores(&w[i]);
        if (w[i].status) return w[i].status;
        if (w[i].p->kind == PROGRAM_GEMM) set_tile(w[i].p, gr->opt);
    }
    return CODA_OK;
}

coda_status build_programs(struct grouper *gr)
{
    struct plan *plan = gr->plan;
    int n = gr->g->nodes, most = 2 * n + 1;
    struct writer *w = ARENA_NEW(&plan->arena, struct writer, most);
    struct group *group = ARENA_NEW(&plan->arena, struct group, most);
    plan->buffer = ARENA_NEW(&plan->arena, struct buffer, 3 * n + gr->g->outputs + 1);
    plan->program = ARENA_NEW(&plan->arena, struct program, most);
    if (plan->arena.failed) return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", n);
    memcpy(group, gr->group, sizeof *group * (size_t)gr->groups);
    gr->group = group;
    coda_status status = write_programs(gr, w, most);
    if (plan->arena.failed) return fail(CODA_E_MEMORY, "out of memory for a plan of %d nodes", n);
    if (status) return status;
    size_states(gr);
    for (int i = 0; i < gr->groups; i++) plan->program[plan->programs++] = gr->group[i].p;
    return CODA_OK;
}
