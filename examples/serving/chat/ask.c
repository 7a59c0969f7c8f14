/*
 * ask.c -- a POST's body as a request: each member with its type and its range.
 */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat_json.h"
#include "plain.h"

enum { USUAL_TOKENS = 16 }; /* of a completion */

struct prompt {
    int32_t *ids;
    int count;
};

static bool refuse(struct problem *p, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    p->status = 400;
    p->type = "invalid_request_error";
    p->param = param;
    p->code = NULL;
    plain_vline(p->message, sizeof p->message, format, args);
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

/* Tokens that are given as such: who gives them gives the first one, too. */
static bool prompt_tokens(struct prompt *t, const json_t *v, int vocabulary, struct problem *p)
{
    size_t i;
    json_t *id;
    if (!json_is_array(v) || !json_array_size(v))
        return refuse(p, "prompt", "prompt must be a string, or tokens: integers in 0..%d", vocabulary - 1);
    if (!(t->ids = malloc(sizeof *t->ids * json_array_size(v)))) return no_memory(p);
    json_array_foreach(v, i, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= vocabulary)
            return refuse(p, "prompt", "prompt[%zu] is no token: an integer in 0..%d", i, vocabulary - 1);
        t->ids[t->count++] = (int32_t)json_integer_value(id);
    }
    return true;
}

/* A list of prompts, each a text or tokens, in which there may be one. */
static bool only_prompt(json_t **v, struct problem *p)
{
    json_t *first = json_array_get(*v, 0);
    size_t n = json_array_size(*v);
    if (!json_is_string(first) && !json_is_array(first)) return true;
    *v = first;
    return n == 1 || refuse(p, "prompt", "there are %zu prompts; a request has one", n);
}

/* Why a text has no tokens, by the enum refused, and the line that says so. */
static bool refuse_tokens(struct problem *p, const char *param, int why, const struct fault *f)
{
    if (why == REFUSED_MEMORY) return no_memory(p);
    refuse(p, param, "%s", f->text);
    if (why == REFUSED_LATE)
        p->code = "prompt_timeout"; /* not a 503: to ask again would cost as much again */
    if (why == REFUSED_LONG) p->code = "context_length_exceeded";
    if (why == REFUSED_CANCELLED) {
        *p = (struct problem){.status = 503, .type = "unavailable_error", .code = "draining"};
        strcpy(p->message, "Shutting down");
    }
    return false;
}

/* Tokens of a prompt and its answer, at most. */
static int64_t room_of(const struct ask_limits *l)
{
    int64_t pages = (int64_t)l->pages * PAGE_TOKENS;
    return l->context < pages ? l->context : pages;
}

static bool completion_prompt(struct prompt *t, const json_t *body, const struct ask_limits *l,
                              struct problem *p)
{
    const struct served *s = l->served;
    const struct encode_limits limits = {l->deadline, room_of(l)};
    struct fault f;
    json_t *v = member(body, "prompt");
    if (!only_prompt(&v, p)) return false;
    if (!json_is_string(v)) return prompt_tokens(t, v, s->config.vocabulary, p);
    t->count = served_encode(s, json_string_value(v), json_string_length(v), false, &limits, &t->ids, &f);
    return t->count >= 0 || refuse_tokens(p, "prompt", t->count, &f);
}

/* The text of parts {"type": "text", "text": ...}, as one; NULL, and the problem, if they are not that. */
static json_t *joined_parts(const json_t *v, struct problem *p)
{
    struct text all = {0};
    size_t i;
    json_t *part;
    bool good = json_is_array(v) || refuse(p, "messages", "a message's content must be a string, or parts");
    json_array_foreach(v, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *text = json_object_get(part, "text");
        if (good && (!type || strcmp(type, "text") != 0 || !json_is_string(text)))
            good = refuse(p, "messages", "a part of a message's content must be a text");
        if (good) text_add(&all, json_string_value(text), json_string_length(text));
    }
    json_t *joined = good && !all.failed ? json_stringn(all.data ? all.data : "", all.size) : NULL;
    text_free(&all);
    if (good && !joined) no_memory(p);
    return joined;
}

static bool known_role(const char *role)
{
    static const char *const known[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t i = 0; role && i < sizeof known / sizeof *known; i++)
        if (!strcmp(role, known[i])) return true;
    return false;
}

/* A message as templates want it: its content is one text. It is the body's own, and changed there. */
static bool settle_message(json_t *m, size_t i, struct problem *p)
{
    if (!known_role(json_string_value(json_object_get(m, "role"))))
        return refuse(p, "messages", "messages[%zu].role must be system, developer, user, assistant or tool",
                      i);
    json_t *content = json_object_get(m, "content");
    bool calls = json_array_size(json_object_get(m, "tool_calls")) > 0; /* what others have called */
    if (json_is_string(content) || (calls && (!content || json_is_null(content)))) return true;
    json_t *joined = joined_parts(content, p);
    return joined && !json_object_set_new(m, "content", joined);
}

static bool chat_prompt(struct prompt *t, const json_t *body, const struct ask_limits *l, struct problem *p)
{
    json_t *all = member(body, "messages"), *more = member(body, "chat_template_kwargs"), *m;
    const struct encode_limits limits = {l->deadline, room_of(l)};
    struct fault f;
    size_t i;
    if (!json_is_array(all) || !json_array_size(all))
        return refuse(p, "messages", "messages must be an array of one message or more");
    if (more && !json_is_object(more))
        return refuse(p, "chat_template_kwargs", "chat_template_kwargs must be an object");
    json_array_foreach(all, i, m)
    {
        if (!settle_message(m, i, p)) return false;
    }
    t->count = served_chat(l->served, all, more, &limits, &t->ids, &f);
    return t->count >= 0 || refuse_tokens(p, "messages", t->count, &f);
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
/* What would change an answer, and can only be what changes nothing. */
static bool check_neutral(const json_t *body, struct problem *p)
{
    static const struct {
        const char *name, *neutral;
    } all[] = {{"n", "1"},
               {"best_of", "1"},
               {"presence_penalty", "0"},
               {"frequency_penalty", "0"},
               {"repetition_penalty", "1"},
               {"min_p", "0"},
               {"logit_bias", "{}"},
               {"echo", "false"},
               {"suffix", "\"\""},
               {"response_format", "{\"type\": \"text\"}"},
               {"tools", "[]"},
               {"functions", "[]"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const json_t *v = member(body, all[i].name);
        json_t *neutral = json_loads(all[i].neutral, JSON_DECODE_ANY, NULL);
        bool same = !v || json_equal(v, neutral) ||
                    (json_is_number(v) && json_is_number(neutral) &&
                     json_number_value(v) >= json_number_value(neutral) &&
                     json_number_value(v) <= json_number_value(neutral));
        json_decref(neutral);
        if (!same)
            return refuse(p, all[i].name, "%s must be %s: nothing else is supported", all[i].name,
                          all[i].neutral);
    }
    return true;
}

static bool check_fixed(const json_t *body, const struct served *s, struct problem *p)
{
    json_t *model = member(body, "model");
    if (model && !json_is_string(model)) return refuse(p, "model", "model must be a string");
    if (model && strcmp(json_string_value(model), s->name) != 0) {
        refuse(p, "model", "there is no such model; the one there is is \"%s\"", s->name);
        p->status = 404;
        p->code = "model_not_found";
        return false;
    }
    return check_neutral(body, p);
}

static bool get_sampling(const json_t *body, struct sampling *s, struct problem *p)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t seed = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec, top_k = 0;
    *s = (struct sampling){.temperature = 1, .top_p = 1};
    if (!get_number(body, "temperature", 0, 2, &s->temperature, p)) return false;
    if (!get_number(body, "top_p", 0, 1, &s->top_p, p)) return false;
    if (!get_integer(body, "top_k", -1, INT32_MAX, &top_k, p)) return false;
    if (!get_integer(body, "seed", INT64_MIN, INT64_MAX, &seed, p)) return false;
    s->top_k = top_k > 0 ? (int)top_k : 0;
    s->seed = (uint64_t)seed;
    return true;
}

/* Of a completion, logprobs: 0..most; of a chat, logprobs: true, and top_logprobs: 0..most. */
static bool get_logprobs(const struct ask *a, const json_t *body, int most, int64_t *likely,
                         struct problem *p)
{
    int64_t top = 0;
    bool wanted = false;
    *likely = -1;
    if (!a->chat) return get_integer(body, "logprobs", 0, most, likely, p);
    if (!get_flag(body, "logprobs", &wanted, p)) return false;
    if (!get_integer(body, "top_logprobs", 0, most, &top, p)) return false;
    if (top && !wanted) return refuse(p, "top_logprobs", "top_logprobs want logprobs to be true");
    if (wanted) *likely = top;
    return true;
}

/* Tokens of the answer: what was asked for, or as many as there is room for. */
static bool get_most(const struct ask *a, const json_t *body, const struct prompt *t,
                     const struct ask_limits *l, int64_t *most, struct problem *p)
{
    int64_t all = room_of(l), room = all - t->count;
    *most = a->chat ? room : room < USUAL_TOKENS ? room : USUAL_TOKENS;
    if (!get_integer(body, "max_tokens", 1, INT32_MAX, most, p)) return false;
    if (a->chat && !get_integer(body, "max_completion_tokens", 1, INT32_MAX, most, p)) return false;
    if (room >= 1 && *most <= room) return true;
    refuse(p, a->chat ? "messages" : "prompt", "%d tokens and an answer of %lld are more than %lld", t->count,
           (long long)(*most < 1 ? 1 : *most), (long long)all);
    p->code = "context_length_exceeded";
    return false;
}

static bool parse_object(struct ask *a, const json_t *body, struct prompt *t, const struct ask_limits *limits,
                         struct problem *p)
{
    const struct served *s = limits->served;
    struct sampling sampling;
    int64_t most = 0, likely;
    if (!check_fixed(body, s, p) || !(a->chat ? chat_prompt : completion_prompt)(t, body, limits, p))
        return false;
    if (!t->count) return refuse(p, a->chat ? "messages" : "prompt", "there are no tokens");
    if (!get_most(a, body, t, limits, &most, p) || !get_stream(a, body, p)) return false;
    if (!get_sampling(body, &sampling, p) || !get_logprobs(a, body, limits->likely, &likely, p)) return false;
    a->request = request_new(s, t->ids, t->count, (int)most, (int)likely);
    if (!a->request) return no_memory(p);
    if (!a->chat && !speech_after(a->request->speech, t->ids, t->count)) return no_memory(p);
    a->request->sampling = sampling;
    a->request->whole = !a->stream;
    return get_flag(body, "ignore_eos", &a->request->ignore_eos, p) && get_stops(a->request, body, p);
}

bool ask_parse(struct ask *a, bool chat, const char *body, size_t bytes, const struct ask_limits *limits,
               struct problem *p)
{
    json_error_t error;
    struct prompt t = {0};
    const struct fault none = {""};
    *a = (struct ask){.chat = chat};
    if (deadline_passed(limits->deadline) == REFUSED_CANCELLED)
        return refuse_tokens(p, NULL, REFUSED_CANCELLED, &none);
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
