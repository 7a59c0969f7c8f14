/*
 * page.c -- a plan's arguments, memory and kernels as a table.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "page.h"
#include "plain.h"
#include "tensor.h"

enum { NAME = 96 };

/* Arguments whose names are equal but for numbers, as those of a model's layers are. */
struct group {
    char name[NAME];
    coda_arg_info info;          /* of the first */
    const struct weight *packed; /* or NULL */
    int count;
    double bytes;
};

static const char *const kind_text[] = {"input", "weight", "output",   "scalar",
                                        "sum",   "state",  "consumed", "group"};

/* "model.layers.12.mlp.up" is "model.layers.*.mlp.up": a number that is a word of its own. */
static void general_name(const char *name, char out[NAME])
{
    int n = 0;
    for (const char *at = name; *at && n < NAME - 1;) {
        size_t digits = at == name || at[-1] == '.' ? strspn(at, "0123456789") : 0;
        bool number = digits && (!at[digits] || at[digits] == '.');
        out[n++] = number ? '*' : *at;
        at += number ? digits : 1;
    }
    out[n] = 0;
}

static void print_format(const struct weight *w, char *to, size_t size)
{
    *to = 0;
    if (w) coda_pack_format_print(&w->matrix[0].format, to, size);
}

static bool alike(const struct group *x, const struct group *y)
{
    const coda_arg_info *a = &x->info, *b = &y->info;
    char one[64], other[64];
    print_format(x->packed, one, sizeof one);
    print_format(y->packed, other, sizeof other);
    return !strcmp(x->name, y->name) && a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->rank) && !strcmp(one, other);
}

static const struct weight *packed_of(const struct weights *weights, const coda_arg_info *info)
{
    const struct weight *w =
        weights && info->kind == CODA_ARG_WEIGHT ? weights_find(weights, info->name) : NULL;
    return w && w->kind == WEIGHT_PACKED ? w : NULL;
}

static int gather(const coda_plan *p, const struct weights *weights, struct group *all)
{
    int n = 0;
    for (int i = 0, at; i < coda_plan_args(p); i++) {
        struct group one = {.info = CODA_ARG_INFO_INIT, .count = 1};
        if (coda_plan_arg(p, i, &one.info) != CODA_OK) continue;
        one.bytes = (double)one.info.bytes;
        general_name(one.info.name, one.name);
        one.packed = packed_of(weights, &one.info);
        for (at = 0; at < n && !alike(&all[at], &one);) at++;
        if (at == n) all[n++] = one;
        else all[at].count++, all[at].bytes += one.bytes;
    }
    return n;
}

static void print_packed(FILE *to, const struct group *g, const char *name)
{
    char format[64];
    double weights = (double)g->packed->height * (double)g->packed->columns;
    print_format(g->packed, format, sizeof format);
    plain_print(to, "    %-7s %-48s %4d x %s [%lld %lld], %.3g bits  %.0f bytes\n", kind_text[g->info.kind],
                name, g->count, format, (long long)g->packed->height, (long long)g->packed->columns,
                8 * (double)g->info.bytes / weights, g->bytes);
}

static void print_group(FILE *to, const struct group *g)
{
    char dims[CODA_MAX_RANK * 24] = "";
    for (int d = 0, n = 0; d < g->info.rank; d++)
        n += snprintf(dims + n, sizeof dims - (size_t)n, "%s%lld", d ? " " : "", (long long)g->info.dims[d]);
    const char *name = g->count == 1 ? g->info.name : g->name;
    if (g->packed) return print_packed(to, g, name);
    plain_print(to, "    %-7s %-48s %4d x %s [%s]  %.0f bytes\n", kind_text[g->info.kind], name, g->count,
                dtype_text(g->info.dtype), dims, g->bytes);
}

static void print_arguments(FILE *to, const coda_plan *p, const struct weights *weights)
{
    int n = coda_plan_args(p);
    struct group *all = calloc((size_t)n + 1, sizeof *all);
    double bytes[sizeof kind_text / sizeof *kind_text] = {0};
    n = all ? gather(p, weights, all) : 0;
    for (int i = 0; i < n; i++) bytes[all[i].info.kind] += all[i].bytes;
    for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++)
        if (bytes[k] > 0) plain_print(to, "  %-10s %.0f bytes\n", kind_text[k], bytes[k]);
    plain_print(to, "  %d arguments\n", coda_plan_args(p));
    for (int i = 0; i < n; i++) print_group(to, &all[i]);
    free(all);
}

static void print_kernels(FILE *to, const coda_plan *p)
{
    double ms = 0;
    int n = coda_plan_kernels(p), made = 0;
    for (int i = 0; i < n; i++) {
        coda_kernel_info k = CODA_KERNEL_INFO_INIT;
        if (coda_plan_kernel(p, i, &k) != CODA_OK) continue;
        ms += k.compile_ms;
        made += !k.cached;
    }
    plain_print(to, "  %d kernels, %d of them compiled now, in %.1f ms together\n", n, made, ms);
    for (int i = 0; i < n; i++) {
        coda_kernel_info k = CODA_KERNEL_INFO_INIT;
        if (coda_plan_kernel(p, i, &k) != CODA_OK) continue;
        plain_print(to, "    %-52s %3d registers, %d bytes spilled, %6d shared, ", k.name, k.registers,
                    k.spill_bytes, k.shared_bytes);
        if (k.cached) fputs("cached\n", to);
        else plain_print(to, "%.1f ms\n", k.compile_ms);
    }
}

void page_print(FILE *to, const char *title, const coda_plan *p, const struct weights *weights)
{
    coda_plan_stats s = CODA_PLAN_STATS_INIT;
    plain_print(to, "%s", title);
    for (int i = 0; i < coda_plan_symbols(p); i++) {
        coda_symbol_info info = CODA_SYMBOL_INFO_INIT;
        if (coda_plan_symbol(p, i, &info) == CODA_OK)
            plain_print(to, ", %s = %lld, the largest", info.name, (long long)info.most);
    }
    fputs("\n", to);
    if (coda_plan_stats_get(p, &s) == CODA_OK)
        plain_print(to, "  %d launches, %d unfused; %.3g GB read and written, %.3g GFLOP\n", s.launches,
                    s.launches_unfused, (double)s.bytes / 1e9, s.flops / 1e9);
    plain_print(to, "  workspace  %zu bytes\n  prepared   %zu bytes\n", coda_plan_workspace(p),
                coda_plan_prepared(p));
    print_arguments(to, p, weights);
    print_kernels(to, p);
}
