/* util_gemm_cover.c -- which GEMM cases a run takes: all, or a covering array and a few more. */
#include "util_gemm.h"
#include "util_scale.h"

enum { MOST_CASES = 1024 };

static uint64_t epilogue(const struct gemm_case *c)
{
    return (uint64_t)(uintptr_t)c->epilogue << 4 | (uint64_t)c->pair << 1 | c->rope.half;
}

static uint64_t layout(const struct gemm_case *c)
{
    bool odd = (c->pitch | c->n | c->k) % 8 != 0;
    return (uint64_t)(c->dtype == CODA_F16) | (uint64_t)c->a_mn << 1 | (uint64_t)c->b_mn << 2 |
           (uint64_t)odd << 3 | (uint64_t)(c->batch > 1) << 4;
}

/* Which parts of the main loop a tile uses; not how large it is. */
static uint64_t main_loop(const struct tile *t)
{
    const bool part[] = {t->bm == 0,       t->pingpong,      t->splits > 1,  t->scattered,
                         t->cluster_m > 1, t->cluster_n > 1, t->tail > 0,    t->lends,
                         t->across,        t->serpentine,    t->bn % 64 != 0};
    uint64_t parts = (uint64_t)(uintptr_t)t->mainloop << 8 | (uint64_t)t->groups;
    for (int i = 0; i < ARRAY_SIZE(part); i++) parts = parts << 1 | part[i];
    return parts;
}

/* Elements of a copy that all pitches allow. */
static uint64_t width(const struct gemm_case *c)
{
    int64_t pitches = 8 | ((c->a_mn ? c->m : c->k) + c->pitch) | ((c->b_mn ? c->n : c->k) + c->pitch);
    return (uint64_t)(pitches & -pitches) << 2 | (uint64_t)c->a_mn << 1 | (uint64_t)c->b_mn;
}

/* On other GPUs every epilogue meets every layout, and on mma.sync every width of copies some of them; on
 * Hopper, every layout meets every main loop. The table has nearly every epilogue in every main loop: these
 * pairs are for the full run. */
static void cover_table(enum gemm_loop loop, bool *covers)
{
    static struct cover_case levels[MOST_CASES];
    for (int i = 0; i < gemm_case_count; i++) {
        const struct gemm_case *c = &gemm_cases[i];
        levels[i] = (struct cover_case){{epilogue(c), layout(c), 0}};
        if (loop == GEMM_HOPPER) levels[i].level[2] = main_loop(&c->tile);
        if (loop == GEMM_MMA || loop == GEMM_FMA) levels[i].level[2] = width(c);
    }
    cover(levels, gemm_case_count, loop == GEMM_HOPPER ? 2 : loop == GEMM_SIMT ? 1 : 3, covers);
}

bool gemm_case_taken(int i, enum gemm_loop loop)
{
    static bool covers[GEMM_LOOPS][MOST_CASES], ready[GEMM_LOOPS];
    if (loop == GEMM_MMA && !dtype_is_half(gemm_cases[i].dtype)) return false;
    if (gemm_case_count > MOST_CASES) return true;
    if (!ready[loop]) cover_table(loop, covers[loop]);
    ready[loop] = true;
    return scale_takes(i, covers[loop][i]);
}
