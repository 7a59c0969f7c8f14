/*
 * access.c -- the checks of chat_access.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chat_access.h"
#include "plain.h"

/* ---- Lists by commas ---- */

static bool is_listed(const char *list, const char *word, size_t bytes)
{
    while (list && *list) {
        list += strspn(list, ", ");
        size_t n = strcspn(list, ", ");
        if (n == 1 && *list == '*') return true;
        if (n && n == bytes && plain_alike(list, word, n)) return true;
        list += n;
    }
    return false;
}

/* Bytes of a Host without its port; 0: what is behind the name is no port. */
static size_t name_bytes(const char *host)
{
    const char *end = *host == '[' ? strchr(host, ']') : NULL;
    size_t n = end ? (size_t)(end + 1 - host) : strcspn(host, ":");
    const char *port = host + n;
    bool good = !*port || (*port == ':' && !port[1 + strspn(port + 1, "0123456789")]);
    return good ? n : 0;
}

/* ---- Headers, each of which may be there more than once ---- */

struct visit {
    const struct access *access;
    const char *host;           /* that the request calls the server by */
    const char *name, *refused; /* the first value that is not allowed */
    bool (*allows)(const struct visit *v, const char *value);
};

static bool is_host(const struct access *a, const char *host)
{
    static const char usual[] = "localhost,127.0.0.1,[::1]";
    size_t name = name_bytes(host);
    return is_listed(usual, host, name) || is_listed(a->hosts, host, name) ||
           is_listed(a->hosts, host, strlen(host));
}

static bool allows_host(const struct visit *v, const char *host) { return is_host(v->access, host); }

static bool is_origin(const struct access *a, const char *origin)
{
    return is_listed(a->origins, origin, strlen(origin));
}

/* Is it the server's own page: of the name and port by which the request calls the server? A name without a
 * port may be a proxy's. */
static bool is_own(const struct visit *v, const char *origin)
{
    static const char scheme[] = "http://";
    const char *at = origin + sizeof scheme - 1;
    if (!v->host || !plain_alike(origin, scheme, sizeof scheme - 1) || !plain_alike(at, v->host, SIZE_MAX))
        return false;
    return is_host(v->access, v->host) && name_bytes(v->host) + 1 < strlen(v->host);
}

static bool allows_origin(const struct visit *v, const char *origin)
{
    return is_origin(v->access, origin) || is_own(v, origin);
}

static enum MHD_Result visit_value(void *context, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    struct visit *v = context;
    (void)kind;
    if (!plain_alike(name, v->name, SIZE_MAX) || v->allows(v, value ? value : "")) return MHD_YES;
    v->refused = value ? value : "";
    return MHD_NO;
}

/* Whose value is not allowed; NULL: all are. */
static const char *refused_value(const struct access *a, struct MHD_Connection *c, const char *name,
                                 bool (*allows)(const struct visit *v, const char *value))
{
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    struct visit v = {.access = a, .host = host, .name = name, .allows = allows};
    MHD_get_connection_values(c, MHD_HEADER_KIND, visit_value, &v);
    return v.refused;
}

/* ---- The key ---- */

/* Takes as long for any text of this length. */
static bool same_key(const char *key, const char *given)
{
    size_t n = strlen(key), m = strlen(given);
    volatile unsigned different = n != m;
    for (size_t i = 0; i < m; i++) different |= (unsigned char)given[i] ^ (unsigned char)key[i % n];
    return !different;
}

static bool has_key(const struct access *a, struct MHD_Connection *c)
{
    static const char scheme[] = "Bearer ";
    const char *given = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (!*a->key) return true;
    return given && plain_alike(given, scheme, sizeof scheme - 1) &&
           same_key(a->key, given + sizeof scheme - 1);
}

/* The first line, of what there is room for; a NUL in it ends no key, but is no character of one. */
static void read_key(struct access *a, FILE *in)
{
    size_t n = 0;
    for (int c; n < sizeof a->key - 1 && (c = getc(in)) != EOF && c != '\n';) a->key[n++] = c ? (char)c : ' ';
    a->key[n] = 0;
}

/* One line of characters that a header may have. */
static bool settle_key(struct access *a, const char *from, struct fault *f)
{
    size_t n = strcspn(a->key, "\r\n");
    bool good = n > 0 && strlen(a->key) < sizeof a->key - 1;
    a->key[n] = 0;
    for (const char *k = a->key; *k; k++) good &= *k > ' ' && *k < 127;
    return good || fault_set(f, "%s has no key: one line of 1 to %d characters of ASCII without blanks", from,
                             ACCESS_KEY_BYTES - 2);
}

bool access_key(struct access *a, const char *file, const char *variable, struct fault *f)
{
    const char *value = getenv(variable);
    *a->key = 0;
    if (!file && !value) return true;
    FILE *in = file ? fopen(file, "re") : NULL;
    if (file && !in) return fault_set(f, "%s: %s", file, strerror(errno));
    if (!in) snprintf(a->key, sizeof a->key, "%s", value);
    else read_key(a, in);
    if (in) fclose(in);
    if (value) unsetenv(variable); /* programs that this one starts need not know it */
    return settle_key(a, file ? file : variable, f);
}

/* ---- What http.c asks ---- */

static bool refuse(struct problem *p, int status, const char *code, const char *format, const char *value)
{
    *p = (struct problem){.status = status, .type = "invalid_request_error", .code = code};
    snprintf(p->message, sizeof p->message, format, value);
    return false;
}

bool access_allows(const struct access *a, struct MHD_Connection *c, bool open, struct problem *p)
{
    const char *origin = refused_value(a, c, MHD_HTTP_HEADER_ORIGIN, allows_origin);
    const char *host = refused_value(a, c, MHD_HTTP_HEADER_HOST, allows_host);
    if (origin)
        return refuse(p, 403, "origin_not_allowed",
                      "pages of %.120s may not ask: --allow-origin names those that may", origin);
    if (open) return true;
    if (host)
        return refuse(p, 403, "host_not_allowed", "this server is not called %.120s: --allow-host adds names",
                      host);
    return has_key(a, c) ||
           refuse(p, 401, "invalid_api_key", "a key is needed: Authorization: Bearer KEY%s", "");
}

void access_headers(const struct access *a, struct MHD_Connection *c, struct MHD_Response *response)
{
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    if (!origin || !is_origin(a, origin)) return;
    MHD_add_response_header(response, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ORIGIN);
}

bool access_preflight(struct MHD_Connection *c, const char *method)
{
    return !strcmp(method, MHD_HTTP_METHOD_OPTIONS) &&
           MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN) &&
           MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Access-Control-Request-Method");
}
