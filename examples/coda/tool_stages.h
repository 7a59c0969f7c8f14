/* tool_stages.h -- CODA_TEXT_STAGES read back: graphs as lists of values, and what programs compute of the
 * last one. Between tool_stages.c, tool_svg.c and tool_html.c. */
#ifndef TOOL_STAGES_H
#define TOOL_STAGES_H

#include "tool.h"

enum { MOST_OPERANDS = 16, NO_PROGRAM = -1 };

struct value {
    const char *name;       /* "%7" */
    const char *op;         /* "matmul" */
    const char *attributes; /* "{..}", or "" */
    const char *type;       /* "bf16[64,256]" */
    const char *scope;      /* or "" */
    int in[MOST_OPERANDS], ins;
    bool leaf;
    int key;     /* what it goes by in all stages: the number of a value of the first one, or a new one */
    int program; /* that computes it, the first; or NO_PROGRAM */
    int layer;   /* for pictures, as what follows */
    double x, y;
};

struct result {
    const char *name;
    int value;
};

struct note {
    const char *kind, *text; /* "exact", "%7 = rope is ..." */
};

struct stage {
    const char *name;
    struct note *note;
    struct value *value;
    struct result *result;
    int notes, values, results;
};

struct work {
    const char *bytes, *flops; /* decimal numbers */
    int *member, members;      /* values of the last stage */
};

struct stages {
    char *text; /* that all strings are in */
    struct stage *stage;
    struct work *program;
    int stages, programs;
    int keys;         /* so many are in use */
    const char **key; /* what each is called */
};

/* Takes the text; false if memory runs out, or it cannot be read. */
bool stages_read(struct stages *s, char *text);
void stages_free(struct stages *s);
/* Marks for the values of two stages, one after the other: is there something of it that the other lacks? */
struct differences {
    bool *before, *after;
};
bool stages_differ(struct differences *d, const struct stages *s, int before);
/* "%7 = mul %3, %x {..}", by keys. */
void value_put(FILE *f, const struct stages *s, const struct stage *g, int value);

/* tool_svg.c: one picture each, in SVG that stands in a page of HTML. */
void svg_graph(FILE *f, const struct stages *s, struct stage *g, bool colored);
void svg_programs(FILE *f, const struct stages *s);

/* tool_html.c: text that is text in HTML, too. */
void html_put(FILE *f, const char *text);
void html_put_some(FILE *f, const char *text, size_t size);

#endif
