/*
 * test_memo.c -- a value is made once in this process, by one thread for all, and kept; so is a failure.
 * The thread sanitizer runs this too.
 */
#include "inside.h"
#include "util_folder.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- A maker that counts ---- */

struct maker {
    struct cache_maker m;
    atomic_int made;
    int status; /* what it returns */
    bool passing;
    size_t size;
    char fill;
    int nap_ms;
    atomic_bool hold;        /* it stays until it is held no longer */
    atomic_int inside, most; /* how many are in it at once */
};

static int make(void *ctx, void **data, size_t *size, char *err, bool *passing)
{
    struct maker *m = ctx;
    atomic_fetch_add(&m->made, 1);
    int now = atomic_fetch_add(&m->inside, 1) + 1, most = atomic_load(&m->most);
    while (now > most && !atomic_compare_exchange_weak(&m->most, &most, now)) {}
    usleep((useconds_t)m->nap_ms * 1000);
    while (atomic_load(&m->hold)) usleep(1000);
    atomic_fetch_sub(&m->inside, 1);
    *passing = m->passing;
    if (m->status) return snprintf(err, CACHE_ERROR, "no %c", m->fill), m->status;
    *data = malloc(m->size);
    *size = m->size;
    memset(*data, m->fill, m->size);
    return 0;
}

static struct maker *maker_new(char fill, size_t size)
{
    struct maker *m = calloc(1, sizeof *m);
    m->m = (struct cache_maker){.make = make, .ctx = m};
    m->fill = fill;
    m->size = size;
    return m;
}

static struct coda_cache *c;
static struct maker *m;

static void set_up(void)
{
    folder_make();
    c = cache_open(&(struct cache_options){.dir = folder, .wait_ms = 100});
    m = maker_new('x', 1000);
}

static void tear_down(void)
{
    cache_close(c);
    free(m);
    folder_remove();
}

static uint64_t counted(enum cache_counter which) { return stats_get(cache_stats(c), which); }
static struct cache_key key_of(const char *what) { return cache_key(CACHE_KERNEL, what, "maker 1\n"); }

/* ---- One thread ---- */

START_TEST(is_made_once)
{
    struct cache_key k = key_of("k\n");
    ck_assert_ptr_null(cache_find(c, &k));
    const struct cache_value *a = cache_obtain(c, &k, &m->m), *b = cache_obtain(c, &k, &m->m),
                             *f = cache_find(c, &k);
    ck_assert_ptr_eq(a, b);
    ck_assert_ptr_eq(a, f);
    ck_assert_int_eq(m->made, 1);
    ck_assert_int_eq(a->source, FROM_MAKER);
    ck_assert_str_eq(a->missed, "absent");
    ck_assert_uint_eq((uintptr_t)a->data % 16, 0);
    ck_assert(counted(COUNT_memory_hits) == 2 && counted(COUNT_compiles) == 1 && counted(COUNT_stored) == 1);
    cache_value_free(a), cache_value_free(b), cache_value_free(f);

    cache_forget(c);
    a = cache_obtain(c, &k, &m->m);
    ck_assert_int_eq(m->made, 1);
    ck_assert_int_eq(a->source, FROM_DISK);
    ck_assert_str_eq(a->missed, "");
    ck_assert(a->size == 1000 && ((char *)a->data)[999] == 'x');
    cache_value_free(a);
}
END_TEST

/* The maker is not part of what memory goes by, but of what the directory goes by. */
START_TEST(other_makers_have_their_own_files)
{
    struct cache_key one = cache_key(CACHE_KERNEL, "k\n", "maker 1\n"),
                     two = cache_key(CACHE_KERNEL, "k\n", "maker 2\n");
    cache_value_free(cache_obtain(c, &one, &m->m));
    cache_forget(c);
    cache_value_free(cache_obtain(c, &two, &m->m));
    ck_assert_int_eq(m->made, 2);
    ck_assert_int_eq(folder_entries(folder), 2);
}
END_TEST

/* Keys whose digests are the same: their texts tell, and who came first stays. test_twins.c has real ones. */
START_TEST(tells_keys_of_one_digest)
{
    struct cache_key a = key_of("a\n"), b = key_of("b\n");
    struct maker *other = maker_new('y', 10);
    b.digest = a.digest, b.what_digest = a.what_digest;
    const struct cache_value *x = cache_obtain(c, &a, &m->m), *y = cache_obtain(c, &b, &other->m);
    ck_assert(((char *)x->data)[0] == 'x' && ((char *)y->data)[0] == 'y');
    ck_assert_uint_eq(counted(COUNT_collisions), 1);
    ck_assert_uint_eq(counted(COUNT_rejected_key), 0);
    cache_value_free(x), cache_value_free(y);
    cache_forget(c);
    x = cache_obtain(c, &a, &m->m), y = cache_obtain(c, &b, &other->m);
    ck_assert(((char *)x->data)[0] == 'x' && ((char *)y->data)[0] == 'y');
    cache_value_free(x), cache_value_free(y);
    free(other);
}
END_TEST

START_TEST(keeps_failures_in_memory)
{
    struct cache_key k = key_of("k\n");
    m->status = -4;
    for (int i = 0; i < 1000; i++) {
        const struct cache_value *v = cache_obtain(c, &k, &m->m);
        ck_assert_int_eq(v->status, -4);
        ck_assert_str_eq(v->error, "no x");
        cache_value_free(v);
    }
    ck_assert_int_eq(m->made, 1);
    ck_assert(counted(COUNT_compile_failures) == 1 && counted(COUNT_replayed_failures) == 999);
    ck_assert_int_eq(folder_entries(folder), 0);
    cache_forget(c);
    m->status = 0;
    const struct cache_value *v = cache_obtain(c, &k, &m->m);
    ck_assert_int_eq(v->status, 0);
    cache_value_free(v);
}
END_TEST

START_TEST(does_not_keep_what_may_pass)
{
    struct cache_key k = key_of("k\n");
    m->status = -3, m->passing = true;
    for (int i = 0; i < 3; i++) cache_value_free(cache_obtain(c, &k, &m->m));
    ck_assert_int_eq(m->made, 3);
    m->status = 0, m->passing = false;
    const struct cache_value *v = cache_obtain(c, &k, &m->m);
    ck_assert_int_eq(v->status, 0);
    cache_value_free(v);
}
END_TEST

START_TEST(memory_has_a_bound)
{
    const struct cache_value *held = NULL;
    m->size = 1 << 20;
    for (int i = 0; i < 200; i++) {
        char what[16];
        snprintf(what, sizeof what, "key %d\n", i);
        struct cache_key k = key_of(what);
        m->fill = (char)i;
        const struct cache_value *v = cache_obtain(c, &k, &m->m);
        if (i == 0) held = v;
        else cache_value_free(v);
        ck_assert_uint_le(c->memo.bytes, MEMO_LIMIT);
    }
    struct cache_key last = key_of("key 199\n");
    const struct cache_value *v = cache_find(c, &last);
    ck_assert_ptr_nonnull(v);
    ck_assert_int_eq(((char *)held->data)[m->size - 1], 0); /* what is held stays */
    cache_value_free(v), cache_value_free(held);
}
END_TEST

/* ---- What turns out to be of no use ---- */

START_TEST(is_made_anew_when_refused)
{
    struct cache_key k = key_of("k\n");
    cache_value_free(cache_obtain(c, &k, &m->m));
    cache_forget(c);
    const struct cache_value *bad = cache_obtain(c, &k, &m->m);
    m->fill = 'y';
    const struct cache_value *good = cache_renew(c, &k, &m->m, bad), *again = cache_renew(c, &k, &m->m, bad);
    ck_assert_int_eq(m->made, 2);
    ck_assert_ptr_eq(good, again); /* two that were refused the same make it once */
    ck_assert_int_eq(good->source, FROM_MAKER);
    ck_assert(((char *)bad->data)[0] == 'x' && ((char *)good->data)[0] == 'y');
    cache_value_free(bad), cache_value_free(good), cache_value_free(again);
    cache_forget(c);
    good = cache_obtain(c, &k, &m->m);
    ck_assert(good->source == FROM_DISK && ((char *)good->data)[0] == 'y');
    ck_assert_uint_eq(counted(COUNT_refused), 2);
    cache_value_free(good);
}
END_TEST

/* Two threads that find a key at once may have it twice: neither is a way out of the other. */
START_TEST(is_not_renewed_by_its_like)
{
    struct cache_key k = key_of("k\n");
    cache_value_free(cache_obtain(c, &k, &m->m));
    cache_forget(c);
    const struct cache_value *bad = cache_obtain(c, &k, &m->m);
    cache_forget(c);
    const struct cache_value *like = cache_obtain(c, &k, &m->m);
    ck_assert(like != bad && like->source == FROM_DISK);
    m->fill = 'y';
    const struct cache_value *good = cache_renew(c, &k, &m->m, bad), *again = cache_renew(c, &k, &m->m, like);
    ck_assert(m->made == 2 && ((char *)good->data)[0] == 'y');
    ck_assert_ptr_eq(good, again);
    cache_value_free(bad), cache_value_free(like), cache_value_free(good), cache_value_free(again);
}
END_TEST

/* Another process was refused the same before, and has put a better one there. */
START_TEST(takes_what_others_healed)
{
    struct cache_key k = key_of("k\n");
    const struct cache_value *bad = cache_obtain(c, &k, &m->m);
    cache_put(c, &k, "healed", 6);
    const struct cache_value *good = cache_renew(c, &k, &m->m, bad);
    ck_assert(good->source == FROM_DISK && good->size == 6 && m->made == 1);
    cache_value_free(bad), cache_value_free(good);
}
END_TEST

START_TEST(verify_finds_what_differs)
{
    struct cache_key k = key_of("k\n");
    cache_put(c, &k, "tampered", 8);
    struct coda_cache *audit = cache_open(&(struct cache_options){.dir = folder, .flags = CACHE_VERIFY});
    const struct cache_value *v = cache_obtain(audit, &k, &m->m);
    ck_assert(v->source == FROM_MAKER && v->size == 1000);
    cache_value_free(v);
    ck_assert_uint_eq(stats_get(cache_stats(audit), COUNT_verify_differed), 1);
    cache_forget(audit);
    v = cache_obtain(audit, &k, &m->m);
    ck_assert(v->source == FROM_DISK && v->size == 1000 && m->made == 2); /* healed, and the same */
    cache_value_free(v);
    cache_close(audit);
}
END_TEST

/* ---- Many threads ---- */

enum { THREADS = 64 };

struct one {
    pthread_t thread;
    struct cache_key k;
    const struct cache_value *v;
};

static void *obtain(void *ctx)
{
    struct one *o = ctx;
    o->v = cache_obtain(c, &o->k, &m->m);
    return NULL;
}

static void all_obtain(struct one *o, int keys)
{
    static char what[THREADS][24];
    for (int i = 0; i < THREADS; i++) {
        snprintf(what[i], sizeof what[i], "key %d\n", i % keys);
        o[i].k = key_of(what[i]);
        ck_assert_int_eq(pthread_create(&o[i].thread, NULL, obtain, &o[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(o[i].thread, NULL);
}

START_TEST(threads_share_one_making)
{
    static struct one o[THREADS];
    m->nap_ms = 50;
    m->status = _i ? -4 : 0;
    all_obtain(o, 1);
    ck_assert_int_eq(m->made, 1);
    for (int i = 0; i < THREADS; i++) {
        ck_assert_ptr_eq(o[i].v, o[0].v);
        ck_assert_int_eq(o[i].v->status, m->status);
        if (_i) ck_assert_str_eq(o[i].v->error, "no x");
    }
    for (int i = 0; i < THREADS; i++) cache_value_free(o[i].v);
}
END_TEST

START_TEST(keys_do_not_wait_for_each_other)
{
    static struct one o[THREADS];
    m->nap_ms = 200;
    all_obtain(o, 8);
    ck_assert_int_eq(m->made, 8);
    ck_assert_int_eq(m->most, 8);
    for (int i = 0; i < THREADS; i++) cache_value_free(o[i].v);
}
END_TEST

/* Readers, makers and forgetters at once: every value is of its key. */
static void *busy(void *ctx)
{
    unsigned state = (unsigned)(uintptr_t)ctx;
    for (int i = 0; i < 2000; i++) {
        char what[16];
        int key = rand_r(&state) % 20, way = rand_r(&state) % 16;
        snprintf(what, sizeof what, "%c\n", 'a' + key);
        struct cache_key k = key_of(what);
        struct maker own = {.m = {.make = make}, .fill = (char)('a' + key), .size = 64};
        own.m.ctx = &own;
        if (way == 0) cache_forget(c);
        const struct cache_value *v = way < 8 ? cache_find(c, &k) : cache_obtain(c, &k, &own.m);
        bool good = (!v && way < 8) || (v && v->size == 64 && ((char *)v->data)[63] == 'a' + key);
        cache_value_free(v);
        if (!good) return c;
    }
    return NULL;
}

START_TEST(readers_meet_nothing_freed)
{
    pthread_t thread[8];
    void *wrong;
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, busy, (void *)(uintptr_t)(i + 1)), 0);
    for (int i = 0; i < 8; i++) {
        pthread_join(thread[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
}
END_TEST

/* Others wait for a thread that is cancelled while it makes: it makes to the end. */
START_TEST(a_cancelled_thread_lands)
{
    static struct one o;
    m->nap_ms = 200;
    o.k = key_of("key 0\n");
    ck_assert_int_eq(pthread_create(&o.thread, NULL, obtain, &o), 0);
    while (!atomic_load(&m->inside)) usleep(1000);
    ck_assert_int_eq(pthread_cancel(o.thread), 0);
    const struct cache_value *v = cache_obtain(c, &o.k, &m->m);
    pthread_join(o.thread, NULL);
    ck_assert_int_eq(v->status, 0);
    ck_assert_int_eq(m->made, 1);
    cache_value_free(v), cache_value_free(o.v);
}
END_TEST

/* ---- fork ---- */

static int child_obtains(void)
{
    struct cache_key k = key_of("key 0\n"), l = key_of("other\n");
    const struct cache_value *a = cache_obtain(c, &k, &m->m), *b = cache_obtain(c, &l, &m->m);
    return a && b && !a->status && a->size == 1000 && b->size == 1000 ? 0 : 1;
}

/* While a thread of the parent makes, and holds the lock on disk, the child wants the same. */
START_TEST(a_forked_child_goes_on_alone)
{
    static struct one o;
    m->hold = true;
    o.k = key_of("key 0\n");
    ck_assert_int_eq(pthread_create(&o.thread, NULL, obtain, &o), 0);
    while (!atomic_load(&m->inside)) usleep(1000);
    pid_t child = fork();
    if (!child) {
        m->hold = false;
        _exit(child_obtains());
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(atomic_load(&m->inside), 1); /* the parent still makes */
    m->hold = false;
    pthread_join(o.thread, NULL);
    ck_assert_int_eq(o.v->status, 0);
    cache_value_free(o.v);
}
END_TEST

static atomic_bool stop;

static void *find_always(void *ctx)
{
    struct cache_key k = key_of("key 0\n");
    while (!atomic_load(&stop)) cache_value_free(cache_find(c, &k));
    return ctx;
}

/* A thread of its own reads while the child meets, for the first time, a mutex that is its parent's. */
static int child_frees_what_it_forgets(void)
{
    pthread_t reader;
    struct cache_key k = key_of("key 0\n");
    if (pthread_create(&reader, NULL, find_always, NULL)) return 1;
    usleep(500);
    for (int i = 0; i < 20; i++) {
        cache_forget(c);
        cache_value_free(cache_obtain(c, &k, &m->m));
    }
    atomic_store(&stop, true);
    pthread_join(reader, NULL);
    cache_forget(c);
    return c->memo.retired ? 2 : 0;
}

/* Readers that the parent had at that moment are not the child's. */
START_TEST(a_forked_child_counts_its_own_readers)
{
    pthread_t reader[2];
    struct cache_key k = key_of("key 0\n");
    cache_value_free(cache_obtain(c, &k, &m->m));
    for (int i = 0; i < 2; i++) ck_assert_int_eq(pthread_create(&reader[i], NULL, find_always, NULL), 0);
    for (int i = 0; i < 50; i++) ck_assert_int_eq(exit_of(child_frees_what_it_forgets), 0);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) pthread_join(reader[i], NULL);
}
END_TEST

#if !defined __SANITIZE_THREAD__ && !defined __SANITIZE_ADDRESS__ /* a child of many threads is not theirs */
#define CHILD_OF_THREADS ONE(a_forked_child_counts_its_own_readers)
#else
#define CHILD_OF_THREADS (void)a_forked_child_counts_its_own_readers
#endif

TESTS(memo, AROUND(set_up, tear_down), ONE(is_made_once), EACH(threads_share_one_making, 2),
      ONE(keys_do_not_wait_for_each_other), ONE(readers_meet_nothing_freed), ONE(a_cancelled_thread_lands),
      ONE(a_forked_child_goes_on_alone), CHILD_OF_THREADS, CASE("alone"), TAG("alone"),
      AROUND(set_up, tear_down), ONE(other_makers_have_their_own_files), ONE(tells_keys_of_one_digest),
      ONE(keeps_failures_in_memory), ONE(does_not_keep_what_may_pass), ONE(memory_has_a_bound),
      ONE(is_made_anew_when_refused), ONE(is_not_renewed_by_its_like), ONE(takes_what_others_healed),
      ONE(verify_finds_what_differs));
