/* target.c -- which row of targets.def a plan is made by, and what a card's driver changes of it. */
#include "target.h"

#include <stdlib.h>
#include <string.h>

#define TARGET(id, arch, ...) [TARGET_##id] = {__VA_ARGS__},
const struct target target_rows[TARGETS] = {
#include "targets.def"
};
#undef TARGET

#define TARGET(id, arch, ...) [TARGET_##id] = arch,
static const char *const arch_of[TARGETS] = {
#include "targets.def"
};
#undef TARGET

static bool in_word(char c)
{
    char letter = (char)(c | ('a' - 'A'));
    return (letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9');
}

/* Is `word` in `text` as a word, not as a part of a longer one? */
static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at++) {
        bool begins = at == text || !in_word(at[-1]);
        if (begins && !in_word(at[length])) return true;
    }
    return false;
}

/* How far two architectures are apart, by the number of their compute capability. */
static int distance(const char *a, const char *b)
{
    return abs(atoi(a + strcspn(a, "0123456789")) - atoi(b + strcspn(b, "0123456789")));
}

static bool is_named(int row, const char *arch, const char *name)
{
    return !strcmp(arch_of[row], arch) && has_word(name, target_rows[row].name);
}

/* The row of that architecture with the card's name; else the first of the nearest architecture. */
static int row_of(const char *arch, const char *name)
{
    int nearest = 0;
    for (int i = 0; i < TARGETS; i++) {
        if (name && is_named(i, arch, name)) return i;
        bool same = !strcmp(arch_of[i], arch) && strcmp(arch_of[nearest], arch);
        if (same || distance(arch_of[i], arch) < distance(arch_of[nearest], arch)) nearest = i;
    }
    return nearest;
}

/* A clock under load is as much of the highest one as on the row's card; and so is what memory gives of its
 * rate, in a clock of an SM. */
static void take_rates(struct target *t, const struct target_card *card, const struct target *row)
{
    if (card->boost_mhz > 0) {
        t->boost_mhz = card->boost_mhz;
        t->clock_mhz = (int)((int64_t)row->clock_mhz * card->boost_mhz / row->boost_mhz);
    }
    if (card->memory_rate > 0) t->memory_rate = card->memory_rate;
    double share = row->memory_rate / row->sms / row->clock_mhz;
    if (card->memory_rate > 0) t->memory_bytes *= t->memory_rate / t->sms / t->clock_mhz / share;
}

struct target target_of(const char *arch, const struct target_card *card)
{
    int at = row_of(arch, card ? card->name : NULL);
    const struct target *row = &target_rows[at];
    struct target t = *row;
    if (strcmp(arch_of[at], arch)) t.features = 0;
    if (!card) return t;
    if (card->sms > 0) t.sms = card->sms;
    if (card->shared_bytes > 0) t.shared_bytes = card->shared_bytes;
    if (is_named(at, arch, card->name)) return t;
    if (card->l2_size > 0) t.l2_size = card->l2_size;
    take_rates(&t, card, row);
    return t;
}
