/*
 * disk.c -- a cache as a directory of files, one entry each.
 *
 *     path    ::= root "/v1/" hex^2 "/" hex^30 ( ".kernel" | ".cu" )     hex^32 = digest(key)
 *     .kernel ::= magic digest sizes key payload
 *     magic   ::= "coda\r\n\x1a\x01"          8 bytes, the last one is the format's version
 *     digest  ::= hex^32                      of everything that follows it
 *     sizes   ::= key:u64 payload:u64         bytes, little-endian
 *     .cu     ::= the note, for people; never read back
 *
 * An entry is written to a temporary file of the same folder and renamed, so that its name shows all
 * of it or nothing, and the last writer wins. Nothing is flushed to the device: what a power failure
 * tears, the digest rejects. What is rejected is removed, so that the next put heals it.
 *
 * Everything goes through one descriptor of root/v1, opened after root was found to be ours and
 * writable by nobody else; a folder that is swapped later is not followed.
 */
#include "old.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "coda\r\n\x1a\x01";
enum { HEADER = 8 + 32 + 16, NAME = 64 };
#define ENTRY_MAX ((int64_t)1 << 28) /* bytes; a larger file is not ours */

struct old_cache {
    int fd; /* of root/v1, or -1 */
    char *dir, problem[512];
};

/* ---- Where ---- */

static char *join(const char *a, const char *b)
{
    char *s = NULL;
    return asprintf(&s, "%s%s", a, b) < 0 ? NULL : s;
}

static const char *environment(const char *name)
{
    const char *s = getenv(name);
    return s && *s ? s : NULL;
}

/* ~/.cache/coda by the password file, for daemons without $HOME. */
static char *passwd_dir(void)
{
    char buf[4096];
    struct passwd pw, *found = NULL;
    if (getpwuid_r(geteuid(), &pw, buf, sizeof buf, &found) || !found || found->pw_dir[0] != '/') return NULL;
    return join(found->pw_dir, "/.cache/coda");
}

static char *choose_dir(const char *dir)
{
    if (dir) return join(dir, "");
    if ((dir = environment("CODA_CACHE_DIR"))) return join(dir, "");
    if ((dir = environment("XDG_CACHE_HOME")) && dir[0] == '/') return join(dir, "/coda");
    if ((dir = environment("HOME")) && dir[0] == '/') return join(dir, "/.cache/coda");
    return passwd_dir();
}

static int refuse(struct old_cache *c, const char *why, int error)
{
    snprintf(c->problem, sizeof c->problem, "%s%s%s%s%s", c->dir ? c->dir : "", c->dir ? " " : "", why,
             error ? ": " : "", error ? strerror(error) : "");
    return -1;
}

/* mkdir -p, each new folder 0700. The slashes are put back. */
static void make_path(char *path)
{
    for (char *s = path + 1; *s; s++) {
        if (*s != '/') continue;
        *s = 0;
        mkdir(path, 0700);
        *s = '/';
    }
    mkdir(path, 0700);
}

/* A descriptor of root/v1, or -1 with the reason. */
static int open_root(struct old_cache *c)
{
    struct stat st;
    if (getauxval(AT_SECURE)) return refuse(c, "is not for a setuid process", 0);
    if (!c->dir) return refuse(c, "there is no home directory", 0);
    if (!*c->dir) return refuse(c, "is no path", 0);
    make_path(c->dir);
    int root = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) return refuse(c, "cannot be opened", errno);
    int fd = -1;
    if (fstat(root, &st)) refuse(c, "cannot be examined", errno);
    else if (st.st_uid != geteuid()) refuse(c, "belongs to another user", 0);
    else if (st.st_mode & 022) refuse(c, "is writable by its group or by others", 0);
    else {
        mkdirat(root, "v1", 0700);
        fd = openat(root, "v1", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) refuse(c, "has a folder v1 that cannot be opened", errno);
    }
    close(root);
    return fd;
}

struct old_cache *old_open(const char *dir)
{
    int saved = errno;
    struct old_cache *c = calloc(1, sizeof *c);
    if (c) {
        c->dir = choose_dir(dir);
        c->fd = open_root(c);
    }
    errno = saved;
    return c;
}

void old_close(struct old_cache *c)
{
    if (!c) return;
    if (c->fd >= 0) close(c->fd);
    free(c->dir);
    free(c);
}

const char *old_dir(const struct old_cache *c) { return c->fd >= 0 ? c->dir : ""; }

const char *old_problem(const struct old_cache *c) { return c->problem; }

/* ---- Entries ---- */

static void put_u64(unsigned char *p, uint64_t x)
{
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(x >> 8 * i);
}

static uint64_t get_u64(const unsigned char *p)
{
    uint64_t x = 0;
    for (int i = 0; i < 8; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

/* "ab/cdef...", without its suffix. */
static void entry_stem(char stem[NAME], const char *key)
{
    char hex[33];
    old_digest(hex, key, strlen(key));
    snprintf(stem, NAME, "%.2s/%s", hex, hex + 2);
}

/* The whole entry as one block, ready to be written. */
static unsigned char *pack(const char *key, const void *data, size_t size, size_t *total)
{
    size_t length = strlen(key);
    if (size > ENTRY_MAX || length > ENTRY_MAX || HEADER + length + size > ENTRY_MAX) return NULL;
    *total = HEADER + length + size;
    unsigned char *entry = malloc(*total);
    if (!entry) return NULL;
    char hex[33];
    memcpy(entry, magic, 8);
    put_u64(entry + 40, length);
    put_u64(entry + 48, size);
    memcpy(entry + HEADER, key, length);
    if (size) memcpy(entry + HEADER + length, data, size);
    old_digest(hex, entry + 40, *total - 40);
    memcpy(entry + 8, hex, 32);
    return entry;
}

/* Is this block an intact entry of this key? Sizes are compared before they are used. */
static bool valid(const unsigned char *entry, size_t total, const char *key)
{
    size_t length = strlen(key);
    char hex[33];
    if (total < HEADER || memcmp(entry, magic, 8)) return false;
    if (get_u64(entry + 40) != length || total - HEADER < length) return false;
    if (get_u64(entry + 48) != total - HEADER - length) return false;
    old_digest(hex, entry + 40, total - 40);
    return !memcmp(entry + 8, hex, 32) && !memcmp(entry + HEADER, key, length);
}

static bool read_all(int fd, unsigned char *p, size_t size)
{
    while (size) {
        ssize_t n = read(fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t size)
{
    const unsigned char *p = data;
    while (size) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

/* Removes a rejected entry, unless its name has come to mean a newer file. */
static void discard(struct old_cache *c, const char *path, const struct stat *seen)
{
    struct stat now;
    if (fstatat(c->fd, path, &now, AT_SYMLINK_NOFOLLOW)) return;
    if (now.st_ino == seen->st_ino && now.st_dev == seen->st_dev) unlinkat(c->fd, path, 0);
}

/* The file as one block, and its identity. NULL with *bad set if it can never be an entry. */
static unsigned char *load(int fd, struct stat *st, bool *bad)
{
    if (fstat(fd, st)) return NULL;
    *bad = !S_ISREG(st->st_mode) || st->st_size < HEADER || st->st_size > ENTRY_MAX;
    if (*bad) return NULL;
    unsigned char *entry = malloc((size_t)st->st_size);
    if (entry && !read_all(fd, entry, (size_t)st->st_size)) {
        free(entry);
        return NULL;
    }
    return entry;
}

static bool get(struct old_cache *c, const char *key, void **data, size_t *size)
{
    char stem[NAME], path[NAME + 8];
    entry_stem(stem, key);
    snprintf(path, sizeof path, "%s.kernel", stem);
    int fd = openat(c->fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return false;
    struct stat st;
    bool bad = false;
    unsigned char *entry = load(fd, &st, &bad);
    close(fd);
    if (entry && valid(entry, (size_t)st.st_size, key)) {
        *size = (size_t)get_u64(entry + 48);
        memmove(entry, entry + HEADER + strlen(key), *size);
        *data = entry;
        return true;
    }
    if (bad || entry) discard(c, path, &st);
    free(entry);
    return false;
}

/* A name that no other writer on this or another host has, in the folder of `stem`. */
static void temporary_name(char path[NAME], const char *stem)
{
    static atomic_uint serial;
    uint64_t noise = 0;
    if (getrandom(&noise, sizeof noise, GRND_NONBLOCK) < 0) noise = (uint64_t)getpid() << 32;
    snprintf(path, NAME, "%.2s/.%016llx-%x", stem, (unsigned long long)noise, atomic_fetch_add(&serial, 1));
}

/* Publishes a file as a whole, or leaves nothing. */
static bool publish(struct old_cache *c, const char *stem, const char *suffix, const void *data, size_t size)
{
    char path[NAME + 8], temporary[NAME];
    snprintf(path, sizeof path, "%s%s", stem, suffix);
    temporary_name(temporary, stem);
    int fd = openat(c->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return false;
    bool ok = write_all(fd, data, size);
    ok = close(fd) == 0 && ok;
    ok = ok && renameat(c->fd, temporary, c->fd, path) == 0;
    if (!ok) unlinkat(c->fd, temporary, 0);
    return ok;
}

static void put(struct old_cache *c, const char *key, const void *data, size_t size, const char *note)
{
    char stem[NAME], folder[3];
    size_t total;
    unsigned char *entry = pack(key, data, size, &total);
    if (!entry) return;
    entry_stem(stem, key);
    snprintf(folder, sizeof folder, "%.2s", stem);
    mkdirat(c->fd, folder, 0700);
    if (publish(c, stem, ".kernel", entry, total) && note) publish(c, stem, ".cu", note, strlen(note));
    free(entry);
}

/* The cache leaves errno as it was: its failures are nobody's. */
bool old_get(struct old_cache *c, const char *key, void **data, size_t *size)
{
    int saved = errno;
    bool hit = c && c->fd >= 0 && get(c, key, data, size);
    errno = saved;
    return hit;
}

void old_put(struct old_cache *c, const char *key, const void *data, size_t size, const char *note)
{
    int saved = errno;
    if (c && c->fd >= 0) put(c, key, data, size, note);
    errno = saved;
}
