/* emit.c -- a program becomes a kernel, by the emitter of its kind or as an equal program before it. */
#include "emit.h"

#include "emit_gemm.h"
#include "emit_text.h"

static int place_of(const int *list, int n, int value)
{
    int i = 0;
    while (i < n - 1 && list[i] != value) i++;
    return i;
}

static coda_status emit_kind(struct plan *plan, const struct program *p, const struct schedule *s,
                             struct kernel *k)
{
    static coda_status (*const own[])(struct plan *, const struct program *, const struct schedule *,
                                      struct kernel *) = {
#define X(NAME, name) emit_##name,
        OWN_KERNELS(X)
#undef X
    };
    switch (p->kind) {
    case PROGRAM_GEMM: return emit_gemm(plan, p, s, k);
    case PROGRAM_ROWS: return emit_rows(plan, p, s, k);
    case PROGRAM_OWN: return own[p->own->index](plan, p, s, k);
    }
    return fail(CODA_E_INVALID, "program kind %d has no emitter", (int)p->kind);
}

coda_status emit_program(struct plan *plan, const struct program *p, const struct schedule *s,
                         struct kernel *k, const struct wording *words)
{
    if (!emit_begin(plan, p, s, k)) return fail(CODA_E_MEMORY, "out of memory for a kernel");
    if (words) k->symbol = words->symbol, k->text = words->text;
    coda_status status = emit_kind(plan, p, s, k);
    return status ? status : emit_fits(k);
}

bool emit_like(struct plan *plan, struct kernel *k, const struct kernel *from, const int *theirs,
               const struct identity *own)
{
    struct map_spec *map = ARENA_NEW(&plan->arena, struct map_spec, from->maps);
    struct pointer_spec *pointer = ARENA_NEW(&plan->arena, struct pointer_spec, from->pointers);
    struct scalar_spec *scalar = ARENA_NEW(&plan->arena, struct scalar_spec, from->scalars + 1);
    if (!map || !pointer || !scalar) return false;
    *k = *from;
    k->scalar = scalar;
    for (int i = 0; i < from->scalars; i++) {
        scalar[i] = from->scalar[i];
        if (scalar[i].buffer == SCALAR_NUMBER) continue;
        scalar[i].buffer = own->buffer[place_of(theirs, own->buffers, scalar[i].buffer)];
    }
    k->map = map;
    k->pointer = pointer;
    for (int i = 0; i < from->maps; i++) {
        map[i] = from->map[i];
        map[i].buffer = own->buffer[place_of(theirs, own->buffers, map[i].buffer)];
    }
    for (int i = 0; i < from->pointers; i++) {
        pointer[i] = from->pointer[i];
        pointer[i].buffer = own->buffer[place_of(theirs, own->buffers, pointer[i].buffer)];
    }
    return true;
}

int64_t kernel_blocks(const struct launch_spec *l, int sms)
{
    int cluster = MAX(l->cluster, 1), most = MAX(sms / cluster, 1) * cluster;
    return l->persistent ? MIN(l->grid, most) : l->grid;
}
