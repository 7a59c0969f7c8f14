/* test_ship.c -- what goes into a bundle is what was asked for, and only well-formed requests are served. */
#include "ship.h"
#include "util_folder.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char err[CACHE_ERROR];
static struct coda_cache *cache;

static void set_up(void)
{
    folder_make();
    cache = cache_open(&(struct cache_options){.dir = folder_under("cache"), .overlays = ""});
    ck_assert_str_eq(cache_problem(cache), "");
}

static void tear_down(void)
{
    cache_close(cache);
    folder_remove();
}

static struct cache_key key_of(const char *what, const char *by) { return cache_key(CACHE_KERNEL, what, by); }

static void put(const char *what, const char *by, const char *data)
{
    struct cache_key k = key_of(what, by);
    cache_put(cache, &k, data, strlen(data));
}

/* Packs what the cache has and opens it. */
static struct bundle *shipped(const char *keys, const char *arch, int *missing, void **bytes)
{
    struct cargo c;
    size_t size;
    ck_assert_msg(cargo_open(&c, keys, arch, err), "%s", err);
    ck_assert_msg(cargo_gather(&c, cache, err), "%s", err);
    *bytes = cargo_pack(&c, &size, err);
    ck_assert_msg(*bytes, "%s", err);
    if (missing) *missing = cargo_missing(&c);
    cargo_free(&c);
    struct bundle *b = bundle_of(*bytes, size, err);
    ck_assert_msg(b, "%s", err);
    return b;
}

static bool has(const struct bundle *b, const char *what, const char *data)
{
    struct entry e;
    struct cache_key k = key_of(what, NULL);
    return bundle_find(b, &k, &e, NULL) && e.data_size == strlen(data) && !memcmp(e.data, data, e.data_size);
}

/* A line of a record, as record.c writes it. */
static const char *line_of(const char *what)
{
    static char line[4][128];
    static int turn;
    char *s = line[turn++ % 4], hex[DIGEST_HEX];
    struct cache_key k = key_of(what, NULL);
    digest_hex(hex, &k.what_digest);
    snprintf(s, sizeof line[0], "kernel %s sm_90a name\n", hex);
    return s;
}

#define A "one\narch sm_80\n"
#define B "two\narch sm_90a\n"
#define C "three\n"

static void put_three(void)
{
    put(A, "nvrtc 1\n", "a");
    put(B, "nvrtc 1\n", "b");
    put(C, "nvrtc 2\n", "c");
}

START_TEST(takes_everything)
{
    void *bytes;
    put_three();
    struct bundle *b = shipped(NULL, NULL, NULL, &bytes);
    ck_assert_int_eq(bundle_count(b), 3);
    ck_assert(has(b, A, "a") && has(b, B, "b") && has(b, C, "c"));
    const char *m = bundle_manifest(b);
    ck_assert_msg(!strncmp(m, "library " CODA_VERSION_STRING "\n", 8), "%s", m);
    ck_assert_msg(strstr(m, "arch sm_80\n") && strstr(m, "arch sm_90a\n"), "%s", m);
    const char *first = strstr(m, "nvrtc 1\n");
    ck_assert_msg(first && strstr(m, "nvrtc 2\n") && !strstr(first + 1, "nvrtc 1\n"), "%s", m);
    bundle_close(b);
    free(bytes);
}
END_TEST

/* What says nothing of an architecture is for all. */
START_TEST(takes_one_architecture)
{
    void *bytes;
    put_three();
    struct bundle *b = shipped(NULL, "sm_90a", NULL, &bytes);
    ck_assert(!has(b, A, "a") && has(b, B, "b") && has(b, C, "c"));
    bundle_close(b);
    free(bytes);
    b = shipped(NULL, "sm_100a,sm_90a,sm_80", NULL, &bytes);
    ck_assert(has(b, A, "a") && has(b, B, "b") && has(b, C, "c"));
    bundle_close(b);
    free(bytes);
    b = shipped(NULL, "sm_9,,sm_90ab", NULL, &bytes);
    ck_assert(!has(b, A, "a") && !has(b, B, "b") && has(b, C, "c"));
    bundle_close(b);
    free(bytes);
}
END_TEST

START_TEST(takes_what_a_record_names)
{
    void *bytes;
    char keys[1024];
    int missing;
    put_three();
    snprintf(keys, sizeof keys, "# a comment\n%s%s\nkernel 12\n%s%s", line_of(B), line_of("gone\n"),
             line_of(A), line_of(B));
    struct bundle *b = shipped(keys, NULL, &missing, &bytes);
    ck_assert(has(b, A, "a") && has(b, B, "b") && !has(b, C, "c"));
    ck_assert_int_eq(missing, 1);
    bundle_close(b);
    free(bytes);
    b = shipped("", NULL, &missing, &bytes);
    ck_assert_int_eq(bundle_count(b), 0);
    ck_assert_int_eq(missing, 0);
    bundle_close(b);
    free(bytes);
}
END_TEST

/* A record may be anything. */
START_TEST(survives_any_record)
{
    unsigned state = 1;
    put_three();
    for (int turn = 0; turn < 300; turn++) {
        char keys[400];
        void *bytes;
        size_t n = (size_t)rand_r(&state) % sizeof keys;
        snprintf(keys, sizeof keys, "%s%s", line_of(A), line_of(B));
        for (int i = rand_r(&state) % 5; i > 0; i--)
            keys[rand_r(&state) % 160] = "\n 0fg\r\xff"[rand_r(&state) % 7];
        keys[n < 160 ? n : 160] = 0;
        struct bundle *b = shipped(keys, NULL, NULL, &bytes);
        ck_assert_int_le(bundle_count(b), 2);
        ck_assert(!has(b, C, "c"));
        bundle_close(b);
        free(bytes);
    }
}
END_TEST

static int make_old(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)where;
    struct timespec t[2] = {{time(NULL) - 100000, 0}, {time(NULL) - 100000, 0}};
    return type == FTW_F ? utimensat(AT_FDCWD, path, t, 0) : 0;
}

START_TEST(takes_the_last_used_of_several_compilers)
{
    void *bytes;
    put(A, "nvrtc 2\n", "old");
    ck_assert_int_eq(nftw(folder_under("cache"), make_old, 8, FTW_PHYS), 0);
    put(A, "nvrtc 1\n", "new");
    struct bundle *b = shipped(NULL, NULL, NULL, &bytes);
    ck_assert_int_eq(bundle_count(b), 1);
    ck_assert(has(b, A, "new"));
    ck_assert_ptr_null(strstr(bundle_manifest(b), "nvrtc 2"));
    bundle_close(b);
    free(bytes);
}
END_TEST

START_TEST(says_when_there_is_no_directory)
{
    struct cargo c;
    struct coda_cache *none = cache_open(&(struct cache_options){.dir = "/dev/null/none", .overlays = ""});
    ck_assert(cargo_open(&c, NULL, NULL, err));
    ck_assert(!cargo_gather(&c, none, err));
    ck_assert_msg(strstr(err, "/dev/null/none"), "%s", err);
    cargo_free(&c);
    cache_close(none);
}
END_TEST

/* ---- coda.h's calls ---- */

static void expect_invalid(coda_status status, const char *why)
{
    ck_assert_int_eq(status, CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), why), "%s", coda_error());
}

static int ignore(void *context, const coda_cache_entry *e)
{
    (void)e;
    ++*(int *)context;
    return 1;
}

START_TEST(refuses_bad_arguments)
{
    coda_export_options opt = CODA_EXPORT_OPTIONS_INIT;
    const coda_plan *none[1] = {NULL};
    expect_invalid(coda_cache_export(cache, NULL, NULL, NULL), "no path");
    expect_invalid(coda_cache_export(cache, "", NULL, NULL), "no path");
    opt.plan_count = 1;
    expect_invalid(coda_cache_export(cache, folder_under("b"), &opt, NULL), "1 plans");
    opt.plans = none;
    expect_invalid(coda_cache_export(cache, folder_under("b"), &opt, NULL), "plan 0 is NULL");
    opt = (coda_export_options)CODA_EXPORT_OPTIONS_INIT;
    opt.array = "1st";
    expect_invalid(coda_cache_export(cache, folder_under("b"), &opt, NULL), "1st");
    expect_invalid(coda_cache_import(cache, NULL, NULL), "path");
    expect_invalid(coda_bundle_list(NULL, ignore, NULL), "path");
    expect_invalid(coda_bundle_list(folder_under("b"), NULL, NULL), "visit");
    expect_invalid((coda_status)coda_bundle_print(NULL, NULL, 0), "path");
    expect_invalid(coda_cache_add_bundle(cache, NULL, 0), "NULL");
    expect_invalid(coda_cache_add_bundle(cache, "none", 4), "no bundle");
    ck_assert_int_eq(access(folder_under("b"), F_OK), -1);
}
END_TEST

START_TEST(refuses_a_plan_without_kernels)
{
    coda_export_options opt = CODA_EXPORT_OPTIONS_INIT;
    coda_compile_options how = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = coda_graph_new();
    coda_plan *p;
    coda_output(g, "y", coda_relu(g, coda_input(g, "x", CODA_F32, 2, (int64_t[]){2, 3})));
    how.device = CODA_DEVICE_NONE;
    how.flags = CODA_PLAN_ONLY;
    ck_assert_int_eq(coda_compile(&p, g, &how), CODA_OK);
    opt.plans = (const coda_plan *const *)&p;
    opt.plan_count = 1;
    expect_invalid(coda_cache_export(cache, folder_under("b"), &opt, NULL), "without its kernels");
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

START_TEST(goes_out_and_in)
{
    coda_bundle_report out = CODA_BUNDLE_REPORT_INIT, in = CODA_BUNDLE_REPORT_INIT;
    int count = 0;
    char text[512];
    put_three();
    ck_assert_int_eq(coda_cache_export(cache, folder_under("b"), NULL, &out), CODA_OK);
    ck_assert_int_eq(out.entries, 3);
    ck_assert_int_eq(coda_bundle_list(folder_under("b"), ignore, &count), CODA_OK);
    ck_assert_int_eq(count, 3);
    ck_assert_int_eq(coda_bundle_print(folder_under("b"), text, sizeof text), (int64_t)strlen(text));
    struct cache_options elsewhere = {.dir = folder_under("other"), .overlays = ""};
    struct coda_cache *other = cache_open(&elsewhere);
    for (int turn = 0; turn < 2; turn++) { /* what is there already counts as taken */
        ck_assert_int_eq(coda_cache_import(other, folder_under("b"), &in), CODA_OK);
        ck_assert_int_eq(in.entries, 3);
        ck_assert_int_eq(in.taken, 3);
    }
    struct cache_key k = key_of(A, NULL);
    const struct cache_value *v = cache_find(other, &k);
    ck_assert(v && v->size == 1 && !memcmp(v->data, "a", 1));
    cache_value_free(v);
    cache_close(other);
    other = cache_open(&(struct cache_options){.dir = "/dev/null/none", .overlays = ""});
    ck_assert_int_eq(coda_cache_import(other, folder_under("b"), &in), CODA_E_IO);
    ck_assert_msg(strstr(coda_error(), "none of 3"), "%s", coda_error());
    cache_close(other);
}
END_TEST

TESTS(ship, AROUND(set_up, tear_down), ONE(takes_everything), ONE(takes_one_architecture),
      ONE(takes_what_a_record_names), ONE(survives_any_record), ONE(takes_the_last_used_of_several_compilers),
      ONE(says_when_there_is_no_directory), ONE(refuses_bad_arguments), ONE(refuses_a_plan_without_kernels),
      ONE(goes_out_and_in));
