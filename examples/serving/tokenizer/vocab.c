/*
 * vocab.c -- strings and their ids; and the lists that all the parts use.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_parts.h"

bool complain(struct complaint *c, const char *format, ...)
{
    if (c->made) return false;
    c->made = true;
    char line[512] = "";
    va_list args;
    va_start(args, format);
    plain_vline(line, sizeof line, format, args);
    va_end(args);
    if (c->size) plain_escape(c->text, c->size, line);
    return false;
}

/* A list with room for one more, or NULL. */
static void *grown(void *list, size_t count, size_t *room, size_t one)
{
    if (count < *room) return list;
    size_t more = *room ? *room * 2 : 16;
    void *now = realloc(list, more * one);
    if (now) *room = more;
    return now;
}

void ids_add(struct ids *ids, int32_t id)
{
    int32_t *list = ids->failed ? NULL : grown(ids->list, ids->count, &ids->room, sizeof *list);
    if (!list) {
        ids->failed = true;
        return;
    }
    ids->list = list;
    list[ids->count++] = id;
}

void spans_add(struct spans *s, size_t from, size_t to, bool match)
{
    struct span *list = s->failed ? NULL : grown(s->list, s->count, &s->room, sizeof *list);
    if (!list) {
        s->failed = true;
        return;
    }
    s->list = list;
    list[s->count++] = (struct span){from, to, match};
}

void spans_free(struct spans *s)
{
    free(s->list);
    *s = (struct spans){0};
}

struct pieces pieces_begin(struct work *w) { return (struct pieces){.text.most = w->most, .work = w}; }

void pieces_add(struct pieces *p, const char *s, size_t n, bool first)
{
    struct piece *list = p->failed ? NULL : grown(p->list, p->count, &p->room, sizeof *list);
    if (list) p->list = list;
    size_t at = p->text.size;
    text_add(&p->text, s, n);
    if (!list || p->text.failed) p->failed = true;
    else list[p->count++] = (struct piece){at, n, first};
}

void pieces_free(struct pieces *p)
{
    text_free(&p->text);
    free(p->list);
    *p = (struct pieces){0};
}

void *scratch_get(struct scratch *s, size_t size)
{
    if (size > s->size) {
        free(s->memory);
        s->size = size + size / 2;
        s->memory = malloc(s->size);
        if (!s->memory) s->size = 0;
    }
    return s->memory;
}

/* FNV-1a, and a last mix, because the low bits choose the slot. */
static uint64_t digest(const char *s, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

static uint32_t *slot_of(const struct vocab *v, const char *s, size_t n)
{
    for (size_t i = (size_t)digest(s, n);; i++) {
        uint32_t *slot = &v->table[i & (v->slots - 1)];
        if (!*slot) return slot;
        const struct word *w = &v->words[*slot - 1];
        if (w->size == n && memcmp(v->bytes.data + w->at, s, n) == 0) return slot;
    }
}

static bool widen(struct vocab *v)
{
    size_t slots = v->slots ? v->slots * 2 : 64;
    uint32_t *table = calloc(slots, sizeof *table);
    if (!table) return false;
    free(v->table);
    v->table = table;
    v->slots = slots;
    for (size_t i = 0; i < v->count; i++)
        *slot_of(v, v->bytes.data + v->words[i].at, v->words[i].size) = (uint32_t)i + 1;
    return true;
}

bool vocab_add(struct vocab *v, const char *s, size_t n, int32_t id)
{
    if (!v->bytes.data) text_add(&v->bytes, "", 1); /* so that an empty string has an address */
    if (v->count * 2 >= v->slots && !widen(v)) return false;
    uint32_t *slot = slot_of(v, s, n);
    if (*slot) return v->words[*slot - 1].id = id, true;
    struct word *words = grown(v->words, v->count, &v->room, sizeof *words);
    if (!words) return false;
    v->words = words;
    words[v->count] = (struct word){v->bytes.size, (uint32_t)n, id};
    text_add(&v->bytes, s, n);
    if (v->bytes.failed) return false;
    *slot = (uint32_t)++v->count;
    if (n > v->longest) v->longest = n;
    return true;
}

int32_t vocab_find(const struct vocab *v, const char *s, size_t n)
{
    uint32_t *slot = v->slots ? slot_of(v, s, n) : NULL;
    return slot && *slot ? v->words[*slot - 1].id : -1;
}

void vocab_free(struct vocab *v)
{
    text_free(&v->bytes);
    free(v->words);
    free(v->table);
    *v = (struct vocab){0};
}
