/*
 * build.h -- what graphs of all families are made of. Weights are named as the checkpoint names its tensors,
 * in the order of the formula; a name that is missing, or of another shape, is one line in the fault.
 *
 * A family's graph is one for two kinds of runs. Of a single text the states are [1, rows, columns], and
 * keys lie in caches of its own. Of many texts (`page` is not 0) they are [rows, columns]: each text has
 * some rows, one behind the other, and its keys lie in pages of a pool, where a table tells. A decoder that
 * learns (`packed`) reads windows of a text, [windows, rows, columns], whose keys are their own.
 */
#ifndef BUILD_H
#define BUILD_H

#include "config.h"
#include "weights.h"

#define DIMS(...)                                                                                            \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { __VA_ARGS__ }

struct build {
    coda_graph *g;
    const struct config *c;
    const struct checkpoint *from; /* NULL: weights have their names, but no tensors */
    struct weights *weights;
    struct fault *fault;
    bool failed; /* the fault says why; CODA_NONE goes through all further calls */
    coda_dtype dtype;
    char root[32];      /* in front of all names, as "model." */
    char prefix[64];    /* in front of the names of parts: the root, and the layer */
    bool scoped;        /* the layer is a scope of the graph, which is open */
    int context;        /* tokens of a text, at most; rows of its caches */
    int page, pages;    /* tokens of a page, pages of the pool; 0: a single text */
    coda_dim rows;      /* tokens of a run, or of a sentence */
    coda_dim sentences; /* of a run of an encoder; of a decoder 0 */
    bool every_row;     /* logits of all tokens, not of the last alone */
    bool packed;        /* a decoder that learns: `sentences` windows of `rows` tokens, no caches */
    bool headless;      /* what a decoder's graph gives are the states that its head reads: see build_head */
    coda_value head;    /* its weight, behind build_logits */
    bool cuts_head;     /* each rank has logits of a part of the vocabulary: cut.h */
    coda_value group;   /* of the ranks, once something is exchanged */
    bool updates;       /* what is learned are states, as a run writes to them */
    int adapter;        /* columns between the two matrices of an adapter; 0: there are none */
    /* int32 inputs. Of a decoder: [1, rows] where tokens sit, and the row of the caches that keeps them, and
     * [1] the keys that are there then; starts [2], the rows that count for states, without which all do. Of
     * an encoder: positions [rows], or with RoPE [sentences, rows], and lengths [sentences]. */
    coda_value positions, slots, lengths;
    /* Of many texts: positions and slots are [rows], lengths [texts], and there are starts [texts + 1], the
     * first row of each, table [texts, pages of one], and last [texts], the rows whose logits are wanted. */
    coda_value starts, table, last;
    coda_dim texts; /* of a run, where there are pages */
    /* Of windows: positions are [sentences, rows], and ranges [sentences, rows, 2] are the tokens that each
     * sees, of those up to itself, so that documents in one window do not see each other. */
    coda_value ranges;
    /* Of images: zeros, int32 [images, 1], by which each has the row of a table of one. */
    coda_value zeros;
};

/* Some rows of a matrix, or elements of a vector. */
struct part {
    const char *name; /* behind the prefix, without ".weight" or ".bias" */
    int64_t rows;
};

#define PART(...)                                                                                            \
    (const struct part[]){__VA_ARGS__}, (int)(sizeof((struct part[]){__VA_ARGS__}) / sizeof(struct part))

/* The first of some roots under which the checkpoint has `name`; else none, as it may have no root. */
void build_root(struct build *b, const char *name, const char *const *roots, int count);
/* The same of a decoder, which may be the part of a larger model that writes. */
void build_decoder(struct build *b);
/* Names from here on begin with the root, and `format`, which may have the layer's number in it. */
void build_prefix(struct build *b, const char *format, int layer);

/* Tensors stacked along their first dimension: [rows of all parts, columns], or a vector if columns is 0. */
coda_value build_weight(struct build *b, const struct part *parts, int n, const char *suffix,
                        int64_t columns);
/* For those who add weights of other kinds: the leaf of one, [rows] if columns is 0, which is on the list
 * then; and what a call gives after a fault. */
coda_value build_leaf(struct build *b, struct weight *w, const char *name, int64_t rows, int64_t columns);
coda_value build_fail(struct build *b);
/* One in fp32 whatever the others have; `rates`: -e^x of each element, as scans want A_log. */
coda_value build_exact(struct build *b, const char *name, const char *suffix, int64_t rows, int64_t columns,
                       bool rates);
/* One of one tensor, as `w` wants its dtype and numbers. */
coda_value build_one(struct build *b, const char *name, const char *suffix, int64_t rows, int64_t columns,
                     struct weight *w);
/* x times a number. */
coda_value build_times(struct build *b, coda_value x, float factor);
/* W of x W, stored [inputs, outputs]. */
coda_value build_turned(struct build *b, const char *name, int64_t inputs, int64_t outputs);
/* A plain tensor of this size; NULL, and the fault, if there is none. */
const struct stored_tensor *build_tensor(struct build *b, const char *name, int64_t rows, int64_t columns);
/* A weight [rows] named `name`.weight, plus 1 if `unit`, then in fp32. */
coda_value build_gain(struct build *b, const char *name, int64_t rows, bool unit);

/* x W^T, and plus the parts' biases if there are any by the config. With an adapter plus x A^T B^T, whose
 * leaves are named as the weight, with ".adapter.a" [adapter, columns] and ".adapter.b" [rows, adapter] for
 * its ".weight". Hu et al., arXiv 2106.09685. */
coda_value build_linear(struct build *b, coda_value x, const struct part *parts, int n, int64_t columns,
                        bool bias);
/* Rows of a table [rows, hidden], by ids. */
coda_value build_embedding(struct build *b, const char *name, int64_t rows, coda_value ids);
/* x W^T alone. */
coda_value build_product(struct build *b, coda_value x, const struct part *parts, int n, int64_t columns);
/* Whether a weight of this name is learned: it is a checkpoint's, or of an adapter where there are any. */
bool build_learns(const struct build *b, const struct weight *w, const char *name);
/* Its gains are less 1 by the config. */
coda_value build_rms_norm(struct build *b, coda_value x, const char *name);
coda_value build_layer_norm(struct build *b, coda_value x, const char *name);
coda_value build_activation(struct build *b, coda_value x);

/* Attention of x's rows [q heads | k heads | v heads]. In a decoder it is causal, to the caches of a layer,
 * which get the new keys and values; in an encoder each sentence's to its own, in both directions. `norms`:
 * queries and keys are normalised by q_norm and k_norm, whose gains are less 1 if `unit`. */
struct attention {
    bool rope, norms, unit;
};
coda_value build_attention(struct build *b, coda_value qkv, int layer, struct attention how);
/* The same of the three apart. */
coda_value build_attend(struct build *b, coda_value q, coda_value k, coda_value v, int layer,
                        struct attention how);
/* Columns of rows; the columns of each head by themselves, and all of a row in one dimension again. */
coda_value build_range(struct build *b, coda_value x, int64_t from, int64_t columns);
coda_value build_apart(struct build *b, coda_value x, int64_t heads, int64_t columns);
coda_value build_together(struct build *b, coda_value x, int64_t columns);
/* down(silu(gate) up), by mlp.gate_proj, mlp.up_proj and mlp.down_proj. */
coda_value build_swiglu(struct build *b, coda_value x);

/* ---- Layers that carry a state (recurrent.c): rows are [tokens, columns], whatever the texts are ---- */

/* x as such rows, and such rows as the other layers have them. */
coda_value build_rows(struct build *b, coda_value x, int64_t columns);
coda_value build_texts(struct build *b, coda_value x, int64_t columns);
coda_value build_columns(struct build *b, coda_value x, int64_t from, int64_t columns);
/* silu of a causal convolution of each column, by `name`.weight [columns, 1, taps], and its bias if there are
 * any; the rows before are a state. */
coda_value build_convolution(struct build *b, coda_value x, const char *name, int layer, int64_t columns);
/* coda_scan, whose state is one of the layer. */
coda_value build_scan(struct build *b, coda_value x, coda_value dt, coda_value a, coda_value in,
                      coda_value out, int layer, const coda_scan_options *o);
/* coda_delta, likewise, of queries and keys that it normalises. */
coda_value build_delta(struct build *b, coda_value q, coda_value k, coda_value v, coda_value decay,
                       coda_value beta, int layer);
/* The layer of Mamba-2, by names as in_proj and conv1d.weight behind the prefix. */
coda_value build_ssd(struct build *b, coda_value x, int layer);
/* Whether a state of this name is one of those, which are zeros where a text begins. */
bool build_is_recurrent(const char *name);

/* The rows whose logits are wanted, and their logits, fp32. `table` is the name of the table of tokens. */
coda_value build_last(struct build *b, coda_value x);
coda_value build_logits(struct build *b, coda_value x, const char *table);
/* The logits of some states, by a weight as build_logits leaves it in `head`. */
coda_value build_head(struct build *b, coda_value states, coda_value head);

/* Behind all that a graph reads: false, and a fault, if the checkpoint has a tensor that nobody has used and
 * without which results may be others. */
bool build_done(struct build *b);

/* ---- Families: decoders give logits, encoders the states of the last layer, those of images vectors ---- */

coda_value family_bert(struct build *b, coda_value ids);
coda_value family_llama(struct build *b, coda_value ids);         /* Mistral, Qwen 2 and 3, Phi-3, too */
coda_value family_gemma(struct build *b, coda_value ids);         /* 1, 2, 3 */
coda_value family_gemma_encoder(struct build *b, coda_value ids); /* 3, in both directions */
coda_value family_gpt2(struct build *b, coda_value ids);
coda_value family_mamba(struct build *b, coda_value ids); /* 1 and 2 */
coda_value family_qwen35(struct build *b, coda_value ids);
coda_value family_nemotron(struct build *b, coda_value ids);
coda_value family_granite(struct build *b, coda_value ids);
coda_value family_falcon(struct build *b, coda_value ids);
/* Of images: patches [images, patches, numbers of one] in, [images, 1, hidden] out. */
coda_value family_vit(struct build *b, coda_value patches);
coda_value family_siglip(struct build *b, coda_value patches);

struct family {
    const char *name; /* model_type */
    coda_value (*graph)(struct build *b, coda_value ids);
    bool encoder, images; /* makes vectors, not text; of images, not of sentences */
    bool bidirectional;   /* by the config */
    bool cuts;            /* may be shared out over ranks: build_cut knows the names of its parts */
};

/* NULL, and a fault, if there is none. */
const struct family *family_find(const struct config *c, struct fault *f);

#endif
