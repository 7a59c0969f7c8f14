/*
 * exchange_parts.c -- a product that two ranks add up, beside others, is made in two parts of its rows: of
 * each one rank makes the sum.
 *
 *     a b -> z    all_reduce(z) -> y      ==>      a b -> z          of the rows that the other rank adds up
 *                                                  z of the other rank -> t
 *                                                  a b + t -> y      of the rank's own rows
 *                                                  y of the other rank -> y
 *
 * So nothing adds up by itself. t lies in the group's memory, where copy engines of the other rank write it,
 * and so does what they bring of y on its way. A sum is made by one rank, and copied, so that both have its
 * bits; it is one of two numbers, which has no order. Which rows are a rank's its launches alone know. What
 * copies bring is waited for behind the next product that is shared. In: programs in order. Out: no such sum
 * of a large product. Exact, but that compilers may round a factor of columns and the sum at once.
 */
#include "exchange.h"
#include "own.h"
#include "schedule.h"

#include <string.h>

enum {
    RANKS = 2,
    ROWS = 32,      /* by which a product's are divided, so that parts begin at 16 bytes */
    MOST_PLACES = 2 /* of two sums, as one is due while the next one begins */
};

/* A sum in two parts: the programs that are there, and what they become. */
struct parts {
    int product, exchange;
    struct program own, gather; /* of the rank's own rows; of the other's */
    int terms;                  /* t */
    struct parts *next;         /* that is due */
};

struct sharing {
    struct plan *p;
    struct program *out;
    int *whole; /* of each: what it is a part of */
    int placed;
    struct parts *due;
    const struct tensor_use *last; /* what the last exchange makes */
    bool taken[MOST_PLACES];       /* places in the inbox */
    int places;
};

/* ---- Which ---- */

/* The program that alone writes the buffer, which one other reads; -1. */
static int only_writer(const struct plan *p, int buffer, int reader)
{
    const struct tensor_use *u;
    int writer = -1;
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; (u = program_use(&p->program[i], j)); j++) {
            if (u->buffer != buffer || i == reader) continue;
            if (use_effect(u) != EFFECT_WRITE || writer >= 0 || u->version) return -1;
            writer = i;
        }
    return writer;
}

/* Its epilogue makes of each row the same: by factors of columns, say. */
static bool is_of_columns(const struct program *q)
{
    for (int i = 0; i + 1 < q->steps; i++) {
        const struct step *s = &q->step[i];
        bool column = s->kind == STEP_LOAD && s->cls == CLASS_COL && q->port[s->port].role == USE_LOAD;
        if (s->range || (s->kind != STEP_ACC && s->kind != STEP_MAP && !column)) return false;
    }
    return q->steps && q->step[q->steps - 1].kind == STEP_STORE;
}

static bool is_taken(const struct program *q)
{
    bool plain = q->kind == PROGRAM_GEMM && program_is_plain(q) && !q->prepare && q->dim[0] == 1 &&
                 !q->sample && !q->segment && !q->ranges && !q->parts && q->pair == PAIR_NONE;
    if (!plain || !is_of_columns(q)) return false;
    const struct step *store = &q->step[q->steps - 1];
    const struct tensor_use *to = &q->port[store->port];
    return !store->range && !store->store_columns.end && to->role == USE_STORE &&
           use_effect(to) == EFFECT_WRITE && dtype_is_float(to->dtype) && !to->offset &&
           to->stride[1] == q->dim[2] && to->stride[2] == 1 && q->dim[1] % ROWS == 0 && q->dim[2] % ROWS == 0;
}

static int product_of(const struct plan *p, int i, enum exchange_wish wish)
{
    const struct exchange_spec *s = p->program[i].spec;
    if (p->program[i].own != &own_exchange || p->program[i].prepare || s->op != OP_ALL_REDUCE ||
        !exchange_shares(s, wish))
        return -1;
    const struct tensor_use *x = &s->use[ALL_REDUCE_X], *y = &s->use[ALL_REDUCE_SUM];
    int product = p->buffer[x->buffer].space == SPACE_WORK ? only_writer(p, x->buffer, i) : -1;
    bool whole = product >= 0 && is_taken(&p->program[product]) && !x->offset && !y->offset && !y->version;
    return whole && s->extent == p->program[product].dim[1] * p->program[product].dim[2] ? product : -1;
}

/* ---- Parts ---- */

static int half_rows(const struct program *q) { return (int)(q->dim[1] / RANKS); }

/* The product of the rank's own rows, or of those of the one ahead. */
static void take_part(struct program *q, int ahead)
{
    q->dim[1] = half_rows(q);
    q->a.data.by_rank = q->dim[1] * q->a.data.row;
    q->a.data.ahead = ahead;
}

/* A step behind the others; its value is of y. */
static struct step *add_step(struct program *q, struct step s, int value)
{
    struct step *at = &q->step[q->steps++];
    *at = s, at->cls = CLASS_TILE, at->value = value;
    return at;
}

/* A port that lies as the product's store does, in another buffer. */
static int add_port(struct program *q, enum use_role role, int store, int buffer, int value)
{
    struct tensor_use *u = &q->port[q->ports];
    *u = q->port[store];
    u->role = role, u->buffer = buffer, u->value = value;
    return q->ports++;
}

static int add_map(struct program *q, const char *prim, int x, int y, int value)
{
    struct step map = {.kind = STEP_MAP, .prim = prim_find(prim), .nin = y < 0 ? 1 : 2, .port = -1};
    map.in[0] = x, map.in[1] = MAX(y, 0);
    add_step(q, map, value);
    return q->steps - 1;
}

/* The product + t, to y: the product is rounded as t is. */
static bool make_own(struct plan *p, const struct program *of, const struct tensor_use *y, int t,
                     struct program *out)
{
    const struct step store = of->step[of->steps - 1];
    *out = *of;
    out->port = ARENA_NEW(&p->arena, struct tensor_use, of->ports + 1);
    out->step = ARENA_NEW(&p->arena, struct step, of->steps + 3);
    if (!out->port || !out->step) return false;
    memcpy(out->port, of->port, sizeof *out->port * (size_t)of->ports);
    memcpy(out->step, of->step, sizeof *out->step * (size_t)--out->steps);
    take_part(out, 0);
    int product = store.in[0], terms = add_port(out, USE_LOAD, store.port, t, y->value);
    if (y->dtype != CODA_F32)
        product = add_map(out, y->dtype == CODA_BF16 ? "to_bf16" : "to_f16", product, -1, y->value);
    add_step(out, (struct step){.kind = STEP_LOAD, .port = terms}, y->value);
    int sum = add_map(out, "add", product, out->steps - 1, y->value);
    add_step(out, store, y->value)->in[0] = sum;
    struct tensor_use *to = &out->port[store.port];
    to->buffer = y->buffer, to->value = y->value, to->by_rank = out->dim[1] * out->dim[2];
    return true;
}

/* From the rank's own part of y to the other one's. */
static bool make_gather(struct plan *p, const struct program *exchange, struct program *out)
{
    struct exchange_spec *s = ARENA_NEW(&p->arena, struct exchange_spec, 1);
    if (!s) return false;
    *out = *exchange;
    memcpy(s, exchange->spec, sizeof *s);
    s->op = OP_ALL_GATHER, s->moves = true;
    s->extent /= RANKS;
    struct tensor_use *x = &s->use[ALL_REDUCE_X], *y = &s->use[ALL_REDUCE_SUM];
    const enum use_role reads = x->role;
    *x = *y;
    x->role = reads, x->by_rank = s->extent;
    y->version = 1;
    out->spec = s;
    out->dim[1] = s->extent;
    return true;
}

/* Who reads the sum reads it behind both parts. */
static void read_behind(struct plan *p, int exchange, int buffer)
{
    struct tensor_use *u;
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; i != exchange && (u = program_use(&p->program[i], j)); j++)
            if (u->buffer == buffer) u->version++;
}

static int add_inbox(struct plan *p, int64_t bytes, int value)
{
    struct buffer b = {
        .space = SPACE_INBOX, .bytes = bytes, .offset = -1, .first = -1, .last = -1, .value = value};
    return plan_add_buffer(p, b);
}

static struct parts *share(struct plan *p, int exchange, int product)
{
    struct parts *two = ARENA_NEW(&p->arena, struct parts, 1);
    struct program *e = &p->program[exchange], *q = &p->program[product];
    struct exchange_spec *s = e->spec;
    struct tensor_use *y = &s->use[ALL_REDUCE_SUM];
    int64_t bytes = dtype_bytes(y->dtype, s->extent / RANKS);
    int t = add_inbox(p, bytes, y->value);
    bool made = two && make_own(p, q, y, t, &two->own) && make_gather(p, e, &two->gather);
    if (!made || p->arena.failed) return NULL;
    *two = (struct parts){product, exchange, two->own, two->gather, t, NULL};
    two->own.root = e->root;
    read_behind(p, exchange, y->buffer);
    take_part(q, 1);
    p->buffer[s->use[ALL_REDUCE_X].buffer].bytes = bytes;
    s->extent /= RANKS, s->moves = true;
    e->dim[1] = s->extent;
    y->buffer = t;
    return two;
}

/* ---- In order ---- */

/* Behind the exchange ahead of it, which has another result now. */
static void place_exchange(struct sharing *w, struct program *q)
{
    struct exchange_spec *s = q->spec;
    struct tensor_use *before = &s->use[ALL_REDUCE_BEFORE];
    if (w->last) {
        *before = *w->last;
        before->role = s->use[ALL_REDUCE_X].role, before->effect = 0, before->by_rank = 0;
    } else before->buffer = -1;
    w->last = &s->use[ALL_REDUCE_SUM];
}

static void place(struct sharing *w, const struct program *q, int whole)
{
    struct program *at = &w->out[w->placed];
    w->whole[w->placed++] = whole;
    *at = *q;
    if (at->own == &own_exchange && !at->prepare) place_exchange(w, at);
}

/* ---- Places in the inbox ---- */

/* A sum has its place from the exchange on, and leaves it with its gather: then its product has read it. */
static void take_place(struct sharing *w, const struct parts *of)
{
    int i = 0;
    while (w->taken[i]) i++;
    w->taken[i] = true;
    w->places = MAX(w->places, i + 1);
    w->p->buffer[of->terms].offset = i;
}

static void size_places(struct sharing *w)
{
    enum { ALIGNED = 256 };
    struct plan *p = w->p;
    int64_t bytes = 0;
    for (int i = 0; i < p->buffers; i++)
        if (p->buffer[i].space == SPACE_INBOX)
            bytes = MAX(bytes, CEIL_DIV(p->buffer[i].bytes, ALIGNED) * ALIGNED);
    for (int i = 0; i < p->buffers; i++)
        if (p->buffer[i].space == SPACE_INBOX) p->buffer[i].offset *= bytes;
    p->inbox = w->places * bytes;
}

/* ---- Programs again ---- */

static void place_due(struct sharing *w)
{
    for (; w->due; w->due = w->due->next) {
        place(w, &w->due->own, w->due->product);
        place(w, &w->due->gather, w->due->exchange);
        w->taken[w->p->buffer[w->due->terms].offset] = false;
    }
}

/* Does the program write over what parts that are due read? */
static bool writes_over(const struct sharing *w, const struct program *q)
{
    const struct tensor_use *u, *r;
    for (const struct parts *d = w->due; d; d = d->next)
        for (int j = 0; (u = program_use(q, j)); j++)
            for (int k = 0; use_effect(u) != EFFECT_READ && (r = program_use(&d->own, k)); k++)
                if (r->buffer == u->buffer) return true;
    return false;
}

/* Does it wait for them? */
static bool reads_them(const struct sharing *w, const struct program *q)
{
    const struct tensor_use *u;
    for (const struct parts *d = w->due; d; d = d->next) {
        const struct exchange_spec *s = d->gather.spec;
        for (int j = 0; (u = program_use(q, j)); j++)
            if (u->buffer == s->use[ALL_REDUCE_SUM].buffer && !exchange_is_order(q, u)) return true;
    }
    return false;
}

static void place_all(struct sharing *w, struct parts *const *of)
{
    for (int i = 0; i < w->p->programs; i++) {
        const struct program *q = &w->p->program[i];
        if (writes_over(w, q) || reads_them(w, q)) place_due(w);
        place(w, q, i);
        if (!of[i]) continue;
        take_place(w, of[i]);
        place_due(w);
        w->due = of[i];
    }
    place_due(w);
}

/* ---- Earlier ---- */

/* Does one write what the other uses? */
static bool conflict(const struct program *a, const struct program *b)
{
    const struct tensor_use *u, *v;
    for (int j = 0; (u = program_use(a, j)); j++)
        for (int k = 0; (v = program_use(b, k)); k++)
            if (u->buffer == v->buffer && (use_effect(u) != EFFECT_READ || use_effect(v) != EFFECT_READ))
                return true;
    return false;
}

static bool is_part(const struct program *q) { return q->kind == PROGRAM_GEMM && q->a.data.by_rank; }

/* A part and the exchange behind it, at k, go ahead of what neither needs: so the link has work early, and
 * programs that exchange nothing run beside. No exchange and no part changes places with another one. */
static void hoist(struct sharing *w, int k)
{
    const struct program part = w->out[k], exchange = w->out[k + 1];
    const int whole[] = {w->whole[k], w->whole[k + 1]};
    int to = k;
    for (; to > 0; to--) {
        const struct program *q = &w->out[to - 1];
        if (q->prepare || q->own == &own_exchange || is_part(q)) break;
        if (conflict(q, &part) || conflict(q, &exchange)) break;
    }
    memmove(&w->out[to + 2], &w->out[to], sizeof *w->out * (size_t)(k - to));
    memmove(&w->whole[to + 2], &w->whole[to], sizeof *w->whole * (size_t)(k - to));
    w->out[to] = part, w->out[to + 1] = exchange;
    w->whole[to] = whole[0], w->whole[to + 1] = whole[1];
}

static coda_status put_in_order(struct plan *p, struct parts *const *of, int count)
{
    int most = p->programs + 2 * count + 1;
    struct sharing w = {
        .p = p, .out = ARENA_NEW(&p->arena, struct program, most), .whole = ARENA_NEW(&p->arena, int, most)};
    if (!w.out || !w.whole) return fail(CODA_E_MEMORY, "out of memory for %d programs", most);
    place_all(&w, of);
    for (int k = 0; k + 1 < w.placed; k++)
        if (is_part(&w.out[k]) && w.out[k + 1].own == &own_exchange) hoist(&w, k);
    size_places(&w);
    p->program = w.out, p->whole = w.whole;
    p->programs = w.placed;
    return CODA_OK;
}

coda_status schedule_parts(struct plan *p, const struct plan_options *opt)
{
    struct parts **of = ARENA_NEW(&p->arena, struct parts *, p->programs + 1);
    bool shares = p->overlaps && !opt->one_of_many && plan_has_one_group(p);
    int count = 0;
    if (!of) return fail(CODA_E_MEMORY, "out of memory for %d programs", p->programs);
    for (int i = 0; i < p->programs && shares; i++) {
        int product = product_of(p, i, opt->exchange);
        if (product < 0) continue;
        if (!(of[i] = share(p, i, product))) return fail(CODA_E_MEMORY, "out of memory for a sum in parts");
        count++;
    }
    return count ? put_in_order(p, of, count) : CODA_OK;
}
