/* shapes_state.c -- see shapes_state.h. */
#include "shapes_state.h"

void shapes_unlock(struct shapes *s)
{
    struct shape *gone = shape_list_gone(&s->list);
    pthread_mutex_unlock(&s->lock);
    shape_list_free(gone);
}

bool shapes_have_base(const struct shapes *s)
{
    coda_policy policy = s->family.opt.policy;
    if (s->family.opt.device != CODA_DEVICE_GPU) return false;
    return policy == CODA_POLICY_BACKGROUND || policy == CODA_POLICY_NEVER;
}

bool shapes_begin_to_compile(struct shapes *s)
{
    s->compiling += !s->sealed;
    return !s->sealed;
}

void shapes_end_to_compile(struct shapes *s)
{
    s->compiling--;
    pthread_cond_broadcast(&s->made);
}
