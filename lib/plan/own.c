/* own.c -- the kinds of programs that are one operation each. */
#include "own.h"

/* ORDER own */
static const struct own_kind *const own_kinds[OWN_KINDS] = {
#define X(NAME, name) &plan_##name,
    OWN_KERNELS(X)
#undef X
};

const struct own_kind *own_kind_of(enum op op)
{
    for (int i = 0; i < OWN_KINDS; i++)
        if (own_kinds[i]->op == op) return own_kinds[i];
    return NULL;
}
