/*
 * coda_group.h -- one graph over several ranks: what they exchange, and where they meet. A part of coda.h,
 * which includes it: programs include coda.h alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CODA_GROUP_H
#define CODA_GROUP_H

#include "coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
 * Ranks
 *
 * A model is split over P ranks by cutting its weights: each rank has a graph with its share of columns or
 * rows, and exchanges add up or put together what all of them computed. The graph is one rank's, its shapes
 * are local, and all ranks have the same graph: it knows how many they are, not which one it is.
 *
 *     coda_value tp = coda_group_input(g, "tp", 2);
 *     coda_value z = coda_matmul(g, h, w_down);   // w_down [N, K / 2]: a part of the sum
 *     coda_output(g, "y", coda_add(g, x, coda_all_reduce(g, z, tp)));
 *
 * In coda_run the argument of a group is the coda_group of the rank that runs, the pointer itself. Ranks are
 * threads of this process (coda_group_local), on the CPU device, in coda_evaluate or with a GPU each, whose
 * context is current in the rank's thread; or processes that have an NCCL communicator (coda_group_nccl), on
 * GPUs.
 *
 * coda_grad differentiates the sum of all ranks' y's: where all ranks have one loss, give dy as 1 / P. Then
 * of a leaf that is shared out each rank gets its share of the gradient, and of one that all ranks have alike
 * a part, whose sum, by coda_all_reduce, is the gradient: once, at the end, for all layers.
 *
 * Before a plan's first exchange all ranks compare what they are going to run: other graphs, or other shapes
 * of one, end as CODA_E_INVALID on all of them. So each plan, and each shape of a graph with symbols, begins
 * with a run at which ranks wait for each other. Threads that later run plans in another order end so, too,
 * at the first run that differs; where runs were captured own exchanges end by their deadlines.
 *
 * On GPUs exchanges are NCCL's, given to the run's stream: coda_compile wants its library (libnccl.so.2,
 * 2.14.3 or newer: the copy that the process has loaded, else as NVRTC is found) and fails with CODA_E_DEVICE
 * without. With $CODA_EXCHANGE=own exchanges are kernels of the library's, which write into memory of the
 * others' GPUs, if each of up to 8 reaches all others' on one host, where processes open it by CUDA's IPC: a
 * group's runs are then on one stream of each rank, or ordered by events. A captured stream takes exchanges,
 * too, once the plan has run: a first run makes communicators and compares plans. Ranks that are threads
 * capture as CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what a rank's thread does would end another's capture in
 * the global mode. coda_run returns before exchanges have ended, so a rank that is late, dead or stopped is
 * found by coda_group_status, which a thread asks while it waits for its stream, and behind it;
 * coda_group_abort frees a stream that waits. The context stays as it is, and a new group works.
 *
 * With CODA_OVERLAP a plan of one group has its programs in another order, the same on all ranks: an
 * exchange as soon as what it exchanges is there, behind the exchanges that are ahead of it in the graph; and
 * what waits for it behind what does not. On GPUs one beside which others can run has a stream of the group's
 * own, by events that coda_run records: a run still begins and ends on its stream. So gradients of a layer
 * travel while those of the layer before are computed, and rows of a prompt while products multiply others,
 * if the graph has them in pieces. CODA_TEXT_PLAN shows it: "beside @5..@9". Bits are those without it.
 * Exchanges of the library's own between two ranks share a product of 2^24 elements or more that is added
 * up beside others: of half of its rows each rank adds the other one's part to its own, and gets the rest.
 * Where its columns have a factor, both may in fp32 be rounded at once. With CODA_STEADY, too, ranks that are
 * threads write what they have added up to where the other one wants it, and not into memory of the group's
 * from which it is copied: arguments and workspace of all runs of the graph with the group, by whichever plan
 * of it, are then those of the first one, which coda_run looks at (CODA_E_INVALID). They stay until their
 * rank's stream has ended, as a run waits for what the other rank copies to it; but where the group has
 * failed, until both ranks' have: what was queued is copied then, too.
 * ---------------------------------------------------------------------------------------------- */

/* One rank's view of a group. A rank uses its own from one thread at a time. */
typedef struct coda_group coda_group;

typedef struct coda_group_options {
    size_t size;
    int timeout_ms; /* how long a rank waits for the others at an exchange; 0: 30,000; -1: forever. On a GPU
                       where it waits on the host, and for coda_group_status */
} coda_group_options;
#define CODA_GROUP_OPTIONS_INIT {sizeof(coda_group_options), 0}

/* Groups of threads of this process: out[r] is the handle of rank r, 0 to ranks - 1. ranks 1 to 1024; opt may
 * be NULL. Free each with coda_group_free. CODA_E_INVALID, CODA_E_MEMORY; on failure out is all NULL. */
CODA_API coda_status coda_group_local(coda_group **out, int ranks, const coda_group_options *opt);
/* The group of an ncclComm_t of the caller's, which outlives it: its rank, and as many ranks as it has. Each
 * exchanges in the order of its own coda_runs, so nobody else uses the communicator meanwhile. If the group
 * fails, or by coda_group_abort, it is aborted (ncclCommAbort), and then not to be destroyed any more. Plans
 * of the CPU device refuse such a group. opt may be NULL. CODA_E_DEVICE: NCCL is missing or refuses it. */
CODA_API coda_status coda_group_nccl(coda_group **out, void *comm, const coda_group_options *opt);
/* The rank of a handle; -1 for NULL. */
CODA_API int coda_group_rank(const coda_group *g);
/* CODA_OK, or why no exchange of the group succeeds any more, with coda_error(): a rank that was late, left,
 * failed in a run that it had begun (one whose arguments were refused may try again, and is late until then),
 * or had another exchange than the others; what NCCL has noticed by itself; an exchange on a GPU that was
 * given to its stream longer than timeout_ms ago and has not ended. A group that failed stays so: make a new
 * one. */
CODA_API coda_status coda_group_status(const coda_group *g);
/* Ends all exchanges of the group, those under way too, with CODA_E_DEVICE on every rank. Any thread may
 * call it. NULL is fine. */
CODA_API void coda_group_abort(coda_group *g);
/* Frees a rank's handle, which no call uses any more; other ranks that exchange something then fail. NULL is
 * fine. */
CODA_API void coda_group_free(coda_group *g);

/* A group of so many ranks, 1 to 1024, by a name that no other leaf has. */
CODA_API coda_value coda_group_input(coda_graph *g, const char *name, int ranks);

/* The sum of all ranks' x, on every rank: like x, fp32, bf16 or fp16. Sums are fp32, in the order of ranks,
 * rounded once: all ranks have equal bits. NCCL's have equal bits, too, but more than two ranks in an order
 * of its own, and may round between: CODA_BATCH_INVARIANT refuses these. */
CODA_API coda_value coda_all_reduce(coda_graph *g, coda_value x, coda_value group);
/* The same sum, of which rank r keeps the r-th of P equal parts along `axis`, -1 is the last. P must divide
 * x's extent there; of symbols it is a multiple as written, as 2*T of 2 ranks. */
CODA_API coda_value coda_reduce_scatter(coda_graph *g, coda_value x, int axis, coda_value group);
/* All ranks' x one behind the other along `axis`, in the order of ranks; any dtype. */
CODA_API coda_value coda_all_gather(coda_graph *g, coda_value x, int axis, coda_value group);

#ifdef __cplusplus
}
#endif

#endif
