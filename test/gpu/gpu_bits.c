/*
 * gpu_bits.c -- what attention gives a decoding sequence depends on that sequence alone, bit for bit: not on
 * who else is in the batch, nor where in it the sequence is, nor how much room caches have, nor where its
 * keys lie in memory.
 *
 * The kernel for few queries cuts a sequence's keys into parts by its own length; the blocks of a cluster
 * share the parts, and their number is chosen by how many sequences there are. So batches are of such
 * sizes that clusters of three sizes occur, which the plans' text must say, or nothing is proved.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "gpu_case.h"
#include "util_device.h"
#include "util_random.h"
#include "util_scale.h"

int gpu_bits(void);

enum {
    KEY_HEADS = 2,
    GROUP = 2,
    HEADS = KEY_HEADS * GROUP,
    MOST_HEAD = 128,
    MOST_TQ = 4,
    LONGEST = 2048,
    FIXED = 10,
    RANDOM = 4,
    LENGTHS = FIXED + RANDOM,
    MOST_BATCH = 40,
    EMULATED_BATCH = 5, /* and of so many lengths */
    CLUSTERS = 3        /* places that by themselves have clusters of 8, 4 and 2 blocks on the emulator */
};

static const int32_t fixed_length[FIXED] = {1, 7, 8, 9, 63, 64, 65, 1000, 1411, 2048};

/* What a sequence is asked: of these dtypes, so many rows, so wide a head. */
struct question {
    const char *name;
    coda_dtype dtype, keys;
    int64_t head_dim, tq;
};

static const struct question questions[] = {
    {"bf16 d64 q1", CODA_BF16, CODA_BF16, 64, 1},
    {"bf16 d128 q1", CODA_BF16, CODA_BF16, 128, 1},
    {"bf16 d64 q4", CODA_BF16, CODA_BF16, 64, 4},
    {"bf16 d128 q3", CODA_BF16, CODA_BF16, 128, 3},
    {"f16 d64 q2", CODA_F16, CODA_F16, 64, 2},
    {"f16 d128 q1", CODA_F16, CODA_F16, 128, 1},
    {"f16 d128 q4", CODA_F16, CODA_F16, 128, 4},
    {"bf16 in e4m3 d64 q1", CODA_BF16, CODA_F8E4M3, 64, 1},
    {"bf16 in e4m3 d128 q2", CODA_BF16, CODA_F8E4M3, 128, 2},
    {"f16 in e4m3 d128 q1", CODA_F16, CODA_F8E4M3, 128, 1},
    {"f16 in e4m3 d64 q3", CODA_F16, CODA_F8E4M3, 64, 3},
};

/* Where its keys lie, and with how many others. */
struct place {
    const char *name;
    int64_t batch, tk, page; /* page 0: sequences lie one behind the other */
    bool apart;              /* the keys of each head together */
};

static const struct place places[] = {
    {"alone", 1, LONGEST, 0, false},
    {"of 2", 2, LONGEST, 0, false},
    {"of 5", 5, LONGEST, 0, false},
    {"of 10", 10, LONGEST, 0, false},
    {"of 20", 20, LONGEST, 0, false},
    {"of 40", 40, LONGEST, 0, false},
    {"in more room", 1, 5000, 0, false},
    {"in more room, of 5", 5, 3000, 0, false},
    {"in pages", 1, LONGEST, 16, false},
    {"in pages, of 5", 5, LONGEST, 64, false},
    {"in more pages", 2, 4096, 128, false},
    {"heads apart, of 2", 2, LONGEST, 0, true},
    {"heads apart in pages, of 5", 5, LONGEST, 32, true},
};

/* One sequence: its newest rows ask, and of all keys the first `length` are its own. */
struct sequence {
    int32_t length;
    unsigned char q[2 * MOST_TQ * HEADS * MOST_HEAD];
    unsigned char k[2 * LONGEST * KEY_HEADS * MOST_HEAD], v[2 * LONGEST * KEY_HEADS * MOST_HEAD];
    unsigned char o[2 * MOST_TQ * HEADS * MOST_HEAD]; /* what it was given first */
    bool answered;
};

struct bench {
    const struct question *asked;
    struct sequence *all; /* [n] */
    int n;
    struct random r;
    bool clusters[9]; /* of so many blocks have occurred */
    int compared, different;
    char first[160]; /* difference */
};

static void fill_sequences(struct bench *b)
{
    const struct question *a = b->asked;
    int first = b->n < LENGTHS ? (int)random_below(&b->r, LENGTHS) : 0;
    for (int i = 0; i < b->n; i++) {
        struct sequence *s = &b->all[i];
        int kind = (first + 3 * i) % LENGTHS; /* short and long ones where they are few */
        s->length = kind < FIXED ? fixed_length[kind] : 1 + (int32_t)random_below(&b->r, LONGEST);
        for (int64_t e = 0; e < a->tq * HEADS * a->head_dim; e++)
            dtype_store(a->dtype, s->q, e, 2 * random_normal(&b->r));
        for (int64_t e = 0; e < s->length * KEY_HEADS * a->head_dim; e++) {
            dtype_store(a->keys, s->k, e, random_normal(&b->r));
            dtype_store(a->keys, s->v, e, random_normal(&b->r));
        }
    }
}

/* ---- A batch in its place ---- */

enum { Q, K, V, SIZE, TABLE, OUT, BUFFERS };

struct batch {
    const struct question *asked;
    const struct place *at;
    int64_t pages, lots, lot; /* of a sequence; lots of so many keys in all */
    coda_plan *plan;
    void *host[BUFFERS], *gpu[BUFFERS], *workspace;
    size_t bytes[BUFFERS];
};

static coda_graph *build(const struct batch *t)
{
    coda_graph *g = coda_graph_new();
    const struct question *a = t->asked;
    const struct place *p = t->at;
    coda_attention_options o = CODA_ATTENTION_OPTIONS_INIT;
    int64_t columns = KEY_HEADS * a->head_dim, rank = p->apart ? 4 : p->page ? 2 : 3;
    int64_t dims[4] = {t->lots, t->lot, columns};
    if (p->apart) dims[1] = KEY_HEADS, dims[2] = t->lot, dims[3] = a->head_dim;
    else if (p->page) dims[0] = t->lots * t->lot, dims[1] = columns;
    o.heads = HEADS, o.kv_heads = KEY_HEADS, o.causal = 1, o.align = CODA_ALIGN_LENGTH;
    o.layout = p->apart ? CODA_LAYOUT_HND : CODA_LAYOUT_NHD, o.page = p->page;
    coda_value q = coda_input(g, "q", a->dtype, 3, (int64_t[]){p->batch, a->tq, HEADS * a->head_dim});
    coda_value k = coda_input(g, "k", a->keys, (int)rank, dims);
    coda_value v = coda_input(g, "v", a->keys, (int)rank, dims);
    coda_value lengths = coda_input(g, "lengths", CODA_I32, 1, &p->batch);
    if (p->page) o.table = coda_input(g, "table", CODA_I32, 2, (int64_t[]){p->batch, t->pages});
    coda_output(g, "o", coda_attention(g, q, k, v, lengths, &o));
    return g;
}

/* The cluster of the plan's attention, 0 if it is not split. */
static int cluster_of(const coda_plan *p)
{
    char text[8192] = "";
    coda_plan_print(p, CODA_TEXT_PLAN, text, sizeof text);
    const char *splits = strstr(text, " splits=");
    return splits ? atoi(splits + strlen(" splits=")) : 0;
}

static bool open_batch(struct batch *t, const struct question *a, const struct place *p)
{
    *t = (struct batch){.asked = a, .at = p, .lots = p->batch, .lot = p->tk};
    if (p->page) t->pages = p->tk / p->page, t->lots = p->batch * t->pages + 3, t->lot = p->page;
    size_t row = (size_t)(KEY_HEADS * a->head_dim * dtype_bytes(a->keys, 1));
    t->bytes[Q] = t->bytes[OUT] = (size_t)(p->batch * a->tq * HEADS * a->head_dim * dtype_bytes(a->dtype, 1));
    t->bytes[K] = t->bytes[V] = (size_t)(t->lots * t->lot) * row;
    t->bytes[SIZE] = sizeof(int32_t) * (size_t)p->batch;
    t->bytes[TABLE] = sizeof(int32_t) * (size_t)(p->batch * t->pages);
    for (int i = 0; i < BUFFERS; i++) {
        t->host[i] = malloc(t->bytes[i] + 1);
        t->gpu[i] = device_alloc(t->bytes[i]);
        if (!t->host[i] || !t->gpu[i]) return false;
    }
    coda_graph *g = build(t);
    bool good = coda_compile(&t->plan, g, NULL) == CODA_OK &&
                (t->workspace = device_alloc(coda_plan_workspace(t->plan)));
    coda_graph_free(g);
    return good;
}

static void close_batch(struct batch *t)
{
    for (int i = 0; i < BUFFERS; i++) {
        free(t->host[i]);
        device_free(t->gpu[i]);
    }
    device_free(t->workspace);
    coda_plan_free(t->plan);
}

/* Keys go where the table says; all other rows, and entries of the table past the length, are poison. */
static void put_sequence(struct batch *t, struct random *r, int64_t at, const struct sequence *s,
                         const int32_t *page)
{
    const struct question *a = t->asked;
    size_t head = (size_t)(a->head_dim * dtype_bytes(a->keys, 1)), q = t->bytes[Q] / (size_t)t->at->batch;
    memcpy((char *)t->host[Q] + (size_t)at * q, s->q, q);
    ((int32_t *)t->host[SIZE])[at] = s->length;
    for (int64_t i = 0; i < t->pages; i++)
        ((int32_t *)t->host[TABLE])[at * t->pages + i] =
            i * t->lot < s->length ? page[i] : (int32_t)random_next(r);
    for (int64_t j = 0; j < s->length; j++)
        for (int64_t h = 0; h < KEY_HEADS; h++) {
            int64_t lot = t->pages ? page[j / t->lot] : at, row = j % t->lot;
            int64_t to =
                t->at->apart ? (lot * KEY_HEADS + h) * t->lot + row : (lot * t->lot + row) * KEY_HEADS + h;
            memcpy((char *)t->host[K] + (size_t)to * head, s->k + (size_t)(j * KEY_HEADS + h) * head, head);
            memcpy((char *)t->host[V] + (size_t)to * head, s->v + (size_t)(j * KEY_HEADS + h) * head, head);
        }
}

static bool put_all(struct bench *b, struct batch *t, const int *who)
{
    int32_t *page = malloc(sizeof *page * (size_t)t->lots);
    for (int32_t i = 0; page && i < t->lots; i++) {
        int64_t k = random_below(&b->r, i + 1); /* Fisher and Yates, from the inside out */
        page[i] = page[k], page[k] = i;
    }
    memset(t->host[K], 0xff, t->bytes[K]);
    memset(t->host[V], 0xff, t->bytes[V]);
    memset(t->host[OUT], 0xff, t->bytes[OUT]);
    for (int64_t i = 0; page && i < t->at->batch; i++)
        put_sequence(t, &b->r, i, &b->all[who[i]], page + i * t->pages);
    bool good = page;
    free(page);
    for (int i = 0; i < BUFFERS; i++) good = good && device_upload(t->gpu[i], t->host[i], t->bytes[i]);
    return good;
}

/* The first answer that a sequence gets is what all others must be. */
static void compare(struct bench *b, const struct batch *t, const int *who)
{
    size_t bytes = t->bytes[OUT] / (size_t)t->at->batch;
    for (int64_t i = 0; i < t->at->batch; i++) {
        struct sequence *s = &b->all[who[i]];
        const char *o = (const char *)t->host[OUT] + (size_t)i * bytes;
        if (!s->answered) memcpy(s->o, o, bytes);
        else b->compared++;
        bool same = !memcmp(s->o, o, bytes);
        s->answered = true;
        if (!same && !b->different++)
            snprintf(b->first, sizeof b->first, "; first: %s, sequence %d of length %d, clusters of %d",
                     t->at->name, (int)i, (int)s->length, cluster_of(t->plan));
    }
}

static bool run_batch(struct bench *b, struct batch *t, const int *who)
{
    void *args[BUFFERS];
    int n = 0;
    for (int i = 0; i < BUFFERS; i++)
        if (i != TABLE || t->pages) args[n++] = t->gpu[i];
    bool ran = put_all(b, t, who) && device_fill(t->workspace, 0xff, coda_plan_workspace(t->plan)) &&
               device_wait() && coda_run(t->plan, args, NULL, t->workspace, NULL) == CODA_OK &&
               device_wait() && device_download(t->host[OUT], t->gpu[OUT], t->bytes[OUT]);
    if (ran) compare(b, t, who);
    return ran;
}

/* Sequences take turns in batches of one place, beside others each time. */
static bool run_place(struct bench *b, const struct place *p, int batches)
{
    struct batch t;
    int who[MOST_BATCH], next = 0;
    bool good = open_batch(&t, b->asked, p);
    if (good) b->clusters[MIN(cluster_of(t.plan), 8)] = true;
    for (int i = 0; i < batches && good; i++) {
        for (int j = 0; j < p->batch; j++) who[j] = next++ % b->n;
        for (int j = (int)p->batch - 1; j > 0; j--) {
            int k = (int)random_below(&b->r, j + 1), other = who[k];
            who[k] = who[j], who[j] = other;
        }
        good = run_batch(b, &t, who);
    }
    close_batch(&t);
    return good;
}

/* Not what the outputs began as. */
static bool makes_sense(const struct bench *b)
{
    bool sane = true;
    for (int i = 0; i < b->n; i++)
        for (int64_t e = 0; e < b->asked->tq * HEADS * b->asked->head_dim && b->all[i].answered; e++)
            sane = sane && isfinite(dtype_load(b->asked->dtype, b->all[i].o, e));
    return sane;
}

/* All places; on the emulator those of few sequences, and of those after the first three some by the seed. */
static bool takes(const struct place *p, bool slow)
{
    int i = (int)(p - places);
    return !slow || (p->batch <= EMULATED_BATCH && (i < CLUSTERS || scale_takes_one_in(3, i)));
}

static int verdict(const struct bench *b, const char *name)
{
    bool all = b->clusters[8] && b->clusters[4] && b->clusters[2], sane = makes_sense(b);
    return gpu_case(all && sane && b->compared && !b->different, name,
                    "%d answers of sequences in other company, %d of other bits%s%s%s", b->compared,
                    b->different, b->first, all ? "" : "; CLUSTERS OF 8, 4 AND 2 DID NOT ALL OCCUR",
                    sane ? "" : "; NOT FINITE");
}

static int ask(const struct question *q, bool slow)
{
    char name[64];
    struct bench b = {.asked = q, .n = slow ? EMULATED_BATCH : LENGTHS, .r = {random_seed()}};
    bool ran = (b.all = calloc(LENGTHS, sizeof *b.all));
    snprintf(name, sizeof name, "bits, %s", q->name);
    if (ran) fill_sequences(&b);
    for (int i = 0; i < ARRAY_SIZE(places) && ran; i++)
        if (takes(&places[i], slow))
            ran = run_place(&b, &places[i], (int)CEIL_DIV(slow ? b.n : 2 * b.n, places[i].batch));
    int failed = ran ? verdict(&b, name) : gpu_case(false, name, "it does not run: %s", coda_error());
    free(b.all);
    return failed;
}

int gpu_bits(void)
{
    struct jit_device device;
    char err[JIT_ERROR_SIZE];
    int failed = 0;
    setenv("CODA_EMULATOR_SMS", "20", 1); /* so that 1, 2 and 5 sequences have clusters of 8, 4 and 2 */
    if (!device_open(&device, err)) return gpu_case(false, "bits", "%s", err);
    bool slow = device_emulated(&device);
    int one = (int)(random_seed() % ARRAY_SIZE(questions));
    for (int i = 0; i < ARRAY_SIZE(questions); i++)
        if (slow && !scale_is_full() ? i == one : scale_takes_one_in(3, i))
            failed += ask(&questions[i], slow);
    return failed;
}
