/*
 * load.h -- a request that chat_load sends, and what becomes of it.
 */
#ifndef LOAD_H
#define LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "plain.h"

/* Times are seconds since the first one was due; 0 or less in `first` and `last`: not yet. */
struct asked {
    double due;   /* when it was to be sent: latencies count from here, however late it was */
    double first; /* its first token came */
    double last;  /* its last one */
    double ended; /* the connection closed */
    int prompt;   /* bytes */
    int most;     /* tokens wanted */
    uint64_t seed;

    int status;   /* of HTTP; 0: there was none */
    int pieces;   /* events with text or tokens */
    int tokens;   /* by the server's own count, else pieces */
    bool done;    /* [DONE] came, and nothing behind it */
    bool failed;  /* see why */
    bool cut;     /* the run ended before it did, which is no failure */
    double again; /* it is sent once more then: the server was not ready */
    char why[120];
    char reason[16]; /* finish_reason */
    char *text;      /* as JSON has it between quotes */
    size_t bytes;
};

void asked_fail(struct asked *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
void asked_reset(struct asked *a); /* as if it had not been sent */

/* ---- A reply of HTTP/1.1 as it arrives: events, in chunks or not ---- */

struct reply_line {
    size_t bytes;
    char text[1 << 16];
};

struct reply {
    enum { REPLY_HEAD, REPLY_SIZE, REPLY_CHUNK, REPLY_GAP, REPLY_END, REPLY_PLAIN } state;
    size_t left; /* of a chunk */
    struct reply_line frame, body;
    bool chunked;
    struct asked *of;
};

/* Between two pieces of an answer: when the second came, and how long after the first. */
struct gap {
    double at, seconds;
};

struct gaps {
    struct gap *of;
    size_t count, room;
};

void reply_begin(struct reply *r, struct asked *of);
void reply_feed(struct reply *r, const char *data, size_t bytes, double now, struct gaps *gaps);
/* The connection is closed, or given up. */
void reply_end(struct reply *r, double now, struct gaps *gaps);

/* ---- Figures ---- */

/* Of the server's steps that were CUDA graphs and followed by another one, on average. */
struct steps {
    long long graphs;  /* 0: there were none, and nothing else is said */
    double graph_ms;   /* the device's time of one */
    double step_ms;    /* until the next one began */
    double host_us;    /* of the host, between the two ... */
    double host_below; /* ... and how often that was 50 us at most, of 1 */
};

struct addrinfo;
/* From its metrics. false: there are no such steps. */
bool steps_read(struct steps *s, const struct addrinfo *server);

struct run {
    struct asked *of;
    int count;
    struct gaps gaps;
    struct steps steps;
};
void report_print(const struct run *r, FILE *to);
/* All figures, and those of each window of `window` seconds, as JSON; a window is a line that begins with its
 * label. `since` is added to the times. */
bool report_json(const struct run *r, const char *path, const char *label, double window, double since);
bool report_csv(const struct run *r, const char *path);
int report_failures(const struct run *r);

#endif
