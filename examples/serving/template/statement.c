/*
 * statement.c -- text and tags as a tree.
 */
#include <stdlib.h>
#include <string.h>

#include "template_parts.h"

enum { MOST_OF_MACRO = 100 }; /* parameters */

static struct node *statement(struct parser *p);

static bool takes_word(struct parser *p, const char *word) { return parser_takes(p, TOKEN_NAME, word); }
static void end_tag(struct parser *p) { parser_wants(p, TOKEN_BLOCK_END, NULL); }

/* ---- Bodies ---- */

/* Whether a name is one of some words with blanks between. */
static bool among(struct string name, const char *words)
{
    for (const char *w = words; *w; w += strcspn(w, " "), w += *w == ' ')
        if (strcspn(w, " ") == name.bytes && !memcmp(w, name.data, name.bytes)) return true;
    return false;
}

static struct node *text_node(struct parser *p)
{
    struct node *n = parser_node(p, NODE_TEXT);
    n->name = p->at++->text;
    return n;
}

static struct node *show_node(struct parser *p)
{
    struct node *n = parser_node(p, NODE_SHOW);
    p->at++;
    n->a = parse_tuple(p, parse_expression);
    parser_wants(p, TOKEN_SHOW_END, NULL);
    return n;
}

struct node *parse_body(struct parser *p, const char *ends)
{
    struct node *first = NULL, **to = &first;
    if (!parser_enter(p)) return NULL;
    while (!p->failed && p->at->kind != TOKEN_END) {
        if (p->at->kind == TOKEN_TEXT) *to = text_node(p);
        else if (p->at->kind == TOKEN_SHOW) *to = show_node(p);
        else {
            p->at++; /* {% */
            if (p->at->kind == TOKEN_NAME && among(p->at->text, ends)) return p->depth--, first;
            *to = statement(p);
        }
        to = &(*to)->next;
    }
    if (*ends) parser_fail(p, "the template ends before '%s'", ends);
    p->depth--;
    return first;
}

/* A body and the tag that ends it. */
static struct node *ended_body(struct parser *p, const char *end)
{
    struct node *body = parse_body(p, end);
    parser_wants(p, TOKEN_NAME, end);
    end_tag(p);
    return body;
}

/* ---- Statements, behind their word ---- */

static struct node *parse_if(struct parser *p)
{
    struct node *n = parser_node(p, NODE_IF), *at = n;
    for (;;) {
        at->a = parse_tuple(p, parse_condition_free);
        if (parser_sees(p, TOKEN_NAME, "if")) parser_fail(p, "a condition with an if wants parentheses");
        end_tag(p);
        at->body = parse_body(p, "elif else endif");
        if (!takes_word(p, "elif")) break;
        at = at->c = parser_node(p, NODE_IF);
    }
    if (takes_word(p, "else")) {
        end_tag(p);
        at->otherwise = parse_body(p, "endif");
    }
    parser_wants(p, TOKEN_NAME, "endif");
    end_tag(p);
    return n;
}

static struct node *target_item(struct parser *p)
{
    struct node *n = parser_node(p, NODE_NAME);
    if (parser_takes(p, TOKEN_SIGN, "(")) {
        if (!parser_enter(p)) return n;
        n = parse_tuple(p, target_item);
        parser_wants(p, TOKEN_SIGN, ")");
        p->depth--;
        return n;
    }
    n->name = parser_name(p);
    return n;
}

static struct node *parse_for(struct parser *p)
{
    struct node *n = parser_node(p, NODE_FOR);
    n->a = parse_tuple(p, target_item);
    parser_wants(p, TOKEN_NAME, "in");
    n->b = parse_tuple(p, parse_condition_free);
    if (takes_word(p, "if")) n->c = parse_expression(p);
    if (parser_sees(p, TOKEN_NAME, "recursive")) parser_fail(p, "recursive loops are not supported");
    end_tag(p);
    p->loops++;
    n->body = parse_body(p, "else endfor");
    p->loops--;
    if (takes_word(p, "else")) {
        end_tag(p);
        n->otherwise = parse_body(p, "endfor");
    }
    parser_wants(p, TOKEN_NAME, "endfor");
    end_tag(p);
    return n;
}

/* A name, an attribute of a namespace, or several names. */
static struct node *assigned(struct parser *p)
{
    struct node *n = parse_tuple(p, target_item);
    if (n->kind != NODE_NAME || !parser_takes(p, TOKEN_SIGN, ".")) return n;
    struct node *attribute = parser_node(p, NODE_ATTRIBUTE);
    attribute->a = n;
    attribute->name = parser_name(p);
    return attribute;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = parser_node(p, NODE_SET);
    n->a = assigned(p);
    if (parser_takes(p, TOKEN_SIGN, "=")) {
        n->b = parse_tuple(p, parse_expression);
        end_tag(p);
        return n;
    }
    if (parser_sees(p, TOKEN_SIGN, "|")) n->b = parse_filters(p, NULL, false);
    end_tag(p);
    n->kind = NODE_CAPTURE;
    n->body = ended_body(p, "endset");
    return n;
}

/* A name is one parameter's, of which there are few enough to compare them all. */
static void check_parameter(struct parser *p, const struct node *first, const struct node *last)
{
    int count = 0;
    for (const struct node *n = first; n != last && !p->failed; n = n->next, count++)
        if (string_equal(n->name, last->name)) parser_fail(p, "two parameters of one name");
    if (count >= MOST_OF_MACRO) parser_fail(p, "more than %d parameters", MOST_OF_MACRO);
}

/* Behind the bracket that opens them: names, and what they are if they are not given. */
static struct node *parameters(struct parser *p)
{
    struct node *first = NULL, **to = &first, *before = NULL;
    while (!p->failed && !parser_sees(p, TOKEN_SIGN, ")")) {
        *to = parser_node(p, NODE_NAMED);
        (*to)->name = parser_name(p);
        check_parameter(p, first, *to);
        if (parser_takes(p, TOKEN_SIGN, "=")) (*to)->a = parse_expression(p);
        else if (before && before->a) parser_fail(p, "a parameter without a default behind one with it");
        before = *to;
        to = &(*to)->next;
        if (!parser_takes(p, TOKEN_SIGN, ",")) break;
    }
    parser_wants(p, TOKEN_SIGN, ")");
    return first;
}

/* The body of a macro, or of what is called as one: loops around it are not its own. */
static void macro_body(struct parser *p, struct node *macro, const char *end)
{
    int loops = p->loops, callers = p->callers;
    end_tag(p);
    p->loops = 0;
    macro->body = ended_body(p, end);
    macro->constant = bool_value(p->callers > callers);
    p->loops = loops;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = parser_node(p, NODE_MACRO);
    n->name = parser_name(p);
    parser_wants(p, TOKEN_SIGN, "(");
    n->first = parameters(p);
    macro_body(p, n, "endmacro");
    return n;
}

/* {% call(x, y=1) m(...) %}: the body is what caller(x, y) writes. */
static struct node *parse_call(struct parser *p)
{
    struct node *n = parser_node(p, NODE_CALLS);
    n->b = parser_node(p, NODE_MACRO);
    n->b->name = (struct string){"caller", 6};
    if (parser_takes(p, TOKEN_SIGN, "(")) n->b->first = parameters(p);
    n->a = parse_expression(p);
    if (!p->failed && n->a->kind != NODE_CALL) parser_fail(p, "call of what is no call");
    macro_body(p, n->b, "endcall");
    return n;
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = parser_node(p, NODE_FILTERED);
    n->b = parse_filters(p, NULL, true);
    end_tag(p);
    n->body = ended_body(p, "endfilter");
    return n;
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = parser_node(p, NODE_WITH), **to = &n->first;
    while (p->at->kind == TOKEN_NAME && !p->failed) {
        *to = parser_node(p, NODE_SET);
        (*to)->a = target_item(p);
        parser_wants(p, TOKEN_SIGN, "=");
        (*to)->b = parse_expression(p);
        to = &(*to)->next;
        if (!parser_takes(p, TOKEN_SIGN, ",")) break;
    }
    end_tag(p);
    n->body = ended_body(p, "endwith");
    return n;
}

/* {% generation %} marks what a model has written, for training. */
static struct node *parse_generation(struct parser *p)
{
    struct node *n = parser_node(p, NODE_BODY);
    end_tag(p);
    n->body = ended_body(p, "endgeneration");
    return n;
}

static struct node *parse_break(struct parser *p)
{
    struct node *n = parser_node(p, NODE_BREAK);
    if (!p->loops) parser_fail(p, "break outside of a loop");
    end_tag(p);
    return n;
}

static struct node *parse_continue(struct parser *p)
{
    struct node *n = parser_node(p, NODE_CONTINUE);
    if (!p->loops) parser_fail(p, "continue outside of a loop");
    end_tag(p);
    return n;
}

static struct node *statement(struct parser *p)
{
    static const struct {
        const char *word;
        struct node *(*parse)(struct parser *p);
    } all[] = {{"if", parse_if},       {"for", parse_for},
               {"set", parse_set},     {"macro", parse_macro},
               {"call", parse_call},   {"filter", parse_filter_block},
               {"with", parse_with},   {"generation", parse_generation},
               {"break", parse_break}, {"continue", parse_continue}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (takes_word(p, all[i].word)) return all[i].parse(p);
    struct string name = p->at->text;
    parser_fail(p, "tag '%.*s' is not supported here", name.bytes < 40 ? (int)name.bytes : 40,
                name.bytes ? name.data : "");
    return parser_node(p, NODE_BODY);
}

/* ---- A template ---- */

struct template *template_parse(const char *source, size_t bytes, struct fault *f)
{
    struct tokens tokens = {0};
    struct fault why = {{0}};
    struct template *t = calloc(1, sizeof *t);
    if (!t) return fault_set(f, "chat template: out of memory"), NULL;
    t->arena.most = TEMPLATE_MEMORY;
    struct parser p = {.arena = &t->arena, .fault = &why};
    bool good =
        bytes <= TEMPLATE_SOURCE || fault_set(&why, "%zu bytes are more than %d", bytes, TEMPLATE_SOURCE);
    good = good && (unicode_valid(source, bytes) || fault_set(&why, "it is no UTF-8"));
    good = good && template_lex(source, bytes, &t->arena, &tokens, &why);
    p.at = tokens.of;
    if (good) t->body = parse_body(&p, "");
    free(tokens.of);
    if (good && !p.failed) return t;
    fault_set(f, "chat template: %.280s", why.text);
    template_free(t);
    return NULL;
}

void template_free(struct template *t)
{
    if (!t) return;
    arena_free(&t->arena);
    free(t);
}
