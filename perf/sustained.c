/*
 * sustained.c -- each side alone, until the card's clock is what this side's own power leaves.
 *
 * A side runs for a second untimed and for a second timed. NVML gives the watts and the clock of the timed
 * second. Then, without a pause, come runs kernel by kernel with an event between any two: how much the times
 * of one kernel spread says whether it holds its speed. That is done where a replay is one run. Such kernels
 * do not overlap, so that their sum is more than a run's time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "power.h"
#include "replay.h"

enum { SPREAD_RUNS = 50 };
_Static_assert(SPREAD_RUNS *(MOST_KERNELS + 1) <= (int)EVENTS && (int)MOST_REPLAYS < (int)EVENTS,
               "an event for each mark");
static const double ALONE_MS = 1000; /* untimed first, then timed */

/* ---- Kernel by kernel ---- */

/* The node behind `n` in a graph that is a chain; NULL: it is the last. */
static node next_node(const struct machine *m, node n)
{
    node next[2];
    struct edge edge[2];
    size_t count = 2;
    if (m->node_next(n, NULL, NULL, &count) || count != 1) return NULL;
    must(m->node_next(n, next, edge, &count), "cuGraphNodeGetDependentNodes");
    return next[0];
}

static void name_kernel(const struct machine *m, const struct kernel_params *k, struct kernel_time *t)
{
    const char *name = NULL;
    int wrong = k->f ? m->function_name(&name, k->f) : m->kernel_name(&name, k->kernel);
    snprintf(t->name, sizeof t->name, "%s", wrong || !name ? "?" : name);
}

/* A replay of one kernel of a run for each; false: something else is among them, as cuBLASLt's memset. */
static bool split(const struct machine *m, graph run, struct side *s, replay *each)
{
    node n;
    size_t one = 1;
    if (m->graph_roots(run, &n, &one) || one != 1) return false;
    for (s->kernels = 0; n && s->kernels < MOST_KERNELS; n = next_node(m, n)) {
        struct kernel_params params;
        graph g;
        node copy;
        if (m->kernel_get(n, &params)) return false;
        must(m->graph_new(&g, 0), "cuGraphCreate");
        must(m->kernel_add(&copy, g, NULL, 0, &params), "cuGraphAddKernelNode");
        must(m->kernel_attributes(copy, n), "cuGraphKernelNodeCopyAttributes");
        must(m->replay_new(&each[s->kernels], g, 0), "cuGraphInstantiate");
        must(m->graph_free(g), "cuGraphDestroy");
        name_kernel(m, &params, &s->kernel[s->kernels++]);
    }
    return !n;
}

/* Runs kernel by kernel, with an event before each and one behind the last. */
static void run_split(const struct machine *m, const struct side *s, const replay *each, const event *e)
{
    for (int k = 0; k < s->kernels; k++) {
        must(m->event_record(e[k], m->stream), "cuEventRecord");
        must(m->replay_run(each[k], m->stream), "cuGraphLaunch");
    }
    must(m->event_record(e[s->kernels], m->stream), "cuEventRecord");
}

static double between(const struct machine *m, const event *e)
{
    float ms;
    must(m->event_ms(&ms, e[0], e[1]), "cuEventElapsedTime");
    return ms;
}

static void summarise(struct kernel_time *t, double *ms, int n)
{
    t->median = median(ms, n);
    t->min = ms[0], t->max = ms[n - 1];
}

static void time_kernels(const struct timer *t, struct figure *f, struct side *s)
{
    const struct machine *m = t->machine;
    replay each[MOST_KERNELS];
    double ms[SPREAD_RUNS];
    graph run = side_capture(f, s, 0, 1);
    bool whole = split(m, run, s, each);
    must(m->graph_free(run), "cuGraphDestroy");
    int marks = s->kernels + 1; /* events of a run */
    for (int r = 0; r < SPREAD_RUNS && whole; r++) run_split(m, s, each, t->event + r * marks);
    must(m->stream_wait(m->stream), "a replay");
    for (int k = 0; k < s->kernels; k++) {
        for (int r = 0; r < SPREAD_RUNS && whole; r++) ms[r] = between(m, t->event + r * marks + k);
        if (whole) summarise(&s->kernel[k], ms, SPREAD_RUNS);
        must(m->replay_free(each[k]), "cuGraphExecDestroy");
    }
    if (!whole) s->kernels = 0;
}

/* ---- Alone ---- */

/* Replays it untimed, then as often timed, with an event before each and one behind the last. */
static void replay_alone(const struct timer *t, struct figure *f, struct side *s, int round, int replays)
{
    const struct machine *m = t->machine;
    double *ms = s->replay_ms;
    for (int i = -replays; i < replays; i++) {
        if (i >= 0) must(m->event_record(t->event[i], m->stream), "cuEventRecord");
        must(m->replay_run(s->replay, m->stream), "cuGraphLaunch");
    }
    must(m->event_record(t->event[replays], m->stream), "cuEventRecord");
    must(m->event_wait(t->event[0]), "cuEventSynchronize");
    power_begin();
    must(m->event_wait(t->event[replays]), "cuEventSynchronize");
    s->draw[round] = power_end();
    for (int i = 0; i < replays; i++) ms[i] = between(m, &t->event[i]) / f->runs;
    s->ms[round] = between(m, (event[]){t->event[0], t->event[replays]}) / replays / f->runs;
    summarise(&s->all, ms, replays);
}

void time_sustained(const struct timer *t, struct figure *f)
{
    int replays[SIDES];
    for (int s = 0; s < f->sides; s++)
        replays[s] = clamp(ALONE_MS / (f->side[s].ms[WARM - 1] * f->runs), 1, MOST_REPLAYS);
    f->rounds = t->quick ? 2 : 5;
    for (int r = 0; r < f->rounds; r++)
        for (int i = 0; i < f->sides; i++) {
            struct side *s = &f->side[r % 2 ? f->sides - 1 - i : i];
            replay_alone(t, f, s, r, replays[s - f->side]);
            if (r == f->rounds - 1 && f->runs == 1) time_kernels(t, f, s);
        }
}
