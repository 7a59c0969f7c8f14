/* test_mixed.c -- in which tiles products by weights of few bits go to wgmma, and which are dealt to all SMs:
 * of the tiles that an H200 ran them in, those that took the least. */
#include <stdio.h>
#include <string.h>

#include "executable.h"
#include "mainloop.h"
#include "schedule.h"

#include "tests.h" /* last: Check has a macro named fail */

struct shape {
    const char *format; /* NULL: bytes */
    int m, n, k;        /* m 0: any number */
};

static coda_plan *plan_of(const struct shape *s, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_graph *g;
    coda_plan *p;
    char text[512], rows[16] = "T", weight[256];
    if (s->m) snprintf(rows, sizeof rows, "%d", s->m);
    snprintf(weight, sizeof weight, "%%w = weight f8e4m3[%d,%d]\n", s->n, s->k);
    if (s->format) {
        ck_assert_int_eq(coda_pack_format_find(s->format, &f), CODA_OK);
        snprintf(weight, sizeof weight,
                 "%%p = weight u8[%lld]\n%%w = unpack %%p {format=%s,d0=%d,d1=%d,rank=2,to=bf16}\n",
                 (long long)coda_packed_bytes(&f, s->n, s->k), s->format, s->n, s->k);
    }
    snprintf(text, sizeof text,
             "dim %%T = 1..4096\n%%x = input bf16[%s,%d]\n%s%%y = matmul %%x, %%w\noutput %%y = %%y\n", rows,
             s->k, weight);
    ck_assert_msg(coda_graph_parse(&g, s->m ? strchr(text, '\n') + 1 : text) == CODA_OK, "%s", coda_error());
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY | flags;
    opt.arch = "sm_90a";
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    coda_graph_free(g);
    return p;
}

#define INT4 "int4_g128_bf16"
static const struct {
    struct shape shape;
    int bm, groups;
    bool dealt;
} fastest[] = {
    {{INT4, 32, 22016, 4096}, 64, 3, false},     {{INT4, 64, 22016, 4096}, 64, 3, false},
    {{INT4, 96, 22016, 4096}, 128, 3, false},    {{INT4, 128, 22016, 4096}, 128, 2, true},
    {{INT4, 256, 22016, 4096}, 256, 2, true},    {{INT4, 2048, 22016, 4096}, 256, 2, true},
    {{INT4, 64, 4096, 4096}, 64, 1, true},       {{INT4, 128, 4096, 4096}, 64, 1, false},
    {{INT4, 256, 4096, 4096}, 64, 2, false},     {{INT4, 64, 4096, 14336}, 64, 1, true},
    {{INT4, 256, 4096, 14336}, 128, 2, true},    {{INT4, 128, 14336, 4096}, 128, 2, false},
    {{INT4, 64, 28672, 8192}, 64, 3, true},      {{INT4, 64, 8192, 28672}, 64, 3, true},
    {{INT4, 128, 11008, 4096}, 128, 2, true},    {{NULL, 64, 22016, 4096}, 64, 3, false},
    {{NULL, 128, 22016, 4096}, 128, 3, false},   {{NULL, 64, 4096, 4096}, 64, 1, true},
    {{"q4_0", 64, 22016, 4096}, 64, 3, false},   {{"q4_0", 256, 22016, 4096}, 128, 2, false},
    {{"q4_k", 64, 22016, 4096}, 64, 3, true},    {{"q4_k", 256, 22016, 4096}, 256, 2, true},
    {{NULL, 256, 22016, 4096}, 256, 2, true},    {{NULL, 2048, 22016, 4096}, 256, 2, true},
    {{"q4_k", 2048, 22016, 4096}, 256, 2, true},
};

START_TEST(has_the_fastest_tile)
{
    const struct shape *s = &fastest[_i].shape;
    coda_plan *p = plan_of(s, 0);
    const struct tile *t = &p->plan.schedule[0].tile;
    ck_assert(t->mainloop == &mainloop_wgmma_mixed);
    ck_assert_msg(t->bm == fastest[_i].bm && t->groups == fastest[_i].groups && t->dealt == fastest[_i].dealt,
                  "%s %d x %d x %d: %d rows, %d consumers%s", s->format, s->m, s->n, s->k, t->bm, t->groups,
                  t->dealt ? ", dealt" : "");
    coda_plan_free(p);
}
END_TEST

/* The sums of each block, and a flag for each consumer. */
START_TEST(sums_lie_in_the_workspace)
{
    const struct shape s = {INT4, 120, 22016, 4096};
    coda_plan *p = plan_of(&s, 0), *whole;
    const struct tile *t = &p->plan.schedule[0].tile;
    ck_assert(t->dealt);
    ck_assert_int_eq(t->blocks, p->plan.schedule[0].grid);
    const struct program *q = &p->plan.program[0];
    const struct tensor_use *last = &q->port[q->ports - 1];
    ck_assert_int_eq(last->role, USE_SCRATCH);
    ck_assert_int_eq(p->plan.buffer[last->buffer].bytes, t->blocks * t->groups * (128 * 64 * 4 + 16));
    whole = plan_of(&s, CODA_BATCH_INVARIANT);
    ck_assert_int_eq(coda_plan_workspace(whole), 0);
    coda_plan_free(p), coda_plan_free(whole);
}
END_TEST

/* A row's bits depend on no other row, nor on their number; kernels for any number of rows have whole tiles,
 * and so have odd numbers of slots. */
START_TEST(is_whole_where_it_must_be)
{
    static const struct {
        struct shape shape;
        unsigned flags;
    } whole[] = {{{INT4, 128, 22016, 4096}, CODA_BATCH_INVARIANT},
                 {{"q4_k", 64, 4096, 4096}, CODA_BATCH_INVARIANT},
                 {{INT4, 0, 22016, 4096}, 0},
                 {{"q4_k", 0, 4096, 4096}, 0},
                 {{INT4, 128, 22016, 4224}, 0}};
    coda_plan *p = plan_of(&whole[_i].shape, whole[_i].flags);
    for (int i = 0; i < p->plan.programs; i++) ck_assert(!p->plan.schedule[i].tile.dealt);
    coda_plan_free(p);
}
END_TEST

/* Norms of heads: with equal bits one main loop takes any number of rows. */
START_TEST(heads_have_one_main_loop)
{
    enum { FEW = 8, MANY = 64 };
    const struct mainloop *loop[2];
    for (int i = 0; i < 2; i++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_graph *g;
        coda_plan *p;
        char text[512];
        int rows = i ? MANY : FEW, head = _i ? 128 : 64;
        snprintf(text, sizeof text,
                 "%%x = input bf16[%d,512]\n%%b = weight u8[73728]\n"
                 "%%w = unpack %%b {format=q4_k,d0=256,d1=512,rank=2,to=bf16}\n%%y = matmul %%x, %%w\n"
                 "%%h = reshape %%y {d0=%d,d1=%d,d2=%d,rank=3}\n%%n = rms_norm %%h\noutput %%o = %%n\n",
                 rows, rows, 256 / head, head);
        ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
        opt.device = CODA_DEVICE_NONE;
        opt.flags = CODA_PLAN_ONLY | CODA_BATCH_INVARIANT;
        opt.arch = "sm_90a";
        ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
        loop[i] = p->plan.schedule[0].tile.mainloop;
        coda_plan_free(p), coda_graph_free(g);
    }
    ck_assert_msg(loop[0] == loop[1], "%s and %s", loop[0]->name, loop[1]->name);
    ck_assert_ptr_eq(loop[0], &mainloop_stream_mma);
}
END_TEST

TESTS(mixed, EACH(heads_have_one_main_loop, 2), EACH(has_the_fastest_tile, ARRAY_SIZE(fastest)),
      ONE(sums_lie_in_the_workspace), EACH(is_whole_where_it_must_be, 5));
