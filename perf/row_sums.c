/*
 * row_sums.c -- rows added by id, beside a pass that reads and writes as many bytes.
 *
 *     gradient    of an embedding: 16,384 tokens name any of 32,768 rows of 4,096
 *     added       the same, added to what is there: only rows that some token names are touched, so no peer
 *     one         all tokens name the last row
 *     zipf        few rows have most of the tokens, as words have
 *     segments    sentences of 2,048 tokens, each added up
 *     narrow      65,536 tokens of 64 columns name one of few rows
 *
 * NAME-sort and NAME-sum are the two kernels of NAME, each alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { CODA, STREAM };
enum { GRADIENT, ADDED, ONE, ZIPF, SEGMENTS };
static const struct way way[SIDES] = {{"coda", 0, CODA_FOLD_NONE}, {"stream", 0, CODA_FOLD_NONE}};

/* A figure's m are tokens, its n columns, its k rows of the result; its variant says which rows tokens name.
 * */
static int64_t id_of(const struct figure *f, int64_t token)
{
    uint32_t h = (uint32_t)token + 1; /* MurmurHash3's finalizer */
    h = (h ^ h >> 16) * 0x85ebca6b;
    h = (h ^ h >> 13) * 0xc2b2ae35;
    double u = (double)(h ^ h >> 16) / 0x1p32;
    switch (f->variant) {
    case ONE: return f->k - 1;
    case ZIPF: return (int64_t)pow((double)f->k, u) - 1; /* frequencies fall as 1 / rank */
    case SEGMENTS: return token * f->k / f->m;
    default: return (int64_t)(u * (double)f->k);
    }
}

static bool number(const struct figure *f, const char *tensor, int64_t i, float *out)
{
    if (strcmp(tensor, "ids")) return false;
    *out = (float)id_of(f, i);
    return true;
}

/* Reads m x n elements of 16 bits, and writes k x n of 32, or so many that are whole copies of what it read.
 * */
static coda_graph *stream(const struct figure *f)
{
    bool wide = f->k >= f->m;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "all", CODA_BF16, 2, (int64_t[]){f->m, f->n});
    coda_value y = wide ? coda_cast(g, x, CODA_F32) : coda_row_sum(g, x);
    coda_output(g, "first", y);
    for (int64_t i = 1; i < f->k / f->m; i++) {
        char name[32];
        snprintf(name, sizeof name, "copy.%d", (int)i);
        coda_output(g, name, y);
    }
    return g;
}

static coda_graph *build(const struct figure *f, int side)
{
    if (side == STREAM && f->variant != ADDED && !f->first_kernel && !f->last_kernel) return stream(f);
    if (side != CODA) return NULL;
    coda_graph *g = coda_graph_new();
    coda_value x = coda_input(g, "x", CODA_BF16, 2, (int64_t[]){f->m, f->n});
    coda_value sums = coda_row_sums(g, x, coda_input(g, "ids", CODA_I32, 1, &f->m), f->k);
    if (f->variant == ADDED) coda_output_add(g, "sums", sums);
    else coda_output(g, "sums", sums);
    return g;
}

/* The rows that the first token, one in the middle and the last one name. What is added to grows by each run.
 * */
static void check(struct figure *f)
{
    const struct tensor *x = figure_tensor(f, "x");
    double *want = malloc(sizeof *want * (size_t)f->n);
    must(!want, "malloc");
    for (int i = 0; i < 3 && f->variant != ADDED; i++) {
        int64_t row = id_of(f, i * (f->m - 1) / 2);
        memset(want, 0, sizeof *want * (size_t)f->n);
        for (int64_t t = 0; t < f->m; t++)
            for (int64_t k = 0; k < f->n && id_of(f, t) == row; k++) want[k] += tensor_at(x, t * f->n + k);
        figure_judge(f, "sums", row, want);
    }
    free(want);
}

static struct figure figure_of(const char *name, int which, int64_t tokens, int64_t columns, int64_t rows)
{
    struct figure f = {.m = tokens,
                       .n = columns,
                       .k = rows,
                       .variant = which,
                       .way = way,
                       .build = build,
                       .number = number,
                       .check = check};
    snprintf(f.name, sizeof f.name, "row_sums/%s/%dx%d/%d", name, (int)tokens, (int)columns, (int)rows);
    return f;
}

static struct figure part_of(struct figure f, bool sort)
{
    char *shape = strchr(f.name + strlen("row_sums/"), '/'), rest[sizeof f.name];
    snprintf(rest, sizeof rest, "%s", shape);
    snprintf(shape, sizeof f.name - (size_t)(shape - f.name), "-%s%s", sort ? "sort" : "sum", rest);
    f.first_kernel = sort;
    f.last_kernel = !sort;
    return f;
}

int main(int argc, char **argv)
{
    const struct figure whole[] = {
        figure_of("gradient", GRADIENT, 16384, 4096, 32768), figure_of("added", ADDED, 16384, 4096, 32768),
        figure_of("one", ONE, 16384, 4096, 32768),           figure_of("zipf", ZIPF, 16384, 4096, 32768),
        figure_of("segments", SEGMENTS, 16384, 1024, 8),     figure_of("narrow", ONE, 65536, 64, 100)};
    enum { WHOLE = sizeof whole / sizeof *whole };
    struct figure figure[3 * WHOLE];
    for (int i = 0; i < WHOLE; i++) {
        figure[i] = whole[i];
        figure[WHOLE + 2 * i] = part_of(whole[i], true);
        figure[WHOLE + 2 * i + 1] = part_of(whole[i], false);
    }
    return bench_main(argc, argv, "row_sums", figure, sizeof figure / sizeof *figure);
}
