/*
 * mainloop.h -- what the library knows of a GEMM's main loop: one entry for each kernel template of
 * primitives/tile. A new one is a .cuh there, a mainloop_*.c here, and a line of mainloop_table.c.
 */
#ifndef MAINLOOP_H
#define MAINLOOP_H

#include "schedule.h"

struct search;

struct footprint { /* dynamic shared memory of a block, in bytes: fixed + stages * stage, rounded up */
    int fixed, stage, granule; /* to a multiple of granule */
};

struct mainloop {
    const char *name;   /* in a plan's text, and in the records of tuning */
    const char *kernel; /* primitives/tile/KERNEL.cuh has the template of this name; NULL: a library */
    bool tma;           /* operands and staged stores are tensor maps, and the epilogue may stage
                           and fetch tiles in shared memory; else pointers and strides */
    bool weights;       /* B may be packed: the kernel reads it by a policy of tile/weights.cuh */
    bool turned;        /* A's rows are columns of its products, by 16 */
    bool parts;         /* B may lie in several tensors */
    bool above;         /* a row may see those above it: STEP_CONV1D */
    bool mixed;         /* Config has a type for each operand, A and B, else T for both */
    bool streams;       /* B streams past a few rows of A; each block has an equal share of N */
    bool unrolls;       /* its text has the number of A's rows, and so many of each instruction */
    bool invariant;     /* a row has the same bits in all its tiles, and where it takes p for one number of
                           rows it does for all of them, if p is to keep its bits */
    bool fallback;      /* considered only where no main loop ahead of it in the table has a tile */
    bool contested;     /* cuBLASLt may beat it by price, and so change a plan's programs */

    bool (*supports)(const struct target *target, const struct program *p);
    /* Adds its candidates of a class. */
    void (*candidates)(struct search *s, enum tile_class class);
    /* Clock cycles of p in the tile. */
    double (*cost)(const struct program *p, const struct tile *t, const struct target *target);
    /* Shared memory of one block as a function of the stage count; an upper bound of `sizeof(Shared)`. */
    struct footprint (*footprint)(const struct program *p, const struct tile *t);
    /* Bytes of device memory that it has for itself during a run; NULL: none. */
    int64_t (*scratch)(const struct program *p, const struct tile *t);
    /* Can two blocks run on an SM, by their threads and registers? */
    bool (*shares_sm)(const struct program *p, const struct tile *t);
    /* Threads, grid and launch, from the tile and the layout. */
    void (*complete)(struct schedule *s, const struct program *p, const struct target *target);
    /* Appends the columns of its products, for ptx/wgmma.cuh, before it is included; NULL: it needs none. */
    void (*print_products)(const struct program *p, const struct schedule *s, struct text *t);
    /* Appends the constants of Config that only this kernel has. */
    void (*print_config)(const struct program *p, const struct schedule *s, struct text *t);
};

/* The main loops that make kernels, in the order in which they are asked for candidates; then NULL. */
extern const struct mainloop *const mainloops[];

/* TMA + wgmma, warp-specialised; 16-bit operands, 16-byte pitches. */
extern const struct mainloop mainloop_wgmma;
/* The same with operands of fp8, K-major. */
extern const struct mainloop mainloop_wgmma_f8;
/* TMA + wgmma for A of 16 bits and B of fewer, which is decoded into registers, packed or not. */
extern const struct mainloop mainloop_wgmma_mixed;
/* For 1 or 2 rows of A: streams B through shared memory, fp32 multiply-adds; of 8 bits, mma.sync. */
extern const struct mainloop mainloop_gemv;
/* For at most 16 rows of A: streams B likewise, multiplies by mma.sync. */
extern const struct mainloop mainloop_skinny;
/* For at most 16 rows of A: streams B likewise, which is the rows of mma.sync. */
extern const struct mainloop mainloop_stream_mma;
/* Rows that the kernel of a stream has room for: those that there are if it unrolls them, else any up to 8,
 * or 16. */
int stream_rows(const struct program *p, const struct tile *t);
/* cp.async + mma.sync: 16-bit operands of one dtype, any stride and pitch, any GPU. */
extern const struct mainloop mainloop_mma;
/* cp.async + fp32 multiply-adds: fp32 operands, any stride and pitch, any GPU. */
extern const struct mainloop mainloop_fma;
/* fp32 multiply-adds: any dtype, stride and pitch, any GPU. */
extern const struct mainloop mainloop_simt;
extern const struct tile tile_fallback; /* of it: one for any program, whatever a search finds */
/* A library call, no kernel: a bare product. */
extern const struct mainloop mainloop_cublaslt;

/* ---- The search for the cheapest: mainloop.c ---- */

enum { MOST_CANDIDATES = 128 };

struct search { /* the cheapest `n` of at most `most`, by cost */
    const struct program *p;
    const struct target *target;
    bool square;   /* tiles are walked in squares */
    int most_rows; /* of each candidate */
    bool common;   /* only tiles that serve any number of rows, as they are */
    struct tile tile[MOST_CANDIDATES];
    double cost[MOST_CANDIDATES];
    int n, most;
};

/* The candidates of a class, whose `most` cheapest are wanted; p, most_rows and common are set. */
void search_run(struct search *s, const struct target *target, enum tile_class class);
/* Inserts a candidate by its cost, clock cycles, unless it is there already, or p's rows are to keep their
 * bits and in this tile have others. Stable: equal costs keep the order in which they came. */
void search_add(struct search *s, const struct tile *t, double cost);
/* Calls consider for each of some widths, falling and ended by 0, that hold whole spans of pairs or segments;
 * and for a span that is no part of the widest one. */
void search_widths(struct search *s, const int *width, void (*consider)(struct search *s, int bn));

/* ---- What main loops share ---- */

enum {
    BEGINNING = 300, /* clocks, of a tile */
    LAUNCH = 1500    /* ... from a launch's end to the next one's first load */
};
/* Cycles in which memory gives so many bytes, to all SMs. */
double memory_clocks(const struct target *target, double bytes);
/* Cycles in which memory gives all of B; more if only the part `used` of the SMs asks for it. */
double weight_clocks(const struct program *p, const struct target *target, double used);
/* Does an epilogue fold states of several numbers, of which each push waits for the last one? */
bool program_is_heavy(const struct program *p);
/* complete() of a loop whose blocks have a tile each, and no cluster. */
void mainloop_complete(struct schedule *s, const struct program *p, const struct target *target);
/* print_config() of a loop whose operands are pointers: a_stride_row and so on. */
void mainloop_print_strides(const struct program *p, const struct schedule *s, struct text *t);
/* The same, with a_align and b_align: of so many elements, at most 8, first addresses are multiples. */
void mainloop_print_pointers(const struct program *p, const struct schedule *s, struct text *t);
/* By estimated times: would cuBLASLt, with the epilogue as kernels of its own, beat the tile? Asked of
 * contested main loops; true only where it wins by 5 %, or, of a SIMT tile, a quarter, as that
 * estimate is rough. mainloop_cublaslt.c */
bool tile_loses(const struct program *p, const struct tile *t, const struct target *target);
/* Bytes of device memory that the main loop of p has for itself during a run. */
int64_t tile_scratch(const struct program *p, const struct tile *t);
/* Gives cuBLASLt the products that are stored as they are, where opt or a decision wants it. */
void schedule_cublaslt(struct plan *p, const struct plan_options *opt);
bool program_is_cublaslt(const struct plan *p, int index); /* does it compute this one? */

#endif
