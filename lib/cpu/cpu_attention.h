/* cpu_attention.h -- between the files of attention and of its gradients. */
#ifndef CPU_ATTENTION_H
#define CPU_ATTENTION_H

#include "attention.h"
#include "cpu.h"

enum { BLOCK_QUERIES = 32 };

/* Up to BLOCK_QUERIES queries of a sequence, from `first` on. Its query 0 is row `row` of its batch. */
struct piece {
    int64_t batch; /* -1: rows of no sequence */
    int64_t row, queries, first;
};

struct key_range {
    int64_t first, end;
};

/* All pieces, of one sequence after the other; NULL: no memory. */
struct piece *attention_cut(const struct cpu *c, const struct attention_spec *s, int64_t *pieces);
int64_t attention_length(const struct cpu *c, const struct attention_spec *s, int64_t batch);
/* The keys that query i of the sequence sees; that some query of first .. end - 1 sees. */
struct key_range attention_visible(const struct cpu *c, const struct attention_spec *s, const struct piece *p,
                                   int64_t i);
struct key_range attention_some(const struct cpu *c, const struct attention_spec *s, const struct piece *p,
                                int64_t end);
/* What one head has of a tensor of all; `none` if it is absent. */
float attention_of_head(const struct cpu *c, const struct tensor_use *u, int64_t head, float none);

#endif
