/*
 * report.c -- lines, a table of losses, a picture of them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"
#include "train_aside.h"
#include "train_report.h"

void report_step(const struct history *h, int64_t steps, const struct pace *pace, bool skipped)
{
    int64_t last = h->steps - 1;
    double each = pace->seconds > 0 ? 1 / pace->seconds : 0;
    plain_print(stderr, "train: step %lld of %lld  loss %.4f  norm %.3g  rate %.3g  %.4g tokens/s",
                (long long)h->steps, (long long)steps, (double)h->loss[last], (double)h->norm[last],
                (double)h->rate[last], (double)pace->tokens * each);
    if (pace->peak > 0)
        plain_print(stderr, "  %.1f %% of %.4g TFLOP/s", 100 * pace->flops * each / pace->peak,
                    pace->peak / 1e12);
    if (pace->scale > 0) plain_print(stderr, "  scale %.7g", pace->scale);
    fputs(skipped ? "  skipped: the gradient is not finite\n" : "\n", stderr);
}

/* NVIDIA's data sheets: dense, with tensor cores. */
double report_peak(const char *device)
{
    static const struct {
        const char *part;
        double flops;
    } known[] = {{"H200", 989e12},      {"GH200", 989e12}, {"H100 PCIe", 756e12}, {"H100 NVL", 835e12},
                 {"H800 PCIe", 756e12}, {"H100", 989e12},  {"H800", 989e12},      {"H20", 148e12}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(device, known[i].part)) return known[i].flops;
    return 0;
}

/* ---- A text that grows ---- */

struct page {
    char *text;
    size_t size, room;
    bool failed;
};

__attribute__((format(printf, 2, 3))) static void put(struct page *p, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int n = plain_vline(line, sizeof line, format, args);
    va_end(args);
    if (p->size + (size_t)n >= p->room) {
        size_t room = 2 * p->room + sizeof line;
        char *text = realloc(p->text, room);
        if (!text) p->failed = true;
        if (!text) return;
        p->text = text;
        p->room = room;
    }
    memcpy(p->text + p->size, line, (size_t)n + 1);
    p->size += (size_t)n;
}

static bool write_page(struct page *p, const char *folder, const char *name, struct fault *f)
{
    bool good = p->failed ? fault_set(f, "%s/%s: out of memory", folder, name)
                          : aside_bytes(folder, name, p->text, p->size, f);
    free(p->text);
    return good;
}

static bool write_table(const char *folder, const struct history *h, struct fault *f)
{
    struct page p = {0};
    put(&p, "step\tloss\tnorm\trate\theld_out_loss\n");
    int64_t k = 0;
    for (int64_t i = 0; i < h->steps; i++) {
        put(&p, "%lld\t%.9g\t%.9g\t%.9g\t", (long long)i + 1, (double)h->loss[i], (double)h->norm[i],
            (double)h->rate[i]);
        for (; k < h->judgements && h->judged[k].step <= i + 1; k++)
            if (h->judged[k].step == i + 1) put(&p, "%.9g", (double)h->judged[k].loss);
        put(&p, "\n");
    }
    return write_page(&p, folder, "losses.tsv", f);
}

/* ---- The picture ---- */

enum { WIDTH = 720, HEIGHT = 400, LEFT = 56, RIGHT = 16, TOP = 32, BOTTOM = 40, POINTS = 600, TICKS = 5 };

struct axes {
    double steps, least, most;
};

static double x_of(const struct axes *a, double step)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * step / a->steps;
}
static double y_of(const struct axes *a, double loss)
{
    return TOP + (HEIGHT - TOP - BOTTOM) * (a->most - loss) / (a->most - a->least);
}

static void widen(struct axes *a, double loss)
{
    if (!isfinite(loss)) return;
    a->least = fmin(a->least, loss);
    a->most = fmax(a->most, loss);
}

static struct axes axes_of(const struct history *h)
{
    struct axes a = {fmax((double)h->steps, 1), INFINITY, -INFINITY};
    for (int64_t i = 0; i < h->steps; i++) widen(&a, (double)h->loss[i]);
    for (int64_t i = 0; i < h->judgements; i++) widen(&a, (double)h->judged[i].loss);
    if (!isfinite(a.least)) a.least = 0, a.most = 1;
    if (a.most - a.least < 1e-6) a.most = a.least + 1;
    return a;
}

static void put_axes(struct page *p, const struct axes *a)
{
    for (int i = 0; i <= TICKS; i++) {
        double loss = a->least + (a->most - a->least) * i / TICKS, step = a->steps * i / TICKS;
        put(p,
            "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%.2f</text>\n",
            LEFT, y_of(a, loss), WIDTH - RIGHT, LEFT - 6, y_of(a, loss) + 4, loss);
        put(p, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n", x_of(a, step),
            HEIGHT - BOTTOM + 18, step);
    }
    put(p, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", WIDTH / 2, HEIGHT - 6);
}

/* Means of as many steps as a point has. */
static void put_losses(struct page *p, const struct axes *a, const struct history *h)
{
    int64_t each = h->steps / POINTS + 1;
    put(p, "<polyline fill=\"none\" stroke=\"#36c\" points=\"");
    for (int64_t i = 0; i < h->steps; i += each) {
        double sum = 0;
        int64_t n = h->steps - i < each ? h->steps - i : each;
        for (int64_t k = 0; k < n; k++) sum += (double)h->loss[i + k];
        if (isfinite(sum))
            put(p, "%.1f,%.2f ", x_of(a, (double)i + (double)(n + 1) / 2), y_of(a, sum / (double)n));
    }
    put(p, "\"/>\n");
}

static bool write_picture(const char *folder, const struct history *h, struct fault *f)
{
    struct page p = {0};
    struct axes a = axes_of(h);
    put(&p,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        WIDTH, HEIGHT);
    put_axes(&p, &a);
    put_losses(&p, &a, h);
    for (int64_t i = 0; i < h->judgements; i++)
        if (isfinite(h->judged[i].loss))
            put(&p, "<circle r=\"3\" fill=\"#c33\" cx=\"%.1f\" cy=\"%.2f\"/>\n",
                x_of(&a, (double)h->judged[i].step), y_of(&a, (double)h->judged[i].loss));
    put(&p, "<text x=\"%d\" y=\"18\" fill=\"#36c\">loss</text>", LEFT);
    put(&p, "<text x=\"%d\" y=\"18\" fill=\"#c33\">of the text held out</text>\n</svg>\n", LEFT + 48);
    return write_page(&p, folder, "loss.svg", f);
}

bool report_write(const char *folder, const struct history *h, struct fault *f)
{
    return write_table(folder, h, f) && write_picture(folder, h, f);
}
