/*
 * test_operand.c -- a product whose operand has a scale: whatever walks a program's tensors meets it, and
 * nothing computes the product without it.
 */
#include "cpu.h"
#include "pipeline.h"
#include "rewrite.h"
#include "schedule.h"

#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* One bare product, y = x w. */
static graph *build(struct plan *p)
{
    static const char *text =
        "%x = input f32[8,16]\n%w = weight f32[24,16]\n%y = matmul %x, %w\noutput %y = %y\n";
    struct plan_options o = {.fuse = true, .target = target_rows[TARGET_H200]};
    struct rewrite_log log = {0};
    coda_graph *g;
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    graph *r = rewrite(g, &(struct rewrite_options){.fuse = true}, &log);
    rewrite_log_free(&log);
    coda_graph_free(g);
    ck_assert_msg(plan_build(p, r, &o) == CODA_OK, "%s", coda_error());
    ck_assert(p->programs == 1 && p->program->kind == PROGRAM_GEMM && program_is_plain(p->program));
    return r;
}

/* A tensor of one number for each row of w, behind the ports; its place among them. */
static int add_scale(struct plan *p)
{
    struct program *q = p->program;
    struct buffer b = {.space = SPACE_ARG, .arg = 1, .bytes = 96, .value = q->b.data.value};
    struct tensor_use *port = ARENA_NEW(&p->arena, struct tensor_use, q->ports + 1);
    memcpy(port, q->port, sizeof *port * (size_t)q->ports);
    port[q->ports] = (struct tensor_use){.role = USE_OPERAND, .dtype = CODA_F32, .value = -1};
    port[q->ports].buffer = plan_add_buffer(p, b);
    port[q->ports].stride[2] = 1;
    q->port = port;
    return q->ports++;
}

START_TEST(scales_are_met_and_not_forgotten)
{
    struct plan p;
    struct plan_options o = {.target = target_rows[TARGET_H200]};
    struct identity plain, scaled;
    graph *r = build(&p);
    struct program *q = p.program;
    ck_assert(program_suits_cublaslt(q));
    int port = add_scale(&p);
    ck_assert_int_eq(plan_verify(&p), CODA_OK);
    ck_assert(identity_of(&plain, &p.arena, p.buffer, q));
    for (int zero = 0; zero < 2; zero++) {
        *(zero ? &q->b.zero : &q->b.scale) = 1 + port;
        ck_assert_int_eq(plan_verify(&p), CODA_OK);
        ck_assert(!program_is_plain(q) && !program_suits_cublaslt(q));
        ck_assert_int_eq(schedule(&p, &o), CODA_E_UNSUPPORTED);
        ck_assert_str_eq(coda_error(), "plan: @0 has an operand that no main loop decodes");
        ck_assert_int_eq(cpu_run(&p, q, NULL, NULL, NULL), CODA_E_UNSUPPORTED);
        ck_assert(identity_of(&scaled, &p.arena, p.buffer, q));
        ck_assert(plain.size == scaled.size && memcmp(plain.data, scaled.data, plain.size));
        bool met = false;
        for (int i = 0; i < program_uses(q); i++) met = met || program_use(q, i) == &q->port[port];
        ck_assert(met);
        q->b.scale = q->b.zero = 0;
    }
    ck_assert_int_eq(schedule(&p, &o), CODA_OK);
    q->b.dtype = CODA_BF16; /* kept as f32, but multiplied as bf16 */
    ck_assert(!program_is_plain(q) && !program_suits_cublaslt(q));
    plan_free(&p);
    graph_free(r);
}
END_TEST

START_TEST(what_is_no_operand_is_refused)
{
    struct plan p;
    graph *r = build(&p);
    struct program *q = p.program;
    const int bad[] = {-1, 1 /* where y is stored */, q->ports + 1, INT32_MIN, INT32_MAX};
    for (int i = 0; i < ARRAY_SIZE(bad); i++)
        for (int field = 0; field < 4; field++) {
            struct operand *o = field & 1 ? &q->a : &q->b;
            *(field & 2 ? &o->zero : &o->scale) = bad[i];
            ck_assert_int_eq(plan_verify(&p), CODA_E_INVALID);
            ck_assert_str_eq(coda_error(), "plan: @0 has an operand whose scale or zero is no port of it");
            o->scale = o->zero = 0;
        }
    ck_assert_int_eq(plan_verify(&p), CODA_OK);
    plan_free(&p);
    graph_free(r);
}
END_TEST

TESTS(operand, ONE(scales_are_met_and_not_forgotten), ONE(what_is_no_operand_is_refused));
