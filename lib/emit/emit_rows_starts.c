/*
 * emit_rows_starts.c -- how many rows a kernel walks, and where each starts in the tensors.
 *
 * The text does not say how many there are, nor what follows from that: the launch passes rows or pieces,
 * extents as divisors, and strides. What is constant is a row's columns, and the distance of adjacent rows
 * that lie dense. Where a number does not fit, or there is no room for all of them, they stand in the text.
 */
#include "emit_rows.h"

static bool is_strided(const struct tensor_use *port)
{
    return port->role == USE_LOAD || port->role == USE_STORE;
}

/* By a step that is printed: of a range, some are. */
static bool is_used(const struct emitter *e, int q)
{
    int i = 0;
    if (e->argument[q] < 0 || !is_strided(&e->p->port[q])) return false;
    while (i < e->p->steps && !(e->w->live[i] && e->p->step[i].port == q)) i++;
    return i < e->p->steps;
}

/* Do rows of all dimensions follow each other at one distance? */
static bool is_dense(const struct emitter *e, int q)
{
    const struct rows_walk *w = e->w;
    bool dense = w->rank > 2 && !w->folds && w->stride[q][w->rank - 2];
    for (int d = 0; d + 2 < w->rank; d++)
        dense = dense && w->stride[q][d] == w->stride[q][d + 1] * w->dim[d + 1];
    return dense;
}

/* ---- Indices ---- */

struct word rows_index_word(const struct emitter *e, int d)
{
    return e->w->rank == 2 ? emit_word("row") : emit_word("i%d", d);
}

static bool index_used(const struct emitter *e, int d)
{
    for (int q = 0; q < e->p->ports; q++)
        if (is_used(e, q) && !is_dense(e, q) && (e->w->stride[q][d] || e->p->port[q].role == USE_STORE))
            return true;
    return false;
}

/* The outermost dimension that has an index, of those up to `last`; last + 1 if none has. */
static int first_index(const struct emitter *e, int last)
{
    int d = 0;
    while (d <= last && (e->w->rank <= 2 || !index_used(e, d))) d++;
    return d;
}

static bool divides_by(const struct emitter *e, int d)
{
    int last = e->w->rank - (e->w->folds ? 3 : 2);
    return d > 0 && d <= last && d >= first_index(e, last);
}

/* By divisors, from the innermost dimension outwards. */
static void divide(struct emitter *e, const char *name, int last)
{
    int first = first_index(e, last);
    struct word rest = emit_word("(u32)%s", name);
    for (int d = last; d >= first; d--) {
        struct word next = emit_word("n%d", d);
        if (d > first) rows_line(e, "const u32 n%d = a.d%d.quotient(%s);", d, d, rest.s);
        if (d == 0) rows_line(e, "const i64 i0 = %s;", rest.s);
        else if (d == first) rows_line(e, "const i64 i%d = a.d%d.rest(%s);", d, d, rest.s);
        else if (index_used(e, d)) rows_line(e, "const i64 i%d = %s - n%d * a.d%d.number;", d, rest.s, d, d);
        rest = next;
    }
}

/* In dimensions up to `last`, of what is called `name`. */
static void print_indices(struct emitter *e, const char *name, int last)
{
    int64_t inner = 1;
    if (e->passes) {
        divide(e, name, last);
        return;
    }
    for (int d = last; d >= 0 && e->w->rank > 2; d--) {
        struct word by = inner > 1 ? emit_word(" / %lld", (wide)inner) : emit_word("%s", "");
        struct word rest = d > 0 ? emit_word(" %% %lld", (wide)e->w->dim[d]) : emit_word("%s", "");
        if (index_used(e, d))
            rows_line(e, "const i64 i%d = (%s)%s%s%s;", d, rows_index_type(e), name, by.s, rest.s);
        inner *= e->w->dim[d];
    }
}

void rows_matrix_indices(struct emitter *e) { print_indices(e, "matrix", e->w->rank - 3); }

struct word rows_row_index(const struct emitter *e) { return rows_index_word(e, e->w->rank - 2); }

/* ---- Strides ---- */

/* Is it what the row's columns make it? */
static bool is_pitch(const struct emitter *e, int q, int d)
{
    const struct rows_walk *w = e->w;
    return d == w->rank - 2 && !w->joined && w->stride[q][d] == w->columns * w->stride[q][w->rank - 1];
}

static bool passes_stride(const struct emitter *e, int q, int d)
{
    int64_t stride = e->w->stride[q][d];
    bool inner = d == e->w->rank - 2;
    return e->passes && !e->p->ranges && is_used(e, q) && stride && stride != 1 && !is_pitch(e, q, d) &&
           (inner || !is_dense(e, q));
}

/* " + row * 4096": from where the rows start to the one with this index in dimension d. */
static void print_term(const struct emitter *e, int q, int d, const char *index, struct text *at)
{
    int64_t stride = e->w->stride[q][d];
    if (passes_stride(e, q, d)) text_printf(at, " + %s * a.s%d_%d", index, q, d);
    else if (stride == 1) text_printf(at, " + %s", index);
    else if (stride) text_printf(at, " + %s * %lld", index, (wide)stride);
}

static void print_start(struct emitter *e, int q)
{
    const struct tensor_use *port = &e->p->port[q];
    struct text at = {0};
    if (is_dense(e, q)) print_term(e, q, e->w->rank - 2, "row", &at);
    for (int d = 0; d + 1 < e->w->rank && !is_dense(e, q); d++)
        print_term(e, q, d, rows_index_word(e, d).s, &at);
    rows_line(e, "%s%s *p%d = a.a%d%s;", port->role == USE_STORE ? "" : "const ", emit_dtype(port->dtype), q,
              e->argument[q], text_str(&at));
    e->t->failed = e->t->failed || at.failed;
    text_free(&at);
}

void rows_starts(struct emitter *e)
{
    print_indices(e, "row", e->w->rank - 2);
    rows_pointers(e);
}

void rows_pointers(struct emitter *e)
{
    for (int q = 0; q < e->p->ports; q++)
        if (is_used(e, q)) print_start(e, q);
}

/* ---- Positions, tables ---- */

static bool has_period(const struct emitter *e)
{
    int i = pair_step(e->p);
    return i >= 0 && e->w->live[i] && e->p->step[i].in[READS_POSITION] < 0 &&
           e->p->pairing.period < e->w->rows;
}

struct word rows_position(const struct emitter *e)
{
    int64_t period = MAX(e->p->pairing.period, 1);
    if (!e->passes) return emit_word("(float)((%s)row %% %lld)", rows_index_type(e), (wide)period);
    return emit_word(has_period(e) ? "(float)a.period.rest((u32)row)" : "(float)(u32)row");
}

static bool has_table(const struct emitter *e, int q)
{
    return e->argument[q] >= 0 && use_is_indexed(&e->p->port[q]);
}

struct word rows_of_table(const struct emitter *e, int q)
{
    if (e->passes && has_table(e, q)) return emit_word("a.t%d", q);
    return emit_word("%lld", (wide)e->p->port[q].table_rows);
}

/* ---- States that tiles have left of a row ---- */

static bool has_states(const struct emitter *e, int q)
{
    return e->argument[q] >= 0 && e->p->port[q].role == USE_PARTIAL_LOAD;
}

struct word rows_states(const struct emitter *e, int q)
{
    return e->passes ? emit_word("a.states%d", q) : emit_word("%d", e->p->port[q].blocks);
}

/* ---- Arguments ---- */

static struct word number(const struct emitter *e, const char *name, int64_t n, const char *suffix)
{
    return e->passes ? emit_word("a.%s", name) : emit_word("%lld%s", (wide)n, suffix);
}

struct word rows_blocks_word(const struct emitter *e) { return number(e, "blocks", e->w->blocks, ""); }

struct word rows_of_matrix(const struct emitter *e)
{
    return number(e, "rows", e->w->dim[e->w->rank - 2], "");
}

struct word rows_of_part(const struct emitter *e) { return number(e, "part_rows", e->w->part_rows, ""); }

/* The matrix of part `part` of all, and its number there. */
struct word rows_matrix(const struct emitter *e)
{
    if (e->passes) return emit_word("a.parts.quotient((u32)part)");
    return emit_word("part / %lld", (wide)e->w->parts);
}

struct word rows_part(const struct emitter *e)
{
    if (e->w->matrices <= 1) return emit_word("part");
    return e->passes ? emit_word("(i64)a.parts.rest((u32)part)")
                     : emit_word("part %% %lld", (wide)e->w->parts);
}

struct word rows_count(const struct emitter *e) { return number(e, "rows", e->w->rows, ""); }

struct word rows_pieces(const struct emitter *e, const char *suffix)
{
    return number(e, "pieces", e->w->rows * e->w->pieces, suffix);
}

static void pass_number(struct emitter *e, const char *type, struct word name, int64_t n)
{
    emit_number(e->k, n);
    text_printf(e->t, "    %s %s;\n", type, name.s);
}

static void pass_divisor(struct emitter *e, struct word name, int64_t n)
{
    emit_divisor(e->k, n);
    text_printf(e->t, "    Divisor %s;\n", name.s);
}

/* Blocks of columns: parts of how many rows, and of which parts a matrix has how many. */
static void pass_blocks(struct emitter *e)
{
    const struct rows_walk *w = e->w;
    pass_number(e, "u32", emit_word("blocks"), w->blocks);
    if (!w->folds) return;
    pass_number(e, "u32", emit_word("rows"), w->dim[w->rank - 2]);
    pass_number(e, "u32", emit_word("part_rows"), w->part_rows);
    if (w->matrices > 1) pass_divisor(e, emit_word("parts"), w->parts);
}

void rows_pass_numbers(struct emitter *e)
{
    const struct rows_walk *w = e->w;
    if (!e->passes) return;
    if (w->folds || w->finishes) pass_blocks(e);
    else if (w->team) pass_number(e, "u32", emit_word("rows"), w->rows);
    else pass_number(e, "u32", emit_word("pieces"), w->rows * w->pieces);
    if (rows_divides_pieces(e)) pass_divisor(e, emit_word("row_pieces"), w->pieces);
    for (int d = 0; d < w->rank; d++)
        if (divides_by(e, d)) pass_divisor(e, emit_word("d%d", d), w->dim[d]);
    if (has_period(e)) pass_divisor(e, emit_word("period"), e->p->pairing.period);
    for (int q = 0; q < e->p->ports; q++) {
        for (int d = 0; d + 1 < w->rank; d++)
            if (passes_stride(e, q, d)) pass_number(e, "i32", emit_word("s%d_%d", q, d), w->stride[q][d]);
        if (has_table(e, q)) pass_number(e, "u32", emit_word("t%d", q), e->p->port[q].table_rows);
        if (has_states(e, q)) pass_number(e, "i32", emit_word("states%d", q), e->p->port[q].blocks);
    }
}

bool rows_divides_pieces(const struct emitter *e)
{
    return e->passes && e->w->joined && e->w->rank > 1 && !e->w->finishes;
}

bool rows_has_divisors(const struct emitter *e)
{
    bool any = rows_divides_pieces(e) || has_period(e) || (e->w->folds && e->w->matrices > 1);
    for (int d = 0; d < e->w->rank; d++) any = any || divides_by(e, d);
    return any && e->passes;
}

/* ---- May they be passed? ---- */

/* As i32, and as what a Divisor divides. */
static bool fits(int64_t n) { return n > -((int64_t)1 << 31) && n < (int64_t)1 << 31; }

static bool port_fits(const struct emitter *e, int q)
{
    bool good = !has_table(e, q) || fits(e->p->port[q].table_rows);
    for (int d = 0; d + 1 < e->w->rank && is_used(e, q); d++) good = good && fits(e->w->stride[q][d]);
    return good;
}

bool rows_may_pass(const struct emitter *e)
{
    const struct rows_walk *w = e->w;
    int each = w->rank, scalars = e->k->scalars + 1 + 3 * (w->rank + 2);
    bool good = fits(w->rows) && fits(mul_counts(w->rows, MAX(w->pieces, 1))) && fits(w->blocks);
    for (int q = 0; q < e->p->ports && good; q++) good = port_fits(e, q);
    return good && e->k->pointers + CEIL_DIV(scalars + e->p->ports * each, 2) <= KERNEL_MAX_POINTERS;
}
