/*
 * skeleton.c -- plans that differ in numbers alone.
 *
 * A plan's programs, uses and buffers are copied into one image, an array of words. The images of plans of
 * one structure have the same words but for numbers; of each of these the lattice's points give Newton's
 * polynomial, sum of difference[k] times binomials of the coordinates, which has integers alone. Words that
 * go together, as the rows of all tensors of a block do, share a polynomial.
 */
#include "skeleton.h"

#include "own.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16, MOST_POLYNOMIALS = 4096 };

struct patch {
    uint32_t word, polynomial;
};

struct image {
    char *data;
    size_t bytes;
};

struct skeleton {
    struct plan plan; /* the first one: its steps, its graph */
    struct image image;
    size_t beside; /* where that begins */
    int variables, points;
    struct skeleton_number *polynomial;
    struct patch *patch;
    int polynomials, patches;
};

/* ---- The lattice ---- */

/* Binomials (degree + variables) over (variables). */
int skeleton_points(int variables, int degree)
{
    int points = 1;
    for (int i = 1; i <= variables; i++) points = points * (degree + i) / i;
    return points;
}

/* Points of one degree come in the order in which the first variable's coordinate falls. */
void skeleton_point(int variables, int index, int64_t *at)
{
    int degree = 0;
    while (index >= skeleton_points(variables, degree)) degree++;
    if (degree) index -= skeleton_points(variables, degree - 1);
    for (int v = 0; v < variables; v++) {
        int rest = variables - v - 1, first = degree;
        for (int n; first > 0 && rest && index >= (n = skeleton_points(rest - 1, degree - first)); first--)
            index -= n;
        at[v] = first;
        degree -= first;
    }
}

_Static_assert(SKELETON_DEGREE <= 3, "choose divides by primes");

/* The binomial coefficient of n, which may be negative, over k, modulo 2^64. The product of k factors may
 * pass any integer type, so each divisor is taken out of a factor before they are multiplied. */
static uint64_t choose(int64_t n, int64_t k)
{
    int64_t factor[SKELETON_DEGREE];
    uint64_t product = 1;
    for (int i = 0; i < k; i++) factor[i] = n - i;
    for (int divisor = 2; divisor <= k; divisor++) {
        int i = 0;
        while (factor[i] % divisor) i++;
        factor[i] /= divisor;
    }
    for (int i = 0; i < k; i++) product *= (uint64_t)factor[i];
    return product;
}

/* The product of the binomials of the coordinates over those of a point of the lattice; modulo 2^64, as all
 * that is made of it. */
static uint64_t term_at(int variables, const int64_t *point, const int64_t *at)
{
    uint64_t term = 1;
    for (int v = 0; v < variables; v++) term *= choose(at[v], point[v]);
    return term;
}

/* ---- Images ---- */

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static size_t ports_bytes(const struct program *q) { return aligned(sizeof *q->port * (size_t)q->ports); }
static size_t spec_bytes(const struct program *q) { return q->own ? aligned(q->own->size) : 0; }

static size_t plan_bytes(const struct plan *p)
{
    size_t bytes = aligned(sizeof *p->program * (size_t)p->programs);
    for (int i = 0; i < p->programs; i++) bytes += ports_bytes(&p->program[i]) + spec_bytes(&p->program[i]);
    return bytes + aligned(sizeof *p->buffer * (size_t)p->buffers);
}

/* Programs and buffers of an image, with pointers into it. */
static void resolve(char *at, const struct plan *like, struct program **program, struct buffer **buffer)
{
    struct program *own = (struct program *)(void *)at;
    at += aligned(sizeof *own * (size_t)like->programs);
    for (int i = 0; i < like->programs; i++) {
        const struct program *q = &like->program[i];
        own[i].port = (struct tensor_use *)(void *)at;
        at += ports_bytes(q);
        own[i].spec = q->own ? at : NULL;
        at += spec_bytes(q);
        own[i].step = q->step;
    }
    *program = own;
    *buffer = (struct buffer *)(void *)at;
}

/* What schedules and places decide is no part of it. */
static void blank(struct program *program, int programs, struct buffer *buffer, int buffers)
{
    struct tensor_use *u;
    for (int i = 0; i < programs; i++)
        for (int j = 0; (u = program_use(&program[i], j)); j++) {
            bool stores = u->role == USE_PARTIAL_STORE;
            if (stores || u->role == USE_PARTIAL_LOAD) u->blocks = 0;
            if (stores && buffer[u->buffer].space == SPACE_WORK) buffer[u->buffer].bytes = 0;
        }
    for (int i = 0; i < buffers; i++)
        if (buffer[i].space == SPACE_WORK) buffer[i].offset = 0;
    for (int i = 0; i < programs; i++) program[i].port = NULL, program[i].step = NULL, program[i].spec = NULL;
}

/* memcpy that allows NULL for zero bytes. */
static void copy_bytes(void *to, const void *from, size_t bytes)
{
    if (bytes) memcpy(to, from, bytes);
}

static bool image_new(struct image *out, const struct sample *s)
{
    const struct plan *p = s->plan;
    struct program *program;
    struct buffer *buffer;
    size_t own = plan_bytes(p);
    *out = (struct image){calloc(1, own + s->bytes + ALIGN), own + s->bytes};
    if (!out->data) return false;
    copy_bytes(out->data, p->program, sizeof *p->program * (size_t)p->programs);
    resolve(out->data, p, &program, &buffer);
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        copy_bytes(program[i].port, q->port, sizeof *q->port * (size_t)q->ports);
        if (q->own) memcpy(program[i].spec, q->spec, q->own->size);
    }
    copy_bytes(buffer, p->buffer, sizeof *p->buffer * (size_t)p->buffers);
    copy_bytes(out->data + own, s->beside, s->bytes);
    blank(program, p->programs, buffer, p->buffers);
    return true;
}

static int64_t *word_of(const struct image *m, size_t i) { return (int64_t *)(void *)m->data + i; }
static size_t words_of(const struct image *m) { return m->bytes / sizeof(int64_t); }

/* ---- What is no number ---- */

/* A map is a pointer among the numbers: of a caller's map there is no skeleton. */
static bool is_plain(const struct program *q)
{
    const struct prim *map = q->own && q->own->map ? q->own->map(q->spec) : NULL;
    return !map || map->header || !map->source;
}

/* Steps are shared: they are equal altogether. */
static bool same_program(const struct program *a, const struct program *b)
{
    bool same = !program_differs(a, b, FIELD_KIND | FIELD_PLACE | FIELD_NAME);
    for (int i = 0; same && i < a->steps; i++) same = !step_differs(&a->step[i], &b->step[i], FIELD_ALL);
    const struct tensor_use *u;
    for (int i = 0; same && (u = program_use(a, i)); i++) same = u->role != USE_SCRATCH;
    return same && is_plain(a) && is_plain(b);
}

static bool same_structure(const struct sample *x, const struct sample *y)
{
    const struct plan *a = x->plan, *b = y->plan;
    bool same = a->programs == b->programs && a->buffers == b->buffers && x->bytes == y->bytes &&
                a->prepared == b->prepared && a->prepared_id == b->prepared_id;
    for (int i = 0; same && i < a->programs; i++) same = same_program(&a->program[i], &b->program[i]);
    return same;
}

/* ---- Polynomials ---- */

/* Newton's: for each point the alternating sum over the points that are nowhere above it. */
struct skeleton_number skeleton_number(int variables, int points, const int64_t *value)
{
    struct skeleton_number p = {{0}, 0};
    for (int i = 0; i < points; i++) {
        int64_t at[SKELETON_VARIABLES], from[SKELETON_VARIABLES];
        uint64_t sum = 0;
        skeleton_point(variables, i, at);
        for (int j = 0; j < points; j++) {
            int64_t away = 0;
            skeleton_point(variables, j, from);
            for (int v = 0; v < variables; v++) away += at[v] - from[v];
            uint64_t term = (uint64_t)value[j] * term_at(variables, from, at);
            sum += away % 2 ? -term : term;
        }
        p.difference[i] = (int64_t)sum;
        if (sum) p.terms = i + 1;
    }
    return p;
}

static int find_polynomial(struct skeleton *s, const struct skeleton_number *p)
{
    size_t bytes = sizeof *p->difference * (size_t)s->points;
    for (int i = 0; i < s->polynomials; i++)
        if (!memcmp(s->polynomial[i].difference, p->difference, bytes)) return i;
    if (s->polynomials == MOST_POLYNOMIALS) return -1;
    if (s->polynomials % 16 == 0) {
        size_t room = (size_t)s->polynomials + 16;
        struct skeleton_number *wider = realloc(s->polynomial, sizeof *wider * room);
        if (!wider) return -1;
        s->polynomial = wider;
    }
    s->polynomial[s->polynomials] = *p;
    return s->polynomials++;
}

static bool add_patch(struct skeleton *s, size_t word, const int64_t *value)
{
    const struct skeleton_number p = skeleton_number(s->variables, s->points, value);
    int found = find_polynomial(s, &p);
    if (found < 0) return false;
    if (s->patches % 256 == 0) {
        struct patch *wider = realloc(s->patch, sizeof *wider * ((size_t)s->patches + 256));
        if (!wider) return false;
        s->patch = wider;
    }
    s->patch[s->patches++] = (struct patch){(uint32_t)word, (uint32_t)found};
    return true;
}

static bool find_patches(struct skeleton *s, const struct image *image)
{
    int64_t value[SKELETON_POINTS];
    for (size_t w = 0; w < words_of(image); w++) {
        bool varies = false;
        for (int i = 0; i < s->points; i++) {
            value[i] = *word_of(&image[i], w);
            varies = varies || value[i] != value[0];
        }
        if (varies && !add_patch(s, w, value)) return false;
    }
    return true;
}

void skeleton_terms(int variables, int points, const int64_t *at, uint64_t *term)
{
    for (int i = 0; i < points; i++) {
        int64_t point[SKELETON_VARIABLES];
        skeleton_point(variables, i, point);
        term[i] = term_at(variables, point, at);
    }
}

int64_t skeleton_value(const struct skeleton_number *n, const uint64_t *term)
{
    uint64_t sum = 0;
    for (int k = 0; k < n->terms; k++) sum += (uint64_t)n->difference[k] * term[k];
    return (int64_t)sum;
}

static void evaluate(const struct skeleton *s, const int64_t *at, int64_t *value)
{
    uint64_t term[SKELETON_POINTS];
    skeleton_terms(s->variables, s->points, at, term);
    for (int i = 0; i < s->polynomials; i++) value[i] = skeleton_value(&s->polynomial[i], term);
}

static void write_patches(const struct skeleton *s, const int64_t *at, int64_t *word)
{
    int64_t value[MOST_POLYNOMIALS];
    evaluate(s, at, value);
    for (int i = 0; i < s->patches; i++) word[s->patch[i].word] = value[s->patch[i].polynomial];
}

/* ---- A skeleton ---- */

static void free_images(struct image *image, int n)
{
    for (int i = 0; i < n; i++) free(image[i].data);
}

struct skeleton *skeleton_new(const struct sample *sample, int variables, int degree)
{
    struct image image[SKELETON_POINTS];
    int points = skeleton_points(variables, degree), made = 0;
    struct skeleton *s = calloc(1, sizeof *s);
    bool good = s && points <= SKELETON_POINTS;
    for (int i = 1; good && i < points; i++) good = same_structure(&sample[0], &sample[i]);
    for (; good && made < points; made += good) good = image_new(&image[made], &sample[made]);
    if (good) {
        s->variables = variables, s->points = points;
        s->beside = plan_bytes(sample->plan);
        good = find_patches(s, image);
    }
    free_images(image + 1, made - 1);
    if (made) s->image = image[0];
    if (!good) return skeleton_free(s), NULL;
    s->plan = *sample->plan;
    memset(sample->plan, 0, sizeof *sample->plan);
    return s;
}

void skeleton_free(struct skeleton *s)
{
    if (!s) return;
    free(s->image.data);
    free(s->polynomial);
    free(s->patch);
    plan_free(&s->plan);
    free(s);
}

bool skeleton_fits(const struct skeleton *s, const struct sample *sample, const int64_t *at)
{
    const struct sample own = {(struct plan *)&s->plan, NULL, sample->bytes};
    struct image image;
    if (s->image.bytes != s->beside + sample->bytes || !same_structure(&own, sample)) return false;
    if (!image_new(&image, sample)) return false;
    int64_t *word = malloc(s->image.bytes);
    if (word) {
        memcpy(word, s->image.data, s->image.bytes);
        write_patches(s, at, word);
    }
    bool fits = word && !memcmp(word, image.data, s->image.bytes);
    free(word);
    free(image.data);
    return fits;
}

bool skeleton_plan(const struct skeleton *s, const int64_t *at, struct plan *out, void *beside)
{
    const struct plan *p = &s->plan;
    *out = (struct plan){.values = p->values,
                         .programs = p->programs,
                         .buffers = p->buffers,
                         .buffer_capacity = p->buffers,
                         .prepared = p->prepared,
                         .prepared_id = p->prepared_id,
                         .target = p->target};
    char *data = arena_copy(&out->arena, s->image.data, s->image.bytes);
    if (!data) return false;
    write_patches(s, at, (int64_t *)(void *)data);
    resolve(data, p, &out->program, &out->buffer);
    if (beside) memcpy(beside, data + s->beside, s->image.bytes - s->beside);
    return true;
}

/* With those of the first plan's graph and steps. */
size_t skeleton_bytes(const struct skeleton *s)
{
    return 2 * s->image.bytes + sizeof *s->patch * (size_t)s->patches;
}
