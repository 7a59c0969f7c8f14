/* test_bundle.c -- a bundle serves what was put into it, and nothing else whatever its bytes are. */
#include "cache.h"
#include "util_folder.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char why[CACHE_ERROR];

/* ---- Bundles of made-up entries ---- */

enum { ENTRIES = 5 };
static const char *const whats[ENTRIES] = {"what a\n", "what b\nmore\n", "w\n", "what d\n", "what e\n"};
static const char *const datas[ENTRIES] = {"data a", "", "a longer payload than the others", "d", "data e"};

static struct bundle_block make_entry(enum cache_kind kind, const char *what, const char *by,
                                      const char *data)
{
    char key[256];
    struct bundle_block b = {0};
    snprintf(key, sizeof key, "%s%s", what, by);
    struct entry e = {.kind = kind,
                      .key = key,
                      .key_size = strlen(key),
                      .what_size = strlen(what),
                      .note = "note",
                      .note_size = 4,
                      .data = data,
                      .data_size = strlen(data)};
    b.data = entry_pack(&e, &b.size);
    ck_assert_ptr_nonnull(b.data);
    return b;
}

static void free_entries(struct bundle_block *b, int n)
{
    for (int i = 0; i < n; i++) free((void *)b[i].data);
}

static void *packed(size_t *size)
{
    struct bundle_block b[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) b[i] = make_entry(CACHE_KERNEL, whats[i], "by me\n", datas[i]);
    void *p = bundle_pack(b, ENTRIES, "made for a test\n", size, why);
    ck_assert_msg(p, "%s", why);
    free_entries(b, ENTRIES);
    return p;
}

static struct bundle *opened(const void *data, size_t size)
{
    struct bundle *b = bundle_of(data, size, why);
    ck_assert_msg(b, "%s", why);
    return b;
}

static bool finds(const struct bundle *b, enum cache_kind kind, const char *what, const char *want)
{
    struct entry e;
    struct cache_key k = cache_key(kind, what, "by somebody else\n");
    if (!bundle_find(b, &k, &e, NULL)) return false;
    ck_assert_uint_eq(e.data_size, strlen(want));
    ck_assert_int_eq(memcmp(e.data, want, e.data_size), 0);
    ck_assert_int_eq(memcmp(e.note, "note", 4), 0);
    return true;
}

START_TEST(finds_what_was_packed)
{
    size_t size;
    void *p = packed(&size);
    struct bundle *b = opened(p, size);
    ck_assert_int_eq(bundle_count(b), ENTRIES);
    ck_assert_str_eq(bundle_manifest(b), "made for a test\n");
    for (int i = 0; i < ENTRIES; i++) ck_assert(finds(b, CACHE_KERNEL, whats[i], datas[i]));
    ck_assert(!finds(b, CACHE_KERNEL, "what c\n", ""));
    ck_assert(!finds(b, CACHE_TUNING, whats[0], ""));
    bundle_close(b);
    free(p);
}
END_TEST

START_TEST(may_be_empty)
{
    size_t size;
    void *p = bundle_pack(NULL, 0, "", &size, why);
    ck_assert_ptr_nonnull(p);
    struct bundle *b = opened(p, size);
    ck_assert_int_eq(bundle_count(b), 0);
    ck_assert_str_eq(bundle_manifest(b), "");
    ck_assert(!finds(b, CACHE_KERNEL, whats[0], ""));
    bundle_close(b);
    bundle_close(NULL);
    free(p);
}
END_TEST

START_TEST(order_does_not_matter)
{
    struct bundle_block b[ENTRIES], reversed[ENTRIES];
    size_t size, other;
    for (int i = 0; i < ENTRIES; i++) {
        b[i] = make_entry(CACHE_KERNEL, whats[i], "by me\n", datas[i]);
        reversed[ENTRIES - 1 - i] = b[i];
    }
    void *p = bundle_pack(b, ENTRIES, "m", &size, why), *q = bundle_pack(reversed, ENTRIES, "m", &other, why);
    ck_assert_uint_eq(size, other);
    ck_assert_int_eq(memcmp(p, q, size), 0);
    free_entries(b, ENTRIES);
    free(p);
    free(q);
}
END_TEST

/* Two compilers' answers to one question: the first one given goes in. */
START_TEST(keeps_the_first_of_a_name)
{
    struct bundle_block b[] = {make_entry(CACHE_KERNEL, "w\n", "by the new\n", "new"),
                               make_entry(CACHE_KERNEL, "v\n", "by the old\n", "v"),
                               make_entry(CACHE_KERNEL, "w\n", "by the old\n", "old")};
    size_t size;
    void *p = bundle_pack(b, 3, "", &size, why);
    struct bundle *bundle = opened(p, size);
    ck_assert_int_eq(bundle_count(bundle), 2);
    ck_assert(finds(bundle, CACHE_KERNEL, "w\n", "new"));
    ck_assert(finds(bundle, CACHE_KERNEL, "v\n", "v"));
    bundle_close(bundle);
    free_entries(b, 3);
    free(p);
}
END_TEST

START_TEST(packs_intact_entries_alone)
{
    struct bundle_block b = make_entry(CACHE_KERNEL, "w\n", "by me\n", "data");
    size_t size;
    ((char *)b.data)[b.size - 1] ^= 1;
    ck_assert_ptr_null(bundle_pack(&b, 1, "", &size, why));
    ck_assert_msg(strstr(why, "entry 0") && strstr(why, entry_fault_name(ENTRY_DIGEST)), "%s", why);
    free_entries(&b, 1);
}
END_TEST

/* ---- Damage ---- */

static void expect_refused(const void *data, size_t size)
{
    why[0] = 0;
    ck_assert_ptr_null(bundle_of(data, size, why));
    ck_assert(why[0] && !strchr(why, '\n'));
}

START_TEST(rejects_every_flipped_bit)
{
    size_t size;
    unsigned char *p = packed(&size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        p[bit / 8] ^= (unsigned char)(1 << bit % 8);
        expect_refused(p, size);
        p[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    bundle_close(opened(p, size));
    free(p);
}
END_TEST

/* In memory of exactly that size, so that a sanitizer sees a read too far. */
START_TEST(rejects_every_length)
{
    size_t size;
    unsigned char *p = packed(&size);
    for (size_t n = 0; n <= size + 64; n++) {
        unsigned char *cut = calloc(1, n + !n);
        memcpy(cut, p, n < size ? n : size);
        if (n != size) expect_refused(cut, n);
        else bundle_close(opened(cut, n));
        free(cut);
    }
    expect_refused(NULL, size);
    free(p);
}
END_TEST

enum { AT_COUNT = 40, AT_TEXT = 48, AT_TOTAL = 56, HEADER = 64, ROW = 48, ROW_OFFSET = 32, ROW_SIZE = 40 };

static void put_u64(unsigned char *p, uint64_t x)
{
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(x >> 8 * i);
}

static uint64_t get_u64(const unsigned char *p)
{
    uint64_t x = 0;
    for (int i = 0; i < 8; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

/* Makes the digest right again, as somebody would who wants the layout to be believed. */
static void seal(unsigned char *p, size_t size)
{
    struct digest d = digest_of(p + AT_COUNT, size - AT_COUNT);
    for (int i = 0; i < 4; i++) put_u64(p + 8 + 8 * i, d.word[i]);
}

/* An entry that claims the zeros behind it is refused when it is used, all else when the bundle is opened. */
static void expect_useless(unsigned char *p, size_t size)
{
    struct bundle *b = bundle_of(p, size, why);
    int found = 0;
    for (int i = 0; b && i < ENTRIES; i++) found += finds(b, CACHE_KERNEL, whats[i], datas[i]);
    ck_assert_int_lt(found, ENTRIES);
    bundle_close(b);
}

static void expect_number_refused(unsigned char *p, size_t size, size_t at)
{
    uint64_t was = get_u64(p + at);
    /* clang-format off */
    const uint64_t values[] = {0, 1, was - 1, was + 1, was + 16, size, size + 1, UINT64_MAX, UINT64_MAX - 15,
                               UINT64_MAX / ROW, UINT64_MAX / ROW + 1, (uint64_t)1 << 63, (uint64_t)1 << 32};
    /* clang-format on */
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (values[i] == was) continue;
        put_u64(p + at, values[i]);
        seal(p, size);
        if (values[i] == was + 1) expect_useless(p, size);
        else expect_refused(p, size);
    }
    put_u64(p + at, was);
    seal(p, size);
}

START_TEST(rejects_lying_numbers)
{
    size_t size;
    unsigned char *p = packed(&size);
    expect_number_refused(p, size, AT_COUNT);
    expect_number_refused(p, size, AT_TEXT);
    expect_number_refused(p, size, AT_TOTAL);
    for (size_t i = 0; i < ENTRIES; i++) {
        expect_number_refused(p, size, HEADER + i * ROW + ROW_OFFSET);
        expect_number_refused(p, size, HEADER + i * ROW + ROW_SIZE);
    }
    bundle_close(opened(p, size));
    free(p);
}
END_TEST

START_TEST(rejects_an_index_out_of_order)
{
    size_t size;
    unsigned char *p = packed(&size), name[32];
    memcpy(name, p + HEADER, 32);
    memcpy(p + HEADER, p + HEADER + ROW, 32); /* twice the same */
    seal(p, size);
    expect_refused(p, size);
    memcpy(p + HEADER + ROW, name, 32); /* the first two exchanged */
    seal(p, size);
    expect_refused(p, size);
    ck_assert_msg(strstr(why, "out of order"), "%s", why);
    free(p);
}
END_TEST

/* The bundle's digest holds, an entry's does not: the others are served. */
START_TEST(checks_an_entry_when_it_is_used)
{
    size_t size, n;
    unsigned char *p = packed(&size);
    struct bundle *b = opened(p, size);
    for (int i = 0; i < ENTRIES; i++) {
        struct entry e;
        const unsigned char *block = bundle_block(b, i, &n);
        ck_assert_int_eq(entry_check(&e, block, n), ENTRY_INTACT);
        p[block - p + (ptrdiff_t)n - 1] ^= 1;
        int found = 0;
        for (int j = 0; j < ENTRIES; j++) found += finds(b, CACHE_KERNEL, whats[j], datas[j]);
        ck_assert_int_eq(found, ENTRIES - 1);
        p[block - p + (ptrdiff_t)n - 1] ^= 1;
    }
    bundle_close(b);
    free(p);
}
END_TEST

/* An entry under the name of another one's WHAT. */
START_TEST(checks_whose_entry_it_is)
{
    size_t size, n;
    unsigned char *p = packed(&size);
    struct digest d = digest_of("z\n", 2);
    struct bundle *b = opened(p, size);
    struct entry last;
    const void *block = bundle_block(b, ENTRIES - 1, &n);
    ck_assert_int_eq(entry_check(&last, block, n), ENTRY_INTACT);
    bundle_close(b);
    for (int i = 0; i < 4; i++) put_u64(p + HEADER + (ENTRIES - 1) * ROW + 8 * i, UINT64_MAX - (uint64_t)i);
    seal(p, size);
    b = opened(p, size);
    struct cache_key k = cache_key(CACHE_KERNEL, "z\n", NULL);
    for (int i = 0; i < 4; i++) d.word[i] = UINT64_MAX - (uint64_t)i;
    k.what_digest = d;
    ck_assert(!bundle_find(b, &k, &last, NULL));
    bundle_close(b);
    free(p);
}
END_TEST

/* ---- Files ---- */

static const char *written(const char *name)
{
    size_t size;
    void *p = packed(&size);
    ck_assert_msg(file_save(folder_under(name), p, size, why), "%s", why);
    free(p);
    return folder_under(name);
}

START_TEST(comes_from_a_file)
{
    const char *path = written("b");
    ck_assert_int_eq(symlink(path, folder_under("link")), 0);
    struct bundle *b = bundle_open(path, 0, why), *linked = bundle_open(folder_under("link"), 0, why);
    ck_assert(b && linked);
    ck_assert_int_eq(truncate(path, 10), 0); /* it was read, not mapped */
    for (int i = 0; i < ENTRIES; i++) ck_assert(finds(b, CACHE_KERNEL, whats[i], datas[i]));
    bundle_close(b);
    bundle_close(linked);
    ck_assert_ptr_null(bundle_open(path, 0, why));
}
END_TEST

static void expect_unopened(const char *path, const char *reason)
{
    ck_assert_ptr_null(bundle_open(path, 0, why));
    ck_assert_msg(strstr(why, reason) && !strncmp(why, path, strlen(path)), "%s", why);
}

START_TEST(refuses_what_is_no_plain_file)
{
    expect_unopened(folder_under("nothing"), "cannot be opened");
    expect_unopened(folder, "no plain file");
    ck_assert_int_eq(mkfifo(folder_under("fifo"), 0600), 0);
    expect_unopened(folder_under("fifo"), "no plain file");
    expect_unopened("/dev/zero", "no plain file");
    const char *path = written("b");
    ck_assert_int_eq(chmod(path, 0646), 0);
    expect_unopened(path, "writable by others");
}
END_TEST

/* It is code: whoever can write it, or owns it, could run his as ours. */
START_TEST(asks_who_may_write_it)
{
    const char *path = written("b");
    struct bundle *b;
    ck_assert_int_eq(chmod(path, 0664), 0);
    expect_unopened(path, "writable by its group");
    b = bundle_open(path, CACHE_SHARED, why);
    ck_assert_msg(b, "%s", why);
    bundle_close(b);
    if (geteuid()) return;
    ck_assert_int_eq(chmod(path, 0644) | chown(path, 12345, 12345), 0);
    expect_unopened(path, "belongs to another user");
    ck_assert((b = bundle_open(path, CACHE_SHARED, why)));
    bundle_close(b);
}
END_TEST

/* ---- Headers that promise more than there is ---- */

static const uint64_t huge = (uint64_t)1 << 32;

/* A file of holes of 4 GB that begins with a bundle's header and the index of `count` equal entries. */
static void write_sparse(const char *path, uint64_t count, uint64_t entry)
{
    uint64_t front = HEADER + count * ROW, end = front + 1;
    unsigned char *p = calloc(1, front + 1);
    /* clang-format off */
    memcpy(p, "coda\n\x1a" "B" "1", 8);
    /* clang-format on */
    put_u64(p + 40, count), put_u64(p + 48, 1);
    for (uint64_t i = 0; i < count; i++) {
        put_u64(p + HEADER + i * ROW, i + 1);
        put_u64(p + HEADER + i * ROW + 32, (end + 15) / 16 * 16);
        put_u64(p + HEADER + i * ROW + 40, entry);
        end = (end + 15) / 16 * 16 + entry;
    }
    put_u64(p + 56, end);
    file_write(path, p, front + 1);
    ck_assert_int_eq(truncate(path, (off_t)end), 0);
    free(p);
}

/* In a process that has no memory for it; what it then lacks is told otherwise. */
static int open_sparse(void)
{
    memory_limit((size_t)1 << 28);
    struct bundle *b = bundle_open(folder_under("b"), 0, why);
    return b || strstr(why, "memory") || !strncmp(why, folder, strlen(folder)) == 0;
}

START_TEST(judges_the_header_first)
{
    const char *path = folder_under("b");
    file_write(path, "", 0);
    ck_assert_int_eq(truncate(path, (off_t)huge), 0);
    ck_assert_int_eq(exit_of(open_sparse), 0);
    /* clang-format off */
    file_write(path, "coda\n\x1a" "B" "1", 8);
    /* clang-format on */
    ck_assert_int_eq(truncate(path, (off_t)huge), 0);
    ck_assert_int_eq(exit_of(open_sparse), 0);
    static const struct {
        uint64_t count, entry;
    } lies[] = {{1, huge - 256}, {15, (uint64_t)1 << 28}, {1 << 16, 65000}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        write_sparse(path, lies[i].count, lies[i].entry);
        ck_assert_int_eq(exit_of(open_sparse), 0);
    }
    write_sparse(path, 0, 0);
    ck_assert_int_eq(truncate(path, (off_t)huge), 0);
    ck_assert_int_eq(exit_of(open_sparse), 0);
}
END_TEST

/* A file size limit stands for a full disk. */
static int write_over_limit(void)
{
    static char big[1000];
    struct rlimit limit = {100, 100};
    signal(SIGXFSZ, SIG_DFL); /* which would end us */
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 2;
    return file_save(folder_under("b"), big, sizeof big, why) || !strstr(why, "cannot be written");
}

START_TEST(writes_all_or_nothing)
{
    const char *path = written("b");
    ck_assert_int_eq(exit_of(write_over_limit), 0);
    struct bundle *b = bundle_open(path, 0, why);
    ck_assert_msg(b, "%s", why);
    bundle_close(b);
    written("b");
    ck_assert_int_eq(folder_names(folder), 1);
    ck_assert(!file_save(folder_under("no/folder"), "", 0, why));
}
END_TEST

TESTS(bundle, AROUND(folder_make, folder_remove), ONE(finds_what_was_packed), ONE(may_be_empty),
      ONE(order_does_not_matter), ONE(keeps_the_first_of_a_name), ONE(packs_intact_entries_alone),
      ONE(rejects_every_flipped_bit), ONE(rejects_every_length), ONE(rejects_lying_numbers),
      ONE(rejects_an_index_out_of_order), ONE(checks_an_entry_when_it_is_used), ONE(checks_whose_entry_it_is),
      ONE(comes_from_a_file), ONE(refuses_what_is_no_plain_file), ONE(asks_who_may_write_it),
      ONE(judges_the_header_first), ONE(writes_all_or_nothing));
