/*
 * test_tuning.c -- figures as text, what is decided from them, and plans that follow decisions. The
 * device is made up: nothing is measured here.
 */
#include "cpu.h"
#include "emit.h"
#include "epilogue_layout.h"
#include "pipeline.h"
#include "rewrite.h"
#include "schedule.h"
#include "tile.h"
#include "tune_bench.h"
#include "util_folder.h"
#include "util_gemm.h"
#include "util_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static struct coda_cache *cache;
static const struct jit_device device = {.name = "a made up GPU", .sms = 132, .driver = 13000};

static void set_up(void)
{
    folder_make();
    cache = cache_open(&(struct cache_options){.dir = folder});
}

static void tear_down(void)
{
    cache_close(cache);
    folder_remove();
}

/* ---- Text ---- */

static struct figures figures_of(const char *text)
{
    struct figures f;
    ck_assert_msg(figures_read(&f, text), "%s", text);
    return f;
}

START_TEST(text_is_a_round_trip)
{
    static const char text[] = "118.320 tile sm90 128x256x64 stages=4 groups=2 band=8\n"
                               "117.905 tile sm90 128x192x64 stages=5 groups=2 pingpong band=8\n"
                               "0.125 bare\n1234567.000 apart\n2.000 whole\n";
    struct figures f = figures_of(text);
    struct text again = {0};
    figures_write(&f, &again);
    ck_assert_str_eq(text_str(&again), text);
    ck_assert(figures_us(&f, "apart") == 1234567 && figures_us(&f, "bare") == 0.125);
    ck_assert(figures_us(&f, "none") == 0);
    text_free(&again);
}
END_TEST

START_TEST(other_text_is_none)
{
    static const char *const bad[] = {
        "",
        "\n",
        "9.0 bare\n",               /* no tile */
        "9.0 tile a",               /* cut off */
        "9.0 tile a\n8.0 tile",     /* cut off later */
        "9.0 tile a\n8.0 faster\n", /* an unknown way */
        "9.0 tile a\n-1 bare\n",
        "9.0 tile a\n0 bare\n",
        "9.0 tile a\nnan bare\n",
        "9.0 tile a\ninf bare\n",
        "tile a 9.0\n",
        "9.0 tile a\nx\n",
        "9.0 tile aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaa\n",
    };
    for (int i = 0; i < ARRAY_SIZE(bad); i++) {
        struct figures f;
        ck_assert_msg(!figures_read(&f, bad[i]) && !f.n, "\"%s\" was read", bad[i]);
    }
}
END_TEST

START_TEST(there_is_a_most)
{
    struct text t = {0};
    struct figures f;
    for (int i = 0; i < MOST_FIGURES; i++) text_append(&t, "1 tile a\n");
    ck_assert(figures_read(&f, text_str(&t)) && f.n == MOST_FIGURES);
    text_append(&t, "1 tile a\n");
    ck_assert(!figures_read(&f, text_str(&t)) && !f.n);
    text_free(&t);
}
END_TEST

/* ---- Decisions ---- */

START_TEST(the_fastest_wins_by_a_margin)
{
    static const struct {
        const char *text, *tile;
        bool apart;
    } want[] = {
        {"9 tile a\n", "a", false},
        {"9 tile a\n5 tile b\n", "b", false},
        {"9 tile a\n8.95 tile b\n", "a", false}, /* noise */
        {"9 tile a\n5 tile b\n4 tile c\n", "c", false},
        {"9 tile a\n1 bare\n", "a", false}, /* nobody can have the bare product alone */
        {"9 tile a\n1 bare\n8 apart\n", "a", true},
        {"9 tile a\n1 bare\n8.9 apart\n", "a", false}, /* noise */
        {"9 tile a\n5 tile b\n8 apart\n", "b", false},
        {"9 tile a\n20 whole\n15 apart\n", "a", true},              /* with what runs beside it */
        {"9 tile a\n5 tile b\n20 whole\n15.8 apart\n", "b", false}, /* 16, as b saves 4 */
        {"9 tile a\n5 tile b\n20 whole\n15 apart\n", "b", true},
    };
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct figures f = figures_of(want[i].text);
        const char *tile;
        bool apart = figures_decide(&f, &tile);
        ck_assert_str_eq(tile, want[i].tile);
        ck_assert_msg(apart == want[i].apart, "%s", want[i].text);
    }
}
END_TEST

/* ---- Plans ---- */

/* Two products; the first feeds a norm and a gate, the second a residual and a statistic. */
static graph *block(void)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){96, 128});
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){512, 128});
    coda_value d = coda_weight(g, "d", CODA_BF16, 2, (int64_t[]){128, 256});
    coda_value a = coda_swiglu(g, coda_matmul(g, coda_rms_norm(g, x, CODA_NONE, 1e-5f), w), CODA_STACKED);
    coda_value y = coda_add(g, coda_matmul(g, a, d), x);
    coda_output(g, "y", y);
    coda_output(g, "s", coda_row_sum(g, coda_mul(g, y, y)));
    return g;
}

static struct plan_options hopper(void)
{
    struct plan_options o = {.fuse = true, .target = gemm_target};
    return o;
}

static graph *rewritten(void)
{
    struct rewrite_log log = {0};
    graph *g = block(), *r = rewrite(g, &(struct rewrite_options){.fuse = true}, &log);
    ck_assert_msg(r, "%s", coda_error());
    rewrite_log_free(&log);
    graph_free(g);
    return r;
}

static struct tuner tuner_of(const graph *g, struct arena *a)
{
    return (struct tuner){.build = plan_build,
                          .graph = g,
                          .options = hopper(),
                          .gpu = &device,
                          .arena = a,
                          .jit = {.arch = "sm_90a", .cache = cache}};
}

static void put(const struct plan *p, int index, const char *text)
{
    struct text key = {0};
    struct jit_options opt = {.arch = "sm_90a", .cache = cache};
    figures_key(p, NULL, index, &key);
    jit_figures_put(text_str(&key), &device, &opt, text);
    text_free(&key);
}

static int gemm_of(const struct plan *p, int n)
{
    for (int i = 0; i < p->programs; i++)
        if (p->program[i].kind == PROGRAM_GEMM && n-- == 0) return i;
    ck_abort_msg("too few products");
    return -1;
}

/* The candidate that is printed so; the choice, if there is none. */
static struct tile named(const struct program *p, const char *words)
{
    struct tile t;
    ck_assert_msg(tile_parse(words, &t), "%s", words);
    return tile_offered(p, &gemm_target, &t);
}

START_TEST(candidates_are_distinct_and_the_choice_comes_first)
{
    static const int64_t rows[] = {1, 16, 64, 200, 1000, 16384};
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
        struct program p = {.kind = PROGRAM_GEMM, .rank = 3, .dim = {1, rows[i], 4096}, .k = 4096};
        p.a = operand_of((struct tensor_use){.dtype = CODA_BF16, .row = 4096, .k = 1});
        p.b = p.a;
        struct tile t[6], choice = tile_choose(&p, &gemm_target);
        int n = tile_candidates(&p, &gemm_target, TILES_KNOWN, t, 6);
        ck_assert_int_eq(n, 6);
        for (int j = 0; j < n; j++) {
            struct text words = {0}, others = {0};
            tile_print(&t[j], &words);
            struct tile again = named(&p, text_str(&words));
            tile_print(&again, &others);
            ck_assert_str_eq(text_str(&words), text_str(&others));
            text_free(&others);
            for (int k = 0; k < j; k++) {
                others = (struct text){0};
                tile_print(&t[k], &others);
                ck_assert_str_ne(text_str(&words), text_str(&others));
                text_free(&others);
            }
            text_free(&words);
        }
        ck_assert(t[0].bm == choice.bm && t[0].bn == choice.bn && t[0].groups == choice.groups);
        struct tile none = named(&p, "sm90 12x34x64 stages=1");
        ck_assert(none.bm == choice.bm && none.bn == choice.bn);
    }
}
END_TEST

/* Where TMA cannot go, and there is much to do; fp32 where few tiles have a long K, or where all is large. */
START_TEST(plain_mainloop_loses_to_cublaslt)
{
    static const struct {
        coda_dtype dtype;
        int64_t m, n, k;
        bool loses;
        int steps; /* of which each but the product and a store is the epilogue's */
    } want[] = {
        {CODA_F32, 4096, 1536, 384, false, 5},
        {CODA_F32, 4096, 384, 1536, false, 5},
        {CODA_BF16, 4096, 1536, 383, true, 5},
        {CODA_F32, 4096, 4096, 4096, true, 0},
        {CODA_F32, 512, 1024, 1024, false, 5},
        {CODA_F32, 64, 1024, 1024, true, 0},
        {CODA_F32, 1, 4096, 4096, true, 0},
        {CODA_F32, 64, 256, 128, false, 0},
        {CODA_BF16, 4096, 4096, 4095, true, 0},
        {CODA_BF16, 64, 1001, 1023, true, 0},
        {CODA_BF16, 16, 32, 33, false, 0},
        {CODA_BF16, 4096, 4096, 4096, false, 0}, /* has better than the plain one */
    };
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct program p = {.kind = PROGRAM_GEMM, .rank = 3, .dim = {1, want[i].m, want[i].n}};
        p.k = want[i].k;
        struct step step[8] = {{.kind = STEP_MAP}};
        p.step = step, p.steps = want[i].steps;
        p.a = p.b = operand_of((struct tensor_use){.dtype = want[i].dtype, .row = want[i].k, .k = 1});
        struct tile t = tile_choose(&p, &gemm_target);
        ck_assert_msg(tile_loses(&p, &t, &gemm_target) == want[i].loses, "[%d, %d, %d]", (int)want[i].m,
                      (int)want[i].n, (int)want[i].k);
        /* Two dtypes: not for it. */
        p.b.dtype = p.b.data.dtype = want[i].dtype == CODA_F32 ? CODA_BF16 : CODA_F32;
        ck_assert(!tile_loses(&p, &t, &gemm_target));
    }
}
END_TEST

START_TEST(equal_programs_have_equal_keys)
{
    struct plan p;
    struct text key[2] = {{0}, {0}}, other = {0};
    graph *r = rewritten();
    for (int i = 0; i < 2; i++) {
        struct plan_options o = hopper();
        o.target.sms -= i; /* other tiles, other states: the same programs */
        ck_assert_msg(!plan_build(&p, r, &o), "%s", coda_error());
        figures_key(&p, NULL, gemm_of(&p, 0), &key[i]);
        if (i) figures_key(&p, NULL, gemm_of(&p, 1), &other);
        plan_free(&p);
    }
    ck_assert_str_eq(text_str(&key[0]), text_str(&key[1]));
    ck_assert_str_ne(text_str(&key[0]), text_str(&other));
    ck_assert_ptr_null(strstr(text_str(&key[0]), "%"));
    text_free(&key[0]), text_free(&key[1]), text_free(&other);
    graph_free(r);
}
END_TEST

/* Who finishes its statistic decides what taking a program apart costs. */
START_TEST(keys_tell_neighbours_apart)
{
    struct text key[2] = {{0}, {0}}, alone[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        struct rewrite_log log = {0};
        struct plan p;
        struct plan_options o = hopper();
        coda_graph *g = coda_graph_new();
        coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){64, 256});
        coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){256, 256});
        coda_value v = coda_weight(g, "v", CODA_BF16, 2, (int64_t[]){512, 256});
        coda_value h = coda_add(g, coda_matmul(g, x, w), x), n = coda_rms_norm(g, h, CODA_NONE, 1e-5f);
        coda_output(g, "h", h);
        coda_output(g, "z", coda_matmul(g, h, v));
        coda_output(g, "y", i ? coda_matmul(g, n, v) : coda_reduce(g, "sum_sq", h, CODA_NONE));
        graph *r = rewrite(g, &(struct rewrite_options){.fuse = true}, &log);
        ck_assert_msg(r && !plan_build(&p, r, &o), "%s", coda_error());
        figures_key(&p, NULL, gemm_of(&p, 0), &key[i]);
        program_print(NULL, &p.program[gemm_of(&p, 0)], &alone[i]);
        plan_free(&p);
        graph_free(r), graph_free(g);
        rewrite_log_free(&log);
    }
    ck_assert_str_eq(text_str(&alone[0]), text_str(&alone[1]));
    ck_assert_str_ne(text_str(&key[0]), text_str(&key[1]));
    for (int i = 0; i < 2; i++) text_free(&key[i]), text_free(&alone[i]);
}
END_TEST

START_TEST(a_kept_winner_is_used)
{
    struct arena arena = {0};
    struct plan p, better;
    struct decision *d;
    graph *r = rewritten();
    struct tuner t = tuner_of(r, &arena);
    struct plan_options o = hopper();
    ck_assert_msg(!plan_build(&p, r, &o), "%s", coda_error());
    ck_assert(!tune_plan(&t, &p, &d, &o.decisions) && !o.decisions); /* nothing is known */
    const struct program *q = &p.program[gemm_of(&p, 0)];
    struct tile tile[4];
    ck_assert_int_eq(tile_candidates(q, &o.target, TILES_KNOWN, tile, 4), 4);
    struct text words = {0}, text = {0}, plan = {0};
    tile_print(&tile[3], &words);
    text_printf(&text, "9 tile x\n5 tile %s\n7 bare\n8 apart\n", text_str(&words));
    put(&p, gemm_of(&p, 0), text_str(&text));
    ck_assert(!tune_plan(&t, &p, &d, &o.decisions) && o.decisions == 1 && !t.measured);
    o.decision = d;
    ck_assert_msg(!plan_build(&better, r, &o), "%s", coda_error());
    const struct tile *got = &better.schedule[gemm_of(&better, 0)].tile;
    ck_assert(got->bm == tile[3].bm && got->bn == tile[3].bn && got->groups == tile[3].groups);
    plan_print(&better, &plan);
    static const char line[] = "   tuned 5.00 us, by price 9.00 us, 2 tiles; cuBLASLt without the epilogue "
                               "7.00 us; apart it would be 8.00 us instead of 5.00 us\n";
    ck_assert_ptr_nonnull(strstr(text_str(&plan), line));
    text_free(&words), text_free(&text), text_free(&plan);
    plan_free(&p), plan_free(&better);
    arena_free(&arena);
    graph_free(r);
}
END_TEST

static int states_of(const struct plan *p, enum use_role role)
{
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; j < p->program[i].ports; j++)
            if (p->program[i].port[j].role == role && p->program[i].port[j].blocks > 1)
                return p->program[i].port[j].blocks;
    return 0;
}

/* A tile that no price chooses can win; then a row has a state for each share, and who merges them knows. */
START_TEST(a_scattered_winner_is_used)
{
    struct arena arena = {0};
    struct plan p, better;
    struct decision *d;
    struct tile tile;
    struct text text = {0};
    graph *r = rewritten();
    struct tuner t = tuner_of(r, &arena);
    struct plan_options o = hopper();
    o.target.sms = t.options.target.sms = 4;
    ck_assert_msg(!plan_build(&p, r, &o), "%s", coda_error());
    int sum = gemm_of(&p, 1);
    ck_assert(tile_candidates(&p.program[sum], &o.target, TILES_SCATTERED, &tile, 1) == 1);
    text_append(&text, "9 tile x\n5 tile ");
    tile_print(&tile, &text);
    text_append(&text, "\n");
    put(&p, sum, text_str(&text));
    ck_assert(!tune_plan(&t, &p, &d, &o.decisions) && o.decisions == 1);
    o.decision = d;
    ck_assert_msg(!plan_build(&better, r, &o), "%s", coda_error());
    int at = gemm_of(&better, 1);
    const struct tile *got = &better.schedule[at].tile;
    struct kernel k;
    ck_assert(got->scattered && got->splits > 1 && got->bn == tile.bn);
    ck_assert_int_eq(states_of(&better, USE_PARTIAL_STORE), 128 / tile_share(&tile));
    ck_assert_int_eq(states_of(&better, USE_PARTIAL_LOAD), 128 / tile_share(&tile));
    ck_assert_msg(!program_emit(&better, &better.program[at], &better.schedule[at], &o.target, &k), "%s",
                  coda_error());
    text_free(&text);
    plan_free(&p), plan_free(&better);
    arena_free(&arena);
    graph_free(r);
}
END_TEST

/* Keeps figures of `n` tiles for each product; 0: of as many as would be measured. */
static void put_tiles(const struct tuner *t, const struct plan *p, int n)
{
    for (int i = 0; i < p->programs; i++) {
        struct text text = {0};
        if (p->program[i].kind != PROGRAM_GEMM) continue;
        int tiles = n ? n : benchmark_tiles(t, &p->program[i]);
        for (int j = 0; j < tiles; j++) text_printf(&text, "%d tile %d\n", 9 + j, j);
        put(p, i, text_str(&text));
        text_free(&text);
    }
}

/* Figures of few tiles do for one flag and not for the other, which would measure if it were let. */
START_TEST(thorough_tuning_wants_all_tiles)
{
    struct arena arena = {0};
    struct plan p;
    struct decision *d;
    int n;
    graph *r = rewritten();
    struct tuner t = tuner_of(r, &arena);
    ck_assert_msg(!plan_build(&p, r, &t.options), "%s", coda_error());
    put_tiles(&t, &p, 2);
    ck_assert(!tune_plan(&t, &p, &d, &n) && n > 0);
    t.thorough = true;
    ck_assert(!tune_plan(&t, &p, &d, &n) && n == 0);
    put_tiles(&t, &p, 0);
    ck_assert(!tune_plan(&t, &p, &d, &n) && n > 0);
    plan_free(&p);
    arena_free(&arena);
    graph_free(r);
}
END_TEST

START_TEST(what_is_foreign_is_not_used)
{
    static const char *const text[] = {"", "9 tile", "garbage\n", "5 bare\n9 tile a\n"};
    struct arena arena = {0};
    struct plan p;
    struct decision *d;
    int n;
    graph *r = rewritten();
    struct tuner t = tuner_of(r, &arena);
    struct plan_options o = hopper();
    ck_assert_msg(!plan_build(&p, r, &o), "%s", coda_error());
    int q = gemm_of(&p, 0);
    for (int i = 0; i < ARRAY_SIZE(text); i++) {
        put(&p, q, text[i]);
        ck_assert(!tune_plan(&t, &p, &d, &n) && n == 0);
    }
    put(&p, q, "9 tile a\n1 tile b\n");
    ck_assert(!tune_plan(&t, &p, &d, &n) && n == 1);
    struct jit_device other = device;
    other.sms = 114;
    t.gpu = &other;
    ck_assert(!tune_plan(&t, &p, &d, &n) && n == 0); /* of another device */
    t.gpu = &device;
    t.jit.arch = "sm_80";
    ck_assert(!tune_plan(&t, &p, &d, &n) && n == 0);
    t.jit.arch = "sm_90a";
    t.jit.no_cache = true;
    ck_assert(!tune_plan(&t, &p, &d, &n) && n == 0);
    plan_free(&p);
    arena_free(&arena);
    graph_free(r);
}
END_TEST

/* ---- Taken apart ---- */

static void run_all(const struct plan *p, void **args)
{
    size_t bytes = (size_t)(p->workspace + 511) / 256 * 256;
    void *workspace = memset(aligned_alloc(256, bytes), 0xff, bytes);
    for (int i = 0; i < p->programs; i++)
        ck_assert_msg(!cpu_run(p, &p->program[i], args, NULL, workspace), "%s", coda_error());
    free(workspace);
}

static int by_root(const void *x, const void *y)
{
    return ((const struct decision *)x)->root - ((const struct decision *)y)->root;
}

/* Any set of the graph's products, each by itself with its epilogue behind it, computes the same. */
static void take_apart(const graph *g, unsigned set, void **want, uint64_t seed)
{
    struct rewrite_log log = {0};
    struct decision d[8];
    struct plan p;
    struct plan_options o = hopper();
    graph *r = rewrite(g, &(struct rewrite_options){.fuse = true}, &log);
    rewrite_log_free(&log);
    ck_assert_msg(r && !plan_build(&p, r, &o), "%s", coda_error());
    for (int i = 0, bit = 0; i < p.programs && bit < 8; i++) {
        if (p.program[i].kind != PROGRAM_GEMM) continue;
        if (set >> bit++ & 1) d[o.decisions++] = (struct decision){.root = p.program[i].root, .apart = true};
    }
    plan_free(&p);
    qsort(d, (size_t)o.decisions, sizeof *d, by_root);
    o.decision = d;
    ck_assert_msg(!plan_build(&p, r, &o), "%s", coda_error());
    for (int i = 0; i < p.programs; i++) {
        const struct decision *q = plan_decision(&o, p.program[i].root);
        if (!q || p.program[i].kind != PROGRAM_GEMM) continue;
        ck_assert_int_eq(p.program[i].steps, 2); /* the product and its store */
        ck_assert(program_is_cublaslt(&p, i) &&
                  p.program[i].port[p.program[i].ports - 1].role == USE_SCRATCH);
    }
    void **got = random_args(g, seed, false);
    run_all(&p, got);
    int leaves = coda_graph_args(g) - g->outputs;
    for (int i = 0; i < g->outputs; i++)
        ck_assert_double_le(run_error(g, i, got[leaves + i], want[leaves + i]), 2e-2);
    random_args_free(g, got);
    plan_free(&p);
    graph_free(r);
}

START_TEST(programs_can_be_taken_apart)
{
    static const char *const name[] = {NULL, "llama_small", "gpt2_small", "bert_small"};
    char path[64];
    snprintf(path, sizeof path, "examples/graphs/%s.coda", name[_i] ? name[_i] : "");
    graph *g = name[_i] ? run_load(path) : block();
    void **want = run_reference(g, 7);
    ck_assert_msg(want, "%s", coda_error());
    static const unsigned set[] = {1, 2, 3, 0xff};
    for (int i = 0; i < ARRAY_SIZE(set); i++) take_apart(g, set[i], want, 7);
    random_args_free(g, want);
    graph_free(g);
}
END_TEST

/* Without figures the price speaks, if cuBLASLt is there; never where nothing is to be fused. */
static int decisions_without_figures(bool fuse)
{
    struct arena arena = {0};
    struct rewrite_log log = {0};
    struct decision *d;
    struct plan p;
    int n = 0;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){64, 1024});
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){1024, 1024});
    coda_output(g, "y", coda_silu(g, coda_matmul(g, x, w)));
    graph *r = rewrite(g, &(struct rewrite_options){.fuse = fuse}, &log);
    struct tuner t = tuner_of(r, &arena);
    t.options.fuse = fuse;
    t.jit.no_cache = true;
    ck_assert_msg(r && !plan_build(&p, r, &t.options), "%s", coda_error());
    ck_assert(!tune_plan(&t, &p, &d, &n));
    for (int i = 0; i < n; i++) ck_assert(d[i].apart && !d[i].figures);
    plan_free(&p);
    graph_free(r), graph_free(g);
    arena_free(&arena);
    rewrite_log_free(&log);
    return n;
}

START_TEST(without_figures_the_price_speaks)
{
    char line[JIT_ERROR_SIZE];
    ck_assert_int_eq(decisions_without_figures(true), jit_cublaslt_info(line, sizeof line));
    ck_assert_int_eq(decisions_without_figures(false), 0);
}
END_TEST

START_TEST(without_cublaslt_nothing_goes_there)
{
    setenv("CODA_CUDA_LIB", "/nonexistent", 1); /* in a process of its own: looked for once */
    ck_assert_int_eq(decisions_without_figures(true), 0);
}
END_TEST

START_TEST(the_flag_needs_a_gpu)
{
    graph *g = block();
    coda_plan *p;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_CPU;
    opt.flags = CODA_AUTOTUNE;
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "compile: CODA_AUTOTUNE on device 1, which is no GPU");
    opt.flags = CODA_MAX_AUTOTUNE; /* it is the same, and more */
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_E_INVALID);
    opt.flags = 1 << 30; /* a bit that no flag is likely to get */
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "compile: flags 0x40000000 has unknown bits");
    graph_free(g);
}
END_TEST

TESTS(tuning, ONE(text_is_a_round_trip), ONE(other_text_is_none), ONE(there_is_a_most),
      ONE(the_fastest_wins_by_a_margin), CASE("kept"), AROUND(set_up, tear_down), ONE(a_kept_winner_is_used),
      ONE(a_scattered_winner_is_used), ONE(thorough_tuning_wants_all_tiles), ONE(what_is_foreign_is_not_used),
      CASE("plan"), ONE(candidates_are_distinct_and_the_choice_comes_first),
      ONE(plain_mainloop_loses_to_cublaslt), ONE(equal_programs_have_equal_keys),
      ONE(keys_tell_neighbours_apart), EACH(programs_can_be_taken_apart, 4),
      ONE(without_figures_the_price_speaks), ONE(without_cublaslt_nothing_goes_there),
      ONE(the_flag_needs_a_gpu));
