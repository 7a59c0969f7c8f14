/* addresses.c -- do a call's tensors lie where they did? One call instead of one for each of hundreds of
 * weights, which is most of what a call of a compiled graph costs the host. libcoda/_addresses.py calls it,
 * with the interpreter's lock.
 *
 * It reads a tensor by the function of PyTorch's C interface for compiled models, aoti_torch_get_data_ptr
 * (torch/csrc/inductor/aoti_torch/c/shim.h), and knows none of Python's headers. */
#include <stdint.h>

/* A handle is the address of an at::Tensor; not 0 where it has no memory. */
typedef int32_t get_data_ptr(const void *handle, void **out);

#define EXPORTED __attribute__((visibility("default")))

/* As libcoda/_addresses.py writes it, a word each. An object has its at::Tensor `inside` bytes behind its
 * beginning. One that is not asked about is known as NULL. */
struct question {
    get_data_ptr *get;
    const char *const *known;
    const uint64_t *at;
    int64_t n, inside;
};

/* 1 if each object is the known one, and its elements lie at `at`; 0 if one is or does not, or cannot be
 * read. */
EXPORTED int coda_python_unmoved(const char *const *object, const struct question *q)
{
    for (int64_t i = 0; i < q->n; i++) {
        void *data;
        if (!q->known[i]) continue;
        if (object[i] != q->known[i] || q->get(object[i] + q->inside, &data)) return 0;
        if ((uintptr_t)data != q->at[i]) return 0;
    }
    return 1;
}
