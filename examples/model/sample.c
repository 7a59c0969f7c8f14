/*
 * sample.c -- temperature, top_k, top_p, and a draw by a counter. The draw walks what is left in the order of
 * size, so that it mostly ends among the few likeliest, which are all that need be put in order.
 */
#include <math.h>
#include <stdlib.h>

#include "sample.h"

struct candidate {
    double weight; /* exp((logit - greatest) / temperature) */
    float logit;
    int32_t id;
};

/* ---- Numbers by a counter ---- */

/* Each bit of x changes half of the result's: Stafford's 13th variant of MurmurHash3's finalizer. */
static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

double sample_uniform(uint64_t seed, uint64_t text, uint64_t place)
{
    static const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t x = mixed(mixed(mixed(seed + odd) + text + odd) + place + odd);
    return (double)(x >> 11) * 0x1p-53;
}

/* ---- What may be drawn ---- */

static bool likelier(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static int by_size(const void *a, const void *b) { return likelier(a, b) ? -1 : likelier(b, a); }

/* all[at] sinks in a heap whose root is its least likely. */
static void sink(struct candidate *all, int n, int at)
{
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && likelier(&all[child], &all[child + 1])) child++;
        if (!likelier(&all[at], &all[child])) return;
        struct candidate other = all[at];
        all[at] = all[child];
        all[child] = other;
    }
}

/* Moves the k likeliest to the front, the others behind them. */
static int take_top_k(struct candidate *all, int n, int k)
{
    if (k <= 0 || k >= n) return n;
    for (int i = k / 2 - 1; i >= 0; i--) sink(all, k, i);
    for (int i = k; i < n; i++)
        if (likelier(&all[i], &all[0])) {
            struct candidate other = all[0];
            all[0] = all[i];
            all[i] = other;
            sink(all, k, 0);
        }
    return k;
}

static double total(const struct candidate *all, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += all[i].weight;
    return sum;
}

/* Tokens with less than their part of 1 - p make up less than 1 - p together, so p is reached without them:
 * only the others are put in order. */
static int take_top_p(struct candidate *all, int n, double p)
{
    if (p >= 1) return n;
    double sum = total(all, n), least = (1 - p) * sum / n, reached = 0;
    int kept = 0, taken = 0;
    for (int i = 0; i < n; i++)
        if (all[i].weight >= least) all[kept++] = all[i];
    qsort(all, (size_t)kept, sizeof *all, by_size);
    while (taken < kept && (!taken || reached < p * sum)) reached += all[taken++].weight;
    return taken;
}

/* ---- The draw ---- */

enum { FEW = 64 }; /* that are put in order before the others are */

/* Where `left` falls among all[from] below all[n], of which it loses the shares; n: behind them. */
static int fall(const struct candidate *all, int from, int n, double *left)
{
    for (int i = from; i < n; i++)
        if ((*left -= all[i].weight) < 0) return i;
    return n;
}

static int drawn(struct candidate *all, int n, double u)
{
    double left = u * total(all, n);
    int few = take_top_k(all, n, FEW);
    qsort(all, (size_t)few, sizeof *all, by_size);
    int at = fall(all, 0, few, &left);
    if (at < few) return at;
    qsort(all + few, (size_t)(n - few), sizeof *all, by_size);
    at = fall(all, few, n, &left);
    while (at == n || (at > 0 && all[at].weight <= 0)) at--; /* where rounding leaves something at the end */
    return at;
}

static int likeliest(const struct logits *l)
{
    int at = -1;
    for (int i = 0; i < l->n; i++)
        if (!isnan(l->value[i]) && (at < 0 || l->value[i] > l->value[at])) at = i;
    return at;
}

/* The log of the sum of all tokens' exp(logit). */
static double log_sum(const struct logits *l, double greatest)
{
    double sum = 0;
    if (!isnan(l->log_sum)) return l->log_sum;
    for (int i = 0; i < l->n; i++)
        if (!isnan(l->value[i])) sum += exp(l->value[i] - greatest);
    return greatest + log(sum);
}

/* NaN has no share. */
static struct candidate choose(const struct sampling *s, const struct logits *l, double greatest, double u,
                               struct candidate *all)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        if (!isnan(l->value[i]))
            all[n++] = (struct candidate){.logit = l->value[i], .id = l->id ? l->id[i] : i};
    n = take_top_k(all, n, s->top_k);
    for (int i = 0; i < n; i++) all[i].weight = exp((all[i].logit - greatest) / s->temperature);
    n = take_top_p(all, n, s->top_p);
    return all[drawn(all, n, u)];
}

bool sample(const struct sampling *s, const struct logits *l, uint64_t text, uint64_t place,
            struct sampled *out, struct fault *f)
{
    int best = likeliest(l);
    if (best < 0 || !isfinite(l->value[best]))
        return fault_set(f, "token %llu: of %d logits the greatest is no finite number",
                         (unsigned long long)place, l->n);
    double greatest = l->value[best];
    struct candidate one = {.logit = l->value[best], .id = l->id ? l->id[best] : best};
    if (s->temperature > 0) {
        struct candidate *all = malloc(sizeof *all * (size_t)l->n);
        if (!all) return fault_set(f, "out of memory");
        one = choose(s, l, greatest, sample_uniform(s->seed, text, place), all);
        free(all);
    }
    *out = (struct sampled){.id = one.id, .logprob = one.logit - log_sum(l, greatest)};
    return true;
}

/* ---- By some of the likeliest ---- */

static double share(const struct sampling *s, const struct logits *l, int i)
{
    return exp(((double)l->value[i] - (double)l->value[0]) / s->temperature);
}

/* Of the first n tokens those that make up p of a total, and their part of it; 0: more do. */
static int reach(const struct sampling *s, const struct logits *l, int n, double wanted, double *reached)
{
    int taken = 0;
    *reached = 0;
    while (taken < n && (!taken || *reached < wanted)) *reached += share(s, l, taken++);
    return *reached < wanted ? 0 : taken;
}

bool sample_likeliest(const struct sampling *s, const struct logits *l, double warm_sum, uint64_t text,
                      uint64_t place, struct sampled *out)
{
    bool whole = s->top_k > 0 && s->top_k <= l->n;
    int n = whole ? s->top_k : l->n, at = 0;
    double all = exp(warm_sum), kept;
    if (!n || !isfinite(l->value[0])) return false;
    if (s->temperature > 0) {
        if (whole) reach(s, l, n, INFINITY, &all);
        kept = all;
        if (s->top_p < 1 && !(n = reach(s, l, n, s->top_p * all, &kept))) return false;
        double left = sample_uniform(s->seed, text, place) * kept;
        while (at < n && (left -= share(s, l, at)) >= 0) at++;
        if (at == n && !whole && s->top_p >= 1) return false;
        while (at == n || (at > 0 && share(s, l, at) <= 0)) at--;
    }
    *out = (struct sampled){.id = l->id ? l->id[at] : at, .logprob = (double)l->value[at] - l->log_sum};
    return true;
}
