/*
 * cache.h -- bytes by key: in this process, in a directory that processes share, in bundles. Knows no
 * CUDA.
 *
 * The cache never fails, it only misses: a missing, short, damaged, foreign or unwritable entry is a
 * miss, and what it could not do is counted, not said. Identity is content: no path, date or device is
 * part of it. Safe across threads, processes, containers and fork; errno is left as it was.
 *
 *     memory -> bundles -> directory -> read-only directories -> [lock -> look again] -> make -> publish
 *
 * cache_obtain() is that line. Everything below it is one file each.
 */
#ifndef CACHE_H
#define CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- fd.c: the library's only open and write, for jit too ---- */

/* openat, closed by exec and never 0, 1 or 2; or -1. */
int fd_open(int at, const char *path, int flags, mode_t mode);
/* Moves a descriptor of one's own above 2; -1, with it closed, if that cannot be. */
int fd_raise(int fd);
/* write() that raises no signal: beyond RLIMIT_FSIZE it fails with EFBIG, into a dead pipe with EPIPE. */
/* setting.c: as strerror(), in English and ASCII whatever the locale is, as it becomes part of JSON. */
const char *error_text(int error);
ssize_t fd_write_some(int fd, const void *from, size_t size);
bool fd_write(int fd, const void *from, size_t size); /* all of it; or false with errno */
/* A plain file of at most so many bytes as a malloc'd string; or NULL. */
char *file_text(const char *path, size_t most);

/* ---- environment.c: the only reader of the environment, for lib/ and jit/ too ---- */

/* Is it that of a caller with fewer rights (setuid and the like)? Then no variable counts. */
bool environment_is_foreign(void);
const char *environment(const char *name); /* NULL if it is not set, empty, or does not count */
/* "NAME=value" of the first variable that begins with one of the first list and none of the second, which
 * both end with NULL; also where none counts, for other libraries read them. */
const char *environment_begins(const char *const *prefix, const char *const *but);
char **environment_of_child(void); /* for exec */

/* ---- digest.c: 256 bits, two XXH3-128 of different seeds. Against rot and chance: whoever tries finds two
 * texts of one digest ---- */

struct digest {
    uint64_t word[4];
};
enum { DIGEST_HEX = 65 }; /* 64 digits and a NUL */
struct digest digest_of(const void *data, size_t size);
struct digest digest_of_two(const void *a, size_t a_size, const void *b, size_t b_size); /* as if joined */
bool digest_equal(const struct digest *a, const struct digest *b);
void digest_hex(char out[DIGEST_HEX], const struct digest *d);

/* ---- Keys ---- */

enum cache_kind { CACHE_KERNEL = 1, CACHE_TUNING = 2 };
const char *cache_kind_name(enum cache_kind kind); /* "kernel", "tuning", "unknown" */

/* Lines of text. WHAT is asked for, which memory and bundles go by, and BY whom it would be made, which
 * a directory goes by too. A kernel's text is too long for WHAT, which has its digest; it is part of the key
 * all the same and an entry's note. Two things of one key are the same bytes. What is found by the digests
 * is compared with all of it. The strings stay the caller's. */
struct cache_key {
    enum cache_kind kind;
    const char *what, *by;     /* by NULL: not known yet */
    const char *text;          /* NULL: there is none */
    struct digest what_digest; /* of what */
    struct digest digest;      /* of what and by, joined */
};
struct cache_key cache_key(enum cache_kind kind, const char *what, const char *by); /* without text */

/* ---- name.c: the digest that something is filed under; a and b as if joined ---- */
struct digest name_of(const void *a, size_t a_size, const void *b, size_t b_size);

/* ---- entry.c: one entry as a pure function of bytes ---- */

struct entry {
    enum cache_kind kind;
    const char *key; /* WHAT and BY, joined; no NUL */
    size_t key_size, what_size;
    const char *note; /* a kernel's text, part of its key; no NUL */
    size_t note_size;
    const void *data;
    size_t data_size;
};
/* ORDER entry_fault_name */
enum entry_fault {
    ENTRY_INTACT,
    ENTRY_SHORT,     /* shorter than a header, longer than any entry, or no plain file */
    ENTRY_FOREIGN,   /* does not begin like one */
    ENTRY_VERSION,   /* of another format */
    ENTRY_SIZES,     /* its parts are not the whole */
    ENTRY_DIGEST,    /* its bytes have changed */
    ENTRY_KEY,       /* of another key or kind */
    ENTRY_UNTRUSTED, /* others could have written it */
    ENTRY_FAULTS
};
enum { ENTRY_HEADER = 80, ENTRY_FORMAT = 2 };
#define ENTRY_MAX ((size_t)1 << 28) /* bytes */
const char *entry_fault_name(enum entry_fault f);
/* malloc'd; NULL if memory ran out or it would be longer than ENTRY_MAX. */
void *entry_pack(const struct entry *e, size_t *size);
/* What the first ENTRY_HEADER bytes say of a file of so many, before the rest is looked at. */
enum entry_fault entry_promise(const void *header, uint64_t size);
/* `out` points into `bytes`. Any bytes of any size may be given. */
enum entry_fault entry_check(struct entry *out, const void *bytes, size_t size);
/* ENTRY_KEY unless the entry is of this key; what the key does not have, `by` or `text`, is not compared. */
enum entry_fault entry_match(const struct entry *e, const struct cache_key *k);
/* Does the entry lie under the name (64 digits) that its key gives, or its WHAT if it was imported? */
bool entry_is_named(const struct entry *e, const char *name);
/* Does it lie where somebody of its BY has put it? Then it was not imported for all. */
bool entry_is_made(const struct entry *e, const char *name);
/* Are they the same thing, whoever made them? */
bool entry_same(const struct entry *a, const struct entry *b);

/* ---- stats.c: what happened, counted ---- */

#define CACHE_COUNTERS(F)                                                                                    \
    F(memory_hits, "found in this process")                                                                  \
    F(bundle_hits, "found in a bundle")                                                                      \
    F(disk_hits, "found in the directory or the store")                                                      \
    F(overlay_hits, "found in a read-only directory")                                                        \
    F(misses, "found nowhere")                                                                               \
    F(compiles, "made here")                                                                                 \
    F(compile_failures, "could not be made")                                                                 \
    F(compile_ns, "time spent making, ns")                                                                   \
    F(replayed_failures, "known not to be makeable")                                                         \
    F(waits, "waited for another process that makes the same")                                               \
    F(wait_ns, "time spent waiting, ns")                                                                     \
    F(wait_hits, "got what another process made")                                                            \
    F(wait_timeouts, "waited too long, made it privately")                                                   \
    F(lock_unavailable, "no lock was to be had, went on without")                                            \
    F(lock_stuck, "a lock held for too long, not waited for again")                                          \
    F(rejected_short, "entries rejected: cut short, or no file")                                             \
    F(rejected_foreign, "entries rejected: do not begin like one")                                           \
    F(rejected_version, "entries rejected: of another format")                                               \
    F(rejected_sizes, "entries rejected: parts are not the whole")                                           \
    F(rejected_digest, "entries rejected: bytes have changed")                                               \
    F(rejected_key, "entries rejected: of another key")                                                      \
    F(rejected_untrusted, "entries rejected: others could have written them")                                \
    F(refused, "entries that the driver refused")                                                            \
    F(healed, "rejected entries removed or replaced")                                                        \
    F(read_failures, "entries that could not be read")                                                       \
    F(read_bytes, "bytes of the entries that were found")                                                    \
    F(read_ns, "time spent reading and checking, ns")                                                        \
    F(stored, "entries published")                                                                           \
    F(stored_bytes, "bytes published")                                                                       \
    F(lost_races, "entries that another process published first")                                            \
    F(too_large, "entries not stored: no room below the limit")                                              \
    F(store_failed, "entries that could not be stored")                                                      \
    F(store_failed_space, "of these: disk or quota full")                                                    \
    F(store_failed_denied, "of these: read-only or not permitted")                                           \
    F(store_failed_descriptors, "of these: no file descriptor left")                                         \
    F(store_failed_memory, "of these: out of memory")                                                        \
    F(store_failed_stale, "of these: stale handle or directory gone")                                        \
    F(store_failed_locked, "of these: the directory's lock was not to be had")                               \
    F(store_failed_io, "of these: any other error")                                                          \
    F(evicted, "entries evicted")                                                                            \
    F(evicted_bytes, "bytes evicted")                                                                        \
    F(swept, "abandoned temporary files removed")                                                            \
    F(reopened, "directory made again after it vanished")                                                    \
    F(verified, "hits made again and compared")                                                              \
    F(verify_differed, "of these: bytes differed")                                                           \
    F(isolated, "made in a child process")                                                                   \
    F(isolate_crashes, "of these: the child crashed")                                                        \
    F(isolate_timeouts, "of these: the child took too long")                                                 \
    F(isolate_unavailable, "no child could be started, made here")                                           \
    F(collisions, "entries of another key with the same digest, passed over")                                \
    F(unkeyed, "made past the cache: their inputs are not all known")                                        \
    CACHE_PROCESS_COUNTERS(F)

/* Counters of the whole process, whatever cache they came from. */
#define CACHE_PROCESS_COUNTERS(F)                                                                            \
    F(loads, "kernels loaded into a context")                                                                \
    F(load_hits, "kernels that were loaded already")                                                         \
    F(load_ns, "time spent loading, ns")                                                                     \
    F(unloads, "kernels unloaded")

#define CACHE_COUNTER_ENUM(name, comment) COUNT_##name,
enum cache_counter { CACHE_COUNTERS(CACHE_COUNTER_ENUM) CACHE_COUNTER_COUNT };
struct stats {
    _Atomic uint64_t count[CACHE_COUNTER_COUNT];
};
static inline void stats_add(struct stats *s, enum cache_counter which, uint64_t n)
{
    atomic_fetch_add_explicit(&s->count[which], n, memory_order_relaxed);
}
extern struct stats stats_of_process; /* for the counters of the process */
static inline uint64_t stats_get(const struct stats *s, enum cache_counter which)
{
    if (which >= COUNT_loads) s = &stats_of_process;
    return atomic_load_explicit(&s->count[which], memory_order_relaxed);
}
void stats_reject(struct stats *s, enum entry_fault f);
void stats_store_failure(struct stats *s, int error); /* an errno */

/* ---- Values: what a build came to. Immutable, counted; the last cache_value_free frees ---- */

/* ORDER cache_source_name */
enum cache_source { FROM_NOWHERE, FROM_MAKER, FROM_MEMORY, FROM_BUNDLE, FROM_DISK, FROM_OVERLAY };
struct cache_value {
    atomic_uint refs;
    int status;  /* 0, or what the maker returned */
    char *error; /* and said; NULL if status is 0 */
    void *data;  /* 16-byte aligned */
    size_t size;
    enum cache_source source; /* where this process got it first */
    const char *missed;       /* why it had to be made: "absent", "digest", ...; "" if it had not */
    double ms;                /* of the maker */
};
/* Takes data (malloc'd) over; NULL, with data freed, if memory ran out. */
struct cache_value *cache_value_new(void *data, size_t size, enum cache_source source);
struct cache_value *cache_value_failed(int status, const char *error);
const struct cache_value *cache_value_retain(const struct cache_value *v);
void cache_value_free(const struct cache_value *v);

/* ---- cache.c ---- */

struct coda_cache; /* the API's coda_cache */

/* A place of the user's own instead of the directory; the bytes are those of files, checked like them.
 * `name` is 64 hex digits. Each may be called by several threads at once. */
struct cache_store {
    void *ctx;
    int64_t (*get)(void *ctx, const char *name, void *buf, size_t size);    /* whole size, or < 0 */
    int (*put)(void *ctx, const char *name, const void *data, size_t size); /* replaces; 0 or errno */
    void (*drop)(void *ctx, const char *name);
    int (*lock)(void *ctx, const char *name); /* 1: mine now, 0: somebody else's, < 0: no locks */
    void (*unlock)(void *ctx, const char *name);
};

enum {
    CACHE_READ_ONLY = 1 << 0, /* nothing is written, not even an access time */
    CACHE_SHARED = 1 << 1,    /* the directory may be another user's or writable by its group */
    CACHE_DURABLE = 1 << 2,   /* entries are flushed to the device before they get their name */
    CACHE_VERIFY = 1 << 3,    /* each first hit is made again and compared */
    CACHE_ISOLATE = 1 << 4    /* asked of the maker: see cache_flags */
};

#define CACHE_LIMIT ((int64_t)1 << 30) /* bytes, the default */
enum { CACHE_WAIT_MS = 10000, CACHE_ERROR = 512 };

struct cache_options {
    const char *dir;      /* NULL: $CODA_CACHE_DIR, $XDG_CACHE_HOME/coda, ~/.cache/coda */
    const char *overlays; /* read-only directories and bundle files, separated by colons; or NULL */
    int64_t limit;        /* bytes of the directory; 0: CACHE_LIMIT, < 0: none */
    unsigned flags;
    int wait_ms;                     /* for another process; 0: CACHE_WAIT_MS, < 0: not at all */
    const struct cache_store *store; /* instead of dir; copied */
    const char *record;              /* a file that gets one line for each key used; or NULL */
    const char *helper;              /* kept for the maker, as is compile_ms */
    int compile_ms;
};
/* options NULL: all by default and by the environment ($CODA_CACHE_LIMIT, $CODA_CACHE_VERIFY,
 * $CODA_CACHE_READ_ONLY, $CODA_BUNDLES). NULL only when memory runs out; a directory that cannot be made
 * or trusted gives a cache that keeps things in memory alone. */
struct coda_cache *cache_open(const struct cache_options *options);
void cache_close(struct coda_cache *c);
const char *cache_dir(const struct coda_cache *c);     /* "" if there is none */
const char *cache_problem(const struct coda_cache *c); /* why there is none, or "" */
unsigned cache_flags(const struct coda_cache *c);
const char *cache_helper(const struct coda_cache *c); /* or NULL */
int cache_compile_ms(const struct coda_cache *c);
struct stats *cache_stats(struct coda_cache *c);
/* One JSON object, as snprintf does it: directory, problem, file system, limit, all counters. Negative if
 * memory ran out. */
int64_t cache_stats_print(struct coda_cache *c, char *buf, size_t size);

/* What needs no compiler's name: memory (no lock, no system call, no allocation), bundles and, for a key
 * without `by`, what was imported. The value may be a failure. NULL: not there. */
const struct cache_value *cache_find(struct coda_cache *c, const struct cache_key *k);

/* Makes what a key names: malloc'd *data, or a status other than 0 and one line of CACHE_ERROR bytes at
 * most in err. *passing says that the failure is not the key's (memory, a missing library), so that it is
 * not kept. */
struct cache_maker {
    int (*make)(void *ctx, void **data, size_t *size, char *err, bool *passing);
    void *ctx;
};
/* The value of a key, made at most once by all threads of this process and, as long as locks work and
 * nobody dies, by all processes of the directory. NULL only if memory ran out. */
const struct cache_value *cache_obtain(struct coda_cache *c, const struct cache_key *k,
                                       const struct cache_maker *m);
/* The same after `refused` turned out to be of no use: it is dropped wherever it can be, and what others
 * have put into its place meanwhile is taken, or made. */
const struct cache_value *cache_renew(struct coda_cache *c, const struct cache_key *k,
                                      const struct cache_maker *m, const struct cache_value *refused);
/* While a cache is sealed its maker should refuse: what is not there is an error then. */
void cache_seal(struct coda_cache *c, bool sealed);
bool cache_is_sealed(const struct coda_cache *c);
/* Drops all that is kept in memory, failures too. */
void cache_forget(struct coda_cache *c);

/* Plain texts or bytes by key, past memory and locks: a put replaces what is there of the same key, and
 * nothing else. data is malloc'd. */
bool cache_get(struct coda_cache *c, const struct cache_key *k, void **data, size_t *size);
void cache_put(struct coda_cache *c, const struct cache_key *k, const void *data, size_t size);

/* A bundle in memory, which must stay there. False with the reason in why (CACHE_ERROR bytes). */
bool cache_add_bundle(struct coda_cache *c, const void *data, size_t size, char *why);

/* ---- walk.c: looking through a directory, beside running processes ---- */

struct cache_item {
    const char *name; /* 64 hex digits */
    enum entry_fault fault;
    struct entry entry; /* if intact */
    int64_t bytes;      /* on disk */
    int64_t age_s;      /* since its last use, to the hour; >= 0 */
    const void *raw;    /* the whole entry as it lies on disk, raw_size bytes */
    size_t raw_size;
};
/* Every entry, each read and checked, in no order. A visit that returns false ends it. False if there is
 * no directory. */
bool cache_walk(struct coda_cache *c, bool (*visit)(void *ctx, const struct cache_item *item), void *ctx);

struct cache_prune {
    int64_t max_bytes;    /* down to this, the least recently used first; < 0: no matter */
    int64_t older_than_s; /* all not used for so long; < 0: no matter */
    bool faulty;          /* all that are not intact, which reads every one */
    bool dry;             /* counts alone */
    int64_t removed, removed_bytes, kept, kept_bytes; /* out */
};
bool cache_prune(struct coda_cache *c, struct cache_prune *p);
/* Publishes an entry's bytes, checked, under the name of its WHAT, so that it serves whatever compiler is
 * or is not there. True if it is there now. */
bool cache_import(struct coda_cache *c, const void *raw, size_t raw_size);

/* ---- bundle.c: many entries as one read-only block; immutable, for any thread ---- */

struct bundle;
/* Reads a file once, or takes bytes that must outlive the bundle. Checked from end to end; NULL with the
 * reason in why (CACHE_ERROR bytes), and errno ENOMEM if it is that, here and below. The file must belong
 * to the user or to root and be writable by nobody else; with CACHE_SHARED, by not everybody. */
struct bundle *bundle_open(const char *path, unsigned flags, char *why);
struct bundle *bundle_of(const void *data, size_t size, char *why);
void bundle_close(struct bundle *b);
/* The entry of a key, whoever made it; checked again. It points into the bundle. *other: another key's has
 * the same digest; may be NULL. */
bool bundle_find(const struct bundle *b, const struct cache_key *k, struct entry *out, bool *other);
int bundle_count(const struct bundle *b);
const void *bundle_block(const struct bundle *b, int i, size_t *size); /* the bytes of an entry */
const char *bundle_manifest(const struct bundle *b);                   /* text, for people */

struct bundle_block {
    const void *data; /* an entry's bytes, intact */
    size_t size;
};
/* A bundle as one malloc'd block; of several entries with one WHAT the first goes in, and of several whose
 * WHATs have one digest one. The same entries in any order give the same bytes, but for the first. NULL with
 * the reason in why. */
void *bundle_pack(const struct bundle_block *block, int count, const char *manifest, size_t *size, char *why);

/* ---- save.c ---- */

/* Writes a plain file at once: it is all there, or as it was; anything else (a FIFO, a device, /dev/stdout)
 * from where it stands. A link stays one, a file keeps its mode. False with the reason in why. */
bool file_save(const char *path, const void *data, size_t size, char *why);

#endif
