/*
 * gpu_main.c -- runs the GPU tests and writes the stamp that says so.
 *
 *     gpu_tests [--stamp FILE --digest HEX] [NAME...]
 *
 * A file test/gpu_NAME.c defines int gpu_NAME(void); nothing else is registered: gpu_list.h is made
 * from the file names. With names, only those tests run, and no stamp is written.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coda.h"
#include "gpu_case.h"

#define GPU_TEST(name) int gpu_##name(void);
#include "gpu_list.h"
#undef GPU_TEST

static const struct {
    const char *name;
    int (*run)(void);
} tests[] = {
#define GPU_TEST(name) {#name, gpu_##name},
#include "gpu_list.h"
#undef GPU_TEST
    {NULL, NULL}};

static int passed, failed;

int gpu_case(bool good, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%s %s: ", good ? "ok    " : "FAILED", name);
    vprintf(format, args);
    putchar('\n');
    fflush(stdout);
    va_end(args);
    passed += good;
    failed += !good;
    return !good;
}

static bool chosen(const char *name, char **names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return n == 0;
}

/* Copies the lines of coda_info_print that name the hardware and its software. */
static void write_machine(FILE *f)
{
    char info[4096] = "";
    coda_info_print(info, sizeof info);
    for (char *line = strtok(info, "\n"); line; line = strtok(NULL, "\n"))
        if (!strncmp(line, "device:", 7) || !strncmp(line, "driver:", 7) || !strncmp(line, "nvrtc:", 6))
            fprintf(f, "%s\n", line);
}

static int write_stamp(const char *path, const char *digest)
{
    char date[32];
    time_t now = time(NULL);
    FILE *f = fopen(path, "w");
    if (!f) return perror(path), -1;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    fprintf(f, "digest: %s\n", digest);
    write_machine(f);
    fprintf(f, "date: %s\npassed: %d\nfailed: %d\n", date, passed, failed);
    return fclose(f);
}

int main(int argc, char **argv)
{
    const char *stamp = NULL, *digest = "";
    int first = 1;
    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        if (strcmp(argv[first], "--stamp") == 0) stamp = argv[first + 1];
        if (strcmp(argv[first], "--digest") == 0) digest = argv[first + 1];
    }
    for (int i = 0; tests[i].name; i++) {
        if (!chosen(tests[i].name, argv + first, argc - first)) continue;
        int before = failed, count = passed + failed, failures = tests[i].run();
        if (failures > failed - before || passed + failed == count)
            gpu_case(false, tests[i].name, "%d failures outside of any case", failures);
    }
    printf("%d passed, %d failed\n", passed, failed);
    if (stamp && first == argc && write_stamp(stamp, digest) != 0) return EXIT_FAILURE;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
