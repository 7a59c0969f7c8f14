/* util_folder.c -- a fresh folder for each test, and what lies in it. */
#include "util_folder.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

char folder[256];

static void must(bool good, const char *what)
{
    if (good) return;
    perror(what);
    abort();
}

void folder_make(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/coda-test-XXXXXX", tmp && *tmp ? tmp : P_tmpdir);
    must(mkdtemp(folder), folder);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)where;
    if (type == FTW_DNR) chmod(path, 0700);
    return remove(path) && type != FTW_DNR;
}

void folder_remove(void) { nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

const char *folder_under(const char *name)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

int folder_names(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d) closedir(d);
    return n;
}

int folder_entries(const char *dir)
{
    char path[600];
    int n = 0;
    for (int i = 0; i < 16; i++) {
        snprintf(path, sizeof path, "%s/v2/%x", dir, i);
        n += folder_names(path);
    }
    return n;
}

const char *folder_entry(const char *sub, const struct cache_key *k)
{
    char hex[DIGEST_HEX], name[128];
    digest_hex(hex, &k->digest);
    snprintf(name, sizeof name, "%sv2/%.1s/%s", sub, hex, hex + 1);
    return folder_under(name);
}

unsigned char *file_read(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    must(f, path);
    unsigned char *p = malloc(1 << 21);
    *size = fread(p, 1, 1 << 21, f);
    fclose(f);
    return p;
}

void file_write(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    must(f, path);
    must(fwrite(data, 1, size, f) == size, path);
    must(!fclose(f), path);
}

void memory_limit(size_t bytes)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    must(!setrlimit(RLIMIT_DATA, &(struct rlimit){bytes, bytes}), "setrlimit");
#else
    (void)bytes;
#endif
}

int exit_of(int (*body)(void))
{
    int status;
    pid_t child = fork();
    if (!child) _exit(body());
    must(waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
