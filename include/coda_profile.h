/*
 * coda_profile.h -- how long each launch of a plan takes, beside what it takes at least; and what happens
 * before a run. A part of coda.h, which includes it: programs include coda.h alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CODA_PROFILE_H
#define CODA_PROFILE_H

#include "coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
 * Profile
 *
 *     coda_profile *f;
 *     coda_profile_total all = CODA_PROFILE_TOTAL_INIT;
 *     if (coda_plan_profile(&f, p, args, NULL, workspace, stream, NULL) != CODA_OK) puts(coda_error());
 *     coda_profile_total_get(f, &all);                      // and coda_profile_launch_get for each launch
 *     coda_profile_free(f);
 *
 * The floor of a launch is the larger of two times: bytes over the rate of a plain copy, and FLOPs over the
 * rate of a plain product of the same dtype. Both rates are measured on the device at hand, by the same call:
 * what a copy and a product of some hundred megabytes reach there, not what a data sheet says. So a launch
 * may be a little below its floor: a kernel that reads more than it writes may be faster than a copy.
 * ---------------------------------------------------------------------------------------------- */

typedef struct coda_profile coda_profile;

typedef struct coda_profile_options {
    size_t size;
    const int64_t *dims; /* a value for each symbol, as in coda_run_options */
    int dim_count;       /* the number of symbols: 0 (INIT) for a plan without */
    int threads;         /* as in coda_run_options */
    int rounds;          /* timed runs of each kind, 1 to 10000; 0 (INIT): as many as half a second has, but
                          * from 5 to 100; of a plan of several ranks 10: all ranks profile it, alike */
    double copy_rate;    /* bytes read and written in a second by a copy; 0 (INIT): it is measured */
    double product_rate; /* FLOPs in a second, of products of every dtype; 0 (INIT): measured for each */
} coda_profile_options;
#define CODA_PROFILE_OPTIONS_INIT {sizeof(coda_profile_options), NULL, 0, 0, 0, 0, 0}

/* Runs the plan many times and times it. Takes what coda_run takes, and leaves behind what so many runs do:
 * what coda_output_add and states add up is added many times, and consumed inputs hold nothing. It waits for
 * `stream`, then measures on a stream of its own (of the CPU device: by the clock), and returns when the
 * device is done. Each round is two runs:
 *
 *     one by one    an event is recorded behind each launch, so that none overlaps the next
 *     whole         as a captured CUDA graph; of the CPU device, as coda_run
 *
 * and caches are written over before either, so that operands come from memory, as in a model of many layers.
 * The sum of the launches is more than the whole run by what launches that overlap save: some microseconds
 * each, which is much of a run of one token and little of one of 2,048.
 *
 * Device memory is allocated to be copied, and for two square matrices of up to 8,192 rows and their product,
 * of each dtype that the plan multiplies: at most half of what is free. It is given back before the call
 * returns. While rounds run nothing is allocated. A rate that cannot be measured, for want of memory or of a
 * compiler, is 0, and no floor counts it.
 *
 * Several threads may profile at a time, also one plan with a workspace each, but what runs beside is
 * measured along. Nothing else should run on the device, and the stream is not captured (CODA_E_INVALID).
 * Errors are those of coda_run and coda_run_shaped; CODA_E_MEMORY. On failure *out is NULL; else you free it.
 * Whatever it tells stays valid until then, also when the plan is freed. opt may be NULL. */
CODA_API coda_status coda_plan_profile(coda_profile **out, const coda_plan *p, void *const *args,
                                       void *prepared, void *workspace, coda_stream stream,
                                       const coda_profile_options *opt);
CODA_API void coda_profile_free(coda_profile *f);

/* Times are milliseconds. */
typedef struct coda_profile_total {
    size_t size;
    const char *device;  /* "NVIDIA H200"; "cpu v4" */
    int launches;        /* of a run */
    int rounds;          /* that were timed */
    double run_ms;       /* a whole run: median, ... */
    double run_least_ms; /* ... and least */
    double sum_ms;       /* of the launches' medians */
    double floor_ms;     /* of the launches' floors */
    int64_t bytes;       /* of all launches, as in coda_plan_stats */
    double flops;
    double copy_rate;    /* bytes read and written in a second by a copy; 0: not measured */
} coda_profile_total;
#define CODA_PROFILE_TOTAL_INIT {sizeof(coda_profile_total), NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0}
CODA_API coda_status coda_profile_total_get(const coda_profile *f, coda_profile_total *out);

/* Strings are never NULL; those that say nothing are "". */
typedef struct coda_profile_launch {
    size_t size;
    int program;         /* its number in CODA_TEXT_PLAN, behind the @; of several, the first one's */
    const char *kernel;  /* the symbol that a profiler shows; "cublaslt"; of the CPU device "gemm", ... */
    const char *work;    /* sizes and steps: "gemm batch=1 m=64 n=256 k=256: add, sum_sq" */
    const char *makes;   /* values that it stores: "%q, %k" */
    const char *scope;   /* of coda_scope_push: "layers.17.mlp", or several */
    const char *tile;    /* "wgmma 128x256x64 stages=4"; of the CPU device "" */
    double ms;           /* median */
    double least_ms;
    double floor_ms;     /* max(bytes / copy_rate, flops / product_rate) */
    int64_t bytes;       /* read and written, each tensor once */
    double flops;        /* of products and attention, 2 for a multiply-add */
    double product_rate; /* FLOPs in a second of a plain product of its dtype; 0: it has no FLOPs, or the rate
                          * was not measured */
} coda_profile_launch;
#define CODA_PROFILE_LAUNCH_INIT \
    {sizeof(coda_profile_launch), 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0}
/* In launch order, index 0 to launches - 1; CODA_E_INVALID for others. */
CODA_API coda_status coda_profile_launch_get(const coda_profile *f, int index, coda_profile_launch *out);

/* ------------------------------------------------------------------------------------------------
 * Events: what takes time before a run
 * ---------------------------------------------------------------------------------------------- */

typedef enum coda_event_kind {
    CODA_EVENT_CACHE_HIT = 1,      /* a kernel was found, loaded in the process or in the cache */
    CODA_EVENT_CACHE_MISS = 2,     /* it was not, and is compiled now */
    CODA_EVENT_COMPILE_BEGIN = 4,  /* NVRTC gets its text */
    CODA_EVENT_COMPILE_END = 8,    /* ms: how long it took; text: why it failed, or "" */
    CODA_EVENT_LOAD = 16,          /* the driver has loaded it, in ms */
    CODA_EVENT_TUNE = 32,          /* a product was measured, in ms; name: what it computes */
    CODA_EVENT_PLAN = 64,          /* coda_compile has made a plan, in ms: its whole call; name: "" */
    CODA_EVENT_UNWRITTEN = 128     /* a file that the environment asks for is not written; nothing stops.
                                    * name: CODA_TRACE or CODA_DUMP; text: it, and why. Once of each */
} coda_event_kind;

/* Strings are valid during the call, and never NULL. */
typedef struct coda_event {
    size_t size;
    coda_event_kind kind;
    const char *name; /* the kernel's, if the kind says nothing else */
    const char *text;
    double ms;        /* 0: it is a moment */
} coda_event;
#define CODA_EVENT_INIT {sizeof(coda_event), (coda_event_kind)0, NULL, NULL, 0}

/* From now on fn is called with each event of these kinds (a sum of them), of all plans of the process; fn
 * NULL: nobody is. There is one fn at a time: the last one. It is called in the thread in which it happens,
 * by several at a time, and must not call coda. When coda_on_event returns, no call of the fn before is under
 * way in this process any more. CODA_E_INVALID: kinds is 0 or has unknown bits. Events of kernels that a
 * child compiles (CODA_CACHE_ISOLATE) come from this process. Where nobody listens an event costs a look at
 * a number. */
CODA_API coda_status coda_on_event(void (*fn)(void *context, const coda_event *event), void *context,
                                   unsigned kinds);

#ifdef __cplusplus
}
#endif

#endif
