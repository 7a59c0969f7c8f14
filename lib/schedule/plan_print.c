/* plan_print.c -- a plan as text, with the tiles of its programs. No pointers, and no times but those that
 * tuning left: goldens compare it. */
#include "attention_grad_kernel.h"
#include "attention_kernel.h"
#include "figures.h"
#include "mainloop.h"

static void print_tile(const struct program *q, const struct schedule *s, const struct target *target,
                       struct text *t)
{
    text_append(t, "   tile ");
    tile_print(&s->tile, t);
    if (s->tile.mainloop->streams && q->b.data.steady && !q->prepare) text_append(t, " early");
    text_append(t, "\n");
    tile_explain(q, &s->tile, target, t);
    if (s->figures) figures_print(s->figures, t);
}

static void print_attention(const struct attention_spec *a, const struct schedule *s, struct text *t)
{
    const struct attention_kernel *k = s->attention;
    text_printf(t, " %s", k->units);
    if (s->cluster > 1) text_printf(t, " %s=%d", k->cluster, s->cluster);
    if (s->reads_early) text_append(t, a->appends ? " early but for appended rows" : " early");
}

void schedule_print(const struct program *q, const struct schedule *s, struct text *t)
{
    if (q->kind == PROGRAM_GEMM) tile_print(&s->tile, t);
    if (s->attention) text_append(t, s->attention->units);
    if (s->attention && s->cluster > 1) text_printf(t, " %s=%d", s->attention->cluster, s->cluster);
    if (s->attention_grad) text_append(t, s->attention_grad->suffix);
}

void program_print(const struct plan *p, const struct program *q, struct text *t)
{
    const struct schedule *s = p ? &p->schedule[q - p->program] : NULL;
    const struct tensor_names named = {p ? p->graph : NULL, p ? p->buffer : NULL}, *names = p ? &named : NULL;
    program_print_head(q, t);
    if (s && s->attention) print_attention(q->spec, s, t);
    if (s && s->attention_grad) text_printf(t, " %s", s->attention_grad->suffix);
    if (s && s->chunk) text_printf(t, " chunks=%d", s->chunk);
    if (names) program_print_scopes(names, q, t);
    text_append(t, "\n");
    if (s && q->kind == PROGRAM_GEMM) print_tile(q, s, &p->target, t);
    program_print_body(names, q, t);
}

void plan_print(const struct plan *p, struct text *t)
{
    double flops = 0;
    int64_t bytes = 0;
    int launches = 0;
    text_printf(t, "plan workspace=%lld prepared=%lld%s\n", (long long)p->workspace, (long long)p->prepared,
                p->programs && p->program->invariant ? " invariant" : "");
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        text_printf(t, "@%d %s", i, q->prepare ? "prepare " : "");
        program_print(p, q, t);
        if (p->beside && p->beside[i]) text_printf(t, "   beside @%d..@%d\n", i + 1, p->beside[i] - 1);
        if (plan_leader(p, i) != i) text_printf(t, "   in the launch of @%d\n", plan_leader(p, i));
        if (q->prepare) continue;
        launches += plan_leader(p, i) == i;
        flops += program_flops(q);
        bytes = add_counts(bytes, program_bytes(q));
    }
    text_printf(t, "; %d launches, %.3f GFLOP, %.3f MB read and written\n", launches, flops * 1e-9,
                (double)bytes * 1e-6);
}

const char *debug_plan(const struct plan *p)
{
    struct text t = {0};
    if (p && p->graph) plan_print(p, &t);
    return debug_show(&t);
}
