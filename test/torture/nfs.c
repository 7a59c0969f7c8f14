/*
 * nfs.c -- the ways of a file server, played by the shim: no locks and no nameless files there, names that
 * stay away although somebody made them, handles that go stale. Duplicate work is allowed, failures not.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torture.h"

enum { HOSTS = 2, PROCESSES = 16, KEYS = 8, SIZE = 40000 };
static char folder[256];
static atomic_int *renames; /* shared */

static void note(const struct shim_event *e)
{
    if (strstr(e->call, "rename")) atomic_fetch_add(renames, 1);
}

struct client {
    int host, number, negative_ms;
    struct gate *gate, *looked;
};

/* Each host has a runtime folder, hence locks, of its own. */
static struct coda_cache *mount_here(const struct client *k)
{
    char run[64];
    snprintf(run, sizeof run, "run%d", k->host);
    mkdir(under(run), 0700);
    setenv("XDG_RUNTIME_DIR", under(run), 1);
    shim_watch(folder);
    shim.nfs = true;
    shim.negative_ms = k->negative_ms;
    shim.saw = note;
    return open_cache(folder);
}

static int use(void *ctx)
{
    const struct client *k = ctx;
    struct coda_cache *c = mount_here(k);
    if (k->gate) gate_pass(k->gate);
    int bad = 0;
    for (int i = 0; i < KEYS; i++) bad += !obtain_thing(c, (k->number + i) % KEYS, SIZE);
    for (int i = COUNT_rejected_short; i <= COUNT_rejected_key; i++) bad += counted(c, i) != 0;
    cache_close(c);
    return bad != 0;
}

static void two_hosts(void)
{
    int rounds = scaled(2, 30), bad = 0, most = 0;
    for (int round = 0; round < rounds; round++) {
        pid_t child[HOSTS * PROCESSES];
        struct gate *gate = gate_new(HOSTS * PROCESSES);
        remove_tree(folder);
        board_reset();
        atomic_store(&board->compile_us, 30000);
        for (int i = 0; i < HOSTS * PROCESSES; i++) {
            struct client k = {i % HOSTS, i, round % 2 ? 300 : 0, gate, NULL};
            child[i] = spawn(use, &k);
        }
        bad += reap_all(child, HOSTS * PROCESSES);
        int compiles = atomic_load(&board->compiles);
        if (!(round % 2) && compiles > HOSTS * KEYS)
            bad += complain("%d compiles: processes of one host do not share", compiles);
        most = compiles > most ? compiles : most;
        if (leftovers(folder, NULL)) bad += complain("a temporary file stays");
    }
    if (atomic_load(renames)) bad += complain("a new entry was renamed over: open files of others go stale");
    figure(rounds, bad, "%d hosts of %d processes, %d keys, names hidden up to 300 ms: %d compiles at most",
           HOSTS, PROCESSES, KEYS, most);
}

/* The one who comes second finds the name taken, and cannot see by whom. */
static int come_second(void *ctx)
{
    const struct client *k = ctx;
    struct coda_cache *c = mount_here(k);
    int bad = 0;
    for (int i = 0; i < KEYS; i++) {
        struct cache_key key = thing_key(i);
        void *data;
        size_t size;
        if (cache_get(c, &key, &data, &size)) free(data); /* not there: hidden from now on */
    }
    gate_pass(k->looked);
    gate_pass(k->gate); /* the other has published */
    for (int i = 0; i < KEYS; i++) bad += !obtain_thing(c, i, SIZE);
    if (counted(c, COUNT_lost_races) != KEYS)
        bad += complain("%d races lost", (int)counted(c, COUNT_lost_races));
    cache_close(c);
    return bad;
}

/* The folders that entries will lie in, and no entries. */
static void make_folders(void)
{
    struct cache_prune all = {.max_bytes = 0, .older_than_s = -1};
    struct coda_cache *c = open_cache(folder);
    for (int i = 0; i < KEYS; i++) obtain_thing(c, i, SIZE);
    cache_prune(c, &all);
    cache_close(c);
}

static void losers(void)
{
    int bad = 0;
    remove_tree(folder);
    make_folders();
    board_reset();
    struct client k = {0, 0, 60000, gate_new(2), gate_new(2)};
    pid_t child = spawn(come_second, &k);
    gate_pass(k.looked);
    struct coda_cache *c = open_cache(folder);
    for (int i = 0; i < KEYS; i++) obtain_thing(c, i, SIZE);
    cache_close(c);
    gate_pass(k.gate);
    if (reap(child)) bad += complain("a loser that cannot see the winner fails");
    figure(KEYS, bad, "losers of the race that cannot see the winner's file for a minute keep their own");
}

/* Handles go stale under readers, and the server leaves its .nfs files about. */
static int churn(void *ctx)
{
    const struct client *k = ctx;
    struct coda_cache *c = mount_here(k);
    int bad = 0;
    uint64_t seed = (uint64_t)k->number;
    for (int i = 0; i < scaled(400, 20000); i++) {
        int number = (int)(noise(&seed) % KEYS);
        struct cache_prune all = {.max_bytes = 0, .older_than_s = -1};
        if (k->number == 0 && i % 8 == 0) cache_prune(c, &all);
        else {
            bad += !obtain_thing(c, number, SIZE);
            cache_forget(c);
        }
    }
    cache_close(c);
    return bad != 0;
}

static void stale(void)
{
    int bad = 0;
    pid_t child[8];
    remove_tree(folder);
    board_reset();
    struct coda_cache *c = open_cache(folder);
    obtain_thing(c, 0, SIZE);
    cache_close(c);
    char name[300];
    snprintf(name, sizeof name, "%s/v2/.nfs000000000123", folder);
    write_whole(name, "x", 1);
    for (int i = 0; i < 8; i++) {
        struct client k = {i % HOSTS, i, 0, NULL, NULL};
        child[i] = spawn(churn, &k);
    }
    bad += reap_all(child, 8);
    figure(8, bad, "8 processes while entries vanish: stale handles are misses, .nfs files are left alone");
}

static void shown(void)
{
    char json[16384];
    struct client k = {0, 0, 0, NULL, NULL};
    remove_tree(folder);
    struct coda_cache *c = mount_here(&k);
    cache_stats_print(c, json, sizeof json);
    int bad = strstr(json, "nfs") ? 0 : complain("the statistics do not say nfs: %s", json);
    if (!obtain_thing(c, 1, SIZE)) bad += complain("nothing works");
    if (counted(c, COUNT_stored) != 1) bad += complain("nothing is stored");
    if (counted(c, COUNT_lock_unavailable)) bad += complain("locks do not lie on this host");
    cache_close(c);
    shim_off();
    figure(1, bad, "the file system is in the statistics, locks lie on the host");
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "nfs");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    renames = shared_memory(sizeof *renames);
    shown();
    two_hosts();
    losers();
    stale();
    return torture_end();
}
