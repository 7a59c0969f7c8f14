/*
 * emit_segments.c -- the part of an Epilogue that knows ranges of columns, and segments of these: what is
 * folded of each segment before any of its values is finished, and what the slots see of it.
 *
 * Ranges are numbers in the text, which choose specialisations: Fold<r>, the states; Segment<r>, the values.
 */
#include "emit_epilogue.h"

#include <stdlib.h>

/* ---- Ranges ---- */

static bool has_rest(const struct program *p)
{
    int64_t columns = 0;
    for (int i = 0; i < p->ranges; i++) columns += p->range[i].end - p->range[i].first;
    return p->ranges > 0 && columns < p->dim[2];
}

int printer_ranges(const struct program *p) { return MAX(p->ranges + has_rest(p), 1); }

struct word printer_column(const struct program *p, const struct step *s, const struct tensor_use *port)
{
    int64_t first = step_columns(p, s).first, within = port->stride[2], each = port->stride[3];
    struct word n = first ? emit_word("(n - %lld)", (wide)first) : emit_word("n"), low = {""}, high = {""};
    if (each == p->segment * within) return emit_word(" + %lld * %s", (wide)within, n.s);
    if (within) low = emit_word(" + %lld * (%s %% %lld)", (wide)within, n.s, (wide)p->segment);
    if (each) high = emit_word(" + %lld * (%s / %lld)", (wide)each, n.s, (wide)p->segment);
    return emit_word("%.90s%.90s", low.s, high.s);
}

static int by_first(const void *a, const void *b)
{
    const struct column_range *x = *(const struct column_range *const *)a,
                              *y = *(const struct column_range *const *)b;
    return (x->first > y->first) - (x->first < y->first);
}

/* The number of the range that column n is in. */
static void print_range(const struct printer *e)
{
    const struct program *p = e->p;
    const struct column_range *sorted[MOST_RANGES];
    int64_t end = 0;
    for (int i = 0; i < p->ranges; i++) sorted[i] = &p->range[i];
    qsort(sorted, (size_t)p->ranges, sizeof *sorted, by_first);
    text_append(e->t, "    DEV static int range(int n)\n    {\n");
    for (int i = 0; i < p->ranges; i++) {
        if (sorted[i]->first > end)
            text_printf(e->t, "        if (n < %lld) return %d;\n", (wide)sorted[i]->first, p->ranges);
        end = sorted[i]->end;
        if (end < p->dim[2])
            text_printf(e->t, "        if (n < %lld) return %d;\n", (wide)end, (int)(sorted[i] - p->range));
    }
    int last = !p->ranges ? 0 : end < p->dim[2] ? p->ranges : (int)(sorted[p->ranges - 1] - p->range);
    text_printf(e->t, "        return %d;\n    }\n", last);
}

/* Does move `i` of those that are staged leave from range r? */
static bool is_stored_in(const struct printer *e, int i, int r)
{
    int range = e->p->step[e->l->stores.move[i].step[0]].range;
    return range == 0 || range == r + 1;
}

static int stored_bytes(const struct printer *e, int r)
{
    int bytes = 0;
    for (int i = 0; i < e->l->stores.count; i++) bytes += is_stored_in(e, i, r) * e->l->stores.move[i].bytes;
    return bytes;
}

/* "i == 0 ? 4096 : i == 1 ? 0 : 0": maps, or their first columns. */
static void print_choice(const struct printer *e, int r, const char *head, bool maps)
{
    int n = 0;
    text_printf(e->t, "        DEV static constexpr int %s(int i) { return ", head);
    for (int i = 0; i < e->l->stores.count; i++) {
        if (!is_stored_in(e, i, r)) continue;
        int64_t first = step_columns(e->p, &e->p->step[e->l->stores.move[i].step[0]]).first;
        text_printf(e->t, "i == %d ? %lld : ", n++, maps ? (wide)i : (wide)first);
    }
    text_append(e->t, "0; }\n");
}

void printer_stores(const struct printer *e)
{
    int widest = 0, ranges = printer_ranges(e->p);
    if (!e->l->stores.count) return;
    text_append(e->t, "    template <int range, class Any = void> struct Stores;\n");
    for (int r = 0; r < ranges; r++) {
        bool any = false;
        text_printf(e->t, "    template <class Any> struct Stores<%d, Any> {\n        using Staged = Moves<",
                    r);
        for (int i = 0; i < e->l->stores.count; i++) {
            if (!is_stored_in(e, i, r)) continue;
            text_append(e->t, any ? ", " : "");
            printer_move(e, &e->l->stores.move[i]);
            any = true;
        }
        text_append(e->t, ">;\n");
        print_choice(e, r, "map", true);
        print_choice(e, r, "first", false);
        text_append(e->t, "    };\n");
        if (stored_bytes(e, r) > stored_bytes(e, widest)) widest = r;
    }
    text_printf(e->t, "    using Staged = typename Stores<%d>::Staged;\n", widest);
}

/* ---- States and values ---- */

static bool is_in(const struct printer *e, int step, int range)
{
    int r = e->p->step[step].range;
    return e->l->level[step] == LEVEL_SEGMENT && (e->p->ranges == 0 || r == range + 1);
}

/* The step of the same range whose state it reads, perhaps its own. */
static int state_of(const struct printer *e, int step)
{
    int i = 0;
    while (i < step &&
           !(e->p->step[i].range == e->p->step[step].range && step_folds_segments(&e->p->step[i]) &&
             step_shares_state(e->p, &e->p->step[i], &e->p->step[step])))
        i++;
    return i;
}

static bool folds(const struct printer *e, int step, int range)
{
    return is_in(e, step, range) && step_folds_segments(&e->p->step[step]) && state_of(e, step) == step;
}

static bool any_folds(const struct printer *e, int range)
{
    for (int i = 0; i < e->p->steps; i++)
        if (folds(e, i, range)) return true;
    return false;
}

static bool is_seen(const struct printer *e, int step)
{
    if (!step_has_value(e->p, &e->p->step[step])) return false;
    for (int i = step + 1; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        for (int k = 0; k < s->nin; k++)
            if (s->in[k] == step && (s->kind == STEP_STORE || e->l->level[i] == LEVEL_SLOT)) return true;
    }
    return false;
}

static void print_structs(const struct printer *e, int range)
{
    if (!any_folds(e, range)) return;
    text_printf(e->t, "    template <class Any> struct Fold<%d, Any> {", range);
    for (int i = 0; i < e->p->steps; i++)
        if (folds(e, i, range)) text_printf(e->t, " reduce::%s::State v%d;", e->p->step[i].prim->name, i);
    text_printf(e->t, " };\n    template <class Any> struct Segment<%d, Any> {", range);
    for (int i = 0; i < e->p->steps; i++)
        if (is_in(e, i, range) && is_seen(e, i)) text_printf(e->t, " float v%d;", i);
    text_append(e->t, " };\n");
}

/* `format` has the primitive and twice the step's number. */
static void print_states(const struct printer *e, const char *head, const char *call, const char *arguments)
{
    text_printf(e->t, "    template <int range> DEV static void %s\n    {\n", head);
    for (int r = 0; r < printer_ranges(e->p); r++)
        for (int i = 0; i < e->p->steps; i++) {
            if (!folds(e, i, r)) continue;
            text_printf(e->t, "        if constexpr (range == %d) reduce::%s::%s(s.v%d", r,
                        e->p->step[i].prim->name, call, i);
            if (*arguments) text_printf(e->t, ", %s.v%d", arguments, i);
            text_append(e->t, ");\n");
        }
    text_append(e->t, "    }\n");
}

static void print_value(struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    if (s->kind == STEP_STORE) return;
    text_printf(e->t, "            const float v%d = ", i);
    if (step_folds_segments(s))
        text_printf(e->t, "reduce::%s::finish(f.v%d);", s->prim->name, state_of(e, i));
    else printer_call(e, s, 0);
    text_append(e->t, "\n");
    if (is_seen(e, i)) text_printf(e->t, "            v.v%d = v%d;\n", i, i);
}

static void print_values(struct printer *e)
{
    e->level = LEVEL_SEGMENT;
    text_append(e->t, "    template <int range> DEV static Segment<range> segment_values(const Row &r, const "
                      "Fold<range> &f)\n"
                      "    {\n        Segment<range> v;\n");
    for (int r = 0; r < printer_ranges(e->p); r++) {
        if (!any_folds(e, r)) continue;
        text_printf(e->t, "        if constexpr (range == %d) {\n", r);
        for (int i = 0; i < e->p->steps; i++)
            if (is_in(e, i, r)) print_value(e, i);
        text_append(e->t, "        }\n");
    }
    text_append(e->t, "        return v;\n    }\n");
}

/* n: the segment's first column. */
static void print_save(const struct printer *e)
{
    text_append(e->t, "    template <int range>\n"
                      "    DEV static void save_segment(const Args &g, i64 batch, i64 m, i64 n, const "
                      "Segment<range> &s)\n    {\n");
    for (int i = 0; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        if (s->kind != STEP_STORE || e->l->level[i] != LEVEL_SEGMENT) continue;
        const struct tensor_use *port = &e->p->port[s->port];
        text_printf(e->t, "        if constexpr (range == %d) coda::%s(g.y%d%s%s%s, s.v%d);\n",
                    MAX(s->range - 1, 0), printer_adds(e, i) ? "accumulate" : "store", s->port,
                    printer_batch(e->p, port, "batch").s, printer_term(port->stride[1], e->p->dim[1], "m").s,
                    printer_column(e->p, s, port).s, s->in[0]);
    }
    text_append(e->t, "    }\n");
}

/* ---- Folding ---- */

static bool is_folded(const struct printer *e, int step, int range)
{
    for (int i = step + 1; i < e->p->steps; i++) {
        const struct step *s = &e->p->step[i];
        bool takes = folds(e, i, range) || e->l->level[i] == LEVEL_SLOT;
        for (int k = 0; takes && k < s->nin; k++)
            if (s->in[k] == step && (folds(e, i, range) || is_folded(e, i, range))) return true;
    }
    return false;
}

static void print_push(const struct printer *e, int i)
{
    const struct step *s = &e->p->step[i];
    for (int lane = 0; lane < program_lanes(e->p); lane++)
        text_printf(e->t, "            reduce::%s::push(f.v%d, %s, s.first + s.column[%d], 0.0f);\n",
                    s->prim->name, i, printer_value(e, s->in[0], lane).s, lane);
}

static void print_fold(struct printer *e)
{
    e->level = LEVEL_SLOT;
    text_append(e->t,
                "    template <int range, class S> DEV static void fold(S &s, Fold<range> &f)\n    {\n");
    for (int r = 0; r < printer_ranges(e->p); r++) {
        if (!any_folds(e, r)) continue;
        text_printf(e->t, "        if constexpr (range == %d) {\n", r);
        for (int i = 0; i < e->p->steps; i++) {
            if (folds(e, i, r)) print_push(e, i);
            if (e->l->level[i] != LEVEL_SLOT || !is_folded(e, i, r)) continue;
            if (e->p->step[i].kind == STEP_PAIR) printer_pair(e, i);
            else printer_slot(e, i);
        }
        text_append(e->t, "        }\n");
    }
    text_append(e->t, "    }\n");
}

void printer_segments(struct printer *e)
{
    text_printf(e->t, "\n    static constexpr int segment = %lld, ranges = %d;\n", (wide)e->p->segment,
                printer_ranges(e->p));
    print_range(e);
    text_append(e->t, "    template <int range, class Any = void> struct Fold {};\n"
                      "    template <int range, class Any = void> struct Segment {};\n");
    for (int r = 0; r < printer_ranges(e->p); r++) print_structs(e, r);
    print_states(e, "init_fold(Fold<range> &s)", "init", "");
    print_states(e, "merge_folds(Fold<range> &s, const Fold<range> &o)", "merge", "o");
    print_values(e);
    print_save(e);
    print_fold(e);
}
