/*
 * text.c -- between lines and tokens.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint.h"
#include "gguf.h"
#include "template.h"
#include "regular.h"
#include "text.h"
#include "tokenizer.h"
#include "turns.h"

struct text {
    struct tokenizer *tokens;
    struct tokenizer_stream *answer;
    int end; /* of a message's answer, or -1 */
    const char *model;
    const json_t *config;
};

static bool there(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_MAX && regular_there(path);
}

/* The one that a GGUF file has itself. */
static struct tokenizer *own_tokenizer(const char *model, struct fault *f)
{
    struct checkpoint file = {0};
    struct mapped_file map;
    json_t *metadata = checkpoint_map(&file, model, &map, f) ? gguf_metadata(model, &map, f) : NULL;
    struct tokenizer *t = metadata ? tokenizer_open_gguf(metadata, model, f->text, sizeof f->text) : NULL;
    json_decref(metadata);
    checkpoint_close(&file);
    return t;
}

struct tokenizer *text_tokenizer(const char *model, struct fault *f)
{
    char folder[PATH_MAX];
    if (!checkpoint_folder(model, folder, sizeof folder))
        return fault_set(f, "%s: the path is too long", model), NULL;
    bool beside =
        there(folder, "tokenizer.json") || there(folder, "vocab.json") || there(folder, "vocab.txt");
    if (checkpoint_is_gguf(model) && !beside) return own_tokenizer(model, f);
    return tokenizer_open(folder, f->text, sizeof f->text);
}

struct text *text_open(const char *model, const json_t *config, struct fault *f)
{
    struct text *t = calloc(1, sizeof *t);
    if (!t) return fault_set(f, "out of memory"), NULL;
    t->end = -1;
    t->model = model;
    t->config = config;
    t->tokens = text_tokenizer(model, f);
    t->answer = t->tokens ? tokenizer_stream_open(t->tokens) : NULL;
    if (t->answer) return t;
    if (t->tokens) fault_set(f, "out of memory");
    text_close(t);
    return NULL;
}

void text_close(struct text *t)
{
    if (!t) return;
    if (t->answer) tokenizer_stream_close(t->answer);
    if (t->tokens) tokenizer_close(t->tokens);
    free(t);
}

/* Tokens of a text that special tokens begin already (`bare`), or not. */
static int encode(struct text *t, const char *line, bool bare, int32_t *ids, int most, struct fault *f)
{
    int n = (bare ? tokenizer_encode_bare : tokenizer_encode)(t->tokens, line, strlen(line), ids, most, NULL);
    return n < 0 ? fault_set(f, "'%.40s' cannot be made into tokens", line), -1 : n;
}

static void print_piece(char *piece, size_t size, int bytes)
{
    if (bytes > 0 && (size_t)bytes < size) fputs(piece, stdout);
}

void text_print_quoted(struct text *t, int32_t id)
{
    char piece[4096];
    int n = t ? tokenizer_stream_next(t->answer, id, piece, sizeof piece) : 0;
    for (const char *c = piece; n > 0 && (size_t)n < sizeof piece && *c; c++) {
        if (*c == '\n') fputs("\\n", stdout);
        else if (*c == '\\') fputs("\\\\", stdout);
        else if ((unsigned char)*c < ' ') printf("\\x%02x", (unsigned char)*c);
        else putchar(*c);
    }
}

static void print_text(struct text *t, int32_t id)
{
    char piece[4096];
    print_piece(piece, sizeof piece, tokenizer_stream_next(t->answer, id, piece, sizeof piece));
}

static void print_rest(struct text *t)
{
    char piece[4096];
    print_piece(piece, sizeof piece, tokenizer_stream_end(t->answer, piece, sizeof piece));
}

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

/* Once more, with room for all, if the first guess is too small. */
static int tokens_of(struct text *t, const char *line, bool bare, int32_t **ids, struct fault *f)
{
    size_t most = strlen(line) + 8;
    *ids = NULL;
    for (int n = 0;; most = (size_t)n) {
        free(*ids);
        if (most > INT_MAX || !(*ids = malloc(most * sizeof **ids)))
            return fault_set(f, "the line is too long"), -1;
        n = t ? encode(t, line, bare, *ids, (int)most, f) : numbers(line, *ids, f);
        if (n < 0) free(*ids), *ids = NULL;
        if (n < 0 || (size_t)n <= most) return n;
    }
}

int text_tokens(struct text *t, const char *line, int32_t **ids, struct fault *f)
{
    return tokens_of(t, line, false, ids, f);
}

int text_message(struct text *t, const char *message, int32_t **ids, struct fault *f)
{
    *ids = NULL;
    if (!t) return fault_set(f, "--chat wants text, not --ids"), -1;
    struct deadline deadline = deadline_in(TEMPLATE_SECONDS, NULL);
    struct turns *turns = turns_open(t->model, t->config, t->tokens, f);
    json_t *all = json_pack("[{s:s, s:s}]", "role", "user", "content", message);
    if (turns && !all) fault_set(f, "the message is no UTF-8");
    char *prompt = NULL;
    if (turns && all) turns_prompt(turns, all, NULL, &deadline, &prompt, f);
    int n = prompt ? tokens_of(t, prompt, turns_own(turns), ids, f) : -1;
    t->end = turns_end(t->tokens);
    json_decref(all);
    turns_close(turns);
    free(prompt);
    return n;
}

bool text_after(struct text *t, const int32_t *ids, int n, struct fault *f)
{
    return !t || tokenizer_stream_after(t->answer, ids, n) || fault_set(f, "out of memory");
}

bool text_ends(const struct text *t, int32_t id) { return t && t->end >= 0 && id == t->end; }

/* Whether each text ends so, even the empty one. */
static bool always_last(struct text *t, int32_t id)
{
    struct fault f;
    int32_t ids[16];
    int n = encode(t, "", false, ids, 16, &f);
    return n > 0 && n <= 16 && ids[n - 1] == id;
}

int text_shorten(struct text *t, int32_t *ids, int count, int most)
{
    if (count <= most || most < 1) return count;
    if (always_last(t, ids[count - 1])) ids[most - 1] = ids[count - 1];
    return most;
}

void text_print(struct text *t, int32_t id)
{
    if (t) print_text(t, id);
    else printf("%d ", id);
    fflush(stdout);
}

void text_print_end(struct text *t)
{
    if (t) print_rest(t);
    puts("");
}
