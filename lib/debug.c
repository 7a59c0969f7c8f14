/* debug.c -- what CODA_DEBUG and CODA_DUMP ask for, read once. The only place that prints. */
#include "base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ORDER debug_topic */
static const char *const topic_name[] = {"graph", "rewrite", "plan", "source", "cache", "launch"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned topics;
static char dump_dir[3072];
static atomic_int dumped;

static void read_environment(void)
{
    const char *words = getenv("CODA_DEBUG"), *dir = getenv("CODA_DUMP");
    for (int i = 0; words && i < ARRAY_SIZE(topic_name); i++) {
        size_t n = strlen(topic_name[i]);
        for (const char *w = words; (w = strstr(w, topic_name[i])); w += n)
            if ((w == words || w[-1] == ',') && (w[n] == 0 || w[n] == ',')) topics |= 1u << i;
    }
    if (dir && strlen(dir) < sizeof dump_dir) strcpy(dump_dir, dir);
}

bool debug_on(enum debug_topic topic)
{
    pthread_once(&once, read_environment);
    return topics >> topic & 1;
}

static void dump(const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%02d-%s", dump_dir, atomic_fetch_add(&dumped, 1), name);
    FILE *f = fopen(path, "w");
    if (!f) return;
    fputs(text, f);
    fclose(f);
}

void debug_line(enum debug_topic topic, const char *line)
{
    if (debug_on(topic)) fprintf(stderr, "coda %s: %s\n", topic_name[topic], line);
}

void debug_stage(enum debug_topic topic, const char *name, const char *text)
{
    if (debug_on(topic)) fprintf(stderr, "---- %s\n%s", name, text);
    if (dump_dir[0]) dump(name, text);
}
