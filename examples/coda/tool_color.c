/*
 * tool_color.c -- colours, for a person who looks: by --color, else where the output is a terminal.
 *
 * With --color auto, the default, NO_COLOR (not empty) switches them off, and CLICOLOR_FORCE (neither empty
 * nor 0) on wherever the output goes. Without colours not a byte differs from what the commands print.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

static enum { AUTO, ALWAYS, NEVER } when;

bool color_when(const char *word)
{
    static const char *const name[] = {"auto", "always", "never"};
    for (int i = 0; i < 3; i++)
        if (strcmp(word, name[i]) == 0) return when = i, true;
    return false;
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

bool color_on(int fd)
{
    const char *force = getenv("CLICOLOR_FORCE"), *terminal = getenv("TERM");
    if (when != AUTO) return when == ALWAYS;
    if (is_set("NO_COLOR")) return false;
    if (is_set("CLICOLOR_FORCE") && strcmp(force, "0") != 0) return true;
    return isatty(fd) && (!terminal || strcmp(terminal, "dumb") != 0);
}

const char *color_code(enum color c)
{
    static const char *const code[] = {
        [PLAIN] = "\033[0m",  [BOLD] = "\033[1m",    [FAINT] = "\033[2m", [RED] = "\033[1;31m",
        [GREEN] = "\033[32m", [YELLOW] = "\033[33m", [CYAN] = "\033[36m"};
    return code[c];
}

void color_span(enum color c, const char *text, size_t size)
{
    bool painted = size && c != PLAIN;
    if (painted) paint(c);
    fwrite(text, 1, size, output);
    if (painted) paint(PLAIN);
}

/* ---- Texts of plans, line by line ---- */

/* "fuse_residual      exact    %18 = add is computed ...": the rule, and what it does to the bits. */
static void paint_derivation(const char *line, size_t n)
{
    size_t rule = strcspn(line, " \n"), gap = strspn(line + rule, " "),
           word = strcspn(line + rule + gap, " \n");
    const char *kind = line + rule + gap;
    bool total = rule == 5 && !strncmp(line, "total", 5);
    if (total || !rule || rule + gap + word > n) {
        color_span(total ? BOLD : PLAIN, line, n);
        return;
    }
    color_span(CYAN, line, rule);
    fwrite(line + rule, 1, gap, output);
    color_span(!strncmp(kind, "exact", word)      ? GREEN
               : !strncmp(kind, "rounding", word) ? YELLOW
                                                  : PLAIN,
               kind, word);
    fwrite(kind + word, 1, n - rule - gap - word, output);
}

/* "@0 -> @1     several_readers  32768 B  ...": programs, a word, what it costs, a sentence. False: it is
 * another line, as "@1 gemm batch=1 ..." is. */
static bool paint_reason(const char *line, size_t n)
{
    enum { PROGRAMS = 13 }; /* columns that they have at least */
    size_t programs = strspn(line, "@0123456789 ->,"), kind = strcspn(line + programs, " \n");
    if (*line != '@' || programs < PROGRAMS || programs + kind > n) return false;
    color_span(BOLD, line, programs);
    color_span(YELLOW, line + programs, kind);
    fwrite(line + programs + kind, 1, n - programs - kind, output);
    return true;
}

/* "%y = add %a, %b  ; bf16[64,256]": a comment, or the plan's tile, is faint; a program's line bold. */
static void paint_code(const char *line, size_t n)
{
    if (paint_reason(line, n)) return;
    const char *comment = memchr(line, ';', n);
    size_t code = comment ? (size_t)(comment - line) : n;
    bool tile = !strncmp(line, "   tile ", 8) && strncmp(line, "   tile v", 9) != 0;
    color_span(*line == '@' ? BOLD : tile ? FAINT : PLAIN, line, code);
    if (comment) color_span(FAINT, comment, n - code);
}

void color_text(const char *text, coda_text what)
{
    if (!color_on(STDOUT_FILENO) || what == CODA_TEXT_DOT) {
        fputs(text, output);
        return;
    }
    for (size_t n; *text; text += n) {
        n = strcspn(text, "\n");
        (what == CODA_TEXT_DERIVATION ? paint_derivation : paint_code)(text, n);
        if (text[n]) fputc('\n', output), n++;
    }
}
