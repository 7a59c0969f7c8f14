/* template_fit.c -- see template_fit.h. */
#include "template_fit.h"

#include "mainloop.h"
#include "variants.h"

#include <stdlib.h>
#include <string.h>

enum {
    FAR_POINTS = 64, /* that are looked at for a shape far off */
    ALIGNED = 16,    /* elements that questions of alignment depend on */
    PROOFS = 2,      /* plans beside those that make a skeleton, which must be what it says */
    MOST_PLANS = SKELETON_POINTS + PROOFS
};

static void plan_template_free(struct plan_template *plan_template)
{
    skeleton_free(plan_template->skeleton);
    free(plan_template->ids.product);
    free(plan_template->ids.first);
    *plan_template = (struct plan_template){0};
}

void shape_template_free(struct shape_template *e)
{
    plan_template_free(&e->plan_template);
    template_guards_free(&e->guards);
    free(e);
}

bool shape_template_point(const struct shape_template *e, const int64_t *dims, int64_t *at)
{
    int64_t by[SKELETON_VARIABLES];
    bool set[SKELETON_VARIABLES] = {false};
    for (int i = 0; i < e->t->symbols; i++) {
        int v = e->variable[i];
        int64_t away = dims[i] - e->base[i];
        if (v < 0 ? away != 0 : set[v] && by[v] != away) return false;
        if (v < 0 || set[v]) continue;
        if (away % e->step[v]) return false;
        set[v] = true, by[v] = away, at[v] = away / e->step[v];
    }
    return true;
}

/* ---- Plans around a shape ---- */

struct dry_run {
    coda_plan *plan;
    struct place *place; /* without names */
    struct guards guards;
};

struct fit {
    struct shape_template *e;
    const struct guards *asked; /* of the shape */
    const struct sampler *how;
    struct dry_run dry_run[MOST_PLANS];
    struct sample sample[MOST_PLANS];
};

static void erase(struct fit *s, int first, int end)
{
    for (int i = first; i < end; i++) {
        executable_free(s->dry_run[i].plan);
        guards_free(&s->dry_run[i].guards);
        s->dry_run[i] = (struct dry_run){.plan = NULL};
    }
}

/* The shape at a point; false: there is none. */
static bool shape_at(const struct fit *s, const int64_t *at, int64_t *dims)
{
    for (int i = 0; i < s->e->t->symbols; i++) {
        const struct symbol *of = &s->e->t->symbol[i];
        int v = s->e->variable[i];
        dims[i] = s->e->base[i] + (v < 0 ? 0 : s->e->step[v] * at[v]);
        if (dims[i] < of->least || dims[i] > of->most) return false;
    }
    return true;
}

/* Makes plan number n, of the shape at a point; false: there is none. */
static bool sample_plan(struct fit *s, int n, const int64_t *at)
{
    int64_t dims[MOST_SYMBOLS];
    struct dry_run *out = &s->dry_run[n];
    if (out->plan) return true;
    if (!shape_at(s, at, dims)) return false;
    coda_plan *p = out->plan = s->how->plan(s->how->context, dims, &out->guards);
    if (!p) return false;
    out->place = ARENA_NEW(&p->arena, struct place, p->args + 1);
    if (!out->place) return false;
    if (p->args) memcpy(out->place, p->place, sizeof *p->place * (size_t)p->args);
    for (int i = 0; i < p->args; i++) out->place[i].name = NULL;
    s->sample[n] = (struct sample){&p->plan, out->place, sizeof *p->place * (size_t)p->args};
    return true;
}

static bool has_answers(const struct fit *s, int n)
{
    return s->dry_run[n].plan && guards_same(s->asked, &s->dry_run[n].guards);
}

/* ---- Variables ---- */

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y, y = rest;
    }
    return mul_counts(a / x, b);
}

/* Keeps symbol i, if `alike` with all later ones that equal it, its answers when it moves by so much? Then it
 * is a variable, whose plan at 1 is made. */
static bool moves_by(struct fit *s, int i, bool alike, int64_t step)
{
    struct shape_template *e = s->e;
    int64_t at[SKELETON_VARIABLES] = {0};
    int v = e->variables;
    at[v] = 1, e->step[v] = step;
    for (int k = i; k < s->e->t->symbols; k++)
        if (k == i || (alike && e->variable[k] < 0 && e->base[k] == e->base[i])) e->variable[k] = v;
    if (sample_plan(s, 1 + v, at) && has_answers(s, 1 + v)) return true;
    for (int k = i; k < s->e->t->symbols; k++)
        if (e->variable[k] == v) e->variable[k] = -1;
    erase(s, 1 + v, 2 + v);
    return false;
}

/* By one step, else by one that keeps residues, up or down. */
static bool moves(struct fit *s, int i, bool alike)
{
    const struct symbol *of = s->e->t->symbol;
    int64_t step = of[i].multiple;
    bool others = false;
    for (int k = i + 1; k < s->e->t->symbols && alike; k++)
        if (s->e->variable[k] < 0 && s->e->base[k] == s->e->base[i])
            step = common_multiple(step, of[k].multiple), others = true;
    if (alike && !others) return false;
    int64_t aligned = common_multiple(step, ALIGNED);
    return moves_by(s, i, alike, step) || moves_by(s, i, alike, -step) ||
           (aligned != step && (moves_by(s, i, alike, aligned) || moves_by(s, i, alike, -aligned)));
}

/* false: too many vary, or none. */
static bool find_variables(struct fit *s)
{
    struct shape_template *e = s->e;
    for (int i = 0; i < s->e->t->symbols; i++) e->variable[i] = -1;
    for (int i = 0; i < s->e->t->symbols; i++) {
        if (e->variable[i] >= 0) continue;
        if (e->variables == SKELETON_VARIABLES) return false;
        e->variables += moves(s, i, false) || moves(s, i, true);
    }
    return e->variables > 0;
}

/* ---- What plans share ---- */

/* Tables of products' tiles, where all samples have the same ones. */
static bool find_products(const struct fit *s, int samples)
{
    const struct sample *sample = s->sample;
    const struct plan *first = sample->plan;
    struct plan_template *plan_template = &s->e->plan_template;
    plan_template->ids.product = calloc((size_t)first->programs + 1, sizeof *plan_template->ids.product);
    for (int i = 0; plan_template->ids.product && i < first->programs; i++) {
        const struct program *q = &first->program[i];
        if (q->kind != PROGRAM_GEMM || !variants_take(q)) continue;
        plan_template->ids.product[i] = variants_find(s->how->variants, first, q, &first->target);
        for (int k = 1; k < samples && plan_template->ids.product[i]; k++) {
            const struct plan *p = sample[k].plan;
            bool same = variants_take(&p->program[i]) &&
                        variants_find(s->how->variants, p, &p->program[i], &p->target) ==
                            plan_template->ids.product[i];
            if (!same) plan_template->ids.product[i] = NULL;
        }
    }
    return plan_template->ids.product;
}

/* Which programs equal which, in each sample; false: no memory. */
static bool find_equal_programs(const struct fit *s, int samples)
{
    const struct sample *sample = s->sample;
    struct plan_template *plan_template = &s->e->plan_template;
    int programs = sample->plan->programs;
    plan_template->ids.first = calloc((size_t)programs + 1, sizeof *plan_template->ids.first);
    for (int k = 0; plan_template->ids.first && k < samples; k++) {
        const struct plan *p = sample[k].plan;
        struct arena scratch = {0};
        struct memo memo = {0};
        bool good = p->programs == programs;
        for (int i = 0; i < programs && good; i++) {
            struct program *q = &p->program[i], *first = NULL;
            struct identity id;
            const int *ignored;
            if (identity_of(&id, &scratch, p->buffer, q))
                first = memo_first(&memo, &scratch, &id, q, &ignored);
            if (!(good = first)) break;
            int own = k && plan_template->ids.first[i] != first - p->program ? i : (int)(first - p->program);
            plan_template->ids.first[i] = own;
        }
        arena_free(&scratch);
        if (!good) return false;
    }
    return plan_template->ids.first;
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

/* ---- A lattice ---- */

/* Is there a shape at a point, of the same graph, with the same answers, as far as the guards tell that
 * were found? */
static bool promises(const struct fit *s, const int64_t *at)
{
    int64_t dims[MOST_SYMBOLS];
    return shape_at(s, at, dims) && s->how->rewritten(s->how->context, dims) == s->e->rewritten &&
           template_guards_hold(&s->e->guards, at, false);
}

/* Does each point, with these steps turned, promise as much? */
static bool suits(const struct fit *s, const int *sign, int degree)
{
    for (int n = 0; n < skeleton_points(s->e->variables, degree); n++) {
        int64_t at[SKELETON_VARIABLES];
        skeleton_point(s->e->variables, n, at);
        for (int v = 0; v < s->e->variables; v++) at[v] *= sign[v];
        if (!promises(s, at)) return false;
    }
    return true;
}

/* Turns steps so that the points of a higher degree have the shape's answers; false: they have none. */
static bool turn_steps(struct fit *s, int degree)
{
    for (int turns = 0; turns < 1 << s->e->variables; turns++) {
        int sign[SKELETON_VARIABLES];
        for (int v = 0; v < s->e->variables; v++) sign[v] = turns >> v & 1 ? -1 : 1;
        if (!suits(s, sign, degree)) continue;
        for (int v = 0; v < s->e->variables; v++) s->e->step[v] *= sign[v];
        if (turns) erase(s, 0, MOST_PLANS);
        return true;
    }
    return false;
}

static bool sample_lattice(struct fit *s, int points)
{
    for (int n = 0; n < points; n++) {
        int64_t at[SKELETON_VARIABLES];
        skeleton_point(s->e->variables, n, at);
        if (!sample_plan(s, n, at) || !has_answers(s, n)) return false;
    }
    return true;
}

/* ---- Proofs ---- */

/* How many steps a variable may take, down and up. */
static void reach_of(const struct fit *s, int v, int64_t *below, int64_t *above)
{
    *below = *above = INT64_MAX;
    for (int i = 0; i < s->e->t->symbols; i++) {
        const struct symbol *of = &s->e->t->symbol[i];
        int64_t step = s->e->step[v], down = s->e->base[i] - of->least, up = of->most - s->e->base[i];
        if (s->e->variable[i] != v) continue;
        *below = MIN(*below, (step > 0 ? down : up) / llabs(step));
        *above = MIN(*above, (step > 0 ? up : down) / llabs(step));
    }
}

/* A point: of even number anywhere, of odd number near the lattice. All its coordinates are other ones than
 * the points have, so that no term that the degree leaves out is 0 there. Those of each variable are spread
 * by the golden ratio and its powers. */
static bool far_point(const struct fit *s, int number, int degree, int64_t *at)
{
    enum { NEAR = 24 };
    static const double golden[SKELETON_VARIABLES] = {0.8191725, 0.6710436, 0.5497005};
    for (int v = 0; v < s->e->variables; v++) {
        int64_t below, above;
        reach_of(s, v, &below, &above);
        if (number % 2) below = MIN(below, NEAR), above = MIN(above, NEAR);
        double part = 0.4 + number * golden[v];
        at[v] = (int64_t)((part - (double)(int64_t)part) * (double)(below + above + 1)) - below;
        if (at[v] >= 0 && at[v] <= degree) return false;
    }
    return true;
}

/* Plans shapes far off, and returns how many: those where the guards say that answers are the same. */
static int sample_proofs(struct fit *s, int points, int degree, int64_t (*proof)[SKELETON_VARIABLES])
{
    int found = 0;
    for (int number = 0; number < FAR_POINTS && found < PROOFS; number++) {
        bool suits = far_point(s, number, degree, proof[found]) && promises(s, proof[found]);
        if (suits && sample_plan(s, points + found, proof[found])) found++;
        else if (suits) erase(s, points + found, points + found + 1);
    }
    return found;
}

/* ---- A template ---- */

static bool are_settled(const struct fit *s, int plans)
{
    bool good = true;
    for (int i = 0; i < plans && good && s->how->settles; i++) good = is_settled(s->sample[i].plan);
    return good;
}

static enum finding find_guards(struct fit *s, int points, int64_t (*proof)[SKELETON_VARIABLES], int proofs)
{
    const struct guards *asked[MOST_PLANS];
    for (int i = 0; i < points + proofs; i++) asked[i] = &s->dry_run[i].guards;
    return template_guards_find(&s->e->guards, asked, s->e->variables, points, proof, proofs);
}

/* From as many plans as the degree wants; others far off prove it. */
static enum finding find_skeleton(struct fit *s, int degree)
{
    struct shape_template *e = s->e;
    int64_t proof[PROOFS][SKELETON_VARIABLES] = {{0}};
    int points = skeleton_points(e->variables, degree), proofs;
    if ((degree > 1 && !turn_steps(s, degree)) || !sample_lattice(s, points)) return HAS_NONE;
    if (find_guards(s, points, proof, 0) != FOUND) return HAS_NONE;
    if (!(proofs = sample_proofs(s, points, degree, proof))) return HAS_NONE;
    if (!are_settled(s, points + proofs)) return HAS_NONE;
    enum finding found = find_guards(s, points, proof, proofs);
    if (found != FOUND) return found;
    if (!find_products(s, points + proofs) || !find_equal_programs(s, points + proofs)) return HAS_NONE;
    e->plan_template.skeleton = skeleton_new(s->sample, e->variables, degree);
    if (!e->plan_template.skeleton) return HAS_NONE;
    for (int k = 0; k < proofs; k++)
        if (!skeleton_fits(e->plan_template.skeleton, &s->sample[points + k], proof[k]))
            return HAS_HIGHER_DEGREE;
    return FOUND;
}

static bool find_template(struct fit *s)
{
    struct shape_template *e = s->e;
    enum finding found = HAS_HIGHER_DEGREE;
    if (!find_variables(s)) return false;
    for (int degree = 1; degree <= SKELETON_DEGREE && found == HAS_HIGHER_DEGREE; degree++) {
        found = find_skeleton(s, degree);
        if (found != HAS_HIGHER_DEGREE) break;
        erase(s, e->plan_template.skeleton ? 0 : skeleton_points(e->variables, degree), MOST_PLANS);
        plan_template_free(&e->plan_template);
    }
    return found == FOUND;
}

struct shape_template *template_fit(const struct dims *t, const int64_t *dims, const struct guards *asked,
                                    const struct sampler *how)
{
    struct failure before;
    struct fit *s = calloc(1, sizeof *s);
    struct shape_template *e = s ? calloc(1, sizeof *e) : NULL;
    if (!e) return free(s), NULL;
    *s = (struct fit){.e = e, .asked = asked, .how = how};
    e->t = t;
    e->rewritten = how->rewritten(how->context, dims);
    memcpy(e->base, dims, sizeof *dims * (size_t)t->symbols);
    fail_save(&before);
    bool found = find_template(s);
    fail_restore(&before);
    erase(s, 0, MOST_PLANS);
    free(s);
    e->plan_template.settles = how->settles;
    return found ? e : (shape_template_free(e), NULL);
}
