/*
 * template_work.c -- whatever a chat template does again and again, with operands of a megabyte, it runs out
 * of steps, however it is called; deadlines; and the stack that templates need at their deepest.
 *
 * Each thing of the interpreter's own tables is called here, so that a new one is, too. A guard of time ends
 * the test where one goes on for ever.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model_test.h"
#include "template_parts.h"
#include "tensor.h"

enum { GUARD_SECONDS = 120 };

static char running[400]; /* what the guard names */

static void too_long(int signal)
{
    (void)signal;
    ssize_t n = write(1, running, strlen(running));
    _exit(n < 0 ? 2 : 1);
}

/* What is set before each; none is there without what the others are made of. */
static const char operands[] =
    "{% set s = 'a' * 1000000 %}{% set r = 'ab ' * 200000 ~ 'ab' %}{% set t = 'a' * 1000000 ~ 'b' %}"
    "{% set c = 'b' * 100000 ~ 'a' %}{% set h = 'a' * 500000 %}{% set w = '\\u00e4' * 300000 %}"
    "{% set l = range(30000) | list %}{% set m = [s, s] * 1000 %}"
    "{% set d = {'a': s, s: 1, t: 2, w: 3} %}{% set n = 9223372036854775807 %}"
    "{% for i in range(3000) %}{% for j in range(3000) %}";
static const char endless_loop[] = "{{ i }}";
static const char behind[] = "{% endfor %}{% endfor %}";

static bool full(void) { return getenv("CODA_FULL") != NULL; }

/* Whether the result is a text, or a line; never a refusal that is not asked for. */
static void run(const char *what, const struct deadline *deadline, int wanted)
{
    char source[2000];
    struct fault f = {""};
    char *text = NULL;
    json_t *none = json_object();
    snprintf(source, sizeof source, "%s%s%s", operands, what, behind);
    struct template *t = template_parse(source, strlen(source), &f);
    snprintf(running, sizeof running, "template_work: %.300s: no end after %d s\n", what, GUARD_SECONDS);
    alarm(GUARD_SECONDS);
    int n = t ? template_render(t, none, deadline, &text, &f) : REFUSED_INPUT;
    alarm(0);
    CHECK(n == wanted && !text, "%s: %d, not %d: %s", what, n, wanted, f.text);
    bool endless = !strcmp(what, endless_loop) && wanted == REFUSED_INPUT; /* operands are not what fails */
    CHECK(!endless || strstr(f.text, "4000000 steps"), "%s: %s", what, f.text);
    template_free(t);
    free(text);
    json_decref(none);
}

static const char *any(const char *const *of, size_t count, uint64_t *seed)
{
    return of[(size_t)(uniform(seed) * (double)count)];
}

static const char *operand(uint64_t *seed)
{
    static const char *const all[] = {"s", "r", "t", "c", "h", "w", "l", "m", "d", "n", "3", "'a'", "''"};
    return any(all, sizeof all / sizeof *all, seed);
}

/* One call of it, of an operand that it takes: with that alone, and as many arguments as it has names for. */
static void call(const struct callee *of, const char *form, const char *self, uint64_t *seed)
{
    char arguments[200] = "", what[400];
    size_t n = 0;
    for (const char *p = of->parameters; *p && n < 100; p += strcspn(p, " "), p += *p == ' ')
        n += (size_t)snprintf(arguments + n, sizeof arguments - n, "%s%s", n ? ", " : "", operand(seed));
    if (uniform(seed) < 0.3) *arguments = 0;
    snprintf(what, sizeof what, form, self, of->name, arguments);
    run(what, NULL, REFUSED_INPUT);
}

static void calls(const struct callee *all, const char *form, const char *self, uint64_t *seed)
{
    for (const struct callee *of = all; of->name; of++)
        if (strspn(of->name, "=!") == 0 && (full() || uniform(seed) < 0.25))
            call(of, form, self ? self : operand(seed), seed);
}

static void test_calls(uint64_t *seed)
{
    static const char *const strings[] = {"s", "r", "t", "w"};
    calls(template_filters, "{%% set x = %s | %s(%s) %%}", NULL, seed);
    calls(template_filters, "{%% set x = %s | %s(%s) %%}", any(strings, 4, seed), seed);
    calls(template_sequence_filters, "{%% set x = %s | %s(%s) %%}", NULL, seed);
    calls(template_sequence_filters, "{%% set x = %s | %s(%s) | list %%}", "m", seed);
    calls(template_tests, "{%% set x = %s is %s(%s) %%}", NULL, seed);
    calls(template_tests, "{%% set x = %s is %s(%s) %%}", any(strings, 4, seed), seed);
    calls(template_string_methods, "{%% set x = %s.%s(%s) %%}", any(strings, 4, seed), seed);
    calls(template_dict_methods, "{%% set x = %s.%s(%s) %%}", "d", seed);
    calls(template_list_methods, "{%% set x = %s.%s(%s) %%}", any((const char *const[]){"l", "m"}, 2, seed),
          seed);
    calls(template_loop_methods, "{%% set x = %s.%s(%s) %%}", "loop", seed);
}

/* The worst that is known of each: texts alike but for their ends, both long; what stands in a list often. */
static void test_worst(uint64_t *seed)
{
    static const char *const all[] = {
        "{% set x = s.strip(c) %}",
        "{% set x = s | trim(c) %}",
        "{% set x = s.rstrip(c) %}",
        "{% set x = s.rfind(h ~ 'b') %}",
        "{% set x = s.find(h ~ 'b') %}",
        "{% set x = s.rsplit(h) %}",
        "{% set x = s.rsplit('a', 1) %}",
        "{% set x = r.split() %}",
        "{% set x = s.split(h) %}",
        "{% set x = s.count(h ~ 'b') %}",
        "{% set x = s.replace(h ~ 'b', s) %}",
        "{% set x = s.splitlines() %}",
        "{% set x = s.startswith((s, s, s, t)) %}",
        "{% set x = s == 'a' * 1000000 %}",
        "{% set x = s < t %}",
        "{% set x = t in m %}",
        "{% set x = (h ~ 'b') in s %}",
        "{% set x = m == m %}",
        "{% set x = m < m %}",
        "{% set x = s is lower %}",
        "{% set x = w is upper %}",
        "{% set x = s.isspace() or s.isdigit() %}",
        "{% set x = w[-1] %}",
        "{% set x = w[5:-5] %}",
        "{% set x = s[::-1] %}",
        "{% set x = l[::-1] %}",
        "{% set x = w | length %}",
        "{% set x = s | upper %}",
        "{% set x = w | title %}",
        "{% set x = s | e %}",
        "{% set x = m | tojson %}",
        "{% set x = m | string %}",
        "{% set x = m ~ '' %}",
        "{% set x = d | tojson %}",
        "{% set x = d[s] %}",
        "{% set x = d.get(t) %}",
        "{% set x = d | dictsort %}",
        "{% set x = m | sort %}",
        "{% set x = m | unique | list %}",
        "{% set x = m | min %}",
        "{% set x = l | sum %}",
        "{% set x = s | list %}",
        "{% set x = m | join %}",
        "{% set x = s | indent(1000) %}",
        "{% set x = '%s' % s %}",
        "{% set x = '{:>9}'.format(s) %}",
        "{% set x = s % () %}",
        "{% set x = s.format() %}",
        "{% set x = '' * n %}",
        "{% set x = 1 ** n %}",
        "{% set x = [] * n %}",
        "{% set x = dict(d) %}",
        "{% set x = namespace(d) %}",
        "{% set x = m | select('equalto', t) | list %}",
        "{% set x = m | map('length') | list %}",
        "{% set x = loop.changed(s) %}",
        "{% set x = loop.changed(m) %}",
        "{% set x %}{{ s }}{% endset %}",
        "{% filter length %}{{ s }}{% endfilter %}",
        "{% set x = s | int %}",
        "{% set x = ' ' * 1000000 | int %}",
        "{% macro f(a) %}{{ caller(a) }}{% endmacro %}{% call(b) f(s) %}{{ b }}{% endcall %}",
        "{% for k in s %}{% break %}{% endfor %}",
        "{% set x = s | first %}",
        "{% set x = m | last %}"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (full() || uniform(seed) < 0.4) run(all[i], NULL, REFUSED_INPUT);
}

static void test_deadlines(void)
{
    atomic_bool yes = true, no = false;
    const struct deadline past = {1, &no}, cancelled = {INT64_MAX, &yes}, later = deadline_in(3600, &no);
    run(endless_loop, &past, REFUSED_LATE);
    run("{% set x = s.strip(c) %}", &past, REFUSED_LATE);
    run(endless_loop, &cancelled, REFUSED_CANCELLED);
    run(endless_loop, &later, REFUSED_INPUT);
}

/* ---- What families' templates make of a megabyte is within all limits ---- */

static json_t *chat(int messages)
{
    enum { BYTES = 1000000 };
    size_t each = BYTES / (size_t)messages;
    char *text = malloc(each);
    json_t *all = json_array();
    for (size_t i = 0; i < each; i++) text[i] = "a quick brown fox.\n"[i % 19];
    for (int i = 0; i < messages; i++)
        json_array_append_new(
            all, json_pack("{s:s, s:s%}", "role", i % 2 ? "assistant" : "user", "content", text, each));
    free(text);
    return json_pack("{s:o, s:s, s:s, s:b, s:n, s:n}", "messages", all, "bos_token", "<s>", "eos_token",
                     "</s>", "add_generation_prompt", true, "tools", "documents");
}

static void test_honest(const char *tiny)
{
    static const int messages[] = {1, 501, 8001};
    char path[512];
    const char *name;
    json_t *source;
    snprintf(path, sizeof path, "%s/../templates/golden.json", tiny);
    json_t *golden = json_load_file(path, 0, NULL);
    json_object_foreach(json_object_get(golden, "sources"), name, source) for (int i = 0; i < 3; i++)
    {
        struct fault f = {""};
        char *text = NULL;
        json_t *with = strstr(name, ".jinja") ? chat(messages[i]) : NULL;
        struct template *t =
            with ? template_parse(json_string_value(source), json_string_length(source), &f) : NULL;
        int n = t ? template_render(t, with, NULL, &text, &f) : 0;
        CHECK(!with || n > 900000, "%s: %d messages: %d, %s", name, messages[i], n, f.text);
        template_free(t);
        json_decref(with);
        free(text);
    }
    json_decref(golden);
}

/* ---- As deep as may be, and deeper, on a small stack ---- */

#if defined __SANITIZE_ADDRESS__
enum { STACK = 4 << 20 }; /* frames of the sanitizer are larger */
#else
enum { STACK = 256 << 10 };
#endif

/* `many` times `open`, `core`, `many` times `close`, between `before` and `behind_it`. */
struct deep {
    const char *before, *open, *core, *close, *behind_it;
};

static char *nested(const struct deep *d, size_t many)
{
    size_t size = strlen(d->before) + many * (strlen(d->open) + strlen(d->close)) + strlen(d->core) +
                  strlen(d->behind_it) + 1;
    char *s = malloc(size), *at = stpcpy(s, d->before);
    for (size_t i = 0; i < many; i++) at = stpcpy(at, d->open);
    at = stpcpy(at, d->core);
    for (size_t i = 0; i < many; i++) at = stpcpy(at, d->close);
    strcpy(at, d->behind_it);
    return s;
}

static void *test_deep(void *many)
{
    static const struct deep all[] = {
        {"{% set ", "(", "a", ")", " = 1 %}"},
        {"{% for ", "(", "a", ")", " in [] %}{% endfor %}"},
        {"{{ ", "(", "a", ")", " }}"},
        {"{{ ", "[", "a", "]", " | tojson == [] }}"},
        {"{{ ", "{1: ", "a", "}", " }}"},
        {"{{ ", "- ", "1", "", " }}"},
        {"{{ ", "not ", "1", "", " }}"},
        {"{{ ", "a(", "1", ")", " }}"},
        {"{{ a", "[a", "", "]", " }}"},
        {"{{ a", " | default(a", "", ")", " }}"},
        {"{{ a", " is eq [a", "", "]", " }}"},
        {"{{ a", " | default", "", "", " }}"},
        {"{{ 1", " + 1", "", "", " }}"},
        {"{{ 1", " if a else 1", "", "", " }}"},
        {"{{ 1", " ~ (1", "", ")", " }}"},
        {"{{ a", ".a", "", "", " }}"},
        {"", "{% if true %}", "x", "{% endif %}", ""},
        {"", "{% for i in [1] %}", "{{ [[1]] }}", "{% endfor %}", ""},
        {"", "{% filter upper %}", "x", "{% endfilter %}", ""},
        {"", "{% set x %}", "x", "{% endset %}", ""},
        {"", "{% with a = 1 %}", "x", "{% endwith %}", ""},
        {"{% macro f() %}{{ caller() }}{% endmacro %}", "{% call f() %}", "x", "{% endcall %}", ""},
        {"", "{% macro f(a=1) %}", "{{ f() }}", "{% endmacro %}", ""},
        {"{% if a %}", "{% elif a %}", "", "", "{% else %}x{% endif %}"},
        {"{% macro f(x) %}{{ f([x]) | upper | lower }}{% endmacro %}{{ f(1) }}", "", "", "", ""},
        {"{% set n = namespace(l=[]) %}{% for i in range(290) %}{% set n.l = [n.l] %}{% endfor %}", "", "",
         "", "{{ n.l }}{{ n.l | tojson(indent=1) }}{{ n.l == [[]] }}{{ n.l < [n.l] }}"},
        {"{% set n = namespace(l=[]) %}{% for i in range(99) %}{% set n.l = [n.l] %}{% endfor %}", "", "", "",
         "{{ n.l | map('map', 'map', 'map', 'map', 'map', 'map', 'map') | list }}"},
    };
    struct fault f = {""};
    char *text;
    json_t *none = json_object();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *source = nested(&all[i], *(size_t *)many);
        struct template *t = template_parse(source, strlen(source), &f);
        if (t && template_render(t, none, NULL, &text, &f) >= 0) free(text);
        template_free(t);
        free(source);
    }
    json_decref(none);
    return NULL;
}

void test_template_depth(const char *tiny, const char *scratch)
{
    (void)tiny, (void)scratch;
    static size_t many[] = {40, 98, 290, 20000};
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        bool runs = !pthread_create(&thread, &small, test_deep, &many[i]);
        CHECK(runs, "no thread with a stack of %d bytes", STACK);
        if (runs) pthread_join(thread, NULL);
    }
    pthread_attr_destroy(&small);
}

void test_template_work(const char *tiny, const char *scratch)
{
    const char *given = getenv("CODA_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    (void)scratch;
    test_honest(tiny);
    signal(SIGALRM, too_long);
    test_deadlines();
    test_worst(&seed);
    for (int n = full() ? 20 : 1; n; n--) test_calls(&seed);
}
