/* util_scale.c -- shares of large sets, and covering arrays. */
#include <stdlib.h>
#include <string.h>

#include "util_random.h"
#include "util_scale.h"

/* A full run takes one case in SLOWER, and ten times as many; a short one takes one in SHORT of these, and
 * `make test` a third of that. */
#if defined(__SANITIZE_THREAD__)
enum { SLOWER = 12, SHORT = 2 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 8, SHORT = 3 };
#else
enum { SLOWER = 1, SHORT = 4 };
#endif
enum { FULL = 10, REST = 24, COVERS = 2 };

bool scale_is_sanitized(void) { return SANITIZED; }

bool scale_is_full(void)
{
    const char *full = getenv("CODA_FULL");
    return full && !strcmp(full, "1");
}

/* How many times smaller than the tests say a run's shares of costly sets are: $CODA_SHARE, 1 without it. */
static uint64_t thinned(void)
{
    const char *share = getenv("CODA_SHARE");
    int n = share ? atoi(share) : 1;
    return n > 1 ? (uint64_t)n : 1;
}

bool scale_is_thinned(void) { return !scale_is_full() && thinned() > 1; }

int scaled(int n)
{
    int of = scale_is_thinned() ? 3 * SHORT : SHORT;
    int share = (scale_is_full() ? n * FULL : (n + of - 1) / of) / SLOWER;
    return share > 0 ? share : 1;
}

/* One in 2 or 3 is asked of sets of a few, too, of which some case is always to run. Where there are more, a
 * thinned run takes one in 3 or 5 of the others: these have no common factor, so that of a set of which both
 * are asked every case has a seed that takes it. */
static uint64_t one_in_a_few(int n, int i)
{
    static const uint64_t rarer[] = {1, 1, 3, 5};
    return scale_is_thinned() && i >= 2 * n ? rarer[n] : (uint64_t)n;
}

bool scale_takes_one_in(int n, int i)
{
    enum { FEW = 3 };
    uint64_t of = n > FEW ? (uint64_t)n * thinned() : one_in_a_few(n, i);
    return scale_is_full() || ((uint64_t)i + random_seed()) % of == 0;
}

bool scale_takes(int i, bool covers)
{
    struct random r = {random_seed() + (uint64_t)i};
    if (scale_is_full()) return true;
    random_next(&r);
    return random_below(&r, (covers ? COVERS : REST) * SLOWER * (int64_t)thinned()) == 0;
}

bool scale_kernels_are_kept(void)
{
    const char *folder = getenv("CODA_CACHE_DIR");
    return folder && *folder;
}

static bool have_pair(const struct cover_case *a, const struct cover_case *b, int factor)
{
    int next = (factor + 1) % COVER_FACTORS;
    return a->level[factor] == b->level[factor] && a->level[next] == b->level[next];
}

void cover(const struct cover_case *cases, int n, unsigned pairs, bool *covers)
{
    for (int i = 0; i < n; i++) {
        covers[i] = false;
        for (int f = 0; f < COVER_FACTORS && !covers[i]; f++) {
            bool is_new = pairs >> f & 1;
            for (int k = 0; k < i && is_new; k++) is_new = !have_pair(&cases[i], &cases[k], f);
            covers[i] = is_new;
        }
    }
}
