/*
 * test_runner.c -- any struct runner may run a program: here a callback on the host takes over the programs
 * of a plan, one after the other, and each of them finds what it waits for done.
 */
#include "runner.h"

#include <stdlib.h>
#include <string.h>

#include "cpu.h"

static coda_status refuse(coda_status status, int index)
{
    return fail(status, "@%d callback: not today", index);
}

#include "tests.h" /* last: Check has a macro named fail */

enum { ROWS = 24, COLUMNS = 40, MOST = 16 };

/* ---- A runner of the test's own ---- */

static struct {
    bool done[MOST];
    int runs, loads, frees;
    coda_status status; /* that the next run ends with */
} seen;

static bool takes(const struct coda_plan *p, int index)
{
    (void)p, (void)index;
    return true;
}

static coda_status load(struct coda_plan *p, int index)
{
    p->program[index].own = &seen.loads;
    seen.loads++;
    return CODA_OK;
}

static coda_status run(const struct call *c, int index)
{
    const struct waits *w = &c->p->plan.waits[index];
    const struct program *q = &c->p->plan.program[index];
    for (int i = 0; i < w->n; i++) ck_assert_msg(seen.done[w->on[i]], "@%d before @%d", index, w->on[i]);
    ck_assert(c->p->program[index].own == &seen.loads);
    if (seen.status) return refuse(seen.status, index);
    seen.done[index] = true;
    seen.runs++;
    return cpu_run(&c->p->plan, q, c->args, c->prepared, c->workspace);
}

static void release(void *own)
{
    ck_assert(own == &seen.loads);
    seen.frees++;
}

static const struct runner callback = {
    .name = "callback", .synchronous = true, .takes = takes, .load = load, .run = run, .free = release};

/* ---- A plan of some programs ---- */

static float x[ROWS * COLUMNS], weight[COLUMNS * COLUMNS], want[ROWS * COLUMNS], got[ROWS * COLUMNS];

static coda_plan *compile(void)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g = coda_graph_new();
    coda_plan *p = NULL;
    coda_value in = coda_input(g, "x", CODA_F32, 2, (int64_t[]){ROWS, COLUMNS});
    coda_value w = coda_weight(g, "w", CODA_F32, 2, (int64_t[]){COLUMNS, COLUMNS});
    coda_value a = coda_matmul(g, in, w), b = coda_matmul(g, coda_tanh(g, in), w);
    coda_output(g, "y", coda_add(g, coda_matmul(g, coda_mul(g, a, b), w), in));
    opt.device = CODA_DEVICE_CPU;
    opt.flags = CODA_NO_FUSION;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    coda_graph_free(g);
    ck_assert(p->plan.programs >= 5 && p->plan.programs <= MOST);
    return p;
}

static coda_status call(const coda_plan *p, float *y)
{
    void *args[] = {x, weight, y}, *work = aligned_alloc(256, coda_plan_workspace(p));
    memset(work, 0xff, coda_plan_workspace(p));
    memset(y, 0xff, sizeof want);
    coda_status status = coda_run(p, args, NULL, work, NULL);
    free(work);
    return status;
}

static void fill(void)
{
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)(i % 13 - 6) / 8;
    for (int i = 0; i < COLUMNS * COLUMNS; i++) weight[i] = (float)(i % 7 - 3) / 16;
    memset(&seen, 0, sizeof seen);
}

START_TEST(each_may_be_run_by_a_callback)
{
    fill();
    coda_plan *p = compile();
    ck_assert_int_eq(call(p, want), CODA_OK);
    for (int i = 0; i < p->plan.programs; i++) {
        ck_assert(p->program[i].runner == &runner_cpu);
        memset(seen.done, true, sizeof seen.done); /* by the runner of the device */
        for (int j = 0; j <= i; j++) seen.done[j] = false;
        p->program[i].runner = &callback;
        ck_assert_int_eq(callback.load(p, i), CODA_OK);
        seen.runs = 0;
        ck_assert_msg(call(p, got) == CODA_OK, "%s", coda_error());
        ck_assert_int_eq(seen.runs, i + 1);
        ck_assert(!memcmp(got, want, sizeof want));
    }
    coda_plan_free(p);
    ck_assert(seen.frees == seen.loads && seen.frees >= 5);
}
END_TEST

/* What comes behind it does not run. */
START_TEST(its_failure_ends_the_run)
{
    fill();
    coda_plan *p = compile();
    for (int i = 0; i < p->plan.programs; i++) {
        p->program[i].runner = &callback;
        ck_assert_int_eq(callback.load(p, i), CODA_OK);
    }
    seen.status = CODA_E_DEVICE;
    ck_assert_int_eq(call(p, got), CODA_E_DEVICE);
    ck_assert_str_eq(coda_error(), "@0 callback: not today");
    ck_assert_int_eq(seen.runs, 0);
    coda_plan_free(p);
}
END_TEST

TESTS(runner, ONE(each_may_be_run_by_a_callback), ONE(its_failure_ends_the_run));
