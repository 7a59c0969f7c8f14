/*
 * fuzz.c -- draws, guards, and the loop over cases.
 */
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

enum { GUARD_SECONDS = 120 }; /* of a case: far more than its limits allow, on a machine that is busy */

static const char *name;
static uint64_t seed, state; /* of the case */
static double latest, longest;
static uint64_t latest_seed;
static long worked;

/* ---- Draws: splitmix64 ---- */

uint64_t fuzz_next(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t fuzz_below(uint32_t n) { return n ? (uint32_t)(fuzz_next() % n) : 0; }
bool fuzz_chance(int percent) { return fuzz_below(100) < (uint32_t)percent; }

size_t fuzz_size(size_t most)
{
    size_t n = 1;
    while (n < most && !fuzz_chance(18)) n *= 2;
    n += fuzz_below((uint32_t)n);
    return n < most ? n : most;
}

/* ---- Bytes ---- */

void bytes_add(struct bytes *b, const char *data, size_t n)
{
    if (!b->data) b->data = malloc(FUZZ_TEXT + 1);
    if (n > FUZZ_TEXT - b->size) n = FUZZ_TEXT - b->size;
    if (n) memcpy(b->data + b->size, data, n);
    b->data[b->size += n] = 0;
}

void bytes_say(struct bytes *b, const char *format, ...)
{
    char *text;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n >= 0) bytes_add(b, text, (size_t)n), free(text);
}

/* `with` comes in at `at`, in place of `cut` bytes. */
static void splice(struct bytes *b, size_t at, size_t cut, const char *with, size_t n)
{
    struct bytes rest = {0};
    bytes_add(&rest, b->data + at + cut, b->size - at - cut);
    b->size = at;
    bytes_add(b, with, n);
    bytes_add(b, rest.data, rest.size);
    free(rest.data);
}

void bytes_change(struct bytes *b, const char *const *words, size_t count)
{
    size_t at = fuzz_below((uint32_t)b->size), n = fuzz_size(b->size - at);
    const char *word = words[fuzz_below((uint32_t)count)];
    struct bytes again = {0};
    if (!b->size) return;
    switch (fuzz_below(5)) {
    case 0: b->data[at] = (char)fuzz_below(256); break;
    case 1: splice(b, at, n, "", 0); break;
    case 2:
        for (size_t k = fuzz_size(n < 100 ? 100000 : 20); k; k--) bytes_add(&again, b->data + at, n);
        splice(b, fuzz_below((uint32_t)b->size), 0, again.data, again.size);
        break;
    case 3:
        for (size_t k = fuzz_size(fuzz_chance(10) ? 100000 : 1); k; k--)
            bytes_add(&again, word, strlen(word));
        splice(b, at, 0, again.data, again.size);
        break;
    default: splice(b, at, n < 8 ? n : 8, word, strlen(word));
    }
    free(again.data);
}

static void add_character(struct bytes *b)
{
    static const uint32_t ranges[][2] = {
        {0x20, 0x7f},     {0x20, 0x7f},     {0, 0x20},          {0x80, 0x250},      {0x300, 0x370},
        {0x370, 0x600},   {0x1100, 0x1200}, {0x1e00, 0x2100},   {0x3000, 0x3100},   {0x4e00, 0xa000},
        {0xac00, 0xd7a4}, {0xf900, 0xfb00}, {0x1f300, 0x1f700}, {0x10000, 0x110000}};
    const uint32_t *r = ranges[fuzz_below(sizeof ranges / sizeof *ranges)];
    uint32_t c = r[0] + fuzz_below(r[1] - r[0]);
    char s[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    s[0] = (char)(n == 1 ? c : (0xf00u >> n & 0xffu) | c >> 6 * (n - 1));
    for (size_t i = 1; i < n; i++) s[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3f));
    bytes_add(b, s, n);
}

void bytes_text(struct bytes *b)
{
    static const char *const pieces[] = {
        "a",        " ",   "1",  "\xcc\x81", "\xf0\x9f\x98\x80", "a'",   "\n",
        "  \n",     "'s ", "ab", "<s>",      "\xea\xb0\x81",     "the ", "\xe2\x96\x81",
        "aaaaaaab", "_",   ".,", "\xc2\xa0"};
    size_t most = fuzz_size(FUZZ_TEXT), count = 1 + fuzz_below(3);
    const char *some[3];
    bytes_add(b, "", 0);
    for (size_t i = 0; i < count; i++) some[i] = pieces[fuzz_below(sizeof pieces / sizeof *pieces)];
    bool characters = fuzz_chance(20);
    while (b->size < most) {
        const char *piece = some[fuzz_below((uint32_t)count)];
        if (characters || fuzz_chance(1)) add_character(b);
        else bytes_add(b, piece, strlen(piece));
    }
    if (fuzz_chance(5) && b->size) b->data[fuzz_below((uint32_t)b->size)] = (char)fuzz_below(256);
}

/* ---- Ends ---- */

static void say_seed(void)
{
    char line[100];
    int n = snprintf(line, sizeof line, "\n%s: seed %llu\n", name, (unsigned long long)seed);
    if (write(2, line, (size_t)n) < 0) _exit(3);
}

static void die(int signal)
{
    say_seed();
    if (signal == SIGALRM && write(2, "it has no end\n", 14) < 0) _exit(3);
    _exit(2);
}

void fuzz_holds(bool holds, const char *what)
{
    if (holds) return;
    fprintf(stderr, "%s: %s\n", name, what);
    die(0);
}

double fuzz_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void fuzz_took(double seconds, double limit)
{
    if (seconds > longest) longest = seconds;
    if (seconds - limit > latest) latest = seconds - limit, latest_seed = seed;
}

void fuzz_worked(void) { worked++; }

/* A sanitizer's, if the program has one. */
void __sanitizer_set_death_callback(void (*call)(void)) __attribute__((weak));

static void guard(void)
{
    static char stack[1 << 16];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction act = {.sa_handler = die, .sa_flags = SA_ONSTACK};
    signal(SIGALRM, die);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(say_seed);
        return;
    }
    sigaltstack(&other, NULL);
    sigaction(SIGSEGV, &act, NULL);
    sigaction(SIGABRT, &act, NULL);
    sigaction(SIGFPE, &act, NULL);
}

static void *run_case(void *one)
{
    static _Thread_local char stack[1 << 16]; /* a handler has none when the thread's is at its end */
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    if (!__sanitizer_set_death_callback) sigaltstack(&other, NULL);
    (*(void (**)(void))one)();
    return NULL;
}

int fuzz_main(int argc, char **argv, void (*one)(void))
{
    name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    if (argc < 2) return fprintf(stderr, "usage: %s SECONDS [SEED]\n", name), 2;
    double end = fuzz_now() + atof(argv[1]);
    long runs = 0;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, FUZZ_STACK);
    guard();
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    printf("%s: from seed %llu\n", name, (unsigned long long)seed);
    for (; fuzz_now() < end || !runs; seed++, runs++) {
        pthread_t thread;
        state = seed * 0x2545f4914f6cdd1du;
        alarm(GUARD_SECONDS);
        fuzz_holds(!pthread_create(&thread, &small, run_case, &one), "no thread");
        pthread_join(thread, NULL);
        alarm(0);
    }
    printf("%s: %ld cases, %ld texts came of them; the longest took %.2f s\n", name, runs, worked, longest);
    printf("%s: none ended more than %.2f s beyond its deadline (seed %llu)\n", name, latest > 0 ? latest : 0,
           (unsigned long long)latest_seed);
    return 0;
}
