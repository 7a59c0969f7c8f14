/*
 * png.c -- writes PNG: a signature; chunks of a length, a name, bytes and their CRC; in the chunk IDAT a
 * stream of zlib (RFC 1950) whose blocks are stored (RFC 1951), and which ends with Adler's sum of all rows.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "png.h"

enum { BLOCK = 65535 }; /* bytes of a stored block, at most */

struct png {
    FILE *file;
    uint32_t crc;   /* of the chunk */
    uint32_t a, b;  /* Adler's sums */
    uint64_t left;  /* bytes of all rows that are not written */
    uint32_t block; /* of these, in the block */
};

/* The remainder by the polynomial of ISO 3309, bit by bit. */
static uint32_t crc_of(uint32_t crc, const uint8_t *p, size_t n)
{
    for (; n; n--, p++) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return crc;
}

static void put(struct png *p, const void *from, size_t n)
{
    p->crc = crc_of(p->crc, from, n);
    fwrite(from, 1, n, p->file);
}

static void put_number(struct png *p, uint32_t x)
{
    put(p, (uint8_t[]){(uint8_t)(x >> 24), (uint8_t)(x >> 16), (uint8_t)(x >> 8), (uint8_t)x}, 4);
}

static void begin(struct png *p, const char *name, uint32_t bytes)
{
    put_number(p, bytes);
    p->crc = ~0u;
    put(p, name, 4);
}

static void end(struct png *p) { put_number(p, ~p->crc); }

static void put_row(struct png *p, const uint8_t *row, size_t n)
{
    for (size_t some; n; row += some, n -= some, p->left -= some, p->block -= (uint32_t)some) {
        if (!p->block) {
            uint32_t size = p->block = p->left < BLOCK ? (uint32_t)p->left : BLOCK;
            put(p,
                (uint8_t[]){size == p->left, (uint8_t)size, (uint8_t)(size >> 8), (uint8_t)~size,
                            (uint8_t)(~size >> 8)},
                5);
        }
        some = n < p->block ? n : p->block;
        for (size_t i = 0; i < some; i++) {
            p->a = (p->a + row[i]) % 65521;
            p->b = (p->b + p->a) % 65521;
        }
        put(p, row, some);
    }
}

static void put_all(struct png *p, const struct image *i)
{
    size_t wide = (size_t)i->width * (size_t)i->channels;
    p->left = (uint64_t)(wide + 1) * (uint64_t)i->height;
    uint64_t blocks = (p->left + BLOCK - 1) / BLOCK;
    fwrite("\x89PNG\r\n\x1a\n", 1, 8, p->file);
    begin(p, "IHDR", 13);
    put_number(p, (uint32_t)i->width);
    put_number(p, (uint32_t)i->height);
    put(p, (uint8_t[]){8, i->channels == 3 ? 2 : 0, 0, 0, 0}, 5); /* bits, colours, one method of each */
    end(p);
    begin(p, "IDAT", (uint32_t)(p->left + 5 * blocks + 6));
    put(p, (uint8_t[]){0x78, 1}, 2);
    for (int y = 0; y < i->height; y++) {
        put_row(p, (uint8_t[]){0}, 1); /* no filter */
        put_row(p, i->pixel + (size_t)y * wide, wide);
    }
    put_number(p, p->b << 16 | p->a);
    end(p);
    begin(p, "IEND", 0);
    end(p);
}

bool png_write(const char *path, const struct image *i, struct fault *f)
{
    struct png p = {.file = fopen(path, "wbe"), .a = 1};
    if (!p.file) return fault_set(f, "%s: %s", path, strerror(errno));
    put_all(&p, i);
    bool bad = ferror(p.file) != 0;
    if (fclose(p.file) || bad) return fault_set(f, "%s: it cannot be written: %s", path, strerror(errno));
    return true;
}
