/* suggest.c -- see suggest.h. */
#include "suggest.h"

#include "near.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *theirs, *ours;
} aliases[] = {
#define ALIAS(theirs, ours) {theirs, ours},
#include "aliases.def"
#undef ALIAS
};

/* Is the word this one, which has small letters alone, but for case and underscores? */
static bool is_alias(const char *word, const char *theirs)
{
    for (; *word; word++) {
        char c = *word >= 'A' && *word <= 'Z' ? (char)(*word - 'A' + 'a') : *word;
        if (c == '_' || c == '.') continue;
        if (c != *theirs) return false;
        theirs++;
    }
    return !*theirs;
}

static const char *find_alias(const char *word)
{
    for (int i = 0; i < ARRAY_SIZE(aliases); i++)
        if (is_alias(word, aliases[i].theirs)) return aliases[i].ours;
    return NULL;
}

static void try_prims(struct near *n, const graph *g, unsigned which)
{
    for (int i = 0; i < g->maps + prim_count; i++) {
        const struct prim *p = i < g->maps ? g->map[i] : &prim_table[i - g->maps];
        if (which & (p->kind == PRIM_MAP ? SUGGEST_MAPS : SUGGEST_REDUCTIONS)) near_try(n, p->name);
    }
}

struct suggestion suggest_operation(const graph *g, const char *word, unsigned which)
{
    struct suggestion s = {""};
    struct near n = {.word = word};
    for (int i = 0; i < OP_COUNT && which & SUGGEST_OPERATIONS; i++)
        if (i != OP_MAP && i != OP_REDUCE) near_try(&n, op_info[i].text);
    try_prims(&n, g, which);
    const char *ours = find_alias(word);
    if (ours && (which & SUGGEST_OPERATIONS || prim_find(ours)))
        snprintf(s.text, sizeof s.text, "; here it is %s", ours);
    else if (n.best) snprintf(s.text, sizeof s.text, "; do you mean %s?", n.best);
    return s;
}

struct suggestion suggest_value(const struct names *names, const char *word)
{
    struct suggestion s = {""};
    struct near n = {.word = word};
    for (int i = 0; i < names->capacity; i++)
        if (names_at(names, i)) near_try(&n, names_at(names, i));
    if (n.best) snprintf(s.text, sizeof s.text, "; do you mean %%%s?", n.best);
    return s;
}

/* All of them, since they are few. */
struct suggestion suggest_attribute(const struct node *n, const char *word, int first, int end)
{
    struct suggestion s = {""};
    struct near near = {.word = word};
    const char *name = n->prim ? n->prim->name : op_info[n->op].text;
    size_t at = (size_t)snprintf(s.text, sizeof s.text, ": %s has %s", name, first < end ? "" : "none");
    for (int k = first; k < end && at < sizeof s.text; k++) {
        near_try(&near, attr_key(n, k));
        at +=
            (size_t)snprintf(s.text + at, sizeof s.text - at, "%s%s", k > first ? ", " : "", attr_key(n, k));
    }
    if (near.best) snprintf(s.text, sizeof s.text, "; do you mean %s?", near.best);
    return s;
}
