/* test_blocks.c -- what NVRTC makes of every kernel of the example blocks: nothing spills, and ptxas has
 * nothing to say. */
#include "executable.h"
#include "util_random_rows.h"
#include "util_run.h"
#include "util_scale.h"

#include <ctype.h>

#include "tests.h" /* last: Check has a macro named fail */

static const struct block {
    const char *path, *arch;
    coda_fold fold;
} blocks[] = {
    {"examples/graphs/llama.coda", "sm_90a", CODA_FOLD_NONE},
    {"examples/graphs/llama.coda", "sm_90a", CODA_FOLD_COPY},
    {"examples/graphs/gpt2.coda", "sm_90a", CODA_FOLD_NONE},
    {"examples/graphs/gpt2.coda", "sm_90a", CODA_FOLD_COPY},
    {"examples/graphs/bert.coda", "sm_90a", CODA_FOLD_NONE},
    {"examples/graphs/bert.coda", "sm_90a", CODA_FOLD_COPY},
    {"examples/graphs/llama_token.coda", "sm_90a", CODA_FOLD_NONE},
    {"examples/graphs/llama_sequences.coda", "sm_90a", CODA_FOLD_NONE},
    {"examples/graphs/mlp_backward.coda", "sm_90a", CODA_FOLD_NONE},
    {"examples/graphs/mlp_backward_interleaved.coda", "sm_90a", CODA_FOLD_NONE},
    {"test/golden/advance.coda", "sm_90a", CODA_FOLD_NONE},
    {"examples/graphs/llama_small.coda", "sm_80", CODA_FOLD_NONE},
    {"examples/graphs/gpt2_small.coda", "sm_89", CODA_FOLD_NONE},
    {"examples/graphs/bert_small.coda", "sm_100a", CODA_FOLD_NONE},
    {"examples/graphs/llama_small.coda", "sm_120", CODA_FOLD_NONE},
};

/* most: bytes that a kernel may spill */
static void expect_registers(const coda_plan *p, const char *what, int most)
{
    for (int i = 0; i < p->kernels; i++) {
        const struct compiled_kernel *k = &p->kernel[i];
        ck_assert_msg(k->info.spill_bytes <= most, "%s: %s spills %d bytes", what, k->info.name,
                      k->info.spill_bytes);
        ck_assert_msg(!k->cubin.warning[0], "%s: %s: %s", what, k->info.name, k->cubin.warning);
    }
}

START_TEST(kernels_keep_to_their_registers)
{
    const struct block *b = &blocks[_i];
    if (!scale_takes_one_in(4, _i)) return;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    graph *g = run_load(b->path);
    ck_assert_msg(g != NULL, "%s: %s", b->path, coda_error());
    opt.device = CODA_DEVICE_NONE;
    opt.arch = b->arch;
    opt.flags = scale_kernels_are_kept() ? 0 : CODA_NO_CACHE;
    opt.fold = b->fold;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s, %s: %s", b->path, b->arch, coda_error());
    ck_assert_int_ge(p->kernels, 4);
    expect_registers(p, b->path, 0);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* Those of random maps, statistics and states, which load much at once, nearly do: of 320 graphs of 60
 * operations 15 had a kernel that spilled, 8 to 304 bytes of a thread. */
enum { SPILLED = 512 };
START_TEST(passes_over_rows_keep_to_their_registers)
{
    uint64_t seed = random_seed() + 1000 * (uint64_t)_i;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_NONE;
    opt.arch = _i % 2 ? "sm_80" : "sm_90a";
    opt.flags = scale_kernels_are_kept() ? 0 : CODA_NO_CACHE;
    for (uint64_t s = seed; s < seed + (scale_is_full() ? 40 : 1); s++) {
        coda_plan *p;
        graph *g = random_rows(
            s, &(struct rows_options){
                   .operations = 60, .most = 4096, .dtype = s % 2 ? CODA_BF16 : CODA_F32, .elements = s % 3});
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "seed %llu: %s", (unsigned long long)s,
                      coda_error());
        expect_registers(p, "random rows", SPILLED);
        coda_plan_free(p);
        coda_graph_free(g);
    }
}
END_TEST

/* Shapes of a few columns and rows, where every class of value meets every other. */
START_TEST(random_graphs_compile)
{
    static const struct random_options ro = {.patterns = 2, .most_dim = 6};
    uint64_t seed = random_seed() + 1000 * (uint64_t)_i;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_NONE;
    for (uint64_t s = seed; s < seed + (scale_is_full() ? 12 : scale_is_thinned() ? 1 : 2); s++) {
        coda_plan *p;
        graph *g = random_graph(s, &ro);
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "seed %llu: %s", (unsigned long long)s,
                      coda_error());
        coda_plan_free(p);
        coda_graph_free(g);
    }
}
END_TEST

/* ---- Names ---- */

enum { NAMES = 26 * 4096 };

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Does the name at `at` follow a type, or another name that is declared with it? */
static bool is_declared(const char *text, const char *at)
{
    const char *before = at;
    while (before > text && before[-1] == ' ') before--;
    if (before == text) return false;
    if (before[-1] == '*' || before[-1] == '&') return before == at; /* not a product */
    if (before[-1] == ',') return strncmp(at + strcspn(at, " ,;()"), " = ", 3) == 0;
    const char *word = before;
    while (word > text && is_name(word[-1])) word--;
    bool keyword = before - word == 6 && !strncmp(word, "return", 6);
    return before < at && (before[-1] == '>' || (is_name(before[-1]) && !keyword));
}

/* Letter and number of a value, pointer, state ...: v12, v12a, x3. -1: it is none. */
static int name_number(const char *at)
{
    static const char *const type[] = {"i8", "u8", "i32", "i64", "u32", "u64", "f16", "f32"};
    int number = 0, digits = 0;
    for (int i = 0; i < ARRAY_SIZE(type); i++)
        if (!strncmp(at, type[i], strlen(type[i])) && !is_name(at[strlen(type[i])])) return -1;
    if (!islower((unsigned char)*at)) return -1;
    while (isdigit((unsigned char)at[1 + digits])) number = number * 10 + at[1 + digits++] - '0';
    const char *end = at + 1 + digits;
    if (*end == 'a' || *end == 'b') end++;
    return digits && digits < 4 && !is_name(*end) ? (*at - 'a') * 4096 + number * 4 + end[-1] % 4 : -1;
}

/* The first name of the text that is used before it is declared, or NULL. */
static const char *undefined(const char *text)
{
    static bool declared[NAMES];
    memset(declared, 0, sizeof declared);
    for (const char *at = text; *at; at++) {
        if (!strncmp(at, "//", 2) || *at == '#') at += strcspn(at, "\n");
        if (at > text && (is_name(at[-1]) || at[-1] == ':')) continue; /* reduce::m2 is none */
        int n = name_number(at);
        if (n < 0) continue;
        declared[n] = declared[n] || is_declared(text, at);
        if (!declared[n]) return at;
    }
    return NULL;
}

START_TEST(finds_the_undefined)
{
    static const struct {
        const char *text, *name;
    } some[] = {
        {"struct A { float v1; }; f(a.v1)", NULL},   {"const float v1a = 2, v1b = v1a;", NULL},
        {"const f32 *x0; x0[1] * v3", "v3"},         {"float v0 = x0[1]; float x0;", "x0[1]; float x0;"},
        {"const float v1 = v2; // v1", "v2; // v1"}, {"f(v1a, v1b)", "v1a, v1b)"},
        {"float v1a; return v1b;", "v1b;"},          {"using B = i8; using W = u8;", NULL}};
    for (int i = 0; i < ARRAY_SIZE(some); i++) {
        const char *found = undefined(some[i].text);
        ck_assert_msg(!found == !some[i].name, "%s", some[i].text);
        if (found) ck_assert_str_eq(found, some[i].name);
    }
}
END_TEST

static void check_names(const graph *g, uint64_t seed, coda_fold fold, unsigned flags, const char *arch)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.fold = fold;
    opt.flags = flags | CODA_PLAN_ONLY;
    opt.arch = arch;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "seed %llu: %s", (unsigned long long)seed,
                  coda_error());
    for (int i = 0; i < p->kernels; i++) {
        const char *at = undefined(p->kernel[i].info.source);
        ck_assert_msg(!at, "seed %llu, %s: undefined: %.60s\n%s", (unsigned long long)seed,
                      p->kernel[i].info.name, at, p->kernel[i].info.source);
    }
    coda_plan_free(p);
}

/* Each value and pointer that a kernel's text uses was declared before. */
START_TEST(names_are_declared)
{
    uint64_t seed = random_seed() + 1000 * (uint64_t)_i;
    for (uint64_t s = seed; s < seed + 60; s++) {
        graph *g = random_graph(s, &(struct random_options){.patterns = 6, .most_dim = s % 2 ? 6 : 256});
        check_names(g, s, s % 3 ? CODA_FOLD_COPY : CODA_FOLD_NONE, 0, s % 4 ? "sm_90a" : "sm_80");
        check_names(g, s, CODA_FOLD_NONE, CODA_NO_FUSION, "sm_90a");
        coda_graph_free(g);
    }
}
END_TEST

/* The compiler's complaint about a map names the map and counts the lines of its source. */
START_TEST(errors_in_maps_give_their_lines)
{
    static const struct {
        const char *source, *error;
    } bad[] = {
        {"DEV static float apply(float x) { return y; }", "map f(1): error: identifier \"y\" is undefined"},
        {"\n\nDEV static float apply(float x)\n{\n    return math::none(x);\n}", "map f(5): error: "},
        {"DEV static float apply(float x) { return x; }\nDEV static float g() { return h; }\n",
         "map f(2): error: "},
    };
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = scale_kernels_are_kept() ? 0 : CODA_NO_CACHE;
    for (int i = 0; i < ARRAY_SIZE(bad); i++) {
        coda_plan *p = (coda_plan *)1;
        coda_map_def def = CODA_MAP_DEF_INIT;
        coda_graph *g = coda_graph_new();
        def.name = "f";
        def.source = bad[i].source;
        ck_assert_int_eq(coda_define_map(g, &def), CODA_OK);
        coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){8, 64});
        coda_value z = coda_relu(g, coda_apply(g, "f", &x, 1, NULL));
        coda_output(g, "z", coda_apply(g, "f", &z, 1, NULL));
        ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_E_COMPILE);
        ck_assert_msg(strncmp(coda_error(), bad[i].error, strlen(bad[i].error)) == 0, "%s", coda_error());
        ck_assert_ptr_null(p);
        coda_graph_free(g);
    }
}
END_TEST

TESTS(blocks, TAG("nvrtc"), EACH(kernels_keep_to_their_registers, ARRAY_SIZE(blocks)),
      EACH(passes_over_rows_keep_to_their_registers, 2), EACH(random_graphs_compile, 4),
      ONE(errors_in_maps_give_their_lines), CASE("names"), ONE(finds_the_undefined),
      EACH(names_are_declared, 4));
