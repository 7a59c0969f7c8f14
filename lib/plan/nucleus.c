/* nucleus.c -- the least element of each row that top-k, top-p and min-p keep, as a program. */
#include "fuse.h"
#include "own.h"

#include <string.h>

/* The row, what is found, and the numbers that are there. */
static struct tensor_use *use(void *spec, int i)
{
    struct nucleus_spec *s = spec;
    int number = 0;
    if (i < 2) return i ? &s->least : &s->x;
    for (i -= 2; number < NUCLEUS_NUMBERS; number++)
        if (s->number[number].buffer >= 0 && i-- == 0) return &s->number[number];
    return NULL;
}

/* insert_copies.c has seen to it that rows have one stride. */
static void read_number(struct writer *w, int value, struct tensor_use *out)
{
    *out = port_new(USE_BESIDE, -1, 0, CODA_F32, -1);
    if (value < 0) return;
    const struct type *t = &w->gr->g->node[value].type;
    const struct view v = w->gr->view[value];
    w->gr->site[v.base].need = true;
    *out = port_new(USE_BESIDE, buffer_of(w->gr, v.base), v.offset, t->dtype, value);
    out->version = w->gr->site[v.base].version;
    out->steady = base_is_steady(w->gr, v.base);
    if (!extent_is_one(type_elements(t))) view_collapse(t, v.stride, 0, t->rank, &out->stride[0]);
}

static void read_rows(struct writer *w)
{
    const struct node *n = &w->gr->g->node[w->p->root];
    const struct type *t = &w->gr->g->node[n->in[0]].type;
    const struct view v = w->gr->view[n->in[0]];
    struct nucleus_spec *s = ARENA_NEW(&w->gr->plan->arena, struct nucleus_spec, 1);
    if (!(w->p->spec = s)) return; /* the arena remembers */
    w->p->rank = 2;
    w->p->dim[0] = s->rows = type_rows(t);
    w->p->dim[1] = s->columns = type_columns(t);
    w->gr->site[v.base].need = true;
    s->x = port_new(USE_LOAD, buffer_of(w->gr, v.base), v.offset, t->dtype, n->in[0]);
    s->x.version = w->gr->site[v.base].version;
    s->x.stride[1] = v.stride[t->rank - 1];
    view_collapse(t, v.stride, 0, t->rank - 1, &s->x.stride[0]);
    for (int i = 0; i < NUCLEUS_NUMBERS; i++)
        read_number(w, i + 1 < n->nin ? n->in[i + 1] : -1, &s->number[i]);
}

static void store_least(struct writer *w)
{
    struct nucleus_spec *s = w->p->spec;
    if (!s) return;
    s->least = port_new(USE_RESULT, buffer_of(w->gr, w->p->root), 0, CODA_F32, w->p->root);
    s->least.stride[0] = 1;
}

static int64_t bytes(const void *spec)
{
    const struct nucleus_spec *s = spec;
    return mul_counts(s->rows, add_counts(dtype_bytes(s->x.dtype, s->columns), 4));
}

static double flops(const void *spec)
{
    (void)spec;
    return 0;
}

static void print(const void *spec, struct text *t)
{
    const struct nucleus_spec *s = spec;
    text_printf(t, "nucleus rows=%lld columns=%lld", (long long)s->rows, (long long)s->columns);
}

const struct own_kind plan_nucleus = {.index = OWN_NUCLEUS,
                                      .op = OP_NUCLEUS,
                                      .name = "nucleus",
                                      .size = sizeof(struct nucleus_spec),
                                      .shown = 2 + NUCLEUS_NUMBERS,
                                      .use_name = {"of", "to", "by", "by", "by", "by"},
                                      .use = use,
                                      .bytes = bytes,
                                      .flops = flops,
                                      .print = print,
                                      .read = read_rows,
                                      .store = store_least};
