/*
 * forms.c -- forms of shapes: the skeletons of their plans, and the conditions that a shape must meet.
 *
 * A shape is of a form if what rewriting and planning would ask of its extents has the form's answers. A
 * shape that has no form is planned in full, and leaves its answers: the second time that the same ones come,
 * a form is looked for around it (study.c).
 */
#include "forms.h"

#include "study.h"

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

struct forms {
    pthread_mutex_t lock;     /* of what follows */
    struct shape_form *first; /* a form does not change once it is in the list */
    struct kind kind[MOST_KINDS];
    int kinds;
    size_t bytes;
    const struct dims *t;
};

struct forms *forms_new(const graph *g)
{
    struct forms *f = calloc(1, sizeof *f);
    if (!f) return fail(CODA_E_MEMORY, "out of memory for a table of forms"), NULL;
    pthread_mutex_init(&f->lock, NULL);
    f->t = g->dims;
    return f;
}

void forms_free(struct forms *f)
{
    if (!f) return;
    for (struct shape_form *e = f->first, *next; e; e = next) {
        next = e->next;
        shape_form_free(e);
    }
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void forms_hold(struct forms *f) { pthread_mutex_lock(&f->lock); }
void forms_let_go(struct forms *f) { pthread_mutex_unlock(&f->lock); }

const struct form *forms_find(struct forms *f, const int64_t *dims, bool rewritten, bool loosely, int64_t *at)
{
    pthread_mutex_lock(&f->lock);
    const struct shape_form *e = f->first;
    pthread_mutex_unlock(&f->lock);
    for (; e; e = e->next)
        if (e->rewritten == rewritten && shape_form_point(e, dims, at) &&
            conditions_hold(&e->conditions, at, loosely))
            return &e->form;
    return NULL;
}

/* Is it this caller's turn to find the form of shapes with these answers? */
static bool claim(struct forms *f, uint64_t answers, bool at_once)
{
    int i = 0;
    while (i < f->kinds && f->kind[i].answers != answers) i++;
    if (i == MOST_KINDS || f->bytes >= MOST_BYTES) return false;
    if (i == f->kinds) f->kind[f->kinds++] = (struct kind){answers, 0};
    int seen = ++f->kind[i].seen;
    return seen == (at_once ? 1 : TWICE);
}

void forms_learn(struct forms *f, const int64_t *dims, const struct guards *asked, const struct drawing *how)
{
    pthread_mutex_lock(&f->lock);
    bool mine = !asked->failed && claim(f, guards_hash(asked), how->loosely);
    pthread_mutex_unlock(&f->lock);
    struct shape_form *e = mine ? study_shape(f->t, dims, asked, how) : NULL;
    if (!e) return;
    pthread_mutex_lock(&f->lock);
    e->next = f->first, f->first = e;
    f->bytes += skeleton_bytes(e->form.skeleton) + conditions_bytes(&e->conditions);
    pthread_mutex_unlock(&f->lock);
}
