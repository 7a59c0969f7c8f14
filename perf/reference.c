/* reference.c -- see reference.h. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

double *room(int64_t n)
{
    double *p = malloc(sizeof *p * (size_t)n);
    must(!p, "malloc");
    return p;
}

double *rows_of(struct figure *f, const char *name, int rows, const int64_t *row)
{
    const struct tensor *t = figure_tensor(f, name);
    double *x = room(rows * t->columns);
    for (int i = 0; i < rows; i++) tensor_row(t, row[i], x + i * t->columns);
    return x;
}

static double *times_by(struct figure *f, const char *name, int rows, double *x, bool kn)
{
    const struct tensor *w = figure_tensor(f, name);
    int64_t k = kn ? w->count / w->columns : w->columns, n = w->count / k;
    double *y = room(rows * n);
    for (int i = 0; i < rows; i += ROWS) {
        int some = rows - i < ROWS ? rows - i : ROWS;
        if (kn) product_kn(w, some, x + i * k, y + i * n);
        else product(w, some, x + i * k, y + i * n);
    }
    free(x);
    return y;
}

double *times(struct figure *f, const char *name, int rows, double *x)
{
    return times_by(f, name, rows, x, false);
}

double *times_kn(struct figure *f, const char *name, int rows, double *x)
{
    return times_by(f, name, rows, x, true);
}

void add(double *x, const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

double *normed(struct figure *f, const char *gain, int rows, int64_t n, const double *x)
{
    const struct tensor *t = figure_tensor(f, gain);
    double *y = room(rows * n);
    for (int i = 0; i < rows; i++) {
        double squares = 0;
        for (int64_t j = 0; j < n; j++) squares += x[i * n + j] * x[i * n + j];
        double scale = 1 / sqrt(squares / (double)n + 1e-5);
        for (int64_t j = 0; j < n; j++) y[i * n + j] = x[i * n + j] * scale * tensor_at(t, j);
    }
    return y;
}

void rotate(int64_t d, int rows, const int64_t *position, int direction, double *qkv)
{
    for (int i = 0; i < rows; i++)
        for (int64_t head = 0; head < 2 * d / HEAD; head++)
            for (int j = 0; j < HEAD / 2; j++) {
                double *a = qkv + i * 3 * d + head * HEAD + j, *b = a + HEAD / 2, u = *a, v = *b;
                double t = direction * (double)position[i] * pow(10000, -2.0 * j / HEAD);
                *a = u * cos(t) - v * sin(t);
                *b = u * sin(t) + v * cos(t);
            }
}

void gate(int rows, int64_t columns, double *x)
{
    for (int i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double g = x[i * 2 * columns + j], up = x[(i * 2 + 1) * columns + j];
            x[i * columns + j] = g / (1 + exp(-g)) * up; /* writes behind what it still reads */
        }
}

double distance(const struct figure *f, int side, const char *output, int rows, const int64_t *row,
                const double *want)
{
    int64_t n = figure_columns(f, side, output);
    double *got = room(n), difference = 0, size = 0;
    for (int i = 0; i < rows; i++) {
        figure_row(f, side, output, row[i], got);
        for (int64_t j = 0; j < n; j++) {
            double e = got[j] - want[i * n + j];
            difference += e * e;
            size += want[i * n + j] * want[i * n + j];
        }
    }
    free(got);
    return sqrt(difference / size);
}
