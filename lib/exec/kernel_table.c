/* kernel_table.c -- loaded kernels by their texts. */
#include "kernel_table.h"

#include "graph.h"
#include "schedule.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct jit_kernel *kernel;
    struct coda_kernel_info info; /* its texts are those of the plan at hand */
};

enum { CHAINS = 256, MOST_KEYS = 2048 };

struct table_key {
    struct table_key *next;
    struct identity id;
    struct table_program program;
};

struct kernel_table {
    pthread_mutex_t lock; /* of all */
    struct arena arena;
    struct table_key *chain[CHAINS];
    int keys;
    struct names texts; /* index of an entry */
    struct entry *entry;
    int entries, room;
};

struct kernel_table *kernel_table_new(void)
{
    struct kernel_table *t = calloc(1, sizeof *t);
    if (!t) return fail(CODA_E_MEMORY, "out of memory for a table of kernels"), NULL;
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void kernel_table_free(struct kernel_table *t)
{
    if (!t) return;
    for (int i = 0; i < t->entries; i++) jit_unload(t->entry[i].kernel);
    free(t->entry);
    arena_free(&t->arena);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void kernel_table_hold(struct kernel_table *t) { pthread_mutex_lock(&t->lock); }
void kernel_table_let_go(struct kernel_table *t) { pthread_mutex_unlock(&t->lock); }

/* ---- Texts ---- */

static struct table_key *seek(struct kernel_table *t, const struct identity *id)
{
    struct table_key *k = t->chain[id->hash % CHAINS];
    while (k && !identity_equal(&k->id, id)) k = k->next;
    return k;
}

const struct table_program *kernel_table_find(struct kernel_table *t, const struct identity *key)
{
    pthread_mutex_lock(&t->lock);
    const struct table_key *k = seek(t, key);
    pthread_mutex_unlock(&t->lock);
    return k ? &k->program : NULL;
}

static struct table_words *find_words(const struct kernel_table *t, const char *text)
{
    for (int i = 0; i < CHAINS; i++)
        for (const struct table_key *k = t->chain[i]; k; k = k->next)
            if (!strcmp(k->program.words->words.text, text)) return k->program.words;
    return NULL;
}

static struct table_words *new_words(struct kernel_table *t, const struct wording *words)
{
    struct table_words *w = ARENA_NEW(&t->arena, struct table_words, 1);
    const char *symbol = arena_string(&t->arena, words->symbol), *text = arena_string(&t->arena, words->text);
    if (!w || !symbol || !text) return NULL;
    *w = (struct table_words){{symbol, text}, -1};
    return w;
}

static const struct schedule *copy_schedule(struct kernel_table *t, const struct schedule *s, int steps)
{
    struct schedule *copy = ARENA_NEW(&t->arena, struct schedule, 1);
    enum level *level = ARENA_NEW(&t->arena, enum level, steps + 1);
    bool *crosses = ARENA_NEW(&t->arena, bool, steps + 1), *moved = ARENA_NEW(&t->arena, bool, steps + 1);
    if (!copy || !level || !crosses || !moved) return NULL;
    *copy = *s;
    copy->layout.level = memcpy(level, s->layout.level, sizeof *level * (size_t)steps);
    copy->layout.crosses = memcpy(crosses, s->layout.crosses, sizeof *crosses * (size_t)steps);
    copy->layout.moved = memcpy(moved, s->layout.moved, sizeof *moved * (size_t)steps);
    return copy;
}

static struct table_key *new_key(struct kernel_table *t, const struct identity *id, struct table_words *words)
{
    struct table_key *k = ARENA_NEW(&t->arena, struct table_key, 1);
    void *data = arena_alloc(&t->arena, id->size);
    struct table_key **chain = &t->chain[id->hash % CHAINS];
    if (!k || !data || !words) return NULL;
    memcpy(data, id->data, id->size);
    *k = (struct table_key){*chain, {.data = data, .size = id->size, .hash = id->hash}, {words, NULL}};
    *chain = k;
    t->keys++;
    return k;
}

/* Without memory, or with very many keys, it is printed again. */
const struct table_program *kernel_table_keep(struct kernel_table *t, const struct identity *key,
                                              const struct wording *words, const struct schedule *schedule,
                                              int steps)
{
    pthread_mutex_lock(&t->lock);
    struct table_key *k = seek(t, key);
    if (!k && t->keys < MOST_KEYS) {
        struct table_words *w = find_words(t, words->text);
        k = new_key(t, key, w ? w : new_words(t, words));
        if (k && schedule) k->program.schedule = copy_schedule(t, schedule, steps);
    }
    pthread_mutex_unlock(&t->lock);
    return k ? &k->program : NULL;
}

/* ---- Kernels ---- */

static void take_one(const struct entry *e, struct compiled_kernel *k)
{
    const char *name = k->info.name, *source = k->info.source;
    jit_share(e->kernel);
    k->kernel = e->kernel;
    k->info = e->info;
    k->info.name = name, k->info.source = source;
}

int kernel_table_take(struct kernel_table *t, struct coda_plan *p)
{
    int missing = 0;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < p->kernels; i++) {
        struct table_words *w = p->kernel[i].words;
        int at = w && w->entry >= 0 ? w->entry : names_find(&t->texts, p->kernel[i].info.source, -1);
        if (w) w->entry = at;
        if (at >= 0) take_one(&t->entry[at], &p->kernel[i]);
        else missing++;
    }
    pthread_mutex_unlock(&t->lock);
    return missing;
}

static bool add(struct kernel_table *t, const struct compiled_kernel *k)
{
    if (t->entries == t->room) {
        int room = MAX(16, 2 * t->room);
        struct entry *wider = realloc(t->entry, sizeof *wider * (size_t)room);
        if (!wider) return false;
        t->entry = wider;
        t->room = room;
    }
    const char *text = arena_string(&t->arena, k->info.source);
    if (!text || !names_add(&t->texts, &t->arena, text, t->entries)) return false;
    jit_share(k->kernel);
    t->entry[t->entries++] = (struct entry){k->kernel, k->info};
    return true;
}

coda_status kernel_table_add(struct kernel_table *t, const struct coda_plan *p)
{
    bool good = true;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; good && i < p->kernels; i++)
        if (p->kernel[i].kernel && names_find(&t->texts, p->kernel[i].info.source, -1) < 0)
            good = add(t, &p->kernel[i]);
    pthread_mutex_unlock(&t->lock);
    return good ? CODA_OK : fail(CODA_E_MEMORY, "out of memory for a table of kernels");
}

int kernel_table_count(struct kernel_table *t)
{
    pthread_mutex_lock(&t->lock);
    int n = t->entries;
    pthread_mutex_unlock(&t->lock);
    return n;
}
