/*
 * ranks.c -- the server over several ranks, threads of the CPU device: greedy tokens, and draws of equal
 * seeds, are those of one rank, whatever runs beside them; what cannot be shared out is a line, and no
 * server.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chat_test.h"

#define TEXT "/v1/completions"

enum { CLIENTS = 8, BODY = 1024 };

static void write_body(char *to, int client)
{
    int n = snprintf(to, BODY, "{\"prompt\": [1");
    for (int k = 0; k < client * 5; k++)
        n += snprintf(to + n, (size_t)(BODY - n), ", %d", (k * 7 + client) % 60);
    snprintf(to + n, (size_t)(BODY - n),
             "], \"max_tokens\": 16, \"ignore_eos\": true, \"return_token_ids\": true, \"temperature\": %d, "
             "\"seed\": %d}",
             client % 2, client);
}

/* All clients' answers, who ask at once. */
static void ask_all(const char *program, const char *path, const char *ranks, struct answer **a)
{
    char body[CLIENTS][BODY];
    int fd[CLIENTS];
    struct running s =
        server_start(program, (const char *const[]){"--ids", "--rows", "16", "--sequences", "8", "--context",
                                                    "96", "--ranks", ranks, path, NULL});
    for (int i = 0; i < CLIENTS; i++) write_body(body[i], i), fd[i] = ask_begin(s.port, TEXT, body[i]);
    for (int i = 0; i < CLIENTS; i++) a[i] = ask_end(fd[i], false);
    CHECK(server_stop(&s) == 0, "%s, %s ranks: the server did not end well", path, ranks);
}

static void compare(const char *program, const char *name, const char *const *ranks)
{
    char path[256];
    struct answer *one[CLIENTS], *some[CLIENTS];
    snprintf(path, sizeof path, "test/model/tiny/%s", name);
    ask_all(program, path, "1", one);
    for (; *ranks; ranks++) {
        ask_all(program, path, *ranks, some);
        for (int i = 0; i < CLIENTS; i++) {
            CHECK(some[i]->status == 200 && some[i]->count == 16 && answers_equal(one[i], some[i]),
                  "%s, %s ranks: client %d: status %d, other tokens than by one rank", name, *ranks, i,
                  some[i]->status);
            answer_free(some[i]);
        }
    }
    for (int i = 0; i < CLIENTS; i++) answer_free(one[i]);
}

/* It ends by itself, and says so. */
static void refused(const char *program, const char *name, const char *ranks, const char *says)
{
    char command[512], line[512] = "", last[512] = "";
    snprintf(command, sizeof command,
             "timeout 60 %s --port 0 --ids --ranks %s test/model/tiny/%s 2>&1 >/dev/null", program, ranks,
             name);
    FILE *f = popen(command, "r");
    while (f && fgets(line, sizeof line, f)) memcpy(last, line, sizeof last);
    int status = f ? pclose(f) : -1;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1 && strstr(last, says), "%s, %s ranks: %d, \"%s\"",
          name, ranks, status, last);
}

/* Steps of two GPUs, captured and not, beside the CPU device's. */
void test_ranks_gpu(const char *program)
{
    static const char body[] = "{\"prompt\": [1, 5], \"max_tokens\": 3, \"ignore_eos\": true, "
                               "\"return_token_ids\": true, \"temperature\": 0}";
    const char *path = "test/model/tiny/gpt2";
    const char *const one[] = {"--ids", "--context", "32", path, NULL};
    const char *const two[] = {"--gpu",     "--dtype", "f32",    "--ids", "--ranks",     "2",
                               "--graphs",  "2",       "--rows", "4",     "--sequences", "2",
                               "--context", "32",      path,     NULL};
    struct running s = server_start(program, one);
    struct answer *want = ask(s.port, TEXT, body, false);
    CHECK(server_stop(&s) == 0, "the server did not end well");
    setenv("CODA_EMULATOR_DEVICES", "2", 1);
    s = server_start(program, two);
    unsetenv("CODA_EMULATOR_DEVICES");
    struct answer *a = ask(s.port, TEXT, body, false);
    CHECK(a->status == 200 && a->count == 3 && answers_equal(want, a), "status %d, %d tokens, others",
          a->status, a->count);
    CHECK(metric(s.port, "coda_graph_launches_total") > 0, "no step was a CUDA graph");
    answer_free(want);
    answer_free(a);
    CHECK(server_stop(&s) == 0, "the server on two GPUs did not end well");
}

void test_ranks(const char *program)
{
    static const char *const both[] = {"2", "4", NULL};
    compare(program, "llama", both);
    compare(program, "gpt2", both);
    compare(program, "phi3", both);
    compare(program, "gemma3", both + 1);
    refused(program, "mamba", "2", "family mamba is not shared out over ranks");
    refused(program, "llama", "8", "8 ranks do not divide 4 heads");
}
