/*
 * nvrtc.c -- the functions of NVRTC that libcoda uses, over no compiler: see fake.h.
 *
 * It counts on the board, takes the time that the board says, and fails, crashes or hangs as told.
 */
#include "fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_abi.h"

struct _nvrtcProgram {
    char *text, *name;
    uint64_t headers;
    struct fake_image *image;
    char log[256];
};

static int version(void)
{
    const char *own = getenv("FAKE_NVRTC"); /* of this process alone */
    int v = own ? atoi(own) : atomic_load(&fake_board()->version);
    return v ? v : 13000;
}

static int compile_us(const struct fake_board *b)
{
    const char *own = getenv("FAKE_COMPILE_US"); /* of this process alone */
    return own ? atoi(own) : atomic_load(&b->compile_us);
}

nvrtcResult nvrtcVersion(int *major, int *minor)
{
    *major = version() / 1000;
    *minor = version() % 1000 / 10;
    return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(nvrtcResult r)
{
    return r == NVRTC_SUCCESS               ? "NVRTC_SUCCESS"
           : r == NVRTC_ERROR_OUT_OF_MEMORY ? "NVRTC_ERROR_OUT_OF_MEMORY"
                                            : "NVRTC_ERROR_COMPILATION";
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *out, const char *text, const char *name, int headers,
                               const char *const *sources, const char *const *names)
{
    nvrtcProgram p = calloc(1, sizeof *p);
    if (!p) return NVRTC_ERROR_OUT_OF_MEMORY;
    p->text = strdup(text);
    p->name = strdup(name);
    for (int i = 0; i < headers; i++) {
        p->headers = fake_digest(p->headers, names[i], strlen(names[i]));
        p->headers = fake_digest(p->headers, sources[i], strlen(sources[i]));
    }
    *out = p;
    return p->text && p->name ? NVRTC_SUCCESS : NVRTC_ERROR_OUT_OF_MEMORY;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *p)
{
    free((*p)->text);
    free((*p)->name);
    free((*p)->image);
    free(*p);
    *p = NULL;
    return NVRTC_SUCCESS;
}

/* ---- The board ---- */

static void note_start(struct fake_board *b)
{
    int now = atomic_fetch_add(&b->running, 1) + 1, most = atomic_load(&b->most_running);
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    atomic_fetch_add(&b->aside, sigismember(&blocked, SIGTERM));
    atomic_fetch_add(&b->compiles, 1);
    while (now > most && !atomic_compare_exchange_weak(&b->most_running, &most, now)) {}
}

static void note_end(struct fake_board *b) { atomic_fetch_sub(&b->running, 1); }

static void count_text(struct fake_board *b, uint64_t digest)
{
    for (unsigned i = 0; i < FAKE_TEXTS; i++) {
        unsigned slot = (unsigned)(digest + i) % FAKE_TEXTS;
        unsigned long long was = 0;
        if (!atomic_compare_exchange_strong(&b->text[slot].digest, &was, digest) && was != digest) continue;
        atomic_fetch_add(&b->text[slot].compiles, 1);
        return;
    }
}

/* ---- Compiling ---- */

static int mode_of(struct fake_board *b, const char *text)
{
    if (atomic_load(&b->failing_compile) && atomic_fetch_sub(&b->failing_compile, 1) == 1) return FAKE_FAIL;
    if (strstr(text, FAKE_FAIL_WORD)) return FAKE_FAIL;
    if (strstr(text, FAKE_CRASH_WORD)) return FAKE_CRASH;
    if (strstr(text, FAKE_ABORT_WORD)) return FAKE_ABORT;
    if (strstr(text, FAKE_HANG_WORD)) return FAKE_HANG;
    return atomic_load(&b->mode);
}

static nvrtcResult misbehave(struct fake_board *b, nvrtcProgram p, int mode)
{
    if (mode == FAKE_GOOD) return NVRTC_SUCCESS;
    if (mode == FAKE_CRASH) signal(SIGSEGV, SIG_DFL), raise(SIGSEGV);
    if (mode == FAKE_ABORT) abort();
    while (mode == FAKE_HANG) pause();
    atomic_fetch_add(&b->failures, 1);
    if (mode == FAKE_MEMORY) return NVRTC_ERROR_OUT_OF_MEMORY;
    snprintf(p->log, sizeof p->log, "%.100s(1): error: the fake compiler was told to fail\n", p->name);
    return NVRTC_ERROR_COMPILATION;
}

/* All options in one string, and what NVRTC itself would add from the environment. */
static char *join(int count, const char *const *options)
{
    const char *before = getenv("NVRTC_PREPEND_FLAGS"), *after = getenv("NVRTC_APPEND_FLAGS");
    char *all = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&all, &size);
    if (!f) return NULL;
    fprintf(f, "%s\n", before ? before : "");
    for (int i = 0; i < count; i++) fprintf(f, "%s\n", options[i]);
    fprintf(f, "%s\n", after ? after : "");
    if (!fclose(f)) return all;
    free(all);
    return NULL;
}

static nvrtcResult make_image(struct fake_board *b, nvrtcProgram p, const char *arch, const char *options)
{
    struct fake_image i = {.version = (uint32_t)version(), .headers = p->headers};
    snprintf(i.arch, sizeof i.arch, "%s", arch);
    i.text = (uint32_t)strlen(p->text) + 1;
    i.options = (uint32_t)strlen(options) + 1;
    i.total = (uint32_t)sizeof i + i.text + i.options + 64;
    int least = atomic_load(&b->image_bytes);
    if (least > 0 && i.total < (uint32_t)least) i.total = (uint32_t)least;
    free(p->image);
    p->image = malloc(i.total);
    if (!p->image) return NVRTC_ERROR_OUT_OF_MEMORY;
    memcpy(p->image, &i, sizeof i);
    fake_image_fill(p->image, p->text, options);
    count_text(b, fake_digest(fake_digest(p->headers, p->text, i.text), options, i.options));
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int count, const char *const *options)
{
    static const char flag[] = "--gpu-architecture=";
    struct fake_board *b = fake_board();
    const char *arch = "";
    for (int i = 0; i < count; i++)
        if (!strncmp(options[i], flag, sizeof flag - 1)) arch = options[i] + sizeof flag - 1;
    char *all = join(count, options);
    if (!all) return NVRTC_ERROR_OUT_OF_MEMORY;
    note_start(b);
    fake_compile_waits(b, compile_us(b));
    nvrtcResult r = misbehave(b, p, mode_of(b, p->text));
    if (r == NVRTC_SUCCESS) r = make_image(b, p, arch, all);
    if (r == NVRTC_SUCCESS)
        snprintf(p->log, sizeof p->log, "ptxas info    : Used 42 registers, used 1 barriers\n");
    note_end(b);
    free(all);
    return r;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *size)
{
    *size = strlen(p->log) + 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log)
{
    strcpy(log, p->log);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *size)
{
    *size = p->image ? p->image->total : 0;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *out)
{
    if (!p->image) return NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(out, p->image, p->image->total);
    return NVRTC_SUCCESS;
}
