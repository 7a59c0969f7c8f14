/*
 * stored.c -- the tensors that a quantised matrix is made of: each has the shape that the others want.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant.h"
#include "tensor.h"

/* A matrix while its tensors are looked for. */
struct search {
    const struct quant_config *q;
    const struct checkpoint *c;
    const char *name;
    struct stored_matrix *m;
    struct fault *f;
};

static int64_t over(int64_t n, int64_t by) { return (n + by - 1) / by; }

static bool is(const struct stored_tensor *t, const char *type) { return t && !strcmp(t->type, type); }
static bool is_plain(const struct stored_tensor *t) { return t && t->dtype; }

/* NULL if there is none. */
static const struct stored_tensor *look(const struct search *s, const char *suffix)
{
    char name[192];
    snprintf(name, sizeof name, "%s%s", s->name, suffix);
    return checkpoint_find(s->c, name);
}

static const struct stored_tensor *use(const struct search *s, const char *suffix)
{
    const struct stored_tensor *t = look(s, suffix);
    return t ? checkpoint_use(s->c, t->name) : NULL;
}

/* Of the two that there may be. */
static const struct stored_tensor *either(const struct search *s, const char *first, const char *second)
{
    const struct stored_tensor *t = use(s, first);
    return t ? t : use(s, second);
}

/* The first of them is the name in messages. */
static const struct stored_tensor *need(const struct search *s, const char *first, const char *second)
{
    const struct stored_tensor *t = either(s, first, second);
    if (!t)
        fault_set(s->f, "tensor %.100s%s is missing, which %.100s wants", s->name, first, s->m->codes->name);
    return t;
}

/* One in a type that is supported there. */
static bool wrong_type(const struct search *s, const struct stored_tensor *t, const char *others)
{
    return fault_set(s->f, "tensor %.150s: %s is not supported there: %s", t->name, t->type, others);
}

static bool has_shape(const struct search *s, const struct stored_tensor *t, int64_t rows, int64_t columns)
{
    if (t->rank == 2 && t->dims[0] == rows && t->dims[1] == columns) return true;
    return fault_set(
        s->f, "tensor %.120s: rank %d and %lld x %lld, where a matrix of %lld x %lld wants %lld x %lld",
        t->name, t->rank, t->rank ? (long long)t->dims[0] : 1, t->rank > 1 ? (long long)t->dims[1] : 1,
        (long long)s->m->rows, (long long)s->m->columns, (long long)rows, (long long)columns);
}

float stored_number(const struct stored_tensor *t, int64_t i)
{
    uint16_t half;
    float whole;
    if (t->dtype == CODA_F32) return memcpy(&whole, t->data + 4 * i, sizeof whole), whole;
    memcpy(&half, t->data + 2 * i, sizeof half);
    return t->dtype == CODA_F16 ? float_of_f16(half) : float_of_bits((uint32_t)half << 16);
}

/* ---- The config ---- */

/* Columns of a scale where there are `scales` of a row, by the config. -1, and a fault, if it has no such. */
static int group_of(const struct search *s, const struct stored_tensor *t, int64_t scales)
{
    int64_t columns = s->m->columns;
    bool known = false;
    for (int i = 0; i < s->q->rules; i++) {
        const struct quant_rule *r = &s->q->rule[i];
        if (r->bits != s->m->bits || r->block_rows) continue;
        known = true;
        if (over(columns, r->group ? r->group : columns) == scales) return r->group < columns ? r->group : 0;
    }
    if (known || !s->q->rules)
        fault_set(s->f,
                  "tensor %.120s: %lld scales for %lld columns, which quantization_config does not have",
                  t->name, (long long)scales, (long long)columns);
    else
        fault_set(s->f, "tensor %.120s: %d bits, which quantization_config does not have", t->name,
                  s->m->bits);
    return -1;
}

/* Whether the config has weights of this kind at all. */
static bool described(const struct search *s, bool floating)
{
    const struct stored_tensor *t = s->m->codes;
    if (s->q->method == QUANT_NONE)
        return fault_set(s->f, "tensor %.120s: %s is not supported without a quantization_config", t->name,
                         t->type);
    for (int i = 0; i < s->q->rules; i++)
        if (s->q->rule[i].floating == floating && s->q->rule[i].bits == s->m->bits) return true;
    return fault_set(s->f, "tensor %.120s: %s of %d bits, which quantization_config does not have", t->name,
                     floating ? "float" : "int", s->m->bits);
}

/* ---- 8 bits ---- */

/* A block's rows and columns by the config whose numbers of blocks are the scales'. */
static bool blocks(const struct search *s, const struct stored_tensor *t)
{
    struct stored_matrix *m = s->m;
    for (int i = 0; i < s->q->rules; i++) {
        const struct quant_rule *r = &s->q->rule[i];
        if (!r->block_rows || !r->floating || t->rank != 2 || t->dims[0] != over(m->rows, r->block_rows) ||
            t->dims[1] != over(m->columns, r->block_columns))
            continue;
        m->layout = STORED_BLOCKS;
        m->block_rows = r->block_rows;
        m->group = r->block_columns;
        return true;
    }
    return fault_set(s->f,
                     "tensor %.120s: %lld x %lld scales for %lld x %lld, which quantization_config does not "
                     "have",
                     t->name, t->rank ? (long long)t->dims[0] : 1, t->rank > 1 ? (long long)t->dims[1] : 1,
                     (long long)m->rows, (long long)m->columns);
}

/* Of int8: for groups of columns, or rows with zero points. */
static bool whole_groups(const struct search *s)
{
    struct stored_matrix *m = s->m;
    const struct stored_tensor *t = m->scales, *z = m->zeros;
    int64_t scales = t->rank == 2 ? t->dims[1] : 1;
    m->layout = STORED_COMPRESSED;
    m->group = group_of(s, t, scales);
    if (m->group < 0 || (t->rank == 2 && !has_shape(s, t, m->rows, scales))) return false;
    if (t->rank != 2)
        return fault_set(s->f, "tensor %.120s: rank %d, where 2 is supported", t->name, t->rank);
    if (z && !is(z, "I8")) return wrong_type(s, z, "I8 is");
    return !z || has_shape(s, z, m->rows, scales);
}

/* NAME.weight of 8 bits; its scales one number, one for each row, or of blocks. */
static bool find_bytes(struct search *s)
{
    struct stored_matrix *m = s->m;
    bool whole = is(m->codes, "I8");
    m->bits = 8;
    if (!described(s, !whole) || !has_shape(s, m->codes, m->rows, m->columns) ||
        !(m->scales = need(s, ".weight_scale", ".weight_scale_inv")))
        return false;
    const struct stored_tensor *t = m->scales;
    if (!is_plain(t)) return wrong_type(s, t, "F32, F16 or BF16 are");
    m->zeros = whole ? use(s, ".weight_zero_point") : NULL;
    int64_t count = stored_elements(t);
    bool row = count == m->rows && (t->rank == 1 || (t->rank == 2 && t->dims[1] == 1));
    m->layout = STORED_SCALED;
    m->dtype = whole ? CODA_I8 : is(m->codes, "F8_E4M3") ? CODA_F8E4M3 : CODA_F8E5M2;
    if (whole && (m->zeros || (count != 1 && !row))) return whole_groups(s);
    return count == 1 || row || blocks(s, t);
}

/* ---- 4 bits of floats ---- */

/* Elements 2 j and 2 j + 1 in byte j. */
static bool find_e2m1(struct search *s, const char *factor, bool divisor)
{
    struct stored_matrix *m = s->m;
    m->bits = 4;
    if (!described(s, true) || !(m->scales = need(s, ".weight_scale", ".weight_scale"))) return false;
    bool nv = is(m->scales, "F8_E4M3"), mx = is(m->scales, "U8") || is(m->scales, "F8_E8M0");
    if (!nv && !mx) return wrong_type(s, m->scales, "F8_E4M3 and U8 are");
    m->layout = nv ? STORED_NVFP4 : STORED_MXFP4;
    m->group = nv ? 16 : 32;
    if (m->columns % m->group)
        return fault_set(s->f, "tensor %.120s: %lld columns are no groups of %d", m->codes->name,
                         (long long)m->columns, m->group);
    if (!has_shape(s, m->codes, m->rows, m->columns / 2) ||
        !has_shape(s, m->scales, m->rows, m->columns / m->group))
        return false;
    if (!nv) return true;
    if (!(m->factor = need(s, factor, factor))) return false;
    m->divisor = divisor;
    if (m->factor->dtype != CODA_F32) return wrong_type(s, m->factor, "F32 is");
    return stored_elements(m->factor) == 1 ||
           fault_set(s->f, "tensor %.120s: %lld numbers, where one is wanted", m->factor->name,
                     (long long)stored_elements(m->factor));
}

/* ---- 4 and 8 bits of integers, in words ---- */

/* g_idx: a group of each column, or -1 throughout: they are in order. */
static bool find_order(struct search *s, const char *suffix, int64_t scales)
{
    struct stored_matrix *m = s->m;
    const struct stored_tensor *t = use(s, suffix);
    bool in_order = true;
    int64_t none = 0;
    if (!t) return true;
    if (!is(t, "I32")) return wrong_type(s, t, "I32 is");
    if (t->rank != 1 || t->dims[0] != m->columns)
        return fault_set(s->f, "tensor %.120s: %lld numbers for %lld columns", t->name,
                         (long long)stored_elements(t), (long long)m->columns);
    for (int64_t k = 0; k < m->columns; k++) {
        int32_t g;
        memcpy(&g, t->data + 4 * k, sizeof g);
        none += g == -1;
        if (g != -1 && (g < 0 || g >= scales))
            return fault_set(s->f, "tensor %.120s: column %lld is of group %d of %lld", t->name, (long long)k,
                             (int)g, (long long)scales);
        in_order = in_order && g == (m->group ? k / m->group : 0);
    }
    if (none && none < m->columns)
        return fault_set(s->f, "tensor %.120s: %lld columns of %lld are of no group", t->name,
                         (long long)none, (long long)m->columns);
    m->order = none || in_order ? NULL : t;
    return true;
}

/* weight_shape, I64, says what the config does. */
static bool shape_agrees(struct search *s)
{
    const struct stored_tensor *t = use(s, ".weight_shape");
    int64_t dims[2] = {0};
    if (!t) return true;
    if (!is(t, "I64") && !is(t, "I32")) return wrong_type(s, t, "I64 is");
    if (stored_elements(t) != 2) return fault_set(s->f, "tensor %.120s: no two numbers", t->name);
    for (int i = 0; i < 2; i++) {
        int32_t whole;
        memcpy(&whole, t->data + 4 * i, sizeof whole);
        if (t->block_bytes == 4) dims[i] = whole;
        else memcpy(&dims[i], t->data + 8 * i, sizeof *dims);
    }
    return (dims[0] == s->m->rows && dims[1] == s->m->columns) ||
           fault_set(s->f, "tensor %.120s: %lld x %lld, where the config wants %lld x %lld", t->name,
                     (long long)dims[0], (long long)dims[1], (long long)s->m->rows, (long long)s->m->columns);
}

/* Of 4 bits or 8, by how many words a row or a column has; 0: neither. */
static int bits_of(int64_t elements, int64_t words)
{
    return words == over(elements, 8) ? 4 : words == over(elements, 4) ? 8 : 0;
}

static bool find_compressed(struct search *s)
{
    struct stored_matrix *m = s->m;
    m->layout = STORED_COMPRESSED;
    m->bits = m->codes->rank == 2 ? bits_of(m->columns, m->codes->dims[1]) : 0;
    if (!m->bits) return has_shape(s, m->codes, m->rows, over(m->columns, 8));
    if (!described(s, false) || !shape_agrees(s) || !has_shape(s, m->codes, m->rows, m->codes->dims[1]) ||
        !(m->scales = need(s, ".weight_scale", ".weight_scale")))
        return false;
    int64_t scales = m->scales->rank == 2 ? m->scales->dims[1] : 1;
    if (!is_plain(m->scales)) return wrong_type(s, m->scales, "F32, F16 or BF16 are");
    if (!has_shape(s, m->scales, m->rows, scales) || (m->group = group_of(s, m->scales, scales)) < 0)
        return false;
    m->zeros = use(s, ".weight_zero_point");
    if (m->zeros && !is(m->zeros, "I32")) return wrong_type(s, m->zeros, "I32 is");
    if (m->zeros && !has_shape(s, m->zeros, over(m->rows, 32 / m->bits), scales)) return false;
    return find_order(s, ".weight_g_idx", scales);
}

/* qweight, of GPTQ along columns, of AWQ along rows; qzeros of both along rows. */
static bool find_words(struct search *s)
{
    struct stored_matrix *m = s->m;
    bool awq = s->q->method == QUANT_AWQ;
    m->layout = awq ? STORED_AWQ : STORED_GPTQ;
    m->zeros_as_they_are = awq || s->q->zeros_as_they_are;
    m->bits = m->codes->rank != 2 ? 0
              : awq               ? bits_of(m->rows, m->codes->dims[1])
                                  : bits_of(m->columns, m->codes->dims[0]);
    if (!m->bits || m->rows % 8 || m->columns % 8)
        return fault_set(s->f, "tensor %.120s: it has no %s bits for a matrix of %lld x %lld", m->codes->name,
                         awq ? "4" : "4 or 8", (long long)m->rows, (long long)m->columns);
    int64_t words = m->rows * m->bits / 32;
    if (!described(s, false) || !(m->scales = need(s, ".scales", ".scales")) ||
        !(m->zeros = need(s, ".qzeros", ".qzeros")))
        return false;
    if (!(awq ? has_shape(s, m->codes, m->columns, words)
              : has_shape(s, m->codes, m->columns * m->bits / 32, m->rows)))
        return false;
    int64_t scales = m->scales->rank == 2 ? m->scales->dims[0] : 1;
    if (!is_plain(m->scales)) return wrong_type(s, m->scales, "F32, F16 or BF16 are");
    if (!is(m->zeros, "I32")) return wrong_type(s, m->zeros, "I32 is");
    if (!has_shape(s, m->scales, scales, m->rows) || !has_shape(s, m->zeros, scales, words) ||
        (m->group = group_of(s, m->scales, scales)) < 0)
        return false;
    return awq || find_order(s, ".g_idx", scales);
}

/* ---- GGUF ---- */

/* Types that coda_pack takes; others are refused by name. */
static bool find_gguf(struct search *s)
{
    static const char *const all[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1",  "Q8_0",
                                      "Q4_K", "Q5_K", "Q6_K", "MXFP4", "NVFP4"};
    struct stored_matrix *m = s->m;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!is(m->codes, all[i])) continue;
        m->layout = STORED_GGUF;
        m->factor = is(m->codes, "NVFP4") ? use(s, ".scale") : NULL;
        if (m->factor && (m->factor->dtype != CODA_F32 || stored_elements(m->factor) != 1))
            return fault_set(s->f, "tensor %.120s: it is no number of F32", m->factor->name);
        return has_shape(s, m->codes, m->rows, m->columns);
    }
    return fault_set(
        s->f,
        "tensor %.120s: %s is not supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, "
        "Q5_K, Q6_K, MXFP4 and NVFP4 are",
        m->codes->name, m->codes->type);
}

bool stored_find(const struct quant_config *q, const struct checkpoint *c, const char *name, int64_t rows,
                 int64_t columns, struct stored_matrix *out, struct fault *f)
{
    struct search s = {q, c, name, out, f};
    *out = (struct stored_matrix){.rows = rows, .columns = columns};
    if ((out->codes = use(&s, ".weight_packed")))
        return is(out->codes, "I32")  ? find_compressed(&s)
               : is(out->codes, "U8") ? find_e2m1(&s, ".weight_global_scale", true)
                                      : wrong_type(&s, out->codes, "I32 and U8 are");
    if ((out->codes = use(&s, ".qweight")))
        return q->method != QUANT_GPTQ && q->method != QUANT_AWQ
                   ? fault_set(f, "tensor %.120s: quantization_config is neither gptq's nor awq's",
                               out->codes->name)
               : is(out->codes, "I32") ? find_words(&s)
                                       : wrong_type(&s, out->codes, "I32 is");
    out->codes = use(&s, ".weight");
    if (!out->codes) return fault_set(f, "tensor %.150s.weight is missing", name);
    if (is_plain(out->codes)) return true;
    if (is(out->codes, "F8_E4M3") || is(out->codes, "F8_E5M2") || is(out->codes, "I8")) return find_bytes(&s);
    if (is(out->codes, "U8")) return find_e2m1(&s, ".weight_scale_2", false);
    return find_gguf(&s);
}
