/*
 * main.c -- chat_test PROGRAM [TEST]... tests the server of chat_server.c over HTTP at
 * 127.0.0.1: by all tests, or by those that are named. `gpu` and `captures`
 * want a GPU and must be named.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "chat_test.h"

int failures, checks;

void check_that(bool holds, const char *file, int line, const char *format, ...)
{
    va_list args;
    __atomic_add_fetch(&checks, 1, __ATOMIC_RELAXED);
    if (holds) return;
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
    const char *name = strrchr(file, '/');
    printf("%s:%d: ", name ? name + 1 : file, line);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    puts("");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const char *program);
    } tests[] = {{"endpoints", test_endpoints},
                 {"batching", test_batching},
                 {"leaving", test_leaving},
                 {"pressure", test_pressure},
                 {"access", test_access},
                 {"siege", test_siege},
                 {"fuzz", test_fuzz},
                 {"load", test_load},
                 {"checkpoints", test_checkpoints},
                 {"states", test_states},
                 {"words", test_words},
                 {"logprobs", test_logprobs},
                 {"story", test_story},
                 {"ranks", test_ranks},
                 {"ranks_gpu", test_ranks_gpu},
                 {"gpu", test_gpu},
                 {"states_gpu", test_states_gpu},
                 {"captures", test_captures}};
    if (argc < 2) return fprintf(stderr, "usage: chat_test PROGRAM [TEST]...\n"), 2;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        bool wanted = argc == 2 && !strstr(tests[i].name, "gpu") && tests[i].run != test_captures;
        for (int a = 2; a < argc; a++) wanted |= !strcmp(argv[a], tests[i].name);
        if (wanted) tests[i].run(argv[1]);
    }
    printf("chat_test: %d checks, %d failures\n", checks, failures);
    return failures != 0;
}
