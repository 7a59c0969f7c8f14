/*
 * graph_words.c -- see graph_words.h. Nothing is said here: of operations ops.def speaks, of maps and
 * reductions the first lines of their files, of functions math.cuh.
 */
#include "graph_words.h"

#include "graph.h"

#include <string.h>

/* ---- Operations ---- */

struct op_words {           /* lists begin with ", " */
    const char *operands;   /* ", x [..., N], gain? [N]" */
    const char *attributes; /* ", eps=float" */
    const char *result, *meaning, *calls, *example;
};

#define NONE ""
#define IN(ID, name, words) ", " #name words
#define OPT(ID, name, words) ", " #name "?" words
#define MANY(words) ", " words
#define AHEAD
#define OUT(ID, name, words) words
#define ALSO(ID, name, words) "; " #name ": " words
#define FLOAT(key) ", " #key "=float"
#define FACTOR(key) ", " #key "=float"
#define INT(key) ", " #key "=int"
#define RESULT(key) ", " #key "=int"
#define EXTENT(key) ", " #key "=extent"
#define DTYPE(key) ", " #key "=dtype"
#define FORMAT(key) ", " #key "=format"
#define DIMS(member, key) ", " #key "0..5=int"
#define EXTENTS(member, key) ", " #key "0..5=extent"
#define PARAMS(member) ", " #member "=map"
static const struct op_words op_words[OP_COUNT] = {
#define OP(NAME, name, kind, operands, attributes, results, ...) {operands, attributes, results, __VA_ARGS__},
#include "ops.def"
};

static const char *listed(const char *list) { return *list ? list + strlen(", ") : list; }

static struct word op_word(enum op op)
{
    const struct op_words *w = &op_words[op];
    return (struct word){CODA_WORD_OPERATION,
                         op_info[op].text,
                         listed(w->operands),
                         listed(w->attributes),
                         w->result,
                         w->meaning,
                         w->calls,
                         ""};
}

/* ---- Maps and reductions ---- */

static struct word map_word(const struct prim *p)
{
    static const char *const result[PRIM_MAX_INPUTS] = {
        "what the operands broadcast to, of the first one's dtype, or f32 where that is an integer",
        "what the operands broadcast to, of the second one's dtype, or f32 where that is an integer",
        "what the operands broadcast to, of the third one's dtype, or f32 where that is an integer",
        "what the operands broadcast to, of the fourth one's dtype, or f32 where that is an integer"};
    return (struct word){CODA_WORD_MAP,          p->name,    p->operands,  p->constants,
                         result[p->facts.dtype], p->meaning, "coda_apply", p->gradient};
}

static struct word reduction_word(const struct prim *p)
{
    bool columns = p->inputs == 1 && p->state <= PRIM_MAX_COLUMN_STATE;
    return (struct word){CODA_WORD_REDUCTION,
                         p->name,
                         p->operands,
                         columns ? "columns=int" : "",
                         p->inputs > 1
                             ? "of x [..., N], and [...] or [..., 1] of the other operand, f32 [..., 1]"
                         : columns ? "of x [..., N] f32 [..., 1]; columns=1: of x [..., M, N] f32 [..., 1, N]"
                                   : "of x [..., N] f32 [..., 1]",
                         p->meaning,
                         columns ? "coda_reduce, coda_reduce_columns" : "coda_reduce",
                         p->gradient};
}

/* ---- All of them ---- */

static int count_of(coda_word_kind kind)
{
    int n = 0;
    if (kind == CODA_WORD_OPERATION) return OP_COUNT - 2;
    if (kind == CODA_WORD_FUNCTION) {
        while (prim_functions[n].name) n++;
        return n;
    }
    for (int i = 0; i < prim_count; i++)
        n += prim_table[i].kind == (kind == CODA_WORD_MAP ? PRIM_MAP : PRIM_REDUCE);
    return n;
}

static enum op op_at(int index)
{
    int op = 0;
    while (op == OP_MAP || op == OP_REDUCE || index-- > 0) op++;
    return (enum op)op;
}

static const struct prim *prim_at(enum prim_kind kind, int index)
{
    const struct prim *p = prim_table;
    while (p->kind != kind || index-- > 0) p++;
    return p;
}

/* What stands at an index: the kind of the word, and in *index its place among those. */
static coda_word_kind kind_at(int *index)
{
    coda_word_kind kind = CODA_WORD_OPERATION;
    for (; kind < CODA_WORD_FUNCTION && *index >= count_of(kind); kind++) *index -= count_of(kind);
    return kind;
}

int words_count(void)
{
    int n = 0;
    for (coda_word_kind kind = CODA_WORD_OPERATION; kind <= CODA_WORD_FUNCTION; kind++) n += count_of(kind);
    return n;
}

struct word words_at(int index)
{
    switch (kind_at(&index)) {
    case CODA_WORD_OPERATION: return op_word(op_at(index));
    case CODA_WORD_MAP: return map_word(prim_at(PRIM_MAP, index));
    case CODA_WORD_REDUCTION: return reduction_word(prim_at(PRIM_REDUCE, index));
    default: break;
    }
    const struct prim_function *f = &prim_functions[index];
    return (struct word){CODA_WORD_FUNCTION, f->name, f->arguments, "", "float", f->meaning, "", ""};
}

int words_find(const char *name)
{
    static const char space[] = "math::";
    bool function = !strncmp(name, space, strlen(space));
    if (function) name += strlen(space);
    for (int i = 0, n = words_count(); i < n; i++) {
        struct word w = words_at(i);
        if (!strcmp(w.name, name) && (!function || w.kind == CODA_WORD_FUNCTION)) return i;
    }
    return -1;
}

/* ---- Examples ---- */

/* "name" of "name, ...", and what is behind it. */
static const char *next_name(const char *at, const char **name, int *length)
{
    at += strspn(at, ", ");
    *name = at;
    *length = (int)strcspn(at, ",");
    return at + *length;
}

static void prim_example(const struct prim *p, struct text *out)
{
    const char *name, *at = p->operands;
    int length;
    for (int i = 0; i < p->inputs; i++) {
        at = next_name(at, &name, &length);
        bool key = p->kind == PRIM_REDUCE && i > 0;
        text_printf(out, "%%%.*s = input %s\n", length, name, key ? "i32 [2]" : "f32 [2,32]");
    }
    text_printf(out, "%%r = %s", p->name);
    at = p->operands;
    for (int i = 0; i < p->inputs; i++) {
        at = next_name(at, &name, &length);
        text_printf(out, "%s %%%.*s", i ? "," : "", length, name);
    }
    for (int i = 0; i < p->params; i++) text_printf(out, "%s%s=1", i ? ", " : " {", p->param_name[i]);
    text_printf(out, "%s\noutput %%result = %%r\n", p->params ? "}" : "");
}

void words_example(int index, struct text *out)
{
    coda_word_kind kind = kind_at(&index);
    if (kind == CODA_WORD_OPERATION) text_append(out, op_words[op_at(index)].example);
    else if (kind != CODA_WORD_FUNCTION)
        prim_example(prim_at(kind == CODA_WORD_MAP ? PRIM_MAP : PRIM_REDUCE, index), out);
}
