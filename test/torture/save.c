/*
 * save.c -- a user's file is replaced at once: the writer is killed at each file call, each call fails, in a
 * new place, over a file and behind a link; what has the name is all new, or as it was, and nobody's litter
 * stays.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torture.h"

enum { SIZE = 50000 };
static const struct way {
    const char *name;
    bool old, link, nameless;
} ways[] = {
    {"a new file", false, false, true},
    {"a file replaced", true, false, true},
    {"a file behind a link", true, true, true},
    {"a new file where none is nameless", false, false, false},
    {"a file replaced where none is nameless", true, false, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

static char folder[256], path[300], pointed[300];
static char fresh[SIZE], old[SIZE / 2];

struct attempt {
    const struct way *way;
    enum shim_action action;
    long at;
    int error;
    atomic_long *calls;
};

static void prepare(const struct way *w)
{
    remove_tree(folder);
    mkdir(folder, 0700);
    if (w->old) write_whole(w->link ? pointed : path, old, sizeof old), chmod(w->link ? pointed : path, 0640);
    if (w->link && symlink("pointed", path)) complain("cannot link");
}

/* 0: saved, 1: not, with the reason. */
static int save(void *ctx)
{
    const struct attempt *a = ctx;
    char why[CACHE_ERROR] = "";
    shim_watch(folder);
    shim.all_named = !a->way->nameless;
    if (a->at) shim_arm(a->action, a->at, a->error, false);
    bool good = file_save(path, fresh, SIZE, why);
    atomic_store(a->calls, shim.count);
    shim_off();
    return good ? 0 : why[0] ? 1 : 2;
}

/* 0: all new, 1: as it was, 2: neither. */
static int judge(const struct way *w)
{
    struct stat st;
    size_t size = 0;
    char *now = lstat(path, &st) ? NULL : read_whole(path, &size);
    int state = !now                                                            ? w->old ? 2 : 1
                : size == SIZE && !memcmp(now, fresh, SIZE)                     ? 0
                : w->old && size == sizeof old && !memcmp(now, old, sizeof old) ? 1
                                                                                : 2;
    if (now && w->link && !S_ISLNK(st.st_mode)) state = 2;
    if (now && w->old && (stat(path, &st) || (st.st_mode & 0777) != 0640)) state = 2;
    free(now);
    return state;
}

/* After any end: whole, at most one thing left over, and nothing of it after the next save. */
static int look(const struct attempt *a, const char *what, int end)
{
    int bad = 0, names = 1 + a->way->link, most = names + (end == 1009);
    int state = judge(a->way);
    struct attempt again = *a;
    again.at = 0;
    if (state == 2) bad += complain("%s: %s at call %ld: neither old nor new", a->way->name, what, a->at);
    if (end == 0 && state != 0)
        bad += complain("%s: %s at call %ld: saved, it said", a->way->name, what, a->at);
    if (walk_files(folder, NULL, NULL) > most)
        bad += complain("%s: %s at call %ld: litter", a->way->name, what, a->at);
    if (save(&again) || judge(a->way) || walk_files(folder, NULL, NULL) != names)
        bad += complain("%s: %s at call %ld: afterwards", a->way->name, what, a->at);
    return bad;
}

static long count_calls(struct attempt *a)
{
    prepare(a->way);
    a->at = 0;
    if (reap(spawn(save, a)) || judge(a->way)) complain("%s: fails unharmed", a->way->name);
    return atomic_load(a->calls);
}

static void kills(struct attempt *a)
{
    long bad = 0, cases = 0, calls = count_calls(a);
    for (int tear = 0; tear < 2; tear++)
        for (a->at = 1; a->at <= calls; a->at++, cases++) {
            prepare(a->way);
            a->action = tear ? SHIM_TEAR : SHIM_KILL;
            int end = reap(spawn(save, a));
            bad += end != 1009 ? complain("%s: ended with %d", a->way->name, end) : 0;
            bad += look(a, "killed", end);
        }
    figure(cases, bad, "%s, its writer killed at each of %ld file calls", a->way->name, calls);
}

static void faults(struct attempt *a)
{
    static const int errors[] = {ENOSPC, EIO, EROFS, EACCES, EMFILE, ENOMEM, EDQUOT};
    long bad = 0, cases = 0, calls = count_calls(a);
    int count = scaled(2, (int)(sizeof errors / sizeof *errors));
    for (int e = 0; e < count; e++)
        for (a->at = 1; a->at <= calls; a->at++, cases++) {
            prepare(a->way);
            a->action = SHIM_FAIL, a->error = errors[e];
            int before = open_descriptors(), end = save(a);
            if (end == 2)
                bad += complain("%s: %s at call %ld: no reason", a->way->name, strerror(errors[e]), a->at);
            if (open_descriptors() != before) bad += complain("%s: leaks a descriptor", a->way->name);
            bad += look(a, strerror(errors[e]), end);
        }
    figure(cases, bad, "%s, each of %ld file calls failing with %d errno values", a->way->name, calls, count);
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "save");
    struct attempt a = {.calls = shared_memory(sizeof *a.calls)};
    snprintf(folder, sizeof folder, "%s", under("folder"));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(pointed, sizeof pointed, "%s/pointed", folder);
    thing_fill(fresh, 1, sizeof fresh), thing_fill(old, 2, sizeof old);
    for (int w = 0; w < WAYS; w++) {
        a.way = &ways[w];
        kills(&a);
        faults(&a);
    }
    return torture_end();
}
