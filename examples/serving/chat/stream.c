/*
 * stream.c -- an answer as server-sent events, as it is made.
 */
#include <stdlib.h>
#include <string.h>

#include "chat_exchange.h"

enum { BLOCK = 4096 }; /* bytes that libmicrohttpd asks for at a time */

/* What there is to say, taken under the lock. */
struct news {
    char *text;
    int32_t *ids;
    struct likely *answered, *alternative; /* NULL: probabilities are not told */
    size_t bytes;
    int id_count;
    bool ping, failed;
    enum finish finish;
};

/* A copy; NULL if it is not wanted, or if there is no memory, which is a failure. */
static void *copied(struct news *n, bool wanted, const void *from, size_t bytes)
{
    void *p = wanted ? malloc(bytes + 1) : NULL;
    if (p && bytes) memcpy(p, from, bytes);
    n->failed |= wanted && !p;
    return p;
}

static void copy_news(struct exchange *x, struct news *n)
{
    const struct request *r = x->ask.request;
    size_t count = (size_t)n->id_count, at = (size_t)x->ids_sent,
           each = r->likely < 0 ? 0 : (size_t)r->likely;
    bool told = r->likely >= 0;
    n->text = copied(n, true, r->text.data + (r->text.data ? x->text_sent : 0), n->bytes);
    n->ids = copied(n, true, r->tokens + r->prompt + at, sizeof *n->ids * count);
    n->answered = copied(n, told, r->answered + at, sizeof *n->answered * count);
    n->alternative = copied(n, told, r->alternative + at * each, sizeof *n->alternative * count * each);
    x->text_sent += n->bytes;
    x->ids_sent += n->id_count;
}

static void free_news(struct news *n)
{
    free(n->text);
    free(n->ids);
    free(n->answered);
    free(n->alternative);
}

/* false: there is none, and the connection is suspended. */
static bool take_news(struct exchange *x, struct news *n)
{
    struct request *r = x->ask.request;
    engine_lock(x->engine);
    *n = (struct news){.bytes = r->settled - x->text_sent, .ping = r->ping, .finish = r->finish};
    if (x->ask.ids || r->likely >= 0) n->id_count = r->told - r->prompt - x->ids_sent;
    bool any = n->bytes || n->id_count || n->ping || n->finish || !x->opened;
    if (any) copy_news(x, n), r->ping = false;
    else exchange_wait(x);
    engine_unlock(x->engine);
    return any;
}

/* ---- Events ---- */

/* Gives the text away. false: there was no memory for it. */
static bool put_event(FILE *to, char *text)
{
    if (text) fprintf(to, "data: %s\n\n", text);
    free(text);
    return text != NULL;
}

static bool put_end(struct exchange *x, FILE *to, enum finish finish)
{
    bool good = true;
    if (finish == FINISH_STOP || finish == FINISH_LENGTH) {
        struct piece last = {.finish = finish};
        good = put_event(to, json_piece(&x->heading, &last));
        if (x->ask.usage) good = put_event(to, json_usage(&x->heading, x->ask.request)) && good;
    } else {
        struct problem p = {.type = "server_error", .message = "the engine failed"};
        if (finish == FINISH_ABORT) strcpy(p.message, "the server is shutting down");
        good = put_event(to, json_error(&p));
    }
    fprintf(to, "data: [DONE]\n\n");
    x->done = true;
    return good;
}

static bool put_news(struct exchange *x, FILE *to, const struct news *n)
{
    bool good = true;
    if (!x->opened && x->ask.chat) {
        struct piece role = {.first = true};
        good = put_event(to, json_piece(&x->heading, &role));
    }
    x->opened = true;
    if (n->bytes || n->id_count) {
        struct piece p = {.text = n->text,
                          .bytes = n->bytes,
                          .ids = x->ask.ids ? n->ids : NULL,
                          .id_count = n->id_count,
                          .answered = n->answered,
                          .alternative = n->alternative,
                          .likely = x->ask.request->likely};
        good = put_event(to, json_piece(&x->heading, &p)) && good;
    }
    if (n->ping) fprintf(to, ": ping\n\n");
    if (n->finish) good = put_end(x, to, n->finish) && good;
    return good;
}

/* false: there is no memory, and the stream breaks off. */
static bool make_events(struct exchange *x, const struct news *n)
{
    free(x->out);
    x->out = NULL;
    x->out_bytes = x->out_at = 0;
    FILE *to = n->failed ? NULL : open_memstream(&x->out, &x->out_bytes);
    if (!to) return false;
    bool good = put_news(x, to, n);
    return !fclose(to) && good;
}

/* libmicrohttpd asks for bytes. 0: none yet, and the connection is suspended. */
static ssize_t read_stream(void *context, uint64_t at, char *to, size_t room)
{
    struct exchange *x = context;
    (void)at;
    peer_enter(x->server->gate, x->peer, PEER_ANSWER); /* what it was sent before, the client has taken */
    while (x->out_at == x->out_bytes) {
        struct news n;
        if (x->done) return MHD_CONTENT_READER_END_OF_STREAM;
        if (!take_news(x, &n)) return 0;
        if (n.finish == FINISH_ABORT && peer_gone(x->peer)) n.failed = true; /* nobody is to be told */
        bool good = make_events(x, &n);
        free_news(&n);
        if (!good) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t bytes = x->out_bytes - x->out_at < room ? x->out_bytes - x->out_at : room;
    memcpy(to, x->out + x->out_at, bytes);
    x->out_at += bytes;
    return (ssize_t)bytes;
}

struct MHD_Response *stream_response(struct exchange *x)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, x, NULL);
    if (!response) return NULL;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream; charset=utf-8");
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    return response;
}
