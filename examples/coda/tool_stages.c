/* tool_stages.c -- reads CODA_TEXT_STAGES, and says what each stage has that the one before it has not. */
#include <stdlib.h>
#include <string.h>

#include "tool_stages.h"

/* ---- Lines ---- */

static void *grown(void *list, int n, size_t size)
{
    return n & (n - 1) ? list : realloc(list, (size_t)(n ? 2 * n : 1) * size); /* at powers of two */
}
#define ROOM(list, n) ((list) = grown(list, n, sizeof *(list)))

static int find_value(const struct stage *g, const char *name, size_t size)
{
    for (int i = g->values - 1; i >= 0; i--)
        if (!strncmp(g->value[i].name, name, size) && !g->value[i].name[size]) return i;
    return -1;
}

/* Ends the word at *s, and goes behind the blanks after it. */
static char *take_word(char **s)
{
    char *word = *s, *end = word + strcspn(word, " ");
    *s = end + strspn(end, " ");
    *end = 0;
    return word;
}

static void take_operands(struct value *v, const struct stage *g, char **s)
{
    while (**s == '%' || **s == '_') {
        size_t n = strcspn(*s, ", ");
        if (v->ins < MOST_OPERANDS) v->in[v->ins++] = **s == '_' ? -1 : find_value(g, *s, n);
        *s += n;
        *s += strspn(*s, ", ");
    }
}

/* What follows the operands: "{..} @%2 @scope  ; type". */
static void take_rest(struct value *v, char *s)
{
    while (*s) {
        char *next = s + 1;
        if (*s == '{') {
            size_t depth = 0;
            for (next = s; *next; next++) {
                depth += *next == '{', depth -= *next == '}';
                if (!depth) break;
            }
            v->attributes = s;
            if (*next) next++;
        } else if (*s == '@') {
            next = s + strcspn(s, " ");
            if (s[1] != '%') v->scope = s + 1;
        } else if (*s == ';') {
            v->type = s + 1 + strspn(s + 1, " ");
            return;
        }
        if (*next) *next++ = 0;
        s = next + strspn(next, " ");
    }
}

static bool read_value(struct stage *g, char *line)
{
    static const char *const leaves[] = {"input", "weight", "state", "scalar"};
    char *s = strstr(line, " = ");
    if (!s || !ROOM(g->value, g->values)) return false;
    struct value *v = &g->value[g->values];
    *v = (struct value){.name = line, .attributes = "", .type = "", .scope = "", .program = NO_PROGRAM};
    *s = 0, s += 3;
    v->op = take_word(&s);
    for (int i = 0; i < 4; i++) v->leaf = v->leaf || !strcmp(v->op, leaves[i]);
    if (v->leaf) v->type = take_word(&s);
    else take_operands(v, g, &s);
    take_rest(v, s);
    g->values++;
    return true;
}

static bool read_result(struct stage *g, char *line)
{
    char *s = line;
    if (!ROOM(g->result, g->results)) return false;
    struct result *r = &g->result[g->results++];
    r->name = take_word(&s);
    take_word(&s); /* "=", "+=" */
    r->value = find_value(g, s, strcspn(s, " "));
    return true;
}

static bool read_note(struct stage *g, char *line)
{
    if (!ROOM(g->note, g->notes)) return false;
    struct note *n = &g->note[g->notes++];
    n->kind = take_word(&line);
    n->text = line;
    return true;
}

/* "program 3: 512 bytes, 0 flops: %7 %8" */
static bool read_program(struct stages *s, char *line)
{
    const struct stage *g = &s->stage[s->stages - 1];
    if (!ROOM(s->program, s->programs)) return false;
    struct work *w = &s->program[s->programs];
    *w = (struct work){0};
    take_word(&line), take_word(&line);
    w->bytes = take_word(&line), take_word(&line);
    w->flops = take_word(&line), take_word(&line);
    while (*line) {
        const char *name = take_word(&line);
        int v = find_value(g, name, strlen(name));
        if (v < 0) continue;
        if (!ROOM(w->member, w->members)) return false;
        w->member[w->members++] = v;
        if (g->value[v].program == NO_PROGRAM) g->value[v].program = s->programs;
    }
    s->programs++;
    return true;
}

static bool begin_stage(struct stages *s, char *name)
{
    if (!ROOM(s->stage, s->stages)) return false;
    s->stage[s->stages++] = (struct stage){.name = name};
    return true;
}

static bool read_line(struct stages *s, char *line)
{
    struct stage *g = s->stages ? &s->stage[s->stages - 1] : NULL;
    if (!strncmp(line, "; stage ", 8)) return begin_stage(s, line + 8);
    if (!g) return false;
    if (!strncmp(line, "; program ", 10)) return read_program(s, line + 2);
    if (!strncmp(line, "; ", 2)) return read_note(g, line + 2);
    if (!strncmp(line, "output ", 7)) return read_result(g, line + 7);
    return *line != '%' || read_value(g, line); /* symbols and maps are no values */
}

/* ---- Which value of one stage is which of the next ---- */

/* All but operands and numbers: what a value is by itself. */
static bool is_like(const struct value *a, const struct value *b)
{
    return !strcmp(a->op, b->op) && !strcmp(a->attributes, b->attributes) && !strcmp(a->type, b->type) &&
           (!a->leaf || !strcmp(a->name, b->name));
}

enum { MOST_CELLS = 1 << 26 };

/* The longest common subsequence of values first .. na-1 and first .. nb-1; match[j] of the latter. */
static bool align(const struct stage *a, const struct stage *b, int first, int na, int nb, int *match)
{
    int m = na - first, n = nb - first;
    if ((int64_t)(m + 1) * (n + 1) > MOST_CELLS) return true;
    uint16_t *best = calloc((size_t)(m + 1) * (size_t)(n + 1), sizeof *best);
    if (!best) return false;
#define BEST(i, j) best[(size_t)(i) * (size_t)(n + 1) + (size_t)(j)]
    for (int i = m - 1; i >= 0; i--)
        for (int j = n - 1; j >= 0; j--) {
            uint16_t skip = BEST(i + 1, j) > BEST(i, j + 1) ? BEST(i + 1, j) : BEST(i, j + 1);
            bool like = is_like(&a->value[first + i], &b->value[first + j]);
            BEST(i, j) = like && BEST(i + 1, j + 1) >= skip ? (uint16_t)(BEST(i + 1, j + 1) + 1) : skip;
        }
    for (int i = 0, j = 0; i < m && j < n;) {
        bool like = is_like(&a->value[first + i], &b->value[first + j]);
        if (like && BEST(i, j) == BEST(i + 1, j + 1) + 1) match[first + j++] = first + i++;
        else if (BEST(i + 1, j) >= BEST(i, j + 1)) i++;
        else j++;
    }
#undef BEST
    free(best);
    return true;
}

static bool match_values(const struct stage *a, const struct stage *b, int *match)
{
    int first = 0, na = a->values, nb = b->values;
    for (int j = 0; j < b->values; j++) match[j] = -1;
    for (; first < na && first < nb && is_like(&a->value[first], &b->value[first]); first++)
        match[first] = first;
    for (; na > first && nb > first && is_like(&a->value[na - 1], &b->value[nb - 1]); na--, nb--)
        match[nb - 1] = na - 1;
    return align(a, b, first, na, nb, match);
}

static bool new_key(struct stages *s, struct value *v)
{
    char name[24];
    if (!ROOM(s->key, s->keys)) return false;
    snprintf(name, sizeof name, "%%%d", s->keys);
    v->key = s->keys;
    s->key[s->keys] = strdup(v->leaf ? v->name : name);
    return s->key[s->keys++];
}

/* Values of the first stage are called as there. */
static bool give_keys(struct stages *s)
{
    for (int i = 0; i < s->stages; i++) {
        struct stage *b = &s->stage[i], *a = i ? b - 1 : NULL;
        int *match = malloc(((size_t)b->values + 1) * sizeof *match);
        bool good = match && (!a || match_values(a, b, match));
        for (int j = 0; j < b->values && good; j++) {
            if (a && match[j] >= 0) b->value[j].key = a->value[match[j]].key;
            else good = new_key(s, &b->value[j]);
        }
        free(match);
        if (!good) return false;
    }
    return true;
}

bool stages_read(struct stages *s, char *text)
{
    *s = (struct stages){.text = text};
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = 0;
        if (*line && !read_line(s, line)) return false;
    }
    return s->stages && give_keys(s);
}

void stages_free(struct stages *s)
{
    for (int i = 0; i < s->stages; i++) {
        free(s->stage[i].note);
        free(s->stage[i].value);
        free(s->stage[i].result);
    }
    for (int i = 0; i < s->programs; i++) free(s->program[i].member);
    for (int i = 0; i < s->keys; i++) free((char *)s->key[i]);
    free(s->stage);
    free(s->program);
    free(s->key);
    free(s->text);
    *s = (struct stages){0};
}

/* ---- Differences ---- */

static int key_of(const struct stage *g, int value) { return value < 0 ? -1 : g->value[value].key; }

/* The same value, of the same operands? */
static bool is_same(const struct stage *a, const struct value *x, const struct stage *b,
                    const struct value *y)
{
    bool same = x->key == y->key && x->ins == y->ins;
    for (int i = 0; same && i < x->ins; i++) same = key_of(a, x->in[i]) == key_of(b, y->in[i]);
    return same;
}

bool stages_differ(struct differences *d, const struct stages *s, int before)
{
    const struct stage *a = &s->stage[before], *b = a + 1;
    int *at = malloc(((size_t)s->keys + 1) * sizeof *at); /* of each key: value of a, or -1 */
    d->before = calloc((size_t)a->values + 1, sizeof *d->before);
    d->after = calloc((size_t)b->values + 1, sizeof *d->after);
    if (!at || !d->before || !d->after) return free(at), false;
    for (int i = 0; i < s->keys; i++) at[i] = -1;
    for (int i = 0; i < a->values; i++) at[a->value[i].key] = i, d->before[i] = true;
    for (int j = 0; j < b->values; j++) {
        int i = at[b->value[j].key];
        bool same = i >= 0 && is_same(a, &a->value[i], b, &b->value[j]);
        d->after[j] = !same;
        if (same) d->before[i] = false;
    }
    free(at);
    return true;
}

void value_put(FILE *f, const struct stages *s, const struct stage *g, int value)
{
    const struct value *v = &g->value[value];
    html_put(f, s->key[v->key]);
    fputs(" = ", f);
    html_put(f, v->op);
    for (int i = 0; i < v->ins; i++) {
        fputs(i ? ", " : " ", f);
        html_put(f, v->in[i] < 0 ? "_" : s->key[g->value[v->in[i]].key]);
    }
    if (*v->attributes) fputc(' ', f);
    html_put(f, v->attributes);
    fputs("  ; ", f);
    html_put(f, v->type);
}
