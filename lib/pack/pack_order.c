/* pack_order.c -- act-order: columns of a file sorted by their groups. */
#include "pack.h"

#include <stdlib.h>

static coda_status count(const coda_pack_source *s, int64_t group, int32_t *columns, int64_t groups)
{
    for (int64_t k = 0; k < s->columns; k++) {
        if (s->g_idx[k] < 0 || s->g_idx[k] >= groups)
            return fail(CODA_E_INVALID, "pack: g_idx[%lld] is %d; must be 0..%lld", (long long)k, s->g_idx[k],
                        (long long)groups - 1);
        columns[s->g_idx[k]]++;
    }
    for (int64_t g = 0; g < groups; g++) {
        int64_t want = MIN(group, s->columns - g * group);
        if (columns[g] != want)
            return fail(CODA_E_INVALID, "pack: g_idx gives group %lld %d columns; must be %lld", (long long)g,
                        columns[g], (long long)want);
    }
    return CODA_OK;
}

/* Each group's columns in order; whether that is the order of all. `next`: where each group's next goes. */
static int sort(const coda_pack_source *s, int64_t group, int32_t *next, int64_t groups, int32_t *order)
{
    int moved = 0;
    for (int64_t g = 0; g < groups; g++) next[g] = (int32_t)(g * group);
    for (int64_t k = 0; k < s->columns; k++) {
        int32_t at = next[s->g_idx[k]]++;
        order[at] = (int32_t)k;
        moved |= at != k;
    }
    return moved;
}

static bool has_none(const coda_pack_source *s)
{
    for (int64_t k = 0; s->g_idx && k < s->columns; k++)
        if (s->g_idx[k] != -1) return false;
    return true;
}

int pack_order(const struct pack_format *f, const coda_pack_source *s, int32_t *order)
{
    if (s->columns < 1 || s->columns > INT32_MAX)
        return fail(CODA_E_INVALID, "pack: the source has %lld columns; must be 1..2^31 - 1",
                    (long long)s->columns);
    for (int64_t k = 0; k < s->columns; k++) order[k] = (int32_t)k;
    if (has_none(s)) return 0;
    int64_t group = f->group ? f->group : s->columns, groups = s->columns / group + (s->columns % group > 0);
    int32_t *columns = calloc((size_t)groups, sizeof *columns);
    if (!columns) return fail(CODA_E_MEMORY, "pack: out of memory for %lld groups", (long long)groups);
    coda_status status = count(s, group, columns, groups);
    int moved = status == CODA_OK ? sort(s, group, columns, groups, order) : (int)status;
    free(columns);
    return moved;
}
