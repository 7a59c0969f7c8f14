/*
 * dot_tile.h -- the loops of dot.c for one set of instructions; included once for each. The includer defines
 *
 *     OF(name)     name, with the set's in it
 *     TILE_ROWS    rows of a tile of four columns, 1 to 4, as many as the registers hold
 *     ALONE        columns of a tile of one row, 4 or 8, if there is no other row
 *     LANES        the type of eight floats
 *     ON(name)     what is done with it: f32, bf16, f16 (load, widened), store, all (equal lanes),
 *                  multiply_add, halves (the lower four and the upper four, added)
 *
 * A tile is TILE_ROWS x 4 sums, fewer rows at the edge, or 1 x ALONE, each of eight lanes. Its loops must be
 * unrolled wholly, or the sums would lie in memory.
 */

static ALWAYS_INLINE LANES OF(load)(coda_dtype type, const char *at)
{
    if (type == CODA_F32) return ON(f32)(at);
    return type == CODA_BF16 ? ON(bf16)(at) : ON(f16)(at);
}

/* sum[i][j] += a[i] b[j] of eight numbers along K. */
static ALWAYS_INLINE void OF(step)(LANES sum[TILE_ROWS][TILE_MOST], int rows, int columns, coda_dtype type,
                                   const float *a, int64_t a_pitch, const char *const *b, int64_t byte)
{
    LANES x[TILE_ROWS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) x[i] = ON(f32)(a + i * a_pitch);
#pragma GCC unroll 8
    for (int j = 0; j < columns; j++) {
        LANES y = OF(load)(type, b[j] + byte);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) sum[i][j] = ON(multiply_add)(sum[i][j], x[i], y);
    }
}

/* The last 1 to 7 numbers along K, with zeros behind them on both sides: 0 times infinity would come in. */
static ALWAYS_INLINE void OF(tail)(LANES sum[TILE_ROWS][TILE_MOST], int rows, int columns, coda_dtype type,
                                   int64_t depth, const float *a, int64_t a_pitch, const char *const *b,
                                   int64_t byte)
{
    size_t size = type == CODA_F32 ? 4 : 2;
    float x[TILE_ROWS][DOT_LANES] = {{0}}, y[TILE_MOST][DOT_LANES] = {{0}};
    const char *from[TILE_MOST];
    for (int i = 0; i < rows; i++) memcpy(x[i], a + i * a_pitch, sizeof(float) * (size_t)depth);
    for (int j = 0; j < columns; j++) {
        memcpy(y[j], b[j] + byte, size * (size_t)depth);
        from[j] = (const char *)y[j];
    }
    OF(step)(sum, rows, columns, type, x[0], DOT_LANES, from, 0);
}

/* `depth` numbers along K. */
static ALWAYS_INLINE void OF(steps)(LANES sum[TILE_ROWS][TILE_MOST], int rows, int columns, coda_dtype type,
                                    int64_t depth, const float *a, int64_t a_pitch, const char *const *b)
{
    int64_t size = type == CODA_F32 ? 4 : 2, at = 0;
    for (; at + DOT_LANES <= depth; at += DOT_LANES)
        OF(step)(sum, rows, columns, type, a + at, a_pitch, b, at * size);
    if (at < depth) OF(tail)(sum, rows, columns, type, depth - at, a + at, a_pitch, b, at * size);
}

/* The sums of four times eight lanes. */
static ALWAYS_INLINE quad OF(fold)(const LANES *s)
{
    quad q[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) q[j] = ON(halves)(s[j]);
    quad low =
        __builtin_shufflevector(q[0], q[1], 0, 1, 4, 5) + __builtin_shufflevector(q[0], q[1], 2, 3, 6, 7);
    quad high =
        __builtin_shufflevector(q[2], q[3], 0, 1, 4, 5) + __builtin_shufflevector(q[2], q[3], 2, 3, 6, 7);
    return __builtin_shufflevector(low, high, 0, 2, 4, 6) + __builtin_shufflevector(low, high, 1, 3, 5, 7);
}

/* Where `columns` columns from j on, `wide` of which are there, have number k. */
static ALWAYS_INLINE void OF(find)(const char **b, int columns, int64_t wide, const struct dot *d, int64_t j,
                                   int64_t k)
{
#pragma GCC unroll 8
    for (int c = 0; c < columns; c++)
        b[c] = (const char *)d->b + ((j + MIN(c, wide - 1)) * d->b_pitch + k) * (d->type == CODA_F32 ? 4 : 2);
}

/* ---- One row ---- */

/* Rows apart, as keys of a head are: the processor does not foresee them. */
static ALWAYS_INLINE void OF(ahead)(coda_dtype type, const struct dot *d, const char *const *b, int64_t j)
{
    int64_t size = type == CODA_F32 ? 4 : 2;
    for (int64_t line = 0; line < d->k * size; line += 64)
#pragma GCC unroll 8
        for (int c = 0; c < ALONE; c++)
            __builtin_prefetch(b[c] + MIN(AHEAD, d->n - j - ALONE) * d->b_pitch * size + line);
}

/* ALONE columns over one block of K. */
static ALWAYS_INLINE void OF(alone)(coda_dtype type, const struct dot *d, int64_t j, int64_t k, int64_t depth)
{
    LANES sum[TILE_ROWS][TILE_MOST];
    const char *b[TILE_MOST];
    int64_t wide = MIN(ALONE, d->n - j);
    OF(find)(b, ALONE, wide, d, j, k);
    if (d->k <= SHORT_K) OF(ahead)(type, d, b, j);
#pragma GCC unroll 8
    for (int c = 0; c < ALONE; c++) sum[0][c] = ON(all)(0);
    OF(steps)(sum, 1, ALONE, type, depth, d->a + k, d->a_pitch, b);
#pragma GCC unroll 2
    for (int c = 0; c < ALONE; c += 4) put(OF(fold)(&sum[0][c]), d->c + j + c, wide - c, k > 0);
}

/* ---- Many rows ---- */

/* A part of a block of K: what it has of four columns, and the sums of all rows in between. While its first
 * tiles are at work, `ahead` bytes from each of `next` on are fetched, which are read after it. */
struct OF(part) {
    const char *b[4], *next[4];
    int64_t k, depth, j, wide, ahead;
    bool first, last, add; /* of its block; the block is not the first one */
    LANES (*kept)[4];
};

static ALWAYS_INLINE void OF(tile)(int rows, coda_dtype type, const struct dot *d, int64_t i, int64_t row,
                                   const struct OF(part) * p)
{
    LANES sum[TILE_ROWS][TILE_MOST];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) sum[r][c] = p->first ? ON(all)(0) : p->kept[row + r][c];
    OF(steps)(sum, rows, 4, type, p->depth, d->a + (i + row) * d->a_pitch + p->k, d->a_pitch, p->b);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        if (p->last) put(OF(fold)(sum[r]), d->c + (i + row + r) * d->c_pitch + p->j, p->wide, p->add);
        else
#pragma GCC unroll 4
            for (int c = 0; c < 4; c++) p->kept[row + r][c] = sum[r][c];
}

static ALWAYS_INLINE void OF(tiles)(coda_dtype type, const struct dot *d, int64_t i, int64_t rows,
                                    const struct OF(part) * p)
{
    int64_t r = 0, t = 0;
    for (; r + TILE_ROWS <= rows; r += TILE_ROWS, t++) {
        if (t < 4)
            for (int64_t line = 0; line < p->ahead; line += 64) __builtin_prefetch(p->next[t] + line);
        OF(tile)(TILE_ROWS, type, d, i, r, p);
    }
    if (TILE_ROWS > 3 && rows - r == 3) OF(tile)(MIN(3, TILE_ROWS), type, d, i, r, p);
    if (TILE_ROWS > 2 && rows - r == 2) OF(tile)(MIN(2, TILE_ROWS), type, d, i, r, p);
    if (TILE_ROWS > 1 && rows - r == 1) OF(tile)(1, type, d, i, r, p);
}

/* Numbers of 16 bits that several tiles read are widened once. */
static ALWAYS_INLINE void OF(widen)(coda_dtype type, struct OF(part) * p, float to[4][PART_K])
{
    for (int c = 0; c < 4; c++) {
        int64_t k = 0;
        for (; k + DOT_LANES <= p->depth; k += DOT_LANES)
            ON(store)(to[c] + k, OF(load)(type, p->b[c] + 2 * k));
        if (k < p->depth) {
            uint16_t rest[DOT_LANES] = {0};
            memcpy(rest, p->b[c] + 2 * k, 2 * (size_t)(p->depth - k));
            ON(store)(to[c] + k, OF(load)(type, (const char *)rest));
        }
        p->b[c] = (const char *)to[c];
    }
}

/* Where what is read after part p begins. */
static ALWAYS_INLINE void OF(foresee)(const struct dot *d, struct OF(part) * p, int64_t k)
{
    int64_t j = MIN(p->j + 4, d->n - 1);
    p->ahead = p->depth * (d->type == CODA_F32 ? 4 : 2);
    if (p->last) OF(find)(p->next, 4, MIN(4, d->n - j), d, j, k);
    else OF(find)(p->next, 4, p->wide, d, p->j, p->k + p->depth);
}

/* Rows i .. of the columns j .. j + 3 over one block of K. */
static ALWAYS_INLINE void OF(rows)(coda_dtype type, const struct dot *d, int64_t i, int64_t rows, int64_t j,
                                   int64_t k)
{
    LANES kept[KEPT_ROWS][4];
    float wide[4][PART_K];
    bool widens = type != CODA_F32 && rows >= 2 * TILE_ROWS;
    int64_t end = MIN(k + DOT_BLOCK_K, d->k), each = widens ? PART_K : DOT_BLOCK_K;
    for (int64_t at = k; at < end; at += each) {
        struct OF(part) p = {.k = at, .depth = MIN(each, end - at), .j = j, .wide = MIN(4, d->n - j)};
        p.first = at == k, p.last = at + each >= end, p.add = k > 0, p.kept = kept;
        OF(find)(p.b, 4, p.wide, d, j, at);
        if (widens) {
            OF(foresee)(d, &p, k);
            OF(widen)(type, &p, wide);
            OF(tiles)(CODA_F32, d, i, rows, &p);
        } else {
            OF(tiles)(type, d, i, rows, &p);
        }
    }
}

static ALWAYS_INLINE void OF(block)(coda_dtype type, const struct dot *d, int64_t j, int64_t end, int64_t k)
{
    if (d->m == 1)
        for (; j < end; j += ALONE) OF(alone)(type, d, j, k, MIN(DOT_BLOCK_K, d->k - k));
    else
        for (; j < end; j += 4)
            for (int64_t i = 0; i < d->m; i += KEPT_ROWS)
                OF(rows)(type, d, i, MIN(KEPT_ROWS, d->m - i), j, k);
}

/* Columns j .. end - 1 over the block of K that begins at k. */
static void OF(dot)(const struct dot *d, int64_t j, int64_t end, int64_t k)
{
    if (d->type == CODA_F32) OF(block)(CODA_F32, d, j, end, k);
    else if (d->type == CODA_BF16) OF(block)(CODA_BF16, d, j, end, k);
    else OF(block)(CODA_F16, d, j, end, k);
}

/* ---- Rows of weights times rows of V ---- */

/* Rows i .. of o, eight columns of each group from column c on. */
static ALWAYS_INLINE void OF(weigh)(int rows, int groups, coda_dtype type, const struct weighted *w,
                                    int64_t i, int64_t c)
{
    int64_t size = type == CODA_F32 ? 4 : 2;
    LANES sum[TILE_ROWS][TILE_MOST];
    float *o = w->o + i * w->o_pitch + c;
    const float *p = w->p + i * w->p_pitch;
    const char *v = (const char *)w->v + c * size;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int g = 0; g < groups; g++) sum[r][g] = ON(f32)(o + r * w->o_pitch + g * DOT_LANES);
    for (int64_t k = 0; k < w->n; k++, v += w->v_pitch * size) {
        LANES x[TILE_ROWS];
        for (int64_t at = 0; rows == 1 && at < groups * DOT_LANES * size; at += 64)
            __builtin_prefetch(v + MIN(AHEAD, w->n - k) * w->v_pitch * size + at);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) x[r] = ON(all)(p[r * w->p_pitch + k]);
#pragma GCC unroll 8
        for (int g = 0; g < groups; g++) {
            LANES y = OF(load)(type, v + g * DOT_LANES * size);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) sum[r][g] = ON(multiply_add)(sum[r][g], x[r], y);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int g = 0; g < groups; g++) ON(store)(o + r * w->o_pitch + g * DOT_LANES, sum[r][g]);
}

/* All rows of some groups of columns. */
static ALWAYS_INLINE void OF(weigh_rows)(int groups, coda_dtype type, const struct weighted *w, int64_t c)
{
    int64_t i = 0;
    for (; i + TILE_ROWS <= w->m; i += TILE_ROWS) OF(weigh)(TILE_ROWS, groups, type, w, i, c);
    for (; i < w->m; i++) OF(weigh)(1, groups, type, w, i, c);
}

static ALWAYS_INLINE void OF(weigh_columns)(coda_dtype type, const struct weighted *w)
{
    int64_t c = 0;
    for (; w->m == 1 && c + ALONE * DOT_LANES <= w->columns; c += ALONE * DOT_LANES)
        OF(weigh)(1, ALONE, type, w, 0, c);
    for (; c + 4 * DOT_LANES <= w->columns; c += 4 * DOT_LANES) OF(weigh_rows)(4, type, w, c);
    for (; c < w->columns; c += DOT_LANES) OF(weigh_rows)(1, type, w, c);
}

static void OF(add_weighted)(const struct weighted *w)
{
    if (w->type == CODA_F32) OF(weigh_columns)(CODA_F32, w);
    else if (w->type == CODA_BF16) OF(weigh_columns)(CODA_BF16, w);
    else OF(weigh_columns)(CODA_F16, w);
}

#undef OF
#undef TILE_ROWS
#undef ALONE
#undef LANES
#undef ON
