/*
 * runner.h -- the ways in which a program of a plan runs: as a kernel of ours, as a call of a library, on the
 * host. Each is a file, runner_NAME.c, and its name in RUNNERS.
 */
#ifndef RUNNER_H
#define RUNNER_H

#include "executable.h"
#include "peers.h"

/* One call of coda_run or coda_prepare. */
struct call {
    const struct coda_plan *p;
    void *const *args;
    char *prepared, *workspace;
    coda_stream stream;
    void *const *done;             /* a CUevent for each argument, or NULL; NULL: none is wanted */
    const struct run_watch *watch; /* or NULL */
    struct jit_side *side;         /* aside.c: a second stream; NULL: there is none */
    char *inbox;                   /* SPACE_INBOX; NULL: there is none */
    const struct steady *steady;   /* where ranks gather: steady.c; NULL: in the group's memory */
    int rank;                      /* of two, where programs have parts of tensors (tensor_use.by_rank) */
};

struct runner {
    const char *name; /* of its programs in messages; NULL: that of their kernels, if they have some */
    bool kernel;      /* it launches a kernel, whose text is emitted */
    bool apart;       /* it leaves the stream's order, and heeds plan.waits */
    bool synchronous; /* run() returns when the program has ended, not when the stream has it */
    bool (*takes)(const struct coda_plan *p, int index); /* is program `index` its to run? */
    /* Makes ready what a run needs, where the plan's device is current; NULL: nothing. */
    coda_status (*load)(struct coda_plan *p, int index);
    /* Begins the program behind what the stream has; one that is apart, behind the programs that
     * plan.waits[index] names. Neither allocates nor looks anything up by name. */
    coda_status (*run)(const struct call *c, int index);
    void (*free)(void *own); /* compiled_program.own, if it is not NULL */
};

/* The first that takes a program runs it. */
#define RUNNERS(X) X(nothing) X(cpu) X(peers) X(exchange) X(cublaslt) X(kernel)
#define X(name) extern const struct runner runner_##name;
RUNNERS(X)
#undef X

/* completion.c -- finds which arguments each program leaves complete; and records their events on the stream
 * behind it. Before program 0, as index -1, come those that no program writes. */
coda_status completion_find(struct coda_plan *p);
coda_status completion_record(const struct call *c, int index);

/* aside.c -- finds which programs go to a second stream, once it is known who runs them; opens that for a
 * run, which then calls two of the next ones around each program, and the last one in any case. */
coda_status aside_find(struct coda_plan *p);
int aside_sms(const struct coda_plan *p, int index); /* SMs that it leaves to what runs beside it */
coda_status aside_open(struct call *c);
coda_stream aside_stream(const struct call *c, int index);
coda_status aside_before(const struct call *c, int index);
coda_status aside_behind(const struct call *c, int index);
coda_status aside_close(const struct call *c, int begun, coda_status run); /* programs; what came of them */

/* agree.c -- finds what the plan exchanges; compares it, before a first run, with what the other ranks do. */
coda_status agenda_find(struct coda_plan *p);
coda_status agree(const struct call *c);

/* runner_kernel.c -- makes a kernel's launch ready; and the parameters that its text names, of so many bytes,
 * with room behind them. */
struct kernel_params {
    _Alignas(128) struct jit_map map[KERNEL_MAX_MAPS];
    void *pointer[KERNEL_MAX_POINTERS];
};
coda_status kernel_load(struct coda_plan *p, int index);
coda_status kernel_params(const struct call *c, int index, struct kernel_params *out, size_t *bytes,
                          char *err);

/* runner_peers.c -- sums over ranks by our own kernels become part of the rows programs behind them. */
coda_status peers_join_rows(struct coda_plan *p);
/* What the plan's kernels want of its groups. */
struct peers_room peers_room(const struct coda_plan *p);
/* Where programs have what ranks copy (SPACE_INBOX), and whose run it is. */
coda_status peers_find_inbox(struct call *c);

/* carrier.c -- what each rank says, `bytes` of it, in the order of ranks, on all of them. */
coda_status carrier_tell(const struct call *c, coda_group *g, const char *operation, const void *mine,
                         size_t bytes, void *all);
/* carrier.c -- what this rank has of inboxes. */
coda_status carrier_peers(coda_group *g, struct peers **out);
/* carrier.c -- the second stream of this rank's runs, with so many marks; made where there is none. */
coda_status carrier_side(const struct call *c, coda_group *g, int marks, struct jit_side **out);
/* carrier.c -- the communicator of this rank, made where there is none; and all ranks' agendas by it. */
coda_status carrier_of(const struct call *c, coda_group *g, const char *operation, struct jit_comm **out);
coda_status carrier_agree(const struct call *c, coda_group *g, const struct agenda *mine);

/* runner.c -- makes p->program, which says who runs each program. */
coda_status runners_choose(struct coda_plan *p);

/* Where a tensor begins in the memory of a call; and `bytes` behind where a buffer does. */
static inline char *call_address(const struct call *c, int buffer, int64_t bytes)
{
    const struct buffer *b = &c->p->plan.buffer[buffer];
    char *base = b->space == SPACE_ARG     ? c->args[b->arg]
                 : b->space == SPACE_WORK  ? c->workspace + b->offset
                 : b->space == SPACE_INBOX ? c->inbox + b->offset
                                           : c->prepared + b->offset;
    return base + bytes;
}
/* Bytes ahead of the part that a use is of. */
static inline int64_t call_part(const struct call *c, int64_t by_rank, int ahead)
{
    return (c->rank + ahead) % 2 * by_rank;
}
static inline char *call_tensor(const struct call *c, const struct tensor_use *u)
{
    int64_t part = call_part(c, dtype_bytes(u->dtype, u->by_rank), u->ahead);
    return call_address(c, u->buffer, use_start(u) + part);
}

#endif
