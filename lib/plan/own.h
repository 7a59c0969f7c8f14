/*
 * own.h -- operations that have a kernel of their own: one program each, without steps. A kind is a line of
 * OWN_KERNELS, the struct of what it computes, and a file in each room: plan has its own_kind (plan_NAME),
 * schedule its launch (schedule_NAME), emit its text (emit_NAME), cpu its reference (cpu_NAME). Tables that
 * expand OWN_KERNELS find them, and nobody else asks which kind a program is.
 */
#ifndef OWN_H
#define OWN_H

#include "graph.h"
#include "program.h"

#define OWN_KERNELS(X)                                                                                       \
    X(ATTENTION, attention)                                                                                  \
    X(TOP_K, top_k)                                                                                          \
    X(NUCLEUS, nucleus)

enum own {
#define X(NAME, name) OWN_##NAME,
    OWN_KERNELS(X)
#undef X
        OWN_KINDS
};

struct writer; /* fuse.h */
struct grouper;
struct group;

/* What plan knows of a kind. `spec` is the struct below that program.spec points to. */
struct own_kind {
    enum own index;
    enum op op;                                   /* whose nodes become such programs */
    const char *name;                             /* in a plan's picture */
    size_t size;                                  /* of the struct */
    bool by_units;                                /* it has kernels for Hopper's units, and others */
    int shown;                                    /* uses that a plan's text shows, the first ones, ... */
    const char *use_name[6], *stride_name[3];     /* ... by these names; without, as steps do */
    struct tensor_use *(*use)(void *spec, int i); /* as program_use */
    int64_t (*bytes)(const void *spec);           /* as program_bytes */
    double (*flops)(const void *spec);            /* as program_flops */
    bool (*by_data)(const void *spec);            /* is it data how much of that there is to do? NULL: no */
    void (*print)(const void *spec, struct text *t);   /* the head of its text */
    void (*join)(struct grouper *gr, struct group *q); /* joins what the root's program computes too;
                                                          NULL: nothing */
    void (*read)(struct writer *w);  /* makes the spec from the root node, with what it reads */
    void (*store)(struct writer *w); /* adds what it writes, once all programs have said what they
                                        need in memory */
};

#define X(NAME, name) extern const struct own_kind plan_##name;
OWN_KERNELS(X)
#undef X

/* The kind of an operation's programs; NULL: it has no kernel of its own. */
const struct own_kind *own_kind_of(enum op op);

/* ---- Attention ---- */

struct attention_spec {
    int64_t batch, tq, tk; /* sequences; queries and keys of each; packed, queries of all */
    int64_t heads, kv_heads, head_dim;
    const struct prim *score; /* a map that makes other scores of them, in the end; NULL: none */
    float score_param[PRIM_MAX_PARAMS];
    int64_t window; /* last keys that a query sees, its position included; 0: all */
    int64_t ahead;  /* keys that it sees after its position; 0: all, or, if causal, none */
    bool causal;
    coda_attention_align align;   /* where the queries stand among the keys; 0: END */
    float scale;                  /* of Q K^T, before the softmax */
    float softcap;                /* c: scores are c tanh(s / c); 0: as they are */
    struct tensor_use q, k, v, o; /* by strides: batch, time, head; a head's columns are adjacent. Of a pool
                                     batch is from page to page. o has buffer -1 where the sums alone are
                                     wanted */
    struct tensor_use lse;        /* fp32 [batch][heads][tq], packed [heads][tq]: log sum e^score; buffer
                                     -1: not wanted */
    /* Read beside these; buffer -1 of what is not there. */
    struct tensor_use lengths; /* int32 [batch]: keys of each sequence; else tk */
    struct tensor_use ranges;  /* int32 [batch][tq][2]: keys from the first below the second */
    struct tensor_use slopes;  /* fp32 [heads]: what a key's distance from the query takes off its score */
    struct tensor_use sinks;   /* fp32 [heads]: the score of a key more, whose value is 0 */
    struct tensor_use k_scale,
        v_scale;              /* fp32 [kv_heads], or one, of stride 0: what k, v are multiplied by */
    struct tensor_use table;  /* int32 [batch][tk / page]: pages of each sequence's keys, in the pool ... */
    int64_t page, slots;      /* ... of so many rows; keys in a page, 0: they lie one behind the other */
    struct tensor_use bias;   /* [batch][heads][tq][tk] by strides, 0 where one is for all: added to scores */
    struct tensor_use starts; /* int32 [batch + 1]: queries are packed: where those of each sequence begin
                                 among the rows of q, o and ranges, which have no batch then */
};

/* Do queries of sequences that have some each lie one behind the other? */
static inline bool attention_is_packed(const struct attention_spec *a) { return a->starts.buffer >= 0; }

/* Batches of q, o, ranges and lse. */
static inline int64_t attention_batches(const struct attention_spec *a)
{
    return attention_is_packed(a) ? 1 : a->batch;
}

/* The most tiles of `rows` that the queries of a head have. Packed ones have those of each sequence, of the
 * rows before the first and of those behind the last: each of these pieces may end in the midst of a tile. */
static inline int64_t attention_tiles(const struct attention_spec *a, int64_t rows)
{
    if (!attention_is_packed(a)) return a->batch * CEIL_DIV(a->tq, rows);
    return (a->tq + MIN(a->batch + 2, a->tq) * (rows - 1)) / rows;
}

/* Are keys and values of 8 bits? */
static inline bool attention_is_narrow(const struct attention_spec *a)
{
    return a->k.dtype == CODA_F8E4M3 && a->v.dtype == CODA_F8E4M3;
}

/* k and v are lots of rows: sequences, `batch` apart, or the pages of a pool. */
static inline int64_t attention_lots(const struct attention_spec *a)
{
    return a->page ? a->slots / a->page : a->batch;
}
static inline int64_t attention_lot(const struct attention_spec *a) { return a->page ? a->page : a->tk; }

#define ATTENTION_MOST_TIME ((int64_t)1 << 30) /* positions are 32-bit in the kernels */
#define ATTENTION_MOST_BLOCKS ((int64_t)1 << 30)

/* Do scores come as Q K^T has them, but for the scale? */
static inline bool attention_is_plain(const struct attention_spec *a)
{
    return a->softcap == 0 && a->slopes.buffer < 0 && a->bias.buffer < 0 && !a->score;
}

/* Do scores depend on where the query sits? */
static inline bool attention_is_placed(const struct attention_spec *a)
{
    return a->slopes.buffer >= 0 || (a->score && a->score->inputs > SCORE_POSITION);
}

/* Is there a last key, counted from the position, that a query sees? */
static inline bool attention_is_limited(const struct attention_spec *a) { return a->causal || a->ahead; }

/* Keys of a tile of `rows` that lie together: the page, or of it what divides the tile. */
static inline int attention_box(const struct attention_spec *a, int rows)
{
    int64_t box = a->page ? a->page : rows;
    while (box > rows || rows % box) box /= 2;
    return (int)box;
}

static inline bool attention_is_empty(const struct attention_spec *a)
{
    return attention_batches(a) <= 0 || a->heads <= 0 || a->head_dim <= 0 || a->tq <= 0;
}

/* The shift of a sequence of so many queries and keys: its query i stands at position i + shift. */
static inline int64_t attention_shift(const struct attention_spec *a, int64_t queries, int64_t keys)
{
    if (a->align == CODA_ALIGN_START) return 0;
    return (a->align == CODA_ALIGN_LENGTH ? keys : a->tk) - queries;
}

/* ---- The k largest of each row ---- */

struct top_k_spec {
    int64_t rows, columns, k;
    struct tensor_use x;      /* LOAD: over the program's domain. PARTIAL_LOAD: each row's best of each tile
                                 of a product */
    struct tensor_use out[2]; /* values of x's dtype, indices i32; dense */
    int outs;
};

/* Candidates of a row: its columns, or what tiles have left of them. */
int64_t top_k_candidates(const struct top_k_spec *s);

/* ---- The least of each row that top-k, top-p and min-p keep ---- */

enum nucleus_number {
    NUCLEUS_TEMPERATURE,
    NUCLEUS_TOP_K, /* i32; the others are fp32 */
    NUCLEUS_TOP_P,
    NUCLEUS_MIN_P,
    NUCLEUS_NUMBERS
};

struct nucleus_spec {
    int64_t rows, columns;
    struct tensor_use x; /* stride[0] from row to row, stride[1] from column to column */
    struct tensor_use number[NUCLEUS_NUMBERS]; /* of each row by stride[0]; buffer -1: absent */
    struct tensor_use least;                   /* dense */
};

#endif
