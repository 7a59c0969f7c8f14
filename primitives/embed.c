/*
 * embed.c -- build tool: turns the files of primitives/ into one C file, their sources and their table.
 *
 *     embed DIR FILE... > prim.c        FILE is relative to DIR: map/silu.cuh
 *
 * A primitive registers itself with one comment line, which is checked here:
 *
 *     // coda: map NAME(x, ...; parameter, ...) [linear(x, ...)] [identity(y = 1)] [grad(x = NAME)] ...
 *     // coda: reduce NAME(x[, key]) state FLOATS [of NAME] [exact] [grad(x = NAME)] ...
 *     // coda: pair NAME(...)
 *     // coda: function NAME(x, ...) MEANING
 *
 * Files of map/, reduce/ and pair/ hold exactly one such line, math.cuh one for each function, others none.
 * NAME is the file's stem, and the file begins with `// NAME.cuh -- ` and what it computes, up to an empty
 * comment line.
 * Maps and reductions need DIR/ref/NAME.c, and every file there needs its primitive. Their device code
 * says `#pragma once`, defines `struct NAME`, calls no function of libm and has no double literal; the
 * reference says REFERENCE_MAP(NAME) or REFERENCE_REDUCE(NAME). The first mistake is reported as
 * file:line: message, with exit status 1. Equal input gives equal output.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sha256.h"

#include "prim.h"

enum { WORD = 64, MAX_NAMES = 8 };

struct file {
    const char *path; /* from DIR */
    unsigned char *text;
    size_t length;
};

struct row {
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

struct function {
    char name[WORD], *arguments, *meaning;
};
enum { MAX_FUNCTIONS = 64 };
static struct function function[MAX_FUNCTIONS];
static int functions;

static const char *dir;

static void die(const char *path, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s/%s:%d: ", dir, path, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(EXIT_FAILURE);
}

static void *allocate(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p) fputs("embed: out of memory\n", stderr), exit(EXIT_FAILURE);
    return p;
}

/* ---- Reading ---- */

/* DIR/path, to be freed. */
static char *in_dir(const char *path)
{
    size_t size = strlen(dir) + strlen(path) + 2;
    char *full = allocate(size, 1);
    snprintf(full, size, "%s/%s", dir, path);
    return full;
}

static FILE *open_file(const char *path)
{
    char *full = in_dir(path);
    FILE *f = fopen(full, "rb");
    free(full);
    return f;
}

static struct file read_file(const char *path)
{
    struct file file = {path, NULL, 0};
    size_t capacity = 1 << 16;
    FILE *f = open_file(path);
    if (!f) die(path, 1, "cannot be opened");
    file.text = allocate(capacity, 1);
    for (size_t n; (n = fread(file.text + file.length, 1, capacity - 1 - file.length, f)) > 0;) {
        file.length += n;
        if (file.length < capacity - 1) continue;
        file.text = realloc(file.text, capacity *= 2);
        if (!file.text) fputs("embed: out of memory\n", stderr), exit(EXIT_FAILURE);
    }
    if (ferror(f)) die(path, 1, "cannot be read");
    fclose(f);
    file.text[file.length] = '\0';
    if (memchr(file.text, '\0', file.length)) die(path, 1, "holds a NUL byte");
    return file;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

/* ---- Parsing one line ---- */

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

static bool in_word(int c) { return isalnum(c) || c == '_'; }

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

/* `text` follows "// coda: ". */
static struct row parse_row(const char *text, const char *path, int line)
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

/* ---- What a primitive's code must and must not say ---- */

static int line_of(const char *text, const char *at)
{
    int line = 1;
    for (; text < at; text++) line += *text == '\n';
    return line;
}

/* The text with spaces for comments and strings. */
static char *code_of(const struct file *file)
{
    char *code = allocate(file->length + 1, 1), *c = code;
    memcpy(code, file->text, file->length);
    while (*c) {
        char *end = c + 1;
        if (!strncmp(c, "//", 2)) end = c + strcspn(c, "\n");
        else if (!strncmp(c, "/*", 2)) end = strstr(c + 2, "*/") ? strstr(c + 2, "*/") + 2 : c + strlen(c);
        else if (*c == '"') {
            while (*end && *end != '"') end += *end == '\\' && end[1] ? 2 : 1;
            end += *end == '"';
        } else {
            c++;
            continue;
        }
        for (; c < end; c++)
            if (*c != '\n') *c = ' ';
    }
    return code;
}

/* Whether `a`, white space and the word `b` follow each other in the code. */
static bool says(const char *code, const char *a, const char *b)
{
    for (const char *at = code; (at = strstr(at, a)); at++) {
        const char *word = at + strlen(a);
        word += strspn(word, " \t\n");
        if ((at == code || !in_word((unsigned char)at[-1])) && !strncmp(word, b, strlen(b)) &&
            !in_word((unsigned char)word[strlen(b)]))
            return true;
    }
    return false;
}

/* Functions whose result depends on the compiler's flags, or which drop NaN; math.cuh has their twins. */
static bool is_libm(const char *word, size_t length)
{
    static const char *const names[] = {
        "exp",   "expf",   "exp2",   "exp2f",    "exp10f", "expm1f", "log",  "logf",      "log2",
        "log2f", "log10f", "log1pf", "pow",      "powf",   "sin",    "sinf", "cos",       "cosf",
        "tan",   "tanf",   "tanh",   "tanhf",    "sinhf",  "coshf",  "sqrt", "rsqrt",     "rsqrtf",
        "erf",   "erff",   "erfcf",  "normcdff", "fmax",   "fmaxf",  "fmin", "fminf",     "max",
        "min",   "__expf", "__logf", "__powf",   "__sinf", "__cosf", "fabs", "__fdividef"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == length && !strncmp(names[i], word, length)) return true;
    return false;
}

/* A number with a point or a decimal exponent, and no f behind it. */
static bool is_double(const char *word, size_t length)
{
    bool hex = length > 1 && word[0] == '0' && (word[1] | 32) == 'x', real = false;
    if (hex || !isdigit((unsigned char)(word[0] == '.' ? word[1] : word[0]))) return false;
    for (size_t i = 0; i < length; i++) real |= word[i] == '.' || (word[i] | 32) == 'e';
    return real && (word[length - 1] | 32) != 'f';
}

static size_t token_length(const char *c)
{
    size_t n = 0;
    bool number = isdigit((unsigned char)*c) || (*c == '.' && isdigit((unsigned char)c[1]));
    while (in_word((unsigned char)c[n]) || (number && c[n] == '.') ||
           (number && n && strchr("+-", c[n]) && c[n] && (c[n - 1] | 32) == 'e'))
        n++;
    return n;
}

static void check_words(const struct file *file, const char *code)
{
    for (const char *c = code; *c;) {
        size_t n = token_length(c);
        const char *next = c + n + strspn(c + n, " ");
        bool member = c > code && (c[-1] == ':' || c[-1] == '.'), called = n && *next == '(';
        bool defined = c - code >= 6 && !strncmp(c - 6, "float ", 6);
        if (called && !member && !defined && is_libm(c, n))
            die(file->path, line_of(code, c), "%.*s() is not for device code here; %s", (int)n, c,
                "math.cuh has what maps need");
        if (n && is_double(c, n))
            die(file->path, line_of(code, c), "%.*s is a double; write %.*sf", (int)n, c, (int)n, c);
        c += n ? n : 1;
    }
}

static void check_code(const struct file *file, const struct row *row)
{
    char *code = code_of(file), state[16];
    snprintf(state, sizeof state, "%d", row->state);
    if (!strstr(code, "#pragma once")) die(file->path, 1, "`#pragma once` is missing");
    if (!says(code, "struct", row->name))
        die(file->path, 1, "the registration says %s, and there is no `struct %s`", row->name, row->name);
    if (row->state && !says(code, "int state =", state))
        die(file->path, 1, "the registration says state %d; the code needs `%s = %d;`", row->state,
            "static constexpr int state", row->state);
    check_words(file, code);
    free(code);
}

/* ---- Parsing one file ---- */

/* "map/silu.cuh" is in class "map" and has stem "silu". */
static void check_path(const struct row *row, int line)
{
    char path[2 * WORD + 8];
    snprintf(path, sizeof path, "%s/%s.cuh", row->class, row->name);
    if (strcmp(path, row->path)) die(row->path, line, "%s %s belongs in %s", row->class, row->name, path);
}

static void check_reference(const struct row *row, int line)
{
    char path[WORD + 8];
    const char *macro = !strcmp(row->class, "map")    ? "REFERENCE_MAP"
                        : !strcmp(row->class, "pair") ? "REFERENCE_PAIR"
                                                      : "REFERENCE_REDUCE";
    snprintf(path, sizeof path, "ref/%s.c", row->name);
    FILE *f = open_file(path);
    if (!f) die(row->path, line, "its reference %s/%s is missing", dir, path);
    fclose(f);
    struct file reference = read_file(path);
    char *code = code_of(&reference), call[WORD + 24];
    snprintf(call, sizeof call, "%s(%s", macro, row->name);
    if (!says(code, call, ")")) die(path, 1, "%s(%s) is missing", macro, row->name);
    free(code);
    free(reference.text);
}

static bool is_primitive(const char *path)
{
    return !strncmp(path, "map/", 4) || !strncmp(path, "reduce/", 7) || !strncmp(path, "pair/", 5);
}

static bool is_class(const char *word)
{
    static const char *const class[] = {"map", "reduce", "pair"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(class[i]);
        if (!strncasecmp(word, class[i], n) && !in_word((unsigned char)word[n])) return true;
    }
    return false;
}

/* "//coda:map", "// coda map" and the like: a comment that begins with coda, in any case, and a colon or a
 * class. */
static bool looks_like_registration(const char *text)
{
    const char *comment = strstr(text, "//");
    if (!comment) return false;
    comment += strspn(comment, "/*! \t");
    if (strncasecmp(comment, "coda", 4)) return false;
    const char *rest = comment + 4 + strspn(comment + 4, " ");
    return (*rest == ':' && rest[1] != ':') || (rest > comment + 4 && is_class(rest));
}

/* "NAME.cuh -- the meaning", and comment lines up to an empty one or the registration, in one line. */
static char *parse_meaning(const struct file *file)
{
    char begin[2 * WORD], *meaning = allocate(file->length + 1, 1), *out = meaning;
    const char *stem = strrchr(file->path, '/'), *at = (const char *)file->text;
    snprintf(begin, sizeof begin, "// %.100s -- ", stem ? stem + 1 : file->path);
    if (strncmp(at, begin, strlen(begin)))
        die(file->path, 1, "begins with no \"%s\" and what it computes", begin);
    for (at += strlen(begin); *at; at += 3) {
        size_t n = strcspn(at, "\r\n");
        if (out > meaning) *out++ = ' ';
        memcpy(out, at, n);
        out += n;
        at += n + strspn(at + n, "\r");
        at += *at == '\n';
        if (strncmp(at, "// ", 3) || !strncmp(at, "// coda:", 8)) break;
    }
    if (out == meaning) die(file->path, 1, "what it computes is missing");
    return meaning;
}

/* `text` follows "// coda: function ". */
static void parse_function(const char *text, const char *path, int line)
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

/* Each function of math.cuh that returns a float is registered, and nothing else is. */
static void check_functions(const struct file *file)
{
    static const char define[] = "\nDEV float ";
    const char *text = (const char *)file->text;
    char call[WORD + 16];
    for (const char *at = text; (at = strstr(at, define));) {
        int found = 0, n = (int)strcspn(at += strlen(define), "(");
        while (found < functions && (strncmp(function[found].name, at, (size_t)n) || function[found].name[n]))
            found++;
        if (found == functions)
            die(file->path, line_of(text, at), "%.*s has no line \"// coda: function ...\"", n, at);
    }
    for (int i = 0; i < functions; i++) {
        snprintf(call, sizeof call, "%s%.63s(", define, function[i].name);
        if (!strstr(text, call)) die(file->path, 1, "there is no function %s", function[i].name);
    }
}

/* Finds the file's registration; returns false if it is no primitive. */
static bool parse_file(const struct file *file, struct row *row)
{
    static const char mark[] = "// coda: ";
    int found = 0, line = 1;
    char *copy = allocate(file->length + 1, 1), *text = copy;
    memcpy(copy, file->text, file->length);
    for (; text; line++) {
        char *end = strchr(text, '\n');
        if (end) *end = '\0';
        size_t length = strlen(text);
        if (length && text[length - 1] == '\r') text[length - 1] = '\0';
        if (!strncmp(text, mark, strlen(mark)) && !strncmp(text + strlen(mark), "function ", 9)) {
            parse_function(text + strlen(mark) + 9, file->path, line);
        } else if (!strncmp(text, mark, strlen(mark))) {
            if (found) die(file->path, line, "a second registration; the first is in line %d", found);
            if (!is_primitive(file->path)) die(file->path, line, "only map/, reduce/ and pair/ register");
            *row = parse_row(text + strlen(mark), file->path, line);
            check_path(row, line);
            found = line;
        } else if (looks_like_registration(text)) {
            die(file->path, line, "a registration starts its line with \"%s\"", mark);
        }
        text = end ? end + 1 : NULL;
    }
    free(copy);
    if (!found && is_primitive(file->path)) die(file->path, 1, "has no line \"%s...\"", mark);
    if (found) check_reference(row, found);
    if (found) check_code(file, row);
    if (found) row->meaning = parse_meaning(file);
    if (!strcmp(file->path, "math.cuh")) check_functions(file);
    return found;
}

static int compare_rows(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

static void check_duplicates(const struct row *row, int rows)
{
    for (int i = 1; i < rows; i++)
        if (!strcmp(row[i].name, row[i - 1].name))
            die(row[i].path, 1, "%s is also the name of %s", row[i].name, row[i - 1].path);
}

static const struct row *find_row(const struct row *row, int rows, const char *name)
{
    struct row key;
    snprintf(key.name, sizeof key.name, "%s", name);
    return bsearch(&key, row, (size_t)rows, sizeof *row, compare_rows);
}

/* "of NAME": a reduction of as many floats and operands that has a state of its own. */
static void check_states(const struct row *row, int rows)
{
    for (int i = 0; i < rows; i++) {
        if (!*row[i].of) continue;
        const struct row *of = find_row(row, rows, row[i].of);
        if (!of || *of->of || of->state != row[i].state || of->inputs != row[i].inputs)
            die(row[i].path, 1, "there is no reduction %s with a state like that of %s", row[i].of,
                row[i].name);
    }
}

/* The map that is the derivative of a row by an operand takes the first of what that one takes; of a
 * reduction, of an element, its statistic and its key. */
static void check_grads(const struct row *row, int rows)
{
    for (int i = 0; i < rows; i++) {
        bool reduce = !strcmp(row[i].class, "reduce");
        int most = row[i].inputs + reduce, params = row[i].arguments - row[i].inputs;
        for (int k = 0; k < row[i].inputs; k++) {
            if (!*row[i].grad[k]) continue;
            const struct row *g = find_row(row, rows, row[i].grad[k]);
            if (!g || strcmp(g->class, "map"))
                die(row[i].path, 1, "the derivative by %s: there is no map %s", row[i].argument[k],
                    row[i].grad[k]);
            if (g->inputs > most || g->arguments - g->inputs != params)
                die(row[i].path, 1,
                    "the derivative by %s: %s takes %d operands and %d parameters; %s has %d and %d",
                    row[i].argument[k], g->name, g->inputs, g->arguments - g->inputs, row[i].name, most,
                    params);
        }
    }
}

/* Every reference serves a primitive. */
static void check_orphans(const struct row *row, int rows)
{
    char *path = in_dir("ref");
    DIR *d = opendir(path);
    free(path);
    if (!d) die("ref", 1, "cannot be opened");
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        char name[WORD];
        if (length < 3 || strcmp(e->d_name + length - 2, ".c")) continue;
        snprintf(name, sizeof name, "%.*s", (int)(length - 2), e->d_name);
        if (!find_row(row, rows, name)) die("ref", 1, "%s is the reference of no primitive", e->d_name);
    }
    closedir(d);
}

#include "embed_write.h"

int main(int argc, char **argv)
{
    if (argc < 3) return fputs("usage: embed DIR FILE... > prim.c\n", stderr), EXIT_FAILURE;
    int files = argc - 2, rows = 0;
    struct file *file = allocate((size_t)files, sizeof *file);
    struct row *row = allocate((size_t)files, sizeof *row);
    dir = argv[1];
    for (int i = 0; i < files; i++) file[i] = read_file(argv[i + 2]);
    qsort(file, (size_t)files, sizeof *file, compare_files);
    for (int i = 0; i < files; i++) rows += parse_file(&file[i], &row[rows]);
    qsort(row, (size_t)rows, sizeof *row, compare_rows);
    check_duplicates(row, rows);
    check_states(row, rows);
    check_grads(row, rows);
    check_orphans(row, rows);

    printf("/* Made by embed.c from the files of primitives/. */\n#include <string.h>\n\n#include "
           "\"prim.h\"\n\n");
    write_files(file, files);
    printf("\n");
    write_table(row, rows);
    write_functions();
    printf("\nconst struct prim *prim_find(const char *name)\n{\n"
           "    for (int low = 0, high = prim_count; low < high;) {\n"
           "        int middle = (low + high) / 2, order = strcmp(name, prim_table[middle].name);\n"
           "        if (order == 0) return &prim_table[middle];\n"
           "        if (order < 0) high = middle; else low = middle + 1;\n"
           "    }\n    return NULL;\n}\n");
    if (fflush(stdout) || ferror(stdout)) return fputs("embed: cannot write\n", stderr), EXIT_FAILURE;
    return EXIT_SUCCESS;
}
