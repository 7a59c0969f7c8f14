/*
 * emit_text.c -- the pieces of text that all emitters share.
 *
 * An emitted text is short: a comment that says what the program does, includes of primitives/, one
 * struct with its constants and straight-line functions, the body, and an extern "C" entry that runs it.
 */
#include "emit_text.h"
#include "mainloop.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SYMBOL_MOST = 60 }; /* characters of a kernel's name */

/* Memory for the scalar parameters of a kernel: strides and table rows for each port; extents, divisors and
 * strides of all else, of which the gradients of attention have the most, 86. */
enum { NUMBERS_OF_PORT = CODA_MAX_RANK + 1, MOST_NUMBERS = 128 };

bool emit_begin(struct plan *plan, const struct program *p, const struct schedule *s, struct kernel *k)
{
    bool streams = s->tile.mainloop && s->tile.mainloop->streams;
    *k = (struct kernel){
        .launch = {s->grid, s->cluster, s->threads, s->shared_bytes, s->persistent, s->early, streams},
        .members = plan->together ? plan_together(plan, (int)(p - plan->program)) : 1,
        .map_room = p->kind == PROGRAM_ROWS ? 1 : KERNEL_MAX_MAPS,
        .pointer_room = program_uses(p) + 8,
        .scalar_room = p->ports * (1 + NUMBERS_OF_PORT) + MOST_NUMBERS};
    k->map = ARENA_NEW(&plan->arena, struct map_spec, k->map_room);
    k->pointer = ARENA_NEW(&plan->arena, struct pointer_spec, k->pointer_room);
    k->scalar = ARENA_NEW(&plan->arena, struct scalar_spec, k->scalar_room);
    return !plan->arena.failed;
}

coda_status emit_fits(const struct kernel *k)
{
    if (k->beyond)
        return fail(CODA_E_UNSUPPORTED, "kernel %s is to count to %lld; kernels count to %d", k->symbol,
                    (wide)k->beyond, INT32_MAX);
    if (k->maps > k->map_room || k->pointers > k->pointer_room || k->scalars > k->scalar_room)
        return fail(CODA_E_UNSUPPORTED,
                    "kernel %s takes %d maps, %d pointers and %d scalars; at most %d, %d and %d", k->symbol,
                    k->maps, k->pointers, k->scalars, k->map_room, k->pointer_room, k->scalar_room);
    if (k->members > 1 && kernel_members_bytes(k) > KERNEL_MAX_BYTES)
        return fail(CODA_E_UNSUPPORTED, "kernel %s takes %lld bytes of %d programs; at most %d", k->symbol,
                    (wide)kernel_members_bytes(k), k->members, KERNEL_MAX_BYTES);
    if (k->pointers + CEIL_DIV(k->scalars, 2) <= KERNEL_MAX_POINTERS) return CODA_OK;
    return fail(CODA_E_UNSUPPORTED, "kernel %s takes %d pointers and %d scalars; at most %d pointers",
                k->symbol, k->pointers, k->scalars, KERNEL_MAX_POINTERS);
}

struct word emit_word(const char *format, ...)
{
    struct word w;
    va_list args;
    va_start(args, format);
    format_print(w.s, sizeof w.s, format, args);
    va_end(args);
    return w;
}

/* Kernels round numbers of 32 bits up: one that leaves no room for that is an error of the compiler. */
void emit_constant(struct text *t, const char *type, const char *name, int64_t value)
{
    bool small = strcmp(type + 1, "32") || (value >= INT32_MIN && value <= INT32_MAX);
    text_printf(t, "    static constexpr %s %s = %lld;\n", type, name, (wide)value);
    if (!small)
        text_printf(t, "    static_assert(%s != %s, \"%s is %lld\");\n", name, name, name, (wide)value);
}

struct word emit_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (!isfinite(x)) return emit_word("bits_float(0x%08xu)", bits);
    struct word w = emit_word("%.9g", (double)x);
    strcat(w.s, strpbrk(w.s, ".e") ? "f" : ".0f");
    return w;
}

const char *emit_dtype(coda_dtype t)
{
    return dtype_name(t); /* types.cuh names its types as the text form does */
}

struct word emit_packed(const struct tensor_use *u)
{
    static const char *const zeros[] = {"none", "points", "minimum"};
    const struct pack_format f = graph_format_of(u->packing.format);
    return emit_word("Packed<Codes::%s, Scales::%s, Zeros::%s, %d, %lld>", pack_codes_name(&f),
                     pack_scales_name(&f), zeros[f.zeros], f.group, (long long)u->packing.columns);
}

static int pointer_to(struct kernel *k, struct pointer_spec to)
{
    for (int i = 0; i < MIN(k->pointers, k->pointer_room); i++) {
        const struct pointer_spec *p = &k->pointer[i];
        if (p->buffer == to.buffer && p->bytes == to.bytes && p->by_rank == to.by_rank &&
            p->ahead == to.ahead)
            return i;
    }
    if (k->pointers < k->pointer_room) k->pointer[k->pointers] = to;
    return k->pointers++;
}

int emit_pointer(struct kernel *k, int buffer, int64_t bytes)
{
    return pointer_to(k, (struct pointer_spec){.buffer = buffer, .bytes = bytes});
}

int emit_use(struct kernel *k, const struct tensor_use *u) { return pointer_to(k, pointer_of(u)); }

static int scalar_to(struct kernel *k, struct scalar_spec to)
{
    if (k->scalars < k->scalar_room) k->scalar[k->scalars] = to;
    return k->scalars++;
}

int emit_scalar(struct kernel *k, int buffer) { return scalar_to(k, (struct scalar_spec){.buffer = buffer}); }

void emit_number(struct kernel *k, int64_t number)
{
    if (number < INT32_MIN || number > UINT32_MAX) k->beyond = number;
    scalar_to(k, (struct scalar_spec){.buffer = SCALAR_NUMBER, .number = (uint32_t)number});
}

void emit_count(struct kernel *k, int64_t count)
{
    if (count > INT32_MAX) k->beyond = count;
    emit_number(k, count);
}

void emit_long(struct kernel *k, int64_t number)
{
    emit_number(k, number & UINT32_MAX);
    emit_number(k, number >> 32);
}

void emit_divisor(struct kernel *k, int64_t divisor)
{
    int64_t by = MAX(divisor, 1);
    int shift = 0;
    if (by > INT32_MAX) k->beyond = by;
    while ((int64_t)1 << shift < by) shift++;
    emit_number(k, by);
    emit_number(k, (((((int64_t)1 << shift) - by) << 32) / by) + 1);
    emit_number(k, shift);
}

void emit_body(struct text *t)
{
    text_append(t, "\ntemplate <class Block> DEV void body(const Args &a, const Block &block)\n{\n");
}

/* The next kernel may start when all blocks have said so, or ended. A GPU hears some 800 of them in a
 * microsecond: of many short blocks most have ended before the last ones begin, and say nothing. */
void emit_launch_next(struct text *t)
{
    enum { FEW_BLOCKS = 2048 };
    text_printf(t, "    if (block.count() <= %d) ptx::grid_launch_next();\n", FEW_BLOCKS);
}

void emit_entry(const struct kernel *k, const struct entry *e, struct text *t)
{
    if (k->members > 1) text_append(t, "\n#include \"tile/members.cuh\"\n");
    text_append(t, "\nextern \"C\" __global__ void ");
    if (e->cluster > 1) text_printf(t, "__cluster_dims__(%d, 1, 1) ", e->cluster);
    if (e->registers) text_printf(t, "__maxnreg__(%d)\n", e->registers);
    else
        text_printf(t, "__launch_bounds__(%d%s%s)\n", k->launch.threads, e->residents ? ", " : "",
                    e->residents ? e->residents : "");
    struct word args = emit_word(k->members > 1 ? "Members<Args, %d>" : "Args", k->members);
    text_printf(t, "%s(const __grid_constant__ %s a)\n{\n", k->symbol, args.s);
    if (e->declares) text_append(t, "    __shared__ Shared shared;\n");
    const char *block = e->declares ? "DeclaredBlock(shared)" : "LaunchedBlock()";
    if (k->members <= 1) text_printf(t, "    body(a, %s);\n}\n", block);
    else text_printf(t, "    body(a.args[a.member()], MemberBlock(a, %s));\n}\n", block);
}

const char *emit_symbol(struct plan *plan, const struct program *p, const char *prefix)
{
    char name[SYMBOL_MOST + 1];
    size_t used = MIN(strlen(prefix), sizeof name - 1);
    memcpy(name, prefix, used);
    const char *last = "";
    for (int i = 0; i < p->steps; i++) {
        const char *word = step_name(p, &p->step[i]);
        if (!word || !strcmp(word, last)) continue;
        size_t length = strlen(word);
        if (used + 1 + length >= sizeof name) break;
        name[used++] = '_';
        memcpy(name + used, word, length);
        used += length;
        last = word;
    }
    name[used] = 0;
    return arena_string(&plan->arena, name);
}

/* The primitive that step i (or port i - steps) needs. */
static const struct prim *nth_prim(const struct program *p, int i)
{
    if (i >= p->steps) return p->port[i - p->steps].reduce;
    const struct step *s = &p->step[i];
    return s->kind == STEP_MAP || s->kind == STEP_REDUCE ? s->prim : NULL;
}

static bool seen_before(const struct program *p, int i)
{
    for (int j = 0; j < i; j++) {
        const struct prim *q = nth_prim(p, j);
        if (q && !strcmp(q->name, nth_prim(p, i)->name)) return true;
    }
    return false;
}

static int lines_of(const struct text *t)
{
    int lines = 1;
    for (const char *at = text_str(t); (at = strchr(at, '\n')); at++) lines++;
    return lines;
}

static bool is_user_map(const struct prim *q) { return !q->header && q->source; }

const char *emit_map_prefix(const struct prim *q) { return is_user_map(q) ? "user::user_" : "map::"; }

void emit_call(const struct program *p, int step, const struct word *value, struct text *t)
{
    const struct step *s = &p->step[step];
    bool narrow = s->prim->narrow && step_is_rounded(p, step); /* where less than "apply" is enough */
    text_printf(t, "%s%s::%s(", emit_map_prefix(s->prim), s->prim->name, narrow ? "narrow" : "apply");
    for (int i = 0; i < s->nin; i++)
        text_printf(t, "%s%s", i ? ", " : "",
                    s->in[i] == IMMEDIATE ? emit_float(s->immediate[i]).s : value[i].s);
    for (int i = 0; i < s->prim->params; i++) text_printf(t, ", %s", emit_float(s->param[i]).s);
    text_append(t, ")");
}

/* A map of the user: it may use math.cuh, and the compiler counts its lines from its own first. */
static void emit_user_map(const struct prim *q, struct text *t)
{
    text_printf(t, "#include \"math.cuh\"\n\nnamespace coda::user {\nstruct user_%s {\n", q->name);
    text_printf(t, "#line 1 \"map %s\"\n%s\n", q->name, q->source);
    text_printf(t, "#line %d \"kernel\"\n};\n}\n", lines_of(t) + 1);
}

void emit_map(const struct prim *q, struct text *t)
{
    if (q->header) text_printf(t, "#include \"%s\"\n", q->header);
    else emit_user_map(q, t);
}

void emit_includes(const struct program *p, struct text *t)
{
    text_append(t, "#include \"types.cuh\"\n");
    for (int i = 0; i < p->steps + p->ports; i++) {
        const struct prim *q = nth_prim(p, i);
        if (q && q->header && !seen_before(p, i)) text_printf(t, "#include \"%s\"\n", q->header);
    }
    if (pair_step(p) >= 0)
        text_printf(t, "#include \"%s\"\n#include \"port/turn.cuh\"\n", p->pairing.op->header);
    for (int i = 0; i < p->steps + p->ports; i++) {
        const struct prim *q = nth_prim(p, i);
        if (q && is_user_map(q) && !seen_before(p, i)) emit_user_map(q, t);
    }
}
