/*
 * texts.c -- every text that the library makes of the tests' graphs and programs, as digests.
 *
 * Run as: texts [GROUP]. Without an argument a line for each group says its name, and the SHA-256 of its
 * texts, one after the other. With a name that group's texts come instead, for a diff. No GPU, driver or
 * NVRTC is asked. See texts.sh.
 */
#include <dirent.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sha256.h"
#include "texts.h"
#include "util_family.h"
#include "util_invisible.h"
#include "util_model.h"
#include "util_unusual.h"

struct text said;
static const char *wanted; /* a group whose texts are printed, or NULL */

void end_group(const char *format, ...)
{
    char name[128], digest[SHA256_HEX];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (said.failed) fprintf(stderr, "texts: out of memory in %s\n", name), exit(1);
    sha256_hex(digest, text_str(&said), said.length);
    if (!wanted) printf("%.64s %s\n", digest, name);
    else if (!strcmp(wanted, name)) fputs(text_str(&said), stdout);
    text_free(&said);
    said = (struct text){0};
}

/* ---- Graphs, through coda.h ---- */

static const struct mode {
    const char *name, *arch;
    unsigned flags;
    coda_fold fold;
} modes[] = {{"fused", "sm_90a", 0, CODA_FOLD_NONE},
             {"fused", "sm_80", 0, CODA_FOLD_NONE},
             {"unfused", "sm_90a", CODA_NO_FUSION, CODA_FOLD_NONE},
             {"folded", "sm_90a", 0, CODA_FOLD_COPY},
             {"folded in place", "sm_90a", CODA_FAST_FP16, CODA_FOLD_IN_PLACE},
             {"cublaslt", "sm_90a", CODA_CUBLASLT, CODA_FOLD_NONE}};

static void say_plan(const coda_plan *p)
{
    for (int what = 0; what <= CODA_TEXT_DOT; what++) {
        int64_t n = coda_plan_print(p, (coda_text)what, NULL, 0);
        char *s = malloc((size_t)n + 1);
        if (!s) exit(1);
        coda_plan_print(p, (coda_text)what, s, (size_t)n + 1);
        text_append(&said, s);
        free(s);
    }
    for (int i = 0; i < coda_plan_kernels(p); i++) {
        coda_kernel_info k = CODA_KERNEL_INFO_INIT;
        coda_plan_kernel(p, i, &k);
        text_printf(&said, "---- %s, %d bytes shared\n", k.name, k.shared_bytes);
        text_append(&said, k.source);
    }
}

static void say_graph(const graph *g, const char *name)
{
    for (int i = 0; i < ARRAY_SIZE(modes); i++) {
        coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
        coda_plan *p;
        opt.arch = modes[i].arch;
        opt.fold = modes[i].fold;
        opt.flags = modes[i].flags | CODA_PLAN_ONLY;
        opt.device = opt.flags & CODA_CUBLASLT ? CODA_DEVICE_GPU : CODA_DEVICE_NONE;
        text_printf(&said, "==== %s, %s, %s\n", name, modes[i].name, modes[i].arch);
        if (coda_compile(&p, g, &opt)) {
            text_printf(&said, "error: %s\n", coda_error());
            continue;
        }
        say_plan(p);
        coda_plan_free(p);
    }
}

static void say_owned(graph *g, const char *name)
{
    if (g) say_graph(g, name);
    else text_printf(&said, "==== %s\nerror: %s\n", name, coda_error());
    coda_graph_free(g);
}

static void say_text(const char *text, const char *name)
{
    coda_graph *g = NULL;
    coda_graph_parse(&g, text);
    say_owned(g, name);
}

/* The graph of a file: a golden's first section, or all. */
static void say_file(const char *folder, const char *name)
{
    char path[512], *text = calloc(1, 1 << 20), *end;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (!f || !text || !fread(text, 1, (1 << 20) - 1, f)) perror(path), exit(1);
    fclose(f);
    char *start = strstr(text, "# >>> graph\n");
    start = start ? strchr(start, '\n') + 1 : text;
    if ((end = strstr(start, "\n# >>>")) != NULL) end[1] = 0;
    say_text(start, name);
    free(text);
    end_group("%s", path);
}

static int is_graph(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 5 && !strcmp(e->d_name + n - 5, ".coda");
}

/* alphasort() goes by the locale. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void folder(const char *path)
{
    struct dirent **entry;
    int n = scandir(path, &entry, is_graph, by_bytes);
    if (n < 1) fprintf(stderr, "texts: no graphs in %s: run it from the project's root\n", path), exit(1);
    for (int i = 0; i < n; i++) {
        say_file(path, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
}

static void all_models(void)
{
    for (int i = 0; i < model_count; i++) {
        for (int rows = 1; rows <= 300; rows += 299) say_owned(model_graph(models[i].text, rows), "rows");
        end_group("model %s", models[i].name);
    }
    for (uint64_t seed = 0; seed < 48; seed++) {
        char *text = model_random(seed);
        graph *g = model_graph(text, 5);
        if (seed % 6 == 0) say_owned(unusual_layers(g, 3), "layers");
        say_owned(g, "random");
        free(text);
        if (seed % 12 == 11) end_group("model random to %d", (int)seed);
    }
}

static void all_families(void)
{
    for (uint64_t seed = 0; seed < 48; seed++) {
        struct family f;
        family_make(&f, seed, 0);
        say_owned(f.g, f.name);
        if (seed % 8 == 7) end_group("family to %d", (int)seed);
    }
    for (uint64_t seed = 0; seed < 4 * (KNOWN_FAMILIES - 1); seed++) {
        struct family f;
        family_make_known(&f, (enum known_family)(1 + seed / 4), seed, 0);
        say_owned(f.g, f.name);
        if (seed % 4 == 3) end_group("known family %d", (int)(1 + seed / 4));
    }
}

static void all_random(void)
{
    static const struct random_options opt[] = {
        {.patterns = 12, .fixed = true},
        {.most_dim = 512, .dtype = CODA_BF16, .fixed = true},
        {.most_dim = 2048, .dtype = CODA_F16, .dense = true, .fixed = true},
        {.exact = true, .fixed = true}};
    for (int o = 0; o < ARRAY_SIZE(opt); o++)
        for (uint64_t seed = 0; seed < 60; seed++) {
            say_owned(random_graph(seed, &opt[o]), "random");
            if (seed % 20 == 19) end_group("random %d to %d", o, (int)seed);
        }
}

static void all_unusual(void)
{
    for (int i = 0; i < unusuals; i++) {
        const struct unusual *u = &unusual[i];
        for (int k = 0; k < ARRAY_SIZE(u->most) && u->most[k] && u->most[k] < 300; k++)
            say_owned(u->make(u->most[k]), u->name);
        end_group("unusual %s", u->name);
    }
    graph *g;
    const char *name;
    for (int i = 0; (g = unusual_empty(i, &name)) != NULL; i++) say_owned(g, name);
    end_group("unusual empty");
}

static void all_invisible(void)
{
    for (int i = 0; i < invisible_case_count; i++)
        say_owned(invisible_graph(&invisible_cases[i], CODA_BF16), invisible_cases[i].name);
    end_group("invisible");
}

int main(int argc, char **argv)
{
    const char *locale = getenv("CODA_TEST_LOCALE");
    if (locale && !setlocale(LC_ALL, locale)) return fprintf(stderr, "texts: no locale %s\n", locale), 1;
    wanted = argc > 1 ? argv[1] : NULL;
    folder("test/golden");
    folder("examples/graphs");
    all_models();
    all_families();
    all_random();
    all_unusual();
    all_invisible();
    all_gemms();
    all_rows();
    all_attention();
    return 0;
}
