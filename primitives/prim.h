/* prim.h -- the table of primitives, generated from the .cuh files by embed.c. Knows nothing above. */
#ifndef PRIM_H
#define PRIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PRIM_MAX_INPUTS 4
#define PRIM_MAX_PARAMS 4
#define PRIM_MAX_STATE 32

/* A wider state is there for each row of a tile, in registers, but not for each column. */
#define PRIM_MAX_COLUMN_STATE 4

enum prim_kind {
    PRIM_MAP,   /* out = f(in...; params...), one element at a time */
    PRIM_REDUCE /* a state folded over the columns of a row: init, push, merge, finish */
};

/* What is true of a map f for all arguments, as its `// coda:` line declares it and tests try it. Rewrites
 * ask for these facts, never for a map's name. Bit i stands for operand i. */
struct prim;
struct prim_facts {
    unsigned linear;   /* f(a x + b z) = a f(x) + b f(z), x and z in operand i, the others held */
    unsigned jointly;  /* so too, x and z in all of these operands together */
    unsigned shift;    /* f(x + d) = f(x) + d, x operand i */
    int identity;      /* f is its first operand where this argument, counted from 1, operands first, */
    float identity_at; /* has this value. 0: there is none */
    int dtype;         /* the operand whose dtype the result has */
    unsigned quotient; /* f(x, y) y = x, x the first operand, y operand i */
    bool nonzero;      /* of finite arguments it is not 0 */
    /* Derivatives, of maps and of reductions: see prim_partial. Two bits, and two pointers, are never of one
     * operand. */
    unsigned zero, one; /* the partial derivative by operand i is 0, or 1, everywhere but at jumps */
    const struct prim *grad[PRIM_MAX_INPUTS]; /* or it is this map; NULL: see the others */
};

/* Loops on the host are there for so many sets of instructions: enum vectors of lib/base. */
#define PRIM_LEVELS 3

/* The CPU reference of a reduction; the state is PRIM_MAX_STATE doubles or fewer. `key` is the row's
 * extra operand (0 if it has none), `col` the column's index. */
struct prim_reduce {
    void (*init)(double *state);
    void (*push)(double *state, double x, int64_t col, double key);
    void (*merge)(double *state, const double *other);
    double (*finish)(const double *state);
    /* Pushes n elements, of which neither column nor key matter, in an order of its own; NULL: none. */
    void (*fold)(double *state, const float *x, int64_t n, int level);
};

/* out[i] = f(in[0][i], in[1][i], ...; params) for i < n, in double, rounded to float. All PRIM_MAX_INPUTS
 * pointers can be read, also those that f has no operand for. */
struct prim_loops {
    void (*row[PRIM_LEVELS])(float *out, const float *const *in, const double *params, int64_t n);
};

struct prim {
    const char *name;
    enum prim_kind kind;
    int inputs;     /* tensor operands; of a reduction: 1, or 2 with a key */
    int params;     /* float constants */
    int state;      /* floats of a reduction's state */
    const char *of; /* the reduction whose state it reads; NULL: it has its own */
    bool exact;     /* a reduction: however a row is cut, and in whatever order its states are merged, the
                       result has the same bits; tests try it */
    const char *param_name[PRIM_MAX_PARAMS];
    bool narrow;             /* a map: has narrow() beside apply(), for results that are rounded to 16 bits */
    struct prim_facts facts; /* of a map defined at run time: derivatives alone */
    const char *header;      /* "map/silu.cuh"; NULL for a map defined at run time, as the next three */
    const char *operands;    /* their names: "gate, up" */
    const char *constants;   /* "low=float, high=float", "" of a reduction */
    const char *meaning;     /* what its file says first: "x sigmoid(x), also called swish." */
    const char *gradient; /* "gate: swiglu_grad_gate(gate, up), up: silu(gate)"; NULL: defined at run time */
    const char *source;   /* of a map defined at run time, else NULL */
    double (*reference)(const double *in, const double *params); /* maps */
    const struct prim_loops *loops;                              /* maps; NULL: defined at run time */
    const struct prim_reduce *reduce;                            /* reductions */
};

/* How the partial derivative by an operand is to be had. At a kink it is that of one side, at a jump 0.
 *
 * PRIM_PARTIAL_MAP: facts.grad[i], which has as many parameters and gets the same ones. Of a map it takes
 * the same operands or, if it has fewer, the first of them: d silu(gate) up / d up = silu(gate). Of a
 * reduction it takes an element, its row's statistic and its row's key, or the first of these; where several
 * elements of a row tie for a statistic that is one of them, they share it. */
enum prim_partial {
    PRIM_PARTIAL_NONE,   /* there is none, or none that is known */
    PRIM_PARTIAL_ZERO,   /* 0 */
    PRIM_PARTIAL_ONE,    /* 1 */
    PRIM_PARTIAL_LINEAR, /* the map itself, at 1 for this operand and 0 for the others that facts.jointly has
                            with it, if this one is there and not in facts.linear */
    PRIM_PARTIAL_MAP     /* facts.grad[i] */
};
static inline enum prim_partial prim_partial(const struct prim *p, int operand)
{
    const struct prim_facts *f = &p->facts;
    if (f->grad[operand]) return PRIM_PARTIAL_MAP;
    if (f->zero >> operand & 1) return PRIM_PARTIAL_ZERO;
    if (f->one >> operand & 1) return PRIM_PARTIAL_ONE;
    return (f->linear | f->jointly) >> operand & 1 ? PRIM_PARTIAL_LINEAR : PRIM_PARTIAL_NONE;
}

/* Its name in a map's definition: "0", "1", that of facts.grad[i], or NULL. */
static inline const char *prim_partial_name(const struct prim *p, int operand)
{
    if (p->facts.grad[operand]) return p->facts.grad[operand]->name;
    return p->facts.zero >> operand & 1 ? "0" : p->facts.one >> operand & 1 ? "1" : NULL;
}

/* Two values of one thread, combined by a turn: cosine and sine of an angle. */
struct prim_pair {
    const char *name;
    const char *header;                                                  /* "pair/rope.cuh" */
    void (*reference)(double *a, double *b, double cosine, double sine); /* in place */
};

/* Do two reductions read the same state? Their init, push and merge are the same. */
static inline bool prim_states_equal(const struct prim *a, const struct prim *b)
{
    return !strcmp(a->of ? a->of : a->name, b->of ? b->of : b->name);
}

/* Sorted by name. */
extern const struct prim prim_table[];
extern const int prim_count;
const struct prim *prim_find(const char *name); /* NULL if there is none */

/* Sorted by name; behind them one without a name. */
extern const struct prim_pair prim_pairs[];
static inline const struct prim_pair *prim_find_pair(const char *name) /* NULL if there is none */
{
    const struct prim_pair *p = prim_pairs;
    while (p->name && strcmp(p->name, name)) p++;
    return p->name ? p : NULL;
}

/* What the text of a map may call as math::NAME; behind them one without a name. */
struct prim_function {
    const char *name, *arguments; /* "x, y" */
    const char *meaning;          /* with the error, relative unless said otherwise */
};
extern const struct prim_function prim_functions[];

/* Every .cuh file, by its path from primitives/, sorted; its text without comments, line by line. */
struct prim_file {
    const char *path, *text;
    size_t length;
    const char *digest; /* SHA-256 of the file with its comments, 64 hex digits */
};
extern const struct prim_file prim_files[];
extern const int prim_file_count;

#endif
