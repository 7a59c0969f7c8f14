/*
 * kill.c -- a writer killed at every file call of its way, for many sizes: what stays is a whole entry or
 * nothing, and the next process goes on as if nothing had been.
 *
 * Each way is first gone once to count its calls; then a child goes it again and dies before the n-th.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "torture.h"

struct way {
    const char *name;
    bool damaged;  /* there is a damaged entry to replace */
    bool nameless; /* the file system has O_TMPFILE */
    bool evicts;   /* the limit is reached */
    bool durable;
};
static const struct way ways[] = {
    {"a new entry", .nameless = true},
    {"an entry made durable", .nameless = true, .durable = true},
    {"a damaged entry replaced", .nameless = true, .damaged = true},
    {"an entry that evicts others", .nameless = true, .evicts = true},
    {"a new entry where no file is nameless", .nameless = false},
    {"a damaged entry replaced where no file is nameless", .nameless = false, .damaged = true},
};

struct attempt {
    const struct way *way;
    char folder[256];
    size_t size;
    long at;   /* call to die at; 0: none */
    bool tear; /* write calls alone, in the midst of each */
    atomic_long *calls;
};

static void damage_one(const char *path, void *ctx)
{
    size_t size;
    struct stat st;
    unsigned char *bytes = read_whole(path, &size);
    (void)ctx;
    if (bytes && !stat(path, &st) && size > ENTRY_HEADER) {
        bytes[size / 2] ^= 1;
        write_whole(path, bytes, size);
    }
    free(bytes);
}

enum { VICTIMS = 4, VICTIM_BYTES = 20000 };

static void prepare(const struct attempt *a)
{
    remove_tree(a->folder);
    if (!a->way->damaged && !a->way->evicts) return;
    struct coda_cache *c = open_cache(a->folder);
    if (a->way->damaged) obtain_thing(c, 1, a->size);
    for (int i = 0; a->way->evicts && i < VICTIMS; i++) obtain_thing(c, 100 + i, VICTIM_BYTES);
    cache_close(c);
    if (a->way->damaged) walk_files(a->folder, damage_one, NULL);
}

static struct coda_cache *open_way(const struct attempt *a)
{
    return cache_open(
        &(struct cache_options){.dir = a->folder,
                                .limit = a->way->evicts ? (int64_t)a->size + 2 * VICTIM_BYTES : -1,
                                .flags = a->way->durable ? CACHE_DURABLE : 0});
}

static int write_and_die(void *ctx)
{
    struct attempt *a = ctx;
    shim_watch(a->folder);
    shim.all_named = !a->way->nameless;
    shim.only = a->tear ? "write" : NULL;
    shim_arm(a->tear ? SHIM_TEAR : SHIM_KILL, a->at, 0, false);
    struct coda_cache *c = open_way(a);
    bool right = obtain_thing(c, 1, a->size);
    cache_close(c);
    atomic_store(a->calls, shim.count);
    return right ? 0 : 1;
}

/* A process that comes later: right bytes, and the second time without a compile. */
static int look_again(const struct attempt *a)
{
    int bad = 0;
    for (int i = 0; i < 2; i++) {
        int before = atomic_load(&board->compiles);
        struct coda_cache *c = open_way(a);
        if (!obtain_thing(c, 1, a->size)) bad += complain("%s, call %ld: wrong bytes", a->way->name, a->at);
        cache_close(c);
        if (i && atomic_load(&board->compiles) != before)
            bad += complain("%s, call %ld: not healed", a->way->name, a->at);
    }
    return bad;
}

/* Kills at every call; adds to *kills, and to *left the files that stayed behind. */
static long sweep(struct attempt *a, long *kills, long *left)
{
    long bad = 0, calls;
    a->at = 0;
    prepare(a);
    if (reap(spawn(write_and_die, a))) return complain("%s: fails unharmed", a->way->name);
    calls = atomic_load(a->calls);
    for (a->at = 1; a->at <= calls; a->at++, ++*kills) {
        prepare(a);
        int end = reap(spawn(write_and_die, a));
        if (end != 1009)
            bad += complain("%s, call %ld of %ld: ended with %d", a->way->name, a->at, calls, end);
        *left += leftovers(a->folder, NULL);
        bad += look_again(a);
        if (leftovers(a->folder, NULL) > (a->way->nameless ? 0 : 1))
            bad += complain("%s, call %ld: litter", a->way->name, a->at);
    }
    return bad;
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "kill");
    struct attempt a = {.calls = shared_memory(sizeof *a.calls)};
    snprintf(a.folder, sizeof a.folder, "%s", under("cache"));
    uint64_t seed = 1;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        long kills = 0, left = 0, bad = 0;
        int sizes = scaled(w ? 1 : 15, w ? 20 : 1000);
        a.way = &ways[w];
        for (int i = 0; i < sizes; i++) {
            a.size = (size_t)(noise(&seed) % (1u << (4 + i % 15)));
            for (int tear = 0; tear < 2; tear++) {
                a.tear = tear;
                bad += sweep(&a, &kills, &left);
            }
        }
        figure(kills, bad, "%s, killed at each file call x %d sizes, %ld files left behind", ways[w].name,
               sizes, left);
    }
    return torture_end();
}
