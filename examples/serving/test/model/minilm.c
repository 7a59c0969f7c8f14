/*
 * minilm.c -- a hundred sentences through all-MiniLM-L6-v2, where `make embed-data` has brought it, against
 * fp64.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model_test.h"
#include "text.h"

enum { FIRST = 8, MOST = 128 };
static const double bar = 1e-5; /* relative, in fp32 */

struct golden {
    const int32_t *ids[MOST];
    const int32_t *counts;
    const float *first, *norms;
    int64_t sentences;
};

static bool golden_read(struct golden *g, const struct checkpoint *c)
{
    int64_t n;
    const int32_t *ids = golden_tensor(c, "ids", "I32", &n);
    g->counts = golden_tensor(c, "counts", "I32", &g->sentences);
    g->first = golden_tensor(c, "first", "F32", &n);
    g->norms = golden_tensor(c, "norms", "F32", &n);
    for (int64_t i = 0; g->counts && i < g->sentences && i < MOST; ids += g->counts[i++]) g->ids[i] = ids;
    return ids && g->counts && g->first && g->norms && g->sentences <= MOST;
}

/* The golden is the mean itself; a folder with modules.json wants its direction, of norm 1. */
static void compare(const struct golden *g, const float *vectors, int wide, bool normalized)
{
    for (int64_t i = 0; i < g->sentences; i++) {
        const float *v = vectors + i * wide;
        double squares = 0, worst = 0, scale = normalized ? 1 / (double)g->norms[i] : 1;
        for (int c = 0; c < wide; c++) squares += (double)v[c] * v[c];
        for (int c = 0; c < FIRST; c++)
            worst = fmax(worst, fabs((double)v[c] - scale * g->first[i * FIRST + c]));
        double want = scale * g->norms[i], norm = fabs(sqrt(squares) / want - 1),
               off = worst / want * sqrt(wide);
        CHECK(norm <= bar && off <= bar, "sentence %d: norm off by %.2e, components by %.2e of their size",
              (int)i, norm, off);
    }
}

/* The lines of sentences.txt, as text: their tokens are the ones that the other library made. */
static void tokenize_all(const char *folder, const char *sentences, const struct golden *g)
{
    struct fault f = {{0}};
    struct text *t = text_open(folder, NULL, &f);
    FILE *lines = fopen(sentences, "r");
    char *line = NULL;
    size_t room = 0;
    int64_t i = 0;
    CHECK(t && lines, "%s: %s", folder, f.text);
    for (ssize_t n; t && lines && (n = getline(&line, &room, lines)) >= 0; i++) {
        int32_t *ids = NULL;
        if (n && line[n - 1] == '\n') line[n - 1] = 0;
        int count = text_tokens(t, line, &ids, &f);
        CHECK(count >= 0, "%s", f.text);
        if (count > 0) count = text_shorten(t, ids, count, 256);
        bool same =
            i < g->sentences && count == g->counts[i] && !memcmp(ids, g->ids[i], sizeof *ids * (size_t)count);
        CHECK(same, "sentence %d: other tokens, %d of them", (int)i, count);
        free(ids);
    }
    CHECK(i == g->sentences, "%d sentences", (int)i);
    free(line);
    if (lines) fclose(lines);
    text_close(t);
}

static void embed_all(const char *folder, const struct golden *g)
{
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU, .sentences = 8};
    struct model *m = model_open(folder, &o, &f);
    CHECK(m != NULL, "%s", f.text);
    if (!m) return;
    float *vectors = malloc(sizeof *vectors * (size_t)g->sentences * (size_t)m->config.hidden);
    bool ran = vectors && model_embed(m, g->ids, g->counts, (int)g->sentences, POOLING_MEAN, vectors, &f);
    CHECK(ran, "%s", f.text);
    if (ran) compare(g, vectors, m->config.hidden, m->modules.normalize);
    free(vectors);
    model_close(m);
}

void test_minilm(const char *tiny, const char *scratch)
{
    const char *given = getenv("CODA_MINILM"), *folder = given ? given : "../../build/minilm";
    char path[512];
    struct checkpoint c;
    struct golden g = {.sentences = 0};
    (void)scratch;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (access(path, R_OK)) {
        skipped = "; SKIP minilm: `make embed-data` fetches it";
        return;
    }
    snprintf(path, sizeof path, "%s/../minilm.safetensors", tiny);
    if (!golden_open(&c, path)) return;
    bool good = golden_read(&g, &c);
    snprintf(path, sizeof path, "%s/../sentences.txt", tiny);
    if (good) tokenize_all(folder, path, &g);
    if (good) embed_all(folder, &g);
    checkpoint_close(&c);
}
