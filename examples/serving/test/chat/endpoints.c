/*
 * endpoints.c -- each endpoint, asked well and badly: statuses, headers, JSON; bodies in all framings.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>

#include "chat_test.h"

#define TEXT "/v1/completions"
#define CHAT "/v1/chat/completions"
#define HI "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]"

/* Ten characters of three bytes. */
#define EURO "%e2%82%ac%e2%82%ac%e2%82%ac%e2%82%ac%e2%82%ac%e2%82%ac%e2%82%ac%e2%82%ac%e2%82%ac%e2%82%ac"

struct question {
    const char *method, *path, *body;
    int status;
    const char *has; /* in the body, or a header line */
};

static const struct question questions[] = {
    {"GET", "/health", NULL, 200, "{\"status\":\"ok\"}"},
    {"GET", "/v1/models", NULL, 200, "\"id\":\"tiny\",\"object\":\"model\""},
    {"GET", "/v1/models/tiny", NULL, 200, "{\"id\":\"tiny\",\"object\":\"model\""},
    {"GET", "/v1/models/tiny", NULL, 200, "\"chat\":true"},
    {"GET", "/v1/models/other", NULL, 404, "there is no /v1/models/other"},
    {"GET", "/metrics", NULL, 200, "Content-Type: text/plain; version=0.0.4"},
    {"HEAD", "/health", NULL, 200, "Content-Type: application/json"},
    {"GET", "/", NULL, 200, "Content-Type: text/html; charset=utf-8"},
    {"GET", "/", NULL, 200, "Content-Security-Policy: default-src 'none'; connect-src 'self';"},
    {"GET", "/", NULL, 200, "<!DOCTYPE html>"},
    {"HEAD", "/", NULL, 200, "Content-Type: text/html"},
    {"POST", "/", "{}", 405, "Allow: GET"},
    {"GET", "/page.html", NULL, 404, "\"message\":\"there is no /page.html\""},
    {"GET", "/%ff", NULL, 404, "there is no /\xef\xbf\xbd\""},
    {"GET", "/%C3%A9%e2%82", NULL, 404, "there is no /\xc3\xa9\xef\xbf\xbd\""},
    {"GET", "/%ed%a0%80%f5%80", NULL, 404, "invalid_request_error"},
    {"GET", "/%01%1b%7f%c2%9b", NULL, 404, "there is no /?????\""},
    {"GET", "/v1/models/%80%22", NULL, 404, "\xef\xbf\xbd\\\"\""},
    {"GET", "/a%00%ff", NULL, 404, "there is no /a\""},
    {"GET", "/" EURO EURO EURO EURO EURO EURO EURO EURO "a" EURO, NULL, 404, "\xef\xbf\xbd\""}, /* cut off */
    {"POST", "/%ff", "{}", 404, "\xef\xbf\xbd"},
    {"POST", "/v1/embeddings", "{}", 404, "invalid_request_error"},
    {"POST", "/health", "{}", 405, "Allow: GET"},
    {"GET", TEXT, NULL, 405, "Allow: POST"},
    {"DELETE", CHAT, NULL, 405, "Allow: POST"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"ignore_eos\": true}", 200, "\"completion_tokens\":16"},
    {"POST", TEXT, "{\"prompt\": [\"a\"], \"max_tokens\": 2}", 200, "\"prompt_tokens\":2,"},
    {"POST", TEXT, "{\"prompt\": \"\", \"max_tokens\": 2}", 200, "\"prompt_tokens\":1,"},
    {"POST", TEXT, "{\"prompt\": [256, 97], \"max_tokens\": 2}", 200, "\"prompt_tokens\":2,"},
    {"POST", TEXT, "{\"prompt\": \"a\\u0000b\\u20ac\", \"max_tokens\": 1}", 200, "\"prompt_tokens\":7,"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"max_tokens\": null, \"foo\": [1]}", 200,
     "\"object\":\"text_completion\""},
    {"POST", TEXT, "{\"prompt\": \"a\", \"model\": \"tiny\", \"n\": 1, \"top_p\": 1}", 200, "\"id\":\"cmpl-"},
    {"POST", CHAT, "{" HI ", \"max_tokens\": 2}", 200, "\"object\":\"chat.completion\""},
    {"POST", CHAT, "{" HI ", \"max_completion_tokens\": 3, \"ignore_eos\": true}", 200,
     "\"completion_tokens\":3,"},
    {"POST", CHAT, "{" HI ", \"max_tokens\": 2}", 200, "\"role\":\"assistant\""},
    {"POST", CHAT,
     "{\"max_tokens\": 1, \"messages\": [{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": "
     "\"b\"}]}]}",
     200, "\"prompt_tokens\":22,"},
    {"POST", TEXT, "", 400, "the body is not JSON"},
    {"POST", TEXT, "{\"prompt\": \"a\"", 400, "the body is not JSON"},
    {"POST", TEXT, "{\"prompt\": \"\xff\"}", 400, "the body is not JSON"},
    {"POST", TEXT, "[]", 400, "the body must be a JSON object"},
    {"POST", TEXT, "{}", 400, "\"param\":\"prompt\""},
    {"POST", TEXT, "{\"prompt\": 5}", 400, "\"param\":\"prompt\""},
    {"POST", TEXT, "{\"prompt\": []}", 400, "\"param\":\"prompt\""},
    {"POST", TEXT, "{\"prompt\": [1, 264]}", 400, "prompt[1] is no token"},
    {"POST", TEXT, "{\"prompt\": [-1]}", 400, "prompt[0] is no token"},
    {"POST", TEXT, "{\"prompt\": [[97, 264]]}", 400, "prompt[1] is no token"},
    {"POST", TEXT, "{\"prompt\": [[97], [98]]}", 400, "there are 2 prompts; a request has one"},
    {"POST", TEXT, "{\"prompt\": [\"a\", \"b\"]}", 400, "there are 2 prompts; a request has one"},
    {"POST", TEXT, "{\"prompt\": [[97]], \"max_tokens\": 1}", 200, "\"prompt_tokens\":1,"},
    {"POST", TEXT, "{\"prompt\": [\"a\"], \"max_tokens\": 1}", 200, "\"finish_reason\":\"length\""},
    {"POST", TEXT, "{\"prompt\": \"a\", \"max_tokens\": 0}", 400, "max_tokens is 0, not in 1..2147483647"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"max_tokens\": \"5\"}", 400, "max_tokens must be an integer"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"max_tokens\": 511}", 400, "\"code\":\"context_length_exceeded\""},
    {"POST", TEXT, "{\"prompt\": \"a\", \"temperature\": 2.5}", 400, "temperature is 2.5, not in 0..2"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"temperature\": true}", 400, "\"param\":\"temperature\""},
    {"POST", TEXT, "{\"prompt\": \"a\", \"seed\": 1.5}", 400, "seed must be an integer"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"stop\": 1}", 400, "\"param\":\"stop\""},
    {"POST", TEXT, "{\"prompt\": \"a\", \"stop\": \"\"}", 400, "\"param\":\"stop\""},
    {"POST", TEXT, "{\"prompt\": \"a\", \"stop\": [\"a\",\"b\",\"c\",\"d\",\"e\"]}", 400, "more than 4"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"ignore_eos\": 1}", 400, "ignore_eos must be true or false"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"stream\": 1}", 400, "stream must be true or false"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"stream_options\": {}}", 400, "\"param\":\"stream_options\""},
    {"POST", TEXT, "{\"prompt\": \"a\", \"stream\": true, \"stream_options\": 1}", 400, "must be an object"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"top_p\": 1.5}", 400, "top_p is 1.5, not in 0..1"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"top_k\": \"x\"}", 400, "top_k must be an integer"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"logprobs\": 21}", 400, "logprobs is 21, not in 0..20"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"frequency_penalty\": 1}", 400, "\"param\":\"frequency_penalty\""},
    {"POST", CHAT, "{" HI ", \"top_logprobs\": 2}", 400, "want logprobs to be true"},
    {"POST", CHAT, "{" HI ", \"chat_template_kwargs\": 2}", 400, "must be an object"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"n\": 2}", 400, "n must be 1: nothing else is supported"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"logit_bias\": {\"5\": 1}}", 400, "logit_bias must be {}"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"echo\": true}", 400, "echo must be false"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"best_of\": 3}", 400, "best_of must be 1"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"suffix\": \"b\"}", 400, "\"param\":\"suffix\""},
    {"POST", TEXT, "{\"prompt\": \"a\", \"min_p\": \"0\"}", 400, "min_p must be 0"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"repetition_penalty\": 1.1}", 400, "repetition_penalty must be 1"},
    {"POST", TEXT,
     "{\"prompt\": \"a\", \"max_tokens\": 1, \"n\": 1, \"best_of\": 1.0, \"presence_penalty\": 0.0, "
     "\"min_p\": 0, "
     "\"logit_bias\": {}, \"echo\": false, \"suffix\": null, \"user\": \"u\"}",
     200, "\"finish_reason\":\"length\""},
    {"POST", CHAT, "{" HI ", \"tools\": [{\"type\": \"function\"}]}", 400, "tools must be []"},
    {"POST", CHAT, "{" HI ", \"response_format\": {\"type\": \"json_object\"}}", 400,
     "\"param\":\"response_format\""},
    {"POST", CHAT, "{" HI ", \"max_tokens\": 1, \"tools\": [], \"response_format\": {\"type\": \"text\"}}",
     200, "chat.completion"},
    {"POST", TEXT, "{\"prompt\": \"a\", \"model\": \"gpt\"}", 404, "\"code\":\"model_not_found\""},
    {"POST", TEXT, "{\"prompt\": \"a\", \"model\": 1}", 400, "\"param\":\"model\""},
    {"POST", CHAT, "{}", 400, "\"param\":\"messages\""},
    {"POST", CHAT, "{\"messages\": []}", 400, "\"param\":\"messages\""},
    {"POST", CHAT, "{\"messages\": [1]}", 400, "messages[0].role"},
    {"POST", CHAT, "{\"messages\": [{\"role\": \"robot\", \"content\": \"\"}]}", 400, "messages[0].role"},
    {"POST", CHAT, "{\"messages\": [{\"role\": \"user\"}]}", 400, "content must be a string"},
    {"POST", CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}", 400,
     "must be a text"},
};

static void check_json(const struct question *q, const struct reply *r)
{
    json_error_t error;
    json_t *v = json_loadb(r->body, r->bytes, JSON_ALLOW_NUL, &error);
    CHECK(v, "%s %s: no JSON: %s: %s", q->method, q->path, error.text, r->body);
    json_t *e = json_object_get(v, "error");
    bool shaped = json_is_string(json_object_get(e, "message")) &&
                  json_is_string(json_object_get(e, "type")) && json_object_get(e, "param") &&
                  json_object_get(e, "code");
    CHECK(shaped == (q->status >= 400), "%s %s: an error of another shape: %s", q->method, q->path, r->body);
    json_decref(v);
}

static void ask_question(int port, const struct question *q)
{
    struct reply r = http(port, q->method, q->path, q->body);
    CHECK(r.status == q->status, "%s %s %s: status %d, not %d: %s", q->method, q->path,
          q->body ? q->body : "", r.status, q->status, r.body ? r.body : "");
    CHECK(r.status && (strstr(r.body, q->has) || strstr(r.head, q->has)), "%s %s %s: no %s in: %s", q->method,
          q->path, q->body ? q->body : "", q->has, r.body ? r.body : "");
    if (r.status && strstr(r.head, "application/json") && strcmp(q->method, "HEAD") != 0) check_json(q, &r);
    reply_free(&r);
}

/* ---- Streams ---- */

static void test_chat_stream(int port)
{
    static const char whole[] = "{" HI ", \"max_tokens\": 9, \"temperature\": 0}";
    static const char streamed[] = "{" HI ", \"max_tokens\": 9, \"temperature\": 0, \"stream\": true}";
    struct answer *a = ask(port, CHAT, whole, false), *b = ask(port, CHAT, streamed, true);
    CHECK(a->status == 200 && answers_equal(a, b), "chat: \"%s\", as a stream \"%s\"", a->text, b->text);
    CHECK(b->pieces >= 3 && b->completion_tokens == 0, "chat: %d pieces", b->pieces);
    answer_free(a);
    answer_free(b);
    struct reply r = http(port, "POST", CHAT, streamed);
    const char *first = r.body ? strstr(r.body, "data: ") : NULL;
    CHECK(first && strstr(first, "\"delta\":{\"role\":\"assistant\""), "the first chunk has no role: %s",
          r.body);
    CHECK(r.body && strstr(r.body, "\"object\":\"chat.completion.chunk\""), "no chunks: %s", r.body);
    reply_free(&r);
}

/* ---- Framings ---- */

static struct reply chunked(int port, size_t padding)
{
    static const char head[] = "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    static const char body[] = "{\"prompt\": \"a\", \"max_tokens\": 3}";
    char size[32], blanks[4096];
    int fd = http_connect(port);
    memset(blanks, ' ', sizeof blanks);
    http_write(fd, head, sizeof head - 1);
    for (size_t sent = 0; sent < padding; sent += sizeof blanks) {
        http_write(fd, "1000\r\n", 6);
        http_write(fd, blanks, sizeof blanks);
        http_write(fd, "\r\n", 2);
    }
    for (size_t i = 0; i < sizeof body - 1; i += 7) {
        size_t n = sizeof body - 1 - i < 7 ? sizeof body - 1 - i : 7;
        http_write(fd, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
        http_write(fd, body + i, n);
        http_write(fd, "\r\n", 2);
    }
    http_write(fd, "0\r\n\r\n", 5);
    return http_receive(fd);
}

static void expect(struct reply r, int status, const char *what)
{
    CHECK(r.status == status, "%s: status %d, not %d: %s", what, r.status, status, r.body ? r.body : "");
    reply_free(&r);
}

static void test_bodies(int port)
{
    enum { LIMIT = 1 << 20 };
    static const char tail[] = "{\"prompt\": \"a\", \"max_tokens\": 3}";
    char *body = malloc(LIMIT + 2);
    memset(body, ' ', LIMIT + 1);
    memcpy(body + LIMIT - (sizeof tail - 1), tail, sizeof tail);
    expect(http(port, "POST", TEXT, body), 200, "a body of 1 MiB");
    body[LIMIT] = ' ';
    body[LIMIT + 1] = 0;
    expect(http(port, "POST", TEXT, body), 413, "a byte more");
    free(body);
    expect(chunked(port, 0), 200, "chunks");
    expect(chunked(port, LIMIT), 413, "chunks of more than 1 MiB");
    int fd = http_connect(port);
    static const char huge[] =
        "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n";
    http_write(fd, huge, sizeof huge - 1);
    expect(http_receive(fd), 413, "a body of 1 TB");
}

/* What lies between two ends of a body is no request: there is one reply, and no more of the connection. */
static void test_two_ends(int port)
{
    static const char *const ends[] = {"Content-Length: 2\r\nContent-Length: 45\r\n\r\n{}",
                                       "Transfer-Encoding: chunked\r\nContent-Length: 50\r\n\r\n0\r\n\r\n"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char text[1 << 12];
        size_t bytes = 0;
        ssize_t n = snprintf(text, sizeof text,
                             "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\n%s"
                             "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                             ends[i]);
        int fd = http_connect(port);
        http_write(fd, text, (size_t)n);
        while ((n = recv(fd, text + bytes, sizeof text - 1 - bytes, 0)) > 0) bytes += (size_t)n;
        text[bytes] = 0;
        CHECK(!strncmp(text, "HTTP/1.1 400", 12) && !strstr(text + 1, "HTTP/1.1 "), "two ends of a body: %s",
              text);
        close(fd);
    }
}

/* Three requests in one piece, three replies in order. */
static void test_pipeline(int port)
{
    static const char all[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
                              "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 32\r\n\r\n"
                              "{\"prompt\": \"a\", \"max_tokens\": 5}"
                              "GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    static const int status[] = {200, 200, 404};
    char text[1 << 14];
    size_t bytes = 0, at = 0, used;
    ssize_t n;
    int fd = http_connect(port);
    http_write(fd, all, sizeof all - 1);
    while ((n = recv(fd, text + bytes, sizeof text - 1 - bytes, 0)) > 0) bytes += (size_t)n;
    text[bytes] = 0;
    for (int i = 0; i < 3; i++) {
        struct reply r = http_parse(text + at, bytes - at, &used);
        CHECK(r.status == status[i] && r.whole, "pipelined request %d: status %d", i, r.status);
        reply_free(&r);
        at += used;
    }
    CHECK(at == bytes, "%zu bytes behind the last reply", bytes - at);
}

/* ---- Metrics: the text format, by its rules ---- */

static void test_metrics_text(int port)
{
    struct reply r = http(port, "GET", "/metrics", NULL);
    char name[128] = "", line[512];
    double last = 0;
    int families = 0;
    for (const char *p = r.body; p && *p; p = strchr(p, '\n') + 1) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
        char *value = strrchr(line, ' '), *end;
        if (!strncmp(line, "# HELP ", 7)) {
            char help[160];
            snprintf(help, sizeof help, "# HELP %.*s ", (int)strcspn(line + 7, " "), line + 7);
            snprintf(name, sizeof name, "%.*s", (int)strcspn(line + 7, " "), line + 7);
            CHECK(!strstr(p + 7, help), "%s is described twice", name);
            families++;
            last = 0;
        } else if (line[0] != '#') {
            CHECK(!strncmp(line, name, strlen(name)), "%s stands below %s", line, name);
            double v = value ? strtod(value, &end) : 0;
            CHECK(value && end > value + 1 && !*end, "no number: %s", line);
            if (strstr(line, "_bucket{"))
                CHECK(v >= last, "a bucket with less than the one before: %s", line);
            last = v;
        }
    }
    CHECK(families >= 15, "%d metrics", families);
    reply_free(&r);
}

void test_endpoints(const char *program)
{
    struct running s = server_start(program, (const char *const[]){NULL});
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) ask_question(s.port, &questions[i]);
    test_chat_stream(s.port);
    test_bodies(s.port);
    test_two_ends(s.port);
    test_pipeline(s.port);
    test_metrics_text(s.port);
    CHECK(server_stop(&s) == 0, "the server did not end well");
}
