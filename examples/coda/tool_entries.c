/* tool_entries.c -- coda cache list, stat and verify: what is there, and is it intact. */
#include "tool_cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- list ---- */

/* What people know an entry by. */
static const char *title(char out[FIELD], const struct item *i)
{
    if (*i->fault) return snprintf(out, FIELD, "rejected: %s", i->fault), out;
    if (*field(out, i->key, "symbol")) return out;
    return snprintf(out, FIELD, "%.*s", (int)strcspn(i->key, "\n"), i->key), out;
}

static void print_item(const struct item *i)
{
    char bytes[32], age[32], arch[FIELD], what[FIELD];
    print_bytes(bytes, i->bytes);
    print_age(age, i->age_s);
    fprintf(output, "%-16.16s %-7s %-8s %8s %6s  %s\n", i->name, *i->kind ? i->kind : "-",
            *field(arch, i->key, "arch") ? arch : "-", bytes, age, title(what, i));
}

static void print_key_json(const char *key)
{
    const char *between = "";
    fputs("[", output);
    while (*key) {
        size_t n = strcspn(key, "\n");
        char *line = strndup(key, n);
        fputs(between, output);
        json_string(output, line ? line : "");
        free(line);
        between = ", ";
        key += n + (key[n] == '\n');
    }
    fputs("]", output);
}

static void print_item_json(const struct item *i)
{
    fprintf(output,
            "{\"name\": \"%s\", \"kind\": \"%s\", \"bytes\": %" PRId64 ", \"age_s\": %" PRId64
            ", \"fault\": ",
            i->name, i->kind, i->bytes, i->age_s);
    json_string(output, i->fault);
    fputs(", \"key\": ", output);
    print_key_json(i->key);
    fputs("}", output);
}

static void print_items_json(const struct items *all, bool faulty_only)
{
    const char *between = "\n";
    fputs("[", output);
    for (int i = 0; i < all->count; i++) {
        if (faulty_only && !*all->item[i].fault) continue;
        fputs(between, output);
        print_item_json(&all->item[i]);
        between = ",\n";
    }
    fputs("]", output);
}

static void print_total(const struct items *all)
{
    char bytes[32];
    print_bytes(bytes, all->bytes);
    fprintf(output, "%d entries, %s\n", all->count, bytes);
}

static void print_table(const struct items *all)
{
    fprintf(output, "%-16s %-7s %-8s %8s %6s\n", "name", "kind", "arch", "size", "unused");
    for (int i = 0; i < all->count; i++) print_item(&all->item[i]);
    print_total(all);
}

int cache_list(const struct request *r)
{
    struct items all = {.verb = "reading"};
    int bad = items_gather(&all, r, r->places ? r->place[0] : NULL);
    if (!bad && r->json) print_items_json(&all, false), fputs("\n", output);
    else if (!bad) print_table(&all);
    items_free(&all);
    return bad;
}

/* ---- stat ---- */

static char *text_of(int64_t (*print)(const void *what, char *buf, size_t size), const void *what)
{
    int64_t n = print(what, NULL, 0);
    char *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (text) print(what, text, (size_t)n + 1);
    else complain("%s", n < 0 ? coda_error() : "out of memory");
    return text;
}

static int64_t print_stats(const void *c, char *buf, size_t size)
{
    return coda_cache_stats_print((coda_cache *)c, buf, size);
}

static int64_t print_bundle(const void *path, char *buf, size_t size)
{
    return coda_bundle_print(path, buf, size);
}

/* How many entries, and bytes, of a kind. */
static void count_kind(const struct items *all, const char *kind, int *count, int64_t *bytes)
{
    *count = 0, *bytes = 0;
    for (int i = 0; i < all->count; i++)
        if (!strcmp(all->item[i].kind, kind) && !*all->item[i].fault) ++*count, *bytes += all->item[i].bytes;
}

static const char *const kinds[] = {"kernel", "tuning"};

static void print_counts(const struct items *all)
{
    char bytes[32];
    int count;
    int64_t sum;
    print_bytes(bytes, all->bytes);
    fprintf(output, "entries    %d, %s\n", all->count, bytes);
    for (int k = 0; k < 2; k++) {
        count_kind(all, kinds[k], &count, &sum);
        print_bytes(bytes, sum);
        fprintf(output, "%-10s %d, %s\n", kinds[k], count, bytes);
    }
    if (all->faulty) fprintf(output, "rejected   %d\n", all->faulty);
    if (!all->count) return;
    print_age(bytes, all->item[all->count - 1].age_s);
    fprintf(output, "oldest     unused for %s\n", bytes);
}

static void print_counts_json(const struct items *all)
{
    int count;
    int64_t sum;
    fprintf(output, "\"entries\": %d, \"bytes\": %" PRId64 ", \"rejected\": %d", all->count, all->bytes,
            all->faulty);
    for (int k = 0; k < 2; k++) {
        count_kind(all, kinds[k], &count, &sum);
        fprintf(output, ", \"%s\": {\"entries\": %d, \"bytes\": %" PRId64 "}", kinds[k], count, sum);
    }
}

static void print_stat(const struct request *r, const struct items *all, const char *text)
{
    bool bundle = r->places;
    if (r->json) {
        fprintf(output, "{");
        print_counts_json(all);
        fprintf(output, ", \"%s\": ", bundle ? "manifest" : "cache");
        if (bundle) json_string(output, text);
        else fputs(text, output);
        fputs("}\n", output);
        return;
    }
    if (!bundle) fprintf(output, "directory  %s\n", coda_cache_dir(r->c));
    if (!bundle && *coda_cache_problem(r->c)) fprintf(output, "problem    %s\n", coda_cache_problem(r->c));
    print_counts(all);
    if (bundle) fprintf(output, "\n%s", text);
}

int cache_stat(const struct request *r)
{
    struct items all = {.verb = "reading"};
    bool bundle = r->places;
    int bad = items_gather(&all, r, bundle ? r->place[0] : NULL);
    char *text = NULL;
    if (!bad) bad = !(text = bundle ? text_of(print_bundle, r->place[0]) : text_of(print_stats, r->c));
    if (!bad) print_stat(r, &all, text);
    free(text);
    items_free(&all);
    return bad;
}

/* ---- verify ---- */

static void print_faults(const struct items *all)
{
    for (int i = 0; i < all->count; i++)
        if (*all->item[i].fault) print_item(&all->item[i]);
    print_total(all);
    fprintf(output, "%d rejected\n", all->faulty);
}

static int remove_faulty(const struct request *r, int64_t *removed)
{
    coda_cache_prune_options p = CODA_CACHE_PRUNE_OPTIONS_INIT;
    coda_cache_pruned done = CODA_CACHE_PRUNED_INIT;
    p.faulty = 1;
    if (coda_cache_prune(r->c, &p, &done)) return complain("%s", coda_error());
    *removed = done.removed;
    return 0;
}

/* 1 if entries are rejected and stay. */
int cache_verify(const struct request *r)
{
    struct items all = {.verb = "verifying"};
    int64_t removed = 0;
    int bad = items_gather(&all, r, r->places ? r->place[0] : NULL);
    if (!bad && r->remove && all.faulty) bad = remove_faulty(r, &removed);
    if (!bad && r->json) {
        fprintf(output, "{");
        print_counts_json(&all);
        fprintf(output, ", \"removed\": %" PRId64 ", \"faults\": ", removed);
        print_items_json(&all, true);
        fputs("}\n", output);
    } else if (!bad) {
        print_faults(&all);
        if (r->remove) fprintf(output, "%" PRId64 " removed\n", removed);
    }
    if (!bad && all.faulty && !r->remove)
        bad = complain("%d of %d entries are damaged", all.faulty, all.count);
    items_free(&all);
    return bad;
}
