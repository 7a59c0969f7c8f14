/*
 * history.c -- losses, step by step.
 */
#include <stdlib.h>

#include "train_save.h"

static bool more(float **list, int64_t room)
{
    float *bigger = realloc(*list, sizeof *bigger * (size_t)room);
    if (bigger) *list = bigger;
    return bigger != NULL;
}

bool history_add(struct history *h, float loss, float norm, float rate, struct fault *f)
{
    if (h->steps == h->room) {
        int64_t room = h->room ? 2 * h->room : 1024;
        if (!more(&h->loss, room) || !more(&h->norm, room) || !more(&h->rate, room))
            return fault_set(f, "out of memory for the losses of %lld steps", (long long)room);
        h->room = room;
    }
    h->loss[h->steps] = loss;
    h->norm[h->steps] = norm;
    h->rate[h->steps++] = rate;
    return true;
}

bool history_judge(struct history *h, int64_t step, float loss, struct fault *f)
{
    if (h->judgements == h->judged_room) {
        int64_t room = h->judged_room ? 2 * h->judged_room : 64;
        struct judged *bigger = realloc(h->judged, sizeof *bigger * (size_t)room);
        if (!bigger) return fault_set(f, "out of memory for %lld losses", (long long)room);
        h->judged = bigger;
        h->judged_room = room;
    }
    h->judged[h->judgements++] = (struct judged){step, loss};
    return true;
}

void history_free(struct history *h)
{
    free(h->loss);
    free(h->norm);
    free(h->rate);
    free(h->judged);
    *h = (struct history){0};
}
