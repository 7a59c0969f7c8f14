/*
 * backward.h -- what backward.c measures: graphs, floors, and what compares results with textbook formulas.
 */
#ifndef BACKWARD_H
#define BACKWARD_H

#include "reference.h"

#include <string.h>

enum { FUSED, UNFUSED, LESS }; /* sides; LESS is without what is measured: sums in fp32, or of columns */
enum { LAYER_WEIGHTS = 4 };    /* w0 to w3 */

/* Is the figure of that kind? Its name is backward/KIND/SIZE. */
static inline bool is(const struct figure *f, const char *kind)
{
    const char *own = f->name + strlen("backward/");
    return !strncmp(own, kind, strlen(kind)) && own[strlen(kind)] == '/';
}

/* Shapes of attention: columns of a head, and query heads that read a key head. */
static inline int64_t head_columns(const struct figure *f) { return is(f, "attention-64") ? 64 : 128; }
static inline int64_t heads_grouped(const struct figure *f)
{
    return is(f, "attention-groups") ? f->small ? 2 : 4 : 1;
}

/* Which weight backward/wgrad/w2/SIZE is of: 2. */
static inline int weight_of(const struct figure *f) { return f->name[strlen("backward/wgrad/w")] - '0'; }

/* Rows and columns of w0 to w3; n is D and k is F. */
static inline int64_t rows_of_weight(const struct figure *f, int w)
{
    return (int64_t[]){f->n, 2 * f->k, f->n, 3 * f->n}[w];
}
static inline int64_t columns_of_weight(const struct figure *f, int w) { return w == 2 ? f->k : f->n; }

/* Graphs of a side, and of peers: appended to g. */
void layer_graph(coda_graph *g, const struct figure *f, int side);
void layer_products(coda_graph *g, const struct figure *f);
void swiglu_graph(coda_graph *g, const struct figure *f, int side);
void rms_graph(coda_graph *g, const struct figure *f, int side);
void two_products(coda_graph *g, const struct figure *f);
void paper_rms_graph(coda_graph *g, const struct figure *f, int side);
void paper_swiglu_graph(coda_graph *g, const struct figure *f, int side);
void paper_product(coda_graph *g, const struct figure *f);
void weight_graph(coda_graph *g, const struct figure *f, int side);
void weight_product(coda_graph *g, const struct figure *f);
void loss_graph(coda_graph *g, const struct figure *f, int side);
void loss_products(coda_graph *g, const struct figure *f);
void adamw_graph(coda_graph *g, const struct figure *f, int side);
void copy_graph(coda_graph *g, const struct figure *f);
void norm_graph(coda_graph *g, const struct figure *f, int side);
void read_graph(coda_graph *g, const struct figure *f);
void embedding_graph(coda_graph *g, const struct figure *f, int side);
void attention_graph(coda_graph *g, const struct figure *f, int side);

/* Milliseconds that a figure takes at least. */
double layer_floor(const struct figure *f, double tflops, double tbytes);
double swiglu_floor(const struct figure *f, double tflops, double tbytes);
double rms_floor(const struct figure *f, double tflops, double tbytes);
double paper_floor(const struct figure *f, double tflops, double tbytes);
double weight_floor(const struct figure *f, double tflops, double tbytes);
double loss_floor(const struct figure *f, double tflops, double tbytes);
double parameters_floor(const struct figure *f, double tflops, double tbytes);
double table_floor(const struct figure *f, double tflops, double tbytes);
double attention_floor(const struct figure *f, double tflops, double tbytes);
double attention_flops(const struct figure *f); /* five products, of which the mask leaves half */

/* Compare the sides' results with textbook formulas. */
void check_layer(struct figure *f);
void check_layer_both(struct figure *f); /* with the forward's outputs */
void check_swiglu(struct figure *f);
void check_rms(struct figure *f);
void check_paper_rms(struct figure *f);
void check_paper_swiglu(struct figure *f);
void check_weight(struct figure *f);
void check_loss(struct figure *f);
void check_adamw(struct figure *f);
void check_norm(struct figure *f);
void check_embedding(struct figure *f);
void check_attention(struct figure *f);

#endif
