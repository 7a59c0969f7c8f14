/*
 * steps.c -- members of JSON objects, and lists of steps. Nothing that a file has is passed over.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_json.h"

enum { MOST_STEPS = 256 }; /* of one kind: files have up to ten */

/* Whether a name stands in a list whose names are separated by blanks. */
static bool listed(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = names; *s; s += strcspn(s, " "), s += strspn(s, " "))
        if (strcspn(s, " ") == n && memcmp(s, name, n) == 0) return true;
    return false;
}

bool read_only(const struct reader *r, const char *members)
{
    if (!json_is_object(r->object)) return complain(r->complaint, "%s is no object", r->what);
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)r->object, name, v) if (!listed(members, name)) return complain(
        r->complaint, "%s: '%s' is not known", r->what, name);
    return true;
}

static const json_t *member_of(const struct reader *r, const char *member)
{
    const json_t *v = json_object_get(r->object, member);
    return json_is_null(v) ? NULL : v;
}

bool read_flag(const struct reader *r, const char *member, bool otherwise)
{
    const json_t *v = member_of(r, member);
    if (v && !json_is_boolean(v))
        complain(r->complaint, "%s: '%s' is neither true nor false", r->what, member);
    return v ? json_is_true(v) : otherwise;
}

int read_int(const struct reader *r, const char *member, int otherwise)
{
    const json_t *v = member_of(r, member);
    json_int_t i = v ? json_integer_value(v) : otherwise;
    if ((v && !json_is_integer(v)) || i < 0 || i > 1 << 30)
        complain(r->complaint, "%s: '%s' is no number from 0 to 2^30", r->what, member);
    return (int)i;
}

void read_text(const struct reader *r, const char *member, struct text *to)
{
    const json_t *v = member_of(r, member);
    if (v && !json_is_string(v)) complain(r->complaint, "%s: '%s' is no string", r->what, member);
    if (json_is_string(v)) text_add(to, json_string_value(v), json_string_length(v));
    if (to->failed) complain(r->complaint, "no memory");
}

void read_pattern(const struct reader *r, const char *member, struct pattern *to)
{
    const json_t *v = member_of(r, member), *literal = json_object_get(v, "String"),
                 *regex = json_object_get(v, "Regex");
    if (json_object_size(v) != 1 || (!json_is_string(literal) && !json_is_string(regex)))
        complain(r->complaint, "%s: '%s' has neither a String nor a Regex", r->what, member);
    else if (literal)
        pattern_literal(to, json_string_value(literal), json_string_length(literal), r->complaint);
    else pattern_regex(to, json_string_value(regex), json_string_length(regex), r->complaint);
}

int read_choice(const struct reader *r, const char *member, const char *const *names)
{
    const json_t *v = member_of(r, member);
    const char *name = json_string_value(v);
    if (!v) return 0;
    for (int i = 0; name && names[i]; i++)
        if (strcmp(name, names[i]) == 0) return i;
    complain(r->complaint, "%s: '%s' is '%s', which is not known", r->what, member,
             name ? name : "no string");
    return 0;
}

/* By enum behavior. */
const char *const behavior_names[] = {"Removed",        "Isolated",   "MergedWithPrevious",
                                      "MergedWithNext", "Contiguous", NULL};

void metaspace_read(const struct reader *r, struct step *st)
{
    static const char *const schemes[] = {"never", "first", "always", NULL}; /* by enum prepend */
    struct text unused = {0};
    uint32_t c;
    read_text(r, "replacement", &st->string);
    read_text(r, "str_rep", &unused);
    text_free(&unused);
    size_t n = st->string.size;
    if (n == 0 || (size_t)unicode_get(st->string.data, n, &c) != n)
        complain(r->complaint, "%s: 'replacement' is not one character", r->what);
    st->how = read_flag(r, "add_prefix_space", true) ? PREPEND_ALWAYS : PREPEND_NEVER; /* in older files */
    if (member_of(r, "prepend_scheme")) st->how = read_choice(r, "prepend_scheme", schemes);
}

static bool step_add(const json_t *v, const char *what, const struct kind *k, struct steps *out,
                     struct complaint *c)
{
    char members[160] = "type ", name[64];
    snprintf(members, sizeof members, "type %s", k->members);
    snprintf(name, sizeof name, "%s %s", what, k->type);
    struct reader r = {v, name, c};
    if (!read_only(&r, members)) return false;
    if (out->count == MOST_STEPS) return complain(c, "%s has more than %d steps", what, MOST_STEPS);
    struct step *list = realloc(out->list, ((size_t)out->count + 1) * sizeof *list);
    if (!list) return complain(c, "no memory");
    out->list = list;
    list[out->count] = k->step;
    if (k->read) k->read(&r, &list[out->count]);
    out->count++;
    return !c->made;
}

static bool sequence_read(const json_t *v, const char *what, const char *list, const struct kind *kinds,
                          struct steps *out, struct complaint *c)
{
    char members[40];
    snprintf(members, sizeof members, "type %s", list);
    const json_t *steps = json_object_get(v, list);
    if (!read_only(&(struct reader){v, what, c}, members)) return false;
    if (!json_is_array(steps)) return complain(c, "%s Sequence has no list '%s'", what, list);
    for (size_t i = 0; i < json_array_size(steps); i++)
        if (!steps_read(json_array_get(steps, i), what, list, kinds, out, c)) return false;
    return true;
}

bool steps_read(const json_t *v, const char *what, const char *list, const struct kind *kinds,
                struct steps *out, struct complaint *c)
{
    if (!v || json_is_null(v)) return true;
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type) return complain(c, "%s has no type", what);
    if (strcmp(type, "Sequence") == 0) return sequence_read(v, what, list, kinds, out, c);
    for (const struct kind *k = kinds; k->type; k++)
        if (strcmp(type, k->type) == 0) return step_add(v, what, k, out, c);
    return complain(c, "%s '%s' is not known", what, type);
}

void steps_free(struct steps *s)
{
    for (int i = 0; i < s->count; i++) {
        pattern_free(&s->list[i].pattern);
        text_free(&s->list[i].string);
    }
    free(s->list);
    *s = (struct steps){0};
}
