/* program.c -- questions about what a program computes. */
#include "program.h"

#include "guards.h"
#include "own.h"

#include <string.h>

bool step_shares_state(const struct program *q, const struct step *a, const struct step *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == STEP_PARTIAL) return q->port[a->port].buffer == q->port[b->port].buffer;
    return a->kind == STEP_REDUCE && prim_states_equal(a->prim, b->prim) && a->axis == b->axis &&
           a->nin == b->nin && !memcmp(a->in, b->in, sizeof *a->in * (size_t)a->nin);
}

const char *step_name(const struct program *q, const struct step *s)
{
    switch (s->kind) {
    case STEP_MAP:
    case STEP_REDUCE: return s->prim->name;
    case STEP_PARTIAL: return q->port[s->port].reduce->name;
    case STEP_PAIR: return q->pairing.op->name;
    case STEP_CONV1D: return "conv1d";
    default: return NULL;
    }
}

bool step_has_value(const struct program *q, const struct step *s)
{
    if (s->kind == STEP_STORE) return false;
    if (step_folds_segments(s)) return true;
    return !(s->kind == STEP_REDUCE && (q->kind == PROGRAM_GEMM || s->axis == REDUCE_COLUMNS));
}

static bool step_reads(const struct step *s, int step)
{
    for (int i = 0; i < s->nin; i++)
        if (s->in[i] == step) return true;
    return false;
}

static bool step_rounds(const struct program *q, const struct step *s)
{
    if (s->kind == STEP_STORE) return dtype_bits(q->port[s->port].dtype) <= 16;
    return s->kind == STEP_MAP && (s->prim == prim_find("to_bf16") || s->prim == prim_find("to_f16"));
}

/* What addresses rows is an integer, and no value that could be rounded. */
bool step_is_rounded(const struct program *q, int step)
{
    bool read = false;
    for (int i = step + 1; i < q->steps; i++) {
        if (!step_reads(&q->step[i], step)) continue;
        if (!step_rounds(q, &q->step[i])) return false;
        read = true;
    }
    return read;
}

bool step_is_of_row(const struct step *s)
{
    if (s->axis == REDUCE_COLUMNS) return false;
    return s->cls == CLASS_ROW || s->kind == STEP_PARTIAL ||
           (s->kind == STEP_REDUCE && !step_folds_segments(s));
}

bool step_folds_columns(const struct step *s) { return s->kind == STEP_REDUCE && s->axis == REDUCE_COLUMNS; }

bool program_folds_rows(const struct program *q)
{
    for (int i = 0; i < q->steps; i++)
        if (q->step[i].kind == STEP_REDUCE && q->step[i].axis == REDUCE_ROWS) return true;
    return false;
}

bool program_folds_columns(const struct program *q)
{
    for (int i = 0; i < q->steps; i++)
        if (step_folds_columns(&q->step[i])) return true;
    return false;
}

int conv1d_step_of(const struct program *q)
{
    for (int i = 0; i < q->steps; i++)
        if (q->step[i].kind == STEP_CONV1D) return i;
    return -1;
}

int step_rows_above(const struct step *s) { return s->nin - READS_TAPS - 1; }

int64_t edge_rows(const struct step *s, int64_t rows)
{
    return mul_counts(2 * step_rows_above(s), CEIL_DIV(rows, EDGE_PERIOD) + 1);
}

/* ---- Columns ---- */

bool step_folds_segments(const struct step *s) { return s->kind == STEP_REDUCE && s->cls == CLASS_SEGMENT; }

struct column_range step_columns(const struct program *p, const struct step *s)
{
    if (s->store_columns.end) return s->store_columns;
    return s->range ? p->range[s->range - 1] : (struct column_range){0, program_columns(p)};
}

int64_t step_value_columns(const struct program *p, const struct step *s)
{
    struct column_range columns = step_columns(p, s);
    bool both = program_is_gated(p) && !s->half && !s->range && !s->store_columns.end;
    return both ? p->dim[2] : columns.end - columns.first;
}

bool program_has_narrow_b(const struct program *p)
{
    return use_is_packed(&p->b.data) || dtype_bytes(p->b.data.dtype, 1) == 1;
}

int program_span(const struct program *p)
{
    return p->segment ? (int)extent_max(p->segment, SEGMENT_SPAN) : pair_span(p);
}

enum { STATE_COLUMNS = 64 };

/* Does a reduction of whole rows round when its states are merged? */
static bool rounds_states(const struct program *p)
{
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        bool rows = s->kind == STEP_REDUCE && s->axis == REDUCE_ROWS && !step_folds_segments(s);
        if (rows && !s->prim->exact) return true;
    }
    return false;
}

/* Tiles are whole spans. */
int program_state_columns(const struct program *p)
{
    int span = program_span(p);
    if (p->kind != PROGRAM_GEMM || !p->invariant || !rounds_states(p)) return 0;
    return !span || STATE_COLUMNS % span == 0 || span % STATE_COLUMNS == 0 ? STATE_COLUMNS : span;
}

/* ---- Uses ---- */

unsigned use_effect(const struct tensor_use *u)
{
    if (u->effect) return u->effect;
    switch (u->role) {
    case USE_STORE:
    case USE_PARTIAL_STORE:
    case USE_EDGES:
    case USE_RESULT:
    case USE_SCRATCH: return EFFECT_WRITE;
    case USE_SCATTER: return EFFECT_APPEND;
    default: return EFFECT_READ;
    }
}

struct tensor_use *own_use(const struct own_kind *own, void *spec, int i)
{
    const struct op_info *op = &op_info[own->op];
    struct tensor_use *use = spec;
    for (int k = 0; k < op->named + op->results; k++) {
        bool result = k >= op->least && k < op->least + op->results;
        int at = k < op->least ? k : result ? op->named + k - op->least : k - op->results;
        if (use[at].buffer >= 0 && i-- == 0) return &use[at];
    }
    for (int k = 0; k < OWN_EXTRA && own->extra; k++) {
        struct tensor_use *extra = own->extra(spec, k);
        if (extra && i-- == 0) return extra;
    }
    return NULL;
}

struct tensor_use *program_use(const struct program *q, int i)
{
    struct program *p = (struct program *)q;
    struct tensor_use *gemm[] = {&p->a.data, &p->b.data};
    if (q->kind == PROGRAM_GEMM && i < ARRAY_SIZE(gemm)) return gemm[i];
    if (q->kind == PROGRAM_GEMM) i -= ARRAY_SIZE(gemm);
    if (q->own) return own_use(q->own, q->spec, i);
    return i < q->ports ? &q->port[i] : NULL;
}

int program_uses(const struct program *q)
{
    int n = 0;
    while (program_use(q, n)) n++;
    return n;
}

static bool any(const struct program *q, unsigned effects, bool (*fn)(void *, int), void *ctx)
{
    const struct tensor_use *u;
    for (int i = 0; (u = program_use(q, i)); i++)
        if (use_effect(u) & effects && fn(ctx, u->buffer)) return true;
    return false;
}

bool program_any_read(const struct program *q, bool (*fn)(void *, int), void *ctx)
{
    return any(q, EFFECT_READ | EFFECT_ADD, fn, ctx);
}

bool program_any_write(const struct program *q, bool (*fn)(void *, int), void *ctx)
{
    return any(q, EFFECT_WRITE | EFFECT_APPEND | EFFECT_ADD, fn, ctx);
}

struct tensor_use *program_b_part(const struct program *p, int i, struct column_range *columns)
{
    columns->first = i ? p->part[i - 1].first : 0;
    columns->end = i < p->parts ? p->part[i].first : p->dim[2];
    return (struct tensor_use *)(i ? &p->port[p->part[i - 1].port] : &p->b.data);
}

/* ---- Questions ---- */

bool step_uses(const struct program *q, const struct step *s, int port)
{
    return s->port == port || (s->port >= 0 && q->port[s->port].scale == 1 + port);
}

bool program_suits_cublaslt(const struct program *p)
{
    bool rows = p->a.data.k == 1 || p->a.data.row == 1, cols = p->b.data.k == 1 || p->b.data.row == 1;
    bool work = p->dim[0] && p->dim[1] && p->dim[2] && p->k;
    return rows && cols && p->a.dtype == p->b.dtype && !dtype_is_storage(p->a.dtype) && work && !p->parts &&
           program_is_plain(p);
}

bool program_is_gated(const struct program *p)
{
    return p->pair == PAIR_GLU_INTERLEAVED || p->pair == PAIR_GLU_STACKED;
}

int program_lanes(const struct program *p) { return p->pair == PAIR_NONE ? 1 : 2; }

int64_t program_columns(const struct program *p) { return program_is_gated(p) ? p->dim[2] / 2 : p->dim[2]; }

int64_t program_samples(const struct program *p) { return p->sample ? p->dim[1] / p->sample : p->dim[0]; }

bool program_samples_columns(const struct program *p)
{
    for (int i = 0; i < p->steps && p->sample; i++) {
        const struct step *s = &p->step[i];
        if (s->kind == STEP_LOAD && s->cls == CLASS_COL && p->port[s->port].stride[0]) return true;
    }
    return false;
}

static bool has_block_scales(const struct operand *o, int high)
{
    return dtype_is_f8(o->dtype) && o->dtype == o->data.dtype && o->scale && !o->zero &&
           o->scale_rows == high && o->scale_k == SCALE_BLOCK;
}

bool program_has_block_scales(const struct program *q)
{
    return q->kind == PROGRAM_GEMM && has_block_scales(&q->a, 1) && has_block_scales(&q->b, SCALE_BLOCK);
}
