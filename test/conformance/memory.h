/* memory.h -- poisoned memory of the host or of the first GPU, with bytes behind it that must stay. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* From now on memory is the GPU's; false without one. */
bool memory_use_gpu(void);

/* Ends the process if there is none left. */
void *memory_new(size_t bytes, unsigned char poison);
void memory_free(void *p);
void memory_fill(void *p, unsigned char byte, size_t bytes);
void memory_put(void *to, const void *from, size_t bytes);
void memory_get(void *to, const void *from, size_t bytes); /* waits for all work */
/* Are the bytes behind it as they were? */
bool memory_is_intact(const void *p, size_t bytes);

#endif
