/* test_parts.c -- which products two ranks share, and where what they copy lies. */
#include "exchange.h"
#include "executable.h"
#include "own.h"
#include "schedule.h"
#include "util_overlap.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests.h" /* last: Check has a macro named fail */

static coda_plan *plan_of(const char *text, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_NONE, opt.arch = "sm_90a", opt.flags = CODA_PLAN_ONLY | flags;
    setenv("CODA_EXCHANGE", "copies", 1);
    ck_assert_msg(!coda_graph_parse(&g, text) && !coda_compile(&p, g, &opt), "%s", coda_error());
    unsetenv("CODA_EXCHANGE");
    coda_graph_free(g);
    return p;
}

/* Of program i, if it is an exchange that moves; else NULL. */
static const struct exchange_spec *moved_by(const struct plan *p, int i)
{
    const struct exchange_spec *s = p->program[i].own == &own_exchange ? p->program[i].spec : NULL;
    return s && s->moves ? s : NULL;
}

static bool waits_for(const struct plan *p, int i, int other)
{
    bool waits = false;
    for (int k = 0; k < p->waits[i].n && !waits; k++)
        waits = p->waits[i].on[k] == other ||
                (p->waits[i].on[k] > other && waits_for(p, p->waits[i].on[k], other));
    return waits;
}

/* How many programs have such uses of a buffer, and the last of them. */
static int users(const struct plan *p, int buffer, enum effect effect, int *last)
{
    const struct tensor_use *u;
    int n = 0;
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; (u = program_use(&p->program[i], j)); j++)
            if (u->buffer == buffer && use_effect(u) == effect && !exchange_is_order(&p->program[i], u))
                n++, *last = i;
    return n;
}

static const struct tensor_use *use_of(const struct plan *p, int i, int buffer)
{
    const struct tensor_use *u;
    for (int j = 0; (u = program_use(&p->program[i], j)); j++)
        if (u->buffer == buffer) return u;
    return NULL;
}

/* What a rank gathers the other one's product has left: own rows, to which it has added what came from this
 * rank's product of the other's rows. */
static void check_shared(const struct plan *p, int gather)
{
    const struct exchange_spec *s = moved_by(p, gather);
    int y = s->use[ALL_REDUCE_SUM].buffer, adder = gather, first, mover = -1, reader;
    ck_assert(s->use[ALL_REDUCE_X].buffer == y && s->use[ALL_REDUCE_X].by_rank == s->extent);
    ck_assert_int_eq(users(p, y, EFFECT_WRITE, &first), 2);
    while (p->program[--adder].kind != PROGRAM_GEMM || !use_of(p, adder, y)) {}
    const struct program *own = &p->program[adder];
    const struct tensor_use *part = use_of(p, adder, y);
    ck_assert(part && part->by_rank == s->extent && !part->ahead && !own->a.data.ahead);
    ck_assert_int_eq(own->dim[1] * own->dim[2], s->extent);
    for (int i = 0; i < adder; i++)
        if (moved_by(p, i) && use_of(p, adder, moved_by(p, i)->use[ALL_REDUCE_SUM].buffer)) mover = i;
    ck_assert(mover >= 0 && waits_for(p, adder, mover) && waits_for(p, gather, adder));
    ck_assert_int_eq(users(p, moved_by(p, mover)->use[ALL_REDUCE_X].buffer, EFFECT_WRITE, &first), 1);
    const struct program *other = &p->program[first];
    ck_assert(other->a.data.ahead == 1 && other->a.data.by_rank == own->a.data.by_rank);
    ck_assert_int_eq(own->a.data.by_rank, own->dim[1] * own->a.data.row);
    ck_assert(other->dim[1] == own->dim[1] && waits_for(p, mover, first) && first < mover && mover < adder);
    users(p, y, EFFECT_READ, &reader);
    if (reader != gather) ck_assert(waits_for(p, reader, gather) && waits_for(p, reader, adder));
}

START_TEST(ranks_make_a_half_each)
{
    char text[OVERLAP_TEXT];
    int shared = 0;
    overlap_graph(text, sizeof text, 2);
    coda_plan *plan = plan_of(text, CODA_OVERLAP);
    for (int i = 0; i < plan->plan.programs; i++) {
        const struct exchange_spec *s = moved_by(&plan->plan, i);
        if (!s || s->op != OP_ALL_GATHER) continue;
        check_shared(&plan->plan, i);
        shared++;
    }
    ck_assert_int_eq(shared, 3);
    coda_plan_free(plan);
}
END_TEST

/* Who takes a place in the inbox waits for all that have used it before, which is over by then. */
START_TEST(places_are_free)
{
    char text[OVERLAP_TEXT];
    int first, last, next;
    overlap_graph(text, sizeof text, 2);
    coda_plan *plan = plan_of(text, CODA_OVERLAP);
    const struct plan *p = &plan->plan;
    ck_assert_int_eq(plan_verify(p), CODA_OK);
    for (int a = 0; a < p->buffers; a++) {
        if (p->buffer[a].space != SPACE_INBOX) continue;
        ck_assert_int_le(p->buffer[a].offset + p->buffer[a].bytes, p->inbox);
        users(p, a, EFFECT_WRITE, &first), users(p, a, EFFECT_READ, &last);
        for (int b = 0; b < p->buffers; b++) {
            if (b == a || p->buffer[b].space != SPACE_INBOX || p->buffer[b].offset != p->buffer[a].offset)
                continue;
            users(p, b, EFFECT_WRITE, &next);
            if (next > first)
                ck_assert_msg(waits_for(p, next, last), "@%d does not wait for @%d", next, last);
        }
    }
    coda_plan_free(plan);
}
END_TEST

/* Whole: gradients of three ranks, of odd rows, that another program reads too, of a product
 * whose epilogue has something for each row; of a graph with symbols; and where nothing is to run beside
 * others. */
static const struct {
    const char *make, *reads;
    int ranks;
    const char *rows;
    unsigned flags;
    int shared;
} products[] = {
    {"%z = matmul %x, %w {f32=1}\n", "", 2, "256", CODA_OVERLAP, 1},
    {"%p = matmul %x, %w {f32=1}\n%z = mul %p, %g\n", "", 2, "256", CODA_OVERLAP, 1},
    {"%z = matmul %x, %w\n", "", 2, "256", CODA_OVERLAP, 1},
    {"%z = matmul %x, %w {f32=1}\n", "", 3, "256", CODA_OVERLAP, 0},
    {"%z = matmul %x, %w {f32=1}\n", "", 2, "240", CODA_OVERLAP, 0},
    {"%z = matmul %x, %w {f32=1}\n", "output %q = %z\n", 2, "256", CODA_OVERLAP, 0},
    {"%p = matmul %x, %w {f32=1}\n%z = mul %p, %r\n", "", 2, "256", CODA_OVERLAP, 0},
    {"%z = matmul %x, %w {f32=1}\n", "", 2, "m", CODA_OVERLAP, 0},
    {"%z = matmul %x, %w {f32=1}\n", "", 2, "256", 0, 0},
};

START_TEST(others_are_whole)
{
    char text[2048];
    int shared = 0;
    snprintf(
        text, sizeof text,
        "%s%%tp = group {ranks=%d}\n%%x = input bf16 [%s,512]\n%%w = weight bf16 [512,512]\n"
        "%%g = weight f32 [512]\n%%r = weight f32 [256,1]\n%s%%s = all_reduce %%z, %%tp\n"
        "%%u = weight bf16 [256,512]\n%%v = matmul %%x, %%u\noutput %%o = %%s\noutput %%beside = %%v\n%s",
        *products[_i].rows == 'm' ? "dim %m = 1..4096\n" : "", products[_i].ranks, products[_i].rows,
        products[_i].make, products[_i].reads);
    coda_plan *plan = plan_of(text, products[_i].flags);
    for (int i = 0; i < plan->plan.programs; i++) {
        const struct exchange_spec *s = moved_by(&plan->plan, i);
        shared += s && s->op == OP_ALL_GATHER;
    }
    ck_assert_int_eq(shared, products[_i].shared);
    coda_plan_free(plan);
}
END_TEST

TESTS(parts, ONE(ranks_make_a_half_each), ONE(places_are_free), EACH(others_are_whole, ARRAY_SIZE(products)));
