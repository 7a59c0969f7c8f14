/* emit_attention.h -- between the files that print attention kernels: emit_attention.c, what all of them
 * share, and one file for each kernel of ATTENTION_KERNELS. */
#ifndef EMIT_ATTENTION_H
#define EMIT_ATTENTION_H

#include "attention_kernel.h"
#include "emit.h"
#include "emit_text.h"

/* The text of one kernel in the making. */
struct attention_text {
    const char *what; /* it is, in its first line */
    const struct attention_spec *a;
    const struct schedule *s;
    struct kernel *k;
    struct text *t;
    int pointer[ATTENTION_USES]; /* of Args; -1: it has none */
    const struct prim *partial;  /* the derivative of the map of scores that the text calls, too; or NULL */
    int sms;                     /* of the target */
    int parts; /* the pointer to what blocks leave for each other, and 1; 0: there is none */
};

/* emit_attention_NAME.c: all of a kernel's text, of a program that has queries. */
#define X(NAME, name) void emit_attention_##name(struct attention_text *e);
ATTENTION_KERNELS(X)
#undef X

/* ---- emit_attention_parts.c, in the order of a text ---- */

/* Tensor maps of the queries, of keys or values: a copy brings a tile of rows. */
void emit_attention_map(struct attention_text *e, int use, int64_t heads, int64_t time, int64_t batch,
                        int rows);
void emit_attention_keys_map(struct attention_text *e, int use);
/* Pointers to the use; to the result, and what is read beside q, k and v. */
void emit_attention_pointer(struct attention_text *e, int use);
void emit_attention_pointers(struct attention_text *e);
/* Up to the first constant of Config, and those that all kernels have. `single`: the kernel takes a single
 * query of each sequence. */
void emit_attention_head(struct attention_text *e, const char *header);
void emit_attention_semantics(struct attention_text *e, bool single);
/* A function of Config: a map of scores with its constants, whose operands are these, as many as it has. */
extern const char *const attention_score_operand[PRIM_MAX_INPUTS];
void emit_attention_score(const struct attention_spec *a, const char *name, const struct prim *map,
                          const char *const *given, struct text *t);
/* Args: AttentionStrides; AttentionBias; AttentionExtents. `walks`: a persistent kernel walks bands of
 * tiles. */
void emit_attention_strides(struct attention_text *e, const char *name, const struct tensor_use *v);
void emit_attention_bias(struct attention_text *e, const char *name, const struct tensor_use *v);
/* Query heads of a band of the walk. */
int64_t emit_attention_band(const struct attention_text *e);
/* Tiles of a head that are whole; tiles of 64 queries have the rest. */
int64_t emit_attention_whole(const struct attention_text *e);
void emit_attention_extents(struct attention_text *e, bool walks);
/* Arguments of Kernel::run: the pointer to the result; AttentionInputs. */
void emit_attention_result(struct attention_text *e);
void emit_attention_beside(struct attention_text *e);
/* The maps of q, k and v with all pointers; and the rest of a text behind such a Config. */
void emit_attention_maps(struct attention_text *e);
void emit_attention_entry(struct attention_text *e, const char *kernel, bool walks);

#endif
