/* infer_recurrent.h -- what the operations that carry a state along a sequence have in common. */
#ifndef INFER_RECURRENT_H
#define INFER_RECURRENT_H

#include "infer.h"

struct tokens {
    int64_t sequences; /* an extent */
    bool batched;      /* have their states a dimension for them? */
};

/* The tokens of an operand [B, T, columns] or [T, columns], or packed by starts. */
coda_status find_tokens(const graph *g, const struct node *n, int operand, int starts, struct tokens *out);

#endif
