/*
 * gate.c -- the thread that accepts, and the table of who is connected.
 *
 * Each socket is also in an epoll set of the gate's own, which tells once that the client has closed its half
 * (EPOLLRDHUP), even behind bytes that nobody reads. A place in the table is free again when libmicrohttpd
 * says that the connection is closed, which is before it closes the socket: what is shut here is never
 * another one's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "chat_gate.h"

enum {
    TICK_MS = 100,   /* between two looks at deadlines */
    TRIM_TICKS = 50, /* between two returns of memory to the system */
    BATCH = 64,      /* connections that are accepted in one go */
    EVENTS = 64,
    BACKLOG = 1024,
    KERNEL_BYTES = 1 << 17, /* of a socket's buffers, each way, which Linux takes twice */
    LISTENER = -1           /* in an event, instead of a place in the table */
};

struct peer {
    int fd;
    uint32_t generation; /* of the place: events of the one before are none of this one's */
    bool used, shut;
    enum peer_phase phase;
    double since, until; /* monotonic seconds */
    atomic_bool gone;
    atomic_bool *cancelled; /* or NULL */
};

struct gate {
    struct gate_options opt;
    struct MHD_Daemon *daemon;
    pthread_t thread;
    bool runs;
    atomic_bool quit;
    int listener, events;
    pthread_mutex_t lock; /* of what follows */
    struct peer *peer;
    int places; /* more than may be connected: who is ended keeps a place until libmicrohttpd has seen it */
    struct gate_counts counts;
    bool closed; /* somebody has been, since memory was returned last */
};

static double monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- The table; all of it under the lock ---- */

static double allowed(const struct gate *g, enum peer_phase phase)
{
    const double seconds[PEER_PHASES] = {[PEER_HEADER] = g->opt.header,
                                         [PEER_PAUSE] = g->opt.pause,
                                         [PEER_BODY] = g->opt.body,
                                         [PEER_WAIT] = 1e12,
                                         [PEER_ANSWER] = g->opt.answer};
    return seconds[phase];
}

static void enter(struct gate *g, struct peer *p, enum peer_phase phase)
{
    double now = monotonic();
    p->phase = phase;
    p->since = now;
    p->until = now + allowed(g, phase);
}

static struct peer *find(struct gate *g, int fd)
{
    for (int i = 0; i < g->places; i++)
        if (g->peer[i].used && g->peer[i].fd == fd) return &g->peer[i];
    return NULL;
}

static struct peer *free_place(struct gate *g)
{
    for (int i = 0; i < g->places; i++)
        if (!g->peer[i].used) return &g->peer[i];
    return NULL;
}

static void leave(struct gate *g, struct peer *p)
{
    p->used = false;
    p->generation++;
    p->cancelled = NULL;
    g->counts.open--;
    g->closed = true;
}

/* libmicrohttpd closes it when it sees that nothing comes any more. */
static void shut(struct peer *p)
{
    shutdown(p->fd, SHUT_RDWR);
    p->shut = true;
}

static struct peer *longest(struct gate *g, unsigned phases)
{
    struct peer *found = NULL;
    for (int i = 0; i < g->places; i++) {
        struct peer *p = &g->peer[i];
        if (p->used && !p->shut && phases >> p->phase & 1 && (!found || p->since < found->since)) found = p;
    }
    return found;
}

static bool evict(struct gate *g, unsigned phases, double seconds)
{
    struct peer *p = longest(g, phases);
    if (!p || monotonic() - p->since < seconds) return false;
    shut(p);
    g->counts.evicted++;
    return true;
}

/* Who has not asked yet leaves first, then who does not take an answer; who waits for the server stays. */
static bool make_room(struct gate *g)
{
    return evict(g, 1u << PEER_HEADER | 1u << PEER_PAUSE | 1u << PEER_BODY, 0) ||
           evict(g, 1u << PEER_ANSWER, 0);
}

static void look_at_deadlines(struct gate *g)
{
    double now = monotonic();
    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < g->places; i++) {
        struct peer *p = &g->peer[i];
        if (!p->used || p->shut || p->until >= now) continue;
        shut(p);
        g->counts.late++;
    }
    pthread_mutex_unlock(&g->lock);
}

/* ---- The thread ---- */

static bool watch(const struct gate *g, int fd, uint32_t events, int place, uint32_t generation)
{
    struct epoll_event e = {.events = events, .data.u64 = (uint64_t)generation << 32 | (uint32_t)place};
    return epoll_ctl(g->events, EPOLL_CTL_ADD, fd, &e) == 0;
}

/* false: there is no place, until libmicrohttpd has closed one. */
static struct peer *take_place(struct gate *g, int fd)
{
    pthread_mutex_lock(&g->lock);
    struct peer *stale = find(g, fd), *p; /* a number that is taken anew was closed without a word */
    if (stale) leave(g, stale);
    if (g->counts.open >= g->opt.connections) make_room(g);
    if ((p = free_place(g))) {
        p->fd = fd;
        p->used = true;
        p->shut = false;
        p->cancelled = NULL;
        atomic_store(&p->gone, false);
        enter(g, p, PEER_HEADER);
        g->counts.open++;
        g->counts.accepted++;
    }
    pthread_mutex_unlock(&g->lock);
    return p;
}

static void give_up_place(struct gate *g, struct peer *p)
{
    pthread_mutex_lock(&g->lock);
    leave(g, p);
    pthread_mutex_unlock(&g->lock);
}

/* A client that has gone already is not let in. */
static bool is_gone(int fd)
{
    struct pollfd p = {fd, POLLRDHUP, 0};
    return poll(&p, 1, 0) > 0;
}

/* A token does not wait for the one before. What the kernel holds for a client that does not read, or that
 * sends what nobody reads, is limited: by itself it would be some MB each way. */
static void tune(int fd)
{
    const int yes = 1, bytes = KERNEL_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

static void let_in(struct gate *g, int fd, const struct sockaddr *from, socklen_t bytes)
{
    struct peer *p = is_gone(fd) ? NULL : take_place(g, fd);
    if (!p || !watch(g, fd, EPOLLRDHUP | EPOLLONESHOT, (int)(p - g->peer), p->generation)) {
        if (p) give_up_place(g, p);
        close(fd);
        return;
    }
    tune(fd);
    if (MHD_add_connection(g->daemon, fd, from, bytes) != MHD_YES) give_up_place(g, p); /* and fd is closed */
}

static bool has_place(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    bool has = g->counts.open < g->places;
    pthread_mutex_unlock(&g->lock);
    return has;
}

/* A moment in which libmicrohttpd closes what was shut. */
static void wait_for_room(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    nanosleep(&moment, NULL);
}

static void accept_some(struct gate *g)
{
    for (int i = 0; i < BATCH; i++) {
        struct sockaddr_storage from;
        socklen_t bytes = sizeof from;
        if (!has_place(g)) return wait_for_room();
        int fd = accept4(g->listener, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            let_in(g, fd, (struct sockaddr *)&from, bytes);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) { /* no descriptors, or no memory */
            pthread_mutex_lock(&g->lock);
            make_room(g);
            pthread_mutex_unlock(&g->lock);
            return wait_for_room();
        }
    }
}

static void note_gone(struct gate *g, uint64_t data)
{
    pthread_mutex_lock(&g->lock);
    struct peer *p = &g->peer[(uint32_t)data];
    if (p->used && p->generation == (uint32_t)(data >> 32)) {
        atomic_store(&p->gone, true);
        if (p->cancelled) atomic_store(p->cancelled, true);
    }
    pthread_mutex_unlock(&g->lock);
}

/* Gives the system what those who are gone have left. */
static void return_memory(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    bool wanted = g->closed;
    g->closed = false;
    pthread_mutex_unlock(&g->lock);
    if (wanted) malloc_trim(0);
}

static void *gate_main(void *arg)
{
    struct gate *g = arg;
    struct epoll_event e[EVENTS];
    double next = monotonic();
    for (unsigned ticks = 1; !atomic_load(&g->quit);) {
        int n = epoll_wait(g->events, e, EVENTS, TICK_MS);
        for (int i = 0; i < n; i++)
            if ((int32_t)e[i].data.u64 != LISTENER) note_gone(g, e[i].data.u64);
            else if (!atomic_load(&g->quit)) accept_some(g);
        if (monotonic() < next) continue;
        next = monotonic() + TICK_MS * 1e-3;
        look_at_deadlines(g);
        if (!(ticks++ % TRIM_TICKS)) return_memory(g);
    }
    return NULL;
}

/* ---- Others' threads ---- */

static bool listen_at(struct gate *g)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)g->opt.port)};
    const int yes = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    g->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    g->events = epoll_create1(EPOLL_CLOEXEC);
    return g->listener >= 0 && g->events >= 0 &&
           !setsockopt(g->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
           !bind(g->listener, (struct sockaddr *)&at, sizeof at) && !listen(g->listener, BACKLOG) &&
           watch(g, g->listener, EPOLLIN, LISTENER, 0);
}

struct gate *gate_open(const struct gate_options *opt, struct fault *f)
{
    struct gate *g = calloc(1, sizeof *g);
    fault_set(f, "out of memory");
    if (!g) return NULL;
    g->opt = *opt;
    g->listener = g->events = -1;
    g->places = opt->connections + opt->connections / 4 + BATCH;
    pthread_mutex_init(&g->lock, NULL);
    g->peer = calloc((size_t)g->places, sizeof *g->peer);
    if (g->peer && listen_at(g)) return g;
    if (g->peer) fault_set(f, "cannot listen at port %d of 127.0.0.1: %s", opt->port, strerror(errno));
    gate_free(g);
    return NULL;
}

int gate_port(const struct gate *g)
{
    struct sockaddr_in at = {0};
    socklen_t bytes = sizeof at;
    return getsockname(g->listener, (struct sockaddr *)&at, &bytes) ? 0 : ntohs(at.sin_port);
}

bool gate_start(struct gate *g, struct MHD_Daemon *daemon)
{
    g->daemon = daemon;
    return g->runs = !pthread_create(&g->thread, NULL, gate_main, g);
}

void gate_stop(struct gate *g)
{
    if (!g || !g->runs) return;
    atomic_store(&g->quit, true);
    shutdown(g->listener, SHUT_RDWR); /* wakes the thread */
    pthread_join(g->thread, NULL);
    g->runs = false;
}

void gate_free(struct gate *g)
{
    if (!g) return;
    gate_stop(g);
    if (g->listener >= 0) close(g->listener);
    if (g->events >= 0) close(g->events);
    pthread_mutex_destroy(&g->lock);
    free(g->peer);
    free(g);
}

static int descriptor(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

void gate_notify(void *gate, struct MHD_Connection *c, void **context,
                 enum MHD_ConnectionNotificationCode what)
{
    struct gate *g = gate;
    pthread_mutex_lock(&g->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = find(g, descriptor(c));
    } else if (*context) {
        struct peer *p = *context;
        epoll_ctl(g->events, EPOLL_CTL_DEL, p->fd, NULL);
        leave(g, p);
    }
    pthread_mutex_unlock(&g->lock);
}

struct peer *gate_peer(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

void peer_enter(struct gate *g, struct peer *p, enum peer_phase phase)
{
    pthread_mutex_lock(&g->lock);
    enter(g, p, phase);
    pthread_mutex_unlock(&g->lock);
}

bool peer_gone(const struct peer *p) { return atomic_load(&p->gone); }

void peer_watch(struct gate *g, struct peer *p, atomic_bool *cancelled)
{
    pthread_mutex_lock(&g->lock);
    p->cancelled = cancelled;
    if (cancelled && atomic_load(&p->gone)) atomic_store(cancelled, true);
    pthread_mutex_unlock(&g->lock);
}

bool gate_evict(struct gate *g, enum peer_phase phase, double seconds)
{
    pthread_mutex_lock(&g->lock);
    bool done = evict(g, 1u << phase, seconds);
    pthread_mutex_unlock(&g->lock);
    return done;
}

void gate_shut(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (evict(g, 1u << PEER_ANSWER, 0)) {}
    pthread_mutex_unlock(&g->lock);
}

void gate_settle(struct gate *g, double seconds)
{
    const unsigned served = 1u << PEER_WAIT | 1u << PEER_ANSWER;
    for (double until = monotonic() + seconds; monotonic() < until; wait_for_room()) {
        pthread_mutex_lock(&g->lock);
        bool settled = !longest(g, served);
        pthread_mutex_unlock(&g->lock);
        if (settled) return;
    }
}

struct gate_counts gate_counts(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    struct gate_counts counts = g->counts;
    pthread_mutex_unlock(&g->lock);
    return counts;
}
