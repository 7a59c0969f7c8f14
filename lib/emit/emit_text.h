/* emit_text.h -- the pieces of text that all emitters share. */
#ifndef EMIT_TEXT_H
#define EMIT_TEXT_H

#include "kernel.h"
#include "schedule.h"

/* A kernel with the schedule's launch and nothing else; false: no memory. */
bool emit_begin(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k);
coda_status emit_fits(const struct kernel *k); /* its parameters: 4 kB */

typedef long long wide; /* for %lld */

/* A few words of a line. */
struct word {
    char s[192];
};
struct word emit_word(const char *format, ...) PRINTF(1, 2);
/* The policy of tile/weights.cuh that reads what is packed. */
struct word emit_packed(const struct tensor_use *u);

/* How a kernel's entry runs its body. */
struct entry {
    int cluster;           /* blocks of a cluster; 0 is 1 */
    const char *residents; /* blocks of an SM that registers are to leave room for; NULL: not said */
    int registers;         /* of a thread at launch, and no bound on threads; 0: as the bound has it */
    bool declares;         /* the block's memory is of the text's type Shared; else it is dynamic */
};
/* A kernel is a body, a device function that asks nothing of the launch but by its arguments, and an entry:
 *
 *     template <class Block> DEV void body(const Args &a, const Block &block) { ... }
 *
 * emit_body begins the one; emit_entry prints the other. The text has a struct Args, and tile/block.cuh. */
void emit_body(struct text *t);
/* Lets the next kernel start early, of a grid whose blocks are few. */
void emit_launch_next(struct text *t);
void emit_entry(const struct kernel *k, const struct entry *e, struct text *t);
const char *emit_symbol(struct plan *plan, const struct program *p, const char *prefix);
int emit_pointer(struct kernel *k, int buffer, int64_t bytes); /* its index in k->pointer */
int emit_use(struct kernel *k, const struct tensor_use *u);    /* the same of where a tensor begins */
int emit_scalar(struct kernel *k, int buffer);                 /* its index in k->scalar */
void emit_number(struct kernel *k, int64_t number);            /* the same, of a number below 2^32 */
void emit_count(struct kernel *k, int64_t count);              /* ... below 2^31; others emit_fits refuses */
void emit_long(struct kernel *k, int64_t number);              /* the same of any, an i64 */
void emit_divisor(struct kernel *k, int64_t divisor);          /* the numbers of a Divisor; below 2^31 */
const char *emit_dtype(coda_dtype t);                          /* "bf16", "f16", "f32", "i32" */
void emit_includes(const struct program *p, struct text *t);   /* of the primitives it uses */
void emit_map(const struct prim *q, struct text *t);           /* what comes before a call of it */
struct word emit_float(float x);                               /* in C++, to the last bit */
/* A constant of Config. */
void emit_constant(struct text *t, const char *type, const char *name, int64_t value);
/* What goes before a map's name in a kernel. A user may call a map what C++ calls something else, and in it
 * functions by names that maps of the library have: `exp`. So a user's are in a namespace of their own. */
const char *emit_map_prefix(const struct prim *q);
/* The call of a map; value[i] is what operand i is called, unless it is an immediate number. */
void emit_call(const struct program *p, int step, const struct word *value, struct text *t);

#endif
