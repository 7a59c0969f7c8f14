/*
 * tool_output.c -- the tool's standard output and its complaints.
 *
 * Everything that is printed goes through one stream, which does two things. It lets no byte reach a
 * terminal that is more than a character there: control characters other than line feed and tab, marks that
 * reorder a line, and bytes that are no UTF-8, are shown as \x1b (JSON, whose strings have none, passes as it
 * is). And it remembers the first error, so that output_close(), the last thing that main does, can say that
 * the output could not be written, whatever the command was.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

FILE *output;

static struct {
    unsigned char part[4]; /* the beginning of a character whose end is to come */
    size_t parts;
    int error; /* errno of the first write that failed */
} state;

/* ---- Characters ---- */

int utf8_length(const char *text, size_t size)
{
    static const uint32_t least[] = {0, 0x20, 0xa0, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    size_t n = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;
    uint32_t c = n == 1 ? *s : *s & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (i == size) return -1;
        if (s[i] >> 6 != 2) return 0;
        c = c << 6 | (s[i] & 63);
    }
    bool good = n && c >= least[n] && c != 0x7f && c <= 0x10ffff && c >> 11 != 0x1b; /* no surrogate */
    return good ? (int)n : 0;
}

/* Puts the next character of at most `size` bytes at *s into to, as it may be shown; the length of that. */
static size_t show(char to[8], const char **s, size_t size, bool lines)
{
    bool plain = lines && (**s == '\n' || **s == '\t');
    int n = plain ? 1 : utf8_length(*s, size);
    if (n > 1 && !plain_shown(*s)) n = 0;
    if (n > 0) memcpy(to, *s, (size_t)n);
    else snprintf(to, 8, "\\x%02x", (unsigned char)**s);
    *s += n > 0 ? n : 1;
    return n > 0 ? (size_t)n : 4;
}

/* ---- The stream ---- */

static bool write_all(const char *p, size_t size)
{
    while (size && !state.error) {
        ssize_t n = write(STDOUT_FILENO, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) state.error = n ? errno : ENOSPC;
        else p += n, size -= (size_t)n;
    }
    return !state.error;
}

/* Shows all of it, or all but a character that is not yet whole, which is kept. */
static bool pass_on(const char *s, size_t size, bool end)
{
    char block[4096];
    size_t n = 0;
    for (const char *stop = s + size; s < stop;) {
        if (!end && utf8_length(s, (size_t)(stop - s)) < 0) {
            memcpy(state.part, s, state.parts = (size_t)(stop - s));
            break;
        }
        n += show(block + n, &s, (size_t)(stop - s), true);
        if (n + 8 > sizeof block) {
            if (!write_all(block, n)) return false;
            n = 0;
        }
    }
    return write_all(block, n);
}

static ssize_t put(void *cookie, const char *s, size_t size)
{
    char joined[8];
    size_t more = state.parts ? 4 - state.parts : 0, kept = state.parts;
    (void)cookie;
    if (more > size) more = size;
    if (kept) { /* what was begun, with what belongs to it */
        memcpy(joined, state.part, kept);
        memcpy(joined + kept, s, more);
        int n = utf8_length(joined, kept + more);
        state.parts = 0;
        if (n < 0) return pass_on(joined, kept + more, false) ? (ssize_t)size : 0;
        more = n > 0 ? (size_t)n - kept : 0;
        if (!pass_on(joined, kept + more, true)) return 0;
    }
    return pass_on(s + more, size - more, false) ? (ssize_t)size : 0;
}

void paint(enum color c)
{
    if (!color_on(STDOUT_FILENO)) return;
    fflush(output);
    write_all(color_code(c), strlen(color_code(c))); /* past what shows control characters */
}

/* A program may be started without its first three descriptors: a file that it opens must not become one
 * of them. What stands there instead can be neither read nor written. */
static void hold_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

int output_open(void)
{
    hold_descriptors();
    signal(SIGXFSZ, SIG_IGN); /* too large a file is an error like others */
    if (!(output = fopencookie(NULL, "w", (cookie_io_functions_t){.write = put})))
        return complain("out of memory for the output");
    if (isatty(STDOUT_FILENO)) setvbuf(output, NULL, _IOLBF, BUFSIZ);
    return 0;
}

int output_close(int status)
{
    bool bad = fclose(output) != 0 || (state.parts && !pass_on((char *)state.part, state.parts, true));
    if (close(STDOUT_FILENO) && !state.error) state.error = errno;
    if (status || (!bad && !state.error)) return status;
    return complain("standard output: %s", state.error ? strerror(state.error) : "out of memory");
}

/* ---- Complaints ---- */

static void print_line(const char *format, va_list args, const char *end)
{
    char *line = NULL, shown[8];
    if (vasprintf(&line, format, args) < 0) line = NULL;
    const char *s = line ? line : "out of memory", *stop = s + strlen(s);
    progress_end(&working);
    bool colored = color_on(STDERR_FILENO);
    fprintf(stderr, "%scoda: %s", colored ? color_code(RED) : "", colored ? color_code(PLAIN) : "");
    while (s < stop) fwrite(shown, 1, show(shown, &s, (size_t)(stop - s), false), stderr);
    fputs(end, stderr);
    free(line);
}

int complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line(format, args, "\n");
    va_end(args);
    return 1;
}

int misuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line(format, args, "; see coda --help\n");
    va_end(args);
    return 2;
}
