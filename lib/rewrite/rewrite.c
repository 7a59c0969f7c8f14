/*
 * rewrite.c -- runs the passes in order. Each that changes something makes a new graph, which is verified and
 * shown.
 *
 * Lowering happens always; the rest only when fusing, round after round until nothing changes. In
 * debug mode each graph is also printed, parsed and printed again.
 */
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct pass {
    const char *name;
    rewrite_pass *run;
    enum pass_when when;
} passes[] = {
#define PASS(name, when) {#name, name, PASS_##when},
#include "passes.def"
#undef PASS
};
enum { MOST_ROUNDS = 64 };

/* print -> parse -> print must be a fixed point. */
static coda_status round_trip(const char *name, const char *text)
{
    graph *again = graph_parse(text);
    if (!again) return fail(CODA_E_INVALID, "rewrite: after %s the text is wrong: %s", name, fail_message());
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
    if (next == *g) return CODA_OK;
    bool changed = log->events > before || next->nodes != (*g)->nodes;
    graph_free(*g);
    *g = next;
    if (log->arena.failed) return fail(CODA_E_MEMORY, "rewrite: out of memory");
    if (!changed && next->status == CODA_OK) return CODA_OK; /* a copy of what was verified */
    coda_status s = graph_verify(next);
    if (s == CODA_OK && opt->stage) opt->stage(opt->context, p->name, next, log);
    return s == CODA_OK && debug_shows(DEBUG_REWRITE) ? show(p, next) : s;
}

/* Does the pass run in a round: in each one when fusing, else in the only one? */
static bool in_round(enum pass_when when, const struct rewrite_options *opt)
{
    switch (when) {
    case PASS_LOWER: return false;
    case PASS_FUSE: return opt->fuse;
    case PASS_DEFER: return opt->fuse && !opt->no_deferral;
    case PASS_FOLD: return opt->fuse && !opt->no_deferral && opt->fold != CODA_FOLD_NONE;
    case PASS_ALWAYS: return true;
    }
    return false;
}

static coda_status run_passes(graph **g, const struct rewrite_options *opt, struct rewrite_log *log)
{
    coda_status s = CODA_OK;
    int rounds = opt->fuse ? MOST_ROUNDS : 1;
    for (int i = 0; i < ARRAY_SIZE(passes) && s == CODA_OK; i++)
        if (passes[i].when == PASS_LOWER) s = run_pass(&passes[i], g, opt, log);
    for (int round = 0, before = -1; round < rounds && log->events != before; round++) {
        before = log->events;
        for (int i = 0; i < ARRAY_SIZE(passes) && s == CODA_OK; i++)
            if (in_round(passes[i].when, opt)) s = run_pass(&passes[i], g, opt, log);
    }
    return s;
}

graph *rewrite(const graph *g, const struct rewrite_options *opt, struct rewrite_log *log)
{
    struct rewrite_log own = {0};
    if (g->status != CODA_OK) {
        graph_mistake(g);
        return NULL;
    }
    graph *out = rewrite_walk(g, NULL, opt, log, NULL);
    if (out && run_passes(&out, opt, log ? log : &own) != CODA_OK) {
        graph_free(out);
        out = NULL;
    }
    rewrite_log_free(&own);
    return out;
}

/* ---- Forward and backward passes, before they are cut apart ---- */

/* The rules of backward passes, which need both, and what they want done first. */
static const struct pass joint_passes[] = {
#define JOINT(name)                                                                                          \
    {                                                                                                        \
#name, name, PASS_FUSE                                                                               \
    }
    JOINT(tidy),       JOINT(slice_concat), JOINT(cse),      JOINT(row_dot),
    JOINT(turn_dot),   JOINT(sum_concat),   JOINT(factor_k), JOINT(cancel),
    JOINT(column_dot), JOINT(concat_map),   JOINT(dead),
#undef JOINT
};

static coda_status run_joint(graph **g)
{
    struct rewrite_options opt = {.fuse = true};
    struct rewrite_log log = {0};
    coda_status s = run_pass(&(struct pass){"lower_norm", lower_norm, PASS_LOWER}, g, &opt, &log);
    for (int round = 0, before = -1; round < MOST_ROUNDS && log.events != before; round++) {
        before = log.events;
        for (int i = 0; i < ARRAY_SIZE(joint_passes) && s == CODA_OK; i++)
            s = run_pass(&joint_passes[i], g, &opt, &log);
    }
    rewrite_log_free(&log);
    return s;
}

/* Values are found again as outputs behind the others, which are dropped then. */
static bool put_out(graph *g, const int *value, int n)
{
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "rewrite.value.%d", i);
        if (graph_append_output(g, name, value[i], NULL) < 0) return graph_mistake(g), false;
    }
    return true;
}

static void take_back_outputs(graph *g, int outputs, int *value)
{
    for (int i = g->outputs - 1; i >= outputs; i--) {
        struct node *n = &g->node[value[i - outputs] = g->output[i].value];
        int *link = &n->output, last = -1;
        for (; *link != i; link = &g->output[*link].next) last = *link;
        *link = -1;
        n->last_output = last;
    }
    g->outputs = outputs;
}

graph *rewrite_joint(const graph *joint, int *value, int n)
{
    graph *g = graph_copy(joint, "rewrite");
    if (!g || !put_out(g, value, n) || run_joint(&g) != CODA_OK) {
        graph_free(g);
        return NULL;
    }
    take_back_outputs(g, joint->outputs, value);
    return g;
}
