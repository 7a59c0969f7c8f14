/* rope.c -- the pair (a, b) rotated by an angle. */
#include "ref.h"

REFERENCE_PAIR(rope)
{
    double x = *a, y = *b;
    *a = x * cosine - y * sine;
    *b = x * sine + y * cosine;
}
