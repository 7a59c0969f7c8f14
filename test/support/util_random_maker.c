/* util_random_maker.c -- a graph in the making: values to draw operands from, leaves, weights. */
#include "util_random_maker.h"

#include <stdio.h>

struct shape maker_shape(const struct maker *m, coda_value v)
{
    struct shape s = {0};
    s.rank = coda_value_shape(m->g, v, s.dim, &s.dtype);
    return s;
}

int64_t maker_columns(const struct maker *m, coda_value v)
{
    struct shape s = maker_shape(m, v);
    return s.rank > 0 ? s.dim[s.rank - 1] : 1;
}

int64_t shape_elements(const struct shape *s)
{
    int64_t n = 1;
    for (int d = 0; d < s->rank; d++) n *= s->dim[d];
    return n;
}

coda_value maker_keep(struct maker *m, coda_value v)
{
    if (v.id && m->pooled < MAKER_POOL) m->pool[m->pooled++] = v;
    return v;
}

/* Half of the time one of the last three values, so that chains grow. */
coda_value maker_draw(struct maker *m)
{
    int recent = MIN(m->pooled, 3);
    if (random_chance(&m->r, 60)) return m->pool[m->pooled - 1 - random_below(&m->r, recent)];
    return m->pool[random_below(&m->r, m->pooled)];
}

int64_t maker_size(struct maker *m)
{
    static const int64_t size[] = {1,  2,  3,  4,  5,  7,  8,  12,  16,  17,  24,  31,  32,  33,
                                   40, 48, 63, 64, 65, 96, 97, 128, 129, 192, 255, 256, 257, 300};
    int n = 0;
    while (n < ARRAY_SIZE(size) && size[n] <= m->opt.most_dim) n++;
    return size[random_below(&m->r, n)];
}

/* A row pitch with padding or, of a matrix, columns that follow each other. */
bool maker_strides(struct maker *m, int rank, const int64_t *dim, int64_t *stride)
{
    if (m->opt.dense || rank < 2 || !random_chance(&m->r, 20)) return false;
    bool across = rank == 2 && random_chance(&m->r, 40);
    int64_t step = 1;
    for (int i = 0; i < rank; i++) {
        int d = across ? i : rank - 1 - i;
        stride[d] = step;
        step *= MAX(dim[d], 1);
        if (i == 0) step += random_chance(&m->r, 50) ? 8 * (1 + random_below(&m->r, 2)) : 3;
    }
    return true;
}

coda_value maker_leaf(struct maker *m, bool weight, coda_dtype t, int rank, const int64_t *dim)
{
    char name[32];
    int64_t stride[CODA_MAX_RANK];
    if (t == CODA_I32 && m->opt.wide && m->leaves % 3) t = CODA_I64;
    snprintf(name, sizeof name, "%s%d", weight ? "w" : dtype_is_index(t) ? "i" : "x", m->leaves++);
    bool strided = maker_strides(m, rank, dim, stride);
    if (weight)
        return strided ? coda_weight_strided(m->g, name, t, rank, dim, stride)
                       : coda_weight(m->g, name, t, rank, dim);
    return strided ? coda_input_strided(m->g, name, t, rank, dim, stride)
                   : coda_input(m->g, name, t, rank, dim);
}

/* A vector for the columns of v: mostly a weight, in fp32 or in v's dtype. */
coda_value maker_vector(struct maker *m, coda_value v)
{
    struct shape s = maker_shape(m, v);
    coda_dtype t = random_chance(&m->r, 30) ? CODA_F32 : s.dtype;
    return maker_leaf(m, random_chance(&m->r, 85), t, 1, (int64_t[]){s.rank ? s.dim[s.rank - 1] : 1});
}

/* A product with a weight of dtype t. */
coda_value maker_linear_by(struct maker *m, coda_value x, int64_t n, coda_dtype t)
{
    struct shape s = maker_shape(m, x);
    if (s.rank < 2) return CODA_NONE;
    int64_t k = s.dim[s.rank - 1];
    bool kn = random_chance(&m->r, 30);
    int64_t dim[CODA_MAX_RANK];
    int rank = random_chance(&m->r, 12) ? s.rank : 2; /* its own weight for each batch? */
    memcpy(dim, s.dim, sizeof dim);
    dim[rank - 2] = kn ? k : n;
    dim[rank - 1] = kn ? n : k;
    coda_value w = maker_leaf(m, random_chance(&m->r, 85), t, rank, dim);
    if (!dtype_is_storage(t) && random_chance(&m->r, 5)) w = coda_scale(m->g, w, 0.5f);
    return kn ? coda_matmul_kn(m->g, x, w) : coda_matmul(m->g, x, w);
}

/* By a packed weight of x's dtype, or a view of it; one without elements cannot be packed. */
static coda_value linear_by_packed(struct maker *m, coda_value x, int64_t n)
{
    static const char *const words[] = {"q4_0",        "q4_k", "q6_k", "mxfp4", "int4_g64_bf16_zeros",
                                        "int8_row_f32"};
    struct shape s = maker_shape(m, x);
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    char name[32];
    int64_t k = s.rank < 2 ? 0 : s.dim[s.rank - 1];
    if (k < 1 || n < 1) return maker_linear_by(m, x, n, s.dtype);
    coda_pack_format_find(words[random_below(&m->r, ARRAY_SIZE(words))], &f);
    snprintf(name, sizeof name, "w%d", m->leaves++);
    bool kn = random_chance(&m->r, 30), some = random_chance(&m->r, 30);
    int64_t rows = kn ? k : n, more = rows + (some ? 1 + random_below(&m->r, 20) : 0);
    coda_value w = coda_weight_packed(m->g, name, &f, 2, (int64_t[]){more, kn ? n : k}, s.dtype);
    if (some) w = coda_slice(m->g, w, 0, more - rows, more, 1);
    return kn ? coda_matmul_kn(m->g, x, w) : coda_matmul(m->g, x, w);
}

/* Now and then of two dtypes, of which the weight's may be one of 8 bits, or fewer. */
coda_value maker_linear(struct maker *m, coda_value x, int64_t n)
{
    static const coda_dtype narrow[] = {CODA_F8E4M3, CODA_F8E5M2, CODA_I8, CODA_U8};
    if (!random_chance(&m->r, 10) || m->opt.dtype) return maker_linear_by(m, x, n, maker_shape(m, x).dtype);
    bool is_narrow = random_chance(&m->r, 50);
    int64_t which = is_narrow ? random_below(&m->r, 6) : 0;
    if (which >= ARRAY_SIZE(narrow)) return linear_by_packed(m, x, n);
    return maker_linear_by(m, x, n, is_narrow ? narrow[which] : m->dtype);
}

coda_value maker_slice(struct maker *m, coda_value x, int64_t from, int64_t to)
{
    return coda_slice(m->g, x, maker_shape(m, x).rank - 1, from, to, 1);
}
