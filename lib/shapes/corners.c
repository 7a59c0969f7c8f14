/* corners.c -- see corners.h. */
#include "corners.h"

#include "base.h"

enum choice { LARGE, SMALL, ZERO, CHOICES };

/* Bit 0 of k: one step below; then two bits for each symbol, and for all behind MOST_SMALL. */
static enum choice choice_of(int k, int symbol)
{
    return k >> (1 + CHOICE_BITS * MIN(symbol, MOST_SMALL)) & 3;
}

static bool may_be_zero(const struct dims *t, int symbol)
{
    int end = symbol < MOST_SMALL ? symbol + 1 : t->symbols;
    bool may = false;
    for (int i = symbol; i < MIN(end, t->symbols); i++) may = may || !t->symbol[i].least;
    return may;
}

/* Is it one for these symbols? 0 counts where the least value but 0 is another one. */
static bool is_choice(const struct dims *t, int k)
{
    bool alike = true;
    for (int i = 0; i <= MOST_SMALL; i++) {
        enum choice c = choice_of(k, i);
        if (c == CHOICES || (i >= t->symbols && c != LARGE)) return false;
        if (c == ZERO && !may_be_zero(t, i)) return false;
        alike = alike && (i == MOST_SMALL || c == choice_of(k, 0));
    }
    return alike || choice_of(k, MOST_SMALL) == LARGE;
}

bool corner_shape(const struct dims *t, int k, int64_t *dims)
{
    for (int i = 0; i < t->symbols; i++) {
        const struct symbol *s = &t->symbol[i];
        const int64_t value[] = {
            [LARGE] = s->most - k % 2 * s->multiple, [SMALL] = s->multiple, [ZERO] = 0, [CHOICES] = 0};
        dims[i] = MAX(s->least, MIN(value[choice_of(k, i)], s->most));
    }
    return is_choice(t, k);
}

/* ---- Near a shape ---- */

enum { STEPS = 5 }; /* 16 units, 8, .., 1; bit 0 of k: down */

int neighbors(const struct dims *t) { return 2 * STEPS * (1 + t->symbols); }

bool neighbor_shape(const struct dims *t, const int64_t *dims, int k, int64_t *out)
{
    int units = 16 >> k / 2 % STEPS, symbol = k / (2 * STEPS) - 1; /* -1: all */
    bool moved = false;
    for (int i = 0; i < t->symbols; i++) {
        const struct symbol *s = &t->symbol[i];
        int64_t value = dims[i] + (k % 2 ? -units : units) * s->multiple;
        bool moves = (symbol < 0 || symbol == i) && s->least <= value && value <= s->most;
        out[i] = moves ? value : dims[i];
        moved = moved || moves;
    }
    return moved;
}
