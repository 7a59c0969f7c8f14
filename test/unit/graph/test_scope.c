/* test_scope.c -- scopes: in texts, mistakes and plans, kept by copies and rewrites, and by no kernel. */
#include "graph.h" /* before check.h, which has a macro called fail */

#include "util_print.h"
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layers of a norm, a gated unit and a residual. */
static coda_graph *layers(int count, bool scoped)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){64, 128});
    for (int i = 0; i < count; i++) {
        char up[32], down[32];
        sprintf(up, "up%d", i);
        sprintf(down, "down%d", i);
        if (scoped) coda_scope_push(g, "layers.%d", i);
        coda_value u = coda_weight(g, up, CODA_BF16, 2, (int64_t[]){512, 128});
        coda_value d = coda_weight(g, down, CODA_BF16, 2, (int64_t[]){128, 256});
        if (scoped) coda_scope_push(g, "norm");
        coda_value h = coda_rms_norm(g, x, CODA_NONE, 1e-5f);
        if (scoped) coda_scope_pop(g), coda_scope_push(g, "mlp");
        h = coda_matmul(g, coda_swiglu(g, coda_matmul(g, h, u), CODA_STACKED), d);
        if (scoped) coda_scope_pop(g);
        x = coda_add(g, h, x);
        if (scoped) coda_scope_pop(g);
    }
    coda_output(g, "y", x);
    ck_assert_msg(!coda_graph_status(g), "%s", coda_error());
    return g;
}

static coda_plan *plan(const coda_graph *g, coda_device device)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = device;
    opt.arch = device == CODA_DEVICE_CPU ? NULL : "sm_90a";
    opt.flags = device == CODA_DEVICE_CPU ? 0 : CODA_PLAN_ONLY;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    return p;
}

/* Without " @word" behind the lines of a graph, and " in word, word" behind a plan's programs. */
static void drop_scopes(char *s)
{
    char *out = s;
    for (char *line = s; *line;) {
        size_t n = strcspn(line, "\n");
        char save = line[n], *at;
        line[n] = 0;
        size_t keep = n;
        if ((at = strstr(line, " @layers"))) {
            size_t word = 1 + strcspn(at + 1, " ");
            memmove(at, at + word, strlen(at + word) + 1);
            keep -= word;
        }
        if (line[0] == '@' && (at = strstr(line, " in layers"))) keep = (size_t)(at - line);
        memmove(out, line, keep);
        out += keep;
        line += n;
        if (save) *out++ = save, line++;
    }
    *out = 0;
}

/* A mistake in layer 17 of 24. */
START_TEST(mistake_in_a_layer)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){16, 64});
    for (int i = 0; i < 24; i++) {
        char name[32];
        sprintf(name, "layers.%d.w", i);
        coda_value w = coda_weight(g, name, CODA_F32, 2, (int64_t[]){64, i == 17 ? 65 : 64});
        coda_scope_push(g, "layers.%d", i);
        coda_scope_push(g, "mlp");
        x = coda_relu(g, coda_matmul(g, x, w));
        coda_scope_pop(g);
        coda_scope_pop(g);
    }
    coda_output(g, "y", x);
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_str_eq(
        coda_error(),
        "matmul %53 in layers.17.mlp: x is [16,64] but w is [64,65]; inner sizes 64 and 65 differ; "
        "a w of [K,N] is for coda_matmul_kn, or kn=1; where x = %51 (relu) f32[16,64], "
        "w = layers.17.w f32[64,65]; calls after it did nothing");
    coda_graph_free(g);
}
END_TEST

/* What was built until a mistake is a text, with the mistake in its last line, which parses. */
START_TEST(text_of_a_mistake)
{
    coda_graph *g = coda_graph_new(), *again;
    int64_t dims[] = {2, 3};
    char text[1024], small[16];
    coda_value x = coda_input(g, "x", CODA_F32, 2, dims);
    coda_value y = coda_relu(g, x);
    coda_output(g, "y", y);
    coda_scope_push(g, "head");
    coda_output(g, "z", coda_add(g, y, coda_weight(g, "w", CODA_F32, 1, (int64_t[]){4})));
    int64_t n = coda_graph_print(g, text, sizeof text);
    ck_assert_str_eq(
        text, "%x = input f32[2,3]\n"
              "%1 = relu %x  ; f32[2,3]\n"
              "%w = weight f32[4] @head\n"
              "output %y = %1\n"
              "; mistake: add %3 in head: operand 0 is [2,3] but operand 1 is [4]; they do not "
              "broadcast: 3 and 4 differ; where operand 0 = %1 (relu) f32[2,3], operand 1 = w f32[4]\n");
    ck_assert_int_eq(n, (int64_t)strlen(text));
    ck_assert_int_eq(coda_graph_print(g, small, sizeof small), n);
    ck_assert_int_eq(coda_graph_print(g, NULL, 0), n);
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_msg(!coda_graph_parse(&again, text), "%s", coda_error());
    char *good = printed_graph(again);
    ck_assert_int_eq(strncmp(text, good, strlen(good)), 0);
    ck_assert_str_eq(strstr(text, "; mistake"), text + strlen(good));
    free(good);
    coda_graph_free(g), coda_graph_free(again);
}
END_TEST

START_TEST(texts_keep_scopes)
{
    coda_graph *g = layers(2, true), *plain = layers(2, false), *again, *bound;
    char *text = printed_graph(g), *without = printed_graph(plain);
    ck_assert_msg(!coda_graph_parse(&again, text), "%s\n%s", coda_error(), text);
    char *twice = printed_graph(again);
    ck_assert_str_eq(text, twice);
    ck_assert_ptr_nonnull(strstr(text, "%up1 = weight bf16[512,128] @layers.1\n"));
    ck_assert_ptr_nonnull(strstr(text, " @%5 @layers.0.mlp  ; bf16[64,256]\n"));
    ck_assert_int_eq(coda_graph_bind(&bound, g, NULL, 0), CODA_OK);
    char *of_bound = printed_graph(bound);
    ck_assert_str_eq(text, of_bound);
    ck_assert_ptr_null(strchr(without, ':'));
    drop_scopes(text);
    ck_assert_str_eq(text, without);
    free(text), free(without), free(twice), free(of_bound);
    coda_graph_free(g), coda_graph_free(plain), coda_graph_free(again), coda_graph_free(bound);
}
END_TEST

/* Kernels are those of the graph without scopes, and both layers have the same ones. */
START_TEST(kernels_have_no_scopes)
{
    coda_graph *g = layers(3, true), *bare = layers(3, false);
    coda_plan *p = plan(g, CODA_DEVICE_NONE), *plain = plan(bare, CODA_DEVICE_NONE);
    coda_plan_stats s = CODA_PLAN_STATS_INIT, t = CODA_PLAN_STATS_INIT;
    coda_plan_stats_get(p, &s);
    coda_plan_stats_get(plain, &t);
    ck_assert_int_eq(s.launches, t.launches);
    int kernels = 0;
    coda_kernel_info a = CODA_KERNEL_INFO_INIT, b = CODA_KERNEL_INFO_INIT;
    for (; !coda_plan_kernel(p, kernels, &a); kernels++) {
        ck_assert_msg(!coda_plan_kernel(plain, kernels, &b), "%s", coda_error());
        ck_assert_str_eq(a.name, b.name);
        ck_assert_str_eq(a.source, b.source);
        ck_assert_ptr_null(strstr(a.source, "layers"));
    }
    /* The first two layers, which both leave a statistic to the next one, share theirs, and the last two. */
    ck_assert_int_le(kernels, s.launches - 2);
    ck_assert(coda_plan_kernel(plain, kernels, &b) != CODA_OK);
    coda_plan_free(p), coda_plan_free(plain);
    coda_graph_free(g), coda_graph_free(bare);
}
END_TEST

/* Each program says where it comes from; but for that, plans are as without scopes. */
START_TEST(plans_say_scopes)
{
    coda_graph *g = layers(2, true), *bare = layers(2, false);
    coda_plan *p = plan(g, CODA_DEVICE_CPU), *plain = plan(bare, CODA_DEVICE_CPU);
    for (coda_text what = CODA_TEXT_REWRITTEN; what <= CODA_TEXT_PLAN; what++) {
        char *text = printed_plan(p, what), *without = printed_plan(plain, what);
        if (what == CODA_TEXT_PLAN) {
            ck_assert_msg(strstr(text, " in layers.1.mlp") && strstr(text, "layers.0.mlp"), "%s", text);
            for (const char *at = text; (at = strstr(at, "\n@")); at++)
                ck_assert_msg(strstr(at, " in layers.") && strstr(at, " in layers.") < strchr(at + 1, '\n'),
                              "%s", at);
        } else ck_assert_msg(strstr(text, " @layers.0.norm"), "%s", text);
        drop_scopes(text);
        ck_assert_str_eq(text, without);
        free(text), free(without);
    }
    coda_plan_free(p), coda_plan_free(plain);
    coda_graph_free(g), coda_graph_free(bare);
}
END_TEST

/* ---- Mistakes of scopes themselves ---- */

static void pop_twice(coda_graph *g) { coda_scope_push(g, "a"), coda_scope_pop(g), coda_scope_pop(g); }
static void no_format(coda_graph *g) { coda_scope_push(g, NULL); }
static void empty(coda_graph *g) { coda_scope_push(g, "%s", ""); }
static void blank(coda_graph *g) { coda_scope_push(g, "b"), coda_scope_push(g, "%s", "a b"); }
static void percent(coda_graph *g) { coda_scope_push(g, "a%%d"); }
static void line_end(coda_graph *g) { coda_scope_push(g, "%s", "a\nb"); }
static void deep(coda_graph *g)
{
    for (int i = 0; i < 65; i++) coda_scope_push(g, "s");
}
static void long_one(coda_graph *g) { coda_scope_push(g, "%0*d", 256, 7); }
static void very_long(coda_graph *g) { coda_scope_push(g, "%0*d", 100000, 7); }
static void long_together(coda_graph *g)
{
    coda_scope_push(g, "%0*d", 150, 7);
    coda_scope_push(g, "%0*d", 105, 7);
}

static const struct {
    void (*call)(coda_graph *);
    const char *message;
} wrong[] = {
    {pop_twice, "scope_pop: no scope is open"},
    {no_format, "scope_push: the format is NULL"},
    {empty, "scope_push: `` is no scope: letters, digits and _.-/:, at most 255"},
    {blank, "scope_push in b: `a b` is no scope"},
    {percent, "scope_push: `a%d` is no scope"},
    {line_end, "scope_push: `a\\nb` is no scope"},
    {deep, "64 scopes are open; s would be one more"},
    {long_one, "is no scope"},
    {very_long, "is no scope"},
    {long_together, "has 256 characters; at most 255"},
};

START_TEST(wrong_scope)
{
    coda_graph *g = coda_graph_new();
    wrong[_i].call(g);
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), wrong[_i].message), "%s", coda_error());
    ck_assert_ptr_null(strchr(coda_error(), '\n'));
    coda_graph_free(g);
}
END_TEST

START_TEST(limits_are_reached)
{
    coda_graph *g = coda_graph_new();
    for (int i = 0; i < 64; i++) coda_scope_push(g, "s");
    for (int i = 0; i < 64; i++) coda_scope_pop(g);
    coda_scope_push(g, "%0*d", 149, 7);
    coda_scope_push(g, "%0*d", 105, 7);
    coda_input(g, "x", CODA_F32, 0, NULL);
    ck_assert_msg(!coda_graph_status(g), "%s", coda_error());
    char *text = printed_graph(g), *twice;
    coda_graph *again;
    ck_assert_msg(!coda_graph_parse(&again, text), "%s", coda_error());
    twice = printed_graph(again);
    ck_assert_str_eq(text, twice);
    ck_assert_int_eq((int)strlen(text), (int)strlen("%x = input f32[] @\n") + 255);
    free(text), free(twice);
    coda_graph_free(g), coda_graph_free(again);
    coda_scope_push(NULL, "x");
    ck_assert_str_eq(coda_error(), "scope_push: the graph is NULL");
    coda_scope_pop(NULL);
    ck_assert_str_eq(coda_error(), "scope_pop: the graph is NULL");
}
END_TEST

static const char *const bad_texts[] = {"%x = input f32[2] @\n", "%x = input f32[2] @a @b\n",
                                        "%x = input f32[2] @a @%x\n", "%x = input f32[2] @a,b\n"};

START_TEST(wrong_text)
{
    coda_graph *g;
    ck_assert_int_eq(coda_graph_parse(&g, bad_texts[_i]), CODA_E_INVALID);
    ck_assert_msg(!strncmp(coda_error(), "line 1: ", 8), "%s", coda_error());
}
END_TEST

TESTS(scope, ONE(mistake_in_a_layer), ONE(text_of_a_mistake), ONE(texts_keep_scopes),
      ONE(kernels_have_no_scopes), ONE(plans_say_scopes), EACH(wrong_scope, ARRAY_SIZE(wrong)),
      ONE(limits_are_reached), EACH(wrong_text, ARRAY_SIZE(bad_texts)));
