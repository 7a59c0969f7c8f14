/*
 * json.c -- answers, chunks of answers, and errors.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "chat_json.h"
#include "chat_metrics.h"

/* The text of a value, which is given away. */
static char *text_of(json_t *v)
{
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    return text;
}

/* What a client sent may be in it, cut off anywhere: it becomes UTF-8, without control characters. */
static json_t *message_of(const struct problem *p)
{
    struct text all = {0};
    unicode_add_lossy(&all, p->message, strlen(p->message));
    for (size_t i = 0; i < all.size; i++) {
        unsigned char *c = (unsigned char *)all.data + i;
        if (*c < ' ' || *c == 127) *c = '?';
        if (*c == 0xc2 && c[1] < 0xa0) c[0] = c[1] = '?'; /* U+0080 to U+009F */
    }
    json_t *v = all.failed ? NULL : json_stringn(all.data ? all.data : "", all.size);
    text_free(&all);
    return v;
}

char *json_error(const struct problem *p)
{
    json_t *code = p->code ? json_string(p->code) : p->status == 503 ? json_integer(503) : json_null();
    return text_of(json_pack("{s:{s:o, s:s, s:s?, s:o}}", "error", "message", message_of(p), "type", p->type,
                             "param", p->param, "code", code));
}

static json_t *model_of(const struct served *s, time_t created)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:b}", "id", s->name, "object", "model", "created",
                     (json_int_t)created, "owned_by", "coda", "chat", served_chats(s));
}

char *json_model(const struct served *s, time_t created) { return text_of(model_of(s, created)); }

char *json_models(const struct served *s, time_t created)
{
    return text_of(json_pack("{s:s, s:[o]}", "object", "list", "data", model_of(s, created)));
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
                     (json_int_t)h->created, "model", h->served->name, "choices", choices);
}

static json_t *counts(const struct request *r)
{
    return json_pack("{s:i, s:i, s:i}", "prompt_tokens", r->prompt, "completion_tokens", r->count - r->prompt,
                     "total_tokens", r->count);
}

static const char *reason(enum finish f) { return f ? finish_name(f) : NULL; }

/* ---- Probabilities ---- */

/* What a token is called: its text or, as OpenAI's completions have it, "bytes:\xe2\x80" for one whose bytes
 * are no text, such as a part of a character; ASCII that can be seen stays in it. So does one with a NUL,
 * which is no name of a member. */
static json_t *name_of(const struct text *bytes)
{
    struct text name = {0};
    char code[8];
    const char *data = bytes->data ? bytes->data : "";
    if (unicode_valid(data, bytes->size) && !memchr(data, 0, bytes->size))
        return bytes->failed ? NULL : json_stringn(data, bytes->size);
    text_add(&name, "bytes:", 6);
    for (size_t i = 0; i < bytes->size; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c >= ' ' && c < 127 && c != '\\') text_add(&name, &data[i], 1);
        else text_add(&name, code, (size_t)snprintf(code, sizeof code, "\\x%02x", c));
    }
    json_t *v = name.failed ? NULL : json_stringn(name.data, name.size);
    text_free(&name);
    return v;
}

static json_t *token_name(const struct served *s, int32_t id)
{
    struct text t = {0};
    served_token(s, id, &t);
    json_t *v = name_of(&t);
    text_free(&t);
    return v;
}

/* A token of a chat, {"token", "logprob", "bytes"}. */
static json_t *chat_token(const struct served *s, const struct likely *l)
{
    struct text t = {0};
    json_t *bytes = json_array();
    served_token(s, l->id, &t);
    for (size_t i = 0; i < t.size; i++) json_array_append_new(bytes, json_integer((unsigned char)t.data[i]));
    json_t *v =
        json_pack("{s:o, s:f, s:o}", "token", name_of(&t), "logprob", (double)l->logprob, "bytes", bytes);
    text_free(&t);
    return v;
}

static json_t *chat_logprobs(const struct served *s, const struct piece *p)
{
    json_t *content = json_array();
    for (int i = 0; i < p->id_count; i++) {
        json_t *one = chat_token(s, &p->answered[i]), *top = json_array();
        for (int k = 0; k < p->likely; k++) {
            const struct likely *l = &p->alternative[i * p->likely + k];
            if (l->id >= 0) json_array_append_new(top, chat_token(s, l));
        }
        json_object_set_new(one, "top_logprobs", top);
        json_array_append_new(content, one);
    }
    return json_pack("{s:o}", "content", content);
}

/* A likely token's member by its name; by its number, "token_id:7", if a likelier one has the same. */
static void add_likely(const struct served *s, json_t *top, const struct likely *l)
{
    char number[24];
    json_t *name = l->id >= 0 ? token_name(s, l->id) : NULL;
    const char *text = json_string_value(name);
    snprintf(number, sizeof number, "token_id:%d", l->id);
    if (text)
        json_object_set_new(top, json_object_get(top, text) ? number : text, json_real((double)l->logprob));
    json_decref(name);
}

/* Of a completion: lists of tokens, of their logprobs, and of the likeliest ones' by their names. */
static json_t *text_logprobs(const struct served *s, const struct piece *p)
{
    json_t *tokens = json_array(), *each = json_array(), *tops = json_array();
    for (int i = 0; i < p->id_count; i++) {
        json_t *top = json_object();
        json_array_append_new(tokens, token_name(s, p->answered[i].id));
        json_array_append_new(each, json_real((double)p->answered[i].logprob));
        for (int k = 0; k < p->likely; k++) add_likely(s, top, &p->alternative[i * p->likely + k]);
        json_array_append_new(tops, top);
    }
    return json_pack("{s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", each, "top_logprobs", tops);
}

static json_t *logprobs(const struct heading *h, const struct piece *p)
{
    if (!p->answered) return json_null();
    return h->chat ? chat_logprobs(h->served, p) : text_logprobs(h->served, p);
}

/* ---- Answers ---- */

static json_t *choice_of(const struct heading *h, const struct piece *p)
{
    json_t *choice = json_pack("{s:i, s:o, s:s?}", "index", 0, "logprobs", logprobs(h, p), "finish_reason",
                               reason(p->finish));
    if (p->ids) json_object_set_new(choice, "token_ids", ids_of(p->ids, p->id_count));
    return choice;
}

char *json_answer(const struct heading *h, const struct request *r, bool ids)
{
    struct piece all = {.ids = ids ? r->tokens + r->prompt : NULL,
                        .id_count = r->count - r->prompt,
                        .answered = r->likely < 0 ? NULL : r->answered,
                        .alternative = r->alternative,
                        .likely = r->likely,
                        .finish = r->finish};
    json_t *choice = choice_of(h, &all), *text = json_stringn(r->text.data ? r->text.data : "", r->text.size);
    if (h->chat)
        json_object_set_new(choice, "message", json_pack("{s:s, s:o}", "role", "assistant", "content", text));
    else json_object_set_new(choice, "text", text);
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
    json_t *choice = choice_of(h, p), *delta = json_object();
    json_t *to = h->chat ? delta : choice;
    if (h->chat && p->first) json_object_set_new(delta, "role", json_string("assistant"));
    if (p->text || !h->chat || p->first)
        json_object_set_new(to, h->chat ? "content" : "text", json_stringn(p->text ? p->text : "", p->bytes));
    if (h->chat) json_object_set(choice, "delta", delta);
    json_decref(delta);
    return text_of(headed(h, chunk_name(h), json_pack("[o]", choice)));
}

char *json_usage(const struct heading *h, const struct request *r)
{
    json_t *v = headed(h, chunk_name(h), json_array());
    json_object_set_new(v, "usage", counts(r));
    return text_of(v);
}
