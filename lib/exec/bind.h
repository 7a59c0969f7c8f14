/* bind.h -- the pointers of one call of coda_run, coda_prepare or coda_evaluate, before anybody follows
 * them. */
#ifndef BIND_H
#define BIND_H

#include "overlap.h"

/* What args[i] is to be, known long before the call. */
struct place {
    const char *name;
    struct lattice at; /* its bytes; what follows lies beside their number, as all calls read both */
    coda_arg_kind kind;
    uint16_t align;
    bool unread;    /* by runs: where these begin its memory may be gone */
    uint64_t holds; /* a weight that is folded in place: the digest of what it then holds; or 0 */
};

static inline bool place_is_written(const struct place *p)
{
    return p->kind == CODA_ARG_OUTPUT || p->kind == CODA_ARG_SUM || p->kind == CODA_ARG_STATE ||
           p->kind == CODA_ARG_CONSUMED;
}

struct arguments {
    const char *call;          /* for messages: "run" */
    const struct place *place; /* leaves, then outputs */
    int places;
    void *const *args;
    void *workspace, *prepared;
    int64_t workspace_bytes, prepared_bytes;
    bool prepare; /* weights that are folded in place are written */
    bool folds;   /* coda_prepare itself, which reads what runs do not */
    bool states;  /* some leaves are */
};

/* Does nobody look at this one's memory? */
static inline bool place_is_idle(const struct arguments *b, const struct place *p)
{
    return p->unread && !b->folds;
}

/* All there, aligned, and nothing that is written shares a byte with anything else. Neither allocates nor
 * locks. */
coda_status arguments_check(const struct arguments *b);

/* In host memory an element is read by itself, or as one that may lie anywhere. */
struct place place_of(const char *name, coda_arg_kind kind, coda_dtype t, int rank, const int64_t *dim,
                      const int64_t *stride, bool host);

#endif
