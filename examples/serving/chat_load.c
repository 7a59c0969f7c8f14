/*
 * chat_load.c -- asks a server of completions as many users would, and says how long they wait.
 *
 *     chat_load --port 8080 --rate 20 --requests 400 --prompt 8..200 --answer 4..64   --help: the rest
 *
 * The loop is open: requests are due at random times (Poisson, at a rate), whether or not earlier ones are
 * answered, and latencies count from when one was due. So a server that falls behind is seen to. Answers are
 * streams, and each must end in [DONE]. With --clients N the loop is closed: each of N clients sends its
 * next request when it has its answer. With --seconds S the run ends then, whatever is unfinished. With
 * --verify each request is sent once more, alone, and must get the same answer. Exit status 1 if anything
 * was not as it should be.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "load.h"
#include "progress.h"
#include "standard.h"
#include "tensor.h"
#include "usage.h"

enum { MOST_PROMPT = 1 << 16, ROOM = MOST_PROMPT + 1024 };

struct range {
    int least, most;
};

static struct settings {
    const char *host, *port, *path, *model, *csv, *json, *label;
    double rate, temperature, timeout, seconds, wait, window, since;
    int requests, clients;
    struct range prompt, answer;
    uint64_t seed;
    bool verify;
} opt = {.host = "127.0.0.1",
         .port = "8080",
         .path = "/v1/completions",
         .rate = 10,
         .timeout = 60,
         .requests = 100,
         .seconds = 1e9,
         .window = 1,
         .label = "",
         .prompt = {8, 128},
         .answer = {4, 64},
         .seed = 1};

/* ---- Connections ---- */

struct link {
    int fd;
    size_t sent, bytes; /* of out */
    char out[ROOM];
    double heard; /* the last time that something came or went */
    struct reply reply;
};

static struct addrinfo *server;
static struct progress asking, verifying;

static double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Letters and blanks, the same for the same seed. */
static int write_prompt(char *to, const struct asked *a)
{
    uint64_t state = a->seed;
    for (int i = 0; i < a->prompt; i++) {
        int letter = (int)(uniform(&state) * 31);
        to[i] = letter < 26 ? (char)('a' + letter) : ' ';
    }
    return a->prompt;
}

static void write_request(struct link *l, const struct asked *a)
{
    char body[ROOM];
    int n = 0, room = (int)sizeof body;
    n += snprintf(body, (size_t)room, "{");
    if (opt.model) n += snprintf(body + n, (size_t)(room - n), "\"model\":\"%.100s\",", opt.model);
    n += snprintf(body + n, (size_t)(room - n),
                  "\"max_tokens\":%d,\"temperature\":%g,\"seed\":%d,\"ignore_eos\":true,\"stream\":true,"
                  "\"stream_options\":{\"include_usage\":true},\"return_token_ids\":true,\"prompt\":\"",
                  a->most, opt.temperature, (int)(a->seed & 0x7fffffff));
    n += write_prompt(body + n, a);
    n += snprintf(body + n, (size_t)(room - n), "\"}");
    l->bytes = (size_t)snprintf(l->out, sizeof l->out,
                                "POST %s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\n"
                                "Connection: close\r\nContent-Length: %d\r\n\r\n%s",
                                opt.path, opt.host, opt.port, n, body);
}

static struct link *link_open(struct asked *a, double now)
{
    struct link *l = calloc(1, sizeof *l);
    if (!l) return asked_fail(a, "out of memory"), NULL;
    l->fd = socket(server->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0 || (connect(l->fd, server->ai_addr, server->ai_addrlen) && errno != EINPROGRESS)) {
        asked_fail(a, "cannot connect: %s", strerror(errno));
        if (l->fd >= 0) close(l->fd);
        free(l);
        return NULL;
    }
    write_request(l, a);
    l->heard = now;
    reply_begin(&l->reply, a);
    return l;
}

static bool send_more(struct link *l)
{
    ssize_t n = send(l->fd, l->out + l->sent, l->bytes - l->sent, MSG_NOSIGNAL);
    if (n > 0) l->sent += (size_t)n;
    if (n >= 0 || errno == EAGAIN || errno == EINTR) return true;
    asked_fail(l->reply.of, "cannot send: %s", strerror(errno));
    return false;
}

/* false: nothing more will come. */
static bool receive_more(struct link *l, double now, struct gaps *gaps)
{
    char data[1 << 16];
    ssize_t n = recv(l->fd, data, sizeof data, 0);
    if (n > 0) reply_feed(&l->reply, data, (size_t)n, now, gaps);
    if (n < 0 && errno != EAGAIN && errno != EINTR) asked_fail(l->reply.of, "%s", strerror(errno));
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* ---- The loop ---- */

struct loop {
    struct run *run;
    struct link **link; /* open ones */
    struct pollfd *fds;
    struct asked **again; /* those that a server that is not ready has not answered yet */
    int open, waiting, next;
    double began;
};

enum { ASK_AGAIN_MS = 50 };

static double now_in(const struct loop *p) { return clock_seconds() - p->began; }

/* A server that starts refuses connections, or says 503: it is asked again, and the time counts. */
static bool ask_again(struct loop *p, struct asked *a)
{
    bool not_ready = !a->pieces && (a->status == 0 || a->status == 503);
    if (!not_ready || now_in(p) >= opt.wait) return false;
    asked_reset(a);
    a->again = now_in(p) + 1e-3 * ASK_AGAIN_MS;
    p->again[p->waiting++] = a;
    return true;
}

static void start(struct loop *p, struct asked *a)
{
    struct link *l = link_open(a, now_in(p));
    if (l) p->link[p->open++] = l;
    else ask_again(p, a);
}

static void start_again(struct loop *p)
{
    int all = p->waiting;
    p->waiting = 0;
    for (int i = 0; i < all; i++)
        if (p->again[i]->again > now_in(p)) p->again[p->waiting++] = p->again[i];
        else start(p, p->again[i]);
}

static bool is_due(const struct loop *p)
{
    double now = now_in(p);
    if (p->next == p->run->count || now >= opt.seconds) return false;
    return opt.clients ? p->open + p->waiting < opt.clients : p->run->of[p->next].due <= now;
}

static void start_due(struct loop *p)
{
    start_again(p);
    while (is_due(p)) {
        struct asked *a = &p->run->of[p->next++];
        if (opt.clients) a->due = now_in(p);
        start(p, a);
    }
}

static void wait_for_news(struct loop *p)
{
    double most = p->waiting ? 0.005 : 0.1;
    double until = !opt.clients && p->next < p->run->count ? p->run->of[p->next].due - now_in(p) : most;
    if (until < 0) until = 0;
    if (until > most) until = most;
    for (int i = 0; i < p->open; i++)
        p->fds[i] = (struct pollfd){p->link[i]->fd,
                                    p->link[i]->sent < p->link[i]->bytes ? POLLOUT | POLLIN : POLLIN, 0};
    struct timespec t = {0, (long)(until * 1e9)};
    ppoll(p->fds, (nfds_t)p->open, &t, NULL);
}

/* false: it is over. */
static bool serve(struct loop *p, struct link *l, short events)
{
    double now = now_in(p);
    if (events) l->heard = now;
    if (events & POLLOUT && !send_more(l)) return false;
    if (events & (POLLIN | POLLHUP | POLLERR) && !receive_more(l, now, &p->run->gaps)) return false;
    if (now - l->heard < opt.timeout) return true;
    asked_fail(l->reply.of, "%g s without a byte", opt.timeout);
    return false;
}

static void serve_all(struct loop *p)
{
    int kept = 0, all = p->open;
    for (int i = 0; i < all; i++) {
        struct link *l = p->link[i];
        if (serve(p, l, p->fds[i].revents)) {
            p->link[kept++] = l;
            continue;
        }
        if (!ask_again(p, l->reply.of)) reply_end(&l->reply, now_in(p), &p->run->gaps);
        close(l->fd);
        free(l);
    }
    p->open = kept;
}

/* The time is over: what is unfinished is left, and what was never sent is forgotten. */
static void cut_all(struct loop *p)
{
    for (int i = 0; i < p->open; i++) {
        struct asked *a = p->link[i]->reply.of;
        a->cut = true;
        a->ended = now_in(p);
        if (!a->tokens) a->tokens = a->pieces;
        close(p->link[i]->fd);
        free(p->link[i]);
    }
    for (int i = 0; i < p->waiting; i++) p->again[i]->cut = true, p->again[i]->ended = now_in(p);
    p->run->count = p->next;
}

static bool run_all(struct run *r)
{
    struct loop p = {.run = r, .began = clock_seconds()};
    p.link = calloc((size_t)r->count, sizeof(struct link *));
    p.fds = calloc((size_t)r->count, sizeof *p.fds);
    p.again = calloc((size_t)r->count, sizeof(struct asked *));
    bool good = p.link && p.fds && p.again;
    while (good && (p.open || p.waiting || p.next < r->count) && now_in(&p) < opt.seconds) {
        start_due(&p);
        wait_for_news(&p);
        serve_all(&p);
        progress_count(&asking, p.next - p.open - p.waiting, r->count, "answers");
    }
    if (good) cut_all(&p);
    free(p.link);
    free(p.fds);
    free(p.again);
    return good;
}

/* ---- Requests ---- */

static int draw(const struct range *r, uint64_t *state)
{
    return r->least + (int)(uniform(state) * (r->most - r->least + 1));
}

static void draw_all(struct run *r)
{
    uint64_t state = opt.seed;
    double due = 0;
    for (int i = 0; i < r->count; i++) {
        struct asked *a = &r->of[i];
        a->due = due;
        due -= log(uniform(&state)) / opt.rate;
        a->prompt = draw(&opt.prompt, &state);
        a->most = draw(&opt.answer, &state);
        a->seed = state;
    }
}

/* What the server counted must be what was asked for. */
static void check_counts(struct run *r)
{
    for (int i = 0; i < r->count; i++) {
        struct asked *a = &r->of[i];
        if (!a->failed && strcmp(a->reason, "length") == 0 && a->tokens != a->most)
            asked_fail(a, "%d tokens, not %d", a->tokens, a->most);
    }
}

static bool equal(const struct asked *a, const struct asked *b)
{
    return !b->failed && a->bytes == b->bytes && a->tokens == b->tokens && !strcmp(a->reason, b->reason) &&
           (!a->bytes || !memcmp(a->text, b->text, a->bytes));
}

/* One after the other. */
static bool verify(struct run *r)
{
    for (int i = 0; i < r->count; i++) {
        progress_count(&verifying, i, r->count, "answers");
        struct asked again = r->of[i], *a = &r->of[i];
        struct run alone = {.of = &again, .count = 1};
        if (a->failed || a->cut) continue;
        again.text = NULL;
        asked_reset(&again);
        again.due = 0;
        if (!run_all(&alone)) return false;
        if (!equal(a, &again))
            asked_fail(a, "another answer than alone: %d tokens, %d", a->tokens, again.tokens);
        free(again.text);
        free(alone.gaps.of);
    }
    return true;
}

static int finish(struct run *r)
{
    enum { SHOWN = 5 };
    struct fault f;
    int shown = 0, failures = report_failures(r);
    report_print(r, stdout);
    if (opt.verify) printf("verified: %d answers are as they are alone\n", r->count - failures);
    if (!standard_written(&f)) fprintf(stderr, "chat_load: %s\n", f.text), failures++;
    for (int i = 0; i < r->count && shown < SHOWN; i++)
        if (r->of[i].failed) fprintf(stderr, "chat_load: request %d: %s\n", i, r->of[i].why), shown++;
    if (opt.csv && !report_csv(r, opt.csv)) {
        fprintf(stderr, "chat_load: cannot write %s\n", opt.csv);
        failures++;
    }
    if (opt.json && !report_json(r, opt.json, opt.label, opt.window, opt.since)) {
        fprintf(stderr, "chat_load: cannot write %s\n", opt.json);
        failures++;
    }
    return failures ? 1 : 0;
}

/* ---- Options ---- */

static bool parse_range(const char *text, struct range *out, int most)
{
    char more;
    int n = sscanf(text, "%d..%d%c", &out->least, &out->most, &more);
    if (n == 1) out->most = out->least;
    return (n == 1 || n == 2) && out->least >= 1 && out->most >= out->least && out->most <= most;
}

static bool parse_number(const char *text, double least, double most, double *out)
{
    char *end;
    *out = plain_number(text, &end);
    return *text && !*end && *out >= least && *out <= most;
}

static bool parse_option(const char *name, const char *value)
{
    double n;
    const struct {
        const char *name, **to;
    } texts[] = {{"--host", &opt.host}, {"--port", &opt.port}, {"--model", &opt.model},
                 {"--csv", &opt.csv},   {"--json", &opt.json}, {"--label", &opt.label}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(name, texts[i].name)) return *texts[i].to = value, true;
    if (!strcmp(name, "--prompt")) return parse_range(value, &opt.prompt, MOST_PROMPT - 1);
    if (!strcmp(name, "--answer")) return parse_range(value, &opt.answer, 1 << 20);
    if (!strcmp(name, "--rate")) return parse_number(value, 1e-3, 1e6, &opt.rate);
    if (!strcmp(name, "--temperature")) return parse_number(value, 0, 2, &opt.temperature);
    if (!strcmp(name, "--timeout")) return parse_number(value, 1e-3, 1e6, &opt.timeout);
    if (!strcmp(name, "--seconds")) return parse_number(value, 1e-3, 1e6, &opt.seconds);
    if (!strcmp(name, "--wait")) return parse_number(value, 0, 1e6, &opt.wait);
    if (!strcmp(name, "--since")) return parse_number(value, 0, 1e6, &opt.since);
    if (!strcmp(name, "--window")) return parse_number(value, 1e-2, 1e6, &opt.window);
    if (!strcmp(name, "--clients") && parse_number(value, 1, 1000, &n)) return opt.clients = (int)n, true;
    if (!strcmp(name, "--requests") && parse_number(value, 1, 1e6, &n)) return opt.requests = (int)n, true;
    if (!strcmp(name, "--seed") && parse_number(value, 0, 1e15, &n)) return opt.seed = (uint64_t)n, true;
    return false;
}

static bool parse(char **argv)
{
    while (*++argv) {
        if (!strcmp(*argv, "--verify")) {
            opt.verify = true;
        } else if (!strncmp(*argv, "--", 2) && argv[1] && parse_option(argv[0], argv[1])) {
            argv++;
        } else {
            fprintf(stderr, "chat_load: what is %s %s? --help names the options\n", *argv,
                    argv[1] ? argv[1] : "");
            return false;
        }
    }
    return true;
}

static const char usage[] =
    "usage: chat_load [OPTION]...\n"
    "  --host H --port P    of the server; 127.0.0.1, 8080\n"
    "  --rate R             requests a second; 10\n"
    "  --clients N          each sends its next request when it has its answer; none: by the rate\n"
    "  --requests N         100, at most\n"
    "  --seconds S          the run ends then, with answers unfinished\n"
    "  --wait S             that long a server that is not ready is asked again; 0\n"
    "  --prompt A..B        bytes of a prompt; 8..128\n"
    "  --answer A..B        tokens of an answer; 4..64\n"
    "  --temperature T      0\n"
    "  --seed N             of all that is drawn; 1\n"
    "  --model NAME         sent along; none\n"
    "  --timeout S          of silence in an answer; 60\n"
    "  --csv FILE           gets a line for each request\n"
    "  --json FILE          gets all figures, those of each window, and what the server counted of its "
    "steps\n"
    "  --window S           seconds of one; 1\n"
    "  --since S            how long the server had run when this began: times in the file count from "
    "then\n"
    "  --label TEXT         of each in the file\n"
    "  --verify             sends each once more, alone, and compares";

int main(int argc, char **argv)
{
    struct run r = {0};
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    (void)argc;
    standard_open();
    if (usage_asked(argv, usage)) return 0;
    if (!parse(argv)) return 2;
    int status = getaddrinfo(opt.host, opt.port, &hints, &server);
    if (status) return fprintf(stderr, "chat_load: %s: %s\n", opt.host, gai_strerror(status)), 1;
    r.count = opt.requests;
    r.of = calloc((size_t)r.count, sizeof *r.of);
    if (r.of) draw_all(&r);
    progress_begin(&asking, "asking %s:%s", opt.host, opt.port);
    bool good = r.of && run_all(&r);
    progress_end(&asking);
    if (good) check_counts(&r);
    if (good && opt.json) steps_read(&r.steps, server);
    progress_begin(&verifying, "asking again, one by one");
    if (good && opt.verify) good = verify(&r);
    progress_end(&verifying);
    if (!good) fprintf(stderr, "chat_load: out of memory\n");
    int result = good ? finish(&r) : 1;
    for (int i = 0; r.of && i < r.count; i++) free(r.of[i].text);
    free(r.of);
    free(r.gaps.of);
    freeaddrinfo(server);
    return result;
}
