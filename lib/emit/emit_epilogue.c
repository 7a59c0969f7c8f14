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

/* Does it go between registers and memory? */
static bool is_direct(const struct printer *e, int step, enum step_kind kind)
{
    return e->p->step[step].kind == kind && e->l->level[step] == LEVEL_SLOT && !e->l->moved[step];
}

static int count_slot(const struct printer *e, enum step_kind kind)
{
    int n = 0;
    for (int i = 0; i < e->p->steps; i++) n += e->p->step[i].kind == kind && e->l->level[i] == LEVEL_SLOT;
    return n;
}

/* ---- Steps ---- */

/* A keyed reduction compares a column with its row's key. Both are counted from a column for which the
 * compiler knows the distance of all others. */
static void print_reduce(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    bool keyed = s->nin > 1 && s->in[READS_KEY] >= 0;
    struct word first = emit_word(s->half ? "s.half_first" : "s.first");
    int lanes = s->half ? 1 : program_lanes(e->p);
    if (s->range) first = emit_word("s.first - %lld", (wide)step_columns(e->p, s).first);
    for (int lane = 0; lane < lanes && s->axis == REDUCE_COLUMNS; lane++)
        text_printf(e->t, "        if (s.inside) reduce::%s::push(columns.v%d[%d], %s, s.m, 0.0f);\n",
                    s->prim->name, i, lane, printer_value(e, s->in[0], lane).s);
    for (int lane = 0; lane < lanes && s->axis == REDUCE_ROWS; lane++) {
        struct word column = s->half ? emit_word("s.half_column") : emit_word("s.column[%d]", lane);
        text_printf(e->t, "        if (s.live[%d]) reduce::%s::push(state.v%d, %s, ", lane, s->prim->name, i,
                    printer_value(e, s->in[0], lane).s);
        if (keyed)
            text_printf(e->t, "%s, %s - (float)%s);\n", column.s, printer_value(e, s->in[READS_KEY], 0).s,
                        first.s);
        else text_printf(e->t, "%s + %s, 0.0f);\n", first.s, column.s);
    }
}

static void print_out(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    int lanes = s->half ? 1 : program_lanes(e->p), k = printer_number(e, i);
    for (int lane = 0; lane < lanes; lane++)
        text_printf(e->t, "        s.out[%d][%d] = %s;\n", k, lane, printer_value(e, s->in[0], lane).s);
}

/* The steps of a range, or of all columns. */
static void print_slots(struct printer *e, int range)
{
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (e->l->level[i] != LEVEL_SLOT || s->range != range) continue;
        switch (s->kind) {
        case STEP_PAIR: printer_pair(e, i); break;
        case STEP_REDUCE: print_reduce(e, i); break;
        case STEP_CONV1D: printer_conv1d(e, i); break;
        case STEP_STORE: print_out(e, i); break;
        default: printer_slot(e, i);
        }
    }
}

static void print_apply(struct printer *e)
{
    e->level = LEVEL_SLOT;
    text_printf(e->t, "\n    template <class S> DEV static void apply(S &s, State &state%s)\n    {\n",
                program_folds_columns(e->p) ? ", ColumnState &columns" : "");
    print_slots(e, 0);
    for (int r = 1; r <= e->p->ranges; r++) {
        text_printf(e->t, "        if constexpr (S::range == %d) {\n", r - 1);
        print_slots(e, r);
        text_append(e->t, "        }\n");
    }
    text_append(e->t, "    }\n");
}

/* ---- Tiles ---- */

/* May two neighbours move in one access? Both exist or neither, and both are aligned. */
static bool moves_pairs(const struct program *p, const struct step *s)
{
    const struct tensor_use *port = &p->port[s->port];
    bool even = port->offset % 2 == 0 && program_columns(p) % 2 == 0;
    even = even && (program_samples(p) <= 1 || port->stride[0] % 2 == 0) &&
           (p->dim[1] <= 1 || port->stride[1] % 2 == 0);
    if (use_is_indexed(port)) even = even && port->table_stride % 2 == 0;
    if (port->page)
        even = even && port->page_stride % 2 == 0 && port->head_dim % 2 == 0 && port->head_stride % 2 == 0;
    bool split = p->pair == PAIR_GLU_INTERLEAVED && !s->half;
    return even && port->stride[2] == 1 && !split;
}

static struct word row_pointer(const struct printer *e, const struct step *s, char letter)
{
    const struct tensor_use *port = &e->p->port[s->port];
    if (port->page)
        return emit_word("cache_row<%lld, %lld>(g.%c%d, %s, %s, %lld, %lld, %lld)", (wide)port->head_dim,
                         (wide)port->head_stride, letter, s->port, printer_value(e, port->index, 0).s,
                         printer_table(e->p, port).s, (wide)port->page, (wide)port->page_stride,
                         (wide)port->table_stride);
    if (use_is_indexed(port))
        return emit_word("table_row(g.%c%d, %s, %s, %lld)", letter, s->port,
                         printer_value(e, port->index, 0).s, printer_table(e->p, port).s,
                         (wide)port->table_stride);
    return emit_word("g.%c%d%s%s", letter, s->port, printer_batch(e->p, port, "p.batch").s,
                     printer_term(port->stride[1], e->p->dim[1], "p.m").s);
}

static void print_load(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    const struct tensor_use *port = &e->p->port[s->port];
    const char *span = s->half ? "p.half" : "p.full";
    int k = printer_number(e, i);
    struct word row = row_pointer(e, s, 'x');
    if (moves_pairs(e->p, s)) text_printf(e->t, "        x[%d] = read_pairs(%s, %s);", k, row.s, span);
    else text_printf(e->t, "        x[%d] = read_each(%s, %s, %lld);", k, row.s, span, (wide)port->stride[2]);
    text_append(e->t, "\n");
    if (port->role == USE_GATHER)
        text_printf(e->t, "        if (!in_table(%s, %s)) x[%d] = {};\n", printer_value(e, port->index, 0).s,
                    printer_table(e->p, port).s, k);
}

/* A store is of a range of columns, or of rows that have a slot, or of all. */
static void print_guard(const struct printer *e, const struct step *s)
{
    const struct tensor_use *port = &e->p->port[s->port];
    bool ranges = s->range && printer_ranges(e->p) > 1;
    if (ranges) text_printf(e->t, "        if constexpr (range == %d)\n    ", s->range - 1);
    if (use_is_indexed(port))
        text_printf(e->t, "        if (in_table(%s, %s))\n    %s", printer_value(e, port->index, 0).s,
                    printer_table(e->p, port).s, ranges ? "    " : "");
}

/* Values over what their head has for a scale. */
static struct word scaled(const struct printer *e, const struct step *s, struct word span, int k)
{
    const struct tensor_use *port = &e->p->port[s->port], *scale = &e->p->port[port->scale - 1];
    struct column_range columns = step_columns(e->p, s);
    int64_t each = step_value_columns(e->p, s) / scale->table_rows;
    return emit_word("over<%lld>(y[%d], %.60s, g.x%d, %lld, %lld)", (wide)each, k, span.s, port->scale - 1,
                     (wide)scale->table_stride, (wide)columns.first);
}

static void print_store(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    struct word span = emit_word(s->half ? "p.half" : "p.full");
    if (s->store_columns.end)
        span =
            emit_word("window(p.full, %lld, %lld)", (wide)s->store_columns.first, (wide)s->store_columns.end);
    const char *how = printer_adds(e, i) ? "accumulate" : "write";
    const struct tensor_use *port = &e->p->port[s->port];
    int k = printer_number(e, i);
    struct word row = row_pointer(e, s, 'y');
    struct column_range columns = step_columns(e->p, s);
    if (columns.first) /* of the product, which the span counts */
        row = emit_word("%.160s - %lld", row.s, (wide)(columns.first * (port->page ? 1 : port->stride[2])));
    struct word y = emit_word("y[%d]", k);
    if (port->scale) y = scaled(e, s, span, k);
    print_guard(e, s);
    if (moves_pairs(e->p, s)) text_printf(e->t, "        %s_pairs(%s, %s, %s);", how, row.s, span.s, y.s);
    else
        text_printf(e->t, "        %s_each(%s, %s, %lld, %s);", how, row.s, span.s, (wide)port->stride[2],
                    y.s);
    text_append(e->t, "\n");
}

/* "Moves<Whole<bf16, 0>, Twins<f16, 2, 1>>": the numbers are those of loads, or stores. */
static void print_moves(const struct printer *e, const char *name, const struct moves *m)
{
    if (!m->count) return;
    text_printf(e->t, "    using %s = Moves<", name);
    for (int i = 0; i < m->count; i++) {
        text_append(e->t, i ? ", " : "");
        printer_move(e, &m->move[i]);
    }
    text_append(e->t, ">;\n");
}

/* A function of those that go between registers and memory, if there are any; of stores one for each range of
 * columns. */
static void print_direct(const struct printer *e, enum step_kind kind, const char *head,
                         void (*print)(const struct printer *e, int step))
{
    const char *of = kind == STEP_STORE && printer_ranges(e->p) > 1 ? "template <int range> " : "";
    bool begun = false;
    for (int i = 0; i < e->p->steps; i++) {
        if (!is_direct(e, i, kind)) continue;
        if (!begun) text_printf(e->t, "    %sDEV static void %s\n    {\n", of, head);
        begun = true;
        print(e, i);
    }
    if (begun) text_append(e->t, "    }\n");
}

/* Does a row's value say where it is stored? */
static bool stores_by_row(const struct program *p)
{
    for (int i = 0; i < p->steps; i++)
        if (p->step[i].kind == STEP_STORE && use_is_indexed(&p->port[p->step[i].port])) return true;
    return false;
}

static void print_tiles(struct printer *e)
{
    e->level = LEVEL_HALF; /* row values are r.v<i> here */
    text_printf(e->t, "\n    static constexpr int loads = %d, stores = %d;\n", count_slot(e, STEP_LOAD),
                count_slot(e, STEP_STORE));
    if (e->p->ranges) printer_stores(e);
    else print_moves(e, "Staged", &e->l->stores);
    print_moves(e, "Fetched", &e->l->loads);
    print_direct(e, STEP_LOAD, "load(const Args &g, const Place &p, const Row &r, Line *x)", print_load);
    if (stores_by_row(e->p)) text_append(e->t, "    static constexpr bool stores_by_row = true;\n");
    print_direct(e, STEP_STORE,
                 stores_by_row(e->p) ? "store(const Args &g, const Place &p, const Row &r, const Line *y)"
                                     : "store(const Args &g, const Place &p, const Line *y)",
                 print_store);
}

/* ---- Reductions ---- */

/* A line for each reduction along the axis, in which $ is its state, @ its type, # the states of a row, and &
 * their port. */
static void print_for_reduces(const struct printer *e, enum reduce_axis axis, const char *head,
                              const char *format)
{
    text_printf(e->t, "    %s\n    {\n", head);
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (s->kind != STEP_REDUCE || s->axis != axis || e->l->level[i] != LEVEL_SLOT) continue;
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

static bool reduces(const struct printer *e, enum reduce_axis axis)
{
    for (int i = 0; i < e->p->steps; i++)
        if (e->p->step[i].kind == STEP_REDUCE && e->p->step[i].axis == axis && e->l->level[i] == LEVEL_SLOT)
            return true;
    return false;
}

static void print_states(const struct printer *e)
{
    if (!reduces(e, REDUCE_ROWS)) return;
    text_append(e->t, "\n    struct State {");
    for (int i = 0; i < e->p->steps; i++)
        if (e->p->step[i].kind == STEP_REDUCE && e->p->step[i].axis == REDUCE_ROWS &&
            e->l->level[i] == LEVEL_SLOT)
            text_printf(e->t, " reduce::%s::State v%d;", e->p->step[i].prim->name, i);
    text_append(e->t, " };\n");
    print_for_reduces(e, REDUCE_ROWS, "DEV static void init(State &s)", "@::init(s.$);");
    print_for_reduces(e, REDUCE_ROWS, "DEV static void merge(State &s, const State &o)",
                      "@::merge(s.$, o.$);");
    print_for_reduces(e, REDUCE_ROWS,
                      "DEV static void save(const Args &g, i64 row, int block, const State &s)",
                      "port::store_partial<@>(&, row, block, #, s.$);");
}

static int column_lanes(const struct printer *e, const struct step *s)
{
    return s->half ? 1 : program_lanes(e->p);
}

/* A function of the states of a slot's columns: for each of them calls what `print` prints. */
static void print_for_columns(const struct printer *e, const char *head,
                              void (*print)(const struct printer *e, const struct step *s, int i, int lane))
{
    text_printf(e->t, "    %s\n    {\n", head);
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (!step_folds_columns(s)) continue;
        for (int lane = 0; lane < column_lanes(e, s); lane++) print(e, s, i, lane);
    }
    text_append(e->t, "    }\n");
}

static void print_init(const struct printer *e, const struct step *s, int i, int lane)
{
    text_printf(e->t, "        reduce::%s::init(s.v%d[%d]);\n", s->prim->name, i, lane);
}

static void print_merge(const struct printer *e, const struct step *s, int i, int lane)
{
    text_printf(e->t, "        reduce::%s::merge(s.v%d[%d], o.v%d[%d]);\n", s->prim->name, i, lane, i, lane);
}

static void print_save(const struct printer *e, const struct step *s, int i, int lane)
{
    struct word column = s->half ? emit_word("c.half_column") : emit_word("c.column[%d]", lane);
    int64_t columns = s->half ? program_columns(e->p) : e->p->dim[2];
    text_printf(e->t, "        port::store_partial<reduce::%s>(g.s%d, part, %s, %lld, s.v%d[%d]);\n",
                s->prim->name, s->port, column.s, (wide)columns, i, lane);
}

static void print_column_states(const struct printer *e)
{
    if (!reduces(e, REDUCE_COLUMNS)) return;
    text_append(e->t, "\n    struct ColumnState {");
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (step_folds_columns(s))
            text_printf(e->t, " reduce::%s::State v%d[%d];", s->prim->name, i, column_lanes(e, s));
    }
    text_append(e->t, " };\n");
    print_for_columns(e, "DEV static void init_columns(ColumnState &s)", print_init);
    print_for_columns(e, "DEV static void merge_columns(ColumnState &s, const ColumnState &o)", print_merge);
    print_for_columns(
        e,
        "template <class Spot>\n"
        "    DEV static void save_columns(const Args &g, i64 part, const Spot &c, const ColumnState &s)",
        print_save);
}

void emit_epilogue(const struct program *p, const struct epilogue_layout *l, struct text *t)
{
    struct printer e = {.p = p, .l = l, .t = t};
    text_append(t, "\nstruct Epilogue : EpilogueDefaults {");
    if (l->row_team > 1) text_printf(t, "\n    static constexpr int team = %d;", l->row_team);
    if (p->sample)
        text_printf(
            t, "\n    static constexpr int sample = %lld;\n    static constexpr bool sampled_columns = %s;",
            (wide)p->sample, program_samples_columns(p) ? "true" : "false");
    printer_level(&e, LEVEL_ROW, "Row", "row", "m");
    printer_level(&e, LEVEL_COL, "Col", "col", "n");
    printer_level(&e, LEVEL_HALF, "Half", "half", "n");
    printer_cell(&e);
    print_tiles(&e);
    print_states(&e);
    print_column_states(&e);
    if (p->segment) printer_segments(&e);
    if (conv1d_step_of(p) >= 0) printer_rows_above(&e);
    print_apply(&e);
    text_append(t, "};\n");
}
