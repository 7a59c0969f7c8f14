/*
 * torture.h -- what the programs of this folder share: a scratch folder, the fakes' board, children, and
 * the lines of figures.
 *
 * Each program proves some properties of the kernel cache by doing them harm: build/torture/NAME runs
 * short, with --full at the scale of `make torture`. A line of figures is
 *
 *     NAME: what was done, in numbers: n cases, 0 wrong
 *
 * and the exit status is 0 if nothing was wrong. The programs are linked with shim.so, and compile with
 * the fakes of test/fake unless they say otherwise.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cache.h"
#include "coda.h"
#include "fake.h"
#include "shim.h"

extern bool full;                /* --full */
extern struct fake_board *board; /* cleared by board_reset */
extern char scratch[256];        /* a fresh folder; removed at the end */

void torture_begin(int argc, char **argv, const char *name);
bool chosen(const char *part); /* named on the command line, or nothing is */
int torture_end(void);         /* removes the scratch folder; main's status */

/* Prints a line of figures and counts it. */
void figure(long cases, long wrong, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Says what went wrong, at most five times a figure; returns 1, to be added up. */
int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A property that this machine cannot show: said loudly, and no failure. */
void skipped(const char *format, ...) __attribute__((format(printf, 1, 2)));
int scaled(int quick, int full_scale);
double now_ms(void); /* monotonic */
uint64_t noise(uint64_t *state);

/* ---- Files ---- */

const char *under(const char *name); /* in scratch; valid for some calls */
void remove_tree(const char *path);
/* Calls `each` for all regular files below; returns their number. `each` may be NULL. */
int walk_files(const char *path, void (*each)(const char *path, void *ctx), void *ctx);
int open_descriptors(void);                       /* of this process */
void *read_whole(const char *path, size_t *size); /* malloc'd, or NULL */
bool write_whole(const char *path, const void *data, size_t size);

/* ---- Children ---- */

/* A child that ends with the value of `body`. */
pid_t spawn(int (*body)(void *), void *ctx);
/* 0 .. 255: its status; 1000 + n: signal n ended it. */
int reap(pid_t child);
/* The same for n of them: how many did not end with 0. */
int reap_all(const pid_t *child, int n);
/* All children of a test stop here until n have come. In memory that they share. */
struct gate;
struct gate *gate_new(int n);
void gate_pass(struct gate *g);
void *shared_memory(size_t size); /* zeroed, for children too; never freed */

/* ---- Kernels, by the public path and the fakes ---- */

void board_reset(void);
/* Different numbers are different kernels; `words` (or NULL) go into the source as a comment. */
coda_graph *kernel_graph(int number, const char *words);
/* coda_compile for the (fake) GPU through `cache`, the kernel that is loaded compared with the source of
 * the plan, and a launch. CODA_OK: all of that was right. */
coda_status use_kernel(struct coda_cache *cache, int number);
coda_status use_graph(struct coda_cache *cache, const coda_graph *g);

/* ---- Things: values without a kernel around them, of any size ---- */

/* Obtains thing `number` of `size` bytes; making it counts as a compile on the board and takes as long. */
bool obtain_thing(struct coda_cache *c, int number, size_t size);
struct cache_key thing_key(int number); /* its strings live for some calls */
void thing_fill(void *out, int number, size_t size);
bool thing_right(const void *data, size_t got, int number, size_t size);

/* ---- Caches ---- */

struct coda_cache *open_cache(const char *folder); /* no limit; all else by default */
uint64_t counted(struct coda_cache *c, enum cache_counter which);
/* Is it the path of an entry: 64 hex digits, the first of them its folder's name? */
bool is_entry(const char *path);
/* Files below `folder` that are neither entries nor the cache's own lasting ones; entries, if not NULL,
 * gets the number of those. */
int leftovers(const char *folder, int *entries);

#endif
