/*
 * chat_exchange.h -- a request of HTTP and its answer, as the parts of the server share it.
 *
 * It belongs to libmicrohttpd's thread. A connection with nothing to send is suspended, and the engine
 * resumes it; both happen under the engine's lock, where `waits` of the request says which it is.
 */
#ifndef CHAT_EXCHANGE_H
#define CHAT_EXCHANGE_H

#include <microhttpd.h>

#include "chat_engine.h"
#include "chat_json.h"

struct exchange {
    struct server *server;
    struct engine *engine;
    struct MHD_Connection *connection;
    const struct route *route; /* NULL: there is none */
    struct heading heading;
    struct ask ask; /* its request is submitted, or NULL */

    char *body;
    size_t bytes, room, seen; /* seen: with those that were too many */

    char *out; /* of a stream: events to be sent */
    size_t out_bytes, out_at;
    size_t text_sent;
    int ids_sent;
    bool opened, done;
};

/* Suspends the connection until there is news; called under the engine's lock. */
void exchange_wait(struct exchange *x);

/* A response of 200 that sends the answer as events. NULL if there is no memory. */
struct MHD_Response *stream_response(struct exchange *x);

#endif
