/*
 * sample.c -- temperature, top_k, top_p, and a draw by a counter. The draw walks what is left in the order of
 * ids, so that only what top_k and top_p take need be put in order of size.
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

static int by_id(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

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

/* Moves the k likeliest to the front. */
static int take_top_k(struct candidate *all, int n, int k)
{
    if (k <= 0 || k >= n) return n;
    for (int i = k / 2 - 1; i >= 0; i--) sink(all, k, i);
    for (int i = k; i < n; i++)
        if (likelier(&all[i], &all[0])) {
            all[0] = all[i];
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

static int32_t drawn(struct candidate *all, int n, double u)
{
    double left = u * total(all, n);
    int last = 0; /* that has a weight: where rounding leaves something at the end */
    for (int i = 0; i < n; i++) {
        if (all[i].weight > 0) last = i;
        if ((left -= all[i].weight) < 0) return i;
    }
    return last;
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

/* NaN has no share; what stands in the order of sizes is put into that of ids. */
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
    if (l->id || s->top_k > 0 || s->top_p < 1) qsort(all, (size_t)n, sizeof *all, by_id);
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
