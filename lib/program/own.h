/*
 * own.h -- operations that have a kernel of their own: one program each, without steps. A kind is a line of
 * OWN_KERNELS, the struct of what it computes, and a file in each room: program has its own_kind (own_NAME),
 * fuse makes it of nodes (fuse_NAME), schedule has its launch (schedule_NAME), emit its text (emit_NAME), cpu
 * its reference (cpu_NAME). Tables that expand OWN_KERNELS find them, and nobody else asks which kind a
 * program is.
 */
#ifndef OWN_H
#define OWN_H

#include "program.h"

#define OWN_KERNELS(X)                                                                                       \
    X(ATTENTION, attention)                                                                                  \
    X(ATTENTION_GRAD, attention_grad)                                                                        \
    X(ATTENTION_DELTA, attention_delta)                                                                      \
    X(TOP_K, top_k)                                                                                          \
    X(NUCLEUS, nucleus)                                                                                      \
    X(ROW_SUMS, row_sums)                                                                                    \
    X(SORT_IDS, sort_ids)                                                                                    \
    X(CONV1D, conv1d)                                                                                        \
    X(SCAN, scan)                                                                                            \
    X(EXCHANGE, exchange)                                                                                    \
    X(DELTA, delta)                                                                                          \
    X(DELTA_PREPARE, delta_prepare)

enum own {
#define X(NAME, name) OWN_##NAME,
    OWN_KERNELS(X)
#undef X
        OWN_KINDS
};

enum { OWN_EXTRA = 4 };

/* What is known of the programs of a kind. `spec` is its struct, of NAME.h, that program.spec points to. It
 * begins with an array `use`: the operands that have names, then the results, in the order of ops.def. */
struct own_kind {
    enum own index;
    enum op op;      /* whose nodes become such programs, ... */
    enum op like[2]; /* ... and those of operations with the same operands and results */
    int likes;
    const char *name;                   /* in a plan's picture */
    size_t size;                        /* of the struct */
    int shown;                          /* uses that a plan's text shows, the first that there are, ... */
    const char *const *use_name;        /* ... by these names, one for each use; NULL: it does not; ... */
    const char *extra_name[OWN_EXTRA];  /* the same of the extra uses */
    const char *stride_name[3];         /* ... and their strides by these; without, as steps do */
    int64_t (*bytes)(const void *spec); /* as program_bytes */
    double (*flops)(const void *spec);  /* as program_flops; NULL: none */
    bool (*by_data)(const void *spec);  /* is it data how much of that there is to do? NULL: no */
    /* What kernels read or write beyond the operands, such as weights of what is multiplied on the way; NULL:
     * not this one, of OWN_EXTRA. */
    struct tensor_use *(*extra)(void *spec, int i);
    const struct prim *(*map)(const void *spec);     /* the map that it points to; NULL: it never does */
    void (*print)(const void *spec, struct text *t); /* the head of its text */
};

#define X(NAME, name) extern const struct own_kind own_##name;
OWN_KERNELS(X)
#undef X

/* Use i of those that there are: operands that a node must have, results, the others, the extra ones; NULL:
 * no more. */
struct tensor_use *own_use(const struct own_kind *own, void *spec, int i);

#endif
