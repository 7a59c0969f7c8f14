/*
 * parser.h -- the text of a graph as graph_parse.c, parse_words.c and parse_attributes.c read it, from left
 * to right and never back. What fails says what was expected; graph_parse.c adds the line.
 */
#ifndef PARSER_H
#define PARSER_H

#include "graph.h"

enum { WORD_SIZE = 256 };

struct parser {
    const char *at;
    int line;
    graph *g;
    struct names values;    /* every value so far, by the name it has in the text */
    struct names symbols;   /* every symbol: ~ its extent */
    struct arena arena;     /* of `values`, of strings and of operands */
    int *operand, operands; /* of the node at hand; room for so many */
};

/* ---- parse_words.c ---- */

/* The next character that is no space, which stays there. */
char parse_peek(struct parser *p);
/* Takes the character if it is the next one. */
bool parse_accept(struct parser *p, char c);
coda_status parse_expect(struct parser *p, char c);
/* Characters of the line's rest, as many as a message shows. */
int parse_rest(const struct parser *p);
/* A word of letters, digits and the signs in `more`; `what` it should be, for messages. WORD_SIZE bytes. */
coda_status parse_word(struct parser *p, const char *what, const char *more, char *word);
coda_status parse_name(struct parser *p, char *word); /* behind its "%" */
coda_status parse_integer(struct parser *p, int64_t *out);
coda_status parse_float(struct parser *p, float *out);
coda_status parse_dtype(struct parser *p, coda_dtype *out);
coda_status parse_extent(struct parser *p, int64_t *out);              /* a polynomial of symbols */
coda_status parse_extents(struct parser *p, int64_t *out, int *count); /* between brackets */
coda_status parse_string(struct parser *p, char **out);                /* in the parser's arena */

/* ---- parse_attributes.c ---- */

/* Between braces, if there are any; those that have no default must be there. */
coda_status parse_attributes(struct parser *p, struct node *n);

#endif
