/*
 * chat_test.h -- a client for the tests of chat_server.c: it starts servers, asks over sockets, and
 * says what was not as it should be.
 */
#ifndef CHAT_TEST_H
#define CHAT_TEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- What is expected ---- */

extern int failures, checks;
void check_that(bool holds, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define CHECK(holds, ...) check_that(holds, __FILE__, __LINE__, __VA_ARGS__)

/* ---- Servers ---- */

struct running {
    pid_t pid;
    int port;
    int out; /* of its standard output */
};

/* Options are texts up to NULL. Ends the program if there is no server. */
struct running server_start(const char *program, const char *const *options);
/* The same, before its model is loaded. */
struct running server_start_early(const char *program, const char *const *options);
/* Exit status after SIGTERM; -1: it died otherwise. */
int server_stop(struct running *s);
int server_wait(struct running *s);

/* Open descriptors of a process; until they are no more than so many: false after a minute. */
int descriptors(pid_t pid);
bool descriptors_become(pid_t pid, int most);

/* ---- HTTP ---- */

struct reply {
    int status; /* 0: there was no answer */
    char *head; /* header lines */
    char *body; /* without the framing of chunks; NUL at the end */
    size_t bytes;
    bool whole; /* all was there that the header promised */
};

int http_connect(int port);
/* A request with a body, or NULL, that closes the connection. */
void http_send(int fd, const char *method, const char *path, const char *body);
void http_write(int fd, const void *data, size_t bytes);
/* What comes until the connection ends, which is closed. */
struct reply http_receive(int fd);
struct reply http(int port, const char *method, const char *path, const char *body);
/* The first of the replies in `text` by its Content-Length; *used gets its bytes. */
struct reply http_parse(const char *text, size_t bytes, size_t *used);
void reply_free(struct reply *r);
/* Until a word has come; false if the connection ended before. */
bool http_read_until(int fd, const char *word);
/* Until so many bytes have come, which stay to be read. */
bool http_wait_bytes(int fd, size_t bytes);

/* ---- Completions ---- */

enum { MOST_IDS = 4096 };

struct answer {
    int status;
    char *text; /* may hold NUL, and has one at the end */
    size_t bytes;
    int32_t ids[MOST_IDS];
    int count;
    int prompt_tokens, completion_tokens;
    char reason[16];
    int pieces; /* of a stream */
    bool done;  /* of a stream: it ended in [DONE] */
};

/* One POST; `stream` must say what the body says. */
struct answer *ask(int port, const char *path, const char *body, bool stream);
/* The same in two halves: the request is sent; its answer is read, and the connection closed. */
int ask_begin(int port, const char *path, const char *body);
struct answer *ask_end(int fd, bool stream);
void answer_free(struct answer *a);
bool answers_equal(const struct answer *a, const struct answer *b);
/* What the client has counted since the start of the program, of answers that came whole. */
struct tally {
    int64_t prompt_tokens, completion_tokens, stop, length;
};
extern struct tally tally;

/* The value of a metric, with its labels if it has more than the model's; -1: not there. */
double metric(int port, const char *name);
/* Until a metric has a value: false if it has another one for a minute. */
bool metric_becomes(int port, const char *name, double value);

/* ---- A checkpoint whose tokens are letters ---- */

void put_file(const char *folder, const char *name, const char *text);
void put_letters(const char *folder);

/* ---- The model in fp64, in plain C ---- */

/* How far the logit of each token of an answer is from the best one, at most. */
double reference_distance(const int32_t *tokens, int prompt, int count);

/* ---- Files of checkpoints ---- */

void put_file(const char *folder, const char *name, const char *text);
void copy_file(const char *from, const char *folder, const char *name);

/* ---- Tests; each gets the server's program ---- */

void test_endpoints(const char *program);
void test_batching(const char *program);
void test_leaving(const char *program);
void test_pressure(const char *program);
void test_access(const char *program);
void test_siege(const char *program);
void test_fuzz(const char *program);
void test_load(const char *program);
void test_checkpoints(const char *program);
void test_states(const char *program);
void test_states_gpu(const char *program);
void test_words(const char *program);
void test_logprobs(const char *program);
void test_story(const char *program);
void test_ranks(const char *program);
void test_ranks_gpu(const char *program);
void test_gpu(const char *program);
void test_captures(const char *program);

#endif
