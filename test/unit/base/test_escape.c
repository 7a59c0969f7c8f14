/*
 * test_escape.c -- what comes from a caller's text reaches a message so that a terminal shows it, and does
 * not obey it. Expected is what RFC 3629 calls UTF-8, ECMA-48 a control character, UAX #9 a mark.
 */
#include "base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void clear(void) { fail(CODA_OK, "%s", ""); }

#include "tests.h" /* last: Check has a macro named fail */

static const struct {
    const char *in, *out;
} word[] = {
    {"", ""},
    {"a name.1_~", "a name.1_~"},
    {"\x1b[31mred", "\\x1b[31mred"},
    {"a\nb\tc\rd", "a\\nb\\tc\\x0dd"},
    {"\x7f", "\\x7f"},
    {"\x9b"
     "31m",
     "\\x9b"
     "31m"}, /* CSI in 8 bits */
    {"\xc2\x9b"
     "31m",
     "\\xc2\\x9b"
     "31m"},                                    /* U+009B */
    {"\xc2\xa0 \xc3\xa4", "\xc2\xa0 \xc3\xa4"}, /* from U+00A0 on they are shown */
    {"\xe2\x80\xae"
     "abc",
     "\\xe2\\x80\\xae"
     "abc"}, /* right-to-left override */
    {"\xe2\x81\xa6\xd8\x9c\xe2\x80\x8f", "\\xe2\\x81\\xa6\\xd8\\x9c\\xe2\\x80\\x8f"},
    {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"}, /* line separator */
    {"\xe6\xbc\xa2\xf0\x9f\x98\x80", "\xe6\xbc\xa2\xf0\x9f\x98\x80"},
    {"\xff\xc3", "\\xff\\xc3"},                                              /* no UTF-8; cut off */
    {"\xc0\x80\xed\xa0\x80", "\\xc0\\x80\\xed\\xa0\\x80"},                   /* overlong; a surrogate */
    {"\xf4\x90\x80\x80\xe0\x9f\xbf", "\\xf4\\x90\\x80\\x80\\xe0\\x9f\\xbf"}, /* above U+10FFFF; overlong */
};

START_TEST(shows)
{
    char out[128];
    ck_assert_uint_eq(escape(out, sizeof out, word[_i].in), strlen(word[_i].out));
    ck_assert_str_eq(out, word[_i].out);
}
END_TEST

/* Every size cuts between characters and behind an escape. */
START_TEST(cuts)
{
    char out[16];
    for (size_t size = 1; size <= 12; size++) {
        memset(out, '#', sizeof out);
        size_t n = escape(out, size, "\xc3\xa4\x1b\xe6\xbc\xa2"); /* 2, 4 and 3 bytes as they are shown */
        ck_assert_uint_eq(n, size > 9 ? 9 : size > 6 ? 6 : size > 2 ? 2 : 0);
        ck_assert(!out[n] && out[n + 1 > size ? n + 1 : size] == '#');
    }
}
END_TEST

/* A name, a token of a text, a value of an option: each with everything in it, wherever one is taken. */
#define EVIL "\x1b]0;x\x07\n\x7f\x9b\xc2\x9b\xe2\x80\xae\xff"

static void expect_plain(const char *what)
{
    const char *s = coda_error();
    ck_assert_msg(*s, "%s says nothing", what);
    for (; *s; s++)
        ck_assert_msg(*s >= ' ' && *s < 127, "%s: byte 0x%02x in %s", what, (unsigned char)*s, coda_error());
}

#define REFUSED(call)                                                                                        \
    do {                                                                                                     \
        coda_graph *g = coda_graph_new();                                                                    \
        coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){4, 4});                                   \
        clear();                                                                                             \
        (void)x, (void)(call);                                                                               \
        expect_plain(#call);                                                                                 \
        coda_graph_free(g);                                                                                  \
    } while (0)

static coda_status parse(const char *before, const char *after)
{
    char text[256];
    coda_graph *g;
    snprintf(text, sizeof text, "%s%s%s", before, EVIL, after);
    coda_status s = coda_graph_parse(&g, text);
    coda_graph_free(g);
    return s;
}

START_TEST(names)
{
    static const int64_t dims[] = {4, 4};
    REFUSED(coda_input(g, EVIL, CODA_F32, 2, dims));
    REFUSED(coda_weight(g, EVIL, CODA_F32, 2, dims));
    REFUSED(coda_state(g, EVIL, CODA_F32, 2, dims));
    REFUSED(coda_scalar(g, EVIL, CODA_F32));
    REFUSED(coda_symbol(g, EVIL, 1, 4, 1));
    REFUSED((coda_output(g, EVIL, x), 0));
    REFUSED((coda_output_add(g, EVIL, x), 0));
    REFUSED((coda_output_strided(g, EVIL, x, NULL), 0));
    REFUSED(coda_apply(g, EVIL, &x, 1, NULL));
    REFUSED(coda_reduce(g, EVIL, x, CODA_NONE));
    REFUSED(coda_reduce_columns(g, EVIL, x));
    REFUSED(coda_define_map(g, &(coda_map_def){sizeof(coda_map_def), EVIL, 1, 0, "DEV", NULL, {NULL}}));
    REFUSED(coda_define_map(
        g, &(coda_map_def){sizeof(coda_map_def), "m", 1, 0, "#include \"" EVIL "\"", NULL, {NULL}}));
}
END_TEST

START_TEST(texts)
{
    static const char *const around[][2] = {
        {"", ""},
        {"%", " = input f32[4]"},
        {"%x = ", ""},
        {"%x = input ", "[4]"},
        {"%x = input f32[", "]"},
        {"%x = input f32[4]\n%y = relu %", ""},
        {"%x = input f32[4]\n%y = scale %x {", "=1}"},
        {"%x = input f32[4]\n%y = scale %x {alpha=", "}"},
        {"%x = input f32[4]\noutput %", " = %x"},
        {"%x = input f32[4] ", ""},
        {"map ", "(1) \"x\""},
        {"map m(1) \"x\" ", ""},
        {"dim %", " = 1..2"},
        {"dim %T = ", ""},
    };
    for (int i = 0; i < ARRAY_SIZE(around); i++) {
        ck_assert_msg(parse(around[i][0], around[i][1]), "%s", around[i][0]);
        expect_plain(around[i][0]);
    }
}
END_TEST

START_TEST(options)
{
    coda_graph *g = coda_graph_new();
    coda_plan *p;
    coda_cache *c;
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    coda_cache_options co = CODA_CACHE_OPTIONS_INIT;
    coda_output(g, "y", coda_relu(g, coda_input(g, "x", CODA_F32, 1, (int64_t[]){4})));
    o.device = CODA_DEVICE_NONE, o.arch = EVIL;
    ck_assert(coda_compile(&p, g, &o));
    expect_plain("arch");
    o.device = CODA_DEVICE_CPU, o.arch = NULL;
    ck_assert_int_eq(coda_compile(&p, g, &o), CODA_OK);
    ck_assert_int_lt(coda_plan_find(p, EVIL), 0);
    expect_plain("coda_plan_find");
    ck_assert(coda_cache_import(NULL, "/nonexistent/" EVIL, NULL));
    expect_plain("coda_cache_import");
    ck_assert_int_lt(coda_bundle_print("/nonexistent/" EVIL, NULL, 0), 0);
    expect_plain("coda_bundle_print");
    co.dir = "/dev/null/" EVIL;
    if (coda_cache_open(&c, &co)) expect_plain("coda_cache_open");
    else coda_cache_free(c);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* coda_info_print has paths of the environment, on a line each. */
START_TEST(info)
{
    char text[8192];
    setenv("CODA_LIBCUDA", "/nonexistent/" EVIL, 1);
    setenv("CODA_CUDA_LIB", "/nonexistent/" EVIL, 1);
    setenv("CODA_CACHE_DIR", "/proc/" EVIL, 1);
    setenv("CODA_DUMP", "/nonexistent/" EVIL, 1);
    ck_assert_int_gt(coda_info_print(text, sizeof text), 0);
    int lines = 0;
    for (const char *s = text; *s; s++) {
        lines += *s == '\n';
        ck_assert_msg(*s == '\n' || (*s >= ' ' && *s < 127), "byte 0x%02x in %s", (unsigned char)*s, text);
    }
    ck_assert_int_eq(lines, 9);
}
END_TEST

TESTS(escape, EACH(shows, ARRAY_SIZE(word)), ONE(cuts), ONE(names), ONE(texts), ONE(options), ONE(info));
