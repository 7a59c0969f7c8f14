/*
 * emit_pairs.c -- prints the STEP_PAIR, rotary embedding: of a GEMM as parts of its Epilogue, where a column
 * has its frequency, a row its position and a slot {cos, sin} of their product; of a rows kernel as lines.
 */
#include "emit_epilogue.h"
#include "emit_rows.h"

#include <math.h>

enum {
    MOST_ROTARY = 1 << 30,  /* columns are ints */
    MOST_FREQUENCIES = 4096 /* of a table in a text; beyond, they are computed */
};

/* ---- A GEMM's ---- */

void emit_pair_columns(const struct program *p, int bn, bool splits_heads, struct text *t)
{
    const struct rope_spec *r = &p->rope;
    if (splits_heads) text_printf(t, "SplitHeads<%d, %lld>;\n", bn, (wide)r->head_dim);
    else if (r->half) text_printf(t, "HalfHeads<%d, %lld, %lld>;\n", bn, (wide)r->head_dim, (wide)r->rotary);
    else text_printf(t, "Neighbours<%d>;\n", bn);
}

const char *printer_pair_fields(const struct printer *e, enum level level)
{
    if (level == LEVEL_ROW && pair_counts_rows(e->p)) return " float position;";
    if (level != LEVEL_COL || pair_step(e->p) < 0) return NULL;
    return e->l->steps_evenly ? " float high, low; Pair eight;" : " float high, low;";
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
    struct word pair = r->half ? emit_word("i %% %lld", (wide)MAX(r->rotary / 2, 1)) : emit_word("i / 2");
    text_printf(e->t, "        const i64 head = n / %lld, i = n %% %lld;\n", (wide)r->head_dim,
                (wide)r->head_dim);
    text_printf(e->t, "        const bool turns = head < %lld && i < %lld;\n", (wide)r->heads,
                (wide)r->rotary);
    text_printf(e->t, "        const Turns f = turns ? rope_turns(%a, %a, (int)(%s)) : Turns{0.0f, 0.0f};\n",
                turns, ratio, pair.s);
    text_append(e->t, "        v.high = f.high, v.low = f.low;\n");
    if (e->l->steps_evenly) text_append(e->t, "        v.eight = pair::rope::turn(8.0f, f.high, f.low);\n");
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
    struct word position =
        pair_counts_rows(e->p) ? emit_word("r.position") : printer_value(e, e->p->step[i].in[1], 0);
    text_append(e->t, "\n    struct Cell { Pair turn; };\n");
    text_append(e->t, "    DEV static Cell cell(const Row &r, const Col &c)\n    {\n");
    text_printf(e->t, "        return {pair::rope::turn(%s, c.high, c.low)};\n    }\n", position.s);
    text_append(e->t, "    DEV static Cell below(const Cell &above, const Row &r, const Col &c)\n    {\n");
    text_printf(e->t, "        return %s;\n    }\n",
                e->l->steps_evenly ? "{pair::rope::add(above.turn, c.eight)}" : "cell(r, c)");
}

void printer_pair(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    struct word a = printer_value(e, s->in[0], 0), b = printer_value(e, s->in[0], 1);
    text_printf(e->t, "        const Pair t%d = s.col[0].high == 0.0f ? Pair{%s, %s}", i, a.s, b.s);
    text_printf(e->t, " : pair::rope::rotate(%s, %s, s.cell.turn);\n", a.s, b.s);
    text_printf(e->t, "        const float v%da = t%d.a, v%db = t%d.b;\n", i, i, i, i);
}

/* ---- A rows kernel's ---- */

coda_status rows_check_pairs(const struct emitter *e)
{
    if (!rows_has_pairs(e) || e->p->rope.rotary <= MOST_ROTARY) return CODA_OK;
    return fail(CODA_E_UNSUPPORTED, "rope: rotary is %lld; alone it turns %d columns of a head at most",
                (wide)e->p->rope.rotary, MOST_ROTARY);
}

bool rows_has_pairs(const struct emitter *e)
{
    int i = pair_step(e->p);
    return i >= 0 && e->w->live[i];
}

static bool has_table(const struct rope_spec *r) { return r->rotary / 2 <= MOST_FREQUENCIES; }

/* base^(-2i / rotary) / pi of each pair, as the sum of two floats. */
void rows_pair_tables(struct emitter *e)
{
    const struct rope_spec *r = &e->p->rope;
    if (!rows_has_pairs(e) || !has_table(r)) return;
    text_printf(e->t, "\n__device__ const Pair frequency[%lld] = { // half turns for one position\n",
                (wide)MAX(r->rotary / 2, 1));
    for (int64_t i = 0; i < r->rotary / 2; i++) {
        double turns = pow(r->base, -2.0 * (double)i / (double)r->rotary) / 3.14159265358979323846;
        float high = (float)turns, low = (float)(turns - high);
        text_printf(e->t, "    {%s, %s},\n", rows_float(high).s, rows_float(low).s);
    }
    text_append(e->t, "};\n");
}

void rows_pair_partners(struct emitter *e, int i)
{
    const struct rope_spec *r = &e->p->rope;
    rows_line(e, "const rows::RopeSpot at%d = rows::rope_spot<%lld, %lld, %lld, %s>(c);", i,
              (wide)r->head_dim, (wide)r->rotary, (wide)r->heads, r->half ? "true" : "false");
    if (e->w->width == 1 || !r->half) return;
    rows_line(e, "float o%d[%d];", i, e->w->width);
    rows_line(e, "port::load_piece(o%d, p%d + at%d.partner);", i, e->p->step[e->p->step[i].in[0]].port, i);
}

static struct word rope_position(const struct emitter *e, const struct step *s)
{
    if (s->in[1] >= 0) return emit_word("v%d", s->in[1]);
    return emit_word("(float)((%s)row %% %lld)", rows_index_type(e), (wide)MAX(e->p->rope.period, 1));
}

/* The other element of the pair, the pair's index, whether this element is its second. */
struct partner {
    struct word other, pair, second;
};

bool rows_has_partner(const struct emitter *e, int step)
{
    int load = e->p->step[step].in[0];
    if (e->p->step[load].kind != STEP_LOAD || rows_is_row(&e->p->step[load])) return false;
    return e->w->width == 1 || e->w->packed[e->p->step[load].port];
}

static struct partner rope_partner(const struct emitter *e, int i)
{
    int load = e->p->step[i].in[0], port = e->p->step[load].port;
    struct partner r = {.pair = emit_word("at%d.pair", i), .second = emit_word("at%d.second", i)};
    if (e->w->width == 1) {
        r.other = emit_word("load(p%d + (i64)at%d.partner * %lld)", port, i, (wide)rows_stride(e, port));
    } else if (e->p->rope.half) {
        r.other = emit_word("o%d[j]", i);
        r.pair = emit_word("at%d.pair + j", i);
    } else {
        r.other = emit_word("%s[j ^ 1]", rows_load(e, load).s);
        r.pair = emit_word("at%d.pair + j / 2", i);
        r.second = emit_word("j %% 2");
    }
    return r;
}

static struct word frequency(const struct emitter *e, const char *pair)
{
    const struct rope_spec *r = &e->p->rope;
    double turns = 1 / 3.14159265358979323846, ratio = pow(r->base, -2.0 / (double)r->rotary);
    if (has_table(r)) return emit_word("frequency[%.60s]", pair);
    return emit_word("rows::rope_frequency(%a, %a, %.60s)", turns, ratio, pair);
}

void rows_pair(struct emitter *e, int i)
{
    const struct step *s = &e->p->step[i];
    struct partner r = rope_partner(e, i);
    rows_line(e, "float v%d = v%d;", i, s->in[0]);
    rows_open(e, "if (at%d.turns)", i);
    rows_line(e, "const Pair f = %s;", frequency(e, r.pair.s).s);
    rows_line(e, "const Pair turn = pair::rope::turn(%s, f.a, f.b);", rope_position(e, s).s);
    rows_line(e, "const float other = %s;", r.other.s);
    rows_line(e,
              "v%d = %s ? pair::rope::rotate(other, v%d, turn).b : pair::rope::rotate(v%d, other, turn).a;",
              i, r.second.s, s->in[0], s->in[0]);
    rows_close(e);
}
