/*
 * chat_access.h -- who may ask: by the names that a request calls the server, by the page that it comes from,
 * and by a key.
 *
 * A browser lets any page send requests to 127.0.0.1. One that does so itself says who it is (Origin); one
 * whose name was made to mean 127.0.0.1 (DNS rebinding) calls the server by its own name (Host).
 */
#ifndef CHAT_ACCESS_H
#define CHAT_ACCESS_H

#include <microhttpd.h>

#include "chat_json.h"

enum { ACCESS_KEY_BYTES = 512 };

struct access {
    const char *hosts;   /* allowed beside localhost, 127.0.0.1 and [::1]: a list by commas; "*": all */
    const char *origins; /* allowed: a list by commas, "*": all; NULL: none */
    char key[ACCESS_KEY_BYTES]; /* "": everybody may ask */
};

/* The key: the first line of a file, or of a variable of the environment if there is no file. What is no key
 * is a fault. */
bool access_key(struct access *a, const char *file, const char *variable, struct fault *f);

/* May this request be answered? `open` ones are, whoever asks by whatever name, unless a page does. */
bool access_allows(const struct access *a, struct MHD_Connection *c, bool open, struct problem *p);
/* Tells the page's browser that it may read the answer, if it may. */
void access_headers(const struct access *a, struct MHD_Connection *c, struct MHD_Response *response);
/* Does a browser ask whether a page may ask? */
bool access_preflight(struct MHD_Connection *c, const char *method);

#endif
