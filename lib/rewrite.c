/*
 * rewrite.c -- runs the passes in order. Each makes a new graph, which is verified and shown.
 *
 * Lowering happens always; the rest only when fusing, round after round until nothing changes. In
 * debug mode each graph is also printed, parsed and printed again.
 */
#include "rewrite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The log ---- */

static struct rewrite_event *log_room(struct rewrite_log *log)
{
    if (log->events < log->capacity) return &log->event[log->events];
    int wider = MAX(16, 2 * log->capacity);
    struct rewrite_event *copy = ARENA_NEW(&log->arena, struct rewrite_event, wider);
    if (!copy) return NULL;
    if (log->events) memcpy(copy, log->event, sizeof *copy * (size_t)log->events);
    log->event = copy;
    log->capacity = wider;
    return &log->event[log->events];
}

void rewrite_note(struct rewrite_log *log, const char *rule, bool exact, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    struct rewrite_event *e = log_room(log);
    const char *text = arena_string(&log->arena, line);
    if (!e || !text) return; /* the arena remembers */
    *e = (struct rewrite_event){rule, text, exact};
    log->events++;
}

void rewrite_log_free(struct rewrite_log *log)
{
    arena_free(&log->arena);
    *log = (struct rewrite_log){0};
}

/* ---- Words ---- */

struct words rewrite_name(const graph *g, int v)
{
    struct words w;
    const struct node *n = &g->node[v];
    const char *name = n->name ? n->name : n->output >= 0 ? g->output[n->output].name : NULL;
    if (name) snprintf(w.s, sizeof w.s, "%%%.60s", name);
    else snprintf(w.s, sizeof w.s, "%%%d", n->origin);
    return w;
}

static bool is_prim(const struct node *n, const char *name)
{
    return n->prim && strcmp(n->prim->name, name) == 0;
}

struct words rewrite_weight(const graph *g, int v)
{
    while (g->node[v].nin && g->node[v].in[0] >= 0) v = g->node[v].in[0];
    return rewrite_name(g, v);
}

struct words rewrite_meaning(const graph *g, int v)
{
    if (v < 0) return (struct words){"the scale"};
    struct words w = rewrite_name(g, v);
    const struct node *n = &g->node[v];
    if (n->op == OP_CONSTANT) snprintf(w.s, sizeof w.s, "%g", (double)n->attr.f[0]);
    const struct node *s = n->nin ? &g->node[n->in[0]] : NULL;
    const char *what = NULL;
    if (is_prim(n, "rsqrt_mean") && is_prim(s, "sum_sq")) what = "1/rms";
    if (is_prim(n, "rsqrt_mean") && is_prim(s, "m2")) what = "1/std";
    if (what) snprintf(w.s, sizeof w.s, "%s(%.100s)", what, rewrite_name(g, s->in[0]).s);
    if (is_prim(n, "mean")) snprintf(w.s, sizeof w.s, "mean(%.100s)", rewrite_name(g, n->in[0]).s);
    return w;
}

/* ---- The walk ---- */

/* Copies or replaces one node; false when `out` is poisoned. */
static bool step(struct walk *w, rewrite_rule *rule, int n)
{
    const struct node *old = &w->in->node[n];
    int before = w->out->nodes, v = rule(w, n);
    if (v == RULE_COPY) v = graph_copy_node(w->out, w->in, n, w->map);
    else
        for (int i = before; i < w->out->nodes; i++) w->out->node[i].origin = old->origin;
    if (v == RULE_DROP) return true;
    w->map[n] = v;
    if (v < 0) return false;
    if (type_equal(&w->out->node[v].type, &old->type)) return true;
    graph_poison(w->out, CODA_E_INVALID, "rewrite: the type of %s changed", rewrite_name(w->in, n).s);
    return false;
}

static bool walk(struct walk *w, rewrite_rule *rule)
{
    for (int i = 0; i < w->in->nodes; i++) {
        w->map[i] = -1;
        if (!op_is_leaf(w->in->node[i].op)) continue;
        w->map[i] = graph_copy_node(w->out, w->in, i, w->map);
        if (w->map[i] < 0) return false;
    }
    for (int i = 0; i < w->in->nodes; i++)
        if (!op_is_leaf(w->in->node[i].op) && !step(w, rule, i)) return false;
    return graph_copy_outputs(w->out, w->in, w->map) == 0;
}

graph *rewrite_walk(const graph *in, rewrite_rule *rule, const struct rewrite_options *opt,
                    struct rewrite_log *log, void *ctx)
{
    struct walk w = {.in = in, .out = graph_like(in), .opt = opt, .log = log, .ctx = ctx};
    if (!w.out) return NULL;
    w.map = calloc((size_t)in->nodes + 1, sizeof *w.map);
    if (!w.map) graph_poison(w.out, CODA_E_MEMORY, "rewrite: out of memory");
    if (!w.map || !walk(&w, rule)) {
        coda_graph_status(w.out);
        graph_free(w.out);
        w.out = NULL;
    }
    free(w.map);
    return w.out;
}

/* ---- The runner ---- */

static const struct pass {
    const char *name;
    rewrite_pass *run;
    bool round; /* again in every round, and only when fusing */
} passes[] = {
    {"lower_norm", lower_norm, false},
    {"lower_softmax", lower_softmax, false},
    {"lower_loss", lower_loss, false},
    {"tidy", tidy, true},
    {"cse", cse, true},
    {"merge_rope", merge_rope, true},
    {"carry_col_shift", carry_col_shift, true},
    {"carry_col_scale", carry_col_scale, true},
    {"carry_row_shift", carry_row_shift, true},
    {"carry_row_scale", carry_row_scale, true},
    {"carry_cast", carry_cast, true},
    {"narrow", narrow, true},
    {"dead", dead, true},
};
enum { MOST_ROUNDS = 64 };

/* print -> parse -> print must be a fixed point. */
static coda_status round_trip(const char *name, const char *text)
{
    graph *again = graph_parse(text);
    if (!again) return fail(CODA_E_INVALID, "rewrite: after %s the text is wrong: %s", name, coda_error());
    struct text t = {0};
    graph_print(again, &t);
    bool same = !t.failed && strcmp(text, text_str(&t)) == 0;
    text_free(&t);
    graph_free(again);
    return same ? CODA_OK : fail(CODA_E_INVALID, "rewrite: after %s the text is no fixed point", name);
}

static coda_status show(const struct pass *p, const graph *g)
{
    struct text t = {0};
    char name[64];
    snprintf(name, sizeof name, "%s.txt", p->name);
    graph_print(g, &t);
    coda_status s = t.failed ? fail(CODA_E_MEMORY, "rewrite: out of memory") : CODA_OK;
    if (s == CODA_OK) debug_stage(DEBUG_REWRITE, name, text_str(&t));
    if (s == CODA_OK && debug_on(DEBUG_REWRITE)) s = round_trip(p->name, text_str(&t));
    text_free(&t);
    return s;
}

/* Replaces *g by the pass's result. */
static coda_status run_pass(const struct pass *p, graph **g, const struct rewrite_options *opt,
                            struct rewrite_log *log)
{
    int before = log->events;
    graph *next = p->run(*g, opt, log);
    if (!next) return CODA_E_INVALID;
    graph_free(*g);
    *g = next;
    if (log->arena.failed) return fail(CODA_E_MEMORY, "rewrite: out of memory");
    coda_status s = graph_verify(next);
    bool changed = log->events > before;
    return s == CODA_OK && changed && debug_shows(DEBUG_REWRITE) ? show(p, next) : s;
}

static coda_status run_passes(graph **g, const struct rewrite_options *opt, struct rewrite_log *log)
{
    coda_status s = CODA_OK;
    for (int i = 0; i < ARRAY_SIZE(passes) && s == CODA_OK; i++)
        if (!passes[i].round) s = run_pass(&passes[i], g, opt, log);
    for (int round = 0, before = -1; round < MOST_ROUNDS && opt->fuse && log->events != before; round++) {
        before = log->events;
        for (int i = 0; i < ARRAY_SIZE(passes) && s == CODA_OK; i++)
            if (passes[i].round) s = run_pass(&passes[i], g, opt, log);
    }
    return s == CODA_OK && !opt->fuse ? run_pass(&passes[ARRAY_SIZE(passes) - 1], g, opt, log) : s;
}

static int copy(struct walk *w, int n)
{
    (void)w, (void)n;
    return RULE_COPY;
}

graph *rewrite(const graph *g, const struct rewrite_options *opt, struct rewrite_log *log)
{
    struct rewrite_log own = {0};
    if (g->status != CODA_OK) {
        fail(g->status, "%s", g->error);
        return NULL;
    }
    graph *out = rewrite_walk(g, copy, opt, log, NULL);
    if (out && run_passes(&out, opt, log ? log : &own) != CODA_OK) {
        graph_free(out);
        out = NULL;
    }
    rewrite_log_free(&own);
    return out;
}
