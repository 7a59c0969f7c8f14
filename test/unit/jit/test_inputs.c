/*
 * test_inputs.c -- a kernel is made of what its key says: what could make the compiler read a file or the
 * clock is refused in a run-time map, and keeps kernels out of the cache where flags or edited primitives
 * say it. NVRTC itself is asked which of many texts read a file.
 */
#include "closed_text.h"
#include "compile.h"
#include "prim.h"
#include "sha256.h"
#include "util_folder.h"
#include "util_random.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char err[JIT_ERROR_SIZE], why[256];

static bool is_closed(const char *text) { return text_is_closed(text, NULL, why, sizeof why); }

/* ---- Maps ---- */

#define APPLY "DEV static float apply(float x) { return x; }\n"

static const char *const open_texts[] = {
    "#include \"h.cuh\"\n",
    "#include <h.cuh>\n",
    "  #  include \"h.cuh\"\n",
    "\t#\tinclude\t\"h.cuh\"\n",
    "\f#\v\finclude \"h.cuh\"\n",
    "/* c */ # /* c */ include \"h.cuh\"\n",
    "/* c\n */#include \"h.cuh\"\n",
    "#/*\n*/include \"h.cuh\"\n",
    "#\\\ninclude \"h.cuh\"\n",
    "#inc\\\nlude \"h.cuh\"\n",
    "#\\\r\ninclude \"h.cuh\"\n",
    "\\\n#include \"h.cuh\"\n",
    "#\\\n\\\n\\\ninclude \"h.cuh\"\n",
    "%:include \"h.cuh\"\n",
    "%\\\n:include \"h.cuh\"\n",
    "  %: /**/ include \"h.cuh\"\n",
    "?\?=include \"h.cuh\"\n",
    "#?\?/\ninclude \"h.cuh\"\n",
    "#define H \"h.cuh\"\n#include H\n",
    "#include_next \"h.cuh\"\n",
    "#import \"h.cuh\"\n",
    "#embed \"h.cuh\"\n",
    "#line 1 \"h.cuh\"\n",
    "# 1 \"h.cuh\"\n",
    "#pragma GCC dependency \"h.cuh\"\n",
    "#pragma include_alias(\"a\", \"b\")\n",
    "_Pragma(\"include_alias\")\n",
    "__pragma(x)\n",
    "#ident \"x\"\n#sccs \"x\"\n",
    "#if __has_include(\"h.cuh\")\n#endif\n",
    "#if defined(__has_include) && __has\\\n_include(<h.cuh>)\n#endif\n",
    "#if __has_embed(\"h.cuh\")\n#endif\n",
    "// a comment \\ \n#include \"h.cuh\"\n",
    "// a comment \\\t\r\n#include \"h.cuh\"\n",
    "\"/*\"\n#include \"h.cuh\"\n\"*/\"\n",
    "'\"'\n#include \"h.cuh\"\n'\"'\n",
    "R\"(/*)\"\n#include \"h.cuh\"\n/**/\n",
    "R\"(\" /* \")\"\n#include \"h.cuh\"\n/* */\n",
    "R\"x(\n#if 0\n)x\"\n#include \"h.cuh\"\n",
    "#if 0\nR\"(\n#endif\n#include \"h.cuh\"\n)\"\n#endif\n",
    "#if 0\nR\"x(\" )x\" /* \"\n#endif\n#include \"h.cuh\"\n/* */\n",
    "R\\\n\"(/*)\"\n#include \"h.cuh\"\n/**/\n",
    "FOOR\"(\" \n#include \"h.cuh\"\n",
    "#if 0\n it's\n#endif\n#include \"h.cuh\"\n",
    "int a = 1'0; /* ' */\n#include \"h.cuh\"\n/* ' */\n",
    "float t[] = {sizeof(__TIME__)};\n",
    "__DATE__\n",
    "__TIMESTAMP__\n",
    "__TI\\\nME__\n",
    "#define NOW __TIME__\nNOW\n",
    "#define CAT(a, b) a##b\nCAT(__TI, ME__)\n",
    "#define CAT(a, b) a %:%: b\nCAT(__TI, ME__)\n",
    "#define CAT(a, b) a#\\\n#b\nCAT(__TI, ME__)\n",
    "__FILE__\n",
    "__BASE_FILE__\n",
    "__builtin_FILE()\n",
    "_\\u005fTIME__\n",
    "import \"h.cuh\";\n",
    "export import <h.cuh>;\n",
    "//\r#include \"h.cuh\"\n",
    "/* an end that another map brings",
    "\"an end that another map brings",
    "R\"(an end that another map brings",
    "// an end that is spliced to what follows \\",
    NULL,
};

START_TEST(refuses_what_reads_more)
{
    for (int i = 0; open_texts[i]; i++) {
        for (int before = 0; before < 2; before++) {
            char text[512];
            snprintf(text, sizeof text, "%s%s", before ? APPLY : "", open_texts[i]);
            ck_assert_msg(!is_closed(text), "%d: %s", i, text);
            ck_assert_msg(!strncmp(why, "line ", 5) && !strchr(why, '\n'), "%d: %s", i, why);
        }
    }
}
END_TEST

static const char *const closed_texts[] = {
    APPLY,
    "",
    "#\n" APPLY,
    "// #include in a comment, and __TIME__; don't mind\n" APPLY,
    "/* #include \"h.cuh\"\n#include <h.cuh>\n __DATE__ ?\?= */ " APPLY,
    "const char *s = \"#include __TIME__ \\\" /* \\\\\";\n" APPLY,
    "const char *s = \"\\\n#include \\\"h.cuh\\\"\\\n\";\n", /* spliced: inside the literal */
    "// spliced \\\n#include \"h.cuh\"\n" APPLY,
    "constexpr char s[] = R\"zz(\xb8\xfe /* # ' \\)zz\"; constexpr char t[] = u8R\"()\";\n" APPLY,
    "#define A(x) #x\n#define B 1 \\\n + 2\n#undef A\n" APPLY,
    "#if defined(B) /* c */ && 1 // c\n#elif 1\n#else\n#error no\n#endif\n#ifdef B\n#endif\n#ifndef "
    "B\n#endif\n",
    "for (int i = 0; i < 3; i++) {\n  #pragma unroll 4\n ; }\n%:pragma nounroll\n#pragma once\n",
    "float y = 1.5e+3f + .5e-2f + 0x1p-3 - 1.f; int c = '\"' + '\\'' + 'a'; x = y % z; a = b ? c : d;\n",
    "int important, include, embed, modulex; x = import_it(module); bool R = L\"R\" \"u8\";\n",
    "__TIME, TIME__, X__TIME__, __TIME__X, __has_includes\n",
    NULL,
};

START_TEST(takes_what_reads_nothing_else)
{
    for (int i = 0; closed_texts[i]; i++) ck_assert_msg(is_closed(closed_texts[i]), "%d: %s", i, why);
}
END_TEST

START_TEST(says_where_and_what)
{
    ck_assert(!is_closed("// one\n/* two\nthree */\\\n#include \"x\"\n"));
    ck_assert_str_eq(why, "line 4 has #include, which reads another file");
    coda_graph *g = coda_graph_new();
    coda_map_def def = CODA_MAP_DEF_INIT;
    def.name = "mine";
    def.source = "#define NOW __TIME__\n" APPLY;
    ck_assert_int_eq(coda_define_map(g, &def), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "map mine: its source must stand for itself, but line 1 has __TIME__");
    coda_graph_free(g);
    ck_assert_int_eq(coda_graph_parse(&g, "map mine(1) \"%:\\\\\\ninclude \\\"x\\\"\"\n"), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "line 1: map mine: its source must stand for itself"), "%s",
                  coda_error());
}
END_TEST

/* ---- NVRTC's opinion ---- */

static char header[512];

static bool reads_the_header(const char *text)
{
    const struct nvrtc *n = nvrtc_open(err);
    static const char *const options[] = {"--std=c++17", "-default-device"};
    nvrtcProgram p;
    size_t size = 0;
    ck_assert_msg(n, "%s", err);
    ck_assert_int_eq(n->nvrtcCreateProgram(&p, text, "k.cu", 0, NULL, NULL), NVRTC_SUCCESS);
    n->nvrtcCompileProgram(p, 2, options);
    n->nvrtcGetProgramLogSize(p, &size);
    char *log = calloc(1, size + 1);
    n->nvrtcGetProgramLog(p, log);
    bool read = strstr(log, "the header was read");
    free(log);
    n->nvrtcDestroyProgram(&p);
    return read;
}

static void write_header(void)
{
    snprintf(header, sizeof header, "%s", folder_under("h.cuh"));
    FILE *f = fopen(header, "w");
    ck_assert_ptr_nonnull(f);
    fputs("#error the header was read\n", f);
    ck_assert_int_eq(fclose(f), 0);
}

/* Pieces that open and close comments, literals and groups around an include, in any order. */
static void draw(char *text, size_t size, struct random *r)
{
    static const char *const piece[] = {
        "/*",    "*/",         "//",   "\n",    "\n",     "\n",      "\"",      "'",        "R\"(",    ")\"",
        "R\"x(", ")x\"",       "\\\n", "\\ \n", "\\\r\n", "\r",      "#if 0\n", "#endif\n", "#else\n", "#",
        "%:",    "#define X ", "\\",   " ",     "\t",     "a",       "R",       "u8",       "1'",      "0",
        "\f",    "?\?/\n",     "\"\"", "/",     "*",      "#if 1\n", "(",       ")",
    };
    enum { PIECES = sizeof piece / sizeof *piece };
    size_t n = 0;
    int count = (int)random_below(r, 10), at = (int)random_below(r, count + 1);
    text[0] = 0;
    for (int i = 0; i <= count; i++) {
        if (i == at)
            n +=
                (size_t)snprintf(text + n, size - n, "%s%sinclude \"%s\"%s", random_chance(r, 70) ? "\n" : "",
                                 random_chance(r, 80) ? "#" : "%:", header, random_chance(r, 90) ? "\n" : "");
        else n += (size_t)snprintf(text + n, size - n, "%s", piece[random_below(r, PIECES)]);
    }
}

START_TEST(reads_as_nvrtc_does)
{
    struct random r = {random_seed()};
    int closed = 0, read = 0;
    write_header();
    for (int i = 0; i < 600; i++) {
        char text[2048];
        draw(text, sizeof text, &r);
        bool good = is_closed(text);
        closed += good;
        if (!good && i % 8) continue; /* what is refused anyway is asked about now and then */
        bool reads = reads_the_header(text);
        read += reads;
        ck_assert_msg(!good || !reads, "NVRTC reads the header of a text that is called closed:\n%s", text);
    }
    ck_assert_msg(closed > 4 && read > 4, "%d closed, %d read: the texts say nothing", closed, read);
}
END_TEST

/* ---- Flags ---- */

static bool are_known(const char *prepend, const char *append)
{
    setenv("NVRTC_PREPEND_FLAGS", prepend, 1);
    setenv("NVRTC_APPEND_FLAGS", append, 1);
    return jit_inputs_are_known(why, sizeof why);
}

START_TEST(judges_flags)
{
    static const char *const good[] = {
        "",
        " ",
        "-DX",
        "-DX=1 -UY",
        "--define-macro=X=-1.5e+3",
        "--std=c++20",
        "-lineinfo\t-G",
        "--fmad=false",
        "--use_fast_math --maxrregcount=64",
        "--ptxas-options=-v",
        "--ptxas-options=-O1",
        "-diag-suppress=177",
    };
    static const char *const bad[] = {
        "-I/tmp",
        "-I /tmp",
        "-I.",
        "--include-path=/tmp",
        "--pre-include=h.cuh",
        "-include=h.cuh",
        "-include h.cuh",
        "@options",
        "--options-file=o",
        "-optf=o",
        "-isystem=/x",
        "-DX=__TIME__",
        "-DX=a.__DATE__",
        "-D X",
        "-DX=\"a\"",
        "-DCAT(a,b)=a##b",
        "-DX='a'",
        "-DX=\\#",
        "--pch",
        "-pch",
        "--create-pch=x",
        "--use-pch=x",
        "--pch-dir=x",
        "--device-time-trace=x",
        "--ptxas-options=--options-file=x",
        "-Xptxas=@x",
        "-idp",
        "--unknown",
        "-dlto",
        "-time=x",
        "/tmp/x",
        "-DX=$HOME",
        "-Gx",
        "-wI",
        "--minimal=/x",
        "-std=/x",
        "-DX=/tmp",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert_msg(are_known(good[i], ""), "%s: %s", good[i], why);
        ck_assert_msg(are_known("", good[i]), "%s: %s", good[i], why);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char after[128];
        snprintf(after, sizeof after, "-DX %s -DY", bad[i]);
        ck_assert_msg(!are_known(bad[i], "") && strstr(why, "$NVRTC_PREPEND_FLAGS has \""), "%s: %s", bad[i],
                      why);
        ck_assert_msg(!are_known("", after) && strstr(why, "$NVRTC_APPEND_FLAGS has \""), "%s: %s", bad[i],
                      why);
    }
    ck_assert(are_known("", ""));
    setenv("NV_NVVM_VERSION", "1", 1);
    ck_assert(!are_known("", "") && strstr(why, "$NV_NVVM_VERSION"));
}
END_TEST

/* Neither stored, nor served, nor shipped; counted, and said. */
START_TEST(passes_the_cache_by)
{
    static const char text[] = "extern \"C\" __global__ void k(float *x) { x[0] = 1; }\n";
    struct jit_options o = {.arch = "sm_90a", .cache = cache_open(&(struct cache_options){.dir = folder})};
    struct jit_cubin c;
    struct stats *s = cache_stats(o.cache);
    char line[1024];
    ck_assert_msg(jit_compile(&c, "k", text, &o, err) == CODA_OK && !c.unkeyed, "%s", err);
    jit_cubin_free(&c);
    setenv("NVRTC_APPEND_FLAGS", "-I/nonexistent", 1);
    for (int i = 1; i < 3; i++) {
        ck_assert_msg(jit_compile(&c, "k", text, &o, err) == CODA_OK, "%s", err);
        ck_assert(c.unkeyed && !c.cached && !c.name[0]);
        ck_assert_str_eq(c.missed, "unkeyed");
        ck_assert_uint_eq(stats_get(s, COUNT_unkeyed), i);
        ck_assert_uint_eq(stats_get(s, COUNT_stored), 1);
        struct jit_exported e = {&c, text};
        coda_bundle_report report = CODA_BUNDLE_REPORT_INIT;
        struct jit_export x = {.path = folder_under("b"), .kernel = &e, .kernels = 1};
        ck_assert_int_eq(jit_export(o.cache, &x, &report, err), CODA_E_UNSUPPORTED);
        ck_assert_msg(strstr(err, "$NVRTC_APPEND_FLAGS has \"-I/nonexistent\""), "%s", err);
        jit_cubin_free(&c);
    }
    jit_cache_info(line, sizeof line);
    ck_assert_msg(strstr(line, "passed by: $NVRTC_APPEND_FLAGS has \"-I/nonexistent\""), "%s", line);
    cache_seal(o.cache, true); /* past the cache, yet no way past the seal */
    ck_assert_int_eq(jit_compile(&c, "k", text, &o, err), CODA_E_UNSUPPORTED);
    unsetenv("NVRTC_APPEND_FLAGS");
    ck_assert_msg(jit_compile(&c, "k", text, &o, err) == CODA_OK && c.cached, "%s", err);
    jit_cubin_free(&c);
    cache_close(o.cache);
}
END_TEST

/* ---- Primitives ---- */

static bool is_ours(const char *name)
{
    for (int i = 0; i < prim_file_count; i++)
        if (!strcmp(prim_files[i].path, name)) return true;
    return false;
}

/* The examples of FIPS 180, and lengths around the padding against sums of coreutils. */
START_TEST(sha256_is_the_standards)
{
    char hex[SHA256_HEX], *many = malloc(1000000);
    memset(many, 'a', 1000000);
    const struct {
        const char *text;
        size_t n;
        const char *want;
    } cases[] = {
        {"", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {many, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
        {many, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
        {many, 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
        {many, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sha256_hex(hex, cases[i].text, cases[i].n);
        ck_assert_str_eq(hex, cases[i].want);
    }
    free(many);
}
END_TEST

/* The file that a text was made of; the tests run in the tree. */
static char *file_of(const struct prim_file *p, size_t *size)
{
    char path[600];
    snprintf(path, sizeof path, "primitives/%s", p->path);
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s", path);
    char *text = calloc(1, 1 << 20);
    *size = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    return text;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

/* What is built in is the file's code: the digest is the file's, lines are where they were, and what is gone
 * begins as comments do and goes to the line's end, or to the end of the comment. */
START_TEST(primitives_have_lost_comments_alone)
{
    for (int i = 0; i < prim_file_count; i++) {
        const struct prim_file *p = &prim_files[i];
        char hex[SHA256_HEX];
        size_t size;
        int lines[2] = {0, 0};
        char *file = file_of(p, &size), *at = file;
        sha256_hex(hex, file, size);
        ck_assert_str_eq(hex, p->digest);
        for (const char *t = p->text; *t; t++) {
            if (*t == '\n') lines[0]++;
            if (is_blank(*t)) continue;
            while (*at && (is_blank(*at) || *at != *t || !strncmp(at, "//", 2) || !strncmp(at, "/*", 2))) {
                bool line = !strncmp(at, "//", 2), block = !strncmp(at, "/*", 2);
                ck_assert_msg(is_blank(*at) || line || block, "%s: \"%.40s\" became \"%.40s\"", p->path, at,
                              t);
                char *end = line ? at + strcspn(at, "\n") : block ? strstr(at + 2, "*/") + 2 : at + 1;
                for (; at < end; at++) lines[1] += *at == '\n';
            }
            ck_assert_msg(*at == *t && lines[0] == lines[1], "%s: line %d is %d", p->path, lines[1],
                          lines[0]);
            at++;
        }
        for (at += strspn(at, " \n"); *at; at += strcspn(at, "\n"), at += strspn(at, " \n"))
            ck_assert_msg(!strncmp(at, "//", 2), "%s: \"%.40s\" is gone", p->path, at);
        ck_assert_ptr_null(strstr(p->text, "/*"));
        free(file);
    }
}
END_TEST

/* Those that are built in include each other alone; pasting is theirs to answer for. */
START_TEST(primitives_are_closed)
{
    for (int i = 0; i < prim_file_count; i++) {
        bool closed = text_is_closed(prim_files[i].text, is_ours, why, sizeof why);
        ck_assert_msg(closed || strstr(why, " has ##"), "%s: %s", prim_files[i].path, why);
    }
}
END_TEST

static void edit_silu(const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s", folder_under("p"));
    mkdir(path, 0700);
    setenv("CODA_PRIMITIVES", path, 1);
    snprintf(path, sizeof path, "%s", folder_under("p/map"));
    mkdir(path, 0700);
    FILE *f = fopen(folder_under("p/map/silu.cuh"), "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(an_edit_may_include_primitives)
{
    edit_silu("#pragma once\n#include \"math.cuh\"\n#include \"map/relu.cuh\" // another one\n");
    ck_assert_msg(are_known("", ""), "%s", why);
}
END_TEST

START_TEST(an_edit_that_reads_more_is_said)
{
    static const char *const text[] = {"#include \"mine.cuh\"\n", "#include <math.cuh>\n",
                                       "#include \"math.cuh\n", "int t = __TIME__;\n",
                                       "#define C(a, b) a##b\n"};
    edit_silu(text[_i]);
    ck_assert(!are_known("", ""));
    ck_assert_msg(!strncmp(why, "$CODA_PRIMITIVES: map/silu.cuh: line 1 has ", 43), "%s", why);
}
END_TEST

TESTS(inputs, AROUND(folder_make, folder_remove), ONE(refuses_what_reads_more),
      ONE(takes_what_reads_nothing_else), ONE(says_where_and_what), ONE(judges_flags),
      ONE(sha256_is_the_standards), ONE(primitives_have_lost_comments_alone), ONE(primitives_are_closed),
      ONE(an_edit_may_include_primitives), EACH(an_edit_that_reads_more_is_said, 5), CASE("nvrtc"),
      AROUND(folder_make, folder_remove), TAG("nvrtc"), ONE(reads_as_nvrtc_does), ONE(passes_the_cache_by));
