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

/*
 * e^x = 2^k e^r with |r| <= log(2) / 2; below -708 it is 0, above 709 inf. e^r is 1 + r and r^2 times a
 * polynomial through eight Chebyshev points, within 8e-14. Even and odd powers are summed side by side, here
 * and below, as a chain of operations takes longer than the operations. What is computed of an x out of range
 * or of an infinity is dropped in the end. A NaN that was a float has no bits where those of k are, and stays
 * one.
 */
ELEMENTARY fast_exp(double x)
{
    const double low = -708, high = 709, round = 0x1.8p52;
    double k = x * 0x1.71547652b82fep0 + round; /* its last bits are the integer */
    uint64_t bits, power;
    memcpy(&bits, &k, sizeof bits);
    k -= round;
    double r = (x - k * 0x1.62e42feep-1) - k * 0x1.a39ef35793c76p-33; /* log(2) in two parts */
    double square = r * r, even = 0.000024867883453521803822, odd = 2.7617576848354132737e-6;
    even = even * square + 0.0013888839090641379383;
    odd = odd * square + 0.00019841224581544104911;
    even = even * square + 0.041666666786337554589;
    odd = odd * square + 0.0083333333442095066492;
    even = even * square + 0.49999999999955070802;
    odd = odd * square + 0.16666666666662583338;
    even = even * square + 1;
    odd = odd * square + 1;
    double sum = odd * r + even;
    memcpy(&power, &sum, sizeof power);
    power += bits << 52;
    memcpy(&sum, &power, sizeof sum);
    sum = x < low ? 0 : sum;
    return x > high ? (double)INFINITY : sum;
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
 * 1 - erf(x). For z = |x| and t = 3.5 / (3.5 + z), log(erfc(z) e^(z^2) / t) is smooth in u = 2t - 1: a
 * polynomial through 14 Chebyshev points of z <= 27, behind which erfc is 0 in double; within 3e-10.
 */
ELEMENTARY fast_erfc(double x)
{
    double z = fabs(x), t = 3.5 / (3.5 + z), u = 2 * t - 1, square = u * u;
    double even = -0.0000235908749387369223, odd = 0.0000601927133791270593;
    even = even * square - 0.000183805808084472314;
    odd = odd * square - 0.000313661989845785261;
    even = even * square + 0.00184632832617059832;
    odd = odd * square + 0.000809912392345028781;
    even = even * square - 0.00644221359574011847;
    odd = odd * square + 0.000305673858084057246;
    even = even * square - 0.00487506817214450606;
    odd = odd * square - 0.014557696997299679;
    even = even * square + 0.266403197774367998;
    odd = odd * square + 0.0635638339229208251;
    even = even * square - 1.16929022161729337;
    odd = odd * square + 0.86269712036405458;
    double y = t * fast_exp((odd * u + even) - z * z);
    return x < 0 ? 2 - y : y;
}

#endif
