/*
 * chat_exchange.h -- a request of HTTP and its answer, as the parts of the server share it.
 *
 * It belongs to libmicrohttpd's thread, but while its job is with the pool. A connection with nothing to send
 * is suspended. The engine resumes it when there is news; both happen under the engine's lock, where `waits`
 * of the request says which it is. The pool resumes it when its job is done.
 */
#ifndef CHAT_EXCHANGE_H
#define CHAT_EXCHANGE_H

#include "chat_engine.h"
#include "chat_http.h"
#include "chat_json.h"
#include "chat_pool.h"

enum {
    MOST_BODY = 1 << 20,     /* bytes; more are refused ... */
    MOST_SWALLOWED = 1 << 24 /* ... in words, if they are no more than this */
};

struct server {
    const struct server_options *opt;
    struct engine *engine;
    struct gate *gate;
    struct pool *pool;
    struct MHD_Daemon *daemon;
    time_t began;
    int64_t requests;
    _Atomic int64_t body_bytes; /* room of all bodies */
};

struct exchange;
typedef enum MHD_Result (*endpoint)(struct exchange *x);

struct route {
    const char *path, *method;
    endpoint answer;
    bool chat;
};

/* How far a completion is. */
enum stage {
    STAGE_BODY,    /* its body comes */
    STAGE_ASKED,   /* the pool makes, or has made, a request of it */
    STAGE_RUNS,    /* the engine has it */
    STAGE_ANSWERED /* the pool makes, or has made, the answer's text */
};

struct exchange {
    struct server *server;
    struct engine *engine;
    struct MHD_Connection *connection;
    struct peer *peer;
    const struct route *route;
    bool refused; /* with this problem, and a header line if `header` is not NULL */
    struct problem problem;
    const char *header, *value;
    struct heading heading;
    struct ask ask; /* its request, or NULL, is submitted from STAGE_RUNS on */
    enum stage stage;
    struct job job;
    char *text; /* of an answer in one piece */

    char *body;
    size_t bytes, room, length,
        seen; /* length: as the header says, or 0; seen: with those that were too many */

    char *out; /* of a stream: events to be sent */
    size_t out_bytes, out_at;
    size_t text_sent;
    int ids_sent;
    bool opened, done;
};

/* ---- http.c ---- */

enum MHD_Result send_response(struct exchange *x, int status, struct MHD_Response *response);
/* Gives the text away; NULL, there was no memory for it, is answered by an error. */
enum MHD_Result send_json(struct exchange *x, int status, char *text);
enum MHD_Result send_problem(struct exchange *x, const struct problem *p, const char *header,
                             const char *value);
enum MHD_Result send_error(struct exchange *x, int status, const char *type, const char *code,
                           const char *message);
/* What the engine is at: 200, or 503. */
enum MHD_Result send_state(struct exchange *x);

/* ---- page.c ---- */

enum MHD_Result send_page(struct exchange *x);

/* ---- body.c ---- */

/* Bytes of the body. Those beyond a limit are counted, so that the client may be told why it is refused.
 * false: they are far too many. */
bool body_add(struct exchange *x, const char *data, size_t bytes);
void body_free(struct exchange *x);

/* ---- complete.c: POST ---- */

enum MHD_Result complete(struct exchange *x);

/* ---- stream.c ---- */

/* A response of 200 that sends the answer as events. NULL if there is no memory. */
struct MHD_Response *stream_response(struct exchange *x);

/* Suspends the connection until there is news; called under the engine's lock. */
void exchange_wait(struct exchange *x);

#endif
