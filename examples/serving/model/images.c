/*
 * images.c -- images in batches: pixels go in, one vector for each image comes out.
 */
#include <string.h>

#include "model.h"

/* [images, channels, side, side] as [images, patches, numbers of one], these by channel, row and column. */
static coda_value patches(struct build *b, coda_value pixels, coda_dim images)
{
    const struct config *c = b->c;
    coda_graph *g = b->g;
    int64_t n = c->image / c->patch, p = c->patch, seen = n * p;
    if (seen < c->image) pixels = coda_slice(g, coda_slice(g, pixels, 2, 0, seen, 1), 3, 0, seen, 1);
    coda_value x = coda_reshape(g, pixels, DIMS(images, c->channels, n, p, n, p));
    x = coda_cast(g, coda_transpose(g, x, (int[]){0, 2, 4, 1, 3, 5}), b->dtype);
    return coda_reshape(g, x, DIMS(images, n * n, c->channels * p * p));
}

coda_graph *images_graph(struct model *m, struct fault *f)
{
    const struct config *c = &m->config;
    coda_graph *g = coda_graph_new();
    if (!g) return fault_set(f, "out of memory"), NULL;
    struct build b = {.g = g,
                      .c = c,
                      .from = m->opt.random ? NULL : &m->files,
                      .weights = &m->weights,
                      .fault = f,
                      .dtype = m->opt.dtype};
    coda_dim images = coda_symbol(g, "B", 1, m->opt.sentences, 1);
    coda_value pixels = coda_input(g, "pixels", CODA_F32, DIMS(images, c->channels, c->image, c->image));
    b.zeros = coda_input(g, "zeros", CODA_I32, DIMS(images, 1)); /* as inputs are from the start */
    coda_value x = coda_cast(g, m->family->graph(&b, patches(&b, pixels, images)), CODA_F32);
    coda_output(g, "vectors", coda_reshape(g, x, DIMS(images, c->hidden)));
    if (!b.failed && coda_graph_status(g) == CODA_OK && build_done(&b)) return g;
    if (!b.failed) fault_set(f, "%s", coda_error());
    coda_graph_free(g);
    return NULL;
}

bool model_see(struct model *m, const float *pixels, int images, float *to, struct fault *f)
{
    const struct config *c = &m->config;
    size_t each = (size_t)c->channels * (size_t)c->image * (size_t)c->image, wide = (size_t)c->hidden;
    if (!m->family->images) return fault_set(f, "family %s sees no images", c->family);
    for (int at = 0, n; at < images; at += n, pixels += (size_t)n * each, to += (size_t)n * wide) {
        n = images - at < m->opt.sentences ? images - at : m->opt.sentences;
        memcpy(model_input(m, "pixels"), pixels, (size_t)n * each * sizeof *pixels);
        if (!model_run(m, (int64_t[]){n}, 1, f) ||
            !model_output(m, "vectors", to, 0, (size_t)n * wide * sizeof *to, f))
            return false;
    }
    return true;
}
