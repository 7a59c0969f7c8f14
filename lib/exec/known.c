/* known.c -- loaded kernels by their texts. */
#include "known.h"

#include "graph.h"

#include <pthread.h>
#include <stdlib.h>

struct entry {
    struct jit_kernel *kernel;
    struct coda_kernel_info info; /* its texts are those of the plan at hand */
};

struct known {
    pthread_mutex_t lock; /* of all */
    struct arena arena;
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

/* The kernels of several plans, each text once, as those of a plan without programs. */
static bool gather(struct coda_plan *all, struct known *t, struct coda_plan *const *plan, int plans)
{
    struct names texts = {0};
    int most = 0;
    for (int i = 0; i < plans; i++) most += plan[i]->kernels;
    all->kernel = ARENA_NEW(&all->arena, struct compiled_kernel, most + 1);
    bool good = all->kernel;
    for (int i = 0; i < plans; i++)
        for (int k = 0; good && k < plan[i]->kernels; k++) {
            const struct compiled_kernel *one = &plan[i]->kernel[k];
            if (names_find(&texts, one->info.source, -1) >= 0) continue;
            good = names_add(&texts, &all->arena, one->info.source, all->kernels);
            all->kernel[all->kernels++] = (struct compiled_kernel){.info = one->info, .spec = one->spec};
        }
    if (good) known_take(t, all);
    return good;
}

coda_status known_compile(struct known *t, struct coda_plan *const *plan, int plans,
                          const struct jit_options *opt)
{
    struct coda_plan all = {.gpu = plan[0]->gpu};
    coda_status status = gather(&all, t, plan, plans)
                             ? kernels_compile(&all, 0, opt, 0)
                             : fail(CODA_E_MEMORY, "out of memory for kernels of %d plans", plans);
    if (!status) status = kernels_load(&all, opt);
    if (!status) status = known_add(t, &all);
    kernels_free(&all);
    arena_free(&all.arena);
    return status;
}

int known_count(struct known *t)
{
    pthread_mutex_lock(&t->lock);
    int n = t->entries;
    pthread_mutex_unlock(&t->lock);
    return n;
}
