/*
 * test_text_count.c -- how many kernels the plans of many shapes of one graph have between them, but for
 * attention's: what depends on a number of rows, sequences or tokens is an argument.
 */
#include "coda.h"
#include "base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

enum { MOST_TEXTS = 1024, MOST_NUMBERS = 4 };

/* ---- A graph of examples in another shape ---- */

/* A file, or a text, in which each `was` becomes what it `is`, with a number in it. */
struct shape {
    const char *file, *text, *was[MOST_NUMBERS], *is[MOST_NUMBERS];
};

static const struct shape llama = {"llama.coda", NULL, {"bf16[2048,4096]"}, {"bf16[%d,4096]"}};
static const struct shape bert_batch = {
    "bert.coda", NULL, {"bf16[16,512,768]", "i32[16]"}, {"bf16[%d,512,768]", "i32[%d]"}};
static const struct shape bert_tokens = {"bert.coda", NULL, {"bf16[16,512,768]"}, {"bf16[16,%d,768]"}};
static const struct shape cache = {
    "llama_cache.coda", NULL, {"dim %B = 1..64\n", "[B,", "[B]"}, {"", "[%d,", "[%d]"}};

/* Programs over rows, of one and of several sequences: broadcast, turned, gathered, folded both ways. */
static const struct shape rows = {"rows",
                                  "%x = input bf16[3,T,12,64]\n"
                                  "%p = input bf16[T,768]\n"
                                  "%ids = input i32[3,T]\n"
                                  "%w = weight bf16[1000,768]\n"
                                  "%turned = transpose %x {p0=0,p1=2,p2=1,p3=3}\n"
                                  "%a = relu %turned\n"
                                  "%flat = reshape %x {rank=3,d0=3,d1=T,d2=768}\n"
                                  "%b = add %flat, %p\n"
                                  "%e = embedding %w, %ids\n"
                                  "%r = rope %flat {base=10000,head_dim=64,rotary=64,heads=12}\n"
                                  "%n = rms_norm %p {eps=1e-5}\n"
                                  "%s = sum %p {columns=1}\n"
                                  "%k = top_k %p {k=6}\n"
                                  "%m = arg_max %flat\n"
                                  "output %a = %a\noutput %b = %b\noutput %e = %e\noutput %r = %r\n"
                                  "output %n = %n\noutput %s = %s\noutput %k = %k\noutput %m = %m\n",
                                  {"T"},
                                  {"%d"}};
/* Products: of a batch, and of a vocabulary, whose tiles leave states and candidates of each row. */
static const struct shape products = {"products",
                                      "%x = input bf16[4,T,512]\n"
                                      "%w = input bf16[4,768,512]\n"
                                      "%h = input bf16[T,256]\n"
                                      "%v = weight bf16[4000,256]\n"
                                      "%ids = input i32[T]\n"
                                      "%y = matmul %x, %w\n"
                                      "%z = relu %y\n"
                                      "%l = matmul %h, %v\n"
                                      "%k = top_k %l {k=4}\n"
                                      "%m = arg_max %l\n"
                                      "%c = cross_entropy %l, %ids\n"
                                      "output %z = %z\noutput %k = %k\noutput %m = %m\noutput %c = %c\n",
                                      {"T"},
                                      {"%d"}};

static char *read_graph(const char *name)
{
    char path[256], *text = calloc(1, 1 << 16);
    snprintf(path, sizeof path, "examples/graphs/%s", name);
    FILE *f = fopen(path, "r");
    ck_assert_msg(f && text, "%s", path);
    ck_assert_uint_gt(fread(text, 1, (1 << 16) - 1, f), 0);
    fclose(f);
    return text;
}

/* How long a replacement is, which a text begins with; -1: it begins with none. */
static int replace(const struct shape *s, const char **at, int m, char *out, size_t room)
{
    for (int i = 0; i < MOST_NUMBERS && s->was[i]; i++) {
        size_t length = strlen(s->was[i]);
        if (strncmp(*at, s->was[i], length) != 0) continue;
        *at += length;
        int n = 0;
        for (const char *c = s->is[i]; *c; c++)
            if (c[0] == '%' && c[1] == 'd') n += snprintf(out + n, room - (size_t)n, "%d", m), c++;
            else out[n++] = *c;
        return n;
    }
    return -1;
}

static coda_graph *graph_of(const struct shape *s, const char *text, int m)
{
    static char out[1 << 17];
    coda_graph *g;
    size_t n = 0;
    while (*text) {
        int length = replace(s, &text, m, out + n, 256);
        if (length >= 0) n += (size_t)length;
        else out[n++] = *text++;
    }
    out[n] = 0;
    ck_assert_msg(coda_graph_parse(&g, out) == CODA_OK, "%s", coda_error());
    return g;
}

/* ---- Texts ---- */

struct texts {
    char *text[MOST_TEXTS];
    int n, kernels;
};

static void take(struct texts *all, const char *text)
{
    all->kernels++;
    for (int i = 0; i < all->n; i++)
        if (!strcmp(all->text[i], text)) return;
    ck_assert_int_lt(all->n, MOST_TEXTS);
    all->text[all->n++] = strdup(text);
}

static void take_kernels(struct texts *all, coda_graph *g, const char *arch)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_kernel_info info = CODA_KERNEL_INFO_INIT;
    coda_plan *p;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    opt.arch = arch;
    ck_assert_msg(coda_compile(&p, g, &opt) == CODA_OK, "%s", coda_error());
    for (int i = 0; i < coda_plan_kernels(p); i++) {
        ck_assert_int_eq(coda_plan_kernel(p, i, &info), CODA_OK);
        if (!strstr(info.name, "attention")) take(all, info.source);
    }
    coda_plan_free(p);
    coda_graph_free(g);
}

static const struct {
    const struct shape *shape;
    const char *arch;
    int most, texts; /* the largest number; at most so many texts of all plans */
} target[] = {
    {&llama, "sm_90a", 16384, 116},  {&llama, "sm_80", 16384, 29},       {&bert_batch, "sm_90a", 256, 45},
    {&bert_batch, "sm_80", 256, 14}, {&bert_tokens, "sm_90a", 512, 100}, {&bert_tokens, "sm_80", 512, 36},
    {&cache, "sm_90a", 512, 64},     {&cache, "sm_80", 512, 22},         {&rows, "sm_90a", 4096, 11},
    {&products, "sm_90a", 2048, 48}, {&products, "sm_80", 2048, 19},
};

START_TEST(shapes_share_texts)
{
    struct texts all = {.n = 0};
    const char *arch = target[_i].arch;
    const struct shape *s = target[_i].shape;
    char *text = s->text ? strdup(s->text) : read_graph(s->file);
    for (int m = 1; m <= target[_i].most; m += m < 64 ? 1 : m < 1024 ? 31 : 331)
        take_kernels(&all, graph_of(s, text, m), arch);
    ck_assert_int_gt(all.kernels, 3 * target[_i].texts);
    ck_assert_msg(all.n <= target[_i].texts, "%s, %s: %d texts of %d kernels; at most %d", s->file, arch,
                  all.n, all.kernels, target[_i].texts);
    for (int i = 0; i < all.n; i++) free(all.text[i]);
    free(text);
}
END_TEST

TESTS(text_count, SOME(shapes_share_texts, ARRAY_SIZE(target)));
