/*
 * tool_differ.c -- coda cache explain: what an entry is, or why two entries are two.
 *
 * A key is lines `name value`. Two entries are two because of the lines that differ; where these are the
 * digests of two texts, the first line in which the texts themselves differ is shown, too.
 */
#include "tool_cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The entry whose name begins so, if there is one and one alone. */
static const struct item *find(const struct items *all, const char *start)
{
    const struct item *found = NULL;
    for (int i = 0; i < all->count; i++) {
        if (strncmp(all->item[i].name, start, strlen(start))) continue;
        if (found) return complain("several entries begin with \"%s\"", start), NULL;
        found = &all->item[i];
    }
    if (!found) complain("no entry begins with \"%s\"", start);
    return found;
}

static void print_one(const struct item *i)
{
    char bytes[32], age[32];
    print_bytes(bytes, i->bytes);
    print_age(age, i->age_s);
    fprintf(output, "name %s\nkind %s\nsize %s\nunused for %s\n", i->name, i->kind, bytes, age);
    if (*i->fault) fprintf(output, "rejected: %s\n", i->fault);
    fprintf(output, "\n%s%s%s", i->key, *i->note ? "\n" : "", i->note);
}

static void print_one_json(const struct item *i)
{
    fprintf(output,
            "{\"name\": \"%s\", \"kind\": \"%s\", \"bytes\": %" PRId64 ", \"age_s\": %" PRId64
            ", \"fault\": ",
            i->name, i->kind, i->bytes, i->age_s);
    json_string(output, i->fault);
    fputs(", \"key\": ", output);
    json_string(output, i->key);
    fputs(", \"note\": ", output);
    json_string(output, i->note);
    fputs("}\n", output);
}

/* ---- Two ---- */

/* All values of a name, with "; " between: options come several times. malloc'd; NULL: no memory. */
static char *values(const char *key, const char *name, size_t length)
{
    char *out = NULL;
    size_t size;
    const char *between = "";
    FILE *f = open_memstream(&out, &size);
    if (!f) return NULL;
    for (size_t n; *key; key += n, key += *key == '\n') {
        n = strcspn(key, "\n");
        if (n < length || strncmp(key, name, length) || !strchr(" \n", key[length])) continue;
        if (n > length) fprintf(f, "%s%.*s", between, (int)(n - length - 1), key + length + 1);
        between = "; ";
    }
    if (!fclose(f)) return out;
    free(out);
    return NULL;
}

/* Has a key a line of this name before `end`? */
static bool has(const char *key, const char *end, const char *name, size_t length)
{
    for (; key < end; key += strcspn(key, "\n") + 1)
        if (!strncmp(key, name, length) && strchr(" \n", key[length])) return true;
    return false;
}

static void print_difference(const char *name, size_t length, const char *a, const char *b, bool json,
                             int *count)
{
    if (json) {
        char *copy = strndup(name, length);
        fprintf(output, "%s{\"field\": ", *count ? ",\n" : "\n");
        json_string(output, copy ? copy : "");
        fputs(", \"a\": ", output);
        json_string(output, a);
        fputs(", \"b\": ", output);
        json_string(output, b);
        fputs("}", output);
        free(copy);
    } else {
        fprintf(output, "%-12.*s ", (int)length, name);
        color_span(RED, *a ? a : "-", strlen(*a ? a : "-"));
        fprintf(output, "\n%-12s ", "");
        color_span(GREEN, *b ? b : "-", strlen(*b ? b : "-"));
        fprintf(output, "\n");
    }
    ++*count;
}

/* The names of `from` whose values differ, without those that `done` has. */
static void compare(const char *a, const char *b, const char *from, const char *done, bool json, int *count)
{
    for (const char *line = from; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t length = strcspn(line, " \n");
        if (has(from, line, line, length) || has(done, done + strlen(done), line, length)) continue;
        char *x = values(a, line, length), *y = values(b, line, length);
        if (x && y && strcmp(x, y)) print_difference(line, length, x, y, json, count);
        free(x);
        free(y);
    }
}

static void print_first_line(const char *a, const char *b)
{
    int line = 1;
    for (;; line++) {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || strncmp(a, b, n)) {
            fprintf(output, "\ntexts differ first in line %d:\n  ", line);
            color_span(RED, a, n);
            fprintf(output, "\n  ");
            color_span(GREEN, b, m);
            fprintf(output, "\n");
            return;
        }
        if (!a[n] || !b[m]) return;
        a += n + 1, b += m + 1;
    }
}

static int print_two(const struct item *a, const struct item *b, bool json)
{
    int count = 0;
    if (json) fprintf(output, "{\"a\": \"%s\", \"b\": \"%s\", \"differences\": [", a->name, b->name);
    else fprintf(output, "%-12s %s\n%-12s %s\n\n", "a", a->name, "b", b->name);
    compare(a->key, b->key, a->key, "", json, &count);
    compare(a->key, b->key, b->key, a->key, json, &count);
    if (json) fputs("]}\n", output);
    else {
        if (!count) fputs("the keys are the same\n", output);
        if (strcmp(a->note, b->note)) print_first_line(a->note, b->note);
    }
    return 0;
}

int cache_explain(const struct request *r)
{
    struct items all = {.notes = true};
    const struct item *a = NULL, *b = NULL;
    int bad = items_gather(&all, r, NULL);
    if (!bad) bad = !(a = find(&all, r->place[0]));
    if (!bad && r->places > 1) bad = !(b = find(&all, r->place[1]));
    if (!bad && b) print_two(a, b, r->json);
    else if (!bad && r->json) print_one_json(a);
    else if (!bad) print_one(a);
    items_free(&all);
    return bad;
}
