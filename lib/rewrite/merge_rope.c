/*
 * merge_rope.c -- rotates a fused projection whole instead of slice by slice.
 *
 *     rope(x[:, 0:a]), rope(x[:, a:b]), x[:, b:]  ==>  z[:, 0:a], z[:, a:b], z[:, b:]
 *     with z = rope(x) over its first b columns
 *
 * All readers of x must be slices of its columns; those that are rotated, and by nothing but one rope
 * each, share its options and positions, rotate all their heads, and tile the columns from 0 on.
 * So z takes x's place, in the epilogue of the matmul that makes x; slices of a leaf stay views. Where no
 * epilogue rotates x, a kernel of its own would move the columns that are not rotated, too: then all of them
 * must be. What is stored elsewhere is copied from z: that must not take more kernels than it saves. Exact.
 */
#include "guards.h"
#include "walk.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 };

struct merge {
    int *rope;    /* of x: the first rope of its slices, or -1 */
    int *reader;  /* of a value: its only reader, -1: it has none, -2: several */
    bool *live;   /* of a value: an output, or a state, depends on it */
    int64_t *end; /* of x: columns rotated */
    int *merged;  /* of x: z in the new graph, or -1 */
    struct uses uses;
    struct range *rotated; /* scratch of tiles() */
};

struct range {
    int64_t first, end;
};

static bool is_column_slice(const graph *g, int n, int x)
{
    const struct node *s = &g->node[n];
    return s->op == OP_SLICE && s->in[SLICE_X] == x && s->attr.slice.axis == s->type.rank - 1 &&
           s->attr.slice.step == 1;
}

/* Do two ropes turn by the same angles and pair the same columns? Their numbers of heads may differ. */
static bool same_rotation(const struct node *a, const struct node *b)
{
    struct node same = *b;
    same.attr.rope.heads = a->attr.rope.heads;
    return attr_equal(a, &same) && a->in[ROPE_POSITIONS] == b->in[ROPE_POSITIONS] &&
           a->in[ROPE_FREQUENCIES] == b->in[ROPE_FREQUENCIES];
}

/* The rope that is slice s's only reader, or -1. */
static int rope_of(const graph *g, const struct merge *m, int s)
{
    int r = m->reader[s];
    return r >= 0 && m->live[r] && g->node[r].op == OP_ROPE && g->node[r].in[ROPE_X] == s ? r : -1;
}

static int by_first(const void *x, const void *y)
{
    const struct range *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

/* Do two of the ranges overlap? It sorts them; none is empty. */
static bool overlap(struct range *r, int n)
{
    int64_t end = 0;
    qsort(r, (size_t)n, sizeof *r, by_first);
    for (int i = 0; i < n; i++) {
        if (!extent_reaches(r[i].first, end)) return true;
        end = r[i].end;
    }
    return false;
}

/* Do positions follow each other in memory at one distance? A leaf's rows may be apart, and a view's. */
static bool are_even(const graph *g, int positions)
{
    const struct node *n = &g->node[positions];
    int64_t dense[CODA_MAX_RANK];
    while (n->op == OP_RESHAPE) n = &g->node[n->in[RESHAPE_X]];
    if (op_is_view(n->op)) return n->type.rank < 2;
    dense_strides(&n->type, dense);
    return !op_is_leaf(n->op) || n->type.rank < 2 || extents_all_equal(dense, n->stride, n->type.rank);
}

/* Has each row of x a position of its own, or none? Several batches that share positions are rows of one
 * product, over which no stride repeats them. */
static bool has_own_positions(struct walk *w, int x, const struct node *rope)
{
    const struct type *t = &w->in->node[x].type;
    const struct type *at = rope->in[ROPE_POSITIONS] < 0 ? NULL : &w->in->node[rope->in[ROPE_POSITIONS]].type;
    int rank = at ? at->rank - (rope->attr.rope.section[0] != 0) : t->rank - 1;
    for (int d = 0; d + 1 < t->rank && at; d++) {
        int own = d - (t->rank - 1 - rank);
        int64_t rows = t->dim[d], positions = own < 0 ? 1 : at->dim[own];
        if (extents_equal(rows, positions)) continue;
        if (!dim_is_number(rows) || !dim_is_number(positions))
            rewrite_needs_numbers(w, "positions of several batches");
        return false;
    }
    return !at || are_even(w->in, rope->in[ROPE_POSITIONS]);
}

static bool is_vector(const struct type *t)
{
    for (int d = 0; d + 1 < t->rank; d++)
        if (!extent_is_one(t->dim[d])) return false;
    return true;
}

/* What a cast is made from, or a map whose other operands are vectors over its columns, as a bias or the
 * scales of a weight are: a product's epilogue computes it, too, if nobody else reads the product. -1: n is
 * something else. */
static int of_columns(const graph *g, const struct merge *m, int n)
{
    const struct node *node = &g->node[n];
    int whole = -1;
    if (node->op == OP_CAST) return node->in[CAST_X];
    for (int i = 0; i < node->nin && node->op == OP_MAP; i++) {
        const struct type *t = node->in[i] < 0 ? NULL : &g->node[node->in[i]].type;
        bool same = t && t->rank == node->type.rank && extents_all_equal(t->dim, node->type.dim, t->rank);
        if (whole < 0 && same) whole = node->in[i];
        else if (!t || !is_vector(t)) return -1;
    }
    return whole >= 0 && m->reader[whole] == n ? whole : -1;
}

/* Does a product make x, whose epilogue has both columns of each pair? */
static bool is_rotated_in_place(struct walk *w, const struct merge *m, int x, const struct node *rope)
{
    const graph *g = w->in;
    const struct attr_rope *a = &rope->attr.rope;
    int y = x;
    for (int below; (below = of_columns(g, m, y)) >= 0;) y = below;
    bool product = g->node[y].op == OP_MATMUL && attr_pairs_meet(a->head_dim, a->rotary, a->half);
    return product && has_own_positions(w, x, rope);
}

/* Rotated columns: disjoint ranges that tile 0..end, each of whole heads, all rotated alike. */
static bool tiles(const graph *g, struct merge *m, int x)
{
    int64_t sum = 0, end = 0, first_plain = INT64_MAX;
    int ranges = 0;
    const struct node *like = &g->node[m->rope[x]];
    for (int i = m->uses.at[x]; i < m->uses.at[x + 1]; i++) {
        int n = m->uses.use[i].node;
        if (!is_column_slice(g, n, x)) continue;
        const struct node *s = &g->node[n];
        int r = rope_of(g, m, n);
        if (r < 0) {
            if (extent_reaches(first_plain, s->attr.slice.start)) first_plain = s->attr.slice.start;
            continue;
        }
        const struct attr_rope *a = &g->node[r].attr.rope;
        if (!same_rotation(like, &g->node[r]) ||
            !extents_equal(a->heads * a->head_dim, type_columns(&s->type)))
            return false;
        m->rotated[ranges++] = (struct range){s->attr.slice.start, s->attr.slice.stop};
        sum += type_columns(&s->type);
        end = extent_max(end, s->attr.slice.stop);
    }
    m->end[x] = end;
    if (overlap(m->rotated, ranges)) return false;
    return extents_equal(sum, end) && extent_reaches(first_plain, end) &&
           extent_is_multiple(type_columns(&g->node[x].type), like->attr.rope.head_dim);
}

static void find_readers(const graph *g, struct merge *m)
{
    for (int v = 0; v < g->nodes; v++) m->reader[v] = m->rope[v] = m->merged[v] = -1;
    for (int n = 0; n < g->nodes; n++)
        for (int i = 0; i < g->node[n].nin; i++) {
            int v = g->node[n].in[i];
            if (v >= 0) m->reader[v] = m->reader[v] == -1 ? n : -2;
        }
    for (int i = 0; i < g->outputs; i++) m->reader[g->output[i].value] = -2;
}

static void find_live(const graph *g, struct merge *m)
{
    for (int n = 0; n < g->nodes; n++) m->live[n] = g->node[n].output >= 0 || op_is_version(g->node[n].op);
    for (int n = g->nodes - 1; n >= 0; n--)
        for (int i = 0; i < g->node[n].nin && m->live[n]; i++)
            if (g->node[n].in[i] >= 0) m->live[g->node[n].in[i]] = true;
}

/* Finds each x whose slices are rotated, then drops those that do not qualify. */
static void find_merges(const graph *g, struct merge *m)
{
    find_readers(g, m);
    find_live(g, m);
    for (int n = 0; n < g->nodes; n++) {
        int x = g->node[n].op == OP_SLICE ? g->node[n].in[SLICE_X] : -1;
        if (x >= 0 && m->rope[x] == -1 && is_column_slice(g, n, x)) m->rope[x] = rope_of(g, m, n);
    }
    for (int n = 0; n < g->nodes; n++)
        for (int i = 0; i < g->node[n].nin; i++)
            if (g->node[n].in[i] >= 0 && !is_column_slice(g, n, g->node[n].in[i]))
                m->rope[g->node[n].in[i]] = -1;
    for (int i = 0; i < g->outputs; i++) m->rope[g->output[i].value] = -1;
    for (int x = 0; x < g->nodes; x++) {
        bool computed = g->node[x].op == OP_MATMUL || g->node[x].op == OP_MAP || g->node[x].op == OP_CAST;
        if (m->rope[x] >= 0 && !(computed && tiles(g, m, x))) m->rope[x] = -1;
    }
}

/* rope(x) as all its slices want it, made when the first of them comes. */
static int rotate(struct walk *w, struct merge *m, int x)
{
    if (m->merged[x] >= 0) return m->merged[x];
    struct node n = w->in->node[m->rope[x]];
    int in[] = {w->map[x], -1, -1};
    for (int i = 1; i < n.nin; i++) in[i] = n.in[i] < 0 ? -1 : w->map[n.in[i]];
    n.in = in;
    n.attr.rope.heads = m->end[x] / n.attr.rope.head_dim;
    rewrite_note(w->log, "merge_rope", true, "%s: its first %lld columns are rotated at once",
                 rewrite_name(w->in, x).s, (long long)m->end[x]);
    return m->merged[x] = graph_append(w->out, &n);
}

/* Outputs and parts of concats that the value is. A slice of z is copied to each. */
static int count_stores(const graph *g, const struct merge *m, int value)
{
    int stores = 0;
    for (int i = 0; i < g->outputs; i++) stores += g->output[i].value == value;
    for (int i = m->uses.at[value]; i < m->uses.at[value + 1]; i++) {
        int n = m->uses.use[i].node;
        if (m->live[n] && op_is_view(g->node[n].op)) stores += count_stores(g, m, n);
        else stores += m->live[n] && g->node[n].op == OP_CONCAT;
    }
    return stores;
}

/* How many kernels are saved: those that rotate a slice, and store it wherever it is wanted, less copies. */
static int count_saved(const graph *g, const struct merge *m, int x)
{
    int saved = 0;
    for (int i = m->uses.at[x]; i < m->uses.at[x + 1]; i++) {
        int r = rope_of(g, m, m->uses.use[i].node);
        if (r >= 0) saved += 1 - count_stores(g, m, r);
    }
    return saved;
}

/* Is what is rotated stored elsewhere, too, in ranges of whole blocks of columns? An epilogue stores each of
 * these where it is wanted, turned or not. */
static bool has_ranges(const graph *g, const struct merge *m, int x)
{
    bool stored = false;
    for (int i = m->uses.at[x]; i < m->uses.at[x + 1]; i++) {
        const struct node *s = &g->node[m->uses.use[i].node];
        int r = rope_of(g, m, m->uses.use[i].node);
        stored = stored || (r >= 0 && count_stores(g, m, r));
        if (!extent_is_multiple(s->attr.slice.start, BLOCK) ||
            !extent_is_multiple(type_columns(&s->type), BLOCK))
            return false;
    }
    return stored;
}

/* Is the rotation in an epilogue, or are no columns moved for it that it leaves as they are, and are more
 * kernels saved than copies made, or none of both? */
static bool pays(struct walk *w, const struct merge *m, int x)
{
    bool in_place = is_rotated_in_place(w, m, x, &w->in->node[m->rope[x]]);
    bool whole = extents_equal(m->end[x], type_columns(&w->in->node[x].type));
    bool copies = !in_place || has_ranges(w->in, m, x);
    return (in_place || whole) && !w->out->status && count_saved(w->in, m, x) >= copies;
}

static int merge(struct walk *w, int n)
{
    struct merge *m = w->ctx;
    const struct node *s = &w->in->node[n];
    int x = s->nin ? s->in[SLICE_X] : -1;
    if (s->op == OP_ROPE && w->in->node[x].op == OP_SLICE && m->rope[w->in->node[x].in[SLICE_X]] >= 0 &&
        m->reader[x] == n)
        return w->map[x]; /* the slice is rotated already */
    if (s->op != OP_SLICE || m->rope[x] < 0) return RULE_COPY;
    for (int i = 1; i < w->in->node[m->rope[x]].nin; i++) {
        int other = w->in->node[m->rope[x]].in[i];
        if (other < 0 || w->map[other] >= 0) continue;
        m->rope[x] = -1; /* it is computed too late for this */
        return RULE_COPY;
    }
    if (m->merged[x] < 0 && !pays(w, m, x)) {
        m->rope[x] = -1;
        return w->out->status ? RULE_FAILED : RULE_COPY;
    }
    struct node slice = *s;
    slice.in = (int[]){rotate(w, m, x)};
    return graph_append(w->out, &slice);
}

graph *merge_rope(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    struct arena scratch = {0};
    int n = in->nodes + 1;
    struct merge m = {.rope = ARENA_NEW(&scratch, int, n),
                      .reader = ARENA_NEW(&scratch, int, n),
                      .live = ARENA_NEW(&scratch, bool, n),
                      .end = ARENA_NEW(&scratch, int64_t, n),
                      .merged = ARENA_NEW(&scratch, int, n),
                      .rotated = ARENA_NEW(&scratch, struct range, n)};
    graph *out = NULL;
    bool found = !scratch.failed && uses_find(&m.uses, &scratch, in, OP_COUNT);
    if (!found) fail(CODA_E_MEMORY, "rewrite: out of memory");
    else {
        find_merges(in, &m);
        int x = 0;
        while (x < in->nodes && m.rope[x] < 0) x++;
        out = x < in->nodes ? rewrite_walk(in, merge, opt, log, &m) : rewrite_nothing(in);
    }
    arena_free(&scratch);
    return out;
}
