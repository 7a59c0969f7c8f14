/*
 * versions.c -- two versions of the library and two of the compiler use one folder, which is too small for
 * both: nobody ever loads the other's kernel.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torture.h"

enum { PROCESSES = 8, KERNELS = 12, LIMIT = 200 << 10 };
static char folder[256];

struct version {
    int library, compiler, uses; /* library 1 has an edited primitive */
    unsigned seed;
};

/* What made the image that the driver holds for the kernel of this plan: primitives, options, compiler. */
static uint64_t maker_of(const coda_plan *p)
{
    uint64_t (*maker)(const char *) = NULL;
    coda_kernel_info info = CODA_KERNEL_INFO_INIT;
    *(void **)&maker = dlsym(dlopen(getenv("CODA_LIBCUDA"), RTLD_NOW), "fake_maker");
    return coda_plan_kernel(p, 0, &info) ? 0 : maker(info.source);
}

static uint64_t maker_with(struct coda_cache *c, int number, unsigned flags)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    coda_graph *g = kernel_graph(number, NULL);
    opt.cache = c;
    opt.flags = flags;
    uint64_t h = coda_compile(&p, g, &opt) ? 0 : maker_of(p);
    coda_plan_free(p);
    coda_graph_free(g);
    return h;
}

/* A process of one version: all that it loads is what it would compile itself. */
static int live(void *ctx)
{
    struct version *v = ctx;
    uint64_t seed = v->seed;
    char text[16];
    if (v->library) setenv("CODA_PRIMITIVES", under("primitives"), 1);
    snprintf(text, sizeof text, "%d", 13000 + 10 * (v->compiler & 1));
    setenv("FAKE_NVRTC", text, 1);
    if (v->compiler & 2) setenv("NVRTC_APPEND_FLAGS", "-DV2", 1);
    uint64_t own = maker_with(NULL, 1000, CODA_NO_CACHE);
    int bad = own == 0;
    for (int i = 0; i < v->uses; i++) {
        struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .limit = LIMIT});
        for (int k = 0; k < 5; k++) {
            uint64_t h = maker_with(c, (int)(noise(&seed) % KERNELS), 0);
            if (h != own) bad += complain("version %d loaded what is not its own", v->library);
        }
        cache_close(c);
    }
    return bad != 0;
}

static void write_primitive(void)
{
    mkdir(under("primitives"), 0700);
    mkdir(under("primitives/map"), 0700);
    static const char text[] = "// silu.cuh -- another version\n#pragma once\n";
    write_whole(under("primitives/map/silu.cuh"), text, sizeof text - 1);
}

static void mixed(void)
{
    struct version v[PROCESSES];
    pid_t child[PROCESSES];
    int uses = scaled(100, 2500) / PROCESSES, bad = 0;
    remove_tree(folder);
    board_reset();
    atomic_store(&board->image_bytes, 6000);
    for (int i = 0; i < PROCESSES; i++) {
        v[i] = (struct version){i % 2, i / 2, uses, (unsigned)i + 1};
        child[i] = spawn(live, &v[i]);
    }
    bad += reap_all(child, PROCESSES);
    if (atomic_load(&board->wrong)) bad += complain("%d images were wrong", atomic_load(&board->wrong));
    int entries;
    if (leftovers(folder, &entries)) bad += complain("temporary files stay");
    if (entries < 10) bad += complain("only %d entries stay", entries);
    figure(5L * uses * PROCESSES, bad,
           "two libraries, two compilers, two settings in one folder of %d bytes: no cross read, %d entries "
           "stay",
           LIMIT, entries);
}

/* A folder of another format's version, and one of the future: left alone. */
static void other_formats(void)
{
    int bad = 0;
    char path[400], path2[400];
    remove_tree(folder);
    board_reset();
    snprintf(path, sizeof path, "%s/v1/ab", folder);
    snprintf(path2, sizeof path2, "%s/v99/ab", folder);
    mkdir(folder, 0700);
    char inner[400];
    snprintf(inner, sizeof inner, "%s/v1", folder), mkdir(inner, 0700), mkdir(path, 0700);
    snprintf(inner, sizeof inner, "%s/v99", folder), mkdir(inner, 0700), mkdir(path2, 0700);
    char files[2][500];
    snprintf(files[0], sizeof files[0], "%s/cdef.kernel", path);
    snprintf(files[1], sizeof files[1], "%s/cdef", path2);
    for (int i = 0; i < 2; i++) bad += !write_whole(files[i], "another version's", 17);
    struct coda_cache *c = cache_open(&(struct cache_options){.dir = folder, .limit = 50000});
    for (int i = 0; i < 100; i++) bad += !obtain_thing(c, i, 3000);
    cache_close(c);
    for (int i = 0; i < 2; i++)
        if (access(files[i], F_OK)) bad += complain("%s was removed", files[i]);
    figure(2, bad, "folders of older and newer formats beside ours stay as they are");
}

int main(int argc, char **argv)
{
    torture_begin(argc, argv, "versions");
    snprintf(folder, sizeof folder, "%s", under("cache"));
    write_primitive();
    mixed();
    other_formats();
    return torture_end();
}
