/* test_stages.c -- CODA_TEXT_STAGES beside the plan's other texts: the graph as given, behind each rewrite,
 * and as planned, each of which parses; the derivation's lines; which program computes what. */
#include "util_print.h"
#include "util_run.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const blocks[] = {"examples/graphs/llama_small.coda",  "examples/graphs/bert_small.coda",
                                     "examples/graphs/llama_cache.coda",  "examples/graphs/qwen3_cache.coda",
                                     "examples/graphs/mlp_backward.coda", "test/golden/block_bert.coda"};

static coda_plan *planned(const graph *g, unsigned flags, coda_fold fold)
{
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_NONE, opt.flags = CODA_PLAN_ONLY | flags, opt.fold = fold;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    return p;
}

/* Calls `each` for every stage: its name, and its lines, which are ended by a 0. */
static int visit(char *text, void (*each)(void *context, const char *name, const char *lines), void *context)
{
    int n = 0;
    for (char *at = text, *next; at; at = next, n++) {
        char *lines = strchr(at, '\n');
        ck_assert_msg(!strncmp(at, "; stage ", 8) && lines, "%.40s", at);
        *lines++ = 0;
        next = strstr(lines, "; stage ");
        if (next) next[-1] = 0;
        each(context, at + 8, lines);
    }
    return n;
}

struct walk {
    coda_plan *p;
    char *derivation; /* what of it is still to come */
    char *rewritten;  /* the last graph but the one that was planned, or NULL */
    int stages;
    bool planned;
};

/* A line of the derivation: "RULE  KIND  TEXT". */
static void expect_note(struct walk *w, const char *name, const char *note)
{
    char rule[64], kind[16], want[1200];
    int n = 0;
    ck_assert_int_eq(sscanf(w->derivation, "%63s %15s %n", rule, kind, &n), 2);
    snprintf(want, sizeof want, "; %s %.*s", kind, (int)strcspn(w->derivation + n, "\n"), w->derivation + n);
    size_t length = strlen(want);
    ck_assert_msg(!strncmp(note, want, length) && note[length] == '\n', "%s: %.80s, not %s", name, note,
                  want);
    w->derivation += strcspn(w->derivation, "\n") + 1;
}

static void look(void *context, const char *name, const char *lines)
{
    struct walk *w = context;
    graph *g = graph_parse(lines);
    ck_assert_msg(g != NULL, "%s: %s", name, coda_error());
    char *printed = printed_graph(g);
    w->planned = !strcmp(name, "planned");
    if (!w->stages++) {
        char *given = printed_plan(w->p, CODA_TEXT_GRAPH);
        ck_assert_str_eq(name, "given");
        ck_assert(strncmp(given, "dim ", 4) ? !strcmp(printed, given) : !strstr(printed, "dim "));
        free(given);
    } else if (!w->planned) {
        while (*lines == ';') expect_note(w, name, lines), lines = strchr(lines, '\n') + 1;
    }
    if (!w->planned) free(w->rewritten), w->rewritten = printed;
    else free(printed);
    graph_free(g);
}

START_TEST(hang_together)
{
    graph *g = run_load(blocks[_i / 3]);
    ck_assert_msg(g != NULL, "%s", coda_error());
    coda_plan *p =
        planned(g, _i % 3 == 1 ? CODA_NO_FUSION : 0, _i % 3 == 2 ? CODA_FOLD_COPY : CODA_FOLD_NONE);
    char *derivation = printed_plan(p, CODA_TEXT_DERIVATION), *text = printed_plan(p, CODA_TEXT_STAGES);
    char *rewritten = printed_plan(p, CODA_TEXT_REWRITTEN);
    struct walk w = {.p = p, .derivation = derivation};
    visit(text, look, &w);
    ck_assert(w.planned);
    ck_assert_msg(!strcmp(w.rewritten, rewritten), "%s: the last stage is another graph", blocks[_i / 3]);
    free(w.rewritten), free(rewritten), free(derivation), free(text);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* Views, and a concat whose parts are stored in place, are nobody's; each other value of the planned graph is
 * some program's, and the sums are the plan's. */
START_TEST(programs_compute_all)
{
    graph *g = run_load(blocks[_i]);
    coda_plan *p = planned(g, 0, CODA_FOLD_NONE);
    coda_plan_stats stats = CODA_PLAN_STATS_INIT;
    char *text = printed_plan(p, CODA_TEXT_STAGES), *last = strstr(text, "; stage planned\n");
    int64_t bytes = 0;
    double flops = 0;
    int programs = 0;
    coda_plan_stats_get(p, &stats);
    for (char *at = last; (at = strstr(at, "; program ")); at++, programs++) {
        long long b;
        double f;
        int number;
        ck_assert_int_eq(sscanf(at, "; program %d: %lld bytes, %lf flops:", &number, &b, &f), 3);
        ck_assert_int_eq(number, programs);
        bytes += b, flops += f;
    }
    ck_assert_int_eq(programs, stats.launches);
    ck_assert_int_eq(bytes, stats.bytes);
    ck_assert_double_eq_tol(flops, stats.flops, programs);
    for (char *line = strchr(last, '\n') + 1; *line == '%'; line = strchr(line, '\n') + 1) {
        char name[80], op[40], member[84];
        ck_assert_int_eq(sscanf(line, "%79s = %39s", name, op), 2);
        static const char *const free_ones[] = {"input", "weight",  "state",     "scalar", "constant",
                                                "slice", "reshape", "transpose", "concat"};
        bool wanted = true;
        for (int i = 0; i < ARRAY_SIZE(free_ones); i++) wanted = wanted && strcmp(op, free_ones[i]);
        snprintf(member, sizeof member, " %s", name);
        bool found = false;
        for (const char *at = strstr(last, "; program 0"); wanted && !found && (at = strstr(at, member));
             at++)
            found = strchr(" \n", at[strlen(member)]);
        ck_assert_msg(!wanted || found, "%s: no program computes %.60s", blocks[_i], line);
    }
    free(text);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

/* A caller's map, a symbol. */
START_TEST(maps_and_symbols)
{
    graph *g =
        graph_parse("map leaky(1) \"DEV static float apply(float x) { return x > 0 ? x : 0.1f * x; }\"\n"
                    "dim %T = 1..64\n%x = input bf16[T,64]\n%w = weight bf16[64,64]\n%p = matmul %x, %w\n"
                    "%y = leaky %p\noutput %y = %y\n");
    ck_assert_msg(g != NULL, "%s", coda_error());
    coda_plan *p = planned(g, 0, CODA_FOLD_NONE);
    char *text = printed_plan(p, CODA_TEXT_STAGES);
    ck_assert_msg(strstr(text, "map leaky(1)") && strstr(text, "bf16[64,64]") &&
                      strstr(text, "; program 0: "),
                  "%s", text);
    free(text);
    coda_plan_free(p);
    graph_free(g);
}
END_TEST

TESTS(stages, EACH(hang_together, 3 * ARRAY_SIZE(blocks)), EACH(programs_compute_all, ARRAY_SIZE(blocks)),
      ONE(maps_and_symbols));
