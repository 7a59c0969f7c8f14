/* top_k.h -- a program that finds the k largest of each row. */
#ifndef TOP_K_H
#define TOP_K_H

#include "graph.h"
#include "program.h"

struct top_k_spec {
    struct tensor_use use[TOP_K_USES]; /* x: LOAD over the program's domain, or PARTIAL_LOAD, each row's best
                                          of each tile of a product; results that are wanted: dense */
    int64_t rows, columns, k;
};

/* Candidates of a row: its columns, or what tiles have left of them. */
int64_t top_k_candidates(const struct top_k_spec *s);

#endif
