/*
 * stages.c -- CODA_TEXT_STAGES: a plan's graph once more as it was given and behind each pass that changed
 * it, and which program computes which of its values. A plan keeps nothing of it: it is made when it is
 * asked for.
 */
#include "pipeline.h"

#include "own.h"
#include "rewrite.h"

struct stages {
    struct text *t;
    int told; /* lines of the log */
};

static void print_stage(const char *name, const graph *g, struct text *t)
{
    text_printf(t, "; stage %s\n", name);
    graph_print(g, t);
}

static void tell(void *context, const char *pass, const graph *g, const struct rewrite_log *log)
{
    struct stages *s = context;
    text_printf(s->t, "; stage %s\n", pass);
    for (; s->told < log->events; s->told++)
        text_printf(s->t, "; %s %s\n", log->event[s->told].exact ? "exact" : "rounding",
                    log->event[s->told].text);
    graph_print(g, s->t);
}

/* ---- Programs ---- */

/* The value that a step computes or, of a store, leaves in memory; -1: none. */
static int value_of(const struct program *q, const struct step *s)
{
    if (s->kind == STEP_LOAD || s->kind == STEP_SCALAR) return -1;
    return s->kind == STEP_STORE ? q->port[s->port].value : s->value;
}

static bool is_told(const struct program *q, int upto, int value)
{
    for (int i = 0; i < upto; i++)
        if (value_of(q, &q->step[i]) == value) return true;
    return value == q->root;
}

static void print_members(const struct plan *p, const struct program *q, struct text *t)
{
    if (q->root >= 0) text_printf(t, " %s", value_text(p->graph, q->root).s);
    for (int i = 0; i < q->steps; i++) {
        int value = value_of(q, &q->step[i]);
        if (value >= 0 && !is_told(q, i, value)) text_printf(t, " %s", value_text(p->graph, value).s);
    }
}

static void print_programs(const struct plan *p, struct text *t)
{
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        text_printf(t, "; program %d: %lld bytes, %.0f flops:", i, (long long)program_bytes(q),
                    program_flops(q));
        print_members(p, q, t);
        text_append(t, "\n");
    }
}

/* The graph as the plan was given it; of one with symbols that of their largest values, as all its texts. */
static graph *given_graph(const coda_plan *p)
{
    graph *g = graph_parse(p->text[CODA_TEXT_GRAPH]);
    if (!g || !g->dims->symbols) return g;
    int64_t *most = ARENA_NEW(&g->arena, int64_t, g->dims->symbols);
    for (int i = 0; most && i < g->dims->symbols; i++) most[i] = g->dims->symbol[i].most;
    graph *bound = most ? graph_bind(g, "plan_print", most) : NULL;
    if (!most) fail(CODA_E_MEMORY, "out of memory for %d symbols", g->dims->symbols);
    graph_free(g);
    return bound;
}

coda_status plan_stages(const coda_plan *p, struct text *t)
{
    struct stages s = {.t = t};
    struct rewrite_log log = {0};
    const struct rewrite_options opt = {.fuse = p->options.fuse,
                                        .fold = p->options.fold,
                                        .fast_f16 = p->fast_fp16,
                                        .no_deferral = p->no_deferral,
                                        .target = &p->options.target,
                                        .stage = tell,
                                        .context = &s};
    graph *given = given_graph(p);
    if (!given) return fail_status();
    print_stage("given", given, t);
    graph *rewritten = rewrite(given, &opt, &log);
    graph_free(given);
    rewrite_log_free(&log);
    if (!rewritten) return fail_status();
    graph_free(rewritten);
    print_stage("planned", p->plan.graph, t);
    print_programs(&p->plan, t);
    return t->failed
               ? fail(CODA_E_MEMORY, "out of memory for the stages of a plan of %d values", p->plan.values)
               : CODA_OK;
}
