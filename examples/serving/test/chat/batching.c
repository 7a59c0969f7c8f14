/*
 * batching.c -- what a request gets must not depend on what else runs: alone, among others, in chunks of
 * another size, with few pages, whole and as a stream; and it must be what the model's formula says.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat_test.h"

enum { CLIENTS = 20, GREEDY = 6, BODY = 1024 };

struct client {
    pthread_t thread;
    int port;
    char body[BODY], streamed[BODY];
    bool stream;
    struct answer *alone, *together;
};

static struct client client[CLIENTS];

static void write_streamed(struct client *c)
{
    snprintf(c->streamed, BODY, "{\"stream\": true, \"stream_options\": {\"include_usage\": true}, %s",
             c->body + 1);
}

/* Prompts of 1 to 110 bytes, answers of 1 to 44 tokens. The first ones take the most likely tokens. */
static void write_body(struct client *c, int i)
{
    char prompt[200];
    int bytes = 1 + i * 37 % 110;
    for (int k = 0; k < bytes; k++) prompt[k] = (char)('a' + (k * (i + 3) + k * k) % 26);
    prompt[bytes] = 0;
    snprintf(c->body, BODY,
             "{\"prompt\": \"%s\", \"max_tokens\": %d, \"temperature\": %g, \"seed\": %d, "
             "\"return_token_ids\": true}",
             prompt, 1 + i * 23 % 44, i < GREEDY ? 0 : 0.1 * i, i);
    write_streamed(c);
}

static void *run_client(void *context)
{
    struct client *c = context;
    c->together = ask(c->port, "/v1/completions", c->stream ? c->streamed : c->body, c->stream);
    return NULL;
}

/* All at once, every second one as a stream, or the others. */
static void compare_together(int port, const char *what, int odd)
{
    for (int i = 0; i < CLIENTS; i++) {
        client[i].port = port;
        client[i].stream = (i & 1) == odd;
        pthread_create(&client[i].thread, NULL, run_client, &client[i]);
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &client[i];
        pthread_join(c->thread, NULL);
        CHECK(answers_equal(c->alone, c->together), "%s: client %d: status %d, %d tokens; alone %d, %d", what,
              i, c->together->status, c->together->count, c->alone->status, c->alone->count);
        CHECK(c->together->prompt_tokens == c->alone->prompt_tokens &&
                  c->together->completion_tokens == c->alone->completion_tokens,
              "%s: client %d: other counts", what, i);
        answer_free(c->together);
    }
}

static void compare_with_formula(const struct client *c, const struct answer *a, int i, double most)
{
    int32_t tokens[512] = {256};
    int n = 1;
    for (const char *p = strstr(c->body, ": \"") + 3; *p != '"'; p++) tokens[n++] = *p;
    CHECK(n == a->prompt_tokens, "client %d: a prompt of %d tokens, not %d", i, a->prompt_tokens, n);
    memcpy(tokens + n, a->ids, sizeof *tokens * (size_t)a->count);
    double far = reference_distance(tokens, n, n + a->count);
    CHECK(far < most, "client %d: a token's logit is %g below the best", i, far);
}

static void check_alone(void)
{
    for (int i = 0; i < CLIENTS; i++) {
        const struct answer *a = client[i].alone;
        CHECK(a->status == 200 && a->count == a->completion_tokens, "client %d: %d tokens of %d", i, a->count,
              a->completion_tokens);
        if (i < GREEDY) compare_with_formula(&client[i], a, i, 1e-3);
    }
    CHECK(client[9].alone->count > 0 && client[10].alone->count > 0 &&
              client[9].alone->ids[0] != client[10].alone->ids[0],
          "two seeds, one token");
}

/* ---- Stop strings ---- */

static void stop_at(const struct client *plain, const char *text, size_t from, size_t bytes)
{
    char stop[64], *body, *streamed;
    snprintf(stop, sizeof stop, "%.*s", (int)bytes, text + from);
    json_t *quoted = json_string(stop);
    char *json = json_dumps(quoted, JSON_ENCODE_ANY);
    size_t want = (size_t)(strstr(text, stop) - text);
    CHECK(asprintf(&body, "{\"stop\": [\"no such text\", %s], %s", json, plain->body + 1) > 0, "no memory");
    CHECK(asprintf(&streamed, "{\"stop\": %s, %s", json, plain->streamed + 1) > 0, "no memory");
    struct answer *whole = ask(plain->port, "/v1/completions", body, false);
    struct answer *pieces = ask(plain->port, "/v1/completions", streamed, true);
    CHECK(!strcmp(whole->reason, "stop") && strlen(whole->text) == want && !strncmp(whole->text, text, want),
          "stop %s: %s \"%s\" of \"%s\"", json, whole->reason, whole->text, text);
    CHECK(answers_equal(whole, pieces), "stop %s: as a stream \"%s\"", json, pieces->text);
    answer_free(whole);
    answer_free(pieces);
    json_decref(quoted);
    free(json);
    free(body);
    free(streamed);
}

/* A stop string of some characters out of the answer: it ends before the first of them. */
static void test_stops(int port)
{
    struct client plain = {.port = port};
    snprintf(plain.body, BODY,
             "{\"prompt\": \"stops\", \"max_tokens\": 40, \"temperature\": 0, "
             "\"ignore_eos\": true, \"return_token_ids\": true}");
    write_streamed(&plain);
    struct answer *a = ask(port, "/v1/completions", plain.body, false);
    const char *text = a->text;
    size_t bytes = 6, from = a->bytes / 2;
    CHECK(a->count == 40 && strlen(text) == a->bytes && a->bytes > 24, "a text of %zu bytes to stop in",
          a->bytes);
    if (a->bytes > 24) {
        while ((text[from] & 0xc0) == 0x80) from++;
        while ((text[from + bytes] & 0xc0) == 0x80) bytes++;
        stop_at(&plain, text, from, bytes);
        for (bytes = 1; (text[bytes] & 0xc0) == 0x80;) bytes++;
        stop_at(&plain, text, 0, bytes);
    }
    answer_free(a);
}

/* ---- Figures ---- */

static void compare_figures(int port)
{
    static const char success[] = "coda_request_success_total{model_name=\"tiny\",finished_reason=\"%s\"}";
    char stop[96], length[96];
    snprintf(stop, sizeof stop, success, "stop");
    snprintf(length, sizeof length, success, "length");
    CHECK(metric(port, "coda_prompt_tokens_total") == (double)tally.prompt_tokens,
          "prompt tokens: %g, not %lld", metric(port, "coda_prompt_tokens_total"),
          (long long)tally.prompt_tokens);
    CHECK(metric(port, "coda_generation_tokens_total") == (double)tally.completion_tokens,
          "generated tokens: %g, not %lld", metric(port, "coda_generation_tokens_total"),
          (long long)tally.completion_tokens);
    CHECK(metric(port, stop) == (double)tally.stop, "stop: %g, not %lld", metric(port, stop),
          (long long)tally.stop);
    CHECK(metric(port, length) == (double)tally.length, "length: %g, not %lld", metric(port, length),
          (long long)tally.length);
    CHECK(metric(port, "coda_e2e_request_latency_seconds_count") == (double)(tally.stop + tally.length),
          "latencies: %g", metric(port, "coda_e2e_request_latency_seconds_count"));
    CHECK(metric(port, "coda_kv_cache_usage_perc") == 0, "pages are left");
}

static void run_roomy(const char *program)
{
    struct running s = server_start(program, (const char *const[]){NULL});
    double planned = metric(s.port, "coda_shapes_planned_total");
    tally = (struct tally){0};
    for (int i = 0; i < CLIENTS; i++) {
        write_body(&client[i], i);
        client[i].alone = ask(s.port, "/v1/completions", client[i].body, false);
    }
    check_alone();
    compare_together(s.port, "all at once", 0);
    compare_together(s.port, "all at once, again", 1);
    test_stops(s.port);
    compare_figures(s.port);
    CHECK(metric(s.port, "coda_num_preemptions_total") == 0, "preemptions, where there is room");
    CHECK(metric(s.port, "coda_shapes_planned_total") == planned, "a step waited for its plan");
    CHECK(server_stop(&s) == 0, "the server did not end well");
}

/* ---- Preemption ---- */

enum { ATTEMPTS = 100 };
static const char older[] =
    "{\"prompt\": \"older\", \"max_tokens\": 250, \"temperature\": 0, \"ignore_eos\": true, "
    "\"return_token_ids\": true, \"stream\": true, "
    "\"stream_options\": {\"include_usage\": true}}";
static const char younger[] =
    "{\"prompt\": \"a prompt that wants five pages of sixteen tokens, and so holds them while the older one "
    "grows\", "
    "\"max_tokens\": 160, \"temperature\": 0, \"ignore_eos\": true, \"return_token_ids\": true}";

/* The older request ends with 16 pages, the younger one too, of 20: once both run, the younger one must
 * give its pages back. It comes while the server is stopped behind some of the older one's first tokens.
 * If this process slept before it stopped the server, the older one may have ended: then they are asked
 * again. */
static void test_preempted(const struct running *s)
{
    struct answer *alone[2] = {ask(s->port, "/v1/completions", older, true),
                               ask(s->port, "/v1/completions", younger, false)};
    double before = metric(s->port, "coda_num_preemptions_total"), after = before;
    for (int i = 0; i < ATTEMPTS && after == before; i++) {
        int first = ask_begin(s->port, "/v1/completions", older);
        CHECK(http_wait_bytes(first, 600), "the older request has no tokens");
        kill(s->pid, SIGSTOP);
        int second = ask_begin(s->port, "/v1/completions", younger);
        kill(s->pid, SIGCONT);
        struct answer *a = ask_end(first, true), *b = ask_end(second, false);
        CHECK(answers_equal(alone[0], a), "beside a younger one: %d tokens, alone %d", a->count,
              alone[0]->count);
        CHECK(answers_equal(alone[1], b), "preempted: %d tokens, alone %d", b->count, alone[1]->count);
        answer_free(a);
        answer_free(b);
        after = metric(s->port, "coda_num_preemptions_total");
    }
    CHECK(after > before, "no preemption of two requests of 16 pages in 20, in %d attempts", ATTEMPTS);
    answer_free(alone[0]);
    answer_free(alone[1]);
}

static void run_tight(const char *program)
{
    struct running s =
        server_start(program, (const char *const[]){"--pages", "20", "--rows", "48", "--sequences", "24",
                                                    "--context", "256", NULL});
    tally = (struct tally){0};
    compare_together(s.port, "20 pages", 0);
    test_preempted(&s);
    compare_figures(s.port);
    CHECK(server_stop(&s) == 0, "the server with 20 pages did not end well");
}

void test_batching(const char *program)
{
    run_roomy(program);
    run_tight(program);
    for (int i = 0; i < CLIENTS; i++) answer_free(client[i].alone);
}

/* On a GPU, in bf16: the tokens behind a prompt in chunks, and behind three others, by the formula. */
void test_gpu(const char *program)
{
    enum { SOME = 4 };
    static const double rounded = 0.1; /* what 16 bits do to a logit */
    struct running s = server_start(program, (const char *const[]){"--gpu", "--rows", "8", "--sequences", "4",
                                                                   "--pages", "16", "--context", "64", NULL});
    for (int i = 0; i < SOME; i++) {
        struct client *c = &client[i];
        *c = (struct client){.port = s.port, .stream = i & 1};
        snprintf(c->body, BODY,
                 "{\"prompt\": \"%.*s\", \"max_tokens\": 3, \"temperature\": 0, \"return_token_ids\": true}",
                 i ? 4 * i : 20, "the quick brown fox jumps");
        write_streamed(c);
        pthread_create(&c->thread, NULL, run_client, c);
    }
    for (int i = 0; i < SOME; i++) {
        pthread_join(client[i].thread, NULL);
        const struct answer *a = client[i].together;
        CHECK(a->status == 200 && a->count > 0, "client %d: status %d, %d tokens", i, a->status, a->count);
        compare_with_formula(&client[i], a, i, rounded);
        answer_free(client[i].together);
    }
    CHECK(metric(s.port, "coda_graph_launches_total") > 0, "no step was a CUDA graph");
    CHECK(metric(s.port, "coda_kernels_loaded") > 0 && metric(s.port, "coda_shapes_failed_total") == 0,
          "%g kernels, %g shapes failed", metric(s.port, "coda_kernels_loaded"),
          metric(s.port, "coda_shapes_failed_total"));
    CHECK(server_stop(&s) == 0, "the server did not end well");
}
