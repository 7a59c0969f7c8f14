/*
 * graph_parse.c -- text to graph, the inverse of graph_print.c, which shows the form.
 *
 *     text      = { [ dim | map | value | output ] [ comment ] newline }
 *     dim       = "dim" "%" name "=" integer ".." integer [ "step" integer ]
 *     map       = "map" name "(" integer [ ";" integer ] ")" string
 *     value     = "%" name "=" ( leaf | operation ) [ "@" scope ]
 *     leaf      = ( "input" | "weight" | "state" | "scalar" ) dtype "[" [ extents ] "]" [ strides ]
 *     operation = word [ operand { "," operand } ] [ "{" key "=" datum { "," ... } "}" ] [ "@" value ]
 *     scope     = letters, digits and the signs _ . - / :
 *     datum     = number | dtype | extent | map
 *     map       = word [ "{" key "=" number { "," ... } "}" ]      for the key `score` of attention
 *     operand   = "%" name | "_"
 *     output    = "output" "%" name ( "=" | "+=" ) "%" name [ strides ]
 *     strides   = "stride=[" [ extents ] "]"
 *     extents   = extent { "," extent }
 *     extent    = [ "-" ] term { ( "+" | "-" ) term }         of symbols: those of `dim`, without "%"
 *     term      = ( integer | name ) { "*" ( integer | name ) }
 *     comment   = ( ";" | "#" ) ... to the end of the line
 *
 * A person may call a value anything; printing renumbers. Nothing here judges a graph: it is appended
 * as the builder would, under the same checks. Memory is bounded by a multiple of the text's length.
 */
#include "graph.h"
#include "suggest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- Words ---- */

static char peek(struct parser *p)
{
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r') p->at++;
    return *p->at;
}

static bool accept(struct parser *p, char c)
{
    if (peek(p) != c) return false;
    p->at++;
    return true;
}

/* Characters of the line's rest, as many as a message shows. */
static int rest(const struct parser *p)
{
    int n = 0;
    while (n < 20 && p->at[n] && p->at[n] != '\n') n++;
    return n;
}

static coda_status expect(struct parser *p, char c)
{
    if (accept(p, c)) return CODA_OK;
    return fail(CODA_E_INVALID, "expected `%c` before `%.*s`", c, rest(p), p->at);
}

/* A run of letters, digits and the characters of `more`. */
static coda_status read_word(struct parser *p, const char *what, const char *more, char *word)
{
    peek(p);
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
    if (!n) return fail(CODA_E_INVALID, "expected %s before `%.*s`", what, rest(p), p->at);
    p->at += n;
    return CODA_OK;
}

static coda_status read_name(struct parser *p, char *word)
{
    coda_status s = expect(p, '%');
    return s == CODA_OK ? read_word(p, "a name", "_.", word) : s;
}

/* sign: "-" where it may have one. */
static coda_status read_number(struct parser *p, const char *sign, int64_t *out)
{
    char word[WORD_SIZE], *end;
    coda_status s = read_word(p, "an integer", sign, word);
    if (s != CODA_OK) return s;
    errno = 0;
    *out = strtoll(word, &end, 10);
    bool truth =
        !strcmp(word, "true") || !strcmp(word, "false") || !strcmp(word, "True") || !strcmp(word, "False");
    if (*end || end == word)
        return fail(CODA_E_INVALID, "`%.40s` is no integer%s", word, truth ? "; it is 1 or 0" : "");
    return errno ? fail(CODA_E_INVALID, "%.40s does not fit in 64 bits", word) : CODA_OK;
}

static coda_status read_integer(struct parser *p, int64_t *out) { return read_number(p, "-", out); }

static coda_status read_float(struct parser *p, float *out)
{
    char word[WORD_SIZE], *end;
    coda_status s = read_word(p, "a number", "+-.", word);
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
    char c = peek(p);
    if (c >= '0' && c <= '9') return read_number(p, "", out);
    coda_status s = read_word(p, "an extent", "_.", word);
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
    while (s == CODA_OK && accept(p, '*')) {
        s = read_factor(p, &factor);
        if (s == CODA_OK && (term = dims_multiply(p->g->dims, term, factor)) == DIM_NONE) s = fail_status();
    }
    if (s == CODA_OK && (*sum = dims_add(p->g->dims, *sum, term)) == DIM_NONE) s = fail_status();
    return s;
}

/* "2*B*T-1". A number may be below 0, which is no extent: it is refused here, as it might be a name. */
static coda_status read_extent(struct parser *p, int64_t *out)
{
    struct sum sum = {0, 0};
    coda_status s;
    bool minus = accept(p, '-');
    do {
        s = read_term(p, minus ? &sum.below : &sum.above);
        minus = s == CODA_OK && peek(p) == '-';
    } while (s == CODA_OK && (accept(p, '+') || accept(p, '-')));
    if (s == CODA_OK && (*out = dims_subtract(p->g->dims, sum.above, sum.below)) == DIM_NONE)
        s = fail_status();
    return s;
}

/* "[B*T,2,3]" */
static coda_status read_extents(struct parser *p, int64_t *out, int *count)
{
    coda_status s = expect(p, '[');
    *count = 0;
    if (s != CODA_OK || accept(p, ']')) return s;
    do {
        if (*count == CODA_MAX_RANK) return fail(CODA_E_INVALID, "more than %d dimensions", CODA_MAX_RANK);
        if ((s = read_extent(p, &out[(*count)++])) != CODA_OK) return s;
    } while (accept(p, ','));
    return expect(p, ']');
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

static coda_status read_string(struct parser *p, char **out)
{
    coda_status s = expect(p, '"');
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

/* ---- Values ---- */

/* What others write for an operand: a number, or a name alone. */
static coda_status refuse_operand(struct parser *p)
{
    char c = peek(p);
    if ((c >= '0' && c <= '9') || ((c == '-' || c == '.') && p->at[1] >= '0' && p->at[1] <= '9'))
        return fail(CODA_E_INVALID,
                    "`%.*s`: a number is a value of its own: %%c = constant {to=f32, value=...}", rest(p),
                    p->at);
    return expect(p, '%');
}

static coda_status read_value(struct parser *p, int *value)
{
    char name[WORD_SIZE];
    if (peek(p) != '%') return refuse_operand(p);
    coda_status s = read_name(p, name);
    if (s != CODA_OK) return s;
    *value = names_find(&p->values, name, -1);
    if (*value >= 0) return CODA_OK;
    return fail(CODA_E_INVALID, "%%%.40s is not defined above%s", name, suggest_value(&p->values, name).text);
}

static coda_status define(struct parser *p, const char *name, const struct node *n)
{
    p->g->text_name = name;
    p->g->text_scope = n->scope;
    int value = graph_append(p->g, n);
    p->g->text_name = p->g->text_scope = NULL;
    if (value < 0) return p->g->status;
    const char *key = arena_string(&p->arena, name);
    return key && names_add(&p->values, &p->arena, key, value) ? CODA_OK
                                                               : fail(CODA_E_MEMORY, "out of memory");
}

/* Strides, or the dense ones. */
static coda_status read_strides(struct parser *p, const struct type *type, int64_t *stride)
{
    char word[WORD_SIZE];
    int count;
    if (peek(p) != 's') return CODA_OK;
    coda_status s = read_word(p, "stride", "", word);
    if (s == CODA_OK && strcmp(word, "stride") != 0)
        return fail(CODA_E_INVALID, "expected `stride`, got `%.40s`", word);
    if (s == CODA_OK) s = expect(p, '=');
    if (s == CODA_OK) s = read_extents(p, stride, &count);
    if (s == CODA_OK && count != type->rank)
        return fail(CODA_E_INVALID, "%d strides for %d dimensions", count, type->rank);
    return s;
}

static coda_status read_dtype(struct parser *p, coda_dtype *out)
{
    char word[WORD_SIZE];
    coda_status s = read_word(p, "a dtype", "_.", word);
    if (s != CODA_OK) return s;
    for (*out = CODA_F32; dtype_size(*out); (*out)++)
        if (strcmp(word, dtype_name(*out)) == 0) return CODA_OK;
    return fail(CODA_E_INVALID, "`%.40s` is no dtype%s", word, suggest_dtype(word).text);
}

/* "[-1,64]", "[?,64]": as others write what differs from run to run. */
static coda_status refuse_unknown(struct parser *p)
{
    if (peek(p) != '[') return CODA_OK;
    for (const char *c = p->at + 1; *c && *c != ']' && *c != '\n'; c++)
        if ((c[-1] == '[' || c[-1] == ',') && (*c == '?' || (*c == '-' && c[1] == '1' && strchr(",]", c[2]))))
            return fail(CODA_E_INVALID,
                        "`%.*s`: a dimension that runs choose has a name, from `dim %%T = 1..4096` above",
                        rest(p), p->at);
    return CODA_OK;
}

static coda_status read_leaf(struct parser *p, struct node *n)
{
    coda_status s = read_dtype(p, &n->type.dtype);
    if (s == CODA_OK && n->op == OP_SCALAR) return CODA_OK;
    if (s == CODA_OK) s = refuse_unknown(p);
    if (s == CODA_OK) s = read_extents(p, n->type.dim, &n->type.rank);
    n->type.dims = p->g->dims;
    if (s == CODA_OK) s = type_check(op_info[n->op].text, n->name, &n->type);
    if (s != CODA_OK) return s;
    dense_strides(&n->type, n->stride);
    return read_strides(p, &n->type, n->stride);
}

/* ---- Operations ---- */

/* An operation by its word, or else a primitive. */
static coda_status read_op(struct parser *p, struct node *n)
{
    char word[WORD_SIZE];
    coda_status s = read_word(p, "an operation", "_.:", word);
    if (s != CODA_OK) return s;
    for (int i = 0; i < OP_COUNT; i++) {
        if (i == OP_MAP || i == OP_REDUCE || strcmp(word, op_info[i].text) != 0) continue;
        n->op = (enum op)i;
        return CODA_OK;
    }
    n->prim = graph_find_prim(p->g, word);
    if (!n->prim)
        return fail(CODA_E_INVALID, "unknown operation `%.40s`%s", word,
                    suggest_operation(p->g, word, SUGGEST_ALL).text);
    n->op = n->prim->kind == PRIM_MAP ? OP_MAP : OP_REDUCE;
    return CODA_OK;
}

/* Room for twice as many as there are. */
static bool more_operands(struct parser *p, struct node *n)
{
    int wider = MAX(16, 2 * p->operands), *operand = ARENA_NEW(&p->arena, int, wider);
    if (!operand) return false;
    if (n->nin) memcpy(operand, p->operand, sizeof *operand * (size_t)n->nin);
    p->operand = n->in = operand;
    p->operands = wider;
    return true;
}

/* Operands that begin neither with "%" nor with "_", as in other languages. */
static coda_status refuse_operands(struct parser *p, const struct node *n)
{
    char c = *p->at, small = (char)(c | 32);
    if (op_info[n->op].most == 0) return CODA_OK;
    if (c == '(')
        return fail(CODA_E_INVALID, "`%.*s`: operands have no parentheses: %s %%a, %%b", rest(p), p->at,
                    node_text(n));
    if ((small >= 'a' && small <= 'z') || (c >= '0' && c <= '9'))
        return fail(CODA_E_INVALID, "`%.*s`: operands begin with %%: %s %%a, %%b", rest(p), p->at,
                    node_text(n));
    return CODA_OK;
}

static coda_status read_operands(struct parser *p, struct node *n)
{
    if (peek(p) != '%' && *p->at != '_') return refuse_operands(p, n);
    do {
        if (n->nin == p->operands && !more_operands(p, n)) return fail(CODA_E_MEMORY, "out of memory");
        int *value = &p->operand[n->nin++];
        *value = -1;
        if (accept(p, '_')) continue;
        coda_status s = read_value(p, value);
        if (s != CODA_OK) return s;
    } while (accept(p, ','));
    return CODA_OK;
}

/* Which attribute of the node, from `first` below `end`, goes by this key, or -1. */
static int find_attribute(const struct node *n, const char *key, int first, int end)
{
    int k = end - 1;
    while (k >= first && strcmp(attr_key(n, k), key) != 0) k--;
    return k < first ? -1 : k;
}

/* "-1", of a reshape's dimensions; a number or a symbol begins otherwise. */
static bool accept_rest(struct parser *p, const struct node *n)
{
    char c = peek(p), end = c == '-' && p->at[1] == '1' ? p->at[2] : '0';
    if (n->op != OP_RESHAPE || !strchr(",} \t\r\n", end)) return false;
    p->at += 2;
    return true;
}

static coda_status read_extent_or_rest(struct parser *p, const struct node *n, int64_t *out)
{
    if (!accept_rest(p, n)) return read_extent(p, out);
    *out = DIM_REST;
    return CODA_OK;
}

static coda_status read_attribute_value(struct parser *p, struct node *n, int k)
{
    enum attr_kind kind = attr_kind(n, k);
    float real = 0;
    int64_t integer = 0;
    coda_dtype dtype = CODA_F32;
    coda_status s = attr_is_float(n, k)   ? read_float(p, &real)
                    : kind == ATTR_DTYPE  ? read_dtype(p, &dtype)
                    : kind == ATTR_EXTENT ? read_extent_or_rest(p, n, &integer)
                                          : read_integer(p, &integer);
    if (attr_is_float(n, k)) attr_set_float(n, k, real);
    else attr_set_integer(n, k, kind == ATTR_DTYPE ? (int64_t)dtype : integer);
    return s;
}

/* Of attributes from `first` below `end`; `given` has a bit for each that the text has named so far. */
struct braces {
    int first, end;
    unsigned given;
};

static coda_status read_score(struct parser *p, struct node *n);

static coda_status read_attribute(struct parser *p, struct node *n, struct braces *b)
{
    char key[WORD_SIZE];
    coda_status s = read_word(p, "an attribute", "_", key);
    if (s == CODA_OK) s = expect(p, '=');
    if (s != CODA_OK) return s;
    bool score = n->op == OP_ATTENTION && b->first == 0 && strcmp(key, "score") == 0;
    int k = score ? b->end : find_attribute(n, key, b->first, b->end);
    if (k < 0)
        return fail(CODA_E_INVALID, "no attribute is called `%.40s` here%s", key,
                    suggest_attribute(n, key, b->first, b->end).text);
    if (b->given >> k & 1) return fail(CODA_E_INVALID, "the attribute `%.40s` is given twice", key);
    b->given |= 1u << k;
    return score ? read_score(p, n) : read_attribute_value(p, n, k);
}

/* The parameters of a map have no default, nor has what a constant is. */
static coda_status check_params(const struct node *n, unsigned given)
{
    unsigned all = (1u << attr_count(n)) - 1;
    if (n->op == OP_CONSTANT && given != all)
        return fail(CODA_E_INVALID, "constant: it needs {to=DTYPE, value=NUMBER}");
    if (n->op == OP_CAST && given != all) return fail(CODA_E_INVALID, "cast: it needs {to=DTYPE}");
    for (int k = attr_own(n); k < attr_count(n); k++)
        if (!(given >> k & 1))
            return fail(CODA_E_INVALID, "%s: its parameter `%s` is missing", n->prim->name, attr_key(n, k));
    return CODA_OK;
}

/* Between braces, if there are any. */
static coda_status read_braces(struct parser *p, struct node *n, struct braces *b)
{
    coda_status s = CODA_OK;
    if (!accept(p, '{')) return s;
    do {
        s = read_attribute(p, n, b);
    } while (s == CODA_OK && accept(p, ','));
    return s == CODA_OK ? expect(p, '}') : s;
}

/* The map of attention's scores, with its parameters. */
static coda_status read_score(struct parser *p, struct node *n)
{
    char word[WORD_SIZE];
    coda_status s = read_word(p, "a map", "_", word);
    if (s != CODA_OK) return s;
    n->prim = graph_find_prim(p->g, word);
    if (!n->prim)
        return fail(CODA_E_INVALID, "attention: no map is called `%.40s`%s", word,
                    suggest_operation(p->g, word, SUGGEST_MAPS).text);
    struct braces b = {attr_own(n), attr_count(n), 0};
    s = read_braces(p, n, &b);
    return s == CODA_OK ? check_params(n, b.given) : s;
}

static coda_status read_attributes(struct parser *p, struct node *n)
{
    struct braces b = {0, op_is_prim(n->op) ? attr_count(n) : attr_own(n), 0};
    coda_status s = read_braces(p, n, &b);
    return s == CODA_OK && n->op != OP_ATTENTION ? check_params(n, b.given) : s;
}

static coda_status read_origin(struct parser *p, struct node *n)
{
    int value;
    coda_status s = read_value(p, &value);
    if (s == CODA_OK) n->origin = p->g->node[value].origin;
    return s;
}

static coda_status read_scope(struct parser *p, struct node *n)
{
    char word[WORD_SIZE];
    const char *scope = word;
    coda_status s = read_word(p, "a scope", SCOPE_SIGNS, word);
    if (s == CODA_OK && n->scope) return fail(CODA_E_INVALID, "the scope is given twice");
    if (s == CODA_OK) s = graph_scope(p->g, &scope);
    n->scope = s == CODA_OK ? scope : NULL;
    return s;
}

/* "@%2 @layers.17.mlp" */
static coda_status read_places(struct parser *p, struct node *n)
{
    coda_status s = CODA_OK;
    if (accept(p, '@')) s = peek(p) == '%' ? read_origin(p, n) : read_scope(p, n);
    if (s == CODA_OK && accept(p, '@')) s = read_scope(p, n);
    return s;
}

/* ---- Lines ---- */

static coda_status end_line(struct parser *p)
{
    char c = peek(p);
    const char *hint = c == '/'   ? "; comments begin with ; or #"
                       : c == '%' ? "; commas between operands"
                                  : "";
    if (c == ';' || c == '#') p->at += strcspn(p->at, "\n");
    else if (c && c != '\n') return fail(CODA_E_INVALID, "trailing text `%.*s`%s", rest(p), p->at, hint);
    return CODA_OK;
}

static coda_status parse_value(struct parser *p)
{
    char name[WORD_SIZE];
    struct node n = {.in = p->operand, .origin = -1, .name = name};
    coda_status s = read_name(p, name);
    if (s != CODA_OK) return s;
    if (names_find(&p->values, name, -1) >= 0)
        return fail(CODA_E_INVALID, "%%%.40s is defined already", name);
    if ((s = expect(p, '=')) != CODA_OK || (s = read_op(p, &n)) != CODA_OK) return s;
    s = op_is_leaf(n.op) ? read_leaf(p, &n) : read_operands(p, &n);
    if (s == CODA_OK) s = read_attributes(p, &n);
    if (s == CODA_OK) s = read_places(p, &n);
    if (s == CODA_OK) s = end_line(p);
    return s == CODA_OK ? define(p, name, &n) : s;
}

static coda_status parse_output(struct parser *p)
{
    char name[WORD_SIZE];
    int value;
    int64_t stride[CODA_MAX_RANK];
    coda_status s = read_name(p, name);
    bool add = s == CODA_OK && accept(p, '+');
    if (s == CODA_OK) s = expect(p, '=');
    if (s == CODA_OK) s = read_value(p, &value);
    if (s != CODA_OK) return s;
    dense_strides(&p->g->node[value].type, stride);
    if ((s = read_strides(p, &p->g->node[value].type, stride)) != CODA_OK) return s;
    if ((s = end_line(p)) != CODA_OK) return s;
    if (add) graph_append_sum(p->g, name, value, stride);
    else graph_append_output(p->g, name, value, stride);
    return p->g->status;
}

static coda_status parse_map(struct parser *p)
{
    char name[WORD_SIZE], *source = NULL;
    int64_t inputs = 0, params = 0;
    coda_status s = read_word(p, "a name", "_", name);
    if (s == CODA_OK) s = expect(p, '(');
    if (s == CODA_OK) s = read_integer(p, &inputs);
    if (s == CODA_OK && accept(p, ';')) s = read_integer(p, &params);
    if (s == CODA_OK) s = expect(p, ')');
    if (s == CODA_OK) s = read_string(p, &source);
    if (s == CODA_OK) s = end_line(p);
    if (s != CODA_OK) return s;
    coda_map_def def = {sizeof def, name, (int)MIN(MAX(inputs, -1), 99), (int)MIN(MAX(params, -1), 99),
                        source,     NULL};
    return graph_define_map(p->g, &def);
}

static coda_status read_range(struct parser *p, int64_t *least, int64_t *most)
{
    coda_status s = read_integer(p, least);
    if (s == CODA_OK) s = expect(p, '.');
    if (s == CODA_OK) s = expect(p, '.');
    return s == CODA_OK ? read_integer(p, most) : s;
}

static coda_status parse_dim(struct parser *p)
{
    char name[WORD_SIZE], word[WORD_SIZE];
    int64_t least = 0, most = 0, multiple = 1;
    coda_status s = read_name(p, name);
    if (s == CODA_OK) s = expect(p, '=');
    if (s == CODA_OK) s = read_range(p, &least, &most);
    if (s == CODA_OK && peek(p) == 's') {
        s = read_word(p, "step", "", word);
        if (s == CODA_OK && strcmp(word, "step") != 0)
            return fail(CODA_E_INVALID, "expected `step`, got `%.40s`", word);
        if (s == CODA_OK) s = read_integer(p, &multiple);
    }
    if (s == CODA_OK) s = end_line(p);
    if (s != CODA_OK) return s;
    int64_t d = graph_symbol(p->g, name, least, most, multiple);
    if (d == DIM_NONE) return p->g->status;
    const char *key = arena_string(&p->arena, name);
    return key && names_add(&p->symbols, &p->arena, key, (int)~d) ? CODA_OK
                                                                  : fail(CODA_E_MEMORY, "out of memory");
}

static coda_status parse_line(struct parser *p)
{
    char word[WORD_SIZE];
    char c = peek(p);
    if (c == '%') return parse_value(p);
    if (!c || c == '\n' || c == ';' || c == '#' || c == '/') return end_line(p);
    coda_status s = read_word(p, "`%`, `dim`, `map` or `output`", "_", word);
    if (s != CODA_OK) return s;
    if (strcmp(word, "dim") == 0) return parse_dim(p);
    if (strcmp(word, "map") == 0) return parse_map(p);
    if (strcmp(word, "output") == 0) return parse_output(p);
    return fail(CODA_E_INVALID, "expected `%%`, `dim`, `map` or `output`, got `%.40s`%s", word,
                suggest_line(word).text);
}

static coda_status parse_lines(struct parser *p)
{
    for (p->line = 1;; p->line++) {
        coda_status s = parse_line(p);
        if (s != CODA_OK) return fail(s, "line %d: %s", p->line, fail_message());
        if (!*p->at) return CODA_OK;
        p->at++; /* the newline that end_line() left */
    }
}

graph *graph_parse(const char *text)
{
    struct parser p = {.at = text, .g = graph_new()};
    if (p.g) p.g->text_names = &p.values;
    coda_status s = p.g ? parse_lines(&p) : fail(CODA_E_MEMORY, "graph parse: out of memory");
    if (p.g) p.g->text_names = NULL;
    arena_free(&p.arena);
    if (s == CODA_OK) return p.g;
    graph_free(p.g);
    return NULL;
}
