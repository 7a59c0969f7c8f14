/* test_emit_attention.c -- attention kernels: text, geometry, and what NVRTC makes of them. */
#include <stdio.h>
#include <string.h>

#include "emit_attention.h"
#include "emit_text.h"
#include "jit.h"
#include "util_attention.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

static bool fits(const struct attention_case *c)
{
    struct attention_spec s;
    attention_case_spec(c, &s);
    return attention_fits_sm90(&s, &attention_target);
}

static const struct attention_case *named(const char *name)
{
    for (int i = 0; i < attention_case_count; i++)
        if (!strcmp(attention_cases[i].name, name)) return &attention_cases[i];
    ck_abort_msg("no case %s", name);
}

/* Compiles for Hopper and demands that nothing spills and that ptxas has nothing to say. */
static void compile(const struct attention_case *c, bool sm90)
{
    struct attention_rig r;
    struct jit_cubin cubin = {0};
    char err[JIT_ERROR_SIZE] = "";
    ck_assert_msg(attention_emit(&r, c, sm90) == CODA_OK, "%s: %s", c->name, coda_error());
    struct jit_options opt = {.arch = "sm_90a", .no_cache = !scale_kernels_are_kept()};
    coda_status status = jit_compile(&cubin, r.k.symbol, r.k.text, &opt, err);
    ck_assert_msg(status == CODA_OK, "%s: %s\n%s", c->name, err, r.k.text);
    ck_assert_msg(cubin.spill_bytes == 0, "%s: %d bytes of spills", c->name, cubin.spill_bytes);
    ck_assert_msg(!cubin.warning[0], "%s: %s", c->name, cubin.warning);
    jit_cubin_free(&cubin);
    arena_free(&r.plan.arena);
}

/* One case in so many, by the seed, in each way: many runs see all. */
enum { SHARE = 40 };

START_TEST(compiles)
{
    char why[256];
    const struct attention_case *c = &attention_cases[_i];
    bool hopper = fits(c) && scale_takes_one_in(SHARE, _i), any = scale_takes_one_in(SHARE, _i + 1);
    if ((!hopper && !any) || !jit_nvrtc_info(why, sizeof why)) return; /* asked in the test's own process */
    if (hopper) compile(c, true);
    if (any) compile(c, false);
}
END_TEST

/* Three warpgroups have no registers for softcap beside a limit: two take such tiles. */
START_TEST(softcap_has_registers)
{
    char why[256];
    struct attention_case c = *named("lengths causal");
    struct attention_rig r;
    c.softcap = 5;
    ck_assert_int_eq(attention_emit(&r, &c, true), CODA_OK);
    ck_assert_int_eq(r.k.launch.threads, 128 * 3);
    arena_free(&r.plan.arena);
    if (jit_nvrtc_info(why, sizeof why)) compile(&c, true);
}
END_TEST

START_TEST(hopper_takes_what_tensor_maps_can_say)
{
    ck_assert(fits(named("causal")));
    ck_assert(fits(named("head 40")));
    ck_assert(fits(named("head 256")));
    ck_assert(fits(named("heads first")));
    ck_assert(!fits(named("odd pitch")));
    ck_assert(!fits(named("head 5")));
    ck_assert(!fits(named("head 320")));
    ck_assert(!fits(named("f32")));
    ck_assert(!fits(named("no keys")));
    ck_assert(!fits(named("no queries")));
    struct attention_spec s;
    attention_case_spec(named("causal"), &s);
    const struct target old = target_of("sm_80", NULL);
    ck_assert(!attention_fits_sm90(&s, &old));
    s.use[ATTENTION_K].offset = 4;
    ck_assert(!attention_fits_sm90(&s, &attention_target));
    s.use[ATTENTION_K].offset = 8;
    ck_assert(attention_fits_sm90(&s, &attention_target));
    s.use[ATTENTION_O].time += 4;
    ck_assert(!attention_fits_sm90(&s, &attention_target));
    s.use[ATTENTION_O].time += 4;
    s.use[ATTENTION_V].batch = 0;
    ck_assert(!attention_fits_sm90(&s, &attention_target));
}
END_TEST

START_TEST(geometry)
{
    struct attention_rig r;
    ck_assert_int_eq(attention_emit(&r, named("packed grouped"), true), CODA_OK);
    const struct kernel *k = &r.k;
    ck_assert_str_eq(k->symbol, "coda_attention_causal");
    ck_assert_int_eq(k->launch.grid, 2 * 8 * 3);
    ck_assert(k->launch.persistent);
    ck_assert_int_eq(k->launch.threads, 384);
    ck_assert_int_eq(k->maps, 3);
    ck_assert_int_eq(k->pointers, 1);
    ck_assert_int_eq(k->pointer[0].buffer, ATTENTION_O);
    const struct map_spec *m = &k->map[2];
    ck_assert_int_eq(m->buffer, ATTENTION_Q);
    ck_assert_int_eq(m->offset, 10 * 128);
    ck_assert_int_eq(m->dim[0], 128);
    ck_assert_int_eq(m->dim[1], 2);
    ck_assert_int_eq(m->dim[2], 333);
    ck_assert_int_eq(m->dim[3], 2);
    ck_assert_int_eq(m->stride[2], 12 * 128);
    arena_free(&r.plan.arena);
}
END_TEST

/* Each of 5 sequences, and the rows before and behind them, may end in the midst of a tile. */
START_TEST(packed_geometry)
{
    struct attention_rig r;
    ck_assert_int_eq(attention_emit(&r, named("starts"), true), CODA_OK);
    const struct kernel *k = &r.k;
    ck_assert_str_eq(k->symbol, "coda_attention_causal_lengths_packed");
    ck_assert_int_eq(k->launch.grid, 4 * ((300 + 7 * 127) / 128));
    ck_assert_int_eq(k->launch.cluster, 0);
    ck_assert(k->launch.persistent);
    ck_assert_int_eq(k->map[0].dim[2], 300);
    ck_assert_int_eq(k->map[0].dim[3], 1);
    ck_assert_int_eq(k->map[1].dim[3], 5);
    ck_assert_int_eq(k->pointers, 3);
    ck_assert_int_eq(k->pointer[2].buffer, ATTENTION_STARTS);
    arena_free(&r.plan.arena);
    ck_assert_int_eq(attention_emit(&r, named("starts of many"), false), CODA_OK);
    ck_assert_int_eq(r.k.launch.grid, 2 * ((120 + 72 * 63) / 64));
    arena_free(&r.plan.arena);
    ck_assert(!fits(named("starts of none")));
}
END_TEST

/* Any kernel of few queries may start ahead of the end of the one before it; keys that this run writes are
 * read after the wait, others before it. */
START_TEST(few_queries_start_early)
{
    bool waits[2];
    for (int steady = 0; steady < 2; steady++) {
        struct attention_spec a;
        struct schedule s = {0};
        struct program p = {.kind = PROGRAM_OWN, .own = &own_attention, .spec = &a};
        const struct attention_case *c = named("split");
        attention_case_spec(c, &a);
        a.use[ATTENTION_V].steady = steady;
        schedule_attention(&s, &p, &(struct plan_options){.target = attention_target, .base = c->base});
        ck_assert_int_eq(schedule_complete(&s, NULL, &p, &attention_target), CODA_OK);
        ck_assert(s.attention == &attention_split && s.early);
        waits[steady] = !s.reads_early;
        struct target old = attention_target;
        old.features &= ~(unsigned)TARGET_PDL;
        schedule_attention(&s, &p, &(struct plan_options){.target = old, .base = c->base});
        ck_assert_int_eq(schedule_complete(&s, NULL, &p, &old), CODA_OK);
        ck_assert(!s.early && !s.reads_early);
    }
    ck_assert(waits[false] && !waits[true]);
}
END_TEST

/* What a run appends is known to blocks that have one item, of as many rows as a warp has lanes. */
START_TEST(appended_rows_are_read_late)
{
    for (int batch = 1; batch <= 16; batch += 15)
        for (int rows = 32; rows <= 33; rows++) {
            struct attention_spec a;
            struct schedule s = {0};
            struct program p = {.kind = PROGRAM_OWN, .own = &own_attention, .spec = &a};
            struct attention_case c = *named("split");
            c.batch = batch;
            attention_case_spec(&c, &a);
            a.use[ATTENTION_K].steady = a.use[ATTENTION_V].steady = false;
            a.appends = true, a.written = a.use[ATTENTION_LENGTHS], a.written.table_rows = rows;
            schedule_attention(&s, &p, &(struct plan_options){.target = attention_target});
            ck_assert_int_eq(s.persistent, batch > 1);
            ck_assert_int_eq(s.reads_early, batch == 1 && rows == 32);
            a.use[ATTENTION_LENGTHS].steady = false;
            schedule_attention(&s, &p, &(struct plan_options){.target = attention_target});
            ck_assert(!s.reads_early);
        }
}
END_TEST

/* A sequence's blocks leave more than half of an SM to a product's, and have two warps on each of its four
 * schedulers, whose registers hold three of a product's beside them. Many sequences have all of it, and so
 * has a long one that no window cuts short. */
START_TEST(few_blocks_leave_room)
{
    static const struct {
        int batch, tk, window;
        bool room;
    } c[] = {{1, 2100, 0, true},
             {64, 2100, 0, false},
             {1, 16384, 0, true},
             {1, 16385, 0, false},
             {1, 16385, 1024, true}};
    const int all = attention_target.shared_bytes + 1024;
    for (int i = 0; i < ARRAY_SIZE(c); i++) {
        struct attention_case split = *named("split");
        struct attention_rig r;
        split.batch = c[i].batch, split.tk = c[i].tk, split.window = c[i].window;
        ck_assert_int_eq(attention_emit(&r, &split, true), CODA_OK);
        const struct launch_spec *l = &r.k.launch;
        ck_assert_int_eq(l->persistent, !c[i].room);
        ck_assert_int_eq(l->threads, c[i].room ? 256 : 320);
        ck_assert_int_eq(2 * (l->shared_bytes + 1024) < all, c[i].room);
        ck_assert(strstr(r.k.text, c[i].room ? "walks = 0;" : "walks = 1;"));
        arena_free(&r.plan.arena);
    }
}
END_TEST

/* Of up to two queries a sequence on average, and of keys of 8 bits, items have as many as 8 rows, or 16,
 * take. Here 4 heads share a key head, then 2. A cluster has an item. */
START_TEST(few_packed_geometry)
{
    struct attention_rig r;
    ck_assert_int_eq(attention_emit(&r, named("split starts"), true), CODA_OK);
    const struct kernel *k = &r.k;
    ck_assert_str_eq(k->symbol, "coda_attention_causal_lengths_packed_split");
    ck_assert_int_eq(r.s.tile.bm, 8);
    ck_assert_int_eq(k->launch.cluster, 4);
    ck_assert_int_eq(k->launch.grid, 4 * 2 * ((14 + 11 * 1) / 2));
    ck_assert(k->launch.persistent);
    ck_assert_int_eq(k->maps, 2);
    arena_free(&r.plan.arena);
    struct attention_case c = *named("split starts");
    c.tq = 2 * c.batch + 1;
    ck_assert_int_eq(attention_emit(&r, &c, true), CODA_OK);
    ck_assert(r.s.attention == &attention_wgmma);
    arena_free(&r.plan.arena);
    ck_assert_int_eq(attention_emit(&r, named("fp8 starts"), true), CODA_OK);
    ck_assert_int_eq(r.s.tile.bm, 16);
    ck_assert_int_eq(r.k.launch.grid, 8 * 2 * ((60 + 8 * 7) / 8));
    arena_free(&r.plan.arena);
}
END_TEST

START_TEST(simt_arguments)
{
    struct attention_rig r;
    ck_assert_int_eq(attention_emit(&r, named("f32 lengths window"), false), CODA_OK);
    ck_assert_str_eq(r.k.symbol, "coda_attention_causal_window_lengths_simt");
    ck_assert_int_eq(r.k.maps, 0);
    ck_assert_int_eq(r.k.pointers, 5);
    ck_assert(!r.k.launch.persistent);
    arena_free(&r.plan.arena);
}
END_TEST

START_TEST(empty_domains_launch_nothing)
{
    struct attention_rig r;
    ck_assert_int_eq(attention_emit(&r, named("no queries"), false), CODA_OK);
    ck_assert_int_eq(r.k.launch.grid, 0);
    arena_free(&r.plan.arena);
    ck_assert_int_eq(attention_emit(&r, named("no batch"), false), CODA_OK);
    ck_assert_int_eq(r.k.launch.grid, 0);
    arena_free(&r.plan.arena);
    ck_assert_int_eq(attention_emit(&r, named("no keys"), false), CODA_OK);
    ck_assert_int_eq(r.k.launch.grid, 2 * 2 * 2); /* tiles of 16, since SMs have none */
    arena_free(&r.plan.arena);
}
END_TEST

/* Shared memory has the queries of two tiles, or registers have those of one, where both have room: then
 * one's end goes beside the other's beginning. */
START_TEST(queries_of_two_tiles)
{
    static const struct {
        const char *name;
        int slots, held, shared;
    } want[] = {{"causal", 1, 1, 128 * 2 * (128 + 6 * 128)},
                {"lengths causal", 2, 0, 128 * (2 * 192 + 8 * 128)},
                {"head 40", 2, 0, 128 * (2 * 128 + 8 * 128)},
                {"head 80", 1, 1, 128 * 2 * (128 + 6 * 128)},
                {"window", 1, 1, 128 * 2 * (128 + 6 * 128)},
                {"head 192", 1, 0, 128 * 3 * (128 + 4 * 112)},
                {"ranges", 1, 0, 128 * 2 * (128 + 4 * 128)},
                {"head 72", 1, 1, 128 * 2 * (128 + 6 * 128)},
                {"shared tiles", 1, 1, 128 * 2 * (192 + 6 * 96)},
                {"shared tiles of 96", 1, 1, 128 * 2 * (192 + 8 * 80)},
                {"head 72 lengths", 1, 1, 128 * 2 * (128 + 6 * 128)}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        char said[80];
        struct attention_rig r;
        ck_assert_int_eq(attention_emit(&r, named(want[i].name), true), CODA_OK);
        snprintf(said, sizeof said, "query_slots = %d;\n    static constexpr bool held = %d;", want[i].slots,
                 want[i].held);
        ck_assert_msg(strstr(r.k.text, said) != NULL, "%s: not %s", want[i].name, said);
        ck_assert_int_eq(r.k.launch.shared_bytes, want[i].shared + 1024); /* mbarriers, by 1024 */
        arena_free(&r.plan.arena);
    }
}
END_TEST

/* What the block that has most has more than the mean: a tile costs a block of keys beside its own. */
static double excess(const struct attention_spec *a, int64_t band, int64_t bm)
{
    enum { SMS = 132 };
    int64_t tiles = CEIL_DIV(a->tq, bm), streams = a->batch * a->heads, bands = CEIL_DIV(streams, band);
    double load[SMS] = {0}, sum = 0, most = 0;
    for (int64_t i = 0; i < CEIL_DIV(tiles * streams, SMS) * SMS; i++) {
        int64_t place = i / SMS % 2 ? SMS - 1 - i % SMS : i % SMS, t = i / SMS * SMS + place;
        int64_t of = t / (tiles * band), in = t % (tiles * band), width = MIN(band, streams - of * band);
        int64_t tile = (bands - of) % 2 ? tiles - 1 - in / MAX(width, 1) : in / MAX(width, 1);
        if (t >= tiles * streams) continue;
        load[i % SMS] += 1 + (double)CEIL_DIV(MIN((tile + 1) * bm, a->tq), 128);
    }
    for (int i = 0; i < SMS; i++) sum += load[i], most = MAX(most, load[i]);
    return most / (sum / SMS) - 1;
}

/* The walk of a persistent kernel deals tiles of all lengths evenly, and keys of a band stay in L2. */
START_TEST(bands_are_dealt_evenly)
{
    static const struct {
        int64_t batch, time, head_dim;
        double most;
    } want[] = {{32, 512, 128, 0.015},
                {16, 1024, 128, 0.015},
                {8, 2048, 128, 0.015},
                {32, 512, 64, 0.015},
                {2, 8192, 128, 0.005}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct attention_spec a;
        attention_case_spec(named("causal"), &a);
        a.batch = want[i].batch, a.tq = a.tk = want[i].time, a.head_dim = want[i].head_dim;
        a.heads = a.kv_heads = 32;
        struct schedule s = {.tile = {.bm = 128, .bn = 128}};
        struct attention_text e = {.a = &a, .s = &s, .sms = 132};
        int64_t band = emit_attention_band(&e);
        ck_assert_msg(excess(&a, band, 128) <= want[i].most, "%d: %g at bands of %d", i,
                      excess(&a, band, 128), (int)band);
        ck_assert_int_le(band * a.tk * a.head_dim * 4, 20 << 20);
        a.causal = false;
        ck_assert_int_ge(emit_attention_band(&e) * a.tk * a.head_dim * 4, 15 << 20);
    }
}
END_TEST

/* A round of few tiles becomes one of more that are small, where these take less time than a whole tile. */
START_TEST(last_rounds_have_small_tiles)
{
    static const struct {
        int64_t batch, heads, time, head_dim, tiles, whole;
    } want[] = {{2, 16, 4096, 72, 22, 20}, /* of 5.33 rounds, where 6 are 5 and a small one */
                {2, 16, 4096, 64, 22, 20},  {2, 16, 8192, 72, 43, 43}, /* 10.4: small ones would be two */
                {2, 24, 4429, 64, 24, 24},                             /* 8.7 */
                {4, 11, 630, 64, 4, 3}, /* 132, and as many small ones as heads */
                {2, 16, 4096, 128, 32, 32}, {1, 24, 512, 72, 3, 3}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct attention_spec a;
        attention_case_spec(named("full"), &a);
        a.batch = want[i].batch, a.heads = a.kv_heads = want[i].heads, a.head_dim = want[i].head_dim;
        a.tq = a.tk = want[i].time;
        struct schedule s = {.tile = {.bm = a.head_dim > 72 ? 128 : 192, .bn = 128}};
        struct attention_text e = {.a = &a, .s = &s, .sms = 132};
        ck_assert_int_eq(CEIL_DIV(a.tq, s.tile.bm), want[i].tiles);
        ck_assert_msg(emit_attention_whole(&e) == want[i].whole, "%d: %d of %d tiles are whole", i,
                      (int)emit_attention_whole(&e), (int)want[i].tiles);
        a.causal = true;
        ck_assert_int_eq(emit_attention_whole(&e), want[i].tiles);
    }
}
END_TEST

/* Three warpgroups have tiles of 192 queries, where an H200 takes less time with them: so it was measured. */
START_TEST(three_warpgroups_where_they_gain)
{
    static const struct {
        int64_t batch, heads, time, head_dim, bm;
    } want[] = {{2, 16, 4096, 72, 192}, {8, 16, 1024, 72, 192}, {2, 16, 1500, 72, 192},
                {2, 16, 1024, 72, 128}, {2, 16, 4096, 80, 192}, {1, 24, 2048, 80, 192},
                {2, 16, 2048, 80, 128}, {2, 16, 1024, 80, 128}, {2, 16, 4096, 96, 192},
                {2, 24, 4429, 96, 192}, {2, 16, 2048, 96, 128}, {2, 16, 1024, 96, 128}};
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct attention_case c = *named("full");
        struct attention_rig r;
        c.batch = want[i].batch, c.heads = c.kv_heads = want[i].heads, c.head_dim = want[i].head_dim;
        c.tq = c.tk = want[i].time;
        ck_assert_int_eq(attention_emit(&r, &c, true), CODA_OK);
        ck_assert_msg(r.s.tile.bm == want[i].bm, "%d: tiles of %d queries", i, (int)r.s.tile.bm);
        arena_free(&r.plan.arena);
    }
}
END_TEST

START_TEST(refuses_what_no_tile_holds)
{
    struct attention_rig r;
    struct attention_case c = *named("full");
    c.head_dim = 1 << 20;
    ck_assert_int_eq(attention_emit(&r, &c, false), CODA_E_UNSUPPORTED);
    arena_free(&r.plan.arena);
    ck_assert_ptr_nonnull(strstr(coda_error(), "1048576"));
    c = *named("full");
    c.tq = (int64_t)1 << 40;
    ck_assert_int_eq(attention_emit(&r, &c, false), CODA_E_UNSUPPORTED);
    arena_free(&r.plan.arena);
    ck_assert_int_eq(attention_emit(&r, &c, true), CODA_E_UNSUPPORTED);
    arena_free(&r.plan.arena);
    c = *named("starts of none");
    c.batch = (int64_t)1 << 32;
    ck_assert_int_eq(attention_emit(&r, &c, false), CODA_E_UNSUPPORTED);
    arena_free(&r.plan.arena);
}
END_TEST

/* More parameters than there is memory for are counted, not written, and refused by their numbers. */
START_TEST(parameters_have_room)
{
    struct scalar_spec number[3] = {{.number = 7}, {.number = 7}, {.number = 7}};
    struct pointer_spec pointer[2] = {{.bytes = 7}, {.bytes = 7}};
    struct kernel k = {.symbol = "coda_some", .members = 1, .scalar = number, .scalar_room = 2};
    k.pointer = pointer, k.pointer_room = 1;
    emit_long(&k, 1);
    emit_pointer(&k, 3, 0);
    ck_assert_int_eq(emit_fits(&k), CODA_OK);
    emit_number(&k, 2);
    emit_pointer(&k, 4, 0);
    ck_assert_int_eq(number[2].number, 7);
    ck_assert_int_eq(pointer[1].bytes, 7);
    ck_assert_int_eq(emit_fits(&k), CODA_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(coda_error(), "2 pointers and 3 scalars; at most 0, 1 and 2"));
}
END_TEST

TESTS(emit_attention, ONE(parameters_have_room), ONE(hopper_takes_what_tensor_maps_can_say), ONE(geometry),
      ONE(packed_geometry), ONE(few_blocks_leave_room), ONE(few_packed_geometry),
      ONE(few_queries_start_early), ONE(appended_rows_are_read_late), ONE(simt_arguments),
      ONE(empty_domains_launch_nothing), ONE(queries_of_two_tiles), ONE(bands_are_dealt_evenly),
      ONE(last_rounds_have_small_tiles), ONE(three_warpgroups_where_they_gain),
      ONE(refuses_what_no_tile_holds), CASE("nvrtc"), TAG("nvrtc"), ONE(softcap_has_registers),
      EACH(compiles, attention_case_count));
