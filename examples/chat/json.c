/*
 * json.c -- answers, chunks of answers, and errors.
 */
#include <jansson.h>
#include <stdio.h>

#include "chat_json.h"
#include "chat_metrics.h"

/* The text of a value, which is given away. */
static char *text_of(json_t *v)
{
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    return text;
}

char *json_error(const struct problem *p)
{
    json_t *code = p->code ? json_string(p->code) : p->status == 503 ? json_integer(503) : json_null();
    return text_of(json_pack("{s:{s:s, s:s, s:s?, s:o}}", "error", "message", p->message, "type", p->type,
                             "param", p->param, "code", code));
}

char *json_models(time_t created)
{
    return text_of(json_pack("{s:s, s:[{s:s, s:s, s:I, s:s}]}", "object", "list", "data", "id", "tiny",
                             "object", "model", "created", (json_int_t)created, "owned_by", "coda"));
}

static json_t *ids_of(const int32_t *ids, int count)
{
    json_t *a = json_array();
    for (int i = 0; a && i < count; i++) json_array_append_new(a, json_integer(ids[i]));
    return a;
}

/* Members that all answers have. */
static json_t *headed(const struct heading *h, const char *object, json_t *choices)
{
    char id[40];
    snprintf(id, sizeof id, "%s-%lld", h->chat ? "chatcmpl" : "cmpl", (long long)h->number);
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", id, "object", object, "created",
                     (json_int_t)h->created, "model", "tiny", "choices", choices);
}

static json_t *counts(const struct request *r)
{
    return json_pack("{s:i, s:i, s:i}", "prompt_tokens", r->prompt, "completion_tokens", r->count - r->prompt,
                     "total_tokens", r->count);
}

static const char *reason(enum finish f) { return f ? finish_name(f) : NULL; }

char *json_answer(const struct heading *h, const struct request *r, bool ids)
{
    json_t *choice =
        json_pack("{s:i, s:n, s:s?}", "index", 0, "logprobs", "finish_reason", reason(r->finish));
    json_t *text = json_stringn(r->text, r->bytes);
    if (h->chat)
        json_object_set_new(choice, "message", json_pack("{s:s, s:o}", "role", "assistant", "content", text));
    else json_object_set_new(choice, "text", text);
    if (ids) json_object_set_new(choice, "token_ids", ids_of(r->tokens + r->prompt, r->count - r->prompt));
    json_t *v = headed(h, h->chat ? "chat.completion" : "text_completion", json_pack("[o]", choice));
    json_object_set_new(v, "usage", counts(r));
    return text_of(v);
}

static const char *chunk_name(const struct heading *h)
{
    return h->chat ? "chat.completion.chunk" : "text_completion";
}

char *json_piece(const struct heading *h, const struct piece *p)
{
    json_t *choice =
        json_pack("{s:i, s:n, s:s?}", "index", 0, "logprobs", "finish_reason", reason(p->finish));
    json_t *delta = json_object();
    json_t *to = h->chat ? delta : choice;
    if (h->chat && p->first) json_object_set_new(delta, "role", json_string("assistant"));
    if (p->text || !h->chat || p->first)
        json_object_set_new(to, h->chat ? "content" : "text", json_stringn(p->text ? p->text : "", p->bytes));
    if (h->chat) json_object_set(choice, "delta", delta);
    json_decref(delta);
    if (p->ids) json_object_set_new(choice, "token_ids", ids_of(p->ids, p->id_count));
    return text_of(headed(h, chunk_name(h), json_pack("[o]", choice)));
}

char *json_usage(const struct heading *h, const struct request *r)
{
    json_t *v = headed(h, chunk_name(h), json_array());
    json_object_set_new(v, "usage", counts(r));
    return text_of(v);
}
