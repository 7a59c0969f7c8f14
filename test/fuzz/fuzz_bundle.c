/*
 * fuzz_bundle.c -- mutated bundles into the reader: fuzz_bundle SECONDS [SEED].
 *
 * Bytes are either refused with one line, or make a bundle in which every block can be read to its end and
 * every key is answered with what was packed for it, or not at all. Half of the mutants get a right digest
 * again, so that they come past it. Run it under address and undefined-behaviour sanitizers.
 */
#include "base.h"
#include "cache.h"
#include "util_folder.h"
#include "util_random.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 12, PAYLOAD = 300, AT_COUNT = 40, HEADER = 64, ROW = 48 };

struct sample {
    char what[32];
    unsigned char data[PAYLOAD];
    size_t size;
};

struct pack {
    struct sample sample[MOST];
    int count;
    unsigned char *bytes;
    size_t size;
};

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "fuzz_bundle: %s: %s\n", what, why);
    abort();
}

static struct bundle_block make_entry(struct random *r, struct sample *s)
{
    struct bundle_block b;
    char key[64];
    snprintf(s->what, sizeof s->what, "what %llx\n", (unsigned long long)random_next(r));
    s->size = (size_t)random_below(r, PAYLOAD);
    for (size_t i = 0; i < s->size; i++) s->data[i] = (unsigned char)random_next(r);
    int n = snprintf(key, sizeof key, "%sby me\n", s->what);
    struct entry e = {.kind = CACHE_KERNEL,
                      .key = key,
                      .key_size = (size_t)n,
                      .what_size = strlen(s->what),
                      .note = key,
                      .note_size = (size_t)random_below(r, n),
                      .data = s->data,
                      .data_size = s->size};
    b.data = entry_pack(&e, &b.size);
    if (!b.data) stop("entry_pack", "out of memory");
    return b;
}

static struct pack make_pack(struct random *r)
{
    struct pack p = {.count = (int)random_below(r, MOST + 1)};
    struct bundle_block block[MOST];
    char why[CACHE_ERROR];
    for (int i = 0; i < p.count; i++) block[i] = make_entry(r, &p.sample[i]);
    p.bytes = bundle_pack(block, p.count, "made by a fuzzer\n", &p.size, why);
    if (!p.bytes) stop("bundle_pack", why);
    for (int i = 0; i < p.count; i++) free((void *)block[i].data);
    return p;
}

static void put_u64(unsigned char *p, uint64_t x)
{
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(x >> 8 * i);
}

static void seal(unsigned char *p, size_t size)
{
    if (size < HEADER) return;
    struct digest d = digest_of(p + AT_COUNT, size - AT_COUNT);
    for (int i = 0; i < 4; i++) put_u64(p + 8 + 8 * i, d.word[i]);
}

/* A number that breaks sums: near what fits, or near the ends of 64 bits. */
static uint64_t hostile_number(struct random *r, size_t size)
{
    static const uint64_t base[] = {0, UINT64_MAX, (uint64_t)1 << 63, (uint64_t)1 << 32, UINT64_MAX / ROW};
    uint64_t near = (uint64_t)random_below(r, 33) - 16;
    int64_t pick = random_below(r, ARRAY_SIZE(base) + 2);
    return near + (pick < ARRAY_SIZE(base) ? base[pick] : pick == ARRAY_SIZE(base) ? size : size / 2);
}

/* In the header or the index, where it matters most, or anywhere. */
static size_t place(struct random *r, size_t size, int count)
{
    size_t front = (size_t)(HEADER + count * ROW);
    return (size_t)random_below(r, (int64_t)(random_below(r, 2) ? MIN(front, size) : size));
}

static void mutate(struct random *r, unsigned char *p, size_t size, int count)
{
    size_t at = place(r, size, count), from = place(r, size, count);
    size_t n = (size_t)random_below(r, (int64_t)MIN((size_t)64, size - MAX(at, from)) + 1);
    switch (random_below(r, 4)) {
    case 0: p[at] ^= (unsigned char)(1 << random_below(r, 8)); break;
    case 1: memmove(p + at, p + from, n); break;
    case 2: memset(p + at, 0, n); break;
    default:
        at = at / 8 * 8;
        if (at + 8 <= size) put_u64(p + at, hostile_number(r, size));
    }
}

static void check_blocks(const struct bundle *b)
{
    static volatile unsigned sum; /* so that the reads stay */
    for (int i = 0; i < bundle_count(b); i++) {
        size_t size;
        const unsigned char *block = bundle_block(b, i, &size);
        for (size_t j = 0; j < size; j++) sum = sum + block[j];
    }
    if (strlen(bundle_manifest(b)) > 1 << 20) stop("manifest", "too long");
}

/* Returns 1 if the bytes are a bundle; *found counts the keys that it answers. */
static int check(const struct pack *p, const unsigned char *bytes, size_t size, int *found)
{
    char why[CACHE_ERROR] = "";
    struct bundle *b = bundle_of(bytes, size, why);
    *found = 0;
    if (!b && (!why[0] || strchr(why, '\n'))) stop("refused badly", why);
    if (!b) return 0;
    check_blocks(b);
    for (int i = 0; i < p->count; i++) {
        struct entry e;
        struct cache_key k = cache_key(CACHE_KERNEL, p->sample[i].what, NULL);
        if (!bundle_find(b, &k, &e, NULL)) continue;
        if (e.data_size != p->sample[i].size || memcmp(e.data, p->sample[i].data, e.data_size))
            stop("serves other bytes than were packed", p->sample[i].what);
        ++*found;
    }
    bundle_close(b);
    return 1;
}

/* ---- The same as a file, which may go on as holes for gigabytes ---- */

static char path[64] = "/tmp/coda-fuzz-bundle-XXXXXX";

/* The same answer as that of the bytes; with holes behind them none that takes memory: the file promises
 * what it has not, or its header was made to promise all of it. */
static void check_file(struct random *r, unsigned char *bytes, size_t size, int valid)
{
    static const uint64_t wholes[] = {(uint64_t)1 << 28, (uint64_t)1 << 32, ((uint64_t)1 << 32) - 1,
                                      (uint64_t)1 << 40};
    bool sparse = random_below(r, 2);
    uint64_t whole = sparse ? wholes[random_below(r, ARRAY_SIZE(wholes))] : size;
    char why[CACHE_ERROR] = "";
    int fd = open(path, O_WRONLY | O_TRUNC);
    if (sparse && size >= HEADER && random_below(r, 2)) put_u64(bytes + HEADER - 8, whole);
    if (fd < 0 || write(fd, bytes, size) != (ssize_t)size || ftruncate(fd, (off_t)whole))
        stop(path, "cannot be written");
    close(fd);
    struct bundle *b = bundle_open(path, 0, why);
    if (sparse && b) stop("a file of holes", "is a bundle");
    if (sparse && strstr(why, "memory")) stop("a file of holes", why);
    if (!sparse && !b != !valid) stop("a file is judged otherwise than its bytes", why);
    if (!b && (strncmp(why, path, strlen(path)) || strchr(why, '\n'))) stop("refused badly", why);
    bundle_close(b);
}

/* A copy of exactly its size, so that a sanitizer sees a read too far. */
static int check_mutant(struct random *r, const struct pack *p)
{
    size_t size = random_below(r, 4) ? p->size : (size_t)random_below(r, (int64_t)p->size + 64);
    unsigned char *bytes = calloc(1, size + !size);
    int found;
    if (!bytes) stop("a copy", "out of memory");
    memcpy(bytes, p->bytes, MIN(size, p->size));
    for (int64_t n = random_below(r, 4); size && n >= 0; n--) mutate(r, bytes, size, p->count);
    if (size >= HEADER && random_below(r, 2)) put_u64(bytes + HEADER - 8, size);
    if (random_below(r, 2)) seal(bytes, size);
    int valid = check(p, bytes, size, &found);
    if (random_below(r, 16) == 0) check_file(r, bytes, size, valid);
    free(bytes);
    return valid;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    struct random r = {argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL)};
    unsigned long long seed = r.state;
    time_t begin = time(NULL);
    long mutants = 0, bundles = 0;
    int found;
    printf("fuzz_bundle: seed %llu\n", seed);
    int fd = mkstemp(path);
    if (fd < 0 || close(fd)) stop(path, "cannot be made");
    memory_limit((size_t)1 << 30); /* too little for what holes could promise */
    fflush(stdout);
    while (difftime(time(NULL), begin) < seconds) {
        struct pack p = make_pack(&r);
        if (!check(&p, p.bytes, p.size, &found) || found != p.count) stop("a bundle", "is not what was made");
        for (int i = 0; i < 1000; i++, mutants++) bundles += check_mutant(&r, &p);
        free(p.bytes);
    }
    unlink(path);
    printf("fuzz_bundle: %ld mutants, %ld of them bundles, seed %llu: ok\n", mutants, bundles, seed);
    return 0;
}
