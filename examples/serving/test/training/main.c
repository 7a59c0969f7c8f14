/*
 * main.c -- train_test TINY SCRATCH [TEST]... tests training on the checkpoints in the folder TINY; SCRATCH
 * is a folder for files that are made.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"
#include "train_test.h"

int failures, checks;

void check_that(bool holds, const char *file, int line, const char *format, ...)
{
    char text[1024];
    va_list args;
    checks++;
    if (holds) return;
    failures++;
    const char *name = strrchr(file, '/');
    va_start(args, format);
    plain_vline(text, sizeof text, format, args);
    va_end(args);
    printf("%s:%d: %s\n", name ? name + 1 : file, line, text);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const char *tiny, const char *scratch);
    } tests[] = {{"losses", test_losses},         {"gradients", test_gradients},
                 {"packing", test_packing},       {"accumulation", test_accumulation},
                 {"chunks", test_chunks},         {"whole", test_whole},
                 {"adapters", test_adapters},     {"optimizer", test_optimizer},
                 {"scale", test_scale},           {"schedule", test_schedule},
                 {"windows", test_windows},       {"documents", test_documents},
                 {"vocabulary", test_vocabulary}, {"saved", test_saved}};
    if (argc < 3) return fputs("usage: train_test TINY SCRATCH [TEST]...\n", stderr), 2;
    int ran = 0;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        bool named = argc == 3;
        for (int k = 3; k < argc; k++) named |= !strcmp(argv[k], tests[i].name);
        if (named) tests[i].run(argv[1], argv[2]), ran++;
    }
    printf("train_test: %d tests, %d checks, %d failures\n", ran, checks, failures);
    return failures || !ran;
}
