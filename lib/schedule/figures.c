/* figures.c -- what follows from the figures of a GEMM program: the tile, and whether it is taken apart. */
#include "figures.h"

#include <stdio.h>
#include <string.h>

#define TILE "tile "

static const double TILE_MARGIN = 1.01, APART_MARGIN = 1.02; /* less is noise */

bool figure_is_tile(const struct figure *f) { return !strncmp(f->candidate, TILE, strlen(TILE)); }

int figures_tiles(const struct figures *f)
{
    int n = 0;
    for (int i = 0; i < f->n; i++) n += figure_is_tile(&f->figure[i]);
    return n;
}

double figures_us(const struct figures *f, const char *candidate)
{
    for (int i = 0; i < f->n; i++)
        if (!strcmp(f->figure[i].candidate, candidate)) return f->figure[i].us;
    return 0;
}

/* ---- Decision ---- */

static const struct figure *fastest_tile(const struct figures *f)
{
    const struct figure *best = &f->figure[0];
    for (int i = 1; i < f->n; i++)
        if (figure_is_tile(&f->figure[i]) && f->figure[i].us * TILE_MARGIN < f->figure[0].us &&
            f->figure[i].us < best->us)
            best = &f->figure[i];
    return best;
}

/* The time that "apart" must beat; "whole" was run with the first tile. */
static double kept_us(const struct figures *f)
{
    double whole = figures_us(f, "whole"), best = fastest_tile(f)->us;
    return whole ? whole - f->figure[0].us + best : best;
}

bool figures_decide(const struct figures *f, const char **tile)
{
    double apart = figures_us(f, "apart");
    *tile = fastest_tile(f)->candidate + strlen(TILE);
    return apart && apart * APART_MARGIN < kept_us(f);
}

/* ---- For people ---- */

void figures_print(const struct figures *f, struct text *t)
{
    double bare = figures_us(f, "bare"), apart = figures_us(f, "apart");
    const char *tile;
    if (!f->n) {
        text_printf(t, "   not tuned: %s\n", f->why);
        return;
    }
    text_printf(t, "   tuned %.2f us, by price %.2f us, %d tiles", fastest_tile(f)->us, f->figure[0].us,
                figures_tiles(f));
    if (bare) text_printf(t, "; cuBLASLt without the epilogue %.2f us", bare);
    if (apart)
        text_printf(t, "; %s %.2f us instead of %.2f us",
                    figures_decide(f, &tile) ? "taken apart" : "apart it would be", apart, kept_us(f));
    text_append(t, "\n");
}
