/* infer_sequence.c -- the types of what knows positions: rotary embedding and attention. */
#include "infer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- Rotary embedding ---- */

enum { MOST_SECTIONS = 4 };

/* Sections are numbers in front of zeros; this is how many there are. */
static int section_count(const struct attr_rope *a)
{
    int count = 0;
    while (count < MOST_SECTIONS && a->section[count]) count++;
    return count;
}

/* Section i is among `count` of them; what it may have at most of so many frequencies. */
static coda_status check_section(const struct attr_rope *a, int i, int count, int64_t pairs)
{
    int64_t n = a->section[i], turns = pairs > i ? CEIL_DIV(pairs - i, count) : 0;
    if (i >= count ? n != 0 : n < 0)
        return fail(CODA_E_INVALID,
                    "rope: section%d is %" PRId64 "; sections are 2..%d positive numbers, then zeros", i, n,
                    MOST_SECTIONS);
    if (n > pairs)
        return fail(CODA_E_INVALID, "rope: section%d is %" PRId64 " of %" PRId64 " frequencies", i, n, pairs);
    if (i && a->interleave_sections && n > turns)
        return fail(CODA_E_INVALID,
                    "rope: section%d is %" PRId64 "; interleaved with %d others it has %" PRId64
                    " of %" PRId64 " frequencies at most",
                    i, n, count - 1, turns, pairs);
    return CODA_OK;
}

/* Each frequency is of one section. */
static coda_status check_sections(const struct node *n)
{
    const struct attr_rope *a = &n->attr.rope;
    int64_t pairs = a->rotary / 2, sum = 0;
    int count = section_count(a);
    coda_status s = need_range(n, "interleave_sections", a->interleave_sections, 0, 1);
    for (int i = 0; i < CODA_MAX_RANK && s == CODA_OK; i++) {
        s = check_section(a, i, MAX(count, 1), pairs);
        sum += s == CODA_OK ? a->section[i] : 0;
    }
    if (s != CODA_OK || (count == 0 && !a->interleave_sections)) return s;
    if (count < 2)
        return fail(CODA_E_INVALID, "rope: there are %d sections%s; must be 2..%d", count,
                    a->interleave_sections ? " to interleave" : "", MOST_SECTIONS);
    if (sum == pairs) return CODA_OK;
    return fail(CODA_E_INVALID,
                "rope: sections add up to %" PRId64 "; must be %" PRId64
                ", a frequency for each pair of %" PRId64 " columns",
                sum, pairs, a->rotary);
}

/* With sections, a position is a row of as many numbers. */
static coda_status check_section_positions(const struct type *x, const struct type *p, int count)
{
    if (!p) return fail(CODA_E_INVALID, "rope: %d sections, but no positions", count);
    bool rows = p->rank == x->rank && dims_equal(x, p, p->rank - 1);
    bool times = p->rank == 2 && p->dim[0] == x->dim[x->rank - 2];
    if (dtype_is_index(p->dtype) && (rows || times) && p->dim[p->rank - 1] == count) return CODA_OK;
    return fail(CODA_E_INVALID,
                "rope: x is %s and sections are %d but positions are %s; must be i32 or i64 with x's"
                " leading dimensions and %d columns, or [%s,%d]",
                dims_text(x).s, count, type_text(p).s, count, dim_text(x->dims, x->dim[x->rank - 2]).s,
                count);
}

static coda_status check_positions(const struct node *n, const struct type *x, const struct type *p)
{
    int count = section_count(&n->attr.rope);
    if (count) return check_section_positions(x, p, count);
    if (!p) return CODA_OK;
    bool rows = p->rank == x->rank - 1 && dims_equal(x, p, p->rank);
    bool times = p->rank == 1 && p->dim[0] == x->dim[x->rank - 2];
    if (dtype_is_index(p->dtype) && (rows || times)) return CODA_OK;
    return fail(CODA_E_INVALID,
                "%s: x is %s but positions are %s; must be i32 or i64 with x's leading dimensions"
                " or [%s]",
                node_word(n), dims_text(x).s, type_text(p).s, dim_text(x->dims, x->dim[x->rank - 2]).s);
}

static const float ROPE_BASE = 10000;

static coda_status check_frequencies(const struct node *n, const struct type *f)
{
    int64_t pairs = n->attr.rope.rotary / 2;
    if (!f || (f->dtype == CODA_F32 && f->rank == 1 && f->dim[0] == pairs)) return CODA_OK;
    return fail(CODA_E_INVALID,
                "rope: frequencies are %s; must be f32[%" PRId64 "], one for each pair of %" PRId64
                " columns",
                type_text(f).s, pairs, n->attr.rope.rotary);
}

coda_status infer_rope(const graph *g, struct node *n)
{
    const struct type *x = operand_type(g, n, ROPE_X);
    struct attr_rope *a = &n->attr.rope;
    coda_status s = need_float(n, ROPE_X, x, 2);
    if (s != CODA_OK) return s;
    int64_t columns = type_columns(x);
    if (!a->head_dim) a->head_dim = columns;
    if (a->head_dim < 1 || columns < 1 || columns % a->head_dim)
        return fail(CODA_E_INVALID, "rope: head_dim is %" PRId64 "; it must divide the %" PRId64 " columns",
                    a->head_dim, columns);
    if (!a->rotary) a->rotary = a->head_dim;
    if (a->base == 0) a->base = ROPE_BASE;
    if (!a->heads) a->heads = columns / a->head_dim;
    if (a->rotary < 2 || a->rotary % 2 || a->rotary > a->head_dim)
        return fail(CODA_E_INVALID, "rope: rotary is %" PRId64 "; it must be even, 2..head_dim (%" PRId64 ")",
                    a->rotary, a->head_dim);
    if ((s = need_range(n, "heads", a->heads, 1, columns / a->head_dim)) != CODA_OK) return s;
    if ((s = need_range(n, "half", a->half, 0, 1)) != CODA_OK) return s;
    if (!isfinite(a->base) || a->base < 1)
        return fail(CODA_E_INVALID, "rope: base is %g; it must be finite and >= 1", (double)a->base);
    if ((s = need_range(n, "inverse", a->inverse, 0, 1)) != CODA_OK) return s;
    if (!isfinite(a->scale))
        return fail(CODA_E_INVALID, "rope: scale is %g; it must be finite", (double)a->scale);
    n->type = *x;
    if ((s = check_sections(n)) != CODA_OK) return s;
    if ((s = check_frequencies(n, operand_type(g, n, ROPE_FREQUENCIES))) != CODA_OK) return s;
    return check_positions(n, x, operand_type(g, n, ROPE_POSITIONS));
}

/* ---- Attention ---- */

/* The sequences that q has queries of: one, a batch or, by starts, some that have rows of q each. */
struct sequences {
    int64_t count;
    bool batched;     /* have k and v a dimension for them? */
    const char *word; /* "q is" or "starts are", and their type, for messages */
    struct type_text type;
};

static coda_status find_sequences(const struct type *q, const struct type *starts, struct sequences *out)
{
    *out = (struct sequences){.count = q->rank == 3 ? q->dim[0] : 1, .batched = q->rank == 3 || starts};
    out->word = starts ? "starts are" : "q is";
    out->type = starts ? type_text(starts) : dims_text(q);
    if (!starts) return CODA_OK;
    if (q->rank != 2 || !dtype_is_index(starts->dtype) || starts->rank != 1 ||
        dims_least(starts->dims, starts->dim[0]) < 1)
        return fail(CODA_E_INVALID,
                    "attention: q is %s but starts are %s; q must be [T,columns], starts i32 or i64[B+1]",
                    dims_text(q).s, out->type.s);
    out->count = starts->dim[0] > 0 ? starts->dim[0] - 1 : dims_subtract(starts->dims, starts->dim[0], 1);
    return out->count == DIM_NONE ? fail_status() : CODA_OK;
}

/* What k or v would be if each key had a row of all heads; a failure if it cannot be. */
static coda_status rows_of_heads(const struct node *n, const struct type *q, const struct sequences *of,
                                 const struct type *k, struct type *out)
{
    const struct attr_attention *a = &n->attr.attention;
    coda_status s = need_range(n, "layout", a->layout, CODA_LAYOUT_NHD, CODA_LAYOUT_HND);
    *out = *k;
    if (s != CODA_OK || a->layout == CODA_LAYOUT_NHD) return s;
    if (k->rank != 4 || q->rank > 3 || (a->page ? k->dim[2] != a->page : k->dim[0] != of->count))
        return fail(CODA_E_INVALID,
                    "attention: %s %s, k %s, the page %" PRId64
                    "; of layout HND k is [B,kv_heads,Tk,head_dim],"
                    " or [pages,kv_heads,page,head_dim]",
                    of->word, of->type.s, dims_text(k).s, a->page);
    if (k->dim[1] != MAX(a->kv_heads ? a->kv_heads : a->heads, 1))
        return fail(CODA_E_INVALID, "attention: k is %s, of %s heads, but kv_heads is %" PRId64,
                    dims_text(k).s, dim_text(k->dims, k->dim[1]).s,
                    MAX(a->kv_heads ? a->kv_heads : a->heads, 1));
    *out = (struct type){.dtype = k->dtype, .rank = a->page || !of->batched ? 2 : 3, .dims = k->dims};
    out->dim[0] = out->rank == 3 ? k->dim[0] : dims_times(k->dims, k->dim[0], k->dim[2]);
    out->dim[out->rank - 2] = out->rank == 3 ? k->dim[2] : out->dim[0];
    out->dim[out->rank - 1] = mul_counts(k->dim[1], k->dim[3]);
    return out->dim[0] == DIM_NONE ? fail_status() : CODA_OK;
}

/* Do q and k, rows of all heads that lie one behind the other, have as many sequences? */
static coda_status check_keys(const struct type *q, const struct sequences *of, const struct type *k)
{
    if (q->rank <= 3 && k->rank == 2 + of->batched && (!of->batched || k->dim[0] == of->count))
        return CODA_OK;
    if (q->rank == 2 && of->batched)
        return fail(CODA_E_INVALID, "attention: %s %s but k is %s; must be [%s,Tk,columns]", of->word,
                    of->type.s, dims_text(k).s, dim_text(q->dims, of->count).s);
    return fail(
        CODA_E_INVALID,
        "attention: q is %s but k is %s; both must be [B,T,columns] or [T,columns], heads beside each other",
        dims_text(q).s, dims_text(k).s);
}

/* Head counts and columns of q, k and v. */
static coda_status check_heads(struct node *n, const struct type *q, const struct type *k)
{
    struct attr_attention *a = &n->attr.attention;
    int64_t *heads = &a->heads, *kv_heads = &a->kv_heads, columns = type_columns(q);
    if (!*heads) *heads = 1;
    if (!*kv_heads) *kv_heads = *heads;
    if (*heads < 1 || *kv_heads < 1 || *heads % *kv_heads)
        return fail(CODA_E_INVALID,
                    "attention: heads is %" PRId64 ", kv_heads %" PRId64
                    "; both positive, and kv_heads divides heads",
                    *heads, *kv_heads);
    if (columns < 1 || columns % *heads)
        return fail(CODA_E_INVALID, "attention: q is %s; %" PRId64 " heads must divide its columns",
                    dims_text(q).s, *heads);
    int64_t head_dim = columns / *heads; /* <= columns, and kv_heads <= heads: no overflow */
    if (type_columns(k) != head_dim * *kv_heads)
        return fail(CODA_E_INVALID,
                    "attention: k is %s; %" PRId64 " kv_heads of %" PRId64 " columns make %" PRId64,
                    dims_text(k).s, *kv_heads, head_dim, head_dim * *kv_heads);
    if (a->scale == 0) a->scale = 1.0f / sqrtf((float)head_dim);
    if (!isfinite(2 * a->scale)) /* times log2 e, too */
        return fail(CODA_E_INVALID, "attention: scale is %g; it must be finite, and so its double",
                    (double)a->scale);
    return CODA_OK;
}

enum { MOST_PAGE = 1 << 20, MOST_KEYS = 1 << 30 };

static coda_status check_lengths(const struct type *q, const struct sequences *of, const struct type *lengths)
{
    if (!lengths || (dtype_is_index(lengths->dtype) && lengths->rank == 1 && lengths->dim[0] == of->count))
        return CODA_OK;
    return fail(CODA_E_INVALID, "attention: %s %s but lengths are %s; must be i32 or i64[%s]", of->word,
                of->type.s, type_text(lengths).s, dim_text(q->dims, of->count).s);
}

static coda_status check_ranges(const struct type *q, const struct type *ranges)
{
    struct type want = *q;
    want.dim[q->rank - 1] = 2;
    if (!ranges ||
        (dtype_is_index(ranges->dtype) && ranges->rank == q->rank && dims_equal(ranges, &want, q->rank)))
        return CODA_OK;
    return fail(CODA_E_INVALID, "attention: q is %s but ranges are %s; must be i32 or i64%s", dims_text(q).s,
                type_text(ranges).s, dims_text(&want).s);
}

static coda_status check_of_heads(const graph *g, const struct node *n, int operand)
{
    const struct type *t = operand_type(g, n, operand);
    int64_t heads = n->attr.attention.heads;
    if (!t || (t->dtype == CODA_F32 && t->rank == 1 && t->dim[0] == heads)) return CODA_OK;
    return fail(CODA_E_INVALID, "attention: %s are %s; must be f32[%" PRId64 "], one for each head",
                op_info[n->op].name[operand], type_text(t).s, heads);
}

/* What k or v is multiplied by. */
static coda_status check_kv_scale(const graph *g, const struct node *n, int operand)
{
    const struct type *t = operand_type(g, n, operand);
    int64_t heads = n->attr.attention.kv_heads;
    if (!t || (t->dtype == CODA_F32 && t->rank == 1 && (t->dim[0] == 1 || t->dim[0] == heads)))
        return CODA_OK;
    return fail(CODA_E_INVALID,
                "attention: %s is %s; must be f32[1] or f32[%" PRId64 "], one for each key head",
                op_info[n->op].name[operand], type_text(t).s, heads);
}

/* What is added to scores: for all batches, heads, queries or keys where it has one of them. */
static coda_status check_bias(const struct node *n, const struct type *q, int64_t keys, const struct type *t)
{
    int64_t batch = q->rank == 3 ? q->dim[0] : 1;
    struct type all = {.dtype = CODA_F32, .rank = 4, .dims = q->dims};
    int64_t want[] = {batch, n->attr.attention.heads, q->dim[q->rank - 2], keys};
    if (!t) return CODA_OK;
    bool fits = (t->dtype == CODA_F32 || t->dtype == q->dtype) && t->rank >= 1 && t->rank <= 4;
    for (int i = 0; fits && i < t->rank; i++) fits = t->dim[i] == 1 || t->dim[i] == want[4 - t->rank + i];
    if (fits) return CODA_OK;
    all.rank = q->rank + 1;
    memcpy(all.dim, want + 4 - all.rank, sizeof *want * (size_t)all.rank);
    return fail(CODA_E_INVALID, "attention: bias is %s; must be f32%s%s, of rank 1..4, and broadcast to %s",
                type_text(t).s, q->dtype == CODA_F32 ? "" : " or ",
                q->dtype == CODA_F32 ? "" : dtype_name(q->dtype), dims_text(&all).s);
}

/* Pages of a pool [slots, columns]: the table says which are a sequence's. */
static coda_status check_pages(const struct node *n, const struct sequences *of, const struct type *k,
                               const struct type *table, bool lengths)
{
    int64_t page = n->attr.attention.page;
    if (!table && !page) return CODA_OK;
    if (!table || page < 1 || page > MOST_PAGE || (page & (page - 1)))
        return fail(CODA_E_INVALID,
                    "attention: page is %" PRId64 " %s a table; a table wants a power of two up to %d", page,
                    table ? "with" : "without", MOST_PAGE);
    if (!lengths) return fail(CODA_E_INVALID, "attention: pages of %" PRId64 " keys want lengths", page);
    if (!dtype_is_index(table->dtype) || table->rank != 2 || table->dim[0] != of->count)
        return fail(CODA_E_INVALID, "attention: %s %s but the table is %s; must be i32 or i64[%s,pages]",
                    of->word, of->type.s, type_text(table).s, dim_text(k->dims, of->count).s);
    if (k->rank != 2 || !dims_divides(k->dims, page, k->dim[0]) ||
        dims_most(table->dims, table->dim[1]) > MOST_KEYS / page)
        return fail(CODA_E_INVALID,
                    "attention: k is %s, the table %s; k must be [slots,columns] of whole pages of %" PRId64
                    ", and a sequence have %d keys at most",
                    dims_text(k).s, dims_text(table).s, page, MOST_KEYS);
    return CODA_OK;
}

/* What is read beside q, k and v. */
static coda_status check_beside(const graph *g, const struct node *n, const struct type *q,
                                const struct sequences *of)
{
    coda_status s = check_lengths(q, of, operand_type(g, n, ATTENTION_LENGTHS));
    if (s == CODA_OK) s = check_ranges(q, operand_type(g, n, ATTENTION_RANGES));
    if (s == CODA_OK) s = check_of_heads(g, n, ATTENTION_SLOPES);
    if (s == CODA_OK) s = check_of_heads(g, n, ATTENTION_SINKS);
    if (s == CODA_OK) s = check_kv_scale(g, n, ATTENTION_K_SCALE);
    if (s == CODA_OK) s = check_kv_scale(g, n, ATTENTION_V_SCALE);
    return s;
}

static coda_status check_limits(const struct node *n)
{
    const struct attr_attention *a = &n->attr.attention;
    coda_status s = need_range(n, "window", a->window, 0, INT32_MAX);
    if (s == CODA_OK) s = need_range(n, "causal", a->causal, 0, 1);
    if (s == CODA_OK) s = need_range(n, "ahead", a->ahead, 0, INT32_MAX);
    if (s != CODA_OK) return s;
    if (a->causal && a->ahead)
        return fail(CODA_E_INVALID, "attention: ahead is %" PRId64 "; causal queries see nothing ahead",
                    a->ahead);
    if (!isfinite(a->softcap) || a->softcap < 0)
        return fail(CODA_E_INVALID, "attention: softcap is %g; must be finite, and 0 or more",
                    (double)a->softcap);
    return CODA_OK;
}

/* Positions matter to a causal mask, to a window, to slopes and to some maps of scores. Where lengths leave
 * open where they begin, the caller has to say it: a single query under a causal mask alone sees the whole
 * sequence either way. By starts each sequence has a Tq of its own, which nobody knows here. */
static coda_status check_align(struct node *n, const struct type *q, const struct sequences *of, int64_t tk,
                               bool lengths, bool slopes)
{
    bool beside = q->dim[q->rank - 2] == tk && of->batched == (q->rank == 3); /* query i and key i */
    int64_t *align = &n->attr.attention.align, tq = q->dim[q->rank - 2];
    bool causal = n->attr.attention.causal != 0;
    bool placed = n->prim && n->prim->inputs > SCORE_POSITION;
    bool window = n->attr.attention.window || n->attr.attention.ahead || slopes || placed;
    coda_status s = need_range(n, "align", *align, CODA_ALIGN_DEFAULT, CODA_ALIGN_LENGTH);
    if (s != CODA_OK) return s;
    if (!causal && !window) *align = CODA_ALIGN_DEFAULT;
    if (*align || (!causal && !window) || !lengths || beside || (tq == 1 && !window)) return CODA_OK;
    return fail(CODA_E_INVALID,
                "attention: %s, lengths, Tq %s and Tk %s: align must say where queries sit:"
                " CODA_ALIGN_LENGTH (3): the last before the length, CODA_ALIGN_END (2): before Tk,"
                " or CODA_ALIGN_START (1)",
                slopes   ? "slopes"
                : placed ? "the score's map"
                : window ? "window"
                         : "causal",
                dim_text(q->dims, tq).s, dim_text(q->dims, tk).s);
}

/* [B, heads, Tq], without B if q has none. */
static void type_of_sums(struct node *n, const struct type *q)
{
    n->type.dtype = CODA_F32;
    n->type.dim[q->rank - 2] = n->attr.attention.heads;
    n->type.dim[q->rank - 1] = q->dim[q->rank - 2];
}

coda_status infer_attention(const graph *g, struct node *n)
{
    const struct type *q = operand_type(g, n, ATTENTION_Q), *k = operand_type(g, n, ATTENTION_K),
                      *v = operand_type(g, n, ATTENTION_V);
    coda_status s = need_float(n, ATTENTION_Q, q, 2);
    if (s == CODA_OK && k->dtype != CODA_F8E4M3) s = need_float(n, ATTENTION_K, k, 2);
    if (s == CODA_OK && v->dtype != CODA_F8E4M3) s = need_float(n, ATTENTION_V, v, 2);
    if (s == CODA_OK && MIN(k->rank, v->rank) < 2)
        return fail(CODA_E_INVALID, "attention: k is %s, v %s; they need rank 2 or more", dims_text(k).s,
                    dims_text(v).s);
    if (s == CODA_OK) s = need_fixed_columns(n, "k", k);
    if (s == CODA_OK) s = need_fixed_columns(n, "v", v);
    struct sequences of;
    if (s == CODA_OK) s = find_sequences(q, operand_type(g, n, ATTENTION_STARTS), &of);
    struct type rows;
    if (s == CODA_OK) s = rows_of_heads(n, q, &of, k, &rows);
    if (s != CODA_OK) return s;
    if (k->rank != v->rank || !dims_equal(k, v, k->rank))
        return fail(CODA_E_INVALID, "attention: k is %s but v is %s; they must be equal", dims_text(k).s,
                    dims_text(v).s);
    k = &rows;
    const struct type *table = operand_type(g, n, ATTENTION_TABLE);
    bool paged = table && q->rank <= 3 && k->rank == 2;
    if (!paged && (s = check_keys(q, &of, k)) != CODA_OK) return s;
    if ((s = check_heads(n, q, k)) != CODA_OK) return s;
    if ((s = check_limits(n)) != CODA_OK) return s;
    if ((s = check_pages(n, &of, k, table, operand_type(g, n, ATTENTION_LENGTHS))) != CODA_OK) return s;
    int64_t keys =
        table ? dims_times(table->dims, table->dim[1], n->attr.attention.page) : k->dim[k->rank - 2];
    if (keys == DIM_NONE) return fail_status();
    if ((s = check_align(n, q, &of, keys, operand_type(g, n, ATTENTION_LENGTHS),
                         operand_type(g, n, ATTENTION_SLOPES))) != CODA_OK)
        return s;
    if ((s = check_bias(n, q, keys, operand_type(g, n, ATTENTION_BIAS))) != CODA_OK) return s;
    n->type = *q;
    if (node_result(n)) type_of_sums(n, q);
    return check_beside(g, n, q, &of);
}
