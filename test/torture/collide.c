/*
 * collide.c -- a digest of 8 bits: some thousand keys share 256 names in memory, in a directory, in one
 * below it and in a bundle, and none is ever given another's bytes. Nor is any of hundreds of kernels, whose
 * texts' digests stand in their keys and whose images are loaded by their digests, too.
 *
 * The functions below are those of cache/digest.c, which this program so does without. Keys that collide
 * with 256 bits can be made (test/support/util_twins.c), but not by the thousand.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "torture.h"

/* ---- The digest ---- */

enum { DIGESTS = 256 };

static uint64_t mix(uint64_t h, const void *data, size_t size) /* FNV-1a */
{
    const unsigned char *p = data;
    for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static struct digest cut(uint64_t h)
{
    h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u >> 56;
    return (struct digest){{h * 0x0101010101010101u, h, h, h}};
}

struct digest digest_of_two(const void *a, size_t a_size, const void *b, size_t b_size)
{
    return cut(mix(mix(0xcbf29ce484222325u, a, a_size), b, b_size));
}

struct digest digest_of(const void *data, size_t size) { return digest_of_two(data, size, NULL, 0); }

bool digest_equal(const struct digest *a, const struct digest *b) { return !memcmp(a, b, sizeof *a); }

void digest_hex(char out[DIGEST_HEX], const struct digest *d)
{
    for (int i = 0; i < 4; i++) snprintf(out + 16 * i, 17, "%016llx", (unsigned long long)d->word[i]);
}

/* ---- Keys ---- */

static int things; /* 0 .. things - 1 */
static const char nowhere[] = "/dev/null/none";
static char folder[256], bundle[256];

static size_t size_of(int number) { return (size_t)(40 + number % 7); }

/* All of them, `step` apart, so that callers meet them in different orders. */
static int obtain_all(struct coda_cache *c, const char *where, int step)
{
    int bad = 0;
    for (int i = 0; i < things; i++) {
        int number = (int)((long)i * step % things);
        if (!obtain_thing(c, number, size_of(number)))
            bad += complain("%s: thing %d has other bytes", where, number);
    }
    return bad;
}

/* What was counted: `from` found `hits`, at least one and at most one for each name. */
static int expect_few(const char *where, uint64_t hits)
{
    return hits && hits <= DIGESTS ? 0 : complain("%s: %d hits for %d names", where, (int)hits, DIGESTS);
}

static int expect_all(const char *what, uint64_t got, uint64_t want)
{
    return got == want ? 0 : complain("%s: %d instead of %d", what, (int)got, (int)want);
}

/* ---- Each place alone ---- */

/* A thing is made once, though all of its name's neighbours are there, too. */
static void memory(void)
{
    struct coda_cache *c = open_cache(nowhere);
    int bad = obtain_all(c, "memory", 1);
    bad += obtain_all(c, "memory, again", 7);
    bad += expect_all("memory: made", counted(c, COUNT_compiles), (uint64_t)things);
    bad += expect_all("memory: found", counted(c, COUNT_memory_hits), (uint64_t)things);
    cache_close(c);
    figure(2L * things, bad, "%d keys of %d digests in memory: each made once, found once", things, DIGESTS);
}

/* A name holds the first of its keys, whoever comes by later: those are passed over. */
static void directory(void)
{
    int bad = 0, entries, stored = 0;
    cache_close(open_cache(folder));
    for (int turn = 0; turn < 2; turn++) {
        struct coda_cache *c = open_cache(folder);
        bad += obtain_all(c, "directory", turn ? things - 1 : 1);
        uint64_t hits = counted(c, COUNT_disk_hits), passed = counted(c, COUNT_collisions);
        if (turn) bad += expect_all("directory: hits", hits, (uint64_t)stored);
        else bad += expect_all("directory: hits while it is cold", hits, 0);
        bad += expect_all("directory: made or found", counted(c, COUNT_compiles) + hits, (uint64_t)things);
        if (!turn) stored = (int)counted(c, COUNT_stored);
        bad += expect_all("directory: passed over", passed, (uint64_t)(things - stored));
        bad += expect_all("directory: removed", counted(c, COUNT_healed) + counted(c, COUNT_rejected_key), 0);
        cache_close(c);
    }
    if (leftovers(folder, &entries) || entries > DIGESTS) bad += complain("directory: %d entries", entries);
    figure(2L * things, bad, "the same in a directory: %d entries, each for its own key", entries);
}

/* The directory's entries as a bundle's. */
struct blocks {
    struct bundle_block block[DIGESTS];
    int n;
};

static bool take(void *ctx, const struct cache_item *item)
{
    struct blocks *b = ctx;
    void *copy = b->n < DIGESTS && !item->fault ? malloc(item->raw_size) : NULL;
    if (!copy) return complain("%s is rejected: %s", item->name, entry_fault_name(item->fault)), true;
    b->block[b->n++] = (struct bundle_block){memcpy(copy, item->raw, item->raw_size), item->raw_size};
    return true;
}

static int export(void)
{
    char why[CACHE_ERROR];
    struct blocks b = {.n = 0};
    size_t size = 0;
    struct coda_cache *c = open_cache(folder);
    cache_walk(c, take, &b);
    cache_close(c);
    void *data = bundle_pack(b.block, b.n, "eight bits\n", &size, why);
    int bad = data && file_save(bundle, data, size, why) ? 0 : complain("%s", why);
    for (int i = 0; i < b.n; i++) free((void *)b.block[i].data);
    free(data);
    return bad;
}

/* A bundle, and the same entries in a read-only directory, below a cache that has none of its own. */
static int overlay(const char *path, enum cache_counter which, const char *where)
{
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = nowhere, .overlays = path});
    int bad = obtain_all(c, where, 3);
    bad += expect_few(where, counted(c, which));
    bad += expect_all(where, counted(c, COUNT_compiles) + counted(c, which), (uint64_t)things);
    cache_close(c);
    return bad;
}

static void overlays(void)
{
    int bad = export();
    bad += overlay(folder, COUNT_overlay_hits, "a directory below");
    bad += overlay(bundle, COUNT_bundle_hits, "a bundle");
    figure(2L * things, bad, "the same in a read-only directory and in a bundle");
}

/* ---- Threads of several processes ---- */

enum { PROCESSES = 4, THREADS = 4 };
static const int step[THREADS] = {1, 3, 7, 11};

struct one {
    struct coda_cache *c;
    int step, bad;
};

static void *one_thread(void *ctx)
{
    struct one *o = ctx;
    o->bad = obtain_all(o->c, "a crowd", o->step);
    return NULL;
}

/* Within a process each key is made or found once. */
static int one_process(void *ctx)
{
    pthread_t thread[THREADS];
    struct one one[THREADS];
    struct coda_cache *c = open_cache(folder);
    gate_pass(ctx);
    for (int i = 0; i < THREADS; i++) {
        one[i] = (struct one){c, step[i], 0};
        if (pthread_create(&thread[i], NULL, one_thread, &one[i])) return perror("pthread_create"), 2;
    }
    int bad = 0;
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL), bad += one[i].bad;
    bad += expect_all("a crowd: made or found", counted(c, COUNT_compiles) + counted(c, COUNT_disk_hits),
                      (uint64_t)things);
    cache_close(c);
    return bad != 0;
}

static void crowd(void)
{
    pid_t child[PROCESSES];
    struct gate *gate = gate_new(PROCESSES);
    for (int i = 0; i < PROCESSES; i++) child[i] = spawn(one_process, gate);
    int bad = reap_all(child, PROCESSES);
    if (leftovers(folder, NULL)) bad += complain("temporary files stay");
    figure((long)PROCESSES * THREADS * things, bad, "%d processes of %d threads on that directory", PROCESSES,
           THREADS);
}

/* ---- Kernels ---- */

/* All of one name and one length: only their texts and their images differ. */
static coda_status use_one(struct coda_cache *c, int number)
{
    char source[64];
    coda_map_def map = CODA_MAP_DEF_INIT;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){4, 32});
    snprintf(source, sizeof source, "DEV static float apply(float v) { return v * %d.0f; }", 10000 + number);
    map.name = "one";
    map.source = source;
    coda_define_map(g, &map);
    coda_output(g, "y", coda_apply(g, "one", &x, 1, NULL));
    coda_status status = use_graph(c, g);
    coda_graph_free(g);
    return status;
}

/* Compiled, found in memory and on disk, loaded and launched: each time what its own text says. */
static void kernels(void)
{
    int bad = 0, n = scaled(300, 2000);
    snprintf(folder, sizeof folder, "%s", under("kernels"));
    for (int turn = 0; turn < 2; turn++) {
        struct coda_cache *c = open_cache(folder);
        for (int i = 0; i < 2 * n; i++)
            if (use_one(c, i % n)) bad += complain("kernel %d: %s", i % n, coda_error());
        bad += expect_all("kernels: made or found", counted(c, COUNT_compiles) + counted(c, COUNT_disk_hits),
                          (uint64_t)n);
        if (!counted(c, COUNT_collisions)) bad += complain("kernels: none collides");
        coda_cache_free(c);
    }
    figure(4L * n, bad, "%d kernels, by their texts and by their images", n);
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "collide");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    snprintf(bundle, sizeof bundle, "%s", under("things.bundle"));
    board_reset();
    things = scaled(1009, 10007); /* primes, which no step divides */
    memory();
    directory();
    overlays();
    crowd();
    kernels();
    return torture_end();
}
