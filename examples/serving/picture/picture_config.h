/*
 * picture_config.h -- what a diffusion transformer's config.json says about its graph, checked; and the sizes
 * of a picture.
 */
#ifndef PICTURE_CONFIG_H
#define PICTURE_CONFIG_H

#include "config.h"

enum picture_kind {
    PICTURE_DIT,    /* of a class: Peebles and Xie, arXiv 2212.09748 */
    PICTURE_PIXART, /* text by cross-attention: Chen et al., arXiv 2310.00426 */
    PICTURE_SD3,    /* two streams: Esser et al., arXiv 2403.03206; SD3.5, too */
    PICTURE_FLUX,   /* two streams, then one, with RoPE */
    PICTURE_WAN     /* a video: text by cross-attention, with RoPE on three axes: arXiv 2503.20314 */
};

enum { MOST_PICTURE_SIDE = 4096 }; /* of latents */

struct picture_config {
    enum picture_kind kind;
    char name[40];                      /* the class */
    int heads, head_dim, hidden, inner; /* inner: columns within an MLP */
    int layers, single_layers;          /* single_layers: FLUX's of one stream */
    int channels, out_channels;         /* of latents, and of what the network makes of them */
    int patch;                          /* latents of a patch's side */
    int sample, sample_wide;            /* sides of the latents that the network was trained on */
    int frames, most_side;              /* Wan: of latents, as is usual; patches on an axis, at most */
    int classes;                        /* 0: pictures are of a text */
    int text_columns, pooled_columns;
    int positions; /* SD3: patches of the table's side */
    double scale;  /* PixArt: positions are divided by it */
    double eps;    /* of the norm before an MLP; Wan: of all */
    bool qkv_bias;
    bool projects;            /* PixArt: text goes through two products */
    bool sizes;               /* PixArt: the picture's sides are conditions */
    bool guidance;            /* FLUX: its strength is one */
    bool qk_norm, cross_norm; /* cross_norm: Wan, before cross-attention */
    bool gelu_erf;
    bool dual[MOST_LAYERS]; /* SD3.5: the picture attends to itself once more */
    int axes[3];            /* columns of a head that turn by text (FLUX) or frame (Wan), row, column */
};

/* `o` is the object of config.json. false, and a line, for what is missing, odd or not known. */
bool picture_config_read(struct picture_config *c, const json_t *o, struct fault *f);

extern const struct key_table picture_keys;  /* transformer/config.json, by class */
extern const struct key_table schedule_keys; /* scheduler/scheduler_config.json, by class */

#endif
