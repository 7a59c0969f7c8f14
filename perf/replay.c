/* replay.c -- see replay.h: captures, and sides that take turns. */
#include "replay.h"

#include <stdlib.h>

void timer_open(struct timer *t, const struct machine *m)
{
    t->machine = m;
    for (int i = 0; i < EVENTS; i++) must(m->event_new(&t->event[i], 0), "cuEventCreate");
}

/* ---- Runs ---- */

void side_args(const struct figure *f, const struct side *s, int set, void **args)
{
    for (int i = 0; i < s->args; i++) {
        const struct tensor *t = &f->tensor[s->arg[i]];
        args[i] = (void *)(t->at + (size_t)(set * t->copies + s->copy[i]) * t->step);
        if (t->scalar) args[i] = (void *)&t->number;
    }
}

size_t side_prepared_step(const struct side *s) { return (coda_plan_prepared(s->plan) + 255) / 256 * 256; }

void side_fail(const struct figure *f, const struct side *s)
{
    fprintf(stderr, "perf: %s, %s: %s\n", f->name, s->name, coda_error());
    exit(1);
}

void side_run(const struct figure *f, const struct side *s, int set)
{
    void *args[ARGS], *prepared = (void *)(s->prepared + (size_t)set * side_prepared_step(s));
    side_args(f, s, set, args);
    if (coda_run(s->plan, args, prepared, (void *)s->work, f->machine->stream)) side_fail(f, s);
}

/* ---- Captures ---- */

graph side_capture(const struct figure *f, const struct side *s, int from, int runs)
{
    const struct machine *m = f->machine;
    graph g;
    must(m->capture_begin(m->stream, 2), "cuStreamBeginCapture");
    for (int i = from; i < from + runs; i++) side_run(f, s, i % f->sets);
    must(m->capture_end(m->stream, &g), "cuStreamEndCapture");
    return g;
}

/* The first kernel of a run, or the other one of two. */
static node kernel_of(const struct machine *m, graph run, bool first)
{
    node root, all[2];
    size_t n = 1;
    must(m->graph_roots(run, &root, &n) || n != 1, "cuGraphGetRootNodes");
    if (first) return root;
    must(m->graph_nodes(run, NULL, &n) || n != 2, "cuGraphGetNodes: a plan of two kernels");
    must(m->graph_nodes(run, all, &n), "cuGraphGetNodes");
    return all[all[0] == root];
}

/* One kernel of each of the runs, one after the other. */
static graph capture_one(const struct figure *f, const struct side *s, graph *each)
{
    const struct machine *m = f->machine;
    graph g;
    node last = NULL, copy;
    must(m->graph_new(&g, 0), "cuGraphCreate");
    for (int i = 0; i < f->runs; i++) {
        struct kernel_params params;
        each[i] = side_capture(f, s, i, 1);
        node one = kernel_of(m, each[i], f->first_kernel);
        must(m->kernel_get(one, &params), "cuGraphKernelNodeGetParams");
        must(m->kernel_add(&copy, g, &last, last != NULL, &params), "cuGraphAddKernelNode");
        must(m->kernel_attributes(copy, one), "cuGraphKernelNodeCopyAttributes");
        last = copy;
    }
    return g;
}

static void capture(const struct figure *f, struct side *s)
{
    const struct machine *m = f->machine;
    graph each[MOST_RUNS] = {0};
    bool one = (f->first_kernel || f->last_kernel) && s == &f->side[0];
    graph g = one ? capture_one(f, s, each) : side_capture(f, s, 0, f->runs);
    must(m->replay_new(&s->replay, g, 0), "cuGraphInstantiate");
    must(m->graph_free(g), "cuGraphDestroy");
    for (int i = 0; i < f->runs && each[i]; i++) must(m->graph_free(each[i]), "cuGraphDestroy");
}

/* ---- Turns ---- */

static void replay_side(const struct timer *t, struct figure *f, int s, int sample)
{
    const struct machine *m = t->machine;
    const event *e = &t->event[2 * (sample * f->sides + s)];
    must(m->event_record(e[0], m->stream), "cuEventRecord");
    must(m->replay_run(f->side[s].replay, m->stream), "cuGraphLaunch");
    must(m->event_record(e[1], m->stream), "cuEventRecord");
}

/* Every second round goes backwards, so that no side always follows the same other. */
static void replay_all(const struct timer *t, struct figure *f, int rounds)
{
    const struct machine *m = t->machine;
    for (int r = 0; r < rounds; r++)
        for (int s = 0; s < f->sides; s++) replay_side(t, f, r % 2 ? f->sides - 1 - s : s, r);
    must(m->stream_wait(m->stream), "a replay");
    for (int r = 0; r < rounds; r++)
        for (int s = 0; s < f->sides; s++) {
            const event *e = &t->event[2 * (r * f->sides + s)];
            float ms;
            must(m->event_ms(&ms, e[0], e[1]), "cuEventElapsedTime");
            f->side[s].ms[r] = ms / f->runs;
        }
}

void time_in_turns(const struct timer *t, struct figure *f)
{
    double round = 0;
    for (int s = 0; s < f->sides; s++) capture(f, &f->side[s]);
    replay_all(t, f, WARM);
    for (int s = 0; s < f->sides; s++) round += f->side[s].ms[WARM - 1] * f->runs;
    f->rounds = clamp((t->quick ? 100 : 500) / round, t->quick ? 5 : 11, ROUNDS);
    replay_all(t, f, f->rounds);
}
