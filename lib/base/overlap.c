/*
 * overlap.c -- do two strided tensors share a byte? Exactly, for they may be interleaved: the heads of q
 * and k in one buffer, even and odd columns.
 *
 * A byte is shared if the runs of bytes at sum s_i x_i in the one and at d + sum t_j y_j in the other do:
 *
 *     -run_a  <  sum s_i x_i - sum t_j y_j - d  <  run_b        0 <= x_i < m_i,  0 <= y_j < n_j
 *
 * Steps that both have become one unknown, so that slices of one buffer leave a single one, or a few that
 * are settled at once, as the smallest steps span less than the next. In general it is a knapsack: the
 * largest steps are tried one by one where bounds and divisors leave a choice, and the last two are solved
 * by Euclid's algorithm. The tries are counted.
 */
#include "overlap.h"

#include "guards.h"

/* ---- Lattices ---- */

struct lattice lattice_bytes(int64_t bytes) { return (struct lattice){.run = bytes, .bytes = bytes}; }

/* Dimensions of more than one element, by rising stride. */
static int sort_dims(int rank, const int64_t *dim, const int64_t *stride, int *order)
{
    int n = 0;
    for (int d = 0; d < rank; d++) {
        if (!extent_reaches(dim[d], 2)) continue;
        int j = n++;
        for (; j > 0 && !extent_reaches(stride[d], stride[order[j - 1]]); j--) order[j] = order[j - 1];
        order[j] = d;
    }
    return n;
}

struct lattice lattice_strided(coda_dtype t, int rank, const int64_t *dim, const int64_t *stride)
{
    struct lattice l = {0};
    int64_t dense = 1; /* elements that lie side by side */
    int order[CODA_MAX_RANK], n = sort_dims(rank, dim, stride, order);
    for (int d = 0; d < rank; d++)
        if (extents_equal(dim[d], 0)) return lattice_bytes(0);
    for (int i = 0; i < n; i++) {
        int64_t step = dtype_bytes(t, stride[order[i]]), count = dim[order[i]];
        int top = l.rank - 1;
        if (!l.rank && extents_equal(stride[order[i]], dense)) dense *= count;
        else if (l.rank && extents_equal(step, l.step[top] * l.count[top])) l.count[top] *= count;
        else l.step[l.rank] = step, l.count[l.rank++] = count;
    }
    for (int i = 0, j = l.rank - 1; i < j; i++, j--) {
        int64_t step = l.step[i], count = l.count[i];
        l.step[i] = l.step[j], l.count[i] = l.count[j];
        l.step[j] = step, l.count[j] = count;
    }
    l.bytes = l.run = dtype_bytes(t, dense);
    for (int i = 0; i < l.rank; i++) l.bytes += l.step[i] * (l.count[i] - 1);
    return l;
}

/* ---- A sum of multiples in a range ---- */

enum { MOST = 2 * CODA_MAX_RANK };

/* Is there a sum of step[i] * u_i, 0 <= u_i <= most[i], in a given range? Steps fall. */
struct sum {
    int n;
    int64_t step[MOST], most[MOST];
    int64_t reach[MOST + 1], divisor[MOST + 1]; /* of the terms from i on: their sum at most, its gcd */
    int *work;
};

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* sum of floor((a i + b) / m) for i < n, modulo 2^64, by Euclid's algorithm. a n + b fits. */
static uint64_t floor_sum(uint64_t n, uint64_t m, uint64_t a, uint64_t b)
{
    uint64_t sum = 0;
    for (;;) {
        sum += (n % 2 ? n * ((n - 1) / 2) : n / 2 * (n - 1)) * (a / m) + n * (b / m);
        a %= m;
        b %= m;
        uint64_t top = a * n + b;
        if (top < m) return sum;
        n = top / m;
        b = top % m;
        top = m;
        m = a;
        a = top;
    }
}

/* The last two terms, p u + q v in low .. high: for which u does a multiple of q lie between? */
static bool two_meet(const struct sum *s, int64_t low, int64_t high)
{
    int64_t p = s->step[s->n - 2], q = s->step[s->n - 1], q_reach = s->reach[s->n - 1];
    int64_t first = MAX(0, ceil_div(low - q_reach, p)), last = MIN(s->most[s->n - 2], floor_div(high, p));
    if (first > last) return false;
    if (high - low >= q - 1 || last >= ceil_div(low, p) || first <= floor_div(high - q_reach, p)) return true;
    uint64_t n = (uint64_t)(last - first) + 1; /* now low - p u > 0 and high - p u < q_reach for all u */
    return floor_sum(n, (uint64_t)q, (uint64_t)p, (uint64_t)(high - p * last)) !=
           floor_sum(n, (uint64_t)q, (uint64_t)p, (uint64_t)(low - 1 - p * last));
}

/* Terms from i on. */
static enum meeting search(const struct sum *s, int i, int64_t low, int64_t high)
{
    if (high < 0 || low > s->reach[i]) return APART;
    if (low <= 0 || high >= s->reach[i]) return MEET; /* nothing of them, or all */
    if (floor_div(high, s->divisor[i]) * s->divisor[i] < low) return APART;
    if (i == s->n - 1) return MEET;
    if (i == s->n - 2) return two_meet(s, low, high) ? MEET : APART;
    int64_t first = MAX(0, ceil_div(low - s->reach[i + 1], s->step[i]));
    int64_t last = MIN(s->most[i], floor_div(high, s->step[i]));
    for (int64_t u = first; u <= last; u++) {
        if (--*s->work < 0) return UNDECIDED;
        enum meeting m = search(s, i + 1, low - s->step[i] * u, high - s->step[i] * u);
        if (m != APART) return m;
    }
    return APART;
}

static void add_term(struct sum *s, int64_t step, int64_t most)
{
    int i = s->n;
    if (i && s->step[i - 1] == step) {
        s->most[i - 1] += most;
        return;
    }
    s->step[i] = step;
    s->most[i] = most;
    s->n++;
}

/* With -y_j = v_j - (n_j - 1), so that all unknowns begin at 0. */
enum meeting lattices_meet(const struct lattice *a, const struct lattice *b, int64_t from, int *work)
{
    struct sum s = {.work = work};
    if (!a->bytes || !b->bytes || from >= a->bytes || -from >= b->bytes) return APART;
    int64_t low = from + 1 - a->run, high = from + b->run - 1;
    for (int i = 0, j = 0; i < a->rank || j < b->rank;) {
        bool of_a = j == b->rank || (i < a->rank && a->step[i] >= b->step[j]);
        const struct lattice *l = of_a ? a : b;
        int d = of_a ? i++ : j++;
        add_term(&s, l->step[d], l->count[d] - 1);
    }
    low += b->bytes - b->run;
    high += b->bytes - b->run;
    for (int i = s.n - 1; i >= 0; i--) {
        s.reach[i] = s.reach[i + 1] + s.step[i] * s.most[i];
        s.divisor[i] = gcd(s.step[i], s.divisor[i + 1]);
    }
    return search(&s, 0, low, high);
}
