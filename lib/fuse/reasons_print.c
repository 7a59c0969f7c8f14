/*
 * reasons_print.c -- why each pair of programs that hand a value on is not one program: pairs, their bytes,
 * and sentences. A pair is found by what programs use: one writes a version of a buffer, another reads it.
 */
#include "fuse.h"

#include <stdlib.h>
#include <string.h>

/* ---- Words ---- */

static const struct {
    const char *name, *sentence, *help;
} table[REASON_KINDS] = {
    {"none", "no reason is known", ""},
#define APART(NAME, name, rank, sentence, help) {#name, sentence, help},
#define SLOW(NAME, name, sentence, help) {#name, sentence, help},
#include "reasons.def"
};

static void print_type(const graph *g, int value, struct text *t)
{
    if (value >= 0) type_print(domain_walked(g, &g->node[value]), t);
}

static void print_word(const struct reason *r, const struct words_of *of, char word, struct text *t)
{
    const graph *g = of->plan->graph;
    switch (word) {
    case 'w': text_printf(t, "@%d", of->writer); break;
    case 'r': text_printf(t, "@%d", of->reader); break;
    case 'x': value_print(g, of->value, t); break;
    case 'n': value_print(g, r->node, t); break;
    case 'o': value_print(g, r->other, t); break;
    case 'N': print_type(g, r->node, t); break;
    case 'O': print_type(g, r->other, t); break;
    case 'p': text_append(t, r->node < 0 ? "?" : node_text(&g->node[r->node])); break;
    case 'q': text_append(t, r->other < 0 ? "?" : node_text(&g->node[r->other])); break;
    case 'a': text_printf(t, "%lld", (long long)r->a); break;
    case 'b': text_printf(t, "%lld", (long long)r->b); break;
    case 'A': text_append(t, dtype_name((coda_dtype)r->a)); break;
    default: text_append(t, dtype_name((coda_dtype)r->b)); break;
    }
}

static void print_sentence(const char *s, const struct reason *r, const struct words_of *of, struct text *t)
{
    for (; *s; s++) {
        if (s[0] == '{' && s[1] && s[2] == '}') print_word(r, of, s[1], t), s += 2;
        else text_printf(t, "%c", *s);
    }
}

enum { FROM_MB = 100000 };

static void print_line(const struct reason *r, const struct words_of *of, const char *programs, int64_t bytes,
                       struct text *t)
{
    char cost[32] = "";
    if (bytes >= FROM_MB) format_line(cost, sizeof cost, "%.3f MB", (double)bytes * 1e-6);
    else if (bytes >= 0) format_line(cost, sizeof cost, "%lld B", (long long)bytes);
    text_printf(t, "%-12s %-16s %11s  ", programs, table[r->kind].name, cost);
    print_sentence(table[r->kind].sentence, r, of, t);
    if (*table[r->kind].help) text_append(t, "; what helps: ");
    print_sentence(table[r->kind].help, r, of, t);
    text_append(t, "\n");
}

void reason_print(const struct reason *r, const struct words_of *of, int64_t bytes, struct text *t)
{
    char programs[64];
    if (of->writer < 0) format_line(programs, sizeof programs, "@%d", of->reader);
    else format_line(programs, sizeof programs, "@%d -> @%d", of->writer, of->reader);
    print_line(r, of, programs, bytes, t);
}

/* ---- Who tells ---- */

struct teller {
    struct grouper *gr;
    const struct plan *plan;
    struct group **group; /* of each program */
    int *first, *writer;  /* of each buffer: its writers are writer[first[b]] up to first[b + 1] */
    int *version;         /* of each buffer: the number of its first version, of all buffers' ... */
    int *readers;         /* ... of each of which there are so many readers */
    int pairs;
    int64_t bytes;
    struct text *t;
};

/* ---- Bytes ---- */

static int64_t bytes_of(const struct plan *p, const struct program *q, const struct tensor_use *u)
{
    int64_t bytes = use_bytes(q, u);
    if (bytes >= 0 || u->value < 0) return MAX(bytes, 0);
    return dtype_bytes(u->dtype, type_elements(&p->graph->node[u->value].type));
}

static bool is_read(const struct tensor_use *u)
{
    return u->buffer >= 0 && u->role != USE_SCRATCH && use_effect(u) & (EFFECT_READ | EFFECT_ADD);
}

static bool is_written(const struct tensor_use *u)
{
    return u->buffer >= 0 && u->role != USE_SCRATCH && use_effect(u) & ~EFFECT_READ;
}

/* Does one program alone read the memory, and not the caller? Without that it would not be written. */
static bool has_one_reader(const struct teller *a, const struct tensor_use *u)
{
    return a->plan->buffer[u->buffer].space == SPACE_WORK &&
           a->readers[a->version[u->buffer] + u->version] == 1;
}

/* ---- Pairs ---- */

struct pair {
    int writer, value;
    int64_t bytes;
    struct reason reason;
};

/* Is use j the first one by which the program touches the buffer so? */
static bool is_first(const struct program *q, int j, bool (*so)(const struct tensor_use *))
{
    const struct tensor_use *u = program_use(q, j), *before;
    for (int k = 0; k < j; k++)
        if ((before = program_use(q, k))->buffer == u->buffer && so(before)) return false;
    return so(u);
}

/* By what the writer writes as w, and reader i reads by u, its first use of the memory or another one. */
static void add_use(const struct teller *a, struct pair *pair, int i, const struct tensor_use *u,
                    const struct tensor_use *w, bool first)
{
    const struct plan *p = a->plan;
    const struct program *writer = &p->program[pair->writer], *reader = &p->program[i];
    int64_t written = bytes_of(p, writer, w), read = MIN(bytes_of(p, reader, u), written);
    struct reason r = {.kind = REASON_PREPARED, .node = w->value, .other = -1};
    bool prepared = writer->prepare && !reader->prepare;
    if (!prepared) r = reason_find(a->gr, a->group[pair->writer], a->group[i], w->value, u->value);
    bool better = reason_rank(r.kind) < reason_rank(pair->reason.kind);
    if (pair->value < 0 || better) pair->reason = r, pair->value = w->value;
    if (prepared || reader->prepare) return;
    pair->bytes = add_counts(pair->bytes, read);
    if (first && has_one_reader(a, u)) pair->bytes = add_counts(pair->bytes, written);
}

static struct pair *pair_of(struct pair *pair, int *pairs, int writer)
{
    int k = 0;
    while (k < *pairs && pair[k].writer != writer) k++;
    if (k == *pairs) pair[(*pairs)++] = (struct pair){.writer = writer, .value = -1};
    return &pair[k];
}

static int by_writer(const void *x, const void *y)
{
    const struct pair *a = x, *b = y;
    return (a->writer > b->writer) - (a->writer < b->writer);
}

static void tell_pairs(struct teller *a, struct pair *pair, int pairs, int reader)
{
    qsort(pair, (size_t)pairs, sizeof *pair, by_writer);
    for (int k = 0; k < pairs; k++) {
        struct words_of of = {a->plan, pair[k].writer, reader, pair[k].value};
        reason_print(&pair[k].reason, &of, pair[k].bytes, a->t);
        a->bytes = add_counts(a->bytes, pair[k].bytes);
        a->pairs++;
    }
}

/* All pairs in which a program is the reader. */
static void tell_reader(struct teller *a, struct pair *pair, int i)
{
    const struct plan *p = a->plan;
    const struct tensor_use *u, *w;
    int pairs = 0;
    for (int j = 0; (u = program_use(&p->program[i], j)); j++) {
        bool first = is_first(&p->program[i], j, is_read);
        if (!is_read(u) || p->buffer[u->buffer].space == SPACE_INBOX) continue; /* of one sum */
        for (int k = a->first[u->buffer]; k < a->first[u->buffer + 1]; k++)
            for (int l = 0; a->writer[k] != i && (w = program_use(&p->program[a->writer[k]], l)); l++)
                if (w->buffer == u->buffer && is_written(w) && w->version == u->version)
                    add_use(a, pair_of(pair, &pairs, a->writer[k]), i, u, w, first);
    }
    tell_pairs(a, pair, pairs, i);
}

/* ---- Products of the same rows ---- */

/* Could they be one product, of one weight? */
static bool shares_rows(const struct program *a, const struct program *b)
{
    const struct tensor_use *x = &a->a.data, *y = &b->a.data;
    bool products = a->kind == PROGRAM_GEMM && b->kind == PROGRAM_GEMM && !a->prepare && !b->prepare;
    bool rows = products && x->buffer == y->buffer && x->version == y->version && x->offset == y->offset &&
                x->ahead == y->ahead && x->batch == y->batch && x->row == y->row && x->k == y->k &&
                x->dtype == y->dtype;
    return rows && a->dim[0] == b->dim[0] && a->dim[1] == b->dim[1] && a->k == b->k &&
           a->b.dtype == b->b.dtype && a->b.data.k == b->b.data.k && a->b.data.steady && b->b.data.steady;
}

static void tell_weights(struct teller *a)
{
    const struct plan *p = a->plan;
    for (int i = 0; i < p->programs; i++) {
        struct text programs = {0};
        struct reason r = {.kind = REASON_WEIGHTS, .node = -1, .other = -1, .a = 1};
        int before = i;
        while (--before >= 0 && !shares_rows(&p->program[before], &p->program[i])) {}
        if (before >= 0) continue;
        text_printf(&programs, "@%d", i);
        for (int j = i + 1; j < p->programs; j++)
            if (shares_rows(&p->program[i], &p->program[j])) text_printf(&programs, ", @%d", j), r.a++;
        struct words_of of = {p, -1, i, p->program[i].a.data.value};
        int64_t bytes = mul_counts(r.a - 1, r.a > 1 ? use_bytes(&p->program[i], &p->program[i].a.data) : 0);
        if (r.a > 1) print_line(&r, &of, text_str(&programs), bytes, a->t);
        a->t->failed = a->t->failed || programs.failed;
        text_free(&programs);
    }
}

/* ---- The plan and its groups ---- */

/* What stays of a group's program, whatever the order. */
static const void *body_of(const struct program *q) { return q->own ? q->spec : q->step; }

struct body {
    const void *at;
    struct group *group;
};

static int by_body(const void *x, const void *y)
{
    uintptr_t a = (uintptr_t)((const struct body *)x)->at, b = (uintptr_t)((const struct body *)y)->at;
    return (a > b) - (a < b);
}

static bool find_groups(struct teller *a, const struct plan *again)
{
    struct arena *arena = a->gr->opt->reasons->arena;
    struct body *body = ARENA_NEW(arena, struct body, a->gr->groups + 1);
    a->group = ARENA_NEW(arena, struct group *, again->programs + 1);
    if (!body || !a->group) return false;
    for (int i = 0; i < a->gr->groups; i++)
        body[i] = (struct body){body_of(&a->gr->group[i]->p), a->gr->group[i]};
    qsort(body, (size_t)a->gr->groups, sizeof *body, by_body);
    for (int i = 0; i < again->programs; i++) {
        struct body key = {.at = body_of(&again->program[i])};
        const struct body *found = bsearch(&key, body, (size_t)a->gr->groups, sizeof *body, by_body);
        if (!found) return false;
        a->group[i] = found->group;
    }
    return true;
}

/* Numbers the versions of all buffers; returns how many there are. */
static int number_versions(struct teller *a)
{
    const struct plan *p = a->plan;
    const struct tensor_use *u;
    int versions = 0;
    for (int i = 0; i < p->programs; i++)
        for (int j = 0; (u = program_use(&p->program[i], j)); j++)
            a->version[u->buffer] = MAX(a->version[u->buffer], u->version);
    for (int b = 0; b < p->buffers; b++) {
        int last = a->version[b];
        a->version[b] = versions;
        versions += last + 1;
    }
    return versions;
}

/* Counts each buffer's readers and writers, or enters these. */
static void enlist(struct teller *a, bool counting)
{
    const struct plan *p = a->plan;
    const struct tensor_use *u;
    for (int i = p->programs - 1; i >= 0; i--)
        for (int j = 0; (u = program_use(&p->program[i], j)); j++) {
            if (counting && is_first(&p->program[i], j, is_read))
                a->readers[a->version[u->buffer] + u->version]++;
            if (!is_first(&p->program[i], j, is_written)) continue;
            if (counting) a->first[u->buffer]++;
            else a->writer[--a->first[u->buffer]] = i;
        }
}

static bool find_writers(struct teller *a)
{
    struct arena *arena = a->gr->opt->reasons->arena;
    int buffers = a->plan->buffers;
    a->first = ARENA_NEW(arena, int, buffers + 2);
    a->version = ARENA_NEW(arena, int, buffers + 1);
    if (!a->first || !a->version || !(a->readers = ARENA_NEW(arena, int, number_versions(a) + 1)))
        return false;
    enlist(a, true);
    for (int b = 0; b < buffers; b++) a->first[b + 1] += a->first[b];
    if (!(a->writer = ARENA_NEW(arena, int, a->first[buffers] + 1))) return false;
    enlist(a, false);
    return true;
}

coda_status reasons_print(struct grouper *gr, const struct plan *again, const struct plan *plan,
                          struct text *t)
{
    struct teller a = {.gr = gr, .plan = plan, .t = t};
    struct pair *pair = ARENA_NEW(gr->opt->reasons->arena, struct pair, plan->programs + 1);
    if (again->programs != plan->programs)
        return fail(CODA_E_UNSUPPORTED, "reasons: %d programs, made once more, are %d", plan->programs,
                    again->programs);
    if (!pair || !find_groups(&a, again) || !find_writers(&a)) return CODA_E_MEMORY;
    for (int i = 0; i < plan->programs; i++) tell_reader(&a, pair, i);
    tell_weights(&a);
    text_printf(t, "; %d pair%s of programs hand%s on values; joined, a run would move %.3f MB less\n",
                a.pairs, a.pairs == 1 ? "" : "s", a.pairs == 1 ? "s" : "", (double)a.bytes * 1e-6);
    return t->failed ? CODA_E_MEMORY : CODA_OK;
}
