/*
 * chat_request.h -- one request: a prompt that becomes an answer, token by token.
 *
 * The engine's lock guards all of it but what the client has asked for, which stays as it is.
 */
#ifndef CHAT_REQUEST_H
#define CHAT_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REQUEST_STOPS = 4, REQUEST_STOP_BYTES = 256 };

enum finish {
    FINISH_NOT = 0,
    FINISH_STOP,   /* the end token, or a stop string */
    FINISH_LENGTH, /* as many tokens as were asked for */
    FINISH_ABORT,  /* the client is gone, or the server ends */
    FINISH_ERROR,  /* the engine failed */
    FINISHES
};

/* Bytes of a character of which some are there. */
struct utf8 {
    unsigned char byte[4];
    int have, need;
};

struct request {
    /* ---- Asked for ---- */
    int prompt;         /* tokens */
    int most;           /* tokens of the answer */
    double temperature; /* 0: the most likely token */
    char *stop[REQUEST_STOPS];
    int stops;
    bool ignore_eos; /* the end token is one as any other */

    /* ---- The answer ---- */
    int32_t *tokens; /* the prompt, then the answer: prompt + most */
    int count;       /* of them, so far */
    char *text;      /* of the answer: valid UTF-8 */
    size_t bytes;    /* of it */
    size_t settled;  /* of these: those that no stop string can take away any more */
    enum finish finish;
    struct utf8 partial;
    uint64_t random; /* state: one draw for each token, whatever else runs */

    /* ---- The server's: who waits for news ---- */
    void (*wake)(void *context); /* called once for each time that `waits` was set */
    bool (*gone)(void *context); /* asked while `waits`: is the client gone? */
    void *context;
    bool waits;
    bool whole; /* no news but the end */
    bool cancelled;
    bool ping; /* nothing was sent for long */
    bool engine_holds, server_holds;

    /* ---- The scheduler's ---- */
    int64_t arrival; /* older ones are smaller */
    int cached;      /* tokens whose keys and values are in the pages */
    int rows;        /* of the step at hand */
    int32_t *pages;
    int page_count;

    /* ---- Monotonic seconds; 0: not yet ---- */
    double submitted, admitted, first, last, heard; /* heard: by the client */
};

/* Room for a prompt, an answer, and their pages. NULL if there is no memory. */
struct request *request_new(const int32_t *prompt, int count, int most);
void request_free(struct request *r);

/* The next token by one row of logits. */
int request_choose(struct request *r, const float *logits);
/* Appends a token to the answer, its bytes to the text, and sees whether that was the last one. */
void request_push(struct request *r, int token);

#endif
