/* test_reuse.c -- results in the memory of what they are made of, sums of products where they end, and an
 * order in which little is kept: which plans have them, that they are right, and that the verifier sees it
 * when they are not. */
#include "pipeline.h"
#include "rewrite.h"
#include "util_run.h"
#include "util_scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

static void build(struct plan *p, const graph *g)
{
    struct plan_options o = {.fuse = true, .target = target_rows[TARGET_H200]};
    struct rewrite_log log = {0};
    graph *r = rewrite(g, &(struct rewrite_options){.fuse = true}, &log);
    rewrite_log_free(&log);
    ck_assert_msg(r && plan_build(p, r, &o) == CODA_OK, "%s", coda_error());
    graph_free(r);
}

static graph *parse(const char *text)
{
    graph *g = graph_parse(text);
    ck_assert_msg(g != NULL, "%s\n%s", coda_error(), text);
    return g;
}

/* The store, and the load that it writes over; false: the program has none. */
static bool find_over(const struct program *q, struct step **load, struct step **store)
{
    for (int i = 0; i < q->steps; i++)
        for (int j = 0; j < q->steps; j++) {
            struct step *l = &q->step[i], *s = &q->step[j];
            if (l->kind != STEP_LOAD || s->kind != STEP_STORE) continue;
            const struct tensor_use *from = &q->port[l->port], *to = &q->port[s->port];
            if (from->buffer != to->buffer || from->offset != to->offset) continue;
            *load = l, *store = s;
            return true;
        }
    return false;
}

static int count_over(const struct plan *p)
{
    struct step *load, *store;
    int n = 0;
    for (int i = 0; i < p->programs; i++)
        if (p->program[i].kind != PROGRAM_OWN) n += find_over(&p->program[i], &load, &store);
    return n;
}

static int count_adds(const struct plan *p)
{
    const struct tensor_use *u;
    int n = 0;
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; (u = program_use(&p->program[i], j)); j++) n += use_effect(u) == EFFECT_ADD;
    return n;
}

static void check_on_cpu(const graph *g, uint64_t seed, double tolerance)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    void **want = run_reference(g, seed);
    ck_assert_msg(want != NULL, "%s", coda_error());
    opt.device = CODA_DEVICE_CPU;
    double e = run_on_cpu(g, seed, &opt, want);
    ck_assert_msg(e >= 0 && e <= tolerance, "error %g of %g, %s", e, tolerance, coda_error());
    random_args_free(g, want);
}

/* ---- What may be written over what ---- */

/* x is made by a product, as is what comes of y: both are in the workspace. */
#define BEGIN "%a = input f32[96,64]\n%w = weight f32[64,64]\n%v = weight f32[64,64]\n%x = matmul %a, %w\n"
#define END "%z = matmul %y, %v\noutput %z = %z\n"
static const struct {
    const char *name, *text;
    int over;
} cases[] = {
    {"a map of what a sum of all rows follows", BEGIN "%c = sum %x {columns=1}\n%y = mul %x, %c\n" END, 1},
    {"softmax: a row is read twice, and then written", BEGIN "%y = softmax %x\n" END, 1},
    {"the row is wanted once more behind the first of two stores",
     BEGIN "%y = softmax %x\n%s = mul %x, %y\n%t = sum %s\n%u = minimum %x, %t\n%q = matmul %u, %v\n"
           "output %q = %q\n" END,
     1},
    {"a later program reads the operand",
     BEGIN "%y = softmax %x\n%q = matmul %x, %v\noutput %q = %q\n%r = add %y, %q\n%u = softmax %r\n"
           "output %u = %u\n" END,
     0},
    {"the operand is turned",
     BEGIN "%c = sum %x {columns=1}\n%k = mul %x, %c\n%b = slice %x {axis=0, stop=64, step=1}\n"
           "%t = transpose %b {p0=1}\n%r = slice %k {axis=0, stop=64, step=1}\n%y = add %r, %t\n" END,
     0},
    {"the operand is an argument", "%x = input f32[96,64]\n%v = weight f32[64,64]\n%y = softmax %x\n" END, 0},
    {"the result is narrower",
     BEGIN "%s = softmax %x\n%y = cast %s {to=bf16}\n%u = weight bf16[64,64]\n%z = matmul %y, %u\n"
           "output %z = %z\n",
     0},
};

START_TEST(over_what_dies)
{
    graph *g = parse(cases[_i].text);
    struct plan p;
    build(&p, g);
    ck_assert_msg(count_over(&p) == cases[_i].over, "%s: %d", cases[_i].name, count_over(&p));
    check_on_cpu(g, 5, strstr(cases[_i].text, "bf16") ? 1e-2 : 1e-4);
    plan_free(&p);
    graph_free(g);
}
END_TEST

/* ---- Random graphs ---- */

/* Of few graphs it may be that none says something: then more are drawn. */
enum { AT_MOST = 50 };

/* Products one after the other with what comes between: the memory of one is the next one's. Every run of
 * run_on_cpu begins with other bytes, and must leave the same bits. */
START_TEST(random_graphs_are_right)
{
    uint64_t seed = random_seed();
    int over = 0, graphs = scaled(800), i = 0;
    for (; i < graphs || (!over && i < AT_MOST * graphs); i++) {
        const struct random_options ro = {.dtype = CODA_F32, .patterns = 4 + i % 8, .states = i % 3 == 0};
        uint64_t own = seed + (uint64_t)i;
        graph *g = random_graph(own, &ro);
        struct plan p;
        build(&p, g);
        int here = count_over(&p);
        over += here;
        plan_free(&p);
        if (here) {
            void **want = run_reference(g, own);
            coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
            opt.device = CODA_DEVICE_CPU;
            double e = run_on_cpu(g, own, &opt, want), base;
            opt.flags = CODA_NO_FUSION;
            base = run_on_cpu(g, own, &opt, want);
            ck_assert_msg(e >= 0 && (e <= 1e-4 || e <= 4 * base), "seed %llu: %g, one by one %g, %s",
                          (unsigned long long)own, e, base, coda_error());
            random_args_free(g, want);
        }
        graph_free(g);
    }
    ck_assert_msg(over > 0, "no result over an operand in %d graphs", i);
}
END_TEST

/* ---- The verifier ---- */

enum damage { OFFSET, STRIDE, DTYPE, TURNED, LATE, DAMAGES };

static void hurt(struct program *q, struct step *load, struct step *store, enum damage how)
{
    struct tensor_use *to = &q->port[store->port];
    struct step kept;
    switch (how) {
    case OFFSET: to->offset++; break;
    case STRIDE: to->stride[q->rank - 2] *= 2; break;
    case DTYPE: to->dtype = CODA_I32; break;
    case TURNED:
        to->stride[q->rank - 1] = to->stride[q->rank - 2];
        to->stride[q->rank - 2] = 1;
        break;
    default: /* the store comes first */
        kept = *store;
        memmove(load + 1, load, sizeof *load * (size_t)(store - load));
        *load = kept;
        load->in[0] = 0;
    }
}

START_TEST(the_verifier_sees_it)
{
    struct plan p;
    graph *g = parse(cases[1].text);
    struct step *load, *store, step[32];
    struct tensor_use port[16];
    int seen = 0;
    build(&p, g);
    for (int i = 0; i < p.programs; i++)
        for (int how = 0; how < DAMAGES; how++) {
            struct program *q = &p.program[i];
            if (!find_over(q, &load, &store)) continue;
            ck_assert(q->steps <= 32 && q->ports <= 16);
            memcpy(step, q->step, sizeof *step * (size_t)q->steps);
            memcpy(port, q->port, sizeof *port * (size_t)q->ports);
            hurt(q, load, store, (enum damage)how);
            ck_assert_msg(plan_verify(&p) == CODA_E_INVALID, "damage %d", how);
            memcpy(q->step, step, sizeof *step * (size_t)q->steps);
            memcpy(q->port, port, sizeof *port * (size_t)q->ports);
            ck_assert_int_eq(plan_verify(&p), CODA_OK);
            seen++;
        }
    ck_assert_int_ge(seen, DAMAGES);
    plan_free(&p);
    graph_free(g);
}
END_TEST

/* A program that reads a version comes ahead of the one that writes over it. */
START_TEST(the_verifier_sees_late_readers)
{
    struct plan p;
    graph *g = parse(cases[1].text);
    struct step *load, *store;
    int seen = 0;
    build(&p, g);
    for (int i = 0; i < p.programs; i++) {
        struct tensor_use *u;
        if (!find_over(&p.program[i], &load, &store)) continue;
        int buffer = p.program[i].port[store->port].buffer;
        for (int j = i + 1; j < p.programs; j++)
            for (int k = 0; (u = program_use(&p.program[j], k)); k++) {
                if (u->buffer != buffer) continue;
                u->version--;
                ck_assert_int_eq(plan_verify(&p), CODA_E_INVALID);
                ck_assert_msg(strstr(coda_error(), "version"), "%s", coda_error());
                u->version++;
                ck_assert_int_eq(plan_verify(&p), CODA_OK);
                seen++;
            }
    }
    ck_assert_int_ge(seen, 1);
    plan_free(&p);
    graph_free(g);
}
END_TEST

/* ---- Arguments that may be consumed ---- */

static const struct {
    const char *name, *text;
    int over;
} consumed[] = {
    {"softmax of a cotangent",
     "%x = input f32[96,64] {consumed=1}\n%v = weight f32[64,64]\n%y = softmax %x\n" END, 1},
    {"one chain of results, in one argument",
     "%x = input f32[96,64] {consumed=1}\n%v = weight f32[64,64]\n%y = softmax %x\n%q = matmul %y, %v\n"
     "output %q = %q\n%c = sum %y {columns=1}\n%u = mul %y, %c\n%z = matmul %u, %v\noutput %z = %z\n",
     2},
    {"both halves of a SwiGLU's gradient",
     "%x = input bf16[64,128] {consumed=1}\n%d = input bf16[64,32]\n%w = weight bf16[32,64]\n"
     "%v = weight bf16[128,48]\n%dy = matmul %d, %w {kn=1}\n%g = slice %x {axis=1, stop=64, step=1}\n"
     "%u = slice %x {axis=1, start=64, stop=128, step=1}\n%s = sigmoid %g\n%a = mul %g, %s\n"
     "%dup = mul %dy, %a\n%t = mul %dy, %u\n%dg = mul %t, %s\n%dz = concat %dg, %dup {axis=1}\n"
     "%z = matmul %dz, %v {kn=1}\noutput %z = %z\n",
     1},
    {"it is not dense",
     "%x = input f32[96,64] stride=[80,1] {consumed=1}\n%v = weight f32[64,64]\n%y = softmax %x\n" END, 0},
    {"a part of it",
     "%x = input f32[96,64] {consumed=1}\n%v = weight f32[64,64]\n%p = slice %x {axis=0, stop=48, step=1}\n"
     "%y = softmax %p\n" END,
     0},
};

START_TEST(over_what_is_consumed)
{
    graph *g = parse(consumed[_i].text);
    struct plan p;
    build(&p, g);
    ck_assert_msg(count_over(&p) == consumed[_i].over, "%s: %d", consumed[_i].name, count_over(&p));
    plan_free(&p);
    graph_free(g);
}
END_TEST

/* Rows that lie apart in the argument and side by side in the result: of none each place is as good. */
START_TEST(of_no_rows_all_is_right)
{
    graph *g = parse("%x = input bf16[0,1,8] stride=[16,16,1] {consumed=1}\n%v = weight bf16[8,8]\n"
                     "%y = softplus %x\n%q = matmul %y, %v\noutput %q = %q\n%z = softmax %x\n"
                     "output %z = %z\n");
    struct plan p;
    build(&p, g);
    ck_assert_int_eq(plan_verify(&p), CODA_OK);
    plan_free(&p);
    graph_free(g);
}
END_TEST

/* What a run leaves in outputs and states, with arguments of the seed; the caller frees it. */
static void **run_once(const graph *g, uint64_t seed)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    void **args = random_args(g, seed, false);
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    size_t bytes = (coda_plan_workspace(p) + 511) / 256 * 256;
    void *work = aligned_alloc(256, bytes);
    memset(work, (int)(seed & 0xff), bytes);
    ck_assert_msg(coda_run(p, args, NULL, work, NULL) == CODA_OK, "%s", coda_error());
    free(work);
    coda_plan_free(p);
    return args;
}

static void consume_all(graph *g)
{
    for (int i = 0; i < g->leaves; i++)
        if (g->node[g->leaf[i]].op == OP_INPUT) coda_consume(g, (coda_value){(uint32_t)g->leaf[i] + 1});
}

/* The same bits, whether results lie in arguments or not. Returns how many arguments have changed. */
static int check_consumed(graph *g, uint64_t seed)
{
    void **kept = run_once(g, seed), **is = random_args(g, seed, false);
    int changed = 0;
    consume_all(g);
    void **lost = run_once(g, seed);
    for (int i = 0; i < g->leaves + g->outputs; i++) {
        coda_arg_info a = CODA_ARG_INFO_INIT;
        ck_assert_int_eq(coda_graph_arg(g, i, &a), CODA_OK);
        if (a.kind == CODA_ARG_CONSUMED) changed += memcmp(lost[i], is[i], a.bytes) != 0;
        else
            ck_assert_msg(!memcmp(lost[i], kept[i], a.bytes), "seed %llu: %s", (unsigned long long)seed,
                          a.name);
    }
    random_args_free(g, kept), random_args_free(g, is), random_args_free(g, lost);
    return changed;
}

START_TEST(consumed_or_not_is_the_same)
{
    uint64_t seed = random_seed();
    int changed = 0, graphs = scaled(400), drawn = 0;
    for (int i = 0; i < ARRAY_SIZE(consumed); i++) {
        graph *g = parse(consumed[i].text);
        for (int l = 0; l < g->leaves; l++) g->node[g->leaf[l]].attr.input.consumed = 0;
        ck_assert_msg((check_consumed(g, seed) > 0) == (consumed[i].over > 0), "%s", consumed[i].name);
        graph_free(g);
    }
    for (; drawn < graphs || (!changed && drawn < AT_MOST * graphs); drawn++) {
        uint64_t own = seed + (uint64_t)drawn;
        const struct random_options ro = {.dtype = drawn % 2 ? CODA_F32 : CODA_BF16,
                                          .patterns = 3 + drawn % 6};
        graph *g = random_graph(own, &ro);
        changed += check_consumed(g, own);
        graph_free(g);
    }
    ck_assert_msg(changed > 0, "no argument was written over in %d graphs", drawn);
}
END_TEST

START_TEST(consumed_arguments_lie_apart)
{
    static _Alignas(256) float x[96 * 64], v[64 * 64], z[96 * 64];
    static _Alignas(256) char work[1 << 16];
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    graph *g = parse(consumed[0].text);
    opt.device = CODA_DEVICE_CPU;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    ck_assert_int_eq(coda_run(p, (void *[]){x, v, z}, NULL, work, NULL), CODA_OK);
    ck_assert_int_eq(coda_run(p, (void *[]){x, x, z}, NULL, work, NULL), CODA_E_INVALID);
    ck_assert_msg(strncmp(coda_error(), "run: input x (", 14) == 0, "%s", coda_error());
    ck_assert_msg(strstr(coda_error(), "overlaps input v (") || strstr(coda_error(), "overlaps weight v ("),
                  "%s", coda_error());
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

START_TEST(inputs_alone_are_consumed)
{
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_F32, 1, (int64_t[]){8});
    coda_consume(g, x);
    coda_consume(g, x);
    ck_assert_int_eq(coda_graph_status(g), CODA_OK);
    coda_consume(g, coda_relu(g, x));
    ck_assert_int_eq(coda_graph_status(g), CODA_E_INVALID);
    ck_assert_msg(strstr(coda_error(), "x is a result of relu; it must be an input"), "%s", coda_error());
    coda_graph_free(g);
    g = coda_graph_new();
    coda_consume(g, CODA_NONE);
    ck_assert_msg(strstr(coda_graph_status(g) ? coda_error() : "", "x is CODA_NONE"), "%s", coda_error());
    coda_graph_free(g);
    ck_assert_ptr_null(graph_parse("%x = input f32[8] {consumed=2}\noutput %y = %x\n"));
    ck_assert_msg(strstr(coda_error(), "consumed is 2; must be 0..1"), "%s", coda_error());
    ck_assert_ptr_null(graph_parse("%x = weight f32[8] {consumed=1}\noutput %y = %x\n"));
}
END_TEST

/* ---- Sums of products ---- */

#define OPERANDS                                                                                             \
    "%a = input f32[48,32]\n%b = input f32[48,32]\n%c = input f32[48,32]\n%w = weight f32[40,32]\n"          \
    "%p = matmul %a, %w\n%q = matmul %b, %w\n%r = matmul %c, %w\n%s = add %p, %q\n%t = add %s, %r\n"
static const struct {
    const char *name, *text;
    int adds;
} sums[] = {
    {"an output", OPERANDS "output %t = %t\n", 2},
    {"an output that runs add to", OPERANDS "output %t += %t\n", 3},
    {"a buffer that another product reads",
     OPERANDS "%v = weight f32[16,40]\n%z = matmul %t, %v\noutput %z = %z\n", 2},
    {"a sum that the last product's epilogue reads twice",
     OPERANDS "%m = tanh %t\n%y = sum %t\n%z = mul %m, %y\noutput %z = %z\n", 1},
    {"a part of it is an output", OPERANDS "output %s = %s\noutput %t = %t\n", 1},
    {"a scaled sum", OPERANDS "%u = scale %t {alpha=3}\noutput %u = %u\n", 1},
    {"the sum and its copy elsewhere", OPERANDS "output %t = %t\noutput %u = %t stride=[64,1]\n", 1},
    {"16 bits round each sum",
     "%a = input bf16[48,32]\n%b = input bf16[48,32]\n%w = weight bf16[40,32]\n%p = matmul %a, %w\n"
     "%q = matmul %b, %w\n%s = add %p, %q\noutput %s = %s\n",
     0},
};

START_TEST(sums_of_products)
{
    struct plan p;
    graph *g = parse(sums[_i].text);
    build(&p, g);
    ck_assert_msg(count_adds(&p) == sums[_i].adds, "%s: %d", sums[_i].name, count_adds(&p));
    check_on_cpu(g, 9, strstr(sums[_i].text, "bf16") ? 2e-2 : 1e-5);
    plan_free(&p);
    graph_free(g);
}
END_TEST

TESTS(reuse, SECONDS(120), EACH(over_what_dies, ARRAY_SIZE(cases)), ONE(random_graphs_are_right),
      ONE(the_verifier_sees_it), ONE(the_verifier_sees_late_readers),
      EACH(sums_of_products, ARRAY_SIZE(sums)), EACH(over_what_is_consumed, ARRAY_SIZE(consumed)),
      ONE(of_no_rows_all_is_right), ONE(consumed_or_not_is_the_same), ONE(consumed_arguments_lie_apart),
      ONE(inputs_alone_are_consumed));
