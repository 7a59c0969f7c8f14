/* api_words.c -- the words of the text form: what graph_words.c says, and calls of coda.h by their name. */
#include "api.h"
#include "builders.h"
#include "graph_words.h"
#include "suggest.h"

#include <string.h>

static const struct {
    const char *name, *of_map, *of_reduction, *of_columns;
} builders[] = {
#define BUILDER(name)                                                                                        \
    {#name, "coda_" #name ", coda_apply", "coda_" #name ", coda_reduce",                                     \
     "coda_" #name ", coda_reduce, coda_reduce_columns"},
    CODA_BUILDERS(BUILDER)
#undef BUILDER
};

/* The calls that take any name, and one of this name if there is one. */
static const char *calls_of(const struct word *w)
{
    if (w->kind != CODA_WORD_MAP && w->kind != CODA_WORD_REDUCTION) return w->calls;
    for (int i = 0; i < ARRAY_SIZE(builders); i++) {
        if (strcmp(builders[i].name, w->name) != 0) continue;
        return w->kind == CODA_WORD_MAP ? builders[i].of_map
               : *w->attributes         ? builders[i].of_columns
                                        : builders[i].of_reduction;
    }
    return w->calls;
}

CODA_API int coda_words(void) { return words_count(); }

static coda_status check_index(const char *call, int index)
{
    if (index >= 0 && index < words_count()) return CODA_OK;
    return fail(CODA_E_INVALID, "%s: index is %d of %d", call, index, words_count());
}

CODA_API coda_status coda_word(int index, coda_word_info *out)
{
    if (!out) return fail(CODA_E_INVALID, "word: out is NULL");
    if (SIZED_CHECK("word", coda_word_info, out)) return CODA_E_INVALID;
    coda_status s = check_index("word", index);
    if (s != CODA_OK) return s;
    struct word w = words_at(index);
    coda_word_info own;
    memset(&own, 0, sizeof own); /* the padding, too */
    own.size = sizeof own;
    own.kind = w.kind;
    own.name = w.name;
    own.operands = w.operands;
    own.attributes = w.attributes;
    own.result = w.result;
    own.meaning = w.meaning;
    own.calls = calls_of(&w);
    own.gradient = w.gradient;
    SIZED_WRITE(coda_word_info, out, &own);
    return CODA_OK;
}

CODA_API int coda_word_find(const char *name)
{
    if (!name) return fail(CODA_E_INVALID, "word_find: name is NULL");
    int index = words_find(name);
    if (index >= 0) return index;
    return fail(CODA_E_INVALID, "no operation, map, reduction or function is called `%.64s`%s", name,
                suggest_operation(&(graph){0}, name, SUGGEST_ALL).text);
}

CODA_API int64_t coda_word_example(int index, char *buf, size_t size)
{
    if (!buf && size) return fail(CODA_E_INVALID, "word_example: buf is NULL");
    coda_status s = check_index("word_example", index);
    if (s != CODA_OK) return s;
    struct text text = {0};
    words_example(index, &text);
    int64_t length = text_emit(&text, buf, size);
    text_free(&text);
    return length;
}
