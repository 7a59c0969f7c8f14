/* util_row_sums.c -- graphs of rows added by id, and what plain loops say of them. */
#include "util_row_sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 32 }; /* coda.h: rows whose sum is added as one */

/* clang-format off */
const struct row_sums_case row_sums_cases[] = {
    {"a table's gradient",  CODA_BF16, CODA_I32, 3,   50,   72,   40, IDS_ANY,      ROWS_DENSE,    false},
    {"added to",            CODA_BF16, CODA_I32, 0,   90,   64,  100, IDS_ANY,      ROWS_DENSE,    true},
    {"of 64 bits",          CODA_F32,  CODA_I64, 2,   60,   33,   30, IDS_ANY,      ROWS_DENSE,    false},
    {"of f16",              CODA_F16,  CODA_I64, 0,  120,  264,   50, IDS_ANY,      ROWS_DENSE,    false},
    {"no tokens",           CODA_BF16, CODA_I32, 0,    0,   40,   70, IDS_ANY,      ROWS_DENSE,    false},
    {"no tokens to add",    CODA_BF16, CODA_I32, 0,    0,   40,   70, IDS_ANY,      ROWS_DENSE,    true},
    {"no rows",             CODA_F32,  CODA_I32, 0,   10,    8,    0, IDS_ANY,      ROWS_DENSE,    false},
    {"no columns",          CODA_F32,  CODA_I32, 0,   10,    0,    6, IDS_ANY,      ROWS_DENSE,    false},
    {"out of range",        CODA_F32,  CODA_I64, 0,   77,   20,   45, IDS_NONE,     ROWS_DENSE,    false},
    {"out of range, added", CODA_F16,  CODA_I32, 0,   77,   20,   45, IDS_NONE,     ROWS_DENSE,    true},
    {"one row",             CODA_BF16, CODA_I32, 0,  300,   48,    1, IDS_ANY,      ROWS_DENSE,    false},
    {"one column",          CODA_F32,  CODA_I32, 0,  500,    1,  300, IDS_ANY,      ROWS_DENSE,    false},
    {"one of each",         CODA_BF16, CODA_I32, 0,    1,    1,    1, IDS_ANY,      ROWS_DENSE,    false},
    {"all of one id",       CODA_BF16, CODA_I32, 0, 1000,  520,   20, IDS_ONE,      ROWS_DENSE,    false},
    {"all of one, added",   CODA_F32,  CODA_I64, 0,  600,    7,   33, IDS_ONE,      ROWS_DENSE,    true},
    {"one column of one",   CODA_F16,  CODA_I32, 0, 9000,    1,    3, IDS_ONE,      ROWS_DENSE,    false},
    {"segments",            CODA_BF16, CODA_I32, 0, 1500,   96,    9, IDS_SEGMENTS, ROWS_DENSE,    false},
    {"skewed",              CODA_F32,  CODA_I32, 0, 2000,   36,   90, IDS_SKEWED,   ROWS_DENSE,    false},
    {"skewed, added",       CODA_BF16, CODA_I64, 0, 2000,   24,   90, IDS_SKEWED,   ROWS_DENSE,    true},
    {"rows apart",          CODA_BF16, CODA_I32, 0,  150,   40,   60, IDS_ANY,      ROWS_APART,    false},
    {"rows oddly apart",    CODA_F16,  CODA_I64, 0,  150,   63,   60, IDS_SKEWED,   ROWS_APART,    true},
    {"columns apart",       CODA_F32,  CODA_I32, 0,  150,   40,   60, IDS_ANY,      COLUMNS_APART, false},
    {"turned",              CODA_BF16, CODA_I32, 5,   40,   64,   60, IDS_ANY,      ROWS_TURNED,   false},
    {"more rows",           CODA_F32,  CODA_I32, 0,  700,    4, 9000, IDS_ANY,      ROWS_DENSE,    false},
    {"many rows",           CODA_F16,  CODA_I32, 0,  700,    2, 70000, IDS_ANY,     ROWS_DENSE,    false},
    {"all different",       CODA_F16,  CODA_I32, 0,  500,   24,  500, IDS_DIFFERENT, ROWS_DENSE,   false},
    {"at the ends",         CODA_BF16, CODA_I64, 0,  300,    5,   77, IDS_ENDS,     ROWS_DENSE,    false},
    {"long segments",       CODA_BF16, CODA_I32, 0, 5000,   12,    7, IDS_SEGMENTS, ROWS_DENSE,    false},
    {"long beside short",   CODA_F32,  CODA_I32, 0, 4000,   40,  300, IDS_SKEWED,   ROWS_DENSE,    true},
    {"wide rows",           CODA_BF16, CODA_I32, 0,   90, 1500,   33, IDS_ANY,      ROWS_DENSE,    false},
    {"wide rows, added",    CODA_F32,  CODA_I32, 0,   70, 1300,   40, IDS_ANY,      ROWS_DENSE,    true},
    {"long and wide",       CODA_F16,  CODA_I32, 0,  600, 1100,    4, IDS_ANY,      ROWS_DENSE,    false},
    {"many of one id",      CODA_BF16, CODA_I32, 0, 100000, 16,   40, IDS_ONE,      ROWS_DENSE,    false},
};
/* clang-format on */
const int row_sums_case_count = ARRAY_SIZE(row_sums_cases);

static int64_t draw_size(struct random *r, int64_t most)
{
    static const int64_t odd[] = {0, 1, 2, 31, 32, 33, 63, 64, 65};
    if (random_chance(r, 30)) return MIN(odd[random_below(r, ARRAY_SIZE(odd))], most);
    return (int64_t)random_below(r, (uint64_t)(random_chance(r, 50) ? most : MIN(most, 100)));
}

struct row_sums_case row_sums_draw(uint64_t seed)
{
    static const coda_dtype dtype[] = {CODA_F32, CODA_BF16, CODA_F16};
    struct random r = {seed};
    struct row_sums_case c = {.name = "drawn"};
    c.dtype = dtype[random_below(&r, ARRAY_SIZE(dtype))];
    c.ids = random_chance(&r, 50) ? CODA_I32 : CODA_I64;
    c.tokens = draw_size(&r, 3000);
    c.columns = random_chance(&r, 50) ? 1 + (int64_t)random_below(&r, 8) : draw_size(&r, 200);
    c.rows = draw_size(&r, 600);
    c.which = random_below(&r, IDS_ENDS + 1);
    c.how = (int[]){ROWS_DENSE, ROWS_APART, COLUMNS_APART}[random_below(&r, 3)];
    c.add = random_chance(&r, 30);
    return c;
}

/* ---- The graph ---- */

/* x, or its ids, that have no columns then. */
static coda_value leaf(const struct row_sums_case *c, graph *g, const char *name, coda_dtype t, bool rows)
{
    int64_t n = rows ? c->columns : 1, pitch = c->how == ROWS_APART ? n + 3 + (n % 2 == 0) : n;
    bool turned = c->how == ROWS_TURNED, apart = rows && c->how == COLUMNS_APART;
    int64_t dim[] = {turned ? c->tokens : c->batch, turned ? c->batch : c->tokens, n};
    int64_t stride[] = {dim[1] * pitch, apart ? 1 : pitch, apart ? c->tokens + 1 : 1};
    int first = c->batch == 0;
    coda_value x = coda_input_strided(g, name, t, 2 + rows - first, dim + first, stride + first);
    return turned ? coda_transpose(g, x, (int[]){1, 0, 2}) : x;
}

graph *row_sums_graph(const struct row_sums_case *c)
{
    graph *g = coda_graph_new();
    coda_value x = leaf(c, g, "x", c->dtype, true), ids = leaf(c, g, "ids", c->ids, false);
    coda_value sums = coda_row_sums(g, x, ids, c->rows);
    if (c->add) coda_output_add(g, "sums", sums);
    else coda_output(g, "sums", sums);
    return g;
}

/* ---- Ids ---- */

static double outside(const struct row_sums_case *c, struct random *r)
{
    static const double far[] = {0x1p32, -0x1p32, 0x1p62, -0x1p63};
    if (c->ids == CODA_I64 && random_chance(r, 50))
        return far[random_below(r, 4)] + (double)random_below(r, 2);
    return random_chance(r, 50) ? (double)(c->rows + random_below(r, 9)) : -1 - (double)random_below(r, 9);
}

static double draw(const struct row_sums_case *c, struct random *r, int64_t token)
{
    switch (c->which) {
    case IDS_ONE: return (double)c->rows - 1;
    case IDS_NONE: return outside(c, r);
    case IDS_SEGMENTS: return (double)(token * c->rows / c->tokens);
    case IDS_DIFFERENT: return (double)(c->rows - 1 - token); /* the others are below 0 */
    case IDS_ENDS: return (double[]){-1, 0, (double)c->rows - 1, (double)c->rows}[random_below(r, 4)];
    case IDS_SKEWED:
        if (random_chance(r, 70)) return (double)((int64_t)random_below(r, 3) * (c->rows / 3));
        /* fall through */
    default: return random_chance(r, 10) || !c->rows ? outside(c, r) : (double)random_below(r, c->rows);
    }
}

/* Where token t lies, in rows of the leaf. */
static int64_t place(const struct row_sums_case *c, int64_t token)
{
    return c->how == ROWS_TURNED ? token % c->tokens * c->batch + token / c->tokens : token;
}
static int64_t tokens(const struct row_sums_case *c) { return MAX(c->batch, 1) * c->tokens; }

void **row_sums_args(const struct row_sums_case *c, const graph *g, uint64_t seed, bool evaluate)
{
    struct random r = {seed};
    const struct node *ids = &g->node[g->leaf[1]];
    int64_t stride = ids->stride[ids->type.rank - 1];
    void **args = random_args(g, seed, evaluate);
    for (int64_t t = 0; t < tokens(c); t++)
        dtype_store(c->ids, args[1], place(c, t) * stride, draw(c, &r, t));
    return args;
}

/* ---- What loops say ---- */

static double element(const struct row_sums_case *c, const graph *g, void **args, int64_t token,
                      int64_t column)
{
    const struct node *x = &g->node[g->leaf[0]];
    const int64_t *stride = &x->stride[x->type.rank - 2];
    return dtype_load(c->dtype, args[0], place(c, token) * stride[0] + column * stride[1]);
}

/* The sums of one column. Each row has a piece that is not yet part of its sum, and how many rows that is of.
 * */
struct column {
    double *exact;
    float *sum, *piece;
    int *held;
};

static void put(struct column *to, int64_t row, double x)
{
    to->exact[row] += x;
    to->piece[row] += (float)x;
    if (++to->held[row] < PIECE) return;
    to->sum[row] += to->piece[row];
    to->piece[row] = 0, to->held[row] = 0;
}

static void add_column(const struct row_sums_case *c, const graph *g, void **args, int64_t column,
                       struct column *to)
{
    const struct node *ids = &g->node[g->leaf[1]];
    int64_t stride = ids->stride[ids->type.rank - 1];
    for (int64_t t = 0; t < tokens(c); t++) {
        double id = dtype_load(c->ids, args[1], place(c, t) * stride);
        if (id >= 0 && id < (double)c->rows) put(to, (int64_t)id, element(c, g, args, t, column));
    }
}

static bool is_equal(const struct row_sums_case *c, const struct column *of, int64_t row, const void *got,
                     const void *begun, int64_t at, bool evaluate)
{
    if (evaluate)
        return ((const double *)got)[at] == of->exact[row] + (c->add ? ((const double *)begun)[at] : 0);
    float sum = of->sum[row] + of->piece[row];
    if (c->add) sum += ((const float *)begun)[at];
    return ((const float *)got)[at] == sum;
}

int64_t row_sums_differences(const struct row_sums_case *c, const graph *g, void **args, bool evaluate)
{
    int64_t wrong = 0;
    size_t rows = (size_t)c->rows + 1, all = rows * (size_t)(c->columns + 1);
    struct column to = {malloc(rows * sizeof(double)), malloc(rows * sizeof(float)),
                        malloc(rows * sizeof(float)), malloc(rows * sizeof(int))};
    void *begun = malloc(all * sizeof(double));
    if (c->add) random_begin_sum(g, 0, begun, evaluate);
    for (int64_t column = 0; column < c->columns; column++) {
        memset(to.exact, 0, rows * sizeof(double));
        memset(to.sum, 0, rows * sizeof(float));
        memset(to.piece, 0, rows * sizeof(float));
        memset(to.held, 0, rows * sizeof(int));
        add_column(c, g, args, column, &to);
        for (int64_t row = 0; row < c->rows; row++)
            wrong += !is_equal(c, &to, row, args[2], begun, row * c->columns + column, evaluate);
    }
    free(begun);
    free(to.exact);
    free(to.sum);
    free(to.piece);
    free(to.held);
    return wrong;
}

/* ---- Rows that are not touched ---- */

const struct row_sums_case row_sums_untouched = {"untouched", CODA_F32, CODA_I32, 0,          3,
                                                 8,           50,       IDS_ANY,  ROWS_DENSE, true};

void row_sums_begin_untouched(float *x, int32_t *ids, float *sums)
{
    const struct row_sums_case *c = &row_sums_untouched;
    for (int64_t i = 0; i < c->tokens; i++) ids[i] = (int32_t)(20 * i);
    for (int64_t i = 0; i < c->tokens * c->columns; i++) x[i] = 1;
    for (int64_t i = 0; i < c->rows * c->columns; i++) sums[i] = -0.0f;
}

int row_sums_touched(const float *sums)
{
    const struct row_sums_case *c = &row_sums_untouched;
    int wrong = 0;
    for (int64_t i = 0; i < c->rows * c->columns; i++) {
        bool named = i / c->columns % 20 == 0;
        wrong += named ? sums[i] != 1 : sums[i] != 0 || !signbit(sums[i]);
    }
    return wrong;
}
