/*
 * steps.c -- what a server's metrics say of its steps.
 */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

enum { MOST_BYTES = 1 << 20 };

static char *receive_all(int fd)
{
    char *text = malloc(MOST_BYTES);
    size_t bytes = 0;
    ssize_t n = 0;
    while (text && bytes < MOST_BYTES - 1 && (n = recv(fd, text + bytes, MOST_BYTES - 1 - bytes, 0)) > 0)
        bytes += (size_t)n;
    if (text) text[bytes] = 0;
    return text;
}

static char *get_metrics(const struct addrinfo *server)
{
    static const char ask[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    const struct timeval patience = {5, 0};
    int fd = socket(server->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char *text = NULL;
    if (fd < 0) return NULL;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (!connect(fd, server->ai_addr, server->ai_addrlen) &&
        send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) == sizeof ask - 1)
        text = receive_all(fd);
    close(fd);
    return text;
}

/* The value of the metric whose name ends so, with a label or without one; 0 if there is none. */
static double value(const char *text, const char *name, const char *label)
{
    size_t n = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        size_t wide = strcspn(line, "{\n"), whole = strcspn(line, "\n");
        if (line[0] == '#' || line[wide] != '{' || wide < n || strncmp(line + wide - n, name, n) != 0)
            continue;
        const char *at = strstr(line, label), *end = memrchr(line, ' ', whole);
        if (at && at < line + whole && end) return plain_number(end, NULL);
    }
    return 0;
}

static double mean(const char *text, const char *name)
{
    char sum[64], count[64];
    snprintf(sum, sizeof sum, "%s_sum", name);
    snprintf(count, sizeof count, "%s_count", name);
    double n = value(text, count, "");
    return n > 0 ? value(text, sum, "") / n : 0;
}

bool steps_read(struct steps *s, const struct addrinfo *server)
{
    char *text = get_metrics(server);
    *s = (struct steps){0};
    if (text) {
        double gaps = value(text, "step_host_seconds_count", "");
        s->graphs = (long long)value(text, "graph_step_seconds_count", "");
        s->graph_ms = 1e3 * mean(text, "graph_seconds");
        s->step_ms = 1e3 * mean(text, "graph_step_seconds");
        s->host_us = 1e6 * mean(text, "step_host_seconds");
        s->host_below = gaps > 0 ? value(text, "step_host_seconds_bucket", "le=\"5e-05\"") / gaps : 0;
    }
    free(text);
    return s->graphs > 0;
}
