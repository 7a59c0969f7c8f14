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

/* Products one after the other with what comes between: the memory of one is the next one's. Every run of
 * run_on_cpu begins with other bytes, and must leave the same bits. */
START_TEST(random_graphs_are_right)
{
    uint64_t seed = random_seed();
    int over = 0, graphs = scaled(800);
    for (uint64_t i = 0; i < (uint64_t)graphs; i++) {
        const struct random_options ro = {
            .dtype = CODA_F32, .patterns = 4 + (int)(i % 8), .states = i % 3 == 0};
        graph *g = random_graph(seed + i, &ro);
        struct plan p;
        build(&p, g);
        int here = count_over(&p);
        over += here;
        plan_free(&p);
        if (here) {
            void **want = run_reference(g, seed + i);
            coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
            opt.device = CODA_DEVICE_CPU;
            double e = run_on_cpu(g, seed + i, &opt, want), base;
            opt.flags = CODA_NO_FUSION;
            base = run_on_cpu(g, seed + i, &opt, want);
            ck_assert_msg(e >= 0 && (e <= 1e-4 || e <= 4 * base), "seed %llu: %g, one by one %g, %s",
                          (unsigned long long)(seed + i), e, base, coda_error());
            random_args_free(g, want);
        }
        graph_free(g);
    }
    ck_assert_msg(over > 0, "no result over an operand in %d graphs", graphs);
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
      EACH(sums_of_products, ARRAY_SIZE(sums)));
