/*
 * fuzz_arguments.h -- a part of fuzz_api.c: what it works on, and what it gives to calls. Graphs, plans and
 * caches that live at a time; values, names and numbers, good and bad; structs in blocks of the size that
 * they say.
 */
#ifndef FUZZ_ARGUMENTS_H
#define FUZZ_ARGUMENTS_H

#include "util_random.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 3, BOXES = 64, STEPS = 120, ROOM = 1 << 20, SILENT = 1, FILES = 3 };

struct plan_slot {
    coda_plan *p;
    int cache; /* its slot; -1: the environment's */
    bool cpu;
};
static struct {
    struct random r;
    coda_graph *g[SLOTS];
    char *good[SLOTS]; /* the text of a graph before its mistake */
    struct plan_slot plan[SLOTS];
    coda_cache *cache[SLOTS];
    void *bundle[SLOTS]; /* what a cache was given as part of the program */
    void *box[BOXES];
    int boxes, at; /* at: the slot that the call took */
    char folder[64];
    uint64_t seed;
    long calls, failures, runs;
} w;

static int sign(int64_t status) { return status < 0 ? (int)status : CODA_OK; }
static bool chance(int percent) { return random_chance(&w.r, percent); }
static int64_t below(int64_t n) { return random_below(&w.r, n); }

static void stop(const char *call, const char *what)
{
    fprintf(stderr, "fuzz_api: %s: %s: \"%s\", seed %llu\n", call, what, coda_error(),
            (unsigned long long)w.seed);
    abort();
}

/* ---- Arguments ---- */

static int64_t number(void)
{
    static const int64_t odd[] = {-1, 7, 63, 1 << 20, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 40};
    return chance(3) ? odd[below(ARRAY_SIZE(odd))] : below(3) ? 1 << below(5) : below(5);
}
static double real(void)
{
    static const double odd[] = {0, -1, 1e-5, 1e30, -1e300, 1.0 / 0.0, -0.0};
    return chance(5) ? odd[below(ARRAY_SIZE(odd))] : chance(1) ? 0.0 / 0.0 : 0.5;
}
static const char *name(void)
{
    static char buf[8][16];
    static const char *const odd[] = {"", "1", "a b", "\xff", "%n%s", "..", "a\nb", "\"", NULL, "relu"};
    char *b = buf[below(8)];
    snprintf(b, sizeof buf[0], "n%d", (int)below(60));
    return chance(2) ? odd[below(ARRAY_SIZE(odd))] : b;
}
static coda_dtype dtype(void)
{
    return (coda_dtype)(chance(1) ? number() : chance(50) ? 1 : 1 + below(CODA_U8));
}
static int rank(void) { return (int)(chance(1) ? number() : chance(70) ? 2 : below(4)); }
static const int64_t *numbers(void)
{
    static int64_t n[4][8];
    int64_t *d = n[below(4)], usual = 1 << below(5);
    for (int i = 0; i < 8; i++) d[i] = chance(70) ? usual : chance(10) ? -1 - below(4) : number();
    return chance(1) ? NULL : d;
}
static coda_graph *graph_any(void)
{
    w.at = (int)below(SLOTS);
    return chance(1) ? NULL : w.g[w.at];
}
/* A number, or a dimension of the graph. */
static int64_t extent(const coda_graph *g)
{
    return g && g->dims->expressions && chance(60) ? DIM_FIRST - below(g->dims->expressions) : number();
}
static const coda_plan *plan_any(void) { return chance(1) ? NULL : w.plan[w.at = (int)below(SLOTS)].p; }
static coda_cache *cache_any(void) { return chance(20) ? NULL : w.cache[w.at = (int)below(SLOTS)]; }
/* Mostly a late value of the graph that the call took. */
static coda_value value(void)
{
    int nodes = w.g[w.at] ? w.g[w.at]->nodes : 0;
    if (chance(2)) return (coda_value){chance(50) ? 0 : (uint32_t)random_next(&w.r)};
    return (coda_value){(uint32_t)(nodes - below(chance(70) ? MIN(nodes, 4) : nodes))};
}
static coda_value maybe(void) { return chance(60) ? CODA_NONE : value(); }
static const char *file(void)
{
    static char path[4][96];
    static const char *const odd[] = {"", NULL, "/dev/null/x", "/", "/dev/null"};
    char *p = path[below(4)];
    snprintf(p, sizeof path[0], "%s/file%d", w.folder, (int)below(FILES));
    return chance(4) ? odd[below(ARRAY_SIZE(odd))] : p;
}

static void *keep(void *box)
{
    if (w.boxes < BOXES) w.box[w.boxes++] = box;
    return box;
}

/* A struct in a block of the size that it says, right or wrong, older or newer; NULL now and then. */
static void *boxed(const void *like, size_t whole)
{
    size_t size = chance(75)   ? whole
                  : chance(30) ? 0
                  : chance(50) ? whole + 8 * (size_t)(1 + below(8))
                               : (size_t)below((int64_t)whole + 64);
    size_t room = MAX(size ? size : whole, sizeof size);
    if (chance(12)) return NULL;
    char *box = calloc(1, room);
    memcpy(box, like, MIN(room, whole));
    if (room > whole && chance(30)) box[room - 1] = (char)below(256);
    memcpy(box, &size, sizeof size);
    return keep(box);
}
#define BOXED(like) boxed(&(like), sizeof(like))
/* One to be filled. */
static void *filled(size_t whole)
{
    char junk[1024];
    for (size_t i = 0; i < sizeof junk; i++) junk[i] = (char)(whole + i);
    return boxed(junk, whole);
}
static char *buffer(size_t *size)
{
    *size = chance(20) ? 0 : (size_t)below(6000);
    return *size ? keep(malloc(*size)) : NULL;
}

#endif
