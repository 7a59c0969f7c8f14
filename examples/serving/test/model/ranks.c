/*
 * ranks.c -- decoders that are shared out over ranks, each a thread of the CPU device with a model of its
 * own: logits are those of transformers' fp64, and equal bit for bit on all ranks; what cannot be shared out
 * says why.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant_file.h"

enum { MOST_RANKS = 4, CONTEXT = 64 };
static const double bar = 1e-5; /* as of one rank */
static int gguf_cut;

struct rank {
    char path[512];
    coda_group *group;
    int ranks, tokens;
    const int32_t *ids;
    float *logits; /* of all tokens */
    int32_t next;
    bool good;
    struct fault f;
};

/* Runs of other lengths, a single token among them. */
static bool decode_all(struct rank *r, struct model *m)
{
    static const int runs[] = {7, 1, 16, 9, 7};
    int wide = m->config.vocabulary;
    bool good = true;
    for (size_t i = 0; good && i < sizeof runs / sizeof *runs && m->length < r->tokens; i++) {
        int left = r->tokens - m->length, n = runs[i] < left ? runs[i] : left, at = m->length;
        good = model_decode(m, r->ids + at, n, &r->next, &r->f) &&
               model_logits(m, r->logits + (int64_t)at * wide, n, &r->f);
    }
    return good;
}

static void *run(void *context)
{
    struct rank *r = context;
    struct model_options o = {.device = CODA_DEVICE_CPU,
                              .every_row = true,
                              .context = CONTEXT,
                              .group = r->group,
                              .ranks = r->ranks};
    struct model *m = model_open(r->path, &o, &r->f);
    if (m && m->bytes[CODA_ARG_STATE]) memset(m->memory[CODA_ARG_STATE], 0xff, m->bytes[CODA_ARG_STATE]);
    r->good = m && decode_all(r, m);
    if (!r->good) coda_group_abort(r->group);
    model_close(m);
    return NULL;
}

static void run_all(struct rank *r, int ranks)
{
    pthread_t thread[MOST_RANKS];
    for (int k = 0; k < ranks; k++)
        CHECK(!pthread_create(&thread[k], NULL, run, &r[k]), "there is no thread");
    for (int k = 0; k < ranks; k++) pthread_join(thread[k], NULL);
}

static void check_logits(const struct rank *r, const char *name, const float *golden, int64_t numbers)
{
    int64_t wide = numbers / r->tokens;
    for (int i = 0; i < r->tokens; i++) {
        double e = relative_error(r[0].logits + i * wide, golden + i * wide, wide);
        CHECK(e <= bar, "%s on %d ranks: logits of token %d are off by %.2e", name, r->ranks, i, e);
    }
    for (int k = 1; k < r->ranks; k++)
        CHECK(!memcmp(r[k].logits, r[0].logits, sizeof(float) * (size_t)numbers) && r[k].next == r[0].next,
              "%s: rank %d of %d has other bits", name, k, r->ranks);
}

/* `file` is "" for the folder of safetensors, or what stands behind it. */
static void logits_of(const char *tiny, const char *name, const char *file, int ranks)
{
    char path[512];
    struct checkpoint golden;
    int64_t tokens = 0, numbers = 0;
    struct rank r[MOST_RANKS];
    coda_group *group[MOST_RANKS];
    snprintf(path, sizeof path, "%s/%s/golden.safetensors", tiny, name);
    if (!golden_open(&golden, path)) return;
    const int32_t *ids = golden_tensor(&golden, "ids", "I32", &tokens);
    const float *logits = golden_tensor(&golden, "logits", "F32", &numbers);
    CHECK(coda_group_local(group, ranks, NULL) == CODA_OK, "%s", coda_error());
    for (int k = 0; k < ranks; k++) {
        r[k] = (struct rank){.group = group[k], .ranks = ranks, .tokens = (int)tokens, .ids = ids};
        snprintf(r[k].path, sizeof r[k].path, "%s/%s%s", tiny, name, file);
        r[k].logits = calloc((size_t)numbers, sizeof *r[k].logits);
    }
    run_all(r, ranks);
    bool good = true;
    for (int k = 0; k < ranks; k++) {
        CHECK(r[k].good, "%s%s, rank %d of %d: %s", name, file, k, ranks, r[k].f.text);
        good = good && r[k].good;
    }
    if (good) check_logits(r, name, logits, numbers);
    for (int k = 0; k < ranks; k++) free(r[k].logits), coda_group_free(group[k]);
    checkpoint_close(&golden);
}

/* Nobody has to be there for it. */
static void refused(const char *path, const char *adapter, int ranks, const char *part)
{
    struct fault f = {{0}};
    struct model_options o = {
        .device = CODA_DEVICE_CPU, .only_plan = true, .ranks = ranks, .adapter = adapter};
    struct model *m = model_open(path, &o, &f);
    CHECK(!m && strstr(f.text, part) && !strchr(f.text, '\n'), "%s on %d ranks: \"%s\" lacks \"%s\"", path,
          ranks, f.text, part);
    model_close(m);
}

static void refusals(const char *tiny, const char *scratch)
{
    char path[600];
    snprintf(path, sizeof path, "%s/llama", tiny);
    refused(path, NULL, 3, "2 heads of keys do not divide 3 ranks");
    refused(path, NULL, 8, "8 ranks do not divide 4 heads");
    snprintf(path, sizeof path, "%s/bert", tiny);
    refused(path, NULL, 3, "3 ranks do not divide 4 heads of keys");
    quant_write(&quant_kinds[0], scratch, "llama", 7);
    adapter_write(scratch, 16, false, 7);
    snprintf(path, sizeof path, "%s/quantised", scratch);
    refused(path, NULL, 2, "weights that are quantised are not shared out over ranks");
    snprintf(path, sizeof path, "%s/adapter", scratch);
    char plain[600];
    snprintf(plain, sizeof plain, "%s/plain", scratch);
    refused(plain, path, 2, "an adapter is not shared out over ranks");
}

/* What GGUF quantises: as on one rank. */
static void quantised(const char *scratch, const struct quant_gguf *k)
{
    static const int32_t ids[] = {1, 5, 9, 2, 33, 7, 7, 60};
    enum { TOKENS = sizeof ids / sizeof *ids, WIDE = 64 };
    static float logits[1 + 2][TOKENS * WIDE];
    struct rank r[3];
    coda_group *group[3];
    quant_write_gguf(k, scratch, 11);
    bool good = !coda_group_local(group, 2, NULL) && !coda_group_local(group + 2, 1, NULL);
    CHECK(good, "%s", coda_error());
    for (int i = 0; i < 3; i++) {
        r[i] = (struct rank){.group = group[i], .ranks = i < 2 ? 2 : 1, .tokens = TOKENS, .ids = ids};
        r[i].logits = logits[i];
        snprintf(r[i].path, sizeof r[i].path, "%s/quantised.gguf", scratch);
    }
    run_all(r + 2, 1);
    run_all(r, 2);
    bool blocks =
        strstr(r[0].f.text, "columns are no whole blocks of 256") && strstr(r[1].f.text, "no whole blocks");
    CHECK(r[2].good && ((r[0].good && r[1].good) || blocks), "%s: %s; %s; %s", k->name, r[0].f.text,
          r[1].f.text, r[2].f.text);
    if (r[0].good && r[1].good && r[2].good) check_logits(r, k->name, r[2].logits, TOKENS * WIDE);
    gguf_cut += r[0].good;
    for (int i = 0; i < 3; i++) coda_group_free(group[i]);
}

/* Families that carry states are not shared out. */
static bool is_shared(const char *name)
{
    static const char *const all[] = {"llama", "llama3", "mistral", "qwen2", "qwen3",        "phi3",
                                      "gemma", "gemma2", "gemma3",  "gpt2",  "gemma3_whole", "mistral3"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i], name)) return true;
    return false;
}

void test_ranks(const char *tiny, const char *scratch)
{
    char path[600];
    for (int i = 0; i < decoders; i++) {
        for (int ranks = 2; ranks <= MOST_RANKS && is_shared(decoder[i]); ranks += 2)
            if (!SANITIZED || is_drawn(4, i + ranks / 2)) logits_of(tiny, decoder[i], "", ranks);
        snprintf(path, sizeof path, "%s/%s", tiny, decoder[i]);
        if (!is_shared(decoder[i])) refused(path, NULL, 2, "is not shared out over ranks");
    }
    logits_of(tiny, "llama3", "/model.gguf", 2);
    logits_of(tiny, "gpt2", "/model.gguf", 4);
    for (int i = 0; i < quant_gguf_count; i++)
        if (!SANITIZED || is_drawn(3, i)) quantised(scratch, &quant_ggufs[i]);
    CHECK(SANITIZED || gguf_cut == 9, "%d of %d kinds of GGUF's blocks were shared out", gguf_cut,
          quant_gguf_count);
    refusals(tiny, scratch);
}
