/* thread.c -- how the library's threads are started. */
#include "jit.h"

#include <signal.h>

bool jit_start_thread(pthread_t *thread, void *(*fn)(void *), void *ctx)
{
    enum { STACK = 8 << 20 };
    pthread_attr_t attr;
    sigset_t all, before;
    if (pthread_attr_init(&attr)) return false;
    sigfillset(&all), sigdelset(&all, SIGSEGV), sigdelset(&all, SIGBUS), sigdelset(&all, SIGFPE);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool good = !pthread_attr_setstacksize(&attr, STACK) && !pthread_create(thread, &attr, fn, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return good;
}
