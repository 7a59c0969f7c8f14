/*
 * sequence.c -- filters of lists, and the methods of dicts, lists and loops.
 */
#include <stdlib.h>
#include <string.h>

#include "template_parts.h"

static const struct list *items(struct call *c) { return value_items(c->run, c->self); }

/* ---- Length, ends ---- */

static struct value filter_length(struct call *c)
{
    struct value v = c->self;
    switch (v.kind) {
    case VALUE_UNDEFINED: return int_value(0);
    case VALUE_STRING:
        return run_read(c->run, v.is.string->bytes) ? int_value((int64_t)string_length(*v.is.string)) : v;
    case VALUE_DICT:
        if (!v.is.dict->namespace) return int_value((int64_t)v.is.dict->count);
        break;
    case VALUE_LIST:
        if (v.is.list->kind != LIST_GENERATOR) return int_value((int64_t)v.is.list->count);
        break;
    default: break;
    }
    return run_fail(c->run, "%s has no length", v.kind == VALUE_LIST ? "a generator" : kind_name(v)), v;
}

static struct value filter_first(struct call *c)
{
    const struct list *all = items(c);
    return all && all->count ? all->of[0] : undefined_value();
}

static struct value filter_last(struct call *c)
{
    const struct list *all = items(c);
    return all && all->count ? all->of[all->count - 1] : undefined_value();
}

static struct value copied(struct call *c, enum list_kind kind, bool turned)
{
    const struct list *all = items(c);
    struct value out = list_value(c->run, kind);
    for (size_t i = 0; !c->run->failed && i < all->count; i++)
        list_add(c->run, out.is.list, all->of[turned ? all->count - 1 - i : i]);
    return out;
}

static struct value filter_list(struct call *c) { return copied(c, LIST_PLAIN, false); }

static struct value filter_reverse(struct call *c)
{
    struct value out = copied(c, LIST_GENERATOR, true);
    struct text t = {0};
    if (c->run->failed || c->self.kind != VALUE_STRING) return out;
    for (size_t i = 0; i < out.is.list->count; i++) value_write(c->run, &t, out.is.list->of[i]);
    return text_value(c->run, &t);
}

/* ---- Parts of items ---- */

/* An attribute by its name, with dots and numbers in it, or by a number. */
static struct value part_of(struct run *r, struct value v, struct value path)
{
    if (path.kind != VALUE_STRING) return value_item(r, v, path);
    struct string s = *path.is.string;
    for (size_t at = 0; at <= s.bytes && !r->failed;) {
        const char *dot = s.bytes - at ? memchr(s.data + at, '.', s.bytes - at) : NULL;
        size_t n = dot ? (size_t)(dot - s.data) - at : s.bytes - at;
        struct string name = {s.data + at, n};
        bool number = n && n < 10 && strspn(s.data + at, "0123456789") >= n;
        struct value key = {VALUE_STRING, {.string = &name}};
        v = value_item(r, v, number ? int_value(atoll(s.data + at)) : key);
        at += n + 1;
    }
    return v;
}

static struct value maybe_part(struct call *c, struct value v, int parameter)
{
    const struct value *path = c->at[parameter];
    return path && path->kind != VALUE_NONE ? part_of(c->run, v, *path) : v;
}

static struct value filter_join(struct call *c)
{
    const struct list *all = items(c);
    const struct string *by = call_string(c, 0);
    struct text t = {0};
    for (size_t i = 0; !c->run->failed && i < all->count; i++) {
        if (i && by) text_add(&t, by->data, by->bytes);
        value_write(c->run, &t, maybe_part(c, all->of[i], 1));
        if (t.size > TEMPLATE_OUTPUT) run_fail(c->run, "a text of more than %d bytes", TEMPLATE_OUTPUT);
    }
    return text_value(c->run, &t);
}

/* ---- Order ---- */

/* Strings without regard to case, unless it is wanted. */
static struct value sort_key(struct call *c, struct value v, int attribute, bool exact)
{
    v = maybe_part(c, v, attribute);
    if (v.kind != VALUE_STRING || exact) return v;
    const struct list nothing = {0};
    const struct dict none = {0};
    return callee_run(c->run, callee_find(template_string_methods, (struct string){"lower", 5}), v, &nothing,
                      &none);
}

/* By insertion of runs, so that equals stay in order: merges halves. */
static void merge_sort(struct run *r, struct entry *of, struct entry *room, size_t n, bool turned)
{
    if (n < 2 || r->failed) return;
    size_t half = n / 2, a = 0, b = half;
    merge_sort(r, of, room, half, turned);
    merge_sort(r, of + half, room, n - half, turned);
    for (size_t i = 0; i < n && !r->failed; i++) {
        int order = a == half ? 1 : b == n ? -1 : value_order(r, of[a].key, of[b].key);
        bool right = a == half || (b < n && (turned ? order < 0 : order > 0));
        room[i] = right ? of[b++] : of[a++];
    }
    if (!r->failed) memcpy(of, room, n * sizeof *of);
}

static struct value sorted(struct call *c, const struct list *all, bool turned, bool exact, int attribute)
{
    struct run *r = c->run;
    struct value out = list_value(r, LIST_PLAIN);
    size_t n = r->failed ? 0 : all->count;
    struct entry *of = arena_take(&r->arena, (2 * n + 1) * sizeof *of);
    if (!of) run_fail(r, "values of more than %d bytes", TEMPLATE_MEMORY);
    for (size_t i = 0; i < n && !r->failed; i++)
        of[i] = (struct entry){sort_key(c, all->of[i], attribute, exact), all->of[i]};
    if (!r->failed) merge_sort(r, of, of + n, n, turned);
    for (size_t i = 0; i < n && !r->failed; i++) list_add(r, out.is.list, of[i].value);
    return out;
}

static struct value filter_sort(struct call *c)
{
    return sorted(c, items(c), call_flag(c, 0, false), call_flag(c, 1, false), 2);
}

static struct value extreme(struct call *c, bool greatest)
{
    const struct list *all = items(c);
    struct value best = undefined_value(), key = best;
    for (size_t i = 0; !c->run->failed && i < all->count; i++) {
        struct value k = sort_key(c, all->of[i], 1, call_flag(c, 0, false));
        int order = i && !c->run->failed ? value_order(c->run, k, key) : 0;
        if (i && (greatest ? order <= 0 : order >= 0)) continue;
        key = k;
        best = all->of[i];
    }
    return best;
}

static struct value filter_min(struct call *c) { return extreme(c, false); }
static struct value filter_max(struct call *c) { return extreme(c, true); }

static struct value filter_unique(struct call *c)
{
    const struct list *all = items(c);
    struct value out = list_value(c->run, LIST_GENERATOR), seen = dict_value(c->run);
    for (size_t i = 0; !c->run->failed && i < all->count; i++) {
        struct value key = sort_key(c, all->of[i], 1, call_flag(c, 0, false));
        if (c->run->failed || dict_get(c->run, seen.is.dict, key)) continue;
        dict_set(c->run, seen.is.dict, key, none_value());
        list_add(c->run, out.is.list, all->of[i]);
    }
    return out;
}

static struct value filter_sum(struct call *c)
{
    const struct list *all = items(c);
    double x, sum = 0;
    int64_t whole = 0;
    bool real = false;
    struct value start = c->at[1] ? *c->at[1] : int_value(0);
    for (size_t i = 0; !c->run->failed && i <= all->count; i++) {
        struct value v = i == all->count ? start : maybe_part(c, all->of[i], 0);
        if (!value_number(v, &x)) run_fail(c->run, "sum of %s", kind_name(v));
        real |= v.kind == VALUE_FLOAT;
        sum += x;
        if (!real && __builtin_add_overflow(whole, v.is.integer, &whole))
            run_fail(c->run, "a number that is too large");
    }
    return real ? float_value(sum) : int_value(whole);
}

/* ---- Choice: the arguments are a test's name and its arguments, or an attribute's before them ---- */

static struct list behind(const struct list *l, size_t n)
{
    return l->count > n ? (struct list){.count = l->count - n, .of = l->of + n} : (struct list){0};
}

/* What a choice is made of: of a value that is false nothing. */
static const struct list *choices(struct call *c)
{
    static const struct list nothing = {0};
    return value_true(c->self) ? items(c) : &nothing;
}

static const struct callee *named_callee(struct call *c, const struct value *name, bool test)
{
    const struct string *s = name && name->kind == VALUE_STRING ? name->is.string : NULL;
    const struct callee *of = !s ? NULL : test ? callee_find(template_tests, *s) : filter_find(*s);
    if (!of)
        run_fail(c->run, "there is no %s '%.*s'", test ? "test" : "filter",
                 s ? (int)(s->bytes < 40 ? s->bytes : 40) : 0, s ? s->data : "");
    return of;
}

static struct value choose(struct call *c, bool by_part, bool keep)
{
    const struct list *all = choices(c), rest = behind(c->rest, by_part + 1u);
    struct value out = list_value(c->run, LIST_GENERATOR);
    const struct callee *test = NULL;
    if (by_part && !c->rest->count) run_fail(c->run, "an attribute's name is missing");
    if (c->rest->count > by_part) test = named_callee(c, &c->rest->of[by_part], true);
    for (size_t i = 0; !c->run->failed && i < all->count; i++) {
        struct value v = by_part ? part_of(c->run, all->of[i], c->rest->of[0]) : all->of[i];
        if (test) v = callee_run(c->run, test, v, &rest, c->named);
        if (value_true(v) == keep) list_add(c->run, out.is.list, all->of[i]);
    }
    return out;
}

static struct value filter_select(struct call *c) { return choose(c, false, true); }
static struct value filter_reject(struct call *c) { return choose(c, false, false); }
static struct value filter_selectattr(struct call *c) { return choose(c, true, true); }
static struct value filter_rejectattr(struct call *c) { return choose(c, true, false); }

/* map(attribute=..., default=...), or map(filter, its arguments) */
static struct value filter_map(struct call *c)
{
    const struct value *path = dict_named(c->run, c->named, "attribute");
    const struct value *otherwise = dict_named(c->run, c->named, "default");
    const struct list *all = choices(c), rest = behind(c->rest, 1);
    const struct callee *filter = path ? NULL : named_callee(c, c->rest->count ? c->rest->of : NULL, false);
    struct value out = list_value(c->run, LIST_GENERATOR);
    for (size_t i = 0; !c->run->failed && i < all->count; i++) {
        struct value v = path ? part_of(c->run, all->of[i], *path)
                              : callee_run(c->run, filter, all->of[i], &rest, c->named);
        if (path && otherwise && v.kind == VALUE_UNDEFINED) v = *otherwise;
        list_add(c->run, out.is.list, v);
    }
    return out;
}

/* ---- Dicts ---- */

enum { KEYS = 1, VALUES = 2 };

static struct value parts(struct call *c, int what, enum list_kind kind)
{
    struct value out = list_value(c->run, kind);
    if (c->self.kind != VALUE_DICT && c->self.kind != VALUE_UNDEFINED)
        run_fail(c->run, "items of %s", kind_name(c->self));
    const struct dict *d = c->self.kind == VALUE_DICT ? c->self.is.dict : NULL;
    for (size_t i = 0; d && i < d->count && !c->run->failed; i++) {
        struct value pair = what == KEYS ? d->of[i].key : d->of[i].value;
        if (what == (KEYS | VALUES)) {
            pair = list_value(c->run, LIST_TUPLE);
            if (c->run->failed) break;
            list_add(c->run, pair.is.list, d->of[i].key);
            list_add(c->run, pair.is.list, d->of[i].value);
        }
        list_add(c->run, out.is.list, pair);
    }
    return out;
}

static struct value filter_items(struct call *c) { return parts(c, KEYS | VALUES, LIST_GENERATOR); }
static struct value method_items(struct call *c) { return parts(c, KEYS | VALUES, LIST_PLAIN); }
static struct value method_keys(struct call *c) { return parts(c, KEYS, LIST_PLAIN); }
static struct value method_values(struct call *c) { return parts(c, VALUES, LIST_PLAIN); }

static struct value method_get(struct call *c)
{
    if (!c->at[0]) return run_fail(c->run, "get without a key"), c->self;
    const struct value *v = dict_get(c->run, c->self.is.dict, *c->at[0]);
    return v ? *v : c->at[1] ? *c->at[1] : none_value();
}

/* By key, or by value. */
static struct value filter_dictsort(struct call *c)
{
    struct value pairs = parts(c, KEYS | VALUES, LIST_PLAIN), place = int_value(0);
    const struct string *by = call_string(c, 1);
    bool exact = call_flag(c, 0, false), turned = call_flag(c, 2, false);
    if (c->run->failed) return pairs;
    if (by && string_is(*by, "value")) place = int_value(1);
    c->at[3] = &place;
    return sorted(c, pairs.is.list, turned, exact, 3);
}

static struct value method_index(struct call *c)
{
    const struct list *l = c->self.is.list;
    for (size_t i = 0; c->at[0] && i < l->count && !c->run->failed; i++)
        if (value_equal(c->run, l->of[i], *c->at[0])) return int_value((int64_t)i);
    return run_fail(c->run, "index of what is not in the list"), c->self;
}

static struct value method_count(struct call *c)
{
    int64_t n = 0;
    const struct list *l = c->self.is.list;
    for (size_t i = 0; c->at[0] && i < l->count && !c->run->failed; i++)
        n += value_equal(c->run, l->of[i], *c->at[0]);
    return int_value(n);
}

/* ---- Loops ---- */

static struct value method_cycle(struct call *c)
{
    if (!c->rest->count) return run_fail(c->run, "cycle of nothing"), c->self;
    return c->rest->of[c->self.is.loop->at % c->rest->count];
}

/* Whether the arguments are others than the last time. */
static struct value method_changed(struct call *c)
{
    struct loop *l = c->self.is.loop;
    struct list *kept = (struct list *)(uintptr_t)c->rest;
    struct value now = {VALUE_LIST, {.list = kept}};
    bool same = l->changed && value_equal(c->run, *l->changed, now);
    if (!l->changed) l->changed = arena_take(&c->run->arena, sizeof *l->changed);
    if (l->changed) *l->changed = now;
    return bool_value(!same);
}

const struct callee template_sequence_filters[] = {
    {"length", "", filter_length, COST_NONE},
    {"count", "", filter_length, COST_NONE},
    {"first", "", filter_first, COST_NONE},
    {"last", "", filter_last, COST_NONE},
    {"list", "", filter_list, COST_ALL},
    {"reverse", "", filter_reverse, COST_ALL},
    {"join", "d attribute", filter_join, COST_ALL},
    {"sort", "reverse case_sensitive attribute", filter_sort, COST_ALL},
    {"unique", "case_sensitive attribute", filter_unique, COST_ALL},
    {"min", "case_sensitive attribute", filter_min, COST_ALL},
    {"max", "case_sensitive attribute", filter_max, COST_ALL},
    {"sum", "attribute start", filter_sum, COST_ALL},
    {"map", "*", filter_map, COST_ALL},
    {"select", "*", filter_select, COST_ALL},
    {"reject", "*", filter_reject, COST_ALL},
    {"selectattr", "*", filter_selectattr, COST_ALL},
    {"rejectattr", "*", filter_rejectattr, COST_ALL},
    {"items", "", filter_items, COST_ALL},
    {"dictsort", "case_sensitive by reverse", filter_dictsort, COST_ALL},
    {NULL, NULL, NULL, COST_ALL}};

const struct callee template_dict_methods[] = {{"items", "", method_items, COST_ALL},
                                               {"keys", "", method_keys, COST_ALL},
                                               {"values", "", method_values, COST_ALL},
                                               {"get", "key default", method_get, COST_NONE},
                                               {NULL, NULL, NULL, COST_ALL}};

const struct callee template_list_methods[] = {{"index", "value", method_index, COST_ALL},
                                               {"count", "value", method_count, COST_ALL},
                                               {NULL, NULL, NULL, COST_ALL}};

const struct callee template_loop_methods[] = {{"cycle", "*", method_cycle, COST_ALL},
                                               {"changed", "*", method_changed, COST_ALL},
                                               {NULL, NULL, NULL, COST_ALL}};

const struct callee *filter_find(struct string name)
{
    const struct callee *of = callee_find(template_filters, name);
    return of ? of : callee_find(template_sequence_filters, name);
}

const struct callee *method_find(struct value self, struct string name)
{
    switch (self.kind) {
    case VALUE_STRING: return callee_find(template_string_methods, name);
    case VALUE_LIST: return callee_find(template_list_methods, name);
    case VALUE_LOOP: return callee_find(template_loop_methods, name);
    case VALUE_DICT: return self.is.dict->namespace ? NULL : callee_find(template_dict_methods, name);
    default: return NULL;
    }
}
