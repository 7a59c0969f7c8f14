/*
 * ask.c -- a POST's body as a request: each member with its type and its range, and the chat's template.
 */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat_json.h"
#include "chat_runner.h"

enum { USUAL_TOKENS = 16 }; /* of a completion */

/* Tokens of a prompt as they come. */
struct prompt {
    int32_t *ids;
    size_t count, room;
    bool failed; /* no memory */
};

static bool refuse(struct problem *p, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    p->status = 400;
    p->type = "invalid_request_error";
    p->param = param;
    p->code = NULL;
    vsnprintf(p->message, sizeof p->message, format, args);
    va_end(args);
    return false;
}

static bool no_memory(struct problem *p)
{
    refuse(p, NULL, "out of memory");
    p->status = 500;
    p->type = "server_error";
    return false;
}

/* NULL also for null. */
static json_t *member(const json_t *body, const char *name)
{
    json_t *v = json_object_get(body, name);
    return v && !json_is_null(v) ? v : NULL;
}

/* ---- Members of one type ---- */

static bool get_flag(const json_t *body, const char *name, bool *to, struct problem *p)
{
    json_t *v = member(body, name);
    if (v && !json_is_boolean(v)) return refuse(p, name, "%s must be true or false", name);
    if (v) *to = json_is_true(v);
    return true;
}

static bool get_integer(const json_t *body, const char *name, int64_t least, int64_t most, int64_t *to,
                        struct problem *p)
{
    json_t *v = member(body, name);
    if (!v) return true;
    if (!json_is_integer(v)) return refuse(p, name, "%s must be an integer", name);
    *to = json_integer_value(v);
    if (*to >= least && *to <= most) return true;
    return refuse(p, name, "%s is %lld, not in %lld..%lld", name, (long long)*to, (long long)least,
                  (long long)most);
}

static bool get_number(const json_t *body, const char *name, double least, double most, double *to,
                       struct problem *p)
{
    json_t *v = member(body, name);
    if (!v) return true;
    if (!json_is_number(v)) return refuse(p, name, "%s must be a number", name);
    *to = json_number_value(v);
    return (*to >= least && *to <= most) ||
           refuse(p, name, "%s is %g, not in %g..%g", name, *to, least, most);
}

/* ---- Prompts ---- */

static void add_token(struct prompt *t, int32_t id)
{
    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 256;
        int32_t *ids = realloc(t->ids, sizeof *ids * room);
        if (!ids) {
            t->failed = true;
            return;
        }
        t->ids = ids;
        t->room = room;
    }
    t->ids[t->count++] = id;
}

static void add_text(struct prompt *t, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) add_token(t, (unsigned char)text[i]);
}

static void add_string(struct prompt *t, const json_t *s)
{
    add_text(t, json_string_value(s), json_string_length(s));
}

static bool completion_prompt(struct prompt *t, const json_t *body, struct problem *p)
{
    json_t *v = member(body, "prompt");
    size_t i;
    json_t *id;
    if (json_is_array(v) && json_array_size(v) == 1 && json_is_string(json_array_get(v, 0)))
        v = json_array_get(v, 0);
    add_token(t, MODEL_BOS);
    if (json_is_string(v)) return add_string(t, v), true;
    if (!json_is_array(v) || !json_array_size(v))
        return refuse(p, "prompt", "prompt must be a string, or tokens: integers in 0..%d",
                      MODEL_VOCABULARY - 1);
    t->count = 0; /* who gives tokens gives the first one, too */
    json_array_foreach(v, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= MODEL_VOCABULARY)
            return refuse(p, "prompt", "prompt[%zu] is no token: an integer in 0..%d", i,
                          MODEL_VOCABULARY - 1);
        add_token(t, (int32_t)json_integer_value(id));
    }
    return true;
}

/* A text, or parts {"type": "text", "text": ...}. */
static bool add_content(struct prompt *t, const json_t *v, struct problem *p)
{
    size_t i;
    json_t *part;
    if (json_is_string(v)) return add_string(t, v), true;
    if (!json_is_array(v)) return refuse(p, "messages", "a message's content must be a string, or parts");
    json_array_foreach(v, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *text = json_object_get(part, "text");
        if (!type || strcmp(type, "text") != 0 || !json_is_string(text))
            return refuse(p, "messages", "a part of a message's content must be a text");
        add_string(t, text);
    }
    return true;
}

static bool known_role(const char *role)
{
    static const char *const known[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t i = 0; role && i < sizeof known / sizeof *known; i++)
        if (!strcmp(role, known[i])) return true;
    return false;
}

/* The template: a line with the role before each message, and one with the answer's role behind all. */
static bool chat_prompt(struct prompt *t, const json_t *body, struct problem *p)
{
    static const char answer[] = "assistant:\n";
    json_t *all = member(body, "messages"), *m;
    size_t i;
    if (!json_is_array(all) || !json_array_size(all))
        return refuse(p, "messages", "messages must be an array of one message or more");
    add_token(t, MODEL_BOS);
    json_array_foreach(all, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!known_role(role))
            return refuse(p, "messages",
                          "messages[%zu].role must be system, developer, user, assistant or tool", i);
        add_text(t, role, strlen(role));
        add_text(t, ":\n", 2);
        if (!add_content(t, json_object_get(m, "content"), p)) return false;
        add_text(t, "\n", 1);
    }
    add_text(t, answer, sizeof answer - 1);
    return true;
}

/* ---- The rest ---- */

static bool add_stop(struct request *r, const json_t *v, struct problem *p)
{
    size_t bytes = json_string_length(v);
    if (!json_is_string(v) || !bytes || bytes > REQUEST_STOP_BYTES || strlen(json_string_value(v)) < bytes)
        return refuse(p, "stop", "stop must be strings of 1 to %d bytes, without NUL", REQUEST_STOP_BYTES);
    if (r->stops == REQUEST_STOPS) return refuse(p, "stop", "stop has more than %d strings", REQUEST_STOPS);
    r->stop[r->stops] = strdup(json_string_value(v));
    if (!r->stop[r->stops]) return no_memory(p);
    r->stops++;
    return true;
}

static bool get_stops(struct request *r, const json_t *body, struct problem *p)
{
    json_t *v = member(body, "stop"), *s;
    size_t i;
    if (!v) return true;
    if (!json_is_array(v)) return add_stop(r, v, p);
    json_array_foreach(v, i, s)
    {
        if (!add_stop(r, s, p)) return false;
    }
    return true;
}

static bool get_stream(struct ask *a, const json_t *body, struct problem *p)
{
    json_t *options = member(body, "stream_options");
    if (!get_flag(body, "stream", &a->stream, p) || !get_flag(body, "return_token_ids", &a->ids, p))
        return false;
    if (!options) return true;
    if (!a->stream) return refuse(p, "stream_options", "stream_options want stream to be true");
    if (!json_is_object(options)) return refuse(p, "stream_options", "stream_options must be an object");
    return get_flag(options, "include_usage", &a->usage, p);
}

/* Things that this server knows one value of. */
static bool check_fixed(const json_t *body, struct problem *p)
{
    json_t *model = member(body, "model");
    int64_t n = 1;
    double top_p = 1;
    if (model && !json_is_string(model)) return refuse(p, "model", "model must be a string");
    if (model && strcmp(json_string_value(model), "tiny") != 0) {
        refuse(p, "model", "there is no such model; the one there is is \"tiny\"");
        p->status = 404;
        p->code = "model_not_found";
        return false;
    }
    return get_integer(body, "n", 1, 1, &n, p) && get_number(body, "top_p", 1, 1, &top_p, p);
}

/* Tokens of the answer: what was asked for, or as many as there is room for. */
static bool get_most(const struct ask *a, const json_t *body, const struct prompt *t,
                     const struct ask_limits *l, int64_t *most, struct problem *p)
{
    int64_t all = l->context < (int64_t)l->pages * PAGE_TOKENS ? l->context : (int64_t)l->pages * PAGE_TOKENS;
    int64_t room = all - (int64_t)t->count;
    *most = a->chat ? room : room < USUAL_TOKENS ? room : USUAL_TOKENS;
    if (!get_integer(body, "max_tokens", 1, INT32_MAX, most, p)) return false;
    if (a->chat && !get_integer(body, "max_completion_tokens", 1, INT32_MAX, most, p)) return false;
    if (room >= 1 && *most <= room) return true;
    refuse(p, a->chat ? "messages" : "prompt", "%zu tokens and an answer of %lld are more than %lld",
           t->count, (long long)(*most < 1 ? 1 : *most), (long long)all);
    p->code = "context_length_exceeded";
    return false;
}

static bool parse_object(struct ask *a, const json_t *body, struct prompt *t, const struct ask_limits *limits,
                         struct problem *p)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t most = 0, seed = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    double temperature = 1;
    if (!(a->chat ? chat_prompt : completion_prompt)(t, body, p) || !check_fixed(body, p)) return false;
    if (t->failed) return no_memory(p);
    if (!get_most(a, body, t, limits, &most, p) || !get_stream(a, body, p)) return false;
    if (!get_number(body, "temperature", 0, 2, &temperature, p)) return false;
    if (!get_integer(body, "seed", INT64_MIN, INT64_MAX, &seed, p)) return false;
    a->request = request_new(t->ids, (int)t->count, (int)most);
    if (!a->request) return no_memory(p);
    a->request->temperature = temperature;
    a->request->random = (uint64_t)seed;
    a->request->whole = !a->stream;
    return get_flag(body, "ignore_eos", &a->request->ignore_eos, p) && get_stops(a->request, body, p);
}

bool ask_parse(struct ask *a, bool chat, const char *body, size_t bytes, const struct ask_limits *limits,
               struct problem *p)
{
    json_error_t error;
    struct prompt t = {0};
    *a = (struct ask){.chat = chat};
    json_t *v = json_loadb(body, bytes, JSON_ALLOW_NUL, &error);
    if (!v) return refuse(p, NULL, "the body is not JSON: line %d: %s", error.line, error.text);
    bool good = json_is_object(v) ? parse_object(a, v, &t, limits, p)
                                  : refuse(p, NULL, "the body must be a JSON object");
    json_decref(v);
    free(t.ids);
    if (good) return true;
    request_free(a->request);
    a->request = NULL;
    return false;
}
