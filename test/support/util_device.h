/* util_device.h -- device memory for the GPU tests, by the driver's own calls. */
#ifndef UTIL_DEVICE_H
#define UTIL_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "jit.h"

/* Opens the device and the calls below; false with the reason in err. */
bool device_open(struct jit_device *out, char *err);
/* The same with the SM in software that lies beside this program. */
bool device_open_emulated(struct jit_device *out, char *err);
/* The primary contexts of the first GPUs, so many at most; makes one the thread's. */
int device_contexts(void **context, int most);
/* One more of this GPU, which stays, and is not the thread's yet; NULL: none. */
void *device_context_new(int ordinal);
bool device_use(void *context); /* NULL: the thread has none */
void *device_current(void);
/* Is it test/emulator's? It takes its time, and has no cuBLASLt. */
bool device_emulated(const struct jit_device *d);
/* Is the driver that of test/fake/dry.c, on which plans are made and compiled, and nothing runs? Then what
 * a run leaves says nothing, and who would compare it does not. */
bool device_dry(void);
/* NULL when there is none left. 256-byte aligned. */
void *device_alloc(size_t bytes);
void device_free(void *p);
bool device_upload(void *to, const void *from, size_t bytes);
bool device_download(void *to, const void *from, size_t bytes);
bool device_fill(void *to, unsigned char byte, size_t bytes);
/* Waits for all work; false if some of it failed. */
bool device_wait(void);

/* A stream that does not wait for others, and what is captured on it, which may be launched again and again.
 * NULL or false if the driver refuses. NULL may be given back. */
void *device_stream_new(void);
void *device_stream_new_blocking(void); /* one that waits for the default stream, and makes it wait */
bool device_stream_wait(void *stream);
bool device_capture_begin(void *stream);
bool device_capture_begin_beside(void *stream); /* whatever other threads do meanwhile */
void *device_capture_end(void *stream);         /* ready to be launched */
bool device_replay(void *captured, void *stream);
const char *device_reason(void); /* why this thread's last replay was refused */
void device_captured_free(void *captured);
void device_stream_free(void *stream);

/* Wall time in seconds, for use after device_wait(). */
double device_clock(void);

#endif
