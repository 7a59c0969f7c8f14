/*
 * schedule.c -- how each program runs on one target: a GEMM's tile, and how many states a reduction leaves of
 * each row or column, which follows from the tiles, or from how a pass over rows is cut.
 */
#include "schedule.h"

#include "mainloop.h"
#include "variants.h"

#include <string.h>

/* ---- Tiles ---- */

/* That the epilogue leaves. */
static int64_t states_left(const struct program *q, const struct tile *t)
{
    int64_t states = 0;
    for (int i = 0; i < q->ports; i++)
        if (q->port[i].role == USE_PARTIAL_STORE)
            states += q->port[i].axis == REDUCE_COLUMNS ? mul_counts(program_column_states(q, t), q->dim[2])
                                                        : mul_counts(program_states(q, t), q->dim[1]);
    return states;
}

/* Tiles of more rows are wider, and leave fewer states. So of these, which fewer rows may have, too, the best
 * leaves no more than a larger shape's does, whatever its tile. */
static bool choose_frugal(struct plan *p, const struct program *q, const struct plan_options *opt,
                          struct tile *out)
{
    enum { MANY_ROWS = 1 << 17 };
    int64_t least = INT64_MAX;
    for (int64_t rows = q->dim[1]; rows <= MAX(MANY_ROWS, q->dim[1]); rows = variants_last(rows) + 1) {
        const struct program at = variants_at(q, rows);
        struct tile t;
        if (!variants_tile(opt->variants, p, &at, &opt->target, &t)) return false;
        if (states_left(q, &t) < least) least = states_left(q, &t), *out = t;
    }
    return true;
}

static bool leaves_states(const struct program *q)
{
    bool leaves = false;
    for (int i = 0; i < q->ports; i++) leaves = leaves || q->port[i].role == USE_PARTIAL_STORE;
    return leaves;
}

/* A reader of a row's states of several numbers asks for STATES_AT_ONCE of them at a time (States of
 * fold.cuh), and waits WAITS clocks more for each further lot. On an H200, with 345 rows of MiniLM's shape
 * and norms folded, a layer takes 22.9 us where both products that leave states have tiles of 64 x 32, 12
 * states, and 21.05 us with 64 x 64, six states, which take 3,500 clocks more by price. */
enum { STATES_AT_ONCE = 8, WAITS = 2800, NEAR = 2 /* programs, to the first reader */ };

static bool finishes(const struct program *reader, int value)
{
    for (int i = 0; i < reader->ports; i++)
        if (reader->port[i].role == USE_PARTIAL_LOAD && reader->port[i].value == value) return true;
    return false;
}

/* Does a product close behind q finish states of several numbers of q's rows? */
static bool product_finishes(const struct plan *p, const struct program *q)
{
    const struct program *end = p->program + p->programs;
    for (int i = 0; i < q->ports; i++) {
        const struct tensor_use *u = &q->port[i];
        if (u->role != USE_PARTIAL_STORE || u->axis != REDUCE_ROWS || u->reduce->state == 1) continue;
        for (const struct program *r = q + 1; r < end && r <= q + NEAR; r++)
            if (r->kind == PROGRAM_GEMM && finishes(r, u->value)) return true;
    }
    return false;
}

static double price_with_waits(const struct program *q, const struct tile *t, const struct target *target)
{
    int64_t lots = CEIL_DIV(program_states(q, t), STATES_AT_ONCE);
    return t->mainloop->cost(q, t, target) + (double)(lots - 1) * WAITS;
}

/* The cheapest with what its states cost their readers. */
static struct tile choose_few_states(const struct program *q, const struct target *target)
{
    struct tile all[MOST_CANDIDATES], best = tile_choose(q, target);
    if (program_states(q, &best) <= STATES_AT_ONCE) return best;
    int n = tile_candidates(q, target, TILES_KNOWN, all, MOST_CANDIDATES);
    double least = price_with_waits(q, &best, target);
    for (int i = 0; i < n; i++) {
        double price = price_with_waits(q, &all[i], target);
        if (price < least) best = all[i], least = price;
    }
    return best;
}

/* By price. */
static bool choose_tile(struct plan *p, struct program *q, const struct plan_options *opt, struct tile *out)
{
    bool one = !opt->variants || !variants_take(q), warps = q->dim[1] <= ROWS_OF_WARPS;
    if (one && !warps && !q->invariant && product_finishes(p, q))
        return *out = choose_few_states(q, &opt->target), true;
    bool frugal = opt->frugal && opt->variants && variants_take(q) && leaves_states(q);
    if (frugal) return choose_frugal(p, q, opt, out);
    struct product *known = opt->product ? opt->product[q - p->program] : NULL;
    if (known && variants_take(q)) return variants_tile_of(opt->variants, known, q, opt->base, out);
    if (!opt->variants || !variants_take(q)) return *out = tile_choose(q, &opt->target), true;
    return (opt->base ? variants_base : variants_tile)(opt->variants, p, q, &opt->target, out);
}

/* Equal products have equal tiles: the cheapest is sought once. */
static bool set_tile(struct plan *p, int index, struct memo *tiles, const struct plan_options *opt)
{
    struct program *q = &p->program[index];
    struct schedule *s = &p->schedule[index];
    const struct decision *d = plan_decision(opt, q->root);
    s->figures = d ? d->figures : NULL;
    if (s->tile.mainloop) return true; /* that of its launch */
    if (d && d->tile) {
        s->tile = tile_offered(q, &opt->target, d->tile);
        return true;
    }
    if (opt->variants && variants_take(q)) return choose_tile(p, q, opt, &s->tile); /* they have a table */
    struct program *first = memo_program(tiles, &p->arena, p->buffer, q);
    if (first == q) return choose_tile(p, q, opt, &s->tile);
    if (first) s->tile = p->schedule[first - p->program].tile;
    return first;
}

static coda_status set_tiles(struct plan *p, const struct plan_options *opt)
{
    struct memo tiles = {0};
    bool good = true;
    for (int i = 0; i < p->programs && good; i++) {
        const struct program *q = &p->program[i];
        if (q->kind != PROGRAM_GEMM) continue;
        if ((operand_is_scaled(&q->a) || operand_is_scaled(&q->b)) && !program_has_block_scales(q))
            return fail(CODA_E_UNSUPPORTED, "plan: @%d has an operand that no main loop decodes", i);
        good = set_tile(p, i, &tiles, opt);
    }
    bool lost = !good || p->arena.failed;
    return lost ? fail(CODA_E_MEMORY, "out of memory for a plan of %d values", p->values) : CODA_OK;
}

/* ---- States ---- */

/* -1: no memory. */
static int64_t count_states(struct plan *p, const struct program *q, enum reduce_axis axis)
{
    const struct tile *t = &p->schedule[q - p->program].tile;
    struct rows_walk w;
    if (q->kind == PROGRAM_ROWS)
        return rows_walk(&w, &p->arena, q) ? -1 : columns_states(&w, q, p->target.sms);
    return axis == REDUCE_COLUMNS ? program_column_states(q, t) : program_states(q, t);
}

/* The bytes of so many states. Fewer matrices may have more: 100 have 5 parts each, and 33 have 16. A plan
 * of one shape of many therefore has room for the most of any smaller one: the largest one's workspace
 * serves all. */
static coda_status size_buffer(struct plan *p, const struct program *q, struct tensor_use *port,
                               bool one_of_many)
{
    struct rows_walk w;
    int64_t *bytes = &p->buffer[port->buffer].bytes;
    *bytes = port_bytes(q, (int)(port - q->port));
    if (!one_of_many || q->kind != PROGRAM_ROWS || !*bytes) return CODA_OK;
    coda_status status = rows_walk(&w, &p->arena, q);
    if (status) return status;
    int64_t matrices = w.rows / MAX(q->dim[q->rank - 2], 1), states = mul_counts(matrices, port->blocks);
    int64_t most = columns_most_states(&w, q, p->target.sms);
    if (most > states) *bytes = mul_counts(CEIL_DIV(*bytes, MAX(states, 1)), most);
    return CODA_OK;
}

static coda_status size_state(struct plan *p, int index, struct tensor_use *port, int *blocks,
                              bool one_of_many)
{
    const struct program *q = &p->program[index];
    int64_t states = count_states(p, q, port->axis);
    if (states < 0) return fail_status();
    if (states > INT32_MAX)
        return fail(CODA_E_UNSUPPORTED, "plan: %%%d reduces %lld %s in %lld tiles; most are %d", port->value,
                    (long long)q->dim[q->rank - 1 - port->axis],
                    port->axis == REDUCE_COLUMNS ? "rows" : "columns", (long long)states, INT32_MAX);
    port->blocks = blocks[port->value] = (int)states;
    return size_buffer(p, q, port, one_of_many);
}

/* How many states a row or a column has: by node, for those who leave them and those who finish them. */
static coda_status size_states(struct plan *p, bool one_of_many)
{
    int *blocks = ARENA_NEW(&p->arena, int, p->values + 1);
    coda_status status = CODA_OK;
    struct tensor_use *use;
    if (!blocks) return fail(CODA_E_MEMORY, "out of memory for a plan of %d values", p->values);
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; j < p->program[i].ports && !status; j++)
            if (p->program[i].port[j].role == USE_PARTIAL_STORE)
                status = size_state(p, i, &p->program[i].port[j], blocks, one_of_many);
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; (use = program_use(&p->program[i], j)); j++)
            if (use->role == USE_PARTIAL_LOAD) use->blocks = blocks[use->value];
    return status;
}

/* ---- Operations with a kernel of their own ---- */

static void (*const schedule_own[])(struct schedule *, const struct program *,
                                    const struct plan_options *) = {
#define X(NAME, name) schedule_##name,
    OWN_KERNELS(X)
#undef X
};

static void schedule_owns(struct plan *p, const struct plan_options *opt)
{
    for (int i = 0; i < p->programs; i++) {
        const struct program *q = &p->program[i];
        if (q->own) schedule_own[q->own->index](&p->schedule[i], q, opt);
    }
}

/* ---- Memory of main loops ---- */

static struct tensor_use scratch_of(struct plan *p, const struct program *q, int64_t bytes)
{
    struct buffer scratch = {.space = SPACE_WORK, .bytes = bytes, .first = -1, .last = -1, .value = -1};
    return (struct tensor_use){
        .role = USE_SCRATCH, .buffer = plan_add_buffer(p, scratch), .dtype = CODA_F32, .value = q->root};
}

/* Behind all that the steps use. */
static void add_scratch(struct plan *p, struct program *q, int64_t bytes)
{
    struct tensor_use *port = ARENA_NEW(&p->arena, struct tensor_use, q->ports + 1);
    if (!port) return;
    if (q->ports) memcpy(port, q->port, sizeof *port * (size_t)q->ports);
    port[q->ports++] = scratch_of(p, q, bytes);
    q->port = port;
}

static coda_status add_scratches(struct plan *p)
{
    for (int i = 0; i < p->programs; i++) {
        const struct tile *t = &p->schedule[i].tile;
        int64_t bytes = p->program[i].kind == PROGRAM_GEMM ? tile_scratch(&p->program[i], t) : 0;
        if (bytes) add_scratch(p, &p->program[i], bytes);
        if (p->schedule[i].parts_bytes) {
            struct attention_spec *a = p->program[i].spec;
            a->shares = true, a->parts = scratch_of(p, &p->program[i], p->schedule[i].parts_bytes);
        }
    }
    return p->arena.failed ? fail(CODA_E_MEMORY, "out of memory for %d programs", p->programs) : CODA_OK;
}

coda_status schedule(struct plan *p, const struct plan_options *opt)
{
    p->schedule = ARENA_NEW(&p->arena, struct schedule, p->programs + 1);
    if (!p->schedule) return fail(CODA_E_MEMORY, "out of memory for %d programs", p->programs);
    coda_status status = schedule_together(p, opt);
    if (!status) status = set_tiles(p, opt);
    if (!status) status = size_states(p, opt->one_of_many);
    if (status) return status;
    schedule_owns(p, opt);
    schedule_cublaslt(p, opt);
    return add_scratches(p);
}

/* ---- What the kernel needs besides ---- */

static coda_status complete_gemm(struct schedule *s, struct arena *a, const struct program *q,
                                 const struct target *target)
{
    if (!epilogue_layout_fill(&s->layout, a, q, &s->tile))
        return fail(CODA_E_MEMORY, "out of memory for a kernel of %d steps", q->steps);
    s->shared_bytes = tile_shared_bytes(q, &s->tile);
    s->tile.mainloop->complete(s, q, target);
    return CODA_OK;
}

static coda_status complete_rows(struct schedule *s, struct arena *a, const struct program *q)
{
    coda_status status = rows_walk(&s->walk, a, q);
    if (!status && s->exchange) rows_spread(&s->walk, q);
    s->threads = s->walk.threads;
    s->early = s->pdl && !q->prepare; /* it waits at once */
    if (!status) s->grid = rows_blocks(&s->walk, q);
    return status;
}

coda_status schedule_complete(struct schedule *s, struct arena *a, const struct program *q,
                              const struct target *target)
{
    s->pdl = target_has(target, TARGET_PDL);
    switch (q->kind) {
    case PROGRAM_GEMM: return complete_gemm(s, a, q, target);
    case PROGRAM_ROWS: return complete_rows(s, a, q);
    case PROGRAM_OWN: s->early = s->pdl && !q->prepare && s->grid; break; /* else complete from the start */
    }
    return CODA_OK;
}

bool schedule_complete_like(struct schedule *s, const struct schedule *other, const struct program *q,
                            const struct target *target)
{
    const struct tile *t = &s->tile;
    if (!t->most_rows || !t->mainloop->tma || q->sample) return false;
    if (other->layout.steps_evenly != pair_steps_evenly(q)) return false;
    s->pdl = target_has(target, TARGET_PDL);
    s->layout = other->layout;
    s->layout.column_states = program_column_states(q, t);
    s->layout.a_box = tile_a_box(q, t);
    s->shared_bytes = other->shared_bytes;
    t->mainloop->complete(s, q, target);
    return true;
}
