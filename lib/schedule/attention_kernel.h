/*
 * attention_kernel.h -- what the library knows of an attention kernel: one entry for each template of
 * primitives/attention. A new one is a .cuh there, an attention_NAME.c here, an emit_attention_NAME.c, and a
 * line of ATTENTION_KERNELS.
 */
#ifndef ATTENTION_KERNEL_H
#define ATTENTION_KERNEL_H

#include "attention.h"
#include "reasons.h"
#include "schedule.h"

/* In the order in which they are asked: the first one that fits takes a program. */
#define ATTENTION_KERNELS(X)                                                                                 \
    X(SPLIT, split) /* few queries: TMA and mma.sync, the keys split over a cluster */                       \
    X(SHORT, short) /* few keys for each query: TMA and wgmma, many blocks on an SM */                       \
    X(WGMMA, wgmma) /* many queries: TMA and wgmma */                                                        \
    X(SIMT, simt)   /* what no other takes, on any GPU */

enum attention_kernel_index {
#define X(NAME, name) ATTENTION_BY_##NAME,
    ATTENTION_KERNELS(X)
#undef X
        ATTENTION_BY_COUNT
};

/* Requirements on a kernel beside what it computes. */
struct attention_terms {
    const struct target *target;
    bool invariant; /* the bits of a query must not tell how many rows there are */
    bool base;      /* kernels are wanted that serve other shapes, too: plan_options.base */
};

struct attention_tile {
    int bm, bn;           /* queries and keys; bm 0: no tile fits */
    int stages;           /* of the ring of keys and values */
    int threads;          /* of a block */
    int cluster;          /* blocks that share a tile's keys; 0: one has all */
    int residents;        /* blocks on an SM for which registers are kept; 0: 1 */
    bool persistent;      /* as in struct schedule */
    int64_t shared_bytes; /* of a block, which the emitted text asserts */
    int64_t parts_bytes;  /* of what blocks that share the last round's tiles leave; 0: none do */
    int64_t blocks;       /* 0: nothing to do */
};

struct attention_kernel {
    enum attention_kernel_index index;
    const char *suffix;  /* of the kernel's name */
    const char *units;   /* in a plan's text: what it runs on, ... */
    const char *cluster; /* ... and how it calls blocks that share keys */
    bool fallback;       /* it is slow: schedule_reasons says why no other one fits */
    /* Can it compute a? If not, *why says what is in the way. */
    bool (*fits)(const struct attention_spec *a, const struct attention_terms *on, struct reason *why);
    struct attention_tile (*tile)(const struct attention_spec *a, const struct attention_terms *on);
    /* Does it read keys and values before it waits for the programs ahead? NULL: it waits before it reads. */
    bool (*reads_early)(const struct attention_spec *a, const struct attention_tile *t);
};

#define X(NAME, name) extern const struct attention_kernel attention_##name;
ATTENTION_KERNELS(X)
#undef X

/* ---- attention_units.c: what the kernels for Hopper's units share ---- */

/* Columns of a head that no shared memory holds, whose bytes can be counted. */
enum { FAR_TOO_WIDE = 1 << 20 };

/* Tiles of so many queries, of all heads. */
int64_t attention_blocks(const struct attention_spec *a, int64_t bm);
/* SMs for clusters: a GPC whose SMs are no multiple of a cluster leaves some idle. */
int attention_clustered_sms(const struct target *target);
/* Can TMA bring q, k and v, and are the columns of a head as many as registers hold? */
bool attention_fits_units(const struct attention_spec *a, const struct attention_terms *on,
                          struct reason *why);
bool attention_is_scaled(const struct attention_spec *a);
/* attention_wgmma.c: tiles whose queries shared memory has at a time; may registers have those of one?
 * `cluster` blocks share a tile's keys. */
int attention_query_slots(const struct attention_spec *a, int cluster, int bm);
bool attention_holds_queries(const struct attention_spec *a, int cluster, int bm);
/* attention_rounds.c: tiles of a head that are whole, behind which come, if `small` ones may, of 64 queries;
 * what the busiest block then has to do, in hundredths of a whole tile: 0 where that was not counted. Is it
 * less if all blocks share the keys of a last round of whole tiles? */
int64_t attention_whole(const struct attention_spec *a, int bm, bool small, int sms, int64_t *load);
bool attention_may_share(const struct attention_spec *a, int bm, int bn, int sms);
/* How many whole tiles the busiest SM has. */
double attention_rounds(const struct attention_spec *a, int bm, int bn, int sms);
/* May tiles of 64 queries follow the others? Then all see all keys, and blocks go from tile to tile. */
bool attention_may_end_small(const struct attention_spec *a, int cluster);
/* Says no, and why: false. */
bool attention_no(struct reason *why, enum reason_kind kind, int node, int64_t a, int64_t b);

#endif
