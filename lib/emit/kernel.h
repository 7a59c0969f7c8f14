/* kernel.h -- what emit_*.c makes of a program and its schedule: CUDA text, its signature and its launch. */
#ifndef KERNEL_H
#define KERNEL_H

#include "plan.h"

/* A tiled tensor map (cuTensorMapEncodeTiled), innermost dimension first; swizzle is the box's inner
 * bytes: 0, 32, 64 or 128. */
struct map_spec {
    int buffer;
    int64_t offset;  /* elements */
    int64_t by_rank; /* bytes, as a tensor_use has it */
    int ahead;
    coda_dtype dtype;
    int rank;
    int64_t dim[5], stride[5]; /* elements; stride[0] is 1 */
    int box[5];                /* elements that one copy moves, along each dimension */
    int swizzle;
    int l2_promotion; /* bytes that L2 fetches where a copy reads fewer: 0, 64, 128 or 256 */
};

struct pointer_spec { /* a buffer's start + bytes */
    int buffer;
    int64_t bytes, by_rank; /* by_rank: bytes, as a tensor_use has it */
    int ahead;
};
static inline struct pointer_spec pointer_of(const struct tensor_use *u)
{
    return (struct pointer_spec){u->buffer, use_start(u), dtype_bytes(u->dtype, u->by_rank), u->ahead};
}

struct scalar_spec { /* an argument of 4 bytes: in host memory, or a number that the plan knows */
    int buffer;      /* SCALAR_NUMBER: the latter, such as a product's rows */
    uint32_t number;
};
enum { SCALAR_NUMBER = -1 };

struct launch_spec {
    int64_t grid; /* blocks, 1-D, as in struct schedule */
    int cluster, threads, shared_bytes;
    bool persistent, early, streams; /* streams: as struct mainloop has it */
    bool guest;                      /* stands on an SM beside a block that has nearly all of its memory */
};

/* The parameter of the kernel is one struct: `maps` tensor maps of 128 bytes, then `pointers` device
 * pointers, then `scalars` numbers of 4 bytes; or such a struct for each of some programs. */
struct kernel {
    const char *symbol; /* coda_gemm_mul_relu */
    const char *text;
    int maps, pointers, scalars;
    int map_room, pointer_room, scalar_room; /* how many there is memory for; emit_fits */
    int members;    /* programs of its launch: over 1, each has such a struct, all in one of members.cuh */
    int64_t beyond; /* a number for which a parameter has no room; 0: there is none */
    struct map_spec *map;
    struct pointer_spec *pointer;
    struct scalar_spec *scalar;
    struct launch_spec launch;
};

/* The part of a kernel that is text. */
struct wording {
    const char *symbol, *text;
};

/* Blocks to launch where there are so many SMs. */
int64_t kernel_blocks(const struct launch_spec *l, int sms);
/* Bytes of the struct; and from one member's to the next's, in a struct of all. */
static inline int64_t kernel_bytes(const struct kernel *k)
{
    return (int64_t)k->maps * 128 + (int64_t)k->pointers * 8 + (int64_t)k->scalars * 4;
}
static inline int64_t kernel_stride(const struct kernel *k)
{
    int64_t align = k->maps ? 64 : k->pointers ? 8 : 4;
    return CEIL_DIV(kernel_bytes(k), align) * align;
}
static inline int64_t kernel_members_bytes(const struct kernel *k)
{
    enum { PLACE = 8 }; /* of each, its first block and how many it has */
    return k->members * (kernel_stride(k) + PLACE);
}

#endif
