/*
 * blocks.c -- parts of blocks: modulations, gates, MLPs, attention; patches and their positions.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture_build.h"

int64_t picture_patches(const struct picture_shape *s) { return (int64_t)s->frames * s->rows * s->columns; }

int64_t picture_patch_columns(const struct picture_config *c)
{
    return (int64_t)c->patch * c->patch * c->channels;
}

/* ---- Products ---- */

coda_value picture_linear(struct drawing *d, coda_value x, const struct part *parts, int n, int64_t columns)
{
    return build_linear(&d->b, x, parts, n, columns, true);
}

coda_value picture_embedder(struct drawing *d, coda_value x, const char *name, int64_t from, int64_t to,
                            coda_value (*act)(coda_graph *g, coda_value x))
{
    char part[96];
    snprintf(part, sizeof part, "%s.linear_1", name);
    coda_value y = act(d->b.g, picture_linear(d, x, PART({part, to}), from));
    snprintf(part, sizeof part, "%s.linear_2", name);
    return picture_linear(d, y, PART({part, to}), to);
}

coda_value picture_activation(struct drawing *d, coda_value x)
{
    return d->c->gelu_erf ? coda_gelu_erf(d->b.g, x) : coda_gelu_tanh(d->b.g, x);
}

coda_value picture_mlp(struct drawing *d, coda_value x, const char *name)
{
    char part[96];
    int64_t wide = d->c->hidden, inner = d->c->inner;
    snprintf(part, sizeof part, "%s.net.0.proj", name);
    coda_value y = picture_activation(d, picture_linear(d, x, PART({part, inner}), wide));
    snprintf(part, sizeof part, "%s.net.2", name);
    return picture_linear(d, y, PART({part, wide}), inner);
}

/* ---- The table ---- */

coda_value picture_each(struct drawing *d, coda_value steps, coda_value conditions)
{
    int64_t wide = d->c->hidden, s = d->shape->steps, n = d->shape->conditions;
    coda_value a = coda_reshape(d->b.g, steps, DIMS(s, 1, wide));
    coda_value b = coda_reshape(d->b.g, conditions, DIMS(1, n, wide));
    return coda_reshape(d->b.g, coda_add(d->b.g, a, b), DIMS(s * n, wide));
}

void picture_keep(struct drawing *d, coda_value columns, int64_t count)
{
    if (d->modulations == MOST_MODULATIONS)
        d->b.failed = true; /* more than MOST_LAYERS blocks are refused before */
    else d->modulation[d->modulations++] = columns, d->wide += count;
}

void picture_modulate(struct drawing *d, coda_value condition, const char *name, int chunks)
{
    int64_t wide = (int64_t)chunks * d->c->hidden;
    picture_keep(d, picture_linear(d, coda_silu(d->b.g, condition), PART({name, wide}), d->c->hidden), wide);
}

coda_value picture_table(struct drawing *d, int64_t rows)
{
    coda_value t = build_weight(&d->b, PART({"scale_shift_table", rows}), "", d->c->hidden);
    return coda_reshape(d->b.g, t, DIMS(1, rows * d->c->hidden));
}

void picture_take(struct drawing *d, coda_value *to, int count)
{
    for (int i = 0; i < count; i++, d->at += d->c->hidden)
        to[i] = coda_slice(d->b.g, d->vector, -1, d->at, d->at + d->c->hidden, 1);
}

coda_value picture_modulated(struct drawing *d, coda_value x, coda_value shift, coda_value scale, float eps)
{
    coda_graph *g = d->b.g;
    coda_value y = coda_layer_norm(g, x, CODA_NONE, CODA_NONE, eps);
    coda_value gain = coda_add(g, scale, coda_constant(g, d->b.dtype, 1));
    return coda_add(g, coda_mul(g, y, gain), shift);
}

coda_value picture_gated(struct drawing *d, coda_value x, coda_value gate, coda_value y)
{
    return coda_add(d->b.g, x, coda_mul(d->b.g, gate, y));
}

/* ---- Attention ---- */

coda_value picture_head_norm(struct drawing *d, coda_value x, const char *name, int64_t tokens)
{
    int64_t heads = d->c->heads, columns = d->c->head_dim, n = d->shape->samples;
    coda_value gain = build_gain(&d->b, name, columns, false);
    coda_value apart = coda_reshape(d->b.g, x, DIMS(n, tokens, heads, columns));
    return coda_reshape(d->b.g, coda_rms_norm(d->b.g, apart, gain, 1e-6f), DIMS(n, tokens, heads * columns));
}

struct picture_qkv picture_qkv(struct drawing *d, coda_value x, const char *const names[3],
                               const char *const norms[2], int64_t tokens)
{
    int64_t wide = d->c->hidden;
    const struct part parts[] = {{names[0], wide}, {names[1], wide}, {names[2], wide}};
    coda_value y = build_linear(&d->b, x, parts, 3, wide, d->c->qkv_bias);
    struct picture_qkv p = {build_range(&d->b, y, 0, wide), build_range(&d->b, y, wide, wide),
                            build_range(&d->b, y, 2 * wide, wide)};
    if (norms)
        p.q = picture_head_norm(d, p.q, norms[0], tokens), p.k = picture_head_norm(d, p.k, norms[1], tokens);
    return p;
}

coda_value picture_turned(struct drawing *d, coda_value x, int64_t from, int64_t tokens)
{
    coda_rope_options o = CODA_ROPE_OPTIONS_INIT;
    o.head_dim = d->c->head_dim;
    o.style = CODA_ROPE_INTERLEAVED;
    o.frequencies = d->frequencies;
    for (int i = 0; i < 3; i++) o.sections[i] = d->c->axes[i] / 2;
    coda_value at = coda_slice(d->b.g, d->positions, 0, from, from + tokens, 1);
    return coda_rope(d->b.g, x, at, &o);
}

coda_value picture_attention(struct drawing *d, coda_value q, coda_value k, coda_value v, coda_value lengths)
{
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    o.heads = o.kv_heads = d->c->heads;
    return coda_attention(d->b.g, q, k, v, lengths, &o);
}

/* ---- Tensors that are made ---- */

/* [rows, columns], for numbers; NULL, and the fault, if there is no memory. It stays as long as the
 * picture. */
static struct made *made_new(struct drawing *d, const char *name, int64_t rows, int64_t columns)
{
    struct made *m = calloc(1, sizeof *m);
    float *number = m ? calloc((size_t)(rows * columns), sizeof *number) : NULL;
    char *copy = number ? strdup(name) : NULL;
    if (!copy) return free(number), free(m), fault_set(d->b.fault, "%s: out of memory", name), NULL;
    *m = (struct made){.number = number, .next = *d->made};
    m->tensor = (struct stored_tensor){.name = copy,
                                       .type = "F32",
                                       .dtype = CODA_F32,
                                       .rank = 2,
                                       .block = 1,
                                       .dims = {rows, columns},
                                       .block_bytes = 4,
                                       .data = (unsigned char *)number,
                                       .bytes = (size_t)(rows * columns) * sizeof *number};
    return *d->made = m;
}

static coda_value made_leaf(struct drawing *d, const char *leaf, coda_dtype t, struct made *m, int64_t rows,
                            int64_t columns)
{
    struct weight w = {.dtype = t, .columns = columns};
    if (m) w.part[0] = &m->tensor, w.parts = 1;
    return build_leaf(&d->b, &w, leaf, rows, columns);
}

/* A tensor of the checkpoint with as many numbers; NULL, and a fault. */
static const struct stored_tensor *find(struct drawing *d, const char *name, int64_t rows, int64_t columns)
{
    const struct stored_tensor *t = build_tensor(&d->b, name, rows, columns);
    if (!t) d->b.failed = true;
    return t;
}

/* ---- Positions ---- */

/* sin, then cos, of an axis's angles. */
static void put_axis(float *to, int64_t columns, double at)
{
    for (int64_t i = 0; i < columns / 2; i++) {
        double angle = at * pow(10000, -(double)i / (double)(columns / 2));
        to[i] = (float)sin(angle);
        to[columns / 2 + i] = (float)cos(angle);
    }
}

/* Where patch i of n is: the network's own `base` patches are 0, 1, 2 ..., others between them. fp32, as
 * diffusers. */
static float place(int i, int n, int base, double scale)
{
    return (float)i / ((float)n / (float)base) / (float)scale;
}

/* The first half of the columns has the patch's column, the other one its row. */
static void put_positions(struct drawing *d, float *to)
{
    const struct picture_config *c = d->c;
    int rows = d->shape->rows, columns = d->shape->columns, base = c->sample / c->patch;
    int all = c->positions, top = (all - rows) / 2, left = (all - columns) / 2;
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++, to += c->hidden) {
            put_axis(to, c->hidden / 2,
                     all ? place(left + x, all, base, 1) : place(x, columns, base, c->scale));
            put_axis(to + c->hidden / 2, c->hidden / 2,
                     all ? place(top + y, all, base, 1) : place(y, rows, base, c->scale));
        }
}

/* The middle of a table that the checkpoint has. */
static void crop_positions(struct drawing *d, const struct stored_tensor *t, float *to)
{
    int all = d->c->positions, rows = d->shape->rows, columns = d->shape->columns, wide = d->c->hidden;
    int64_t top = (all - rows) / 2, left = (all - columns) / 2;
    for (int64_t y = 0; y < rows; y++)
        for (int64_t x = 0; x < columns; x++)
            for (int64_t i = 0; i < wide; i++)
                *to++ = stored_number(t, ((top + y) * all + left + x) * wide + i);
}

static coda_value positions(struct drawing *d)
{
    static const char name[] = "pos_embed.pos_embed";
    int64_t n = picture_patches(d->shape), all = d->c->positions, wide = d->c->hidden;
    const struct stored_tensor *t = NULL;
    struct made *m = made_new(d, "positions", n, wide);
    if (!m) return build_fail(&d->b);
    /* Files of the other kinds may have the table, too; theirs is computed. */
    if (d->b.from && !all) checkpoint_use(d->b.from, name);
    if (d->b.from && all && !(t = find(d, name, all * all, wide))) return CODA_NONE;
    if (t) crop_positions(d, t, m->number);
    else put_positions(d, m->number);
    return made_leaf(d, "positions", CODA_F32, m, n, wide);
}

/* ---- Patches ---- */

/* The filter [hidden, channels, patch, patch], by whose columns a patch is [row, column, channel]. */
static coda_value filter(struct drawing *d, const char *name)
{
    char whole[96];
    const struct picture_config *c = d->c;
    int64_t wide = picture_patch_columns(c), square = (int64_t)c->patch * c->patch;
    struct made *m = NULL;
    snprintf(whole, sizeof whole, "%s.weight", name);
    if (d->b.from) {
        const struct stored_tensor *t = find(d, whole, c->hidden, wide);
        if (!t || !(m = made_new(d, whole, c->hidden, wide))) return build_fail(&d->b);
        for (int64_t i = 0; i < c->hidden * wide; i++) {
            int64_t at = i % wide, channel = at % c->channels, place = at / c->channels;
            m->number[i] = stored_number(t, i / wide * wide + channel * square + place);
        }
    }
    return made_leaf(d, whole, d->b.dtype, m, c->hidden, wide);
}

coda_value picture_filtered(struct drawing *d, coda_value x, const char *name)
{
    build_prefix(&d->b, "", 0);
    coda_value w = filter(d, name), bias = build_weight(&d->b, PART({name, d->c->hidden}), ".bias", 0);
    return coda_bias(d->b.g, coda_matmul(d->b.g, x, w), bias);
}

coda_value picture_patches_in(struct drawing *d, coda_value x)
{
    x = picture_filtered(d, x, "pos_embed.proj");
    return coda_add(d->b.g, x, positions(d));
}

/* Of rows [row, column, channel] those of the channels that count. */
static coda_value some_rows(struct drawing *d, const char *name, const char *suffix, int64_t columns)
{
    const struct picture_config *c = d->c;
    char whole[96];
    int64_t wide = picture_patch_columns(c), n = columns ? columns : 1, square = (int64_t)c->patch * c->patch;
    struct made *m = NULL;
    snprintf(whole, sizeof whole, "%s%s", name, suffix);
    if (d->b.from) {
        const struct stored_tensor *t = find(d, whole, square * c->out_channels, columns);
        if (!t || !(m = made_new(d, whole, wide, n))) return build_fail(&d->b);
        for (int64_t row = 0; row < wide; row++)
            for (int64_t i = 0; i < n; i++)
                m->number[row * n + i] =
                    stored_number(t, (row / c->channels * c->out_channels + row % c->channels) * n + i);
    }
    return made_leaf(d, whole, d->b.dtype, m, wide, columns);
}

coda_value picture_patches_out(struct drawing *d, coda_value x, const char *name)
{
    build_prefix(&d->b, "", 0);
    coda_value w = some_rows(d, name, ".weight", d->c->hidden), bias = some_rows(d, name, ".bias", 0);
    return coda_bias(d->b.g, coda_matmul(d->b.g, x, w), bias);
}
