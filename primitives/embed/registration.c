/* registration.c -- reads a primitive's one line: "// coda: map NAME(x, ...; parameter, ...) FACTS". */
#include "embed.h"

#include <stdlib.h>
#include <string.h>

struct function function[MAX_FUNCTIONS];
int functions;

struct cursor {
    const char *at, *path;
    int line;
};

static bool skip(struct cursor *c, char wanted)
{
    while (*c->at == ' ') c->at++;
    if (*c->at != wanted) return false;
    if (wanted) c->at++;
    return true;
}

static void expect(struct cursor *c, char wanted)
{
    if (!skip(c, wanted)) die(c->path, c->line, "'%c' expected before \"%s\"", wanted, c->at);
}

static void parse_word(struct cursor *c, char word[WORD])
{
    int n = 0;
    while (*c->at == ' ') c->at++;
    if (isdigit((unsigned char)*c->at)) die(c->path, c->line, "a name expected before \"%s\"", c->at);
    for (; isalnum((unsigned char)*c->at) || *c->at == '_'; c->at++) {
        if (n == WORD - 1) die(c->path, c->line, "a name of %d characters or more", WORD);
        word[n++] = *c->at;
    }
    if (n == 0) die(c->path, c->line, "a name expected before \"%s\"", c->at);
    word[n] = '\0';
}

static void parse_names(struct cursor *c, struct row *row)
{
    do {
        if (row->arguments == MAX_NAMES) die(c->path, c->line, "more than %d arguments", MAX_NAMES);
        char *word = row->argument[row->arguments];
        parse_word(c, word);
        for (int i = 0; i < row->arguments; i++)
            if (!strcmp(word, row->argument[i])) die(c->path, c->line, "%s is named twice", word);
        row->arguments++;
    } while (skip(c, ','));
}

static int parse_state(struct cursor *c)
{
    char word[WORD];
    parse_word(c, word);
    if (strcmp(word, "state")) die(c->path, c->line, "\"state\" expected instead of \"%s\"", word);
    while (*c->at == ' ') c->at++;
    int state = 0;
    for (int digits = 0; isdigit((unsigned char)*c->at) && digits < 4; digits++)
        state = 10 * state + *c->at++ - '0';
    if (state < 1 || state > PRIM_MAX_STATE)
        die(c->path, c->line, "state must be 1 to %d floats", PRIM_MAX_STATE);
    return state;
}

/* ---- Facts: see struct prim_facts ---- */

/* The place of an argument that the line has named. */
static int parse_argument(struct cursor *c, const struct row *row, int most)
{
    char word[WORD];
    parse_word(c, word);
    for (int i = 0; i < most; i++)
        if (!strcmp(word, row->argument[i])) return i;
    die(c->path, c->line, "%s has no %s %s", row->name, most == row->inputs ? "operand" : "argument", word);
    return -1;
}

static unsigned parse_operands(struct cursor *c, const struct row *row)
{
    unsigned set = 0;
    do set |= 1u << parse_argument(c, row, row->inputs);
    while (skip(c, ','));
    return set;
}

static void parse_identity(struct cursor *c, struct row *row)
{
    char *end;
    int argument = parse_argument(c, row, row->arguments);
    if (row->facts.identity) die(c->path, c->line, "a second identity");
    if (argument == 0) die(c->path, c->line, "the identity is %s itself", row->argument[0]);
    expect(c, '=');
    row->facts.identity = argument + 1;
    row->facts.identity_at = strtof(c->at, &end);
    if (end == c->at) die(c->path, c->line, "a number expected before \"%s\"", c->at);
    c->at = end;
}

/* "x, y = 0", "x = 1" or "x = NAME". Whether there is such a map is asked when all files are read. */
static void parse_grad(struct cursor *c, struct row *row)
{
    struct prim_facts *f = &row->facts;
    unsigned set = parse_operands(c, row), known = f->linear | f->jointly | f->zero | f->one;
    char name[WORD] = "";
    expect(c, '=');
    if (skip(c, '0')) f->zero |= set;
    else if (skip(c, '1')) f->one |= set;
    else parse_word(c, name);
    for (int i = 0; i < row->inputs; i++) {
        if (!(set >> i & 1)) continue;
        if (known >> i & 1 || *row->grad[i])
            die(c->path, c->line, "a second derivative by %s", row->argument[i]);
        strcpy(row->grad[i], name);
    }
}

static bool begins_word(struct cursor *c)
{
    while (*c->at == ' ') c->at++;
    return isalpha((unsigned char)*c->at);
}

#define FACTS "linear, shift, quotient, identity, grad, dtype, nonzero or narrow"

/* A fact without arguments. */
static bool parse_flag(const char *word, struct row *row)
{
    bool narrow = !strcmp(word, "narrow"), nonzero = !strcmp(word, "nonzero");
    row->narrow |= narrow;
    row->facts.nonzero |= nonzero;
    return narrow || nonzero;
}

static void parse_fact(struct cursor *c, struct row *row)
{
    char word[WORD];
    parse_word(c, word);
    bool linear = !strcmp(word, "linear"), shift = !strcmp(word, "shift"), dtype = !strcmp(word, "dtype");
    bool grad = !strcmp(word, "grad"), reduce = !strcmp(row->class, "reduce");
    bool quotient = !strcmp(word, "quotient");
    if (!grad && reduce) die(c->path, c->line, "\"%s\" is no fact of a reduction: grad", word);
    if (parse_flag(word, row)) return;
    if (!linear && !shift && !dtype && !quotient && !grad && strcmp(word, "identity"))
        die(c->path, c->line, "\"%s\" is no fact: " FACTS, word);
    expect(c, '(');
    if (grad) {
        parse_grad(c, row);
    } else if (quotient) {
        int by = parse_argument(c, row, row->inputs);
        if (by == 0) die(c->path, c->line, "a quotient is by another operand than %s", row->argument[0]);
        row->facts.quotient |= 1u << by;
    } else if (dtype) {
        row->facts.dtype = parse_argument(c, row, row->inputs);
    } else if (linear || shift) {
        unsigned set = parse_operands(c, row);
        bool several = set & (set - 1);
        if (shift && several) die(c->path, c->line, "a shift is of one operand");
        for (int i = 0; linear && i < row->inputs; i++)
            if (set >> i & 1 && ((row->facts.zero | row->facts.one) >> i & 1 || *row->grad[i]))
                die(c->path, c->line, "a second derivative by %s", row->argument[i]);
        *(shift ? &row->facts.shift : several ? &row->facts.jointly : &row->facts.linear) |= set;
    } else {
        parse_identity(c, row);
    }
    expect(c, ')');
}

/* ---- Whole lines ---- */

struct row parse_row(const char *text, const char *path, int line)
{
    struct row row = {.path = path};
    struct cursor c = {text, path, line};
    parse_word(&c, row.class);
    parse_word(&c, row.name);
    bool map = !strcmp(row.class, "map"), reduce = !strcmp(row.class, "reduce");
    bool pair = !strcmp(row.class, "pair");
    if (!map && !reduce && !pair) die(path, line, "\"%s\" is not map, reduce or pair", row.class);
    expect(&c, '(');
    parse_names(&c, &row);
    row.inputs = row.arguments;
    if (map && skip(&c, ';')) parse_names(&c, &row);
    expect(&c, ')');
    if (reduce) row.state = parse_state(&c);
    if (reduce && !strncmp(c.at, " of ", 4)) {
        c.at += 4;
        parse_word(&c, row.of);
    }
    if (reduce && !strncmp(c.at, " exact", 6) && !in_word((unsigned char)c.at[6]))
        c.at += 6, row.exact = true;
    while ((map || reduce) && begins_word(&c)) parse_fact(&c, &row);
    if (!skip(&c, '\0')) die(path, line, "nothing may follow, but there is \"%s\"", c.at);
    if (map && (row.inputs > PRIM_MAX_INPUTS || row.arguments - row.inputs > PRIM_MAX_PARAMS))
        die(path, line, "at most %d operands and %d parameters", PRIM_MAX_INPUTS, PRIM_MAX_PARAMS);
    if (reduce && row.inputs > 2) die(path, line, "a reduction has one operand and perhaps a key");
    if (pair && row.inputs != 3) die(path, line, "a pair has its two values and its turn");
    return row;
}

void parse_function(const char *text, const char *path, int line)
{
    struct cursor c = {text, path, line};
    if (strcmp(path, "math.cuh")) die(path, line, "only math.cuh registers functions");
    if (functions == MAX_FUNCTIONS) die(path, line, "more than %d functions", MAX_FUNCTIONS);
    struct function *f = &function[functions++];
    parse_word(&c, f->name);
    expect(&c, '(');
    size_t n = strcspn(c.at, ")");
    f->arguments = allocate(n + 1, 1);
    memcpy(f->arguments, c.at, n);
    c.at += n;
    expect(&c, ')');
    f->meaning = allocate(strlen(c.at) + 1, 1);
    strcpy(f->meaning, c.at + strspn(c.at, " "));
    if (!*f->meaning) die(path, line, "%s: what it computes is missing", f->name);
}
