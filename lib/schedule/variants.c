/*
 * variants.c -- few tiles for all numbers of rows of a product.
 *
 * Up to 128 rows there is a tile for up to 8, 16, 32, 64 and 128 rows each, as a slot of the ring has no more
 * rows than that. Above, numbers of rows fall into classes, within which the price hardly changes: of 64
 * rows, then of 128, then 64 for each doubling. Classes come in segments: up to 1024 rows, and each
 * doubling. A segment first takes what the segments below chose, then the fewest tiles more such that each
 * of its classes has one within the tolerance, or, if that would be for one class alone, not far from it; and
 * each class the cheapest of them. So what a number of rows gets depends on no larger one, and tables grow by
 * segments, as they are asked for.
 */
#include "variants.h"

#include "mainloop.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW_ROWS = 128, /* up to so many there is a tile for each doubling ... */
    LEAST_ROWS = 8, /* ... from here on; below for each number, as streams have */
    FEW_CLASSES = LEAST_ROWS + 4,
    FIRST_END = 1024, /* rows of the first segment */
    SEGMENT_CLASSES = 64,
    MOST_SEGMENTS = 22, /* up to 2^31 rows */
    MOST_OFFERS = 24,   /* tiles that a class is offered */
    MOST_CHOSEN = 64,   /* variants of a product */
    NO_TILE = -1,
    ANY_ROWS = INT32_MAX
};

struct offers { /* to a class: tiles that are good enough for it, then some that will do; cheapest first */
    struct tile tile[MOST_OFFERS];
    int good, n;
};

struct segment {
    bool known;
    int8_t tile[SEGMENT_CLASSES]; /* of each class: index of a chosen one */
};

struct product { /* that differ in their rows alone */
    struct product *next;
    struct identity id;
    struct target target;
    struct tile base, few[FEW_CLASSES]; /* mainloop NULL: not known yet */
    struct segment segment[MOST_SEGMENTS];
    struct tile chosen[MOST_CHOSEN];
    int choices;
};

struct variants {
    pthread_mutex_t lock; /* of all */
    struct arena arena;
    struct product *products;
};

struct variants *variants_new(void)
{
    struct variants *v = calloc(1, sizeof *v);
    if (!v) return fail(CODA_E_MEMORY, "out of memory for a table of tiles"), NULL;
    pthread_mutex_init(&v->lock, NULL);
    return v;
}

void variants_free(struct variants *v)
{
    if (!v) return;
    arena_free(&v->arena);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

void variants_hold(struct variants *v) { pthread_mutex_lock(&v->lock); }
void variants_let_go(struct variants *v) { pthread_mutex_unlock(&v->lock); }

bool variants_take(const struct program *q)
{
    return q->dim[0] == 1 && q->dim[1] > 0 && q->dim[1] <= ANY_ROWS;
}

/* ---- Classes of rows ---- */

struct class {
    int segment, index;
    int64_t rows; /* the most of the class, for which it is priced */
};

static int64_t segment_end(int segment) { return (int64_t)FIRST_END << segment; }
static int64_t segment_begin(int segment) { return segment ? segment_end(segment - 1) : 0; }

static int64_t class_width(int segment)
{
    int64_t all = segment_end(segment) - segment_begin(segment);
    return segment ? MAX(all / SEGMENT_CLASSES, 128) : 64;
}

static struct class class_at(int segment, int index)
{
    return (struct class){segment, index, segment_begin(segment) + (index + 1) * class_width(segment)};
}

static struct class class_of(int64_t rows)
{
    int segment = 0;
    while (segment_end(segment) < rows) segment++;
    return class_at(segment, (int)((rows - 1 - segment_begin(segment)) / class_width(segment)));
}

static int classes_of(int segment)
{
    return (int)((segment_end(segment) - segment_begin(segment)) / class_width(segment));
}

int64_t variants_last(int64_t rows)
{
    int64_t last = 2 * LEAST_ROWS;
    if (rows <= LEAST_ROWS) return rows;
    if (rows > FEW_ROWS) return class_of(rows).rows;
    while (last < rows) last *= 2;
    return last;
}

/* ---- Offers ---- */

struct program variants_at(const struct program *q, int64_t rows)
{
    struct program other = *q;
    other.dim[1] = rows;
    if (q->pairing.period == q->dim[1]) other.pairing.period = rows; /* a row's position is its number */
    return other;
}

/* Finds the tiles for up to most_rows rows whose price at `rows` is within the tolerance of the cheapest, or
 * within that of a class on its own. */
static void find_offers(struct offers *o, const struct program *q, const struct target *target, int64_t rows,
                        int most_rows)
{
    const struct program at = variants_at(q, rows);
    struct search s = {.p = &at, .most = MOST_CANDIDATES, .most_rows = most_rows};
    double least = 0;
    o->n = o->good = 0;
    search_run(&s, target, TILES_KNOWN);
    for (int i = 0; i < s.n && o->n < MOST_OFFERS; i++) {
        if (s.tile[i].mainloop->streams) continue;
        if (!o->n) least = s.cost[i];
        if (s.cost[i] * 100 > least * (100 + SINGLE_TOLERANCE)) continue;
        o->good += s.cost[i] * 100 <= least * (100 + VARIANT_TOLERANCE);
        o->tile[o->n++] = s.tile[i];
    }
}

static bool has(const struct tile *tile, int n, const struct tile *t)
{
    for (int i = 0; i < n; i++)
        if (tile_equal(&tile[i], t)) return true;
    return false;
}

/* The tiles that each class of a segment is offered, and whether one of them was chosen. */
struct cover {
    int classes;
    struct offers offers[SEGMENT_CLASSES];
    bool done[SEGMENT_CLASSES];
};

static void choose(struct product *f, struct cover *c, const struct tile *t)
{
    f->chosen[f->choices++] = *t;
    for (int k = 0; k < c->classes; k++)
        c->done[k] = c->done[k] || has(c->offers[k].tile, c->offers[k].good, t);
}

static int count_new(const struct cover *c, const struct tile *t)
{
    int n = 0;
    for (int k = 0; k < c->classes; k++) n += !c->done[k] && has(c->offers[k].tile, c->offers[k].good, t);
    return n;
}

/* The tile that is good enough for most classes that have none yet, for more than `most`; else NULL. */
static const struct tile *best_offer(const struct cover *c, int most)
{
    const struct tile *best = NULL;
    for (int k = 0; k < c->classes; k++)
        for (int i = 0; i < c->offers[k].good && !c->done[k]; i++) {
            int n = count_new(c, &c->offers[k].tile[i]);
            if (n > most) most = n, best = &c->offers[k].tile[i];
        }
    return best;
}

/* The index of the cheapest of the first n offers that was chosen. */
static int8_t chosen_of(const struct product *f, const struct offers *o, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < f->choices; j++)
            if (tile_equal(&o->tile[i], &f->chosen[j])) return (int8_t)j;
    return NO_TILE;
}

static void choose_all(struct product *f, struct cover *c)
{
    const struct tile *t;
    while (f->choices < MOST_CHOSEN && (t = best_offer(c, 1))) choose(f, c, t);
    for (int k = 0; k < c->classes; k++)
        c->done[k] = c->done[k] || chosen_of(f, &c->offers[k], c->offers[k].n) != NO_TILE;
    while (f->choices < MOST_CHOSEN && (t = best_offer(c, 0))) choose(f, c, t);
}

/* Chooses until each class has a tile. */
static bool cover_segment(struct product *f, const struct program *q, int segment)
{
    struct cover *c = calloc(1, sizeof *c);
    if (!c) return false;
    c->classes = classes_of(segment);
    for (int k = 0; k < c->classes; k++) {
        struct offers *o = &c->offers[k];
        find_offers(o, q, &f->target, class_at(segment, k).rows, ANY_ROWS);
        c->done[k] = chosen_of(f, o, o->good) != NO_TILE;
    }
    choose_all(f, c);
    for (int k = 0; k < c->classes; k++)
        f->segment[segment].tile[k] = chosen_of(f, &c->offers[k], c->offers[k].n);
    f->segment[segment].known = true;
    free(c);
    return true;
}

/* ---- Families ---- */

bool variants_blank(struct program *out, struct arena *a, const struct program *q)
{
    *out = variants_at(q, 1);
    out->port = ARENA_NEW(a, struct tensor_use, q->ports + 1);
    if (!out->port) return false;
    memcpy(out->port, q->port, sizeof *q->port * (size_t)q->ports);
    out->a.data.batch = out->b.data.batch = 0;
    for (int i = 0; i < q->ports && !q->sample; i++) out->port[i].stride[0] = 0;
    return true;
}

static bool is_product(const struct product *f, const struct identity *id, const struct target *target)
{
    return identity_equal(&f->id, id) && !memcmp(&f->target, target, sizeof *target);
}

static struct product *add_product(struct variants *v, const struct identity *id, const struct target *target)
{
    struct product *f = ARENA_NEW(&v->arena, struct product, 1);
    void *data = arena_alloc(&v->arena, id->size);
    if (!f || !data) return NULL;
    memcpy(data, id->data, id->size);
    f->id = (struct identity){.data = data, .size = id->size, .hash = id->hash};
    f->target = *target;
    f->next = v->products;
    return v->products = f;
}

/* NULL: out of memory. */
static struct product *family_of(struct variants *v, const struct plan *p, const struct program *q,
                                 const struct target *target)
{
    struct arena scratch = {0};
    struct identity id;
    struct program blank;
    struct product *f = NULL;
    if (variants_blank(&blank, &scratch, q) && identity_of(&id, &scratch, p->buffer, &blank)) {
        for (f = v->products; f && !is_product(f, &id, target);) f = f->next;
        if (!f) f = add_product(v, &id, target);
    }
    arena_free(&scratch);
    return f;
}

/* ---- The base ---- */

/* Among the tiles that serve both few rows and many, finds the cheapest at some rows between; false: there is
 * none. */
static bool find_base(const struct program *q, const struct target *target, struct tile *out)
{
    enum { FEW = 1, SOME = 512, MANY = 16384 };
    struct program few = variants_at(q, FEW), some = variants_at(q, SOME), many = variants_at(q, MANY);
    struct search all[3] = {{.p = &some}, {.p = &few}, {.p = &many}};
    for (int i = 0; i < ARRAY_SIZE(all); i++) {
        all[i].most = MOST_CANDIDATES, all[i].most_rows = ANY_ROWS, all[i].common = true;
        search_run(&all[i], target, TILES_KNOWN);
    }
    for (int i = 0; i < all[0].n; i++) {
        int found = 0;
        for (int k = 1; k < ARRAY_SIZE(all); k++)
            for (int j = 0; j < all[k].n; j++) found += tile_equal(&all[0].tile[i], &all[k].tile[j]);
        if (found == ARRAY_SIZE(all) - 1) return *out = all[0].tile[i], true;
    }
    return false;
}

static struct tile base_of(struct product *f, const struct program *q)
{
    if (!f->base.mainloop && !find_base(q, &f->target, &f->base)) return tile_choose(q, &f->target);
    return f->base;
}

/* ---- A tile ---- */

static bool find_among_many(struct product *f, const struct program *q, struct tile *out)
{
    const struct class at = class_of(q->dim[1]);
    for (int s = 0; s <= at.segment; s++)
        if (!f->segment[s].known && !cover_segment(f, q, s)) return false;
    int tile = f->segment[at.segment].tile[at.index];
    *out = tile == NO_TILE ? base_of(f, q) : f->chosen[tile];
    return true;
}

/* For up to 8, 16, .. 128 rows; a stream is for its rows alone. What is good enough for twice as many rows is
 * so for these, too. */
static struct tile few_rows_tile(struct product *f, const struct program *q, int64_t rows)
{
    const struct target *target = &f->target;
    struct offers o;
    struct tile t;
    if (rows <= LEAST_ROWS) {
        t = tile_choose(q, target);
        if (t.mainloop->streams) return t;
        rows = LEAST_ROWS;
    }
    if (rows < FEW_ROWS) {
        t = few_rows_tile(f, q, 2 * rows);
        find_offers(&o, q, target, rows, t.most_rows);
        if (has(o.tile, o.good, &t)) return t;
    }
    find_offers(&o, q, target, rows, (int)rows);
    return o.n ? *o.tile : base_of(f, q);
}

static bool find_among_few(struct product *f, const struct program *q, struct tile *out)
{
    int64_t rows = q->dim[1];
    int class = (int)rows - 1;
    if (rows > LEAST_ROWS)
        for (rows = 2 * LEAST_ROWS, class = LEAST_ROWS; rows < q->dim[1]; rows *= 2) class ++;
    if (!f->few[class].mainloop) f->few[class] = few_rows_tile(f, q, rows);
    *out = f->few[class];
    return true;
}

struct product *variants_find(struct variants *v, const struct plan *p, const struct program *q,
                              const struct target *target)
{
    pthread_mutex_lock(&v->lock);
    struct product *f = family_of(v, p, q, target);
    pthread_mutex_unlock(&v->lock);
    return f;
}

/* A main loop that streams for any number of rows has one kernel up to 8 rows and one above. */
static bool streams_anyway(const struct product *f, const struct program *q, struct tile *out)
{
    bool narrow = use_is_packed(&q->b.data) || !dtype_is_half(q->b.dtype);
    if (!narrow || !mainloop_stream_mma.supports(&f->target, q)) return false;
    *out = tile_choose(q, &f->target);
    return out->mainloop->streams;
}

static bool find_tile(struct product *f, const struct program *q, bool base, struct tile *out)
{
    if (!base && streams_anyway(f, q, out)) return true;
    if (base) return *out = base_of(f, q), true;
    return (q->dim[1] <= FEW_ROWS ? find_among_few : find_among_many)(f, q, out);
}

bool variants_tile_of(struct variants *v, struct product *f, const struct program *q, bool base,
                      struct tile *out)
{
    pthread_mutex_lock(&v->lock);
    bool good = find_tile(f, q, base, out);
    pthread_mutex_unlock(&v->lock);
    return good;
}

static bool seek_tile(struct variants *v, const struct plan *p, const struct program *q,
                      const struct target *target, bool base, struct tile *out)
{
    pthread_mutex_lock(&v->lock);
    struct product *f = family_of(v, p, q, target);
    bool good = f && find_tile(f, q, base, out);
    pthread_mutex_unlock(&v->lock);
    return good;
}

bool variants_tile(struct variants *v, const struct plan *p, const struct program *q,
                   const struct target *target, struct tile *out)
{
    return seek_tile(v, p, q, target, false, out);
}

bool variants_base(struct variants *v, const struct plan *p, const struct program *q,
                   const struct target *target, struct tile *out)
{
    return seek_tile(v, p, q, target, true, out);
}
