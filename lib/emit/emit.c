/* emit.c -- a program becomes a kernel, by the emitter of its kind or as an equal program before it. */
#include "emit.h"

static int place_of(const int *list, int n, int value)
{
    int i = 0;
    while (i < n - 1 && list[i] != value) i++;
    return i;
}

coda_status emit_program(struct plan *plan, struct program *p, const struct machine *m)
{
    switch (p->kind) {
    case PROGRAM_GEMM: return emit_gemm(plan, p, m);
    case PROGRAM_ROWS: return emit_rows(plan, p, m);
    case PROGRAM_ATTENTION: return emit_attention(plan, p, m);
    }
    return fail(CODA_E_INVALID, "program kind %d has no emitter", (int)p->kind);
}

bool emit_like(struct plan *plan, struct program *p, const struct program *from, const int *theirs,
               const struct identity *own)
{
    struct map_spec *map = ARENA_NEW(&plan->arena, struct map_spec, from->kernel.maps);
    struct pointer_spec *pointer = ARENA_NEW(&plan->arena, struct pointer_spec, from->kernel.pointers);
    if (!map || !pointer) return false;
    p->kernel = from->kernel;
    p->kernel.map = map;
    p->kernel.pointer = pointer;
    for (int i = 0; i < from->kernel.maps; i++) {
        map[i] = from->kernel.map[i];
        map[i].buffer = own->buffer[place_of(theirs, own->buffers, map[i].buffer)];
    }
    for (int i = 0; i < from->kernel.pointers; i++) {
        pointer[i] = from->kernel.pointer[i];
        pointer[i].buffer = own->buffer[place_of(theirs, own->buffers, pointer[i].buffer)];
    }
    return true;
}

int64_t kernel_blocks(const struct kernel_spec *k, int sms)
{
    int cluster = MAX(k->cluster, 1), most = MAX(sms / cluster, 1) * cluster;
    return k->persistent ? MIN(k->grid, most) : k->grid;
}
