/* maps.c -- elementwise functions that the library does not bring: as a user would add them. */
#include "case.h"

#include <math.h>
#include <string.h>

#define UNUSED __attribute__((unused))
#define X in[0]
#define Y in[1]
#define P param[0]
#define Q param[1]

/* MAP(name, operands, parameters, device function's arguments, device code, the same in double) */
#define MAPS                                                                                                 \
    MAP(erf, 1, 0, "float x", "erff(x)", erf(X))                                                             \
    MAP(sin, 1, 0, "float x", "sinf(x)", sin(X))                                                             \
    MAP(cos, 1, 0, "float x", "cosf(x)", cos(X))                                                             \
    MAP(tan, 1, 0, "float x", "tanf(x)", tan(X))                                                             \
    MAP(asin, 1, 0, "float x", "asinf(x)", asin(X))                                                          \
    MAP(acos, 1, 0, "float x", "acosf(x)", acos(X))                                                          \
    MAP(atan, 1, 0, "float x", "atanf(x)", atan(X))                                                          \
    MAP(sinh, 1, 0, "float x", "sinhf(x)", sinh(X))                                                          \
    MAP(cosh, 1, 0, "float x", "coshf(x)", cosh(X))                                                          \
    MAP(asinh, 1, 0, "float x", "asinhf(x)", asinh(X))                                                       \
    MAP(acosh, 1, 0, "float x", "acoshf(x)", acosh(X))                                                       \
    MAP(atanh, 1, 0, "float x", "atanhf(x)", atanh(X))                                                       \
    MAP(softsign, 1, 0, "float x", "x / (1.0f + fabsf(x))", X / (1 + fabs(X)))                               \
    MAP(mish, 1, 0, "float x", "x * tanhf(x > 20.0f ? x : log1pf(expf(x)))", X *tanh(log1p(exp(X))))         \
    MAP(hard_swish, 1, 0, "float x", "x * fmaxf(0.0f, fminf(1.0f, x / 6.0f + 0.5f))",                        \
        X *fmax(0, fmin(1, X / 6 + 0.5)))                                                                    \
    MAP(is_inf, 1, 2, "float x, float negative, float positive",                                             \
        "(negative != 0.0f && x == -math::infinity()) || (positive != 0.0f && x == math::infinity()) ? "     \
        "1.0f : 0.0f",                                                                                       \
        (P != 0 && X == -INFINITY) || (Q != 0 && X == INFINITY))                                             \
    MAP(affine, 1, 2, "float x, float a, float b", "a * x + b", P *X + Q)                                    \
    MAP(rsqrt_eps, 1, 1, "float x, float eps", "1.0f / sqrtf(x + eps)", 1 / sqrt(X + P))                     \
    MAP(elu, 1, 1, "float x, float alpha", "x < 0.0f ? alpha * expm1f(x) : x", X < 0 ? P * expm1(X) : X)     \
    MAP(celu, 1, 1, "float x, float alpha", "x < 0.0f ? alpha * expm1f(x / alpha) : x",                      \
        X < 0 ? P * expm1(X / P) : X)                                                                        \
    MAP(selu, 1, 2, "float x, float alpha, float gamma", "gamma * (x > 0.0f ? x : alpha * expm1f(x))",       \
        Q *(X > 0 ? X : P * expm1(X)))                                                                       \
    MAP(leaky_relu, 1, 1, "float x, float alpha", "x < 0.0f ? alpha * x : x", X < 0 ? P * X : X)             \
    MAP(thresholded_relu, 1, 1, "float x, float alpha", "x > alpha ? x : 0.0f", X > P ? X : 0)               \
    MAP(hard_sigmoid, 1, 2, "float x, float alpha, float beta",                                              \
        "fmaxf(0.0f, fminf(1.0f, alpha * x + beta))", fmax(0, fmin(1, P *X + Q)))                            \
    MAP(shrink, 1, 2, "float x, float lambda, float bias",                                                   \
        "x < -lambda ? x + bias : x > lambda ? x - bias : 0.0f", X<-P ? X + Q : X> P ? X - Q : 0)            \
    MAP(swish, 1, 1, "float x, float alpha", "x / (1.0f + expf(-alpha * x))", X / (1 + exp(-P * X)))         \
    MAP(wrap, 1, 1, "float i, float n", "i < 0.0f ? i + n : i", X < 0 ? X + P : X)                           \
    MAP(left, 2, 0, "float x, float", "x", X)                                                                \
    MAP(pow, 2, 0, "float x, float y", "powf(x, y)", pow(X, Y))                                              \
    MAP(prelu, 2, 0, "float x, float slope", "x < 0.0f ? slope * x : x", X < 0 ? Y * X : X)                  \
    MAP(fmod, 2, 0, "float x, float y", "fmodf(x, y)", fmod(X, Y))                                           \
    MAP(mod, 2, 0, "float x, float y",                                                                       \
        "fmodf(x, y) != 0.0f && (x < 0.0f) != (y < 0.0f) ? fmodf(x, y) + y : fmodf(x, y)", floored(X, Y))    \
    MAP(div_toward_zero, 2, 0, "float x, float y", "truncf(x / y)", trunc(X / Y))                            \
    MAP(xor, 2, 0, "float x, float y", "(x != 0.0f) != (y != 0.0f) ? 1.0f : 0.0f", (X != 0) != (Y != 0))

/* The remainder with the sign of y. */
static double floored(double x, double y)
{
    double r = fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

#define MAP(name, inputs, params, arguments, code, value)                                                    \
    static double reference_##name(const double *in, UNUSED const double *param) { return value; }
MAPS
#undef MAP

    static const coda_map_def defs[] = {
#define MAP(name, inputs, params, arguments, code, value)                                                    \
    {sizeof(coda_map_def),                                                                                   \
     #name,                                                                                                  \
     inputs,                                                                                                 \
     params,                                                                                                 \
     "DEV static float apply(" arguments ") { return " code "; }",                                           \
     reference_##name,                                                                                       \
     {NULL}},
        MAPS
#undef MAP
};

void maps_define(coda_graph *g, const char *name)
{
    for (size_t i = 0; i < sizeof defs / sizeof defs[0]; i++)
        if (strcmp(defs[i].name, name) == 0) coda_define_map(g, &defs[i]);
}
