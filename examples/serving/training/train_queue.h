/*
 * train_queue.h -- work in the order in which a device does it, while the host prepares what follows. On the
 * CPU device each call does its work before it returns.
 */
#ifndef TRAIN_QUEUE_H
#define TRAIN_QUEUE_H

#include "device.h"
#include "fault.h"

/* A plan with its memory. On a GPU its launches are captured in a CUDA graph, so that nothing of what changes
 * from run to run may be an argument in host memory (coda_scalar). */
struct program {
    coda_plan *plan;
    void **args;
    void *workspace;
    gpu_replay replay;
};

enum { UPLOADS = 8, DOWNLOADS = 2 }; /* that may be under way */

/* Memory of the host that copies of the stream read or write, and when the last one is done. */
struct staging {
    char *memory;
    gpu_event done;
    bool busy;
};

struct queue {
    struct device *device;
    coda_stream stream;
    struct staging up[UPLOADS], down[DOWNLOADS];
    int uploads, downloads, read; /* numbers of the next ones */
};

/* `upload` and `download`: the bytes of one, at most. */
bool queue_open(struct queue *q, struct device *d, size_t upload, size_t download, struct fault *f);
void queue_close(struct queue *q);

/* Makes a program ready to run, once its arguments are bound. */
bool queue_program(struct queue *q, struct program *p, struct fault *f);
void queue_program_free(struct queue *q, struct program *p);
bool queue_run(struct queue *q, const struct program *p, struct fault *f);

/* All bytes 0. */
bool queue_clear(struct queue *q, void *p, size_t bytes, struct fault *f);
/* `from` may be written to as soon as the call returns, which waits for an older upload if UPLOADS are under
 * way. */
bool queue_upload(struct queue *q, void *to, const void *from, size_t bytes, struct fault *f);
/* What is there then goes to the host: queue_downloaded waits for the oldest that nobody has taken. There are
 * DOWNLOADS of these, at most. The memory is good until as many more have begun. */
bool queue_download(struct queue *q, const void *from, size_t bytes, struct fault *f);
const void *queue_downloaded(struct queue *q, struct fault *f);
/* Waits for all. */
bool queue_wait(struct queue *q, struct fault *f);

#endif
