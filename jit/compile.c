/*
 * compile.c -- CUDA text to cubin by NVRTC, with what ptxas said about it.
 *
 *     payload ::= registers:i32 spill_bytes:i32 warning:char[160] reserved:char[24] cubin
 *
 * The facts of ptxas travel with the cubin, so that what comes from the cache knows as much as what was
 * compiled. The same text gives the same payload, byte for byte.
 *
 * Compilers recurse, and a caller's thread may have little stack: 128 KB where a C library or the shell's
 * limit says so, which NVRTC overruns. So it runs on a thread of its own.
 */
#include "compile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Spills and serialised wgmma are bugs of a template, so ptxas is asked to report each of them.
 * Without modify-stack-limit=false NVRTC would raise the limit of the whole process. */
const char *const compile_options[] = {
    "--std=c++17",
    "-default-device",
    "--modify-stack-limit=false",
    "--ptxas-options=-v",
    "--ptxas-options=--warn-on-spills",
    "--ptxas-options=--warn-on-local-memory-usage",
    NULL,
};
enum { OPTIONS = sizeof compile_options / sizeof *compile_options - 1 };

/* ---- The payload ---- */

struct facts {
    int32_t registers, spill_bytes;
    char warning[sizeof((struct jit_cubin){0}.warning)];
    char reserved[24];
};
_Static_assert(sizeof(struct facts) % 64 == 0, "the cubin after them is aligned");

bool payload_read(struct jit_cubin *out, const void *data, size_t size)
{
    struct facts f;
    if (size <= sizeof f) return false;
    memcpy(&f, data, sizeof f);
    out->image = (const char *)data + sizeof f;
    out->size = size - sizeof f;
    out->registers = f.registers;
    out->spill_bytes = f.spill_bytes;
    snprintf(out->warning, sizeof out->warning, "%.*s", (int)sizeof f.warning - 1, f.warning);
    return true;
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
static void read_log(struct facts *out, const char *log)
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

static coda_status take_payload(void **data, size_t *size, const struct compile_job *j, nvrtcProgram program,
                                const struct facts *f, char *err)
{
    const struct nvrtc *n = j->nvrtc;
    size_t cubin = 0;
    nvrtcResult r = n->nvrtcGetCUBINSize(program, &cubin);
    if (r != NVRTC_SUCCESS || !cubin)
        return jit_fail(err, CODA_E_COMPILE, "%s: NVRTC makes no cubin for %s", j->symbol, j->arch);
    char *payload = malloc(sizeof *f + cubin);
    if (!payload) return jit_fail(err, CODA_E_MEMORY, "out of memory for a cubin of %zu bytes", cubin);
    memcpy(payload, f, sizeof *f);
    if ((r = n->nvrtcGetCUBIN(program, payload + sizeof *f)) != NVRTC_SUCCESS) {
        free(payload);
        return jit_fail(err, CODA_E_COMPILE, "%s: %s", j->symbol, n->nvrtcGetErrorString(r));
    }
    *data = payload;
    *size = sizeof *f + cubin;
    return CODA_OK;
}

/* From 12.9 on NVRTC has a cache of its own in the driver's. It is off: ours makes it needless, and a
 * hit there would skip ptxas and its report. */
static nvrtcResult run_nvrtc(const struct compile_job *j, nvrtcProgram program)
{
    char arch[64];
    const char *options[OPTIONS + 2];
    int count = OPTIONS;
    memcpy(options, compile_options, OPTIONS * sizeof *options);
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", j->arch);
    options[count++] = arch;
    if (j->major > 12 || (j->major == 12 && j->minor >= 9)) options[count++] = "--no-cache";
    return j->nvrtc->nvrtcCompileProgram(program, count, options);
}

/* The text's own fault stays; a lack of memory or of NVRTC's files may pass. */
static bool may_pass(nvrtcResult r)
{
    return r != NVRTC_SUCCESS && r != NVRTC_ERROR_COMPILATION && r != NVRTC_ERROR_INVALID_OPTION;
}

static coda_status compile(void **data, size_t *size, const struct compile_job *j, char *err, bool *passing)
{
    const struct nvrtc *n = j->nvrtc;
    struct facts f = {.registers = -1, .spill_bytes = -1};
    char name[256];
    nvrtcProgram program;
    snprintf(name, sizeof name, "%s.cu", j->symbol);
    nvrtcResult r = n->nvrtcCreateProgram(&program, j->text, name, j->count, j->texts, j->names);
    if (r != NVRTC_SUCCESS) return report(n, r, j->symbol, "", err);
    r = run_nvrtc(j, program);
    char *log = take_log(n, program);
    coda_status status;
    if (!log) status = jit_fail(err, CODA_E_MEMORY, "out of memory for NVRTC's log");
    else if (r != NVRTC_SUCCESS) status = report(n, r, j->symbol, log, err);
    else {
        read_log(&f, log);
        status = take_payload(data, size, j, program, &f, err);
    }
    free(log);
    n->nvrtcDestroyProgram(&program);
    *passing = status == CODA_E_MEMORY || may_pass(r);
    return status;
}

/* ---- Its thread ---- */

struct compilation {
    void **data;
    size_t *size;
    const struct compile_job *job;
    char *err;
    bool *passing;
    coda_status status;
};

static void *run_compilation(void *ctx)
{
    struct compilation *c = ctx;
    c->status = compile(c->data, c->size, c->job, c->err, c->passing);
    return NULL;
}

/* A caller that is cancelled waits all the same: what the thread writes is the caller's. */
static void compile_with_room(struct compilation *c)
{
    pthread_t thread;
    int before;
    if (!jit_start_thread(&thread, run_compilation, c)) {
        run_compilation(c);
        return;
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_join(thread, NULL);
    pthread_setcancelstate(before, NULL);
}

coda_status compile_payload(void **data, size_t *size, const struct compile_job *j, char *err, bool *passing)
{
    struct compilation c = {.data = data, .size = size, .job = j, .err = err, .passing = passing};
    *passing = true;
    if (!process_compiles()) return jit_fail(err, CODA_E_COMPILE, "%s: the process ends", j->symbol);
    compile_with_room(&c);
    process_compiled();
    return c.status;
}
