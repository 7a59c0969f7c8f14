/*
 * faults.c -- each N-th file call fails with each errno, once or for good, on four ways through the cache:
 * every compilation gives a working kernel, nothing leaks, and what could not be stored is counted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "torture.h"

static const struct fault {
    const char *name;
    enum shim_action action;
    int error;
} faults[] = {
    {"ENOSPC", SHIM_FAIL, ENOSPC},      {"EDQUOT", SHIM_FAIL, EDQUOT}, {"EIO", SHIM_FAIL, EIO},
    {"EROFS", SHIM_FAIL, EROFS},        {"EACCES", SHIM_FAIL, EACCES}, {"EMFILE", SHIM_FAIL, EMFILE},
    {"ENFILE", SHIM_FAIL, ENFILE},      {"ESTALE", SHIM_FAIL, ESTALE}, {"EBUSY", SHIM_FAIL, EBUSY},
    {"EINTR", SHIM_FAIL, EINTR},        {"ENOMEM", SHIM_FAIL, ENOMEM}, {"short write", SHIM_SHORT, 0},
    {"close() error", SHIM_CLOSE, EIO},
};
enum { FAULTS = sizeof faults / sizeof *faults };

/* What the folder holds before the call. */
enum way { COLD, WARM, DAMAGED, FULL, WAYS };
static const char *const way_name[WAYS] = {"cold", "warm", "damaged", "full"};

enum { KERNEL = 7 };
static char folder[256];

static void damage_one(const char *path, void *ctx)
{
    size_t size;
    unsigned char *bytes = read_whole(path, &size);
    (void)ctx;
    if (bytes && size > ENTRY_HEADER) {
        bytes[size - 1] ^= 1;
        write_whole(path, bytes, size);
    }
    free(bytes);
}

static void prepare(enum way w)
{
    remove_tree(folder);
    if (w == COLD) return;
    struct coda_cache *c = open_cache(folder);
    if (w == FULL)
        for (int i = 0; i < 3; i++) obtain_thing(c, i, 6000);
    else use_kernel(c, KERNEL);
    cache_close(c);
    if (w == DAMAGED) walk_files(folder, damage_one, NULL);
}

static struct coda_cache *open_way(enum way w)
{
    return cache_open(&(struct cache_options){.dir = folder, .limit = w == FULL ? 24000 : -1});
}

/* The sum of the causes is the whole, and a compile that left no entry says why. */
static int check_counters(struct coda_cache *c, enum way w, const char *what)
{
    uint64_t causes = 0;
    for (int i = COUNT_store_failed_space; i <= COUNT_store_failed_io; i++) causes += counted(c, i);
    int bad = 0;
    if (causes != counted(c, COUNT_store_failed))
        bad += complain("%s: %d stores failed for %d causes", what, (int)counted(c, COUNT_store_failed),
                        (int)causes);
    if (cache_dir(c)[0] && counted(c, COUNT_compiles) && w != WARM &&
        !(counted(c, COUNT_stored) + counted(c, COUNT_store_failed) + counted(c, COUNT_lost_races)))
        bad += complain("%s: neither stored nor counted as not stored", what);
    if (!cache_dir(c)[0] && !cache_problem(c)[0]) bad += complain("%s: no directory, and no reason", what);
    return bad;
}

/* One case; *acted says whether the fault came to pass. */
static int attempt(enum way w, const struct fault *f, long n, bool sticky, bool *acted)
{
    char what[96];
    int bad = 0, before = open_descriptors();
    snprintf(what, sizeof what, "%s, %s %s at call %ld", way_name[w], f->name, sticky ? "for good" : "once",
             n);
    prepare(w);
    shim_watch(folder);
    shim_arm(f->action, n, f->error, sticky);
    struct coda_cache *c = open_way(w);
    coda_status status = c ? use_kernel(c, KERNEL) : CODA_OK; /* no memory for a cache is no fault here */
    if (status) bad += complain("%s: %s", what, coda_error());
    if (c) bad += check_counters(c, w, what);
    cache_close(c);
    *acted = atomic_load(&shim.acted);
    shim_off();
    if (open_descriptors() != before) bad += complain("%s: leaks a descriptor", what);
    if (leftovers(folder, NULL) && !sticky) bad += complain("%s: leaves a temporary file", what);
    c = open_way(w);
    if (use_kernel(c, KERNEL)) bad += complain("%s, afterwards: %s", what, coda_error());
    for (int i = COUNT_rejected_short; i <= COUNT_rejected_key; i++)
        if (w != DAMAGED && counted(c, i)) bad += complain("%s: a bad entry was published", what);
    cache_close(c);
    if (leftovers(folder, NULL)) bad += complain("%s: a temporary file stays", what);
    int compiles = atomic_load(&board->compiles);
    c = open_way(w);
    if (use_kernel(c, KERNEL) || atomic_load(&board->compiles) != compiles)
        bad += complain("%s: not healed", what);
    cache_close(c);
    return bad;
}

static void sweep(enum way w)
{
    long cases = 0, bad = 0, most = 0;
    for (int f = 0; f < FAULTS; f++) {
        if (!full && f != (int)w && f % 3 != (int)w % 3) continue;
        for (int sticky = 0; sticky < 2; sticky++) {
            bool acted = true;
            for (long n = 1; acted; n++, cases++) {
                bad += attempt(w, &faults[f], n, sticky, &acted);
                if (acted && n > most) most = n;
                if (faults[f].action == SHIM_SHORT || faults[f].action == SHIM_CLOSE) acted = n < 80;
            }
        }
    }
    figure(cases, bad, "a %s folder, %d faults at each of up to %ld file calls, once and for good",
           way_name[w], full ? FAULTS : FAULTS / 3 + 1, most);
    if (atomic_load(&board->wrong))
        figure(1, atomic_load(&board->wrong), "images that reached the driver wrong");
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "faults");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    struct coda_cache *c = open_cache(folder); /* what is opened once for good is opened now */
    use_kernel(c, KERNEL);
    cache_close(c);
    for (int w = 0; w < WAYS; w++)
        if (chosen(way_name[w])) sweep((enum way)w);
    return torture_end();
}
