/* util_differences.c -- directional derivatives by central differences. */
#include "util_differences.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GRID 0x1p-16
enum { STEPS = 3, SHRINKS = 4, MOST_ULPS = 256 }; /* of a loss: what summing up in fp64 may leave */
static const double first_step = 0x1p-8;

/* ---- Arguments ---- */

/* The leaf that argument i is, or NULL. */
static const struct node *leaf_of(const graph *g, int i)
{
    return i < g->leaves ? &g->node[g->leaf[i]] : NULL;
}

static int64_t place_of(const struct node *n, int64_t e)
{
    int64_t at = 0;
    for (int d = n->type.rank - 1; d >= 0; e /= n->type.dim[d--]) at += e % n->type.dim[d] * n->stride[d];
    return at;
}

static bool moves(const struct node *n) { return n->type.dtype == CODA_F32; }

/* An odd multiple of the grid, which no kink at a whole number can be. */
static float on_grid(double x)
{
    double bounded = fmin(fmax(x, -60), 60);
    return (float)((2 * floor(bounded / (2 * GRID)) + 1) * GRID);
}

void **differences_args(const graph *g, uint64_t seed)
{
    void **args = random_args(g, seed, true);
    for (int i = 0; i < g->leaves; i++) {
        const struct node *n = leaf_of(g, i);
        float *x = args[i];
        for (int64_t e = 0; moves(n) && e < type_elements(&n->type); e++)
            x[place_of(n, e)] = on_grid((double)x[place_of(n, e)]);
    }
    return args;
}

double **differences_direction(const graph *g, uint64_t seed)
{
    struct random r = {seed ^ 0xd1f7};
    double **direction = calloc((size_t)g->leaves + 1, sizeof *direction);
    for (int i = 0; direction && i < g->leaves; i++) {
        const struct node *n = leaf_of(g, i);
        int64_t elements = type_elements(&n->type);
        if (!moves(n) || !(direction[i] = calloc((size_t)elements + 1, sizeof **direction))) continue;
        for (int64_t e = 0; e < elements; e++) direction[i][e] = (double)(random_below(&r, 33) - 16) / 16;
    }
    return direction;
}

void differences_direction_free(const graph *g, double **direction)
{
    for (int i = 0; i < g->leaves; i++) free(direction[i]);
    free(direction);
}

/* ---- The loss at leaf + t direction ---- */

static void move(const graph *g, void **moved, double *const *direction, double t)
{
    for (int i = 0; i < g->leaves; i++) {
        const struct node *n = leaf_of(g, i);
        float *x = moved[i];
        for (int64_t e = 0; direction[i] && e < type_elements(&n->type); e++)
            x[place_of(n, e)] = (float)((double)x[place_of(n, e)] + t * direction[i][e]);
    }
}

static void **copy_args(const graph *g, void *const *leaf)
{
    void **copy = calloc((size_t)(g->leaves + g->outputs) + 1, sizeof *copy);
    for (int i = 0; copy && i < g->leaves + g->outputs; i++) {
        const struct node *n = leaf_of(g, i);
        const struct type *t = n ? NULL : &g->node[g->output[i - g->leaves].value].type;
        size_t bytes = n ? random_arg_bytes(&n->type, n->stride) : (size_t)type_elements(t) * sizeof(double);
        copy[i] = malloc(bytes + 1);
        if (copy[i]) memcpy(copy[i], leaf[i], bytes);
    }
    return copy;
}

static bool loss_at(const graph *g, void *const *leaf, double *const *direction, double t, double *loss)
{
    void **args = copy_args(g, leaf);
    move(g, args, direction, t);
    bool good = coda_evaluate(g, args) == CODA_OK;
    if (good) *loss = *(double *)args[g->leaves];
    random_args_free(g, args);
    return good;
}

/* ---- The derivative ---- */

static bool is_loss(const graph *g)
{
    if (g->outputs && type_elements(&g->node[g->output[0].value].type) == 1) return true;
    return fail(CODA_E_INVALID, "differences: output 0 is no single number"), false;
}

/* Of a smooth loss the central difference at step h is f' + c h^2 + ..., so that a step 4 times smaller is 16
 * times nearer; and the two sides differ by h f''. */
static void judge(const double *central, const double *sides, double rounding, struct difference *out)
{
    const double ratio = SHRINKS * SHRINKS;
    double far = central[1] - central[0], near = central[2] - central[1];
    double coarse = central[1] + far / (ratio - 1), fine = central[2] + near / (ratio - 1);
    out->value = fine;
    out->error = fabs(fine - coarse) + rounding;
    bool series = fabs(near) <= 4 * fabs(far) / ratio + rounding;
    bool meet = fabs(sides[2]) <= 2 * fabs(sides[1]) / SHRINKS + rounding;
    out->smooth = isfinite(fine) && isfinite(out->error) && series && meet;
}

bool difference_along(const graph *g, void *const *leaf, double *const *direction, struct difference *out)
{
    double central[STEPS], sides[STEPS], here, up, down, h = first_step, largest = 0;
    *out = (struct difference){NAN, INFINITY, false};
    if (!is_loss(g) || !loss_at(g, leaf, direction, 0, &here)) return false;
    for (int i = 0; i < STEPS; i++, h /= SHRINKS) {
        if (!loss_at(g, leaf, direction, h, &up) || !loss_at(g, leaf, direction, -h, &down)) return false;
        central[i] = (up - down) / (2 * h);
        sides[i] = (up - here) / h - (here - down) / h;
        largest = fmax(largest, fmax(fabs(up), fabs(down)));
    }
    judge(central, sides, MOST_ULPS * DBL_EPSILON * (1 + largest) / (h * SHRINKS), out);
    return true;
}
