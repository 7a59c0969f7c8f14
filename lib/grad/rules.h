/*
 * rules.h -- what the rules of reverse mode share: a rule for each operation, and what it builds with.
 *
 * The cotangent of a value v is the gradient of the y's by v. Rules get that of a node's result and give
 * cotangents to its operands. A cotangent may be narrower than its value: its dimensions then broadcast to
 * the value's, as a row's number stands for each element of the row. Values that a builder makes are
 * indices; -1 is that the graph is poisoned, and every builder passes it on.
 */
#ifndef RULES_H
#define RULES_H

#include "grad.h"

struct addend {
    int value;
    struct addend *next; /* given after it */
};
struct addends {
    struct addend *first, *last;
};
/* A slice of a value, and its cotangent. */
struct cut {
    int node, value;
    struct cut *next;
};

struct grad {
    graph *g;
    struct arena arena;
    int nodes;               /* of the graph before: what is appended is not differentiated */
    bool *depends;           /* of each value: does it depend on an x, by floats alone? */
    coda_dtype *dtype;       /* of its cotangent */
    struct addends *addends; /* its cotangent's addends, ... */
    struct cut **cuts;       /* ... and those that slices of it got, which become one */
    int *sibling;            /* of a result of attention: the other one of its call, or -1 */
    int *late;               /* of the first of both: the cotangent of the other; -1 */
    const char *scope;       /* of the node at hand, and of the nodes that come of it */
};

/* Gives the cotangents of v's operands, of v's own. v is a node that depends on an x; dy may be -1 where
 * `late` has one. */
typedef void grad_rule(struct grad *w, int v, int dy);
#define OP(NAME, name, ...) grad_rule grad_##name;
#include "ops.def"

/* ---- cotangent.c ---- */

static inline const struct node *grad_node(const struct grad *w, int v) { return &w->g->node[v]; }
static inline const struct type *grad_type(const struct grad *w, int v) { return &w->g->node[v].type; }
/* Is a cotangent of operand i of n asked for? */
static inline bool grad_wants(const struct grad *w, const struct node *n, int i)
{
    return i < n->nin && n->in[i] >= 0 && w->depends[n->in[i]];
}
/* One more addend of v's cotangent, which has v's dims or broadcasts to them. */
void grad_give(struct grad *w, int v, int value);
/* The sum of what v got so far, as a value of its dtype; -1 if it got nothing. It may be narrower than v. */
int grad_take(struct grad *w, int v);
/* The cotangent of `slice`, a node that is a slice of v: all of v's become one addend of its own. */
void grad_keep_slice(struct grad *w, int v, int slice, int value);
/* Poisons the graph: v is on a path, and has no derivative. The line names v's operation and the leaf. */
void grad_refuse(struct grad *w, int v, int operand, const char *format, ...) PRINTF(4, 5);

/* ---- build.c: nodes ---- */

bool grad_same_dims(const struct type *a, const struct type *b);
int grad_no_memory(struct grad *w); /* -1, with the graph poisoned */
int make_append(struct grad *w, struct node n, const int *in, int nin);
#define VALUES(...) (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))
int make_prim(struct grad *w, const struct prim *prim, const int *in, int nin, const float *params);
int make_map(struct grad *w, const char *map, const int *in, int nin);
int make_mul(struct grad *w, int a, int b); /* of a's dtype, as all of these */
int make_add(struct grad *w, int a, int b);
int make_sub(struct grad *w, int a, int b);
int make_scale(struct grad *w, int x, double alpha);
int make_where(struct grad *w, int condition, int a, int b);
int make_cast(struct grad *w, int x, coda_dtype to);
int make_zero(struct grad *w, int like); /* the number 0, of like's dtype */
int make_iota(struct grad *w, int64_t n);
int make_reduce(struct grad *w, const char *reduction, int x, int key, bool columns);
int make_reshape(struct grad *w, int x, const struct type *like); /* like's dims; x itself if it has them */
int make_matrix(struct grad *w, int x);                           /* [rows, columns] */
int make_turned(struct grad *w, int x);                           /* its last two dimensions exchanged */
int make_slice(struct grad *w, int x, int axis, int64_t start, int64_t stop, int64_t step);
int make_concat(struct grad *w, const int *in, int nin, int axis, bool interleave);

/* ---- broadcast.c: broadcasting and its transpose ---- */

/* x with like's dims, to which its own broadcast. */
int make_wide(struct grad *w, int x, const struct type *like);
int make_zeros(struct grad *w, const struct type *like);
/* x, whose dims `like` broadcasts to, summed to like's. */
int make_sum(struct grad *w, int x, const struct type *like);

/* ---- grad_view.c ---- */

/* Gives v what its slices got, as one value. */
void grad_join_slices(struct grad *w, int v);

/* ---- grad_rows.c ---- */

/* 1 where the column is the key's, which is [..] or [.., 1]: f32 [.., N] for the rows of x. */
int make_one_hot(struct grad *w, int x, int key);
int make_key(struct grad *w, int x, int key); /* the key as [.., 1] */

#endif
