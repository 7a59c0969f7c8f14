/* cpu_memory.c -- where a program's buffers are in one call, and how they are read. */
#include "cpu.h"

void *cpu_buffer(const struct cpu *c, int buffer)
{
    const struct buffer *b = &c->plan->buffer[buffer];
    switch (b->space) {
    case SPACE_ARG: return c->args[b->arg];
    case SPACE_WORK: return c->workspace + b->offset;
    case SPACE_PREPARED: return c->prepared + b->offset;
    }
    return NULL;
}

void cpu_read(float *out, coda_dtype t, const void *base, int64_t at, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)dtype_load(t, base, at + i * stride);
}
