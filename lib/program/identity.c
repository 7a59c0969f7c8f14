/*
 * identity.c -- programs that differ only in their tensors' names and places: layers of a model.
 *
 * A program's identity is the bytes of its structs, in which each field (program.def) is kept, numbered or
 * left out by what it is. Fields that are left out are 0, and so is padding.
 */
#include "identity.h"
#include "own.h"

#include <string.h>

/* ---- Identity ---- */

struct author {
    struct identity *id;
    struct arena *arena;
    const struct buffer *buffer; /* of the plan */
    size_t capacity;
    bool decided; /* what schedules decide is kept, too */
};

static void append(struct author *w, const void *data, size_t size)
{
    struct identity *id = w->id;
    if (id->size + size > w->capacity) {
        size_t wider = MAX((size_t)512, 2 * (id->size + size));
        void *copy = arena_alloc(w->arena, wider);
        if (!copy) return; /* the arena remembers */
        if (id->size) memcpy(copy, id->data, id->size);
        id->data = copy;
        w->capacity = wider;
    }
    memcpy((char *)id->data + id->size, data, size);
    id->size += size;
}

/* Its number, and whether it has elements: a kernel does without what has none. */
static int number(struct author *w, int buffer)
{
    struct identity *id = w->id;
    int i = 0;
    if (buffer < 0) return -1;
    while (i < id->buffers && id->buffer[i] != buffer) i++;
    if (i == id->buffers) id->buffer[id->buffers++] = buffer;
    return 2 * i + (w->buffer && w->buffer[buffer].bytes == 0);
}

/* A caller's map lies elsewhere in each graph, and is what its text says. */
static const struct prim *spell(struct author *w, const struct prim *map)
{
    if (!map || !map->source) return map;
    append(w, &map->params, sizeof map->params);
    append(w, map->name, strlen(map->name) + 1);
    append(w, map->source, strlen(map->source) + 1);
    return NULL;
}

/* Appends the bytes of a struct, but for what is left out. */
#define WRITE(S, w, s)                                                                                       \
    do {                                                                                                     \
        struct S kept;                                                                                       \
        memset(&kept, 0, sizeof kept);                                                                       \
        keep_##S(w, &kept, s);                                                                               \
        append(w, &kept, sizeof kept);                                                                       \
    } while (0)

static void write_spec(struct author *w, const struct program *q);

/* keep_NAME: writes to `to`, which is 0, what the identity has of s. */
#define KEEP_KIND(name) memcpy(&to->name, &s->name, sizeof s->name);
#define KEEP_NUMBER(name) KEEP_KIND(name)
#define KEEP_PLACE(name) to->name = number(w, s->name);
#define KEEP_NAME(name)
#define KEEP_DECIDED(name)                                                                                   \
    if (w->decided) KEEP_KIND(name)
#define STRUCT(S)                                                                                            \
    static void keep_##S(struct author *w, struct S *to, const struct S *s)                                  \
    {                                                                                                        \
        (void)w;
#define VALUE(type, name, what) KEEP_##what(name)
#define PRIM(name, what) to->name = spell(w, s->name);
#define PART(S, name, when)                                                                                  \
    if (when) keep_##S(w, &to->name, &s->name);
#define PARTS(S, name, length)                                                                               \
    for (int i = 0; i < (length); i++) keep_##S(w, &to->name[i], &s->name[i]);
#define LIST(S, name, length)                                                                                \
    for (int i = 0; i < s->length; i++) WRITE(S, w, &s->name[i]);
#define SPEC(name)                                                                                           \
    if (s->own) write_spec(w, s);
#define END(S) }
#include "program.def"

static void write_spec(struct author *w, const struct program *q)
{
#define X(NAME, name)                                                                                        \
    if (q->own->index == OWN_##NAME) WRITE(name##_spec, w, q->spec);
    OWN_KERNELS(X)
#undef X
}

/* All that identity_of writes, and room for what identity_add does. */
static size_t size_of(const struct program *q, int uses)
{
    size_t spec = q->own ? q->own->size : 0, added = 256;
    return sizeof *q + spec + (size_t)uses * sizeof(struct tensor_use) + (size_t)q->steps * sizeof *q->step +
           added;
}

static bool write_identity(struct author *w, const struct program *q)
{
    struct identity *out = w->id;
    int uses = program_uses(q);
    w->capacity = size_of(q, uses);
    *out = (struct identity){.buffer = ARENA_NEW(w->arena, int, uses + 1), .capacity = w->capacity};
    out->data = arena_alloc(w->arena, w->capacity);
    if (!out->buffer || !out->data) return false;
    WRITE(program, w, q);
    out->hash = hash_of(out->data, out->size);
    return !w->arena->failed;
}

bool identity_of(struct identity *out, struct arena *a, const struct buffer *buffer, const struct program *q)
{
    return write_identity(&(struct author){.id = out, .arena = a, .buffer = buffer}, q);
}

bool identity_decided(struct identity *out, struct arena *a, const struct buffer *buffer,
                      const struct program *q)
{
    return write_identity(&(struct author){.id = out, .arena = a, .buffer = buffer, .decided = true}, q);
}

bool identity_add(struct identity *id, struct arena *a, const void *data, size_t size)
{
    struct author w = {.id = id, .arena = a, .capacity = id->capacity};
    append(&w, data, size);
    id->capacity = w.capacity;
    id->hash = (id->hash ^ hash_of(data, size)) * 0x9e3779b97f4a7c15u;
    return !a->failed;
}

bool identity_equal(const struct identity *a, const struct identity *b)
{
    return a->hash == b->hash && a->size == b->size && !memcmp(a->data, b->data, a->size);
}

/* ---- Differences ---- */

/* The same map or reduction; a caller's map lies elsewhere in each graph, and is what its text says. */
static bool prims_equal(const struct prim *a, const struct prim *b)
{
    if (a == b || !a || !b || !a->source || !b->source) return a == b;
    return a->params == b->params && !strcmp(a->name, b->name) && !strcmp(a->source, b->source);
}

static const char *own_differs(const struct program *q, const struct program *other, unsigned kinds)
{
#define X(NAME, name)                                                                                        \
    if (q->own->index == OWN_##NAME) return name##_spec_differs(q->spec, other->spec, kinds);
    OWN_KERNELS(X)
#undef X
    return NULL;
}

#define DIFFERS_IF(name, unequal)                                                                            \
    if (unequal) return #name;
#define EXAMINE(S, from, to)                                                                                 \
    {                                                                                                        \
        const char *differs = S##_differs(from, to, kinds);                                                  \
        if (differs) return differs;                                                                         \
    }
#define STRUCT(S)                                                                                            \
    const char *S##_differs(const struct S *s, const struct S *t, unsigned kinds)                            \
    {
#define VALUE(type, name, what)                                                                              \
    DIFFERS_IF(name, (kinds & FIELD_##what) && memcmp(&s->name, &t->name, sizeof s->name))
#define PRIM(name, what) DIFFERS_IF(name, (kinds & FIELD_##what) && !prims_equal(s->name, t->name))
#define PART(S, name, when)                                                                                  \
    if (when) EXAMINE(S, &s->name, &t->name)
#define PARTS(S, name, length)                                                                               \
    for (int i = 0; i < (length); i++) EXAMINE(S, &s->name[i], &t->name[i])
#define LIST(S, name, length)                                                                                \
    DIFFERS_IF(length, s->length != t->length)                                                               \
    PARTS(S, name, s->length)
#define SPEC(name)                                                                                           \
    if (s->own && s->own == t->own) EXAMINE(own, s, t)
#define END(S)                                                                                               \
    return NULL;                                                                                             \
    }
#include "program.def"

/* ---- Memo ---- */

struct memo_slot {
    struct identity id;
    struct program *program; /* NULL: free */
};

static struct memo_slot *seek(const struct memo *m, const struct identity *id)
{
    size_t mask = (size_t)m->capacity - 1, i = id->hash & mask;
    for (;; i = (i + 1) & mask) {
        const struct memo_slot *s = &m->slot[i];
        if (!s->program) return &m->slot[i];
        if (identity_equal(&s->id, id)) return &m->slot[i];
    }
}

static bool grow(struct memo *m, struct arena *a)
{
    struct memo wider = {.count = m->count, .capacity = MAX(32, 2 * m->capacity)};
    wider.slot = ARENA_NEW(a, struct memo_slot, wider.capacity);
    if (!wider.slot) return false;
    for (int i = 0; i < m->capacity; i++)
        if (m->slot[i].program) *seek(&wider, &m->slot[i].id) = m->slot[i];
    *m = wider;
    return true;
}

struct program *memo_first(struct memo *m, struct arena *a, const struct identity *id, struct program *q,
                           const int **first)
{
    if (2 * m->count >= m->capacity && !grow(m, a)) return NULL;
    struct memo_slot *s = seek(m, id);
    if (!s->program) {
        *s = (struct memo_slot){*id, q};
        m->count++;
    }
    *first = s->id.buffer;
    return s->program;
}

struct program *memo_program(struct memo *m, struct arena *a, const struct buffer *buffer, struct program *q)
{
    struct identity id;
    const int *ignored;
    return identity_of(&id, a, buffer, q) ? memo_first(m, a, &id, q, &ignored) : NULL;
}
