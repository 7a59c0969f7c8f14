/* inboxes.c -- see inboxes.h. */
#include "inboxes.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

_Static_assert(sizeof(struct peer_head) <= EXCHANGE_HEAD, "words begin behind the head");

struct inbox *inbox_new(const struct jit_device *gpu, int rank, int ranks, bool elsewhere)
{
    struct inbox *i = calloc(1, sizeof *i);
    if (i) i->gpu = *gpu, i->rank = rank, i->ranks = ranks, i->elsewhere = elsewhere;
    return i;
}

/* What other processes open has whole units for itself. */
static size_t bytes_of(const struct inbox *i, const struct peers_room *room)
{
    size_t bytes = peers_flags(room) + EXCHANGE_STARTS * EXCHANGE_FLAGS + (size_t)room->copied;
    return i->elsewhere ? CEIL_DIV(bytes, JIT_SHARED_UNIT) * JIT_SHARED_UNIT : bytes;
}

/* Words that say "nothing yet" between zeros. */
coda_status inbox_allocate(struct inbox *i, const struct peers_room *room, bool notes, char *err)
{
    static const uint32_t zero = 0, none = 0xffffffff;
    coda_status status = jit_alloc(&i->memory, bytes_of(i, room), err);
    if (!status) status = jit_fill(i->memory, EXCHANGE_HEAD, &zero, sizeof zero, err);
    if (!status)
        status = jit_fill((char *)i->memory + EXCHANGE_HEAD, (size_t)(EXCHANGE_AREAS * room->area), &none,
                          sizeof none, err);
    if (!status)
        status = jit_fill((char *)i->memory + peers_flags(room), EXCHANGE_STARTS * EXCHANGE_FLAGS, &zero,
                          sizeof zero, err);
    if (!status && notes) status = jit_host_alloc(&i->notes, sizeof(struct peer_notes), err);
    return status;
}

void inbox_introduce(const struct inbox *i, struct introduced *out)
{
    char err[JIT_ERROR_SIZE];
    *out = (struct introduced){.process = jit_process(), .host = jit_host(), .number = (int)getpid()};
    out->gpu = i->gpu, out->memory = i->memory;
    out->shared = i->elsewhere && !jit_ipc_handle(i->memory, out->handle, err);
}

/* Memory that cannot be opened is not reached, whatever the reason. */
static bool open_inbox(struct inbox *i, int r, const struct introduced *own, const struct introduced *other)
{
    char err[JIT_ERROR_SIZE];
    void *memory = NULL;
    if (own->host != other->host || !other->shared) return false;
    if (jit_ipc_open(&memory, other->handle, err)) return false;
    i->of[r].memory = memory, i->of[r].opened = true, i->of[r].process = other->number;
    return true;
}

coda_status inbox_reach(struct inbox *i, int r, const struct introduced *own, const struct introduced *other,
                        bool *can, char *err)
{
    if (own->process != other->process) return *can = open_inbox(i, r, own, other), CODA_OK;
    i->of[r].memory = other->memory;
    return jit_reach(&i->gpu, &other->gpu, can, err);
}

void inbox_end(char *memory, uint32_t rank)
{
    jit_poke(memory + offsetof(struct peer_head, missed), rank);
    jit_poke(memory + offsetof(struct peer_head, late), PEER_GAVE_UP);
    jit_poke(memory + offsetof(struct peer_head, dead), 1);
}

/* ---- The end ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct inbox *waiting; /* until nobody uses them */

static bool is_gone(int process) { return process && kill(process, 0) && errno == ESRCH; }

static bool is_unused(const struct inbox *i)
{
    char err[JIT_ERROR_SIZE];
    struct peer_head head;
    if (i->apart || !i->memory) return true;
    if (jit_download(&head, i->memory, sizeof head, err)) return false;
    for (int r = 0; r < i->ranks; r++)
        if (r != i->rank && i->of[r].memory && !head.left[r] && !is_gone(i->of[r].process)) return false;
    return true;
}

static void inbox_free(struct inbox *i)
{
    jit_free(i->memory);
    free(i);
}

static void free_unused(void)
{
    char err[JIT_ERROR_SIZE];
    pthread_mutex_lock(&lock);
    for (struct inbox **at = &waiting, *i; (i = *at);) {
        bool entered = !jit_device_enter(&i->gpu, err), unused = entered && is_unused(i);
        if (unused) *at = i->next, inbox_free(i);
        else at = &i->next;
        if (entered) jit_device_leave();
    }
    pthread_mutex_unlock(&lock);
}

/* Gives the others' back. A word from the host may still be on its way when its copy returns; what is read
 * behind it says that it is there, before the memory is closed. */
static void leave(struct inbox *i)
{
    char err[JIT_ERROR_SIZE];
    for (int r = 0; r < i->ranks; r++) {
        if (r == i->rank || !i->of[r].memory) continue;
        char *left = i->of[r].memory + offsetof(struct peer_head, left) + sizeof(uint32_t) * (size_t)i->rank;
        uint32_t there;
        if (!jit_poke(left, 1)) jit_download(&there, left, sizeof there, err);
        if (i->of[r].opened) jit_ipc_close(i->of[r].memory);
    }
}

void inbox_release(void *inbox)
{
    struct inbox *i = inbox;
    char err[JIT_ERROR_SIZE];
    bool entered = !jit_device_enter(&i->gpu, err);
    if (entered && i->elsewhere) leave(i);
    if (entered) jit_host_free(i->notes);
    if (!i->elsewhere) {
        if (entered) inbox_free(i);
        else free(i);
    } else {
        pthread_mutex_lock(&lock);
        i->next = waiting, waiting = i;
        pthread_mutex_unlock(&lock);
    }
    if (entered) jit_device_leave();
    free_unused();
}
