/* test_split.c -- a joint graph as forward and backward: together they are the joint graph, and what is
 * kept is what the policy says. */
#include "util_grad.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* A LLaMA layer from attention's result to the next layer's q, k, v; M 6, D 16, F 24. */
static const char layer[] =
    "%x0 = input f32 [6,16]\n%y0 = input f32 [6,16]\n%w0 = weight f32 [16,16]\n%w1 = weight f32 [48,16]\n"
    "%w2 = weight f32 [16,24]\n%w3 = weight f32 [48,16]\n%g0 = weight f32 [16]\n%g1 = weight f32 [16]\n"
    "%p0 = matmul %y0, %w0\n%x1 = add %p0, %x0\n%n0 = rms_norm %x1, %g0 {eps=1e-5}\n%z1 = matmul %n0, %w1\n"
    "%g = slice %z1 {axis=1, start=0, stop=24, step=1}\n%u = slice %z1 {axis=1, start=24, stop=48, step=1}\n"
    "%y1 = mul %g, %u\n%p2 = matmul %y1, %w2\n%x2 = add %p2, %x1\n%n1 = rms_norm %x2, %g1 {eps=1e-5}\n"
    "%z3 = matmul %n1, %w3\n%qkv = rope %z3 {base=10000, head_dim=8, heads=4, half=1}\n"
    "output %x2 = %x2\noutput %qkv = %qkv\n";

/* The layer with the gradients of all its leaves by two cotangents. */
static graph *joint_graph(void)
{
    graph *g = graph_parse(layer);
    ck_assert_msg(g != NULL, "%s", coda_error());
    coda_value x[8], dx[8], y[2], dy[2];
    for (int i = 0; i < 8; i++) x[i] = (coda_value){(uint32_t)g->leaf[i] + 1};
    for (int i = 0; i < 2; i++) y[i] = (coda_value){(uint32_t)g->output[i].value + 1};
    dy[0] = coda_input(g, "dx2", CODA_F32, 2, (int64_t[]){6, 16});
    dy[1] = coda_input(g, "dqkv", CODA_F32, 2, (int64_t[]){6, 48});
    coda_grad(g, y, dy, 2, x, 8, dx, NULL);
    for (int i = 0; i < 8; i++) {
        char name[32];
        snprintf(name, sizeof name, "d_%s", g->node[g->leaf[i]].name);
        coda_output(g, name, dx[i]);
    }
    ck_assert_msg(coda_graph_status(g) == CODA_OK, "%s", coda_error());
    return g;
}

/* An argument of the joint graph by its name, or what forward has handed over, as fp32. */
struct values {
    graph *g;
    void **args;
    int handed;
    struct {
        char name[32];
        float *at;
    } over[32];
};

static void *leaf_by_name(const struct values *v, const char *name)
{
    for (int i = 0; i < v->handed; i++)
        if (!strcmp(v->over[i].name, name)) return v->over[i].at;
    for (int i = 0; i < v->g->leaves; i++)
        if (!strcmp(v->g->node[v->g->leaf[i]].name, name)) return v->args[i];
    ck_abort_msg("no argument is called %s", name);
    return NULL;
}

static const double *output_by_name(const struct values *v, const char *name)
{
    for (int i = 0; i < v->g->outputs; i++)
        if (!strcmp(v->g->output[i].name, name)) return v->args[v->g->leaves + i];
    ck_abort_msg("no output is called %s", name);
    return NULL;
}

static double *room(int64_t n)
{
    double *d = malloc(sizeof *d * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++) d[i] = NAN;
    return d;
}

/* Runs a half with leaves by name; outputs into rooms of their own, which are returned. */
static double **run(const graph *half, const struct values *v)
{
    void **args = calloc((size_t)(half->leaves + half->outputs) + 1, sizeof *args);
    double **out = calloc((size_t)half->outputs + 1, sizeof *out);
    for (int i = 0; i < half->leaves; i++) args[i] = leaf_by_name(v, half->node[half->leaf[i]].name);
    for (int i = 0; i < half->outputs; i++)
        args[half->leaves + i] = out[i] = room(type_elements(&half->node[half->output[i].value].type));
    ck_assert_msg(coda_evaluate(half, args) == CODA_OK, "%s", coda_error());
    free(args);
    return out;
}

/* Each output of the half beside the joint graph's; kept values are rounded to fp32 on their way. */
static void compare(const graph *half, double **out, const struct values *v, double most)
{
    for (int i = 0; i < half->outputs; i++) {
        const char *name = half->output[i].name;
        int64_t n = type_elements(&half->node[half->output[i].value].type);
        if (!strncmp(name, "kept.", 5)) continue;
        const double *want = output_by_name(v, name);
        for (int64_t e = 0; e < n; e++)
            ck_assert_msg(fabs(out[i][e] - want[e]) <= most * (1 + fabs(want[e])), "%s[%d]: %.12g, not %.12g",
                          name, (int)e, out[i][e], want[e]);
    }
}

/* All that forward gives out, rounded to fp32. */
static void hand_over(const graph *forward, double **out, struct values *v)
{
    for (int i = 0; i < forward->outputs; i++) {
        int64_t n = type_elements(&forward->node[forward->output[i].value].type);
        float *at = malloc(sizeof *at * (size_t)(n + 1));
        for (int64_t e = 0; e < n; e++) at[e] = (float)out[i][e];
        snprintf(v->over[v->handed].name, sizeof v->over[0].name, "%s", forward->output[i].name);
        v->over[v->handed++].at = at;
    }
}

static int64_t kept_elements(const graph *forward)
{
    int64_t sum = 0;
    for (int i = 0; i < forward->outputs; i++)
        if (!strncmp(forward->output[i].name, "kept.", 5))
            sum += type_elements(&forward->node[forward->output[i].value].type);
    return sum;
}

static void free_rooms(const graph *g, double **out)
{
    for (int i = 0; i < g->outputs; i++) free(out[i]);
    free(out);
}

/* M (x1, z1 and two row values; x2 and qkv are given out anyway); also y1; nothing. */
static const struct {
    coda_keep keep;
    int64_t elements;
} policies[] = {
    {CODA_KEEP_PRODUCTS, 6 * (16 + 48 + 2)}, {CODA_KEEP_MORE, 6 * (16 + 48 + 2 + 24)}, {CODA_KEEP_LEAST, 0}};

/* Both halves of the joint graph beside it; forward keeps so many elements. Frees the graph. */
static void check_halves(graph *joint, int outputs, coda_keep keep, int64_t elements)
{
    struct values v = {.g = joint};
    coda_split_options o = CODA_SPLIT_OPTIONS_INIT;
    graph *forward, *backward;
    o.keep = keep;
    v.args = differences_args(v.g, 11);
    ck_assert_msg(coda_evaluate(v.g, v.args) == CODA_OK, "%s", coda_error());
    ck_assert_msg(coda_split(v.g, outputs, &o, &forward, &backward) == CODA_OK, "%s", coda_error());
    ck_assert(graph_verify(forward) == CODA_OK && graph_verify(backward) == CODA_OK);
    ck_assert_int_eq(kept_elements(forward), elements);
    double **out = run(forward, &v);
    compare(forward, out, &v, 1e-12);
    hand_over(forward, out, &v);
    free_rooms(forward, out);
    out = run(backward, &v);
    compare(backward, out, &v, 1e-4); /* of values that were rounded to fp32 */
    free_rooms(backward, out);
    for (int i = 0; i < v.handed; i++) free(v.over[i].at);
    random_args_free(v.g, v.args);
    graph_free(forward);
    graph_free(backward);
    graph_free(v.g);
}

START_TEST(halves_are_the_whole) { check_halves(joint_graph(), 2, policies[_i].keep, policies[_i].elements); }
END_TEST

/* Of a norm that is written out backward wants 1/rms and its derivative, of which forward keeps what both are
 * made of; its product's result; and the same where an output is that value anyway. */
START_TEST(rows_are_kept_once)
{
    static const char norm[] =
        "%x = input f32 [6,16]\n%w0 = weight f32 [16,16]\n%w1 = weight f32 [8,16]\n"
        "%p = matmul %x, %w0\n%s = mul %p, %p\n%m = mean %s\n%e = constant {to=f32, value=1e-5}\n"
        "%a = add %m, %e\n%r = rsqrt %a\n%n = mul %p, %r\n%z = matmul %n, %w1\noutput %z = %z\n";
    char text[1024];
    snprintf(text, sizeof text, "%s%s", norm, _i ? "output %a = %a\n" : "");
    graph *g = graph_parse(text);
    ck_assert_msg(g != NULL, "%s", coda_error());
    coda_value x[3], dx[3], y = {(uint32_t)g->output[0].value + 1};
    for (int i = 0; i < 3; i++) x[i] = (coda_value){(uint32_t)g->leaf[i] + 1};
    coda_value dy = coda_input(g, "dz", CODA_F32, 2, (int64_t[]){6, 8});
    coda_grad(g, &y, &dy, 1, x, 3, dx, NULL);
    for (int i = 0; i < 3; i++) coda_output(g, (const char *[]){"dx", "dw0", "dw1"}[i], dx[i]);
    check_halves(g, 1 + _i, CODA_KEEP_PRODUCTS, 6 * (16 + !_i));
}
END_TEST

/* Forward leaves the log-sum-exp that the gradient reads, although nobody has asked for it: backward runs no
 * attention. */
START_TEST(attention_runs_once)
{
    graph *g = graph_parse("%q = input bf16 [2,8,32]\n%k = input bf16 [2,8,32]\n%v = input bf16 [2,8,32]\n"
                           "%a = attention %q, %k, %v {heads=2, causal=1}\noutput %y = %a\n");
    graph *half[2];
    coda_value x[3], dx[3], y = {(uint32_t)g->output[0].value + 1};
    for (int i = 0; i < 3; i++) x[i] = (coda_value){(uint32_t)g->leaf[i] + 1};
    coda_value dy = coda_input(g, "dy", CODA_BF16, 3, (int64_t[]){2, 8, 32});
    coda_grad(g, &y, &dy, 1, x, 3, dx, NULL);
    for (int i = 0; i < 3; i++) coda_output(g, (const char *[]){"dq", "dk", "dv"}[i], dx[i]);
    ck_assert_msg(coda_split(g, 1, NULL, &half[0], &half[1]) == CODA_OK, "%s", coda_error());
    for (int v = 0; v < half[1]->nodes; v++) ck_assert_int_ne(half[1]->node[v].op, OP_ATTENTION);
    ck_assert_int_eq(kept_elements(half[0]), 2 * 2 * 8);
    graph_free(half[0]);
    graph_free(half[1]);
    graph_free(g);
}
END_TEST

/* What the caller names is kept, where backward needs it. */
START_TEST(also_is_kept)
{
    graph *g = joint_graph(), *forward, *backward;
    coda_split_options o = CODA_SPLIT_OPTIONS_INIT;
    coda_value also[2] = {CODA_NONE, {(uint32_t)g->leaf[0] + 1}}; /* the last norm, and a leaf */
    for (int v = 0; v < g->nodes; v++)
        if (g->node[v].op == OP_RMS_NORM) also[0].id = (uint32_t)v + 1;
    o.keep = CODA_KEEP_LEAST;
    o.also = also;
    o.also_count = 2;
    ck_assert_msg(coda_split(g, 2, &o, &forward, &backward) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(kept_elements(forward), 6 * 16);
    ck_assert_int_eq(forward->outputs, 3);
    graph_free(forward);
    graph_free(backward);
    graph_free(g);
}
END_TEST

/* ---- What is kept may be consumed ---- */

/* Arguments of a plan: copies of `from`'s by name, its own leaves' values, or poison. */
static void **plan_args(const graph *g, const graph *from, void **given, const struct values *v, int poison)
{
    void **args = calloc((size_t)(g->leaves + g->outputs) + 1, sizeof *args);
    for (int i = 0; i < g->leaves + g->outputs; i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT, b = CODA_ARG_INFO_INIT;
        const void *is = NULL;
        ck_assert_int_eq(coda_graph_arg(g, i, &a), CODA_OK);
        for (int j = from ? from->leaves : 0; from && j < from->leaves + from->outputs; j++)
            if (coda_graph_arg(from, j, &b) == CODA_OK && !strcmp(a.name, b.name)) is = given[j];
        if (i < g->leaves && !is) is = leaf_by_name(v, a.name);
        args[i] = aligned_alloc(64, (a.bytes + 127) / 64 * 64);
        if (i < g->leaves) memcpy(args[i], is, a.bytes);
        else memset(args[i], poison, a.bytes);
    }
    return args;
}

static void run_on_device(const graph *g, void **args, int poison)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    size_t bytes = (coda_plan_workspace(p) + 511) / 256 * 256;
    void *work = aligned_alloc(256, bytes);
    memset(work, poison, bytes);
    ck_assert_msg(coda_run(p, args, NULL, work, NULL) == CODA_OK, "%s", coda_error());
    free(work);
    coda_plan_free(p);
}

static void free_args(const graph *g, void **args)
{
    for (int i = 0; i < g->leaves + g->outputs; i++) free(args[i]);
    free(args);
}

static void check_kinds(const graph *backward)
{
    for (int i = 0; i < backward->leaves; i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        ck_assert_int_eq(coda_graph_arg(backward, i, &a), CODA_OK);
        ck_assert_msg((a.kind == CODA_ARG_CONSUMED) == !strncmp(a.name, "kept.", 5), "%s", a.name);
    }
}

/* The bits are those of a backward plan that consumes nothing, on other bytes each time, and what forward
 * gives out by its own name stays. */
START_TEST(kept_values_are_consumed)
{
    struct values v = {.g = joint_graph()};
    coda_split_options o = CODA_SPLIT_OPTIONS_INIT;
    graph *forward, *backward, *other, *plain;
    int changed = 0;
    v.args = differences_args(v.g, 11);
    o.keep = CODA_KEEP_MORE;
    ck_assert_msg(coda_split(v.g, 2, &o, &other, &plain) == CODA_OK, "%s", coda_error());
    o.consume = 1;
    ck_assert_msg(coda_split(v.g, 2, &o, &forward, &backward) == CODA_OK, "%s", coda_error());
    check_kinds(backward);
    void **kept = plan_args(forward, NULL, NULL, &v, 0xff);
    run_on_device(forward, kept, 0xff);
    void **want = plan_args(plain, forward, kept, &v, 0xff);
    run_on_device(plain, want, 0xff);
    for (int run = 0; run < 2; run++) {
        void **args = plan_args(backward, forward, kept, &v, run ? 0x7f : 0xff);
        run_on_device(backward, args, run ? 0x55 : 0xaa);
        for (int i = 0; i < backward->leaves + backward->outputs; i++) {
            coda_arg_info a = CODA_ARG_INFO_INIT;
            ck_assert_int_eq(coda_graph_arg(backward, i, &a), CODA_OK);
            bool same = !memcmp(args[i], want[i], a.bytes);
            if (a.kind == CODA_ARG_CONSUMED) changed += !same;
            else ck_assert_msg(same, "run %d: %s", run, a.name);
        }
        free_args(backward, args);
    }
    ck_assert_int_eq(changed, 2); /* z1, in each run */
    free_args(forward, kept), free_args(plain, want);
    random_args_free(v.g, v.args);
    graph_free(forward), graph_free(backward), graph_free(other), graph_free(plain), graph_free(v.g);
}
END_TEST

/* An input that both halves read is left to backward. */
START_TEST(inputs_of_both_halves)
{
    graph *g = joint_graph(), *forward, *backward;
    coda_split_options o = CODA_SPLIT_OPTIONS_INIT;
    o.keep = CODA_KEEP_LEAST;
    for (int i = 0; i < g->leaves; i++)
        if (g->node[g->leaf[i]].op == OP_INPUT) coda_consume(g, (coda_value){(uint32_t)g->leaf[i] + 1});
    ck_assert_msg(coda_split(g, 2, &o, &forward, &backward) == CODA_OK, "%s", coda_error());
    for (int half = 0; half < 2; half++) {
        const graph *h = half ? backward : forward;
        for (int i = 0; i < h->leaves; i++) {
            const struct node *n = &h->node[h->leaf[i]];
            bool consumed = half && n->op == OP_INPUT && strcmp(n->name, "x2") && strcmp(n->name, "qkv");
            if (n->op == OP_INPUT) ck_assert_msg(n->attr.input.consumed == consumed, "%s", n->name);
        }
    }
    graph_free(g), graph_free(forward), graph_free(backward);
}
END_TEST

/* ---- The largest of a row that is kept in 16 bits ---- */

enum { ROWS = 6, WIDTH = 64 };
static const char largest[] =
    "%x = input bf16 [6,64]\n%w = weight bf16 [64,64]\n%z = matmul %x, %w\n%y = max %z\n"
    "output %y = %y\n";

static float of_bf16(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void draw_bf16(uint16_t *to, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float x = (float)(seed >> 8) / 0x1p23f - 1;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        to[i] = (uint16_t)(bits >> 16);
    }
}

static int largest_of(const uint16_t *x, const uint16_t *w)
{
    int best = 0;
    double most = -INFINITY;
    for (int n = 0; n < WIDTH; n++) {
        double sum = 0;
        for (int k = 0; k < WIDTH; k++) sum += (double)of_bf16(x[k]) * of_bf16(w[n * WIDTH + k]);
        if (sum > most) most = sum, best = n;
    }
    return best;
}

/* Forward finds it among sums in fp32, and backward has these sums in 16 bits. A row's gradient is that row
 * of w which made the largest. */
START_TEST(largest_of_rounded_sums)
{
    uint16_t x[ROWS * WIDTH], w[WIDTH * WIDTH];
    float dy[ROWS];
    graph *g = graph_parse(largest), *forward, *backward;
    coda_value in = {(uint32_t)g->leaf[0] + 1}, y = {(uint32_t)g->output[0].value + 1}, dx;
    coda_value given = coda_input(g, "dy", CODA_F32, 2, (int64_t[]){ROWS, 1});
    coda_grad(g, &y, &given, 1, &in, 1, &dx, NULL);
    coda_output(g, "dx", dx);
    ck_assert_msg(coda_split(g, 1, NULL, &forward, &backward) == CODA_OK, "%s", coda_error());
    draw_bf16(x, ROWS * WIDTH, 1), draw_bf16(w, WIDTH * WIDTH, 2);
    for (int r = 0; r < ROWS; r++) dy[r] = 1;
    struct values v = {.g = g, .args = (void *[]){x, w, dy}};
    void **kept = plan_args(forward, NULL, NULL, &v, 0xff);
    run_on_device(forward, kept, 0xff);
    void **args = plan_args(backward, forward, kept, &v, 0xff);
    run_on_device(backward, args, 0xff);
    const uint16_t *got = args[backward->leaves];
    for (int r = 0; r < ROWS; r++)
        ck_assert_mem_eq(got + r * WIDTH, w + largest_of(x + r * WIDTH, w) * WIDTH, WIDTH * sizeof *w);
    free_args(forward, kept), free_args(backward, args);
    graph_free(forward), graph_free(backward), graph_free(g);
}
END_TEST

START_TEST(split_refuses)
{
    graph *g = joint_graph(), *forward = g, *backward = g;
    coda_split_options o = CODA_SPLIT_OPTIONS_INIT;
    coda_value other = {12345};
    ck_assert_int_eq(coda_split(NULL, 1, NULL, &forward, &backward), CODA_E_INVALID);
    ck_assert(strstr(coda_error(), "joint is NULL") && !forward && !backward);
    ck_assert_int_eq(coda_split(g, 1, NULL, NULL, &backward), CODA_E_INVALID);
    ck_assert_int_eq(coda_split(g, 0, NULL, &forward, &backward), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "0 of 10 outputs"), "%s", coda_error());
    ck_assert_int_eq(coda_split(g, 10, NULL, &forward, &backward), CODA_E_INVALID);
    o.keep = (coda_keep)3;
    ck_assert_int_eq(coda_split(g, 2, &o, &forward, &backward), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "keep is 3"), "%s", coda_error());
    o.keep = CODA_KEEP_MORE;
    o.also_count = 1;
    ck_assert_int_eq(coda_split(g, 2, &o, &forward, &backward), CODA_E_INVALID);
    o.also = &other;
    ck_assert_int_eq(coda_split(g, 2, &o, &forward, &backward), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "12345"), "%s", coda_error());
    o = (coda_split_options)CODA_SPLIT_OPTIONS_INIT;
    o.consume = 2;
    ck_assert_int_eq(coda_split(g, 2, &o, &forward, &backward), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "consume is 2; must be 0..1"), "%s", coda_error());
    graph_free(g);
    g = graph_parse(
        "%s = state f32 [2]\n%x = input f32 [2]\n%v = assign %s, %x\n%r = relu %x\noutput %y = %r\n"
        "output %z = %x\n");
    ck_assert_int_eq(coda_split(g, 1, NULL, &forward, &backward), CODA_E_UNSUPPORTED);
    ck_assert_msg(strstr(coda_error(), "assign") && strstr(coda_error(), "%s"), "%s", coda_error());
    graph_free(g);
}
END_TEST

TESTS(split, EACH(halves_are_the_whole, ARRAY_SIZE(policies)), EACH(rows_are_kept_once, 2),
      ONE(attention_runs_once), ONE(also_is_kept), ONE(kept_values_are_consumed), ONE(inputs_of_both_halves),
      ONE(largest_of_rounded_sums), ONE(split_refuses));
