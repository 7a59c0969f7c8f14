/*
 * chat_http.h -- the engine's requests over HTTP, at 127.0.0.1.
 */
#ifndef CHAT_HTTP_H
#define CHAT_HTTP_H

#include "chat_engine.h"

struct server;

/* Port 0: one that is free. NULL if it cannot listen. `prefix` is that of the metrics' names. */
struct server *server_new(struct engine *e, int port, const char *prefix);
int server_port(const struct server *s);
/* Closes all connections; the engine has no unfinished request of theirs any more. */
void server_free(struct server *s);

#endif
