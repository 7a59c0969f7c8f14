/*
 * call.c -- what templates call by name: arguments by their parameters, global functions, tests.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "template_parts.h"

/* ---- Arguments ---- */

static struct string word_at(const char *words)
{
    words += strspn(words, " ");
    return (struct string){words, strcspn(words, " ")};
}

/* Fills c->at by place, then by name; false, and a failure, if one is too many or not known. */
static bool bind(struct call *c, const struct callee *of, const struct list *args, const struct dict *named)
{
    size_t i = 0, taken = 0;
    struct string name = word_at(of->parameters);
    for (; name.bytes; name = word_at(name.data + name.bytes), i++) {
        struct value key = {VALUE_STRING, {.string = &name}};
        const struct value *given = i < args->count ? &args->of[i] : dict_get(c->run, named, key);
        taken += i >= args->count && given;
        c->at[i] = given;
    }
    if (args->count > i) return run_fail(c->run, "%s has %zu arguments, not %zu", of->name, i, args->count);
    return taken == named->count || run_fail(c->run, "%s: an argument of a name that it has not", of->name);
}

/* Texts and items that a value has itself: what is in those counts when it is looked at. */
static size_t weight(struct value v)
{
    if (v.kind == VALUE_STRING) return v.is.string->bytes / 64;
    return v.kind == VALUE_LIST ? v.is.list->count : v.kind == VALUE_DICT ? v.is.dict->count : 0;
}

static bool pay(struct run *r, enum cost cost, struct value self, const struct list *args,
                const struct dict *named)
{
    size_t steps = cost == COST_ALL ? weight(self) : 0;
    if (cost == COST_NONE) return true;
    for (size_t i = 0; i < args->count; i++) steps += 1 + weight(args->of[i]);
    for (size_t i = 0; i < named->count; i++) steps += 1 + weight(named->of[i].value);
    return run_work(r, steps);
}

struct value callee_run(struct run *r, const struct callee *of, struct value self, const struct list *args,
                        const struct dict *named)
{
    struct call c = {.run = r, .self = self, .rest = args, .named = named};
    if (!pay(r, of->cost, self, args, named) || !run_enter(r)) return undefined_value();
    struct value v = undefined_value();
    if (!strcmp(of->parameters, "*") || bind(&c, of, args, named)) v = of->call(&c);
    run_leave(r);
    return r->failed ? undefined_value() : v;
}

const struct callee *callee_find(const struct callee *all, struct string name)
{
    for (; all->name; all++)
        if (string_is(name, all->name)) return all;
    return NULL;
}

int64_t call_int(struct call *c, int parameter, int64_t otherwise)
{
    const struct value *v = c->at[parameter];
    if (!v || v->kind == VALUE_NONE) return otherwise;
    if (!value_integer(*v)) run_fail(c->run, "a whole number is wanted, not %s", kind_name(*v));
    return value_integer(*v) ? v->is.integer : otherwise;
}

bool call_flag(struct call *c, int parameter, bool otherwise)
{
    return c->at[parameter] ? value_true(*c->at[parameter]) : otherwise;
}

const struct string *call_string(struct call *c, int parameter)
{
    const struct value *v = c->at[parameter];
    if (!v || v->kind == VALUE_NONE) return NULL;
    if (v->kind == VALUE_STRING) return v->is.string;
    run_fail(c->run, "a string is wanted, not %s", kind_name(*v));
    return NULL;
}

/* ---- Global functions ---- */

static struct value function_range(struct call *c)
{
    int64_t from = call_int(c, 0, 0), to = call_int(c, 1, 0), step = call_int(c, 2, 1);
    if (!c->at[1]) to = from, from = 0;
    struct value out = list_value(c->run, LIST_PLAIN);
    if (!c->at[0] || !step) run_fail(c->run, "range without an end, or with a step of 0");
    for (int64_t i = from; !c->run->failed && (step > 0 ? i < to : i > to);) {
        list_add(c->run, out.is.list, int_value(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return out;
}

/* Members of a dict that may be given, and those by name. */
static struct value members(struct call *c, bool namespace)
{
    struct value out = dict_value(c->run);
    if (c->run->failed) return out;
    const struct dict *from =
        c->rest->count == 1 && c->rest->of[0].kind == VALUE_DICT ? c->rest->of[0].is.dict : NULL;
    if (c->rest->count && !from) run_fail(c->run, "a dict is wanted");
    for (size_t i = 0; from && i < from->count && !c->run->failed; i++)
        dict_set(c->run, out.is.dict, from->of[i].key, from->of[i].value);
    for (size_t i = 0; i < c->named->count && !c->run->failed; i++)
        dict_set(c->run, out.is.dict, c->named->of[i].key, c->named->of[i].value);
    if (!c->run->failed) out.is.dict->namespace = namespace;
    return out;
}

static struct value function_namespace(struct call *c) { return members(c, true); }
static struct value function_dict(struct call *c) { return members(c, false); }

static struct value function_raise(struct call *c)
{
    struct value text = value_string(c->run, c->at[0] ? *c->at[0] : undefined_value());
    if (!c->run->failed)
        run_fail(c->run, "%.*s", (int)(text.is.string->bytes < 200 ? text.is.string->bytes : 200),
                 text.is.string->data);
    return undefined_value();
}

static struct value function_strftime_now(struct call *c)
{
    const struct string *format = call_string(c, 0);
    char with[128], out[512];
    time_t now = time(NULL);
    struct tm t;
    if (!format || format->bytes >= sizeof with || !localtime_r(&now, &t))
        return run_fail(c->run, "strftime_now without a format of less than 128 bytes"), undefined_value();
    memcpy(with, format->data, format->bytes);
    with[format->bytes] = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime_l(out, sizeof out, with, &t, plain_locale());
#pragma GCC diagnostic pop
    return string_value(c->run, out, n);
}

const struct function template_functions[] = {{{"range", "start stop step", function_range, COST_ALL}},
                                              {{"namespace", "*", function_namespace, COST_ALL}},
                                              {{"dict", "*", function_dict, COST_ALL}},
                                              {{"raise_exception", "message", function_raise, COST_ALL}},
                                              {{"strftime_now", "format", function_strftime_now, COST_ALL}},
                                              {{NULL, NULL, NULL, COST_ALL}}};

/* ---- Tests ---- */

static struct value is_kind(struct call *c, enum value_kind kind) { return bool_value(c->self.kind == kind); }
static struct value test_defined(struct call *c) { return bool_value(c->self.kind != VALUE_UNDEFINED); }
static struct value test_undefined(struct call *c) { return is_kind(c, VALUE_UNDEFINED); }
static struct value test_none(struct call *c) { return is_kind(c, VALUE_NONE); }
static struct value test_string(struct call *c) { return is_kind(c, VALUE_STRING); }
static struct value test_boolean(struct call *c) { return is_kind(c, VALUE_BOOL); }
static struct value test_integer(struct call *c) { return is_kind(c, VALUE_INT); }
static struct value test_float(struct call *c) { return is_kind(c, VALUE_FLOAT); }

static struct value test_mapping(struct call *c)
{
    return bool_value(c->self.kind == VALUE_DICT && !c->self.is.dict->namespace);
}

static struct value test_number(struct call *c)
{
    double x;
    return bool_value(value_number(c->self, &x));
}

static struct value test_sequence(struct call *c)
{
    struct value v = c->self;
    bool list = v.kind == VALUE_LIST && v.is.list->kind != LIST_GENERATOR;
    return bool_value(list || v.kind == VALUE_STRING || v.kind == VALUE_DICT || v.kind == VALUE_UNDEFINED);
}

static struct value test_iterable(struct call *c)
{
    enum value_kind k = c->self.kind;
    return bool_value(k == VALUE_LIST || k == VALUE_STRING || k == VALUE_DICT || k == VALUE_UNDEFINED);
}

static struct value test_callable(struct call *c)
{
    enum value_kind k = c->self.kind;
    return bool_value(k == VALUE_MACRO || k == VALUE_FUNCTION || k == VALUE_METHOD);
}

static struct value test_true(struct call *c)
{
    return bool_value(c->self.kind == VALUE_BOOL && c->self.is.integer);
}

static struct value test_false(struct call *c)
{
    return bool_value(c->self.kind == VALUE_BOOL && !c->self.is.integer);
}

/* The remainder by a number that must not be 0. */
static int64_t remainder_of(struct call *c, int64_t by)
{
    if (!value_integer(c->self) || !by)
        run_fail(c->run, "%s divided by %lld", kind_name(c->self), (long long)by);
    return c->run->failed || by == -1 ? 0 : c->self.is.integer % by;
}

static struct value test_odd(struct call *c) { return bool_value(remainder_of(c, 2) != 0); }
static struct value test_even(struct call *c) { return bool_value(remainder_of(c, 2) == 0); }
static struct value test_divisible(struct call *c) { return bool_value(!remainder_of(c, call_int(c, 0, 0))); }

/* NULL, and a failure, if there is nothing to compare with. */
static const struct value *other(struct call *c)
{
    if (!c->at[0]) run_fail(c->run, "a test without a value to compare with");
    return c->at[0];
}

static struct value test_equal(struct call *c)
{
    const struct value *v = other(c);
    return bool_value(v && value_equal(c->run, c->self, *v));
}

static struct value test_unequal(struct call *c)
{
    const struct value *v = other(c);
    return bool_value(v && !value_equal(c->run, c->self, *v));
}

static struct value test_in(struct call *c)
{
    const struct value *v = other(c);
    return bool_value(v && value_contains(c->run, *v, c->self));
}

static int order(struct call *c)
{
    const struct value *v = other(c);
    return v ? value_order(c->run, c->self, *v) : 0;
}

static struct value test_less(struct call *c) { return bool_value(order(c) < 0); }
static struct value test_most(struct call *c) { return bool_value(order(c) <= 0); }
static struct value test_greater(struct call *c) { return bool_value(order(c) > 0); }
static struct value test_least(struct call *c) { return bool_value(order(c) >= 0); }

static bool changes(struct call *c, bool upper)
{
    struct text t = {0};
    if (c->self.kind != VALUE_STRING) return run_fail(c->run, "the case of %s", kind_name(c->self));
    const struct string *s = c->self.is.string;
    uint32_t one;
    for (size_t i = 0, n; i < s->bytes && (n = (size_t)unicode_get(s->data + i, s->bytes - i, &one)); i += n)
        (upper ? unicode_upper : unicode_lower)(&t, one);
    bool same = string_equal(*s, (struct string){t.data, t.size});
    text_free(&t);
    return !same;
}

static struct value test_lower(struct call *c) { return bool_value(!changes(c, false)); }
static struct value test_upper(struct call *c) { return bool_value(!changes(c, true)); }

const struct callee template_tests[] = {{"defined", "", test_defined, COST_NONE},
                                        {"undefined", "", test_undefined, COST_NONE},
                                        {"none", "", test_none, COST_NONE},
                                        {"string", "", test_string, COST_NONE},
                                        {"mapping", "", test_mapping, COST_NONE},
                                        {"sequence", "", test_sequence, COST_NONE},
                                        {"iterable", "", test_iterable, COST_NONE},
                                        {"callable", "", test_callable, COST_NONE},
                                        {"number", "", test_number, COST_NONE},
                                        {"integer", "", test_integer, COST_NONE},
                                        {"float", "", test_float, COST_NONE},
                                        {"boolean", "", test_boolean, COST_NONE},
                                        {"true", "", test_true, COST_NONE},
                                        {"false", "", test_false, COST_NONE},
                                        {"odd", "", test_odd, COST_NONE},
                                        {"even", "", test_even, COST_NONE},
                                        {"lower", "", test_lower, COST_ALL},
                                        {"upper", "", test_upper, COST_ALL},
                                        {"divisibleby", "num", test_divisible, COST_NONE},
                                        {"equalto", "other", test_equal, COST_NONE},
                                        {"eq", "other", test_equal, COST_NONE},
                                        {"==", "other", test_equal, COST_NONE},
                                        {"ne", "other", test_unequal, COST_NONE},
                                        {"!=", "other", test_unequal, COST_NONE},
                                        {"in", "seq", test_in, COST_NONE},
                                        {"lt", "other", test_less, COST_NONE},
                                        {"lessthan", "other", test_less, COST_NONE},
                                        {"le", "other", test_most, COST_NONE},
                                        {"gt", "other", test_greater, COST_NONE},
                                        {"greaterthan", "other", test_greater, COST_NONE},
                                        {"ge", "other", test_least, COST_NONE},
                                        {NULL, NULL, NULL, COST_ALL}};
