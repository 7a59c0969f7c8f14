/*
 * isolate.c -- NVRTC in a child process, which may crash, hang or eat memory as it likes.
 *
 *     request ::= "coda job" version by symbol arch text ( name text )*      each a string
 *     answer  ::= "coda job" version status passing bytes                    payload or error
 *     string  ::= size:u64 bytes
 *
 * Both are files in memory, the child's standard input and output: nobody waits for a pipe, and no signal
 * comes of a child that is gone. The request carries all sources, so that the two need not be of one
 * build; the child refuses if its NVRTC is not the one in the key. The helper is the tool `coda`, or any
 * program that calls coda_compile_worker().
 *
 * A crash or a hang is an error of that kernel, kept in memory unless the child was ended from outside. A
 * child that cannot be started, or refuses, is none: the text is then compiled here. What the child has
 * written tells these apart, for its status may be lost: a program that ignores SIGCHLD gets none, and one
 * that waits for any child takes it.
 */
#include "compile.h"
#include "library.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char title[] = "coda job";
enum { VERSION = 1, COMPILE_MS = 120000, REFUSED = 3, LOST = -1, MOST_FILES = 4096, MESSAGE_MAX = 1 << 29 };

/* ---- Messages ---- */

static void put_bytes(FILE *f, const void *data, size_t size)
{
    uint64_t n = size;
    fwrite(&n, sizeof n, 1, f);
    fwrite(data, 1, size, f);
}

static void put_string(FILE *f, const char *s) { put_bytes(f, s, strlen(s) + 1); }

struct message {
    char *block;
    size_t at, size;
};

/* The next string of a message; NULL if there is none. */
static const char *next_bytes(struct message *m, size_t *size)
{
    uint64_t n;
    if (m->size - m->at < sizeof n) return NULL;
    memcpy(&n, m->block + m->at, sizeof n);
    if (n > m->size - m->at - sizeof n) return NULL;
    const char *p = m->block + m->at + sizeof n;
    m->at += sizeof n + n;
    *size = (size_t)n;
    return p;
}

static const char *next_string(struct message *m)
{
    size_t size;
    const char *s = next_bytes(m, &size);
    return s && size && !s[size - 1] ? s : NULL;
}

static bool begins_well(struct message *m)
{
    const char *name = next_string(m), *version = next_string(m);
    return name && version && !strcmp(name, title) && atoi(version) == VERSION;
}

static void put_beginning(FILE *f)
{
    char version[16];
    snprintf(version, sizeof version, "%d", VERSION);
    put_string(f, title);
    put_string(f, version);
}

/* The whole file of a descriptor, wherever it stands. */
static bool take_message(struct message *m, int fd)
{
    struct stat st;
    *m = (struct message){0};
    if (fstat(fd, &st) || st.st_size <= 0 || st.st_size > MESSAGE_MAX) return false;
    if (!(m->block = malloc((size_t)st.st_size))) return false;
    while (m->size < (size_t)st.st_size) {
        ssize_t n = pread(fd, m->block + m->size, (size_t)st.st_size - m->size, (off_t)m->size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        m->size += (size_t)n;
    }
    return true;
}

/* A message is put together in memory, and written at once. */
struct draft {
    FILE *f;
    char *text;
    size_t size;
};

static bool draft_open(struct draft *d)
{
    *d = (struct draft){0};
    return (d->f = open_memstream(&d->text, &d->size));
}

/* False if not all of it could be written. */
static bool draft_send(struct draft *d, int fd)
{
    bool good = !ferror(d->f);
    good = !fclose(d->f) && good && fd_write(fd, d->text, d->size);
    free(d->text);
    return good;
}

/* ---- The child ---- */

static coda_status read_request(struct compile_job *j, struct message *m, const char **lists, char *err)
{
    const char *name, *text, *by = begins_well(m) ? next_string(m) : NULL;
    j->symbol = next_string(m);
    j->arch = next_string(m);
    j->text = next_string(m);
    if (!by || !j->symbol || !j->arch || !j->text) return jit_fail(err, CODA_E_INVALID, "no job");
    if (!(j->nvrtc = nvrtc_open(err))) return CODA_E_DEVICE;
    j->nvrtc->nvrtcVersion(&j->major, &j->minor);
    char *own = key_print_by(j->major, j->minor, nvrtc_build_id());
    bool same = own && !strcmp(own, by);
    free(own);
    if (!same) return jit_fail(err, CODA_E_DEVICE, "another NVRTC");
    while (j->count < MOST_FILES && (name = next_string(m)) && (text = next_string(m))) {
        lists[j->count] = name;
        lists[MOST_FILES + j->count++] = text;
    }
    j->names = lists;
    j->texts = lists + MOST_FILES;
    return CODA_OK;
}

/* Before the compiler runs: from now on the end of this process is the compiler's. */
static bool begin(int out)
{
    struct draft d;
    if (!draft_open(&d)) return false;
    put_beginning(d.f);
    return draft_send(&d, out);
}

/* What cannot be written to its end (RLIMIT_FSIZE counts here, too) takes the beginning back with it: it
 * is not the compiler that failed, and the parent compiles by itself. */
static bool answer(int out, coda_status status, bool passing, const void *data, size_t size)
{
    char number[16];
    struct draft d;
    bool good = draft_open(&d);
    if (good) {
        snprintf(number, sizeof number, "%d", (int)status);
        put_string(d.f, number);
        put_string(d.f, passing ? "1" : "0");
        put_bytes(d.f, data, size);
        good = draft_send(&d, out);
    }
    if (!good && ftruncate(out, 0)) return false;
    return good;
}

/* 0: the answer stands in `out`. */
int jit_worker(int in, int out)
{
    static const char *lists[2 * MOST_FILES];
    struct message m;
    struct compile_job j = {0};
    char err[JIT_ERROR_SIZE] = "";
    void *data = NULL;
    size_t size = 0;
    bool passing = true;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!take_message(&m, in) || read_request(&j, &m, lists, err) || !begin(out)) return REFUSED;
    coda_status status = compile_payload(&data, &size, &j, err, &passing);
    return answer(out, status, passing, status ? err : data, status ? strlen(err) + 1 : size) ? 0 : REFUSED;
}

/* ---- The parent ---- */

static int64_t milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool is_program(const char *path) { return !access(path, X_OK); }

/* A program by its name in the folders of the PATH, without those that depend on the current directory. */
static bool find_on_path(char *path, size_t size, const char *name)
{
    const char *list = environment("PATH");
    if (!list && !environment_is_foreign()) list = "/usr/bin:/bin";
    for (; list && *list; list += *list == ':') {
        size_t n = strcspn(list, ":");
        int length = snprintf(path, size, "%.*s/%s", (int)n, list, name);
        if (*list == '/' && length < (int)size && is_program(path)) return true;
        list += n;
    }
    return false;
}

/* `coda` beside the library, or where an installation has it; else by PATH. Neither counts in a setuid
 * program, whose caller may have chosen both. */
static bool find_helper(char *path, size_t size)
{
    static const char *const places[] = {"coda", "../bin/coda"};
    char file[PATH_MAX];
    bool known = !environment_is_foreign() &&
                 library_file_of((const void *)(uintptr_t)isolate_payload, file, sizeof file);
    for (int i = 0; known && i < 2; i++) {
        int n = snprintf(path, size, "%.*s/%s", (int)(strrchr(file, '/') - file), file, places[i]);
        if (n < (int)size && is_program(path)) return true;
    }
    return find_on_path(path, size, "coda");
}

/* The one that the options name, or find_helper's. */
static bool choose_helper(char *path, size_t size, const char *named)
{
    if (!named) return find_helper(path, size);
    if (!strchr(named, '/')) return find_on_path(path, size, named);
    return snprintf(path, size, "%s", named) < (int)size;
}

static pid_t start(struct coda_cache *c, int request, int reply)
{
    char path[PATH_MAX];
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none;
    pid_t child;
    if (!choose_helper(path, sizeof path, cache_helper(c))) return -1;
    char *args[] = {path, (char *)"worker", NULL};
    if (posix_spawn_file_actions_init(&files)) return -1;
    posix_spawnattr_init(&how);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP); /* ^C is not for it */
    int error = posix_spawn_file_actions_adddup2(&files, request, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(&files, reply, 1);
    if (!error) error = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    if (!error) error = posix_spawn(&child, path, &files, &how, args, environment_of_child());
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return error ? -1 : child;
}

/* The child's status or LOST, after at most so many milliseconds; then it is killed, and *late is true. */
static int await(pid_t child, int64_t limit, bool *late)
{
    int64_t deadline = milliseconds() + limit;
    long nap = 200000;
    int status = 0;
    *late = false;
    for (pid_t r; (r = waitpid(child, &status, WNOHANG)) != child;) {
        if (r < 0 && errno != EINTR) return LOST;
        if (!*late && milliseconds() > deadline) *late = !kill(child, SIGKILL);
        nanosleep(&(struct timespec){0, nap}, NULL);
        if (nap < 5000000) nap *= 2;
    }
    return status;
}

static bool ask(const struct compile_job *j, int request)
{
    char *by = key_print_by(j->major, j->minor, nvrtc_build_id());
    struct draft d;
    bool good = by && draft_open(&d);
    if (good) {
        put_beginning(d.f);
        put_string(d.f, by);
        put_string(d.f, j->symbol);
        put_string(d.f, j->arch);
        put_string(d.f, j->text);
        for (int i = 0; i < j->count; i++) {
            put_string(d.f, j->names[i]);
            put_string(d.f, j->texts[i]);
        }
        good = draft_send(&d, request);
    }
    free(by);
    return good && !lseek(request, 0, SEEK_SET);
}

/* False if it is no answer. */
static bool read_answer(void **data, size_t *size, int reply, coda_status *status, char *err, bool *passing)
{
    struct message m;
    bool good = take_message(&m, reply) && begins_well(&m);
    const char *number = good ? next_string(&m) : NULL, *flag = number ? next_string(&m) : NULL;
    const char *bytes = flag ? next_bytes(&m, size) : NULL;
    struct jit_cubin cubin;
    good = bytes && (atoi(number) || payload_read(&cubin, bytes, *size));
    if (good) {
        *status = (coda_status)atoi(number);
        *passing = *flag == '1';
        if (*status) jit_fail(err, *status, "%.*s", (int)*size, bytes);
        else if ((*data = malloc(*size))) memcpy(*data, bytes, *size);
        else {
            *status = jit_fail(err, CODA_E_MEMORY, "out of memory for a cubin of %zu bytes", *size);
            *passing = true;
        }
    }
    free(m.block);
    return good;
}

static bool has_begun(int reply)
{
    struct message m;
    bool begun = take_message(&m, reply) && begins_well(&m);
    free(m.block);
    return begun;
}

/* Judges a child that gave no answer. False if it never came to the compiler. */
static bool judge(const struct compile_job *j, struct coda_cache *c, int ended, bool late, bool begun,
                  coda_status *status, char *err, bool *passing)
{
    int limit = cache_compile_ms(c) ? cache_compile_ms(c) : COMPILE_MS;
    int signal = ended != LOST && WIFSIGNALED(ended) ? WTERMSIG(ended) : 0;
    if (!late && !signal && !begun) return false;
    stats_add(cache_stats(c), late ? COUNT_isolate_timeouts : COUNT_isolate_crashes, 1);
    *passing = !late && (!signal || signal == SIGKILL || signal == SIGTERM);
    if (late)
        *status = jit_fail(err, CODA_E_COMPILE, "%s: the compiler took more than %d ms", j->symbol, limit);
    else if (signal)
        *status = jit_fail(err, CODA_E_COMPILE, "%s: the compiler was ended by signal %d, %s", j->symbol,
                           signal, strsignal(signal));
    else *status = jit_fail(err, CODA_E_COMPILE, "%s: the compiler ended without an answer", j->symbol);
    return true;
}

/* True if there is an end of some kind in *status. */
static bool run(void **data, size_t *size, const struct compile_job *j, struct coda_cache *c, int request,
                int reply, coda_status *status, char *err, bool *passing)
{
    bool late;
    if (!ask(j, request)) return false;
    pid_t child = start(c, request, reply);
    if (child < 0) return false;
    int ended = await(child, cache_compile_ms(c) ? cache_compile_ms(c) : COMPILE_MS, &late);
    if ((ended == LOST || ended == 0) && read_answer(data, size, reply, status, err, passing)) return true;
    return judge(j, c, ended, late, has_begun(reply), status, err, passing);
}

bool isolate_payload(void **data, size_t *size, const struct compile_job *j, struct coda_cache *c,
                     coda_status *status, char *err, bool *passing)
{
    int request = fd_raise(memfd_create("coda-request", MFD_CLOEXEC));
    int reply = fd_raise(memfd_create("coda-answer", MFD_CLOEXEC));
    bool done = request >= 0 && reply >= 0 && run(data, size, j, c, request, reply, status, err, passing);
    if (request >= 0) close(request);
    if (reply >= 0) close(reply);
    stats_add(cache_stats(c), done ? COUNT_isolated : COUNT_isolate_unavailable, 1);
    return done;
}
