/*
 * embed.c -- sentences become vectors of length 1, by an encoder's files: all-MiniLM-L6-v2, for one.
 *
 *     embed [--cpu | --gpu] [--dtype f32|f16|bf16] [--ids] [--first] MODEL < lines
 *
 * Each line of standard input is a sentence, of which 256 tokens count, or with --ids its tokens as numbers;
 * each line of the output its vector. A sentence's vector is the mean of its tokens' states, or with --first
 * the state of its first token. MODEL is a folder with config.json and model.safetensors.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "options.h"
#include "text.h"

enum { BATCH = 64 };

struct batch {
    int32_t *ids[BATCH];
    int counts[BATCH], n;
};

static void print_unit(const float *x, int n)
{
    double squares = 0;
    for (int i = 0; i < n; i++) squares += (double)x[i] * x[i];
    for (int i = 0; i < n; i++) printf("%s%.6f", i ? " " : "", x[i] / fmax(sqrt(squares), 1e-12));
    puts("");
}

static bool flush(struct model *m, struct batch *b, enum pooling how, struct fault *f)
{
    int width = m->config.hidden;
    float *vectors = malloc(sizeof *vectors * BATCH * (size_t)width);
    bool good = vectors || fault_set(f, "out of memory");
    good = good && model_embed(m, (const int32_t *const *)b->ids, b->counts, b->n, how, vectors, f);
    for (int i = 0; i < b->n; i++) {
        if (good) print_unit(vectors + (size_t)i * (size_t)width, width);
        free(b->ids[i]);
    }
    b->n = 0;
    free(vectors);
    return good;
}

static bool embed_lines(struct model *m, struct text *t, enum pooling how, struct fault *f)
{
    struct batch b = {.n = 0};
    char *line = NULL;
    size_t room = 0;
    bool good = true;
    for (ssize_t n; good && (n = getline(&line, &room, stdin)) >= 0;) {
        if (n && line[n - 1] == '\n') line[n - 1] = 0;
        int count = text_tokens(t, line, &b.ids[b.n], f);
        if (t && count > 0) count = text_shorten(b.ids[b.n], count, model_longest(m));
        if (count >= 0) b.counts[b.n++] = count;
        good = count >= 0 && (b.n < BATCH || flush(m, &b, how, f));
    }
    free(line);
    return flush(m, &b, how, f) && good;
}

int main(int argc, char **argv)
{
    struct options o = {.usage =
                            "usage: embed [--cpu | --gpu] [--dtype f32|f16|bf16] [--ids] [--first] MODEL"};
    struct fault f = {{0}};
    struct text *t = NULL;
    if (!options_read(&o, argc, argv)) return fprintf(stderr, "%s\n", o.usage), 2;
    struct model *m = model_open(o.model, &o.open, &f);
    bool good = m && (o.ids || (t = text_open(o.model, NULL, &f)) != NULL);
    if (good) fprintf(stderr, "embed: %s on %s\n", m->config.family, device_name(&m->device));
    good = good && embed_lines(m, t, o.first ? POOLING_FIRST : POOLING_MEAN, &f);
    if (!good) fprintf(stderr, "embed: %s\n", f.text);
    text_close(t);
    model_close(m);
    return !good;
}
