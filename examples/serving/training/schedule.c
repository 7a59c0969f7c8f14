/*
 * schedule.c -- warm-up and cosine.
 */
#include <math.h>

#include "train_schedule.h"

static const double least = 0.1, half_turn = 3.141592653589793;

static double share_of(const struct schedule *s, int64_t step)
{
    if (step <= s->warmup) return (double)step / (double)s->warmup;
    double left = (double)(s->steps - s->warmup);
    double done = left > 0 ? (double)(step - s->warmup) / left : 1;
    return least + (1 - least) * (1 + cos(half_turn * (done < 1 ? done : 1))) / 2;
}

struct rates schedule_rates(const struct schedule *s, int64_t step)
{
    struct rates r = {.rate = (float)(s->rate * share_of(s, step))};
    r.unbias_m = (float)(1 / (1 - pow(BETA_M, (double)step)));
    r.unbias_v = (float)(1 / (1 - pow(BETA_V, (double)step)));
    return r;
}
