/* graph.h -- the graph: nodes in topological order, each with one result, named by its index. */
#ifndef GRAPH_H
#define GRAPH_H

#include "base.h"
#include "dims.h"
#include "pack.h"
#include "prim.h"

enum op {
#define OP(NAME, ...) OP_##NAME,
#include "ops.def"
    OP_COUNT
};

/* ---- Operands and results by name: MATMUL_X, MATMUL_W; their number MATMUL_OPERANDS; MATMUL_Y; all of them
 * MATMUL_USES. Results follow the operands, so that one array has a place for each. ---- */

#define NONE
#define IN(ID, name, words) ID,
#define OPT(ID, name, words) ID,
#define MANY(words)
#define AHEAD
#define OUT(ID, name, words) ID,
#define ALSO(ID, name, words) ID,
#define OP(NAME, name, kind, operands, attributes, results, ...)                                             \
    enum { operands NAME##_OPERANDS, NAME##_LAST_OPERAND = NAME##_OPERANDS - 1, results NAME##_USES };
#include "ops.def"

/* What the operations of a kind have in the same place: what a view is of; the version that a node writes
 * over, and what it writes. */
enum { VIEW_OF = RESHAPE_X, VERSION_OF = ASSIGN_STATE, VERSION_VALUE = ASSIGN_VALUE };
_Static_assert((int)SLICE_X == VIEW_OF && (int)TRANSPOSE_X == VIEW_OF, "views");
_Static_assert((int)SCALED_MATMUL_X == MATMUL_X && (int)SCALED_MATMUL_W == MATMUL_W, "products");
_Static_assert((int)APPEND_STATE == VERSION_OF && (int)APPEND_ROWS == VERSION_VALUE, "versions");

/* Operands that may be read of any node of a graph, -1 where it has none: as many as any operation names. */
union names_of_operands {
#define OP(NAME, name, ...) char name[NAME##_OPERANDS + 1];
#include "ops.def"
};
enum { NODE_READABLE = sizeof(union names_of_operands) - 1 };

/* How the result of an operation comes about. */
enum op_kind {
    KIND_LEAF,     /* the caller names it, and has it in memory */
    KIND_NUMBER,   /* one number, part of the formula */
    KIND_PRODUCT,  /* a GEMM */
    KIND_ELEMENTS, /* element by element: a GEMM's epilogue can do it */
    KIND_PAIRS,    /* pair by pair of a row's columns: it too; a file of primitives/pair has its name */
    KIND_ROWS,     /* row by row */
    KIND_WHOLE,    /* one dense buffer, and only that */
    KIND_VIEW,     /* strides over its operand */
    KIND_PACKED,   /* matrices in the memory of a weight of bytes, in a format of few bits */
    KIND_VERSION,  /* what a state holds once this has written to it: in the state's memory */
    KIND_LOWERED   /* it has no kernel: a rewrite makes other operations of it */
};

/* ---- Attributes: each operation has a struct of its own, which ops.def lists ---- */

union attr {
#define NONE int64_t none;
#define FLOAT(key) float key;
#define FACTOR(key) float key;
#define INT(key) int64_t key;
#define RESULT(key) int64_t key;
#define EXTENT(key) int64_t key;
#define DTYPE(key) int64_t key;
#define FORMAT(key) int64_t key;
#define DIMS(member, key) int64_t member[CODA_MAX_RANK];
#define EXTENTS(member, key) int64_t member[CODA_MAX_RANK];
#define PARAMS(member) float member[PRIM_MAX_PARAMS];
#define OP(NAME, name, kind, operands, attributes, ...)                                                      \
    struct attr_##name {                                                                                     \
        attributes                                                                                           \
    } name;
#include "ops.def"
};

enum attr_kind {
    ATTR_FLOAT,
    ATTR_FACTOR,
    ATTR_INTEGER,
    ATTR_RESULT,
    ATTR_EXTENT,
    ATTR_DTYPE,
    ATTR_FORMAT
}; /* two floats;
                                                                                                  int64_t */
struct attr_field {
    const char *key; /* in the text form; NULL: the primitive names it */
    enum attr_kind kind;
    size_t at; /* bytes from the beginning of the union */
};
struct attr_fields {
    const struct attr_field *field;
    int count;
};

struct op_info {
    const char *text;
    enum op_kind kind;
    int least, most, named;  /* operands that a node must have, may have, and that have names */
    int results;             /* of a call */
    const char *const *name; /* of each operand that has one; then NULL */
    struct attr_fields (*fields)(void);
};
extern const struct op_info op_info[OP_COUNT];

struct type {
    coda_dtype dtype;
    int rank;
    int64_t dim[CODA_MAX_RANK]; /* extents: dims.h */
    struct dims *dims;          /* of the graph; a type without expressions may do without */
};

/* Operands of the map of attention's scores, as many of them as it has: the score, where its query sits, its
 * key's number, its query head's. */
enum score_operand { SCORE_ITSELF, SCORE_POSITION, SCORE_KEY, SCORE_HEAD };

/* Elements of an IOTA: a float counts them exactly. */
enum { IOTA_MOST = 1 << 24 };

/* The largest k of a TOP_K: a warp has two candidates in each lane, tile/top_k.cuh. */
enum { TOP_K_MOST = 64 };

enum loss { LOSS_ROWS, LOSS_MEAN, LOSS_SUM }; /* a cross-entropy's reduction, as the text form counts */

struct node {
    enum op op;
    const struct prim *prim;       /* MAP, REDUCE: what it is; others: the map that op_takes_map, or NULL */
    struct type type;              /* of the result */
    int nin;                       /* without absent operands at the end */
    int *in;                       /* operands, all below this node's index; -1 where absent. In a graph
                                      NODE_READABLE may be read, or nin if that is more */
    union attr attr;               /* its member of the operation's name */
    const char *name;              /* leaves */
    const char *scope;             /* where it comes from: "layers.17.mlp"; NULL. In a template: that which is
                                      open in the graph */
    int64_t stride[CODA_MAX_RANK]; /* leaves, and versions of states; elements, by extents */
    int origin;                    /* the caller's operation it came from: nodes of one origin are one
                                      kernel even without fusion. -1 in a template: a new origin */
    int leaf;                      /* its number among the leaves; -1 */
    int output, last_output;       /* the first output that names it, and the last; -1 */
    int state;                     /* the version of a state that it is, or looks at; -1 */
    int next;                      /* of a version: the node that makes the next one; -1 */
    unsigned rows; /* of a graph that was bound: the symbols that its extents had, but for that
                                      of columns; bit i is symbol i */
};

struct output {
    const char *name;
    int value;
    int next; /* the next output of the same value; -1 */
    bool add; /* a run adds the value to what is there */
    int64_t stride[CODA_MAX_RANK];
};

/* Names to indices; an open-addressed table in an arena. */
struct names {
    struct name_slot *slot;
    int count, capacity;
};

/* A scope's characters beside letters and digits, how many it has with the 0, and how many may be open. */
#define SCOPE_SIGNS "_.-/:"
enum { MOST_SCOPE = 256, MOST_SCOPES = 64 };

struct coda_graph {
    struct arena arena;
    struct dims *dims; /* symbols, and expressions over them */
    struct node *node; /* may move at an append; the old copy stays readable */
    int nodes, node_capacity;
    struct output *output;
    int outputs, output_capacity;
    int *leaf; /* nodes, in the order of the arguments */
    int leaves, leaf_capacity;
    struct prim **map; /* defined with coda_define_map */
    int maps, map_capacity;
    struct names names;     /* of leaves (their node), outputs (~ their index) and symbols (any number) */
    struct names map_names; /* of maps (their index) */
    int origins;            /* the next new origin, above all that are in use */
    bool rewritten;         /* it is made of another graph: then ... */
    bool stale;         /* ... this says that the first mistake was to read a version of a state too late */
    bool closed;        /* appends are refused, which is no mistake */
    const char **scope; /* each one that a node has, once */
    int scopes, scope_capacity;
    int last_scope;                /* that of the last node, from 1 on; 0 */
    struct names scope_names;      /* scopes to their places above */
    const char *open[MOST_SCOPES]; /* by coda_scope_push, each within those before it */
    int depth;
    const struct names *text_names; /* while a text is read: its names of values, for messages, ... */
    const char *text_name;          /* ... and that of the next one, or NULL, ... */
    const char *text_scope;         /* ... and its scope */
    coda_status status;             /* the first mistake */
    bool later;                     /* calls came after it, which did nothing */
    char error[1024];
};
typedef struct coda_graph graph;

static inline bool op_is(enum op op, enum op_kind kind) { return op < OP_COUNT && op_info[op].kind == kind; }
static inline bool op_is_leaf(enum op op) { return op_is(op, KIND_LEAF); }
/* A leaf that each run is given anew. */
static inline bool op_is_input(enum op op)
{
    return op == OP_INPUT || op == OP_SCALAR || op == OP_STATE || op == OP_GROUP;
}
/* Do all ranks of a group meet there? Its operands are x, the group, and the exchange that comes first. */
enum { EXCHANGE_X, EXCHANGE_GROUP, EXCHANGE_BEFORE, EXCHANGE_OPERANDS };
static inline bool op_is_exchange(enum op op)
{
    return op == OP_ALL_REDUCE || op == OP_REDUCE_SCATTER || op == OP_ALL_GATHER;
}
/* The last one of a group, or -1: the next one comes behind it, so that all ranks keep the order of calls. */
int graph_last_exchange(const graph *g, int group);
/* May a run write to it? */
static inline bool node_is_written(const struct node *n)
{
    return n->op == OP_STATE || (n->op == OP_INPUT && n->attr.input.consumed);
}
static inline bool op_is_view(enum op op) { return op_is(op, KIND_VIEW); }
static inline bool op_is_product(enum op op) { return op_is(op, KIND_PRODUCT); }
/* Columns of x and of w, and rows of w, that have a scale of their own in a scaled product. */
enum { SCALE_BLOCK = 128 };
/* Is it what its primitive is? Then that one's name is its word in the text form. */
static inline bool op_is_prim(enum op op) { return op == OP_MAP || op == OP_REDUCE; }
static inline const char *node_text(const struct node *n)
{
    return op_is_prim(n->op) && n->prim ? n->prim->name : op_info[n->op].text;
}
/* Is it a statistic of columns, over rows? */
static inline bool node_folds_columns(const struct node *n)
{
    return n->op == OP_REDUCE && n->attr.reduce.columns;
}
/* Does it write to a state? Its result is that state's next version. */
static inline bool op_is_version(enum op op) { return op_is(op, KIND_VERSION); }
/* Are all its extents numbers? Only then may a plan or the evaluator have it. */
static inline bool graph_is_bound(const graph *g) { return !g->dims->symbols; }
static inline int64_t type_columns(const struct type *t) { return t->rank ? t->dim[t->rank - 1] : 1; }

/* graph.c */
graph *graph_new(void);
void graph_free(graph *g);
/* Appends a node, infers its type, and returns its index, or -1 with g poisoned (message set).
 * `n` is a template: op, prim, in, nin, attr, and for leaves type, name and stride. */
int graph_append(graph *g, const struct node *n);
/* Drops the last nodes, of which none is a version, nor named by an output; and forgets that one was refused
 * as it would have read a state too late. */
void graph_take_back(graph *g, int nodes);
/* A new symbol: an extent, or DIM_NONE with g poisoned. */
int64_t graph_symbol(graph *g, const char *name, int64_t least, int64_t most, int64_t multiple);
coda_status output_check(const char *name, const struct type *t, bool add); /* of the value's type */
int graph_append_output(graph *g, const char *name, int value, const int64_t *stride);
/* The same of a value that runs add to what is there. */
int graph_append_sum(graph *g, const char *name, int value, const int64_t *stride);
/* Copies node n of `from` into `to`, operands renamed through map[] (old index -> new). */
int graph_copy_node(graph *to, const graph *from, int n, const int *map);
/* The operands of n, renamed, in to's arena; NULL with `to` poisoned. */
int *graph_map_operands(graph *to, const struct node *n, const int *map);
/* A new empty graph with `from`'s user maps (NULL with the message set when memory runs out); and
 * `from`'s outputs, renamed through map[]: 0, or -1 with `to` poisoned. */
graph *graph_like(const graph *from);
int graph_copy_outputs(graph *to, const graph *from, const int *map);
int graph_uses(const graph *g, int value); /* operands and outputs that name it; walks the graph */
const struct prim *graph_find_prim(const graph *g, const char *name); /* user maps, then the table */
coda_status graph_define_map(graph *g, const coda_map_def *def);      /* poisons, too */
/* mistake.c -- keeps the graph's first mistake, and says where it is: behind the message's first word, if a
 * node was to come of it, that one's name. Later ones are quiet. */
void graph_poison(graph *g, coda_status status, const char *format, ...) PRINTF(3, 4);
/* The same of fail()'s message, which goes on with the operands: what they are to the operation (`names`, up
 * to a NULL; the others go by their numbers), their own names and types. What is no value is left out. */
void graph_refuse(graph *g, coda_status status, const char *const *names, const int *in, int nin);
coda_status graph_mistake(const graph *g); /* fails with the first mistake, or CODA_OK */

/* scope.c -- scopes. *scope becomes the graph's own copy of it; a failure, with the message set, is that
 * memory ran out. */
coda_status graph_scope(graph *g, const char **scope);
/* They poison the graph. */
coda_status graph_scope_push(graph *g, const char *word);
coda_status graph_scope_pop(graph *g);
static inline const char *graph_scope_now(const graph *g) /* the innermost that is open, or NULL */
{
    return g->depth ? g->open[g->depth - 1] : NULL;
}

/* bind.c -- the graph with numbers in place of its symbols, as it would have been built with them; NULL with
 * the message set. `values` has one for each symbol, in order. */
graph *graph_bind(const graph *g, const char *call, const int64_t *values);
/* With these values, has each extent over symbols one of its own: not 0 or 1, nor that of another extent?
 * Then whoever compares extents finds the same before and after graph_bind. */
bool graph_binds_apart(const graph *g, const int64_t *values);
/* The same graph once more, symbols and all, which shares nothing with the first. */
graph *graph_copy(const graph *g, const char *call);
/* Shorthands for rewrites; all return the new node's index. */
int graph_map(graph *g, const char *prim, int a, int b, const float *params); /* b = -1: unary */
int graph_reduce(graph *g, const char *prim, int x, int key);
int graph_constant(graph *g, coda_dtype t, float value);
int graph_reshape(graph *g, int x, int rank, const int64_t *dim);

/* attr.c -- the attributes of a node one by one, in the order of ops.def: what printer, parser, equality and
 * digests walk. Behind its operation's own ones come the parameters of its primitive. */
int attr_count(const struct node *n);
int attr_own(const struct node *n); /* those of the operation */
bool op_takes_map(enum op op);      /* may it have a map besides, `score`? */
const char *attr_key(const struct node *n, int k);
enum attr_kind attr_kind(const struct node *n, int k);
bool attr_is_float(const struct node *n, int k);
float attr_float(const struct node *n, int k);
int64_t attr_integer(const struct node *n, int k); /* or a dtype */
void attr_set_float(struct node *n, int k, float value);
void attr_set_integer(struct node *n, int k, int64_t value);
uint64_t attr_bits(const struct node *n, int k); /* the integer, or the float's encoding */
/* Bit by bit, of two nodes of one operation and primitive. */
bool attr_equal(const struct node *a, const struct node *b);
/* Which result of its call the node is, from 0, in the order of ops.def: by its attribute RESULT. */
int node_result(const struct node *n);
int attr_result(const struct node *n); /* which attribute that is; -1: its calls have one result */
void node_set_result(struct node *n, int result);
/* Are they results of one call, equal but for which of them each is? */
bool node_same_call(const struct node *a, const struct node *b);
/* infer_attention_grad.c -- the attention whose gradient n is; `in` is room for its operands, which are nodes
 * of the same graph. And which of n's operands is its operand i; -1: none. */
struct node attention_of_grad(const struct node *n, int *in);
int attention_grad_operand(int i);
/* The other way: a call of attention's gradient, without a result; the operands that are its own are -1. */
struct node grad_of_attention(const struct node *n, int *in);
/* The derivative of a map of scores by the score, of operands that the map takes. Where it is the map itself
 * at 1, the operands that drop out of it are 0. Have both maps a reference? */
double score_partial(const struct prim *score, const double *in, const double *params);
bool score_partial_drops(const struct prim *score, int i);
bool score_has_reference(const struct prim *score);
/* Can a thread of a product's epilogue have both columns of each pair that a rope combines? */
bool attr_pairs_meet(int64_t head_dim, int64_t rotary, bool half);

/* packed.c -- packed weights. Their format is one integer among the attributes, and back. */
int64_t graph_format(const struct pack_format *f);
struct pack_format graph_format_of(int64_t number);
/* The format of an UNPACK, and the rows and columns of each of its matrices. */
struct pack_format node_format(const struct node *n);
void node_matrix(const struct node *n, int64_t *rows, int64_t *columns);
/* Bytes of matrices of these dims, at least 2; INT64_MAX: too many. */
int64_t graph_packed_bytes(const struct pack_format *f, int rank, const int64_t *dim);
/* Is it a weight of fewer bits than 16, of bytes or what a product makes of them? Nothing folds into it, and
 * coda_prepare makes nothing of it: that would be a copy of 16 bits. */
bool node_is_small(const struct node *n);
/* The UNPACK that a value is a view of; -1: it is none. */
int graph_packed(const graph *g, int value);
/* infer_pack.c -- can there be matrices of these dims and dtype? */
coda_status graph_check_matrices(int rank, const int64_t *dim, coda_dtype t);
/* Fails with the names where anything but products, as w, and embeddings read what is packed. */
coda_status graph_check_packed(const graph *g);

/* graph_args.c -- what coda_run wants: leaves in order of creation, then outputs. */
int graph_args(const graph *g);
void graph_arg(const graph *g, int index, coda_arg_info *out);
coda_arg_kind leaf_kind(const struct node *n);

/* uses.c -- the operands that name each value, in the order of the nodes that read it. */
struct use {
    int node, operand;
};
struct uses {
    struct use *use; /* those of value v: from at[v] to at[v + 1] */
    int *at;
};
/* By nodes of one operation, or of all: OP_COUNT. False: no memory. */
bool uses_find(struct uses *u, struct arena *a, const graph *g, enum op only);
/* Instead, those that a version comes after. */
bool uses_find_ahead(struct uses *u, struct arena *a, const graph *g);
static inline int uses_count(const struct uses *u, int value) { return u->at[value + 1] - u->at[value]; }

/* parts.c -- for each node: is it a concat of weights, dense matrices of the caller's, that products alone
 * read, as their weights? Such products read the matrices where they lie. */
enum { MOST_WEIGHT_PARTS = 4 }; /* of one such concat */
void graph_find_parts(const graph *g, bool *parts);

/* state.c -- what lies in the memory of a state: versions, one after another. */
int state_leaf(const graph *g, int version);
/* The version that a node at `index` is, or looks at; -1. */
int node_state(const graph *g, const struct node *n, int index);
/* Operands that n computes from. What follows them, of a version, is computed ahead of it: those who read the
 * version before. */
int state_operands(const struct node *n);
bool state_is_written(const graph *g);                    /* does a run leave anything in a state? */
bool state_is_read(const graph *g, const struct node *n); /* is an operand a version, or a view of one? */
/* The first operand that a node below `index` has written over; -1. As a failure with names. */
int state_stale(const graph *g, const struct node *n, int index);
coda_status state_check(const graph *g, const struct node *n, int index);

/* type.c */
int64_t type_elements(const struct type *t); /* of numbers alone; -1 if it does not fit in 62 bits */
int64_t type_count(const struct type *t);    /* the same as an extent; DIM_NONE with the message set */
int64_t type_rows(const struct type *t);     /* product of all dims but the last: an extent */
bool type_is_bound(const struct type *t);    /* has it numbers alone? */
bool type_equal(const struct type *a, const struct type *b);
bool type_agrees(const struct type *a,
                 const struct type *b); /* a check, which no shape fails: without a note */
void dense_strides(const struct type *t, int64_t *stride);
bool shape_broadcast(const struct type *a, const struct type *b, struct type *out); /* a's dtype */
coda_status type_check(const char *what, const char *name, const struct type *t);
coda_status strides_check(const char *what, const char *name, const struct type *t, const int64_t *stride);
void type_print(const struct type *t, struct text *out); /* "bf16[B*T,4096]" */
void extents_print(const struct dims *dims, const int64_t *extent, int n, struct text *out); /* "B*T,4096" */
struct type_text {
    char s[160];
};
struct type_text
type_text(const struct type *t); /* for messages, a long one cut off: .s is "bf16[2048,64]" */
struct type_text dims_text(const struct type *t); /* "[2048,4096]" */

/* symbols.c */
int names_find(const struct names *t, const char *name, int absent);
bool names_add(struct names *t, struct arena *a, const char *name, int value); /* false: no memory */
const char *names_at(const struct names *t, int i); /* place i of `capacity`; NULL: it is free */
bool name_valid(const char *name);                  /* a C identifier, dots allowed, at most 255 characters */

/* infer.c -- the type of a node from its operands, or a failure with the numbers in it. Attributes
 * left 0 become what they stand for (head_dim, rotary, heads, kv_heads, scale); for a leaf it checks
 * type and strides. */
coda_status shape_infer(const graph *g, struct node *n);

/* graph_print.c, graph_parse.c */
void graph_print(const graph *g, struct text *t);
graph *graph_parse(const char *text);                        /* NULL with the message set */
const char *debug_graph(const graph *g);                     /* for a debugger: see debug_show */
void node_print(const graph *g, int value, struct text *t);  /* one line, no newline */
void value_print(const graph *g, int value, struct text *t); /* %name of a leaf, else %index */
struct value_text {                                          /* the same, of 79 bytes at most */
    char s[80];
} value_text(const graph *g, int value);

/* graph_verify.c -- every invariant of a graph; the message names the node. */
coda_status graph_verify(const graph *g);
/* Checks operation, arity, operands and primitive of a node that is to stand at `index`. */
coda_status node_check(const graph *g, const struct node *n, int index);

#endif
