/*
 * emit_rows.c -- prints a rows program as a kernel: straight-line code, one walk over the columns for each
 * phase, the reductions of the row between them. rows_schedule.c decides the geometry.
 */
#include "emit.h"
#include "emit_rows.h"

#include <string.h>

/* ---- Comment: tensors are named by their place among the arguments, so that equal programs have equal
 * texts, and share a kernel, whatever the graph calls them ---- */

static void print_step(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    const struct tensor_use *port = s->port >= 0 ? &e->p->port[s->port] : NULL;
    unsigned effect = s->kind == STEP_STORE ? use_effect(port) : 0;
    if (!effect) text_printf(e->t, "//   v%d =", i);
    else
        text_printf(e->t, "//   %s",
                    effect & EFFECT_ADD      ? "add"
                    : effect & EFFECT_APPEND ? "append"
                                             : "store");
    switch (s->kind) {
    case STEP_LOAD:
        text_append(e->t, port->role == USE_GATHER ? " gather "
                          : s->port == e->summed   ? " sum over ranks of "
                                                   : " load ");
        break;
    case STEP_SCALAR: text_append(e->t, " scalar "); break;
    case STEP_PARTIAL: text_printf(e->t, " finish %s of ", port->reduce->name); break;
    case STEP_COLUMN: text_append(e->t, " column"); break;
    case STEP_PAIR:
    case STEP_MAP:
    case STEP_REDUCE: text_printf(e->t, " %s", step_name(e->p, s)); break;
    default: break;
    }
    for (int k = 0; k < s->nin; k++)
        if (s->in[k] >= 0) text_printf(e->t, " v%d", s->in[k]);
        else if (s->kind == STEP_MAP) text_printf(e->t, " %s", emit_float(s->immediate[k]).s);
    if (s->kind == STEP_STORE) text_append(e->t, " to ");
    if (port && s->kind == STEP_PAIR) text_append(e->t, " by ");
    if (port && s->kind == STEP_REDUCE) text_append(e->t, " over rows, to ");
    if (port) text_printf(e->t, "%c%d", port->role == USE_SCALAR ? 'c' : 'a', e->argument[s->port]);
    text_append(e->t, "\n");
}

static void print_domain(struct emitter *e)
{
    const struct program *p = e->p;
    text_append(e->t, "// rows");
    if (!e->passes) {
        for (int d = 0; d < p->rank; d++) text_printf(e->t, "%s%lld", d ? "," : " [", (wide)p->dim[d]);
        text_append(e->t, "]");
    } else if (!e->w->joined) text_printf(e->t, " of %lld", (wide)e->w->columns);
}

static void print_comment(struct emitter *e)
{
    const struct program *p = e->p;
    print_domain(e);
    text_printf(e->t, ", %d column%s at once", e->w->width, e->w->width > 1 ? "s" : "");
    if (e->w->team) text_printf(e->t, ", %d thread%s for a row", e->w->team, e->w->team > 1 ? "s" : "");
    if (e->w->folds) text_printf(e->t, ", %d x %d threads for some rows", e->w->down, e->w->across);
    if (e->w->finishes) text_printf(e->t, ", %d thread%s each", e->w->down, e->w->down > 1 ? "s" : "");
    text_append(e->t, "\n");
    for (int i = 0; i < p->steps; i++)
        if (e->w->live[i]) print_step(e, i);
}

/* ---- Arguments ---- */

static bool port_live(const struct emitter *e, int port)
{
    for (int i = 0; i < e->p->steps; i++) {
        enum step_kind kind = e->p->step[i].kind;
        bool moves = kind != STEP_ACC && kind != STEP_MAP && kind != STEP_LANE;
        if (e->w->live[i] && moves && step_uses(e->p, &e->p->step[i], port)) return true;
    }
    return false;
}

static bool unpacks(const struct program *p)
{
    for (int q = 0; q < p->ports; q++)
        if (use_is_packed(&p->port[q])) return true;
    return false;
}

/* Ports at one address share an argument. */
static void take_arguments(struct emitter *e)
{
    for (int q = 0; q < e->p->ports; q++) {
        const struct tensor_use *port = &e->p->port[q];
        e->argument[q] = -1;
        if (!port_live(e, q)) continue;
        if (e->exchange && port->buffer == e->exchange->use[ALL_REDUCE_SUM].buffer)
            port = &e->exchange->use[ALL_REDUCE_X], e->summed = q;
        e->argument[q] = port->role == USE_SCALAR ? emit_scalar(e->k, port->buffer) : emit_use(e->k, port);
    }
}

static void print_argument(struct emitter *e, int index)
{
    const struct tensor_use *port = NULL;
    bool stored = false;
    for (int q = e->p->ports - 1; q >= 0; q--) {
        if (e->argument[q] != index || e->p->port[q].role == USE_SCALAR) continue;
        port = &e->p->port[q];
        stored = stored || use_effect(port) != EFFECT_READ;
    }
    coda_dtype type = use_is_packed(port) ? CODA_U8 : port->dtype;
    text_printf(e->t, "    %s%s *a%d;\n", stored ? "" : "const ", emit_dtype(type), index);
}

static void print_arguments(struct emitter *e)
{
    text_append(e->t, "\nstruct Args {\n");
    for (int i = 0; i < e->k->pointers; i++) print_argument(e, i);
    for (int q = 0; q < e->p->ports; q++)
        if (e->p->port[q].role == USE_SCALAR && e->argument[q] >= 0)
            text_printf(e->t, "    %s c%d;\n", emit_dtype(e->p->port[q].dtype), e->argument[q]);
    rows_pass_numbers(e);
    if (e->exchange) text_printf(e->t, "    exchange::Company<%lld> company;\n", (wide)e->exchange->ranks);
    text_append(e->t, "};\n");
}

/* ---- Kernels without a walk: a thread for each piece ---- */

/* " * 8", or nothing for 1. */
static struct word times(int64_t n) { return n == 1 ? emit_word("%s", "") : emit_word(" * %lld", (wide)n); }

static void print_place(struct emitter *e)
{
    const struct rows_walk *w = e->w;
    const char *type = w->columns < INT32_MAX ? "int" : "i64";
    if (w->rank == 1) {
        if (rows_has_pairs(e)) rows_line(e, "const i64 row = 0;");
        rows_line(e, "const %s c = (%s)t%s;", type, type, times(w->width).s);
    } else if (rows_divides_pieces(e)) {
        rows_line(e, "const i64 row = a.row_pieces.quotient(t);");
        rows_line(e, "const %s c = (%s)a.row_pieces.rest(t)%s;", type, type, times(w->width).s);
    } else if (w->pieces == 1) {
        rows_line(e, "const i64 row = t;");
        rows_line(e, "const int c = 0;");
    } else {
        rows_line(e, "const i64 row = t / %lld;", (wide)w->pieces);
        rows_line(e, "const %s c = t %% %lld%s;", type, (wide)w->pieces, times(w->width).s);
    }
}

static void print_flat(struct emitter *e)
{
    const struct rows_walk *w = e->w;
    const char *type = rows_index_type(e), *suffix = !strcmp(type, "u32") ? "u" : "ll";
    rows_open(e, "for (%s t = block.index() * %d%s + threadIdx.x; t < %s; t += block.count() * %d%s)", type,
              w->threads, suffix, rows_pieces(e, suffix).s, w->threads, suffix);
    print_place(e);
    rows_starts(e);
    if (e->exchange) rows_line(e, "summed.send(p%d + c, 0);", e->summed);
    rows_partials(e);
    rows_row_values(e, 0);
    if (rows_needs(w, e->p, 0, e->needed)) rows_piece(e, 0);
    rows_close(e);
}

/* ---- Kernels that walk rows ---- */

static void print_team(struct emitter *e)
{
    const struct rows_walk *w = e->w;
    int teams = w->threads / w->team;
    struct word mine = teams == 1 ? emit_word("block.index()")
                       : w->team == 1
                           ? emit_word("(i64)block.index() * %d + threadIdx.x", teams)
                           : emit_word("(i64)block.index() * %d + threadIdx.x / %d", teams, w->team);
    if (!rows_are_early(e)) rows_lane(e);
    rows_open(e, "for (i64 row = %s; row < %s; row += (i64)block.count()%s)", mine.s, rows_count(e).s,
              times(teams).s);
    rows_starts(e);
    rows_walk_team(e);
    rows_close(e);
}

/* ---- The kernel ---- */

/* How many columns there are, and in a piece; of a team's thread, how many pieces, and how far apart. */
static struct word exchanged_pieces(const struct rows_walk *w)
{
    if (!w->team) return emit_word("%d, %d", w->width, w->width);
    return emit_word("%lld, %d, %lld, %lld", (wide)w->columns, w->width, (wide)w->items,
                     (wide)w->team * w->width);
}

static void begin_exchange(struct emitter *e)
{
    const struct exchange_spec *s = e->exchange;
    struct word n = e->w->team ? rows_count(e) : rows_pieces(e, "");
    rows_line(e, "exchange::RowSum<%s, %lld, %s> summed(a.company, block.index(), a.a%d, (i64)%s * %lld);",
              emit_dtype(s->use[ALL_REDUCE_X].dtype), (wide)s->ranks, exchanged_pieces(e->w).s,
              e->argument[e->summed], n.s, (wide)(e->w->team ? e->w->columns : e->w->width));
}

static void print_kernel(struct emitter *e, const struct schedule *s)
{
    print_comment(e);
    emit_includes(e->p, e->t);
    if (rows_has_divisors(e)) text_append(e->t, "#include \"divisor.cuh\"\n");
    if (s->pdl) text_append(e->t, "#include \"ptx/control.cuh\"\n");
    if (unpacks(e->p)) text_append(e->t, "#include \"tile/weights.cuh\"\n");
    text_append(e->t,
                "#include \"port/tile.cuh\"\n#include \"port/vector.cuh\"\n#include \"tile/rows.cuh\"\n");
    if (e->w->folds || e->w->finishes) text_append(e->t, "#include \"tile/column_states.cuh\"\n");
    if (e->exchange) text_append(e->t, "#include \"exchange/rows.cuh\"\n");
    text_append(e->t, "\nusing namespace coda;\n");
    rows_pair_tables(e);
    print_arguments(e);
    int floats = rows_shared_floats(e);
    if (floats) text_printf(e->t, "\nstruct Shared { float states[%d]; };\n", floats);
    emit_body(e->t);
    e->depth = 1;
    if (s->early) emit_launch_next(e->t);
    if (s->grid && rows_are_early(e)) rows_walk_early(e);
    if (s->pdl) rows_line(e, "ptx::grid_wait();");
    if (e->exchange) begin_exchange(e);
    if (s->grid && e->w->folds) rows_fold_columns(e);
    else if (s->grid && e->w->finishes) rows_finish_columns(e);
    else if (s->grid && e->w->team) print_team(e);
    else if (s->grid) print_flat(e);
    if (e->exchange) rows_line(e, "summed.exchange.end(block.count(), %d);", e->w->threads);
    text_append(e->t, "}\n");
    emit_entry(e->k, &(struct entry){.declares = floats > 0}, e->t);
}

/* Is step i printed where its operands are, and with a pointer to what it moves? */
static bool is_defined(const struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    bool moves =
        s->kind == STEP_LOAD || s->kind == STEP_STORE || s->kind == STEP_PARTIAL || s->kind == STEP_SCALAR;
    if (moves && e->argument[s->port] < 0) return false;
    for (int k = 0; k < s->nin; k++)
        if (s->in[k] >= 0 && (!e->w->live[s->in[k]] || e->w->phase[s->in[k]] > e->w->phase[i])) return false;
    int index = rows_index(e->p, s);
    if (index >= 0 && (!e->w->live[index] || e->w->phase[index] > e->w->phase[i])) return false;
    return s->kind != STEP_PAIR || rows_has_partner(e, i);
}

static coda_status check_steps(const struct emitter *e)
{
    for (int i = 0; i < e->p->steps; i++)
        if (e->w->live[i] && !is_defined(e, i))
            return fail(CODA_E_INVALID, "kernel %s: step %d reads what the kernel does not define",
                        e->k->symbol, i);
    return CODA_OK;
}

static coda_status prepare(struct emitter *e)
{
    struct arena *arena = &e->plan->arena;
    e->needed = ARENA_NEW(arena, bool, e->p->steps);
    e->scratch = ARENA_NEW(arena, bool, e->p->steps);
    e->argument = ARENA_NEW(arena, int, e->p->ports);
    if (arena->failed) return fail(CODA_E_MEMORY, "out of memory for a kernel of %d steps", e->p->steps);
    coda_status status = rows_check_pairs(e);
    if (!status) take_arguments(e);
    if (!status) status = check_steps(e);
    if (!status) e->passes = rows_may_pass(e);
    return status;
}

coda_status emit_rows(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k)
{
    struct text t = {0};
    struct emitter e = {
        .plan = plan, .p = p, .w = &s->walk, .k = k, .t = &t, .exchange = s->exchange, .summed = -1};
    k->symbol = emit_symbol(plan, p, "coda_rows");
    coda_status status = prepare(&e);
    if (status) return status;
    print_kernel(&e, s);
    k->text = arena_string(&plan->arena, text_str(&t));
    bool failed = t.failed || plan->arena.failed;
    text_free(&t);
    return failed ? fail(CODA_E_MEMORY, "out of memory for the text of a kernel") : CODA_OK;
}
