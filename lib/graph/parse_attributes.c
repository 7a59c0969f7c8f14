/* parse_attributes.c -- the attributes of a node, between braces, and the map of scores among them. */
#include "parser.h"
#include "suggest.h"

#include <string.h>

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
    char c = parse_peek(p), end = c == '-' && p->at[1] == '1' ? p->at[2] : '0';
    if (n->op != OP_RESHAPE || !strchr(",} \t\r\n", end)) return false;
    p->at += 2;
    return true;
}

static coda_status read_extent_or_rest(struct parser *p, const struct node *n, int64_t *out)
{
    if (!accept_rest(p, n)) return parse_extent(p, out);
    *out = DIM_REST;
    return CODA_OK;
}

static coda_status read_format(struct parser *p, int64_t *out)
{
    char word[WORD_SIZE];
    struct pack_format f;
    coda_status s = parse_word(p, "a format", "_", word);
    if (s == CODA_OK) s = pack_find(word, &f);
    if (s == CODA_OK) *out = graph_format(&f);
    return s;
}

static coda_status read_attribute_value(struct parser *p, struct node *n, int k)
{
    enum attr_kind kind = attr_kind(n, k);
    float real = 0;
    int64_t integer = 0;
    coda_dtype dtype = CODA_F32;
    coda_status s = attr_is_float(n, k)   ? parse_float(p, &real)
                    : kind == ATTR_DTYPE  ? parse_dtype(p, &dtype)
                    : kind == ATTR_FORMAT ? read_format(p, &integer)
                    : kind == ATTR_EXTENT ? read_extent_or_rest(p, n, &integer)
                                          : parse_integer(p, &integer);
    if (attr_is_float(n, k)) attr_set_float(n, k, real);
    else attr_set_integer(n, k, kind == ATTR_DTYPE ? (int64_t)dtype : integer);
    return s;
}

/* What stands between braces: attributes `first` to `end` - 1; `given` has a bit for each named so far. */
struct braces {
    int first, end;
    unsigned given;
};

static coda_status read_score(struct parser *p, struct node *n);

static coda_status read_attribute(struct parser *p, struct node *n, struct braces *b)
{
    char key[WORD_SIZE];
    coda_status s = parse_word(p, "an attribute", "_", key);
    if (s == CODA_OK) s = parse_expect(p, '=');
    if (s != CODA_OK) return s;
    bool score = op_takes_map(n->op) && b->first == 0 && strcmp(key, "score") == 0;
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
    if (n->op == OP_UNPACK && !(n->attr.unpack.format && n->attr.unpack.to && n->attr.unpack.rank))
        return fail(CODA_E_INVALID, "unpack: it needs {format=WORD, d0=N, d1=K, rank=2, to=DTYPE}");
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
    if (!parse_accept(p, '{')) return s;
    do {
        s = read_attribute(p, n, b);
    } while (s == CODA_OK && parse_accept(p, ','));
    return s == CODA_OK ? parse_expect(p, '}') : s;
}

/* The map of an operation's scores, with its parameters. */
static coda_status read_score(struct parser *p, struct node *n)
{
    char word[WORD_SIZE];
    coda_status s = parse_word(p, "a map", "_", word);
    if (s != CODA_OK) return s;
    n->prim = graph_find_prim(p->g, word);
    if (!n->prim)
        return fail(CODA_E_INVALID, "%s: no map is called `%.40s`%s", op_info[n->op].text, word,
                    suggest_operation(p->g, word, SUGGEST_MAPS).text);
    struct braces b = {attr_own(n), attr_count(n), 0};
    s = read_braces(p, n, &b);
    return s == CODA_OK ? check_params(n, b.given) : s;
}

coda_status parse_attributes(struct parser *p, struct node *n)
{
    struct braces b = {0, op_is_prim(n->op) ? attr_count(n) : attr_own(n), 0};
    coda_status s = read_braces(p, n, &b);
    return s == CODA_OK && !op_takes_map(n->op) ? check_params(n, b.given) : s;
}
