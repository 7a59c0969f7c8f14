/*
 * picture_build.h -- what the graphs of pictures are made of. There are two for each kind: one, which runs
 * once, makes all that steps read and that does not depend on latents: of each step and condition a row of
 * modulations, and the text as blocks see it. The other is a step.
 */
#ifndef PICTURE_BUILD_H
#define PICTURE_BUILD_H

#include "build.h"
#include "picture_config.h"

enum { MOST_MODULATIONS = 4 * MOST_LAYERS, TIME_COLUMNS = 256 };

/* What is drawn in a run. */
struct picture_shape {
    int pictures,
        samples;    /* samples: pictures, with guidance each also without its condition, behind all others */
    int conditions; /* that differ in a step */
    int steps;
    int frames, rows, columns; /* of patches; frames: 1 of a picture */
    int text;                  /* tokens */
    bool guided;
    bool clips;
};

/* A tensor that is made of a checkpoint's, or of nothing. */
struct made {
    struct stored_tensor tensor;
    float *number;
    struct made *next;
};

struct drawing {
    struct build b;
    const struct picture_config *c;
    const struct picture_shape *shape;
    struct made **made;

    /* Of the first graph: [steps * conditions, columns] each, one beside the other in the table. */
    coda_value modulation[MOST_MODULATIONS];
    int modulations;
    int64_t wide;

    /* Of a step: [samples or 1, 1, columns] of them, and from where on they are not taken yet. */
    coda_value vector;
    int64_t at;
    coda_value context, lengths;       /* the text; tokens of each sample that count, or none */
    coda_value positions, frequencies; /* of FLUX and Wan */
};

int64_t picture_patches(const struct picture_shape *s);
/* Numbers of a patch. */
int64_t picture_patch_columns(const struct picture_config *c);

/* x W^T + b, by one or more parts. */
coda_value picture_linear(struct drawing *d, coda_value x, const struct part *parts, int n, int64_t columns);
/* Two products around an activation, `name`.linear_1 and linear_2, to `to` columns. */
coda_value picture_embedder(struct drawing *d, coda_value x, const char *name, int64_t from, int64_t to,
                            coda_value (*act)(coda_graph *g, coda_value x));
/* A row for each step and condition: [steps, N] plus [conditions, N]. */
coda_value picture_each(struct drawing *d, coda_value steps, coda_value conditions);
/* Puts chunks * hidden columns into the table: a product with silu(condition); or columns as they are. */
void picture_modulate(struct drawing *d, coda_value condition, const char *name, int chunks);
void picture_keep(struct drawing *d, coda_value columns, int64_t count);

/* The next `count` vectors of the table. */
void picture_take(struct drawing *d, coda_value *to, int count);
/* LN(x) (1 + scale) + shift. */
coda_value picture_modulated(struct drawing *d, coda_value x, coda_value shift, coda_value scale, float eps);
/* x + gate y */
coda_value picture_gated(struct drawing *d, coda_value x, coda_value gate, coda_value y);
/* The columns of a table of this block, or of the model, in a row. */
coda_value picture_table(struct drawing *d, int64_t rows);
/* `name`.net.0.proj, gelu, `name`.net.2 */
coda_value picture_mlp(struct drawing *d, coda_value x, const char *name);
coda_value picture_activation(struct drawing *d, coda_value x);
/* Each head's columns over their root mean square, times `name`.weight. */
coda_value picture_head_norm(struct drawing *d, coda_value x, const char *name, int64_t tokens);
coda_value picture_attention(struct drawing *d, coda_value q, coda_value k, coda_value v, coda_value lengths);

/* Queries, keys and values of a stream; `norm`: by norm_`norm`q and k, with NULL as they are. */
struct picture_qkv {
    coda_value q, k, v;
};
struct picture_qkv picture_qkv(struct drawing *d, coda_value x, const char *const names[3],
                               const char *const norms[2], int64_t tokens);

/* Each head's columns turned by a patch's place on three axes; rows from `from` on of the positions. */
coda_value picture_turned(struct drawing *d, coda_value x, int64_t from, int64_t tokens);

/* Patches as rows of the first block: the filter `name`, and with their positions; the last product, of the
 * channels that count. */
coda_value picture_filtered(struct drawing *d, coda_value x, const char *name);
coda_value picture_patches_in(struct drawing *d, coda_value x);
coda_value picture_patches_out(struct drawing *d, coda_value x, const char *name);

/* ---- The kinds: `first` fills the table; `step` makes of patches [samples, patches, numbers] the result
 * ---- */

struct picture_graphs {
    void (*first)(struct drawing *d, coda_value times);
    coda_value (*step)(struct drawing *d, coda_value patches);
};
extern const struct picture_graphs picture_dit, picture_pixart, picture_sd3, picture_flux, picture_wan;

#endif
