/* base.h -- what every file of lib/ stands on: errors, arena, growable text, threads. */
#ifndef BASE_H
#define BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coda.h"

#define ARRAY_SIZE(a) ((int)(sizeof(a) / sizeof *(a)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
/* CEIL_DIV of an a that may be below 0 or as large as it can; b > 0. */
static inline int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Sums and products of counts, all >= 0, that stop at INT64_MAX: of tensors that fit in 63 bits each, but
 * not all together. */
static inline int64_t add_counts(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}
static inline int64_t mul_counts(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* error.c -- the thread's one-line message. fail() formats it and returns its first argument, so that
 * `return fail(CODA_E_INVALID, "...", ...)` is the only way to fail. */
coda_status fail(coda_status status, const char *format, ...) PRINTF(2, 3);
coda_status fail_status(void);  /* what the last fail() returned */
const char *fail_message(void); /* and said; never NULL */
/* What the thread last failed with: kept, and put back, around attempts that may fail. */
struct failure {
    coda_status status;
    char message[1024];
};
void fail_save(struct failure *out);
void fail_restore(const struct failure *f);
coda_status vfail(coda_status status, const char *format, va_list args);

/* arena.c -- memory that is freed all at once. Allocations are zeroed and 16-byte aligned. When
 * memory runs out arena_alloc returns NULL and `failed` stays set: check it once, at the end. */
struct arena {
    struct arena_block *block;
    bool failed;
};
void *arena_alloc(struct arena *a, size_t bytes);
void *arena_copy(struct arena *a, const void *data, size_t bytes);
/* An array of `count` elements of `size` bytes with place for one more: itself, or a copy of twice the
 * capacity. The old one stays where it is, so that pointers into it stay valid. */
void *arena_grow(struct arena *a, void *array, int count, int *capacity, size_t size);
char *arena_string(struct arena *a, const char *s);
char *arena_format(struct arena *a, const char *format, ...) PRINTF(2, 3);
void arena_free(struct arena *a);
#define ARENA_NEW(a, type, n) ((type *)arena_alloc((a), sizeof(type) * (size_t)(n)))

/* text.c -- growable text. Sticky `failed` when memory runs out; text_str is never NULL. */
struct text {
    char *str;
    size_t length, capacity;
    bool failed;
    bool silent; /* nothing is printed */
};
void text_printf(struct text *t, const char *format, ...) PRINTF(2, 3);
void text_vprintf(struct text *t, const char *format, va_list args) PRINTF(2, 0);
void text_append(struct text *t, const char *s);
const char *text_str(const struct text *t);
static inline const char *truth(bool b) { return b ? "true" : "false"; }
void text_free(struct text *t);
int64_t text_emit(const struct text *t, char *buf, size_t size); /* the snprintf-like public form */

/* format.c -- as vsnprintf, snprintf, strtof and strtod in the locale "C", whatever the program's or the
 * thread's is; printing is quicker where only strings, integers and characters are printed. The only way to
 * print or to read a float. */
int format_print(char *out, size_t size, const char *format, va_list args) PRINTF(3, 0);
int format_line(char *out, size_t size, const char *format, ...) PRINTF(3, 4);
float format_read_float(const char *s, char **end);
double format_read_double(const char *s, char **end);

/* escape.c -- `in` as one line that a terminal shows and does not obey: \x1b for control characters and for
 * what is no UTF-8. As much as has room in `size` > 0 bytes, with the 0; its length. */
size_t escape(char *out, size_t size, const char *in);

/* hash.c -- for tables of this process alone. */
uint64_t hash_of(const void *data, size_t size);

/* parallel.c -- fn(ctx, i) for i in 0..n-1 on all cores, by threads that stay; returns when all are done. */
void parallel_for(int64_t n, void (*fn)(void *ctx, int64_t i), void *ctx);
/* The same of a loop of so many operations in all, as a product's multiply-adds: few of them run alone. */
void parallel_work(int64_t n, double operations, void (*fn)(void *ctx, int64_t i), void *ctx);
/* The same by new threads, all at once: of items that take long or wait for each other. */
void parallel_for_most(int64_t n, int threads, void (*fn)(void *ctx, int64_t i), void *ctx);
enum { PARALLEL_MOST = 64 };
int parallel_threads(void);            /* 1..PARALLEL_MOST: the cores that this process may use, ... */
int parallel_limit(int threads);       /* ... or what the calling thread said last, if not 0; returns what it
                                          said before */
int parallel_worth(double operations); /* threads for a loop of so many */

/* vectors.c -- instructions that loops of the host may use: those of x86-64-v2, or of another machine; v3,
 * with AVX2 and FMA; v4, with AVX-512. */
enum vectors { VECTORS_V2, VECTORS_V3, VECTORS_V4, VECTORS_LEVELS };
enum vectors vectors(void);      /* those that loops use: all that there are, or $CODA_CPU */
coda_status vectors_check(void); /* fails if $CODA_CPU is no name of these */
enum vectors vectors_most(void); /* those that the machine has */
const char *vectors_name(void);  /* "v3" */

/* dtype.c -- what dtypes.def says of a type. An element may have fewer bits than a byte, so that there is no
 * number of bytes of one: ask for the bytes of as many as there are, or for the elements of so many bytes. */
int dtype_bits(coda_dtype t);                        /* of one element; 0 for an invalid dtype */
int64_t dtype_bytes(coda_dtype t, int64_t elements); /* in whole blocks; INT64_MAX if they are more */
int64_t dtype_elements(coda_dtype t, int64_t bytes); /* whole ones that so many bytes hold */
const char *dtype_name(coda_dtype t);                /* "bf16" */
const char *dtype_names(void);                       /* "f32, bf16, ..." */
bool dtype_find(const char *name, coda_dtype *out);
bool dtype_is_float(coda_dtype t);   /* operations take it */
bool dtype_is_half(coda_dtype t);    /* a float of 16 bits, as tensor cores multiply them */
bool dtype_is_index(coda_dtype t);   /* what is asked for as int32 may be int64, too */
bool dtype_is_storage(coda_dtype t); /* it is only kept in memory */
bool dtype_is_f8(coda_dtype t);      /* f8e4m3 or f8e5m2 */
double dtype_load(coda_dtype t, const void *base, int64_t index);
void dtype_store(coda_dtype t, void *base, int64_t index, double value); /* round to nearest even */
uint8_t dtype_f8e4m3_of(double x);                                       /* as dtype_store rounds */
uint8_t dtype_f8e5m2_of(double x);

/* debug.c -- CODA_DEBUG=graph,rewrite,plan,source,cache,launch and CODA_DUMP=dir, read once. */
enum debug_topic { DEBUG_GRAPH, DEBUG_REWRITE, DEBUG_PLAN, DEBUG_SOURCE, DEBUG_CACHE, DEBUG_LAUNCH };
bool debug_on(enum debug_topic topic);
bool debug_shows(enum debug_topic topic); /* debug_stage does something */
/* Prints "coda TOPIC: LINE". */
void debug_line(enum debug_topic topic, const char *line);
/* Prints the text to stderr if its topic is on, and writes it to $CODA_DUMP/NN-name, a new file, if that is
 * set. */
void debug_stage(enum debug_topic topic, const char *name, const char *text);
/* $CODA_DUMP and why nothing is written there, or NULL. NULL if it is not set. */
const char *debug_dump(const char **why);
/* For functions that a person calls in a debugger (p debug_graph(g)): frees t and returns its text, in one
 * buffer for all threads, which the next call overwrites; a long text is cut off. */
const char *debug_show(struct text *t);

#endif
