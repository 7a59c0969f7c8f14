/*
 * options.c -- reads the command lines of embed.c and generate.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "plain.h"
#include "usage.h"

static bool number(const char *text, int *out)
{
    char *end;
    long n = text ? strtol(text, &end, 10) : 0;
    *out = (int)n;
    return n > 0 && n < 1 << 30 && !*end;
}

/* least < x <= most, or x = least if that `counts`. */
static bool real(const char *text, double least, bool counts, double most, double *out)
{
    char *end;
    *out = text ? plain_number(text, &end) : 0;
    return text && end != text && !*end && *out <= most && (*out > least || (counts && *out == least));
}

static bool seed(const char *text, uint64_t *out)
{
    char *end;
    if (!text || !strchr("0123456789", *text) || !*text) return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !*end && !errno;
}

bool options_dtype(const char *word, coda_dtype *out)
{
    static const struct {
        const char *name;
        coda_dtype is;
    } all[] = {{"f32", CODA_F32}, {"f16", CODA_F16}, {"bf16", CODA_BF16}};
    for (size_t i = 0; word && i < sizeof all / sizeof *all; i++)
        if (!strcmp(word, all[i].name)) return *out = all[i].is, true;
    return false;
}

/* An option that stands for itself. */
static bool word(struct options *o, const char *arg)
{
    if (!strcmp(arg, "--cpu")) return o->open.device = CODA_DEVICE_CPU, true;
    if (!strcmp(arg, "--ids")) return o->ids = true;
    if (!strcmp(arg, "--first")) return o->first = true;
    if (!strcmp(arg, "--logprobs")) return o->logprobs = true;
    if (!strcmp(arg, "--plan")) return o->plan = true;
    if (!strcmp(arg, "--chat")) return o->chat = true;
    if (!strcmp(arg, "--times")) return o->times = true;
    if (!strcmp(arg, "--random")) return o->ids = o->open.random = true;
    if (!strcmp(arg, "--gpu")) return o->open.device = CODA_DEVICE_GPU, true;
    return false;
}

/* An option that wants a value. */
static bool pair(struct options *o, const char *arg, const char *value)
{
    if (!strcmp(arg, "--dtype")) return options_dtype(value, &o->open.dtype);
    if (!strcmp(arg, "--tokens")) return number(value, &o->tokens);
    if (!strcmp(arg, "--context")) return number(value, &o->open.context);
    if (!strcmp(arg, "--ranks")) return number(value, &o->open.ranks) && o->open.ranks <= MOST_RANKS;
    if (!strcmp(arg, "--burst")) return number(value, &o->burst) && o->burst <= 1024;
    if (!strcmp(arg, "--temperature")) return real(value, 0, true, 100, &o->sampling.temperature);
    if (!strcmp(arg, "--top-k")) return number(value, &o->sampling.top_k);
    if (!strcmp(arg, "--top-p")) return real(value, 0, false, 1, &o->sampling.top_p);
    if (!strcmp(arg, "--seed")) return seed(value, &o->sampling.seed);
    if (!strcmp(arg, "--weights")) return o->open.drawn = value, value && stored_draws(value);
    if (!strcmp(arg, "--adapter")) return o->open.adapter = value, value != NULL;
    if (!strcmp(arg, "--bundle")) return o->bundle = value, value != NULL;
    if (!strcmp(arg, "--bandwidth")) return real(value, 0, false, 1e6, &o->bandwidth);
    return false;
}

/* Does an option of this name want a value? */
static bool is_pair(const char *arg)
{
    static const char *const all[] = {"--dtype",   "--tokens",  "--context", "--burst",  "--temperature",
                                      "--top-k",   "--top-p",   "--seed",    "--bundle", "--bandwidth",
                                      "--weights", "--adapter", "--ranks"};
    bool found = false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) found |= !strcmp(arg, all[i]);
    return found;
}

static bool option(struct options *o, const char *arg, const char *value)
{
    if (word(o, arg) || pair(o, arg, value)) return true;
    if (!is_pair(arg)) return fault_set(&o->wrong, "there is no option %s", arg);
    if (!value) return fault_set(&o->wrong, "%s needs a value", arg);
    return fault_set(&o->wrong, "%s cannot be \"%s\"", arg, value);
}

bool options_read(struct options *o, int argc, char **argv)
{
    o->open.device = CODA_DEVICE_NONE;
    o->sampling.top_p = 1;
    o->burst = 16;
    if (usage_asked(argv, o->usage)) return o->model = NULL, false;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' || argv[i][1] != '-') {
            if (o->prompt) return fault_set(&o->wrong, "\"%s\" is one argument too many", argv[i]);
            *(o->model ? &o->prompt : &o->model) = argv[i];
        } else {
            if (!option(o, argv[i], i + 1 < argc ? argv[i + 1] : NULL)) return false;
            i += is_pair(argv[i]);
        }
    }
    if (o->open.drawn && !o->open.random) return fault_set(&o->wrong, "--weights is for --random");
    o->bandwidth *= 1e9;
    o->open.seed = o->sampling.seed;
    return o->model || fault_set(&o->wrong, "there is no MODEL");
}
