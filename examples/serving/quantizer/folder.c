/*
 * folder.c -- a checkpoint with quantised products: model.safetensors with a tensor for codes, scales and
 * zero points, config.json with compressed-tensors' quantization_config, the tokenizer's files.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plain.h"
#include "quantize_parts.h"
#include "tensor.h"
#include "train_aside.h"
#include "train_source.h"

enum { ROWS = 128, MOST_THREADS = 16 };

/* ---- What is quantised ---- */

/* The products of a decoder's layers; tables, heads and norms stay. */
static bool is_product(const struct stored_tensor *t)
{
    return t->rank == 2 && t->dtype && strstr(t->name, "layers.") && name_ends(t->name, "_proj.weight") &&
           !strstr(t->name, "vision");
}

static bool divides(const struct shrink *s, const struct stored_tensor *t, struct fault *f)
{
    int64_t columns = t->dims[1], group = shrink_group(s, columns);
    return s->format != SHRINK_INT4 || columns % group == 0 ||
           fault_set(f, "tensor %.150s: groups of %lld do not divide its %lld columns", t->name,
                     (long long)group, (long long)columns);
}

/* There is something, and all of it can be. */
static bool all_fit(const struct shrink *s, const struct checkpoint *c, struct fault *f)
{
    int products = 0;
    for (int i = 0; i < c->count; i++) {
        if (!is_product(&c->tensor[i])) continue;
        if (!divides(s, &c->tensor[i], f)) return false;
        products++;
    }
    return products || fault_set(f, "there is no product that could be quantised");
}

/* ---- A matrix as it is written ---- */

/* One file's tensor: its bytes are made while the matrix is. */
struct piece {
    const char *suffix, *type; /* behind the name without ".weight" */
    int rank;
    int64_t dims[2];
    size_t element;
    unsigned char *data;
};

enum { CODES, SCALES, ZEROS, SHAPE, MOST_PIECES };

static size_t piece_bytes(const struct piece *p)
{
    return (size_t)(p->dims[0] * (p->rank == 2 ? p->dims[1] : 1)) * p->element;
}

/* How many, and which. */
static int pieces_of(const struct shrink *s, const struct stored_tensor *t, struct piece *p)
{
    int64_t rows = t->dims[0], columns = t->dims[1], group = shrink_group(s, columns);
    int64_t groups = (columns + group - 1) / group, blocks = (rows + SHRINK_BLOCK - 1) / SHRINK_BLOCK;
    if (s->format != SHRINK_INT4) {
        bool block = s->format == SHRINK_FP8_BLOCK;
        p[CODES] = (struct piece){".weight", "F8_E4M3", 2, {rows, columns}, 1, NULL};
        p[SCALES] = (struct piece){".weight_scale", "F32", 2, {block ? blocks : rows, groups}, 4, NULL};
        return 2;
    }
    p[CODES] = (struct piece){".weight_packed", "I32", 2, {rows, (columns + 7) / 8}, 4, NULL};
    p[SCALES] = (struct piece){".weight_scale", "BF16", 2, {rows, groups}, 2, NULL};
    p[ZEROS] = (struct piece){".weight_shape", "I64", 1, {2, 0}, 8, NULL};
    if (!s->asymmetric) return 3;
    p[SHAPE] = p[ZEROS];
    p[ZEROS] = (struct piece){".weight_zero_point", "I32", 2, {(rows + 7) / 8, groups}, 4, NULL};
    return 4;
}

/* The matrix that threads take rows of. */
struct work {
    const struct shrink *s;
    const struct stored_tensor *t;
    struct piece *piece;
    int pieces;
    int64_t next;
    double lost, size;
    bool failed;
    struct fault *f;
    pthread_mutex_t lock;
};

/* Where the codes of rows from `first` on begin. Ranges are multiples of 128 rows: of whole blocks, and of
 * words of zero points, which lie along rows, eight a word. */
static coda_quantized range_at(const struct work *w, int64_t first)
{
    coda_quantized q = CODA_QUANTIZED_INIT;
    const struct piece *p = w->piece;
    bool words = w->s->format == SHRINK_INT4, block = w->s->format == SHRINK_FP8_BLOCK;
    int64_t row = block ? first / SHRINK_BLOCK : first;
    q.kind = words ? CODA_PACK_COMPRESSED_TENSORS : CODA_PACK_CODES;
    q.search = words;
    if (block) q.block_rows = SHRINK_BLOCK;
    q.codes = p[CODES].data + (size_t)(first * p[CODES].dims[1]) * p[CODES].element;
    q.scales = p[SCALES].data + (size_t)(row * p[SCALES].dims[1]) * p[SCALES].element;
    if (w->s->asymmetric) q.zeros = p[ZEROS].data + (size_t)(first / 8 * p[ZEROS].dims[1]) * p[ZEROS].element;
    return q;
}

static int64_t take(struct work *w)
{
    pthread_mutex_lock(&w->lock);
    int64_t first = w->failed ? w->t->dims[0] : w->next;
    w->next = first + ROWS;
    pthread_mutex_unlock(&w->lock);
    return first;
}

static void work_on(struct work *w, float *x)
{
    int64_t columns = w->t->dims[1];
    double lost, size;
    for (int64_t first; (first = take(w)) < w->t->dims[0];) {
        int64_t rows = w->t->dims[0] - first < ROWS ? w->t->dims[0] - first : ROWS;
        coda_quantized q = range_at(w, first);
        for (int64_t i = 0; i < rows * columns; i++) x[i] = stored_number(w->t, first * columns + i);
        bool good = shrink_rows(w->s, x, rows, columns, &q, &lost, &size);
        pthread_mutex_lock(&w->lock);
        w->lost += lost;
        w->size += size;
        if (!good && !w->failed) w->failed = !fault_set(w->f, "tensor %.150s: %s", w->t->name, coda_error());
        pthread_mutex_unlock(&w->lock);
    }
}

static void *thread(void *context)
{
    struct work *w = context;
    float *x = malloc((size_t)(ROWS * w->t->dims[1]) * sizeof *x);
    if (x) work_on(w, x);
    pthread_mutex_lock(&w->lock);
    if (!x) w->failed = !fault_set(w->f, "%s: out of memory", w->t->name);
    pthread_mutex_unlock(&w->lock);
    free(x);
    return NULL;
}

static void run_threads(struct work *w)
{
    pthread_t all[MOST_THREADS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = 0;
    pthread_mutex_init(&w->lock, NULL);
    while (n < cores - 1 && n < MOST_THREADS && !pthread_create(&all[n], NULL, thread, w)) n++;
    thread(w);
    while (n) pthread_join(all[--n], NULL);
    pthread_mutex_destroy(&w->lock);
}

/* ---- What is lost, by the name of the matrices ---- */

enum { MOST_KINDS = 32 };
struct report {
    struct {
        char name[64];
        int count;
        double lost, size;
    } kind[MOST_KINDS];
    int kinds;
    double before, after; /* bytes of all */
};

static void add_report(struct report *r, const char *name, double lost, double size)
{
    char kind[64];
    int n = (int)(strlen(name) - strlen(".weight")), from = n, i = 0;
    while (from && name[from - 1] != '.') from--;
    snprintf(kind, sizeof kind, "%.*s", n - from, name + from);
    while (i < r->kinds && strcmp(r->kind[i].name, kind)) i++;
    if (i == MOST_KINDS) return;
    if (i == r->kinds) snprintf(r->kind[r->kinds++].name, sizeof kind, "%s", kind);
    r->kind[i].count++;
    r->kind[i].lost += lost;
    r->kind[i].size += size;
}

static void print_report(FILE *to, const struct report *r)
{
    if (!to) return;
    for (int i = 0; i < r->kinds; i++)
        plain_print(to, "%-16s %4d matrices, off by %.3e of their size\n", r->kind[i].name, r->kind[i].count,
                    sqrt(r->kind[i].lost / fmax(r->kind[i].size, 1e-300)));
    plain_print(to, "%.1f MB of tensors became %.1f MB\n", r->before / 1e6, r->after / 1e6);
}

/* ---- The file ---- */

static json_t *header_of(const struct shrink *s, const struct checkpoint *c, struct fault *f)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    size_t at = 0;
    bool good = header != NULL;
    for (int i = 0; good && i < c->count; i++) {
        const struct stored_tensor *t = &c->tensor[i];
        struct piece p[MOST_PIECES];
        int n = is_product(t) ? pieces_of(s, t, p) : 0;
        if (!n) good = aside_entry(header, t->name, t->type, t->rank, t->dims, t->bytes, &at);
        for (int k = 0; good && k < n; k++) {
            char name[256];
            snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - strlen(".weight")), t->name,
                     p[k].suffix);
            good = aside_entry(header, name, p[k].type, p[k].rank, p[k].dims, piece_bytes(&p[k]), &at);
        }
    }
    if (good) return header;
    json_decref(header);
    return fault_set(f, "out of memory"), NULL;
}

static bool write_product(struct aside *a, const struct shrink *s, const struct stored_tensor *t,
                          struct report *report, struct fault *f)
{
    struct piece p[MOST_PIECES];
    struct work w = {.s = s, .t = t, .piece = p, .f = f};
    bool good = true;
    w.pieces = pieces_of(s, t, p);
    for (int i = 0; i < w.pieces; i++) good = (p[i].data = calloc(1, piece_bytes(&p[i]) + 1)) && good;
    if (!good) fault_set(f, "%s: out of memory", t->name);
    if (good) run_threads(&w);
    good = good && !w.failed;
    if (good && s->format == SHRINK_INT4) memcpy(p[w.pieces - 1].data, t->dims, 16);
    for (int i = 0; i < w.pieces; i++) {
        good = good && aside_write(a, p[i].data, piece_bytes(&p[i]), f);
        report->after += (double)piece_bytes(&p[i]);
        free(p[i].data);
    }
    add_report(report, t->name, w.lost, w.size);
    return good;
}

static bool write_tensors(const struct shrink *s, const struct checkpoint *c, const char *folder,
                          struct report *report, struct fault *f)
{
    struct aside a;
    json_t *header = header_of(s, c, f);
    bool good = header && aside_open(&a, folder, "model.safetensors", f);
    if (good) {
        good = aside_header(&a, header, f);
        for (int i = 0; good && i < c->count; i++) {
            const struct stored_tensor *t = &c->tensor[i];
            report->before += (double)t->bytes;
            if (is_product(t)) good = write_product(&a, s, t, report, f);
            else good = aside_write(&a, t->data, t->bytes, f), report->after += (double)t->bytes;
        }
        good = aside_close(&a, good, f);
    }
    json_decref(header);
    return good;
}

/* ---- config.json ---- */

/* Others may round activations of fp8 by token or by 128 of them; products here take them as they are. */
static json_t *activations_of(const struct shrink *s)
{
    if (s->format == SHRINK_INT4) return json_null();
    json_t *a = json_pack("{s:i, s:s, s:b, s:b, s:s}", "num_bits", 8, "type", "float", "symmetric", 1,
                          "dynamic", 1, "strategy", s->format == SHRINK_FP8 ? "token" : "group");
    if (a && s->format == SHRINK_FP8_BLOCK) json_object_set_new(a, "group_size", json_integer(SHRINK_BLOCK));
    return a;
}

static json_t *weights_of(const struct shrink *s)
{
    bool words = s->format == SHRINK_INT4, block = s->format == SHRINK_FP8_BLOCK;
    json_t *w = json_pack("{s:i, s:s, s:b, s:b, s:s}", "num_bits", words ? 4 : 8, "type",
                          words ? "int" : "float", "symmetric", !s->asymmetric, "dynamic", 0, "strategy",
                          block               ? "block"
                          : words && s->group ? "group"
                                              : "channel");
    if (w && words && s->group) json_object_set_new(w, "group_size", json_integer(s->group));
    if (w && block)
        json_object_set_new(w, "block_structure", json_pack("[i, i]", SHRINK_BLOCK, SHRINK_BLOCK));
    return w;
}

static bool write_config(const struct shrink *s, const struct checkpoint *c, const char *folder,
                         struct fault *f)
{
    const char *format = s->format == SHRINK_INT4 ? "pack-quantized" : "float-quantized";
    json_t *group = json_pack("{s:[s], s:o, s:o}", "targets", "Linear", "weights", weights_of(s),
                              "input_activations", activations_of(s));
    json_t *quant = json_pack("{s:s, s:s, s:s, s:[s], s:{s:o}}", "quant_method", "compressed-tensors",
                              "format", format, "quantization_status", "compressed", "ignore", "lm_head",
                              "config_groups", "group_0", group);
    json_t *config = quant ? json_deep_copy(c->config) : NULL;
    bool good = config && !json_object_set_new(config, "quantization_config", quant);
    if (!good) fault_set(f, "out of memory");
    good = good && aside_json(folder, "config.json", config, f);
    if (good && c->generation) good = aside_json(folder, "generation_config.json", c->generation, f);
    json_decref(config);
    return good;
}

/* A new one: in one that is there, the model itself may lie, or an index of other files. */
static bool make_folder(const char *folder, struct fault *f)
{
    if (!mkdir(folder, 0777)) return true;
    if (errno == EEXIST) return fault_set(f, "%.200s is there already: quantize writes a new folder", folder);
    return fault_set(f, "%.200s cannot be made: %s", folder, strerror(errno));
}

bool shrink_folder(const struct shrink *s, const struct checkpoint *from, const char *model,
                   const char *folder, FILE *to, struct fault *f)
{
    struct report report = {0};
    if (!all_fit(s, from, f) || !make_folder(folder, f)) return false;
    /* A folder in which nothing has been written is removed, so that the same command can be given again. */
    if (!write_tensors(s, from, folder, &report, f)) return rmdir(folder), false;
    if (!write_config(s, from, folder, f) || !vocabulary_copy(model, folder, f)) return false;
    print_report(to, &report);
    return true;
}
