/*
 * keys.c -- objects by the tables of keys.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"

/* ---- Names ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* The pattern is p .. end. */
static bool matches(const char *p, const char *end, const char *s)
{
    for (; p < end; p++) {
        if (*p == '*') {
            for (p++; !matches(p, end, s); s++)
                if (!*s) return false;
            return true;
        }
        if (*p == '#') {
            if (!is_digit(*s)) return false;
            while (is_digit(s[1])) s++;
        } else if (*p != *s) return false;
        s++;
    }
    return !*s;
}

/* What is behind the architecture's name, which ARCH stands for; NULL if `s` does not begin with that. */
static const char *behind(const char *architecture, const char *s)
{
    size_t n = architecture ? strlen(architecture) : 0;
    return n && !strncmp(s, architecture, n) ? s + n : NULL;
}

static bool named(const char *names, const char *name, const char *architecture)
{
    for (const char *p = names, *end; *p; p = end + strspn(end, " ")) {
        end = p + strcspn(p, " ");
        bool arch = !strncmp(p, "ARCH.", 5);
        const char *s = arch ? behind(architecture, name) : name;
        if (s && matches(arch ? p + 4 : p, end, s)) return true;
    }
    return false;
}

const struct key *key_find(const struct key_table *t, unsigned bit, enum verdict verdict, const char *name,
                           const char *architecture)
{
    for (int i = 0; i < t->count; i++) {
        const struct key *k = &t->key[i];
        if (k->verdict == verdict && (k->families & bit) && named(k->names, name, architecture)) return k;
    }
    return NULL;
}

unsigned key_family(const struct key_table *t, const char *family)
{
    for (int i = 0; family && t->families[i]; i++)
        if (!strcmp(t->families[i], family)) return 1u << i;
    return 0;
}

/* ---- Reading ---- */

void keys_begin(struct keys *k, const struct key_table *table, const char *family, const json_t *object,
                const char *what)
{
    *k = (struct keys){.table = table,
                       .object = object,
                       .what = what,
                       .family = family ? family : "none",
                       .bit = key_family(table, family),
                       .read = json_object()};
}

json_t *keys_get(struct keys *k, const char *name)
{
    char whole[160];
    if (!strncmp(name, "ARCH.", 5)) {
        snprintf(whole, sizeof whole, "%s%s", k->architecture ? k->architecture : "", name + 4);
        name = whole;
    }
    json_t *v = json_object_get(k->object, name);
    if (!v || !key_find(k->table, k->bit, KEY_READ, name, k->architecture)) return NULL;
    json_object_set_new(k->read, name, json_true()); /* without memory it is refused in the end */
    return json_is_null(v) ? NULL : v;
}

/* ---- What is left ---- */

static bool equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool among(const json_t *v, const char *values)
{
    json_t *all = json_loads(values, 0, NULL);
    bool found = false;
    for (size_t i = 0; !found && i < json_array_size(all); i++) found = equal(v, json_array_get(all, i));
    json_decref(all);
    return found;
}

static bool refuse(const struct keys *k, const char *name, const json_t *v, char *why, size_t size)
{
    const struct key *ignored = key_find(k->table, k->bit, KEY_IGNORED, name, k->architecture),
                     *refused = key_find(k->table, k->bit, KEY_REFUSED, name, k->architecture);
    bool one = !strcmp(k->family, "all"); /* for a file that is the same for all */
    const char *of = one ? "" : " for ", *family = one ? "" : k->family;
    char *value = ignored ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (refused) snprintf(why, size, "%s: key '%.100s': %s", k->what, name, refused->reason);
    else if (ignored)
        snprintf(why, size, "%s: key '%.100s' is %.40s, which is not supported%s%s: it may be in %s alone",
                 k->what, name, value ? value : "?", of, family, ignored->values);
    else if (key_find(k->table, k->bit, KEY_READ, name, k->architecture))
        snprintf(why, size, "%s: key '%.100s' has no meaning%s%s beside the others", k->what, name, of,
                 family);
    else
        snprintf(why, size, "%s: key '%.100s' is not known%s%s, and may change what is computed", k->what,
                 name, of, family);
    free(value);
    return false;
}

/* Null is what a key is that nobody has set. */
static bool ignored(const struct keys *k, const char *name, const json_t *v)
{
    const struct key *row = key_find(k->table, k->bit, KEY_IGNORED, name, k->architecture);
    if (row && (!row->values || json_is_null(v) || among(v, row->values))) return true;
    return json_is_null(v) && (key_find(k->table, k->bit, KEY_REFUSED, name, k->architecture) ||
                               key_find(k->table, k->bit, KEY_READ, name, k->architecture));
}

bool keys_end(struct keys *k, char *why, size_t size)
{
    bool good = k->read != NULL;
    const char *name;
    json_t *v;
    if (!good) snprintf(why, size, "%s: out of memory", k->what);
    json_object_foreach((json_t *)k->object, name, v)
    {
        if (good && !json_object_get(k->read, name) && !ignored(k, name, v))
            good = refuse(k, name, v, why, size);
    }
    keys_leave(k);
    return good;
}

void keys_leave(struct keys *k)
{
    json_decref(k->read);
    k->read = NULL;
}
