/* test_variants.c -- few tiles for all numbers of rows: how many kernels there are, and what they cost. */
#include "executable.h"
#include "wgmma.h"
#include "pipeline.h"
#include "util_scale.h"
#include "variants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* The products of a LLaMA block: columns of the stream, of QKV and of the MLP. */
struct shape {
    int d, qkv, mlp;
    const char *name;
};
static const struct shape shape[] = {
    {4096, 12288, 11008, "7B"}, {4096, 6144, 14336, "8B"}, {2048, 6144, 5632, "2048"}};

static const char block[] = "%%x = input bf16[%1$d,%2$d]\n"
                            "%%a = input bf16[%1$d,%2$d]\n"
                            "%%w_qkv = weight bf16[%3$d,%2$d]\n"
                            "%%w_o = weight bf16[%2$d,%2$d]\n"
                            "%%w_gate_up = weight bf16[%4$d,%2$d]\n"
                            "%%w_down = weight bf16[%2$d,%5$d]\n"
                            "%%n1 = rms_norm %%x {eps=1e-5}\n"
                            "%%qkv = matmul %%n1, %%w_qkv\n"
                            "%%r = rope %%qkv {base=10000,head_dim=128,rotary=128,heads=32,half=1}\n"
                            "%%o = matmul %%a, %%w_o\n"
                            "%%h = add %%o, %%x\n"
                            "%%n2 = rms_norm %%h {eps=1e-5}\n"
                            "%%gu = matmul %%n2, %%w_gate_up\n"
                            "%%gate = slice %%gu {axis=1,start=0,stop=%5$d,step=1}\n"
                            "%%up = slice %%gu {axis=1,start=%5$d,stop=%4$d,step=1}\n"
                            "%%m = swiglu %%gate, %%up\n"
                            "%%d = matmul %%m, %%w_down\n"
                            "%%s = add %%d, %%h\n"
                            "output %%r = %%r\n"
                            "output %%y = %%s\n";
enum { PRODUCTS = 4, MOST_TEXTS = 512 };

static coda_plan *plan_block(const struct shape *s, int m, const struct compile_context *context,
                             const char *arch)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    char text[4096];
    coda_graph *g;
    coda_plan *p;
    snprintf(text, sizeof text, block, m, s->d, s->qkv, 2 * s->mlp, s->mlp);
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s", coda_error());
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    opt.arch = arch;
    ck_assert_msg(compile_graph(&p, g, &opt, context) == CODA_OK, "%d rows: %s", m, coda_error());
    coda_graph_free(g);
    return p;
}

struct texts {
    char *text[MOST_TEXTS];
    int n;
};

static void take(struct texts *all, const char *text)
{
    for (int i = 0; i < all->n; i++)
        if (!strcmp(all->text[i], text)) return;
    ck_assert_int_lt(all->n, MOST_TEXTS);
    all->text[all->n++] = strdup(text);
}

static void release(struct texts *all)
{
    for (int i = 0; i < all->n; i++) free(all->text[i]);
    all->n = 0;
}

static void take_products(struct texts *all, const struct shape *s, int m,
                          const struct compile_context *context, const char *arch)
{
    coda_plan *p = plan_block(s, m, context, arch);
    for (int i = 0; i < p->plan.programs; i++) {
        coda_kernel_info info = CODA_KERNEL_INFO_INIT;
        if (p->plan.program[i].kind != PROGRAM_GEMM) continue;
        ck_assert_int_eq(coda_plan_kernel(p, p->program[i].kernel, &info), CODA_OK);
        take(all, info.source);
    }
    coda_plan_free(p);
}

static int next_rows(int m)
{
    if (m < 20) return m + 1;
    return m < 2048 ? m + 1 + m / (SANITIZED ? 4 : 19) : m + 331;
}

/* Kernels of all products for 1 to 16384 rows, and of the base. */
START_TEST(few_kernels)
{
    static const struct {
        const char *arch;
        int kernels, base;
    } target[] = {{"sm_90a", 56, 8}, {"sm_80", 16, 8}};
    struct texts best = {.n = 0}, base = {.n = 0};
    const struct shape *s = &shape[_i % 3];
    struct variants *v = variants_new();
    const struct compile_context context = {.variants = v}, slow = {.variants = v, .base = true};
    for (int m = 1; m <= 16384; m = next_rows(m)) {
        take_products(&best, s, m, &context, target[_i / 3].arch);
        take_products(&base, s, m, &slow, target[_i / 3].arch);
    }
    printf("%s %s: %d kernels, %d of the base\n", target[_i / 3].arch, s->name, best.n, base.n);
    ck_assert_int_le(best.n, target[_i / 3].kernels);
    ck_assert_int_le(base.n, target[_i / 3].base);
    release(&best), release(&base);
    variants_free(v);
}
END_TEST

/* ---- Prices ---- */

#define hopper target_rows[TARGET_H200]

/* By how much the tile costs more than the cheapest for these rows. */
static double price(const struct program *q, const struct tile *t)
{
    struct search s = {.p = q, .most = MOST_CANDIDATES, .most_rows = t->most_rows};
    ck_assert(t->mainloop == &mainloop_wgmma && wgmma_fits(q, t) && t->most_rows >= q->dim[1]);
    ck_assert(!t->lends || !t->pingpong || program_blocks(q, t) <= hopper.sms);
    ck_assert_int_le(tile_shared_bytes(q, t), hopper.shared_bytes);
    search_run(&s, &hopper, TILES_KNOWN);
    return wgmma_cost(q, t, &hopper) / s.cost[0];
}

/* The worst of a plan's products. */
static double worst_of(coda_plan *p)
{
    double worst = 1;
    for (int i = 0; i < p->plan.programs; i++) {
        const struct program *q = &p->plan.program[i];
        const struct tile *t = &p->plan.schedule[i].tile;
        if (q->kind != PROGRAM_GEMM) continue;
        double cost = price(q, t);
        if (cost > worst) worst = cost;
    }
    return worst;
}

START_TEST(good_tiles)
{
    struct variants *v = variants_new();
    const struct compile_context context = {.variants = v};
    double sum = 0, worst = 0;
    int n = 0;
    for (int m = 9; m <= 16384; m += 1 + m / (7 * scaled(10)), n++) {
        coda_plan *p = plan_block(&shape[_i], m, &context, "sm_90a");
        double w = worst_of(p);
        sum += w;
        worst = w > worst ? w : worst;
        coda_plan_free(p);
    }
    printf("mean %.4f, worst %.4f\n", sum / n, worst);
    ck_assert_double_le(sum / n, 1.03);
    ck_assert_double_le(worst, 1.25); /* a class is priced at its most rows */
    variants_free(v);
}
END_TEST

/* Tables end at 2^31 rows: more of them are refused by kernels, and need none on the CPU device. */
START_TEST(more_rows_than_a_table)
{
    coda_compile_options o = CODA_COMPILE_OPTIONS_INIT;
    coda_graph *g;
    coda_plan *p;
    ck_assert_int_eq(coda_graph_parse(&g, "dim %T = 1..4294967296\n%x = input bf16[T,64]\n"
                                          "%w = weight bf16[32,64]\n%y = matmul %x, %w\noutput %y = %y"),
                     CODA_OK);
    o.flags = CODA_PLAN_ONLY, o.arch = "sm_90a";
    ck_assert_int_eq(coda_compile(&p, g, &o), CODA_E_UNSUPPORTED);
    ck_assert_msg(strstr(coda_error(), "4294967296") != NULL, "%s", coda_error());
    o.device = CODA_DEVICE_CPU, o.arch = NULL;
    ck_assert_msg(coda_compile(&p, g, &o) == CODA_OK, "%s", coda_error());
    for (int64_t rows = (int64_t)1 << 32; rows; rows /= 2)
        ck_assert_msg(coda_plan_workspace_for(p, &rows) != SIZE_MAX, "%lld rows: %s", (long long)rows,
                      coda_error());
    coda_plan_free(p);
    coda_graph_free(g);
}
END_TEST

TESTS(variants, EACH(few_kernels, 6), EACH(good_tiles, 3), ONE(more_rows_than_a_table));
