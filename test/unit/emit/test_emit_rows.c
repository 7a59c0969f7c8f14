/* test_emit_rows.c -- rows kernels: text, geometry, and what NVRTC makes of them. */
#include <string.h>

#include "emit.h"
#include "jit.h"
#include "util_rows.h"
#include "util_scale.h"

#include "tests.h" /* last: Check has a macro named fail */

static const struct rows_case *named(const char *name)
{
    for (int i = 0; i < rows_case_count; i++)
        if (!strcmp(rows_cases[i].name, name)) return &rows_cases[i];
    ck_abort_msg("no case %s", name);
}

static void emit(struct rig *r, const char *name)
{
    named(name)->build(r);
    ck_assert_msg(rig_emit(r, &rows_target) == CODA_OK, "%s: %s", name, coda_error());
}

/* Compiles for Hopper and demands that nothing spills and that ptxas has nothing to say. */
static void compile(const struct kernel *k, const char *name)
{
    struct jit_cubin cubin = {0};
    struct jit_options opt = {.arch = "sm_90a", .no_cache = !scale_kernels_are_kept()};
    char err[JIT_ERROR_SIZE] = "";
    coda_status status = jit_compile(&cubin, k->symbol, k->text, &opt, err);
    ck_assert_msg(status == CODA_OK, "%s: %s\n%s", name, err, k->text);
    ck_assert_msg(cubin.spill_bytes == 0, "%s: %d bytes of spills", name, cubin.spill_bytes);
    ck_assert_msg(!cubin.warning[0], "%s: %s", name, cubin.warning);
    jit_cubin_free(&cubin);
}

START_TEST(compiles)
{
    struct rig r;
    emit(&r, rows_cases[_i].name);
    if (scale_takes_one_in(4, _i)) compile(&r.k, rows_cases[_i].name);
    rig_free(&r);
}
END_TEST

static bool says(const struct rig *r, const char *what) { return strstr(r->k.text, what) != NULL; }

static void expect(const char *name, const char *what, bool there)
{
    struct rig r;
    emit(&r, name);
    ck_assert_msg(says(&r, what) == there, "%s: '%s' in\n%s", name, what, r.k.text);
    rig_free(&r);
}

START_TEST(pieces_are_as_wide_as_memory_allows)
{
    expect("swiglu", "8 columns at once", true);
    expect("scalars", "8 columns at once", true);
    expect("rms norm, narrow", "4 columns at once", true);
    expect("odd silu", "1 column at once", true);
    expect("slices", "1 column at once", true);
    expect("rope, odd", "1 column at once", true);
    expect("deep sums", "8 columns at once", true);
}
END_TEST

START_TEST(dimensions_join_where_strides_allow)
{
    expect("swiglu", "Divisor", false);
    expect("integers", "Divisor", false);
    expect("transposed", "    Divisor d", true);
    expect("deep sums", "    Divisor d", true);
}
END_TEST

START_TEST(teams_grow_with_their_rows)
{
    expect("softmax, tiny", "1 thread for a row", true);
    expect("rms norm, narrow", "32 threads for a row", true);
    expect("rms norm, wide", "128 threads for a row", true);
    expect("softmax, large", "512 threads for a row", true);
    expect("swiglu", "for a row", false);
    expect("finishing", "for a row", false);
}
END_TEST

/* A warp merges the states of a row, however many rows there are. A thread does if there is no column to walk
 * and states are few; so does each thread of a team that has columns to walk, or four of them together. */
START_TEST(lanes_share_the_states_of_a_row)
{
    expect("finishing, one row", "Partials<reduce::log_sum_exp, 32>", true);
    expect("finishing, one row", "Partials<reduce::select, 32>", true);
    expect("finishing, one row", "s0.load(a.a0, row, lane, a.states0);", true);
    expect("finishing, one row", "32 threads for a row", true);
    expect("finishing, many rows", "32 threads for a row", true);
    expect("finishing, pairs of lanes", "32 threads for a row", true);
    expect("finishing, half warps", "32 threads for a row", true);
    expect("finishing, odd rows", "32 threads for a row", true);
    expect("finishing, columns", "32 threads for a row", true);
    expect("finishing", "Partials<reduce::sum_sq, 1>", true);
    expect("normalising", "Partials<reduce::exp_max, 1>", true);
    expect("normalising, large", "512 threads for a row", true);
    expect("normalising, large", "lane % 32, a.states", true);
}
END_TEST

/* Two statistics that read one state: it is pushed, loaded, merged and folded once. */
START_TEST(states_are_read_twice)
{
    expect("softmax, odd", "reduce::exp_max::push(s1", true);
    expect("softmax, odd", "const auto f1 = rows::fold<reduce::exp_max, 256>(s1);", true);
    expect("softmax, odd", "const float v2 = reduce::exp_sum::finish(f1);", true);
    expect("softmax, odd", "reduce::exp_sum::push", false);
    expect("layer norm", "const float v4 = reduce::m2::finish(f3);", true);
    expect("normalising", "const float v1 = reduce::exp_sum::finish(f0);", true);
    expect("normalising", "Partials<reduce::exp_sum", false);
    expect("extremes", "rows::finish<reduce::log_sum_exp", true);
}
END_TEST

/* Threads stand across the columns, and down the rows of a part. */
START_TEST(columns_are_folded_by_blocks)
{
    expect("columns", "8 columns at once, 8 x 32 threads for some rows", true);
    expect("columns", "rows::store_columns<reduce::sum_sq, 32, 8>(s", true);
    expect("columns", "for a row", false);
    expect("columns, odd", "1 column at once, 8 x 32 threads for some rows", true);
    expect("columns, matrices", "push(s6[j], v5, (int)i", true);
    expect("columns, one", "256 x 1 threads for some rows", true);
    expect("columns finished", "1 column at once, 1 thread each", true);
    expect("columns finished, many states", "merge_columns<reduce::m2, 8, 32>", true);
    expect("columns finished, twice", "reduce::exp_sum::finish(f0)", true);
}
END_TEST

START_TEST(loads_go_ahead_of_states)
{
    expect("finishing, loss", "x1[i][0] = load(", true);
    expect("centring", "port::load_piece(x3[i], p2 + c)", true);
    expect("normalising, large", "[i]", false);
}
END_TEST

/* Ahead of the wait only what no program of a run writes is there; coda_prepare makes even that. A column of
 * the matrix itself is another one in each row. */
START_TEST(what_all_rows_share_is_loaded_once_and_early)
{
    for (int i = 0; i < 3; i++) {
        struct rig r;
        named("rms norm, wide")->build(&r);
        for (int q = 0; q < r.p.ports; q++) r.port[q].steady = i > 0;
        r.p.prepare = i > 1;
        ck_assert_int_eq(rig_emit(&r, &rows_target), CODA_OK);
        const char *early = strstr(r.k.text, "port::Piece<"), *wait = strstr(r.k.text, "grid_wait");
        ck_assert_msg((early != NULL) == (i == 1), "%s", r.k.text);
        ck_assert_msg(!early || (early < wait && !strstr(early + 1, "port::Piece<")), "%s", r.k.text);
        rig_free(&r);
    }
}
END_TEST

START_TEST(a_load_of_two_phases_is_kept_if_it_fits)
{
    expect("rms norm, wide", "float x0[4][8]", true);
    expect("softmax, large", "float x0[8]", true);
    expect("softmax, large", "x0[i]", false);
}
END_TEST

START_TEST(empty_domains_are_not_launched)
{
    struct rig r;
    emit(&r, "no rows");
    ck_assert_int_eq(r.k.launch.grid, 0);
    rig_free(&r);
    emit(&r, "no columns");
    ck_assert_int_gt(r.k.launch.grid, 0);
    rig_free(&r);
}
END_TEST

START_TEST(same_program_same_text)
{
    struct rig a, b;
    emit(&a, "layer norm");
    emit(&b, "layer norm");
    ck_assert_str_eq(a.k.text, b.k.text);
    ck_assert_str_eq(a.k.symbol, "coda_rows_add_mean_m2_rsqrt_mean_sub_mul_add");
    rig_free(&a);
    rig_free(&b);
}
END_TEST

/* Elements beyond 2^31: indices of 64 bits. Nothing is allocated. */
START_TEST(large_domains_count_in_64_bits)
{
    struct rig r;
    rig_init(&r, PROGRAM_ROWS, 2, DIMS(1 << 20, 1 << 16));
    int in = rig_buffer(&r, CODA_BF16, 0, 0), out = rig_buffer(&r, CODA_BF16, 0, 0);
    int x = rig_load(&r, in, 0, DIMS((1 << 16) + 8, 1));
    rig_store(&r, rig_map(&r, "silu", x, -1, NULL), out, 0, DIMS(1 << 16, 1));
    ck_assert_int_eq(rig_emit(&r, &rows_target), CODA_OK);
    ck_assert(says(&r, "for (i64 t"));
    compile(&r.k, "large");
    rig_free(&r);
}
END_TEST

/* A map of the caller's own stands in the text, whatever its name is in C++: a word of the language, a macro;
 * and what it calls is a function, though a map of the library has that name, too. */
static const char *const user_names[] = {"leaky", "and",      "class", "float",
                                         "DEV",   "INFINITY", "apply", "State"};
START_TEST(user_maps)
{
    struct prim leaky = {.name = user_names[_i],
                         .kind = PRIM_MAP,
                         .inputs = 1,
                         .params = 1,
                         .source = "DEV static float apply(float x, float a)\n"
                                   "{ return x > 0.0f ? sqrt(exp(x)) : a * x; }"};
    struct rig r;
    rig_init(&r, PROGRAM_ROWS, 1, DIMS(100));
    int x = rig_load(&r, rig_buffer(&r, CODA_F32, 100, 1), 0, DIMS(1));
    int e = rig_map(&r, "exp", rig_map(&r, "sqrt", x, -1, NULL), -1, NULL);
    int y = rig_map(&r, "scale", e, -1, (float[]){0.1f});
    r.step[y].prim = &leaky;
    rig_store(&r, y, rig_buffer(&r, CODA_F32, 100, 0), 0, DIMS(1));
    ck_assert_int_eq(rig_emit(&r, &rows_target), CODA_OK);
    compile(&r.k, "leaky");
    rig_free(&r);
}
END_TEST

TESTS(emit_rows, TAG("nvrtc"), EACH(compiles, rows_case_count), EACH(user_maps, ARRAY_SIZE(user_names)),
      CASE("emit_rows"), ONE(pieces_are_as_wide_as_memory_allows), ONE(dimensions_join_where_strides_allow),
      ONE(teams_grow_with_their_rows), ONE(lanes_share_the_states_of_a_row), ONE(states_are_read_twice),
      ONE(columns_are_folded_by_blocks), ONE(loads_go_ahead_of_states),
      ONE(what_all_rows_share_is_loaded_once_and_early), ONE(a_load_of_two_phases_is_kept_if_it_fits),
      ONE(empty_domains_are_not_launched), ONE(same_program_same_text), ONE(large_domains_count_in_64_bits));
