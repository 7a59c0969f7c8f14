/*
 * gguf_file.c -- the writer of gguf_file.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_file.h"

enum { U32 = 4, F32 = 6, BOOL = 7, TEXT = 8, ALIGNMENT = 32 };

static void put(struct gguf_file *g, const void *data, size_t bytes)
{
    if (g->key_bytes + bytes > sizeof g->keys) return CHECK(false, "too many keys");
    memcpy(g->keys + g->key_bytes, data, bytes);
    g->key_bytes += bytes;
}

static void put_number(struct gguf_file *g, unsigned long long n, int bytes) { put(g, &n, (size_t)bytes); }

static void put_text(struct gguf_file *g, const char *s)
{
    put_number(g, strlen(s), 8);
    put(g, s, strlen(s));
}

static void put_value(struct gguf_file *g, char type, const char *value)
{
    float real = strtof(value, NULL);
    unsigned whole = (unsigned)strtoul(value, NULL, 10);
    if (type == 'u') put_number(g, U32, 4), put_number(g, whole, 4);
    if (type == 'f') put_number(g, F32, 4), put(g, &real, 4);
    if (type == 'b') put_number(g, BOOL, 4), put_number(g, !strcmp(value, "true"), 1);
    if (type == 's') put_number(g, TEXT, 4), put_text(g, value);
}

static bool whole_name(const char *name)
{
    static const char *const roots[] = {"general.", "tokenizer.", "split.", "quantize.", "="};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        if (!strncmp(name, roots[i], strlen(roots[i]))) return true;
    return false;
}

static void put_key(struct gguf_file *g, char type, const char *name, const char *value)
{
    char full[160];
    if (whole_name(name)) snprintf(full, sizeof full, "%s", name + (*name == '='));
    else snprintf(full, sizeof full, "%s.%s", g->architecture, name);
    put_text(g, full);
    put_value(g, type, value);
    g->values++;
}

void gguf_file_begin(struct gguf_file *g, const char *architecture)
{
    memset(g, 0, sizeof *g);
    snprintf(g->architecture, sizeof g->architecture, "%s", architecture);
    put_key(g, 's', "general.architecture", architecture);
}

/* Without those whose names are words of `without`. */
static void put_keys(struct gguf_file *g, const char *list, const char *without)
{
    char copy[1024], type, name[128], value[128];
    snprintf(copy, sizeof copy, "%s", list);
    for (char *rest = copy, *one; (one = strsep(&rest, ","));)
        if (sscanf(one, " %c %127s %127s", &type, name, value) == 3 && !strstr(without, name))
            put_key(g, type, name, value);
}

void gguf_file_keys(struct gguf_file *g, const char *list) { put_keys(g, list, ""); }

void gguf_file_tensor(struct gguf_file *g, const char *name, const struct stored_tensor *from)
{
    if (g->tensors == GGUF_TENSORS) return CHECK(false, "too many tensors");
    snprintf(g->tensor[g->tensors].name, sizeof g->tensor->name, "%s", name);
    g->tensor[g->tensors++].from = from;
}

static size_t aligned(size_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static void write_info(FILE *f, const struct gguf_file *g, int i, size_t offset)
{
    const struct stored_tensor *t = g->tensor[i].from;
    uint64_t length = strlen(g->tensor[i].name), at = offset;
    uint32_t rank = (uint32_t)t->rank, type = g->tensor[i].type;
    fwrite(&length, 8, 1, f);
    fwrite(g->tensor[i].name, 1, length, f);
    fwrite(&rank, 4, 1, f);
    for (int d = t->rank - 1; d >= 0; d--) fwrite(&t->dims[d], 8, 1, f);
    fwrite(&type, 4, 1, f);
    fwrite(&at, 8, 1, f);
}

static void pad(FILE *f)
{
    while (ftell(f) % ALIGNMENT) fputc(0, f);
}

void gguf_file_write(const struct gguf_file *g, const char *path, int at, int n)
{
    uint32_t version = 3;
    uint64_t tensors = (uint64_t)n, values = g->values;
    size_t offset = 0;
    FILE *f = fopen(path, "wb");
    if (!f) return CHECK(false, "%s cannot be written", path);
    fwrite("GGUF", 1, 4, f);
    fwrite(&version, 4, 1, f);
    fwrite(&tensors, 8, 1, f);
    fwrite(&values, 8, 1, f);
    fwrite(g->keys, 1, g->key_bytes, f);
    for (int i = at; i < at + n; offset += aligned(g->tensor[i++].from->bytes)) write_info(f, g, i, offset);
    pad(f);
    for (int i = at; i < at + n; i++) fwrite(g->tensor[i].from->data, 1, g->tensor[i].from->bytes, f), pad(f);
    CHECK(!fclose(f), "%s cannot be written", path);
}

/* ---- Families ---- */

static bool one_of(const char *words, const char *name)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *rest = copy, *one; (one = strsep(&rest, " "));)
        if (*one && strstr(name, one)) return true;
    return false;
}

void gguf_file_family(struct gguf_file *g, const struct checkpoint *golden, const char *family,
                      const char *without, const char *with)
{
    size_t n = strlen(family);
    gguf_file_begin(g, family);
    put_keys(g,
             "u block_count 2, u context_length 128, u embedding_length 16, u feed_forward_length 24,"
             " u attention.head_count 2, u attention.head_count_kv 1, u attention.key_length 8,"
             " u attention.value_length 8, f attention.layer_norm_rms_epsilon 1e-5",
             without);
    for (int i = 0; i < golden->count; i++) {
        const struct stored_tensor *t = &golden->tensor[i];
        const char *name = t->name + n + 1;
        if (strncmp(t->name, family, n) || t->name[n] != '/') continue;
        bool more = strstr(name, ".bias") || strstr(name, "rope_factors");
        if (!more || one_of(with, name)) gguf_file_tensor(g, name, t);
    }
}
