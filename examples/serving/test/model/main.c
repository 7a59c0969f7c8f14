/*
 * main.c -- model_test TINY SCRATCH [TEST]... tests model on the checkpoints in the folder TINY;
 * SCRATCH is a folder for files that are made. What ends in _gpu wants a GPU and runs only by name.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model_test.h"

int failures, checks;
const char *skipped = "";

void check_that(bool holds, const char *file, int line, const char *format, ...)
{
    va_list args;
    checks++;
    if (holds) return;
    failures++;
    const char *name = strrchr(file, '/');
    printf("%s:%d: ", name ? name + 1 : file, line);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    puts("");
}

double relative_error(const float *y, const float *r, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)y[i] - r[i]) * ((double)y[i] - r[i]);
        size += (double)r[i] * r[i];
    }
    return sqrt(difference / size);
}

bool golden_open(struct checkpoint *c, const char *path)
{
    struct fault f = {{0}};
    struct mapped_file map;
    *c = (struct checkpoint){0};
    bool good =
        checkpoint_map(c, path, &map, &f) && safetensors_read(c, path, &map, &f) && checkpoint_sort(c, &f);
    CHECK(good, "%s", f.text);
    if (!good) checkpoint_close(c);
    return good;
}

const void *golden_tensor(const struct checkpoint *c, const char *name, const char *type, int64_t *count)
{
    const struct stored_tensor *t = checkpoint_find(c, name);
    bool good = t && !strcmp(t->type, type);
    CHECK(good, "golden %s is missing or not %s", name, type);
    *count = good ? (int64_t)t->bytes / 4 : 0;
    return good ? t->data : NULL;
}

bool is_drawn(int n, int i)
{
    const char *seed = getenv("CODA_SEED");
    return getenv("CODA_FULL") || !seed || ((uint64_t)i + strtoull(seed, NULL, 10)) % (uint64_t)n == 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const char *tiny, const char *scratch);
    } tests[] = {{"families", test_families},
                 {"greedy", test_greedy},
                 {"sampling", test_sampling},
                 {"files", test_files},
                 {"recurrent", test_recurrent},
                 {"fuzz", test_fuzz},
                 {"templates", test_templates},
                 {"template_work", test_template_work},
                 {"template_depth", test_template_depth},
                 {"turns", test_turns},
                 {"minilm", test_minilm},
                 {"modules", test_modules},
                 {"keys", test_keys},
                 {"known", test_known},
                 {"plain", test_plain},
                 {"words", test_words},
                 {"adapters", test_adapters},
                 {"cuts", test_cuts},
                 {"ranks", test_ranks},
                 {"ranks_encoders", test_ranks_encoders},
                 {"quantised", test_quantised},
                 {"quantize", test_quantize},
                 {"rounding", test_rounding},
                 {"greedy_gpu", test_greedy_gpu},
                 {"quantised_gpu", test_quantised_gpu},
                 {"brief_gpu", test_brief_gpu}};
    if (argc < 3) return fprintf(stderr, "usage: model_test TINY SCRATCH [TEST]...\n"), 2;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        bool wanted = argc == 3 && !strstr(tests[i].name, "_gpu");
        for (int a = 3; a < argc; a++) wanted |= !strcmp(argv[a], tests[i].name);
        if (wanted) tests[i].run(argv[1], argv[2]);
    }
    printf("model_test: %d checks, %d failures%s\n", checks, failures, skipped);
    return failures != 0;
}
