/*
 * elementary.h -- exp, tanh and erfc in double without a branch or a call, so that compilers make vectors of
 * them: within 1e-12, 1e-11 and 1e-9 of their value. Loops whose results are rounded to a float, 6e-8, use
 * them; one element is computed by the C library's own.
 */
#ifndef ELEMENTARY_H
#define ELEMENTARY_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ELEMENTARY static inline __attribute__((always_inline)) double

/* e^x = 2^k e^r with |r| <= log(2) / 2 and its Taylor series. Below -708 it is 0, above 709 inf. */
ELEMENTARY fast_exp(double x)
{
    const double low = -708, high = 709, round = 0x1.8p52;
    double y = x < low ? low : x > high ? high : x;
    double k = y * 0x1.71547652b82fep0 + round; /* its last bits are the integer */
    uint64_t bits, power;
    memcpy(&bits, &k, sizeof bits);
    k -= round;
    double r = (y - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33; /* log(2) in two parts */
    double sum = 1.0 / 3628800;
    sum = sum * r + 1.0 / 362880;
    sum = sum * r + 1.0 / 40320;
    sum = sum * r + 1.0 / 5040;
    sum = sum * r + 1.0 / 720;
    sum = sum * r + 1.0 / 120;
    sum = sum * r + 1.0 / 24;
    sum = sum * r + 1.0 / 6;
    sum = sum * r + 0.5;
    sum = sum * r + 1;
    sum = sum * r + 1;
    memcpy(&power, &sum, sizeof power);
    power += bits << 52;
    memcpy(&sum, &power, sizeof sum);
    sum = x < low ? 0 : sum;
    sum = x > high ? (double)INFINITY : sum;
    return x != x ? x : sum;
}

/* (1 - e^(-2 |x|)) / (1 + e^(-2 |x|)), and three terms of its series where that cancels. */
ELEMENTARY fast_tanh(double x)
{
    double a = fabs(x), e = fast_exp(-2 * a), square = x * x;
    double large = copysign((1 - e) / (1 + e), x);
    double small = x * (1 + square * (square * (2.0 / 15) - 1.0 / 3));
    return a < 0x1p-9 ? small : large;
}

/*
 * 1 - erf(x). For z = |x| and t = 2 / (2 + z), log(erfc(z) e^(z^2) / t) is smooth in u = 2t - 1: a
 * polynomial, made of its Chebyshev series at 60 points in 40 digits.
 */
ELEMENTARY fast_erfc(double x)
{
    double z = fabs(x), t = 2 / (2 + z), u = 2 * t - 1;
    double sum = -8.12125516999092705e-6;
    sum = sum * u + 0.0000207230709577788168;
    sum = sum * u + 0.0000417958965862426925;
    sum = sum * u - 0.000154633790829665934;
    sum = sum * u - 0.0000711973128177068147;
    sum = sum * u + 0.000657953847771023527;
    sum = sum * u - 0.000156134273189479938;
    sum = sum * u - 0.00233927772405259194;
    sum = sum * u + 0.00176133936464538457;
    sum = sum * u + 0.00882355817764503986;
    sum = sum * u - 0.0098729804592939944;
    sum = sum * u - 0.0468954821609950006;
    sum = sum * u + 0.0473433203673801641;
    sum = sum * u + 0.672643220546008433;
    sum = sum * u - 0.671794084160357272;
    double y = t * fast_exp(sum - z * z);
    return x < 0 ? 2 - y : y;
}

#endif
