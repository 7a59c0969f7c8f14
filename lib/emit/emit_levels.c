/*
 * emit_levels.c -- the part of an Epilogue that runs once for each row, or once for each column.
 *
 * Prints, for a level with steps, the struct of values that it hands to the slots (Row, Col, Half) and
 * the function that makes them. Rotary embedding adds the row's position and the column's frequency.
 */
#include "emit_epilogue.h"

#include <math.h>

/* A load or store of one element on a level that has `batch` and `index` (m or n). */
static struct word element(const struct printer *e, const struct tensor_use *port, char letter)
{
    int d = e->level == LEVEL_ROW ? 1 : 2;
    int64_t extent = e->level == LEVEL_HALF ? program_columns(e->p) : e->p->dim[d];
    return emit_word("g.%c%d%s%s", letter, (int)(port - e->p->port),
                        printer_term(port->stride[0], e->p->dim[0], "batch").s,
                        printer_term(port->stride[d], extent, d == 1 ? "m" : "n").s);
}

static void print_gathered(const struct printer *e, int i, const struct tensor_use *port)
{
    struct word id = printer_value(e, port->index, 0);
    text_printf(
        e->t,
        "        const float v%d = in_table(%s, %lld) ? coda::load(table_row(g.x%d, %s, %lld, %lld)) : 0.0f;",
        i, id.s, (wide)port->table_rows, e->p->step[i].port, id.s, (wide)port->table_rows,
        (wide)port->table_stride);
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
        text_printf(e->t, "        const float v%d = block::finish_partials<reduce::%s, %d, %d>(g.s%d, %s);",
                    i, port->reduce->name, port->blocks, team, s->port, row.s);
        return;
    }
    if (first == i)
        text_printf(e->t, "        const auto f%d = block::merge_partials<reduce::%s, %d, %d>(g.s%d, %s);\n",
                    i, port->reduce->name, port->blocks, team, s->port, row.s);
    text_printf(e->t, "        const float v%d = reduce::%s::finish(f%d);", i, port->reduce->name, first);
}

static void print_level_step(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    const struct tensor_use *port = s->port >= 0 ? &e->p->port[s->port] : NULL;
    switch (s->kind) {
    case STEP_LOAD:
        if (port->role == USE_GATHER)
            print_gathered(e, i, port);
        else
            text_printf(e->t, "        const float v%d = coda::load(%s);", i, element(e, port, 'x').s);
        break;
    case STEP_PARTIAL: print_partial(e, i); break;
    case STEP_MAP:
        text_printf(e->t, "        const float v%d = ", i);
        printer_call(e, s, 0);
        break;
    default:
        text_printf(e->t, "        if (first) coda::store(%s, %s);", element(e, port, 'y').s,
                    printer_value(e, s->in[0], 0).s);
    }
    text_append(e->t, "\n");
}

static void print_row_extra(const struct printer *e)
{
    text_printf(e->t, "        v.position = (float)((%s) %% %lld);\n", printer_row(e->p, "batch", "m").s,
                (wide)MAX(e->p->rope.period, 1));
}

/* The frequency of the pair that a column belongs to; 0 where it passes through. */
static void print_col_extra(const struct printer *e)
{
    const struct rope_spec *r = &e->p->rope;
    double turns = 1 / 3.14159265358979323846, ratio = pow(r->base, -2.0 / (double)MAX(r->rotary, 1));
    struct word pair =
        r->half ? emit_word("i %% %lld", (wide)MAX(r->rotary / 2, 1)) : emit_word("i / 2");
    text_printf(e->t, "        const i64 head = n / %lld, i = n %% %lld;\n", (wide)r->head_dim,
                (wide)r->head_dim);
    text_printf(e->t, "        const bool turns = head < %lld && i < %lld;\n", (wide)r->heads,
                (wide)r->rotary);
    text_printf(e->t, "        const Turns f = turns ? rope_turns(%a, %a, (int)(%s)) : Turns{0.0f, 0.0f};\n",
                turns, ratio, pair.s);
    text_append(e->t, "        v.high = f.high, v.low = f.low;\n");
    if (e->l->steps_evenly)
        text_append(e->t, "        v.eight = pair::rope::turn(8.0f, f.high, f.low);\n");
}

/* The step that rotates, -1 if none does. */
static int rope_step(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_ROPE) return i;
    return -1;
}

static bool has_rope(const struct program *p) { return rope_step(p) >= 0; }

static bool level_runs(const struct printer *e, enum level level)
{
    if (level == LEVEL_COL && has_rope(e->p)) return true;
    if (level == LEVEL_ROW && rope_counts_rows(e->p)) return true;
    for (int i = 0; i < e->p->steps; i++)
        if (e->l->level[i] == level) return true;
    return false;
}

/* A struct without values would mean that there is nothing to run. */
static void print_struct(const struct printer *e, const char *type, bool counts, bool turns)
{
    bool empty = !counts && !turns;
    text_printf(e->t, "\n    struct %s {", type);
    for (int i = 0; i < e->p->steps; i++) {
        if (e->l->level[i] != e->level || !e->l->crosses[i]) continue;
        text_printf(e->t, " float v%d;", i);
        empty = false;
    }
    text_printf(e->t, "%s%s%s%s };\n", counts ? " float position;" : "", turns ? " float high, low;" : "",
                turns && e->l->steps_evenly ? " Pair eight;" : "", empty ? " u8 none;" : "");
}

void printer_level(struct printer *e, enum level level, const char *type, const char *name, const char *index)
{
    bool turns = level == LEVEL_COL && has_rope(e->p), counts = level == LEVEL_ROW && rope_counts_rows(e->p);
    e->level = level;
    if (!level_runs(e, level)) return;
    print_struct(e, type, counts, turns);
    text_printf(e->t, "    DEV static %s %s(const Args &g, i64 batch, i64 %s, bool first)\n    {\n", type,
                name, index);
    text_printf(e->t, "        %s v;\n", type);
    for (int i = 0; i < e->p->steps; i++)
        if (e->l->level[i] == level) print_level_step(e, i);
    for (int i = 0; i < e->p->steps; i++)
        if (e->l->level[i] == level && e->l->crosses[i])
            text_printf(e->t, "        v.v%d = v%d;\n", i, i);
    if (counts) print_row_extra(e);
    if (turns) print_col_extra(e);
    text_append(e->t, "        return v;\n    }\n");
}

void printer_cell(struct printer *e)
{
    int i = rope_step(e->p);
    if (i < 0) return;
    e->level = LEVEL_HALF; /* row values are r.v<i> here */
    struct word position =
        rope_counts_rows(e->p) ? emit_word("r.position") : printer_value(e, e->p->step[i].in[1], 0);
    text_append(e->t, "\n    struct Cell { Pair turn; };\n");
    text_append(e->t, "    DEV static Cell cell(const Row &r, const Col &c)\n    {\n");
    text_printf(e->t, "        return {pair::rope::turn(%s, c.high, c.low)};\n    }\n", position.s);
    text_append(e->t, "    DEV static Cell below(const Cell &above, const Row &r, const Col &c)\n    {\n");
    text_printf(e->t, "        return %s;\n    }\n",
                e->l->steps_evenly ? "{pair::rope::add(above.turn, c.eight)}" : "cell(r, c)");
}
