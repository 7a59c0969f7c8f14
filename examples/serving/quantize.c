/*
 * quantize.c -- writes a checkpoint whose products have codes of 8 or 4 bits, as other engines read it, too.
 *
 *     quantize [OPTION]... MODEL FOLDER
 *
 *     --format fp8|fp8-block|int4   f8e4m3 by row, or by 128 x 128; integers of 4 bits; fp8
 *     --group N                     columns of a scale of int4, 128 without it: 16, 32, 64, a multiple of
 *                                   128, or 0: a row
 *     --asymmetric                  int4 with a zero point for each scale
 *     --text FILE                   perplexity of this text by both checkpoints
 *     --tokens N                    of the text, at most; 8192 without it
 *     --cpu, --gpu, --dtype         where and how that is computed, as generate has them
 *
 * MODEL is the folder of a decoder in safetensors of F32, F16 or BF16. Products of its layers are quantised;
 * tables of tokens, heads, norms and biases are copied. The layout is that of compressed-tensors. FOLDER is
 * made: one that is there already is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "plain.h"
#include "quantize_parts.h"
#include "standard.h"
#include "usage.h"

static const char usage[] =
    "usage: quantize [OPTION]... MODEL FOLDER\n"
    "MODEL is the folder of a decoder in safetensors; FOLDER, which must not be there yet, gets one whose\n"
    "products are quantised.\n"
    "  --format fp8|fp8-block|int4   fp8 by row, by 128 x 128, or integers of 4 bits; fp8\n"
    "  --group N                     columns of a scale of int4: 16, 32, 64, a multiple of 128, or 0: a row; "
    "128\n"
    "  --asymmetric                  int4 with a zero point for each scale\n"
    "  --text FILE                   perplexity of this text by both checkpoints\n"
    "  --tokens N                    of the text, at most; 8192\n"
    "  --cpu, --gpu                  where that is computed; a GPU if there is one\n"
    "  --dtype f32|f16|bf16          of activations then; on a GPU the files', or f16 for f32";

struct settings {
    struct shrink shrink;
    struct model_options open;
    const char *model, *folder, *text;
    int tokens;
};

static bool whole(const char *text, int least, int *out)
{
    char *end;
    long n = text && *text ? strtol(text, &end, 10) : -1;
    *out = (int)n;
    return n >= least && n <= 1 << 24 && !*end;
}

static bool format(const char *name, enum shrink_format *out)
{
    static const char *const all[] = {"fp8", "fp8-block", "int4"};
    for (int i = 0; name && i < 3; i++)
        if (!strcmp(name, all[i])) return *out = (enum shrink_format)i, true;
    return false;
}

/* What packed weights have (coda_quant.h). */
static bool group(const char *text, int *out)
{
    return whole(text, 0, out) && (*out % 128 == 0 || *out == 16 || *out == 32 || *out == 64);
}

/* An option that stands for itself. */
static bool word(struct settings *s, const char *name)
{
    if (!strcmp(name, "--cpu")) return s->open.device = CODA_DEVICE_CPU, true;
    if (!strcmp(name, "--gpu")) return s->open.device = CODA_DEVICE_GPU, true;
    if (!strcmp(name, "--asymmetric")) return s->shrink.asymmetric = true;
    return false;
}

/* One that wants a value: what it may be, and NULL where there is no such option. */
static const char *pair(struct settings *s, const char *name, const char *value, bool *good)
{
    if (!strcmp(name, "--format")) return *good = format(value, &s->shrink.format), "fp8, fp8-block or int4";
    if (!strcmp(name, "--group"))
        return *good = group(value, &s->shrink.group), "16, 32, 64, a multiple of 128, or 0 for a row";
    if (!strcmp(name, "--text")) return *good = value, s->text = value, "a file";
    if (!strcmp(name, "--tokens")) return *good = whole(value, 2, &s->tokens), "2 to 16777216";
    if (!strcmp(name, "--dtype")) return *good = options_dtype(value, &s->open.dtype), "f32, f16 or bf16";
    return NULL;
}

/* How many arguments it takes; 0: a fault. */
static int option(struct settings *s, const char *name, const char *value, struct fault *f)
{
    bool good;
    if (word(s, name)) return 1;
    const char *may_be = pair(s, name, value, &good);
    if (!may_be) return fault_set(f, "there is no option %s", name);
    if (!value) return fault_set(f, "%s needs a value: %s", name, may_be);
    return good ? 2 : fault_set(f, "%s cannot be \"%s\": %s", name, value, may_be);
}

enum { GROUP_UNSAID = -1, GROUP_USUAL = 128 };

static bool read_settings(struct settings *s, char **argv, struct fault *f)
{
    *s = (struct settings){.shrink.group = GROUP_UNSAID, .tokens = 8192, .open.device = CODA_DEVICE_NONE};
    for (int i = 1, n; argv[i]; i += n) {
        n = 1;
        if (argv[i][0] != '-' && s->folder) return fault_set(f, "\"%s\" is one argument too many", argv[i]);
        if (argv[i][0] != '-') *(s->model ? &s->folder : &s->model) = argv[i];
        else if (!(n = option(s, argv[i], argv[i + 1], f))) return false;
    }
    bool words = s->shrink.format == SHRINK_INT4;
    if (s->shrink.asymmetric && !words) return fault_set(f, "--asymmetric is for --format int4");
    if (s->shrink.group != GROUP_UNSAID && !words) return fault_set(f, "--group is for --format int4");
    if (s->shrink.group == GROUP_UNSAID) s->shrink.group = GROUP_USUAL;
    return s->folder || fault_set(f, "MODEL and FOLDER are wanted");
}

/* A decoder whose matrices are [out, in]. */
static bool readable(const struct checkpoint *c, const struct settings *s, struct fault *f)
{
    struct config config;
    const struct family *family = NULL;
    if (checkpoint_is_gguf(s->model))
        return fault_set(f, "%s: a GGUF file; safetensors are wanted", s->model);
    if (!config_read(&config, c->config, f) || !(family = family_find(&config, f))) return false;
    if (config.quant.method) return fault_set(f, "%s: it is quantised already", s->model);
    return (!family->encoder && strcmp(config.family, "gpt2")) ||
           fault_set(f, "family %s is not supported: decoders are whose matrices are [out, in]",
                     config.family);
}

static bool judge(const struct settings *s, const int32_t *ids, int n, struct fault *f)
{
    int tokens = 0;
    double before = judge_model(s->model, &s->open, ids, n, &tokens, f), after = before;
    if (!isnan(before)) after = judge_model(s->folder, &s->open, ids, n, &tokens, f);
    if (isnan(after)) return false;
    plain_print(stdout, "perplexity of %d tokens: %.4f, before it %.4f: %+.2f %%\n", tokens, after, before,
                100 * (after / before - 1));
    return true;
}

/* The text is read first: quantising may take minutes, and it would be late to say that there is none. */
static bool run(const struct settings *s, struct fault *f)
{
    struct checkpoint c = {0};
    int32_t *ids = NULL;
    int n = 0;
    if (!checkpoint_open(&c, s->model, f)) return false;
    bool good = readable(&c, s, f);
    if (good && s->text) good = (n = judge_tokens(s->model, c.config, s->text, s->tokens, &ids, f)) > 0;
    good = good && shrink_folder(&s->shrink, &c, s->model, s->folder, stdout, f);
    checkpoint_close(&c);
    if (good && s->text) good = judge(s, ids, n, f);
    free(ids);
    return good;
}

int main(int argc, char **argv)
{
    struct settings s;
    struct fault f = {{0}};
    (void)argc;
    standard_open();
    if (usage_asked(argv, usage)) return 0;
    if (!read_settings(&s, argv, &f))
        return fprintf(stderr, "quantize: %s; see quantize --help\n", f.text), 2;
    if (run(&s, &f) && standard_written(&f)) return 0;
    return fprintf(stderr, "quantize: %s\n", f.text), 1;
}
