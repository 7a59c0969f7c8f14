/*
 * client.c -- servers as processes, and HTTP by hand, so that replies that libraries would hide are seen.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chat_test.h"

enum { MOST_OPTIONS = 32 };

static void give_up(const char *what)
{
    fprintf(stderr, "chat_test: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- Servers ---- */

/* A line of the server's, without its end. */
static bool read_line(int fd, char *line, size_t room)
{
    size_t n = 0;
    char c;
    while (read(fd, &c, 1) == 1) {
        if (c == '\n') return line[n] = 0, true;
        if (n + 1 < room) line[n++] = c;
    }
    return false;
}

static void become_server(const char *program, const char *const *options, int out)
{
    char *args[MOST_OPTIONS + 4] = {(char *)program, "--port", "0"};
    for (int i = 0; options[i] && i < MOST_OPTIONS; i++) args[i + 3] = (char *)options[i];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out, 1);
    execv(program, args);
    give_up(program);
}

/* While it is loaded, or just behind. */
static void check_health(int port)
{
    struct reply r = http(port, "GET", "/health", NULL);
    bool loads = r.status == 503 && strstr(r.body, "\"code\":503") && strstr(r.body, "Loading model");
    CHECK(loads || r.status == 200, "/health of a server that starts: %d: %s", r.status, r.body);
    reply_free(&r);
}

struct running server_start_early(const char *program, const char *const *options)
{
    char line[256] = "";
    int pipes[2];
    struct running s = {0};
    if (pipe(pipes)) give_up("pipe");
    fflush(stdout);
    if (!(s.pid = fork())) become_server(program, options, pipes[1]);
    close(pipes[1]);
    s.out = pipes[0];
    if (!read_line(s.out, line, sizeof line) ||
        sscanf(line, "chat_server: http://127.0.0.1:%d", &s.port) != 1)
        give_up("the server names no port");
    return s;
}

struct running server_start(const char *program, const char *const *options)
{
    char line[256] = "";
    struct running s = server_start_early(program, options);
    check_health(s.port);
    if (!read_line(s.out, line, sizeof line) || !strstr(line, "ready")) give_up("the server is not ready");
    return s;
}

int server_wait(struct running *s)
{
    int status;
    if (waitpid(s->pid, &status, 0) != s->pid) return -1;
    close(s->out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int server_stop(struct running *s)
{
    kill(s->pid, SIGTERM);
    return server_wait(s);
}

/* ---- HTTP ---- */

int http_connect(int port)
{
    const struct timeval patience = {.tv_sec = 600}; /* so that an answer that never comes is a failure */
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0) give_up("socket");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&at, sizeof at)) return close(fd), -1;
    return fd;
}

void http_write(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* the reply says why */
        at += n;
        bytes -= (size_t)n;
    }
}

void http_send(int fd, const char *method, const char *path, const char *body)
{
    char head[2048];
    int n = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                     method, path, body ? strlen(body) : 0);
    http_write(fd, head, (size_t)n);
    if (body) http_write(fd, body, strlen(body));
}

/* Takes the framing out of a body in chunks, in place. false: the last one is missing. */
static bool join_chunks(char *body, size_t *bytes)
{
    char *from = body, *to = body, *end = body + *bytes, *line_end;
    bool whole = false;
    while (from < end && (line_end = memmem(from, (size_t)(end - from), "\r\n", 2))) {
        size_t n = strtoul(from, NULL, 16);
        from = line_end + 2;
        if (!n) {
            whole = true;
            break;
        }
        if (n + 2 > (size_t)(end - from)) break;
        memmove(to, from, n);
        to += n;
        from += n + 2;
    }
    *bytes = (size_t)(to - body);
    *to = 0;
    return whole;
}

struct reply http_parse(const char *text, size_t bytes, size_t *used)
{
    struct reply r = {0};
    const char *gap = memmem(text, bytes, "\r\n\r\n", 4);
    *used = bytes;
    if (!gap || sscanf(text, "HTTP/1.1 %d", &r.status) != 1) return r;
    r.head = strndup(text, (size_t)(gap - text) + 2);
    r.bytes = bytes - (size_t)(gap + 4 - text);
    const char *length = strcasestr(r.head, "\r\nContent-Length:");
    size_t want = length ? strtoul(length + 17, NULL, 10) : r.bytes;
    r.whole = r.bytes >= want;
    if (r.bytes > want) r.bytes = want;
    *used = (size_t)(gap + 4 - text) + r.bytes;
    r.body = malloc(r.bytes + 1);
    memcpy(r.body, gap + 4, r.bytes);
    r.body[r.bytes] = 0;
    if (strcasestr(r.head, "\r\nTransfer-Encoding: chunked")) r.whole = join_chunks(r.body, &r.bytes);
    return r;
}

struct reply http_receive(int fd)
{
    size_t bytes = 0, room = 1 << 16, used;
    char *text = malloc(room);
    ssize_t n;
    while ((n = recv(fd, text + bytes, room - bytes - 1, 0)) > 0 || (n < 0 && errno == EINTR)) {
        bytes += n > 0 ? (size_t)n : 0;
        if (room - bytes < 4096) text = realloc(text, room *= 2);
    }
    close(fd);
    text[bytes] = 0;
    struct reply r = http_parse(text, bytes, &used);
    free(text);
    return r;
}

struct reply http(int port, const char *method, const char *path, const char *body)
{
    int fd = http_connect(port);
    if (fd < 0) return (struct reply){0};
    http_send(fd, method, path, body);
    return http_receive(fd);
}

bool http_read_until(int fd, const char *word)
{
    char text[1 << 16];
    size_t bytes = 0, length = strlen(word);
    for (;;) {
        if (bytes == sizeof text) { /* a stream may be of any length: its end is kept */
            memmove(text, text + bytes - length, length);
            bytes = length;
        }
        ssize_t n = recv(fd, text + bytes, sizeof text - bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        bytes += (size_t)n;
        if (memmem(text, bytes, word, length)) return true;
    }
}

bool http_wait_bytes(int fd, size_t bytes)
{
    char text[1 << 12];
    ssize_t n;
    if (bytes > sizeof text) return false;
    while ((n = recv(fd, text, bytes, MSG_PEEK | MSG_WAITALL)) < 0 && errno == EINTR) {}
    return n == (ssize_t)bytes;
}

void reply_free(struct reply *r)
{
    free(r->head);
    free(r->body);
    *r = (struct reply){0};
}
