/*
 * test_fields.c -- program.def against what reads it: one field of a program of a random graph is changed,
 * and identities, comparisons and texts answer as its row says.
 */
#include "emit.h"
#include "executable.h"
#include "graph_words.h"
#include "own.h"
#include "util_program.h"
#include "util_random.h"
#include "util_scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests.h" /* last: Check has a macro named fail */

/* ---- The fields of a program, from the table ---- */

struct field {
    const char *of, *name;
    void *at; /* one element of an array */
    enum field_kind kind;
    bool map; /* a pointer to a map, or a reduction */
};

enum { MOST_FIELDS = 1 << 15 };

struct fields {
    struct field field[MOST_FIELDS];
    int n;
};

static void add(struct fields *to, struct field f)
{
    if (to->n == MOST_FIELDS) ck_abort_msg("more than %d fields", to->n);
    to->field[to->n++] = f;
}

static void list_spec(struct fields *to, struct program *q);

#define STRUCT(S)                                                                                            \
    static void list_##S(struct fields *to, struct S *s)                                                     \
    {                                                                                                        \
        const char *const of = #S;
#define VALUE(type, name, what)                                                                              \
    for (size_t i = 0; i < sizeof s->name / sizeof(type); i++)                                               \
        add(to, (struct field){of, #name, (type *)&s->name + i, FIELD_##what, false});
#define PRIM(name, what) add(to, (struct field){of, #name, &s->name, FIELD_##what, true});
#define PART(S, name, when)                                                                                  \
    if (when) list_##S(to, &s->name);
#define PARTS(S, name, length)                                                                               \
    for (int i = 0; i < (length); i++) list_##S(to, &s->name[i]);
#define LIST(S, name, length) PARTS(S, name, s->length)
#define SPEC(name)                                                                                           \
    if (s->own) list_spec(to, s);
#define END(S)                                                                                               \
    (void)of;                                                                                                \
    }
#include "program.def"

static int row_of(const struct fields *rows, const struct field *f)
{
    int i = 0;
    while (strcmp(rows->field[i].of, f->of) || strcmp(rows->field[i].name, f->name)) i++;
    return i;
}

static void list_spec(struct fields *to, struct program *q)
{
#define X(NAME, name)                                                                                        \
    if (q->own == &own_##name) list_##name##_spec(to, q->spec);
    OWN_KERNELS(X)
#undef X
}

/* The rows themselves, each once. */
static void list_rows(struct fields *to)
{
#define X(NAME, name)                                                                                        \
    static struct name##_spec name;                                                                          \
    list_##name##_spec(to, &name);
    OWN_KERNELS(X)
#undef X
    static struct tensor_use use;
    static struct operand operand;
    static struct step step;
    static struct program program = {.kind = PROGRAM_ROWS};
    list_tensor_use(to, &use);
    list_operand(to, &operand);
    list_step(to, &step);
    list_program(to, &program); /* with its pairing, and ranges */
    int n = to->n;
    to->n = 0;
    for (int i = 0; i < n; i++) {
        struct field f = to->field[i];
        to->field[to->n] = f; /* as an end */
        to->n += row_of(to, &f) == to->n;
    }
}

/* To another map, or reduction; of anything else the lowest bit. Returns what it was, if a map. */
static const struct prim *change(const struct field *f)
{
    const struct prim **map = f->at, *was = f->map ? *map : NULL;
    if (!f->map) *(unsigned char *)f->at ^= 1;
    else if (was && was->kind == PRIM_REDUCE) *map = prim_find(was == prim_find("sum") ? "max" : "sum");
    else *map = prim_find(was == prim_find("relu") ? "silu" : "relu");
    return was;
}

static void undo(const struct field *f, const struct prim *was)
{
    if (f->map) *(const struct prim **)f->at = was;
    else change(f);
}

/* Kinds of programs have a spec or none, and lists are as long as they are. */
static bool may_change(const struct field *f)
{
    static const char *const never[] = {"own", "ports", "steps"};
    for (int i = 0; i < ARRAY_SIZE(never); i++)
        if (!strcmp(f->of, "program") && !strcmp(f->name, never[i])) return false;
    return strcmp(f->of, "program") != 0 || strcmp(f->name, "kind") != 0;
}

/* ---- Programs of random graphs ---- */

static struct program *copy_of(struct arena *a, const struct program *q)
{
    struct program *p = arena_copy(a, q, sizeof *q);
    p->port = arena_copy(a, q->port, sizeof *q->port * (size_t)q->ports);
    p->step = arena_copy(a, q->step, sizeof *q->step * (size_t)q->steps);
    if (q->own) p->spec = arena_copy(a, q->spec, q->own->size);
    return p;
}

/* A product whose weights lie in two tensors, which random graphs seldom have. */
static const char *const in_parts =
    "%x = input f32 [24,32]\n%g = weight f32 [48,32]\n%u = weight f32 [48,32]\n"
    "%a = matmul %x, %g\n%b = matmul %x, %u\n%s = silu %a\n%y = mul %s, %b\n"
    "output %o = %y\n";

/* Exchanges of more than one rank, which the examples, that one process runs, do not have. */
static const char *const in_ranks =
    "%p = group {ranks=2}\n%x = input f32 [24,32]\n%a = all_reduce %x, %p\n"
    "%b = reduce_scatter %x, %p, %a {axis=0}\n%c = all_gather %b, %p, %b {axis=1}\noutput %o = %c\n";

/* A convolution that has a map with a constant, decays of rows, one token whose steps are a product, and one
 * whose gates are maps, of which examples have none. */
static const char *const in_order =
    "%x = input f32 [6,8]\n%w = weight f32 [8,4]\n%c = conv1d %x, %w\n%y = scale %c {alpha=0.5}\n"
    "%d = input f32 [6,8]\n%b = input f32 [6,1]\n%s = delta %y, %y, %y, %d, %b {norm=1, eps=1e-6}\n"
    "%u = input bf16 [1,8]\n%v = weight bf16 [8,8]\n%t = matmul %u, %v\n%a = weight f32 [8,4]\n"
    "%n = input bf16 [1,4]\n%k = scan %u, %t, %a, %n, %n\noutput %o = %s\noutput %k = %k\n"
    "%h = input bf16 [1,16]\n%a0 = input bf16 [1,2]\n%a1 = cast %a0 {to=f32}\n%ab = weight f32 [2]\n"
    "%a2 = add %a1, %ab\n%a3 = softplus %a2\n%ar = weight f32 [2]\n%a4 = mul %a3, %ar\n%b0 = input bf16 "
    "[1,2]\n%bc = cast %b0 {to=f32}\n%b1 = sigmoid %bc\n"
    "%e = delta %h, %h, %h, %a4, %b1 {heads=2}\noutput %e = %e\n";

/* Graph `number` of a run: by turns a random one and, as far as there are some, an operation's example. */
static graph *graph_of(uint64_t seed, int number)
{
    enum { SELDOM = 32 };
    if (number % SELDOM == SELDOM / 2) return graph_parse(in_parts);
    if (number % SELDOM == SELDOM / 4) return graph_parse(in_ranks);
    if (number % SELDOM == SELDOM / 4 + 2) return graph_parse(in_order);
    const struct random_options of = {.states = seed % 2, .most_dim = seed % 3 ? 0 : 256};
    struct text t = {0};
    bool example = number % 2 && words_at(number / 2).kind == CODA_WORD_OPERATION;
    if (example) words_example(number / 2, &t);
    graph *g = example ? graph_parse(text_str(&t)) : random_graph(seed, &of);
    text_free(&t);
    return g;
}

static coda_plan *plan_of(uint64_t first, int number)
{
    uint64_t seed = first + (uint64_t)number;
    graph *g = graph_of(seed, number);
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p = NULL;
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY | (seed % 5 ? 0 : CODA_BATCH_INVARIANT) | (seed % 7 ? 0 : CODA_NO_FUSION);
    opt.arch = seed % 4 ? "sm_90a" : "sm_80";
    ck_assert_msg(g && !coda_compile(&p, g, &opt), "%s", coda_error());
    graph_free(g);
    return p;
}

/* ---- Identities and differences ---- */

struct pair {
    struct arena arena;
    struct program *was, *is;
    struct fields fields; /* of the latter */
};

static bool same_identity(struct pair *t, bool decided)
{
    struct identity x, y;
    bool (*of)(struct identity *, struct arena *, const struct buffer *, const struct program *) =
        decided ? identity_decided : identity_of;
    ck_assert(of(&x, &t->arena, NULL, t->was) && of(&y, &t->arena, NULL, t->is));
    bool same = x.size == y.size && !memcmp(x.data, y.data, x.size);
    ck_assert(!same || x.hash == y.hash);
    return same;
}

static void expect_row(struct pair *t, const struct field *f)
{
    const char *differs = program_differs(t->was, t->is, FIELD_ALL);
    ck_assert_msg(differs && !strcmp(differs, f->name), "%s.%s differs in %s", f->of, f->name, differs);
    for (unsigned kind = 1; kind < FIELD_ALL; kind *= 2)
        if (!program_differs(t->was, t->is, kind) != (kind != f->kind))
            ck_abort_msg("%s.%s is of another kind", f->of, f->name);
    if (f->kind == FIELD_PLACE) return;
    bool kept = f->kind == FIELD_KIND || f->kind == FIELD_NUMBER;
    ck_assert_msg(same_identity(t, false) == !kept, "%s.%s in an identity", f->of, f->name);
    kept = kept || f->kind == FIELD_DECIDED;
    ck_assert_msg(same_identity(t, true) == !kept, "%s.%s in an identity with decisions", f->of, f->name);
}

/* Tensors by their order: others in their places are no difference, one for two of them is. */
static void expect_places(struct pair *t)
{
    struct fields *all = &t->fields;
    int *first = NULL;
    for (int i = 0; i < all->n; i++)
        if (all->field[i].kind == FIELD_PLACE && *(int *)all->field[i].at >= 0)
            *(int *)all->field[i].at += 1000;
    ck_assert(same_identity(t, true));
    for (int i = 0; i < all->n; i++) {
        if (all->field[i].kind != FIELD_PLACE) continue;
        int *at = all->field[i].at, was = *at;
        if (was < 0) continue;
        if (!first) first = at;
        *at = *first;
        ck_assert(same_identity(t, true) == (was == *first));
        *at = was;
    }
}

static void open_pair(struct pair *t, const struct program *q)
{
    t->arena = (struct arena){0};
    t->fields.n = 0;
    t->was = copy_of(&t->arena, q);
    t->is = copy_of(&t->arena, q);
    list_program(&t->fields, t->is);
}

/* The first row of which no field was changed; NULL: there is none. */
static const struct field *next_unseen(const struct fields *rows, const bool *seen)
{
    for (int i = 0; i < rows->n; i++)
        if (may_change(&rows->field[i]) && !seen[row_of(rows, &rows->field[i])]) return &rows->field[i];
    return NULL;
}

/* Fields of rows that were not seen yet, and some. */
static void change_some(struct pair *t, struct random *r, const struct fields *rows, bool *seen)
{
    enum { PER_CENT = 3 };
    for (int i = 0; i < t->fields.n; i++) {
        const struct field *f = &t->fields.field[i];
        int row = row_of(rows, f);
        if (!may_change(f) || (seen[row] && !random_chance(r, PER_CENT))) continue;
        const struct prim *was = change(f);
        expect_row(t, f);
        undo(f, was);
        seen[row] = true;
    }
    expect_places(t);
}

START_TEST(rows_of_identity)
{
    enum { MOST_GRAPHS = 1000 };
    uint64_t seed = random_seed();
    struct random r = {seed};
    struct pair *t = malloc(sizeof *t);
    struct fields *rows = calloc(1, sizeof *rows);
    bool *seen = calloc(MOST_FIELDS, sizeof *seen);
    const struct field *f;
    ck_assert(t && rows && seen);
    list_rows(rows);
    for (int i = 0; i < MOST_GRAPHS && (next_unseen(rows, seen) || i < scaled(60)); i++) {
        coda_plan *p = plan_of(seed, i);
        for (int k = 0; k < p->plan.programs; k++) {
            open_pair(t, &p->plan.program[k]);
            change_some(t, &r, rows, seen);
            arena_free(&t->arena);
        }
        coda_plan_free(p);
    }
    f = next_unseen(rows, seen);
    ck_assert_msg(!f, "no program has a %s.%s", f->of, f->name);
    free(t), free(rows), free(seen);
}
END_TEST

/* ---- Texts ---- */

/* Of a program by itself, in a plan that has these buffers; NULL: it cannot be printed. */
static const char *text_of(struct plan *scratch, const struct plan *p, struct program *q,
                           const struct schedule *s)
{
    struct schedule own = *s;
    struct kernel k = {0};
    scratch->buffer = p->buffer, scratch->buffers = p->buffers, scratch->target = p->target;
    return program_emit(scratch, q, &own, &p->target, &k) ? NULL : k.text;
}

static bool has_kernel(const struct plan *p, int index)
{
    if (p->program[index].own == &own_exchange) return false;
    return !(p->program[index].kind == PROGRAM_GEMM && !p->schedule[index].tile.mainloop->kernel);
}

/* Other names, and the tensors in another order. */
static void rename_all(struct pair *t, struct plan *p, struct buffer *turned)
{
    for (int i = 0; i < p->buffers; i++) turned[p->buffers - 1 - i] = p->buffer[i];
    for (int i = 0; i < t->fields.n; i++) {
        int *at = t->fields.field[i].at;
        if (t->fields.field[i].kind == FIELD_NAME) ++*at;
        if (t->fields.field[i].kind == FIELD_PLACE && *at >= 0) *at = p->buffers - 1 - *at;
    }
    p->buffer = turned;
}

START_TEST(texts_of_equal_programs)
{
    struct pair *t = malloc(sizeof *t);
    uint64_t seed = random_seed();
    ck_assert(t);
    for (int i = 0; i < scaled(200); i++) {
        coda_plan *p = plan_of(seed, i);
        struct buffer *turned = calloc((size_t)p->plan.buffers + 1, sizeof *turned);
        for (int k = 0; k < p->plan.programs; k++) {
            struct plan scratch = {0}, other = p->plan;
            if (!has_kernel(&p->plan, k)) continue;
            open_pair(t, &p->plan.program[k]);
            const char *was = text_of(&scratch, &p->plan, t->was, &p->plan.schedule[k]);
            rename_all(t, &other, turned);
            const char *is = text_of(&scratch, &other, t->is, &p->plan.schedule[k]);
            ck_assert_msg(was && is && !strcmp(was, is), "%s\n%s", was, is);
            arena_free(&scratch.arena);
            arena_free(&t->arena);
        }
        free(turned);
        coda_plan_free(p);
    }
    free(t);
}
END_TEST

/* Rows whose change no text has shown yet are tried in a process of their own: a program with a field that
 * does not fit the others is no program, and what prints it may do anything. */
struct shown {
    int next; /* the first field that was not tried */
    bool row[MOST_FIELDS];
};

static void try_fields(struct pair *t, struct shown *shown, const struct fields *rows, const coda_plan *p,
                       int k)
{
    struct plan scratch = {0};
    const char *was = text_of(&scratch, &p->plan, t->was, &p->plan.schedule[k]);
    const struct itimerval most = {.it_value = {.tv_usec = 200000}}; /* of this process, for a field */
    if (!was) shown->next = t->fields.n;
    while (shown->next < t->fields.n) {
        const struct field *f = &t->fields.field[shown->next++];
        int row = row_of(rows, f);
        if (f->kind != FIELD_KIND || shown->row[row] || !may_change(f)) continue;
        setitimer(ITIMER_PROF, &most, NULL);
        const struct prim *map = change(f);
        const char *is = text_of(&scratch, &p->plan, t->is, &p->plan.schedule[k]);
        shown->row[row] = is && strcmp(is, was);
        undo(f, map);
    }
    _exit(0);
}

/* Rows of which no text says anything: how a program runs, what another row says, too; no kernel decodes an
 * operand; pairs have one operation; exchanges are no kernels; and of rows that a run appends only those
 * schedules ask that no random graph has: append_heads.coda. */
static bool is_silent(const struct field *f)
{
    static const char *const silent[][2] = {
        {"tensor_use", "version"}, {"tensor_use", "axis"},     {"operand", "scale"},
        {"operand", "zero"},       {"program", "prepare"},     {"pairing", "op"},
        {"exchange_spec", "op"},   {"exchange_spec", "ranks"}, {"attention_spec", "appends"}};
    for (int i = 0; i < ARRAY_SIZE(silent); i++)
        if (!strcmp(f->of, silent[i][0]) && !strcmp(f->name, silent[i][1])) return true;
    return !may_change(f) || f->kind != FIELD_KIND;
}

/* The first row that no text has shown; NULL: there is none. */
static const struct field *next_silent(const struct fields *rows, const struct shown *shown)
{
    for (int i = 0; i < rows->n; i++)
        if (!is_silent(&rows->field[i]) && !shown->row[row_of(rows, &rows->field[i])]) return &rows->field[i];
    return NULL;
}

static void try_plan(struct pair *t, struct shown *shown, const struct fields *rows, const coda_plan *p)
{
    for (int k = 0; k < p->plan.programs; k++) {
        if (!has_kernel(&p->plan, k)) continue;
        open_pair(t, &p->plan.program[k]);
        for (shown->next = 0; shown->next < t->fields.n;) {
            int status;
            pid_t child = fork();
            if (!child) try_fields(t, shown, rows, p, k);
            ck_assert(child > 0 && waitpid(child, &status, 0) == child);
        }
        arena_free(&t->arena);
    }
}

START_TEST(kinds_in_texts)
{
    enum { MOST_GRAPHS = 1000 };
    struct pair *t = malloc(sizeof *t);
    struct fields *rows = calloc(1, sizeof *rows);
    struct shown *shown =
        mmap(NULL, sizeof *shown, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t seed = random_seed();
    ck_assert(t && rows && shown != MAP_FAILED);
    list_rows(rows);
    const struct field *f = next_silent(rows, shown);
    for (int i = 0; i < MOST_GRAPHS && f; i++) {
        coda_plan *p = plan_of(seed, i);
        try_plan(t, shown, rows, p);
        coda_plan_free(p);
        f = next_silent(rows, shown);
    }
    ck_assert_msg(!f, "no text says %s.%s", f->of, f->name);
    munmap(shown, sizeof *shown);
    free(t), free(rows);
}
END_TEST

/* A sanitizer would report at length what programs that are none do, which proves nothing. */
TESTS(fields, SECONDS(300), ONE(rows_of_identity), ONE(texts_of_equal_programs), CASE("texts of kinds"),
      TAG("broken"), SECONDS(300), ONE(kinds_in_texts));
