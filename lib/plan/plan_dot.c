/* plan_dot.c -- a plan as a Graphviz picture. */
#include "own.h"
#include "plan.h"

static void dot_label(const struct program *q, struct text *t)
{
    if (q->kind == PROGRAM_GEMM)
        text_printf(t, "gemm %lldx%lldx%lld", (long long)q->dim[1], (long long)q->dim[2], (long long)q->k);
    else text_append(t, q->own ? q->own->name : "rows");
    for (int i = 0; i < q->steps; i++) {
        const struct step *s = &q->step[i];
        if (s->kind != STEP_PARTIAL && step_name(q, s)) text_printf(t, "\\n%s", step_name(q, s));
    }
}

static void dot_edge(const struct plan *p, int index, const struct tensor_use *u, struct text *t)
{
    const struct buffer *b = &p->buffer[u->buffer];
    if (use_effect(u) == EFFECT_READ) text_printf(t, "  b%d -> p%d;\n", u->buffer, index);
    else text_printf(t, "  p%d -> b%d;\n", index, u->buffer);
    text_printf(t, "  b%d [label=\"%s\" shape=%s];\n", u->buffer,
                b->value < 0 ? "-" : value_text(p->graph, b->value).s,
                b->space == SPACE_ARG ? "box" : "ellipse");
}

static void dot_program(const struct plan *p, int index, struct text *t)
{
    const struct program *q = &p->program[index];
    text_printf(t, "  p%d [shape=box style=filled fillcolor=%s label=\"@%d ", index,
                q->prepare ? "lightgrey" : "lightblue", index);
    dot_label(q, t);
    text_append(t, "\"];\n");
    const struct tensor_use *u;
    for (int i = 0; (u = program_use(q, i)); i++) /* of the tensors that are computed with */
        if (u->role != USE_SCRATCH && u->role != USE_BESIDE) dot_edge(p, index, u, t);
}

void plan_dot(const struct plan *p, struct text *t)
{
    text_append(t, "digraph plan {\n  rankdir=TB;\n");
    for (int i = 0; i < p->programs; i++) dot_program(p, i, t);
    text_append(t, "}\n");
}
