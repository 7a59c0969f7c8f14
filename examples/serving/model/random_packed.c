/*
 * random_packed.c -- packed weights of random numbers: codes as files have them, which coda_pack takes.
 */
#include <stdlib.h>

#include "random.h"
#include "tensor.h"

enum { BLOCK = 256, ROWS = 16 };

/* Some rows of a matrix as a file would have them. */
struct drawn {
    coda_pack_source s;
    unsigned char *codes, *scales, *zeros;
};

static bool two_levels(const coda_pack_format *p)
{
    return p->scales == CODA_SCALES_F16_U6 || p->scales == CODA_SCALES_F16_I8;
}

static bool is_integer(const coda_pack_format *p) { return p->codes <= CODA_CODES_INT8; }

/* Half the range of integers. */
static int half_of(const coda_pack_format *p)
{
    return p->codes == CODA_CODES_INT4   ? 8
           : p->codes == CODA_CODES_INT5 ? 16
           : p->codes == CODA_CODES_INT6 ? 32
                                         : 128;
}

/* What a normal number is multiplied by before it becomes a code. */
static double size_of(const coda_pack_format *p)
{
    return is_integer(p) ? half_of(p) / 3.0 : p->codes == CODA_CODES_E2M1 ? 2 : 64;
}

static unsigned char code_of(const coda_pack_format *p, double x)
{
    static const double e2m1[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5}; /* between two codes */
    unsigned char q = 0;
    if (p->codes == CODA_CODES_E4M3) return f8_of_double(x);
    if (p->codes == CODA_CODES_E5M2) return e5m2_of_double(x);
    if (is_integer(p)) {
        int half = half_of(p), whole = (int)rint(fmin(fmax(x, -half), half - 1));
        bool moved = p->zeros && p->codes != CODA_CODES_INT8;
        return (unsigned char)(moved ? whole + half : whole);
    }
    while (q < 7 && fabs(x) > e2m1[q]) q++;
    return (unsigned char)(q | (x < 0 ? 8 : 0));
}

static size_t put_scale(coda_pack_scales t, unsigned char *to, double s)
{
    switch (t) {
    case CODA_SCALES_F32: return element_set(CODA_F32, to, 0, s), 4;
    case CODA_SCALES_BF16: return element_set(CODA_BF16, to, 0, s), 2;
    case CODA_SCALES_E4M3: return *to = f8_of_double(s), 1;
    case CODA_SCALES_E8M0: return *to = (unsigned char)(127 + (int)rint(log2(s))), 1;
    default: return element_set(CODA_F16, to, 0, s), 2;
    }
}

static void draw_codes(struct drawn *d, const coda_pack_format *p, const float *normals)
{
    int64_t n = d->s.rows * d->s.columns;
    bool nibbles = p->codes == CODA_CODES_E2M1;
    for (int64_t i = 0; i < n; i++) {
        unsigned char q = code_of(p, size_of(p) * (double)normals[i]);
        if (nibbles) d->codes[i / 2] = (unsigned char)(i % 2 ? d->codes[i / 2] | q << 4 : q);
        else d->codes[i] = q;
    }
    d->s.kind = nibbles ? CODA_PACK_NIBBLES : CODA_PACK_CODES;
    d->s.codes_bytes = nibbles ? n / 2 : n;
}

static void draw_scales(struct drawn *d, const coda_pack_format *p)
{
    int64_t group = p->group ? p->group : d->s.columns, n = d->s.rows * ((d->s.columns + group - 1) / group);
    double s = 1 / (size_of(p) * sqrt((double)d->s.columns));
    for (int64_t i = 0; i < n; i++) {
        d->s.scales_bytes += (int64_t)put_scale(p->scales, d->scales + d->s.scales_bytes, s);
        if (p->zeros == CODA_ZEROS_POINTS)
            d->zeros[d->s.zeros_bytes++] = (unsigned char)(p->codes == CODA_CODES_INT8 ? 0 : half_of(p));
        if (p->zeros == CODA_ZEROS_MINIMUM)
            d->s.zeros_bytes += (int64_t)put_scale(p->scales, d->zeros + d->s.zeros_bytes, -s * half_of(p));
    }
}

/* Blocks of Q4_K, Q5_K, Q6_K of random bytes: all scales of groups are 32, and so are minima. */
static void draw_blocks(struct drawn *d, const coda_pack_format *p, uint64_t *state)
{
    int bytes = p->codes == CODA_CODES_INT4 ? 144 : p->codes == CODA_CODES_INT5 ? 176 : 210;
    int64_t blocks = d->s.rows * (d->s.columns / BLOCK);
    double s = 1 / (0.58 * half_of(p) * sqrt((double)d->s.columns)) / 32; /* codes are uniform */
    for (int64_t i = 0; i < blocks * bytes; i++) d->codes[i] = (unsigned char)(uniform(state) * 256);
    for (int64_t b = 0; b < blocks; b++) {
        unsigned char *at = d->codes + b * bytes;
        if (bytes == 210) {
            for (int g = 0; g < 16; g++) at[192 + g] = 32;
            put_scale(CODA_SCALES_F16, at + 208, s);
            continue;
        }
        put_scale(CODA_SCALES_F16, at, s);
        put_scale(CODA_SCALES_F16, at + 2, s * half_of(p));
        for (int g = 0; g < 12; g++) at[4 + g] = g < 8 ? 0xa0 : 0;
    }
    d->s.kind = CODA_PACK_GGUF;
    d->s.codes_bytes = blocks * bytes;
}

/* Packs them into `to`; NULL: out of memory, or a format that does not fit the columns. */
static bool draw_rows(const coda_pack_format *p, int64_t rows, int64_t columns, const float *normals,
                      uint64_t *state, char *to)
{
    size_t n = (size_t)(rows * columns);
    struct drawn d = {CODA_PACK_SOURCE_INIT, calloc(1, n), malloc(n), malloc(n)};
    d.s.rows = rows;
    d.s.columns = columns;
    bool good = d.codes && d.scales && d.zeros;
    if (good && two_levels(p)) draw_blocks(&d, p, state);
    if (good && !two_levels(p)) draw_codes(&d, p, normals), draw_scales(&d, p);
    d.s.codes = d.codes;
    if (d.s.scales_bytes) d.s.scales = d.scales;
    if (d.s.zeros_bytes) d.s.zeros = d.zeros;
    good = good && coda_pack(p, &d.s, 0, rows, to) == CODA_OK;
    free(d.codes);
    free(d.scales);
    free(d.zeros);
    return good;
}

/* As many rows as there are normal numbers for, again and again. */
bool random_packed(struct random_weights *r, const struct weight *w, int64_t normals, struct device *d,
                   char *to, struct fault *f)
{
    const struct stored_matrix *m = &w->matrix[0];
    int64_t rows = normals / w->columns / ROWS * ROWS;
    if (two_levels(&m->format) && w->columns % BLOCK)
        return fault_set(f, "%s: %lld columns are no blocks of %d", w->name, (long long)w->columns, BLOCK);
    if (rows > w->height) rows = w->height;
    if (!rows) return fault_set(f, "%s: %lld columns are too many", w->name, (long long)w->columns);
    size_t bytes = (size_t)coda_packed_bytes(&m->format, rows, w->columns);
    char *host = host_scratch(bytes);
    bool good = host && draw_rows(&m->format, rows, w->columns, r->normals, &r->state, host);
    if (!good) fault_set(f, "%s: %s", w->name, host ? coda_error() : "out of memory");
    if (good && !random_fill(d, to, w->bytes, host, bytes, 0))
        good = fault_set(f, "%s: it cannot be copied to the device", w->name);
    free(host);
    return good;
}
