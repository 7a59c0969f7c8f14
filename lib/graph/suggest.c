/* suggest.c -- see suggest.h. */
#include "suggest.h"

#include "foreign.h"
#include "near.h"

#include <stdio.h>
#include <string.h>

static void try_prims(struct near *n, const graph *g, unsigned which)
{
    for (int i = 0; i < g->maps + prim_count; i++) {
        const struct prim *p = i < g->maps ? g->map[i] : &prim_table[i - g->maps];
        if (which & (p->kind == PRIM_MAP ? SUGGEST_MAPS : SUGGEST_REDUCTIONS)) near_try(n, p->name);
    }
}

static bool is_operation(int i) { return i != OP_MAP && i != OP_REDUCE; }

/* Ours that is this plain word but for underscores, or NULL. */
static const char *find_same(const char *plain, unsigned which)
{
    for (int i = 0; i < OP_COUNT; i++)
        if (is_operation(i) && foreign_is(plain, op_info[i].text)) return op_info[i].text;
    for (int i = 0; i < prim_count; i++)
        if (which & (prim_table[i].kind == PRIM_MAP ? SUGGEST_MAPS : SUGGEST_REDUCTIONS) &&
            foreign_is(plain, prim_table[i].name))
            return prim_table[i].name;
    return NULL;
}

/* Is its first word an operation, which has a call of its own? Then that one's length. */
static int operation_length(const char *ours)
{
    int n = (int)strcspn(ours, ", ");
    for (int i = 0; i < OP_COUNT; i++)
        if (is_operation(i) && !strncmp(op_info[i].text, ours, (size_t)n) && !op_info[i].text[n]) return n;
    return 0;
}

static void say_ours(struct suggestion *s, const char *ours, unsigned which)
{
    int n = which & SUGGEST_OPERATIONS ? 0 : operation_length(ours);
    if (n) snprintf(s->text, sizeof s->text, "; coda_%.*s is a call of its own", n, ours);
    else snprintf(s->text, sizeof s->text, "; here it is %s", ours);
}

struct suggestion suggest_operation(const graph *g, const char *word, unsigned which)
{
    struct suggestion s = {""};
    char plain[FOREIGN_SIZE];
    foreign_plain(word, plain);
    struct near n = {.word = word}, m = {.word = plain};
    struct foreign f = foreign_operation(word);
    if (!f.ours && !f.absent) f.ours = find_same(plain, which);
    for (int i = 0; i < OP_COUNT && which & SUGGEST_OPERATIONS; i++)
        if (is_operation(i)) near_try(&n, op_info[i].text), near_try(&m, op_info[i].text);
    try_prims(&n, g, which);
    try_prims(&m, g, which);
    const char *near = n.best ? n.best : m.best;
    if (f.ours) say_ours(&s, f.ours, which);
    else if (f.absent) snprintf(s.text, sizeof s.text, "; %s", f.absent);
    else if (near) snprintf(s.text, sizeof s.text, "; do you mean %s?", near);
    return s;
}

struct suggestion suggest_dtype(const char *word)
{
    struct suggestion s = {""};
    const char *ours = foreign_dtype(word);
    if (ours) snprintf(s.text, sizeof s.text, "; here it is %s", ours);
    else snprintf(s.text, sizeof s.text, ": they are %s", dtype_names());
    return s;
}

struct suggestion suggest_symbol(const struct names *symbols, const char *word)
{
    struct suggestion s = {""};
    struct near n = {.word = word};
    for (int i = 0; i < symbols->capacity; i++)
        if (names_at(symbols, i)) near_try(&n, names_at(symbols, i));
    if (n.best) snprintf(s.text, sizeof s.text, "; do you mean %s?", n.best);
    else snprintf(s.text, sizeof s.text, "; a line above has to say `dim %%%.40s = 1..4096`", word);
    return s;
}

/* A near word among those that begin a line. */
struct suggestion suggest_line(const char *word)
{
    struct suggestion s = {""};
    struct near n = {.word = word};
    const char *ours = foreign_operation(word).ours;
    near_try(&n, "dim"), near_try(&n, "map"), near_try(&n, "output");
    bool begins = ours && (!strcmp(ours, "dim") || !strcmp(ours, "map") || !strcmp(ours, "output"));
    if (begins || n.best) snprintf(s.text, sizeof s.text, "; do you mean %s?", begins ? ours : n.best);
    else if (find_same(word, SUGGEST_ALL)) snprintf(s.text, sizeof s.text, "; write `%%y = %.40s ...`", word);
    else snprintf(s.text, sizeof s.text, "; values are %%%.40s", word);
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

/* Ours of their word, if one of the attributes is called as its first word is. */
static const char *find_attribute(const struct node *n, const char *word, int first, int end)
{
    const char *ours = foreign_attribute(word);
    size_t length = ours ? strcspn(ours, ", ") : 0;
    for (int k = first; ours && k < end; k++)
        if (strlen(attr_key(n, k)) == length && !strncmp(attr_key(n, k), ours, length)) return ours;
    return NULL;
}

/* All of them, since they are few. */
struct suggestion suggest_attribute(const struct node *n, const char *word, int first, int end)
{
    struct suggestion s = {""};
    struct near near = {.word = word};
    bool axis = !strcmp(word, "axis") || !strcmp(word, "dim") || !strcmp(word, "axes");
    const char *name = n->prim ? n->prim->name : op_info[n->op].text;
    const char *ours = find_attribute(n, word, first, end);
    size_t at = (size_t)snprintf(s.text, sizeof s.text, ": %s has %s", name, first < end ? "" : "none");
    for (int k = first; k < end && at < sizeof s.text; k++) {
        near_try(&near, attr_key(n, k));
        at +=
            (size_t)snprintf(s.text + at, sizeof s.text - at, "%s%s", k > first ? ", " : "", attr_key(n, k));
    }
    if (ours) snprintf(s.text, sizeof s.text, "; in %s it is %s", name, ours);
    else if (near.best) snprintf(s.text, sizeof s.text, "; do you mean %s?", near.best);
    else if (axis && at < sizeof s.text)
        snprintf(s.text + at, sizeof s.text - at, "; columns are the last dimension, transpose for others");
    return s;
}
