/* test_row_count.c -- a product's text does not say how many rows it has: plans of the same tile share it. */
#include "executable.h"
#include "mainloop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* A LLaMA block of 2048 columns without its attention, whose result is an input; m stands for its rows. */
static const char block[] = "%%x = input bf16[%1$d,2048]\n"
                            "%%a = input bf16[%1$d,2048]\n"
                            "%%w_qkv = weight bf16[6144,2048]\n"
                            "%%w_o = weight bf16[2048,2048]\n"
                            "%%w_gate_up = weight bf16[11264,2048]\n"
                            "%%w_down = weight bf16[2048,5632]\n"
                            "%%n1 = rms_norm %%x {eps=1e-5}\n"
                            "%%qkv = matmul %%n1, %%w_qkv\n"
                            "%%r = rope %%qkv {base=10000,head_dim=128,rotary=128,heads=32,half=1}\n"
                            "%%o = matmul %%a, %%w_o\n"
                            "%%h = add %%o, %%x\n"
                            "%%n2 = rms_norm %%h {eps=1e-5}\n"
                            "%%gu = matmul %%n2, %%w_gate_up\n"
                            "%%gate = slice %%gu {axis=1,start=0,stop=5632,step=1}\n"
                            "%%up = slice %%gu {axis=1,start=5632,stop=11264,step=1}\n"
                            "%%m = swiglu %%gate, %%up\n"
                            "%%d = matmul %%m, %%w_down\n"
                            "%%s = add %%d, %%h\n"
                            "output %%r = %%r\n"
                            "output %%y = %%s\n";
enum { PRODUCTS = 4, MOST_TEXTS = 1024 };

static coda_plan *plan_block(int m, const char *arch)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    char text[4096];
    coda_graph *g;
    coda_plan *p;
    snprintf(text, sizeof text, block, m);
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    opt.arch = arch;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%d rows: %s", m, coda_error());
    coda_graph_free(g);
    return p;
}

/* What a text may depend on: the tile; whether rows fill it; where the epilogue stages in the ring, whether a
 * block has a second tile. Where rows are few also who merges the states, and how many rows a slot of the
 * ring has; of streams, for how many rows there is room. Not the tile of the program ahead, which leaves
 * states of a row. */
static void print_class(const coda_plan *p, int index, struct text *t)
{
    const struct program *q = &p->plan.program[index];
    const struct schedule *s = &p->plan.schedule[index];
    int64_t m = q->dim[1];
    struct tile tile = s->tile;
    if (tile.mainloop->streams) tile.bm = stream_rows(q, &tile);
    tile_print(&tile, t);
    text_printf(t, " even %d", !tile.mainloop->streams && m % tile.bm == 0);
    if (tile.lends) text_printf(t, ", persistent %d", s->persistent);
    if (m <= 128) text_printf(t, ", one %d, team %d, rows %d", m == 1, s->layout.row_team, s->layout.a_rows);
}

/* The launch passes the rows, by what the walk divides: x / d is (x * multiplier >> 32) + x >> shift, and the
 * states of each row. */
static int check_numbers(const struct kernel *k, const struct program *q)
{
    const struct scalar_spec *s = k->scalar;
    bool divides = strstr(k->text, "    Divisor divisor;\n") != NULL;
    int states = 0, first = divides ? 4 : 1;
    for (int i = 0; i < q->ports; i++)
        if (q->port[i].role == USE_PARTIAL_LOAD)
            ck_assert_uint_eq(s[first + states++].number, (uint32_t)q->port[i].blocks);
    ck_assert_int_eq(k->scalars, first + states);
    ck_assert(s[0].buffer == SCALAR_NUMBER && s[0].number == (uint32_t)q->dim[1]);
    for (int i = 1; i < k->scalars; i++) ck_assert_int_eq(s[i].buffer, SCALAR_NUMBER);
    for (uint64_t t = 0; divides && t < 3000; t++)
        for (uint64_t d = s[1].number, x = t * d; x<(t + 1) * d; x += d> 1 ? d - 1 : 1)
            ck_assert_uint_eq(((x * s[2].number >> 32) + x) >> s[3].number, t);
    return divides;
}

/* The texts of the block's products, with their classes. */
struct texts {
    char *text[MOST_TEXTS], *class[MOST_TEXTS];
    int n, products, streams, divide;
};

static void take(struct texts *all, const char *text, const char *class)
{
    for (int i = 0; i < all->n; i++) {
        bool same = !strcmp(all->text[i], text);
        ck_assert_msg(same || strcmp(all->class[i], class) != 0, "two texts of %s:\n%s\n%s", class,
                      all->text[i], text);
        if (same) return;
    }
    ck_assert_int_lt(all->n, MOST_TEXTS);
    all->text[all->n] = strdup(text);
    all->class[all->n++] = strdup(class);
}

static void take_block(struct texts *all, int m, const char *arch)
{
    coda_plan *p = plan_block(m, arch);
    int products = 0;
    for (int i = 0; i < p->plan.programs; i++) {
        const struct program *q = &p->plan.program[i];
        coda_kernel_info info = CODA_KERNEL_INFO_INIT;
        struct text class = {0};
        if (q->kind != PROGRAM_GEMM) continue;
        ck_assert_int_eq(q->dim[1], m);
        ck_assert_int_eq(coda_plan_kernel(p, p->program[i].kernel, &info), CODA_OK);
        text_printf(&class, "product %d: ", products++);
        print_class(p, i, &class);
        take(all, info.source, text_str(&class));
        if (p->plan.schedule[i].tile.mainloop->streams) all->streams++;
        if (p->plan.schedule[i].tile.mainloop != &mainloop_gemv)
            all->divide += check_numbers(&p->program[i].emitted, q);
        text_free(&class);
    }
    ck_assert_int_eq(products, PRODUCTS);
    all->products += products;
    coda_plan_free(p);
}

static void release(struct texts *all)
{
    for (int i = 0; i < all->n; i++) free(all->text[i]), free(all->class[i]);
}

/* When the rows were part of the text each product of each plan had its own: 860. When the states of the
 * program ahead were, and a stream's rows, there were 204 and 39. */
START_TEST(plans_of_many_rows_share_texts)
{
    static const struct {
        const char *arch;
        int texts, streams;
    } target[] = {{"sm_90a", 169, 32}, {"sm_80", 35, 0}};
    struct texts all = {.n = 0};
    for (int m = 1; m <= 64; m++) take_block(&all, m, target[_i].arch);
    for (int m = 65; m <= 1024; m += 13) take_block(&all, m, target[_i].arch);
    for (int m = 128; m <= 1024; m += 64) take_block(&all, m, target[_i].arch);
    for (int m = 1025; m <= 16384; m += 331) take_block(&all, m, target[_i].arch);
    for (int m = 2048; m <= 16384; m += 1024) take_block(&all, m, target[_i].arch);
    ck_assert_int_eq(all.products, 860);
    ck_assert_int_eq(all.streams, target[_i].streams);
    ck_assert_int_le(all.n, target[_i].texts);
    ck_assert(!target[_i].streams || all.divide > 0);
    release(&all);
}
END_TEST

TESTS(row_count, EACH(plans_of_many_rows_share_texts, 2));
