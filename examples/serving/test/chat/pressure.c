/*
 * pressure.c -- clients that close early, that are slow, that are many, that send much: each leaves nothing
 * behind, and keeps nobody else from being served. Deadlines are so long that none of them can be what frees
 * a connection, but where one is tested.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chat_test.h"

#define TEXT "/v1/completions"
#define CHAT "/v1/chat/completions"
#define HEADER(length) "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " length "\r\n\r\n"
#define NEVER "--header-s", "3600", "--body-s", "3600", "--idle-s", "3600", "--answer-s", "3600"
#define ABORTED "coda_request_success_total{model_name=\"tiny\",finished_reason=\"abort\"}"
#define LONG "{\"prompt\": \"a\", \"max_tokens\": 60000, \"ignore_eos\": true}"

/* ---- What clients have sent when they close, or stop ---- */

static const struct half {
    const char *what, *text;
    size_t blanks; /* behind it */
} halves[] = {
    {"nothing", "", 0},
    {"half a request line", "POST /v1/c", 0},
    {"half a header", "POST " TEXT " HTTP/1.1\r\nHost: loc", 0},
    {"a header", HEADER("100"), 0},
    {"some of a body", HEADER("100"), 10},
    {"a body that fits no buffer", HEADER("200000"), 100000},
    {"much of the longest body", HEADER("1048576"), 300000},
    {"some of a body in chunks",
     "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n", 10},
    {"a body that is refused", "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n", 9}};

enum { HALVES = sizeof halves / sizeof *halves };

static void send_half(int fd, const struct half *h)
{
    static const char blanks[4096] = {[0 ... 4095] = ' '};
    http_write(fd, h->text, strlen(h->text));
    for (size_t n = 0, left = h->blanks; left; left -= n) {
        n = left < sizeof blanks ? left : sizeof blanks;
        http_write(fd, blanks, n);
    }
}

static void expect_health(int port, const char *what)
{
    struct reply r = http(port, "GET", "/health", NULL);
    CHECK(r.status == 200, "/health beside %s: status %d", what, r.status);
    reply_free(&r);
}

/* ---- Closing early ---- */

/* At once; or when the server knows them all, and has read what it reads. */
static void close_half(const struct running *s, const struct half *h, bool at_once)
{
    enum { CLIENTS = 40 };
    int fd[CLIENTS], before = descriptors(s->pid);
    for (int i = 0; i < CLIENTS; i++) {
        send_half(fd[i] = http_connect(s->port), h);
        if (at_once) close(fd[i]);
    }
    for (int i = 0; i < 6000 && !at_once && metric(s->port, "coda_http_connections") <= CLIENTS; i++)
        usleep(10000);
    for (int i = 0; i < CLIENTS && !at_once; i++) close(fd[i]);
    CHECK(descriptors_become(s->pid, before), "%d connections of clients that sent %s and closed are left",
          descriptors(s->pid) - before, h->what);
    expect_health(s->port, h->what);
}

static void test_closing(const char *program)
{
    struct running s = server_start(program, (const char *const[]){NEVER, NULL});
    for (int i = 0; i < HALVES; i++) {
        close_half(&s, &halves[i], false);
        close_half(&s, &halves[i], true);
    }
    CHECK(server_stop(&s) == 0, "the server did not end well after clients closed early");
}

/* A request that runs, then bytes that nobody reads, then the end, or half of it. */
static void test_behind(const char *program)
{
    static const char *const behind[] = {"", "\r\n", "G", "POST " TEXT " HTTP/1.1\r\n"};
    struct running s =
        server_start(program, (const char *const[]){NEVER, "--context", "65536", "--pages", "4096", NULL});
    for (int i = 0; i < 8; i++) {
        double aborted = metric(s.port, ABORTED);
        int fd = ask_begin(
            s.port, TEXT,
            i & 1 ? LONG
                  : "{\"stream\": true, \"prompt\": \"a\", \"max_tokens\": 60000, \"ignore_eos\": true}");
        CHECK(metric_becomes(s.port, "coda_num_requests_running", 1), "nothing runs");
        http_write(fd, behind[i / 2], strlen(behind[i / 2]));
        if (i % 3) close(fd);
        else shutdown(fd, SHUT_WR);
        CHECK(metric_becomes(s.port, ABORTED, aborted + 1), "a request runs on behind '%s' and %s",
              behind[i / 2], i % 3 ? "a close" : "half a close");
        if (!(i % 3)) close(fd);
    }
    CHECK(server_stop(&s) == 0, "the server did not end well after clients closed behind a request");
}

/* ---- More clients than there are places ---- */

static void check_served(int port, int slow)
{
    struct reply r = http(port, "POST", TEXT, "{\"prompt\": \"a\", \"max_tokens\": 2}");
    CHECK(r.status == 200, "a completion beside %d slow clients: status %d", slow, r.status);
    reply_free(&r);
    expect_health(port, "slow clients");
}

/* Every fourth one has had an answer, and keeps its connection. */
static void begin_slow(int fd, int i)
{
    static const char whole[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (i % 4) return send_half(fd, &halves[i % HALVES]);
    http_write(fd, whole, sizeof whole - 1);
    CHECK(http_read_until(fd, "ok"), "slow client %d: no answer", i);
}

static void test_crowd(const char *program)
{
    enum { CLIENTS = 160 };
    int fd[CLIENTS];
    char byte;
    struct running s = server_start(program, (const char *const[]){NEVER, "--queue", "4", "--sequences", "2",
                                                                   "--connections", "32", NULL});
    int before = descriptors(s.pid);
    for (int i = 0; i < CLIENTS; i++) {
        begin_slow(fd[i] = http_connect(s.port), i);
        if (i % 16 == 15) check_served(s.port, i + 1);
    }
    CHECK(descriptors(s.pid) <= before + 32 + 8 + 64, "%d descriptors, %d before", descriptors(s.pid),
          before);
    CHECK(metric(s.port, "coda_http_evicted_total") >= CLIENTS - 32, "%g clients had to go",
          metric(s.port, "coda_http_evicted_total"));
    CHECK(recv(fd[1], &byte, 1, 0) <= 0 && errno != EAGAIN, "the oldest of the slow clients is still there");
    for (int i = 0; i < CLIENTS; i++) close(fd[i]);
    CHECK(descriptors_become(s.pid, before), "slow clients have left descriptors");
    CHECK(server_stop(&s) == 0, "the server did not end well after slow clients");
}

/* ---- Deadlines: bytes that come one by one do not move them ---- */

static bool drip_until_closed(int fd)
{
    for (int i = 0; i < 1200; i++) {
        struct pollfd p = {fd, POLLIN | POLLRDHUP, 0};
        if (send(fd, "a", 1, MSG_NOSIGNAL) < 0) return true;
        if (poll(&p, 1, 50) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR)) return true;
    }
    return false;
}

static void test_deadlines(const char *program)
{
    static const char whole[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct running s = server_start(
        program, (const char *const[]){"--header-s", "1", "--body-s", "1", "--idle-s", "1", NULL});
    for (int i = 0; i < HALVES; i++) {
        int fd = http_connect(s.port);
        send_half(fd, &halves[i]);
        CHECK(drip_until_closed(fd), "who sent %s, and then a byte at a time, stays", halves[i].what);
        close(fd);
    }
    int fd = http_connect(s.port);
    http_write(fd, whole, sizeof whole - 1);
    CHECK(http_read_until(fd, "ok"), "no answer");
    CHECK(drip_until_closed(fd), "who had an answer, and sends a byte at a time, stays");
    close(fd);
    CHECK(metric(s.port, "coda_http_late_total") >= 5, "%g clients were late",
          metric(s.port, "coda_http_late_total"));
    CHECK(server_stop(&s) == 0, "the server did not end well after deadlines");
}

/* A stream of some MB that its client does not read. */
static void test_unread(const char *program)
{
    struct running s = server_start(
        program, (const char *const[]){"--answer-s", "1", "--context", "65536", "--pages", "4096", NULL});
    const int small = 4096;
    int fd = http_connect(s.port);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    http_send(
        fd, "POST", TEXT,
        "{\"prompt\": \"a\", \"max_tokens\": 60000, \"ignore_eos\": true, \"logprobs\": 20, \"stream\": "
        "true}");
    CHECK(metric_becomes(s.port, ABORTED, 1), "a stream that nobody reads runs on");
    close(fd);
    CHECK(server_stop(&s) == 0, "the server did not end well after a stream that nobody read");
}

/* ---- The memory of all bodies ---- */

static void test_body_bytes(const char *program)
{
    static const char tail[] = "{\"prompt\": \"a\", \"max_tokens\": 2}";
    struct running s = server_start(program, (const char *const[]){NEVER, "--body-mib", "1", NULL});
    const struct half much = {"", HEADER("1000000"), 700000};
    char *body = malloc(700001);
    int fd = http_connect(s.port);
    memset(body, ' ', 700000);
    memcpy(body + 700000 - sizeof tail + 1, tail, sizeof tail);
    send_half(fd, &much);
    for (int i = 0; i < 6000 && metric(s.port, "coda_http_body_bytes") < 700000; i++) usleep(10000);
    struct reply r = http(s.port, "POST", TEXT, body);
    CHECK(r.status == 503 && strstr(r.body, "bodies_full") && strstr(r.head, "Retry-After: 1"),
          "a body beyond the limit of all: status %d: %s", r.status, r.body ? r.body : "");
    reply_free(&r);
    check_served(s.port, 1);
    close(fd);
    CHECK(metric_becomes(s.port, "coda_http_body_bytes", 0), "the body of a client that has gone is kept");
    r = http(s.port, "POST", TEXT, body);
    CHECK(r.status == 200, "a body within the limit of all: status %d", r.status);
    reply_free(&r);
    CHECK(metric(s.port, "coda_http_body_bytes") == 0, "a body that was answered is kept");
    free(body);
    CHECK(server_stop(&s) == 0, "the server did not end well after bodies");
}

/* ---- Prompts that take long to make ---- */

/* A template that works as long as one may, which is some tenths of a second, if it is asked to. */
#define TEMPLATE                                                                                             \
    "{% if slow is defined %}{% for i in range(100000) %}{% set x = 'a' ~ i ~ 'b' %}{% set y = x | upper "   \
    "%}{% endfor %}{% endif %}hi"
#define HI "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_tokens\": 1"
#define SLOW "{" HI ", \"chat_template_kwargs\": {\"slow\": 1}}"

static void expect_chat(int port, const char *body, int status, const char *has, const char *what)
{
    struct reply r = http(port, "POST", CHAT, body);
    CHECK(r.status == status && strstr(r.body, has), "%s: status %d, not %d with %s: %s", what, r.status,
          status, has, r.body ? r.body : "");
    reply_free(&r);
}

static void test_late_prompt(const char *program, const char *folder)
{
    struct running s = server_start(
        program, (const char *const[]){NEVER, "--context", "96", "--prompt-ms", "1", folder, NULL});
    expect_chat(s.port, SLOW, 400, "prompt_timeout", "a prompt that takes too long to make");
    CHECK(server_stop(&s) == 0, "the server did not end well after a prompt that was late");
}

enum { MANY = 400 }; /* slow prompts: one after the other they would take minutes */

/* All are sent before the server sees the first of them. */
static void ask_many(const struct running *s, int *fd, int count)
{
    kill(s->pid, SIGSTOP);
    for (int i = 0; i < count; i++) fd[i] = ask_begin(s->port, CHAT, SLOW);
    kill(s->pid, SIGCONT);
}

/* Replies by status: how many have this one, and say why. */
static int count_replies(int *fd, int count, int status, const char *has)
{
    int found = 0, none = 0;
    for (int i = 0; i < count; i++) {
        struct reply r = http_receive(fd[i]);
        none += !r.status;
        found += r.status == status && strstr(r.body, has);
        reply_free(&r);
    }
    CHECK(!none, "no reply to %d prompts of %d", none, count);
    return found;
}

static void test_full_pool(const char *program, const char *folder)
{
    enum { ASKED = 20 };
    int fd[ASKED];
    struct running s = server_start(program, (const char *const[]){NEVER, "--context", "96", "--threads", "1",
                                                                   "--queue", "2", folder, NULL});
    ask_many(&s, fd, ASKED);
    expect_health(s.port, "prompts that are being made");
    int refused = count_replies(fd, ASKED, 429, "queue_full");
    CHECK(refused > 0 && refused < ASKED, "%d prompts of %d are refused where two may wait", refused, ASKED);
    CHECK(server_stop(&s) == 0, "the server did not end well after many prompts");
}

/* Prompts that nobody waits for are not made: of clients that have gone, and at SIGTERM. */
static void test_many_prompts(const char *program, const char *folder)
{
    static int fd[MANY];
    struct running s = server_start(program, (const char *const[]){NEVER, "--context", "96", "--threads", "1",
                                                                   "--queue", "512", folder, NULL});
    ask_many(&s, fd, MANY);
    expect_health(s.port, "many prompts");
    for (int i = 0; i < MANY; i++) close(fd[i]);
    expect_chat(s.port, "{" HI "}", 200, "chat.completion", "behind prompts of clients that are gone");
    ask_many(&s, fd, MANY);
    expect_health(s.port, "many prompts");
    kill(s.pid, SIGTERM);
    int told = count_replies(fd, MANY, 503, "draining");
    CHECK(told > MANY / 2, "%d of %d clients are told of SIGTERM", told, MANY);
    CHECK(server_wait(&s) == 0, "the server did not end well while prompts were made");
}

static void test_prompts(const char *program)
{
    char base[] = "/tmp/chat_test_XXXXXX", folder[64], command[96];
    if (!mkdtemp(base)) return CHECK(false, "no folder");
    snprintf(folder, sizeof folder, "%s/letters", base);
    put_letters(folder);
    put_file(folder, "chat_template.jinja", TEMPLATE);
    test_late_prompt(program, folder);
    test_full_pool(program, folder);
    test_many_prompts(program, folder);
    snprintf(command, sizeof command, "rm -rf %s", base);
    CHECK(!system(command), "%s", command);
}

/* A text of more bytes than its tokens could be is not read: many of them are refused in no time. */
static void test_too_long(const char *program)
{
    enum { BYTES = 1 << 20 };
    char *body = malloc(BYTES);
    int n = snprintf(body, BYTES, "{\"prompt\": \"");
    memset(body + n, 'a', (size_t)(BYTES - n));
    strcpy(body + BYTES - 3, "\"}");
    struct running s = server_start(program, (const char *const[]){NEVER, NULL});
    struct reply r = http(s.port, "POST", TEXT, body);
    CHECK(r.status == 400 && strstr(r.body, "context_length_exceeded"),
          "a text that cannot fit: status %d: %s", r.status, r.body ? r.body : "");
    reply_free(&r);
    free(body);
    CHECK(server_stop(&s) == 0, "the server did not end well after a text that could not fit");
}

void test_pressure(const char *program)
{
    test_closing(program);
    test_behind(program);
    test_crowd(program);
    test_deadlines(program);
    test_unread(program);
    test_body_bytes(program);
    test_prompts(program);
    test_too_long(program);
}
