/* test_extents.c -- an attention's text says neither how many sequences there are nor how many queries and
 * keys: plans of the same tile share it. */
#include "executable.h"
#include "util_attention.h"

#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* As in a LLaMA block of 4096 columns: T tokens of one sequence; a token of each of B sequences whose keys
 * lie in pages; T tokens of all of B such. */
static const char prompt[] = "dim %T = 1..16384\n"
                             "%x = input bf16[T,12288]\n"
                             "%q = slice %x {axis=1,start=0,stop=4096,step=1}\n"
                             "%k = slice %x {axis=1,start=4096,stop=8192,step=1}\n"
                             "%v = slice %x {axis=1,start=8192,stop=12288,step=1}\n"
                             "%a = attention %q, %k, %v {heads=32,kv_heads=32,causal=1}\n"
                             "output %y = %a\n";
static const char biased[] = "dim %T = 1..16384\n"
                             "%x = input bf16[2,T,4096]\n"
                             "%near = input f32[32,T,T]\n"
                             "%a = attention %x, %x, %x, _, _, _, _, _, _, _, _, %near {heads=32}\n"
                             "output %y = %a\n";
#define CACHE                                                                                                \
    "%keys = input bf16[65536,1024]\n"                                                                       \
    "%values = input bf16[65536,1024]\n"                                                                     \
    "%lengths = input i32[B]\n"                                                                              \
    "%table = input i32[B,P]\n"
static const char token[] =
    "dim %B = 1..64\n"
    "dim %P = 1..512\n"
    "%q = input bf16[B,1,4096]\n" CACHE "%a = attention %q, %keys, %values, %lengths, _, _, _, %table "
    "{heads=32,kv_heads=8,causal=1,align=3,page=16}\n"
    "output %y = %a\n";
static const char chunks[] = "dim %B = 1..64\n"
                             "dim %P = 1..512\n"
                             "dim %T = 1..16384\n"
                             "%q = input bf16[T,4096]\n" CACHE "%starts = input i32[B+1]\n"
                             "%a = attention %q, %keys, %values, %lengths, _, _, _, %table, _, _, %starts "
                             "{heads=32,kv_heads=8,causal=1,align=3,page=16}\n"
                             "output %y = %a\n";

enum { MOST_TEXTS = 64 };

struct texts {
    char *text[MOST_TEXTS];
    int n, plans;
};

static void take(struct texts *all, const coda_graph *g, const int64_t *dims, int count, const char *arch)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_kernel_info info = CODA_KERNEL_INFO_INIT;
    coda_graph *bound;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    opt.arch = arch;
    ck_assert_msg(coda_graph_bind(&bound, g, dims, count) == CODA_OK, "%s", coda_error());
    ck_assert_msg(coda_compile(&p, bound, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_plan_kernels(p), 1);
    ck_assert_int_eq(coda_plan_kernel(p, 0, &info), CODA_OK);
    int i = 0;
    while (i < all->n && strcmp(all->text[i], info.source)) i++;
    ck_assert_int_lt(i, MOST_TEXTS);
    if (i == all->n) all->text[all->n++] = strdup(info.source);
    all->plans++;
    coda_plan_free(p);
    coda_graph_free(bound);
}

static void release(struct texts *all)
{
    for (int i = 0; i < all->n; i++) free(all->text[i]);
    *all = (struct texts){.n = 0};
}

static coda_graph *parse(const char *text)
{
    coda_graph *g;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    return g;
}

/* Each number from 1 to 64, then a step larger each time, and its neighbours. */
static int64_t after(int64_t t)
{
    return t < 64 ? t + 1 : t % 64 == 63 || t % 64 == 0 ? t + 1 : t + t / 8 / 64 * 64 + 62;
}

static const struct {
    const char *arch;
    int few, many;     /* texts of prompts of up to 16 tokens, of more */
    int token;         /* of a token of each sequence */
    int steps, chunks; /* of packed ones, up to two a sequence, and more */
} target[] = {{"sm_90a", 2, 1, 4, 3, 1}, {"sm_80", 1, 4, 1, 4, 4}}; /* tiles of 16 to 128 queries */

START_TEST(prompts_of_any_length_share_texts)
{
    struct texts all = {.n = 0};
    coda_graph *g = parse(prompt);
    int64_t t = 1;
    for (; t <= 16; t++) take(&all, g, &t, 1, target[_i].arch);
    ck_assert_int_eq(all.n, target[_i].few);
    release(&all);
    for (; t <= 16384; t = after(t)) take(&all, g, &t, 1, target[_i].arch);
    ck_assert_int_gt(all.plans, 100);
    ck_assert_int_eq(all.n, target[_i].many);
    release(&all);
    coda_graph_free(g);
}
END_TEST

/* In rows of an odd number two keys of a bias are not read at once: there are twice as many. */
START_TEST(biases_of_any_size_share_texts)
{
    struct texts all = {.n = 0};
    coda_graph *g = parse(biased);
    for (int64_t t = 17; t <= 16384; t = after(t)) take(&all, g, &t, 1, target[_i].arch);
    ck_assert_int_gt(all.plans, 100);
    ck_assert_int_eq(all.n, 2 * target[_i].many);
    release(&all);
    coda_graph_free(g);
}
END_TEST

/* A cluster of 8, 4 or 2 blocks has the keys of a sequence; of several, where there are many. */
START_TEST(batches_of_any_size_share_texts)
{
    struct texts all = {.n = 0};
    coda_graph *g = parse(token);
    for (int64_t b = 1; b <= 64; b++)
        for (int64_t pages = 1; pages <= 512; pages *= 8)
            take(&all, g, (int64_t[]){b, pages}, 2, target[_i].arch);
    ck_assert_int_eq(all.plans, 64 * 4);
    ck_assert_int_eq(all.n, target[_i].token);
    release(&all);
    coda_graph_free(g);
}
END_TEST

START_TEST(chunks_of_any_number_share_texts)
{
    struct texts all = {.n = 0};
    coda_graph *g = parse(chunks);
    for (int64_t b = 1; b <= 64; b++)
        for (int64_t t = 1; t <= 2 * b; t += 1 + t / 8)
            take(&all, g, (int64_t[]){b, 1 + t * 11 % 512, t}, 3, target[_i].arch);
    ck_assert_int_eq(all.n, target[_i].steps);
    release(&all);
    for (int64_t t = 3; t <= 16384; t = after(t))
        take(&all, g, (int64_t[]){1 + t * 7 % MIN((t - 1) / 2, 64), 1 + t * 11 % 512, t}, 3, target[_i].arch);
    ck_assert_int_gt(all.plans, 100);
    ck_assert_int_eq(all.n, target[_i].chunks);
    release(&all);
    coda_graph_free(g);
}
END_TEST

/* ---- The numbers ---- */

static const struct attention_case *named(const char *name)
{
    for (int i = 0; i < attention_case_count; i++)
        if (!strcmp(attention_cases[i].name, name)) return &attention_cases[i];
    ck_abort_msg("no case %s", name);
}

/* The words that a launch passes, one after the other. */
struct words {
    const struct scalar_spec *at, *end;
};

static uint32_t word(struct words *w)
{
    ck_assert(w->at < w->end && w->at->buffer == SCALAR_NUMBER);
    return w->at++->number;
}
static int64_t pair(struct words *w)
{
    uint64_t low = word(w);
    return (int64_t)((uint64_t)word(w) << 32 | low);
}

static void check_strides(struct words *w, const struct tensor_use *v)
{
    ck_assert_int_eq(pair(w), v->batch);
    ck_assert_int_eq(pair(w), v->time);
    ck_assert_int_eq(pair(w), v->head);
}

/* x / d as divisor.cuh has it, where rounding down could be wrong. */
static void check_divisor(struct words *w, int64_t d)
{
    uint64_t number = word(w), multiplier = word(w), shift = word(w);
    ck_assert_int_eq((int64_t)number, d);
    for (uint64_t i = 0; i < 4000; i++) {
        uint64_t q = i < 2000 ? i : ((1u << 31) - 1) / number - (i - 2000);
        if (q > ((1u << 31) - 1) / number) break;
        for (uint64_t x = q * number; x < (q + 1) * number && x<1u << 31; x += number> 1 ? number - 1 : 1)
            ck_assert_uint_eq((uint32_t)((x * multiplier >> 32) + x) >> shift, q);
    }
}

/* Of a case on Hopper's units: tiles of a head's queries; heads in a band, or 0 where there is no such
 * walk. */
static void check_extents(const struct attention_case *c, int64_t shift, int64_t blocks, int64_t band)
{
    struct attention_rig r;
    ck_assert_msg(attention_emit(&r, c, true) == CODA_OK, "%s: %s", c->name, coda_error());
    struct words w = {r.k.scalar, r.k.scalar + r.k.scalars};
    const struct attention_spec *a = &r.attention;
    int64_t streams = band ? c->batch * c->heads : 0;
    if (r.s.attention == &attention_split) check_strides(&w, &a->use[ATTENTION_Q]);
    check_strides(&w, &a->use[ATTENTION_O]);
    ck_assert_int_eq(pair(&w), a->use[ATTENTION_RANGES].stride[0]);
    ck_assert_int_eq(pair(&w), a->use[ATTENTION_TABLE].stride[0]);
    ck_assert_int_eq(word(&w), c->batch);
    ck_assert_int_eq(word(&w), c->tq);
    ck_assert_int_eq(word(&w), c->tk);
    ck_assert_int_eq((int32_t)word(&w), shift);
    ck_assert_int_eq(word(&w), a->slots);
    ck_assert_int_eq(word(&w), blocks);
    ck_assert_int_eq(word(&w), streams);
    ck_assert_int_eq(word(&w), band ? CEIL_DIV(streams, band) : 0);
    ck_assert_int_eq(word(&w), MAX(band, 1));
    check_divisor(&w, MAX(band, 1) * blocks);
    for (int i = 0; i < 4 && c->bias; i++) ck_assert_int_eq(pair(&w), a->use[ATTENTION_BIAS].stride[i]);
    ck_assert(w.at == w.end);
    arena_free(&r.plan.arena);
}

START_TEST(launches_pass_numbers)
{
    struct attention_case c = *named("packed grouped"); /* 2 sequences of 333, 8 heads on 2: all in a band */
    check_extents(&c, 0, 3, 16);
    c.batch = 5, c.tq = 200, c.tk = 100000, c.layout = LAYOUT_ROWS; /* 50 MB of keys and values of a head */
    check_extents(&c, 100000 - 200, 2, 4);
    c.align = CODA_ALIGN_START, c.tk = 20000; /* 10 MB: two heads of keys fit */
    check_extents(&c, 0, 2, 8);
    check_extents(named("starts"), 400, 3, 0);
    check_extents(named("pages"), 511, 1, 0);
    check_extents(named("parts of pages"), 2048 - 130, 2, 10);
    check_extents(named("bias turned"), 200, 2, 4);
    check_extents(named("split bias"), 697, 1, 0);
}
END_TEST

/* Kernels multiply tiles and heads in 32 bits. */
START_TEST(largest_numbers)
{
    struct attention_case c = *named("full");
    c.batch = 1, c.heads = c.kv_heads = 1, c.tq = c.tk = ATTENTION_MOST_TIME;
    check_extents(&c, 0, ATTENTION_MOST_TIME / 128, 1);
    c.tq = 128, c.tk = 17, c.batch = ATTENTION_MOST_BLOCKS;
    check_extents(&c, 17 - 128, 1, CEIL_DIV(c.batch, CEIL_DIV(c.batch, (20 << 20) / (4 * 17 * c.head_dim))));
    struct attention_rig r;
    c.heads = c.kv_heads = 2;
    ck_assert_int_eq(attention_emit(&r, &c, true), CODA_E_UNSUPPORTED);
    arena_free(&r.plan.arena);
}
END_TEST

TESTS(extents, EACH(prompts_of_any_length_share_texts, ARRAY_SIZE(target)),
      EACH(biases_of_any_size_share_texts, ARRAY_SIZE(target)),
      EACH(batches_of_any_size_share_texts, ARRAY_SIZE(target)),
      EACH(chunks_of_any_number_share_texts, ARRAY_SIZE(target)), CASE("numbers"), ONE(launches_pass_numbers),
      ONE(largest_numbers));
