/*
 * cuts.c -- each beginning of a good file is refused by one line. It lies in memory of just its size, so that
 * valgrind and sanitizers see who reads beyond.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"
#include "model_test.h"

enum { MOST = 1 << 18, STEP = 13, HEADER = 4096 };

typedef bool (*reader)(struct checkpoint *c, const char *file, const struct mapped_file *map,
                       struct fault *f);

static bool good_start(reader read, const unsigned char *data, size_t bytes, struct checkpoint *c,
                       struct fault *f)
{
    unsigned char *copy = malloc(bytes ? bytes : 1);
    struct mapped_file map = {copy, bytes};
    *c = (struct checkpoint){0};
    memcpy(copy, data, bytes);
    bool good = read(c, "a file", &map, f);
    json_t *metadata = read == gguf_read ? gguf_metadata("a file", &map, f) : NULL;
    json_decref(metadata);
    checkpoint_close(c);
    free(copy);
    return good;
}

/* Where the last tensor ends, behind which a file may have padding. */
static size_t end_of(reader read, const unsigned char *data, size_t bytes)
{
    struct checkpoint c = {0};
    struct fault f = {{0}};
    struct mapped_file map = {data, bytes};
    size_t end = 0;
    CHECK(read(&c, "a file", &map, &f), "%s", f.text);
    for (int i = 0; i < c.count; i++) {
        size_t after = (size_t)(c.tensor[i].data - data) + c.tensor[i].bytes;
        if (after > end) end = after;
    }
    checkpoint_close(&c);
    return end;
}

static void cut(const char *tiny, const char *name, reader read)
{
    static unsigned char data[MOST];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", tiny, name);
    FILE *file = fopen(path, "rb");
    size_t bytes = file ? fread(data, 1, sizeof data, file) : 0, end = 0;
    if (file) fclose(file);
    CHECK(bytes > HEADER && bytes < MOST, "%s cannot be read", path);
    if (bytes > HEADER) end = end_of(read, data, bytes);
    for (size_t n = 0; n < end; n += n < HEADER ? STEP : HEADER) {
        struct checkpoint c;
        struct fault f = {{0}};
        bool good = good_start(read, data, n, &c, &f);
        CHECK(!good && f.text[0] && !strchr(f.text, '\n'), "%s: %zu bytes of %zu: '%s'", name, n, bytes,
              f.text);
    }
}

void test_cuts(const char *tiny, const char *scratch)
{
    (void)scratch;
    cut(tiny, "llama/model.safetensors", safetensors_read);
    cut(tiny, "vit/model.safetensors", safetensors_read);
    cut(tiny, "llama3/model.gguf", gguf_read);
    cut(tiny, "bert/model.gguf", gguf_read);
    cut(tiny, "gpt2/model.gguf", gguf_read);
}
