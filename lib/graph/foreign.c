/* foreign.c -- see foreign.h. */
#include "foreign.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *theirs, *ours, *absent;
} known[] = {
#define ALIAS(theirs, ours) {theirs, ours, NULL},
#define ABSENT(theirs, why) {theirs, NULL, why},
#define ATTRIBUTE(theirs, ours)
#include "aliases.def"
#undef ATTRIBUTE
#undef ABSENT
#undef ALIAS
};

static const struct word {
    const char *theirs, *ours;
} attributes[] = {
#define ALIAS(theirs, ours)
#define ABSENT(theirs, why)
#define ATTRIBUTE(theirs, ours) {theirs, ours},
#include "aliases.def"
#undef ATTRIBUTE
#undef ABSENT
#undef ALIAS
};

static const struct word dtypes[] = {
    {"float", "f32"},      {"float32", "f32"},
    {"fp32", "f32"},       {"single", "f32"},
    {"float16", "f16"},    {"fp16", "f16"},
    {"half", "f16"},       {"bfloat16", "bf16"},
    {"bfloat", "bf16"},    {"int32", "i32"},
    {"int", "i32"},        {"s32", "i32"},
    {"int64", "i64"},      {"long", "i64"},
    {"s64", "i64"},        {"float8", "f8e4m3"},
    {"fp8", "f8e4m3"},     {"float8e4m3", "f8e4m3"},
    {"fp8e4m3", "f8e4m3"}, {"e4m3", "f8e4m3"},
    {"f8", "f8e4m3"},      {"float8e4m3fn", "f8e4m3"},
    {"fp8e5m2", "f8e5m2"}, {"float8e5m2", "f8e5m2"},
    {"e5m2", "f8e5m2"},    {"int8", "i8"},
    {"s8", "i8"},          {"uint8", "u8"},
    {"byte", "u8"},        {"char", "i8"},
};

/* ---- Words ---- */

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }
static bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

static void cut_front(char *s, const char *front)
{
    size_t n = strlen(front);
    if (!strncmp(s, front, n) && s[n]) memmove(s, s + n, strlen(s + n) + 1);
}

static void cut_end(char *s, const char *end)
{
    size_t n = strlen(end), all = strlen(s);
    if (all > n && !strcmp(s + all - n, end)) s[all - n] = 0;
}

/* Small letters and digits, from the last module on. */
static void squeeze(const char *word, char out[FOREIGN_SIZE])
{
    size_t n = 0;
    for (const char *c = word; *c; c++)
        if ((*c == '.' || *c == ':' || *c == '/') && c[1]) word = c + 1;
    if ((*word == 'k' || *word == 'I') && is_capital(word[1])) word++; /* TensorRT's kGELU_ERF, ITopKLayer */
    for (; *word && n < FOREIGN_SIZE - 1; word++)
        if (*word != '_' && *word != '.') out[n++] = lower(*word);
    out[n] = 0;
}

void foreign_plain(const char *word, char out[FOREIGN_SIZE])
{
    squeeze(word, out);
    cut_front(out, "ggml");
    cut_front(out, "cudnn");
    cut_front(out, "pointwise");
    cut_end(out, "layer");
    cut_end(out, "forward");
    cut_end(out, "fwd");
}

bool foreign_is(const char *plain, const char *ours)
{
    for (; *ours; ours++) {
        if (*ours == '_') continue;
        if (*plain++ != *ours) return false;
    }
    return !*plain;
}

/* ---- What they mean ---- */

static struct foreign find(const char *plain)
{
    for (int i = 0; i < ARRAY_SIZE(known); i++)
        if (!strcmp(plain, known[i].theirs)) return (struct foreign){known[i].ours, known[i].absent};
    return (struct foreign){NULL, NULL};
}

struct foreign foreign_operation(const char *word)
{
    char plain[FOREIGN_SIZE];
    squeeze(word, plain);
    struct foreign f = find(plain);
    if (f.ours || f.absent) return f;
    foreign_plain(word, plain);
    return find(plain);
}

static const char *find_in(const struct word *list, int n, const char *word)
{
    char plain[FOREIGN_SIZE];
    squeeze(word, plain);
    for (int i = 0; i < n; i++)
        if (!strcmp(plain, list[i].theirs)) return list[i].ours;
    return NULL;
}

const char *foreign_dtype(const char *word) { return find_in(dtypes, ARRAY_SIZE(dtypes), word); }
const char *foreign_attribute(const char *word) { return find_in(attributes, ARRAY_SIZE(attributes), word); }
