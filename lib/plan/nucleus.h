/* nucleus.h -- a program that finds the least element of each row that top-k, top-p and min-p keep. */
#ifndef NUCLEUS_H
#define NUCLEUS_H

#include "graph.h"
#include "program.h"

struct nucleus_spec {
    struct tensor_use use[NUCLEUS_USES]; /* x: stride[0] from row to row, stride[1] from column to column;
                                            numbers of each row by stride[0]; least: dense */
    int64_t rows, columns;
};

#endif
