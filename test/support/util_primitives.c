/* util_primitives.c -- inputs for primitives, and their distance from the references. */
#include "util_primitives.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util_random.h"

/* ---- Maps ---- */

/* The tiny ones come last and go to maps of one argument only: what two of them make underflows. */
static const float special[] = {
    0.0f,      -0.0f, 1e-3f,  -1e-3f,      0.5f,    -0.5f,    1.0f,   -1.0f,   2.0f,     3.0f,
    -100.0f,   7.0f,  -9.0f,  15.9f,       16.1f,   80.0f,    -80.0f, 88.0f,   -88.0f,   104.0f,
    -104.0f,   1e4f,  -1e4f,  16777216.0f, 1e18f,   1e20f,    -1e20f, FLT_MAX, -FLT_MAX, INFINITY,
    -INFINITY, NAN,   1e-45f, -1e-40f,     FLT_MIN, -FLT_MIN, 1e-20f, -1e-20f};
enum { TINY = 6, RANDOM = 20000, MOST_SPECIAL = 20000 };
enum { ALL_SPECIAL = sizeof special / sizeof *special, SPECIAL = ALL_SPECIAL - TINY };

/* One of: moderate, small integer, any magnitude, one of the specials. */
static float draw(struct random *r)
{
    int64_t kind = random_below(r, 8);
    if (kind < 4) return (float)(random_normal(r) * (kind < 2 ? 2 : 30));
    if (kind < 5) return (float)(random_below(r, 9) - 2);
    if (kind < 7) return (float)ldexp(random_normal(r), (int)random_below(r, 80) - 50);
    return special[random_below(r, SPECIAL)];
}

float *map_cases(const struct prim *p, uint64_t seed, int *count)
{
    struct random r = {seed};
    int n = p->inputs + p->params, values = n == 1 ? ALL_SPECIAL : SPECIAL;
    int combinations = n == 1 ? values : n == 2 ? values * values : MOST_SPECIAL;
    *count = combinations + RANDOM;
    float *args = malloc(sizeof *args * (size_t)(*count * n));
    if (!args) abort();
    for (int c = 0; c < *count; c++)
        for (int i = 0; i < n; i++) {
            int64_t pick = n <= 2 ? (i ? c / values : c) % values : random_below(&r, values);
            args[c * n + i] = c < combinations ? special[pick] : draw(&r);
        }
    return args;
}

static double reference(const struct prim *p, const double *args)
{
    return p->reference(args, args + p->inputs);
}

/* How much the reference moves when argument i is changed by `by` of itself; 0 at a jump, where half
 * the change does not halve the move. */
static double move(const struct prim *p, const double *args, int i, double by, double centre)
{
    double changed[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS], step[2];
    memcpy(changed, args, sizeof *args * (size_t)(p->inputs + p->params));
    for (int k = 0; k < 2; k++) {
        changed[i] = args[i] * (1 + by / (k + 1));
        step[k] = fabs(reference(p, changed) - centre);
    }
    return isfinite(step[0]) && step[0] >= 1.5 * step[1] ? step[0] : 0;
}

/* Is it the derivative of a map? */
static bool is_partial(const struct prim *p)
{
    for (const struct prim *of = prim_table; of->name; of++)
        for (int i = 0; i < of->inputs; i++)
            if (of->kind == PRIM_MAP && of->facts.grad[i] == p) return true;
    return false;
}

/* What a factor of 2^-126 makes of the arguments. A derivative has the slope of the exponent as one more,
 * which is a square in that of gelu_tanh. */
static double underflow(const struct prim *p, const double *args)
{
    double product = 1;
    for (int i = 0; i < p->inputs + p->params; i++)
        if (fabs(args[i]) > 1) product *= fmin(fabs(args[i]), FLT_MAX);
    return 0x1p-126 * (is_partial(p) ? product * product * product : product);
}

/* Where a derivative changes its sign between half and twice an argument, its terms cancel, and nothing hangs
 * on the digits that are left. */
static double cancels(const struct prim *p, const double *args)
{
    double changed[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS], most = 0;
    if (!is_partial(p)) return 0;
    for (int i = 0; i < p->inputs; i++) {
        memcpy(changed, args, sizeof *args * (size_t)(p->inputs + p->params));
        changed[i] = args[i] / 2;
        double half = reference(p, changed);
        changed[i] = args[i] * 2;
        double twice = reference(p, changed);
        if (half * twice < 0) most = fmax(most, fmax(fabs(half), fabs(twice)));
    }
    return 0x1p-20 * most;
}

static double tolerance(const struct prim *p, const double *args, double centre, double relative)
{
    double sum = relative * fabs(centre) + underflow(p, args) + cancels(p, args);
    for (int i = 0; i < p->inputs + p->params; i++)
        sum += fmax(move(p, args, i, 0x1p-23, centre), move(p, args, i, -0x1p-23, centre));
    return sum;
}

/* Infinity times a factor that may become 0: nothing is promised. */
static bool is_vague(const struct prim *p, const double *args)
{
    double finite[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS];
    bool infinite = false;
    for (int i = 0; i < p->inputs + p->params; i++) {
        infinite |= isinf(args[i]);
        finite[i] = isinf(args[i]) ? copysign(FLT_MAX, args[i]) : args[i];
    }
    return infinite && p->inputs > 1 && fabs(reference(p, finite)) <= underflow(p, args);
}

/* Equal as floats, or both NaN. */
static bool same(double want, float got) { return isnan(want) ? isnan(got) : (float)want == got; }

static bool close_within(const struct prim *p, const float *args, float got, double relative, double absolute,
                         double *error, char *why, size_t size)
{
    double wide[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS];
    char list[200] = "";
    for (int i = 0; i < p->inputs + p->params; i++) {
        wide[i] = args[i];
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%.9g", i ? ", " : "", args[i]);
    }
    double want = reference(p, wide), allowed = tolerance(p, wide, want, relative) + absolute,
           off = fabs(got - want);
    bool limit = fabs(want) > FLT_MAX * (1 - 1e-6); /* infinity and FLT_MAX are neighbours */
    *error = isfinite(want) && fabs(want) > allowed && off > allowed / 1e6 ? off / fabs(want) : 0;
    if (limit) *error = 0;
    if (same(want, got) || off <= allowed || is_vague(p, wide)) return true;
    if (limit && fabsf(got) >= FLT_MAX * (1 - 1e-6f) && (got > 0) == (want > 0)) return true;
    snprintf(why, size, "%s(%s) = %.9g, but the reference is %.9g +- %.2g", p->name, list, got, want,
             allowed);
    return false;
}

bool map_close(const struct prim *p, const float *args, float got, double *error, char *why, size_t size)
{
    return close_within(p, args, got, 2e-6, 0, error, why, size);
}

/* Is the first operand's part so small that it may be 0, and an operand infinite that it multiplies? */
static bool is_vague_narrow(const struct prim *p, const float *args)
{
    double one[PRIM_MAX_INPUTS + PRIM_MAX_PARAMS];
    bool infinite = false;
    for (int i = 0; i < p->inputs + p->params; i++) {
        bool factor = i > 0 && i < p->inputs;
        one[i] = factor ? 1 : args[i];
        infinite = infinite || (factor && isinf(args[i]));
    }
    return infinite && fabs(reference(p, one)) <= 1e-14;
}

bool map_close_narrow(const struct prim *p, const float *args, float got, double *error, char *why,
                      size_t size)
{
    double absolute = 1e-14;
    *error = 0;
    for (int i = 1; i < p->inputs; i++) absolute *= fmax(1, fabs(args[i]));
    return is_vague_narrow(p, args) || close_within(p, args, got, 0x1p-16, absolute, error, why, size);
}

/* ---- Reductions ---- */

static const int lengths[] = {0, 1, 2, 3, 7, 31, 64, 65, 200, ROW_MOST};
static const struct {
    const char *what;
    float offset, spread, one, many; /* one: put at one column; many: put at every third */
} shapes[] = {
    {"normal", 0, 1, 0, 0},           {"offset 10", 10, 1, 0, 0},
    {"wide", 0, 1e3f, 0, 0},          {"tiny", 0, 1e-15f, 0, 0},
    {"all equal", 3, 0, 0, 0},        {"all -inf", -INFINITY, 0, 0, 0},
    {"one -inf", 0, 1, -INFINITY, 0}, {"many -inf", 0, 5, 0, -INFINITY},
    {"one inf", 0, 1, INFINITY, 0},   {"many inf", 0, 1, 0, INFINITY},
    {"one NaN", 0, 1, NAN, 0},        {"inf and -inf", 0, 1, INFINITY, -INFINITY},
    {"one large", 0, 1, 1e4f, 0},     {"far below 0", -500, 3, 0, 0},
};
enum { LENGTHS = sizeof lengths / sizeof *lengths, SHAPES = sizeof shapes / sizeof *shapes };
_Static_assert(ROW_CASES == LENGTHS * SHAPES, "every length with every shape");

void row_case(struct row_case *row, int i, uint64_t seed)
{
    struct random r = {seed + (uint64_t)i};
    int s = i / LENGTHS;
    row->n = lengths[i % LENGTHS];
    for (int c = 0; c < row->n; c++) {
        row->x[c] = shapes[s].offset;
        if (shapes[s].spread != 0) row->x[c] += (float)(shapes[s].spread * random_normal(&r));
        if (shapes[s].many != 0 && c % 3 == 2) row->x[c] = shapes[s].many;
    }
    if (shapes[s].one != 0 && row->n) row->x[random_below(&r, row->n)] = shapes[s].one;
    row->key = (float)(random_below(&r, row->n + 2) - 1); /* may lie just outside */
    snprintf(row->what, sizeof row->what, "%s, %d columns, key %g", shapes[s].what, row->n, row->key);
}

/* With `absolute` of |x|; with `by` each x is changed by that part of it, up or down as `seed` says, and so
 * are the floats of the state in the end. */
static double reduce(const struct prim *p, const struct row_case *row, bool absolute, double by,
                     uint64_t seed)
{
    double state[PRIM_MAX_STATE] = {0};
    struct random r = {seed};
    p->reduce->init(state);
    for (int c = 0; c < row->n; c++) {
        double x = absolute ? fabs(row->x[c]) : row->x[c];
        p->reduce->push(state, x * (1 + (random_chance(&r, 50) ? by : -by)), c, row->key);
    }
    for (int k = 0; k < p->state; k++) state[k] *= 1 + (random_chance(&r, 50) ? by : -by);
    return p->reduce->finish(state);
}

double row_reference(const struct prim *p, const struct row_case *row) { return reduce(p, row, false, 0, 0); }

double row_noise(const struct prim *p, const struct row_case *row, double by)
{
    double want = row_reference(p, row), most = 0;
    for (uint64_t k = 0; k < 8; k++) most = fmax(most, fabs(reduce(p, row, false, by, k) - want));
    return most;
}

bool row_close(const struct prim *p, const struct row_case *row, int serial, double got, double *error,
               char *why, size_t size)
{
    double want = row_reference(p, row), scale = fmax(fabs(want), fabs(reduce(p, row, true, 0, 0)));
    /* Sums of so many floats, one after the other, are off by the root of their number. */
    double off = fabs(got - want), moves = row_noise(p, row, 0x1p-21 + 0x1p-23 * sqrt(serial));
    *error = isfinite(off) && scale > 0 ? off / scale : 0;
    if (isnan(want) ? isnan(got) : want == got) return true;
    if (isfinite(want) && off <= (2e-6 + serial * 0x1p-24) * scale + moves + 0x1p-126) return true;
    snprintf(why, size, "%s of %s = %.9g, but the reference is %.9g", p->name, row->what, got, want);
    return false;
}

/* ---- Rope ---- */

void rope_frequency(double base, int rotary, int i, float *high, float *low)
{
    double turns = pow(base, -2.0 * i / rotary) / M_PI;
    *high = (float)turns;
    *low = (float)(turns - *high);
}

void rope_reference(double out[2], double a, double b, double position, double base, int rotary, int i)
{
    double t = position * pow(base, -2.0 * i / rotary), c = cos(t), s = sin(t);
    out[0] = a * c - b * s;
    out[1] = a * s + b * c;
}
