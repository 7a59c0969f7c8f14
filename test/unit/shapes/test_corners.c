/* test_corners.c -- the shapes that stand for all others: with any number of symbols those where all are
 * largest, all least, and all 0. */
#include "corners.h"

#include "tests.h" /* last: Check has a macro named fail */

#include <string.h>

enum { MOST = 24, MULTIPLE = 8, MOST_TRIED = 6 };

static graph *with_symbols(int n)
{
    graph *g = graph_new();
    for (int i = 0; i < n; i++) {
        char name[] = {'A' + (char)i, 0};
        ck_assert(coda_symbol(g, name, 0, MOST, MULTIPLE) < -1);
    }
    return g;
}

static bool has_corner(const struct dims *t, int64_t value)
{
    bool found = false;
    for (int k = 0; k < MOST_CORNERS && !found; k++) {
        int64_t dims[MOST_SYMBOLS];
        found = corner_shape(t, k, dims);
        for (int i = 0; i < t->symbols; i++) found = found && dims[i] == value;
    }
    return found;
}

START_TEST(all_symbols_alike)
{
    static const int64_t values[] = {MOST, MOST - MULTIPLE, MULTIPLE, 0};
    int64_t small[MOST_SYMBOLS], large[MOST_SYMBOLS];
    graph *g = with_symbols(_i);
    for (int v = 0; v < ARRAY_SIZE(values); v++)
        ck_assert_msg(has_corner(g->dims, values[v]), "%d symbols of %d", _i, (int)values[v]);
    ck_assert(corner_shape(g->dims, CORNER_LARGE, large));
    corner_shape(g->dims, CORNER_SMALL, small);
    for (int i = 0; i < _i; i++) ck_assert(small[i] == MULTIPLE && large[i] == MOST);
    graph_free(g);
}
END_TEST

/* Each plan of a corner takes time: those behind the third symbol are no further factor. */
START_TEST(they_are_few)
{
    static const int most[] = {0, 2 * 3, 2 * 9, 2 * 27, 2 * 27 + 12, 2 * 27 + 12, 2 * 27 + 12};
    int64_t dims[MOST_SYMBOLS];
    int found = 0;
    graph *g = with_symbols(_i);
    for (int k = 0; k < MOST_CORNERS; k++) found += corner_shape(g->dims, k, dims);
    ck_assert_int_eq(found, most[_i]);
    graph_free(g);
}
END_TEST

/* Rows that are one by four symbols have a pass more, and memory between the two. */
START_TEST(all_have_room)
{
    enum { SYMBOLS = 4, VALUES = 3, SHAPES = VALUES * VALUES * VALUES * VALUES };
    static const int64_t values[VALUES] = {1, 2, 7};
    coda_graph *g = coda_graph_new();
    coda_dim d[SYMBOLS + 1] = {[SYMBOLS] = 64}, rows = 1;
    for (int i = 0; i < SYMBOLS; i++) {
        d[i] = coda_symbol(g, (const char[]){'A' + (char)i, 0}, 1, 1000, 1);
        rows = coda_dim_mul(g, rows, d[i]);
    }
    coda_value x = coda_input(g, "x", CODA_F32, 2, (int64_t[]){rows, 64});
    coda_output(g, "y", coda_softmax(g, coda_reshape(g, coda_silu(g, x), SYMBOLS + 1, d)));
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    for (int k = 0; k < SHAPES; k++) {
        const int64_t dims[] = {values[k % 3], values[k / 3 % 3], values[k / 9 % 3], values[k / 27]};
        ck_assert_msg(coda_plan_workspace_for(p, dims) <= coda_plan_workspace(p), "%s", coda_error());
    }
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* Of fewer matrices columns are folded in more parts, so that the device is busy: 33 have 16 each, 100 have
 * 5. So too of fewer rows. */
START_TEST(parts_have_room)
{
    enum { BATCHES = 100, ROWS = 4096 };
    coda_graph *g = coda_graph_new();
    coda_dim n = coda_symbol(g, "N", 1, _i ? ROWS : BATCHES, 1);
    coda_value x = coda_input(g, "x", CODA_BF16, 3, _i ? (int64_t[]){2, n, 64} : (int64_t[]){n, 4096, 64});
    coda_output(g, "y", coda_sub(g, x, coda_reduce_columns(g, "mean", x)));
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    for (int64_t at = 1; at <= (_i ? ROWS : BATCHES); at += _i ? 1 + at / 16 : 1)
        ck_assert_msg(coda_plan_workspace_for(p, &at) <= coda_plan_workspace(p), "%s", coda_error());
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

/* Tiles of fewer rows are narrower, and a row has more states: 2,343 rows had more than 4,096. */
START_TEST(tiles_have_room)
{
    enum { ROWS = 4096, FIRST = 1000 };
    coda_graph *g = coda_graph_new();
    coda_dim t = coda_symbol(g, "T", 1, ROWS, 1);
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){t, 256});
    coda_value w = coda_weight(g, "w", CODA_BF16, 2, (int64_t[]){1000, 256});
    coda_value targets = coda_input(g, "targets", CODA_I32, 1, (int64_t[]){t});
    coda_output(g, "loss", coda_cross_entropy(g, coda_matmul(g, x, w), targets, NULL));
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.flags = CODA_PLAN_ONLY;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    for (int64_t at = FIRST; at <= ROWS; at += 13)
        ck_assert_msg(coda_plan_workspace_for(p, &at) <= coda_plan_workspace(p), "%s", coda_error());
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

TESTS(corners, RANGE(all_symbols_alike, 1, MOST_TRIED + 1), RANGE(they_are_few, 1, MOST_TRIED + 1),
      ONE(all_have_room), EACH(parts_have_room, 2), ONE(tiles_have_room));
