/*
 * gpu_invariant.c -- with CODA_BATCH_INVARIANT a row has the same bits alone, among any number of others, at
 * any place, in plans of that number of rows and of all numbers, and before and after better kernels take
 * over. And a packed query has them whoever else is in the batch, and in whatever piece of its sequence it
 * comes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base.h"
#include "gpu_case.h"
#include "util_company.h"
#include "util_device.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_invariant(void);

enum { POOL = 4096, EMULATED_POOL = 300 };

/* Numbers of rows, around those where tiles change; of the emulator as few as show both. */
static const int64_t fixed_rows[] = {1,   2,   5,   8,   9,   16,  17,  32,   33,   64,   65,
                                     128, 129, 192, 256, 257, 300, 777, 1024, 1025, 2048, 4096};
static const int64_t emulated_rows[] = {1, 7, 16, 70, EMULATED_POOL};
enum { RANDOM_ROWS = 6, FULL_RANDOM_ROWS = 60 };

struct numbers {
    int64_t rows[128];
    int n;
};

static struct numbers numbers_of(bool slow, uint64_t seed)
{
    struct random r = {seed};
    struct numbers all = {.n = 0};
    int more = slow ? scale_is_full() ? RANDOM_ROWS : 1 : scale_is_full() ? FULL_RANDOM_ROWS : RANDOM_ROWS;
    for (int i = 0; i < (slow ? ARRAY_SIZE(emulated_rows) : ARRAY_SIZE(fixed_rows)); i++) {
        bool end = i == 0 || i == ARRAY_SIZE(emulated_rows) - 1;
        if (slow && !end && !scale_takes_one_in(3, i)) continue;
        all.rows[all.n++] = slow ? emulated_rows[i] : fixed_rows[i];
    }
    for (int i = 0; i < more; i++) all.rows[all.n++] = 1 + random_below(&r, slow ? EMULATED_POOL : POOL);
    return all;
}

/* ---- Rows ---- */

static coda_plan *plan_of(const struct company *c, int64_t rows, unsigned flags, coda_policy policy)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.flags = flags, opt.policy = policy;
    return company_plan(c, rows, &opt);
}

static coda_shape_stats stats_of(const coda_plan *p)
{
    coda_shape_stats s = CODA_SHAPE_STATS_INIT;
    coda_shape_stats_get(p, &s);
    return s;
}

/* With kernels for any number of rows, as long as no better ones are there, and with those. */
static bool ask_while_kernels_come(struct company *c, const coda_plan *p, int64_t rows, int *swaps)
{
    int64_t before = stats_of(p).runs_base;
    bool good = company_ask(c, p, rows);
    bool base = good && stats_of(p).runs_base > before;
    while (good && stats_of(p).pending) usleep(1000);
    good = good && company_ask(c, p, rows) && !stats_of(p).failed;
    *swaps += good && base && stats_of(p).runs_base == before + 1;
    return good;
}

static bool ask_exactly(struct company *c, unsigned flags, int64_t rows)
{
    coda_plan *p = plan_of(c, rows, flags, CODA_POLICY_WAIT);
    bool good = p && company_ask(c, p, rows);
    coda_plan_free(p);
    return good;
}

/* Plans of one number of rows take a while to compile. */
static bool ask_all(struct company *c, unsigned flags, const struct numbers *n, int *swaps)
{
    coda_plan *all = plan_of(c, 0, flags, CODA_POLICY_BACKGROUND),
              *base = plan_of(c, 0, flags, CODA_POLICY_NEVER);
    bool good = all && base;
    for (int i = 0; i < n->n && good; i++) {
        good = ask_while_kernels_come(c, all, n->rows[i], swaps) && company_ask(c, base, n->rows[i]);
        if (good && scale_takes_one_in(3, i)) good = ask_exactly(c, flags, n->rows[i]);
    }
    coda_plan_free(all);
    coda_plan_free(base);
    return good;
}

static int one_case(const struct company_case *of, uint64_t seed, bool flag, bool slow)
{
    const struct numbers n = numbers_of(slow, seed);
    struct company c;
    char name[96];
    int swaps = 0;
    snprintf(name, sizeof name, "invariant, %s%s", of->name, flag ? "" : ", without the flag");
    bool ran = company_open(&c, of, slow ? EMULATED_POOL : POOL, seed, true) &&
               ask_all(&c, flag ? CODA_BATCH_INVARIANT : 0, &n, &swaps);
    bool sane = ran && company_makes_sense(&c), right = flag ? !c.different : c.different > 0;
    int failed =
        gpu_case(sane && right && swaps, name,
                 "%d answers in other company, %d of other bits%s; better kernels took over %d times%s%s",
                 c.compared, c.different, c.first, swaps,
                 ran ? "" : "; it does not run: ", ran ? sane ? "" : "; NOT FINITE" : coda_error());
    company_close(&c);
    return failed;
}

/* ---- Random graphs: maps of vectors, of rows and of samples, statistics, products ---- */

static const int64_t drawn_rows[] = {64, 1, 2, 15, 16, 63, 4096, 4097};
enum { SLOW_COUNTS = 4, SLOW_POOL = 70, RANDOM_GRAPHS = 16, SLOW_GRAPHS = 1, FULL_GRAPHS = 100 };

/* By a plan of all numbers of rows; false: it does not run. */
static bool one_graph(uint64_t seed, bool slow, int *compared, int *different)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct company c;
    opt.flags = CODA_BATCH_INVARIANT, opt.fold = (coda_fold)(seed % 3);
    bool good = company_open_graph(&c, company_graph(seed), slow ? SLOW_POOL : COMPANY_MOST_ROWS, seed, true);
    coda_plan *p = good ? company_plan(&c, 0, &opt) : NULL;
    for (int i = 0; i < (slow ? SLOW_COUNTS : ARRAY_SIZE(drawn_rows)) && (good = good && p); i++)
        good = company_ask(&c, p, drawn_rows[i]);
    *compared += c.compared, *different += c.different > 0;
    coda_plan_free(p);
    company_close(&c);
    return good;
}

/* $CODA_GRAPHS: so many, and nothing else. */
static int random_graphs(uint64_t seed, bool slow)
{
    const char *wanted = getenv("CODA_GRAPHS");
    int graphs = wanted ? atoi(wanted) : scale_is_full() ? FULL_GRAPHS : slow ? SLOW_GRAPHS : RANDOM_GRAPHS;
    int compared = 0, different = 0, i = 0;
    while (i < graphs && one_graph(seed + (uint64_t)i, slow, &compared, &different) && !different) i++;
    return gpu_case(i == graphs && compared && !different, "invariant, random graphs",
                    "%d graphs, %d answers in other company%s; seed %llu%s%s", i, compared,
                    different ? ", OTHER BITS" : "", (unsigned long long)seed + (uint64_t)i,
                    i < graphs && !different ? " does not run: " : "",
                    i < graphs && !different ? coda_error() : "");
}

/* ---- Queries of sequences ---- */

enum { SEQUENCES = 6, LONGEST = 300, PAGE = 16, HEADS = 4, KEY_HEADS = 2, HEAD = 64, MOST_QUERIES = 400 };
enum { PAGES = (LONGEST + PAGE - 1) / PAGE, SLOTS = SEQUENCES * PAGES * PAGE, ROW = HEADS * HEAD };
enum { Q, K, V, SIZE, TABLE, STARTS, OUT, LSE, BUFFERS };

struct sequences {
    coda_plan *plan;
    struct random r;
    uint16_t query[SEQUENCES][LONGEST][ROW], answer[SEQUENCES][LONGEST][ROW];
    float lse[SEQUENCES][LONGEST][HEADS]; /* beside it: unrounded */
    bool answered[SEQUENCES][LONGEST];
    void *gpu[BUFFERS], *workspace;
    int compared, different;
};

/* One step of a server: a piece of some of the sequences, each of which ends somewhere in it. */
struct step {
    int sequences, queries;
    int32_t who[SEQUENCES], from[SEQUENCES], length[SEQUENCES], start[SEQUENCES + 1];
    int32_t table[SEQUENCES][PAGES];
};

static coda_plan *packed_plan(int64_t window, unsigned flags)
{
    coda_graph *g = coda_graph_new();
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    coda_dim t = coda_symbol(g, "T", 1, MOST_QUERIES, 1), b = coda_symbol(g, "B", 1, SEQUENCES, 1);
    coda_value q = coda_input(g, "q", CODA_BF16, 2, (int64_t[]){t, ROW});
    coda_value k = coda_input(g, "k", CODA_BF16, 2, (int64_t[]){SLOTS, KEY_HEADS * HEAD});
    coda_value v = coda_input(g, "v", CODA_BF16, 2, (int64_t[]){SLOTS, KEY_HEADS * HEAD});
    coda_value n = coda_input(g, "n", CODA_I32, 1, &b);
    o.table = coda_input(g, "table", CODA_I32, 2, (int64_t[]){b, PAGES});
    o.starts = coda_input(g, "starts", CODA_I32, 1, (int64_t[]){coda_dim_add(g, b, 1)});
    o.heads = HEADS, o.kv_heads = KEY_HEADS, o.causal = 1, o.align = CODA_ALIGN_LENGTH, o.page = PAGE;
    o.window = window;
    coda_value lse;
    coda_output(g, "a", coda_attention_lse(g, q, k, v, n, &o, &lse));
    coda_output(g, "lse", lse);
    opt.flags = flags;
    coda_status status = coda_compile(&p, g, &opt);
    coda_graph_free(g);
    return status == CODA_OK ? p : NULL;
}

/* Where a piece begins; a single query where one was asked before, if that is found. */
static int draw_begin(struct sequences *s, int who, int pieces)
{
    int from = 0;
    for (int i = 0; i < 50; i++) {
        from = (int)random_below(&s->r, LONGEST - pieces + 1);
        if (pieces > 1 || s->answered[who][from]) break;
    }
    return from;
}

static void draw_step(struct sequences *s, struct step *t, bool decoding)
{
    *t = (struct step){.sequences = 1 + (int)random_below(&s->r, SEQUENCES)};
    int first = (int)random_below(&s->r, SEQUENCES);
    for (int i = 0; i < t->sequences; i++) {
        int left = MOST_QUERIES - t->queries - SEQUENCES;
        int pieces = decoding || left < 1 ? 1 : 1 + (int)random_below(&s->r, MIN(left, 200));
        t->who[i] = (first + i) % SEQUENCES, t->from[i] = draw_begin(s, t->who[i], pieces);
        t->length[i] = t->from[i] + pieces;
        t->start[i] = t->queries, t->queries += pieces;
        for (int p = 0; p < PAGES; p++) t->table[i][p] = t->who[i] * PAGES + (p * 7 + t->who[i]) % PAGES;
    }
    t->start[t->sequences] = t->queries;
}

/* What one query is given. */
static bool same(struct sequences *s, int who, int at, const uint16_t *out, const float *lse)
{
    bool first = !s->answered[who][at];
    if (first) memcpy(s->answer[who][at], out, sizeof s->answer[who][at]);
    if (first) memcpy(s->lse[who][at], lse, sizeof s->lse[who][at]);
    s->compared += !first;
    s->answered[who][at] = true;
    return !memcmp(s->answer[who][at], out, sizeof s->answer[who][at]) &&
           !memcmp(s->lse[who][at], lse, sizeof s->lse[who][at]);
}

/* lse: of each head, all queries. */
static void compare(struct sequences *s, const struct step *t, uint16_t (*out)[ROW], const float *lse)
{
    for (int i = 0; i < t->sequences; i++)
        for (int j = t->start[i]; j < t->start[i + 1]; j++) {
            float own[HEADS];
            for (int h = 0; h < HEADS; h++) own[h] = lse[h * t->queries + j];
            s->different += !same(s, t->who[i], t->from[i] + j - t->start[i], out[j], own);
        }
}

static bool run_step(struct sequences *s, const struct step *t)
{
    static uint16_t rows[MOST_QUERIES][ROW];
    static float lse[MOST_QUERIES * HEADS];
    size_t bytes = sizeof *rows * (size_t)t->queries, each = sizeof(int32_t) * (size_t)t->sequences,
           sums = sizeof *lse * HEADS * (size_t)t->queries;
    coda_run_options run = CODA_RUN_OPTIONS_INIT;
    run.dims = (int64_t[]){t->queries, t->sequences}, run.dim_count = 2;
    for (int i = 0; i < t->sequences; i++)
        memcpy(rows[t->start[i]], s->query[t->who[i]][t->from[i]],
               sizeof *rows * (size_t)(t->length[i] - t->from[i]));
    bool good =
        device_upload(s->gpu[Q], rows, bytes) && device_upload(s->gpu[SIZE], t->length, each) &&
        device_upload(s->gpu[TABLE], t->table, each * PAGES) &&
        device_upload(s->gpu[STARTS], t->start, each + sizeof(int32_t)) &&
        device_fill(s->gpu[OUT], 0xff, bytes) && device_fill(s->gpu[LSE], 0xff, sums) && device_wait() &&
        coda_run_shaped(s->plan, s->gpu, NULL, s->workspace, NULL, &run) == CODA_OK && device_wait() &&
        device_download(rows, s->gpu[OUT], bytes) && device_download(lse, s->gpu[LSE], sums);
    if (good) compare(s, t, rows, lse);
    return good;
}

static void fill(struct random *r, uint16_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dtype_store(CODA_BF16, to, i, random_normal(r));
}

static bool open_sequences(struct sequences *s, int64_t window, unsigned flags)
{
    const size_t bytes[BUFFERS] = {
        sizeof(uint16_t) * MOST_QUERIES * ROW,       sizeof(uint16_t) * SLOTS * KEY_HEADS * HEAD,
        sizeof(uint16_t) * SLOTS * KEY_HEADS * HEAD, sizeof(int32_t) * SEQUENCES,
        sizeof(int32_t) * SEQUENCES * PAGES,         sizeof(int32_t) * (SEQUENCES + 1),
        sizeof(uint16_t) * MOST_QUERIES * ROW,       sizeof(float) * MOST_QUERIES * HEADS};
    uint16_t *keys = malloc(bytes[K]);
    bool good = keys && (s->plan = packed_plan(window, flags));
    fill(&s->r, s->query[0][0], SEQUENCES * LONGEST * ROW);
    for (int i = 0; i < BUFFERS; i++) good = good && (s->gpu[i] = device_alloc(bytes[i]));
    for (int i = K; i <= V && good; i++) {
        fill(&s->r, keys, SLOTS * KEY_HEADS * HEAD);
        good = device_upload(s->gpu[i], keys, bytes[i]);
    }
    free(keys);
    return good && (s->workspace = device_alloc(coda_plan_workspace(s->plan) + 1));
}

/* A step of prompts, and some of writing, in turns; the seed draws whose, and of how many queries. */
enum { STEPS = 400, EMULATED_STEPS = 8, FULL_EMULATED_STEPS = 36, STEPS_OF_PROMPTS = 6 };
static int pieces_of_sequences(uint64_t seed, int64_t window, bool flag, bool slow)
{
    struct sequences *s = calloc(1, sizeof *s);
    char name[96];
    bool good = s;
    snprintf(name, sizeof name, "invariant, packed queries%s%s", window ? ", a window" : "",
             flag ? "" : ", without the flag");
    if (good) s->r.state = seed, good = open_sequences(s, window, flag ? CODA_BATCH_INVARIANT : 0);
    int steps = !slow ? STEPS : scale_is_full() ? FULL_EMULATED_STEPS : EMULATED_STEPS;
    for (int i = 0; i < steps && good; i++) {
        struct step t;
        draw_step(s, &t, i % STEPS_OF_PROMPTS);
        good = run_step(s, &t);
    }
    bool right = good && s->compared && (flag ? !s->different : s->different > 0);
    int failed =
        gpu_case(right, name, "%d answers in other company, %d of other bits%s%s", s ? s->compared : 0,
                 s ? s->different : 0, good ? "" : "; it does not run: ", good ? "" : coda_error());
    for (int i = 0; s && i < BUFFERS; i++) device_free(s->gpu[i]);
    if (s) device_free(s->workspace), coda_plan_free(s->plan);
    free(s);
    return failed;
}

int gpu_invariant(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    if (!device_open(&device, err)) return gpu_case(false, "invariant", "%s", err);
    bool slow = device_emulated(&device);
    uint64_t seed = random_seed();
    if (getenv("CODA_GRAPHS")) return random_graphs(seed, slow);
    int failed = 0;
    if (!slow || scale_takes_one_in(3, 0))
        failed += one_case(&company_cases[0], seed, false, slow); /* it can fail */
    for (int i = 0; i < company_case_count; i++)
        if (slow ? !company_cases[i].large && (i == 0 || scale_takes_one_in(company_case_count - 2, i))
                 : true)
            failed += one_case(&company_cases[i], seed + (uint64_t)i, true, slow);
    failed += random_graphs(seed, slow);
    failed += pieces_of_sequences(seed, 0, false, slow);
    failed += pieces_of_sequences(seed, 0, true, slow);
    if (!slow || scale_takes_half(0)) failed += pieces_of_sequences(seed, 70, true, slow);
    return failed;
}
