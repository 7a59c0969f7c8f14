/* module.h -- what loaded.c, module.c and launch.c share. */
#ifndef MODULE_H
#define MODULE_H

#include "cache.h"
#include "driver.h"

struct jit_kernel {
    const struct driver *driver; /* so that a launch looks nothing up */
    CUlibrary library;
    CUfunction function; /* a CUkernel: its context is the stream's */
    CUcontext context;   /* for a thread that has none */
    size_t parameters;   /* bytes of the one parameter */
    CUresult failure;    /* of loading */
    char symbol[128];
    const struct cache_value *value; /* holds the image, as long as the kernel is loaded; or NULL */
    const void *image;
    size_t image_size;
    struct kernel_id { /* kernels that are alike in it and in their images are one */
        struct digest image;
        unsigned long long context; /* its number: addresses are used again */
        int shared_bytes;
    } id;
    int users; /* of loaded.c, as are these */
    struct jit_kernel *newer, *older;
};

/* module.c -- k has driver, context and symbol. *refused: the driver does not take the image. */
coda_status module_load(struct jit_kernel *k, const struct jit_cubin *c, int shared_bytes,
                        const struct jit_device *dev, bool *refused, char *err);
void module_unload(struct jit_kernel *k);

#endif
