/*
 * test_words.c -- what `coda ops` and the reference say of operations, maps, reductions and functions: of
 * each something, of every attribute and operand a word, calls that coda.h has, and an example that runs.
 */
#include "coda.h"
#include "graph.h"
#include "graph_words.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static coda_word_info word_at(int index)
{
    coda_word_info w = CODA_WORD_INFO_INIT;
    ck_assert_msg(coda_word(index, &w) == CODA_OK, "%s", coda_error());
    return w;
}

/* Is `word`, of so many letters, in the text, and no part of a longer one? */
static bool says(const char *text, const char *word, size_t length)
{
    for (const char *at = text; (at = strstr(at, word)); at++) {
        bool begins = at == text || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
        if (begins && !(isalpha((unsigned char)at[length]) || at[length] == '_')) return true;
    }
    return false;
}

static bool declared(const char *call)
{
    static const char *const calls[] = {
#define CALL(name) #name,
#include "calls.h"
#undef CALL
    };
    for (int i = 0; i < ARRAY_SIZE(calls); i++)
        if (!strcmp(calls[i], call)) return true;
    return false;
}

/* Splits "a, b" in place: calls `use` with each part. */
static void each(const char *list, const coda_word_info *w, void (*use)(const coda_word_info *, const char *))
{
    char copy[1024], *rest = copy;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *part; *list && (part = strsep(&rest, ","));) use(w, part + strspn(part, " "));
}

/* ---- Each says something ---- */

static void need_declared(const coda_word_info *w, const char *call)
{
    ck_assert_msg(declared(call), "%s: coda.h has no %s", w->name, call);
}

/* "eps=float", "section0..5=int"; constants of maps are named in their formulas by their own files. */
static void need_attribute(const coda_word_info *w, const char *attribute)
{
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(attribute, "=0123456789"), attribute);
    if (w->kind == CODA_WORD_OPERATION)
        ck_assert_msg(says(w->meaning, key, strlen(key)) || says(w->result, key, strlen(key)),
                      "%s: nothing is said of %s", w->name, key);
}

START_TEST(each_is_described)
{
    int count[CODA_WORD_FUNCTION + 1] = {0};
    ck_assert_int_ge(coda_words(), 100);
    for (int i = 0; i < coda_words(); i++) {
        coda_word_info w = word_at(i);
        bool function = w.kind == CODA_WORD_FUNCTION;
        count[w.kind]++;
        ck_assert_msg(*w.name && *w.meaning && *w.result, "%s", w.name);
        ck_assert_msg(function == !*w.calls, "%s: calls are \"%s\"", w.name, w.calls);
        each(w.calls, &w, need_declared);
        each(w.attributes, &w, need_attribute);
        ck_assert_msg(!*w.gradient || w.kind == CODA_WORD_MAP || w.kind == CODA_WORD_REDUCTION, "%s", w.name);
        ck_assert_int_eq(coda_word_find(w.name), function ? coda_word_find(w.name) : i);
    }
    ck_assert_int_eq(count[CODA_WORD_OPERATION], OP_COUNT - 2);
    ck_assert_int_eq(count[CODA_WORD_MAP] + count[CODA_WORD_REDUCTION], prim_count);
    ck_assert_int_ge(count[CODA_WORD_FUNCTION], 12);
}
END_TEST

/* As many operands are named as there may be: names are what commas outside of brackets separate. */
START_TEST(operands_are_all_named)
{
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_info *info = &op_info[op];
        if (op == OP_MAP || op == OP_REDUCE || info->most == INT32_MAX) continue;
        coda_word_info w = word_at(coda_word_find(info->text));
        int depth = 0, named = *w.operands != 0, optional = 0;
        for (const char *c = w.operands; *c; c++) {
            depth += (*c == '[') - (*c == ']');
            named += *c == ',' && !depth;
            optional += *c == '?';
        }
        ck_assert_msg(named == info->most, "%s names %d operands of %d", w.name, named, info->most);
        ck_assert_msg(named - optional == info->least, "%s: %d of %d are optional", w.name, optional, named);
    }
}
END_TEST

/* ---- Examples ---- */

/* Each argument holds ones: a legal index, slot, length and divisor. */
static void *argument(const coda_plan *p, int i)
{
    coda_arg_info a = CODA_ARG_INFO_INIT;
    ck_assert_int_eq(coda_plan_arg(p, i, &a), CODA_OK);
    bool output = a.kind == CODA_ARG_OUTPUT;
    size_t bytes = (a.bytes + 63) / 64 * 64;
    unsigned char *data = aligned_alloc(64, bytes);
    memset(data, 0xff, bytes);
    for (size_t k = 0; !output && k < a.bytes / 4; k++) {
        if (a.dtype == CODA_I32) ((int32_t *)(void *)data)[k] = 1;
        else ((float *)(void *)data)[k] = 1;
    }
    return data;
}

/* A run leaves no output as it was: all ones are NaN, and no example's result is one. */
static void run_example(const char *name, const char *text)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void *args[16];
    coda_graph *g;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s: %s\n%s", name, coda_error(), text);
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s: %s\n%s", name, coda_error(), text);
    void *workspace = aligned_alloc(256, (coda_plan_workspace(p) / 256 + 1) * 256);
    int n = coda_plan_args(p);
    for (int i = 0; i < n; i++) args[i] = argument(p, i);
    ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s: %s\n%s", name, coda_error(),
                  text);
    for (int i = 0; i < n; i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        ck_assert_int_eq(coda_plan_arg(p, i, &a), CODA_OK);
        int untouched = -1;
        for (size_t k = 0; a.kind == CODA_ARG_OUTPUT && k + 4 <= a.bytes; k += 4)
            ck_assert_msg(memcmp((char *)args[i] + k, &untouched, 4) != 0, "%s: %s is not written", name,
                          a.name);
        free(args[i]);
    }
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
}

/* "= silu", and then a blank or the line's end. */
static bool has_word(const char *example, const char *name)
{
    char assigned[80];
    snprintf(assigned, sizeof assigned, "= %s", name);
    return says(example, assigned, strlen(assigned));
}

START_TEST(each_example_runs)
{
    for (int i = 0; i < coda_words(); i++) {
        char example[1024];
        coda_word_info w = word_at(i);
        int64_t length = coda_word_example(i, example, sizeof example);
        ck_assert_int_ge(length, 0);
        ck_assert_int_lt(length, (int64_t)sizeof example);
        ck_assert_int_eq((int64_t)strlen(example), length);
        if (w.kind == CODA_WORD_FUNCTION) {
            ck_assert_str_eq(example, "");
            continue;
        }
        ck_assert_msg(has_word(example, w.name), "%s is not in its example:\n%s", w.name, example);
        run_example(w.name, example);
    }
}
END_TEST

/* ---- Questions ---- */

START_TEST(names_that_are_not_known)
{
    static const char *const line[][2] = {
        {"swish", "no operation, map, reduction or function is called `swish`; here it is silu"},
        {"Softmx", "no operation, map, reduction or function is called `Softmx`; do you mean softmax?"},
        {"qqqqqqqq", "no operation, map, reduction or function is called `qqqqqqqq`"},
    };
    for (int i = 0; i < ARRAY_SIZE(line); i++) {
        ck_assert_int_eq(coda_word_find(line[i][0]), CODA_E_INVALID);
        ck_assert_str_eq(coda_error(), line[i][1]);
    }
    ck_assert_int_eq(coda_word_find(NULL), CODA_E_INVALID);
    ck_assert_int_eq(word_at(coda_word_find("exp")).kind, CODA_WORD_MAP);
    ck_assert_int_eq(word_at(coda_word_find("math::exp")).kind, CODA_WORD_FUNCTION);
    ck_assert_str_eq(word_at(coda_word_find("silu")).calls, "coda_silu, coda_apply");
    ck_assert_str_eq(word_at(coda_word_find("top_16")).calls, "coda_reduce");
}
END_TEST

START_TEST(places_that_are_not_there)
{
    coda_word_info w = CODA_WORD_INFO_INIT;
    char small[4];
    ck_assert_int_eq(coda_word(-1, &w), CODA_E_INVALID);
    ck_assert_int_eq(coda_word(coda_words(), &w), CODA_E_INVALID);
    ck_assert_int_eq(coda_word(0, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_word_example(coda_words(), NULL, 0), CODA_E_INVALID);
    ck_assert_int_eq(coda_word_example(0, NULL, 1), CODA_E_INVALID);
    ck_assert_int_gt(coda_word_example(0, small, sizeof small), 4);
    ck_assert_int_eq(small[3], 0);
}
END_TEST

TESTS(words, ONE(each_is_described), ONE(operands_are_all_named), ONE(each_example_runs),
      ONE(names_that_are_not_known), ONE(places_that_are_not_there));
