/*
 * forms.c -- forms of shapes, by their patterns: the skeletons of their plans.
 *
 * Symbols that a pattern fixes, as they are 1 or a number of the graph, are constants of its form; symbols
 * that it holds equal are one variable. The others are walked from some base, by steps that keep the pattern:
 * plans at the points of a small lattice give the polynomials, first of degree 1, and the plan of the shape
 * that asked, and of one far off, must be what these say; else a higher degree is tried. A pattern says where
 * to look; that a shape is of the form, which conditions it must meet: what planning asked of its extents has
 * the answers that the form's plans got. Who has no form is planned in full.
 */
#include "forms.h"

#include "conditions.h"
#include "mainloop.h"
#include "pattern.h"
#include "variants.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_PATTERNS = 512,   /* that are told apart */
    MOST_BYTES = 64 << 20, /* of skeletons */
    CHAINS = 64,
    BASES = 64, /* places from which a lattice is tried */
    TWICE = 2,
    PROOFS = 2 /* plans beside those that make a skeleton, which must be what it says */
};

struct entry {
    struct entry *next;
    struct pattern pattern;
    int seen;
    struct form form;             /* skeleton NULL: there is none yet, or ever */
    struct conditions conditions; /* what else than the pattern makes a shape one of the form */
    bool known;
    int variables;
    int variable[MOST_SYMBOLS]; /* of a symbol; -1: it is fixed, at ... */
    int64_t fixed[MOST_SYMBOLS];
    int64_t base[SKELETON_VARIABLES], step[SKELETON_VARIABLES];
};

struct forms {
    pthread_mutex_t lock; /* of all but what never changes */
    struct patterns seen;
    struct entry *chain[CHAINS];
    int patterns;
    size_t bytes;
};

struct forms *forms_new(const graph *given, const graph *rewritten)
{
    struct forms *f = calloc(1, sizeof *f);
    if (!f) return fail(CODA_E_MEMORY, "out of memory for a table of forms"), NULL;
    pthread_mutex_init(&f->lock, NULL);
    patterns_open(&f->seen, given, rewritten);
    return f;
}

static void form_free(struct form *form)
{
    skeleton_free(form->skeleton);
    free(form->like.product);
    free(form->like.first);
    *form = (struct form){0};
}

void forms_free(struct forms *f)
{
    if (!f) return;
    for (int i = 0; i < CHAINS; i++)
        for (struct entry *e = f->chain[i], *next; e; e = next) {
            next = e->next;
            form_free(&e->form);
            conditions_free(&e->conditions);
            free(e);
        }
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void forms_hold(struct forms *f) { pthread_mutex_lock(&f->lock); }
void forms_let_go(struct forms *f) { pthread_mutex_unlock(&f->lock); }

/* ---- Entries ---- */

static struct entry *find(struct forms *f, const struct pattern *p, struct entry ***chain)
{
    *chain = &f->chain[hash_of(p, sizeof *p) % CHAINS];
    struct entry *e = **chain;
    while (e && memcmp(&e->pattern, p, sizeof *p) != 0) e = e->next;
    return e;
}

/* false: the shape is not of this form, as it has another value of a symbol that is fixed. */
static bool coordinates(const struct forms *f, const struct entry *e, const int64_t *dims, int64_t *at)
{
    for (int i = 0; i < f->seen.t->symbols; i++) {
        int v = e->variable[i];
        if (v < 0 && dims[i] != e->fixed[i]) return false;
        if (v >= 0) at[v] = (dims[i] - e->base[v]) / e->step[v];
    }
    return true;
}

const struct form *forms_find(struct forms *f, const int64_t *dims, bool loosely, int64_t *at)
{
    struct entry **chain;
    int64_t around[MOST_SYMBOLS];
    if (f->seen.hopeless) return NULL;
    if (loosely) pattern_move_away(&f->seen, dims, around);
    const struct pattern p = pattern_of(&f->seen, loosely ? around : dims);
    pthread_mutex_lock(&f->lock);
    const struct entry *e = find(f, &p, &chain);
    bool known = e && e->known;
    pthread_mutex_unlock(&f->lock);
    if (!known || !coordinates(f, e, dims, at)) return NULL;
    return loosely || conditions_hold(&e->conditions, at) ? &e->form : NULL;
}

/* ---- A lattice in a pattern ---- */

struct lattice_of_form {
    struct forms *f;
    struct entry *e;
    const int64_t *dims; /* of the shape that asked */
    const struct drawing *how;
};

/* With one symbol, and those that equal it, moved by so much: is it a shape of the same pattern? */
static bool keeps_pattern(const struct forms *f, const struct pattern *p, const int64_t *dims, int symbol,
                          int64_t by)
{
    int64_t at[MOST_SYMBOLS];
    for (int i = 0; i < f->seen.t->symbols; i++) {
        const struct symbol *s = &f->seen.t->symbol[i];
        at[i] = dims[i] + (i == symbol || p->of[i] == EQUAL - symbol ? by : 0);
        if (at[i] < s->least || at[i] > s->most) return false;
    }
    const struct pattern moved = pattern_of(&f->seen, at);
    return !memcmp(&moved, p, sizeof moved);
}

static bool may_vary(const struct forms *f, const struct pattern *p, const int64_t *dims, int symbol,
                     int64_t step)
{
    enum { STEPS = 16 };
    if (p->of[symbol] != GENERIC) return false;
    for (int64_t k = 1; k <= STEPS; k++)
        if (keeps_pattern(f, p, dims, symbol, k * step) || keeps_pattern(f, p, dims, symbol, -k * step))
            return true;
    return false;
}

/* By which steps a symbol, and those that equal it, keep their residues. */
static int64_t step_of(const struct forms *f, const struct pattern *p, int symbol)
{
    int64_t step = f->seen.aligns ? ALIGNED : 1;
    for (int i = 0; i < f->seen.t->symbols; i++)
        if (i == symbol || p->of[i] == EQUAL - symbol)
            step = pattern_common_multiple(step, f->seen.t->symbol[i].multiple);
    return step;
}

/* Which symbols vary, and by which steps; false: too many, or none. One whose expressions equal numbers is
 * fixed, too. */
static bool find_variables(const struct forms *f, struct entry *e, const int64_t *dims)
{
    const struct pattern *p = &e->pattern;
    e->variables = 0;
    for (int i = 0; i < f->seen.t->symbols; i++) {
        int64_t step = step_of(f, p, i);
        e->fixed[i] = dims[i];
        e->variable[i] = p->of[i] <= EQUAL ? e->variable[EQUAL - p->of[i]] : -1;
        if (!may_vary(f, p, dims, i, step)) continue;
        if (e->variables == SKELETON_VARIABLES) return false;
        e->variable[i] = e->variables;
        e->step[e->variables++] = step;
    }
    return e->variables > 0;
}

/* The shape at a point, seen from `base`; false: it has another pattern, or is none. */
static bool shape_at(const struct lattice_of_form *l, const int64_t *base, const int64_t *at, int64_t *dims)
{
    const struct forms *f = l->f;
    for (int i = 0; i < f->seen.t->symbols; i++) {
        const struct symbol *s = &f->seen.t->symbol[i];
        int v = l->e->variable[i];
        dims[i] = v < 0 ? l->dims[i] : base[v] + l->e->step[v] * at[v];
        if (dims[i] < s->least || dims[i] > s->most) return false;
    }
    const struct pattern p = pattern_of(&f->seen, dims);
    return !memcmp(&p, &l->e->pattern, sizeof p);
}

/* A place for a lattice, a step's multiple away from the shape: of even number anywhere, of odd number near
 * it. Places of each variable are spread by the golden ratio and its powers. */
static void find_base(const struct lattice_of_form *l, int number, int64_t *base)
{
    enum { NEAR = 24 };
    static const double golden[SKELETON_VARIABLES] = {0.8191725, 0.6710436, 0.5497005};
    const struct forms *f = l->f;
    for (int i = f->seen.t->symbols - 1; i >= 0; i--) {
        int v = l->e->variable[i];
        if (v < 0) continue;
        const struct symbol *s = &f->seen.t->symbol[i];
        int64_t step = l->e->step[v], below = (l->dims[i] - s->least) / step;
        int64_t above = (s->most - l->dims[i]) / step;
        if (number % 2) below = MIN(below, NEAR), above = MIN(above, NEAR);
        double part = 0.4 + number * golden[v];
        int64_t place = (int64_t)((part - (double)(int64_t)part) * (double)(below + above + 1));
        base[v] = l->dims[i] + (place - below) * step;
    }
}

static bool fits_lattice(const struct lattice_of_form *l, const int64_t *base, int degree)
{
    int64_t at[SKELETON_VARIABLES], dims[MOST_SYMBOLS];
    for (int i = 0; i < skeleton_points(l->e->variables, degree); i++) {
        skeleton_point(l->e->variables, i, at);
        if (!shape_at(l, base, at, dims)) return false;
    }
    return true;
}

/* Is each coordinate of the shape seen from `far` another one than those of the lattice? Of a term that the
 * degree leaves out no factor is 0 there. */
static bool is_far(const struct lattice_of_form *l, const int64_t *base, const int64_t *far, int degree)
{
    for (int v = 0; v < l->e->variables; v++) {
        int64_t at = (far[v] - base[v]) / l->e->step[v];
        if (at >= 0 && at <= degree) return false;
    }
    return true;
}

/* ---- Samples ---- */

struct drawn {
    coda_plan *plan;
    struct place *place; /* without names */
    struct guards guards;
};

static bool draw(const struct lattice_of_form *l, const int64_t *dims, struct drawn *out,
                 struct sample *sample)
{
    coda_plan *p = l->how->draw(l->how->context, dims, &out->guards);
    if (!p) return false;
    out->plan = p;
    out->place = ARENA_NEW(&p->arena, struct place, p->args + 1);
    if (!out->place) return false;
    if (p->args) memcpy(out->place, p->place, sizeof *p->place * (size_t)p->args);
    for (int i = 0; i < p->args; i++) out->place[i].name = NULL;
    *sample = (struct sample){&p->plan, out->place, sizeof *p->place * (size_t)p->args};
    return true;
}

/* Tables of products' tiles, where all samples have the same ones. */
static bool find_products(const struct lattice_of_form *l, struct form *form, const struct sample *sample,
                          int samples)
{
    const struct plan *first = sample->plan;
    form->like.product = calloc((size_t)first->programs + 1, sizeof *form->like.product);
    for (int i = 0; form->like.product && i < first->programs; i++) {
        const struct program *q = &first->program[i];
        if (q->kind != PROGRAM_GEMM || !variants_take(q)) continue;
        form->like.product[i] = variants_find(l->how->variants, first, q, &first->target);
        for (int k = 1; k < samples && form->like.product[i]; k++) {
            const struct plan *p = sample[k].plan;
            bool same = variants_take(&p->program[i]) && variants_find(l->how->variants, p, &p->program[i],
                                                                       &p->target) == form->like.product[i];
            if (!same) form->like.product[i] = NULL;
        }
    }
    return form->like.product;
}

/* Which programs equal which, in each sample; false: no memory. */
static bool find_twins(struct form *form, const struct sample *sample, int samples)
{
    int programs = sample->plan->programs;
    form->like.first = calloc((size_t)programs + 1, sizeof *form->like.first);
    for (int k = 0; form->like.first && k < samples; k++) {
        const struct plan *p = sample[k].plan;
        struct arena scratch = {0};
        struct memo memo = {0};
        bool good = p->programs == programs;
        for (int i = 0; i < programs && good; i++) {
            struct program *q = &p->program[i], *first = NULL;
            struct identity id;
            const int *ignored;
            if (identity_of(&id, &scratch, p, q)) first = memo_first(&memo, &scratch, &id, q, &ignored);
            if (!(good = first)) break;
            int own = k && form->like.first[i] != first - p->program ? i : (int)(first - p->program);
            form->like.first[i] = own;
        }
        arena_free(&scratch);
        if (!good) return false;
    }
    return form->like.first;
}

/* Where a main loop is contested a library may be chosen by price, and so other programs. */
static bool is_settled(const struct plan *p)
{
    for (int i = 0; i < p->programs; i++) {
        const struct mainloop *loop = p->schedule[i].tile.mainloop;
        if (p->program[i].kind == PROGRAM_GEMM && (loop->contested || !loop->kernel)) return false;
    }
    return true;
}

/* Plans at the points of a lattice, far off, and of the shape that asked; false: one is missing. */
static bool draw_all(const struct lattice_of_form *l, const int64_t *base, const int64_t *far, int points,
                     bool settles, struct drawn *drawn, struct sample *sample)
{
    int64_t at[SKELETON_VARIABLES], dims[MOST_SYMBOLS];
    bool good = true;
    for (int n = 0; good && n < points + PROOFS; n++) {
        skeleton_point(l->e->variables, n < points ? n : 0, at);
        good = n > points || shape_at(l, n < points ? base : far, at, dims);
        good = good && draw(l, n > points ? l->dims : dims, &drawn[n], &sample[n]);
        good = good && (!settles || is_settled(sample[n].plan));
    }
    return good;
}

/* What was asked of each of them. */
static enum finding find_conditions(const struct lattice_of_form *l, const struct drawn *drawn, int points,
                                    int64_t (*proof)[SKELETON_VARIABLES])
{
    const struct guards *asked[SKELETON_POINTS + PROOFS];
    for (int i = 0; i < points + PROOFS; i++) asked[i] = &drawn[i].guards;
    return conditions_find(&l->e->conditions, asked, l->e->variables, points, proof, PROOFS);
}

/* Where the proofs are, seen from the lattice. */
static void find_proofs(const struct lattice_of_form *l, const int64_t *far,
                        int64_t (*proof)[SKELETON_VARIABLES])
{
    int64_t dims[MOST_SYMBOLS];
    shape_at(l, far, (const int64_t[SKELETON_VARIABLES]){0}, dims);
    coordinates(l->f, l->e, dims, proof[0]);
    coordinates(l->f, l->e, l->dims, proof[1]);
}

/* From as many plans as the degree wants; the shape that asked, and a point far off, prove it. */
static enum finding find_skeleton(const struct lattice_of_form *l, struct form *form, const int64_t *base,
                                  const int64_t *far, int degree)
{
    struct sample sample[SKELETON_POINTS + PROOFS] = {{NULL, NULL, 0}};
    struct drawn drawn[SKELETON_POINTS + PROOFS] = {{NULL, NULL, {0}}};
    int64_t proof[PROOFS][SKELETON_VARIABLES] = {{0}};
    int points = skeleton_points(l->e->variables, degree), n = points + PROOFS;
    memcpy(l->e->base, base, sizeof l->e->base);
    find_proofs(l, far, proof);
    bool good = draw_all(l, base, far, points, form->settles, drawn, sample);
    good = good && find_products(l, form, sample, n) && find_twins(form, sample, n);
    enum finding found = good ? find_conditions(l, drawn, points, proof) : HAS_NONE;
    if (found == FOUND && !(form->skeleton = skeleton_new(sample, l->e->variables, degree))) found = HAS_NONE;
    for (int k = 0; found == FOUND && k < PROOFS; k++)
        if (!skeleton_fits(form->skeleton, &sample[points + k], proof[k])) found = HAS_HIGHER_DEGREE;
    for (int i = 0; i < n; i++) executable_free(drawn[i].plan), guards_free(&drawn[i].guards);
    if (found != FOUND) form_free(form);
    return found;
}

static bool find_form(const struct lattice_of_form *l, struct form *form, bool settles)
{
    int64_t base[SKELETON_VARIABLES] = {0}, far[SKELETON_VARIABLES] = {0}, point[SKELETON_VARIABLES] = {0};
    int64_t dims[MOST_SYMBOLS];
    for (int degree = 1; degree <= SKELETON_DEGREE; degree++) {
        int number = 0, other = 0;
        for (; number < BASES; number++) {
            find_base(l, number, base);
            if (fits_lattice(l, base, degree)) break;
        }
        for (; other < BASES; other++) {
            find_base(l, BASES - 1 - other, far);
            if (is_far(l, base, far, degree) && shape_at(l, far, point, dims)) break;
        }
        if (number == BASES || other == BASES) return false;
        form->settles = settles;
        enum finding found = find_skeleton(l, form, base, far, degree);
        if (found != HAS_HIGHER_DEGREE) return found == FOUND;
    }
    return false;
}

/* ---- Learning ---- */

/* The entry, if it is this caller's turn to find its form. */
static struct entry *claim(struct forms *f, const int64_t *dims, bool loosely)
{
    const struct pattern p = pattern_of(&f->seen, dims);
    struct entry **chain, *e = find(f, &p, &chain);
    if (!e && f->patterns < MOST_PATTERNS && (e = calloc(1, sizeof *e))) {
        e->pattern = p;
        e->next = *chain;
        *chain = e;
        f->patterns++;
    }
    if (!e || e->seen >= TWICE || f->bytes >= MOST_BYTES) return NULL;
    e->seen = loosely ? TWICE : e->seen + 1;
    return e->seen == TWICE && find_variables(f, e, dims) ? e : NULL;
}

void forms_learn(struct forms *f, const int64_t *dims, const struct drawing *how)
{
    if (f->seen.hopeless) return;
    struct form form = {0};
    struct failure before;
    int64_t around[MOST_SYMBOLS];
    if (how->loosely) pattern_move_away(&f->seen, dims, around), dims = around;
    pthread_mutex_lock(&f->lock);
    struct entry *e = claim(f, dims, how->loosely);
    pthread_mutex_unlock(&f->lock);
    if (!e) return;
    const struct lattice_of_form l = {f, e, dims, how};
    fail_save(&before);
    bool found = find_form(&l, &form, how->settles);
    fail_restore(&before);
    if (!found) return;
    pthread_mutex_lock(&f->lock);
    e->form = form;
    e->known = true;
    f->bytes += skeleton_bytes(form.skeleton) + conditions_bytes(&e->conditions);
    pthread_mutex_unlock(&f->lock);
}
