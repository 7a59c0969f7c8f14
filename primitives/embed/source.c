/* source.c -- a file of primitives/: its registration, if it has one, its path, reference and first words. */
#include "embed.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "map/silu.cuh" is in class "map" and has stem "silu". */
static void check_path(const struct row *row, int line)
{
    char path[2 * WORD + 8];
    snprintf(path, sizeof path, "%s/%s.cuh", row->class, row->name);
    if (strcmp(path, row->path)) die(row->path, line, "%s %s belongs in %s", row->class, row->name, path);
}

static void check_reference(const struct row *row, int line)
{
    char path[WORD + 8];
    const char *macro = !strcmp(row->class, "map")    ? "REFERENCE_MAP"
                        : !strcmp(row->class, "pair") ? "REFERENCE_PAIR"
                                                      : "REFERENCE_REDUCE";
    snprintf(path, sizeof path, "ref/%s.c", row->name);
    FILE *f = open_file(path);
    if (!f) die(row->path, line, "its reference %s/%s is missing", dir, path);
    fclose(f);
    struct file reference = read_file(path);
    char *code = code_of(&reference), call[WORD + 24];
    snprintf(call, sizeof call, "%s(%s", macro, row->name);
    if (!says(code, call, ")")) die(path, 1, "%s(%s) is missing", macro, row->name);
    free(code);
    free(reference.text);
}

static bool is_primitive(const char *path)
{
    return !strncmp(path, "map/", 4) || !strncmp(path, "reduce/", 7) || !strncmp(path, "pair/", 5);
}

static bool is_class(const char *word)
{
    static const char *const class[] = {"map", "reduce", "pair"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(class[i]);
        if (!strncasecmp(word, class[i], n) && !in_word((unsigned char)word[n])) return true;
    }
    return false;
}

/* "//coda:map", "// coda map" and the like: a comment that begins with coda, in any case, and a colon or a
 * class. */
static bool looks_like_registration(const char *text)
{
    const char *comment = strstr(text, "//");
    if (!comment) return false;
    comment += strspn(comment, "/*! \t");
    if (strncasecmp(comment, "coda", 4)) return false;
    const char *rest = comment + 4 + strspn(comment + 4, " ");
    return (*rest == ':' && rest[1] != ':') || (rest > comment + 4 && is_class(rest));
}

/* "NAME.cuh -- the meaning", and comment lines up to an empty one or the registration, in one line. */
static char *parse_meaning(const struct file *file)
{
    char begin[2 * WORD], *meaning = allocate(file->length + 1, 1), *out = meaning;
    const char *stem = strrchr(file->path, '/'), *at = (const char *)file->text;
    snprintf(begin, sizeof begin, "// %.100s -- ", stem ? stem + 1 : file->path);
    if (strncmp(at, begin, strlen(begin)))
        die(file->path, 1, "begins with no \"%s\" and what it computes", begin);
    for (at += strlen(begin); *at; at += 3) {
        size_t n = strcspn(at, "\r\n");
        if (out > meaning) *out++ = ' ';
        memcpy(out, at, n);
        out += n;
        at += n + strspn(at + n, "\r");
        at += *at == '\n';
        if (strncmp(at, "// ", 3) || !strncmp(at, "// coda:", 8)) break;
    }
    if (out == meaning) die(file->path, 1, "what it computes is missing");
    return meaning;
}

/* Each function of math.cuh that returns a float is registered, and nothing else is. */
static void check_functions(const struct file *file)
{
    static const char define[] = "\nDEV float ";
    const char *text = (const char *)file->text;
    char call[WORD + 16];
    for (const char *at = text; (at = strstr(at, define));) {
        int found = 0, n = (int)strcspn(at += strlen(define), "(");
        while (found < functions && (strncmp(function[found].name, at, (size_t)n) || function[found].name[n]))
            found++;
        if (found == functions)
            die(file->path, line_of(text, at), "%.*s has no line \"// coda: function ...\"", n, at);
    }
    for (int i = 0; i < functions; i++) {
        snprintf(call, sizeof call, "%s%.63s(", define, function[i].name);
        if (!strstr(text, call)) die(file->path, 1, "there is no function %s", function[i].name);
    }
}

bool parse_file(const struct file *file, struct row *row)
{
    static const char mark[] = "// coda: ";
    int found = 0, line = 1;
    char *copy = allocate(file->length + 1, 1), *text = copy;
    memcpy(copy, file->text, file->length);
    for (; text; line++) {
        char *end = strchr(text, '\n');
        if (end) *end = '\0';
        size_t length = strlen(text);
        if (length && text[length - 1] == '\r') text[length - 1] = '\0';
        if (!strncmp(text, mark, strlen(mark)) && !strncmp(text + strlen(mark), "function ", 9)) {
            parse_function(text + strlen(mark) + 9, file->path, line);
        } else if (!strncmp(text, mark, strlen(mark))) {
            if (found) die(file->path, line, "a second registration; the first is in line %d", found);
            if (!is_primitive(file->path)) die(file->path, line, "only map/, reduce/ and pair/ register");
            *row = parse_row(text + strlen(mark), file->path, line);
            check_path(row, line);
            found = line;
        } else if (looks_like_registration(text)) {
            die(file->path, line, "a registration starts its line with \"%s\"", mark);
        }
        text = end ? end + 1 : NULL;
    }
    free(copy);
    if (!found && is_primitive(file->path)) die(file->path, 1, "has no line \"%s...\"", mark);
    if (found) check_reference(row, found);
    if (found) check_code(file, row);
    if (found) row->meaning = parse_meaning(file);
    if (!strcmp(file->path, "math.cuh")) check_functions(file);
    return found;
}
