/*
 * chat_json.h -- what clients send and get, as JSON, by the names of OpenAI's API.
 */
#ifndef CHAT_JSON_H
#define CHAT_JSON_H

#include <time.h>

#include "chat_request.h"

/* An error, as a status and the members of its JSON. */
struct problem {
    int status;
    const char *type, *param, *code; /* may be NULL; a 503 has its number then */
    char message[256];
};

/* What a POST asks for. */
struct ask {
    struct request *request;
    bool chat, stream, usage, ids; /* usage: a last chunk with counts; ids: tokens beside the text */
};

struct ask_limits {
    const struct served *served;
    int context;                     /* tokens of a prompt and its answer */
    int pages;                       /* of the pool */
    int likely;                      /* tokens whose probabilities can be told at each place */
    const struct deadline *deadline; /* of making the prompt's text and tokens; may be NULL */
};

/* false, and a problem, if the body is not what it should be. Members that are not known are ignored, null
 * counts as absent. */
bool ask_parse(struct ask *a, bool chat, const char *body, size_t bytes, const struct ask_limits *limits,
               struct problem *p);

/* What is constant in the answers to a request. */
struct heading {
    int64_t number; /* of the request */
    time_t created;
    bool chat;
    const struct served *served;
};

/* A piece of an answer that is streamed. */
struct piece {
    const char *text; /* bytes of valid UTF-8, or NULL: none */
    size_t bytes;
    const int32_t *ids; /* or NULL */
    int id_count;
    const struct likely *answered,
        *alternative; /* of id_count tokens, `likely` for each; NULL: none are told */
    int likely;
    bool first; /* a chat's first one has the role */
    enum finish finish;
};

/* Each is a text for free(), or NULL when there is no memory. */
char *json_error(const struct problem *p);
char *json_models(const struct served *s, time_t created);
char *json_model(const struct served *s, time_t created); /* the one there is */
char *json_answer(const struct heading *h, const struct request *r, bool ids);
char *json_piece(const struct heading *h, const struct piece *p);
char *json_usage(const struct heading *h, const struct request *r); /* of a stream: no choices */

#endif
