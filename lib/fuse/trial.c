/* trial.c -- what a group becomes while it is tried whether a value joins, taken back where it does not. */
#include "fuse.h"

struct trial trial_begin(struct group *q)
{
    const struct program *p = &q->p;
    return (struct trial){q,         p->pair,  p->pairing, p->segment, p->sample, p->ranges,
                          q->agains, q->loads, q->paired,  q->turn,    q->flat,   q->domain};
}

bool trial_end(const struct trial *t, bool keep)
{
    struct program *p = &t->q->p;
    if (keep) return true;
    p->pair = t->pair;
    p->pairing = t->pairing;
    p->segment = t->segment;
    p->sample = t->sample;
    for (; p->ranges > t->ranges; p->ranges--) p->range[p->ranges - 1] = (struct column_range){0, 0};
    t->q->agains = t->agains;
    t->q->loads = t->loads;
    t->q->paired = t->paired;
    t->q->turn = t->turn;
    if (t->q->flat != t->flat) flat_end(t->q, &t->domain);
    return false;
}
