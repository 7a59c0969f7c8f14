/* peers.c -- see peers.h. */
#include "peers.h"
#include "runner.h"

#include <stdlib.h>

/* What a rank says of itself when inboxes are made. */
struct introduction {
    struct jit_device gpu;
    char *inbox;
    bool reaches; /* all the others, which it says the second time */
};

/* ---- Memory that lives as long as the group ---- */

struct left_behind {
    struct jit_device gpu;
    void *inbox, *notes;
};

static void release(void *what)
{
    struct left_behind *l = what;
    char err[JIT_ERROR_SIZE];
    if (!jit_device_enter(&l->gpu, err)) {
        jit_free(l->inbox);
        jit_host_free(l->notes);
        jit_device_leave();
    }
    free(l);
}

/* Words that say "nothing yet" behind a head of zeros. */
static coda_status allocate(struct left_behind *l, int64_t area, bool notes, char *err)
{
    static const uint32_t zero = 0, none = 0xffffffff;
    coda_status status = jit_alloc(&l->inbox, (size_t)(EXCHANGE_HEAD + EXCHANGE_AREAS * area), err);
    if (!status) status = jit_fill(l->inbox, EXCHANGE_HEAD, &zero, sizeof zero, err);
    if (!status)
        status = jit_fill((char *)l->inbox + EXCHANGE_HEAD, (size_t)(EXCHANGE_AREAS * area), &none,
                          sizeof none, err);
    if (!status && notes) status = jit_host_alloc(&l->notes, sizeof(struct peer_notes), err);
    return status;
}

static coda_status make_inbox(coda_group *g, struct peers *p, int64_t area, char **inbox)
{
    char err[JIT_ERROR_SIZE] = "";
    struct left_behind *l = calloc(1, sizeof *l);
    if (!l || !ranks_leave_behind(g, release, l)) {
        free(l);
        return fail(CODA_E_MEMORY, "out of memory for a group of %d ranks", ranks_count(g));
    }
    l->gpu = p->gpu;
    coda_status status = allocate(l, area, !p->notes, err);
    if (!p->notes) p->notes = l->notes;
    *inbox = l->inbox;
    return status ? fail(status, "inboxes of 3 x %lld bytes: %s", (long long)area, err) : CODA_OK;
}

/* ---- Introductions ---- */

static coda_status reach_others(coda_group *g, const struct peers *p, const void *const *all, bool *reaches)
{
    char err[JIT_ERROR_SIZE] = "";
    *reaches = true;
    for (int r = 0; r < ranks_count(g) && *reaches; r++) {
        const struct introduction *other = all[r];
        coda_status status = jit_reach(&p->gpu, &other->gpu, reaches, err);
        if (status) return fail(status, "rank %d's GPU: %s", r, err);
    }
    return CODA_OK;
}

/* The others, who wait for this rank, learn of its failure, which stays this thread's. */
static coda_status part_failed(coda_group *g)
{
    struct failure why;
    fail_save(&why);
    ranks_give_up(g, why.message);
    ranks_part(g);
    fail_restore(&why);
    return why.status;
}

static coda_status introduce(coda_group *g, struct peers *p, struct introduction *mine, const char *operation)
{
    const struct offer offer = {.operation = operation, .x = mine, .beside = true};
    const void *const *all;
    char *inbox[EXCHANGE_MOST_RANKS];
    coda_status status = ranks_meet(g, &offer, &all);
    for (int r = 0; r < ranks_count(g) && !status; r++)
        inbox[r] = ((const struct introduction *)all[r])->inbox;
    if (status) return status;
    status = reach_others(g, p, all, &mine->reaches);
    if (status) return part_failed(g);
    status = ranks_part(g);
    if (!status) status = ranks_meet(g, &offer, &all);
    for (int r = 0; r < ranks_count(g) && !status; r++) {
        p->apart = p->apart || !((const struct introduction *)all[r])->reaches;
        p->inbox[r] = inbox[r];
    }
    return status ? status : ranks_part(g);
}

/* Behind all that the device has under way, which uses the inboxes that there are. */
static coda_status open_inboxes(coda_group *g, struct peers *p, int64_t area, const char *operation)
{
    struct introduction mine = {.gpu = p->gpu};
    coda_status status = make_inbox(g, p, area, &mine.inbox);
    if (!status) status = introduce(g, p, &mine, operation);
    if (!status) p->area = area;
    return status;
}

coda_status peers_reserve(const struct call *c, coda_group *g, struct peers *p, int64_t area,
                          const char *operation)
{
    char err[JIT_ERROR_SIZE] = "";
    if (p->area && p->gpu.context != c->p->gpu.context)
        return fail(CODA_E_INVALID, "the group's rank %d has an inbox on device %d, the plan is of device %d",
                    ranks_rank(g), p->gpu.ordinal, c->p->gpu.ordinal);
    if (p->apart || p->area >= area) return CODA_OK;
    if (jit_is_captured(c->stream))
        return fail(CODA_E_INVALID,
                    "run: the stream is captured, and the group has no inbox of %lld bytes "
                    "yet: run the plan once before",
                    (long long)area);
    area = MAX(area, 2 * p->area); /* so that all that are left behind are less than the last one */
    p->gpu = c->p->gpu;
    coda_status status = jit_device_enter(&p->gpu, err);
    if (status) return fail(status, "%s", err);
    status = open_inboxes(g, p, area, operation);
    jit_device_leave();
    return status;
}

/* ---- How waits end ---- */

coda_status peers_status(const struct peers *p, int timeout_ms)
{
    if (!p->notes || !p->notes->late) return CODA_OK;
    if (p->notes->late == PEER_GAVE_UP)
        return fail(CODA_E_DEVICE, "rank %u gave up at exchange %u", p->notes->missed, p->notes->epoch + 1);
    return fail(CODA_E_DEVICE, "rank %u missed exchange %u (@%u) for %d ms", p->notes->missed,
                p->notes->epoch + 1, p->notes->program, timeout_ms);
}

void peers_abort(struct peers *p)
{
    if (p->notes) p->notes->over = 1;
}
