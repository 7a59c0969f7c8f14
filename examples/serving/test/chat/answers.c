/*
 * answers.c -- completions, whole and as events, read into one form; metrics.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat_test.h"

struct tally tally;
static pthread_mutex_t tally_lock = PTHREAD_MUTEX_INITIALIZER;

static void add_text(struct answer *a, const json_t *v)
{
    size_t bytes = json_string_length(v);
    if (!bytes) return;
    a->text = realloc(a->text, a->bytes + bytes + 1);
    memcpy(a->text + a->bytes, json_string_value(v), bytes + 1);
    a->bytes += bytes;
}

/* A choice of an answer, or of a chunk of one. */
static void add_choice(struct answer *a, const json_t *choice)
{
    const json_t *inner = json_object_get(choice, "message");
    if (!inner) inner = json_object_get(choice, "delta");
    if (inner) add_text(a, json_object_get(inner, "content"));
    else add_text(a, json_object_get(choice, "text"));
    const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
    if (reason) snprintf(a->reason, sizeof a->reason, "%s", reason);
    const json_t *ids = json_object_get(choice, "token_ids");
    for (size_t i = 0; i < json_array_size(ids) && a->count < MOST_IDS; i++)
        a->ids[a->count++] = (int32_t)json_integer_value(json_array_get(ids, i));
}

static void add_object(struct answer *a, const char *text)
{
    json_error_t error;
    json_t *v = json_loads(text, JSON_ALLOW_NUL, &error);
    CHECK(v, "no JSON: %s: %.200s", error.text, text);
    json_t *choices = json_object_get(v, "choices"), *usage = json_object_get(v, "usage");
    if (json_array_size(choices)) add_choice(a, json_array_get(choices, 0));
    if (usage) {
        a->prompt_tokens = (int)json_integer_value(json_object_get(usage, "prompt_tokens"));
        a->completion_tokens = (int)json_integer_value(json_object_get(usage, "completion_tokens"));
    }
    json_decref(v);
}

static void read_events(struct answer *a, char *body)
{
    char *rest = body, *event;
    while ((event = rest) && *event) {
        char *gap = strstr(event, "\n\n");
        CHECK(gap, "an event without an end: %.100s", event);
        if (!gap) return;
        *gap = 0;
        rest = gap + 2;
        if (*event == ':') continue;
        CHECK(!strncmp(event, "data: ", 6), "no event: %.100s", event);
        CHECK(!a->done, "an event after [DONE]: %.100s", event);
        if (!strcmp(event + 6, "[DONE]")) {
            a->done = true;
            continue;
        }
        a->pieces++;
        add_object(a, event + 6);
    }
}

static void count(const struct answer *a)
{
    pthread_mutex_lock(&tally_lock);
    tally.prompt_tokens += a->prompt_tokens;
    tally.completion_tokens += a->completion_tokens;
    tally.stop += !strcmp(a->reason, "stop");
    tally.length += !strcmp(a->reason, "length");
    pthread_mutex_unlock(&tally_lock);
}

int ask_begin(int port, const char *path, const char *body)
{
    int fd = http_connect(port);
    if (fd >= 0) http_send(fd, "POST", path, body);
    return fd;
}

struct answer *ask_end(int fd, bool stream)
{
    struct reply r = fd < 0 ? (struct reply){0} : http_receive(fd);
    struct answer *a = calloc(1, sizeof *a);
    a->status = r.status;
    a->text = strdup("");
    CHECK(r.whole, "the reply breaks off, status %d", r.status);
    if (r.status == 200 && r.whole) {
        bool events = strstr(r.head, "text/event-stream") != NULL;
        CHECK(events == stream, "events %d, asked for %d", events, stream);
        if (events) read_events(a, r.body);
        else add_object(a, r.body);
        CHECK(a->done == stream, "no [DONE] behind %.100s", a->text);
        CHECK(*a->reason, "no finish_reason behind %.100s", a->text);
        count(a);
    }
    reply_free(&r);
    return a;
}

struct answer *ask(int port, const char *path, const char *body, bool stream)
{
    return ask_end(ask_begin(port, path, body), stream);
}

void answer_free(struct answer *a)
{
    if (a) free(a->text);
    free(a);
}

bool answers_equal(const struct answer *a, const struct answer *b)
{
    return a->status == b->status && a->count == b->count && a->bytes == b->bytes &&
           !memcmp(a->text, b->text, a->bytes) &&
           !memcmp(a->ids, b->ids, sizeof *a->ids * (size_t)a->count) && !strcmp(a->reason, b->reason);
}

/* ---- Metrics ---- */

double metric(int port, const char *name)
{
    struct reply r = http(port, "GET", "/metrics", NULL);
    size_t n = strlen(name);
    double value = -1;
    for (char *line = r.body; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (!strncmp(line, name, n) && (line[n] == '{' || line[n] == ' ' || name[n - 1] == '}'))
            value = strtod(strchr(line, ' '), NULL);
    reply_free(&r);
    return value;
}

bool metric_becomes(int port, const char *name, double value)
{
    for (int i = 0; i < 6000; i++, usleep(10000))
        if (metric(port, name) == value) return true;
    return false;
}
