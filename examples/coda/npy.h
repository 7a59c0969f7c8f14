/*
 * npy.h -- NumPy's .npy files. A failure is one line of text, a success NULL.
 */
#ifndef NPY_H
#define NPY_H

#include "coda.h"

struct npy {
    int rank;
    int64_t dim[CODA_MAX_RANK], elements;
    char kind; /* 'f' or 'i' */
    int size;  /* bytes of an element */
    int fd;
    int64_t at; /* where the elements begin in the file */
    unsigned char *data;
};
/* What the header says; then the elements, once it is known that they are wanted. */
const char *npy_open(struct npy *n, const char *path);
const char *npy_load(struct npy *n);
double npy_get(const struct npy *n, int64_t i);
void npy_free(struct npy *n);
/* Dense float32, or the integers of a tensor of integers. */
const char *npy_write(const char *path, const coda_arg_info *a, const void *host);

#endif
