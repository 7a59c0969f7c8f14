/*
 * test_embed.c -- the build tool embed: what it accepts, what it refuses and where it points. It is run as
 * make runs it, on folders made for the purpose; it lies beside the test program or in $CODA_EMBED.
 */
#include "tests.h" /* last: Check has a macro named fail */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[256], tool[4096], said[8192];

static void find_tool(void)
{
    const char *given = getenv("CODA_EMBED");
    ssize_t n = readlink("/proc/self/exe", tool, sizeof tool - 16);
    ck_assert(n > 0);
    tool[n] = '\0';
    strcpy(strrchr(tool, '/'), "/embed");
    if (given) snprintf(tool, sizeof tool, "%s", given);
    ck_assert_msg(access(tool, X_OK) == 0, "%s is not there: make it, or set CODA_EMBED", tool);
}

static void set_up(void)
{
    static const char *const folders[] = {"map", "reduce", "pair", "port", "ref"};
    const char *tmp = getenv("TMPDIR");
    char path[300];
    find_tool();
    snprintf(root, sizeof root, "%s/coda-embed-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    ck_assert_ptr_nonnull(mkdtemp(root));
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static void tear_down(void) { nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

static void put_bytes(const char *name, const void *data, size_t size)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

static void put(const char *name, const char *text) { put_bytes(name, text, strlen(text)); }

/* Runs embed on `files`; `said` becomes what it wrote, with its errors. Returns its exit status. */
static int embed(const char *files)
{
    char command[8192];
    snprintf(command, sizeof command, "'%s' '%s' %s 2>&1", tool, root, files);
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(said, 1, sizeof said - 1, f);
    said[n] = '\0';
    while (fgetc(f) != EOF) {}
    int status = pclose(f);
    ck_assert_msg(WIFEXITED(status), "embed died");
    return WEXITSTATUS(status);
}

/* A map file with `line` as its third line is refused with `message` at that line. */
static void refused(const char *line, const char *message)
{
    char text[4096], want[4096];
    snprintf(text, sizeof text, "// f.cuh -- f.\n//\n%s\n#pragma once\n", line);
    snprintf(want, sizeof want, "%s/map/f.cuh:3: %s\n", root, message);
    put("map/f.cuh", text);
    put("ref/f.c", "");
    ck_assert_int_eq(embed("map/f.cuh"), 1);
    ck_assert_str_eq(said, want);
}

/* The first line of a primitive, and the code that a map and its reference cannot do without. */
#define SAYS(name) "// " name ".cuh -- the \"" name "\" of x.\n"
#define MAP(name) "#pragma once\nstruct " name " {};\n"
#define REF(name) "REFERENCE_MAP(" name ") { return 0; }\n"

START_TEST(good_lines_are_taken)
{
    put("map/f.cuh",
        "// f.cuh -- x\n// and y.\n//\n// Not this.\n// coda: map f(x, y; alpha, beta)\n" MAP("f"));
    put("reduce/r.cuh", "// r.cuh -- of x.\r\n// coda: reduce r(x, key) state 3\r\n" MAP(
                            "r") "static constexpr int state = 3;\n");
    put("pair/p.cuh", SAYS("p") "// coda:  pair  p( a , b, turn )  \n" MAP("p"));
    put("ref/p.c", "REFERENCE_PAIR(p) { *a = *b; }");
    put("port/q.cuh", "// libcoda: a port; coda::port is its namespace\n");
    put("ref/f.c", REF("f"));
    put("ref/r.c", "REFERENCE_REDUCE(r) = {init, push, merge, finish};");
    put("ref/ref.h", "");
    ck_assert_int_eq(embed("pair/p.cuh reduce/r.cuh port/q.cuh map/f.cuh"), 0);
    ck_assert_ptr_nonnull(
        strstr(said, "{.name = \"f\", .kind = PRIM_MAP, .header = \"map/f.cuh\",\n"
                     "     .inputs = 2, .params = 2, .state = 0, "
                     ".param_name = {\"alpha\",\"beta\",},\n"
                     "     .operands = \"x, y\", .constants = \"alpha=float, beta=float\",\n"
                     "     .meaning = \"x and y.\",\n     .gradient = \"\", .loops = &coda_loops_f, "
                     ".reference = coda_ref_f},"));
    ck_assert_ptr_nonnull(
        strstr(said, "{.name = \"r\", .kind = PRIM_REDUCE, .header = \"reduce/r.cuh\",\n"
                     "     .inputs = 2, .params = 0, .state = 3,\n"
                     "     .operands = \"x, key\", .constants = \"\",\n"
                     "     .meaning = \"of x.\",\n     .gradient = \"\", .reduce = &coda_ref_r},"));
    ck_assert_ptr_nonnull(strstr(said, "{\"p\", \"pair/p.cuh\", coda_ref_p},"));
    ck_assert_ptr_nonnull(strstr(said, "prim_count = 2;"));
    ck_assert_ptr_nonnull(strstr(said, "prim_file_count = 4;"));
}
END_TEST

START_TEST(order_of_arguments_does_not_matter)
{
    static char first[sizeof said];
    put("map/a.cuh", SAYS("a") "// coda: map a(x)\n" MAP("a"));
    put("map/b.cuh", SAYS("b") "// coda: map b(x)\n" MAP("b"));
    put("ref/a.c", REF("a"));
    put("ref/b.c", REF("b"));
    ck_assert_int_eq(embed("map/a.cuh map/b.cuh"), 0);
    memcpy(first, said, sizeof said);
    ck_assert_int_eq(embed("map/b.cuh map/a.cuh"), 0);
    ck_assert_str_eq(first, said);
}
END_TEST

START_TEST(typos_are_pointed_at)
{
    static const char start[] = "a registration starts its line with \"// coda: \"";
    refused("// coda: mep f(x)", "\"mep\" is not map, reduce or pair");
    refused("// coda: map g(x)", "map g belongs in map/g.cuh");
    refused("// coda: reduce f(x) state 1", "reduce f belongs in reduce/f.cuh");
    refused("// coda: map f", "'(' expected before \"\"");
    refused("// coda: map f(x", "')' expected before \"\"");
    refused("// coda: map f()", "a name expected before \")\"");
    refused("// coda: map f(x,)", "a name expected before \")\"");
    refused("// coda: map f(x; )", "a name expected before \")\"");
    refused("// coda: map f(2x)", "a name expected before \"2x)\"");
    refused("// coda: map f(x y)", "')' expected before \"y)\"");
    refused("// coda: map f(x, x)", "x is named twice");
    refused("// coda: map f(x; x)", "x is named twice");
    refused("// coda: map f(x) -> y", "nothing may follow, but there is \"-> y\"");
    refused("// coda: map f(x) state 2",
            "\"state\" is no fact: linear, shift, quotient, identity, grad, dtype, nonzero or narrow");
    refused("// coda: map f(a, b, c, d, e)", "at most 4 operands and 4 parameters");
    refused("// coda: map f(x; a, b, c, d, e)", "at most 4 operands and 4 parameters");
    refused("// coda: map f(a, b, c, d, e, f, g, h, i)", "more than 8 arguments");
    refused("//coda: map f(x)", start);
    refused("// Coda: map f(x)", start);
    refused("// coda : map f(x)", start);
    refused("    // coda: map f(x)", start);
    refused("// coda:map f(x)", start);
    refused("// coda map f(x)", start);
    refused("/// CODA Reduce f(x) state 1", start);
}
END_TEST

START_TEST(facts_are_taken)
{
    put("map/f.cuh", SAYS("f") "// coda: map f(x, y; a)  linear(x, y)  shift(y) linear( x ) identity(a = "
                               "-0.5) dtype(y) quotient(y) nonzero\n" MAP("f"));
    put("ref/f.c", REF("f"));
    ck_assert_int_eq(embed("map/f.cuh"), 0);
    ck_assert_ptr_nonnull(strstr(said, ".facts = {.linear = 1, .jointly = 3, .shift = 2, .identity = 3, "
                                       ".identity_at = -0x1p-1,\n               .dtype = 1, "
                                       ".quotient = 2, .nonzero = 1, .zero = 0, .one = 0},"));
}
END_TEST

START_TEST(odd_facts_are_pointed_at)
{
    refused("// coda: map f(x) linaer(x)",
            "\"linaer\" is no fact: linear, shift, quotient, identity, grad, dtype, nonzero or narrow");
    refused("// coda: map f(x) linear", "'(' expected before \"\"");
    refused("// coda: map f(x) linear()", "a name expected before \")\"");
    refused("// coda: map f(x) linear(x", "')' expected before \"\"");
    refused("// coda: map f(x; a) linear(a)", "f has no operand a");
    refused("// coda: map f(x, y) shift(x, y)", "a shift is of one operand");
    refused("// coda: map f(x; a) dtype(a)", "f has no operand a");
    refused("// coda: map f(x; a) identity(b = 1)", "f has no argument b");
    refused("// coda: map f(x; a) identity(a)", "'=' expected before \")\"");
    refused("// coda: map f(x; a) identity(a = )", "a number expected before \" )\"");
    refused("// coda: map f(x; a) identity(a = 1 2)", "')' expected before \"2)\"");
    refused("// coda: map f(x; a) identity(x = 1)", "the identity is x itself");
    refused("// coda: map f(x; a) identity(a = 1) identity(a = 1)", "a second identity");
    refused("// coda: map f(x, y) quotient(x)", "a quotient is by another operand than x");
    refused("// coda: map f(x) linear(x) 2", "nothing may follow, but there is \"2\"");
}
END_TEST

START_TEST(derivatives_are_taken)
{
    put("map/f.cuh", SAYS("f") "// coda: map f(x, y, z; a) grad(x, z = 0) grad(y = g)\n" MAP("f"));
    put("map/g.cuh", SAYS("g") "// coda: map g(x, y; b) linear(x, y)\n" MAP("g"));
    put("map/h.cuh", SAYS("h") "// coda: map h(x, s, k) grad(x = 1)\n" MAP("h"));
    put("reduce/r.cuh", SAYS("r") "// coda: reduce r(x, key) state 1 exact grad(x = h) grad(key = 0)\n" MAP(
                            "r") "static constexpr int state = 1;\n");
    put("ref/f.c", REF("f")), put("ref/g.c", REF("g")), put("ref/h.c", REF("h"));
    put("ref/r.c", "REFERENCE_REDUCE(r) = {0};");
    ck_assert_int_eq(embed("map/f.cuh map/g.cuh map/h.cuh reduce/r.cuh"), 0);
    ck_assert_ptr_nonnull(strstr(said, ".gradient = \"x: 0, y: g(x, y; a), z: 0\","));
    ck_assert_ptr_nonnull(strstr(said, ".zero = 5, .one = 0, .grad[1] = &prim_table[1]},"));
    ck_assert_ptr_nonnull(strstr(said, ".gradient = \"x: g(1, 0; b), y: g(0, 1; b)\","));
    ck_assert_ptr_nonnull(strstr(said, ".gradient = \"x: 1\","));
    ck_assert_ptr_nonnull(strstr(said, ".gradient = \"x: h(x, result, key), key: 0\","));
    ck_assert_ptr_nonnull(strstr(said, ".zero = 2, .one = 0, .grad[0] = &prim_table[2]},"));
    ck_assert_ptr_nonnull(strstr(said, ".exact = true,"));
}
END_TEST

START_TEST(odd_derivatives_are_pointed_at)
{
    refused("// coda: map f(x) grad", "'(' expected before \"\"");
    refused("// coda: map f(x) grad(x)", "'=' expected before \")\"");
    refused("// coda: map f(x) grad(x = )", "a name expected before \")\"");
    refused("// coda: map f(x) grad(x = 2)", "a name expected before \"2)\"");
    refused("// coda: map f(x) grad(x = 0.5)", "')' expected before \".5)\"");
    refused("// coda: map f(x; a) grad(a = 0)", "f has no operand a");
    refused("// coda: map f(x) grad(x = 0) grad(x = 1)", "a second derivative by x");
    refused("// coda: map f(x) grad(x = g) grad(x = g)", "a second derivative by x");
    refused("// coda: map f(x, y) grad(x = g) linear(x, y)", "a second derivative by x");
    refused("// coda: map f(x, y) linear(y) grad(x, y = 1)", "a second derivative by y");
}
END_TEST

/* The derivative that a line names is a map of as many parameters, and of no more operands. */
START_TEST(derivatives_are_looked_up)
{
    static const char *const bad[][2] = {
        {"map f(x) grad(x = h)", "the derivative by x: there is no map h"},
        {"map f(x) grad(x = r)", "the derivative by x: there is no map r"},
        {"map f(x; a) grad(x = g)",
         "the derivative by x: g takes 2 operands and 1 parameters; f has 1 and 1"},
        {"map f(y, x) grad(x = g)",
         "the derivative by x: g takes 2 operands and 1 parameters; f has 2 and 0"}};
    char line[200], want[400];
    put("map/g.cuh", SAYS("g") "// coda: map g(x, y; b)\n" MAP("g"));
    put("reduce/r.cuh",
        SAYS("r") "// coda: reduce r(x) state 1\n" MAP("r") "static constexpr int state = 1;\n");
    put("ref/f.c", REF("f")), put("ref/g.c", REF("g")), put("ref/r.c", "REFERENCE_REDUCE(r) = {0};");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, SAYS("f") "// coda: %s\n" MAP("f"), bad[i][0]);
        put("map/f.cuh", line);
        snprintf(want, sizeof want, "%s/map/f.cuh:1: %s\n", root, bad[i][1]);
        ck_assert_int_eq(embed("map/f.cuh map/g.cuh reduce/r.cuh"), 1);
        ck_assert_str_eq(said, want);
    }
    put("reduce/r.cuh",
        SAYS("r") "// coda: reduce r(x) state 1 linear(x)\n" MAP("r") "static constexpr int state = 1;\n");
    ck_assert_int_eq(embed("reduce/r.cuh"), 1);
    ck_assert_ptr_nonnull(strstr(said, "\"linear\" is no fact of a reduction: grad\n"));
}
END_TEST

/* A map f whose code is `code` is refused with `message` in that line of the file. */
static void refused_code(const char *code, int line, const char *message)
{
    char text[4096], want[4096];
    snprintf(text, sizeof text, "// coda: map f(x)\n%s", code);
    snprintf(want, sizeof want, "%s/map/f.cuh:%d: %s\n", root, line, message);
    put("map/f.cuh", text);
    put("ref/f.c", REF("f"));
    ck_assert_int_eq(embed("map/f.cuh"), 1);
    ck_assert_str_eq(said, want);
}

#define BODY(expression) MAP("f") "DEV static float apply(float x) { return " expression "; }\n"

START_TEST(code_that_cannot_be_meant_is_pointed_at)
{
    static const char *const called[] = {"expf", "exp", "tanhf", "fmaxf", "fabs", "powf", "max", "__expf"};
    static const char *const number[] = {"0.5", "1e-3", "2.", ".5", "1.0e+2", "3E5"};
    char code[200], want[200];
    refused_code("struct f {};\n", 1, "`#pragma once` is missing");
    refused_code("// #pragma once\nstruct f {};\n", 1, "`#pragma once` is missing");
    refused_code("#pragma once\nstruct g {}; // struct f\n", 1,
                 "the registration says f, and there is no `struct f`");
    refused_code("#pragma once\nstruct f1 {};\n", 1, "the registration says f, and there is no `struct f`");
    for (size_t i = 0; i < sizeof called / sizeof *called; i++) {
        snprintf(code, sizeof code, MAP("f") "float y = %s(x);\n", called[i]);
        snprintf(want, sizeof want, "%s() is not for device code here; math.cuh has what maps need",
                 called[i]);
        refused_code(code, 4, want);
    }
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        snprintf(code, sizeof code, MAP("f") "float y = x * %s;\n", number[i]);
        snprintf(want, sizeof want, "%s is a double; write %sf", number[i], number[i]);
        refused_code(code, 4, want);
    }
}
END_TEST

START_TEST(code_of_maps_is_taken)
{
    put("ref/f.c", "/* REFERENCE_MAP(g) */\nREFERENCE_MAP(f)\n{ return exp(in[0]) * 0.5; }\n");
    put("map/f.cuh", SAYS("f") "// coda: map f(x) \n" BODY("math::exp(x) * 0.5f + 1e-3f + 2.f + 0x1.8p3f + "
                                                           "3 * fabsf(x) // 0.5, expf(x)"));
    ck_assert_int_eq(embed("map/f.cuh"), 0);
    put("map/f.cuh",
        SAYS("f") "// coda: map f(x) \n" BODY("gelu_tanh::apply(x) /* expf(0.5) */ + s.v[0] + a.max(2)"));
    ck_assert_int_eq(embed("map/f.cuh"), 0);
}
END_TEST

START_TEST(references_name_their_primitive)
{
    static const char *const bad[] = {"", REF("g"), "// REFERENCE_MAP(f)\n", "REFERENCE_REDUCE(f) = {0};",
                                      REF("f2")};
    char want[4096];
    snprintf(want, sizeof want, "%s/ref/f.c:1: REFERENCE_MAP(f) is missing\n", root);
    put("map/f.cuh", "// coda: map f(x)\n" MAP("f"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("ref/f.c", bad[i]);
        ck_assert_int_eq(embed("map/f.cuh"), 1);
        ck_assert_str_eq(said, want);
    }
    put("ref/f.c", "REFERENCE_REDUCE(f) = {0};");
    put("reduce/f.cuh", "// coda: reduce f(x) state 2\n" MAP("f") "static constexpr int state = 1;\n");
    ck_assert_int_eq(embed("reduce/f.cuh"), 1);
    snprintf(want, sizeof want,
             "%s/reduce/f.cuh:1: the registration says state 2; the code needs `static constexpr int state = "
             "2;`\n",
             root);
    ck_assert_str_eq(said, want);
}
END_TEST

START_TEST(reductions_state_their_size)
{
    static const char *const bad[][2] = {
        {"// coda: reduce f(x)", "a name expected before \"\""},
        {"// coda: reduce f(x) stat 1", "\"state\" expected instead of \"stat\""},
        {"// coda: reduce f(x) state", "state must be 1 to 32 floats"},
        {"// coda: reduce f(x) state 0", "state must be 1 to 32 floats"},
        {"// coda: reduce f(x) state 33", "state must be 1 to 32 floats"},
        {"// coda: reduce f(x) state 1 2", "nothing may follow, but there is \"2\""},
        {"// coda: reduce f(x) state 1 exactly", "\"exactly\" is no fact of a reduction: grad"},
        {"// coda: reduce f(x; k) state 1", "')' expected before \"; k) state 1\""},
        {"// coda: reduce f(x, k, l) state 1", "a reduction has one operand and perhaps a key"}};
    char want[4096];
    put("ref/f.c", "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("reduce/f.cuh", bad[i][0]);
        snprintf(want, sizeof want, "%s/reduce/f.cuh:1: %s\n", root, bad[i][1]);
        ck_assert_int_eq(embed("reduce/f.cuh"), 1);
        ck_assert_str_eq(said, want);
    }
}
END_TEST

START_TEST(long_names_are_refused)
{
    char line[400], word[201];
    memset(word, 'a', 200), word[200] = '\0';
    snprintf(line, sizeof line, "// coda: map %s(x)", word);
    refused(line, "a name of 64 characters or more");
}
END_TEST

START_TEST(files_and_references_are_paired)
{
    char want[4096];
    put("map/f.cuh", SAYS("f") "// coda: map f(x)\n" MAP("f"));
    ck_assert_int_eq(embed("map/f.cuh"), 1);
    snprintf(want, sizeof want, "%s/map/f.cuh:2: its reference %s/ref/f.c is missing\n", root, root);
    ck_assert_str_eq(said, want);
    put("ref/f.c", REF("f"));
    put("ref/g.c", "");
    ck_assert_int_eq(embed("map/f.cuh"), 1);
    snprintf(want, sizeof want, "%s/ref:1: g.c is the reference of no primitive\n", root);
    ck_assert_str_eq(said, want);
}
END_TEST

START_TEST(one_registration_for_one_name)
{
    put("ref/f.c", REF("f") "REFERENCE_REDUCE(f) = {0};\n");
    put("map/f.cuh", "// coda: map f(x)\n\n// coda: map f(x)\n");
    ck_assert_int_eq(embed("map/f.cuh"), 1);
    ck_assert_ptr_nonnull(strstr(said, "/map/f.cuh:3: a second registration; the first is in line 1\n"));
    put("map/f.cuh", SAYS("f") "// coda: map f(x)\n" MAP("f"));
    put("reduce/f.cuh",
        SAYS("f") "// coda: reduce f(x) state 1\n" MAP("f") "static constexpr int state = 1;\n");
    ck_assert_int_eq(embed("map/f.cuh reduce/f.cuh"), 1);
    ck_assert_ptr_nonnull(strstr(said, "f is also the name of "));
    put("map/f.cuh", "#pragma once\n");
    ck_assert_int_eq(embed("map/f.cuh"), 1);
    ck_assert_ptr_nonnull(strstr(said, "/map/f.cuh:1: has no line \"// coda: ...\"\n"));
    put("port/q.cuh", "// coda: map q(x)\n");
    ck_assert_int_eq(embed("port/q.cuh"), 1);
    ck_assert_ptr_nonnull(strstr(said, "/port/q.cuh:1: only map/, reduce/ and pair/ register\n"));
}
END_TEST

/* embed refuses `file`, which holds `text`, with this line. */
static void refused_file(const char *file, const char *text, const char *line)
{
    char want[4096];
    put(file, text);
    snprintf(want, sizeof want, "%s/%s:%s\n", root, file, line);
    ck_assert_int_eq(embed(file), 1);
    ck_assert_str_eq(said, want);
}

START_TEST(each_says_what_it_computes)
{
    static const char missing[] = "1: begins with no \"// f.cuh -- \" and what it computes";
    put("ref/f.c", REF("f"));
    refused_file("map/f.cuh", "// coda: map f(x)\n" MAP("f"), missing);
    refused_file("map/f.cuh", "// g.cuh -- x.\n// coda: map f(x)\n" MAP("f"), missing);
    refused_file("map/f.cuh", "// f.cuh -- \n// coda: map f(x)\n" MAP("f"), "1: what it computes is missing");
}
END_TEST

START_TEST(functions_are_registered)
{
    static const char define[] = "#pragma once\nDEV float f(float x) { return x; }\n";
    char text[400];
    snprintf(text, sizeof text, "// coda: function f(x) x; \"error\" 0\n%s", define);
    put("math.cuh", text);
    ck_assert_msg(embed("math.cuh") == 0, "%s", said);
    ck_assert_ptr_nonnull(
        strstr(said, "    {\"f\", \"x\", \"x; \\\"error\\\" 0\"},\n    {NULL, NULL, NULL}};"));
    refused_file("math.cuh", define, "2: f has no line \"// coda: function ...\"");
    refused_file("math.cuh", "// coda: function g(x) x\n", "1: there is no function g");
    refused_file("math.cuh", "// coda: function f(x)\n", "1: f: what it computes is missing");
    refused_file("math.cuh", "// coda: function f x\n", "1: '(' expected before \"x\"");
    refused_file("port/q.cuh", "// coda: function f(x) x\n", "1: only math.cuh registers functions");
}
END_TEST

START_TEST(odd_files)
{
    static char big[200000];
    memset(big, 'x', sizeof big);
    put_bytes("port/big.cuh", big, sizeof big);
    put_bytes("port/high.cuh", "\xff\xfe\x80\n\"\\??", 8);
    put("port/empty.cuh", "");
    ck_assert_int_eq(embed("port/big.cuh port/empty.cuh port/high.cuh"), 0);
    ck_assert_int_eq(embed("port/empty.cuh port/high.cuh"), 0);
    ck_assert_ptr_nonnull(strstr(said, "255,254,128,10,34,92,63,63,0,}"));
    put_bytes("port/nul.cuh", "a\0b", 3);
    ck_assert_int_eq(embed("port/nul.cuh"), 1);
    ck_assert_ptr_nonnull(strstr(said, "/port/nul.cuh:1: holds a NUL byte\n"));
    ck_assert_int_eq(embed("port/none.cuh"), 1);
    ck_assert_ptr_nonnull(strstr(said, "/port/none.cuh:1: cannot be opened\n"));
    ck_assert_int_eq(embed("port"), 1);
    ck_assert_int_eq(embed(""), 1);
}
END_TEST

TESTS(embed, AROUND(set_up, tear_down), ONE(good_lines_are_taken), ONE(order_of_arguments_does_not_matter),
      ONE(typos_are_pointed_at), ONE(facts_are_taken), ONE(odd_facts_are_pointed_at),
      ONE(derivatives_are_taken), ONE(odd_derivatives_are_pointed_at), ONE(derivatives_are_looked_up),
      ONE(code_that_cannot_be_meant_is_pointed_at), ONE(code_of_maps_is_taken),
      ONE(references_name_their_primitive), ONE(reductions_state_their_size), ONE(long_names_are_refused),
      ONE(files_and_references_are_paired), ONE(one_registration_for_one_name),
      ONE(each_says_what_it_computes), ONE(functions_are_registered), ONE(odd_files));
