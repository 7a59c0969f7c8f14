/* emit_top_k.c -- the k largest of each row become a kernel: the struct of constants that tile/top_k.cuh
 * wants, and the entry. */
#include <inttypes.h>

#include "emit.h"
#include "emit_text.h"
#include "top_k.h"
#include "view.h"

/* ---- Numbers: of rows, and what follows from that, arguments wherever they fit ---- */

static bool fits(int64_t n) { return n > -((int64_t)1 << 31) && n < (int64_t)1 << 31; }

/* Leading dimensions that lie as one have one stride. A single row has that of several. */
static bool is_even(const struct program *p, const struct top_k_spec *s, int64_t *stride)
{
    struct type x = {.dtype = s->use[TOP_K_X].dtype, .rank = p->rank};
    for (int d = 0; d < p->rank; d++) x.dim[d] = p->dim[d];
    bool even = view_collapse(&x, s->use[TOP_K_X].stride, 0, p->rank - 1, stride);
    if (s->rows == 1) *stride = s->columns * s->use[TOP_K_X].stride[p->rank - 1];
    return even;
}

static bool passes(const struct program *p, const struct top_k_spec *s)
{
    bool good = fits(s->rows);
    for (int d = 0; d + 1 < p->rank; d++) good = good && fits(s->use[TOP_K_X].stride[d]);
    return good;
}

static struct word number(struct kernel *k, struct text *args, const char *type, struct word name, int64_t n)
{
    emit_number(k, n);
    text_printf(args, "    %s %s;\n", type, name.s);
    return emit_word("a.%s", name.s);
}

static struct word divisor(struct kernel *k, struct text *args, int d, int64_t n)
{
    emit_divisor(k, n);
    text_printf(args, "    Divisor d%d;\n", d);
    return emit_word("a.d%d", d);
}

/* Rows whose dimensions are walked one by one, from the innermost on. */
static void print_steps(const struct program *p, const struct top_k_spec *s, struct kernel *k,
                        struct text *args, struct text *t)
{
    struct text at = {0};
    struct word rest = emit_word("(u32)row");
    int first = 0;
    while (p->dim[first] == 1) first++;
    for (int d = p->rank - 2; d >= first; d--) {
        if (p->dim[d] == 1) continue;
        struct word stride = number(k, args, "i32", emit_word("s%d", d), s->use[TOP_K_X].stride[d]),
                    index = rest;
        if (d > first) {
            struct word by = divisor(k, args, d, p->dim[d]);
            text_printf(t, "        const u32 n%d = %s.quotient(%s), i%d = %s - n%d * %s.number;\n", d, by.s,
                        rest.s, d, rest.s, d, by.s);
            index = emit_word("i%d", d);
            rest = emit_word("n%d", d);
        }
        text_printf(&at, "%s(i64)%s * %s", d < p->rank - 2 && text_str(&at)[0] ? " + " : "", index.s,
                    stride.s);
    }
    text_printf(t, "        return %s;\n", text_str(&at));
    t->failed = t->failed || at.failed;
    text_free(&at);
}

/* The same with all numbers in the text. */
static void print_constant_steps(const struct program *p, const struct top_k_spec *s, struct text *t)
{
    int64_t inner = 1;
    text_append(t, "        return ");
    for (int d = p->rank - 2; d >= 0; inner *= p->dim[d--])
        text_printf(t, "row / %" PRId64 " %% %" PRId64 " * %" PRId64 "%s", inner, p->dim[d],
                    s->use[TOP_K_X].stride[d], d ? " + " : ";\n");
}

/* Where a row begins. */
static void emit_start(const struct program *p, const struct top_k_spec *s, struct kernel *k,
                       struct text *args, struct text *t)
{
    int64_t stride = 0;
    text_append(t, "    DEV static i64 start(const Args &a, i64 row)\n    {\n");
    if (s->use[TOP_K_X].reduce) text_append(t, "        return row * 2 * a.columns;\n");
    else if (!is_even(p, s, &stride)) {
        if (passes(p, s)) print_steps(p, s, k, args, t);
        else print_constant_steps(p, s, t);
    } else if (stride == s->columns * s->use[TOP_K_X].stride[p->rank - 1] || !fits(stride))
        text_printf(t, "        return row * %" PRId64 ";\n", stride);
    else text_printf(t, "        return row * %s;\n", number(k, args, "i32", emit_word("pitch"), stride).s);
    text_append(t, "    }\n");
}

static void emit_config(const struct program *p, const struct schedule *of, struct kernel *k,
                        struct text *args, struct text *t)
{
    const struct top_k_spec *s = p->spec;
    text_append(t, "\nstruct Config {\n");
    if (s->use[TOP_K_X].reduce)
        text_append(t, "    // elements and columns that tiles of a product have left\n");
    text_printf(t, "    typedef %s T;\n", emit_dtype(s->use[TOP_K_X].dtype));
    emit_constant(t, "bool", "parts", s->use[TOP_K_X].reduce != NULL);
    emit_constant(t, "i64", "stride", s->use[TOP_K_X].reduce ? 2 : s->use[TOP_K_X].stride[p->rank - 1]);
    emit_constant(t, "i32", "k", s->k);
    emit_constant(t, "i32", "rows_at_once", of->tile.bm);
    emit_constant(t, "i32", "warps", of->tile.groups);
    emit_start(p, s, k, args, t);
    text_append(t, "};\n");
}

static void emit_result(struct kernel *k, const struct tensor_use *out, struct text *args, struct text *call)
{
    if (out->buffer < 0) {
        text_append(call, ", (i32 *)nullptr");
        return;
    }
    int pointer = emit_pointer(k, out->buffer, 0);
    text_printf(args, "    %s *a%d;\n", emit_dtype(out->dtype), pointer);
    text_printf(call, ", a.a%d", pointer);
}

/* Prints what a row consists of: columns, or the candidates that tiles have left. */
static void print_head(const struct top_k_spec *s, const struct schedule *of, struct text *t)
{
    text_printf(t, "// the %" PRId64 " largest of ", s->k);
    if (s->use[TOP_K_X].reduce) text_append(t, "a row's candidates");
    else text_printf(t, "rows of %" PRId64, s->columns);
    text_printf(t, ", %d warp%s for each\n", of->tile.groups, of->tile.groups > 1 ? "s" : "");
    text_append(t, "#include \"divisor.cuh\"\n#include \"ptx/control.cuh\"\n#include \"tile/top_k.cuh\"\n");
    text_append(t, "\nusing namespace coda;\n");
}

static void print_kernel(const struct program *p, const struct schedule *of, struct kernel *k, struct text *t)
{
    const struct top_k_spec *s = p->spec;
    struct text args = {0}, call = {0}, config = {0};
    struct word rows = emit_word("%" PRId64, s->rows), columns = emit_word("%" PRId64, s->columns);
    emit_use(k, &s->use[TOP_K_X]);
    emit_result(k, &s->use[TOP_K_VALUES], &args, &call);
    emit_result(k, &s->use[TOP_K_INDICES], &args, &call);
    if (fits(s->rows)) rows = number(k, &args, "i32", emit_word("rows"), s->rows);
    if (s->use[TOP_K_X].reduce) columns = number(k, &args, "u32", emit_word("columns"), top_k_candidates(s));
    emit_config(p, of, k, &args, &config);
    print_head(s, of, t);
    text_printf(t, "\nstruct Args {\n    const %s *a0;\n%s};\n", emit_dtype(s->use[TOP_K_X].dtype),
                text_str(&args));
    text_append(t, text_str(&config));
    text_append(t, "\nusing Shared = TopK<Config>::Shared;\n");
    emit_body(t);
    if (of->pdl) text_append(t, "    ptx::grid_wait();\n");
    if (of->grid)
        text_printf(t, "    TopK<Config>::run(block, a, a.a0%s, %s, %s);\n", text_str(&call), rows.s,
                    columns.s);
    text_append(t, "}\n");
    emit_entry(k, &(struct entry){.declares = true}, t);
    t->failed = t->failed || args.failed || call.failed || config.failed;
    text_free(&args);
    text_free(&call);
    text_free(&config);
}

coda_status emit_top_k(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k)
{
    struct text t = {0};
    k->symbol = emit_symbol(plan, p, "coda_top_k");
    if (k->symbol) print_kernel(p, s, k, &t);
    k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return failed ? fail(CODA_E_MEMORY, "top_k: no memory for the kernel's text") : CODA_OK;
}
