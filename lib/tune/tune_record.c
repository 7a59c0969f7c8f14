/*
 * tune_record.c -- figures of a GEMM program as text, and the key they are kept under.
 *
 *     figures ::= (us " " candidate "\n")+     us: microseconds of one run, a median
 *     candidate ::= "tile " words        the program with this tile, the cheapest by price first
 *               | "bare"                 cuBLASLt's product, without the epilogue
 *               | "apart"                cuBLASLt's product, and the epilogue in programs of its own
 *               | "whole"                all that "apart" replaces, if that is more than one program
 *
 * The text holds what was measured and not what was decided, so that a library with other margins
 * decides anew. A tile that the library no longer offers has no effect (tile_named).
 */
#include "tune_record.h"

#include "schedule.h"

#include <math.h>
#include <string.h>

static bool has_port(const struct program *q, enum use_role role, int value)
{
    for (int i = 0; i < q->ports; i++)
        if (q->port[i].role == role && q->port[i].value == value) return true;
    return false;
}

/* Would `other` change if q were taken apart? It finishes a statistic that would be whole, or it is a
 * product that may take over what q computes from its result. */
static bool is_neighbour(const struct program *q, const struct program *other)
{
    for (int i = 0; i < q->ports; i++) {
        const struct tensor_use *p = &q->port[i];
        if (p->role == USE_PARTIAL_STORE && has_port(other, USE_PARTIAL_LOAD, p->value)) return true;
        bool loads = p->role == USE_LOAD && other->kind == PROGRAM_GEMM;
        if (loads && has_port(other, USE_STORE, p->value)) return true;
    }
    return false;
}

bool touch_find(struct touch *out, struct arena *a, const struct plan *p)
{
    int values = p->graph->nodes, all = 0;
    for (int i = 0; i < p->programs; i++) all += p->program[i].ports;
    out->at = ARENA_NEW(a, int, values + 1);
    out->program = ARENA_NEW(a, int, all + 1);
    if (!out->at || !out->program) return false;
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; j < p->program[i].ports; j++) out->at[p->program[i].port[j].value]++;
    for (int v = 0; v < values; v++) out->at[v + 1] += out->at[v];
    for (int i = p->programs - 1; i >= 0; i--)
        for (int j = 0; j < p->program[i].ports; j++)
            out->program[--out->at[p->program[i].port[j].value]] = i;
    return true;
}

/* The first neighbour behind `after`; p->programs if there is none. */
static int next_neighbour(const struct plan *p, const struct touch *touch, int index, int after)
{
    const struct program *q = &p->program[index];
    int next = p->programs;
    for (int i = 0; i < q->ports; i++)
        for (int k = touch->at[q->port[i].value]; k < touch->at[q->port[i].value + 1]; k++) {
            int other = touch->program[k];
            bool closer = other > after && other < next && other != index;
            if (closer && is_neighbour(q, &p->program[other])) next = other;
        }
    return next;
}

void figures_key(const struct plan *p, const struct touch *touch, int index, struct text *t)
{
    const struct program *q = &p->program[index];
    struct arena arena = {0};
    struct touch own;
    if (!touch && touch_find(&own, &arena, p)) touch = &own;
    t->failed = t->failed || !touch;
    program_print(NULL, q, t);
    for (int i = 0; i < q->steps; i++)
        if (q->step[i].prim && q->step[i].prim->source) text_append(t, q->step[i].prim->source);
    for (int i = -1; touch && (i = next_neighbour(p, touch, index, i)) < p->programs;) {
        text_append(t, "beside ");
        program_print(NULL, &p->program[i], t);
    }
    arena_free(&arena);
}

void figures_add(struct figures *f, double us, const char *format, ...)
{
    if (f->n == MOST_FIGURES) return;
    struct figure *to = &f->figure[f->n++];
    va_list args;
    va_start(args, format);
    format_print(to->candidate, sizeof to->candidate, format, args);
    va_end(args);
    to->us = us;
}

/* ---- Text ---- */

void figures_write(const struct figures *f, struct text *t)
{
    for (int i = 0; i < f->n; i++) text_printf(t, "%.3f %s\n", f->figure[i].us, f->figure[i].candidate);
}

static bool is_known(const struct figure *f)
{
    bool other =
        !strcmp(f->candidate, "bare") || !strcmp(f->candidate, "apart") || !strcmp(f->candidate, "whole");
    return f->us > 0 && isfinite(f->us) && (figure_is_tile(f) || other);
}

static bool read_lines(struct figures *f, const char *s)
{
    while (*s && f->n < MOST_FIGURES) {
        struct figure *to = &f->figure[f->n++];
        char *candidate;
        to->us = format_read_double(s, &candidate);
        size_t length = strcspn(candidate, "\n");
        if (candidate == s || *candidate != ' ' || length > sizeof to->candidate || candidate[length] != '\n')
            return false;
        memcpy(to->candidate, candidate + 1, length - 1);
        to->candidate[length - 1] = 0;
        if (!is_known(to)) return false;
        s = candidate + length + 1;
    }
    return !*s && f->n && figure_is_tile(&f->figure[0]);
}

bool figures_read(struct figures *f, const char *text)
{
    *f = (struct figures){0};
    bool good = read_lines(f, text);
    if (!good) *f = (struct figures){0};
    return good;
}
