/* module.h -- what module.c and launch.c share. */
#ifndef MODULE_H
#define MODULE_H

#include "driver.h"

struct jit_kernel {
    const struct driver *driver; /* so that a launch looks nothing up                              */
    CUlibrary library;
    CUfunction function;         /* a CUkernel: its context is the stream's                        */
    CUcontext context;           /* for a thread that has none                                     */
    size_t parameters;           /* bytes of the one parameter                                     */
    char symbol[128];
};

#endif
