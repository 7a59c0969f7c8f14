/*
 * test_jit.c -- CUDA text becomes a cubin, the same one from the cache, or one readable line.
 *
 * Needs NVRTC and no GPU. What is read once for each process (the primitives' folder, the libraries)
 * is set before first use: each test is its own process.
 */
#include <check.h>
#include <elf.h>
#include <ftw.h>
#include <pthread.h>
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

static char root[256]; /* a fresh folder for each test */
static char err[JIT_ERROR_SIZE];

static void set_up(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/coda-jit-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static void tear_down(void) { nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

#define KERNEL(body) "extern \"C\" __global__ void k(float *x, int n) {\n" body "\n}\n"

static const char *const with_silu = "#include \"types.cuh\"\n"
                                     "#include \"map/silu.cuh\"\n"
                                     KERNEL("    x[n] = coda::map::silu::apply(x[n]);");
static const char *const simple = KERNEL("    x[threadIdx.x] *= 2;");

static coda_status compile(struct jit_cubin *out, const char *text)
{
    return jit_compile(out, "k", text, &(struct jit_options){.arch = "sm_90a", .cache_dir = root}, err);
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

/* Compiles twice; the second time must come from the cache and be the same in every way. */
static struct jit_cubin compiled_twice(const char *text)
{
    struct jit_cubin cold = compiled(text), warm = compiled(text);
    ck_assert(!cold.cached && warm.cached);
    ck_assert(cold.compile_ms > 0 && warm.compile_ms == 0);
    expect_same(&cold, &warm);
    jit_cubin_free(&cold);
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
    struct jit_options o = {.arch = "sm_90a", .cache_dir = root};
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

static int is_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)where;
    return type == FTW_F && strstr(path, ".kernel");
}

START_TEST(never_caches_an_error)
{
    expect_error(KERNEL("    x[0] = y;"), CODA_E_COMPILE, "k.cu(2)");
    ck_assert_int_eq(nftw(root, is_entry, 8, FTW_PHYS), 0);
    expect_error(KERNEL("    x[0] = y;"), CODA_E_COMPILE, "k.cu(2)");
    struct jit_cubin c = compiled(simple);
    ck_assert_int_eq(nftw(root, is_entry, 8, FTW_PHYS), 1);
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
    if (type != FTW_F || !strstr(path, ".kernel")) return 0;
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
    ck_assert_int_eq(nftw(root, damage_one, 8, FTW_PHYS), 0);
    struct jit_cubin second = compiled_twice(simple);
    expect_same(&first, &second);
    jit_cubin_free(&first);
    jit_cubin_free(&second);
}
END_TEST

START_TEST(works_without_a_cache)
{
    ck_assert_int_eq(chmod(root, 0777), 0); /* which the cache refuses */
    struct jit_cubin a = compiled(simple), b = compiled(simple), c;
    ck_assert(!a.cached && !b.cached);
    expect_same(&a, &b);
    ck_assert_int_eq(chmod(root, 0700), 0);
    struct jit_options o = {.arch = "sm_90a", .cache_dir = root, .no_cache = true};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(jit_compile(&c, "k", simple, &o, err), CODA_OK);
        ck_assert(!c.cached);
        jit_cubin_free(&c);
    }
    char v1[300];
    snprintf(v1, sizeof v1, "%s/v1", root);
    ck_assert_int_ne(access(v1, F_OK), 0);
    jit_cubin_free(&a);
    jit_cubin_free(&b);
}
END_TEST

static char *key_of(struct key_parts k, const char *append)
{
    if (append) setenv("NVRTC_APPEND_FLAGS", append, 1);
    else unsetenv("NVRTC_APPEND_FLAGS");
    char *key = key_print(&k);
    ck_assert_ptr_nonnull(key);
    return key;
}

START_TEST(keys_differ_in_every_part)
{
    static const char *const some[] = {"-a", NULL}, *const other[] = {"-b", NULL}, *const none[] = {NULL};
    const struct key_parts base = {13, 0, "id", "sm_90a", some, "digest", "k", "text"};
    struct key_parts k[10];
    char *key[10];
    for (int i = 0; i < 10; i++) k[i] = base;
    k[1].nvrtc_major = 12;
    k[2].nvrtc_minor = 1;
    k[3].nvrtc_build = "di";
    k[4].arch = "sm_90";
    k[5].options = other;
    k[6].options = none;
    k[7].primitives = "other";
    k[8].symbol = "l";
    k[9].text = "text ";
    for (int i = 0; i < 10; i++) key[i] = key_of(k[i], NULL);
    char *same = key_of(base, NULL), *flags = key_of(base, "-G");
    ck_assert_str_eq(same, key[0]);
    ck_assert_str_ne(flags, key[0]);
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < i; j++) ck_assert_str_ne(key[i], key[j]);
    for (int i = 0; i < 10; i++) free(key[i]);
    free(same);
    free(flags);
}
END_TEST

/* ---- Primitives from a folder ---- */

/* Puts all primitives there, with `line` added to the end of one of them. */
static void write_primitives(const char *changed, const char *line)
{
    for (int i = 0; i < prim_file_count; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/p/%s", root, prim_files[i].path);
        for (char *s = path + strlen(root) + 1; (s = strchr(s, '/')); s++) {
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
    char folder[300];
    snprintf(folder, sizeof folder, "%s/p", root);
    setenv("CODA_PRIMITIVES", folder, 1);
}

/* In a child, for sources are loaded once a process. */
static void digest_built_in(char out[33])
{
    int end[2], status;
    ck_assert_int_eq(pipe(end), 0);
    pid_t child = fork();
    if (!child) {
        unsetenv("CODA_PRIMITIVES");
        const struct sources *s = sources_open(err);
        _exit(!s || write(end[1], s->digest, 33) != 33);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(read(end[0], out, 33), 33);
    close(end[0]);
    close(end[1]);
}

/* Equal contents are equal kernels, wherever they lie: the key holds no path. */
START_TEST(takes_primitives_from_a_folder)
{
    char built_in[33];
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
    char built_in[33];
    digest_built_in(built_in);
    write_primitives("map/silu.cuh", "// edited\n");
    const struct sources *s = sources_open(err);
    ck_assert_ptr_nonnull(s);
    ck_assert_str_ne(s->digest, built_in);
}
END_TEST

Suite *jit_suite(void);
Suite *jit_suite(void)
{
    Suite *s = suite_create("jit");
    TCase *t = tcase_create("jit");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, compiles_a_primitive_once);
    tcase_add_test(t, reports_spills);
    tcase_add_test(t, reports_a_performance_warning);
    tcase_add_test(t, leaves_the_stack_limit_alone);
    tcase_add_test(t, compiles_in_many_threads);
    tcase_add_test(t, names_file_and_line_of_an_error);
    tcase_add_test(t, never_caches_an_error);
    tcase_add_test(t, rejects_a_bad_arch);
    tcase_add_test(t, compiles_again_what_was_damaged);
    tcase_add_test(t, works_without_a_cache);
    tcase_add_test(t, keys_differ_in_every_part);
    tcase_add_test(t, takes_primitives_from_a_folder);
    tcase_add_test(t, names_the_primitive_of_an_error);
    tcase_add_test(t, an_edit_changes_the_digest);
    suite_add_tcase(s, t);
    return s;
}
