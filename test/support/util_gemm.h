/* util_gemm.h -- GEMM programs made by hand: a table of shapes, layouts and epilogues, and what their
 * results must be in fp64. Shared by the tests that compile them and those that run them. */
#ifndef UTIL_GEMM_H
#define UTIL_GEMM_H

#include "util_program.h"

enum { GEMM_BUFFERS = 16, GEMM_PORTS = 16, GEMM_STEPS = 32 };

enum gemm_fill { FILL_NORMAL, FILL_WEIGHT, FILL_POSITIVE, FILL_IDS, FILL_OUTPUT, FILL_SUM };

/* One program, each of whose buffers is an argument. */
struct gemm_rig {
    struct plan plan; /* of p and s */
    struct program p;
    struct schedule s;
    struct kernel k;
    struct buffer buffer[GEMM_BUFFERS];
    struct tensor_use port[GEMM_PORTS];
    struct step step[GEMM_STEPS];
    coda_dtype dtype[GEMM_BUFFERS];
    int64_t elements[GEMM_BUFFERS], below[GEMM_BUFFERS]; /* FILL_IDS: 0 .. below - 1 */
    enum gemm_fill fill[GEMM_BUFFERS];
    void *host[GEMM_BUFFERS];
};

/* Columns of the product, or of a gated output. */
static inline int64_t gemm_width(const struct gemm_rig *r, bool half) { return r->p.dim[2] / (half ? 2 : 1); }

struct gemm_case {
    const char *name;
    int64_t batch, m, n, k;
    coda_dtype dtype, weight; /* of a, and of b */
    bool a_mn, b_mn;          /* the operand's rows are adjacent in memory, not its k */
    int pitch;                /* elements added to every pitch */
    void (*epilogue)(struct gemm_rig *r, int acc);
    enum pair_kind pair;
    struct pairing rope;
    struct tile tile; /* bm 0: tile_choose */
};
extern const struct gemm_case gemm_cases[];
extern const int gemm_case_count;
#define gemm_target target_rows[TARGET_H200]

/* On Hopper's units; by mma.sync, as on other GPUs; with operands of fp32, whatever the case has, by their
 * main loop; by the plain one, also where another one fits. GEMM_MMA has no cases of fp32 operands. */
enum gemm_loop { GEMM_HOPPER, GEMM_MMA, GEMM_FMA, GEMM_SIMT, GEMM_LOOPS };

/* Builds the program, chooses its tile, for GEMM_MMA and GEMM_FMA any of theirs, and emits it for so many
 * SMs. */
coda_status gemm_emit(const struct gemm_case *c, enum gemm_loop loop, int sms, struct gemm_rig *r);
/* One of all candidates for this case, the one that tile_choose takes or not. */
struct tile gemm_any_tile(const struct gemm_case *c, uint64_t number);
/* What element i of a sum is before the program adds to it. */
static inline double gemm_begin(int64_t i) { return (double)(i % 13) - 6; }
void gemm_begin_sum(const struct gemm_rig *r, int buffer); /* in host memory */
bool gemm_fill(struct gemm_rig *r, uint64_t seed);         /* host memory; false if there is none left */
void gemm_free(struct gemm_rig *r);

/* Does this run take case i? See util_scale.h. */
bool gemm_case_taken(int i, enum gemm_loop loop);

/* For those who build programs: a buffer, which is an argument; a step. They return its index. */
int gemm_add_buffer(struct gemm_rig *r, coda_dtype t, int64_t elements, enum gemm_fill fill);
int gemm_add_step(struct gemm_rig *r, struct step s);

/* ---- util_gemm_check.c ---- */

/* Compares the outputs in host memory on row m of `batch`: the largest error, in units of what fp32
 * sums and one rounding to the stored dtype may cause. */
double gemm_row_error(const struct gemm_rig *r, int64_t batch, int64_t m);
/* The same of what was folded down the columns of `batch`, 0 if nothing was. */
double gemm_columns_error(const struct gemm_rig *r, int64_t batch);
/* Nothing was written between the rows of an output. */
bool gemm_padding_is_poison(const struct gemm_rig *r);

#endif
