/*
 * coda_cache.h -- the cache of kernels: where it lies, what it counts, how it is listed, pruned and shipped
 * as bundles. A part of coda.h, which includes it: programs include coda.h alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef CODA_CACHE_H
#define CODA_CACHE_H

#include "coda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
 * Kernel cache
 *
 * What was compiled once is kept: in this process, and in a directory that processes, containers and
 * versions of the library share. Any of them may be killed at any moment, the disk may be full or
 * read-only, the directory on NFS or gone: that costs time, never a result or an error. It is
 * counted, see coda_cache_stats. A cache holds code: what others can write, or what is not yours
 * (or root's, where nothing is written), is refused, be it a directory, a folder or an entry in it,
 * or a bundle, and the reason is in the statistics.
 *
 * Without any of these calls coda_compile uses a cache that the environment describes:
 * CODA_CACHE_DIR, else $XDG_CACHE_HOME/coda, else ~/.cache/coda; CODA_CACHE_LIMIT in bytes, with K,
 * M, G or T, or -1 for none; CODA_CACHE_READ_ONLY=1; CODA_CACHE_VERIFY=1; CODA_BUNDLES, a colon list;
 * CODA_RECORD, a file. A value that makes no sense counts as not set, see coda_cache_problem. Relative
 * paths, here and in the options, are made absolute when the cache is opened. A setuid process ignores
 * them, as all of the environment, and keeps kernels in memory alone. cache/README.md is the operator's page,
 * SECURITY.md says who is trusted with what. Kernels that NVRTC's flags ($NVRTC_APPEND_FLAGS) or edited
 * primitives ($CODA_PRIMITIVES) may have made of other files, too, pass the cache by.
 * ---------------------------------------------------------------------------------------------- */

enum {
    CODA_CACHE_READ_ONLY = 1 << 0, /* write nothing */
    CODA_CACHE_SHARED = 1 << 1,    /* trust what is another user's, or writable by its group;
                                    * files are 0640 and folders 02750, or 0660 and 02770 if the
                                    * directory is writable by its group */
    CODA_CACHE_DURABLE = 1 << 2,   /* flush to the device; without it a power failure costs entries */
    CODA_CACHE_VERIFY = 1 << 3,    /* compile again what was found, and compare */
    CODA_CACHE_ISOLATE = 1 << 4    /* compile in a child process, which may crash or hang */
};

/* A place of your own instead of the directory: a data base, a remote store. The library checks what
 * it gets as it checks files. Names are 64 hex digits. Calls may come from several threads at once. */
typedef struct coda_cache_store {
    size_t size;
    void *context; /* passed to each call */
    /* The whole size of a value, or a negative number if there is none; copied to buf if it fits. */
    int64_t (*get)(void *context, const char *name, void *buf, size_t size);
    /* Replaces. 0, or an errno. */
    int (*put)(void *context, const char *name, const void *data, size_t size);
    void (*drop)(void *context, const char *name); /* may be NULL, as may both of the following */
    /* 1: the lock of this name is yours; 0: somebody else has it; negative: there are no locks. */
    int (*lock)(void *context, const char *name);
    void (*unlock)(void *context, const char *name);
} coda_cache_store;
#define CODA_CACHE_STORE_INIT {sizeof(coda_cache_store), NULL, NULL, NULL, NULL, NULL, NULL}

typedef struct coda_cache_options {
    size_t size;
    const char *dir;      /* NULL (INIT): by the environment, as above */
    const char *overlays; /* read-only directories and bundles, separated by colons; NULL (INIT):
                           * $CODA_BUNDLES; "": none */
    int64_t limit;        /* bytes of the directory; 0 (INIT): $CODA_CACHE_LIMIT, else 1 GiB;
                           * negative: none */
    unsigned flags;       /* INIT: 0; the environment may add READ_ONLY and VERIFY */
    int wait_ms;          /* for another process that compiles the same, before compiling too;
                           * 0 (INIT): 10 s; negative: never */
    int compile_ms;       /* of an isolated compilation; 0 (INIT): 120 s */
    const char *helper;   /* program that compiles in isolation; NULL (INIT): `coda` beside the
                           * library or on the PATH */
    const coda_cache_store *store; /* instead of dir; NULL (INIT): none */
    const char *record;   /* a file that gets a line for each kernel used; NULL (INIT): $CODA_RECORD */
} coda_cache_options;
#define CODA_CACHE_OPTIONS_INIT \
    {sizeof(coda_cache_options), NULL, NULL, 0, 0, 0, 0, NULL, NULL, NULL}

/* A place that cannot be used is no failure: see coda_cache_problem. Free it after the
 * plans that were compiled with it. */
CODA_API coda_status coda_cache_open(coda_cache **out, const coda_cache_options *opt);
CODA_API void coda_cache_free(coda_cache *c);

/* In all the following calls NULL stands for the cache of the environment. */
CODA_API const char *coda_cache_dir(coda_cache *c);     /* "" if there is none */
/* Why there is none, and whatever else was asked for and could not be had; or "". */
CODA_API const char *coda_cache_problem(coda_cache *c);

typedef struct coda_cache_stats {
    size_t size;
    uint64_t memory_hits;               /* found in this process */
    uint64_t bundle_hits;               /* found in a bundle */
    uint64_t disk_hits;                 /* found in the directory or the store */
    uint64_t overlay_hits;              /* found in a read-only directory */
    uint64_t misses;                    /* found nowhere */
    uint64_t compiles;                  /* made here */
    uint64_t compile_failures;          /* could not be made */
    uint64_t compile_ns;                /* time spent making, ns */
    uint64_t replayed_failures;         /* known not to be makeable */
    uint64_t waits;                     /* waited for another process that makes the same */
    uint64_t wait_ns;                   /* time spent waiting, ns */
    uint64_t wait_hits;                 /* got what another process made */
    uint64_t wait_timeouts;             /* waited too long, made it privately */
    uint64_t lock_unavailable;          /* no lock was to be had, went on without */
    uint64_t lock_stuck;                /* a lock held for too long, not waited for again */
    uint64_t rejected_short;            /* entries rejected: cut short, or no file */
    uint64_t rejected_foreign;          /* entries rejected: do not begin like one */
    uint64_t rejected_version;          /* entries rejected: of another format */
    uint64_t rejected_sizes;            /* entries rejected: parts are not the whole */
    uint64_t rejected_digest;           /* entries rejected: bytes have changed */
    uint64_t rejected_key;              /* entries rejected: of another key */
    uint64_t rejected_untrusted;        /* entries rejected: others could have written them */
    uint64_t refused;                   /* entries that the driver refused */
    uint64_t healed;                    /* rejected entries removed or replaced */
    uint64_t read_failures;             /* entries that could not be read */
    uint64_t read_bytes;                /* bytes of the entries that were found */
    uint64_t read_ns;                   /* time spent reading and checking, ns */
    uint64_t stored;                    /* entries published */
    uint64_t stored_bytes;              /* bytes published */
    uint64_t lost_races;                /* entries that another process published first */
    uint64_t too_large;                 /* entries not stored: no room below the limit */
    uint64_t store_failed;              /* entries that could not be stored */
    uint64_t store_failed_space;        /* of these: disk or quota full */
    uint64_t store_failed_denied;       /* of these: read-only or not permitted */
    uint64_t store_failed_descriptors;  /* of these: no file descriptor left */
    uint64_t store_failed_memory;       /* of these: out of memory */
    uint64_t store_failed_stale;        /* of these: stale handle or directory gone */
    uint64_t store_failed_locked;       /* of these: the directory's lock was not to be had */
    uint64_t store_failed_io;           /* of these: any other error */
    uint64_t evicted;                   /* entries evicted */
    uint64_t evicted_bytes;             /* bytes evicted */
    uint64_t swept;                     /* abandoned temporary files removed */
    uint64_t reopened;                  /* directory made again after it vanished */
    uint64_t verified;                  /* hits made again and compared */
    uint64_t verify_differed;           /* of these: bytes differed */
    uint64_t isolated;                  /* made in a child process */
    uint64_t isolate_crashes;           /* of these: the child crashed */
    uint64_t isolate_timeouts;          /* of these: the child took too long */
    uint64_t isolate_unavailable;       /* no child could be started, made here */
    uint64_t collisions;                /* entries of another key with the same digest, passed over */
    uint64_t unkeyed;                   /* made past the cache: their inputs are not all known */
    uint64_t loads;                     /* kernels loaded into a context */
    uint64_t load_hits;                 /* kernels that were loaded already */
    uint64_t load_ns;                   /* time spent loading, ns */
    uint64_t unloads;                   /* kernels unloaded */
} coda_cache_stats;
#define CODA_CACHE_STATS_INIT \
    {sizeof(coda_cache_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
     0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
CODA_API coda_status coda_cache_stats_get(coda_cache *c, coda_cache_stats *out);
/* The same with directory, file system and limit as one JSON object; prints as coda_graph_print. */
CODA_API int64_t coda_cache_stats_print(coda_cache *c, char *buf, size_t size);

/* Forgets what is kept in memory: kernels, of which those that no plan uses are unloaded, and failed
 * compilations, which are tried again. */
CODA_API void coda_cache_forget(coda_cache *c);

/* For a service that has warmed up: while sealed, nothing is compiled. coda_compile fails at once with
 * CODA_E_UNSUPPORTED and the kernel's name if it needs one that the cache does not have. */
CODA_API void coda_cache_seal(coda_cache *c, int sealed);

typedef struct coda_cache_entry {
    size_t size;
    const char *name;     /* 64 hex digits */
    const char *kind;     /* "kernel", "tuning" */
    const char *key;      /* lines of text; "" if the entry is damaged */
    const char *note;     /* a kernel's CUDA text */
    const char *fault;    /* why it would be rejected, one word; "" if it is intact */
    int64_t bytes;        /* on disk */
    int64_t age_s;        /* since its last use, to the hour */
} coda_cache_entry;
#define CODA_CACHE_ENTRY_INIT {sizeof(coda_cache_entry), NULL, NULL, NULL, NULL, NULL, 0, 0}
/* Calls visit for every entry of the directory, each read and checked, until it returns 0. What it gets
 * is valid during that call. CODA_E_IO if there is no directory; coda_cache_prune likewise. */
CODA_API coda_status coda_cache_list(coda_cache *c, int (*visit)(void *context, const coda_cache_entry *e),
                                     void *context);

/* Removes entries, beside running processes. NULL for opt removes nothing and counts; out may be NULL. */
typedef struct coda_cache_prune_options {
    size_t size;
    int64_t max_bytes;    /* down to this, least recently used first; 0 (INIT) or less: no matter */
    int64_t older_than_s; /* all unused for so long; 0 (INIT) or less: no matter */
    int faulty;           /* all that would be rejected; INIT: 0 */
    int dry_run;          /* counts alone; INIT: 0 */
    int clear;            /* all entries; INIT: 0 */
} coda_cache_prune_options;
#define CODA_CACHE_PRUNE_OPTIONS_INIT {sizeof(coda_cache_prune_options), 0, 0, 0, 0, 0}
typedef struct coda_cache_pruned {
    size_t size;
    int64_t removed, removed_bytes, kept, kept_bytes;
} coda_cache_pruned;
#define CODA_CACHE_PRUNED_INIT {sizeof(coda_cache_pruned), 0, 0, 0, 0}
CODA_API coda_status coda_cache_prune(coda_cache *c, const coda_cache_prune_options *opt,
                                      coda_cache_pruned *out);

/* Bundles: many entries in one read-only file. A program that is given a bundle of its kernels compiles
 * nothing, and the machine needs no NVRTC. In use by coda_cache_options.overlays, $CODA_BUNDLES, or, as
 * part of the program, by coda_cache_add_bundle; that array must outlive the cache. */
CODA_API coda_status coda_cache_add_bundle(coda_cache *c, const void *data, size_t size);

typedef struct coda_export_options {
    size_t size;
    const coda_plan *const *plans; /* the kernels of these, wherever they came from; NULL (INIT): what
                                    * the directory holds */
    int plan_count;
    const char *keys;  /* of these, those that the lines of a record name; NULL (INIT): all */
    const char *arch;  /* of these, those for "sm_90a", or "sm_80,sm_90a"; NULL (INIT): all */
    const char *array; /* write C source that defines `const unsigned char ARRAY[]` and `const
                        * unsigned long ARRAY_size`; NULL (INIT): write the bytes */
} coda_export_options;
#define CODA_EXPORT_OPTIONS_INIT {sizeof(coda_export_options), NULL, 0, NULL, NULL, NULL}
typedef struct coda_bundle_report {
    size_t size;
    int64_t entries; /* in the bundle */
    int64_t bytes;   /* of it */
    int64_t taken;   /* import: entries that are in the directory now */
    int64_t missing; /* export: kernels that `keys` names and the bundle has not, or that another one of
                      * the same digest has kept out */
    int64_t damaged; /* export: entries of the directory that cannot be read, and were left out */
} coda_bundle_report;
#define CODA_BUNDLE_REPORT_INIT {sizeof(coda_bundle_report), 0, 0, 0, 0, 0}
/* Writes a bundle at once: a file is all there, or as it was, and keeps its mode; what a link leads to is
 * written; a FIFO or a device is written to as it stands. out may be NULL, here and below. Kernels
 * that only another compiler's version differs in go in once, the one last used. A tuned plan takes along
 * those of its figures that `c` has, so that it is planned the same where they hold: on the same device,
 * with the same driver. Elsewhere plans are by price, so export an untuned one, too. Of a graph with
 * symbols all kernels go in that any shape wants, as by CODA_WARM_ALL, and what the cache lacks of them is
 * compiled; a sealed plan is refused. So the bundle is all that a process needs which compiles this graph
 * by this policy; of CODA_POLICY_BACKGROUND, by any. CODA_DEVICE_NONE plans as for an H200; a device with
 * another number of SMs may want other kernels: export plans made there. */
CODA_API coda_status coda_cache_export(coda_cache *c, const char *path, const coda_export_options *opt,
                                       coda_bundle_report *out);
/* Copies a bundle's entries into the directory, but those that are there. CODA_E_IO if none is stored. */
CODA_API coda_status coda_cache_import(coda_cache *c, const char *path, coda_bundle_report *out);
/* As coda_cache_list. */
CODA_API coda_status coda_bundle_list(const char *path,
                                      int (*visit)(void *context, const coda_cache_entry *e), void *context);
/* The facts about a whole bundle, as lines `name value`; prints as coda_graph_print. */
CODA_API int64_t coda_bundle_print(const char *path, char *buf, size_t size);

/* For the program that compiles in isolation: reads a request from `in`, answers to `out`; an exit status. */
CODA_API int coda_compile_worker(int in, int out);

#ifdef __cplusplus
}
#endif

#endif
