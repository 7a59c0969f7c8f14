/*
 * fuzz.c -- requests that are nearly right, over many connections: the server stays there, each reply is
 * HTTP, what claims to be JSON is JSON, and in the end nobody is left.
 *
 *     B=../../build/serving/asan; CHAT_FUZZ_SECONDS=600 CODA_SEED=1 $B/chat_test $B/chat_server fuzz
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "chat_test.h"

enum { ROOM = 1 << 16, WAIT_MS = 20 };

static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

#define PICK(list) (list)[draw(sizeof(list) / sizeof *(list))]

/* ---- Requests ---- */

static const char *const methods[] = {"GET",  "POST",    "POST", "POST",   "POST",
                                      "HEAD", "OPTIONS", "PUT",  "DELETE", "X"};
static const char *const paths[] = {"/health",
                                    "/metrics",
                                    "/v1/models",
                                    "/v1/models/tiny",
                                    "/v1/models/%ff",
                                    "/v1/completions",
                                    "/v1/completions",
                                    "/v1/completions?x=%00&y",
                                    "/v1/chat/completions",
                                    "/v1/chat/completions",
                                    "/%ff%c3",
                                    "*",
                                    "http://localhost/health",
                                    "/../../etc/passwd",
                                    "/%01%7f%c2%80"};
static const char *const versions[] = {"HTTP/1.1", "HTTP/1.1", "HTTP/1.1",
                                       "HTTP/1.0", "HTTP/2.0", "HTTP/1.15"};
static const char *const headers[] = {"Host: localhost\r\n",
                                      "Host: evil.example\r\n",
                                      "Host: \xff\r\n",
                                      "Host:\r\n",
                                      "Origin: http://ui.example\r\n",
                                      "Origin: null\r\n",
                                      "Access-Control-Request-Method: POST\r\n",
                                      "Connection: close\r\n",
                                      "Connection: keep-alive\r\n",
                                      "Expect: 100-continue\r\n",
                                      "Authorization: Bearer sk-1\r\n",
                                      "Content-Type: text/plain\r\n",
                                      "Transfer-Encoding: chunked\r\n",
                                      "Transfer-Encoding: gzip, chunked\r\n",
                                      "Content-Length: 0\r\n",
                                      "Content-Length: -1\r\n",
                                      "Content-Length: 18446744073709551617\r\n",
                                      "Content-Length: 1048577\r\n",
                                      "X:\r\n y\r\n",
                                      "Cookie: a=b; c\r\n",
                                      "no colon\r\n",
                                      "\r\n"};
static const char *const bodies[] = {
    "{\"prompt\": \"a\", \"max_tokens\": 3}",
    "{\"prompt\": \"a\", \"max_tokens\": 3, \"stream\": true, \"stream_options\": {\"include_usage\": true}}",
    "{\"prompt\": [1, 2, 3], \"max_tokens\": 2, \"logprobs\": 3, \"return_token_ids\": true}",
    "{\"prompt\": \"a\", \"max_tokens\": 400, \"ignore_eos\": true, \"stop\": [\"b\", \"\\u20ac\"]}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"max_tokens\": 2, \"logprobs\": true, "
    "\"top_logprobs\": 2}",
    "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"\\u0000\"}]}], "
    "\"chat_template_kwargs\": {\"a\": [{}]}, \"max_tokens\": 2, \"stream\": true}",
    "{\"prompt\": \"a\", \"temperature\": 1e400, \"seed\": -9223372036854775808, \"top_p\": 0}",
    "{\"prompt\": \"a\", \"model\": \"\\ud800\"}",
    "[[[[[[[[[[[[[[[[",
    "\"",
    "",
    "{\"prompt\": \"a\", \"prompt\": 3}"};
/* What stands in for a few bytes. */
static const char *const odd[] = {
    "\"",   "\\",      "{",    "}",    "[", "]",  ",",     ":",    "\r\n", "\n",
    " ",    "%",       "\xff", "\xc3", "0", "-1", "1e999", "null", "true", "99999999999999999999",
    "\x01", "\\ud800", "/"};

struct made {
    char text[ROOM];
    size_t bytes;
};

static void put(struct made *m, const char *text)
{
    size_t n = strlen(text);
    if (m->bytes + n > ROOM) n = ROOM - m->bytes;
    memcpy(m->text + m->bytes, text, n);
    m->bytes += n;
}

static void put_body(struct made *m, const char *body, bool chunked)
{
    char size[64];
    size_t n = strlen(body), first = n ? draw(n) : 0;
    if (!chunked) return put(m, body);
    if (first)
        snprintf(size, sizeof size, "%zx\r\n%.*s\r\n", first, (int)(first < 40 ? first : 40), body),
            put(m, size);
    snprintf(size, sizeof size, "%zx\r\n", n - (first < 40 ? first : 40));
    put(m, size);
    put(m, body + (first < 40 ? first : 40));
    put(m, "\r\n0\r\n\r\n");
}

static void make_request(struct made *m)
{
    char line[64];
    const char *body = PICK(bodies);
    bool chunked = !draw(5);
    put(m, PICK(methods));
    put(m, " ");
    put(m, PICK(paths));
    put(m, " ");
    put(m, PICK(versions));
    put(m, "\r\n");
    if (draw(8)) put(m, "Host: localhost\r\n");
    for (uint64_t n = draw(4) ? 0 : draw(4); n; n--) put(m, PICK(headers));
    snprintf(line, sizeof line, "Content-Length: %zu\r\n", strlen(body) + (draw(10) ? 0 : draw(3)));
    put(m, chunked ? "Transfer-Encoding: chunked\r\n" : line);
    put(m, "\r\n");
    put_body(m, body, chunked);
}

/* Takes some bytes out at a place, and puts others in. */
static void change(struct made *m)
{
    const char *in = PICK(odd);
    size_t n = strlen(in), at = draw(m->bytes + 1), out = draw(2) ? draw(4) : 0;
    if (out > m->bytes - at) out = m->bytes - at;
    if (m->bytes - out + n > ROOM) return;
    memmove(m->text + at + n, m->text + at + out, m->bytes - at - out);
    memcpy(m->text + at, in, n);
    m->bytes += n - out;
}

static void make(struct made *m)
{
    m->bytes = 0;
    for (uint64_t n = draw(6) ? 1 : 2 + draw(3); n; n--) make_request(m);
    for (uint64_t n = draw(3) ? draw(4) : 0; n; n--) change(m);
    if (!draw(6)) m->bytes = draw(m->bytes + 1);
}

/* ---- Replies ---- */

static void check_reply(const struct made *m, const struct reply *r)
{
    CHECK(r->status >= 100 && r->status < 600, "status %d to: %.*s", r->status, (int)m->bytes, m->text);
    if (!r->head || !r->whole || !r->bytes || memmem(m->text, m->bytes, "HEAD", 4) ||
        !strstr(r->head, "application/json"))
        return;
    json_error_t error;
    json_t *v = json_loadb(r->body, r->bytes, JSON_ALLOW_NUL, &error);
    CHECK(v, "no JSON: %s: %s to: %.*s", error.text, r->body, (int)m->bytes, m->text);
    json_decref(v);
}

/* Is there all that the first reply's header promises? */
static bool is_whole(const char *text, size_t bytes)
{
    const char *gap = memmem(text, bytes, "\r\n\r\n", 4), *length = strcasestr(text, "\r\nContent-Length:");
    return gap && length && length < gap &&
           (size_t)(text + bytes - gap) >= 4 + strtoul(length + 17, NULL, 10);
}

/* What there is of a reply after a moment, or at its end. Only the first one is looked at. */
static void read_reply(const struct made *m, int fd)
{
    static char text[1 << 18];
    size_t bytes = 0, used;
    struct pollfd p = {fd, POLLIN, 0};
    while (bytes < sizeof text - 1 && !is_whole(text, bytes) && poll(&p, 1, WAIT_MS) > 0) {
        ssize_t n = recv(fd, text + bytes, sizeof text - 1 - bytes, MSG_DONTWAIT);
        if (n <= 0) break;
        bytes += (size_t)n;
        text[bytes] = 0;
    }
    text[bytes] = 0;
    if (!memmem(text, bytes, "\r\n\r\n", 4) || !strncmp(text, "HTTP/1.1 100", 12)) return;
    struct reply r = http_parse(text, bytes, &used);
    check_reply(m, &r);
    reply_free(&r);
}

static void one(int port)
{
    static struct made m;
    int fd = http_connect(port);
    CHECK(fd >= 0, "the server is not there any more");
    if (fd < 0) return;
    make(&m);
    size_t first = draw(4) ? m.bytes : draw(m.bytes + 1);
    http_write(fd, m.text, first);
    if (first < m.bytes && draw(2)) http_write(fd, m.text + first, m.bytes - first);
    if (!draw(8)) shutdown(fd, SHUT_WR);
    if (draw(4)) read_reply(&m, fd);
    close(fd);
}

void test_fuzz(const char *program)
{
    const char *text = getenv("CHAT_FUZZ_SECONDS"), *seed = getenv("CODA_SEED");
    time_t until = time(NULL) + (text ? atoi(text) : 2);
    struct running s = server_start(
        program, (const char *const[]){"--allow-origin", "http://ui.example", "--queue", "16", NULL});
    state = seed ? strtoull(seed, NULL, 0) : 1;
    int before = descriptors(s.pid);
    long requests = 0;
    printf("fuzz: CODA_SEED=%llu\n", (unsigned long long)state);
    for (int failed = failures; time(NULL) < until && failures == failed; requests++) {
        one(s.port);
        if (requests % 100) continue;
        struct reply r = http(s.port, "GET", "/health", NULL);
        CHECK(r.status == 200, "/health: status %d after %ld requests", r.status, requests);
        reply_free(&r);
    }
    printf("fuzz: %ld requests\n", requests);
    CHECK(descriptors_become(s.pid, before), "%d descriptors are left, of %d", descriptors(s.pid), before);
    CHECK(metric_becomes(s.port, "coda_num_requests_running", 0), "requests run on");
    CHECK(server_stop(&s) == 0, "the server did not end well");
}
