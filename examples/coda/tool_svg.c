/*
 * tool_svg.c -- pictures of a graph and of the programs that it became.
 *
 * A graph is drawn in layers: a value lies below all that it is made of, leaves right above who reads them
 * first, and within a layer values stand in the order of the means of their operands' places (Sugiyama,
 * Tagawa and Toda, 1981). Programs stand one below the other in launch order; what one stores and another
 * loads runs down beside them.
 */
#include <stdlib.h>
#include <string.h>

#include "plain.h"
#include "tool_stages.h"

enum { BOX = 150, GAP = 16, BOX_HEIGHT = 36, LAYER = 64, MARGIN = 12, LABEL = 21 };

/* ---- Layers ---- */

static void find_layers(struct stage *g)
{
    int most = g->values + 1;
    for (int i = 0; i < g->values; i++) {
        struct value *v = &g->value[i];
        v->layer = v->leaf ? most : 1;
        for (int k = 0; k < v->ins; k++)
            if (v->in[k] >= 0 && !g->value[v->in[k]].leaf && g->value[v->in[k]].layer >= v->layer)
                v->layer = g->value[v->in[k]].layer + 1;
    }
    for (int i = 0; i < g->values; i++)
        for (int k = 0; k < g->value[i].ins; k++) {
            struct value *in = g->value[i].in[k] < 0 ? NULL : &g->value[g->value[i].in[k]];
            if (in && in->leaf && g->value[i].layer - 1 < in->layer) in->layer = g->value[i].layer - 1;
        }
    for (int i = 0; i < g->values; i++)
        if (g->value[i].layer == most) g->value[i].layer = 0;
}

static const struct stage *sorted;

static int by_place(const void *a, const void *b)
{
    const struct value *x = &sorted->value[*(const int *)a], *y = &sorted->value[*(const int *)b];
    if (x->x != y->x) return x->x < y->x ? -1 : 1;
    return *(const int *)a - *(const int *)b;
}

/* Where a value would like to be: above or below what it is connected with. */
static double wanted(const struct stage *g, int value)
{
    double sum = 0;
    int n = 0;
    const struct value *v = &g->value[value];
    for (int k = 0; k < v->ins; k++)
        if (v->in[k] >= 0 && !g->value[v->in[k]].leaf) sum += g->value[v->in[k]].x, n++;
    return n ? sum / n : 0;
}

/* One row of values, about the middle. */
static void place_layer(struct stage *g, int layer, int *row)
{
    int n = 0;
    for (int i = 0; i < g->values; i++)
        if (g->value[i].layer == layer) row[n++] = i, g->value[i].x = wanted(g, i);
    sorted = g;
    qsort(row, (size_t)n, sizeof *row, by_place);
    for (int i = 0; i < n; i++) {
        g->value[row[i]].x = (i - (n - 1) / 2.0) * (BOX + GAP);
        g->value[row[i]].y = layer * LAYER;
    }
}

/* ---- A graph ---- */

/* As much of a name as a box has room for. */
static void put_label(FILE *f, double x, double y, const char *kind, const char *text)
{
    size_t n = strlen(text);
    while (n > LABEL && text[n = n > LABEL ? LABEL : n] && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    fprintf(f, "<text class=\"%s\" x=\"%.0f\" y=\"%.0f\">", kind, x, y);
    html_put_some(f, text, n);
    fputs(text[n] ? "..</text>" : "</text>", f);
}

static void put_edge(FILE *f, const struct value *from, const struct value *to, double shift)
{
    double x = from->x + shift, y = from->y + BOX_HEIGHT, tx = to->x + shift;
    double bow = to->layer - from->layer > 1 && from->x == to->x ? BOX * 0.7 : 0;
    fprintf(f, "<path d=\"M%.0f %.0fC%.0f %.0f %.0f %.0f %.0f %.0f\"/>", x, y, x + bow, y + 24, tx + bow,
            to->y - 24, tx, to->y);
}

static void put_value(FILE *f, const struct stage *g, int value, bool colored)
{
    const struct value *v = &g->value[value];
    fprintf(f, "<g><title>");
    html_put(f, v->name), fputs(" = ", f), html_put(f, v->op), fputc(' ', f), html_put(f, v->attributes);
    fputs(" : ", f), html_put(f, v->type), fputc(' ', f), html_put(f, v->scope);
    fprintf(f, "</title><rect class=\"%s\" x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" rx=\"%d\"",
            v->leaf ? "leaf" : "value", v->x - BOX / 2.0, v->y, BOX, BOX_HEIGHT, v->leaf ? 2 : 9);
    if (colored && v->program != NO_PROGRAM) fprintf(f, " style=\"--h:%d\"", v->program * 67 % 360);
    fputs("/>", f);
    char first[80];
    bool known = colored && v->program != NO_PROGRAM;
    snprintf(first, sizeof first, "%.60s", v->leaf ? v->name : v->op);
    put_label(f, v->x, v->y + 15, "op", first);
    if (known) snprintf(first, sizeof first, "@%d %.60s", v->program, v->name);
    else snprintf(first, sizeof first, "%.60s", v->leaf ? v->type : v->name);
    put_label(f, v->x, v->y + 29, "of", first);
    fputs("</g>\n", f);
}

void svg_graph(FILE *f, const struct stages *s, struct stage *g, bool colored)
{
    (void)s;
    double left = 0, right = 0, depth = 0;
    int *row = malloc(((size_t)g->values + 1) * sizeof *row);
    if (!row) return;
    find_layers(g);
    for (int layer = 0; layer <= g->values; layer++) place_layer(g, layer, row);
    free(row);
    for (int i = 0; i < g->values; i++) {
        const struct value *v = &g->value[i];
        if (v->x - BOX < left) left = v->x - BOX;
        if (v->x + BOX > right) right = v->x + BOX;
        if (v->y > depth) depth = v->y;
    }
    fprintf(
        f,
        "<svg class=\"graph\" viewBox=\"%.0f %d %.0f %.0f\" width=\"%.0f\" role=\"img\"><g class=\"edge\">",
        left - MARGIN, -MARGIN, right - left + 2 * MARGIN, depth + BOX_HEIGHT + 2 * MARGIN,
        right - left + 2 * MARGIN);
    for (int i = 0; i < g->values; i++)
        for (int k = 0; k < g->value[i].ins; k++)
            if (g->value[i].in[k] >= 0) put_edge(f, &g->value[g->value[i].in[k]], &g->value[i], 0);
    fputs("</g>\n", f);
    for (int i = 0; i < g->values; i++) put_value(f, g, i, colored);
    fputs("</svg>\n", f);
}

/* ---- Programs ---- */

enum {
    ROW = 26,
    CHIP = 92,
    CHIPS = 5,
    LEFT = 16,
    WIDE = LEFT + CHIPS * CHIP + 120,
    LANE = 14,
    MOST_LANES = 16
};

static bool is_member(const struct work *w, int value)
{
    for (int i = 0; i < w->members; i++)
        if (w->member[i] == value) return true;
    return false;
}

/* Slices, reshapes and transposes are nobody's work: whose value they read is read. */
static int source_of(const struct stage *g, int value)
{
    while (value >= 0 && g->value[value].program == NO_PROGRAM && !g->value[value].leaf &&
           g->value[value].ins == 1)
        value = g->value[value].in[0];
    return value;
}

/* Does program `to` read what program `from` has computed first? The value, or -1. */
static int handed_on(const struct stages *s, int from, int to)
{
    const struct stage *g = &s->stage[s->stages - 1];
    const struct work *w = &s->program[to];
    for (int i = 0; i < w->members; i++)
        for (int k = 0; k < g->value[w->member[i]].ins; k++) {
            int v = source_of(g, g->value[w->member[i]].in[k]);
            if (v >= 0 && g->value[v].program == from && !is_member(w, v)) return v;
        }
    return -1;
}

static int height_of(const struct work *w) { return ROW * (1 + (w->members + CHIPS - 1) / CHIPS) + 14; }

static void put_chips(FILE *f, const struct stage *g, const struct work *w, double y)
{
    for (int i = 0; i < w->members; i++) {
        double x = LEFT + 10 + i % CHIPS * CHIP, top = y + ROW * (1 + i / CHIPS) + 2;
        const struct value *v = &g->value[w->member[i]];
        fputs("<g><title>", f);
        html_put(f, v->name), fputs(" = ", f), html_put(f, v->op), fputs(" : ", f), html_put(f, v->type);
        fprintf(f, "</title><rect class=\"chip\" x=\"%.0f\" y=\"%.0f\" width=\"%d\" height=\"%d\" rx=\"6\"/>",
                x, top, CHIP - 6, ROW - 6);
        char label[16];
        snprintf(label, sizeof label, "%.13s", v->op);
        put_label(f, x + (CHIP - 6) / 2.0, top + 14, "of", label);
        fputs("</g>", f);
    }
}

static void put_program(FILE *f, const struct stages *s, int i, double y)
{
    const struct stage *g = &s->stage[s->stages - 1];
    const struct work *w = &s->program[i];
    fprintf(
        f, "<rect class=\"value\" style=\"--h:%d\" x=\"%d\" y=\"%.0f\" width=\"%d\" height=\"%d\" rx=\"9\"/>",
        i * 67 % 360, LEFT, y, CHIPS * CHIP + 20, height_of(w) - 6);
    fprintf(f, "<text class=\"head\" x=\"%d\" y=\"%.0f\">@%d</text>", LEFT + 12, y + 19, i);
    fprintf(f, "<text class=\"bytes\" x=\"%d\" y=\"%.0f\">%.3f MB, %.3f GFLOP</text>",
            LEFT + CHIPS * CHIP + 8, y + 19, plain_number(w->bytes, NULL) / 1e6,
            plain_number(w->flops, NULL) / 1e9);
    put_chips(f, g, w, y);
    fputc('\n', f);
}

void svg_programs(FILE *f, const struct stages *s)
{
    const struct stage *g = &s->stage[s->stages - 1];
    double *top = calloc((size_t)s->programs + 1, sizeof *top), right = LEFT + CHIPS * CHIP + 20;
    int lane = 0;
    if (!top) return;
    for (int i = 0; i < s->programs; i++) top[i + 1] = top[i] + height_of(&s->program[i]) + 8;
    fprintf(f, "<svg class=\"graph\" viewBox=\"0 -6 %d %.0f\" width=\"%d\" role=\"img\">\n",
            WIDE + MOST_LANES * LANE, top[s->programs] + 12, WIDE + MOST_LANES * LANE);
    for (int i = 0; i < s->programs; i++) put_program(f, s, i, top[i]);
    for (int to = 0; to < s->programs; to++)
        for (int from = 0; from < to; from++) {
            int v = handed_on(s, from, to);
            if (v < 0) continue;
            double x = right + 20 + lane++ % MOST_LANES * LANE, y = top[from + 1] - 26, ty = top[to] + 14;
            fprintf(f, "<g class=\"edge\"><title>");
            html_put(f, g->value[v].name);
            fprintf(f, " : ");
            html_put(f, g->value[v].type);
            fprintf(f, " from @%d to @%d</title><path d=\"M%.0f %.0fH%.0fV%.0fH%.0f\"/>", from, to, right, y,
                    x, ty, right);
            fprintf(f, "<path class=\"tip\" d=\"M%.0f %.0fl8 -4v8z\"/></g>\n", right, ty);
        }
    fputs("</svg>\n", f);
    free(top);
}
