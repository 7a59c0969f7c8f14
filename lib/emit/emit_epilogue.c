/*
 * emit_epilogue.c -- prints the steps of a GEMM as `struct Epilogue`, for primitives/tile/epilogue.cuh.
 *
 * Each level is a function of straight-line code: row() and col() and half() return the values that
 * slots read, apply() does the arithmetic of a slot. Step i's value is called v<i>, as in the plan; on two
 * lanes, v<i>a and v<i>b. Ports of the parameter struct are x<port> (loads), y<port> (stores), s<port>
 * (states). Nodes of the graph are not named: layers that are equal share their kernels. emit_levels.c
 * prints the rows and columns, this file the rest.
 */
#include "emit_epilogue.h"

static bool loads_directly(const struct printer *e, int step)
{
    return e->p->step[step].kind == STEP_LOAD && e->l->level[step] == LEVEL_SLOT && step != e->l->fetched;
}

static bool stores_directly(const struct printer *e, int step)
{
    return e->p->step[step].kind == STEP_STORE && e->l->level[step] == LEVEL_SLOT && !e->l->staged[step];
}

/* The k-th load (store) of the slots; the fetched load and staged stores come first. */
static int slot_load(const struct printer *e, int step)
{
    int k = e->l->fetched >= 0;
    if (step == e->l->fetched) return 0;
    for (int i = 0; i < step; i++) k += loads_directly(e, i);
    return k;
}
static int slot_store(const struct printer *e, int step)
{
    bool staged = e->l->staged[step];
    int k = staged ? 0 : e->l->staged_stores;
    for (int i = 0; i < step; i++) k += staged ? e->l->staged[i] : stores_directly(e, i);
    return k;
}

static int count_slot(const struct printer *e, enum step_kind kind)
{
    int n = 0;
    for (int i = 0; i < e->p->steps; i++) n += e->p->step[i].kind == kind && e->l->level[i] == LEVEL_SLOT;
    return n;
}

/* ---- Steps ---- */

/* What a step of one lane is equal to; maps are printed by printer_call. */
static struct word slot_source(const struct printer *e, int i, int lane)
{
    const struct step *s = &e->p->step[i];
    switch (s->kind) {
    case STEP_ACC: return emit_word("s.acc[%d]", lane);
    case STEP_LOAD: return emit_word("s.in[%d][%d]", slot_load(e, i), lane);
    default: return printer_value(e, s->in[0], s->kind == STEP_LANE ? s->lane : lane);
    }
}

static void print_slot_value(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    int lanes = s->half ? 1 : program_lanes(e->p);
    for (int lane = 0; lane < lanes; lane++) {
        text_printf(e->t, "        const float v%d%s = ", i, printer_lane(e, s, lane));
        if (s->kind == STEP_MAP) printer_call(e, s, lane);
        else text_printf(e->t, "%s;", slot_source(e, i, lane).s);
        text_append(e->t, "\n");
    }
}

/* Of a column and its row's key only the difference matters: they are counted from a column for which the
 * compiler knows the others. */
static void print_reduce(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    bool keyed = s->nin > 1 && s->in[1] >= 0;
    const char *first = s->half ? "s.half_first" : "s.first";
    int lanes = s->half ? 1 : program_lanes(e->p);
    for (int lane = 0; lane < lanes; lane++) {
        struct word column = s->half ? emit_word("s.half_column") : emit_word("s.column[%d]", lane);
        text_printf(e->t, "        if (s.live[%d]) reduce::%s::push(state.v%d, %s, ", lane, s->prim->name, i,
                    printer_value(e, s->in[0], lane).s);
        if (keyed)
            text_printf(e->t, "%s, %s - (float)%s);\n", column.s, printer_value(e, s->in[1], 0).s, first);
        else text_printf(e->t, "%s + %s, 0.0f);\n", first, column.s);
    }
}

static void print_out(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    int lanes = s->half ? 1 : program_lanes(e->p), k = slot_store(e, i);
    for (int lane = 0; lane < lanes; lane++)
        text_printf(e->t, "        s.out[%d][%d] = %s;\n", k, lane, printer_value(e, s->in[0], lane).s);
}

static void print_apply(struct printer *e)
{
    e->level = LEVEL_SLOT;
    text_append(e->t, "\n    template <class S> DEV static void apply(S &s, State &state)\n    {\n");
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (e->l->level[i] != LEVEL_SLOT) continue;
        switch (s->kind) {
        case STEP_PAIR: printer_pair(e, i); break;
        case STEP_REDUCE: print_reduce(e, i); break;
        case STEP_STORE: print_out(e, i); break;
        default: print_slot_value(e, i);
        }
    }
    text_append(e->t, "    }\n");
}

/* ---- Tiles ---- */

/* May two neighbours move in one access? Both exist or neither, and both are aligned. */
static bool moves_pairs(const struct program *p, const struct step *s)
{
    const struct tensor_use *port = &p->port[s->port];
    bool even = port->offset % 2 == 0 && program_columns(p) % 2 == 0;
    even =
        even && (p->dim[0] <= 1 || port->stride[0] % 2 == 0) && (p->dim[1] <= 1 || port->stride[1] % 2 == 0);
    if (port->role == USE_GATHER) even = even && port->table_stride % 2 == 0;
    bool split = p->pair == PAIR_GLU_INTERLEAVED && !s->half;
    return even && port->stride[2] == 1 && !split;
}

static struct word row_pointer(const struct printer *e, const struct step *s, char letter)
{
    const struct tensor_use *port = &e->p->port[s->port];
    if (port->role == USE_GATHER)
        return emit_word("table_row(g.x%d, %s, %lld, %lld)", s->port, printer_value(e, port->index, 0).s,
                         (wide)port->table_rows, (wide)port->table_stride);
    return emit_word("g.%c%d%s%s", letter, s->port, printer_term(port->stride[0], e->p->dim[0], "p.batch").s,
                     printer_term(port->stride[1], e->p->dim[1], "p.m").s);
}

static void print_load(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    const struct tensor_use *port = &e->p->port[s->port];
    const char *span = s->half ? "p.half" : "p.full";
    int k = slot_load(e, i);
    struct word row = row_pointer(e, s, 'x');
    if (moves_pairs(e->p, s)) text_printf(e->t, "        x[%d] = read_pairs(%s, %s);", k, row.s, span);
    else text_printf(e->t, "        x[%d] = read_each(%s, %s, %lld);", k, row.s, span, (wide)port->stride[2]);
    text_append(e->t, "\n");
    if (port->role == USE_GATHER)
        text_printf(e->t, "        if (!in_table(%s, %lld)) x[%d] = {};\n",
                    printer_value(e, port->index, 0).s, (wide)port->table_rows, k);
}

static void print_store(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    const char *span = s->half ? "p.half" : "p.full";
    int k = slot_store(e, i);
    struct word row = row_pointer(e, s, 'y');
    if (moves_pairs(e->p, s)) text_printf(e->t, "        write_pairs(%s, %s, y[%d]);", row.s, span, k);
    else
        text_printf(e->t, "        write_each(%s, %s, %lld, y[%d]);", row.s, span,
                    (wide)e->p->port[s->port].stride[2], k);
    text_append(e->t, "\n");
}

static void print_tiles(struct printer *e)
{
    const struct program *p = e->p;
    int loads = count_slot(e, STEP_LOAD), stores = count_slot(e, STEP_STORE), staged = e->l->staged_stores;
    int fetched = e->l->fetched >= 0;
    e->level = LEVEL_HALF; /* row values are r.v<i> here */
    text_printf(e->t, "\n    static constexpr int loads = %d, stores = %d, staged = %d, fetched = %d;\n",
                loads, stores, staged, fetched);
    if (loads > fetched)
        text_append(
            e->t, "    DEV static void load(const Args &g, const Place &p, const Row &r, Line *x)\n    {\n");
    for (int i = 0; i < p->steps; i++)
        if (loads_directly(e, i)) print_load(e, i);
    if (loads > fetched) text_append(e->t, "    }\n");
    if (stores == staged) return;
    text_append(e->t, "    DEV static void store(const Args &g, const Place &p, const Line *y)\n    {\n");
    for (int i = 0; i < p->steps; i++)
        if (stores_directly(e, i)) print_store(e, i);
    text_append(e->t, "    }\n");
}

static void print_moved_types(const struct printer *e)
{
    int fetched = e->l->fetched;
    if (fetched >= 0)
        text_printf(e->t, "    using Fetched = %s;\n",
                    emit_dtype(e->p->port[e->p->step[fetched].port].dtype));
    for (int i = 0; i < e->p->steps; i++)
        if (e->l->staged[i]) {
            coda_dtype t = e->p->port[e->p->step[i].port].dtype;
            text_printf(e->t, "    using Staged = %s;\n", emit_dtype(t));
            return;
        }
}

/* ---- Reductions ---- */

static void print_for_reduces(const struct printer *e, const char *head, const char *format)
{
    text_printf(e->t, "    %s\n    {\n", head);
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (s->kind != STEP_REDUCE) continue;
        text_append(e->t, "        ");
        for (const char *c = format; *c; c++) {
            if (*c == '$') text_printf(e->t, "v%d", i);
            else if (*c == '@') text_printf(e->t, "reduce::%s", s->prim->name);
            else if (*c == '#') text_printf(e->t, "%d", e->p->port[s->port].blocks);
            else if (*c == '&') text_printf(e->t, "g.s%d", s->port);
            else text_printf(e->t, "%c", *c);
        }
        text_append(e->t, "\n");
    }
    text_append(e->t, "    }\n");
}

static void print_states(const struct printer *e)
{
    if (!count_slot(e, STEP_REDUCE)) return;
    text_append(e->t, "\n    struct State {");
    for (int i = 0; i < e->p->steps; i++)
        if (e->p->step[i].kind == STEP_REDUCE)
            text_printf(e->t, " reduce::%s::State v%d;", e->p->step[i].prim->name, i);
    text_append(e->t, " };\n");
    print_for_reduces(e, "DEV static void init(State &s)", "@::init(s.$);");
    print_for_reduces(e, "DEV static void merge(State &s, const State &o)", "@::merge(s.$, o.$);");
    print_for_reduces(e, "DEV static void save(const Args &g, i64 row, int block, const State &s)",
                      "port::store_partial<@>(&, row, block, #, s.$);");
}

void emit_epilogue(const struct program *p, const struct epilogue_layout *l, struct text *t)
{
    struct printer e = {.p = p, .l = l, .t = t};
    text_append(t, "\nstruct Epilogue : EpilogueDefaults {");
    if (l->row_team > 1) text_printf(t, "\n    static constexpr int team = %d;", l->row_team);
    printer_level(&e, LEVEL_ROW, "Row", "row", "m");
    printer_level(&e, LEVEL_COL, "Col", "col", "n");
    printer_level(&e, LEVEL_HALF, "Half", "half", "n");
    printer_cell(&e);
    print_tiles(&e);
    print_moved_types(&e);
    print_states(&e);
    print_apply(&e);
    text_append(t, "};\n");
}
