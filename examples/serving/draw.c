/*
 * draw.c -- a picture by a diffusion transformer's files: DiT, PixArt, Stable Diffusion 3 and 3.5, FLUX.1; or
 * a video, by Wan's.
 *
 *     draw [OPTION]... FOLDER
 *
 *     --cpu, --gpu              where; a GPU if there is one
 *     --dtype f32|f16|bf16      of weights and activations
 *     --class N[,N]...          of DiT: which pictures, side by side
 *     --count N                 so many of each class, or of one text
 *     --text FILE.npy           of the others: a text's embeddings [tokens, columns]
 *     --pooled FILE.npy         SD3, FLUX: the text's vector
 *     --negative FILE.npy, --negative-pooled FILE.npy     what guidance leads away from
 *     --seed N                  equal seeds draw equal pictures
 *     --noise FILE.npy          latents to begin with [channels, height, width], in place of the seed's
 *     --steps N, --guidance X   as is usual for the kind without them
 *     --size N, --size WxH      pixels; as the network was trained without it
 *     --frames N                of a video; 81 without it
 *     -o FILE.png               the picture, or where there is a decoder, a preview
 *     --zoom N                  pixels of the file for each, or for each latent
 *     --map FILE.npy            how a preview's colours are made of latents [channels + 1, 3]
 *     --latents FILE.npy        latents [pictures, channels, height, width] at the end
 *     --adapter FOLDER          an adapter of PEFT's, of low rank, beside the transformer
 *     --times                   from the program's start to the first picture, part by part
 *     --autotune                measures tiles of products first, for the cache: some seconds, once a shape
 *     --repeat N                draws N times, and says how long each took
 *     --plan                    what the plans need, instead of a picture
 *     --random                  FOLDER is the config.json of a transformer: weights and texts are random
 *
 * A step's latents and its number are states, the numbers of all steps and what they are told of time, class
 * and text are tables, so that on a GPU all steps replay one captured graph. FOLDER is as diffusers writes
 * it: of it model_index.json, transformer, scheduler and vae/config.json are read. Texts become embeddings
 * elsewhere.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npy.h"
#include "options.h"
#include "page.h"
#include "picture.h"
#include "plain.h"
#include "preview.h"
#include "progress.h"
#include "standard.h"
#include "usage.h"

struct line {
    struct picture_options draw;
    const char *folder, *png, *latents, *map;
    int zoom, repeat, count;
    bool times, plan;
    struct fault wrong;
};

static struct progress working;

/* ---- The command line ---- */

static bool whole(const char *text, int most, int *out)
{
    char *end;
    long n = text && strchr("0123456789", *text) && *text ? strtol(text, &end, 10) : -1;
    *out = (int)n;
    return n > 0 && n <= most && !*end;
}

/* 3,1,4: classes are 0 and more. */
static bool classes(struct line *l, const char *text)
{
    struct picture_options *o = &l->draw;
    for (o->pictures = 0; text && *text;) {
        char *end;
        long n = strchr("0123456789", *text) ? strtol(text, &end, 10) : -1;
        if (n < 0 || n > 1 << 20 || (*end && *end != ',') || o->pictures == MOST_PICTURES) return false;
        o->classes[o->pictures++] = (int)n;
        if (!*end) return true;
        text = end + 1;
    }
    return false;
}

static bool size(struct line *l, const char *text)
{
    char word[16], *cross;
    if (!text || strlen(text) >= sizeof word) return false;
    strcpy(word, text);
    if ((cross = strchr(word, 'x'))) *cross++ = 0;
    return whole(word, 1 << 16, &l->draw.width) && whole(cross ? cross : word, 1 << 16, &l->draw.height);
}

static bool guidance(const char *text, double *out)
{
    char *end;
    *out = text ? plain_number(text, &end) : 0;
    return text && end != text && !*end && *out >= 0 && *out <= 1000;
}

static bool seed(const char *text, uint64_t *out)
{
    char *end;
    if (!text || !*text || !strchr("0123456789", *text)) return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !*end && !errno;
}

/* An option that stands for itself. */
static bool word(struct line *l, const char *arg)
{
    struct model_options *o = &l->draw.open;
    if (!strcmp(arg, "--cpu")) return o->device = CODA_DEVICE_CPU, true;
    if (!strcmp(arg, "--gpu")) return o->device = CODA_DEVICE_GPU, true;
    if (!strcmp(arg, "--times")) return l->times = true;
    if (!strcmp(arg, "--plan")) return l->plan = o->only_plan = true;
    if (!strcmp(arg, "--random")) return o->random = true;
    if (!strcmp(arg, "--autotune")) return l->draw.tune = true;
    return false;
}

/* Where an option's file name goes; NULL: it has none. */
static const char **file(struct line *l, const char *arg)
{
    struct picture_options *o = &l->draw;
    const struct {
        const char *name, **to;
    } all[] = {{"-o", &l->png},
               {"--latents", &l->latents},
               {"--map", &l->map},
               {"--text", &o->text},
               {"--pooled", &o->pooled},
               {"--noise", &o->noise},
               {"--negative", &o->negative},
               {"--negative-pooled", &o->negative_pooled},
               {"--adapter", &o->open.adapter}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(arg, all[i].name)) return all[i].to;
    return NULL;
}

enum found { FOUND_NONE, FOUND_GOOD, FOUND_BAD };

/* An option that wants a value. */
static enum found pair(struct line *l, const char *arg, const char *value)
{
    struct picture_options *o = &l->draw;
    const char **to = file(l, arg);
    bool good;
    if (to) good = (*to = value) && *value;
    else if (!strcmp(arg, "--dtype")) good = options_dtype(value, &o->open.dtype);
    else if (!strcmp(arg, "--class")) good = classes(l, value);
    else if (!strcmp(arg, "--count")) good = whole(value, MOST_PICTURES, &l->count);
    else if (!strcmp(arg, "--seed")) good = seed(value, &o->open.seed);
    else if (!strcmp(arg, "--steps")) good = whole(value, MOST_STEPS, &o->steps);
    else if (!strcmp(arg, "--guidance")) good = guidance(value, &o->guidance);
    else if (!strcmp(arg, "--size")) good = size(l, value);
    else if (!strcmp(arg, "--frames")) good = whole(value, 1 << 12, &o->frames);
    else if (!strcmp(arg, "--zoom")) good = whole(value, 256, &l->zoom);
    else if (!strcmp(arg, "--repeat")) good = whole(value, 1000, &l->repeat);
    else return FOUND_NONE;
    return good ? FOUND_GOOD : FOUND_BAD;
}

static bool option(struct line *l, const char *arg, const char *value)
{
    switch (pair(l, arg, value)) {
    case FOUND_GOOD: return true;
    case FOUND_NONE: return fault_set(&l->wrong, "there is no option %s", arg);
    case FOUND_BAD: break;
    }
    return value ? fault_set(&l->wrong, "%s cannot be \"%s\"", arg, value)
                 : fault_set(&l->wrong, "%s needs a value", arg);
}

/* As many of each class, which lie together. */
static bool repeat_classes(struct line *l)
{
    struct picture_options *o = &l->draw;
    int n = o->pictures * l->count;
    if (n > MOST_PICTURES) return fault_set(&l->wrong, "%d pictures; %d are the most", n, MOST_PICTURES);
    for (int i = n - 1; i >= 0; i--) o->classes[i] = o->classes[i / l->count];
    o->pictures = n;
    return true;
}

static bool read_line(struct line *l, char **argv)
{
    for (int i = 1; argv[i]; i++) {
        if (argv[i][0] != '-' || !argv[i][1]) {
            if (l->folder) return fault_set(&l->wrong, "\"%s\" is one argument too many", argv[i]);
            l->folder = argv[i];
        } else if (!word(l, argv[i])) {
            if (!option(l, argv[i], argv[i + 1])) return false;
            i++;
        }
    }
    if (!l->folder) return fault_set(&l->wrong, "there is no FOLDER");
    if (!l->plan && !l->png && !l->latents && !l->times && l->repeat == 1)
        return fault_set(&l->wrong, "there is neither -o FILE.png nor --latents FILE.npy");
    return repeat_classes(l);
}

/* ---- The picture ---- */

static bool write_latents(const struct picture *p, const float *latents, const char *path, struct fault *f)
{
    coda_arg_info info = CODA_ARG_INFO_INIT;
    info.dtype = CODA_F32;
    info.rank = picture_rank(p);
    picture_dims(p, info.dims);
    info.strides[info.rank - 1] = 1;
    for (int i = info.rank - 2; i >= 0; i--) info.strides[i] = info.strides[i + 1] * info.dims[i + 1];
    const char *error = npy_write(path, &info, latents);
    return !error || fault_set(f, "%.200s %s", path, error);
}

static bool all_finite(const struct picture *p, const float *latents, struct fault *f)
{
    int64_t n = picture_numbers(p) * p->shape.pictures, odd = 0;
    for (int64_t i = 0; i < n; i++) odd += !isfinite(latents[i]);
    return !odd || fault_set(f, "%lld of %lld latents are no finite numbers", (long long)odd, (long long)n);
}

static bool write_all(struct picture *p, const struct line *l, struct fault *f)
{
    struct image image = {0};
    float *latents = malloc(sizeof *latents * (size_t)(picture_numbers(p) * p->shape.pictures));
    bool good = latents || fault_set(f, "out of memory");
    good = good && picture_latents(p, latents, f);
    if (good && l->latents) good = write_latents(p, latents, l->latents, f);
    good = good && all_finite(p, latents, f);
    if (good && l->png)
        good = preview_make(p, latents, l->map, l->zoom, &image, f) && png_write(l->png, &image, f);
    free(image.pixel);
    free(latents);
    return good;
}

static bool draw(struct picture *p, const struct line *l, struct times *times, struct fault *f)
{
    bool good = picture_prepare(p, f);
    times_end(times, "conditions");
    for (int i = 0; good && i < l->repeat; i++) {
        double began = times_now();
        progress_begin(&working, "drawing");
        good = picture_draw(p, f);
        progress_end(&working);
        double took = times_now() - began;
        if (i == 0) times_end(times, "picture");
        if (good)
            fprintf(stderr, "draw: %d picture%s in %d steps in %.4f s, %.3f ms each step\n",
                    p->shape.pictures, p->shape.pictures == 1 ? "" : "s", p->shape.steps, took,
                    1e3 * took / p->shape.steps);
    }
    if (good && l->times) times_print(stderr, "draw: the first picture", times);
    return good && write_all(p, l, f);
}

/* What cannot be written is known before all that takes long: the file if it is there, else its folder. */
static bool may_write(const char *path, struct fault *f)
{
    char folder[4096] = ".";
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!path || !access(path, W_OK)) return true;
    if (errno != ENOENT) return fault_set(f, "%.200s: %s", path, strerror(errno));
    if (slash) snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return !access(folder, W_OK) || fault_set(f, "%.200s: %s", path, strerror(errno));
}

static void print_plans(const struct picture *p)
{
    page_print(stdout, "plan of what comes before the steps", p->first, &p->m.weights);
    page_print(stdout, "plan of a step", p->step, &p->m.weights);
}

static const char usage[] =
    "usage: draw [OPTION]... FOLDER\n"
    "A picture. FOLDER is as diffusers writes it: DiT, PixArt, Stable Diffusion 3 and 3.5, FLUX.1, Wan 2.1.\n"
    "examples/serving/digits is one of 1 MB.\n"
    "  --cpu, --gpu              where; a GPU if there is one\n"
    "  --dtype f32|f16|bf16      of weights and activations; on a GPU the files', or f16 for f32\n"
    "  --class N[,N]...          of DiT: which pictures, side by side; 0\n"
    "  --count N                 so many of each\n"
    "  --text FILE.npy           of the others: a text's embeddings [tokens, columns]\n"
    "  --pooled FILE.npy         SD3, FLUX: the text's vector\n"
    "  --negative FILE.npy, --negative-pooled FILE.npy\n"
    "                            what guidance leads away from\n"
    "  --seed N                  equal seeds draw equal pictures; 0\n"
    "  --noise FILE.npy          latents to begin with, in place of those by the seed\n"
    "  --steps N                 50 of DiT and Wan, 20 of PixArt, 28 of others\n"
    "  --guidance X              4 of DiT, 4.5 of PixArt, 7 of SD3, 3.5 of FLUX, 5 of Wan; up to 1: none\n"
    "  --size N, --size WxH      pixels; as the network was trained\n"
    "  --frames N                of a video; 81\n"
    "  -o FILE.png               the picture, or where there is a decoder, a preview\n"
    "  --zoom N                  pixels of the file for each, or for each latent; 1\n"
    "  --map FILE.npy            a preview's colours by latents [channels + 1, 3]\n"
    "  --latents FILE.npy        latents at the end\n"
    "  --adapter FOLDER          an adapter of low rank, as PEFT writes it, beside the transformer\n"
    "  --times                   from the program's start to the first picture, part by part\n"
    "  --autotune                measures tiles of products first, for the cache: once a shape\n"
    "  --repeat N                draws N times, and says how long each took\n"
    "  --plan                    what the plans need, instead of a picture\n"
    "  --random                  FOLDER is the config.json of a transformer: weights and texts are random";

int main(int argc, char **argv)
{
    struct line l = {
        .draw = {.open = {.device = CODA_DEVICE_NONE, .progress = &working}, .guidance = -1, .pictures = 1},
        .zoom = 1,
        .repeat = 1,
        .count = 1};
    struct fault f = {{0}};
    struct times times;
    (void)argc;
    standard_open();
    times_start(&times);
    if (usage_asked(argv, usage)) return 0;
    if (!read_line(&l, argv)) return fprintf(stderr, "draw: %s; see draw --help\n", l.wrong.text), 2;
    if (!may_write(l.png, &f) || !may_write(l.latents, &f)) return fprintf(stderr, "draw: %s\n", f.text), 1;
    progress_begin(&working, "loading %s", l.folder);
    progress_kernels(&working, NULL, 0);
    struct picture *p = picture_open(l.folder, &l.draw, &f);
    progress_end(&working);
    bool good = p != NULL;
    if (good) {
        fprintf(stderr, "draw: %s on %s\n", p->config.name, device_name(&p->m.device));
        times_add(&times, &p->m.times);
        if (l.plan) print_plans(p);
        good = l.plan ? standard_written(&f) : draw(p, &l, &times, &f);
    }
    if (!good) fprintf(stderr, "draw: %s\n", f.text);
    picture_close(p);
    return !good;
}
