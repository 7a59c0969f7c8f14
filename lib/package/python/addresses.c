/* addresses.c -- do a call's tensors lie where they did? One call instead of one for each of hundreds of
 * weights, which is most of what a call of a compiled graph costs the host. libcoda/_addresses.py calls it,
 * with the interpreter's lock.
 *
 * It reads tensors by the table of functions that DLPack's exchange protocol gives for their type
 * (`__dlpack_c_exchange_api__`, dlpack.h 1.3), and knows none of Python's headers. */
#include <stdint.h>

/* As dlpack.h has it. */
struct dl_tensor {
    void *data;
    int32_t device[2], ndim, dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

typedef int read_tensor(void *object, struct dl_tensor *out);

#define EXPORTED __attribute__((visibility("default")))

/* 1 if each object is the known one, and its elements lie at `at`; 0 if one is or does not; -1 if one cannot
 * be read, with Python's exception set. An object that is not asked about is known as NULL. */
EXPORTED int coda_python_unmoved(read_tensor *read, void *const *object, void *const *known,
                                 const uint64_t *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        struct dl_tensor t;
        if (!known[i]) continue;
        if (object[i] != known[i]) return 0;
        if (read(object[i], &t)) return -1;
        if ((uintptr_t)t.data + t.byte_offset != at[i]) return 0;
    }
    return 1;
}
