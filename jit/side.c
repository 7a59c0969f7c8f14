/* side.c -- a second stream for what runs beside others: with marks, at which one of the two waits for the
 * other. All of it is captured where the first stream is. */
#include <stdlib.h>

#include "driver.h"

/* The driver takes the highest that there is: blocks that are few, as exchanges have, get their places before
 * those of a product that is launched meanwhile. */
enum { HIGHEST_PRIORITY = -1000 };

struct jit_side {
    const struct driver *driver;
    CUstream stream;
    CUevent *mark;
    int marks;
};

coda_status jit_side_new(struct jit_side **out, char *err)
{
    const struct driver *d = driver_open(err);
    *out = NULL;
    if (!d) return CODA_E_DEVICE;
    struct jit_side *s = calloc(1, sizeof *s);
    if (!s) return jit_fail(err, CODA_E_MEMORY, "out of memory for a stream");
    s->driver = d;
    CUresult r = d->cuStreamCreateWithPriority(&s->stream, CU_STREAM_NON_BLOCKING, HIGHEST_PRIORITY);
    if (!r) return *out = s, CODA_OK;
    free(s);
    return driver_fail(d, err, r, "cuStreamCreateWithPriority");
}

void jit_side_free(struct jit_side *s)
{
    if (!s) return;
    for (int i = 0; i < s->marks; i++) s->driver->cuEventDestroy_v2(s->mark[i]);
    s->driver->cuStreamDestroy_v2(s->stream);
    free(s->mark);
    free(s);
}

coda_stream jit_side_stream(const struct jit_side *s) { return s->stream; }
int jit_side_marks(const struct jit_side *s) { return s ? s->marks : 0; }

coda_status jit_side_reserve(struct jit_side *s, int marks, char *err)
{
    CUevent *more = marks > s->marks ? realloc(s->mark, sizeof *more * (size_t)marks) : s->mark;
    if (marks > 0 && !more) return jit_fail(err, CODA_E_MEMORY, "out of memory for %d events", marks);
    s->mark = more;
    while (s->marks < marks) {
        CUresult r = s->driver->cuEventCreate(&s->mark[s->marks], CU_EVENT_DISABLE_TIMING);
        if (r) return driver_fail(s->driver, err, r, "cuEventCreate");
        s->marks++;
    }
    return CODA_OK;
}

coda_status jit_side_mark(const struct jit_side *s, int mark, coda_stream stream, char *err)
{
    return jit_record(s->mark[mark], stream, err);
}

coda_status jit_side_wait(const struct jit_side *s, int mark, coda_stream stream, char *err)
{
    CUresult r = s->driver->cuStreamWaitEvent(stream, s->mark[mark], 0);
    return r ? driver_fail(s->driver, err, r, "cuStreamWaitEvent") : CODA_OK;
}
