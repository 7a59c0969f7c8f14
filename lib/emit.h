/* emit.h -- a program becomes a kernel: emit_program for all others, and what the emitters share. */
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

/* emit_epilogue.c: prints `struct Epilogue`, the steps of a GEMM. */
void emit_epilogue(const struct program *p, struct text *t);

/* ---- emit.c ---- */

bool emit_begin(struct plan *plan, struct program *p); /* a kernel without anything                */
coda_status emit_fits(const struct program *p);        /* its parameters: 4 kB                     */

typedef long long wide; /* for %lld */

/* A few words of a line. */
struct word {
    char s[192];
};
struct word emit_word(const char *format, ...) PRINTF(1, 2);

void emit_symbol(struct plan *plan, struct program *p, const char *prefix);
int emit_pointer(struct program *p, int buffer, int64_t bytes); /* its index in kernel.pointer     */
const char *emit_dtype(coda_dtype t);                           /* "bf16", "f16", "f32", "i32"     */
void emit_includes(const struct program *p, struct text *t);    /* of the primitives it uses       */
/* What goes before a map's name in a kernel: a user may call a map what C++ calls something else. */
const char *emit_map_prefix(const struct prim *q);

#endif
