/* test_entry.c -- an entry is what was packed, or it is rejected; digests and keys under it. */
#include "cache.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdlib.h>
#include <string.h>

static const char what[] = "coda kernel\nsymbol k\n", by[] = "nvrtc 13.0 id\n";

static struct entry sample(void)
{
    static char key[64];
    strcpy(key, what), strcat(key, by);
    return (struct entry){.kind = CACHE_KERNEL,
                          .key = key,
                          .key_size = strlen(key),
                          .what_size = strlen(what),
                          .note = "source",
                          .note_size = 6,
                          .data = "cubin\0bytes",
                          .data_size = 11};
}

static unsigned char *packed(const struct entry *e, size_t *size)
{
    unsigned char *p = entry_pack(e, size);
    ck_assert_ptr_nonnull(p);
    return p;
}

static enum entry_fault check(const void *bytes, size_t size)
{
    struct entry e;
    unsigned char *exact = malloc(size + !size); /* so that a sanitizer sees the ends */
    memcpy(exact, bytes, size);
    enum entry_fault f = entry_check(&e, exact, size);
    free(exact);
    return f;
}

START_TEST(digest_is_two_of_xxh3)
{
    char hex[DIGEST_HEX];
    struct digest d = digest_of("", 0), same = digest_of(NULL, 0), joined = digest_of_two("ab", 2, "c", 1);
    digest_hex(hex, &d);
    ck_assert_int_eq(strncmp(hex, "99aa06d3014798d86001c324468d497f", 32), 0); /* the reference's, seed 0 */
    ck_assert(digest_equal(&d, &same));
    d = digest_of("abc", 3);
    ck_assert(digest_equal(&d, &joined) && !digest_equal(&d, &same));
    ck_assert(d.word[0] != d.word[2] && d.word[1] != d.word[3]);
}
END_TEST

START_TEST(is_what_was_packed)
{
    struct entry e = sample(), got;
    size_t size;
    unsigned char *p = packed(&e, &size);
    struct cache_key own = cache_key(CACHE_KERNEL, what, by), half = cache_key(CACHE_KERNEL, what, NULL);
    ck_assert_uint_eq(size, ENTRY_HEADER + e.key_size + 6 + 11);
    ck_assert_int_eq(entry_check(&got, p, size), ENTRY_INTACT);
    ck_assert_int_eq(got.kind, CACHE_KERNEL);
    ck_assert_uint_eq(got.key_size, e.key_size);
    ck_assert_uint_eq(got.what_size, strlen(what));
    ck_assert(!memcmp(got.key, e.key, e.key_size) && !memcmp(got.note, "source", 6));
    ck_assert_uint_eq(got.data_size, 11);
    ck_assert_int_eq(memcmp(got.data, e.data, 11), 0);
    ck_assert_int_eq(entry_match(&got, &own), ENTRY_INTACT);
    ck_assert_int_eq(entry_match(&got, &half), ENTRY_INTACT);
    free(p);
}
END_TEST

START_TEST(matches_its_key_alone)
{
    const struct cache_key others[] = {
        cache_key(CACHE_TUNING, what, by),
        cache_key(CACHE_KERNEL, "coda kernel\nsymbol l\n", by),
        cache_key(CACHE_KERNEL, what, "nvrtc 13.1 id\n"),
        cache_key(CACHE_KERNEL, "coda kernel\n", "symbol k\nnvrtc 13.0 id\n"), /* the same when joined */
        cache_key(CACHE_KERNEL, what, ""),
        cache_key(CACHE_KERNEL, "", NULL),
    };
    struct entry e = sample(), got;
    size_t size;
    unsigned char *p = packed(&e, &size);
    ck_assert_int_eq(entry_check(&got, p, size), ENTRY_INTACT);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_int_eq(entry_match(&got, &others[i]), ENTRY_KEY);
    free(p);
}
END_TEST

START_TEST(rejects_each_bit_and_length)
{
    struct entry e = sample();
    size_t size;
    unsigned char *p = packed(&e, &size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        p[bit / 8] ^= (unsigned char)(1 << bit % 8);
        ck_assert_int_ne(check(p, size), ENTRY_INTACT);
        p[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t n = 0; n < size; n++) ck_assert_int_ne(check(p, n), ENTRY_INTACT);
    ck_assert_int_eq(check(p, size), ENTRY_INTACT);
    free(p);
}
END_TEST

static void put_number(unsigned char *p, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) p[i] = (unsigned char)(x >> 8 * i);
}

/* With the digest put right: then sizes alone tell. */
static enum entry_fault forged(unsigned char *p, size_t size, size_t at, uint64_t value, int bytes)
{
    unsigned char old[8];
    memcpy(old, p + at, 8);
    put_number(p + at, value, bytes);
    struct digest d = digest_of(p + 40, size - 40);
    for (int i = 0; i < 4; i++) put_number(p + 8 + 8 * i, d.word[i], 8);
    enum entry_fault f = check(p, size);
    memcpy(p + at, old, 8);
    return f;
}

START_TEST(rejects_sizes_that_overflow)
{
    static const uint64_t sizes[] = {
        UINT64_MAX, UINT64_MAX - 79, (uint64_t)1 << 63, (uint64_t)1 << 32, ENTRY_MAX, ENTRY_MAX + 1, 1000, 0};
    struct entry e = sample();
    size_t size;
    unsigned char *p = packed(&e, &size);
    for (int field = 0; field < 3; field++) /* key, note, data */
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            ck_assert_int_eq(forged(p, size, 56 + 8 * (size_t)field, sizes[i], 8), ENTRY_SIZES);
    ck_assert_int_eq(forged(p, size, 48, e.key_size + 1, 8), ENTRY_SIZES); /* more WHAT than key */
    ck_assert_int_eq(forged(p, size, 48, e.key_size, 8), ENTRY_INTACT);
    ck_assert_int_eq(forged(p, size, 40, ENTRY_FORMAT + 1, 4), ENTRY_VERSION);
    ck_assert_int_eq(forged(p, size, 0, 0, 1), ENTRY_FOREIGN);
    free(p);
}
END_TEST

START_TEST(packs_nothing_too_large)
{
    struct entry e = sample();
    size_t size;
    e.data_size = ENTRY_MAX;
    ck_assert_ptr_null(entry_pack(&e, &size));
    e.data_size = SIZE_MAX;
    ck_assert_ptr_null(entry_pack(&e, &size));
}
END_TEST

/* The format as it was given out: an entry of it stays readable until the number changes. */
START_TEST(format_is_the_same)
{
    struct entry e = sample();
    size_t size;
    char hex[DIGEST_HEX];
    unsigned char *p = packed(&e, &size);
    struct digest d = digest_of(p, size);
    digest_hex(hex, &d);
    ck_assert_int_eq(ENTRY_FORMAT, 2);
    ck_assert_str_eq(hex, "d281d013c902ba7af784ec6bca14ff64cd5bc75e243d61804e59be4cd923a8ed");
    free(p);
}
END_TEST

START_TEST(has_names_for_all)
{
    for (int f = ENTRY_INTACT + 1; f < ENTRY_FAULTS; f++)
        ck_assert_int_gt((int)strlen(entry_fault_name((enum entry_fault)f)), 0);
    ck_assert_str_eq(cache_kind_name(CACHE_KERNEL), "kernel");
    ck_assert_str_eq(cache_kind_name((enum cache_kind)77), "unknown");
}
END_TEST

TESTS(entry, ONE(digest_is_two_of_xxh3), ONE(is_what_was_packed), ONE(matches_its_key_alone),
      ONE(rejects_each_bit_and_length), ONE(rejects_sizes_that_overflow), ONE(packs_nothing_too_large),
      ONE(format_is_the_same), ONE(has_names_for_all));
