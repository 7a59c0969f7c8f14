/*
 * chat_request.h -- one request: a prompt that becomes an answer, token by token.
 *
 * The engine's lock guards all of it but what the client has asked for, which stays as it is.
 */
#ifndef CHAT_REQUEST_H
#define CHAT_REQUEST_H

#include "chat_runner.h"

enum { REQUEST_STOPS = 4, REQUEST_STOP_BYTES = 256, REQUEST_LIKELY = 20 };

enum finish {
    FINISH_NOT = 0,
    FINISH_STOP,   /* the end token, or a stop string */
    FINISH_LENGTH, /* as many tokens as were asked for */
    FINISH_ABORT,  /* the client is gone, or the server ends */
    FINISH_ERROR,  /* the engine failed */
    FINISHES
};

/* A token that was likely at some place, and the log of its probability. */
struct likely {
    int32_t id;
    float logprob;
};

struct request {
    /* ---- Asked for ---- */
    const struct served *served;
    int prompt; /* tokens */
    int most;   /* tokens of the answer */
    struct sampling sampling;
    int likely; /* tokens whose probabilities are told at each place; -1: none, nor the answer's */
    char *stop[REQUEST_STOPS];
    int stops;
    bool ignore_eos; /* the end token is one as any other */

    /* ---- The answer ---- */
    int32_t *tokens;  /* the prompt, then the answer: prompt + most */
    int count;        /* of them, so far ... */
    int told;         /* ... and those whose text is made, which the server may read */
    struct text text; /* of the answer: valid UTF-8 */
    size_t settled;   /* bytes of it that no stop string can take away any more */
    enum finish finish;
    struct speech *speech;
    struct sampled chosen;      /* the next token, once request_choose has it */
    struct likely *answered;    /* if `likely` is not -1, of the answer's tokens ... */
    struct likely *alternative; /* ... and [most, likely] */

    /* ---- The server's: who waits for news ---- */
    void (*wake)(void *context); /* called once for each time that `waits` was set */
    bool (*gone)(void *context); /* asked while the server holds it: is the client gone? */
    void *context;
    bool waits;
    bool whole; /* no news but the end */
    bool cancelled;
    bool news; /* a token that the client has not been told of */
    bool ping; /* nothing was sent for long */
    bool engine_holds, server_holds;

    /* ---- The scheduler's ---- */
    int64_t arrival; /* older ones are smaller */
    int cached;      /* tokens whose keys and values are in the pages */
    int rows;        /* of the step at hand */
    bool unchosen;   /* no token could be chosen by it */
    int32_t *pages;
    int page_count;
    int place;    /* of its states, while it runs: no other has it */
    int sequence; /* of the step at hand */

    /* ---- Monotonic seconds; 0: not yet ---- */
    double submitted, admitted, first, last, heard; /* heard: by the client */
};

/* Room for a prompt, an answer, and their pages. NULL if there is no memory. */
struct request *request_new(const struct served *s, const int32_t *prompt, int count, int most, int likely);
void request_free(struct request *r);

/* Chooses the next token by what a step says of a sequence. It changes nothing that others read. */
bool request_choose(struct request *r, struct runner *m, int sequence, struct fault *f);
/* Appends the chosen token to the answer. true: it is the last one. */
bool request_take(struct request *r);
/* Adds the text of tokens that were taken since, and sees whether the answer ends with it. */
void request_tell(struct request *r);

#endif
