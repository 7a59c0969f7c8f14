/*
 * reply.c -- bytes of a connection to lines, lines to events, events to an answer. Of JSON it reads the
 * members that it wants by their names, in the form in which servers write them: texts are compared, never
 * decoded.
 */
#include <stdlib.h>
#include <string.h>

#include "load.h"

void asked_fail(struct asked *a, const char *format, ...)
{
    va_list args;
    if (a->failed) return; /* the first reason is the one */
    a->failed = true;
    va_start(args, format);
    plain_vline(a->why, sizeof a->why, format, args);
    va_end(args);
}

void asked_reset(struct asked *a)
{
    free(a->text);
    *a = (struct asked){.due = a->due, .prompt = a->prompt, .most = a->most, .seed = a->seed};
}

/* ---- An event ---- */

/* Behind "name": and blanks; NULL if it is not there. */
static const char *member(const char *json, const char *name)
{
    char quoted[40];
    int n = snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(json, quoted);
    if (!at) return NULL;
    at += n;
    return at + strspn(at, " ");
}

/* Bytes up to the quote that ends the string. */
static size_t string_bytes(const char *at)
{
    size_t n = 0;
    while (at[n] && at[n] != '"') n += at[n] == '\\' && at[n + 1] ? 2 : 1;
    return n;
}

static bool add_text(struct asked *a, const char *json, const char *name)
{
    const char *at = member(json, name);
    if (!at || *at != '"') return false;
    size_t n = string_bytes(++at);
    char *text = realloc(a->text, a->bytes + n + 1);
    if (!text) return asked_fail(a, "out of memory"), false;
    memcpy(text + a->bytes, at, n);
    a->text = text;
    a->bytes += n;
    a->text[a->bytes] = 0;
    return n > 0;
}

static void add_gap(struct gaps *g, double at, double seconds)
{
    if (g->count == g->room) {
        size_t room = 2 * g->room + 1024;
        struct gap *of = realloc(g->of, sizeof *of * room);
        if (!of) return;
        g->of = of;
        g->room = room;
    }
    g->of[g->count++] = (struct gap){at, seconds};
}

static void take_event(struct asked *a, const char *json, double now, struct gaps *gaps)
{
    if (a->done) return asked_fail(a, "an event behind [DONE]: %.60s", json);
    if (!strcmp(json, "[DONE]")) {
        a->done = true;
        return;
    }
    const char *ids = member(json, "token_ids"), *count = member(json, "completion_tokens");
    const char *reason = member(json, "finish_reason");
    if (member(json, "error")) asked_fail(a, "%.100s", json);
    bool piece = add_text(a, json, "text") || add_text(a, json, "content");
    if (ids && *ids == '[' && ids[1] != ']') piece = true;
    if (count) a->tokens = atoi(count);
    if (reason && *reason == '"')
        snprintf(a->reason, sizeof a->reason, "%.*s", (int)string_bytes(reason + 1), reason + 1);
    if (!piece) return;
    if (a->pieces++) add_gap(gaps, now, now - a->last);
    else a->first = now;
    a->last = now;
}

/* ---- Lines ---- */

static bool names(const char *line, const char *word)
{
    while (*line && !plain_begins(line, word)) line++;
    return *line;
}

static void take_head(struct reply *r, const char *line)
{
    int status;
    if (sscanf(line, "HTTP/1.%*d %d", &status) == 1) r->of->status = status;
    if (plain_begins(line, "transfer-encoding:")) r->chunked = names(line + 18, "chunked");
    if (!*line) r->state = r->chunked ? REPLY_SIZE : REPLY_PLAIN;
}

static void take_frame(struct reply *r, const char *line)
{
    if (r->state == REPLY_HEAD) {
        take_head(r, line);
    } else if (r->state == REPLY_GAP) {
        r->state = REPLY_SIZE;
    } else {
        r->left = strtoul(line, NULL, 16);
        r->state = r->left ? REPLY_CHUNK : REPLY_END;
    }
}

static void take_body(struct reply *r, const char *line, double now, struct gaps *gaps)
{
    if (r->of->status != 200) asked_fail(r->of, "status %d: %.90s", r->of->status, line);
    else if (!strncmp(line, "data: ", 6)) take_event(r->of, line + 6, now, gaps);
    else if (*line && *line != ':') asked_fail(r->of, "no event: %.80s", line);
}

/* true: the line is whole, without its end. */
static bool line_add(struct reply *r, struct reply_line *l, char c)
{
    if (c != '\n') {
        if (l->bytes + 1 < sizeof l->text) l->text[l->bytes++] = c;
        else asked_fail(r->of, "a line of more than %zu bytes", sizeof l->text - 1);
        return false;
    }
    if (l->bytes && l->text[l->bytes - 1] == '\r') l->bytes--;
    l->text[l->bytes] = 0;
    l->bytes = 0;
    return true;
}

void reply_begin(struct reply *r, struct asked *of)
{
    r->state = REPLY_HEAD;
    r->left = r->frame.bytes = r->body.bytes = 0;
    r->chunked = false;
    r->of = of;
}

void reply_feed(struct reply *r, const char *data, size_t bytes, double now, struct gaps *gaps)
{
    for (; bytes; data++, bytes--) {
        if (r->state == REPLY_CHUNK || r->state == REPLY_PLAIN) {
            if (line_add(r, &r->body, *data)) take_body(r, r->body.text, now, gaps);
            if (r->state == REPLY_CHUNK && !--r->left) r->state = REPLY_GAP;
        } else if (r->state != REPLY_END && line_add(r, &r->frame, *data)) {
            take_frame(r, r->frame.text);
        }
    }
}

void reply_end(struct reply *r, double now, struct gaps *gaps)
{
    struct asked *a = r->of;
    if (r->body.bytes && line_add(r, &r->body, '\n')) take_body(r, r->body.text, now, gaps);
    a->ended = now;
    if (!a->status) asked_fail(a, "no answer");
    else if (a->status != 200) asked_fail(a, "status %d", a->status);
    if (r->chunked && r->state != REPLY_END) asked_fail(a, "the reply breaks off");
    if (!a->done) asked_fail(a, "no [DONE]");
    if (!*a->reason) asked_fail(a, "no finish_reason");
    if (!a->tokens) a->tokens = a->pieces;
}
