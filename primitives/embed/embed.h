/* embed.h -- what the parts of the build tool embed share: files, registrations, and how it complains. */
#ifndef EMBED_H
#define EMBED_H

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "prim.h"

enum { WORD = 64, MAX_NAMES = 8, MAX_FUNCTIONS = 64 };

struct file {
    const char *path; /* from DIR */
    unsigned char *text;
    size_t length;
};

struct row { /* a registration */
    char class[WORD], name[WORD], argument[MAX_NAMES][WORD];
    int arguments, inputs, state; /* the first `inputs` arguments are tensors, the others parameters */
    char of[WORD];                /* "" or the reduction whose state it reads */
    bool exact;                   /* merging rounds nothing */
    bool narrow;                  /* a map that has a form for 16 bits */
    struct prim_facts facts;
    char grad[PRIM_MAX_INPUTS][WORD]; /* the map that is the derivative by an operand, or "" */
    char *meaning;                    /* what the file says first, in one line */
    const char *path;
};

struct function { /* of math.cuh, for the texts of callers' maps */
    char name[WORD], *arguments, *meaning;
};
extern struct function function[MAX_FUNCTIONS];
extern int functions;

static inline bool in_word(int c) { return isalnum(c) || c == '_'; }

/* embed.c */
extern const char *dir; /* of all paths */
/* Says DIR/path:line: message, and exits. */
void die(const char *path, int line, const char *format, ...) __attribute__((format(printf, 3, 4), noreturn));
void *allocate(size_t count, size_t size); /* zeroed; exits where memory runs out */
FILE *open_file(const char *path);
struct file read_file(const char *path);
const struct row *find_row(const struct row *row, int rows, const char *name); /* of sorted rows; NULL */

/* registration.c */
/* What follows "// coda: " in a line of a file. */
struct row parse_row(const char *text, const char *path, int line);
/* What follows "// coda: function ": one more in function[]. */
void parse_function(const char *text, const char *path, int line);

/* device_code.c */
char *code_of(const struct file *file); /* with spaces for comments and strings, to be freed */
/* Do `a`, white space and the word `b` follow each other in the code? */
bool says(const char *code, const char *a, const char *b);
int line_of(const char *text, const char *at); /* counted from 1 */
void check_code(const struct file *file, const struct row *row);

/* source.c */
/* Finds the file's registration, and checks what must stand beside it; false: it is no primitive. */
bool parse_file(const struct file *file, struct row *row);

/* write.c: the C file, on stdout. */
void write_files(const struct file *file, int files);
void write_table(const struct row *row, int rows);
void write_functions(void);

#endif
