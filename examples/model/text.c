/*
 * text.c -- between lines and tokens.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#if __has_include("tokenizer.h")
#include "tokenizer.h"

struct text *text_open(const char *model, struct fault *f)
{
    return (struct text *)tokenizer_open(model, f->text, sizeof f->text);
}

void text_close(struct text *t)
{
    if (t) tokenizer_close((struct tokenizer *)t);
}

static int encode(struct text *t, const char *line, int32_t *ids, int most)
{
    return tokenizer_encode((struct tokenizer *)t, line, strlen(line), ids, most);
}

static int decode(struct text *t, const int32_t *ids, int n, char *out, size_t size)
{
    return tokenizer_decode((struct tokenizer *)t, ids, n, out, size);
}
#else
struct text *text_open(const char *model, struct fault *f)
{
    return fault_set(f, "%s: text wants a tokeniser, which is not part of this build: give --ids", model),
           NULL;
}

void text_close(struct text *t) { (void)t; }
static int encode(struct text *t, const char *line, int32_t *ids, int most)
{
    return (void)t, (void)line, (void)ids, (void)most, -1;
}
static int decode(struct text *t, const int32_t *ids, int n, char *out, size_t size)
{
    return (void)t, (void)ids, (void)n, (void)out, (void)size, -1;
}
#endif

static int numbers(const char *line, int32_t *ids, struct fault *f)
{
    int n = 0;
    for (const char *at = line;; n++) {
        char *end;
        at += strspn(at, ", \t\r\n");
        if (!*at) return n;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || id < 0 || id > INT32_MAX || errno)
            return fault_set(f, "'%.40s' is no list of tokens", at), -1;
        ids[n] = (int32_t)id;
        at = end;
    }
}

int text_tokens(struct text *t, const char *line, int32_t **ids, struct fault *f)
{
    size_t most = strlen(line) + 8; /* a token has a byte at least; and some special ones */
    if (most > INT32_MAX || !(*ids = malloc(most * sizeof **ids)))
        return fault_set(f, "the line is too long"), -1;
    int n = t ? encode(t, line, *ids, (int)most) : numbers(line, *ids, f);
    if (n < 0 && t) fault_set(f, "'%.40s' cannot be made into tokens", line);
    if (n < 0) free(*ids);
    return n;
}

char *text_of(struct text *t, const int32_t *ids, int n)
{
    size_t size = (size_t)n * 64 + 64;
    char *out = malloc(size);
    if (out && decode(t, ids, n, out, size) >= 0) return out;
    free(out);
    return NULL;
}
