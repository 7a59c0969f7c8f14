/*
 * events.c -- who is told what happens: one function of the caller's, and trace.c.
 *
 * A call counts itself in before it reads the listener, and a new listener waits until all of those who may
 * have read the old one have counted themselves out. The count is of this process: a child of fork() has no
 * such calls.
 */
#include "jit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

struct listener {
    void (*fn)(void *context, const coda_event *event);
    void *context;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of those who set it */
static struct listener listener;
static atomic_uint wanted;    /* kinds; 0: nobody listens */
static _Atomic uint64_t told; /* the process's id, and calls under way */

static uint64_t calls(uint64_t state) { return state >> 32 == (uint32_t)getpid() ? (uint32_t)state : 0; }

static void count(int more)
{
    uint64_t old = atomic_load(&told), new;
    do new = (uint64_t)getpid() << 32 | (uint32_t)(calls(old) + (uint64_t)more);
    while (!atomic_compare_exchange_weak(&told, &old, new));
}

void jit_listen(void (*fn)(void *context, const coda_event *event), void *context, unsigned kinds)
{
    enum { STEP_US = 50 };
    pthread_mutex_lock(&lock);
    atomic_store(&wanted, 0);
    while (calls(atomic_load(&told))) usleep(STEP_US);
    listener = (struct listener){fn, context};
    atomic_store(&wanted, fn ? kinds : 0);
    pthread_mutex_unlock(&lock);
}

/* What takes time; NULL: it is a moment. */
static const char *word_of(coda_event_kind kind)
{
    switch (kind) {
    case CODA_EVENT_COMPILE_END: return "compile";
    case CODA_EVENT_LOAD: return "load";
    case CODA_EVENT_TUNE: return "tune";
    case CODA_EVENT_PLAN: return "coda_compile";
    default: return NULL;
    }
}

static void tell(coda_event_kind kind, const char *name, const char *text, double ms)
{
    if (!(atomic_load_explicit(&wanted, memory_order_relaxed) & kind)) return;
    const coda_event e = {
        .size = sizeof e, .kind = kind, .name = name ? name : "", .text = text ? text : "", .ms = ms};
    count(1);
    if (atomic_load(&wanted) & kind) listener.fn(listener.context, &e);
    count(-1);
}

void jit_tell_unwritten(enum jit_file file, const char *why)
{
    static const char *const variable[] = {"CODA_TRACE", "CODA_DUMP"}; /* ORDER jit_file */
    static atomic_uint told_of;
    if (!(atomic_load_explicit(&wanted, memory_order_relaxed) & CODA_EVENT_UNWRITTEN)) return;
    if (!(atomic_fetch_or(&told_of, 1u << file) >> file & 1))
        tell(CODA_EVENT_UNWRITTEN, variable[file], why, 0);
}

void jit_tell(coda_event_kind kind, const char *name, const char *text, double ms)
{
    const char *word = word_of(kind), *problem = word ? jit_trace_problem() : NULL;
    if (word && jit_traces()) jit_trace(word, name, jit_milliseconds() - ms, ms);
    if (problem) jit_tell_unwritten(JIT_FILE_TRACE, problem);
    tell(kind, name, text, ms);
}

double jit_milliseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}
