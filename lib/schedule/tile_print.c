/* tile_print.c -- a tile in the words of a plan's text, in which tuning keeps it, and back; and why there is
 * no better one. */
#include "mainloop.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- Words ---- */

/* " name", " name=4" or " name=2x1"; or a number of the size, which has no name. */
enum word_kind { WORD_FLAG, WORD_COUNT, WORD_COUNTS };
enum { UNNAMED = INT32_MAX };

static const struct field {
    const char *name;
    enum word_kind kind;
    size_t at, second; /* in struct tile: a bool, an int, two ints */
    int least;         /* a smaller number counts as this one, ... */
    int from;          /* ... and is printed, the first one of a pair or the other, only from here */
} fields[] = {
#define FLAG(name) {#name, WORD_FLAG, offsetof(struct tile, name), 0, 0, 0},
#define COUNT(name, least, from) {#name, WORD_COUNT, offsetof(struct tile, name), 0, least, from},
#define COUNTS(word, first, second, least, from)                                                             \
    {#word, WORD_COUNTS, offsetof(struct tile, first), offsetof(struct tile, second), least, from},
#include "tile.def"
};

static int number(const struct tile *t, size_t at, int least)
{
    int n;
    memcpy(&n, (const char *)t + at, sizeof n);
    return MAX(n, least);
}

static bool flag(const struct tile *t, size_t at)
{
    bool b;
    memcpy(&b, (const char *)t + at, sizeof b);
    return b;
}

static void print_field(const struct field *f, const struct tile *t, struct text *out)
{
    int a = f->kind == WORD_FLAG ? flag(t, f->at) : number(t, f->at, f->least);
    int b = f->kind == WORD_COUNTS ? number(t, f->second, f->least) : 0;
    if (f->kind == WORD_FLAG && a) text_printf(out, " %s", f->name);
    if (f->kind == WORD_COUNT && a >= f->from) text_printf(out, " %s=%d", f->name, a);
    if (f->kind == WORD_COUNTS && (a >= f->from || (f->least && b >= f->from)))
        text_printf(out, " %s=%dx%d", f->name, a, b);
}

void tile_print(const struct tile *tile, struct text *t)
{
    text_append(t, tile->mainloop->name);
    if (!tile->mainloop->kernel) return;
    text_printf(t, " %dx%dx%d", tile->bm, tile->bn, tile->bk);
    for (int i = 0; i < ARRAY_SIZE(fields); i++) print_field(&fields[i], tile, t);
}

/* All numbers of a tile, but for its main loop. */
struct numbers {
    int of[0
#define FLAG(name) +1
#define COUNT(name, least, from) +1
#include "tile.def"
    ];
};

static struct numbers numbers_of(const struct tile *t)
{
    return (struct numbers){{
#define FLAG(name) t->name,
#define COUNT(name, least, from) MAX(t->name, least),
#include "tile.def"
    }};
}

bool tile_equal(const struct tile *a, const struct tile *b)
{
    const struct numbers x = numbers_of(a), y = numbers_of(b);
    return a->mainloop == b->mainloop && !memcmp(&x, &y, sizeof x);
}

bool tile_identify(struct identity *id, struct arena *a, const struct tile *t)
{
    const struct numbers n = numbers_of(t);
    return identity_add(id, a, &t->mainloop, sizeof t->mainloop) && identity_add(id, a, &n, sizeof n);
}

/* ---- Back ---- */

/* A number of at most nine digits at *s, and what must come before it. */
static bool read_number(const char **s, const char *before, int *out)
{
    size_t length = strlen(before), digits;
    if (strncmp(*s, before, length)) return false;
    *s += length;
    digits = strspn(*s, "0123456789");
    if (!digits || digits > 9) return false;
    *out = atoi(*s);
    *s += digits;
    return true;
}

static const struct mainloop *read_mainloop(const char **s)
{
    size_t length = strcspn(*s, " ");
    for (int i = 0; mainloops[i]; i++)
        if (strlen(mainloops[i]->name) == length && !strncmp(mainloops[i]->name, *s, length))
            return *s += length, mainloops[i];
    return NULL;
}

static bool read_field(const char **s, struct tile *t)
{
    int a, b;
    for (int i = 0; i < ARRAY_SIZE(fields); i++) {
        const struct field *f = &fields[i];
        size_t length = strlen(f->name);
        const char *at = *s + 1 + length, end = f->kind == WORD_FLAG ? ' ' : '=';
        if (f->from == UNNAMED || **s != ' ' || strncmp(*s + 1, f->name, length) ||
            (*at != end && (f->kind != WORD_FLAG || *at)))
            continue;
        if (f->kind == WORD_FLAG) memcpy((char *)t + f->at, &(bool){true}, sizeof(bool));
        else if (!read_number(&at, "=", &a)) return false;
        else memcpy((char *)t + f->at, &a, sizeof a);
        if (f->kind == WORD_COUNTS && !read_number(&at, "x", &b)) return false;
        if (f->kind == WORD_COUNTS) memcpy((char *)t + f->second, &b, sizeof b);
        *s = at;
        return true;
    }
    return false;
}

bool tile_parse(const char *words, struct tile *out)
{
    struct tile t = {.mainloop = read_mainloop(&words)};
    if (!t.mainloop || !read_number(&words, " ", &t.bm) || !read_number(&words, "x", &t.bn) ||
        !read_number(&words, "x", &t.bk))
        return false;
    while (*words)
        if (!read_field(&words, &t)) return false;
    *out = t;
    return true;
}

/* ---- Why not a faster one ---- */

static void explain_operand(const char *name, const struct tensor_use *o, enum obstacle what, struct text *t)
{
    if (what == HAS_NO_UNIT_STRIDE)
        text_printf(t, "%s has strides %lld and %lld, of which one must be 1", name, (long long)o->row,
                    (long long)o->k);
    if (what == BEGINS_ODDLY)
        text_printf(t, "%s begins at element %lld, which must be a multiple of 8", name,
                    (long long)o->offset);
    if (what == HAS_ODD_PITCH)
        text_printf(t, "%s has a pitch of %lld elements, which must be a multiple of 8", name,
                    (long long)operand_pitch(o));
    if (what == HAS_ODD_BATCHES)
        text_printf(t, "%s has batches that are %lld elements apart, which must be a multiple of 8", name,
                    (long long)o->batch);
}

void tile_explain(const struct program *p, const struct tile *tile, const struct target *target,
                  struct text *t)
{
    bool a16 = dtype_is_half(p->a.dtype), b16 = dtype_is_half(p->b.dtype);
    if (tile->mainloop != &mainloop_simt || !program_has_work(p)) return;
    text_append(t, "   slow: ");
    if (p->a.dtype != p->b.dtype)
        text_printf(t, "a is %s and b is %s; with a cast of %s to %s, which rounds it, the fast kernel fits",
                    dtype_name(p->a.dtype), dtype_name(p->b.dtype), a16 && !b16 ? "b" : "a",
                    dtype_name(a16 && !b16 ? p->a.dtype
                               : b16       ? p->b.dtype
                                           : CODA_BF16));
    else if (a16 && !program_fits_units(p, target)) {
        explain_operand("a", &p->a, program_a_obstacle(p), t);
        if (program_a_obstacle(p) && program_b_obstacle(p)) text_append(t, "; ");
        explain_operand("b", &p->b, program_b_obstacle(p), t);
    } else if (a16 && !program_pairs_meet(p, target))
        text_append(t, "the columns that are paired do not meet in a thread");
    else text_append(t, "no tile has registers and shared memory for its epilogue");
    text_append(t, "\n");
}
