/*
 * ranks_encoders.c -- encoders that are shared out over ranks, threads of the CPU device: vectors are those
 * of transformers' fp64, and equal bit for bit on all ranks. And what ranks.h does where one of them fails.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "model_test.h"
#include "ranks.h"

enum { MOST_SENTENCES = 16 };
static const double bar = 1e-5; /* as of one rank */

/* What each rank encodes: images, or sentences. */
struct encoded {
    char path[512];
    const float *pixels;
    int count, ranks; /* of images, or sentences */
    const int32_t *sentence[MOST_SENTENCES], *counts;
    int64_t numbers; /* of the vectors */
    atomic_int others_differ;
};

static bool encode(const struct encoded *e, coda_group *group, float *to, struct fault *f)
{
    struct model_options o = {.device = CODA_DEVICE_CPU, .group = group, .ranks = e->ranks};
    struct model *m = model_open(e->path, &o, f);
    bool good = m && e->count * (int64_t)model_width(m) == e->numbers;
    if (good && e->pixels) good = model_see(m, e->pixels, e->count, to, f);
    else if (good) good = model_embed(m, e->sentence, e->counts, e->count, POOLING_OF_FILES, to, f);
    model_close(m);
    return good;
}

static bool other(struct rank *one, void *context, struct fault *f)
{
    struct encoded *e = context;
    float *mine = malloc((size_t)e->numbers * sizeof *mine);
    bool good = encode(e, one->group, mine, f);
    const float *first = good ? ranks_hear(one, f) : NULL;
    if (first && memcmp(first, mine, (size_t)e->numbers * sizeof *mine)) e->others_differ++;
    free(mine);
    return first != NULL;
}

static void compare(struct encoded *e, const char *name, const float *vectors)
{
    struct fault f = {{0}};
    coda_group *group = NULL;
    int64_t wide = e->numbers / e->count;
    float *to = malloc((size_t)e->numbers * sizeof *to);
    struct ranks *r = ranks_begin(e->ranks, other, e, &group, &f);
    bool good = r && encode(e, group, to, &f);
    if (good) ranks_tell(r, to), good = ranks_wait(r, &f);
    good = ranks_end(r, good, &f);
    CHECK(good, "%s on %d ranks: %s", name, e->ranks, f.text);
    CHECK(!e->others_differ, "%s: %d ranks of %d have other bits", name, e->others_differ, e->ranks);
    for (int i = 0; good && i < e->count; i++) {
        double off = relative_error(to + i * wide, vectors + i * wide, wide);
        CHECK(off <= bar, "%s on %d ranks: vector %d is off by %.2e", name, e->ranks, i, off);
    }
    coda_group_free(group);
    free(to);
}

static void vectors_of(const char *tiny, const char *name, const char *file, const char *wanted, int ranks)
{
    char path[512];
    struct checkpoint golden;
    int64_t n, sentences = 0;
    struct encoded e = {.ranks = ranks};
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", tiny, name);
    snprintf(e.path, sizeof e.path, "%s/%s%s", tiny, name, file);
    if (!golden_open(&golden, path)) return;
    const float *vectors = golden_tensor(&golden, wanted, "F32", &e.numbers);
    if (checkpoint_find(&golden, "pixels")) {
        e.pixels = golden_tensor(&golden, "pixels", "F32", &n);
        sentences = checkpoint_find(&golden, "pixels")->dims[0];
    } else {
        const int32_t *ids = golden_tensor(&golden, "ids", "I32", &n);
        e.counts = golden_tensor(&golden, "counts", "I32", &sentences);
        for (int64_t i = 0, at = 0; i < sentences && i < MOST_SENTENCES; at += e.counts[i++])
            e.sentence[i] = ids + at;
    }
    e.count = (int)sentences;
    if (vectors) compare(&e, name, vectors);
    checkpoint_close(&golden);
}

/* ---- One of them fails ---- */

enum { FAILS = 2, TOLD = 3 };

static bool failing(struct rank *one, void *context, struct fault *f)
{
    int *sum = context;
    for (const int *what; (what = ranks_hear(one, f));) {
        if (*what == TOLD && coda_group_rank(one->group) == FAILS) return fault_set(f, "it fails here");
        sum[coda_group_rank(one->group)] += *what;
    }
    return !*f->text;
}

static void failures_of(void)
{
    static int number[] = {1, 2, TOLD, 4};
    int sum[4] = {0};
    struct fault f = {{0}};
    coda_group *group = NULL;
    bool good = true;
    struct ranks *r = ranks_begin(4, failing, sum, &group, &f);
    CHECK(r, "%s", f.text);
    for (int i = 0; i < 2; i++) ranks_tell(r, &number[i]), good = ranks_wait(r, &f) && good;
    CHECK(good && sum[1] == 3 && sum[2] == 3 && sum[3] == 3, "%d %d %d: %s", sum[1], sum[2], sum[3], f.text);
    for (int i = 2; i < 4; i++) ranks_tell(r, &number[i]), good = ranks_wait(r, &f);
    CHECK(!good && !strcmp(f.text, "rank 2: it fails here"), "\"%s\"", f.text);
    CHECK(coda_group_status(group) == CODA_E_DEVICE, "the group goes on: %s", coda_error());
    CHECK(!ranks_end(r, false, &f) && !strcmp(f.text, "rank 2: it fails here"), "\"%s\"", f.text);
    coda_group_free(group);
}

void test_ranks_encoders(const char *tiny, const char *scratch)
{
    (void)scratch;
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        vectors_of(tiny, "bert", "", "vectors", ranks);
        vectors_of(tiny, "gemma3_encoder", "", "vectors", ranks);
        vectors_of(tiny, "vit", "", "vectors", ranks);
        vectors_of(tiny, "siglip_vision", "", "vectors", ranks);
        vectors_of(tiny, "siglip", "", "vectors", ranks);
    }
    vectors_of(tiny, "bert", "/model.gguf", "vectors", 2);
    vectors_of(tiny, "gemma3_encoder", "/model.gguf", "gguf", 2);
    failures_of();
}
