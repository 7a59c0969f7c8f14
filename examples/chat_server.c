/*
 * chat_server.c -- a small LLaMA with random weights behind the HTTP interface that chat programs know.
 *
 *     chat_server [--port N] [--gpu] ...        --help names the rest
 *     curl -N http://127.0.0.1:8080/v1/chat/completions -d
 *         '{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 32, "stream": true}'
 *
 * What it writes is noise, but always the same noise. The point is how it is computed: requests that come
 * and go share the steps of one plan with symbolic dimensions, prompts in chunks beside sequences that write,
 * with keys and values in pages of a pool (examples/chat). Port 0 takes a free one, which the first line on
 * standard output names. SIGTERM ends it when what runs is finished.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chat_engine.h"
#include "chat_http.h"

enum { DRAIN_SECONDS = 30, LAST_SECONDS = 5 };

struct settings {
    struct engine_options engine;
    long long port, seed, rows, sequences, context, pages, queue, ping_ms, gpu, graphs, help;
    const char *prefix, *policy;
};

/* A number or a text. Those without a value are numbers in 0..1. */
struct option {
    const char *name;
    long long *number;
    const char **text;
    long long least, most;
    const char *help;
};

static int usage(const struct option *all, int count)
{
    puts("usage: chat_server [OPTION]...");
    for (int i = 0; i < count; i++) printf("  --%-16s %s\n", all[i].name, all[i].help);
    return 0;
}

static bool parse_number(const struct option *o, const char *text)
{
    char *end;
    errno = 0;
    *o->number = text ? strtoll(text, &end, 10) : 0;
    if (text && *text && !*end && !errno && *o->number >= o->least && *o->number <= o->most) return true;
    fprintf(stderr, "chat_server: --%s wants a number in %lld..%lld\n", o->name, o->least, o->most);
    return false;
}

static bool parse(const struct option *all, int count, char **argv)
{
    for (; *argv; argv++) {
        const struct option *o = NULL;
        for (int i = 0; i < count && !o; i++)
            if (!strncmp(*argv, "--", 2) && !strcmp(*argv + 2, all[i].name)) o = &all[i];
        if (!o) return fprintf(stderr, "chat_server: what is %s? --help names the options\n", *argv), false;
        if (!o->number) {
            if (!*++argv) return fprintf(stderr, "chat_server: --%s wants a text\n", o->name), false;
            *o->text = *argv;
        } else if (!o->least && o->most == 1) {
            *o->number = 1;
        } else if (!parse_number(o, argv[1]) || !*++argv) {
            return false;
        }
    }
    return true;
}

static bool parse_policy(enum runner_policy *out, const char *text)
{
    *out = !text ? RUNNER_POLICY_USUAL : !strcmp(text, "wait") ? RUNNER_POLICY_WAIT : RUNNER_POLICY_BACKGROUND;
    if (*out != RUNNER_POLICY_BACKGROUND || !strcmp(text, "background")) return true;
    fprintf(stderr, "chat_server: --policy is %s, not wait or background\n", text);
    return false;
}

/* Numbers that must fit together. */
static bool settle(struct settings *s)
{
    struct runner_options *m = &s->engine.model;
    if (s->rows < s->sequences) {
        fprintf(stderr, "chat_server: %lld rows of a step are fewer than %lld sequences\n", s->rows,
                s->sequences);
        return false;
    }
    *m = (struct runner_options){.gpu = s->gpu,
                                .graphs = (int)s->graphs,
                                .seed = (uint64_t)s->seed,
                                .rows = (int)s->rows,
                                .sequences = (int)s->sequences,
                                .context = (int)((s->context + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS),
                                .pages = (int)s->pages};
    s->engine.queue = (int)s->queue;
    s->engine.ping = (double)s->ping_ms * 1e-3;
    return parse_policy(&m->policy, s->policy);
}

/* Until what runs is finished, 30 seconds at most, or a second signal. */
static void drain(struct engine *e, const sigset_t *signals)
{
    const struct timespec at_once = {0};
    puts("chat_server: finishing what runs");
    fflush(stdout);
    for (int tenths = 0; tenths < DRAIN_SECONDS * 10; tenths++) {
        if (engine_drain(e, 0.1)) return;
        if (sigtimedwait(signals, NULL, &at_once) > 0) break;
    }
    engine_abort(e);
    engine_drain(e, LAST_SECONDS);
}

static int serve(struct settings *s, const sigset_t *signals)
{
    char why[512];
    int signal_number;
    struct engine *e = engine_new(&s->engine);
    struct server *server = e ? server_new(e, (int)s->port, s->prefix) : NULL;
    bool good = server != NULL;
    if (good) {
        printf("chat_server: http://127.0.0.1:%d\n", server_port(server));
        fflush(stdout);
        good = engine_wait_loaded(e, why, sizeof why);
        if (!good) fprintf(stderr, "chat_server: %s\n", why);
    } else {
        fprintf(stderr, "chat_server: cannot listen at port %lld of 127.0.0.1\n", s->port);
    }
    if (good) {
        printf("chat_server: ready, on %s\n", engine_device(e));
        fflush(stdout);
        sigwait(signals, &signal_number);
        drain(e, signals);
    }
    server_free(server);
    engine_free(e);
    if (good) puts("chat_server: done");
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct settings s = {.port = 8080,
                                .seed = 1,
                                .rows = 512,
                                .sequences = 64,
                                .context = 512,
                                .pages = 512,
                                .queue = 256,
                                .ping_ms = 5000,
                                .graphs = 64,
                                .prefix = "coda_"};
    const struct option all[] = {
        {"port", &s.port, NULL, 0, 65535, "of 127.0.0.1; 0: one that is free; 8080"},
        {"gpu", &s.gpu, NULL, 0, 1, "runs on the first GPU in bf16; without it on the CPU device in fp32"},
        {"seed", &s.seed, NULL, 0, INT64_MAX, "of the weights; 1"},
        {"rows", &s.rows, NULL, 1, 16384, "of a step, at most; 512"},
        {"sequences", &s.sequences, NULL, 1, 1024, "of a step, at most; 64"},
        {"context", &s.context, NULL, 16, 65536, "tokens of a prompt and its answer, in steps of 16; 512"},
        {"pages", &s.pages, NULL, 1, 65536, "of 16 tokens, for all sequences; 512"},
        {"queue", &s.queue, NULL, 1, 65536, "requests that may wait; 256"},
        {"ping-ms", &s.ping_ms, NULL, 1, 3600000, "of silence before a stream gets a comment; 5000"},
        {"policy", NULL, &s.policy, 0, 0,
         "wait: all kernels are made first; background: slower ones that serve any shape, and better ones as "
         "they are made; background on a GPU, else wait"},
        {"graphs", &s.graphs, NULL, 0, 64,
         "sequences that write, at most, in a step that is a CUDA graph; 64"},
        {"metrics-prefix", NULL, &s.prefix, 0, 0, "of the metrics' names; coda_"},
        {"help", &s.help, NULL, 0, 1, "this list"}};
    const int count = sizeof all / sizeof *all;
    sigset_t signals;
    (void)argc;
    if (!parse(all, count, argv + 1)) return 2;
    if (s.help) return usage(all, count);
    if (!settle(&s)) return 2;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* for all threads: sigwait takes them */
    signal(SIGPIPE, SIG_IGN);
    return serve(&s, &signals);
}
