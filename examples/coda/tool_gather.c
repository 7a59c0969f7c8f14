/* tool_gather.c -- entries of a cache or a bundle as a table, and how their figures are written. */
#include "tool_cache.h"

#include <stdlib.h>
#include <string.h>

/* ---- Figures ---- */

const char *field(char out[FIELD], const char *key, const char *name)
{
    size_t n = strlen(name);
    out[0] = 0;
    for (const char *line = key; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (!strncmp(line, name, n) && line[n] == ' ') {
            snprintf(out, FIELD, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
            break;
        }
    return out;
}

void print_bytes(char out[32], int64_t bytes)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    double x = (double)bytes;
    int u = 0;
    while (x >= 999.5 && u < 4) x /= 1000, u++;
    snprintf(out, 32, u && x < 9.95 ? "%.1f %s" : "%.0f %s", x, unit[u]);
}

/* Last use is known to the hour. */
void print_age(char out[32], int64_t age_s)
{
    int64_t hours = age_s / 3600;
    if (hours < 1) snprintf(out, 32, "< 1 h");
    else if (hours < 48) snprintf(out, 32, "%lld h", (long long)hours);
    else snprintf(out, 32, "%lld d", (long long)(hours / 24));
}

/* Marks that reorder a line are of two or three bytes: by their number. */
static void json_mark(FILE *f, const char *s, int n)
{
    unsigned c = n == 2 ? s[0] & 31 : s[0] & 15;
    for (int i = 1; i < n; i++) c = c << 6 | (s[i] & 63);
    fprintf(f, "\\u%04x", c);
}

/* Any bytes give valid JSON: what is no UTF-8 goes in as Latin-1, byte by byte. */
void json_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (const char *stop = s + strlen(s); s < stop;) {
        int n = utf8_length(s, (size_t)(stop - s));
        if (*s == '"' || *s == '\\') fprintf(f, "\\%c", *s);
        else if (*s == '\n') fputs("\\n", f);
        else if (n > 1 && !plain_shown(s)) json_mark(f, s, n);
        else if (n > 0) fwrite(s, 1, (size_t)n, f);
        else fprintf(f, "\\u%04x", (unsigned char)*s);
        s += n > 0 ? n : 1;
    }
    fputc('"', f);
}

/* ---- Gather ---- */

static bool grow(struct items *all)
{
    if (all->count < all->room) return true;
    int room = all->room ? 2 * all->room : 64;
    struct item *more = realloc(all->item, (size_t)room * sizeof *more);
    if (!more) return false;
    all->item = more;
    all->room = room;
    return true;
}

static void free_item(struct item *i)
{
    free(i->name), free(i->kind), free(i->key), free(i->note), free(i->fault);
}

static int keep(void *context, const coda_cache_entry *e)
{
    struct items *all = context;
    struct item i = {.bytes = e->bytes, .age_s = e->age_s};
    i.name = strdup(e->name);
    i.kind = strdup(e->kind);
    i.key = strdup(e->key);
    i.note = strdup(all->notes ? e->note : "");
    i.fault = strdup(e->fault);
    if (!i.name || !i.kind || !i.key || !i.note || !i.fault || !grow(all)) {
        free_item(&i);
        all->failed = true;
        return 0;
    }
    all->item[all->count++] = i;
    all->bytes += i.bytes;
    all->faulty += *i.fault != 0;
    progress_count(&working, all->count, 0, "entries");
    return 1;
}

static int by_use(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->age_s != y->age_s) return x->age_s < y->age_s ? -1 : 1;
    return strcmp(x->name, y->name);
}

int items_gather(struct items *all, const struct request *r, const char *bundle)
{
    progress_begin(&working, "%s %s", all->verb ? all->verb : "reading", bundle ? bundle : "the cache");
    coda_status status = bundle ? coda_bundle_list(bundle, keep, all) : coda_cache_list(r->c, keep, all);
    progress_end(&working);
    if (status) return complain("%s", coda_error());
    if (all->failed) return complain("out of memory for %d entries", all->count);
    if (all->count) qsort(all->item, (size_t)all->count, sizeof *all->item, by_use);
    return 0;
}

void items_free(struct items *all)
{
    for (int i = 0; i < all->count; i++) free_item(&all->item[i]);
    free(all->item);
    *all = (struct items){0};
}
