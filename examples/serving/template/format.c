/*
 * format.c -- Python's ways to put values into a text: "%s" % x, and "{}".format(x).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "template_parts.h"

enum { WIDEST = 1000, LONGEST = WIDEST + 400 }; /* characters: of a precision, of a number with it */

/* How one value is written. */
struct style {
    bool left, centre, plus, blank, zeros;
    int width, precision; /* the latter -1: none is given */
    char type;            /* 0: as str() has it */
};

struct formatting {
    struct run *run;
    struct text out;
    struct string s;
    size_t at;
    const struct list *args;
    const struct dict *named;
    size_t next; /* of args */
};

static char peek(const struct formatting *f) { return f->at < f->s.bytes ? f->s.data[f->at] : '\0'; }

static bool takes(struct formatting *f, char c)
{
    bool is = f->at < f->s.bytes && f->s.data[f->at] == c;
    f->at += is;
    return is;
}

static int takes_number(struct formatting *f, int otherwise)
{
    int n = otherwise;
    for (; peek(f) >= '0' && peek(f) <= '9' && !f->run->failed; f->at++) {
        n = (n < 0 ? 0 : n * 10) + (peek(f) - '0');
        if (n > WIDEST) run_fail(f->run, "a format of more than %d characters", WIDEST);
    }
    return n;
}

/* ---- One value ---- */

/* Behind, before, or around blanks; zeros go behind a sign. */
static void add_padded(struct formatting *f, const struct style *s, const char *data, size_t bytes)
{
    size_t have = string_length((struct string){data, bytes});
    size_t pad = (size_t)s->width > have ? (size_t)s->width - have : 0;
    size_t before = s->left ? 0 : s->centre ? pad / 2 : pad;
    bool zeros = s->zeros && !s->left && !s->centre;
    if (zeros && bytes && (*data == '-' || *data == '+' || *data == ' ')) {
        text_add(&f->out, data++, 1);
        bytes--;
    }
    for (size_t i = 0; i < before; i++) text_add(&f->out, zeros ? "0" : " ", 1);
    text_add(&f->out, data, bytes);
    for (size_t i = before; i < pad; i++) text_add(&f->out, " ", 1);
    if (f->out.size > TEMPLATE_OUTPUT) run_fail(f->run, "a text of more than %d bytes", TEMPLATE_OUTPUT);
}

/* So many characters of it, if a precision is given. */
static void add_text(struct formatting *f, struct style s, struct value v)
{
    struct text t = {0};
    size_t bytes = 0;
    uint32_t one;
    if (s.type == 'r') value_repr(f->run, &t, v);
    else value_write(f->run, &t, v);
    for (int i = 0, n; bytes < t.size && i != s.precision; i++, bytes += (size_t)n)
        if ((n = unicode_get(t.data + bytes, t.size - bytes, &one)) < 1) n = 1;
    s.zeros = s.zeros && v.kind == VALUE_FLOAT;
    add_padded(f, &s, t.data ? t.data : "", bytes);
    text_free(&t);
}

/* What printf makes of a number, with a place for a sign in front. */
static void add_printed(struct formatting *f, const struct style *s, const char *number, int n, bool sign)
{
    if (n > 0 && n < LONGEST) add_padded(f, s, number + !sign, (size_t)n + sign);
    else run_fail(f->run, "a number that is too long");
}

static const char *sign_of(const struct style *s) { return s->plus ? "+" : s->blank ? " " : ""; }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"

/* Python writes a negative number of base 8 or 16 with a sign, C its two's complement. */
static void add_whole(struct formatting *f, const struct style *s, int64_t i)
{
    char how[16], number[1 + LONGEST] = "-";
    bool turned = strchr("xXo", s->type) && i < 0;
    long long printed = turned && i > INT64_MIN ? -i : i;
    snprintf(how, sizeof how, "%%%s.*ll%c", sign_of(s), s->type == 'u' ? 'd' : s->type);
    int n = snprintf(number + 1, LONGEST, how, s->precision < 0 ? 1 : s->precision, printed);
    add_printed(f, s, number, n, turned);
}

static void add_real(struct formatting *f, const struct style *s, double x)
{
    char how[16], number[1 + LONGEST] = "";
    snprintf(how, sizeof how, "%%%s.*%c", sign_of(s), s->type);
    add_printed(f, s, number, snprintf(number + 1, LONGEST, how, s->precision < 0 ? 6 : s->precision, x),
                false);
}

#pragma GCC diagnostic pop

static void add_number(struct formatting *f, const struct style *s, struct value v)
{
    bool whole = strchr("diuxXo", s->type);
    double x;
    if (!value_number(v, &x) || (whole && !value_integer(v)))
        run_fail(f->run, "%s as %%%c", kind_name(v), s->type);
    else if (whole) add_whole(f, s, v.is.integer);
    else add_real(f, s, x);
}

static void add_value(struct formatting *f, const struct style *s, struct value v)
{
    if (!s->type || s->type == 's' || s->type == 'r') add_text(f, *s, v);
    else add_number(f, s, v);
}

static struct value next_argument(struct formatting *f)
{
    if (f->next < f->args->count) return f->args->of[f->next++];
    run_fail(f->run, "a format with more values than the %zu that there are", f->args->count);
    return undefined_value();
}

static struct value named_argument(struct formatting *f, struct string name)
{
    const struct value *v = dict_get(f->run, f->named, (struct value){VALUE_STRING, {.string = &name}});
    if (!v && !f->run->failed)
        run_fail(f->run, "a format of '%.*s', which there is not", name.bytes < 40 ? (int)name.bytes : 40,
                 name.data);
    return v ? *v : undefined_value();
}

static void copy_until(struct formatting *f, const char *ends)
{
    size_t from = f->at;
    while (f->at < f->s.bytes && (!peek(f) || !strchr(ends, peek(f)))) f->at++;
    text_add(&f->out, f->s.data + from, f->at - from);
}

/* ---- "%s" ---- */

static void percent_flags(struct formatting *f, struct style *s)
{
    for (;; f->at++) switch (peek(f)) {
        case '-': s->left = true; break;
        case '+': s->plus = true; break;
        case ' ': s->blank = true; break;
        case '0': s->zeros = true; break;
        default: return;
        }
}

/* Behind the sign: (name), flags, width, precision, type. */
static void add_percent(struct formatting *f)
{
    struct style s = {.precision = -1};
    struct string name = {NULL, 0};
    if (takes(f, '(')) {
        name.data = f->s.data + f->at;
        while (f->at < f->s.bytes && peek(f) != ')') f->at++, name.bytes++;
        takes(f, ')');
    }
    percent_flags(f, &s);
    s.width = takes_number(f, 0);
    if (takes(f, '.')) s.precision = takes_number(f, 0);
    s.type = peek(f);
    f->at++;
    if (s.type == '%') text_add(&f->out, "%", 1);
    else if (!s.type || !strchr("srdiuxXofFeEgG", s.type)) run_fail(f->run, "a format that is not known");
    else if (!f->run->failed) {
        struct value v = name.data ? named_argument(f, name) : next_argument(f);
        if (strchr("diu", s.type) && v.kind == VALUE_FLOAT && v.is.real > -9e18 && v.is.real < 9e18)
            v = int_value((int64_t)v.is.real);
        if (!f->run->failed) add_value(f, &s, v);
    }
}

struct value format_percent(struct run *r, struct string format, const struct list *args,
                            const struct dict *named)
{
    struct formatting f = {.run = r, .s = format, .args = args, .named = named};
    while (!r->failed && f.at < format.bytes) {
        copy_until(&f, "%");
        if (takes(&f, '%') && run_work(r, 1)) add_percent(&f);
    }
    if (!r->failed && f.next < args->count && !named->count)
        run_fail(r, "a format of %zu values, and %zu that there are", f.next, args->count);
    return text_value(r, &f.out);
}

/* ---- "{}" ---- */

/* Behind the colon: alignment, sign, 0, width, precision, type. */
static void braces_style(struct formatting *f, struct style *s, struct value v)
{
    bool right = takes(f, '>');
    s->left = !right && takes(f, '<');
    s->centre = !right && !s->left && takes(f, '^');
    s->plus = takes(f, '+');
    s->blank = takes(f, ' ');
    s->zeros = takes(f, '0');
    s->width = takes_number(f, 0);
    if (takes(f, '.')) s->precision = takes_number(f, 0);
    if (peek(f) && strchr("sdxXofFeEgG", peek(f))) s->type = f->s.data[f->at++];
    double x;
    bool number = value_number(v, &x);
    if (v.kind == VALUE_INT && !s->type) s->type = 'd';
    if (!number && !right && !s->centre) s->left = true;
    if (s->type && strchr("dxXo", s->type) && s->precision >= 0) number = false;
    if (number ? s->type == 's' || (!s->type && s->precision >= 0) : s->type && s->type != 's')
        run_fail(f->run, "%s in a format that is not known", kind_name(v));
}

static struct value braces_argument(struct formatting *f)
{
    struct string name = {f->s.data + f->at, 0};
    while (f->at < f->s.bytes && !strchr("!:}.[{", peek(f))) f->at++, name.bytes++;
    if (!name.bytes) return next_argument(f);
    if (*name.data < '0' || *name.data > '9') return named_argument(f, name);
    size_t place = strtoull(name.data, NULL, 10); /* what is behind it ends the number */
    if (name.bytes < 5 && place < f->args->count) return f->args->of[place];
    run_fail(f->run, "a format of value %.*s of %zu", name.bytes < 40 ? (int)name.bytes : 40, name.data,
             f->args->count);
    return undefined_value();
}

static void add_braces(struct formatting *f)
{
    struct style s = {.precision = -1};
    struct value v = braces_argument(f);
    if (f->run->failed) return;
    if (takes(f, '!')) {
        if (!takes(f, 's') && takes(f, 'r')) s.type = 'r';
        if (peek(f) == ':') run_fail(f->run, "a format that is not known");
    }
    bool styled = takes(f, ':');
    if (styled && !f->run->failed) braces_style(f, &s, v);
    if (!f->run->failed && !takes(f, '}')) run_fail(f->run, "a format that is not known");
    if (!f->run->failed) add_value(f, &s, v);
}

struct value format_braces(struct run *r, struct string format, const struct list *args,
                           const struct dict *named)
{
    struct formatting f = {.run = r, .s = format, .args = args, .named = named};
    while (!r->failed && f.at < format.bytes) {
        copy_until(&f, "{}");
        char c = peek(&f);
        if (f.at == format.bytes || !run_work(r, 1)) break;
        f.at++;
        if (takes(&f, c)) text_add(&f.out, &c, 1);
        else if (c == '{') add_braces(&f);
        else run_fail(r, "a format with a single '}'");
    }
    return text_value(r, &f.out);
}
