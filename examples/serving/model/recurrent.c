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

/* Of each text; without starts there is one. */
static coda_value state_of(struct build *b, const char *what, int layer, coda_dtype t, int64_t rows,
                           int64_t columns)
{
    char name[48];
    snprintf(name, sizeof name, "recurrent.%.16s.%d", what, layer);
    if (b->page) return coda_state(b->g, name, t, DIMS(b->texts, rows, columns));
    if (!b->starts.id) return coda_state(b->g, name, t, DIMS(rows, columns));
    return coda_state(b->g, name, t, DIMS(1, rows, columns));
}

coda_value build_convolution(struct build *b, coda_value x, const char *name, int layer, int64_t columns)
{
    const struct recurrent *r = &b->c->recurrent;
    if (b->failed) return CODA_NONE;
    coda_value after, before = state_of(b, "rows", layer, b->dtype, r->taps - 1, columns);
    coda_value w = build_weight(b, PART({name, columns}), ".weight", r->taps), bias = CODA_NONE;
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
    coda_value after, before = state_of(b, "scan", layer, CODA_F32, r->inner, r->states);
    coda_value y =
        coda_scan(b->g, x, coda_cast(b->g, dt, CODA_F32), a, in, out, before, b->starts, o, &after);
    coda_assign(b->g, before, after);
    return y;
}
