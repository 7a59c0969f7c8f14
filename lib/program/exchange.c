/* exchange.c -- what ranks add up or put together, as a program: its work, its text. */
#include "exchange.h"
#include "own.h"

_Static_assert((int)REDUCE_SCATTER_USES == ALL_REDUCE_USES && (int)ALL_GATHER_USES == ALL_REDUCE_USES,
               "one struct");

bool exchange_is_order(const struct program *q, const struct tensor_use *u)
{
    const struct exchange_spec *s = q->spec;
    return q->own == &own_exchange && u == &s->use[ALL_REDUCE_BEFORE];
}

static int64_t elements(const struct exchange_spec *s)
{
    return mul_counts(mul_counts(s->outer, s->extent), s->inner);
}

/* Each rank reads what it needs of the others, and writes its result. */
static int64_t bytes(const void *spec)
{
    const struct exchange_spec *s = spec;
    int64_t x = elements(s), all = mul_counts(x, s->ranks);
    int64_t moved = s->op == OP_ALL_REDUCE       ? add_counts(all, x)
                    : s->op == OP_REDUCE_SCATTER ? add_counts(x, x / s->ranks)
                                                 : mul_counts(2, all);
    return dtype_bytes(s->use[ALL_REDUCE_X].dtype, moved);
}

/* ---- Our kernels ---- */

enum {
    PIECE = 16,
    CARRIED = 12,          /* bytes of a piece, where a piece says more */
    PUSH_MOST = 2 << 20,   /* bytes that a rank sends in one trip, where two send fewer */
    GATHER_MOST = 4 << 20, /* of a rank; more than a piece carries has its price */
};

static int64_t own_bytes(const struct exchange_spec *s)
{
    int64_t n = s->op == OP_REDUCE_SCATTER ? elements(s) / s->ranks : elements(s);
    return dtype_bytes(s->use[ALL_REDUCE_X].dtype, n);
}

/* Does it gather words of 4 bytes? x and the result may be of another dtype. */
static bool gathers(const struct exchange_spec *s)
{
    const struct tensor_use *x = &s->use[ALL_REDUCE_X], *y = &s->use[ALL_REDUCE_SUM];
    int64_t run = dtype_bytes(x->dtype, mul_counts(s->extent, s->inner));
    return own_bytes(s) <= GATHER_MOST && !((run | use_start(x) | use_start(y)) % 4);
}

int exchange_trips(const struct exchange_spec *s, enum exchange_wish wish)
{
    if (wish == EXCHANGE_NCCL || s->ranks < 2 || s->ranks > EXCHANGE_MOST_RANKS) return 0;
    if (s->op == OP_ALL_GATHER) return gathers(s);
    if (s->op == OP_REDUCE_SCATTER || wish == EXCHANGE_PUSH) return 1;
    bool few = s->ranks == 2 || mul_counts(s->ranks - 1, own_bytes(s)) <= PUSH_MOST;
    return wish == EXCHANGE_TWO_SHOT || !few ? 2 : 1;
}

int64_t exchange_pieces(const struct exchange_spec *s, int trips)
{
    int64_t all = CEIL_DIV(own_bytes(s), s->op == OP_ALL_GATHER ? CARRIED : PIECE);
    return trips == 2 ? CEIL_DIV(all, s->ranks) : all;
}

int64_t exchange_area(const struct exchange_spec *s, int trips)
{
    int64_t sent = mul_counts(mul_counts(s->ranks - 1, trips), mul_counts(exchange_pieces(s, trips), PIECE));
    return CEIL_DIV(sent, 256) * 256;
}

/* ---- Copies ---- */

/* Bytes of a rank's. Words are faster where nothing runs beside, and take SMs from what does: rows of a 7B
 * layer in two pieces keep 0.92 of their pace beside copies of 8 MiB between two H200s, 0.87 beside words.
 *
 * Each of an exchange's three launches begins where a product ends, if products leave no SM. That is soon
 * where exchanges are small, as what they bring is wanted soon. Beside gradients of 64 MiB and more one SM
 * for those that wait is worth its part of the products: 0.84 of a step's pace, without it 0.81. */
enum { COPIES_LEAST = 2 << 20, COPIES_LARGE = 32 << 20 };

bool exchange_shares(const struct exchange_spec *s, enum exchange_wish wish)
{
    enum { MANY = 1 << 24 }; /* elements */
    bool large = wish == EXCHANGE_OWN && elements(s) >= MANY;
    return s->ranks == 2 && (large || wish == EXCHANGE_COPIES);
}

bool exchange_copies(const struct exchange_spec *s, enum exchange_wish wish, bool beside)
{
    if (s->moves) return true;
    bool whole = s->op == OP_ALL_REDUCE || (s->op == OP_REDUCE_SCATTER && s->outer == 1);
    bool wanted = wish == EXCHANGE_OWN && beside && s->ranks == 2 && own_bytes(s) >= COPIES_LEAST;
    return whole && (wanted || wish == EXCHANGE_COPIES) && s->ranks > 1 && s->ranks <= EXCHANGE_MOST_RANKS;
}

int64_t exchange_part(const struct exchange_spec *s)
{
    return s->op == OP_REDUCE_SCATTER ? elements(s) / s->ranks : elements(s);
}

int64_t exchange_stride(const struct exchange_spec *s) { return CEIL_DIV(own_bytes(s), 256) * 256; }

int exchange_copies_sms(const struct exchange_spec *s) { return own_bytes(s) >= COPIES_LARGE; }

static void print(const void *spec, struct text *t)
{
    const struct exchange_spec *s = spec;
    text_printf(t, "%s%s ranks=%lld outer=%lld extent=%lld inner=%lld", s->moves ? "moved " : "",
                op_info[s->op].text, (long long)s->ranks, (long long)s->outer, (long long)s->extent,
                (long long)s->inner);
}

static const char *const shown[ALL_REDUCE_USES] = {[ALL_REDUCE_X] = "of",
                                                   [ALL_REDUCE_GROUP] = "by",
                                                   [ALL_REDUCE_BEFORE] = "behind",
                                                   [ALL_REDUCE_SUM] = "to"};

const struct own_kind own_exchange = {.index = OWN_EXCHANGE,
                                      .op = OP_ALL_REDUCE,
                                      .like = {OP_REDUCE_SCATTER, OP_ALL_GATHER},
                                      .likes = 2,
                                      .name = "exchange",
                                      .size = sizeof(struct exchange_spec),
                                      .shown = ALL_REDUCE_USES,
                                      .use_name = shown,
                                      .bytes = bytes,
                                      .print = print};
