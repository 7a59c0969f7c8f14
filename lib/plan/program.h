/*
 * program.h -- what one kernel computes: GEMM + epilogue, rows, or attention. An epilogue is a list of steps
 * over the values of one element, its row and its column; emit_*.c prints it as CUDA C++, cpu.c interprets
 * it.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "base.h"
#include "prim.h"

/* ---- Ports: how a program reads or writes one tensor over its domain ---- */

enum port_kind {
    PORT_LOAD,          /* element (i0, i1, ...) at offset + sum stride[d] * i_d                   */
    PORT_GATHER,        /* as LOAD, but the row index is the value of step `index` (embedding):
                           element offset + id * table_stride + stride[last] * column; an id outside
                           0..table_rows-1 reads 0                                                 */
    PORT_STORE,
    PORT_PARTIAL_LOAD,  /* merge and finish `blocks` states of `reduce` for each row               */
    PORT_PARTIAL_STORE  /* the state of this tile's columns: f32 [row][block][state], dense        */
};

struct port {
    enum port_kind kind;
    int buffer;
    int64_t offset;                /* elements                                                     */
    coda_dtype dtype;
    int64_t stride[CODA_MAX_RANK]; /* elements, one for each dimension of the domain; 0 repeats    */
    const struct prim *reduce;     /* partials                                                     */
    int blocks;                    /* partials: states for each row                                */
    int index;                     /* GATHER: the step that holds the id                           */
    int64_t table_rows, table_stride;
    int value;                     /* node, for printing                                           */
};

/* ---- Steps: straight-line code in SSA form; a step's value is named by its index ---- */

enum step_kind {
    STEP_ACC,    /* the GEMM's accumulator                                                         */
    STEP_LOAD,   /* port                                                                           */
    STEP_PARTIAL,/* port (PARTIAL_LOAD): a row value                                               */
    STEP_MAP,    /* prim of in[], param[]                                                          */
    STEP_LANE,   /* GLU: half `lane` (0 gate, 1 up) of the full-width value in[0]                  */
    STEP_ROPE,   /* in[0] rotated; in[1] is the row's position, or -1: row index % rope.period     */
    STEP_REDUCE, /* prim over the row of in[0], key in[1] or -1. ROWS: its value is a row value.
                    GEMM: goes to port (PARTIAL_STORE) and has no value                            */
    STEP_STORE   /* in[0] to port                                                                  */
};

/* What a value varies with. */
enum step_class { CLASS_ROW, CLASS_COL, CLASS_TILE };

enum { IMMEDIATE = -1 };

struct step {
    enum step_kind kind;
    enum step_class cls;
    bool half;                 /* GEMM with PAIR_GLU: lives on the N/2 output columns              */
    const struct prim *prim;
    int in[PRIM_MAX_INPUTS], nin;    /* steps; a MAP's may be IMMEDIATE: the number of that place  */
    float immediate[PRIM_MAX_INPUTS];
    float param[PRIM_MAX_PARAMS];
    int port;
    int lane;
    int value;                 /* node, for printing; -1 if none                                   */
};

/* ---- Programs ---- */

/* Columns that meet in one thread. GLU: the weight's rows n and n + N/2 (stacked) or 2n and 2n + 1
 * (interleaved) are loaded into the two halves of one B tile, so that in the tile gate and up are
 * tile.bn / 2 columns apart and the output has N/2 columns. ROPE: the pairs of plan.rope. */
enum pair_kind { PAIR_NONE, PAIR_GLU_INTERLEAVED, PAIR_GLU_STACKED, PAIR_ROPE };

struct rope_spec {
    int64_t head_dim, rotary, heads; /* heads rotated                                              */
    bool half;                       /* pairs (i, i + rotary/2), else (2i, 2i+1)                   */
    float base;
    int64_t period;                  /* default positions: row % period                            */
};

enum mainloop {
    MAINLOOP_SM90, /* TMA + wgmma, warp-specialised; 16-bit operands, 16-byte pitches              */
    MAINLOOP_SIMT, /* any dtype, stride and pitch                                                  */
    MAINLOOP_CUBLASLT,
    MAINLOOP_GEMV,  /* as SM90, for a row or two: streams B, multiplies on the plain units          */
    MAINLOOP_SKINNY /* likewise up to 16 rows, on the matrix units                                  */
};

struct tile {
    enum mainloop mainloop;
    int bm, bn, bk; /* bn counts columns of the full width N                                       */
    int stages;
    int groups;     /* consumer warpgroups                                                         */
    bool pingpong;  /* each warpgroup a whole tile, else bm is split among them                    */
    int splits;     /* blocks of a cluster that share K; 0 is 1                                    */
    bool scattered; /* each drains a share of the columns; else the first block drains all         */
    int cluster_m, cluster_n; /* blocks of a cluster whose tiles are neighbours along M: B's tile is
                                 loaded once for all; along N: A's; 0 is 1; one of them is 1        */
    int blocks;     /* streaming: that share the columns evenly; with a tail: that share the tiles      */
    int tail, tail_bn; /* the last tiles of each row are narrower: so many, so wide                   */
    int band;       /* tile rows that are walked together, for L2; or columns:                     */
    bool across;
    bool serpentine; /* a block's every second tile is multiplied from the end of K                */
    bool lends;      /* the ring's slots, to the epilogue, which has no memory of its own          */
};

struct operand {
    int buffer;
    int64_t offset;                 /* elements                                                    */
    coda_dtype dtype;
    int64_t batch, row, k;          /* strides in elements: of the batch, of M (or N), of K        */
    bool steady;                    /* no program of a run writes it: an argument, or folded       */
    int value;
};

struct attention_view {
    int buffer;
    int64_t offset;                 /* elements                                                    */
    coda_dtype dtype;
    int64_t batch, time, head;      /* strides in elements; columns of a head are adjacent         */
    int value;
};

struct attention_spec {
    int64_t batch, tq, tk, heads, kv_heads, head_dim, window;
    bool causal;
    coda_attention_align align;     /* 0: END                                                      */
    float scale;
    struct attention_view q, k, v, o;
    int lengths;                    /* buffer of int32 [batch], or -1                              */
    int64_t lengths_offset, lengths_stride;
    bool sm90;                      /* TMA + wgmma kernel, else the SIMT one                       */
};

/* Query i sits at position i + shift, in a sequence of so many keys. */
static inline int64_t attention_shift(const struct attention_spec *a, int64_t keys)
{
    if (a->align == CODA_ALIGN_START) return 0;
    return (a->align == CODA_ALIGN_LENGTH ? keys : a->tk) - a->tq;
}

enum program_kind { PROGRAM_GEMM, PROGRAM_ROWS, PROGRAM_ATTENTION };

/* A kernel's parameters are 4 kB at most. Groups are cut so that their programs need less (fuse.c). */
#define KERNEL_MAX_MAPS 9
#define KERNEL_MAX_POINTERS ((4096 - KERNEL_MAX_MAPS * 128) / 8)

/* A tiled tensor map (cuTensorMapEncodeTiled), innermost dimension first; swizzle is the box's inner
 * bytes: 0, 32, 64 or 128. */
struct map_spec {
    int buffer;
    int64_t offset;                 /* elements                                                    */
    coda_dtype dtype;
    int rank;
    int64_t dim[5], stride[5];      /* elements; stride[0] is 1                                    */
    int box[5];
    int swizzle;
};

/* What emit_*.c makes of a program: text, geometry, and the one parameter struct of the kernel:
 * `maps` tensor maps of 128 bytes, then `pointers` device pointers. */
struct kernel_spec {
    const char *symbol;             /* coda_gemm_mul_rope                                          */
    const char *text;
    int64_t grid;                   /* blocks, 1-D; 0 for an empty domain: not launched. For a
                                       persistent kernel an upper bound, clipped to the SMs        */
    int cluster;                    /* blocks that start together, by their number; 0 is 1         */
    bool persistent;                /* at most one block for each SM                               */
    bool early;                     /* may start before the program ahead of it has ended: until
                                       then it reads steady operands alone, and writes nothing     */
    int threads, shared_bytes;
    int maps, pointers;
    struct map_spec *map;
    struct pointer_spec { int buffer; int64_t bytes; } *pointer; /* bytes: offset                  */
};

struct program {
    enum program_kind kind;
    bool prepare;                   /* run by coda_prepare, not by coda_run                        */
    int root;                       /* node it grew from                                           */
    int rank;                       /* domain; columns last. GEMM: [batch, M, N], rank 3           */
    int64_t dim[CODA_MAX_RANK];
    int64_t k;                      /* GEMM                                                        */
    struct operand a, b;            /* GEMM: a [batch][M][K], b [batch][N][K] by strides           */
    enum pair_kind pair;            /* GEMM                                                        */
    struct rope_spec rope;          /* a program has at most one STEP_ROPE                         */
    struct tile tile;               /* GEMM                                                        */
    int scratch;                    /* cuBLASLt's workspace, a buffer; -1 if none                  */
    const struct figures *figures;  /* GEMM: what tuning measured; NULL: nothing                   */
    struct attention_spec attention;
    struct port *port;
    struct step *step;
    int ports, steps;
    struct kernel_spec kernel;
};

/* ---- program.c: questions ---- */

bool step_has_value(const struct program *q, const struct step *s);
/* Do two steps, REDUCE or PARTIAL, read one state? */
bool step_shares_state(const struct program *q, const struct step *a, const struct step *b);
/* Calls fn for each buffer that the program reads, or writes, until it says true. */
bool program_any_read(const struct program *q, bool (*fn)(void *ctx, int buffer), void *ctx);
bool program_any_write(const struct program *q, bool (*fn)(void *ctx, int buffer), void *ctx);
int64_t program_bytes(const struct program *q); /* read + written */
double program_flops(const struct program *q);
bool program_is_gated(const struct program *p);
int program_lanes(const struct program *p); /* of a slot                                           */
int64_t program_columns(const struct program *p); /* of the output: N or N/2                       */
bool rope_counts_rows(const struct program *p); /* a row's position is its number: no step computes it */
bool plan_suits_cublaslt(const struct program *p); /* its product; operands of two dtypes do not   */

/* ---- target_pairs.c: what Hopper's units can take, which decides what may be fused ---- */

/* What is between an operand and TMA, which wants 16-bit elements, adjacent ones, and steps of 16 bytes. */
enum obstacle { FITS, HAS_NO_UNIT_STRIDE, BEGINS_ODDLY, HAS_ODD_PITCH, HAS_ODD_BATCHES, IS_NOT_16_BIT };
enum obstacle program_a_obstacle(const struct program *p);
enum obstacle program_b_obstacle(const struct program *p);
static inline int64_t operand_pitch(const struct operand *o) { return o->k == 1 ? o->row : o->k; }
static inline bool operand_is_mn_major(const struct operand *o) { return o->k != 1; }
bool program_has_work(const struct program *p); /* a GEMM with elements, and a K                   */
bool tile_fits_sm90(const struct program *p); /* is there any tile of TMA and wgmma?               */
bool tile_pairs_ok(const struct program *p); /* may p->pair be fused into this GEMM?                */

#endif
