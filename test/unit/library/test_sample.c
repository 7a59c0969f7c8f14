/* test_sample.c -- drawing columns: the generator against its published answers, the evaluator and the CPU
 * device against the formula, frequencies against probabilities, and what the kernels compile to. */
#include "executable.h" /* before check.h, which has a macro called fail */
#include "jit.h"
#include "ref/philox.h"
#include "util_sample.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* kat_vectors of Random123: counter, key, words of philox4x32-10. */
START_TEST(words_are_the_known_ones)
{
    static const uint32_t known[][10] = {{0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
                                          0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
                                         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822,
                                          0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}};
    uint32_t word[4];
    memcpy(word, known[_i], sizeof word);
    philox(word, known[_i] + 4);
    for (int i = 0; i < 4; i++) ck_assert_uint_eq(word[i], known[_i][6 + i]);
}
END_TEST

START_TEST(evaluates)
{
    const struct sample_case *c = &sample_cases[_i];
    graph *g = sample_graph(c);
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s: %s", c->name, coda_error());
    void **args = sample_args(c, g, 11, true);
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s: %s", c->name, coda_error());
    ck_assert_msg(sample_differences(c, g, args, true) == 0, "%s", c->name);
    random_args_free(g, args);
    graph_free(g);
}
END_TEST

START_TEST(runs_on_the_host)
{
    const struct sample_case *c = &sample_cases[_i / 2];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    struct run_buffers b;
    coda_plan *p;
    graph *g = sample_graph(c);
    void **args = sample_args(c, g, 12, false);
    opt.device = CODA_DEVICE_CPU;
    opt.flags = _i % 2 ? CODA_NO_FUSION : 0;
    opt.fold = CODA_FOLD_COPY;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s", c->name, coda_error());
    bool ran = run_upload(&b, g, p, args, false) && run_prepare(&b, p) && run_plan(&b, p);
    ck_assert_msg(ran, "%s: %s", c->name, coda_error());
    ck_assert_msg(sample_differences(c, g, args, false) == 0, "%s", c->name);
    run_release(&b);
    random_args_free(g, args);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

static coda_plan *plan_of(const graph *g, const char *arch, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.arch = arch;
    opt.flags = flags;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    return p;
}

/* Noise, scores and their greatest are the product's epilogue. */
START_TEST(is_few_launches)
{
    const struct sample_case *c = &sample_cases[_i];
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    graph *g = sample_graph(c);
    coda_plan *p = plan_of(g, "sm_90a", CODA_PLAN_ONLY);
    ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
    ck_assert_msg(stats.launches == c->launches, "%s: %d launches", c->name, stats.launches);
    bool stored = stats.bytes >= 4 * MAX(c->batch, 1) * c->rows * c->columns + c->columns * c->inner * 2;
    bool limited = c->options & (SAMPLE_TOP_K | SAMPLE_TOP_P | SAMPLE_MIN_P);
    ck_assert_msg(!c->inner || c->rows < 100 || limited || !stored, "%s: logits are stored", c->name);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* ---- Frequencies ---- */

enum { COLUMNS = 24, DRAWS = 1 << 16 };

static const struct sample_limits laws[] = {{1, 0, 1, 0},       {0.6f, 0, 1, 0},      {2.5f, 0, 1, 0},
                                            {1, 6, 1, 0},       {1, 0, 0.8f, 0},      {1.5f, 9, 0.7f, 0},
                                            {0.8f, 0, 1, 0.1f}, {2, 20, 0.95f, 0.05f}};

static void draw_all(const struct sample_limits *l, const float *x, int32_t *id)
{
    coda_graph *g = coda_graph_new();
    coda_value row = coda_input(g, "x", CODA_F32, 2, (int64_t[]){1, COLUMNS});
    coda_value zeros = coda_constant(g, CODA_F32, 0), ones = coda_constant(g, CODA_F32, 1);
    coda_value places = coda_iota(g, DRAWS), t = coda_constant(g, CODA_F32, l->t);
    coda_value column = coda_reshape(g, places, 2, (int64_t[]){DRAWS, 1});
    coda_value all = coda_add(g, row, coda_mul(g, coda_mul(g, column, ones), zeros));
    coda_value seeds = coda_input(g, "seeds", CODA_I32, 2, (int64_t[]){1, 2});
    coda_sample_options o = CODA_SAMPLE_OPTIONS_INIT;
    coda_compile_options how = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    o.temperature = t;
    o.top_k = coda_constant(g, CODA_I32, l->k);
    o.top_p = coda_constant(g, CODA_F32, l->p);
    o.min_p = coda_constant(g, CODA_F32, l->min_p);
    coda_output(g, "id", coda_sample(g, all, seeds, places, &o, NULL));
    how.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &how) == CODA_OK, "%s", coda_error());
    void *workspace = malloc(coda_plan_workspace(p) + 256);
    void *aligned = (void *)(((uintptr_t)workspace + 255) / 256 * 256);
    _Alignas(16) static int32_t seed[2] = {12345, 7};
    void *args[] = {(void *)x, seed, id};
    ck_assert_msg(coda_run(p, args, NULL, aligned, NULL) == CODA_OK, "%s", coda_error());
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
}

/* Chi-square of so many degrees is below d + 4 sqrt(2 d) + 8 but once in some 10,000 times; seeds are fixed.
 * */
START_TEST(frequencies_are_the_probabilities)
{
    _Alignas(16) static int32_t id[DRAWS];
    _Alignas(16) static float x[COLUMNS];
    double wide[COLUMNS], p[COLUMNS], square = 0;
    int64_t count[COLUMNS] = {0}, degrees = -1;
    struct random r = {99};
    if (SANITIZED && !scale_takes_one_in(ARRAY_SIZE(laws), _i)) return;
    if (scale_is_thinned() && !scale_takes_half(_i)) return;
    for (int i = 0; i < COLUMNS; i++) wide[i] = x[i] = (float)(1.5 * random_normal(&r));
    sample_probabilities(wide, COLUMNS, &laws[_i], p);
    draw_all(&laws[_i], x, id);
    for (int i = 0; i < DRAWS; i++) count[id[i]]++;
    for (int i = 0; i < COLUMNS; i++) {
        ck_assert_msg(p[i] > 0 || !count[i], "column %d is not kept, but drawn %d times", i, (int)count[i]);
        if (p[i] > 0) square += pow((double)count[i] - p[i] * DRAWS, 2) / (p[i] * DRAWS), degrees++;
    }
    double d = (double)degrees;
    ck_assert_msg(square < d + 4 * sqrt(2 * d) + 8, "chi-square %g of %d degrees", square, (int)degrees);
}
END_TEST

/* ---- Compiled ---- */

/* Nothing spills, and ptxas has nothing to say. */
START_TEST(compiles)
{
    const struct sample_case *c = &sample_cases[_i / 2];
    char why[256];
    if (!scale_takes_one_in(4, _i) || !jit_nvrtc_info(why, sizeof why)) return; /* asked in this process */
    graph *g = sample_graph(c);
    coda_plan *p = plan_of(g, _i % 2 ? "sm_80" : "sm_90a", scale_kernels_are_kept() ? 0 : CODA_NO_CACHE);
    for (int i = 0; i < p->kernels; i++) {
        const struct compiled_kernel *k = &p->kernel[i];
        ck_assert_msg(k->info.spill_bytes == 0, "%s: %s spills %d bytes", c->name, k->info.name,
                      k->info.spill_bytes);
        ck_assert_msg(!k->cubin.warning[0], "%s: %s: %s", c->name, k->info.name, k->cubin.warning);
    }
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

TESTS(sample, EACH(words_are_the_known_ones, 3), EACH(evaluates, sample_case_count),
      SOME(runs_on_the_host, 2 * sample_case_count), EACH(is_few_launches, sample_case_count),
      EACH(frequencies_are_the_probabilities, ARRAY_SIZE(laws)), CASE("nvrtc"), TAG("nvrtc"),
      EACH(compiles, 2 * sample_case_count));
