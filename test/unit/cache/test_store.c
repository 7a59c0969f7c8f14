/* test_store.c -- a place of the user's own, through coda.h's calls: used like a directory, trusted as
 * little. */
#include "coda.h"
#include "util_folder.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A table in memory ---- */

enum { ROOM = 16 };
static struct row {
    char name[65];
    unsigned char *data;
    size_t size;
    bool locked;
} row[ROOM];
static int gets, puts_, drops, put_error, lock_answer;

static struct row *find(const char *name)
{
    struct row *free_row = NULL;
    for (int i = 0; i < ROOM; i++) {
        if (!strcmp(row[i].name, name)) return &row[i];
        if (!row[i].name[0] && !free_row) free_row = &row[i];
    }
    ck_assert_ptr_nonnull(free_row);
    return free_row;
}

static int64_t get(void *context, const char *name, void *buf, size_t size)
{
    struct row *r = find(name);
    ck_assert_ptr_eq(context, row);
    gets++;
    if (!r->data) return -1;
    if (r->size <= size) memcpy(buf, r->data, r->size);
    return (int64_t)r->size;
}

static int put(void *context, const char *name, const void *data, size_t size)
{
    struct row *r = find(name);
    (void)context;
    if (put_error) return put_error;
    puts_++;
    free(r->data);
    strcpy(r->name, name);
    r->data = memcpy(malloc(size), data, size);
    r->size = size;
    return 0;
}

static void drop(void *context, const char *name)
{
    struct row *r = find(name);
    (void)context;
    drops++;
    free(r->data);
    *r = (struct row){0};
}

static int lock(void *context, const char *name)
{
    struct row *r = find(name);
    (void)context;
    if (lock_answer > 0) strcpy(r->name, name), r->locked = true;
    return lock_answer;
}

static void unlock(void *context, const char *name)
{
    (void)context;
    ck_assert(find(name)->locked);
    find(name)->locked = false;
}

/* ---- Kernels through it ---- */

static coda_cache *c;
static coda_cache_store store = CODA_CACHE_STORE_INIT;

static void open_cache(void)
{
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    opt.store = &store;
    opt.wait_ms = 20;
    opt.overlays = "";
    ck_assert_msg(coda_cache_open(&c, &opt) == CODA_OK, "%s", coda_error());
}

static void set_up(void)
{
    store.context = row;
    store.get = get, store.put = put, store.drop = drop, store.lock = lock, store.unlock = unlock;
    lock_answer = 1;
    open_cache();
}

static void tear_down(void)
{
    coda_cache_free(c);
    for (int i = 0; i < ROOM; i++) free(row[i].data);
}

static coda_kernel_info compile(void)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_kernel_info k = CODA_KERNEL_INFO_INIT;
    coda_plan *p;
    coda_graph *g = coda_graph_new();
    coda_output(g, "y", coda_relu(g, coda_input(g, "x", CODA_BF16, 2, (int64_t[]){6, 32})));
    opt.device = CODA_DEVICE_NONE;
    opt.cache = c;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_plan_kernels(p), 1);
    coda_plan_kernel(p, 0, &k);
    k.name = k.source = NULL;
    coda_plan_free(p);
    coda_graph_free(g);
    return k;
}

static coda_cache_stats stats(void)
{
    coda_cache_stats s = CODA_CACHE_STATS_INIT;
    ck_assert_int_eq(coda_cache_stats_get(c, &s), CODA_OK);
    return s;
}

START_TEST(keeps_kernels)
{
    ck_assert(!compile().cached && puts_ == 1);
    ck_assert(compile().cached && stats().memory_hits == 1);
    coda_cache_free(c);
    open_cache();
    ck_assert(compile().cached && stats().disk_hits == 1 && stats().compiles == 0);
    ck_assert_str_eq(coda_cache_dir(c), "");
}
END_TEST

START_TEST(rejects_what_is_damaged)
{
    compile();
    for (int i = 0; i < 4; i++) {
        struct row *r = row;
        while (!r->data) r++;
        if (i == 0) r->data[r->size / 2] ^= 1;
        else if (i == 1) r->size /= 2;
        else if (i == 2) r->data[0] = 'x';
        else r->size = 0;
        coda_cache_forget(c);
        ck_assert(!compile().cached);
        ck_assert_int_eq(drops, i + 1);
        coda_cache_forget(c);
        ck_assert(compile().cached);
    }
    ck_assert(stats().healed == 4 && stats().compiles == 5);
}
END_TEST

START_TEST(writes_nothing_if_told_so)
{
    compile();
    struct row *r = row;
    while (!r->data) r++;
    r->data[r->size / 2] ^= 1;
    coda_cache_free(c);
    setenv("CODA_CACHE_READ_ONLY", "1", 1);
    open_cache();
    ck_assert(!compile().cached);
    ck_assert(puts_ == 1 && drops == 0 && stats().rejected_digest == 1 && stats().healed == 0);
}
END_TEST

START_TEST(survives_a_store_that_fails)
{
    static const int errors[] = {ENOSPC, EROFS, EIO, ENOMEM};
    for (int i = 0; i < 4; i++) {
        put_error = errors[i];
        coda_cache_forget(c);
        ck_assert(!compile().cached);
    }
    coda_cache_stats s = stats();
    ck_assert(s.store_failed == 4 && s.store_failed_space == 1 && s.store_failed_denied == 1);
    ck_assert(s.store_failed_io == 1 && s.store_failed_memory == 1 && s.stored == 0);
}
END_TEST

START_TEST(waits_for_its_lock)
{
    lock_answer = 0;
    ck_assert(!compile().cached);
    ck_assert(stats().waits == 1 && stats().wait_timeouts == 1);
    lock_answer = -1;
    coda_cache_forget(c);
    ck_assert(compile().cached);
    drop(row, row[0].name);
    coda_cache_forget(c);
    ck_assert(!compile().cached && stats().lock_unavailable == 1);
}
END_TEST

START_TEST(needs_no_more_than_get)
{
    coda_cache_free(c);
    store.put = NULL, store.drop = NULL, store.lock = NULL, store.unlock = NULL;
    open_cache();
    ck_assert(!compile().cached && stats().store_failed_denied == 1);
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    coda_cache *none;
    store.get = NULL;
    opt.store = &store;
    ck_assert_int_eq(coda_cache_open(&none, &opt), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "cache_open: the store has no get");
    ck_assert_ptr_null(none);
}
END_TEST

/* ---- The other calls ---- */

START_TEST(compiles_nothing_while_sealed)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    coda_graph *g = coda_graph_new();
    coda_output(g, "y", coda_tanh(g, coda_input(g, "x", CODA_BF16, 2, (int64_t[]){6, 32})));
    opt.device = CODA_DEVICE_NONE;
    opt.cache = c;
    compile();
    coda_cache_seal(c, 1);
    ck_assert(compile().cached);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_E_UNSUPPORTED);
        ck_assert_str_eq(coda_error(), "coda_rows_tanh: is not in the cache, which is sealed");
    }
    ck_assert_uint_eq(stats().compiles, 1);
    coda_cache_seal(c, 0);
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_uint_eq(stats().compiles, 2);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

START_TEST(says_what_is_wrong)
{
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    coda_cache *none;
    ck_assert_int_eq(coda_cache_open(NULL, NULL), CODA_E_INVALID);
    opt.flags = 1 << 5;
    ck_assert_int_eq(coda_cache_open(&none, &opt), CODA_E_INVALID);
    ck_assert_str_eq(coda_error(), "cache_open: flags 0x20 has unknown bits");
    ck_assert_int_eq(coda_cache_stats_get(c, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_cache_stats_print(c, NULL, 1), CODA_E_INVALID);
    ck_assert_int_eq(coda_cache_list(c, NULL, NULL), CODA_E_INVALID);
    ck_assert_int_eq(coda_cache_prune(c, NULL, NULL), CODA_E_IO); /* a store is no directory */
    ck_assert_int_eq(coda_cache_add_bundle(c, NULL, 0), CODA_E_INVALID);
    ck_assert_int_eq(coda_cache_add_bundle(c, "x", 1), CODA_E_INVALID);
    coda_cache_free(NULL);
}
END_TEST

START_TEST(prints_all_counters)
{
    char small[10], text[8192];
    compile();
    int64_t n = coda_cache_stats_print(c, NULL, 0);
    ck_assert_int_eq(coda_cache_stats_print(c, small, sizeof small), n);
    ck_assert_int_eq((int)strlen(small), 9);
    ck_assert_int_eq(coda_cache_stats_print(c, text, sizeof text), n);
    ck_assert_int_eq((int64_t)strlen(text), n);
    ck_assert_ptr_nonnull(strstr(text, "\"compiles\": 1,"));
#define PRINTED(name, comment) ck_assert_ptr_nonnull(strstr(text, "\"" #name "\": "));
    CACHE_COUNTERS(PRINTED)
#undef PRINTED
    ck_assert_uint_eq(sizeof(coda_cache_stats), sizeof(size_t) + CACHE_COUNTER_COUNT * sizeof(uint64_t));
}
END_TEST

static int visits;
static int visit(void *context, const coda_cache_entry *e)
{
    ck_assert_ptr_eq(context, &visits);
    ck_assert_uint_eq(strlen(e->name), 64);
    ck_assert_str_eq(e->kind, "kernel");
    ck_assert_str_eq(e->fault, "");
    ck_assert(strstr(e->key, "symbol coda_rows_relu\narch sm_90a\n") && strstr(e->key, "nvrtc "));
    ck_assert(strstr(e->note, "coda_rows_relu") && e->bytes >= 4096 && e->age_s < 3600);
    return visits++, 1;
}

/* A function of the store that compiles the kernel which it is asked for does not wait for itself. */
static int depth;
static void compile_once(void)
{
    if (!depth++) compile();
}
static int64_t get_and_compile(void *context, const char *name, void *buf, size_t size)
{
    compile_once();
    return get(context, name, buf, size);
}
static int put_and_compile(void *context, const char *name, const void *data, size_t size)
{
    compile_once();
    return put(context, name, data, size);
}
static int lock_and_compile(void *context, const char *name)
{
    compile_once();
    return lock(context, name);
}
START_TEST(may_call_the_library)
{
    store.get = _i == 0 ? get_and_compile : get;
    store.put = _i == 1 ? put_and_compile : put;
    store.lock = _i == 2 ? lock_and_compile : lock;
    lock_answer = _i == 1 ? -1 : 1; /* this table's locks have one holder */
    coda_cache_free(c);
    open_cache();
    compile();
    ck_assert_int_ge(depth, 1);
    ck_assert(compile().cached);
}
END_TEST

START_TEST(lists_and_prunes_a_directory)
{
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    coda_cache_prune_options all = CODA_CACHE_PRUNE_OPTIONS_INIT;
    coda_cache_pruned p = CODA_CACHE_PRUNED_INIT;
    folder_make();
    coda_cache_free(c);
    opt.dir = folder;
    ck_assert_int_eq(coda_cache_open(&c, &opt), CODA_OK);
    compile();
    ck_assert_int_eq(coda_cache_list(c, visit, &visits), CODA_OK);
    ck_assert_int_eq(visits, 1);
    all.clear = 1;
    ck_assert_int_eq(coda_cache_prune(c, &all, &p), CODA_OK);
    ck_assert(p.removed == 1 && p.kept == 0 && p.removed_bytes >= 4096);
    ck_assert_int_eq(folder_entries(folder), 0);
    folder_remove();
}
END_TEST

TESTS(store, AROUND(set_up, tear_down), ONE(keeps_kernels), ONE(rejects_what_is_damaged),
      ONE(writes_nothing_if_told_so), ONE(survives_a_store_that_fails), ONE(waits_for_its_lock),
      ONE(needs_no_more_than_get), ONE(compiles_nothing_while_sealed), ONE(says_what_is_wrong),
      ONE(prints_all_counters), EACH(may_call_the_library, 3), ONE(lists_and_prunes_a_directory));
