/*
 * body.c -- bodies of requests as they come, in no more memory than all of them may take together.
 */
#include <stdlib.h>
#include <string.h>

#include "chat_exchange.h"

enum { SLOW_SECONDS = 2 }; /* a body that has come for so long leaves when there is no room for another one */

void body_free(struct exchange *x)
{
    free(x->body);
    x->server->body_bytes -= (int64_t)x->room;
    x->body = NULL;
    x->bytes = x->room = 0;
}

static void refuse(struct exchange *x, int status, const char *type, const char *code)
{
    x->refused = true;
    x->problem = (struct problem){.status = status, .type = type, .code = code};
    body_free(x);
}

static void refuse_long(struct exchange *x)
{
    refuse(x, 413, "invalid_request_error", NULL);
    snprintf(x->problem.message, sizeof x->problem.message, "the body has more than %d bytes", MOST_BODY);
}

/* The slowest one makes room, for who asks again. */
static void refuse_busy(struct exchange *x)
{
    refuse(x, 503, "unavailable_error", "bodies_full");
    snprintf(x->problem.message, sizeof x->problem.message,
             "the bodies of all requests have %lld bytes already", (long long)x->server->opt->body_bytes);
    x->header = MHD_HTTP_HEADER_RETRY_AFTER;
    x->value = "1";
    gate_evict(x->server->gate, PEER_BODY, SLOW_SECONDS);
}

static bool grow(struct exchange *x, size_t bytes)
{
    struct server *s = x->server;
    size_t room = 2 * bytes > x->length && x->length >= bytes ? x->length : 2 * bytes;
    int64_t more = (int64_t)(room - x->room);
    char *body = s->body_bytes + more <= s->opt->body_bytes ? realloc(x->body, room) : NULL;
    if (!body) return false;
    s->body_bytes += more;
    x->body = body;
    x->room = room;
    return true;
}

bool body_add(struct exchange *x, const char *data, size_t bytes)
{
    x->seen += bytes;
    if (x->refused) return x->seen <= MOST_SWALLOWED;
    if (x->seen > MOST_BODY) return refuse_long(x), true;
    if (x->seen > x->room && !grow(x, x->seen)) return refuse_busy(x), true;
    memcpy(x->body + x->bytes, data, bytes);
    x->bytes += bytes;
    return true;
}
