/* plan_print.c -- a plan as text and as a Graphviz picture. No pointers, and no times but those that tuning
 * left: goldens compare it. */
#include "epilogue.h"
#include "tile.h"
#include "tuning.h"

#include <stdio.h>
#include <string.h>

struct name {
    char s[80];
};

/* A program without its plan is printed without names and places: see program_print. */
static struct name value_name(const struct plan *p, int value)
{
    struct name n = {"-"};
    if (value < 0 || !p) return n;
    const struct node *node = &p->graph->node[value];
    if (op_is_leaf(node->op)) snprintf(n.s, sizeof n.s, "%%%s", node->name);
    else snprintf(n.s, sizeof n.s, "%%%d", value);
    return n;
}

static void print_place(const struct plan *p, int buffer, struct text *t)
{
    const struct buffer *b = p ? &p->buffer[buffer] : NULL;
    if (!b) text_append(t, "-");
    else if (b->space == SPACE_ARG) text_printf(t, "arg%d", b->arg);
    else text_printf(t, "%s+%lld", b->space == SPACE_WORK ? "ws" : "prep", (long long)b->offset);
}

static void print_dims(const char *open, const int64_t *dim, int rank, struct text *t)
{
    text_append(t, open);
    for (int d = 0; d < rank; d++) text_printf(t, "%s%lld", d ? "," : "", (long long)dim[d]);
    text_append(t, "]");
}

static void print_port(const struct plan *p, const struct program *q, const struct port *port, struct text *t)
{
    text_printf(t, "%s ", value_name(p, port->value).s);
    print_place(p, port->buffer, t);
    if (port->offset) text_printf(t, "[%lld]", (long long)port->offset);
    if (port->kind == PORT_PARTIAL_LOAD || port->kind == PORT_PARTIAL_STORE) {
        text_printf(t, " %s", port->reduce->name);
        if (p) text_printf(t, " x %d", port->blocks);
        return;
    }
    text_printf(t, " %s", dtype_name(port->dtype));
    print_dims(" stride=[", port->stride, q->rank, t);
    if (port->kind == PORT_GATHER)
        text_printf(t, " gather v%d of %lld rows", port->index, (long long)port->table_rows);
}

static const char *class_name(enum step_class cls)
{
    return cls == CLASS_ROW ? "row" : cls == CLASS_COL ? "col" : "tile";
}

static void print_map(const struct step *s, struct text *t)
{
    text_append(t, s->prim->name);
    for (int i = 0; i < s->nin; i++)
        if (s->in[i] >= 0) text_printf(t, "%s v%d", i ? "," : "", s->in[i]);
        else if (s->kind == STEP_MAP) text_printf(t, "%s %a", i ? "," : "", (double)s->immediate[i]);
    if (s->prim->kind != PRIM_MAP || !s->prim->params) return;
    text_append(t, " {");
    for (int i = 0; i < s->prim->params; i++)
        text_printf(t, "%s%s=%a", i ? " " : "", s->prim->param_name[i] ? s->prim->param_name[i] : "p",
                    (double)s->param[i]);
    text_append(t, "}");
}

static void print_rope(const struct program *q, const struct step *s, struct text *t)
{
    const struct rope_spec *r = &q->rope;
    text_printf(t, "rope v%d", s->in[0]);
    if (s->in[1] >= 0) text_printf(t, ", v%d", s->in[1]);
    text_printf(t, " {head_dim=%lld rotary=%lld heads=%lld base=%a %s}", (long long)r->head_dim,
                (long long)r->rotary, (long long)r->heads, (double)r->base, r->half ? "half" : "interleaved");
}

static void print_step(const struct plan *p, const struct program *q, int index, struct text *t)
{
    const struct step *s = &q->step[index];
    if (step_has_value(q, s)) text_printf(t, "   v%d = %-4s ", index, class_name(s->cls));
    else text_append(t, "   ");
    switch (s->kind) {
    case STEP_ACC: text_append(t, "acc"); break;
    case STEP_LOAD: text_append(t, "load "); print_port(p, q, &q->port[s->port], t); break;
    case STEP_PARTIAL: text_append(t, "finish "); print_port(p, q, &q->port[s->port], t); break;
    case STEP_MAP: print_map(s, t); break;
    case STEP_LANE: text_printf(t, "%s v%d", s->lane ? "up" : "gate", s->in[0]); break;
    case STEP_ROPE: print_rope(q, s, t); break;
    case STEP_REDUCE:
        print_map(s, t);
        if (s->port >= 0) text_append(t, " -> "), print_port(p, q, &q->port[s->port], t);
        break;
    case STEP_STORE: text_printf(t, "store v%d ", s->in[0]); print_port(p, q, &q->port[s->port], t); break;
    }
    text_append(t, "\n");
}

static void print_operand(const struct plan *p, const char *label, const struct operand *o, struct text *t)
{
    text_printf(t, "   %s = %s ", label, value_name(p, o->value).s);
    print_place(p, o->buffer, t);
    if (o->offset) text_printf(t, "[%lld]", (long long)o->offset);
    text_printf(t, " %s batch=%lld row=%lld k=%lld\n", dtype_name(o->dtype), (long long)o->batch,
                (long long)o->row, (long long)o->k);
}

/* ORDER pair_kind */
static const char *const pair_name[] = {"", " glu_interleaved", " glu_stacked", " rope"};
/* ORDER mainloop */
static const char *const mainloop_name[] = {"sm90", "simt", "cublaslt", "sm90_gemv", "sm90_skinny"};

void tile_print(const struct tile *tile, struct text *t)
{
    text_append(t, mainloop_name[tile->mainloop]);
    if (tile->mainloop == MAINLOOP_CUBLASLT) return;
    text_printf(t, " %dx%dx%d stages=%d groups=%d%s band=%d%s%s", tile->bm, tile->bn, tile->bk, tile->stages,
                tile->groups, tile->pingpong ? " pingpong" : "", tile->band, tile->across ? " across" : "",
                tile->serpentine ? " serpentine" : "");
    if (tile->tail) text_printf(t, " tail=%dx%d", tile->tail, tile->tail_bn);
    if (tile->blocks) text_printf(t, " blocks=%d", tile->blocks);
    if (tile->splits > 1) text_printf(t, " splits=%d%s", tile->splits, tile->scattered ? " scattered" : "");
    if (tile_cluster(tile) > 1)
        text_printf(t, " cluster=%dx%d", tile_cluster_m(tile), tile_cluster_n(tile));
    if (tile->lends) text_append(t, " lends");
}

static void print_gemm(const struct plan *p, const struct program *q, struct text *t)
{
    text_printf(t, "gemm batch=%lld m=%lld n=%lld k=%lld%s\n", (long long)q->dim[0], (long long)q->dim[1],
                (long long)q->dim[2], (long long)q->k, pair_name[q->pair]);
    if (p) {
        text_append(t, "   tile ");
        tile_print(&q->tile, t);
        if (program_is_early(q)) text_append(t, " early");
        text_append(t, "\n");
        tile_explain(q, &p->machine, t);
        if (q->figures) figures_print(q->figures, t);
    }
    print_operand(p, "a", &q->a, t);
    print_operand(p, "b", &q->b, t);
}

static void print_heads(const struct plan *p, const char *label, const struct attention_view *v,
                        struct text *t)
{
    text_printf(t, "   %s = %s ", label, value_name(p, v->value).s);
    print_place(p, v->buffer, t);
    if (v->offset) text_printf(t, "[%lld]", (long long)v->offset);
    text_printf(t, " %s batch=%lld time=%lld head=%lld\n", dtype_name(v->dtype), (long long)v->batch,
                (long long)v->time, (long long)v->head);
}

static void print_attention(const struct plan *p, const struct program *q, struct text *t)
{
    const struct attention_spec *a = &q->attention;
    text_printf(t, "attention batch=%lld tq=%lld tk=%lld heads=%lld kv_heads=%lld head_dim=%lld",
                (long long)a->batch, (long long)a->tq, (long long)a->tk, (long long)a->heads,
                (long long)a->kv_heads, (long long)a->head_dim);
    if (a->causal) text_append(t, " causal");
    if (a->window) text_printf(t, " window=%lld", (long long)a->window);
    if (a->align == CODA_ALIGN_START) text_append(t, " from_start");
    if (a->align == CODA_ALIGN_LENGTH) text_append(t, " from_length");
    if (a->lengths >= 0) text_append(t, " lengths");
    text_printf(t, " %s\n", a->sm90 ? "sm90" : "simt");
    print_heads(p, "q", &a->q, t);
    print_heads(p, "k", &a->k, t);
    print_heads(p, "v", &a->v, t);
    print_heads(p, "o", &a->o, t);
}

void program_print(const struct plan *p, const struct program *q, struct text *t)
{
    if (q->kind == PROGRAM_GEMM) print_gemm(p, q, t);
    else if (q->kind == PROGRAM_ATTENTION) print_attention(p, q, t);
    else print_dims("rows [", q->dim, q->rank, t), text_append(t, "\n");
    for (int i = 0; i < q->steps; i++) print_step(p, q, i, t);
}

void plan_print(const struct plan *p, struct text *t)
{
    double flops = 0;
    int64_t bytes = 0;
    int launches = 0;
    text_printf(t, "plan workspace=%lld prepared=%lld\n", (long long)p->workspace, (long long)p->prepared);
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        text_printf(t, "@%d %s", i, q->prepare ? "prepare " : "");
        program_print(p, q, t);
        if (q->prepare) continue;
        launches++;
        flops += program_flops(q);
        bytes = add_counts(bytes, program_bytes(q));
    }
    text_printf(t, "; %d launches, %.3f GFLOP, %.3f MB read and written\n", launches, flops * 1e-9,
                (double)bytes * 1e-6);
}

/* ---- Graphviz ---- */

static void dot_label(const struct program *q, struct text *t)
{
    if (q->kind == PROGRAM_GEMM)
        text_printf(t, "gemm %lldx%lldx%lld", (long long)q->dim[1], (long long)q->dim[2], (long long)q->k);
    else text_append(t, q->kind == PROGRAM_ATTENTION ? "attention" : "rows");
    for (int i = 0; i < q->steps; i++) {
        const struct step *s = &q->step[i];
        if (s->kind == STEP_MAP || s->kind == STEP_REDUCE) text_printf(t, "\\n%s", s->prim->name);
        if (s->kind == STEP_ROPE) text_append(t, "\\nrope");
    }
}

static void dot_edge(const struct plan *p, int index, int buffer, bool write, struct text *t)
{
    const struct buffer *b = &p->buffer[buffer];
    struct name name = value_name(p, b->value);
    if (write) text_printf(t, "  p%d -> b%d;\n", index, buffer);
    else text_printf(t, "  b%d -> p%d;\n", buffer, index);
    text_printf(t, "  b%d [label=\"%s\" shape=%s];\n", buffer, name.s,
                b->space == SPACE_ARG ? "box" : "ellipse");
}

static void dot_program(const struct plan *p, int index, struct text *t)
{
    const struct program *q = &p->program[index];
    text_printf(t, "  p%d [shape=box style=filled fillcolor=%s label=\"@%d ", index,
                q->prepare ? "lightgrey" : "lightblue", index);
    dot_label(q, t);
    text_append(t, "\"];\n");
    if (q->kind == PROGRAM_GEMM) {
        dot_edge(p, index, q->a.buffer, false, t);
        dot_edge(p, index, q->b.buffer, false, t);
    }
    if (q->kind == PROGRAM_ATTENTION) {
        dot_edge(p, index, q->attention.q.buffer, false, t);
        dot_edge(p, index, q->attention.k.buffer, false, t);
        dot_edge(p, index, q->attention.v.buffer, false, t);
        dot_edge(p, index, q->attention.o.buffer, true, t);
    }
    for (int i = 0; i < q->ports; i++)
        dot_edge(p, index, q->port[i].buffer,
                 q->port[i].kind == PORT_STORE || q->port[i].kind == PORT_PARTIAL_STORE, t);
}

void plan_dot(const struct plan *p, struct text *t)
{
    text_append(t, "digraph plan {\n  rankdir=TB;\n");
    for (int i = 0; i < p->programs; i++) dot_program(p, i, t);
    text_append(t, "}\n");
}
