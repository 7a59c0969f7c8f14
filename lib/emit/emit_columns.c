/*
 * emit_columns.c -- the frame of a rows kernel that folds columns, and of one that finishes what was folded.
 * columns_schedule.c decides how threads stand; emit_rows_steps.c prints the values and stores of a piece.
 */
#include "emit_rows.h"

/* For all blocks that are this one's. */
static void open_blocks(struct emitter *e)
{
    const char *type = e->w->blocks < INT32_MAX ? "u32" : "i64";
    rows_line(e, "const int across = threadIdx.x %% %d, down = threadIdx.x / %d;", e->w->across,
              e->w->across);
    rows_open(e, "for (%s t = block.index(); t < %s; t += block.count())", type, rows_blocks_word(e).s);
}

/* Where the block's slab begins, and the thread's columns in it. */
static void print_columns(struct emitter *e, const char *slab)
{
    rows_line(e, "const i64 first = (i64)%s * %d;", slab, e->w->across * e->w->width);
    rows_line(e, "const %s c = first + across * %d;", e->w->columns < INT32_MAX / 2 ? "int" : "i64",
              e->w->width);
}

static void print_slab(struct emitter *e)
{
    print_columns(e, e->w->slabs > 1 ? emit_word("(int)(t %% %lld)", (wide)e->w->slabs).s : "0");
}

static struct word over(const char *of, int64_t n)
{
    return n > 1 ? emit_word("%s / %lld", of, (wide)n) : emit_word("%s", of);
}

/* The largest state that goes through shared memory. */
static int most_floats(const struct emitter *e)
{
    int most = 1;
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        bool state = (s->kind == STEP_REDUCE || s->kind == STEP_PARTIAL) && s->axis == REDUCE_COLUMNS;
        if (e->w->live[i] && state) most = MAX(most, e->p->port[s->port].reduce->state);
    }
    return most;
}

/* ---- Folds ---- */

/* A state that several statistics read is folded and stored by the first of them. */
static bool folds(const struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    return e->w->live[i] && step_folds_columns(s) && rows_state(e->w, e->p, i) == i;
}

static void begin_states(struct emitter *e)
{
    for (int i = 0; i < e->p->steps; i++) {
        const char *name = folds(e, i) ? e->p->step[i].prim->name : NULL;
        if (!name) continue;
        rows_line(e, "reduce::%s::State s%d[%d];", name, i, e->w->width);
        rows_line(e, "#pragma unroll");
        rows_line(e, "for (int j = 0; j < %d; j++) reduce::%s::init(s%d[j]);", e->w->width, name, i);
    }
}

static void end_states(struct emitter *e)
{
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (folds(e, i))
            rows_line(e, "rows::store_columns<reduce::%s, %d, %d>(s%d, shared, a.a%d, part, first, %lld);",
                      s->prim->name, e->w->across, e->w->down, i, e->argument[s->port], (wide)e->w->columns);
    }
}

int rows_shared_floats(const struct emitter *e)
{
    const struct rows_walk *w = e->w;
    if (!w->folds && !w->finishes) return 0;
    return w->threads * (w->folds ? w->width : 1) * most_floats(e);
}

/* Rows whose loads are in flight together: as many as registers for values and states allow. */
static int unrolled(const struct emitter *e)
{
    int floats = 0;
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (folds(e, i)) floats += s->prim->state * e->w->width;
        if (e->w->live[i] && s->kind == STEP_LOAD) floats += step_is_of_row(s) ? 1 : e->w->width;
    }
    return floats <= 32 ? 4 : floats <= 64 ? 2 : 1;
}

/* From `begin` on, where a matrix's part `part` begins. */
static void open_rows(struct emitter *e)
{
    const struct rows_walk *w = e->w;
    struct word row = rows_row_index(e), each = rows_of_part(e), rows = rows_of_matrix(e);
    rows_line(e, "const i64 begin = %s * %s;", rows_part(e).s, each.s);
    struct word end = emit_word("begin + %s < %s ? begin + %s : %s", each.s, rows.s, each.s, rows.s);
    bool whole = w->slabs * w->across == w->pieces;
    if (whole) rows_line(e, "const i64 end = %s;", end.s);
    else rows_line(e, "const i64 end = c >= %lld ? 0 : %s;", (wide)w->columns, end.s);
    begin_states(e);
    rows_line(e, "#pragma unroll %d", unrolled(e));
    rows_open(e, "for (i64 %s = begin + down; %s < end; %s += %d)", row.s, row.s, row.s, w->down);
}

/* ---- Folds of rows and of columns: teams walk the rows of a block's part ---- */

static void begin_kept_states(struct emitter *e)
{
    int items = (int)e->w->items, width = e->w->width;
    for (int i = 0; i < e->p->steps; i++) {
        const char *name = folds(e, i) ? e->p->step[i].prim->name : NULL;
        if (!name) continue;
        rows_line(e, "reduce::%s::State s%d[%d][%d];", name, i, items, width);
        rows_line(e, "#pragma unroll");
        rows_line(e, "for (int k = 0; k < %d; k++) reduce::%s::init(s%d[k / %d][k %% %d]);", items * width,
                  name, i, width, width);
    }
}

static void end_kept_states(struct emitter *e)
{
    const struct rows_walk *w = e->w;
    rows_line(e, "#pragma unroll");
    rows_open(e, "for (int i = 0; i < %lld; i++)", (wide)w->items);
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (folds(e, i))
            rows_line(e,
                      "rows::store_columns<reduce::%s, %d, %d>(s%d[i], shared, a.a%d, part, (i64)i * %d, "
                      "%lld);",
                      s->prim->name, w->across, w->down, i, e->argument[s->port], w->across * w->width,
                      (wide)w->columns);
    }
    rows_close(e);
}

/* A row's states that tiles have left are counted through all matrices. */
static void count_row(struct emitter *e)
{
    bool states = false;
    for (int i = 0; i < e->p->steps; i++)
        states = states || (e->w->live[i] && e->p->step[i].kind == STEP_PARTIAL);
    if (!states || e->w->rank == 2) return;
    const char *matrix = e->w->matrices > 1 ? "matrix" : "(i64)0";
    rows_line(e, "const i64 row = %s * %s + %s;", matrix, rows_of_matrix(e).s, rows_row_index(e).s);
}

static void fold_both(struct emitter *e)
{
    const struct rows_walk *w = e->w;
    struct word row = rows_row_index(e), each = rows_of_part(e), rows = rows_of_matrix(e);
    struct word team = w->down > 1 ? emit_word(" + threadIdx.x / %d", w->team) : emit_word("%s", "");
    if (w->team > 1)
        rows_line(e, w->down == 1 ? "const int lane = threadIdx.x;" : "const int lane = threadIdx.x %% %d;",
                  w->team);
    rows_open(e, "for (%s t = block.index(); t < %s; t += block.count())",
              w->blocks < INT32_MAX ? "u32" : "i64", rows_blocks_word(e).s);
    rows_line(e, "const i64 part = t;");
    if (w->matrices > 1) rows_line(e, "const i64 matrix = %s;", rows_matrix(e).s);
    rows_matrix_indices(e);
    rows_line(e, "const i64 begin = %s * %s;", rows_part(e).s, each.s);
    rows_line(e, "const i64 end = begin + %s < %s ? begin + %s : %s;", each.s, rows.s, each.s, rows.s);
    begin_kept_states(e);
    rows_open(e, "for (i64 %s = begin%s; %s < end; %s += %d)", row.s, team.s, row.s, row.s, w->down);
    count_row(e);
    rows_pointers(e);
    rows_walk_team(e);
    rows_close(e);
    end_kept_states(e);
    rows_close(e);
}

void rows_fold_columns(struct emitter *e)
{
    const struct rows_walk *w = e->w;
    rows_line(e, "float *const shared = (float *)block.shared();");
    if (w->team) {
        fold_both(e);
        return;
    }
    open_blocks(e);
    print_slab(e);
    rows_line(e, "const i64 part = %s;", over("t", w->slabs).s);
    if (w->matrices > 1) rows_line(e, "const i64 matrix = %s;", rows_matrix(e).s);
    rows_matrix_indices(e);
    open_rows(e);
    rows_pointers(e);
    rows_row_values(e, 0);
    if (rows_needs(w, e->p, 0, e->needed)) rows_piece(e, 0);
    rows_close(e);
    end_states(e);
    rows_close(e);
}

/* ---- Statistics ---- */

static void print_partial(struct emitter *e, int i)
{
    const struct tensor_use *port = &e->p->port[e->p->step[i].port];
    int first = rows_state(e->w, e->p, i);
    if (first == i)
        rows_line(
            e, "const auto f%d = rows::merge_columns<reduce::%s, %d, %d>(a.a%d, shared, row, c, %lld, %s);",
            i, port->reduce->name, e->w->across, e->w->down, e->argument[e->p->step[i].port],
            (wide)e->w->columns, rows_states(e, e->p->step[i].port).s);
    rows_line(e, "const float v%d = reduce::%s::finish(f%d);", i, port->reduce->name, first);
}

/* Prints the live steps: columns' values at c. */
static void finish_here(struct emitter *e)
{
    for (int i = 0; i < e->p->steps; i++)
        if (e->w->live[i] && e->p->step[i].kind == STEP_PARTIAL) print_partial(e, i);
    rows_line(e, "if (down || c >= %lld) continue;", (wide)e->w->columns);
    rows_starts(e);
    rows_row_values(e, 0);
    if (rows_needs(e->w, e->p, 0, e->needed)) rows_piece(e, 0);
}

/* The live steps of range r, and what those read: row values are of no range. */
static void keep_range(const struct emitter *e, const struct rows_walk *all, int r, bool *live)
{
    for (int i = 0; i < e->p->steps; i++) live[i] = all->live[i] && e->p->step[i].range == r + 1;
    for (int i = e->p->steps - 1; i >= 0; i--)
        for (int k = 0; live[i] && k < e->p->step[i].nin; k++)
            if (e->p->step[i].in[k] >= 0) live[e->p->step[i].in[k]] = true;
}

/* A block's columns are of one range, and its threads branch together. */
static void finish_ranges(struct emitter *e)
{
    const struct rows_walk *all = e->w;
    struct rows_walk part = *all;
    int64_t begin = 0;
    part.live = e->scratch; /* of kernels that walk a row several times, which this is not */
    e->w = &part;
    for (int r = 0; r < e->p->ranges; r++) {
        part.columns = e->p->range[r].end - e->p->range[r].first;
        int64_t end = begin + columns_slabs(all, part.columns);
        keep_range(e, all, r, part.live);
        rows_open(e, "%sif (t < %lld)", r ? "else " : "", (wide)end);
        print_columns(e, (begin ? emit_word("(t - %lld)", (wide)begin) : emit_word("t")).s);
        rows_line(e, "const i64 row = 0;");
        finish_here(e);
        rows_close(e);
        begin = end;
    }
    e->w = all;
}

void rows_finish_columns(struct emitter *e)
{
    rows_line(e, "float *const shared = (float *)block.shared();");
    open_blocks(e);
    if (e->p->ranges) {
        finish_ranges(e);
    } else {
        print_slab(e);
        rows_line(e, "const i64 row = %s;", over("t", e->w->slabs).s);
        finish_here(e);
    }
    rows_close(e);
}
