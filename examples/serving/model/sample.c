/*
 * sample.c -- temperature, top_k, top_p, and a draw by a counter: as coda_sample draws on a device, by the
 * host.
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

void sample_seeds(uint64_t seed, uint64_t text, int32_t out[2])
{
    static const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t x = mixed(mixed(seed + odd) + text + odd);
    out[0] = (int32_t)(x & 0xffffff);
    out[1] = (int32_t)(x >> 24 & 0xffffff);
}

/* Philox4x32-10 (Salmon et al., SC 2011). */
static void philox(uint32_t word[4], uint32_t first, uint32_t second)
{
    for (int round = 0; round < 10; round++, first += 0x9e3779b9u, second += 0xbb67ae85u) {
        uint64_t a = (uint64_t)0xd2511f53u * word[0], b = (uint64_t)0xcd9e8d57u * word[2];
        word[0] = (uint32_t)(b >> 32) ^ word[1] ^ first;
        word[1] = (uint32_t)b;
        word[2] = (uint32_t)(a >> 32) ^ word[3] ^ second;
        word[3] = (uint32_t)a;
    }
}

/* (high 2^32 + low + 1/2) / 2^64 */
static double fraction(uint32_t high, uint32_t low) { return (high * 0x1p32 + low + 0.5) * 0x1p-64; }

double sample_noise(const int32_t seeds[2], uint64_t place, int32_t id)
{
    uint32_t r[4] = {(uint32_t)id, (uint32_t)place};
    philox(r, (uint32_t)seeds[0], (uint32_t)seeds[1]);
    return -log(r[0] >> 31 ? -log(fraction(~r[0], ~r[1])) : -log1p(-fraction(r[0], r[1])));
}

/* ---- What may be drawn ---- */

static int by_size(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->logit > y->logit ? -1 : x->logit < y->logit ? 1 : (x->id > y->id) - (x->id < y->id);
}

static int with_equals(const struct candidate *all, int n, int kept)
{
    while (kept > 0 && kept < n && all[kept].logit == all[kept - 1].logit) kept++;
    return kept;
}

/* The first of them, which are in the order of size. */
static int count_kept(const struct sampling *s, const struct candidate *all, int n)
{
    int taken = 0;
    double sum = 0, reached = 0;
    if (s->top_k > 0 && s->top_k < n) n = with_equals(all, n, s->top_k);
    if (s->top_p >= 1) return n;
    for (int i = 0; i < n; i++) sum += all[i].weight;
    while (taken < n && (!taken || reached < s->top_p * sum)) reached += all[taken++].weight;
    return with_equals(all, n, taken);
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

/* ---- The draw ---- */

/* The greatest logit with its noise, of equals that of the lower id. NaN has no share. */
static struct candidate choose(const struct sampling *s, const struct logits *l, double greatest,
                               const int32_t seeds[2], uint64_t place, struct candidate *all)
{
    int n = 0, best = 0;
    double most = -INFINITY;
    for (int i = 0; i < l->n; i++)
        if (!isnan(l->value[i]))
            all[n++] = (struct candidate){exp((l->value[i] - greatest) / s->temperature), l->value[i],
                                          l->id ? l->id[i] : i};
    if (s->top_k > 0 || s->top_p < 1) {
        qsort(all, (size_t)n, sizeof *all, by_size);
        n = count_kept(s, all, n);
    }
    for (int i = 0; i < n; i++) {
        double score = (double)all[i].logit + s->temperature * sample_noise(seeds, place, all[i].id);
        if (score > most || (score == most && all[i].id < all[best].id)) best = i, most = score;
    }
    return all[best];
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
        int32_t seeds[2];
        if (!all) return fault_set(f, "out of memory");
        sample_seeds(s->seed, text, seeds);
        one = choose(s, l, greatest, seeds, place, all);
        free(all);
    }
    *out = (struct sampled){.id = one.id, .logprob = one.logit - log_sum(l, greatest)};
    return true;
}
