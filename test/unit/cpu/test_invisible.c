/*
 * test_invisible.c -- what a row does not read never changes it: rows of NaN beside it, losses that are
 * ignored, rows of a table that no id names, other sequences. By the evaluator and the CPU device.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "util_invisible.h"

#include "tests.h" /* last: Check has a macro named fail */

static void *workspace(size_t bytes, int byte)
{
    size_t whole = (bytes / 256 + 1) * 256;
    return memset(aligned_alloc(256, whole), byte, whole);
}

static void run(const graph *g, void **args, coda_fold fold, unsigned flags, int byte)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU, opt.fold = fold, opt.flags = flags;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    void *work = workspace(coda_plan_workspace(p), byte), *prepared = workspace(coda_plan_prepared(p), byte);
    ck_assert_msg(coda_prepare(p, args, prepared, work, NULL) == CODA_OK, "%s", coda_error());
    free(work);
    work = workspace(coda_plan_workspace(p), byte);
    ck_assert_msg(coda_run(p, args, prepared, work, NULL) == CODA_OK, "%s", coda_error());
    free(work);
    free(prepared);
    coda_plan_free(p);
}

START_TEST(unseen_rows)
{
    static const coda_dtype dtypes[] = {CODA_F32, CODA_BF16, CODA_F16};
    static const unsigned flags[] = {0, CODA_NO_FUSION, 0};
    static const coda_fold folds[] = {CODA_FOLD_NONE, CODA_FOLD_NONE, CODA_FOLD_COPY};
    const struct invisible_case *c = &invisible_cases[_i];
    for (int way = 0; way < 12; way++) { /* three dtypes, evaluated and run in three ways */
        bool evaluate = way % 4 == 3;
        graph *g = invisible_graph(c, dtypes[way / 4]);
        ck_assert_msg(g != NULL, "%s: %s", c->name, coda_error());
        void **args[2];
        for (int bad = 0; bad < 2; bad++) {
            args[bad] = invisible_args(c, g, bad, evaluate);
            if (evaluate) ck_assert_int_eq(coda_evaluate(g, args[bad]), CODA_OK);
            else run(g, args[bad], folds[way % 4], flags[way % 4], bad ? 0x7f : 0xff);
        }
        int64_t wrong = invisible_difference(c, g, args[0], args[1], evaluate);
        ck_assert_msg(wrong == 0, "%s, %s, way %d: %d elements differ", c->name, dtype_name(dtypes[way / 4]),
                      way % 4, (int)wrong);
        random_args_free(g, args[0]);
        random_args_free(g, args[1]);
        graph_free(g);
    }
}
END_TEST

TESTS(invisible, EACH(unseen_rows, invisible_case_count));
