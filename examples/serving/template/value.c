/*
 * value.c -- values of templates: how they are made, what they are equal to, their parts.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "template_parts.h"

/* ---- Memory ---- */

struct arena_block {
    struct arena_block *before;
    size_t used, room;
    _Alignas(16) char data[];
};

void *arena_take(struct arena *a, size_t bytes)
{
    enum { BLOCK = 1 << 16 };
    bytes = (bytes + 15) / 16 * 16;
    if (bytes > a->most - a->bytes) return NULL;
    struct arena_block *b = a->last;
    if (!b || b->room - b->used < bytes) {
        size_t room = bytes > BLOCK ? bytes : BLOCK;
        if (!(b = calloc(1, sizeof *b + room))) return NULL;
        *b = (struct arena_block){.before = a->last, .room = room};
        a->last = b;
    }
    a->bytes += bytes;
    b->used += bytes;
    return b->data + b->used - bytes;
}

void arena_free(struct arena *a)
{
    for (struct arena_block *b = a->last, *before; b; b = before) {
        before = b->before;
        free(b);
    }
    a->last = NULL;
}

static void *take(struct run *r, size_t bytes)
{
    void *p = arena_take(&r->arena, bytes);
    if (!p) run_fail(r, "values of more than %d bytes", TEMPLATE_MEMORY);
    return p;
}

/* ---- Making ---- */

struct value undefined_value(void) { return (struct value){.kind = VALUE_UNDEFINED}; }
struct value none_value(void) { return (struct value){.kind = VALUE_NONE}; }
struct value bool_value(bool b) { return (struct value){VALUE_BOOL, {.integer = b}}; }
struct value int_value(int64_t i) { return (struct value){VALUE_INT, {.integer = i}}; }
struct value float_value(double x) { return (struct value){VALUE_FLOAT, {.real = x}}; }

struct value string_value(struct run *r, const char *data, size_t bytes)
{
    struct string *s = run_read(r, bytes) ? take(r, sizeof *s) : NULL;
    char *copy = s ? take(r, bytes + 1) : NULL;
    if (!copy) return undefined_value();
    if (bytes) memcpy(copy, data, bytes);
    *s = (struct string){copy, bytes};
    return (struct value){VALUE_STRING, {.string = s}};
}

struct value text_value(struct run *r, struct text *t)
{
    if (t->failed) run_fail(r, "out of memory");
    struct value v = string_value(r, t->data, t->failed ? 0 : t->size);
    text_free(t);
    return v;
}

struct value list_value(struct run *r, enum list_kind kind)
{
    struct list *l = take(r, sizeof *l);
    if (!l) return undefined_value();
    l->kind = kind;
    return (struct value){VALUE_LIST, {.list = l}};
}

struct value dict_value(struct run *r)
{
    struct dict *d = take(r, sizeof *d);
    return d ? (struct value){VALUE_DICT, {.dict = d}} : undefined_value();
}

/* Room for one more of `count` things of `size` bytes. */
static bool grow(struct run *r, void **of, size_t count, size_t *room, size_t size)
{
    if (count < *room) return true;
    size_t wanted = *room ? 2 * *room : 8;
    void *more = take(r, wanted * size);
    if (!more) return false;
    if (count) memcpy(more, *of, count * size);
    *of = more;
    *room = wanted;
    return true;
}

void list_add(struct run *r, struct list *l, struct value v)
{
    void *of = l->of;
    if (!run_work(r, 1) || !grow(r, &of, l->count, &l->room, sizeof v)) return;
    l->of = of;
    l->of[l->count++] = v;
}

static struct entry *dict_entry(struct run *r, const struct dict *d, struct value key)
{
    if (!run_work(r, 1 + d->count / 16)) return NULL;
    for (size_t i = 0; i < d->count; i++)
        if (value_equal(r, d->of[i].key, key)) return &d->of[i];
    return NULL;
}

static void dict_add(struct run *r, struct dict *d, struct value key, struct value v)
{
    void *of = d->of;
    if (!run_work(r, 1) || !grow(r, &of, d->count, &d->room, sizeof *d->of)) return;
    d->of = of;
    d->of[d->count++] = (struct entry){key, v};
}

void dict_set(struct run *r, struct dict *d, struct value key, struct value v)
{
    if (key.kind == VALUE_LIST || key.kind == VALUE_DICT) {
        run_fail(r, "a %s is no key", kind_name(key));
        return;
    }
    struct entry *e = dict_entry(r, d, key);
    if (e) e->value = v;
    else if (!r->failed) dict_add(r, d, key, v);
}

const struct value *dict_get(struct run *r, const struct dict *d, struct value key)
{
    struct entry *e = dict_entry(r, d, key);
    return e ? &e->value : NULL;
}

const struct value *dict_named(struct run *r, const struct dict *d, const char *name)
{
    struct string s = {name, strlen(name)};
    return dict_get(r, d, (struct value){VALUE_STRING, {.string = &s}});
}

struct value json_value(struct run *r, const json_t *v)
{
    struct value out = none_value();
    size_t i;
    const char *key;
    json_t *part;
    if (!run_enter(r)) return out;
    switch (json_typeof(v)) {
    case JSON_TRUE:
    case JSON_FALSE: out = bool_value(json_is_true(v)); break;
    case JSON_INTEGER: out = int_value(json_integer_value(v)); break;
    case JSON_REAL: out = float_value(json_real_value(v)); break;
    case JSON_STRING: out = string_value(r, json_string_value(v), json_string_length(v)); break;
    case JSON_ARRAY:
        out = list_value(r, LIST_PLAIN);
        json_array_foreach(v, i, part) if (!r->failed) list_add(r, out.is.list, json_value(r, part));
        break;
    case JSON_OBJECT:
        out = dict_value(r);
        json_object_foreach((json_t *)(uintptr_t)v, key, part) if (!r->failed)
            dict_add(r, out.is.dict, string_value(r, key, strlen(key)), json_value(r, part));
        break;
    case JSON_NULL: break;
    }
    run_leave(r);
    return out;
}

/* ---- What they are ---- */

const char *kind_name(struct value v)
{
    static const char *const names[] = {"undefined value", "none",  "bool", "int",  "float",
                                        "string",          "list",  "dict", "loop", "macro",
                                        "function",        "method"};
    return names[v.kind];
}

bool value_true(struct value v)
{
    switch (v.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL:
    case VALUE_INT: return v.is.integer != 0;
    case VALUE_FLOAT: return v.is.real != 0;
    case VALUE_STRING: return v.is.string->bytes != 0;
    case VALUE_LIST: return v.is.list->count || v.is.list->kind == LIST_GENERATOR;
    case VALUE_DICT: return v.is.dict->count || v.is.dict->namespace;
    default: return true;
    }
}

bool value_integer(struct value v) { return v.kind == VALUE_INT || v.kind == VALUE_BOOL; }

bool value_number(struct value v, double *x)
{
    if (v.kind == VALUE_FLOAT) *x = v.is.real;
    if (value_integer(v)) *x = (double)v.is.integer;
    return v.kind == VALUE_FLOAT || value_integer(v);
}

bool string_equal(struct string a, struct string b)
{
    return a.bytes == b.bytes && (!a.bytes || !memcmp(a.data, b.data, a.bytes));
}

bool string_is(struct string s, const char *text)
{
    return string_equal(s, (struct string){text, strlen(text)});
}
bool value_is(struct value v, const char *text)
{
    return v.kind == VALUE_STRING && string_is(*v.is.string, text);
}

/* ---- Comparison ---- */

/* Strings of one length are compared byte by byte. */
static bool texts_equal(struct run *r, struct string a, struct string b)
{
    return a.bytes == b.bytes && run_read(r, a.bytes) && string_equal(a, b);
}

static bool lists_equal(struct run *r, const struct list *a, const struct list *b)
{
    if (a->count != b->count || (a->kind == LIST_TUPLE) != (b->kind == LIST_TUPLE)) return false;
    for (size_t i = 0; i < a->count; i++)
        if (!value_equal(r, a->of[i], b->of[i])) return false;
    return true;
}

static bool dicts_equal(struct run *r, const struct dict *a, const struct dict *b)
{
    if (a->count != b->count || a->namespace || b->namespace) return a == b;
    for (size_t i = 0; i < a->count; i++) {
        const struct value *other = dict_get(r, b, a->of[i].key);
        if (!other || !value_equal(r, a->of[i].value, *other)) return false;
    }
    return true;
}

static bool parts_equal(struct run *r, struct value a, struct value b)
{
    if (!run_enter(r)) return false;
    bool equal =
        a.kind == VALUE_LIST ? lists_equal(r, a.is.list, b.is.list) : dicts_equal(r, a.is.dict, b.is.dict);
    run_leave(r);
    return equal;
}

bool value_equal(struct run *r, struct value a, struct value b)
{
    double x, y;
    if (!run_work(r, 1)) return false;
    if (value_integer(a) && value_integer(b)) return a.is.integer == b.is.integer;
    if (value_number(a, &x) && value_number(b, &y)) return x == y;
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return true;
    case VALUE_STRING: return texts_equal(r, *a.is.string, *b.is.string);
    case VALUE_LIST:
    case VALUE_DICT: return parts_equal(r, a, b);
    default: return a.is.list == b.is.list;
    }
}

static int order_of(size_t a, size_t b) { return (a > b) - (a < b); }

static int lists_order(struct run *r, const struct list *a, const struct list *b)
{
    int order = 0;
    if (!run_enter(r)) return 0;
    for (size_t i = 0; !order && i < a->count && i < b->count && !r->failed; i++)
        if (!value_equal(r, a->of[i], b->of[i])) order = value_order(r, a->of[i], b->of[i]);
    run_leave(r);
    return order ? order : order_of(a->count, b->count);
}

/* UTF-8 has the order of its characters. */
int value_order(struct run *r, struct value a, struct value b)
{
    double x, y;
    if (!run_work(r, 1)) return 0;
    if (value_integer(a) && value_integer(b))
        return (a.is.integer > b.is.integer) - (a.is.integer < b.is.integer);
    if (value_number(a, &x) && value_number(b, &y)) return (x > y) - (x < y);
    if (a.kind == VALUE_STRING && b.kind == VALUE_STRING) {
        const struct string *s = a.is.string, *t = b.is.string;
        size_t least = s->bytes < t->bytes ? s->bytes : t->bytes;
        int order = least && run_read(r, least) ? memcmp(s->data, t->data, least) : 0;
        return order ? order : order_of(s->bytes, t->bytes);
    }
    if (a.kind == VALUE_LIST && b.kind == VALUE_LIST) return lists_order(r, a.is.list, b.is.list);
    run_fail(r, "%s and %s have no order", kind_name(a), kind_name(b));
    return 0;
}

static bool list_has(struct run *r, const struct list *l, struct value one)
{
    for (size_t i = 0; i < l->count && !r->failed; i++)
        if (value_equal(r, l->of[i], one)) return true;
    return false;
}

bool value_contains(struct run *r, struct value all, struct value one)
{
    if (all.kind == VALUE_STRING && one.kind == VALUE_STRING) {
        const struct string *s = all.is.string, *t = one.is.string;
        return run_read(r, s->bytes) && (!t->bytes || memmem(s->data, s->bytes, t->data, t->bytes));
    }
    if (all.kind == VALUE_LIST) return list_has(r, all.is.list, one);
    if (all.kind == VALUE_DICT && !all.is.dict->namespace) return dict_get(r, all.is.dict, one) != NULL;
    if (all.kind == VALUE_UNDEFINED) return false;
    return run_fail(r, "%s in %s", kind_name(one), kind_name(all));
}

/* ---- Strings by their characters ---- */

/* What Python's str.isspace has, and str.strip takes. */
bool python_space(uint32_t c) { return unicode_space(c) || (c >= 0x1c && c <= 0x1f); }

struct string string_strip(struct string s, bool left, bool right)
{
    uint32_t c;
    for (int n; left && s.bytes && (n = unicode_get(s.data, s.bytes, &c)) > 0 && python_space(c);) {
        s.data += n;
        s.bytes -= (size_t)n;
    }
    for (size_t n; right && s.bytes; s.bytes -= n) {
        n = string_last(s);
        if (unicode_get(s.data + s.bytes - n, n, &c) <= 0 || !python_space(c)) break;
    }
    return s;
}

size_t string_first(struct string s)
{
    size_t n = 1;
    while (n < s.bytes && (s.data[n] & 0xc0) == 0x80) n++;
    return n;
}

size_t string_last(struct string s)
{
    size_t n = 1;
    while (n < s.bytes && n < 4 && (s.data[s.bytes - n] & 0xc0) == 0x80) n++;
    return n;
}

size_t string_length(struct string s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.bytes; i++) n += (s.data[i] & 0xc0) != 0x80;
    return n;
}

const struct list *value_items(struct run *r, struct value v)
{
    if (v.kind == VALUE_LIST) return v.is.list;
    struct value all = list_value(r, LIST_PLAIN);
    if (r->failed) return NULL;
    struct list *l = all.is.list;
    if (v.kind == VALUE_DICT && !v.is.dict->namespace)
        for (size_t i = 0; i < v.is.dict->count && !r->failed; i++) list_add(r, l, v.is.dict->of[i].key);
    else if (v.kind == VALUE_STRING)
        for (size_t at = 0, n; at < v.is.string->bytes && !r->failed; at += n) {
            struct string rest = {v.is.string->data + at, v.is.string->bytes - at};
            list_add(r, l, string_value(r, rest.data, n = string_first(rest)));
        }
    else if (v.kind != VALUE_UNDEFINED) run_fail(r, "%s has no items to go through", kind_name(v));
    return r->failed ? NULL : l;
}

/* ---- Parts ---- */

static struct value missing(struct run *r, struct string name)
{
    struct value v = string_value(r, name.data, name.bytes);
    v.kind = VALUE_UNDEFINED;
    return v;
}

static struct value no_part(struct run *r, struct value v, struct string name)
{
    const struct string *what = v.is.string;
    int most = name.bytes < 40 ? (int)name.bytes : 40;
    if (v.kind != VALUE_UNDEFINED) return missing(r, name);
    run_fail(r, "'%.*s' is undefined: it has no '%.*s'",
             what ? (int)(what->bytes < 40 ? what->bytes : 40) : 1, what ? what->data : "?", most, name.data);
    return undefined_value();
}

static struct value loop_attribute(struct run *r, const struct loop *l, struct string name)
{
    int64_t at = (int64_t)l->at, count = (int64_t)l->items->count;
    const struct {
        const char *name;
        int64_t is;
    } all[] = {{"index0", at},
               {"index", at + 1},
               {"length", count},
               {"revindex", count - at},
               {"revindex0", count - at - 1},
               {"depth", 1},
               {"depth0", 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (string_is(name, all[i].name)) return int_value(all[i].is);
    if (string_is(name, "first")) return bool_value(at == 0);
    if (string_is(name, "last")) return bool_value(at == count - 1);
    if (string_is(name, "previtem") && at > 0) return l->items->of[at - 1];
    if (string_is(name, "nextitem") && at + 1 < count) return l->items->of[at + 1];
    return missing(r, name);
}

static struct value bound(struct run *r, struct value self, const struct callee *of)
{
    struct method *m = take(r, sizeof *m);
    if (!m) return undefined_value();
    *m = (struct method){self, of};
    return (struct value){VALUE_METHOD, {.method = m}};
}

/* Of a dict its methods come before its keys, as Python's getattr has it. */
struct value value_attribute(struct run *r, struct value v, struct string name)
{
    const struct callee *of = method_find(v, name);
    if (of) return bound(r, v, of);
    if (v.kind == VALUE_LOOP) return loop_attribute(r, v.is.loop, name);
    if (v.kind == VALUE_DICT) {
        struct value key = {VALUE_STRING, {.string = &name}};
        const struct value *part = dict_get(r, v.is.dict, key);
        if (part) return *part;
    }
    return no_part(r, v, name);
}

/* Byte offset of a character of a string. */
static size_t offset_of(struct string s, size_t character)
{
    size_t i = 0;
    for (; i < s.bytes; i++)
        if ((s.data[i] & 0xc0) != 0x80 && !character--) break;
    return i;
}

static struct value string_item(struct run *r, struct string s, int64_t at)
{
    int64_t count = (int64_t)string_length(s);
    if (at < 0) at += count;
    if (at < 0 || at >= count) return undefined_value();
    size_t from = offset_of(s, (size_t)at);
    return string_value(r, s.data + from, offset_of(s, (size_t)at + 1) - from);
}

struct value value_item(struct run *r, struct value v, struct value key)
{
    if (v.kind == VALUE_DICT && !v.is.dict->namespace) {
        const struct value *part = dict_get(r, v.is.dict, key);
        if (part) return *part;
    } else if (v.kind == VALUE_LIST && value_integer(key) && v.is.list->kind != LIST_GENERATOR) {
        int64_t count = (int64_t)v.is.list->count,
                at = key.is.integer < 0 ? key.is.integer + count : key.is.integer;
        return at >= 0 && at < count ? v.is.list->of[at] : undefined_value();
    } else if (v.kind == VALUE_STRING && value_integer(key)) {
        return run_read(r, v.is.string->bytes) ? string_item(r, *v.is.string, key.is.integer)
                                               : undefined_value();
    }
    if (key.kind == VALUE_STRING) return value_attribute(r, v, *key.is.string);
    return no_part(r, v, (struct string){"?", 1});
}

/* ---- Slices ---- */

/* An end of a slice as Python counts it: from the back if negative, then within low..high. */
static int64_t end_of(struct value v, int64_t count, int64_t otherwise, int64_t low, int64_t high)
{
    if (!value_integer(v)) return otherwise;
    int64_t at = v.is.integer < 0 ? v.is.integer + count : v.is.integer;
    return at < low ? low : at > high ? high : at;
}

static struct value string_slice(struct run *r, struct string s, const struct value *ends)
{
    if (!run_read(r, s.bytes)) return undefined_value();
    int64_t count = (int64_t)string_length(s);
    int64_t from = end_of(ends[0], count, 0, 0, count), to = end_of(ends[1], count, count, 0, count);
    size_t begin = offset_of(s, (size_t)from), end = from < to ? offset_of(s, (size_t)to) : begin;
    return string_value(r, s.data + begin, end - begin);
}

static bool plain_step(struct value step) { return !value_integer(step) || step.is.integer == 1; }

struct value value_slice(struct run *r, struct value v, const struct value *three)
{
    if (v.kind == VALUE_STRING && plain_step(three[2])) return string_slice(r, *v.is.string, three);
    bool string = v.kind == VALUE_STRING;
    const struct list *all = string || v.kind == VALUE_LIST ? value_items(r, v) : NULL;
    for (int i = 0; i < 3; i++)
        if (!value_integer(three[i]) && three[i].kind != VALUE_NONE)
            run_fail(r, "a slice by %s", kind_name(three[i]));
    int64_t step = value_integer(three[2]) ? three[2].is.integer : 1;
    if (all && !step) run_fail(r, "a slice whose step is 0");
    if (!all) run_fail(r, "a slice of %s", kind_name(v));
    if (r->failed) return undefined_value();
    int64_t count = (int64_t)all->count;
    int64_t from =
        step > 0 ? end_of(three[0], count, 0, 0, count) : end_of(three[0], count, count - 1, -1, count - 1);
    int64_t to =
        step > 0 ? end_of(three[1], count, count, 0, count) : end_of(three[1], count, -1, -1, count - 1);
    struct value out = list_value(r, string ? LIST_PLAIN : all->kind);
    struct text t = {0};
    for (int64_t i = from; run_work(r, 1) && (step > 0 ? i < to : i > to); i += step) {
        if (string) text_add(&t, all->of[i].is.string->data, all->of[i].is.string->bytes);
        else list_add(r, out.is.list, all->of[i]);
        if (step > count || step < -count) break;
    }
    if (string) return text_value(r, &t);
    return out;
}
