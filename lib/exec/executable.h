/* executable.h -- coda_plan: a plan with its kernels, ready to run. */
#ifndef EXECUTABLE_H
#define EXECUTABLE_H

#include "bind.h"
#include "jit.h"
#include "kernel.h"
#include "plan.h"
#include "ranks.h"

#include <stdatomic.h>

struct compiled_kernel {
    struct coda_kernel_info info;
    struct jit_cubin cubin;
    struct jit_kernel *kernel; /* GPU only */
    struct table_words *words; /* kernel_table.h: its text, if that is there; or NULL */
    const struct kernel *spec;
    coda_status status; /* of its compilation */
    char *error;        /* JIT_ERROR_SIZE bytes; NULL: it was not compiled */
};

enum { KERNEL_NONE = -1 };

struct compiled_program {
    const struct runner *runner; /* runner.h; NULL: its domain is empty, and nothing runs */
    void *own;                   /* what the runner's load() made; or NULL */
    struct kernel emitted;       /* of a runner of kernels, ... */
    int kernel;                  /* ... its index, else KERNEL_NONE */
    struct jit_map *map;         /* encoded with a placeholder address */
    struct jit_launch launch;
    uint32_t blocks;   /* of the launch, that it has */
    bool aside;        /* it has the second stream: aside.c */
    int after, mark;   /* the mark that it waits for, that is set behind it; -1: none */
    const char *range; /* what profilers and traces call it; NULL: there are none */
};

struct plan_group {
    int arg;
    int64_t ranks;
};

struct coda_plan {
    struct arena arena;
    struct plan plan;
    struct plan_options options; /* that the plan was made with, for who asks for its reasons, ... */
    bool fast_fp16, no_deferral; /* ... and what rewriting had besides */
    coda_device device;
    bool runnable; /* not CODA_DEVICE_NONE, not CODA_PLAN_ONLY */
    struct jit_device gpu;
    struct compiled_kernel *kernel;
    int kernels;
    struct compiled_program *program; /* one for each of plan.program */
    struct coda_arg_info *arg;
    struct place *place; /* of each argument */
    int args;
    bool states;              /* some of them are */
    uint64_t graph_digest;    /* of the caller's graph, symbols and all, as text */
    struct agenda agenda;     /* agree.c */
    struct plan_group *group; /* each once */
    int groups;
    bool prepares_exchange; /* coda_prepare does */
    int marks,
        joins; /* of a run with a second stream: how many, the one that it ends behind; 0: it has none */
    int *completed, *completed_at; /* completion.c */
    struct coda_plan_stats stats;
    int measured;       /* programs that this compilation tuned */
    const char **tuned; /* what was asked of figures, and there were some */
    int tuneds;
    const char *arch;
    char *text[CODA_TEXT_DOT + 1];
    struct shapes *shapes; /* of a graph with symbols, where this is the plan of the largest; see shapes.h */
};

/* kernels.c: emit, compile, load, in this order. */
coda_status kernels_threads(int *out); /* that compile: $CODA_COMPILE_THREADS, or all cores */
/* What identifies the programs of plans that were written down from one template. */
struct template_ids {
    int *first;               /* of each program: the first one that equals it, in each of the plans */
    struct product **product; /* variants.h: of each program; a product without one may differ in more */
};
/* A text that the table has is not printed again; NULL: all are printed. `ids`: those of the template from
 * which the plan was written down, or NULL. */
struct kernel_table;
coda_status kernels_emit(struct coda_plan *p, struct kernel_table *table, const struct template_ids *ids);
/* Compiles the kernels from `first` on, in so many threads; 0: in kernels_threads(). Once *stops, if it is
 * not NULL, no further one is begun, which is a failure. */
coda_status kernels_compile(struct coda_plan *p, int first, const struct jit_options *opt, int threads,
                            const atomic_bool *stops);
coda_status kernels_load(struct coda_plan *p, const struct jit_options *opt);
void kernels_free(struct coda_plan *p);

/* early.c: which launches start before the kernel ahead has ended; those that stream weights keep their
 * blocks apart. */
void early_starts(struct coda_plan *p);
/* Shared memory of a launch that streams weights and starts early, so that no SM gets two of its blocks while
 * another gets none. `ahead`: the launch before it, if that streams, too; or NULL. */
unsigned early_shared(const struct jit_launch *l, const struct jit_launch *ahead,
                      const struct jit_device *gpu);
/* The most that launches of a kernel ask for. */
int early_most_shared(const struct launch_spec *l, const struct jit_device *gpu);
/* Compiles and loads the kernels of several emitted plans that the table lacks, and adds them to it. */
coda_status kernels_load_into(struct kernel_table *t, struct coda_plan *const *plan, int plans,
                              const struct jit_options *opt);

/* executable.c: NULL is fine. */
void executable_free(struct coda_plan *p);

/* Who is told before the first program of a run, and behind each one that the stream has, or on the CPU
 * device that has ended. */
struct run_watch {
    coda_status (*first)(void *context);
    coda_status (*behind)(void *context, int index);
    void *context;
};

/* carrier.c: coda_group_nccl. */
coda_status carrier_adopt(coda_group **out, void *comm, int timeout_ms);

/* run.c: coda_run, coda_prepare and coda_prepare_adopt of a plan that is there. Of `opt`
 * threads and done count; NULL: none are set. */
coda_status executable_run(const struct coda_plan *p, void *const *args, void *prepared, void *workspace,
                           coda_stream stream, const coda_run_options *opt);
coda_status executable_watched(const struct coda_plan *p, void *const *args, void *prepared, void *workspace,
                               coda_stream stream, const coda_run_options *opt,
                               const struct run_watch *watch);
coda_status executable_prepare(const struct coda_plan *p, void *const *args, void *prepared, void *workspace,
                               coda_stream stream);
coda_status executable_adopt(const struct coda_plan *p, void *const *args, void *prepared);

#endif
