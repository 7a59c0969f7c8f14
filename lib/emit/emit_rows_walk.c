/*
 * emit_rows_walk.c -- prints how a team walks its row: once over the columns for each phase, and between
 * walks the reductions of the row. emit_rows.c and emit_columns.c print which rows a team has.
 */
#include "emit_rows.h"

static void print_states(struct emitter *e, int phase)
{
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (s->kind != STEP_REDUCE || step_folds_columns(s) || !rows_sink(e->w, e->p, i, phase)) continue;
        if (rows_state(e->w, e->p, i) != i) continue;
        if (rows_has_mean(e, i)) {
            rows_begin_mean(e, i);
            continue;
        }
        rows_line(e, "reduce::%s::State s%d;", s->prim->name, i);
        rows_line(e, "reduce::%s::init(s%d);", s->prim->name, i);
    }
}

static void print_walk(struct emitter *e, int phase)
{
    print_states(e, phase);
    if (!rows_needs(e->w, e->p, phase, e->needed) || !e->w->pieces) return;
    rows_open_walk(e);
    rows_piece(e, phase);
    rows_close(e);
}

static void print_ahead(struct emitter *e, bool summed)
{
    bool any = false;
    for (int i = 0; i < e->p->steps; i++)
        any = any || (e->w->ahead[i] && (e->p->step[i].port == e->summed) == summed);
    if (!any || !e->w->pieces) return;
    rows_open_walk(e);
    rows_read_ahead(e, summed);
    rows_close(e);
}

bool rows_are_early(const struct emitter *e)
{
    for (int i = 0; i < e->p->steps; i++)
        if (e->w->early[i]) return true;
    return false;
}

void rows_lane(struct emitter *e)
{
    if (e->w->team == 1) return;
    rows_line(e,
              e->w->team == e->w->threads ? "const int lane = threadIdx.x;"
                                          : "const int lane = threadIdx.x %% %d;",
              e->w->team);
}

void rows_walk_early(struct emitter *e)
{
    rows_lane(e);
    rows_early_room(e);
    rows_open_walk(e);
    rows_read_early(e);
    rows_close(e);
}

/* Ranks' words are on their way while a row's other pieces are loaded. */
void rows_walk_team(struct emitter *e)
{
    struct word c = e->w->team > 1 ? emit_word("lane%s", rows_times(e->w->width).s) : emit_word("%s", "0");
    if (e->exchange) rows_line(e, "summed.send(p%d + %s, %s);", e->summed, c.s, c.s);
    rows_kept(e);
    print_ahead(e, false);
    if (e->exchange) rows_line(e, "summed.receive(%s);", c.s);
    if (e->exchange) print_ahead(e, true);
    rows_partials(e);
    bool turns = rows_shares_turns(e);
    for (int phase = 0; phase < e->w->phases; phase++) {
        rows_row_values(e, phase);
        if (turns && phase == 0) rows_make_turns(e);
        if (turns && phase == e->w->phase[pair_step(e->p)]) rows_take_turns(e);
        print_walk(e, phase);
    }
    if (turns) rows_line(e, "__syncthreads();"); /* the next row's are written over them */
}
