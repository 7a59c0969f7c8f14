/*
 * http.c -- endpoints, bodies, statuses: libmicrohttpd's side of the server.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "chat_exchange.h"
#include "chat_http.h"

enum {
    MOST_BODY = 1 << 20,      /* bytes; more are refused ... */
    MOST_SWALLOWED = 1 << 24, /* ... in words, if they are no more than this */
    MOST_CONNECTIONS = 1024,
    IDLE_SECONDS = 60
};

typedef enum MHD_Result (*endpoint)(struct exchange *x);

struct route {
    const char *path, *method;
    endpoint answer;
    bool chat;
};

struct server {
    struct engine *engine;
    struct MHD_Daemon *daemon;
    const char *prefix;
    time_t began;
    int64_t requests;
};

/* ---- Answers ---- */

static enum MHD_Result send_response(struct exchange *x, int status, struct MHD_Response *response)
{
    enum MHD_Result result =
        response ? MHD_queue_response(x->connection, (unsigned)status, response) : MHD_NO;
    if (response) MHD_destroy_response(response);
    return result;
}

/* Gives the text away. */
static struct MHD_Response *text_response(char *text, const char *type)
{
    if (!text) return NULL;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (response) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    else free(text);
    return response;
}

static enum MHD_Result send_json(struct exchange *x, int status, char *text)
{
    return send_response(x, status, text_response(text, "application/json"));
}

static enum MHD_Result send_problem(struct exchange *x, const struct problem *p, const char *header,
                                    const char *value)
{
    struct MHD_Response *response = text_response(json_error(p), "application/json");
    if (response && header) MHD_add_response_header(response, header, value);
    return send_response(x, p->status, response);
}

static enum MHD_Result send_error(struct exchange *x, int status, const char *type, const char *code,
                                  const char *message)
{
    struct problem p = {.status = status, .type = type, .code = code};
    snprintf(p.message, sizeof p.message, "%s", message);
    return send_problem(x, &p, NULL, NULL);
}

/* ---- GET ---- */

static enum MHD_Result health(struct exchange *x)
{
    switch (engine_state(x->engine)) {
    case ENGINE_READY: return send_json(x, 200, strdup("{\"status\":\"ok\"}"));
    case ENGINE_LOADING: return send_error(x, 503, "unavailable_error", NULL, "Loading model");
    case ENGINE_DRAINING: return send_error(x, 503, "unavailable_error", "draining", "Shutting down");
    case ENGINE_FAILED: break;
    }
    return send_error(x, 503, "unavailable_error", "failed", "The engine failed");
}

static enum MHD_Result models(struct exchange *x)
{
    return send_json(x, 200, json_models(engine_options(x->engine)->runner.served, x->server->began));
}

static enum MHD_Result model(struct exchange *x)
{
    return send_json(x, 200, json_model(engine_options(x->engine)->runner.served, x->server->began));
}

static enum MHD_Result metrics(struct exchange *x)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return MHD_NO;
    engine_metrics(x->engine, x->server->prefix, to);
    if (fclose(to)) {
        free(text);
        return MHD_NO;
    }
    return send_response(x, 200, text_response(text, "text/plain; version=0.0.4; charset=utf-8"));
}

/* ---- POST ---- */

static void wake(void *context) { MHD_resume_connection(((struct exchange *)context)->connection); }

/* A suspended connection is not watched by libmicrohttpd: has the client closed it? */
static bool gone(void *context)
{
    struct exchange *x = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    char byte;
    if (!info) return false;
    ssize_t n = recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void exchange_wait(struct exchange *x)
{
    x->ask.request->waits = true;
    MHD_suspend_connection(x->connection);
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
    case FINISH_LENGTH: return send_json(x, 200, json_answer(&x->heading, r, x->ask.ids));
    case FINISH_ABORT: return send_error(x, 503, "unavailable_error", "draining", "Shutting down");
    case FINISH_ERROR: return send_error(x, 500, "server_error", NULL, "The engine failed");
    default: return MHD_YES; /* this is called again when the connection is resumed */
    }
}

static enum MHD_Result refuse(struct exchange *x, enum submitted result)
{
    struct problem busy = {.status = 429, .type = "rate_limit_error", .code = "queue_full"};
    snprintf(busy.message, sizeof busy.message, "%d requests wait already", engine_options(x->engine)->queue);
    return result == SUBMIT_FULL ? send_problem(x, &busy, MHD_HTTP_HEADER_RETRY_AFTER, "1") : health(x);
}

static enum MHD_Result complete(struct exchange *x)
{
    const struct runner_options *o = &engine_options(x->engine)->runner;
    int likely = o->top < REQUEST_LIKELY ? o->top : REQUEST_LIKELY;
    struct ask_limits limits = {o->served, o->context, o->pages, likely};
    struct problem p;
    if (x->ask.request) return answer_whole(x);
    if (!ask_parse(&x->ask, x->route->chat, x->body ? x->body : "", x->bytes, &limits, &p))
        return send_problem(x, &p, NULL, NULL);
    struct request *r = x->ask.request;
    x->heading = (struct heading){++x->server->requests, time(NULL), x->route->chat, o->served};
    r->wake = wake;
    r->gone = gone;
    r->context = x;
    enum submitted result = engine_submit(x->engine, r);
    if (result != SUBMIT_OK) {
        request_free(r);
        x->ask.request = NULL;
        return refuse(x, result);
    }
    return x->ask.stream ? send_response(x, 200, stream_response(x)) : answer_whole(x);
}

/* ---- Requests of HTTP ---- */

static const struct route routes[] = {{"/health", "GET", health, false},
                                      {"/metrics", "GET", metrics, false},
                                      {"/v1/models", "GET", models, false},
                                      {"/v1/completions", "POST", complete, false},
                                      {"/v1/chat/completions", "POST", complete, true}};

/* Of the model there is: the path ends with its name. */
static const struct route by_name = {"/v1/models/", "GET", model, false};

static const struct route *route_of(const struct server *s, const char *path)
{
    const char *name = engine_options(s->engine)->runner.served->name;
    size_t n = strlen(by_name.path);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strcmp(routes[i].path, path)) return &routes[i];
    return !strncmp(path, by_name.path, n) && !strcmp(path + n, name) ? &by_name : NULL;
}

static bool fits(const struct route *r, const char *method)
{
    return !strcmp(method, r->method) || (!strcmp(method, "HEAD") && !strcmp(r->method, "GET"));
}

static enum MHD_Result dispatch(struct exchange *x, const char *path, const char *method)
{
    struct problem p = {.type = "invalid_request_error"};
    if (x->seen > MOST_BODY) {
        p.status = 413;
        snprintf(p.message, sizeof p.message, "the body has more than %d bytes", MOST_BODY);
        return send_problem(x, &p, NULL, NULL);
    }
    if (!x->route) {
        p.status = 404;
        snprintf(p.message, sizeof p.message, "there is no %.200s", path);
        return send_problem(x, &p, NULL, NULL);
    }
    if (fits(x->route, method)) return x->route->answer(x);
    p.status = 405;
    snprintf(p.message, sizeof p.message, "%s takes %s", path, x->route->method);
    return send_problem(x, &p, MHD_HTTP_HEADER_ALLOW, x->route->method);
}

/* Bytes of a body. Those beyond the limit are counted, so that the client may be told. */
static bool keep(struct exchange *x, const char *data, size_t bytes)
{
    x->seen += bytes;
    if (x->seen > MOST_SWALLOWED) return false;
    if (x->seen > MOST_BODY) return true;
    if (x->bytes + bytes > x->room) {
        size_t room = 2 * (x->bytes + bytes);
        char *body = realloc(x->body, room);
        if (!body) return false;
        x->body = body;
        x->room = room;
    }
    memcpy(x->body + x->bytes, data, bytes);
    x->bytes += bytes;
    return true;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *data, size_t *bytes,
                                  void **state)
{
    struct server *s = context;
    struct exchange *x = *state;
    (void)version;
    if (!x) {
        if (!(x = *state = calloc(1, sizeof *x))) return MHD_NO;
        *x = (struct exchange){.server = s, .engine = s->engine, .connection = c, .route = route_of(s, path)};
        const char *length = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
        if (!length || strtoull(length, NULL, 10) <= MOST_SWALLOWED) return MHD_YES;
        x->seen = MOST_SWALLOWED;
        return dispatch(x, path, method);
    }
    if (!*bytes) return dispatch(x, path, method);
    bool good = keep(x, data, *bytes);
    *bytes = 0;
    return good ? MHD_YES : MHD_NO;
}

static void on_completed(void *context, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode how)
{
    struct exchange *x = *state;
    (void)context, (void)c, (void)how;
    if (!x) return;
    if (x->ask.request) engine_release(x->engine, x->ask.request);
    free(x->body);
    free(x->out);
    free(x);
    *state = NULL;
}

/* ---- The server ---- */

struct server *server_new(struct engine *e, int port, const char *prefix)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct server *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *s = (struct server){.engine = e, .prefix = prefix, .began = time(NULL)};
    unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME;
    s->daemon = MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, on_request, s, MHD_OPTION_SOCK_ADDR, &at,
                                 MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_CONNECTION_LIMIT,
                                 (unsigned)MOST_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                                 (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    if (s->daemon) return s;
    free(s);
    return NULL;
}

int server_port(const struct server *s)
{
    return MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
}

void server_free(struct server *s)
{
    if (!s) return;
    MHD_stop_daemon(s->daemon);
    free(s);
}
