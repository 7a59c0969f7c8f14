/*
 * test_twins.c -- two keys of one digest, made for the purpose: in every place that finds by a digest each
 * gets its own or nothing, the first stays where it is, and the second is not stored. torture/collide does
 * it with thousands of keys and a digest of some bits.
 */
#include "compile.h"
#include "inside.h"
#include "ship.h"
#include "util_folder.h"
#include "util_twins.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Twins: of WHAT, or of the text that WHAT has the digest of ---- */

static char *text[2][2]; /* [in the text?][which] */
static char other[] = "another\n";

static void set_up(void)
{
    folder_make();
    for (int which = 0; which < 2; which++) {
        text[0][which] = twin_text("coda kernel\nsymbol k\n", which, "\n");
        text[1][which] = twin_text("// a kernel\n", which, "\n");
    }
}

static void tear_down(void)
{
    for (int i = 0; i < 4; i++) free(text[i / 2][i % 2]);
    folder_remove();
}

/* Each test runs for both kinds (_i). */
static struct cache_key twin(int kind, int which, const char *by)
{
    char hex[DIGEST_HEX];
    static _Thread_local char what[2][256]; /* as key.c makes it */
    struct digest d = digest_of(text[1][which], strlen(text[1][which]));
    digest_hex(hex, &d);
    snprintf(what[which], sizeof what[which], "coda kernel\ntext %zu %s\n", strlen(text[1][which]), hex);
    struct cache_key k = cache_key(CACHE_KERNEL, kind ? what[which] : text[0][which], by);
    k.text = kind ? text[1][which] : other;
    return k;
}

static const char by[] = "nvrtc 13.0 x\n";
static struct cache_key key(int kind, int which) { return twin(kind, which, by); }

START_TEST(twins_have_one_digest)
{
    struct cache_key a = key(_i, 0), b = key(_i, 1);
    ck_assert(digest_equal(&a.digest, &b.digest) && digest_equal(&a.what_digest, &b.what_digest));
    ck_assert(strcmp(text[_i][0], text[_i][1]) && strlen(text[_i][0]) == strlen(text[_i][1]));
    char *other_place = twin_text("x", 0, "");
    struct digest d = digest_of(other_place, strlen(other_place)),
                  e = digest_of(text[1][0], strlen(text[1][0]));
    ck_assert(!digest_equal(&d, &e));
    free(other_place);
}
END_TEST

/* ---- A maker that knows whose value it makes ---- */

struct maker {
    int which, status, nap_ms;
    atomic_int made;
};

static int make(void *ctx, void **data, size_t *size, char *err, bool *passing)
{
    struct maker *m = ctx;
    atomic_fetch_add(&m->made, 1);
    usleep((useconds_t)m->nap_ms * 1000);
    *passing = false;
    if (m->status) return snprintf(err, CACHE_ERROR, "no %d", m->which), m->status;
    *size = 3000;
    *data = memset(malloc(*size), 'a' + m->which, *size);
    return 0;
}

static bool is_value(const struct cache_value *v, int which)
{
    return v && !v->status && v->size == 3000 && ((char *)v->data)[0] == 'a' + which;
}

static void expect_value(struct coda_cache *c, int kind, int which, struct maker *m)
{
    struct cache_key k = key(kind, which);
    const struct cache_value *v = cache_obtain(c, &k, &(struct cache_maker){make, m});
    ck_assert_msg(is_value(v, which), "twin %d has other bytes", which);
    cache_value_free(v);
}

static uint64_t counted(struct coda_cache *c, enum cache_counter which)
{
    return stats_get(cache_stats(c), which);
}

static struct coda_cache *open_with(const char *dir, const char *overlays)
{
    return cache_open(&(struct cache_options){.dir = dir, .overlays = overlays, .wait_ms = 100000});
}

static const char nowhere[] = "/dev/null/none";

/* ---- Memory ---- */

START_TEST(memory_keeps_both)
{
    struct coda_cache *c = open_with(nowhere, NULL);
    struct maker m[2] = {{.which = 0}, {.which = 1}};
    for (int i = 0; i < 6; i++) expect_value(c, _i, i % 2, &m[i % 2]);
    ck_assert_int_eq(m[0].made, 1);
    ck_assert_int_eq(m[1].made, 1);
    cache_close(c);
}
END_TEST

START_TEST(a_failure_is_told_to_its_own_alone)
{
    struct coda_cache *c = open_with(folder, NULL);
    struct maker m[2] = {{.which = 0, .status = CODA_E_COMPILE}, {.which = 1}};
    struct cache_key k = key(_i, 0);
    for (int i = 0; i < 3; i++) {
        const struct cache_value *v = cache_obtain(c, &k, &(struct cache_maker){make, &m[0]});
        ck_assert(v && v->status == CODA_E_COMPILE && !strcmp(v->error, "no 0"));
        cache_value_free(v);
        expect_value(c, _i, 1, &m[1]);
    }
    ck_assert_int_eq(m[0].made, 1);
    ck_assert_int_eq(m[1].made, 1);
    cache_close(c);
}
END_TEST

enum { THREADS = 8 };
struct asking {
    struct coda_cache *c;
    struct maker *m;
    int kind, which;
    bool right;
};

static void *ask(void *ctx)
{
    struct asking *a = ctx;
    struct cache_key k = key(a->kind, a->which); /* the strings are alike for all */
    const struct cache_value *v = cache_obtain(a->c, &k, &(struct cache_maker){make, a->m});
    a->right = is_value(v, a->which);
    cache_value_free(v);
    return NULL;
}

/* In the making at one time: nobody gets what the other flight brings. */
START_TEST(threads_get_their_own)
{
    struct coda_cache *c = open_with(folder, NULL);
    struct maker m[2] = {{.which = 0, .nap_ms = 50}, {.which = 1, .nap_ms = 50}};
    struct asking a[THREADS];
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++) {
        a[i] = (struct asking){c, &m[i % 2], _i, i % 2, false};
        ck_assert_int_eq(pthread_create(&thread[i], NULL, ask, &a[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        ck_assert(a[i].right);
    }
    ck_assert_int_eq(m[0].made, 1);
    ck_assert_int_eq(m[1].made, 1);
    cache_close(c);
}
END_TEST

/* ---- The directory ---- */

/* Whoever was first stays, however often the two come by in turns. */
START_TEST(a_directory_keeps_the_first)
{
    struct maker m[2] = {{.which = 0}, {.which = 1}};
    for (int i = 0; i < 8; i++) {
        struct coda_cache *c = open_with(folder, NULL);
        for (int which = 0; which < 2; which++) expect_value(c, _i, (which + i) % 2, &m[(which + i) % 2]);
        ck_assert_uint_eq(counted(c, COUNT_collisions), 1);
        ck_assert_uint_eq(counted(c, COUNT_stored), i == 0);
        ck_assert_uint_eq(counted(c, COUNT_disk_hits), i != 0);
        ck_assert_uint_eq(counted(c, COUNT_healed) + counted(c, COUNT_rejected_key) + counted(c, COUNT_waits),
                          0);
        cache_close(c);
        ck_assert_int_eq(folder_entries(folder), 1);
    }
    ck_assert_int_eq(m[0].made, 1);
    ck_assert_int_eq(m[1].made, 8);
}
END_TEST

/* Of processes that start cold together, too; the second does not wait for what is not his. */
START_TEST(processes_get_their_own)
{
    pid_t child[8];
    int status;
    for (int i = 0; i < 8; i++) {
        if ((child[i] = fork())) continue;
        struct coda_cache *c = open_with(folder, NULL);
        struct maker m = {.which = i % 2, .nap_ms = 30};
        struct cache_key k = key(_i, i % 2);
        const struct cache_value *v = cache_obtain(c, &k, &(struct cache_maker){make, &m});
        _exit(!is_value(v, i % 2) || counted(c, COUNT_wait_timeouts));
    }
    for (int i = 0; i < 8; i++) {
        ck_assert_int_eq(waitpid(child[i], &status, 0), child[i]);
        ck_assert_int_eq(status, 0);
    }
    ck_assert_int_eq(folder_entries(folder), 1);
}
END_TEST

/* What a driver refuses of one is neither dropped from nor looked for in the other's entry. */
START_TEST(a_renewal_leaves_the_other)
{
    struct coda_cache *c = open_with(folder, NULL);
    struct maker m[2] = {{.which = 0}, {.which = 1}};
    struct cache_key k = key(_i, 1);
    expect_value(c, _i, 0, &m[0]);
    const struct cache_value *v = cache_obtain(c, &k, &(struct cache_maker){make, &m[1]});
    const struct cache_value *again = cache_renew(c, &k, &(struct cache_maker){make, &m[1]}, v);
    ck_assert(is_value(v, 1) && is_value(again, 1) && v != again);
    ck_assert_int_eq(m[1].made, 2);
    cache_value_free(v), cache_value_free(again);
    cache_forget(c);
    expect_value(c, _i, 0, &m[0]);
    ck_assert_int_eq(m[0].made, 1);
    cache_close(c);
}
END_TEST

/* Nor if the two are of the same bytes. */
START_TEST(a_refusal_is_of_one)
{
    struct coda_cache *c = open_with(folder, NULL);
    struct maker m = {.which = 0};
    struct cache_key k = key(_i, 1);
    expect_value(c, _i, 0, &m);
    const struct cache_value *v = cache_obtain(c, &k, &(struct cache_maker){make, &m});
    cache_value_free(cache_renew(c, &k, &(struct cache_maker){make, &m}, v));
    cache_value_free(v);
    ck_assert_int_eq(folder_entries(folder), 1);
    ck_assert_uint_eq(counted(c, COUNT_stored), 1);
    cache_close(c);
}
END_TEST

/* Texts that may change: a put replaces its own alone. */
START_TEST(plain_texts_are_not_replaced_by_others)
{
    struct coda_cache *c = open_with(folder, NULL);
    struct cache_key a = key(_i, 0), b = key(_i, 1);
    void *data;
    size_t size;
    a.kind = b.kind = CACHE_TUNING;
    cache_put(c, &a, "one", 3);
    cache_put(c, &b, "two", 3);
    cache_put(c, &a, "three", 5);
    ck_assert(!cache_get(c, &b, &data, &size));
    ck_assert(cache_get(c, &a, &data, &size) && size == 5 && !memcmp(data, "three", 5));
    ck_assert_uint_eq(counted(c, COUNT_collisions), 1);
    free(data);
    cache_close(c);
}
END_TEST

/* ---- Below it, and in bundles ---- */

START_TEST(a_directory_below_has_its_own_alone)
{
    struct maker m[2] = {{.which = 0}, {.which = 1}};
    struct coda_cache *c = open_with(folder, NULL);
    expect_value(c, _i, 0, &m[0]);
    cache_close(c);
    c = open_with(nowhere, folder);
    expect_value(c, _i, 1, &m[1]);
    expect_value(c, _i, 0, &m[0]);
    ck_assert(m[0].made == 1 && m[1].made == 1);
    ck_assert_uint_eq(counted(c, COUNT_collisions), 1);
    ck_assert_uint_eq(counted(c, COUNT_overlay_hits), 1);
    cache_close(c);
}
END_TEST

static struct bundle_block block_of(int kind, int which)
{
    struct cache_key k = key(kind, which);
    struct bundle_block b = {0};
    char *joined = NULL, data[3000];
    ck_assert_int_gt(asprintf(&joined, "%s%s", k.what, by), 0);
    memset(data, 'a' + which, sizeof data);
    struct entry e = {.kind = CACHE_KERNEL,
                      .key = joined,
                      .key_size = strlen(joined),
                      .note = k.text,
                      .what_size = strlen(k.what),
                      .note_size = strlen(k.text),
                      .data = data,
                      .data_size = 3000};
    b.data = entry_pack(&e, &b.size);
    free(joined);
    return b;
}

START_TEST(a_bundle_has_one_of_them)
{
    char why[CACHE_ERROR];
    struct bundle_block block[2] = {block_of(_i, 0), block_of(_i, 1)}, turned[2] = {block[1], block[0]};
    size_t size, again;
    void *bytes = bundle_pack(block, 2, "", &size, why), *same = bundle_pack(turned, 2, "", &again, why);
    ck_assert(bytes && same && size == again && !memcmp(bytes, same, size));
    struct coda_cache *c = open_with(nowhere, NULL);
    ck_assert(cache_add_bundle(c, bytes, size, why));
    struct maker m[2] = {{.which = 0}, {.which = 1}};
    for (int which = 0; which < 2; which++) expect_value(c, _i, which, &m[which]);
    ck_assert_int_eq(m[0].made + m[1].made, 1);
    ck_assert_uint_eq(counted(c, COUNT_bundle_hits), 1);
    ck_assert_uint_eq(counted(c, COUNT_collisions), 1);
    cache_close(c);
    free(bytes), free(same);
    free((void *)block[0].data), free((void *)block[1].data);
}
END_TEST

/* What goes out says that one of them does not, and what comes in does not claim what is not there. */
START_TEST(export_and_import_tell_them_apart)
{
    char why[CACHE_ERROR];
    size_t size;
    struct cargo cargo;
    struct entry e;
    struct bundle_block block[2] = {block_of(_i, 0), block_of(_i, 1)};
    ck_assert(cargo_open(&cargo, NULL, NULL, why));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(entry_check(&e, block[i].data, block[i].size), ENTRY_INTACT);
        cargo_take(&cargo, &e, i);
        cargo_take(&cargo, &e, 10);
    }
    void *bytes = cargo_pack(&cargo, &size, why);
    ck_assert(bytes && cargo.count == 1);
    ck_assert_int_ge(cargo_missing(&cargo), 1);
    cargo_free(&cargo);
    free(bytes);

    struct coda_cache *c = open_with(folder, NULL);
    struct cache_key half[2] = {twin(_i, 0, NULL), twin(_i, 1, NULL)};
    ck_assert(cache_import(c, block[0].data, block[0].size));
    ck_assert(cache_import(c, block[0].data, block[0].size));
    ck_assert(!cache_import(c, block[1].data, block[1].size));
    ck_assert_uint_eq(counted(c, COUNT_collisions), 1);
    ck_assert_ptr_null(cache_find(c, &half[1]));
    const struct cache_value *v = cache_find(c, &half[0]);
    ck_assert(is_value(v, 0));
    cache_value_free(v);
    cache_close(c);
    free((void *)block[0].data), free((void *)block[1].data);
}
END_TEST

/* ---- A store of the user's ---- */

static unsigned char kept[8192];
static int64_t kept_size;
static int puts_, drops;

static int64_t store_gives(void *ctx, const char *name, void *buf, size_t size)
{
    (void)ctx, (void)name;
    if (kept_size && (size_t)kept_size <= size) memcpy(buf, kept, (size_t)kept_size);
    return kept_size ? kept_size : -1;
}

static int store_takes(void *ctx, const char *name, const void *data, size_t size)
{
    (void)ctx, (void)name;
    ck_assert_uint_le(size, sizeof kept);
    memcpy(kept, data, size);
    kept_size = (int64_t)size;
    return puts_++, 0;
}

static void store_drops(void *ctx, const char *name)
{
    (void)ctx, (void)name;
    kept_size = 0;
    drops++;
}

START_TEST(a_store_keeps_the_first)
{
    struct cache_store s = {.get = store_gives, .put = store_takes, .drop = store_drops};
    struct maker m[2] = {{.which = 0}, {.which = 1}};
    kept_size = puts_ = drops = 0;
    for (int i = 0; i < 4; i++) {
        struct coda_cache *c = cache_open(&(struct cache_options){.store = &s});
        expect_value(c, _i, i != 0, &m[i != 0]);
        expect_value(c, _i, i == 0, &m[i == 0]);
        ck_assert_uint_eq(counted(c, COUNT_collisions), 1);
        cache_close(c);
    }
    ck_assert(puts_ == 1 && drops == 0 && m[0].made == 1 && m[1].made == 4);
}
END_TEST

/* ---- Kernels, by NVRTC ---- */

/* Both are as long and have one digest; one multiplies where the other adds. */
static char *kernel_text(int which)
{
    static const char before[] =
        "extern \"C\" __global__ void k(float *x) {\n    constexpr char s[] = R\"zz(";
    char after[200];
    snprintf(after, sizeof after, ")zz\";\n    if constexpr (s[%zu] & %d) x[0] += 1; else x[0] *= 3;\n}\n",
             twin_at(before) - strlen(before) + TWIN_DIFFERS, TWIN_BIT);
    return twin_text(before, which, after);
}

START_TEST(kernels_are_of_their_texts)
{
    char err[JIT_ERROR_SIZE] = "", *t[2] = {kernel_text(0), kernel_text(1)};
    struct jit_cubin own[2], c;
    struct digest d = digest_of(t[0], strlen(t[0])), e = digest_of(t[1], strlen(t[1]));
    ck_assert(digest_equal(&d, &e));
    for (int i = 0; i < 2; i++)
        ck_assert_msg(!jit_compile(&own[i], "k", t[i], &(struct jit_options){"sm_90a", NULL, true}, err),
                      "%s", err);
    ck_assert(own[0].size != own[1].size || memcmp(own[0].image, own[1].image, own[0].size));
    for (int life = 0; life < 3; life++) {
        struct jit_options o = {.arch = "sm_90a", .cache = open_with(folder, NULL)};
        for (int i = 0; i < 4; i++) {
            int which = (i + life) % 2;
            ck_assert_msg(!jit_compile(&c, "k", t[which], &o, err), "%s", err);
            ck_assert(c.size == own[which].size && !memcmp(c.image, own[which].image, c.size));
            if (which && i < 2) ck_assert_str_eq(c.missed, "collision");
            jit_cubin_free(&c);
        }
        cache_close(o.cache);
    }
    for (int i = 0; i < 2; i++) jit_cubin_free(&own[i]), free(t[i]);
}
END_TEST

TESTS(twins, AROUND(set_up, tear_down), EACH(twins_have_one_digest, 2), EACH(memory_keeps_both, 2),
      EACH(a_failure_is_told_to_its_own_alone, 2), EACH(threads_get_their_own, 2),
      EACH(a_directory_keeps_the_first, 2), EACH(processes_get_their_own, 2),
      EACH(a_renewal_leaves_the_other, 2), EACH(a_refusal_is_of_one, 2),
      EACH(plain_texts_are_not_replaced_by_others, 2), EACH(a_directory_below_has_its_own_alone, 2),
      EACH(a_bundle_has_one_of_them, 2), EACH(export_and_import_tell_them_apart, 2),
      EACH(a_store_keeps_the_first, 2), CASE("nvrtc"), TAG("nvrtc"), AROUND(folder_make, folder_remove),
      ONE(kernels_are_of_their_texts));
