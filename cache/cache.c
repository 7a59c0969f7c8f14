/*
 * cache.c -- a cache is opened by its options and the environment, asked plainly, looked through, closed.
 *
 * Whatever of it cannot be had is left out, and the reason is kept.
 */
#include "inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Open and close ---- */

static void push_bundle(struct coda_cache *c, struct bundles *b)
{
    b->next = atomic_load(&c->bundles);
    while (!atomic_compare_exchange_weak(&c->bundles, &b->next, b)) {}
}

static bool add_bundle(struct coda_cache *c, struct bundle *bundle)
{
    struct bundles *b = bundle ? malloc(sizeof *b) : NULL;
    if (!b) return bundle_close(bundle), false;
    b->bundle = bundle;
    push_bundle(c, b);
    return true;
}

static void add_directory(struct coda_cache *c, char *path)
{
    struct dir *more = realloc(c->overlay, sizeof *more * (size_t)(c->overlays + 1));
    if (!more) return free(path);
    c->overlay = more;
    struct dir *d = &more[c->overlays];
    *d = (struct dir){.stats = &c->stats};
    if (dir_open(d, path, CACHE_READ_ONLY | (c->flags & CACHE_SHARED))) c->overlays++;
    else {
        problem_add(c->dir.problem, "%s", d->problem);
        dir_close(d);
    }
}

static void add_overlay(struct coda_cache *c, const char *path, size_t length)
{
    struct stat st;
    char why[CACHE_ERROR], *name = length ? strndup(path, length) : NULL;
    if (!name) return;
    if (stat(name, &st)) problem_add(c->dir.problem, "%.300s cannot be opened: %s", name, error_text(errno));
    else if (S_ISDIR(st.st_mode)) return add_directory(c, name);
    else if (!add_bundle(c, bundle_open(name, c->flags, why))) problem_add(c->dir.problem, "%s", why);
    free(name);
}

static void add_overlays(struct coda_cache *c, const char *list)
{
    while (list && *list) {
        size_t n = strcspn(list, ":");
        add_overlay(c, list, n);
        list += n + (list[n] == ':');
    }
}

static void open_place(struct coda_cache *c, const struct cache_options *o)
{
    char *problem = c->dir.problem;
    c->dir.stats = &c->stats;
    c->dir.fd = -1;
    c->dir.fs = "";
    c->dir.limit = o->limit ? o->limit : setting_size("CODA_CACHE_LIMIT", CACHE_LIMIT, problem);
    if (o->store) {
        c->store = *o->store;
        c->has_store = true;
        if (c->flags & CACHE_READ_ONLY) c->store.drop = NULL;
    } else dir_open(&c->dir, o->dir ? setting_path(o->dir, problem) : dir_default(problem), c->flags);
}

/* A program that is not looked for on the PATH is where it is now. */
static char *find_helper(const char *helper, char *problem)
{
    if (!helper) return NULL;
    return strchr(helper, '/') ? setting_path(helper, problem) : strdup(helper);
}

struct coda_cache *cache_open(const struct cache_options *options)
{
    static const struct cache_options none;
    const struct cache_options *o = options ? options : &none;
    struct guard g = guard_enter();
    struct coda_cache *c = calloc(1, sizeof *c);
    if (c) {
        char *problem = c->dir.problem;
        const char *record = o->record ? o->record : environment("CODA_RECORD");
        memo_init(&c->memo);
        c->flags = o->flags | (setting_flag("CODA_CACHE_READ_ONLY", problem) ? CACHE_READ_ONLY : 0u) |
                   (setting_flag("CODA_CACHE_VERIFY", problem) ? CACHE_VERIFY : 0u);
        c->wait_ms = o->wait_ms ? o->wait_ms : CACHE_WAIT_MS;
        c->compile_ms = o->compile_ms;
        c->record = record && *record ? setting_path(record, problem) : NULL;
        c->helper = find_helper(o->helper, problem);
        open_place(c, o);
        add_overlays(c, o->overlays ? o->overlays : environment("CODA_BUNDLES"));
    }
    guard_leave(g);
    return c;
}

void cache_close(struct coda_cache *c)
{
    if (!c) return;
    memo_free(&c->memo);
    dir_close(&c->dir);
    for (int i = 0; i < c->overlays; i++) dir_close(&c->overlay[i]);
    for (struct bundles *b = atomic_load(&c->bundles), *next; b; b = next) {
        next = b->next;
        bundle_close(b->bundle);
        free(b);
    }
    free(c->overlay);
    free(c->record);
    free(c->helper);
    free(c);
}

const char *cache_dir(const struct coda_cache *c) { return c->dir.fd >= 0 ? c->dir.path : ""; }
const char *cache_problem(const struct coda_cache *c) { return c->dir.problem; }
void cache_seal(struct coda_cache *c, bool sealed) { atomic_store(&c->sealed, sealed); }
bool cache_is_sealed(const struct coda_cache *c) { return atomic_load(&c->sealed); }
unsigned cache_flags(const struct coda_cache *c) { return c->flags; }
const char *cache_helper(const struct coda_cache *c) { return c->helper; }
int cache_compile_ms(const struct coda_cache *c) { return c->compile_ms; }
struct stats *cache_stats(struct coda_cache *c) { return &c->stats; }

bool cache_add_bundle(struct coda_cache *c, const void *data, size_t size, char *why)
{
    struct bundle *b = bundle_of(data, size, why);
    if (!b) return false;
    if (add_bundle(c, b)) return true;
    snprintf(why, CACHE_ERROR, "out of memory for a bundle");
    return false;
}

int64_t cache_stats_print(struct coda_cache *c, char *buf, size_t size)
{
    struct guard g = guard_enter();
    int64_t n = stats_print(&c->stats, &c->dir, buf, size);
    guard_leave(g);
    return n;
}

/* ---- Plain get and put ---- */

bool cache_get(struct coda_cache *c, const struct cache_key *k, void **data, size_t *size)
{
    struct guard g = guard_enter();
    struct cache_value *v = obtain_look(c, k);
    bool found = v;
    if (v) {
        *data = v->data;
        *size = v->size;
        v->data = NULL;
        if (c->record) record_key(c->record, k);
    }
    cache_value_free(v);
    guard_leave(g);
    return found;
}

void cache_put(struct coda_cache *c, const struct cache_key *k, const void *data, size_t size)
{
    struct guard g = guard_enter();
    if (place_is_taken(c, k)) stats_add(&c->stats, COUNT_collisions, 1);
    else place_put(c, k, data, size, true);
    guard_leave(g);
}

/* ---- The directory as a whole ---- */

bool cache_walk(struct coda_cache *c, bool (*visit)(void *ctx, const struct cache_item *item), void *ctx)
{
    struct guard g = guard_enter();
    bool good = walk_dir(&c->dir, visit, ctx);
    guard_leave(g);
    return good;
}

bool cache_prune(struct coda_cache *c, struct cache_prune *p)
{
    struct guard g = guard_enter();
    p->removed = p->removed_bytes = p->kept = p->kept_bytes = 0;
    bool good = evict_prune(&c->dir, p);
    guard_leave(g);
    return good;
}

bool cache_import(struct coda_cache *c, const void *raw, size_t raw_size)
{
    struct guard g = guard_enter();
    bool good = place_import(c, raw, raw_size);
    guard_leave(g);
    return good;
}
