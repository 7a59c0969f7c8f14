/*
 * template.c -- chat templates and their variables, of up to a megabyte, out of Jinja's grammar, and of the
 * committed ones with changes: each ends within its deadline, as a text or as one line that says why not.
 *
 *     template_fuzz SECONDS [SEED]        in the root of the tree
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "template_parts.h"

#define GOLDEN "test/model/templates/golden.json"

static json_t *sources, *variables;

static const char *any_of(const char *const *words, size_t count)
{
    return words[fuzz_below((uint32_t)count)];
}
#define ANY(words) any_of(words, sizeof words / sizeof *words)

static const char *const signs[] = {"{{ ",
                                    " }}",
                                    "{% ",
                                    " %}",
                                    "{%- ",
                                    " -%}",
                                    "{# ",
                                    " #}",
                                    "(",
                                    ")",
                                    "[",
                                    "]",
                                    "{",
                                    "}",
                                    ",",
                                    ":",
                                    "|",
                                    ".",
                                    "=",
                                    "~",
                                    "'",
                                    "\"",
                                    "\\",
                                    "\n",
                                    " if ",
                                    " else ",
                                    " for ",
                                    " in ",
                                    " is ",
                                    " not ",
                                    " and ",
                                    "{% endfor %}",
                                    "{% endif %}",
                                    "{% if a %}",
                                    "{% for i in l %}",
                                    "{% set x = ",
                                    "{% call(a) f() %}",
                                    "{% endcall %}",
                                    "{% macro f(a) %}",
                                    "{% endmacro %}",
                                    "{% raw %}",
                                    "{% endraw %}",
                                    "9223372036854775807",
                                    "-1",
                                    "1e308",
                                    "\xc3\xa4",
                                    "\xff",
                                    "\r\n",
                                    "{% break %}",
                                    "{% filter upper %}",
                                    "{% endfilter %}",
                                    "caller()",
                                    "loop",
                                    "namespace(",
                                    "range(",
                                    "**",
                                    "//"};

/* ---- The grammar ---- */

static void expression(struct bytes *b, int depth);

static const char *callee_of(const struct callee *all)
{
    uint32_t count = 0;
    while (all[count].name) count++;
    return all[fuzz_below(count)].name;
}

static void literal(struct bytes *b)
{
    static const char *const all[] = {"1",
                                      "0",
                                      "-1",
                                      "7",
                                      "2147483648",
                                      "9223372036854775807",
                                      "0.5",
                                      "1e308",
                                      "true",
                                      "none",
                                      "'a'",
                                      "''",
                                      "' '",
                                      "'\\n'",
                                      "'ab,c'",
                                      "'%s %5d'",
                                      "'{} {0:>9}'",
                                      "[]",
                                      "{}",
                                      "()",
                                      "'\\u00e4'",
                                      "'a' * 100000",
                                      "' ' * 1000000",
                                      "range(3000)",
                                      "range(100000)",
                                      "[1, 2, 3]",
                                      "{'a': 1}"};
    bytes_say(b, "%s", ANY(all));
}

static void name(struct bytes *b)
{
    static const char *const all[] = {"s", "l", "d", "m",      "n",     "messages", "ns",  "loop",
                                      "x", "i", "f", "caller", "tools", "big",      "deep"};
    bytes_say(b, "%s", ANY(all));
}

static void arguments(struct bytes *b, int depth)
{
    static const char *const names[] = {"attribute=", "indent=", "default=", "*",
                                        "**",         "x=",      "reverse=", "width="};
    bytes_say(b, "(");
    for (uint32_t n = fuzz_below(4); n; n--) {
        if (fuzz_chance(10)) bytes_say(b, "%s", ANY(names));
        expression(b, depth - 1);
        if (n > 1) bytes_say(b, ", ");
    }
    bytes_say(b, ")");
}

static void listed(struct bytes *b, int depth, const char *open, const char *close, bool keys)
{
    bytes_say(b, "%s", open);
    for (uint32_t n = fuzz_below(4); n; n--) {
        expression(b, depth - 1);
        if (keys) bytes_say(b, ": "), expression(b, depth - 1);
        bytes_say(b, ", ");
    }
    bytes_say(b, "%s", close);
}

static void operated(struct bytes *b, int depth)
{
    static const char *const all[] = {" + ",  " - ",      " * ",   " / ",  " // ", " % ",
                                      " ** ", " ~ ",      " == ",  " != ", " < ",  " >= ",
                                      " in ", " not in ", " and ", " or ", " if ", " if a else "};
    for (uint32_t n = 1 + (uint32_t)fuzz_size(fuzz_chance(3) ? 400 : 3); n; n--) {
        expression(b, depth - 1);
        bytes_say(b, "%s", ANY(all));
    }
    expression(b, depth - 1);
}

static void filtered(struct bytes *b, int depth)
{
    static const struct callee *const filters[] = {template_filters, template_sequence_filters};
    static const struct callee *const methods[] = {template_string_methods, template_dict_methods,
                                                   template_list_methods, template_loop_methods};
    uint32_t how = fuzz_below(4);
    expression(b, depth - 1);
    if (how == 0) bytes_say(b, ".%s", callee_of(methods[fuzz_below(4)]));
    else if (how == 1) bytes_say(b, " is %s", callee_of(template_tests));
    else if (how == 2) bytes_say(b, " | %s", callee_of(filters[fuzz_below(2)]));
    else
        bytes_say(b, " | %s('%s'", fuzz_chance(50) ? "map" : "select",
                  callee_of(fuzz_chance(50) ? filters[0] : template_tests));
    if (how == 3) bytes_say(b, ")");
    else if (how == 0 || fuzz_chance(50)) arguments(b, depth);
}

static void expression(struct bytes *b, int depth)
{
    if (depth <= 0 || b->size > FUZZ_TEXT / 2) {
        fuzz_chance(50) ? literal(b) : name(b);
        return;
    }
    switch (fuzz_below(12)) {
    case 0: literal(b); break;
    case 1: bytes_say(b, "%s", fuzz_chance(50) ? "not " : "-"), expression(b, depth - 1); break;
    case 2: listed(b, depth, "[", "]", false); break;
    case 3: listed(b, depth, "{", "}", true); break;
    case 4: listed(b, depth, "(", ")", false); break;
    case 5: expression(b, depth - 1), bytes_say(b, "["), expression(b, depth - 1), bytes_say(b, "]"); break;
    case 6:
        expression(b, depth - 1), bytes_say(b, "[%d:", (int)fuzz_below(9) - 4), expression(b, 0),
            bytes_say(b, ":%d]", (int)fuzz_below(5) - 2);
        break;
    case 7: name(b), arguments(b, depth); break;
    case 8: name(b); break;
    case 9: operated(b, depth); break;
    default: filtered(b, depth);
    }
}

static void body(struct bytes *b, int depth);

static void block(struct bytes *b, int depth, const char *open, const char *behind, const char *end)
{
    bytes_say(b, "{%%%s %s ", fuzz_chance(30) ? "-" : "", open);
    if (behind) expression(b, depth > 3 ? 3 : depth);
    bytes_say(b, "%s %%}", behind ? behind : "");
    body(b, depth - 1);
    bytes_say(b, "{%% %s %%}", end);
}

static void statement(struct bytes *b, int depth)
{
    switch (fuzz_below(depth > 0 ? 13 : 3)) {
    case 0: bytes_say(b, "{{ "), expression(b, 3), bytes_say(b, " }}"); break;
    case 1:
        bytes_say(b, "{%% set %s = ", fuzz_chance(50) ? "ns.x" : "s"), expression(b, 4), bytes_say(b, " %%}");
        break;
    case 2: bytes_say(b, "text\n "); break;
    case 3: block(b, depth, "if", "", "endif"); break;
    case 4: block(b, depth, "for i in", "", "endfor"); break;
    case 5: block(b, depth, "for i in range(300)", NULL, "endfor"); break;
    case 6: block(b, depth, "for a, (i, c) in", " if i", "endfor"); break;
    case 7: block(b, depth, "macro f(a, x=1)", NULL, "endmacro"); break;
    case 8: block(b, depth, "call(a, i=2) f", "", "endcall"); break;
    case 9: block(b, depth, "set s", NULL, "endset"); break;
    case 10: block(b, depth, "filter upper | trim", NULL, "endfilter"); break;
    case 11: block(b, depth, "with x =", "", "endwith"); break;
    default: bytes_say(b, "{%% set ns = namespace(x=[], s='') %%}");
    }
}

static void body(struct bytes *b, int depth)
{
    for (uint32_t n = 1 + fuzz_below(3); n && b->size < FUZZ_TEXT / 2; n--) statement(b, depth);
}

/* ---- Cases ---- */

static const json_t *one_of(const json_t *object)
{
    uint32_t k = fuzz_below((uint32_t)json_object_size(object));
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object, key, v) if (!k--) return v;
    return NULL;
}

static void draw_source(struct bytes *b)
{
    bytes_add(b, "", 0);
    if (fuzz_chance(50)) {
        size_t most = fuzz_size(fuzz_chance(20) ? FUZZ_TEXT / 2 : 4000);
        while (b->size < most) statement(b, 1 + (int)fuzz_below(6));
    } else {
        for (uint32_t n = 1 + fuzz_below(2); n; n--) {
            const json_t *s = one_of(sources);
            bytes_add(b, json_string_value(s), json_string_length(s));
        }
    }
    if (fuzz_chance(60))
        for (uint32_t n = 1 + fuzz_below(4); n; n--) bytes_change(b, signs, sizeof signs / sizeof *signs);
}

static json_t *drawn_text(void)
{
    struct bytes b = {0};
    bytes_text(&b);
    json_t *v = json_stringn(b.data, b.size); /* NULL: no UTF-8 */
    free(b.data);
    return v ? v : json_string("?");
}

/* A list of few long things, of many small ones, or in itself again and again. */
static json_t *drawn_list(void)
{
    json_t *all = json_array(), *one = drawn_text();
    size_t many = fuzz_size(fuzz_chance(20) ? 100000 : 20);
    for (size_t i = 0; i < many; i++)
        json_array_append_new(all, i % 3 ? json_integer((json_int_t)i) : json_incref(one));
    json_decref(one);
    for (size_t deep = fuzz_chance(20) ? fuzz_size(400) : 0; deep; deep--) {
        json_t *around = fuzz_chance(50) ? json_pack("[o]", all) : json_pack("{s:o}", "a", all);
        all = around;
    }
    return all;
}

static json_t *draw_variables(void)
{
    json_t *all = json_deep_copy(one_of(variables));
    static const char *const names[] = {"s", "l", "d", "m", "n", "big", "deep", "tools", "x"};
    for (uint32_t n = fuzz_below(4); n; n--)
        json_object_set_new(all, ANY(names), fuzz_chance(50) ? drawn_text() : drawn_list());
    if (fuzz_chance(20)) {
        json_t *text = drawn_text();
        json_object_set_new(all, "messages",
                            json_pack("[{s:s, s:O}, {s:s, s:O}]", "role", "user", "content", text, "role",
                                      "assistant", "content", text));
        json_decref(text);
    }
    return all;
}

static void one_case(void)
{
    struct bytes source = {0};
    struct fault f = {""};
    char *text = NULL;
    draw_source(&source);
    json_t *with = draw_variables();
    double limit = fuzz_chance(80) ? TEMPLATE_SECONDS : 0.01 * (1 + fuzz_below(50)), begin = fuzz_now();
    struct template *t = template_parse(source.data, source.size, &f);
    struct deadline deadline = deadline_in(limit, NULL);
    int n = t ? template_render(t, with, &deadline, &text, &f) : REFUSED_INPUT;
    fuzz_took(fuzz_now() - begin, limit);
    fuzz_holds(n >= 0 ? text && strlen(text) <= (size_t)n && n <= TEMPLATE_OUTPUT
                      : !text && *f.text && n >= REFUSED_MEMORY,
               "neither a text nor a line");
    fuzz_holds(n >= 0 || !strchr(f.text, '\n'), "more than one line");
    if (n >= 0) fuzz_worked();
    template_free(t);
    json_decref(with);
    free(source.data);
    free(text);
}

int main(int argc, char **argv)
{
    json_t *golden = json_load_file(GOLDEN, 0, NULL);
    sources = json_object_get(golden, "sources");
    variables = json_object_get(golden, "variables");
    int status = golden ? fuzz_main(argc, argv, one_case) : 2;
    json_decref(golden);
    return status;
}
