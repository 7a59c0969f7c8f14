/*
 * emit_rows_steps.c -- prints the steps of a rows kernel: its row values, and the values and stores of one
 * piece of columns.
 *
 * Names: vI is the value of step I, qI what divides by it, sI its state, xI its piece of a load, yI its piece
 * of a store; pQ is where the row of port Q starts, rQ the row of a table; c is the first column of the
 * piece.
 */
#include "emit_rows.h"

#include <string.h>

static const struct tensor_use *port_of(const struct emitter *e, const struct step *s)
{
    return &e->p->port[s->port];
}

static bool is_gather(const struct emitter *e, const struct step *s)
{
    return s->kind == STEP_LOAD && port_of(e, s)->role == USE_GATHER;
}

/* ---- Tables ---- */

/* The rows of tables, or of states, that the id in step `id` names. */
static void print_gather_starts(struct emitter *e, int id)
{
    for (int q = 0; q < e->p->ports; q++) {
        const struct tensor_use *port = &e->p->port[q];
        if (e->argument[q] < 0 || !use_is_indexed(port) || port->index != id) continue;
        rows_line(e, "const i64 r%d = rows::table_row(v%d, %s);", q, id, rows_of_table(e, q).s);
        if (use_is_packed(port)) {
            rows_line(e, "using W%d = %s;", q, emit_packed(port).s);
            continue;
        }
        if (port->page) {
            rows_line(e, "%s *p%d = a.a%d + rows::cache_row(r%d, %lld, %lld, %lld);", emit_dtype(port->dtype),
                      q, e->argument[q], q, (wide)port->page, (wide)port->page_stride,
                      (wide)port->table_stride);
            continue;
        }
        rows_line(e, "%s%s *p%d = a.a%d + (r%d < 0 ? 0 : r%d) * %lld;",
                  port->role == USE_SCATTER ? "" : "const ", emit_dtype(port->dtype), q, e->argument[q], q, q,
                  (wide)port->table_stride);
    }
}

/* ---- Elements ---- */

/* The column of the element in print. */
static const char *column(const struct emitter *e) { return e->w->width > 1 ? "c + j" : "c"; }

/* " + c / 64 * 8192 + c % 64": of column c, heads lying apart. */
static struct word head_place(const struct tensor_use *port, const char *c, int64_t stride)
{
    return emit_word(" + (i64)((u32)(%s) / %lld) * %lld + (i64)((u32)(%s) %% %lld) * %lld", c,
                     (wide)port->head_dim, (wide)port->head_stride, c, (wide)port->head_dim, (wide)stride);
}

/* An element's address: "p3 + c", "p3 + (i64)(c + j) * 40". */
static struct word address(const struct emitter *e, int port)
{
    int64_t stride = rows_stride(e, port);
    if (e->p->port[port].page)
        return emit_word("p%d%.170s", port, head_place(&e->p->port[port], column(e), stride).s);
    if (stride == 0) return emit_word("p%d", port);
    if (stride == 1) return emit_word("p%d + %s", port, column(e));
    return emit_word("p%d + (i64)(%s) * %lld", port, column(e), (wide)stride);
}

/* " + r3 * 2", or nothing. */
static struct word term(const char *of, int64_t times)
{
    if (times == 0) return emit_word("%s", "");
    return times == 1 ? emit_word(" + %s", of) : emit_word(" + %s * %lld", of, (wide)times);
}

/* "a.a1, 5 + r3, 0 + (c + j)": the row and the column of what is packed, counted from the row block on at
 * which its pointer points. */
static struct word packed_place(const struct emitter *e, int port, const char *column)
{
    const struct tensor_use *u = &e->p->port[port];
    struct packed_at first = packed_at(u, u->offset), row = packed_at(u, u->table_stride),
                     next = packed_at(u, rows_stride(e, port));
    struct word r = emit_word("r%d", port), c = emit_word("(%s)", column);
    struct word rows =
        emit_word("%lld%s%.40s", (wide)(first.row % PACK_ROWS), term(r.s, row.row).s, term(c.s, next.row).s);
    struct word columns =
        emit_word("%lld%s%.40s", (wide)first.column, term(r.s, row.column).s, term(c.s, next.column).s);
    return emit_word("a.a%d, %.70s, %.70s", e->argument[port], rows.s, columns.s);
}

/* The element of a port as a number: "load(p3 + c)", or "W1::at(...)" of what is packed. */
static struct word element(const struct emitter *e, int port)
{
    if (!use_is_packed(&e->p->port[port])) return emit_word("load(%.180s)", address(e, port).s);
    return emit_word("W%d::at(%.180s)", port, packed_place(e, port, column(e)).s);
}

/* Is column load i read into an array, and its name there? */
static bool has_piece(const struct emitter *e, int i)
{
    return e->w->kept[i] || e->w->packed[e->p->step[i].port];
}

/* ---- Values ---- */

/* Does step i, of columns, divide by the row's value v? */
static bool divides_by(const struct emitter *e, int i, int v)
{
    const struct step *s = &e->p->step[i];
    bool divides = s->kind == STEP_MAP && s->prim->header && !strcmp(s->prim->name, "div");
    return divides && e->w->live[i] && !step_is_of_row(s) && s->in[0] >= 0 && s->in[1] == v;
}

/* The row's value by which step i, of columns, divides a load that is an array: its quotients are, too. None:
 * -1. */
static int divisor_of_piece(const struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    int by = s->kind == STEP_MAP && s->nin > 1 ? s->in[1] : IMMEDIATE;
    if (by < 0 || !step_is_of_row(&e->p->step[by]) || !divides_by(e, i, by) || e->w->width == 1) return -1;
    return e->p->step[s->in[0]].kind == STEP_LOAD && has_piece(e, s->in[0]) ? by : -1;
}

static void print_divisor(struct emitter *e, int v)
{
    for (int i = v + 1; i < e->p->steps; i++)
        if (divides_by(e, i, v)) {
            rows_line(e, "const rows::Quotient q%d(v%d);", v, v);
            return;
        }
}

static void print_map(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    int by = s->nin > 1 ? s->in[1] : IMMEDIATE;
    if (divisor_of_piece(e, i) >= 0) {
        rows_line(e, "const float v%d = d%d[j];", i, i);
        return;
    }
    if (by >= 0 && step_is_of_row(&e->p->step[by]) && divides_by(e, i, by)) {
        rows_line(e, "const float v%d = q%d.of(v%d);", i, by, s->in[0]);
        return;
    }
    struct word value[PRIM_MAX_INPUTS];
    struct text call = {0};
    for (int k = 0; k < s->nin; k++)
        if (s->in[k] != IMMEDIATE) value[k] = emit_word("v%d", s->in[k]);
    emit_call(e->p, i, value, &call);
    rows_line(e, "const float v%d = %s;", i, text_str(&call));
    e->t->failed = e->t->failed || call.failed;
    text_free(&call);
}

/* A row value of a tensor without elements, which has rows but no columns, is 0. */
static bool is_void(const struct emitter *e, const struct step *s)
{
    return step_is_of_row(s) && e->plan->buffer[port_of(e, s)->buffer].bytes == 0;
}

static void print_load(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    bool row = step_is_of_row(s);
    struct word from = row ? emit_word("load(p%d)", s->port) : element(e, s->port);
    if (is_void(e, s)) rows_line(e, "const float v%d = 0.0f;", i);
    else if (!row && has_piece(e, i))
        rows_line(e, "const float v%d = %s[%s];", i, rows_load(e, i).s, e->w->width > 1 ? "j" : "0");
    else if (is_gather(e, s)) rows_line(e, "const float v%d = r%d < 0 ? 0.0f : %s;", i, s->port, from.s);
    else rows_line(e, "const float v%d = %s;", i, from.s);
}

static void print_scalar(struct emitter *e, int i)
{
    rows_line(e, "const float v%d = (float)a.c%d;", i, e->argument[e->p->step[i].port]);
}

static void print_push(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    if (rows_state(e->w, e->p, i) != i) return;
    struct word key = s->in[READS_KEY] >= 0 ? emit_word("v%d", s->in[READS_KEY]) : emit_word("0.0f");
    if (s->axis == REDUCE_COLUMNS)
        rows_line(e, "reduce::%s::push(s%d%s[%s], v%d, (int)%s, 0.0f);", s->prim->name, i,
                  e->w->team ? "[i]" : "", e->w->width > 1 ? "j" : "0", s->in[0], rows_row_index(e).s);
    else if (rows_has_mean(e, i)) rows_push_mean(e, i);
    else rows_line(e, "reduce::%s::push(s%d, v%d, %s, %s);", s->prim->name, i, s->in[0], column(e), key.s);
}

/* ---- Stores ---- */

/* What the domain names several times is stored once, by its first index; a row of a state if it has a
 * slot. */
static struct word store_guard(const struct emitter *e, const struct step *s, const char *first)
{
    struct word guard = emit_word("%s", first);
    bool indexed = use_is_indexed(port_of(e, s));
    if (indexed) guard = emit_word("%s%sr%d >= 0", first, *first ? " && " : "", s->port);
    for (int d = 0; d + 1 < e->w->rank && !indexed; d++)
        if (!e->w->stride[s->port][d])
            guard = emit_word("%.120s%s%s == 0", guard.s, *guard.s ? " && " : "", rows_index_word(e, d).s);
    return *guard.s ? emit_word("if (%.180s) ", guard.s) : guard;
}

static const char *store_word(const struct emitter *e, const struct step *s)
{
    return use_effect(&e->p->port[s->port]) & EFFECT_ADD ? "accumulate" : "store";
}

/* A value on its way to memory: v3, or what is left of it over its head's scale. */
static struct word stored_value(const struct emitter *e, const struct step *s, const char *c)
{
    const struct tensor_use *port = port_of(e, s);
    if (!port->scale) return emit_word("v%d", s->in[0]);
    const struct tensor_use *scale = &e->p->port[port->scale - 1];
    return emit_word("v%d / a.a%d[(i64)((u32)(%s) / %lld) * %lld]", s->in[0], e->argument[port->scale - 1], c,
                     (wide)(e->w->columns / scale->table_rows), (wide)scale->table_stride);
}

static void print_store(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    bool once = !rows_stride(e, s->port) && e->w->columns > 1;
    struct word at = once ? emit_word("%s == 0", column(e)) : emit_word("%s", "");
    struct word value = stored_value(e, s, column(e));
    if (e->w->packed[s->port]) rows_line(e, "y%d[j] = %s;", i, value.s);
    else
        rows_line(e, "%s%s(%s, %s);", store_guard(e, s, at.s).s, store_word(e, s), address(e, s->port).s,
                  value.s);
}

/* One thread of the row stores its value. */
static void print_row_store(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    const char *first = e->w->team > 1                               ? "lane == 0"
                        : !e->w->team && e->w->columns > e->w->width ? "c == 0"
                                                                     : "";
    rows_line(e, "%s%s(p%d, %s);", store_guard(e, s, first).s, store_word(e, s), s->port,
              stored_value(e, s, "0").s);
}

/* ---- Row values ---- */

/* Which states of a row a lane begins with. */
static struct word first_state(const struct emitter *e, int port)
{
    int lanes = rows_lanes(e->w, &e->p->port[port]);
    if (lanes == 1) return emit_word("0");
    return e->w->team > lanes ? emit_word("lane %% %d", lanes) : emit_word("lane");
}

static void load_partial(struct emitter *e, int i)
{
    int q = e->p->step[i].port;
    rows_line(e, "port::Partials<reduce::%s, %d> s%d;", e->p->port[q].reduce->name,
              rows_lanes(e->w, &e->p->port[q]), i);
    rows_line(e, "s%d.load(a.a%d, row, %s, %s);", i, e->argument[q], first_state(e, q).s,
              rows_states(e, q).s);
}

/* A value that several statistics read is folded once, by the first of them. */
static void finish(struct emitter *e, int i, const char *reduce, int lanes, const char *state)
{
    int first = rows_state(e->w, e->p, i);
    if (!rows_shares_state(e->w, e->p, i)) {
        rows_line(e, "const float v%d = rows::finish<reduce::%s, %d>(%s);", i, reduce, lanes, state);
        return;
    }
    if (first == i) rows_line(e, "const auto f%d = rows::fold<reduce::%s, %d>(%s);", i, reduce, lanes, state);
    rows_line(e, "const float v%d = reduce::%s::finish(f%d);", i, reduce, first);
}

static void finish_partial(struct emitter *e, int i)
{
    int q = e->p->step[i].port;
    finish(e, i, e->p->port[q].reduce->name, rows_lanes(e->w, &e->p->port[q]),
           emit_word("s%d.merged(a.a%d, row, %s, %s)", i, e->argument[q], first_state(e, q).s,
                     rows_states(e, q).s)
               .s);
}

static void print_row_step(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    switch (s->kind) {
    case STEP_LOAD: print_load(e, i); break;
    case STEP_MAP: print_map(e, i); break;
    case STEP_PARTIAL: finish_partial(e, i); break;
    case STEP_REDUCE:
        if (rows_has_mean(e, rows_state(e->w, e->p, i))) rows_finish_mean(e, i);
        else finish(e, i, s->prim->name, e->w->team, emit_word("s%d", i).s);
        break;
    default: break;
    }
    print_divisor(e, i);
    print_gather_starts(e, i);
}

/* Issues the loads of all partial states before any is merged; __syncwarp keeps ptxas from sinking them. */
void rows_partials(struct emitter *e)
{
    bool any = false;
    for (int i = 0; i < e->p->steps; i++) {
        if (!e->w->live[i] || e->p->step[i].kind != STEP_PARTIAL || rows_state(e->w, e->p, i) != i) continue;
        load_partial(e, i);
        any = true;
    }
    if (any && e->w->team > 1) rows_line(e, "__syncwarp();");
}

void rows_row_values(struct emitter *e, int phase)
{
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (s->kind == STEP_SCALAR && e->w->live[i] && phase == 0)
            print_scalar(e, i); /* rows and columns read it, whatever its class */
        if (s->kind == STEP_SCALAR || !e->w->live[i] || e->w->phase[i] != phase) continue;
        if (s->kind == STEP_STORE && s->cls == CLASS_ROW) print_row_store(e, i);
        else if (s->kind != STEP_STORE && step_is_of_row(s)) print_row_step(e, i);
    }
}

/* ---- A piece of columns ---- */

void rows_kept(struct emitter *e)
{
    for (int i = 0; i < e->p->steps; i++)
        if (e->w->kept[i]) rows_line(e, "float x%d[%lld][%d];", i, (wide)e->w->items, e->w->width);
}

/* A kept load is read ahead, or by the first walk that needs it. */
static bool was_read(const struct emitter *e, int i, int phase)
{
    if (e->w->ahead[i]) return true;
    for (int before = 0; e->w->kept[i] && before < phase; before++)
        if (rows_needs(e->w, e->p, before, e->scratch) && e->scratch[i]) return true;
    return false;
}

/* What is divided has few instructions for an element: the words of its load count. */
static const char *load_word(const struct emitter *e, int load)
{
    for (int i = 0; i < e->p->steps; i++)
        if (divisor_of_piece(e, i) >= 0 && e->p->step[i].in[0] == load) return "words";
    return "piece";
}

static void read_piece(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    struct word x = rows_load(e, i),
                guard = is_gather(e, s) ? emit_word("if (r%d >= 0) ", s->port) : emit_word("%s", "");
    if (!e->w->kept[i]) rows_line(e, "float x%d[%d];", i, e->w->width);
    if (is_gather(e, s)) rows_line(e, "for (int j = 0; j < %d; j++) %s[j] = 0.0f;", e->w->width, x.s);
    if (use_is_packed(port_of(e, s)) && e->w->packed[s->port])
        rows_line(e, "%sW%d::%s(%s, %s);", guard.s, s->port, e->w->width == 8 ? "eight" : "four",
                  packed_place(e, s->port, "c").s, x.s);
    else if (s->port == e->summed && e->w->team) rows_line(e, "summed.load(%s, i);", x.s);
    else if (s->port == e->summed)
        rows_line(e, "summed.receive(0);"), rows_line(e, "summed.load(%s, 0);", x.s);
    else if (e->w->early[i]) rows_line(e, "early%d[i].read(%s);", i, x.s);
    else if (e->w->packed[s->port])
        rows_line(e, "%sport::load_%s(%s, p%d + c);", guard.s, load_word(e, i), x.s, s->port);
    else rows_line(e, "%s%s[0] = %s;", guard.s, x.s, element(e, s->port).s);
}

void rows_early_room(struct emitter *e)
{
    for (int i = 0; i < e->p->steps; i++)
        if (e->w->early[i])
            rows_line(e, "port::Piece<%s, %d> early%d[%lld];", emit_dtype(port_of(e, &e->p->step[i])->dtype),
                      e->w->width, i, (wide)e->w->items);
}

void rows_read_early(struct emitter *e)
{
    for (int i = 0; i < e->p->steps; i++)
        if (e->w->early[i]) rows_line(e, "early%d[i].load(a.a%d + c);", i, e->argument[e->p->step[i].port]);
}

void rows_read_ahead(struct emitter *e, bool summed)
{
    for (int i = 0; i < e->p->steps; i++)
        if (e->w->ahead[i] && (e->p->step[i].port == e->summed) == summed) read_piece(e, i);
}

static void read_pieces(struct emitter *e, int phase)
{
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (!e->needed[i]) continue;
        if (s->kind == STEP_LOAD && s->port != e->summed && has_piece(e, i) && !was_read(e, i, phase))
            read_piece(e, i);
        if (s->kind == STEP_PAIR) rows_pair_partners(e, i);
        if (s->kind == STEP_STORE && e->w->packed[s->port]) rows_line(e, "float y%d[%d];", i, e->w->width);
    }
    for (int i = 0; i < e->p->steps; i++) /* behind the others: it waits */
        if (e->needed[i] && e->p->step[i].kind == STEP_LOAD && e->p->step[i].port == e->summed &&
            !was_read(e, i, phase))
            read_piece(e, i);
    for (int i = 0; i < e->p->steps; i++) {
        int by = e->needed[i] ? divisor_of_piece(e, i) : -1;
        if (by < 0) continue;
        rows_line(e, "float d%d[%d];", i, e->w->width);
        rows_line(e, "q%d.of(d%d, %s);", by, i, rows_load(e, e->p->step[i].in[0]).s);
    }
}

static void print_column_step(struct emitter *e, int i)
{
    switch (e->p->step[i].kind) {
    case STEP_LOAD: print_load(e, i); break;
    case STEP_COLUMN: rows_line(e, "const float v%d = (float)(%s);", i, column(e)); break;
    case STEP_MAP: print_map(e, i); break;
    case STEP_PAIR: rows_pair(e, i); break;
    case STEP_REDUCE: print_push(e, i); break;
    case STEP_STORE: print_store(e, i); break;
    default: break;
    }
}

static void write_pieces(struct emitter *e)
{
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (!e->needed[i] || s->kind != STEP_STORE || !e->w->packed[s->port]) continue;
        struct word at = emit_word(" + c");
        if (port_of(e, s)->page) at = head_place(port_of(e, s), "c", 1);
        rows_line(e, "%sport::%s_piece(p%d%s, y%d);", store_guard(e, s, "").s, store_word(e, s), s->port,
                  at.s, i);
    }
}

void rows_piece(struct emitter *e, int phase)
{
    read_pieces(e, phase);
    if (e->w->width > 1) {
        rows_line(e, "#pragma unroll");
        rows_open(e, "for (int j = 0; j < %d; j++)", e->w->width);
    }
    for (int i = 0; i < e->p->steps; i++)
        if (e->needed[i]) print_column_step(e, i);
    if (e->w->width > 1) rows_close(e);
    write_pieces(e);
}
