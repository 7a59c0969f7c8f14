/*
 * main.c -- picture_test TINY SCRATCH [TEST]... tests picture on the networks in the folder TINY; SCRATCH is
 * a folder for files that are made. What ends in _gpu wants a GPU and runs only by name.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "picture_test.h"

int failures, checks;

const char *const tiny_kind[TINY_KINDS] = {"dit",  "dit_v", "pixart",   "pixart_sides", "sd3",
                                           "sd35", "flux",  "flux_dev", "wan",          "wan_euler"};

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

/* The path of a file of the folder, or NULL if there is none. */
static const char *file(struct tiny *t, int i, const char *name)
{
    snprintf(t->paths[i], sizeof t->paths[i], "%.3800s/%s.npy", t->folder, name);
    return access(t->paths[i], R_OK) ? NULL : t->paths[i];
}

bool tiny_options(struct tiny *t, const char *folder, const char *name)
{
    char path[4096];
    struct fault f = {{0}};
    snprintf(t->folder, sizeof t->folder, "%s/%s", folder, name);
    snprintf(path, sizeof path, "%.3800s/arguments.json", t->folder);
    json_t *a = checkpoint_object(path, &f);
    CHECK(a, "%s", f.text);
    if (!a) return false;
    int scale = strcmp(name, "dit_v") ? 8 : 1; /* which has no decoder */
    t->o = (struct picture_options){.open.device = CODA_DEVICE_CPU, .pictures = 1, .classes = {2}};
    t->o.guidance = json_number_value(json_object_get(a, "guidance"));
    t->o.steps = (int)json_integer_value(json_object_get(a, "steps"));
    t->o.frames = (int)json_integer_value(json_object_get(a, "frames"));
    t->o.height = scale * (int)json_integer_value(json_object_get(a, "height"));
    t->o.width = scale * (int)json_integer_value(json_object_get(a, "width"));
    t->o.text = file(t, 0, "text");
    t->o.pooled = file(t, 1, "pooled");
    t->o.negative = file(t, 2, "negative");
    t->o.negative_pooled = file(t, 3, "negative_pooled");
    t->o.noise = file(t, 4, "noise");
    json_decref(a);
    return true;
}

float *tiny_draw(const char *folder, const struct picture_options *o, int64_t *count)
{
    struct fault f = {{0}};
    struct picture *p = picture_open(folder, o, &f);
    float *to = NULL;
    bool good = p && picture_prepare(p, &f) && picture_draw(p, &f);
    if (good) *count = picture_numbers(p) * p->shape.pictures;
    good = good && (to = malloc(sizeof *to * (size_t)*count)) && picture_latents(p, to, &f);
    CHECK(good, "%s: %s", folder, f.text);
    if (!good) free(to), to = NULL;
    picture_close(p);
    return to;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const char *tiny, const char *scratch);
    } tests[] = {{"goldens", test_goldens},
                 {"seeds", test_seeds},
                 {"parts", test_parts},
                 {"bad", test_bad},
                 {"fuzz", test_fuzz},
                 {"digits", test_digits},
                 {"goldens_gpu", test_goldens_gpu}};
    const int n = sizeof tests / sizeof *tests;
    if (argc < 3) return fprintf(stderr, "usage: picture_test TINY SCRATCH [TEST]...\n"), 2;
    for (int i = 3; i < argc; i++) {
        bool known = false;
        for (int t = 0; t < n; t++) known |= !strcmp(argv[i], tests[t].name);
        if (!known) return fprintf(stderr, "picture_test: there is no test %s\n", argv[i]), 2;
    }
    for (int t = 0; t < n; t++) {
        bool wanted = argc == 3 && !name_ends(tests[t].name, "_gpu");
        for (int i = 3; i < argc; i++) wanted |= !strcmp(argv[i], tests[t].name);
        if (wanted) tests[t].run(argv[1], argv[2]);
    }
    printf("picture_test: %d checks, %d failed\n", checks, failures);
    return failures != 0;
}
