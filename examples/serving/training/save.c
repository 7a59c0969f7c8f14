/*
 * save.c -- writes checkpoints.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor.h"
#include "train_aside.h"
#include "train_save.h"

enum { CHUNK = 1 << 18 };

/* ---- The run ---- */

static json_t *metadata_of(const struct history *h, const struct place *at, const json_t *settings)
{
    char number[32];
    char *text = json_dumps(settings, JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_SORT_KEYS);
    json_t *o = text ? json_pack("{s:s, s:s}", "format", "coda-train-1", "settings", text) : NULL;
    const struct {
        const char *name;
        unsigned long long value;
    } all[] = {{"step", (unsigned long long)h->steps},
               {"epoch", (unsigned long long)at->epoch},
               {"next", (unsigned long long)at->next},
               {"digest", at->digest}};
    for (size_t i = 0; o && i < sizeof all / sizeof *all; i++) {
        snprintf(number, sizeof number, "%llu", all[i].value);
        json_object_set_new(o, all[i].name, json_string(number));
    }
    free(text);
    return o;
}

/* What lies where: of the device, or of the host. */
struct piece {
    const char *name;
    const void *data;
    int64_t count; /* fp32 numbers */
    bool on_device;
};

static bool write_piece(struct aside *a, const struct parameters *p, const struct piece *piece, float *chunk,
                        struct fault *f)
{
    if (!piece->on_device) return aside_write(a, piece->data, (size_t)piece->count * sizeof(float), f);
    for (int64_t at = 0; at < piece->count; at += CHUNK) {
        int64_t n = piece->count - at < CHUNK ? piece->count - at : CHUNK;
        if (!device_read(p->device, chunk, (const float *)piece->data + at, (size_t)n * sizeof *chunk))
            return fault_set(f, "%s: %s cannot be copied from %s", a->path, piece->name,
                             device_name(p->device));
        if (!aside_write(a, chunk, (size_t)n * sizeof *chunk, f)) return false;
    }
    return true;
}

static bool write_pieces(struct aside *a, const struct parameters *p, json_t *header,
                         const struct piece *pieces, int n, struct fault *f)
{
    size_t at = 0;
    float *chunk = malloc(CHUNK * sizeof *chunk);
    bool good = chunk != NULL && header;
    for (int i = 0; good && i < n; i++)
        good = aside_entry(header, pieces[i].name, "F32", 1, &pieces[i].count,
                           (size_t)pieces[i].count * sizeof(float), &at);
    if (!good) fault_set(f, "%s: out of memory", a->path);
    good = good && aside_header(a, header, f);
    for (int i = 0; good && i < n; i++) good = write_piece(a, p, &pieces[i], chunk, f);
    free(chunk);
    return good;
}

/* Pairs of a step and a loss, as fp32. */
static float *judged_of(const struct history *h)
{
    float *pairs = calloc(2 * (size_t)h->judgements + 1, sizeof *pairs);
    for (int64_t i = 0; pairs && i < h->judgements; i++) {
        pairs[2 * i] = (float)h->judged[i].step;
        pairs[2 * i + 1] = h->judged[i].loss;
    }
    return pairs;
}

bool save_training(const char *folder, const struct parameters *p, const struct history *h,
                   const struct place *at, const json_t *settings, struct fault *f)
{
    struct aside a;
    float *judged = judged_of(h);
    const struct piece pieces[] = {{"p", p->p, p->count, true},
                                   {"m", p->m, p->count, true},
                                   {"v", p->v, p->begin[GROUP_MUON], true},
                                   {"loss", h->loss, h->steps, false},
                                   {"norm", h->norm, h->steps, false},
                                   {"rate", h->rate, h->steps, false},
                                   {"held", judged, 2 * h->judgements, false},
                                   {"scale", p->scale, p->scale ? SCALE_BYTES / 4 : 0, true}};
    int n = (int)(sizeof pieces / sizeof *pieces) - !p->scale;
    json_t *header = json_pack("{s:o}", "__metadata__", metadata_of(h, at, settings));
    bool good = judged || fault_set(f, "out of memory");
    good = good && aside_open(&a, folder, TRAINING_FILE, f);
    if (good) good = aside_close(&a, write_pieces(&a, p, header, pieces, n, f), f);
    json_decref(header);
    free(judged);
    return good;
}

/* ---- The weights ---- */

static const char *type_name(coda_dtype t) { return t == CODA_BF16 ? "BF16" : t == CODA_F16 ? "F16" : "F32"; }

static bool is_stored(const struct parameter *q)
{
    return q->w->stored_count && !strstr(q->w->name, ".adapter.");
}

static int64_t columns_of(const struct parameter *q) { return q->w->columns ? q->w->columns : 1; }

static bool model_header(const struct parameters *p, coda_dtype dtype, json_t *header)
{
    size_t at = 0;
    bool good = header != NULL;
    for (int i = 0; good && i < p->n; i++)
        for (int k = 0; is_stored(&p->all[i]) && k < p->all[i].w->stored_count; k++) {
            const struct weight *w = p->all[i].w;
            const int64_t dims[] = {w->rows[k], w->columns};
            size_t n = (size_t)(w->rows[k] * columns_of(&p->all[i]));
            good = good && aside_entry(header, w->stored[k], type_name(dtype), w->columns ? 2 : 1, dims,
                                       n * dtype_bytes(dtype), &at);
        }
    return good;
}

/* The adapter of a weight: rows [rows, n] times [n, columns]. */
struct adapter {
    float *up, *down;
    int64_t n;
};

static float *read_whole(const struct parameters *p, const char *weight, const char *part, int64_t *columns,
                         struct fault *f)
{
    char name[200];
    size_t stem = strlen(weight) - strlen(".weight");
    snprintf(name, sizeof name, "%.*s.adapter.%s", (int)stem, weight, part);
    const struct parameter *q = parameters_find(p, name);
    if (!q) return NULL;
    float *to = malloc((size_t)q->count * sizeof *to);
    *columns = columns_of(q);
    if (to && parameters_read(p, q, 0, q->count, to, f)) return to;
    if (!to) fault_set(f, "%s: out of memory", name);
    free(to);
    return NULL;
}

static void add_adapter(const struct adapter *a, int64_t first, int64_t rows, int64_t columns, float *to)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) {
            double sum = 0;
            for (int64_t j = 0; j < a->n; j++)
                sum += (double)a->up[(first + i) * a->n + j] * (double)a->down[j * columns + k];
            to[i * columns + k] += (float)sum;
        }
}

/* Which row of the memory a checkpoint has as number `row`. LLaMA's GGUF files have queries and keys in pairs
 * (2i, 2i + 1) of a head's rows, safetensors in (i, i + half). */
static int64_t row_of(const struct parameter *q, int64_t row, int64_t head)
{
    int64_t first = 0, k = 0;
    while (row - first >= q->w->rows[k]) first += q->w->rows[k++];
    if (!strstr(q->w->stored[k], "q_proj") && !strstr(q->w->stored[k], "k_proj")) return row;
    int64_t at = (row - first) % head;
    return row - at + (at < head / 2 ? 2 * at : 2 * (at - head / 2) + 1);
}

/* `head`: rows of a head that are in pairs; 0: none are. */
static bool write_rows(struct aside *file, const struct parameters *p, const struct parameter *q,
                       const struct adapter *a, coda_dtype dtype, int64_t head, struct fault *f)
{
    int64_t columns = columns_of(q), rows = q->count / columns;
    int64_t some = head || CHUNK < columns ? 1 : CHUNK / columns;
    float *chunk = malloc((size_t)(some * columns) * sizeof *chunk);
    bool good = chunk || fault_set(f, "%s: out of memory", q->w->name);
    for (int64_t at = 0; good && at < rows; at += some) {
        int64_t n = rows - at < some ? rows - at : some;
        int64_t row = head ? row_of(q, at, head) : at;
        good = parameters_read(p, q, row * columns, n * columns, chunk, f);
        if (good && a->n) add_adapter(a, row, n, columns, chunk);
        for (int64_t i = 0; good && i < n * columns; i++) element_set(dtype, chunk, i, (double)chunk[i]);
        good = good && aside_write(file, chunk, (size_t)(n * columns) * dtype_bytes(dtype), f);
    }
    free(chunk);
    return good;
}

static bool write_parameter(struct aside *file, const struct parameters *p, const struct parameter *q,
                            coda_dtype dtype, int64_t head, struct fault *f)
{
    struct adapter a = {0};
    int64_t columns;
    bool matrix = q->w->columns && name_ends(q->w->name, ".weight");
    *f = (struct fault){{0}};
    if (matrix) a.up = read_whole(p, q->w->name, "b", &a.n, f);
    if (a.up) a.down = read_whole(p, q->w->name, "a", &columns, f);
    bool good = !*f->text && write_rows(file, p, q, &a, dtype, head, f);
    free(a.up);
    free(a.down);
    return good;
}

bool save_model(const char *folder, const struct parameters *p, const struct config *c, coda_dtype dtype,
                struct fault *f)
{
    struct aside a;
    int64_t head = c->rope.interleaved ? c->head_dim : 0;
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    bool good = model_header(p, dtype, header) || fault_set(f, "out of memory");
    if (good && (good = aside_open(&a, folder, "model.safetensors", f))) {
        good = aside_header(&a, header, f);
        for (int i = 0; good && i < p->n; i++)
            if (is_stored(&p->all[i])) good = write_parameter(&a, p, &p->all[i], dtype, head, f);
        good = aside_close(&a, good, f);
    }
    json_decref(header);
    return good;
}
