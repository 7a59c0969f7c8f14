/*
 * terminal.c -- what programs do where somebody looks: a line of progress that is drawn, counts and goes
 * away, and colours. The somebody is a pseudo-terminal, whose screen is made of what was written to it.
 *
 * Time is not hoped for: compilations wait at the fake compiler's gate (test/fake) until the line was seen.
 * Run as: terminal_test BUILD FOLDER [LINE LEFT COMMAND]...
 * With commands: each says LINE while the compiler waits, and leaves LEFT on the screen; PORT in a command is
 * that of a server that takes a connection and says nothing. Without: the tool and examples/llama_block.
 */
#include "fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_WORDS = 24, ROOM = 1 << 20, SAFETY_SECONDS = 60 };

static const char *build, *folder;
static struct fake_board *board;
static int checks, failures;

static void check(bool good, const char *what, const char *in)
{
    checks++;
    if (good) return;
    failures++;
    printf("WRONG: %s in:\n%s\n", what, in);
}

/* ---- A program under observation ---- */

struct seen {
    pid_t pid;
    int fd;
    size_t size;
    char text[ROOM]; /* all that it wrote, with a 0 behind it */
    int status;
};

/* Words of the command by blanks; those before the program itself that have a = are its environment. */
static void become(char *command)
{
    char *word[MOST_WORDS + 1] = {NULL};
    int n = 0;
    for (char *w = strtok(command, " "); w && n < MOST_WORDS; w = strtok(NULL, " "))
        if (!n && strchr(w, '=')) putenv(w);
        else word[n++] = w;
    alarm(SAFETY_SECONDS); /* a test that hangs ends */
    execv(word[0], word);
    _exit(127);
}

static void set_environment(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/fake", build);
    setenv("CODA_CUDA_LIB", path, 1);
    snprintf(path, sizeof path, "%s/cache", folder);
    setenv("CODA_CACHE_DIR", path, 1);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("NO_COLOR");
    unsetenv("CLICOLOR_FORCE");
    unsetenv("CODA_DEBUG");
    unsetenv("CODA_BUNDLES");
}

/* On a terminal of its own, or with standard output and error in a pipe. */
static struct seen *start(bool terminal, const char *format, ...)
{
    static struct seen s;
    char command[4096];
    int ends[2];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    s.size = 0;
    s.text[0] = 0;
    fflush(stdout);
    if (!terminal && pipe(ends)) abort();
    s.pid = terminal ? forkpty(&s.fd, NULL, NULL, &(struct winsize){.ws_row = 24, .ws_col = 200}) : fork();
    if (s.pid < 0) abort();
    if (s.pid == 0) {
        if (!terminal) dup2(ends[1], 1), dup2(ends[1], 2), close(ends[0]), close(ends[1]);
        become(command);
    }
    if (!terminal) s.fd = ends[0], close(ends[1]);
    return &s;
}

/* More of what it writes; false at the end. */
static bool more(struct seen *s)
{
    ssize_t n;
    do n = read(s->fd, s->text + s->size, ROOM - 1 - s->size);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return false; /* a terminal whose program has gone gives EIO */
    s->size += (size_t)n;
    s->text[s->size] = 0;
    return s->size < ROOM - 1;
}

static bool until(struct seen *s, const char *word)
{
    bool found;
    while (!(found = strstr(s->text, word) != NULL) && more(s)) {}
    check(found, word, s->text);
    return found;
}

static void finish(struct seen *s, int wanted)
{
    while (more(s)) {}
    close(s->fd);
    waitpid(s->pid, &s->status, 0);
    check(WIFEXITED(s->status) && WEXITSTATUS(s->status) == wanted, "the exit status is not as wanted",
          s->text);
}

/* What stands on the screen in the end. */
static const char *screen(const struct seen *s)
{
    static char out[ROOM];
    size_t line = 0, at = 0, size = 0; /* where the line begins, the cursor in it, its end */
    for (const char *c = s->text; *c; c++) {
        if (*c == '\r') at = line;
        else if (!strncmp(c, "\033[K", 3)) size = at, c += 2;
        else if (*c == '\n') out[size++] = '\n', line = at = size;
        else {
            out[at++] = *c;
            if (at > size) size = at;
        }
    }
    out[size] = 0;
    return out;
}

/* ---- Progress ---- */

/* It says `line` while the compiler waits, and nothing of it is left at the end but what a pipe gets, too. */
static void progress(const char *line, const char *left, const char *format, ...)
{
    char command[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    atomic_store(&board->hold, 1);
    struct seen *s = start(true, "%s", command);
    until(s, line);
    atomic_store(&board->hold, 0);
    finish(s, 0);
    check(!strstr(screen(s), line), "the line is left on the screen", screen(s));
    check(strstr(screen(s), left) != NULL, left, screen(s));
}

static void empty_cache(void)
{
    char command[4096];
    snprintf(command, sizeof command, "rm -rf '%s/cache'", folder);
    if (system(command)) abort();
}

static void tool(void)
{
    const char *g = "examples/graphs/llama_small.coda";
    empty_cache();
    progress("compiling examples/graphs/llama_small.coda: 0 of 6 kernels, ", "coda_gemm_rope",
             "%s/coda compile %s", build, g);
    progress("compiling examples/graphs/gpt2_small.coda: 0 of ", " entries, ",
             "%s/coda cache export %s/made.bundle --graph examples/graphs/gpt2_small.coda", build, folder);
    empty_cache();
    progress("compiling examples/graphs/llama_cache.coda: 0 of ", " kernels for all shapes",
             "%s/coda compile examples/graphs/llama_cache.coda --dim B=1..4", build);
}

/* An error has a line of its own, whatever was drawn before. */
static void errors(void)
{
    empty_cache();
    atomic_store(&board->hold, 1);
    atomic_store(&board->mode, FAKE_FAIL);
    struct seen *s = start(true, "%s/coda --color never compile examples/graphs/llama_small.coda", build);
    until(s, "compiling examples/graphs/llama_small.coda: ");
    atomic_store(&board->hold, 0);
    finish(s, 1);
    atomic_store(&board->mode, FAKE_GOOD);
    check(!strncmp(screen(s), "coda: examples/graphs/llama_small.coda: ", 40), "the error is not alone",
          screen(s));
}

/* A compilation takes 0.7 s, a terminal sees a line: a pipe gets what the command prints, no more. */
static void pipes(void)
{
    empty_cache();
    struct seen *s = start(
        false,
        "FAKE_COMPILE_US=700000 CODA_COMPILE_THREADS=8 %s/coda compile examples/graphs/llama_small.coda",
        build);
    finish(s, 0);
    check(!strpbrk(s->text, "\r\033"), "a pipe gets a line of progress", s->text);
    check(!strncmp(s->text, "kernel  ", 8), "a pipe gets something else first", s->text);
    empty_cache();
    s = start(true,
              "TERM=dumb FAKE_COMPILE_US=700000 CODA_COMPILE_THREADS=8 %s/coda compile "
              "examples/graphs/llama_small.coda",
              build);
    finish(s, 0);
    check(!strstr(s->text, "\033"), "a terminal that can do nothing gets a line of progress", s->text);
    empty_cache();
    s = start(true,
              "FAKE_COMPILE_US=700000 CODA_COMPILE_THREADS=8 %s/coda --color never compile "
              "examples/graphs/llama_small.coda",
              build);
    finish(s, 0);
    check(strstr(s->text, "\r\033[Kcompiling") != NULL, "no progress after 0.7 s", s->text);
}

static void example(void)
{
    progress("compiling the block: ", "done", "%s/examples/llama_block --cpu", build);
}

/* A client asks a server that takes a connection and says nothing. */
static void unanswered(const char *line, const char *command, const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0 || bind(server, (struct sockaddr *)&at, size) || listen(server, 4) ||
        getsockname(server, (struct sockaddr *)&at, &size))
        abort();
    struct seen *s = start(true, "%.*s%d%s", (int)(port - command), command, ntohs(at.sin_port), port + 4);
    until(s, line);
    close(server); /* and with it the connection, which nobody has taken */
    finish(s, 1);
    check(!strstr(screen(s), line), "the line is left on the screen", screen(s));
}

static void others(int n, char **words)
{
    for (int i = 0; i < n; i += 3) {
        const char *port = strstr(words[i + 2], "PORT");
        empty_cache();
        if (port) unanswered(words[i], words[i + 2], port);
        else progress(words[i], words[i + 1], "%s", words[i + 2]);
    }
}

/* ---- Colours ---- */

/* Takes colours away, and leaves what else a terminal is told. */
static void fade(char *text)
{
    char *to = text;
    for (const char *c = text; *c; c++) {
        size_t n = !strncmp(c, "\033[", 2) ? 2 + strspn(c + 2, "0123456789;") : 0;
        if (n && c[n] == 'm') c += n;
        else *to++ = *c;
    }
    *to = 0;
}

/* What stands there in the end: a program that a busy machine slows down draws a line of progress before. */
static void colors(bool terminal, bool colored, const char *words)
{
    char what[256], *plain = NULL;
    struct seen *s = start(terminal, "%s/coda --color never explain examples/graphs/llama_small.coda", build);
    finish(s, 0);
    plain = strdup(screen(s));
    check(!strstr(plain, "\033"), "colours though there are to be none", plain);
    char command[512];
    const char *options = strstr(words, "--");
    snprintf(command, sizeof command, "%.*s %s/coda %s explain examples/graphs/llama_small.coda",
             options ? (int)(options - words) : (int)strlen(words), words, build, options ? options : "");
    s = start(terminal, "%s", command);
    finish(s, 0);
    snprintf(what, sizeof what, "%s with '%s': colours are not as they should be",
             terminal ? "terminal" : "pipe", words);
    size_t with = strlen(s->text);
    fade(s->text); /* without colours it is the same */
    check((strlen(s->text) < with) == colored, what, s->text);
    check(plain && !strcmp(plain, screen(s)), "with colours the text is another", screen(s));
    free(plain);
}

static void all_colors(void)
{
    colors(true, true, "");
    colors(true, false, "NO_COLOR=1");
    colors(true, true, "NO_COLOR=");
    colors(true, false, "TERM=dumb");
    colors(true, false, "NO_COLOR=1 CLICOLOR_FORCE=1");
    colors(true, true, "NO_COLOR=1 --color=always");
    colors(true, false, "--color never");
    colors(false, false, "");
    colors(false, true, "CLICOLOR_FORCE=1");
    colors(false, false, "CLICOLOR_FORCE=0");
    colors(false, true, "--color always");
    colors(false, false, "CLICOLOR_FORCE=1 --color auto --color never");
    struct seen *s = start(true, "%s/coda explain none", build);
    finish(s, 1);
    check(!strncmp(s->text, "\033[1;31mcoda: \033[0mnone: ", 22), "an error has no colour", s->text);
    s = start(true, "%s/coda run examples/graphs/llama_small.coda --check", build);
    finish(s, 0);
    check(strstr(s->text, "\033[32mpass\033[0m") != NULL, "what passes is not green", s->text);
    s = start(true, "%s/coda run examples/graphs/llama_small.coda --check --tolerance 1e-9", build);
    finish(s, 1);
    check(strstr(s->text, "\033[1;31mFAIL\033[0m") != NULL, "what fails is not red", s->text);
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc < 3 || argc % 3)
        return fputs("usage: terminal_test BUILD FOLDER [LINE LEFT COMMAND]...\n", stderr), 2;
    build = realpath(argv[1], NULL), folder = realpath(argv[2], NULL);
    if (!build || !folder) return perror(argv[2]), 1;
    set_environment();
    snprintf(path, sizeof path, "%s/board", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *board)) return perror(path), 1;
    close(fd);
    setenv("FAKE_BOARD", path, 1);
    board = fake_board();
    if (argc > 3) others(argc - 3, argv + 3);
    else tool(), errors(), pipes(), example(), all_colors();
    printf("terminal: %d checks of progress and colours, %d failures\n", checks, failures);
    return failures != 0;
}
