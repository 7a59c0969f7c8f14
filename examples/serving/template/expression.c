/*
 * expression.c -- expressions, by Jinja's order of operators.
 *
 *     a if b else c    or    and    not    == != < <= > >= in, not in    + -    ~    * / // %    **    - +
 *     and closest of all  x.name  x[key]  x(...)  x | filter  x is test
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "template_parts.h"

/* ---- The parser's steps ---- */

bool parser_fail(struct parser *p, const char *format, ...)
{
    char what[200];
    va_list args;
    if (p->failed) return false;
    va_start(args, format);
    plain_vline(what, sizeof what, format, args);
    va_end(args);
    p->failed = true;
    return fault_set(p->fault, "line %d: %s", p->at->line, what);
}

struct node *parser_node(struct parser *p, enum node_kind kind)
{
    struct node *n = arena_take(p->arena, sizeof *n);
    if (!n) return parser_fail(p, "out of memory"), &p->nothing;
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

bool parser_sees(const struct parser *p, enum token_kind kind, const char *text)
{
    return !p->failed && p->at->kind == kind && (!text || string_is(p->at->text, text));
}

bool parser_takes(struct parser *p, enum token_kind kind, const char *text)
{
    if (!parser_sees(p, kind, text)) return false;
    p->at++;
    return true;
}

static struct string seen(const struct parser *p)
{
    const struct token *t = p->at;
    static const char *const kinds[] = {"the end",           "text", "{%", "the end of the tag", "{{",
                                        "the end of the tag"};
    const char *kind = t->kind <= TOKEN_SHOW_END ? kinds[t->kind] : "a number";
    return t->text.bytes && t->kind >= TOKEN_NAME ? t->text : (struct string){kind, strlen(kind)};
}

bool parser_wants(struct parser *p, enum token_kind kind, const char *text)
{
    if (parser_takes(p, kind, text)) return true;
    struct string s = seen(p);
    return parser_fail(p, "%.*s, where %s was expected", s.bytes < 40 ? (int)s.bytes : 40, s.data,
                       text                 ? text
                       : kind == TOKEN_NAME ? "a name"
                                            : "the end of the tag");
}

struct string parser_name(struct parser *p)
{
    struct string name = p->at->text;
    return parser_wants(p, TOKEN_NAME, NULL) ? name : (struct string){"", 0};
}

static bool takes_sign(struct parser *p, const char *sign) { return parser_takes(p, TOKEN_SIGN, sign); }
static bool sees_sign(const struct parser *p, const char *sign) { return parser_sees(p, TOKEN_SIGN, sign); }
static bool takes_word(struct parser *p, const char *word) { return parser_takes(p, TOKEN_NAME, word); }
static bool sees_word(const struct parser *p, const char *word) { return parser_sees(p, TOKEN_NAME, word); }

bool parser_enter(struct parser *p)
{
    return !p->failed &&
           (++p->depth <= TEMPLATE_DEPTH || parser_fail(p, "more than %d levels", TEMPLATE_DEPTH));
}

/* ---- Lists ---- */

static bool closes(const struct parser *p)
{
    return p->failed || sees_sign(p, ")") || sees_sign(p, "]") || sees_sign(p, "}") ||
           p->at->kind == TOKEN_BLOCK_END || p->at->kind == TOKEN_SHOW_END;
}

/* Items up to what closes them, commas between. */
static struct node *items(struct parser *p, struct node *(*item)(struct parser *))
{
    struct node *first = NULL, **to = &first;
    while (!closes(p)) {
        *to = item(p);
        to = &(*to)->next;
        if (!takes_sign(p, ",")) break;
    }
    return p->failed ? NULL : first;
}

struct node *parse_tuple(struct parser *p, struct node *(*item)(struct parser *))
{
    struct node *one = sees_sign(p, ")") ? NULL : item(p);
    if (one && !sees_sign(p, ",")) return one;
    struct node *tuple = parser_node(p, NODE_TUPLE);
    tuple->first = one;
    if (one && takes_sign(p, ",") && !sees_word(p, "in") && !sees_sign(p, "=")) one->next = items(p, item);
    return tuple;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *dict = parser_node(p, NODE_DICT), **to = &dict->first;
    while (!closes(p)) {
        *to = parse_expression(p);
        to = &(*to)->next;
        parser_wants(p, TOKEN_SIGN, ":");
        *to = parse_expression(p);
        to = &(*to)->next;
        if (!takes_sign(p, ",")) break;
    }
    parser_wants(p, TOKEN_SIGN, "}");
    return dict;
}

/* ---- What operators join ---- */

static struct node *constant(struct parser *p, struct value v)
{
    struct node *n = parser_node(p, NODE_CONSTANT);
    n->constant = v;
    return n;
}

/* Strings that stand side by side are one. */
static struct node *parse_string(struct parser *p)
{
    struct string *s = arena_take(p->arena, sizeof *s);
    size_t bytes = 0, at = 0;
    for (const struct token *t = p->at; t->kind == TOKEN_STRING; t++) bytes += t->text.bytes;
    char *data = s ? arena_take(p->arena, bytes + 1) : NULL;
    struct node *n = constant(p, undefined_value());
    if (!data) return parser_fail(p, "out of memory"), n;
    for (; p->at->kind == TOKEN_STRING; at += p->at++->text.bytes)
        memcpy(data + at, p->at->text.data, p->at->text.bytes);
    *s = (struct string){data, bytes};
    n->constant = (struct value){VALUE_STRING, {.string = s}};
    return n;
}

static struct node *parse_word(struct parser *p)
{
    struct node *n = parser_node(p, NODE_NAME);
    n->name = parser_name(p);
    p->callers += string_is(n->name, "caller");
    bool yes = string_is(n->name, "true") || string_is(n->name, "True");
    bool no = string_is(n->name, "false") || string_is(n->name, "False");
    bool none = string_is(n->name, "none") || string_is(n->name, "None");
    if (yes || no || none) n->kind = NODE_CONSTANT, n->constant = none ? none_value() : bool_value(yes);
    return n;
}

static struct node *parse_primary(struct parser *p)
{
    const struct token *t = p->at;
    struct node *n = NULL;
    if (t->kind == TOKEN_NAME) return parse_word(p);
    if (t->kind == TOKEN_STRING) return parse_string(p);
    if (t->kind == TOKEN_INT || t->kind == TOKEN_FLOAT) {
        n = constant(p, t->kind == TOKEN_INT ? int_value(t->integer) : float_value(t->real));
        p->at++;
    } else if (takes_sign(p, "(")) {
        n = parse_tuple(p, parse_expression);
        parser_wants(p, TOKEN_SIGN, ")");
    } else if (takes_sign(p, "[")) {
        n = parser_node(p, NODE_LIST);
        n->first = items(p, parse_expression);
        parser_wants(p, TOKEN_SIGN, "]");
    } else if (takes_sign(p, "{")) {
        n = parse_dict(p);
    } else {
        struct string s = seen(p);
        parser_fail(p, "%.*s, where a value was expected", s.bytes < 40 ? (int)s.bytes : 40, s.data);
    }
    return n ? n : parser_node(p, NODE_CONSTANT);
}

static struct node *parse_argument(struct parser *p)
{
    bool twice = sees_sign(p, "**"),
         named = p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_SIGN && string_is(p->at[1].text, "=");
    bool spread = takes_sign(p, "*") || takes_sign(p, "**");
    if (!spread && !named) return parse_expression(p);
    struct node *n = parser_node(p, spread ? NODE_SPREAD : NODE_NAMED);
    if (named) n->name = parser_name(p), p->at++;
    else n->name = (struct string){"**", twice ? 2 : 1};
    n->a = parse_expression(p);
    return n;
}

struct node *parse_arguments(struct parser *p)
{
    parser_wants(p, TOKEN_SIGN, "(");
    struct node *first = items(p, parse_argument);
    parser_wants(p, TOKEN_SIGN, ")");
    return first;
}

/* a[b], or a[from:to:step] */
static struct node *parse_item(struct parser *p, struct node *of)
{
    struct node *part[3] = {NULL}, *n;
    int parts = 0;
    bool slice = false;
    for (;; slice = true) {
        if (parts < 3 && !sees_sign(p, ":") && !sees_sign(p, "]")) part[parts] = parse_expression(p);
        parts++;
        if (parts == 3 || !takes_sign(p, ":")) break;
    }
    parser_wants(p, TOKEN_SIGN, "]");
    n = parser_node(p, slice ? NODE_SLICE : NODE_ITEM);
    n->a = of;
    n->b = part[0];
    if (!slice && !part[0]) return parser_fail(p, "[] without a key"), n;
    for (int i = 2; slice && i >= 0; i--) {
        struct node *one = part[i] ? part[i] : constant(p, none_value());
        one->next = n->first;
        n->first = one;
    }
    return n;
}

static struct node *parse_call(struct parser *p, struct node *of)
{
    struct node *n = parser_node(p, NODE_CALL);
    n->a = of;
    n->first = parse_arguments(p);
    return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
    while (!p->failed) {
        struct node *of = n;
        if (takes_sign(p, ".")) {
            bool number = p->at->kind == TOKEN_INT;
            n = parser_node(p, number ? NODE_ITEM : NODE_ATTRIBUTE);
            n->a = of;
            if (number) n->b = parse_primary(p);
            else n->name = parser_name(p);
        } else if (takes_sign(p, "[")) {
            n = parse_item(p, of);
        } else if (sees_sign(p, "(")) {
            n = parse_call(p, of);
        } else {
            break;
        }
    }
    return n;
}

/* ---- Filters and tests: one that there is not fails when it is reached ---- */

struct node *parse_filters(struct parser *p, struct node *of, bool begun)
{
    while (begun || takes_sign(p, "|")) {
        struct node *n = parser_node(p, NODE_FILTER);
        n->a = of;
        n->name = parser_name(p);
        n->callee = filter_find(n->name);
        if (sees_sign(p, "(")) n->first = parse_arguments(p);
        of = n;
        begun = false;
    }
    return of;
}

static bool begins_value(const struct parser *p)
{
    enum token_kind k = p->at->kind;
    if (k == TOKEN_NAME) return !sees_word(p, "else") && !sees_word(p, "or") && !sees_word(p, "and");
    return k == TOKEN_STRING || k == TOKEN_INT || k == TOKEN_FLOAT || sees_sign(p, "[") || sees_sign(p, "{");
}

static struct node *parse_test(struct parser *p, struct node *of)
{
    bool negated = takes_word(p, "not");
    struct node *n = parser_node(p, NODE_TEST);
    n->a = of;
    n->name = parser_name(p);
    n->callee = callee_find(template_tests, n->name);
    if (sees_sign(p, "(")) n->first = parse_arguments(p);
    else if (sees_word(p, "is")) parser_fail(p, "a test of a test");
    else if (begins_value(p)) n->first = parse_postfix(p, parse_primary(p));
    if (!negated) return n;
    struct node *not = parser_node(p, NODE_NOT);
    not ->a = n;
    return not ;
}

static struct node *parse_filtered(struct parser *p, struct node *n)
{
    while (!p->failed) {
        if (sees_sign(p, "|")) n = parse_filters(p, n, false);
        else if (takes_word(p, "is")) n = parse_test(p, n);
        else if (sees_sign(p, "(")) n = parse_call(p, n);
        else break;
    }
    return n;
}

/* ---- Operators ---- */

static struct node *unary(struct parser *p, bool filters)
{
    struct node *n;
    if (!parser_enter(p)) return parser_node(p, NODE_CONSTANT);
    bool minus = sees_sign(p, "-");
    if (takes_sign(p, "-") || takes_sign(p, "+")) {
        n = parser_node(p, minus ? NODE_NEGATIVE : NODE_POSITIVE);
        n->a = unary(p, false);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    p->depth--;
    return filters ? parse_filtered(p, n) : n;
}

static struct node *binary(struct parser *p, struct node *a, struct node *(*right)(struct parser *))
{
    struct node *n = parser_node(p, NODE_BINARY);
    n->name = p->at++->text;
    n->a = a;
    n->b = right(p);
    return n;
}

static struct node *filtered_unary(struct parser *p) { return unary(p, true); }

static struct node *parse_power(struct parser *p)
{
    struct node *n = filtered_unary(p);
    while (sees_sign(p, "**")) n = binary(p, n, filtered_unary);
    return n;
}

static struct node *parse_product(struct parser *p)
{
    struct node *n = parse_power(p);
    while (sees_sign(p, "*") || sees_sign(p, "/") || sees_sign(p, "//") || sees_sign(p, "%"))
        n = binary(p, n, parse_power);
    return n;
}

static struct node *parse_join(struct parser *p)
{
    struct node *n = parse_product(p);
    if (!sees_sign(p, "~")) return n;
    struct node *join = parser_node(p, NODE_JOIN), *last = join->first = n;
    while (takes_sign(p, "~")) last = last->next = parse_product(p);
    return join;
}

static struct node *parse_sum(struct parser *p)
{
    struct node *n = parse_join(p);
    while (sees_sign(p, "+") || sees_sign(p, "-")) n = binary(p, n, parse_join);
    return n;
}

/* A comparison's sign, taken; no bytes: there is none. */
static struct string comparison(struct parser *p)
{
    static const char *const signs[] = {"==", "!=", ">=", "<=", "<", ">"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (takes_sign(p, signs[i])) return (struct string){signs[i], strlen(signs[i])};
    if (takes_word(p, "in")) return (struct string){"in", 2};
    bool not_in = sees_word(p, "not") && p->at[1].kind == TOKEN_NAME && string_is(p->at[1].text, "in");
    if (not_in) p->at += 2;
    return (struct string){"not in", not_in ? 6 : 0};
}

static struct node *parse_comparison(struct parser *p)
{
    struct node *n = parse_sum(p), *all = NULL, **to = NULL;
    for (struct string sign; (sign = comparison(p)).bytes; to = &(*to)->next) {
        if (!all) all = parser_node(p, NODE_COMPARE), all->a = n, to = &all->first;
        *to = parser_node(p, NODE_BINARY);
        (*to)->name = sign;
        (*to)->b = parse_sum(p);
        if (p->failed) break;
    }
    return all ? all : n;
}

static struct node *parse_not(struct parser *p)
{
    if (!sees_word(p, "not")) return parse_comparison(p);
    struct node *n = parser_node(p, NODE_NOT);
    if (!parser_enter(p)) return n;
    p->at++;
    n->a = parse_not(p);
    p->depth--;
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct node *n = parse_not(p);
    while (sees_word(p, "and")) {
        n = binary(p, n, parse_not);
        n->kind = NODE_AND;
    }
    return n;
}

struct node *parse_condition_free(struct parser *p)
{
    if (!parser_enter(p)) return parser_node(p, NODE_CONSTANT);
    struct node *n = parse_and(p);
    while (sees_word(p, "or")) {
        n = binary(p, n, parse_and);
        n->kind = NODE_OR;
    }
    p->depth--;
    return n;
}

struct node *parse_expression(struct parser *p)
{
    struct node *n = parse_condition_free(p);
    while (takes_word(p, "if")) {
        struct node *choice = parser_node(p, NODE_IF_ELSE);
        choice->a = n;
        choice->b = parse_condition_free(p);
        if (takes_word(p, "else")) {
            if (!parser_enter(p)) break;
            choice->c = parse_expression(p);
            p->depth--;
        }
        n = choice;
    }
    return n;
}
