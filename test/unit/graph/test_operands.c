/* test_operands.c -- operands and results by name: the table of operations says the same as its constants,
 * the text of `coda ops`, the uses of programs and the nodes of one call. */
#include "executable.h"
#include "graph.h"
#include "own.h"
#include "top_k.h"
#include "util_attention.h"

#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* ---- The table ---- */

START_TEST(names_are_distinct)
{
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_info *info = &op_info[op];
        ck_assert_msg(!info->name[info->named], "%s: the list of names does not end", info->text);
        for (int i = 0; i < info->named; i++) {
            ck_assert_msg(name_valid(info->name[i]), "%s: operand %d is %s", info->text, i, info->name[i]);
            for (int j = 0; j < i; j++)
                ck_assert_msg(strcmp(info->name[i], info->name[j]), "%s: %s twice", info->text,
                              info->name[i]);
        }
    }
}
END_TEST

START_TEST(arities_follow_from_names)
{
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_info *info = &op_info[op];
        bool endless = info->most == INT32_MAX;
        ck_assert_msg(endless || info->most == info->named, "%s: %d names, %d operands", info->text,
                      info->named, info->most);
        ck_assert_msg(info->least <= MAX(info->named, endless), "%s wants %d operands", info->text,
                      info->least);
        ck_assert_msg(info->named <= NODE_READABLE, "%s: not all operands may be read", info->text);
        ck_assert_msg(info->results >= 1, "%s has no result", info->text);
    }
    ck_assert_int_eq(op_info[OP_ATTENTION].least, ATTENTION_LENGTHS);
    ck_assert_int_eq(op_info[OP_ATTENTION].most, ATTENTION_OPERANDS);
    ck_assert_int_eq(op_info[OP_APPEND].least, APPEND_SCALE);
    ck_assert_int_eq(op_info[OP_MAP].named, 0);
}
END_TEST

START_TEST(constants_are_places_of_names)
{
    static const struct {
        enum op op;
        int i;
        const char *name;
    } of[] = {{OP_MATMUL, MATMUL_W, "w"},
              {OP_REDUCE, REDUCE_KEY, "key"},
              {OP_ROPE, ROPE_FREQUENCIES, "frequencies"},
              {OP_ATTENTION, ATTENTION_Q, "q"},
              {OP_ATTENTION, ATTENTION_SINKS, "sinks"},
              {OP_ATTENTION, ATTENTION_BIAS, "bias"},
              {OP_APPEND, APPEND_SCALE, "scale"},
              {OP_NUCLEUS, NUCLEUS_MIN_P, "min_p"}};
    for (int i = 0; i < ARRAY_SIZE(of); i++) ck_assert_str_eq(op_info[of[i].op].name[of[i].i], of[i].name);
}
END_TEST

/* A call of several results has an attribute that says which of them a node is, and no other call has. */
START_TEST(results_have_an_attribute)
{
    for (int op = 0; op < OP_COUNT; op++) {
        struct node n = {.op = (enum op)op};
        int results = op_info[op].results;
        ck_assert_msg((attr_result(&n) >= 0) == (results > 1), "%s: %d results", op_info[op].text, results);
        for (int i = 0; i < results; i++) {
            if (results > 1) node_set_result(&n, i);
            ck_assert_int_eq(node_result(&n), i);
        }
    }
}
END_TEST

/* "x [..., N], gain? [N]": each name in its place, with a question mark where it may be absent. */
START_TEST(words_have_the_names)
{
    for (int op = 0; op < OP_COUNT; op++) {
        const struct op_info *info = &op_info[op];
        coda_word_info w = CODA_WORD_INFO_INIT;
        int depth = 0;
        if (op_is_prim((enum op)op)) continue;
        ck_assert_int_eq(coda_word(coda_word_find(info->text), &w), CODA_OK);
        const char *at = w.operands;
        for (int i = 0; i < info->named; i++) {
            size_t n = strlen(info->name[i]);
            ck_assert_msg(!strncmp(at, info->name[i], n), "%s: %s is not at %s", w.name, info->name[i], at);
            ck_assert_msg((at[n] == '?') == (i >= info->least), "%s: %s", w.name, at);
            for (; *at && (depth || *at != ','); at++) depth += (*at == '[') - (*at == ']');
            at += strspn(at, ", ");
        }
    }
}
END_TEST

/* ---- Uses ---- */

/* Operands that must be there, results, then the others; without what is absent. */
static void check_uses(const struct own_kind *own, void *spec)
{
    const struct op_info *info = &op_info[own->op];
    struct tensor_use *use = spec;
    int all = info->named + info->results, n = 0;
    for (int i = 0; i < all; i++) use[i] = (struct tensor_use){.buffer = i};
    for (int i = 0; i < info->least; i++) ck_assert_int_eq(own_use(own, spec, n++)->buffer, i);
    for (int i = 0; i < info->results; i++)
        ck_assert_int_eq(own_use(own, spec, n++)->buffer, info->named + i);
    for (int i = info->least; i < info->named; i++) ck_assert_int_eq(own_use(own, spec, n++)->buffer, i);
    ck_assert_ptr_null(own_use(own, spec, n));
    for (int i = info->least; i < info->named; i++) use[i].buffer = -1;
    ck_assert_ptr_null(own_use(own, spec, info->least + info->results));
}

START_TEST(uses_are_operands_and_results)
{
    check_uses(&own_attention, &(struct attention_spec){0});
    check_uses(&own_attention_grad, &(struct attention_grad_spec){0});
    check_uses(&own_top_k, &(struct top_k_spec){0});
    check_uses(&own_nucleus, &(struct nucleus_spec){0});
    check_uses(&own_row_sums, &(struct row_sums_spec){0});
    check_uses(&own_sort_ids, &(struct sort_ids_spec){0});
    check_uses(&own_conv1d, &(struct conv1d_spec){0});
    check_uses(&own_scan, &(struct scan_spec){0});
    check_uses(&own_delta, &(struct delta_spec){0});
}
END_TEST

/* ---- Results of one call ---- */

static graph *attend(coda_value *o, coda_value *lse, int64_t window)
{
    graph *g = coda_graph_new();
    coda_value in[3];
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    for (int i = 0; i < 3; i++)
        in[i] = coda_input(g, (const char *[]){"q", "k", "v"}[i], CODA_BF16, 2, (int64_t[]){64, 128});
    opt.heads = 2, opt.causal = true;
    *o = coda_attention(g, in[0], in[1], in[2], CODA_NONE, &opt);
    opt.window = window;
    coda_attention_lse(g, in[0], in[1], in[2], CODA_NONE, &opt, lse);
    coda_output(g, "o", *o);
    coda_output(g, "lse", *lse);
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
    return g;
}

static int launches(const graph *g, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.arch = "sm_90a";
    opt.flags = flags | CODA_PLAN_ONLY;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_plan_stats_get(p, &stats), CODA_OK);
    coda_plan_free(p);
    return stats.launches;
}

/* One launch has both, also where two calls ask for one each; without fusion each call has its own. */
START_TEST(results_of_a_call_are_one_launch)
{
    coda_value o, lse;
    graph *g = attend(&o, &lse, 0);
    const struct node *a = &g->node[o.id - 1], *b = &g->node[lse.id - 1];
    ck_assert(node_same_call(a, b) && node_same_call(b, a) && node_result(a) == 0 && node_result(b) == 1);
    ck_assert(a->origin != b->origin && !node_same_call(a, &g->node[a->in[ATTENTION_Q]]));
    ck_assert_int_eq(launches(g, 0), 1);
    ck_assert_int_eq(launches(g, CODA_NO_FUSION), 2);
    coda_graph_free(g);
    g = attend(&o, &lse, 5); /* another formula */
    ck_assert(!node_same_call(&g->node[o.id - 1], &g->node[lse.id - 1]));
    ck_assert_int_eq(launches(g, 0), 2);
    coda_graph_free(g);
}
END_TEST

START_TEST(a_result_has_a_bound)
{
    graph *g = graph_parse("%x = input f32 [2,32]\n%v = top_k %x {k=4, indices=2}\noutput %y = %v\n");
    ck_assert_ptr_null(g);
    ck_assert_msg(strstr(coda_error(), "top_k") && strstr(coda_error(), "indices is 2; must be 0..1"), "%s",
                  coda_error());
}
END_TEST

/* ---- Kernels of attention ---- */

/* Each entry stands in its place, says what plans and symbols call it, and takes some case. */
START_TEST(each_kernel_of_attention_is_chosen)
{
    static const struct attention_kernel *const kernel[] = {
#define X(NAME, name) &attention_##name,
        ATTENTION_KERNELS(X)
#undef X
    };
    bool chosen[ATTENTION_BY_COUNT] = {false};
    for (int i = 0; i < ATTENTION_BY_COUNT; i++) {
        ck_assert_int_eq(kernel[i]->index, i);
        ck_assert(kernel[i]->fits && kernel[i]->tile && kernel[i]->units && kernel[i]->suffix);
        ck_assert(kernel[i]->fallback == (i + 1 == ATTENTION_BY_COUNT));
    }
    for (int i = 0; i < 2 * attention_case_count; i++) {
        struct attention_rig r;
        if (attention_emit(&r, &attention_cases[i / 2], i % 2) == CODA_OK)
            chosen[r.s.attention->index] = true;
        arena_free(&r.plan.arena);
    }
    for (int i = 0; i < ATTENTION_BY_COUNT; i++) ck_assert_msg(chosen[i], "kernel %d takes no case", i);
}
END_TEST

TESTS(operands, ONE(names_are_distinct), ONE(arities_follow_from_names), ONE(constants_are_places_of_names),
      ONE(results_have_an_attribute), ONE(words_have_the_names), ONE(uses_are_operands_and_results),
      ONE(results_of_a_call_are_one_launch), ONE(a_result_has_a_bound),
      ONE(each_kernel_of_attention_is_chosen));
