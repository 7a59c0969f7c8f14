/* moves.c -- which loads and stores of an epilogue TMA moves, and in what form. */
#include "moves.h"

#include <string.h>

#include "mainloop.h"

enum {
    FETCH_ROOM = 16 << 10,    /* bytes in flight, for each consumer */
    FETCH_FEW_ROOM = 8 << 10, /* for each of three */
    FETCH_MOST_SLOTS = 4,     /* as in fetch.cuh */
    STAGE_LIMIT = 64 << 10,   /* bytes of a unit of all consumers */
    SWIZZLE_ROW = 128         /* bytes: as many as a row of a TMA box may have */
};

/* ---- What TMA can say ---- */

/* Addresses, pitches and batch strides are multiples of 16 bytes; rows of samples lie as those of one. */
static bool is_aligned(const struct program *p, const struct tensor_use *port, int64_t offset)
{
    int64_t run = dtype_elements(port->dtype, 16);
    bool pitch = port->stride[1] % run == 0 && port->stride[1] > 0;
    bool one = p->dim[0] == 1 && !(p->sample && port->stride[0]);
    bool batch = one || (port->stride[0] % run == 0 && port->stride[0] > 0 && !p->sample);
    return pitch && batch && offset % run == 0;
}

/* The step that moves what lies beside the other one's elements; -1 if there is none. */
static int twin_of(const struct program *p, int step)
{
    const struct step *s = &p->step[step];
    const struct tensor_use *own = &p->port[s->port];
    for (int i = 0; i < p->steps; i++) {
        const struct step *o = &p->step[i];
        const struct tensor_use *port = o->port >= 0 ? &p->port[o->port] : NULL;
        if (o->kind != s->kind || o->half != s->half || o->range != s->range ||
            port->offset != (own->offset ^ 1))
            continue;
        bool same = !tensor_use_differs(port, own, FIELD_KIND | FIELD_PLACE);
        if (same && !memcmp(port->stride, own->stride, sizeof own->stride)) return i;
    }
    return -1;
}

/* The tiles, one or two, that make up what a step loads or stores; their number, 0 if TMA cannot move it.
 * Of twins the first step has them. */
static int forms_of(const struct program *p, int step, struct move out[2])
{
    const struct step *s = &p->step[step];
    const struct tensor_use *port = &p->port[s->port];
    int size = dtype_bits(port->dtype) / 8;
    bool full = program_is_gated(p) && !s->half, stacked = p->pair == PAIR_GLU_STACKED;
    if (s->cls != CLASS_TILE || use_is_indexed(port) || (size != 2 && port->dtype != CODA_F32)) return 0;
    out[0] = out[1] = (struct move){.form = MOVE_WHOLE, .step = {step, -1}, .bytes = size};
    if (port->stride[2] == 2 && size == 2 && !full) {
        int twin = twin_of(p, step);
        out->form = MOVE_TWINS, out->bytes = 4;
        out->step[port->offset & 1] = step, out->step[~port->offset & 1] = twin;
        return twin > step && is_aligned(p, port, port->offset & ~1);
    }
    if (port->stride[2] != 1 || !is_aligned(p, port, port->offset)) return 0;
    if (full && stacked) out[1].form = MOVE_UPPER;
    if (full && !stacked) out->form = MOVE_LANES, out->bytes = 2 * size;
    if (full && stacked && !is_aligned(p, port, port->offset + p->dim[2] / 2)) return 0;
    return out->bytes > 4 ? 0 : full && stacked ? 2 : 1;
}

static bool is_load(const struct program *p, const struct step *s)
{
    return s->kind == STEP_LOAD && p->port[s->port].role == USE_LOAD;
}

/* With one consumer two blocks share an SM's memory. */
static bool fetches(const struct tile *t) { return t->groups > 1; }

/* Units of 64 columns are too wide for TMA's rows of 128 bytes, or for two tiles ahead of each consumer. */
static bool wants_narrow_units(const struct program *p, const struct tile *t)
{
    int fetched = 0;
    for (int i = 0; i < p->steps; i++) {
        const struct step *s = &p->step[i];
        struct move form[2];
        bool load = is_load(p, s) && fetches(t);
        int n = load || s->kind == STEP_STORE ? forms_of(p, i, form) : 0;
        fetched += load ? n : 0;
        if (fetched > 1 || (n && form->bytes > 2)) return true;
    }
    return false;
}

/* ---- Widths ---- */

static int common_multiple(int a, int b)
{
    int n = a;
    while (n % b) n += a;
    return n;
}

/* Columns of the output that a block drains of a tile. */
int out_columns(const struct program *p, const struct tile *t)
{
    int share = tile_share(t);
    return program_is_gated(p) ? share / 2 : share;
}

bool program_splits_heads(const struct program *p, const struct tile *t)
{
    return !p->segment && pair_span(p) && tile_share(t) % pair_span(p);
}

/* Output columns that are finished together; as in columns.cuh. 0: any. */
static int paired_columns(const struct program *p, const struct tile *t)
{
    if (!program_span(p)) return 0;
    return program_splits_heads(p, t) ? 64 : common_multiple(program_span(p), 64);
}

int unit_columns(const struct program *p, const struct tile *t)
{
    bool wide = t->bn > 64 || t->groups > 1; /* else what is not 64 columns is not staged */
    bool narrow = wide && wants_narrow_units(p, t);
    if (paired_columns(p, t)) return narrow || program_splits_heads(p, t) ? 32 : 64;
    return narrow || (wide && (out_columns(p, t) % 64 || t->groups > 2)) ? 32 : 64;
}

int chunk_columns(const struct program *p, const struct tile *t)
{
    return paired_columns(p, t) ? paired_columns(p, t) : unit_columns(p, t);
}

/* ---- What fits ---- */

/* Counts what moves in the columns of range number r together with what moves in all columns (r = 0). */
static void count_together(struct moves *m, const struct program *p)
{
    m->together = m->bytes = 0;
    for (int r = 0; r <= p->ranges; r++) {
        int count = 0, bytes = 0;
        for (int i = 0; i < m->count; i++) {
            int range = p->step[m->move[i].step[0]].range;
            if (range == 0 || range == r) count++, bytes += m->move[i].bytes;
        }
        m->together = MAX(m->together, count), m->bytes = MAX(m->bytes, bytes);
    }
}

struct widths {
    int unit, chunk; /* columns of a tile */
};

/* Asked once for all steps of a tile, of which there are many where tiles are chosen. */
static struct widths widths_of(const struct program *p, const struct tile *t)
{
    int unit = unit_columns(p, t), paired = paired_columns(p, t);
    return (struct widths){unit, paired ? paired : unit};
}

/* Adds the tiles of a step if so many bytes, of 64 rows of a chunk, and so many tiles may be there. */
static void add(struct moves *m, const struct program *p, struct widths w, int step, int most, int bytes)
{
    struct moves wider = *m;
    struct move form[2];
    int n = forms_of(p, step, form);
    if (!n || form->bytes * w.unit > SWIZZLE_ROW || m->count + n > most) return;
    memcpy(wider.move + wider.count, form, sizeof *form * (size_t)n);
    wider.count += n;
    count_together(&wider, p);
    if (64 * w.chunk * wider.bytes <= bytes) *m = wider;
}

struct moves staged_stores(const struct program *p, const struct tile *t)
{
    struct moves m = {.count = 0};
    if (!t->mainloop->tma) return m;
    const struct widths w = widths_of(p, t);
    for (int i = 0; i < p->steps && out_columns(p, t) % w.chunk == 0; i++)
        if (p->step[i].kind == STEP_STORE) add(&m, p, w, i, MOST_STAGED - p->parts, STAGE_LIMIT / t->groups);
    return m;
}

static int fetch_room(const struct tile *t) { return t->groups > 2 ? FETCH_FEW_ROOM : FETCH_ROOM; }

struct moves fetched_loads(const struct program *p, const struct tile *t)
{
    struct moves m = {.count = 0};
    if (!fetches(t) || !t->mainloop->tma) return m;
    const struct widths w = widths_of(p, t);
    if (w.chunk != w.unit || out_columns(p, t) % w.chunk != 0) return m;
    for (int i = 0; i < p->steps; i++)
        if (is_load(p, &p->step[i])) add(&m, p, w, i, MOST_FETCHED, fetch_room(t));
    return m;
}

int fetch_slots(const struct program *p, const struct tile *t, const struct moves *m)
{
    int most = program_folds_columns(p) ? 1 : FETCH_MOST_SLOTS; /* states of columns want the memory, too */
    return m->count ? MIN(fetch_room(t) / (64 * chunk_columns(p, t) * m->bytes), most) : 0;
}

bool moves_have(const struct moves *m, int step)
{
    for (int i = 0; i < m->count; i++)
        if (m->move[i].step[0] == step || m->move[i].step[1] == step) return true;
    return false;
}
