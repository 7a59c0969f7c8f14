/*
 * http.c -- endpoints, refusals, statuses: libmicrohttpd's side of the server.
 *
 * It polls its sockets level-triggered (MHD_USE_POLL): by its edge-triggered epoll it would miss that a
 * client has gone whose bytes it has not read, and keep the connection.
 */
#include <stdlib.h>
#include <string.h>

#include "chat_exchange.h"
#include "plain.h"

/* ---- Answers ---- */

enum MHD_Result send_response(struct exchange *x, int status, struct MHD_Response *response)
{
    if (!response) return MHD_NO;
    access_headers(&x->server->opt->access, x->connection, response);
    peer_enter(x->server->gate, x->peer, PEER_ANSWER);
    enum MHD_Result result = MHD_queue_response(x->connection, (unsigned)status, response);
    MHD_destroy_response(response);
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

enum MHD_Result send_json(struct exchange *x, int status, char *text)
{
    static const char none[] = "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\","
                               "\"param\":null,\"code\":null}}";
    if (!text) status = 500, text = strdup(none);
    return send_response(x, status, text_response(text, "application/json"));
}

enum MHD_Result send_problem(struct exchange *x, const struct problem *p, const char *header,
                             const char *value)
{
    char *text = json_error(p);
    if (!text || !header) return send_json(x, p->status, text);
    struct MHD_Response *response = text_response(text, "application/json");
    if (response) MHD_add_response_header(response, header, value);
    return send_response(x, p->status, response);
}

enum MHD_Result send_error(struct exchange *x, int status, const char *type, const char *code,
                           const char *message)
{
    struct problem p = {.status = status, .type = type, .code = code};
    snprintf(p.message, sizeof p.message, "%s", message);
    return send_problem(x, &p, NULL, NULL);
}

/* ---- GET ---- */

enum MHD_Result send_state(struct exchange *x)
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

static void print_counts(const struct server *s, FILE *to)
{
    const struct gate_counts gate = gate_counts(s->gate);
    const struct metrics_http http = {.connections = gate.open,
                                      .accepted = gate.accepted,
                                      .late = gate.late,
                                      .evicted = gate.evicted,
                                      .body_bytes = s->body_bytes,
                                      .jobs = pool_waiting(s->pool)};
    metrics_print_http(&http, s->opt->prefix, engine_options(s->engine)->runner.served->name, to);
}

static enum MHD_Result metrics(struct exchange *x)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to) return MHD_NO;
    engine_metrics(x->engine, x->server->opt->prefix, to);
    print_counts(x->server, to);
    if (fclose(to)) {
        free(text);
        return MHD_NO;
    }
    return send_response(x, 200, text_response(text, "text/plain; version=0.0.4; charset=utf-8"));
}

/* ---- Requests of HTTP ---- */

static const struct route routes[] = {{"/", "GET", send_page, false},
                                      {"/health", "GET", send_state, false},
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

/* Pages that may ask are told what they may send. */
static enum MHD_Result preflight(struct exchange *x)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, "GET, POST");
    MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type");
    MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_MAX_AGE, "600");
    return send_response(x, 204, r);
}

static const struct route asked_before = {"", MHD_HTTP_METHOD_OPTIONS, preflight, false};

static const char *header_of(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

static bool look_at_route(struct exchange *x, const char *path, const char *method, struct problem *p)
{
    *p = (struct problem){.type = "invalid_request_error"};
    if (!x->route) {
        p->status = 404;
        snprintf(p->message, sizeof p->message, "there is no %.200s", path);
    } else if (!fits(x->route, method)) {
        p->status = 405;
        snprintf(p->message, sizeof p->message, "%s takes %s", x->route->path, x->route->method);
        x->header = MHD_HTTP_HEADER_ALLOW;
        x->value = x->route->method;
    } else if (x->length > MOST_BODY) {
        p->status = 413;
        snprintf(p->message, sizeof p->message, "the body has more than %d bytes", MOST_BODY);
    }
    return !p->status;
}

/* All that can be said by the header alone: may they ask, is there such a thing, is it too long? */
static void look_at_header(struct exchange *x, const char *path, const char *method)
{
    const struct access *access = &x->server->opt->access;
    const char *length = header_of(x, MHD_HTTP_HEADER_CONTENT_LENGTH);
    bool open = x->route && (x->route->answer == send_state || x->route->answer == send_page);
    bool before = access_preflight(x->connection, method);
    x->length = length ? strtoull(length, NULL, 10) : 0;
    if (before) x->route = &asked_before;
    x->refused = !access_allows(access, x->connection, open || before, &x->problem) ||
                 !look_at_route(x, path, method, &x->problem);
    if (x->problem.status == 401) x->header = MHD_HTTP_HEADER_WWW_AUTHENTICATE, x->value = "Bearer";
}

/* As HTTP has it from 1.1 on: who leaves Host out is not to be taken for somebody who may ask. */
static void look_at_host(struct exchange *x, const char *version)
{
    if (strcmp(version, MHD_HTTP_VERSION_1_0) <= 0 || header_of(x, MHD_HTTP_HEADER_HOST)) return;
    x->refused = true;
    x->problem = (struct problem){.status = 400, .type = "invalid_request_error"};
    snprintf(x->problem.message, sizeof x->problem.message, "a request of %.10s must have a Host", version);
}

static enum MHD_Result count_length(void *context, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    int *said = context;
    (void)kind, (void)value;
    *said += plain_alike(name, MHD_HTTP_HEADER_CONTENT_LENGTH, SIZE_MAX) ||
             plain_alike(name, MHD_HTTP_HEADER_TRANSFER_ENCODING, SIZE_MAX);
    return MHD_YES;
}

/* Where a body's end is said twice, a proxy may have taken the other one, and what follows for a request of
 * somebody else (RFC 9112, 6.3): nothing more is read of that connection. */
static void look_at_length(struct exchange *x)
{
    int said = 0;
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, count_length, &said);
    if (said < 2) return;
    x->refused = true;
    x->length = SIZE_MAX;
    x->header = MHD_HTTP_HEADER_CONNECTION, x->value = "close";
    x->problem = (struct problem){.status = 400, .type = "invalid_request_error"};
    snprintf(x->problem.message, sizeof x->problem.message,
             "of Content-Length and Transfer-Encoding a request has one, not %d", said);
}

/* The body of what is refused is read, if it is not too long: who still writes may not read the answer. One
 * who asks first whether to send it gets the answer instead. */
static bool wants_answer_now(const struct exchange *x)
{
    return x->length > MOST_SWALLOWED || (x->refused && header_of(x, MHD_HTTP_HEADER_EXPECT));
}

static enum MHD_Result answer(struct exchange *x)
{
    bool refused = x->refused && x->stage == STAGE_BODY;
    return refused ? send_problem(x, &x->problem, x->header, x->value) : x->route->answer(x);
}

static enum MHD_Result begin(struct server *s, struct MHD_Connection *c, const char *path, const char *method,
                             const char *version, void **state)
{
    struct exchange *x = *state = calloc(1, sizeof *x);
    struct peer *peer = gate_peer(c);
    if (!x || !peer) return free(x), *state = NULL, MHD_NO;
    *x = (struct exchange){
        .server = s, .engine = s->engine, .connection = c, .peer = peer, .route = route_of(s, path)};
    peer_enter(s->gate, peer, PEER_BODY);
    look_at_header(x, path, method);
    look_at_host(x, version);
    look_at_length(x);
    return wants_answer_now(x) ? answer(x) : MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *c, const char *path,
                                  const char *method, const char *version, const char *data, size_t *bytes,
                                  void **state)
{
    struct exchange *x = *state;
    if (!x) return begin(context, c, path, method, version, state);
    if (!*bytes) return answer(x);
    bool good = body_add(x, data, *bytes);
    *bytes = 0;
    return good ? MHD_YES : MHD_NO;
}

static void on_completed(void *context, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode how)
{
    struct exchange *x = *state;
    (void)context, (void)c, (void)how;
    if (!x) return;
    peer_watch(x->server->gate, x->peer, NULL);
    peer_enter(x->server->gate, x->peer, PEER_PAUSE);
    if (x->stage >= STAGE_RUNS) engine_release(x->engine, x->ask.request);
    else request_free(x->ask.request);
    body_free(x);
    free(x->text);
    free(x->out);
    free(x);
    *state = NULL;
}

/* ---- The server ---- */

/* The gate keeps deadlines, and the number of connections; libmicrohttpd's is never reached. */
static struct MHD_Daemon *start_daemon(struct server *s)
{
    const unsigned flags = MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME;
    const unsigned most = 2 * (unsigned)s->opt->gate.connections + 1024;
    return MHD_start_daemon(flags, 0, NULL, NULL, on_request, s, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
                            NULL, MHD_OPTION_NOTIFY_CONNECTION, gate_notify, s->gate,
                            MHD_OPTION_CONNECTION_LIMIT, most, MHD_OPTION_CONNECTION_TIMEOUT, 0u,
                            MHD_OPTION_END);
}

struct server *server_new(struct engine *e, const struct server_options *opt, struct fault *f)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s) return fault_set(f, "out of memory"), NULL;
    s->opt = opt;
    s->engine = e;
    s->began = time(NULL);
    s->gate = gate_open(&opt->gate, f);
    if (s->gate) fault_set(f, "libmicrohttpd or its threads do not start");
    s->pool = s->gate ? pool_new(opt->threads, engine_options(e)->queue) : NULL;
    s->daemon = s->pool ? start_daemon(s) : NULL;
    if (s->daemon && gate_start(s->gate, s->daemon)) return s;
    server_free(s, 1);
    return NULL;
}

int server_port(const struct server *s) { return gate_port(s->gate); }
void server_drain(struct server *s) { pool_cancel(s->pool); }
void server_shut(struct server *s) { gate_shut(s->gate); }

/* What is suspended must be resumed before libmicrohttpd is stopped: first the pool ends. Then those who were
 * told why they get no answer take that. */
bool server_free(struct server *s, double seconds)
{
    if (!s) return true;
    if (!pool_stop(s->pool, seconds)) return false;
    if (s->gate) gate_settle(s->gate, seconds);
    gate_stop(s->gate);
    if (s->daemon) MHD_stop_daemon(s->daemon);
    pool_free(s->pool);
    gate_free(s->gate);
    free(s);
    return true;
}
