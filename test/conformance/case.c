/* case.c -- reads cases: lines of calls, and their numbers one after another in a file beside them. */
#include "case.h"

#include <stdlib.h>
#include <string.h>

const char *const mode_name[MODES] = {"f32", "bf16", "f16"};

coda_dtype mode_dtype(int mode)
{
    static const coda_dtype t[MODES] = {CODA_F32, CODA_BF16, CODA_F16};
    return t[mode];
}

static char *read_file(const char *path, const char *ending, size_t *size)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", path, ending);
    FILE *f = fopen(name, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) return NULL;
    *size = (size_t)ftell(f);
    rewind(f);
    char *bytes = calloc(1, *size + 1);
    if (bytes && fread(bytes, 1, *size, f) != *size) *size = 0;
    fclose(f);
    return bytes;
}

bool case_open(struct case_reader *r, const char *path)
{
    size_t text, data;
    *r = (struct case_reader){.text = read_file(path, ".calls", &text),
                              .data = read_file(path, ".data", &data)};
    if (!r->text || !r->data) return case_close(r), false;
    r->at = r->text;
    r->next = r->data;
    r->end = r->data + data;
    return true;
}

void case_close(struct case_reader *r)
{
    free(r->text);
    free(r->data);
}

static void malformed(const struct case_reader *r, const char *what)
{
    printf("conformance: %s: %.*s\n", what, (int)strcspn(r->at, "\n"), r->at);
    exit(2);
}

/* ---- Words of a line ---- */

static bool accept(struct case_reader *r, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static void need(struct case_reader *r, const char *word)
{
    if (!accept(r, word)) malformed(r, word);
}

static void read_word(struct case_reader *r, char *word, size_t size)
{
    size_t n = strcspn(r->at, " \n");
    if (n == 0 || n >= size) malformed(r, "a word");
    memcpy(word, r->at, n);
    word[n] = 0;
    r->at += n;
}

static int64_t read_integer(struct case_reader *r)
{
    char *end;
    int64_t n = strtoll(r->at, &end, 10);
    if (end == r->at) malformed(r, "a number");
    r->at = end;
    return n;
}

static float read_float(struct case_reader *r)
{
    char *end;
    float x = strtof(r->at, &end);
    if (end == r->at) malformed(r, "a number");
    r->at = end;
    return x;
}

static coda_dtype read_dtype(struct case_reader *r)
{
    static const char *const word[] = {"T", "f32", "bf16", "f16", "i32", NULL, "i64"}; /* by coda_dtype */
    for (int t = CODA_I64; t >= 0; t--)
        if (word[t] && accept(r, word[t])) return (coda_dtype)t;
    malformed(r, "a dtype");
    return 0;
}

/* ---- Lines ---- */

static const void *take(struct case_reader *r, int64_t elements)
{
    const char *data = r->next;
    if (elements < 0 || elements > (r->end - r->next) / 4) malformed(r, "no data for this case");
    r->next += 4 * elements;
    return data;
}

static bool is_leaf(const struct call *c)
{
    return strcmp(c->word, "input") == 0 || strcmp(c->word, "weight") == 0;
}

static void read_operands(struct case_reader *r, struct call *c)
{
    while (accept(r, " %") || accept(r, " _")) {
        if (c->args == CASE_ARGS) malformed(r, "too many operands");
        c->arg[c->args++] = r->at[-1] == '_' ? -1 : (int)read_integer(r);
    }
}

/* " [0,2,1]", if it is there */
static void read_integers(struct case_reader *r, int64_t *number, int *count)
{
    if (!accept(r, " [")) return;
    while (!accept(r, "]")) {
        if (*count == CASE_NUMBERS) malformed(r, "too many numbers");
        number[(*count)++] = read_integer(r);
        accept(r, ",");
    }
}

/* " %3 %4 [0,2,1] (0.5)", or of a leaf " T [3,4]"; of a cast " %3 bf16", of a constant " f32 (0.5)" */
static void read_call(struct case_reader *r, struct call *c)
{
    *c = (struct call){.args = 0};
    read_word(r, c->word, sizeof c->word);
    read_operands(r, c);
    if (is_leaf(c) || strcmp(c->word, "cast") == 0 || strcmp(c->word, "constant") == 0)
        need(r, " "), c->dtype = read_dtype(r);
    read_integers(r, c->number, &c->numbers);
    if (accept(r, " ("))
        while (!accept(r, ")")) {
            if (c->params == CASE_NUMBERS) malformed(r, "too many parameters");
            c->param[c->params++] = read_float(r);
            accept(r, ",");
        }
    need(r, "\n");
}

static void read_modes(struct case_reader *r, struct conformance_case *c)
{
    while (accept(r, "in ")) {
        char word[16];
        read_word(r, word, sizeof word);
        need(r, " (");
        for (int m = 0; m < MODES; m++)
            if (strcmp(word, mode_name[m]) == 0) c->growth[m] = read_float(r);
        need(r, ")\n");
    }
}

int64_t count_elements(int rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dims[i];
    return n;
}

static void read_outputs(struct case_reader *r, struct conformance_case *c)
{
    while (accept(r, "output %")) {
        if (c->outputs == CASE_OUTPUTS) malformed(r, "too many outputs");
        c->output[c->outputs].call = (int)read_integer(r);
        read_integers(r, c->output[c->outputs].dims, &c->output[c->outputs].rank);
        c->outputs++;
        need(r, "\n");
    }
}

/* Leaves, then outputs as they should be in each mode. */
static void take_data(struct case_reader *r, struct conformance_case *c)
{
    for (int i = 0; i < c->calls; i++)
        if (is_leaf(&c->call[i]))
            c->call[i].data = take(r, count_elements(c->call[i].numbers, c->call[i].number));
    for (int m = 0; m < MODES; m++)
        for (int i = 0; i < c->outputs && c->growth[m] > 0; i++)
            c->want[m][i] = take(r, count_elements(c->output[i].rank, c->output[i].dims));
}

bool case_read(struct case_reader *r, struct conformance_case *c)
{
    static struct call calls[CASE_CALLS];
    if (!*r->at) return false;
    *c = (struct conformance_case){.call = calls};
    need(r, "case ");
    read_word(r, c->name, sizeof c->name);
    need(r, "\n");
    read_modes(r, c);
    while (accept(r, "%")) {
        if (c->calls == CASE_CALLS || read_integer(r) != c->calls) malformed(r, "a call");
        need(r, " = ");
        c->leaves += strncmp(r->at, "input", 5) == 0 || strncmp(r->at, "weight", 6) == 0;
        read_call(r, &calls[c->calls++]);
    }
    read_outputs(r, c);
    take_data(r, c);
    need(r, "end\n");
    return true;
}
