/* test_sized.c -- structs that begin with their size: zeros are INIT, and every size is safe.
 *
 * Each call sees its struct in a heap block of exactly that size, so that a sanitizer sees what is read or
 * written beyond. */
#include "sized.h"
#include "graph.h"
#include "util_folder.h"

#include "tests.h" /* last: Check has a macro named fail */
#include <stdlib.h>
#include <string.h>

enum { BEYOND = 64, ENTRIES = 3 };

static coda_cache *cache;
static coda_plan *plan;
static graph *g, *symbolic;
static coda_profile *profile; /* once it is wanted */

static graph *small_graph(void)
{
    graph *s = coda_graph_new();
    coda_value x = coda_input(s, "x", CODA_F32, 2, (int64_t[]){4, 8});
    coda_output(s, "y", coda_relu(s, x));
    return s;
}

static void set_up(void)
{
    coda_cache_options at = CODA_CACHE_OPTIONS_INIT;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    folder_make();
    setenv("CODA_CACHE_DIR", folder_under("own"), 1);
    at.dir = folder_under("cache");
    ck_assert_int_eq(coda_cache_open(&cache, &at), CODA_OK);
    for (int i = 0; i < ENTRIES; i++) {
        struct cache_key k = cache_key(CACHE_TUNING, (const char *[]){"a\n", "b\n", "c\n"}[i], "");
        cache_put(cache, &k, "data", 4);
    }
    g = small_graph();
    symbolic = coda_graph_new();
    coda_symbol(symbolic, "T", 1, 8, 1);
    opt.device = CODA_DEVICE_NONE;
    opt.flags = CODA_PLAN_ONLY;
    ck_assert_msg(coda_compile(&plan, g, &opt) == CODA_OK, "%s", coda_error());
}

static void tear_down(void)
{
    coda_plan_free(plan);
    coda_graph_free(g);
    coda_profile_free(profile);
    profile = NULL;
    coda_graph_free(symbolic);
    coda_cache_free(cache);
    folder_remove();
}

/* ---- Structs that are read: each call says what came of it, as text ---- */

static void end_graph(graph *b, struct text *t)
{
    coda_status s = coda_graph_status(b);
    if (s) text_printf(t, "%d %s", (int)s, coda_error());
    else graph_print(b, t);
    coda_graph_free(b);
}

static void read_rope(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_rope(b, coda_input(b, "x", CODA_BF16, 2, (int64_t[]){4, 8}), CODA_NONE, opt);
    end_graph(b, t);
}

static void read_attention(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_value x = coda_input(b, "x", CODA_BF16, 2, (int64_t[]){4, 8});
    coda_attention(b, x, x, x, CODA_NONE, opt);
    end_graph(b, t);
}

static void read_cross_entropy(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_value x = coda_input(b, "x", CODA_BF16, 2, (int64_t[]){4, 8});
    coda_cross_entropy(b, x, coda_input(b, "i", CODA_I32, 1, (int64_t[]){4}), opt);
    end_graph(b, t);
}

static void read_linear(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_value x = coda_input(b, "x", CODA_BF16, 2, (int64_t[]){4, 8});
    coda_value w = coda_weight(b, "w", CODA_BF16, 2, (int64_t[]){6, 8});
    coda_linear_cross_entropy(b, x, w, coda_input(b, "i", CODA_I32, 1, (int64_t[]){4}), opt);
    end_graph(b, t);
}

static void read_sample(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_value x = coda_input(b, "x", CODA_F32, 2, (int64_t[]){4, 8});
    coda_value seeds = coda_input(b, "s", CODA_I32, 2, (int64_t[]){4, 2});
    coda_sample(b, x, seeds, coda_input(b, "p", CODA_I32, 1, (int64_t[]){4}), opt, NULL);
    end_graph(b, t);
}

static void read_scan(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_value x = coda_input(b, "x", CODA_F32, 2, (int64_t[]){4, 8});
    coda_value a = coda_input(b, "a", CODA_F32, 1, (int64_t[]){8});
    coda_scan(b, x, x, a, x, x, CODA_NONE, CODA_NONE, opt, NULL);
    end_graph(b, t);
}

static void read_delta(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_value x = coda_input(b, "x", CODA_F32, 2, (int64_t[]){4, 8});
    coda_value d = coda_input(b, "d", CODA_F32, 2, (int64_t[]){4, 1});
    coda_delta(b, x, x, x, d, d, CODA_NONE, CODA_NONE, opt, NULL);
    end_graph(b, t);
}

static void read_append(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_value k = coda_state(b, "k", CODA_F32, 2, (int64_t[]){8, 4});
    coda_value x = coda_input(b, "x", CODA_F32, 2, (int64_t[]){3, 4});
    coda_append(b, k, x, coda_input(b, "i", CODA_I32, 1, (int64_t[]){3}), opt);
    end_graph(b, t);
}

static void read_grad(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_value x = coda_input(b, "x", CODA_BF16, 2, (int64_t[]){3, 4}), dw;
    coda_value w = coda_weight(b, "w", CODA_BF16, 2, (int64_t[]){5, 4}), y = coda_matmul(b, x, w);
    coda_grad(b, &y, &y, 1, &w, 1, &dw, opt);
    end_graph(b, t);
}

static void read_split(const void *opt, struct text *t)
{
    graph *b = coda_graph_new(), *half[2];
    coda_value x = coda_input(b, "x", CODA_F32, 2, (int64_t[]){3, 4});
    coda_value w = coda_weight(b, "w", CODA_F32, 2, (int64_t[]){5, 4}), y = coda_matmul(b, x, w);
    coda_output(b, "y", y);
    coda_output(b, "z", coda_silu(b, coda_silu(b, y)));
    if (coda_split(b, 1, opt, &half[0], &half[1]) != CODA_OK) text_printf(t, "-1 %s", coda_error());
    else end_graph(half[0], t), end_graph(half[1], t);
    graph_free(b);
}

static coda_value of_optimizer(graph *b, const char *name, bool state)
{
    return (state ? coda_state : coda_input)(b, name, CODA_F32, 2, (int64_t[]){4, 8});
}
static void read_adamw(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_adamw(b, of_optimizer(b, "x", false), of_optimizer(b, "p", true), of_optimizer(b, "m", true),
               of_optimizer(b, "v", true), CODA_NONE, opt);
    end_graph(b, t);
}
static void read_sgd(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_sgd(b, of_optimizer(b, "x", false), of_optimizer(b, "p", true), CODA_NONE, CODA_NONE, opt);
    end_graph(b, t);
}
static void read_muon(const void *opt, struct text *t)
{
    graph *b = coda_graph_new();
    coda_muon(b, of_optimizer(b, "x", false), of_optimizer(b, "p", true), of_optimizer(b, "m", true),
              CODA_NONE, opt);
    end_graph(b, t);
}

static void read_map_def(const void *def, struct text *t)
{
    graph *b = coda_graph_new();
    coda_value x = coda_input(b, "x", CODA_F32, 1, (int64_t[]){4});
    coda_define_map(b, def);
    coda_apply(b, "mine", &x, 1, NULL);
    end_graph(b, t);
}

/* Without a GPU the text is why there is no plan, which is the same for equal options. */
static void read_compile(const void *opt, struct text *t)
{
    coda_plan *p;
    coda_status s = coda_compile(&p, g, opt);
    if (s) text_printf(t, "%d %s", (int)s, coda_error());
    for (int what = 0; !s && what <= CODA_TEXT_REASONS; what++) {
        char buf[8192];
        coda_plan_print(p, (coda_text)what, buf, sizeof buf);
        text_append(t, buf);
    }
    coda_plan_free(p);
}

static void read_cache(const void *opt, struct text *t)
{
    coda_cache *c;
    coda_status s = coda_cache_open(&c, opt);
    text_printf(t, "%d %s %s %s", (int)s, s ? coda_error() : "", s ? "" : coda_cache_dir(c),
                s ? "" : coda_cache_problem(c));
    coda_cache_free(c);
}

static void read_store(const void *store, struct text *t)
{
    coda_cache_options opt = CODA_CACHE_OPTIONS_INIT;
    opt.store = store;
    read_cache(&opt, t);
}

static void read_prune(const void *opt, struct text *t)
{
    coda_cache_pruned p = CODA_CACHE_PRUNED_INIT;
    coda_status s = coda_cache_prune(cache, opt, &p);
    text_printf(t, "%d %s: %lld of %lld stay", (int)s, s ? coda_error() : "", (long long)p.kept,
                (long long)(p.kept + p.removed));
}

static void read_export(const void *opt, struct text *t)
{
    coda_bundle_report r = CODA_BUNDLE_REPORT_INIT;
    coda_status s = coda_cache_export(cache, folder_under("bundle"), opt, &r);
    text_printf(t, "%d %s: %lld entries", (int)s, s ? coda_error() : "", (long long)r.entries);
}

static void read_run(const void *opt, struct text *t)
{
    coda_status s = coda_run_shaped(plan, NULL, NULL, NULL, NULL, opt);
    text_printf(t, "%d %s", (int)s, s ? coda_error() : "");
}

static void read_profile(const void *opt, struct text *t)
{
    coda_profile *f;
    coda_status s = coda_plan_profile(&f, plan, NULL, NULL, NULL, NULL, opt);
    text_printf(t, "%d %s", (int)s, s ? coda_error() : "");
    coda_profile_free(f);
}

static void read_group(const void *opt, struct text *t)
{
    coda_group *group = NULL;
    coda_status s = coda_group_local(&group, 1, opt);
    text_printf(t, "%d %s", (int)s, s ? coda_error() : "");
    coda_group_free(group);
}

static void read_warm(const void *opt, struct text *t)
{
    coda_status s = coda_warm(plan, opt);
    text_printf(t, "%d %s", (int)s, s ? coda_error() : "");
}

static int64_t no_value(void *context, const char *name, void *buf, size_t size)
{
    (void)context, (void)name, (void)buf, (void)size;
    return -1;
}

static void read_pack_format(const void *opt, struct text *t)
{
    text_printf(t, "%lld", (long long)coda_packed_bytes(opt, 17, 300));
    if (coda_packed_bytes(opt, 17, 300) < 0) text_printf(t, " %s", coda_error());
}

/* A matrix of 1 x 1 in Q8_0's format. */
static void read_pack_source(const void *opt, struct text *t)
{
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    static char packed[1088];
    coda_pack_format_find("q8_0", &f);
    coda_status s = coda_pack(&f, opt, 0, 1, packed);
    text_printf(t, "%d %s", (int)s, s ? coda_error() : "");
}

/* Two weights, rounded to Q8_0's format. */
static uint8_t quantized_codes[2], quantized_scale[2];
static void read_quantized(const void *opt, struct text *t)
{
    coda_pack_format f = CODA_PACK_FORMAT_INIT;
    coda_pack_format_find("q8_0", &f);
    coda_status s = coda_quantize_weight(&f, CODA_F32, (float[]){1, -0.5f}, 1, 2, opt);
    text_printf(t, "%d %s", (int)s, s ? coda_error() : "");
}

/* What cannot be left out. */
static void need_map(void *def)
{
    ((coda_map_def *)def)->name = "mine";
    ((coda_map_def *)def)->source = "DEV static float apply(float x) { return x; }";
}
static void need_pack_format(void *format) { coda_pack_format_find("q4_k", format); }
static void need_pack_source(void *opt)
{
    static const char zeros[2];
    coda_pack_source *s = opt;
    s->kind = CODA_PACK_CODES;
    s->rows = s->columns = s->codes_bytes = 1;
    s->codes = s->scales = zeros;
    s->scales_bytes = 2;
}
static void need_quantized(void *opt)
{
    coda_quantized *q = opt;
    q->kind = CODA_PACK_CODES;
    q->codes = quantized_codes;
    q->scales = quantized_scale;
}
static void need_get(void *store) { ((coda_cache_store *)store)->get = no_value; }

/* INIT as it is in memory: a static object, so that padding is 0. */
static const coda_map_def map_def = CODA_MAP_DEF_INIT;
static const coda_rope_options rope = CODA_ROPE_OPTIONS_INIT;
static const coda_attention_options attention = CODA_ATTENTION_OPTIONS_INIT;
static const coda_sample_options sample = CODA_SAMPLE_OPTIONS_INIT;
static const coda_delta_options delta = CODA_DELTA_OPTIONS_INIT;
static const coda_append_options append = CODA_APPEND_OPTIONS_INIT;
static const coda_scan_options scan = CODA_SCAN_OPTIONS_INIT;
static const coda_cross_entropy_options cross_entropy = CODA_CROSS_ENTROPY_OPTIONS_INIT;
static const coda_linear_cross_entropy_options linear = CODA_LINEAR_CROSS_ENTROPY_OPTIONS_INIT;
static const coda_grad_options grad = CODA_GRAD_OPTIONS_INIT;
static const coda_adamw_options adamw = CODA_ADAMW_OPTIONS_INIT;
static const coda_sgd_options sgd = CODA_SGD_OPTIONS_INIT;
static const coda_muon_options muon = CODA_MUON_OPTIONS_INIT;
static const coda_split_options split = CODA_SPLIT_OPTIONS_INIT;
static const coda_compile_options compile = CODA_COMPILE_OPTIONS_INIT;
static const coda_run_options run = CODA_RUN_OPTIONS_INIT;
static const coda_profile_options profile_options = CODA_PROFILE_OPTIONS_INIT;
static const coda_group_options group = CODA_GROUP_OPTIONS_INIT;
static const coda_warm_options warm = CODA_WARM_OPTIONS_INIT;
static const coda_cache_store store = CODA_CACHE_STORE_INIT;
static const coda_cache_options cache_options = CODA_CACHE_OPTIONS_INIT;
static const coda_pack_format pack_format = CODA_PACK_FORMAT_INIT;
static const coda_pack_source pack_source = CODA_PACK_SOURCE_INIT;
static const coda_quantized quantized = CODA_QUANTIZED_INIT;
static const coda_cache_prune_options prune = CODA_CACHE_PRUNE_OPTIONS_INIT;
static const coda_export_options export = CODA_EXPORT_OPTIONS_INIT;

static const struct reader {
    enum sized_type type;
    const void *init;
    void (*read)(const void *opt, struct text *t);
    void (*need)(void *opt); /* then NULL is no choice */
} readers[] = {
    {SIZED_coda_map_def, &map_def, read_map_def, need_map},
    {SIZED_coda_rope_options, &rope, read_rope, NULL},
    {SIZED_coda_attention_options, &attention, read_attention, NULL},
    {SIZED_coda_sample_options, &sample, read_sample, NULL},
    {SIZED_coda_delta_options, &delta, read_delta, NULL},
    {SIZED_coda_append_options, &append, read_append, NULL},
    {SIZED_coda_scan_options, &scan, read_scan, NULL},
    {SIZED_coda_cross_entropy_options, &cross_entropy, read_cross_entropy, NULL},
    {SIZED_coda_linear_cross_entropy_options, &linear, read_linear, NULL},
    {SIZED_coda_grad_options, &grad, read_grad, NULL},
    {SIZED_coda_adamw_options, &adamw, read_adamw, NULL},
    {SIZED_coda_sgd_options, &sgd, read_sgd, NULL},
    {SIZED_coda_muon_options, &muon, read_muon, NULL},
    {SIZED_coda_split_options, &split, read_split, NULL},
    {SIZED_coda_compile_options, &compile, read_compile, NULL},
    {SIZED_coda_run_options, &run, read_run, NULL},
    {SIZED_coda_profile_options, &profile_options, read_profile, NULL},
    {SIZED_coda_group_options, &group, read_group, NULL},
    {SIZED_coda_warm_options, &warm, read_warm, NULL},
    {SIZED_coda_cache_store, &store, read_store, need_get},
    {SIZED_coda_cache_options, &cache_options, read_cache, NULL},
    {SIZED_coda_cache_prune_options, &prune, read_prune, NULL},
    {SIZED_coda_pack_format, &pack_format, read_pack_format, need_pack_format},
    {SIZED_coda_pack_source, &pack_source, read_pack_source, need_pack_source},
    {SIZED_coda_quantized, &quantized, read_quantized, need_quantized},
    {SIZED_coda_export_options, &export, read_export, NULL},
};

/* A block of `room` bytes, at least one size_t, that begins like INIT and says it has `size`. */
static void *block_of(const struct reader *r, size_t size, size_t room)
{
    size_t whole = sized[r->type].whole, bytes = MAX(room, sizeof size);
    char like[512] = {0}, *block = calloc(1, bytes);
    memcpy(like, r->init, whole);
    if (r->need) r->need(like);
    memcpy(block, like, MIN(bytes, whole));
    memcpy(block, &size, sizeof size);
    return block;
}

static char *outcome(const struct reader *r, void *block)
{
    struct text t = {0};
    r->read(block, &t);
    free(block);
    ck_assert_msg(*text_str(&t) != '-' || !strchr(text_str(&t), '\n'), "%s", text_str(&t));
    char *s = strdup(text_str(&t));
    text_free(&t);
    return s;
}

START_TEST(zeros_are_init)
{
    const struct reader *r = &readers[_i];
    const struct sized *s = &sized[r->type];
    char *init = outcome(r, block_of(r, s->whole, s->whole));
    for (size_t i = sizeof(size_t); i < s->whole; i++) ck_assert_int_eq(((const char *)r->init)[i], 0);
    for (int null = 0; null <= !r->need; null++) {
        char *zeros = outcome(r, null ? NULL : block_of(r, 0, s->base));
        ck_assert_str_eq(zeros, init);
        free(zeros);
    }
    if (r->type == SIZED_coda_cache_prune_options) ck_assert_str_eq(init, "0 : 3 of 3 stay");
    free(init);
}
END_TEST

START_TEST(reads_every_size)
{
    const struct reader *r = &readers[_i];
    const struct sized *s = &sized[r->type];
    char *init = outcome(r, block_of(r, s->whole, s->whole));
    for (size_t size = 1; size <= s->whole + BEYOND; size++) {
        bool valid = size >= s->base && size % sizeof size == 0;
        char *clean = outcome(r, block_of(r, size, size)), *block = block_of(r, size, size);
        if (valid) ck_assert_str_eq(clean, init);
        else ck_assert_msg(strstr(clean, s->type) && strstr(clean, "the size of a"), "%s", clean);
        free(clean);
        if (size > s->whole) block[size - 1] = 1;
        char *junk = outcome(r, block);
        if (size > s->whole) ck_assert_msg(strstr(junk, s->type) && strstr(junk, "-1"), "%s", junk);
        free(junk);
    }
    free(init);
}
END_TEST

/* ---- Structs that are filled ---- */

static coda_status fill_graph_arg(void *out) { return coda_graph_arg(g, 1, out); }
static coda_status fill_plan_arg(void *out) { return coda_plan_arg(plan, 1, out); }
static coda_status fill_symbol(void *out) { return coda_graph_symbol(symbolic, 0, out); }
static coda_status fill_kernel(void *out) { return coda_plan_kernel(plan, 0, out); }
static coda_status fill_pack_format(void *out) { return coda_pack_format_find("int8_g32_f16", out); }
static coda_status fill_word(void *out) { return coda_word(0, out); }
static coda_profile *profiled(void)
{
    static _Alignas(16) float x[4 * 8], y[4 * 8];
    coda_profile_options o = CODA_PROFILE_OPTIONS_INIT;
    coda_compile_options opt = CODA_COMPILE_OPTIONS_INIT;
    coda_plan *p;
    if (profile) return profile;
    opt.device = CODA_DEVICE_CPU;
    o.rounds = 1, o.copy_rate = o.product_rate = 1e9;
    ck_assert_msg(!coda_compile(&p, g, &opt), "%s", coda_error());
    ck_assert_msg(!coda_plan_profile(&profile, p, (void *[]){x, y}, NULL, NULL, NULL, &o), "%s",
                  coda_error());
    coda_plan_free(p);
    return profile;
}
static coda_status fill_total(void *out) { return coda_profile_total_get(profiled(), out); }
static coda_status fill_launch(void *out) { return coda_profile_launch_get(profiled(), 0, out); }
static coda_status fill_stats(void *out) { return coda_plan_stats_get(plan, out); }
static coda_status fill_shape_stats(void *out) { return coda_shape_stats_get(plan, out); }
static coda_status fill_cache_stats(void *out) { return coda_cache_stats_get(cache, out); }
static coda_status fill_pruned(void *out) { return coda_cache_prune(cache, NULL, out); }
static coda_status fill_exported(void *out)
{
    return coda_cache_export(cache, folder_under("bundle"), NULL, out);
}
static coda_status fill_imported(void *out)
{
    ck_assert_int_eq(coda_cache_export(cache, folder_under("bundle"), NULL, NULL), CODA_OK);
    return coda_cache_import(cache, folder_under("bundle"), out);
}

static const struct writer {
    enum sized_type type;
    coda_status (*fill)(void *out);
} writers[] = {
    {SIZED_coda_arg_info, fill_graph_arg},     {SIZED_coda_arg_info, fill_plan_arg},
    {SIZED_coda_symbol_info, fill_symbol},     {SIZED_coda_kernel_info, fill_kernel},
    {SIZED_coda_plan_stats, fill_stats},       {SIZED_coda_cache_stats, fill_cache_stats},
    {SIZED_coda_cache_pruned, fill_pruned},    {SIZED_coda_bundle_report, fill_exported},
    {SIZED_coda_bundle_report, fill_imported}, {SIZED_coda_shape_stats, fill_shape_stats},
    {SIZED_coda_profile_total, fill_total},    {SIZED_coda_profile_launch, fill_launch},
    {SIZED_coda_word_info, fill_word},         {SIZED_coda_pack_format, fill_pack_format},
};

/* A later struct holds the same first fields; a block that was refused is as it was. */
START_TEST(fills_every_size)
{
    const struct writer *w = &writers[_i];
    const struct sized *s = &sized[w->type];
    char *whole = malloc(s->whole);
    memset(whole, 0xa5, s->whole);
    memcpy(whole, &s->whole, sizeof s->whole);
    ck_assert_msg(w->fill(whole) == CODA_OK, "%s", coda_error());
    for (size_t size = 0; size <= s->whole + BEYOND; size++) {
        size_t room = size ? MAX(size, sizeof size) : s->base, head = sizeof size;
        bool valid = size % sizeof size == 0 && (!size || size >= s->base);
        unsigned char *block = malloc(room), *before = malloc(room);
        memset(block, 0xa5, room);
        memcpy(block, &size, sizeof size);
        memcpy(before, block, room);
        ck_assert_int_eq(w->fill(block), valid ? CODA_OK : CODA_E_INVALID);
        if (valid) ck_assert_int_eq(memcmp(block + head, whole + head, MIN(room, s->whole) - head), 0);
        else ck_assert(strstr(coda_error(), s->type) && !memcmp(block, before, room));
        ck_assert_int_eq(memcmp(block, &size, sizeof size), 0);
        for (size_t i = s->whole; valid && i < room; i++) ck_assert_uint_eq(block[i], 0);
        free(before);
        free(block);
    }
    free(whole);
}
END_TEST

static int sees_size(void *seen, const coda_cache_entry *e)
{
    ck_assert_uint_eq(e->size, sizeof *e);
    return ++*(int *)seen;
}

START_TEST(callbacks_see_the_size)
{
    int seen = 0;
    ck_assert_int_eq(coda_cache_list(cache, sees_size, &seen), CODA_OK);
    ck_assert_int_eq(coda_cache_export(cache, folder_under("bundle"), NULL, NULL), CODA_OK);
    ck_assert_int_eq(coda_bundle_list(folder_under("bundle"), sees_size, &seen), CODA_OK);
    ck_assert_int_eq(seen, 2 * ENTRIES);
}
END_TEST

START_TEST(every_struct_is_tried)
{
    bool tried[SIZED_TYPES] = {[SIZED_coda_cache_entry] = true};
    for (int i = 0; i < ARRAY_SIZE(readers); i++) tried[readers[i].type] = true;
    for (int i = 0; i < ARRAY_SIZE(writers); i++) tried[writers[i].type] = true;
    for (int i = 0; i < SIZED_TYPES; i++) ck_assert_msg(tried[i], "%s", sized[i].type);
}
END_TEST

/* ---- Versions to come: a library of the second version, whose struct has grown by one field ---- */

struct grown {
    size_t size;
    int64_t first, second;
};
static const struct sized second_version = {"grown", offsetof(struct grown, second), sizeof(struct grown)};

START_TEST(an_older_caller_is_served)
{
    struct grown own = {9, 9, 9};
    int64_t *old = malloc(second_version.base);
    memcpy(old, (int64_t[]){(int64_t)second_version.base, 5}, second_version.base);
    for (int zero = 0; zero < 2; zero++) {
        ck_assert_int_eq(sized_read("call", &second_version, &own, old), CODA_OK);
        ck_assert(own.first == 5 && own.second == 0);
        own = (struct grown){sizeof own, 6, 7};
        ck_assert_int_eq(sized_check("call", &second_version, old), CODA_OK);
        sized_write(&second_version, old, &own);
        ck_assert(old[1] == 6);
        old[0] = 0, old[1] = 5;
    }
    free(old);
}
END_TEST

TESTS(sized, AROUND(set_up, tear_down), EACH(zeros_are_init, ARRAY_SIZE(readers)),
      EACH(reads_every_size, ARRAY_SIZE(readers)), EACH(fills_every_size, ARRAY_SIZE(writers)),
      ONE(callbacks_see_the_size), ONE(every_struct_is_tried), ONE(an_older_caller_is_served));
