/*
 * family_mamba.c -- Mamba and Mamba-2: each layer is a norm and a mixer, whose convolution and selective scan
 * carry a state. What layers add up is fp32 unless the config says otherwise.
 */
#include <string.h>

#include "build.h"

/* [x | z] -> conv of x, scan with steps and b, c of [steps | b | c] -> times silu(z). */
static coda_value mamba(struct build *b, coda_value x, int layer)
{
    const struct recurrent *r = &b->c->recurrent;
    int64_t n = r->inner, states = r->states, rank = r->rank;
    coda_scan_options o = CODA_SCAN_OPTIONS_INIT;
    coda_value xz = build_linear(b, x, PART({"in_proj", 2 * n}), b->c->hidden, r->bias);
    coda_value u = build_convolution(b, build_columns(b, xz, 0, n), "conv1d", layer, n);
    coda_value all = build_linear(b, u, PART({"x_proj", rank + 2 * states}), n, false);
    coda_value dt = build_linear(b, build_columns(b, all, 0, rank), PART({"dt_proj", n}), rank, false);
    o.softplus = 1;
    o.dt_bias = build_exact(b, "dt_proj", ".bias", n, 0, false);
    o.skip = build_exact(b, "D", "", n, 0, false);
    o.gate = build_columns(b, xz, n, n);
    coda_value a = build_exact(b, "A_log", "", n, states, true);
    coda_value y = build_scan(b, u, dt, a, build_columns(b, all, rank, states),
                              build_columns(b, all, rank + states, states), layer, &o);
    return build_linear(b, y, PART({"out_proj", b->c->hidden}), n, r->bias);
}

static coda_value norm(struct build *b, coda_value x, const char *name)
{
    return coda_cast(b->g, build_rms_norm(b, x, name), b->dtype);
}

coda_value family_mamba(struct build *b, coda_value ids)
{
    const struct config *c = b->c;
    coda_graph *g = b->g;
    bool second = !strcmp(c->family, "mamba2");
    coda_dtype wide = c->wide_residual ? CODA_F32 : b->dtype;
    build_root(b, "embeddings.weight", (const char *const[]){"backbone."}, 1);
    if (c->activation != ACTIVATION_SILU)
        return fault_set(b->fault, "%s: the activation must be silu", c->family), build_fail(b);
    coda_value x = build_embedding(b, "embeddings", c->vocabulary, ids);
    x = coda_cast(g, build_rows(b, x, c->hidden), wide);
    for (int l = 0; l < c->layers; l++) {
        build_prefix(b, "layers.%d.", l);
        coda_value y = norm(b, x, "norm");
        build_prefix(b, "layers.%d.mixer.", l);
        y = (second ? build_ssd : mamba)(b, y, l);
        x = coda_add(g, x, coda_cast(g, y, wide));
    }
    build_prefix(b, "", 0);
    x = build_last(b, build_texts(b, x, c->hidden));
    return build_logits(b, norm(b, x, "norm_f"), "embeddings");
}
