/* target.c -- which row of targets.def a plan is made by, and what a card's driver changes of it. */
#include "target.h"

#include <string.h>

#define TARGET(id, name_, arch, features_, sms_, shared, clock, l2size, l2, rate, memory, wgmma_, mma_,      \
               cluster, clustered_)                                                                          \
    [TARGET_##id] = {.name = name_,                                                                          \
                     .l2_size = l2size,                                                                      \
                     .memory_rate = rate,                                                                    \
                     .memory_bytes = memory,                                                                 \
                     .clustered = clustered_,                                                                \
                     .features = features_,                                                                  \
                     .sms = sms_,                                                                            \
                     .shared_bytes = shared,                                                                 \
                     .clock_mhz = clock,                                                                     \
                     .l2_bytes = l2,                                                                         \
                     .wgmma = wgmma_,                                                                        \
                     .mma = mma_,                                                                            \
                     .cluster_bytes = cluster},
const struct target target_rows[TARGETS] = {
#include "targets.def"
};
#undef TARGET

#define TARGET(id, name, arch, ...) [TARGET_##id] = arch,
static const char *const arch_of[TARGETS] = {
#include "targets.def"
};
#undef TARGET

static bool in_word(char c)
{
    char letter = (char)(c | ('a' - 'A'));
    return (letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9');
}

/* Is `word` in `text` as a word: H20 is none of H200? */
static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at++) {
        bool begins = at == text || !in_word(at[-1]);
        if (begins && !in_word(at[length])) return true;
    }
    return false;
}

/* -1: there is none. */
static int row_of(const char *arch, const char *name)
{
    for (int i = 0; i < TARGETS; i++)
        if (!strcmp(arch_of[i], arch) && (!name || has_word(name, target_rows[i].name))) return i;
    return -1;
}

/* Memory gives as much of its rate as on the row's card. */
static void take_memory(struct target *t, const struct target_card *card, int sms)
{
    double share = t->memory_rate / sms, own = card->memory_rate / t->sms;
    t->memory_bytes *= own / share;
    t->memory_rate = card->memory_rate;
}

struct target target_of(const char *arch, const struct target_card *card)
{
    int named = card ? row_of(arch, card->name) : -1, row = named >= 0 ? named : row_of(arch, NULL);
    struct target t = target_rows[row >= 0 ? row : 0];
    int sms = t.sms;
    if (row < 0) t.features = 0;
    if (!card) return t;
    if (card->sms > 0) t.sms = card->sms;
    if (card->shared_bytes > 0) t.shared_bytes = card->shared_bytes;
    if (named >= 0) return t;
    if (card->l2_size > 0) t.l2_size = card->l2_size;
    if (card->memory_rate > 0) take_memory(&t, card, sms);
    return t;
}
