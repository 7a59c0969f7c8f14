/*
 * queue.c -- a stream, the host's memory of its copies, and captured plans.
 */
#include <stdlib.h>
#include <string.h>

#include "train_queue.h"

enum { WITHOUT_TIME = 2 /* CU_EVENT_DISABLE_TIMING */ };

static bool stage(struct queue *q, struct staging *s, size_t bytes)
{
    struct gpu *gpu = &q->device->gpu;
    if (!q->device->on_gpu) return (s->memory = malloc(bytes ? bytes : 1)) != NULL;
    return !gpu->event_new(&s->done, WITHOUT_TIME) &&
           !gpu->host_alloc((void **)&s->memory, bytes ? bytes : 1);
}

static void unstage(struct queue *q, struct staging *s)
{
    struct gpu *gpu = &q->device->gpu;
    if (!q->device->on_gpu) free(s->memory);
    else if (s->memory) gpu->host_free(s->memory);
    if (s->done) gpu->event_free(s->done);
    *s = (struct staging){.memory = NULL};
}

bool queue_open(struct queue *q, struct device *d, size_t upload, size_t download, struct fault *f)
{
    *q = (struct queue){.device = d};
    bool good = !d->on_gpu || !d->gpu.stream_new(&q->stream, 0);
    if (!good) return fault_set(f, "there is no stream on %s", device_name(d));
    for (int i = 0; good && i < UPLOADS && d->on_gpu; i++) good = stage(q, &q->up[i], upload);
    for (int i = 0; good && i < DOWNLOADS; i++) good = stage(q, &q->down[i], download);
    return good || fault_set(f, "there is no memory of the host for copies of %zu bytes to %s", upload,
                             device_name(d));
}

void queue_close(struct queue *q)
{
    if (!q->device) return;
    if (q->stream) q->device->gpu.stream_wait(q->stream);
    for (int i = 0; i < UPLOADS; i++) unstage(q, &q->up[i]);
    for (int i = 0; i < DOWNLOADS; i++) unstage(q, &q->down[i]);
    if (q->stream) q->device->gpu.stream_free(q->stream);
    *q = (struct queue){.device = NULL};
}

/* ---- Programs ---- */

static bool launch(struct queue *q, const struct program *p, struct fault *f)
{
    return coda_run(p->plan, p->args, NULL, p->workspace, q->stream) == CODA_OK ||
           fault_set(f, "%s", coda_error());
}

bool queue_program(struct queue *q, struct program *p, struct fault *f)
{
    struct gpu *gpu = &q->device->gpu;
    gpu_graph graph = NULL;
    if (!q->device->on_gpu) return true;
    if (gpu->capture_begin(q->stream, 0)) return fault_set(f, "the stream cannot be captured");
    bool good = launch(q, p, f);
    if (gpu->capture_end(q->stream, &graph)) return good && fault_set(f, "the capture failed");
    good = good && (!gpu->replay_new(&p->replay, graph, 0) ||
                    fault_set(f, "a plan cannot be made into a CUDA graph"));
    if (graph) gpu->graph_free(graph);
    return good;
}

void queue_program_free(struct queue *q, struct program *p)
{
    if (p->replay) q->device->gpu.replay_free(p->replay);
    coda_plan_free(p->plan);
    free(p->args);
    *p = (struct program){.plan = NULL};
}

bool queue_run(struct queue *q, const struct program *p, struct fault *f)
{
    if (!q->device->on_gpu) return launch(q, p, f);
    return !q->device->gpu.replay_run(p->replay, q->stream) ||
           fault_set(f, "the CUDA graph of a plan cannot be launched");
}

/* ---- Copies ---- */

/* In the default stream, which is in order with a stream that was made without flags, and whose host does
 * not wait. */
bool queue_clear(struct queue *q, void *p, size_t bytes, struct fault *f)
{
    return device_clear(q->device, p, bytes) ||
           fault_set(f, "%zu bytes on %s cannot be cleared", bytes, device_name(q->device));
}

static bool wait_for(struct queue *q, struct staging *s)
{
    bool good = !s->busy || !q->device->on_gpu || !q->device->gpu.event_wait(s->done);
    s->busy = false;
    return good;
}

bool queue_upload(struct queue *q, void *to, const void *from, size_t bytes, struct fault *f)
{
    struct gpu *gpu = &q->device->gpu;
    struct staging *s = &q->up[q->uploads++ % UPLOADS];
    if (!q->device->on_gpu) return memcpy(to, from, bytes), true;
    if (!wait_for(q, s)) return fault_set(f, "a step failed on %s", device_name(q->device));
    memcpy(s->memory, from, bytes);
    s->busy = true;
    return (!gpu->upload_later((gpu_address)to, s->memory, bytes, q->stream) &&
            !gpu->event_record(s->done, q->stream)) ||
           fault_set(f, "%zu bytes cannot be copied to %s", bytes, device_name(q->device));
}

bool queue_download(struct queue *q, const void *from, size_t bytes, struct fault *f)
{
    struct gpu *gpu = &q->device->gpu;
    struct staging *s = &q->down[q->downloads++ % DOWNLOADS];
    s->busy = true;
    if (!q->device->on_gpu) return memcpy(s->memory, from, bytes), true;
    return (!gpu->download_later(s->memory, (gpu_address)from, bytes, q->stream) &&
            !gpu->event_record(s->done, q->stream)) ||
           fault_set(f, "%zu bytes cannot be copied from %s", bytes, device_name(q->device));
}

const void *queue_downloaded(struct queue *q, struct fault *f)
{
    struct staging *s = &q->down[q->read++ % DOWNLOADS];
    if (wait_for(q, s)) return s->memory;
    return fault_set(f, "a step failed on %s", device_name(q->device)), NULL;
}

bool queue_wait(struct queue *q, struct fault *f)
{
    return !q->device->on_gpu || !q->device->gpu.stream_wait(q->stream) ||
           fault_set(f, "a step failed on %s", device_name(q->device));
}
