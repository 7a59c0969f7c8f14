/*
 * captures.c -- the graphs of chat_captures.h.
 */
#include "chat_captures.h"

enum { OF_THIS_THREAD = 1 }; /* capture mode: what other threads do meanwhile is theirs */

static bool run(const struct captures *c, const int64_t *dims)
{
    coda_run_options opt = CODA_RUN_OPTIONS_INIT;
    opt.dims = dims;
    opt.dim_count = 2;
    return coda_run_shaped(c->plan, c->args, NULL, c->workspace, c->stream, &opt) == CODA_OK;
}

/* A new graph for it; the one that it had, if any, stays if that fails. Nothing is in flight. */
static bool capture(struct captures *c, struct capture *one)
{
    gpu_graph graph = NULL;
    gpu_replay replay = NULL;
    bool best = coda_plan_ready(c->plan, one->dims) == 1; /* asked before: so it has those, or better ones */
    if (c->gpu->capture_begin(c->stream, OF_THIS_THREAD)) return false;
    bool good = run(c, one->dims);
    good = !c->gpu->capture_end(c->stream, &graph) && good; /* whatever became of the run */
    good = good && !c->gpu->replay_new(&replay, graph, 0) && !c->gpu->replay_upload(replay, c->stream);
    if (graph) c->gpu->graph_free(graph);
    if (!good && replay) c->gpu->replay_free(replay);
    if (!good) return false;
    if (one->replay) c->gpu->replay_free(one->replay);
    one->replay = replay;
    one->best = best;
    c->made++;
    return true;
}

bool captures_add(struct captures *c, const int64_t *dims)
{
    struct capture *one = &c->of[c->count];
    if (c->count == CAPTURES_MOST) return false;
    *one = (struct capture){.dims = {dims[0], dims[1]}};
    if (!run(c, dims) || c->gpu->stream_wait(c->stream) || !capture(c, one)) return false;
    c->count++;
    return true;
}

struct capture *captures_find(struct captures *c, const int64_t *dims)
{
    for (int i = 0; i < c->count; i++)
        if (c->of[i].dims[0] == dims[0] && c->of[i].dims[1] == dims[1]) return &c->of[i];
    return NULL;
}

bool captures_launch(struct captures *c, struct capture *one)
{
    bool better = !one->best && coda_plan_ready(c->plan, one->dims) == 1;
    if (better && (c->gpu->stream_wait(c->stream) || !capture(c, one))) return false;
    return !c->gpu->replay_run(one->replay, c->stream);
}

void captures_free(struct captures *c)
{
    for (int i = 0; i < c->count; i++) c->gpu->replay_free(c->of[i].replay);
    c->count = 0;
}
