/*
 * ship.c -- entries leave the cache as a bundle, and come back.
 *
 * What goes in is chosen from the directory, or given piece by piece. Of entries that only the compiler
 * differs in, the one last used goes in. The manifest is lines `name value` that say what they are for.
 * The same entries make the same bytes: there is no date and no path in a bundle.
 */
#include "ship.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coda.h"

static bool refuse(char *err, int error, const char *why)
{
    snprintf(err, CACHE_ERROR, "%s", why);
    errno = error;
    return false;
}

static bool no_memory(char *err) { return refuse(err, ENOMEM, "out of memory for a bundle"); }

/* ---- Lines of a key ---- */

/* The value of the next line of this name from *at on; NULL if there is none. */
static const char *next_value(const char **at, const char *end, const char *name, size_t *length)
{
    size_t n = strlen(name);
    while (*at < end) {
        const char *line = *at, *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        *at = stop < end ? stop + 1 : end;
        if ((size_t)(stop - line) <= n || memcmp(line, name, n) || line[n] != ' ') continue;
        *length = (size_t)(stop - line) - n - 1;
        return line + n + 1;
    }
    return NULL;
}

/* Is the entry for one of these architectures, "sm_80,sm_90a", or for any? */
static bool is_for(const struct entry *e, const char *archs)
{
    const char *at = e->key;
    size_t n, m;
    const char *v = next_value(&at, e->key + e->key_size, "arch", &n);
    if (!v) return true;
    for (; *archs; archs += m, archs += *archs == ',') {
        m = strcspn(archs, ",");
        if (n == m && !memcmp(v, archs, n)) return true;
    }
    return false;
}

/* ---- A record, see record.c ---- */

static int by_digest(const void *a, const void *b) { return memcmp(a, b, sizeof(struct digest)); }

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* The 64 digits after a line's first word. False if it is no line of a record. */
static bool read_line(struct digest *out, const char *line)
{
    line += strcspn(line, " \n");
    if (*line++ != ' ') return false;
    *out = (struct digest){0};
    for (int i = 0; i < DIGEST_HEX - 1; i++) {
        int d = digit(line[i]);
        if (d < 0) return false;
        out->word[i / 16] = out->word[i / 16] << 4 | (uint64_t)d;
    }
    return !line[64] || strchr(" \r\n", line[64]);
}

/* Each key once, sorted. False if memory ran out. */
static bool read_record(struct cargo *c, const char *keys)
{
    size_t lines = 1, n = 0;
    for (const char *s = keys; *s; s++) lines += *s == '\n';
    c->wanted = calloc(lines, sizeof *c->wanted);
    if (!c->wanted) return false;
    for (const char *s = keys; *s; s += strcspn(s, "\n"), s += *s == '\n')
        if (read_line(&c->wanted[n], s)) n++;
    qsort(c->wanted, n, sizeof *c->wanted, by_digest);
    for (size_t i = 0; i < n; i++)
        if (!c->wanteds || by_digest(&c->wanted[c->wanteds - 1], &c->wanted[i]))
            c->wanted[c->wanteds++] = c->wanted[i];
    return true;
}

static bool is_wanted(const struct cargo *c, const struct digest *what)
{
    return !c->wanted || bsearch(what, c->wanted, c->wanteds, sizeof *what, by_digest);
}

/* ---- Gather ---- */

bool cargo_open(struct cargo *c, const char *keys, const char *arch, char *err)
{
    *c = (struct cargo){.arch = arch};
    return !keys || read_record(c, keys) || no_memory(err);
}

void cargo_free(struct cargo *c)
{
    for (int i = 0; i < c->count; i++) free(c->piece[i].bytes);
    free(c->piece);
    free(c->wanted);
    *c = (struct cargo){0};
}

static bool grow(struct cargo *c)
{
    if (c->count < c->room) return true;
    int room = c->room ? 2 * c->room : 64;
    struct piece *more = realloc(c->piece, (size_t)room * sizeof *more);
    if (!more) return false;
    c->piece = more;
    c->room = room;
    return true;
}

void cargo_take(struct cargo *c, const struct entry *e, int64_t age_s)
{
    struct piece p = {.what = name_of(e->key, e->what_size, NULL, 0), .age_s = age_s};
    if ((c->arch && !is_for(e, c->arch)) || !is_wanted(c, &p.what)) return;
    p.bytes = entry_pack(e, &p.size);
    if (p.bytes && grow(c)) c->piece[c->count++] = p;
    else {
        free(p.bytes);
        c->failed = true;
    }
}

static bool take_item(void *ctx, const struct cache_item *item)
{
    struct cargo *c = ctx;
    if (item->fault) c->damaged++;
    else cargo_take(c, &item->entry, item->age_s);
    return !c->failed;
}

bool cargo_gather(struct cargo *c, struct coda_cache *cache, char *err)
{
    if (cache_walk(cache, take_item, c)) return true;
    const char *why = cache_problem(cache);
    return refuse(err, EIO, *why ? why : "the cache has no directory");
}

/* ---- Pack ---- */

static int by_what(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    int order = by_digest(&x->what, &y->what);
    return order ? order : x->age_s < y->age_s ? -1 : x->age_s > y->age_s;
}

static bool is_double(const struct piece *a, const struct piece *b)
{
    struct entry x, y;
    return !entry_check(&x, a->bytes, a->size) && !entry_check(&y, b->bytes, b->size) && entry_same(&x, &y);
}

/* Leaves one piece of each WHAT, the last used; and one of those that share a digest, for a bundle has no
 * room for two. */
static void drop_doubles(struct cargo *c)
{
    int kept = 0;
    if (c->count) qsort(c->piece, (size_t)c->count, sizeof *c->piece, by_what);
    for (int i = 0; i < c->count; i++) {
        if (!kept || !digest_equal(&c->piece[kept - 1].what, &c->piece[i].what)) {
            c->piece[kept++] = c->piece[i];
            continue;
        }
        if (!is_double(&c->piece[kept - 1], &c->piece[i])) c->collided++;
        free(c->piece[i].bytes);
    }
    c->count = kept;
}

static bool has_line(const char *text, const char *name, const char *value, size_t length)
{
    const char *at = text, *end = text + strlen(text), *v;
    size_t n;
    while ((v = next_value(&at, end, name, &n)))
        if (n == length && !memcmp(v, value, n)) return true;
    return false;
}

/* One line for each value that the entries' keys have of this name. */
static void print_values(FILE *f, char **text, const struct cargo *c, const char *name)
{
    for (int i = 0; i < c->count; i++) {
        struct entry e;
        size_t n;
        if (entry_check(&e, c->piece[i].bytes, c->piece[i].size)) continue;
        const char *at = e.key, *v = next_value(&at, e.key + e.key_size, name, &n);
        fflush(f);
        if (v && *text && !has_line(*text, name, v, n)) fprintf(f, "%s %.*s\n", name, (int)n, v);
    }
}

static char *print_manifest(const struct cargo *c)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f) return NULL;
    fprintf(f, "library %s\n", CODA_VERSION_STRING);
    print_values(f, &text, c, "arch");
    print_values(f, &text, c, "nvrtc");
    bool good = !ferror(f);
    if (!fclose(f) && good) return text;
    free(text);
    return NULL;
}

void *cargo_pack(struct cargo *c, size_t *size, char *err)
{
    drop_doubles(c);
    struct bundle_block *block = calloc((size_t)c->count + 1, sizeof *block);
    char *manifest = c->failed ? NULL : print_manifest(c);
    void *bytes = NULL;
    for (int i = 0; block && i < c->count; i++)
        block[i] = (struct bundle_block){c->piece[i].bytes, c->piece[i].size};
    if (!block || !manifest) no_memory(err);
    else bytes = bundle_pack(block, c->count, manifest, size, err);
    free(manifest);
    free(block);
    return bytes;
}

int cargo_missing(const struct cargo *c)
{
    return c->collided + (c->wanted ? (int)c->wanteds - c->count : 0);
}

/* ---- Write ---- */

/* "const unsigned char NAME[] = {...}" */
static char *print_array(const unsigned char *bytes, size_t size, const char *name, size_t *length)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, length);
    if (!f) return NULL;
    fprintf(f, "/* %s -- a bundle of compiled kernels, for coda_cache_add_bundle. */\n", name);
    fprintf(f, "extern const unsigned char %s[];\nextern const unsigned long %s_size;\n", name, name);
    fprintf(f, "const unsigned long %s_size = %zu;\nconst unsigned char %s[] = {", name, size, name);
    for (size_t i = 0; i < size; i++) fprintf(f, "%s%d,", i % 24 ? "" : "\n", bytes[i]);
    fprintf(f, "\n};\n");
    bool good = !ferror(f);
    if (!fclose(f) && good) return text;
    free(text);
    return NULL;
}

bool cargo_write(const char *path, const void *bytes, size_t size, const char *array, char *err)
{
    if (!array) return file_save(path, bytes, size, err);
    size_t length = 0;
    char *text = print_array(bytes, size, array, &length);
    bool good = text ? file_save(path, text, length, err) : no_memory(err);
    free(text);
    return good;
}
