/*
 * complete.c -- a completion, from its body to its answer. The pool makes the request and the answer's text,
 * the engine the tokens; meanwhile the connection is suspended.
 */
#include <stdlib.h>
#include <string.h>

#include "chat_exchange.h"

static struct exchange *of_job(struct job *j)
{
    return (struct exchange *)((char *)j - offsetof(struct exchange, job));
}

static void resume(struct job *j) { MHD_resume_connection(of_job(j)->connection); }

/* The connection is asked again when the job is done. */
static enum MHD_Result hand_over(struct exchange *x, void (*run)(struct job *j))
{
    x->job.run = run;
    x->job.done = resume;
    peer_enter(x->server->gate, x->peer, PEER_WAIT);
    MHD_suspend_connection(x->connection);
    pool_add(x->server->pool, &x->job);
    return MHD_YES;
}

/* ---- From a body to a request ---- */

static void make_request(struct job *j)
{
    struct exchange *x = of_job(j);
    const struct server_options *opt = x->server->opt;
    const struct runner_options *o = &engine_options(x->engine)->runner;
    const struct deadline until = deadline_in(opt->prompt, &j->cancelled);
    struct ask_limits limits = {.served = o->served,
                                .context = o->context,
                                .pages = o->pages,
                                .likely = o->top < REQUEST_LIKELY ? o->top : REQUEST_LIKELY,
                                .deadline = &until};
    x->refused = !ask_parse(&x->ask, x->route->chat, x->body ? x->body : "", x->bytes, &limits, &x->problem);
    body_free(x);
}

static enum MHD_Result refuse_full(struct exchange *x)
{
    struct problem busy = {.status = 429, .type = "rate_limit_error", .code = "queue_full"};
    snprintf(busy.message, sizeof busy.message, "%d requests wait already", engine_options(x->engine)->queue);
    return send_problem(x, &busy, MHD_HTTP_HEADER_RETRY_AFTER, "1");
}

static enum MHD_Result begin(struct exchange *x)
{
    if (engine_state(x->engine) != ENGINE_READY) return send_state(x);
    if (pool_full(x->server->pool)) return refuse_full(x);
    x->stage = STAGE_ASKED;
    atomic_store(&x->job.cancelled, false);
    peer_watch(x->server->gate, x->peer, &x->job.cancelled);
    return hand_over(x, make_request);
}

/* ---- From a request to its answer ---- */

static void wake(void *context) { MHD_resume_connection(((struct exchange *)context)->connection); }

static bool gone(void *context) { return peer_gone(((struct exchange *)context)->peer); }

void exchange_wait(struct exchange *x)
{
    peer_enter(x->server->gate, x->peer, PEER_WAIT);
    x->ask.request->waits = true;
    MHD_suspend_connection(x->connection);
}

static void make_answer(struct job *j)
{
    struct exchange *x = of_job(j);
    x->text = json_answer(&x->heading, x->ask.request, x->ask.ids);
}

/* An answer in one piece, once it is there. */
static enum MHD_Result answer_whole(struct exchange *x)
{
    struct request *r = x->ask.request;
    engine_lock(x->engine);
    enum finish finish = r->finish;
    if (!finish) exchange_wait(x);
    engine_unlock(x->engine);
    switch (finish) {
    case FINISH_STOP:
    case FINISH_LENGTH: x->stage = STAGE_ANSWERED; return hand_over(x, make_answer);
    case FINISH_ABORT:
        if (peer_gone(x->peer)) return MHD_NO;
        return send_error(x, 503, "unavailable_error", "draining", "Shutting down");
    case FINISH_ERROR: return send_error(x, 500, "server_error", NULL, "The engine failed");
    default: return MHD_YES; /* this is called again when the connection is resumed */
    }
}

static enum MHD_Result submit(struct exchange *x)
{
    const struct served *served = engine_options(x->engine)->runner.served;
    struct request *r = x->ask.request;
    peer_watch(x->server->gate, x->peer, NULL);
    if (peer_gone(x->peer)) return MHD_NO;
    if (x->refused) return send_problem(x, &x->problem, NULL, NULL);
    x->heading = (struct heading){++x->server->requests, time(NULL), x->route->chat, served};
    r->wake = wake;
    r->gone = gone;
    r->context = x;
    enum submitted result = engine_submit(x->engine, r);
    if (result != SUBMIT_OK) return result == SUBMIT_FULL ? refuse_full(x) : send_state(x);
    x->stage = STAGE_RUNS;
    return x->ask.stream ? send_response(x, 200, stream_response(x)) : answer_whole(x);
}

static enum MHD_Result send_answer(struct exchange *x)
{
    char *text = x->text;
    x->text = NULL;
    return send_json(x, 200, text);
}

enum MHD_Result complete(struct exchange *x)
{
    switch (x->stage) {
    case STAGE_BODY: return begin(x);
    case STAGE_ASKED: return submit(x);
    case STAGE_RUNS: return answer_whole(x);
    case STAGE_ANSWERED: break;
    }
    return send_answer(x);
}
