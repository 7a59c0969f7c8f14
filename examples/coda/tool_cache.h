/* tool_cache.h -- what the files of `coda cache` share. */
#ifndef TOOL_CACHE_H
#define TOOL_CACHE_H

#include <stddef.h>
#include <stdio.h>

#include "tool.h"

struct request {
    char *place[MOST_FILES]; /* what is no option */
    int places;
    coda_cache_options cache;
    coda_cache_prune_options prune;
    coda_export_options export;
    const char *keys; /* file */
    const char *graph[MOST_FILES];
    int graphs;
    bool json, remove;
    coda_cache *c;
};

/* tool_entries.c: commands that look. They return the exit status. */
int cache_list(const struct request *r);
int cache_stat(const struct request *r);
int cache_verify(const struct request *r);

/* tool_differ.c */
int cache_explain(const struct request *r);

/* tool_gather.c -- entries, copied out of a visit so that they can be sorted and compared. */
struct item {
    char *name, *kind, *key, *note, *fault;
    int64_t bytes, age_s;
};
struct items {
    struct item *item;
    int count, room, faulty;
    int64_t bytes;
    bool failed;      /* memory ran out */
    bool notes;       /* keep them, too */
    const char *verb; /* for the line that shows progress; NULL: "reading" */
};
/* Lists entries of the directory, or of a bundle file; the last used first. 1 after a complaint, else 0. */
int items_gather(struct items *all, const struct request *r, const char *bundle);
void items_free(struct items *all);

/* The rest of the key's line that begins with `name` and a blank, in a buffer of its own, or "". */
enum { FIELD = 128 };
const char *field(char out[FIELD], const char *key, const char *name);
void print_bytes(char out[32], int64_t bytes); /* "1.2 MB" */
void print_age(char out[32], int64_t age_s);   /* "3 h" */
void json_string(FILE *f, const char *s);      /* quoted */

#endif
