/*
 * test_layer_backward.c -- the backward pass of a LLaMA layer without its attention, as the golden has it by
 * the textbook: after the rules it is planned in as few launches and as little memory as by hand.
 *
 * coda_split applies the rules before it cuts both apart, so that what is planned is the backward pass alone.
 */
#include "graph.h" /* before check.h, which has a macro called fail */

#include "check_plan.h"
#include "util_print.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The golden's graph, of another size ---- */

struct size {
    int rows, d, f, head_dim;
};
static const struct size small = {96, 64, 80, 16};

static char *read_graph(const char *path)
{
    char *text = calloc(1, 1 << 18);
    FILE *f = fopen(path, "r");
    ck_assert_msg(f && fread(text, 1, (1 << 18) - 1, f) > 0, "%s cannot be read", path);
    fclose(f);
    char *end = strstr(strstr(text, "# >>> graph") + 1, "# >>>");
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    return text;
}

static int larger(const struct size *s, int number)
{
    const int from[] = {
        small.rows, small.d, 3 * small.d, small.f, 2 * small.f, small.head_dim, 2 * small.d / small.head_dim};
    const int to[] = {s->rows, s->d, 3 * s->d, s->f, 2 * s->f, s->head_dim, 2 * s->d / s->head_dim};
    for (int i = 0; i < ARRAY_SIZE(from); i++)
        if (number == from[i]) return to[i];
    return number;
}

/* Every number that is a size, and 1 / d, as it is of `s`. */
static graph *load(const struct size *s)
{
    struct text t = {0}, number = {0};
    char *text = read_graph("test/golden/layer_backward.coda");
    text_printf(&number, "%g", 1.0 / small.d); /* with a point, whatever the locale */
    const char *part = text_str(&number);
    for (char *p = text; *p;) {
        bool begins = isdigit((unsigned char)*p) && p > text && strchr("[,= ", p[-1]);
        if (strncmp(p, part, strlen(part)) == 0) {
            text_printf(&t, "%.12g", 1.0 / s->d);
            p += strlen(part);
        } else if (begins && p[1] != '.' && p[1] != 'e')
            text_printf(&t, "%d", larger(s, (int)strtol(p, &p, 10)));
        else text_printf(&t, "%c", *p++);
    }
    graph *g = graph_parse(text_str(&t));
    ck_assert_msg(g != NULL, "%s\n%s", coda_error(), text_str(&t));
    text_free(&number);
    text_free(&t);
    free(text);
    return g;
}

/* ---- What is planned ---- */

/* MB that the pass must move: each operand of a program read, each result written once, gradients of weights
 * in fp32; and of its largest temporaries. */
static const struct {
    struct size size;
    int launches;
    double floor, workspace;
} layer[] = {{{16384, 2048, 5632, 128}, 11, 3920, 428},
             {{16384, 4096, 11008, 128}, 11, 8350, 855},
             {{16384, 8192, 22016, 128}, 11, 19130, 1710}};

START_TEST(backward_of_a_layer)
{
    size_t workspace;
    graph *g = load(&layer[_i].size), *forward, *backward;
    coda_split_options keep = CODA_SPLIT_OPTIONS_INIT;
    int kept = 0;
    keep.keep = CODA_KEEP_MORE;
    while (!strncmp(g->output[kept].name, "kept.", 5)) kept++;
    ck_assert_msg(coda_split(g, kept, &keep, &forward, &backward) == CODA_OK, "%s", coda_error());
    coda_plan_stats s = plan_stats_of(backward, &workspace);
    ck_assert_int_le(s.launches, layer[_i].launches);
    ck_assert_msg((double)s.bytes <= 1.005e6 * layer[_i].floor, "%.0f MB instead of %.0f",
                  (double)s.bytes / 1e6, layer[_i].floor);
    ck_assert_msg((double)workspace <= 1.05e6 * layer[_i].workspace, "a workspace of %.0f MB instead of %.0f",
                  (double)workspace / 1e6, layer[_i].workspace);
    graph_free(g), graph_free(forward), graph_free(backward);
}
END_TEST

/* What forward has kept may be written over: dz1 takes the place of z1. Left are dz3 and gx2 at a time. */
START_TEST(backward_of_what_is_consumed)
{
    size_t workspace, kept_workspace;
    graph *g = load(&layer[1].size), *forward, *backward;
    coda_split_options keep = CODA_SPLIT_OPTIONS_INIT;
    int kept = 0;
    keep.keep = CODA_KEEP_MORE;
    while (!strncmp(g->output[kept].name, "kept.", 5)) kept++;
    ck_assert_msg(coda_split(g, kept, &keep, &forward, &backward) == CODA_OK, "%s", coda_error());
    coda_plan_stats before = plan_stats_of(backward, &kept_workspace);
    for (int i = 0; i < backward->leaves; i++)
        if (!strncmp(backward->node[backward->leaf[i]].name, "kept.", 5))
            coda_consume(backward, (coda_value){(uint32_t)backward->leaf[i] + 1});
    coda_plan_stats s = plan_stats_of(backward, &workspace);
    ck_assert_int_eq(s.launches, before.launches);
    ck_assert_int_eq(s.bytes, before.bytes);
    double dz3 = 2.0 * 16384 * 3 * 4096, gx2 = 2.0 * 16384 * 4096;
    ck_assert_msg((double)workspace <= 1.05 * (dz3 + gx2) && workspace < kept_workspace,
                  "a workspace of %.0f MB, and %.0f of what is not", (double)workspace / 1e6,
                  (double)kept_workspace / 1e6);
    graph_free(g), graph_free(forward), graph_free(backward);
}
END_TEST

/* Forward and backward in one plan: x1's norm is carried past its product, as in a forward pass alone, and no
 * norm's result is stored for a weight's gradient. */
START_TEST(both_ways_of_a_layer)
{
    size_t workspace;
    graph *g = load(&layer[1].size);
    coda_plan_stats s = plan_stats_of(g, &workspace);
    ck_assert_int_le(s.launches, 15);
    ck_assert_msg((double)s.bytes <= 11.1e9, "%.0f MB", (double)s.bytes / 1e6);
    graph_free(g);
}
END_TEST

TESTS(layer_backward, EACH(backward_of_a_layer, ARRAY_SIZE(layer)), ONE(backward_of_what_is_consumed),
      ONE(both_ways_of_a_layer));
