/* inside.h -- what the files of cache/ know of each other. */
#ifndef INSIDE_H
#define INSIDE_H

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "cache.h"

/* A call leaves errno as it was. Its thread is not cancelled in it: others may be waiting for what it makes,
 * and descriptors would stay open. */
struct guard {
    int error, cancel;
};
static inline struct guard guard_enter(void)
{
    struct guard g = {.error = errno};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &g.cancel);
    return g;
}
static inline void guard_leave(struct guard g)
{
    pthread_setcancelstate(g.cancel, NULL);
    errno = g.error;
}

/* ---- stats.c ---- */

struct dir;
int64_t stats_print(const struct stats *s, struct dir *d, char *buf, size_t size);

/* ---- bytes.c ---- */

void bytes_put(unsigned char *p, uint64_t x, int n); /* n bytes, little-endian */
uint64_t bytes_get(const unsigned char *p, int n);
void bytes_put_digest(unsigned char *p, const struct digest *d);
struct digest bytes_get_digest(const unsigned char *p);

/* ---- fd.c; more of it in cache.h ---- */

/* All of a block. False with errno; EIO: the file ends before it. */
bool fd_read(int fd, void *to, size_t size);
bool fd_read_at(int fd, void *to, size_t size, off_t at);
bool fd_write_at(int fd, const void *from, size_t size, off_t at); /* or less, which is false */
/* Waits where the descriptor does not: for pipes, sockets, terminals. */
bool fd_pour(int fd, const void *from, size_t size);
enum { INTERRUPTIONS = 100 }; /* of one call by signals, before they count as an error */

/* ---- lock.c: what is known of locks that nobody gives back ---- */

enum { STUCKS = 8 };
struct stuck { /* places [from, to) of the lock file, until then; a reader may see half of a change */
    struct {
        _Atomic int64_t from, to, until;
    } range[STUCKS];
    atomic_uint next;
};

/* ---- dir.c: a directory that was found to be ours ---- */

/* Why a file or folder may not be used, or NULL: who can write it can run code as its user. It must be the
 * user's own, or root's where nothing is written (CACHE_READ_ONLY), and writable by nobody else; with
 * CACHE_SHARED anybody's, and writable by its group. */
const char *trust_problem(const struct stat *st, unsigned flags);
enum { PROBLEM = 1024 };
void problem_add(char problem[PROBLEM], const char *format, ...) __attribute__((format(printf, 2, 3)));

struct dir {
    int fd;                /* of root/v2, or -1; everything is reached from it */
    char *path;            /* root */
    char problem[PROBLEM]; /* all reasons, with "; " between */
    unsigned flags;        /* CACHE_READ_ONLY, CACHE_SHARED, CACHE_DURABLE */
    mode_t file_mode, dir_mode;
    const char *fs;         /* "ext4", "nfs", ... */
    bool remote;            /* other hosts may have it mounted */
    int64_t limit;          /* bytes, or < 0 */
    atomic_bool no_tmpfile; /* its file system cannot make files without a name */
    atomic_bool swept;      /* abandoned temporary files were looked for */
    struct stuck stuck;
    struct stats *stats;
};
/* Takes path over (malloc'd; NULL: there is none, and `problem` says why). False with `problem` set. */
bool dir_open(struct dir *d, char *path, unsigned flags);
void dir_close(struct dir *d);
/* $CODA_CACHE_DIR and so on, malloc'd; NULL if there is no home or no memory. */
char *dir_default(char problem[PROBLEM]);
/* Makes it again after it vanished. */
bool dir_reopen(struct dir *d);
/* A new descriptor of the folder that the first digit of a name stands for; or -1, with EPERM if it is
 * not to be trusted. */
int dir_folder(struct dir *d, const char *name, bool make);
enum { FOLDER_DIGITS = 1 }; /* 16 folders: a bound of 1 GiB has some thousand entries in each */

/* A descriptor of a file in root/v2 that is no entry, made if it is not there; or -1. */
int dir_file(struct dir *d, const char *name);
/* The same if it is there; `flags` as of open. */
int dir_look(const struct dir *d, const char *name, int flags);

/* Every entry's file, in no order; visit returns false to end it. `name` is the whole name. False if some
 * could not be looked at, for want of descriptors or memory. */
struct scanned {
    int folder;
    char name[DIGEST_HEX];
    struct stat st;
};
bool dir_scan(struct dir *d, bool (*visit)(void *ctx, const struct scanned *s), void *ctx);
#define TEMPORARY ".tmp-" /* files in root/v2 that begin so are entries being written */

/* ---- setting.c: the environment; what cannot be meant is told in `problem` and is as if not set ---- */

bool setting_flag(const char *name, char problem[PROBLEM]);
int64_t setting_size(const char *name, int64_t otherwise, char problem[PROBLEM]); /* -1: none */
/* A path made absolute, so that the process may go elsewhere: malloc'd, or NULL. "" stays what it is. */
char *setting_path(const char *path, char problem[PROBLEM]);

/* ---- disk.c ---- */

/* NULL and malloc'd *data on a hit, else why it missed, in a word. */
const char *disk_get(struct dir *d, const struct cache_key *k, void **data, size_t *size);
/* 0, EEXIST if somebody was first (and `replace` is false), or an errno. */
int disk_put(struct dir *d, const char *name, const void *bytes, size_t size, bool replace);
/* What is wrong with an entry, ENTRY_FAULTS if it cannot be read at present. *bytes is malloc'd or NULL. */
enum entry_fault disk_examine(const struct dir *d, struct entry *e, void **bytes, size_t *size,
                              const struct scanned *s);
/* Removes the entry of a name if it is still the file that was seen. */
bool disk_remove(int folder, const char *name, const struct stat *seen);
/* Is the entry of this name the same thing? */
bool disk_has(struct dir *d, const char *name, const struct entry *same);
/* Removes the entry of a key if it holds these bytes. */
void disk_drop(struct dir *d, const struct cache_key *k, const void *data, size_t size);

/* ---- lock.c ---- */

enum lock_state { LOCK_NONE, LOCK_BUSY, LOCK_MINE }; /* none: there are no locks here */
struct lock {
    int fd;
    int64_t at;
};
#define LOCK_INIT                                                                                            \
    {                                                                                                        \
        -1, 0                                                                                                \
    }
enum lock_state lock_try(struct lock *l, struct dir *d, int64_t at);
void lock_release(struct lock *l); /* also after LOCK_BUSY and LOCK_NONE */
/* After a wait that came to nothing: for STUCK_S nobody waits for what the lock's holder holds. */
void lock_give_up(struct lock *l, struct dir *d);
void lock_mark_stuck(struct stuck *s, int64_t from, int64_t to);
bool lock_is_stuck(struct stuck *s, int64_t at);
enum { STUCK_S = 60 };
int64_t lock_place(const struct digest *key);
#define LOCK_SIZE ((int64_t)1 << 62) /* the place of the account's lock; those of keys are below it */
int64_t now_ns(void);                /* monotonic */
void doze(int64_t ns);

/* ---- evict.c ---- */

/* Bytes that a file of this size takes, as far as can be known. */
int64_t evict_cost(int64_t size);
struct account {
    struct lock lock;
    enum lock_state state;
    int fd;
    int64_t total;
};
/* Makes room for a file and accounts for it: 0, and the account is locked until evict_settle; E2BIG if the
 * limit does not allow it, ENOLCK if the lock is not to be had. */
int evict_admit(struct dir *d, struct account *a, int64_t cost);
void evict_settle(struct account *a, int64_t cost, bool published);
int64_t evict_total(struct dir *d); /* as accounted; -1: unknown */
void evict_sweep(struct dir *d);
bool evict_prune(struct dir *d, struct cache_prune *p);

/* ---- memo.c: what this process has had, and what it is making ---- */

enum { MEMO_BUCKETS = 4096 };
#define MEMO_LIMIT ((size_t)64 << 20) /* bytes */
struct memo_node;
struct flight;
struct memo {
    atomic_uint readers;
    _Atomic(struct memo_node *) bucket[MEMO_BUCKETS];
    pthread_mutex_t mutex; /* for writers, flights and all below */
    struct memo_node *retired;
    struct flight *flights;
    size_t bytes;
    unsigned hand;    /* bucket where forgetting goes on */
    atomic_uint life; /* forks before the process that owns the mutex and the readers */
};
void memo_init(struct memo *m);
void memo_free(struct memo *m);
void memo_forget(struct memo *m);
/* No lock, no system call, no allocation. A reference, or NULL. */
const struct cache_value *memo_find(struct memo *m, const struct cache_key *k);
/* Keeps a value; one that is there already is replaced. */
void memo_put(struct memo *m, const struct cache_key *k, const struct cache_value *v);
/* Either the result of another thread's flight, when it has landed (true, *v may be NULL: no memory), or
 * a flight of one's own to be landed (false; NULL if memory ran out). `stale` is a value that is not to be
 * taken, nor its like, or NULL. */
bool memo_join(struct memo *m, const struct cache_key *k, const struct cache_value *stale,
               const struct cache_value **v, struct flight **own);
void memo_land(struct memo *m, struct flight *f, const struct cache_value *v, bool keep);

/* ---- store.c: the user's place instead of a directory ---- */

const char *store_get(const struct cache_store *s, struct stats *stats, const struct cache_key *k,
                      void **data, size_t *size);
int store_put(const struct cache_store *s, const struct cache_key *k, const void *bytes, size_t size);
/* The payload of an entry's bytes: NULL and the data moved to the front of the block, or the fault. */
const char *entry_take(struct stats *stats, const struct cache_key *k, void *bytes, size_t total,
                       size_t *size);
/* The fault of an entry that is intact and in its place, which another key has by its digest, too. It stays
 * there, or two keys would drive each other out for ever; who came later makes his own and keeps it to
 * himself. */
extern const char entry_collision[];

/* ---- cache.c ---- */

struct bundles { /* a list that only grows, at its front */
    struct bundle *bundle;
    struct bundles *next;
};

struct coda_cache {
    struct memo memo;
    struct stats stats;
    struct dir dir;
    struct cache_store store;
    bool has_store;
    unsigned flags;
    atomic_bool sealed;
    int wait_ms, compile_ms;
    char *record, *helper;
    struct dir *overlay; /* read-only directories */
    int overlays;
    _Atomic(struct bundles *) bundles;
    struct stuck stuck; /* locks of the store */
};

/* ---- backend.c: the directory or the store ---- */

const char *place_get(struct coda_cache *c, const struct cache_key *k, void **data, size_t *size);
void place_put(struct coda_cache *c, const struct cache_key *k, const void *data, size_t size, bool replace);
/* Is another key's entry in this one's place? */
bool place_is_taken(struct coda_cache *c, const struct cache_key *k);
void place_drop(struct coda_cache *c, const struct cache_key *k, const struct cache_value *v);
bool place_writable(const struct coda_cache *c);
bool place_import(struct coda_cache *c, const void *raw, size_t raw_size);

/* ---- obtain.c ---- */

/* Directories and bundles, past memory. */
struct cache_value *obtain_look(struct coda_cache *c, const struct cache_key *k);

/* ---- walk.c ---- */

bool walk_dir(struct dir *d, bool (*visit)(void *ctx, const struct cache_item *item), void *ctx);

/* ---- record.c ---- */

void record_key(const char *path, const struct cache_key *k);

#endif
