/* old_glibc.c -- functions of glibc that have another version since 2.29, each by the version that it had
 * before, so that a library which is built on a newer system starts on one of glibc 2.28. They are the
 * library's own; the versions are x86-64's.
 *
 * stat and its like were in each program until 2.33, and called what glibc exports with the number of the
 * struct's layout. libpthread and libdl were libraries of their own until 2.34: build.mk names them to the
 * linker. What is not called is dropped. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#define OLD(version, result, name, parameters, ...)                                                          \
    __asm__(".symver old_" #name ", " #name "@GLIBC_" version);                                              \
    result old_##name parameters;                                                                            \
    result name parameters;                                                                                  \
    result name parameters { return old_##name(__VA_ARGS__); }
#define STAT(version, name, parameters, ...)                                                                 \
    __asm__(".symver old_" #name ", __" #name "@GLIBC_" version);                                            \
    int old_##name parameters;

OLD("2.2.5", double, exp, (double x), x)
OLD("2.2.5", double, exp2, (double x), x)
OLD("2.2.5", double, log, (double x), x)
OLD("2.2.5", double, log2, (double x), x)
OLD("2.2.5", double, pow, (double x, double y), x, y)

OLD("2.2.5", void *, dlopen, (const char *path, int mode), path, mode)
OLD("2.2.5", void *, dlsym, (void *restrict handle, const char *restrict name), handle, name)
OLD("2.2.5", int, dlclose, (void *handle), handle)
OLD("2.2.5", char *, dlerror, (void), )
OLD("2.2.5", int, dladdr, (const void *at, Dl_info *info), at, info)

OLD("2.2.5", int, pthread_create,
    (pthread_t *restrict t, const pthread_attr_t *restrict attr, void *(*run)(void *),
     void *restrict context),
    t, attr, run, context)
OLD("2.2.5", int, pthread_join, (pthread_t t, void **result), t, result)
OLD("2.2.5", int, pthread_detach, (pthread_t t), t)
OLD("2.2.5", int, pthread_kill, (pthread_t t, int signal), t, signal)
OLD("2.2.5", int, pthread_mutex_trylock, (pthread_mutex_t * mutex), mutex)
OLD("2.2.5", int, pthread_mutex_timedlock,
    (pthread_mutex_t *restrict mutex, const struct timespec *restrict until), mutex, until)
OLD("2.2.5", int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), lock)
OLD("2.2.5", int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock), lock)
OLD("2.2.5", int, pthread_rwlock_unlock, (pthread_rwlock_t * lock), lock)
OLD("2.2.5", int, pthread_attr_setstacksize, (pthread_attr_t * attr, size_t size), attr, size)
OLD("2.2.5", int, pthread_once, (pthread_once_t * once, void (*run)(void)), once, run)
OLD("2.2.5", int, pthread_sigmask, (int how, const sigset_t *restrict set, sigset_t *restrict old), how, set,
    old)
OLD("2.3.3", int, pthread_condattr_setclock, (pthread_condattr_t * attr, clockid_t clock), attr, clock)

enum { LAYOUT = 1 };

STAT("2.2.5", xstat, (int layout, const char *path, struct stat *s))
STAT("2.2.5", lxstat, (int layout, const char *path, struct stat *s))
STAT("2.2.5", fxstat, (int layout, int fd, struct stat *s))
STAT("2.4", fxstatat, (int layout, int fd, const char *path, struct stat *s, int flags))

int stat(const char *restrict path, struct stat *restrict s) { return old_xstat(LAYOUT, path, s); }

int lstat(const char *restrict path, struct stat *restrict s) { return old_lxstat(LAYOUT, path, s); }

int fstat(int fd, struct stat *s) { return old_fxstat(LAYOUT, fd, s); }

int fstatat(int fd, const char *restrict path, struct stat *restrict s, int flags)
{
    return old_fxstatat(LAYOUT, fd, path, s, flags);
}
