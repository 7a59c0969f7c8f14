/* tool.h -- what the files of the tool share: options, graphs from files, one-line errors. */
#ifndef TOOL_H
#define TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "coda.h"
#include "npy.h"
#include "plain.h"
#include "progress.h"

enum { MOST_FILES = 64 };

/* NAME=FILE, from --input and --output; NAME=VALUE, from --scalar and --dim. */
struct binding {
    const char *name, *path;
};

struct options {
    const char *file;      /* the graph's text; "-" is standard input */
    const char *cache_dir; /* NULL: the default place */
    const char *html;      /* of explain: the page that is written; NULL: none */
    coda_compile_options compile;
    bool dot, check, json;
    int rounds;       /* of bench; 0: as many as it likes */
    double tolerance; /* 0: by dtype */
    uint64_t seed;
    int ints; /* int32 inputs are uniform in 0 .. ints-1 */
    struct binding input[MOST_FILES], output[MOST_FILES], scalar[MOST_FILES], dim[MOST_FILES];
    int inputs, outputs, scalars, dims;
};

/* tool_output.c -- all that is printed, made harmless for a terminal. */
extern FILE *output;
/* Before everything else. 0, or the exit status after a complaint. */
int output_open(void);
/* After everything else: the exit status, which is 1 with a complaint if the output could not be written. */
int output_close(int status);
/* The bytes of the well-formed UTF-8 character at s that is no control character; 0 if there is none, -1 if
 * it is not yet whole. */
int utf8_length(const char *s, size_t size);
/* Prints "coda: ...", one line, and returns the exit status of a failure, 1. */
int complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for wrong usage: 2, and where to read. */
int misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Colours what is printed from now on, if the output has colours. */
enum color { PLAIN, BOLD, FAINT, RED, GREEN, YELLOW, CYAN };
void paint(enum color c);
/* tool_color.c */
bool color_when(const char *word); /* --color; false if it is none of auto, always, never */
bool color_on(int fd);             /* has what is written to this descriptor colours? */
const char *color_code(enum color c);
void color_span(enum color c, const char *text, size_t size);
void color_text(const char *text, coda_text what); /* of a plan */
/* tool_near.c -- the known word that is nearest to one that is not: {.word = w}, then try each. */
struct nearest {
    const char *word, *best; /* best: NULL, none is near */
    int distance;
    char text[64];
};
void nearest_try(struct nearest *n, const char *known);
const char *nearest_text(struct nearest *n); /* "; do you mean explain?", or "" */
/* tool.c -- a whole file as malloc'd text, "-" is standard input; NULL after a complaint. */
char *text_read(const char *path);
/* A number in these bounds, and nothing else. */
bool set_number(const char *v, uint64_t least, uint64_t most, uint64_t *out);
/* tool_symbols.c -- the graph in opt->file, of the numbers or over the ranges of --dim; NULL after a
 * complaint. */
coda_graph *graph_open(const struct options *opt);
coda_graph *graph_open_bound(const struct options *opt); /* every symbol must have a number */
bool has_ranges(const struct options *opt);

/* tool_progress.c -- the line of progress.h that says what takes long, on a terminal; complain() ends it. */
extern struct progress working;
/* coda_compile of the graph in `file`, with such a line. */
coda_status compile_shown(coda_plan **out, const coda_graph *g, const coda_compile_options *c,
                          const char *file);

/* tool_explain.c, tool_run.c, tool_bench.c: the commands. They return the exit status. */
int info(const struct options *opt);
int explain(const struct options *opt);
int explain_html(const struct options *opt, const coda_plan *p); /* tool_html.c */
int compile(const struct options *opt);
int run(const struct options *opt);
int bench(const struct options *opt);

/* tool_ops.c: coda ops [NAME] [--json]. */
int ops(int argc, char **argv);

/* tool_cache.c: coda cache ..., which has a grammar of its own. */
int cache(int argc, char **argv);

#endif
