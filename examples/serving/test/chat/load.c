/*
 * load.c -- chat_load against the server, and against replies that it must find fault with.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chat_test.h"

static char load[4096]; /* the program: it lies beside the server */

/* Its exit status. What it says of failures that are wanted is not shown. */
static int run_load(int port, const char *const *options, bool quiet)
{
    char number[16], *args[32] = {load, "--port", number};
    int status = -1;
    snprintf(number, sizeof number, "%d", port);
    for (int i = 0; options[i]; i++) args[i + 3] = (char *)options[i];
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        int nowhere = open("/dev/null", O_WRONLY);
        if (quiet) dup2(nowhere, 1), dup2(nowhere, 2);
        execv(load, args);
        _exit(127);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

/* ---- A server ---- */

/* Lines of the file, and how many have tokens and times that rise. */
static void check_csv(const char *path, int count)
{
    char line[256];
    double due, before = -1, first, end;
    int lines = 0, good = 0, prompt, tokens, status, failed;
    FILE *f = fopen(path, "r");
    CHECK(f, "no %s", path);
    while (f && fgets(line, sizeof line, f)) {
        if (!lines++) continue;
        if (sscanf(line, "%lf,%d,%d,%lf,%lf,%d,%d", &due, &prompt, &tokens, &first, &end, &status, &failed) ==
            7)
            good += due > before && tokens >= 1 && tokens <= 12 && first > 0 && end >= first && status == 200;
        before = due;
    }
    CHECK(lines == count + 1 && good == count, "%s: %d lines, %d good ones, of %d", path, lines, good, count);
    if (f) fclose(f);
}

static void test_server(const char *program)
{
    char csv[] = "/tmp/chat_load_XXXXXX";
    struct running s =
        server_start(program, (const char *const[]){"--pages", "30", "--context", "256", NULL});
    int fd = mkstemp(csv);
    const char *const options[] = {"--requests",    "30",       "--rate",   "60",    "--prompt",
                                   "1..100",        "--answer", "1..12",    "--csv", csv,
                                   "--temperature", "0.7",      "--verify", NULL};
    CHECK(run_load(s.port, options, false) == 0, "chat_load found fault with the server");
    check_csv(csv, 30);
    CHECK(metric(s.port, "coda_request_success_total{model_name=\"tiny\",finished_reason=\"length\"}") == 60,
          "60 answers were asked for, to their lengths");
    CHECK(run_load(s.port, (const char *const[]){"--requests", "1", "--answer", "300", NULL}, true) == 1,
          "a request that is refused is no failure to chat_load");
    close(fd);
    unlink(csv);
    CHECK(server_stop(&s) == 0, "the server did not end well");
    CHECK(run_load(s.port, (const char *const[]){"--requests", "2", NULL}, true) == 1,
          "chat_load of no server");
}

/* ---- Replies that are made up ---- */

#define PLAIN "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#define ONE(text) "data: {\"choices\": [{\"text\": \"" text "\", \"token_ids\": [1]}]}\n\n"
#define TWO(text, count)                                                                                     \
    "data: {\"choices\": [{\"text\": \"" text "\", \"finish_reason\": \"length\"}], \"usage\": "             \
    "{\"completion_tokens\": " count "}}\n\n"
#define DONE "data: [DONE]\n\n"

static const struct {
    const char *what, *first, *again; /* again: to the request that is sent alone; NULL: there is none */
    int status;
} replies[] = {
    {"a good one", PLAIN ONE("a") ": ping\n\n" TWO("\\\"b", "2") DONE, NULL, 0},
    {"chunks without an answer", CHUNKED "6\r\ndata: \r\n8\r\n[DONE]\n\n\r\n0\r\n\r\n", NULL, 1},
    {"an event in two chunks",
     CHUNKED "f\r\ndata: {\"choices\r\n2e\r\n\": [{\"text\": \"a\", \"finish_reason\": \"stop\"}]}\n\n\r\n"
             "E\r\n" DONE "\r\n0\r\n\r\n",
     NULL, 0},
    {"no last chunk",
     CHUNKED "f\r\ndata: {\"choices\r\n2e\r\n\": [{\"text\": \"a\", \"finish_reason\": \"stop\"}]}"
             "\n\n\r\nE\r\n" DONE "\r\n",
     NULL, 1},
    {"no [DONE]", PLAIN ONE("a") TWO("b", "2"), NULL, 1},
    {"no reason", PLAIN ONE("a") DONE, NULL, 1},
    {"a token too many", PLAIN ONE("a") TWO("b", "3") DONE, NULL, 1},
    {"something behind [DONE]", PLAIN ONE("a") TWO("b", "2") DONE ONE("c"), NULL, 1},
    {"no events", PLAIN "hello\n", NULL, 1},
    {"an error", PLAIN ONE("a") "data: {\"error\": {}}\n\n" TWO("b", "2") DONE, NULL, 1},
    {"nothing", "", NULL, 1},
    {"a status", "HTTP/1.1 429 Too Many Requests\r\n\r\n" ONE("a") TWO("b", "2") DONE, NULL, 1},
    {"the same alone, in other pieces", PLAIN ONE("a") TWO("bc", "2") DONE,
     PLAIN ONE("ab") TWO("c", "2") DONE, 0},
    {"another alone", PLAIN ONE("a") TWO("bc", "2") DONE, PLAIN ONE("a") TWO("bd", "2") DONE, 1},
};

struct stand_in {
    int fd;
    const char *reply[2];
};

static void *stand_in(void *context)
{
    const struct stand_in *s = context;
    for (int i = 0; i < 2 && s->reply[i]; i++) {
        int fd = accept(s->fd, NULL, NULL);
        http_read_until(fd, "\"}");
        http_write(fd, s->reply[i], strlen(s->reply[i]));
        shutdown(fd, SHUT_WR);
        http_read_until(fd, "nothing more");
        close(fd);
    }
    return NULL;
}

static void test_reply(size_t i)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    struct stand_in s = {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                         {replies[i].first, replies[i].again}};
    pthread_t thread;
    CHECK(!bind(s.fd, (struct sockaddr *)&at, size) && !listen(s.fd, 2) &&
              !getsockname(s.fd, (struct sockaddr *)&at, &size),
          "no port");
    pthread_create(&thread, NULL, stand_in, &s);
    const char *const options[] = {"--requests", "1", "--answer", "2", replies[i].again ? "--verify" : NULL,
                                   NULL};
    int status = run_load(ntohs(at.sin_port), options, true);
    pthread_join(thread, NULL);
    close(s.fd);
    CHECK(status == replies[i].status, "%s: exit status %d, not %d", replies[i].what, status,
          replies[i].status);
}

void test_load(const char *program)
{
    snprintf(load, sizeof load, "%.*schat_load", (int)(strrchr(program, '/') + 1 - program), program);
    test_server(program);
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) test_reply(i);
}
