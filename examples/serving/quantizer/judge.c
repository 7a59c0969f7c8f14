/*
 * judge.c -- how well a model foretells a text: its perplexity, over windows that follow one another.
 */
#include <math.h>
#include <stdlib.h>

#include "quantize_parts.h"
#include "regular.h"
#include "text.h"

enum { WINDOW = 256 };

/* -log p of a token by its logits. */
static double surprise(const float *row, int n, int32_t id)
{
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) most = fmax(most, (double)row[i]);
    for (int i = 0; i < n; i++) sum += exp((double)row[i] - most);
    return most + log(sum) - (double)row[id];
}

/* Each window's tokens behind the first. */
static double judge_ids(struct model *m, const int32_t *ids, int n, int *judged, struct fault *f)
{
    int wide = m->config.vocabulary, rows = m->opt.rows;
    float *logits = malloc(sizeof *logits * (size_t)rows * (size_t)wide);
    double sum = 0;
    int32_t next;
    *judged = 0;
    bool good = logits || fault_set(f, "out of memory");
    for (int at = 0; good && at + 1 < n; at += rows) {
        int some = n - at < rows ? n - at : rows;
        model_rewind(m, 0);
        good = model_decode(m, ids + at, some, &next, f) && model_logits(m, logits, some, f);
        for (int i = 0; good && i + 1 < some; i++, ++*judged)
            sum += surprise(logits + (size_t)i * (size_t)wide, wide, ids[at + i + 1]);
    }
    free(logits);
    return good ? exp(sum / *judged) : NAN;
}

double judge_model(const char *model, const struct model_options *opt, const int32_t *ids, int n, int *judged,
                   struct fault *f)
{
    struct model_options o = *opt;
    o.every_row = true;
    o.rows = o.context = WINDOW;
    struct model *m = model_open(model, &o, f);
    double perplexity = m ? judge_ids(m, ids, n, judged, f) : NAN;
    model_close(m);
    return perplexity;
}

/* ---- The text ---- */

/* A whole file, for free(). */
static char *read_text(const char *path, struct fault *f)
{
    char why[128];
    FILE *file = regular_stream(path, REGULAR_JSON, why, sizeof why);
    if (!file) return fault_set(f, "%s: %s", path, why), NULL;
    char *text = malloc((size_t)REGULAR_JSON + 1);
    size_t n = text ? fread(text, 1, (size_t)REGULAR_JSON, file) : 0;
    bool good = text && !ferror(file);
    fclose(file);
    if (good) return text[n] = 0, text;
    free(text);
    return fault_set(f, "%s cannot be read", path), NULL;
}

int judge_tokens(const char *model, const json_t *config, const char *path, int most, int32_t **ids,
                 struct fault *f)
{
    char *text = read_text(path, f);
    struct text *t = text ? text_open(model, config, f) : NULL;
    int n = t ? text_tokens(t, text, ids, f) : -1;
    text_close(t);
    free(text);
    if (n < 0 || n > 1) return n < most ? n : most;
    free(*ids);
    *ids = NULL;
    return fault_set(f, "%s: a text of %d tokens is too short", path, n), -1;
}
