/*
 * emit_levels.c -- the part of an Epilogue that runs once for each row, or once for each column.
 *
 * Prints, for a level with steps, the struct of values that it hands to the slots (Row, Col, Half) and
 * the function that makes them. A STEP_PAIR adds values of its own (emit_pairs.c).
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

static void print_partial(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    const struct tensor_use *port = &e->p->port[s->port];
    int first = first_state(e->p, i), team = e->l->row_team;
    struct word row = printer_row(e->p, "batch", "m");
    if (!shares_state(e->p, i)) {
        text_printf(
            e->t, "        const float v%d = block::finish_partials<reduce::%s, %d>(g.s%d, %s, g.states%d);",
            i, port->reduce->name, team, s->port, row.s, s->port);
        return;
    }
    if (first == i)
        text_printf(
            e->t, "        const auto f%d = block::merge_partials<reduce::%s, %d>(g.s%d, %s, g.states%d);\n",
            i, port->reduce->name, team, s->port, row.s, s->port);
    text_printf(e->t, "        const float v%d = reduce::%s::finish(f%d);", i, port->reduce->name, first);
}

static void print_level_step(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    const struct tensor_use *port = s->port >= 0 ? &e->p->port[s->port] : NULL;
    switch (s->kind) {
    case STEP_LOAD:
        if (port->role == USE_GATHER) print_gathered(e, i, port);
        else if (s->range)
            text_printf(e->t, "        const float v%d = range((int)n) == %d ? coda::load(%s) : 0.0f;", i,
                        s->range - 1, element(e, s, port, 'x').s);
        else text_printf(e->t, "        const float v%d = coda::load(%s);", i, element(e, s, port, 'x').s);
        break;
    case STEP_PARTIAL: print_partial(e, i); break;
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
    text_printf(e->t, "    DEV static %s %s(const Args &g, i64 batch, i64 %s, bool first)\n    {\n", type,
                name, index);
    text_printf(e->t, "        %s v;\n", type);
    for (int i = 0; i < e->p->steps; i++)
        if (e->l->level[i] == level) print_level_step(e, i);
    for (int i = 0; i < e->p->steps; i++)
        if (e->l->level[i] == level && e->l->crosses[i]) text_printf(e->t, "        v.v%d = v%d;\n", i, i);
    if (pair_fields) printer_pair_values(e, level);
    text_append(e->t, "        return v;\n    }\n");
}
