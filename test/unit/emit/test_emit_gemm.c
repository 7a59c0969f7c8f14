/* test_emit_gemm.c -- GEMM kernels: text, geometry, and what NVRTC makes of them. */
#include <string.h>

#include "emit.h"
#include "epilogue_layout.h"
#include "jit.h"
#include "mainloop.h"
#include "util_gemm.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

static const struct gemm_case *named(const char *name)
{
    for (int i = 0; i < gemm_case_count; i++)
        if (!strcmp(gemm_cases[i].name, name)) return &gemm_cases[i];
    ck_abort_msg("no case %s", name);
}

static void emit(struct gemm_rig *r, const char *name, enum gemm_loop loop)
{
    ck_assert_msg(gemm_emit(named(name), loop, gemm_target.sms, r) == CODA_OK, "%s: %s", name, coda_error());
}

/* Compiles and demands that nothing spills and that ptxas has nothing to say. Multiply-adds of fp32
 * may spill where an epilogue goes twice over heads, whose width decides their tile. */
static void compile(const struct gemm_case *c, enum gemm_loop loop, const char *arch)
{
    bool may_spill = loop == GEMM_FMA && !strncmp(c->name, "heads", 5);
    struct gemm_rig r;
    struct jit_cubin cubin = {0};
    char err[JIT_ERROR_SIZE] = "";
    struct jit_options opt = {.arch = arch, .no_cache = !scale_kernels_are_kept()};
    ck_assert_msg(gemm_emit(c, loop, gemm_target.sms, &r) == CODA_OK, "%s: %s", c->name, coda_error());
    const struct kernel *k = &r.k;
    ck_assert_msg(jit_compile(&cubin, k->symbol, k->text, &opt, err) == CODA_OK, "%s: %s\n%s", c->name, err,
                  k->text);
    ck_assert_msg(may_spill || cubin.spill_bytes == 0, "%s: %d bytes of spills", c->name, cubin.spill_bytes);
    ck_assert_msg(may_spill || !cubin.warning[0], "%s: %s", c->name, cubin.warning);
    ck_assert_int_le(k->launch.shared_bytes, gemm_target.shared_bytes);
    jit_cubin_free(&cubin);
    gemm_free(&r);
}

/* One chosen case in so many, by the seed: many runs see all. */
enum { HOPPER_SHARE = 8 };

START_TEST(compiles_for_hopper)
{
    bool taken = scale_takes_one_in(HOPPER_SHARE, _i + 1); /* the emulator runs one in so many others */
    if (taken && gemm_case_taken(_i, GEMM_HOPPER)) compile(&gemm_cases[_i], GEMM_HOPPER, "sm_90a");
}
END_TEST

/* Of the main loops that share all with each other but their products, one case in so many in a short run. */
enum { PLAIN_LOOPS = 40 };

START_TEST(compiles_for_any)
{
    bool taken = scale_takes_one_in(PLAIN_LOOPS, _i) && gemm_case_taken(_i, GEMM_SIMT);
    if (taken) compile(&gemm_cases[_i], GEMM_SIMT, "sm_90a");
}
END_TEST

/* A case in turn for each architecture. Blocks on the smaller ones have 99 KB of shared memory. */
static void compile_any(int i, enum gemm_loop loop, const char *entry)
{
    static const char *const arch[] = {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_120a"};
    struct gemm_rig r;
    const struct gemm_case *c = &gemm_cases[i];
    ck_assert_msg(gemm_emit(c, loop, gemm_target.sms, &r) == CODA_OK, "%s: %s", c->name, coda_error());
    ck_assert(strstr(r.k.text, entry) != NULL);
    ck_assert_int_le(r.k.launch.shared_bytes, 99 << 10);
    gemm_free(&r);
    if (scale_takes_one_in(PLAIN_LOOPS, i + (int)loop) && gemm_case_taken(i, loop))
        compile(c, loop, arch[i % ARRAY_SIZE(arch)]);
}

START_TEST(compiles_by_mma)
{
    if (!dtype_is_half(gemm_cases[_i].dtype) || !gemm_cases[_i].k) return; /* nothing to multiply */
    compile_any(_i, GEMM_MMA, "gemm_mma<Config, Epilogue>(a, block)");
}
END_TEST

START_TEST(compiles_by_fma)
{
    if (gemm_cases[_i].k) compile_any(_i, GEMM_FMA, "gemm_fma<Config, Epilogue>(a, block)");
}
END_TEST

/* Sizes that tiles divide, where no branch keeps ptxas from mixing what it should not: odd pitches, stored
 * directly after the products; every port that a gated epilogue may have, in the widest tiles. And few rows
 * with as much of A as registers hold. */
static const struct size {
    const char *name;
    int64_t m, n, k;
    struct tile tile; /* bm 0: tile_choose */
} sizes[] = {
#define TILE(rows, columns, turns, high)                                                                     \
    {                                                                                                        \
        .mainloop = &mainloop_wgmma, .bm = rows, .bn = columns, .bk = 64, .groups = 2, .pingpong = turns,    \
        .band = 8, .cluster_m = high, .cluster_n = 1                                                         \
    }
#define BY_STREAM_MMA(columns)                                                                               \
    {                                                                                                        \
        .mainloop = &mainloop_stream_mma, .bm = 8, .bn = columns, .bk = 512, .groups = 2, .band = 1,         \
        .blocks = 132                                                                                        \
    }
    {"padded pitches", 512, 4096, 4096, TILE(128, 128, true, 1)},
    {"padded pitches", 2048, 4096, 4096, TILE(64, 64, true, 1)},
    {"heads half", 16384, 6144, 4096, TILE(128, 128, true, 1)},
    {"heads half", 16384, 6144, 4096, TILE(128, 256, false, 1)},
    {"heads near", 16384, 6144, 4096, TILE(256, 128, false, 1)},
    {"heads centred", 16384, 6144, 4096, TILE(128, 256, false, 1)},
    {"gated all neat", 2048, 8192, 4096, TILE(128, 256, false, 1)},
    {"gated all stacked", 2048, 8192, 4096, TILE(128, 256, false, 2)},
    {"gated all neat", 512, 8192, 4096, TILE(64, 256, true, 1)},
    {"kept", 4096, 4096, 11008, TILE(128, 256, false, 1)},
    {"kept", 16384, 4096, 11008, TILE(256, 128, false, 1)},
    {"kept", 64, 4096, 4096, TILE(64, 64, true, 1)},
    {"kept f32", 2048, 4096, 4096, TILE(128, 256, false, 1)},
    {"kept loss", 2048, 32000, 4096, TILE(128, 256, false, 1)},
    {"kept gated all, wide", 2048, 8192, 4096, TILE(128, 256, false, 1)},
    {"columns bias", 4096, 12288, 16384, TILE(128, 192, true, 1)},
    {"columns gain", 4096, 12288, 16384, TILE(128, 192, true, 1)},
    {"columns gain", 4096, 12288, 16384, TILE(128, 256, false, 1)},
    {"columns many states", 4096, 12288, 16384, TILE(128, 128, true, 1)},
    {"stream 8", 8, 4096, 4096, {0}},
    {"stream 8", 8, 4096, 11264, {0}},
    {"stream 16", 16, 4096, 4096, {0}},
    {"stream 16", 16, 4096, 11264, {0}}, /* shared by two blocks */
    {"stream 8 gated", 8, 22016, 22528, {0}},
    {"stream 8 gated", 8, 22016, 4096, {0}},
    {"stream 16 gated all", 8, 22016, 4096, {0}},
    {"stream 8 gated all", 16, 22016, 5632, {0}},
    {"stream 12 rope", 8, 12288, 4096, {0}},
    {"stream 12 rope", 16, 12288, 5632, {0}},
    {"stream 16 rope near", 8, 12288, 4096, {0}},
    {"stream 16 loss", 8, 32000, 4096, {0}},
    {"stream 16 loss", 16, 32000, 5632, {0}},
    {"stream 5 f32", 8, 4096, 4096, {0}},
    {"stream mma 8", 8, 4096, 14336, {0}},
    {"stream mma 1", 1, 8192, 32768, {0}},
    {"stream mma 8", 8, 32768, 16384, {0}},
    {"stream mma 16", 16, 22016, 4096, BY_STREAM_MMA(16)},
    {"stream mma 16 loss", 8, 128256, 4096, BY_STREAM_MMA(16)},
    {"stream mma 16 loss", 16, 128256, 4096, BY_STREAM_MMA(16)},
    {"stream mma 8 gated all", 16, 28672, 8192, BY_STREAM_MMA(16)},
    {"stream mma 2 rope", 8, 12288, 4096, BY_STREAM_MMA(128)},
};

START_TEST(compiles_at_size)
{
    if (!scale_takes_one_in(11, _i)) return;
    struct gemm_case c = *named(sizes[_i].name);
    c.batch = 1, c.m = sizes[_i].m, c.n = sizes[_i].n, c.k = sizes[_i].k;
    c.tile = sizes[_i].tile;
    compile(&c, GEMM_HOPPER, "sm_90a");
}
END_TEST

START_TEST(parameters_follow_the_text)
{
    struct gemm_rig r;
    emit(&r, "residual", GEMM_HOPPER);
    const struct kernel *k = &r.k;
    ck_assert_str_eq(k->symbol, "coda_gemm_sum_sq_rsqrt_mean_mul_add_sum_sq_mul");
    ck_assert(strstr(k->text, k->symbol) != NULL);
    ck_assert(strstr(k->text, "    TensorMap a, b;\n    TensorMap stores[2];\n"
                              "    TensorMap fetched[1];\n") != NULL);
    ck_assert_int_eq(k->maps, 5);
    ck_assert_int_eq(k->pointers, 3); /* states in and out, gain */
    ck_assert_int_eq(k->map[0].buffer, r.p.a.data.buffer);
    ck_assert_int_eq(k->map[1].buffer, r.p.b.data.buffer);
    ck_assert(k->launch.persistent);
    ck_assert_int_eq(k->launch.threads, 384);
    ck_assert_int_eq(k->launch.grid, 3 * 5);
    gemm_free(&r);
    emit(&r, "residual", GEMM_SIMT);
    ck_assert_int_eq(r.k.maps, 0);
    ck_assert_int_eq(r.k.pointers, 8);
    ck_assert(!r.k.launch.persistent);
    gemm_free(&r);
}
END_TEST

/* A cluster takes a tile; boxes of A have the rows that exist, in whole octets. */
START_TEST(a_cluster_shares_k)
{
    struct gemm_rig r;
    emit(&r, "split odd", GEMM_HOPPER);
    const struct kernel *k = &r.k;
    ck_assert(strstr(k->text, "__cluster_dims__(4, 1, 1)") && strstr(k->text, "a_rows = 8, splits = 4;"));
    ck_assert_int_eq(k->launch.grid, 4 * 4);
    ck_assert(!k->launch.persistent);
    ck_assert_int_eq(k->launch.threads, 256);
    ck_assert_int_eq(k->map[0].box[1], 8);
    gemm_free(&r);
    emit(&r, "split tall", GEMM_HOPPER);
    ck_assert(k->launch.grid == 3 * 9 * 2 && k->map[0].box[1] == 128);
    gemm_free(&r);
    emit(&r, "narrow", GEMM_HOPPER);
    ck_assert(!strstr(k->text, "__cluster_dims__") && k->launch.grid == 9 && k->map[0].box[1] == 8);
    gemm_free(&r);
}
END_TEST

/* A block of a cluster drains its share: units, states and what is fetched are of its width. */
START_TEST(a_cluster_scatters_its_sums)
{
    struct gemm_rig r;
    emit(&r, "scatter residual tall", GEMM_HOPPER);
    const struct kernel *k = &r.k;
    ck_assert(strstr(k->text, "__cluster_dims__(4, 1, 1) __launch_bounds__(384, 1)") != NULL);
    ck_assert(strstr(k->text, "struct Share : Config {\n    using Columns = Plain<32>;\n"
                              "    static constexpr int bn = 32;\n};") != NULL);
    ck_assert(strstr(k->text, "gemm_sm90<Config, Epilogue, Share>(a, block)") != NULL);
    ck_assert_int_eq(k->launch.grid, 3 * 5 * 4);
    ck_assert(!k->launch.persistent);
    ck_assert_int_eq(r.s.layout.states, 17); /* of 520 columns by 32; the last 3 shares are empty */
    ck_assert(k->map[1].box[1] == 128 && r.s.layout.loads.count == 1 && k->map[k->maps - 1].box[0] == 32);
    gemm_free(&r);
    emit(&r, "scatter rope split", GEMM_HOPPER); /* shares of half a head: so the tile has pieces, too */
    ck_assert(strstr(k->text, "using Columns = SplitHeads<128, 128>;") &&
              strstr(k->text, "using Columns = SplitHeads<64, 128>;") && k->map[1].rank == 4);
    gemm_free(&r);
    emit(&r, "scatter gated", GEMM_HOPPER); /* 64 columns of gate and up are 32 of the output */
    ck_assert(strstr(k->text, "Gated<256, 528, false>") && strstr(k->text, "Gated<64, 528, false>"));
    ck_assert(k->map[1].box[1] == 128 && k->map[1].box[2] == 2 && k->map[2].box[0] == 32);
    gemm_free(&r);
}
END_TEST

/* A warp stores its 16 rows, all of a unit are fetched. Blocks with one tile are as many as tiles; where both
 * consumers share it, a block may have several, if there are too few SMs. */
START_TEST(a_ring_lends_slots)
{
    struct gemm_rig r;
    const struct kernel *k = &r.k;
    emit(&r, "lent, cooperative", GEMM_HOPPER);
    ck_assert(strstr(k->text, "lends = true, once = true;") && !k->launch.persistent &&
              k->launch.grid == 3 * 3);
    ck_assert(k->maps == 5 && k->map[2].box[1] == 16 && k->map[3].box[1] == 16 && k->map[4].box[1] == 64);
    gemm_free(&r);
    emit(&r, "lent, many tiles", GEMM_HOPPER);
    ck_assert(strstr(k->text, "lends = true, once = false;") && k->launch.persistent);
    gemm_free(&r);
    emit(&r, "lent, many turns", GEMM_HOPPER);
    ck_assert(strstr(k->text, "lends = true, once = true;") && !k->launch.persistent &&
              k->launch.grid == 12 * 12);
    gemm_free(&r);
    emit(&r, "residual", GEMM_HOPPER);
    ck_assert(!strstr(k->text, "lends"));
    gemm_free(&r);
}
END_TEST

/* Blocks get neighbouring tiles, and each loads a part of what they share: half of B's rows, one half of a
 * gated tile, a half of each piece of a head; or half of A's rows. The grid is in whole clusters. */
/* Unless B comes in boxes of 64 columns anyway. */
START_TEST(a_tail_has_a_map)
{
    static const struct {
        const char *name;
        bool mapped;
        int rows, halves;
    } want[] = {{"tail", true, 128, 1},
                {"tail gated", true, 64, 2},
                {"tail b mn", false, 0, 0},
                {"tail rope split", false, 0, 0}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct gemm_rig r;
        ck_assert_msg(!gemm_emit(named(want[i].name), GEMM_HOPPER, gemm_target.sms, &r), "%s", coda_error());
        const struct kernel *k = &r.k;
        ck_assert_int_eq(!!strstr(k->text, "    TensorMap a, b;\n    TensorMap tail;\n"), want[i].mapped);
        ck_assert(strstr(k->text, ", blocks = ") && k->launch.persistent);
        ck_assert_int_eq(k->map[1].buffer, r.p.b.data.buffer);
        ck_assert_int_eq(k->map[2].buffer == r.p.b.data.buffer, want[i].mapped);
        if (want[i].mapped) {
            ck_assert_int_eq(k->map[2].box[1], want[i].rows);
            ck_assert_int_eq(k->map[2].box[2], want[i].halves);
            ck_assert_int_eq(k->map[2].dim[1], k->map[1].dim[1]);
        }
        gemm_free(&r);
    }
}
END_TEST

START_TEST(a_cluster_shares_operands)
{
    struct gemm_rig r;
    const struct kernel *k = &r.k;
    emit(&r, "shared b, past the end", GEMM_HOPPER);
    ck_assert(strstr(k->text, "__cluster_dims__(2, 1, 1)"));
    ck_assert(strstr(k->text, "struct Config : ConfigDefaults {"));
    ck_assert(strstr(k->text, "cluster_m = 2, cluster_n = 1;") && !strstr(k->text, "serpentine"));
    ck_assert(k->map[0].box[1] == 128 && k->map[1].box[1] == 96);
    ck_assert(k->launch.persistent && k->launch.grid == 2 * 4 * 4 &&
              k->launch.cluster == 2); /* 3 rows of tiles: 4 */
    ck_assert(kernel_blocks(&k->launch, 132) == 32 && kernel_blocks(&k->launch, 9) == 8 &&
              kernel_blocks(&k->launch, 1) == 2);
    gemm_free(&r);
    emit(&r, "shared a by 4", GEMM_HOPPER);
    ck_assert(strstr(k->text, "cluster_m = 1, cluster_n = 4;"));
    ck_assert(k->launch.grid == 2 * 3 * 8 && kernel_blocks(&k->launch, 11) == 8);
    ck_assert(k->map[0].box[1] == 32 && k->map[1].box[1] == 128);
    gemm_free(&r);
    emit(&r, "shared b, gated", GEMM_HOPPER);
    ck_assert(k->map[1].box[1] == 96 && k->map[1].box[2] == 1);
    gemm_free(&r);
    emit(&r, "shared b by 4, gated", GEMM_HOPPER);
    ck_assert(k->map[1].box[1] == 32 && k->map[1].box[2] == 1);
    gemm_free(&r);
    emit(&r, "shared b, rope split", GEMM_HOPPER);
    ck_assert(k->map[1].box[1] == 32 && k->map[1].box[2] == 1);
    gemm_free(&r);
    emit(&r, "square, shared a", GEMM_HOPPER);
    ck_assert(strstr(k->text, "band = 4,") && strstr(k->text, "across = true, serpentine = true;"));
    gemm_free(&r);
    emit(&r, "shared b, both mn", GEMM_HOPPER);
    ck_assert(k->map[0].box[1] == 64 && k->map[1].box[1] == 64);
    gemm_free(&r);
}
END_TEST

START_TEST(three_consumers_are_512_threads)
{
    struct gemm_rig r;
    emit(&r, "three residual", GEMM_HOPPER);
    const struct kernel *k = &r.k;
    ck_assert(k->launch.threads == 512 && strstr(k->text, "__launch_bounds__(512, 1)"));
    ck_assert(!strstr(k->text, "cluster") && strstr(k->text, "unit = 32;"));
    ck_assert_int_eq(k->map[2].swizzle, 64);
    gemm_free(&r);
}
END_TEST

/* Two blocks share an SM where A takes few registers; else a block is alone, and in warpgroups. */
START_TEST(few_rows_have_a_in_registers)
{
    struct gemm_rig r;
    const struct kernel *k = &r.k;
    emit(&r, "stream 8", GEMM_HOPPER);
    ck_assert(k->launch.threads == 320 && strstr(k->text, "__launch_bounds__(320, 2)"));
    ck_assert(strstr(k->text, "skinny_sm90<Config, Epilogue>(a, block)") &&
              strstr(k->text, "alone = false;"));
    ck_assert(k->launch.early && k->maps == 0 && k->launch.grid == 132 && k->pointers == 8);
    gemm_free(&r);
    emit(&r, "stream 8 gelu", GEMM_HOPPER); /* 172 of each thread's */
    ck_assert(k->launch.threads == 384 && strstr(k->text, "__launch_bounds__(384, 1)"));
    ck_assert(strstr(k->text, "splits = 1;") && strstr(k->text, "alone = true;"));
    gemm_free(&r);
    emit(&r, "stream 16 split", GEMM_HOPPER); /* 64, as another block has the other half of K */
    ck_assert(strstr(k->text, "__cluster_dims__(2, 1, 1) __launch_bounds__(320, 2)") != NULL);
    ck_assert(strstr(k->text, "splits = 2;") && strstr(k->text, "alone = false;") && k->launch.grid == 132);
    ck_assert_int_eq(r.s.layout.states, 132);
    gemm_free(&r);
}
END_TEST

START_TEST(a_map_is_what_tma_takes)
{
    struct gemm_rig r;
    if (gemm_emit(&gemm_cases[_i], GEMM_HOPPER, gemm_target.sms, &r)) ck_abort_msg("%s", coda_error());
    for (int i = 0; i < r.k.maps; i++) {
        const struct map_spec *m = &r.k.map[i];
        int64_t size = dtype_bytes(m->dtype, 1), bytes = size;
        ck_assert_int_eq(m->stride[0], 1);
        for (int d = 0; d < m->rank; d++) {
            ck_assert(m->dim[d] >= 1 && m->box[d] >= 1 && m->box[d] <= 256);
            ck_assert(d == 0 || (m->stride[d] > 0 && m->stride[d] * size % 16 == 0));
            bytes *= m->box[d];
        }
        ck_assert_int_eq(size * m->box[0], m->swizzle); /* bytes */
        ck_assert(m->swizzle == 128 || (m->swizzle == 64 && i > 1));
        ck_assert(m->offset * size % 16 == 0 && bytes % 1024 == 0);
    }
    gemm_free(&r);
}
END_TEST

/* Positions 8 rows on are 8 more where sequences are sixteens of rows, not where they are given or odd. */
START_TEST(rope_steps_where_positions_do)
{
    static const struct {
        const char *name;
        bool steps;
    } want[] = {{"rope near", true},
                {"rope half 128", true},
                {"rope half 64", false}, /* batches of 100 rows */
                {"rope near, odd period", false},
                {"rope half partial", false}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct gemm_rig r;
        emit(&r, want[i].name, GEMM_HOPPER);
        ck_assert_msg(!!strstr(r.k.text, "port::turn_further(above.turn") == want[i].steps, "%s",
                      want[i].name);
        gemm_free(&r);
    }
}
END_TEST

/* Gate and up are a dimension; stacked and interleaved weights differ in strides alone. */
START_TEST(gate_and_up_are_a_dimension)
{
    struct gemm_rig r;
    emit(&r, "gated stacked", GEMM_HOPPER);
    const struct map_spec *m = &r.k.map[1];
    ck_assert_int_eq(m->rank, 4);
    ck_assert(m->dim[0] == 128 && m->dim[1] == 264 && m->dim[2] == 2 && m->box[1] == 64 && m->box[2] == 2);
    ck_assert(m->stride[1] == 128 && m->stride[2] == 264 * 128);
    gemm_free(&r);
    emit(&r, "gated interleaved", GEMM_HOPPER);
    m = &r.k.map[1];
    ck_assert(m->dim[1] == 264 && m->stride[1] == 256 && m->stride[2] == 128);
    gemm_free(&r);
}
END_TEST

/* In tiles that are no whole heads, B comes in boxes of 32 pairs, and leaves in units of 32 columns. */
START_TEST(heads_and_their_halves_are_dimensions)
{
    struct gemm_rig r;
    emit(&r, "rope split", GEMM_HOPPER);
    const struct map_spec *m = &r.k.map[1];
    ck_assert(strstr(r.k.text, "SplitHeads<192, 128>") != NULL);
    ck_assert_int_eq(m->rank, 4);
    ck_assert(m->dim[0] == 128 && m->dim[1] == 64 && m->dim[2] == 2 && m->dim[3] == 5);
    ck_assert(m->stride[1] == 128 && m->stride[2] == 64 * 128 && m->stride[3] == 128 * 128);
    ck_assert(m->box[1] == 32 && m->box[2] == 2 && m->box[3] == 1);
    ck_assert(r.k.map[2].box[0] == 32 && r.k.map[2].swizzle == 64);
    gemm_free(&r);
    emit(&r, "rope half 128", GEMM_HOPPER);
    ck_assert(strstr(r.k.text, "HalfHeads<128, 128, 128>") && r.k.map[1].rank == 3);
    gemm_free(&r);
}
END_TEST

/* Slots are cut in pieces of one size. */
START_TEST(lent_slots_suit_what_is_moved)
{
    const struct gemm_case *c = &gemm_cases[_i];
    struct gemm_rig r;
    if (!c->tile.lends) return;
    emit(&r, c->name, GEMM_HOPPER);
    ck_assert_msg(program_may_lend(&r.p, &r.s.tile) || !r.s.layout.stores.count, "%s", c->name);
    gemm_free(&r);
}
END_TEST

START_TEST(what_is_aligned_is_staged)
{
    static const struct {
        const char *name;
        int stores, loads;
    } want[] = {{"plain tails", 1, 0},
                {"f32 out", 1, 0},
                {"padded pitches", 0, 0},
                {"residual", 2, 1},
                {"residual odd", 0, 0},
                {"gated wide", 1, 0},
                {"gated all neat", 3, 1},
                {"gated all stacked", 0, 0},
                {"rope half 80", 0, 0},
                {"summed", 2, 0},
                {"two fetched", 2, 2},
                {"three fetched", 2, 3},
                {"mixed", 3, 2},
                {"twins", 2, 1},
                {"twins odd", 0, 0},
                {"gated summed", 5, 0},
                {"gated summed interleaved", 2, 0}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct gemm_rig r;
        emit(&r, want[i].name, GEMM_HOPPER);
        const struct epilogue_layout *l = &r.s.layout;
        ck_assert_msg(l->stores.count == want[i].stores && l->loads.count == want[i].loads,
                      "%s: %d staged, %d fetched", want[i].name, l->stores.count, l->loads.count);
        gemm_free(&r);
    }
}
END_TEST

START_TEST(a_users_map_is_printed)
{
    static const struct prim leak = {
        .name = "leak",
        .kind = PRIM_MAP,
        .inputs = 1,
        .params = 1,
        .source = "DEV static float apply(float x, float a) { return x > 0 ? x : a * x; }"};
    struct gemm_rig r;
    struct jit_cubin cubin = {0};
    char err[JIT_ERROR_SIZE] = "";
    struct jit_options opt = {.arch = "sm_90a", .no_cache = !scale_kernels_are_kept()};
    emit(&r, "bias gelu", GEMM_HOPPER);
    for (int i = 0; i < r.p.steps; i++)
        if (r.step[i].prim && !strcmp(r.step[i].prim->name, "gelu_erf"))
            r.step[i].prim = &leak, r.step[i].param[0] = 0.1f;
    ck_assert(program_emit(&r.plan, &r.p, &r.s, &gemm_target, &r.k) == CODA_OK);
    ck_assert_str_eq(r.k.symbol, "coda_gemm_add_leak");
    ck_assert_msg(!jit_compile(&cubin, r.k.symbol, r.k.text, &opt, err), "%s", err);
    jit_cubin_free(&cubin);
    gemm_free(&r);
}
END_TEST

/* A state for each consumer's part of a tile's rows; as wide as the slot, or as the gated output. */
START_TEST(columns_have_states)
{
    static const struct {
        const char *name, *says;
        int blocks;
    } want[] = {
        {"columns bias", "reduce::sum::State v3[1]; };", 3},
        {"columns gain, wide", "merge_columns", 5},
        {"columns many tiles", "port::store_partial<reduce::sum>(g.s1, part, c.column[0], 600, s.v2[0]);", 9},
        {"columns gated", "reduce::max::State v7[2]; reduce::sum_sq::State v8[1]; };", 3},
        {"columns gated", "part, c.half_column, 200, s.v8[0]);", 3},
        {"columns split", "ColumnState &columns", 3}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct gemm_rig r;
        emit(&r, want[i].name, GEMM_HOPPER);
        ck_assert_msg(strstr(r.k.text, want[i].says) != NULL, "%s: %s", want[i].name, r.k.text);
        for (int j = 0; j < r.p.ports; j++)
            if (r.port[j].axis == REDUCE_COLUMNS) ck_assert_int_eq(r.port[j].blocks, want[i].blocks);
        gemm_free(&r);
    }
}
END_TEST

START_TEST(states_must_match_tiles)
{
    struct gemm_rig r;
    emit(&r, _i ? "columns" : "loss", GEMM_HOPPER);
    for (int i = 0; i < r.p.ports; i++) r.port[i].blocks++;
    ck_assert_int_eq(program_emit(&r.plan, &r.p, &r.s, &gemm_target, &r.k), CODA_E_INVALID);
    gemm_free(&r);
}
END_TEST

TESTS(emit_gemm, ONE(parameters_follow_the_text), ONE(a_cluster_shares_k), ONE(a_cluster_scatters_its_sums),
      ONE(a_ring_lends_slots), ONE(a_tail_has_a_map), ONE(a_cluster_shares_operands),
      ONE(three_consumers_are_512_threads), ONE(few_rows_have_a_in_registers),
      EACH(a_map_is_what_tma_takes, gemm_case_count), ONE(rope_steps_where_positions_do),
      ONE(gate_and_up_are_a_dimension), ONE(heads_and_their_halves_are_dimensions),
      EACH(lent_slots_suit_what_is_moved, gemm_case_count), ONE(what_is_aligned_is_staged),
      EACH(states_must_match_tiles, 2), ONE(columns_have_states), CASE("hopper"),
      /* apart, as this is the longest job of `make test` */ TAG("nvrtc hopper"),
      EACH(compiles_for_hopper, gemm_case_count), CASE("nvrtc"), TAG("nvrtc"),
      EACH(compiles_for_any, gemm_case_count), EACH(compiles_by_mma, gemm_case_count),
      EACH(compiles_by_fma, gemm_case_count), EACH(compiles_at_size, ARRAY_SIZE(sizes)),
      ONE(a_users_map_is_printed));
