/* test_trust.c -- nothing is used that others could have written, whatever it is that lies there; and what
 * the environment asks for is meant, or refused with the reason. */
#include "inside.h"
#include "util_folder.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { STRANGER = 12345, SIZE = 5000 };

static struct cache_key key_of(int i)
{
    static char what[4][32];
    char *w = what[i % 4];
    snprintf(w, sizeof what[0], "key %d\n", i);
    return cache_key(CACHE_KERNEL, w, "by\n");
}

static int made;
static int make(void *ctx, void **data, size_t *size, char *err, bool *passing)
{
    (void)ctx, (void)err, (void)passing;
    made++;
    *data = malloc(*size = SIZE);
    memset(*data, 'g', SIZE);
    return 0;
}

/* Always the good bytes, from wherever; the number of times they were made. */
static int obtain(struct coda_cache *c, int i)
{
    static const struct cache_maker maker = {.make = make};
    struct cache_key k = key_of(i);
    int before = made;
    const struct cache_value *v = cache_obtain(c, &k, &maker);
    ck_assert(v && !v->status && v->size == SIZE);
    for (int b = 0; b < SIZE; b++) ck_assert_int_eq(((const char *)v->data)[b], 'g');
    cache_value_free(v);
    return made - before;
}

static uint64_t counted(struct coda_cache *c, enum cache_counter which)
{
    return stats_get(cache_stats(c), which);
}

static struct coda_cache *open_flags(unsigned flags)
{
    return cache_open(&(struct cache_options){.dir = folder, .flags = flags, .wait_ms = 1});
}

/* ---- Junk of every kind in every place ---- */

enum junk {
    EVIL_FILE,
    EMPTY_FILE,
    FOLDER,
    FULL_FOLDER,
    FIFO,
    DANGLING,
    LINK_FILE,
    LINK_FOLDER,
    DEVICE,
    STRANGERS,
    WORLD,
    GROUP,
    JUNKS
};
static const char *const junk_name[JUNKS] = {
    "an evil file", "an empty file",   "a folder",         "a full folder",
    "a FIFO",       "a dangling link", "a link to a file", "a link to a folder",
    "a device",     "a stranger's",    "writable by all",  "writable by the group"};

/* A whole entry of a key with other bytes in it: what somebody would have us load. */
static void write_evil(const char *path, int i)
{
    struct cache_key k = key_of(i);
    char key[64], evil[SIZE];
    memset(evil, 'e', SIZE);
    int n = snprintf(key, sizeof key, "%s%s", k.what, k.by);
    struct entry e = {.kind = k.kind,
                      .key = key,
                      .key_size = (size_t)n,
                      .what_size = strlen(k.what),
                      .note = "",
                      .data = evil,
                      .data_size = SIZE};
    size_t size;
    void *bytes = entry_pack(&e, &size);
    file_write(path, bytes, size);
    free(bytes);
}

static void remove_any(const char *path)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    ck_assert_int_eq(system(command), 0);
}

/* False if this machine cannot. `keep`: what is there stays, with another owner or mode. */
static bool put_junk(const char *path, enum junk kind, int i)
{
    struct stat st;
    char full[700];
    bool keep = kind >= STRANGERS, is_folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    if (!keep) remove_any(path);
    switch (kind) {
    case EVIL_FILE: return write_evil(path, i), chmod(path, 0666) == 0;
    case EMPTY_FILE: return file_write(path, "", 0), true;
    case FOLDER: return !mkdir(path, 0700);
    case FULL_FOLDER:
        return snprintf(full, sizeof full, "%s/full", path), !mkdir(path, 0700) && !mkdir(full, 0700);
    case FIFO: return !mkfifo(path, 0600);
    case DANGLING: return !symlink("/nonexistent/file", path);
    case LINK_FILE: return write_evil(folder_under("evil"), i), !symlink(folder_under("evil"), path);
    case LINK_FOLDER:
        return (mkdir(folder_under("away"), 0777), true) && !symlink(folder_under("away"), path);
    case DEVICE: return !mknod(path, S_IFCHR | 0600, makedev(1, 5)); /* /dev/zero */
    case STRANGERS:
        return !geteuid() && (is_folder || (write_evil(path, i), true)) && !chown(path, STRANGER, STRANGER);
    case WORLD: return (is_folder || (write_evil(path, i), true)) && !chmod(path, 0777);
    default: return (is_folder || (write_evil(path, i), true)) && !chmod(path, 0770);
    }
}

/* What lay there is not taken, and either made room, or is counted. */
static void expect_harmless(const char *what, enum junk kind, bool junk)
{
    struct coda_cache *c = open_flags(0);
    obtain(c, 0), obtain(c, 1), obtain(c, 2); /* the last one was not there: it needs locks */
    uint64_t told = counted(c, COUNT_healed) + counted(c, COUNT_rejected_short) +
                    counted(c, COUNT_rejected_untrusted) + counted(c, COUNT_read_failures) +
                    counted(c, COUNT_store_failed) + counted(c, COUNT_lock_unavailable) +
                    (cache_problem(c)[0] != 0);
    ck_assert_msg(told || !junk, "%s in the place of %s: nothing is said", junk_name[kind], what);
    cache_close(c);
    c = open_flags(0); /* either it has healed, or it is told again */
    int again = obtain(c, 0) + obtain(c, 1) + obtain(c, 2);
    uint64_t faults = counted(c, COUNT_rejected_untrusted) + counted(c, COUNT_rejected_short) +
                      counted(c, COUNT_read_failures) + counted(c, COUNT_store_failed) +
                      (cache_problem(c)[0] != 0);
    ck_assert_msg(!again || faults, "%s in the place of %s: made %d times again", junk_name[kind], what,
                  again);
    cache_close(c);
    ck_assert_int_eq(folder_names(folder_under("away")), 0);
}

START_TEST(junk_in_any_place)
{
    static const char *const places[] = {"v2", "v2/*", "v2/*/*", "v2/.lock", "v2/.size"};
    enum junk kind = (enum junk)_i;
    for (int p = 0; p < 5; p++) {
        char path[600];
        if (!scale_takes(5 * _i + p, true)) continue;
        folder_remove(), folder_make();
        struct coda_cache *c = open_flags(0);
        ck_assert_int_eq(obtain(c, 0) + obtain(c, 1), 2);
        cache_close(c);
        struct cache_key k = key_of(0);
        snprintf(path, sizeof path, "%s", folder_entry("", &k)); /* folder/v2/a/bcdef... */
        if (p == 1) *strrchr(path, '/') = 0;
        else if (p != 2) snprintf(path, sizeof path, "%s", folder_under(places[p]));
        if (!put_junk(path, kind, 0)) continue;
        bool fits = p < 2 ? kind == FOLDER || kind == FULL_FOLDER : p > 2 && kind == EMPTY_FILE;
        expect_harmless(places[p], kind, !fits);
    }
}
END_TEST

/* Each entry of a stranger, under a folder that was open to all and is closed again. */
START_TEST(entries_are_judged_one_by_one)
{
    struct cache_key k = key_of(0);
    struct coda_cache *c = open_flags(0);
    obtain(c, 0);
    cache_close(c);
    write_evil(folder_entry("", &k), 0);
    ck_assert_int_eq(chmod(folder_entry("", &k), 0666), 0);
    c = open_flags(0);
    ck_assert_int_eq(obtain(c, 0), 1);
    ck_assert_uint_eq(counted(c, COUNT_rejected_untrusted), 1);
    cache_close(c);
    c = open_flags(0);
    ck_assert_int_eq(obtain(c, 0), 0);
    cache_close(c);
    if (geteuid()) return;
    ck_assert_int_eq(chown(folder_entry("", &k), STRANGER, STRANGER), 0);
    c = open_flags(CACHE_SHARED); /* then others may have written it */
    ck_assert_int_eq(obtain(c, 0), 0);
    cache_close(c);
    c = open_flags(CACHE_READ_ONLY);
    ck_assert_int_eq(obtain(c, 0), 1);
    ck_assert_uint_eq(counted(c, COUNT_rejected_untrusted), 1);
    ck_assert_uint_eq(counted(c, COUNT_healed), 0);
    cache_close(c);
}
END_TEST

/* Below a read-only directory, too; root's own files are as good as ours. */
START_TEST(overlays_are_judged_as_well)
{
    struct cache_key k = key_of(0);
    char below[300];
    struct coda_cache *c = open_flags(0);
    obtain(c, 0);
    cache_close(c);
    snprintf(below, sizeof below, "%s", folder);
    for (int round = 0; round < 3; round++) {
        if (round == 1) {
            write_evil(folder_entry("", &k), 0);
            ck_assert_int_eq(chmod(folder_entry("", &k), 0622), 0);
        }
        if (round == 2) {
            ck_assert_int_eq(chmod(folder_entry("", &k), 0600), 0);
            if (geteuid() || chown(folder_entry("", &k), STRANGER, STRANGER)) break;
        }
        c = cache_open(&(struct cache_options){.dir = "/dev/null/none", .overlays = below});
        ck_assert_int_eq(obtain(c, 0), round > 0);
        ck_assert_uint_eq(counted(c, COUNT_overlay_hits), round == 0);
        ck_assert_uint_eq(counted(c, COUNT_rejected_untrusted), round > 0);
        cache_close(c);
    }
}
END_TEST

/* ---- An entry of holes ---- */

static int obtain_sparse(void)
{
    memory_limit((size_t)64 << 20);
    struct coda_cache *c = open_flags(0);
    if (obtain(c, 0) != 1) return 3;
    return counted(c, COUNT_rejected_short) == 1 && counted(c, COUNT_healed) == 1 &&
                   counted(c, COUNT_stored) == 1
               ? 0
               : 4;
}

START_TEST(an_entry_of_holes_takes_no_memory)
{
    struct cache_key k = key_of(0);
    for (int how = 0; how < 3; how++) {
        struct coda_cache *c = open_flags(0);
        obtain(c, 0);
        cache_close(c);
        const char *path = folder_entry("", &k);
        if (how == 0) ck_assert_int_eq(truncate(path, 0), 0);
        if (how == 1) ck_assert_int_eq(truncate(path, 40), 0);
        ck_assert_int_eq(truncate(path, (off_t)ENTRY_MAX), 0);
        ck_assert_int_eq(exit_of(obtain_sparse), 0);
    }
}
END_TEST

/* ---- The environment ---- */

static const char *problem_of(const char *name, const char *value, struct coda_cache **c)
{
    setenv(name, value, 1);
    *c = open_flags(0);
    unsetenv(name);
    return cache_problem(*c);
}

START_TEST(switches_mean_what_they_say)
{
    static const char *const names[] = {"CODA_CACHE_READ_ONLY", "CODA_CACHE_VERIFY"};
    static const unsigned flags[] = {CACHE_READ_ONLY, CACHE_VERIFY};
    static const struct {
        const char *text;
        bool on, meant;
    } values[] = {{"1", true, true},    {"yes", true, true},    {"TRUE", true, true},
                  {"on", true, true},   {"", false, true},      {"0", false, true},
                  {"no", false, true},  {"False", false, true}, {"off", false, true},
                  {"2", false, false},  {"-1", false, false},   {"y es", false, false},
                  {"01", false, false}, {" 1", false, false},   {"\x1b[2J", false, false}};
    cache_close(open_flags(0));
    for (int n = 0; n < 2; n++)
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            struct coda_cache *c;
            const char *problem = problem_of(names[n], values[i].text, &c);
            ck_assert_msg(!(cache_flags(c) & flags[n]) == !values[i].on, "%s=%s", names[n], values[i].text);
            ck_assert_msg(!strstr(problem, names[n]) == values[i].meant, "%s=%s: %s", names[n],
                          values[i].text, problem);
            cache_close(c);
        }
}
END_TEST

/* Where a relative path leads is settled when the cache is opened. */
START_TEST(relative_paths_are_settled_once)
{
    char before[600];
    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    mkdir(folder_under("one"), 0700), mkdir(folder_under("two"), 0700);
    ck_assert_int_eq(chdir(folder_under("one")), 0);
    setenv("CODA_RECORD", "record", 1);
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = "cache", .helper = "./helper"});
    unsetenv("CODA_RECORD");
    ck_assert_str_eq(cache_dir(c), folder_under("one/cache"));
    ck_assert_str_eq(cache_helper(c), folder_under("one/./helper"));
    ck_assert_int_eq(chdir(folder_under("two")), 0);
    obtain(c, 0);
    remove_any(folder_under("one/cache")); /* it is made again where it was */
    obtain(c, 1);
    cache_forget(c);
    ck_assert_int_eq(folder_names(folder_under("two")), 0);
    ck_assert(!access(folder_under("one/record"), F_OK) && !access(folder_under("one/cache/v2"), F_OK));
    cache_close(c);
    setenv("CODA_CACHE_DIR", "here", 1);
    c = cache_open(NULL);
    ck_assert_str_eq(cache_dir(c), folder_under("two/here"));
    cache_close(c);
    remove_any(folder_under("two"));
    c = cache_open(NULL); /* the current folder is gone */
    ck_assert_str_eq(cache_dir(c), "");
    ck_assert_msg(strstr(cache_problem(c), "here is relative to no directory"), "%s", cache_problem(c));
    obtain(c, 0);
    cache_close(c);
    unsetenv("CODA_CACHE_DIR");
    ck_assert_int_eq(chdir(before), 0);
}
END_TEST

/* One reason does not hide another. */
START_TEST(all_reasons_are_told)
{
    setenv("CODA_CACHE_VERIFY", "maybe", 1), setenv("CODA_CACHE_LIMIT", "1e9", 1);
    struct coda_cache *c =
        cache_open(&(struct cache_options){.dir = "/dev/null/none", .overlays = "/nonexistent:/dev/full"});
    static const char *const parts[] = {"CODA_CACHE_VERIFY is \"maybe\"", "CODA_CACHE_LIMIT is \"1e9\"",
                                        "/dev/null/none ", "/nonexistent ", "/dev/full "};
    for (int i = 0; i < 5; i++)
        ck_assert_msg(strstr(cache_problem(c), parts[i]), "%s: %s", parts[i], cache_problem(c));
    char json[16384];
    cache_stats_print(c, json, sizeof json);
    ck_assert(strstr(json, "1e9") && strstr(json, "maybe"));
    cache_close(c);
    unsetenv("CODA_CACHE_VERIFY"), unsetenv("CODA_CACHE_LIMIT");
    char *list = malloc(100000); /* and any number of them fits */
    memset(list, ':', 99999), list[99999] = 0;
    for (int i = 0; i + 2 < 99999; i += 2) list[i] = 'x';
    c = cache_open(&(struct cache_options){.dir = folder, .overlays = list});
    ck_assert_uint_lt(strlen(cache_problem(c)), PROBLEM);
    cache_close(c);
    free(list);
}
END_TEST

/* ---- JSON of any bytes ---- */

/* Is it valid UTF-8 without control characters but line feeds? By the table of RFC 3629. */
static bool is_clean(const char *text)
{
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n = *s >= 0xf0 && *s <= 0xf4 ? 3 : *s >= 0xe0 && *s < 0xf0 ? 2 : *s >= 0xc2 && *s < 0xe0 ? 1 : 0;
        if (!n && (*s >= 0x80 || *s == 0x7f || (*s < ' ' && *s != '\n'))) return false;
        unsigned char low = *s == 0xe0   ? 0xa0
                            : *s == 0xf0 ? 0x90
                                         : 0x80,
                      high = *s == 0xed   ? 0x9f
                             : *s == 0xf4 ? 0x8f
                                          : 0xbf;
        if (*s == 0xc2) low = 0xa0;
        for (int i = 1; i <= n; i++, low = 0x80, high = 0xbf)
            if (s[i] < low || s[i] > high) return false;
        s += n + 1;
    }
    return true;
}

START_TEST(statistics_are_json_for_any_path)
{
    static const char *const names[] = {"\xff\xfe",           "quote\"back\\slash", "\x1b[2Jescape\n\t\x7f",
                                        "gr\xc3\xbc\xc3\x9f", "\xed\xa0\x80",       "\xc0\x80",
                                        "\xf4\x90\x80\x80",   "\xc2\x9b",           "cut\xe2\x82",
                                        "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char json[16384], path[400];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        struct coda_cache *c = cache_open(&(struct cache_options){.dir = path, .overlays = path});
        ck_assert_int_gt((int)cache_stats_print(c, json, sizeof json), 0);
        ck_assert_msg(is_clean(json), "%zu: %.200s", i, json);
        cache_close(c);
    }
}
END_TEST

TESTS(trust, AROUND(folder_make, folder_remove), EACH(junk_in_any_place, JUNKS),
      ONE(entries_are_judged_one_by_one), ONE(overlays_are_judged_as_well),
      ONE(an_entry_of_holes_takes_no_memory), ONE(switches_mean_what_they_say),
      ONE(relative_paths_are_settled_once), ONE(all_reasons_are_told), ONE(statistics_are_json_for_any_path));
