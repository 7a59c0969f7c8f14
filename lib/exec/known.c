/* known.c -- loaded kernels by their texts. */
#include "known.h"

#include "graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct jit_kernel *kernel;
    struct coda_kernel_info info; /* its texts are those of the plan at hand */
};

enum { CHAINS = 64, MOST_KEYS = 1024 };

struct known_key {
    struct known_key *next;
    struct identity id;
    const char *text;
};

struct known {
    pthread_mutex_t lock; /* of all */
    struct arena arena;
    struct known_key *chain[CHAINS];
    int keys;
    struct names texts; /* index of an entry */
    struct entry *entry;
    int entries, room;
};

struct known *known_new(void)
{
    struct known *t = calloc(1, sizeof *t);
    if (!t) return fail(CODA_E_MEMORY, "out of memory for a table of kernels"), NULL;
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void known_free(struct known *t)
{
    if (!t) return;
    for (int i = 0; i < t->entries; i++) jit_unload(t->entry[i].kernel);
    free(t->entry);
    arena_free(&t->arena);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void known_hold(struct known *t) { pthread_mutex_lock(&t->lock); }
void known_let_go(struct known *t) { pthread_mutex_unlock(&t->lock); }

/* ---- Texts ---- */

static struct known_key *seek(struct known *t, const struct identity *id)
{
    struct known_key *k = t->chain[id->hash % CHAINS];
    while (k && (k->id.hash != id->hash || k->id.size != id->size || memcmp(k->id.data, id->data, id->size)))
        k = k->next;
    return k;
}

const char *known_text(struct known *t, const struct identity *key)
{
    pthread_mutex_lock(&t->lock);
    const struct known_key *k = seek(t, key);
    pthread_mutex_unlock(&t->lock);
    return k ? k->text : NULL;
}

/* Without memory, or with very many keys, it is printed again. */
static void learn(struct known *t, const struct identity *key, const char *text)
{
    struct known_key *k = ARENA_NEW(&t->arena, struct known_key, 1);
    void *data = arena_alloc(&t->arena, key->size);
    const char *copy = arena_string(&t->arena, text);
    struct known_key **chain = &t->chain[key->hash % CHAINS];
    if (!k || !data || !copy) return;
    memcpy(data, key->data, key->size);
    *k = (struct known_key){*chain, {.data = data, .size = key->size, .hash = key->hash}, copy};
    *chain = k;
    t->keys++;
}

void known_learn(struct known *t, const struct identity *key, const char *text)
{
    pthread_mutex_lock(&t->lock);
    if (t->keys < MOST_KEYS && !seek(t, key)) learn(t, key, text);
    pthread_mutex_unlock(&t->lock);
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

int known_take(struct known *t, struct coda_plan *p)
{
    int missing = 0;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < p->kernels; i++) {
        int at = names_find(&t->texts, p->kernel[i].info.source, -1);
        if (at >= 0) take_one(&t->entry[at], &p->kernel[i]);
        else missing++;
    }
    pthread_mutex_unlock(&t->lock);
    return missing;
}

static bool add(struct known *t, const struct compiled_kernel *k)
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

coda_status known_add(struct known *t, const struct coda_plan *p)
{
    bool good = true;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; good && i < p->kernels; i++)
        if (p->kernel[i].kernel && names_find(&t->texts, p->kernel[i].info.source, -1) < 0)
            good = add(t, &p->kernel[i]);
    pthread_mutex_unlock(&t->lock);
    return good ? CODA_OK : fail(CODA_E_MEMORY, "out of memory for a table of kernels");
}

int known_count(struct known *t)
{
    pthread_mutex_lock(&t->lock);
    int n = t->entries;
    pthread_mutex_unlock(&t->lock);
    return n;
}
