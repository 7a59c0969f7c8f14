/*
 * leaving.c -- clients that go away, queues that are full, servers that end: nobody keeps pages, and who
 * stays gets all of the answer.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chat_pool.h"
#include "chat_test.h"

#define TEXT "/v1/completions"
#define ABORTED "coda_request_success_total{model_name=\"tiny\",finished_reason=\"abort\"}"

/* An answer that takes longer than the test. */
#define LONG "\"prompt\": \"a\", \"max_tokens\": 60000, \"ignore_eos\": true"

#define WHOLE "{\"prompt\": \"b\", \"max_tokens\": 100, \"temperature\": 0}"
#define STREAMED                                                                                             \
    "{\"prompt\": \"a\", \"max_tokens\": 100, \"temperature\": 0, \"stream\": true, "                        \
    "\"stream_options\": {\"include_usage\": true}}"

enum { VANISHING = 24, STAYING = 4 };

static int begin(int port, const char *body)
{
    int fd = http_connect(port);
    http_send(fd, "POST", TEXT, body);
    return fd;
}

/* Reads some bytes, or none, and closes. */
static void vanish(int fd, int bytes)
{
    char byte;
    for (int i = 0; i < bytes; i++)
        if (recv(fd, &byte, 1, 0) <= 0) break;
    close(fd);
}

struct staying {
    pthread_t thread;
    int port, i;
    struct answer *alone, *beside;
};

static void *stay(void *context)
{
    struct staying *c = context;
    char body[256];
    snprintf(body, sizeof body,
             "{\"prompt\": \"stay %d\", \"max_tokens\": 40, \"seed\": %d, \"stream\": true, "
             "\"return_token_ids\": true}",
             c->i, c->i);
    c->beside = ask(c->port, TEXT, body, true);
    return NULL;
}

/* Until so many requests were taken, finished ones included. Who is finished is counted first, so that none
 * on its way is counted twice. */
static bool has_taken(int port, int requests)
{
    for (int i = 0; i < 6000; i++, usleep(10000)) {
        double finished = metric(port, "coda_e2e_request_latency_seconds_count");
        double running = metric(port, "coda_num_requests_running");
        if (finished + running + metric(port, "coda_num_requests_waiting") >= requests) return true;
    }
    return false;
}

/* Of 28 clients four stay. The others leave at all places of their streams, or while they wait. */
static void test_vanishing(int port)
{
    struct staying staying[STAYING];
    int fd[VANISHING];
    double aborted = metric(port, ABORTED);
    for (int i = 0; i < STAYING; i++) {
        staying[i] = (struct staying){.port = port, .i = i};
        stay(&staying[i]);
        staying[i].alone = staying[i].beside;
    }
    for (int i = 0; i < VANISHING; i++)
        fd[i] = begin(port, i % 3 ? "{\"stream\": true, " LONG "}" : "{" LONG "}");
    CHECK(has_taken(port, STAYING + VANISHING), "the server has not taken all requests");
    for (int i = 0; i < STAYING; i++) pthread_create(&staying[i].thread, NULL, stay, &staying[i]);
    for (int i = 0; i < VANISHING; i++) vanish(fd[i], i % 3 ? i * i * 10 : 0);
    for (int i = 0; i < STAYING; i++) {
        pthread_join(staying[i].thread, NULL);
        CHECK(answers_equal(staying[i].alone, staying[i].beside),
              "client %d, beside some that vanish: %d tokens", i, staying[i].beside->count);
        answer_free(staying[i].alone);
        answer_free(staying[i].beside);
    }
    CHECK(metric_becomes(port, "coda_num_requests_running", 0), "requests of clients that are gone run");
    CHECK(metric_becomes(port, "coda_num_requests_waiting", 0), "requests of clients that are gone wait");
    CHECK(metric(port, "coda_kv_cache_usage_perc") == 0, "pages are left");
    CHECK(metric(port, ABORTED) == aborted + VANISHING, "%g aborted, not %d", metric(port, ABORTED) - aborted,
          VANISHING);
}

/* One runs, two wait, the fourth is refused; a stream that waits hears from the server. */
static void test_full_queue(int port)
{
    int fd[3];
    fd[0] = begin(port, "{" LONG "}");
    CHECK(metric_becomes(port, "coda_num_requests_running", 1), "nothing runs");
    fd[1] = begin(port, "{\"stream\": true, " LONG "}");
    CHECK(metric_becomes(port, "coda_num_requests_waiting", 1), "nothing waits");
    fd[2] = begin(port, "{" LONG "}");
    CHECK(metric_becomes(port, "coda_num_requests_waiting", 2), "two do not wait");
    struct reply r = http(port, "POST", TEXT, "{\"prompt\": \"a\"}");
    CHECK(r.status == 429 && strstr(r.head, "Retry-After: 1") && strstr(r.body, "queue_full"),
          "a queue that is full: status %d: %s", r.status, r.body ? r.body : "");
    reply_free(&r);
    CHECK(http_read_until(fd[1], ": ping\n\n"), "a stream that waits hears nothing");
    for (int i = 2; i >= 0; i--) close(fd[i]);
    CHECK(metric_becomes(port, "coda_num_requests_waiting", 0), "clients that are gone wait");
    CHECK(metric_becomes(port, "coda_num_requests_running", 0), "a client that is gone runs");
    r = http(port, "POST", TEXT, "{\"prompt\": \"a\"}");
    CHECK(r.status == 200, "after a full queue: status %d", r.status);
    reply_free(&r);
}

static void *read_all(void *context)
{
    struct reply *r = context;
    *r = http_receive(r->status); /* its socket, until the reply is there */
    return NULL;
}

/* Are two replies equal from a word on? What is before it has a time and a number. */
static bool same_from(const struct reply *a, const struct reply *b, const char *word)
{
    const char *x = a->status == 200 && a->whole ? strstr(a->body, word) : NULL;
    const char *y = b->status == 200 && b->whole ? strstr(b->body, word) : NULL;
    return x && y && !strcmp(x, y);
}

/* SIGTERM: what runs is finished, whole and as a stream; new requests are refused; then the process ends. */
static void test_drain(const char *program)
{
    struct running s =
        server_start(program, (const char *const[]){"--context", "65536", "--pages", "4096", NULL});
    struct reply streamed, whole, r;
    struct reply alone_streamed = http(s.port, "POST", TEXT, STREAMED);
    struct reply alone = http(s.port, "POST", TEXT, WHOLE);
    pthread_t reader[2];
    int holder = begin(s.port, "{\"stream\": true, " LONG "}");
    CHECK(http_read_until(holder, "data: "), "no stream");
    streamed.status = begin(s.port, STREAMED);
    whole.status = begin(s.port, WHOLE);
    CHECK(has_taken(s.port, 5), "the server has not taken five requests");
    kill(s.pid, SIGTERM);
    pthread_create(&reader[0], NULL, read_all, &streamed);
    pthread_create(&reader[1], NULL, read_all, &whole);
    for (r = http(s.port, "GET", "/health", NULL); r.status == 200; r = http(s.port, "GET", "/health", NULL))
        reply_free(&r);
    CHECK(r.status == 503 && strstr(r.body, "draining"), "/health while draining: %d", r.status);
    reply_free(&r);
    r = http(s.port, "POST", TEXT, "{\"prompt\": \"a\"}");
    CHECK(r.status == 503, "a request while draining: %d", r.status);
    reply_free(&r);
    pthread_join(reader[0], NULL);
    pthread_join(reader[1], NULL);
    CHECK(same_from(&streamed, &alone_streamed, "\"usage\""), "a stream was cut off by SIGTERM: %s",
          streamed.body ? streamed.body : "");
    CHECK(same_from(&whole, &alone, "\"choices\""), "a request was cut off by SIGTERM: %s",
          whole.body ? whole.body : "");
    reply_free(&alone_streamed);
    reply_free(&alone);
    reply_free(&streamed);
    reply_free(&whole);
    close(holder);
    CHECK(server_wait(&s) == 0, "the server did not end well after SIGTERM");
}

/* A second SIGTERM ends what runs: its stream says so, and ends in [DONE]. */
static void test_abort(const char *program)
{
    struct running s =
        server_start(program, (const char *const[]){"--context", "65536", "--pages", "4096", NULL});
    int fd = begin(s.port, "{\"stream\": true, " LONG "}");
    CHECK(http_read_until(fd, "data: "), "no stream");
    kill(s.pid, SIGTERM);
    struct reply r = http(s.port, "GET", "/health", NULL);
    for (; r.status == 200; r = http(s.port, "GET", "/health", NULL)) reply_free(&r);
    reply_free(&r);
    kill(s.pid, SIGTERM);
    CHECK(http_read_until(fd, "data: [DONE]"), "a stream that is cut off does not say so");
    close(fd);
    CHECK(server_wait(&s) == 0, "the server did not end well after two SIGTERM");
}

/* SIGTERM at any moment of a start: this model takes longer to load than the first of them. */
static void test_early_end(const char *program)
{
    for (int i = 0; i < 5; i++) {
        struct running s =
            server_start_early(program, (const char *const[]){"--random", "perf/models/small.json", NULL});
        usleep((useconds_t)i * 20000);
        CHECK(server_stop(&s) == 0, "the server did not end well before it was ready");
    }
}

/* ---- A pool that ends while jobs come ---- */

static atomic_int runs, cancelled, dones;

static void count_run(struct job *j)
{
    usleep(1000);
    atomic_fetch_add(&runs, 1);
    if (atomic_load(&j->cancelled)) atomic_fetch_add(&cancelled, 1);
}

static void count_done(struct job *j)
{
    (void)j;
    atomic_fetch_add(&dones, 1);
}

enum { JOBS = 8 };

static void *add_jobs(void *context)
{
    static struct job job[JOBS];
    for (int i = 0; i < JOBS; i++) {
        job[i].run = count_run;
        job[i].done = count_done;
        pool_add(context, &job[i]);
        usleep(500);
    }
    return NULL;
}

/* Who waits for a job is told, whether it came before the pool's end, during it or behind it: a connection
 * that stays suspended ends the process. */
static void test_pool(void)
{
    pthread_t thread;
    struct pool *p = pool_new(2, 4);
    CHECK(p && !pthread_create(&thread, NULL, add_jobs, p), "no pool");
    if (!p) return;
    usleep(1000);
    CHECK(pool_stop(p, 60), "a pool does not stop");
    pthread_join(thread, NULL);
    struct job late = {.run = count_run, .done = count_done};
    int before = atomic_load(&cancelled);
    pool_add(p, &late);
    CHECK(atomic_load(&runs) == JOBS + 1 && atomic_load(&dones) == JOBS + 1, "of %d jobs %d ran, %d ended",
          JOBS + 1, atomic_load(&runs), atomic_load(&dones));
    CHECK(atomic_load(&cancelled) == before + 1, "a job behind the pool's end was not cancelled");
    pool_free(p);
}

void test_leaving(const char *program)
{
    test_pool();
    struct running s =
        server_start(program, (const char *const[]){"--context", "65536", "--pages", "8192", NULL});
    test_vanishing(s.port);
    CHECK(server_stop(&s) == 0, "the server did not end well after clients vanished");
    s = server_start(program, (const char *const[]){"--context", "65536", "--pages", "4096", "--sequences",
                                                    "1", "--queue", "2", "--ping-ms", "20", NULL});
    test_full_queue(s.port);
    CHECK(server_stop(&s) == 0, "the server did not end well after its queue was full");
    test_drain(program);
    test_abort(program);
    test_early_end(program);
}
