/* write.c -- what was read, as the C file that has the table of primitives and their texts. */
#include "embed.h"

#include <stdlib.h>
#include <string.h>

#include "sha256.h"

/* Behind a comment or a literal, NULL where neither begins. An apostrophe within a number is none. */
static const char *behind(const char *text, const char *at)
{
    if (!strncmp(at, "//", 2)) return at + strcspn(at, "\n");
    if (!strncmp(at, "/*", 2)) return strstr(at + 2, "*/") ? strstr(at + 2, "*/") + 2 : at + strlen(at);
    if (*at != '"' && (*at != '\'' || (at > text && in_word((unsigned char)at[-1])))) return NULL;
    const char *end = at + 1;
    while (*end && *end != *at && *end != '\n') end += *end == '\\' && end[1] ? 2 : 1;
    return end + (*end == *at);
}

/* Comments are a third of the texts, and what lines are indented by is a sixth of the rest. Lines keep their
 * numbers, for messages and profiles beside the file. */
static void write_without_comments(const char *text)
{
    int column = 0;
    bool first = true; /* of its line */
    for (const char *at = text, *end; *at;) {
        bool comment = (end = behind(text, at)) && *at == '/';
        if (!end) end = at + 1;
        if (first && *at == ' ') at = end;
        for (; at < end; at++)
            if (!comment || *at == '\n') {
                printf("%d,%s", (unsigned char)*at, ++column % 32 ? "" : "\n");
                first = *at == '\n';
            }
        if (comment && !first) printf("%d,", ' ');
    }
    printf("0,};\n");
}

void write_files(const struct file *file, int files)
{
    for (int i = 0; i < files; i++) {
        printf("static const unsigned char file_%d[] = { /* %s */\n", i, file[i].path);
        write_without_comments((const char *)file[i].text);
    }
    printf("\nconst struct prim_file prim_files[] = {\n");
    for (int i = 0; i < files; i++) {
        char digest[SHA256_HEX];
        sha256_hex(digest, file[i].text, file[i].length);
        printf("    {\"%s\", (const char *)file_%d, sizeof file_%d - 1, \"%s\"},\n", file[i].path, i, i,
               digest);
    }
    printf("    {NULL, NULL, 0, NULL}};\nconst int prim_file_count = %d;\n", files);
}

/* Rows of the table are maps and reductions, without pairs. */
static int place_of(const struct row *row, int rows, const char *name)
{
    int place = 0;
    for (const struct row *r = row; r < find_row(row, rows, name); r++)
        place += strcmp(r->class, "pair") != 0;
    return place;
}

static void write_facts(const struct row *r, const struct row *row, int rows)
{
    const struct prim_facts *f = &r->facts;
    bool grad = false;
    for (int i = 0; i < r->inputs; i++) grad |= *r->grad[i] != '\0';
    static const struct prim_facts none;
    if (!grad && !memcmp(f, &none, sizeof none)) return;
    printf("\n     .facts = {.linear = %u, .jointly = %u, .shift = %u, .identity = %d, .identity_at = %a,"
           "\n               .dtype = %d, .quotient = %u, .nonzero = %d, .zero = %u, .one = %u",
           f->linear, f->jointly, f->shift, f->identity, (double)f->identity_at, f->dtype, f->quotient,
           f->nonzero, f->zero, f->one);
    for (int i = 0; i < r->inputs; i++)
        if (*r->grad[i]) printf(", .grad[%d] = &prim_table[%d]", i, place_of(row, rows, r->grad[i]));
    printf("},");
}

static void write_string(const char *text)
{
    putchar('"');
    for (; *text; text++) printf(strchr("\\\"", *text) ? "\\%c" : "%c", *text);
    putchar('"');
}

/* Of "up: silu(gate)", what takes operands: their names, or of a linear one 1 and 0 where they are so. */
static void write_call(const struct row *r, const struct row *g, unsigned one, unsigned zero)
{
    bool reduce = !strcmp(r->class, "reduce");
    printf("%s(", g->name);
    for (int i = 0; i < g->inputs; i++)
        printf("%s%s", i ? ", " : "",
               one >> i & 1       ? "1"
               : zero >> i & 1    ? "0"
               : reduce && i == 1 ? "result"
               : reduce && i > 1  ? r->argument[i - 1]
                                  : r->argument[i]);
    for (int i = r->inputs; i < r->arguments; i++)
        printf("%s%s", i == r->inputs ? "; " : ", ", r->argument[i]);
    putchar(')');
}

/* "x: mul(1, y), y: mul(x, 1)": the derivatives for people. */
static void write_gradient(const struct row *r, const struct row *row, int rows)
{
    const char *comma = "";
    printf("\n     .gradient = \"");
    for (int i = 0; i < r->inputs; i++) {
        const struct prim_facts *f = &r->facts;
        unsigned bit = 1u << i;
        bool linear = (f->linear | f->jointly) & bit, number = (f->zero | f->one) & bit;
        if (!linear && !number && !*r->grad[i]) continue;
        printf("%s%s: ", comma, r->argument[i]);
        if (number) putchar(f->one & bit ? '1' : '0');
        else if (linear) write_call(r, r, bit, f->linear & bit ? 0 : f->jointly & ~bit);
        else write_call(r, find_row(row, rows, r->grad[i]), 0, 0);
        comma = ", ";
    }
    printf("\",");
}

static void write_words(const struct row *r)
{
    printf("\n     .operands = \"");
    for (int i = 0; i < r->inputs; i++) printf("%s%s", i ? ", " : "", r->argument[i]);
    printf("\", .constants = \"");
    for (int i = r->inputs; i < r->arguments; i++)
        printf("%s%s=float", i > r->inputs ? ", " : "", r->argument[i]);
    printf("\",\n     .meaning = ");
    write_string(r->meaning);
    printf(",");
}

void write_functions(void)
{
    printf("\nconst struct prim_function prim_functions[] = {\n");
    for (int i = 0; i < functions; i++) {
        printf("    {\"%s\", \"%s\", ", function[i].name, function[i].arguments);
        write_string(function[i].meaning);
        printf("},\n");
    }
    printf("    {NULL, NULL, NULL}};\n");
}

static void write_row(const struct row *r, const struct row *row, int rows)
{
    bool map = !strcmp(r->class, "map");
    printf(
        "    {.name = \"%s\", .kind = %s, .header = \"%s\",\n     .inputs = %d, .params = %d, .state = %d,",
        r->name, map ? "PRIM_MAP" : "PRIM_REDUCE", r->path, r->inputs, r->arguments - r->inputs, r->state);
    if (r->arguments > r->inputs) {
        printf(" .param_name = {");
        for (int i = r->inputs; i < r->arguments; i++) printf("\"%s\",", r->argument[i]);
        printf("},");
    }
    write_words(r);
    write_gradient(r, row, rows);
    write_facts(r, row, rows);
    if (*r->of) printf(" .of = \"%s\",", r->of);
    if (r->exact) printf(" .exact = true,");
    if (r->narrow) printf(" .narrow = true,");
    if (map) printf(" .loops = &coda_loops_%s,", r->name);
    printf(map ? " .reference = coda_ref_%s},\n" : " .reduce = &coda_ref_%s},\n", r->name);
}

void write_table(const struct row *row, int rows)
{
    int count = 0;
    for (int i = 0; i < rows; i++) {
        if (!strcmp(row[i].class, "map"))
            printf("double coda_ref_%s(const double *in, const double *params);\n"
                   "extern const struct prim_loops coda_loops_%s;\n",
                   row[i].name, row[i].name);
        if (!strcmp(row[i].class, "reduce"))
            printf("extern const struct prim_reduce coda_ref_%s;\n", row[i].name);
        if (!strcmp(row[i].class, "pair"))
            printf("void coda_ref_%s(double *a, double *b, double cosine, double sine);\n", row[i].name);
    }
    printf("\nconst struct prim prim_table[] = {\n");
    for (int i = 0; i < rows; i++)
        if (strcmp(row[i].class, "pair")) write_row(&row[i], row, rows), count++;
    printf("    {.name = NULL}};\nconst int prim_count = %d;\n", count);
    printf("\nconst struct prim_pair prim_pairs[] = {\n");
    for (int i = 0; i < rows; i++)
        if (!strcmp(row[i].class, "pair"))
            printf("    {\"%s\", \"%s\", coda_ref_%s},\n", row[i].name, row[i].path, row[i].name);
    printf("    {NULL, NULL, NULL}};\n");
}
