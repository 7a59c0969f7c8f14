/*
 * config.h -- what a model's config.json says about its graph, checked.
 */
#ifndef CONFIG_H
#define CONFIG_H

#include <jansson.h>
#include <stdint.h>

#include "coda.h"
#include "fault.h"
#include "quant.h"

struct keys; /* keys.h */

enum { MOST_LAYERS = 256, MOST_ENDS = 16, MOST_FREQUENCIES = 512 };

enum activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_GELU_QUICK,
    ACTIVATION_RELU,
    ACTIVATION_RELU2
};

/* Angles of positions, as coda_rope takes them. */
struct rope {
    double base;
    int rotary; /* rotated columns of a head */
    bool interleaved;
    bool scaled;                              /* by frequencies, else base tells them */
    float frequencies[MOST_FREQUENCIES];      /* radians for one position, rotary / 2 of them */
    float long_frequencies[MOST_FREQUENCIES]; /* instead, where texts may be longer than `original` */
    int original;                             /* 0: there are none */
    float scale;                              /* of cosine and sine */
};

/* What Mamba-2's first product makes, in its order. */
enum { SSD_Z, SSD_X, SSD_B, SSD_C, SSD_STEP, SSD_PARTS };

/* Layers that carry a state in place of keys and values, or beside them. */
struct recurrent {
    int heads, inner;    /* inner: columns of all heads */
    int states;          /* numbers that each column has; of the delta rule columns of a key head */
    int groups;          /* of heads that share what states are written and read by; key heads */
    int taps;            /* of the convolution */
    int rank;            /* of the products that make Mamba's steps */
    bool bias, out_bias; /* of the products at both ends */
    bool taps_bias;
    enum { GATE_THEN_NORM, NORM_THEN_GATE, NORM_NONE } norm;
    float times[SSD_PARTS]; /* of the product's columns; 1: as they are */
};

/* Numbers that values are multiplied by; 1 in most families. */
struct multipliers {
    float embedding, residual, logits, keys, attention_in, attention_out, scan_in, scan_out, gate, down;
};

struct config {
    char family[32]; /* model_type */
    int layers, hidden, heads, kv_heads, head_dim, inner, vocabulary;
    int positions; /* that the model was made for */
    int types;     /* rows of BERT's table of token types */
    float eps;
    enum activation activation;
    int tied;      /* 1: the head is the table of tokens; -1: if there is no other */
    bool qkv_bias; /* of the products that make queries, keys and values */
    bool out_bias; /* of the product behind attention */
    bool mlp_bias;
    bool turned;               /* GPT-2's matrices are [out, in], as GGUF has them */
    bool unit_gains;           /* Gemma's gains are kept less 1, but in GGUF */
    bool sliding[MOST_LAYERS]; /* layers that see the last `window` keys alone */
    int window;
    bool bidirectional;             /* tokens see those behind them, too: an encoder made of a decoder */
    struct rope rope, sliding_rope; /* of the other layers, and of those that slide */
    float attention_scale;          /* of scores; 0: 1 / sqrt(head_dim) */
    float attention_cap, logit_cap; /* soft caps; 0: none */
    int ends[MOST_ENDS], end_count; /* tokens that end a text */
    struct quant_config quant;      /* how weights are quantised */
    struct recurrent recurrent;
    bool keeps[MOST_LAYERS];   /* layers with keys and values */
    bool carries[MOST_LAYERS]; /* layers that carry a state */
    bool no_rope;              /* attention does not know where tokens sit */
    struct multipliers times;
    bool wide_residual; /* what layers add up is fp32 */
    int rank, ranks; /* heads, kv_heads and inner are those of one of several ranks: cut.h; 0: there is one */
    int all_heads, all_kv_heads, all_inner; /* of all of them */
    int image, patch, channels; /* pixels of an image's side, and of a patch's; 0: there are no images */
};

/* false, and a line that names the member, if it is missing, of another kind, or out of range, or if nobody
 * reads it and it is not known to change nothing (config_keys.h). */
bool config_read(struct config *c, const json_t *object, struct fault *f);

/* Adds the tokens that end a text by generation_config.json, of which all members must be known likewise;
 * none if it is NULL. */
bool config_ends(struct config *c, const json_t *object, struct fault *f);
/* Adds one, unless it is there, below 0, or there is no room. */
void config_end(struct config *c, int token);
bool config_is_end(const struct config *c, int token);

/* ---- For those who read objects by the tables of config_keys.h: members by one of two names ---- */

/* A whole number in least..most; `fallback` where it is absent or null. Below `least` there is no fallback.
 * */
bool config_int(struct keys *k, const char *name, const char *other, long long least, long long most,
                long long fallback, int *out, struct fault *f);
bool config_number(struct keys *k, const char *name, const char *other, double least, double most,
                   double fallback, double *out, struct fault *f);
bool config_bool(struct keys *k, const char *name, bool fallback, bool *out, struct fault *f);
/* keys_end, if what came before was `good`; else keys_leave. */
bool config_done(struct keys *k, bool good, struct fault *f);

/* The object of an image encoder, or of a tower within `o`, with what transformers leaves out of it; `o`
 * itself of other families. A new reference; NULL, and a fault, if there is none. */
json_t *config_tower(const json_t *o, struct fault *f);
/* The sizes of Mamba's layers, where the family has no others. */
bool config_mamba(struct config *c, struct keys *k, struct fault *f);
/* How many layers there are, and which of them attend, and which carry a state. */
bool config_layers(struct config *c, struct keys *k, struct fault *f);
/* The sizes of those that do, and the numbers that values are multiplied by, of a family that has both. */
bool config_hybrid(struct config *c, struct keys *k, struct fault *f);
bool config_is_hybrid(const struct config *c);
/* Bytes of one text's states in all layers, where the other numbers have `element` bytes each; and columns of
 * keys, as many as of values, that all layers keep of a token. */
double config_state_bytes(const struct config *c, double element);
double config_key_columns(const struct config *c);
/* Which model_types have experts. */
bool config_has_experts(const char *family);
/* The sizes of images, where the family has them. */
bool config_image(struct config *c, struct keys *k, struct fault *f);

/* The frequencies of both kinds of layers. c->head_dim, positions and family are there. */
bool config_rope(struct config *c, struct keys *k, struct fault *f);

#endif
