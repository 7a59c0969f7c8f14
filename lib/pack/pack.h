/*
 * pack.h -- what a packed weight is: codes of few bits with scales, in records for tensor cores.
 *
 * A matrix [N, K] is [ceil N/16][ceil K/step] RECORDS of 16 rows x step k. A warp multiplies with the 16
 * rows as the A operand of mma.m16n8k16: of its 32 lanes, lane 4 r + t has rows r and r + 8 and finds its
 * fragments by wide loads and masks. A record is these parts, each a multiple of 16 bytes:
 *
 *     codes     TILES of 1024 bytes, of 128 k (4 to 6 bits) or 64 k (8 bits): [half][lane][16 bytes]; half 1
 *               has rows 8 to 15. So the part of row r in a half is 64 bytes that follow one another.
 *               4 bits: nibbles p and p + 4, p = 0..3, of word j of a lane are k = 16 (2 j + (p >> 1)) + 4 t
 *               + 2 (p & 1) and its successor. e2m1 has the same codes in a word, its bits spread as below.
 *               8 bits: byte b of word j is k = 16 j + 4 t + b.
 *     high      the upper 1 or 2 bits of 5 and 6: for each tile [lane][half][1 or 2 words]. With u upper
 *               bits, those of pair p of word j lie at bit i mod 16 of word i / 16, i = u (4 j + p), for
 *               the first k, and 16 bits above for the second, as nibbles p and p + 4 have them.
 *     scales    [group][8][2]: rows r and r + 8 side by side. f16u6 and f16i8: see below
 *     second    zero points (bytes) or minima (as scales), [group][8][2]
 *
 * f16u6 (step 256, 8 groups, four in each RUN of 128 k): words whose lower halves are row r's, r < 8, and
 * the upper ones row r + 8's. [8][2]: d and -dmin as f16. [run][8]: the upper 4 bits of minima, of group t
 * of the run at bit 4 t. [run][8][2]: a byte for each group, of its scale 6 bits above the lower 2 of its
 * minimum. So one shift and a mask give what both rows have of a group. w = d a q + (-dmin) b.
 * f16i8 (step 256, 16 groups, eight in each run): [run][8][4] words of signed bytes, of group t for rows r
 * and r + 8, then of group t + 4; then d as f16, [8][2]. w = d a q.
 *
 * e2m1: a rotation to the left of 0, 4, 10 for pair p = 0, 1, 2 takes the sign and the three bits of its two
 * codes to bits 15, 8, 7, 6 and 31, 24, 23, 22, where they are bf16 times 2^-126; one of 14 does so for pair
 * 3, but for the last bits, which lie at 0 and 16.
 *
 * Integers are kept as q plus half their range (int8: as they are), with a zero point or a minimum as q.
 * A group of more than a step, or of a whole row, has its scale in each of its records. What fills up rows
 * and columns decodes to 0.
 *
 * Groups that are neither 16, 32, 64 nor a multiple of 128 have GAPS: each has the place of the next larger
 * one of these, and leaves what it does not need of it. So of groups of 125 column 125 is at k = 128.
 */
#ifndef PACK_H
#define PACK_H

#include "base.h"

struct pack_format {
    coda_pack_codes codes;
    coda_pack_scales scales;
    coda_pack_zeros zeros;
    int32_t group; /* k of a scale; 0: the whole row */
};

/* A record in numbers, all made from a format. Places in bytes from its beginning. */
struct pack_record {
    int bits;        /* of a code */
    int tile, tiles; /* k of one; how many */
    int step;        /* k of the record */
    int groups;      /* scales of a row in the record, */
    int group;       /* each of so many k, gaps included */
    int high, scales, second;
    int bytes;
};

enum { PACK_ROWS = 16, PACK_STEP_MOST = 256, PACK_GROUPS_MOST = 16, PACK_WORD_SIZE = 48 };

/* CODA_E_INVALID with one line, if there is no such format. All else wants a format that is good. */
coda_status pack_check(const struct pack_format *f);
bool pack_same(const struct pack_format *a, const struct pack_format *b);
/* Places that a group takes: group, or the next larger one that has no gaps; 0: the whole row. Where a column
 * is, in the k of the records. */
int64_t pack_group(const struct pack_format *f);
bool pack_has_gaps(const struct pack_format *f);
int64_t pack_place(const struct pack_format *f, int64_t column);
struct pack_record pack_record(const struct pack_format *f);
int64_t pack_records(const struct pack_format *f, int64_t columns);             /* of 16 rows */
int64_t pack_bytes(const struct pack_format *f, int64_t rows, int64_t columns); /* INT64_MAX: too many */

bool pack_is_integer(const struct pack_format *f);
const char *pack_codes_name(const struct pack_format *f); /* "int4" */
const char *pack_scales_name(const struct pack_format *f);
int pack_scale_bytes(const struct pack_format *f);
bool pack_two_levels(const struct pack_format *f);
/* Can bf16, or f16, hold each value of the format, a code times a scale, exactly? Else products take a value
 * as the sum of two of bf16. weights.cuh calls it `narrow`, and of f16 `small`. */
bool pack_fits(const struct pack_format *f, coda_dtype half);
/* What q counts from: 8, 16, 32 without a zero point or a minimum; else, and for int8 and floats, 0. */
int pack_middle(const struct pack_format *f);

/* "int4_g128_f16_zeros", "q4_k". */
struct pack_word {
    char s[PACK_WORD_SIZE];
};
struct pack_word pack_word(const struct pack_format *f);
coda_status pack_find(const char *word, struct pack_format *out);

/* pack_codes.c -- the codes of row r of a record, 0..15: as many bytes as its step, in order of k. int8 and
 * 8-bit floats are bytes as they are, the others have 4 to 6 bits. All that is the row's is written. */
void pack_put_codes(const struct pack_record *p, coda_pack_codes codes, uint8_t *record, int r,
                    const uint8_t *q);
void pack_get_codes(const struct pack_record *p, coda_pack_codes codes, const uint8_t *record, int r,
                    uint8_t *q);

/* Scales of row r, for each group of the record. One level: bytes of the format's type. f16u6 and f16i8: a
 * byte each, and d, and as `second` the minima's bytes and -dmin. */
struct pack_scales {
    _Alignas(4) uint8_t scale[PACK_GROUPS_MOST * 4];
    _Alignas(4) uint8_t second[PACK_GROUPS_MOST * 4];
    uint16_t d, second_d; /* f16 */
};
void pack_put_scales(const struct pack_format *f, const struct pack_record *p, uint8_t *record, int r,
                     const struct pack_scales *s);
void pack_get_scales(const struct pack_format *f, const struct pack_record *p, const uint8_t *record, int r,
                     struct pack_scales *s);

/* pack_rows.c -- the records of rows first .. first + rows - 1, out of a file's tensors; see coda_pack.
 * pack_order.c -- see coda_pack_order. */
coda_status pack_rows(const struct pack_format *f, const coda_pack_source *s, int64_t first, int64_t rows,
                      void *out);
int pack_order(const struct pack_format *f, const coda_pack_source *s, int32_t *order);

/* quantize.c -- see coda_quantize_weight. */
coda_status pack_quantize(const struct pack_format *f, coda_dtype t, const void *weight, int64_t rows,
                          int64_t columns, const coda_quantized *out);

/* pack_decode.c -- elements k0 .. k0 + n - 1 of a row of a matrix, the format's fp32 values bit for bit. */
void pack_decode(const struct pack_format *f, const void *packed, int64_t rows, int64_t columns, int64_t row,
                 int64_t k0, int64_t n, float *out);
/* A code as a number, before its scale; codes as pack_get_codes has them. */
float pack_code_value(coda_pack_codes codes, uint8_t code);

/* pack_random.c -- a random matrix, whose elements have about this root mean square. The same for a seed. */
void pack_random(const struct pack_format *f, int64_t rows, int64_t columns, double rms, uint64_t seed,
                 uint8_t *out);

#endif
