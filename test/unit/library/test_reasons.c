/*
 * test_reasons.c -- why programs are apart (CODA_TEXT_REASONS): each pair of which one reads what the other
 * writes has a reason, in all graphs that the tests have; and no reason lies: without the cause that it names
 * the two are one launch.
 */
#include "executable.h"
#include "util_family.h"
#include "util_print.h"
#include "util_run.h"
#include "util_scale.h"
#include "util_unusual.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is said ---- */

static bool is_of_run(const struct tensor_use *u) { return u->buffer >= 0 && u->role != USE_SCRATCH; }
static bool is_written(const struct tensor_use *u) { return is_of_run(u) && use_effect(u) != EFFECT_READ; }
static bool is_read(const struct tensor_use *u)
{
    return is_of_run(u) && use_effect(u) & (EFFECT_READ | EFFECT_ADD);
}

/* Who writes what: of each buffer, the last program's use that does, and of each use the one before. */
struct write {
    const struct tensor_use *use;
    int program, before; /* the latter of all writes, -1: none */
};

struct writes {
    struct write *all;
    int n, *last; /* of a buffer; -1 */
};

static struct writes writes_of(const struct plan *p)
{
    const struct tensor_use *u;
    int uses = 0;
    for (int i = 0; i < p->programs; i++)
        for (int k = 0; program_use(&p->program[i], k); k++) uses++;
    struct writes w = {.all = calloc((size_t)uses + 1, sizeof *w.all),
                       .last = malloc(sizeof(int) * (size_t)(p->buffers + 1))};
    ck_assert(w.all && w.last);
    for (int b = 0; b < p->buffers; b++) w.last[b] = -1;
    for (int i = 0; i < p->programs; i++)
        for (int k = 0; (u = program_use(&p->program[i], k)); k++)
            if (is_written(u))
                w.all[w.n] = (struct write){u, i, w.last[u->buffer]}, w.last[u->buffer] = w.n++;
    return w;
}

/* Marks the programs that write what program j reads. */
static void mark_writers(const struct plan *p, const struct writes *w, int j, bool *writes)
{
    const struct tensor_use *r;
    memset(writes, 0, sizeof *writes * (size_t)p->programs);
    for (int k = 0; (r = program_use(&p->program[j], k)); k++)
        for (int i = is_read(r) ? w->last[r->buffer] : -1; i >= 0; i = w->all[i].before)
            if (w->all[i].use->version == r->version && w->all[i].program != j)
                writes[w->all[i].program] = true;
}

/* ---- All graphs ---- */

enum { MOST_KINDS = 128 };

static struct tally {
    char kind[MOST_KINDS][24];
    int count[MOST_KINDS], kinds, pairs;
} tally;

static void count_kind(const char *kind)
{
    int k = 0;
    while (k < tally.kinds && strcmp(tally.kind[k], kind)) k++;
    ck_assert_int_lt(k, MOST_KINDS);
    if (k == tally.kinds) snprintf(tally.kind[tally.kinds++], sizeof tally.kind[0], "%s", kind);
    tally.count[k]++;
}

/* What a kind says of the two programs. */
enum { GEMM = 1 << PROGRAM_GEMM, ROWS = 1 << PROGRAM_ROWS, OWN = 1 << PROGRAM_OWN, ANY = GEMM | ROWS | OWN };

static const struct rule {
    const char *kind;
    int writer, reader; /* of which kinds they may be */
    unsigned flags;     /* with which it is said alone */
} rules[] = {{"operand", ANY, GEMM, 0},
             {"one_product", GEMM, GEMM, 0},
             {"in_epilogue", ROWS, GEMM, 0},
             {"other_pass", ROWS, ROWS, 0},
             {"kernel_operand", ANY, OWN, 0},
             {"kernel_result", OWN, ANY, 0},
             {"best_of_tiles", GEMM, OWN, 0},
             {"price_of_best", GEMM, OWN, 0},
             {"columns_of_best", GEMM, OWN, 0},
             {"most_best", GEMM, OWN, 0},
             {"look_up", GEMM | ROWS, ROWS, 0},
             {"pairs_in_rows", ROWS, GEMM | ROWS, 0},
             {"two_folds", ROWS, ANY, 0},
             {"loaded_once", ROWS, ANY, 0},
             {"short_rows", GEMM, ANY, 0},
             {"walked_anyway", GEMM, ANY, 0},
             {"narrow", ANY, GEMM, 0},
             {"key", ANY, GEMM, 0},
             {"no_map", ANY, GEMM, 0},
             {"most_tiles", ANY, GEMM, 0},
             {"most_again", ANY, GEMM, 0},
             {"saves_nothing", ANY, GEMM, 0},
             {"several_readers", ANY, GEMM, 0},
             {"not_in_memory", ANY, GEMM, 0},
             {"part_bounds", GEMM, ANY, 0},
             {"part_operand", GEMM, ANY, 0},
             {"segment_width", GEMM, ANY, 0},
             {"segment_tile", GEMM, ANY, 0},
             {"segment_alone", GEMM, ANY, CODA_BATCH_INVARIANT},
             {"paired_already", GEMM, ANY, 0},
             {"pairs_apart", GEMM, ANY, 0},
             {"no_fusion", ANY, ANY, CODA_NO_FUSION},
             {"other_rows", ANY, ANY, CODA_BATCH_INVARIANT}};

static void expect_rule(const char *what, const struct plan *p, int i, int j, const char *kind,
                        unsigned flags)
{
    bool prepared = p->program[i].prepare && !p->program[j].prepare;
    ck_assert_msg(prepared == !strcmp(kind, "prepared"), "%s: @%d -> @%d: %s", what, i, j, kind);
    for (int k = 0; k < ARRAY_SIZE(rules); k++) {
        const struct rule *r = &rules[k];
        if (strcmp(r->kind, kind)) continue;
        bool good = r->writer >> p->program[i].kind & r->reader >> p->program[j].kind & 1;
        ck_assert_msg(good && (!r->flags || r->flags & flags), "%s: @%d -> @%d: %s of kinds %d and %d", what,
                      i, j, kind, (int)p->program[i].kind, (int)p->program[j].kind);
    }
}

/* A line for each pair, in the order of readers and then of writers, and for no other. */
static void expect_pairs(const char *what, const struct plan *p, const char *text, unsigned flags)
{
    struct writes all = writes_of(p);
    bool *writes = malloc((size_t)p->programs + 1);
    ck_assert(writes);
    for (int j = 0; j < p->programs; j++) {
        mark_writers(p, &all, j, writes);
        for (int i = 0; i < p->programs; i++) {
            int writer = -1, reader = -1, end = 0;
            char kind[24] = "";
            if (!writes[i]) continue;
            sscanf(text, "@%d -> @%d %23s %n", &writer, &reader, kind, &end);
            ck_assert_msg(writer == i && reader == j, "%s: @%d -> @%d has no line, but\n%s", what, i, j,
                          text);
            ck_assert_msg(strcmp(kind, "none") != 0, "%s: no reason: %.200s", what, text);
            ck_assert_msg(!memchr(text, '?', strcspn(text, "\n")), "%s: %.300s", what, text);
            expect_rule(what, p, i, j, kind, flags);
            count_kind(kind);
            tally.pairs++;
            text = strchr(text, '\n') + 1;
        }
    }
    free(writes), free(all.all), free(all.last);
    ck_assert_msg(!strstr(text, " -> "), "%s: no pair, but %s", what, text);
}

static const struct mode {
    const char *name, *arch;
    unsigned flags;
    coda_fold fold;
} modes[] = {{"fused", "sm_90a", 0, CODA_FOLD_NONE},
             {"unfused", "sm_90a", CODA_NO_FUSION, CODA_FOLD_NONE},
             {"folded", "sm_80", 0, CODA_FOLD_COPY},
             {"folded in place", "sm_90a", CODA_FAST_FP16, CODA_FOLD_IN_PLACE},
             {"invariant", "sm_90a", CODA_BATCH_INVARIANT, CODA_FOLD_NONE}};

static void expect_reasons(const char *name, const coda_graph *g)
{
    for (int i = 0; i < ARRAY_SIZE(modes); i++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        char what[256];
        coda_plan *p;
        opt.device = CODA_DEVICE_NONE;
        opt.arch = modes[i].arch, opt.flags = modes[i].flags | CODA_PLAN_ONLY, opt.fold = modes[i].fold;
        snprintf(what, sizeof what, "%s, %s", name, modes[i].name);
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", what, coda_error());
        char *text = printed_plan(p, CODA_TEXT_REASONS);
        ck_assert_msg(text != NULL, "%s", coda_error());
        expect_pairs(what, &p->plan, text, opt.flags);
        free(text);
        coda_plan_free(p);
    }
}

static void expect_folder(const char *folder)
{
    struct dirent **entry;
    int n = scandir(folder, &entry, NULL, alphasort), graphs = 0;
    ck_assert_msg(n > 0, "%s: run the tests from the project's root", folder);
    for (int i = 0; i < n; i++) {
        char path[512];
        size_t length = strlen(entry[i]->d_name);
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        bool is_graph = length > 5 && !strcmp(entry[i]->d_name + length - 5, ".coda");
        is_graph = is_graph && (!SANITIZED || scale_takes_one_in(3, i));
        graph *g = is_graph ? run_load(path) : NULL;
        ck_assert_msg(g || !is_graph, "%s: %s", path, coda_error());
        if (g) expect_reasons(path, g), graphs++;
        coda_graph_free(g);
        free(entry[i]);
    }
    free(entry);
    ck_assert_int_gt(graphs, SANITIZED ? 0 : 8);
}

START_TEST(of_goldens_and_examples)
{
    int pairs = 0;
    tally = (struct tally){.kinds = 0};
    expect_folder("test/golden");
    expect_folder("examples/graphs");
    for (int k = 0; k < tally.kinds; k++) {
        printf("  reasons: %5d %s\n", tally.count[k], tally.kind[k]);
        pairs += tally.count[k];
    }
    ck_assert_int_eq(pairs, tally.pairs);
    ck_assert_msg(SANITIZED || tally.kinds >= 20, "%d kinds", tally.kinds);
}
END_TEST

enum { RANDOM = 40 };

START_TEST(of_random_graphs)
{
    const struct random_options options[] = {{.patterns = 8},
                                             {.patterns = 12, .states = true},
                                             {.patterns = 5, .most_dim = 200, .dtype = CODA_BF16}};
    uint64_t seed = random_seed();
    for (int i = 0; i < scaled(RANDOM); i++) {
        char name[64];
        graph *g = random_graph(seed + (uint64_t)i, &options[i % 3]);
        snprintf(name, sizeof name, "random graph %llu, options %d", (unsigned long long)seed + i, i % 3);
        expect_reasons(name, g);
        graph_free(g);
    }
}
END_TEST

START_TEST(of_families)
{
    uint64_t seed = random_seed();
    for (int i = 0; i < scaled(RANDOM) / 2; i++) {
        struct family f;
        char name[256];
        family_make_known(&f, (enum known_family)(i % KNOWN_FAMILIES), seed + (uint64_t)i, 0);
        snprintf(name, sizeof name, "family %llu: %s", (unsigned long long)seed + i, f.name);
        expect_reasons(name, f.g);
        coda_graph_free(f.g);
    }
}
END_TEST

START_TEST(of_unusual_graphs)
{
    const struct unusual *u = &unusual[_i];
    for (int k = 0; k < 2 && u->most[k]; k++) {
        graph *g = u->make(u->most[k]);
        ck_assert_msg(g != NULL, "%s: %s", u->name, coda_error());
        expect_reasons(u->name, g);
        graph_free(g);
    }
}
END_TEST

TESTS(reasons, ONE(of_goldens_and_examples), ONE(of_random_graphs), ONE(of_families),
      SOME(of_unusual_graphs, unusuals));
