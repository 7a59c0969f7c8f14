/* util_folder.h -- a fresh folder for each test, and what lies in it. */
#ifndef UTIL_FOLDER_H
#define UTIL_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "cache.h"

extern char folder[256];

/* For a checked fixture. */
void folder_make(void);
void folder_remove(void);
/* A path below it; four of them live at once. */
const char *folder_under(const char *name);

/* Files and names in a folder, not counting "." and ".."; 0 if there is none. */
int folder_names(const char *path);
/* Entries of the cache in `dir`. */
int folder_entries(const char *dir);
/* The file of a key in the cache below `folder`/sub, by the layout that dir.c documents. */
const char *folder_entry(const char *sub, const struct cache_key *k);

/* The whole file, malloc'd; the test fails if it cannot be read or written. */
unsigned char *file_read(const char *path, size_t *size);
void file_write(const char *path, const void *data, size_t size);

/* Leaves this process so much memory, for good. Not under a sanitizer, which needs its own. */
void memory_limit(size_t bytes);

/* The exit status of `body` in a child; 128 and more if it died of a signal. */
int exit_of(int (*body)(void));

#endif
