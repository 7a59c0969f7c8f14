/* addresses.c -- are a call's tensors what they were, where they were? One call instead of five for each of
 * hundreds of weights, which is most of what a call of a compiled graph costs the host.
 * libcoda/_addresses.py calls it, with the interpreter's lock.
 *
 * It reads a tensor by functions of PyTorch's C interface for compiled models, aoti_torch_get_*
 * (torch/csrc/inductor/aoti_torch/c/shim.h), and knows none of Python's headers. */
#include <stdint.h>

/* A handle is the address of an at::Tensor; each gives 0 if it could be read. */
typedef int32_t get_pointer(const void *handle, void **out);
typedef int32_t get_number(const void *handle, int64_t *out);
typedef int32_t get_numbers(const void *handle, int64_t **out);
typedef int32_t get_word(const void *handle, int32_t *out);

#define EXPORTED __attribute__((visibility("default")))

/* As libcoda/_addresses.py writes it, a word each. An object has its at::Tensor `inside` bytes behind its
 * beginning. One that is not asked about is known as NULL. `forms` has of each of the others the address of
 * its elements, its dtype, how many dimensions it has, their sizes and their strides. */
struct question {
    get_pointer *address;
    get_word *dtype;
    get_number *dimensions;
    get_numbers *sizes, *strides;
    const char *const *known;
    int64_t *forms, n, inside;
};

/* What a tensor is at present; `address` is not 0 where it has no memory. */
struct form {
    void *address;
    int64_t *sizes, *strides, dimensions;
    int32_t dtype;
};

static int read_form(const struct question *q, const void *tensor, struct form *f)
{
    return !q->address(tensor, &f->address) && !q->dtype(tensor, &f->dtype) &&
           !q->dimensions(tensor, &f->dimensions) && !q->sizes(tensor, &f->sizes) &&
           !q->strides(tensor, &f->strides);
}

/* 1 if each object is the known one, and its tensor lies and looks as `forms` says; 0 if not, or if one
 * cannot be read. */
EXPORTED int coda_python_unmoved(const char *const *object, const struct question *q)
{
    const int64_t *known = q->forms;
    struct form f;
    for (int64_t i = 0; i < q->n; i++) {
        if (!q->known[i]) continue;
        if (object[i] != q->known[i] || !read_form(q, object[i] + q->inside, &f)) return 0;
        if ((int64_t)(intptr_t)f.address != known[0] || f.dtype != known[1] || f.dimensions != known[2])
            return 0;
        known += 3;
        for (int64_t k = 0; k < f.dimensions; k++)
            if (f.sizes[k] != known[k] || f.strides[k] != known[k + f.dimensions]) return 0;
        known += 2 * f.dimensions;
    }
    return 1;
}

/* Writes `forms`, of which there is room for `room` words; 0 if that is too few, or one cannot be read. */
EXPORTED int coda_python_note(const char *const *object, const struct question *q, int64_t room)
{
    int64_t *out = q->forms, *end = out + room;
    struct form f;
    for (int64_t i = 0; i < q->n; i++) {
        if (!q->known[i]) continue;
        if (!read_form(q, object[i] + q->inside, &f) || end - out < 3 + 2 * f.dimensions) return 0;
        *out++ = (int64_t)(intptr_t)f.address;
        *out++ = f.dtype;
        *out++ = f.dimensions;
        for (int64_t k = 0; k < f.dimensions; k++) *out++ = f.sizes[k];
        for (int64_t k = 0; k < f.dimensions; k++) *out++ = f.strides[k];
    }
    return 1;
}
