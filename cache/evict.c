/*
 * evict.c -- the bound on a directory's size, held before each publish.
 *
 *     root/v2/.size ::= total:i64 ~total:i64      bytes on disk of all entries, an upper bound
 *
 * A writer whose file is complete but has no name takes the account's lock, adds its bytes, names the file,
 * and lets go. So the sum of what is there never exceeds the limit, and a writer that is killed in between
 * leaves an account that is too high, never too low. When it would exceed the limit the directory is
 * counted afresh, and the least recently used go until a tenth is free. Whoever publishes without the lock,
 * for there are none or it has no limit, and whoever cannot count to the end, leaves an account that is
 * empty: the next one counts. Who does not get the lock in time does not store.
 * Hosts that share a directory have locks of their own and one account, so that there the bound is held but
 * for what they publish at the same moment.
 *
 * "Recently used" is the file's mtime, which disk.c moves; "now" is the mtime that the account has just
 * got from the same file system, so that no clock is compared with another's. A date in the future
 * counts as now, and becomes it: an entry that was as new each time would outlive all that are used.
 */
#include "inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, ABANDONED_S = 10, LOCKLESS_S = 3600 };
static const int64_t patience_ns = 2000000000; /* for the account's lock */

int64_t evict_cost(int64_t size) { return (size + BLOCK - 1) / BLOCK * BLOCK; }

static int64_t cost_of(const struct stat *st)
{
    int64_t blocks = (int64_t)st->st_blocks * 512, whole = evict_cost(st->st_size);
    return blocks > whole ? blocks : whole;
}

/* ---- The account ---- */

/* Waits for the account's lock as long as there is one to wait for, and it is not known to be stuck. */
static enum lock_state open_account(struct account *a, struct dir *d)
{
    int64_t deadline = now_ns() + patience_ns, nap = 50000;
    *a = (struct account){.lock = LOCK_INIT};
    while ((a->state = lock_try(&a->lock, d, LOCK_SIZE)) == LOCK_BUSY &&
           !lock_is_stuck(&d->stuck, LOCK_SIZE)) {
        if (now_ns() >= deadline) {
            lock_give_up(&a->lock, d);
            break;
        }
        doze(nap);
        if (nap < 2000000) nap *= 2;
    }
    if (a->state == LOCK_BUSY) stats_add(d->stats, COUNT_lock_stuck, 1);
    if (a->state == LOCK_NONE) stats_add(d->stats, COUNT_lock_unavailable, 1);
    a->fd = dir_file(d, ".size");
    return a->state;
}

static void close_account(struct account *a)
{
    if (a->fd >= 0) close(a->fd);
    lock_release(&a->lock);
}

/* -1: there is no sound one. */
static int64_t read_account(const struct account *a)
{
    int64_t v[2];
    if (a->state != LOCK_MINE || a->fd < 0 || pread(a->fd, v, sizeof v, 0) != sizeof v) return -1;
    return v[0] == ~v[1] && v[0] >= 0 && v[0] <= INT64_MAX / 2 ? v[0] : -1;
}

/* Without the lock, or with an unknown total (-1), it is emptied. */
static void write_account(const struct account *a, int64_t total)
{
    int64_t v[2] = {total, ~total};
    bool known = a->state == LOCK_MINE && total >= 0;
    if (a->fd >= 0 && (!known || !fd_write_at(a->fd, v, sizeof v, 0))) (void)!ftruncate(a->fd, 0);
}

/* The file system's own idea of now: the date it gives to a file. Ours if it says nothing. */
static struct timespec probe(const struct account *a)
{
    struct stat st;
    struct timespec ours = {.tv_sec = time(NULL)};
    return a->fd < 0 || futimens(a->fd, NULL) || fstat(a->fd, &st) ? ours : st.st_mtim;
}

static bool is_earlier(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

/* ---- The directory's files ---- */

struct item {
    char name[DIGEST_HEX];
    struct stat st;
    struct timespec used; /* not later than now */
    bool faulty;
};

struct census {
    struct dir *d;
    struct item *item;
    size_t n, room;
    struct timespec now;
    int64_t total;
    bool failed, check;
};

static bool is_faulty(const struct dir *d, const struct scanned *s)
{
    struct entry e;
    size_t size;
    void *bytes;
    enum entry_fault fault = disk_examine(d, &e, &bytes, &size, s);
    free(bytes);
    return fault != ENTRY_INTACT && fault != ENTRY_FAULTS;
}

static bool take(void *ctx, const struct scanned *s)
{
    struct census *c = ctx;
    if (c->n == c->room) {
        size_t room = c->room ? 2 * c->room : 256;
        struct item *more = realloc(c->item, room * sizeof *more);
        if (!more) return c->failed = true, false;
        c->item = more;
        c->room = room;
    }
    struct item *i = &c->item[c->n++];
    memcpy(i->name, s->name, sizeof i->name);
    i->st = s->st;
    i->used = is_earlier(c->now, s->st.st_mtim) ? c->now : s->st.st_mtim;
    i->faulty = c->check && is_faulty(c->d, s);
    c->total += cost_of(&s->st);
    return true;
}

static int older_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return is_earlier(y->used, x->used) - is_earlier(x->used, y->used);
}

/* Removes an entry that is still the file that was counted. */
static bool evict_one(struct dir *d, const struct item *i)
{
    int folder = dir_folder(d, i->name, false);
    bool gone = folder >= 0 && disk_remove(folder, i->name, &i->st);
    if (folder >= 0) close(folder);
    return gone;
}

/* Whether p wants the item gone; c->total is what would be left so far. */
static bool unwanted(const struct census *c, const struct cache_prune *p, const struct item *i)
{
    if (p->faulty && i->faulty) return true;
    if (p->max_bytes >= 0 && c->total > p->max_bytes) return true;
    return p->older_than_s >= 0 && c->now.tv_sec - i->used.tv_sec >= p->older_than_s;
}

static void age_from_now(struct dir *d, const struct item *i)
{
    const struct timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    int folder = dir_folder(d, i->name, false);
    if (folder < 0) return;
    utimensat(folder, i->name + FOLDER_DIGITS, times, AT_SYMLINK_NOFOLLOW);
    close(folder);
}

static void prune(struct census *c, struct cache_prune *p)
{
    if (c->n) qsort(c->item, c->n, sizeof *c->item, older_first);
    for (size_t k = 0; k < c->n; k++) {
        const struct item *i = &c->item[k];
        int64_t cost = cost_of(&i->st);
        if (!unwanted(c, p, i) || (!p->dry && !evict_one(c->d, i))) {
            p->kept++, p->kept_bytes += cost;
            if (!p->dry && is_earlier(i->used, i->st.st_mtim)) age_from_now(c->d, i);
            continue;
        }
        p->removed++, p->removed_bytes += cost;
        c->total -= cost;
    }
}

/* ---- Abandoned temporary files ---- */

/* A writer holds a lock on its file; where there are no locks, age decides. */
static bool is_abandoned(const struct dir *d, int fd, const struct stat *st, int64_t now)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int64_t age = now - st->st_mtim.tv_sec;
    if (age < ABANDONED_S) return false;
    if (d->remote) return age > LOCKLESS_S;
    if (!fcntl(fd, F_OFD_SETLK, &whole)) return true;
    return errno != EAGAIN && errno != EACCES && age > LOCKLESS_S;
}

static void sweep_one(struct dir *d, const char *name, int64_t now)
{
    struct stat st;
    int fd = fd_open(d->fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0) return;
    if (!fstat(fd, &st) && is_abandoned(d, fd, &st, now) && !unlinkat(d->fd, name, 0))
        stats_add(d->stats, COUNT_swept, 1);
    close(fd);
}

static void sweep(struct dir *d, int64_t now)
{
    int fd = fd_open(d->fd, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list && fd >= 0) close(fd);
    for (struct dirent *e; list && (e = readdir(list));)
        if (!strncmp(e->d_name, TEMPORARY, sizeof TEMPORARY - 1)) sweep_one(d, e->d_name, now);
    if (list) closedir(list);
}

/* ---- All together ---- */

/* Counts, removes what p asks for, and writes the account. */
static bool balance(struct dir *d, const struct account *a, struct cache_prune *p)
{
    struct census c = {.d = d, .check = p->faulty};
    c.now = probe(a);
    if (!p->dry) sweep(d, c.now.tv_sec);
    if (!dir_scan(d, take, &c)) c.failed = true;
    prune(&c, p);
    free(c.item);
    if (!p->dry) {
        write_account(a, c.failed ? -1 : c.total);
        stats_add(d->stats, COUNT_evicted, (uint64_t)p->removed);
        stats_add(d->stats, COUNT_evicted_bytes, (uint64_t)p->removed_bytes);
    }
    return !c.failed;
}

int evict_admit(struct dir *d, struct account *a, int64_t cost)
{
    struct cache_prune p = {.max_bytes = d->limit - d->limit / 10 - cost, .older_than_s = -1};
    *a = (struct account){.lock = LOCK_INIT, .fd = -1};
    if (d->limit < 0) { /* keeps no account, but others may */
        a->fd = dir_look(d, ".size", O_WRONLY);
        write_account(a, -1);
        return 0;
    }
    if (cost > d->limit) return E2BIG;
    if (open_account(a, d) == LOCK_BUSY) return close_account(a), ENOLCK;
    a->total = read_account(a);
    if (a->total < 0 || a->total + cost > d->limit) {
        if (a->total < 0) p.max_bytes = d->limit - cost; /* count it; remove only if it is too full */
        if (p.max_bytes < 0) p.max_bytes = 0;
        bool good = balance(d, a, &p);
        a->total = p.kept_bytes;
        if (!good || a->total + cost > d->limit) return close_account(a), ENOSPC;
    }
    a->total += cost;
    write_account(a, a->total);
    return 0;
}

void evict_settle(struct account *a, int64_t cost, bool published)
{
    if (!published || a->state != LOCK_MINE) write_account(a, a->total - cost);
    close_account(a);
}

int64_t evict_total(struct dir *d)
{
    struct account a = {.state = LOCK_MINE}; /* one read shows one write */
    if (d->fd < 0) return -1;
    a.fd = dir_look(d, ".size", O_RDONLY);
    int64_t total = read_account(&a);
    if (a.fd >= 0) close(a.fd);
    return total;
}

/* Once for each process, where temporary files have names. */
void evict_sweep(struct dir *d)
{
    struct account a;
    if (!atomic_load(&d->no_tmpfile) || atomic_exchange(&d->swept, true)) return;
    open_account(&a, d);
    sweep(d, probe(&a).tv_sec);
    close_account(&a);
}

bool evict_prune(struct dir *d, struct cache_prune *p)
{
    struct account a = {.lock = LOCK_INIT, .fd = -1};
    bool reader = d->flags & CACHE_READ_ONLY;
    if (d->fd < 0 || (reader && !p->dry)) return false;
    if (!reader) open_account(&a, d);
    bool good = balance(d, &a, p);
    close_account(&a);
    return good;
}
