/* pack_codes.c -- codes and scales of a row, into a record and out of it. Words are little-endian, as all
 * that files and GPUs have. */
#include "pack.h"

#include <string.h>

static uint32_t load32(const void *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

static void store32(void *p, uint32_t w) { memcpy(p, &w, 4); }

static uint32_t rotate(uint32_t w, int left) { return w << (left & 31) | w >> (-left & 31); }

/* The 64 bytes of row r in a tile. */
static size_t place(int tile, int r)
{
    return (size_t)tile * 1024 + (size_t)(r >> 3) * 512 + (size_t)(r & 7) * 64;
}

/* ---- 4 bits ---- */

/* Four codes, a byte each, of k, k + 1, k + 2, k + 3: nibbles 0, 4, 1, 5. */
static uint32_t nibbles_of(uint32_t bytes)
{
    uint32_t x = bytes & 0x0f0f0f0f;
    x |= x >> 12;
    return (x & 0xff) | (x & 0xff00) << 8;
}

static uint32_t bytes_of(uint32_t nibbles)
{
    uint32_t x = nibbles & 0x00ff00ff;
    x = (x | x >> 8) & 0xffff;
    return (x & 0x0f0f) | (x >> 4 & 0x0f0f) << 16;
}

enum { E2M1_MASK = (int)0x81c081c0u };
static const int turn[4] = {0, 4, 10, 14};

/* A word of nibbles as e2m1 has it, and back: a pair's sign at 15, and three bits at 8, 7, 6. */
static uint32_t to_e2m1_word(uint32_t w)
{
    uint32_t out = 0;
    for (int p = 0; p < 4; p++) {
        uint32_t x = w >> 4 * p & 0x000f000f, y = (x & 0x00080008) << 12 | (x & 0x00070007) << 6;
        if (p < 3) out |= rotate(y, -turn[p]);
        else out |= rotate(y & 0x81808180, -turn[p]) | (y & 0x00400040) >> 6;
    }
    return out;
}

static uint32_t from_e2m1_word(uint32_t w)
{
    uint32_t out = 0;
    for (int p = 0; p < 4; p++) {
        uint32_t y = rotate(w, turn[p]) & (uint32_t)E2M1_MASK;
        if (p == 3) y = (y & 0x81808180) | (w << 6 & 0x00400040);
        out |= ((y >> 12 & 0x00080008) | (y >> 6 & 0x00070007)) << 4 * p;
    }
    return out;
}

/* Word j of lane t has the four codes of k = 32 j + 4 t and those 16 further on. */
static void put4(uint8_t *out, const uint8_t *q, bool e2m1)
{
    for (int t = 0; t < 4; t++)
        for (int j = 0; j < 4; j++) {
            const uint8_t *from = q + 32 * j + 4 * t;
            uint32_t w = nibbles_of(load32(from)) | nibbles_of(load32(from + 16)) << 8;
            store32(out + 16 * t + 4 * j, e2m1 ? to_e2m1_word(w) : w);
        }
}

static void get4(const uint8_t *in, uint8_t *q, bool e2m1)
{
    for (int t = 0; t < 4; t++)
        for (int j = 0; j < 4; j++) {
            uint32_t w = load32(in + 16 * t + 4 * j);
            if (e2m1) w = from_e2m1_word(w);
            store32(q + 32 * j + 4 * t, bytes_of(w));
            store32(q + 32 * j + 4 * t + 16, bytes_of(w >> 8));
        }
}

/* ---- 8 bits: four codes are four bytes ---- */

static void put8(uint8_t *out, const uint8_t *q)
{
    for (int t = 0; t < 4; t++)
        for (int j = 0; j < 4; j++) store32(out + 16 * t + 4 * j, load32(q + 16 * j + 4 * t));
}

static void get8(const uint8_t *in, uint8_t *q)
{
    for (int t = 0; t < 4; t++)
        for (int j = 0; j < 4; j++) store32(q + 16 * j + 4 * t, load32(in + 16 * t + 4 * j));
}

/* ---- The upper bits of 5 and 6: n words of a lane ---- */

static size_t high_place(const struct pack_record *p, int tile, int r, int t)
{
    int n = p->bits & 3, lane = 4 * (r & 7) + t;
    return (size_t)(p->high + ((tile * 32 + lane) * 2 + (r >> 3)) * 4 * n);
}

/* What u upper bits of four codes, a byte each, are in a word: those of the first and third side by side, and
 * of the second and fourth 16 bits above. */
static uint32_t upper_of(uint32_t bytes, int u)
{
    uint32_t x = bytes >> 4 & 0x01010101u * ((1u << u) - 1), mask = (1u << 2 * u) - 1;
    x |= x >> (16 - u);
    return (x & mask) | (x >> 8 & mask) << 16;
}

static uint32_t upper_bytes(uint32_t word, int u)
{
    uint32_t mask = (1u << 2 * u) - 1, x = (word & mask) | (word >> 16 & mask) << 8;
    return ((x | x << (16 - u)) & 0x01010101u * ((1u << u) - 1)) << 4;
}

/* Product i of a tile, 16 k of which lane t has four, takes 2 u bits of each half of a word. */
static void put_high(const struct pack_record *p, uint8_t *record, int tile, int r, const uint8_t *q)
{
    int u = p->bits & 3;
    for (int t = 0; t < 4; t++) {
        uint32_t word[2] = {0, 0};
        for (int i = 0; i < 8; i++)
            word[2 * u * i >> 4] |= upper_of(load32(q + 16 * i + 4 * t), u) << (2 * u * i & 15);
        memcpy(record + high_place(p, tile, r, t), word, 4 * (size_t)u);
    }
}

static void get_high(const struct pack_record *p, const uint8_t *record, int tile, int r, uint8_t *q)
{
    int u = p->bits & 3;
    for (int t = 0; t < 4; t++) {
        uint32_t word[2] = {0, 0};
        memcpy(word, record + high_place(p, tile, r, t), 4 * (size_t)u);
        for (int i = 0; i < 8; i++) {
            uint8_t *at = q + 16 * i + 4 * t;
            store32(at, load32(at) | upper_bytes(word[2 * u * i >> 4] >> (2 * u * i & 15), u));
        }
    }
}

/* ---- A row ---- */

void pack_put_codes(const struct pack_record *p, coda_pack_codes codes, uint8_t *record, int r,
                    const uint8_t *q)
{
    for (int i = 0; i < p->tiles; i++, q += p->tile) {
        if (p->bits == 8) put8(record + place(i, r), q);
        else put4(record + place(i, r), q, codes == CODA_CODES_E2M1);
        if (p->bits & 3) put_high(p, record, i, r, q);
    }
}

void pack_get_codes(const struct pack_record *p, coda_pack_codes codes, const uint8_t *record, int r,
                    uint8_t *q)
{
    for (int i = 0; i < p->tiles; i++, q += p->tile) {
        if (p->bits == 8) get8(record + place(i, r), q);
        else get4(record + place(i, r), q, codes == CODA_CODES_E2M1);
        if (p->bits & 3) get_high(p, record, i, r, q);
    }
}

/* ---- Scales: rows r and r + 8 side by side ---- */

static int beside(int r) { return (r & 7) * 2 + (r >> 3); }

/* Half of a word that rows r and r + 8 share. */
static void put_half(uint8_t *word, int half, int x) { memcpy(word + 2 * half, &(uint16_t){(uint16_t)x}, 2); }

static int get_half(const uint8_t *word, int half)
{
    uint16_t x;
    memcpy(&x, word + 2 * half, 2);
    return x;
}

/* Where the words of row r are that have d, the upper bits of minima of four groups, and two groups. */
static int place_d(int r) { return 8 * (r & 7); }
static int place_upper(int r, int g) { return 64 + 32 * (g >> 2) + 4 * (r & 7); }
static int place_lower(int r, int g) { return 128 + 64 * (g >> 2) + 8 * (r & 7) + 4 * (g >> 1 & 1); }

static void put_u6(uint8_t *out, int r, const struct pack_scales *s)
{
    const uint8_t *a = s->scale, *b = s->second;
    const int half = r >> 3;
    put_half(out + place_d(r), half, s->d);
    put_half(out + place_d(r) + 4, half, s->second_d);
    for (int g = 0; g < 8; g += 2)
        put_half(out + place_lower(r, g), half,
                 (a[g] << 2 & 255) | (b[g] & 3) | (a[g + 1] << 2 & 255) << 8 | (b[g + 1] & 3) << 8);
    for (int run = 0; run < 8; run += 4) {
        int upper = 0;
        for (int t = 0; t < 4; t++) upper |= (b[run + t] >> 2 & 15) << 4 * t;
        put_half(out + place_upper(r, run), half, upper);
    }
}

static void get_u6(const uint8_t *in, int r, struct pack_scales *s)
{
    const int half = r >> 3;
    s->d = (uint16_t)get_half(in + place_d(r), half);
    s->second_d = (uint16_t)get_half(in + place_d(r) + 4, half);
    for (int g = 0; g < 8; g++) {
        int lower = get_half(in + place_lower(r, g), half) >> 8 * (g & 1);
        int upper = get_half(in + place_upper(r, g), half) >> 4 * (g & 3);
        s->scale[g] = (uint8_t)(lower >> 2 & 63);
        s->second[g] = (uint8_t)((upper & 15) << 2 | (lower & 3));
    }
}

/* Where group g of row r is: byte 2 i + half of word t of the row and a run of 128 k has group t + 4 i. */
static int place_i8(int r, int g)
{
    return (g >> 3) * 128 + 16 * (r & 7) + 4 * (g & 3) + 2 * (g >> 2 & 1) + (r >> 3);
}

static void put_i8(uint8_t *out, int r, const struct pack_scales *s)
{
    for (int g = 0; g < 16; g++) out[place_i8(r, g)] = s->scale[g];
    memcpy(out + 256 + 2 * beside(r), &s->d, 2);
}

static void get_i8(const uint8_t *in, int r, struct pack_scales *s)
{
    for (int g = 0; g < 16; g++) s->scale[g] = in[place_i8(r, g)];
    memcpy(&s->d, in + 256 + 2 * beside(r), 2);
}

/* Element i of `from` goes to element 16 i of `to`, or back; 1, 2 or 4 bytes each. */
static void scatter(uint8_t *to, const uint8_t *from, int n, int size)
{
    for (int i = 0; i < n && size == 1; i++) to[PACK_ROWS * i] = from[i];
    for (int i = 0; i < n && size == 2; i++) memcpy(to + 2 * PACK_ROWS * i, from + 2 * i, 2);
    for (int i = 0; i < n && size == 4; i++) memcpy(to + 4 * PACK_ROWS * i, from + 4 * i, 4);
}

static void collect(uint8_t *to, const uint8_t *from, int n, int size)
{
    for (int i = 0; i < n && size == 1; i++) to[i] = from[PACK_ROWS * i];
    for (int i = 0; i < n && size == 2; i++) memcpy(to + 2 * i, from + 2 * PACK_ROWS * i, 2);
    for (int i = 0; i < n && size == 4; i++) memcpy(to + 4 * i, from + 4 * PACK_ROWS * i, 4);
}

void pack_put_scales(const struct pack_format *f, const struct pack_record *p, uint8_t *record, int r,
                     const struct pack_scales *s)
{
    int i = beside(r), size = pack_scale_bytes(f), second = f->zeros == CODA_ZEROS_POINTS ? 1 : size;
    if (f->scales == CODA_SCALES_F16_U6) return put_u6(record + p->scales, r, s);
    if (f->scales == CODA_SCALES_F16_I8) return put_i8(record + p->scales, r, s);
    scatter(record + p->scales + i * size, s->scale, p->groups, size);
    if (f->zeros) scatter(record + p->second + i * second, s->second, p->groups, second);
}

void pack_get_scales(const struct pack_format *f, const struct pack_record *p, const uint8_t *record, int r,
                     struct pack_scales *s)
{
    int i = beside(r), size = pack_scale_bytes(f), second = f->zeros == CODA_ZEROS_POINTS ? 1 : size;
    if (f->scales == CODA_SCALES_F16_U6) return get_u6(record + p->scales, r, s);
    if (f->scales == CODA_SCALES_F16_I8) return get_i8(record + p->scales, r, s);
    collect(s->scale, record + p->scales + i * size, p->groups, size);
    if (f->zeros) collect(s->second, record + p->second + i * second, p->groups, second);
}
