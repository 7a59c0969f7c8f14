/*
 * emit_pairs.c -- prints the STEP_PAIR: of a GEMM as parts of its Epilogue, where a column has its frequency,
 * a row its position and a slot the turn {cos, sin} of their product; of a rows kernel as lines.
 */
#include "emit_epilogue.h"
#include "emit_rows.h"

#include <math.h>

enum {
    MOST_ROTARY = 1 << 30,   /* columns are ints */
    MOST_FREQUENCIES = 4096, /* of a table in a text; beyond, they are computed */
    SHARED_TEAM = 64,        /* threads of a row, and ... */
    SHARED_HEADS = 4,        /* ... heads that it has at least, if its turns are made once for all, ... */
    SHARED_ROTARY = 1024     /* ... in 4 KB of shared memory at most */
};

/* ---- Positions on several axes ---- */

static bool has_axes(const struct program *p) { return pair_axes(&p->pairing) > 1; }

/* Which axis turns a pair of a head, as a function of the text. */
static void print_axis(const struct pairing *r, const char *indent, struct text *t)
{
    int axes = pair_axes(r);
    int64_t end = 0;
    text_printf(t, "\n%s// which of a position's numbers turns a pair\n", indent);
    text_printf(t, "%sDEV static int axis(i64 pair) { return ", indent);
    for (int i = 1; i < axes && r->interleaves; i++)
        text_printf(t, "pair %% %d == %d && pair < %lld ? %d : ", axes, i, (wide)(axes * r->section[i]), i);
    for (int i = 0; i + 1 < axes && !r->interleaves; i++)
        text_printf(t, "pair < %lld ? %d : ", (wide)(end += r->section[i]), i);
    text_printf(t, "%d; }\n", r->interleaves ? 0 : axes - 1);
}

/* The position on axis `axis`, where `prefix` and a step's number name the step's value. */
static struct word on_axis(const struct program *p, const struct step *s, const char *prefix,
                           const char *axis)
{
    struct word w = emit_word("%sv%d", prefix, s->in[READS_POSITION]);
    for (int i = 1; i < pair_axes(&p->pairing); i++)
        w = emit_word("%s == %d ? %sv%d : %.120s", axis, i, prefix, s->in[1 + i], w.s);
    return w;
}

/* ---- A GEMM's ---- */

void emit_pair_columns(const struct program *p, int bn, bool splits_heads, struct text *t)
{
    const struct pairing *r = &p->pairing;
    if (splits_heads) text_printf(t, "SplitHeads<%d, %lld>;\n", bn, (wide)r->head_dim);
    else if (r->half) text_printf(t, "HalfHeads<%d, %lld, %lld>;\n", bn, (wide)r->head_dim, (wide)r->rotary);
    else text_printf(t, "Neighbours<%d>;\n", bn);
}

const char *printer_pair_fields(const struct printer *e, enum level level)
{
    if (level == LEVEL_ROW && pair_counts_rows(e->p)) return " float position;";
    if (level != LEVEL_COL || pair_step(e->p) < 0) return NULL;
    if (has_axes(e->p)) return " float high, low; int axis;";
    return e->l->steps_evenly ? " float high, low; Pair eight;" : " float high, low;";
}

/* A period of all rows is none: the text then serves any number of them. */
static void print_row_extra(const struct printer *e)
{
    struct word row = printer_row(e->p, "batch", "m");
    int64_t period = printer_period(e->p);
    if (!period) text_printf(e->t, "        v.position = (float)%s;\n", row.s);
    else if (!printer_passes_period(e->p))
        text_printf(e->t, "        v.position = (float)((%s) %% %lld);\n", row.s, (wide)period);
    else text_printf(e->t, "        v.position = (float)g.period.rest((u32)(%s));\n", row.s);
}

/* The first frequency, in half turns, and the ratio of each to the one before it. */
static struct word progression(const struct pairing *r)
{
    double turns = 1 / 3.14159265358979323846, ratio = pow(r->base, -2.0 / (double)MAX(r->rotary, 1));
    return emit_word("%a, %a", r->inverse ? -turns : turns, ratio);
}

/* Pair `pair` of a head's frequency in half turns: what `table` has at it, or by the base. */
static struct word half_turns(const struct program *p, const char *table, const char *pair)
{
    const struct step *s = &p->step[pair_step(p)];
    int64_t stride = s->port >= 0 ? p->port[s->port].table_stride : 0;
    if (s->port < 0) return emit_word("port::half_turns(%s, (int)(%s))", progression(&p->pairing).s, pair);
    return emit_word("port::half_turns(%s%s[(%s) * %lld])", p->pairing.inverse ? "-" : "", table, pair,
                     (wide)stride);
}

static struct word scaled(const struct program *p, const char *turn)
{
    if (!pair_scales(p)) return emit_word("%s", turn);
    return emit_word("port::scaled(%s, %af)", turn, (double)p->pairing.scale);
}

/* The frequency of the pair that a column belongs to; 0 where it passes through. A pair that does not turn,
 * and is scaled, does not pass. */
static void print_col_extra(const struct printer *e)
{
    const struct pairing *r = &e->p->pairing;
    int port = e->p->step[pair_step(e->p)].port;
    struct word pair = r->half ? emit_word("i %% %lld", (wide)MAX(r->rotary / 2, 1)) : emit_word("i / 2");
    text_printf(e->t, "        const i64 head = n / %lld, i = n %% %lld;\n", (wide)r->head_dim,
                (wide)r->head_dim);
    text_printf(e->t, "        const bool turns = head < %lld && i < %lld;\n", (wide)r->heads,
                (wide)r->rotary);
    text_printf(e->t, "        const Pair f = turns ? %s : Pair{0.0f, 0.0f};\n",
                half_turns(e->p, emit_word("g.x%d", port).s, pair.s).s);
    if (pair_scales(e->p))
        text_append(e->t, "        v.high = turns && f.a == 0.0f ? 0x1p-100f : f.a, v.low = f.b;\n");
    else text_append(e->t, "        v.high = f.a, v.low = f.b;\n");
    if (has_axes(e->p)) text_printf(e->t, "        v.axis = axis(%s);\n", pair.s);
    if (e->l->steps_evenly) text_append(e->t, "        v.eight = port::turn(8.0f, f.a, f.b);\n");
}

void printer_pair_values(const struct printer *e, enum level level)
{
    if (level == LEVEL_ROW) print_row_extra(e);
    else print_col_extra(e);
}

void printer_cell(struct printer *e)
{
    int i = pair_step(e->p);
    if (i < 0) return;
    e->level = LEVEL_HALF; /* row values are r.v<i> here */
    struct word position = pair_counts_rows(e->p) ? emit_word("r.position")
                           : has_axes(e->p)       ? on_axis(e->p, &e->p->step[i], "r.", "c.axis")
                                                  : printer_value(e, e->p->step[i].in[READS_POSITION], 0);
    if (has_axes(e->p)) print_axis(&e->p->pairing, "    ", e->t);
    text_append(e->t, "\n    struct Cell { Pair turn; };\n");
    text_append(e->t, "    DEV static Cell cell(const Row &r, const Col &c)\n    {\n");
    struct word turn = emit_word("port::turn(%s, c.high, c.low)", position.s);
    text_printf(e->t, "        return {%s};\n    }\n", scaled(e->p, turn.s).s);
    text_append(e->t, "    DEV static Cell below(const Cell &above, const Row &r, const Col &c)\n    {\n");
    text_printf(e->t, "        return %s;\n    }\n",
                e->l->steps_evenly ? "{port::turn_further(above.turn, c.eight)}" : "cell(r, c)");
}

void printer_pair(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    struct word a = printer_value(e, s->in[0], 0), b = printer_value(e, s->in[0], 1);
    text_printf(e->t, "        const Pair t%d = s.col[0].high == 0.0f ? Pair{%s, %s}", i, a.s, b.s);
    text_printf(e->t, " : pair::%s::apply(%s, %s, s.cell.turn);\n", e->p->pairing.op->name, a.s, b.s);
    text_printf(e->t, "        const float v%da = t%d.a, v%db = t%d.b;\n", i, i, i, i);
}

/* ---- A rows kernel's ---- */

coda_status rows_check_pairs(const struct emitter *e)
{
    if (!rows_has_pairs(e) || e->p->pairing.rotary <= MOST_ROTARY) return CODA_OK;
    return fail(CODA_E_UNSUPPORTED, "%s: rotary is %lld; alone it turns %d columns of a head at most",
                e->p->pairing.op->name, (wide)e->p->pairing.rotary, MOST_ROTARY);
}

bool rows_has_pairs(const struct emitter *e)
{
    int i = pair_step(e->p);
    return i >= 0 && e->w->live[i];
}

static bool has_table(const struct program *p)
{
    return p->step[pair_step(p)].port < 0 && p->pairing.rotary / 2 <= MOST_FREQUENCIES;
}

/* base^(-2i / rotary) / pi of each pair, as the sum of two floats. */
void rows_pair_tables(struct emitter *e)
{
    const struct pairing *r = &e->p->pairing;
    if (rows_has_pairs(e) && has_axes(e->p)) print_axis(r, "", e->t);
    if (!rows_has_pairs(e) || !has_table(e->p)) return;
    text_printf(e->t, "\n__device__ const Pair frequency[%lld] = { // half turns for one position\n",
                (wide)MAX(r->rotary / 2, 1));
    for (int64_t i = 0; i < r->rotary / 2; i++) {
        double turns = pow(r->base, -2.0 * (double)i / (double)r->rotary) / 3.14159265358979323846;
        if (r->inverse) turns = -turns;
        float high = (float)turns, low = (float)(turns - high);
        text_printf(e->t, "    {%s, %s},\n", emit_float(high).s, emit_float(low).s);
    }
    text_append(e->t, "};\n");
}

/* Which o the piece of load k of the other elements of pair i is. */
static int other_number(const struct emitter *e, int i, int k)
{
    return e->p->step[i].in[READS_X] == k ? i : k;
}

void rows_pair_partners(struct emitter *e, int i)
{
    const struct pairing *r = &e->p->pairing;
    rows_line(e, "const rows::PairSpot at%d = rows::pair_spot<%lld, %lld, %lld, %s>(c);", i,
              (wide)r->head_dim, (wide)r->rotary, (wide)r->heads, r->half ? "true" : "false");
    for (int k = 0; k < i && e->w->width > 1 && r->half; k++) {
        if (!e->w->partner[k] || e->p->step[k].kind != STEP_LOAD) continue;
        rows_line(e, "float o%d[%d];", other_number(e, i, k), e->w->width);
        rows_line(e, "port::load_piece(o%d, p%d + at%d.partner);", other_number(e, i, k), e->p->step[k].port,
                  i);
    }
}

static struct word pair_position(const struct emitter *e, const struct step *s)
{
    if (has_axes(e->p)) return on_axis(e->p, s, "", "on");
    if (s->in[READS_POSITION] >= 0) return emit_word("v%d", s->in[READS_POSITION]);
    return rows_position(e);
}

bool rows_has_partner(const struct emitter *e, int step)
{
    const struct program *p = e->p;
    bool has = step_is_of_loads(p, p->step[step].in[READS_X]);
    for (int i = 0; i < step && e->w->width > 1; i++)
        has = has && (!e->w->partner[i] || p->step[i].kind != STEP_LOAD || e->w->packed[p->step[i].port]);
    return has;
}

/* What the text calls load k of the other element of pair i. */
static struct word other_load(const struct emitter *e, int i, int k)
{
    int port = e->p->step[k].port;
    if (e->w->width > 1 && e->p->pairing.half) return emit_word("o%d[j]", other_number(e, i, k));
    if (e->w->width > 1) return emit_word("%s[j ^ 1]", rows_load(e, k).s);
    return emit_word("load(p%d + (i64)at%d.partner * %lld)", port, i, (wide)rows_stride(e, port));
}

/* The other element of pair i, which is made as this one is: step k of it is called w<k>. */
static struct word other_element(struct emitter *e, int i)
{
    int x = e->p->step[i].in[READS_X];
    if (e->p->step[x].kind == STEP_LOAD) return other_load(e, i, x);
    for (int k = 0; k <= x; k++) {
        const struct step *s = &e->p->step[k];
        struct word value[PRIM_MAX_INPUTS];
        struct text call = {0};
        if (!e->w->partner[k]) continue;
        for (int in = 0; in < s->nin; in++)
            if (s->in[in] != IMMEDIATE)
                value[in] = emit_word("%c%d", e->w->partner[s->in[in]] ? 'w' : 'v', s->in[in]);
        if (s->kind == STEP_LOAD) text_append(&call, other_load(e, i, k).s);
        else emit_call(e->p, k, value, &call);
        rows_line(e, "const float w%d = %s;", k, text_str(&call));
        e->t->failed = e->t->failed || call.failed;
        text_free(&call);
    }
    return emit_word("w%d", x);
}

static struct word frequency(const struct emitter *e, const char *pair)
{
    int port = e->p->step[pair_step(e->p)].port;
    if (has_table(e->p)) return emit_word("frequency[%.60s]", pair);
    return half_turns(e->p, emit_word("a.a%d", port < 0 ? 0 : e->argument[port]).s, pair);
}

/* ---- Turns that all heads of a row share ---- */

static bool turns_all(const struct emitter *e)
{
    const struct pairing *r = &e->p->pairing;
    return r->rotary == r->head_dim && mul_counts(r->heads, r->head_dim) == e->w->columns;
}

bool rows_shares_turns(const struct emitter *e)
{
    const struct pairing *r = &e->p->pairing;
    bool waits = false; /* for what is known of the row by its columns alone */
    if (!rows_has_pairs(e) || e->w->team < SHARED_TEAM || e->w->folds) return false;
    const struct step *s = &e->p->step[pair_step(e->p)];
    for (int k = 1; k < s->nin; k++) waits = waits || (s->in[k] >= 0 && e->w->phase[s->in[k]] > 0);
    return !waits && r->rotary >= 2 && r->rotary <= SHARED_ROTARY &&
           e->w->columns >= SHARED_HEADS * r->rotary;
}

/* Does each piece of a thread stand at one place of its head? */
static bool stays_in_head(const struct emitter *e)
{
    return e->w->team * e->w->width % e->p->pairing.head_dim == 0;
}

static void print_turn(struct emitter *e, const char *name, const char *pair)
{
    const struct step *s = &e->p->step[pair_step(e->p)];
    rows_line(e, "const Pair f = %s;", frequency(e, pair).s);
    if (has_axes(e->p)) rows_line(e, "const int on = axis(%s);", pair);
    struct word turn = emit_word("port::turn(%s, f.a, f.b)", pair_position(e, s).s);
    rows_line(e, "%s = %s;", name, scaled(e->p, turn.s).s);
}

void rows_make_turns(struct emitter *e)
{
    int i = pair_step(e->p);
    wide pairs = (wide)e->p->pairing.rotary / 2;
    rows_line(e, "Pair *const turns%d = rows::turns<%lld>();", i, pairs);
    if (pairs > e->w->team) rows_line(e, "#pragma unroll 1");
    rows_open(e,
              pairs > e->w->team ? "for (int pair = lane; pair < %lld; pair += %d)"
                                 : "if (const int pair = lane; pair < %lld)",
              pairs, e->w->team);
    print_turn(e, emit_word("turns%d[pair]", i).s, "pair");
    rows_close(e);
    if (!e->w->phase[i]) rows_line(e, "__syncthreads();");
}

void rows_take_turns(struct emitter *e)
{
    const struct pairing *r = &e->p->pairing;
    int i = pair_step(e->p), turns = r->half || e->w->width == 1 ? e->w->width : e->w->width / 2;
    if (!stays_in_head(e)) return;
    rows_line(e, "const int first%d = rows::pair_spot<%lld, %lld, %lld, %s>(lane%s).pair;", i,
              (wide)r->head_dim, (wide)r->rotary, (wide)r->heads, r->half ? "true" : "false",
              e->w->width == 1 ? "" : emit_word(" * %d", e->w->width).s);
    rows_line(e, "Pair turn%d[%d];", i, turns);
    rows_line(e, "#pragma unroll");
    rows_line(e, "for (int j = 0; j < %d; j++) turn%d[j] = turns%d[first%d + j];", turns, i, i, i);
}

/* The turn of element j of a piece. */
static void find_turn(struct emitter *e, const char *pair)
{
    int i = pair_step(e->p);
    const char *at = e->w->width == 1 ? "0" : e->p->pairing.half ? "j" : "j / 2";
    if (!rows_shares_turns(e)) print_turn(e, "const Pair turn", pair);
    else if (stays_in_head(e)) rows_line(e, "const Pair turn = turn%d[%s];", i, at);
    else rows_line(e, "const Pair turn = turns%d[%s];", i, pair);
}

void rows_pair(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    bool alone = e->w->width == 1, half = e->p->pairing.half, always = rows_shares_turns(e) && turns_all(e);
    struct word pair = emit_word("at%d.pair%s", i,
                                 alone  ? ""
                                 : half ? " + j"
                                        : " + j / 2"),
                second = alone || half ? emit_word("at%d.second", i) : emit_word("j %% 2");
    rows_line(e, "float v%d = v%d;", i, s->in[0]);
    if (!always) rows_open(e, "if (at%d.turns)", i);
    find_turn(e, pair.s);
    rows_line(e, "const float other = %s;", other_element(e, i).s);
    const char *op = e->p->pairing.op->name;
    rows_line(e, "v%d = %s ? pair::%s::apply(other, v%d, turn).b : pair::%s::apply(v%d, other, turn).a;", i,
              second.s, op, s->in[0], op, s->in[0]);
    if (!always) rows_close(e);
}
