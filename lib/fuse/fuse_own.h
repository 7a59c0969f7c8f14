/* fuse_own.h -- how fusion makes the programs of operations that have a kernel of their own: own.h. */
#ifndef FUSE_OWN_H
#define FUSE_OWN_H

#include "own.h"
#include "writer.h"

struct own_fusion {
    const struct own_kind *kind;
    void (*join)(struct grouper *gr, struct group *q); /* looks for a program that does a part of the work;
                                                          NULL: none can */
    void (*read)(struct writer *w);                    /* completes the spec of the root node, whose operands
                                                          are there by the strides of their views */
    /* Strides of a result of type t; among `parts` they are there, as those of its elements. */
    void (*place)(const void *spec, const struct type *t, int result, struct tensor_use *to);
    int parts;       /* so many of the first results may be stored where rows of adjacent columns lie apart */
    unsigned states; /* results, by their bits, that states become: dense; an element is written by the thread
                        that has read it among those of the operand `state`, which nobody else reads */
    int state;
    /* The last of the members that join() found behind the first result, which is stored in its place; -1:
     * there are none. NULL: nothing joins so. */
    int (*last)(const struct grouper *gr, const struct group *q, int value);
    bool maps; /* the first result may pass through a map on its way to memory, a member that read() finds */
};

#define X(NAME, name) extern const struct own_fusion fuse_##name;
OWN_KERNELS(X)
#undef X

/* The kind of an operation's programs, the first one of own.h: it may make others of the same nodes. NULL:
 * the operation has no kernel of its own. */
const struct own_kind *own_kind_of(enum op op);
/* fuse_scan_steps.c: steps of one token which are a product of few terms are multiplied where they are
 * read. */
void fuse_scan_steps(struct grouper *gr);
/* fuse_delta_gates.c: decays and betas of a few tokens, maps of rows a and b, are computed where they are
 * read. */
void fuse_delta_gates(struct grouper *gr);
enum { MOST_GATE_NODES = 8 };
struct delta_gates {
    int a, b, bias, rate; /* rows, and vectors of heads */
    float factor;         /* of rate */
    int within[MOST_GATE_NODES], nodes;
};
/* The gates of a node of the rule, if they have that form. */
bool delta_gates_find(const struct grouper *gr, const struct node *rule, struct delta_gates *to);
/* fuse_delta_norm.c: y = o rsqrt_mean(sum_sq(o)) gain silu(z) by heads, of a few tokens. */
enum { MOST_NORM_NODES = 8 };
struct delta_norm {
    int y, z, gain;
    float inv_n, eps;
    int member[MOST_NORM_NODES], members; /* the last one is y */
};
void delta_norm_join(struct grouper *gr, struct group *q);
bool delta_norm_find(const struct grouper *gr, const struct node *rule, int o, struct delta_norm *to);
/* The product that is computed so for the operand dt; -1: none is. */
int scan_step_product(const struct grouper *gr, int dt);
/* Joins to q the other results of its root's call. */
void own_join(struct grouper *gr, struct group *q);
/* Makes the spec with its operands; and with its results, once all programs have said what they need. */
void own_read(struct writer *w);
void own_store(struct writer *w);

#endif
