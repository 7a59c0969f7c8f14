/* compile.h -- what closure.c, compile.c, cubin.c, isolate.c, key.c, process.c and sources.c share. */
#ifndef COMPILE_H
#define COMPILE_H

#include "cache.h"
#include "driver.h"

/* sources.c -- the primitives as NVRTC takes them: names, sorted, texts, and the SHA-256 of each and of all.
 * Loaded once; NULL with the reason in err if memory ran out. */
struct sources {
    int count;
    const char **names, **texts;
    char (*digests)[DIGEST_HEX];
    char digest[DIGEST_HEX];
    char open[256]; /* why kernels may depend on other files, too; or "" */
};
const struct sources *sources_open(char *err);
void sources_drop(void);

/* closure.c -- the primitives that a text can read, for NVRTC and for its key. False if memory ran out; what
 * it points to are the sources'. */
struct closure {
    int count;
    const char **names, **texts;
    char digest[DIGEST_HEX]; /* of all of them */
};
bool closure_of(struct closure *c, const struct sources *s, const char *text);
void closure_free(struct closure *c);

/* process.c -- to be called before something is kept for the process that a *_drop() gives back. */
void process_keeps(void);
/* Around each use of NVRTC. False: the process ends, and nothing may begin any more. */
bool process_compiles(void);
void process_compiled(void);
void cublaslt_drop(void);
void jit_cache_drop(void);

/* key.c -- all that can change a cubin, as text. What is asked for, and by whom it is made. malloc'd,
 * NULL if memory ran out. */
struct key_parts {
    const char *arch;
    const char *const *options; /* NULL at the end; no paths */
    const char *primitives;     /* digest of those that the text can read */
    const char *symbol, *text;
};
char *key_print_what(const struct key_parts *k);
char *key_print_by(int major, int minor, const char *build);

/* inputs.c -- false if a kernel made now may depend on what its key does not have, with the reason, one
 * line: such a kernel is neither stored nor taken from the cache. */
bool jit_inputs_are_known(char *why, size_t size);

/* figures.c -- WHAT of a tuning; malloc'd, NULL if memory ran out. */
char *figures_print_key(const char *what, const struct jit_device *dev, const char *arch);

/* compile.c -- *data is malloc'd. On failure *passing says that it is not the text's fault. */
struct compile_job {
    const struct nvrtc *nvrtc;
    int major, minor; /* of NVRTC */
    int count;        /* of files that the text may include */
    const char *const *names, *const *texts;
    const char *symbol, *text, *arch;
};
extern const char *const compile_options[]; /* NULL at the end */
coda_status compile_payload(void **data, size_t *size, const struct compile_job *j, char *err, bool *passing);
/* Fills image, size and the facts; false if there is no cubin in it. */
bool payload_read(struct jit_cubin *out, const void *data, size_t size);

/* isolate.c -- the same in a child process. False if no child could do it; nothing has happened then. */
bool isolate_payload(void **data, size_t *size, const struct compile_job *j, struct coda_cache *c,
                     coda_status *status, char *err, bool *passing);

#endif
