/*
 * memo.c -- what this process has had, and what it is making now.
 *
 * A table of buckets, chained. A reader takes no lock: it announces itself in `readers`, walks the
 * chain, takes a reference to the value, and leaves. A writer, under the mutex, unlinks a node with one
 * store and keeps it aside until it has seen no reader at all: whoever came later cannot have met it.
 *
 * A flight is something in the making. The first thread that wants it flies, the others of the key wait
 * and share what comes of it, a failure too. Failures are kept like results, unless they are passing.
 *
 * After fork() the child has a mutex that may be locked for ever by a thread it does not have, flights
 * that nobody lands, and readers that never leave. Whoever comes first there makes the mutex anew and
 * drops the others, before any thread of the child is past it.
 */
#include "inside.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct memo_node {
    _Atomic(struct memo_node *) next;
    struct digest digest;
    enum cache_kind kind;
    atomic_bool used; /* since the hand came by */
    const struct cache_value *value;
    struct memo_node *retired;
    size_t bytes;
    const char *text; /* or NULL; behind `what` */
    char what[];
};

struct flight {
    struct flight *next;
    struct cache_key key; /* its strings are the flying thread's, which stays until it landed */
    pthread_t pilot;      /* a store of its own may call the library, and must not wait for itself */
    pthread_cond_t landed;
    bool done;
    int holders;
    const struct cache_value *value;
};

/* ---- Values ---- */

struct cache_value *cache_value_new(void *data, size_t size, enum cache_source source)
{
    struct cache_value *v = calloc(1, sizeof *v);
    if (!v) return free(data), NULL;
    atomic_init(&v->refs, 1);
    v->data = data;
    v->size = size;
    v->source = source;
    v->missed = "";
    return v;
}

struct cache_value *cache_value_failed(int status, const char *error)
{
    struct cache_value *v = cache_value_new(NULL, 0, FROM_MAKER);
    if (!v) return NULL;
    v->status = status;
    v->error = strdup(error);
    if (v->error) return v;
    free(v);
    return NULL;
}

const struct cache_value *cache_value_retain(const struct cache_value *v)
{
    struct cache_value *mine = (struct cache_value *)v;
    if (v) atomic_fetch_add_explicit(&mine->refs, 1, memory_order_relaxed);
    return v;
}

void cache_value_free(const struct cache_value *v)
{
    struct cache_value *mine = (struct cache_value *)v;
    if (!v || atomic_fetch_sub_explicit(&mine->refs, 1, memory_order_acq_rel) != 1) return;
    free(mine->data);
    free(mine->error);
    free(mine);
}

/* ---- The mutex, and fork ---- */

enum { ADOPTING = 1 << 30 };
static atomic_uint forks; /* that led to this process from the one that began to count */

static void count_fork(void) { atomic_fetch_add(&forks, 1); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

static void adopt(struct memo *m)
{
    unsigned life = atomic_load(&m->life), own = atomic_load(&forks);
    while (life != own) {
        if (life != (own | ADOPTING) && atomic_compare_exchange_strong(&m->life, &life, own | ADOPTING)) {
            pthread_mutex_init(&m->mutex, NULL);
            m->flights = NULL;
            atomic_store(&m->readers, 0);
            atomic_store(&m->life, own);
        }
        sched_yield();
        life = atomic_load(&m->life);
    }
}

static void begin(struct memo *m)
{
    adopt(m);
    pthread_mutex_lock(&m->mutex);
}

static void free_node(struct memo_node *n)
{
    cache_value_free(n->value);
    free(n);
}

/* Frees what was unlinked before, if nobody can be looking at it. */
static void end(struct memo *m)
{
    if (!atomic_load(&m->readers)) {
        while (m->retired) {
            struct memo_node *n = m->retired;
            m->retired = n->retired;
            free_node(n);
        }
    }
    pthread_mutex_unlock(&m->mutex);
}

void memo_init(struct memo *m)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_init(&m->mutex, NULL);
    atomic_store(&m->life, atomic_load(&forks));
}

/* ---- The table ---- */

static _Atomic(struct memo_node *) *bucket_of(struct memo *m, const struct cache_key *k)
{
    return &m->bucket[k->what_digest.word[0] % MEMO_BUCKETS];
}

static bool same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static bool is_of(const struct memo_node *n, const struct cache_key *k)
{
    return digest_equal(&n->digest, &k->what_digest) && n->kind == k->kind && !strcmp(n->what, k->what) &&
           same_text(n->text, k->text);
}

static struct memo_node *search(struct memo *m, const struct cache_key *k)
{
    struct memo_node *n = atomic_load(bucket_of(m, k));
    while (n && !is_of(n, k)) n = atomic_load(&n->next);
    return n;
}

const struct cache_value *memo_find(struct memo *m, const struct cache_key *k)
{
    adopt(m);
    atomic_fetch_add(&m->readers, 1);
    struct memo_node *n = search(m, k);
    const struct cache_value *v = n ? cache_value_retain(n->value) : NULL;
    if (n && !atomic_load_explicit(&n->used, memory_order_relaxed))
        atomic_store_explicit(&n->used, true, memory_order_relaxed);
    atomic_fetch_sub(&m->readers, 1);
    return v;
}

/* Under the mutex; `from` is what points to n. */
static void unlink_node(struct memo *m, _Atomic(struct memo_node *) *from, struct memo_node *n)
{
    atomic_store(from, atomic_load(&n->next));
    n->retired = m->retired;
    m->retired = n;
    m->bytes -= n->bytes;
}

static void remove_key(struct memo *m, const struct cache_key *k)
{
    _Atomic(struct memo_node *) *from = bucket_of(m, k);
    for (struct memo_node *n; (n = atomic_load(from));) {
        if (is_of(n, k)) unlink_node(m, from, n);
        else from = &n->next;
    }
}

/* The hand goes round the buckets and takes what was not used since it last came by. */
static void shrink(struct memo *m)
{
    for (int i = 0; m->bytes > MEMO_LIMIT && i < 2 * MEMO_BUCKETS; i++) {
        _Atomic(struct memo_node *) *from = &m->bucket[m->hand++ % MEMO_BUCKETS];
        for (struct memo_node *n; (n = atomic_load(from));) {
            if (atomic_exchange(&n->used, false)) from = &n->next;
            else unlink_node(m, from, n);
        }
    }
}

static void insert(struct memo *m, const struct cache_key *k, const struct cache_value *v)
{
    size_t length = strlen(k->what) + 1, text = k->text ? strlen(k->text) + 1 : 0;
    struct memo_node *n = malloc(sizeof *n + length + text);
    remove_key(m, k);
    if (!n) return;
    *n = (struct memo_node){.digest = k->what_digest, .kind = k->kind};
    n->bytes = sizeof *n + length + text + v->size;
    n->value = cache_value_retain(v);
    memcpy(n->what, k->what, length);
    if (text) n->text = memcpy(n->what + length, k->text, text);
    atomic_store(&n->used, true);
    atomic_store(&n->next, atomic_load(bucket_of(m, k)));
    atomic_store(bucket_of(m, k), n);
    m->bytes += n->bytes;
    shrink(m);
}

void memo_put(struct memo *m, const struct cache_key *k, const struct cache_value *v)
{
    begin(m);
    insert(m, k, v);
    end(m);
}

void memo_forget(struct memo *m)
{
    begin(m);
    for (int i = 0; i < MEMO_BUCKETS; i++)
        for (struct memo_node *n; (n = atomic_load(&m->bucket[i]));) unlink_node(m, &m->bucket[i], n);
    end(m);
}

void memo_free(struct memo *m)
{
    memo_forget(m);
    begin(m);
    end(m);
}

/* ---- Flights ---- */

static bool flies(const struct flight *f, const struct cache_key *k)
{
    return digest_equal(&f->key.what_digest, &k->what_digest) && f->key.kind == k->kind &&
           !strcmp(f->key.what, k->what) && same_text(f->key.text, k->text);
}

/* The last one out takes it down. Under the mutex. */
static void leave(struct flight *f)
{
    if (--f->holders) return;
    pthread_cond_destroy(&f->landed);
    cache_value_free(f->value);
    free(f);
}

static struct flight *start(struct memo *m, const struct cache_key *k)
{
    struct flight *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->key = *k;
    f->pilot = pthread_self();
    f->holders = 1;
    pthread_cond_init(&f->landed, NULL);
    f->next = m->flights;
    return m->flights = f;
}

/* What two threads found at the same time is alike; what was made is new, whatever it is. */
static bool is_stale(const struct cache_value *v, const struct cache_value *stale)
{
    if (!stale || v == stale) return v == stale;
    return v->source != FROM_MAKER && v->size == stale->size && !memcmp(v->data, stale->data, v->size);
}

/* Under the mutex. */
static const struct cache_value *await(struct memo *m, struct flight *f)
{
    f->holders++;
    while (!f->done) pthread_cond_wait(&f->landed, &m->mutex);
    const struct cache_value *v = cache_value_retain(f->value);
    leave(f);
    return v;
}

bool memo_join(struct memo *m, const struct cache_key *k, const struct cache_value *stale,
               const struct cache_value **v, struct flight **own)
{
    begin(m);
    struct memo_node *n = search(m, k);
    bool found = n && !is_stale(n->value, stale);
    *own = NULL;
    *v = found ? cache_value_retain(n->value) : NULL;
    while (!found) {
        struct flight *f = m->flights;
        while (f && !flies(f, k)) f = f->next;
        if (f && pthread_equal(f->pilot, pthread_self())) break;
        if (!f) {
            *own = start(m, k);
            break;
        }
        *v = await(m, f);
        found = !*v || !is_stale(*v, stale);
        if (!found) cache_value_free(*v), *v = NULL;
    }
    end(m);
    return found;
}

void memo_land(struct memo *m, struct flight *f, const struct cache_value *v, bool keep)
{
    begin(m);
    struct flight **at = &m->flights;
    while (*at && *at != f) at = &(*at)->next;
    if (*at) *at = f->next;
    if (v && keep) insert(m, &f->key, v);
    f->value = cache_value_retain(v);
    f->done = true;
    pthread_cond_broadcast(&f->landed);
    leave(f);
    end(m);
}
