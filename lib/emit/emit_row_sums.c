/* emit_row_sums.c -- the two programs that add rows by id become kernels: the struct of constants that
 * tile/sort_ids.cuh or tile/row_sums.cuh wants, and the entry. Numbers of tokens and of rows are arguments.
 * */
#include <inttypes.h>

#include "emit.h"
#include "emit_text.h"
#include "row_sums.h"

static void print_number(struct kernel *k, const char *name, int64_t n, struct text *args)
{
    emit_number(k, n);
    text_printf(args, "    u32 %s;\n", name);
}

/* The stride from one row or id to the next: an argument, unless the text may say it. */
static void print_stride(struct kernel *k, int64_t stride, int64_t dense, struct text *args,
                         struct text *config)
{
    bool says = stride == dense || stride < 0 || stride >= (int64_t)1 << 31;
    text_append(config, "    DEV static i64 stride(const Args &a) { return ");
    if (says) text_printf(config, "%" PRId64 "; }\n", stride);
    else text_append(config, "a.stride; }\n");
    if (!says) print_number(k, "stride", stride, args);
}

/* What sorts has few blocks: those of the kernel that adds may wait beside them. */
static void print_text(const char *what, const char *file, const char *kernel, const char *call, bool sorts,
                       const struct schedule *of, struct kernel *k, const struct text *args,
                       const struct text *config, struct text *t)
{
    text_printf(t, "// %s\n#include \"ptx/control.cuh\"\n#include \"tile/%s.cuh\"\n\nusing namespace coda;\n",
                what, file);
    text_printf(t, "\nstruct Args {\n%s};\n\nstruct Config {\n%s};\n", text_str(args), text_str(config));
    text_printf(t, "\nusing Shared = %s<Config>::Shared;\n", kernel);
    emit_body(t);
    if (of->pdl && sorts) text_append(t, "    ptx::grid_launch_next();\n");
    if (of->pdl) text_append(t, "    ptx::grid_wait();\n");
    if (of->grid) text_printf(t, "    %s<Config>::run(block, a, %s);\n", kernel, call);
    text_append(t, "}\n");
    emit_entry(k, &(struct entry){.declares = true}, t);
    t->failed = t->failed || args->failed || config->failed;
}

static coda_status finish(struct plan *plan, struct kernel *k, struct text *t, const char *kind)
{
    k->text = arena_string(&plan->arena, text_str(t));
    bool failed = t->failed || plan->arena.failed;
    text_free(t);
    return failed ? fail(CODA_E_MEMORY, "%s: no memory for the kernel's text", kind) : CODA_OK;
}

/* ---- Sorting ---- */

static void print_sort(const struct sort_ids_spec *s, const struct schedule *of, struct kernel *k,
                       struct text *t)
{
    struct text args = {0}, config = {0};
    const struct tensor_use *ids = &s->use[ROW_SUMS_IDS];
    int from = emit_use(k, ids), to = emit_use(k, &s->use[ROW_SUMS_SUMS]);
    text_printf(&args, "    const %s *a%d;\n    i32 *a%d;\n", emit_dtype(ids->dtype), from, to);
    print_number(k, "tokens", s->tokens, &args);
    print_number(k, "rows", s->rows, &args);
    text_printf(&config, "    typedef %s T;\n", emit_dtype(ids->dtype));
    emit_constant(&config, "i32", "threads", of->threads);
    emit_constant(&config, "u32", "range", of->tile.bm);
    print_stride(k, ids->stride[0], 1, &args, &config);
    print_text("the tokens of each id, in their order", "sort_ids", "SortIds",
               emit_word("a.a%d, a.a%d, a.tokens, a.rows", from, to).s, true, of, k, &args, &config, t);
    text_free(&args);
    text_free(&config);
}

coda_status emit_sort_ids(struct plan *plan, const struct program *p, const struct schedule *s,
                          struct kernel *k)
{
    struct text t = {0};
    k->symbol = emit_symbol(plan, p, "coda_sort_ids");
    if (k->symbol) print_sort(p->spec, s, k, &t);
    return finish(plan, k, &t, "sort_ids");
}

/* ---- Adding ---- */

static void print_config(const struct row_sums_spec *s, const struct schedule *of, struct text *t)
{
    const struct tensor_use *x = &s->use[ROW_SUMS_X];
    text_printf(t, "    typedef %s T;\n", emit_dtype(x->dtype));
    emit_constant(t, "u32", "columns", s->columns);
    emit_constant(t, "i64", "column_stride", x->stride[1]);
    emit_constant(t, "i32", "threads", of->threads);
    emit_constant(t, "i32", "lanes", of->tile.groups);
    emit_constant(t, "i32", "slice_lanes", of->tile.bk * of->tile.groups / of->tile.bn);
    emit_constant(t, "i32", "width", of->tile.bn / of->tile.groups);
    emit_constant(t, "u32", "most_rows", ROW_SUMS_MOST_ROWS);
    emit_constant(t, "i32", "piece", ROW_SUMS_PIECE);
    emit_constant(t, "bool", "adds", (use_effect(&s->use[ROW_SUMS_SUMS]) & EFFECT_ADD) != 0);
}

/* Tokens of each of so many shares: whole pieces. */
static int64_t share(int64_t tokens, int shares)
{
    int64_t pieces = CEIL_DIV(tokens, ROW_SUMS_PIECE);
    return shares ? CEIL_DIV(pieces, shares) * ROW_SUMS_PIECE : 0;
}

static void print_sums(const struct row_sums_spec *s, const struct schedule *of, struct kernel *k,
                       struct text *t)
{
    struct text args = {0}, config = {0};
    const struct tensor_use *x = &s->use[ROW_SUMS_X];
    int from = emit_use(k, x), by = emit_use(k, &s->use[ROW_SUMS_IDS]),
        to = emit_use(k, &s->use[ROW_SUMS_SUMS]);
    text_printf(&args, "    const %s *a%d;\n    const i32 *a%d;\n    f32 *a%d;\n", emit_dtype(x->dtype), from,
                by, to);
    print_number(k, "tokens", s->tokens, &args);
    print_number(k, "rows", s->rows, &args);
    print_number(k, "rows_at_once", of->tile.bm, &args);
    print_number(k, "shares", of->tile.blocks, &args);
    print_number(k, "share", share(s->tokens, of->tile.blocks), &args);
    print_config(s, of, &config);
    print_stride(k, x->stride[0], s->columns, &args, &config);
    print_text(
        "rows added by id", "row_sums", "RowSums",
        emit_word("a.a%d, a.a%d, a.a%d, a.tokens, a.rows, a.rows_at_once, a.shares, a.share", from, by, to).s,
        false, of, k, &args, &config, t);
    text_free(&args);
    text_free(&config);
}

coda_status emit_row_sums(struct plan *plan, const struct program *p, const struct schedule *s,
                          struct kernel *k)
{
    struct text t = {0};
    k->symbol = emit_symbol(plan, p, "coda_row_sums");
    if (k->symbol) print_sums(p->spec, s, k, &t);
    return finish(plan, k, &t, "row_sums");
}
