/*
 * chat_metrics.h -- what the engine counts, and its text for Prometheus. The engine's lock guards all of it.
 */
#ifndef CHAT_METRICS_H
#define CHAT_METRICS_H

#include <stdint.h>
#include <stdio.h>

#include "chat_runner.h"
#include "chat_request.h"

enum { METRICS_BOUNDS = 12 };

struct histogram {
    const double *bound;                /* METRICS_BOUNDS upper ends */
    uint64_t below[METRICS_BOUNDS + 1]; /* of each bucket alone; the last has no end */
    double sum;
};

struct metrics {
    uint64_t prompt_tokens, generation_tokens, finished[FINISHES];
    struct histogram first_token, between_tokens, whole, queue, prefill, decode; /* seconds */
    struct histogram rows, step; /* of a step: rows, seconds */
    struct histogram host; /* of a step that is a CUDA graph: seconds from the last one's end to its launch */
    struct histogram graph; /* of steps that were CUDA graphs and followed by one: the device's seconds ... */
    struct histogram graph_step; /* ... and those until the next one began */
};

/* What is so at the moment. */
struct metrics_now {
    int running, waiting, pages_used, pages;
    int64_t preemptions;
    struct runner_stats runner;
};

void metrics_init(struct metrics *m);
void metrics_observe(struct histogram *h, double value);
/* A request that is over. */
void metrics_finish(struct metrics *m, const struct request *r, double now);
/* Text format 0.0.4. */
void metrics_print(const struct metrics *m, const struct metrics_now *now, const char *prefix,
                   const char *model, FILE *to);

/* Of the HTTP side. */
struct metrics_http {
    int connections, jobs; /* jobs: prompts and answers that wait to be made */
    uint64_t accepted, late, evicted;
    int64_t body_bytes;
};
void metrics_print_http(const struct metrics_http *m, const char *prefix, const char *model, FILE *to);

const char *finish_name(enum finish f); /* "stop", "length", "abort", "error" */

#endif
