/* backward_floor.c -- what backward.c's figures take at least: each kernel's arithmetic or traffic, whichever
 * takes longer, every operand moved once; ms. */
#include "backward.h"

#include <math.h>

struct rates {
    double tflops, tbytes;
};

static double kernel_ms(struct rates r, double flops, double bytes)
{
    return 1e3 * fmax(flops / (r.tflops * 1e12), bytes / (r.tbytes * 1e12));
}

/* A product of M tokens by weight w, which moves so many bf16 columns of tokens, or the weight's gradient. */
static double product_ms(const struct figure *f, struct rates r, int w, double columns, double weight_bytes)
{
    double m = (double)f->m, size = (double)rows_of_weight(f, w) * (double)columns_of_weight(f, w);
    return kernel_ms(r, 2 * m * size, 2 * m * columns + weight_bytes * size);
}

static double forward_floor(const struct figure *f, struct rates r)
{
    double d = (double)f->n, h = (double)f->k;
    return product_ms(f, r, 0, 3 * d, 2) + product_ms(f, r, 1, d + 3 * h, 2) +
           product_ms(f, r, 2, 2 * d + h, 2) + product_ms(f, r, 3, 4 * d, 2);
}

double layer_floor(const struct figure *f, double tflops, double tbytes)
{
    struct rates r = {tflops, tbytes};
    double d = (double)f->n, h = (double)f->k,
           dw = is(f, "layer-f32") ? 8 : 2; /* read and written; written */
    double sum = kernel_ms(r, 0, 2 * (double)f->m * 9 * d);
    sum += product_ms(f, r, 3, 6 * d, 2) + product_ms(f, r, 3, 4 * d, dw);
    sum += product_ms(f, r, 2, d + 4 * h, 2) + product_ms(f, r, 2, d + h, dw);
    sum += product_ms(f, r, 1, 2 * h + 3 * d, 2) + product_ms(f, r, 1, 2 * h + d, dw);
    sum += product_ms(f, r, 0, 2 * d, 2) + product_ms(f, r, 0, 2 * d, dw);
    return sum + (is(f, "layer-both") ? forward_floor(f, r) : 0);
}

double swiglu_floor(const struct figure *f, double tflops, double tbytes)
{
    struct rates r = {tflops, tbytes};
    double d = (double)f->n, h = (double)f->k;
    return product_ms(f, r, 2, d + 5 * h, 2) + product_ms(f, r, 2, d + h, 2);
}

double rms_floor(const struct figure *f, double tflops, double tbytes)
{
    struct rates r = {tflops, tbytes};
    double d = (double)f->n;
    return kernel_ms(r, 0, 2 * (double)f->m * 5 * d) + product_ms(f, r, 3, 4 * d, 2) +
           product_ms(f, r, 3, 4 * d, 2);
}

double paper_floor(const struct figure *f, double tflops, double tbytes)
{
    double m = (double)f->m, n = (double)f->n, k = (double)f->k, matrices = is(f, "paper/swiglu") ? 5 : 3;
    return kernel_ms((struct rates){tflops, tbytes}, 2 * m * n * k, 2 * (m * k + k * n + matrices * m * n));
}

double weight_floor(const struct figure *f, double tflops, double tbytes)
{
    int w = weight_of(f);
    double columns = (double)(rows_of_weight(f, w) + columns_of_weight(f, w));
    return product_ms(f, (struct rates){tflops, tbytes}, w, columns, 4);
}

double loss_floor(const struct figure *f, double tflops, double tbytes)
{
    struct rates r = {tflops, tbytes};
    double m = (double)f->m, d = (double)f->n, v = (double)f->k, flops = 2 * m * d * v;
    return 3 * kernel_ms(r, flops, 2 * (m * d + v * d + m * v)) + kernel_ms(r, 0, 4 * m * v);
}

double parameters_floor(const struct figure *f, double tflops, double tbytes)
{
    double n = (double)f->m * (double)f->n;
    return kernel_ms((struct rates){tflops, tbytes}, 0, (is(f, "norm") ? 4 : 30) * n);
}

double table_floor(const struct figure *f, double tflops, double tbytes)
{
    double n = (double)f->n;
    return kernel_ms((struct rates){tflops, tbytes}, 0, 2 * (double)f->m * n + 4 * (double)f->k * n);
}

double attention_flops(const struct figure *f) { return 5 * (double)f->m * (double)f->k * (double)f->n; }

double attention_floor(const struct figure *f, double tflops, double tbytes)
{
    return kernel_ms((struct rates){tflops, tbytes}, attention_flops(f), 2 * 8 * (double)f->m * (double)f->n);
}
