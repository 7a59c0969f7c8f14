/* plan.h -- a plan: programs in launch order over buffers; how it is asked for, and its stages. */
#ifndef PLAN_H
#define PLAN_H

#include "exchange.h"
#include "guards.h"
#include "graph.h"
#include "program.h"
#include "target.h"

/* The earlier programs of its call that a program has to wait for, the latest first. What these wait for is
 * not named again. */
struct waits {
    const int *on;
    int n;
};

struct tile;
struct schedule; /* how a program runs on the target: schedule.h */

struct plan {
    struct arena arena;
    struct buffer *buffer;
    struct program *program; /* prepare programs first, then run programs, in launch order */
    int buffers, buffer_capacity, programs;
    int64_t workspace, prepared; /* bytes */
    int64_t inbox;               /* bytes of SPACE_INBOX */
    uint64_t prepared_id;        /* of all that coda_prepare leaves; 0: nothing */
    const graph *graph;          /* the rewritten graph, for printing; NULL: skeleton.h */
    int values;                  /* its nodes: what programs name a value by is below */
    bool accumulates;            /* do sums of products add to where they end? */
    bool by_size;                /* do bytes decide what comes first, and what is written over? ... */
    bool rearranged;             /* ... did they? */
    bool steady;                 /* have all runs the memory of the first one? */
    bool overlaps;               /* do exchanges come first, and what waits for them last? */
    struct target target;        /* that it is for */
    struct schedule *schedule;   /* one for each program, once they are in order */
    struct waits *waits;         /* of each program, once all has its place; NULL: not found */
    int *beside; /* of an exchange that others run beside: the first of these programs that does not; else 0.
                    NULL: there is none */
    int *together; /* of a program: how many, from it on, are one launch; 0: one ahead has it. NULL: each
                      program is a launch ... */
    int *origin;   /* ... and the place of each before some were put side by side */
    int *whole;    /* before that: the place of the program of which each is a part, as two ranks share it;
                      NULL: each is whole */
};

enum { MOST_TOGETHER = 4 };

/* The first program of the launch that has this one, and how many that has. */
static inline int plan_leader(const struct plan *p, int index)
{
    while (p->together && !p->together[index]) index--;
    return index;
}
static inline int plan_together(const struct plan *p, int index)
{
    return p->together ? p->together[plan_leader(p, index)] : 1;
}

/* ---- Decisions: tuning results that override the cost model, by the GEMM's root node ---- */

struct decision {
    int root;
    bool apart;                    /* the product by cuBLASLt, its epilogue by programs of its own */
    const struct tile *tile;       /* tile.h; NULL: the cheapest */
    const struct figures *figures; /* figures.h; NULL: none were taken */
};

struct variants; /* variants.h */
struct reasons;  /* reasons.h */

struct plan_options {
    bool fuse; /* false: one program for each operation */
    bool cublaslt;
    bool invariant;   /* program.invariant, of all programs */
    bool one_of_many; /* the graph has symbols: plans of its shapes differ in numbers alone */
    bool overlap;     /* plan.overlaps */
    bool steady;      /* plan.steady */
    bool plain;       /* programs in the graph's order, each result in memory of its own */
    coda_fold fold;
    enum exchange_wish exchange; /* exchange.h */
    struct target target;
    const struct decision *decision; /* by root */
    int decisions;
    struct variants *variants; /* variants.h: products have few tiles for all numbers of rows; or NULL ... */
    bool base;                 /* ... one for all of them; */
    bool frugal;               /* that of more rows which leaves the fewest states */
    struct product *const *product;   /* variants.h: of each program, NULL of those not known; or NULL */
    const struct plan *const *larger; /* plans of larger shapes, in whose workspace this one shall fit */
    int largers;
    int noted;               /* guards.h: answers that were noted before planning, which go on with these */
    struct reasons *reasons; /* reasons.h: where refusals are noted; or NULL */
};

/* ---- plan.c ---- */

void plan_free(struct plan *p);
int plan_add_buffer(struct plan *p, struct buffer b); /* its index; the arena remembers a failure */
const struct decision *plan_decision(const struct plan_options *opt, int root); /* NULL: none */

/* ---- The stages; graph -> programs is fuse ---- */

coda_status plan_arrange(struct plan *p);      /* plan.c: what follows, up to plan_reuse */
coda_status plan_accumulate(struct plan *p);   /* accumulate.c: sums of products, where they end */
coda_status plan_order(struct plan *p);        /* order.c: which program after which */
coda_status plan_begin_sums(struct plan *p);   /* accumulate.c: which of these comes first */
coda_status plan_reuse(struct plan *p);        /* reuse.c: results in the memory of what they are made of */
bool plan_has_one_group(const struct plan *p); /* beside.c: one group has all exchanges of a run */
coda_status plan_find_beside(struct plan *p);  /* beside.c: exchanges that others run beside */
/* allocate.c: offsets in the workspace */
coda_status plan_place(struct plan *p, const struct plan_options *opt);
coda_status plan_place_folds(struct plan *p);  /* folds.c: and of what coda_prepare leaves */
coda_status plan_find_waits(struct plan *p);   /* waits.c: and that no place is taken too early */
coda_status plan_find_order(struct plan *p);   /* waits.c: the same without places */
coda_status plan_verify(const struct plan *p); /* plan_verify.c */

void plan_dot(const struct plan *p, struct text *t); /* plan_dot.c: as a Graphviz picture */

#endif
