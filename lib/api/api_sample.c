/*
 * api_sample.c -- what draws one of each row's columns. coda_sample is made of operations that others may
 * use:
 *
 *     e       = exponential(iota, places, seeds[0], seeds[1])
 *     scores  = gumbel(x, e, t) = x - t log(e)
 *     id      = arg_max(keep(scores, x, nucleus(x, t, ...)))
 *     logprob = max(scores) - gumbel(0, e[id], t) - log_sum_exp(x)
 *
 * Nodes of a call have origins of their own: without fusion each is a kernel.
 */
#include "api.h"

#include <string.h>

CODA_API coda_value coda_iota(coda_graph *g, int64_t n)
{
    return build_node(g, "iota", (struct node){.op = OP_IOTA, .attr.iota = {n}}, NULL, 0);
}

CODA_API coda_value coda_nucleus(coda_graph *g, coda_value x, coda_value temperature, coda_value top_k,
                                 coda_value top_p, coda_value min_p)
{
    return build_node(g, "nucleus", (struct node){.op = OP_NUCLEUS},
                      OPERANDS(x, temperature, top_k, top_p, min_p));
}

/* ---- Rows ---- */

/* The leading dimensions of x, then `columns`; 0: no more. */
static coda_value shaped(graph *g, coda_value v, const struct type *x, int64_t columns)
{
    int64_t dims[CODA_MAX_RANK];
    const struct type *t = value_type(g, v);
    int rank = x->rank - (columns == 0);
    if (!t || t->rank == rank) return v;
    memcpy(dims, t->dim, sizeof dims);
    if (columns) dims[rank - 1] = columns;
    return coda_reshape(g, v, rank ? rank : 1, dims);
}

/* Numbers of rows, [..] or [.., 1], as [.., 1]; one for all stays as it is. */
static coda_value of_rows(graph *g, const char *name, coda_value v, coda_dtype dtype, const struct type *x)
{
    const struct type *t = value_type(g, v);
    if (!t) return v;
    bool one = type_elements(t) == 1 && t->rank <= 1, leading = true;
    bool rows = t->rank == x->rank - 1 || (t->rank == x->rank && type_columns(t) == 1);
    for (int d = 0; rows && d + 1 < x->rank; d++)
        leading = leading && (t->dim[d] == x->dim[d] || t->dim[d] == 1);
    bool suits = dtype == CODA_I32 ? dtype_is_index(t->dtype) : t->dtype == dtype;
    if (suits && (one || (rows && leading))) return one ? v : shaped(g, v, x, 1);
    fail(CODA_E_INVALID, "sample: logits are %s but %s is %s; it must be %s, a number for each row",
         dims_text(x).s, name, type_text(t).s, dtype == CODA_I32 ? "i32 or i64" : dtype_name(dtype));
    return build_refuse(g, NAMES(name), OPERANDS(v));
}

/* ---- A draw ---- */

struct draw {
    graph *g;
    struct type x;                                        /* of the logits */
    coda_value logits, first, second, place, temperature; /* fp32, and columns for each row */
    coda_value scores;
};

static coda_value apply(const struct draw *d, const char *map, const coda_value *in, int n)
{
    return coda_apply(d->g, map, in, n, NULL);
}

/* Exponential noise of these columns. */
static coda_value noise(const struct draw *d, coda_value columns)
{
    return apply(d, "exponential", OPERANDS(columns, d->place, d->first, d->second));
}

/* log_softmax of the column drawn. Its logit is what is left of the greatest score without the noise. */
static coda_value find_logprob(const struct draw *d, coda_value column, coda_value kept)
{
    coda_value zero = coda_constant(d->g, CODA_F32, 0);
    coda_value added = apply(d, "gumbel", OPERANDS(zero, noise(d, column), d->temperature));
    coda_value logit = coda_sub(d->g, coda_row_max(d->g, kept), added);
    return shaped(d->g, coda_sub(d->g, logit, coda_log_sum_exp(d->g, d->logits)), &d->x, 0);
}

static bool read_seeds(struct draw *d, coda_value seeds)
{
    const struct type *t = value_type(d->g, seeds), *x = &d->x;
    bool good = t && dtype_is_index(t->dtype) && t->rank == x->rank && type_columns(t) == 2;
    for (int i = 0; good && i + 1 < x->rank; i++) good = t->dim[i] == x->dim[i] || t->dim[i] == 1;
    if (!good) {
        fail(CODA_E_INVALID, "sample: logits are %s but seeds are %s; they must be i32 or i64 [.., 2]",
             dims_text(x).s, t ? type_text(t).s : "CODA_NONE");
        build_refuse(d->g, NAMES("logits", "seeds"), OPERANDS(d->logits, seeds));
        return false;
    }
    d->first = coda_slice(d->g, seeds, x->rank - 1, 0, 1, 1);
    d->second = coda_slice(d->g, seeds, x->rank - 1, 1, 2, 1);
    return true;
}

static bool read_draw(struct draw *d, coda_value logits, coda_value seeds, coda_value places,
                      const coda_sample_options *o)
{
    const struct type *x = value_type(d->g, logits);
    if (!x || x->rank < 1 || !dtype_is_float(x->dtype) || !dim_is_number(type_columns(x)) ||
        type_columns(x) < 1 || type_columns(x) > IOTA_MOST) {
        fail(CODA_E_INVALID, "sample: logits are %s; they must be floats of 1..%d columns",
             x ? type_text(x).s : "CODA_NONE", IOTA_MOST);
        build_refuse(d->g, NAMES("logits"), OPERANDS(logits));
        return false;
    }
    d->x = *x;
    d->logits = x->dtype == CODA_F32 ? logits : coda_cast(d->g, logits, CODA_F32);
    if (o->bias.id) d->logits = coda_add(d->g, d->logits, o->bias);
    if (!places.id) graph_poison(d->g, CODA_E_INVALID, "sample: places is CODA_NONE");
    d->place = of_rows(d->g, "places", places, CODA_I32, &d->x);
    d->temperature = o->temperature.id ? of_rows(d->g, "temperature", o->temperature, CODA_F32, &d->x)
                                       : coda_constant(d->g, CODA_F32, 1);
    return read_seeds(d, seeds) && !d->g->status;
}

/* The scores of what is kept, the others' -inf. */
static coda_value keep(const struct draw *d, const coda_sample_options *o)
{
    if (!o->top_k.id && !o->top_p.id && !o->min_p.id) return d->scores;
    coda_value least = coda_nucleus(
        d->g, d->logits, d->temperature, of_rows(d->g, "top_k", o->top_k, CODA_I32, &d->x),
        of_rows(d->g, "top_p", o->top_p, CODA_F32, &d->x), of_rows(d->g, "min_p", o->min_p, CODA_F32, &d->x));
    return apply(d, "keep", OPERANDS(d->scores, d->logits, least));
}

/* Values of another graph are refused before their types are looked at. */
static bool know(graph *g, const coda_value *in, int n)
{
    for (int i = 0; i < n; i++)
        if (build_index(g, "sample", in[i]) < -1) return false;
    return true;
}

static coda_value sample(coda_graph *g, coda_value logits, coda_value seeds, coda_value places,
                         const coda_sample_options *opt, coda_value *logprob)
{
    coda_sample_options o;
    struct draw d = {.g = g};
    coda_status s = SIZED_READ("sample", coda_sample_options, &o, opt);
    if (s != CODA_OK) return graph_poison(g, s, "%s", fail_message()), CODA_NONE;
    if (!know(g, OPERANDS(logits, seeds, places, o.temperature, o.top_k, o.top_p, o.min_p, o.bias)) ||
        !read_draw(&d, logits, seeds, places, &o))
        return CODA_NONE;
    d.scores =
        apply(&d, "gumbel", OPERANDS(d.logits, noise(&d, coda_iota(g, type_columns(&d.x))), d.temperature));
    coda_value kept = keep(&d, &o), column = coda_reduce(g, "arg_max", kept, CODA_NONE);
    if (logprob) *logprob = find_logprob(&d, column, kept);
    return shaped(g, coda_cast(g, column, CODA_I32), &d.x, 0);
}

CODA_API coda_value coda_sample(coda_graph *g, coda_value logits, coda_value seeds, coda_value places,
                                const coda_sample_options *opt, coda_value *logprob)
{
    if (logprob) *logprob = CODA_NONE;
    if (!build_ready(g, "sample")) return CODA_NONE;
    coda_value v = sample(g, logits, seeds, places, opt, logprob);
    g->later = false; /* what follows a mistake is of the same call */
    return v;
}
