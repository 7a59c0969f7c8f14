/* carrier.c -- what carries the exchanges of a group: NCCL, with a communicator for each rank, and inboxes of
 * our kernels. The communicator of threads of this process is made at their first exchange on GPUs that wants
 * it, or it is the caller's. */
#include "runner.h"

#include <stdlib.h>
#include <string.h>

/* ---- What ranks want of it ---- */

struct carried {
    _Atomic(struct jit_comm *) comm; /* NULL: there is none */
    struct peers peers;
    struct jit_side *side; /* NULL: no run has wanted one */
    struct jit_device gpu; /* of that */
};

static coda_status carrier_status(void *own, int timeout_ms)
{
    struct carried *c = own;
    char err[JIT_ERROR_SIZE] = "";
    coda_status status = peers_status(&c->peers, timeout_ms);
    if (status || !c->comm) return status;
    status = jit_comm_status(c->comm, timeout_ms, err);
    return status ? fail(status, "NCCL: %s", err) : CODA_OK;
}

static void carrier_abort(void *own)
{
    struct carried *c = own;
    peers_abort(&c->peers);
    if (c->comm) jit_comm_abort(c->comm);
    peers_tell(&c->peers);
}

static void carrier_free(void *own)
{
    struct carried *c = own;
    char err[JIT_ERROR_SIZE];
    bool inside = c->side && !jit_device_enter(&c->gpu, err);
    jit_side_free(c->side);
    if (inside) jit_device_leave();
    jit_comm_free(c->comm);
    peers_forget(&c->peers);
    free(c);
}

static const struct carrier carrier = {carrier_status, carrier_abort, carrier_free};

static struct carried *carried_new(struct jit_comm *comm)
{
    struct carried *c = calloc(1, sizeof *c);
    if (c) c->comm = comm;
    else fail(CODA_E_MEMORY, "out of memory for what carries exchanges");
    return c;
}

static coda_status carried_of(coda_group *g, struct carried **out)
{
    if ((*out = ranks_carried(g))) return CODA_OK;
    if (!(*out = carried_new(NULL))) return CODA_E_MEMORY;
    ranks_carry(g, &carrier, *out);
    return CODA_OK;
}

coda_status carrier_peers(coda_group *g, struct peers **out)
{
    struct carried *own = NULL;
    coda_status status = carried_of(g, &own);
    if (!status) *out = &own->peers;
    return status;
}

coda_status carrier_adopt(coda_group **out, void *comm, int timeout_ms)
{
    char err[JIT_ERROR_SIZE] = "";
    struct carried *own;
    struct jit_comm *of;
    int rank = -1, ranks = 0;
    coda_status status = jit_comm_adopt(&of, comm, &rank, &ranks, err);
    if (status) return fail(status, "group_nccl: %s", err);
    if (ranks < 1 || ranks > RANKS_MOST)
        status = fail(CODA_E_INVALID, "group_nccl: the communicator has %d ranks; must be 1..%d", ranks,
                      RANKS_MOST);
    if (status || !(own = carried_new(of))) return jit_comm_free(of), fail_status();
    status = ranks_new_elsewhere(out, rank, ranks, timeout_ms, &carrier, own);
    if (status) carrier_free(own);
    return status;
}

/* ---- Made ---- */

static coda_status tell_here(coda_group *g, const char *operation, const void *mine, size_t bytes, char *all)
{
    const struct offer offer = {.operation = operation, .x = mine, .beside = true};
    const void *const *x;
    coda_status status = ranks_meet(g, &offer, &x);
    if (status) return status;
    for (int r = 0; r < ranks_count(g); r++) memcpy(all + (size_t)r * bytes, x[r], bytes);
    return ranks_part(g);
}

/* Rank 0's id goes to all; then each makes its own, at which they wait for each other. */
static coda_status join(const struct call *c, coda_group *g, const char *operation, struct jit_comm **out)
{
    char err[JIT_ERROR_SIZE] = "", mine[JIT_COMM_ID] = "", *all = NULL;
    coda_status status = ranks_rank(g) ? CODA_OK : jit_comm_id(mine, err);
    if (status) return fail(status, "NCCL: %s", err);
    if (!(all = malloc((size_t)ranks_count(g) * JIT_COMM_ID)))
        return fail(CODA_E_MEMORY, "out of memory for %d ids of a communicator", ranks_count(g));
    status = tell_here(g, operation, mine, JIT_COMM_ID, all);
    memcpy(mine, all, sizeof mine);
    free(all);
    if (status) return status;
    status = jit_device_enter(&c->p->gpu, err);
    if (status) return fail(status, "%s", err);
    status = jit_comm_new(out, ranks_rank(g), ranks_count(g), mine, err);
    jit_device_leave();
    return status ? fail(status, "NCCL: %s", err) : CODA_OK;
}

static coda_status not_captured(const struct call *c, const char *what)
{
    if (!jit_is_captured(c->stream)) return CODA_OK;
    return fail(CODA_E_INVALID, "run: the stream is captured, and %s: run the plan once before", what);
}

static coda_status check_device(const struct call *c, const struct jit_comm *comm)
{
    int has = jit_comm_device(comm), wants = c->p->gpu.ordinal;
    if (has == wants) return CODA_OK;
    return fail(CODA_E_INVALID, "the group's communicator is of device %d, the plan of device %d", has,
                wants);
}

coda_status carrier_of(const struct call *c, coda_group *g, const char *operation, struct jit_comm **out)
{
    struct carried *own;
    coda_status status = ranks_begin(g, operation);
    if (!status) status = carried_of(g, &own);
    if (status) return status;
    if ((*out = own->comm)) return check_device(c, *out);
    status = not_captured(c, "the group has no communicator yet");
    if (!status) status = join(c, g, operation, out);
    if (status) return status;
    own->comm = *out;
    ranks_carry(g, &carrier, own); /* which ends it, if the group has ended meanwhile */
    return CODA_OK;
}

/* ---- A second stream ---- */

static coda_status make_side(const struct call *c, struct carried *own, int marks)
{
    char err[JIT_ERROR_SIZE] = "";
    coda_status status = not_captured(c, "the group has no second stream for it yet");
    if (status) return status;
    own->gpu = c->p->gpu;
    if ((status = jit_device_enter(&own->gpu, err))) return fail(status, "%s", err);
    if (!own->side) status = jit_side_new(&own->side, err);
    if (!status) status = jit_side_reserve(own->side, marks, err);
    jit_device_leave();
    return status ? fail(status, "run: %s", err) : CODA_OK;
}

coda_status carrier_side(const struct call *c, coda_group *g, int marks, struct jit_side **out)
{
    struct carried *own;
    coda_status status = carried_of(g, &own);
    if (!status && own->side && own->gpu.context != c->p->gpu.context)
        return fail(CODA_E_INVALID,
                    "the group's rank %d has a second stream on device %d, the plan is of device %d",
                    ranks_rank(g), own->gpu.ordinal, c->p->gpu.ordinal);
    if (!status && jit_side_marks(own->side) < marks) status = make_side(c, own, marks);
    if (!status) *out = own->side;
    return status;
}

/* ---- What the others are going to do ---- */

static coda_status tell_elsewhere(const struct call *c, coda_group *g, const char *operation,
                                  const void *mine, size_t bytes, void *all)
{
    char err[JIT_ERROR_SIZE] = "";
    struct jit_comm *comm;
    if (c->p->device != CODA_DEVICE_GPU)
        return fail(CODA_E_UNSUPPORTED, "%s: the group's other ranks are reached from GPUs alone", operation);
    coda_status status = carrier_of(c, g, operation, &comm);
    if (!status) status = not_captured(c, "the ranks have not compared their plans yet");
    if (!status && (status = jit_device_enter(&c->p->gpu, err))) return fail(status, "%s", err);
    if (status) return status;
    status = jit_comm_gather(comm, mine, bytes, all, ranks_timeout(g), err);
    jit_device_leave();
    return status ? fail(status, "%s: NCCL: %s", operation, err) : CODA_OK;
}

coda_status carrier_tell(const struct call *c, coda_group *g, const char *operation, const void *mine,
                         size_t bytes, void *all)
{
    return ranks_are_elsewhere(g) ? tell_elsewhere(c, g, operation, mine, bytes, all)
                                  : tell_here(g, operation, mine, bytes, all);
}

coda_status carrier_agree(const struct call *c, coda_group *g, const struct agenda *mine)
{
    uint64_t all[RANKS_MOST];
    coda_status status =
        carrier_tell(c, g, mine->exchange[0].operation, &mine->digest, sizeof mine->digest, all);
    if (status) return status;
    for (int r = 1; r < ranks_count(g); r++) {
        if (all[r] == all[0]) continue;
        struct failure why;
        status = fail(CODA_E_INVALID, "rank 0 and rank %d run other graphs, or other shapes of one", r);
        fail_save(&why);
        ranks_end(g, status, why.message);
        break;
    }
    return status;
}
