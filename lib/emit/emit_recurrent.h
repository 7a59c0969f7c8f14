/* emit_recurrent.h -- what the kernels of operations that carry a state along a sequence have in common:
 * their arguments, a call of NAME<Config>::run with the struct Tensors that NAME has, and their text. */
#ifndef EMIT_RECURRENT_H
#define EMIT_RECURRENT_H

#include "emit.h"
#include "emit_text.h"

/* A type of Config: the dtype of a use, or float where it is absent. */
struct recurrent_type {
    int use;
    const char *name;
};
void emit_recurrent_types(const struct tensor_use *use, const struct recurrent_type *types, int n,
                          struct text *t);

/* The call's pointers, one for each use, those below `results` const; args get what they point to. */
void emit_recurrent_tensors(struct kernel *k, const struct tensor_use *use, int uses, int results,
                            struct text *args, struct text *call);
/* The first n strides of a use, as RowStrides or StateStrides of_NAME. */
void emit_recurrent_strides(struct kernel *k, const struct tensor_use *u, const char *name, int n,
                            struct text *args, struct text *call);

/* Includes and Args; Config follows. */
void emit_recurrent_begin(struct text *t, const char *file, const struct text *args);
/* Who `waits` by itself is not made to. */
void emit_recurrent_body(struct kernel *k, const struct schedule *s, const char *name, bool declares,
                         bool waits, const struct text *call, struct text *t);
/* The text is the kernel's, and all are freed. */
coda_status emit_recurrent_finish(struct plan *plan, struct kernel *k, const char *what, struct text *t,
                                  struct text *args, struct text *call);

#endif
