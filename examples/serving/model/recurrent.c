/*
 * recurrent.c -- layers that carry a state along a text in place of keys and values: convolutions, selective
 * scans, the gated delta rule.
 *
 * Their rows are [tokens, columns] whatever the texts are. What a layer knows of the tokens before is a state
 * of each text, whose names begin with "recurrent.": zeros where a text begins, which who runs the plan sees
 * to.
 */
#include <stdio.h>
#include <string.h>

#include "build.h"

bool build_is_recurrent(const char *name) { return !strncmp(name, "recurrent.", 10); }

coda_value build_rows(struct build *b, coda_value x, int64_t columns)
{
    return b->page ? x : coda_reshape(b->g, x, DIMS(b->rows, columns));
}

coda_value build_texts(struct build *b, coda_value x, int64_t columns)
{
    return b->page ? x : coda_reshape(b->g, x, DIMS(1, b->rows, columns));
}

coda_value build_columns(struct build *b, coda_value x, int64_t from, int64_t columns)
{
    return coda_slice(b->g, x, 1, from, from + columns, 1);
}

/* Of each text; without starts there is one. `dims` begin with room for their number. */
static coda_value state_of(struct build *b, const char *what, int layer, coda_dtype t, int rank,
                           int64_t *dims)
{
    char name[48];
    snprintf(name, sizeof name, "recurrent.%.16s.%d", what, layer);
    bool one = !b->page && !b->starts.id;
    dims[0] = b->page ? b->texts : 1;
    return coda_state(b->g, name, t, rank - one, dims + one);
}

/* Weights of a convolution. Factors of what it reads are those of its rows. */
static coda_value build_taps(struct build *b, const char *name, int64_t columns)
{
    const struct recurrent *r = &b->c->recurrent;
    struct weight w = {.dtype = b->dtype};
    int64_t both = (int64_t)r->groups * r->states;
    w.ranges =
        (struct ranges){{r->inner, r->inner + both}, {r->times[SSD_X], r->times[SSD_B], r->times[SSD_C]}};
    return build_one(b, name, ".weight", columns, r->taps, &w);
}

coda_value build_convolution(struct build *b, coda_value x, const char *name, int layer, int64_t columns)
{
    const struct recurrent *r = &b->c->recurrent;
    if (b->failed) return CODA_NONE;
    if (b->sentences)
        return fault_set(b->fault, "family %s cannot be trained: scans and the delta rule have no gradients",
                         b->c->family),
               build_fail(b);
    coda_value after, before = state_of(b, "rows", layer, b->dtype, DIMS(0, r->taps - 1, columns));
    coda_value w = build_taps(b, name, columns), bias = CODA_NONE;
    if (r->taps_bias) bias = build_weight(b, PART({name, columns}), ".bias", 0);
    coda_value y = coda_conv1d(b->g, x, w, bias, before, b->starts, &after);
    coda_assign(b->g, before, after);
    return coda_silu(b->g, y);
}

coda_value build_scan(struct build *b, coda_value x, coda_value dt, coda_value a, coda_value in,
                      coda_value out, int layer, const coda_scan_options *o)
{
    const struct recurrent *r = &b->c->recurrent;
    if (b->failed) return CODA_NONE;
    coda_value after, before = state_of(b, "scan", layer, CODA_F32, DIMS(0, r->inner, r->states));
    coda_value y =
        coda_scan(b->g, x, coda_cast(b->g, dt, CODA_F32), a, in, out, before, b->starts, o, &after);
    coda_assign(b->g, before, after);
    return y;
}

coda_value build_delta(struct build *b, coda_value q, coda_value k, coda_value v, coda_value decay,
                       coda_value beta, int layer)
{
    const struct recurrent *r = &b->c->recurrent;
    coda_delta_options o = CODA_DELTA_OPTIONS_INIT;
    if (b->failed) return CODA_NONE;
    int64_t dims[] = {0, r->heads, r->states, r->inner / r->heads};
    coda_value after, before = state_of(b, "delta", layer, CODA_F32, 4, dims);
    o.heads = r->heads;
    o.key_heads = r->groups;
    o.norm = 1;
    o.eps = 1e-6f;
    coda_value y = coda_delta(b->g, q, k, v, decay, beta, before, b->starts, &o, &after);
    coda_assign(b->g, before, after);
    return y;
}

/* ---- Mamba-2's layer ---- */

/* y over the roots of the mean squares of its groups' columns. */
static coda_value group_norm(struct build *b, coda_value y)
{
    const struct recurrent *r = &b->c->recurrent;
    int64_t n = r->inner, groups = r->groups;
    coda_value gain = build_gain(b, "norm", n, false);
    if (groups == 1) return coda_rms_norm(b->g, y, gain, b->c->eps);
    y = coda_rms_norm(b->g, coda_reshape(b->g, y, DIMS(b->rows, groups, n / groups)), CODA_NONE, b->c->eps);
    return coda_mul(b->g, coda_reshape(b->g, y, DIMS(b->rows, n)), gain);
}

/* [z | x, b, c | steps] -> conv of x, b, c, scan, times silu(z) -> norm, or the other way round. */
coda_value build_ssd(struct build *b, coda_value x, int layer)
{
    const struct recurrent *r = &b->c->recurrent;
    int64_t n = r->inner, both = (int64_t)r->groups * r->states, mixed = n + 2 * both;
    coda_scan_options o = CODA_SCAN_OPTIONS_INIT;
    coda_value all = build_linear(b, x, PART({"in_proj", n + mixed + r->heads}), b->c->hidden, r->bias);
    coda_value u = build_convolution(b, build_columns(b, all, n, mixed), "conv1d", layer, mixed);
    coda_value z = build_times(b, build_columns(b, all, 0, n), r->times[SSD_Z]);
    coda_value dt = coda_cast(b->g, build_columns(b, all, n + mixed, r->heads), CODA_F32);
    o.softplus = 1;
    o.groups = r->groups;
    o.dt_bias = build_exact(b, "dt_bias", "", r->heads, 0, false);
    o.skip = build_exact(b, "D", "", r->heads, 0, false);
    if (r->norm != NORM_THEN_GATE) o.gate = z;
    coda_value a = build_exact(b, "A_log", "", r->heads, 0, true);
    coda_value y = build_scan(b, build_columns(b, u, 0, n), build_times(b, dt, r->times[SSD_STEP]), a,
                              build_columns(b, u, n, both), build_columns(b, u, n + both, both), layer, &o);
    if (r->norm != NORM_NONE) y = group_norm(b, y);
    if (r->norm == NORM_THEN_GATE) y = coda_mul(b->g, y, coda_silu(b->g, z));
    return build_linear(b, y, PART({"out_proj", b->c->hidden}), n, r->out_bias);
}
