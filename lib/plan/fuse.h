/* fuse.h -- between fuse_roots.c and fuse.c, which decide which node belongs to which program, and lower.c
 * and lower_steps.c, which write the programs. */
#ifndef FUSE_H
#define FUSE_H

#include "plan.h"
#include "view.h"

enum role {
    ROLE_FREE,   /* not decided yet                                                                */
    ROLE_LEAF,
    ROLE_VIEW,   /* slice, reshape, transpose: strides                                             */
    ROLE_CONCAT, /* a buffer that others fill                                                      */
    ROLE_NUMBER, /* a constant, or a map of numbers: an immediate of those that read it            */
    ROLE_MEMBER, /* computed by the program of its group                                           */
    ROLE_INLINE  /* a cheap map of vectors: each program that reads it computes it again           */
};

struct site { /* what is known of one node */
    enum role role;
    int group;          /* MEMBER                                                                  */
    int next;           /* next member of the group, -1 at the end                                 */
    int horizon;        /* the last node that must be computed to compute this one, or later       */
    int step;           /* MEMBER: the step that holds it                                          */
    int again, again_in; /* INLINE: the step that computes it again, in the last group that does    */
    int steps, loads;   /* INLINE: what computing it again takes                                   */
    bool partial;       /* a REDUCE in a GEMM: states for each tile, finished by its readers       */
    bool need;          /* somebody reads it from memory                                           */
    bool finished;      /* an INLINE or partial node that has a program of its own to store it     */
    bool is_const;      /* computed by coda_prepare                                                */
    int buffer;         /* its storage, -1: none yet                                               */
    int part;           /* CONCAT: its first in grouper.part                                       */
    int state_buffer;   /* partial: the states                                                     */
    float number;       /* NUMBER                                                                  */
    unsigned seen;      /* mark of the last search                                                 */
    unsigned queued;    /* mark of the last group that it was a candidate for                      */
};

struct group {
    int index;             /* in grouper.group                                                     */
    int first, last;       /* nodes; members are a list through site.next                          */
    int members, loads, stores;
    int root_step;         /* of a group without members: the step that holds its root             */
    struct port no_port;   /* p's own where memory ran out: who wrote them may look at index 0     */
    struct step no_step;
    int step_capacity, port_capacity;
    struct program p;      /* kind, domain, operands, pair, rope                                   */
    struct type domain;    /* ROWS: of the value whose columns are walked                          */
    int paired;            /* GEMM: the full-width value whose lanes meet, -1: none                */
    unsigned seen;
};

struct grouper {
    const graph *g;
    const struct plan_options *opt;
    struct plan *plan;
    struct site *site;
    struct view *view;      /* of each node; base -1: strides cannot say it                        */
    struct uses uses, statistics; /* all, and those by statistics                                  */
    int64_t *part;          /* of all concats' operands: where they begin along the axis           */
    struct group **group;
    int groups, group_capacity;
    int *stack;             /* of the search for dependences; a node enters it once                */
    unsigned mark;
    int *queue, queued, at; /* candidates for a group, a heap by node, all behind node `at`         */
};

/* How a program gets an operand of one of its nodes. */
enum source_kind { SOURCE_MEMBER, SOURCE_LANE, SOURCE_OUTSIDE, SOURCE_NONE };
struct source {
    enum source_kind kind;
    int value, lane;
    enum pair_kind pair;
};

/* fuse_roots.c: which programs there are, and what each computes. p->graph is cut. */
coda_status plan_fuse(struct grouper *gr, struct plan *p, const struct plan_options *opt);

/* fuse.c */
/* A group without members; NULL if memory runs out. */
struct group *group_new(struct grouper *gr, enum program_kind kind, int root);
void group_join(struct grouper *gr, struct group *q, int value);
void group_grow(struct grouper *gr, struct group *q); /* whatever can join joins                   */
int group_stores(const struct grouper *gr, int value); /* outputs and parts of concats that it is  */
bool group_holds(const struct grouper *gr, const struct group *q, int value);
/* Of a statistic in pieces: the first member of its group that reads the same states, perhaps itself. */
int group_state(const struct grouper *gr, int value);
/* The number that a value is, perhaps through views; false if it is none. */
bool group_number(const struct grouper *gr, int value, float *number);
struct source group_source(const struct grouper *gr, const struct group *q, int value);
struct rope_spec group_rope(const graph *g, const struct node *n);

/* iteration.c: strides over the domain of an operand by its own strides; false if the domain cannot walk it
 * so. `as` is what its reader walks. */
bool domain_strides(const struct group *q, const struct type *t, const int64_t *s, const struct type *as,
                    int64_t *out);
/* What node n walks: a statistic the tensor that it is of, others their result. */
const struct type *domain_walked(const graph *g, const struct node *n);
/* The operand `i` of `n` as it is read: positions, ids and keys get a last dimension of 1. */
struct type domain_operand_type(const graph *g, const struct node *n, int i);
/* Do the rows of a value of type t run with the rows of the group's domain, one for one? */
bool domain_rows_match(const struct group *q, const struct type *t);
/* What of the domain a value has: all columns, those of a gated output, one, or something else. */
enum shape { SHAPE_NO, SHAPE_TILE, SHAPE_HALF, SHAPE_ROW };
enum shape domain_shape(const struct group *q, const struct type *t);

/* buffers.c: the buffer of a value, of an output, of the states of a partial reduction. */
int buffer_of(struct grouper *gr, int value);
int output_buffer(struct grouper *gr, int output);
int state_buffer(struct grouper *gr, int value);
int own_output(const graph *g, int value); /* the output that is the value's storage, or -1        */
/* Element 0 of part `operand` of a concat, in it. */
int64_t part_offset(const struct grouper *gr, int concat, int operand);

/* lower_steps.c */
struct writer {      /* of one program                                                             */
    struct grouper *gr;
    struct group *q;
    struct program *p;
    coda_status status;
};
struct port port_new(enum port_kind kind, int buffer, int64_t offset, coda_dtype dtype, int value);
int add_port(struct writer *w, struct port port);
int add_step(struct writer *w, struct step step);
int step_of(const struct writer *w, int value);   /* -1: the program has not computed it           */
int write_member(struct writer *w, int value);    /* all return the step that holds the value      */
int write_again(struct writer *w, int value);

/* lower.c: the plan's programs, without tiles. */
coda_status plan_lower(struct grouper *gr);

#endif
