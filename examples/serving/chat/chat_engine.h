/*
 * chat_engine.h -- continuous batching: a thread that runs the model step after step for all requests there
 * are. Requests come and go between any two steps.
 */
#ifndef CHAT_ENGINE_H
#define CHAT_ENGINE_H

#include "chat_metrics.h"
#include "chat_runner.h"
#include "chat_request.h"

struct engine_options {
    struct runner_options runner;
    int queue;   /* requests that wait, at most */
    double ping; /* seconds of silence after which a stream is woken to say that it lives */
};

enum engine_state {
    ENGINE_LOADING, /* the model is made and warmed up */
    ENGINE_READY,
    ENGINE_DRAINING, /* what is there is finished, nothing new is taken */
    ENGINE_FAILED
};

struct engine;

struct engine *engine_new(const struct engine_options *opt);
/* All requests end, and the thread; the server has released what it held. */
void engine_free(struct engine *e);

enum engine_state engine_state(struct engine *e);
/* Until the model is loaded: false, and a line in `why`, if that failed. */
bool engine_wait_loaded(struct engine *e, char *why, int size);
const char *engine_device(const struct engine *e); /* of a loaded model */
const struct engine_options *engine_options(const struct engine *e);

enum submitted { SUBMIT_OK, SUBMIT_FULL, SUBMIT_CLOSED };
/* Both hold the request from now on, unless it is refused. */
enum submitted engine_submit(struct engine *e, struct request *r);
/* The server has done with it. If it is not finished, it is cancelled. */
void engine_release(struct engine *e, struct request *r);

/* Around what the server does to a request, and its `waits`. */
void engine_lock(struct engine *e);
void engine_unlock(struct engine *e);

/* Takes nothing new; waits until all requests are finished and released, for so many seconds at most. */
bool engine_drain(struct engine *e, double seconds);
/* Finishes all requests now. */
void engine_abort(struct engine *e);

void engine_metrics(struct engine *e, const char *prefix, FILE *to);

#endif
