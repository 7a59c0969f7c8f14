/*
 * templates.c -- chat templates against jinja2's texts; limits; bytes that are changed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model_test.h"
#include "template.h"
#include "tensor.h"

/* Text, or NULL and a fault. */
static char *rendered(const char *source, size_t size, const json_t *variables, size_t *bytes,
                      struct fault *f)
{
    f->text[0] = 0;
    struct template *t = template_parse(source, size, f);
    char *text = NULL;
    int n = t ? template_render(t, variables, NULL, &text, f) : REFUSED_INPUT;
    if (bytes && n >= 0) *bytes = (size_t)n;
    template_free(t);
    return text;
}

struct golden {
    json_t *sources, *variables, *cases;
};

/* What a case calls so, of the file's sources or variables. */
static const json_t *part(const json_t *of, const json_t *one, const char *member)
{
    return json_object_get(of, json_string_value(json_object_get(one, member)));
}

static void compare(const struct golden *g, const json_t *one)
{
    const json_t *source = part(g->sources, one, "source"), *want = json_object_get(one, "text");
    const char *name = json_string_value(json_object_get(one, "source"));
    struct fault f;
    size_t bytes = 0;
    char *text = rendered(json_string_value(source), json_string_length(source),
                          part(g->variables, one, "variables"), &bytes, &f);
    if (!want) {
        CHECK(!text && strstr(f.text, "line "), "%s: '%s' should fail, and name the line: %s", name,
              text ? text : "", f.text);
    } else {
        bool same =
            text && bytes == json_string_length(want) && !memcmp(text, json_string_value(want), bytes);
        CHECK(same, "%s: '%s', not '%s'; %s", name, text ? text : "", json_string_value(want), f.text);
    }
    free(text);
}

static void fails(const char *source, const char *because)
{
    struct fault f;
    json_t *none = json_object();
    char *text = rendered(source, strlen(source), none, NULL, &f);
    CHECK(!text && strstr(f.text, because), "%.60s: '%s', where '%s' was expected", source, f.text, because);
    free(text);
    json_decref(none);
}

/* A template that would not end, or fill memory, or go too deep. */
static void test_limits(void)
{
    enum { DEEP = 5000 };
    char *deep = malloc(2 * DEEP + 16);
    sprintf(deep, "{{ %0*d%0*d }}", DEEP, 1, DEEP, 1);
    memset(deep + 3, '(', DEEP);
    memset(deep + 3 + DEEP, ')', DEEP);
    fails(deep, "more than 100 levels");
    for (int i = 0; i < 2 * DEEP; i += 2) memcpy(deep + 3 + i, ".a", 2);
    deep[3] = 'x';
    fails(deep, "more than 300 levels");
    free(deep);
    fails("{% for i in range(3000) %}{% for j in range(3000) %}{% endfor %}{% endfor %}", "more than");
    fails("{{ range(99999999) | length }}", "more than");
    fails("{% set l = range(2000) | list %}{% for i in l %}{{ l | select('gt', 1) | list == l }}{% endfor %}",
          "more than");
    fails("{% set n = namespace(s='0123456789') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor "
          "%}",
          "bytes");
    fails("{% set n = namespace(l=[1]) %}{% for i in range(40) %}{% set n.l = n.l + n.l %}{% endfor %}",
          "more than");
    fails("{% set n = namespace(l=[]) %}{% for i in range(40) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l "
          "}}",
          "more than");
    fails("{{ 'x' * 99999999999 }}", "bytes");
    fails("{% set a = 'x' * 1000000 %}{{ a.replace('x', a) }}", "bytes");
    fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels");
    fails("line\n\n{% if x %}\n{{ x.y }}\n{% endif %}\n{{ x.y }}", "line 6: 'x' is undefined");
    fails("a\n{% if x %}\n\n", "line 3: the template ends before");
    fails("{{ raise_exception('no \xff') }}", "no UTF-8");
    fails("\n{% include 'x' %}", "line 2: tag 'include' is not supported");
    fails("{{ 9223372036854775807 + 1 }}", "too large");
    fails("{{ 1.5 | round(301) }}", "round to 301 places");
    fails("{{ 1e300 | round(200, 'ceil') }}", "too large");
}

/* ---- Bytes that change, are lost, or come again: whatever is made of it, it is a text or a line ---- */

static const json_t *drawn(const json_t *cases, uint64_t *seed)
{
    return json_array_get(cases, (size_t)(uniform(seed) * (double)json_array_size(cases)));
}

/* Changes a byte, doubles some, or takes some out. `room` is more than n by 64. */
static size_t changed(char *s, size_t n, size_t room, uint64_t *seed)
{
    static const char signs[] = "{}%#|.-+~()[]'\"\\\n:,=<>*/0 i";
    size_t at = (size_t)(uniform(seed) * (double)n), some = (size_t)(uniform(seed) * (double)(n - at));
    double how = uniform(seed);
    if (how < 0.4) {
        s[at] = signs[(size_t)(uniform(seed) * (sizeof signs - 1))];
    } else if (how < 0.7 && n + 40 < room && some > 0) {
        some = some < 32 ? some : 32;
        memmove(s + at + some, s + at, n - at);
        n += some;
    } else {
        memmove(s + at, s + at + some, n - at - some);
        n -= some;
    }
    return n;
}

static void fuzz(const struct golden *g, uint64_t *seed)
{
    const json_t *source = part(g->sources, drawn(g->cases, seed), "source");
    const json_t *variables = part(g->variables, drawn(g->cases, seed), "variables");
    size_t n = json_string_length(source), room = 2 * n + 64;
    char *s = malloc(room);
    struct fault f;
    memcpy(s, json_string_value(source), n + 1);
    for (int changes = 1 + (int)(uniform(seed) * 4); changes && n; changes--) n = changed(s, n, room, seed);
    char *text = rendered(s, n, variables, NULL, &f);
    CHECK(text || *f.text, "no text, and no fault");
    CHECK(!text || strlen(text) <= TEMPLATE_OUTPUT, "a text that is too long");
    free(text);
    free(s);
}

void test_templates(const char *tiny, const char *scratch)
{
    char path[512];
    json_error_t e = {0};
    const char *given = getenv("CODA_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    snprintf(path, sizeof path, "%s/../templates/golden.json", tiny);
    (void)scratch;
    json_t *golden = json_load_file(path, 0, &e), *one;
    struct golden g = {json_object_get(golden, "sources"), json_object_get(golden, "variables"),
                       json_object_get(golden, "cases")};
    size_t i;
    CHECK(json_array_size(g.cases) > 100, "%s: %s", path, e.text);
    json_array_foreach(g.cases, i, one) compare(&g, one);
    test_limits();
    for (int n = getenv("CODA_FULL") ? 200000 : 3000; n && json_array_size(g.cases); n--) fuzz(&g, &seed);
    json_decref(golden);
}
