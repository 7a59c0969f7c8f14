/*
 * dot_tile.h -- the loops of dot.c for one set of instructions; included once for each. The includer defines
 *
 *     OF(name)                 name, with the set's in it
 *     TILE_ROWS                rows of a tile of four columns, 1 to 4, as many as the registers hold
 *     ALONE                    columns of a tile of one row, 4 or 8, if there is no other row
 *     MULTIPLY_ADD(sum, x, y)  sum + x y of `lanes`
 *     WIDEN_F16(at)            the eight fp16 at that address as `lanes`
 *
 * A tile is TILE_ROWS x 4 sums, fewer rows at the edge, or 1 x ALONE, each of eight lanes. Its loops must be
 * unrolled wholly, or the sums would lie in memory.
 */

static ALWAYS_INLINE lanes OF(load)(coda_dtype type, const char *at)
{
    if (type == CODA_F32) return *(const lanes_anywhere *)at;
    if (type == CODA_BF16) return (lanes)(__builtin_convertvector(*(const halves *)at, lane_bits) << 16);
    return WIDEN_F16(at);
}

/* sum[i][j] += a[i] b[j] of eight numbers along K. */
static ALWAYS_INLINE void OF(step)(lanes sum[TILE_ROWS][TILE_MOST], int rows, int columns, coda_dtype type,
                                   const float *a, int64_t a_pitch, const char *const *b, int64_t byte)
{
    lanes x[TILE_ROWS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) x[i] = *(const lanes_anywhere *)(a + i * a_pitch);
#pragma GCC unroll 8
    for (int j = 0; j < columns; j++) {
        lanes y = OF(load)(type, b[j] + byte);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) sum[i][j] = MULTIPLY_ADD(sum[i][j], x[i], y);
    }
}

/* The last 1 to 7 numbers along K, with zeros behind them on both sides: 0 times infinity would come in. */
static ALWAYS_INLINE void OF(tail)(lanes sum[TILE_ROWS][TILE_MOST], int rows, int columns, coda_dtype type,
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

/* The sums of four times eight lanes. */
static ALWAYS_INLINE quad OF(fold)(const lanes *s)
{
    quad q[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++)
        q[j] =
            __builtin_shufflevector(s[j], s[j], 0, 1, 2, 3) + __builtin_shufflevector(s[j], s[j], 4, 5, 6, 7);
    quad low =
        __builtin_shufflevector(q[0], q[1], 0, 1, 4, 5) + __builtin_shufflevector(q[0], q[1], 2, 3, 6, 7);
    quad high =
        __builtin_shufflevector(q[2], q[3], 0, 1, 4, 5) + __builtin_shufflevector(q[2], q[3], 2, 3, 6, 7);
    return __builtin_shufflevector(low, high, 0, 2, 4, 6) + __builtin_shufflevector(low, high, 1, 3, 5, 7);
}

/* One tile over one block of K; `wide` of its columns are there. */
static ALWAYS_INLINE void OF(tile)(int rows, int columns, coda_dtype type, const struct dot *d, int64_t i,
                                   int64_t j, int64_t k, int64_t depth)
{
    lanes sum[TILE_ROWS][TILE_MOST] = {{{0}}};
    int64_t size = type == CODA_F32 ? 4 : 2, wide = MIN(columns, d->n - j), at = 0;
    const float *a = d->a + i * d->a_pitch + k;
    const char *b[TILE_MOST];
#pragma GCC unroll 8
    for (int c = 0; c < columns; c++)
        b[c] = (const char *)d->b + ((j + MIN(c, wide - 1)) * d->b_pitch + k) * size;
    if (rows == 1 &&
        d->k <= SHORT_K) /* rows apart, as keys of a head are: the processor does not foresee them */
        for (int64_t line = 0; line < depth * size; line += 64)
#pragma GCC unroll 8
            for (int c = 0; c < columns; c++)
                __builtin_prefetch(b[c] + MIN(AHEAD, d->n - j - columns) * d->b_pitch * size + line);
    for (; at + DOT_LANES <= depth; at += DOT_LANES)
        OF(step)(sum, rows, columns, type, a + at, d->a_pitch, b, at * size);
    if (at < depth) OF(tail)(sum, rows, columns, type, depth - at, a + at, d->a_pitch, b, at * size);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < columns; c += 4)
            put(OF(fold)(&sum[r][c]), d->c + (i + r) * d->c_pitch + j + c, wide - c, k > 0);
}

/* All rows of the columns j .. j + 3 over one block of K. */
static ALWAYS_INLINE void OF(rows)(coda_dtype type, const struct dot *d, int64_t j, int64_t k, int64_t depth)
{
    int64_t i = 0;
    for (; i + TILE_ROWS <= d->m; i += TILE_ROWS) OF(tile)(TILE_ROWS, 4, type, d, i, j, k, depth);
    if (TILE_ROWS > 3 && d->m - i == 3) OF(tile)(MIN(3, TILE_ROWS), 4, type, d, i, j, k, depth);
    if (TILE_ROWS > 2 && d->m - i == 2) OF(tile)(MIN(2, TILE_ROWS), 4, type, d, i, j, k, depth);
    if (TILE_ROWS > 1 && d->m - i == 1) OF(tile)(1, 4, type, d, i, j, k, depth);
}

static ALWAYS_INLINE void OF(block)(coda_dtype type, const struct dot *d, int64_t j, int64_t end, int64_t k)
{
    int64_t depth = MIN(DOT_BLOCK_K, d->k - k);
    if (d->m == 1)
        for (; j < end; j += ALONE) OF(tile)(1, ALONE, type, d, 0, j, k, depth);
    else
        for (; j < end; j += 4) OF(rows)(type, d, j, k, depth);
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
    lanes sum[TILE_ROWS][TILE_MOST];
    float *o = w->o + i * w->o_pitch + c;
    const float *p = w->p + i * w->p_pitch;
    const char *v = (const char *)w->v + c * size;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int g = 0; g < groups; g++)
            sum[r][g] = *(const lanes_anywhere *)(o + r * w->o_pitch + g * DOT_LANES);
    for (int64_t k = 0; k < w->n; k++, v += w->v_pitch * size) {
        lanes x[TILE_ROWS];
        for (int64_t at = 0; rows == 1 && at < groups * DOT_LANES * size; at += 64)
            __builtin_prefetch(v + MIN(AHEAD, w->n - k) * w->v_pitch * size + at);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) x[r] = all(p[r * w->p_pitch + k]);
#pragma GCC unroll 8
        for (int g = 0; g < groups; g++) {
            lanes y = OF(load)(type, v + g * DOT_LANES * size);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) sum[r][g] = MULTIPLY_ADD(sum[r][g], x[r], y);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int g = 0; g < groups; g++) *(lanes_anywhere *)(o + r * w->o_pitch + g * DOT_LANES) = sum[r][g];
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
#undef MULTIPLY_ADD
#undef WIDEN_F16
