/*
 * judge.c -- how well a model foretells a text: its perplexity, over windows that follow one another.
 */
#include <math.h>
#include <stdlib.h>

#include "quantize_parts.h"
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
    if (good && !*judged) good = fault_set(f, "a text of %d tokens is too short", n);
    return good ? exp(sum / *judged) : NAN;
}

double judge_text(const char *model, const struct model_options *opt, const char *text, int most, int *tokens,
                  struct fault *f)
{
    struct model_options o = *opt;
    int32_t *ids = NULL;
    double perplexity = NAN;
    o.every_row = true;
    o.rows = o.context = WINDOW;
    struct model *m = model_open(model, &o, f);
    struct text *t = m ? text_open(model, m->files.config, f) : NULL;
    int n = t ? text_tokens(t, text, &ids, f) : -1;
    if (n >= 0) perplexity = judge_ids(m, ids, n < most ? n : most, tokens, f);
    free(ids);
    text_close(t);
    model_close(m);
    return perplexity;
}
