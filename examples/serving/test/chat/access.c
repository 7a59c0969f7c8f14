/*
 * access.c -- who may ask: by Host, by Origin, by a key; and what is said to those who may not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chat_test.h"

#define TEXT "/v1/completions"
#define BODY "{\"prompt\": \"a\", \"max_tokens\": 1}"
#define LOCAL "Host: localhost\r\n"
#define PREFLIGHT "Access-Control-Request-Method: POST\r\n"
#define KEY "sk-0123456789abcdef"

struct question {
    const char *method, *path, *headers;
    int status;
    const char *has, *has_not; /* in the head or the body; NULL: whatever */
};

static struct reply asked(int port, const struct question *q)
{
    char text[2048];
    const char *body = !strcmp(q->method, "POST") ? BODY : "";
    int n =
        snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n%s",
                 q->method, q->path, q->headers, strlen(body), body);
    int fd = http_connect(port);
    http_write(fd, text, (size_t)n);
    return http_receive(fd);
}

static bool says(const struct reply *r, const char *word)
{
    return r->status && (strstr(r->head, word) || strstr(r->body, word));
}

static void ask_all(int port, const struct question *q, size_t count, const char *when)
{
    for (size_t i = 0; i < count; i++, q++) {
        struct reply r = asked(port, q);
        json_t *v = r.status && strstr(r.head, "application/json")
                        ? json_loadb(r.body, r.bytes, JSON_ALLOW_NUL, NULL)
                        : NULL;
        CHECK(r.status == q->status, "%s: %s %s by %s: status %d, not %d: %s", when, q->method, q->path,
              q->headers, r.status, q->status, r.body ? r.body : "");
        CHECK(!q->has || says(&r, q->has), "%s: %s %s by %s: no %s in: %s%s", when, q->method, q->path,
              q->headers, q->has, r.head ? r.head : "", r.body ? r.body : "");
        CHECK(!q->has_not || !says(&r, q->has_not), "%s: %s %s by %s: %s is there", when, q->method, q->path,
              q->headers, q->has_not);
        bool text = !strcmp(q->path, "/metrics") || !strcmp(q->path, "/");
        CHECK(v || r.status == 204 || text, "%s: %s %s by %s: no JSON: %s", when, q->method, q->path,
              q->headers, r.body ? r.body : "");
        json_decref(v);
        reply_free(&r);
    }
}

#define ASK_ALL(port, table, when) ask_all(port, table, sizeof(table) / sizeof *(table), when)

/* Who says no Host, by the version of HTTP. */
static void test_versions(int port)
{
    static const struct {
        const char *version;
        int status;
    } all[] = {{"1.0", 200}, {"1.1", 400}, {"1.2", 400}, {"1.9", 400}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[128];
        int n = snprintf(text, sizeof text, "GET /v1/models HTTP/%s\r\nConnection: close\r\n\r\n",
                         all[i].version);
        int fd = http_connect(port);
        http_write(fd, text, (size_t)n);
        struct reply r = http_receive(fd);
        CHECK(r.status == all[i].status, "HTTP/%s without a Host: status %d, not %d", all[i].version,
              r.status, all[i].status);
        reply_free(&r);
    }
}

static void test_usual(const char *program)
{
    static const struct question all[] = {
        {"POST", TEXT, LOCAL, 200, NULL, "Access-Control"},
        {"POST", TEXT, "Host: localhost:99\r\n", 200, NULL, NULL},
        {"POST", TEXT, "", 400, "must have a Host", NULL},
        {"POST", TEXT, "Host: LocalHost\r\n", 200, NULL, NULL},
        {"POST", TEXT, "Host: 127.0.0.1:8080\r\n", 200, NULL, NULL},
        {"POST", TEXT, "Host: [::1]:8080\r\n", 200, NULL, NULL},
        {"POST", TEXT, "Host: evil.example\r\n", 403, "host_not_allowed", NULL},
        {"POST", TEXT, "Host: evil.example:8080\r\n", 403, "is not called evil.example:8080", NULL},
        {"POST", TEXT, "Host: localhost.evil.example\r\n", 403, "host_not_allowed", NULL},
        {"POST", TEXT, "Host: local\r\n", 403, "host_not_allowed", NULL},
        {"POST", TEXT, "Host: 127.0.0.1.evil.example\r\n", 403, "host_not_allowed", NULL},
        {"POST", TEXT, "Host: [::1\r\n", 403, "host_not_allowed", NULL},
        {"POST", TEXT, "Host: [::1].evil.example\r\n", 403, "host_not_allowed", NULL},
        {"POST", TEXT, "Host: localhost:evil.example\r\n", 403, "host_not_allowed", NULL},
        {"POST", TEXT, "Host: localhost:80:80\r\n", 403, "host_not_allowed", NULL},
        {"GET", "/v1/models", "Host: localhost:\r\n", 200, NULL, NULL},
        {"POST", TEXT, LOCAL "Host: evil.example\r\n", 403, "host_not_allowed", NULL},
        {"POST", TEXT, "Host: evil.example\r\n" LOCAL, 403, "host_not_allowed", NULL},
        {"POST", TEXT, "Host: \xff\xfe\xc3\r\n", 403, "host_not_allowed", NULL},
        {"GET", "/v1/models", "Host: evil.example\r\n", 403, "host_not_allowed", NULL},
        {"GET", "/metrics", "Host: evil.example\r\n", 403, "host_not_allowed", NULL},
        {"GET", "/nowhere", "Host: evil.example\r\n", 403, "host_not_allowed", NULL},
        {"GET", "/health", "Host: evil.example\r\n", 200, NULL, NULL},
        {"POST", TEXT, LOCAL "Origin: http://evil.example\r\n", 403, "origin_not_allowed", "Access-Control"},
        {"POST", TEXT, LOCAL "Origin: http://evil.example\r\nContent-Type: text/plain\r\n", 403,
         "origin_not_allowed", NULL},
        {"POST", TEXT, "Host: 127.0.0.1:8080\r\nOrigin: http://127.0.0.1:8080\r\n", 200, NULL,
         "Access-Control"},
        {"POST", TEXT, "Host: LocalHost:8080\r\nOrigin: http://localhost:8080\r\n", 200, NULL, NULL},
        {"POST", TEXT, "Host: 127.0.0.1:8080\r\nOrigin: http://127.0.0.1:8081\r\n", 403, "origin_not_allowed",
         NULL},
        {"POST", TEXT, "Host: 127.0.0.1:8080\r\nOrigin: http://127.0.0.1:80801\r\n", 403,
         "origin_not_allowed", NULL},
        {"POST", TEXT, "Host: 127.0.0.1:8080\r\nOrigin: http://127.0.0.1\r\n", 403, "origin_not_allowed",
         NULL},
        {"POST", TEXT, "Host: 127.0.0.1:8080\r\nOrigin: http://localhost:8080\r\n", 403, "origin_not_allowed",
         NULL},
        {"POST", TEXT, "Host: 127.0.0.1:8080\r\nOrigin: https://127.0.0.1:8080\r\n", 403,
         "origin_not_allowed", NULL},
        {"POST", TEXT, "Host: localhost:\r\nOrigin: http://localhost:\r\n", 403, "origin_not_allowed", NULL},
        {"POST", TEXT, "Host: evil.example:80\r\nOrigin: http://evil.example:80\r\n", 403,
         "origin_not_allowed", NULL},
        {"GET", "/", "Host: evil.example\r\n", 200, "<!DOCTYPE html>", NULL},
        {"GET", "/", LOCAL "Origin: http://evil.example\r\n", 403, "origin_not_allowed", NULL},
        {"POST", TEXT, LOCAL "Origin: null\r\n", 403, "origin_not_allowed", NULL},
        {"POST", TEXT, LOCAL "Origin: http://localhost\r\n", 403, "origin_not_allowed", NULL},
        {"POST", TEXT, LOCAL "Origin: \x80\xf5\r\n", 403, "origin_not_allowed", NULL},
        {"GET", "/health", LOCAL "Origin: http://evil.example\r\n", 403, "origin_not_allowed", NULL},
        {"OPTIONS", TEXT, LOCAL "Origin: http://evil.example\r\n" PREFLIGHT, 403, "origin_not_allowed",
         "Access-Control"},
        {"OPTIONS", TEXT, LOCAL, 405, "Allow: POST", "Access-Control"},
    };
    struct running s = server_start(program, (const char *const[]){NULL});
    ASK_ALL(s.port, all, "as it is");
    test_versions(s.port);
    CHECK(metric(s.port, "coda_prompt_tokens_total") == 7 * 2,
          "prompts of those who may not ask were answered");
    CHECK(server_stop(&s) == 0, "the server did not end well");
}

static void test_allowed(const char *program)
{
    static const struct question all[] = {
        {"POST", TEXT, "Host: a.example:8080\r\n", 200, NULL, NULL},
        {"POST", TEXT, "Host: B.example:81\r\n", 200, NULL, NULL},
        {"POST", TEXT, "Host: b.example:82\r\n", 403, NULL, NULL},
        {"POST", TEXT, "Host: a.exampl\r\n", 403, NULL, NULL},
        {"POST", TEXT, "Host: a.example,b.example\r\n", 403, NULL, NULL},
        {"POST", TEXT, LOCAL "Origin: http://localhost:3000\r\n", 200,
         "Access-Control-Allow-Origin: http://localhost:3000", NULL},
        {"POST", TEXT, LOCAL "Origin: https://ui.example\r\n", 200, "Vary: Origin", NULL},
        {"POST", TEXT, LOCAL "Origin: https://ui.example:1\r\n", 403, NULL, "Access-Control"},
        {"POST", TEXT, LOCAL "Origin: http://ui.example\r\n", 403, NULL, "Access-Control"},
        {"GET", "/nowhere", LOCAL "Origin: https://ui.example\r\n", 404,
         "Access-Control-Allow-Origin: https://ui.example", NULL},
        {"OPTIONS", TEXT, LOCAL "Origin: https://ui.example\r\n" PREFLIGHT, 204,
         "Access-Control-Allow-Headers: Authorization, Content-Type", NULL},
        {"OPTIONS", TEXT, LOCAL "Origin: https://evil.example\r\n" PREFLIGHT, 403, NULL, "Access-Control"},
        {"POST", TEXT, LOCAL, 200, NULL, "Access-Control"},
    };
    static const struct question any[] = {
        {"POST", TEXT, "Host: evil.example\r\n", 200, NULL, NULL},
        {"POST", TEXT, LOCAL "Origin: null\r\n", 200, "Access-Control-Allow-Origin: null", NULL},
    };
    struct running s = server_start(
        program, (const char *const[]){"--allow-host", "a.example,b.example:81", "--allow-origin",
                                       "http://localhost:3000, https://ui.example", NULL});
    ASK_ALL(s.port, all, "with names that are allowed");
    CHECK(server_stop(&s) == 0, "the server did not end well");
    s = server_start(program, (const char *const[]){"--allow-host", "*", "--allow-origin", "*", NULL});
    ASK_ALL(s.port, any, "with all allowed");
    CHECK(server_stop(&s) == 0, "the server did not end well");
}

/* ---- Keys ---- */

static const struct question keyed[] = {
    {"POST", TEXT, LOCAL, 401, "\"code\":\"invalid_api_key\"", NULL},
    {"POST", TEXT, LOCAL, 401, "WWW-Authenticate: Bearer", NULL},
    {"POST", TEXT, LOCAL "Authorization: Bearer " KEY "\r\n", 200, NULL, NULL},
    {"POST", TEXT, LOCAL "Authorization: bearer " KEY "\r\n", 200, NULL, NULL},
    {"POST", TEXT, LOCAL "Authorization: Bearer " KEY "0\r\n", 401, NULL, NULL},
    {"POST", TEXT, LOCAL "Authorization: Bearer " KEY KEY "\r\n", 401, NULL, NULL},
    {"POST", TEXT, LOCAL "Authorization: Bearer sk-0123456789abcde\r\n", 401, NULL, NULL},
    {"POST", TEXT, LOCAL "Authorization: Bearer SK-0123456789abcdef\r\n", 401, NULL, NULL},
    {"POST", TEXT, LOCAL "Authorization: Bearer \r\n", 401, NULL, NULL},
    {"POST", TEXT, LOCAL "Authorization: Basic " KEY "\r\n", 401, NULL, NULL},
    {"GET", "/v1/models", LOCAL, 401, NULL, NULL},
    {"GET", "/metrics", LOCAL, 401, NULL, NULL},
    {"GET", "/metrics", LOCAL "Authorization: Bearer " KEY "\r\n", 200, NULL, NULL},
    {"GET", "/nowhere", LOCAL, 401, NULL, NULL},
    {"GET", "/health", LOCAL, 200, NULL, NULL},
    {"GET", "/", LOCAL, 200, "<!DOCTYPE html>", NULL},
    {"OPTIONS", TEXT, LOCAL "Origin: http://a\r\n" PREFLIGHT, 204, NULL, NULL},
    {"POST", TEXT, LOCAL "Origin: http://a\r\n", 401, "Access-Control-Allow-Origin", NULL},
};

static void expect_status(const char *program, const char *options, int status)
{
    char command[4096];
    snprintf(command, sizeof command, "timeout 60 %s --port 0 %s >/dev/null 2>&1 </dev/null", program,
             options);
    int got = system(command);
    CHECK(WIFEXITED(got) && WEXITSTATUS(got) == status, "%s: exit status %d, not %d", options,
          WEXITSTATUS(got), status);
}

static void test_keys(const char *program)
{
    char file[] = "/tmp/chat_key_XXXXXX", option[64];
    int fd = mkstemp(file);
    CHECK(fd >= 0 && write(fd, KEY "\nmore\n", sizeof KEY + 5) > 0, "no file for a key");
    struct running s = server_start(
        program, (const char *const[]){"--api-key-file", file, "--allow-origin", "http://a", NULL});
    ASK_ALL(s.port, keyed, "with a key of a file");
    CHECK(server_stop(&s) == 0, "the server did not end well");
    setenv("CODA_API_KEY", KEY, 1);
    s = server_start(program, (const char *const[]){"--allow-origin", "http://a", NULL});
    unsetenv("CODA_API_KEY");
    ASK_ALL(s.port, keyed, "with a key of the environment");
    CHECK(server_stop(&s) == 0, "the server did not end well");
    snprintf(option, sizeof option, "--api-key-file %s", file);
    CHECK(!ftruncate(fd, 0), "a key's file");
    expect_status(program, option, 2);
    CHECK(pwrite(fd, "two words\n", 10, 0) == 10, "a key's file");
    expect_status(program, option, 2);
    CHECK(!ftruncate(fd, 0) && pwrite(fd, "s\0k\0\n", 5, 0) == 5, "a key's file");
    expect_status(program, option, 2);
    expect_status(program, "--api-key-file /nonexistent", 2);
    expect_status(program, "--name 'a\"b'", 2);
    expect_status(program, "--name \"$(printf '\\377')\"", 2);
    expect_status(program, "--metrics-prefix '1{'", 2);
    expect_status(program, "--connections 100", 2);
    close(fd);
    unlink(file);
}

void test_access(const char *program)
{
    test_usual(program);
    test_allowed(program);
    test_keys(program);
}
