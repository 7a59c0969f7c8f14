/*
 * pattern.c -- strings and regular expressions that a text is searched for.
 *
 * The files' expressions are Oniguruma's, with Ruby's syntax; they run here in PCRE2, in UTF-8. A construct
 * passes only if both mean the same by it, or if it is written out in PCRE2's terms: \s, \w and \d are
 * other sets there.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_parts.h"

/* What is inside of [...] for each of them. */
#define SPACES                                                                                               \
    "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define DIGITS "\\p{Nd}"
#define WORDS                                                                                                \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"         \
    "\\x{1f170}-\\x{1f189}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

/* A translation that is under way. */
struct rewriting {
    const char *from, *end;
    struct text to;
    bool class;
};

static void put(struct text *t, const char *s) { text_add(t, s, strlen(s)); }

/* Whether the text goes on with s. */
static bool ahead(const struct rewriting *r, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(r->end - r->from) >= n && memcmp(r->from, s, n) == 0;
}

/* \s and the like. The opposite of a set cannot stand in a class. */
static bool put_set(struct rewriting *r, const char *set, bool opposite)
{
    if (r->class && opposite) return false;
    if (!r->class) put(&r->to, opposite ? "[^" : "[");
    put(&r->to, set);
    if (!r->class) put(&r->to, "]");
    return true;
}

/* \p{Lu}: a category of one or two letters is PCRE2's; a longer name is a script. */
static bool put_property(struct rewriting *r, char p)
{
    const char *close =
        r->from < r->end && *r->from == '{' ? memchr(r->from, '}', (size_t)(r->end - r->from)) : NULL;
    if (!close || close - r->from < 2 || close - r->from > 32) return false;
    for (const char *s = r->from + 1; s < close; s++)
        if (!plain_letter(*s) && *s != '_') return false;
    text_char(&r->to, '\\');
    text_char(&r->to, (unsigned char)p);
    put(&r->to, close - r->from > 3 ? "{sc:" : "{");
    text_add(&r->to, r->from + 1, (size_t)(close - r->from));
    r->from = close + 1;
    return true;
}

/* \uHHHH */
static bool put_code(struct rewriting *r)
{
    for (int i = 0; i < 4; i++)
        if (r->end - r->from <= i || !plain_hex(r->from[i])) return false;
    put(&r->to, "\\x{");
    text_add(&r->to, r->from, 4);
    put(&r->to, "}");
    r->from += 4;
    return true;
}

static bool put_escape(struct rewriting *r)
{
    if (r->from == r->end) return false;
    char c = *r->from++;
    switch (c) {
    case 's': return put_set(r, SPACES, false);
    case 'S': return put_set(r, SPACES, true);
    case 'd': return put_set(r, DIGITS, false);
    case 'D': return put_set(r, DIGITS, true);
    case 'w': return put_set(r, WORDS, false);
    case 'W': return put_set(r, WORDS, true);
    case 'p':
    case 'P': return put_property(r, c);
    case 'u': return put_code(r);
    default: break;
    }
    if (!strchr("rnt", c) && !plain_mark(c)) return false;
    text_char(&r->to, '\\');
    text_add(&r->to, &c, 1);
    return true;
}

static bool put_in_class(struct rewriting *r, char c)
{
    if (c == '[' || (c == '&' && ahead(r, "&"))) return false; /* classes in classes, and what both have */
    r->class = c != ']';
    text_add(&r->to, &c, 1);
    return true;
}

static bool open_class(struct rewriting *r)
{
    bool opposite = ahead(r, "^");
    r->from += opposite;
    put(&r->to, opposite ? "[^" : "[");
    return r->class = !ahead(r, "]");
}

static bool open_group(struct rewriting *r)
{
    static const char *const kinds[] = {"?:", "?i:", "?!", "?=", "?<=", "?<!", "?>"};
    put(&r->to, "(");
    if (!ahead(r, "?")) return true;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ahead(r, kinds[i])) return put(&r->to, kinds[i]), r->from += strlen(kinds[i]), true;
    return false;
}

/* {2} or {1,3}. Behind it Ruby's + and ? mean something else than Perl's. */
static bool put_count(struct rewriting *r)
{
    const char *start = r->from;
    while (r->from < r->end && (plain_digit(*r->from) || *r->from == ',')) r->from++;
    if (!plain_digit(*start) || !ahead(r, "}")) return false;
    r->from++;
    put(&r->to, "{");
    text_add(&r->to, start, (size_t)(r->from - start));
    return !ahead(r, "+") && !ahead(r, "?");
}

static bool put_next(struct rewriting *r)
{
    char c = *r->from++;
    if (c == '\\') return put_escape(r);
    if (r->class) return put_in_class(r, c);
    if (c == '[') return open_class(r);
    if (c == '(') return open_group(r);
    if (c == '{') return put_count(r);
    if (c == '^' || c == '$' || c == '.' || c == '\0') return false;
    text_add(&r->to, &c, 1);
    return true;
}

static bool compile(struct pattern *p, const struct text *t, const char *text, size_t n, struct complaint *c)
{
    int code;
    size_t at;
    uint32_t empty = 0;
    p->regex = pcre2_compile((PCRE2_SPTR)t->data, t->size, PCRE2_UTF | PCRE2_UCP | PCRE2_AUTO_CALLOUT, &code,
                             &at, NULL);
    if (!p->regex) {
        char why[120] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return complain(c, "regular expression '%.*s': %s", (int)(n < 200 ? n : 200), text, why);
    }
    pcre2_pattern_info(p->regex, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty)
        return complain(c, "regular expression '%.*s' matches nothing", (int)(n < 200 ? n : 200), text);
    pcre2_jit_compile(p->regex, PCRE2_JIT_COMPLETE); /* where it cannot, the interpreter runs */
    return true;
}

bool pattern_regex(struct pattern *p, const char *text, size_t n, struct complaint *c)
{
    struct rewriting r = {text, text + n, {0}, false};
    bool good = true;
    while (good && r.from < r.end) good = put_next(&r);
    if (!good) {
        int at = (int)(r.from - text);
        complain(c, "regular expression '%.*s' has something that is not known before character %d",
                 (int)(n < 200 ? n : 200), text, at);
    } else if (r.to.failed) good = complain(c, "no memory");
    else if (n == 0) good = complain(c, "a regular expression is empty");
    else good = compile(p, &r.to, text, n, c);
    text_free(&r.to);
    return good;
}

bool pattern_literal(struct pattern *p, const char *text, size_t n, struct complaint *c)
{
    if (n == 0) return complain(c, "a pattern is an empty string");
    p->literal = malloc(n);
    if (!p->literal) return complain(c, "no memory");
    memcpy(p->literal, text, n);
    p->size = n;
    return true;
}

void pattern_free(struct pattern *p)
{
    free(p->literal);
    if (p->regex) pcre2_code_free(p->regex);
    *p = (struct pattern){0};
}

/* ---- Matching: PCRE2 calls back before each item of an expression that it tries ---- */

enum { HEAP_KIB = 64 << 10 }; /* where the compiled code's stack is too small */

struct matching {
    struct work *work;
    size_t at; /* in the text, when it called last */
};

/* How far it has gone since, and back, is counted, too: so a loop over single characters, which calls once,
 * is. This is what PCRE2's own limit does not do, which begins anew wherever a match may start. */
static int count_step(pcre2_callout_block *b, void *matching)
{
    enum { BYTES_A_STEP = 8 };
    struct matching *m = matching;
    size_t to = b->current_position, moved = to > m->at ? to - m->at : m->at - to;
    m->at = to;
    return work_do(m->work, 1 + moved / BYTES_A_STEP) ? 0 : PCRE2_ERROR_CALLOUT;
}

struct search {
    pcre2_match_data *data;
    pcre2_match_context *context;
    struct matching matching;
};

static bool search_begin(struct search *s, struct work *w)
{
    s->matching = (struct matching){.work = w};
    s->data = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    if (!s->data || !s->context) return work_fail(w, REFUSED_MEMORY);
    pcre2_set_callout(s->context, count_step, &s->matching);
    pcre2_set_match_limit(s->context, UINT32_MAX);
    pcre2_set_heap_limit(s->context, HEAP_KIB);
    return true;
}

static void search_end(struct search *s)
{
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
}

/* From byte `at` on: 1 and the next match, 0 if there is none, or negative. */
static int next_match(const struct pattern *p, struct search *r, const char *s, size_t n, size_t at,
                      struct span *found)
{
    PCRE2_SPTR text = (PCRE2_SPTR)s;
    r->matching.at = at;
    int rc = pcre2_match(p->regex, text, n, at, PCRE2_NO_UTF_CHECK, r->data, r->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->regex, text, n, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, r->data, r->context);
    if (rc < 0) return rc == PCRE2_ERROR_NOMATCH ? 0 : -1;
    size_t *ends = pcre2_get_ovector_pointer(r->data);
    *found = (struct span){ends[0], ends[1], true};
    return ends[1] > ends[0] ? 1 : -1;
}

static int next_literal(const struct pattern *p, struct work *w, const char *s, size_t n, size_t at,
                        struct span *found)
{
    const char *hit = memmem(s + at, n - at, p->literal, p->size);
    if (!hit) return 0;
    *found = (struct span){(size_t)(hit - s), (size_t)(hit - s) + p->size, true};
    return work_do(w, 1) ? 1 : -1;
}

void pattern_spans(const struct pattern *p, const char *s, size_t n, struct work *w, struct spans *out)
{
    struct search search = {0};
    struct span found = {0};
    size_t at = 0;
    bool text = !w->raw || !p->regex || unicode_valid(s, n); /* in bytes that are none there is no match */
    int more = !text ? 0 : p->regex && !search_begin(&search, w) ? -1 : 1;
    while (more > 0 && at < n && !out->failed) {
        more = p->regex ? next_match(p, &search, s, n, at, &found) : next_literal(p, w, s, n, at, &found);
        if (more <= 0) break;
        if (found.from > at) spans_add(out, at, found.from, false);
        spans_add(out, found.from, found.to, true);
        at = found.to;
    }
    if (more < 0) out->failed = true;
    if (more < 0) work_fail(w, REFUSED_INPUT);
    if (at < n) spans_add(out, at, n, false);
    search_end(&search);
}
