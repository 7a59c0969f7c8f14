/* util_spmd_run.c -- all ranks of a graph, threads of this process, beside the whole. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "util_spmd.h"

enum { TIMEOUT_MS = 300000 };

static int64_t rows_of(const struct spmd_tensor *t) { return t->dim[0] ? t->dim[0] : 1; }

/* How many elements a rank has. */
static int64_t count_of(const struct spmd_tensor *t, int ranks)
{
    bool part = t->lies == SPMD_ROWS || t->lies == SPMD_COLUMNS;
    return rows_of(t) * t->dim[1] / (part ? ranks : 1);
}

/* Where the whole has element i of rank r. */
static int64_t place_of(const struct spmd_tensor *t, int ranks, int r, int64_t i)
{
    int64_t wide = t->dim[1] / ranks;
    if (t->lies == SPMD_ROWS) return r * count_of(t, ranks) + i;
    if (t->lies == SPMD_COLUMNS) return i / wide * t->dim[1] + r * wide + i % wide;
    return i;
}

/* What rank r adds to a sum: the first makes up for what the others have drawn. */
static float addend(float whole, int ranks, int r, int64_t i)
{
    float others = 0;
    for (int k = 1; k < ranks; k++) others += (float)((i * 5 + k * 7) % 9 - 4) / 8;
    return r ? (float)((i * 5 + r * 7) % 9 - 4) / 8 : whole - others;
}

/* r -1: the whole. */
static void *leaf_of(const struct spmd_tensor *t, int ranks, int r)
{
    int64_t n = r < 0 ? rows_of(t) * t->dim[1] : count_of(t, ranks);
    float *to = calloc((size_t)n + 4, sizeof *to);
    for (int64_t i = 0; to && i < n; i++) {
        float x = t->values[r < 0 ? i : place_of(t, ranks, r, i)];
        if (t->lies == SPMD_FIRST) x = x / (float)ranks * (float)r;
        if (t->lies == SPMD_SUM && r >= 0) x = addend(x, ranks, r, i);
        if (t->ids) ((int32_t *)(void *)to)[i] = (int32_t)x;
        else to[i] = x;
    }
    return to;
}

void **spmd_whole_args(const struct spmd *s, bool loss)
{
    void **args = calloc((size_t)(s->leaves + s->outputs) + 1, sizeof *args);
    int n = 0;
    for (int i = 0; i < s->leaves; i++)
        if (s->leaf[i].lies != SPMD_FIRST) args[n++] = leaf_of(&s->leaf[i], s->ranks, -1);
    for (int i = 0; i < (loss ? 1 : s->outputs); i++)
        args[n++] = malloc(loss ? sizeof(double)
                                : (size_t)(rows_of(&s->output[i]) * s->output[i].dim[1]) * sizeof(double));
    return args;
}

void spmd_args_free(const struct spmd *s, void **args)
{
    for (int i = 0; i < s->leaves + s->outputs; i++) free(args[i]);
    free(args);
}

/* ---- Ranks ---- */

struct rank {
    const coda_graph *graph;
    const coda_plan *plan;
    coda_group *group;
    void *args[1 + SPMD_LEAVES + SPMD_OUTPUTS];
    void *work;
    struct failure why;
    coda_status status;
};

static void *run(void *context)
{
    struct rank *r = context;
    r->status = r->plan ? coda_run(r->plan, r->args, NULL, r->work, NULL) : coda_evaluate(r->graph, r->args);
    if (r->status) fail_save(&r->why), coda_group_abort(r->group);
    return NULL;
}

static void prepare(const struct spmd *s, struct rank *one, int r, void **out)
{
    int n = 0;
    size_t size = one->plan ? sizeof(float) : sizeof(double);
    if (!s->alone) one->args[n++] = one->group;
    for (int i = 0; i < s->leaves; i++) one->args[n++] = leaf_of(&s->leaf[i], s->ranks, r);
    for (int i = 0; i < s->outputs; i++) {
        size_t bytes = (size_t)count_of(&s->output[i], s->ranks) * size;
        one->args[n++] = out[i] = memset(malloc(bytes), 0x7e, bytes);
    }
    if (one->plan && posix_memalign(&one->work, 256, coda_plan_workspace(one->plan) + 256)) one->work = NULL;
}

bool spmd_run(const struct spmd *s, const coda_graph *g, const coda_plan *p, void *out[][SPMD_OUTPUTS])
{
    struct rank rank[SPMD_RANKS] = {{0}};
    coda_group *group[SPMD_RANKS];
    pthread_t thread[SPMD_RANKS];
    coda_group_options opt = CODA_GROUP_OPTIONS_INIT;
    bool good = true;
    opt.timeout_ms = TIMEOUT_MS;
    if (coda_group_local(group, s->ranks, &opt)) return false;
    for (int r = 0; r < s->ranks; r++) {
        rank[r] = (struct rank){.graph = g, .plan = p, .group = group[r]};
        prepare(s, &rank[r], r, out[r]);
    }
    for (int r = 0; r < s->ranks; r++) pthread_create(&thread[r], NULL, run, &rank[r]);
    for (int r = 0; r < s->ranks; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < s->ranks; r++) {
        if (rank[r].status && good) fail_restore(&rank[r].why), good = false;
        for (int i = 0; i < s->leaves; i++) free(rank[r].args[!s->alone + i]);
        free(rank[r].work);
        coda_group_free(group[r]);
    }
    return good;
}

void spmd_out_free(const struct spmd *s, void *out[][SPMD_OUTPUTS])
{
    for (int r = 0; r < s->ranks; r++)
        for (int i = 0; i < s->outputs; i++) free(out[r][i]);
}

/* ---- Beside the whole ---- */

static double element(const void *base, int64_t i, bool floats)
{
    return floats ? (double)((const float *)base)[i] : ((const double *)base)[i];
}

double spmd_distance(const struct spmd *s, int i, const double *whole, void *out[][SPMD_OUTPUTS], bool floats)
{
    const struct spmd_tensor *t = &s->output[i];
    double size = 0, most = 0;
    for (int64_t k = 0; k < rows_of(t) * t->dim[1]; k++) size = fmax(size, fabs(whole[k]));
    for (int r = 0; r < s->ranks; r++)
        for (int64_t k = 0; k < count_of(t, s->ranks); k++) {
            double off = fabs(element(out[r][i], k, floats) - whole[place_of(t, s->ranks, r, k)]);
            most = off > most || isnan(off) ? off : most;
        }
    return most / fmax(size, 1);
}

bool spmd_agree(const struct spmd *s, void *out[][SPMD_OUTPUTS], bool floats)
{
    for (int i = 0; i < s->outputs; i++) {
        size_t bytes = (size_t)count_of(&s->output[i], s->ranks) * (floats ? sizeof(float) : sizeof(double));
        for (int r = 1; r < s->ranks && s->output[i].lies == SPMD_SAME; r++)
            if (memcmp(out[r][i], out[0][i], bytes)) return false;
    }
    return true;
}

double spmd_product(const struct spmd *s, int i, const double *by, void *out[][SPMD_OUTPUTS])
{
    const struct spmd_tensor *t = &s->output[i];
    double sum = 0;
    for (int r = 0; r < (t->lies == SPMD_SAME ? 1 : s->ranks); r++)
        for (int64_t k = 0; k < count_of(t, s->ranks); k++)
            sum += ((const double *)out[r][i])[k] * by[place_of(t, s->ranks, r, k)];
    return sum;
}
