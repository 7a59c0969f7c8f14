/* ranks.c -- see ranks.h. */
#include "ranks.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What the others know of a rank. */
struct seat {
    struct offer offer;
    uint64_t meetings; /* barriers that it has come to */
    uint64_t runs;     /* that it has begun */
    bool reads;        /* what the others have brought */
    bool left;
    const struct carrier *carrier;
    void *own; /* the carrier's; NULL: there is none */
};

/* A run, as the rank that was the first to begin it said. */
struct begun {
    uint64_t number; /* from 1 on */
    uint64_t digest;
    const char *operation; /* its first exchange */
    int rank;
    bool agreed;
};
enum { RUNS_KEPT = 64 }; /* by which the first rank may be ahead of the last one and be compared */

/* What goes with the group. */
struct left {
    struct left *next;
    void (*release)(void *);
    void *what;
};

struct company {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ranks, handles, timeout_ms;
    int here;           /* ranks that have come to the next barrier */
    uint64_t barriers;  /* behind which all ranks are: two for each exchange */
    uint64_t beside;    /* so many of them are of what is no exchange */
    bool elsewhere;     /* the other ranks are */
    bool aborted;       /* the carriers are */
    coda_status status; /* of all exchanges from now on */
    char why[256];
    const void **x; /* what each rank brought */
    bool captured;  /* some run was: runs are in an order that is not known here */
    struct begun begun[RUNS_KEPT];
    struct left *left;
    struct seat seat[];
};

struct coda_group {
    const struct coda_group *self; /* only a handle that is alive points to itself */
    struct company *company;
    int rank;
    uint64_t *agreed; /* digests of plans */
    int agreements;
};

/* ---- Handles ---- */

static void company_free(struct company *c)
{
    if (!c) return;
    for (struct left *l = c->left, *next; l; l = next) {
        next = l->next;
        l->release(l->what);
        free(l);
    }
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->x);
    free(c);
}

static struct company *company_new(int ranks, int timeout_ms)
{
    struct company *c = calloc(1, sizeof *c + sizeof *c->seat * (size_t)ranks);
    pthread_condattr_t clock;
    if (!c) return NULL;
    c->ranks = ranks, c->timeout_ms = timeout_ms;
    c->x = calloc((size_t)ranks, sizeof *c->x);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &clock);
    pthread_condattr_destroy(&clock);
    if (c->x) return c;
    company_free(c);
    return NULL;
}

coda_status ranks_new(coda_group **out, int ranks, int timeout_ms)
{
    struct company *c = company_new(ranks, timeout_ms);
    for (int r = 0; r < ranks && c; r++) {
        if (!(out[r] = malloc(sizeof *out[r]))) break;
        *out[r] = (struct coda_group){.self = out[r], .company = c, .rank = r};
        c->handles++;
    }
    if (c && c->handles == ranks) return CODA_OK;
    for (int r = 0; c && r < c->handles; r++) free(out[r]);
    for (int r = 0; r < ranks; r++) out[r] = NULL;
    company_free(c);
    return fail(CODA_E_MEMORY, "out of memory for a group of %d ranks", ranks);
}

coda_status ranks_new_elsewhere(coda_group **out, int rank, int ranks, int timeout_ms,
                                const struct carrier *carrier, void *own)
{
    struct company *c = company_new(ranks, timeout_ms);
    coda_group *g = c ? malloc(sizeof *g) : NULL;
    if (!g) company_free(c);
    if (!g) return fail(CODA_E_MEMORY, "out of memory for a group of %d ranks", ranks);
    *g = (struct coda_group){.self = g, .company = c, .rank = rank};
    c->handles = 1, c->elsewhere = true;
    ranks_carry(g, carrier, own);
    return *out = g, CODA_OK;
}

void ranks_free(coda_group *g)
{
    if (!g) return;
    struct company *c = g->company;
    struct seat *s = &c->seat[g->rank];
    pthread_mutex_lock(&c->lock);
    void *own = s->own;
    s->left = true, s->own = NULL;
    bool last = !--c->handles;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (own) s->carrier->free(own);
    if (last) company_free(c);
    g->self = NULL;
    free(g->agreed);
    free(g);
}

coda_status ranks_check(const coda_group *g, const char *name, int64_t ranks)
{
    if (!g || g->self != g) return fail(CODA_E_INVALID, "%s: its argument is no coda_group", name);
    if (ranks < 0 || g->company->ranks == ranks) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: its coda_group has %d ranks, the graph %lld", name, g->company->ranks,
                (long long)ranks);
}

int ranks_rank(const coda_group *g) { return g->rank; }
int ranks_count(const coda_group *g) { return g->company->ranks; }
int ranks_timeout(const coda_group *g) { return g->company->timeout_ms; }
bool ranks_are_elsewhere(const coda_group *g) { return g->company->elsewhere; }

void ranks_carry(coda_group *g, const struct carrier *carrier, void *own)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    c->seat[g->rank].carrier = carrier;
    c->seat[g->rank].own = own;
    if (c->aborted) carrier->abort(own);
    pthread_mutex_unlock(&c->lock);
}

bool ranks_leave_behind(coda_group *g, void (*release)(void *), void *what)
{
    struct company *c = g->company;
    struct left *l = malloc(sizeof *l);
    if (!l) return false;
    pthread_mutex_lock(&c->lock);
    *l = (struct left){c->left, release, what};
    c->left = l;
    pthread_mutex_unlock(&c->lock);
    return true;
}

/* Its own rank alone sets it. */
void *ranks_carried(const coda_group *g) { return g->company->seat[g->rank].own; }

/* ---- The end of a group ---- */

/* The first reason stays. The lock is held. */
static void PRINTF(3, 4) end(struct company *c, coda_status status, const char *format, ...)
{
    if (c->status) return;
    va_list args;
    va_start(args, format);
    format_print(c->why, sizeof c->why, format, args);
    va_end(args);
    c->status = status;
    pthread_cond_broadcast(&c->changed);
}

/* What carriers have under way ends, too, once the group has. The lock is held. */
static void abort_carriers(struct company *c)
{
    if (!c->status || c->aborted) return;
    c->aborted = true;
    for (int r = 0; r < c->ranks; r++)
        if (c->seat[r].own) c->seat[r].carrier->abort(c->seat[r].own);
}

static coda_status told(struct company *c)
{
    abort_carriers(c);
    return c->status ? fail(c->status, "%s", c->why) : CODA_OK;
}

void ranks_give_up(coda_group *g, const char *why)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    end(c, CODA_E_DEVICE, "rank %d gave up: %.200s", g->rank, why);
    abort_carriers(c);
    pthread_mutex_unlock(&c->lock);
}

void ranks_end(coda_group *g, coda_status status, const char *why)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    end(c, status, "%s", why);
    abort_carriers(c);
    pthread_mutex_unlock(&c->lock);
}

static void ask_carrier(const coda_group *g)
{
    struct company *c = g->company;
    const struct seat *s = &c->seat[g->rank];
    struct failure why;
    if (c->status || !s->own || !s->carrier->status(s->own, c->timeout_ms)) return;
    fail_save(&why);
    end(c, why.status, "rank %d: %.200s", g->rank, why.message);
}

coda_status ranks_status(const coda_group *g)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    ask_carrier(g);
    coda_status status = told(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* ---- Barriers: the lock is held ---- */

/* The exchange that ranks are at, from 1 on. */
static unsigned long long exchange(const struct company *c) { return (c->barriers - c->beside) / 2 + 1; }

static struct timespec deadline(int milliseconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += milliseconds / 1000;
    t.tv_nsec += milliseconds % 1000 * 1000000L;
    if (t.tv_nsec >= 1000000000L) t.tv_sec++, t.tv_nsec -= 1000000000L;
    return t;
}

/* The first rank that has not come yet: has it left, or is it late? */
static void end_without(struct company *c, const struct offer *mine, bool late)
{
    int r = 0;
    while (r < c->ranks - 1 && (c->seat[r].meetings > c->barriers || (!late && !c->seat[r].left))) r++;
    if (late)
        end(c, CODA_E_DEVICE, "rank %d missed exchange %llu (%s) for %d ms", r, exchange(c), mine->operation,
            c->timeout_ms);
    else
        end(c, CODA_E_DEVICE, "rank %d left the group before exchange %llu (%s)", r, exchange(c),
            mine->operation);
}

static bool somebody_left(const struct company *c)
{
    bool left = false;
    for (int r = 0; r < c->ranks; r++) left = left || (c->seat[r].left && c->seat[r].meetings <= c->barriers);
    return left;
}

/* The same operation, of the same elements. */
static bool agree(const struct offer *a, const struct offer *b)
{
    if (a->beside || b->beside) return a->beside == b->beside;
    return !strcmp(a->operation, b->operation) && a->dtype == b->dtype && a->outer == b->outer &&
           a->extent == b->extent && a->inner == b->inner;
}

/* "all_reduce of f32 [1,4,1]"; NULL: nothing. */
static const char *describe(char *buf, size_t size, const struct offer *o)
{
    struct text t = {0};
    if (!o) return "no more";
    if (o->beside) text_printf(&t, "a plan that begins, with %s", o->operation);
    else
        text_printf(&t, "%s of %s [%lld,%lld,%lld]", o->operation,
                    o->dtype ? dtype_name((coda_dtype)o->dtype) : "f64", (long long)o->outer,
                    (long long)o->extent, (long long)o->inner);
    text_emit(&t, buf, size);
    text_free(&t);
    return buf;
}

static void end_of_two(struct company *c, unsigned long long number, const struct offer *of_0, int r,
                       const struct offer *of_r)
{
    char a[100] = "", b[100] = "";
    end(c, CODA_E_INVALID, "exchange %llu: rank 0 has %s, rank %d has %s", number,
        describe(a, sizeof a, of_0), r, describe(b, sizeof b, of_r));
}

static void compare_offers(struct company *c)
{
    const struct offer *a = &c->seat[0].offer;
    for (int r = 1; r < c->ranks; r++)
        if (!agree(a, &c->seat[r].offer)) return end_of_two(c, exchange(c), a, r, &c->seat[r].offer);
}

static void wait_for_the_others(struct company *c, const struct offer *mine)
{
    uint64_t before = c->barriers;
    struct timespec until = deadline(c->timeout_ms);
    while (c->barriers == before && !c->status) {
        if (somebody_left(c)) end_without(c, mine, false);
        else if (!c->timeout_ms) pthread_cond_wait(&c->changed, &c->lock);
        else if (pthread_cond_timedwait(&c->changed, &c->lock, &until) == ETIMEDOUT && c->barriers == before)
            end_without(c, mine, true);
    }
}

/* A rank that is the last one lets all go on. */
static void barrier(coda_group *g, bool compares)
{
    struct company *c = g->company;
    c->seat[g->rank].meetings = c->barriers + 1;
    if (++c->here < c->ranks) {
        wait_for_the_others(c, &c->seat[g->rank].offer);
        return;
    }
    if (compares) compare_offers(c);
    c->here = 0;
    c->barriers++, c->beside += c->seat[g->rank].offer.beside;
    pthread_cond_broadcast(&c->changed);
}

/* A rank whose handle another thread has brought here already would stand for two. */
static void come(coda_group *g, const struct offer *mine)
{
    struct company *c = g->company;
    struct seat *s = &c->seat[g->rank];
    if (s->meetings > c->barriers || s->reads)
        end(c, CODA_E_INVALID, "rank %d is at exchange %llu (%s) twice; each rank has a handle of its own",
            g->rank, exchange(c), mine->operation);
    if (c->status) return;
    s->offer = *mine;
    c->x[g->rank] = mine->x;
    barrier(g, true);
    s->reads = !c->status;
}

static bool somebody_reads(const struct company *c)
{
    bool reads = false;
    for (int r = 0; r < c->ranks; r++) reads = reads || c->seat[r].reads;
    return reads;
}

/* How a group has ended. What this rank brought is its caller's again once nobody reads it any more. */
static coda_status told_behind_readers(struct company *c)
{
    while (c->status && somebody_reads(c)) pthread_cond_wait(&c->changed, &c->lock);
    return told(c);
}

coda_status ranks_meet(coda_group *g, const struct offer *mine, const void *const **x)
{
    struct company *c = g->company;
    if (c->elsewhere)
        return fail(CODA_E_UNSUPPORTED, "%s: the group's other ranks are reached from GPUs alone",
                    mine->operation);
    pthread_mutex_lock(&c->lock);
    come(g, mine);
    coda_status status = told_behind_readers(c);
    *x = c->x;
    pthread_mutex_unlock(&c->lock);
    return status;
}

coda_status ranks_part(coda_group *g)
{
    struct company *c = g->company;
    pthread_mutex_lock(&c->lock);
    c->seat[g->rank].reads = false;
    if (c->status) pthread_cond_broadcast(&c->changed);
    else barrier(g, false);
    coda_status status = told_behind_readers(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}

coda_status ranks_begin(coda_group *g, const char *operation)
{
    struct company *c = g->company;
    int r = 0;
    pthread_mutex_lock(&c->lock);
    while (r < c->ranks && !c->seat[r].left) r++;
    if (r < c->ranks) end(c, CODA_E_DEVICE, "rank %d left the group before %s", r, operation);
    coda_status status = told(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* ---- Plans ---- */

bool ranks_agreed(const coda_group *g, uint64_t digest)
{
    for (int i = g->agreements; i--;) /* the latest is the likeliest */
        if (g->agreed[i] == digest) return true;
    return false;
}

bool ranks_note_agreed(coda_group *g, uint64_t digest)
{
    bool full = !(g->agreements & (g->agreements - 1)); /* 0, 1, 2, 4, ... */
    size_t room = g->agreements ? 2 * (size_t)g->agreements : 1;
    uint64_t *more = full ? realloc(g->agreed, room * sizeof *more) : g->agreed;
    if (!more) return false;
    g->agreed = more;
    g->agreed[g->agreements++] = digest;
    return true;
}

static void compare_agendas(struct company *c, const struct agenda *a, int r, const struct agenda *b)
{
    int i = 0, least = MIN(a->exchanges, b->exchanges);
    while (i < least && agree(&a->exchange[i], &b->exchange[i])) i++;
    if (i == a->exchanges && i == b->exchanges)
        end(c, CODA_E_INVALID, "rank 0 and rank %d run other graphs, whose %d exchanges are equal", r, i);
    else
        end_of_two(c, (unsigned long long)i + 1, i < a->exchanges ? &a->exchange[i] : NULL, r,
                   i < b->exchanges ? &b->exchange[i] : NULL);
}

coda_status ranks_agree(coda_group *g, const struct agenda *mine)
{
    struct company *c = g->company;
    const struct offer offer = {.operation = mine->exchange[0].operation, .x = mine, .beside = true};
    const void *const *x;
    coda_status status = ranks_meet(g, &offer, &x);
    if (status) return status;
    const struct agenda *first = x[0];
    pthread_mutex_lock(&c->lock);
    for (int r = 1; r < c->ranks && !c->status; r++) {
        const struct agenda *other = x[r];
        if (other->digest != first->digest) compare_agendas(c, first, r, other);
    }
    pthread_mutex_unlock(&c->lock);
    return ranks_part(g);
}

/* The lock is held. */
static void compare_run(coda_group *g, const struct begun *mine)
{
    struct company *c = g->company;
    struct begun *first = &c->begun[mine->number % RUNS_KEPT];
    if (first->number < mine->number) *first = *mine;
    if (first->number != mine->number || first->digest == mine->digest) return;
    if (first->agreed || mine->agreed)
        end(c, CODA_E_INVALID,
            "run %llu of the group: rank %d has a plan whose first exchange is %s, rank %d another one, "
            "whose "
            "first is %s",
            (unsigned long long)mine->number, first->rank, first->operation, mine->rank, mine->operation);
}

coda_status ranks_follow(coda_group *g, const struct agenda *mine, bool captured)
{
    struct company *c = g->company;
    struct begun run = {.digest = mine->digest, .operation = mine->exchange[0].operation, .rank = g->rank};
    run.agreed = ranks_agreed(g, mine->digest);
    pthread_mutex_lock(&c->lock);
    c->captured = c->captured || captured;
    run.number = ++c->seat[g->rank].runs;
    if (!c->captured) compare_run(g, &run);
    coda_status status = told(c);
    pthread_mutex_unlock(&c->lock);
    return status;
}
