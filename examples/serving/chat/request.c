/*
 * request.c -- from logits to tokens, from tokens to text that may be sent.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chat_request.h"

struct request *request_new(const struct served *s, const int32_t *prompt, int count, int most, int likely)
{
    struct request *r = calloc(1, sizeof *r);
    size_t all = (size_t)count + (size_t)most, places = likely < 0 ? 0 : (size_t)most;
    if (!r) return NULL;
    r->served = s;
    r->prompt = r->count = r->told = count;
    r->most = most;
    r->likely = likely;
    r->tokens = malloc(sizeof *r->tokens * all);
    r->pages = malloc(sizeof *r->pages * (all / PAGE_TOKENS + 1));
    r->speech = speech_new(s);
    r->answered = malloc(sizeof *r->answered * (places + 1));
    r->alternative = malloc(sizeof *r->alternative * (places * (size_t)(likely < 0 ? 0 : likely) + 1));
    if (!r->tokens || !r->pages || !r->speech || !r->answered || !r->alternative) {
        request_free(r);
        return NULL;
    }
    memcpy(r->tokens, prompt, sizeof *prompt * (size_t)count);
    return r;
}

void request_free(struct request *r)
{
    if (!r) return;
    for (int i = 0; i < r->stops; i++) free(r->stop[i]);
    speech_free(r->speech);
    text_free(&r->text);
    free(r->tokens);
    free(r->pages);
    free(r->answered);
    free(r->alternative);
    free(r);
}

/* ---- Which token ---- */

/* What cannot be is as unlikely as JSON can say. */
static struct likely likely_of(int32_t id, double logprob)
{
    return (struct likely){id, isfinite(logprob) ? (float)logprob : -9999};
}

static void note_likely(struct request *r, const struct logits *l)
{
    int place = r->count - r->prompt;
    if (r->likely < 0) return;
    r->answered[place] = likely_of(r->chosen.id, r->chosen.logprob);
    for (int i = 0; i < r->likely; i++) {
        struct likely none = {-1, 0}, *to = &r->alternative[place * r->likely + i];
        *to = i < l->n ? likely_of(l->id[i], (double)l->value[i] - l->log_sum) : none;
    }
}

bool request_choose(struct request *r, struct runner *m, int sequence, struct fault *f)
{
    struct logits top = runner_likeliest(m, sequence);
    r->chosen = runner_chosen(m, sequence);
    if (isnan(r->chosen.logprob))
        return fault_set(f, "token %d: of its logits the greatest is no finite number", r->count);
    note_likely(r, &top);
    return true;
}

/* ---- Stop strings ---- */

/* Bytes at the text's end with which the stop string begins. */
static size_t overlap(const struct request *r, const char *stop)
{
    size_t n = strlen(stop) - 1;
    if (n > r->text.size) n = r->text.size;
    while (n && memcmp(r->text.data + r->text.size - n, stop, n) != 0) n--;
    return n;
}

/* The text ends before the first stop string in it; what may become one is not settled. */
static void look_for_stops(struct request *r)
{
    size_t open = 0, end = r->text.size;
    for (int i = 0; i < r->stops; i++) {
        char *at = r->text.size == r->settled ? NULL
                                              : memmem(r->text.data + r->settled, r->text.size - r->settled,
                                                       r->stop[i], strlen(r->stop[i]));
        if (!at) continue;
        if ((size_t)(at - r->text.data) < end) end = (size_t)(at - r->text.data);
        r->finish = FINISH_STOP;
    }
    r->text.size = end;
    for (int i = 0; i < r->stops && !r->finish; i++) {
        size_t n = overlap(r, r->stop[i]);
        open = n > open ? n : open;
    }
    r->settled = r->text.size - open;
}

static bool is_end(const struct request *r, int32_t token)
{
    return config_is_end(&r->served->config, token) && !r->ignore_eos;
}

bool request_take(struct request *r)
{
    int32_t token = r->chosen.id;
    r->tokens[r->count++] = token;
    return is_end(r, token) || r->count == r->prompt + r->most;
}

/* A stop string in what the tokens say comes before their own end. */
void request_tell(struct request *r)
{
    enum finish end = FINISH_NOT;
    for (; r->told < r->count; r->told++) {
        int32_t token = r->tokens[r->told];
        bool ends = is_end(r, token);
        if (!ends) speech_add(r->speech, token, &r->text);
        if (r->told + 1 == r->prompt + r->most) end = FINISH_LENGTH;
        if (ends) end = FINISH_STOP;
    }
    if (end) speech_end(r->speech, &r->text);
    look_for_stops(r);
    if (!r->finish) r->finish = end;
    if (r->finish) r->settled = r->text.size;
    if (r->text.failed) r->finish = FINISH_ERROR;
}
