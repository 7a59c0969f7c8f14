/*
 * siege.c -- 1,100 clients that close early or are slow, for a while, and then eight whose prompts have 1 MB
 * beside a stream. What must hold is tested: /health is answered all the time, and nothing is left. How long
 * it takes is printed: it is the machine's, too.
 *
 *     CHAT_SIEGE_SECONDS=600 ../../build/serving/chat_test ../../build/serving/chat_server siege
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "chat_test.h"

#define FOLDER "stories260K/"
#define TEXT "/v1/completions"

enum { CLIENTS = 1100, MOST_TIMES = 1 << 17, HEAVY = 8, MEGABYTE = 1 << 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- Times ---- */

struct times {
    double ms[MOST_TIMES];
    int count;
};

static void add_time(struct times *t, double seconds)
{
    if (t->count < MOST_TIMES) t->ms[t->count++] = seconds * 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *what, struct times *t)
{
    if (!t->count) return;
    qsort(t->ms, (size_t)t->count, sizeof *t->ms, compare);
    printf("%-34s %6d times, ms: p50 %.2f, p99 %.2f, most %.2f\n", what, t->count, t->ms[t->count / 2],
           t->ms[t->count * 99 / 100], t->ms[t->count - 1]);
}

/* ---- What a process has ---- */

static long memory_kb(pid_t pid)
{
    char path[64], line[128];
    long kb = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "VmRSS: %ld", &kb);
    if (f) fclose(f);
    return kb;
}

int descriptors(pid_t pid)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

bool descriptors_become(pid_t pid, int most)
{
    for (int i = 0; i < 6000; i++, usleep(10000))
        if (descriptors(pid) <= most) return true;
    return false;
}

/* ---- Clients that close or are slow ---- */

struct attack {
    pthread_t thread;
    int port;
    atomic_bool stop;
    uint64_t random;
    long connected;
};

/* What the next byte, or all of them, are taken from. */
static const char parts[] =
    "POST " TEXT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    "{\"prompt\": \"Once upon a time there was a little girl named Lily. She loved to";

struct slow {
    int fd; /* -1: none */
    size_t sent;
    double next; /* when it does something again */
    bool quick;  /* it sends some, and closes */
};

static uint64_t draw(struct attack *a, uint64_t below)
{
    a->random = a->random * 6364136223846793005u + 1442695040888963407u;
    return (a->random >> 33) % below;
}

static int connect_now(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) && errno != EINPROGRESS) close(fd), fd = -1;
    return fd;
}

/* Half of them are quick and come back within two seconds; half send a byte every 20 seconds. */
static void act(struct attack *a, struct slow *s, double t)
{
    if (s->fd >= 0 && s->quick) {
        ssize_t n = send(s->fd, parts, draw(a, sizeof parts), MSG_NOSIGNAL);
        if (n > 0 && !draw(a, 3)) shutdown(s->fd, SHUT_WR);
        close(s->fd);
        s->fd = -1;
        s->next = t + (double)draw(a, 2000) * 1e-3;
        return;
    }
    if (s->fd >= 0 && send(s->fd, parts + s->sent++ % (sizeof parts - 1), 1, MSG_NOSIGNAL) < 0) {
        close(s->fd);
        s->fd = -1;
    }
    if (s->fd < 0) {
        s->fd = connect_now(a->port);
        s->sent = draw(a, sizeof parts - 1);
        a->connected++;
    }
    s->next = t + (s->quick ? 0.02 : 20);
}

static void *attack_main(void *arg)
{
    static struct slow slow[CLIENTS];
    struct attack *a = arg;
    for (int i = 0; i < CLIENTS; i++) slow[i] = (struct slow){.fd = -1, .quick = i & 1};
    while (!atomic_load(&a->stop)) {
        double t = now();
        for (int i = 0; i < CLIENTS; i++)
            if (slow[i].next <= t) act(a, &slow[i], t);
        usleep(2000);
    }
    for (int i = 0; i < CLIENTS; i++)
        if (slow[i].fd >= 0) close(slow[i].fd);
    return NULL;
}

/* ---- /health meanwhile ---- */

static void probe(int port, double until, struct times *t, const char *beside)
{
    int failed = 0, asked = 0;
    for (; !asked || now() < until; asked++, usleep(10000)) { /* once, however late it is */
        double began = now();
        struct reply r = http(port, "GET", "/health", NULL);
        failed += r.status != 200;
        reply_free(&r);
        add_time(t, now() - began);
    }
    CHECK(asked && !failed, "/health beside %s: %d of %d failed", beside, failed, asked);
}

/* It comes back after some seconds. Sanitizers keep what is freed. */
static void check_memory(pid_t pid, long before, const char *what)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    enum { MORE_KB = 16 << 10 };
    for (int i = 0; i < 1200 && memory_kb(pid) > before + MORE_KB; i++) usleep(50000);
    CHECK(memory_kb(pid) <= before + MORE_KB, "%ld kB are resident after %s, %ld before", memory_kb(pid),
          what, before);
#else
    (void)pid, (void)before, (void)what;
#endif
}

static void besiege(const struct running *s, double seconds)
{
    static struct times before, during;
    struct attack a = {.port = s->port, .random = 7};
    probe(s->port, now() + 1, &before, "nobody");
    int files = descriptors(s->pid);
    long kb = memory_kb(s->pid);
    pthread_create(&a.thread, NULL, attack_main, &a);
    probe(s->port, now() + seconds, &during, "a siege");
    long most = memory_kb(s->pid);
    atomic_store(&a.stop, true);
    pthread_join(a.thread, NULL);
    CHECK(descriptors_become(s->pid, files), "%d descriptors after a siege, %d before", descriptors(s->pid),
          files);
    check_memory(s->pid, kb, "a siege");
    print_times("/health, nobody else", &before);
    print_times("/health beside 1,100 clients", &during);
    printf("%ld connections in %.0f s; descriptors %d, then %d; resident kB %ld, %ld, then %ld\n",
           a.connected, seconds, files, descriptors(s->pid), kb, most, memory_kb(s->pid));
}

/* ---- Prompts of 1 MB beside a stream ---- */

struct heavy {
    pthread_t thread;
    int port, kind;
    double until;
    char *body;
    long answered, failed;
};

/* A text; tokens; an object that is ignored. */
static void write_heavy(struct heavy *h)
{
    static const char *const head[] = {"{\"prompt\": \"", "{\"prompt\": [",
                                       "{\"prompt\": \"a\", \"max_tokens\": 1, \"x\": ["};
    static const char *const each[] = {"Once upon a time, ", "7,", "{},"};
    static const char *const tail[] = {"\"}", "7]}", "0]}"};
    int k = h->kind, n = 0;
    h->body = malloc(MEGABYTE);
    n = snprintf(h->body, MEGABYTE, "%s", head[k]);
    while (n + 64 < MEGABYTE) n += snprintf(h->body + n, 64, "%s", each[k]);
    strcpy(h->body + n, tail[k]);
}

static void *heavy_main(void *arg)
{
    struct heavy *h = arg;
    while (now() < h->until) {
        struct reply r = http(h->port, "POST", TEXT, h->body);
        h->answered++;
        h->failed += r.status != (h->kind == 2 ? 200 : 400) && r.status != 429 && r.status != 503;
        reply_free(&r);
    }
    return NULL;
}

struct stream {
    pthread_t thread;
    int port;
    double until;
    struct times gaps;
};

/* Times between pieces of streams, one stream after the other. */
static void *stream_main(void *arg)
{
    struct stream *s = arg;
    char data[1 << 14];
    while (now() < s->until) {
        double last = 0;
        ssize_t n;
        int fd =
            ask_begin(s->port, TEXT,
                      "{\"prompt\": \"Once\", \"max_tokens\": 480, \"ignore_eos\": true, \"stream\": true}");
        while (now() < s->until && (n = recv(fd, data, sizeof data, 0)) > 0) {
            double t = now();
            if (last > 0) add_time(&s->gaps, t - last);
            last = t;
        }
        close(fd);
    }
    return NULL;
}

static void weigh(const struct running *s, int clients, double seconds)
{
    static struct stream stream;
    static struct times health;
    struct heavy heavy[HEAVY] = {0};
    char what[64];
    double until = now() + seconds;
    stream = (struct stream){.port = s->port, .until = until};
    health.count = 0;
    pthread_create(&stream.thread, NULL, stream_main, &stream);
    for (int i = 0; i < clients; i++) {
        heavy[i] = (struct heavy){.port = s->port, .kind = i % 3, .until = until};
        write_heavy(&heavy[i]);
        pthread_create(&heavy[i].thread, NULL, heavy_main, &heavy[i]);
    }
    probe(s->port, until, &health, "prompts of 1 MB");
    pthread_join(stream.thread, NULL);
    long answered = 0;
    for (int i = 0; i < clients; i++) {
        pthread_join(heavy[i].thread, NULL);
        CHECK(!heavy[i].failed, "prompts of 1 MB, of kind %d: %ld of %ld failed", i % 3, heavy[i].failed,
              heavy[i].answered);
        answered += heavy[i].answered;
        free(heavy[i].body);
    }
    snprintf(what, sizeof what, "/health, %d clients of 1 MB", clients);
    print_times(what, &health);
    snprintf(what, sizeof what, "a stream's gaps, %d clients of 1 MB", clients);
    print_times(what, &stream.gaps);
    if (clients)
        printf("%ld prompts of 1 MB in %.0f s; resident kB %ld\n", answered, seconds, memory_kb(s->pid));
}

void test_siege(const char *program)
{
    const char *text = getenv("CHAT_SIEGE_SECONDS");
    double seconds = text ? atof(text) : 1, heavy = seconds < 20 ? seconds : 20;
    struct rlimit files = {.rlim_cur = 4096, .rlim_max = 4096};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max < 8192 ? files.rlim_max : 8192;
    setrlimit(RLIMIT_NOFILE, &files);
    struct running s = server_start(program, (const char *const[]){FOLDER "stories260K.gguf", NULL});
    weigh(&s, 0, heavy);
    long kb = memory_kb(s.pid);
    besiege(&s, seconds);
    weigh(&s, HEAVY, heavy);
    check_memory(s.pid, kb, "prompts of 1 MB");
    CHECK(server_stop(&s) == 0, "the server did not end well after a siege");
}
