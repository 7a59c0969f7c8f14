/* util_overlap.h -- graphs of two ranks in which exchanges can run beside products. */
#ifndef UTIL_OVERLAP_H
#define UTIL_OVERLAP_H

#include <stddef.h>

enum { OVERLAP_GRAPHS = 4, OVERLAP_TEXT = 8192 };

/* 0: a step of data parallel training by layers, whose gradients are added up at the end; 1: halves of
 * decoder layers whose weights are cut, their rows in pieces; 2, 3: as 0, gradients in fp32 or bf16 that
 * two ranks may share. The group is the first leaf. */
void overlap_graph(char *text, size_t size, int which);

#endif
