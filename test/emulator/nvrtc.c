/*
 * nvrtc.c -- the functions of NVRTC that libcoda uses, over g++: CUDA text becomes a shared object.
 *
 * The text is written to a folder, its headers to another one, which stays: those of primitives/ptx replaced
 * by the emulator's, which this library carries. Two things that no macro can replace are changed in every
 * text:
 *     extern __shared__ T name[];    a pointer that the machine gives
 *     "+f"                           "+x": a float in a register of this processor
 * Each `extern "C" __global__` function gets an entry with what its bounds say.
 */
#include "driver_inside.h"

#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The emulator's own headers ---- */

#define CARRY(symbol, path)                                                                                  \
    __asm__(".section .rodata\n.globl " #symbol "\n.hidden " #symbol "\n" #symbol ":\n.incbin \"" path       \
            "\"\n.byte 0\n.text\n");                                                                         \
    extern const char symbol[];
CARRY(carried_emulator, "test/emulator/emulator.h")
CARRY(carried_words, "test/emulator/words.h")
CARRY(carried_twins, "test/shim/twins.h")
CARRY(carried_barrier, "test/emulator/ptx/barrier.cuh")
CARRY(carried_cluster, "test/emulator/ptx/cluster.cuh")
CARRY(carried_control, "test/emulator/ptx/control.cuh")
CARRY(carried_copy, "test/emulator/ptx/copy.cuh")
CARRY(carried_matrix, "test/emulator/ptx/matrix.cuh")
CARRY(carried_system, "test/emulator/ptx/system.cuh")
CARRY(carried_tma, "test/emulator/ptx/tma.cuh")
CARRY(carried_wgmma, "test/emulator/ptx/wgmma.cuh")
CARRY(carried_wgmma_f8, "test/emulator/ptx/wgmma_f8.cuh")

static const struct {
    const char *name, *text;
} carried[] = {
    {"emulator.h", carried_emulator},     {"words.h", carried_words},
    {"twins.h", carried_twins},           {"ptx/barrier.cuh", carried_barrier},
    {"ptx/cluster.cuh", carried_cluster}, {"ptx/control.cuh", carried_control},
    {"ptx/matrix.cuh", carried_matrix},   {"ptx/system.cuh", carried_system},
    {"ptx/tma.cuh", carried_tma},         {"ptx/wgmma.cuh", carried_wgmma},
    {"ptx/copy.cuh", carried_copy},       {"ptx/wgmma_f8.cuh", carried_wgmma_f8},
};
enum { CARRIED = sizeof carried / sizeof *carried };

/* ---- Programs ---- */

struct _nvrtcProgram {
    char *text, *log, *image;
    size_t size;
    char **name, **header;
    int headers;
};

nvrtcResult nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, NVRTC_SUCCESS; }

const char *nvrtcGetErrorString(nvrtcResult r)
{
    return r == NVRTC_SUCCESS ? "NVRTC_SUCCESS" : "the emulator's compiler failed";
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *out, const char *text, const char *name, int headers,
                               const char *const *sources, const char *const *names)
{
    (void)name;
    nvrtcProgram p = calloc(1, sizeof *p);
    if (!p) return NVRTC_ERROR_OUT_OF_MEMORY;
    p->text = strdup(text);
    p->name = calloc((size_t)headers + 1, sizeof *p->name);
    p->header = calloc((size_t)headers + 1, sizeof *p->header);
    for (int i = 0; p->name && p->header && i < headers; i++) {
        p->name[i] = strdup(names[i]);
        p->header[i] = strdup(sources[i]);
        p->headers++;
    }
    return *out = p, NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *at)
{
    nvrtcProgram p = *at;
    for (int i = 0; i < p->headers; i++) free(p->name[i]), free(p->header[i]);
    free(p->name);
    free(p->header);
    free(p->text);
    free(p->log);
    free(p->image);
    free(p);
    *at = NULL;
    return NVRTC_SUCCESS;
}

/* ---- Texts ---- */

/* After "extern __shared__": an alignment perhaps, a type, a name and "[];". */
static const char *put_shared(FILE *f, const char *s)
{
    s += strspn(s, " ");
    if (!strncmp(s, "__align__", 9)) s = strchr(s, ')') + 1;
    const char *end = strstr(s, "[];"), *name = end;
    while (isalnum((unsigned char)name[-1]) || name[-1] == '_') name--;
    fprintf(f, "%.*s *const %.*s = (%.*s *)emu_dynamic_shared();", (int)(name - s), s, (int)(end - name),
            name, (int)(name - s), s);
    return end + 3;
}

static void put_text(FILE *f, const char *s)
{
    static const char shared[] = "extern __shared__", registers[] = "\"+f\"";
    while (*s) {
        if (!strncmp(s, shared, sizeof shared - 1)) s = put_shared(f, s + sizeof shared - 1);
        else if (!strncmp(s, registers, sizeof registers - 1)) fputs("\"+x\"", f), s += sizeof registers - 1;
        else fputc(*s++, f);
    }
}

/* The numbers in brackets after a word before `end`; what is not said stays. */
static void read_bounds(const char *from, const char *end, const char *word, int *first, int *second)
{
    const char *s = strstr(from, word);
    if (s && s < end) sscanf(s + strlen(word), "(%d, %d", first, second);
}

/* An entry for each kernel: words.h. */
static void put_entries(FILE *f, const char *s)
{
    static const char begin[] = "extern \"C\" __global__ void";
    while ((s = strstr(s, begin))) {
        const char *body = strchr(s, '{'), *bracket = body;
        int threads = MAX_THREADS, blocks = 1, cluster = 1, registers = 0, one = 1;
        if (!body) return;
        while (bracket > s && *bracket != '(') bracket--; /* of the one parameter */
        const char *name = bracket;
        while (isalnum((unsigned char)name[-1]) || name[-1] == '_') name--;
        read_bounds(s, body, "__launch_bounds__", &threads, &blocks);
        read_bounds(s, body, "__maxnreg__", &registers, &one);
        read_bounds(s, body, "__cluster_dims__", &cluster, &one);
        fprintf(f, "\nEMU_KERNEL(%.*s, %d, %d, %d, %d)\n", (int)(bracket - name), name, threads, blocks,
                cluster, registers);
        s = body;
    }
}

static bool write_text(const char *folder, const char *name, const char *text, bool entries)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "we");
    if (!f) return false;
    put_text(f, text);
    if (entries) put_entries(f, text);
    return fclose(f) == 0;
}

static bool write_headers(const char *folder, nvrtcProgram p)
{
    bool ok = true;
    for (int i = 0; ok && i < p->headers; i++) ok = write_text(folder, p->name[i], p->header[i], false);
    for (int i = 0; ok && i < CARRIED; i++) ok = write_text(folder, carried[i].name, carried[i].text, false);
    return ok;
}

/* FNV-1a, of which `hash` is what was there before. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return (hash ^ 0xff) * 1099511628211u;
}
enum { HASH_BEGIN = 2166136261u };

/* A path beside this library; false if that is not known. */
static bool beside(char *path, size_t size, const char *what, uint64_t hash, const char *end)
{
    Dl_info here;
    if (!dladdr((void *)(uintptr_t)nvrtcVersion, &here) || !strchr(here.dli_fname, '/')) return false;
    int folder = (int)(strrchr(here.dli_fname, '/') - here.dli_fname);
    int n = snprintf(path, size, "%.*s/%s-%016llx%s", folder, here.dli_fname, what, (unsigned long long)hash,
                     end);
    return n > 0 && (size_t)n < size;
}

/* ---- The compiler ---- */

/* A file's bytes behind `before` others. */
static char *read_whole(const char *path, size_t before, size_t *size)
{
    struct stat st;
    FILE *f = fopen(path, "re");
    char *data = f && !fstat(fileno(f), &st) ? calloc(1, before + (size_t)st.st_size + 1) : NULL;
    if (data && fread(data + before, 1, (size_t)st.st_size, f) != (size_t)st.st_size) free(data), data = NULL;
    if (data) *size = (size_t)st.st_size;
    if (f) fclose(f);
    return data;
}

#define OPTIMISE "-Og" /* the sum of compiling and running is least: most kernels compile no faster by -O0 */

/* Runs in the child. Values are as exact as on the device: nothing is contracted or reassociated. */
static void become_compiler(const char *folder, const char *const *what)
{
    enum { MOST = 32 };
    const char *compiler = getenv("CXX");
    int log = chdir(folder) ? -1 : open("log", O_WRONLY | O_CREAT | O_TRUNC, 0600), n = 0;
    if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) _exit(126);
    const char *machine =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "-march=x86-64-v3" : "-m64";
    const char *argv[MOST] = {compiler && *compiler ? compiler : "g++",
                              "-std=c++17",
                              OPTIMISE,
                              "-w",
                              "-fPIC",
                              "-fno-exceptions",
                              "-fno-asynchronous-unwind-tables",
                              "-fno-rtti",
                              "-fno-strict-aliasing",
                              "-fvisibility=hidden",
                              "-fno-gnu-unique",
                              "-ffp-contract=off",
                              machine,
                              "-pipe",
                              "-I."};
    while (argv[n]) n++;
    for (; *what && n < MOST - 1; what++) argv[n++] = *what;
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static bool run_compiler(const char *folder, const char *const *what)
{
    int status = -1;
    pid_t child = vfork(); /* no copy of this process's tables of pages */
    if (!child) become_compiler(folder, what);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static bool new_folder(char *folder, size_t size)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, size, "%.200s/coda-emulator-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(folder);
}

/* What most folders hold is taken away here: a shell and its rm take as long as the linker. */
static bool remove_folder(const char *folder)
{
    static const char *const most[] = {"kernel.cpp", "kernel.so", "log"};
    char path[600];
    if (getenv("CODA_EMULATOR_KEEP")) return true;
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, most[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "rm -rf '%s'", folder);
    return !rmdir(folder) || !system(path);
}

/* ---- What many kernels include first, compiled once: half of a kernel's time ---- */

/* Templates of which most kernels are made, each in a file with the emulator's own headers; these alone serve
 * the others. */
static const char *const templates[] = {
    "tile/rows.cuh",
    "tile/gemm_sm90.cuh",
    "tile/gemm_sm90_mixed.cuh",
    "tile/gemm_fma.cuh",
    "tile/gemm_mma.cuh",
    "tile/gemv_sm90.cuh",
    "tile/gemm_simt.cuh",
    "tile/stream_mma.cuh",
    "tile/top_k.cuh",
    "exchange/reduce.cuh",
    "exchange/copies.cuh",
    "recurrent/conv1d.cuh",
    "recurrent/scan_steps.cuh",
    "attention/attention_split_sm90.cuh",
};
enum { TEMPLATES = sizeof templates / sizeof *templates };

/* The template of a program; NULL if it is made of none of these. */
static const char *template_of(nvrtcProgram p)
{
    char line[80];
    for (int i = 0; i < TEMPLATES; i++) {
        snprintf(line, sizeof line, "\n#include \"%s\"", templates[i]);
        if (strstr(p->text, line)) return templates[i];
    }
    return NULL;
}

/* A bit for each of a program's headers that `text` reaches. */
static void mark_reached(nvrtcProgram p, const char *text, bool *reached)
{
    static const char begin[] = "#include \"";
    while (text && (text = strstr(text, begin))) {
        text += sizeof begin - 1;
        size_t n = strcspn(text, "\"");
        for (int i = 0; i < p->headers; i++) {
            if (reached[i] || strlen(p->name[i]) != n || strncmp(p->name[i], text, n)) continue;
            reached[i] = true;
            mark_reached(p, p->header[i], reached);
        }
    }
}

/* Under a name that changes with the headers; g++ takes prelude.h.gch for prelude.h if it was made with the
 * same options, and reads prelude.h if not. Of a header that it has met there it knows the text. */
static bool name_prelude(nvrtcProgram p, const char *first, char *path, size_t size)
{
    uint64_t hash = hash_text(hash_text(HASH_BEGIN, OPTIMISE), first);
    bool *reached = calloc((size_t)p->headers + 1, sizeof *reached);
    if (!reached) return false;
    mark_reached(p, first, reached);
    for (int i = 0; i < p->headers; i++)
        if (reached[i]) hash = hash_text(hash_text(hash, p->name[i]), p->header[i]);
    free(reached);
    for (int i = 0; i < CARRIED; i++) hash = hash_text(hash, carried[i].text);
    return beside(path, size, "prelude", hash, ".h");
}

/* Copies a file and renames the copy: another process sees all of it, or nothing. */
static bool put_file(const char *from, const char *to)
{
    char fresh[560];
    size_t size = 0;
    char *data = read_whole(from, 0, &size);
    snprintf(fresh, sizeof fresh, "%s.%ld", to, (long)getpid());
    FILE *f = data ? fopen(fresh, "we") : NULL;
    bool ok = f && fwrite(data, 1, size, f) == size;
    ok = f && !fclose(f) && ok && !rename(fresh, to);
    free(data);
    return ok;
}

static bool make_prelude(const char *path, const char *compiled, const char *first, const char *headers)
{
    const char *const what[] = {headers, "-x", "c++-header", "first.h", "-o", "first.h.gch", NULL};
    char folder[256], fresh[300], made[320];
    if (!new_folder(folder, sizeof folder)) return false;
    snprintf(fresh, sizeof fresh, "%s/first.h", folder);
    snprintf(made, sizeof made, "%s.gch", fresh);
    bool ok = write_text(folder, "first.h", first, false) && put_file(fresh, path) &&
              run_compiler(folder, what) && put_file(made, compiled);
    return remove_folder(folder) && ok;
}

/* A file that a program's text may begin with, of which there is a compiled form. */
static void find_prelude(nvrtcProgram p, const char *headers, char *path, size_t size)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    char first[200] = "#include \"words.h\"\n", compiled[520];
    const char *template = template_of(p);
    if (template) snprintf(first + strlen(first), 150, "#include \"types.cuh\"\n#include \"%s\"\n", template);
    pthread_mutex_lock(&one_at_a_time);
    bool named = name_prelude(p, first, path, size);
    snprintf(compiled, sizeof compiled, "%s.gch", path);
    if (!named || (access(compiled, R_OK) && !make_prelude(path, compiled, first, headers)))
        snprintf(path, size, "words.h");
    pthread_mutex_unlock(&one_at_a_time);
}

/* ---- A program's headers, written once: a hundred files, most of which all programs share ---- */

/* -I and a folder with the headers: one beside this library, or else the program's own. */
static bool find_headers(nvrtcProgram p, const char *own, char *option, size_t size)
{
    char path[500], fresh[520];
    uint64_t hash = HASH_BEGIN;
    for (int i = 0; i < p->headers; i++) hash = hash_text(hash_text(hash, p->name[i]), p->header[i]);
    for (int i = 0; i < CARRIED; i++) hash = hash_text(hash, carried[i].text);
    bool named = beside(path, sizeof path, "headers", hash, "");
    bool there = named && !access(path, R_OK);
    snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);
    if (named && !there && mkdtemp(fresh)) {
        there = write_headers(fresh, p) && !rename(fresh, path);
        if (!there) remove_folder(fresh);
        there = there || !access(path, R_OK); /* another process was first */
    }
    snprintf(option, size, "-I%s", there ? path : own);
    return there || write_headers(own, p);
}

static nvrtcResult compile(nvrtcProgram p, const char *folder)
{
    struct emulated_image head = {.magic = EMULATED_IMAGE};
    char path[300], headers[520], prelude[500];
    size_t size = 0;
    if (!write_text(folder, "kernel.cpp", p->text, true)) return NVRTC_ERROR_PROGRAM_CREATION_FAILURE;
    if (!find_headers(p, folder, headers, sizeof headers)) return NVRTC_ERROR_PROGRAM_CREATION_FAILURE;
    find_prelude(p, headers, prelude, sizeof prelude);
    const char *const what[] = {"-shared",   headers,     "-include", prelude, "kernel.cpp", "-o",
                                "kernel.so", "-nostdlib", "-lm",      "-lgcc", NULL};
    bool compiled = run_compiler(folder, what);
    free(p->log);
    snprintf(path, sizeof path, "%s/log", folder);
    p->log = read_whole(path, 0, &size);
    if (!compiled) return NVRTC_ERROR_COMPILATION;
    free(p->image);
    snprintf(path, sizeof path, "%s/kernel.so", folder);
    if (!(p->image = read_whole(path, sizeof head, &size))) return NVRTC_ERROR_INTERNAL_ERROR;
    head.bytes = size;
    memcpy(p->image, &head, sizeof head);
    p->size = sizeof head + size;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int count, const char *const *options)
{
    (void)count, (void)options;
    char folder[256];
    if (!new_folder(folder, sizeof folder)) return NVRTC_ERROR_INTERNAL_ERROR;
    nvrtcResult r = compile(p, folder);
    if (!remove_folder(folder)) return NVRTC_ERROR_INTERNAL_ERROR;
    return r;
}

/* ---- Results ---- */

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *size)
{
    return *size = p->log ? strlen(p->log) + 1 : 1, NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log)
{
    return strcpy(log, p->log ? p->log : ""), NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *size) { return *size = p->size, NVRTC_SUCCESS; }
nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *out)
{
    if (!p->image) return NVRTC_ERROR_INVALID_PROGRAM;
    return memcpy(out, p->image, p->size), NVRTC_SUCCESS;
}
