/*
 * emit_levels.c -- the part of an Epilogue that runs once for each row, or once for each column.
 *
 * Prints, for a level with steps, the struct of values that it hands to the slots (Row, Col, Half) and
 * the function that makes them (row). What that one loads from places which no other load says is loaded by
 * a function of its own (row_ahead) into a struct (RowAhead): so a kernel has all of it, of rows and of
 * columns, on its way from memory at one time. A STEP_PAIR adds values of its own (emit_pairs.c).
 */
#include "emit_epilogue.h"

/* A load or store of one element on a level that has `batch` and `index` (m or n). */
static struct word element(const struct printer *e, const struct step *s, const struct tensor_use *port,
                           char letter)
{
    int d = e->level == LEVEL_ROW ? 1 : 2;
    if (s->cls == CLASS_COL && e->p->segment)
        return emit_word("g.%c%d%s%s", letter, s->port, printer_batch(e->p, port, "batch").s,
                         printer_column(e->p, s, port).s);
    int64_t extent = e->level == LEVEL_HALF ? program_columns(e->p) : e->p->dim[d];
    return emit_word("g.%c%d%s%s", letter, (int)(port - e->p->port), printer_batch(e->p, port, "batch").s,
                     printer_term(port->stride[d], extent, d == 1 ? "m" : "n").s);
}

static void print_gathered(const struct printer *e, int i, const struct tensor_use *port)
{
    struct word id = printer_value(e, port->index, 0), rows = printer_table(e->p, port);
    text_printf(
        e->t,
        "        const float v%d = in_table(%s, %s) ? coda::load(table_row(g.x%d, %s, %s, %lld)) : 0.0f;", i,
        id.s, rows.s, e->p->step[i].port, id.s, rows.s, (wide)port->table_stride);
}

/* The first step that reads the same states; and whether another one does. */
static int first_state(const struct program *p, int step)
{
    int i = 0;
    while (i < step && !step_shares_state(p, &p->step[i], &p->step[step])) i++;
    return i;
}
static bool shares_state(const struct program *p, int step)
{
    bool shares = first_state(p, step) < step;
    for (int i = step + 1; i < p->steps; i++)
        shares = shares || step_shares_state(p, &p->step[i], &p->step[step]);
    return shares;
}

/* "g.s1, m, g.states1": where the states of a row lie. */
static struct word states(const struct printer *e, const struct step *s)
{
    return emit_word("g.s%d, %s, g.states%d", s->port, printer_row(e->p, "batch", "m").s, s->port);
}

static void print_partial(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    const char *reduce = e->p->port[s->port].reduce->name;
    int first = first_state(e->p, i);
    if (!shares_state(e->p, i)) {
        text_printf(e->t, "        const float v%d = reduce::%s::finish(a.f%d.merged(%s));", i, reduce, i,
                    states(e, s).s);
        return;
    }
    if (first == i) text_printf(e->t, "        const auto f%d = a.f%d.merged(%s);\n", i, i, states(e, s).s);
    text_printf(e->t, "        const float v%d = reduce::%s::finish(f%d);", i, reduce, first);
}

static void print_level_step(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    const struct tensor_use *port = s->port >= 0 ? &e->p->port[s->port] : NULL;
    switch (s->kind) {
    case STEP_LOAD:
        if (port->role == USE_GATHER) print_gathered(e, i, port);
        else text_printf(e->t, "        const float v%d = a.v%d;", i, i);
        break;
    case STEP_PARTIAL: print_partial(e, i); break;
    case STEP_COLUMN: text_printf(e->t, "        const float v%d = (float)n;", i); break;
    case STEP_MAP:
        text_printf(e->t, "        const float v%d = ", i);
        printer_call(e, s, 0);
        break;
    default:
        text_printf(e->t, "        if (first) coda::%s(%s, %s);", printer_adds(e, i) ? "accumulate" : "store",
                    element(e, s, port, 'y').s, printer_value(e, s->in[0], 0).s);
    }
    text_append(e->t, "\n");
}

/* ---- What is loaded ahead ---- */

static bool is_ahead(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    if (e->l->level[i] != e->level) return false;
    if (s->kind == STEP_PARTIAL) return first_state(e->p, i) == i;
    return s->kind == STEP_LOAD && e->p->port[s->port].role != USE_GATHER;
}

static void print_field_ahead(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    if (s->kind == STEP_LOAD) text_printf(e->t, " float v%d;", i);
    else
        text_printf(e->t, " block::States<reduce::%s, %d> f%d;", e->p->port[s->port].reduce->name,
                    e->l->row_team, i);
}

static void print_load_ahead(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    if (s->kind == STEP_PARTIAL) {
        text_printf(e->t, "        a.f%d.load(%s);\n", i, states(e, s).s);
        return;
    }
    text_printf(e->t, "        a.v%d = ", i);
    if (s->range) text_printf(e->t, "range((int)n) != %d ? 0.0f : ", s->range - 1);
    text_printf(e->t, "coda::load(%s);\n", element(e, s, &e->p->port[s->port], 'x').s);
}

static void print_ahead(const struct printer *e, const char *type, const char *name, const char *index)
{
    int loads = 0;
    for (int i = 0; i < e->p->steps; i++) loads += is_ahead(e, i);
    if (!loads) return;
    text_printf(e->t, "    struct %sAhead {", type);
    for (int i = 0; i < e->p->steps; i++)
        if (is_ahead(e, i)) print_field_ahead(e, i);
    text_printf(e->t, " };\n    DEV static %sAhead %s_ahead(const Args &g, i64 batch, i64 %s)\n    {\n", type,
                name, index);
    text_printf(e->t, "        %sAhead a;\n", type);
    for (int i = 0; i < e->p->steps; i++)
        if (is_ahead(e, i)) print_load_ahead(e, i);
    text_append(e->t, "        return a;\n    }\n");
}

/* ---- Levels ---- */

static bool level_runs(const struct printer *e, enum level level)
{
    if (printer_pair_fields(e, level)) return true;
    for (int i = 0; i < e->p->steps; i++)
        if (e->l->level[i] == level) return true;
    return false;
}

/* A struct without values would mean that there is nothing to run. */
static void print_struct(const struct printer *e, const char *type, const char *pair_fields)
{
    bool empty = !pair_fields;
    text_printf(e->t, "\n    struct %s {", type);
    for (int i = 0; i < e->p->steps; i++) {
        if (e->l->level[i] != e->level || !e->l->crosses[i]) continue;
        text_printf(e->t, " float v%d;", i);
        empty = false;
    }
    text_printf(e->t, "%s%s };\n", pair_fields ? pair_fields : "", empty ? " u8 none;" : "");
}

void printer_level(struct printer *e, enum level level, const char *type, const char *name, const char *index)
{
    const char *pair_fields = printer_pair_fields(e, level);
    e->level = level;
    if (!level_runs(e, level)) return;
    print_struct(e, type, pair_fields);
    print_ahead(e, type, name, index);
    text_printf(e->t,
                "    DEV static %s %s(const Args &g, const %sAhead &a, i64 batch, i64 %s, bool first)\n",
                type, name, type, index);
    text_append(e->t, "    {\n");
    text_printf(e->t, "        %s v;\n", type);
    for (int i = 0; i < e->p->steps; i++)
        if (e->l->level[i] == level) print_level_step(e, i);
    for (int i = 0; i < e->p->steps; i++)
        if (e->l->level[i] == level && e->l->crosses[i]) text_printf(e->t, "        v.v%d = v%d;\n", i, i);
    if (pair_fields) printer_pair_values(e, level);
    text_append(e->t, "        return v;\n    }\n");
}
