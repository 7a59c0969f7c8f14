/*
 * plan_texts.c -- what a plan says of itself. Some texts it keeps: the graph as it was given and rewritten,
 * the derivation, programs and launches. Others are made when they are asked for: CODA_TEXT_STAGES, the graph
 * once more behind each pass that changed it, and which program computes which of its values;
 * CODA_TEXT_REASONS, why programs are apart.
 */
#include "pipeline.h"

#include "fuse.h"
#include "own.h"
#include "rewrite.h"
#include "schedule.h"

/* ---- Kept ---- */

/* Frees t. */
static coda_status keep(struct coda_plan *p, struct text *t, coda_text what)
{
    p->text[what] = t->failed ? NULL : arena_string(&p->arena, text_str(t));
    text_free(t);
    return p->text[what] ? CODA_OK : fail(CODA_E_MEMORY, "out of memory for the plan's text");
}

coda_status keep_graph(struct coda_plan *p, const graph *g, coda_text what)
{
    struct text t = {0};
    graph_print(g, &t);
    return keep(p, &t, what);
}

coda_status keep_derivation(struct coda_plan *p, const struct rewrite_log *log)
{
    const struct coda_plan_stats *s = &p->stats;
    struct text t = {0};
    for (int i = 0; i < log->events; i++) {
        const struct rewrite_event *e = &log->event[i];
        text_printf(&t, "%-18s %-8s %s\n", e->rule, e->exact ? "exact" : "rounding", e->text);
    }
    text_printf(&t, "%-18s %-8s %d launches become %d; %.3f MB of traffic become %.3f MB\n", "total", "",
                s->launches_unfused, s->launches, (double)s->bytes_unfused * 1e-6, (double)s->bytes * 1e-6);
    return keep(p, &t, CODA_TEXT_DERIVATION);
}

coda_status keep_plan(struct coda_plan *p)
{
    struct text plan = {0}, dot = {0};
    plan_print(&p->plan, &plan);
    plan_dot(&p->plan, &dot);
    coda_status status = keep(p, &plan, CODA_TEXT_PLAN), other = keep(p, &dot, CODA_TEXT_DOT);
    return status ? status : other;
}

/* ---- CODA_TEXT_STAGES ---- */

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

/* ---- CODA_TEXT_REASONS ---- */

/* Programs that the schedule has put side by side have other places, and parts that of what they are of. */
static coda_status reorder(struct plan *again, const int *origin, int n)
{
    struct program *program = ARENA_NEW(&again->arena, struct program, n + 1);
    if (!program) return CODA_E_MEMORY;
    for (int i = 0; i < n; i++) program[i] = again->program[origin[i]];
    again->program = program;
    again->programs = n;
    return CODA_OK;
}

/* The programs once more, as they were made, up to their order. */
static coda_status fuse_again(struct grouper *groups, struct plan *again, const struct coda_plan *p,
                              const struct plan_options *opt)
{
    coda_status status = fuse_graph(groups, again, opt);
    if (!status) status = fuse_lower(groups);
    if (!status) status = plan_arrange(again);
    if (!status && p->plan.whole) status = reorder(again, p->plan.whole, p->plan.programs);
    if (status || !p->plan.origin || again->programs != p->plan.programs) return status;
    return reorder(again, p->plan.origin, again->programs);
}

coda_status plan_reasons(const coda_plan *p, struct text *t)
{
    struct plan again = {.graph = p->plan.graph,
                         .values = p->plan.values,
                         .target = p->plan.target,
                         .accumulates = p->plan.accumulates,
                         .by_size = p->plan.by_size,
                         .overlaps = p->plan.overlaps};
    struct plan_options opt = p->options;
    struct reasons reasons = {.arena = &again.arena};
    struct grouper groups;
    reasons.of = ARENA_NEW(&again.arena, const struct refusal *, p->plan.values + 1);
    opt.reasons = &reasons;
    coda_status status = reasons.of ? fuse_again(&groups, &again, p, &opt) : CODA_E_MEMORY;
    if (!status) status = reasons_print(&groups, &again, &p->plan, t);
    if (!status && (!schedule_reasons(&p->plan, t) || again.arena.failed)) status = CODA_E_MEMORY;
    if (status == CODA_E_MEMORY)
        fail(status, "out of memory for the reasons of a plan of %d values", p->plan.values);
    again.graph = NULL; /* the plan's */
    plan_free(&again);
    return status;
}
