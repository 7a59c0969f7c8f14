/*
 * timer.c -- the events of chat_timer.h.
 */
#include "chat_timer.h"

bool timer_open(struct timer *t, const struct gpu *g)
{
    *t = (struct timer){.gpu = g};
    for (int i = 0; i < 2; i++)
        if (g->event_new(&t->start[i], 0) || g->event_new(&t->end[i], 0)) return false;
    return true;
}

void timer_close(struct timer *t)
{
    for (int i = 0; i < 2 && t->gpu; i++) {
        if (t->start[i]) t->gpu->event_free(t->start[i]);
        if (t->end[i]) t->gpu->event_free(t->end[i]);
    }
    *t = (struct timer){0};
}

bool timer_start(struct timer *t, coda_stream s) { return !t->gpu->event_record(t->start[t->steps & 1], s); }
bool timer_end(struct timer *t, coda_stream s) { return !t->gpu->event_record(t->end[t->steps & 1], s); }

bool timer_read(struct timer *t, struct step_times *out)
{
    int now = t->steps & 1;
    float device = 0, since = 0;
    if (t->gpu->event_ms(&device, t->start[now], t->end[now])) return false;
    if (t->steps && t->gpu->event_ms(&since, t->start[!now], t->start[now])) return false;
    t->steps++;
    *out = (struct step_times){(double)device * 1e-3, (double)since * 1e-3};
    return true;
}
