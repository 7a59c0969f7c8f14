/*
 * preview.c -- linear maps of latents to colours.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "preview.h"

enum { TIMES = 50 }; /* of a matrix's power, of which the first vector is left */

/* ---- False colours: principal components (Pearson 1901) ---- */

struct components {
    int n;
    double *mean, *square; /* [n], [n, n] */
};

static void measure(struct components *c, const float *x, int64_t pixels)
{
    int n = c->n;
    for (int i = 0; i < n; i++) {
        c->mean[i] = 0;
        for (int64_t k = 0; k < pixels; k++) c->mean[i] += (double)x[i * pixels + k] / (double)pixels;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < pixels; k++)
                sum += ((double)x[i * pixels + k] - c->mean[i]) * ((double)x[j * pixels + k] - c->mean[j]);
            c->square[i * n + j] = sum / (double)pixels;
        }
}

/* The vector that the matrix makes longest, of length 1, with a sum that is not negative; it is taken out of
 * the matrix. Its deviation. */
static double take_out(struct components *c, double *v, double *scratch)
{
    int n = c->n;
    double size = 0, sum = 0;
    for (int i = 0; i < n; i++) v[i] = 1 + 0.1 * i;
    for (int t = 0; t < TIMES; t++) {
        size = 0;
        for (int i = 0; i < n; i++) {
            scratch[i] = 0;
            for (int j = 0; j < n; j++) scratch[i] += c->square[i * n + j] * v[j];
            size += scratch[i] * scratch[i];
        }
        size = sqrt(size);
        for (int i = 0; i < n; i++) v[i] = size > 0 ? scratch[i] / size : 0;
    }
    for (int i = 0; i < n; i++) sum += v[i];
    for (int i = 0; i < n && sum < 0; i++) v[i] = -v[i];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) c->square[i * n + j] -= size * v[i] * v[j];
    return sqrt(size);
}

/* Of one picture: map [n + 1, 3]. */
static bool false_colours(const float *x, int n, int64_t pixels, float *map, struct fault *f)
{
    static const double colour[3][3] = {{1, 1, 1}, {0.6, 0, -0.6}, {0.3, -0.6, 0.3}};
    struct components c = {n, calloc((size_t)n, sizeof(double)), calloc((size_t)(n * n), sizeof(double))};
    double *v = calloc((size_t)(2 * n), sizeof *v), first = 0; /* the first one's deviation */
    bool good = (c.mean && c.square && v) || fault_set(f, "out of memory");
    memset(map, 0, sizeof *map * (size_t)(3 * n + 3));
    if (good) measure(&c, x, pixels);
    for (int k = 0; good && k < 3 && k < n; k++) {
        double deviation = take_out(&c, v, v + n), factor = deviation > 1e-4 * first ? 0.5 / deviation : 0;
        if (k == 0) first = deviation;
        for (int i = 0; i < n; i++)
            for (int rgb = 0; rgb < 3; rgb++) {
                map[3 * i + rgb] += (float)(factor * v[i] * colour[k][rgb]);
                map[3 * n + rgb] -= (float)(factor * v[i] * colour[k][rgb] * c.mean[i]);
            }
    }
    free(c.mean);
    free(c.square);
    free(v);
    return good;
}

/* ---- Pixels ---- */

static uint8_t level(double x) { return !(x > -1) ? 0 : x >= 1 ? 255 : (uint8_t)(127.5 * (x + 1) + 0.5); }

struct sheet {
    const struct picture *p;
    int high, wide, zoom;
    struct image *to;
};

/* One latent's square of pixels. Pictures stand side by side, and so do the frames of a video, of which each
 * has a line. */
static void put(const struct sheet *s, int picture, int64_t k, const double *colour)
{
    bool lines = s->p->shape.frames > 1;
    int y = (int)(k / s->wide % s->high) + (lines ? picture * s->high : 0), x = (int)(k % s->wide);
    int place = lines ? (int)(k / s->wide / s->high) : picture;
    int channels = s->to->channels;
    for (int dy = 0; dy < s->zoom; dy++)
        for (int dx = 0; dx < s->zoom; dx++) {
            size_t row = (size_t)(y * s->zoom + dy), column = (size_t)((place * s->wide + x) * s->zoom + dx);
            uint8_t *to = s->to->pixel + (row * (size_t)s->to->width + column) * (size_t)channels;
            for (int i = 0; i < channels; i++) to[i] = level(colour[i]);
        }
}

/* `map`: NULL: channels are colours. */
static void put_picture(const struct sheet *s, int picture, const float *x, const float *map)
{
    int n = s->p->config.channels;
    int64_t pixels = (int64_t)s->p->shape.frames * s->high * s->wide;
    for (int64_t k = 0; k < pixels; k++) {
        double colour[3] = {0};
        for (int rgb = 0; rgb < s->to->channels; rgb++) {
            colour[rgb] = (double)(map ? map[3 * n + rgb] : x[rgb * pixels + k]);
            for (int i = 0; map && i < n; i++)
                colour[rgb] += (double)map[3 * i + rgb] * (double)x[i * pixels + k];
        }
        put(s, picture, k, colour);
    }
}

static bool allocate(struct sheet *s, int channels, struct fault *f)
{
    const struct picture_shape *shape = &s->p->shape;
    bool lines = shape->frames > 1;
    int64_t high = (int64_t)s->high * s->zoom * (lines ? shape->pictures : 1),
            wide = (int64_t)s->wide * s->zoom * (lines ? shape->frames : shape->pictures);
    if (high > 65535 || wide > 65535)
        return fault_set(f, "%lld x %lld pixels are too many: --zoom is %d", (long long)wide, (long long)high,
                         s->zoom);
    *s->to = (struct image){(int)wide, (int)high, channels, malloc((size_t)(high * wide * channels))};
    return s->to->pixel || fault_set(f, "out of memory");
}

bool preview_make(const struct picture *p, const float *latents, const char *map, int zoom, struct image *to,
                  struct fault *f)
{
    int n = p->config.channels;
    bool pixels = p->scale == 1 && (n == 1 || n == 3) && !map, good = true;
    const int64_t dims[] = {n + 1, 3}, count = picture_numbers(p);
    int high = p->shape.rows * p->config.patch, wide = p->shape.columns * p->config.patch;
    struct sheet s = {p, high, wide, zoom, to};
    *to = (struct image){0};
    float *m = map ? picture_array(map, dims, 2, NULL, f) : calloc((size_t)(3 * n + 3), sizeof *m);
    if (!m) return map ? false : fault_set(f, "out of memory");
    good = allocate(&s, pixels ? n : 3, f);
    for (int i = 0; good && i < p->shape.pictures; i++) {
        const float *x = latents + i * count;
        if (!pixels && !map) good = false_colours(x, n, (int64_t)p->shape.frames * high * wide, m, f);
        if (good) put_picture(&s, i, x, pixels ? NULL : m);
    }
    free(m);
    if (!good) free(to->pixel), to->pixel = NULL;
    return good;
}
