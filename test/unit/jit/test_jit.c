/*
 * test_jit.c -- CUDA text becomes a cubin, the same one from the cache, or one readable line.
 *
 * Needs NVRTC and no GPU. What is read once for each process (the primitives' folder, the libraries)
 * is set before first use: each test is its own process.
 */
#include "tests.h" /* last: Check has a macro named fail */
#include <elf.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache.h"
#include "compile.h"
#include "jit.h"
#include "prim.h"
#include "util_folder.h"

static struct coda_cache *cache; /* in a fresh folder for each test */
static char err[JIT_ERROR_SIZE];

static struct coda_cache *open_cache(const char *dir)
{
    return cache_open(&(struct cache_options){.dir = dir});
}

static void set_up(void)
{
    folder_make();
    cache = open_cache(folder);
}

static void tear_down(void)
{
    cache_close(cache);
    folder_remove();
}

#define KERNEL(body) "extern \"C\" __global__ void k(float *x, int n) {\n" body "\n}\n"

static const char *const with_silu =
    "#include \"types.cuh\"\n"
    "#include \"map/silu.cuh\"\n" KERNEL("    x[n] = coda::map::silu::apply(x[n]);");
static const char *const simple = KERNEL("    x[threadIdx.x] *= 2;");

static coda_status compile(struct jit_cubin *out, const char *text)
{
    return jit_compile(out, "k", text, &(struct jit_options){.arch = "sm_90a", .cache = cache}, err);
}

static struct jit_cubin compiled(const char *text)
{
    struct jit_cubin c;
    coda_status status = compile(&c, text);
    ck_assert_msg(status == CODA_OK, "%s", err);
    return c;
}

static void expect_same(const struct jit_cubin *a, const struct jit_cubin *b)
{
    ck_assert_uint_eq(a->size, b->size);
    ck_assert_int_eq(memcmp(a->image, b->image, a->size), 0);
    ck_assert_int_eq(a->registers, b->registers);
    ck_assert_int_eq(a->spill_bytes, b->spill_bytes);
    ck_assert_str_eq(a->warning, b->warning);
}

/* Compiles, finds it in memory, and finds it on disk: the same in every way. */
static struct jit_cubin compiled_twice(const char *text)
{
    struct jit_cubin cold = compiled(text), again = compiled(text);
    cache_forget(cache);
    struct jit_cubin warm = compiled(text);
    ck_assert(!cold.cached && again.cached && warm.cached);
    ck_assert(cold.compile_ms > 0 && again.compile_ms == 0 && warm.compile_ms == 0);
    ck_assert_ptr_eq(cold.value, again.value);
    ck_assert_ptr_ne(cold.value, warm.value);
    expect_same(&cold, &again);
    expect_same(&cold, &warm);
    jit_cubin_free(&cold);
    jit_cubin_free(&again);
    return warm;
}

/* ---- Compile ---- */

START_TEST(compiles_a_primitive_once)
{
    struct jit_cubin c = compiled_twice(with_silu);
    const Elf64_Ehdr *elf = c.image;
    ck_assert_uint_gt(c.size, sizeof *elf);
    ck_assert_int_eq(memcmp(elf->e_ident, ELFMAG, SELFMAG), 0);
    ck_assert_int_eq(elf->e_machine, 190); /* EM_CUDA */
    ck_assert(c.registers > 0 && c.registers <= 255);
    ck_assert_int_eq(c.spill_bytes, 0);
    ck_assert_str_eq(c.warning, "");
    jit_cubin_free(&c);
    jit_cubin_free(&c);
}
END_TEST

/* 64 registers a thread for 192 live values: ptxas must spill, and say so. */
START_TEST(reports_spills)
{
    static const char *const text = "extern \"C\" __global__ void __launch_bounds__(1024) k(float *x) {\n"
                                    "    float v[192];\n"
                                    "    #pragma unroll\n"
                                    "    for (int i = 0; i < 192; i++) v[i] = x[i * 1024 + threadIdx.x];\n"
                                    "    __syncthreads();\n"
                                    "    #pragma unroll\n"
                                    "    for (int i = 0; i < 192; i++) x[(191 - i) * 1024] = v[i];\n"
                                    "}\n";
    struct jit_cubin c = compiled_twice(text);
    ck_assert_int_eq(c.registers, 64);
    ck_assert_int_gt(c.spill_bytes, 0);
    jit_cubin_free(&c);
}
END_TEST

/* setmaxnreg needs to know the block's size; without it ptxas ignores the instruction: C7508. */
START_TEST(reports_a_performance_warning)
{
    static const char *const text = KERNEL("    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 240;\");");
    struct jit_cubin c = compiled_twice(text);
    ck_assert_msg(strstr(c.warning, "(C75"), "warning: %s", c.warning);
    ck_assert_msg(c.warning[0] != ' ' && !strchr(c.warning, '\n'), "warning: %s", c.warning);
    jit_cubin_free(&c);
}
END_TEST

START_TEST(leaves_the_stack_limit_alone)
{
    struct rlimit before, after;
    getrlimit(RLIMIT_STACK, &before);
    struct jit_cubin c = compiled(simple);
    getrlimit(RLIMIT_STACK, &after);
    ck_assert_uint_eq(before.rlim_cur, after.rlim_cur);
    jit_cubin_free(&c);
}
END_TEST

static void *compile_in_thread(void *text)
{
    struct jit_cubin *c = malloc(sizeof *c);
    char line[JIT_ERROR_SIZE];
    struct jit_options o = {.arch = "sm_90a", .cache = cache};
    if (!c || jit_compile(c, "k", text, &o, line)) return free(c), NULL;
    return c;
}

START_TEST(compiles_in_many_threads)
{
    const char *const texts[] = {with_silu, simple, with_silu, simple, with_silu, KERNEL("")};
    enum { THREADS = sizeof texts / sizeof *texts };
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, compile_in_thread, (void *)texts[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        struct jit_cubin *c, again;
        pthread_join(thread[i], (void **)&c);
        ck_assert_ptr_nonnull(c);
        again = compiled(texts[i]);
        expect_same(c, &again);
        jit_cubin_free(c);
        jit_cubin_free(&again);
        free(c);
    }
}
END_TEST

/* ---- Errors ---- */

static void expect_error(const char *text, coda_status status, const char *start)
{
    struct jit_cubin c;
    ck_assert_int_eq(compile(&c, text), status);
    ck_assert_msg(!strncmp(err, start, strlen(start)), "%s", err);
    ck_assert_ptr_null(strchr(err, '\n'));
    ck_assert_ptr_null(c.image);
}

static void *compile_here(void *symbol)
{
    struct jit_cubin c;
    coda_status status = compile(&c, with_silu);
    if (!status) jit_cubin_free(&c);
    return status ? symbol : NULL;
}

/* As much as the threads of some C libraries have; NVRTC alone wants more. */
START_TEST(compiles_on_little_stack)
{
    pthread_t thread;
    pthread_attr_t attr;
    void *failed;
    ck_assert_int_eq(pthread_attr_init(&attr), 0);
    ck_assert_int_eq(pthread_attr_setstacksize(&attr, 112 << 10), 0);
    ck_assert_int_eq(pthread_create(&thread, &attr, compile_here, (void *)simple), 0);
    ck_assert_int_eq(pthread_join(thread, &failed), 0);
    ck_assert_msg(!failed, "%s", err);
    pthread_attr_destroy(&attr);
}
END_TEST

START_TEST(names_file_and_line_of_an_error)
{
    expect_error(KERNEL("    x[0] = y;"), CODA_E_COMPILE, "k.cu(2): error: identifier \"y\" is undefined");
    expect_error(KERNEL("    x[0] ="), CODA_E_COMPILE, "k.cu(3): error: expected an expression");
    expect_error("#include \"map/nothing.cuh\"\n", CODA_E_COMPILE, "k.cu(1): ");
    expect_error(KERNEL("    asm(\"no such instruction;\");"), CODA_E_COMPILE, "ptxas ");
    struct jit_cubin c = compiled(simple); /* and the next one is fine */
    ck_assert(!c.cached);
    jit_cubin_free(&c);
}
END_TEST

/* On disk never; in memory until it is told to forget. */
START_TEST(keeps_an_error_in_memory_alone)
{
    struct stats *s = cache_stats(cache);
    for (int i = 0; i < 3; i++) expect_error(KERNEL("    x[0] = y;"), CODA_E_COMPILE, "k.cu(2)");
    ck_assert_uint_eq(stats_get(s, COUNT_compile_failures), 1);
    ck_assert_uint_eq(stats_get(s, COUNT_replayed_failures), 2);
    ck_assert_int_eq(folder_entries(folder), 0);
    cache_forget(cache);
    expect_error(KERNEL("    x[0] = y;"), CODA_E_COMPILE, "k.cu(2)");
    ck_assert_uint_eq(stats_get(s, COUNT_compile_failures), 2);
    struct jit_cubin c = compiled(simple);
    ck_assert_int_eq(folder_entries(folder), 1);
    jit_cubin_free(&c);
}
END_TEST

START_TEST(rejects_a_bad_arch)
{
    struct jit_cubin c;
    struct jit_options o = {.arch = "sm_1", .no_cache = true};
    ck_assert_int_eq(jit_compile(&c, "k", simple, &o, err), CODA_E_COMPILE);
    ck_assert_msg(strstr(err, "arch"), "%s", err);
    o.arch = "compute_90a";
    ck_assert_int_eq(jit_compile(&c, "k", simple, &o, err), CODA_E_COMPILE);
    ck_assert_msg(strstr(err, "compute_90a"), "%s", err);
}
END_TEST

/* ---- The cache under it ---- */

/* Damages every entry in the middle. */
static int damage_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)where;
    if (type != FTW_F || st->st_size < ENTRY_HEADER) return 0;
    FILE *f = fopen(path, "r+b");
    if (!f) return 1;
    fseek(f, (long)st->st_size / 2, SEEK_SET);
    int c = fgetc(f);
    fseek(f, (long)st->st_size / 2, SEEK_SET);
    fputc(c ^ 1, f);
    return fclose(f);
}

START_TEST(compiles_again_what_was_damaged)
{
    struct jit_cubin first = compiled(simple);
    ck_assert_str_eq(first.missed, "absent");
    ck_assert_int_eq(nftw(folder, damage_one, 8, FTW_PHYS), 0);
    cache_forget(cache);
    struct jit_cubin second = compiled_twice(simple);
    expect_same(&first, &second);
    ck_assert_uint_eq(stats_get(cache_stats(cache), COUNT_compiles), 2);
    ck_assert_uint_eq(stats_get(cache_stats(cache), COUNT_rejected_digest), 1);
    ck_assert_uint_eq(stats_get(cache_stats(cache), COUNT_healed), 1);
    jit_cubin_free(&first);
    jit_cubin_free(&second);
}
END_TEST

START_TEST(works_without_a_directory)
{
    ck_assert_int_eq(chmod(folder, 0777), 0); /* which the cache refuses */
    struct coda_cache *none = open_cache(folder);
    struct jit_options o = {.arch = "sm_90a", .cache = none}, off = {.arch = "sm_90a", .no_cache = true};
    struct jit_cubin a, b, c;
    ck_assert_str_eq(cache_dir(none), "");
    ck_assert_int_eq(jit_compile(&a, "k", simple, &o, err), CODA_OK);
    ck_assert_int_eq(jit_compile(&b, "k", simple, &o, err), CODA_OK);
    ck_assert(!a.cached && b.cached);
    expect_same(&a, &b);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(jit_compile(&c, "k", simple, &off, err), CODA_OK);
        ck_assert(!c.cached);
        expect_same(&a, &c);
        jit_cubin_free(&c);
    }
    ck_assert_int_eq(folder_entries(folder), 0);
    jit_cubin_free(&a);
    jit_cubin_free(&b);
    cache_close(none);
}
END_TEST

/* A hit is compiled again; what is on disk differs from it only if somebody has tampered with it. */
START_TEST(verifies_what_it_finds)
{
    struct cache_options o = {.dir = folder, .flags = CACHE_VERIFY};
    struct jit_cubin first = compiled(simple), second;
    struct coda_cache *audit = cache_open(&o);
    ck_assert_int_eq(
        jit_compile(&second, "k", simple, &(struct jit_options){.arch = "sm_90a", .cache = audit}, err),
        CODA_OK);
    expect_same(&first, &second);
    ck_assert_uint_eq(stats_get(cache_stats(audit), COUNT_verified), 1);
    ck_assert_uint_eq(stats_get(cache_stats(audit), COUNT_verify_differed), 0);
    ck_assert_uint_eq(stats_get(cache_stats(audit), COUNT_compiles), 1);
    jit_cubin_free(&first);
    jit_cubin_free(&second);
    cache_close(audit);
}
END_TEST

/* ---- Isolated ---- */

static struct jit_cubin isolated(const char *helper, const char *text, coda_status status,
                                 struct coda_cache **c)
{
    struct jit_cubin out;
    struct cache_options o = {.dir = folder, .flags = CACHE_ISOLATE, .helper = helper, .compile_ms = 20000};
    if (!*c) *c = cache_open(&o);
    struct jit_options opt = {.arch = "sm_90a", .cache = *c};
    coda_status got = jit_compile(&out, "k", text, &opt, err);
    ck_assert_msg(got == status, "%d: %s", got, err);
    return out;
}

static const char *tool(void)
{
    static char path[256];
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/coda", build ? build : "build");
    return path;
}

START_TEST(compiles_in_a_child)
{
    struct coda_cache *c = NULL;
    struct jit_options off = {.arch = "sm_90a", .no_cache = true};
    struct jit_cubin apart = isolated(tool(), with_silu, CODA_OK, &c), here;
    const struct stats *s = cache_stats(c);
    if (stats_get(s, COUNT_isolate_unavailable))
        ck_abort_msg("%s could not be started: make it, and run from the root", tool());
    ck_assert_int_eq(jit_compile(&here, "k", with_silu, &off, err), CODA_OK);
    expect_same(&apart, &here);
    ck_assert_uint_eq(stats_get(s, COUNT_isolated), 1);
    jit_cubin_free(&apart);
    isolated(tool(), KERNEL("    x[0] = y;"), CODA_E_COMPILE, &c);
    ck_assert_str_eq(err, "k.cu(2): error: identifier \"y\" is undefined");
    ck_assert_uint_eq(stats_get(s, COUNT_isolated), 2);
    jit_cubin_free(&here);
    cache_close(c);
}
END_TEST

static const char *script(const char *body)
{
    const char *path = folder_under("helper");
    char text[256];
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", body);
    file_write(path, text, strlen(text));
    chmod(path, 0700);
    return path;
}

START_TEST(survives_its_compiler)
{
    struct coda_cache *c = NULL;
    isolated(script("kill -SEGV $$"), simple, CODA_E_COMPILE, &c);
    ck_assert_msg(strstr(err, "k: the compiler was ended by signal 11"), "%s", err);
    ck_assert_uint_eq(stats_get(cache_stats(c), COUNT_isolate_crashes), 1);
    isolated(NULL, simple, CODA_E_COMPILE, &c); /* and does not try again */
    ck_assert_uint_eq(stats_get(cache_stats(c), COUNT_isolate_crashes), 1);
    ck_assert_uint_eq(stats_get(cache_stats(c), COUNT_replayed_failures), 1);
    cache_close(c);

    struct cache_options slow = {
        .dir = folder, .flags = CACHE_ISOLATE, .helper = script("exec sleep 100"), .compile_ms = 50};
    c = cache_open(&slow);
    isolated(NULL, simple, CODA_E_COMPILE, &c);
    ck_assert_str_eq(err, "k: the compiler took more than 50 ms");
    ck_assert_uint_eq(stats_get(cache_stats(c), COUNT_isolate_timeouts), 1);
    cache_close(c);
}
END_TEST

/* Says that it begins, as the worker does. */
#define BEGIN                                                                                                \
    "printf '\\011\\000\\000\\000\\000\\000\\000\\000coda job\\000"                                          \
    "\\002\\000\\000\\000\\000\\000\\000\\0001\\000'\n"

/* The program has no use for children's ends, so nobody learns of this one's. */
START_TEST(needs_no_word_of_its_childs_end)
{
    struct coda_cache *c = NULL;
    signal(SIGCHLD, SIG_IGN);
    struct jit_cubin b = isolated(tool(), with_silu, CODA_OK, &c);
    const struct stats *s = cache_stats(c);
    ck_assert(stats_get(s, COUNT_isolated) == 1 && stats_get(s, COUNT_isolate_unavailable) == 0);
    jit_cubin_free(&b);
    cache_close(c);
    c = NULL;
    isolated(script(BEGIN "kill -SEGV $$"), simple, CODA_E_COMPILE, &c);
    ck_assert_str_eq(err, "k: the compiler ended without an answer");
    ck_assert_uint_eq(stats_get(cache_stats(c), COUNT_isolate_crashes), 1);
    cache_close(c);
}
END_TEST

/* Whoever ends it from outside says nothing of the text: the next one tries again. */
START_TEST(a_killed_compiler_says_nothing_of_its_text)
{
    static const char *const ends[] = {"kill -KILL $$", "kill -TERM $$", BEGIN "exit 1"};
    for (int i = 0; i < 3; i++) {
        struct coda_cache *c = NULL;
        isolated(script(ends[i]), simple, CODA_E_COMPILE, &c);
        isolated(NULL, simple, CODA_E_COMPILE, &c);
        ck_assert_uint_eq(stats_get(cache_stats(c), COUNT_isolate_crashes), 2);
        cache_close(c);
    }
}
END_TEST

/* What is typed at the terminal is for the program. */
START_TEST(gets_no_signals_of_the_terminal)
{
    struct coda_cache *c = NULL;
    isolated(script("read a b c d group e </proc/$$/stat; [ $group = $$ ] && kill -SEGV $$; exit 3"), simple,
             CODA_E_COMPILE, &c);
    ck_assert_uint_eq(stats_get(cache_stats(c), COUNT_isolate_crashes), 1);
    cache_close(c);
}
END_TEST

/* No helper, or one that makes nothing of it: compiled here. */
START_TEST(does_without_a_child)
{
    const char *helpers[] = {"/nonexistent/coda", script("exit 3"), "/bin/true"};
    for (int i = 0; i < 3; i++) {
        struct coda_cache *c = NULL;
        folder_remove(), mkdir(folder, 0700);
        if (i == 1) script("exit 3");
        struct jit_cubin b = isolated(helpers[i], simple, CODA_OK, &c);
        ck_assert(!b.cached);
        ck_assert_uint_eq(stats_get(cache_stats(c), COUNT_isolate_unavailable), 1);
        jit_cubin_free(&b);
        cache_close(c);
    }
}
END_TEST

/* By a plain name a helper is looked for in the absolute folders of the PATH: the current directory has one
 * of that name, too. */
START_TEST(takes_no_helper_of_the_current_directory)
{
    static const char *const paths[] = {".",     "",  ":", "./", "sub", "/nonexistent:", ":/nonexistent",
                                        "a:.:b", NULL};
    char ran[300], body[400], back[4096], absolute[600];
    ck_assert_ptr_nonnull(getcwd(back, sizeof back));
    snprintf(ran, sizeof ran, "%s", folder_under("ran"));
    snprintf(body, sizeof body, ": >'%s'; exit 3", ran);
    script(body);
    mkdir(folder_under("sub"), 0700);
    ck_assert_int_eq(symlink("../helper", folder_under("sub/helper")), 0);
    ck_assert_int_eq(chdir(folder), 0);
    snprintf(absolute, sizeof absolute, "relative:%s", folder);
    for (int i = 0; i < 9; i++) {
        struct coda_cache *c = cache_open(
            &(struct cache_options){.flags = CACHE_ISOLATE, .helper = "helper", .dir = "/dev/null/none"});
        setenv("PATH", paths[i] ? paths[i] : absolute, 1);
        struct jit_cubin b = isolated("helper", simple, CODA_OK, &c);
        ck_assert_uint_eq(stats_get(cache_stats(c), COUNT_isolate_unavailable), 1);
        ck_assert_msg(access(ran, F_OK) == (paths[i] ? -1 : 0), "PATH=%s", paths[i] ? paths[i] : absolute);
        jit_cubin_free(&b);
        cache_close(c);
    }
    ck_assert_int_eq(chdir(back), 0);
}
END_TEST

/* ---- Keys ---- */

static char *what_of(struct key_parts k, const char *append)
{
    if (append) setenv("NVRTC_APPEND_FLAGS", append, 1);
    else unsetenv("NVRTC_APPEND_FLAGS");
    char *what = key_print_what(&k);
    ck_assert_ptr_nonnull(what);
    return what;
}

/* Every field of key_parts stands here: one that is added makes its size differ. */
START_TEST(keys_differ_in_every_part)
{
    static const char *const some[] = {"-a", NULL}, *const other[] = {"-b", NULL}, *const none[] = {NULL};
    const struct key_parts base = {"sm_90a", some, "digest", "k", "text"};
    enum { KEYS = 7 };
    struct key_parts k[KEYS];
    char *what[KEYS + 1];
    _Static_assert(sizeof base == 5 * sizeof(void *), "test every part");
    for (int i = 0; i < KEYS; i++) k[i] = base;
    k[1].arch = "sm_90";
    k[2].options = other;
    k[3].options = none;
    k[4].primitives = "other";
    k[5].symbol = "l";
    k[6].text = "text ";
    for (int i = 0; i < KEYS; i++) what[i] = what_of(k[i], NULL);
    what[KEYS] = what_of(base, "-G");
    char *same = what_of(base, NULL);
    ck_assert_str_eq(same, what[0]);
    for (int i = 0; i <= KEYS; i++)
        for (int j = 0; j < i; j++) ck_assert_str_ne(what[i], what[j]);
    for (int i = 0; i <= KEYS; i++) free(what[i]);
    free(same);
}
END_TEST

START_TEST(keys_name_their_maker)
{
    char *by[] = {key_print_by(13, 0, "id"), key_print_by(12, 0, "id"), key_print_by(13, 1, "id"),
                  key_print_by(13, 0, "di"), key_print_by(13, 0, "")};
    ck_assert_str_eq(by[0], "nvrtc 13.0 id\n");
    ck_assert_str_eq(by[4], "nvrtc 13.0 unknown\n");
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++) ck_assert_str_ne(by[i], by[j]);
    for (int i = 0; i < 5; i++) free(by[i]);
}
END_TEST

/* Where and when a process runs is no part of it. */
START_TEST(keys_know_no_place)
{
    static const char *const options[] = {"-a", NULL};
    struct key_parts k = {"sm_90a", options, "digest", "k", "text"};
    char *here = what_of(k, NULL);
    setenv("TZ", "Asia/Kathmandu", 1);
    setenv("LC_ALL", "de_DE.UTF-8", 1);
    setenv("PATH", "/nowhere", 1);
    ck_assert_int_eq(chdir("/"), 0);
    char *there = what_of(k, NULL);
    ck_assert_str_eq(here, there);
    ck_assert_int_lt((int)strlen(here), 500);
    free(here);
    free(there);
}
END_TEST

/* ---- Primitives from a folder ---- */

/* Puts all primitives there, with `line` added to the end of one of them. */
static void write_primitives(const char *changed, const char *line)
{
    for (int i = 0; i < prim_file_count; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/p/%s", folder, prim_files[i].path);
        for (char *s = path + strlen(folder) + 1; (s = strchr(s, '/')); s++) {
            *s = 0;
            mkdir(path, 0700);
            *s = '/';
        }
        FILE *f = fopen(path, "w");
        ck_assert_ptr_nonnull(f);
        fputs(prim_files[i].text, f);
        if (!strcmp(prim_files[i].path, changed)) fputs(line, f);
        ck_assert_int_eq(fclose(f), 0);
    }
    setenv("CODA_PRIMITIVES", folder_under("p"), 1);
}

/* In a child, for sources are loaded once a process. */
static void digest_built_in(char out[DIGEST_HEX])
{
    int end[2], status;
    ck_assert_int_eq(pipe(end), 0);
    pid_t child = fork();
    if (!child) {
        unsetenv("CODA_PRIMITIVES");
        const struct sources *s = sources_open(err);
        _exit(!s || write(end[1], s->digest, DIGEST_HEX) != DIGEST_HEX);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(read(end[0], out, DIGEST_HEX), DIGEST_HEX);
    close(end[0]);
    close(end[1]);
}

/* Equal contents are equal kernels, wherever they lie: the key holds no path. */
START_TEST(takes_primitives_from_a_folder)
{
    char built_in[DIGEST_HEX];
    digest_built_in(built_in);
    write_primitives("", "");
    const struct sources *s = sources_open(err);
    ck_assert_ptr_nonnull(s);
    for (int i = 0; i < s->count; i++) {
        ck_assert_ptr_ne(s->texts[i], prim_files[i].text);
        ck_assert_str_eq(s->texts[i], prim_files[i].text);
    }
    ck_assert_str_eq(s->digest, built_in);
    struct jit_cubin c = compiled_twice(with_silu);
    jit_cubin_free(&c);
}
END_TEST

START_TEST(names_the_primitive_of_an_error)
{
    write_primitives("map/silu.cuh", "#error edited\n");
    struct jit_cubin c;
    ck_assert_int_eq(compile(&c, with_silu), CODA_E_COMPILE);
    ck_assert_msg(!strncmp(err, "map/silu.cuh(", 13) && strstr(err, "edited"), "%s", err);
}
END_TEST

START_TEST(an_edit_changes_the_digest)
{
    char built_in[DIGEST_HEX];
    digest_built_in(built_in);
    write_primitives("map/silu.cuh", "// edited\n");
    const struct sources *s = sources_open(err);
    ck_assert_ptr_nonnull(s);
    ck_assert_str_ne(s->digest, built_in);
}
END_TEST

/* The closure of a text, as it is once all primitives lie in a folder and one of them is edited. */
static struct closure closure_after(const char *changed, const char *text)
{
    struct closure c;
    write_primitives(changed, "// edited\n");
    const struct sources *s = sources_open(err);
    ck_assert_ptr_nonnull(s);
    ck_assert(closure_of(&c, s, text));
    return c;
}

START_TEST(a_text_is_keyed_by_what_it_can_read)
{
    struct closure before = closure_after("", with_silu), none;
    ck_assert(closure_of(&none, sources_open(err), simple));
    ck_assert_int_eq(none.count, 0);
    ck_assert_int_eq(before.count, 3);
    const char *names[] = {"map/silu.cuh", "math.cuh", "types.cuh"};
    for (int i = 0; i < 3; i++) ck_assert_str_eq(before.names[i], names[i]);
    sources_drop();
    struct closure other = closure_after("map/gelu_erf.cuh", with_silu);
    ck_assert_str_eq(other.digest, before.digest);
    sources_drop();
    struct closure edited = closure_after("math.cuh", with_silu); /* which silu.cuh includes */
    ck_assert_int_eq(edited.count, 3);
    ck_assert_str_ne(edited.digest, before.digest);
    struct closure *all[] = {&before, &none, &other, &edited};
    for (int i = 0; i < 4; i++) closure_free(all[i]);
}
END_TEST

/* An edit of a primitive makes the kernels that read it again, and no others. */
START_TEST(an_edit_leaves_other_kernels)
{
    struct jit_cubin c;
    jit_cubin_free((c = compiled_twice(with_silu), &c));
    jit_cubin_free((c = compiled_twice(simple), &c));
    sources_drop();
    write_primitives("math.cuh", "// edited\n");
    ck_assert_int_eq(compile(&c, simple), CODA_OK);
    ck_assert(c.cached);
    jit_cubin_free(&c);
    ck_assert_int_eq(compile(&c, with_silu), CODA_OK);
    ck_assert(!c.cached);
    jit_cubin_free(&c);
}
END_TEST

TESTS(jit, AROUND(set_up, tear_down), ONE(compiles_a_primitive_once), ONE(compiles_in_many_threads),
      ONE(compiles_on_little_stack), ONE(compiles_in_a_child), ONE(survives_its_compiler), CASE("alone"),
      TAG("alone"), AROUND(set_up, tear_down), ONE(reports_spills), ONE(reports_a_performance_warning),
      ONE(leaves_the_stack_limit_alone), ONE(names_file_and_line_of_an_error),
      ONE(keeps_an_error_in_memory_alone), ONE(rejects_a_bad_arch), ONE(compiles_again_what_was_damaged),
      ONE(works_without_a_directory), ONE(verifies_what_it_finds), ONE(needs_no_word_of_its_childs_end),
      ONE(a_killed_compiler_says_nothing_of_its_text), ONE(gets_no_signals_of_the_terminal),
      ONE(does_without_a_child), ONE(takes_no_helper_of_the_current_directory),
      ONE(keys_differ_in_every_part), ONE(keys_name_their_maker), ONE(keys_know_no_place),
      ONE(takes_primitives_from_a_folder), ONE(names_the_primitive_of_an_error),
      ONE(an_edit_changes_the_digest), ONE(a_text_is_keyed_by_what_it_can_read),
      ONE(an_edit_leaves_other_kernels));
