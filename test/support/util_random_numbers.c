/* util_random_numbers.c -- random numbers by splitmix64, and the seed of a run. */
#include "util_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STEP 0x9e3779b97f4a7c15u

static uint64_t mixed(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t random_next(struct random *r) { return mixed(r->state += STEP); }

int64_t random_below(struct random *r, int64_t n)
{
    return n <= 0 ? 0 : (int64_t)(random_next(r) % (uint64_t)n);
}

bool random_chance(struct random *r, int percent) { return random_below(r, 100) < percent; }

double random_normal(struct random *r)
{
    enum { BITS = 21, PART = (1 << BITS) - 1 };
    int64_t sum = 6; /* twelve halves of what a part is a multiple of */
    for (unsigned i = 0; i < 4; i++) {
        uint64_t z = mixed(r->state + (i + 1) * STEP);
        sum += (int64_t)((z & PART) + (z >> BITS & PART) + (z >> 2 * BITS & PART));
    }
    r->state += 12 * STEP;
    return (double)sum / (1 << BITS) - 6;
}

uint64_t random_seed(void)
{
    static uint64_t seed;
    const char *set = getenv("CODA_SEED");
    if (seed) return seed;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct random r = {(uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec};
    seed = set ? strtoull(set, NULL, 0) : random_next(&r) >> 32;
    fprintf(stderr, "CODA_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}
