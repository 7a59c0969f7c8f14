/*
 * bpe.c -- byte pair encoding: a word's characters, of which the pair that was merged first in
 * training becomes one token, again and again. Pairs wait in a heap, so that a word of n characters costs
 * O(n log n).
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_parts.h"

static struct merge *merge_slot(const struct bpe *b, uint64_t pair)
{
    for (size_t i = (size_t)((pair * 0x9e3779b97f4a7c15u) >> 32);; i++) {
        struct merge *m = &b->table[i & (b->slots - 1)];
        if (m->rank == UINT32_MAX || m->pair == pair) return m;
    }
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

bool bpe_merges(struct bpe *b, size_t merges)
{
    for (b->slots = 64; b->slots < merges * 2;) b->slots *= 2;
    b->table = malloc(b->slots * sizeof *b->table);
    if (!b->table) return false;
    for (size_t i = 0; i < b->slots; i++) b->table[i].rank = UINT32_MAX;
    return true;
}

void bpe_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = pair_of(left, right);
    *merge_slot(b, pair) = (struct merge){pair, rank, id};
}

/* A token of the word; they are a list, so that two become one at once. */
struct symbol {
    int32_t id; /* -1: merged into the one before */
    int32_t previous, next;
};
struct candidate {
    uint32_t rank;
    int32_t at, id; /* the left symbol, and what the two become */
};
struct word_work {
    struct symbol *symbols;
    struct candidate *heap;
    int32_t count, waiting;
    struct work *work;
};

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(struct word_work *w, struct candidate c)
{
    int32_t i = w->waiting++;
    for (int32_t up; i > 0 && before(&c, &w->heap[up = (i - 1) / 2]); i = up) w->heap[i] = w->heap[up];
    w->heap[i] = c;
}

static struct candidate pop(struct word_work *w)
{
    struct candidate top = w->heap[0], last = w->heap[--w->waiting];
    int32_t i = 0;
    for (int32_t down; (down = 2 * i + 1) < w->waiting; i = down) {
        if (down + 1 < w->waiting && before(&w->heap[down + 1], &w->heap[down])) down++;
        if (!before(&w->heap[down], &last)) break;
        w->heap[i] = w->heap[down];
    }
    w->heap[i] = last;
    return top;
}

/* The pair that begins at a symbol waits, if it is one that merges. */
static void consider(const struct bpe *b, struct word_work *w, int32_t at)
{
    int32_t right = at < 0 ? -1 : w->symbols[at].next;
    if (right < 0) return;
    const struct merge *m = merge_slot(b, pair_of(w->symbols[at].id, w->symbols[right].id));
    if (m->rank != UINT32_MAX) push(w, (struct candidate){m->rank, at, m->id});
}

/* Whether a pair that waited is still there: a neighbour may have been merged since. */
static bool stands(const struct bpe *b, const struct word_work *w, struct candidate c)
{
    const struct symbol *s = &w->symbols[c.at];
    if (s->id < 0 || s->next < 0) return false;
    const struct merge *m = merge_slot(b, pair_of(s->id, w->symbols[s->next].id));
    return m->rank != UINT32_MAX && m->id == c.id;
}

static void merge_all(const struct bpe *b, struct word_work *w)
{
    for (int32_t i = 0; i < w->count; i++) consider(b, w, i);
    while (w->waiting && work_do(w->work, 4)) {
        struct candidate c = pop(w);
        if (!stands(b, w, c)) continue;
        struct symbol *left = &w->symbols[c.at], *right = &w->symbols[left->next];
        left->id = c.id;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) w->symbols[left->next].previous = c.at;
        consider(b, w, left->previous);
        consider(b, w, c.at);
    }
}

static void add_symbol(struct word_work *w, int32_t id)
{
    int32_t i = w->count++;
    w->symbols[i] = (struct symbol){id, i - 1, -1};
    if (i > 0) w->symbols[i - 1].next = i;
}

/* A character in the vocabulary, with the prefix or the suffix that its place asks for. */
static int32_t character(const struct tokenizer *t, const char *s, size_t n, bool first, bool last,
                         struct text *spelt)
{
    const struct bpe *b = &t->bpe;
    if ((first || !b->prefix.size) && (!last || !b->suffix.size)) return vocab_find(&t->vocab, s, n);
    spelt->size = 0;
    if (!first) text_add(spelt, b->prefix.data, b->prefix.size);
    text_add(spelt, s, n);
    if (last) text_add(spelt, b->suffix.data, b->suffix.size);
    return spelt->failed ? -1 : vocab_find(&t->vocab, spelt->data, spelt->size);
}

/* A character by the tokens of its bytes: false, and nothing added, if one of them has none. */
static bool by_bytes(const struct bpe *b, struct word_work *w, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!b->byte_fallback || b->bytes[(unsigned char)s[i]] < 0) return false;
    for (size_t i = 0; i < n; i++) add_symbol(w, b->bytes[(unsigned char)s[i]]);
    return true;
}

/* The characters as symbols. One that is not known waits, because the next such one may join it. */
static bool characters(const struct tokenizer *t, struct word_work *w, const char *s, size_t n)
{
    const struct bpe *b = &t->bpe;
    struct text spelt = {0};
    bool unknown = false;
    uint32_t c;
    for (size_t i = 0, used; i < n && work_do(w->work, 2); i += used) {
        used = (size_t)unicode_get(s + i, n - i, &c);
        if (!used) used = 1;
        int32_t id = character(t, s + i, used, i == 0, i + used >= n, &spelt);
        if (id < 0 && by_bytes(b, w, s + i, used)) continue;
        if (unknown && (id >= 0 || !b->fuse_unk)) add_symbol(w, b->unk);
        if (id >= 0) add_symbol(w, id);
        unknown = id < 0 && b->unk >= 0;
    }
    if (unknown) add_symbol(w, b->unk);
    bool good = !spelt.failed;
    text_free(&spelt);
    return good;
}

bool bpe_word(const struct tokenizer *t, const char *s, size_t n, struct scratch *scratch, struct work *work,
              struct ids *out)
{
    if (n >= INT32_MAX / 4) return work_fail(work, REFUSED_INPUT); /* the heap's indices are 32 bits */
    int32_t whole = t->bpe.ignore_merges ? vocab_find(&t->vocab, s, n) : -1;
    if (whole >= 0) return ids_add(out, whole), true;
    /* A symbol for each byte at most; each merge takes one pair away and makes two at most. */
    struct symbol *symbols =
        scratch_get(scratch, (n + 1) * (sizeof(struct symbol) + 3 * sizeof(struct candidate)));
    if (!symbols) return false;
    struct word_work w = {symbols, (struct candidate *)(symbols + n + 1), 0, 0, work};
    if (!characters(t, &w, s, n)) return false;
    merge_all(&t->bpe, &w);
    if (work->why) return false;
    for (int32_t i = 0; i < w.count; i++)
        if (symbols[i].id >= 0) ids_add(out, symbols[i].id);
    return true;
}
