/* parse_words.c -- words, numbers, extents and strings of a graph's text. */
#include "parser.h"
#include "suggest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Words ---- */

char parse_peek(struct parser *p)
{
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r') p->at++;
    return *p->at;
}

bool parse_accept(struct parser *p, char c)
{
    if (parse_peek(p) != c) return false;
    p->at++;
    return true;
}

int parse_rest(const struct parser *p)
{
    int n = 0;
    while (n < 20 && p->at[n] && p->at[n] != '\n') n++;
    return n;
}

coda_status parse_expect(struct parser *p, char c)
{
    if (parse_accept(p, c)) return CODA_OK;
    return fail(CODA_E_INVALID, "expected `%c` before `%.*s`", c, parse_rest(p), p->at);
}

coda_status parse_word(struct parser *p, const char *what, const char *more, char *word)
{
    parse_peek(p);
    size_t n = 0;
    for (;; n++) {
        char c = p->at[n], lower = c | 32;
        bool inside = (c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'z') || (c && strchr(more, c));
        if (!inside) break;
        if (n == WORD_SIZE - 1)
            return fail(CODA_E_INVALID, "%s is longer than %d characters", what, WORD_SIZE - 1);
        word[n] = c;
    }
    word[n] = 0;
    if (!n) return fail(CODA_E_INVALID, "expected %s before `%.*s`", what, parse_rest(p), p->at);
    p->at += n;
    return CODA_OK;
}

coda_status parse_name(struct parser *p, char *word)
{
    coda_status s = parse_expect(p, '%');
    return s == CODA_OK ? parse_word(p, "a name", "_.", word) : s;
}

/* sign: "-" where it may have one. */
static coda_status read_number(struct parser *p, const char *sign, int64_t *out)
{
    char word[WORD_SIZE], *end;
    coda_status s = parse_word(p, "an integer", sign, word);
    if (s != CODA_OK) return s;
    errno = 0;
    *out = strtoll(word, &end, 10);
    bool truth =
        !strcmp(word, "true") || !strcmp(word, "false") || !strcmp(word, "True") || !strcmp(word, "False");
    if (*end || end == word)
        return fail(CODA_E_INVALID, "`%.40s` is no integer%s", word, truth ? "; it is 1 or 0" : "");
    return errno ? fail(CODA_E_INVALID, "%.40s does not fit in 64 bits", word) : CODA_OK;
}

coda_status parse_integer(struct parser *p, int64_t *out) { return read_number(p, "-", out); }

coda_status parse_float(struct parser *p, float *out)
{
    char word[WORD_SIZE], *end;
    coda_status s = parse_word(p, "a number", "+-.", word);
    if (s != CODA_OK) return s;
    errno = 0;
    *out = format_read_float(word, &end);
    if (*end || end == word) return fail(CODA_E_INVALID, "`%.40s` is no number", word);
    return errno && isinf(*out) ? fail(CODA_E_INVALID, "%.40s does not fit in fp32", word) : CODA_OK;
}

/* ---- Extents ---- */

/* A sum on the way: what is added, and what is taken away, as either may be below 0 alone. */
struct sum {
    int64_t above, below;
};

/* A number or a symbol. A name begins with no digit. */
static coda_status read_factor(struct parser *p, int64_t *out)
{
    char word[WORD_SIZE];
    char c = parse_peek(p);
    if (c >= '0' && c <= '9') return read_number(p, "", out);
    coda_status s = parse_word(p, "an extent", "_.", word);
    if (s != CODA_OK) return s;
    int symbol = names_find(&p->symbols, word, -1);
    *out = ~(int64_t)symbol;
    if (symbol >= 0) return CODA_OK;
    return fail(CODA_E_INVALID, "no dim is called `%.40s`%s", word, suggest_symbol(&p->symbols, word).text);
}

static coda_status read_term(struct parser *p, int64_t *sum)
{
    int64_t term, factor;
    coda_status s = read_factor(p, &term);
    while (s == CODA_OK && parse_accept(p, '*')) {
        s = read_factor(p, &factor);
        if (s == CODA_OK && (term = dims_multiply(p->g->dims, term, factor)) == DIM_NONE) s = fail_status();
    }
    if (s == CODA_OK && (*sum = dims_add(p->g->dims, *sum, term)) == DIM_NONE) s = fail_status();
    return s;
}

/* "2*B*T-1". A number may be below 0, which is no extent: it is refused here, as it might be a name. */
coda_status parse_extent(struct parser *p, int64_t *out)
{
    struct sum sum = {0, 0};
    coda_status s;
    bool minus = parse_accept(p, '-');
    do {
        s = read_term(p, minus ? &sum.below : &sum.above);
        minus = s == CODA_OK && parse_peek(p) == '-';
    } while (s == CODA_OK && (parse_accept(p, '+') || parse_accept(p, '-')));
    if (s == CODA_OK && (*out = dims_subtract(p->g->dims, sum.above, sum.below)) == DIM_NONE)
        s = fail_status();
    return s;
}

/* "[B*T,2,3]" */
coda_status parse_extents(struct parser *p, int64_t *out, int *count)
{
    coda_status s = parse_expect(p, '[');
    *count = 0;
    if (s != CODA_OK || parse_accept(p, ']')) return s;
    do {
        if (*count == CODA_MAX_RANK) return fail(CODA_E_INVALID, "more than %d dimensions", CODA_MAX_RANK);
        if ((s = parse_extent(p, &out[(*count)++])) != CODA_OK) return s;
    } while (parse_accept(p, ','));
    return parse_expect(p, ']');
}

/* ---- Strings ---- */

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c | (c > '9' ? 32 : 0)) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* One character of a string, after its escape is undone. */
static coda_status read_char(struct parser *p, char *out)
{
    char c = *p->at++;
    if (c == '\\') {
        c = *p->at++;
        if (c == 'n') c = '\n';
        else if (c == 'x') {
            int high = hex_digit(p->at[0]), low = high < 0 ? -1 : hex_digit(p->at[1]);
            if (low < 0 || high + low == 0)
                return fail(CODA_E_INVALID, "\\x needs two hexadecimal digits, not both 0");
            c = (char)(16 * high + low);
            p->at += 2;
        } else if (c != '"' && c != '\\') return fail(CODA_E_INVALID, "unknown escape in a string");
    }
    *out = c;
    return CODA_OK;
}

coda_status parse_string(struct parser *p, char **out)
{
    coda_status s = parse_expect(p, '"');
    size_t n = 0, most = strcspn(p->at, "\n");
    char *string = s == CODA_OK ? arena_alloc(&p->arena, most + 1) : NULL;
    if (s == CODA_OK && !string) return fail(CODA_E_MEMORY, "out of memory");
    while (s == CODA_OK && *p->at != '"') {
        if (*p->at == 0 || *p->at == '\n') return fail(CODA_E_INVALID, "the string has no end");
        s = read_char(p, &string[n++]);
    }
    if (s != CODA_OK) return s;
    p->at++;
    string[n] = 0;
    *out = string;
    return CODA_OK;
}

/* ---- Types ---- */

coda_status parse_dtype(struct parser *p, coda_dtype *out)
{
    char word[WORD_SIZE];
    coda_status s = parse_word(p, "a dtype", "_.", word);
    if (s != CODA_OK) return s;
    if (dtype_find(word, out)) return CODA_OK;
    return fail(CODA_E_INVALID, "`%.40s` is no dtype%s", word, suggest_dtype(word).text);
}
