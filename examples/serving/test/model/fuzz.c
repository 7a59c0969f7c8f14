/*
 * fuzz.c -- files with some bytes changed: readers refuse them by one line, or give tensors that lie in the
 * file; and configurations with other numbers: models refuse them, or run. From $CODA_SEED on; with
 * $CODA_FULL for longer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "quant_file.h"
#include "tensor.h"
#include "tokenizer.h"

enum { MOST_BYTES = 1 << 20, HEADER = 4096 };

static int below(uint64_t *seed, size_t n) { return (int)(uniform(seed) * (double)n); }

/* A copy in memory of just its size, so that a sanitizer sees who reads beyond. */
static unsigned char *copied(const unsigned char *data, size_t bytes)
{
    unsigned char *p = malloc(bytes ? bytes : 1);
    if (p) memcpy(p, data, bytes);
    return p;
}

static void replace(unsigned char *data, size_t *bytes, size_t at, size_t old, const char *new, size_t length)
{
    if (at + old > *bytes || *bytes - old + length > MOST_BYTES) return;
    memmove(data + at + length, data + at + old, *bytes - at - old);
    memcpy(data + at, new, length);
    *bytes = *bytes - old + length;
}

static void other_number(unsigned char *data, size_t *bytes, size_t at, uint64_t *seed)
{
    static const char *const numbers[] = {"0",
                                          "-1",
                                          "1",
                                          "3",
                                          "7",
                                          "1e9",
                                          "4294967296",
                                          "9223372036854775807",
                                          "18446744073709551616",
                                          "0.5",
                                          "null",
                                          "[]",
                                          "\"x\"",
                                          "true"};
    const char *n = numbers[below(seed, sizeof numbers / sizeof *numbers)];
    size_t length = 0;
    while (at < *bytes && (data[at] < '0' || data[at] > '9')) at++;
    while (at + length < *bytes && data[at + length] >= '0' && data[at + length] <= '9') length++;
    replace(data, bytes, at, length, n, strlen(n));
}

/* One change in the first `reach` bytes, where headers are. */
static void mutate(unsigned char *data, size_t *bytes, size_t reach, uint64_t *seed)
{
    char piece[64];
    if (reach > *bytes) reach = *bytes;
    if (!reach) return;
    size_t at = (size_t)below(seed, reach), n = (size_t)below(seed, sizeof piece);
    switch (below(seed, 6)) {
    case 0: data[at] ^= (unsigned char)(1 << below(seed, 8)); break;
    case 1: data[at] = (unsigned char)below(seed, 256); break;
    case 2: other_number(data, bytes, at, seed); break;
    case 3: replace(data, bytes, at, at + n > *bytes ? *bytes - at : n, "", 0); break;
    case 4:
        if (at + n > *bytes) n = *bytes - at;
        memcpy(piece, data + at, n);
        replace(data, bytes, (size_t)below(seed, reach), 0, piece, n);
        break;
    default:
        if (below(seed, 8) == 0) *bytes = (size_t)below(seed, *bytes);
    }
}

/* A mutated safetensors header, and its length, so that what is behind it is read at all. */
static void fix_length(unsigned char *data, size_t before, size_t bytes)
{
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | data[i];
    length += (uint64_t)bytes - (uint64_t)before;
    for (int i = 0; i < 8; i++) data[i] = (unsigned char)(length >> 8 * i);
}

typedef bool (*reader)(struct checkpoint *c, const char *file, const struct mapped_file *map,
                       struct fault *f);

/* A GGUF file's tokenizer: it is refused, or makes some tokens of a text. */
static void read_words(const struct mapped_file *map, uint64_t seed)
{
    static const char line[] = "a fox, barking! FOX 12<|endoftext|>[MASK]";
    struct fault f = {{0}};
    int32_t ids[256];
    json_t *meta = gguf_metadata("fuzz", map, &f);
    struct tokenizer *t = meta ? tokenizer_open_gguf(meta, "fuzz", f.text, sizeof f.text) : NULL;
    CHECK(t || (f.text[0] && !strchr(f.text, '\n')), "seed %llu: words are refused without a line",
          (unsigned long long)seed);
    if (t) tokenizer_encode(t, line, sizeof line - 1, ids, 256, NULL);
    tokenizer_close(t);
    json_decref(meta);
}

static void read_one(reader read, const unsigned char *data, size_t bytes, uint64_t seed)
{
    struct checkpoint c = {0};
    struct fault f = {{0}};
    struct mapped_file map = {copied(data, bytes), bytes};
    bool good = read(&c, "fuzz", &map, &f);
    CHECK(good || (f.text[0] && !strchr(f.text, '\n')), "seed %llu: refused without a line",
          (unsigned long long)seed);
    for (int i = 0; good && i < c.count; i++) {
        const struct stored_tensor *t = &c.tensor[i];
        if (!t->dtype) continue;
        bool inside = t->data >= map.data && t->bytes <= bytes && t->data + t->bytes <= map.data + bytes;
        CHECK(inside, "seed %llu: tensor %s is not in the file", (unsigned long long)seed, t->name);
    }
    checkpoint_close(&c);
    if (read == gguf_read) read_words(&map, seed);
    free((void *)(uintptr_t)map.data);
}

static size_t take(const char *folder, const char *name, unsigned char *data)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    size_t bytes = f ? fread(data, 1, MOST_BYTES, f) : 0;
    if (f) fclose(f);
    CHECK(bytes > 0, "%s cannot be read", path);
    return bytes;
}

/* Changes in a file's first `reach` bytes. */
static void fuzz_reach(reader read, const char *folder, const char *name, size_t reach, uint64_t seed,
                       int rounds)
{
    static unsigned char whole[MOST_BYTES], data[MOST_BYTES];
    size_t size = take(folder, name, whole);
    for (int i = 0; i < rounds; i++) {
        uint64_t state = seed + (uint64_t)i;
        size_t bytes = size;
        memcpy(data, whole, size);
        for (int n = 1 + below(&state, 4); n > 0; n--) {
            size_t before = bytes;
            mutate(data, &bytes, reach, &state);
            if (read == safetensors_read && bytes >= 8 && below(&state, 2)) fix_length(data, before, bytes);
        }
        read_one(read, data, bytes, seed + (uint64_t)i);
    }
}

static void fuzz_reader(reader read, const char *folder, const char *name, uint64_t seed, int rounds)
{
    fuzz_reach(read, folder, name, HEADER, seed, rounds);
}

/* One run of three tokens, or of a black image that is not too large. */
static bool run_once(struct model *m, struct fault *f)
{
    static const int32_t ids[] = {1, 2, 3};
    static float pixels[1 << 16];
    const struct config *c = &m->config;
    int32_t next = -1;
    float *vector = malloc(sizeof *vector * (size_t)model_width(m));
    bool ran = true;
    if (m->family->images && (int64_t)c->channels * c->image * c->image <= 1 << 16)
        ran = model_see(m, pixels, 1, vector, f);
    else if (c->vocabulary > 3 && !m->family->images)
        ran = m->family->encoder
                  ? model_embed(m, &(const int32_t *){ids}, &(int){3}, 1, POOLING_OF_FILES, vector, f)
                  : model_decode(m, ids, 3, &next, f);
    free(vector);
    return ran;
}

static void rewrite(const char *folder, const char *name, const unsigned char *data, size_t bytes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    bool good = file && fwrite(data, 1, bytes, file) == bytes;
    CHECK(file && !fclose(file) && good, "%s cannot be written", path);
}

/* A model of a checkpoint, and perhaps an adapter, one file of which is changed: it is refused, or runs. */
static void run_changed(const char *path, const char *adapter, uint64_t seed)
{
    struct fault f = {{0}};
    struct model_options o = {.device = CODA_DEVICE_CPU, .context = 16, .rows = 8, .adapter = adapter};
    struct model *m = model_open(path, &o, &f);
    if (m && !run_once(m, &f)) CHECK(false, "seed %llu: %s", (unsigned long long)seed, f.text);
    CHECK(m || (f.text[0] && !strchr(f.text, '\n')), "seed %llu: refused without a line",
          (unsigned long long)seed);
    model_close(m);
}

static void fuzz_config(const char *folder, const char *scratch, uint64_t seed, int rounds)
{
    static unsigned char whole[MOST_BYTES], data[MOST_BYTES];
    char path[512];
    size_t size = take(folder, "model.safetensors", whole);
    snprintf(path, sizeof path, "%s/model.safetensors", scratch);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(whole, 1, size, file) != size || fclose(file)) return CHECK(false, "%s", path);
    size = take(folder, "config.json", whole);
    for (int i = 0; i < rounds; i++) {
        uint64_t state = seed + (uint64_t)i;
        size_t bytes = size;
        memcpy(data, whole, size);
        for (int n = 1 + below(&state, 3); n > 0; n--)
            if (below(&state, 3)) other_number(data, &bytes, (size_t)below(&state, bytes), &state);
            else mutate(data, &bytes, bytes, &state);
        rewrite(scratch, "config.json", data, bytes);
        run_changed(scratch, NULL, seed + (uint64_t)i);
    }
}

/* Changes of one file in its first `reach` bytes; 0: in a header of safetensors. The file stays as it was. */
static void fuzz_file(const char *folder, const char *name, const char *model, const char *adapter,
                      size_t reach, uint64_t seed, int rounds)
{
    static unsigned char whole[MOST_BYTES], data[MOST_BYTES];
    size_t size = take(folder, name, whole);
    bool tensors = !reach;
    for (int i = 0; tensors && i < 4; i++) reach |= (size_t)whole[i] << 8 * i;
    for (int i = 0; i < rounds; i++) {
        uint64_t state = seed + (uint64_t)i;
        size_t bytes = size;
        memcpy(data, whole, size);
        for (int n = 1 + below(&state, 2); n > 0; n--) {
            size_t before = bytes;
            if (below(&state, 3)) other_number(data, &bytes, 8 + (size_t)below(&state, reach), &state);
            else mutate(data, &bytes, below(&state, 4) ? reach : size, &state);
            if (tensors && bytes >= 8) fix_length(data, before, bytes);
        }
        rewrite(folder, name, data, bytes);
        run_changed(model, adapter, seed + (uint64_t)i);
    }
    rewrite(folder, name, whole, size);
}

static void fuzz_quantised(const char *scratch, uint64_t seed, int rounds)
{
    char folder[512], file[600];
    snprintf(folder, sizeof folder, "%s/quantised", scratch);
    for (int i = 0; i < quant_kind_count; i++) {
        quant_write(&quant_kinds[i], scratch, "llama", seed);
        fuzz_file(folder, "model.safetensors", folder, NULL, 0, seed, rounds);
        fuzz_file(folder, "config.json", folder, NULL, 1024, seed, rounds);
    }
    snprintf(file, sizeof file, "%s/quantised.gguf", scratch);
    for (int i = 0; i < quant_gguf_count; i++) {
        quant_write_gguf(&quant_ggufs[i], scratch, seed);
        fuzz_file(scratch, "quantised.gguf", file, NULL, HEADER, seed, rounds);
    }
}

static void fuzz_adapter(const char *scratch, uint64_t seed, int rounds)
{
    char model[512], adapter[512];
    snprintf(model, sizeof model, "%s/quantised", scratch);
    snprintf(adapter, sizeof adapter, "%s/adapter", scratch);
    quant_write(&quant_kinds[0], scratch, "llama", seed);
    adapter_write(scratch, 16, false, seed);
    fuzz_file(adapter, "adapter_model.safetensors", model, adapter, 0, seed, rounds);
    fuzz_file(adapter, "adapter_config.json", model, adapter, 128, seed, rounds);
}

void test_fuzz(const char *tiny, const char *scratch)
{
    const char *given = getenv("CODA_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    int rounds = getenv("CODA_FULL") ? 200000 : 500;
    char folder[512];
    snprintf(folder, sizeof folder, "%s/qwen2", tiny);
    fuzz_reader(safetensors_read, folder, "model.safetensors", seed, rounds);
    fuzz_config(folder, scratch, seed, rounds / 10);
    fuzz_quantised(scratch, seed, rounds / 250);
    fuzz_adapter(scratch, seed, rounds / 50);
    snprintf(folder, sizeof folder, "%s/gemma3", tiny);
    fuzz_config(folder, scratch, seed, rounds / 10);
    snprintf(folder, sizeof folder, "%s/llama3", tiny);
    fuzz_reader(gguf_read, folder, "model.gguf", seed, rounds);
    snprintf(folder, sizeof folder, "%s/vit", tiny);
    fuzz_config(folder, scratch, seed, rounds / 10);
    snprintf(folder, sizeof folder, "%s/bert", tiny);
    fuzz_config(folder, scratch, seed, rounds / 10);
    snprintf(folder, sizeof folder, "%s/gemma2", tiny);
    fuzz_reader(gguf_read, folder, "model.gguf", seed, rounds);
    snprintf(folder, sizeof folder, "%s/bert", tiny);
    fuzz_reader(gguf_read, folder, "model.gguf", seed, rounds);
    snprintf(folder, sizeof folder, "%s/gpt2", tiny);
    fuzz_reader(gguf_read, folder, "model.gguf", seed, rounds);
    snprintf(folder, sizeof folder, "%s/../tokenizers_gguf/llama", tiny);
    fuzz_reach(gguf_read, folder, "words.gguf", MOST_BYTES, seed, rounds);
}
