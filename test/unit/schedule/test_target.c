/* test_target.c -- which row of targets.def a card gets, what its driver changes of it, and that rewriting,
 * fusion, tiles and costs ask for it. */
#include <string.h>

#include "mainloop.h"
#include "pipeline.h"
#include "rewrite.h"

#include "tests.h" /* last: Check has a macro named fail */

static struct target card(const char *arch, const char *name, int sms, double rate)
{
    return target_of(arch, &(struct target_card){.name = name, .sms = sms, .memory_rate = rate});
}

static void is_row(const struct target *t, int row)
{
    ck_assert_msg(!memcmp(t, &target_rows[row], sizeof *t), "%s is not %s", t->name, target_rows[row].name);
}

START_TEST(cards_have_the_rows_of_their_names)
{
    static const struct {
        const char *name;
        int row;
    } want[] = {{"NVIDIA H200", TARGET_H200},
                {"NVIDIA H100 80GB HBM3", TARGET_H100},
                {"NVIDIA H100 PCIe", TARGET_H100},
                {"H200", TARGET_H200}};
    struct target none = target_of("sm_90a", NULL);
    is_row(&none, 0);
    for (int i = 0; i < ARRAY_SIZE(want); i++) {
        struct target t = card("sm_90a", want[i].name, 132, 4.9e12); /* the row knows better */
        is_row(&t, want[i].row);
        t = card("sm_90a", want[i].name, 114, 0);
        ck_assert_int_eq(t.sms, 114);
        ck_assert(t.memory_bytes == target_rows[want[i].row].memory_bytes);
    }
}
END_TEST

/* Names that contain a row's name, but not as a word; and no name. */
START_TEST(other_cards_are_what_their_drivers_say)
{
    static const char *const name[] = {"NVIDIA GH200 480GB", "NVIDIA H20", "NVIDIA H2000", ""};
    const struct target *row = &target_rows[0];
    for (int i = 0; i < ARRAY_SIZE(name); i++) {
        struct target t = card("sm_90a", name[i], 66, row->memory_rate);
        ck_assert_int_eq(t.sms, 66);
        ck_assert(t.features == TARGET_HOPPER && t.shared_bytes == row->shared_bytes);
        ck_assert_double_eq_tol(t.memory_bytes, 2 * row->memory_bytes, 1e-9); /* half the SMs share it */
        t = card("sm_90a", name[i], 0, 0);
        is_row(&t, 0);
        struct target_card half = {.name = name[i], .boost_mhz = row->boost_mhz / 2};
        half.memory_rate = row->memory_rate;
        t = target_of("sm_90a", &half); /* the same bytes in half as many clocks */
        ck_assert_int_eq(t.clock_mhz, row->clock_mhz / 2);
        ck_assert_double_eq_tol(t.memory_bytes, 2 * row->memory_bytes, 0.1);
    }
}
END_TEST

START_TEST(other_architectures_have_no_features)
{
    static const char *const arch[] = {"sm_80", "sm_90", "sm_100a", ""};
    for (int i = 0; i < ARRAY_SIZE(arch); i++) {
        struct target t = target_of(arch[i], NULL), u = card(arch[i], "NVIDIA H200", 132, 0);
        ck_assert(!t.features && !u.features && t.sms == target_rows[0].sms);
    }
}
END_TEST

static struct program product(int64_t m, int64_t n, int64_t k)
{
    struct program p = {.kind = PROGRAM_GEMM, .rank = 3, .dim = {1, m, n}, .k = k};
    p.a = operand_of((struct tensor_use){.dtype = CODA_BF16, .batch = m * k, .row = k, .k = 1});
    p.b = operand_of((struct tensor_use){.dtype = CODA_BF16, .batch = n * k, .row = k, .k = 1});
    return p;
}

/* An invented card, each of whose numbers matters: to the cost of a product that it is scarce for. */
START_TEST(costs_ask_the_target)
{
    struct program large = product(16384, 8192, 8192), few = product(8, 8192, 8192);
    struct target base = target_rows[0], slow = base, narrow = base, far = base;
    struct tile wide = tile_choose(&large, &base), thin = tile_choose(&few, &base);
    slow.wgmma /= 2;
    narrow.l2_bytes /= 4;
    far.memory_bytes /= 2;
    ck_assert(wide.mainloop->cost(&large, &wide, &slow) > 1.5 * wide.mainloop->cost(&large, &wide, &base));
    ck_assert(wide.mainloop->cost(&large, &wide, &narrow) > 1.5 * wide.mainloop->cost(&large, &wide, &base));
    ck_assert(thin.mainloop->cost(&few, &thin, &far) > 1.5 * thin.mainloop->cost(&few, &thin, &base));
}
END_TEST

/* Where L2 gives all that is asked for, the largest tile's few bytes are worth nothing, and its epilogue,
 * which nothing hides, costs as much as before. */
START_TEST(an_invented_card_has_other_tiles)
{
    struct program p = product(16384, 8192, 8192);
    struct target fast = target_rows[0], other = fast;
    other.l2_bytes *= 8;
    struct tile t = tile_choose(&p, &fast), u = tile_choose(&p, &other);
    ck_assert_int_eq(t.bm * t.bn, 256 * 192);
    ck_assert_int_lt(u.bm * u.bn, 256 * 192);
    struct target small = fast;
    small.sms = 33;
    ck_assert_int_lt(tile_choose(&p, &small).band, t.band);
}
END_TEST

/* ---- A row that the table lacks ---- */

/* Few SMs with little memory, which have none of Hopper's units. */
static struct target invented(void)
{
    struct target t = target_rows[0];
    t.name = "invented", t.features = 0, t.sms = 48, t.shared_bytes = 64 << 10, t.portable_bytes = 48 << 10;
    t.l2_bytes = 20, t.memory_bytes = 6, t.wgmma = t.mma = 256;
    return t;
}

/* Rewritten for a target; the caller frees it. */
static graph *rewritten_for(const char *text, const struct target *target)
{
    struct rewrite_options opt = {.fuse = true, .target = target};
    struct rewrite_log log = {0};
    coda_graph *g;
    ck_assert_msg(!coda_graph_parse(&g, text), "%s", coda_error());
    graph *r = rewrite(g, &opt, &log);
    ck_assert_msg(r != NULL, "%s", coda_error());
    rewrite_log_free(&log);
    coda_graph_free(g);
    return r;
}

static void plan_for(struct plan *p, const char *text, const struct target *target)
{
    struct plan_options opt = {.fuse = true, .target = *target};
    graph *r = rewritten_for(text, target);
    ck_assert_msg(!plan_build(p, r, &opt), "%s", coda_error());
    graph_free(r);
}

/* A row's sum of squares costs a number for each tile of the row, of which there are as many as SMs. */
START_TEST(an_invented_card_has_other_rewrites)
{
    static const char text[] = "%x = input bf16[8,256]\n%w = weight bf16[768,256]\n%g = weight bf16[768]\n"
                               "%u = weight bf16[64,768]\n%v = weight bf16[64,768]\n%h = matmul %x, %w\n"
                               "%n = rms_norm %h, %g {eps=1e-5}\n%p = matmul %n, %u\n%q = matmul %n, %v\n"
                               "output %y = %p\noutput %z = %q\n";
    struct target other = invented();
    graph *g = rewritten_for(text, &target_rows[0]), *h = rewritten_for(text, &other);
    struct text a = {0}, b = {0};
    graph_print(g, &a), graph_print(h, &b);
    ck_assert_msg(strcmp(text_str(&a), text_str(&b)), "%s", text_str(&a));
    text_free(&a), text_free(&b);
    graph_free(g), graph_free(h);
}
END_TEST

/* Every second column of a weight [K, 2F]: no tensor map, but pointers. */
START_TEST(an_invented_card_has_other_programs)
{
    static const char text[] =
        "%x = input bf16[512,256]\n%w = weight bf16[256,512]\n"
        "%h = matmul %x, %w {kn=1}\n%a = slice %h {axis=1, start=0, stop=512, step=2}\n"
        "%b = slice %h {axis=1, start=1, stop=512, step=2}\n%s = swiglu %a, %b\noutput %y = %s\n";
    struct target other = invented();
    struct plan p, q;
    plan_for(&p, text, &target_rows[0]);
    plan_for(&q, text, &other);
    ck_assert_int_eq(p.programs, 2);
    ck_assert_int_eq(q.programs, 1);
    ck_assert(p.schedule[0].tile.mainloop == &mainloop_wgmma && q.schedule[0].tile.mainloop == &mainloop_mma);
    ck_assert_int_le(tile_shared_bytes(&q.program[0], &q.schedule[0].tile), other.portable_bytes);
    plan_free(&p), plan_free(&q);
}
END_TEST

START_TEST(an_invented_card_has_other_attention)
{
    static const char text[] =
        "%q = input bf16[256,1024]\n%k = input bf16[256,1024]\n%v = input bf16[256,1024]\n"
        "%o = attention %q, %k, %v {heads=8, kv_heads=8}\noutput %y = %o\n";
    struct target other = invented();
    struct plan p, q;
    plan_for(&p, text, &target_rows[0]);
    plan_for(&q, text, &other);
    ck_assert(p.schedule[0].shared_bytes > other.shared_bytes);
    ck_assert_int_le(q.schedule[0].shared_bytes, other.shared_bytes);
    plan_free(&p), plan_free(&q);
}
END_TEST

TESTS(target, ONE(cards_have_the_rows_of_their_names), ONE(other_cards_are_what_their_drivers_say),
      ONE(other_architectures_have_no_features), ONE(costs_ask_the_target),
      ONE(an_invented_card_has_other_tiles), ONE(an_invented_card_has_other_rewrites),
      ONE(an_invented_card_has_other_programs), ONE(an_invented_card_has_other_attention));
