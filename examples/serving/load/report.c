/*
 * report.c -- what a run was like: counts, rates, percentiles, over all of it and over time; a line for each
 * request.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "load.h"

/* ---- Percentiles ---- */

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

/* Seconds of one kind, of a run or a window. */
struct spread {
    double *of;
    size_t count;
};

enum kind { FIRST_TOKEN, BETWEEN_TOKENS, END_TO_END, KINDS };

struct figures {
    struct spread of[KINDS];
    long long tokens, answers;
};

static bool counts(const struct asked *a) { return !a->failed && a->pieces; }

static void add(struct spread *s, bool in, double seconds)
{
    if (in) s->of[s->count++] = seconds;
}

/* Of what came from `from` on and before `to`. false: there is no memory. */
static bool figures_new(struct figures *f, const struct run *r, double from, double to)
{
    *f = (struct figures){0};
    for (int k = 0; k < KINDS; k++) {
        size_t room = k == BETWEEN_TOKENS ? r->gaps.count : (size_t)r->count;
        if (!(f->of[k].of = malloc(sizeof(double) * (room + 1)))) return false;
    }
    for (int i = 0; i < r->count; i++) {
        const struct asked *a = &r->of[i];
        bool first = counts(a) && a->first >= from && a->first < to,
             done = counts(a) && !a->cut && a->last >= from && a->last < to;
        add(&f->of[FIRST_TOKEN], first, a->first - a->due);
        add(&f->of[END_TO_END], done, a->last - a->due);
        f->tokens += first;
        f->answers += done;
    }
    for (size_t i = 0; i < r->gaps.count; i++) {
        bool in = r->gaps.of[i].at >= from && r->gaps.of[i].at < to;
        add(&f->of[BETWEEN_TOKENS], in, r->gaps.of[i].seconds);
        f->tokens += in;
    }
    for (int k = 0; k < KINDS; k++)
        if (f->of[k].count) qsort(f->of[k].of, f->of[k].count, sizeof(double), compare);
    return true;
}

static void figures_free(struct figures *f)
{
    for (int k = 0; k < KINDS; k++) free(f->of[k].of);
}

/* ---- A run ---- */

int report_failures(const struct run *r)
{
    int n = 0;
    for (int i = 0; i < r->count; i++) n += r->of[i].failed;
    return n;
}

static int cut(const struct run *r)
{
    int n = 0;
    for (int i = 0; i < r->count; i++) n += r->of[i].cut;
    return n;
}

static double end_of(const struct run *r)
{
    double end = 0;
    for (int i = 0; i < r->count; i++) end = fmax(end, r->of[i].ended);
    return end;
}

/* By the server's own count, which has tokens without a text, too. */
static long long tokens_of(const struct run *r)
{
    long long tokens = 0;
    for (int i = 0; i < r->count; i++) tokens += r->of[i].failed ? 0 : r->of[i].tokens;
    return tokens;
}

static void print_counts(const struct run *r, FILE *to)
{
    double end = end_of(r);
    long long tokens = tokens_of(r);
    int refused = 0, answers = r->count - report_failures(r) - cut(r);
    for (int i = 0; i < r->count; i++) refused += r->of[i].status == 429;
    fprintf(to, "%d requests in %.2f s: %d errors, %d of them refused (429)", r->count, end,
            report_failures(r), refused);
    if (cut(r)) fprintf(to, "; %d were not finished", cut(r));
    fprintf(to, "\n%lld tokens, %.1f tokens/s, %.2f answers/s\n", tokens, end > 0 ? (double)tokens / end : 0,
            end > 0 ? answers / end : 0);
}

void report_print(const struct run *r, FILE *to)
{
    static const char *const names[KINDS] = {"first token", "inter-token", "end to end"};
    struct figures f;
    print_counts(r, to);
    fprintf(to, "%-12s %9s %9s %9s %9s\n", "ms", "p50", "p90", "p99", "most");
    bool good = figures_new(&f, r, -INFINITY, INFINITY);
    for (int k = 0; good && k < KINDS; k++) {
        const double *of = f.of[k].of;
        size_t n = f.of[k].count;
        fprintf(to, "%-12s %9.2f %9.2f %9.2f %9.2f\n", names[k], 1e3 * percentile(of, n, 50),
                1e3 * percentile(of, n, 90), 1e3 * percentile(of, n, 99), n ? 1e3 * of[n - 1] : 0);
    }
    figures_free(&f);
    if (!r->steps.graphs) return;
    fprintf(to, "%lld steps that are CUDA graphs: %.3f ms of the device, %.3f ms until the next (%+.1f %%); ",
            r->steps.graphs, r->steps.graph_ms, r->steps.step_ms,
            100 * (r->steps.step_ms / r->steps.graph_ms - 1));
    fprintf(to, "the host's part %.1f us, %.1f %% of them up to 50\n", r->steps.host_us,
            100 * r->steps.host_below);
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

/* ---- JSON ---- */

static const char *const kind_names[KINDS] = {"first_token_ms", "between_tokens_ms", "end_to_end_ms"};

/* "p50": ..., "p99": ..., or null where there is nothing. */
static void json_spread(FILE *to, const struct spread *s, const int *percents, int n)
{
    for (int i = 0; i < n; i++) {
        fprintf(to, "%s\"p%d\": ", i ? ", " : "", percents[i]);
        if (s->count) fprintf(to, "%.3f", 1e3 * percentile(s->of, s->count, percents[i]));
        else fputs("null", to);
    }
}

static void json_whole(FILE *to, const struct figures *f)
{
    static const int percents[] = {50, 90, 99, 100};
    for (int k = 0; k < KINDS; k++) {
        fprintf(to, ",\n  \"%s\": {", kind_names[k]);
        json_spread(to, &f->of[k], percents, 4);
        fputs("}", to);
    }
}

static void json_steps(FILE *to, const struct steps *s)
{
    fprintf(to,
            ",\n  \"graphs\": {\"steps\": %lld, \"graph_ms\": %.4f, \"step_ms\": %.4f, \"host_us\": %.2f, "
            "\"host_below_50_us\": %.4f}",
            s->graphs, s->graph_ms, s->step_ms, s->host_us, s->host_below);
}

static void json_window(FILE *to, const struct figures *f, const char *label, double middle)
{
    static const int percents[] = {50, 99};
    fprintf(to, "    {\"label\": \"%s\", \"t\": %.3f, \"answers\": %lld, \"tokens\": %lld", label, middle,
            f->answers, f->tokens);
    for (int k = 0; k < END_TO_END; k++) {
        fprintf(to, ", \"%s\": {", kind_names[k]);
        json_spread(to, &f->of[k], percents, 2);
        fputs("}", to);
    }
    fputs("}", to);
}

bool report_json(const struct run *r, const char *path, const char *label, double window, double since)
{
    struct figures f;
    double end = end_of(r);
    FILE *to = fopen(path, "w");
    if (!to) return false;
    bool good = figures_new(&f, r, -INFINITY, INFINITY);
    fprintf(to,
            "{\n  \"label\": \"%s\", \"since_s\": %.3f, \"seconds\": %.3f, \"requests\": %d, \"errors\": %d, "
            "\"unfinished\": "
            "%d, \"tokens\": %lld",
            label, since, end, r->count, report_failures(r), cut(r), tokens_of(r));
    if (good) json_whole(to, &f);
    if (r->steps.graphs) json_steps(to, &r->steps);
    figures_free(&f);
    fprintf(to, ",\n  \"window_s\": %g,\n  \"windows\": [\n", window);
    for (double at = 0; good && (at + window / 2 < end || at == 0); at += window) {
        if ((good = figures_new(&f, r, at, at + window))) json_window(to, &f, label, since + at + window / 2);
        fputs(at + 1.5 * window < end ? ",\n" : "\n", to);
        figures_free(&f);
    }
    fputs("  ]\n}\n", to);
    return !fclose(to) && good;
}
