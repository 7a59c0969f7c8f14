/* test_stream_mma.c -- which products of few rows have the main loop stream_mma, and in which tiles. */
#include <string.h>

#include "mainloop.h"
#include "util_gemm.h"

#include "tests.h" /* last: Check has a macro named fail */

static struct program product(int64_t m, int64_t n, int64_t k)
{
    struct program p = {.kind = PROGRAM_GEMM, .rank = 3, .dim = {1, m, n}, .k = k};
    p.a = operand_of((struct tensor_use){.dtype = CODA_BF16, .batch = m * k, .row = k, .k = 1});
    p.b = operand_of((struct tensor_use){.dtype = CODA_BF16, .batch = n * k, .row = k, .k = 1});
    return p;
}

static const struct mainloop *chosen(const struct program *p)
{
    return tile_choose(p, &gemm_target).mainloop;
}

/* Weights of 16 bits have faster ones, whatever K. */
START_TEST(leaves_16_bits_to_others)
{
    static const struct {
        int64_t m, n, k;
        const struct mainloop *want;
    } want[] = {
        {8, 4096, 14336, &mainloop_wgmma}, {8, 8192, 28672, &mainloop_wgmma},
        {1, 8192, 32768, &mainloop_wgmma}, {3, 4096, 4104, &mainloop_wgmma},
        {8, 4096, 4096, &mainloop_skinny}, {1, 4096, 14336, &mainloop_gemv},
        {9, 4096, 14336, &mainloop_wgmma},
    };
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct program p = product(want[i].m, want[i].n, want[i].k);
        ck_assert_msg(chosen(&p) == want[i].want, "[%d, %d, %d] %s", (int)want[i].m, (int)want[i].n,
                      (int)want[i].k, chosen(&p)->name);
    }
}
END_TEST

START_TEST(leaves_others_what_it_cannot_copy)
{
    struct program p = product(8, 4096, 14336), q;
    p.b.dtype = p.b.data.dtype = CODA_F8E4M3;
    ck_assert_ptr_eq(chosen(&p), &mainloop_stream_mma);
    q = p, q.dim[0] = 2, q.b.data.batch += 8;
    ck_assert(chosen(&q) != &mainloop_stream_mma);
    q = p, q.a.data.k = 8, q.a.data.row = 1;
    ck_assert(chosen(&q) != &mainloop_stream_mma);
    q = p, q.b.data.k = 4096, q.b.data.row = 1;
    ck_assert(chosen(&q) != &mainloop_stream_mma);
    q = p, q.b.data.row = 14344;
    ck_assert(chosen(&q) != &mainloop_stream_mma);
    q = p, q.k = 14328; /* pitches are as they were */
    ck_assert(chosen(&q) != &mainloop_stream_mma);
}
END_TEST

/* In half of an SM's memory where registers leave room for a second block, and in all of it. */
START_TEST(tuning_tries_it)
{
    static const int64_t rows[] = {1, 2, 8, 9, 16};
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
        struct program p = product(rows[i], 22016, 4096);
        struct tile all[MOST_CANDIDATES];
        int n = tile_candidates(&p, &gemm_target, TILES_SKINNY, all, MOST_CANDIDATES), tried = 0;
        for (int k = 0; k < n; k++) {
            if (all[k].mainloop != &mainloop_stream_mma) continue;
            int bytes = tile_shared_bytes(&p, &all[k]);
            bool half = 2 * (bytes + 1024) <= gemm_target.shared_bytes + 1024;
            ck_assert(all[k].stages >= 3 && bytes <= gemm_target.shared_bytes && all[k].blocks == 132);
            ck_assert(!half || all[k].mainloop->shares_sm(&p, &all[k]));
            ck_assert_int_eq(program_states(&p, &all[k]), all[k].blocks);
            tried++;
        }
        ck_assert_int_eq(tried, rows[i] <= 8 ? 2 : 1);
    }
}
END_TEST

/* Weights of 8 bits, of more rows by price, of one by GEMV unless that is too long; not where copies of 16
 * bytes would miss some of them. */
START_TEST(takes_8_bits)
{
    static const coda_dtype types[] = {CODA_F8E4M3, CODA_F8E5M2, CODA_I8};
    static const int64_t rows[] = {1, 2, 8, 9, 16};
    for (int i = 0; i < ARRAY_SIZE(types) * ARRAY_SIZE(rows); i++) {
        struct program p = product(rows[i / ARRAY_SIZE(types)], 4096, 1040), q;
        p.b.dtype = p.b.data.dtype = types[i % ARRAY_SIZE(types)];
        ck_assert_ptr_eq(chosen(&p), p.dim[1] > 1 ? &mainloop_stream_mma : &mainloop_gemv);
        q = p, q.k = q.b.data.row = q.a.data.row = 16400;
        ck_assert_ptr_eq(chosen(&q), &mainloop_stream_mma);
        q = p, q.dim[1] = 4096;
        ck_assert_ptr_eq(chosen(&q), &mainloop_wgmma_mixed);
        q = p, q.k = q.b.data.row = 1048, q.a.data.row = 1048;
        ck_assert_ptr_eq(chosen(&q), &mainloop_mma);
        q = p, q.b.data.offset = 8;
        ck_assert_ptr_eq(chosen(&q), &mainloop_mma);
        q = p, q.a.dtype = q.a.data.dtype = CODA_F32;
        ck_assert_ptr_eq(chosen(&q), &mainloop_simt);
    }
}
END_TEST

/* One main loop for all numbers of rows, in groups of 16, whose rows have the same bits in all of them. */
START_TEST(keeps_bits_of_8_bits)
{
    static const int64_t rows[] = {1, 8, 9, 16, 17, 300, 5000};
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
        struct program p = product(rows[i], 4096, 1040);
        p.b.dtype = p.b.data.dtype = CODA_F8E4M3, p.invariant = true;
        struct tile t = tile_choose(&p, &gemm_target);
        struct schedule s = {.tile = t};
        ck_assert_ptr_eq(t.mainloop, &mainloop_stream_mma);
        t.mainloop->complete(&s, &p, &gemm_target);
        ck_assert_int_eq(s.grid, t.blocks * CEIL_DIV(p.dim[1], 16));
        ck_assert(stream_rows(&p, &t) == 16 && program_states(&p, &t) == t.blocks);
    }
}
END_TEST

static struct program packed(const char *word, int64_t m, int64_t n, int64_t k)
{
    struct program p = product(m, n, k);
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    ck_assert_int_eq(coda_pack_format_find(word, &f), CODA_OK);
    struct pack_format inside = {f.codes, f.scales, f.zeros, (int32_t)f.group};
    p.b.data.packing = (struct packing){graph_format(&inside), k};
    return p;
}

static const struct mainloop *chosen_packed(const char *word, int64_t m, int64_t k, int64_t columns,
                                            int64_t first)
{
    struct program p = packed(word, m, 4096, columns);
    p.k = p.a.data.row = k, p.a.data.batch = m * k, p.b.data.offset = first;
    return chosen(&p);
}

/* Whole rows of records, or whole records of them, from a row block on. */
START_TEST(takes_packed_weights)
{
    static const char *const words[] = {"int4_g128_f16", "q4_k", "q6_k", "q8_0", "mxfp4", "nvfp4", "q5_1"};
    for (int i = 0; i < ARRAY_SIZE(words); i++) {
        for (int m = 1; m <= 16; m += 5)
            ck_assert_ptr_eq(chosen_packed(words[i], m, 4096, 4096, 0), &mainloop_stream_mma);
        ck_assert_ptr_eq(chosen_packed(words[i], 8, 4000, 4000, 0), &mainloop_stream_mma);
        ck_assert_ptr_eq(chosen_packed(words[i], 8, 2048, 4096, 32 * 4096), &mainloop_stream_mma);
        ck_assert_ptr_ne(chosen_packed(words[i], 8, 2048, 4096, 8 * 4096), &mainloop_stream_mma);
        ck_assert_ptr_ne(chosen_packed(words[i], 8, 2048, 4096, 256), &mainloop_stream_mma);
        ck_assert_ptr_ne(chosen_packed(words[i], 8, 2000, 4096, 0), &mainloop_stream_mma);
    }
}
END_TEST

/* Chunks of K, on which bits depend, are those of the columns that a block has, whatever the rows. */
START_TEST(chunks_whatever_the_rows)
{
    static const struct {
        int64_t n, k;
        int chunk;
    } want[] = {{4096, 11008, 1024}, {4096, 2048, 1024}, {1024, 4096, 1024}, {4224, 4096, 1024},
                {4240, 4096, 512},   {22016, 4096, 512}, {4096, 1920, 512}};
    static const char *const words[] = {"int4_g128_bf16", "q4_k", "q6_k", "q8_0", "mxfp4"};
    for (int i = 0; i < ARRAY_SIZE(want) * ARRAY_SIZE(words); i++)
        for (int m = 1; m <= 16; m++) {
            int64_t n = want[i / ARRAY_SIZE(words)].n, k = want[i / ARRAY_SIZE(words)].k;
            struct program p = packed(words[i % ARRAY_SIZE(words)], m, n, k);
            p.invariant = m % 5 == 0;
            struct tile t = tile_choose(&p, &gemm_target);
            ck_assert_ptr_eq(t.mainloop, &mainloop_stream_mma);
            ck_assert_msg(t.bk == want[i / ARRAY_SIZE(words)].chunk && t.blocks == 132,
                          "%s, %d x %d x %d: %d", words[i % ARRAY_SIZE(words)], m, (int)n, (int)k, t.bk);
        }
}
END_TEST

/* A row or two are digits where a block has tiles enough for what they cost. */
START_TEST(digits_by_tiles)
{
    static const struct {
        const char *word;
        int64_t m, n, k;
        bool want;
    } want[] = {{"int4_g128_bf16", 1, 22016, 4096, true},
                {"q4_k", 1, 22016, 4096, true},
                {"q4_0", 1, 12288, 4096, true},
                {"int4_g128_bf16", 1, 4096, 4096, false},
                {"int4_g128_bf16", 1, 4096, 11008, false},
                {"int4_g128_bf16", 1, 12288, 512, false},
                {"int4_g128_bf16", 2, 22016, 4096, true},
                {"q4_k", 2, 22016, 4096, true},
                {"int4_g128_bf16", 2, 8192, 4096, false},
                {"int4_g128_bf16", 3, 22016, 4096, false},
                {"q6_k", 1, 22016, 4096, false},
                {"mxfp4", 1, 22016, 4096, false}};
    for (int i = 0; i < 2 * ARRAY_SIZE(want); i++) {
        struct program p = packed(want[i / 2].word, want[i / 2].m, want[i / 2].n, want[i / 2].k);
        p.invariant = i % 2 != 0; /* then a row has the bits that it has among others */
        struct schedule s = {.tile = tile_choose(&p, &gemm_target)};
        struct text t = {0};
        s.tile.mainloop->print_config(&p, &s, &t);
        ck_assert_msg((strstr(text_str(&t), "DigitRows") != NULL) == (want[i / 2].want && !p.invariant),
                      "%s, %d x %d x %d: %s", want[i / 2].word, (int)want[i / 2].m, (int)want[i / 2].n,
                      (int)want[i / 2].k, text_str(&t));
        text_free(&t);
    }
}
END_TEST

/* Batches have as many blocks each as SMs allow, but one at least, or what their sums want. */
START_TEST(batches_share_the_sms)
{
    static const struct {
        int64_t batches;
        int blocks;
    } want[] = {{1, 132}, {2, 66}, {8, 16}, {32, 4}, {128, 1}, {132, 1}, {500, 1}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct program p = product(4, 2880, 2880);
        p.b.dtype = p.b.data.dtype = CODA_F8E4M3, p.dim[0] = want[i].batches;
        struct tile t = tile_choose(&p, &gemm_target);
        struct schedule s = {.tile = t};
        ck_assert_ptr_eq(t.mainloop, &mainloop_stream_mma);
        t.mainloop->complete(&s, &p, &gemm_target);
        ck_assert_msg(t.blocks >= want[i].blocks && s.grid == want[i].batches * t.blocks, "%d: %d blocks",
                      (int)want[i].batches, t.blocks);
    }
}
END_TEST

/* Sums of a share that leave no ring: more shares. */
START_TEST(wide_products_have_more_blocks)
{
    struct program p = product(16, 1 << 20, 4096);
    p.b.dtype = p.b.data.dtype = CODA_F8E4M3;
    struct tile t = tile_choose(&p, &gemm_target);
    ck_assert(t.mainloop == &mainloop_stream_mma && t.blocks > 132 && t.stages >= 3);
}
END_TEST

TESTS(stream_mma, ONE(takes_8_bits), ONE(takes_packed_weights), ONE(keeps_bits_of_8_bits),
      ONE(chunks_whatever_the_rows), ONE(digits_by_tiles), ONE(batches_share_the_sms),
      ONE(wide_products_have_more_blocks), ONE(leaves_16_bits_to_others),
      ONE(leaves_others_what_it_cannot_copy), ONE(tuning_tries_it));
