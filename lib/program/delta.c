/* delta.c -- the gated delta rule as a program, or as two: their work, their text. */
#include "delta.h"

#include <string.h>

#include "guards.h"
#include "own.h"
#include "target.h"

static bool is_packed(const struct delta_spec *s) { return s->use[DELTA_STARTS].buffer >= 0; }

static int64_t rows_of(const struct delta_spec *s)
{
    return mul_counts(is_packed(s) ? 1 : s->sequences, s->time);
}

/* ---- Two programs ---- */

/* Do rows come by 16 bytes? */
static bool comes_by_pieces(const struct tensor_use *u)
{
    enum { PIECE = 8 };
    return u->dtype == CODA_BF16 && extent_is_multiple(u->offset, PIECE) &&
           extent_is_multiple(u->stride[0], PIECE) && extent_is_multiple(u->stride[1], PIECE);
}

bool delta_prepares(const struct delta_spec *s, bool invariant, const struct target *t)
{
    bool good = target_has(t, TARGET_WGMMA) && !invariant && !s->by_row && s->values % DELTA_SLICE == 0;
    good = good && (s->keys == 64 || s->keys == 128);
    for (int i = DELTA_Q; i <= DELTA_V; i++) good = good && comes_by_pieces(&s->use[i]);
    return good && extent_reaches(s->sequences, 1) &&
           extent_reaches(s->time, mul_counts(DELTA_LEAST_CHUNK, is_packed(s) ? s->sequences : 1));
}

bool delta_prepares_p(const struct delta_spec *s, const struct target *t)
{
    int64_t blocks = mul_counts(s->heads, s->values / (2 * DELTA_SLICE));
    return s->values % (2 * DELTA_SLICE) || !extent_reaches(mul_counts(s->sequences, blocks), t->sms);
}

static int64_t of_token(const struct delta_spec *s)
{
    return (s->with_p ? DELTA_PREPARED_P : DELTA_PREPARED) / DELTA_CHUNK;
}

/* As if all sequences had their last chunk in part, but without a division: a polynomial. */
int64_t delta_prepared_bytes(const struct delta_spec *s)
{
    int64_t rows = is_packed(s) ? add_counts(s->time, mul_counts(DELTA_CHUNK, s->sequences))
                                : mul_counts(s->sequences, add_counts(s->time, DELTA_CHUNK));
    return mul_counts(mul_counts(rows, s->heads), of_token(s));
}

struct delta_spec delta_of_prepare(const struct delta_prepare_spec *s)
{
    struct delta_spec of = s->of;
    memcpy(of.use, s->use, sizeof of.use);
    return of;
}

static int64_t chunk_bytes(const struct delta_spec *s)
{
    return mul_counts(mul_counts(rows_of(s), s->heads), of_token(s));
}

/* ---- Their work ---- */

static int64_t bytes(const void *spec)
{
    const struct delta_spec *s = spec;
    int64_t state = mul_counts(s->heads, mul_counts(s->keys, s->values)), tokens = rows_of(s);
    const int64_t row[DELTA_USES] = {[DELTA_Q] = s->key_heads * s->keys,
                                     [DELTA_K] = s->key_heads * s->keys,
                                     [DELTA_V] = s->heads * s->values,
                                     [DELTA_DECAY] = s->prepared ? 0 : s->heads * (s->by_row ? s->keys : 1),
                                     [DELTA_BETA] = s->heads,
                                     [DELTA_O] = s->heads * s->values};
    int64_t all = s->prepared ? chunk_bytes(s) : 0;
    for (int i = 0; i < DELTA_USES; i++) {
        bool is_state = i == DELTA_BEFORE || i == DELTA_AFTER;
        int64_t n = is_state ? mul_counts(s->sequences, state) : mul_counts(tokens, row[i]);
        if (i == DELTA_STARTS) n = s->sequences + 1;
        if (s->use[i].buffer >= 0) all = add_counts(all, dtype_bytes(s->use[i].dtype, n));
    }
    if (s->gates) all = add_counts(all, dtype_bytes(CODA_F32, mul_counts(2, s->heads)));
    if (s->gated) all = add_counts(all, dtype_bytes(s->z.dtype, mul_counts(tokens, row[DELTA_V])));
    return all;
}

/* k S, q S and k^T e. */
static double flops(const void *spec)
{
    const struct delta_spec *s = spec;
    return 6.0 * (double)rows_of(s) * (double)s->heads * (double)s->keys * (double)s->values;
}

static void print(const void *spec, struct text *t)
{
    const struct delta_spec *s = spec;
    bool packed = is_packed(s);
    text_printf(t, "delta heads=%lld key_heads=%lld keys=%lld values=%lld sequences=%lld %s=%lld",
                (long long)s->heads, (long long)s->key_heads, (long long)s->keys, (long long)s->values,
                (long long)s->sequences, packed ? "packed" : "time", (long long)s->time);
    text_printf(t, " scale=%a%s", (double)s->scale, s->by_row ? " by_row" : "");
    if (s->norm) text_printf(t, " norm eps=%a", (double)s->eps);
    if (s->prepared) text_append(t, " prepared");
    if (s->with_p) text_append(t, " with P");
    if (s->gates) text_printf(t, " gates factor=%a", (double)s->factor);
    if (s->gated) text_printf(t, " gated inv_n=%a eps=%a", (double)s->inv_n, (double)s->norm_eps);
}

/* What decays are made of besides rows, and what is behind o. */
static struct tensor_use *extra(void *spec, int i)
{
    struct delta_spec *s = spec;
    struct tensor_use *all[] = {&s->bias, &s->rate, &s->z, &s->gain};
    return (i < 2 ? s->gates : s->gated) ? all[i] : NULL;
}

static const char *const shown[DELTA_USES] = {
    [DELTA_Q] = "q",         [DELTA_K] = "k",       [DELTA_V] = "v",
    [DELTA_DECAY] = "decay", [DELTA_BETA] = "beta", [DELTA_BEFORE] = "before",
    [DELTA_STARTS] = "by",   [DELTA_O] = "to",      [DELTA_AFTER] = "to"};

const struct own_kind own_delta = {.index = OWN_DELTA,
                                   .op = OP_DELTA,
                                   .name = "delta",
                                   .size = sizeof(struct delta_spec),
                                   .shown = DELTA_USES + 4,
                                   .use_name = shown,
                                   .extra_name = {"bias", "rate", "z", "gain"},
                                   .bytes = bytes,
                                   .flops = flops,
                                   .extra = extra,
                                   .print = print};

static int64_t prepare_bytes(const void *spec)
{
    const struct delta_spec s = delta_of_prepare(spec);
    int64_t keys = mul_counts(rows_of(&s), mul_counts(s.key_heads, s.keys)),
            gates = mul_counts(rows_of(&s), s.heads);
    int64_t all =
        add_counts(chunk_bytes(&s), mul_counts(s.with_p ? 2 : 1, dtype_bytes(s.use[DELTA_K].dtype, keys)));
    all = add_counts(all, dtype_bytes(s.use[DELTA_DECAY].dtype, gates));
    return add_counts(all, dtype_bytes(s.use[DELTA_BETA].dtype, gates));
}

/* k k^T of a chunk, and q k^T. */
static double prepare_flops(const void *spec)
{
    const struct delta_spec s = delta_of_prepare(spec);
    return (s.with_p ? 4.0 : 2.0) * DELTA_CHUNK * (double)rows_of(&s) * (double)s.heads * (double)s.keys;
}

static void print_prepare(const void *spec, struct text *t)
{
    const struct delta_spec s = delta_of_prepare(spec);
    text_append(t, "prepare ");
    print(&s, t);
}

const struct own_kind own_delta_prepare = {.index = OWN_DELTA_PREPARE,
                                           .op = OP_DELTA,
                                           .name = "delta_prepare",
                                           .size = sizeof(struct delta_prepare_spec),
                                           .shown = DELTA_USES,
                                           .use_name = shown,
                                           .bytes = prepare_bytes,
                                           .flops = prepare_flops,
                                           .print = print_prepare};
