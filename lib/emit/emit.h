/* emit.h -- a program and its schedule become a kernel: emit_program, and the emitter of each kind. */
#ifndef EMIT_H
#define EMIT_H

#include "kernel.h"
#include "schedule.h"

#include <string.h>

/* Fills *k, in the plan's arena. The schedule is complete. `words`: those of another program with an equal
 * key, or equal traits, which then are this one's, and nothing is printed; or NULL. */
coda_status emit_program(struct plan *plan, const struct program *p, const struct schedule *s,
                         struct kernel *k, const struct wording *words);
/* All that the text depends on, of a program whose launches pass what follows from its number of rows; false:
 * there is no memory, or the text may say more of it. */
bool emit_key(struct identity *out, struct arena *a, const struct plan *plan, const struct program *p,
              const struct schedule *s);
/* All that the text of a product depends on, among the products that have its number in plans of one
 * template, and those that equal it in each of these plans. false: it may depend on more, as the text of
 * any other program does. Wants the schedule's tile, and no more of it. */
bool emit_traits(struct identity *out, struct arena *a, const struct program *p, const struct schedule *s);
/* The same from the kernel of an equal program, which names the buffers `theirs` in the order of `own`. */
bool emit_like(struct plan *plan, struct kernel *k, const struct kernel *from, const int *theirs,
               const struct identity *own);

/* emit_gemm.c, emit_rows.c, emit_NAME.c of an own_kind: the same for one kind. */
coda_status emit_gemm(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k);
coda_status emit_rows(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k);
#define X(NAME, name)                                                                                        \
    coda_status emit_##name(struct plan *plan, const struct program *p, const struct schedule *s,            \
                            struct kernel *k);
OWN_KERNELS(X)
#undef X

#endif
