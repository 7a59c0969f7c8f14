/*
 * debug.c -- what CODA_DEBUG and CODA_DUMP ask for, read once. The only place that prints.
 *
 * The folder of CODA_DUMP may be one that others write to, /tmp for example. So it is opened anew for each
 * file and judged, no symbolic link is followed, and a file is always a new one: its number is one above
 * the highest that is there.
 */
#include "base.h"
#include "jit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ORDER debug_topic */
static const char *const topic_name[] = {"graph", "rewrite", "plan", "source", "cache", "launch"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned topics;
static char dump_dir[3072];

/* Where the host's standard error leads may be full, or gone. */
static void write_out(struct text *t)
{
    jit_write(STDERR_FILENO, text_str(t));
    text_free(t);
}

/* Who misspells one would wait for lines that never come. */
static void say_unknown(const char *word)
{
    struct text t = {0};
    char shown[128];
    escape(shown, sizeof shown, word);
    text_printf(&t, "coda: CODA_DEBUG has no word \"%s\"; its words are", shown);
    for (int i = 0; i < ARRAY_SIZE(topic_name); i++) text_printf(&t, "%s%s", i ? "," : " ", topic_name[i]);
    text_printf(&t, "\n");
    write_out(&t);
}

static void read_topics(const char *words)
{
    for (size_t n; *words; words += n + !!words[n]) {
        char word[32];
        int i = 0;
        n = strcspn(words, ",");
        snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word), words);
        while (i < ARRAY_SIZE(topic_name) && strcmp(topic_name[i], word)) i++;
        if (i < ARRAY_SIZE(topic_name)) topics |= 1u << i;
        else if (n) say_unknown(word);
    }
}

static void read_environment(void)
{
    const char *words = jit_environment("CODA_DEBUG"), *dir = jit_environment("CODA_DUMP");
    if (words) read_topics(words);
    if (dir && strlen(dir) < sizeof dump_dir) strcpy(dump_dir, dir);
}

bool debug_on(enum debug_topic topic)
{
    pthread_once(&once, read_environment);
    return topics >> topic & 1;
}

/* ---- Dump ---- */

enum { HIGHEST = 999999 };

/* NULL if files may be made there. */
static const char *judge(const struct stat *st)
{
    if (st->st_uid != geteuid() && st->st_uid != 0) return "belongs to another user";
    if (st->st_mode & S_IWOTH && !(st->st_mode & S_ISVTX)) return "is writable by others";
    return NULL;
}

/* A descriptor of the folder, or -1 with the reason. */
static int open_folder(const char **why)
{
    struct stat st;
    int fd = open(dump_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *why = fd < 0 ? "is no folder that can be opened, or is a symbolic link" : NULL;
    if (fd >= 0) *why = fstat(fd, &st) ? "cannot be examined" : judge(&st);
    if (!*why) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* One above the highest number of a file "NN-name". */
static int next_number(int folder)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), next = 0;
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    if (!list && copy >= 0) close(copy);
    for (struct dirent *e; list && (e = readdir(list));) {
        char *end;
        long n = e->d_name[0] >= '0' && e->d_name[0] <= '9' ? strtol(e->d_name, &end, 10) : -1;
        if (n >= next && n < HIGHEST && *end == '-') next = (int)n + 1;
    }
    if (list) closedir(list);
    return next;
}

/* Where two processes take one number the second tries the next. */
static void dump_into(int folder, const char *name, const char *text)
{
    char file[256];
    int fd = -1, number = next_number(folder);
    for (int attempt = 0; attempt < 100 && fd < 0; attempt++) {
        snprintf(file, sizeof file, "%02d-%.200s", number + attempt, name);
        fd = openat(folder, file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (fd < 0 && errno != EEXIST) return;
    }
    if (fd < 0) return;
    jit_write(fd, text);
    close(fd);
}

static void tell_of_folder(const char *why)
{
    struct text t = {0};
    text_printf(&t, "%s %s", dump_dir, why);
    jit_tell_unwritten(JIT_FILE_DUMP, text_str(&t));
    text_free(&t);
}

static void dump(const char *name, const char *text)
{
    const char *why;
    int folder = open_folder(&why), error = errno;
    if (folder < 0) {
        tell_of_folder(why);
        return;
    }
    dump_into(folder, name, text);
    close(folder);
    errno = error;
}

const char *debug_dump(const char **why)
{
    pthread_once(&once, read_environment);
    int folder = dump_dir[0] ? open_folder(why) : -1;
    if (folder >= 0) close(folder);
    return dump_dir[0] ? dump_dir : NULL;
}

/* ---- Print ---- */

bool debug_shows(enum debug_topic topic) { return debug_on(topic) || dump_dir[0]; }

void debug_line(enum debug_topic topic, const char *line)
{
    struct text t = {0};
    if (!debug_on(topic)) return;
    text_printf(&t, "coda %s: %s\n", topic_name[topic], line);
    write_out(&t);
}

void debug_stage(enum debug_topic topic, const char *name, const char *text)
{
    struct text t = {0};
    if (debug_on(topic)) {
        text_printf(&t, "---- %s\n%s", name, text);
        write_out(&t);
    }
    if (dump_dir[0]) dump(name, text);
}

/* ---- For debuggers ---- */

const char *debug_show(struct text *t)
{
    static char shown[1 << 16];
    text_emit(t, shown, sizeof shown);
    text_free(t);
    return shown;
}
