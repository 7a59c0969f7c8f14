/* test_mma.c -- which products have the mma.sync main loop, and in which tiles. */
#include <string.h>

#include "mainloop.h"
#include "util_gemm.h"

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST = 64, SMALL_SHARED = 101376, LARGE_SHARED = 166912 /* bytes of a block: sm_86, sm_80 */ };

static struct target a100, l40;

static void make_targets(void)
{
    a100 = target_of("sm_80", &(struct target_card){.name = "", .sms = 108, .shared_bytes = LARGE_SHARED});
    l40 = target_of("sm_89", &(struct target_card){.name = "", .sms = 142, .shared_bytes = SMALL_SHARED});
}

static struct program product(int64_t m, int64_t n, int64_t k)
{
    struct program p = {.kind = PROGRAM_GEMM, .rank = 3, .dim = {1, m, n}, .k = k};
    p.a = operand_of((struct tensor_use){.dtype = CODA_BF16, .batch = m * k, .row = k, .k = 1});
    p.b = operand_of((struct tensor_use){.dtype = CODA_BF16, .batch = n * k, .row = k, .k = 1});
    return p;
}

static bool by_mma(const struct program *p) { return tile_choose(p, &a100).mainloop == &mainloop_mma; }

START_TEST(takes_16_bits_at_any_stride)
{
    struct program p = product(256, 512, 128), q = p;
    ck_assert(by_mma(&p) && tile_choose(&p, &l40).mainloop == &mainloop_mma);
    q.a.data.row = 129, q.b.data.offset = 3;
    ck_assert(by_mma(&q));
    q = p, q.a.data.k = 256, q.a.data.row = 1;
    ck_assert(by_mma(&q));
    q.a.data.row = 2; /* nothing adjacent */
    ck_assert(by_mma(&q));
    q = p, q.a.dtype = q.a.data.dtype = q.b.dtype = q.b.data.dtype = CODA_F16;
    ck_assert(by_mma(&q));
    q.a.dtype = q.a.data.dtype = CODA_BF16; /* mixed */
    ck_assert(!by_mma(&q));
    q.a.dtype = q.a.data.dtype = q.b.dtype = q.b.data.dtype = CODA_F32;
    ck_assert(!by_mma(&q));
    q = p, q.k = 0;
    ck_assert(!by_mma(&q));
}
END_TEST

START_TEST(tiles_grow_with_the_product)
{
    static const struct {
        int64_t m, n, k;
        int bm, bn;
    } want[] = {
        {1, 4096, 4096, 64, 64},     {16, 22016, 4096, 64, 32},    {256, 4096, 4096, 64, 64},
        {1024, 4096, 4096, 128, 64}, {8192, 8192, 8192, 128, 128}, {4096, 32, 4096, 64, 32},
    };
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct program p = product(want[i].m, want[i].n, want[i].k);
        struct tile t = tile_choose(&p, &a100);
        ck_assert_msg(t.bm == want[i].bm && t.bn == want[i].bn, "[%d, %d, %d]: %dx%d", (int)want[i].m,
                      (int)want[i].n, (int)want[i].k, t.bm, t.bn);
    }
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
        if (i % 2) p.a.data.row = p.b.data.row = 1, p.a.data.k = 300, p.b.data.k = p.dim[2];
        int n = tile_candidates(&p, i % 4 < 2 ? &a100 : &l40, TILES_KNOWN, all, MOST);
        ck_assert_int_gt(n, 0);
        for (int j = 0; j < n; j++) {
            const struct tile *t = &all[j];
            ck_assert(t->mainloop == &mainloop_mma && t->bm % 64 == 0 && t->bn % 16 == 0);
            ck_assert(t->bm * t->bn <= 128 * 128 && t->stages >= 2 && t->stages <= 4);
            ck_assert(!head || t->bn % head == 0);
            ck_assert_int_le(tile_shared_bytes(&p, t), SMALL_SHARED);
        }
    }
}
END_TEST

/* Two blocks of the largest tile share an SM, with fewer slots where it has less memory. */
START_TEST(two_blocks_share_an_sm)
{
    struct program p = product(8192, 8192, 4096);
    struct tile large = tile_choose(&p, &a100), small = tile_choose(&p, &l40);
    ck_assert(large.bm * large.bn == 128 * 128 && large.stages == 4 && small.stages == 3);
    ck_assert_int_le(2 * (tile_shared_bytes(&p, &small) + 1024), SMALL_SHARED + 1024);
}
END_TEST

/* On Hopper no search finds it, even where wgmma does not fit; a decision names it. */
START_TEST(hopper_has_it_by_name)
{
    struct program p = product(256, 512, 128);
    struct tile all[MOST], wanted;
    ck_assert(tile_parse("mma 128x64x32 stages=4 groups=1 band=8", &wanted));
    for (int odd = 0; odd < 2; odd++, p.a.data.row = 129) {
        for (int class = 0; class < TILE_CLASSES; class ++)
            for (int i = tile_candidates(&p, &gemm_target, class, all, MOST); i-- > 0;)
                ck_assert(all[i].mainloop != &mainloop_mma);
        ck_assert(tile_choose(&p, &gemm_target).mainloop == (odd ? &mainloop_simt : &mainloop_wgmma));
        struct tile t = tile_offered(&p, &gemm_target, &wanted);
        ck_assert(tile_equal(&t, &wanted));
    }
    wanted.bm = 1;
    ck_assert(tile_offered(&p, &gemm_target, &wanted).mainloop == &mainloop_simt);
}
END_TEST

TESTS(mma, AROUND_ALL(make_targets, NULL), ONE(takes_16_bits_at_any_stride), ONE(tiles_grow_with_the_product),
      ONE(tiles_are_legal), ONE(two_blocks_share_an_sm), ONE(hopper_has_it_by_name));
