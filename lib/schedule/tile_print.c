/* tile_print.c -- a tile in the words of a plan's text, in which tuning keeps it, and back; and why there is
 * no better one. */
#include "mainloop.h"

#include <stdlib.h>
#include <string.h>

/* ---- Words ---- */

void tile_print(const struct tile *tile, struct text *t)
{
    text_append(t, tile->mainloop->name);
    if (!tile->mainloop->kernel) return;
    text_printf(t, " %dx%dx%d", tile->bm, tile->bn, tile->bk);
#define SIZE(name)
#define FLAG(name)                                                                                           \
    if (tile->name) text_append(t, " " #name);
#define COUNT(name, least, from)                                                                             \
    if (MAX(tile->name, least) >= (from)) text_printf(t, " " #name "=%d", MAX(tile->name, least));
#define COUNTS(word, first, second, least, from)                                                             \
    if (MAX(tile->first, least) >= (from) || ((least) && MAX(tile->second, least) >= (from)))                \
        text_printf(t, " " #word "=%dx%d", MAX(tile->first, least), MAX(tile->second, least));
#include "tile.def"
}

/* All numbers of a tile, as they count, but for its main loop. */
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

/* A word that is followed by a blank or the end. */
static bool read_flag(const char **s, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*s, word, length) || ((*s)[length] && (*s)[length] != ' ')) return false;
    return *s += length, true;
}

static bool begins(const char *s, const char *word) { return !strncmp(s, word, strlen(word)); }

static bool read_field(const char **s, struct tile *t)
{
#define SIZE(name)
#define FLAG(name)                                                                                           \
    if (read_flag(s, " " #name)) return t->name = true;
#define COUNT(name, least, from)                                                                             \
    if (begins(*s, " " #name "=")) return read_number(s, " " #name "=", &t->name);
#define COUNTS(word, first, second, least, from)                                                             \
    if (begins(*s, " " #word "="))                                                                           \
        return read_number(s, " " #word "=", &t->first) && read_number(s, "x", &t->second);
#include "tile.def"
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
    if (use_is_packed(&p->b.data))
        text_append(t, "b is packed, and is decoded one element at a time for fp32 multiply-adds");
    else if (dtype_is_storage(p->b.dtype))
        text_printf(t, "b is %s, of which fp32 multiply-adds read one element at a time",
                    dtype_name(p->b.dtype));
    else if (p->a.dtype != p->b.dtype)
        text_printf(t, "a is %s and b is %s; with a cast of %s to %s, which rounds it, the fast kernel fits",
                    dtype_name(p->a.dtype), dtype_name(p->b.dtype), a16 && !b16 ? "b" : "a",
                    dtype_name(a16 && !b16 ? p->a.dtype
                               : b16       ? p->b.dtype
                                           : CODA_BF16));
    else if (a16 && !program_fits_units(p, target)) {
        explain_operand("a", &p->a.data, program_a_obstacle(p), t);
        if (program_a_obstacle(p) && program_b_obstacle(p)) text_append(t, "; ");
        explain_operand("b", &p->b.data, program_b_obstacle(p), t);
    } else if (a16 && !program_pairs_meet(p, target))
        text_append(t, "the columns that are paired do not meet in a thread");
    else text_append(t, "no tile has registers and shared memory for its epilogue");
    text_append(t, "\n");
}
