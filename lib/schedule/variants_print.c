/* variants_print.c -- which tile a product has at which numbers of rows, and what it costs above the cheapest
 * one, as a table. */
#include "mainloop.h"
#include "variants.h"

#include <stdlib.h>

enum { MOST_TILES = 96, LINE = 84 };

struct reign { /* of a tile: at these rows */
    struct tile tile;
    double least, most; /* cost over that of the cheapest tile */
    struct text rows;
    int64_t first, last; /* that are not yet among them */
    int column;
};

struct table {
    struct reign reign[MOST_TILES];
    int reigns;
};

static double cost_over_least(const struct program *q, const struct target *target, const struct tile *t,
                              int64_t rows)
{
    const struct program at = variants_at(q, rows);
    struct search s = {.p = &at, .most = 1};
    search_run(&s, target, TILES_KNOWN);
    return MAX(t->mainloop->cost(&at, t, target) / s.cost[0], 1);
}

static void widen(struct reign *u, double cost)
{
    u->least = u->most ? MIN(u->least, cost) : cost;
    u->most = MAX(u->most, cost);
}

/* The rows that were added last, on a line with those before or on a new one. */
static void write_rows(struct reign *u)
{
    char rows[48];
    if (!u->last) return;
    int n = u->first == u->last
                ? format_line(rows, sizeof rows, " %lld", (long long)u->first)
                : format_line(rows, sizeof rows, " %lld..%lld", (long long)u->first, (long long)u->last);
    if (u->column + n > LINE) text_append(&u->rows, "\n     "), u->column = 0;
    text_append(&u->rows, rows);
    u->column += n;
}

static struct reign *reign_of(struct table *t, const struct tile *tile)
{
    int i = 0;
    while (i < t->reigns && !tile_equal(&t->reign[i].tile, tile)) i++;
    if (i == MOST_TILES) return NULL;
    if (i == t->reigns) t->reign[t->reigns++].tile = *tile;
    return &t->reign[i];
}

static void add_rows(struct reign *u, int64_t first, int64_t last)
{
    if (!u->last || u->last + 1 != first) write_rows(u), u->first = first;
    u->last = last;
}

static bool fill(struct table *t, struct reign *base, struct variants *v, const struct plan *p,
                 const struct program *q)
{
    for (int64_t first = 1, last; first <= q->dim[1]; first = last + 1) {
        const struct program at = variants_at(q, first);
        struct tile tile;
        last = MIN(variants_last(first), q->dim[1]);
        if (!variants_tile(v, p, &at, &p->target, &tile)) return false;
        if (tile.mainloop->streams) tile.bm = stream_rows(&at, &tile); /* of the kernel */
        struct reign *u = reign_of(t, &tile);
        if (!u) continue;
        add_rows(u, first, last);
        widen(u, cost_over_least(q, &p->target, &tile, last));
        widen(base, cost_over_least(q, &p->target, &base->tile, last));
    }
    return true;
}

static void print_reign(const char *what, const struct reign *u, struct text *t)
{
    struct tile tile = u->tile;
    if (tile.most_rows == INT32_MAX) tile.most_rows = 0;
    text_printf(t, "   %s", what);
    tile_print(&tile, t);
    text_printf(t, ": +%.0f", 100 * (u->least - 1));
    if (u->most > u->least + 0.005) text_printf(t, "..%.0f", 100 * (u->most - 1));
    text_append(t, " %\n");
    if (u->rows.length) text_printf(t, "     %s\n", text_str(&u->rows));
}

static bool print_product(struct variants *v, const struct plan *p, int index, struct text *t)
{
    const struct program *q = &p->program[index];
    struct reign base = {0};
    struct table *table = calloc(1, sizeof *table);
    bool good = table && variants_base(v, p, q, &p->target, &base.tile) && fill(table, &base, v, p, q);
    text_printf(t, "@%d gemm n=%lld k=%lld: %d tiles for 1..%lld rows\n", index, (long long)q->dim[2],
                (long long)q->k, table ? table->reigns : 0, (long long)q->dim[1]);
    for (int i = 0; table && i < table->reigns; i++) {
        write_rows(&table->reign[i]);
        print_reign("", &table->reign[i], t);
        good = good && !table->reign[i].rows.failed;
        text_free(&table->reign[i].rows);
    }
    if (good) print_reign("base ", &base, t);
    free(table);
    return good;
}

/* Prints the first of products that are alike, as layers have them, and no product of several batches. */
bool variants_print(struct variants *v, const struct plan *p, struct text *t)
{
    struct memo memo = {0};
    struct arena scratch = {0};
    bool good = true;
    for (int i = 0; i < p->programs && good; i++) {
        struct program *q = &p->program[i];
        if (q->kind != PROGRAM_GEMM || q->prepare || !variants_take(q)) continue;
        const struct program *first = memo_program(&memo, &scratch, p->buffer, q);
        good = first && (first != q || print_product(v, p, i, t));
    }
    arena_free(&scratch);
    return good;
}
