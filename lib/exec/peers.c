/* peers.c -- see peers.h. */
#include "peers.h"
#include "inboxes.h"
#include "runner.h"

#include <stddef.h>
#include <stdlib.h>

static coda_status make_inbox(coda_group *g, struct peers *p, const struct peers_room *room,
                              struct inbox **out)
{
    char err[JIT_ERROR_SIZE] = "";
    bool elsewhere = ranks_are_elsewhere(g);
    struct inbox *i = inbox_new(&p->gpu, ranks_rank(g), ranks_count(g), elsewhere);
    if (!i || !ranks_leave_behind(g, inbox_release, i)) {
        free(i);
        return fail(CODA_E_MEMORY, "out of memory for a group of %d ranks", ranks_count(g));
    }
    coda_status status = inbox_allocate(i, room, !p->notes, err);
    if (!p->notes) p->notes = i->notes;
    *out = i;
    if (!status) return CODA_OK;
    return fail(status, "inboxes of 3 x %lld + %lld bytes: %s", (long long)room->area,
                (long long)room->copied, err);
}

/* ---- Introductions ---- */

/* What a rank says of itself when inboxes are made. */
struct introduction {
    struct introduced of;
    bool reaches;       /* all the others, which it says the second time */
    coda_status status; /* of what it made for that */
};

/* A rank that has failed has told the others, and its own failure stays this thread's. */
static coda_status all_have(coda_group *g, const struct introduction *all, coda_status own)
{
    if (own) return own;
    for (int r = 0; r < ranks_count(g); r++)
        if (all[r].status) return fail(all[r].status, "rank %d gave up: it has no inbox", r);
    return CODA_OK;
}

struct introductions {
    const struct call *call;
    coda_group *group;
    const char *operation;
    peers_meeting *meet;
};

/* Threads that wait for this rank learn of its failure, which stays this thread's. */
static coda_status tell_all(const struct introductions *m, struct introduction *mine,
                            struct introduction *all)
{
    struct failure why;
    coda_status own = mine->status, status;
    if (own && !ranks_are_elsewhere(m->group)) return own;
    fail_save(&why);
    status = m->meet(m->call, m->group, m->operation, mine, sizeof *mine, all);
    if (own) fail_restore(&why);
    return status && !own ? status : all_have(m->group, all, own);
}

static coda_status reach_others(coda_group *g, struct inbox *i, const struct introduction *all,
                                struct introduction *mine)
{
    mine->reaches = true;
    for (int r = 0; r < ranks_count(g) && mine->reaches && !mine->status; r++) {
        char err[JIT_ERROR_SIZE] = "";
        mine->status = inbox_reach(i, r, &mine->of, &all[r].of, &mine->reaches, err);
        if (mine->status) fail(mine->status, "rank %d's GPU: %s", r, err);
    }
    return mine->status;
}

static coda_status introduce(const struct introductions *m, struct peers *p, struct inbox *i,
                             struct introduction *mine)
{
    struct introduction all[EXCHANGE_MOST_RANKS];
    int ranks = ranks_count(m->group);
    coda_status status = tell_all(m, mine, all);
    if (!status) {
        reach_others(m->group, i, all, mine);
        status = tell_all(m, mine, all);
    }
    for (int r = 0; r < ranks && !status; r++) {
        p->apart = p->apart || !all[r].reaches;
        p->inbox[r] = i->of[r].memory;
    }
    if (!status) i->apart = p->apart;
    return status;
}

/* Behind all that the device has under way, which uses the inboxes that there are. */
static coda_status open_inboxes(const struct introductions *m, struct peers *p, const struct peers_room *room)
{
    struct introduction mine = {.reaches = false};
    struct inbox *i = NULL;
    mine.status = make_inbox(m->group, p, room, &i);
    if (!mine.status) inbox_introduce(i, &mine.of);
    coda_status status = introduce(m, p, i, &mine);
    if (!status) p->room = *room;
    return status;
}

/* What grows doubles, so that all that are left behind are less than the last one. */
static int64_t grown(int64_t from, int64_t wanted) { return wanted > from ? MAX(wanted, 2 * from) : from; }

coda_status peers_reserve(const struct call *c, coda_group *g, struct peers *p, struct peers_room room,
                          const char *operation, peers_meeting *meet)
{
    const struct introductions m = {c, g, operation, meet};
    char err[JIT_ERROR_SIZE] = "";
    if (p->room.area && p->gpu.context != c->p->gpu.context)
        return fail(CODA_E_INVALID, "the group's rank %d has an inbox on device %d, the plan is of device %d",
                    ranks_rank(g), p->gpu.ordinal, c->p->gpu.ordinal);
    if (p->apart || (p->room.area >= room.area && p->room.copied >= room.copied)) return CODA_OK;
    if (jit_is_captured(c->stream))
        return fail(CODA_E_INVALID,
                    "run: the stream is captured, and the group has no inbox of %lld bytes "
                    "yet: run the plan once before",
                    (long long)(EXCHANGE_AREAS * room.area + room.copied));
    room.area = grown(p->room.area, room.area), room.copied = grown(p->room.copied, room.copied);
    p->gpu = c->p->gpu, p->rank = ranks_rank(g);
    p->others = ranks_are_elsewhere(g) ? ranks_count(g) : 0;
    coda_status status = jit_device_enter(&p->gpu, err);
    if (status) return fail(status, "%s", err);
    status = open_inboxes(&m, p, &room);
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

void peers_forget(struct peers *p)
{
    for (struct steady *s = p->steady, *next; s; s = next) {
        next = s->next;
        free(s);
    }
}

void peers_abort(struct peers *p)
{
    if (p->notes) p->notes->over = 1;
}

/* Whose waits have ended by themselves has a reason that all ranks were told. */
void peers_tell(const struct peers *p)
{
    char err[JIT_ERROR_SIZE] = "";
    bool told = p->notes && p->notes->late;
    if (told || !p->others || !p->room.area || p->apart || jit_device_enter(&p->gpu, err)) return;
    for (int r = 0; r < p->others; r++)
        if (r != p->rank) inbox_end(p->inbox[r], (uint32_t)p->rank);
    jit_device_leave();
}
