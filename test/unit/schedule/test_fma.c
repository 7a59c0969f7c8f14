/* test_fma.c -- which products have the main loop of fp32 operands, and in which tiles. */
#include <string.h>

#include "mainloop.h"
#include "util_gemm.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST = 64, SMALL_SHARED = 101376 /* bytes of a block on sm_86 */ };

static struct program product(int64_t m, int64_t n, int64_t k)
{
    struct program p = {.kind = PROGRAM_GEMM, .rank = 3, .dim = {1, m, n}, .k = k};
    p.a = operand_of((struct tensor_use){.dtype = CODA_F32, .batch = m * k, .row = k, .k = 1});
    p.b = operand_of((struct tensor_use){.dtype = CODA_F32, .batch = n * k, .row = k, .k = 1});
    return p;
}

static const struct mainloop *loop_of(const struct program *p)
{
    return tile_choose(p, &gemm_target).mainloop;
}

START_TEST(takes_fp32_at_any_stride)
{
    struct program p = product(256, 512, 128), q = p;
    const struct target_card card = {.name = "", .sms = 142, .shared_bytes = SMALL_SHARED};
    const struct target small = target_of("sm_86", &card);
    ck_assert(loop_of(&p) == &mainloop_fma && tile_choose(&p, &small).mainloop == &mainloop_fma);
    q.a.data.row = 129, q.b.data.offset = 3;
    ck_assert(loop_of(&q) == &mainloop_fma);
    q = p, q.b.data.k = 512, q.b.data.row = 1;
    ck_assert(loop_of(&q) == &mainloop_fma);
    q.b.data.row = 2; /* nothing adjacent */
    ck_assert(loop_of(&q) == &mainloop_fma);
    q = p, q.a.dtype = q.a.data.dtype = CODA_BF16; /* mixed */
    ck_assert(loop_of(&q) == &mainloop_simt);
    q = p, q.k = 0;
    ck_assert(loop_of(&q) == &mainloop_simt);
}
END_TEST

/* Blocks fit each GPU that runs the same cubin; sums fit registers; heads are whole. */
START_TEST(tiles_are_legal)
{
    static const int heads[] = {0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 192, 256};
    struct tile all[MOST];
    for (int i = 0; i < 2 * ARRAY_SIZE(heads); i++) {
        int head = heads[i / 2];
        struct program p = product(300, head ? head * 6 : 200, 250);
        if (head) p.pair = PAIR_HEADS, p.pairing = (struct pairing){.head_dim = head, .half = true};
        if (i % 2) p.b.data.k = p.dim[2], p.b.data.row = 1;
        int n = tile_candidates(&p, &gemm_target, TILES_KNOWN, all, MOST);
        ck_assert_int_gt(n, 0);
        for (int j = 0; j < n; j++) {
            const struct tile *t = &all[j];
            ck_assert(t->mainloop == &mainloop_fma && t->bm % 64 == 0 && t->bn % 16 == 0);
            ck_assert_int_le(t->bm * t->bn, 128 * 128 * t->groups);
            ck_assert(t->stages >= 3 && (!head || t->bn % head == 0));
            ck_assert_int_le(tile_shared_bytes(&p, t), SMALL_SHARED);
        }
    }
}
END_TEST

/* Columns' states are of 64 rows, so that they have the same bits in tiles of any height. */
START_TEST(rows_keep_bits)
{
    struct program p = product(4096, 1536, 384);
    struct step step[3] = {{.kind = STEP_ACC, .cls = CLASS_TILE, .port = -1},
                           {.kind = STEP_REDUCE, .axis = REDUCE_COLUMNS, .prim = prim_find("sum")}};
    struct tile all[MOST];
    p.step = step, p.steps = 2, p.invariant = true;
    int n = tile_candidates(&p, &gemm_target, TILES_KNOWN, all, MOST);
    ck_assert_int_gt(n, 1);
    for (int i = 0; i < n; i++) ck_assert_int_eq(all[i].bm / all[i].groups, 64);
}
END_TEST

/* Tiles that fill the SMs in one wave, where others would want two. */
START_TEST(waves_are_full)
{
    static const struct {
        int64_t n, k;
    } want[] = {{384, 384}, {384, 1536}, {1152, 384}, {1536, 384}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct program p = product(4096, want[i].n, want[i].k);
        struct tile t = tile_choose(&p, &gemm_target);
        double waves = (double)program_blocks(&p, &t) / 132;
        int64_t whole = CEIL_DIV(program_blocks(&p, &t), 132);
        ck_assert_msg(waves / (double)whole > 0.95, "%d %d: %dx%d", (int)want[i].n, (int)want[i].k, t.bm,
                      t.bn);
    }
}
END_TEST

TESTS(fma, ONE(takes_fp32_at_any_stride), ONE(tiles_are_legal), ONE(rows_keep_bits), ONE(waves_are_full));
