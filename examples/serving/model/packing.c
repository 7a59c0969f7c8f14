/*
 * packing.c -- a weight is cut into ranges of rows. Threads pack them, on a GPU into slots of one buffer,
 * which the thread that called copies to the device as they become full.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cut.h"
#include "packing.h"

enum { MOST_THREADS = 16, ROWS = 16 /* of a record */ };

/* ---- Formats ---- */

/* All of a tensor's words are one. */
static bool all_are(const struct stored_tensor *t, uint32_t word)
{
    size_t other = 0;
    for (size_t i = 0; i + 4 <= t->bytes; i += 4) {
        uint32_t x;
        memcpy(&x, t->data + i, sizeof x);
        other += x != word;
    }
    return !other;
}

/* Zero points that say no more than that codes are symmetric. */
static bool is_middle(const struct stored_matrix *m)
{
    uint32_t middle = m->bits == 4 ? 0x88888888u : 0x80808080u,
             one = m->bits == 4 ? 0x11111111u : 0x01010101u;
    return m->layout != STORED_COMPRESSED && all_are(m->zeros, m->zeros_as_they_are ? middle : middle - one);
}

static coda_pack_scales scales_of(coda_dtype t)
{
    return t == CODA_BF16 ? CODA_SCALES_BF16 : t == CODA_F16 ? CODA_SCALES_F16 : CODA_SCALES_F32;
}

static bool by_word(const char *type, coda_pack_format *out)
{
    char word[16];
    size_t n = 0;
    for (; type[n] && n < sizeof word - 1; n++)
        word[n] = (char)(type[n] >= 'A' && type[n] <= 'Z' ? type[n] + 32 : type[n]);
    word[n] = 0;
    return coda_pack_format_find(word, out) == CODA_OK;
}

bool packing_format(struct stored_matrix *m, struct fault *f)
{
    coda_pack_format *p = &m->format;
    *p = (coda_pack_format)CODA_PACK_FORMAT_INIT;
    p->group = m->group;
    bool good = true;
    switch (m->layout) {
    case STORED_PLAIN:
    case STORED_SCALED: return true;
    case STORED_BLOCKS:
        p->codes = strcmp(m->codes->type, "F8_E5M2") ? CODA_CODES_E4M3 : CODA_CODES_E5M2;
        p->scales = CODA_SCALES_F32;
        break;
    case STORED_COMPRESSED:
    case STORED_GPTQ:
    case STORED_AWQ:
        p->codes = m->bits == 4 ? CODA_CODES_INT4 : CODA_CODES_INT8;
        p->scales = scales_of(m->scales->dtype);
        if (m->zeros && !is_middle(m)) p->zeros = CODA_ZEROS_POINTS;
        break;
    case STORED_MXFP4: good = by_word("MXFP4", p); break;
    case STORED_NVFP4: good = by_word("NVFP4", p); break;
    case STORED_GGUF: good = by_word(m->codes->type, p); break;
    }
    good = good && coda_packed_bytes(p, m->rows, m->columns) > 0;
    return good || fault_set(f, "tensor %.120s: %s", m->codes->name, coda_error());
}

bool packing_same_order(const struct stored_matrix *a, const struct stored_matrix *b)
{
    if (!a->order || !b->order) return !a->order && !b->order;
    return a->order->bytes == b->order->bytes && !memcmp(a->order->data, b->order->data, a->order->bytes);
}

/* ---- Tensors as coda_pack takes them ---- */

static coda_pack_kind kind_of(const struct stored_matrix *m)
{
    switch (m->layout) {
    case STORED_PLAIN:
    case STORED_SCALED:
    case STORED_BLOCKS: break;
    case STORED_COMPRESSED:
        return m->codes->block_bytes == 4 ? CODA_PACK_COMPRESSED_TENSORS : CODA_PACK_CODES;
    case STORED_GPTQ: return m->zeros_as_they_are ? CODA_PACK_GPTQ_V2 : CODA_PACK_GPTQ;
    case STORED_AWQ: return CODA_PACK_AWQ;
    case STORED_MXFP4:
    case STORED_NVFP4: return CODA_PACK_NIBBLES;
    case STORED_GGUF: return CODA_PACK_GGUF;
    }
    return CODA_PACK_CODES;
}

/* A matrix that is being packed. */
struct source {
    coda_pack_source s;
    int32_t *order, *groups; /* or NULL */
};

static void source_close(struct source *s)
{
    free(s->order);
    free(s->groups);
}

/* The groups of columns in aligned memory, and the columns by them. */
static bool add_order(struct source *s, const struct stored_matrix *m, struct fault *f)
{
    if (!m->order) return true;
    s->groups = malloc(m->order->bytes);
    s->order = malloc(m->order->bytes);
    if (!s->groups || !s->order) return fault_set(f, "%s: out of memory", m->order->name);
    memcpy(s->groups, m->order->data, m->order->bytes);
    s->s.g_idx = s->groups;
    if (coda_pack_order(&m->format, &s->s, s->order) < 0)
        return fault_set(f, "tensor %.120s: %s", m->order->name, coda_error());
    s->s.column_order = s->order;
    return true;
}

static bool source_open(struct source *s, const struct stored_matrix *m, struct fault *f)
{
    *s = (struct source){CODA_PACK_SOURCE_INIT, NULL, NULL};
    s->s.kind = kind_of(m);
    s->s.rows = m->rows;
    s->s.columns = m->columns;
    s->s.block_rows = m->block_rows;
    s->s.codes = m->codes->data;
    s->s.codes_bytes = (int64_t)m->codes->bytes;
    if (m->scales) s->s.scales = m->scales->data, s->s.scales_bytes = (int64_t)m->scales->bytes;
    if (m->scales && m->scales->dtype) s->s.scale_type = scales_of(m->scales->dtype);
    if (m->zeros) s->s.zeros = m->zeros->data, s->s.zeros_bytes = (int64_t)m->zeros->bytes;
    if (add_order(s, m, f)) return true;
    source_close(s);
    return false;
}

bool packing_load_order(const struct weight *w, struct device *d, char *to, struct fault *f)
{
    struct source s;
    if (!source_open(&s, &w->matrix[0], f)) return false;
    bool good = device_write(d, to, s.order, w->bytes) ||
                fault_set(f, "%s: it cannot be copied to the device", w->name);
    source_close(&s);
    return good;
}

/* ---- Ranges of rows ---- */

enum state { FREE, FILLING, FULL };

/* One matrix on its way. */
struct packing {
    const struct stored_matrix *m;
    const struct source *source;
    struct device *d;
    char *to;
    int64_t rows; /* of a range */
    int64_t next; /* row that nobody has yet */
    int64_t left; /* ranges that are not there yet */
    struct {
        enum state state;
        int64_t first;
    } slot[PACKING_SLOTS];
    int slots;
    size_t slot_bytes;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool failed;
    struct fault *f;
};

static int64_t rows_at(const struct packing *p, int64_t first)
{
    return p->m->rows - first < p->rows ? p->m->rows - first : p->rows;
}

static size_t bytes_of(const struct packing *p, int64_t rows)
{
    return rows ? (size_t)coda_packed_bytes(&p->m->format, rows, p->m->columns) : 0;
}

/* The next range, and on a GPU a slot for it; false if there is none. The lock is held. */
static bool take(struct packing *p, int64_t *first, int *slot)
{
    for (; !p->failed && p->next < p->m->rows; pthread_cond_wait(&p->changed, &p->lock)) {
        int i = 0;
        while (p->d->on_gpu && i < p->slots && p->slot[i].state != FREE) i++;
        if (i == p->slots) continue;
        *first = p->next;
        *slot = i;
        p->next += rows_at(p, *first);
        p->slot[i].state = p->d->on_gpu ? FILLING : FREE;
        p->slot[i].first = *first;
        return true;
    }
    return false;
}

static void done(struct packing *p, int slot, bool good)
{
    if (!good && !p->failed)
        p->failed = !fault_set(p->f, "tensor %.120s: %s", p->m->codes->name, coda_error());
    if (p->d->on_gpu) p->slot[slot].state = FULL;
    else p->left--;
    pthread_cond_broadcast(&p->changed);
}

static void *work(void *context)
{
    struct packing *p = context;
    int64_t first;
    int slot;
    pthread_mutex_lock(&p->lock);
    while (take(p, &first, &slot)) {
        pthread_mutex_unlock(&p->lock);
        char *to =
            p->d->on_gpu ? (char *)p->d->staging + (size_t)slot * p->slot_bytes : p->to + bytes_of(p, first);
        bool good = coda_pack(&p->m->format, &p->source->s, first, rows_at(p, first), to) == CODA_OK;
        pthread_mutex_lock(&p->lock);
        done(p, slot, good);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Copies slots as they become full, until all are there. The lock is held. */
static void copy_all(struct packing *p)
{
    while (p->left && !p->failed) {
        int i = 0;
        while (i < p->slots && p->slot[i].state != FULL) i++;
        if (i == p->slots) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        int64_t first = p->slot[i].first;
        bool good =
            device_write(p->d, p->to + bytes_of(p, first), (char *)p->d->staging + (size_t)i * p->slot_bytes,
                         bytes_of(p, rows_at(p, first)));
        pthread_mutex_lock(&p->lock);
        if (!good && !p->failed)
            p->failed = !fault_set(p->f, "%s: it cannot be copied to the device", p->m->codes->name);
        p->slot[i].state = FREE;
        p->left--;
        pthread_cond_broadcast(&p->changed);
    }
}

static int threads_for(const struct packing *p)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t most = cores < 1 ? 1 : cores < MOST_THREADS ? cores : MOST_THREADS;
    return (int)(p->left < most ? p->left : most);
}

static bool run(struct packing *p)
{
    pthread_t thread[MOST_THREADS];
    int n = 0, wanted = threads_for(p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    if (!p->d->on_gpu) wanted--; /* this thread is one, too */
    while (n < wanted && !pthread_create(&thread[n], NULL, work, p)) n++;
    if (p->d->on_gpu && !n) p->failed = !fault_set(p->f, "there is no thread");
    if (!p->d->on_gpu) work(p);
    pthread_mutex_lock(&p->lock);
    if (p->d->on_gpu) copy_all(p);
    pthread_mutex_unlock(&p->lock);
    while (n) pthread_join(thread[--n], NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    return !p->failed;
}

/* As many rows as a slot has room for, and larger slots where a record's rows are longer. */
static bool cut(struct packing *p)
{
    size_t some = bytes_of(p, ROWS);
    p->slot_bytes = some > PACKING_SLOT ? some : PACKING_SLOT;
    p->slots = (int)(PACKING_BYTES / p->slot_bytes);
    p->rows = (int64_t)(p->slot_bytes / some) * ROWS;
    p->left = (p->m->rows + p->rows - 1) / p->rows;
    return p->slots || fault_set(p->f, "tensor %.120s: %d rows are %zu bytes, and %d are the most",
                                 p->m->codes->name, ROWS, some, PACKING_BYTES);
}

static bool load_matrix(const struct stored_matrix *m, struct device *d, char *to, struct fault *f);

/* Some rows and columns, as if the file had no others. */
static bool load_slabs(const struct stored_matrix *m, struct device *d, char *to, struct fault *f)
{
    struct stored_matrix some = *m;
    struct stored_tensor codes;
    if (!matrix_gather(m, &codes, f)) return false;
    some.codes = &codes, some.slabs = 0;
    bool good = load_matrix(&some, d, to, f);
    free((void *)(uintptr_t)codes.data);
    return good;
}

static bool load_matrix(const struct stored_matrix *m, struct device *d, char *to, struct fault *f)
{
    if (m->slabs) return load_slabs(m, d, to, f);
    struct source s;
    struct packing p = {.m = m, .source = &s, .d = d, .to = to, .f = f};
    if (!cut(&p) || !source_open(&s, m, f)) return false;
    bool good = run(&p);
    source_close(&s);
    return good;
}

bool packing_load(const struct weight *w, struct device *d, char *to, struct fault *f)
{
    if (d->on_gpu && !device_staging(d, PACKING_BYTES))
        return fault_set(f, "%s: there are no %d bytes for copies", w->name, PACKING_BYTES);
    for (int i = 0; i < w->parts; i++) {
        const struct stored_matrix *m = &w->matrix[i];
        if (!load_matrix(m, d, to, f)) return false;
        to += coda_packed_bytes(&m->format, m->rows, m->columns);
    }
    return true;
}
