/*
 * fuzz_stages.c -- damaged texts that still are graphs, through every later stage.
 *
 *     fuzz_stages SECONDS [SEED]
 *
 * Valid texts (random graphs and test/golden) are cut, spliced, flipped and repeated. Whatever parses
 * must print and parse back to the same text, and must be planned or refused, never crash.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util_run.h"

enum { ROOM = 1 << 16, MOST_SEEDS = 64 };

static char *corpus[MOST_SEEDS];
static int texts;

static void add_text(char *s)
{
    if (s && texts < MOST_SEEDS) corpus[texts++] = s;
    else free(s);
}

static void add_random(uint64_t seed)
{
    struct random_options ro = {.states = seed % 3 == 0, .wide = seed % 2 == 0};
    graph *g = random_graph(seed, &ro);
    int64_t n = coda_graph_print(g, NULL, 0);
    char *s = n < 0 ? NULL : malloc((size_t)n + 1);
    if (s) coda_graph_print(g, s, (size_t)n + 1);
    add_text(s);
    coda_graph_free(g);
}

static void add_folder(const char *folder)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[512], *s = calloc(1, ROOM);
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = strstr(e->d_name, ".coda") ? fopen(path, "r") : NULL;
        if (f && s && fread(s, 1, ROOM - 1, f) > 0) {
            char *end = strstr(s, "# >>> derivation");
            if (end) *end = 0;
            add_text(s);
        } else free(s);
        if (f) fclose(f);
    }
    if (d) closedir(d);
}

/* ---- Damage ---- */

static const char *const word[] = {"%x",
                                   "_",
                                   "{",
                                   "}",
                                   "[",
                                   "]",
                                   "=",
                                   ",",
                                   ";",
                                   "\"",
                                   "@%1",
                                   "-1",
                                   "0",
                                   "9223372036854775807",
                                   "1e999",
                                   "nan",
                                   "0x1p-1074",
                                   "stride=[0,0]",
                                   "bf16[0]",
                                   "f32[]",
                                   "i64[65536,65536,65536]",
                                   "matmul",
                                   "attention",
                                   "concat",
                                   "rope",
                                   "top_k",
                                   "iota",
                                   "nucleus",
                                   "row_sums",
                                   "conv1d",
                                   "scan",
                                   "group",
                                   "all_reduce",
                                   "all_gather",
                                   "delta",
                                   "reshape",
                                   "output %q = %0",
                                   "map",
                                   "\n",
                                   "%",
                                   "input",
                                   "f16[1,2,3,4,5,6,7]",
                                   "axis=-1",
                                   "interleave=1",
                                   "step=0"};

static size_t damage(char *s, size_t n, struct random *r)
{
    size_t at = (size_t)random_below(r, (int64_t)n + 1), span = (size_t)random_below(r, 24);
    const char *w = word[random_below(r, ARRAY_SIZE(word))];
    size_t length = strlen(w);
    if (span > n - at) span = n - at;
    switch (random_below(r, 6)) {
    case 0: /* a bit */
        if (at < n) s[at] ^= (char)(1 << random_below(r, 7));
        return n;
    case 1: /* cut out */ memmove(s + at, s + at + span, n - at - span + 1); return n - span;
    case 2: /* a word in place of something */
        if (n - span + length >= ROOM) return n;
        memmove(s + at + length, s + at + span, n - at - span + 1);
        memcpy(s + at, w, length);
        return n - span + length;
    case 3: { /* a piece of another text */
        const char *other = corpus[random_below(r, texts)];
        size_t m = strlen(other), from = (size_t)random_below(r, (int64_t)m + 1);
        size_t take = (size_t)random_below(r, 400);
        if (take > m - from) take = m - from;
        if (n + take >= ROOM) return n;
        memmove(s + at + take, s + at, n - at + 1);
        memcpy(s + at, other + from, take);
        return n + take;
    }
    case 4: /* a digit */
        for (size_t i = at; i < n; i++)
            if (s[i] >= '0' && s[i] <= '9') return s[i] = (char)('0' + random_below(r, 10)), n;
        return n;
    default: /* the end */ s[at] = 0; return at;
    }
}

/* ---- What must hold ---- */

static char text[ROOM], once[ROOM * 16], twice[ROOM * 16];

static void plan(const coda_graph *g, struct random *r)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY | (random_chance(r, 30) ? CODA_NO_FUSION : 0);
    opt.fold = (coda_fold)random_below(r, 3);
    if (coda_compile(&p, g, &opt) == CODA_OK) {
        coda_plan_print(p, CODA_TEXT_PLAN, once, sizeof once);
        coda_plan_print(p, CODA_TEXT_REASONS, once, sizeof once);
    }
    coda_plan_free(p);
}

static void run(const coda_graph *g, struct random *r)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.fold = (coda_fold)random_below(r, 3);
    if (run_on_cpu(g, r->state, &opt, NULL) >= 0) return;
    coda_status status = fail_status();
    if (status != CODA_E_UNSUPPORTED && status != CODA_E_MEMORY)
        fprintf(stderr, "%s\n%s\n", coda_error(), once), abort();
}

/* True if the text was a graph. */
static bool check(struct random *r)
{
    coda_graph *g, *again;
    if (coda_graph_parse(&g, text) != CODA_OK) return false;
    int64_t n = coda_graph_print(g, once, sizeof once);
    if (n >= 0 && n < (int64_t)sizeof once) {
        if (coda_graph_parse(&again, once) != CODA_OK) printf("%s\n%s\n", coda_error(), once), abort();
        coda_graph_print(again, twice, sizeof twice);
        if (strcmp(once, twice) != 0) printf("not a fixed point:\n%s\n%s\n", once, twice), abort();
        coda_graph_free(again);
    }
    if (random_chance(r, 25)) plan(g, r);
    if (g->outputs && random_is_small(g) && random_is_alone(g) && random_chance(r, 25)) run(g, r);
    coda_graph_free(g);
    return true;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    struct random r = {argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL)};
    time_t end = time(NULL) + (time_t)seconds;
    long tried = 0, parsed = 0;
    printf("fuzz_stages: seed %llu\n", (unsigned long long)r.state);
    fflush(stdout);
    for (uint64_t i = 0; i < 24; i++) add_random(r.state + i);
    add_folder("test/golden");
    for (; time(NULL) < end; tried++) {
        snprintf(text, sizeof text, "%s", corpus[random_below(&r, texts)]);
        size_t n = strlen(text);
        for (int64_t k = random_below(&r, 5); k >= 0; k--) n = damage(text, n, &r);
        parsed += check(&r);
    }
    for (int i = 0; i < texts; i++) free(corpus[i]);
    printf("fuzz_stages: %ld texts, %ld of them graphs\n", tried, parsed);
    return parsed == 0;
}
