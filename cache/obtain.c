/*
 * obtain.c -- who is asked in what order for the value of a key, and who makes it.
 *
 *     memory -> bundles -> directory -> read-only directories -> [lock -> look again] -> make -> publish
 *
 * Within this process a flight (memo.c) lets one thread through; among processes the lock does, as long
 * as there is one, its holder lives, and the deadline has not come. Whoever has made something keeps it,
 * whatever becomes of its publication.
 */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- Looking ---- */

static struct cache_value *look_in_bundles(struct coda_cache *c, const struct cache_key *k)
{
    struct entry e;
    for (struct bundles *b = atomic_load(&c->bundles); b; b = b->next) {
        bool other;
        if (!bundle_find(b->bundle, k, &e, &other)) {
            stats_add(&c->stats, COUNT_collisions, other);
            continue;
        }
        void *data = malloc(e.data_size + !e.data_size);
        if (!data) return NULL;
        if (e.data_size) memcpy(data, e.data, e.data_size);
        stats_add(&c->stats, COUNT_bundle_hits, 1);
        return cache_value_new(data, e.data_size, FROM_BUNDLE);
    }
    return NULL;
}

/* The directory, then those below it; *missed says why the first of them had nothing. */
static struct cache_value *look_on_disk(struct coda_cache *c, const struct cache_key *k, const char **missed)
{
    void *data;
    size_t size;
    int64_t start = now_ns();
    *missed = place_get(c, k, &data, &size);
    stats_add(&c->stats, COUNT_read_ns, (uint64_t)(now_ns() - start));
    if (!*missed) {
        stats_add(&c->stats, COUNT_disk_hits, 1);
        stats_add(&c->stats, COUNT_read_bytes, size);
        return cache_value_new(data, size, FROM_DISK);
    }
    for (int i = 0; i < c->overlays; i++) {
        const char *below = disk_get(&c->overlay[i], k, &data, &size);
        if (below == entry_collision) stats_add(&c->stats, COUNT_collisions, 1);
        if (below) continue;
        stats_add(&c->stats, COUNT_overlay_hits, 1);
        return cache_value_new(data, size, FROM_OVERLAY);
    }
    return NULL;
}

struct cache_value *obtain_look(struct coda_cache *c, const struct cache_key *k)
{
    const char *ignored;
    struct cache_value *v = look_on_disk(c, k, &ignored);
    return v ? v : look_in_bundles(c, k);
}

static void remember(struct coda_cache *c, const struct cache_key *k, const struct cache_value *v)
{
    if (c->record && !v->status) record_key(c->record, k);
}

const struct cache_value *cache_find(struct coda_cache *c, const struct cache_key *k)
{
    const struct cache_value *v = memo_find(&c->memo, k);
    if (v) {
        stats_add(&c->stats, v->status ? COUNT_replayed_failures : COUNT_memory_hits, 1);
        return v;
    }
    if (c->flags & CACHE_VERIFY) return NULL;
    struct guard g = guard_enter();
    const char *missed = NULL;
    v = look_in_bundles(c, k);
    if (!v && !k->by) v = look_on_disk(c, k, &missed); /* what was imported bears the name of WHAT */
    if (missed == entry_collision) stats_add(&c->stats, COUNT_collisions, 1);
    if (v) {
        memo_put(&c->memo, k, v);
        remember(c, k, v);
    }
    guard_leave(g);
    return v;
}

/* ---- Making ---- */

struct build { /* one cache_obtain that found nothing in memory */
    struct coda_cache *c;
    const struct cache_key *k;
    const struct cache_maker *m;
    const struct cache_value *refused; /* not to be taken again, or NULL */
    const char *missed;
    bool collided; /* another key's entry is in its place: it is neither waited for nor published */
    bool passing;  /* a failure that is not the key's */
};

static struct cache_value *make(struct build *b)
{
    char err[CACHE_ERROR] = "";
    void *data = NULL;
    size_t size = 0;
    int64_t start = now_ns();
    int status = b->m->make(b->m->ctx, &data, &size, err, &b->passing);
    int64_t spent = now_ns() - start;
    stats_add(&b->c->stats, status ? COUNT_compile_failures : COUNT_compiles, 1);
    stats_add(&b->c->stats, COUNT_compile_ns, (uint64_t)spent);
    struct cache_value *v =
        status ? cache_value_failed(status, err) : cache_value_new(data, size, FROM_MAKER);
    if (!v) return NULL;
    v->missed = b->missed;
    v->ms = (double)spent * 1e-6;
    return v;
}

static bool same_bytes(const struct cache_value *a, const struct cache_value *b)
{
    return a->size == b->size && !memcmp(a->data, b->data, a->size);
}

/* Makes again what was found. If the bytes differ the new ones are right. */
static struct cache_value *verify(struct build *b, struct cache_value *found)
{
    b->missed = "verify";
    struct cache_value *v = make(b);
    stats_add(&b->c->stats, COUNT_verified, 1);
    if (!v || v->status || same_bytes(v, found)) {
        cache_value_free(v);
        b->passing = false;
        return found;
    }
    stats_add(&b->c->stats, COUNT_verify_differed, 1);
    place_put(b->c, b->k, v->data, v->size, true);
    cache_value_free(found);
    return v;
}

static struct cache_value *make_and_publish(struct build *b)
{
    struct cache_value *v = make(b);
    if (v && !v->status && !b->collided) place_put(b->c, b->k, v->data, v->size, b->refused);
    return v;
}

/* Another key's entry in this one's place is counted once, however often it is looked at. */
static void note_missed(struct build *b, const char *missed)
{
    if (missed != entry_collision || b->collided) return;
    b->collided = true;
    stats_add(&b->c->stats, COUNT_collisions, 1);
}

/* What lies on disk now, unless it was refused. */
static struct cache_value *look_again(struct build *b)
{
    const char *missed;
    struct cache_value *v = look_on_disk(b->c, b->k, &missed);
    note_missed(b, missed);
    if (!v || !b->refused || !same_bytes(v, b->refused)) return v;
    cache_value_free(v);
    return NULL;
}

/* ---- Waiting for other processes ---- */

struct turn { /* to make a key, among processes */
    struct lock lock;
    bool store;
    char name[DIGEST_HEX];
};

static enum lock_state try_turn(struct coda_cache *c, struct turn *t, const struct cache_key *k)
{
    if (!place_writable(c)) return LOCK_NONE;
    if (!c->has_store) return lock_try(&t->lock, &c->dir, lock_place(&k->digest));
    if (!c->store.lock || !c->store.unlock) return LOCK_NONE;
    int r = c->store.lock(c->store.ctx, t->name);
    t->store = r > 0;
    return r > 0 ? LOCK_MINE : r == 0 ? LOCK_BUSY : LOCK_NONE;
}

static void end_turn(struct coda_cache *c, struct turn *t)
{
    if (t->store) c->store.unlock(c->store.ctx, t->name);
    lock_release(&t->lock);
}

/* A store's lock says nothing of its holder: all of them count as one. */
static bool is_stuck(struct build *b)
{
    return b->c->has_store ? lock_is_stuck(&b->c->stuck, 0)
                           : lock_is_stuck(&b->c->dir.stuck, lock_place(&b->k->digest));
}

static void give_up(struct build *b, struct turn *t)
{
    stats_add(&b->c->stats, COUNT_wait_timeouts, 1);
    if (b->c->has_store) lock_mark_stuck(&b->c->stuck, 0, 1);
    else lock_give_up(&t->lock, &b->c->dir);
}

/* Until the turn is ours, or what we want has come, or the patience is at its end: ours, or that of
 * somebody before us who has waited for the same holder in vain. */
static struct cache_value *wait_turn(struct build *b, struct turn *t)
{
    int64_t start = now_ns(), nap = 1000000, deadline = start + (int64_t)b->c->wait_ms * 1000000;
    struct stats *s = &b->c->stats;
    struct cache_value *v = NULL;
    enum lock_state state = try_turn(b->c, t, b->k);
    if (state == LOCK_NONE && place_writable(b->c)) stats_add(s, COUNT_lock_unavailable, 1);
    if (state != LOCK_BUSY) return NULL;
    if (is_stuck(b)) return stats_add(s, COUNT_lock_stuck, 1), look_again(b);
    stats_add(s, COUNT_waits, 1);
    while (state == LOCK_BUSY && !v && !b->collided && now_ns() < deadline && !is_stuck(b)) {
        doze(nap);
        if (nap < 8000000) nap *= 2;
        v = look_again(b);
        if (!v) state = try_turn(b->c, t, b->k);
    }
    stats_add(s, COUNT_wait_ns, (uint64_t)(now_ns() - start));
    if (v) stats_add(s, COUNT_wait_hits, 1);
    else if (b->collided) return NULL;
    else if (state == LOCK_BUSY && now_ns() >= deadline) give_up(b, t);
    else if (state == LOCK_BUSY) stats_add(s, COUNT_lock_stuck, 1);
    return v;
}

/* With the turn, the last look: it may have come between the first look and the lock. */
static struct cache_value *take_turn(struct build *b)
{
    struct turn t = {.lock = LOCK_INIT};
    digest_hex(t.name, &b->k->digest);
    bool waits = b->c->wait_ms >= 0 && !cache_is_sealed(b->c) && !b->collided;
    struct cache_value *v = waits ? wait_turn(b, &t) : NULL;
    if (!v && (t.store || t.lock.fd >= 0)) v = look_again(b);
    if (!v) v = make_and_publish(b);
    end_turn(b->c, &t);
    return v;
}

/* ---- Obtaining ---- */

static struct cache_value *build(struct build *b)
{
    bool audit = b->c->flags & CACHE_VERIFY; /* otherwise the bundles were asked already */
    struct cache_value *v = audit ? look_in_bundles(b->c, b->k) : NULL;
    if (!v) v = look_on_disk(b->c, b->k, &b->missed);
    if (v) return audit ? verify(b, v) : v;
    note_missed(b, b->missed);
    stats_add(&b->c->stats, COUNT_misses, 1);
    return take_turn(b);
}

/* Others may have been refused the same, and have made a better one. */
static struct cache_value *rebuild(struct build *b)
{
    place_drop(b->c, b->k, b->refused);
    struct cache_value *v = look_again(b);
    return v ? v : take_turn(b);
}

static const struct cache_value *fly(struct build *b)
{
    struct flight *own;
    const struct cache_value *v;
    if (memo_join(&b->c->memo, b->k, b->refused, &v, &own)) {
        if (v) stats_add(&b->c->stats, v->status ? COUNT_replayed_failures : COUNT_memory_hits, 1);
        return v;
    }
    v = b->refused ? rebuild(b) : build(b);
    if (v) remember(b->c, b->k, v);
    if (own) memo_land(&b->c->memo, own, v, !b->passing);
    return v;
}

const struct cache_value *cache_obtain(struct coda_cache *c, const struct cache_key *k,
                                       const struct cache_maker *m)
{
    const struct cache_value *v = cache_find(c, k);
    if (v) return v;
    struct guard g = guard_enter();
    v = fly(&(struct build){.c = c, .k = k, .m = m, .missed = "absent"});
    guard_leave(g);
    return v;
}

const struct cache_value *cache_renew(struct coda_cache *c, const struct cache_key *k,
                                      const struct cache_maker *m, const struct cache_value *refused)
{
    struct guard g = guard_enter();
    stats_add(&c->stats, COUNT_refused, 1);
    struct build b = {.c = c, .k = k, .m = m, .refused = refused, .missed = "refused"};
    const struct cache_value *v = fly(&b);
    guard_leave(g);
    return v;
}

void cache_forget(struct coda_cache *c)
{
    struct guard g = guard_enter();
    memo_forget(&c->memo);
    guard_leave(g);
}
