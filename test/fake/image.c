/*
 * image.c -- the fakes' board, and their cubin: all that the compiler was given, then noise that only
 * the same input brings forth.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char magic[8] = "fakebin";

struct fake_board *fake_board(void)
{
    static struct fake_board alone;
    static _Atomic(struct fake_board *) board;
    struct fake_board *b = atomic_load(&board), *none = NULL;
    if (b) return b;
    const char *path = getenv("FAKE_BOARD");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    b = map == MAP_FAILED ? &alone : map;
    if (!atomic_compare_exchange_strong(&board, &none, b)) b = none; /* one mapping more does no harm */
    return b;
}

void fake_compile_waits(struct fake_board *b, int us)
{
    enum { NAP_US = 200, MOST_NAPS = 60000000 / NAP_US }; /* others that never come are waited for a minute */
    if (us > 0) usleep((useconds_t)us);
    while (atomic_load(&b->hold)) usleep(NAP_US);
    for (int i = 0; i < MOST_NAPS && atomic_load(&b->most_running) < atomic_load(&b->gather); i++)
        usleep(NAP_US);
}

/* Eight bytes at a time; good enough to tell texts apart, and no more. */
uint64_t fake_digest(uint64_t seed, const void *data, size_t size)
{
    const unsigned char *p = data;
    uint64_t h = seed ^ size * 0x9e3779b97f4a7c15u;
    for (uint64_t word; size; size -= size < 8 ? size : 8, p += 8) {
        word = 0;
        memcpy(&word, p, size < 8 ? size : 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    return h ? h : 1;
}

static void fill_noise(unsigned char *p, size_t size, uint64_t seed)
{
    for (uint64_t word; size; size -= size < 8 ? size : 8, p += 8) {
        word = fake_digest(seed++, "noise", 5);
        memcpy(p, &word, size < 8 ? size : 8);
    }
}

void fake_image_fill(void *out, const char *text, const char *options)
{
    struct fake_image i;
    memcpy(&i, out, sizeof i);
    memcpy(i.magic, magic, sizeof magic);
    memcpy(out, &i, sizeof i);
    char *p = (char *)out + sizeof i;
    memcpy(p, text, i.text);
    memcpy(p + i.text, options, i.options);
    size_t known = sizeof i + i.text + i.options;
    fill_noise((unsigned char *)out + known, i.total - known, fake_digest(0, out, known));
}

const char *fake_image_text(const struct fake_image *i) { return (const char *)(i + 1); }

bool fake_image_good(const void *image)
{
    struct fake_image i;
    memcpy(&i, image, sizeof i);
    const char *text = (const char *)image + sizeof i, *options = text + i.text;
    if (memcmp(i.magic, magic, sizeof magic) || !i.text || !i.options) return false;
    if ((uint64_t)sizeof i + i.text + i.options > i.total || text[i.text - 1] || options[i.options - 1])
        return false;
    void *again = malloc(i.total);
    if (!again) return false;
    memcpy(again, &i, sizeof i);
    fake_image_fill(again, text, options);
    bool same = !memcmp(again, image, i.total);
    free(again);
    return same;
}

/* Takes one line of struct Args: "TensorMap a, b;", "const bf16 *a0;", "void *pointer[3];", "i32 m;" or
 * "Divisor divisor;", or attention's numbers. */
static void read_field(struct fake_fields *l, const char *s, size_t length)
{
    char line[256];
    snprintf(line, sizeof line, "%.*s", (int)(length < 255 ? length : 255), s);
    line[strcspn(line, "/")] = 0; /* the comment */
    const char *bracket = strchr(line, '[');
    size_t n = bracket ? (size_t)atoi(bracket + 1) : 1;
    for (const char *c = line; *c; c++) n += *c == ',';
    if (strstr(line, "TensorMap")) l->parameters += 128 * n;
    else if (strchr(line, '*')) {
        bool written = !strstr(line, "const ") && !strstr(line, "void");
        if (l->n < FAKE_FIELDS) l->field[l->n++] = (struct fake_field){(int)l->parameters, written};
        l->parameters += sizeof(void *) * n;
    } else if (strstr(line, "Divisor")) l->parameters += 12;
    else if (strstr(line, "AttentionStrides")) l->parameters += 24;
    else if (strstr(line, "AttentionExtents")) l->parameters += 64;
    else if (strchr(line, ';')) l->parameters += 4 * n;
}

struct fake_fields fake_image_fields(const struct fake_image *i)
{
    struct fake_fields l = {.n = 0};
    const char *s = strstr(fake_image_text(i), "struct Args {\n"), *end = s ? strstr(s, "\n};") : NULL;
    while (s && s < end) {
        s = strchr(s, '\n') + 1;
        read_field(&l, s, strcspn(s, "\n"));
        s += strcspn(s, "\n");
    }
    return l;
}
