/*
 * chat_server.c -- a checkpoint behind the HTTP interface that chat programs know.
 *
 *     chat_server [--port N] [--gpu] ... [MODEL]        --help names the rest
 *     curl -N http://127.0.0.1:8080/v1/chat/completions -d
 *         '{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 32, "stream": true}'
 *
 * MODEL is a folder or file as generate.c takes it. Without one, a small LLaMA with random weights writes
 * noise, but always the same noise; with --random CONFIG one of that config.json does, of any size. Requests
 * that come and go share the steps of one plan with symbolic dimensions, prompts in chunks beside sequences
 * that write, with keys and values in pages of a pool (chat). Port 0 takes a free one, which the
 * first line on standard output names. SIGTERM ends it when what runs is finished.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "chat_engine.h"
#include "chat_http.h"
#include "options.h"
#include "progress.h"
#include "standard.h"
#include "usage.h"

enum { DRAIN_SECONDS = 30, LAST_SECONDS = 5 };

struct settings {
    struct engine_options engine;
    struct served served;
    struct server_options http;
    struct progress working;
    long long port, seed, rows, sequences, context, pages, queue, ping_ms, cpu, gpu, graphs, top, ids, ranks;
    long long connections, header_s, body_s, answer_s, idle_s, prompt_ms, body_mib, threads;
    const char *prefix, *policy, *dtype, *random, *weights, *name, *model, *hosts, *origins, *key_file;
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
    puts("usage: chat_server [OPTION]... [MODEL]");
    for (int i = 0; i < count; i++) printf("  --%-16s %s\n", all[i].name, all[i].help);
    puts("  --help             this list");
    return fflush(stdout) ? perror("standard output"), 1 : 0;
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

static bool parse(struct settings *s, const struct option *all, int count, char **argv)
{
    for (; *argv; argv++) {
        if (**argv != '-' && !s->model) {
            s->model = *argv;
            continue;
        }
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
    *out = !text                   ? RUNNER_POLICY_USUAL
           : !strcmp(text, "wait") ? RUNNER_POLICY_WAIT
                                   : RUNNER_POLICY_BACKGROUND;
    if (*out != RUNNER_POLICY_BACKGROUND || !strcmp(text, "background")) return true;
    fprintf(stderr, "chat_server: --policy is %s, not wait or background\n", text);
    return false;
}

static bool parse_dtype(coda_dtype *out, const char *text)
{
    *out = 0;
    return !text || options_dtype(text, out) ||
           (fprintf(stderr, "chat_server: --dtype is %s, not f32, f16 or bf16\n", text), false);
}

enum { USUAL_SEQUENCES = 64 };
static const double usual_bytes =
    4e9; /* of keys, values and states in 16 bits, but for states that are fp32 */

/* Without --sequences: 64, or fewer where their states would take more than half of these bytes. */
static long long usual_sequences(const struct settings *s)
{
    double state = config_state_bytes(&s->served.config, 2), most = usual_bytes / 2;
    if (state * USUAL_SEQUENCES <= most) return USUAL_SEQUENCES;
    return state < most ? (long long)(most / state) : 1;
}

/* Without --pages: as many as all sequences want, in the bytes that states leave; one text's at least. */
static long long usual_pages(const struct settings *s, long long context)
{
    const struct config *c = &s->served.config;
    double page = 4.0 * PAGE_TOKENS * config_key_columns(c);
    double left = usual_bytes - (double)s->sequences * config_state_bytes(c, 2);
    long long all = s->sequences * (context / PAGE_TOKENS);
    if (page * (double)all <= left || page == 0) return all;
    long long most = left > page ? (long long)(left / page) : 1;
    return most > context / PAGE_TOKENS || config_state_bytes(c, 2) == 0 ? most : context / PAGE_TOKENS;
}

/* Without --context: 512 tokens, or of a checkpoint 2048, but no more than it was made for. */
static long long settle_context(const struct settings *s)
{
    long long most = s->served.config.positions / PAGE_TOKENS * PAGE_TOKENS;
    long long usual = s->model || s->random ? 2048 : 512;
    if (!s->context) return usual < most ? usual : most;
    return (s->context + PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS;
}

/* Numbers that must fit together. */
static bool settle(struct settings *s)
{
    struct runner_options *m = &s->engine.runner;
    if (!s->sequences) s->sequences = usual_sequences(s);
    if (s->rows < s->sequences) {
        fprintf(stderr, "chat_server: %lld rows of a step are fewer than %lld sequences\n", s->rows,
                s->sequences);
        return false;
    }
    s->context = settle_context(s);
    if (!s->pages) s->pages = s->model || s->random ? usual_pages(s, s->context) : 512;
    *m = (struct runner_options){.served = &s->served,
                                 .gpu = s->gpu,
                                 .graphs = (int)s->graphs,
                                 .seed = (uint64_t)s->seed,
                                 .progress = &s->working,
                                 .rows = (int)s->rows,
                                 .sequences = (int)s->sequences,
                                 .context = (int)s->context,
                                 .pages = (int)s->pages,
                                 .top = (int)s->top,
                                 .ranks = (int)s->ranks};
    s->engine.queue = (int)s->queue;
    s->engine.ping = (double)s->ping_ms * 1e-3;
    return parse_policy(&m->policy, s->policy) && parse_dtype(&m->dtype, s->dtype);
}

static bool open_served(struct settings *s)
{
    struct fault f;
    if (s->model && s->random)
        return fprintf(stderr, "chat_server: --random %s is instead of MODEL, not beside %s\n", s->random,
                       s->model),
               false;
    if (s->weights && (s->model || !stored_draws(s->weights)))
        return fprintf(stderr, "chat_server: --weights %s: %s\n", s->weights,
                       s->model ? "those of MODEL are not random" : "there is no such format"),
               false;
    if (!served_open(&s->served, s->model, s->random, s->ids, &f))
        return fprintf(stderr, "chat_server: %s\n", f.text), false;
    if (s->weights)
        snprintf(s->served.config.quant.drawn, sizeof s->served.config.quant.drawn, "%s", s->weights);
    if (s->name) snprintf(s->served.name, sizeof s->served.name, "%s", s->name);
    if (s->served.tokenizer && !s->served.turns)
        fprintf(stderr, "chat_server: /v1/chat/completions is refused, and /v1/completions is there: %s\n",
                s->served.no_turns.text);
    return true;
}

/* Is it UTF-8 that may stand between quotes, in JSON and in metrics? */
static bool is_quotable(const char *name, size_t room)
{
    size_t n = strlen(name);
    bool good = n && n < room && unicode_valid(name, n);
    for (size_t i = 0; i < n; i++) good &= !strchr("\"\\\177", name[i]) && (unsigned char)name[i] >= ' ';
    return good;
}

static bool settle_names(const struct settings *s)
{
    static const char letters[] = "_:0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    bool named = !s->name || is_quotable(s->name, sizeof s->served.name);
    bool prefixed = !s->prefix[strspn(s->prefix, letters)] && (*s->prefix < '0' || *s->prefix > '9');
    if (!named)
        fprintf(stderr, "chat_server: --name wants 1 to %zu bytes of UTF-8, without quotes and controls\n",
                sizeof s->served.name - 1);
    if (!prefixed) fprintf(stderr, "chat_server: --metrics-prefix wants letters, digits, _ and :\n");
    return named && prefixed;
}

static bool settle_device(const struct settings *s)
{
    if (!s->cpu || !s->gpu) return true;
    fprintf(stderr, "chat_server: --cpu or --gpu, not both\n");
    return false;
}

enum { OTHER_FILES = 256 }; /* descriptors that are no connections */

/* As many as the process may have descriptors for, with those of connections that are being closed. */
static long long most_connections(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_max > INT32_MAX) return INT32_MAX;
    return ((long long)files.rlim_max - OTHER_FILES) / 5 * 4;
}

static bool settle_descriptors(const struct settings *s)
{
    struct rlimit files;
    rlim_t want = (rlim_t)s->connections * 5 / 4 + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur >= want) return true;
    files.rlim_cur = want;
    if (files.rlim_max >= want && !setrlimit(RLIMIT_NOFILE, &files)) return true;
    fprintf(stderr, "chat_server: --connections %lld want %llu descriptors, and there may be %llu\n",
            s->connections, (unsigned long long)want, (unsigned long long)files.rlim_max);
    return false;
}

/* All requests that wait have a connection, and others must find one, too. */
static bool settle_http(struct settings *s)
{
    struct fault f;
    long long sequences = s->sequences ? s->sequences : USUAL_SEQUENCES;
    long long waiting = 2 * s->queue + sequences, usual = waiting + 256 > 1024 ? waiting + 256 : 1024;
    if (!s->connections) s->connections = usual < most_connections() ? usual : most_connections();
    if (s->connections <= waiting) {
        fprintf(stderr, "chat_server: --connections %lld are no more than the %lld requests that may wait\n",
                s->connections, waiting);
        return false;
    }
    s->http = (struct server_options){.gate = {.port = (int)s->port,
                                               .connections = (int)s->connections,
                                               .header = (double)s->header_s,
                                               .body = (double)s->body_s,
                                               .answer = (double)s->answer_s,
                                               .pause = (double)s->idle_s},
                                      .access = {.hosts = s->hosts, .origins = s->origins},
                                      .prefix = s->prefix,
                                      .threads = (int)s->threads,
                                      .body_bytes = s->body_mib << 20,
                                      .prompt = (double)s->prompt_ms * 1e-3};
    if (access_key(&s->http.access, s->key_file, "CODA_API_KEY", &f)) return settle_descriptors(s);
    fprintf(stderr, "chat_server: %s\n", f.text);
    return false;
}

/* ---- Signals ---- */

enum { LOADING, SERVING, ENDING };

static struct {
    sigset_t set;
    atomic_int state, count;
    sem_t first;
} signals;

/* The first signal ends the server once what runs is finished; a second one, at once. Whatever does not end
 * then, a step, a regular expression, a driver, does not keep the process. */
static void *watch_signals(void *unused)
{
    int number;
    (void)unused;
    sigwait(&signals.set, &number);
    if (atomic_exchange(&signals.state, ENDING) == LOADING) {
        puts("chat_server: ended while the model was loaded");
        fflush(stdout);
        _exit(0);
    }
    atomic_store(&signals.count, 1);
    sem_post(&signals.first);
    for (double left = DRAIN_SECONDS + 4 * LAST_SECONDS; left > 0; left--) {
        const struct timespec second = {.tv_sec = 1};
        if (sigtimedwait(&signals.set, NULL, &second) < 0) continue;
        if (atomic_fetch_add(&signals.count, 1) >= 2) break; /* a third one */
        if (left > 4 * LAST_SECONDS) left = 4 * LAST_SECONDS;
    }
    fputs("chat_server: ended, though something still runs\n", stderr);
    _exit(1);
}

static bool start_signals(void)
{
    pthread_t thread;
    sigemptyset(&signals.set);
    sigaddset(&signals.set, SIGTERM);
    sigaddset(&signals.set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals.set, NULL); /* for all threads: sigwait takes them */
    signal(SIGPIPE, SIG_IGN);
    return !sem_init(&signals.first, 0, 0) && !pthread_create(&thread, NULL, watch_signals, NULL) &&
           !pthread_detach(thread);
}

/* ---- From the start to the end ---- */

/* Until what runs is finished, 30 seconds at most, or a second signal. false: something still runs. */
static bool drain(struct engine *e, struct server *server)
{
    puts("chat_server: finishing what runs");
    fflush(stdout);
    server_drain(server);
    for (int tenths = 0; tenths < DRAIN_SECONDS * 10 && atomic_load(&signals.count) < 2; tenths++)
        if (engine_drain(e, 0.1)) return true;
    engine_abort(e);
    if (engine_drain(e, LAST_SECONDS)) return true;
    server_shut(server); /* clients that do not take what they were sent */
    return engine_drain(e, LAST_SECONDS);
}

/* Of a model that is loaded. */
static bool run(struct engine *e, struct server *server)
{
    printf("chat_server: ready, on %s\n", engine_device(e));
    fflush(stdout);
    while (sem_wait(&signals.first)) {}
    if (drain(e, server)) return true;
    fputs("chat_server: ended, though a step still runs\n", stderr);
    _exit(1);
}

static bool load_and_run(struct settings *s, struct engine *e, struct server *server)
{
    char why[512];
    int loading = LOADING;
    progress_hold(&s->working);
    printf("chat_server: http://127.0.0.1:%d\n", server_port(server));
    fflush(stdout);
    progress_go_on(&s->working);
    bool loaded = engine_wait_loaded(e, why, sizeof why);
    progress_end(&s->working);
    if (!loaded) return fprintf(stderr, "chat_server: %s\n", why), false;
    if (!atomic_compare_exchange_strong(&signals.state, &loading, SERVING)) pause(); /* it ends */
    return run(e, server);
}

static int serve(struct settings *s)
{
    struct fault f = {"out of memory"};
    progress_begin(&s->working, "loading %s", s->served.name);
    progress_kernels(&s->working, NULL, 0);
    struct engine *e = engine_new(&s->engine);
    struct server *server = e ? server_new(e, &s->http, &f) : NULL;
    bool good = server && load_and_run(s, e, server);
    progress_end(&s->working);
    if (!server) fprintf(stderr, "chat_server: %s\n", f.text);
    if (!server_free(server, LAST_SECONDS)) {
        fputs("chat_server: ended, though a prompt is still made\n", stderr);
        _exit(1);
    }
    engine_free(e);
    if (good) puts("chat_server: done");
    return good ? 0 : 1;
}

static struct settings s = {.port = 8080,
                            .seed = 1,
                            .rows = 512,
                            .queue = 256,
                            .ping_ms = 5000,
                            .graphs = 64,
                            .top = 20,
                            .ranks = 1,
                            .header_s = 10,
                            .body_s = 30,
                            .answer_s = 60,
                            .idle_s = 60,
                            .prompt_ms = 1000 * TEMPLATE_SECONDS,
                            .body_mib = 64,
                            .threads = 2,
                            .prefix = "coda_"};

static const struct option all[] = {
    {"port", &s.port, NULL, 0, 65535, "of 127.0.0.1; 0: one that is free; 8080"},
    {"gpu", &s.gpu, NULL, 0, 1, "runs on the first GPU; without it on the CPU device, in fp32"},
    {"cpu", &s.cpu, NULL, 0, 1, "the CPU device, as without --gpu"},
    {"dtype", NULL, &s.dtype, 0, 0,
     "of weights and activations: f32, f16, bf16; on a GPU the files', or f16 for f32"},
    {"ranks", &s.ranks, NULL, 1, MOST_RANKS,
     "shares the model out over GPUs, or threads of the CPU device; 1"},
    {"random", NULL, &s.random, 0, 0, "a config.json, instead of MODEL: its weights are random numbers"},
    {"weights", NULL, &s.weights, 0, 0,
     "format of random weights: fp8, int8, q4_k_m, int4_g128_bf16 and so on; the config's"},
    {"ids", &s.ids, NULL, 0, 1, "no tokenizer: prompts and answers are tokens"},
    {"seed", &s.seed, NULL, 0, INT64_MAX, "of random weights; 1"},
    {"name", NULL, &s.name, 0, 0, "of the model in requests and answers; the last part of its path"},
    {"rows", &s.rows, NULL, 1, 16384, "of a step, at most; 512"},
    {"sequences", &s.sequences, NULL, 1, 1024, "of a step, at most; 64, or as many as 2 GB of states allow"},
    {"context", &s.context, NULL, 16, 1 << 20,
     "tokens of a prompt and its answer, in steps of 16; 2048, or 512"},
    {"pages", &s.pages, NULL, 1, 1 << 20,
     "of 16 tokens, for all sequences; what these want, up to 4 GB, or 512"},
    {"queue", &s.queue, NULL, 1, 65536, "requests that may wait; 256"},
    {"ping-ms", &s.ping_ms, NULL, 1, 3600000, "of silence before a stream gets a comment; 5000"},
    {"connections", &s.connections, NULL, 1, 100000,
     "at a time; for one more the slowest that has not asked yet is closed; 1024"},
    {"header-s", &s.header_s, NULL, 1, 3600, "seconds for the header of a connection's first request; 10"},
    {"body-s", &s.body_s, NULL, 1, 3600, "seconds for a body; 30"},
    {"answer-s", &s.answer_s, NULL, 1, 3600,
     "seconds for a client to take an answer, or 4 KB of a stream; 60"},
    {"idle-s", &s.idle_s, NULL, 1, 3600, "seconds from an answer to the next request's header; 60"},
    {"prompt-ms", &s.prompt_ms, NULL, 1, 3600000, "for a chat's template and a prompt's tokens; 5000"},
    {"body-mib", &s.body_mib, NULL, 1, 1 << 20,
     "MiB of all bodies at a time, of which each has 1 at most; 64"},
    {"threads", &s.threads, NULL, 1, 256, "that make prompts of bodies; 2"},
    {"allow-host", NULL, &s.hosts, 0, 0,
     "names by which requests may call the server beside localhost, by commas; *: any"},
    {"allow-origin", NULL, &s.origins, 0, 0,
     "pages that may ask from a browser, as http://localhost:3000, by commas; *: any; none"},
    {"api-key-file", NULL, &s.key_file, 0, 0,
     "its first line must come with each request but /health; CODA_API_KEY does the same"},
    {"policy", NULL, &s.policy, 0, 0,
     "wait: all kernels are made first; background: slower ones that serve any shape, and better ones as "
     "they are made; background on a GPU, else wait"},
    {"graphs", &s.graphs, NULL, 0, 64, "sequences that write, at most, in a step that is a CUDA graph; 64"},
    {"top", &s.top, NULL, 1, 64, "likeliest tokens that a step finds, for logprobs; 20"},
    {"metrics-prefix", NULL, &s.prefix, 0, 0, "of the metrics' names; coda_"}};

int main(int argc, char **argv)
{
    const int count = sizeof all / sizeof *all;
    (void)argc;
    standard_open();
    for (char **word = argv + 1; *word; word++)
        if (usage_word(*word)) return usage(all, count);
    if (!parse(&s, all, count, argv + 1)) return 2;
    if (!settle_device(&s) || !settle_names(&s) || !settle_http(&s)) return 2;
    if (!open_served(&s)) return 1;
    if (!settle(&s)) return served_close(&s.served), 2;
    int status = start_signals() ? serve(&s) : 1;
    served_close(&s.served);
    return status;
}
