/*
 * chat_gate.h -- who is connected: connections are accepted, watched and ended here; libmicrohttpd reads and
 * writes them.
 *
 * libmicrohttpd alone cannot keep slow clients from taking all connections: it has one timeout, for silence,
 * it stops accepting when it is full, and it does not look at a connection that is suspended. So a thread of
 * the gate listens; it knows what each client is at, and shuts the socket of one that takes too long, which
 * libmicrohttpd then sees as closed. Where there is no place for a new client the one leaves that has taken
 * longest without having asked for anything.
 */
#ifndef CHAT_GATE_H
#define CHAT_GATE_H

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fault.h"

struct gate_options {
    int port;                           /* of 127.0.0.1; 0: one that is free */
    int connections;                    /* at a time, at most */
    double header, body, answer, pause; /* seconds a client may take, see below */
};

/* What a client is at. */
enum peer_phase {
    PEER_HEADER, /* its first header must come within `header` seconds ... */
    PEER_PAUSE,  /* ... and a later one within `pause` of the answer before it */
    PEER_BODY,   /* which must come within `body` seconds */
    PEER_WAIT,   /* it waits for the server, for as long as that takes */
    PEER_ANSWER, /* it must take an answer, or the next piece of one, within `answer` seconds */
    PEER_PHASES
};

struct peer; /* valid until its connection is closed */
struct gate;

/* Listens. NULL, and a fault, if it cannot. */
struct gate *gate_open(const struct gate_options *opt, struct fault *f);
int gate_port(const struct gate *g);
/* Accepts from now on. The daemon was started without a socket of its own, with gate_notify to be told. */
bool gate_start(struct gate *g, struct MHD_Daemon *daemon);
void gate_notify(void *gate, struct MHD_Connection *c, void **context,
                 enum MHD_ConnectionNotificationCode what);
/* Accepts nobody any more: before the daemon is stopped. */
void gate_stop(struct gate *g);
void gate_free(struct gate *g);

struct peer *gate_peer(struct MHD_Connection *c);
void peer_enter(struct gate *g, struct peer *p, enum peer_phase phase);
/* The client has closed its connection, or its half of it, whatever it sent before. */
bool peer_gone(const struct peer *p);
/* Sets *cancelled when the client goes; NULL: nothing any more. */
void peer_watch(struct gate *g, struct peer *p, atomic_bool *cancelled);
/* Ends the one that has been in a phase for longest, if that is so many seconds at least. */
bool gate_evict(struct gate *g, enum peer_phase phase, double seconds);

/* Ends all of those who do not take an answer. */
void gate_shut(struct gate *g);
/* Until nobody waits for an answer or is about to take one, for so many seconds at most. */
void gate_settle(struct gate *g, double seconds);

struct gate_counts {
    int open;
    uint64_t accepted, late, evicted; /* late: beyond a deadline */
};
struct gate_counts gate_counts(struct gate *g);

#endif
