/*
 * crew.c -- the ranks of chat_crew.h.
 */
#include <stdlib.h>

#include "chat_crew.h"
#include "ranks.h"

struct crew {
    struct runner_options opt;
    struct runner *first;
    struct ranks *others; /* NULL: there is one rank */
    coda_group *group;
    bool good;
    int64_t dims[2]; /* of the step; 0: they warm up */
};

/* A step of one of the others, which takes its inputs from the first. */
static bool follow_step(struct runner *m, const struct crew *c, struct fault *f)
{
    struct runner_step step;
    runner_copy_inputs(m, c->first);
    return runner_run(m, c->dims, f) && runner_wait(m, &step, f);
}

static bool follow(struct rank *one, void *context, struct fault *f)
{
    const struct crew *c = context;
    struct runner_options o = c->opt;
    o.group = one->group;
    o.progress = NULL;
    struct runner *m = runner_new(&o, f);
    bool good = m != NULL;
    while (good && ranks_hear(one, f)) good = c->dims[0] ? follow_step(m, c, f) : runner_warm(m, f);
    runner_free(m);
    return good && !*f->text;
}

struct crew *crew_new(const struct runner_options *opt, struct fault *f)
{
    struct crew *c = calloc(1, sizeof *c);
    if (!c) return fault_set(f, "out of memory"), NULL;
    c->opt = *opt;
    c->good = opt->ranks <= 1 || (c->others = ranks_begin(opt->ranks, follow, c, &c->group, f));
    struct runner_options mine = *opt;
    mine.group = c->group;
    if (c->good) c->good = (c->first = runner_new(&mine, f)) != NULL;
    if (c->good) return c;
    crew_free(c);
    return NULL;
}

/* The others first: a stream of the first may wait for them. */
void crew_free(struct crew *c)
{
    struct fault unused;
    if (!c) return;
    ranks_end(c->others, c->good, &unused);
    runner_free(c->first);
    coda_group_free(c->group);
    free(c);
}

struct runner *crew_runner(const struct crew *c) { return c->first; }

/* After what the first did: whether the others have done it, too. Else they end, so that nobody waits. */
static bool together(struct crew *c, bool good, struct fault *f)
{
    if (good && (!c->others || ranks_wait(c->others, f))) return true;
    ranks_end(c->others, false, f);
    c->others = NULL;
    return c->good = false;
}

bool crew_warm(struct crew *c, struct fault *f)
{
    c->dims[0] = 0;
    if (c->others) ranks_tell(c->others, c);
    return together(c, runner_warm(c->first, f), f);
}

bool crew_launch(struct crew *c, int rows, int sequences, struct fault *f)
{
    runner_round(c->first, rows, sequences, c->dims);
    if (c->others) ranks_tell(c->others, c);
    return runner_run(c->first, c->dims, f) || together(c, false, f);
}

bool crew_wait(struct crew *c, struct runner_step *out, struct fault *f)
{
    return together(c, runner_wait(c->first, out, f), f);
}
