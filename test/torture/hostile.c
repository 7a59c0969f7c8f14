/*
 * hostile.c -- folders that are somebody else's, writable by others, swapped, or full of traps: refused
 * with the reason, and nothing is read from them or written through them. And what a folder of ours looks
 * like to others.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

enum { STRANGER = 12345, SIZE = 3000 };
static char folder[256];

/* ---- Refused ---- */

/* The cache works, without the folder; why is in the problem and in the statistics. */
static int refuses(const char *what, const char *path, const char *reason)
{
    int bad = 0, before = walk_files(path, NULL, NULL);
    char json[16384];
    struct coda_cache *c = open_cache(path);
    if (cache_dir(c)[0]) bad += complain("%s: the folder is used", what);
    if (!strstr(cache_problem(c), reason))
        bad += complain("%s: \"%s\" lacks \"%s\"", what, cache_problem(c), reason);
    if (!obtain_thing(c, 1, SIZE)) bad += complain("%s: nothing works", what);
    cache_stats_print(c, json, sizeof json);
    if (!strstr(json, reason)) bad += complain("%s: the statistics lack the reason", what);
    cache_close(c);
    if (walk_files(path, NULL, NULL) != before) bad += complain("%s: something was written", what);
    return bad;
}

static void make_folder(mode_t mode)
{
    remove_tree(folder);
    mkdir(folder, 0700);
    chmod(folder, mode);
}

static int refuses_mode(mode_t mode)
{
    char what[32];
    make_folder(mode);
    snprintf(what, sizeof what, "mode %o", (unsigned)mode);
    return refuses(what, folder, "writable");
}

static int refuses_file(void)
{
    remove_tree(folder);
    write_whole(folder, "x", 1);
    int bad = refuses("a file instead of a folder", folder, "cannot be opened");
    unlink(folder);
    return bad;
}

static void note_parent(const char *path, void *ctx)
{
    if (is_entry(path)) snprintf(ctx, 512, "%.*s", (int)(strrchr(path, '/') - path), path);
}

/* A folder inside ours, `up` above that of the entries, is a link. */
static int refuses_inside(int up)
{
    int bad = 0;
    char inner[512] = "", away[512];
    snprintf(away, sizeof away, "%s", under("away"));
    remove_tree(folder), remove_tree(away);
    struct coda_cache *c = open_cache(folder);
    obtain_thing(c, 1, SIZE);
    cache_close(c);
    walk_files(folder, note_parent, inner);
    while (up--) *strrchr(inner, '/') = 0;
    remove_tree(inner);
    mkdir(away, 0700);
    if (!*inner || symlink(away, inner)) bad += complain("\"%s\" cannot be swapped", inner);
    c = open_cache(folder);
    for (int i = 1; i < 300; i++) bad += !obtain_thing(c, i, 100);
    cache_close(c);
    if (walk_files(away, NULL, NULL)) bad += complain("the link %s was followed", inner);
    unlink(inner);
    return bad;
}

static void refused(void)
{
    static const mode_t modes[] = {0770, 0720, 0707, 0702, 0777, 01777, 02770};
    int bad = 0, cases = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++, cases++) bad += refuses_mode(modes[i]);
    bad += refuses_file(), cases++;
    bad += refuses_inside(0), cases++;
    bad += refuses_inside(1), cases++;
    if (geteuid()) skipped("a stranger's folder: only root can make one");
    else {
        make_folder(0700);
        if (chown(folder, STRANGER, STRANGER)) bad += complain("chown");
        bad += refuses("a stranger's folder", folder, "another user"), cases++;
    }
    figure(cases, bad, "folders that others own, can write or have put links in, refused with the reason");
}

/* ---- Traps in the place of an entry ---- */

static char entry[512];

static void take_entry(const char *path, void *ctx)
{
    size_t size;
    struct entry e;
    (void)ctx;
    void *bytes = read_whole(path, &size);
    if (bytes && entry_check(&e, bytes, size) == ENTRY_INTACT) snprintf(entry, sizeof entry, "%s", path);
    free(bytes);
}

/* An entry is there, and is taken away again: its name is free for a trap. */
static void set_trap(void)
{
    remove_tree(folder);
    struct coda_cache *c = open_cache(folder);
    obtain_thing(c, 1, SIZE);
    cache_close(c);
    walk_files(folder, take_entry, NULL);
}

static int springs(const char *what)
{
    int bad = 0;
    for (int turn = 0; turn < 2; turn++) {
        int before = atomic_load(&board->compiles);
        struct coda_cache *c = open_cache(folder);
        if (!obtain_thing(c, 1, SIZE)) bad += complain("%s: wrong bytes", what);
        if (counted(c, COUNT_wait_timeouts)) bad += complain("%s: it was waited for", what);
        cache_close(c);
        if (atomic_load(&board->compiles) - before != !turn)
            bad += complain("%s: not healed by one compile", what);
    }
    return bad;
}

static void traps(void)
{
    int bad = 0, cases = 0;
    char victim[512];
    static char text[] = "do not touch";
    size_t size;
    snprintf(victim, sizeof victim, "%s", under("victim"));
    write_whole(victim, text, sizeof text);
    set_trap(), unlink(entry), bad += symlink(victim, entry) + springs("a symbolic link"), cases++;
    set_trap(), unlink(entry), bad += link(victim, entry) + springs("a hard link to a file"), cases++;
    set_trap(), unlink(entry), bad += mkfifo(entry, 0600) + springs("a FIFO"), cases++;
    if (!geteuid()) {
        set_trap(), unlink(entry);
        if (mknod(entry, S_IFCHR | 0600, 0x105))
            skipped("a device as an entry: %s", strerror(errno)); /* /dev/zero */
        else bad += springs("a device"), cases++;
        set_trap();
        if (chown(entry, STRANGER, STRANGER)) bad += complain("chown");
        struct coda_cache *c = open_cache(folder);
        if (!obtain_thing(c, 1, SIZE)) bad += complain("a stranger's entry: wrong bytes");
        cache_close(c), cases++;
    }
    char *now = read_whole(victim, &size);
    if (!now || size != sizeof text || memcmp(now, text, size)) bad += complain("the victim was written to");
    free(now);
    figure(cases, bad,
           "links, FIFOs and devices in an entry's place: never followed, never waited for, healed");
}

/* ---- Swapped after the check ---- */

static void swapped(void)
{
    int bad = 0;
    char away[512], kept[512];
    snprintf(away, sizeof away, "%s", under("away"));
    snprintf(kept, sizeof kept, "%s", under("kept"));
    remove_tree(away), remove_tree(kept), remove_tree(folder);
    struct coda_cache *c = open_cache(folder);
    obtain_thing(c, 1, SIZE);
    mkdir(away, 0777), chmod(away, 0777);
    if (rename(folder, kept) || symlink(away, folder)) bad += complain("cannot swap");
    for (int i = 2; i < 50; i++) bad += !obtain_thing(c, i, SIZE);
    cache_close(c);
    if (walk_files(away, NULL, NULL)) bad += complain("it writes where the link leads");
    unlink(folder);
    remove_tree(kept);
    figure(1, bad, "the folder swapped for a link after the check: not followed");
}

/* ---- Modes ---- */

struct modes {
    mode_t folder, file;
    int bad;
};

static void check_file(const char *path, void *ctx)
{
    struct modes *m = ctx;
    struct stat st;
    if (lstat(path, &st) || !S_ISREG(st.st_mode)) return;
    if ((st.st_mode & 07777) != m->file)
        m->bad += complain("%s has mode %o, not %o", path, (unsigned)st.st_mode & 07777, (unsigned)m->file);
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", path);
    while (strcmp(parent, folder) && strrchr(parent, '/')) {
        *strrchr(parent, '/') = 0;
        if (!stat(parent, &st) && (st.st_mode & 07777) != m->folder)
            m->bad +=
                complain("%s has mode %o, not %o", parent, (unsigned)st.st_mode & 07777, (unsigned)m->folder);
    }
}

static int modes_under(mode_t mask, unsigned flags, struct modes want)
{
    remove_tree(folder);
    if (flags) {
        mkdir(folder, 0700);
        chmod(folder, want.folder);
    }
    mode_t before = umask(mask);
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .limit = -1, .flags = flags});
    bool right = obtain_thing(c, 1, SIZE);
    cache_close(c);
    umask(before);
    if (!walk_files(folder, check_file, &want))
        want.bad += complain("umask %o: nothing was stored", (unsigned)mask);
    return want.bad + !right;
}

static void modes(void)
{
    static const mode_t masks[] = {000, 002, 022, 027, 077, 0777};
    int bad = 0, cases = 0;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        bad += modes_under(masks[i], 0, (struct modes){0700, 0600, 0}), cases++;
        bad += modes_under(masks[i], CACHE_SHARED, (struct modes){02750, 0640, 0}), cases++;
        bad += modes_under(masks[i], CACHE_SHARED, (struct modes){02770, 0660, 0}), cases++;
    }
    figure(cases, bad, "modes of files and folders, private and shared, whatever the umask");
}

/* ---- Read-only ---- */

static int use_read_only(void *ctx)
{
    (void)ctx;
    if (!geteuid() && (setresgid(STRANGER, STRANGER, STRANGER) || setresuid(STRANGER, STRANGER, STRANGER)))
        return 9;
    int bad = 0;
    struct coda_cache *c = open_cache(folder);
    int before = atomic_load(&board->compiles);
    if (!obtain_thing(c, 1, SIZE) || atomic_load(&board->compiles) != before) bad |= 1; /* hits */
    if (!obtain_thing(c, 2, SIZE)) bad |= 2;                                            /* works */
    if (counted(c, COUNT_stored)) bad |= 4;
    cache_close(c);
    return bad;
}

static void make_read_only(const char *root, bool on)
{
    char command[600];
    snprintf(command, sizeof command, "find '%s' -type d -exec chmod %s {} +", root, on ? "0500" : "0700");
    if (system(command)) complain("chmod");
    snprintf(command, sizeof command, "chown -R %d:%d '%s'", STRANGER, STRANGER, root);
    if (on && !geteuid() && system(command)) complain("chown");
}

static void read_only(void)
{
    int bad = 0, end;
    remove_tree(folder);
    chmod(scratch, 0755);
    struct coda_cache *c = open_cache(folder);
    obtain_thing(c, 1, SIZE);
    cache_close(c);
    make_read_only(folder, true);
    int before = walk_files(folder, NULL, NULL);
    if ((end = reap(spawn(use_read_only, NULL)))) bad += complain("a read-only folder: %d", end);
    if (walk_files(folder, NULL, NULL) != before)
        bad += complain("a read-only folder: something was written");
    make_read_only(folder, false);
    figure(1, bad, "a folder of mode 0500: hits are served, nothing is written");
}

static int use_mounted(void *ctx)
{
    char *mount_point = ctx;
    int bad = 0;
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount(folder, mount_point, NULL, MS_BIND, NULL) ||
        mount(NULL, mount_point, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
        return 77;
    int before = atomic_load(&board->compiles);
    struct coda_cache *c = open_cache(mount_point);
    if (!obtain_thing(c, 1, SIZE) || atomic_load(&board->compiles) != before) bad |= 1;
    if (!obtain_thing(c, 2, SIZE)) bad |= 2;
    if (counted(c, COUNT_stored)) bad |= 4;
    cache_close(c);
    return bad;
}

static void read_only_mount(void)
{
    int bad = 0;
    char mount_point[512];
    snprintf(mount_point, sizeof mount_point, "%s", under("mounted"));
    mkdir(mount_point, 0700);
    remove_tree(folder);
    struct coda_cache *c = open_cache(folder);
    obtain_thing(c, 1, SIZE);
    cache_close(c);
    int end = reap(spawn(use_mounted, mount_point));
    if (end == 77) return skipped("a read-only mount: this machine forbids it (run as root)");
    if (end) bad += complain("a read-only mount: %d", end);
    figure(1, bad, "a read-only mount: hits are served");
}

/* ---- No home, and setuid ---- */

static void nowhere(void)
{
    static const char *const homes[] = {NULL, "/nonexistent", "/proc", "/dev/null"};
    int bad = 0, n = sizeof homes / sizeof *homes;
    char *before = strdup(getenv("CODA_CACHE_DIR"));
    unsetenv("CODA_CACHE_DIR"), unsetenv("XDG_CACHE_HOME");
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    for (int i = 1; i < n; i++) {
        setenv("HOME", homes[i], 1);
        struct coda_cache *c = cache_open(&(struct cache_options){.limit = -1});
        if (!obtain_thing(c, 1, SIZE)) bad += complain("HOME=%s: nothing works", homes[i]);
        if (geteuid() && !cache_problem(c)[0]) bad += complain("HOME=%s: no reason", homes[i]);
        cache_close(c);
    }
    if (home) setenv("HOME", home, 1);
    setenv("CODA_CACHE_DIR", before, 1);
    remove_tree("/nonexistent"); /* root could make it */
    free(home), free(before);
    figure(n - 1, bad, "homes that do not exist or take no files: everything works without");
}

/* The tool, which is one file, as another user's setuid program: it must not look at our variables. */
static int run_setuid(void *ctx)
{
    char *const *paths = ctx;
    if (setresgid(STRANGER, STRANGER, STRANGER) || setresuid(STRANGER, STRANGER, STRANGER)) return 9;
    if (!freopen(paths[1], "w", stdout)) return 8;
    execl(paths[0], "coda", "info", (char *)NULL);
    return 7;
}

static void setuid_program(void)
{
    char self[PATH_MAX], tool[PATH_MAX + 16], copy[512], out[512], command[PATH_MAX * 2];
    if (geteuid()) return skipped("a setuid program: only root can make one of another user");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 2; up++)
        if (strrchr(self, '/')) *strrchr(self, '/') = 0;
    snprintf(tool, sizeof tool, "%s/coda", self);
    snprintf(copy, sizeof copy, "%s", under("open/coda"));
    snprintf(out, sizeof out, "%s", under("open/out"));
    mkdir(under("open"), 0777), chmod(under("open"), 0777), chmod(scratch, 0755);
    setenv("CODA_CACHE_DIR", under("open/cache"), 1);
    snprintf(command, sizeof command, "cp '%s' '%s' && chown 54321 '%s' && chmod 4755 '%s'", tool, copy, copy,
             copy);
    if (access(tool, X_OK) || system(command)) return skipped("a setuid program: there is no %s", tool);
    char *paths[] = {copy, out};
    int bad = 0, end = reap(spawn(run_setuid, paths));
    size_t size = 0;
    char *text = read_whole(out, &size);
    if (text) text[size] = 0;
    if (end || !text) bad += complain("the setuid program ended with %d", end);
    else if (!strstr(text, "cache: none") || !strstr(text, "setuid"))
        bad += complain("setuid: %s", strstr(text, "cache:"));
    if (!access(under("open/cache"), F_OK)) bad += complain("setuid: the folder of the variable was made");
    free(text);
    setenv("CODA_CACHE_DIR", under("default"), 1);
    figure(1, bad, "a setuid program ignores the variables and uses no folder");
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "hostile");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    refused();
    traps();
    swapped();
    modes();
    read_only();
    read_only_mount();
    nowhere();
    setuid_program();
    return torture_end();
}
