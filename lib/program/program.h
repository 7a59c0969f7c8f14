/*
 * program.h -- what one kernel computes: GEMM + epilogue, rows, or an operation of its own (own.h). An
 * epilogue is a list of steps over the values of one element, its row and its column; emit_*.c prints it as
 * CUDA C++, cpu.c interprets it. How it runs on a target is its schedule (schedule.h); its CUDA text is its
 * kernel (kernel.h).
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "graph.h"
#include "prim.h"
#include "target.h"

/* What a reduction folds into one number: a row, over its columns, or a column of a matrix, over its rows.
 * Domains are matrices of their last two dimensions; a product has one for each batch. */
enum reduce_axis { REDUCE_ROWS, REDUCE_COLUMNS };

/* ---- Buffers: the tensors of a plan, which uses name by their index ---- */

enum space { SPACE_ARG, SPACE_WORK, SPACE_PREPARED, SPACE_INBOX };

struct buffer {
    enum space space;
    int arg; /* SPACE_ARG: index into coda_run's args */
    int64_t bytes;
    int64_t offset;  /* SPACE_WORK, SPACE_PREPARED: bytes, a multiple of 256; set by allocate.c. SPACE_INBOX,
                        memory of the group, where other ranks write or read: by exchange_parts.c */
    int first, last; /* programs that touch it, for allocate.c */
    int value;       /* node it holds */
    int folded;      /* SPACE_ARG: node that coda_prepare leaves in this weight, 0: none ... */
    uint64_t holds;  /* ... and its digest, never 0 */
};

/* ---- Uses: how a program touches one tensor ---- */

enum use_role {
    USE_LOAD,          /* a step reads element (i0, i1, ...) of the domain at
                          offset + sum stride[d] * i_d */
    USE_GATHER,        /* as LOAD, but the row index is the value of step `index` (embedding):
                          element offset + id * table_stride + stride[last] * column; an id outside
                          0..table_rows-1 reads 0 */
    USE_STORE,         /* a step writes elements, placed as LOAD's */
    USE_SCATTER,       /* as STORE, but the row index is the value of step `index` (append), by table_stride
                          and table_rows as GATHER's; what is outside 0..table_rows-1 is not stored */
    USE_PARTIAL_LOAD,  /* a row's, or a column's, statistic: merges its `blocks` partial states of
                          `reduce`, then finishes them */
    USE_PARTIAL_STORE, /* stores the partial state of one row over this tile's columns, as dense
                          f32 [row][block][state]; of one column over some rows, as
                          [matrix][block][column][state] */
    USE_OPERAND,       /* the main loop reads it: A and B of a GEMM */
    USE_RESULT,        /* the main loop writes it */
    USE_SCALAR,        /* an argument in host memory, which a run copies into the kernel's parameters */
    USE_BESIDE,        /* small, of lengths, ranges or heads, beside the operands of a kernel of its own */
    USE_FREQUENCIES,   /* f32 [table_rows], table_stride apart: radians by which each pair of a head turns
                          for one position */
    USE_SCALES,        /* f32 [table_rows], table_stride apart: what a SCATTER divides the columns of each
                          head by; of one, all columns */
    USE_EDGES,         /* a step leaves there rows of its source, [part][2][columns / 8][taps - 1][8]: of
                          part i those ahead of row i EDGE_PERIOD, and those from it on; then the last */
    USE_SCRATCH        /* a library's workspace: its contents mean nothing before and after */
};

enum effect { EFFECT_READ = 1, EFFECT_WRITE = 2, EFFECT_APPEND = 4, EFFECT_ADD = 8 };

/* ---- Steps: straight-line code in SSA form; a step's value is named by its index ---- */

enum step_kind {
    STEP_ACC,     /* the GEMM's accumulator */
    STEP_LOAD,    /* reads an element by its port (LOAD or GATHER) */
    STEP_SCALAR,  /* a parameter of the kernel, by its port (SCALAR); any step reads it at no cost */
    STEP_PARTIAL, /* reads a row's statistic by its port (PARTIAL_LOAD); in a ROWS program without
                     reductions, whose matrices have one row, a column's, which is of class TILE */
    STEP_COLUMN,  /* the number of the column, of class COL; in a ROWS program of class TILE */
    STEP_MAP,     /* applies prim to in[] with the constants param[] */
    STEP_LANE,    /* GLU: half `lane` (0 gate, 1 up) of the full-width value in[READS_X] */
    STEP_PAIR,    /* combines the two columns of each pair of x, as program.pairing says; in[READS_POSITION]
                     is the row's position, or -1: row index % pairing.period; with sections those behind it
                     are that on the other axes; its port, or -1: FREQUENCIES */
    STEP_REDUCE,  /* folds the row of x by prim, with the row's key in[READS_KEY] or -1. ROWS: its value
                     is the row's statistic. GEMM: it stores a partial state by its port
                     (PARTIAL_STORE) and has no value. So does each that folds columns; a ROWS
                     program that does folds no rows. Of CLASS_SEGMENT, it folds each segment of
                     program.segment columns, and has that one's statistic */
    STEP_CONV1D,  /* GEMM: a causal convolution of x, rounded to the operands' type: in[READS_BIAS] or -1, and
                     from in[READS_TAPS] on the weights of the rows above, then of its own. Above row
                     i EDGE_PERIOD there are zeros; a CONV1D program computes the rows that this concerns
                     again, by what it leaves by its port (EDGES) */
    STEP_STORE    /* writes x by its port */
};
/* What a step reads, that is no MAP: places in step.in. */
enum { READS_X, READS_KEY, READS_POSITION = READS_KEY, READS_BIAS = READS_KEY, READS_TAPS };
enum { EDGE_PERIOD = 128 };

/* What a value varies with: rows alone, columns alone, or both. A ROWS program has no column class: there
 * a value is of a row, or of an element. */
/* CLASS_SEGMENT: of a GEMM's rows and segments of columns. */
enum step_class { CLASS_ROW, CLASS_COL, CLASS_TILE, CLASS_SEGMENT };

enum { IMMEDIATE = -1, MOST_AXES = 4, STEP_MAX_INPUTS = 2 + MOST_AXES };
_Static_assert(STEP_MAX_INPUTS >= PRIM_MAX_INPUTS, "a step has a map's operands");

/* ---- Programs ---- */

/* Pairs of columns that one thread has to hold, as its arithmetic combines them. GLU: the weight's rows n
 * and n + N/2 (stacked) or 2n and 2n + 1 (interleaved) are loaded into the two halves of one B tile, so that
 * in the tile gate and up are bn / 2 columns apart and the output has N/2 columns. HEADS: those of
 * a STEP_PAIR, within heads. */
enum pair_kind { PAIR_NONE, PAIR_GLU_INTERLEAVED, PAIR_GLU_STACKED, PAIR_HEADS };

/* Some of them have steps of their own: in a GEMM, whole segments. In a ROWS program that finishes statistics
 * of columns all steps are of ranges, each of which is a matrix of its own. Of a range, column n of a value
 * and of a port is n - first. */
enum { MOST_RANGES = 8 };

/* A product's weights may lie in MOST_WEIGHT_PARTS tensors (graph.h): b.data, and so many besides. */
enum { MOST_MORE_PARTS = MOST_WEIGHT_PARTS - 1 };

enum program_kind { PROGRAM_GEMM, PROGRAM_ROWS, PROGRAM_OWN };

/* CUDA allows a kernel 4 kB of parameters. fuse.c ends groups early enough for their programs to fit. */
#define KERNEL_MAX_BYTES 4096
#define KERNEL_MAX_MAPS 12
#define KERNEL_MAX_POINTERS ((KERNEL_MAX_BYTES - KERNEL_MAX_MAPS * 128) / 8)

/* ---- The structs, from their table ---- */

/* What a field is to a kernel. Equal programs have equal KINDs and NUMBERs, and PLACEs that are equal one to
 * one; programs of one form have equal KINDs. NAME_differs says which field is the first, of some kinds, in
 * which two structs and what they consist of differ; NULL: none. */
enum field_kind {
    FIELD_KIND = 1,     /* the text depends on it */
    FIELD_NUMBER = 2,   /* an extent, a stride, an offset: a launch may pass it, and shapes differ in it */
    FIELD_PLACE = 4,    /* which tensor */
    FIELD_NAME = 8,     /* what people, and tuning, call it by */
    FIELD_DECIDED = 16, /* a schedule says it */
    FIELD_ALL = 31
};

/* clang-format off */
#define STRUCT(S) struct S {
#define VALUE(type, name, what) type name;
#define ARRAY(type, name, length, what) type name[length];
#define STRIDES(name, what)                                                                                  \
    union {                                                                                                  \
        int64_t name[CODA_MAX_RANK];                                                                         \
        struct {                                                                                             \
            int64_t batch;                                                                                   \
            union {                                                                                          \
                int64_t row, time;                                                                           \
            }; /* A: of M; B: of N. Of a sequence: of time */                                                \
            union {                                                                                          \
                int64_t k, head;                                                                             \
            }; /* A, B: of K. Of a sequence: of heads, whose columns are adjacent */                         \
        };                                                                                                   \
    };
#define PRIM(name, what) const struct prim *name;
#define PART(S, name, when) struct S name;
#define PARTS(S, name, length) struct S name[length];
#define LIST(S, name, length) struct S *name;
#define SPEC(name) void *name;
#define END(S) };                                                                                            \
    const char *S##_differs(const struct S *s, const struct S *t, unsigned kinds);
/* clang-format on */
#include "program.def"

/* packed.c -- what is packed. Where strides lead: so many rows and columns of the matrix of all records. */
struct packed_at {
    int64_t row, column;
};
struct packed_at packed_at(const struct tensor_use *u, int64_t stride);
/* From one row block to the next; of a stride of whole row blocks. */
int64_t packed_block_bytes(const struct tensor_use *u);
int64_t packed_bytes(const struct tensor_use *u, int64_t stride);
/* Bytes of so many elements, as a share of their records; and of the records that have rows x k elements by
 * the strides of an operand. */
int64_t packed_elements_bytes(const struct tensor_use *u, int64_t elements);
int64_t packed_operand_bytes(const struct tensor_use *u, int64_t rows, int64_t k);
/* Is it [.., k] of whole rows of records without gaps, or a part of them of whole records, from a row block
 * on? */
bool packed_has_whole_records(const struct tensor_use *u, int64_t k);
static inline bool use_is_packed(const struct tensor_use *u) { return u->packing.format; }

/* From the buffer's start to element (0, 0, ...), in bytes; of what is packed, to its row block. */
static inline int64_t use_start(const struct tensor_use *u)
{
    return use_is_packed(u) ? packed_bytes(u, u->offset) : dtype_bytes(u->dtype, u->offset);
}

/* An operand that is multiplied as it lies in memory; is it one? */
static inline struct operand operand_of(struct tensor_use data)
{
    return (struct operand){.data = data, .dtype = data.dtype};
}
static inline bool operand_is_scaled(const struct operand *o)
{
    return o->dtype != o->data.dtype || o->scale || o->zero;
}
/* Are both operands fp8 with scales of blocks, as OP_SCALED_MATMUL has them? */
bool program_has_block_scales(const struct program *q);
static inline bool operand_is_plain(const struct operand *o)
{
    return !operand_is_scaled(o) && !use_is_packed(&o->data);
}

static inline bool program_is_plain(const struct program *q)
{
    return operand_is_plain(&q->a) && operand_is_plain(&q->b);
}

/* Does the value of step `index` say which row is touched? */
static inline bool use_is_indexed(const struct tensor_use *u)
{
    return u->role == USE_GATHER || u->role == USE_SCATTER;
}

/* The union of enum effect. */
unsigned use_effect(const struct tensor_use *u);

/* ---- program.c: questions ---- */

/* Does the step use the port, as its own or beside that? */
bool step_uses(const struct program *q, const struct step *s, int port);
/* What a profiler should show of a step; NULL for data movement. */
const char *step_name(const struct program *q, const struct step *s);
/* May other steps read it? A STORE has no value, nor has a REDUCE that leaves partial states. */
bool step_has_value(const struct program *q, const struct step *s);
/* Is a value rounded to 16 bits, or fewer, by each step that reads it, and read by some? */
bool step_is_rounded(const struct program *q, int step);
/* Do two REDUCEs fold the same, or two PARTIALs merge the same, into one state? Then it is computed once. */
bool step_shares_state(const struct program *q, const struct step *a, const struct step *b);
/* Has a step's value, or its state, one place for each row? */
bool step_is_of_row(const struct step *s);
/* Does a step fold columns; does any? */
bool step_folds_columns(const struct step *s);
bool program_folds_columns(const struct program *q);
bool program_folds_rows(const struct program *q); /* does any fold rows? */
/* The step that is a convolution, which sees rows above its own; -1: none is. How many it sees. */
int conv1d_step_of(const struct program *q);
int step_rows_above(const struct step *s);
/* Rows that it leaves of a product of so many rows, in all. */
int64_t edge_rows(const struct step *s, int64_t rows);
/* Every tensor that the program touches: use 0, 1, ... up to the first NULL. */
struct tensor_use *program_use(const struct program *q, int i);
int program_uses(const struct program *q); /* their number */
/* Calls fn for each buffer that the program reads, or writes, until fn returns true; says whether it did. */
bool program_any_read(const struct program *q, bool (*fn)(void *ctx, int buffer), void *ctx);
bool program_any_write(const struct program *q, bool (*fn)(void *ctx, int buffer), void *ctx);
int64_t port_bytes(const struct program *q, int port); /* that are read or written by it */
/* The same of any use; -1 of those of a kernel of its own. */
int64_t use_bytes(const struct program *q, const struct tensor_use *u);
int64_t program_bytes(const struct program *q); /* bytes read + written, each tensor once */
double program_flops(const struct program *q);  /* of products; a multiply-add is two */
/* Part i of B, 0 to p->parts, and which of the product's columns have their weights there. */
struct tensor_use *program_b_part(const struct program *p, int i, struct column_range *columns);
int64_t program_b_bytes(const struct program *p); /* of all parts */
bool program_is_gated(const struct program *p);   /* the output has N/2 columns: PAIR_GLU_* */
int program_lanes(const struct program *p);       /* elements that the epilogue computes at once: a pair's
                                                         two, or 1 */
int64_t program_columns(const struct program *p); /* columns of the output: N, or N/2 if gated */
int64_t program_samples(const struct program *p); /* GEMM: what stride[0] counts: samples, or batches */
bool program_samples_columns(
    const struct program *p); /* has it columns' values that change with the sample? */
/* Columns of a product of which a row has a state, in tiles of any width, so that its statistics have the
 * same bits in all of them; 0: the state is of a tile, as they may have others, or merging states rounds
 * nothing. */
int program_state_columns(const struct program *p);
bool program_suits_cublaslt(const struct program *p); /* can cuBLASLt compute the product? It needs a unit
                                                      stride in a and b, one dtype, and no empty dimension */

enum { STREAM_ROWS = 16 }; /* of A: what has no more is a stream of B, past a block's rows */
/* Has B few bits a weight: packed, or elements of 8? */
bool program_has_narrow_b(const struct program *p);

/* ---- Ranges and segments of a product's columns ---- */

enum { SEGMENT_SPAN = 64 }; /* segments come in so many columns at least */
/* Does it fold the segments of a range? */
bool step_folds_segments(const struct step *s);
/* The columns of a step: those that it stores, or its range's, or all of the output's. */
struct column_range step_columns(const struct program *p, const struct step *s);
/* Their number in a GEMM: of what a gated product has before its halves are one, of both halves. */
int64_t step_value_columns(const struct program *p, const struct step *s);
/* Columns, from a multiple of their number on, that a tile holds as a whole: of segments, or of pairs. 0:
 * any. */
int program_span(const struct program *p);

/* ---- pairs.c: what a STEP_PAIR does ---- */

void pair_print(const struct program *q, const struct step *s, struct text *t);
/* The program's STEP_PAIR, -1 if it has none. */
int pair_step(const struct program *p);
/* It has no positions: they follow from row numbers. */
bool pair_counts_rows(const struct program *p);
/* ... and is that of row r + 8 of a tile 8 more than that of row r, for r % 16 < 8? A thread has both rows,
 * and makes the second one's angle from the first one's. */
bool pair_steps_evenly(const struct program *p);
/* Columns of a GEMM, from a multiple of their number on, among which a column's partner is: tiles consist of
 * such spans, or say how they cut them. 0: partners are neighbours, or there are none. */
static inline int pair_span(const struct program *p)
{
    return p->pair == PAIR_HEADS && p->pairing.half ? (int)p->pairing.head_dim : 0;
}
/* Are cosine and sine scaled? */
bool pair_scales(const struct program *p);
/* The numbers of a row's position, 1 without sections, and which of them turns pair i of a head. */
int pair_axes(const struct pairing *r);
int pair_axis(const struct pairing *r, int64_t i);
/* Has the step a value for each column, which maps alone make of what is loaded? */
bool step_is_of_loads(const struct program *p, int step);
/* Marks the steps of which an element's partner is made in a program of rows. made: of each step. */
void pair_mark_made(const struct program *p, bool *made);
/* Is every column of a span in a pair, and N a multiple of spans? */
bool pair_fills_spans(const struct program *p);
/* Can a thread of a GEMM have both columns of each pair? */
bool pair_meets(const struct program *p);
/* Do pieces of so many columns, of a rows kernel, lie in one half of a head, or hold whole pairs? */
bool pair_suits_pieces(const struct program *p, int width);
/* Do two nodes combine pairs alike, but for the number of heads? */
bool pairs_alike(const struct node *a, const struct node *b);
/* Do its pairs meet where segments of so many columns do? */
bool pair_suits_segments(const struct node *n, int64_t segment);
/* Does it combine pairs of all its columns' heads? */
bool pair_takes_all(const graph *g, const struct node *n);
/* Does the operation combine columns in pairs, as a STEP_PAIR? Operand 1 is then a row's position. */
bool op_combines_pairs(enum op op);
/* Does it, with a row's position on several axes, which are columns of operand 1? */
bool node_has_sections(const struct node *n);
/* Does its step read operand i from memory, whatever program makes it: frequencies (2), positions on several
 * axes (1)? */
bool pair_loads(const struct node *n, int i);
/* Fills in how node n does, with defaults; nothing if it does not. */
void pair_read(struct program *p, const graph *g, const struct node *n);

/* ---- target_pairs.c: what a target's units can take, which decides what may be fused ---- */

/* Why TMA cannot load an operand: it wants floats of 16 or 8 bits (or wgmma does), a dimension of stride 1,
 * and an offset, a pitch and a batch stride that are multiples of 16 bytes. */
enum obstacle {
    FITS,
    HAS_NO_UNIT_STRIDE,
    BEGINS_ODDLY,
    HAS_ODD_PITCH,
    HAS_ODD_BATCHES,
    IS_NO_HALF,
    IS_NOT_K_MAJOR, /* of fp8 wgmma takes no other */
    IS_PACKED
};
enum obstacle program_a_obstacle(const struct program *p);
enum obstacle program_b_obstacle(const struct program *p);
/* Elements from one row to the next as they lie in memory; MN-major: neighbours there differ in M (or N). */
static inline int64_t operand_pitch(const struct tensor_use *o) { return o->k == 1 ? o->row : o->k; }
static inline bool operand_is_mn_major(const struct tensor_use *o) { return o->k != 1; }
bool program_has_work(const struct program *p); /* no dimension of the GEMM is empty */
/* Can the target's TMA load both operands, and its wgmma multiply them? */
bool program_fits_units(const struct program *p, const struct target *target);
/* The same of fp8 by fp8. */
bool program_is_f8(const struct program *p);
bool program_fits_f8_units(const struct program *p, const struct target *target);
/* Can p->pair's columns meet in a thread of this GEMM? */
bool program_pairs_meet(const struct program *p, const struct target *target);

/* ---- program_print.c: what a program is, as text ---- */

/* What tensors are called, by the graph's nodes, and where they are. NULL: neither is said. */
struct tensor_names {
    const graph *graph;
    const struct buffer *buffer;
};

/* Its kind and sizes, without the end of the line; the lines of its operands and steps. */
void program_print_head(const struct program *q, struct text *t);
/* " in layers.17.mlp": of the node that it grew from, then others of what it computes. */
void program_print_scopes(const struct tensor_names *names, const struct program *q, struct text *t);
void program_print_body(const struct tensor_names *names, const struct program *q, struct text *t);

#endif
