/* test_invariant.c -- with CODA_BATCH_INVARIANT all that decides the bits of a row is the same for all
 * numbers of rows, in plans of one shape, in those of many and in those of the base. */
#include "attention_kernel.h"
#include "executable.h"
#include "invariant.h"
#include "mainloop.h"
#include "pipeline.h"
#include "util_scale.h"
#include "variants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h" /* last: Check has a macro named fail */

/* %1$d is the number of rows. */
static const struct {
    const char *name, *text;
    bool steady; /* they have the same facts without the flag */
    int least;   /* rows */
} graphs[] = {
    {"a block, and the norm behind it",
     "%%x = input bf16[%1$d,4096]\n%%a = input bf16[%1$d,4096]\n%%w_o = weight bf16[4096,4096]\n"
     "%%w_up = weight bf16[22016,4096]\n%%w_down = weight bf16[4096,11008]\n%%w_qkv = weight "
     "bf16[12288,4096]\n"
     "%%o = matmul %%a, %%w_o\n%%h = add %%o, %%x\n%%n = rms_norm %%h {eps=1e-5}\n%%u = matmul %%n, %%w_up\n"
     "%%g = slice %%u {axis=1,start=0,stop=11008,step=1}\n%%k = slice %%u "
     "{axis=1,start=11008,stop=22016,step=1}\n"
     "%%m = swiglu %%g, %%k\n%%d = matmul %%m, %%w_down\n%%s = add %%d, %%h\n"
     "%%t = rms_norm %%s {eps=1e-5}\n%%q = matmul %%t, %%w_qkv\n"
     "%%r = rope %%q {base=10000,head_dim=128,rotary=128,heads=64,half=1}\noutput %%y = %%r\noutput %%z = "
     "%%s\n",
     false, 1},
    {"statistics of a gated product, and of one with heads",
     "%%x = input bf16[%1$d,1024]\n%%w = weight bf16[4096,1024]\n%%v = weight bf16[1024,2048]\n"
     "%%u = weight bf16[1024,1024]\n%%a = matmul %%x, %%w\n%%e = slice %%a "
     "{axis=1,start=0,stop=2048,step=1}\n"
     "%%f = slice %%a {axis=1,start=2048,stop=4096,step=1}\n%%g = swiglu %%e, %%f\n"
     "%%n = layer_norm %%g {eps=1e-5}\n%%b = matmul %%n, %%v\n"
     "%%r = rope %%b {base=10000,head_dim=64,rotary=32,heads=16,half=1}\n%%s = log_softmax %%r\n"
     "%%p = matmul %%s, %%u\noutput %%y = %%p\n",
     false, 1},
    {"a head, with its best and its loss",
     "%%x = input bf16[%1$d,2048]\n%%w = weight bf16[32000,2048]\n%%t = input i32[%1$d]\n"
     "%%n = rms_norm %%x {eps=1e-5}\n%%l = matmul %%n, %%w\n%%b = arg_max %%l\n"
     "%%c = cross_entropy %%l, %%t {ignore=-100,reduction=0}\noutput %%y = %%b\noutput %%z = %%c\n",
     false, 1},
    {"columns that are folded, of products and of rows",
     "%%x = input bf16[%1$d,512]\n%%w = weight bf16[768,512]\n%%a = matmul %%x, %%w\n%%s = silu %%a\n"
     "%%c = sum %%s {columns=1}\n%%e = sum_sq %%x {columns=1}\noutput %%y = %%c\noutput %%z = %%e\n"
     "output %%s = %%s\n",
     false, 1},
    {"products in fp32",
     "%%x = input f32[%1$d,256]\n%%w = weight f32[512,256]\n%%a = matmul %%x, %%w\n%%n = log_sum_exp "
     "%%a\noutput %%y = %%n\n",
     false, 1},
    {"rows of an odd pitch",
     "%%x = input bf16[%1$d,520] stride=[521,1]\n%%w = weight bf16[512,520]\n%%a = matmul %%x, %%w\n"
     "%%n = rms_norm %%a {eps=1e-5}\n%%s = rms_norm %%x {eps=1e-5}\noutput %%y = %%n\noutput %%z = %%s\n",
     false, 1},
    {"queries of sequences, one after the other",
     "%%q = input bf16[%1$d,1024]\n%%k = input bf16[4096,256]\n%%v = input bf16[4096,256]\n"
     "%%n = input i32[8]\n%%t = input i32[8,32]\n%%s = input i32[9]\n%%w = weight bf16[1024,1024]\n"
     "%%a = attention %%q, %%k, %%v, %%n, _, _, _, %%t, _, _, %%s "
     "{heads=8,kv_heads=2,causal=1,align=3,page=16}\n"
     "%%o = matmul %%a, %%w\noutput %%y = %%o\n",
     false, 1},
    {"positions that are counted in each sequence",
     "%%x = input bf16[%1$d,12,256]\n%%w = weight bf16[512,256]\n%%a = matmul %%x, %%w\n"
     "%%r = rope %%a {base=10000,head_dim=64,rotary=64,heads=8,half=1}\noutput %%y = %%r\n",
     false, 1},
    {"queries of one sequence",
     "%%q = input bf16[%1$d,1024]\n%%k = input bf16[8192,256]\n%%v = input bf16[8192,256]\n"
     "%%a = attention %%q, %%k, %%v {heads=8,kv_heads=2,causal=1,align=2}\noutput %%y = %%a\n",
     false, 2},
    {"a query of each sequence",
     "%%q = input bf16[%1$d,1,1024]\n%%k = input bf16[%1$d,512,256]\n%%v = input bf16[%1$d,512,256]\n"
     "%%n = input i32[%1$d]\n%%w = weight bf16[1024,1024]\n"
     "%%a = attention %%q, %%k, %%v, %%n {heads=8,kv_heads=2,causal=1,align=3}\n%%o = matmul %%a, %%w\n"
     "output %%y = %%o\n",
     false, 1},
    {"queries in fp32",
     "%%q = input f32[%1$d,256]\n%%k = input f32[900,256]\n%%v = input f32[900,256]\n"
     "%%a = attention %%q, %%k, %%v {heads=1,kv_heads=1}\noutput %%y = %%a\n",
     true, 1},
};

static graph *parse(const char *format, int rows)
{
    char text[4096];
    coda_graph *g = NULL;
    snprintf(text, sizeof text, format, rows);
    ck_assert_msg(coda_graph_parse(&g, text) == CODA_OK, "%s\n%s", coda_error(), text);
    return g;
}

static coda_plan *plan_of(const char *format, int rows, const struct compile_context *context,
                          const char *arch, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    graph *g = parse(format, rows);
    opt.device = CODA_DEVICE_NONE, opt.flags = CODA_PLAN_ONLY | flags, opt.arch = arch;
    ck_assert_msg(compile_graph(&p, g, &opt, context) == CODA_OK, "%d rows: %s", rows, coda_error());
    graph_free(g);
    return p;
}

/* ---- What decides bits ---- */

static void print_product(struct text *t, const struct program *q, const struct tile *tile)
{
    struct arena arena = {0};
    struct epilogue_layout l;
    ck_assert(epilogue_layout_fill(&l, &arena, q, tile));
    text_printf(t, "gemm %s splits=%d serpentine=%d streams=%d", tile->mainloop->name, tile_splits(tile),
                tile->serpentine, tile->mainloop->streams ? tile->blocks : 0);
    text_printf(t, " warp=%d evenly=%d", l.row_team > 2, l.steps_evenly); /* of 1 and 2 bits are equal */
    for (int i = 0; i < q->steps; i++) {
        const struct step *s = &q->step[i];
        if (s->kind != STEP_REDUCE || s->port < 0) continue;
        if (s->axis == REDUCE_COLUMNS) text_printf(t, " columns of %d rows", group_rows(tile));
        else if (!s->prim->exact) text_printf(t, " %d states of %s", (int)l.states, s->prim->name);
    }
    arena_free(&arena);
}

static void print_rows(struct text *t, const struct program *q)
{
    struct arena arena = {0};
    struct rows_walk w;
    ck_assert_int_eq(rows_walk(&w, &arena, q), CODA_OK);
    bool folds = w.folds || w.finishes, reduces = false;
    for (int i = 0; i < q->steps; i++)
        reduces = reduces || q->step[i].kind == STEP_REDUCE || q->step[i].kind == STEP_PARTIAL;
    text_printf(t, "rows folds=%d", folds);
    if (reduces && !folds)
        text_printf(t, " team=%d width=%d pieces=%d items=%d", w.team, w.width, (int)w.pieces, (int)w.items);
    for (int i = 0; i < q->steps && !folds; i++)
        if (q->step[i].kind == STEP_PARTIAL)
            text_printf(t, " lanes=%d", rows_lanes(&w, &q->port[q->step[i].port]));
    arena_free(&arena);
}

static char *facts_of(const coda_plan *p)
{
    struct text t = {0};
    for (int i = 0; i < p->plan.programs; i++) {
        const struct program *q = &p->plan.program[i];
        const struct schedule *s = &p->plan.schedule[i];
        text_printf(&t, "@%d steps=%d ", i, q->steps);
        if (q->kind == PROGRAM_GEMM) print_product(&t, q, &s->tile);
        else if (q->kind == PROGRAM_ROWS) print_rows(&t, q);
        else
            text_printf(&t, "own kernel=%d bn=%d together=%d", s->attention ? (int)s->attention->index : -1,
                        s->tile.bn, s->attention == &attention_split ? 1 : s->cluster);
        text_append(&t, "\n");
    }
    char *facts = strdup(text_str(&t));
    text_free(&t);
    return facts;
}

/* ---- All numbers of rows ---- */

enum { MOST_ROWS = 5000 };

static int next_rows(int m) { return m < 70 ? m + 1 : m + 1 + m / (4 * scaled(4)); }

struct watch {
    const char *text, *arch;
    unsigned flags;
    char *facts; /* of the first plan */
    int plans, other;
    char *example; /* of other facts */
};

static void take(struct watch *w, int rows, const struct compile_context *context)
{
    coda_plan *p = plan_of(w->text, rows, context, w->arch, w->flags);
    char *facts = facts_of(p);
    coda_plan_free(p);
    w->plans++;
    if (!w->facts) {
        w->facts = facts;
        return;
    }
    bool same = !strcmp(facts, w->facts);
    if (!same && !w->other++) asprintf(&w->example, "%d rows:\n%sinstead of\n%s", rows, facts, w->facts);
    free(facts);
}

/* The example of other facts, which is the caller's; NULL if there is none. */
static char *find_other(int index, const char *arch, unsigned flags)
{
    struct watch w = {.text = graphs[index].text, .arch = arch, .flags = flags};
    struct variants *v = variants_new();
    const struct compile_context many = {.variants = v}, base = {.variants = v, .base = true};
    for (int m = graphs[index].least; m <= MOST_ROWS; m = next_rows(m)) {
        take(&w, m, NULL);
        take(&w, m, &many);
        take(&w, m, &base);
    }
    ck_assert_int_gt(w.plans, 200);
    variants_free(v);
    free(w.facts);
    return w.example;
}

START_TEST(bits_have_the_same_reasons)
{
    static const char *const arch[] = {"sm_90a", "sm_80"};
    char *other = find_other(_i / 2, arch[_i % 2], CODA_BATCH_INVARIANT);
    ck_assert_msg(!other, "%s, %s: %s", graphs[_i / 2].name, arch[_i % 2], other);
}
END_TEST

/* Else the test above would prove nothing. */
START_TEST(without_the_flag_they_have_others)
{
    char *other = find_other(_i, "sm_90a", 0);
    ck_assert_msg((other == NULL) == graphs[_i].steady, "%s", graphs[_i].name);
    free(other);
}
END_TEST

/* A tile that tuning has measured for others is not taken. */
START_TEST(a_decision_is_refused)
{
    const char *words = "sm90 64x64x64 stages=5 groups=1 splits=4 band=16";
    coda_plan *p = plan_of(graphs[0].text, 16, NULL, "sm_90a", CODA_BATCH_INVARIANT);
    struct tile wanted, t;
    ck_assert(tile_parse(words, &wanted));
    for (int i = 0; i < p->plan.programs; i++) {
        const struct program *q = &p->plan.program[i];
        if (q->kind != PROGRAM_GEMM) continue;
        for (int class = 0; class <= TILES_NAMED; class ++) {
            struct tile all[MOST_CANDIDATES];
            int n = tile_candidates(q, &p->plan.target, class, all, MOST_CANDIDATES);
            for (int k = 0; k < n; k++) {
                ck_assert_ptr_eq(all[k].mainloop, &mainloop_wgmma);
                ck_assert(tile_splits(&all[k]) == 1 && !all[k].serpentine);
                ck_assert(!program_state_columns(q) || all[k].bn % program_state_columns(q) == 0);
            }
        }
        t = tile_offered(q, &p->plan.target, &wanted);
        ck_assert_int_eq(tile_splits(&t), 1);
    }
    coda_plan_free(p);
}
END_TEST

START_TEST(the_library_is_refused)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    graph *g = parse(graphs[0].text, 16);
    opt.device = CODA_DEVICE_NONE, opt.flags = CODA_PLAN_ONLY | CODA_CUBLASLT | CODA_BATCH_INVARIANT;
    ck_assert_int_eq(coda_compile(&p, g, &opt), CODA_E_INVALID);
    ck_assert_ptr_nonnull(strstr(coda_error(), "CODA_CUBLASLT"));
    graph_free(g);
}
END_TEST

START_TEST(plans_say_so)
{
    char text[65536];
    for (int flag = 0; flag < 2; flag++) {
        coda_plan *p = plan_of(graphs[0].text, 16, NULL, "sm_90a", flag ? CODA_BATCH_INVARIANT : 0);
        coda_plan_print(p, CODA_TEXT_PLAN, text, sizeof text);
        ck_assert_int_eq(strstr(text, " invariant\n") != NULL, flag);
        coda_plan_free(p);
    }
}
END_TEST

TESTS(invariant, SOME(bits_have_the_same_reasons, 2 * ARRAY_SIZE(graphs)),
      SOME(without_the_flag_they_have_others, ARRAY_SIZE(graphs)), ONE(a_decision_is_refused),
      ONE(the_library_is_refused), ONE(plans_say_so));
