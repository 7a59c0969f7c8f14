/*
 * chat_http.h -- the engine's requests over HTTP, at 127.0.0.1.
 */
#ifndef CHAT_HTTP_H
#define CHAT_HTTP_H

#include "chat_access.h"
#include "chat_engine.h"
#include "chat_gate.h"

struct server_options {
    struct gate_options gate;
    struct access access;
    const char *prefix; /* of the metrics' names */
    int threads;        /* that make prompts of bodies */
    int64_t body_bytes; /* of all bodies that are there at a time */
    double prompt;      /* seconds that making one prompt may take */
};

struct server;

/* NULL, and a fault, if it cannot listen. The options must stay. */
struct server *server_new(struct engine *e, const struct server_options *opt, struct fault *f);
int server_port(const struct server *s);
/* Prompts that are being made are given up, and their clients told so. */
void server_drain(struct server *s);
/* Ends all connections whose clients do not take what they are sent. */
void server_shut(struct server *s);
/* Closes all connections; the engine has no unfinished request of theirs any more. false: some work does not
 * end after so many seconds, and the server must stay. */
bool server_free(struct server *s, double seconds);

#endif
