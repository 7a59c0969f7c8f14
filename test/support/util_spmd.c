/* util_spmd.c -- random graphs that are split over ranks. */
#include "util_spmd.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A value, in both texts: they differ where the split one has an exchange. */
struct value {
    int whole, split;
    enum spmd_lies lies;
    int64_t columns; /* of the whole */
};

enum { MOST_VALUES = 96 };

struct maker {
    struct spmd *s;
    struct random r;
    int64_t rows;
    int values, named;
    int last; /* the split text's last exchange; -1 */
    struct value value[MOST_VALUES];
};

static void put(struct spmd *s, char *text, const char *format, va_list args)
{
    size_t used = strlen(text);
    if (vsnprintf(text + used, SPMD_TEXT - used, format, args) >= (int)(SPMD_TEXT - used)) s->failed = true;
}

/* A line of the split text; of the whole's; of both. */
static void PRINTF(2, 3) say_split(struct maker *m, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(m->s, m->s->split, format, args);
    va_end(args);
}

static void PRINTF(2, 3) say_whole(struct maker *m, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(m->s, m->s->whole, format, args);
    va_end(args);
}

/* ---- Leaves ---- */

static int64_t elements(const struct spmd_tensor *t) { return (t->dim[0] ? t->dim[0] : 1) * t->dim[1]; }

static void declare(struct maker *m, const struct spmd_tensor *t, bool split)
{
    int64_t rows = t->dim[0], columns = t->dim[1];
    char dims[64];
    if (split && t->lies == SPMD_ROWS) rows /= m->s->ranks;
    if (split && t->lies == SPMD_COLUMNS) columns /= m->s->ranks;
    if (rows) snprintf(dims, sizeof dims, "%lld,%lld", (long long)rows, (long long)columns);
    else snprintf(dims, sizeof dims, "%lld", (long long)columns);
    (split ? say_split : say_whole)(m, "%%%s = input %s [%s]\n", t->name, t->ids ? "i32" : "f32", dims);
}

/* rows 0: a vector. Ids are below `below`, and some are out of range where that says so. */
static const char *leaf(struct maker *m, const char *word, enum spmd_lies lies, int64_t rows, int64_t columns,
                        int64_t below, double scale)
{
    struct spmd *s = m->s;
    if (s->leaves == SPMD_LEAVES) return s->failed = true, "none";
    struct spmd_tensor *t = &s->leaf[s->leaves++];
    *t = (struct spmd_tensor){.lies = lies, .ids = below > 0, .dim = {rows, columns}};
    snprintf(t->name, sizeof t->name, "%s%d", word, s->leaves);
    t->values = calloc((size_t)elements(t), sizeof *t->values);
    for (int64_t i = 0; t->values && i < elements(t); i++)
        t->values[i] = below ? (float)random_below(&m->r, below)
                             : (float)(floor(random_normal(&m->r) * scale * 65536) / 65536);
    if (lies != SPMD_FIRST) declare(m, t, false);
    declare(m, t, true);
    return t->name;
}

static struct value *add(struct maker *m, enum spmd_lies lies, int64_t columns)
{
    if (m->values == MOST_VALUES) return m->s->failed = true, &m->value[0];
    m->value[m->values] = (struct value){m->named, m->named, lies, columns};
    m->named++;
    return &m->value[m->values++];
}

static void input(struct maker *m, enum spmd_lies lies, int64_t columns)
{
    const char *name = leaf(m, "x", lies, m->rows, columns, 0, 1);
    const struct value *v = add(m, lies, columns);
    say_whole(m, "%%v%d = scale %%%s {alpha=1}\n", v->whole, name);
    say_split(m, "%%v%d = scale %%%s {alpha=1}\n", v->split, name);
}

/* ---- Operations: the same line in both ---- */

static struct value *same_line(struct maker *m, const char *op, const struct value *x, const char *with,
                               enum spmd_lies lies, int64_t columns)
{
    struct value from = *x, *y = add(m, lies, columns);
    say_whole(m, "%%v%d = %s %%v%d%s\n", y->whole, op, from.whole, with);
    say_split(m, "%%v%d = %s %%v%d%s\n", y->split, op, from.split, with);
    return y;
}

static void two(struct maker *m, const char *op, const struct value *a, const struct value *b,
                enum spmd_lies lies)
{
    struct value x = *a, z = *b, *y = add(m, lies, x.columns > z.columns ? x.columns : z.columns);
    say_whole(m, "%%v%d = %s %%v%d, %%v%d\n", y->whole, op, x.whole, z.whole);
    say_split(m, "%%v%d = %s %%v%d, %%v%d\n", y->split, op, x.split, z.split);
}

static void map(struct maker *m, const struct value *x)
{
    static const char *const all[] = {"silu", "tanh", "gelu_erf", "sigmoid"};
    same_line(m, all[random_below(&m->r, 4)], x, "", x->lies, x->columns);
}

/* By numbers of columns, which each rank has as it has the columns; linear ones alone of a sum. */
static void by_columns(struct maker *m, const struct value *x, bool linear)
{
    char with[32];
    enum spmd_lies lies = x->lies == SPMD_COLUMNS ? SPMD_COLUMNS : SPMD_SAME;
    snprintf(with, sizeof with, ", %%%s", leaf(m, "g", lies, 0, x->columns, 0, 1));
    same_line(m, linear || random_chance(&m->r, 50) ? "mul" : "add", x, with, x->lies, x->columns);
}

static void norm(struct maker *m, const struct value *x)
{
    char with[64];
    snprintf(with, sizeof with, ", %%%s {eps=1e-2}", leaf(m, "g", SPMD_SAME, 0, x->columns, 0, 1));
    same_line(m, "rms_norm", x, random_chance(&m->r, 50) ? with : " {eps=1e-2}", x->lies, x->columns);
}

static void scale(struct maker *m, const struct value *x)
{
    same_line(m, "scale", x, random_chance(&m->r, 50) ? " {alpha=0.5}" : " {alpha=-1.25}", x->lies,
              x->columns);
}

/* Widths are multiples of the ranks. */
static int64_t width(struct maker *m) { return m->s->ranks * (1 + random_below(&m->r, 3)); }

/* w [outputs, inputs] is equal on all ranks, or has a share of either. */
static void product(struct maker *m, const struct value *x, enum spmd_lies w, enum spmd_lies lies)
{
    char with[32];
    int64_t wide = width(m);
    snprintf(with, sizeof with, ", %%%s", leaf(m, "w", w, wide, x->columns, 0, 1 / sqrt((double)x->columns)));
    same_line(m, "matmul", x, with, lies, wide);
}

/* Another value that lies so, and has as many columns; NULL: there is none. */
static const struct value *like(struct maker *m, const struct value *x, enum spmd_lies lies)
{
    const struct value *found = NULL;
    int n = 0;
    for (int i = 0; i < m->values; i++) {
        const struct value *v = &m->value[i];
        if (v->lies == lies && v->columns == x->columns && random_below(&m->r, ++n) == 0) found = v;
    }
    return found;
}

static void add_other(struct maker *m, const struct value *x)
{
    const struct value *other = like(m, x, x->lies);
    two(m, random_chance(&m->r, 80) ? "add" : "sub", x, other ? other : x, x->lies);
}

/* ---- Exchanges: the whole has what comes of them already ---- */

/* A line of the split text alone. */
static struct value *exchange(struct maker *m, const struct value *x, const char *op, int axis,
                              enum spmd_lies lies)
{
    struct value from = *x, *y = add(m, lies, from.columns);
    char behind[32] = "", how[32] = "";
    y->whole = from.whole;
    if (m->last >= 0) snprintf(behind, sizeof behind, ", %%v%d", m->last);
    if (axis >= 0) snprintf(how, sizeof how, " {axis=%d}", axis);
    say_split(m, "%%v%d = %s %%v%d, %%tp%s%s\n", y->split, op, from.split, behind, how);
    m->last = y->split;
    return y;
}

static void all_reduce(struct maker *m, const struct value *x)
{
    exchange(m, x, "all_reduce", -1, SPMD_SAME);
}

/* A row's statistic over columns that ranks share: what all have, a number for each row. */
static void statistic(struct maker *m, const struct value *x)
{
    struct value from = *x;
    two(m, "mul", x, x, SPMD_COLUMNS);
    struct value *sum = same_line(m, "sum", &m->value[m->values - 1], "", SPMD_SUM, 1);
    struct value *all = exchange(m, sum, "all_reduce", -1, SPMD_SAME);
    struct value *one = same_line(m, "sigmoid", all, "", SPMD_SAME, 1);
    two(m, "mul", &from, one, SPMD_COLUMNS);
}

/* The same of columns that are put together first. */
static void gathered_statistic(struct maker *m, const struct value *x)
{
    static const char *const all[] = {"max", "sum", "log_sum_exp", "sum_sq", "mean"};
    struct value from = *x, *whole = exchange(m, x, "all_gather", 1, SPMD_SAME);
    struct value *row = same_line(m, all[random_below(&m->r, 5)], whole, "", SPMD_SAME, 1);
    row = same_line(m, "tanh", row, "", SPMD_SAME, 1);
    two(m, "mul", &from, row, SPMD_COLUMNS);
}

/* The loss of classes that ranks share: a number for each row. */
static void gathered_loss(struct maker *m, const struct value *x)
{
    struct value from = *x;
    int64_t classes = 1024 * m->s->ranks;
    char with[32];
    snprintf(with, sizeof with, ", %%%s", leaf(m, "w", SPMD_ROWS, classes, from.columns, 0, 1));
    struct value *y = same_line(m, "matmul", x, with, SPMD_COLUMNS, classes);
    y = exchange(m, y, "all_gather", 1, SPMD_SAME);
    snprintf(with, sizeof with, ", %%%s", leaf(m, "i", SPMD_SAME, m->rows, 1, classes, 1));
    y = same_line(m, "nll", y, with, SPMD_SAME, 1);
    y = same_line(m, "tanh", y, "", SPMD_SAME, 1);
    two(m, "mul", &from, y, SPMD_SAME);
}

/* Two that come one behind the other, of sums that are small. */
static void together(struct maker *m)
{
    int first = m->values;
    input(m, SPMD_SUM, 64 * m->s->ranks);
    input(m, SPMD_SUM, 64 * m->s->ranks);
    exchange(m, &m->value[first], "all_reduce", -1, SPMD_SAME);
    exchange(m, &m->value[first + 1], "all_reduce", -1, SPMD_SAME);
    two(m, "mul", &m->value[first + 2], &m->value[first + 3], SPMD_SAME);
}

/* What passes look for: sums over ranks side by side, one behind a residual, parts that are gathered at once,
 * a gathered residual, a number behind. */
static void beside(struct maker *m, const struct value *x)
{
    const struct value *other = like(m, x, SPMD_SUM), *same = like(m, x, SPMD_SAME),
                       *rows = like(m, x, SPMD_ROWS);
    struct value a = *x, b = *(other ? other : x), *y, *z;
    switch (random_below(&m->r, 5)) {
    case 4: together(m); break;
    case 0:
        y = exchange(m, &a, "all_reduce", -1, SPMD_SAME);
        if (same) two(m, "add", same, y, SPMD_SAME), y = &m->value[m->values - 1];
        z = exchange(m, &b, "all_reduce", -1, SPMD_SAME);
        two(m, same || random_chance(&m->r, 50) ? "add" : "sub", y, z, SPMD_SAME);
        break;
    case 1:
        y = exchange(m, &a, "reduce_scatter", 0, SPMD_ROWS);
        exchange(m, y, "all_gather", 0, SPMD_SAME);
        break;
    case 2:
        y = exchange(m, &a, "all_reduce", -1, SPMD_SAME);
        z = exchange(m, rows ? rows : exchange(m, &b, "reduce_scatter", 0, SPMD_ROWS), "all_gather", 0,
                     SPMD_SAME);
        two(m, random_chance(&m->r, 50) ? "add" : "sub", z, y, SPMD_SAME);
        break;
    default: scale(m, exchange(m, &a, "all_reduce", -1, SPMD_SAME)); break;
    }
}

/* Rows of a table of which each rank has some: a row that is another's is 0. */
static void embedding(struct maker *m)
{
    int64_t rows = width(m), wide = width(m);
    char table[32], ids[32], first[32];
    snprintf(table, sizeof table, "%s", leaf(m, "t", SPMD_ROWS, rows, wide, 0, 1));
    snprintf(ids, sizeof ids, "%s", leaf(m, "i", SPMD_SAME, 0, m->rows, rows, 1));
    snprintf(first, sizeof first, "%s", leaf(m, "f", SPMD_FIRST, 0, 1, 0, 0));
    if (m->s->leaves) m->s->leaf[m->s->leaves - 1].values[0] = (float)rows;
    const struct value *v = add(m, SPMD_SUM, wide);
    say_whole(m, "%%v%d = embedding %%%s, %%%s\n", v->whole, table, ids);
    say_split(m,
              "%%c%d = cast %%%s {to=f32}\n%%d%d = sub %%c%d, %%%s\n%%e%d = cast %%d%d {to=i32}\n"
              "%%v%d = embedding %%%s, %%e%d\n",
              v->split, ids, v->split, v->split, first, v->split, v->split, v->split, table, v->split);
}

/* ---- A step ---- */

static void step_same(struct maker *m, const struct value *x)
{
    if (m->s->ranks <= 3 && random_chance(&m->r, 2)) {
        gathered_loss(m, x);
        return;
    }
    switch (random_below(&m->r, 8)) {
    case 0: map(m, x); break;
    case 1: norm(m, x); break;
    case 2: by_columns(m, x, false); break;
    case 3:
    case 4: add_other(m, x); break;
    case 5: product(m, x, SPMD_SAME, SPMD_SAME); break;
    default: product(m, x, SPMD_ROWS, SPMD_COLUMNS); break;
    }
}

static void step_columns(struct maker *m, const struct value *x)
{
    switch (random_below(&m->r, 9)) {
    case 0:
    case 1: map(m, x); break;
    case 2: by_columns(m, x, false); break;
    case 3: statistic(m, x); break;
    case 4: gathered_statistic(m, x); break;
    case 5: exchange(m, x, "all_gather", 1, SPMD_SAME); break;
    default: product(m, x, SPMD_COLUMNS, SPMD_SUM); break;
    }
}

static void step_sum(struct maker *m, const struct value *x)
{
    switch (random_below(&m->r, 10)) {
    case 0: scale(m, x); break;
    case 1: by_columns(m, x, true); break;
    case 2: add_other(m, x); break;
    case 3:
    case 4:
    case 5: exchange(m, x, "reduce_scatter", 0, SPMD_ROWS); break;
    case 6: exchange(m, x, "reduce_scatter", 1, SPMD_COLUMNS); break;
    case 7:
    case 8: beside(m, x); break;
    default: all_reduce(m, x); break;
    }
}

static void step_rows(struct maker *m, const struct value *x)
{
    switch (random_below(&m->r, 7)) {
    case 0: map(m, x); break;
    case 1: norm(m, x); break;
    case 2: by_columns(m, x, false); break;
    case 3: add_other(m, x); break;
    default: exchange(m, x, "all_gather", 0, SPMD_SAME); break;
    }
}

static void step(struct maker *m)
{
    int64_t from = random_chance(&m->r, 75) ? m->values - 1 : random_below(&m->r, m->values);
    const struct value *x = &m->value[from];
    if (random_chance(&m->r, 5)) embedding(m);
    else if (x->columns == 1) scale(m, x);
    else if (x->lies == SPMD_SAME) step_same(m, x);
    else if (x->lies == SPMD_COLUMNS) step_columns(m, x);
    else if (x->lies == SPMD_SUM) step_sum(m, x);
    else step_rows(m, x);
}

/* ---- The end ---- */

/* A sum cannot be seen as it lies on ranks. */
static void output(struct maker *m, int from)
{
    struct spmd *s = m->s;
    if (m->value[from].lies == SPMD_SUM) all_reduce(m, &m->value[from]), from = m->values - 1;
    struct value v = m->value[from];
    struct spmd_tensor *t = &s->output[s->outputs];
    *t = (struct spmd_tensor){.lies = v.lies, .dim = {m->rows, v.columns}};
    snprintf(t->name, sizeof t->name, "y%d", s->outputs++);
    say_split(m, "output %%%s = %%v%d\n", t->name, v.split);
    m->value[from].whole = v.whole;
    enum spmd_lies lies = v.lies == SPMD_SAME ? SPMD_SUM : v.lies;
    leaf(m, "cot", lies, m->rows, v.columns, 0, 1);
}

static void end(struct maker *m)
{
    struct spmd *s = m->s;
    int chosen[2] = {m->values - 1, (int)random_below(&m->r, m->values)}, n = chosen[0] == chosen[1] ? 1 : 2;
    int whole[2];
    for (int i = 0; i < n; i++) output(m, chosen[i]), whole[i] = m->value[chosen[i]].whole;
    snprintf(s->loss, sizeof s->loss, "%s", s->whole);
    for (int i = 0; i < n; i++) {
        const struct spmd_tensor *t = &s->output[i], *cot = &s->leaf[s->leaves - n + i];
        char line[256];
        say_whole(m, "output %%%s = %%v%d\n", t->name, whole[i]);
        snprintf(line, sizeof line,
                 "%%m%d = mul %%v%d, %%%s\n%%r%d = reshape %%m%d {rank=2,d0=1,d1=%lld}\n%%s%d = sum %%r%d\n",
                 i, whole[i], cot->name, i, i, (long long)(t->dim[0] * t->dim[1]), i, i);
        strncat(s->loss, line, SPMD_TEXT - strlen(s->loss) - 1);
    }
    strncat(s->loss, n == 2 ? "%l = add %s0, %s1\noutput %loss = %l\n" : "output %loss = %s0\n",
            SPMD_TEXT - strlen(s->loss) - 1);
}

void spmd_make(struct spmd *s, uint64_t seed, int ranks, int steps)
{
    struct maker m = {.s = s, .r = {seed}, .last = -1};
    *s = (struct spmd){.ranks = ranks};
    m.rows = ranks * (1 + random_below(&m.r, 2));
    say_split(&m, "%%tp = group {ranks=%d}\n", ranks);
    input(&m, SPMD_SAME, width(&m));
    if (random_chance(&m.r, 50)) input(&m, SPMD_ROWS, m.value[0].columns);
    for (int i = 0; i < steps && !s->failed; i++) step(&m);
    if (!s->failed) end(&m);
}

void spmd_free(struct spmd *s)
{
    for (int i = 0; i < s->leaves; i++) free(s->leaf[i].values);
}
