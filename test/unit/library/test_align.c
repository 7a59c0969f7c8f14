/*
 * test_align.c -- which queries see a key at all, as coda.h has it under CODA_ALIGN_LENGTH and _END.
 *
 * Every row of v is ones, so a query's result is 1 if it sees some key, and 0 if it sees none. Expected is a
 * sentence of coda.h: a position is i + lengths[b] - Tq or i + Tk - Tq; who is limited sees keys up to its
 * position, plus `ahead`; and under LENGTH who stands before row 0 sees none, whatever it is that asks for
 * positions. Where nothing does, all keys are seen.
 */
#include "base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { B = 3, TQ = 6, TK = 9, COLUMNS = 8 };

static const _Alignas(16) int32_t lengths[B] = {2, 4, 9};
static const _Alignas(16) float slope = 0.5f;

static const struct way {
    const char *option;
    bool slopes, placed, causal;
    int ahead;
} ways[] = {
    {"", false, false, false, 0},
    {", causal=1", false, true, true, 0},
    {", ahead=1", false, true, false, 1},
    {", ahead=5", false, true, false, 5},
    {", window=99", false, true, false, 0},
    {"", true, true, false, 0},
    {", score=sub", false, true, false, 0}, /* s - position */
    {", score=scale {alpha=2}", false, false, false, 0},
};

static bool sees(const struct way *w, bool from_length, int b, int i)
{
    int position = i + (from_length ? lengths[b] : TK) - TQ, keys = lengths[b];
    if (!w->placed) return keys > 0;
    if (from_length && position < 0) return false;
    if (w->causal || w->ahead) return position + w->ahead >= 0;
    return keys > 0;
}

static void expect(const struct way *w, bool from_length, int b, int i, double got, const char *who)
{
    double want = sees(w, from_length, b, i);
    ck_assert_msg(got > want - 1e-5 && got < want + 1e-5,
                  "%s%s%s, align %s: query %d of sequence %d is %g, not %g", who, w->option,
                  w->slopes ? ", slopes" : "", from_length ? "LENGTH" : "END", i, b, got, want);
}

START_TEST(who_sees_a_key)
{
    const struct way *w = &ways[_i / 2];
    bool from_length = _i % 2;
    static _Alignas(64) float q[B * TQ * COLUMNS], k[B * TK * COLUMNS], v[B * TK * COLUMNS],
        y[B * TQ * COLUMNS];
    static double exact[B * TQ * COLUMNS];
    char text[1024];
    coda_graph *g;
    coda_plan *p;
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    o.device = CODA_DEVICE_CPU;
    for (int i = 0; i < B * TK * COLUMNS; i++) v[i] = 1, k[i] = (float)(i % 5);
    for (int i = 0; i < B * TQ * COLUMNS; i++) q[i] = (float)(i % 3);
    snprintf(
        text, sizeof text,
        "%%q = input f32[%d,%d,%d]\n%%k = input f32[%d,%d,%d]\n%%v = input f32[%d,%d,%d]\n%%n = input "
        "i32[%d]\n"
        "%%s = weight f32[1]\n%%y = attention %%q, %%k, %%v, %%n, _, %s {align=%d%s}\noutput %%y = %%y\n",
        B, TQ, COLUMNS, B, TK, COLUMNS, B, TK, COLUMNS, B, w->slopes ? "%s" : "_", from_length ? 3 : 2,
        w->option);
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s%s", text, coda_error());
    ck_assert_msg(coda_compile(&p, g, &o) == CODA_OK, "%s%s", text, coda_error());
    void *args[] = {q, k, v, (void *)(uintptr_t)lengths, (void *)(uintptr_t)&slope, y};
    void *workspace = aligned_alloc(256, coda_plan_workspace(p) + 256);
    ck_assert_msg(coda_run(p, args, NULL, workspace, NULL) == CODA_OK, "%s", coda_error());
    args[5] = exact;
    ck_assert_msg(coda_evaluate(g, args) == CODA_OK, "%s", coda_error());
    for (int b = 0; b < B; b++)
        for (int i = 0; i < TQ; i++) {
            expect(w, from_length, b, i, y[(b * TQ + i) * COLUMNS], "coda_run");
            expect(w, from_length, b, i, exact[(b * TQ + i) * COLUMNS], "coda_evaluate");
        }
    free(workspace);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

TESTS(align, EACH(who_sees_a_key, 2 * ARRAY_SIZE(ways)));
