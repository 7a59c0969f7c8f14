/*
 * report.c -- what a run was like: counts, rates, percentiles; a line for each request.
 */
#include <stdlib.h>
#include <string.h>

#include "load.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest value that is not below so many per cent of all; sorted. */
static double percentile(const double *sorted, size_t count, int percent)
{
    size_t rank = (count * (size_t)percent + 99) / 100;
    return count ? sorted[rank ? rank - 1 : 0] : 0;
}

static void print_spread(FILE *to, const char *name, double *seconds, size_t count)
{
    if (count) qsort(seconds, count, sizeof *seconds, compare);
    fprintf(to, "%-12s %9.2f %9.2f %9.2f %9.2f\n", name, 1e3 * percentile(seconds, count, 50),
            1e3 * percentile(seconds, count, 90), 1e3 * percentile(seconds, count, 99),
            count ? 1e3 * seconds[count - 1] : 0);
}

int report_failures(const struct run *r)
{
    int n = 0;
    for (int i = 0; i < r->count; i++) n += r->of[i].failed;
    return n;
}

static void print_counts(const struct run *r, FILE *to)
{
    double end = 0;
    long long tokens = 0;
    int refused = 0;
    for (int i = 0; i < r->count; i++) {
        const struct asked *a = &r->of[i];
        if (a->ended > end) end = a->ended;
        if (!a->failed) tokens += a->tokens;
        refused += a->status == 429;
    }
    fprintf(to, "%d requests in %.2f s: %d errors, %d of them refused (429)\n", r->count, end,
            report_failures(r), refused);
    fprintf(to, "%lld tokens, %.1f tokens/s, %.2f answers/s\n", tokens, end > 0 ? (double)tokens / end : 0,
            end > 0 ? (r->count - report_failures(r)) / end : 0);
}

void report_print(const struct run *r, FILE *to)
{
    double *first = calloc((size_t)r->count + 1, sizeof *first),
           *all = calloc((size_t)r->count + 1, sizeof *all);
    size_t n = 0;
    for (int i = 0; first && all && i < r->count; i++) {
        const struct asked *a = &r->of[i];
        if (a->failed || !a->pieces) continue;
        first[n] = a->first - a->due;
        all[n++] = a->last - a->due;
    }
    print_counts(r, to);
    fprintf(to, "%-12s %9s %9s %9s %9s\n", "ms", "p50", "p90", "p99", "most");
    if (first) print_spread(to, "first token", first, n);
    print_spread(to, "inter-token", r->gaps.of, r->gaps.count);
    if (all) print_spread(to, "end to end", all, n);
    free(first);
    free(all);
}

bool report_csv(const struct run *r, const char *path)
{
    FILE *to = fopen(path, "w");
    if (!to) return false;
    fputs("due_s,prompt_bytes,tokens,first_token_ms,end_to_end_ms,status,failed\n", to);
    for (int i = 0; i < r->count; i++) {
        const struct asked *a = &r->of[i];
        fprintf(to, "%.4f,%d,%d,%.3f,%.3f,%d,%d\n", a->due, a->prompt, a->tokens,
                a->pieces ? 1e3 * (a->first - a->due) : 0, a->pieces ? 1e3 * (a->last - a->due) : 0,
                a->status, a->failed);
    }
    return !fclose(to);
}
