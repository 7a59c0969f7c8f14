/*
 * eval.c -- runs expressions.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "template_parts.h"

static struct value evaluate_any(struct run *r, const struct node *n);

static struct value fail(struct run *r, const char *sign, struct value a, struct value b)
{
    struct value u = a.kind == VALUE_UNDEFINED ? a : b;
    if (u.kind == VALUE_UNDEFINED && u.is.string)
        run_fail(r, "'%.*s' is undefined", (int)(u.is.string->bytes < 40 ? u.is.string->bytes : 40),
                 u.is.string->data);
    else run_fail(r, "%s %s %s", kind_name(a), sign, kind_name(b));
    return undefined_value();
}

/* ---- Sums and products ---- */

static struct value joined(struct run *r, const struct string *a, const struct string *b)
{
    struct text t = {0};
    if (!run_read(r, a->bytes + b->bytes)) return undefined_value();
    text_add(&t, a->data, a->bytes);
    text_add(&t, b->data, b->bytes);
    return text_value(r, &t);
}

static struct value lists_joined(struct run *r, const struct list *a, const struct list *b)
{
    struct value out = list_value(r, a->kind);
    for (size_t i = 0; i < a->count && !r->failed; i++) list_add(r, out.is.list, a->of[i]);
    for (size_t i = 0; i < b->count && !r->failed; i++) list_add(r, out.is.list, b->of[i]);
    return out;
}

static struct value repeated(struct run *r, struct value v, int64_t times)
{
    struct value out = v.kind == VALUE_LIST ? list_value(r, v.is.list->kind) : undefined_value();
    struct text t = {0};
    size_t bytes = v.kind == VALUE_STRING ? v.is.string->bytes : 0;
    if (times > 0 && bytes > (size_t)TEMPLATE_OUTPUT / (size_t)times) {
        run_fail(r, "a text of more than %d bytes", TEMPLATE_OUTPUT);
        return out;
    }
    bool nothing = v.kind == VALUE_STRING ? !bytes : !v.is.list->count;
    for (int64_t i = 0; i < times && !nothing && run_read(r, bytes); i++)
        if (v.kind == VALUE_STRING) text_add(&t, v.is.string->data, v.is.string->bytes);
        else
            for (size_t k = 0; k < v.is.list->count && !r->failed; k++)
                list_add(r, out.is.list, v.is.list->of[k]);
    return v.kind == VALUE_STRING ? text_value(r, &t) : out;
}

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }

/* By squares; true: the result does not fit. b is not negative. */
static bool power(int64_t a, int64_t b, int64_t *out)
{
    bool over = false;
    for (*out = 1; b && !over; b >>= 1) {
        if (b & 1) over = __builtin_mul_overflow(*out, a, out);
        if (b > 1) over |= __builtin_mul_overflow(a, a, &a);
    }
    return over;
}

/* INT by INT; false: the result does not fit. */
static bool integers(struct run *r, struct string sign, int64_t a, int64_t b, int64_t *out)
{
    char c = *sign.data;
    bool over = false;
    if ((c == '/' || c == '%') && (!b || (a == INT64_MIN && b == -1)))
        return run_fail(r, b ? "a number that is too large" : "a division by 0");
    if (c == '+') over = __builtin_add_overflow(a, b, out);
    else if (c == '-') over = __builtin_sub_overflow(a, b, out);
    else if (c == '/') *out = floor_divide(a, b);
    else if (c == '%') *out = a - floor_divide(a, b) * b;
    else if (sign.bytes == 1) over = __builtin_mul_overflow(a, b, out);
    else over = power(a, b, out);
    return !over || run_fail(r, "a number that is too large");
}

static struct value numbers(struct run *r, struct string sign, double x, double y)
{
    char c = *sign.data;
    bool divides = c == '/' || c == '%';
    if (divides && y == 0) return run_fail(r, "a division by 0"), undefined_value();
    if (c == '+') return float_value(x + y);
    if (c == '-') return float_value(x - y);
    if (c == '%') return float_value(x - floor(x / y) * y);
    if (c == '/') return float_value(sign.bytes == 2 ? floor(x / y) : x / y);
    return float_value(sign.bytes == 2 ? pow(x, y) : x * y);
}

/* "%s" % x, of a tuple its items, and of a dict its values by name. */
static struct value formatted(struct run *r, struct string format, struct value v)
{
    struct list one = {.kind = LIST_TUPLE, .count = 1, .of = &v};
    const struct dict none = {0};
    const struct dict *named = v.kind == VALUE_DICT ? v.is.dict : &none;
    bool tuple = v.kind == VALUE_LIST && v.is.list->kind == LIST_TUPLE;
    return format_percent(r, format, tuple ? v.is.list : &one, named);
}

static struct value calculated(struct run *r, struct string sign, struct value a, struct value b)
{
    double x, y;
    int64_t whole = 0;
    bool times = string_is(sign, "*"), real = string_is(sign, "/");
    if (value_number(a, &x) && value_number(b, &y)) {
        bool power = string_is(sign, "**") && value_integer(b) && b.is.integer < 0;
        if (!value_integer(a) || !value_integer(b) || real || power) return numbers(r, sign, x, y);
        return integers(r, sign, a.is.integer, b.is.integer, &whole) ? int_value(whole) : undefined_value();
    }
    if (string_is(sign, "+") && a.kind == VALUE_STRING && b.kind == VALUE_STRING)
        return joined(r, a.is.string, b.is.string);
    if (string_is(sign, "+") && a.kind == VALUE_LIST && b.kind == VALUE_LIST &&
        a.is.list->kind == b.is.list->kind)
        return lists_joined(r, a.is.list, b.is.list);
    if (string_is(sign, "%") && a.kind == VALUE_STRING) return formatted(r, *a.is.string, b);
    if (times && value_integer(a)) { /* 3 * "-" is "-" * 3 */
        struct value other = a;
        a = b;
        b = other;
    }
    if (times && value_integer(b) && (a.kind == VALUE_STRING || a.kind == VALUE_LIST))
        return repeated(r, a, b.is.integer);
    return fail(r, (char[3]){sign.data[0], sign.bytes == 2 ? sign.data[1] : 0}, a, b);
}

static struct value negative(struct run *r, const struct node *n)
{
    struct value v = evaluate(r, n->a);
    int64_t sign = n->kind == NODE_NEGATIVE ? -1 : 1;
    if (v.kind == VALUE_FLOAT) return float_value((double)sign * v.is.real);
    if (value_integer(v) && v.is.integer != INT64_MIN) return int_value(sign * v.is.integer);
    return fail(r, "with a sign,", v, v);
}

/* ---- Comparisons ---- */

static bool compared(struct run *r, struct string sign, struct value a, struct value b)
{
    if (string_is(sign, "==")) return value_equal(r, a, b);
    if (string_is(sign, "!=")) return !value_equal(r, a, b);
    if (string_is(sign, "in")) return value_contains(r, b, a);
    if (string_is(sign, "not in")) return !value_contains(r, b, a);
    int order = value_order(r, a, b);
    if (sign.bytes == 2 && order == 0) return true;
    return *sign.data == '<' ? order < 0 : order > 0;
}

static struct value comparison(struct run *r, const struct node *n)
{
    struct value a = evaluate(r, n->a);
    for (const struct node *one = n->first; one && !r->failed; one = one->next) {
        struct value b = evaluate(r, one->b);
        if (r->failed || !compared(r, one->name, a, b)) return bool_value(false);
        a = b;
    }
    return bool_value(true);
}

/* ---- Lists, texts, names ---- */

static struct value listed(struct run *r, const struct node *n)
{
    struct value out = list_value(r, n->kind == NODE_TUPLE ? LIST_TUPLE : LIST_PLAIN);
    for (const struct node *one = n->first; one && !r->failed; one = one->next)
        list_add(r, out.is.list, evaluate(r, one));
    return out;
}

static struct value keyed(struct run *r, const struct node *n)
{
    struct value out = dict_value(r);
    for (const struct node *one = n->first; one && !r->failed; one = one->next->next) {
        struct value key = evaluate(r, one), v = evaluate(r, one->next);
        if (!r->failed) dict_set(r, out.is.dict, key, v);
    }
    return out;
}

static struct value join_all(struct run *r, const struct node *n)
{
    struct value parts = listed(r, n); /* before the text begins, of which nested ones would keep many */
    struct text t = {0};
    for (size_t i = 0; !r->failed && i < parts.is.list->count; i++) {
        value_write(r, &t, parts.is.list->of[i]);
        if (t.size > TEMPLATE_OUTPUT) run_fail(r, "a text of more than %d bytes", TEMPLATE_OUTPUT);
    }
    return text_value(r, &t);
}

static struct value named(struct run *r, const struct node *n)
{
    const struct value *v = scope_find(r, n->name);
    struct value out = undefined_value();
    out.is.string = &n->name;
    return v ? *v : out;
}

static struct value sliced(struct run *r, const struct node *n)
{
    struct value three[3], v = evaluate(r, n->a);
    const struct node *one = n->first;
    for (int i = 0; i < 3; i++, one = one->next) three[i] = evaluate(r, one);
    return r->failed ? undefined_value() : value_slice(r, v, three);
}

static struct value part(struct run *r, const struct node *n)
{
    struct value v = evaluate(r, n->a);
    if (r->failed) return v;
    if (n->kind == NODE_ATTRIBUTE) return value_attribute(r, v, n->name);
    struct value key = evaluate(r, n->b);
    return r->failed ? key : value_item(r, v, key);
}

/* ---- Calls ---- */

static void spread(struct run *r, const struct node *n, struct list *args, struct dict *with)
{
    struct value v = evaluate(r, n->a);
    if (n->name.bytes == 2 && v.kind == VALUE_DICT) {
        for (size_t i = 0; i < v.is.dict->count && !r->failed; i++)
            dict_set(r, with, v.is.dict->of[i].key, v.is.dict->of[i].value);
        return;
    }
    const struct list *all = n->name.bytes == 1 ? value_items(r, v) : NULL;
    if (!all) run_fail(r, "** of %s", kind_name(v));
    for (size_t i = 0; !r->failed && i < all->count; i++) list_add(r, args, all->of[i]);
}

/* Arguments in order, and those with names. */
static bool arguments(struct run *r, const struct node *first, struct value *args, struct value *with)
{
    *args = list_value(r, LIST_PLAIN);
    *with = dict_value(r);
    for (const struct node *n = first; n && !r->failed; n = n->next) {
        if (n->kind == NODE_SPREAD) spread(r, n, args->is.list, with->is.dict);
        else if (n->kind == NODE_NAMED)
            dict_set(r, with->is.dict, string_value(r, n->name.data, n->name.bytes), evaluate(r, n->a));
        else list_add(r, args->is.list, evaluate(r, n));
    }
    return !r->failed;
}

static struct value called(struct run *r, const struct node *n)
{
    struct value args, with, of = evaluate(r, n->a);
    if (r->failed || !arguments(r, n->first, &args, &with)) return undefined_value();
    r->line = n->line;
    switch (of.kind) {
    case VALUE_MACRO: return macro_call(r, of.is.macro, args.is.list, with.is.dict);
    case VALUE_FUNCTION:
        return callee_run(r, &of.is.function->callee, undefined_value(), args.is.list, with.is.dict);
    case VALUE_METHOD: return callee_run(r, of.is.method->of, of.is.method->self, args.is.list, with.is.dict);
    case VALUE_UNDEFINED: return fail(r, "called with", of, of);
    default: return run_fail(r, "%s is called", kind_name(of)), undefined_value();
    }
}

static struct value of_callee(struct run *r, const struct node *n)
{
    const struct node text = {.kind = NODE_NAME, .name = {" text", 5}, .line = n->line};
    struct value args, with, self = evaluate(r, n->a ? n->a : &text);
    if (!n->callee && !r->failed)
        run_fail(r, "there is no %s '%.*s'", n->kind == NODE_TEST ? "test" : "filter",
                 n->name.bytes < 40 ? (int)n->name.bytes : 40, n->name.data);
    if (r->failed || !arguments(r, n->first, &args, &with)) return undefined_value();
    r->line = n->line;
    return callee_run(r, n->callee, self, args.is.list, with.is.dict);
}

/* ---- All ---- */

static struct value either(struct run *r, const struct node *n)
{
    struct value a = evaluate(r, n->a);
    if (r->failed || value_true(a) == (n->kind == NODE_OR)) return a;
    return evaluate(r, n->b);
}

static struct value chosen(struct run *r, const struct node *n)
{
    if (value_true(evaluate(r, n->b))) return evaluate(r, n->a);
    return n->c ? evaluate(r, n->c) : undefined_value();
}

static struct value binary(struct run *r, const struct node *n)
{
    struct value a = evaluate(r, n->a), b = evaluate(r, n->b);
    return r->failed ? undefined_value() : calculated(r, n->name, a, b);
}

static struct value evaluate_any(struct run *r, const struct node *n)
{
    switch (n->kind) {
    case NODE_CONSTANT: return n->constant;
    case NODE_NAME: return named(r, n);
    case NODE_LIST:
    case NODE_TUPLE: return listed(r, n);
    case NODE_DICT: return keyed(r, n);
    case NODE_NOT: return bool_value(!value_true(evaluate(r, n->a)));
    case NODE_NEGATIVE:
    case NODE_POSITIVE: return negative(r, n);
    case NODE_AND:
    case NODE_OR: return either(r, n);
    case NODE_IF_ELSE: return chosen(r, n);
    case NODE_BINARY: return binary(r, n);
    case NODE_COMPARE: return comparison(r, n);
    case NODE_JOIN: return join_all(r, n);
    case NODE_ATTRIBUTE:
    case NODE_ITEM: return part(r, n);
    case NODE_SLICE: return sliced(r, n);
    case NODE_CALL: return called(r, n);
    case NODE_FILTER:
    case NODE_TEST: return of_callee(r, n);
    default: return run_fail(r, "an expression that is none"), undefined_value();
    }
}

struct value evaluate(struct run *r, const struct node *n)
{
    struct value v = undefined_value();
    if (!n || !run_work(r, 1) || !run_enter(r)) return v;
    r->line = n->line;
    v = evaluate_any(r, n);
    run_leave(r);
    return r->failed ? undefined_value() : v;
}
