/*
 * trace.c -- $CODA_TRACE: a file that gets what happens as events of Chrome's trace format, one JSON array,
 * which chrome://tracing and Perfetto show. It is closed when the library is unloaded or the process ends. A
 * process that is killed leaves an array without its end, which they read, too. Children of fork() do not
 * write to it.
 */
#include "cache.h"
#include "jit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int file = -1;
static pid_t opener;
static bool begun;         /* an event is there */
static char problem[640];  /* the file, and why it has not got all events ... */
static atomic_bool failed; /* ... once this is set */

static void fail_with(const char *what, int error)
{
    if (atomic_load(&failed)) return;
    snprintf(problem, sizeof problem, "%.500s %s: %s", jit_environment("CODA_TRACE"), what,
             error_text(error));
    atomic_store(&failed, true);
}

/* No signal is raised if it cannot be. What has no room on the disk, or in a pipe, ends the trace. */
static void put(int fd, const char *text)
{
    if (fd_write(fd, text, strlen(text))) return;
    fail_with("cannot be written", errno);
    atomic_store(&file, -1);
}

static void open_file(void)
{
    const char *path = jit_environment("CODA_TRACE");
    if (!path) return;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) {
        fail_with("cannot be opened", errno);
        return;
    }
    opener = getpid();
    atomic_store(&file, fd);
    put(fd, "[");
}

bool jit_traces(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_file);
    return atomic_load_explicit(&file, memory_order_relaxed) >= 0;
}

const char *jit_trace_problem(void)
{
    jit_traces();
    return atomic_load(&failed) ? problem : NULL;
}

/* Within quotes; what has no room is left out. */
static void quote(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (; *text && n + 7 < size; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') out[n++] = '\\', out[n++] = *text;
        else if (c < ' ' || c > '~') n += (size_t)snprintf(out + n, size - n, "\\u%04x", c);
        else out[n++] = *text;
    }
    out[n] = 0;
}

/* A number without a point that a locale may change. */
static void print_us(char out[32], double us)
{
    long long ns = (long long)(1e3 * us);
    snprintf(out, 32, "%lld.%03lld", ns / 1000, ns % 1000);
}

void jit_trace(const char *what, const char *name, double began_ms, double ms)
{
    char line[1400], quoted[1024], at[32], took[32];
    if (!jit_traces() || opener != getpid()) return;
    quote(quoted, sizeof quoted, name);
    print_us(at, 1e3 * began_ms);
    print_us(took, 1e3 * ms);
    pthread_mutex_lock(&lock);
    int fd = atomic_load(&file);
    snprintf(
        line, sizeof line,
        "%s\n{\"name\": \"%s%s%s\", \"cat\": \"coda\", \"ph\": \"X\", \"ts\": %s, \"dur\": %s, \"pid\": %d, "
        "\"tid\": %ld}",
        begun ? "," : "", what, *quoted && *what ? " " : "", quoted, at, took, (int)getpid(),
        syscall(SYS_gettid));
    begun = true;
    if (fd >= 0) put(fd, line);
    pthread_mutex_unlock(&lock);
}

__attribute__((destructor)) static void close_file(void)
{
    if (atomic_load(&file) >= 0 && opener == getpid()) put(atomic_load(&file), "\n]\n");
    atomic_store(&file, -1);
}
