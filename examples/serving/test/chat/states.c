/*
 * states.c -- requests to families whose layers carry a state: whoever ends, is cancelled or gives its pages
 * back leaves its place, and who comes next begins there with zeros.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "chat_test.h"

#define TEXT "/v1/completions"

enum { TOKENS = 12, PROMPTS = 5, BODY = 1024, ROUNDS = 4 };

static void write_prompt(char *body, int which)
{
    int n = snprintf(body, BODY, "{\"prompt\": [1");
    for (int k = 0; k < 3 + 9 * which; k++)
        n += snprintf(body + n, (size_t)(BODY - n), ", %d", 3 + (k * (which + 5) + which) % 70);
    snprintf(body + n, (size_t)(BODY - n),
             "], \"max_tokens\": %d, \"ignore_eos\": true, \"return_token_ids\": true, \"temperature\": 0}",
             TOKENS);
}

/* A client that goes away when its first tokens have come. */
static void leave(int port)
{
    int fd =
        ask_begin(port, TEXT,
                  "{\"prompt\": [5, 6, 7, 8], \"max_tokens\": 900, \"ignore_eos\": true, \"temperature\": "
                  "1, \"stream\": true}");
    CHECK(http_read_until(fd, "data:"), "a stream without tokens");
    close(fd);
}

static void test_places(const char *program, const char *name, double bytes, const char *device)
{
    static char body[PROMPTS][BODY];
    struct answer *alone[PROMPTS];
    char path[128], states[96];
    snprintf(path, sizeof path, "test/model/tiny/%s", name);
    snprintf(states, sizeof states, "coda_state_bytes{model_name=\"%s\"}", name);
    const char *const options[] = {"--ids",     "--rows", "8",        "--sequences", "3",  "--dtype", "f32",
                                   "--context", "960",    "--graphs", "2",           path, device,    NULL};
    struct running s = server_start(program, options);
    for (int i = 0; i < PROMPTS; i++) {
        write_prompt(body[i], i);
        alone[i] = ask(s.port, TEXT, body[i], false);
        CHECK(alone[i]->count == TOKENS, "%s: %d tokens", name, alone[i]->count);
    }
    int fd[PROMPTS],
        last = ask_begin(s.port, TEXT, "{\"prompt\": [9], \"max_tokens\": 900, \"ignore_eos\": true}");
    CHECK(metric_becomes(s.port, states, bytes), "%s: states have %g bytes, not %g", name,
          metric(s.port, states), bytes);
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 2) leave(s.port);
        for (int i = 0; i < PROMPTS; i++) fd[i] = ask_begin(s.port, TEXT, body[(i + round) % PROMPTS]);
        for (int i = 0; i < PROMPTS; i++) {
            struct answer *a = ask_end(fd[i], false);
            CHECK(answers_equal(a, alone[(i + round) % PROMPTS]),
                  "%s, round %d: prompt %d among others: %d "
                  "tokens, or other ones",
                  name, round, (i + round) % PROMPTS, a->count);
            answer_free(a);
        }
    }
    close(last);
    CHECK(metric_becomes(s.port, states, 0), "%s: %g bytes of states are left", name, metric(s.port, states));
    for (int i = 0; i < PROMPTS; i++) answer_free(alone[i]);
    CHECK(server_stop(&s) == 0, "%s: the server did not end well", name);
}

/* Two layers of 3 rows of 64 columns, and of 64 x 5 numbers; of (3 x 88 + 64 x 6); of (3 x 80 + 48 x 8). */
void test_states(const char *program)
{
    test_places(program, "mamba", 2 * 4 * (3 * 64 + 64 * 5), NULL);
    test_places(program, "mamba2", 2 * 4 * (3 * 88 + 64 * 6), NULL);
    test_places(program, "qwen3_5", 2 * 4 * (3 * 80 + 48 * 8), NULL);
}

/* Steps that are CUDA graphs among them. */
void test_states_gpu(const char *program)
{
    test_places(program, "mamba", 2 * 4 * (3 * 64 + 64 * 5), "--gpu");
}
