/*
 * embed.c -- sentences or images become vectors of length 1, by an encoder's files: all-MiniLM-L6-v2, ViT.
 *
 *     embed [--cpu | --gpu] [--dtype f32|f16|bf16] [--ids] [--first] MODEL < lines
 *     embed [--cpu | --gpu] [--dtype f32|f16|bf16] MODEL IMAGES.npy
 *     embed [--cpu | --gpu] [--dtype f32|f16|bf16] --plan MODEL
 *     embed --ranks N ...
 *
 * Each line of standard input is a sentence, or with --ids its tokens as numbers; each line of the output its
 * vector. Of a sentence as many tokens count as sentence_bert_config.json says (max_seq_length), else
 * tokenizer_config.json (model_max_length), at most those that the model was made for; 256 if neither does.
 * A sentence's vector is the mean of its tokens' states, or with --first the state of its first token, or
 * what modules.json of sentence-transformers says: its pooling, dense layers and normalisation. MODEL is a
 * folder with config.json and model.safetensors, or a GGUF file.
 *
 * Images are floats [images, channels, side, side] or [channels, side, side], as the model's image processor
 * makes them: its pixel_values, which are scaled, less their mean and over their deviation.
 *
 * --plan prints what a run needs: memory by name, kernels. --ranks shares the model out over N GPUs, or
 * threads of the CPU device, as generate does.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lower.h"
#include "model.h"
#include "npy.h"
#include "options.h"
#include "page.h"
#include "progress.h"
#include "ranks.h"
#include "standard.h"
#include "text.h"

enum { BATCH = 64 };

static struct progress working;
static struct ranks *others; /* NULL: there is one rank */

struct batch {
    int32_t *ids[BATCH];
    int counts[BATCH], n;
};

/* What all ranks compute: vectors of sentences, or of images. */
struct told {
    const struct batch *sentences; /* NULL: images */
    enum pooling how;
    const float *pixels;
    int images;
};

static bool compute(struct model *m, const struct told *t, float *to, struct fault *f)
{
    const struct batch *b = t->sentences;
    if (!b) return model_see(m, t->pixels, t->images, to, f);
    return model_embed(m, (const int32_t *const *)b->ids, b->counts, b->n, t->how, to, f);
}

static size_t vectors_bytes(const struct model *m, const struct told *t)
{
    size_t n = t->sentences ? BATCH : (size_t)t->images;
    return n * (size_t)model_width(m) * sizeof(float);
}

/* What each of the other ranks does. */
static bool follow(struct rank *one, void *context, struct fault *f)
{
    struct model_options o = ((const struct options *)context)->open;
    const struct told *t = NULL;
    o.group = one->group;
    o.progress = NULL;
    struct model *m = model_open(((const struct options *)context)->model, &o, f);
    bool good = m != NULL;
    while (good && (t = ranks_hear(one, f))) {
        float *to = malloc(vectors_bytes(m, t));
        good = to ? compute(m, t, to, f) : fault_set(f, "out of memory");
        free(to);
    }
    model_close(m);
    return good && !*f->text;
}

/* By all ranks: what they read is there until all have done it, or have ended. */
static bool compute_all(struct model *m, const struct told *t, float *to, struct fault *f)
{
    if (!others) return compute(m, t, to, f);
    ranks_tell(others, t);
    if (compute(m, t, to, f) && ranks_wait(others, f)) return true;
    ranks_end(others, false, f);
    return others = NULL, false;
}

/* Of length 1, but where the files of sentence-transformers leave it as it is. */
static void print_vector(const struct model *m, const float *x)
{
    int n = model_width(m);
    double squares = 0;
    for (int i = 0; i < n; i++) squares += (double)x[i] * x[i];
    double size = m->modules.given && !m->modules.normalize ? 1 : fmax(sqrt(squares), 1e-12);
    for (int i = 0; i < n; i++) printf("%s%.6f", i ? " " : "", x[i] / size);
    puts("");
}

static bool flush(struct model *m, struct batch *b, enum pooling how, struct fault *f)
{
    int width = model_width(m);
    const struct told all = {.sentences = b, .how = how};
    float *vectors = malloc(vectors_bytes(m, &all));
    bool good = vectors || fault_set(f, "out of memory");
    progress_begin(&working, "%d sentences", b->n);
    good = good && compute_all(m, &all, vectors, f);
    progress_end(&working);
    for (int i = 0; i < b->n; i++) {
        if (good) print_vector(m, vectors + (size_t)i * (size_t)width);
        free(b->ids[i]);
    }
    b->n = 0;
    free(vectors);
    return good;
}

/* The tokens of a line, which count; in lower case if the model wants that. */
static int tokens_of(struct model *m, struct text *t, const char *line, int32_t **ids, struct fault *f)
{
    char *lower = t && m->modules.lower ? lower_text(line) : NULL;
    *ids = NULL;
    if (t && m->modules.lower && !lower) return fault_set(f, "out of memory"), -1;
    int count = text_tokens(t, lower ? lower : line, ids, f);
    free(lower);
    return t && count > 0 ? text_shorten(t, *ids, count, model_longest(m)) : count;
}

static bool embed_lines(struct model *m, struct text *t, enum pooling how, struct fault *f)
{
    struct batch b = {.n = 0};
    char *line = NULL;
    size_t room = 0;
    bool good = true;
    for (ssize_t n; good && (n = getline(&line, &room, stdin)) >= 0;) {
        if (n && line[n - 1] == '\n') line[n - 1] = 0;
        int count = tokens_of(m, t, line, &b.ids[b.n], f);
        if (count >= 0) b.counts[b.n++] = count;
        good = count >= 0 && (b.n < BATCH || flush(m, &b, how, f));
    }
    free(line);
    return flush(m, &b, how, f) && good;
}

/* ---- Images ---- */

/* [images, channels, side, side]; of one image without the first. */
static bool shape_fits(const struct npy *n, const struct config *c)
{
    const int64_t *d = n->dim + (n->rank == 4);
    return (n->rank == 3 || n->rank == 4) && d[0] == c->channels && d[1] == c->image && d[2] == c->image &&
           n->elements > 0;
}

static bool see(struct model *m, const struct npy *n, struct fault *f)
{
    int images = n->rank == 4 ? (int)n->dim[0] : 1;
    size_t wide = (size_t)model_width(m);
    float *pixels = malloc(sizeof *pixels * (size_t)n->elements);
    const struct told all = {.pixels = pixels, .images = images};
    float *vectors = malloc(vectors_bytes(m, &all));
    bool good = (pixels && vectors) || fault_set(f, "out of memory");
    for (int64_t i = 0; good && i < n->elements; i++) pixels[i] = (float)npy_get(n, i);
    progress_begin(&working, "%d images", images);
    good = good && compute_all(m, &all, vectors, f);
    progress_end(&working);
    for (int i = 0; good && i < images; i++) print_vector(m, vectors + (size_t)i * wide);
    free(vectors);
    free(pixels);
    return good;
}

static bool embed_images(struct model *m, const char *path, struct fault *f)
{
    struct npy n;
    const struct config *c = &m->config;
    const char *error = npy_open(&n, path);
    if (error) return fault_set(f, "%s %s", path, error);
    bool good = n.kind == 'f' || fault_set(f, "%s has integers, and pixels are floats, normalised", path);
    if (good && !shape_fits(&n, c))
        good = fault_set(f, "%s is no array of images [images, %d, %d, %d]", path, c->channels, c->image,
                         c->image);
    if (good && (error = npy_load(&n))) good = fault_set(f, "%s %s", path, error);
    good = good && see(m, &n, f);
    npy_free(&n);
    return good;
}

/* ---- What there is to do ---- */

static bool embed_text(struct model *m, const struct options *o, struct fault *f)
{
    struct text *t = o->ids ? NULL : text_open(o->model, NULL, f);
    bool good = (t || o->ids) && embed_lines(m, t, o->first ? POOLING_FIRST : POOLING_OF_FILES, f);
    text_close(t);
    return good;
}

static bool embed(struct model *m, const struct options *o, struct fault *f)
{
    fprintf(stderr, "embed: %s on %s\n", m->config.family, device_name(&m->device));
    if (!m->family->encoder) return fault_set(f, "family %s makes no vectors", m->config.family);
    if (o->plan) return page_print(stdout, "plan of a batch", m->plan, &m->weights), true;
    if (m->family->images != (o->prompt != NULL))
        return fault_set(f, "family %s %s", m->config.family,
                         o->prompt ? "sees no images" : "wants images, the name of a .npy file");
    return o->prompt ? embed_images(m, o->prompt, f) : embed_text(m, o, f);
}

static bool begin(struct options *o, struct options *each, struct fault *f)
{
    if (o->open.ranks <= 1 || o->open.only_plan) return true;
    o->open.device = ranks_device(o->open.device);
    *each = *o;
    return (others = ranks_begin(o->open.ranks, follow, each, &o->open.group, f)) != NULL;
}

int main(int argc, char **argv)
{
    struct options each,
        o = {
            .usage =
                "usage: embed [OPTION]... MODEL < LINES\n"
                "       embed [OPTION]... MODEL IMAGES.npy\n"
                "Vectors of sentences, one a line, or of images. MODEL is a folder with config.json and\n"
                "model.safetensors, or a GGUF file; `make -C examples/serving embed-data` fetches one into "
                "build/minilm.\n"
                "  --cpu, --gpu              where; a GPU if there is one\n"
                "  --dtype f32|f16|bf16      of weights and activations; on a GPU the files', or f16 for "
                "f32\n"
                "  --ids                     sentences are tokens as numbers\n"
                "  --first                   the state of the first token, instead of what the files say\n"
                "  --ranks N                 shares the model out over N GPUs, or threads of the CPU device\n"
                "  --plan                    what a run needs, instead of vectors"};
    struct fault f = {{0}};
    standard_open();
    if (!options_read(&o, argc, argv) && *o.wrong.text)
        return fprintf(stderr, "embed: %s; see embed --help\n", o.wrong.text), 2;
    if (!o.model) return 0;
    o.open.only_plan = o.plan;
    progress_begin(&working, "loading %s", o.model);
    progress_kernels(&working, NULL, 0);
    o.open.progress = &working;
    struct model *m = begin(&o, &each, &f) ? model_open(o.model, &o.open, &f) : NULL;
    progress_end(&working);
    bool good = ranks_end(others, m && embed(m, &o, &f) && standard_written(&f), &f);
    if (!good) fprintf(stderr, "embed: %s\n", f.text);
    model_close(m);
    coda_group_free(o.open.group);
    return !good;
}
