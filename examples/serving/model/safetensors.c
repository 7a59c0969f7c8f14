/*
 * safetensors.c -- the tensors of a .safetensors file.
 *
 * The file is a header's length in 8 bytes, the header, which is JSON, and the data. The header has for each
 * tensor its dtype, shape, and where it begins and ends in the data, which the tensors cover without a gap.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"

enum { LENGTH_BYTES = 8, MOST_HEADER = 100 << 20 };

/* All that the format has; those below a byte lie without gaps. */
static const struct {
    const char *name;
    int block, block_bytes;
    coda_dtype dtype;
} types[] = {
    {"F32", 1, 4, CODA_F32},  {"F16", 1, 2, CODA_F16}, {"BF16", 1, 2, CODA_BF16}, {"F64", 1, 8, 0},
    {"F8_E4M3", 1, 1, 0},     {"F8_E5M2", 1, 1, 0},    {"F8_E8M0", 1, 1, 0},      {"F8_E4M3FNUZ", 1, 1, 0},
    {"F8_E5M2FNUZ", 1, 1, 0}, {"F6_E2M3", 4, 3, 0},    {"F6_E3M2", 4, 3, 0},      {"F4", 2, 1, 0},
    {"C64", 1, 8, 0},         {"BOOL", 1, 1, 0},       {"I8", 1, 1, 0},           {"U8", 1, 1, 0},
    {"I16", 1, 2, 0},         {"U16", 1, 2, 0},        {"I32", 1, 4, 0},          {"U32", 1, 4, 0},
    {"I64", 1, 8, 0},         {"U64", 1, 8, 0}};

/* Where a tensor lies, to see that all of them cover the data. */
struct extent {
    size_t begin, end;
    const char *name;
};

struct header {
    struct checkpoint *to;
    const char *file;
    const unsigned char *data;
    size_t bytes; /* of the data */
    struct extent *extent;
    size_t extents;
};

static uint64_t little_endian(const unsigned char *p)
{
    uint64_t x = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) x = x << 8 | p[i];
    return x;
}

/* false, and the fault, if it is not known. */
static bool read_type(const struct header *h, const char *name, json_t *info, struct stored_tensor *t,
                      struct fault *f)
{
    const char *type = json_string_value(json_object_get(info, "dtype"));
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++)
        if (!strcmp(type, types[i].name)) {
            t->dtype = types[i].dtype;
            t->block = types[i].block;
            t->block_bytes = types[i].block_bytes;
            memcpy(t->type, types[i].name, strlen(types[i].name) + 1);
            return true;
        }
    return fault_set(f, "%s: tensor %s: dtype '%.32s' is not known", h->file, name, type ? type : "none");
}

/* The shape, and the bytes that it takes. */
static bool read_shape(const struct header *h, const char *name, json_t *info, struct stored_tensor *t,
                       struct fault *f)
{
    json_t *shape = json_object_get(info, "shape");
    size_t rank = json_array_size(shape);
    if (!json_is_array(shape) || rank > CODA_MAX_RANK)
        return fault_set(f, "%s: tensor %s: the shape is no list of at most %d numbers", h->file, name,
                         CODA_MAX_RANK);
    t->rank = (int)rank;
    for (size_t d = 0; d < rank; d++) {
        json_t *dim = json_array_get(shape, d);
        t->dims[d] = json_is_integer(dim) ? json_integer_value(dim) : -1;
    }
    int wrong = stored_measure(t);
    return wrong < 0 ||
           fault_set(f, "%s: tensor %s: dimension %d of its shape is out of range", h->file, name, wrong);
}

static bool read_offsets(const struct header *h, const char *name, json_t *info, struct extent *x,
                         struct fault *f)
{
    json_t *at = json_object_get(info, "data_offsets");
    json_t *begin = json_array_get(at, 0), *end = json_array_get(at, 1);
    if (json_array_size(at) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return fault_set(f, "%s: tensor %s: data_offsets are no two numbers", h->file, name);
    long long b = json_integer_value(begin), e = json_integer_value(end);
    if (b < 0 || e < b || (unsigned long long)e > h->bytes)
        return fault_set(f, "%s: tensor %s: offsets %lld to %lld are not in the %zu bytes of data", h->file,
                         name, b, e, h->bytes);
    *x = (struct extent){(size_t)b, (size_t)e, name};
    return true;
}

static bool read_tensor(struct header *h, const char *name, json_t *info, struct fault *f)
{
    struct stored_tensor t = {0};
    struct extent x;
    if (!read_type(h, name, info, &t, f) || !read_shape(h, name, info, &t, f) ||
        !read_offsets(h, name, info, &x, f))
        return false;
    if (json_object_size(info) != 3)
        return fault_set(f, "%s: tensor %s: it has more than dtype, shape and data_offsets", h->file, name);
    if (x.end - x.begin != t.bytes)
        return fault_set(f, "%s: tensor %s: %zu bytes at offset %zu, but its shape in %s takes %zu", h->file,
                         name, x.end - x.begin, x.begin, t.type, t.bytes);
    t.data = h->data + x.begin;
    h->extent[h->extents++] = x;
    return checkpoint_add(h->to, &t, name, name, f);
}

static int by_begin(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Each tensor begins where the one before ends, and the last one ends where the file does. */
static bool cover(struct header *h, struct fault *f)
{
    size_t at = 0;
    if (h->extents) qsort(h->extent, h->extents, sizeof *h->extent, by_begin);
    for (size_t i = 0; i < h->extents; at = h->extent[i++].end) {
        const struct extent *x = &h->extent[i];
        if (x->begin < at)
            return fault_set(f, "%s: tensor %s at offset %zu overlaps %s, which ends at %zu", h->file,
                             x->name, x->begin, x[-1].name, at);
        if (x->begin > at)
            return fault_set(f, "%s: bytes %zu to %zu of the data belong to no tensor", h->file, at,
                             x->begin);
    }
    return at == h->bytes ||
           fault_set(f, "%s: bytes %zu to %zu of the data belong to no tensor", h->file, at, h->bytes);
}

static bool read_header(struct header *h, json_t *object, struct fault *f)
{
    const char *name;
    json_t *info;
    json_object_foreach(object, name, info)
    {
        if (!strcmp(name, "__metadata__")) continue;
        if (!*name || !json_is_object(info))
            return fault_set(f, "%s: tensor '%s': no object describes it", h->file, name);
        if (!read_tensor(h, name, info, f)) return false;
    }
    return cover(h, f);
}

bool safetensors_read(struct checkpoint *c, const char *file, const struct mapped_file *map, struct fault *f)
{
    json_error_t e;
    if (map->bytes < LENGTH_BYTES)
        return fault_set(f, "%s: %zu bytes are no safetensors file", file, map->bytes);
    uint64_t length = little_endian(map->data);
    size_t rest = map->bytes - LENGTH_BYTES;
    if (length > rest || length > MOST_HEADER)
        return fault_set(f, "%s: a header of %llu bytes, but %zu follow, and %d are the most", file,
                         (unsigned long long)length, rest, MOST_HEADER);
    json_t *object =
        json_loadb((const char *)map->data + LENGTH_BYTES, (size_t)length, JSON_REJECT_DUPLICATES, &e);
    if (!json_is_object(object)) {
        fault_set(f, "%s: the header is no JSON object: %s", file, object ? "another value" : e.text);
        json_decref(object);
        return false;
    }
    struct header h = {
        .to = c, .file = file, .data = map->data + LENGTH_BYTES + length, .bytes = rest - length};
    h.extent = calloc(json_object_size(object) + 1, sizeof *h.extent);
    bool good = h.extent ? read_header(&h, object, f) : fault_set(f, "%s: out of memory", file);
    free(h.extent);
    json_decref(object);
    return good;
}
