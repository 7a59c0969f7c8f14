/*
 * embed.c -- build tool: turns the files of primitives/ into one C file, their sources and their table.
 *
 *     embed DIR FILE... > prim.c        FILE is relative to DIR: map/silu.cuh
 *
 * A primitive registers itself with one comment line, which is checked here:
 *
 *     // coda: map NAME(x, ...; parameter, ...) [linear(x, ...)] [identity(y = 1)] [grad(x = NAME)] ...
 *     // coda: reduce NAME(x[, key]) state FLOATS [of NAME] [exact] [grad(x = NAME)] ...
 *     // coda: pair NAME(...)
 *     // coda: function NAME(x, ...) MEANING
 *
 * Files of map/, reduce/ and pair/ hold exactly one such line, math.cuh one for each function, others none.
 * NAME is the file's stem, and the file begins with `// NAME.cuh -- ` and what it computes, up to an empty
 * comment line.
 * Maps and reductions need DIR/ref/NAME.c, and every file there needs its primitive. Their device code
 * says `#pragma once`, defines `struct NAME`, calls no function of libm and has no double literal; the
 * reference says REFERENCE_MAP(NAME) or REFERENCE_REDUCE(NAME). The first mistake is reported as
 * file:line: message, with exit status 1. Equal input gives equal output.
 */
#include "embed.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *dir;

void die(const char *path, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s/%s:%d: ", dir, path, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(EXIT_FAILURE);
}

void *allocate(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (!p) fputs("embed: out of memory\n", stderr), exit(EXIT_FAILURE);
    return p;
}

/* DIR/path, to be freed. */
static char *in_dir(const char *path)
{
    size_t size = strlen(dir) + strlen(path) + 2;
    char *full = allocate(size, 1);
    snprintf(full, size, "%s/%s", dir, path);
    return full;
}

FILE *open_file(const char *path)
{
    char *full = in_dir(path);
    FILE *f = fopen(full, "rb");
    free(full);
    return f;
}

struct file read_file(const char *path)
{
    struct file file = {path, NULL, 0};
    size_t capacity = 1 << 16;
    FILE *f = open_file(path);
    if (!f) die(path, 1, "cannot be opened");
    file.text = allocate(capacity, 1);
    for (size_t n; (n = fread(file.text + file.length, 1, capacity - 1 - file.length, f)) > 0;) {
        file.length += n;
        if (file.length < capacity - 1) continue;
        file.text = realloc(file.text, capacity *= 2);
        if (!file.text) fputs("embed: out of memory\n", stderr), exit(EXIT_FAILURE);
    }
    if (ferror(f)) die(path, 1, "cannot be read");
    fclose(f);
    file.text[file.length] = '\0';
    if (memchr(file.text, '\0', file.length)) die(path, 1, "holds a NUL byte");
    return file;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

/* ---- What registrations say of each other ---- */

static int compare_rows(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

static void check_duplicates(const struct row *row, int rows)
{
    for (int i = 1; i < rows; i++)
        if (!strcmp(row[i].name, row[i - 1].name))
            die(row[i].path, 1, "%s is also the name of %s", row[i].name, row[i - 1].path);
}

const struct row *find_row(const struct row *row, int rows, const char *name)
{
    struct row key;
    snprintf(key.name, sizeof key.name, "%s", name);
    return bsearch(&key, row, (size_t)rows, sizeof *row, compare_rows);
}

/* "of NAME": a reduction of as many floats and operands that has a state of its own. */
static void check_states(const struct row *row, int rows)
{
    for (int i = 0; i < rows; i++) {
        if (!*row[i].of) continue;
        const struct row *of = find_row(row, rows, row[i].of);
        if (!of || *of->of || of->state != row[i].state || of->inputs != row[i].inputs)
            die(row[i].path, 1, "there is no reduction %s with a state like that of %s", row[i].of,
                row[i].name);
    }
}

/* The map that is the derivative of a row by an operand takes the first of what that one takes; of a
 * reduction, of an element, its statistic and its key. */
static void check_grads(const struct row *row, int rows)
{
    for (int i = 0; i < rows; i++) {
        bool reduce = !strcmp(row[i].class, "reduce");
        int most = row[i].inputs + reduce, params = row[i].arguments - row[i].inputs;
        for (int k = 0; k < row[i].inputs; k++) {
            if (!*row[i].grad[k]) continue;
            const struct row *g = find_row(row, rows, row[i].grad[k]);
            if (!g || strcmp(g->class, "map"))
                die(row[i].path, 1, "the derivative by %s: there is no map %s", row[i].argument[k],
                    row[i].grad[k]);
            if (g->inputs > most || g->arguments - g->inputs != params)
                die(row[i].path, 1,
                    "the derivative by %s: %s takes %d operands and %d parameters; %s has %d and %d",
                    row[i].argument[k], g->name, g->inputs, g->arguments - g->inputs, row[i].name, most,
                    params);
        }
    }
}

/* Every reference serves a primitive. */
static void check_orphans(const struct row *row, int rows)
{
    char *path = in_dir("ref");
    DIR *d = opendir(path);
    free(path);
    if (!d) die("ref", 1, "cannot be opened");
    for (struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        char name[WORD];
        if (length < 3 || strcmp(e->d_name + length - 2, ".c")) continue;
        snprintf(name, sizeof name, "%.*s", (int)(length - 2), e->d_name);
        if (!find_row(row, rows, name)) die("ref", 1, "%s is the reference of no primitive", e->d_name);
    }
    closedir(d);
}

int main(int argc, char **argv)
{
    if (argc < 3) return fputs("usage: embed DIR FILE... > prim.c\n", stderr), EXIT_FAILURE;
    int files = argc - 2, rows = 0;
    struct file *file = allocate((size_t)files, sizeof *file);
    struct row *row = allocate((size_t)files, sizeof *row);
    dir = argv[1];
    for (int i = 0; i < files; i++) file[i] = read_file(argv[i + 2]);
    qsort(file, (size_t)files, sizeof *file, compare_files);
    for (int i = 0; i < files; i++) rows += parse_file(&file[i], &row[rows]);
    qsort(row, (size_t)rows, sizeof *row, compare_rows);
    check_duplicates(row, rows);
    check_states(row, rows);
    check_grads(row, rows);
    check_orphans(row, rows);

    printf("/* Made by embed.c from the files of primitives/. */\n#include <string.h>\n\n#include "
           "\"prim.h\"\n\n");
    write_files(file, files);
    printf("\n");
    write_table(row, rows);
    write_functions();
    printf("\nconst struct prim *prim_find(const char *name)\n{\n"
           "    for (int low = 0, high = prim_count; low < high;) {\n"
           "        int middle = (low + high) / 2, order = strcmp(name, prim_table[middle].name);\n"
           "        if (order == 0) return &prim_table[middle];\n"
           "        if (order < 0) high = middle; else low = middle + 1;\n"
           "    }\n    return NULL;\n}\n");
    if (fflush(stdout) || ferror(stdout)) return fputs("embed: cannot write\n", stderr), EXIT_FAILURE;
    return EXIT_SUCCESS;
}
