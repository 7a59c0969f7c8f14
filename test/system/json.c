/* json.c -- is standard input one JSON value (RFC 8259)? Exit status 0 if it is. `json PATH` also wants a
 * member: names with dots between, from the outermost object. Text is UTF-8 and nothing else. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static char text[1 << 24];
static const char *at = text;
static bool found;

static void blanks(void) { at += strspn(at, " \t\r\n"); }

static bool take(const char *word)
{
    size_t n = strlen(word);
    return !strncmp(at, word, n) && (at += n);
}

static bool escape(void)
{
    if (*at && strchr("\"\\/bfnrt", *at)) return at++, true;
    if (*at++ != 'u') return false;
    for (int i = 0; i < 4; i++, at++)
        if (!*at || !strchr("0123456789abcdefABCDEF", *at)) return false;
    return true;
}

/* A character beyond ASCII, by the table of RFC 3629. */
static bool wide(void)
{
    const unsigned char *s = (const unsigned char *)at;
    int n = *s >= 0xf0 && *s <= 0xf4 ? 3 : *s >= 0xe0 && *s < 0xf0 ? 2 : *s >= 0xc2 && *s < 0xe0 ? 1 : 0;
    unsigned char low = *s == 0xe0 ? 0xa0 : *s == 0xf0 ? 0x90 : 0x80;
    unsigned char high = *s == 0xed ? 0x9f : *s == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i <= n; i++, low = 0x80, high = 0xbf)
        if (s[i] < low || s[i] > high) return false;
    at += n + 1;
    return n;
}

static bool string(void)
{
    if (!take("\"")) return false;
    while (*at && *at != '"') {
        if ((unsigned char)*at < 0x20) return false;
        if ((unsigned char)*at >= 0x80) {
            if (!wide()) return false;
        } else if (*at++ == '\\' && !escape()) return false;
    }
    return take("\"");
}

static bool digits(void)
{
    size_t n = strspn(at, "0123456789");
    at += n;
    return n;
}

static bool number(void)
{
    take("-");
    if (!take("0") && !digits()) return false;
    if (take(".") && !digits()) return false;
    if (*at != 'e' && *at != 'E') return true;
    at++;
    if (*at == '+' || *at == '-') at++;
    return digits();
}

static bool value(const char *path, int depth);

static bool array(int depth)
{
    blanks();
    if (take("]")) return true;
    do
        if (!value(NULL, depth)) return false;
    while (take(","));
    return take("]");
}

/* What is wanted below a member, NULL if it is not on the way. */
static const char *below(const char *path, const char *name, size_t n)
{
    if (!path || !*path || strncmp(path, name, n) || (path[n] && path[n] != '.')) return NULL;
    if (!path[n]) found = true;
    return path[n] ? path + n + 1 : NULL;
}

static bool object(const char *path, int depth)
{
    blanks();
    if (take("}")) return true;
    do {
        blanks();
        const char *name = at + 1;
        if (!string()) return false;
        const char *rest = below(path, name, (size_t)(at - 1 - name));
        blanks();
        if (!take(":") || !value(rest, depth)) return false;
    } while (take(","));
    return take("}");
}

static bool value(const char *path, int depth)
{
    if (depth > 100) return false;
    blanks();
    bool good;
    if (take("{")) good = object(path, depth + 1);
    else if (take("[")) good = array(depth + 1);
    else if (*at == '"') good = string();
    else good = take("true") || take("false") || take("null") || number();
    blanks();
    return good;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "";
    size_t n = fread(text, 1, sizeof text - 1, stdin);
    if (!value(path, 0) || at != text + n) return fprintf(stderr, "json: wrong at %.40s\n", at), 1;
    if (*path && !found) return fprintf(stderr, "json: there is no %s\n", path), 1;
    return 0;
}
