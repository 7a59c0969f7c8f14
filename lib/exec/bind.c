/*
 * bind.c -- the pointers of one call: there, aligned, and free of overlap.
 *
 * What a call writes -- outputs, workspace, prepared memory, weights that are folded in place -- may share
 * no byte with anything else. Bounding boxes are compared first: with a few that are written, one by one;
 * more are sorted, and each argument looks its box up among them. Only where two boxes meet are the tensors
 * compared, exactly.
 */
#include "bind.h"

#include <stdio.h>

enum {
    MOST_BOXES = 256,    /* sorted at a time, on the stack */
    MOST_WORK = 1 << 16, /* steps that one call may spend on tensors whose boxes meet: some ms */
    ARG_ALIGN = 16,      /* of device memory: kernels load vectors */
    MEMORY_ALIGN = 256
};

struct place place_of(const char *name, coda_arg_kind kind, coda_dtype t, int rank, const int64_t *dim,
                      const int64_t *stride, bool host)
{
    bool handle = kind == CODA_ARG_GROUP; /* no memory that a call could write to */
    return (struct place){.name = name,
                          .kind = kind,
                          .at = handle ? lattice_bytes(0) : lattice_strided(t, rank, dim, stride),
                          .align = host || kind == CODA_ARG_SCALAR ? (uint16_t)dtype_bytes(t, 1) : ARG_ALIGN};
}

/* ---- All that is bound: the arguments, then workspace and prepared memory ---- */

struct bound {
    uintptr_t first;
    int64_t bytes;
    bool written;
};

static struct bound bound(const struct arguments *b, int i)
{
    if (i == b->places) return (struct bound){(uintptr_t)b->workspace, b->workspace_bytes, true};
    if (i > b->places) return (struct bound){(uintptr_t)b->prepared, b->prepared_bytes, true};
    const struct place *p = &b->place[i];
    bool written = place_is_written(p) || (b->prepare && p->holds);
    return (struct bound){(uintptr_t)b->args[i], place_is_idle(b, p) ? 0 : p->at.bytes, written};
}

static struct lattice lattice_at(const struct arguments *b, int i)
{
    return i < b->places ? b->place[i].at : lattice_bytes(bound(b, i).bytes);
}

/* ---- One by one ---- */

static coda_status check_arg(const struct arguments *b, int i)
{
    const struct place *p = &b->place[i];
    uintptr_t at = (uintptr_t)b->args[i], end;
    if (!p->at.bytes || place_is_idle(b, p)) return CODA_OK;
    if (!at)
        return fail(CODA_E_INVALID, "%s: args[%d] (%s, %lld bytes) is NULL", b->call, i, p->name,
                    (long long)p->at.bytes);
    if (at % (uintptr_t)p->align)
        return fail(CODA_E_INVALID, "%s: args[%d] (%s) is at %p, not a multiple of %d", b->call, i, p->name,
                    b->args[i], p->align);
    if (__builtin_add_overflow(at, (uintptr_t)p->at.bytes, &end))
        return fail(CODA_E_INVALID, "%s: args[%d] (%s) is at %p, and %lld bytes from there is no address",
                    b->call, i, p->name, b->args[i], (long long)p->at.bytes);
    return CODA_OK;
}

static coda_status check_memory(const struct arguments *b, const char *what, void *at, int64_t bytes)
{
    uintptr_t end;
    if (!bytes) return CODA_OK;
    if (!at)
        return fail(CODA_E_INVALID, "%s: %s is NULL; %lld bytes aligned to %d are needed", b->call, what,
                    (long long)bytes, MEMORY_ALIGN);
    if ((uintptr_t)at % MEMORY_ALIGN || __builtin_add_overflow((uintptr_t)at, (uintptr_t)bytes, &end))
        return fail(CODA_E_INVALID, "%s: %s is at %p; %lld bytes aligned to %d are needed", b->call, what, at,
                    (long long)bytes, MEMORY_ALIGN);
    return CODA_OK;
}

/* ---- At a glance ---- */

enum { MOST_SPANS = 6 }; /* as many are compared with each argument, without sorting */

struct span {
    uintptr_t first, end;
};

/* There, aligned, and no address wraps around. */
static inline bool is_sound(struct span s, int align)
{
    return s.first && s.end >= s.first && !(s.first & (uintptr_t)(align - 1));
}

static inline bool are_apart(const struct span *span, int n, struct span s)
{
    for (int i = 0; i < n; i++)
        if (s.first < span[i].end && span[i].first < s.end) return false;
    return true;
}

static inline bool add_span(struct span *span, int *n, const void *at, int64_t bytes, int align)
{
    struct span s = {(uintptr_t)at, (uintptr_t)at + (uintptr_t)bytes};
    if (!bytes) return true;
    if (!is_sound(s, align) || !are_apart(span, *n, s)) return false;
    span[(*n)++] = s;
    return true;
}

/* Is all as in most calls: there, aligned, and what is written, a few spans, apart from all else? In one walk
 * over the arguments, for a launch is short. False says only that the checks below have to find out. */
static bool is_plainly_good(const struct arguments *b)
{
    struct span span[MOST_SPANS];
    int n = 0, leaves = b->places;
    if (!b->args || b->prepare) return false;
    if (!add_span(span, &n, b->workspace, b->workspace_bytes, MEMORY_ALIGN)) return false;
    if (!add_span(span, &n, b->prepared, b->prepared_bytes, MEMORY_ALIGN)) return false;
    for (const struct place *p; leaves && place_is_written(p = &b->place[leaves - 1]);)
        if (n == MOST_SPANS || !add_span(span, &n, b->args[--leaves], p->at.bytes, p->align)) return false;
    for (int i = 0; b->states && i < leaves; i++) {
        const struct place *p = &b->place[i];
        if (!place_is_written(p)) continue;
        if (n == MOST_SPANS || !add_span(span, &n, b->args[i], p->at.bytes, p->align)) return false;
    }
    for (int i = 0; i < leaves; i++) {
        const struct place *p = &b->place[i];
        if (place_is_written(p) || place_is_idle(b, p)) continue;
        struct span s = {(uintptr_t)b->args[i], (uintptr_t)b->args[i] + (uintptr_t)p->at.bytes};
        if (p->at.bytes && (!is_sound(s, p->align) || !are_apart(span, n, s))) return false;
    }
    return true;
}

/* ---- Against each other ---- */

struct box {
    uintptr_t first, end;
    uintptr_t reach; /* the largest end up to here */
    int index;
};

static void sort_boxes(struct box *box, int n)
{
    static const int gaps[] = {57, 23, 10, 4, 1};
    for (int g = n > 8 ? 0 : ARRAY_SIZE(gaps) - 1; g < ARRAY_SIZE(gaps); g++)
        for (int i = gaps[g], j; i < n; i++) {
            struct box b = box[i];
            for (j = i; j >= gaps[g] && box[j - gaps[g]].first > b.first; j -= gaps[g])
                box[j] = box[j - gaps[g]];
            box[j] = b;
        }
    for (int i = 0; i < n; i++) box[i].reach = MAX(box[i].end, i ? box[i - 1].reach : 0);
}

/* The next boxes of what is written, from *next on. */
static int collect(const struct arguments *b, int *next, struct box *box)
{
    int n = 0;
    for (; *next < b->places + 2 && n < MOST_BOXES; ++*next) {
        struct bound w = bound(b, *next);
        if (w.written && w.bytes) box[n++] = (struct box){w.first, w.first + (uintptr_t)w.bytes, 0, *next};
    }
    sort_boxes(box, n);
    return n;
}

/* "output y (512 bytes at 0x7f...)" */
static void describe(const struct arguments *b, int i, char *out, size_t size)
{
    static const char *const kind[] = {"input ", "weight ", "output ", "scalar ",
                                       "sum ",   "state ",  "input ",  "group "}; /* ORDER coda_arg_kind */
    const char *what = i == b->places ? "workspace" : "prepared memory";
    if (i < b->places) what = kind[b->place[i].kind];
    struct bound w = bound(b, i);
    snprintf(out, size, "%s%s (%lld bytes at %p)", what, i < b->places ? b->place[i].name : "",
             (long long)w.bytes, (void *)w.first);
}

static coda_status refuse(const struct arguments *b, int written, int other, enum meeting m)
{
    char w[320], o[320];
    describe(b, written, w, sizeof w);
    describe(b, other, o, sizeof o);
    if (m == MEET) return fail(CODA_E_INVALID, "%s: %s overlaps %s", b->call, w, o);
    return fail(CODA_E_INVALID, "%s: %s may overlap %s: their strides interleave in too many ways to tell",
                b->call, w, o);
}

static enum meeting meet(const struct arguments *b, int written, int other, int *work)
{
    struct lattice w = lattice_at(b, written), o = lattice_at(b, other);
    return lattices_meet(&w, &o, (int64_t)(bound(b, other).first - bound(b, written).first), work);
}

/* Does argument i meet one of the boxes? Two that are written are compared once. */
static coda_status look_up(const struct arguments *b, const struct box *box, int n, int i, int *work)
{
    struct bound a = bound(b, i);
    uintptr_t end = a.first + (uintptr_t)a.bytes;
    int low = 0, high = n; /* boxes below `low` begin before the end of a */
    if (!a.bytes) return CODA_OK;
    while (low < high) {
        int middle = (low + high) / 2;
        if (box[middle].first < end) low = middle + 1;
        else high = middle;
    }
    while (low-- > 0 && box[low].reach > a.first) {
        int j = box[low].index;
        if (box[low].end <= a.first || j == i || (a.written && i < j)) continue;
        enum meeting m = meet(b, j, i, work);
        if (m != APART) return refuse(b, j, i, m);
    }
    return CODA_OK;
}

static coda_status check_overlaps(const struct arguments *b)
{
    struct box box[MOST_BOXES];
    int work = MOST_WORK;
    for (int next = 0; next < b->places + 2;) {
        int n = collect(b, &next, box);
        for (int i = 0; i < b->places + 2 && n; i++) {
            coda_status status = look_up(b, box, n, i, &work);
            if (status) return status;
        }
    }
    return CODA_OK;
}

coda_status arguments_check(const struct arguments *b)
{
    coda_status status = CODA_OK;
    if (is_plainly_good(b)) return CODA_OK;
    if (!b->args && b->places)
        return fail(CODA_E_INVALID, "%s: args is NULL; %d pointers are needed", b->call, b->places);
    for (int i = 0; i < b->places && !status; i++) status = check_arg(b, i);
    if (!status) status = check_memory(b, "workspace", b->workspace, b->workspace_bytes);
    if (!status) status = check_memory(b, "prepared memory", b->prepared, b->prepared_bytes);
    return status ? status : check_overlaps(b);
}
