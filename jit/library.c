/*
 * library.c -- where NVIDIA's libraries are looked for.
 *
 * NVRTC, cuBLASLt and NCCL: in $CODA_CUDA_LIB alone (folders, separated by colons) if it is set. Otherwise
 * where the loader looks (which finds a copy that the process already has), then in $CUDA_HOME, $CUDA_PATH
 * and /usr/local/cuda, each with lib64 and lib, then in cuda/lib beside the file that this code is in.
 * libcuda belongs to the kernel module, so only the loader knows it; $CODA_LIBCUDA names another file.
 *
 * NCCL is taken from the process first, wherever it has it from: a communicator of its own belongs to that
 * copy.
 *
 * A library is code, so no place counts that depends on the current directory: relative folders are
 * refused, and the file that this code is in is asked of the kernel, for the loader knows the program's
 * only by argv[0]. The loader itself takes an empty or relative entry of $LD_LIBRARY_PATH for a folder
 * below the current directory; where there is one it is not asked, and its other places are looked at one
 * by one. What NVIDIA's libraries open by plain names is opened before them, as far as it is known here. In a
 * setuid program there is the loader, which knows of that, and /usr/local/cuda; and nothing at all if the
 * environment speaks to NVIDIA's libraries, which believe it.
 */
#include "library.h"

#include <dlfcn.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cache.h"

static void note_reason(struct library *l, const char *reason)
{
    if (!l->why[0]) snprintf(l->why, sizeof l->why, "%s", reason ? reason : "not found");
}

/* A place that was named, and is not looked at. */
static void refuse(struct library *l, const char *variable, const char *value, size_t length)
{
    if (l->refused[0]) return;
    snprintf(l->refused, sizeof l->refused, "$%s has \"%.*s\", which is no absolute path", variable,
             (int)(length < 60 ? length : 60), value);
    note_reason(l, l->refused);
}

/* ---- One folder ---- */

/* In English, whatever the program's locale is. */
static void note_dlerror(struct library *l)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0), before = c ? uselocale(c) : (locale_t)0;
    note_reason(l, dlerror());
    if (before) uselocale(before);
}

/* What is there and is no plain file is not opened: the loader would wait for a FIFO's other end. */
static bool open_file(struct library *l, const char *path)
{
    struct stat st;
    if (strchr(path, '/') && !stat(path, &st) && !S_ISREG(st.st_mode))
        return note_reason(l, "no plain file"), false;
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle) note_dlerror(l);
    return l->handle;
}

/* Opens names[] in an absolute folder of `length` characters. The first reason is kept: it is about the
 * newest name in the likeliest place. */
static bool open_in(struct library *l, const char *folder, size_t length)
{
    for (int i = 0; !l->handle && l->names[i]; i++) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, l->names[i]);
        if (n > 0 && n < (int)sizeof path) open_file(l, path);
    }
    return l->handle;
}

/* Folders of a variable, between any of `marks`. */
static bool open_listed(struct library *l, const char *variable, const char *folders, const char *marks)
{
    for (;; folders++) {
        size_t n = strcspn(folders, marks);
        if (n && folders[0] != '/') refuse(l, variable, folders, n);
        else if (n && open_in(l, folders, n)) return true;
        folders += n;
        if (!*folders) return false;
    }
}

static bool open_below(struct library *l, const char *home)
{
    static const char *const lib[] = {"lib64", "lib", "targets/x86_64-linux/lib"};
    char folder[PATH_MAX];
    for (size_t i = 0; i < sizeof lib / sizeof *lib; i++) {
        int n = snprintf(folder, sizeof folder, "%s/%s", home, lib[i]);
        if (n > 0 && n < (int)sizeof folder && open_in(l, folder, (size_t)n)) return true;
    }
    return false;
}

static bool open_home(struct library *l, const char *variable)
{
    const char *home = environment(variable);
    if (home && home[0] != '/') refuse(l, variable, home, strlen(home));
    return home && home[0] == '/' && open_below(l, home);
}

/* ---- The file that this code is in ---- */

bool library_file_of(const void *address, char *path, size_t size)
{
    char line[PATH_MAX + 128];
    unsigned long at = (unsigned long)address, from, to;
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        int begin = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &from, &to, &begin) != 2 || at < from || at >= to)
            continue;
        size_t n = strcspn(line + begin, "\n");
        if (!begin || line[begin] != '/' || n >= size) break;
        memcpy(path, line + begin, n);
        path[n] = 0;
        found = true;
    }
    if (f) fclose(f);
    return found;
}

/* The folder that `make` fills from NVIDIA's wheels: cuda/lib beside the file this code is in. Whoever can
 * link a setuid program to another name chooses its folder, so there it does not count. */
static bool open_beside(struct library *l)
{
    char file[PATH_MAX], home[PATH_MAX + 8];
    if (environment_is_foreign() || !library_file_of((const void *)(uintptr_t)open_below, file, sizeof file))
        return false;
    snprintf(home, sizeof home, "%.*s/cuda", (int)(strrchr(file, '/') - file), file);
    return open_below(l, home);
}

/* ---- The loader ---- */

/* Does an entry mean the current directory, or a folder below it? */
static const char *relative_entry(const char *list)
{
    for (;; list++) {
        if (*list != '/' && *list != '$') return list; /* $ORIGIN and its like are absolute */
        list += strcspn(list, ":;");
        if (!*list) return NULL;
    }
}

/* What the process has. */
static bool open_loaded(struct library *l)
{
    for (int i = 0; !l->handle && l->names[i]; i++)
        l->handle = dlopen(l->names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return l->handle;
}

/* What the loader would find but for entries of $LD_LIBRARY_PATH that are relative. */
static bool search_for_loader(struct library *l, const char *list)
{
    const char *bad = relative_entry(list);
    refuse(l, "LD_LIBRARY_PATH", bad, strcspn(bad, ":;"));
#if defined(__x86_64__)
#define MULTIARCH "/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu:"
#elif defined(__aarch64__)
#define MULTIARCH "/usr/lib/aarch64-linux-gnu:/lib/aarch64-linux-gnu:"
#else
#define MULTIARCH ""
#endif
    static const char system[] = MULTIARCH "/usr/lib64:/lib64:/usr/lib:/lib";
    return open_loaded(l) || open_listed(l, "LD_LIBRARY_PATH", list, ":;") || open_listed(l, "", system, ":");
}

/* Plain names, where the loader looks for them. */
static bool open_by_loader(struct library *l)
{
    const char *list = environment("LD_LIBRARY_PATH");
    if (list && relative_entry(list)) return search_for_loader(l, list);
    for (int i = 0; !l->handle && l->names[i]; i++) open_file(l, l->names[i]);
    return l->handle;
}

/* In a setuid program: does somebody speak to NVIDIA's libraries by the environment? CUDA_INJECTION64_PATH
 * names a library that libcuda loads, NVRTC_APPEND_FLAGS a file that NVRTC reads; others are not told. */
static bool is_spoken_to(struct library *l)
{
    static const char *const theirs[] = {"CUDA", "CUBLAS", "NVRTC",   "NVIDIA",    "NVTX", "NV_",
                                         "EDG_", "LLVM_",  "LIBNVVM", "AS_SECURE", "NCCL", NULL};
    static const char *const not_theirs[] = {"CUDA_HOME=", "CUDA_PATH=", "CUDA_VERSION=", NULL};
    const char *set = environment_is_foreign() ? environment_begins(theirs, not_theirs) : NULL;
    if (!set) return false;
    snprintf(l->why, sizeof l->why, "this is a setuid program, and $%.*s is set, which its libraries obey",
             (int)(strcspn(set, "=") < 60 ? strcspn(set, "=") : 60), set);
    return true;
}

/* ---- Open ---- */

bool library_open_loaded(struct library *l) { return !is_spoken_to(l) && open_loaded(l); }

bool library_open_toolkit(struct library *l)
{
    const char *folders = environment("CODA_CUDA_LIB");
    if (is_spoken_to(l)) return false;
    if (folders) return open_listed(l, "CODA_CUDA_LIB", folders, ":");
    return open_by_loader(l) || open_home(l, "CUDA_HOME") || open_home(l, "CUDA_PATH") ||
           open_below(l, "/usr/local/cuda") || open_beside(l);
}

bool library_open_driver(struct library *l)
{
    const char *file = environment("CODA_LIBCUDA");
    if (is_spoken_to(l)) return false;
    if (file) l->names[0] = file;
    if (!file || !strchr(file, '/')) return open_by_loader(l);
    if (file[0] == '/') return open_file(l, file);
    refuse(l, "CODA_LIBCUDA", file, strlen(file));
    return false;
}

static void note_path(struct library *l, const void *function)
{
    Dl_info info;
    if (dladdr(function, &info) && info.dli_fname && info.dli_fname[0] == '/')
        snprintf(l->path, sizeof l->path, "%s", info.dli_fname);
    else if (!library_file_of(function, l->path, sizeof l->path)) l->path[0] = 0;
}

void *library_open_tool(const char *path)
{
    return *path == '/' ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
}

void library_fill(struct library *l, const char *const *names, void *table)
{
    void **slot = table;
    if (!l->handle) return;
    for (; *names; names++, slot++) {
        *slot = dlsym(l->handle, *names);
        if (*slot) continue;
        snprintf(l->why, sizeof l->why, "%s is too old: it has no %s", l->names[0], *names);
        dlclose(l->handle);
        l->handle = NULL;
        return;
    }
    note_path(l, slot[-1]);
}

bool library_strays(struct library *l)
{
    const char *list = environment("LD_LIBRARY_PATH"), *bad = list ? relative_entry(list) : NULL;
    if (bad) refuse(l, "LD_LIBRARY_PATH", bad, strcspn(bad, ":;"));
    return bad;
}

void library_open_companion(struct library *l, const char *name)
{
    struct library companion = {.names = {name}};
    const char *slash = strrchr(l->path, '/'), *list = environment("LD_LIBRARY_PATH");
    if (slash && open_in(&companion, l->path, (size_t)(slash - l->path))) return;
    if (!list || !relative_entry(list) || search_for_loader(&companion, list)) return;
    snprintf(l->why, sizeof l->why, "%s is not beside it, and %s", name, companion.refused);
    dlclose(l->handle);
    l->handle = NULL;
}

void library_print(const struct library *l, const char *version, char *line, size_t size)
{
    snprintf(line, size, "%s %s%s%s%s", version, l->path, l->refused[0] ? " (" : "", l->refused,
             l->refused[0] ? ")" : "");
}
