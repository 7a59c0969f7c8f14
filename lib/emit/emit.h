/* emit.h -- a program becomes a kernel: emit_program, and the emitter of each kind. */
#ifndef EMIT_H
#define EMIT_H

#include "plan.h"

/* Fills p->kernel. */
coda_status emit_program(struct plan *plan, struct program *p, const struct machine *m);
/* The same from the kernel of an equal program, which names the buffers `theirs` in the order of `own`. */
bool emit_like(struct plan *plan, struct program *p, const struct program *from, const int *theirs,
               const struct identity *own);
/* Blocks to launch where there are so many SMs. */
int64_t kernel_blocks(const struct kernel_spec *k, int sms);

/* emit_gemm.c, emit_rows.c, emit_attention.c: fill p->kernel. */
coda_status emit_gemm(struct plan *plan, struct program *p, const struct machine *m);
coda_status emit_rows(struct plan *plan, struct program *p, const struct machine *m);
coda_status emit_attention(struct plan *plan, struct program *p, const struct machine *m);

#endif
