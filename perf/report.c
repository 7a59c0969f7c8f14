/*
 * report.c -- results as JSON: what was measured on, then one line for each case.
 *
 *     {"name": ..., "date": ..., "clocks": {...}, "info": {...}, "cases": [
 *     {"case": ..., ...},
 *     ...
 *     ]}
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "bench.h"

/* Any bytes give valid JSON: beyond ASCII they go in as Latin-1. */
static void put_string(FILE *f, const char *s)
{
    putc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fprintf(f, "\\%c", *s);
        else if (*s >= ' ' && *s < 0x7f) putc(*s, f);
        else fprintf(f, "\\u%04x", (unsigned char)*s);
    }
    putc('"', f);
}

static void put_pair(FILE *f, const char *key, const char *value, bool more)
{
    put_string(f, key);
    fputs(": ", f);
    put_string(f, value);
    if (more) fputs(", ", f);
}

/* Clocks in MHz, power in W and temperature as nvidia-smi gives them; nothing without it. */
static void put_clocks(FILE *f)
{
    static const char query[] = "nvidia-smi -i 0 --format=csv,noheader --query-gpu=clocks.sm,clocks.mem,"
                                "clocks.max.sm,power.draw,power.limit,temperature.gpu 2>/dev/null";
    static const char *const key[] = {"sm", "memory", "sm_max", "power", "power_limit", "celsius"};
    char line[256] = "";
    FILE *p = popen(query, "r");
    if (p && !fgets(line, sizeof line, p)) line[0] = 0;
    if (p) pclose(p);
    fputs("\"clocks\": {", f);
    char *value = strtok(line, ",\n");
    for (int i = 0; i < 6 && value; i++, value = strtok(NULL, ",\n")) {
        if (i) fputs(", ", f);
        put_pair(f, key[i], value + strspn(value, " "), false);
    }
    fputs("},\n", f);
}

/* The lines of coda_info_print(), without the places of files. */
static void put_info(FILE *f)
{
    char info[4096] = "";
    coda_info_print(info, sizeof info);
    fputs("\"info\": {", f);
    int n = 0;
    for (char *line = strtok(info, "\n"); line; line = strtok(NULL, "\n")) {
        char *colon = strchr(line, ':');
        if (!colon || !strncmp(line, "cache", 5)) continue;
        *colon = 0;
        char *path = strstr(colon + 1, " /");
        if (path) *path = 0;
        if (n++) fputs(", ", f);
        put_pair(f, line, colon + 1 + strspn(colon + 1, " "), false);
    }
    fputs("},\n", f);
}

/* The card's name as a folder has it: the first word with a digit, in lower case. "cpu" without a card. */
static void card_name(char *to, size_t size)
{
    char info[4096] = "";
    coda_info_print(info, sizeof info);
    char *line = strstr(info, "device: "), *word = line ? strtok(line + 8, " ,\n") : NULL;
    while (word && !strpbrk(word, "0123456789")) word = strtok(NULL, " ,\n");
    snprintf(to, size, "%s", word && strstr(line + 8, "NVIDIA") ? word : "cpu");
    for (; *to; to++) *to = (char)tolower((unsigned char)*to);
}

void report_path(char *to, size_t size, const char *name)
{
    char card[64];
    card_name(card, sizeof card);
    int folder = snprintf(to, size, "perf/results/%s", card);
    mkdir(to, 0777);
    snprintf(to + folder, size - (size_t)folder, "/%s.json", name);
}

void report_begin(struct report *r, const char *name, const char *path)
{
    char file[256], date[32];
    time_t now = time(NULL);
    if (path && (!*path || strpbrk(path, "/."))) snprintf(file, sizeof file, "%s", path);
    else report_path(file, sizeof file, path ? path : name);
    r->cases = 0;
    r->json = fopen(file, "w");
    if (!r->json) {
        perror(file);
        exit(1);
    }
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    fputs("{", r->json);
    put_pair(r->json, "name", name, true);
    put_pair(r->json, "date", date, false);
    fputs(",\n", r->json);
    put_clocks(r->json);
    put_info(r->json);
    fputs("\"cases\": [", r->json);
}

void report_case(struct report *r, const char *name)
{
    fputs(r->cases++ ? ",\n{" : "\n{", r->json);
    put_pair(r->json, "case", name, false);
}

void report_end_case(struct report *r)
{
    fputs("}", r->json);
    fflush(r->json);
}

int report_end(struct report *r)
{
    fputs("\n]}\n", r->json);
    return fclose(r->json);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}
