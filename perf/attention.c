/*
 * attention.c -- attention to keys that lie in memory, for one query of each sequence, beside reading as many
 * bytes as its keys and values have.
 *
 *     decode    heads on key heads, columns of a head, sequences, keys of each: 32/8x128, 1x8192
 *     chunk     256 queries of one sequence to 16,384 keys, beside as many multiply-adds of 2,048 to 2,048
 *     fp8       decode with keys and values in 8 bits, beside reading these: .../8x8192
 *     pages     decode with keys in pages of a pool, beside keys one behind the other: .../16
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { CODA, READ, CONTIGUOUS = READ, FULL = READ };
enum { PAGE_UNIT = 4, NARROW = 1 << 16, CHUNK = 3, CHUNK_QUERIES = 256, SQUARE = 2048 };
#define ROUNDED 0x1p-6 /* four roundings to 8 bits: five standard deviations of a sum of such */
static const struct way way[SIDES] = {{"coda", 0, CODA_FOLD_NONE}, {"read", 0, CODA_FOLD_NONE}};
static const struct way chunk_way[SIDES] = {{"coda", 0, CODA_FOLD_NONE}, {"full", 0, CODA_FOLD_NONE}};
static const struct way paged_way[SIDES] = {{"coda", 0, CODA_FOLD_NONE}, {"contiguous", 0, CODA_FOLD_NONE}};

/* A figure's m are sequences, its n is a head's columns, its k keys; its variant says which heads, how many
 * keys a page has, and whether keys have 8 bits. */
static const struct heads {
    int all, keys;
} heads[] = {{32, 8}, {32, 32}, {64, 8}, [CHUNK] = {32, 8}};

static const struct heads *heads_of(const struct figure *f) { return &heads[f->variant % PAGE_UNIT]; }
static bool is_chunk(const struct figure *f) { return f->variant == CHUNK; }
static int64_t queries_of(const struct figure *f) { return is_chunk(f) ? CHUNK_QUERIES : 1; }
static int64_t page_of(const struct figure *f) { return f->variant % NARROW / PAGE_UNIT; }
static bool is_narrow(const struct figure *f) { return f->variant >= NARROW; }

/* Pages of all sequences in an order far from memory's: their number is a power of two. */
static int64_t page_at(const struct figure *f, int64_t i) { return i * 40503 % (f->m * f->k / page_of(f)); }

static bool number(const struct figure *f, const char *tensor, int64_t i, float *out)
{
    if (strcmp(tensor, "table") && strcmp(tensor, "lengths")) return false;
    *out = (float)(*tensor == 't' ? page_at(f, i) : f->k);
    return true;
}

/* The row of k and v of a sequence's key. */
static int64_t row_of(const struct figure *f, int64_t sequence, int64_t key)
{
    int64_t row = sequence * f->k + key, page = page_of(f);
    return page ? page_at(f, row / page) * page + row % page : row;
}

static coda_value tensor(coda_graph *g, const struct figure *f, const char *name, int64_t time, int64_t count)
{
    coda_dtype t = is_narrow(f) && *name != 'q' ? CODA_F8E4M3 : CODA_BF16;
    return coda_input(g, name, t, 3, (int64_t[]){f->m, time, count * f->n});
}

static coda_value pool(coda_graph *g, const struct figure *f, const char *name, int64_t count)
{
    return coda_input(g, name, CODA_BF16, 2, (int64_t[]){f->m * f->k, count * f->n});
}

static coda_graph *build_paged(const struct figure *f)
{
    const struct heads *h = heads_of(f);
    coda_graph *g = coda_graph_new();
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    opt.heads = h->all;
    opt.kv_heads = h->keys;
    opt.page = page_of(f);
    opt.table = coda_input(g, "table", CODA_I32, 2, (int64_t[]){f->m, f->k / opt.page});
    coda_value q = tensor(g, f, "q", 1, h->all), k = pool(g, f, "k", h->keys), v = pool(g, f, "v", h->keys);
    coda_output(g, "y", coda_attention(g, q, k, v, coda_input(g, "lengths", CODA_I32, 1, &f->m), &opt));
    return g;
}

static coda_graph *build_full(const struct figure *f)
{
    const struct heads *h = heads_of(f);
    coda_graph *g = coda_graph_new();
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    opt.heads = h->all;
    opt.kv_heads = h->keys;
    coda_value q = tensor(g, f, "square_q", SQUARE, h->all), k = tensor(g, f, "square_k", SQUARE, h->keys);
    coda_output(g, "square",
                coda_attention(g, q, k, tensor(g, f, "square_v", SQUARE, h->keys), CODA_NONE, &opt));
    return g;
}

static coda_graph *build(const struct figure *f, int side)
{
    const struct heads *h = heads_of(f);
    bool paged = page_of(f) > 0;
    if (paged && side == CODA) return build_paged(f);
    if (is_chunk(f) && side == FULL) return build_full(f);
    if (side > READ) return NULL;
    coda_graph *g = coda_graph_new();
    if (side == READ && !paged && !is_chunk(f)) {
        int64_t rows = (is_narrow(f) ? 1 : 2) * f->m * f->k; /* of as many bytes */
        coda_value all = coda_input(g, "all", CODA_BF16, 2, (int64_t[]){rows, h->keys * f->n});
        coda_output(g, "sums", coda_row_sum(g, all));
        return g;
    }
    coda_attention_options opt = CODA_ATTENTION_OPTIONS_INIT;
    opt.heads = h->all;
    opt.kv_heads = h->keys;
    coda_value q = tensor(g, f, "q", queries_of(f), h->all), k = tensor(g, f, "k", f->k, h->keys),
               v = tensor(g, f, "v", f->k, h->keys);
    coda_value lengths = paged ? coda_input(g, "lengths", CODA_I32, 1, &f->m) : CODA_NONE;
    coda_output(g, "y", coda_attention(g, q, k, v, lengths, &opt));
    return g;
}

/* ---- The same in fp64 ---- */

static double dot(const struct tensor *q, int64_t q_at, const struct tensor *k, int64_t k_at, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += tensor_at(q, q_at + i) * tensor_at(k, k_at + i);
    return sum;
}

/* One head's columns of y, and how far they may be off: weights are rounded to 8 bits before they are summed,
 * and so is y; fp32 sums add less. */
static void attend(struct figure *f, int64_t row, int head, double *weight, double *y, double *bound)
{
    const struct heads *h = heads_of(f);
    const struct tensor *q = figure_tensor(f, "q"), *k = figure_tensor(f, "k"), *v = figure_tensor(f, "v");
    int64_t sequence = row / queries_of(f), q_at = (row * h->all + head) * f->n,
            key_head = head / (h->all / h->keys);
    double most = -INFINITY, sum = 0;
    for (int64_t t = 0; t < f->k; t++) {
        int64_t at = (row_of(f, sequence, t) * h->keys + key_head) * f->n;
        weight[t] = dot(q, q_at, k, at, f->n) / sqrt((double)f->n);
        most = fmax(most, weight[t]);
    }
    for (int64_t i = 0; i < f->n; i++) y[i] = bound[i] = 0;
    for (int64_t t = 0; t < f->k; t++) {
        int64_t at = (row_of(f, sequence, t) * h->keys + key_head) * f->n;
        double p = exp(weight[t] - most);
        sum += p;
        for (int64_t i = 0; i < f->n; i++) y[i] += p * tensor_at(v, at + i);
        for (int64_t i = 0; i < f->n; i++) bound[i] += p * p * tensor_at(v, at + i) * tensor_at(v, at + i);
    }
    for (int64_t i = 0; i < f->n; i++) y[i] /= sum, bound[i] = ROUNDED * (sqrt(bound[i]) / sum + fabs(y[i]));
}

static void judge(struct figure *f, int64_t row, const double *want, const double *bound, double *got)
{
    double off = 0, all = 0;
    int64_t columns = heads_of(f)->all * f->n;
    figure_row(f, CODA, "y", row, got);
    for (int64_t i = 0; i < columns; i++) {
        double e = fabs(got[i] - want[i]), excess = e / bound[i];
        off += e * e;
        all += want[i] * want[i];
        f->excess = excess <= f->excess ? f->excess : excess; /* NaN stays */
    }
    f->error = fmax(f->error, sqrt(off / all));
}

/* The first query and the last. */
static void check(struct figure *f)
{
    int count = heads_of(f)->all;
    size_t columns = (size_t)count * (size_t)f->n;
    double *weight = malloc(sizeof *weight * (size_t)f->k), *y = malloc(3 * sizeof *y * columns);
    must(!weight || !y, "malloc");
    int64_t last = f->m * queries_of(f) - 1;
    for (int64_t row = 0; row <= last; row += last ? last : 1) {
        for (int i = 0; i < count; i++)
            attend(f, row, i, weight, y + i * f->n, y + columns + (size_t)i * (size_t)f->n);
        judge(f, row, y, y + columns, y + 2 * columns);
    }
    free(weight);
    free(y);
}

/* ---- The shapes ---- */

static struct figure chunk(int64_t keys)
{
    struct figure f = {
        .m = 1, .n = 128, .k = keys, .variant = CHUNK, .way = chunk_way, .build = build, .check = check};
    snprintf(f.name, sizeof f.name, "attention/chunk/32/8x128/%dx%d", CHUNK_QUERIES, (int)keys);
    return f;
}

static struct figure paged(int64_t sequences, int64_t keys, int page)
{
    struct figure f = {.m = sequences,
                       .n = 128,
                       .k = keys,
                       .variant = PAGE_UNIT * page,
                       .way = paged_way,
                       .build = build,
                       .number = number,
                       .check = check};
    snprintf(f.name, sizeof f.name, "attention/pages/32/8x128/%dx%d/%d", (int)sequences, (int)keys, page);
    return f;
}

static struct figure narrow(int64_t sequences, int64_t keys)
{
    struct figure f = {
        .m = sequences, .n = 128, .k = keys, .variant = NARROW, .way = way, .build = build, .check = check};
    snprintf(f.name, sizeof f.name, "attention/fp8/32/8x128/%dx%d", (int)sequences, (int)keys);
    return f;
}

static struct figure figure_of(int which, int64_t columns, int64_t sequences, int64_t keys)
{
    struct figure f = {.m = sequences,
                       .n = columns,
                       .k = keys,
                       .variant = which,
                       .way = way,
                       .build = build,
                       .check = check};
    snprintf(f.name, sizeof f.name, "attention/decode/%d/%dx%d/%dx%d", heads[which].all, heads[which].keys,
             (int)columns, (int)sequences, (int)keys);
    return f;
}

int main(int argc, char **argv)
{
    static const int64_t keys[] = {1024, 8192, 32768}, sequences[] = {1, 8, 64};
    static struct figure figure[40];
    int n = 0;
    for (int i = 0; i < 3; i++)
        for (int s = 0; s < 3; s++)
            if (sequences[s] * keys[i] <= 64 * 8192) figure[n++] = figure_of(0, 128, sequences[s], keys[i]);
    for (int which = 1; which < 3; which++)
        for (int i = 0; i < 2; i++)
            for (int s = 0; s < 2; s++) figure[n++] = figure_of(which, 128, sequences[s], keys[i]);
    for (int i = 0; i < 2; i++)
        for (int s = 0; s < 3; s++) figure[n++] = figure_of(0, 64, sequences[s], keys[i]);
    figure[n++] = figure_of(1, 128, sequences[2], keys[0]);
    for (int s = 0; s < 3; s++)
        for (int page = 16; page <= 64; page *= 4) figure[n++] = paged(sequences[s], keys[1], page);
    for (int s = 0; s < 3; s++) figure[n++] = narrow(sequences[s], keys[1]);
    figure[n++] = chunk(2 * keys[1]);
    return bench_main(argc, argv, "attention", figure, n);
}
