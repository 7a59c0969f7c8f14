/* library.h -- NVIDIA's libraries as files: where each is looked for, and why it was not found. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "jit.h"

struct library {
    const char *title;    /* "NVRTC" */
    const char *names[3]; /* file names, the newest first */
    void *handle;
    char path[PATH_MAX];              /* of the file that was opened */
    char why[JIT_ERROR_SIZE / 2];     /* why there is none */
    char refused[JIT_ERROR_SIZE / 4]; /* the first place that was named and not looked at; or "" */
};

/* Takes the copy that the process has loaded, wherever that came from. */
bool library_open_loaded(struct library *l);
/* Opens the newest one of the toolkit's, or the driver's. */
bool library_open_toolkit(struct library *l);
bool library_open_driver(struct library *l);
/* What a profiler wants loaded, by an absolute path; NULL if there is none. */
void *library_open_tool(const char *path);
/* A table is one function pointer for each name, in order. On failure the handle is dropped. */
void library_fill(struct library *l, const char *const *names, void *table);
/* A library that l opens by its plain name, from where l lies: the loader then knows it. The handle of l is
 * dropped if the loader might find it in the current directory. */
void library_open_companion(struct library *l, const char *name);
/* Might the loader look into the current directory for what l opens by a plain name? Then why says so. */
bool library_strays(struct library *l);
/* "13.0 PATH" for people, and what was refused on the way to it. */
void library_print(const struct library *l, const char *version, char *line, size_t size);
/* The absolute path of the file that is mapped at an address. */
bool library_file_of(const void *address, char *path, size_t size);

#endif
