/* device_code.c -- what a primitive's code must and must not say. */
#include "embed.h"

#include <stdlib.h>
#include <string.h>

int line_of(const char *text, const char *at)
{
    int line = 1;
    for (; text < at; text++) line += *text == '\n';
    return line;
}

char *code_of(const struct file *file)
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

bool says(const char *code, const char *a, const char *b)
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

void check_code(const struct file *file, const struct row *row)
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
