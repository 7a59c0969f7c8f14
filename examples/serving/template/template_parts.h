/*
 * template_parts.h -- values, tokens and trees of templates, for this folder alone.
 */
#ifndef TEMPLATE_PARTS_H
#define TEMPLATE_PARTS_H

#include <stdint.h>

#include "plain.h"
#include "template.h"
#include "unicode.h"

/* ---- Memory that is freed at once ---- */

struct arena {
    struct arena_block *last;
    size_t bytes, most; /* in all; no more than this */
};

/* Zeroed; NULL if there is no memory, or `most` is reached. */
void *arena_take(struct arena *a, size_t bytes);
void arena_free(struct arena *a);

/* ---- Values ---- */

enum value_kind {
    VALUE_UNDEFINED, /* its string is the name that was not there, or NULL */
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_DICT,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION, /* of the template's globals */
    VALUE_METHOD
};

struct string { /* UTF-8; may have NUL in it */
    const char *data;
    size_t bytes;
};

struct value {
    enum value_kind kind;
    union {
        int64_t integer; /* of BOOL, too */
        double real;
        const struct string *string;
        struct list *list;
        struct dict *dict;
        struct loop *loop;
        const struct macro *macro;
        const struct function *function;
        const struct method *method;
    } is;
};

enum list_kind { LIST_PLAIN, LIST_TUPLE, LIST_GENERATOR /* true even if empty, and of no length */ };

struct list {
    enum list_kind kind;
    size_t count, room;
    struct value *of;
};

struct entry {
    struct value key, value;
};

struct dict { /* in order */
    bool namespace;
    size_t count, room;
    struct entry *of;
};

struct loop {
    const struct list *items;
    size_t at;
    struct value *changed;
};

struct method {
    struct value self;
    const struct callee *of;
};

/* ---- Tokens ---- */

enum token_kind {
    TOKEN_END,
    TOKEN_TEXT,
    TOKEN_BLOCK,     /* {% */
    TOKEN_BLOCK_END, /* %} */
    TOKEN_SHOW,      /* {{ */
    TOKEN_SHOW_END,  /* }} */
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_SIGN /* an operator or a bracket, its text */
};

struct token {
    enum token_kind kind;
    int line;
    struct string text; /* of a string what it stands for */
    int64_t integer;
    double real;
};

struct tokens {
    struct token *of;
    size_t count, room;
};

/* The last one is TOKEN_END. What they point to lies in the arena. */
bool template_lex(const char *source, size_t bytes, struct arena *a, struct tokens *out, struct fault *f);

/* ---- Trees ---- */

enum node_kind {
    /* Expressions. a, b, c: operands; first: a list of them. */
    NODE_CONSTANT,
    NODE_NAME,
    NODE_LIST,  /* first */
    NODE_TUPLE, /* first */
    NODE_DICT,  /* first: key, value, key, ... */
    NODE_NOT,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_AND,
    NODE_OR,
    NODE_IF_ELSE,   /* a if b else c, which may be NULL */
    NODE_BINARY,    /* name: the sign */
    NODE_COMPARE,   /* a, first: NODE_BINARY with name and b alone */
    NODE_JOIN,      /* first ~ ... */
    NODE_ATTRIBUTE, /* a.name */
    NODE_ITEM,      /* a[b] */
    NODE_SLICE,     /* a[first: three, NODE_CONSTANT undefined where there is none] */
    NODE_CALL,      /* a(first ...) */
    NODE_NAMED,     /* name=a, of a call */
    NODE_SPREAD,    /* *a, or with name "**" **a, of a call */
    NODE_FILTER,    /* a | name(first ...); a may be NULL: the block's text */
    NODE_TEST,      /* a is name(first ...) */
    /* Statements. */
    NODE_TEXT,    /* constant */
    NODE_SHOW,    /* {{ a }} */
    NODE_IF,      /* a, body, c: else or elif, or NULL */
    NODE_FOR,     /* a: target, b: items, c: condition or NULL, body, otherwise */
    NODE_SET,     /* a: target, b: value */
    NODE_CAPTURE, /* a: target, body, b: filters of its text or NULL */
    NODE_MACRO, /* name, first: NODE_NAMED with their defaults or NULL, body, constant: if it says `caller` */
    NODE_CALLS, /* {% call a %}, b: NODE_MACRO of the body */
    NODE_FILTERED, /* {% filter b %} body */
    NODE_WITH,     /* first: NODE_SET, body */
    NODE_BODY,     /* body alone */
    NODE_BREAK,
    NODE_CONTINUE
};

struct node {
    enum node_kind kind;
    int line;
    struct node *a, *b, *c, *first, *body, *otherwise, *next;
    struct string name;
    struct value constant;
    const struct callee *callee; /* of a filter or a test */
};

struct template
{
    struct arena arena;
    struct node *body;
};

/* Where the parser is. */
struct parser {
    const struct token *at;
    struct arena *arena;
    struct fault *fault;
    int depth, loops, callers; /* callers: how often `caller` was named */
    bool failed;
    struct node nothing; /* what there is once memory has run out */
};

bool parser_fail(struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct node *parser_node(struct parser *p, enum node_kind kind);
bool parser_sees(const struct parser *p, enum token_kind kind, const char *text);
bool parser_takes(struct parser *p, enum token_kind kind, const char *text); /* goes on if it is that */
bool parser_wants(struct parser *p, enum token_kind kind, const char *text);
struct string parser_name(struct parser *p);
/* One level more, which whoever goes down counts off again (depth--); false: there are too many. */
bool parser_enter(struct parser *p);

/* expression.c */
struct node *parse_expression(struct parser *p);
struct node *parse_condition_free(struct parser *p); /* without `if` and `else` */
struct node *parse_tuple(struct parser *p, struct node *(*item)(struct parser *));
struct node *parse_filters(struct parser *p, struct node *of, bool begun);
struct node *parse_arguments(struct parser *p);
/* statement.c: what stands up to one of these words, which is not taken. */
struct node *parse_body(struct parser *p, const char *ends);

/* ---- A run ---- */

struct variable {
    struct string name;
    struct value value;
    struct variable *next;
};

struct scope {
    struct scope *up;
    struct variable *first;
};

enum leaving { LEAVING_NOT, LEAVING_BREAK, LEAVING_CONTINUE };

struct run {
    struct arena arena;
    struct fault *fault;
    struct text *out;
    struct scope *scope;
    const struct deadline *deadline;
    size_t written;       /* bytes, of macros and blocks, too */
    int64_t steps, asked; /* asked: at how many the deadline was asked last */
    int line, depth;
    enum leaving leaving;
    bool failed;
    int why; /* it failed: enum refused */
};

struct macro {
    const struct node *node;
    struct scope *scope; /* where it was defined */
};

/* A line, with the template's line in front; false. */
bool run_fail(struct run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts steps; false if there are too many, or the deadline has passed. Whatever costs time counts: values
 * count what is done to them, callee_run what it hands to a filter, method, test or function. */
bool run_work(struct run *r, size_t steps);
/* The same for a text that is gone through, 64 bytes of which are a step. */
bool run_read(struct run *r, size_t bytes);
bool run_enter(struct run *r);
void run_leave(struct run *r);
void run_write(struct run *r, const char *text, size_t bytes);
void run_body(struct run *r, const struct node *body);
/* What a body writes, as a value. */
struct value run_captured(struct run *r, const struct node *body);

struct scope *scope_push(struct run *r);
void scope_set(struct run *r, struct scope *s, struct string name, struct value v);
const struct value *scope_find(struct run *r, struct string name);
void run_assign(struct run *r, const struct node *target, struct value v);

struct value evaluate(struct run *r, const struct node *n);
struct value macro_call(struct run *r, const struct macro *m, const struct list *args,
                        const struct dict *named);

/* ---- Values in a run ---- */

struct value undefined_value(void);
struct value none_value(void);
struct value bool_value(bool b);
struct value int_value(int64_t i);
struct value float_value(double x);
struct value string_value(struct run *r, const char *data, size_t bytes); /* copies */
struct value text_value(struct run *r, struct text *t);                   /* frees the text */
struct value list_value(struct run *r, enum list_kind kind);
struct value dict_value(struct run *r);
struct value json_value(struct run *r, const json_t *v);
void list_add(struct run *r, struct list *l, struct value v);
void dict_set(struct run *r, struct dict *d, struct value key, struct value v);
const struct value *dict_get(struct run *r, const struct dict *d, struct value key);
const struct value *dict_named(struct run *r, const struct dict *d, const char *name);

const char *kind_name(struct value v);
bool value_true(struct value v);
bool value_number(struct value v, double *x);
bool value_integer(struct value v); /* INT or BOOL */
bool value_is(struct value v, const char *text);
bool value_equal(struct run *r, struct value a, struct value b);
/* -1, 0, 1; fails where Python has no order. */
int value_order(struct run *r, struct value a, struct value b);
bool value_contains(struct run *r, struct value all, struct value one);
/* What Python's str() says, its repr(), or JSON; an indent < 0: in one line. */
void value_write(struct run *r, struct text *t, struct value v);
void value_repr(struct run *r, struct text *t, struct value v);
struct json_style {
    int indent;
    bool ascii, sorted;
    const struct string *between, *colon; /* items, key and value; NULL: as json.dumps has them */
};
void value_json(struct run *r, struct text *t, struct value v, const struct json_style *s, int depth);
struct value value_string(struct run *r, struct value v);
/* What a loop goes through: of a string its characters, of a dict its keys. NULL: it fails. */
const struct list *value_items(struct run *r, struct value v);
struct value value_attribute(struct run *r, struct value v, struct string name);
struct value value_item(struct run *r, struct value v, struct value key);
struct value value_slice(struct run *r, struct value v, const struct value *three);

/* format.c: "%s" by values in order or by name, and "{}". */
struct value format_percent(struct run *r, struct string format, const struct list *args,
                            const struct dict *named);
struct value format_braces(struct run *r, struct string format, const struct list *args,
                           const struct dict *named);

size_t string_length(struct string s);
bool string_equal(struct string a, struct string b);
bool string_is(struct string s, const char *text);
/* Without white space at its ends. */
struct string string_strip(struct string s, bool left, bool right);
/* Bytes of the first, or the last, character of what is not empty. */
size_t string_first(struct string s);
size_t string_last(struct string s);
bool python_space(uint32_t c);

/* ---- What is called by name ---- */

enum { MOST_PARAMETERS = 6 };

/* Arguments by the parameters' names; those that were not given are NULL. `rest` are all of them where the
 * parameters are "*". */
struct call {
    struct run *run;
    struct value self;
    const struct value *at[MOST_PARAMETERS];
    const struct list *rest;
    const struct dict *named;
};

/* What a call counts before it begins. What is not said is everything, so that nothing is forgotten: for
 * callees that go once through what they are given. One that does more counts the rest itself. */
enum cost {
    COST_ALL,  /* texts and items of the value that it is called of, and of its arguments */
    COST_REST, /* those of its arguments alone */
    COST_NONE  /* it looks at none, or calls what counts them */
};

struct callee {
    const char *name, *parameters; /* with blanks between */
    struct value (*call)(struct call *c);
    enum cost cost;
};

struct function {
    struct callee callee;
};

struct value callee_run(struct run *r, const struct callee *of, struct value self, const struct list *args,
                        const struct dict *named);
const struct callee *callee_find(const struct callee *all, struct string name);
int64_t call_int(struct call *c, int parameter, int64_t otherwise);
bool call_flag(struct call *c, int parameter, bool otherwise);
/* NULL, and a failure, if it is no string; NULL alone if it is absent or none. */
const struct string *call_string(struct call *c, int parameter);

/* Each ends with one whose name is NULL. */
extern const struct callee template_filters[], template_sequence_filters[], template_tests[];
extern const struct callee template_string_methods[], template_dict_methods[], template_list_methods[];
extern const struct callee template_loop_methods[];
extern const struct function template_functions[];
const struct callee *filter_find(struct string name);
const struct callee *method_find(struct value self, struct string name);

#endif
