/* fuse.h -- fusion state: which node belongs to which program, as fuse_roots.c and fuse.c decide it. A group
 * is a program to be: the nodes that one kernel computes. Indices of nodes are a topological order. lower.c
 * then writes the programs: writer.h. */
#ifndef FUSE_H
#define FUSE_H

#include "plan.h"
#include "reasons.h"
#include "view.h"

/* Who computes a node, and where. */
enum role {
    ROLE_FREE,   /* not decided yet */
    ROLE_LEAF,   /* an argument: nobody does */
    ROLE_VIEW,   /* slice, reshape, transpose: other strides over its operand's buffer */
    ROLE_CONCAT, /* a buffer that the programs of its operands fill */
    ROLE_NUMBER, /* a constant, or a map of such: an immediate in the programs that read it */
    ROLE_MEMBER, /* the program of its group */
    ROLE_WITHIN, /* the one program that reads it, in registers alone: short_columns.c, fuse_scan_steps.c */
    ROLE_INLINE  /* a cheap map of vectors: rematerialized by each program that reads it */
};

enum { OF_INPUTS = 1 << MOST_SYMBOLS }; /* in site.rows: it depends on an input with rows */

struct site { /* the fusion state of one node */
    enum role role;
    int group;              /* MEMBER: index in grouper.group */
    int next;               /* MEMBER: next member of its group, -1 at the end */
    int horizon;            /* an upper bound of the levels of the nodes that computing this one needs, those
                            that programs compute along with them included; cuts group_depends short */
    int step;               /* MEMBER: the step of its program that holds its value */
    int again, again_in;    /* INLINE: the step that rematerializes it, in the last group that did so */
    int steps, loads;       /* INLINE: steps and loads that rematerializing it takes */
    bool vector;            /* INLINE: all that reads it broadcasts it */
    bool taken;             /* a map that some program computes again */
    bool given;             /* a single element, of the caller's or made of such alone */
    int range;              /* MEMBER: 1 + index in program.range of the columns that it is; 0: all */
    bool segmented;         /* MEMBER: its columns are two dimensions, segments and what is in them */
    bool partial;           /* a REDUCE in a GEMM, or of columns: each tile, or block of threads, stores
                            a partial state, and the programs that read the statistic merge and
                            finish them */
    bool leaves;            /* MEMBER: give_back.c is to give it back */
    bool need;              /* a program reads the whole value from memory, so one has to store it */
    bool finished;          /* an INLINE, NUMBER or partial node that has a program of its own, which
                            stores it */
    int also;               /* finished: the next one in the same program, -1 at the end */
    int finish_range;       /* finished: as `range`, of that program */
    int row_in, row_step;   /* the first program of rows that has it as a row's value, though it is no member,
                               and the step; -1: none */
    bool is_const;          /* computed by coda_prepare, from weights and constants */
    unsigned rows;          /* what its rows are counted by, so that a vector of all of them is none of
                            theirs, though there be one only: node.rows and OF_INPUTS */
    int buffer;             /* its storage, an index into plan.buffer; -1: none yet */
    int part;               /* CONCAT: index in grouper.part of its operand 0 */
    bool apart;             /* CONCAT: of weights, which products read where they lie; nobody fills it */
    int accumulator_buffer; /* partial: the buffer of its partial states; -1: none yet */
    int version;            /* of a state's memory, counted from 0; 0 of all else */
    struct column_range store_columns; /* a version: the columns of its product that it takes; end 0: all */
    int slot;                          /* APPEND: the step of its program that holds a row's slot */
    int scale;                         /* APPEND: 1 + the port of its scales; 0: none */
    float number;                      /* NUMBER: the value */
    unsigned seen;                     /* grouper.mark of the last search that reached it */
    unsigned queued;                   /* 1 + the last group that it was a candidate for */
};

enum { MOST_AGAIN = 16, MOST_BEST = 4, MOST_STORES = 48 };
enum { MOST_PASS = 64, MOST_PASS_LOADS = 24 }; /* values of a program of rows, and what it loads for them */

struct best {
    int root;                  /* a TOP_K, whose program finishes ... */
    const struct prim *reduce; /* ... the states of this */
};

/* Columns of a few rows that a thread of a ROWS program has in registers. */
enum { MOST_COLUMN_NODES = 16, MOST_COLUMN_STEPS = 160 };
struct short_columns {
    int height;                    /* rows of each */
    int loaded[MOST_COLUMN_NODES]; /* tensors that they are computed of */
    int loads;
    int version; /* of a state that is such columns, which the program writes; -1 */
    struct short_step {
        int value, row, step;
    } step[MOST_COLUMN_STEPS]; /* rows that have been computed */
    int known;
};

/* A convolution of the one row of a product, which computes it: conv1d_step.c. */
enum { MOST_TAPS = 4 };
struct conv1d_step {
    int y, after, version; /* its nodes, and that of the state */
    int row[MOST_TAPS];    /* the step that has each row of the state as it is then */
};

/* A convolution of many rows of a product, of which that computes all but the first of each EDGE_PERIOD:
 * conv1d_rows.c. */
struct conv1d_rows {
    int y, map;   /* its nodes; map -1: what reads y is no member of its program */
    int range;    /* of the product's columns */
    int edges;    /* the buffer that one program leaves for the other */
    int64_t rows; /* of the product */
};

struct group {
    int index;                  /* in grouper.group */
    int first, last;            /* first and last member, nodes linked by site.next; -1: there are none */
    int members, loads, stores; /* their number, and bounds of the ports that they need */
    int root_step;              /* a group without members stores its root only: the step that holds it */
    int also;                   /* the first statistic of columns that it finishes besides, nodes linked by
                                   site.also; -1 */
    int finisher;               /* the first program that finishes statistics of columns which this one leaves
                                   in parts; -1 */
    int next_finisher;          /* the next one besides this of those that the same program leaves; -1 */
    bool finishes_columns;      /* it is in such a list */
    struct group *next_finishing; /* after this one in grouper.finishing */
    struct tensor_use no_port;    /* stands in for p.port[0], as no_step for p.step[0], where memory ran */
    struct step no_step;          /* ... out: a writer may still look there until the failure is reported */
    int step_capacity, port_capacity; /* of p.step and p.port */
    struct program p;                 /* fusion fills in kind, root, domain, operands and pairs; lowering the
                                         ports and steps */
    struct type domain;               /* ROWS: type of the tensor whose elements the program walks */
    int again[MOST_AGAIN], agains;    /* GEMM: maps that it computes again where it reads them; ROWS, while it
                                         grows: those that are to join it ahead of a reader */
    struct best best[MOST_BEST];      /* GEMM: of its rows it leaves each tile's best, for these programs */
    int bests;
    bool finishes_best; /* OWN: it is such a program */
    bool merges;        /* ROWS: values of another program are tried: rows_merge.c */
    bool line;     /* ROWS: its domain is [elements, 1]; values may have other dimensions of 1: lines.c */
    bool flat;     /* ROWS: its domain is [rows, columns]; values may have any dimensions of so many rows */
    bool finishes; /* ROWS: a line [1, elements] of the columns whose statistics it finishes: finish.c */
    int turn;      /* GEMM: the node that combines pairs of columns in a range; -1: none */
    int paired;    /* GEMM: the node, of full width N, whose columns are paired; -1: none */
    unsigned seen; /* grouper.mark of the last search that reached it */
    struct short_columns *short_columns; /* ROWS: its root folds them; NULL */
    struct conv1d_step *conv1d;          /* GEMM: NULL: none */
    struct conv1d_rows *conv1d_rows;     /* GEMM, and the program that computes the others; NULL: none */
    struct group *into;                  /* the group that absorbed it; NULL: none */
};

struct grouper {
    const graph *g;
    const struct plan_options *opt;
    struct plan *plan;
    struct site *site;
    struct view *view;      /* each node as strides over a buffer; base -1: they cannot express it */
    struct uses uses;       /* the readers of each node */
    struct uses statistics; /* those of them that are REDUCEs */
    struct uses ahead;      /* who waits for each node, but does not read it */
    int64_t *part;          /* where each operand of each concat begins along the concat's axis */
    struct group **group;
    int groups, group_capacity;
    int *stack;              /* work list of the searches over nodes; a search pushes a node once */
    unsigned mark;           /* number of the latest search: what has it in `seen` was visited */
    int *queue, queued;      /* candidates to join the group at hand: a binary heap, least node first */
    struct group *finishing; /* programs that others may join which finish statistics of columns, the latest
                                first: finish.c */
    bool taking;             /* products still take in what they load: take_in.c */
    int at;                  /* the candidate taken last; only later nodes enter the queue */
};

/* How a program gets an operand of one of its nodes. */
enum source_kind {
    SOURCE_MEMBER,  /* another member computes it */
    SOURCE_LANE,    /* it is one half of a member's columns, gate or up */
    SOURCE_AGAIN,   /* it computes it again: group.again */
    SOURCE_OUTSIDE, /* from memory, as an immediate, or rematerialized */
    SOURCE_NONE     /* not at all: a statistic that this GEMM only has in parts */
};
struct source {
    enum source_kind kind;
    int value;           /* the node; LANE: the full-width node that it is half of */
    int lane;            /* LANE: 0 the first half or the even columns, 1 the others */
    enum pair_kind pair; /* LANE: how the halves lie */
};

/* fuse_roots.c: cuts p->graph into groups and fills in *gr. Each node gets its role. */
coda_status fuse_graph(struct grouper *gr, struct plan *p, const struct plan_options *opt);

/* sites.c: fills in what gr knows of the nodes of gr->g, before there are groups. */
coda_status sites_find(struct grouper *gr);
/* inline.c */
/* Makes the value INLINE if each reader is to compute it again, instead of a program that stores it. */
void inline_find(struct grouper *gr, int value);
/* Is it a number for each row, of maps, which a program further on that walks these rows may take in? */
bool is_taken_later(const struct grouper *gr, int value);
/* group.c */
/* Adds a group without members to gr; NULL if memory runs out. */
struct group *group_new(struct grouper *gr, enum program_kind kind, int root);
/* Is `value` a member of q? */
bool group_holds(const struct grouper *gr, const struct group *q, int value);
/* Is `value` one of q.again? */
bool group_has_again(const struct group *q, int value);
/* The value that q would hold instead of `value`: a reshape that only regroups rows is the same tile, of a
 * product, or where rows are one dimension. */
int group_tile(const struct grouper *gr, const struct group *q, int value);
int regrouped(const struct grouper *gr, int value); /* what it is, seen through such reshapes */
/* The first member of a partial statistic's group that folds the same states, perhaps itself: only that one
 * stores them. */
int group_state(const struct grouper *gr, int value);
/* Is the value a statistic of columns that is in parts? */
bool group_has_column_parts(const struct grouper *gr, int value);
/* Is the value a NUMBER, perhaps seen through views? Then *number is it. */
bool group_number(const struct grouper *gr, int value, float *number);
/* The scalar that the value is, perhaps seen through views; -1: none. */
int group_scalar(const struct grouper *gr, int value);
/* Is the value the next version of a state, which the program writes rather than holds? */
bool group_writes_state(const struct grouper *gr, int value);
/* Questions of numbers of rows. Where bits must not tell how many there are (plan_options.invariant), what
 * has rows has several, and is never a single element. */
bool group_has_rows(const struct grouper *gr, int value); /* more than one */
bool group_is_one(const struct grouper *gr, int value);   /* a single element */
/* Has the reader other rows than the value, more or none, so that it repeats? A single element repeats over
 * any, but over one row it is that row's own. */
bool group_repeats(const struct grouper *gr, int value, int reader);
/* Are the rows of the value those of q, not as many by chance, or one of each? Where bits must not tell how
 * many rows there are, what has other ones is no part of q. */
bool group_shares_rows(const struct grouper *gr, const struct group *q, int value);
/* join.c */
/* Makes `value` a member of q and keeps all horizons right. The caller has checked that it may join. */
void group_join(struct grouper *gr, struct group *q, int value);
/* Makes the members of `other`, whose root comes after that of q, members of q. */
void group_absorb(struct grouper *gr, struct group *q, struct group *other);
/* The member is none any more. Horizons stay as they were until they are found anew. */
void group_leave(struct grouper *gr, struct group *q, int value);
/* The members of q, a program of rows, are free again. */
void group_dissolve(struct grouper *gr, struct group *q);
/* The group, the last one that was added, is taken back: its members have the roles that they had. */
void group_take_back(struct grouper *gr, struct group *q);
/* Places besides its own buffer that `value` has to be stored to: outputs, and parts of concats. */
int group_stores(const struct grouper *gr, int value);
/* Is it stored in its own buffer, or nowhere: in no concat, no further output, none that it is added to? */
bool group_has_one_place(const struct grouper *gr, int value);
/* May another reduction's state of so many floats be in registers beside those of the product's rows? */
bool group_has_room(const struct grouper *gr, const struct group *q, int state);
/* Can q read operand i of node n from memory: do strides express it, and does it not need q? Notes in q the
 * size of samples that the strides count. */
bool group_can_load(struct grouper *gr, struct group *q, const struct node *n, int i);
/* Is every place that the value must be stored to a matrix over the domain of q? */
bool group_can_store(const struct grouper *gr, const struct group *q, int value);
/* Why q, which holds what `value` is a view of, or depends on, cannot give it to a member: false. */
bool refuse_source(const struct grouper *gr, const struct group *q, int value);
/* fuse.c */
/* Joins to q whatever its epilogue, or its pass over rows, can compute too; nodes are tried in order. */
void group_grow(struct grouper *gr, struct group *q);
/* Joins to q, a program of rows, a value that need have nothing to do with what q has. */
bool group_takes(struct grouper *gr, struct group *q, int value);
/* depends.c */
/* Does computing `value` need the program of group q? */
bool group_depends(struct grouper *gr, int value, const struct group *q);
/* Does q read what needs the program of `other`? */
bool group_waits(struct grouper *gr, const struct group *q, const struct group *other);
/* Does what q reads from memory depend on x, which no program computes yet, or what it will read for `value`,
 * which is to join it? -1: nothing is. */
bool group_needs(struct grouper *gr, const struct group *q, int x, int value);
/* Says that q finishes `value` beside its members: what reads these needs it. */
void group_waits_for(struct grouper *gr, const struct group *q, int value);
/* Raises the horizon of a value to at least that, and those of all that need it. */
void horizon_raise(struct grouper *gr, int value, int horizon);
void group_find_horizons(struct grouper *gr); /* anew, for all nodes */
/* may_join.c */
/* How a member of q would get `value` as an operand. */
struct source group_source(const struct grouper *gr, const struct group *q, int value);
/* May `value` be a member, as far as its kind and their number go, and its type? */
bool group_may_join(struct grouper *gr, struct group *q, int value);
bool group_fits(const struct grouper *gr, const struct group *q, int value);
/* flat.c */
/* Does n read a value of q, or sum columns of what q loads, whose rows it groups otherwise? */
bool flat_reader(const struct grouper *gr, const struct group *q, const struct node *n);
/* q, a program of rows, walks them as one dimension from now on, if all that it has lies so. */
bool flat_begin(const struct grouper *gr, struct group *q);
void flat_end(struct group *q, const struct type *domain);
/* Is x, in any grouping of rows, what n sums columns of? */
bool flat_sibling(const struct grouper *gr, const struct node *n, int x);
/* in_place.c */
/* Does the value, if it reads states that q writes over, read each element where that is then written? */
bool group_reads_in_place(const struct grouper *gr, const struct group *q, int value);
/* Does version n, whatever it takes of q, come after all that has to be ahead of it, and can q load its
 * slots? */
bool group_may_write(struct grouper *gr, struct group *q, const struct node *n);
/* samples.c */
/* Should the product v of all samples' rows be *to, one of each sample, for what it may store or load so? And
 * has it come to that, now that the group has grown? */
bool samples_split(struct grouper *gr, int root, const struct matmul_view *v, struct matmul_view *to);
bool samples_pay(const struct grouper *gr, const struct group *q);
/* trial.c: what deciding whether values join changes in a group that has no more members for it. A trial may
 * be within another one. */
struct trial {
    struct group *q;
    enum pair_kind pair;
    struct pairing pairing;
    int64_t segment, sample;
    int ranges, agains, loads, paired, turn;
    bool flat;
    struct type domain;
};
struct trial trial_begin(struct group *q);
bool trial_end(const struct trial *t, bool keep); /* takes all back unless it is kept; returns `keep` */
/* take_in.c: products take in maps of what they load, where that is cheaper. */
void fuse_take_in(struct grouper *gr);
/* rows_take_in.c */
/* May a program of rows compute x from what it loads: a map, or a turn of pairs? */
bool rows_is_map(const struct grouper *gr, int x);
/* Adds to q->again what q, a program of rows, is to compute ahead of `value`, which is to join it. */
void rows_take_in(struct grouper *gr, struct group *q, int value);
/* Is the value a map of what q loads anyway, and of what is there before q starts? */
bool rows_beside(struct grouper *gr, const struct group *q, int value);
/* Programs of rows compute maps again which another one would store for them alone, if they load no more. */
void fuse_rows_again(struct grouper *gr);
/* rows_merge.c */
/* Programs of rows that load the same become one. */
void fuse_merge_rows(struct grouper *gr);
/* Operands of n that q, a program of rows, would have to load, and does not yet. */
int rows_loads(const struct grouper *gr, const struct group *q, const struct node *n);
/* give_back.c: gives back the members of a product that programs of rows compute for nothing. */
void give_back(struct grouper *gr, struct group *q);
/* Where members have left a product: what pairs, ranges and segments of columns nobody is left for. */
void group_close(const struct grouper *gr, struct group *q);
/* lines.c: programs with a few numbers each become one. */
void fuse_join_lines(struct grouper *gr);
/* finish.c: programs that finish statistics of columns, each read by nobody before they end, become one. */
void fuse_join_finishing(struct grouper *gr);
/* The program among those that may finish `value` besides, and in which range of its columns; NULL: none. */
struct group *finishing_of(struct grouper *gr, int value, int *range);
/* Lets others join q, which finishes statistics that nobody but outputs wants, and has no members. */
void finishing_begin(struct grouper *gr, struct group *q);
/* segments.c */
/* What a value is of a GEMM's member: a range of its columns, perhaps seen as [.., segments, columns
 * of one]. */
struct spot {
    int member;
    int64_t first, columns;
    bool segmented;
    bool narrow; /* the member is one: of a range, or of segments */
};
bool spot_of(const struct grouper *gr, const struct group *q, int value, struct spot *out);
/* Joins n, if it computes with segments, or in a range; says whether it is such. */
enum joining { JOINS_OTHERWISE, JOINED, REFUSED };
enum joining segment_join(struct grouper *gr, struct group *q, int value);
/* A version of a state that takes some of a product's columns, and may come when that does. */
enum joining segment_append(struct grouper *gr, struct group *q, int value);
/* The range of these columns, opened if it is new: 1 + its index; 0 if it is all columns, -1 if it meets
 * another one, or there are too many. Does it consist of whole spans? */
int segment_range(struct program *p, int64_t first, int64_t columns);
bool segment_is_whole(const struct program *p, int64_t first, int64_t columns);
/* halves.c: some adjacent columns of a value; is a member cut in halves that are lanes? */
bool is_column_slice(const struct node *n);
bool halves_meet(const struct grouper *gr, const struct group *q, int member);
/* conv1d_step.c: may it join q, and has it? */
bool conv1d_joins(struct grouper *gr, struct group *q, int value);
/* conv1d_rows.c */
/* Notes that q is to compute rows of it, if it may. It stays free: its own program computes the others. */
void conv1d_rows_try(struct grouper *gr, struct group *q, int value);
/* Finds for each of these the other program, before any is written. */
void conv1d_rows_begin(struct grouper *gr);
/* segment_rest.c */
/* The first columns of a member, up to the last that is read outside the program; end 0: all. */
struct column_range segment_read(const struct grouper *gr, const struct group *q, int member);
/* What else is read of a product, in ranges that nobody has computed with, becomes members too: then the
 * whole need not be stored. */
void segment_rest(struct grouper *gr, struct group *q, void (*grow)(struct grouper *, struct group *, int));

/* iteration.c */
/* The strides, over the dimensions of q's domain, of an operand of type t and strides s, broadcast to the
 * type `as` that its reader walks. False if no strides express it. */
bool domain_strides(const struct group *q, const struct type *t, const int64_t *s, const struct type *as,
                    int64_t *out);
/* Notes in q what these strides, which domain_strides has found, count samples of: they have one size. */
void domain_use_samples(struct group *q, const struct type *t, const int64_t *s, const struct type *as,
                        const int64_t *stride);
/* Is q a ROWS program whose rows have a single column? */
bool domain_is_column(const struct group *q);
/* The type of the elements that computing n runs over: of a REDUCE its operand's, of an APPEND that of its
 * rows, else its result's. */
const struct type *domain_walked(const graph *g, const struct node *n);
/* The type with which operand i of n is read: positions, ids, slots and keys get a last dimension of 1, as
 * they are one value for each row; of positions on several axes it is the type of each. */
struct type domain_operand_type(const graph *g, const struct node *n, int i);
/* Has a value of type t as many rows as q's domain, so that they correspond one to one? */
bool domain_rows_match(const struct group *q, const struct type *t);
/* How a value of type t lies over q's domain. */
enum shape {
    SHAPE_NO,   /* not at all */
    SHAPE_TILE, /* one element for each of the domain */
    SHAPE_HALF, /* one for each element of a gated output, [M, N/2] */
    SHAPE_ROW   /* ROWS: one for each row */
};
enum shape domain_shape(const struct group *q, const struct type *t);
/* The elements of a value with one dimension, at most, that is not 1; -1 of others, and of empty ones. */
int64_t line_length(const struct type *t);
/* The same; -1 of long ones too. */
int64_t line_elements(const struct type *t);
/* The value whose elements these are, one for one: reshapes of a line are the line. */
int line_value(const graph *g, int value);

/* Does no program of a run write what lies at this base of a view? */
bool base_is_steady(const struct grouper *gr, int base);

/* buffers.c: the index in plan.buffer of a value, of a graph's output, of a partial REDUCE's states. What has
 * no buffer yet gets one. */
int buffer_of(struct grouper *gr, int value);
int output_buffer(struct grouper *gr, int output);
int accumulator_buffer(struct grouper *gr, int value);
int own_output(const graph *g, int value); /* the output whose buffer is the value's storage, or -1 */
/* Elements from a concat's start to the first one of its operand number `operand`. */
int64_t part_offset(const struct grouper *gr, int concat, int operand);

/* short_columns.c: roots programs that fold columns of a few rows in registers. */
void fuse_short_columns(struct grouper *gr);
/* short_lies.c */
/* Is the value of q one that is of short columns: the fold, or the state that is written? */
bool short_has(const struct group *q, int value);
/* Do these lie over its domain, as it is now? */
bool short_lies(const struct grouper *gr, const struct group *q);
/* The rows of a matrix, if they are few, and more than one; else 0. Of what may have one: 1. */
int short_rows(const struct type *t);
int short_height(const struct type *t);
/* The type of one of them. */
struct type short_row(const struct type *t);
/* The map that combines two rows as the reduction folds them; NULL: there is none. */
const char *short_map(const struct prim *fold);
/* levels.c */
/* Is the value one of fewer dimensions than all that read it, to be computed again by these? Then *out has
 * the steps and loads of that. */
bool level_find(const struct grouper *gr, int value, struct site *out);
/* The map that is computed again by who reads `value`, one or more reshapes of it; -1. */
int level_of(const struct grouper *gr, int value);

/* lower.c: turns groups into the plan's programs: their ports and steps, without tiles, order or memory. */
coda_status fuse_lower(struct grouper *gr);

/* explain_fusion.c: says what epilogues took in. */
struct rewrite_log;
void fuse_explain(const struct plan *p, struct rewrite_log *log);

#endif
