/*
 * options.c -- reads the command lines of embed.c and generate.c.
 */
#include <stdlib.h>
#include <string.h>

#include "options.h"

static bool number(const char *text, int *out)
{
    char *end;
    long n = text ? strtol(text, &end, 10) : 0;
    *out = (int)n;
    return n > 0 && n < 1 << 30 && !*end;
}

static bool dtype(const char *text, coda_dtype *out)
{
    static const struct {
        const char *name;
        coda_dtype is;
    } all[] = {{"f32", CODA_F32}, {"f16", CODA_F16}, {"bf16", CODA_BF16}};
    for (size_t i = 0; text && i < sizeof all / sizeof *all; i++)
        if (!strcmp(text, all[i].name)) return *out = all[i].is, true;
    return false;
}

/* An option that stands for itself. */
static bool word(struct options *o, const char *arg)
{
    if (!strcmp(arg, "--cpu")) return o->open.device = CODA_DEVICE_CPU, true;
    if (!strcmp(arg, "--ids")) return o->ids = true;
    if (!strcmp(arg, "--first")) return o->first = true;
    if (!strcmp(arg, "--gpu")) return o->open.device = CODA_DEVICE_GPU, true;
    return false;
}

/* An option that wants a value. */
static bool pair(struct options *o, const char *arg, const char *value)
{
    if (!strcmp(arg, "--dtype")) return dtype(value, &o->open.dtype);
    if (!strcmp(arg, "--tokens")) return number(value, &o->tokens);
    if (!strcmp(arg, "--context")) return number(value, &o->open.context);
    return false;
}

bool options_read(struct options *o, int argc, char **argv)
{
    o->open.device = CODA_DEVICE_NONE;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' || argv[i][1] != '-') {
            if (o->prompt) return false;
            *(o->model ? &o->prompt : &o->model) = argv[i];
        } else if (!word(o, argv[i])) {
            if (i + 1 == argc || !pair(o, argv[i], argv[i + 1])) return false;
            i++;
        }
    }
    return o->model != NULL;
}
