/* explain.c -- the log of the passes, and how its lines name values. */
#include "explain.h"

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
    format_print(line, sizeof line, format, args);
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
    if (name) format_line(w.s, sizeof w.s, "%%%.60s", name);
    else format_line(w.s, sizeof w.s, "%%%d", n->origin);
    return w;
}

/* Is it this primitive and, if that is a reduction, one of rows? */
static bool is_prim(const struct node *n, const char *name)
{
    bool of_columns = node_folds_columns(n);
    return n->prim && !of_columns && strcmp(n->prim->name, name) == 0;
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
    if (n->op == OP_CONSTANT) format_line(w.s, sizeof w.s, "%g", (double)n->attr.constant.value);
    const struct node *s = n->nin ? &g->node[n->in[0]] : NULL;
    const char *what = NULL;
    if (is_prim(n, "rsqrt_mean") && is_prim(s, "sum_sq")) what = "1/rms";
    if (is_prim(n, "rsqrt_mean") && is_prim(s, "m2")) what = "1/std";
    if (what) format_line(w.s, sizeof w.s, "%s(%.100s)", what, rewrite_name(g, s->in[0]).s);
    if (is_prim(n, "mean")) format_line(w.s, sizeof w.s, "mean(%.100s)", rewrite_name(g, n->in[0]).s);
    return w;
}
