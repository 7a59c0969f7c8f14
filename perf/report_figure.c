/* report_figure.c -- a figure as a case of a report, and as lines on the screen. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "tensor.h"

/* The tile of the first GEMM, as the plan's text has it. */
static void tile_of(const coda_plan *p, char *to, size_t size)
{
    char *text = plan_text(p, CODA_TEXT_PLAN), *at = text ? strstr(text, "\n   tile ") : NULL;
    snprintf(to, size, "%.*s", at ? (int)strcspn(at + 9, "\n") : 0, at ? at + 9 : "");
    free(text);
}

/* The time of the first GEMM's tile that the price chose, over that of the best one measured. */
static double price_over_best(const coda_plan *p)
{
    char *text = plan_text(p, CODA_TEXT_PLAN), *at = text ? strstr(text, "tuned ") : NULL;
    double best, price, ratio = 0;
    if (at && sscanf(at, "tuned %lf us, by price %lf us", &best, &price) == 2) ratio = price / best;
    free(text);
    return ratio;
}

/* How often side 0 fits into side s: the median over rounds, whose two runs see the same clocks. */
static double ratio_to(const struct figure *f, int s)
{
    double ratio[ROUNDS];
    for (int r = 0; r < f->rounds; r++) ratio[r] = f->side[s].ms[r] / f->side[0].ms[r];
    return median(ratio, f->rounds);
}

/* Milliseconds that the work takes at rates which this kind of card sustains: 700 TFLOP/s, limited by power
 * alike; an H200's memory moves 4.2 TB/s, an H100's 2.9. 0: not known */
static double floor_of(const struct figure *f)
{
    bool h200 = strstr(f->machine->name, "H200") != NULL;
    return f->floor ? f->floor(f, 700, h200 ? 4.2 : 2.9) : 0;
}

static double mean_of(const struct figure *f, const struct side *s, bool watts)
{
    double sum = 0;
    for (int r = 0; r < f->rounds; r++) sum += watts ? s->draw[r].watts : s->draw[r].mhz;
    return sum / f->rounds;
}

static double spread(const struct kernel_time *t) { return t->max / t->min; }

static void report_kernels(FILE *json, const struct side *s)
{
    fputs(", \"kernels\": [", json);
    for (int k = 0; k < s->kernels; k++)
        fprintf(json, "%s{\"name\": \"%s\", \"median\": %.6g, \"spread\": %.4g}", k ? ", " : "",
                s->kernel[k].name, s->kernel[k].median, spread(&s->kernel[k]));
    putc(']', json);
}

/* Of a kernel the largest over the least time, where kernels were timed, else of a replay. Kernels that take
 * less than a twentieth of a run are left out: what spreads there is the time between two launches. */
static double worst_spread(const struct side *s)
{
    double worst = s->kernels ? 0 : spread(&s->all);
    for (int k = 0; k < s->kernels; k++)
        if (s->kernel[k].median > s->all.median / 20) worst = fmax(worst, spread(&s->kernel[k]));
    return worst;
}

static void report_load(FILE *json, const struct figure *f, const struct side *s, double ms)
{
    double watts = mean_of(f, s, true), mhz = mean_of(f, s, false);
    if (isfinite(watts)) fprintf(json, ", \"watts\": %.4g, \"joules\": %.4g", watts, watts * ms * 1e-3);
    if (isfinite(mhz)) fprintf(json, ", \"mhz\": %.4g", mhz);
    fprintf(json, ", \"spread\": %.4g, \"replays\": %.4g", worst_spread(s), spread(&s->all));
    report_kernels(json, s);
}

/* The joules of side s over those of side 0; 0: not known. */
static double energy_to(const struct figure *f, const double *mid, int s)
{
    double own = mean_of(f, &f->side[0], true) * mid[0], other = mean_of(f, &f->side[s], true) * mid[s];
    return isfinite(own) && isfinite(other) && own > 0 ? other / own : 0;
}

static void report_sides(FILE *json, struct figure *f, double *mid, double *ratio, bool sustained)
{
    for (int s = 0; s < f->sides; s++) ratio[s] = ratio_to(f, s);
    fputs(", \"sides\": {", json);
    for (int s = 0; s < f->sides; s++) {
        double *ms = f->side[s].ms;
        mid[s] = median(ms, f->rounds);
        fprintf(json, "%s\"%s\": {\"median\": %.6g, \"min\": %.6g, \"max\": %.6g", s ? ", " : "",
                f->side[s].name, mid[s], ms[0], ms[f->rounds - 1]);
        if (sustained) report_load(json, f, &f->side[s], mid[s]);
        putc('}', json);
    }
    fputs("}, \"ratio\": {", json);
    for (int s = 1; s < f->sides; s++)
        fprintf(json, "%s\"%s\": %.4f", s > 1 ? ", " : "", f->side[s].name, ratio[s]);
    if (f->tuned && price_over_best(f->side[0].plan) > 0)
        fprintf(json, "%s\"price\": %.4f", f->sides > 1 ? ", " : "", price_over_best(f->side[0].plan));
    putc('}', json);
    if (!sustained) return;
    fputs(", \"energy\": {", json);
    for (int s = 1; s < f->sides && energy_to(f, mid, s) > 0; s++)
        fprintf(json, "%s\"%s\": %.4f", s > 1 ? ", " : "", f->side[s].name, energy_to(f, mid, s));
    putc('}', json);
}

static void print_loads(const struct figure *f, const double *mid)
{
    for (int i = 0; i < f->sides; i++) {
        const struct side *s = &f->side[i];
        const struct draw *d = &s->draw[f->rounds - 1];
        char limits[80];
        power_limits(d->limits, limits, sizeof limits);
        printf("    %-12s %9.4f ms %5.0f W %6.0f MHz, at least %.0f; replays spread %.2f; limits: %s\n",
               s->name, mid[i], mean_of(f, s, true), mean_of(f, s, false), d->least_mhz, spread(&s->all),
               limits);
        for (int k = 0; k < s->kernels; k++)
            printf("        %-56s %9.4f ms %9.4f .. %.4f\n", s->kernel[k].name, s->kernel[k].median,
                   s->kernel[k].min, s->kernel[k].max);
    }
}

bool report_figure(struct report *r, struct figure *f, bool sustained)
{
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    char tile[96], name[sizeof f->name + 20];
    double mid[SIDES] = {0}, ratio[SIDES] = {0};
    bool good = f->excess <= 1, one = f->first_kernel || f->last_kernel;
    coda_plan_stats_get(f->side[0].plan, &stats);
    if (f->flops > 0) stats.flops = f->flops;
    tile_of(f->side[0].plan, tile, sizeof tile);
    snprintf(name, sizeof name, "%s%s%s", sustained ? "sustained/" : "", f->tuned ? "tuned/" : "", f->name);
    report_case(r, name);
    fprintf(r->json, ", \"m\": %lld, \"n\": %lld, \"k\": %lld, \"flops\": %.6g, \"bytes\": %lld, ",
            (long long)f->m, (long long)f->n, (long long)f->k, stats.flops, (long long)stats.bytes);
    fprintf(r->json, "\"launches\": %d, \"timed\": %d, \"tile\": \"%s\", \"error\": %.3g, \"excess\": %.3g, ",
            stats.launches, one ? 1 : stats.launches, tile, f->error, f->excess);
    fprintf(r->json, "\"good\": %s, \"rounds\": %d, \"runs\": %d, \"sets\": %d", good ? "true" : "false",
            f->rounds, f->runs, f->sets);
    report_sides(r->json, f, mid, ratio, sustained);
    double least = floor_of(f);
    fprintf(r->json, ", \"tflops\": %.6g, \"gbytes\": %.6g", stats.flops / mid[0] / 1e9,
            (double)stats.bytes / mid[0] / 1e6);
    if (least > 0) fprintf(r->json, ", \"floor\": %.6g, \"over_floor\": %.4g", least, mid[0] / least);
    report_end_case(r);
    printf("%-28s %9.4f %7.1f  %8.1e %5.2f %s", f->name, mid[0], stats.flops / mid[0] / 1e9, f->error,
           f->excess, good ? "good " : "WRONG");
    for (int s = 1; s < f->sides; s++) printf("  %s %.3f", f->side[s].name, ratio[s]);
    printf("  %d launches, %.0f MB", stats.launches, (double)stats.bytes / 1e6);
    if (least > 0) printf(", floor %.4f ms", least);
    printf("  %s\n", tile);
    if (sustained) print_loads(f, mid);
    fflush(stdout);
    return good;
}
