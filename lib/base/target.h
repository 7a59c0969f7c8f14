/*
 * target.h -- what a GPU can do, and how much of it in a clock: all that planning and scheduling know of it.
 *
 * The rows are in targets.def. A plan for a card takes the row with its name; a card that has none takes
 * the first row of the nearest architecture, with what its driver says in place of the row's; a plan without
 * a card takes that row as it is. An architecture that no row has gets none of the row's features.
 */
#ifndef TARGET_H
#define TARGET_H

#include <stdbool.h>
#include <stdint.h>

enum target_feature {
    TARGET_TMA = 1,   /* tensor maps, and mbarriers that count their bytes */
    TARGET_WGMMA = 2, /* a warpgroup multiplies operands in shared memory */
    TARGET_PDL = 4,   /* programmatic dependent launch */
    TARGET_HOPPER = TARGET_TMA | TARGET_WGMMA | TARGET_PDL
};

struct target {
    const char *name;    /* of the row */
    int64_t l2_size;     /* bytes */
    double memory_rate;  /* bytes in a second, by the data sheet */
    double memory_bytes; /* that memory gives an SM in a clock, while all SMs ask */
    double clustered;    /* the part of all SMs that clusters of 8 blocks can be on */
    unsigned features;   /* enum target_feature */
    int sms;
    int shared_bytes;   /* a block may have */
    int portable_bytes; /* a block may have on any GPU that runs kernels without features: sm_86, 89 and 120
                           run those of sm_80 */
    int clock_mhz;      /* of the SMs, under load */
    int boost_mhz;      /* the highest, as the driver has it */
    int l2_bytes;       /* that L2 gives an SM in a clock */
    int wgmma;          /* 16-bit multiply-adds of an SM in a clock by wgmma, at the power that there is */
    int mma;            /* by mma.sync */
    int cublaslt_f32;   /* by cuBLASLt's kernels of fp32 operands ... */
    int cublaslt_odd;   /* ... and of 16-bit ones that wgmma does not take */
    int cluster_bytes;  /* that an SM gets from the others of its cluster in a clock */
};
_Static_assert(sizeof(struct target) == 5 * 8 + 12 * 4, "targets are compared as bytes");

/* What the driver says of a card; 0: it does not say. */
struct target_card {
    const char *name;
    int sms, shared_bytes, boost_mhz;
    int64_t l2_size;
    double memory_rate; /* bytes in a second */
};

#define TARGET(id, ...) TARGET_##id,
enum {
#include "targets.def"
    TARGETS
};
#undef TARGET

/* ORDER targets.def */
extern const struct target target_rows[TARGETS];

/* The target of an architecture such as "sm_90a", with what a card says of itself; NULL: there is none. */
struct target target_of(const char *arch, const struct target_card *card);

static inline bool target_has(const struct target *t, unsigned features)
{
    return (t->features & features) == features;
}

#endif
