/* emit_attention_grad.h -- between the files that print kernels of attention's gradients. */
#ifndef EMIT_ATTENTION_GRAD_H
#define EMIT_ATTENTION_GRAD_H

#include "attention_grad_kernel.h"
#include "emit_attention.h"

/* A kernel's text in the making, of an attention whose gradients these are. */
struct grad_text {
    struct attention_text e;
    const struct attention_grad_spec *s;
    int pointer[ATTENTION_GRAD_USES]; /* of Args; -1: it has none */
};

/* ---- emit_attention_grad_parts.c ---- */

/* Adds the pointers to the uses. */
void emit_grad_pointers(struct grad_text *g);
/* A pointer to a use as an argument. */
void emit_grad_tensor(const struct grad_text *g, int use, struct text *t);
/* A constant of Config for each gradient: is it wanted? */
void emit_grad_results(const struct grad_text *g);

/* ---- emit_attention_grad_wgmma.c ---- */

/* All of the text of attention_grad_sm90.cuh. */
void emit_attention_grad_wgmma(struct grad_text *g);

#endif
