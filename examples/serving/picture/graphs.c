/*
 * graphs.c -- the two graphs of a picture: what comes before the steps, and a step with its guidance.
 *
 *     first    times, conditions -> table [steps * conditions, columns], the text as blocks see it
 *     step     latents, number, table, numbers of all steps -> latents, number + 1
 */
#include <stdio.h>

#include "picture.h"

static struct drawing begin(struct picture *p, coda_graph *g, struct fault *f)
{
    return (struct drawing){.b = {.g = g,
                                  .c = &p->m.config,
                                  .from = p->opt.open.random ? NULL : &p->m.files,
                                  .weights = &p->m.weights,
                                  .fault = f,
                                  .dtype = p->m.opt.dtype},
                            .c = &p->config,
                            .shape = &p->shape,
                            .made = &p->made};
}

static coda_graph *end(struct drawing *d)
{
    build_prefix(&d->b, "", 0);
    if (!d->b.failed && coda_graph_status(d->b.g) == CODA_OK) return d->b.g;
    if (!d->b.failed) fault_set(d->b.fault, "%s", coda_error());
    coda_graph_free(d->b.g);
    return NULL;
}

coda_graph *picture_first_graph(struct picture *p, struct fault *f)
{
    coda_graph *g = coda_graph_new();
    if (!g) return fault_set(f, "out of memory"), NULL;
    struct drawing d = begin(p, g, f);
    coda_value times = coda_input(g, "times", CODA_F32, DIMS(p->shape.steps, TIME_COLUMNS));
    p->graphs->first(&d, coda_cast(g, times, d.b.dtype));
    p->table_columns = d.wide;
    coda_output(g, "table", coda_concat(g, -1, d.modulation, d.modulations));
    return end(&d);
}

/* ---- A step ---- */

/* Row i of a table [rows, columns] for each number of `at`. */
static coda_value number(coda_graph *g, coda_value row, int i)
{
    return coda_reshape(g, coda_slice(g, row, 1, i, i + 1, 1), DIMS(1, 1, 1));
}

/* What the network's result m [samples, ...] is with guidance, in fp32: u + s (c - u). */
static coda_value guided(struct drawing *d, coda_value m, coda_value strength)
{
    coda_graph *g = d->b.g;
    int64_t n = d->shape->pictures;
    m = coda_cast(g, m, CODA_F32);
    if (!d->shape->guided) return m;
    coda_value c = coda_slice(g, m, 0, 0, n, 1), u = coda_slice(g, m, 0, n, 2 * n, 1);
    return coda_add(g, u, coda_mul(g, coda_sub(g, c, u), strength));
}

/* The latents of the next step, by the numbers of picture_schedule.h and the strength of guidance. */
static coda_value next(struct drawing *d, coda_value x, coda_value m, coda_value row, float clip)
{
    coda_graph *g = d->b.g;
    m = guided(d, m, number(g, row, 0));
    coda_value y = coda_add(g, coda_mul(g, x, number(g, row, 4)), coda_mul(g, m, number(g, row, 5)));
    if (clip <= 0) return y;
    coda_value clean = coda_add(g, coda_mul(g, x, number(g, row, 1)), coda_mul(g, m, number(g, row, 2)));
    return coda_add(g, y, coda_mul(g, coda_clip(g, clean, -clip, clip), number(g, row, 3)));
}

/* The same where a step is corrected by what comes of it: the clean latents that were predicted in the two
 * steps before, and what the last one began with, are states. */
static void corrected(struct drawing *d, coda_value x, coda_value m, coda_value row)
{
    coda_graph *g = d->b.g;
    int64_t n = d->shape->pictures, patches = picture_patches(d->shape), wide = picture_patch_columns(d->c);
    coda_value last = coda_state(g, "last", CODA_F32, DIMS(n, patches, wide)),
               before = coda_state(g, "before", CODA_F32, DIMS(n, patches, wide)),
               older = coda_state(g, "older", CODA_F32, DIMS(n, patches, wide));
    coda_value clean = coda_add(g, coda_mul(g, x, number(g, row, 1)),
                                coda_mul(g, guided(d, m, number(g, row, 0)), number(g, row, 2)));
    const coda_value of[] = {last, x, clean, before, older};
    coda_value y = CODA_NONE, z;
    for (int i = 0; i < 5; i++) {
        coda_value part = coda_mul(g, of[i], number(g, row, PLAIN_NUMBERS + i));
        y = i ? coda_add(g, y, part) : part;
    }
    z = coda_add(g, coda_mul(g, y, number(g, row, PLAIN_NUMBERS + 5)),
                 coda_mul(g, clean, number(g, row, PLAIN_NUMBERS + 6)));
    z = coda_add(g, z, coda_mul(g, before, number(g, row, PLAIN_NUMBERS + 7)));
    coda_assign(g, x, z);
    coda_assign(g, last, y);
    coda_assign(g, older, before);
    coda_assign(g, before, clean);
}

/* The rows of the table that the step reads, one for each sample, or one for all. */
static void read_table(struct drawing *d, coda_value at, int64_t wide)
{
    coda_graph *g = d->b.g;
    int64_t conditions = d->shape->conditions, n = conditions > 1 ? d->shape->samples : 1;
    coda_value table = coda_input(g, "table", d->b.dtype, DIMS(d->shape->steps * conditions, wide));
    coda_value condition = coda_input(g, "condition", CODA_I32, DIMS(n));
    coda_value row = coda_add(g, coda_scale(g, at, (float)conditions), condition);
    coda_value rows = coda_embedding(g, table, coda_cast(g, row, CODA_I32));
    d->vector = coda_reshape(g, rows, DIMS(n, 1, wide));
}

static void read_text(struct picture *p, struct drawing *d)
{
    coda_graph *g = d->b.g;
    int64_t n = p->shape.samples, tokens = p->shape.text, all = picture_patches(&p->shape);
    if (p->config.kind == PICTURE_PIXART) d->lengths = coda_input(g, "lengths", CODA_I32, DIMS(n));
    if (p->config.kind == PICTURE_SD3 || p->config.kind == PICTURE_FLUX)
        d->context = coda_input(g, "context", d->b.dtype, DIMS(n, tokens, p->config.hidden));
    if (p->config.kind == PICTURE_FLUX) all += tokens;
    if (!p->config.axes[1]) return;
    d->positions = coda_input(g, "positions", CODA_I32, DIMS(all, 3));
    d->frequencies = coda_input(g, "frequencies", CODA_F32, DIMS(p->config.head_dim / 2));
}

coda_graph *picture_step_graph(struct picture *p, struct fault *f)
{
    coda_graph *g = coda_graph_new();
    if (!g) return fault_set(f, "out of memory"), NULL;
    struct drawing d = begin(p, g, f);
    const struct picture_shape *s = &p->shape;
    int64_t patch = picture_patch_columns(&p->config);
    coda_value x = coda_state(g, "latents", CODA_F32, DIMS(s->pictures, picture_patches(s), patch));
    coda_value at = coda_state(g, "number", CODA_I32, DIMS(1));
    bool corrects = p->schedule.corrects;
    coda_value numbers =
        coda_input(g, "numbers", CODA_F32, DIMS(s->steps, corrects ? STEP_NUMBERS : PLAIN_NUMBERS));
    read_table(&d, at, p->table_columns);
    read_text(p, &d);
    coda_value row = coda_embedding(g, numbers, at), h = coda_cast(g, x, d.b.dtype);
    if (s->guided) h = coda_concat(g, 0, (coda_value[]){h, h}, 2);
    if (corrects) corrected(&d, x, p->graphs->step(&d, h), row);
    else coda_assign(g, x, next(&d, x, p->graphs->step(&d, h), row, p->schedule.clip));
    coda_assign(g, at, coda_cast(g, coda_add(g, at, coda_constant(g, CODA_I32, 1)), CODA_I32));
    return end(&d);
}
