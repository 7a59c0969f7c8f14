/*
 * power.c -- the power fails: what a file system may show afterwards, built from the log of a writer's
 * calls. Bytes that were not flushed may be there, be missing, be zeros or be noise; names that were not
 * flushed may be there or not. Whatever it is, nobody gets a wrong kernel; and an entry made durable is
 * there.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torture.h"

enum kind { WRITTEN, NAMED, UNNAMED, FLUSHED_FILE, FLUSHED_FOLDER };
struct op {
    enum kind kind;
    ino_t file;
    char path[128]; /* below the folder */
    unsigned char *data;
    size_t size;
};
enum { MOST_OPS = 400, THINGS = 3, SIZE = 9000 };
static struct op op[MOST_OPS];
static int ops;
static char folder[256], after[256];

/* ---- The log ---- */

static struct op *add(enum kind kind)
{
    if (ops == MOST_OPS) printf("power: the log is full\n"), exit(2);
    op[ops].kind = kind;
    return &op[ops++];
}

/* The path of a descriptor, below the folder. */
static void locate(char out[128], int fd, const char *name)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    const char *inner = strlen(path) > strlen(folder) ? path + strlen(folder) + 1 : "";
    snprintf(out, 128, "%s%s%s", inner, *inner && name ? "/" : "", name ? name : "");
}

static ino_t file_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? 0 : st.st_ino;
}

static void note_name(const struct shim_event *e)
{
    struct stat st;
    struct op *o = add(NAMED);
    locate(o->path, e->folder, e->newpath);
    o->file = fstatat(e->folder, e->newpath, &st, AT_SYMLINK_NOFOLLOW) ? 0 : st.st_ino;
}

static void note_lost_name(int fd, const char *path) { locate(add(UNNAMED)->path, fd, path); }

static void note_flush(const struct shim_event *e)
{
    struct stat st;
    bool is_folder = !fstat(e->fd, &st) && S_ISDIR(st.st_mode);
    struct op *o = add(is_folder ? FLUSHED_FOLDER : FLUSHED_FILE);
    o->file = st.st_ino;
    if (is_folder) locate(o->path, e->fd, NULL);
}

static void note_write(const struct shim_event *e)
{
    struct op *o = add(WRITTEN);
    o->file = file_of(e->fd);
    o->data = malloc(e->size);
    o->size = e->size;
    memcpy(o->data, e->data, e->size);
}

static void note(const struct shim_event *e)
{
    if (!strcmp(e->call, "write")) note_write(e);
    else if (!strcmp(e->call, "linkat")) note_name(e);
    else if (!strcmp(e->call, "renameat")) note_name(e), note_lost_name(e->fd, e->path);
    else if (!strcmp(e->call, "unlinkat")) note_lost_name(e->folder, e->path);
    else if (!strcmp(e->call, "fsync") || !strcmp(e->call, "fdatasync")) note_flush(e);
    else if (!strcmp(e->call, "create") && e->path && strncmp(e->path, ".", 2)) {
        struct op *o = add(NAMED);
        locate(o->path, e->folder, e->path);
        o->file = file_of(e->fd);
    }
}

/* ---- What the disk holds after a failure before op[end] ---- */

enum loss { KEEP, EMPTY, ZEROS, CUT, PAGES, NOISE, LOSSES };
static const char *const loss_name[LOSSES] = {"kept", "lost", "zeros", "cut", "pages lost", "noise"};

static bool flushed_later(int from, int end, ino_t file)
{
    for (int i = from; i < end; i++)
        if (op[i].kind == FLUSHED_FILE && op[i].file == file) return true;
    return false;
}

/* The file's bytes; those that were not flushed suffer the loss. */
static size_t content(unsigned char *out, ino_t file, int end, enum loss loss, uint64_t *seed)
{
    size_t n = 0, safe = 0;
    for (int i = 0; i < end; i++) {
        if (op[i].kind != WRITTEN || op[i].file != file) continue;
        memcpy(out + n, op[i].data, op[i].size);
        n += op[i].size;
        if (flushed_later(i, end, file)) safe = n;
    }
    if (loss == EMPTY) return safe;
    if (loss == ZEROS) memset(out + safe, 0, n - safe);
    if (loss == CUT && n > safe) return safe + (size_t)(noise(seed) % (n - safe));
    for (size_t at = safe; at < n && loss >= PAGES; at += 512) {
        size_t size = n - at < 512 ? n - at : 512;
        if (noise(seed) % 2) continue;
        if (loss == PAGES) memset(out + at, 0, size);
        else thing_fill(out + at, (int)(noise(seed) % 1000), size);
    }
    return n;
}

static void make_parents(const char *path)
{
    char part[512];
    snprintf(part, sizeof part, "%s", path);
    for (char *s = part + strlen(after) + 1; *s; s++) {
        if (*s != '/') continue;
        *s = 0;
        mkdir(part, 0700);
        *s = '/';
    }
}

static bool folder_flushed_later(int from, int end, const char *path)
{
    size_t n = strrchr(path, '/') ? (size_t)(strrchr(path, '/') - path) : 0;
    for (int i = from; i < end; i++)
        if (op[i].kind == FLUSHED_FOLDER && strlen(op[i].path) == n && !strncmp(op[i].path, path, n))
            return true;
    return false;
}

/* Names come in their order; one that was not flushed is lost by chance, if `forget`. */
static void rebuild(int end, enum loss loss, bool forget, uint64_t *seed)
{
    static unsigned char bytes[MOST_OPS * 1024];
    remove_tree(after);
    mkdir(after, 0700);
    for (int i = 0; i < end; i++) {
        char path[400];
        if (op[i].kind != NAMED && op[i].kind != UNNAMED) continue;
        if (forget && !folder_flushed_later(i, end, op[i].path) && noise(seed) % 2) continue;
        snprintf(path, sizeof path, "%s/%s", after, op[i].path);
        if (op[i].kind == UNNAMED) unlink(path);
        if (op[i].kind == UNNAMED) continue;
        make_parents(path);
        write_whole(path, bytes, content(bytes, op[i].file, end, loss, seed));
    }
}

/* ---- The writer, and who comes after ---- */

static void text_of(char out[SIZE], int version)
{
    memset(out, 'a' + version, SIZE - 1);
    out[SIZE - 1] = 0;
}

/* Entries, and a text that is replaced. */
static void write_all(unsigned flags)
{
    char text[SIZE];
    struct cache_key k = cache_key(CACHE_TUNING, "tuning\nchoice\n", "by torture\n");
    shim_watch(folder);
    shim.saw = note;
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .limit = -1, .flags = flags});
    for (int i = 0; i < THINGS; i++) obtain_thing(c, i, SIZE);
    for (int version = 0; version < 2; version++) {
        text_of(text, version);
        cache_put(c, &k, text, sizeof text);
    }
    cache_close(c);
    shim_off();
}

static int look(int end, enum loss loss, bool durable)
{
    char text[SIZE];
    int bad = 0, before = atomic_load(&board->compiles);
    void *data = NULL;
    size_t size;
    struct cache_key k = cache_key(CACHE_TUNING, "tuning\nchoice\n", "by torture\n");
    struct coda_cache *c = open_cache(after);
    for (int i = 0; i < THINGS; i++)
        if (!obtain_thing(c, i, SIZE))
            bad += complain("power lost at call %d, data %s: wrong", end, loss_name[loss]);
    bool found = cache_get(c, &k, &data, &size), right = !found;
    for (int version = 0; found && version < 2; version++) {
        text_of(text, version);
        right = right || (size == sizeof text && !memcmp(data, text, size));
    }
    if (!right) bad += complain("power lost at call %d, data %s: a wrong text", end, loss_name[loss]);
    if (found) free(data);
    cache_close(c);
    if (durable && end == ops && (atomic_load(&board->compiles) != before || !found))
        bad += complain("durable, data %s: an entry is lost", loss_name[loss]);
    c = open_cache(after);
    before = atomic_load(&board->compiles);
    for (int i = 0; i < THINGS; i++) obtain_thing(c, i, SIZE);
    if (atomic_load(&board->compiles) != before) bad += complain("power lost at call %d: not healed", end);
    cache_close(c);
    return bad;
}

static void sweep(const char *name, unsigned flags)
{
    long cases = 0, bad = 0;
    uint64_t seed = 5;
    ops = 0;
    remove_tree(folder);
    write_all(flags);
    for (int end = 0; end <= ops; end++)
        for (int loss = 0; loss < LOSSES; loss++)
            for (int turn = 0; turn < scaled(2, 30); turn++, cases++) {
                rebuild(end, (enum loss)loss, turn % 2, &seed);
                bad += look(end, (enum loss)loss, flags & CACHE_DURABLE);
            }
    if (flags & CACHE_DURABLE && !ops) bad += complain("nothing was logged");
    figure(cases, bad,
           "power lost at each of %d calls, %s: unflushed bytes and names kept, lost, zeroed or noise", ops,
           name);
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "power");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    snprintf(after, sizeof after, "%s", under("after"));
    sweep("by default", 0);
    sweep("durable", CACHE_DURABLE);
    return torture_end();
}
