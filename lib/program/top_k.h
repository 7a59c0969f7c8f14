/* top_k.h -- a program that finds the k largest of each row. */
#ifndef TOP_K_H
#define TOP_K_H

#include "program.h"

/* Candidates of a row: its columns, or what tiles have left of them. */
int64_t top_k_candidates(const struct top_k_spec *s);

#endif
