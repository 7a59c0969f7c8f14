/*
 * added.c -- tokens that the text is searched for before all else: at the first place where one
 * begins, the longest of them.
 */
#include <stdlib.h>

#include "tokenizer_parts.h"

/* A new node's index, 0 when there is no memory; node 0 is the root. */
static int32_t new_node(struct trie *t, unsigned char byte)
{
    if (t->count == t->room) {
        size_t room = t->room ? t->room * 2 : 64;
        struct trie_node *nodes = realloc(t->nodes, room * sizeof *nodes);
        if (!nodes) return 0;
        t->nodes = nodes;
        t->room = room;
    }
    t->nodes[t->count] = (struct trie_node){0, 0, -1, byte};
    return (int32_t)t->count++;
}

static int32_t child_of(const struct trie *t, int32_t node, unsigned char byte)
{
    int32_t child = t->nodes[node].child;
    while (child && t->nodes[child].byte != byte) child = t->nodes[child].sibling;
    return child;
}

bool trie_add(struct trie *t, const char *s, size_t n, int32_t token)
{
    if (t->count == 0 && (new_node(t, 0), t->count == 0)) return false;
    int32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t child = child_of(t, node, (unsigned char)s[i]);
        if (!child) {
            if (!(child = new_node(t, (unsigned char)s[i]))) return false;
            t->nodes[child].sibling = t->nodes[node].child;
            t->nodes[node].child = child;
        }
        node = child;
    }
    if (t->nodes[node].token < 0) t->nodes[node].token = token; /* of two alike the first one */
    return true;
}

/* The longest token that s begins with: its bytes, or 0. */
static size_t longest(const struct trie *t, const char *s, size_t n, struct work *w, int32_t *token)
{
    size_t best = 0;
    int32_t node = 0;
    for (size_t i = 0; i < n && work_do(w, 1) && (node = child_of(t, node, (unsigned char)s[i])); i++)
        if (t->nodes[node].token >= 0) *token = t->nodes[node].token, best = i + 1;
    return best;
}

/* Where the character before byte `at` begins. */
static size_t step_back(const char *s, size_t at)
{
    while (at > 0 && ((unsigned char)s[--at] & 0xc0) == 0x80) {}
    return at;
}

static bool is_word(const char *s, size_t from, size_t to)
{
    uint32_t c;
    return from < to && unicode_get(s + from, to - from, &c) && unicode_word(c);
}

/* A token that only counts as a word of its own has no letter beside it. */
static bool alone(const char *s, size_t n, size_t from, size_t to)
{
    return !is_word(s, step_back(s, from), from) && !is_word(s, to, n);
}

static size_t spaces_before(const char *s, size_t from, size_t least)
{
    uint32_t c;
    for (size_t at; from > least; from = at) {
        at = step_back(s, from);
        if (!unicode_get(s + at, from - at, &c) || !unicode_space(c)) break;
    }
    return from;
}

/* Spaces that were found before, and reach as far, are not gone through again. */
static size_t spaces_behind(const char *s, size_t n, size_t to, struct span *known)
{
    uint32_t c;
    if (to >= known->from && to < known->to) return known->to;
    known->from = to;
    for (int used; to < n && (used = unicode_get(s + to, n - to, &c)) && unicode_space(c);)
        to += (size_t)used;
    return known->to = to;
}

void added_spans(const struct tokenizer *t, const struct trie *trie, const char *s, size_t n, struct work *w,
                 struct spans *out, struct ids *which)
{
    size_t done = 0;          /* up to here there are spans */
    struct span spaces = {0}; /* behind a token */
    int32_t token = -1;
    for (size_t at = 0, size; trie->count && at < n && !w->why; at += size ? size : 1) {
        if (!(size = longest(trie, s + at, n - at, w, &token))) continue;
        const struct added *a = &t->added[token];
        size_t from = at, to = at + size;
        if (a->single_word && !alone(s, n, from, to)) continue;
        if (a->lstrip) from = spaces_before(s, from, done < from ? done : from);
        if (a->rstrip) to = spaces_behind(s, n, to, &spaces);
        if (from > done) {
            spans_add(out, done, from, false);
            ids_add(which, -1);
        }
        spans_add(out, from, to, true);
        ids_add(which, token);
        done = to;
    }
    if (done < n) {
        spans_add(out, done, n, false);
        ids_add(which, -1);
    }
    if (which->failed) out->failed = true;
}
