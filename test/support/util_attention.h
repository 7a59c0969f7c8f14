/* util_attention.h -- attention programs for the tests of emission and of the GPU. */
#ifndef UTIL_ATTENTION_H
#define UTIL_ATTENTION_H

#include "util_program.h"

enum attention_layout {
    LAYOUT_ROWS,   /* q, k, v, o: [batch][time][heads * head_dim + pad] */
    LAYOUT_PACKED, /* q, k, v side by side in the rows of one buffer; tq == tk */
    LAYOUT_HEADS   /* [batch][heads][time][head_dim + pad] */
};

/* A map of scores, and the same in plain C. */
struct attention_score {
    struct prim map; /* without a source: the one of primitives/map of this name */
    float param[PRIM_MAX_PARAMS];
    double (*formula)(double s, double position, double key, double head);
};
enum { SCORE_NONE, SCORE_BIAS, SCORE_DISTANCE, SCORE_CAP, SCORE_STRIPES, SCORES };
extern const struct attention_score attention_scores[SCORES];

/* What is added to scores, of [batch][heads][tq][tk]. */
enum {
    BIAS_NONE,
    BIAS_WHOLE,  /* all four */
    BIAS_HEADS,  /* [heads][tq][tk], as of relative positions; rows are 2 longer */
    BIAS_KEYS,   /* [batch][1][1][tk]: padding */
    BIAS_ROWS,   /* [heads][tq][1] */
    BIAS_ODD,    /* all four, behind an element more, rows of one more */
    BIAS_TURNED, /* [heads][tk][tq], read the other way */
    BIASES
};

struct attention_case {
    const char *name;
    coda_dtype dtype;
    int64_t batch, tq, tk, heads, kv_heads, head_dim;
    bool causal;
    int64_t window;
    bool lengths;
    enum attention_layout layout;
    int64_t pad;
    float scale; /* 0: 1 / sqrt(head_dim) */
    int align;   /* a coda_attention_align */
    int64_t ahead;
    float softcap;
    bool ranges, slopes, sinks;
    bool lse;
    bool base;       /* by a kernel that serves any shape */
    int64_t page;    /* not packed; tk is a multiple of it */
    coda_dtype keys; /* of k and v; 0: as the others, also where packed */
    int scales;      /* of k and v: 1, or one for each key head: 2; 0: none */
    bool starts;     /* tq queries of all sequences, packed; LAYOUT_HEADS has them as one batch's */
    int score;       /* of attention_scores */
    int bias;        /* a BIAS */
    bool bias16;     /* it is of the dtype of q */
    bool stepped;    /* scores rise and fall by large steps from block to block */
};

extern const struct attention_case attention_cases[];
extern const int attention_case_count;

/* An H200, as the planner sees it. */
#define attention_target target_rows[TARGET_H200]

/* Rows of the pool of pages, some of which no sequence has; of a sequence's keys where there are none. */
int64_t attention_case_slots(const struct attention_case *c);
void attention_case_spec(const struct attention_case *c, struct attention_spec *out);
/* Does the kernel for Hopper's units take it? */
bool attention_fits_sm90(const struct attention_spec *a, const struct target *target);
/* Buffers of every case are the uses of its spec. A packed one has its three operands in ATTENTION_Q.
 * Elements of a buffer; 0 for one that the case does not use. */
int64_t attention_case_elements(const struct attention_case *c, int buffer);
/* A case with its program, schedule and kernel, whose memory is the plan's. */
struct attention_rig {
    struct plan plan;
    struct program p;
    struct attention_spec attention;
    struct schedule s;
    struct kernel k;
};
/* On Hopper's units, or on any GPU; fails if the former do not take it. What blocks leave for each other is
 * behind the uses: buffer ATTENTION_USES, of s.parts_bytes. */
coda_status attention_emit(struct attention_rig *r, const struct attention_case *c, bool sm90);

/* gpu_attention.c: so many launches of Hopper's kernel, with `before` ahead of its text, give the same bits,
 * which are right. */
struct jit_device;
int attention_repeats(const struct jit_device *device, const struct attention_case *c, const char *before,
                      int runs);

#endif
