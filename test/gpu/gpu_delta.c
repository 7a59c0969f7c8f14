/* gpu_delta.c -- gated delta rules on the GPU against loops over tokens in fp64. With CODA_TEST_CASE only
 * cases run whose names contain it. */
#include <stdlib.h>
#include <string.h>

#include "gpu_case.h"
#include "util_delta.h"
#include "util_device.h"
#include "util_gates.h"
#include "util_scale.h"

int gpu_delta(void);

static bool run(const graph *g, void **args)
{
    struct run_buffers b;
    coda_plan *p;
    if (coda_compile(&p, g, NULL) != CODA_OK) return false;
    bool ran = run_upload(&b, g, p, args, true) && run_prepare(&b, p) && run_plan(&b, p);
    run_release(&b);
    coda_plan_free(p);
    return ran;
}

static bool is_wanted(const char *name)
{
    const char *named = getenv("CODA_TEST_CASE");
    return !named || strstr(name, named);
}

static int check(const struct delta_case *c, uint64_t seed)
{
    if (!is_wanted(c->name)) return 0;
    graph *g = delta_graph(c);
    void **args = random_args(g, seed, false);
    double *before = delta_before(c, g, args), parts = run(g, args) ? delta_parts(c, g, args, before) : -1;
    bool good = parts >= 0 && (parts <= 1 || device_dry());
    free(before);
    random_args_free(g, args);
    graph_free(g);
    return gpu_case(good, "delta", "%s, seed %llu: the error is %g of what is allowed %s", c->name,
                    (unsigned long long)seed, parts, parts < 0 ? coda_error() : "");
}

static int check_gates(const struct gates_case *c, uint64_t seed)
{
    if (!is_wanted(c->name)) return 0;
    double error = gates_error(c, seed, NULL, true);
    bool good = error >= 0 && (error <= gates_allowed(c) || device_dry());
    return gpu_case(good, "delta", "gates: %s, seed %llu: the error is %g %s", c->name,
                    (unsigned long long)seed, error, error < 0 ? coda_error() : "");
}

/* Runs that go by chunks, and others that go token by token, of one sequence. */
static int check_cut(uint64_t seed)
{
    const struct delta_case c = {"cut", CODA_BF16, CODA_F32, 0, 190, 2, 1, 64, 32, true, .in_place = true};
    int64_t tokens[200], left = c.time;
    struct random r = {seed};
    int runs = 0;
    if (!is_wanted(c.name)) return 0;
    for (; left; left -= tokens[runs++])
        tokens[runs] = random_chance(&r, 30) ? 1 : random_below(&r, left + 1);
    double parts = delta_cut(&c, tokens, runs, seed, run);
    bool good = parts >= 0 && (parts <= 1 || device_dry());
    return gpu_case(good, "delta", "cut into %d runs, seed %llu: the error is %g of what is allowed %s", runs,
                    (unsigned long long)seed, parts, parts < 0 ? coda_error() : "");
}

/* Lanes of many sequences have other rows than lanes of one, and add up what they have in the same order. */
static int check_company(uint64_t seed, bool emulated)
{
    struct delta_case c = {"company", CODA_BF16, CODA_F32, 24, 3, 16, 8, 128, 128, true, .in_place = true};
    if (emulated) c.sequences = 3, c.heads = 4, c.key_heads = 2;
    if (!is_wanted(c.name)) return 0;
    int64_t wrong = delta_company(&c, seed, run);
    return gpu_case(wrong == 0 || (wrong > 0 && device_dry()), "delta", "%s, seed %llu: %lld bytes differ %s",
                    c.name, (unsigned long long)seed, (long long)wrong, wrong < 0 ? coda_error() : "");
}

/* Each number of tokens up to two chunks and two more. */
static int check_lengths(uint64_t seed, bool few)
{
    struct delta_case c = {"length", CODA_BF16, CODA_F32, 1, 0, 1, 1, 32, 32, true, .in_place = true};
    struct random r = {seed};
    int failed = 0;
    for (c.time = 0; c.time <= 130; c.time++)
        if (!few || random_chance(&r, 2)) failed += check(&c, seed);
    return failed;
}

int gpu_delta(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    if (!device_open(&device, err)) return gpu_case(false, "delta", "%s", err);
    bool few = device_emulated(&device) && !scale_is_full();
    for (int i = 0; i < delta_case_count; i++)
        if (!few || (scale_takes_one_in(3, i) && scale_takes_half(i / 3)))
            failed += check(&delta_cases[i], 33);
    uint64_t seed = random_seed();
    for (uint64_t s = seed; s < seed + (uint64_t)(few ? 1 : scaled(30)); s++) {
        const struct delta_case c = delta_draw(s);
        failed += check(&c, s);
    }
    for (int i = 0; i < gates_case_count; i++) failed += check_gates(&gates_cases[i], seed);
    failed += check_company(seed, device_emulated(&device));
    failed += check_lengths(seed, few);
    for (int i = 0; i < (few ? 1 : 10); i++) failed += check_cut(seed + (uint64_t)i);
    return failed;
}
