/* test_tile.c -- which mainloop and tile a GEMM gets, as tables. */
#include <stdlib.h>
#include <string.h>

#include "mainloop.h"
#include "shim/shim.h"
#include "tile.h"
#include "util_gemm.h"

#include "tests.h" /* last: Check has a macro named fail */

/* A product of dense bf16 operands, without steps. */
static struct program product(int64_t m, int64_t n, int64_t k)
{
    struct program p = {.kind = PROGRAM_GEMM, .rank = 3, .dim = {1, m, n}, .k = k};
    p.a = operand_of((struct tensor_use){.dtype = CODA_BF16, .batch = m * k, .row = k, .k = 1});
    p.b = operand_of((struct tensor_use){.dtype = CODA_BF16, .batch = n * k, .row = k, .k = 1});
    return p;
}

/* Would its kernel begin before the one ahead of it has ended? */
static bool is_early(const struct program *p)
{
    struct schedule s = {.tile = tile_choose(p, &gemm_target)};
    s.tile.mainloop->complete(&s, p, &gemm_target);
    return s.early;
}

/* The candidate that is printed so; the choice, if there is none. */
static struct tile named(const struct program *p, const char *words)
{
    struct tile t;
    ck_assert_msg(tile_parse(words, &t), "%s", words);
    return tile_offered(p, &gemm_target, &t);
}

static struct tile choose(const struct program *p) { return tile_choose(p, &gemm_target); }
static bool on_hopper(const struct program *p) { return choose(p).mainloop == &mainloop_wgmma; }

/* What a tile costs is what ranked it, whoever asks. */
START_TEST(costs_are_those_of_the_search)
{
    static const int64_t rows[] = {1, 2, 5, 16, 40, 300, 1100, 5000};
    int found = 0;
    for (int i = 0; i < ARRAY_SIZE(rows) * TILE_CLASSES; i++) {
        struct program p = product(rows[i / TILE_CLASSES], 4096, 2048);
        struct search s = {.p = &p, .most = MOST_CANDIDATES};
        search_run(&s, &gemm_target, (enum tile_class)(i % TILE_CLASSES));
        for (int k = 0; k < s.n; k++, found++)
            ck_assert(s.tile[k].mainloop->cost(&p, &s.tile[k], s.target) == s.cost[k]);
    }
    ck_assert_int_gt(found, 200);
}
END_TEST

START_TEST(shapes)
{
    static const struct {
        int64_t m, n, k;
        int bm, bn;
        bool pingpong;
    } want[] = {
        {16384, 22016, 4096, 128, 192, true}, {16384, 2048, 2048, 128, 192, true},
        {2048, 4096, 4096, 128, 256, false}, /* two whole waves */
        {2048, 4096, 512, 128, 128, true},   /* a short loop: an epilogue that hides */
        {64, 4096, 4096, 64, 32, true},      /* few rows: as many narrow tiles as there are SMs */
        {16, 4096, 4160, 64, 32, false},     /* very few: one consumer */
        {256, 4096, 4096, 64, 128, true},     {512, 4096, 4096, 128, 128, false},
        {1024, 4096, 4096, 128, 256, false},  /* a wave: both consumers drain */
        {16384, 8192, 8192, 256, 192, false}, /* it lasts: the tile that asks L2 for least */
        {256, 22016, 4096, 128, 112, true},   /* three whole waves */
    };
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct program p = product(want[i].m, want[i].n, want[i].k);
        struct tile t = choose(&p);
        ck_assert_msg(t.mainloop == &mainloop_wgmma && t.bm == want[i].bm && t.bn == want[i].bn &&
                          t.pingpong == want[i].pingpong,
                      "[%d, %d, %d] got %dx%d", (int)want[i].m, (int)want[i].n, (int)want[i].k, t.bm, t.bn);
    }
}
END_TEST

/* A wave of all SMs is about as high as it is wide, in whole bands. */
START_TEST(squares_are_square)
{
    static const int64_t shape[][3] = {{16384, 8192, 8192}, {16384, 2048, 5632}, {4096, 640, 4096}};
    static const bool few_waves[] = {false, false, true}, known[] = {true, false, true}; /* to the price */
    for (int s = 0; s < ARRAY_SIZE(shape); s++) {
        struct program p = product(shape[s][0], shape[s][1], shape[s][2]);
        struct tile t[16];
        int n = tile_candidates(&p, &gemm_target, TILES_SQUARE, t, ARRAY_SIZE(t));
        ck_assert(few_waves[s] ? n < ARRAY_SIZE(t) : n == ARRAY_SIZE(t));
        for (int i = 0; i < n; i++) {
            int64_t columns = (p.dim[2] + t[i].bn - 1) / t[i].bn, high = gemm_target.sms / t[i].band;
            double aspect = (double)(high * t[i].bm) / (double)(t[i].band * t[i].bn);
            ck_assert(t[i].across && t[i].serpentine && t[i].band <= columns);
            ck_assert_int_ge(10 * high * t[i].band, 9 * gemm_target.sms);
            if (t[i].band < columns - 1) ck_assert(aspect > 0.4 && aspect < 2.5);
        }
        ck_assert_int_eq(tile_candidates(&p, &gemm_target, TILES_CLUSTERED, t, 1), 1);
        ck_assert_int_eq(t[0].band % tile_cluster_n(&t[0]), 0);
        ck_assert(choose(&p).across == known[s]);
    }
    struct program few = product(1024, 8192, 8192);
    struct tile t;
    ck_assert_int_eq(tile_candidates(&few, &gemm_target, TILES_SQUARE, &t, 1), 0);
}
END_TEST

/* Few tiles: blocks share K, each has an SM, and their sums fit where the operands were. */
START_TEST(few_tiles_share_k)
{
    struct program p = product(64, 1024, 4096);
    struct tile t = choose(&p);
    ck_assert_int_eq(t.splits, 2);
    ck_assert_int_eq(t.groups, 1);
    ck_assert_int_le(1024 / t.bn * t.splits, gemm_target.sms);
    p.dim[2] = 16384;
    ck_assert_int_le(choose(&p).splits, 1); /* enough tiles */
    p.dim[1] = p.dim[2] = 1024;
    ck_assert_int_le(choose(&p).splits, 1); /* enough rows */
}
END_TEST

/* More rows, whose tiles leave SMs idle: tuning may choose tiles whose K is shared and sums scattered. They
 * fit, find an SM for each block, and have a name; the price alone chooses none. */
START_TEST(tuning_tries_scattered_sums)
{
    static const struct {
        int64_t m, n;
        int tiles;
    } want[] = {{64, 4096, 0},   {128, 4096, 3},  {256, 4096, 5}, {512, 4096, 2},
                {1024, 4096, 0}, {1024, 2048, 2}, {1025, 64, 0},  {256, 22016, 0}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct program p = product(want[i].m, want[i].n, 4096);
        struct tile t[8];
        int n = tile_candidates(&p, &gemm_target, TILES_SCATTERED, t, 8);
        ck_assert_msg(n == want[i].tiles, "[%d, %d] has %d", (int)want[i].m, (int)want[i].n, n);
        ck_assert(!choose(&p).scattered);
        for (int j = 0; j < n; j++) {
            struct text words = {0};
            tile_print(&t[j], &words);
            struct tile again = named(&p, text_str(&words));
            ck_assert(again.scattered && again.bm == t[j].bm && again.bn == t[j].bn);
            ck_assert(again.splits == t[j].splits && t[j].stages >= 3 && tile_share(&t[j]) % 32 == 0);
            ck_assert_int_le(tile_shared_bytes(&p, &t[j]), gemm_target.shared_bytes);
            int64_t tiles = CEIL_DIV(want[i].m, t[j].bm) * CEIL_DIV(want[i].n, t[j].bn);
            ck_assert_int_le(tiles * t[j].splits, gemm_target.sms);
            text_free(&words);
        }
    }
}
END_TEST

/* A share has both columns of each pair, and as many as TMA stores together. */
START_TEST(shares_keep_pairs)
{
    struct program p = product(256, 4096, 4096);
    struct tile t[8];
    p.pair = PAIR_GLU_STACKED;
    int n = tile_candidates(&p, &gemm_target, TILES_SCATTERED, t, 8);
    ck_assert_int_eq(n, 4); /* a quarter of 128 columns is too narrow */
    for (int i = 0; i < n; i++) ck_assert_int_eq(tile_share(&t[i]) % 64, 0);
    p.pair = PAIR_HEADS;
    p.pairing = (struct pairing){.head_dim = 128, .rotary = 128, .heads = 32, .half = true};
    ck_assert_int_eq(tile_candidates(&p, &gemm_target, TILES_SCATTERED, t, 8), 4); /* half heads */
    p.pairing.rotary = 64;                                                         /* whole ones */
    ck_assert_int_eq(tile_candidates(&p, &gemm_target, TILES_SCATTERED, t, 8), 1);
    p.pairing.head_dim = p.pairing.rotary = 32;
    ck_assert_int_eq(tile_candidates(&p, &gemm_target, TILES_SCATTERED, t, 8), 4);
}
END_TEST

/* What only tuning may choose: none is chosen by price, and each fits, has a name, and, in clusters, parts
 * that TMA can load and tiles for each block. */
static void check_untried(struct program p, enum tile_class class, int least)
{
    struct tile t[64];
    int n = tile_candidates(&p, &gemm_target, class, t, ARRAY_SIZE(t));
    ck_assert_msg(n >= least, "[%d, %d] has %d of class %d", (int)p.dim[1], (int)p.dim[2], n, class);
    ck_assert(tile_cluster(&(struct tile){0}) == 1 && choose(&p).groups < 3 && !choose(&p).cluster_m);
    for (int i = 0; i < n; i++) {
        struct text words = {0};
        int cm = tile_cluster_m(&t[i]), cn = tile_cluster_n(&t[i]);
        tile_print(&t[i], &words);
        struct tile again = named(&p, text_str(&words));
        ck_assert_msg(again.bm == t[i].bm && again.bn == t[i].bn && again.cluster_m == t[i].cluster_m &&
                          again.cluster_n == t[i].cluster_n && again.groups == t[i].groups,
                      "%s", text_str(&words));
        ck_assert(t[i].stages >= 3 && t[i].band % (t[i].across ? cn : cm) == 0 && tile_splits(&t[i]) == 1);
        ck_assert_int_le(tile_shared_bytes(&p, &t[i]), gemm_target.shared_bytes);
        ck_assert_msg((cm * cn == 2 || class == TILES_THREE) && (class == TILES_THREE) == (t[i].groups == 3),
                      "%s", text_str(&words));
        ck_assert(p.dim[1] > (cm - 1) * t[i].bm && p.dim[2] > (cn - 1) * t[i].bn);
        ck_assert(t[i].bn / cm % (p.b.data.k == 1 ? 8 : 64) == 0 &&
                  t[i].bm / cn % (p.a.data.k == 1 ? 8 : 64) == 0);
        ck_assert_int_eq(program_blocks(&p, &t[i]) % (cm * cn), 0);
        text_free(&words);
    }
}

START_TEST(tuning_tries_clusters_and_three_consumers)
{
    static const int64_t rows[] = {129, 256, 1000, 2048, 16384};
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
        struct program p = product(rows[i], 4096, 4096), q = p;
        check_untried(p, TILES_CLUSTERED, 4);
        check_untried(p, TILES_THREE, 3);
        q.pair = PAIR_GLU_STACKED;
        check_untried(q, TILES_CLUSTERED, 4);
        check_untried(q, TILES_THREE, 3);
        q = p, q.a.data.row = q.b.data.row = 1, q.a.data.k = rows[i] / 8 * 8 + 8, q.b.data.k = 4096;
        check_untried(q, TILES_CLUSTERED, 4);
        q = p, q.pair = PAIR_HEADS;
        q.pairing = (struct pairing){.head_dim = 128, .rotary = 128, .heads = 32, .half = true};
        check_untried(q, TILES_CLUSTERED, 4);
        check_untried(q, TILES_THREE, 3);
    }
    check_untried(product(8, 64, 512), TILES_THREE, 0);
    struct tile t;
    struct program p = product(100, 4096, 512), q = product(2000, 64, 512);
    ck_assert_int_eq(tile_candidates(&p, &gemm_target, TILES_THREE, &t, 1), 0); /* rows for two */
    q.dim[1] = 64, q.dim[2] = 16;
    ck_assert_int_eq(tile_candidates(&q, &gemm_target, TILES_CLUSTERED, &t, 1), 0); /* a tile alone */
}
END_TEST

/* The squares that move fewest bytes are among those that tuning tries first. */
START_TEST(squares_are_tried_first)
{
    static const int64_t rows[] = {1024, 2048, 4096, 16384};
    for (int i = 0; i < ARRAY_SIZE(rows); i++) {
        struct program p = product(rows[i], 8192, 8192);
        struct tile t[6];
        int n = tile_candidates(&p, &gemm_target, TILES_THREE, t, 6);
        bool found = false;
        for (int j = 0; j < n; j++) found = found || (t[j].bn == 192 && t[j].cluster_m == 2);
        ck_assert_msg(found, "M %d", (int)rows[i]);
    }
}
END_TEST

/* A row streams the weights, in half of an SM's memory; steady weights, before the program ahead ends. */
/* What "residual" of the table gets in another shape: it reads a tile and stores two. */
static void residual(struct gemm_rig *r, int64_t m, int64_t n, int64_t k, int sms)
{
    struct gemm_case c = {0};
    for (int i = 0; i < gemm_case_count; i++)
        if (!strcmp(gemm_cases[i].name, "residual")) c = gemm_cases[i];
    c.m = m, c.n = n, c.k = k, c.tile = (struct tile){0};
    ck_assert_msg(gemm_emit(&c, GEMM_HOPPER, sms, r) == CODA_OK, "%s", coda_error());
}

/* Where no block has a second tile the ring is the epilogue's as well, and longer. Two waves of tiles that
 * both consumers share, if their ring were short; never many. */
START_TEST(rings_lend_where_tiles_are_few)
{
    static const struct {
        int64_t m, n;
        int sms;
        bool lends;
    } want[] = {{64, 4096, 132, true},    {256, 4096, 132, true},    {512, 4096, 132, true},
                {1024, 4096, 132, true},  {2048, 4096, 132, true},   {256, 12288, 132, true},
                {256, 22016, 132, false}, {16384, 4096, 132, false}, {256, 4096, 24, false}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        static struct gemm_rig r;
        struct tile own;
        residual(&r, want[i].m, want[i].n, 4096, want[i].sms);
        ck_assert_msg(r.s.tile.lends == want[i].lends, "[%d, %d] on %d SMs", (int)want[i].m, (int)want[i].n,
                      want[i].sms);
        ck_assert_int_le(r.s.shared_bytes, gemm_target.shared_bytes);
        own = r.s.tile;
        own.lends = false;
        bool once = program_blocks(&r.p, &r.s.tile) <= want[i].sms;
        if (r.s.tile.lends) {
            ck_assert_int_gt(r.s.tile.stages, tile_stages(&r.p, &own, gemm_target.shared_bytes));
            ck_assert(once || (!r.s.tile.pingpong && want[i].m == 2048));
            ck_assert_int_eq(r.s.persistent, !once);
        }
        gemm_free(&r);
    }
}
END_TEST

/* A ring that could not hold what the epilogue needs does not lend. */
START_TEST(short_rings_do_not_lend)
{
    static struct gemm_rig r;
    residual(&r, 1024, 4096, 4096, 132);
    struct tile t = r.s.tile;
    ck_assert(program_may_lend(&r.p, &t));
    t.stages = 2; /* of 32 KB: what is fetched, and nothing for what is stored */
    ck_assert(!program_may_lend(&r.p, &t));
    t.stages = 4, t.splits = 2;
    ck_assert(!program_may_lend(&r.p, &t));
    t.splits = 0, t.cluster_m = 2;
    ck_assert(!program_may_lend(&r.p, &t));
    gemm_free(&r);
}
END_TEST

/* Every column of every tile row is in one tile. */
START_TEST(walks_cover_all)
{
    const struct shim_walk *w = &shim_walks[_i];
    int rows = CEIL_DIV(w->m, w->bm);
    char *seen = calloc((size_t)rows, (size_t)w->n);
    for (int i = 0; i < w->tiles; i++) {
        struct shim_tile t;
        w->tile((unsigned)i, &t);
        ck_assert(t.m >= 0 && t.m < rows && t.first >= 0 && t.first < w->n);
        ck_assert(t.width == w->bn || (w->tail && t.width == w->tail_bn));
        char *columns = seen + (size_t)t.m * (size_t)w->n + t.first;
        size_t width = (size_t)MIN(t.width, w->n - t.first);
        ck_assert_msg(!memchr(columns, 1, width), "tile %d: columns %d.. of row %d again", i, t.first, t.m);
        memset(columns, 1, width);
    }
    ck_assert(!memchr(seen, 0, (size_t)rows * (size_t)w->n));
    free(seen);
}
END_TEST

static int busiest_columns(const struct shim_walk *w)
{
    int most = 0, *columns = calloc((size_t)w->blocks, sizeof *columns);
    for (int i = 0; i < w->tiles; i++) {
        struct shim_tile t;
        w->tile((unsigned)i, &t);
        columns[i % w->blocks] += t.width;
    }
    for (int b = 0; b < w->blocks; b++) most = MAX(most, columns[b]);
    free(columns);
    return most;
}

/* The plan chooses a walk by which the busiest block has less to do than without a tail. */
START_TEST(tails_end_together)
{
    static const int k[] = {5632, 4096, 2048, 4096};
    const struct shim_walk *w = &shim_walks[_i];
    struct program p = product(w->m, w->n, k[_i]);
    struct tile c = choose(&p);
    ck_assert(c.pingpong && c.bm == w->bm && c.bn == w->bn && c.tail == w->tail && c.tail_bn == w->tail_bn &&
              c.band == w->band && c.blocks == w->blocks);
    int64_t states = program_states(&p, &c);
    ck_assert_int_eq(program_blocks(&p, &c), w->tiles);
    ck_assert_int_eq(states * CEIL_DIV(w->m, w->bm), w->tiles);
    double ideal = (double)CEIL_DIV(w->m, w->bm) * w->n / w->blocks;
    ck_assert(busiest_columns(w) < ideal + w->bn / 2);
    for (int t = 0; t < states; t++) {
        int64_t first = program_tile_column(&p, &c, t), next = program_tile_column(&p, &c, t + 1);
        ck_assert_int_eq(next - first, t < states - w->tail ? w->bn : w->tail_bn);
    }
    ck_assert_int_eq(program_tile_column(&p, &c, states), w->n);
    c.tail = 0;
    ck_assert_int_lt(busiest_columns(w), CEIL_DIV(program_blocks(&p, &c), w->blocks) * w->bn);
}
END_TEST

START_TEST(some_tiles_have_no_tail)
{
    struct program p = product(16384, 4096, 4096);
    ck_assert(choose(&p).tail);
    p.k = 256; /* a short loop */
    ck_assert(!choose(&p).tail);
    p = product(2048, 4096, 4096); /* few waves */
    ck_assert(!choose(&p).tail);
    p = product(16384, 32768, 4096); /* so many that it hardly matters */
    ck_assert(!choose(&p).tail);
    p = product((int64_t)1 << 40, 2048, 4096); /* beyond 31 bits: refused later, and at once */
    ck_assert(!choose(&p).tail);
    p = product(1 << 20, (((int64_t)1 << 32) - 5) * 192 + 16 * 64, 512);
    ck_assert(!choose(&p).tail);
    p = product(8192, 4096, 4096);
    p.dim[0] = 2;
    ck_assert(choose(&p).mainloop == &mainloop_wgmma && !choose(&p).tail);
    p = product(16384, 11264, 2048);
    p.pair = PAIR_GLU_STACKED;
    ck_assert(choose(&p).tail);
    p.b = operand_of((struct tensor_use){.dtype = CODA_BF16, .batch = 11264 * 2048, .row = 1, .k = 11264});
    ck_assert(!choose(&p).tail); /* no box has half of 64 columns */
    p = product(16384, 4096, 4096);
    struct tile t = choose(&p);
    ck_assert(tail_fits(&p, &t));
    t.tail_bn = 96;
    ck_assert(!tail_fits(&p, &t));
    t.tail_bn = 128; /* 64 columns past the end */
    ck_assert(!tail_fits(&p, &t));
    t = choose(&p);
    struct step step[2];
    p.step = step;
    for (int i = 0; i < 2; i++) { /* lists of the 8 largest: one, two */
        step[p.steps++] = (struct step){.kind = STEP_REDUCE, .prim = prim_find("top_8")};
        ck_assert(tail_fits(&p, &t) == !i);
    }
    p = product(16384, 4092, 4096);
    ck_assert(!choose(&p).tail);
}
END_TEST

/* What is printed is read back; what is no tile's words is refused and changes nothing. */
START_TEST(words_are_read_back)
{
    static const char *const good[] = {
        "sm90 128x192x64 stages=4 groups=2 pingpong band=8 tail=1x64 blocks=132",
        "sm90 64x128x64 stages=6 groups=1 band=16 splits=4",
        "sm90_gemv 1x128x2048 stages=13 window=4 groups=2 band=1 blocks=132",
        "sm90 128x128x64 stages=4 groups=2 band=8 across serpentine splits=2 scattered lends",
        "sm90 192x128x64 stages=4 groups=3 band=4 cluster=2x1",
        "simt 64x64x16 stages=1 groups=1 band=8",
        "sm90_gemv 1x16x4096 stages=6 groups=2 band=1 blocks=132"};
    static const char *const bad[] = {"",
                                      "sm90",
                                      "sm91 1x1x1",
                                      "sm90 1x1",
                                      "sm90 1x1x",
                                      "sm90 1x1x1 ",
                                      "sm90 1x1x1 pingpongs",
                                      "sm90 -1x1x1",
                                      "sm90 1x1x1 stages",
                                      "sm90 1x1x1 stages=",
                                      "sm90 1x1x1 stages=x",
                                      "sm90 1x1x1 tail=1",
                                      "cublaslt",
                                      "sm90 1x1x1 across=1",
                                      "sm90 1x1x1234567890",
                                      "sm90 1x1x1 none=1",
                                      "sm90  1x1x1"};
    for (int i = 0; i < ARRAY_SIZE(good); i++) {
        struct text words = {0};
        struct tile t, other;
        ck_assert_msg(tile_parse(good[i], &t), "%s", good[i]);
        tile_print(&t, &words);
        ck_assert_str_eq(text_str(&words), good[i]);
        other = t;
        ck_assert(tile_equal(&t, &other));
        other.band++;
        ck_assert(!tile_equal(&t, &other));
        other = t, other.serpentine = !t.serpentine;
        ck_assert(!tile_equal(&t, &other));
        text_free(&words);
    }
    for (int i = 0; i < ARRAY_SIZE(bad); i++) {
        struct tile t = {.bm = 7};
        ck_assert_msg(!tile_parse(bad[i], &t) && t.bm == 7, "\"%s\"", bad[i]);
    }
}
END_TEST

START_TEST(cublaslt_has_no_tile)
{
    struct program p = product(16384, 4096, 4096);
    struct text words = {0};
    struct tile t = choose(&p);
    t.mainloop = &mainloop_cublaslt;
    tile_print(&t, &words);
    ck_assert_str_eq(text_str(&words), "cublaslt");
    text_free(&words);
}
END_TEST

START_TEST(a_row_streams)
{
    struct program p = product(1, 22016, 4096);
    struct tile t = choose(&p);
    ck_assert(t.mainloop == &mainloop_gemv && t.blocks == gemm_target.sms && !is_early(&p));
    ck_assert_int_le(2 * (tile_shared_bytes(&p, &t) + 1024), gemm_target.shared_bytes + 1024);
    ck_assert_int_eq(program_states(&p, &t), t.blocks);
    p.b.data.steady = true;
    ck_assert(is_early(&p));
    p.prepare = true; /* what folds weights may write them */
    ck_assert(!is_early(&p));
    p.dim[2] = 64;
    ck_assert_int_le(choose(&p).blocks, 16); /* a quad of columns each */
    p.dim[2] = 72;
    ck_assert(choose(&p).mainloop == &mainloop_gemv && choose(&p).blocks == 20); /* half of the last patch */
    p.pair = PAIR_GLU_INTERLEAVED;
    ck_assert(choose(&p).mainloop != &mainloop_gemv); /* pairs want whole ones */
    p.pair = PAIR_NONE;
    p = product(1, 4096, 11008);
    ck_assert(choose(&p).mainloop == &mainloop_gemv && choose(&p).bk * 2 == 11008);
    p = product(1, 4096, 65536); /* more of A than registers */
    ck_assert(choose(&p).mainloop == &mainloop_wgmma);
    p = product(2, 4096, 4096);
    ck_assert(choose(&p).mainloop == &mainloop_gemv);
    p = product(2, 4096, 11008); /* slower than on the matrix units */
    ck_assert(choose(&p).mainloop == &mainloop_skinny);
}
END_TEST

/* Blocks have an SM's memory, or half of it where registers have room for two; whole pieces of K. */
static void check_skinny(struct program p, struct tile t, bool half)
{
    struct text words = {0};
    tile_print(&t, &words);
    int room = tile_shared_bytes(&p, &t) + 1024, all = gemm_target.shared_bytes + 1024;
    ck_assert_msg(room <= all && t.stages >= 3 && t.bk % 256 == 0, "%s", text_str(&words));
    ck_assert_msg((2 * room <= all) == half && (!half || t.mainloop->shares_sm(&p, &t)), "%s",
                  text_str(&words));
    ck_assert(t.blocks % tile_splits(&t) == 0 && program_states(&p, &t) == t.blocks);
    struct schedule s = {.tile = t};
    p.b.data.steady = true;
    t.mainloop->complete(&s, &p, &gemm_target);
    ck_assert(s.early);
    text_free(&words);
}

/* Those of mainloop_skinny, in their order; test_stream_mma.c has the others. */
static int skinny_candidates(const struct program *p, struct tile *to, int most)
{
    int all = tile_candidates(p, &gemm_target, TILES_SKINNY, to, most), n = 0;
    for (int i = 0; i < all; i++)
        if (to[i].mainloop == &mainloop_skinny) to[n++] = to[i];
    return n;
}

/* Up to 8 rows stream, where A fits the registers of 8 warps, which share each 256 of K, or of two blocks.
 * Tuning tries it up to 16. */
START_TEST(few_rows_stream)
{
    static const struct {
        int64_t m, n, k;
        const struct mainloop *want;
        int splits, tried; /* in half of an SM's memory, or with more splits */
    } want[] = {
        {1, 4096, 4096, &mainloop_gemv, 1, 0},     {2, 22016, 4096, &mainloop_gemv, 1, 4},
        {2, 22016, 8192, &mainloop_skinny, 1, 2},  {3, 4096, 4096, &mainloop_skinny, 1, 3},
        {4, 22016, 4096, &mainloop_skinny, 1, 3},  {8, 22016, 4096, &mainloop_skinny, 1, 3},
        {8, 12288, 4096, &mainloop_skinny, 1, 3},  {8, 32768, 4096, &mainloop_skinny, 1, 3},
        {9, 22016, 4096, &mainloop_wgmma, 0, 3},   {16, 22016, 4096, &mainloop_wgmma, 0, 3},
        {17, 22016, 4096, &mainloop_wgmma, 0, 0},  {8, 4096, 11264, &mainloop_wgmma, 0, 1},
        {8, 22016, 11520, &mainloop_skinny, 2, 0}, {8, 8192, 22528, &mainloop_skinny, 2, 0},
        {8, 8192, 22784, &mainloop_wgmma, 0, 0},   {9, 4096, 5632, &mainloop_wgmma, 0, 2},
        {9, 4096, 5888, &mainloop_wgmma, 0, 1},    {16, 4096, 11008, &mainloop_wgmma, 0, 1},
        {9, 4096, 11520, &mainloop_wgmma, 0, 0},   {8, 22016, 4224, &mainloop_wgmma, 0, 0},
        {8, 22024, 4096, &mainloop_skinny, 1, 3},  {16, 128256, 4096, &mainloop_wgmma, 0, 2},
        {8, 1048576, 4096, &mainloop_wgmma, 0, 0}, /* sums that leave no ring */
    };
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct program p = product(want[i].m, want[i].n, want[i].k);
        struct tile t = choose(&p), tried[6];
        int n = skinny_candidates(&p, tried, ARRAY_SIZE(tried));
        ck_assert_msg(t.mainloop == want[i].want && n == want[i].tried, "[%d, %d, %d] %s, %d tried",
                      (int)want[i].m, (int)want[i].n, (int)want[i].k, t.mainloop->name, n);
        if (t.mainloop == &mainloop_skinny) {
            ck_assert_int_eq(tile_splits(&t), want[i].splits);
            check_skinny(p, t, false);
        }
        for (int j = 0; j < n; j++) {
            bool half = 2 * tile_shared_bytes(&p, &tried[j]) < gemm_target.shared_bytes;
            check_skinny(p, tried[j], half);
            ck_assert(half || tile_splits(&tried[j]) != want[i].splits || t.mainloop != &mainloop_skinny);
        }
    }
}
END_TEST

START_TEST(few_rows_stream_in_equal_pieces)
{
    struct program p = product(8, 22016, 1280);
    ck_assert_int_eq(choose(&p).bk, 768); /* two pieces, as equal as they can be */
    p.a.data.k = 8, p.a.data.row = 1;
    ck_assert(choose(&p).mainloop == &mainloop_wgmma);
    p = product(8, 22016, 1024);
    ck_assert(choose(&p).mainloop == &mainloop_skinny);
    p.dim[0] = 2;
    ck_assert(choose(&p).mainloop == &mainloop_wgmma);
}
END_TEST

START_TEST(every_choice_fits)
{
    static const int64_t size[] = {1, 7, 64, 200, 1000, 4096, 11008, 50257};
    for (int i = 0; i < 512; i++) {
        struct program p = product(size[i % 8], size[i / 8 % 8] * 2, size[i / 64] * 8);
        enum pair_kind pairs[] = {PAIR_NONE, PAIR_GLU_STACKED, PAIR_GLU_INTERLEAVED};
        p.pair = pairs[i % 3];
        struct tile t = choose(&p);
        ck_assert(t.mainloop != &mainloop_simt && t.stages >= 3 && t.band >= 1);
        ck_assert(t.mainloop->streams || t.bm % 64 == 0);
        ck_assert(t.bn % 16 == 0 && t.bn <= 256);
        ck_assert_int_le(tile_shared_bytes(&p, &t), gemm_target.shared_bytes);
    }
}
END_TEST

START_TEST(hopper_takes_what_tensor_maps_can_say)
{
    struct program p = product(256, 512, 128), q = p;
    ck_assert(on_hopper(&p));
    q.a.data.row = 136;
    ck_assert(on_hopper(&q)); /* a padded pitch */
    q.a.data.row = 129;
    ck_assert(!on_hopper(&q)); /* of 16-byte steps */
    q = p, q.a.data.k = 256, q.a.data.row = 1;
    ck_assert(on_hopper(&q)); /* rows adjacent */
    q.a.data.row = 2;
    ck_assert(!on_hopper(&q)); /* nothing adjacent */
    q = p, q.b.data.offset = 4;
    ck_assert(!on_hopper(&q));
    q = p, q.b.dtype = q.b.data.dtype = CODA_F16;
    ck_assert(!on_hopper(&q)); /* mixed */
    q = p, q.a.dtype = q.a.data.dtype = q.b.dtype = q.b.data.dtype = CODA_F32;
    ck_assert(!on_hopper(&q));
    q = p, q.dim[0] = 3, q.b.data.batch = 0;
    ck_assert(on_hopper(&q)); /* one weight for all */
    q.a.data.batch = 7;
    ck_assert(!on_hopper(&q));
    q = p, q.k = 0;
    ck_assert(!on_hopper(&q)); /* a tensor map has no empty dimension */
    q = p, q.dim[1] = 0;
    ck_assert(!on_hopper(&q));
}
END_TEST

START_TEST(heads_stay_whole)
{
    static const int heads[] = {16, 32, 48, 64, 80, 96, 112, 128, 144, 192, 256};
    for (int i = 0; i < ARRAY_SIZE(heads); i++) {
        struct program p = product(300, heads[i] * 6, 256);
        p.pair = PAIR_HEADS;
        p.pairing =
            (struct pairing){.head_dim = heads[i], .rotary = heads[i] / 32 * 32, .heads = 6, .half = true};
        ck_assert_msg(program_pairs_meet(&p, &gemm_target), "head %d", heads[i]);
        int bn = choose(&p).bn;
        bool pieces = bn % 64 == 0 && heads[i] % 64 == 0; /* of 32 pairs */
        ck_assert_msg(bn % heads[i] == 0 || pieces, "head %d in a tile of %d", heads[i], bn);
        p.a.dtype = p.a.data.dtype = p.b.dtype = p.b.data.dtype = CODA_F32;
        ck_assert_msg(choose(&p).bn % heads[i] == 0, "head %d in a tile of %d", heads[i], choose(&p).bn);
    }
}
END_TEST

/* Pieces of heads need whole heads to be boxes of a map, and all of a head to turn. */
START_TEST(heads_are_split)
{
    struct program p = product(16384, 12288, 4096), q;
    p.pair = PAIR_HEADS;
    p.pairing = (struct pairing){.head_dim = 128, .rotary = 128, .heads = 64, .half = true};
    ck_assert_int_eq(choose(&p).bn, 192);
    q = p, q.pairing.rotary = 64;
    ck_assert_int_eq(choose(&q).bn % 128, 0);
    q = p, q.dim[2] = 12288 + 64;
    ck_assert_int_eq(choose(&q).bn % 128, 0);
    q = p, q.b.data.row = 1, q.b.data.k = 12288;
    ck_assert_int_eq(choose(&q).bn % 128, 0);
    q = p, q.dim[0] = 2;
    ck_assert_int_eq(choose(&q).bn % 128, 0); /* a weight for each batch */
    q.b.data.batch = 0;
    ck_assert_int_eq(choose(&q).bn, 192);
}
END_TEST

START_TEST(pairs_that_do_not_meet)
{
    struct program p = product(300, 1024, 256);
    p.pair = PAIR_HEADS;
    p.pairing = (struct pairing){.head_dim = 64, .rotary = 64, .heads = 4, .half = true};
    ck_assert(program_pairs_meet(&p, &gemm_target));
    p.pairing.rotary = 40; /* its halves are 20 apart: other lanes */
    ck_assert(!program_pairs_meet(&p, &gemm_target));
    p.pairing.half = false;
    ck_assert(program_pairs_meet(&p, &gemm_target));
    p.pairing = (struct pairing){.head_dim = 512, .rotary = 512, .heads = 2, .half = true};
    ck_assert(!program_pairs_meet(&p, &gemm_target)); /* wider than a tile */
    p.pair = PAIR_GLU_INTERLEAVED;
    ck_assert(program_pairs_meet(&p, &gemm_target));
    p.b.data.row = 1, p.b.data.k = 1024;
    ck_assert(!program_pairs_meet(&p, &gemm_target)); /* every second element of a row: no box */
    struct target plain = gemm_target;
    plain.features = 0;
    ck_assert(program_pairs_meet(&p, &plain)); /* its main loops take pointers */
    p.pair = PAIR_GLU_STACKED;
    ck_assert(program_pairs_meet(&p, &gemm_target));
    p.dim[2] = 1023;
    ck_assert(!program_pairs_meet(&p, &gemm_target));
}
END_TEST

TESTS(tile, ONE(shapes), ONE(squares_are_square), ONE(few_tiles_share_k), ONE(costs_are_those_of_the_search),
      ONE(tuning_tries_scattered_sums), ONE(shares_keep_pairs),
      ONE(tuning_tries_clusters_and_three_consumers), ONE(squares_are_tried_first),
      ONE(rings_lend_where_tiles_are_few), ONE(short_rings_do_not_lend),
      EACH(walks_cover_all, shim_walk_count), EACH(tails_end_together, 4), ONE(some_tiles_have_no_tail),
      ONE(words_are_read_back), ONE(cublaslt_has_no_tile), ONE(a_row_streams), ONE(few_rows_stream),
      ONE(few_rows_stream_in_equal_pieces), ONE(every_choice_fits),
      ONE(hopper_takes_what_tensor_maps_can_say), ONE(heads_stay_whole), ONE(heads_are_split),
      ONE(pairs_that_do_not_meet));
