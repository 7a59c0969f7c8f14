/*
 * print.c -- values as text: Python's str and repr, and JSON as json.dumps writes it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template_parts.h"

static void say(struct text *t, const char *word) { text_add(t, word, strlen(word)); }

static void write_int(struct text *t, int64_t i)
{
    char digits[32];
    text_add(t, digits, (size_t)snprintf(digits, sizeof digits, "%lld", (long long)i));
}

/* As few digits as tell the number, as Python's repr: with an exponent below 1e-4 and from 1e16 on. */
static void write_float(struct text *t, double x)
{
    char digits[40];
    int places = 0;
    if (isnan(x) || isinf(x)) return say(t, isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
    do plain_line(digits, sizeof digits, "%.*e", places, x);
    while (plain_number(digits, NULL) != x && ++places < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) return say(t, digits);
    places = places > exponent ? places - exponent : 0;
    plain_line(digits, sizeof digits, "%.*f", places ? places : 1, x);
    say(t, digits);
}

/* ---- Python ---- */

static bool has(struct string s, char c) { return s.bytes && memchr(s.data, c, s.bytes); }

static void repr_string(struct text *t, struct string s)
{
    char quote = has(s, '\'') && !has(s, '"') ? '"' : '\'', code[8];
    text_add(t, &quote, 1);
    for (size_t i = 0; i < s.bytes; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c == '\n') say(t, "\\n");
        else if (c == '\r') say(t, "\\r");
        else if (c == '\t') say(t, "\\t");
        else if (c == '\\') say(t, "\\\\");
        else if (c == (unsigned char)quote) say(t, quote == '"' ? "\\\"" : "\\'");
        else if (c < ' ' || c == 127) text_add(t, code, (size_t)snprintf(code, sizeof code, "\\x%02x", c));
        else text_add(t, &s.data[i], 1);
    }
    text_add(t, &quote, 1);
}

static void repr_list(struct run *r, struct text *t, const struct list *l)
{
    bool tuple = l->kind == LIST_TUPLE;
    if (l->kind == LIST_GENERATOR) run_fail(r, "a generator is printed: | list makes a list of it");
    say(t, tuple ? "(" : "[");
    for (size_t i = 0; i < l->count && !r->failed; i++) {
        if (i) say(t, ", ");
        value_repr(r, t, l->of[i]);
    }
    say(t, !tuple ? "]" : l->count == 1 ? ",)" : ")");
}

static void repr_dict(struct run *r, struct text *t, const struct dict *d)
{
    say(t, "{");
    for (size_t i = 0; i < d->count && !r->failed; i++) {
        if (i) say(t, ", ");
        value_repr(r, t, d->of[i].key);
        say(t, ": ");
        value_repr(r, t, d->of[i].value);
    }
    say(t, "}");
}

/* Counted, so that what holds itself many times cannot be printed for ever. */
static bool begin(struct run *r, struct text *t, struct value v)
{
    if (t->size > TEMPLATE_OUTPUT) run_fail(r, "a text of more than %d bytes", TEMPLATE_OUTPUT);
    return run_read(r, v.kind == VALUE_STRING ? v.is.string->bytes : 0) && run_enter(r);
}

void value_repr(struct run *r, struct text *t, struct value v)
{
    if (v.kind != VALUE_STRING) value_write(r, t, v);
    else if (begin(r, t, v)) repr_string(t, *v.is.string), run_leave(r);
}

void value_write(struct run *r, struct text *t, struct value v)
{
    if (!begin(r, t, v)) return;
    switch (v.kind) {
    case VALUE_UNDEFINED: break;
    case VALUE_NONE: say(t, "None"); break;
    case VALUE_BOOL: say(t, v.is.integer ? "True" : "False"); break;
    case VALUE_INT: write_int(t, v.is.integer); break;
    case VALUE_FLOAT: write_float(t, v.is.real); break;
    case VALUE_STRING: text_add(t, v.is.string->data, v.is.string->bytes); break;
    case VALUE_LIST: repr_list(r, t, v.is.list); break;
    case VALUE_DICT:
        if (!v.is.dict->namespace) repr_dict(r, t, v.is.dict);
        else run_fail(r, "a namespace is printed");
        break;
    default: run_fail(r, "a %s is printed", kind_name(v));
    }
    run_leave(r);
}

struct value value_string(struct run *r, struct value v)
{
    struct text t = {0};
    if (v.kind == VALUE_STRING) return v;
    value_write(r, &t, v);
    return text_value(r, &t);
}

/* ---- JSON ---- */

static void json_code(struct text *t, uint32_t c)
{
    char code[16];
    int n = c < 0x10000 ? snprintf(code, sizeof code, "\\u%04x", c)
                        : snprintf(code, sizeof code, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                                   0xdc00 + (c & 0x3ff));
    text_add(t, code, (size_t)n);
}

static void json_string_write(struct text *t, struct string s, bool ascii)
{
    static const char plain[] = "\b\f\n\r\t\"\\", letter[] = "bfnrt\"\\";
    uint32_t c;
    say(t, "\"");
    for (size_t i = 0, n; i < s.bytes; i += n) {
        const char *at = s.data[i] ? strchr(plain, s.data[i]) : NULL;
        n = (size_t)unicode_get(s.data + i, s.bytes - i, &c);
        if (n < 1) n = 1, c = (unsigned char)s.data[i];
        if (at) say(t, "\\"), text_add(t, &letter[at - plain], 1);
        else if (c < ' ' || (ascii && c >= 127)) json_code(t, c);
        else text_add(t, &s.data[i], n);
    }
    say(t, "\"");
}

static void new_line(struct text *t, int indent, int depth)
{
    if (indent < 0) return;
    say(t, "\n");
    for (int i = 0; i < indent * depth; i++) say(t, " ");
}

static void json_between(struct text *t, const struct json_style *s)
{
    if (s->between) text_add(t, s->between->data, s->between->bytes);
    else say(t, s->indent < 0 ? ", " : ",");
}

static void json_key(struct run *r, struct text *t, struct value key, const struct json_style *s)
{
    const struct json_style plain = {.indent = -1};
    if (key.kind == VALUE_STRING) value_json(r, t, key, s, 0);
    else {
        say(t, "\"");
        value_json(r, t, key, &plain, 0);
        say(t, "\"");
    }
    if (s->colon) text_add(t, s->colon->data, s->colon->bytes);
    else say(t, ": ");
}

static void json_list(struct run *r, struct text *t, const struct list *l, const struct json_style *s,
                      int depth)
{
    if (l->kind == LIST_GENERATOR) run_fail(r, "tojson of a generator");
    say(t, "[");
    for (size_t i = 0; i < l->count && !r->failed; i++) {
        if (i) json_between(t, s);
        new_line(t, s->indent, depth + 1);
        value_json(r, t, l->of[i], s, depth + 1);
    }
    if (l->count) new_line(t, s->indent, depth);
    say(t, "]");
}

/* The next entry by the order of keys behind `last`, which is NULL before the first. */
static const struct entry *entry_after(struct run *r, const struct dict *d, const struct entry *last)
{
    const struct entry *best = NULL;
    for (const struct entry *e = d->of; e < d->of + d->count && !r->failed; e++) {
        if (last && value_order(r, e->key, last->key) <= 0) continue;
        if (!best || value_order(r, e->key, best->key) < 0) best = e;
    }
    return best;
}

static void json_dict(struct run *r, struct text *t, const struct dict *d, const struct json_style *s,
                      int depth)
{
    const struct entry *e = NULL;
    say(t, "{");
    for (size_t i = 0; i < d->count && !r->failed; i++) {
        e = s->sorted ? entry_after(r, d, e) : &d->of[i];
        if (!e || r->failed) break;
        if (i) json_between(t, s);
        new_line(t, s->indent, depth + 1);
        json_key(r, t, e->key, s);
        value_json(r, t, e->value, s, depth + 1);
    }
    if (d->count) new_line(t, s->indent, depth);
    say(t, "}");
}

static void json_float(struct text *t, double x)
{
    if (isnan(x) || isinf(x)) say(t, isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
    else write_float(t, x);
}

void value_json(struct run *r, struct text *t, struct value v, const struct json_style *s, int depth)
{
    if (!begin(r, t, v)) return;
    switch (v.kind) {
    case VALUE_NONE: say(t, "null"); break;
    case VALUE_BOOL: say(t, v.is.integer ? "true" : "false"); break;
    case VALUE_INT: write_int(t, v.is.integer); break;
    case VALUE_FLOAT: json_float(t, v.is.real); break;
    case VALUE_STRING: json_string_write(t, *v.is.string, s->ascii); break;
    case VALUE_LIST: json_list(r, t, v.is.list, s, depth); break;
    case VALUE_DICT: json_dict(r, t, v.is.dict, s, depth); break;
    default: run_fail(r, "%s as JSON", kind_name(v));
    }
    run_leave(r);
}
