/*
 * bench_memo.c -- the parts of the cache that no call of coda.h shows by itself, run by hand:
 *
 *     make build/bench_memo && build/bench_memo
 *
 * A value found in memory, from 1 to 8 threads; an entry of 100 kB from disk, opened, copied and checked;
 * the same stored. Medians of ROUNDS.
 */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 100, ROUNDS = 31, LOOKUPS = 100000, SIZE = 100000, MOST = 8 };

static struct coda_cache *c;
static struct cache_key key[KEYS];
static char payload[SIZE];

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void say(const char *what, double *v, const char *unit)
{
    qsort(v, ROUNDS, sizeof *v, by_value);
    printf("%-44s %8.1f %s   %.1f .. %.1f\n", what, v[ROUNDS / 2], unit, v[0], v[ROUNDS - 1]);
}

static int make(void *ctx, void **data, size_t *size, char *err, bool *passing)
{
    (void)ctx, (void)err, (void)passing;
    *data = memcpy(malloc(SIZE), payload, SIZE);
    *size = SIZE;
    return 0;
}

/* Nanoseconds a lookup. */
static void *look(void *ctx)
{
    int64_t start = now_ns();
    for (int i = 0; i < LOOKUPS; i++) cache_value_free(cache_find(c, &key[i % KEYS]));
    *(double *)ctx = (double)(now_ns() - start) / LOOKUPS;
    return NULL;
}

static void measure_memory(int threads)
{
    double v[ROUNDS], each[MOST];
    char what[64];
    pthread_t thread[MOST];
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 1; i < threads; i++) pthread_create(&thread[i], NULL, look, &each[i]);
        look(&each[0]);
        for (int i = 1; i < threads; i++) pthread_join(thread[i], NULL);
        v[r] = each[0];
    }
    snprintf(what, sizeof what, "found in memory, %d thread%s", threads, threads > 1 ? "s" : "");
    say(what, v, "ns");
}

static void measure_keys(void)
{
    double v[ROUNDS];
    uint64_t sum = 0;
    for (int r = 0; r < ROUNDS; r++) {
        int64_t start = now_ns();
        for (int i = 0; i < LOOKUPS; i++)
            sum += cache_key(CACHE_KERNEL, key[i % KEYS].what, NULL).digest.word[0];
        v[r] = (double)(now_ns() - start) / LOOKUPS;
    }
    say(sum ? "a key of its text of 500 bytes" : "", v, "ns");
}

static void measure_disk(void)
{
    double get[ROUNDS], put[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        int64_t start = now_ns();
        for (int i = 0; i < KEYS; i++) cache_put(c, &key[i], payload, SIZE);
        int64_t middle = now_ns();
        for (int i = 0; i < KEYS; i++) {
            void *data = NULL;
            size_t size;
            if (cache_get(c, &key[i], &data, &size)) free(data);
            else puts("a miss");
        }
        put[r] = (double)(middle - start) / KEYS * 1e-3;
        get[r] = (double)(now_ns() - middle) / KEYS * 1e-3;
    }
    say("from disk, 100 kB, checked", get, "us");
    say("to disk, 100 kB", put, "us");
}

int main(void)
{
    static char what[KEYS][501];
    char dir[] = "/tmp/coda-bench-XXXXXX", remove[64];
    if (!mkdtemp(dir)) return perror(dir), 1;
    c = cache_open(&(struct cache_options){.dir = dir});
    for (int i = 0; i < SIZE; i++) payload[i] = (char)(i * 131 >> 3);
    for (int i = 0; i < KEYS; i++) {
        memset(what[i], 'a' + i % 26, 500);
        memcpy(what[i], &i, 1);
        if (!what[i][0]) what[i][0] = 'z';
        key[i] = cache_key(CACHE_KERNEL, what[i], "nvrtc 13.0\n");
        cache_value_free(cache_obtain(c, &key[i], &(struct cache_maker){.make = make}));
    }
    for (int threads = 1; threads <= MOST; threads *= 2) measure_memory(threads);
    measure_keys();
    measure_disk();
    cache_close(c);
    snprintf(remove, sizeof remove, "rm -rf %s", dir);
    return system(remove) != 0;
}
