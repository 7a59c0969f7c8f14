/* attr.c -- what ops.def says of each operation: its arity, the names of its operands, its results, and its
 * attributes by their place, which text form, equality and digests walk. */
#include "graph.h"

#include "guards.h"

#include <string.h>

/* ---- The table ---- */

_Static_assert(CODA_MAX_RANK == 6 && PRIM_MAX_PARAMS == 4, "DIMS and PARAMS name as many elements");

#define NONE
#define FLOAT(key) {#key, ATTR_FLOAT, offsetof(self, key)},
#define FACTOR(key) {#key, ATTR_FACTOR, offsetof(self, key)},
#define INT(key) {#key, ATTR_INTEGER, offsetof(self, key)},
#define RESULT(key) {#key, ATTR_RESULT, offsetof(self, key)},
#define EXTENT(key) {#key, ATTR_EXTENT, offsetof(self, key)},
#define DTYPE(key) {#key, ATTR_DTYPE, offsetof(self, key)},
#define FORMAT(key) {#key, ATTR_FORMAT, offsetof(self, key)},
#define EACH_DIM(kind, member, key)                                                                          \
    {#key "0", kind, offsetof(self, member[0])}, {#key "1", kind, offsetof(self, member[1])},                \
        {#key "2", kind, offsetof(self, member[2])}, {#key "3", kind, offsetof(self, member[3])},            \
        {#key "4", kind, offsetof(self, member[4])}, {#key "5", kind, offsetof(self, member[5])},
#define DIMS(member, key) EACH_DIM(ATTR_INTEGER, member, key)
#define EXTENTS(member, key) EACH_DIM(ATTR_EXTENT, member, key)
#define PARAM(member, k) {NULL, ATTR_FLOAT, offsetof(self, member[k])},
#define PARAMS(member) PARAM(member, 0) PARAM(member, 1) PARAM(member, 2) PARAM(member, 3)
#define OP(NAME, name, kind, operands, attributes, ...)                                                      \
    static struct attr_fields fields_of_##name(void)                                                         \
    {                                                                                                        \
        typedef struct attr_##name self;                                                                     \
        static const struct attr_field field[] = {attributes{NULL, ATTR_FLOAT, sizeof(self)}};               \
        return (struct attr_fields){field, ARRAY_SIZE(field) - 1};                                           \
    }
#include "ops.def"

/* ---- Operations ---- */

/* What each operand adds: one that a node must have, or that there is no most. */
enum { NEEDED = 1, ENDLESS = 1 << 16, NEEDED_OF = ENDLESS - 1 };
#define NONE
#define IN(ID, name, words) +NEEDED
#define OPT(ID, name, words)
#define MANY(words) +NEEDED + ENDLESS
#define AHEAD +ENDLESS
#define OP(NAME, name, kind, operands, ...) enum { ARITY_##NAME = 0 operands };
#include "ops.def"

#define NONE
#define MANY(words)
#define AHEAD
#define IN(ID, name, words) #name,
#define OPT(ID, name, words) #name,
#define OP(NAME, name, kind, operands, ...) static const char *const names_##name[] = {operands NULL};
#include "ops.def"

#define OP(NAME, op, how, ...)                                                                               \
    {.text = #op,                                                                                            \
     .kind = KIND_##how,                                                                                     \
     .least = ARITY_##NAME & NEEDED_OF,                                                                      \
     .most = ARITY_##NAME & ~NEEDED_OF ? INT32_MAX : NAME##_OPERANDS,                                        \
     .named = NAME##_OPERANDS,                                                                               \
     .results = NAME##_USES - NAME##_OPERANDS,                                                               \
     .name = names_##op,                                                                                     \
     .fields = fields_of_##op},
const struct op_info op_info[OP_COUNT] = {
#include "ops.def"
};

/* ---- One attribute ---- */

static const struct attr_field *field(const struct node *n, int k)
{
    return &op_info[n->op].fields().field[k];
}

static const void *place(const struct node *n, int k) { return (const char *)&n->attr + field(n, k)->at; }

int attr_own(const struct node *n)
{
    const struct attr_fields f = op_info[n->op].fields();
    int own = f.count;
    while (own && !f.field[own - 1].key) own--;
    return own;
}

bool op_takes_map(enum op op)
{
    const struct attr_fields f = op_info[op].fields();
    return !op_is_prim(op) && f.count && !f.field[f.count - 1].key;
}

int attr_count(const struct node *n) { return attr_own(n) + (n->prim ? n->prim->params : 0); }

const char *attr_key(const struct node *n, int k)
{
    const char *key = field(n, k)->key;
    return key ? key : n->prim->param_name[k - attr_own(n)];
}

enum attr_kind attr_kind(const struct node *n, int k) { return field(n, k)->kind; }

bool attr_is_float(const struct node *n, int k)
{
    return attr_kind(n, k) == ATTR_FLOAT || attr_kind(n, k) == ATTR_FACTOR;
}

float attr_float(const struct node *n, int k) { return *(const float *)place(n, k); }

int64_t attr_integer(const struct node *n, int k) { return *(const int64_t *)place(n, k); }

void attr_set_float(struct node *n, int k, float value) { *(float *)place(n, k) = value; }

void attr_set_integer(struct node *n, int k, int64_t value) { *(int64_t *)place(n, k) = value; }

uint64_t attr_bits(const struct node *n, int k)
{
    uint32_t bits;
    if (!attr_is_float(n, k)) return (uint64_t)attr_integer(n, k);
    memcpy(&bits, place(n, k), sizeof bits);
    return bits;
}

bool attr_equal(const struct node *a, const struct node *b)
{
    for (int k = 0; k < attr_count(a); k++)
        if (attr_kind(a, k) == ATTR_EXTENT ? !extents_equal(attr_integer(a, k), attr_integer(b, k))
                                           : attr_bits(a, k) != attr_bits(b, k))
            return false;
    return true;
}

/* ---- Results ---- */

int attr_result(const struct node *n)
{
    const struct attr_fields f = op_info[n->op].fields();
    int k = op_info[n->op].results > 1 ? f.count - 1 : -1;
    while (k >= 0 && f.field[k].kind != ATTR_RESULT) k--;
    return k;
}

int node_result(const struct node *n)
{
    int k = attr_result(n);
    return k < 0 ? 0 : (int)attr_integer(n, k);
}

void node_set_result(struct node *n, int result) { attr_set_integer(n, attr_result(n), result); }

bool node_same_call(const struct node *a, const struct node *b)
{
    struct node same = *b;
    bool alike = a->op == b->op && a->prim == b->prim && a->nin == b->nin && op_info[a->op].results > 1;
    if (!alike || memcmp(a->in, b->in, sizeof *a->in * (size_t)a->nin)) return false;
    node_set_result(&same, node_result(a));
    return attr_equal(a, &same);
}

/* ---- Pairs ---- */

enum { MOST_HEAD = 256 };

bool attr_pairs_meet(int64_t head_dim, int64_t rotary, bool half)
{
    if (head_dim <= 0 || rotary % 2 || head_dim % 2) return false;
    return !half || (rotary % 16 == 0 && head_dim % 16 == 0 && head_dim <= MOST_HEAD);
}
