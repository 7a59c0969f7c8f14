/*
 * templates.c -- templates of plans: their skeletons, and the guards that a shape must meet.
 *
 * A shape fits a template if what rewriting and planning would ask of its extents has the template's answers.
 * A shape that fits none is planned in full, and leaves its answers: the second time that the same ones come,
 * a template is fitted around it (template_fit.c).
 */
#include "templates.h"

#include "template_fit.h"

#include <pthread.h>
#include <stdlib.h>

enum {
    MOST_KINDS = 512,      /* of answers that are told apart */
    MOST_BYTES = 64 << 20, /* of skeletons */
    TWICE = 2
};

struct kind { /* of shapes: those with the same answers */
    uint64_t answers;
    int seen;
};

struct templates {
    pthread_mutex_t lock;         /* of what follows */
    struct shape_template *first; /* a template does not change once it is in the list */
    struct kind kind[MOST_KINDS];
    int kinds;
    size_t bytes;
    const struct dims *t;
};

struct templates *templates_new(const graph *g)
{
    struct templates *f = calloc(1, sizeof *f);
    if (!f) return fail(CODA_E_MEMORY, "out of memory for a table of templates"), NULL;
    pthread_mutex_init(&f->lock, NULL);
    f->t = g->dims;
    return f;
}

void templates_free(struct templates *f)
{
    if (!f) return;
    for (struct shape_template *e = f->first, *next; e; e = next) {
        next = e->next;
        shape_template_free(e);
    }
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void templates_hold(struct templates *f) { pthread_mutex_lock(&f->lock); }
void templates_let_go(struct templates *f) { pthread_mutex_unlock(&f->lock); }

const struct plan_template *templates_find(struct templates *f, const int64_t *dims, bool rewritten,
                                           bool approximate, int64_t *at)
{
    pthread_mutex_lock(&f->lock);
    const struct shape_template *e = f->first;
    pthread_mutex_unlock(&f->lock);
    for (; e; e = e->next)
        if (e->rewritten == rewritten && shape_template_point(e, dims, at) &&
            template_guards_hold(&e->guards, at, approximate))
            return &e->plan_template;
    return NULL;
}

/* Is it this caller's turn to find the template of shapes with these answers? */
static bool claim(struct templates *f, uint64_t answers, bool at_once)
{
    int i = 0;
    while (i < f->kinds && f->kind[i].answers != answers) i++;
    if (i == MOST_KINDS || f->bytes >= MOST_BYTES) return false;
    if (i == f->kinds) f->kind[f->kinds++] = (struct kind){answers, 0};
    int seen = ++f->kind[i].seen;
    return seen == (at_once ? 1 : TWICE);
}

void templates_learn(struct templates *f, const int64_t *dims, const struct guards *asked,
                     const struct sampler *how)
{
    pthread_mutex_lock(&f->lock);
    bool mine = !asked->failed && claim(f, guards_hash(asked), how->approximate);
    pthread_mutex_unlock(&f->lock);
    struct shape_template *e = mine ? template_fit(f->t, dims, asked, how) : NULL;
    if (!e) return;
    pthread_mutex_lock(&f->lock);
    e->next = f->first, f->first = e;
    f->bytes += skeleton_bytes(e->plan_template.skeleton) + template_guards_bytes(&e->guards);
    pthread_mutex_unlock(&f->lock);
}
