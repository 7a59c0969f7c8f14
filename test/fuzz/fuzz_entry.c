/*
 * fuzz_entry.c -- mutated entries into the parser of entries: fuzz_entry SECONDS [SEED].
 *
 * Bytes are either rejected, or are an entry whose parts lie inside them and which packs into the same
 * bytes again. With a digest made good after the harm, so that the harm gets past it, the sizes near 2^64
 * and the key text are reached. Run it under address and undefined-behaviour sanitizers.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"
#include "util_random.h"

/* Numbers that break sums more often than random ones. */
static const uint64_t evil[] = {
    0,
    1,
    79,
    80,
    81,
    255,
    1u << 28,
    (1u << 28) + 1,
    UINT32_MAX,
    (uint64_t)1 << 32,
    INT64_MAX,
    (uint64_t)1 << 63,
    UINT64_MAX - 80,
    UINT64_MAX - 1,
    UINT64_MAX,
};

struct buffer {
    unsigned char *byte; /* exactly as long as it is, so that a sanitizer sees each step past it */
    size_t size;
};

static void resize(struct buffer *b, size_t size)
{
    unsigned char *more = malloc(size ? size : 1);
    memset(more, 0x5a, size);
    memcpy(more, b->byte, size < b->size ? size : b->size);
    free(b->byte);
    *b = (struct buffer){more, size};
}

static char *random_text(struct random *r, int64_t most)
{
    int64_t n = random_below(r, most);
    char *s = malloc((size_t)n + 1);
    for (int64_t i = 0; i < n; i++) s[i] = random_chance(r, 10) ? '\n' : (char)('a' + random_below(r, 26));
    s[n] = 0;
    return s;
}

/* A good entry of random parts. */
static struct buffer start(struct random *r)
{
    char *key = random_text(r, 600), *note = random_text(r, 300), *data = random_text(r, 2000);
    struct entry e = {.kind = random_chance(r, 50) ? CACHE_KERNEL : CACHE_TUNING,
                      .key = key,
                      .key_size = strlen(key),
                      .note = note,
                      .note_size = strlen(note),
                      .data = data,
                      .data_size = strlen(data)};
    e.what_size = (size_t)random_below(r, (int64_t)e.key_size + 1);
    struct buffer b;
    b.byte = entry_pack(&e, &b.size);
    free(key), free(note), free(data);
    return b;
}

static void mutate(struct random *r, struct buffer *b)
{
    if (!b->size) return;
    size_t at = (size_t)random_below(r, (int64_t)(random_chance(r, 70) && b->size > 96 ? 96 : b->size));
    uint64_t word = evil[random_below(r, ARRAY_SIZE(evil))];
    switch (random_below(r, 5)) {
    case 0: b->byte[at] ^= (unsigned char)(1 << random_below(r, 8)); break;
    case 1: resize(b, (size_t)random_below(r, (int64_t)b->size + 64)); break;
    case 2:
        at &= ~(size_t)7;
        if (at + 8 <= b->size) memcpy(b->byte + at, &word, 8);
        break;
    case 3:
        at &= ~(size_t)3;
        if (at + 4 <= b->size) memcpy(b->byte + at, &word, 4);
        break;
    default: b->byte[at] = (unsigned char)random_below(r, 256);
    }
}

static void stop(const char *what, const struct buffer *b)
{
    fprintf(stderr, "fuzz_entry: %s, %zu bytes:", what, b->size);
    for (size_t i = 0; i < b->size && i < 128; i++) fprintf(stderr, " %02x", b->byte[i]);
    fputc('\n', stderr);
    abort();
}

static void expect_inside(const struct buffer *b, const void *part, size_t size, const char *what)
{
    const unsigned char *p = part;
    if (!size) return;
    if (p < b->byte || size > b->size || p > b->byte + b->size - size) stop(what, b);
}

/* Reads all that the entry says is there; 1 if it is one. */
static int check(const struct buffer *b, struct entry *e)
{
    memset(e, 0, sizeof *e);
    enum entry_fault f = entry_check(e, b->byte, b->size);
    if (f != ENTRY_INTACT && ((int)f < 0 || f >= ENTRY_FAULTS || !*entry_fault_name(f)))
        stop("a fault without a name", b);
    if (f != ENTRY_INTACT) return 0;
    struct cache_key k = cache_key(CACHE_KERNEL, "some\nkey\n", "by\n");
    expect_inside(b, e->key, e->key_size, "a key outside");
    expect_inside(b, e->note, e->note_size, "a note outside");
    expect_inside(b, e->data, e->data_size, "data outside");
    if (e->what_size > e->key_size) stop("more WHAT than key", b);
    entry_match(e, &k);
    size_t size;
    void *again = entry_pack(e, &size);
    if (!again || size != b->size || memcmp(again, b->byte, size)) stop("packs into other bytes", b);
    free(again);
    return 1;
}

/* A digest that is right over a header that lies: entry.c says where it is and what it is of. */
static void make_good(struct buffer *b)
{
    enum { AT_DIGEST = 8, AT_HEADER = 40 };
    if (b->size < ENTRY_HEADER) return;
    struct digest d = digest_of(b->byte + AT_HEADER, b->size - AT_HEADER);
    for (int i = 0; i < 32; i++) b->byte[AT_DIGEST + i] = (unsigned char)(d.word[i / 8] >> i % 8 * 8);
}

/* ---- The same as a file in a cache, which may go on as holes ---- */

static char folder[64] = "/tmp/coda-fuzz-entry-XXXXXX";

/* Whatever lies in an entry's place, of whatever mode: its key is answered with its bytes, or not at all, and
 * who puts it anew finds it. */
static void check_file(struct random *r, const struct buffer *b, const struct cache_key *k, const char *path)
{
    static const mode_t modes[] = {0600, 0644, 0400, 0620, 0602, 0666};
    static const char good[] = "what was put";
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .limit = -1, .overlays = ""});
    void *data;
    size_t size;
    cache_put(c, k, good, sizeof good);
    chmod(path, 0600);
    int fd = open(path, O_WRONLY | O_TRUNC);
    if (fd < 0 || write(fd, b->byte, b->size) != (ssize_t)b->size) stop("cannot be written", b);
    if (random_chance(r, 30) && ftruncate(fd, (off_t)ENTRY_MAX + random_below(r, 3) - 1))
        stop("cannot be long", b);
    fchmod(fd, modes[random_below(r, ARRAY_SIZE(modes))]);
    close(fd);
    if (cache_get(c, k, &data, &size)) stop("another entry is taken", b);
    cache_put(c, k, good, sizeof good);
    if (!cache_get(c, k, &data, &size) || size != sizeof good || memcmp(data, good, size))
        stop("does not heal", b);
    free(data);
    cache_close(c);
}

/* entry_promise says of a header what entry_check would say of the whole, but for the digest. */
static void check_promise(const struct buffer *b)
{
    struct entry e;
    if (b->size < ENTRY_HEADER) return;
    enum entry_fault whole = entry_check(&e, b->byte, b->size), header = entry_promise(b->byte, b->size);
    if (header && whole != header && whole != ENTRY_DIGEST) stop("a header is judged otherwise", b);
    if (!header && whole && whole != ENTRY_DIGEST) stop("a header promised too much", b);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    struct random r = {argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL)};
    unsigned long long seed = r.state;
    time_t begin = time(NULL);
    long tried = 0, intact = 0;
    printf("fuzz_entry: seed %llu\n", seed);
    fflush(stdout);
    char path[200], hex[DIGEST_HEX];
    struct cache_key k = cache_key(CACHE_TUNING, "a key that no mutant has\n", "");
    digest_hex(hex, &k.digest);
    if (!mkdtemp(folder)) return perror(folder), 2;
    snprintf(path, sizeof path, "%s/v2/%c/%s", folder, hex[0], hex + 1);
    while (difftime(time(NULL), begin) < seconds) {
        struct buffer b = start(&r);
        struct entry e;
        if (!b.byte || !check(&b, &e)) stop("a good entry is rejected", &b);
        make_good(&b);
        if (!check(&b, &e)) stop("a digest cannot be made good", &b);
        for (int i = 0; i < 100; i++, tried++) {
            mutate(&r, &b);
            if (random_chance(&r, 60)) make_good(&b);
            intact += check(&b, &e);
            check_promise(&b);
            if (i % 50 == 0) check_file(&r, &b, &k, path);
        }
        free(b.byte);
    }
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command)) return 2;
    printf("fuzz_entry: %ld entries harmed, %ld of them entries still\n", tried, intact);
    return 0;
}
