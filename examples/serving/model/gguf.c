/*
 * gguf.c -- the container: a header, metadata by name, tensors by name, and behind them the data, little
 * endian.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf.h"

enum { LONGEST_NAME = 128, LONGEST_TEXT = 1 << 18, LONGEST_LIST = 1 << 22, ALIGNMENT = 32 };
enum { SHORT_LIST = 1024, MOST_PARTS = 9999 }; /* numbers of a list that is kept in any case; files */

/* Types of metadata. */
enum { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64 };

static const int value_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* Reads on until something is wrong; then all is 0, and the fault says where. */
struct cursor {
    const unsigned char *data;
    size_t bytes, at;
    const char *file;
    struct fault *fault;
    bool failed;
    bool lists; /* arrays of metadata are kept */
};

static bool fail(struct cursor *c, const char *what)
{
    if (!c->failed) fault_set(c->fault, "%s: offset %zu: %s", c->file, c->at, what);
    c->failed = true;
    return false;
}

static bool skip(struct cursor *c, uint64_t bytes)
{
    if (c->failed || bytes > c->bytes - c->at) return fail(c, "the file ends too early");
    c->at += (size_t)bytes;
    return true;
}

static uint64_t number(struct cursor *c, int bytes)
{
    uint64_t x = 0;
    if (!skip(c, (uint64_t)bytes)) return 0;
    for (int i = 1; i <= bytes; i++) x = x << 8 | c->data[c->at - (size_t)i];
    return x;
}

/* A text of UTF-8, at most LONGEST_TEXT bytes; NULL for others. */
static json_t *long_text(struct cursor *c)
{
    uint64_t n = number(c, 8);
    if (!skip(c, n) || n > LONGEST_TEXT) return NULL;
    return json_stringn((const char *)c->data + c->at - n, (size_t)n);
}

/* A text of at most size - 1 bytes; a longer one is "". */
static void text(struct cursor *c, char *to, size_t size)
{
    uint64_t n = number(c, 8);
    *to = 0;
    if (!skip(c, n) || n >= size) return;
    memcpy(to, c->data + c->at - n, (size_t)n);
    to[n] = 0;
}

/* ---- Metadata ---- */

static double real(uint64_t bits, int type)
{
    uint32_t low = (uint32_t)bits;
    float f;
    double d;
    memcpy(&f, &low, sizeof f);
    memcpy(&d, &bits, sizeof d);
    return type == F32 ? (double)f : d;
}

static json_int_t whole(uint64_t bits, int type)
{
    switch (type) {
    case I8: return (int8_t)bits;
    case I16: return (int16_t)bits;
    case I32: return (int32_t)bits;
    default: return (json_int_t)bits; /* above 2^63 it is negative, and refused as that */
    }
}

static void skip_array(struct cursor *c)
{
    uint64_t type = number(c, 4), count = number(c, 8);
    if (c->failed) return;
    if (type > F64 || type == ARRAY) fail(c, "an array of a type that is not known");
    else if (type != TEXT) {
        if (count > c->bytes) fail(c, "an array is longer than the file");
        else skip(c, count * (uint64_t)value_bytes[type]);
    } else
        for (uint64_t i = 0; i < count && !c->failed; i++) skip(c, number(c, 8));
}

/* A value that is no array. */
static json_t *single(struct cursor *c, uint64_t type)
{
    if (type == TEXT) return long_text(c);
    uint64_t bits = number(c, value_bytes[type]);
    if (type == F32 || type == F64) return json_real(real(bits, (int)type));
    return type == BOOL ? json_boolean(bits) : json_integer(whole(bits, (int)type));
}

/* An array, in which texts that are no UTF-8 are null; NULL for one that is longer than any vocabulary. */
static json_t *list(struct cursor *c)
{
    size_t at = c->at;
    uint64_t type = number(c, 4), count = number(c, 8);
    if (c->failed || type > F64 || type == ARRAY || count > LONGEST_LIST) {
        c->at = at;
        return skip_array(c), NULL;
    }
    json_t *all = json_array();
    for (uint64_t i = 0; i < count && !c->failed; i++) {
        json_t *v = single(c, type);
        json_array_append_new(all, v ? v : json_null());
    }
    return all;
}

/* An array is kept where it is asked for, or is a short one of numbers. What is not kept, or is no value that
 * JSON has, is an object without members, so that who reads the key sees that something is there. */
static json_t *value(struct cursor *c)
{
    uint64_t type = number(c, 4), of = 0, count = 0;
    size_t at = c->at;
    if (c->failed) return NULL;
    if (type > F64) return fail(c, "metadata of a type that is not known"), NULL;
    if (type == ARRAY) of = number(c, 4), count = number(c, 8), c->at = at;
    json_t *v = NULL;
    if (type == ARRAY && (c->lists || (of != TEXT && count <= SHORT_LIST))) v = list(c);
    else if (type == ARRAY) skip_array(c);
    else v = single(c, type);
    return v ? v : json_object();
}

/* Two keys of one name are none that can be told apart. */
static bool add_value(struct cursor *c, json_t *all, const char *name, json_t *v)
{
    bool twice = json_object_get(all, name) != NULL;
    if (!*name) fail(c, "a key without a name, or with one of more than 127 bytes");
    else if (twice) fail(c, "a key that is there already");
    if (c->failed) return json_decref(v), false;
    return !json_object_set_new(all, name, v) || fail(c, "a key that is no UTF-8");
}

static json_t *metadata(struct cursor *c, uint64_t count)
{
    char name[LONGEST_NAME];
    json_t *all = json_object();
    if (!all) fail(c, "out of memory");
    for (uint64_t i = 0; i < count && !c->failed; i++) {
        text(c, name, sizeof name);
        json_t *v = c->failed ? NULL : value(c);
        add_value(c, all, name, v);
    }
    return all;
}

/* ---- Tensors ---- */

/* ggml's types, but those that it has given up. Blocks lie along rows. */
static const struct {
    uint32_t number;
    const char *name;
    int block, block_bytes;
    coda_dtype dtype;
} types[] = {{0, "F32", 1, 4, CODA_F32},  {1, "F16", 1, 2, CODA_F16},  {30, "BF16", 1, 2, CODA_BF16},
             {28, "F64", 1, 8, 0},        {24, "I8", 1, 1, 0},         {25, "I16", 1, 2, 0},
             {26, "I32", 1, 4, 0},        {27, "I64", 1, 8, 0},        {2, "Q4_0", 32, 18, 0},
             {3, "Q4_1", 32, 20, 0},      {6, "Q5_0", 32, 22, 0},      {7, "Q5_1", 32, 24, 0},
             {8, "Q8_0", 32, 34, 0},      {9, "Q8_1", 32, 36, 0},      {10, "Q2_K", 256, 84, 0},
             {11, "Q3_K", 256, 110, 0},   {12, "Q4_K", 256, 144, 0},   {13, "Q5_K", 256, 176, 0},
             {14, "Q6_K", 256, 210, 0},   {15, "Q8_K", 256, 292, 0},   {16, "IQ2_XXS", 256, 66, 0},
             {17, "IQ2_XS", 256, 74, 0},  {18, "IQ3_XXS", 256, 98, 0}, {19, "IQ1_S", 256, 50, 0},
             {20, "IQ4_NL", 32, 18, 0},   {21, "IQ3_S", 256, 110, 0},  {22, "IQ2_S", 256, 82, 0},
             {23, "IQ4_XS", 256, 136, 0}, {29, "IQ1_M", 256, 56, 0},   {34, "TQ1_0", 256, 54, 0},
             {35, "TQ2_0", 256, 66, 0},   {39, "MXFP4", 32, 17, 0},    {40, "NVFP4", 64, 36, 0}};

static bool tensor_type(struct cursor *c, uint32_t n, const char *name, struct stored_tensor *t)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == n) {
            snprintf(t->type, sizeof t->type, "%s", types[i].name);
            t->dtype = types[i].dtype;
            t->block = types[i].block;
            t->block_bytes = types[i].block_bytes;
            return true;
        }
    c->failed = true;
    return fault_set(c->fault, "%s: tensor %s: type %u is not known", c->file, name, (unsigned)n);
}

/* Dimensions, of which the fastest comes first, and the bytes that they take. */
static bool tensor_shape(struct cursor *c, const char *name, const uint64_t *dims, struct stored_tensor *t)
{
    for (int i = 0; i < t->rank; i++) t->dims[t->rank - 1 - i] = dims[i] > INT64_MAX ? -1 : (int64_t)dims[i];
    int64_t row = t->rank ? t->dims[t->rank - 1] : 1;
    if (row < 0 || row % t->block == 0)
        return stored_measure(t) < 0 || fail(c, "a dimension is out of range");
    c->failed = true;
    return fault_set(c->fault, "%s: tensor %s: rows of %lld elements are no blocks of %d, as %s has them",
                     c->file, name, (long long)row, t->block, t->type);
}

/* All but where it lies: t->data is its offset in the data, until that begins. */
static void tensor(struct cursor *c, struct checkpoint *to, const char *architecture)
{
    char name[LONGEST_NAME], known[LONGEST_NAME + 64];
    struct stored_tensor t = {0};
    text(c, name, sizeof name);
    uint64_t rank = number(c, 4), dims[CODA_MAX_RANK];
    if (c->failed) return;
    if (!*name) return (void)fail(c, "a tensor without a name, or with one that is too long");
    if (rank > CODA_MAX_RANK) return (void)fail(c, "a tensor of too many dimensions");
    for (uint64_t i = 0; i < rank; i++) dims[i] = number(c, 8);
    uint32_t type = (uint32_t)number(c, 4);
    t.data = (const unsigned char *)(uintptr_t)number(c, 8);
    t.rank = (int)rank;
    if (c->failed || !tensor_type(c, type, name, &t) || !tensor_shape(c, name, dims, &t)) return;
    gguf_name(architecture, name, known, sizeof known);
    if (!c->failed && !checkpoint_add(to, &t, known, name, c->fault)) c->failed = true;
}

static int by_data(const void *a, const void *b)
{
    const struct stored_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* From offsets to addresses. */
static bool place(struct cursor *c, struct checkpoint *to, int first, uint64_t alignment)
{
    size_t begin = (c->at + alignment - 1) / alignment * alignment;
    size_t left = begin < c->bytes ? c->bytes - begin : 0;
    for (int i = first; i < to->count; i++) {
        struct stored_tensor *t = &to->tensor[i];
        size_t offset = (size_t)(uintptr_t)t->data;
        if (offset % alignment || offset > left || t->bytes > left - offset)
            return fault_set(
                c->fault, "%s: tensor %s: %zu bytes at offset %zu are not in the %zu bytes of data, by %zu",
                c->file, t->name, t->bytes, offset, left, (size_t)alignment);
        t->data = c->data + begin + offset;
    }
    if (to->count > first)
        qsort(to->tensor + first, (size_t)(to->count - first), sizeof *to->tensor, by_data);
    for (int i = first + 1; i < to->count; i++)
        if (to->tensor[i - 1].data + to->tensor[i - 1].bytes > to->tensor[i].data)
            return fault_set(c->fault, "%s: tensors %s and %s overlap", c->file, to->tensor[i - 1].name,
                             to->tensor[i].name);
    return true;
}

/* ---- The file ---- */

static bool read_tensors(struct cursor *c, struct checkpoint *to, const json_t *meta, uint64_t count,
                         const char *architecture)
{
    json_t *a = json_object_get(meta, "general.alignment");
    json_int_t alignment = a ? json_integer_value(a) : ALIGNMENT;
    int first = to->count;
    if (alignment < 1 || alignment > 1 << 20 || (alignment & (alignment - 1)))
        return fail(c, "general.alignment is no power of two");
    for (uint64_t i = 0; i < count && !c->failed; i++) tensor(c, to, architecture);
    return !c->failed && place(c, to, first, (uint64_t)alignment) && checkpoint_sort(to, c->fault);
}

/* The header, and all metadata; the number of tensors, which come next. */
static json_t *begin(struct cursor *c, uint64_t *tensors)
{
    if (c->bytes < 4 || memcmp(c->data, "GGUF", 4)) return fail(c, "no GGUF file"), NULL;
    c->at = 4;
    uint64_t version = number(c, 4), values;
    *tensors = number(c, 8);
    values = number(c, 8);
    if (!c->failed && version != 2 && version != 3)
        return fail(c, "GGUF of another version than 2 or 3"), NULL;
    json_t *meta = metadata(c, values);
    if (!c->failed) return meta;
    json_decref(meta);
    return NULL;
}

/* ---- Parts: NAME-00001-of-0000N.gguf and so on, of which the first one has all metadata ---- */

static json_int_t said(const json_t *meta, const char *name, json_int_t otherwise)
{
    const json_t *v = json_object_get(meta, name);
    return v ? json_is_integer(v) ? json_integer_value(v) : -1 : otherwise;
}

/* What a part has beside its number would be passed over. */
static bool only_split(const json_t *meta, const char *file, struct fault *f)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)meta, name, v)
    {
        if (strncmp(name, "split.", 6) && strcmp(name, "general.alignment"))
            return fault_set(f, "%s: key '%.100s' is not known in a part behind the first", file, name);
    }
    return true;
}

static bool read_part(struct checkpoint *to, const char *path, json_int_t no, json_int_t count,
                      const char *architecture, struct fault *f)
{
    struct mapped_file map;
    uint64_t tensors;
    if (!checkpoint_map(to, path, &map, f)) return false;
    struct cursor c = {.data = map.data, .bytes = map.bytes, .file = path, .fault = f};
    json_t *meta = begin(&c, &tensors);
    bool good = meta && only_split(meta, path, f);
    if (good && (said(meta, "split.no", -1) != no || said(meta, "split.count", -1) != count))
        good = fault_set(f, "%s: it is not part %lld of %lld", path, (long long)no + 1, (long long)count);
    good = good && read_tensors(&c, to, meta, tensors, architecture);
    json_decref(meta);
    return good;
}

static bool read_parts(struct checkpoint *to, const char *file, const json_t *meta, const char *architecture,
                       struct fault *f)
{
    json_int_t count = said(meta, "split.count", 1), no = said(meta, "split.no", 0);
    char end[32], path[PATH_MAX];
    int n = snprintf(end, sizeof end, "-00001-of-%05d.gguf", (int)(count & 0xffff));
    size_t length = strlen(file);
    bool named = length > (size_t)n && length < sizeof path && !strcmp(file + length - n, end);
    if (count < 0 || count > MOST_PARTS) return fault_set(f, "%s: split.count is out of range", file);
    if (no != 0 || (count > 1 && !named))
        return fault_set(f, "%s: part %lld of %lld, and no ...%s: the first part is what is opened", file,
                         (long long)no + 1, (long long)count, end);
    for (json_int_t i = 1; i < count; i++) {
        snprintf(path, sizeof path, "%.*s-%05d-of-%05d.gguf", (int)(length - (size_t)n), file, (int)i + 1,
                 (int)count);
        if (!read_part(to, path, i, count, architecture, f)) return false;
    }
    json_int_t tensors = said(meta, "split.tensors.count", to->count);
    return tensors == to->count ||
           fault_set(f, "%s: %d tensors in all parts, but split.tensors.count is %lld", file, to->count,
                     (long long)tensors);
}

bool gguf_read(struct checkpoint *to, const char *file, const struct mapped_file *map, struct fault *f)
{
    struct cursor c = {.data = map->data, .bytes = map->bytes, .file = file, .fault = f};
    uint64_t tensors;
    json_t *meta = begin(&c, &tensors);
    const char *architecture = json_string_value(json_object_get(meta, "general.architecture"));
    bool good = meta && (architecture || fail(&c, "general.architecture is missing")) &&
                read_tensors(&c, to, meta, tensors, architecture) &&
                read_parts(to, file, meta, architecture, f) &&
                (to->config = gguf_config(to, file, meta, f)) != NULL;
    json_decref(meta);
    return good;
}

json_t *gguf_metadata(const char *file, const struct mapped_file *map, struct fault *f)
{
    struct cursor c = {.data = map->data, .bytes = map->bytes, .file = file, .fault = f, .lists = true};
    uint64_t tensors;
    return begin(&c, &tensors);
}
