/*
 * turn_dot.c -- moves a rotation in a row's dot product to where it is done anyway.
 *
 *     sum(z rope^-1(y))  ==>  sum(rope(z) y)       where rope(z) is there
 *
 * rope^-1, with `inverse`, is the transpose of rope, whatever its scale. One way only, towards the rope
 * without `inverse`, which the forward pass leaves in memory; both ways it would not end. Other factors must
 * be of the rows, as what differs within a pair does not commute with its turn. In: verified graph. Out: no
 * such sum. Inexact: another sum.
 */
#include "factors.h"

/* The rope of z by the same angles the other way, before v; -1. */
static int find_turn(const struct walk *w, int v, int z, const struct node *back)
{
    const struct live *live = w->ctx;
    for (int i = live->uses.at[z]; i < live->uses.at[z + 1]; i++) {
        int n = live->uses.use[i].node;
        const struct node *rope = &w->in->node[n];
        if (rope->op != OP_ROPE || n >= v || !live->is[n] || rope->attr.rope.inverse) continue;
        struct node same = *rope;
        same.attr.rope.inverse = back->attr.rope.inverse;
        if (attr_equal(&same, back) && rope->in[ROPE_POSITIONS] == back->in[ROPE_POSITIONS] &&
            rope->in[ROPE_FREQUENCIES] == back->in[ROPE_FREQUENCIES])
            return n;
    }
    return -1;
}

/* The place of the factor that the inverse at `index` meets, if it is the only full one; -1. */
static int partner(const struct factors *fs, int index)
{
    int found = -1;
    for (int i = 0; i < fs->n; i++) {
        if (i == index || fs->f[i].kind == FACTOR_ROW || fs->f[i].kind >= FACTOR_NUMBER) continue;
        if (found >= 0 || fs->f[i].kind == FACTOR_COLUMN || fs->f[i].divides) return -1;
        found = i;
    }
    return found;
}

/* The factors of the sum by what is turned, and where the two are that are turned back: i and z. */
static bool match(const struct walk *w, int v, struct factors *fs, int *i, int *z, int *turned)
{
    const graph *g = w->in;
    const struct live *live = w->ctx;
    if (!is_row_sum(&g->node[v]) || !live->is[v] || !factors_of(g, g->node[v].in[REDUCE_X], fs)) return false;
    for (*i = 0; *i < fs->n; ++*i) {
        const struct node *back = &g->node[fs->f[*i].value];
        bool inverse = back->op == OP_ROPE && back->attr.rope.inverse && fs->f[*i].kind == FACTOR_FULL;
        *z = !inverse || fs->f[*i].divides ? -1 : partner(fs, *i);
        *turned = *z < 0 ? -1 : find_turn(w, v, fs->f[*z].value, back);
        if (*turned >= 0) return true;
    }
    return false;
}

static bool matches(const struct walk *w, int v)
{
    struct factors fs;
    int i, z, turned;
    return match(w, v, &fs, &i, &z, &turned);
}

static int replace(struct walk *w, int v)
{
    const graph *g = w->in;
    struct factors fs;
    int i, z, turned;
    if (!match(w, v, &fs, &i, &z, &turned)) return RULE_COPY;
    rewrite_note(w->log, "turn_dot", false, "%s: the dot product of %s with %s is that of what they turn",
                 rewrite_name(g, v).s, rewrite_name(g, fs.f[z].value).s, rewrite_name(g, fs.f[i].value).s);
    fs.f[z].value = turned;
    fs.f[i].value = g->node[fs.f[i].value].in[ROPE_X];
    int y = factors_multiply(w, fs, &g->node[g->node[v].in[REDUCE_X]].type);
    return y < 0 ? RULE_FAILED : graph_reduce(w->out, "sum", y, -1);
}

graph *turn_dot(const graph *in, const struct rewrite_options *opt, struct rewrite_log *log)
{
    return live_walk(in, replace, opt, log, matches, NULL);
}
