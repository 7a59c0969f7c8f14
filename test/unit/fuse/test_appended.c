/* test_appended.c -- whether attention knows which rows of its cache the run appends, from the graph. */
#include "attention.h"
#include "executable.h"
#include "own.h"
#include "schedule.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>

/* From what is common: two sequences' keys, one row each, of two heads of 64 columns. */
#define BEGIN                                                                                                \
    "%q = input bf16[2,1,128]\n%k = input bf16[2,1,128]\n%v = input bf16[2,1,128]\n%s = input i32[2,1]\n"    \
    "%t = input i32[2,1]\n%n = input i32[2]\n%x = state bf16[2,300,128]\n%y = state bf16[2,300,128]\n"
#define ATTEND(k, v, n) "%a = attention %q, " k ", " v ", " n " {heads=2,causal=1,align=3}\noutput %o = %a\n"
#define APPEND "%x1 = append %x, %k, %s\n%y1 = append %y, %v, %s\n"

static const struct {
    const char *text;
    bool appends, early;
} cases[] = {
    {BEGIN APPEND ATTEND("%x1", "%y1", "%n"), true, true},
    {BEGIN "%x1 = append %x, %k, %s\n" ATTEND("%x1", "%x1", "%n"), true, true},
    {BEGIN "%w = state bf16[600,128]\n%w1 = append %w, %k, %s\n"
           "%r = reshape %w1 {rank=3,d0=2,d1=300,d2=128}\n" ATTEND("%r", "%r", "%n"),
     true, true},
    /* lengths are made by the run */
    {BEGIN "%one = constant {to=i32,value=1}\n%m = add %n, %one\n%l = cast %m {to=i32}\n" APPEND ATTEND(
         "%x1", "%y1", "%l"),
     true, false},
    /* slots are; they differ; they are a state */
    {BEGIN "%one = constant {to=i32,value=1}\n%m = add %s, %one\n%l = cast %m {to=i32}\n"
           "%x1 = append %x, %k, %l\n%y1 = append %y, %v, %l\n" ATTEND("%x1", "%y1", "%n"),
     false, false},
    {BEGIN "%x1 = append %x, %k, %s\n%y1 = append %y, %v, %t\n" ATTEND("%x1", "%y1", "%n"), false, false},
    {BEGIN "%z = state i32[2,1]\n%x1 = append %x, %k, %z\n%y1 = append %y, %v, %z\n%z1 = assign %z, "
           "%t\n" ATTEND("%x1", "%y1", "%n"),
     false, false},
    /* the cache is appended to twice, before attention and behind it; it is written as a whole; half of it */
    {BEGIN "%x0 = append %x, %k, %t\n%x1 = append %x0, %k, %s\n%y1 = append %y, %v, %s\n" ATTEND("%x1", "%y1",
                                                                                                 "%n"),
     false, false},
    {BEGIN APPEND ATTEND("%x1", "%y1", "%n") "%x2 = append %x1, %k, %t\n", true, true},
    {BEGIN "%c = input bf16[2,300,128]\n%x0 = assign %x, %c\n%x1 = append %x0, %k, %s\n"
           "%y1 = append %y, %v, %s\n" ATTEND("%x1", "%y1", "%n"),
     false, false},
    {BEGIN "%c = input bf16[2,300,128]\n%x1 = append %x, %k, %s\n" ATTEND("%x1", "%c", "%n"), false, false},
    /* slots count other rows than keys: of a cache of keys and values; of heads */
    {BEGIN
     "%w = state bf16[2,300,256]\n%r = input bf16[2,1,256]\n%w1 = append %w, %r, %s\n"
     "%kw = slice %w1 {axis=2,stop=128,step=1}\n%vw = slice %w1 {axis=2,start=128,stop=256,step=1}\n" ATTEND(
         "%kw", "%vw", "%n"),
     false, false},
    {BEGIN "%w = state bf16[2,600,64]\n%r = input bf16[2,1,64]\n%w1 = append %w, %r, %s\n"
           "%kw = reshape %w1 {rank=3,d0=2,d1=300,d2=128}\n" ATTEND("%kw", "%kw", "%n"),
     false, false},
    /* more rows than a warp has lanes */
    {"%q = input bf16[1,1,128]\n%k = input bf16[33,128]\n%s = input i32[33]\n%n = input i32[1]\n"
     "%x = state bf16[1,300,128]\n%x1 = append %x, %k, %s\n" ATTEND("%x1", "%x1", "%n"),
     true, false},
};

static const struct schedule *of_attention(const coda_plan *p, const struct attention_spec **a)
{
    for (int i = 0; i < p->plan.programs; i++)
        if (p->plan.program[i].own == &own_attention) {
            *a = p->plan.program[i].spec;
            return &p->plan.schedule[i];
        }
    ck_abort_msg("no attention");
}

START_TEST(rows_are_known_where_the_graph_says_them)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    const struct attention_spec *a;
    coda_graph *g = NULL;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_NONE, opt.flags = CODA_PLAN_ONLY, opt.arch = "sm_90a";
    ck_assert_msg(coda_graph_parse(&g, cases[_i].text) == CODA_OK, "%s", coda_error());
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    const struct schedule *s = of_attention(p, &a);
    ck_assert_msg(a->appends == cases[_i].appends && s->reads_early == cases[_i].early, "%d, early %d:\n%s",
                  a->appends, s->reads_early, cases[_i].text);
    int uses = 0, last = -1;
    const struct program q = {.kind = PROGRAM_OWN, .own = &own_attention, .spec = (void *)a};
    for (const struct tensor_use *u; (u = program_use(&q, uses)); uses++) last = u->buffer;
    if (a->appends) ck_assert_int_eq(last, a->written.buffer);
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

TESTS(appended, EACH(rows_are_known_where_the_graph_says_them, ARRAY_SIZE(cases)));
