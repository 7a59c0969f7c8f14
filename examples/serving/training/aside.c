/*
 * aside.c -- files that are there as a whole or not at all.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train_aside.h"

enum { HEADER_ALIGNED = 8 };

static bool fail(struct aside *a, struct fault *f)
{
    return fault_set(f, "%s cannot be written: %s", a->path, strerror(errno));
}

bool aside_open(struct aside *a, const char *folder, const char *name, struct fault *f)
{
    a->file = NULL;
    if (snprintf(a->path, sizeof a->path, "%s/%s", folder, name) >= PATH_MAX - 8)
        return fault_set(f, "%s: the path is too long", folder);
    snprintf(a->other, sizeof a->other, "%.*s.part", PATH_MAX - 8, a->path);
    a->file = fopen(a->other, "wbe");
    return a->file || fail(a, f);
}

bool aside_write(struct aside *a, const void *data, size_t bytes, struct fault *f)
{
    return !bytes || fwrite(data, 1, bytes, a->file) == bytes || fail(a, f);
}

/* The name is on the disk when its folder is. */
static void flush_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!fsync(fd);
    close(fd);
}

bool aside_close(struct aside *a, bool good, struct fault *f)
{
    if (!a->file) return false;
    if (good && (fflush(a->file) || fsync(fileno(a->file)))) good = fail(a, f);
    if (fclose(a->file) && good) good = fail(a, f);
    a->file = NULL;
    if (good && rename(a->other, a->path)) good = fail(a, f);
    if (good) flush_folder(a->path);
    else unlink(a->other);
    return good;
}

bool aside_entry(json_t *header, const char *name, const char *type, int rank, const int64_t *dims,
                 size_t bytes, size_t *at)
{
    json_t *shape = json_array();
    for (int d = 0; d < rank; d++) json_array_append_new(shape, json_integer(dims[d]));
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", shape, "data_offsets",
                              (json_int_t)*at, (json_int_t)(*at + bytes));
    *at += bytes;
    return entry && !json_object_set_new(header, name, entry);
}

bool aside_header(struct aside *a, const json_t *header, struct fault *f)
{
    char *text = json_dumps(header, JSON_COMPACT), blanks[HEADER_ALIGNED] = "       ";
    if (!text) return fault_set(f, "%s: out of memory", a->path);
    size_t n = strlen(text), fill = (HEADER_ALIGNED - n % HEADER_ALIGNED) % HEADER_ALIGNED;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)(n + fill) >> 8 * i);
    bool good = aside_write(a, length, sizeof length, f) && aside_write(a, text, n, f) &&
                aside_write(a, blanks, fill, f);
    free(text);
    return good;
}

bool aside_bytes(const char *folder, const char *name, const void *data, size_t bytes, struct fault *f)
{
    struct aside a;
    bool good = aside_open(&a, folder, name, f) && aside_write(&a, data, bytes, f);
    return aside_close(&a, good, f);
}

bool aside_json(const char *folder, const char *name, const json_t *object, struct fault *f)
{
    char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    if (!text) return fault_set(f, "%s/%s: out of memory", folder, name);
    bool good = aside_bytes(folder, name, text, strlen(text), f);
    free(text);
    return good;
}
