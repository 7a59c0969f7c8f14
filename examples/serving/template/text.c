/*
 * text.c -- filters of single values, and the methods of strings.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "template_parts.h"

/* The value as a string, as most filters take it. */
static struct string text_of(struct call *c)
{
    struct value v = value_string(c->run, c->self);
    return c->run->failed ? (struct string){"", 0} : *v.is.string;
}

static struct value kept(struct call *c, struct string s) { return string_value(c->run, s.data, s.bytes); }

/* ---- White space ---- */

/* Whether a character, or white space if there are no `chars`, is one of those. */
static bool among(struct run *r, const struct string *chars, struct string one)
{
    uint32_t c;
    if (!chars) return unicode_get(one.data, one.bytes, &c) > 0 && python_space(c);
    return run_read(r, chars->bytes) && memmem(chars->data, chars->bytes, one.data, one.bytes);
}

static struct value stripped(struct call *c, bool left, bool right)
{
    struct string s = text_of(c);
    const struct string *chars = call_string(c, 0);
    for (size_t n; left && s.bytes; s.data += n, s.bytes -= n) {
        n = string_first(s);
        if (!among(c->run, chars, (struct string){s.data, n})) break;
    }
    for (size_t n; right && s.bytes; s.bytes -= n) {
        n = string_last(s);
        if (!among(c->run, chars, (struct string){s.data + s.bytes - n, n})) break;
    }
    return kept(c, s);
}

static struct value text_strip(struct call *c) { return stripped(c, true, true); }
static struct value text_lstrip(struct call *c) { return stripped(c, true, false); }
static struct value text_rstrip(struct call *c) { return stripped(c, false, true); }

/* Lines but the first, unless `first`, behind `width` blanks; empty ones as they are, unless `blank`. */
static struct value filter_indent(struct call *c)
{
    struct string s = text_of(c);
    int64_t width = call_int(c, 0, 4);
    bool first = call_flag(c, 1, false), blank = call_flag(c, 2, false);
    struct text t = {0};
    if (width < 0 || width > 1000) run_fail(c->run, "indent by %lld", (long long)width);
    for (size_t at = 0; at <= s.bytes && !c->run->failed;) {
        const char *end = s.bytes - at ? memchr(s.data + at, '\n', s.bytes - at) : NULL;
        size_t n = end ? (size_t)(end - s.data) - at + 1 : s.bytes - at;
        bool empty = !n || s.data[at] == '\n';
        for (int64_t i = 0; i < width && (at ? blank || !empty : first); i++) text_add(&t, " ", 1);
        text_add(&t, s.data + at, n);
        if (t.size > TEMPLATE_OUTPUT) run_fail(c->run, "a text of more than %d bytes", TEMPLATE_OUTPUT);
        at += n;
        if (!end) break;
    }
    return text_value(c->run, &t);
}

/* ---- Letters ---- */

enum letters { LETTERS_UPPER, LETTERS_LOWER, LETTERS_CAPITAL, LETTERS_TITLE, LETTERS_TITLE_FILTER };

static bool cased(uint32_t c)
{
    struct text a = {0}, b = {0};
    unicode_upper(&a, c);
    unicode_lower(&b, c);
    bool differ = !string_equal((struct string){a.data, a.size}, (struct string){b.data, b.size});
    text_free(&a);
    text_free(&b);
    return differ;
}

static struct value letters(struct call *c, enum letters how)
{
    struct string s = text_of(c);
    struct text t = {0};
    uint32_t one;
    bool begins = true;
    for (size_t i = 0, n; i < s.bytes; i += n) {
        n = (size_t)unicode_get(s.data + i, s.bytes - i, &one);
        (how == LETTERS_UPPER || (begins && how != LETTERS_LOWER) ? unicode_upper : unicode_lower)(&t, one);
        if (how == LETTERS_CAPITAL) begins = false;
        if (how == LETTERS_TITLE) begins = !cased(one);
        if (how == LETTERS_TITLE_FILTER)
            begins = python_space(one) || (one < 128 && strchr("-({[<", (int)one) && one);
    }
    return text_value(c->run, &t);
}

static struct value text_upper(struct call *c) { return letters(c, LETTERS_UPPER); }
static struct value text_lower(struct call *c) { return letters(c, LETTERS_LOWER); }
static struct value text_capitalize(struct call *c) { return letters(c, LETTERS_CAPITAL); }
static struct value method_title(struct call *c) { return letters(c, LETTERS_TITLE); }
static struct value filter_title(struct call *c) { return letters(c, LETTERS_TITLE_FILTER); }

/* ---- Parts ---- */

static const char *find(struct string s, size_t from, struct string part)
{
    if (from > s.bytes) return NULL;
    return part.bytes ? memmem(s.data + from, s.bytes - from, part.data, part.bytes) : s.data + from;
}

/* Both texts from their ends, one behind the other, for free(): what is searched for from the end is found
 * forwards, by memmem, whose time is linear. NULL: a failure. */
static char *turned(struct run *r, struct string s, struct string part)
{
    char *t = run_read(r, s.bytes) && run_read(r, part.bytes) ? malloc(s.bytes + part.bytes + 1) : NULL;
    if (!t && !r->failed) run_fail(r, "out of memory");
    for (size_t i = 0; t && i < s.bytes; i++) t[i] = s.data[s.bytes - 1 - i];
    for (size_t i = 0; t && i < part.bytes; i++) t[s.bytes + i] = part.data[part.bytes - 1 - i];
    return t;
}

/* A string argument that must be there. */
static struct string wanted(struct call *c, int parameter)
{
    const struct string *s = call_string(c, parameter);
    if (!s) run_fail(c->run, "a string is missing");
    return s ? *s : (struct string){"", 0};
}

/* How often, at most; of a negative number always. */
static int64_t times(struct call *c, int parameter)
{
    int64_t n = call_int(c, parameter, -1);
    return n < 0 ? INT64_MAX : n;
}

static struct value text_replace(struct call *c)
{
    struct string s = text_of(c), old = wanted(c, 0), with = wanted(c, 1);
    int64_t left = times(c, 2);
    struct text t = {0};
    size_t at = 0;
    const char *next;
    if (!old.bytes) run_fail(c->run, "replace of an empty string");
    for (; !c->run->failed && left && (next = find(s, at, old)); left--) {
        text_add(&t, s.data + at, (size_t)(next - s.data) - at);
        text_add(&t, with.data, with.bytes);
        at = (size_t)(next - s.data) + old.bytes;
        if (t.size > TEMPLATE_OUTPUT) run_fail(c->run, "a text of more than %d bytes", TEMPLATE_OUTPUT);
        run_work(c->run, 1);
    }
    text_add(&t, s.data + at, s.bytes - at);
    return text_value(c->run, &t);
}

static struct value split_words(struct call *c, struct string s, int64_t most)
{
    struct value out = list_value(c->run, LIST_PLAIN);
    while ((s = string_strip(s, true, false)).bytes && !c->run->failed) {
        size_t n = 0;
        uint32_t one;
        for (int k; n < s.bytes && (k = unicode_get(s.data + n, s.bytes - n, &one)) && !python_space(one);)
            n += (size_t)k;
        if (!most) n = s.bytes; /* the rest, with the blanks at its end */
        most -= most > 0;
        list_add(c->run, out.is.list, kept(c, (struct string){s.data, n}));
        s = (struct string){s.data + n, s.bytes - n};
        if (n == 0) break;
    }
    return out;
}

static struct value method_split(struct call *c)
{
    struct string s = *c->self.is.string;
    const struct string *by = call_string(c, 0);
    int64_t most = times(c, 1);
    if (!by) return split_words(c, s, most);
    struct value out = list_value(c->run, LIST_PLAIN);
    size_t at = 0;
    const char *next;
    if (!by->bytes) run_fail(c->run, "split by an empty string");
    for (; !c->run->failed && most && (next = find(s, at, *by)); most--) {
        list_add(c->run, out.is.list, kept(c, (struct string){s.data + at, (size_t)(next - s.data) - at}));
        at = (size_t)(next - s.data) + by->bytes;
    }
    if (!c->run->failed) list_add(c->run, out.is.list, kept(c, (struct string){s.data + at, s.bytes - at}));
    return out;
}

static void turn(struct list *l)
{
    for (size_t i = 0; i < l->count / 2; i++) {
        struct value other = l->of[i];
        l->of[i] = l->of[l->count - 1 - i];
        l->of[l->count - 1 - i] = other;
    }
}

/* From the end. Parts come in the wrong order, and are turned. */
static struct value method_rsplit(struct call *c)
{
    struct string s = *c->self.is.string, by = wanted(c, 0);
    int64_t most = times(c, 1);
    struct value out = list_value(c->run, LIST_PLAIN);
    if (!by.bytes) run_fail(c->run, "rsplit by an empty string");
    char *t = turned(c->run, s, by), *at = t, *end = t ? t + s.bytes : t, *next;
    for (; !c->run->failed && most && (next = memmem(at, (size_t)(end - at), end, by.bytes)); most--) {
        size_t to = (size_t)(end - at), n = (size_t)(next - at);
        list_add(c->run, out.is.list, kept(c, (struct string){s.data + to - n, n}));
        at = next + by.bytes;
    }
    if (!c->run->failed) s.bytes = (size_t)(end - at);
    free(t);
    if (c->run->failed) return out;
    list_add(c->run, out.is.list, kept(c, s));
    if (!c->run->failed) turn(out.is.list);
    return out;
}

static struct value method_splitlines(struct call *c)
{
    struct string s = *c->self.is.string;
    struct value out = list_value(c->run, LIST_PLAIN);
    for (size_t at = 0, n; at < s.bytes && !c->run->failed; at += n) {
        for (n = 0; at + n < s.bytes && s.data[at + n] != '\n' && s.data[at + n] != '\r';) n++;
        list_add(c->run, out.is.list, kept(c, (struct string){s.data + at, n}));
        if (at + n + 1 < s.bytes && s.data[at + n] == '\r' && s.data[at + n + 1] == '\n') n++;
        n++;
    }
    return out;
}

static bool at_end(struct string s, struct string part, bool end)
{
    return part.bytes <= s.bytes &&
           (!part.bytes || !memcmp(s.data + (end ? s.bytes - part.bytes : 0), part.data, part.bytes));
}

/* Whether the string begins, or ends, with a string, or one of a tuple. */
static struct value fits(struct call *c, bool end)
{
    const struct value *v = c->at[0];
    const struct list *all = v && v->kind == VALUE_LIST ? v->is.list : NULL;
    if (!all) return bool_value(at_end(*c->self.is.string, wanted(c, 0), end));
    for (size_t i = 0; i < all->count; i++) {
        struct value one = all->of[i];
        if (one.kind != VALUE_STRING || !run_read(c->run, one.is.string->bytes)) continue;
        if (at_end(*c->self.is.string, *one.is.string, end)) return bool_value(true);
    }
    return bool_value(false);
}

static struct value method_startswith(struct call *c) { return fits(c, false); }
static struct value method_endswith(struct call *c) { return fits(c, true); }

static struct value method_removeprefix(struct call *c)
{
    struct string s = *c->self.is.string, part = wanted(c, 0);
    size_t n = at_end(s, part, false) ? part.bytes : 0;
    return kept(c, (struct string){s.data + n, s.bytes - n});
}

static struct value method_removesuffix(struct call *c)
{
    struct string s = *c->self.is.string, part = wanted(c, 0);
    return kept(c, (struct string){s.data, s.bytes - (at_end(s, part, true) ? part.bytes : 0)});
}

static struct value method_index(struct call *c)
{
    struct string s = *c->self.is.string;
    const char *at = find(s, 0, wanted(c, 0));
    return int_value(at ? (int64_t)string_length((struct string){s.data, (size_t)(at - s.data)}) : -1);
}

static struct value method_rfind(struct call *c)
{
    struct string s = *c->self.is.string, part = wanted(c, 0);
    char *t = turned(c->run, s, part), *at = t ? memmem(t, s.bytes, t + s.bytes, part.bytes) : NULL;
    size_t before = at ? s.bytes - part.bytes - (size_t)(at - t) : 0;
    free(t);
    return int_value(at ? (int64_t)string_length((struct string){s.data, before}) : -1);
}

static struct value method_count(struct call *c)
{
    struct string s = *c->self.is.string, part = wanted(c, 0);
    int64_t n = 0;
    const char *at = s.data;
    if (!part.bytes) return int_value((int64_t)string_length(s) + 1);
    for (; (at = find(s, (size_t)(at - s.data), part)); at += part.bytes) n++;
    return int_value(n);
}

static struct value method_format(struct call *c)
{
    return format_braces(c->run, *c->self.is.string, c->rest, c->named);
}

static struct value method_join(struct call *c)
{
    struct text t = {0};
    const struct list *all = c->at[0] ? value_items(c->run, *c->at[0]) : NULL;
    if (!all) run_fail(c->run, "join of nothing");
    for (size_t i = 0; !c->run->failed && i < all->count; i++) {
        if (all->of[i].kind != VALUE_STRING) run_fail(c->run, "join of %s", kind_name(all->of[i]));
        if (i) text_add(&t, c->self.is.string->data, c->self.is.string->bytes);
        value_write(c->run, &t, all->of[i]);
        if (t.size > TEMPLATE_OUTPUT) run_fail(c->run, "a text of more than %d bytes", TEMPLATE_OUTPUT);
    }
    return text_value(c->run, &t);
}

static struct value all_are(struct call *c, bool (*is)(uint32_t))
{
    struct string s = *c->self.is.string;
    uint32_t one;
    for (size_t i = 0, n; i < s.bytes; i += n) {
        n = (size_t)unicode_get(s.data + i, s.bytes - i, &one);
        if (!n || !is(one)) return bool_value(false);
    }
    return bool_value(s.bytes > 0);
}

static bool ascii_digit(uint32_t c) { return c >= '0' && c <= '9'; }
static struct value method_isdigit(struct call *c) { return all_are(c, ascii_digit); }
static struct value method_isspace(struct call *c) { return all_are(c, python_space); }

const struct callee template_string_methods[] = {{"strip", "chars", text_strip, COST_ALL},
                                                 {"lstrip", "chars", text_lstrip, COST_ALL},
                                                 {"rstrip", "chars", text_rstrip, COST_ALL},
                                                 {"upper", "", text_upper, COST_ALL},
                                                 {"lower", "", text_lower, COST_ALL},
                                                 {"capitalize", "", text_capitalize, COST_ALL},
                                                 {"title", "", method_title, COST_ALL},
                                                 {"replace", "old new count", text_replace, COST_ALL},
                                                 {"split", "sep maxsplit", method_split, COST_ALL},
                                                 {"rsplit", "sep maxsplit", method_rsplit, COST_ALL},
                                                 {"splitlines", "", method_splitlines, COST_ALL},
                                                 {"startswith", "prefix", method_startswith, COST_REST},
                                                 {"endswith", "suffix", method_endswith, COST_REST},
                                                 {"removeprefix", "prefix", method_removeprefix, COST_REST},
                                                 {"removesuffix", "suffix", method_removesuffix, COST_REST},
                                                 {"find", "sub", method_index, COST_ALL},
                                                 {"rfind", "sub", method_rfind, COST_ALL},
                                                 {"count", "sub", method_count, COST_ALL},
                                                 {"join", "iterable", method_join, COST_ALL},
                                                 {"format", "*", method_format, COST_ALL},
                                                 {"isdigit", "", method_isdigit, COST_ALL},
                                                 {"isspace", "", method_isspace, COST_ALL},
                                                 {NULL, NULL, NULL, COST_ALL}};

/* ---- Filters of single values ---- */

static struct value filter_string(struct call *c) { return value_string(c->run, c->self); }
static struct value filter_format(struct call *c)
{
    return format_percent(c->run, text_of(c), c->rest, c->named);
}

static struct value filter_safe(struct call *c) { return c->self; }

static struct value filter_escape(struct call *c)
{
    static const char special[] = "&<>\"'";
    static const char *const meant[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    struct string s = text_of(c);
    struct text t = {0};
    for (size_t i = 0; i < s.bytes; i++) {
        const char *place = s.data[i] ? strchr(special, s.data[i]) : NULL;
        if (place) text_add(&t, meant[place - special], strlen(meant[place - special]));
        else text_add(&t, &s.data[i], 1);
    }
    return text_value(c->run, &t);
}

static struct value filter_default(struct call *c)
{
    bool use = c->self.kind == VALUE_UNDEFINED || (call_flag(c, 1, false) && !value_true(c->self));
    if (!use) return c->self;
    return c->at[0] ? *c->at[0] : string_value(c->run, "", 0);
}

/* A pair of texts: what stands between items, and between a key and its value. */
static void separators(struct call *c, struct value v, struct json_style *s)
{
    const struct list *two = v.kind == VALUE_LIST && v.is.list->count == 2 ? v.is.list : NULL;
    if (!two || two->of[0].kind != VALUE_STRING || two->of[1].kind != VALUE_STRING) {
        run_fail(c->run, "tojson: separators are two strings");
        return;
    }
    s->between = two->of[0].is.string;
    s->colon = two->of[1].is.string;
}

static struct value filter_tojson(struct call *c)
{
    struct text t = {0};
    int64_t indent = call_int(c, 1, -1);
    struct json_style s = {.indent = -1, .ascii = call_flag(c, 0, false), .sorted = call_flag(c, 3, false)};
    if (indent > 100) run_fail(c->run, "tojson with an indent of %lld", (long long)indent);
    else if (c->at[1] && c->at[1]->kind != VALUE_NONE) s.indent = indent < 0 ? 0 : (int)indent;
    if (c->at[2] && c->at[2]->kind != VALUE_NONE) separators(c, *c->at[2], &s);
    if (!c->run->failed) value_json(c->run, &t, c->self, &s, 0);
    return text_value(c->run, &t);
}

/* A string's number, with blanks around; false: it is none. */
static bool number_in(struct string s, double *real, int64_t *whole, bool *is_whole)
{
    char digits[64], *end;
    s = string_strip(s, true, true);
    if (!s.bytes || s.bytes >= sizeof digits || !memchr("+-.0123456789", *s.data, 13)) return false;
    memcpy(digits, s.data, s.bytes);
    digits[s.bytes] = 0;
    errno = 0;
    *whole = strtoll(digits, &end, 10);
    *is_whole = !*end && !errno;
    *real = plain_number(digits, &end);
    return !*end && !strpbrk(digits, "xXpP");
}

static struct value filter_int(struct call *c)
{
    double x = 0;
    int64_t whole = 0;
    bool is_whole = false,
         there = c->self.kind == VALUE_STRING && number_in(*c->self.is.string, &x, &whole, &is_whole);
    if (value_integer(c->self)) return int_value(c->self.is.integer);
    if (there && is_whole) return int_value(whole);
    there |= value_number(c->self, &x);
    if (there && fabs(x) < 9e18) return int_value((int64_t)x);
    return c->at[0] ? *c->at[0] : int_value(0);
}

static struct value filter_float(struct call *c)
{
    double x = 0;
    int64_t whole;
    bool is_whole,
        there = c->self.kind == VALUE_STRING && number_in(*c->self.is.string, &x, &whole, &is_whole);
    if (there || value_number(c->self, &x)) return float_value(x);
    return c->at[0] ? *c->at[0] : float_value(0);
}

static struct value filter_abs(struct call *c)
{
    double x;
    if (value_integer(c->self) && c->self.is.integer > INT64_MIN) return int_value(llabs(c->self.is.integer));
    if (!value_number(c->self, &x)) run_fail(c->run, "abs of %s", kind_name(c->self));
    return c->run->failed ? c->self : float_value(fabs(x));
}

/* As Python's round: the decimal number of so many places that is nearest to x, of two the even one. */
static double rounded(double x, int places)
{
    char digits[640];
    double unit = pow(10, -places);
    if (places < 0) return rint(x / unit) * unit;
    plain_line(digits, sizeof digits, "%.*f", places, x);
    return plain_number(digits, NULL);
}

/* To so many places; or up, or down. */
static struct value filter_round(struct call *c)
{
    double x = 0;
    int64_t places = call_int(c, 0, 0);
    const struct string *how = call_string(c, 1);
    if (!value_number(c->self, &x)) run_fail(c->run, "round of %s", kind_name(c->self));
    if (places < -300 || places > 300) run_fail(c->run, "round to %lld places", (long long)places);
    bool up = how && string_is(*how, "ceil"), down = how && string_is(*how, "floor");
    if (c->run->failed || (!up && !down && value_integer(c->self) && places >= 0)) return c->self;
    double scale = pow(10, (double)places);
    x = up ? ceil(x * scale) / scale : down ? floor(x * scale) / scale : rounded(x, (int)places);
    bool whole = !up && !down && value_integer(c->self);
    if (!isfinite(x) || (whole && fabs(x) >= 0x1p53)) run_fail(c->run, "a number that is too large");
    return whole && !c->run->failed ? int_value((int64_t)x) : float_value(x);
}

const struct callee template_filters[] = {
    {"trim", "chars", text_strip, COST_ALL},
    {"upper", "", text_upper, COST_ALL},
    {"lower", "", text_lower, COST_ALL},
    {"capitalize", "", text_capitalize, COST_ALL},
    {"title", "", filter_title, COST_ALL},
    {"replace", "old new count", text_replace, COST_ALL},
    {"indent", "width first blank", filter_indent, COST_ALL},
    {"string", "", filter_string, COST_ALL},
    {"format", "*", filter_format, COST_ALL},
    {"safe", "", filter_safe, COST_NONE},
    {"escape", "", filter_escape, COST_ALL},
    {"e", "", filter_escape, COST_ALL},
    {"default", "default_value boolean", filter_default, COST_NONE},
    {"d", "default_value boolean", filter_default, COST_NONE},
    {"tojson", "ensure_ascii indent separators sort_keys", filter_tojson, COST_ALL},
    {"int", "default base", filter_int, COST_ALL},
    {"float", "default", filter_float, COST_ALL},
    {"abs", "", filter_abs, COST_NONE},
    {"round", "precision method", filter_round, COST_NONE},
    {NULL, NULL, NULL, COST_ALL}};
