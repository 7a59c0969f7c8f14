/*
 * compile.c -- CUDA text to cubin by NVRTC, through the cache, with what ptxas said about it.
 *
 *     payload ::= registers:i32 spill_bytes:i32 warning:char[160] cubin
 *
 * The facts of ptxas travel with the cubin, so that a hit knows as much as a compile. Failures are
 * never cached.
 */
#include "compile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "old.h"

/* Spills and serialised wgmma are bugs of a template, so ptxas is asked to report each of them.
 * Without modify-stack-limit=false NVRTC would raise the limit of the whole process. */
static const char *const base_options[] = {
    "--std=c++17",
    "-default-device",
    "--modify-stack-limit=false",
    "--ptxas-options=-v",
    "--ptxas-options=--warn-on-spills",
    "--ptxas-options=--warn-on-local-memory-usage",
    NULL,
};
enum { BASE_OPTIONS = sizeof base_options / sizeof *base_options - 1 };

static double milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

void jit_cubin_free(struct jit_cubin *c)
{
    if (!c) return;
    free(c->image);
    *c = (struct jit_cubin){0};
}

/* ---- The payload of a cache entry ---- */

struct facts {
    int32_t registers, spill_bytes;
    char warning[sizeof((struct jit_cubin){0}.warning)];
};

static bool unpack(struct jit_cubin *out, void *data, size_t size)
{
    struct facts f;
    if (size <= sizeof f) return false;
    memcpy(&f, data, sizeof f);
    memmove(data, (char *)data + sizeof f, size - sizeof f);
    out->image = data;
    out->size = size - sizeof f;
    out->registers = f.registers;
    out->spill_bytes = f.spill_bytes;
    snprintf(out->warning, sizeof out->warning, "%.*s", (int)sizeof f.warning - 1, f.warning);
    out->cached = true;
    return true;
}

static bool load(struct jit_cubin *out, struct old_cache *c, const char *key)
{
    void *data;
    size_t size;
    if (!old_get(c, key, &data, &size)) return false;
    if (unpack(out, data, size)) return true;
    free(data);
    return false;
}

static void store(struct old_cache *c, const char *key, const struct jit_cubin *b, const char *text)
{
    struct facts f = {b->registers, b->spill_bytes, ""};
    snprintf(f.warning, sizeof f.warning, "%s", b->warning);
    char *payload = malloc(sizeof f + b->size);
    if (!payload) return;
    memcpy(payload, &f, sizeof f);
    memcpy(payload + sizeof f, b->image, b->size);
    old_put(c, key, payload, sizeof f + b->size, text);
    free(payload);
}

/* ---- The log ---- */

/* Copies the line around `at`, without its end and leading blanks. */
static void copy_line(char *to, size_t size, const char *log, const char *at)
{
    while (at > log && at[-1] != '\n') at--;
    at += strspn(at, " \t");
    snprintf(to, size, "%.*s", (int)strcspn(at, "\r\n"), at);
}

/* Registers are the most of any function, spilled bytes the sum of all. */
static void read_log(struct jit_cubin *out, const char *log)
{
    int n, stores, loads;
    out->registers = out->spill_bytes = -1;
    for (const char *s = log; (s = strstr(s, ": Used ")); s++)
        if (sscanf(s, ": Used %d registers", &n) == 1 && n > out->registers) out->registers = n;
    for (const char *s = log; (s = strstr(s, " bytes stack frame, ")); s++) {
        if (sscanf(s, " bytes stack frame, %d bytes spill stores, %d", &stores, &loads) != 2) continue;
        out->spill_bytes = (out->spill_bytes < 0 ? 0 : out->spill_bytes) + stores + loads;
    }
    const char *warning = strstr(log, "(C75");
    if (warning) copy_line(out->warning, sizeof out->warning, log, warning);
}

/* Takes the program's log, or "" when there is none. NULL if memory runs out. */
static char *take_log(const struct nvrtc *n, nvrtcProgram program)
{
    size_t size = 0;
    if (n->nvrtcGetProgramLogSize(program, &size) != NVRTC_SUCCESS) size = 0;
    char *log = calloc(1, size + 1);
    if (log && size) n->nvrtcGetProgramLog(program, log);
    return log;
}

/* The first error line of the log, or NVRTC's own word for the result. */
static coda_status report(const struct nvrtc *n, nvrtcResult r, const char *symbol, const char *log,
                          char *err)
{
    char line[JIT_ERROR_SIZE];
    const char *at = strstr(log, "error");
    if (r == NVRTC_ERROR_OUT_OF_MEMORY)
        return jit_fail(err, CODA_E_MEMORY, "%s: NVRTC is out of memory", symbol);
    if (!at) return jit_fail(err, CODA_E_COMPILE, "%s: %s", symbol, n->nvrtcGetErrorString(r));
    copy_line(line, sizeof line, log, at);
    return jit_fail(err, CODA_E_COMPILE, "%s", line);
}

/* ---- NVRTC ---- */

struct job {
    const struct nvrtc *nvrtc;
    const struct sources *sources;
    int major, minor; /* of NVRTC */
    const char *symbol, *text, *arch;
};

static coda_status take_cubin(struct jit_cubin *out, const struct job *j, nvrtcProgram program, char *err)
{
    const struct nvrtc *n = j->nvrtc;
    nvrtcResult r = n->nvrtcGetCUBINSize(program, &out->size);
    if (r != NVRTC_SUCCESS || !out->size)
        return jit_fail(err, CODA_E_COMPILE, "%s: NVRTC makes no cubin for %s", j->symbol, j->arch);
    out->image = malloc(out->size);
    if (!out->image) return jit_fail(err, CODA_E_MEMORY, "out of memory for a cubin of %zu bytes", out->size);
    r = n->nvrtcGetCUBIN(program, out->image);
    if (r == NVRTC_SUCCESS) return CODA_OK;
    return jit_fail(err, CODA_E_COMPILE, "%s: %s", j->symbol, n->nvrtcGetErrorString(r));
}

/* From 12.9 on NVRTC has a cache of its own in the driver's. It is off: ours makes it needless, and a
 * hit there would skip ptxas and its report. */
static nvrtcResult run_nvrtc(const struct job *j, nvrtcProgram program)
{
    char arch[64];
    const char *options[BASE_OPTIONS + 2];
    int count = BASE_OPTIONS;
    memcpy(options, base_options, BASE_OPTIONS * sizeof *options);
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", j->arch);
    options[count++] = arch;
    if (j->major > 12 || (j->major == 12 && j->minor >= 9)) options[count++] = "--no-cache";
    return j->nvrtc->nvrtcCompileProgram(program, count, options);
}

static coda_status compile(struct jit_cubin *out, const struct job *j, char *err)
{
    const struct nvrtc *n = j->nvrtc;
    char name[256];
    nvrtcProgram program;
    snprintf(name, sizeof name, "%s.cu", j->symbol);
    nvrtcResult r = n->nvrtcCreateProgram(&program, j->text, name, j->sources->count, j->sources->texts,
                                          j->sources->names);
    if (r != NVRTC_SUCCESS) return report(n, r, j->symbol, "", err);
    r = run_nvrtc(j, program);
    char *log = take_log(n, program);
    coda_status status;
    if (!log) status = jit_fail(err, CODA_E_MEMORY, "out of memory for NVRTC's log");
    else if (r != NVRTC_SUCCESS) status = report(n, r, j->symbol, log, err);
    else {
        read_log(out, log);
        status = take_cubin(out, j, program, err);
    }
    free(log);
    n->nvrtcDestroyProgram(&program);
    return status;
}

/* ---- Both ---- */

static char *print_key(const struct job *j)
{
    return key_print(&(struct key_parts){
        .nvrtc_major = j->major,
        .nvrtc_minor = j->minor,
        .nvrtc_build = nvrtc_build_id(),
        .arch = j->arch,
        .options = base_options,
        .primitives = j->sources->digest,
        .symbol = j->symbol,
        .text = j->text,
    });
}

static coda_status compile_timed(struct jit_cubin *out, const struct job *j, char *err)
{
    double start = milliseconds();
    coda_status status = compile(out, j, err);
    out->compile_ms = milliseconds() - start;
    return status;
}

static coda_status compile_cached(struct jit_cubin *out, const struct job *j, const char *dir, char *err)
{
    char *key = print_key(j);
    struct old_cache *c = key ? old_open(dir) : NULL;
    coda_status status = CODA_OK;
    if (!key) status = jit_fail(err, CODA_E_MEMORY, "out of memory for the key of %s", j->symbol);
    else if (!load(out, c, key)) {
        status = compile_timed(out, j, err);
        if (!status) store(c, key, out, j->text);
    }
    old_close(c);
    free(key);
    return status;
}

coda_status jit_compile(struct jit_cubin *out, const char *symbol, const char *text,
                        const struct jit_options *opt, char *err)
{
    struct job j = {.symbol = symbol, .text = text, .arch = opt->arch};
    *out = (struct jit_cubin){.registers = -1, .spill_bytes = -1};
    if (!(j.nvrtc = nvrtc_open(err))) return CODA_E_DEVICE;
    if (!(j.sources = sources_open(err))) return CODA_E_MEMORY;
    j.nvrtc->nvrtcVersion(&j.major, &j.minor);
    coda_status status =
        opt->no_cache ? compile_timed(out, &j, err) : compile_cached(out, &j, opt->cache_dir, err);
    if (status) jit_cubin_free(out);
    return status;
}
